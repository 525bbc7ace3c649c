// SPDX-License-Identifier: Apache-2.0
// Rows of join contexts, on ranks that are threads and ranks that are processes.
#include "api/handles.hpp"
#include "base/log.hpp"
#include "harness/join_kit.hpp"
#include <atomic>

using namespace ujoin;
using namespace harness;

namespace {

class JoinRows : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(int size, const std::function<void(Group &)> &body) { with_groups(GetParam(), size, body); }
};
INSTANTIATE_TEST_SUITE_P(Backends, JoinRows, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

/// Rank r has 3 + r inputs: its total with k all-reduces per joinable and use.
double uneven_total(int size, int rank, int per_use) {
    int total = 3 * size;
    for (int j = 1; j <= rank; j++) total += size - j;
    return total * per_use;
}

struct Uneven {
    int joinables = 1;
    int per_use = 1;
    bool post = false;
    bool strict = false;
    JoinOptions options = {};
};

/// Rank r has 3 + r inputs.
void run_uneven(Group &group, const Uneven &setup) {
    const Reducers list = reducers(group, setup.joinables, setup.per_use);
    for (const auto &r : list) {
        r->send_last = setup.post;
        if (!setup.options.hook_options.empty()) r->without_option = 0; // only the option says how many
        r->on_main = r->on_post = [&](const HookArgs &args) { EXPECT_EQ(*args.options, setup.options.hook_options); };
    }
    JoinOptions options = setup.options;
    options.strict = setup.strict;
    const auto context = context_over(list, options);
    context->start();
    for (int i = 0; i < 3 + group.rank(); i++)
        for (const auto &r : list) r->use();
    context->finish();
    double total = 0;
    for (const auto &r : list) {
        total += r->total;
        EXPECT_EQ(r->value, setup.post ? 42 : 41);
        EXPECT_EQ(r->main_calls, group.size() - 1 - group.rank());
        EXPECT_EQ(r->post_calls, 1);
        EXPECT_EQ(r->last.is_last_joiner, group.rank() == group.size() - 1);
        EXPECT_EQ(r->last.authoritative_rank, group.size() - 1);
    }
    EXPECT_EQ(total, setup.joinables * uneven_total(group.size(), group.rank(), setup.per_use));
    const JoinReport report = context->report();
    EXPECT_EQ(report.rounds, 3 + group.rank());
    EXPECT_EQ(report.shadow_rounds, group.size() - 1 - group.rank());
    EXPECT_EQ(report.joined, group.size());
    std::vector<int64_t> rounds;
    for (int k = 0; k < group.size(); k++) rounds.push_back(3 + k);
    EXPECT_EQ(context->rounds(), rounds);
}

/// The whole of a run as the program that uses the C functions sees it.
struct Counter {
    ujoin_group *group;
    double last_count = 0;
    double count = 0;
};
double sum_of(ujoin_group *group, double value) {
    const ujoin_buffer buffer{&value, 1, UJOIN_F64, 0, 0, 0};
    EXPECT_EQ(ujoin_all_reduce(group, nullptr, &buffer, UJOIN_SUM, nullptr, nullptr), UJOIN_OK) << ujoin_last_error();
    return value;
}

} // namespace

TEST_P(JoinRows, J_01_two_ranks) {
    on_ranks(2, [](Group &g) { run_uneven(g, {}); });
}
TEST_P(JoinRows, J_02_three_ranks) {
    on_ranks(3, [](Group &g) { run_uneven(g, {}); });
}
TEST_P(JoinRows, J_03_four_ranks) {
    on_ranks(4, [](Group &g) { run_uneven(g, {}); });
}

TEST_P(JoinRows, J_04_nothing_to_reduce) {
    for (const int size : {2, 3, 4})
        for (const bool post : {false, true})
            on_ranks(size, [&](Group &g) { run_uneven(g, {.joinables = 1, .per_use = 0, .post = post}); });
}

