// SPDX-License-Identifier: Apache-2.0
// The words of the board and those of the models in tests/models are the same.
#include "comm/board.hpp"
#include "comm/shared_area.hpp"
#include "models/words.h"
#include <gtest/gtest.h>
#include <thread>

using namespace ujoin;

namespace {

/// A fate that the models do not know is a warning here, which is an error.
constexpr uint32_t word_of(Fate fate) {
    switch (fate) {
    case Fate::none:
        return FATE_NONE;
    case Fate::failed:
        return FATE_FAILED;
    case Fate::lost:
        return FATE_LOST;
    case Fate::left:
        return FATE_LEFT;
    }
    return NONE;
}

} // namespace

TEST(JoinWords, the_models_use_the_librarys_values) {
    for (const Fate fate : {Fate::none, Fate::failed, Fate::lost, Fate::left})
        EXPECT_EQ(static_cast<uint32_t>(fate), word_of(fate));
    EXPECT_EQ(Head::make(1, 5, JOINED, false).joined(), true);
    EXPECT_EQ(Head::make(1, 5, RUN, false).joined(), false);
    EXPECT_EQ(static_cast<uint8_t>(no_stop), NONE) << "the models have bytes for counts";
    EXPECT_EQ(sizeof RankArea::banks / sizeof(Bank), BANKS);
    EXPECT_EQ(sizeof RankArea::slots / sizeof(Slot), SLOTS);
}

/// The orders of a publication and of a sleeper (os/event_count.hpp), as models/sleep.pml has them: of a publisher that stores,
/// adds and looks for sleepers, and a sleeper that raises `sleepers` and looks again, at least one sees the other.
TEST(JoinWords, litmus_a_publisher_and_a_sleeper_see_each_other) {
    constexpr int rounds = 20'000;
    struct alignas(64) Line {
        std::atomic<uint64_t> head{0};
        os::EventCount event;
    } line;
    std::atomic<int> turn{0}, done{0};
    std::atomic<bool> publisher_saw{false}, sleeper_saw{false};
    int missed = 0;
    const auto meet = [&](int round) {
        turn.fetch_add(1);
        while (turn.load() < 2 * round) std::this_thread::yield();
    };
    std::thread publisher([&] {
        for (int i = 1; i <= rounds; i++) {
            meet(i);
            line.head.store(static_cast<uint64_t>(i), std::memory_order_release);
            line.event.seq.fetch_add(1, std::memory_order_seq_cst);
            publisher_saw = line.event.sleepers.load(std::memory_order_seq_cst) != 0;
            done.fetch_add(1);
            while (done.load() < 2 * i) std::this_thread::yield();
        }
    });
    for (int i = 1; i <= rounds; i++) {
        const uint32_t before = line.event.seq.load(std::memory_order_acquire); // the publisher waits for this thread
        meet(i);
        line.event.sleepers.fetch_add(1, std::memory_order_seq_cst);
        const bool word = line.event.seq.load(std::memory_order_seq_cst) != before;
        sleeper_saw = word || line.head.load(std::memory_order_acquire) == static_cast<uint64_t>(i);
        if (word) {
            EXPECT_EQ(line.head.load(std::memory_order_acquire), static_cast<uint64_t>(i)) << "the data came first";
        }
        done.fetch_add(1);
        while (done.load() < 2 * i) std::this_thread::yield();
        if (!publisher_saw && !sleeper_saw) missed++;
        line.event.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
    publisher.join();
    EXPECT_EQ(missed, 0);
}
