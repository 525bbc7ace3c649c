// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/registry.hpp"
#include "comm/shared_area.hpp"
#include "os/unix_socket.hpp"

namespace ujoin {

/// UJOIN_E_UNSUPPORTED: the kernel has none.
os::Fd own_pidfd();

/// What a rank of a host gets of another: its memory and its life.
struct Peer {
    os::Fd memory;
    os::Fd pidfd;
};

/// Brings the ranks of a host together through an abstract socket that rank 0 opens. Each rank gives its own memory and
/// pidfd and gets everybody's. `attach` then maps them; if it fails on one rank, all ranks fail with its text.
class Meeting {
  public:
    explicit Meeting(const AttachRequest &request) : request_(request) {}
    std::vector<Peer> exchange(const os::Fd &memory, const os::Fd &pidfd);
    /// Every rank's outcome of what followed; throws on all if one failed.
    void conclude(const std::optional<Error> &error);

  private:
    std::string address() const;
    std::string hello() const;
    void gather();
    void join(const os::Fd &memory, const os::Fd &pidfd);
    void accept_one(const os::Fd &listener, std::vector<Peer> &peers);
    std::string check_hello(const std::string &bytes, int32_t &rank) const;
    [[noreturn]] void fail_all(const Error &error);
    os::Packet receive(const os::Fd &from, int32_t rank);

    AttachRequest request_;
    std::vector<os::Fd> sockets_; ///< on rank 0 by rank; elsewhere the one to rank 0
};

/// The areas of all ranks of a host, this rank's own made here; its memory lives as long as any of it is kept.
struct HostAreas {
    std::vector<RankArea *> areas; ///< by rank, as are the pidfds
    std::vector<os::Fd> pidfds;
    std::shared_ptr<void> keep_mapped;
};
HostAreas meet_on_host(const AttachRequest &request);

} // namespace ujoin
