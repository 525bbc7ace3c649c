// SPDX-License-Identifier: Apache-2.0
// The protocol of join contexts: orders of events that once went wrong, several contexts in a row, stops.
#include "comm/head.hpp"
#include "harness/join_kit.hpp"
#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <thread>

using namespace ujoin;
using namespace harness;

namespace {

void on_threads(int size, const std::function<void(Group &)> &body) { with_groups("local", size, body); }

/// Waits for what another rank does soon; the harness ends a test that hangs.
template <class Done> void until(Done &&done) {
    while (!done()) std::this_thread::yield();
}

Head head_of(Group &group, int32_t k, uint64_t context) {
    return Head{group.board().bank(k, context).head.load()}.in(context);
}

} // namespace

TEST(JoinHead, holds_all_its_parts) {
    const Head head = Head::make(0x1'0003, (uint64_t{1} << 45) - 1, true, false);
    EXPECT_TRUE(head.joined());
    EXPECT_FALSE(head.stop());
    EXPECT_EQ(head.pos(), (uint64_t{1} << 45) - 1);
    EXPECT_EQ(head.in(3).word, head.word) << "the tag is 16 bits of the context's number";
    EXPECT_EQ(head.in(1).word, 0U);
    EXPECT_TRUE(Head::make(1, 0, false, true).stop());
}

TEST(JoinProtocol, a_rank_that_joins_last_replays_what_those_before_it_ran) {
    on_threads(2, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        context->start();
        if (g.rank() == 0)
            list[0]->use();
        else
            until([&] { return head_of(g, 0, 1).joined(); });
        context->finish();
        EXPECT_EQ(list[0]->main_calls, g.rank());
        EXPECT_EQ(context->report().is_last_joiner, g.rank() == 0);
        EXPECT_EQ(context->report().authoritative_rank, 0);
    });
}

TEST(JoinProtocol, nobody_overtakes_a_slow_active_rank_by_more_than_the_ring) {
    on_threads(2, [](Group &g) {
        const Reducers list = reducers(g, 3, 0);
        std::vector<std::string> order;
        for (const auto &r : list) r->order = &order;
        const auto context = context_over(list);
        context->start();
        std::vector<std::string> expected;
        std::minstd_rand random(7);
        if (g.rank() == 0) {
            for (int i = 0; i < 200; i++) list[random() % 3]->use();
        } else {
            until([&] { return head_of(g, 0, 1).pos() >= ring_size; });
            for (int i = 0; i < 20; i++) std::this_thread::yield();
            EXPECT_EQ(head_of(g, 0, 1).pos(), ring_size) << "rank 0 must not overwrite entry 0";
            for (int i = 0; i < 200; i++)
                expected.push_back(std::string(1, static_cast<char>('A' + random() % 3)) + ".main");
        }
        context->finish();
        for (const char *post : {"A.post", "B.post", "C.post"}) expected.emplace_back(post);
        EXPECT_EQ(order, expected);
    });
}

TEST(JoinProtocol, the_entry_is_there_when_the_position_says_so) {
    on_threads(2, [](Group &g) {
        const Reducers list = reducers(g, 2, 0);
        std::vector<int> replayed;
        for (size_t i = 0; i < 2; i++)
            list[i]->on_main = [&, i](const HookArgs &) { replayed.push_back(static_cast<int>(i)); };
        const auto context = context_over(list);
        context->start();
        std::minstd_rand random(11);
        std::vector<int> expected;
        for (int i = 0; i < 4000; i++) {
            const int j = static_cast<int>(random() >> 7) & 1;
            if (g.rank() == 1)
                expected.push_back(j);
            else
                list[static_cast<size_t>(j)]->use();
            // Now and then the follower has gone to sleep when the next use comes.
            if (g.rank() == 0 && i % 64 == 0) until([&] { return head_of(g, 1, 1).pos() == static_cast<uint64_t>(i) + 1; });
        }
        context->finish();
        EXPECT_EQ(replayed, expected);
    });
}

