// SPDX-License-Identifier: Apache-2.0
// The sharded optimizer as its contract has it, on every backend.
#include "harness/zero_kit.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace harness;

namespace {

class ZeroRows : public TestOfRanks {};
class ZeroCases : public ZeroRows {};
class ZeroFourRanks : public testing::TestWithParam<const char *> {};

const auto everywhere = testing::Values(Where{"self", 1}, Where{"local", 1}, Where{"local", 2}, Where{"local", 3},
                                        Where{"local", 4}, Where{"shm", 2}, Where{"shm", 3});
INSTANTIATE_TEST_SUITE_P(Backends, ZeroRows, everywhere, where_name);
INSTANTIATE_TEST_SUITE_P(Backends, ZeroCases, everywhere, where_name);

TEST_P(ZeroRows, Z_01_one_step_with_momentum) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.1}, {"momentum", 0.9}});
        optimizer.step();
        EXPECT_FLOAT_EQ(x.data[0][0], 0.9F);
        const StateOwner state = state_everywhere(group, optimizer);
        EXPECT_EQ(listed(state.state).at("0/p0/momentum_buffer"), std::vector<double>{1});
    });
}

TEST_P(ZeroRows, Z_02_consolidated_state_has_every_hyper_parameter) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.1}, {"momentum", 0.9}});
        optimizer.step();
        ok(zero_consolidate_state_dict(optimizer.get(), 0));
        if (rank != 0) return;
        StateOwner owner;
        ok(zero_state_dict(optimizer.get(), &owner.state));
        Listed all = listed(owner.state);
        EXPECT_EQ(all.at("0/p0/momentum_buffer").size(), 1U);
        all.erase("0/p0/momentum_buffer");
        const Listed expected{{"0//lr", {0.1}},     {"0//momentum", {0.9}},   {"0//dampening", {0}},
                              {"0//nesterov", {0}}, {"0//weight_decay", {0}}, {"0//maximize", {0}}};
        EXPECT_EQ(all, expected);
        size_t names = 0;
        for (; zero_hyper_name(optimizer.get(), names); names++) {
            const std::string name = zero_hyper_name(optimizer.get(), names);
            EXPECT_EQ(optimizer.hyper(name.c_str()), all.at("0//" + name)[0]) << name;
        }
        EXPECT_EQ(names, 6U);
    });
}

TEST_P(ZeroRows, Z_03_loaded_values_win_over_the_constructors) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({1});
        const Optimizer first(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.1}, {"momentum", 0.9}});
        first.step();
        const StateOwner state = state_everywhere(group, first);
        const Listed before = listed(state.state);

        const Optimizer second(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.01}});
        ok(zero_load_state_dict(second.get(), state.state));
        EXPECT_EQ(listed(state.state), before); // only read
        EXPECT_EQ(second.hyper("lr"), 0.1);
        EXPECT_EQ(second.hyper("momentum"), 0.9);
        EXPECT_EQ(listed(state_everywhere(group, second).state).at("0/p0/momentum_buffer"), std::vector<double>{1});
        second.step();
        EXPECT_FLOAT_EQ(x.data[0][0], 0.71F);
        EXPECT_FLOAT_EQ(static_cast<float>(listed(state_everywhere(group, second).state).at("0/p0/momentum_buffer")[0]),
                        1.9F);
    });
}

TEST_P(ZeroRows, Z_04_Z_05_a_decaying_rate_equals_plain_descent) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({3, 1, 2, 5});
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < x.data[i].size(); k++)
                x.data[i][k] = static_cast<float>(i + 1) - static_cast<float>(k) / 3;
        std::vector<std::vector<float>> plain = x.data;
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.01}});
        double lr = 0.01;
        for (int step = 0; step < 5; step++) {
            for (size_t i = 0; i < 4; i++)
                for (size_t k = 0; k < x.data[i].size(); k++) {
                    x.grad[i][k] = 2 * x.data[i][k] + static_cast<float>(step);
                    plain[i][k] = plain[i][k] + static_cast<float>(-lr) * x.grad[i][k];
                }
            optimizer.step();
            EXPECT_EQ(x.data, plain) << "step " << step;
            lr *= 0.5;
            ok(zero_set_hyper(optimizer.get(), -1, "lr", lr));
        }
    });
}

