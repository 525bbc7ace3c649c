// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"
#include "os/fd.hpp"
#include <optional>
#include <string>
#include <vector>

namespace ujoin::os {

/// Packets between processes of this host and this user, with descriptors. Addresses are abstract: nothing in the file
/// system, gone with the last descriptor.
struct Packet {
    std::string bytes;
    std::vector<Fd> fds;
};

/// Listens; nothing if the address is in use.
std::optional<Fd> listen_abstract(const std::string &name);
/// The next connection of this user's; another user's is dropped. Nothing when `deadline` passes first.
std::optional<Fd> accept_peer(const Fd &listener, const Deadline &deadline);
/// Connects; nothing if nobody listens (yet). UJOIN_E_SYSTEM if another user does.
std::optional<Fd> connect_abstract(const std::string &name);

/// UJOIN_E_PEER_LOST when the other side is gone.
void send_packet(const Fd &socket, const std::string &bytes, const std::vector<int> &fds = {});
/// Nothing when `deadline` passes first. UJOIN_E_PEER_LOST at the end of the stream.
std::optional<Packet> receive_packet(const Fd &socket, const Deadline &deadline);

} // namespace ujoin::os
