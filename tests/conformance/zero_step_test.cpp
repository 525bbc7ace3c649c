// SPDX-License-Identifier: Apache-2.0
// What a step does besides updating: norms over shards, checks, loss scales, frozen parameters, rules of the program's own.
#include "base/dtype.hpp"
#include "harness/zero_kit.hpp"
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>

using namespace harness;

namespace {

class ZeroStep : public TestOfRanks {};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroStep,
                         testing::Values(Where{"self", 1}, Where{"local", 2}, Where{"local", 3}, Where{"shm", 2},
                                         Where{"tcp", 2}, Where{"hier", 3}),
                         where_name);

void expect_error(ujoin_status got, ujoin_status expected, const std::vector<std::string> &text) {
    EXPECT_EQ(got, expected) << ujoin_last_error();
    for (const std::string &part : text)
        EXPECT_NE(std::string(ujoin_last_error()).find(part), std::string::npos) << part << " in: " << ujoin_last_error();
}

ujoin_step_options clip_to(double max_norm, double norm_type = 0, double *out_norm = nullptr) {
    ujoin_step_options options{};
    options.size = sizeof options;
    options.max_norm = max_norm;
    options.norm_type = norm_type;
    options.out_norm = out_norm;
    return options;
}

/// Gradients 3 and 4; where a rank does not own one, its slot holds nonsense.
void poison(const Optimizer &optimizer, Tensors &x, int rank) {
    x.grad = {{3}, {4}};
    for (const ujoin_shard &shard : optimizer.shards())
        if (shard.rank != rank) x.grad[shard.param][0] = 1e6F;
}

TEST_P(ZeroStep, ZERO_01_one_norm_over_all_shards) {
    const std::vector<std::pair<double, double>> norms{{2, 5}, {1, 7}, {HUGE_VAL, 4}, {0, 5}};
    on_ranks([&](ujoin_group *group, int rank) {
        for (const auto &[type, expected] : norms) {
            Tensors x({1, 1});
            const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 1}});
            double norm = 0;
            poison(optimizer, x, rank);
            ok(zero_clip_grad_norm(optimizer.get(), 10, type, &norm)); // nothing to do
            EXPECT_NEAR(norm, expected, 1e-12);
            const float factor = static_cast<float>(1 / (expected + 1e-6));
            const ujoin_step_options options = clip_to(1, type, &norm);
            EXPECT_EQ(zero_step(optimizer.get(), &options), UJOIN_OK);
            EXPECT_NEAR(norm, expected, 1e-12);
            EXPECT_NEAR(x.data[0][0], 1 - 3 * factor, 1e-6); // on every rank
            EXPECT_NEAR(x.data[1][0], 1 - 4 * factor, 1e-6);
            std::vector<float> before{x.grad[0][0], x.grad[1][0]}; // a step writes no gradient
            EXPECT_EQ(zero_clip_grad_norm(optimizer.get(), 1, type, &norm), UJOIN_OK);
            EXPECT_NEAR(norm, expected, 1e-12);
            for (size_t i = 0; i < 2; i++) EXPECT_NEAR(x.grad[i][0], before[i] * factor, 1e-6F * before[i]);
        }
        Tensors x({1, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        expect_error(zero_clip_grad_norm(optimizer.get(), 0, 2, nullptr), UJOIN_E_INVALID, {"max_norm is 0"});
        expect_error(zero_clip_grad_norm(optimizer.get(), 1, -2, nullptr), UJOIN_E_INVALID, {"norm_type is -2"});
    });
}

/// Parameters of every type, in two groups; the same numbers everywhere.
struct Mixed {
    std::vector<float> f32{1, 1}, f32_grad{1, 2};
    std::vector<double> f64{1}, f64_grad{2};
    std::vector<ujoin::BFloat16> bf16 = std::vector<ujoin::BFloat16>(3, ujoin::BFloat16(1.0F));
    std::vector<ujoin::BFloat16> bf16_grad = std::vector<ujoin::BFloat16>(3, ujoin::BFloat16(4.0F));
    std::vector<ujoin::Half> f16 = std::vector<ujoin::Half>(1, ujoin::Half(1.0F));
    std::vector<float> f16_grad{-1}; // another type than the parameter's

