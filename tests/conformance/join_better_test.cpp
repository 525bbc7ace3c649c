// SPDX-License-Identifier: Apache-2.0
// Rows of join contexts where ujoin does better than what it is measured against: failures that are told to everybody,
// programs that differ between ranks, uses that are no rounds.
#include "harness/join_kit.hpp"
#include <csignal>
#include <thread>
#include <unistd.h>

using namespace ujoin;
using namespace harness;

namespace {

class JoinBetter : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(int size, const std::function<void(Group &)> &body) { with_groups(GetParam(), size, body); }
};
INSTANTIATE_TEST_SUITE_P(Backends, JoinBetter, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

uint64_t head_word(Group &g, uint64_t context) { return g.board().bank(g.rank(), context).head.load(); }

/// A pass in which an error is expected; the context is aborted as a program would do it.
Error failing_pass(JoinContext &context, const std::function<void()> &loop) {
    context.start();
    Error error = error_of([&] {
        loop();
        context.finish();
    });
    context.abort("a pass failed");
    return error;
}

} // namespace

TEST_P(JoinBetter, J_29_one_body_fails) {
    for (const int per_use : {0, 1}) // with operations, and where only the board connects the ranks
        for (const bool before_the_first : {false, true})
            on_ranks(3, [&](Group &g) {
                const Reducers list = reducers(g, 1, per_use);
                const auto context = context_over(list);
                const int64_t begin = now_ms();
                const Error error = failing_pass(*context, [&] {
                    for (int i = 0; i < (g.rank() == 2 ? 1 : 3); i++) {
                        if (g.rank() == 1 && i == (before_the_first ? 0 : 2)) {
                            context->abort("cannot read batch 2");
                            fail(UJOIN_E_SYSTEM, "cannot read batch 2");
                        }
                        list[0]->notify();
                        for (int n = 0; n < per_use; n++) list[0]->all_reduce(1);
                    }
                });
                EXPECT_LT(now_ms() - begin, static_cast<int64_t>(5000 * slack()));
                if (g.rank() == 1) {
                    EXPECT_EQ(error.code(), UJOIN_E_SYSTEM) << "its own error stays what it was";
                    return;
                }
                EXPECT_EQ(error.code(), UJOIN_E_ABORTED) << error.text();
                EXPECT_EQ(error.ranks(), std::vector<int32_t>{1}) << error.text();
                EXPECT_TRUE(has(error.text(), "rank 1") && has(error.text(), "cannot read batch 2")) << error.text();
                EXPECT_EQ(list[0]->post_calls, 0);
            });
}

TEST_P(JoinBetter, J_30_after_the_context_a_use_publishes_nothing) {
    for (const bool throws : {false, true})
        on_ranks(2, [&](Group &g) {
            const Reducers list = reducers(g, 1);
            JoinOptions options;
            options.throw_on_exhausted = throws;
            const auto context = context_over(list, options);
            context->start();
            const Error error = error_of([&] {
                for (int i = 0; i < (throws ? 1 + g.rank() : 1); i++) {
                    list[0]->notify();
                    list[0]->all_reduce(1);
                }
                context->finish();
            });
            EXPECT_EQ(error.code(), throws ? UJOIN_E_EXHAUSTED : UJOIN_OK) << error.text();
            const uint64_t before[2] = {head_word(g, 0), head_word(g, 1)};
            if (g.rank() == 0) { // an evaluation on one rank alone
                int32_t active = 0;
                EXPECT_EQ(list[0]->notify(&active), UJOIN_OK);
                EXPECT_EQ(active, 2) << "no context: all ranks";
            }
            EXPECT_EQ(head_word(g, 0), before[0]);
            EXPECT_EQ(head_word(g, 1), before[1]);
            EXPECT_EQ(context->report().rounds, 1);
            g.barrier();
        });
}

TEST_P(JoinBetter, J_31_a_context_that_was_not_started_arms_nothing) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto never = context_over(list);
        list[0]->use();
        EXPECT_EQ(head_word(g, 0) | head_word(g, 1), 0U);
        { const auto dropped = context_over(list); }
        list[0]->use();
        EXPECT_EQ(head_word(g, 0) | head_word(g, 1), 0U);
        EXPECT_EQ(error_of([&] { never->finish(); }).code(), UJOIN_E_STATE);
        const auto context = context_over(list);
        context->start();
        list[0]->use();
        context->finish();
        EXPECT_EQ(context->rounds(), (std::vector<int64_t>{1, 1}));
    });
}

