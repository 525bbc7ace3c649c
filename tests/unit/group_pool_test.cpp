// SPDX-License-Identifier: Apache-2.0
// The threads of a group that compute.
#include "base/deadline.hpp"
#include "harness/process.hpp"
#include "harness/ranks.hpp"
#include "os/pool.hpp"
#include <atomic>
#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <mutex>
#include <new>
#include <pthread.h>
#include <set>
#include <string>
#include <unistd.h>

using namespace ujoin;

namespace {

int64_t patience_ns() { return static_cast<int64_t>(10e9 * harness::slack()); }

/// Threads of this process that the library has started.
std::set<std::string> tasks() {
    std::set<std::string> all;
    for (const auto &task : harness::library_threads()) all.insert(task.filename());
    return all;
}

std::string status_line(const std::string &task, const std::string &key) {
    std::ifstream file("/proc/self/task/" + task + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.rfind(key, 0) == 0) return line.substr(key.size());
    return "";
}

/// A loop whose items end when as many threads as there are items are in it. Whether they came.
bool meet(
    Parallel &pool, size_t threads, const std::function<void()> &inside = [] {}) {
    std::atomic<size_t> came{0};
    const int64_t end = now_ns() + patience_ns();
    pool.run(threads, threads, [&](size_t) {
        inside();
        came++;
        while (came < threads && now_ns() < end) std::this_thread::yield();
    });
    return came == threads && now_ns() < end;
}

TEST(GroupPool, every_item_is_done_once_however_many_threads_there_are) {
    for (const int threads : {1, 2, 3, 7}) {
        os::Pool pool(threads);
        EXPECT_EQ(pool.threads(), threads);
        for (int round = 0; round < 300; round++)
            for (const size_t count : {0, 1, 2, 5, 100}) {
                std::vector<std::atomic<int>> done(count);
                pool.run(count, 1 + static_cast<size_t>(round) % 8, [&](size_t item) { done[item]++; });
                for (size_t i = 0; i < count; i++) ASSERT_EQ(done[i], 1) << threads << " threads, item " << i;
            }
    }
}

TEST(GroupPool, threads_come_when_they_are_needed_and_go_with_it) {
    const std::set<std::string> before = tasks();
    {
        os::Pool pool(3);
        pool.run(100, 1, [](size_t) {});
        pool.run(1, 3, [](size_t) {});
        EXPECT_EQ(tasks(), before) << "nothing was to be shared";
        EXPECT_TRUE(meet(pool, 2));
        EXPECT_EQ(tasks().size(), before.size() + 1);
        EXPECT_TRUE(meet(pool, 3));
        EXPECT_EQ(tasks().size(), before.size() + 2);
        EXPECT_TRUE(meet(pool, 3));
        EXPECT_EQ(tasks().size(), before.size() + 2);
    }
    EXPECT_EQ(tasks(), before);
}

TEST(GroupPool, an_error_in_any_thread_is_the_callers) {
    os::Pool pool(3);
    const pthread_t caller = pthread_self();
    for (int round = 0; round < 50; round++) {
        std::atomic<size_t> came{0};
        const auto fails_elsewhere = [&](size_t) {
            came++;
            const int64_t end = now_ns() + patience_ns();
            while (came < 2 && now_ns() < end) std::this_thread::yield();
            if (pthread_equal(pthread_self(), caller) == 0) throw std::bad_alloc();
        };
        EXPECT_THROW(pool.run(2, 2, fails_elsewhere), std::bad_alloc);
        std::atomic<size_t> begun{0};
        EXPECT_THROW(pool.run(1'000'000, 3,
                              [&](size_t) {
                                  begun++;
                                  throw std::bad_alloc();
                              }),
                     std::bad_alloc);
        EXPECT_LE(begun, 3U) << "items that nobody had begun are left out";
        EXPECT_TRUE(meet(pool, 3)) << "the pool works on";
    }
}

TEST(GroupPool, a_loop_returns_when_the_slowest_item_is_done) {
    os::Pool pool(2);
    const pthread_t caller = pthread_self();
    std::atomic<bool> done{false};
    std::atomic<size_t> came{0};
    pool.run(2, 2, [&](size_t) {
        came++;
        const int64_t end = now_ns() + patience_ns();
        while (came < 2 && now_ns() < end) std::this_thread::yield();
        if (pthread_equal(pthread_self(), caller) != 0) return;
        usleep(50'000); // a long item
        done = true;
    });
    EXPECT_TRUE(done);
}

TEST(GroupPool, a_second_loop_meanwhile_runs_on_its_callers_thread) {
    os::Pool pool(2);
    EXPECT_TRUE(meet(pool, 2, [&] {
        const pthread_t caller = pthread_self();
        size_t done = 0;
        pool.run(1000, 2, [&](size_t) { done += pthread_equal(pthread_self(), caller) != 0 ? 1 : 0; });
        EXPECT_EQ(done, 1000U);
    }));
}

TEST(GroupPool, its_threads_block_every_signal) {
    os::Pool pool(2);
    const pthread_t caller = pthread_self();
    std::atomic<int> blocked{0};
    EXPECT_TRUE(meet(pool, 2, [&] {
        if (pthread_equal(pthread_self(), caller) != 0) return;
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD}) blocked += sigismember(&mask, signal);
    }));
    EXPECT_EQ(blocked, 5);
}

TEST(GroupPool, idle_threads_do_not_wake_up) {
    os::Pool pool(2);
    const std::set<std::string> before = tasks();
    ASSERT_TRUE(meet(pool, 2));
    std::string helper;
    for (const std::string &task : tasks())
        if (before.count(task) == 0) helper = task;
    ASSERT_NE(helper, "");
    EXPECT_EQ(status_line(helper, "Name:\t"), "ujoin-compute");
    const int64_t end = now_ns() + patience_ns();
    while (status_line(helper, "State:\t")[0] != 'S' && now_ns() < end) usleep(1000);
    const std::string switches = status_line(helper, "voluntary_ctxt_switches:\t");
    usleep(500'000); // an idle thread's sleep is what is looked at
    EXPECT_EQ(status_line(helper, "voluntary_ctxt_switches:\t"), switches);
    EXPECT_TRUE(meet(pool, 2)) << "and yet it comes when it is needed";
}

} // namespace
