// SPDX-License-Identifier: Apache-2.0
// The sharded optimizer inside the reducer: each run beside one that reduces and then steps, which must have the same bits.
#include "harness/overlap_kit.hpp"
#include <gtest/gtest.h>
#include <numeric>

using namespace harness;

namespace {

class ZeroOverlap : public TestOfRanks {
  protected:
    void expect_parities(const std::vector<Recipe> &recipes, const std::function<Uses(int t)> &uses = nullptr) {
        on_ranks([&](ujoin_group *group, int) {
            for (const Recipe &recipe : recipes) expect_parity(group, recipe, uses);
        });
    }
};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroOverlap,
                         testing::Values(Where{"self", 1}, Where{"local", 2}, Where{"local", 3}, Where{"shm", 2},
                                         Where{"tcp", 2}, Where{"hier", 3}),
                         where_name);

/// Graph, gradients, partition.
std::vector<Recipe> with_both_gradients(bool static_graph, ujoin_partition partition) {
    Recipe recipe;
    recipe.static_graph = static_graph;
    recipe.partition = partition;
    Recipe view = recipe;
    view.gradient_view = true;
    return {recipe, view};
}

TEST_P(ZeroOverlap, O_01_O_06_O_21_whole_parameters) { expect_parities({Recipe{}}); }
TEST_P(ZeroOverlap, O_02_O_06_O_21_gradients_in_the_librarys_memory) {
    expect_parities({with_both_gradients(false, UJOIN_PARTITION_PARAMETERS)[1]});
}
TEST_P(ZeroOverlap, O_03_O_07_O_21_a_static_graph) {
    expect_parities(with_both_gradients(true, UJOIN_PARTITION_PARAMETERS));
}
TEST_P(ZeroOverlap, O_04_O_08_O_21_pieces_of_parameters) {
    expect_parities(with_both_gradients(false, UJOIN_PARTITION_ELEMENTS));
}
TEST_P(ZeroOverlap, O_05_O_09_O_21_pieces_in_a_static_graph) {
    expect_parities(with_both_gradients(true, UJOIN_PARTITION_ELEMENTS));
}

TEST_P(ZeroOverlap, O_10_a_deep_model_with_buffers) {
    std::vector<Recipe> recipes;
    for (const bool static_graph : {false, true})
        for (const ujoin_partition partition : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS})
            for (Recipe &recipe : with_both_gradients(static_graph, partition)) recipes.push_back(std::move(recipe));
    for (Recipe &recipe : recipes) {
        recipe.counts.clear();
        for (size_t layer = 0; layer < 50; layer++) recipe.counts.insert(recipe.counts.end(), {90 + layer, 9});
        recipe.bucket_bytes = 1000;
        recipe.buffers = 20;
    }
    expect_parities(recipes);
}

TEST_P(ZeroOverlap, O_11_O_27_ZERO_09_every_iteration_updates) {
    on_ranks([](ujoin_group *group, int) {
        for (const bool overlap : {true, false}) {
            Recipe recipe;
            recipe.overlap = overlap;
            recipe.rule = UJOIN_OPTIMIZER_SGD;
            recipe.hyper = {{"lr", 0.1}};
            recipe.counts = {1};
            const Trainer trainer(group, recipe);
            *static_cast<float *>(zero_param_data(trainer.zero(), 0)) = 1;
            for (int t = 1; t <= 5; t++) {
                *trainer.grad(0) = 1;
                ok(ddp_kit::reduce(trainer.ddp(), 1));
                if (!overlap) ok(zero_step(trainer.zero(), nullptr));
                EXPECT_FLOAT_EQ(trainer.values()[0][0], 1 - 0.1F * static_cast<float>(t)) << overlap;
            }
        }
    });
}

