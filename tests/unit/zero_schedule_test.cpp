// SPDX-License-Identifier: Apache-2.0
// Schedules and loss scales.
#include "base/error.hpp"
#include "optim/scaler.hpp"
#include "optim/schedule.hpp"
#include <cmath>
#include <functional>
#include <gtest/gtest.h>

using namespace ujoin;

namespace {

ujoin_schedule_options schedule(ujoin_schedule_kind kind) {
    ujoin_schedule_options s{};
    s.kind = kind;
    s.base = 0.5;
    s.minimum = 0.1;
    s.warmup_steps = 4;
    s.total_steps = 12;
    s.every = 3;
    return s;
}

TEST(ZeroSchedule, warm_up_rises_in_a_straight_line) {
    for (const int32_t kind : {0, 1, 2, 3, 4}) {
        const double expected[] = {0.125, 0.25, 0.375, 0.5, 0.5};
        for (int64_t step = 0; step < 5; step++)
            EXPECT_DOUBLE_EQ(optim::schedule_value(schedule(kind), step), expected[step]) << kind << ' ' << step;
    }
}

TEST(ZeroSchedule, cosine_and_line_end_at_the_minimum) {
    const ujoin_schedule_options cosine = schedule(UJOIN_SCHEDULE_COSINE);
    const ujoin_schedule_options line = schedule(UJOIN_SCHEDULE_LINEAR);
    EXPECT_DOUBLE_EQ(optim::schedule_value(cosine, 8), 0.3);
    EXPECT_DOUBLE_EQ(optim::schedule_value(line, 8), 0.3);
    EXPECT_DOUBLE_EQ(optim::schedule_value(cosine, 6), 0.1 + 0.2 * (1 + std::sqrt(0.5)));
    EXPECT_DOUBLE_EQ(optim::schedule_value(line, 6), 0.4);
    for (const int64_t step : {int64_t{12}, int64_t{13}, INT64_MAX}) {
        EXPECT_EQ(optim::schedule_value(cosine, step), 0.1);
        EXPECT_EQ(optim::schedule_value(line, step), 0.1);
    }
}

TEST(ZeroSchedule, steps_multiply_down_to_the_minimum) {
    ujoin_schedule_options s = schedule(UJOIN_SCHEDULE_STEP);
    s.gamma = 0.5;
    EXPECT_DOUBLE_EQ(optim::schedule_value(s, 6), 0.5);
    EXPECT_DOUBLE_EQ(optim::schedule_value(s, 7), 0.25);
    EXPECT_DOUBLE_EQ(optim::schedule_value(s, 10), 0.125);
    EXPECT_DOUBLE_EQ(optim::schedule_value(s, 100), 0.1);
    s.gamma = 0; // the default
    s.minimum = 0;
    EXPECT_DOUBLE_EQ(optim::schedule_value(s, 7), 0.05);
    EXPECT_DOUBLE_EQ(optim::schedule_value(schedule(UJOIN_SCHEDULE_CONSTANT), 1000), 0.5);
}

void expect_invalid(const std::function<void()> &call, const std::string &part) {
    try {
        call();
        ADD_FAILURE() << "accepted; expected: " << part;
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), UJOIN_E_INVALID);
        EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
    }
}

TEST(ZeroSchedule, what_makes_no_sense_is_named) {
    const auto with = [](auto change, int64_t step = 0) {
        return [change, step] {
            ujoin_schedule_options s = schedule(UJOIN_SCHEDULE_COSINE);
            change(s);
            optim::schedule_value(s, step);
        };
    };
    expect_invalid(with([](auto &) {}, -1), "step is -1");
    expect_invalid(with([](auto &s) { s.kind = 5; }), "schedule.kind is 5");
    expect_invalid(with([](auto &s) { s.base = NAN; }), "schedule.base is nan");
    expect_invalid(with([](auto &s) { s.minimum = INFINITY; }), "schedule.minimum is inf");
    expect_invalid(with([](auto &s) { s.warmup_steps = -1; }), "schedule.warmup_steps is -1");
    expect_invalid(with([](auto &s) { s.total_steps = 4; }), "schedule.total_steps is 4; it must be more than the 4 steps");
    expect_invalid(with([](auto &s) { s.kind = UJOIN_SCHEDULE_STEP, s.every = 0; }), "schedule.every is 0");
}

TEST(ZeroScaler, falls_at_once_and_rises_after_good_steps) {
    ujoin_scaler_options options{};
    options.interval = 3;
    optim::Scaler scaler(options);
    EXPECT_EQ(scaler.scale(), 65536);
    scaler.good_step();
    scaler.good_step();
    EXPECT_EQ(scaler.scale(), 65536);
    scaler.good_step();
    EXPECT_EQ(scaler.scale(), 131072);
    scaler.good_step();
    scaler.skipped_step();
    EXPECT_EQ(scaler.scale(), 65536);
    EXPECT_EQ(scaler.state().skipped, 1);
    scaler.good_step(); // the count began anew
    scaler.good_step();
    EXPECT_EQ(scaler.scale(), 65536);
    EXPECT_EQ(scaler.state().good_steps, 2);
    optim::Scaler copy(scaler.state()); // saved and made anew
    copy.good_step();
    EXPECT_EQ(copy.scale(), 131072);
}

TEST(ZeroScaler, stays_within_what_f32_can_carry) {
    ujoin_scaler_options options{};
    options.interval = 1;
    optim::Scaler scaler(options);
    for (int i = 0; i < 500; i++) scaler.good_step();
    EXPECT_EQ(scaler.scale(), 0x1p127);
    for (int i = 0; i < 500; i++) scaler.skipped_step();
    EXPECT_EQ(scaler.scale(), 0x1p-126);
    const auto with = [](auto change) {
        return [change] {
            ujoin_scaler_options bad{};
            change(bad);
            const optim::Scaler refused(bad);
        };
    };
    expect_invalid(with([](auto &o) { o.scale = -1; }), "options.scale is -1");
    expect_invalid(with([](auto &o) { o.scale = 1e300; }), "fit into f32");
    expect_invalid(with([](auto &o) { o.growth = 1; }), "options.growth is 1");
    expect_invalid(with([](auto &o) { o.backoff = 1; }), "options.backoff is 1");
    expect_invalid(with([](auto &o) { o.interval = -1; }), "options.interval is -1");
    expect_invalid(with([](auto &o) { o.good_steps = -1; }), "options.good_steps is -1");
}

} // namespace
