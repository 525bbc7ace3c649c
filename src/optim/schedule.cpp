// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.hpp"
#include "base/error.hpp"
#include <algorithm>
#include <cmath>

namespace ujoin::optim {
namespace {

constexpr double pi = 3.14159265358979323846;

void check(const ujoin_schedule_options &s, int64_t step) {
    if (step < 0) fail_invalid("step is ", step, "; steps count from 0");
    if (s.kind < 0 || s.kind > UJOIN_SCHEDULE_STEP)
        fail_invalid("schedule.kind is ", s.kind, "; expected a value of ujoin_schedule_kind_value");
    if (!std::isfinite(s.base)) fail_invalid("schedule.base is ", s.base, "; it must be a finite number");
    if (!std::isfinite(s.minimum)) fail_invalid("schedule.minimum is ", s.minimum, "; it must be a finite number");
    if (!std::isfinite(s.gamma)) fail_invalid("schedule.gamma is ", s.gamma, "; it must be a finite number");
    if (s.warmup_steps < 0) fail_invalid("schedule.warmup_steps is ", s.warmup_steps, "; it must be 0 or more");
    const bool ends = s.kind == UJOIN_SCHEDULE_COSINE || s.kind == UJOIN_SCHEDULE_LINEAR;
    if (ends && s.total_steps <= s.warmup_steps)
        fail_invalid("schedule.total_steps is ", s.total_steps, "; it must be more than the ", s.warmup_steps,
                     " steps of warm-up, which it includes");
    if (s.kind == UJOIN_SCHEDULE_STEP && s.every < 1) fail_invalid("schedule.every is ", s.every, "; it must be 1 or more");
}

} // namespace

double schedule_value(const ujoin_schedule_options &s, int64_t step) {
    check(s, step);
    if (step < s.warmup_steps) return s.base * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
    const auto after = static_cast<double>(step - s.warmup_steps);
    const double part = std::min(1.0, after / static_cast<double>(std::max<int64_t>(1, s.total_steps - s.warmup_steps)));
    switch (s.kind) {
    case UJOIN_SCHEDULE_COSINE:
        return part >= 1 ? s.minimum : s.minimum + (s.base - s.minimum) * (1 + std::cos(pi * part)) / 2;
    case UJOIN_SCHEDULE_LINEAR:
        return part >= 1 ? s.minimum : s.base + (s.minimum - s.base) * part;
    case UJOIN_SCHEDULE_STEP: {
        const int64_t drops = (step - s.warmup_steps) / s.every;
        return std::max(s.minimum, s.base * std::pow(s.gamma == 0 ? 0.1 : s.gamma, static_cast<double>(drops)));
    }
    default:
        return s.base;
    }
}

} // namespace ujoin::optim
