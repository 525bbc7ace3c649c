// SPDX-License-Identifier: Apache-2.0
// Fused steps: what is refused, and what a failure leaves.
#include "harness/fused_kit.hpp"
#include <gtest/gtest.h>
#include <string>

using namespace harness;

namespace {

class ZeroFusedErrors : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(const std::function<void(ujoin_group *, int)> &body) { harness::on_ranks(GetParam(), 2, body); }
};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroFusedErrors, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

void expect_refused(ujoin_status status, ujoin_status expected, const std::string &part) {
    EXPECT_EQ(status, expected) << ujoin_last_error();
    const std::string text = ujoin_last_error();
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    EXPECT_NE(text.find("rank "), std::string::npos) << text;
}

TEST_P(ZeroFusedErrors, a_step_follows_a_finished_iteration) {
    on_ranks([](ujoin_group *group, int) {
        FusedModel model(group, {});
        const Bytes before = model.values();
        expect_refused(zero_step(model.zero(), nullptr), UJOIN_E_STATE, "no iteration of the reducer has been finished");
        ok(ujoin_ddp_forward(model.ddp(), 1));
        expect_refused(zero_step(model.zero(), nullptr), UJOIN_E_STATE, "is not finished");
        model.backward(0);
        expect_refused(zero_step(model.zero(), nullptr), UJOIN_E_STATE, "is not finished");
        ok(ujoin_ddp_finish(model.ddp()));
        EXPECT_TRUE(model.values() == before); // the reducer alone changes nothing
        model.step();
        const Bytes after = model.values();
        EXPECT_TRUE(after != before);
        expect_refused(zero_step(model.zero(), nullptr), UJOIN_E_STATE, "since the last step");
        expect_refused(zero_clip_grad_norm(model.zero(), 1, 2, nullptr), UJOIN_E_STATE, "give it max_norm");
        model.iterate(1);
        model.iterate(2); // an iteration without a step is left out
        EXPECT_TRUE(model.values() == after);
        model.step();
        EXPECT_TRUE(model.values() != after);
    });
}

TEST_P(ZeroFusedErrors, a_reducer_without_an_optimizer_does_not_begin) {
    on_ranks([](ujoin_group *group, int) {
        FusedModel model(group, {});
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.kind = UJOIN_COMM_HOOK_BF16;
        expect_refused(ujoin_ddp_set_comm_hook(model.ddp(), &hook), UJOIN_E_STATE, "UJOIN_GRADIENT_SYNC_TO_OWNER");
        model.iterate(0);
        model.destroy_zero();
        expect_refused(ujoin_ddp_forward(model.ddp(), 1), UJOIN_E_STATE, "there is no optimizer");
        model.make_zero(); // it can have another one
        model.iterate(1);
        model.step();
        model.destroy_ddp();
        expect_refused(zero_step(model.zero(), nullptr), UJOIN_E_STATE, "was destroyed");
        EXPECT_EQ(ujoin_ddp_options{}.gradient_sync, 0);
    });
}

TEST_P(ZeroFusedErrors, what_the_reducer_does_not_have_is_refused) {
    on_ranks([](ujoin_group *group, int rank) {
        FusedModel model(group, {});
        model.destroy_zero();
        const auto refused = [&](const std::vector<ujoin_param> &params, ujoin_ddp *ddp, ujoin_status expected,
                                 const std::string &part) {
            ujoin_zero_options options{};
            options.size = sizeof options;
            options.ddp = ddp;
            ujoin_zero *zero = nullptr;
            expect_refused(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &options, &zero), expected,
                           part);
            EXPECT_EQ(zero, nullptr);
        };
        std::vector<ujoin_param> params = model.params();
        params[1].name = "unknown";
        refused(params, model.ddp(), UJOIN_E_INVALID, "\"unknown\" is trained, but options.ddp does not reduce");
        params = model.params();
        params[2].grad = params[2].data;
        refused(params, model.ddp(), UJOIN_E_INVALID, "is not the one that options.ddp reduces");
        refused(model.params(), rank == 0 ? model.ddp() : nullptr, UJOIN_E_MISMATCH, "option ddp");
        const std::string meeting = unique("other");
        ujoin_ddp_options options = ddp_kit::ddp_options();
        options.gradient_sync = 3;
        ujoin_ddp *ddp = nullptr;
        params = model.params();
        expect_refused(ujoin_ddp_create(group, params.data(), params.size(), &options, &ddp), UJOIN_E_INVALID,
                       "gradient_sync is 3");
        options.gradient_sync = rank == 0 ? UJOIN_GRADIENT_SYNC_TO_OWNER : UJOIN_GRADIENT_SYNC_ALL;
        EXPECT_EQ(ujoin_ddp_create(group, params.data(), params.size(), &options, &ddp), UJOIN_E_MISMATCH);
        EXPECT_NE(std::string(ujoin_last_error()).find("gradient_sync"), std::string::npos) << ujoin_last_error();
        model.make_zero(); // nothing of that has changed anything
        model.iterate(0);
        model.step();
    });
}

TEST_P(ZeroFusedErrors, a_join_context_has_both_or_none) {
    on_ranks([](ujoin_group *group, int) {
        FusedModel model(group, {});
        for (const bool reducer : {true, false}) {
            ujoin_joinable *const one = reducer ? ujoin_ddp_joinable(model.ddp()) : zero_joinable(model.zero());
            const ddp_kit::CtxPtr ctx = ddp_kit::make_ctx({one});
            ok(ujoin_ctx_start(ctx.get()));
            model.iterate(0);
            expect_refused(zero_step(model.zero(), nullptr), UJOIN_E_STATE, "give both to ujoin_ctx_create");
            ok(ujoin_ctx_finish(ctx.get()));
        }
    });
}

TEST_P(ZeroFusedErrors, other_options_on_another_rank_are_a_mismatch) {
    on_ranks([](ujoin_group *group, int rank) {
        FusedModel model(group, {});
        model.iterate(0);
        const Bytes before = model.values();
        ok(zero_set_hyper(model.zero(), -1, "lr", rank == 0 ? 0.1 : 0.2));
        expect_refused(zero_step(model.zero(), nullptr), UJOIN_E_MISMATCH, "hyper-parameters");
        EXPECT_TRUE(model.values() == before); // noticed before anything was updated
    });
}

} // namespace
