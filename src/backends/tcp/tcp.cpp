// SPDX-License-Identifier: Apache-2.0
// Groups across hosts: each rank shows its area to the ranks of other hosts over connections. With `hier` the ranks of a host
// share memory, with `tcp` none does.
#include "backends/builtin.hpp"
#include "backends/tcp/introduction.hpp"
#include "backends/tcp/links.hpp"
#include "base/env.hpp"
#include "base/random.hpp"
#include "comm/meeting.hpp"
#include "comm/shared_backend.hpp"
#include "io/socket.hpp"
#include "os/process.hpp"
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace ujoin {
namespace {

constexpr int64_t connect_ms = 30'000; // from here on all ranks are there

std::string why_not(const RanksAre &ranks) {
    if (ranks.size > most_processes) return cat("it is for at most ", most_processes, " ranks");
    return ranks.several_hosts ? "" : "the ranks are on one host; ask for it by name to have it anyway";
}
std::string why_not_hier(const RanksAre &ranks) {
    return ranks.threads ? "ranks are threads of one process" : why_not(ranks);
}

/// Ranks that say the same can meet at an abstract socket and map each other's memory.
std::string own_place() {
    if (const auto given = env::text(env::Var::host_id)) return cat("id ", *given, " ", geteuid());
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    struct stat network {};
    if (stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
    return cat(boot, " ", network.st_ino, " ", geteuid());
}
/// What one rank brings into the group: its listener, its memory, and what it says of them.
struct Own {
    Introduction says;
    os::Fd listener;
};
Own introduce(const AttachRequest &request, bool by_host) {
    Own own;
    own.says.backend = request.backend;
    own.says.size = request.size;
    own.says.pid = getpid();
    own.says.host = os::host_name("?");
    try {
        own.says.place = by_host ? own_place() : cat("rank ", request.rank);
        if (request.rank == 0) own.says.secret = random_hex(32);
        io::Address address{request.address, 0};
        own.listener = io::listen_tcp(address);
        own.says.address = io::to_text(address);
    } catch (const Error &error) {
        own.says.error = error;
    }
    return own;
}

/// Who is where, by the numbers of the group.
struct Hosts {
    std::vector<int32_t> here;
    std::vector<int32_t> elsewhere;
    int32_t own = 0; ///< which of those here this rank is
};
Hosts sort_by_host(const std::vector<Introduction> &all, int32_t rank) {
    Hosts hosts;
    for (int32_t k = 0; k < static_cast<int32_t>(all.size()); k++) {
        const bool here = all[static_cast<size_t>(k)].place == all[static_cast<size_t>(rank)].place;
        if (k == rank) hosts.own = static_cast<int32_t>(hosts.here.size());
        (here ? hosts.here : hosts.elsewhere).push_back(k);
    }
    return hosts;
}

/// With the ranks of this host, as a group of shm is made.
void meet_here(SharedBackend::Parts &parts, const AttachRequest &request, const Hosts &hosts, const std::string &place) {
    AttachRequest of_host = request;
    of_host.rank = hosts.own;
    of_host.size = static_cast<int32_t>(hosts.here.size());
    of_host.meeting = cat("host://", place, "#", request.meeting);
    of_host.deadline = Deadline::earlier(request.deadline, Deadline::in(connect_ms));
    HostAreas host = meet_on_host(of_host);
    for (size_t i = 0; i < hosts.here.size(); i++) {
        const auto k = static_cast<size_t>(hosts.here[i]);
        parts.areas[k] = host.areas[i];
        parts.pidfds[k] = std::move(host.pidfds[i]);
    }
    parts.keep_mapped = std::move(host.keep_mapped);
}

/// With the ranks of other hosts.
void meet_elsewhere(SharedBackend::Parts &parts, const AttachRequest &request, const Hosts &hosts,
                    const std::vector<Introduction> &all, const os::Fd &listener) {
    std::vector<LinkTo> links = connect_to(hosts.elsewhere, all, request.rank, listener,
                                           Deadline::earlier(request.deadline, Deadline::in(connect_ms)));
    auto mirror = std::make_unique<Links>(parts.areas[static_cast<size_t>(request.rank)], request.size, default_chunk,
                                          std::move(links));
    for (const int32_t k : hosts.elsewhere) parts.areas[static_cast<size_t>(k)] = mirror->copy_of(k);
    parts.mirror = std::move(mirror);
}

/// What every rank says; throws on all if one cannot go on.
std::vector<Introduction> exchange(const AttachRequest &request, const Introduction &mine) {
    std::vector<Introduction> all;
    for (const std::string &text : request.exchange(mine.encode())) all.push_back(Introduction::decode(text));
    compare(all);
    return all;
}

std::unique_ptr<Backend> attach(const AttachRequest &request, const char *name, bool by_host) {
    Own own = introduce(request, by_host);
    const std::vector<Introduction> all = exchange(request, own.says);
    const Hosts hosts = sort_by_host(all, request.rank);
    SharedBackend::Parts parts;
    parts.name = name;
    parts.rank = request.rank;
    parts.areas.resize(all.size());
    parts.pidfds.resize(all.size());
    try {
        meet_here(parts, request, hosts, own.says.place);
        if (!hosts.elsewhere.empty()) meet_elsewhere(parts, request, hosts, all, own.listener);
    } catch (const Error &error) {
        own.says.error = error;
    }
    exchange(request, own.says);
    *request.host_place = {hosts.own, static_cast<int32_t>(hosts.here.size())};
    parts.pass = [](const os::Fd &, const Deadline &) -> std::vector<os::Fd> { // nobody asks: see SharedMemory
        fail(UJOIN_E_UNSUPPORTED, "descriptors cannot be passed to other hosts");
    };
    return std::make_unique<SharedBackend>(std::move(parts));
}

} // namespace

BackendFactory tcp_backend() {
    return {"tcp", why_not, [](const AttachRequest &request) { return attach(request, "tcp", false); },
            "ranks anywhere, by connections between all of them"};
}
BackendFactory hier_backend() {
    return {"hier", why_not_hier, [](const AttachRequest &request) { return attach(request, "hier", true); },
            "processes of several hosts: memory within each, connections between them"};
}

} // namespace ujoin
