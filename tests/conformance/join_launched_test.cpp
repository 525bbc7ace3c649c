// SPDX-License-Identifier: Apache-2.0
// An agreed stop of ranks that ujoin-run started.
#include "harness/launch.hpp"
#include "harness/ranks.hpp"
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

using harness::Launch;

namespace {

struct Outcome {
    int status = -1;
    std::set<int> ranks;
    std::set<int> steps;
    std::string text;
};

/// `file`: the launcher gets the signal once the worker of rank 0 is at that step; "": that worker does.
Outcome run_stopper(int step, const std::string &file) {
    std::vector<std::string> argv{harness::built("bin/ujoin-run"), "--nproc-per-node", "4",
                                  harness::built("tests/bin/join_stopper"), std::to_string(step)};
    if (!file.empty()) argv.push_back(file);
    Launch launch(argv, {{"RANK", ""}, {"WORLD_SIZE", ""}, {"OMP_NUM_THREADS", ""}, {"PET_NPROC_PER_NODE", ""}});
    Outcome outcome;
    if (!file.empty()) {
        EXPECT_TRUE(harness::eventually([&] { return std::filesystem::exists(file); }));
        launch.signal(SIGTERM);
    }
    outcome.status = launch.wait();
    outcome.text = launch.out() + launch.err();
    std::istringstream in(launch.out());
    for (std::string line; std::getline(in, line);) {
        const size_t at = line.find(" left after ");
        if (at == std::string::npos) continue;
        const size_t space = line.find_last_of(" :", at - 1);
        outcome.ranks.insert(std::stoi(line.substr(space == std::string::npos ? 0 : space + 1)));
        outcome.steps.insert(std::stoi(line.substr(at + 12)));
    }
    return outcome;
}

const std::set<int> all_four{0, 1, 2, 3};

} // namespace

TEST(JoinLaunched, LAUNCHER_08_a_signal_to_one_worker_stops_all_at_the_same_step) {
    for (int run = 0; run < 20; run++) {
        const int at = 5 + run;
        const Outcome outcome = run_stopper(at, "");
        EXPECT_EQ(outcome.status, 0) << outcome.text;
        EXPECT_EQ(outcome.ranks, all_four) << outcome.text;
        ASSERT_EQ(outcome.steps.size(), 1U) << outcome.text;
        EXPECT_GE(*outcome.steps.begin(), at + 1);
        EXPECT_LE(*outcome.steps.begin(), at + 2) << "at most 2 steps after the signal";
    }
}

TEST(JoinLaunched, LAUNCHER_08_a_signal_to_the_launcher_stops_all_at_the_same_step) {
    for (int run = 0; run < 5; run++) {
        const std::string file = (std::filesystem::temp_directory_path() / harness::unique("at-the-step")).string();
        const Outcome outcome = run_stopper(5 + run, file);
        std::filesystem::remove(file);
        EXPECT_EQ(outcome.status, 128 + SIGTERM) << "a launcher that was told to end says so: " << outcome.text;
        EXPECT_EQ(outcome.ranks, all_four) << outcome.text;
        EXPECT_EQ(outcome.steps.size(), 1U) << outcome.text;
    }
}
