// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"
#include "io/console.hpp"
#include "io/loop.hpp"
#include "io/watch.hpp"
#include "os/cgroup.hpp"
#include "os/fd.hpp"
#include "pctx/health.hpp"
#include "pctx/output_queue.hpp"
#include "pctx/result.hpp"
#include "pctx/stream.hpp"
#include "pctx/warden_client.hpp"
#include <array>
#include <condition_variable>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

/// Only test programs define it: true makes the set believe that this process is still there, whatever happens to it, as one
/// that sleeps in the kernel for ever.
extern "C" bool ujoin_test_cannot_be_killed(int32_t pid) __attribute__((weak));

namespace ujoin {

/// The workers of one job, from their start to their end.
///
/// Three threads: the *keeper* starts the workers and lives as long as they do (the kernel's parent-death signal follows
/// the thread that cloned), then takes everything down; the *loop* waits for ends and output and runs the state machine
/// below, never blocking; the *console* writes. The keeper holds the set alive, so that whoever made it may leave.
///
///   running -> ending (signal sent, then SIGKILL) -> leftovers (of the workers' sessions) -> draining (pipes) -> flushing
///   (console) -> closing (reap, warden) -> done. Each phase but `running` and `flushing` is bounded.
class ProcessSet : public std::enable_shared_from_this<ProcessSet> {
  public:
    explicit ProcessSet(JobPlan plan);
    ~ProcessSet();

    /// Starts all, or none and throws.
    void start();

    /// UJOIN_OK or UJOIN_PENDING; throws UJOIN_E_CHILD_FAILED, UJOIN_E_ABORTED.
    ujoin_status wait(const Deadline &deadline);
    /// Ends all workers; UJOIN_PENDING if the console has not taken all output in time.
    ujoin_status close(int signal, int64_t grace_ms);
    void abort();
    /// The owner leaves: ends what still runs, in the background.
    void release();
    void signal(int32_t index, int signal); // -1: all
    void stop() { plan_->page->ask_stop(); }

    /// As of the last wait or close.
    int32_t first_failure_seen() const;
    void fill(size_t index, ujoin_worker_result &out) const;
    WorkerHealth health(size_t index) const;
    std::string report() const;
    std::string json_report() const;

  private:
    enum class Phase { running, ending, leftovers, draining, flushing, closing, done };
    enum class Started { no, yes, failed };
    static constexpr int64_t never = std::numeric_limits<int64_t>::max();
    static constexpr int64_t kill_limit_ms = 1000; // for the kernel to end what got SIGKILL

    struct Worker {
        os::Fd pidfd;
        std::array<os::Fd, 2> pipes; // until the loop has them
        std::array<StreamCounters, 2> counters;
        std::array<std::unique_ptr<TeeStream>, 2> streams;
        os::Fd answer_file; // of a function worker
        Answer answer;
        Explanation why;
        bool explained = false;
        std::unique_ptr<io::Watch> exit_watch;
        int retries = 0;
        bool held = false;           // not reaped: its number is its own
        bool live = false;           // loop: not yet known to have ended
        bool dead_when_told = false; // loop: had ended when the others were told to, but the warden has not said how
    };
    struct Leftover {
        os::Fd pidfd;
        std::unique_ptr<io::Watch> watch;
    };

    // keeper (process_start.cpp)
    void keep();
    void launch_all();
    void launch(size_t index, const os::Fd &null);
    struct Files { // of a worker while it is started
        std::array<os::Fd, 2> theirs;
        os::Fd input;
        os::Fd call;
        std::vector<int> fds;
        std::vector<int> numbers; // what they become
    };
    void open_stdio(size_t index, Files &files, const os::Fd &null);
    void open_stdin(size_t index, Files &files, const os::Fd &null);
    void open_call(size_t index, Files &files);
    void add_inherited(size_t index, Files &files);
    os::SpawnResult start_worker(size_t index, const os::SpawnRequest &request);
    void rest();
    // process_hold.cpp
    void start_warden();
    void enter_cgroup();
    void leave_cgroup();
    // keeper again
    void attach();
    void attach_streams(size_t index);
    void make_console_link();
    void undo_start();
    void end_all();
    void await_end(size_t index, const Deadline &deadline);
    void finish();
    void take_down();

    // loop
    std::function<void()> guarded(std::function<void()> fn);
    void or_broken(const std::function<void()> &fn) noexcept;
    void ask_eased();
    bool ask_end(int signal, int64_t grace_ms);
    void end_asked();
    void exit_ready(size_t index);
    void retry_taken();
    void warden_ready();
    void warden_event(const os::warden::Event &event);
    void warden_lost();
    void ended(size_t index, ujoin_worker_state state, const os::ExitInfo &info, int64_t end_ns);
    void sweep();
    void choose_first();
    void begin_end(int signal, int64_t grace_ms);
    void kill_now();
    void give_up();
    void leaders_done();
    void look_for_leftovers();
    void kill_leftovers();
    void begin_drain();
    bool may_show_status() const;
    void show_status();
    void stream_ended();
    void console_eased();
    void flush();
    void begin_close();
    void done();
    void broken(ujoin_status code, const char *text) noexcept;
    int64_t ms_until(int64_t at_ns) const;

    // any thread
    int64_t add_output(size_t index, uint64_t (&bytes)[2], uint64_t &dropped) const;

    // any thread, with the lock held
    void signal_worker(Worker &worker, int signal);
    std::vector<os::Member> members() const;
    Error child_failed() const;
    void run_output(std::unique_lock<std::mutex> &lock);
    void explain_all();
    void choose_first_by_records();

    const std::unique_ptr<JobPlan> plan_;
    std::vector<Worker> workers_;
    std::unique_ptr<OutputQueue> output_; // where the program has a callback
    io::Loop::Task eased_;                // what others ask of the loop
    io::Loop::Task end_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<WorkerRecord> records_; // guarded, as all down to the blank line
    std::unique_ptr<io::Loop> loop_;
    std::exception_ptr start_error_;
    Started started_ = Started::no;
    bool loop_done_ = false;
    bool final_ = false;
    bool aborted_ = false;
    int32_t first_failure_ = -1;
    int32_t first_failure_seen_ = -1;
    uint64_t asked_signals_ = 0; // bit by bit, from 1 on: what end_ is to send
    int64_t asked_grace_ms_ = -1;
    ujoin_status broken_ = UJOIN_OK; // the library itself has failed
    std::string broken_text_;

    // the loop's own
    Phase phase_ = Phase::running;
    std::optional<WardenClient> warden_;
    os::Cgroup cgroup_; // the warden's, in case that it dies
    std::unique_ptr<io::Console> console_;
    std::unique_ptr<ConsoleLink> console_link_;
    std::unique_ptr<io::Timer> timer_;
    std::unique_ptr<io::Timer> retry_timer_;
    std::unique_ptr<io::Timer> status_timer_; // where the terminal has a status line
    std::unique_ptr<io::Watch> warden_watch_; // its socket
    std::unique_ptr<io::Watch> warden_exit_;
    std::vector<size_t> retrying_;
    std::vector<Leftover> leftovers_;
    size_t live_ = 0;
    size_t open_streams_ = 0;
    bool attached_ = false;
    bool sweeping_ = false;
    bool warden_died_ = false;
    bool natural_ = false;    // all ended by themselves
    bool rush_ = false;       // SIGKILL to leftovers at once
    int64_t kill_at_ = never; // ns, as the other times
    int64_t give_up_at_ = never;
    int64_t drain_until_ = never;
};

} // namespace ujoin
