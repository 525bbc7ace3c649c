// SPDX-License-Identifier: Apache-2.0
// The sharded optimizer among its ranks: agreement, failures, join contexts, lists.
#include "base/error.hpp"
#include "harness/groups.hpp"
#include "harness/temp_dir.hpp"
#include "harness/zero_kit.hpp"
#include "zero/checkpoint.hpp"
#include "zero/zero.hpp"
#include <cstring>
#include <gtest/gtest.h>

using namespace harness;

namespace {

class ZeroGroup : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(int size, const std::function<void(ujoin_group *, int)> &body) {
        harness::on_ranks(GetParam(), size, body);
    }
};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroGroup, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

void expect_error(ujoin_status got, ujoin_status expected, const std::vector<std::string> &text) {
    EXPECT_EQ(got, expected) << ujoin_last_error();
    for (const std::string &part : text)
        EXPECT_NE(std::string(ujoin_last_error()).find(part), std::string::npos) << part << " in: " << ujoin_last_error();
}

ujoin_status create(ujoin_group *group, Tensors &x, const std::vector<ujoin_hyper> &hyper = {},
                    ujoin_optimizer rule = UJOIN_OPTIMIZER_SGD) {
    ujoin_zero_options options{};
    options.size = sizeof options;
    options.hyper = hyper.data();
    options.hyper_count = hyper.size();
    ujoin_zero *zero = nullptr;
    const std::vector<ujoin_param> params = x.params();
    const ujoin_status status = zero_create(group, rule, params.data(), params.size(), &options, &zero);
    EXPECT_EQ(zero != nullptr, status == UJOIN_OK);
    zero_destroy(zero);
    return status;
}

TEST_P(ZeroGroup, ranks_that_differ_are_told_the_first_difference) {
    on_ranks(3, [](ujoin_group *group, int rank) {
        Tensors count(rank == 1 ? std::vector<size_t>{2, 3} : std::vector<size_t>{2, 3, 4});
        expect_error(create(group, count), UJOIN_E_MISMATCH, {"number of parameters", "rank 0 has 3", "rank 1 has 2"});
        Tensors name({2, 3});
        if (rank == 2) name.names[1] = "other";
        expect_error(create(group, name), UJOIN_E_MISMATCH,
                     {"parameter 1", "rank 0 has \"p1\" f32 [3]", "rank 2 has \"other\" f32 [3]"});
        Tensors shape({2, rank == 1 ? 5U : 3U});
        expect_error(create(group, shape), UJOIN_E_MISMATCH, {"parameter 1", "[3]", "[5]"});
        Tensors same({2, 3});
        expect_error(create(group, same, {{"lr", rank == 1 ? 0.1 : 0.25}}), UJOIN_E_MISMATCH,
                     {"hyper-parameter lr", "0.25", "0.1"});
        expect_error(create(group, same, {}, rank == 0 ? UJOIN_OPTIMIZER_ADAM : UJOIN_OPTIMIZER_SGD), UJOIN_E_MISMATCH,
                     {"optimizer", "adam", "sgd"});
        // What is wrong on one rank alone ends the call on all.
        Tensors null({2, 3});
        std::vector<ujoin_param> params = null.params();
        if (rank == 2) params[1].data = nullptr;
        ujoin_zero *zero = nullptr;
        expect_error(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), nullptr, &zero), UJOIN_E_INVALID,
                     {"rank 2: params[1].data is NULL"});
        EXPECT_EQ(zero, nullptr);
        EXPECT_EQ(create(group, same), UJOIN_OK); // nothing of that has harmed the group
    });
}

TEST_P(ZeroGroup, ranks_with_different_rates_break_the_step_everywhere) {
    const TempDir dir;
    on_ranks(2, [&](ujoin_group *group, int rank) {
        Tensors x({2, 2});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.5}});
        optimizer.step();
        if (rank == 1) ok(zero_set_hyper(optimizer.get(), 0, "lr", 0.25));
        expect_error(zero_step(optimizer.get(), nullptr), UJOIN_E_MISMATCH, {"ranks differ in hyper-parameters"});
        expect_error(zero_step(optimizer.get(), nullptr), UJOIN_E_STATE, {"failed half-way", "parameters and state"});
        expect_error(zero_save(optimizer.get(), (dir / "save").c_str(), nullptr), UJOIN_E_STATE, {"failed half-way"});
    });
}

TEST_P(ZeroGroup, ranks_with_different_gradients_break_the_step_everywhere) {
    on_ranks(2, [](ujoin_group *group, int rank) {
        Tensors x({2, 2});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.5}});
        if (rank == 0) ok(zero_set_gradient(optimizer.get(), 1, nullptr));
        expect_error(zero_step(optimizer.get(), nullptr), UJOIN_E_MISMATCH, {"which parameters have a gradient"});
    });
}