TEST(JoinProtocol, finish_waits_until_the_last_main_hook_has_succeeded) {
    static std::atomic<int> returned;
    returned = 0;
    on_threads(3, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        list[0]->on_main = [&](const HookArgs &) {
            if (g.rank() != 1) return;
            const int64_t end = now_ms() + 200; // all others are through by then if they do not wait for this rank
            until([&] { return returned == 2 || now_ms() > end; });
            fail(UJOIN_E_CALLBACK, "no more paper");
        };
        const auto context = context_over(list);
        context->start();
        if (g.rank() == 0) list[0]->use();
        const Error error = error_of([&] { context->finish(); });
        returned++;
        EXPECT_EQ(error.code(), g.rank() == 1 ? UJOIN_E_CALLBACK : UJOIN_E_ABORTED);
        for (const char *part : {"main hook 0", "\"A\"", "rank 1", "no more paper"})
            EXPECT_TRUE(has(error.text(), part)) << error.text();
        EXPECT_EQ(error.ranks(), std::vector<int32_t>{1});
        EXPECT_EQ(list[0]->post_calls, 0);
    });
}

TEST(JoinProtocol, a_failing_post_hook_reaches_those_who_need_it) {
    on_threads(2, [](Group &g) {
        const Reducers list = reducers(g, 2, 0);
        list[1]->on_post = [&](const HookArgs &) {
            if (g.rank() == 1) fail(UJOIN_E_CALLBACK, "bad last word");
            g.barrier();
        };
        const auto context = context_over(list);
        context->start();
        const Error error = error_of([&] { context->finish(); });
        EXPECT_EQ(error.code(), g.rank() == 1 ? UJOIN_E_CALLBACK : UJOIN_E_ABORTED);
        EXPECT_TRUE(has(error.text(), "post hook 1 (joinable \"B\") on rank 1: bad last word")) << error.text();
    });
}

TEST(JoinProtocol, contexts_follow_each_other_at_once) {
    on_threads(3, [](Group &g) {
        const Reducers list = reducers(g, 1, 0); // no operation holds the ranks together
        const auto context = context_over(list);
        for (int c = 0; c < 300; c++) {
            const auto inputs_of = [&](int k) { return (c * 7 + k * 5 + c * k) % 4; };
            list[0]->main_calls = 0;
            context->start();
            for (int i = 0; i < inputs_of(g.rank()); i++) list[0]->use();
            context->finish();
            int most = 0;
            std::vector<int64_t> expected;
            for (int k = 0; k < 3; k++) {
                expected.push_back(inputs_of(k));
                most = std::max(most, inputs_of(k));
            }
            ASSERT_EQ(context->rounds(), expected) << "context " << c;
            ASSERT_EQ(list[0]->main_calls, most - inputs_of(g.rank())) << "context " << c;
        }
    });
}

TEST(JoinProtocol, contexts_in_throw_mode_end_alike_on_all_ranks) {
    on_threads(3, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        JoinOptions options;
        options.throw_on_exhausted = true;
        const auto context = context_over(list, options);
        for (int c = 0; c < 300; c++) {
            const auto inputs_of = [&](int k) { return (c * 3 + k * ((c >> 2) % 3)) % 3; };
            int least = 99, most = 0;
            for (int k = 0; k < 3; k++) {
                least = std::min(least, inputs_of(k));
                most = std::max(most, inputs_of(k));
            }
            int rounds = 0;
            context->start();
            const Error error = error_of([&] {
                for (; rounds < inputs_of(g.rank()); rounds++) list[0]->notify();
                context->finish();
            });
            ASSERT_EQ(error.code(), least == most ? UJOIN_OK : UJOIN_E_EXHAUSTED)
                << "context " << c << ": " << error.text();
            ASSERT_EQ(rounds, least);
        }
        EXPECT_EQ(list[0]->main_calls, 0);
    });
}

