// SPDX-License-Identifier: Apache-2.0
// Steps inside a reducer: what is refused, and what a failure leaves.
#include "harness/overlap_kit.hpp"
#include <gtest/gtest.h>
#include <string>

using namespace harness;

namespace {

class ZeroOverlapErrors : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(const std::function<void(ujoin_group *, int)> &body) { harness::on_ranks(GetParam(), 2, body); }
};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroOverlapErrors, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

TEST_P(ZeroOverlapErrors, O_13_a_step_of_the_programs_own_is_refused) {
    on_ranks([](ujoin_group *group, int) {
        Trainer a(group, {});
        a.iterate(0);
        const auto before = a.values();
        const auto refused = [&](ujoin_status status) {
            EXPECT_EQ(status, UJOIN_E_STATE);
            const std::string text = ujoin_last_error();
            EXPECT_NE(text.find("options.ddp"), std::string::npos) << text;
            EXPECT_NE(text.find("rank "), std::string::npos) << text;
        };
        bool called = false;
        ujoin_step_options options{};
        options.size = sizeof options;
        options.closure = [](void *data) {
            *static_cast<bool *>(data) = true;
            return ujoin_status{UJOIN_OK};
        };
        options.closure_data = &called;
        refused(zero_step(a.zero(), &options));
        EXPECT_FALSE(called);
        refused(zero_step(a.zero(), nullptr));
        refused(zero_clip_grad_norm(a.zero(), 1, 2, nullptr));
        EXPECT_TRUE(a.values() == before);
        a.iterate(1); // and it goes on
        EXPECT_TRUE(a.values() != before);
    });
}

/// What zero_create says to these parameters and options; rank by rank in vain.
void expect_refused(ujoin_group *group, const std::vector<ujoin_param> &params, ujoin_ddp *ddp, ujoin_status expected,
                    const std::string &part) {
    ujoin_zero_options options{};
    options.size = sizeof options;
    options.ddp = ddp;
    ujoin_zero *zero = nullptr;
    EXPECT_EQ(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &options, &zero), expected);
    EXPECT_EQ(zero, nullptr);
    EXPECT_NE(std::string(ujoin_last_error()).find(part), std::string::npos) << part << " in: " << ujoin_last_error();
    zero_destroy(zero);
}

TEST_P(ZeroOverlapErrors, O_12_an_optimizer_that_does_not_fit_the_reducer_is_refused) {
    on_ranks([](ujoin_group *group, int rank) {
        Tensors x({3, 4});
        const std::vector<ujoin_param> params = x.params();
        const ujoin_ddp_options options = ddp_kit::ddp_options();
        ujoin_ddp *made = nullptr;
        ok(ujoin_ddp_create(group, params.data(), params.size(), &options, &made));
        const ddp_kit::DdpPtr ddp(made);

        Tensors other({3, 4});
        expect_refused(group, other.params(), ddp.get(), UJOIN_E_INVALID, "the gradient of \"p0\" is not the one");
        std::vector<ujoin_param> list = x.params();
        list[1].count = 2;
        expect_refused(group, list, ddp.get(), UJOIN_E_INVALID, "\"p1\" has 2 elements, that of options.ddp 4");
        list = x.params();
        list[1].name = "unknown";
        expect_refused(group, list, ddp.get(), UJOIN_E_INVALID, "\"unknown\" is trained, but options.ddp does not reduce");
        expect_refused(group, params, rank == 0 ? ddp.get() : nullptr, UJOIN_E_MISMATCH, "option ddp");
        ok(ujoin_ddp_forward(ddp.get(), 1));
        expect_refused(group, params, ddp.get(), UJOIN_E_STATE, "between iterations");
        for (size_t p = 2; p-- > 0;) ok(ujoin_ddp_ready(ddp.get(), p));
        ok(ujoin_ddp_finish(ddp.get()));
        {
            list[1].flags = UJOIN_PARAM_FROZEN; // what is not trained need not be reduced
            ujoin_zero_options with{};
            with.size = sizeof with;
            with.ddp = ddp.get();
            ujoin_zero *zero = nullptr;
            ok(zero_create(group, UJOIN_OPTIMIZER_SGD, list.data(), list.size(), &with, &zero));
            const ddp_kit::ZeroPtr owner(zero);
            expect_refused(group, params, ddp.get(), UJOIN_E_STATE, "another optimizer");
            EXPECT_EQ(zero_set_frozen(zero, 1, 0), UJOIN_E_INVALID) << ujoin_last_error();
            EXPECT_EQ(zero_set_gradient(zero, 0, other.grad[0].data()), UJOIN_E_INVALID) << ujoin_last_error();
            EXPECT_EQ(zero_add_param_group(zero, other.params().data(), 1, nullptr, 0), UJOIN_E_INVALID);
            ok(ddp_kit::reduce(ddp.get(), 2)); // nothing of that has changed anything
            EXPECT_NE(x.data[0][0], 1);
            EXPECT_EQ(x.data[1][0], 1);
        }
        const auto before = x.data;
        ok(ddp_kit::reduce(ddp.get(), 2)); // it only reduces now
        EXPECT_EQ(x.data, before);
    });
}

