// SPDX-License-Identifier: Apache-2.0
// Updates while gradients are still computed: params_released_on_ready. Each run beside one that reduces and then steps, which
// must have the same bits, and with looks at the parameters between one gradient and the next.
#include "harness/overlap_kit.hpp"
#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <latch>
#include <numeric>
#include <thread>

using namespace harness;

namespace {

class ZeroReleased : public TestOfRanks {};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroReleased,
                         testing::Values(Where{"self", 1}, Where{"local", 2}, Where{"local", 3}, Where{"shm", 2},
                                         Where{"tcp", 2}, Where{"hier", 3}),
                         where_name);

TEST_P(ZeroReleased, every_kind_of_iteration_has_the_bits_of_a_step_apart) {
    std::vector<Recipe> recipes{Recipe{}, released()};
    recipes[0].released = true; // two buckets of several parameters
    for (const bool static_graph : {false, true})
        for (const bool views : {false, true}) {
            Recipe &recipe = recipes.emplace_back(released());
            recipe.static_graph = static_graph;
            recipe.gradient_view = views;
            recipe.parameter_view = views;
            recipe.partition = UJOIN_PARTITION_ELEMENTS;
            recipe.buffers = 20;
        }
    recipes.emplace_back(released()).find_unused = true;
    for (const ujoin_comm_hook_kind hook : {UJOIN_COMM_HOOK_F16, UJOIN_COMM_HOOK_LOW_RANK})
        recipes.emplace_back(released()).hook = hook;
    on_ranks([&](ujoin_group *group, int) {
        for (const Recipe &recipe : recipes) expect_parity(group, recipe);
    });
}

TEST_P(ZeroReleased, unused_parameters) {
    Recipe dynamic = released();
    dynamic.find_unused = true;
    Recipe fixed = released();
    fixed.static_graph = true;
    on_ranks([&](ujoin_group *group, int rank) {
        expect_parity(group, dynamic,
                      [rank](int t) { return [=](size_t p) { return p == 0 ? t == 3 : p != 2 || rank == 0; }; });
        expect_parity(group, fixed, [rank](int) { return [=](size_t p) { return p != 2 || rank == 0; }; });
    });
}

/// Elements of a rank's own pieces.
std::vector<float> own_values(const Trainer &trainer, size_t param, int rank) {
    std::vector<float> values;
    for (const ujoin_shard &shard : trainer.shards())
        if (shard.param == param && shard.rank == rank)
            values.insert(values.end(), trainer.value(param) + shard.offset,
                          trainer.value(param) + shard.offset + shard.count);
    return values;
}

/// One iteration; how many parameters of which this rank has a piece were updated before the last gradient was ready, and
/// before finish.
std::pair<int, int> updated_early(Trainer &trainer, int rank, int t) {
    ok(ujoin_ddp_forward(trainer.ddp(), 1));
    std::vector<std::vector<float>> before(trainer.size());
    for (size_t p = 0; p < trainer.size(); p++) before[p] = own_values(trainer, p, rank);
    const auto changed = [&] {
        int count = 0;
        for (size_t p = 0; p < trainer.size(); p++) count += own_values(trainer, p, rank) != before[p] ? 1 : 0;
        return count;
    };
    std::pair<int, int> counts;
    trainer.backward(t, [&](size_t p) {
        if (p == 0) counts.first = changed();
        return true;
    });
    counts.second = changed();
    EXPECT_EQ(own_values(trainer, 0, rank), before[0]); // the last bucket is left to finish
    ok(ujoin_ddp_finish(trainer.ddp()));
    return counts;
}