/// The models show why: its peers may have blamed it before it published that it is there, and return another error.
TEST(JoinProtocol, a_rank_aborted_on_its_way_out_does_not_say_exhausted) {
    class AbortedInFinish : public AllReducer {
      public:
        using AllReducer::AllReducer;
        /// Stands for another thread: what finish looked at before says that all is well.
        void check_between_uses() const override { group()->abort("the other thread had enough"); }
    };
    on_threads(2, [](Group &g) {
        const auto reducer = g.rank() == 0 ? std::make_shared<AbortedInFinish>(g) : std::make_shared<AllReducer>(g);
        JoinOptions options;
        options.throw_on_exhausted = true;
        const auto context = context_over({reducer}, options);
        context->start();
        if (g.rank() == 1) {
            const Error error = error_of([&] { reducer->notify(); });
            EXPECT_NE(error.code(), UJOIN_OK) << "rank 0 has no such use";
            return;
        }
        until([&] { return head_of(g, 1, 1).pos() == 1; });
        const Error error = error_of([&] { context->finish(); });
        EXPECT_EQ(error.code(), UJOIN_E_ABORTED) << error.text();
        EXPECT_TRUE(has(error.text(), "the other thread had enough")) << error.text();
    });
}

TEST(JoinProtocol, a_context_over_other_joinables_is_a_mismatch_on_every_rank) {
    for (const bool by_options : {false, true})
        on_threads(3, [&](Group &g) {
            const Reducers list = reducers(g, by_options || g.rank() != 1 ? 2 : 1, 0);
            JoinOptions options;
            options.strict = by_options && g.rank() == 2;
            const auto context = context_over(list, options);
            context->start();
            const Error error = error_of([&] { context->finish(); });
            EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
            EXPECT_TRUE(has(error.text(), "different joinables or options")) << error.text();
            EXPECT_TRUE(has(error.text(), by_options ? " and 2 started" : "1")) << error.text();
        });
}

TEST(JoinProtocol, one_context_is_armed_at_a_time) {
    on_threads(2, [](Group &g) {
        const Reducers list = reducers(g, 2);
        const auto a = context_over({list[0]}), b = context_over({list[1]});
        EXPECT_EQ(error_of([&] { a->finish(); }).code(), UJOIN_E_STATE);
        a->start();
        EXPECT_EQ(error_of([&] { a->start(); }).code(), UJOIN_E_STATE);
        EXPECT_EQ(error_of([&] { b->start(); }).code(), UJOIN_E_STATE);
        EXPECT_EQ(error_of([&] { b->finish(); }).code(), UJOIN_E_STATE);
        int32_t active = 0;
        list[1]->use(&active); // not in the armed context: nothing but its operation
        EXPECT_EQ(active, 2);
        EXPECT_EQ(head_of(g, g.rank(), 1).pos(), 0U);
        b->abort("not armed: nothing");
        a->finish();
        b->start();
        list[0]->use(&active); // its context is over: nothing in either
        EXPECT_EQ(active, 2);
        EXPECT_EQ(head_of(g, g.rank(), 1).pos(), 0U);
        EXPECT_EQ(head_of(g, g.rank(), 2).pos(), 0U);
        list[1]->use();
        b->finish();
        EXPECT_EQ(b->rounds(), (std::vector<int64_t>{1, 1}));
        EXPECT_EQ(error_of([&] { context_over({list[0], list[0]}); }).code(), UJOIN_E_INVALID);
        JoinOptions options;
        options.hook_options = {{"num_allreduce", 1}};
        const Error error = error_of([&] { context_over(list, options); });
        EXPECT_EQ(error.code(), UJOIN_E_INVALID);
        EXPECT_TRUE(has(error.text(), "num_allreduces")) << error.text();
    });
}

TEST(JoinProtocol, a_second_call_inside_is_refused) {
    on_threads(1, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        list[0]->on_post = [&](const HookArgs &) {
            const std::pair<const char *, std::function<void()>> calls[] = {{"start", [&] { context->start(); }},
                                                                            {"finish", [&] { context->finish(); }},
                                                                            {"stopped", [&] { context->stopped(); }}};
            for (const auto &[call, body] : calls) {
                const Error error = error_of(body);
                EXPECT_EQ(error.code(), UJOIN_E_STATE);
                EXPECT_TRUE(has(error.text(), cat(call, " while another call on this group's join context is running "
                                                        "(a hook); let one thread at a time work with it")))
                    << error.text();
            }
            EXPECT_EQ(list[0]->notify(), UJOIN_JOINED);
        };
        context->start();
        context->finish();
        EXPECT_EQ(list[0]->post_calls, 1);
        EXPECT_EQ(context.use_count(), 1) << "nothing keeps a context that is not armed";
    });
}

