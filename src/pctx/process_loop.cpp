// SPDX-License-Identifier: Apache-2.0
// The part of ProcessSet that runs on the loop's thread.
#include "base/log.hpp"
#include "pctx/process_set.hpp"
#include <algorithm>
#include <csignal>
#include <new>
#include <unistd.h>
#include <utility>

namespace ujoin {
namespace {

constexpr int taken_retries = 50; // until the kernel has put the status into the pidfd
constexpr int64_t taken_retry_ms = 2;
constexpr int64_t status_ms = 1000;

} // namespace

std::function<void()> ProcessSet::guarded(std::function<void()> fn) {
    return [this, fn = std::move(fn)] {
        if (phase_ != Phase::done) or_broken(fn);
    };
}

/// What it throws is a failure of the library itself.
void ProcessSet::or_broken(const std::function<void()> &fn) noexcept {
    try {
        fn();
    } catch (const std::bad_alloc &) {
        broken(UJOIN_E_NO_MEMORY, "out of memory");
    } catch (const std::exception &error) {
        broken(UJOIN_E_INTERNAL, error.what());
    }
}

/// The console or the callback takes output again, which another thread knows.
void ProcessSet::ask_eased() {
    std::scoped_lock lock(mutex_);
    if (loop_) loop_->post(eased_);
}

/// The end, from another thread; false: there is no loop any more. Without memory too: it is the way out.
bool ProcessSet::ask_end(int signal, int64_t grace_ms) {
    std::scoped_lock lock(mutex_);
    if (!loop_) return false;
    asked_signals_ |= uint64_t{1} << (signal - 1);
    if (grace_ms >= 0) asked_grace_ms_ = asked_grace_ms_ < 0 ? grace_ms : std::min(asked_grace_ms_, grace_ms);
    loop_->post(end_);
    return true;
}

void ProcessSet::end_asked() {
    uint64_t signals = 0;
    int64_t grace_ms = -1;
    {
        std::scoped_lock lock(mutex_);
        signals = std::exchange(asked_signals_, 0);
        grace_ms = std::exchange(asked_grace_ms_, -1);
    }
    for (int signal = 1; signal <= 64; signal++)
        if ((signals >> (signal - 1) & 1) != 0) begin_end(signal, grace_ms);
}

int64_t ProcessSet::ms_until(int64_t at_ns) const {
    return at_ns == never ? -1 : std::max<int64_t>(0, (at_ns - now_ns() + 999'999) / 1'000'000);
}

// ------------------------------------------------------------------------------------------------------ ends of workers

void ProcessSet::exit_ready(size_t index) {
    Worker &worker = workers_[index];
    if (!worker.live) return;
    os::ExitInfo info;
    const os::ExitState state = os::peek_exit(worker.pidfd.get(), info);
    if (state == os::ExitState::running) return;
    worker.exit_watch.reset();
    if (state == os::ExitState::ended) return ended(index, state_of(info), info, os::realtime_ns());
    {
        std::scoped_lock lock(mutex_);
        worker.held = false; // this process has reaped it elsewhere
    }
    retrying_.push_back(index);
    retry_taken();
}

/// Somebody else took the status: the kernel may keep it in the pidfd, a moment after it has told of the end.
void ProcessSet::retry_taken() {
    std::vector<size_t> again;
    std::vector<size_t> now;
    now.swap(retrying_);
    for (const size_t index : now) {
        Worker &worker = workers_[index];
        os::ExitInfo info;
        if (!worker.live) continue;
        if (os::exit_from_pidfd(worker.pidfd.get(), info)) {
            ended(index, state_of(info), info, os::realtime_ns());
        } else if (worker.retries++ < taken_retries) {
            again.push_back(index);
        } else {
            ended(index, UJOIN_WORKER_UNKNOWN, info, os::realtime_ns());
        }
    }
    retrying_.insert(retrying_.end(), again.begin(), again.end());
    if (!retrying_.empty()) retry_timer_->start(taken_retry_ms, guarded([this] { retry_taken(); }));
}

void ProcessSet::warden_ready() {
    while (phase_ < Phase::closing) { // an event can bring the end; then only the warden's own matters
        os::warden::Event event{};
        switch (warden_->receive(event)) {
        case WardenClient::Got::event:
            warden_event(event);
            break;
        case WardenClient::Got::nothing:
            return;
        case WardenClient::Got::lost:
            return warden_lost();
        }
    }
}

void ProcessSet::warden_event(const os::warden::Event &event) {
    if (event.kind != os::warden::Kind::exited || event.index < 0 || static_cast<size_t>(event.index) >= workers_.size())
        return;
    ended(static_cast<size_t>(event.index), state_of(event.exit), event.exit, event.end_ns);
}

/// Its workers die with it; what can be known of them comes from their pidfds.
void ProcessSet::warden_lost() {
    warden_watch_.reset();
    if (phase_ >= Phase::closing) return;
    warden_died_ = true;
    cgroup_.kill_all();
    log_warning("ujoin-warden has ended before its workers");
    for (size_t i = 0; i < workers_.size(); i++) {
        if (!workers_[i].live || workers_[i].exit_watch) continue;
        workers_[i].exit_watch =
            std::make_unique<io::Watch>(*loop_, workers_[i].pidfd.get(), guarded([this, i] { exit_ready(i); }));
    }
}

void ProcessSet::ended(size_t index, ujoin_worker_state state, const os::ExitInfo &info, int64_t end_ns) {
    Worker &worker = workers_[index];
    if (!worker.live) return;
    if (ujoin_test_cannot_be_killed && ujoin_test_cannot_be_killed(records_[index].pid)) return;
    worker.live = false;
    live_--;
    Answer answer = worker.answer_file ? Answer(worker.answer_file.get()) : Answer();
    worker.answer_file.reset();
    bool bad = false;
    const bool told = phase_ != Phase::running && !worker.dead_when_told;
    std::string text;
    {
        std::scoped_lock lock(mutex_);
        worker.answer = std::move(answer);
        WorkerRecord &record = records_[index];
        record.state = state;
        record.exit = info;
        record.end_ns = end_ns;
        record.end_monotonic_ns = now_ns();
        const bool calls = plan_->workers[index].call.has_value();
        if (calls && state == UJOIN_WORKER_EXITED && info.code == 0 && worker.answer.state() != AnswerState::returned)
            record.state = UJOIN_WORKER_NO_VALUE;
        bad = ended_badly(record);
        record.stopped = told;
        record.failed = bad && !record.stopped;
        if (record.failed && first_failure_ < 0) first_failure_ = static_cast<int32_t>(index);
        text = cat("worker closed: ", describe_end(*plan_, record, index), ", local rank ", index,
                   record.stopped ? ", stopped" : "");
    }
    log_line(UJOIN_LOG_INFO, text);
    if (sweeping_) return;
    if (phase_ == Phase::running && bad) return begin_end(SIGTERM, plan_->job.grace_ms);
    if (worker.dead_when_told && bad) choose_first();
    if (live_ == 0 && phase_ <= Phase::ending) leaders_done();
}

/// Finds the workers that have ended, or are about to, before the others are told to: they are no victims.
void ProcessSet::sweep() {
    sweeping_ = true;
    if (warden_watch_) warden_ready();
    for (size_t i = 0; i < workers_.size(); i++)
        if (workers_[i].exit_watch) exit_ready(i);
    sweeping_ = false;
    for (size_t i = 0; i < workers_.size(); i++) {
        Worker &worker = workers_[i];
        worker.dead_when_told =
            worker.live && worker.pidfd && (os::has_ended(worker.pidfd.get()) || os::is_ending(records_[i].pid));
    }
    choose_first();
}

/// Several have failed before anybody was told to end. Who died of a signal and left no record is the cause: an exit is more
/// likely the answer to a death. Else the earliest record counts; the time at which an end was noticed, where there is none.
void ProcessSet::choose_first() {
    std::scoped_lock lock(mutex_);
    if (first_failure_ < 0) return;
    int64_t best = never;
    for (size_t i = 0; i < records_.size(); i++) {
        const WorkerRecord &record = records_[i];
        if (!record.failed) continue;
        const int64_t told = explain(*plan_, record, i, &workers_[i].answer).monotonic_ns;
        int64_t when = record.end_monotonic_ns;
        if (told > 0 && told <= when)
            when = told;
        else if (record.state == UJOIN_WORKER_SIGNALED)
            when = 0;
        if (when >= best) continue;
        best = when;
        first_failure_ = static_cast<int32_t>(i);
    }
}

// ------------------------------------------------------------------------------------------------------------- the end

void ProcessSet::begin_end(int signal, int64_t grace_ms) {
    if (!attached_ || phase_ > Phase::leftovers) return; // attach() looks for an abort; nothing is left to be signalled
    if (phase_ == Phase::running) {
        sweep();
        phase_ = Phase::ending;
    }
    const int64_t now = now_ns();
    if (grace_ms >= 0) kill_at_ = std::min(kill_at_, now + std::min(grace_ms, never / 2'000'000) * 1'000'000);
    natural_ = false;
    {
        std::scoped_lock lock(mutex_);
        for (Worker &worker : workers_) signal_worker(worker, signal);
    }
    for (const os::Member &member : members()) { // those that have left the group, but not the session
        if (getpgid(member.pid) != getsid(member.pid)) os::signal_pidfd(member.pidfd.get(), signal);
    }
    if (phase_ == Phase::leftovers) return look_for_leftovers();
    if (live_ == 0) return leaders_done();
    if (kill_at_ <= now) return kill_now();
    timer_->start(ms_until(kill_at_), guarded([this] { kill_now(); }));
}

void ProcessSet::kill_now() {
    rush_ = true;
    if (give_up_at_ == never) give_up_at_ = now_ns() + kill_limit_ms * 1'000'000;
    {
        std::scoped_lock lock(mutex_);
        for (Worker &worker : workers_) signal_worker(worker, SIGKILL);
    }
    for (const os::Member &member : members()) os::signal_pidfd(member.pidfd.get(), SIGKILL);
    timer_->start(ms_until(give_up_at_), guarded([this] { give_up(); }));
}

void ProcessSet::give_up() {
    for (size_t i = 0; i < workers_.size(); i++) {
        if (!workers_[i].live) continue;
        workers_[i].live = false;
        workers_[i].exit_watch.reset();
        std::scoped_lock lock(mutex_);
        records_[i].state = UJOIN_WORKER_UNKILLABLE;
        records_[i].stopped = true;
    }
    live_ = 0;
    leaders_done();
}

/// Every worker itself has ended. What it left running in its session gets the rest of the grace, or, if nobody was told to
/// end, the time for draining as long as it may still write to a pipe.
void ProcessSet::leaders_done() {
    timer_->stop();
    natural_ = phase_ == Phase::running;
    phase_ = Phase::leftovers;
    const int64_t drain = plan_->job.drain_ms;
    if (natural_) {
        const int64_t now = now_ns();
        kill_at_ = open_streams_ == 0 ? now : drain < 0 ? never : now + drain * 1'000'000;
        drain_until_ = kill_at_;
    }
    look_for_leftovers();
}

void ProcessSet::look_for_leftovers() {
    leftovers_.clear();
    for (os::Member &member : members()) {
        const size_t number = leftovers_.size();
        Leftover &leftover = leftovers_.emplace_back();
        leftover.pidfd = std::move(member.pidfd);
        leftover.watch = std::make_unique<io::Watch>(*loop_, leftover.pidfd.get(), guarded([this, number] {
            leftovers_[number].watch.reset();
            const auto gone = [](const Leftover &other) { return !other.watch; };
            if (std::all_of(leftovers_.begin(), leftovers_.end(), gone)) look_for_leftovers(); // they may have forked
        }));
    }
    if (leftovers_.empty()) return begin_drain();
    if (rush_ || kill_at_ <= now_ns()) return kill_leftovers();
    timer_->start(ms_until(kill_at_), guarded([this] { kill_leftovers(); }));
}

void ProcessSet::kill_leftovers() {
    rush_ = true;
    if (give_up_at_ == never) give_up_at_ = now_ns() + kill_limit_ms * 1'000'000;
    for (const Leftover &leftover : leftovers_) os::signal_pidfd(leftover.pidfd.get(), SIGKILL);
    timer_->start(ms_until(give_up_at_), guarded([this] { begin_drain(); }));
}

void ProcessSet::begin_drain() {
    timer_->stop();
    leftovers_.clear();
    phase_ = Phase::draining;
    if (open_streams_ == 0) return flush();
    const int64_t drain = plan_->job.drain_ms;
    if (drain_until_ == never && drain >= 0) drain_until_ = now_ns() + drain * 1'000'000;
    timer_->start(ms_until(drain_until_), guarded([this] {
                      for (Worker &worker : workers_)
                          for (auto &stream : worker.streams)
                              if (stream) stream->cut();
                  }));
}

void ProcessSet::stream_ended() {
    open_streams_--;
    if (open_streams_ != 0) return;
    if (phase_ == Phase::leftovers && natural_) kill_leftovers(); // nothing more can come from them
    if (phase_ == Phase::draining) flush();
}

void ProcessSet::console_eased() {
    for (Worker &worker : workers_)
        for (auto &stream : worker.streams)
            if (stream) stream->resume();
    if (phase_ == Phase::flushing) flush();
}

/// Who else writes to the terminal would write into the line.
bool ProcessSet::may_show_status() const {
    if (!plan_->job.status_line || isatty(2) != 1) return false;
    for (const WorkerStdio &worker : plan_->files.workers)
        for (int s = 0; s < 2; s++)
            if (worker.streams[static_cast<size_t>(s)].kind == StreamKind::inherit && isatty(s + 1) == 1) return false;
    return true;
}

/// "worker: 3 of 4 ranks up, 1 restart, 12 s; rank 2 silent for 41 s"
void ProcessSet::show_status() {
    const JobSpec &job = plan_->job;
    const int64_t now = os::realtime_ns();
    size_t up = 0;
    size_t silent = 0;
    int64_t oldest = now;
    int64_t began = now;
    for (size_t i = 0; i < workers_.size(); i++) {
        began = std::min(began, records_[i].start_ns);
        if (!workers_[i].live) continue;
        up++;
        uint64_t bytes[2] = {};
        uint64_t dropped = 0;
        const int64_t last = std::max(add_output(i, bytes, dropped), records_[i].start_ns);
        if (last >= oldest) continue;
        oldest = last;
        silent = i;
    }
    const auto seconds = [&](int64_t since) { return (now - since) / 1'000'000'000; };
    std::string text = cat(job.name, ": ", up, " of ", workers_.size(), " ranks up, ", job.restart_count,
                           job.restart_count == 1 ? " restart, " : " restarts, ", seconds(began), " s");
    if (up > 0) text += cat("; rank ", plan_->rank_of(silent), " silent for ", seconds(oldest), " s");
    console_->set_status(std::move(text));
    status_timer_->start(status_ms, guarded([this] { show_status(); }));
}

void ProcessSet::flush() {
    timer_->stop();
    if (status_timer_) status_timer_.reset();
    if (console_) console_->set_status("");
    phase_ = Phase::flushing;
    if (!console_ || console_->idle()) begin_close(); // else console_eased() comes back here
}

void ProcessSet::begin_close() {
    phase_ = Phase::closing;
    {
        std::scoped_lock lock(mutex_);
        for (size_t i = 0; i < workers_.size(); i++) {
            if (!warden_ && workers_[i].held && records_[i].state != UJOIN_WORKER_UNKILLABLE)
                os::reap(workers_[i].pidfd.get());
            workers_[i].held = false;
        }
    }
    if (!warden_) return done();
    warden_watch_.reset();
    warden_->end();
    warden_exit_ = std::make_unique<io::Watch>(*loop_, warden_->pidfd(), guarded([this] {
        os::reap(warden_->pidfd());
        done();
    }));
    timer_->start(kill_limit_ms, guarded([this] { done(); })); // a child of its cannot be killed: it stays with it
}

void ProcessSet::done() {
    if (phase_ == Phase::done) return;
    phase_ = Phase::done;
    timer_->stop();
    warden_watch_.reset();
    warden_exit_.reset();
    std::scoped_lock lock(mutex_);
    loop_done_ = true;
    changed_.notify_all();
}

/// The library itself has failed (no memory, a defect): waiting tells, and the keeper leaves nothing running.
void ProcessSet::broken(ujoin_status code, const char *text) noexcept {
    {
        std::scoped_lock lock(mutex_);
        if (broken_ == UJOIN_OK) {
            broken_ = code;
            try {
                broken_text_ = text;
            } catch (const std::bad_alloc &) {
                broken_text_.clear();
            }
        }
    }
    done();
}

} // namespace ujoin
