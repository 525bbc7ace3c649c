// SPDX-License-Identifier: Apache-2.0
// The sharded optimizer against a plain one (a group of one): what is trained and what is saved is the same.
#include "base/dtype.hpp"
#include "harness/temp_dir.hpp"
#include "harness/zero_kit.hpp"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace harness;

namespace {

class ZeroParity : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(int size, const std::function<void(ujoin_group *, int)> &body) {
        harness::on_ranks(GetParam(), size, body);
    }
};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroParity, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

/// A group of this rank alone.
struct Alone {
    ujoin_group *group = nullptr;
    Alone() {
        ujoin_group_options options{};
        options.size = sizeof options;
        options.rendezvous = "local://alone";
        options.backend = "self";
        options.world_size = 1;
        ok(ujoin_group_create(&options, &group));
    }
    ~Alone() { ujoin_group_destroy(group); }
    Alone(const Alone &) = delete;
    Alone &operator=(const Alone &) = delete;
};

/// Gradients that depend on values, rank and step.
void compute(Tensors &x, int rank, int step) {
    for (size_t i = 0; i < x.data.size(); i++)
        for (size_t k = 0; k < x.data[i].size(); k++)
            x.grad[i][k] = std::sin(x.data[i][k] * 3 + static_cast<float>(i + k) / 7 + static_cast<float>(step + 5 * rank));
}

/// A reducer over tensors; takes part in join contexts.
class Reducer {
  public:
    Reducer(ujoin_group *group, Tensors &x) : count_(x.data.size()) {
        const std::vector<ujoin_param> params = x.params();
        ok(ujoin_ddp_create(group, params.data(), params.size(), nullptr, &ddp_));
    }
    ~Reducer() { ujoin_ddp_destroy(ddp_); }
    Reducer(const Reducer &) = delete;
    Reducer &operator=(const Reducer &) = delete;
    void reduce() const {
        ok(ujoin_ddp_forward(ddp_, 1));
        for (size_t i = count_; i-- > 0;) ok(ujoin_ddp_ready(ddp_, i));
        ok(ujoin_ddp_finish(ddp_));
    }
    ujoin_joinable *joinable() const { return ujoin_ddp_joinable(ddp_); }

  private:
    ujoin_ddp *ddp_ = nullptr;
    size_t count_;
};

const std::vector<size_t> sizes{13, 1, 40, 7, 200, 3};