TEST_P(ZeroGroup, a_broken_object_is_mended_by_loading_both_parts) {
    const TempDir dir;
    with_groups(GetParam(), 2, [&](ujoin::Group &group) {
        Tensors x({2, 3});
        const std::vector<ujoin_param> params = x.params();
        ujoin::ZeroConfig config;
        config.rule = ujoin::optim::shared_rule(UJOIN_OPTIMIZER_ADAM);
        config.defaults = ujoin::optim::default_hyper(*config.rule);
        const auto zero = std::make_shared<ujoin::Zero>(group.shared_from_this(), config, ujoin::Release());
        zero->add_param_group(params.data(), params.size(), nullptr, 0);
        zero->step(nullptr, nullptr);
        const std::vector<std::vector<float>> saved = x.data;
        ujoin::SaveRequest request;
        request.path = dir / "save";
        request.parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
        ujoin::save_checkpoint(*zero, request);
        zero->break_by(UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS, "for the test");
        EXPECT_THROW(zero->step(nullptr, nullptr), ujoin::Error);
        x.data[0][0] = 77;
        request.parts = UJOIN_SAVE_STATE;
        ujoin::load_checkpoint(*zero, request);
        EXPECT_THROW(zero->step(nullptr, nullptr), ujoin::Error); // parameters are still missing
        request.parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
        ujoin::load_checkpoint(*zero, request);
        EXPECT_EQ(x.data, saved);
        zero->step(nullptr, nullptr);
    });
}

TEST_P(ZeroGroup, uneven_inputs_step_every_shard_for_all) {
    on_ranks(3, [](ujoin_group *group, int rank) {
        Tensors x({4, 3, 2, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.125}});
        ujoin_joinable *joinable = zero_joinable(optimizer.get());
        ASSERT_NE(joinable, nullptr);
        ujoin_ctx *ctx = nullptr;
        ok(ujoin_ctx_create(&joinable, 1, nullptr, &ctx));
        for (int epoch = 0; epoch < 2; epoch++) {
            ok(ujoin_ctx_start(ctx));
            for (int i = 0; i < 1 + rank; i++) optimizer.step();
            ok(ujoin_ctx_finish(ctx));
        }
        ujoin_ctx_destroy(ctx);
        for (const std::vector<float> &data : x.data)
            for (const float value : data) EXPECT_EQ(value, 1 - 6 * 0.125F);
    });
}

TEST_P(ZeroGroup, an_optimizer_that_is_gone_is_told_by_its_context) {
    on_ranks(1, [](ujoin_group *group, int) {
        Tensors x({4});
        int released = 0;
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.release = [](void *count) { ++*static_cast<int *>(count); };
        options.release_data = &released;
        const std::vector<ujoin_param> params = x.params();
        ujoin_zero *zero = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &options, &zero));
        ujoin_joinable *joinable = zero_joinable(zero);
        ujoin_ctx *ctx = nullptr;
        ok(ujoin_ctx_create(&joinable, 1, nullptr, &ctx));
        EXPECT_EQ(released, 0);
        zero_destroy(zero);
        EXPECT_EQ(released, 1); // the context does not keep the program's memory
        ujoin_ctx_destroy(ctx);
        // A call that fails owes the notice as well.
        EXPECT_EQ(zero_create(group, UJOIN_OPTIMIZER_SGD, nullptr, 1, &options, &zero), UJOIN_E_INVALID);
        EXPECT_EQ(released, 2);
        EXPECT_EQ(zero_create(nullptr, UJOIN_OPTIMIZER_SGD, params.data(), 1, &options, &zero), UJOIN_E_INVALID);
        EXPECT_EQ(released, 3);
    });
}

struct Closure {
    Tensors *x;
    int calls = 0;
    bool fails = false;
};

ujoin_status run_closure(void *data) {
    auto &closure = *static_cast<Closure *>(data);
    closure.calls++;
    if (closure.fails) return ujoin_set_last_error(UJOIN_E_INVALID, "no batch");
    for (std::vector<float> &grad : closure.x->grad) std::fill(grad.begin(), grad.end(), 2.0F);
    return UJOIN_OK;
}

TEST_P(ZeroGroup, a_closure_runs_before_the_update) {
    on_ranks(2, [](ujoin_group *group, int) {
        Tensors x({2, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.25}});
        Closure closure{&x};
        ujoin_step_options options{};
        options.size = sizeof options;
        options.closure = run_closure;
        options.closure_data = &closure;
        ok(zero_step(optimizer.get(), &options));
        EXPECT_EQ(closure.calls, 1);
        EXPECT_EQ(x.data, (std::vector<std::vector<float>>{{0.5F, 0.5F}, {0.5F}}));
        closure.fails = true;
        expect_error(zero_step(optimizer.get(), &options), UJOIN_E_CALLBACK, {"closure", "UJOIN_E_INVALID", "no batch"});
        EXPECT_EQ(x.data[0][0], 0.5F);
        optimizer.step(); // nothing was broken
        EXPECT_EQ(x.data[0][0], 0);
    });
}