TEST_P(ZeroRows, Z_10_no_parameters_are_refused) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({1});
        ujoin_zero *zero = nullptr;
        for (const ujoin_optimizer rule : {UJOIN_OPTIMIZER_SGD, UJOIN_OPTIMIZER_ADAM})
            for (const bool given : {false, true}) {
                const std::vector<ujoin_param> params = x.params();
                EXPECT_EQ(zero_create(group, rule, given ? params.data() : nullptr, 0, nullptr, &zero), UJOIN_E_INVALID);
                EXPECT_EQ(zero, nullptr);
                const std::string text = ujoin_last_error();
                EXPECT_NE(text.find("no parameters"), std::string::npos) << text;
                EXPECT_NE(text.find("zero_create"), std::string::npos) << text;
            }
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.5}}); // the group is whole
        optimizer.step();
        EXPECT_EQ(x.data[0][0], 0.5F);
    });
}

TEST_P(ZeroRows, Z_19_averaged_gradients_equal_plain_descent) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({1, 1});
        x.data = {{1}, {2}};
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.01}});
        // y = weight * input + bias with input rank + 1: the gradients are input and 1.
        x.grad = {{static_cast<float>(rank + 1)}, {1}};
        for (std::vector<float> &grad : x.grad) {
            const ujoin_buffer buffer{grad.data(), 1, UJOIN_F32, 0, 0, 0};
            ok(ujoin_all_reduce(group, nullptr, &buffer, UJOIN_AVG, nullptr, nullptr));
        }
        optimizer.step();
        EXPECT_FLOAT_EQ(x.data[0][0], 1 - 0.01F * static_cast<float>(size() + 1) / 2);
        EXPECT_FLOAT_EQ(x.data[1][0], 1.99F);
    });
}

TEST_P(ZeroRows, Z_21_every_shard_has_the_same_size) {
    on_ranks([&](ujoin_group *group, int) {
        std::vector<size_t> counts;
        for (int i = 0; i < size(); i++) counts.insert(counts.end(), {9, 7, 5, 3});
        Tensors x(counts);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        for (int rank = 0; rank < size(); rank++) EXPECT_EQ(optimizer.load(rank), 24U);
        EXPECT_EQ(zero_shard_count(optimizer.get()), counts.size());
    });
}

TEST_P(ZeroRows, Z_22_a_group_added_later_completes_every_shard) {
    on_ranks([&](ujoin_group *group, int) {
        std::vector<size_t> counts;
        for (int i = 0; i < size(); i++) counts.insert(counts.end(), {9, 7, 5, 3});
        Tensors x(counts);
        const std::vector<ujoin_param> all = x.params();
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, std::vector<ujoin_param>(all.begin(), all.end() - 1),
                                  {{"lr", 0.25}});
        const ujoin_hyper hyper{"momentum", 0.5};
        ok(zero_add_param_group(optimizer.get(), &all.back(), 1, &hyper, 1));
        EXPECT_EQ(zero_group_count(optimizer.get()), 2U);
        for (int rank = 0; rank < size(); rank++) EXPECT_EQ(optimizer.load(rank), 24U);
        EXPECT_EQ(optimizer.hyper("lr", 1), 0.25); // what is not given is as in the first
        EXPECT_EQ(optimizer.hyper("momentum", 1), 0.5);
        EXPECT_EQ(optimizer.hyper("momentum", 0), 0);
        optimizer.step();
        for (const std::vector<float> &data : x.data)
            for (const float value : data) EXPECT_EQ(value, 0.75F);
    });
}

TEST_P(ZeroRows, Z_35_state_before_consolidation_is_refused) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {});
        optimizer.step();
        StateOwner owner;
        EXPECT_EQ(zero_state_dict(optimizer.get(), &owner.state), UJOIN_E_STATE);
        EXPECT_EQ(owner.state, nullptr);
    });
}

TEST_P(ZeroRows, Z_36_state_is_on_the_target_only) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({4, 3, 2});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {});
        optimizer.step();
        const int to = size() > 1 ? 1 : 0;
        ok(zero_consolidate_state_dict(optimizer.get(), to));
        StateOwner owner;
        EXPECT_EQ(zero_state_dict(optimizer.get(), &owner.state), rank == to ? UJOIN_OK : UJOIN_E_STATE);
        if (rank == to) {
            EXPECT_EQ(listed(owner.state).size(),
                      3U * 3 + 7); // two moments and a step count each, and the hyper-parameters
        }
        ok(zero_consolidate_state_dict(optimizer.get(), 0)); // the former target has none now
        StateOwner other;
        EXPECT_EQ(zero_state_dict(optimizer.get(), &other.state), rank == 0 ? UJOIN_OK : UJOIN_E_STATE);
    });
}

