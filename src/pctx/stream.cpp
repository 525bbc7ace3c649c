// SPDX-License-Identifier: Apache-2.0
#include "pctx/stream.hpp"
#include "base/deadline.hpp"
#include "base/log.hpp"
#include "io/console.hpp"
#include "io/loop.hpp"
#include "os/process.hpp"
#include "pctx/output_queue.hpp"
#include <algorithm>
#include <cerrno>

namespace ujoin {
namespace {

constexpr size_t read_size = 1 << 16;
constexpr int reads_per_turn = 4; // then other workers have theirs

} // namespace

void ConsoleLink::note(const std::string &text) {
    const bool same_line = state.open[2] || (state.same && state.open[1]);
    state.open[2] = nullptr;
    if (state.same) state.open[1] = nullptr;
    console.push(2, cat(same_line ? "\n" : "", "ujoin: ", text, "\n"));
}

TeeStream::TeeStream(ConsoleLink &link, os::Fd pipe, LogFile file, StreamInfo info, StreamCounters &counters,
                     std::function<void()> ended)
    : link_(link), pipe_(std::move(pipe)), file_(std::move(file)), info_(std::move(info)),
      lines_(link.state, info_.fd, info_.prefix), counters_(counters), ended_(std::move(ended)), partial_timer_(link.loop) {
    watch_ = std::make_unique<io::Watch>(link.loop, pipe_.get(), link.guarded([this] { ready(); }));
}

/// The console goes without what comes while it is behind.
bool TeeStream::may_skip() const {
    return link_.policy == UJOIN_CONSOLE_DROP || (link_.policy == UJOIN_CONSOLE_SPILL && file_);
}

bool TeeStream::must_wait() const {
    return (link_.output && link_.output->full()) || (info_.console && !may_skip() && link_.console.full());
}

void TeeStream::ready() {
    for (int i = 0; i < reads_per_turn; i++) {
        const Got got = read_some();
        if (got == Got::end) return end();
        if (got == Got::nothing) return;
        if (must_wait()) {
            watch_->pause();
            paused_ = true;
            return;
        }
    }
}

void TeeStream::resume() {
    if (!paused_ || !pipe_) return;
    paused_ = false;
    watch_->resume();
}

void TeeStream::cut() {
    if (!pipe_) return;
    const int64_t limit = static_cast<int64_t>(counters_.bytes.load()) + (int64_t{4} << 20); // a writer that never stops
    while (read_some() == Got::data && static_cast<int64_t>(counters_.bytes.load()) < limit) {
    }
    end();
}

TeeStream::Got TeeStream::read_some() {
    char buffer[read_size];
    for (;;) {
        const ssize_t got = read(pipe_.get(), buffer, sizeof buffer);
        if (got > 0) {
            take(std::string_view(buffer, static_cast<size_t>(got)));
            return Got::data;
        }
        if (got == 0) return Got::end;
        if (errno == EAGAIN) return Got::nothing;
        if (errno != EINTR) return Got::end;
    }
}

void TeeStream::take(std::string_view bytes) {
    counters_.bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
    counters_.last_ns.store(os::realtime_ns(), std::memory_order_relaxed);
    to_file(bytes);
    to_lines(bytes, false);
    if (info_.console) to_console(bytes);
}

void TeeStream::to_file(std::string_view bytes) {
    if (!file_ || file_.write(bytes)) return;
    const std::string text =
        cat("the log file ", file_.path(), " takes no more output: ", errno_text(errno), "; the worker goes on without it");
    log_warning(text);
    link_.note(text);
}

/// To those who get whole lines: the filtered file and the program's callback.
void TeeStream::to_lines(std::string_view bytes, bool last) {
    const auto stream = static_cast<size_t>(info_.fd) - 1;
    LogFile &filtered = link_.filtered[stream];
    const bool filters = filtered && info_.console; // what the console goes without is not looked for either
    if (!link_.output && !filters) return;
    const auto take_line = [&](const std::string &line) {
        const auto passes = [&](const std::string &filter) { return line.find(filter) != std::string::npos; };
        if (filters && std::any_of(link_.filters[stream].begin(), link_.filters[stream].end(), passes))
            filtered.write(cat(lines_.prefix(), line, line.back() == '\n' ? "" : "\n"));
        if (link_.output) link_.output->push({info_.rank, info_.fd == 1 ? UJOIN_STD_OUT : UJOIN_STD_ERR, line});
    };
    whole_.feed(bytes, take_line);
    if (last) whole_.finish(take_line);
}

/// Whether these bytes pass the console by; those that do not are left in `bytes`.
bool TeeStream::skips(std::string_view &bytes) {
    if (!skipping_) {
        if (!may_skip() || !link_.console.full()) return false;
        std::string out;
        std::string other;
        const bool begun = lines_.is_open(); // what is shown of a line is the last of it for now
        inside_line_ = begun || lines_.has_partial();
        skipped_ = begun ? -1 : 0; // its end will be counted
        lines_.drop_partial();
        lines_.finish(out, other);
        show(std::move(out), std::move(other));
        skipping_ = true;
    }
    if (!link_.console.full()) { // again from the next line on
        const size_t end = inside_line_ ? bytes.find('\n') : 0;
        if (end != std::string_view::npos) {
            if (inside_line_) {
                bytes.remove_prefix(end + 1);
                skipped_++;
            }
            end_skipping();
            return bytes.empty();
        }
    }
    skipped_ += static_cast<int64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
    inside_line_ = bytes.back() != '\n';
    return true;
}

void TeeStream::end_skipping() {
    skipping_ = false;
    inside_line_ = false;
    if (skipped_ > 0) counters_.dropped.fetch_add(static_cast<uint64_t>(skipped_), std::memory_order_relaxed);
    if (skipped_ > 0) {
        std::string out;
        std::string other;
        const std::string where = file_ ? cat("; they are in ", file_.path()) : std::string();
        lines_.feed(
            cat("(", skipped_, skipped_ == 1 ? " line" : " lines", " left out, the console was too slow", where, ")\n"),
            out, other);
        show(std::move(out), std::move(other));
    }
    skipped_ = 0;
}

void TeeStream::to_console(std::string_view bytes) {
    if (skips(bytes)) return;
    const bool had_partial = lines_.has_partial();
    std::string out;
    std::string other;
    out.reserve(bytes.size() + bytes.size() / 4);
    lines_.feed(bytes, out, other);
    const bool moved_on = !had_partial || !out.empty();
    show(std::move(out), std::move(other));
    if (!lines_.has_partial() || !moved_on) return;
    partial_since_ns_ = now_ns();
    if (partial_armed_) return;
    partial_armed_ = true;
    partial_timer_.start(link_.partial_line_ms, link_.guarded([this] { partial_due(); }));
}

void TeeStream::partial_due() {
    partial_armed_ = false;
    if (!lines_.has_partial()) return;
    const int64_t age_ms = (now_ns() - partial_since_ns_) / 1'000'000;
    if (age_ms < link_.partial_line_ms) { // a later line than the one the timer was set for
        partial_armed_ = true;
        partial_timer_.start(link_.partial_line_ms - age_ms, link_.guarded([this] { partial_due(); }));
        return;
    }
    std::string out;
    std::string other;
    lines_.show_partial(out, other);
    show(std::move(out), std::move(other));
}

void TeeStream::show(std::string out, std::string other) {
    if (!other.empty()) link_.console.push(3 - lines_.fd(), std::move(other));
    if (!out.empty()) link_.console.push(lines_.fd(), std::move(out));
}

void TeeStream::end() {
    partial_timer_.stop();
    watch_.reset();
    pipe_.reset();
    to_lines({}, true);
    if (inside_line_) skipped_++;
    if (skipping_) end_skipping();
    file_ = LogFile();
    std::string out;
    std::string other;
    lines_.finish(out, other);
    show(std::move(out), std::move(other));
    ended_();
}

} // namespace ujoin