TEST_P(ZeroParity, Z_28_Z_29_Z_30_Z_31_training_and_saved_state_equal_a_plain_optimizers) {
    const std::vector<std::pair<ujoin_optimizer, std::vector<ujoin_hyper>>> rules{
        {UJOIN_OPTIMIZER_SGD, {{"lr", 0.01}, {"momentum", 0.9}}},
        {UJOIN_OPTIMIZER_SGD, {{"maximize", 1}}},
        {UJOIN_OPTIMIZER_ADAM, {}},
        {UJOIN_OPTIMIZER_ADAM, {{"maximize", 1}}},
        {UJOIN_OPTIMIZER_ADAMW, {}},
        {UJOIN_OPTIMIZER_ADAGRAD, {}},
        {UJOIN_OPTIMIZER_RMSPROP, {{"centered", 1}, {"momentum", 0.5}}},
        {UJOIN_OPTIMIZER_ADADELTA, {}},
        {UJOIN_OPTIMIZER_ADAMAX, {}},
        {UJOIN_OPTIMIZER_NADAM, {}},
        {UJOIN_OPTIMIZER_RADAM, {}},
        {UJOIN_OPTIMIZER_RPROP, {}},
        {UJOIN_OPTIMIZER_LAMB, {}},
        {UJOIN_OPTIMIZER_LION, {}}};
    on_ranks(3, [&](ujoin_group *group, int rank) {
        const Alone alone;
        for (const auto &[of_rule, hyper] : rules) {
            const auto rule = of_rule; // a lambda may not capture a part of a binding
            Tensors x(sizes);
            Tensors y(sizes);
            const Optimizer sharded(group, rule, x, hyper);
            const Optimizer plain(alone.group, rule, y, hyper);
            const Reducer reducer(group, x);
            const auto both = [&](const Optimizer &a, const Optimizer &b, int step) {
                compute(x, rank, step);
                reducer.reduce();
                y.grad = x.grad;
                a.step();
                b.step();
                EXPECT_EQ(x.data, y.data) << "rule " << rule << " step " << step;
            };
            for (int step = 0; step < 20; step++) {
                for (const Optimizer *each : {&sharded, &plain}) // Z-29: the first parameter freezes and thaws
                    ok(zero_set_frozen(each->get(), 0, step >= 10 && step % 2 == 1 ? 1 : 0));
                both(sharded, plain, step);
            }
            const StateOwner from_sharded = state_everywhere(group, sharded);
            const StateOwner from_plain = state_everywhere(alone.group, plain);
            EXPECT_EQ(listed(from_sharded.state), listed(from_plain.state)) << "rule " << rule;
            const Optimizer crossed(group, rule, x, {}); // Z-30: each loads the other's
            const Optimizer back(alone.group, rule, y, {});
            ok(zero_load_state_dict(crossed.get(), from_plain.state));
            ok(zero_load_state_dict(back.get(), from_sharded.state));
            both(crossed, back, 20);
            const Optimizer own(group, rule, x, {}); // Z-31: and its own
            const StateOwner again = state_everywhere(group, crossed);
            ok(zero_load_state_dict(own.get(), again.state));
            both(own, back, 21);
        }
    });
}

TEST_P(ZeroParity, Z_32_Z_33_Z_53_uneven_inputs_equal_the_reducer_with_plain_optimizers) {
    on_ranks(3, [&](ujoin_group *group, int rank) {
        const auto train = [&](ujoin_group *of, bool joins) {
            std::vector<std::vector<std::vector<float>>> seen;
            Tensors x(sizes);
            const Optimizer optimizer(of, UJOIN_OPTIMIZER_ADAM, x, {{"lr", 0.01}});
            const Reducer reducer(group, x);
            std::vector<ujoin_joinable *> list{reducer.joinable()};
            if (joins) list.push_back(zero_joinable(optimizer.get()));
            ujoin_ctx *ctx = nullptr;
            ok(ujoin_ctx_create(list.data(), list.size(), nullptr, &ctx));
            ok(ujoin_ctx_start(ctx));
            for (int step = 0; step < 3 + rank; step++) {
                compute(x, rank, step);
                reducer.reduce();
                optimizer.step();
                seen.push_back(x.data);
            }
            ok(ujoin_ctx_finish(ctx));
            ujoin_ctx_destroy(ctx);
            seen.push_back(x.data);
            return seen;
        };
        const Alone alone;
        const auto expected = train(alone.group, false); // the reducer hands the last rank's parameters to all in the end
        EXPECT_EQ(train(group, true), expected);
    });
}

TEST_P(ZeroParity, Z_15_Z_24_groups_given_early_or_late_or_to_a_plain_optimizer) {
    on_ranks(2, [&](ujoin_group *group, int) {
        const Alone alone;
        Tensors x({50, 10, 100, 10, 50, 5});
        Tensors y({50, 10, 100, 10, 50, 5});
        const auto make = [](ujoin_group *of, Tensors &t) {
            const std::vector<ujoin_param> all = t.params();
            auto optimizer =
                std::make_unique<Optimizer>(of, UJOIN_OPTIMIZER_ADAMW, std::vector<ujoin_param>{all[0], all[2], all[4]},
                                            std::vector<ujoin_hyper>{{"lr", 0.01}, {"weight_decay", 0}});
            const ujoin_param rest[] = {all[1], all[3], all[5]};
            const ujoin_hyper hyper{"weight_decay", 0.01};
            ok(zero_add_param_group(optimizer->get(), rest, 3, &hyper, 1));
            EXPECT_EQ(zero_group_count(optimizer->get()), 2U);
            EXPECT_EQ(optimizer->hyper("weight_decay", 0), 0);
            EXPECT_EQ(optimizer->hyper("weight_decay", 1), 0.01);
            EXPECT_EQ(optimizer->hyper("lr", 1), 0.01);
            return optimizer;
        };
        const auto sharded = make(group, x);
        const auto plain = make(alone.group, y);
        for (int step = 0; step < 3; step++) {
            compute(x, 0, step);
            y.grad = x.grad;
            sharded->step();
            plain->step();
            EXPECT_EQ(x.data, y.data) << step;
        }
    });
}