TEST_P(ZeroReleased, updates_are_made_before_finish_with_the_option_and_never_without) {
    on_ranks([](ujoin_group *group, int rank) {
        const auto counts = [&](Recipe recipe, int iterations) {
            recipe.partition = UJOIN_PARTITION_ELEMENTS;
            recipe.counts.assign(6, 4000);
            Trainer trainer(group, recipe);
            std::pair<int, int> last;
            for (int t = 0; t < iterations; t++) last = updated_early(trainer, rank, t);
            EXPECT_EQ(trainer.state().at("0/p0/step"), std::vector<double>{static_cast<double>(iterations)});
            return last;
        };
        const std::pair<int, int> none;
        const int size = ujoin_group_size(group);
        // Before the last gradient: of all but it and the one before. A rank may have nothing of a parameter.
        for (const int iterations : {1, 3}) {
            const std::pair<int, int> early = counts(released(), iterations);
            EXPECT_GE(early.second, size == 1 ? 5 : 1);
            EXPECT_GE(early.first, size == 1 ? 4 : rank == size - 1 ? 1 : 0); // the last rank has the first bucket
            Recipe without = released();
            without.released = false;
            EXPECT_EQ(counts(without, iterations), none);
            Recipe dynamic = released();
            dynamic.find_unused = true;
            EXPECT_EQ(counts(dynamic, iterations), none);
        }
        Recipe fixed = released();
        fixed.static_graph = true;
        EXPECT_EQ(counts(fixed, 1), none); // what is used is not known yet
        EXPECT_GE(counts(fixed, 2).second, size == 1 ? 5 : 1);
    });
}

TEST_P(ZeroReleased, gradients_in_an_order_of_each_ranks_own) {
    on_ranks([](ujoin_group *group, int rank) {
        Trainer a(group, released());
        Trainer b(group, apart(released()));
        for (int t = 0; t < 4; t++) {
            for (Trainer *each : {&a, &b}) {
                each->clear();
                ok(ujoin_ddp_forward(each->ddp(), 1));
                std::vector<size_t> order(each->size());
                std::iota(order.begin(), order.end(), size_t{0});
                std::rotate(order.begin(), order.begin() + (rank + t) % 5, order.end());
                for (const size_t p : order) each->backward(t, [p](size_t q) { return q == p; });
                ok(ujoin_ddp_finish(each->ddp()));
                if (each == &b) ok(zero_step(b.zero(), nullptr));
            }
        }
        expect_same(a, b);
    });
}

TEST_P(ZeroReleased, gradients_from_several_threads) {
    on_ranks([](ujoin_group *group, int) {
        Trainer a(group, released());
        Trainer b(group, apart(released()));
        for (int t = 0; t < 4; t++) {
            for (Trainer *each : {&a, &b}) {
                each->clear();
                ok(ujoin_ddp_forward(each->ddp(), 1));
                std::vector<std::thread> threads;
                for (size_t k = 0; k < 3; k++)
                    threads.emplace_back([=] { each->backward(t, [k](size_t p) { return p % 3 == k; }); });
                for (std::thread &thread : threads) thread.join();
                ok(ujoin_ddp_finish(each->ddp()));
                if (each == &b) ok(zero_step(b.zero(), nullptr));
            }
        }
        expect_same(a, b);
    });
}

TEST_P(ZeroReleased, accumulation_makes_one_update) {
    on_ranks([](ujoin_group *group, int) {
        Trainer a(group, released());
        Trainer b(group, apart(released()));
        for (int window = 0; window < 2; window++)
            for (Trainer *each : {&a, &b}) {
                each->clear();
                const auto before = each->values();
                for (int t = 0; t < 2; t++) each->iterate(3 * window + t, all_used, false);
                EXPECT_TRUE(each->values() == before);
                each->iterate(3 * window + 2);
            }
        expect_same(a, b);
        EXPECT_EQ(a.state().at("0/p0/step"), std::vector<double>{2});
    });
}

