// SPDX-License-Identifier: Apache-2.0
#include "backends/builtin.hpp"
#include "comm/meeting.hpp"
#include "comm/shared_backend.hpp"
#include "os/shared_memory.hpp"
#include <cerrno>
#include <new>
#include <unistd.h>

namespace ujoin {
namespace {

std::string why_not(const RanksAre &ranks) {
    if (ranks.threads) return "ranks are threads of one process";
    if (ranks.several_hosts) return "the ranks may be on several hosts";
    return ranks.size > 1024 ? "it is for at most 1024 ranks" : "";
}

std::unique_ptr<Backend> attach(const AttachRequest &request) {
    const size_t bytes = RankArea::bytes(default_chunk);
    const os::Fd memory = os::create_shared_memory(bytes);
    const std::shared_ptr<void> own = os::map_shared_memory(memory, bytes);
    auto *area = new (own.get()) RankArea; // before anybody else can see it
    area->fate.pid = getpid();

    Meeting meeting(request);
    std::vector<Peer> peers = meeting.exchange(memory, own_pidfd());
    auto mapped = std::make_shared<std::vector<std::shared_ptr<void>>>();
    SharedBackend::Parts parts;
    std::optional<Error> error;
    try {
        for (size_t k = 0; k < peers.size(); k++) {
            const bool is_own = k == static_cast<size_t>(request.rank);
            mapped->push_back(is_own ? own : os::map_shared_memory(peers[k].memory, bytes));
            parts.areas.push_back(static_cast<RankArea *>(mapped->back().get()));
            parts.pidfds.push_back(std::move(peers[k].pidfd));
        }
    } catch (const Error &caught) {
        error = caught;
    }
    meeting.conclude(error);
    parts.name = "shm";
    parts.rank = request.rank;
    parts.keep_mapped = mapped;
    parts.spin_ns = spin_time_ns(request.host_ranks);
    parts.pass = [request, count = 0](const os::Fd &mine, const Deadline &deadline) mutable {
        AttachRequest again = request;
        again.meeting += cat("/memory/", count++);
        again.deadline = deadline;
        Meeting place(again);
        std::vector<Peer> all = place.exchange(mine, own_pidfd());
        place.conclude(std::nullopt);
        std::vector<os::Fd> fds;
        fds.reserve(all.size());
        for (Peer &peer : all) fds.push_back(std::move(peer.memory));
        return fds;
    };
    return std::make_unique<SharedBackend>(std::move(parts));
}

} // namespace

BackendFactory shm_backend() { return {"shm", why_not, attach, "processes of one host"}; }

} // namespace ujoin