struct LossAndGradients {
    Tensors *x;
    float loss = 0;
};

TEST_P(ZeroParity, Z_20_a_closure_step_moves_as_expected) {
    on_ranks(2, [&](ujoin_group *group, int) {
        Tensors x({1, 1});
        x.data = {{1}, {2}};
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.1}});
        LossAndGradients kept{&x};
        ujoin_step_options options{};
        options.size = sizeof options;
        options.closure_data = &kept;
        options.closure = [](void *data) {
            auto &own = *static_cast<LossAndGradients *>(data);
            const float off = own.x->data[0][0] * 1 + own.x->data[1][0] - 4; // input 1, target 1 + 3
            own.loss = std::abs(off);
            const float slope = off > 0 ? 1.0F : -1.0F;
            own.x->grad[0][0] = own.x->grad[1][0] = slope;
            return ujoin_status{UJOIN_OK};
        };
        ok(zero_step(optimizer.get(), &options));
        EXPECT_EQ(kept.loss, 1);
        EXPECT_FLOAT_EQ(x.data[0][0], 1.1F);
        EXPECT_FLOAT_EQ(x.data[1][0], 2.1F);
    });
}

TEST_P(ZeroParity, Z_09_Z_44_gradients_are_cleared_and_rates_changed_on_every_rank) {
    on_ranks(3, [&](ujoin_group *group, int) {
        Tensors x({3, 2, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.5}});
        optimizer.step();
        ok(zero_set_hyper(optimizer.get(), 0, "lr", 0.25));
        optimizer.step();
        for (const std::vector<float> &data : x.data)
            for (const float value : data) EXPECT_EQ(value, 0.25F);
        ok(zero_clear_gradients(optimizer.get()));
        for (const std::vector<float> &grad : x.grad)
            for (const float value : grad) EXPECT_EQ(value, 0);
    });
}

TEST_P(ZeroParity, Z_23_a_frozen_giant_and_an_added_group) {
    for (const int size : {2, 4})
        on_ranks(size, [&](ujoin_group *group, int) {
            Tensors x({100, 3, 5, 2, 6, 4, 3});
            std::vector<ujoin_param> params = x.params();
            params[0].flags = UJOIN_PARAM_FROZEN;
            const ujoin_param last = params.back();
            params.pop_back();
            const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, params, {});
            ok(zero_add_param_group(optimizer.get(), &last, 1, nullptr, 0));
            EXPECT_EQ(zero_group_count(optimizer.get()), 2U);
            EXPECT_EQ(optimizer.load(0), 100U);
            EXPECT_EQ(optimizer.load(1), size == 2 ? 23U : 9U);
            EXPECT_EQ(optimizer.shards().size(), 7U);
            optimizer.step();
            EXPECT_EQ(x.data[0][0], 1);
            EXPECT_EQ(x.data[6][0], 0.999F);
        });
}