TEST_P(JoinBetter, J_32_a_second_context_is_refused_and_the_first_goes_on) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 2);
        const auto outer = context_over({list[0]}), same = context_over({list[0]}), other = context_over({list[1]});
        outer->start();
        for (int i = 0; i < 2 + g.rank(); i++) {
            for (const auto &inner : {same, other}) {
                const Error error = error_of([&] { inner->start(); });
                EXPECT_EQ(error.code(), UJOIN_E_STATE);
                EXPECT_TRUE(has(error.text(), "another join context of this group is armed; finish or abort it first"))
                    << error.text();
                EXPECT_EQ(error_of([&] { inner->finish(); }).code(), UJOIN_E_STATE);
                inner->abort("it is not armed: nothing happens");
            }
            const Error again = error_of([&] { outer->start(); });
            EXPECT_EQ(again.code(), UJOIN_E_STATE);
            EXPECT_TRUE(has(again.text(), "the context was started already; finish or abort it first")) << again.text();
            list[0]->use();
        }
        outer->finish();
        EXPECT_EQ(outer->rounds(), (std::vector<int64_t>{2, 3}));
        EXPECT_EQ(list[0]->total, g.rank() == 0 ? 4 : 5);
        EXPECT_EQ(list[0]->main_calls, 1 - g.rank());
        same->start(); // nothing is left of the refused starts
        list[0]->use();
        same->finish();
    });
}

TEST_P(JoinBetter, J_33_a_joinable_notified_twice_in_a_round) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 2);
        const auto context = context_over(list);
        const Error error = failing_pass(*context, [&] {
            for (int i = 0; i < 4; i++)
                for (const auto &r : list) {
                    if (g.rank() == 1 && i == 2 && r == list[1]) r->notify(); // a second forward pass, say
                    r->use();
                }
        });
        EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
        for (const char *part : {"rank 1 in use 6 (joinable \"B\", round 2)", "in use 5 (joinable \"B\", round 2)",
                                 "a joinable was notified too often or too rarely"})
            EXPECT_TRUE(has(error.text(), part)) << error.text();
        EXPECT_EQ(list[0]->post_calls, 0);
    });
}

TEST_P(JoinBetter, J_33_a_joinable_notified_too_rarely) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 2);
        const auto context = context_over(list);
        const Error error = failing_pass(*context, [&] {
            for (int i = 0; i < 4; i++)
                for (const auto &r : list) {
                    if (g.rank() == 0 && i == 1 && r == list[0]) // it forgot to say so
                        r->all_reduce(1);
                    else
                        r->use();
                }
        });
        EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
        for (const char *part : {"rank 0 in use 1 (joinable \"B\", round 0)", "rank 1 in use 2 (joinable \"A\", round 1)",
                                 "a joinable was notified too often or too rarely"})
            EXPECT_TRUE(has(error.text(), part)) << error.text();
    });
}

TEST_P(JoinBetter, J_33_without_operations_the_rings_tell) {
    for (const int rounds : {3, 40}) // found when all is over, and on the way
        on_ranks(3, [&](Group &g) {
            const Reducers list = reducers(g, 2, 0);
            const auto context = context_over(list);
            const Error error = failing_pass(*context, [&] {
                for (int i = 0; i < (g.rank() == 2 ? 0 : rounds); i++)
                    for (const auto &r : list) {
                        r->use();
                        if (g.rank() == 1 && i == 2 && r == list[0]) r->use();
                    }
            });
            EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
            // On the way a rank may have gone on, so that the first difference is overwritten: any is told.
            for (const char *part : {"ranks 0 and 1 ran different uses", "joinable \"A\", round", "joinable \"B\", round",
                                     "a joinable was notified too often or too rarely",
                                     rounds == 3 ? "rank 0 use 5 (joinable \"B\", round 2)" : "",
                                     rounds == 3 ? "rank 1 use 5 (joinable \"A\", round 3)" : ""})
                EXPECT_TRUE(has(error.text(), part)) << error.text();
            EXPECT_EQ(list[0]->post_calls, 0);
        });
}

TEST_P(JoinBetter, J_33_an_operation_that_only_the_loop_issues) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        const Error error = failing_pass(*context, [&] {
            for (int i = 0; i < (g.rank() == 1 ? 2 : 4); i++) {
                list[0]->use();
                list[0]->all_reduce(0.5); // a metric that no joinable shadows
            }
        });
        EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
        for (const char *part : {"all_reduce(sum, f64, 1)", "use 2 (joinable \"A\", round 2)", "which rank 1 has left",
                                 "the loop issues an operation that no main hook does"})
            EXPECT_TRUE(has(error.text(), part)) << error.text();
    });
}

TEST_P(JoinBetter, J_33_an_operation_that_only_the_hook_issues) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        list[0]->on_main = [&](const HookArgs &) { list[0]->all_reduce(0); };
        const auto context = context_over(list);
        const Error error = failing_pass(*context, [&] {
            for (int i = 0; i < 2 * g.rank(); i++) list[0]->use();
        });
        EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
        for (const char *part :
             {"rank 0 is in all_reduce(sum, f64, 1)", "a main hook issues an operation that the loop did not"})
            EXPECT_TRUE(has(error.text(), part)) << error.text();
    });
}