TEST_P(JoinRows, J_05_post_hooks_send_from_the_authoritative_rank) {
    for (const int size : {2, 3, 4}) on_ranks(size, [](Group &g) { run_uneven(g, {.post = true}); });
}

TEST_P(JoinRows, J_06_three_joinables_two_ranks) {
    for (const bool strict : {false, true})
        on_ranks(2, [&](Group &g) { run_uneven(g, {.joinables = 3, .post = true, .strict = strict}); });
}

TEST_P(JoinRows, J_07_three_joinables_four_ranks) {
    for (const bool strict : {false, true})
        on_ranks(4, [&](Group &g) { run_uneven(g, {.joinables = 3, .post = true, .strict = strict}); });
}

TEST_P(JoinRows, J_08_J_09_disabled_with_even_inputs) {
    for (const int joinables : {1, 3})
        on_ranks(3, [&](Group &g) {
            const Reducers list = reducers(g, joinables);
            JoinOptions options;
            options.disabled = true;
            const auto context = context_over(list, options);
            context->start();
            double total = 0;
            for (int i = 0; i < 3; i++)
                for (const auto &r : list) {
                    int32_t active = 0;
                    r->use(&active);
                    EXPECT_EQ(active, 3);
                }
            context->finish();
            for (const auto &r : list) {
                total += r->total;
                EXPECT_EQ(r->main_calls + r->post_calls, 0);
            }
            EXPECT_EQ(total, joinables * 9);
            for (int k = 0; k < 3; k++) // nothing was published
                for (uint64_t c = 0; c < 2; c++) EXPECT_EQ(g.board().bank(k, c).head.load(), 0U);
        });
}

TEST_P(JoinRows, J_10_J_11_throw_mode_uneven) {
    for (const int joinables : {1, 3})
        on_ranks(3, [&](Group &g) {
            const Reducers list = reducers(g, joinables);
            JoinOptions options;
            options.throw_on_exhausted = true;
            const auto context = context_over(list, options);
            for (int pass = 0; pass < 3; pass++) { // the group is not broken: the next context may start at once
                context->start();
                int rounds = 0;
                const Error error = error_of([&] {
                    for (; rounds < 3 + g.rank(); rounds++)
                        for (const auto &r : list) {
                            r->notify();
                            r->all_reduce(1);
                        }
                    context->finish();
                });
                EXPECT_EQ(error.code(), UJOIN_E_EXHAUSTED);
                EXPECT_EQ(rounds, 3);
                EXPECT_EQ(error.ranks(), std::vector<int32_t>{0});
                EXPECT_TRUE(has(error.text(),
                                g.rank() == 0 ? "Rank 0 exhausted all inputs" : "at least one rank that exhausted inputs"))
                    << error.text();
                EXPECT_EQ(error_of([&] { context->finish(); }).code(), UJOIN_E_STATE); // it is over on every rank
            }
            for (const auto &r : list) EXPECT_EQ(r->main_calls + r->post_calls, 0);
            g.barrier();
        });
}

TEST_P(JoinRows, J_12_J_13_hook_options_reach_the_hooks) {
    for (const int size : {2, 4})
        on_ranks(size, [](Group &g) {
            Uneven setup{.joinables = 1, .per_use = 2};
            setup.options.hook_options = {{"num_allreduces", 2}};
            run_uneven(g, setup);
        });
}

