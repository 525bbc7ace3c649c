// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/backend.hpp"
#include "comm/work.hpp"
#include "os/job_page.hpp"
#include "os/pool.hpp"
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ujoin {

class SharedMemory;
class Store;

/// Where a rank is among the ranks of the group that its host has.
struct HostPlace {
    int32_t rank = 0;
    int32_t size = 0;
};

/// What is known of ranks before they meet.
struct RanksAre {
    int32_t size = 0;
    bool threads = false;       ///< they meet inside this process
    bool several_hosts = false; ///< or they may be; they have an exchange then
};

struct GroupConfig {
    std::string rendezvous = "env://";
    std::string backend = "auto";
    std::string name;
    std::shared_ptr<Store> store;
    bool shadow_collectives = false; ///< see ujoin_group_options
    int32_t threads = 0;             ///< 0 = by environment and processors
    int32_t rank = 0;
    int32_t size = 0;                  ///< 0 = both from the environment
    int64_t timeout_ms = 0;            ///< as in an option struct
    int64_t rendezvous_timeout_ms = 0; ///< likewise
};

/// A set of ranks that communicate. Operations run in the order in which they are given, one at a time.
class Group : public std::enable_shared_from_this<Group> {
  public:
    static std::shared_ptr<Group> create(const GroupConfig &config);
    /// The group of the ranks with this color; null if it is negative. Where the ranks meet and who they are does not count.
    std::shared_ptr<Group> split(int32_t color, int32_t key, const GroupConfig &config);
    Group(std::unique_ptr<Backend> backend, int32_t rank, int32_t size, HostPlace here, const GroupConfig &config,
          int32_t host_ranks = 0);
    ~Group();

    int32_t rank() const { return rank_; }
    int32_t size() const { return size_; }
    HostPlace here() const { return here_; }
    bool may_be_on_several_hosts() const { return ranks_.several_hosts; }
    const char *backend_name() const { return backend_->name(); }
    bool shadows_collectives() const { return shadow_collectives_; }
    bool has_progress() const { return progress_allowed_; }
    Board &board() { return backend_->board(); }
    /// The threads that compute, with the caller's.
    Parallel &parallel() { return pool_; }
    int32_t threads() const { return pool_.threads(); }

    /// The deadline of a bare collective, from an option as in a struct.
    Deadline bare_deadline(int64_t timeout_option) const { return Deadline::in(timeout_ms(timeout_option)); }
    int64_t timeout_ms(int64_t timeout_option) const;

    /// Runs an operation now, after everything in flight. Throws; the group is broken then.
    void run(OpArgs &op, const Deadline &deadline = Deadline::never());
    /// Puts an operation in flight.
    std::shared_ptr<Work> submit(const OpArgs &op, const Deadline &deadline, Release release = {});
    /// Several, one after the other; the work of the last one is complete when all are.
    std::shared_ptr<Work> submit_all(std::vector<OpArgs> ops, const Deadline &deadline, Release release);
    /// The same with a deadline that runs from the moment at which everything before it is complete.
    std::shared_ptr<Work> submit_idle(const OpArgs &op, int64_t idle_timeout_ms, Release release = {});

    // What the library's own parts use; without a deadline they end with the peers' lives.
    /// In place: this rank's part lies where it belongs.
    void all_gather_parts(const Memory &recv, const size_t *part_offsets, const Deadline &deadline = Deadline::never());
    void broadcast(const Memory &memory, int32_t root);
    void barrier();
    /// Every rank's bytes, by rank; of any size.
    std::vector<std::string> exchange(const std::string &mine, const Deadline &deadline = Deadline::never());
    /// Agrees on success: throws on every rank if `error` is set on any; the text names the ranks and their errors.
    void agree(const std::optional<Error> &error, const Deadline &deadline = Deadline::never());

    /// Every rank's descriptor, by rank.
    std::vector<os::Fd> pass(const os::Fd &own);
    /// Those that were made on this group, in order; the same number on every rank. Some may be gone.
    std::vector<std::weak_ptr<SharedMemory>> &memories() { return memories_; }

    ujoin_status close(int64_t timeout_ms);
    void abort(const std::string &reason);
    /// Memory has run out, on this rank alone: the others must not wait for it. Takes none. The error to go on with.
    Error abort_without_memory();
    /// The program's handle is gone: what is in flight must get on without its calls.
    void handle_dropped();
    /// Throws the first cause if the group is broken, UJOIN_E_STATE if it is closed.
    void check_usable();

    /// From now on every call returns this error, or an earlier cause. Leaves no mark: that is done already.
    void break_with(const Error &error);

    /// Completes everything in flight.
    void drain();
    /// Another rank has entered the operation after the last one of this rank: which? Says no while work is in flight.
    bool pending(int32_t rank, OpArgs &out) {
        return progress_->in_flight.load(std::memory_order_acquire) == 0 && backend_->pending(rank, out);
    }
    /// Takes part in an operation that pending() told of, with nothing to give.
    void shadow(const OpArgs &of);

    /// What the armed join context adds to each operation; made once by join/. `after` runs on the thread that completes.
    class Tagger {
      public:
        virtual ~Tagger() = default;
        virtual void before(OpArgs &op) = 0;
        virtual void after(const OpArgs &op) = 0;
    };
    /// What the launcher of this process wants of it.
    const os::LauncherPage &launcher() const { return launcher_; }
    /// What it is told in turn.
    os::Health &health() { return health_; }
    void set_tagger(std::unique_ptr<Tagger> tagger) {
        tagger_.store(tagger.get(), std::memory_order_release);
        tagger_owner_ = std::move(tagger);
    }
    Tagger *tagger() const { return tagger_.load(std::memory_order_acquire); }

  private:
    friend class Work;
    /// Operations in flight and the thread that runs them. The thread keeps only this alive, so that the last reference to
    /// the group may go on that very thread.
    struct Progress {
        std::mutex mutex; ///< guards what follows, but not in_flight
        std::condition_variable changed;
        std::deque<std::shared_ptr<Work>> queue;
        bool busy = false; ///< some thread is inside the backend
        bool stopping = false;
        std::thread thread;
        std::atomic<size_t> in_flight{0}; ///< 0 = the caller's thread may use the backend at once
    };
    using Lock = std::unique_lock<std::mutex>;

    void put_in_flight(const std::shared_ptr<Work> *works, size_t count);
    void start_progress(); // the mutex is held
    static void progress_loop(std::shared_ptr<Progress> progress);
    bool step_front(Lock &lock, const Deadline &patience, bool interruptible, bool may_wait);
    void drain(Lock &lock);
    /// The armed context, if any, says what the operation belongs to.
    void tag(OpArgs &op);

    RanksAre ranks_{};
    std::string address_; ///< of this host, for ranks of others
    const os::LauncherPage launcher_ = os::LauncherPage::find();
    os::Health health_; ///< outlives the backend
    std::unique_ptr<Backend> backend_;
    int32_t rank_;
    int32_t size_;
    HostPlace here_;
    int32_t host_ranks_; ///< that share this host's processors: here_.size, or that of the group that was split
    int64_t timeout_ms_;
    bool shadow_collectives_;
    const int processors_;
    std::atomic<bool> progress_allowed_;
    os::Pool pool_;
    std::unique_ptr<Tagger> tagger_owner_;
    std::atomic<Tagger *> tagger_{nullptr}; ///< operations in flight may complete while it is set
    std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();

    std::vector<std::weak_ptr<SharedMemory>> memories_;

    std::mutex cause_mutex_;
    std::optional<Error> cause_; ///< why the group is broken
    std::atomic<bool> broken_{false};
    std::atomic<bool> closed_{false};
    std::shared_ptr<Work> closing_;
};

} // namespace ujoin
