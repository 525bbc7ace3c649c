// SPDX-License-Identifier: Apache-2.0
#include "optim/scaler.hpp"
#include "base/error.hpp"
#include <cmath>
#include <limits>

namespace ujoin::optim {

Scaler::Scaler(const ujoin_scaler_options &options) : state_(options) {
    if (state_.scale == 0) state_.scale = 65536;
    if (state_.growth == 0) state_.growth = 2;
    if (state_.backoff == 0) state_.backoff = 0.5;
    if (state_.interval == 0) state_.interval = 2000;
    if (!(state_.scale > 0 && state_.scale <= static_cast<double>(std::numeric_limits<float>::max())))
        fail_invalid("options.scale is ", state_.scale, "; it must be above 0 and fit into f32");
    if (!(state_.growth > 1 && std::isfinite(state_.growth)))
        fail_invalid("options.growth is ", state_.growth, "; it must be above 1");
    if (!(state_.backoff > 0 && state_.backoff < 1))
        fail_invalid("options.backoff is ", state_.backoff, "; it must be above 0 and below 1");
    if (state_.interval < 1) fail_invalid("options.interval is ", state_.interval, "; it must be 1 or more");
    if (state_.good_steps < 0) fail_invalid("options.good_steps is ", state_.good_steps, "; it must be 0 or more");
    if (state_.skipped < 0) fail_invalid("options.skipped is ", state_.skipped, "; it must be 0 or more");
}

void Scaler::good_step() {
    if (++state_.good_steps < state_.interval) return;
    state_.good_steps = 0;
    // Beyond f32 a loss could not carry it; it stays.
    if (const double next = state_.scale * state_.growth; next <= static_cast<double>(std::numeric_limits<float>::max()))
        state_.scale = next;
}

void Scaler::skipped_step() {
    state_.good_steps = 0;
    state_.skipped++;
    // A scale of 0 would leave no gradient at all.
    if (const double next = state_.scale * state_.backoff; next >= static_cast<double>(std::numeric_limits<float>::min()))
        state_.scale = next;
}

} // namespace ujoin::optim