TEST_P(JoinRows, J_14_counter_with_the_c_functions) {
    on_ranks(2, [](Group &g) {
        ujoin_group group(g.shared_from_this());
        Counter counter{&group};
        ujoin_hooks hooks{};
        hooks.size = sizeof hooks;
        hooks.user_data = &counter;
        hooks.main_hook = [](void *data, const ujoin_hook_args *args) -> ujoin_status {
            int32_t active = -1;
            EXPECT_EQ(ujoin_joinable_notify(args->joinable, &active), UJOIN_JOINED);
            EXPECT_EQ(active, args->active);
            sum_of(static_cast<Counter *>(data)->group, 0);
            return UJOIN_OK;
        };
        hooks.post_hook = [](void *data, const ujoin_hook_args *args) -> ujoin_status {
            auto *c = static_cast<Counter *>(data);
            c->last_count = c->count;
            const ujoin_buffer buffer{&c->last_count, 1, UJOIN_F64, 0, 0, 0};
            return ujoin_broadcast(c->group, &buffer, args->authoritative_rank, nullptr, nullptr);
        };
        ujoin_joinable *joinable = nullptr;
        ujoin_ctx *context = nullptr;
        ASSERT_EQ(ujoin_joinable_create(&group, &hooks, &joinable), UJOIN_OK);
        ASSERT_EQ(ujoin_ctx_create(&joinable, 1, nullptr, &context), UJOIN_OK);
        ASSERT_EQ(ujoin_ctx_start(context), UJOIN_OK);
        for (int i = 0; i < 5 + g.rank(); i++) {
            EXPECT_EQ(ujoin_joinable_notify(joinable, nullptr), UJOIN_OK);
            counter.count += sum_of(&group, 1);
        }
        EXPECT_EQ(ujoin_ctx_finish(context), UJOIN_OK) << ujoin_last_error();
        EXPECT_EQ(counter.count, g.rank() == 0 ? 10 : 11);
        EXPECT_EQ(counter.last_count, 11);
        ujoin_ctx_destroy(context);
        ujoin_joinable_destroy(joinable);
    });
}

TEST_P(JoinRows, J_16_no_joinables) {
    EXPECT_EQ(error_of([] { context_over({}); }).code(), UJOIN_E_INVALID);
}

TEST_P(JoinRows, J_17_joinables_of_two_groups) {
    on_ranks(1, [](Group &one) {
        GroupConfig config;
        config.rendezvous = "local://" + unique("other");
        config.backend = "local";
        config.size = 1;
        const auto other = Group::create(config);
        const Reducers list{std::make_shared<AllReducer>(one, "a"), std::make_shared<AllReducer>(*other, "b")};
        const Error error = error_of([&] { context_over(list); });
        EXPECT_EQ(error.code(), UJOIN_E_INVALID);
        EXPECT_TRUE(has(error.text(), "another group")) << error.text();
    });
}

TEST_P(JoinRows, J_19_even_inputs_run_no_main_hook) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 2);
        const auto context = context_over(list);
        context->start();
        for (int i = 0; i < 4; i++)
            for (const auto &r : list) r->use();
        context->finish();
        for (const auto &r : list) {
            EXPECT_EQ(r->main_calls, 0);
            EXPECT_EQ(r->post_calls, 1);
            EXPECT_TRUE(r->last.is_last_joiner);
            EXPECT_EQ(r->last.authoritative_rank, 2);
        }
        EXPECT_TRUE(context->report().is_last_joiner);
    });
}

TEST_P(JoinRows, J_20_four_ranks_with_2_5_5_1_inputs) {
    for (const bool strict : {false, true})
        on_ranks(4, [&](Group &g) {
            const Reducers list = reducers(g, 2);
            JoinOptions options;
            options.strict = strict;
            const auto context = context_over(list, options);
            const int inputs[] = {2, 5, 5, 1};
            const int mine = inputs[g.rank()];
            context->start();
            for (int i = 0; i < mine; i++)
                for (const auto &r : list) r->use();
            context->finish();
            for (const auto &r : list) {
                EXPECT_EQ(r->main_calls, 5 - mine);
                std::vector<int64_t> rounds;
                for (int64_t i = mine; i < 5; i++) rounds.push_back(i);
                EXPECT_EQ(r->rounds, rounds);
                EXPECT_EQ(r->last.is_last_joiner, mine == 5);
                EXPECT_EQ(r->last.authoritative_rank, 2);
            }
            EXPECT_EQ(context->rounds(), (std::vector<int64_t>{2, 5, 5, 1}));
            const JoinReport report = context->report();
            EXPECT_EQ(report.rounds, mine);
            EXPECT_EQ(report.shadow_rounds, 5 - mine);
            EXPECT_EQ(report.shadow_uses, (5 - mine) * 2);
            EXPECT_EQ(report.authoritative_rank, 2);
        });
}