TEST_P(ZeroParity, Z_25_Z_26_state_of_every_parameter_is_loaded_by_all) {
    on_ranks(2, [&](ujoin_group *group, int) {
        Tensors x({5, 10, 10, 5});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"momentum", 0.99}});
        optimizer.step();
        const StateOwner state = state_everywhere(group, optimizer);
        size_t entries = 0;
        for (const auto &[name, values] : listed(state.state))
            entries += name.find("momentum_buffer") != std::string::npos ? 1 : 0;
        EXPECT_EQ(entries, 4U);
        ok(zero_load_state_dict(optimizer.get(), state.state));
        optimizer.step();
        EXPECT_EQ(listed(state_everywhere(group, optimizer).state).at("0/p1/momentum_buffer")[0], 1 + 0.99F);
    });
}

TEST_P(ZeroParity, Z_27_a_subgroup_of_even_ranks_stays_equal) {
    const TempDir dir;
    on_ranks(4, [&](ujoin_group *, int rank) {
        if (rank % 2 != 0) return;
        ujoin_group_options options{};
        options.size = sizeof options;
        const std::string url = std::string(GetParam()) == "local" ? "local://even" : "file://" + std::string(dir / "even");
        options.rendezvous = url.c_str();
        options.rank = rank / 2;
        options.world_size = 2;
        options.backend = GetParam();
        ujoin_group *even = nullptr;
        ok(ujoin_group_create(&options, &even));
        {
            Tensors x(sizes);
            const Optimizer optimizer(even, UJOIN_OPTIMIZER_SGD, x, {{"momentum", 0.99}});
            for (int step = 0; step < 5; step++) {
                compute(x, 0, step);
                optimizer.step();
                float sum = 0;
                for (const std::vector<float> &data : x.data)
                    for (const float value : data) sum += value;
                float most = sum;
                const ujoin_buffer buffer{&most, 1, UJOIN_F32, 0, 0, 0};
                ok(ujoin_all_reduce(even, nullptr, &buffer, UJOIN_MAX, nullptr, nullptr));
                EXPECT_EQ(most, sum) << step;
            }
        }
        ujoin_group_destroy(even);
    });
}

TEST_P(ZeroParity, Z_49_a_list_that_is_loaded_stays_as_it_is) {
    on_ranks(2, [&](ujoin_group *group, int) {
        Tensors x({5, 3});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {});
        optimizer.step();
        const StateOwner state = state_everywhere(group, optimizer);
        const Listed before = listed(state.state);
        std::vector<const void *> places;
        const auto look = [&](bool first) {
            for (size_t i = 0; i < ujoin_state_count(state.state); i++) {
                ujoin_item item{};
                item.size = sizeof item;
                ok(ujoin_state_get(state.state, i, &item));
                if (first) places.push_back(item.data);
                EXPECT_EQ(item.data, places[i]);
            }
        };
        look(true);
        ok(zero_load_state_dict(optimizer.get(), state.state));
        optimizer.step(); // works on memory of its own
        look(false);
        EXPECT_EQ(listed(state.state), before);
    });
}

TEST_P(ZeroParity, Z_52_a_group_added_on_one_rank_alone_is_told) {
    on_ranks(2, [&](ujoin_group *group, int rank) {
        Tensors x({5, 3});
        const std::vector<ujoin_param> params = x.params();
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, {params[0]}, {});
        const ujoin_status status = rank == 0 ? zero_add_param_group(optimizer.get(), &params[1], 1, nullptr, 0)
                                              : zero_step(optimizer.get(), nullptr);
        EXPECT_EQ(status, UJOIN_E_MISMATCH) << ujoin_last_error();
    });
}

/// Three interleaved groups, one of them empty.
std::unique_ptr<Optimizer> interleaved(ujoin_group *group, Tensors &x) {
    const std::vector<ujoin_param> p = x.params();
    auto optimizer = std::make_unique<Optimizer>(group, UJOIN_OPTIMIZER_SGD, std::vector<ujoin_param>{p[0], p[2]},
                                                 std::vector<ujoin_hyper>{{"lr", 0.1}, {"momentum", 0.9}});
    const ujoin_param b[] = {p[1], p[3]};
    const ujoin_hyper slow{"lr", 0.01};
    ok(zero_add_param_group(optimizer->get(), b, 2, &slow, 1));
    const ujoin_hyper unused{"lr", 0.7};
    ok(zero_add_param_group(optimizer->get(), nullptr, 0, &unused, 1));
    return optimizer;
}

