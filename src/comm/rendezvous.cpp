// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"
#include "base/random.hpp"
#include "comm/group.hpp"
#include "comm/registry.hpp"
#include "store/store.hpp"
#include <cstdlib>
#include <string_view>
#include <utility>

namespace ujoin {
namespace {

using env::Var;
constexpr int64_t default_rendezvous_ms = 300'000;

struct Place {
    int32_t rank = 0;
    int32_t size = 0;
    int32_t local_size = 0;
    std::string meeting;
    bool threads = false;
};

/// The first of these variables that is set.
std::optional<int64_t> first_number(std::initializer_list<Var> vars, int64_t low, int64_t high) {
    for (const Var var : vars)
        if (const auto value = env::number(var, low, high)) return value;
    return std::nullopt;
}

void rank_and_size_from_env(Place &place) {
    const auto size = first_number({Var::world_size, Var::ompi_size, Var::pmi_size, Var::slurm_ntasks}, 1, 1 << 20);
    if (!size)
        fail_invalid("environment variable WORLD_SIZE is not set; start with ujoin-run, or give rank and world_size");
    const auto rank = first_number({Var::rank, Var::ompi_rank, Var::pmi_rank, Var::slurm_procid}, 0, *size - 1);
    if (!rank) fail_invalid("environment variable RANK is not set, but WORLD_SIZE is ", *size);
    place.rank = static_cast<int32_t>(*rank);
    place.size = static_cast<int32_t>(*size);
    const auto local = first_number({Var::local_world_size, Var::ompi_local_size}, 1, *size);
    place.local_size = static_cast<int32_t>(local.value_or(*size));
    if (place.local_size != place.size || env::text(Var::store))
        fail(UJOIN_E_UNSUPPORTED, "the ranks are on several hosts (LOCAL_WORLD_SIZE is ", place.local_size, ", WORLD_SIZE ",
             place.size, ", UJOIN_STORE is ", env::text(Var::store) ? "set" : "not set",
             "); this version of ujoin joins the ranks of one host");
}

std::string env_meeting() {
    const auto address = env::text(Var::master_addr);
    const auto port = env::number(Var::master_port, 1, 65535);
    return cat("env://", address.value_or("127.0.0.1"), ":", port.value_or(29500), "/", env::text(Var::run_id).value_or(""),
               "/", env::text(Var::restart_count).value_or("0"));
}

std::string tcp_meeting(const std::string &url) {
    const size_t colon = url.rfind(':');
    char *end = nullptr;
    const long port = std::strtol(url.c_str() + colon + 1, &end, 10);
    if (colon <= 6 || *end || port < 1 || port > 65535)
        fail_invalid("rendezvous is \"", url, "\"; expected tcp://host:port");
    return url;
}

std::string file_meeting(const std::string &url) {
    const std::string path = url.substr(7);
    if (path.empty() || path[0] != '/') fail_invalid("rendezvous is \"", url, "\"; expected file:///path");
    const size_t slash = path.rfind('/');
    const std::string folder = slash == 0 ? "/" : path.substr(0, slash);
    char *real = realpath(folder.c_str(), nullptr); // the same place by whatever way
    if (!real) fail_errno(errno, cat("rendezvous \"", url, "\": folder ", folder));
    std::string meeting = cat("file://", real, "/", path.substr(slash + 1));
    std::free(real);
    return meeting;
}

/// Ranks that come to a store agree there on a name that nobody else uses. Several groups in a row: every rank counts.
std::string store_meeting(Store &store, const Place &place, const std::string &name, const Deadline &deadline) {
    const std::string prefix = cat("ujoin/group/", name, "/");
    const int64_t arrival = store.add(prefix + "arrivals", 1);
    const std::string key = cat(prefix, (arrival - 1) / place.size);
    if (place.rank == 0) store.set(key, "store://" + random_hex(16));
    const std::optional<std::string> meeting = store.get(key, deadline);
    if (!meeting)
        throw Error(UJOIN_E_TIMEOUT, cat("rank 0 did not come to ", store.url(), " (this is rank ", place.rank, ")"))
            .with_ranks({0});
    return *meeting;
}

Place find_place(const GroupConfig &config, const Deadline &deadline) {
    Place place;
    if (config.size == 0) {
        rank_and_size_from_env(place);
    } else {
        if (config.size < 0) fail_invalid("world_size is ", config.size);
        if (config.rank < 0 || config.rank >= config.size)
            fail_invalid("rank is ", config.rank, "; expected 0 to ", config.size - 1, " (world_size is ", config.size,
                         ")");
        place.rank = config.rank;
        place.size = place.local_size = config.size;
    }
    const std::string &url = config.rendezvous;
    if (config.store) {
        place.meeting = store_meeting(*config.store, place, config.name, deadline);
    } else if (url == "env://") {
        place.meeting = env_meeting();
    } else if (url.starts_with("tcp://")) {
        place.meeting = tcp_meeting(url);
    } else if (url.starts_with("file://")) {
        place.meeting = file_meeting(url);
    } else if (url.starts_with("local://")) {
        place.meeting = url;
        place.threads = true;
    } else {
        fail_invalid("rendezvous is \"", url, "\"; expected env://, tcp://host:port, file:///path or local://name");
    }
    if (place.meeting.size() + config.name.size() > 1000)
        fail_invalid("rendezvous and name have more than 1000 characters");
    place.meeting += cat("#", config.name);
    return place;
}

/// What a rank says when a group is split.
struct Wish {
    int64_t color = 0;
    int64_t key = 0;
    char nonce[16] = {}; ///< rank 0's goes into the name of the meetings
};

} // namespace

std::shared_ptr<Group> Group::split(int32_t color, int32_t key, const GroupConfig &config) {
    const Deadline deadline =
        Deadline::in(duration_option(config.rendezvous_timeout_ms, default_rendezvous_ms, "rendezvous_timeout_ms"));
    duration_option(config.timeout_ms, 1, "timeout_ms");
    Wish mine{color, key};
    if (rank_ == 0) random_hex(sizeof mine.nonce / 2).copy(mine.nonce, sizeof mine.nonce);
    std::vector<Wish> wishes(static_cast<size_t>(size_));
    wishes[static_cast<size_t>(rank_)] = mine;
    std::vector<size_t> offsets(wishes.size() + 1);
    for (size_t k = 0; k < offsets.size(); k++) offsets[k] = k * sizeof(Wish);
    all_gather_parts(Memory(wishes.data(), offsets.back()), offsets.data(), deadline);
    if (color < 0) return nullptr;
    AttachRequest request;
    for (int32_t k = 0; k < size_; k++) {
        const Wish &other = wishes[static_cast<size_t>(k)];
        if (other.color != color) continue;
        request.size++;
        if (std::pair(other.key, k) < std::pair<int64_t, int32_t>(key, rank_)) request.rank++;
    }
    request.host_ranks = host_ranks_;
    request.meeting = cat("split://", std::string_view(wishes[0].nonce, sizeof mine.nonce), "/", color, "#", config.name);
    request.backend = config.backend;
    request.deadline = deadline;
    const bool threads = std::string_view(backend_name()) == "local";
    const BackendFactory &factory = choose_backend(config.backend, request.size, threads);
    return std::make_shared<Group>(factory.attach(request), request.rank, request.size, request.size, config, host_ranks_);
}

std::shared_ptr<Group> Group::create(const GroupConfig &config) {
    const Deadline deadline =
        Deadline::in(duration_option(config.rendezvous_timeout_ms, default_rendezvous_ms, "rendezvous_timeout_ms"));
    duration_option(config.timeout_ms, 1, "timeout_ms"); // before anybody is met
    const Place place = find_place(config, deadline);
    const BackendFactory &factory = choose_backend(config.backend, place.size, place.threads);
    AttachRequest request;
    request.rank = place.rank;
    request.size = request.host_ranks = place.size;
    request.meeting = place.meeting;
    request.backend = config.backend;
    request.deadline = deadline;
    return std::make_shared<Group>(factory.attach(request), place.rank, place.size, place.local_size, config);
}

} // namespace ujoin