    std::vector<ujoin_param> params() {
        std::vector<ujoin_param> list(4);
        const auto fill = [&](size_t i, auto &values, auto &grads, ujoin_dtype dtype, ujoin_dtype grad_dtype) {
            list[i].data = values.data();
            list[i].grad = grads.data();
            list[i].count = values.size();
            list[i].dtype = dtype;
            list[i].grad_dtype = grad_dtype;
        };
        fill(0, f32, f32_grad, UJOIN_F32, 0);
        fill(1, f64, f64_grad, UJOIN_F64, 0);
        fill(2, bf16, bf16_grad, UJOIN_BF16, 0);
        fill(3, f16, f16_grad, UJOIN_F16, UJOIN_F32);
        return list;
    }
};

TEST_P(ZeroStep, Z_17_types_may_be_mixed_and_have_one_norm) {
    on_ranks([&](ujoin_group *group, int) {
        Mixed x;
        const std::vector<ujoin_param> params = x.params();
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, {params[0], params[1]}, {{"lr", 0.5}});
        ok(zero_add_param_group(optimizer.get(), &params[2], 2, nullptr, 0));
        double norm = 0;
        const ujoin_step_options options = clip_to(5, 1, &norm); // |1| + |2| + |2| + 3 |4| + |-1| = 18
        ok(zero_step(optimizer.get(), &options));
        EXPECT_DOUBLE_EQ(norm, 18);
        const double factor = 5 / (18 + 1e-6);
        EXPECT_NEAR(x.f32[1], 1 - factor, 1e-6);
        EXPECT_NEAR(x.f64[0], 1 - factor, 1e-15);
        for (const ujoin::BFloat16 value : x.bf16) EXPECT_NEAR(static_cast<float>(value), 1 - 2 * factor, 2e-3);
        EXPECT_NEAR(static_cast<float>(x.f16[0]), 1 + 0.5 * factor, 1e-3);
    });
}

TEST_P(ZeroStep, a_norm_has_the_same_bits_for_any_number_of_ranks) {
    const auto norm_of = [](ujoin_group *group) {
        Tensors x({13, 1, 40, 7, 200, 0, 3});
        for (size_t i = 0; i < x.grad.size(); i++)
            for (size_t k = 0; k < x.grad[i].size(); k++) x.grad[i][k] = std::sin(static_cast<float>(7 * i + k));
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        double norm = 0;
        ok(zero_clip_grad_norm(optimizer.get(), 1, 2, &norm));
        return norm;
    };
    double expected = 0;
    harness::on_ranks("self", 1, [&](ujoin_group *group, int) { expected = norm_of(group); });
    on_ranks([&](ujoin_group *group, int) { EXPECT_EQ(norm_of(group), expected); });
}

TEST_P(ZeroStep, a_gradient_that_is_not_finite_skips_the_step_everywhere) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({2, 3, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {{"lr", 0.5}});
        ujoin_step_options options{};
        options.size = sizeof options;
        options.skip_nonfinite = 1;
        EXPECT_EQ(zero_step(optimizer.get(), &options), UJOIN_OK);
        const std::vector<std::vector<float>> values = x.data;
        const Listed state = listed(state_everywhere(group, optimizer).state);
        for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
            x.grad[1][2] = bad;
            EXPECT_EQ(zero_step(optimizer.get(), &options), UJOIN_SKIPPED);
            double norm = 0;
            const ujoin_step_options clipped = clip_to(1, 0, &norm);
            EXPECT_EQ(zero_step(optimizer.get(), &clipped), UJOIN_SKIPPED);
            EXPECT_FALSE(std::isfinite(norm));
            EXPECT_EQ(zero_clip_grad_norm(optimizer.get(), 1, 2, &norm), UJOIN_SKIPPED);
            EXPECT_EQ(x.grad[0][0], 1);
        }
        EXPECT_EQ(x.data, values);
        EXPECT_EQ(listed(state_everywhere(group, optimizer).state), state); // step counts too
        ok(zero_set_frozen(optimizer.get(), 1, 1));                         // what is frozen does not count
        EXPECT_EQ(zero_step(optimizer.get(), &options), UJOIN_OK);
        EXPECT_EQ(x.data[1], values[1]);
        EXPECT_NE(x.data[0], values[0]);
    });
}

