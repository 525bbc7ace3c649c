// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"
#include "base/random.hpp"
#include "comm/group.hpp"
#include "comm/registry.hpp"
#include "io/socket.hpp"
#include "store/store.hpp"
#include <algorithm>
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
    std::string meeting; ///< where the ranks of one host meet
    std::string store;   ///< and where those of several do
    RanksAre ranks;
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
    place.ranks.several_hosts = place.local_size != place.size || env::text(Var::store).has_value();
}

std::string master() {
    const auto address = env::text(Var::master_addr);
    const auto port = env::number(Var::master_port, 1, 65535);
    return io::to_text({address.value_or("127.0.0.1"), static_cast<uint16_t>(port.value_or(29500))});
}
/// Tells apart jobs and attempts of one that meet at the same address.
std::string attempt() { return cat(env::text(Var::run_id).value_or(""), "/", env::text(Var::restart_count).value_or("0")); }

io::Address tcp_meeting(const std::string &url) {
    io::Address address;
    try {
        address = io::parse_address(std::string_view(url).substr(6));
    } catch (const Error &error) {
        fail_invalid("rendezvous is \"", url, "\"; expected tcp://host:port: ", error.text());
    }
    if (address.port == 0) fail_invalid("rendezvous is \"", url, "\"; expected tcp://host:port");
    return address;
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
        place.store = config.store->url();
    } else if (url == "env://") {
        place.meeting = cat("env://", master(), "/", attempt());
        place.store = cat("tcp://", env::text(Var::store).value_or(master()));
    } else if (url.starts_with("tcp://")) {
        place.meeting = place.store = url;
        place.ranks.several_hosts = !io::is_loopback(tcp_meeting(url).host);
    } else if (url.starts_with("file://")) {
        place.meeting = file_meeting(url);
        place.store = url;
    } else if (url.starts_with("local://")) {
        place.meeting = url;
        place.store = cat("memory://", std::string_view(url).substr(8));
        place.ranks.threads = true;
    } else {
        fail_invalid("rendezvous is \"", url, "\"; expected env://, tcp://host:port, file:///path or local://name");
    }
    if (place.meeting.size() + config.name.size() > 1000)
        fail_invalid("rendezvous and name have more than 1000 characters");
    place.meeting += cat("#", config.name);
    place.ranks.size = place.size;
    if (config.backend == "tcp" || config.backend == "hier") place.ranks.several_hosts = true; // as good as asked for
    return place;
}

/// The store of a group across hosts, if the program gives none: the launcher's, or one that rank 0 holds where they meet.
std::shared_ptr<Store> open_store(const Place &place, const GroupConfig &config, const Deadline &deadline) {
    Store::Options options;
    options.secret = env::text(Var::secret).value_or("");
    options.timeout_ms = deadline.left_ms(INT32_MAX);
    const bool launchers = config.rendezvous == "env://" && env::text(Var::store);
    options.listen = place.store.starts_with("tcp://") && place.rank == 0 && !launchers;
    return Store::open(place.store, options);
}

/// Everybody's text through a store, under names that only this meeting has.
std::vector<std::string> exchange_texts(Store &store, const std::string &prefix, const Place &place,
                                        const std::string &mine, const Deadline &deadline) {
    const auto key = [&](int32_t rank) { return cat(prefix, "/", rank); };
    store.set(key(place.rank), mine);
    std::vector<std::string> all;
    std::vector<int32_t> missing;
    for (int32_t k = 0; k < place.size; k++) {
        std::optional<std::string> text = store.get(key(k), deadline);
        if (!text) missing.push_back(k);
        all.push_back(std::move(text).value_or(""));
    }
    if (!missing.empty())
        throw Error(UJOIN_E_TIMEOUT,
                    cat("ranks ", join_list(missing), " did not come to ", store.url(), " (this is rank ", place.rank, ")"))
            .with_ranks(missing);
    return all;
}

/// A store that rank 0 holds itself goes with this object: nobody may need it any more.
void part_from_store(Store &store, const std::string &prefix, const Place &place) {
    constexpr int64_t patience_ms = 10'000; // for ranks that have died since
    const bool last = store.add(prefix + "/through", 1) == place.size;
    if (last) store.set(prefix + "/all through", "");
    if (place.rank == 0) store.get(prefix + "/all through", Deadline::in(patience_ms));
}