TEST_P(JoinRows, J_21_a_rank_without_inputs) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        context->start();
        for (int i = 0; i < (g.rank() == 1 ? 0 : 5); i++) list[0]->use();
        context->finish();
        EXPECT_EQ(list[0]->main_calls, g.rank() == 1 ? 5 : 0);
        EXPECT_EQ(list[0]->total, g.rank() == 1 ? 0 : 10);
    });
}

TEST_P(JoinRows, J_22_throw_mode_with_even_inputs) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 1);
        list[0]->send_last = true;
        JoinOptions options;
        options.throw_on_exhausted = true;
        const auto context = context_over(list, options);
        for (int pass = 1; pass <= 3; pass++) {
            context->start();
            for (int i = 0; i < pass; i++) list[0]->use();
            context->finish();
            EXPECT_EQ(list[0]->post_calls, pass);
            EXPECT_TRUE(list[0]->last.is_last_joiner);
        }
        EXPECT_EQ(list[0]->value, 42);
        EXPECT_EQ(list[0]->main_calls, 0);
    });
}

TEST_P(JoinRows, J_23_the_body_fails_on_every_rank) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        context->start();
        list[0]->use();
        try {
            throw std::runtime_error("my own error");
        } catch (const std::runtime_error &error) {
            context->abort(error.what());
            EXPECT_STREQ(error.what(), "my own error");
        }
        EXPECT_EQ(list[0]->main_calls + list[0]->post_calls, 0);
        const Error error = error_of([&] { context->finish(); });
        EXPECT_EQ(error.code(), UJOIN_E_ABORTED);
        EXPECT_TRUE(has(error.text(), "my own error")) << error.text();
        EXPECT_EQ(list[0]->notify(), UJOIN_OK) << "the joinable is not armed any more";
    });
}

TEST_P(JoinRows, J_24_hooks_run_in_the_order_of_the_list) {
    for (const bool strict : {false, true})
        on_ranks(2, [&](Group &g) {
            const Reducers list = reducers(g, 3);
            std::vector<std::string> order;
            for (const auto &r : list) r->order = &order;
            JoinOptions options;
            options.strict = strict;
            const auto context = context_over(list, options);
            context->start();
            for (int i = 0; i < 2 * g.rank(); i++)
                for (const auto &r : list) r->use();
            context->finish();
            std::vector<std::string> expected;
            if (g.rank() == 0) expected = {"A.main", "B.main", "C.main", "A.main", "B.main", "C.main"};
            for (const char *post : {"A.post", "B.post", "C.post"}) expected.emplace_back(post);
            EXPECT_EQ(order, expected);
        });
}

namespace {

struct Lines {
    std::mutex mutex;
    std::vector<std::string> all;
};

} // namespace

TEST_P(JoinRows, J_25_skew_warning_once) {
    struct Case {
        int64_t threshold; ///< 0: the default; negative: never
        int skew;
        bool warns;
    };
    for (const auto [threshold, skew, warns] :
         {Case{0, 1001, false}, Case{0, 1002, true}, Case{7, 8, false}, Case{7, 30, true}, Case{-1, 1100, false}})
        on_ranks(2, [&, threshold = threshold, skew = skew, warns = warns](Group &g) {
            static Lines lines;
            if (g.rank() == 0) {
                lines.all.clear();
                set_log_sink(
                    UJOIN_LOG_WARNING,
                    [](void *data, ujoin_log_level, const char *text) {
                        auto *to = static_cast<Lines *>(data);
                        const std::scoped_lock lock(to->mutex);
                        to->all.emplace_back(text);
                    },
                    &lines, nullptr);
            }
            const Reducers list = reducers(g, 1);
            constexpr int own = 2; // inputs of the rank that warns
            JoinOptions options;
            if (threshold != 0) options.skew_warning_rounds = threshold;
            const int64_t limit = options.skew_warning_rounds;
            size_t before = 99; // warnings when the round of that index is in its hook: the warning came before it
            list[0]->on_main = [&](const HookArgs &args) {
                const std::scoped_lock lock(lines.mutex);
                if (args.round == own + limit) {
                    EXPECT_EQ(lines.all.size(), 0U);
                }
                if (args.round == own + limit + 1) before = lines.all.size();
            };
            const auto context = context_over(list, options);
            context->start();
            for (int i = 0; i < own + (g.rank() == 0 ? 0 : skew); i++) list[0]->use();
            context->finish();
            g.barrier();
            if (g.rank() != 0) return;
            set_log_sink(0, nullptr, nullptr, nullptr);
            ASSERT_EQ(lines.all.size(), warns ? 1U : 0U);
            if (!warns) return;
            EXPECT_EQ(before, 1U);
            EXPECT_TRUE(has(lines.all[0], cat("join: rank 0 ran out of inputs after 2 rounds and has worked for the others "
                                              "for more than ",
                                              limit, "; inputs are very uneven")))
                << lines.all[0];
        });
}

