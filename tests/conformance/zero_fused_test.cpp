// SPDX-License-Identifier: Apache-2.0
// Fused steps: each run beside one that reduces for all and then steps, which must have the same bits.
#include "harness/fused_kit.hpp"
#include <gtest/gtest.h>

using namespace harness;

namespace {

class ZeroFused : public TestOfRanks {
  protected:
    /// Several steps of both ways.
    void expect_parity(const std::vector<FusedRecipe> &recipes, int steps = 4) {
        on_ranks([&](ujoin_group *group, int) {
            for (const FusedRecipe &recipe : recipes) {
                SCOPED_TRACE(testing::Message() << "rule " << recipe.rule << " partition " << recipe.partition << " type "
                                                << recipe.types[0] << " division " << recipe.division);
                FusedPair pair(group, recipe);
                for (int t = 0; t < steps; t++) {
                    const Bytes before = pair.fused.values();
                    pair.each([&](FusedModel &model) {
                        model.clear();
                        model.iterate(t, 1 + (t + ujoin_group_rank(group)) % 3);
                        model.step();
                    });
                    EXPECT_TRUE(pair.fused.values() != before) << t;
                    EXPECT_TRUE(pair.fused.values() == pair.apart.values()) << t;
                }
                pair.expect_same();
            }
        });
    }
};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroFused,
                         testing::Values(Where{"self", 1}, Where{"local", 2}, Where{"local", 3}, Where{"local", 4},
                                         Where{"shm", 2}),
                         where_name);

constexpr ujoin_partition partitions[] = {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS};

TEST_P(ZeroFused, every_rule_has_the_bits_of_a_reduction_and_a_step) {
    std::vector<FusedRecipe> recipes;
    for (const ujoin_partition partition : partitions)
        for (ujoin_optimizer rule = UJOIN_OPTIMIZER_SGD; rule <= UJOIN_OPTIMIZER_LION; rule++) {
            if (rule == UJOIN_OPTIMIZER_LAMB && partition == UJOIN_PARTITION_ELEMENTS) continue; // it needs whole ones
            recipes.emplace_back().rule = rule;
            recipes.back().partition = partition;
        }
    expect_parity(recipes);
}