TEST_P(JoinBetter, J_34_a_failing_hook_is_reported_to_all) {
    for (const bool strict : {false, true})
        for (const bool post : {false, true})
            on_ranks(3, [&](Group &g) {
                const Reducers list = reducers(g, 3);
                const auto hook = [&](const HookArgs &) {
                    if (g.rank() == 1) fail(UJOIN_E_CALLBACK, "the pencil broke");
                };
                (post ? list[2]->on_post : list[2]->on_main) = hook;
                for (const auto &r : list) r->send_last = post; // those who do not fail have operations there
                JoinOptions options;
                options.strict = strict;
                const auto context = context_over(list, options);
                const Error error = failing_pass(*context, [&] {
                    for (int i = 0; i < (g.rank() == 1 ? 1 : 3); i++)
                        for (const auto &r : list) {
                            r->notify();
                            r->all_reduce(1);
                        }
                });
                EXPECT_EQ(error.code(), g.rank() == 1 ? UJOIN_E_CALLBACK : UJOIN_E_ABORTED) << error.text();
                EXPECT_EQ(error.ranks(), std::vector<int32_t>{1}) << error.text();
                const std::string who = cat(post ? "post" : "main", " hook 2 (joinable \"C\") on rank 1: the pencil broke");
                EXPECT_TRUE(has(error.text(), who)) << error.text();
                EXPECT_EQ(list[2]->main_calls, g.rank() == 1 ? (post ? 2 : 1) : 0);
            });
}

TEST_P(JoinBetter, J_35_an_unknown_option_is_refused_and_the_known_listed) {
    on_ranks(1, [](Group &g) {
        JoinOptions options;
        options.hook_options = {{"num_allreduces", 1}, {"learning_rate", 2}};
        const Error error = error_of([&] { context_over(reducers(g, 2), options); });
        EXPECT_EQ(error.code(), UJOIN_E_INVALID);
        EXPECT_TRUE(has(error.text(), "no joinable knows the hook option \"learning_rate\"; known are: num_allreduces"))
            << error.text();
        struct Plain final : Joinable {
            explicit Plain(Group &group) : Joinable(group.shared_from_this(), "plain") {}
            void main_hook(const HookArgs &) override {}
            void post_hook(const HookArgs &) override {}
        };
        const Error none = error_of([&] { JoinContext::create({std::make_shared<Plain>(g)}, options); });
        EXPECT_EQ(none.code(), UJOIN_E_INVALID);
        EXPECT_TRUE(has(none.text(), "no joinable knows the hook option \"num_allreduces\"; they have none"))
            << none.text();
    });
}

TEST_P(JoinBetter, no_inputs_on_any_rank) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 2);
        list[0]->send_last = true;
        const auto context = context_over(list);
        for (int pass = 1; pass <= 3; pass++) {
            context->start();
            context->finish();
            EXPECT_EQ(list[0]->post_calls, pass);
            EXPECT_TRUE(list[0]->last.is_last_joiner) << "zero is the largest number of uses";
            EXPECT_EQ(list[0]->last.authoritative_rank, 2);
            EXPECT_EQ(context->rounds(), (std::vector<int64_t>{0, 0, 0}));
        }
        EXPECT_EQ(list[0]->value, 42);
        EXPECT_EQ(list[0]->main_calls + list[1]->main_calls, 0);
    });
}

TEST_P(JoinBetter, one_context_for_many_epochs) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 2);
        const auto context = context_over(list);
        double expected = 0;
        int shadows = 0;
        for (int epoch = 0; epoch < 100; epoch++) {
            const auto inputs_of = [&](int k) { return (epoch + k * k) % 4; };
            const int mine = inputs_of(g.rank());
            int most = 0;
            for (int k = 0; k < 3; k++) {
                most = std::max(most, inputs_of(k));
                expected += std::min(mine, inputs_of(k)); // what rank k added to this rank's rounds
            }
            shadows += most - mine;
            context->start();
            for (int i = 0; i < mine; i++)
                for (const auto &r : list) r->use();
            context->finish();
            ASSERT_EQ(list[0]->total, expected) << "epoch " << epoch;
            ASSERT_EQ(list[1]->main_calls, shadows) << "epoch " << epoch;
            ASSERT_EQ(context->report().shadow_uses, 2 * (most - mine)) << "of this epoch alone";
            ASSERT_EQ(context->report().rounds, mine);
        }
    });
}