TEST_P(JoinRows, J_26_one_rank) {
    on_ranks(1, [](Group &g) {
        const Reducers list = reducers(g, 1);
        list[0]->send_last = true;
        const auto context = context_over(list);
        context->start();
        for (int i = 0; i < 40; i++) list[0]->use(); // more than a ring
        context->finish();
        EXPECT_EQ(list[0]->main_calls, 0);
        EXPECT_EQ(list[0]->post_calls, 1);
        EXPECT_TRUE(list[0]->last.is_last_joiner);
        EXPECT_EQ(list[0]->total, 40);
    });
}

TEST_P(JoinRows, J_27_the_second_joinable_is_silent_under_strict) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 2);
        JoinOptions options;
        options.strict = true;
        const auto context = context_over(list, options);
        context->start();
        const uint64_t before = g.board().bank(g.rank(), 1).head.load();
        int32_t active = 0;
        EXPECT_EQ(list[1]->notify(&active), UJOIN_OK);
        EXPECT_EQ(active, 2);
        EXPECT_EQ(g.board().bank(g.rank(), 1).head.load(), before);
        list[0]->use();
        EXPECT_NE(g.board().bank(g.rank(), 1).head.load(), before);
        context->finish();
    });
}

TEST_P(JoinRows, J_28_the_number_of_active_ranks) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        context->start();
        for (int i = 0; i < (g.rank() == 1 ? 1 : 4); i++) {
            int32_t active = 0;
            list[0]->use(&active);
            EXPECT_EQ(active, i == 0 ? 3 : 2);
            EXPECT_EQ(list[0]->contributors, active) << "the slots tell the same";
        }
        context->finish();
    });
}

TEST_P(JoinRows, JOIN_06_a_failed_body_is_not_the_end_of_inputs) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        const int64_t begin = now_ms();
        context->start();
        const Error error = error_of([&] {
            for (int i = 0; i < 4; i++) {
                if (g.rank() == 1 && i == 1) {
                    context->abort("the disk is full");
                    fail(UJOIN_E_CALLBACK, "the disk is full");
                }
                list[0]->notify();
                const double sum = list[0]->all_reduce(1);
                EXPECT_EQ(sum, 2) << "never over one rank alone";
                EXPECT_EQ(list[0]->contributors, 2);
            }
            context->finish();
        });
        if (g.rank() == 1) {
            EXPECT_EQ(error.text(), "the disk is full");
        } else {
            EXPECT_EQ(error.code(), UJOIN_E_ABORTED);
            EXPECT_EQ(error.ranks(), std::vector<int32_t>{1});
            EXPECT_TRUE(has(error.text(), "rank 1") && has(error.text(), "the disk is full")) << error.text();
            const Error again = error_of([&] { context->finish(); });
            EXPECT_EQ(again.code(), UJOIN_E_ABORTED) << again.text();
        }
        EXPECT_LT(now_ms() - begin, static_cast<int64_t>(5000 * slack()));
    });
}
