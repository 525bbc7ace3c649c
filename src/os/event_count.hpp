// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"
#include "os/interrupt.hpp"
#include <atomic>
#include <cstdint>

namespace ujoin::os {

/// Event count and sleepers of a word that other threads or processes wait on; lies beside that word, often in shared
/// memory. Zero bytes are a valid one. `seq` is the futex word: anyone may raise it, also a third party that announces
/// a failure, so a sleeper wakes even if the word it watches never changes.
struct EventCount {
    std::atomic<uint32_t> seq{0};
    std::atomic<uint32_t> sleepers{0};
};
static_assert(sizeof(EventCount) == 8 && std::atomic<uint32_t>::is_always_lock_free);

void futex_wake_all(std::atomic<uint32_t> &word);
/// Sleeps while `word` holds `value`, at most `ns`; may return early.
void futex_sleep(std::atomic<uint32_t> &word, uint32_t value, int64_t ns);

/// Raises the count. Whether somebody sleeps on it, or is about to. The seq_cst add and the seq_cst load pair with those of
/// Sleeper: of a publisher and a sleeper at least one sees the other.
inline bool raise(EventCount &event) {
    event.seq.fetch_add(1, std::memory_order_seq_cst);
    return event.sleepers.load(std::memory_order_seq_cst) != 0;
}
/// Call after the data were stored (release).
inline void announce(EventCount &event) {
    if (raise(event)) futex_wake_all(event.seq);
}

/// Counts among the sleepers as long as it lives.
class Sleeper {
  public:
    explicit Sleeper(EventCount &event) : event_(event) { event_.sleepers.fetch_add(1, std::memory_order_seq_cst); }
    ~Sleeper() { event_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
    Sleeper(const Sleeper &) = delete;
    Sleeper &operator=(const Sleeper &) = delete;

    /// Nothing was announced after `seen` was read, and it is not done.
    template <class Done> bool may_sleep(uint32_t seen, Done &&done) const {
        return event_.seq.load(std::memory_order_seq_cst) == seen && !done();
    }

  private:
    EventCount &event_;
};

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Looks at `done()` again and again for `ns`, at least once. Whether it came true.
template <class Done> bool spin(int64_t ns, Done &&done) {
    if (done()) return true;
    if (ns <= 0) return false;
    const int64_t end = now_ns() + ns;
    do {
        for (int i = 0; i < 32; i++) {
            if (done()) return true;
            cpu_relax();
        }
    } while (now_ns() < end);
    return false;
}

/// Sleeps until `done()` for who is only ever wanted by threads of this process: no slices, no deadline, no cost.
template <class Done> void sleep_until(EventCount &event, Done &&done) {
    constexpr int64_t hour_ns = 3'600'000'000'000;
    for (;;) {
        const uint32_t seen = event.seq.load(std::memory_order_acquire);
        if (done()) return;
        const Sleeper sleeper(event);
        if (sleeper.may_sleep(seen, done)) futex_sleep(event.seq, seen, hour_ns);
    }
}

/// Waits until `done()`, which may only turn from false to true. Spins `spin_ns` first, then sleeps in slices of 100 ms.
/// `look(slice)` runs before each sleep, with true when a full slice has passed since it last was (failures, liveness, the
/// interrupt check); it may throw. Returns false when the deadline passes first.
template <class Done, class Look>
bool wait_event(EventCount &event, int64_t spin_ns, const Deadline &deadline, Done &&done, Look &&look) {
    if (spin(spin_ns, done)) return true;
    int64_t next_slice = now_ns() + slice_ns;
    bool slice = false;
    for (;;) {
        const uint32_t seen = event.seq.load(std::memory_order_acquire);
        if (done()) return true;
        look(slice);
        if (deadline.passed()) return done();
        {
            const Sleeper sleeper(event);
            if (sleeper.may_sleep(seen, done)) futex_sleep(event.seq, seen, deadline.left_ns(slice_ns));
        }
        slice = now_ns() >= next_slice;
        if (slice) next_slice = now_ns() + slice_ns;
    }
}

} // namespace ujoin::os