TEST_P(ZeroReleased, uneven_inputs) {
    for (const ujoin_division division : {UJOIN_DIVISION_ACTIVE, UJOIN_DIVISION_SAMPLES})
        on_ranks([&](ujoin_group *group, int rank) {
            Recipe recipe = released();
            recipe.division = division;
            const auto train = [&](Trainer &trainer, const std::vector<ujoin_joinable *> &joinables) {
                for (int epoch = 0; epoch < 2; epoch++) {
                    const ddp_kit::CtxPtr ctx = ddp_kit::make_ctx(joinables);
                    ok(ujoin_ctx_start(ctx.get()));
                    for (int t = 0; t < 1 + 2 * rank; t++) {
                        trainer.clear();
                        trainer.iterate(t);
                    }
                    ok(ujoin_ctx_finish(ctx.get()));
                }
            };
            Trainer b(group, apart(recipe));
            train(b, {ujoin_ddp_joinable(b.ddp()), zero_joinable(b.zero())});
            Trainer a(group, recipe);
            train(a, {ujoin_ddp_joinable(a.ddp()), zero_joinable(a.zero())});
            EXPECT_TRUE(a.values() == b.values());
            EXPECT_TRUE(a.state() == b.state());
        });
}

TEST(ZeroReleasedRanks, a_subgroup) {
    const std::string meeting = "local://" + unique("released");
    harness::on_ranks("local", 4, [&](ujoin_group *, int rank) {
        if (rank % 2 == 0) return;
        const ddp_kit::GroupPtr group = ddp_kit::make_group(meeting, "local", rank / 2, 2);
        expect_parity(group.get(), released());
    });
}

TEST(ZeroReleasedRanks, ranks_that_differ_in_the_option_are_told) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Tensors x({3});
        ujoin_ddp_options options = ddp_kit::ddp_options();
        options.params_released_on_ready = rank;
        ujoin_ddp *ddp = nullptr;
        EXPECT_EQ(ujoin_ddp_create(group, x.params().data(), 1, &options, &ddp), UJOIN_E_MISMATCH);
        const std::string text = ujoin_last_error();
        EXPECT_NE(text.find("params_released_on_ready: 0 on rank 0, 1 on rank 1"), std::string::npos) << text;
        options.params_released_on_ready = 2;
        EXPECT_EQ(ujoin_ddp_create(group, x.params().data(), 1, &options, &ddp), UJOIN_E_INVALID);
        EXPECT_NE(std::string(ujoin_last_error()).find("params_released_on_ready"), std::string::npos);
    });
}

void expect_text(const std::vector<std::string> &parts) {
    for (const std::string &part : parts)
        EXPECT_NE(std::string(ujoin_last_error()).find(part), std::string::npos) << part << " in: " << ujoin_last_error();
}

/// Gradients from the last to the first, as far as there is no error.
ujoin_status go_backward(const Trainer &trainer) {
    ujoin_status status = UJOIN_OK;
    for (size_t p = trainer.size(); p-- > 0 && status == UJOIN_OK;) status = ujoin_ddp_ready(trainer.ddp(), p);
    return status;
}

void expect_broken(const Trainer &trainer) {
    EXPECT_EQ(zero_save(trainer.zero(), "/nowhere", nullptr), UJOIN_E_STATE);
    expect_text({"a step failed half-way"});
    EXPECT_LT(ujoin_ddp_forward(trainer.ddp(), 1), 0);
}