struct Fails {
    int on_rank = 1;
    int at = -1; ///< updates before the one that fails
    int rank = 0;
    int done = 0;
    ujoin_ddp *ddp = nullptr;
    int refused = 0; ///< calls to the reducer from within
};

ujoin_status descend(void *data, const ujoin_rule_args *args) {
    auto &fails = *static_cast<Fails *>(data);
    if (fails.ddp && ujoin_ddp_set_sync(fails.ddp, 1) == UJOIN_E_STATE) fails.refused++;
    if (fails.rank == fails.on_rank && fails.done++ == fails.at) return UJOIN_E_CALLBACK;
    for (size_t k = 0; k < args->count; k++)
        static_cast<float *>(args->data)[k] -= 0.1F * static_cast<const float *>(args->grad)[k];
    return UJOIN_OK;
}

ujoin_rule rule_of(Fails &fails) {
    ujoin_rule rule{};
    rule.size = sizeof rule;
    rule.name = "descent";
    rule.step = descend;
    rule.user_data = &fails;
    return rule;
}

TEST(ZeroOverlapBroken, a_rule_that_fails_on_one_rank_breaks_the_optimizer_on_all) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Fails fails;
        fails.rank = rank;
        const ujoin_rule rule = rule_of(fails);
        Recipe recipe;
        recipe.rule = UJOIN_OPTIMIZER_CUSTOM;
        recipe.custom = &rule;
        Recipe plain;
        plain.rule = UJOIN_OPTIMIZER_SGD;
        plain.hyper = {{"lr", 0.1}};
        plain.overlap = false;
        Trainer a(group, recipe);
        Trainer b(group, plain);
        fails.ddp = a.ddp();
        a.iterate(0);
        b.iterate(0);
        EXPECT_TRUE(a.values() == b.values());
        EXPECT_GT(fails.refused, 0);

        fails.at = fails.done + 1; // the second of the next step
        ok(ujoin_ddp_forward(a.ddp(), 1));
        a.backward(1);
        EXPECT_EQ(ujoin_ddp_finish(a.ddp()), UJOIN_E_CALLBACK);
        const std::string text = ujoin_last_error();
        EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
        EXPECT_NE(text.find("descent"), std::string::npos) << text;
        const auto rest = a.values();
        EXPECT_EQ(ujoin_ddp_forward(a.ddp(), 1), UJOIN_E_STATE); // before the other rank waits for anything
        EXPECT_NE(std::string(ujoin_last_error()).find("a step failed half-way"), std::string::npos) << ujoin_last_error();
        EXPECT_EQ(zero_save(a.zero(), "/nowhere", nullptr), UJOIN_E_STATE);
        EXPECT_TRUE(a.values() == rest);
        b.iterate(1); // the group is whole
    });
}

struct CutHook {
    bool fails = false;
};