TEST_P(ZeroParity, ZERO_06_state_follows_its_parameter_through_interleaved_groups) {
    const TempDir dir;
    const std::string path = dir / "save";
    const std::vector<std::vector<float>> gradients{{1}, {2}, {3}, {4}};
    ujoin_save_options options{};
    options.size = sizeof options;
    options.parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
    options.no_sync = 1;
    on_ranks(2, [&](ujoin_group *group, int) {
        Tensors x({1, 1, 1, 1}, 0);
        x.grad = gradients;
        const auto optimizer = interleaved(group, x);
        optimizer->step();
        optimizer->step();
        const Listed state = listed(state_everywhere(group, *optimizer).state);
        for (int i = 0; i < 4; i++)
            EXPECT_NEAR(state.at(std::to_string(i % 2) + "/p" + std::to_string(i) + "/momentum_buffer")[0], 1.9 * (i + 1),
                        1e-6);
        const double expected[] = {-0.29, -0.058, -0.87, -0.116};
        for (size_t i = 0; i < 4; i++) EXPECT_NEAR(x.data[i][0], expected[i], 1e-6);
        ok(zero_save(optimizer->get(), path.c_str(), &options));
    });
    on_ranks(3, [&](ujoin_group *group, int) {
        Tensors x({1, 1, 1, 1}, 0);
        x.grad = gradients;
        const auto optimizer = interleaved(group, x);
        ok(zero_set_hyper(optimizer->get(), -1, "lr", 5));
        ok(zero_load(optimizer->get(), path.c_str(), &options, nullptr));
        optimizer->step();
        const double expected[] = {-0.561, -0.1122, -1.683, -0.2244};
        for (size_t i = 0; i < 4; i++) EXPECT_NEAR(x.data[i][0], expected[i], 1e-6);
        EXPECT_EQ(optimizer->hyper("lr", 2), 0.7); // the empty group has kept its values
        EXPECT_EQ(optimizer->hyper("momentum", 2), 0.9);
    });
}

/// bf16 parameters; state as it is after some steps.
struct Brain {
    std::vector<std::vector<ujoin::BFloat16>> data;
    std::vector<std::vector<float>> grad;

    Brain() {
        for (const size_t count : sizes) {
            data.emplace_back(count, ujoin::BFloat16(1.0F));
            grad.emplace_back(count, 0.0F);
        }
    }
    ujoin_zero *make(ujoin_group *group, bool stochastic) {
        std::vector<ujoin_param> params(data.size());
        for (size_t i = 0; i < params.size(); i++) {
            params[i].data = data[i].data();
            params[i].grad = grad[i].data();
            params[i].count = data[i].size();
            params[i].dtype = UJOIN_BF16;
            params[i].grad_dtype = UJOIN_F32;
        }
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.no_master_copy = options.stochastic_rounding = stochastic ? 1 : 0;
        options.seed = 42;
        ujoin_zero *zero = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_ADAMW, params.data(), params.size(), &options, &zero));
        return zero;
    }
    void step(ujoin_zero *zero, int number) {
        for (size_t i = 0; i < grad.size(); i++)
            for (size_t k = 0; k < grad[i].size(); k++)
                grad[i][k] = std::sin(static_cast<float>(7 * i + k) + static_cast<float>(number));
        ok(zero_step(zero, nullptr));
    }
    std::vector<uint16_t> bits() const {
        std::vector<uint16_t> all;
        for (const std::vector<ujoin::BFloat16> &list : data)
            for (const ujoin::BFloat16 value : list) all.push_back(value.bits);
        return all;
    }
};

