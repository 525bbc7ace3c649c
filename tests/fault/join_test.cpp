// SPDX-License-Identifier: Apache-2.0
// Join contexts when a rank dies, gives up, or does not come.
#include "harness/join_kit.hpp"
#include <atomic>
#include <csignal>
#include <thread>
#include <unistd.h>

using namespace ujoin;
using namespace harness;

namespace {

class JoinFaults : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(int size, const std::function<void(Group &)> &body) { with_groups(GetParam(), size, body); }
};
INSTANTIATE_TEST_SUITE_P(Backends, JoinFaults, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

void die() {
    expect_death(SIGKILL);
    kill(getpid(), SIGKILL);
}

enum class Moment { before_start, after_start, after_a_use, in_main_hook, in_post_hook };

/// Ranks 0 and 2 have 2 inputs, rank 1 has 1 and dies.
void run_with_a_death(Moment moment, int per_use, bool throws) {
    with_groups("shm", 3, [&](Group &g) {
        const bool mine = g.rank() == 1;
        const pid_t pid = getpid();
        double of_victim = mine ? pid : 0;
        const Reducers list = reducers(g, 1, per_use);
        of_victim = list[0]->all_reduce(of_victim);
        list[0]->on_main = [&](const HookArgs &) {
            if (mine && moment == Moment::in_main_hook) die();
        };
        list[0]->on_post = [&](const HookArgs &) {
            if (mine && moment == Moment::in_post_hook) die();
            g.barrier();
        };
        JoinOptions options;
        options.throw_on_exhausted = throws;
        const auto context = context_over(list, options);
        const Error error = error_of([&] {
            if (mine && moment == Moment::before_start) die();
            context->start();
            if (mine && moment == Moment::after_start) die();
            for (int i = 0; i < (mine && !throws ? 1 : 2); i++) {
                list[0]->notify();
                for (int n = 0; n < per_use; n++) list[0]->all_reduce(1);
                if (mine && moment == Moment::after_a_use) die();
            }
            context->finish();
        });
        context->abort("an operation failed");
        EXPECT_EQ(error.code(), UJOIN_E_PEER_LOST) << error.text();
        EXPECT_EQ(error.ranks(), std::vector<int32_t>{1}) << error.text();
        EXPECT_TRUE(has(error.text(), cat("rank 1 (pid ", static_cast<int>(of_victim), ") died"))) << error.text();
        EXPECT_EQ(error_of([&] { context->start(); }).code(), UJOIN_E_PEER_LOST) << "the group is broken";
    });
}

} // namespace

TEST(JoinDeath, with_operations_every_survivor_names_it) {
    for (const Moment moment :
         {Moment::before_start, Moment::after_start, Moment::after_a_use, Moment::in_main_hook, Moment::in_post_hook})
        run_with_a_death(moment, 1, false);
}

TEST(JoinDeath, without_operations_every_survivor_names_it) {
    for (const Moment moment :
         {Moment::before_start, Moment::after_start, Moment::after_a_use, Moment::in_main_hook, Moment::in_post_hook})
        run_with_a_death(moment, 0, false);
}

TEST(JoinDeath, in_throw_mode_every_survivor_names_it) {
    for (const Moment moment : {Moment::after_start, Moment::after_a_use, Moment::in_post_hook})
        run_with_a_death(moment, 0, true);
}

TEST(JoinDeath, a_rank_that_has_finished_owes_nothing) {
    with_groups("shm", 3, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        context->start();
        if (g.rank() != 0) list[0]->use();
        if (g.rank() == 2)
            while (!Head{g.board().bank(0, 1).head.load()}.joined()) usleep(100);
        context->finish();
        if (g.rank() == 0) die(); // as hard as can be
        // Rank 0 is dead or dying; the others still have something to do with each other.
        context->start();
        const Error error = error_of([&] { context->finish(); });
        EXPECT_EQ(error.code(), UJOIN_E_PEER_LOST) << "it is missed in the next context only: " << error.text();
    });
}

