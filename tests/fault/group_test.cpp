// SPDX-License-Identifier: Apache-2.0
// What groups do when a rank dies, gives up, comes late, or calls something else.
#include "harness/groups.hpp"
#include <algorithm>
#include <csignal>
#include <thread>
#include <unistd.h>

using namespace ujoin;

namespace {

ujoin_status status_of(const std::function<void()> &body, std::string *text = nullptr,
                       std::vector<int32_t> *ranks = nullptr) {
    try {
        body();
        return UJOIN_OK;
    } catch (const Error &error) {
        if (text) *text = error.text();
        if (ranks) *ranks = error.ranks();
        return error.code();
    }
}

class GroupFaults : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(int size, const std::function<void(Group &)> &body) { harness::with_groups(GetParam(), size, body); }
};
INSTANTIATE_TEST_SUITE_P(Backends, GroupFaults, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

TEST_P(GroupFaults, different_operations_are_a_mismatch_on_every_rank) {
    on_ranks(3, [](Group &group) {
        float data[4] = {};
        OpArgs op;
        op.kind = OpKind::all_reduce;
        op.dtype = UJOIN_F32;
        op.count = group.rank() == 1 ? 3 : 4;
        op.recv = Memory(data, op.count * 4);
        std::string text;
        EXPECT_EQ(status_of([&] { group.run(op); }, &text), UJOIN_E_MISMATCH);
        EXPECT_NE(text.find("all_reduce(sum, f32, 3)"), std::string::npos) << text;
        EXPECT_NE(text.find("all_reduce(sum, f32, 4)"), std::string::npos) << text;
        EXPECT_EQ(status_of([&] { group.barrier(); }, &text), UJOIN_E_MISMATCH) << "the group is broken: the first cause";
    });
}

TEST_P(GroupFaults, a_late_rank_is_a_timeout_that_names_it) {
    on_ranks(3, [](Group &group) {
        if (group.rank() == 2) {
            // Comes once both others have given up, which it sees from their marks.
            while (group.board().watch().fate(0) == Fate::none || group.board().watch().fate(1) == Fate::none) usleep(1000);
            return;
        }
        std::string text;
        std::vector<int32_t> ranks;
        OpArgs op;
        op.kind = OpKind::barrier;
        const int64_t before = now_ms();
        const ujoin_status status = status_of([&] { group.run(op, Deadline::in(200)); }, &text, &ranks);
        EXPECT_GE(now_ms() - before, 200);
        EXPECT_EQ(status, UJOIN_E_TIMEOUT);
        EXPECT_EQ(ranks, std::vector<int32_t>{2}) << text;
        EXPECT_NE(text.find("barrier"), std::string::npos) << text;
        EXPECT_EQ(status_of([&] { group.barrier(); }), UJOIN_E_TIMEOUT);
    });
}

TEST_P(GroupFaults, COLLECTIVES_08_a_barrier_in_vain_names_all_who_are_missing_and_nobody_else) {
    for (const std::vector<int32_t> &absent : {std::vector<int32_t>{1, 3}, std::vector<int32_t>{0}})
        on_ranks(4, [&](Group &group) {
            const auto away = [&](int32_t rank) { return std::find(absent.begin(), absent.end(), rank) != absent.end(); };
            if (away(group.rank())) { // until all others have given up
                for (int32_t k = 0; k < 4; k++)
                    while (!away(k) && group.board().watch().fate(k) == Fate::none) usleep(1000);
                return;
            }
            OpArgs op;
            op.kind = OpKind::barrier;
            std::vector<int32_t> ranks;
            std::string text;
            const int64_t before = now_ms();
            EXPECT_EQ(status_of([&] { group.run(op, Deadline::in(400)); }, &text, &ranks), UJOIN_E_TIMEOUT) << text;
            EXPECT_GE(now_ms() - before, 400);
            EXPECT_EQ(ranks, absent) << text;
            for (const int32_t rank : absent) EXPECT_NE(text.find(std::to_string(rank)), std::string::npos) << text;
        });
}

TEST_P(GroupFaults, abort_wakes_everybody_with_the_reason) {
    on_ranks(3, [](Group &group) {
        std::string text;
        if (group.rank() == 0) {
            group.abort("out of ideas");
            EXPECT_EQ(status_of([&] { group.barrier(); }, &text), UJOIN_E_ABORTED);
        } else {
            EXPECT_EQ(status_of([&] { group.barrier(); }, &text), UJOIN_E_ABORTED);
            EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
        }
        EXPECT_NE(text.find("out of ideas"), std::string::npos) << text;
    });
}

TEST_P(GroupFaults, an_aborted_rank_ends_the_waits_for_a_third_one) {
    on_ranks(3, [](Group &group) {
        static thread_local bool interrupted;
        interrupted = group.rank() == 0;
        if (group.rank() == 2) {
            while (group.board().watch().fate(1) == Fate::none) usleep(1000); // never enters
            return;
        }
        // Rank 0 has done its part of the barrier when it is interrupted; rank 1 would wait for rank 2 for ever.
        const auto check = [](void *) -> ujoin_status { return interrupted ? UJOIN_E_CALLBACK : UJOIN_OK; };
        ujoin_set_interrupt_check(check, nullptr, nullptr);
        std::string text;
        std::vector<int32_t> ranks;
        const ujoin_status status = status_of([&] { group.barrier(); }, &text, &ranks);
        EXPECT_EQ(status, group.rank() == 0 ? UJOIN_E_CALLBACK : UJOIN_E_ABORTED) << text;
        if (group.rank() == 0) return;
        EXPECT_EQ(ranks, std::vector<int32_t>{0}) << text;
        EXPECT_NE(text.find("rank 0 gave up"), std::string::npos) << text;
        ujoin_set_interrupt_check(nullptr, nullptr, nullptr);
    });
}

TEST_P(GroupFaults, abort_from_another_thread_ends_a_wait) {
    on_ranks(2, [](Group &group) {
        if (group.rank() == 1) {
            while (group.board().watch().fate(0) == Fate::none) usleep(1000); // never enters
            return;
        }
        std::thread other([&] { group.abort("from a second thread"); });
        std::string text;
        EXPECT_EQ(status_of([&] { group.barrier(); }, &text), UJOIN_E_ABORTED);
        EXPECT_NE(text.find("second thread"), std::string::npos) << text;
        other.join();
    });
}

TEST_P(GroupFaults, goodbye_fails_only_what_needs_the_rank) {
    const std::string name = harness::unique("goodbye");
    on_ranks(2, [](Group &group) {
        group.barrier();
        if (group.rank() == 1) return; // the group goes without close
        std::string text;
        std::vector<int32_t> ranks;
        EXPECT_EQ(status_of([&] { group.barrier(); }, &text, &ranks), UJOIN_E_PEER_LOST);
        EXPECT_EQ(ranks, std::vector<int32_t>{1});
        EXPECT_NE(text.find("left"), std::string::npos) << text;
    });
}

TEST(GroupDeath, a_killed_rank_is_named_on_all_others_within_a_second) {
    harness::with_groups("shm", 4, [](Group &group) {
        group.barrier();
        if (group.rank() == 2) {
            harness::expect_death(SIGKILL);
            kill(getpid(), SIGKILL);
        }
        std::string text;
        std::vector<int32_t> ranks;
        const int64_t before = now_ms();
        EXPECT_EQ(status_of([&] { group.barrier(); }, &text, &ranks), UJOIN_E_PEER_LOST);
        EXPECT_LE(now_ms() - before, 5000 * harness::slack());
        EXPECT_EQ(ranks, std::vector<int32_t>{2});
        EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
        EXPECT_NE(text.find("died"), std::string::npos) << text;
        EXPECT_NE(text.find("barrier"), std::string::npos) << text;
    });
}

TEST(GroupDeath, work_in_flight_ends_and_releases_its_memory) {
    for (const char *progress : {"1", "0"}) {
        setenv("UJOIN_PROGRESS", progress, 1); // NOLINT(concurrency-mt-unsafe): no threads yet
        harness::with_groups("shm", 2, [](Group &group) {
            if (group.rank() == 1) {
                harness::expect_death(SIGKILL);
                kill(getpid(), SIGKILL);
            }
            static int released = 0;
            std::vector<float> data(1'000'000, 1);
            OpArgs op;
            op.kind = OpKind::all_reduce;
            op.dtype = UJOIN_F32;
            op.count = data.size();
            op.recv = Memory(data.data(), data.size() * 4);
            const auto work = group.submit(op, Deadline::never(), Release([](void *) { released++; }, nullptr));
            for (int again = 0; again < 2; again++) EXPECT_EQ(status_of([&] { work->wait(-1); }), UJOIN_E_PEER_LOST);
            EXPECT_EQ(released, 1);
        });
    }
    unsetenv("UJOIN_PROGRESS"); // NOLINT(concurrency-mt-unsafe)
}

TEST(GroupProgress, without_a_progress_thread_work_advances_inside_calls) {
    setenv("UJOIN_PROGRESS", "0", 1); // NOLINT(concurrency-mt-unsafe)
    harness::with_groups("local", 3, [](Group &group) {
        EXPECT_FALSE(group.has_progress());
        std::vector<std::vector<int32_t>> data(5, std::vector<int32_t>(100'000, 1));
        std::vector<std::shared_ptr<Work>> works;
        for (auto &each : data) {
            OpArgs op;
            op.kind = OpKind::all_reduce;
            op.dtype = UJOIN_I32;
            op.count = each.size();
            op.recv = Memory(each.data(), each.size() * 4);
            works.push_back(group.submit(op, Deadline::never()));
        }
        while (works[1]->test() == UJOIN_PENDING) std::this_thread::yield();
        EXPECT_EQ(works[4]->wait(-1), UJOIN_OK);
        for (size_t n = 0; n < works.size(); n++) {
            EXPECT_EQ(works[n]->wait(0), UJOIN_OK);
            EXPECT_EQ(data[n], std::vector<int32_t>(100'000, 3));
        }
    });
    unsetenv("UJOIN_PROGRESS"); // NOLINT(concurrency-mt-unsafe)
}

TEST(GroupProgress, a_wait_that_runs_out_leaves_the_work_alive) {
    for (const char *progress : {"1", "0"}) {
        setenv("UJOIN_PROGRESS", progress, 1); // NOLINT(concurrency-mt-unsafe)
        std::atomic<bool> go{false};
        harness::with_groups("local", 2, [&](Group &group) {
            int32_t one = 1;
            OpArgs op;
            op.kind = OpKind::all_reduce;
            op.dtype = UJOIN_I32;
            op.count = 1;
            op.recv = Memory(&one, 4);
            if (group.rank() == 1)
                while (!go) std::this_thread::yield();
            const auto work = group.submit(op, Deadline::never());
            if (group.rank() == 0) {
                EXPECT_EQ(work->wait(50), UJOIN_PENDING);
                EXPECT_EQ(work->test(), UJOIN_PENDING);
                go = true;
            }
            EXPECT_EQ(work->wait(-1), UJOIN_OK);
            EXPECT_EQ(one, 2);
        });
    }
    unsetenv("UJOIN_PROGRESS"); // NOLINT(concurrency-mt-unsafe)
}

TEST(GroupProgress, without_a_progress_thread_a_wait_goes_on_when_another_threads_ends) {
    setenv("UJOIN_PROGRESS", "0", 1); // NOLINT(concurrency-mt-unsafe)
    std::atomic<bool> go{false};
    harness::with_groups("local", 2, [&](Group &group) {
        int32_t numbers[2] = {1, 2};
        std::vector<std::shared_ptr<Work>> works;
        if (group.rank() == 1)
            while (!go) std::this_thread::yield();
        for (int32_t &number : numbers) {
            OpArgs op;
            op.kind = OpKind::all_reduce;
            op.dtype = UJOIN_I32;
            op.count = 1;
            op.recv = Memory(&number, 4);
            works.push_back(group.submit(op, Deadline::never()));
        }
        if (group.rank() == 0) {
            // The check runs on a thread that waits: after the first one that thread is inside, and stays there.
            std::atomic<bool> inside{false};
            const auto note = [](void *flag) -> ujoin_status {
                static_cast<std::atomic<bool> *>(flag)->store(true);
                return UJOIN_OK;
            };
            ujoin_set_interrupt_check(note, &inside, nullptr);
            std::thread impatient([&] {
                EXPECT_EQ(works[0]->wait(1000), UJOIN_PENDING);
                go = true;
            });
            while (!inside) std::this_thread::yield();
            EXPECT_EQ(works[1]->wait(-1), UJOIN_OK);
            impatient.join();
            ujoin_set_interrupt_check(nullptr, nullptr, nullptr);
        }
        for (const auto &work : works) EXPECT_EQ(work->wait(-1), UJOIN_OK);
        EXPECT_EQ(numbers[0], 2);
        EXPECT_EQ(numbers[1], 4);
    });
    unsetenv("UJOIN_PROGRESS"); // NOLINT(concurrency-mt-unsafe)
}

TEST(GroupMeeting, too_few_ranks_is_a_timeout_that_says_who_came) {
    for (const char *rendezvous : {"local://", "tcp://127.0.0.1:29500"}) {
        GroupConfig config;
        const std::string name = harness::unique("few");
        config.rendezvous = std::string(rendezvous) == "local://" ? "local://" + name : rendezvous;
        config.name = name;
        config.size = 3;
        config.rendezvous_timeout_ms = 100;
        std::string text;
        std::vector<int32_t> ranks;
        EXPECT_EQ(status_of([&] { Group::create(config); }, &text, &ranks), UJOIN_E_TIMEOUT);
        EXPECT_EQ(ranks, (std::vector<int32_t>{1, 2})) << text;
    }
}

TEST(GroupMeeting, ranks_that_disagree_on_the_size) {
    const std::string name = harness::unique("size");
    harness::run_processes(2, [&](int rank) {
        GroupConfig config;
        config.rendezvous = "tcp://127.0.0.1:29500";
        config.name = name;
        config.rank = rank;
        config.size = 2 + rank;
        config.rendezvous_timeout_ms = 20'000;
        std::string text;
        EXPECT_EQ(status_of([&] { Group::create(config); }, &text), UJOIN_E_MISMATCH);
        EXPECT_NE(text.find("3 ranks"), std::string::npos) << text;
    });
}

TEST(GroupMeeting, groups_in_a_row_under_one_name) {
    const std::string name = harness::unique("row");
    harness::run_processes(3, [&](int rank) {
        for (int32_t n = 0; n < 20; n++) {
            GroupConfig config;
            config.rendezvous = "file:///tmp/" + name;
            config.rank = rank;
            config.size = 3;
            config.rendezvous_timeout_ms = 30'000;
            const auto group = Group::create(config);
            int32_t number = rank == 0 ? n : -1;
            group->broadcast(Memory(&number, 4), 0);
            ASSERT_EQ(number, n);
        }
    });
}

} // namespace
