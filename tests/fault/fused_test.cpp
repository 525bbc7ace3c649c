// SPDX-License-Identifier: Apache-2.0
// Ranks that are killed somewhere in a training with fused steps.
#include "base/deadline.hpp"
#include "harness/fused_kit.hpp"
#include "harness/ranks.hpp"
#include <csignal>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace harness;

namespace {

constexpr int ranks = 3;
constexpr int rounds = 25; // in each of four tests

/// Trains until something fails.
ujoin_status train(FusedModel &model, const ujoin_step_options &options, bool &in_step) {
    for (int t = 0;; t++) {
        in_step = false;
        ujoin_status status = ujoin_ddp_forward(model.ddp(), 1);
        for (size_t p = model.size(); p-- > 0 && status >= 0;) status = ujoin_ddp_ready(model.ddp(), p);
        if (status >= 0) status = ujoin_ddp_finish(model.ddp());
        if (status < 0) return status;
        in_step = true;
        status = zero_step(model.zero(), &options);
        if (status < 0) return status;
    }
}

void expect_text(const std::string &part) {
    const std::string text = ujoin_last_error();
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

/// Every survivor learns who died. Where the change had begun, it says so until parameters and state are loaded anew.
void survive(FusedModel &model, const ujoin_step_options &options, int killed) {
    bool in_step = false;
    EXPECT_EQ(train(model, options, in_step), UJOIN_E_PEER_LOST) << ujoin_last_error();
    expect_text("rank " + std::to_string(killed) + " ");
    expect_text("died");
    // The death may be noticed before the first update, or in the pass that only sums.
    const bool changes = in_step && std::string(ujoin_last_error()).find("waiting for step(of") != std::string::npos &&
                         options.skip_nonfinite == 0;
    const ujoin_status saved = zero_save(model.zero(), "/dev/null/nowhere", nullptr);
    if (!changes && saved != UJOIN_E_STATE) return;
    EXPECT_EQ(saved, UJOIN_E_STATE) << ujoin_last_error();
    expect_text("a step failed half-way");
    EXPECT_EQ(zero_step(model.zero(), &options), UJOIN_E_STATE);
    expect_text("load parameters and state anew");
}

class FusedKill : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, FusedKill, testing::Range(1, 5));

TEST_P(FusedKill, a_rank_dies_anywhere_and_the_others_say_so) {
    std::mt19937 random(static_cast<unsigned>(GetParam()));
    for (int round = 0; round < rounds; round++) {
        const int killed = static_cast<int>(random() % ranks);
        const auto after_us = static_cast<int64_t>(random() % 20'000);
        ujoin_step_options options{};
        options.size = sizeof options;
        options.skip_nonfinite = round % 5 == 4;
        const int64_t start = ujoin::now_ns();
        on_ranks("shm", ranks, [&](ujoin_group *group, int rank) {
            FusedRecipe recipe;
            recipe.counts = {200'000, 7, 60'000};
            recipe.partition = round % 4 < 2 ? UJOIN_PARTITION_ELEMENTS : UJOIN_PARTITION_PARAMETERS;
            ujoin_memory *memory = nullptr;
            if (round % 2 == 1) { // they write each other's memory
                ok(ujoin_memory_create(group, 4 << 20, nullptr, &memory));
                recipe.data = recipe.grad = [next = static_cast<char *>(ujoin_memory_data(memory))](size_t bytes) mutable {
                    return std::exchange(next, next + (bytes + 63) / 64 * 64);
                };
            }
            struct Owner {
                ujoin_memory *memory;
                ~Owner() { ujoin_memory_destroy(memory); }
            } const owner{memory};
            FusedModel model(group, recipe);
            if (rank != killed) return survive(model, options, killed);
            expect_death(SIGKILL);
            std::thread([after_us] {
                const int64_t at = ujoin::now_ns() + after_us * 1000;
                while (ujoin::now_ns() < at) std::this_thread::yield();
                kill(getpid(), SIGKILL);
            }).detach();
            bool in_step = false;
            train(model, options, in_step);
        });
        if (HasFailure()) FAIL() << "round " << round << ", rank " << killed << " killed after " << after_us << " us";
        EXPECT_LT(ujoin::now_ns() - start, static_cast<int64_t>(10e9 * slack())); // a second, of which slack is made
    }
}

} // namespace