TEST(JoinProtocol, sixty_four_ranks) {
    on_threads(64, [](Group &g) {
        const Reducers list = reducers(g, 2);
        for (const auto &r : list) r->send_last = true;
        const auto context = context_over(list);
        context->start();
        const int inputs = g.rank() % 4;
        for (int i = 0; i < inputs; i++)
            for (const auto &r : list) r->use();
        context->finish();
        double expected = 0;
        for (int i = 0; i < inputs; i++) expected += (3 - i) * 16; // ranks that have more than i inputs
        for (const auto &r : list) {
            EXPECT_EQ(r->total, expected);
            EXPECT_EQ(r->main_calls, 3 - inputs);
            EXPECT_EQ(r->value, 42);
            EXPECT_EQ(r->last.authoritative_rank, 63);
        }
    });
}

TEST(JoinProtocol, many_ranks_without_operations) {
    on_threads(24, [](Group &g) {
        const Reducers list = reducers(g, 2, 0);
        const auto context = context_over(list);
        for (int c = 0; c < 4; c++) {
            list[0]->main_calls = list[1]->main_calls = 0;
            context->start();
            const int inputs = (g.rank() * (c + 1)) % 20;
            for (int i = 0; i < inputs; i++)
                for (const auto &r : list) r->use();
            context->finish();
            int most = 0;
            for (int k = 0; k < 24; k++) most = std::max(most, (k * (c + 1)) % 20);
            for (const auto &r : list) ASSERT_EQ(r->main_calls, most - inputs);
        }
    });
}

TEST(JoinProtocol, operations_in_flight_are_completed_where_others_may_need_them) {
    on_threads(3, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        context->start();
        std::vector<double> data(50, 1);
        std::vector<std::shared_ptr<Work>> works;
        for (int i = 0; i < (g.rank() == 2 ? 50 : 3); i++) {
            list[0]->notify();
            OpArgs op;
            op.kind = OpKind::all_reduce;
            op.dtype = UJOIN_F64;
            op.count = 1;
            op.recv = Memory(&data[static_cast<size_t>(i)], sizeof(double));
            works.push_back(g.submit(op, Deadline::never()));
        }
        context->finish();
        for (size_t i = 0; i < works.size(); i++) {
            EXPECT_TRUE(works[i]->done());
            EXPECT_EQ(data[i], i < 3 ? 3 : 1);
        }
    });
}

TEST(JoinStop, with_operations_all_leave_after_the_same_round) {
    for (const int asker : {0, 1, 2})
        on_threads(3, [&](Group &g) {
            const Reducers list = reducers(g, 2);
            const auto context = context_over(list);
            context->start();
            int rounds = 0;
            while (rounds < 100) {
                if (g.rank() == asker && rounds == 5) context->stop();
                for (const auto &r : list) r->use();
                rounds++;
                const bool stopped = context->stopped();
                EXPECT_EQ(stopped, rounds == 6);
                if (stopped) break;
            }
            EXPECT_TRUE(context->stopped()) << "until finish";
            context->finish();
            EXPECT_EQ(rounds, 6);
            EXPECT_TRUE(context->report().stopped);
            EXPECT_EQ(list[0]->main_calls, 0);
            context->start(); // the request is answered
            list[0]->use();
            EXPECT_FALSE(context->stopped());
            context->finish();
            EXPECT_FALSE(context->report().stopped);
        });
}