TEST_P(ZeroStep, a_scaler_is_adapted_alike_on_all_ranks) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({2, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.25}});
        ujoin_scaler_options how{};
        how.size = sizeof how;
        how.scale = 1024;
        how.interval = 2;
        ujoin_scaler *scaler = nullptr;
        ok(zero_scaler_create(&how, &scaler));
        ujoin_step_options options{};
        options.size = sizeof options;
        options.scaler = scaler;
        const auto step = [&](float grad) {
            for (std::vector<float> &list : x.grad)
                for (float &value : list) value = grad * static_cast<float>(zero_scaler_scale(scaler));
            return zero_step(optimizer.get(), &options);
        };
        EXPECT_EQ(step(1), UJOIN_OK);
        EXPECT_EQ(x.data[0][0], 0.75F);
        EXPECT_EQ(zero_scaler_scale(scaler), 1024);
        EXPECT_EQ(step(1), UJOIN_OK);
        EXPECT_EQ(zero_scaler_scale(scaler), 2048);
        EXPECT_EQ(step(std::numeric_limits<float>::infinity()), UJOIN_SKIPPED);
        EXPECT_EQ(zero_scaler_scale(scaler), 1024);
        EXPECT_EQ(x.data[1][0], 0.5F);
        double norm = 0;
        options.max_norm = 1;
        options.norm_type = 1;
        options.out_norm = &norm;
        EXPECT_EQ(step(1), UJOIN_OK); // the norm is that of the gradients without their scale
        EXPECT_NEAR(norm, 3, 1e-12);
        EXPECT_NEAR(x.data[0][1], 0.5 - 0.25 / 3, 1e-6);
        ujoin_scaler_options now{};
        now.size = sizeof now;
        ok(zero_scaler_get(scaler, &now));
        EXPECT_EQ(now.skipped, 1);
        EXPECT_EQ(now.good_steps, 1);
        EXPECT_EQ(now.growth, 2);
        zero_scaler_destroy(scaler);
    });
}

TEST_P(ZeroStep, ranks_that_differ_in_the_options_of_a_step_are_told) {
    if (size() == 1) return;
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({2, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        const ujoin_step_options options = clip_to(rank == 1 ? 2 : 1);
        expect_error(zero_step(optimizer.get(), &options), UJOIN_E_MISMATCH, {"options of the step"});
    });
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({2, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        if (rank == 1) ok(zero_set_frozen(optimizer.get(), 0, 1));
        expect_error(zero_step(optimizer.get(), nullptr), UJOIN_E_MISMATCH, {});
    });
}

TEST_P(ZeroStep, joined_ranks_take_part_in_norms_checks_and_scales) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({1, 1, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 1}});
        x.grad = {{1024}, {2048}, {2048}}; // the norm is 3 without the scale
        ujoin_scaler_options how{};
        how.size = sizeof how;
        how.scale = 1024;
        ujoin_scaler *scaler = nullptr;
        ok(zero_scaler_create(&how, &scaler));
        ujoin_step_options options = clip_to(1.5);
        options.scaler = scaler;
        ujoin_joinable *joinable = zero_joinable(optimizer.get());
        ujoin_ctx *ctx = nullptr;
        ok(ujoin_ctx_create(&joinable, 1, nullptr, &ctx));
        ok(ujoin_ctx_start(ctx));
        for (int i = 0; i < 1 + rank; i++) ok(zero_step(optimizer.get(), &options));
        expect_error(zero_clip_grad_norm(optimizer.get(), 1, 2, nullptr), UJOIN_E_STATE, {"armed join context"});
        ok(ujoin_ctx_finish(ctx));
        ujoin_ctx_destroy(ctx);
        const auto steps = static_cast<float>(size());
        EXPECT_NEAR(x.data[0][0], 1 - steps * 0.5F, 1e-5);
        EXPECT_NEAR(x.data[2][0], 1 - steps, 1e-5);
        ujoin_scaler_options now{};
        now.size = sizeof now;
        ok(zero_scaler_get(scaler, &now));
        EXPECT_EQ(now.good_steps, size()); // also those of the others
        zero_scaler_destroy(scaler);
    });
}