TEST(ZeroOverlapBroken, a_bucket_that_fails_after_others_were_stepped_breaks_the_optimizer) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        CutHook cut{rank == 0};
        Trainer a(group, {});
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.user_data = &cut;
        hook.start = [](void *, const ujoin_bucket *bucket, ujoin_work **out) {
            return ujoin_all_reduce(bucket->group, nullptr, &bucket->buffer, UJOIN_SUM, nullptr, out);
        };
        hook.then = [](void *data, const ujoin_bucket *bucket, ujoin_work **) {
            const bool fails = static_cast<CutHook *>(data)->fails && bucket->is_last != 0;
            return ujoin_status{fails ? UJOIN_E_CALLBACK : UJOIN_OK};
        };
        ok(ujoin_ddp_set_comm_hook(a.ddp(), &hook));
        const auto before = a.values();
        ok(ujoin_ddp_forward(a.ddp(), 1));
        a.backward(0);
        EXPECT_LT(ujoin_ddp_finish(a.ddp()), 0);
        EXPECT_TRUE(rank == 1 || a.values() != before); // its part of the first bucket
        EXPECT_EQ(zero_save(a.zero(), "/nowhere", nullptr), UJOIN_E_STATE);
        EXPECT_NE(std::string(ujoin_last_error()).find("a step failed half-way"), std::string::npos) << ujoin_last_error();
    });
}

TEST(ZeroOverlapBroken, hyper_parameters_that_differ_are_found) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Trainer a(group, {});
        a.iterate(0);
        ok(zero_set_hyper(a.zero(), -1, "lr", rank == 0 ? 0.5 : 0.25));
        ok(ujoin_ddp_forward(a.ddp(), 1));
        a.backward(1);
        EXPECT_EQ(ujoin_ddp_finish(a.ddp()), UJOIN_E_MISMATCH);
        EXPECT_NE(std::string(ujoin_last_error()).find("ranks differ in hyper-parameters"), std::string::npos)
            << ujoin_last_error();
        EXPECT_EQ(ujoin_ddp_forward(a.ddp(), 1) < 0, true);
    });
}

/// A reducer, and an optimizer that may go before it.
struct Pair {
    explicit Pair(ujoin_group *group) {
        const std::vector<ujoin_param> params = x.params();
        const ujoin_ddp_options options = ddp_kit::ddp_options();
        ujoin_ddp *made = nullptr;
        ok(ujoin_ddp_create(group, params.data(), params.size(), &options, &made));
        ddp.reset(made);
        ujoin_zero_options with{};
        with.size = sizeof with;
        with.ddp = made;
        ujoin_zero *stepping = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &with, &stepping));
        zero.reset(stepping);
    }
    Tensors x{{3}};
    ddp_kit::DdpPtr ddp;
    ddp_kit::ZeroPtr zero;
};

TEST(ZeroOverlapBroken, an_optimizer_that_is_gone_on_one_rank_is_noticed) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Pair pair(group);
        if (rank == 1) pair.zero.reset();
        EXPECT_EQ(ddp_kit::reduce(pair.ddp.get(), 1), UJOIN_E_MISMATCH);
        EXPECT_NE(std::string(ujoin_last_error()).find("whether the reducer steps an optimizer"), std::string::npos)
            << ujoin_last_error();
    });
}

TEST(ZeroOverlapBroken, an_optimizer_that_goes_within_an_iteration_ends_it_on_all) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Pair pair(group);
        ok(ujoin_ddp_forward(pair.ddp.get(), 1));
        if (rank == 1) pair.zero.reset();
        ujoin_status status = ujoin_ddp_ready(pair.ddp.get(), 0); // the other rank may have ended it already
        if (status == UJOIN_OK) status = ujoin_ddp_finish(pair.ddp.get());
        EXPECT_LT(status, 0);
        const std::string text = ujoin_last_error();
        EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
        EXPECT_NE(text.find("the optimizer was destroyed within an iteration"), std::string::npos) << text;
    });
}

} // namespace