TEST_P(ZeroParity, Z_48_state_of_four_ranks_loads_on_any_number) {
    ujoin_save_options options{};
    options.size = sizeof options;
    options.parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
    options.no_sync = 1;
    for (const bool stochastic : {false, true}) {
        const TempDir dir;
        const std::string path = dir / "save";
        std::vector<uint16_t> expected; // of one rank that never stopped
        harness::on_ranks("self", 1, [&](ujoin_group *group, int) {
            Brain x;
            ujoin_zero *zero = x.make(group, stochastic);
            for (int i = 0; i < 8; i++) x.step(zero, i);
            expected = x.bits();
            zero_destroy(zero);
        });
        on_ranks(4, [&](ujoin_group *group, int rank) {
            Brain x;
            ujoin_zero *zero = x.make(group, stochastic);
            for (int i = 0; i < 5; i++) x.step(zero, i);
            ujoin_state *extra = nullptr;
            ok(ujoin_state_create(&extra));
            const ujoin_item item = number_item("rank", rank);
            ok(ujoin_state_set(extra, &item));
            ujoin_save_options with = options;
            with.extra = extra;
            ok(zero_save(zero, path.c_str(), &with));
            ujoin_state_destroy(extra);
            zero_destroy(zero);
        });
        for (const int size : {1, 2, 3, 5})
            on_ranks(size, [&](ujoin_group *group, int rank) {
                Brain x;
                ujoin_zero *zero = x.make(group, stochastic);
                ujoin_state *extra = nullptr;
                ok(zero_load(zero, path.c_str(), &options, &extra));
                ujoin_item item{};
                item.size = sizeof item;
                ok(ujoin_state_find(extra, "rank", &item));
                EXPECT_EQ(item.number, rank < 4 ? rank : 0);
                ujoin_state_destroy(extra);
                for (int i = 5; i < 8; i++) x.step(zero, i);
                EXPECT_EQ(x.bits(), expected) << size << " ranks, stochastic " << stochastic;
                zero_destroy(zero);
            });
    }
}

TEST_P(ZeroParity, state_of_sixteen_bits_is_widened_where_another_library_kept_it_so) {
    on_ranks(2, [&](ujoin_group *group, int) {
        Brain x;
        ujoin_zero *zero = x.make(group, false);
        x.step(zero, 1);
        ujoin_state *list = nullptr;
        ok(ujoin_state_create(&list));
        for (const char *key : {"exp_avg", "exp_avg_sq"}) {
            const std::vector<ujoin::BFloat16> values(13, ujoin::BFloat16(0.5F));
            const int64_t shape[] = {13};
            ujoin_item item{};
            item.size = sizeof item;
            item.owner = UJOIN_ITEM_OF_PARAM;
            item.param = "0";
            item.key = key;
            item.kind = UJOIN_ITEM_TENSOR;
            item.dtype = UJOIN_BF16;
            item.data = values.data();
            item.bytes = 26;
            item.shape = shape;
            item.ndim = 1;
            ok(ujoin_state_set(list, &item));
        }
        ujoin_item step = number_item("step", 7);
        step.owner = UJOIN_ITEM_OF_PARAM;
        step.param = "0";
        ok(ujoin_state_set(list, &step));
        ok(zero_load_state_dict(zero, list));
        ujoin_state_destroy(list);
        ok(zero_consolidate_state_dict(zero, 0));
        if (ujoin_group_rank(group) == 0) {
            StateOwner state;
            ok(zero_state_dict(zero, &state.state));
            const Listed all = listed(state.state);
            EXPECT_EQ(all.at("0/0/exp_avg"), std::vector<double>(13, 0.5));
            EXPECT_EQ(all.at("0/0/step"), std::vector<double>{7});
            EXPECT_EQ(all.count("0/1/exp_avg"), 0U);
        }
        zero_destroy(zero);
    });
}

} // namespace