TEST_P(ZeroOverlap, every_rule_and_comm_hook_has_the_bits_of_a_step_apart) {
    std::vector<Recipe> recipes;
    for (ujoin_optimizer rule = UJOIN_OPTIMIZER_SGD; rule <= UJOIN_OPTIMIZER_LION; rule++)
        recipes.emplace_back().rule = rule;
    for (const ujoin_comm_hook_kind hook : {UJOIN_COMM_HOOK_BF16, UJOIN_COMM_HOOK_LOW_RANK})
        recipes.emplace_back().hook = hook;
    expect_parities(recipes);
}

TEST_P(ZeroOverlap, O_17_buckets_are_stepped_in_order_whatever_becomes_ready_first) {
    on_ranks([](ujoin_group *group, int) {
        Trainer a(group, {});
        Trainer b(group, apart({}));
        a.shuffle();
        b.shuffle();
        for (int t = 0; t < 4; t++)
            for (Trainer *each : {&a, &b}) each->iterate(t);
        expect_same(a, b);
    });
}

TEST_P(ZeroOverlap, O_20_parameters_in_the_librarys_memory) {
    Recipe recipe;
    recipe.parameter_view = true;
    Recipe pieces = recipe;
    pieces.partition = UJOIN_PARTITION_ELEMENTS;
    expect_parities({recipe, pieces});
}

TEST_P(ZeroOverlap, O_25_unused_parameters) {
    Recipe dynamic;
    dynamic.find_unused = true;
    Recipe fixed;
    fixed.static_graph = true;
    on_ranks([&](ujoin_group *group, int rank) {
        // Parameter 0 is used by nobody in iterations 1 and 2, 2 by rank 0 alone, 4 by all in turn.
        expect_parity(group, dynamic, [rank](int t) {
            return [=](size_t p) {
                if (p == 0) return t == 0 || t == 3;
                if (p == 2) return rank == 0;
                return p != 4 || (t + rank) % 2 == 0;
            };
        });
        expect_parity(group, fixed, [rank](int) { return [=](size_t p) { return p != 2 || rank == 0; }; });
    });
}

TEST_P(ZeroOverlap, O_28_accumulation_makes_one_update) {
    on_ranks([](ujoin_group *group, int) {
        Trainer a(group, {});
        Trainer b(group, apart({}));
        for (int window = 0; window < 3; window++) {
            for (Trainer *each : {&a, &b}) {
                each->clear();
                const auto before = each->values();
                for (int t = 0; t < 3; t++) {
                    each->iterate(4 * window + t, all_used, false);
                    EXPECT_TRUE(each->values() == before);
                }
                each->iterate(4 * window + 3);
                EXPECT_TRUE(each->values() != before);
            }
        }
        expect_same(a, b);
        EXPECT_EQ(a.state().at("0/p0/step"), std::vector<double>{3});
    });
}

TEST_P(ZeroOverlap, O_26_uneven_inputs) {
    for (const ujoin_division division : {UJOIN_DIVISION_INITIAL, UJOIN_DIVISION_SAMPLES})
        on_ranks([&](ujoin_group *group, int rank) {
            Recipe recipe;
            recipe.division = division;
            const auto train = [&](Trainer &trainer, const std::vector<ujoin_joinable *> &joinables) {
                for (int epoch = 0; epoch < 2; epoch++) {
                    const ddp_kit::CtxPtr ctx = ddp_kit::make_ctx(joinables);
                    ok(ujoin_ctx_start(ctx.get()));
                    for (int t = 0; t < 2 + 2 * rank; t++) {
                        trainer.clear();
                        trainer.iterate(t);
                    }
                    ok(ujoin_ctx_finish(ctx.get()));
                }
            };
            Trainer b(group, apart(recipe));
            train(b, {ujoin_ddp_joinable(b.ddp()), zero_joinable(b.zero())});
            const Listed expected = b.state();
            for (const int members : {0, 1, 2}) {
                Trainer a(group, recipe);
                std::vector<ujoin_joinable *> joinables{ujoin_ddp_joinable(a.ddp())};
                if (members == 1) joinables.push_back(zero_joinable(a.zero()));
                if (members == 2) joinables.insert(joinables.begin(), zero_joinable(a.zero()));
                train(a, joinables);
                EXPECT_TRUE(a.values() == b.values()) << members;
                EXPECT_TRUE(a.state() == expected) << members;
            }
        });
}

