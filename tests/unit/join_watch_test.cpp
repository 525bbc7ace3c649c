// SPDX-License-Identifier: Apache-2.0
#include "comm/watch.hpp"
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace ujoin;

namespace {

/// What ranks of one group share: marks, and one word with its event count per rank.
struct Ranks {
    explicit Ranks(int32_t n) : size(n), fates(static_cast<size_t>(n)), words(static_cast<size_t>(n)) {}
    struct Word {
        std::atomic<int> value{0};
        os::EventCount event;
    };
    std::unique_ptr<Watch> watch(int32_t rank, std::vector<os::Fd> pidfds = {}) {
        std::vector<FateLine *> lines;
        std::vector<os::EventCount *> events;
        for (auto &f : fates) lines.push_back(&f);
        for (auto &w : words) events.push_back(&w.event);
        return std::make_unique<Watch>(rank, lines, std::move(pidfds), events, 0);
    }
    void set(int32_t k, int value) {
        words[static_cast<size_t>(k)].value.store(value, std::memory_order_release);
        os::announce(words[static_cast<size_t>(k)].event);
    }
    bool is_set(int32_t k) const { return words[static_cast<size_t>(k)].value.load(std::memory_order_acquire) > 0; }
    Word &word(int32_t k) { return words[static_cast<size_t>(k)]; }

