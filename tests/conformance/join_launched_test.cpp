// SPDX-License-Identifier: Apache-2.0
// An agreed stop of ranks that ujoin-run started.
#include "harness/launch.hpp"
#include "harness/ranks.hpp"
#include "os/job_page.hpp"
#include "ujoin.h"
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
/// `options`: of the launcher; with some the workers have no handler.
Outcome run_stopper(int step, const std::string &file, const std::vector<std::string> &options = {}) {
    std::vector<std::string> argv{harness::built("bin/ujoin-run"), "--nproc-per-node", "4"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {harness::built("tests/bin/join_stopper"), std::to_string(step)});
    if (!file.empty()) argv.push_back(file);
    if (!options.empty()) argv.emplace_back("launcher");
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

TEST(JoinLaunched, LAUNCHER_08_the_launcher_asks_for_the_stop_itself) {
    for (int run = 0; run < 5; run++) {
        const std::string file = (std::filesystem::temp_directory_path() / harness::unique("at-the-step")).string();
        const Outcome outcome = run_stopper(5 + run, file, {"--stop-signal", "TERM", "--max-restarts", "1"});
        std::filesystem::remove(file);
        EXPECT_EQ(outcome.status, 0) << "nobody was ended: " << outcome.text;
        EXPECT_EQ(outcome.ranks, all_four) << outcome.text;
        EXPECT_EQ(outcome.steps.size(), 1U) << outcome.text;
        EXPECT_NE(outcome.text.find("asking the workers to stop"), std::string::npos) << outcome.text;
    }
}

TEST(JoinLaunched, LAUNCHER_08_a_second_stop_signal_ends_workers_that_do_not_hear_the_first) {
    Launch launch({harness::built("bin/ujoin-run"), "--stop-signal", "SIGTERM", "--no-python", "sh", "-c",
                   "echo up; exec sleep 1000"},
                  {});
    EXPECT_TRUE(harness::eventually([&] { return launch.out().find("up") != std::string::npos; }));
    launch.signal(SIGTERM);
    EXPECT_TRUE(harness::eventually([&] { return launch.err().find("asking the workers") != std::string::npos; }));
    launch.signal(SIGTERM);
    EXPECT_EQ(launch.wait(), 128 + SIGTERM) << launch.err();
}

TEST(JoinLaunched, LAUNCHER_08_a_stop_signal_must_be_one) {
    Launch launch({harness::built("bin/ujoin-run"), "--stop-signal", "KILL", "--no-python", "true"}, {});
    EXPECT_EQ(launch.wait(), 2);
    EXPECT_NE(launch.err().find("--stop-signal is \"KILL\""), std::string::npos) << launch.err();
}

TEST(JoinLaunched, a_launcher_that_cannot_be_found_asks_for_nothing) {
    using ujoin::os::JobPage;
    using ujoin::os::LauncherPage;
    JobPage page(1);
    page.ask_stop();
    setenv("UJOIN_JOB", page.address(0).c_str(), 1);
    EXPECT_TRUE(LauncherPage::find().asks_stop());
    std::string other = page.address(0);
    char &digit = other[other.rfind(':') - 1];
    digit = digit == '1' ? '2' : '1';
    setenv("UJOIN_JOB", other.c_str(), 1);
    EXPECT_FALSE(LauncherPage::find().asks_stop()) << "the page of another job";
    setenv("UJOIN_JOB", (std::to_string(getpid()) + ":1:ff:0").c_str(), 1);
    EXPECT_FALSE(LauncherPage::find().asks_stop()) << "not a page";
    setenv("UJOIN_JOB", page.address(0).c_str(), 1);
    const LauncherPage found = LauncherPage::find();
    page.close();
    EXPECT_TRUE(found.asks_stop()) << "who has it keeps it";
    EXPECT_FALSE(LauncherPage::find().asks_stop()) << "it is gone";
    for (const char *wrong :
         {"1", "1:2", "1:2:3", "1:2:3:", "a:b:c:0", "1:2:3:4:5", "1:2:3:4 ", "-1:2:3:0", "1:2:10000000000000000:0"}) {
        setenv("UJOIN_JOB", wrong, 1);
        ujoin_group *group = nullptr;
        ujoin_group_options options{};
        options.size = sizeof options;
        options.backend = "self";
        options.world_size = 1;
        EXPECT_EQ(ujoin_group_create(&options, &group), UJOIN_E_INVALID) << wrong;
        EXPECT_NE(std::string(ujoin_last_error()).find(std::string("UJOIN_JOB is \"") + wrong), std::string::npos);
    }
    unsetenv("UJOIN_JOB");
}