TEST_P(ZeroRows, Z_37_ZERO_07_state_is_given_until_the_next_step) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({2, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"momentum", 0.9}});
        optimizer.step();
        ok(zero_consolidate_state_dict(optimizer.get(), 0));
        StateOwner before;
        if (rank == 0) ok(zero_state_dict(optimizer.get(), &before.state));
        optimizer.step();
        ok(zero_set_hyper(optimizer.get(), 0, "lr", 7));
        StateOwner after;
        EXPECT_EQ(zero_state_dict(optimizer.get(), &after.state), UJOIN_E_STATE);
        EXPECT_NE(std::string(ujoin_last_error()).find(rank == 0 ? "outdated" : "no consolidated state"), std::string::npos)
            << ujoin_last_error();
        if (rank != 0) return;
        // What was taken before stays as it was.
        EXPECT_EQ(listed(before.state).at("0/p0/momentum_buffer"), (std::vector<double>{1, 1}));
        EXPECT_EQ(listed(before.state).at("0/p1/momentum_buffer"), (std::vector<double>{1}));
        EXPECT_EQ(listed(before.state).at("0//lr"), (std::vector<double>{1e-3}));
    });
}

TEST_P(ZeroRows, ZERO_07_a_load_and_a_new_group_make_the_consolidated_state_outdated) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({2, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"momentum", 0.9}});
        optimizer.step();
        const auto outdated = [&] {
            StateOwner list;
            EXPECT_EQ(zero_state_dict(optimizer.get(), &list.state), UJOIN_E_STATE);
        };
        const StateOwner list = state_everywhere(group, optimizer);
        ok(zero_load_state_dict(optimizer.get(), list.state));
        outdated();
        const StateOwner again = state_everywhere(group, optimizer);
        EXPECT_EQ(listed(list.state), listed(again.state));
        ok(zero_add_param_group(optimizer.get(), nullptr, 0, nullptr, 0));
        outdated();
    });
}

TEST_P(ZeroRows, Z_38_equal_sizes_alternate) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({4, 4, 4, 4});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        for (const ujoin_shard &shard : optimizer.shards()) {
            EXPECT_EQ(shard.rank, static_cast<int32_t>(shard.param) % size());
            EXPECT_EQ(shard.offset, 0U);
            EXPECT_EQ(shard.count, 4U);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Backends, ZeroFourRanks, testing::Values("local", "shm"),
                         [](const auto &of) { return std::string(of.param); });

TEST_P(ZeroFourRanks, Z_39_ranks_that_own_nothing_step_like_the_others) {
    on_ranks(GetParam(), 4, [](ujoin_group *group, int) {
        Tensors x({1, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.5}});
        EXPECT_EQ(optimizer.load(2) + optimizer.load(3), 0U);
        optimizer.step();
        optimizer.step();
        EXPECT_EQ(x.data, (std::vector<std::vector<float>>{{0}, {0}}));
    });
}

/// Part of ZERO-04 that concerns whole tensors; for cut ones see zero_elements_test.cpp.
TEST_P(ZeroFourRanks, ZERO_04_ranks_without_a_shard_consolidate) {
    on_ranks(GetParam(), 4, [](ujoin_group *group, int rank) {
        Tensors x({2, 3});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {{"lr", 0.01}});
        optimizer.step();
        for (const std::vector<float> &data : x.data)
            for (const float value : data) EXPECT_NEAR(value, 0.99, 1e-6);
        for (const int to : {0, 3}) {
            ok(zero_consolidate_state_dict(optimizer.get(), to));
            if (rank != to) continue;
            StateOwner owner;
            ok(zero_state_dict(optimizer.get(), &owner.state));
            const Listed all = listed(owner.state);
            for (const char *param : {"p0", "p1"}) {
                EXPECT_EQ(all.at(std::string("0/") + param + "/step"), std::vector<double>{1});
                EXPECT_EQ(all.at(std::string("0/") + param + "/exp_avg").size(), param[1] == '0' ? 2U : 3U);
                EXPECT_EQ(all.at(std::string("0/") + param + "/exp_avg_sq").size(), param[1] == '0' ? 2U : 3U);
            }
            EXPECT_EQ(all.size(), 6U + 7U);
        }
    });
}

TEST(ZeroBalance, ZERO_04_largest_first_balances_the_shards) {
    on_ranks("local", 2, [](ujoin_group *group, int) {
        Tensors x({1, 1, 1, 1, 1, 1, 6});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        EXPECT_EQ(optimizer.load(0), 6U);
        EXPECT_EQ(optimizer.load(1), 6U);
    });
    on_ranks("local", 3, [](ujoin_group *group, int) {
        Tensors x({5, 9, 3, 7, 1, 8});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        EXPECT_EQ(std::max({optimizer.load(0), optimizer.load(1), optimizer.load(2)}), 12U);
    });
}

