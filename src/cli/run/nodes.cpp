// SPDX-License-Identifier: Apache-2.0
#include "run/nodes.hpp"
#include "run/live.hpp"
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ujoin_run {
namespace {

constexpr int64_t slice_ms = 200;
constexpr int64_t goodbye_ms = 10'000;
constexpr double join_timeout_s = 600;
constexpr double last_call_s = 3; // for hosts beyond the least number

int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// "restart|status|text"
std::string as_text(const Over &over) {
    return std::string(over.restart ? "1|" : "0|") + std::to_string(over.status) + "|" + over.text;
}

Over from_text(const std::string &text) {
    Over over;
    const size_t first = text.find('|');
    const size_t second = first == std::string::npos ? first : text.find('|', first + 1);
    if (second == std::string::npos) return over;
    over.restart = text[0] == '1';
    over.status = std::atoi(text.c_str() + first + 1);
    over.text = text.substr(second + 1);
    return over;
}

std::string attempt_key(int attempt, const std::string &name) { return "attempt_" + std::to_string(attempt) + "/" + name; }

std::string own_address(const Options &options, const std::string &meeting_host) {
    if (!options.local_addr.empty()) return options.local_addr;
    if (meeting_host == "localhost" || meeting_host.rfind("127.", 0) == 0) return "127.0.0.1";
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

} // namespace

std::string random_id() {
    unsigned char bytes[8] = {};
    if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
        throw Exit(exit_usage, "cannot get random bytes");
    std::string id;
    for (const unsigned char byte : bytes) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", byte);
        id += digits;
    }
    return id;
}

int free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const bool found = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr *>(&address), size) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) == 0;
    if (fd >= 0) close(fd);
    if (!found) throw Exit(exit_usage, "cannot find a free port");
    return ntohs(address.sin_port);
}

Nodes::Nodes(const Options &options)
    : options_(options), store_(nullptr, ujoin_store_destroy), watch_store_(nullptr, ujoin_store_destroy) {
    const bool one = options.standalone || options.max_nodes == 1 ||
                     (options.min_nodes == 1 && options.rdzv_endpoint.empty() && !options.node_rank_given);
    run_id_ = options.run_id.empty() || options.standalone ? random_id() : options.run_id;
    if (one) return;
    if (options.rdzv_backend == "static" && !options.node_rank_given)
        throw Exit(exit_usage, "--nnodes is " + options.nnodes +
                                   ": each host needs its --node-rank, or --rdzv-backend c10d and an --rdzv-endpoint");
    std::string endpoint = options.rdzv_endpoint;
    if (endpoint.empty()) endpoint = options.master_addr + ":" + std::to_string(options.master_port + 1);
    if (endpoint.find(':') == std::string::npos) endpoint += ":29400";
    open(endpoint);
    number_hosts();
    open_live(endpoint.substr(0, endpoint.rfind(':')));
    live_ = std::thread([this] { run_live(); });
}

/// One host listens: number 0, or where they are not numbered whoever can.
void Nodes::open(const std::string &endpoint) {
    const std::string url = "tcp://" + endpoint;
    ujoin_store_options settings{};
    settings.size = sizeof settings;
    settings.timeout_ms = static_cast<int64_t>(conf("join_timeout", join_timeout_s) * 1000);
    ujoin_store *made = nullptr;
    const bool numbered = options_.rdzv_backend == "static";
    if (!numbered || options_.node_rank == 0) {
        settings.listen = 1;
        if (ujoin_store_create(url.c_str(), &settings, &made) == UJOIN_OK)
            host_ = true;
        else if (numbered || (ujoin_last_errno() != EADDRINUSE && ujoin_last_errno() != EADDRNOTAVAIL))
            throw Exit(exit_usage, std::string("the hosts cannot meet at ") + endpoint + ": " + ujoin_last_error());
        settings.listen = 0;
    }
    if (!made && ujoin_store_create(url.c_str(), &settings, &made) != UJOIN_OK)
        throw Exit(exit_usage, std::string("the hosts cannot meet at ") + endpoint + ": " + ujoin_last_error());
    store_.reset(made);
    url_ = ujoin_store_url(made);
    made = nullptr;
    if (ujoin_store_create(url_.c_str(), &settings, &made) != UJOIN_OK) throw Exit(exit_usage, ujoin_last_error());
    watch_store_.reset(made);
    if (host_) set("run_id", run_id_);
    const auto shared = get(store_.get(), "run_id", settings.timeout_ms);
    if (!shared) throw Exit(exit_usage, "the host that holds the store did not say the job's name in time");
    if (!options_.run_id.empty() && *shared != run_id_)
        throw Exit(exit_usage,
                   "another job, \"" + *shared + "\", meets at " + endpoint + "; this one is \"" + run_id_ + "\"");
    run_id_ = *shared;
}