TEST(ZeroReleasedErrors, what_would_disturb_a_step_is_refused_while_it_is_under_way) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int) {
        Trainer a(group, released());
        Trainer b(group, apart(released()));
        for (Trainer *each : {&a, &b}) each->iterate(0);
        const ddp_kit::Body refuse = [&](ujoin_group *, int) {
            const auto refused = [](ujoin_status status) {
                EXPECT_EQ(status, UJOIN_E_STATE);
                expect_text({"rank ", "call ujoin_ddp_finish first"});
            };
            Tensors late({4});
            refused(zero_set_hyper(a.zero(), -1, "lr", 0.5));
            refused(zero_set_frozen(a.zero(), 0, 1));
            refused(zero_set_gradient(a.zero(), 0, nullptr));
            refused(zero_add_param_group(a.zero(), late.params().data(), 1, nullptr, 0));
            refused(zero_clear_gradients(a.zero()));
            refused(zero_consolidate_state_dict(a.zero(), 0));
            refused(zero_save(a.zero(), "/nowhere", nullptr));
            refused(zero_load(a.zero(), "/nowhere", nullptr, nullptr));
            StateOwner state;
            ok(ujoin_state_create(&state.state));
            refused(zero_load_state_dict(a.zero(), state.state));
        };
        for (Trainer *each : {&a, &b}) {
            ok(ujoin_ddp_forward(each->ddp(), 1));
            each->backward(1);
            if (each == &a) refuse(group, 0);
            ok(ujoin_ddp_finish(each->ddp()));
        }
        ok(zero_step(b.zero(), nullptr));
        expect_same(a, b);
        ok(zero_set_hyper(a.zero(), -1, "lr", 0.5)); // and now it is possible
    });
}

TEST(ZeroReleasedErrors, hyper_parameters_that_differ_end_the_iteration) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Trainer a(group, released());
        a.iterate(0);
        ok(zero_set_hyper(a.zero(), -1, "lr", rank == 0 ? 0.5 : 0.25));
        ok(ujoin_ddp_forward(a.ddp(), 1));
        EXPECT_EQ(go_backward(a), UJOIN_E_MISMATCH);
        expect_text({"ujoin_ddp_ready", "ranks differ in hyper-parameters"});
        EXPECT_EQ(ujoin_ddp_ready(a.ddp(), 0), UJOIN_E_MISMATCH);
        EXPECT_EQ(ujoin_ddp_finish(a.ddp()), UJOIN_E_MISMATCH); // tells it again
        expect_text({"ujoin_ddp_finish", "ranks differ in hyper-parameters"});
        expect_broken(a);
    });
}

struct Watch {
    bool fails = false;
    int calls = 0;
    int refused = 0;
    ujoin_ddp *ddp = nullptr;
};

ujoin_status descend(void *data, const ujoin_rule_args *args) {
    auto &watch = *static_cast<Watch *>(data);
    watch.calls++;
    if (watch.ddp && ujoin_ddp_set_sync(watch.ddp, 1) == UJOIN_E_STATE) watch.refused++;
    if (watch.fails) return UJOIN_E_CALLBACK;
    for (size_t k = 0; k < args->count; k++)
        static_cast<float *>(args->data)[k] -= 0.1F * static_cast<const float *>(args->grad)[k];
    return UJOIN_OK;
}

TEST(ZeroReleasedErrors, a_rule_runs_within_ready_and_its_failure_is_told_by_finish_on_every_rank) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Watch watch;
        ujoin_rule rule{};
        rule.size = sizeof rule;
        rule.name = "descent";
        rule.step = descend;
        rule.user_data = &watch;
        Recipe recipe = released();
        recipe.rule = UJOIN_OPTIMIZER_CUSTOM;
        recipe.custom = &rule;
        recipe.partition = UJOIN_PARTITION_ELEMENTS;
        Trainer a(group, recipe);
        watch.ddp = a.ddp();
        ok(ujoin_ddp_forward(a.ddp(), 1));
        a.backward(0);
        EXPECT_GT(watch.calls, 0);
        EXPECT_EQ(watch.refused, watch.calls);
        ok(ujoin_ddp_finish(a.ddp()));

        watch.fails = rank == 1;
        ok(ujoin_ddp_forward(a.ddp(), 1));
        a.backward(1); // well: which rank fails is agreed on at the end
        EXPECT_EQ(ujoin_ddp_finish(a.ddp()), UJOIN_E_CALLBACK);
        expect_text({"rank 1", "descent"});
        expect_broken(a);
        expect_parity(group, released()); // the group is whole
    });
}