TEST_P(ZeroCases, ZERO_02_one_step_count_for_every_parameter) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({1, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {{"lr", 0.01}});
        for (int step = 1; step <= 3; step++) {
            ok(zero_set_gradient(optimizer.get(), 1, step < 3 ? nullptr : x.grad[1].data()));
            optimizer.step();
            if (step < 3) {
                EXPECT_EQ(x.data[1][0], 1); // left alone
            }
        }
        EXPECT_NEAR(x.data[0][0], 0.97, 1e-6);
        EXPECT_NEAR(x.data[1][0], 0.99, 1e-6); // a shared count would give 0.993612
        const Listed all = listed(state_everywhere(group, optimizer).state);
        EXPECT_EQ(all.at("0/p0/step"), std::vector<double>{3});
        EXPECT_EQ(all.at("0/p1/step"), std::vector<double>{1});

        Tensors two({1, 1, 1, 1}); // at least two of them in one shard, for up to three ranks
        const Optimizer other(group, UJOIN_OPTIMIZER_ADAM, two, {{"lr", 0.01}});
        other.step();
        other.step();
        for (const std::vector<float> &data : two.data) EXPECT_NEAR(data[0], 0.98, 1e-6);
    });
}

/// Ten steps of everything that has state; the result of one rank is the reference.
std::vector<std::vector<float>> train(ujoin_group *group, ujoin_optimizer rule, const std::vector<ujoin_hyper> &hyper) {
    Tensors x({13, 1, 40, 7, 200, 0, 3});
    const Optimizer optimizer(group, rule, x, hyper);
    for (int step = 0; step < 10; step++) {
        for (size_t i = 0; i < x.data.size(); i++)
            for (size_t k = 0; k < x.data[i].size(); k++)
                x.grad[i][k] = std::sin(x.data[i][k] * 3 + static_cast<float>(i) + static_cast<float>(k) / 7 +
                                        static_cast<float>(step));
        optimizer.step();
    }
    return x.data;
}

TEST_P(ZeroCases, results_have_the_same_bits_for_any_number_of_ranks) {
    const std::vector<std::pair<ujoin_optimizer, std::vector<ujoin_hyper>>> rules{
        {UJOIN_OPTIMIZER_SGD, {{"lr", 0.1}, {"momentum", 0.9}, {"nesterov", 1}, {"weight_decay", 0.01}}},
        {UJOIN_OPTIMIZER_ADAM, {{"lr", 0.01}, {"amsgrad", 1}, {"weight_decay", 0.01}}},
        {UJOIN_OPTIMIZER_ADAMW, {{"lr", 0.01}, {"maximize", 1}}}};
    std::vector<std::vector<std::vector<float>>> reference;
    harness::on_ranks("self", 1, [&](ujoin_group *group, int) {
        for (const auto &[rule, hyper] : rules) reference.push_back(train(group, rule, hyper));
    });
    on_ranks([&](ujoin_group *group, int) {
        for (size_t i = 0; i < rules.size(); i++)
            EXPECT_EQ(train(group, rules[i].first, rules[i].second), reference[i]) << i;
    });
}

TEST_P(ZeroCases, f32_and_f64_parameters_live_together) {
    on_ranks([&](ujoin_group *group, int) {
        std::vector<float> a{1, 1};
        std::vector<float> da{1, 1};
        std::vector<double> b{1, 1, 1};
        std::vector<double> db{1, 1, 1};
        std::vector<ujoin_param> params(2);
        params[0].data = a.data();
        params[0].grad = da.data();
        params[0].count = a.size();
        params[0].dtype = UJOIN_F32;
        const int64_t shape[] = {3, 1};
        params[1].data = b.data();
        params[1].grad = db.data();
        params[1].shape = shape;
        params[1].ndim = 2;
        params[1].dtype = UJOIN_F64;
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, params, {{"lr", 0.1}, {"momentum", 0.5}});
        optimizer.step();
        EXPECT_EQ(a, (std::vector<float>{0.9F, 0.9F}));
        EXPECT_EQ(b, (std::vector<double>{0.9, 0.9, 0.9}));
        const StateOwner state = state_everywhere(group, optimizer);
        ujoin_item item{};
        item.size = sizeof item;
        ok(ujoin_state_get(state.state, 1, &item));
        EXPECT_STREQ(item.param, "1"); // names count on where there are none
        EXPECT_EQ(item.dtype, UJOIN_F64);
        EXPECT_EQ(item.ndim, 2);
        EXPECT_EQ(item.shape[0], 3);
        ok(zero_clear_gradients(optimizer.get()));
        EXPECT_EQ(da, (std::vector<float>{0, 0}));
        EXPECT_EQ(db, (std::vector<double>{0, 0, 0}));
    });
}

} // namespace