TEST_P(ZeroStep, Z_51_frozen_parameters_can_be_left_out_of_the_balance) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({100, 3, 5, 2, 6, 4});
        std::vector<ujoin_param> params = x.params();
        params[0].flags = UJOIN_PARAM_FROZEN;
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.balance_trainable = 1;
        ujoin_zero *zero = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &options, &zero));
        std::vector<size_t> loads(static_cast<size_t>(size()));
        for (size_t i = 0; i < zero_shard_count(zero); i++) {
            ujoin_shard shard{};
            shard.size = sizeof shard;
            ok(zero_get_shard(zero, i, &shard));
            if (shard.param != 0) loads[static_cast<size_t>(shard.rank)] += shard.count;
        }
        if (size() == 2) {
            EXPECT_EQ(loads, (std::vector<size_t>{11, 9}));
        }
        ok(zero_step(zero, nullptr));
        EXPECT_EQ(x.data[0][99], 1);
        EXPECT_EQ(x.data[1][0], 0.999F);
        ok(zero_set_frozen(zero, 0, 0));
        ok(zero_step(zero, nullptr));
        EXPECT_EQ(x.data[0][99], 0.999F); // on every rank
        expect_error(zero_set_frozen(zero, 6, 1), UJOIN_E_INVALID, {"index is 6"});
        expect_error(zero_set_frozen(zero, 0, 2), UJOIN_E_INVALID, {"frozen is 2"});
        zero_destroy(zero);
    });
}

TEST_P(ZeroStep, Z_46_memory_is_reported_and_shared) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x(std::vector<size_t>(static_cast<size_t>(6), 1000));
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {});
        const auto memory = [&] {
            ujoin_zero_memory report{};
            report.size = sizeof report;
            ok(zero_get_memory(optimizer.get(), &report));
            return report;
        };
        EXPECT_EQ(memory().state, 0U);
        optimizer.step();
        EXPECT_EQ(memory().parameters, 24000U);
        EXPECT_EQ(memory().gradients, 24000U);
        EXPECT_EQ(memory().state, 48000U / static_cast<unsigned>(size()));
        EXPECT_EQ(memory().full_state, 48000U);
        EXPECT_LT(memory().buffers, 4096U);
        ok(zero_set_gradient(optimizer.get(), 0, nullptr));
        EXPECT_EQ(memory().gradients, 20000U);
    });
}

TEST_P(ZeroStep, detail_compares_values_before_they_are_overwritten) {
    setenv("UJOIN_DEBUG", "detail", 1); // NOLINT(concurrency-mt-unsafe): before there are ranks
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({2, 3});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        optimizer.step();
        if (size() == 1) return;
        if (rank == 1) x.data[1][2] = 7;
        expect_error(zero_step(optimizer.get(), nullptr), UJOIN_E_MISMATCH,
                     {"ranks differ in the values of parameter \"p1\"", "rank 1"});
        if (rank == 1) x.data[1][2] = x.data[1][0];
        optimizer.step(); // nothing was changed, nothing is broken
    });
}

/// Momentum, written by the program.
struct Program {
    std::vector<int> called;
    int destroyed = 0;
    int fails_on = -1;
};

ujoin_status momentum_init(void *data, const ujoin_rule_args *args) {
    static_cast<Program *>(data)->called.push_back(0);
    for (size_t i = 0; i < args->count; i++) static_cast<float *>(args->state[1])[i] = 5;
    return UJOIN_OK;
}

ujoin_status momentum_step(void *data, const ujoin_rule_args *args) {
    auto &program = *static_cast<Program *>(data);
    if (program.fails_on >= 0) return ujoin_set_last_error(UJOIN_E_INVALID, "not today");
    program.called.push_back(static_cast<int>(args->step));
    auto *value = static_cast<float *>(args->data);
    const auto *grad = static_cast<const float *>(args->grad);
    auto *buffer = static_cast<float *>(args->state[0]);
    EXPECT_EQ(args->dtype, UJOIN_F32);
    EXPECT_EQ(args->ndim, 1);
    EXPECT_EQ(args->shape[0], static_cast<int64_t>(args->count));
    for (size_t i = 0; i < args->count; i++) {
        EXPECT_EQ(static_cast<float *>(args->state[1])[i], 5);
        buffer[i] = static_cast<float>(args->hyper[1]) * buffer[i] + grad[i];
        value[i] = value[i] - static_cast<float>(args->hyper[0]) * buffer[i];
    }
    return UJOIN_OK;
}

struct Custom {
    Program program;
    const char *states[2] = {"speed", "five"};
    ujoin_hyper hyper[3] = {{"lr", 0.1}, {"keep", 0.5}, {"key", 0.1}};
    ujoin_rule rule{};
    ujoin_zero_options options{};