    int32_t size;
    std::vector<FateLine> fates;
    std::vector<Word> words;
};

/// Waits on rank k's word; the error, or UJOIN_OK.
Error wait_on(Ranks &ranks, Watch &watch, int32_t k, const Deadline &deadline = Deadline::in(20'000)) {
    try {
        watch.wait(
            k, ranks.word(k).event, [&](int32_t r) { return ranks.is_set(r); }, deadline, false, [] { return "a word"; });
    } catch (const Error &error) {
        return error;
    }
    return Error(UJOIN_OK, "");
}

} // namespace

TEST(JoinWatch, returns_when_the_part_is_done) {
    Ranks ranks(2);
    auto watch = ranks.watch(0);
    std::thread other([&] { ranks.set(1, 1); });
    EXPECT_EQ(wait_on(ranks, *watch, 1).code(), UJOIN_OK);
    other.join();
    EXPECT_EQ(ranks.word(1).event.sleepers.load(), 0U);
}

TEST(JoinWatch, a_rank_that_gave_up_is_blamed_with_its_reason) {
    Ranks ranks(3);
    auto a = ranks.watch(0), b = ranks.watch(1), c = ranks.watch(2);
    Error first(UJOIN_OK, ""), second(UJOIN_OK, "");
    std::thread t0([&] { first = wait_on(ranks, *a, 1); }), t2([&] { second = wait_on(ranks, *c, 0); });
    b->mark(Fate::failed, "out of patience");
    t0.join();
    t2.join();
    for (const Error &e : {first, second}) { // rank 2 waits for rank 0, yet hears of the first cause
        EXPECT_EQ(e.code(), UJOIN_E_ABORTED);
        EXPECT_NE(e.text().find("rank 1 gave up: out of patience"), std::string::npos) << e.text();
        EXPECT_EQ(e.ranks(), std::vector<int32_t>{1});
    }
    EXPECT_EQ(a->fate(0), Fate::failed);
    EXPECT_EQ(a->fate(2), Fate::failed);
}

TEST(JoinWatch, a_failed_rank_whose_part_is_done_is_not_blamed) {
    Ranks ranks(3);
    auto a = ranks.watch(0), b = ranks.watch(1);
    ranks.set(1, 1);
    b->mark(Fate::left, "");
    const auto part = [&](int32_t r) { return ranks.is_set(r); };
    const auto what = [] { return "a word"; };
    EXPECT_FALSE(a->wait(2, ranks.word(2).event, part, Deadline::in(20'000), Deadline::in(20), false, what));
    std::thread other([&] { ranks.set(2, 1); });
    EXPECT_EQ(wait_on(ranks, *a, 2).code(), UJOIN_OK);
    other.join();
    EXPECT_EQ(a->fate(0), Fate::none);
}

TEST(JoinWatch, the_first_cause_is_found_behind_its_victims) {
    Ranks ranks(3);
    auto a = ranks.watch(0), b = ranks.watch(1), c = ranks.watch(2);
    b->mark(Fate::left, "");
    ranks.set(1, 1);
    EXPECT_EQ(wait_on(ranks, *c, 0, Deadline::in(0)).code(), UJOIN_E_TIMEOUT); // rank 2 gives up for another reason
    const Error e = wait_on(ranks, *a, 2);
    EXPECT_EQ(e.code(), UJOIN_E_ABORTED);
    EXPECT_NE(e.text().find("rank 2 gave up: the deadline passed"), std::string::npos) << e.text();

    Ranks others(3);
    auto d = others.watch(0), f = others.watch(1), g = others.watch(2);
    f->mark(Fate::left, "");
    EXPECT_EQ(wait_on(others, *d, 1).code(), UJOIN_E_PEER_LOST);
    others.set(1, 1); // for rank 2 only rank 0 is missing: it gave up because rank 1 had left
    const Error last = wait_on(others, *g, 0);
    EXPECT_EQ(last.code(), UJOIN_E_PEER_LOST);
    EXPECT_NE(last.text().find("rank 1 left the group"), std::string::npos) << last.text();
}

TEST(JoinWatch, past_the_deadline_the_missing_ranks_are_named) {
    Ranks ranks(4);
    auto watch = ranks.watch(0);
    ranks.set(2, 1);
    const int64_t begin = now_ms();
    const Error e = wait_on(ranks, *watch, 1, Deadline::in(30));
    EXPECT_GE(now_ms() - begin, 29);
    EXPECT_EQ(e.code(), UJOIN_E_TIMEOUT);
    EXPECT_EQ(e.ranks(), (std::vector<int32_t>{1, 3}));
    EXPECT_NE(e.text().find("1, 3"), std::string::npos) << e.text();
    EXPECT_EQ(watch->fate(0), Fate::failed);
}

TEST(JoinWatch, patience_at_its_end_leaves_no_mark) {
    Ranks ranks(2);
    auto watch = ranks.watch(0);
    const auto wait = [&](const Deadline &patience) {
        return watch->wait(
            1, ranks.word(1).event, [&](int32_t r) { return ranks.is_set(r); }, Deadline::in(20'000), patience, false,
            [] { return "a word"; });
    };
    EXPECT_FALSE(wait(Deadline::in(0)));
    EXPECT_FALSE(wait(Deadline::in(20)));
    EXPECT_EQ(watch->fate(0), Fate::none);
    std::thread other([&] { ranks.set(1, 1); });
    EXPECT_TRUE(wait(Deadline::never()));
    other.join();
}

TEST(JoinWatch, an_abort_from_another_thread_ends_the_wait) {
    Ranks ranks(2);
    auto watch = ranks.watch(0);
    std::thread other([&] { watch->mark(Fate::failed, "enough"); });
    const Error e = wait_on(ranks, *watch, 1);
    other.join();
    EXPECT_EQ(e.code(), UJOIN_E_ABORTED);
    EXPECT_NE(e.text().find("enough"), std::string::npos);
    EXPECT_THROW(watch->check_own(), Error);
}

TEST(JoinWatch, a_long_reason_is_cut_between_characters) {
    Ranks ranks(2);
    auto a = ranks.watch(0), b = ranks.watch(1);
    std::string reason;
    for (int i = 0; i < 200; i++) reason += "\xc3\xa4";
    b->mark(Fate::failed, "x" + reason);
    const std::string text = wait_on(ranks, *a, 1).text();
    const size_t begin = text.find("x\xc3\xa4"), end = text.find(" (rank 0");
    ASSERT_NE(begin, std::string::npos);
    EXPECT_EQ((end - begin) % 2, 1U) << text;
}

TEST(JoinWatch, a_dead_process_is_lost_unless_its_part_is_done) {
    for (const bool done : {true, false}) {
        Ranks ranks(3);
        const pid_t child = fork();
        if (child == 0) {
            pause();
            _exit(0);
        }
        ranks.fates[1].pid = child;
        std::vector<os::Fd> pidfds(3);
        pidfds[1] = os::Fd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
        ASSERT_TRUE(pidfds[1]);
        auto watch = ranks.watch(0, std::move(pidfds));
        if (done) ranks.set(1, 1);
        kill(child, SIGKILL);
        ASSERT_EQ(waitpid(child, nullptr, 0), child);
        const Error e = wait_on(ranks, *watch, 2, done ? Deadline::in(250) : Deadline::in(20'000));
        if (done) {
            EXPECT_EQ(e.code(), UJOIN_E_TIMEOUT);
            EXPECT_EQ(e.ranks(), std::vector<int32_t>{2});
            EXPECT_EQ(watch->fate(1), Fate::none);
        } else {
            EXPECT_EQ(e.code(), UJOIN_E_PEER_LOST);
            EXPECT_NE(e.text().find(cat("rank 1 (pid ", child, ") died while rank 0 was waiting for a word")),
                      std::string::npos);
            EXPECT_EQ(watch->fate(1), Fate::lost);
        }
    }
}