void Nodes::number_hosts() {
    int64_t arrival = 0;
    const std::string key = options_.node_rank_given ? "taken_" + std::to_string(options_.node_rank) : "arrivals";
    if (ujoin_store_add(store_.get(), key.c_str(), 1, &arrival) < 0) throw Exit(exit_usage, ujoin_last_error());
    if (options_.node_rank_given && arrival > 1)
        throw Exit(exit_usage, "another host has --node-rank " + std::to_string(options_.node_rank) + " already");
    node_ = options_.node_rank_given ? options_.node_rank : static_cast<int32_t>(arrival) - 1;
    if (node_ >= options_.max_nodes)
        throw Exit(exit_usage, "the job has its " + std::to_string(options_.max_nodes) + " hosts already");
}

void Nodes::open_live(const std::string &host) {
    const auto timeout = static_cast<int64_t>(conf("join_timeout", join_timeout_s) * 1000);
    if (host_) {
        token_ = random_id() + random_id();
        int port = 0;
        live_listener_ = listen_at(host, port);
        set("live", std::to_string(port) + " " + token_);
        return;
    }
    const auto told = get(store_.get(), "live", timeout);
    if (!told) throw Exit(exit_usage, "the host that holds the store did not open its line in time");
    const size_t space = told->find(' ');
    live_line_ = connect_to(host, std::atoi(told->c_str()));
    send_text(live_line_, told->substr(space + 1) + " " + std::to_string(node_) + "\n");
}

Nodes::~Nodes() {
    unwatch();
    if (!several()) return;
    if (!host_) send_text(live_line_, "bye\n");
    if (host_) { // the store goes with this process: the others must be through with it
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(goodbye_ms), [&] { return goodbyes_ >= nodes_ - 1; });
    }
    stop_live_ = true;
    if (live_.joinable()) live_.join();
    if (live_line_ >= 0) close(live_line_);
    if (live_listener_ >= 0) close(live_listener_);
}

double Nodes::conf(const std::string &name, double otherwise) const {
    for (const std::string &part : split(options_.rdzv_conf, ','))
        if (part.rfind(name + "=", 0) == 0) return std::atof(part.c_str() + name.size() + 1);
    return name == "last_call" ? conf("last_call_timeout", otherwise) : otherwise;
}

std::optional<std::string> Nodes::get(ujoin_store *store, const std::string &key, int64_t timeout_ms) const {
    const int64_t until = now_ms() + timeout_ms;
    for (;;) { // in slices: another host may end the attempt meanwhile
        const int64_t left = std::max<int64_t>(until - now_ms(), 0);
        char value[4096];
        size_t size = 0;
        const ujoin_status status =
            ujoin_store_get(store, key.c_str(), std::min(left, slice_ms), value, sizeof value, &size);
        if (status == UJOIN_OK) return std::string(value, size);
        if (status != UJOIN_PENDING)
            throw Exit(exit_usage, std::string("the hosts have lost their store: ") + ujoin_last_error());
        if (left == 0 || over()) return std::nullopt;
    }
}