TEST_P(ZeroGroup, lists_that_do_not_fit_change_nothing) {
    on_ranks(2, [](ujoin_group *group, int rank) {
        Tensors x({2, 3});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {});
        optimizer.step();
        const StateOwner good = state_everywhere(group, optimizer);
        const Listed before = listed(good.state);
        const auto refused = [&](const ujoin_item &item, const std::string &text) {
            const StateOwner list = state_everywhere(group, optimizer);
            ok(ujoin_state_set(list.state, &item));
            expect_error(zero_load_state_dict(optimizer.get(), list.state), UJOIN_E_MISMATCH, {text});
            EXPECT_EQ(listed(state_everywhere(group, optimizer).state), before);
        };
        const float data[4] = {1, 2, 3, 4};
        int64_t shape[2] = {2, 1};
        ujoin_item item{};
        item.size = sizeof item;
        item.owner = UJOIN_ITEM_OF_PARAM;
        item.param = "p0";
        item.key = "exp_avg";
        item.kind = UJOIN_ITEM_TENSOR;
        item.dtype = UJOIN_F32;
        item.data = data;
        item.bytes = 8;
        item.shape = shape;
        item.ndim = 2;
        refused(item, "\"exp_avg\" of parameter \"p0\" is f32 [2, 1], but the parameter's state is f32 [2]");
        item.ndim = 1;
        item.dtype = UJOIN_I32;
        refused(item, "is i32 [2]");
        item.dtype = UJOIN_F32;
        item.key = "momentum_buffer";
        refused(item, "no state of adam");
        item.key = "exp_avg";
        item.param = "q";
        refused(item, "no parameter \"q\"");
        item.param = "p1";
        item.key = "step";
        refused(item, "is no number");
        item.kind = UJOIN_ITEM_NUMBER;
        item.number = -1;
        refused(item, "whole number");
        item.owner = UJOIN_ITEM_OF_GROUP;
        item.key = "lr";
        refused(item, "lr is -1");
        item.key = "momentum";
        refused(item, "no hyper-parameter of adam");
        item.key = "lr";
        item.number = 0.5;
        item.group = 1;
        refused(item, "param group 1");
        item.group = 0;
        item.number = rank == 0 ? 0.5 : 0.25;
        refused(item, "ranks differ in loaded hyper-parameter lr");
        expect_error(zero_load_state_dict(optimizer.get(), rank == 0 ? nullptr : good.state), UJOIN_E_INVALID,
                     {"rank 0: state is NULL"});
        ok(zero_load_state_dict(optimizer.get(), good.state));
        optimizer.step();
    });
}

TEST_P(ZeroGroup, state_of_another_library_can_be_brought_in) {
    on_ranks(2, [](ujoin_group *group, int) {
        Tensors x({1, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"lr", 0.1}, {"momentum", 0.9}});
        StateOwner list;
        ok(ujoin_state_create(&list.state));
        const float buffer[] = {1};
        const int64_t shape[] = {1};
        for (const char *name : {"p0", "p1"}) {
            ujoin_item item{};
            item.size = sizeof item;
            item.owner = UJOIN_ITEM_OF_PARAM;
            item.param = name;
            item.key = "momentum_buffer";
            item.kind = UJOIN_ITEM_TENSOR;
            item.dtype = UJOIN_F32;
            item.data = buffer;
            item.bytes = sizeof buffer;
            item.shape = shape;
            item.ndim = 1;
            ok(ujoin_state_set(list.state, &item));
        }
        ok(zero_load_state_dict(optimizer.get(), list.state));
        optimizer.step();
        EXPECT_FLOAT_EQ(x.data[0][0], 1 - 0.19F);
        EXPECT_FLOAT_EQ(x.data[1][0], 1 - 0.19F);
    });
}

TEST_P(ZeroGroup, consolidation_asks_for_one_target) {
    on_ranks(2, [](ujoin_group *group, int rank) {
        Tensors x({1, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        expect_error(zero_consolidate_state_dict(optimizer.get(), rank == 1 ? 2 : 0), UJOIN_E_INVALID, {"rank 1: to is 2"});
        expect_error(zero_consolidate_state_dict(optimizer.get(), rank), UJOIN_E_MISMATCH,
                     {"the rank to consolidate to", "rank 0 has 0", "rank 1 has 1"});
        ok(zero_consolidate_state_dict(optimizer.get(), 1));
    });
}

TEST_P(ZeroGroup, state_that_is_larger_than_a_chunk_arrives_whole) {
    on_ranks(3, [](ujoin_group *group, int rank) {
        Tensors x({700'000, 1'500'000, 3, 900'001});
        for (size_t i = 0; i < x.grad.size(); i++)
            for (size_t k = 0; k < x.grad[i].size(); k++) x.grad[i][k] = static_cast<float>((k * 7 + i) % 1000);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"momentum", 0.5}});
        optimizer.step();
        ok(zero_consolidate_state_dict(optimizer.get(), 2));
        if (rank != 2) return;
        StateOwner owner;
        ok(zero_state_dict(optimizer.get(), &owner.state));
        for (size_t i = 0; i < x.grad.size(); i++) {
            ujoin_item item{};
            item.size = sizeof item;
            ok(ujoin_state_get(owner.state, i, &item));
            ASSERT_EQ(item.param, x.names[i]);
            EXPECT_EQ(std::memcmp(item.data, x.grad[i].data(), item.bytes), 0) << i;
        }
    });
}

} // namespace