TEST_P(ZeroFused, parameters_of_many_pieces_in_the_pipeline) {
    std::vector<FusedRecipe> recipes;
    for (const ujoin_partition partition : partitions)
        for (const ujoin_optimizer rule : {UJOIN_OPTIMIZER_ADAMW, UJOIN_OPTIMIZER_NADAM, UJOIN_OPTIMIZER_RPROP}) {
            FusedRecipe &recipe = recipes.emplace_back();
            recipe.rule = rule;
            recipe.partition = partition;
            recipe.counts = {5, 300'001, 70'000, 1, 0, 131'072};
        }
    expect_parity(recipes, 3);
}

TEST_P(ZeroFused, every_type_and_a_mixture) {
    std::vector<FusedRecipe> recipes;
    for (const ujoin_partition partition : partitions)
        for (const std::vector<ujoin_dtype> &types : {std::vector<ujoin_dtype>{UJOIN_F64},
                                                      {UJOIN_F16},
                                                      {UJOIN_BF16},
                                                      {UJOIN_BF16, UJOIN_F64, UJOIN_F32, UJOIN_F16}})
            for (const ujoin_division division : {UJOIN_DIVISION_INITIAL, UJOIN_DIVISION_SAMPLES}) {
                FusedRecipe &recipe = recipes.emplace_back();
                recipe.rule = UJOIN_OPTIMIZER_ADAMW;
                recipe.partition = partition;
                recipe.types = types;
                recipe.division = division;
                recipe.hyper = {{"lr", 0.05}};
                recipe.counts = {1500, 3, 20'000, 0, 2100, 17, 40};
            }
    FusedRecipe rounded = recipes.back();
    rounded.types = {UJOIN_BF16};
    rounded.no_master = true;
    recipes.push_back(rounded);
    rounded.stochastic = true;
    recipes.push_back(rounded);
    expect_parity(recipes);
}

TEST_P(ZeroFused, every_division_and_memory_of_the_librarys) {
    std::vector<FusedRecipe> recipes;
    for (ujoin_division division = UJOIN_DIVISION_INITIAL; division <= UJOIN_DIVISION_SAMPLES; division++)
        for (ujoin_gradient_kind kind = UJOIN_GRADIENT_MEAN; kind <= UJOIN_GRADIENT_SUM; kind++) {
            FusedRecipe &recipe = recipes.emplace_back();
            recipe.division = division;
            recipe.gradient_kind = kind;
            recipe.gradient_view = kind == UJOIN_GRADIENT_SUM;
            recipe.parameter_view = division != UJOIN_DIVISION_ACTIVE;
        }
    expect_parity(recipes);
}

TEST_P(ZeroFused, ranks_without_samples) {
    on_ranks([](ujoin_group *group, int rank) {
        FusedRecipe recipe;
        recipe.division = UJOIN_DIVISION_SAMPLES;
        FusedPair pair(group, recipe);
        for (int t = 0; t < 4; t++)
            pair.each([&](FusedModel &model) {
                model.clear();
                const bool counts = t != 3 && rank != t % 2; // in the last iteration no rank has any
                model.iterate(t, counts ? 2 : 0);
                model.step();
            });
        pair.expect_same();
    });
}

TEST_P(ZeroFused, gradients_are_left_as_they_are) {
    on_ranks([](ujoin_group *group, int) {
        FusedRecipe recipe;
        FusedModel model(group, recipe);
        model.iterate(0);
        const Bytes before = model.gradients();
        model.step();
        EXPECT_TRUE(model.gradients() == before);
    });
}

TEST_P(ZeroFused, unused_parameters) {
    on_ranks([](ujoin_group *group, int rank) {
        for (const bool fixed : {false, true}) {
            FusedRecipe recipe;
            recipe.find_unused = !fixed;
            recipe.static_graph = fixed;
            recipe.rule = UJOIN_OPTIMIZER_SGD;
            recipe.hyper = {{"momentum", 0.9}};
            FusedPair pair(group, recipe);
            for (int t = 0; t < 5; t++)
                pair.each([&](FusedModel &model) {
                    model.clear();
                    const auto uses = [&](size_t p) {
                        if (p == 2) return rank == 0;
                        if (fixed) return true;
                        if (p == 0) return t == 0 || t == 3; // else by nobody
                        return p != 4 || (t + rank) % 2 == 0;
                    };
                    for (size_t p = 0; p < model.size(); p++)
                        if (!uses(p)) model.spoil(p, 0.25F * static_cast<float>(rank + 1));
                    model.iterate(t, 1, uses);
                    model.step();
                });
            pair.expect_same();
        }
    });
}

TEST_P(ZeroFused, accumulation_makes_one_update) {
    on_ranks([](ujoin_group *group, int) {
        FusedPair pair(group, {});
        for (int window = 0; window < 3; window++)
            pair.each([&](FusedModel &model) {
                model.clear();
                const Bytes before = model.values();
                ok(ujoin_ddp_set_sync(model.ddp(), 0));
                for (int t = 0; t < 2; t++) model.iterate(4 * window + t, 2);
                EXPECT_EQ(zero_step(model.zero(), nullptr), &model == &pair.fused ? UJOIN_E_STATE : UJOIN_OK);
                if (&model != &pair.fused) return;
                EXPECT_TRUE(model.values() == before);
            });
    });
    on_ranks([](ujoin_group *group, int) {
        FusedPair pair(group, {});
        for (int window = 0; window < 3; window++)
            pair.each([&](FusedModel &model) {
                model.clear();
                for (int t = 0; t < 3; t++) {
                    ok(ujoin_ddp_set_sync(model.ddp(), t == 2 ? 1 : 0));
                    model.iterate(4 * window + t, 2);
                }
                model.step();
            });
        pair.expect_same();
    });
}

TEST_P(ZeroFused, uneven_inputs) {
    on_ranks([](ujoin_group *group, int rank) {
        for (ujoin_division division = UJOIN_DIVISION_INITIAL; division <= UJOIN_DIVISION_SAMPLES; division++)
            for (const bool clips : {false, true}) {
                FusedRecipe recipe;
                recipe.division = division;
                recipe.find_unused = clips;
                recipe.partition = clips ? UJOIN_PARTITION_ELEMENTS : UJOIN_PARTITION_PARAMETERS;
                FusedPair pair(group, recipe);
                ujoin_step_options options{};
                options.size = sizeof options;
                options.max_norm = clips ? 0.5 : 0;
                pair.each([&](FusedModel &model) {
                    for (int epoch = 0; epoch < 2; epoch++) {
                        const ddp_kit::CtxPtr ctx =
                            ddp_kit::make_ctx({ujoin_ddp_joinable(model.ddp()), zero_joinable(model.zero())});
                        ok(ujoin_ctx_start(ctx.get()));
                        for (int t = 0; t < 2 + 2 * rank; t++) {
                            model.clear();
                            model.iterate(t, 1 + rank);
                            model.step(&options);
                        }
                        ok(ujoin_ctx_finish(ctx.get()));
                    }
                });
                pair.expect_same();
            }
    });
}

TEST_P(ZeroFused, clipping_scaling_and_skipping) {
    on_ranks([](ujoin_group *group, int rank) {
        for (const ujoin_partition partition : partitions) {
            FusedRecipe recipe;
            recipe.partition = partition;
            FusedPair pair(group, recipe);
            std::vector<double> norms[2];
            std::vector<double> scales[2];
            std::vector<ujoin_status> results[2];
            int which = 0;
            pair.each([&](FusedModel &model) {
                ujoin_scaler_options how{};
                how.size = sizeof how;
                ujoin_scaler *scaler = nullptr;
                ok(zero_scaler_create(&how, &scaler));
                for (int t = 0; t < 6; t++) {
                    model.clear();
                    const auto scale = static_cast<float>(zero_scaler_scale(scaler));
                    const bool broken = t == 2 && rank == 0;
                    model.iterate(t, 1, nullptr, broken ? HUGE_VALF : t >= 4 ? 1 : scale);
                    double norm = -1;
                    ujoin_step_options options{};
                    options.size = sizeof options;
                    options.scaler = t < 4 ? scaler : nullptr;
                    options.max_norm = t % 2 == 0 ? 0.25 : 0;
                    options.skip_nonfinite = t == 5;
                    options.out_norm = &norm;
                    const Bytes before = model.values();
                    results[which].push_back(model.step(&options));
                    EXPECT_EQ(results[which].back(), t == 2 ? UJOIN_SKIPPED : UJOIN_OK);
                    EXPECT_EQ(model.values() == before, t == 2);
                    norms[which].push_back(std::isfinite(norm) ? norm : -2);
                    scales[which].push_back(zero_scaler_scale(scaler));
                }
                zero_scaler_destroy(scaler);
                which++;
            });
            EXPECT_EQ(norms[0], norms[1]);
            EXPECT_EQ(scales[0], scales[1]);
            pair.expect_same();
        }
    });
}

TEST_P(ZeroFused, a_step_that_sees_all_gradients_leaves_their_average_with_the_owner) {
    on_ranks([](ujoin_group *group, int rank) {
        FusedPair pair(group, {});
        ujoin_step_options options{};
        options.size = sizeof options;
        options.skip_nonfinite = 1;
        Bytes own;
        pair.each([&](FusedModel &model) {
            model.iterate(0);
            if (&model == &pair.fused) own = model.gradients();
            model.step(&options);
        });
        for (size_t i = 0; i < zero_shard_count(pair.fused.zero()); i++) {
            ujoin_shard shard{};
            shard.size = sizeof shard;
            ok(zero_get_shard(pair.fused.zero(), i, &shard));
            const Bytes &expected = shard.rank == rank ? pair.apart.gradients() : own;
            EXPECT_TRUE(pair.fused.gradients()[shard.param] == expected[shard.param]) << shard.param;
        }
    });
}

TEST_P(ZeroFused, a_closure_runs_the_iteration) {
    on_ranks([](ujoin_group *group, int) {
        FusedPair pair(group, {});
        for (int t = 0; t < 3; t++)
            pair.each([&](FusedModel &model) {
                struct Call {
                    FusedModel *model;
                    int t;
                } call{&model, t};
                ujoin_step_options options{};
                options.size = sizeof options;
                options.closure_data = &call;
                options.closure = [](void *data) {
                    const auto *of = static_cast<Call *>(data);
                    of->model->clear();
                    of->model->iterate(of->t);
                    return ujoin_status{UJOIN_OK};
                };
                model.step(&options);
            });
        pair.expect_same();
    });
}

ujoin_status half_step(void *user_data, const ujoin_rule_args *args) {
    if (user_data && args->step == 3) return ujoin_set_last_error(UJOIN_E_CALLBACK, "the rule has had enough");
    auto *data = static_cast<float *>(args->data);
    auto *state = static_cast<float *>(args->state[0]);
    for (size_t i = 0; i < args->count; i++) {
        state[i] += static_cast<const float *>(args->grad)[i];
        data[i] -= static_cast<float>(args->hyper[0]) * state[i];
    }
    return UJOIN_OK;
}

TEST_P(ZeroFused, a_rule_of_the_programs_own) {
    on_ranks([](ujoin_group *group, int rank) {
        const char *const state = "sum";
        const ujoin_hyper lr{"lr", 0.01};
        ujoin_rule rule{};
        rule.size = sizeof rule;
        rule.name = "half";
        rule.step = half_step;
        rule.state_names = &state;
        rule.state_count = 1;
        rule.hyper = &lr;
        rule.hyper_count = 1;
        FusedRecipe recipe;
        recipe.rule = UJOIN_OPTIMIZER_CUSTOM;
        recipe.custom = &rule;
        {
            FusedPair pair(group, recipe);
            for (int t = 0; t < 4; t++)
                pair.each([&](FusedModel &model) {
                    model.clear();
                    model.iterate(t);
                    model.step();
                });
            pair.expect_same();
        }
        // And one that fails on the last rank.
        rule.user_data = rank + 1 == ujoin_group_size(group) ? &rule : nullptr;
        FusedModel model(group, recipe);
        for (int t = 0; t < 2; t++) {
            model.iterate(t);
            model.step();
        }
        model.iterate(2);
        EXPECT_EQ(zero_step(model.zero(), nullptr), UJOIN_E_CALLBACK);
        EXPECT_NE(std::string(ujoin_last_error()).find("had enough"), std::string::npos) << ujoin_last_error();
        EXPECT_EQ(ujoin_ddp_forward(model.ddp(), 1), UJOIN_E_STATE); // broken
        EXPECT_NE(std::string(ujoin_last_error()).find("half-way"), std::string::npos) << ujoin_last_error();
        EXPECT_EQ(zero_save(model.zero(), "/nowhere", nullptr), UJOIN_E_STATE);
    });
}

TEST_P(ZeroFused, hyper_parameters_freezing_and_groups_at_any_time) {
    on_ranks([](ujoin_group *group, int) {
        FusedPair pair(group, {});
        for (int t = 0; t < 6; t++)
            pair.each([&](FusedModel &model) {
                if (t == 1) ok(zero_set_hyper(model.zero(), -1, "amsgrad", 1));
                if (t == 2) ok(zero_set_frozen(model.zero(), 4, 1));
                if (t == 3) ok(zero_set_gradient(model.zero(), 0, nullptr));
                if (t == 4) ok(zero_set_frozen(model.zero(), 4, 0));
                if (t == 5) ok(zero_set_gradient(model.zero(), 0, ujoin_ddp_gradient(model.ddp(), 0)));
                model.clear();
                model.iterate(t);
                model.step();
            });
        pair.expect_same();
    });
}

} // namespace
