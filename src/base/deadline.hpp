// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include <algorithm>
#include <cstdint>
#include <limits>
#include <time.h>

namespace ujoin {

/// Nanoseconds on the monotonic clock.
inline int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
inline int64_t now_ms() { return now_ns() / 1'000'000; }

/// A point on the monotonic clock, or never.
class Deadline {
  public:
    static Deadline never() { return Deadline(std::numeric_limits<int64_t>::max()); }
    /// As a direct parameter of the API: 0 = now, negative = for ever.
    static Deadline in(int64_t ms) {
        if (ms < 0 || ms > std::numeric_limits<int64_t>::max() / 2'000'000) return never();
        return Deadline(now_ns() + ms * 1'000'000);
    }

    static Deadline earlier(const Deadline &a, const Deadline &b) { return Deadline(std::min(a.at_ns_, b.at_ns_)); }

    bool is_never() const { return at_ns_ == std::numeric_limits<int64_t>::max(); }
    bool passed() const { return !is_never() && now_ns() >= at_ns_; }
    /// Nanoseconds until then, 0 when passed, at most `limit`.
    int64_t left_ns(int64_t limit) const { return is_never() ? limit : std::clamp<int64_t>(at_ns_ - now_ns(), 0, limit); }
    /// Milliseconds until then, rounded up, at most `limit`; for poll().
    int left_ms(int limit) const { return static_cast<int>((left_ns(int64_t{limit} * 1'000'000) + 999'999) / 1'000'000); }

  private:
    explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
    int64_t at_ns_;
};

/// A duration in an option struct: 0 = `fallback`, UJOIN_NEVER, UJOIN_NOW. Returns milliseconds as Deadline::in takes them.
inline int64_t duration_option(int64_t value, int64_t fallback, const char *name) {
    if (value == 0) return fallback;
    if (value == UJOIN_NOW) return 0;
    if (value < UJOIN_NOW) fail_invalid(name, " is ", value, "; expected milliseconds, UJOIN_NEVER or UJOIN_NOW");
    return value;
}

} // namespace ujoin
