// SPDX-License-Identifier: Apache-2.0
#include "backends/builtin.hpp"
#include "comm/meeting.hpp"
#include "comm/shared_backend.hpp"
#include <utility>

namespace ujoin {
namespace {

std::string why_not(const RanksAre &ranks) {
    if (ranks.threads) return "ranks are threads of one process";
    if (ranks.several_hosts) return "the ranks may be on several hosts";
    return ranks.size > most_processes ? cat("it is for at most ", most_processes, " ranks") : "";
}

std::unique_ptr<Backend> attach(const AttachRequest &request) {
    HostAreas host = meet_on_host(request);
    SharedBackend::Parts parts;
    parts.name = "shm";
    parts.rank = request.rank;
    parts.areas = std::move(host.areas);
    parts.pidfds = std::move(host.pidfds);
    parts.keep_mapped = std::move(host.keep_mapped);
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
