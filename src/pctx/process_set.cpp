// SPDX-License-Identifier: Apache-2.0
// The part of ProcessSet that the caller's threads run.
#include "pctx/process_set.hpp"
#include "base/callback.hpp"
#include "os/interrupt.hpp"
#include <algorithm>
#include <csignal>
#include <sys/stat.h>

namespace ujoin {
namespace {

/// What a file that a worker writes itself tells: its size and when it was last written.
void fill_from_file(const std::string &path, uint64_t &bytes, int64_t &last_ns) {
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    bytes = static_cast<uint64_t>(info.st_size);
    if (bytes > 0) last_ns = std::max(last_ns, int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec);
}

} // namespace

ujoin_status ProcessSet::wait(const Deadline &deadline) {
    std::unique_lock lock(mutex_);
    for (;;) {
        run_output(lock);
        first_failure_seen_ = first_failure_;
        if (final_) {
            if (broken_ != UJOIN_OK) fail(broken_, broken_text_);
            if (first_failure_ >= 0) {
                const auto first = static_cast<size_t>(first_failure_);
                note_child_failure(workers_[first].why.error_path, python_code(records_[first]));
                throw child_failed();
            }
            if (aborted_) fail(UJOIN_E_ABORTED, "the workers were killed by pctx_abort");
            return UJOIN_OK;
        }
        if (aborted_) fail(UJOIN_E_ABORTED, "the workers were killed by pctx_abort");
        if (deadline.passed()) return UJOIN_PENDING;
        const bool check = os::has_interrupt_check(); // none: no reason to wake up
        if (!check && deadline.is_never()) {
            changed_.wait(lock);
        } else {
            const int64_t ns = deadline.left_ns(check ? os::slice_ns : never);
            changed_.wait_for(lock, std::chrono::nanoseconds(std::min(ns, never / 4)));
        }
        if (!check) continue;
        lock.unlock();
        os::check_interrupt();
        lock.lock();
    }
}

/// Gives what workers wrote to the program's callback, outside of the lock.
void ProcessSet::run_output(std::unique_lock<std::mutex> &lock) {
    if (!plan_->job.output) return;
    const OutputCallback &callback = *plan_->job.output;
    while (output_ && !output_->empty()) {
        lock.unlock();
        const auto item = output_->pop();
        ujoin_status status = UJOIN_OK;
        if (item)
            status = call_program([&] {
                return callback.fn(callback.user_data, item->rank, item->stream, item->bytes.data(), item->bytes.size());
            });
        if (status < 0) fail(UJOIN_E_CALLBACK, "the callback for the output of workers failed: ", last_error().text);
        lock.lock();
    }
}

ujoin_status ProcessSet::close(int signal, int64_t grace_ms) {
    const bool runs = ask_end(signal, grace_ms);
    const int64_t drain_ms = plan_->job.drain_ms;
    const bool bounded = grace_ms >= 0 && drain_ms >= 0;
    const Deadline deadline = bounded ? Deadline::in(grace_ms + drain_ms + kill_limit_ms + 200) : Deadline::never();
    try {
        std::unique_lock lock(mutex_);
        while (runs && !final_ && !deadline.passed()) {
            run_output(lock);
            changed_.wait_for(lock, std::chrono::nanoseconds(deadline.left_ns(os::slice_ns)));
            lock.unlock();
            os::check_interrupt();
            lock.lock();
        }
    } catch (const Error &) {
        abort();
        throw;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(runs ? 0 : kill_limit_ms), [&] { return final_; });
    run_output(lock);
    first_failure_seen_ = first_failure_;
    std::vector<int32_t> stuck;
    for (size_t i = 0; i < records_.size(); i++)
        if (records_[i].state == UJOIN_WORKER_UNKILLABLE) stuck.push_back(static_cast<int32_t>(i));
    if (!stuck.empty())
        throw Error(
            UJOIN_E_TIMEOUT,
            cat(describe_end(*plan_, records_[static_cast<size_t>(stuck[0])], static_cast<size_t>(stuck[0])), "; given up"))
            .with_ranks(stuck);
    return final_ ? UJOIN_OK : UJOIN_PENDING;
}

void ProcessSet::abort() {
    {
        std::scoped_lock lock(mutex_);
        if (final_) return;
        aborted_ = true;
        changed_.notify_all();
    }
    ask_end(SIGKILL, 0);
}

void ProcessSet::release() { ask_end(SIGTERM, plan_->job.grace_ms); }

void ProcessSet::signal(int32_t index, int signal) {
    std::scoped_lock lock(mutex_);
    for (size_t i = 0; i < workers_.size(); i++) {
        if (index != -1 && static_cast<size_t>(index) != i) continue;
        const bool runs = records_[i].state == UJOIN_WORKER_RUNNING;
        if (!runs && index != -1) fail_state(describe_end(*plan_, records_[i], i), "; it cannot get a signal");
        if (runs) signal_worker(workers_[i], signal);
    }
}

/// To its process group, also when only others of the group are left; the number is safe as long as it is not reaped.
void ProcessSet::signal_worker(Worker &worker, int signal) {
    const auto index = static_cast<size_t>(&worker - workers_.data());
    if (!worker.pidfd) return;
    if (plan_->job.same_session) { // it is in this process's own group
        os::signal_pidfd(worker.pidfd.get(), signal);
    } else if (worker.held && os::signal_pidfd(worker.pidfd.get(), 0) == 0) {
        kill(-records_[index].pid, signal);
    } else {
        for (const os::Member &member : os::session_members({records_[index].pid}, {}))
            os::signal_pidfd(member.pidfd.get(), signal);
    }
}

/// What is left of the workers' sessions, without the workers themselves.
std::vector<os::Member> ProcessSet::members() const {
    if (plan_->job.same_session) return {}; // its session is not ours to end
    std::vector<pid_t> sessions;
    std::vector<pid_t> held;
    {
        std::scoped_lock lock(mutex_);
        for (size_t i = 0; i < workers_.size(); i++) {
            sessions.push_back(records_[i].pid);
            if (workers_[i].held) held.push_back(records_[i].pid);
        }
    }
    std::sort(sessions.begin(), sessions.end());
    std::sort(held.begin(), held.end());
    return os::session_members(sessions, held);
}

int32_t ProcessSet::first_failure_seen() const {
    std::scoped_lock lock(mutex_);
    return first_failure_seen_;
}

Error ProcessSet::child_failed() const {
    const auto first = static_cast<size_t>(first_failure_);
    Error error(UJOIN_E_CHILD_FAILED, cat(describe_end(*plan_, records_[first], first), "; pctx_report tells more"));
    return error.with_ranks({first_failure_});
}

/// Once all has ended: what there is to say of each failure, kept since files may go.
void ProcessSet::explain_all() {
    for (size_t i = 0; i < workers_.size(); i++) {
        Explanation why = explain(*plan_, records_[i], i, &workers_[i].answer);
        if (ended_badly(records_[i])) why.doing = health(i).doing();
        std::scoped_lock lock(mutex_);
        WorkerRecord &record = records_[i];
        record.later =
            record.stopped && record.state == UJOIN_WORKER_EXITED && record.exit.code != 0 && !why.error_path.empty();
        if (record.later) record.failed = true;
        workers_[i].why = std::move(why);
        workers_[i].explained = true;
    }
    choose_first_by_records();
}

/// Who recorded a failure before the one whose end was seen first is the cause, even if it was still on its way out when the
/// others were told to end. A death without a record stays: records may be answers to it.
void ProcessSet::choose_first_by_records() {
    std::scoped_lock lock(mutex_);
    if (first_failure_ < 0) return;
    const auto first = static_cast<size_t>(first_failure_);
    int64_t best = workers_[first].why.monotonic_ns;
    if (best == 0 && records_[first].state == UJOIN_WORKER_SIGNALED) return;
    if (best == 0) best = records_[first].end_monotonic_ns;
    for (size_t i = 0; i < workers_.size(); i++) {
        const int64_t told = workers_[i].why.monotonic_ns;
        if (told == 0 || told >= best) continue;
        best = told;
        first_failure_ = static_cast<int32_t>(i);
        records_[i].failed = true;
        records_[i].stopped = records_[i].later = false;
    }
}

std::string ProcessSet::report() const {
    std::scoped_lock lock(mutex_);
    if (first_failure_ < 0) return {};
    std::vector<Explanation> whys;
    for (size_t i = 0; i < workers_.size(); i++)
        whys.push_back(workers_[i].explained ? workers_[i].why : explain(*plan_, records_[i], i, &workers_[i].answer));
    return make_report(*plan_, records_, static_cast<size_t>(first_failure_), whys);
}

std::string ProcessSet::json_report() const {
    std::vector<ujoin_worker_result> results;
    for (size_t i = 0; i < workers_.size(); i++) {
        ujoin_worker_result &out = results.emplace_back();
        out.rank = static_cast<int32_t>(i);
        fill(i, out);
    }
    int32_t first = -1;
    {
        std::scoped_lock lock(mutex_);
        first = first_failure_;
    }
    return make_json_report(*plan_, results, first);
}

/// What a worker has written so far; returns when it last did.
int64_t ProcessSet::add_output(size_t index, uint64_t (&bytes)[2], uint64_t &dropped) const {
    const WorkerStdio &stdio = plan_->files.workers[index];
    int64_t last_ns = 0;
    for (size_t s = 0; s < 2; s++) {
        const StreamCounters &counters = workers_[index].counters[s];
        bytes[s] = counters.bytes.load(std::memory_order_relaxed);
        dropped += counters.dropped.load(std::memory_order_relaxed);
        last_ns = std::max(last_ns, counters.last_ns.load(std::memory_order_relaxed));
        if (stdio.streams[s].kind == StreamKind::file) fill_from_file(stdio.streams[s].path, bytes[s], last_ns);
    }
    return last_ns;
}

WorkerHealth ProcessSet::health(size_t index) const {
    uint64_t bytes[2] = {};
    uint64_t dropped = 0;
    const int64_t last_ns = add_output(index, bytes, dropped);
    WorkerRecord record;
    {
        std::scoped_lock lock(mutex_);
        record = records_[index];
    }
    return {*plan_, record, index, last_ns == 0 ? 0 : std::max(last_ns, record.start_ns)};
}

void ProcessSet::fill(size_t index, ujoin_worker_result &out) const {
    const Worker &worker = workers_[index];
    const WorkerStdio &stdio = plan_->files.workers[index];
    uint64_t bytes[2] = {};
    const int64_t last_ns = add_output(index, bytes, out.dropped_lines);
    std::scoped_lock lock(mutex_);
    const WorkerRecord &record = records_[index];
    out.state = record.state;
    out.pid = record.pid;
    out.exit_code = record.state == UJOIN_WORKER_EXITED || record.state == UJOIN_WORKER_NO_VALUE ? record.exit.code : -1;
    out.signal = record.state == UJOIN_WORKER_SIGNALED ? record.exit.signal : 0;
    out.failed = record.failed ? 1 : 0;
    out.stopped = record.stopped && !record.later ? 1 : 0;
    out.containment = plan_->held_by;
    out.start_ns = record.start_ns;
    out.end_ns = record.end_ns;
    out.failed_ns = ended_badly(record) ? (worker.explained ? worker.why.failed_ns : record.end_ns) : 0;
    out.last_output_ns = last_ns == 0 ? 0 : std::max(last_ns, record.start_ns); // files have a coarser clock
    out.user_us = record.exit.user_us;
    out.system_us = record.exit.system_us;
    out.peak_bytes = record.exit.peak_bytes;
    out.stdout_bytes = bytes[0];
    out.stderr_bytes = bytes[1];
    const bool returned = worker.answer.state() == AnswerState::returned && record.state == UJOIN_WORKER_EXITED;
    out.value = returned ? worker.answer.data() : nullptr;
    out.value_size = returned ? worker.answer.size() : 0;
    out.message = worker.why.message.c_str();
    out.traceback = worker.why.traceback.c_str();
    out.stdout_path = stdio.streams[0].path.c_str();
    out.stderr_path = stdio.streams[1].path.c_str();
    out.error_path = worker.why.error_path.c_str();
}

} // namespace ujoin