void Nodes::set(const std::string &key, const std::string &value) const {
    if (ujoin_store_set(store_.get(), key.c_str(), value.data(), value.size()) < 0)
        throw Exit(exit_usage, std::string("the hosts have lost their store: ") + ujoin_last_error());
}

/// How many take part: fixed, or those that have come a moment after the least number was there.
int32_t Nodes::count_hosts() {
    if (options_.min_nodes == options_.max_nodes) return options_.max_nodes;
    if (!host_) {
        const auto told = get(store_.get(), "count", static_cast<int64_t>(conf("join_timeout", join_timeout_s) * 1000));
        if (!told) throw Exit(exit_usage, "the host that holds the store did not say how many take part");
        return std::atoi(told->c_str());
    }
    const auto last_call = static_cast<int64_t>(conf("last_call", last_call_s) * 1000);
    int32_t count = 0;
    int64_t until = now_ms() + static_cast<int64_t>(conf("join_timeout", join_timeout_s) * 1000);
    while (count < options_.max_nodes) {
        if (get(store_.get(), attempt_key(0, "node_" + std::to_string(count)), std::max<int64_t>(until - now_ms(), 0))) {
            count++;
            if (count == options_.min_nodes) until = now_ms() + last_call;
        } else if (count >= options_.min_nodes) {
            break;
        } else {
            throw Exit(exit_usage,
                       "only " + std::to_string(count) + " hosts came, of " + std::to_string(options_.min_nodes));
        }
    }
    set("count", std::to_string(count));
    return count;
}

Place Nodes::meet(int attempt) {
    Place place;
    place.run_id = run_id_;
    place.master_addr = options_.standalone ? "127.0.0.1" : options_.master_addr;
    place.master_port = options_.standalone || options_.master_port == 0 ? free_port() : options_.master_port;
    place.world_size = options_.workers;
    if (!several()) return place;
    {
        std::scoped_lock lock(mutex_);
        if (over_ && over_->restart) over_.reset(); // that was the last attempt
    }
    const std::string host = url_.substr(6, url_.rfind(':') - 6);
    const int port = options_.rdzv_endpoint.empty() ? options_.master_port : free_port();
    const std::string address = options_.rdzv_endpoint.empty() ? options_.master_addr : own_address(options_, host);
    set(attempt_key(attempt, "node_" + std::to_string(node_)),
        std::to_string(options_.workers) + " " + address + " " + std::to_string(port));
    if (attempt == 0) nodes_ = count_hosts();
    if (node_ >= nodes_) throw Exit(exit_usage, "the job has begun without this host");
    place.world_size = 0;
    place.group_rank = node_;
    place.nodes = nodes_;
    place.store = url_.substr(6);
    for (int32_t node = 0; node < nodes_; node++) {
        const auto told = get(store_.get(), attempt_key(attempt, "node_" + std::to_string(node)),
                              static_cast<int64_t>(conf("join_timeout", join_timeout_s) * 1000));
        if (!told && over()) throw Exit(over()->status, "ended before the start: " + over()->text);
        if (!told)
            throw Exit(exit_usage, "host " + std::to_string(node) + " of " + std::to_string(nodes_) + " did not come");
        const std::vector<std::string> parts = split(*told, ' ');
        const int32_t workers = std::atoi(parts.at(0).c_str());
        if (node < node_) place.first_rank += workers;
        place.world_size += workers;
        if (node == 0) {
            place.master_addr = parts.at(1);
            place.master_port = std::atoi(parts.at(2).c_str());
        }
    }
    return place;
}

void Nodes::found_over(const Over &over) {
    std::function<void()> ended;
    {
        std::scoped_lock lock(mutex_);
        if (over_) return;
        over_ = over;
        ended = ended_;
    }
    if (ended) ended();
}

