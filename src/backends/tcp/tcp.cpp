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
#include "os/shared_memory.hpp"
#include <algorithm>
#include <fstream>
#include <new>
#include <sys/stat.h>
#include <unistd.h>

namespace ujoin {
namespace {

constexpr int64_t connect_ms = 30'000; // from here on all ranks are there
constexpr int32_t most_ranks = 1024;

std::string why_not(const RanksAre &ranks) {
    if (ranks.size > most_ranks) return cat("it is for at most ", most_ranks, " ranks");
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
std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : "?";
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
    own.says.host = host_name();
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

/// The ranks of this host, as they are numbered in the group, and this rank's areas of all: its host's, mapped, and copies.
struct Areas {
    std::vector<int32_t> here;
    std::vector<int32_t> elsewhere;
    std::vector<std::shared_ptr<void>> mapped;
    SharedBackend::Parts parts;
};

/// With the ranks of this host, as a group of shm is made.
void meet_here(Areas &areas, const AttachRequest &request, const std::string &place) {
    const size_t bytes = RankArea::bytes(default_chunk);
    const os::Fd memory = os::create_shared_memory(bytes);
    const std::shared_ptr<void> own = os::map_shared_memory(memory, bytes);
    auto *area = new (own.get()) RankArea;
    area->fate.pid = getpid();
    areas.parts.areas[static_cast<size_t>(request.rank)] = area;
    areas.mapped.push_back(own);
    if (areas.here.size() == 1) return;
    AttachRequest of_host = request;
    of_host.size = static_cast<int32_t>(areas.here.size());
    of_host.meeting = cat("host://", place, "#", request.meeting);
    of_host.deadline = Deadline::earlier(request.deadline, Deadline::in(connect_ms));
    for (int32_t i = 0; i < of_host.size; i++)
        if (areas.here[static_cast<size_t>(i)] == request.rank) of_host.rank = i;
    Meeting meeting(of_host);
    std::vector<Peer> peers = meeting.exchange(memory, own_pidfd());
    std::optional<Error> error;
    try {
        for (size_t i = 0; i < peers.size(); i++) {
            const auto k = static_cast<size_t>(areas.here[i]);
            areas.parts.pidfds[k] = std::move(peers[i].pidfd);
            if (areas.here[i] == request.rank) continue;
            areas.mapped.push_back(os::map_shared_memory(peers[i].memory, bytes));
            areas.parts.areas[k] = static_cast<RankArea *>(areas.mapped.back().get());
        }
    } catch (const Error &caught) {
        error = caught;
    }
    meeting.conclude(error);
}

/// With the ranks of other hosts.
void meet_elsewhere(Areas &areas, const AttachRequest &request, const std::vector<Introduction> &all,
                    const os::Fd &listener) {
    const auto rank = static_cast<size_t>(request.rank);
    std::vector<LinkTo> links = connect_to(areas.elsewhere, all, request.rank, listener,
                                           Deadline::earlier(request.deadline, Deadline::in(connect_ms)));
    auto mirror = std::make_unique<Links>(areas.parts.areas[rank], request.size, default_chunk, std::move(links));
    for (const int32_t k : areas.elsewhere) areas.parts.areas[static_cast<size_t>(k)] = mirror->copy_of(k);
    areas.parts.mirror = std::move(mirror);
}

std::unique_ptr<Backend> attach(const AttachRequest &request, const char *name, bool by_host) {
    const Own own = introduce(request, by_host);
    std::vector<Introduction> all;
    for (const std::string &text : request.exchange(own.says.encode())) all.push_back(Introduction::decode(text));
    compare(all);

    Areas areas;
    areas.parts.areas.resize(all.size());
    areas.parts.pidfds.resize(all.size());
    for (size_t k = 0; k < all.size(); k++)
        (all[k].place == own.says.place ? areas.here : areas.elsewhere).push_back(static_cast<int32_t>(k));
    Introduction verdict = own.says;
    try {
        meet_here(areas, request, own.says.place);
        if (!areas.elsewhere.empty()) meet_elsewhere(areas, request, all, own.listener);
    } catch (const Error &error) {
        verdict.error = error;
    }
    all.clear();
    for (const std::string &text : request.exchange(verdict.encode())) all.push_back(Introduction::decode(text));
    compare(all);

    const auto here = std::find(areas.here.begin(), areas.here.end(), request.rank);
    *request.host_place = {static_cast<int32_t>(here - areas.here.begin()), static_cast<int32_t>(areas.here.size())};
    areas.parts.name = name;
    areas.parts.rank = request.rank;
    areas.parts.keep_mapped = std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(areas.mapped));
    areas.parts.pass = [](const os::Fd &, const Deadline &) -> std::vector<os::Fd> { // nobody asks: see SharedMemory
        fail(UJOIN_E_UNSUPPORTED, "descriptors cannot be passed to other hosts");
    };
    return std::make_unique<SharedBackend>(std::move(areas.parts));
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