/// This host's address, for ranks of others: nothing but itself, unless the meeting or the program says otherwise.
std::string own_address(const std::string &store_url) {
    if (const auto interface = env::text(Var::interface)) return io::address_of_interface(*interface);
    if (!store_url.starts_with("tcp://")) return "127.0.0.1";
    return io::own_address_towards(io::parse_address(std::string_view(store_url).substr(6)));
}

/// The end of the server of an earlier meeting at the same address may have been met: then once more.
std::string agree_on_meeting(std::shared_ptr<Store> &store, const Place &place, const GroupConfig &config,
                             const Deadline &deadline) {
    for (;;) {
        try {
            if (!store) store = open_store(place, config, deadline);
            return store_meeting(*store, place, cat(attempt(), "/", config.name), deadline);
        } catch (const Error &error) {
            if (error.code() != UJOIN_E_PEER_LOST || place.rank == 0 || deadline.passed()) throw;
            store.reset();
        }
    }
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
    // Across hosts the ranks of all colors exchange what a backend needs, also those whose backend needs nothing.
    int exchanges_left = ranks_.several_hosts ? AttachRequest::exchanges : 0;
    const auto take_part = [&] {
        while (exchanges_left-- > 0) exchange("", deadline);
    };
    if (color < 0) {
        take_part();
        return nullptr;
    }
    std::vector<std::pair<int64_t, size_t>> members; // key and rank here, in the order of the new ranks
    for (size_t k = 0; k < wishes.size(); k++)
        if (wishes[k].color == color) members.emplace_back(wishes[k].key, k);
    std::sort(members.begin(), members.end());
    AttachRequest request;
    request.size = static_cast<int32_t>(members.size());
    while (members[static_cast<size_t>(request.rank)].second != static_cast<size_t>(rank_)) request.rank++;
    request.host_ranks = host_ranks_;
    request.meeting = cat("split://", std::string_view(wishes[0].nonce, sizeof mine.nonce), "/", color, "#", config.name);
    request.backend = config.backend;
    request.deadline = deadline;
    HostPlace here{request.rank, request.size};
    request.host_place = &here;
    RanksAre ranks = ranks_;
    ranks.size = request.size;
    request.address = address_;
    request.exchange = [&](const std::string &text) {
        exchanges_left--;
        const std::vector<std::string> all = exchange(text, deadline);
        std::vector<std::string> of_members;
        of_members.reserve(members.size());
        for (const auto &member : members) of_members.push_back(all[member.second]);
        return of_members;
    };
    std::unique_ptr<Backend> backend;
    try {
        backend = choose_backend(config.backend, ranks).attach(request);
    } catch (const Error &) {
        take_part();
        throw;
    }
    take_part();
    auto group = std::make_shared<Group>(std::move(backend), request.rank, request.size, here, config, host_ranks_);
    group->ranks_ = ranks;
    group->address_ = address_;
    return group;
}

std::shared_ptr<Group> Group::create(const GroupConfig &config) {
    const Deadline deadline =
        Deadline::in(duration_option(config.rendezvous_timeout_ms, default_rendezvous_ms, "rendezvous_timeout_ms"));
    duration_option(config.timeout_ms, 1, "timeout_ms"); // before anybody is met
    const Place place = find_place(config, deadline);
    const BackendFactory &factory = choose_backend(config.backend, place.ranks);
    AttachRequest request;
    request.rank = place.rank;
    request.size = place.size;
    request.host_ranks = place.local_size;
    request.meeting = place.meeting;
    request.backend = config.backend;
    request.deadline = deadline;
    HostPlace here{place.rank, place.local_size};
    request.host_place = &here;
    std::shared_ptr<Store> store = config.store;
    if (place.ranks.several_hosts) {
        if (!store) request.meeting = agree_on_meeting(store, place, config, deadline);
        request.address = own_address(place.store);
        request.exchange = [&, turn = 0](const std::string &mine) mutable {
            return exchange_texts(*store, cat(request.meeting, "/", turn++), place, mine, deadline);
        };
    }
    std::unique_ptr<Backend> backend = factory.attach(request);
    if (store && !config.store) part_from_store(*store, request.meeting, place);
    auto group = std::make_shared<Group>(std::move(backend), place.rank, place.size, here, config);
    group->ranks_ = place.ranks;
    group->address_ = request.address;
    return group;
}

} // namespace ujoin