TEST_P(JoinBetter, JOIN_02_joining_in_the_middle_of_an_accumulation_window) {
    for (const bool by_active : {false, true})
        on_ranks(2, [&](Group &g) {
            const Reducers list = reducers(g, 1);
            double w = 1, gradient = 0;
            int reductions = 0;
            const auto reduce_and_step = [&] {
                OpArgs op;
                op.kind = OpKind::all_reduce;
                op.dtype = UJOIN_F64;
                op.count = 1;
                op.divide = by_active ? Divide::contributors : Divide::ranks;
                op.recv = Memory(&gradient, sizeof gradient);
                g.run(op);
                EXPECT_EQ(gradient, reductions == 0 ? 2 : by_active ? 2 : 1);
                reductions++;
                w -= 0.1 * gradient;
                gradient = 0;
            };
            list[0]->on_main = [&](const HookArgs &) { reduce_and_step(); };
            JoinOptions options;
            options.hook_options = {{"num_allreduces", 0}}; // the hook's own reduction is the one above
            const auto context = context_over(list, options);
            context->start();
            for (int i = 1; i <= (g.rank() == 0 ? 3 : 5); i++) {
                gradient += 1;
                if (i % 2 != 0) continue; // not synchronised: no use, nothing to shadow
                list[0]->notify();
                reduce_and_step();
            }
            context->finish();
            EXPECT_EQ(reductions, 2);
            EXPECT_NEAR(w, by_active ? 0.6 : 0.7, 1e-12);
            EXPECT_EQ(list[0]->main_calls, 1 - g.rank());
        });
}

TEST_P(JoinBetter, two_optimizers_and_skipped_steps_under_one_context) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 3); // a reducer, an optimizer for every second round, another that skips round 3
        std::vector<std::string> order;
        for (const auto &r : list) r->order = &order;
        const auto context = context_over(list);
        const auto uses_of = [](int round) {
            std::vector<size_t> uses{0};
            if (round % 2 == 1) uses.push_back(1);
            if (round != 3) uses.push_back(2);
            return uses;
        };
        const int mine = g.rank() == 1 ? 1 : g.rank() == 0 ? 4 : 6;
        context->start();
        for (int round = 0; round < mine; round++)
            for (const size_t j : uses_of(round)) list[j]->use();
        context->finish();
        std::vector<std::string> expected;
        for (int round = mine; round < 6; round++)
            for (const size_t j : uses_of(round)) expected.push_back(list[j]->name() + ".main");
        for (const char *post : {"A.post", "B.post", "C.post"}) expected.emplace_back(post);
        EXPECT_EQ(order, expected);
        EXPECT_EQ(context->report().shadow_rounds, 6 - mine);
    });
}

TEST_P(JoinBetter, a_wait_for_others_progress_has_no_deadline) {
    const auto body = [&](Group &g) {
        const Reducers list = reducers(g, 1);
        list[0]->send_last = true;
        const auto context = context_over(list);
        context->start();
        if (g.rank() == 1) { // validates "for an hour": while the other waits for several of its slices
            while (!g.board().joined(0, 1)) std::this_thread::yield();
            const int64_t end = now_ms() + 3 * stray_check_ms;
            while (now_ms() < end) std::this_thread::yield();
            list[0]->use();
        }
        context->finish();
        EXPECT_EQ(list[0]->value, 42);
        if (g.rank() == 0) {
            EXPECT_GE(context->report().wait_ns, 2 * stray_check_ms * 1'000'000) << "and the report tells";
        }
    };
    with_groups(GetParam(), 2, body, [](GroupConfig &config) { config.timeout_ms = 1; }); // of bare collectives
}

namespace {

JoinContext *signalled_raw = nullptr; // NOLINT: what a handler sees must be global

} // namespace

TEST(JoinBetterSignal, LAUNCHER_08_a_signal_to_one_rank_stops_all_at_the_same_step) {
    for (int run = 0; run < 20; run++)
        with_groups("shm", 4, [&](Group &g) {
            const Reducers list = reducers(g, 1);
            const auto context = context_over(list);
            signalled_raw = context.get();
            struct sigaction act {};
            act.sa_handler = [](int) { signalled_raw->stop(); };
            sigaction(SIGTERM, &act, nullptr);
            context->start();
            double steps = 0;
            const int at = 5 + run % 7;
            for (; steps < 100 && !context->stopped(); steps++) {
                if (g.rank() == run % 4 && steps == at) kill(getpid(), SIGTERM);
                list[0]->use();
            }
            context->finish();
            signal(SIGTERM, SIG_DFL);
            EXPECT_GE(steps, at + 1);
            EXPECT_LE(steps, at + 2) << "at most 2 steps after the signal";
            EXPECT_TRUE(context->report().stopped);
            EXPECT_EQ(list[0]->all_reduce(steps), 4 * steps) << "the same step on every rank";
        });
}
