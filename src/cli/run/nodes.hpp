// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "run/options.hpp"
#include "ujoin.h"
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ujoin_run {

/// Where this host's workers stand in the job.
struct Place {
    int32_t group_rank = 0; ///< of this host
    int32_t nodes = 1;
    int32_t first_rank = 0;
    int32_t world_size = 1;
    std::string master_addr;
    int master_port = 0;
    std::string run_id;
    std::string store; ///< host:port; "" on one host
};

/// How an attempt ended that this host did not end.
struct Over {
    bool restart = false;
    int status = 1;
    std::string text;
};

/// The launchers of all hosts: they meet at a tcp store that one of them holds, and each keeps a connection to it, so that
/// the end of a launcher is noticed. On one host all of this is nothing.
class Nodes {
  public:
    /// Opens the store or connects to it. Throws Exit.
    explicit Nodes(const Options &options);
    ~Nodes();
    Nodes(const Nodes &) = delete;
    Nodes &operator=(const Nodes &) = delete;

    /// Waits until the hosts of this attempt are there. Throws Exit.
    Place meet(int attempt);
    /// From now on `ended` is called once, on another thread, when another host ends the attempt.
    void watch(int attempt, const std::function<void()> &ended);
    void unwatch();
    /// How another host ended the attempt, if one did.
    std::optional<Over> over() const;
    /// This host ends the attempt; the first to say so counts, and is returned.
    Over end(int attempt, const Over &why);
    /// This host's workers are done: waits for the other hosts'. Nothing if all are.
    std::optional<Over> finish(int attempt);

  private:
    using Store = std::unique_ptr<ujoin_store, void (*)(ujoin_store *)>;
    bool several() const { return static_cast<bool>(store_); }
    void open(const std::string &endpoint);
    void open_live(const std::string &host);
    void number_hosts();
    int32_t count_hosts();
    void run_watch(const std::string &key);
    void run_live();
    void node_gone(int32_t node);
    void found_over(const Over &over);
    std::optional<std::string> get(ujoin_store *store, const std::string &key, int64_t timeout_ms) const;
    void set(const std::string &key, const std::string &value) const;
    double conf(const std::string &name, double otherwise) const;

    const Options &options_;
    Store store_;
    Store watch_store_; // a connection of the watching thread's
    std::string url_;
    std::string run_id_;
    std::string secret_;
    bool host_ = false; // holds the store
    int32_t node_ = 0;
    int32_t nodes_ = 1;

    std::atomic<bool> stop_watch_{false};
    std::atomic<bool> stop_live_{false};
    std::thread watcher_;
    std::thread live_;
    int live_listener_ = -1;
    int live_line_ = -1;
    std::string token_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Over> over_;
    std::function<void()> ended_;
    int32_t goodbyes_ = 0;
};

int free_port();
std::string random_id();

} // namespace ujoin_run