TEST_P(JoinFaults, a_rank_that_said_goodbye_after_finish_is_not_blamed) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        list[0]->on_main = [&](const HookArgs &) {}; // ranks 1 and 2 are slower than rank 0
        list[0]->on_post = [&](const HookArgs &) {
            if (g.rank() == 0) return;
            while (g.board().watch().fate(0) != Fate::left) usleep(100);
        };
        const auto context = context_over(list);
        context->start();
        if (g.rank() == 0) list[0]->use();
        context->finish();
        if (g.rank() == 0) g.board().watch().mark(Fate::left, "");
        EXPECT_EQ(list[0]->post_calls, 1);
    });
}

TEST_P(JoinFaults, a_rank_that_leaves_without_finishing_is_named) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        context->start();
        if (g.rank() == 1) {
            context->abort("rank 1 changed its mind");
            EXPECT_EQ(error_of([&] { context->start(); }).code(), UJOIN_E_ABORTED);
            return;
        }
        const Error error = error_of([&] { context->finish(); });
        EXPECT_EQ(error.code(), UJOIN_E_ABORTED);
        EXPECT_EQ(error.ranks(), std::vector<int32_t>{1});
        EXPECT_TRUE(has(error.text(), "rank 1 changed its mind")) << error.text();
    });
}

TEST_P(JoinFaults, abort_from_another_thread_ends_finish_on_every_rank) {
    on_ranks(3, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        context->start();
        std::thread other;
        if (g.rank() == 0) {
            list[0]->use();
            other = std::thread([&] {
                while (g.board().bank(2, 1).event.sleepers.load() == 0) usleep(100); // somebody waits for rank 2
                context->abort("the user pressed stop");
            });
        }
        if (g.rank() == 2) { // still in its body when it happens; rank 0 will not shadow this use
            while (g.board().watch().fate(0) == Fate::none) usleep(100);
            list[0]->notify();
            list[0]->notify();
        }
        const Error error = error_of([&] { context->finish(); });
        if (other.joinable()) other.join();
        EXPECT_EQ(error.code(), UJOIN_E_ABORTED) << error.text();
        EXPECT_TRUE(has(error.text(), "the user pressed stop")) << error.text();
        EXPECT_EQ(error.ranks(), std::vector<int32_t>{0});
        EXPECT_EQ(list[0]->notify(), UJOIN_OK) << "disarmed";
    });
}

TEST_P(JoinFaults, idle_for_too_long) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        JoinOptions options;
        options.idle_timeout_ms = 150;
        const auto context = context_over(list, options);
        context->start();
        if (g.rank() == 1) { // slow, but it gets on: no reason to give up
            for (int i = 0; i < 5; i++) {
                usleep(60'000);
                list[0]->use();
            }
            while (g.board().watch().fate(0) == Fate::none) usleep(1000);
            list[0]->notify(); // one more, which rank 0 will not shadow
        }
        const int64_t begin = now_ms();
        const Error error = error_of([&] { context->finish(); });
        if (g.rank() == 1) {
            EXPECT_EQ(error.code(), UJOIN_E_ABORTED) << error.text();
            return;
        }
        EXPECT_EQ(error.code(), UJOIN_E_TIMEOUT) << error.text();
        EXPECT_EQ(error.ranks(), std::vector<int32_t>{1}) << error.text();
        EXPECT_GE(now_ms() - begin, 150);
    });
}

TEST_P(JoinFaults, a_full_ring_ends_with_the_slow_ranks_death) {
    on_ranks(2, [](Group &g) {
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        context->start();
        if (g.rank() == 1) {
            while (Head{g.board().bank(0, 1).head.load()}.pos() < ring_size) usleep(100);
            context->abort("too slow for this");
            return;
        }
        const Error error = error_of([&] {
            for (int i = 0; i < 1000; i++) list[0]->notify();
        });
        EXPECT_EQ(error.code(), UJOIN_E_ABORTED) << error.text();
        EXPECT_TRUE(has(error.text(), "too slow for this")) << error.text();
        EXPECT_EQ(error_of([&] { context->finish(); }).code(), UJOIN_E_ABORTED)
            << "finish tells the first cause, and disarms";
    });
}
