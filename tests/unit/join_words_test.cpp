// SPDX-License-Identifier: Apache-2.0
// The words of the board and those of the models in tests/models are the same.
#include "comm/board.hpp"
#include "comm/shared_area.hpp"
#include "models/words.h"
#include <gtest/gtest.h>
#include <optional>
#include <thread>
#include <vector>

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

/// The orders of a publication and of a sleeper (os/event_count.hpp), as models/sleep.pml has them: of a publisher and a sleeper at
/// least one sees the other. Both walk over many words without waiting for each other, so that they meet by chance, as a
/// store that lies in a store buffer needs it. It ends when they have met often, or after a while where they do not.
TEST(JoinWords, litmus_a_publisher_and_a_sleeper_see_each_other) {
    struct alignas(64) Line {
        std::atomic<uint64_t> head{0};
        os::EventCount event;
        std::optional<os::Sleeper> sleeper;
        bool publisher_saw = false, sleeper_saw = false;
    };
    constexpr int enough = 20'000;
    std::vector<Line> lines(16'384);
    std::atomic<uint64_t> turn{0};
    std::atomic<bool> over{false};
    const auto meet = [&](uint64_t n) {
        turn.fetch_add(1);
        for (int i = 0; turn.load() < 2 * n; i++)
            if (i > 20'000) std::this_thread::yield();
    };
    std::thread publisher([&] {
        for (uint64_t round = 1;; round++) {
            meet(2 * round - 1);
            if (over) return;
            for (Line &line : lines) {
                line.head.store(round, std::memory_order_release);
                line.publisher_saw = os::raise(line.event);
            }
            meet(2 * round);
        }
    });
    int met = 0, missed = 0, too_early = 0;
    const Deadline end = Deadline::in(2000);
    for (uint64_t round = 1; !over; round++) {
        over = met >= enough || end.passed();
        meet(2 * round - 1);
        if (over) break;
        for (Line &line : lines) {
            const auto done = [&] { return line.head.load(std::memory_order_acquire) == round; };
            const auto before = static_cast<uint32_t>(round - 1);
            line.sleeper_saw = !line.sleeper.emplace(line.event).may_sleep(before, done);
            if (line.event.seq.load(std::memory_order_acquire) != before && !done()) too_early++;
        }
        meet(2 * round);
        for (Line &line : lines) {
            if (line.publisher_saw && line.sleeper_saw) met++;
            if (!line.publisher_saw && !line.sleeper_saw) missed++;
            line.sleeper.reset(); // as long as it might have slept
        }
    }
    publisher.join();
    EXPECT_EQ(missed, 0) << "of " << met << " meetings";
    EXPECT_EQ(too_early, 0) << "the data come before the count";
}