void Nodes::watch(int attempt, const std::function<void()> &ended) {
    if (!several()) return;
    bool late = false;
    {
        std::scoped_lock lock(mutex_);
        late = over_.has_value();
        ended_ = ended;
    }
    if (late && ended) ended();
    watcher_ = std::thread([this, key = attempt_key(attempt, "over")] { run_watch(key); });
}

void Nodes::run_watch(const std::string &key) {
    while (!stop_watch_) {
        char value[4096];
        size_t size = 0;
        const ujoin_status status = ujoin_store_get(watch_store_.get(), key.c_str(), slice_ms, value, sizeof value, &size);
        if (status == UJOIN_PENDING) continue;
        if (status == UJOIN_OK)
            found_over(from_text(std::string(value, size)));
        else if (!stop_watch_)
            found_over({false, 1, "the host that holds the store is gone"});
        return;
    }
}

void Nodes::unwatch() {
    if (!watcher_.joinable()) return;
    stop_watch_ = true;
    watcher_.join();
    stop_watch_ = false;
    std::scoped_lock lock(mutex_);
    ended_ = nullptr;
}

std::optional<Over> Nodes::over() const {
    std::scoped_lock lock(mutex_);
    return over_;
}

Over Nodes::end(int attempt, const Over &why) {
    if (!several()) return why;
    if (const auto known = over()) return *known;
    Over own = why;
    own.text = "host " + std::to_string(node_) + ": " + why.text;
    int64_t order = 0;
    if (ujoin_store_add(store_.get(), attempt_key(attempt, "enders").c_str(), 1, &order) < 0) return why;
    if (order == 1) {
        try {
            set(attempt_key(attempt, "over"), as_text(own));
        } catch (const Exit &) { // the store has gone with its host: this host's own failure counts
        }
        std::scoped_lock lock(mutex_);
        over_ = own;
        return why;
    }
    const auto told = get(store_.get(), attempt_key(attempt, "over"), goodbye_ms);
    return told ? from_text(*told) : why;
}

std::optional<Over> Nodes::finish(int attempt) {
    if (!several()) return std::nullopt;
    int64_t done = 0;
    if (ujoin_store_add(store_.get(), attempt_key(attempt, "done").c_str(), 1, &done) < 0)
        return Over{false, 1, "the host that holds the store is gone"};
    if (done == nodes_) set(attempt_key(attempt, "all_done"), "1");
    watch(attempt, nullptr);
    for (;;) {
        if (get(store_.get(), attempt_key(attempt, "all_done"), slice_ms)) break;
        if (over()) break;
    }
    unwatch();
    return over();
}

void Nodes::node_gone(int32_t node) {
    found_over({false, 1, "host " + std::to_string(node) + " is gone"});
    ujoin_store_options settings{}; // a connection of its own: the others are in use
    settings.size = sizeof settings;
    settings.timeout_ms = goodbye_ms;
    ujoin_store *made = nullptr;
    if (ujoin_store_create(url_.c_str(), &settings, &made) < 0) return;
    const std::string text = as_text({false, 1, "host " + std::to_string(node) + " is gone"});
    for (int attempt = 0; attempt <= options_.max_restarts; attempt++) // the others have no line to it
        ujoin_store_set(made, attempt_key(attempt, "over").c_str(), text.data(), text.size());
    ujoin_store_destroy(made);
}

void Nodes::run_live() {
    LiveEvents events;
    events.said_goodbye = [this](int32_t) {
        std::scoped_lock lock(mutex_);
        goodbyes_++;
        changed_.notify_all();
    };
    events.gone = [this](int32_t node) {
        {
            std::scoped_lock lock(mutex_);
            goodbyes_++; // nobody to wait for
            changed_.notify_all();
        }
        node_gone(node);
    };
    if (host_)
        serve_lines(live_listener_, token_, stop_live_, events);
    else if (!watch_line(live_line_, stop_live_))
        found_over({false, 1, "the host that holds the store is gone"});
}

} // namespace ujoin_run