TEST(JoinStop, a_joined_rank_may_ask) {
    on_threads(3, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        list[0]->on_main = [&](const HookArgs &args) {
            if (g.rank() == 1 && args.round == 4) context->stop();
        };
        context->start();
        int rounds = 0;
        for (; rounds < (g.rank() == 1 ? 0 : 100) && !context->stopped(); rounds++) list[0]->use();
        context->finish();
        EXPECT_EQ(rounds, g.rank() == 1 ? 0 : 5);
        EXPECT_TRUE(context->report().stopped);
    });
}

TEST(JoinStop, without_operations_all_leave_before_the_same_use) {
    on_threads(2, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        context->start();
        if (g.rank() == 1) {
            until([&] { return head_of(g, 0, 1).pos() >= ring_size; }); // the fast one is as far ahead as it can be
            context->stop();
        }
        uint64_t uses = 0;
        for (; uses < 1000 && !context->stopped(); uses++) list[0]->use();
        context->finish();
        EXPECT_EQ(uses, ring_size);
        EXPECT_EQ(context->rounds(), (std::vector<int64_t>{ring_size, ring_size}));
        EXPECT_TRUE(context->report().stopped);
    });
}

TEST(JoinStop, a_joined_rank_may_ask_without_operations) {
    on_threads(3, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        list[0]->on_main = [&](const HookArgs &args) {
            if (g.rank() == 1 && args.round == 4) context->stop();
        };
        context->start();
        int64_t rounds = 0;
        for (; rounds < (g.rank() == 1 ? 0 : 1000) && !context->stopped(); rounds++) list[0]->use();
        context->finish();
        EXPECT_TRUE(context->report().stopped);
        if (g.rank() == 1) return;
        EXPECT_EQ(rounds, 5 + static_cast<int64_t>(ring_size)) << "seen before the shadow of use 5";
    });
}

TEST(JoinStop, a_late_request_belongs_to_the_next_context) {
    on_threads(2, [](Group &g) {
        const Reducers list = reducers(g, 1);
        list[0]->send_last = true;
        const auto context = context_over(list);
        bool asked = false;
        list[0]->on_post = [&](const HookArgs &) {
            if (g.rank() == 0 && !asked) context->stop();
            asked = true;
        };
        context->start();
        list[0]->use();
        context->finish();
        EXPECT_FALSE(context->report().stopped);
        context->start();
        list[0]->use();
        EXPECT_TRUE(context->stopped());
        context->finish();
        EXPECT_TRUE(context->report().stopped);
    });
}

/// Rank 0 asks when it has joined and nothing follows that could carry its request, and rank 1 has stopped the pass anyway.
TEST(JoinStop, a_request_that_nobody_was_shown_stops_the_next_context) {
    on_threads(2, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        list[0]->on_main = [&](const HookArgs &) { context->stop(); };
        context->start();
        if (g.rank() == 1) {
            list[0]->use();
            context->stop();
        }
        context->finish();
        EXPECT_TRUE(context->report().stopped);
        EXPECT_EQ(list[0]->main_calls, 1 - g.rank());
        context->start();
        int rounds = 0;
        for (; rounds < 100 && !context->stopped(); rounds++) list[0]->use();
        context->finish();
        EXPECT_TRUE(context->report().stopped);
        EXPECT_EQ(rounds, static_cast<int>(ring_size)) << "asked before use 0";
        context->start(); // both requests have been answered
        list[0]->use();
        EXPECT_FALSE(context->stopped());
        context->finish();
        EXPECT_FALSE(context->report().stopped);
    });
}

/// A hook may leave an operation in flight, which completes while the next context is armed.
TEST(JoinStop, an_agreement_that_is_told_late_is_of_its_own_context) {
    Gate gate;
    const auto operation_of = [&](uint64_t context) {
        gate.arm(nullptr, context);
        gate.begin_use(0, true);
        OpArgs op;
        gate.before(op);
        op.outcome.stop = true; // as the slots of all ranks say
        return op;
    };
    OpArgs op = operation_of(1);
    gate.after(op);
    EXPECT_TRUE(gate.stop_agreed());
    gate.arm(nullptr, 2);
    EXPECT_FALSE(gate.stop_agreed()) << "a new context";
    gate.after(op);
    EXPECT_FALSE(gate.stop_agreed()) << "told by an operation of the context before";
    gate.after(operation_of(2));
    EXPECT_TRUE(gate.stop_agreed());
    gate.begin_use(1, false);
    EXPECT_TRUE(gate.stop_agreed()) << "for the whole context, not for one use";
    op = operation_of(256); // its number ends in zeros
    EXPECT_FALSE(gate.stop_agreed());
    gate.after(op);
    EXPECT_TRUE(gate.stop_agreed());
}