    Custom() {
        rule.size = sizeof rule;
        rule.name = "mine";
        rule.step = momentum_step;
        rule.init = momentum_init;
        rule.state_names = states;
        rule.state_count = 2;
        rule.hyper = hyper;
        rule.hyper_count = 3;
        rule.user_data = &program;
        rule.destroy = [](void *data) { static_cast<Program *>(data)->destroyed++; };
        options.size = sizeof options;
        options.rule = &rule;
    }
    ujoin_zero *make(ujoin_group *group, Tensors &x) {
        ujoin_zero *zero = nullptr;
        const std::vector<ujoin_param> params = x.params();
        ok(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params.data(), params.size(), &options, &zero));
        return zero;
    }
};

TEST_P(ZeroStep, Z_06_Z_07_Z_08_a_rule_of_the_programs_own) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({2, 2, 2});
        Tensors y({2, 2, 2});
        Custom custom;
        ujoin_zero *zero = custom.make(group, x);
        const Optimizer plain(group, UJOIN_OPTIMIZER_SGD, y, {{"lr", 0.1}, {"momentum", 0.5}});
        for (int i = 0; i < 3; i++) {
            ok(zero_step(zero, nullptr));
            plain.step();
        }
        EXPECT_EQ(x.data, y.data);
        size_t own = 0;
        for (const ujoin_shard &shard : plain.shards()) own += shard.rank == rank ? 1 : 0;
        EXPECT_EQ(custom.program.called.size(), own * 4); // init and three steps each: arguments come through user_data
        double key = 0;
        ok(zero_get_hyper(zero, 0, "key", &key)); // a key that only this rule knows
        EXPECT_EQ(key, 0.1);
        EXPECT_STREQ(zero_hyper_name(zero, 2), "key");
        ok(zero_consolidate_state_dict(zero, 0));
        if (rank == 0) {
            StateOwner state;
            ok(zero_state_dict(zero, &state.state));
            const Listed all = listed(state.state);
            EXPECT_EQ(all.at("0/p2/speed"), (std::vector<double>{1.75, 1.75}));
            EXPECT_EQ(all.at("0/p2/five"), (std::vector<double>{5, 5}));
            EXPECT_EQ(all.at("0/p2/step"), std::vector<double>{3});
        }
        EXPECT_EQ(custom.program.destroyed, 0);
        zero_destroy(zero);
        EXPECT_EQ(custom.program.destroyed, 1);
    });
}

TEST_P(ZeroStep, a_rule_that_fails_on_one_rank_fails_the_step_on_all) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({2, 2, 2});
        Custom custom;
        ujoin_zero *zero = custom.make(group, x);
        ok(zero_step(zero, nullptr));
        const int guilty = size() - 1;
        if (rank == guilty) custom.program.fails_on = 1;
        expect_error(zero_step(zero, nullptr), UJOIN_E_CALLBACK,
                     {"step of rule \"mine\" failed on parameter", "not today"});
        expect_error(zero_step(zero, nullptr), UJOIN_E_STATE, {"failed half-way"});
        zero_destroy(zero);
        Tensors other({2}); // the group goes on
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, other, {});
        optimizer.step();
    });
}

TEST_P(ZeroStep, rules_that_make_no_sense_are_refused_and_destroyed) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({2});
        const std::vector<ujoin_param> params = x.params();
        const auto refused = [&](const char *text, auto change) {
            Custom custom;
            change(custom);
            ujoin_zero *zero = nullptr;
            expect_error(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params.data(), 1, &custom.options, &zero),
                         UJOIN_E_INVALID, {text});
            EXPECT_EQ(custom.program.destroyed, 1);
        };
        refused("options.rule.step is NULL", [](Custom &c) { c.rule.step = nullptr; });
        refused("options.rule.name is NULL", [](Custom &c) { c.rule.name = nullptr; });
        refused("cannot have a slash", [](Custom &c) { c.rule.name = "a/b"; });
        refused("state_names[1] is \"speed\", which is taken", [](Custom &c) { c.states[1] = "speed"; });
        refused("state_names[0] is \"step\"", [](Custom &c) { c.states[0] = "step"; });
        refused("at most 8", [](Custom &c) { c.rule.state_count = 9; });
        refused("\"lr\" twice", [](Custom &c) { c.hyper[1].name = "lr"; });
        refused("lr is nan", [](Custom &c) { c.hyper[0].value = NAN; });
        refused("stochastic_rounding needs options.no_master_copy", [](Custom &c) { c.options.stochastic_rounding = 1; });
    });
}

} // namespace