TEST_P(ZeroOverlap, O_14_O_19_groups_states_and_freezing_at_any_time) {
    on_ranks([](ujoin_group *group, int rank) {
        const size_t late = 3;
        Trainer a(group, {}, late);
        Trainer b(group, apart({}), late);
        for (Trainer *each : {&a, &b}) {
            EXPECT_GT(each->state().size(), 0U); // hyper-parameters, before any iteration
            each->iterate(0);
            const std::vector<ujoin_param> rest = each->params(each->size() - late);
            const ujoin_hyper lr{"lr", 0.01};
            ok(zero_add_param_group(each->zero(), rest.data(), rest.size(), &lr, 1));
            each->iterate(1);
            ok(zero_set_frozen(each->zero(), 0, 1));
            const std::vector<float> frozen = each->values()[0];
            ok(ujoin_ddp_set_sync(each->ddp(), 1));
            ok(ujoin_ddp_forward(each->ddp(), 1));
            ok(zero_set_hyper(each->zero(), -1, "amsgrad", 1)); // within an iteration: it has not stepped yet
            ok(zero_set_frozen(each->zero(), 4, 1));
            each->backward(2);
            ok(ujoin_ddp_finish(each->ddp()));
            if (each == &b) ok(zero_step(each->zero(), nullptr));
            EXPECT_EQ(each->values()[0], frozen);
            ok(zero_set_frozen(each->zero(), 0, 0));
            ok(zero_set_gradient(each->zero(), 2, nullptr));
            each->iterate(3);
            ok(zero_set_gradient(each->zero(), 2, each->grad(2)));
            EXPECT_NE(each->values()[0], frozen);
            StateOwner kept;
            for (int32_t to = 0; to < ujoin_group_size(group); to++) {
                ok(zero_consolidate_state_dict(each->zero(), to));
                if (to == rank) ok(zero_state_dict(each->zero(), &kept.state));
            }
            each->iterate(4);
            ok(zero_load_state_dict(each->zero(), kept.state));
            each->iterate(5);
        }
        expect_same(a, b);
    });
}

TEST(ZeroOverlapRanks, O_22_a_subgroup) {
    const std::string meeting = "local://" + unique("subgroup");
    harness::on_ranks("local", 4, [&](ujoin_group *, int rank) {
        if (rank % 2 == 0) return;
        const ddp_kit::GroupPtr group = ddp_kit::make_group(meeting, "local", rank / 2, 2);
        for (const ujoin_partition partition : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS}) {
            Recipe recipe;
            recipe.partition = partition;
            expect_parity(group.get(), recipe);
        }
    });
}

TEST(ZeroOverlapRanks, O_15_O_16_O_23_O_24_the_partition_does_not_depend_on_buckets) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int) {
        const auto loads = [&](const std::vector<size_t> &counts, size_t bucket_bytes) {
            Recipe recipe;
            recipe.counts = counts;
            recipe.bucket_bytes = bucket_bytes;
            std::vector<size_t> sums(2);
            for (const ujoin_shard &shard : Trainer(group, recipe).shards())
                sums[static_cast<size_t>(shard.rank)] += shard.count;
            return sums;
        };
        const std::vector<size_t> five(5, 100);
        EXPECT_EQ(loads(five, 1), loads(five, size_t{1} << 20));
        const std::vector<size_t> three(3, 100);
        EXPECT_EQ(loads(three, size_t{1} << 20), (std::vector<size_t>{200, 100}));
        const std::vector<size_t> uneven{500, 1'000'000, 2000, 2'000'000};
        const std::vector<size_t> sums = loads(uneven, 4'000'000);
        const size_t total = std::accumulate(uneven.begin(), uneven.end(), size_t{0});
        EXPECT_LE(static_cast<double>(std::max(sums[0], sums[1])), 1.5 * static_cast<double>(total) / 2);
    });
}

} // namespace