TEST(JoinStop, asked_before_the_join_finish_answers_alike) {
    on_threads(3, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        context->start();
        list[0]->use();
        if (g.rank() == 2) context->stop();
        context->finish();
        EXPECT_TRUE(context->report().stopped);
    });
}

TEST(JoinStop, outside_of_a_context_there_is_none) {
    on_threads(1, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        EXPECT_FALSE(context->stopped());
        context->stop();
        EXPECT_FALSE(context->stopped());
        context->start();
        list[0]->use();
        EXPECT_TRUE(context->stopped());
        context->finish();
    });
}

namespace {

/// One round of a random program: which joinables are used, in order.
using Round = std::vector<size_t>;

} // namespace

TEST(JoinRandom, schedules_replay_the_common_sequence) {
    std::random_device device;
    const unsigned seed = device();
    std::printf("seed %u\n", seed);
    std::mt19937 random(seed);
    for (int run = 0; run < 12; run++) {
        const int size = 2 + static_cast<int>(random() % 4);
        const int per_use[3] = {static_cast<int>(random() % 2), static_cast<int>(random() % 3), 0};
        const bool strict = random() % 4 == 0;
        constexpr int contexts = 5;
        std::vector<std::vector<Round>> program(contexts);
        std::vector<std::vector<size_t>> inputs(contexts);
        for (int c = 0; c < contexts; c++) {
            const size_t rounds = random() % 30;
            for (size_t i = 0; i < rounds; i++) {
                Round round;
                if (strict)
                    round = {0, 1, 2};
                else
                    for (size_t n = random() % 4; n > 0; n--) round.push_back(random() % 3);
                program[static_cast<size_t>(c)].push_back(round);
            }
            for (int k = 0; k < size; k++) inputs[static_cast<size_t>(c)].push_back(rounds ? random() % (rounds + 1) : 0);
        }
        const unsigned jitter = static_cast<unsigned>(random());
        on_threads(size, [&](Group &g) {
            std::minstd_rand pause(jitter + static_cast<unsigned>(g.rank()));
            Reducers list;
            for (int i = 0; i < 3; i++) list.push_back(std::make_shared<AllReducer>(g, std::to_string(i), per_use[i]));
            std::vector<size_t> replayed;
            for (size_t i = 0; i < 3; i++) list[i]->on_main = [&, i](const HookArgs &) { replayed.push_back(i); };
            JoinOptions options;
            options.strict = strict;
            const auto context = context_over(list, options);
            for (size_t c = 0; c < contexts; c++) {
                const size_t mine = inputs[c][static_cast<size_t>(g.rank())];
                const size_t most = *std::max_element(inputs[c].begin(), inputs[c].end());
                std::vector<size_t> expected;
                std::vector<int64_t> rounds;
                for (const size_t n : inputs[c]) {
                    int64_t first = 0;
                    for (size_t i = 0; i < n; i++)
                        first += std::count(program[c][i].begin(), program[c][i].end(), size_t{0});
                    rounds.push_back(first);
                }
                replayed.clear();
                context->start();
                for (size_t i = 0; i < most; i++)
                    for (const size_t j : program[c][i]) {
                        if (i < mine)
                            list[j]->use();
                        else
                            expected.push_back(j);
                        if (i < mine && pause() % 8 == 0) std::this_thread::yield();
                    }
                context->finish();
                ASSERT_EQ(replayed, expected) << "seed " << seed << " run " << run << " context " << c;
                ASSERT_EQ(context->rounds(), rounds) << "seed " << seed << " run " << run << " context " << c;
            }
        });
        if (testing::Test::HasFailure()) break;
    }
}
