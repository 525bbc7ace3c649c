// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace ujoin_run {

/// From here on this process's signals are the job's: they are passed on to the workers. Those named (INT, TERM and HUP, if
/// the user names no others) end the job: SIGKILL follows after the grace, or at once when a second INT or TERM comes. USR1
/// and USR2, where they are named, are only passed on. TSTP stops workers and launcher, CONT lets them go on. QUIT prints
/// what each worker does, and ends the job only if `quit_ends`.
/// The first `stop_on` (0 = none) instead asks the workers for an agreed stop; later ones end the job if they are named
/// among the others, else nothing.
class SignalForwarder {
  public:
    /// Installs the handlers; signals that come before follow() are kept.
    SignalForwarder(std::vector<int> handled, int stop_on, bool quit_ends, int32_t workers);
    ~SignalForwarder();
    SignalForwarder(const SignalForwarder &) = delete;
    SignalForwarder &operator=(const SignalForwarder &) = delete;

    /// Starts to pass signals on. `grace_ms` negative: for ever.
    void follow(ujoin_pctx *job, int64_t grace_ms);
    /// Ends that; afterwards `job` is no longer used.
    void stop();
    /// Another host has ended the job: as if SIGTERM had come, but it is not this host's. Any thread.
    void end_job();
    /// The signal that ended the job; 0 if none did.
    int ended_by() const { return ended_by_.load(); }
    bool asked_to_stop() const { return asked_to_stop_.load(); }

  private:
    void run();
    void handle(int signal);
    bool ends(int signal) const;
    void print_health() const;
    void suspend();
    void ask_stop();
    void begin_end(int signal);

    const std::vector<int> handled_;
    const int stop_on_;
    const bool quit_ends_;
    const int32_t workers_;
    ujoin_pctx *job_ = nullptr;
    int64_t grace_ms_ = 0;
    int64_t kill_at_ms_ = -1; // monotonic; -1: not set
    std::atomic<int> ended_by_{0};
    std::atomic<bool> asked_to_stop_{false};
    std::thread thread_;
};

} // namespace ujoin_run