TEST(ZeroReleasedErrors, an_optimizer_that_goes_within_an_iteration_ends_it_on_all) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Tensors x({3, 3, 3, 3, 3, 3});
        ujoin_ddp_options options = ddp_kit::ddp_options();
        options.bucket_bytes = 1;
        options.params_released_on_ready = 1;
        ujoin_ddp *made = nullptr;
        ok(ujoin_ddp_create(group, x.params().data(), x.data.size(), &options, &made));
        const ddp_kit::DdpPtr ddp(made);
        ujoin_zero_options with{};
        with.size = sizeof with;
        with.ddp = made;
        ujoin_zero *stepping = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_SGD, x.params().data(), x.data.size(), &with, &stepping));
        ddp_kit::ZeroPtr zero(stepping);
        ok(ujoin_ddp_forward(made, 1));
        ujoin_status status = UJOIN_OK;
        for (size_t p = x.data.size(); p-- > 0 && status == UJOIN_OK;) {
            if (p == 3 && rank == 1) zero.reset(); // an update is in flight
            status = ujoin_ddp_ready(made, p);
        }
        EXPECT_LT(status < 0 ? status : ujoin_ddp_finish(made), 0);
        expect_text({"rank 1", "the optimizer was destroyed within an iteration"});
    });
}

TEST(ZeroReleasedErrors, a_rank_that_is_killed_between_two_gradients) {
    harness::on_ranks("shm", 3, [](ujoin_group *group, int rank) {
        Trainer a(group, released());
        a.iterate(0);
        ok(ujoin_ddp_forward(a.ddp(), 1));
        for (size_t p = a.size(); p-- > 0 && rank == 2;) {
            ok(ujoin_ddp_ready(a.ddp(), p));
            if (p != 2) continue;
            expect_death(SIGKILL);
            ::kill(::getpid(), SIGKILL);
        }
        ujoin_status status = go_backward(a);
        if (status == UJOIN_OK) status = ujoin_ddp_finish(a.ddp());
        EXPECT_EQ(status, UJOIN_E_PEER_LOST);
        expect_text({"rank 2"});
        EXPECT_LT(ujoin_ddp_finish(a.ddp()), 0);
        expect_broken(a);
    });
}

/// Tells when the reduction of the second bucket was put in flight: its `ready` waits for the first bucket then.
struct Announcing {
    std::atomic<int> started{0};
    static ujoin_status start(void *data, const ujoin_bucket *bucket, ujoin_work **out) {
        static_cast<Announcing *>(data)->started++;
        return ujoin_all_reduce(bucket->group, nullptr, &bucket->buffer, UJOIN_SUM, nullptr, out);
    }
};

TEST(ZeroReleasedErrors, an_abort_ends_a_wait_within_ready) {
    std::latch over{1};
    harness::on_ranks("local", 2, [&](ujoin_group *group, int rank) {
        Announcing announcing;
        Trainer a(group, released());
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.start = Announcing::start;
        hook.user_data = &announcing;
        ok(ujoin_ddp_set_comm_hook(a.ddp(), &hook));
        ok(ujoin_ddp_forward(a.ddp(), 1));
        if (rank == 1) { // has no gradient until all is over
            over.wait();
            const ujoin_status status = go_backward(a);
            EXPECT_EQ(status < 0 ? status : ujoin_ddp_finish(a.ddp()), UJOIN_E_ABORTED) << ujoin_last_error();
            return;
        }
        std::thread other([&] {
            while (announcing.started < 2) std::this_thread::yield();
            ujoin_group_abort(group, "enough");
        });
        EXPECT_EQ(go_backward(a), UJOIN_E_ABORTED);
        expect_text({"enough"});
        other.join();
        EXPECT_EQ(ujoin_ddp_finish(a.ddp()), UJOIN_E_ABORTED);
        over.count_down();
    });
}

} // namespace
