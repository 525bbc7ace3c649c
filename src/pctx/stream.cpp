// SPDX-License-Identifier: Apache-2.0
#include "pctx/stream.hpp"
#include "base/deadline.hpp"
#include "base/log.hpp"
#include "io/console.hpp"
#include "io/loop.hpp"
#include "os/process.hpp"
#include <cerrno>

namespace ujoin {
namespace {

constexpr size_t read_size = 1 << 16;
constexpr int reads_per_turn = 4; // then other workers have theirs

} // namespace

TeeStream::TeeStream(ConsoleLink &link, os::Fd pipe, os::Fd file, int fd, std::string prefix, StreamCounters &counters,
                     std::function<void()> ended)
    : link_(link), pipe_(std::move(pipe)), file_(std::move(file)), lines_(link.state, fd, std::move(prefix)),
      counters_(counters), ended_(std::move(ended)), partial_timer_(link.loop) {
    watch_ = std::make_unique<io::Watch>(link.loop, pipe_.get(), [this] { ready(); });
}

void TeeStream::ready() {
    for (int i = 0; i < reads_per_turn; i++) {
        const Got got = read_some();
        if (got == Got::end) return end();
        if (got == Got::nothing) return;
        if (link_.console.full()) {
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
    for (std::string_view rest = bytes; file_ && !rest.empty();) {
        const ssize_t done = write(file_.get(), rest.data(), rest.size());
        if (done >= 0) {
            rest.remove_prefix(static_cast<size_t>(done));
        } else if (errno != EINTR) {
            log_warning("a worker's log file takes no more output: ", errno_text(errno));
            file_.reset();
        }
    }
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
    partial_timer_.start(link_.partial_line_ms, [this] { partial_due(); });
}

void TeeStream::partial_due() {
    partial_armed_ = false;
    if (!lines_.has_partial()) return;
    const int64_t age_ms = (now_ns() - partial_since_ns_) / 1'000'000;
    if (age_ms < link_.partial_line_ms) { // a later line than the one the timer was set for
        partial_armed_ = true;
        partial_timer_.start(link_.partial_line_ms - age_ms, [this] { partial_due(); });
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
    file_.reset();
    std::string out;
    std::string other;
    lines_.finish(out, other);
    show(std::move(out), std::move(other));
    ended_();
}

} // namespace ujoin
