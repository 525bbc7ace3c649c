// SPDX-License-Identifier: Apache-2.0
// What an optimizer is after an exchange between the ranks has failed.
#include "base/error.hpp"
#include "harness/temp_dir.hpp"
#include "harness/wrapped_backend.hpp"
#include "harness/zero_kit.hpp"
#include "zero/checkpoint.hpp"
#include "zero/zero.hpp"
#include <gtest/gtest.h>
#include <optional>

using namespace harness;

namespace {

/// The error of a call that must fail.
template <class Call> ujoin::Error error_of(Call &&call) {
    try {
        call();
    } catch (const ujoin::Error &error) {
        return error;
    }
    ADD_FAILURE() << "no error";
    return {UJOIN_OK, ""};
}

void expect_text(const ujoin::Error &error, const std::string &part) {
    EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
}

/// All that an optimizer keeps on this rank.
struct Kept {
    std::vector<std::vector<float>> values;
    std::vector<ujoin::AlignedBytes> tensors;
    std::vector<int64_t> steps;
    bool operator==(const Kept &) const = default;
};

Kept kept(const ujoin::Zero &zero, const Tensors &x) {
    Kept all;
    all.values = x.data;
    for (const ujoin::ParamState &state : zero.states()) {
        for (const ujoin::AlignedBytes &tensor : state.tensors) all.tensors.push_back(tensor);
        all.steps.push_back(state.step);
    }
    return all;
}

/// Two ranks with an optimizer each, that have made one step. From `fails_at` on (counted from 0), an operation of rank 1
/// fails before it begins.
void with_failing_exchange(ujoin_partition partition, int fails_at,
                           const std::function<void(ujoin::Zero &zero, Tensors &x, int rank, bool &armed)> &body) {
    const std::string meeting = unique("broken");
    run_threads(2, [&](int rank) {
        bool armed = false;
        int done = 0;
        const auto look = [&](const ujoin::OpArgs &) {
            if (!armed || rank != 1) return;
            if (done++ >= fails_at) throw ujoin::Error(UJOIN_E_SYSTEM, "the wire was cut");
        };
        const std::shared_ptr<ujoin::Group> group = wrapped_group(meeting, rank, 2, look);
        Tensors x({40, 3, 100});
        const std::vector<ujoin_param> params = x.params();
        ujoin::ZeroConfig config;
        config.rule = ujoin::optim::shared_rule(UJOIN_OPTIMIZER_ADAM);
        config.defaults = ujoin::optim::default_hyper(*config.rule);
        config.options.partition = partition;
        const auto zero = std::make_shared<ujoin::Zero>(group, config, ujoin::Release());
        zero->add_param_group(params.data(), params.size(), nullptr, 0);
        zero->step(nullptr, nullptr);
        body(*zero, x, rank, armed);
    });
}

ujoin::StepPlan clipped() {
    ujoin::StepPlan plan;
    plan.max_norm = 1;
    return plan;
}

class ZeroBroken : public testing::TestWithParam<ujoin_partition> {};
INSTANTIATE_TEST_SUITE_P(Partitions, ZeroBroken, testing::Values(UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS),
                         [](const auto &of) { return of.param == UJOIN_PARTITION_ELEMENTS ? "elements" : "parameters"; });

TEST_P(ZeroBroken, a_norm_that_cannot_be_exchanged_leaves_all_as_it_was) {
    with_failing_exchange(GetParam(), 0, [](ujoin::Zero &zero, Tensors &x, int, bool &armed) {
        zero.consolidate(0);
        const Kept before = kept(zero, x);
        armed = true;
        expect_text(error_of([&] { zero.step(nullptr, nullptr, clipped()); }), "the wire was cut");
        EXPECT_TRUE(kept(zero, x) == before);
        zero.check_whole("a step"); // it is not broken, only its group is
        if (zero.group().rank() == 0) {
            EXPECT_NE(zero.state_dict(), nullptr); // as the optimizer still is
        }
        expect_text(error_of([&] { zero.step(nullptr, nullptr); }), "the group is broken");
    });
}

TEST_P(ZeroBroken, parameters_that_cannot_be_exchanged_break_the_optimizer) {
    const TempDir dir;
    with_failing_exchange(GetParam(), 1, [&](ujoin::Zero &zero, Tensors &x, int, bool &armed) {
        zero.consolidate(0);
        const std::shared_ptr<ujoin::State> list = zero.group().rank() == 0 ? zero.state_dict() : nullptr;
        armed = true;
        expect_text(error_of([&] { zero.step(nullptr, nullptr, clipped()); }), "the wire was cut");
        armed = false; // what is refused now is refused by the optimizer
        const Kept rest = kept(zero, x);
        const auto refused = [&](const char *what, const auto &call) {
            const ujoin::Error error = error_of(call);
            EXPECT_EQ(error.code(), UJOIN_E_STATE) << what << ": " << error.text();
            expect_text(error, "a step failed half-way");
            expect_text(error, "the wire was cut"); // the cause stays
            expect_text(error, "parameters and state");
        };
        refused("step", [&] { zero.step(nullptr, nullptr); });
        refused("clipped step", [&] { zero.step(nullptr, nullptr, clipped()); });
        refused("shadow step", [&] { zero.shadow_step(); });
        refused("save", [&] { zero.check_whole("a save"); });
        EXPECT_EQ(error_of([&] { zero.state_dict(); }).code(), UJOIN_E_STATE); // it would be from before
        EXPECT_TRUE(kept(zero, x) == rest); // nothing that was refused has moved anything
    });
}

TEST_P(ZeroBroken, a_step_without_clipping_breaks_at_its_only_exchange) {
    with_failing_exchange(GetParam(), 0, [](ujoin::Zero &zero, Tensors &, int, bool &armed) {
        armed = true;
        expect_text(error_of([&] { zero.step(nullptr, nullptr); }), "the wire was cut");
        expect_text(error_of([&] { zero.check_whole("a step"); }), "a step failed half-way");
    });
}

TEST_P(ZeroBroken, consolidation_that_fails_leaves_the_optimizer_whole) {
    for (const int at : {0, 1, 2, 3, 4, 5, 6, 7, 8})
        with_failing_exchange(GetParam(), at, [&](ujoin::Zero &zero, Tensors &x, int, bool &armed) {
            const Kept before = kept(zero, x);
            armed = true;
            expect_text(error_of([&] { zero.consolidate(1); }), "the wire was cut");
            EXPECT_TRUE(kept(zero, x) == before) << at;
            zero.check_whole("a step");
            expect_text(error_of([&] { zero.state_dict(); }), "no consolidated state"); // not a part of it
        });
}

} // namespace
