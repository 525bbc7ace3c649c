// SPDX-License-Identifier: Apache-2.0
// Groups across hosts: network namespaces with a wire between them, and ranks that the environment describes, as ujoin-run does.
#include "comm/group.hpp"
#include "comm/memory.hpp"
#include "harness/groups.hpp"
#include "harness/hosts.hpp"
#include "harness/launch.hpp"
#include "harness/ranks.hpp"
#include <algorithm>
#include <csignal>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <sstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ujoin;
using harness::all_reduce_op;
using harness::Hosts;

namespace {

constexpr int per_host = 2;

void set(const char *name, const std::string &value) { setenv(name, value.c_str(), 1); } // this rank's own process

/// Runs `body` on each rank of `hosts`, two to each, with the variables of a launcher.
void on_hosts(const Hosts &hosts, int count, const std::function<void(int rank)> &body) {
    harness::run_processes(count * per_host, [&](int rank) {
        hosts.enter(rank / per_host);
        set("RANK", std::to_string(rank));
        set("WORLD_SIZE", std::to_string(count * per_host));
        set("LOCAL_WORLD_SIZE", std::to_string(per_host));
        set("MASTER_ADDR", Hosts::address(0));
        set("MASTER_PORT", "29500");
        body(rank);
    });
}

std::shared_ptr<Group> make_group(const std::string &name = "", const std::string &backend = "auto") {
    GroupConfig config;
    config.name = name;
    config.backend = backend;
    config.rendezvous_timeout_ms = static_cast<int64_t>(30'000 * harness::slack());
    return Group::create(config);
}

void expect_sum(Group &group, size_t count) {
    std::vector<float> data(count);
    for (size_t i = 0; i < count; i++) data[i] = static_cast<float>((i % 11 + 1) * static_cast<size_t>(group.rank() + 1));
    OpArgs op = all_reduce_op(UJOIN_F32, UJOIN_SUM, data);
    group.run(op);
    const auto total = static_cast<float>(group.size() * (group.size() + 1) / 2);
    for (size_t i = 0; i < count; i++) ASSERT_EQ(data[i], static_cast<float>(i % 11 + 1) * total) << i << " of " << count;
}

/// What a group that waits for a rank in vain says.
Error failure_of(Group &group) {
    std::vector<float> data(100'000, 1);
    try {
        for (;;) { // until it is noticed
            OpArgs op = all_reduce_op(UJOIN_F32, UJOIN_SUM, data);
            group.run(op, Deadline::in(static_cast<int64_t>(40'000 * harness::slack())));
        }
    } catch (const Error &error) {
        return error;
    }
}

void expect_lost(Group &group, int rank) {
    const int64_t begin = now_ms();
    const Error error = failure_of(group);
    EXPECT_LT(now_ms() - begin, static_cast<int64_t>(5'000 * harness::slack()));
    EXPECT_EQ(error.code(), UJOIN_E_PEER_LOST) << error.text();
    EXPECT_EQ(error.ranks(), std::vector<int32_t>{rank}) << error.text();
    EXPECT_NE(error.text().find("rank " + std::to_string(rank) + " "), std::string::npos) << error.text();
}

class GroupHosts : public testing::Test {
  protected:
    Hosts hosts{3};
    void SetUp() override {
        if (!hosts.why_not().empty()) GTEST_SKIP() << hosts.why_not();
    }
};

TEST_F(GroupHosts, ranks_of_three_hosts_find_each_other_and_their_places) {
    on_hosts(hosts, 3, [](int rank) {
        for (const char *name : {"first", "second", "first"}) { // one after the other at the same address
            const auto group = make_group(name);
            EXPECT_EQ(std::string(group->backend_name()), "hier");
            EXPECT_EQ(group->rank(), rank);
            EXPECT_EQ(group->here().rank, rank % per_host);
            EXPECT_EQ(group->here().size, per_host);
            for (const size_t count : {1UL, 6UL, 5'000UL, 300'001UL}) expect_sum(*group, count);
            EXPECT_EQ(group->close(-1), UJOIN_OK);
        }
        const auto flat = make_group("without memory", "tcp");
        EXPECT_EQ(flat->here().size, 1);
        expect_sum(*flat, 300'001);
    });
}

TEST_F(GroupHosts, the_parts_of_a_group_that_is_split_have_their_own_connections) {
    on_hosts(hosts, 3, [](int rank) {
        const auto group = make_group();
        const auto within = group->split(rank / per_host, 0, GroupConfig{});
        const auto across = group->split(rank % per_host, -rank, GroupConfig{}); // in falling order
        EXPECT_EQ(within->here().size, 2);
        EXPECT_EQ(across->here().size, 1);
        EXPECT_EQ(across->rank(), 2 - rank / per_host);
        expect_sum(*within, 70'000);
        expect_sum(*across, 70'000);
        const auto two = group->split(rank < 2 ? -1 : 5, 0, GroupConfig{});
        EXPECT_EQ(two == nullptr, rank < 2);
        if (two) expect_sum(*two, 1'000);
        expect_sum(*group, 1'000);
    });
}

TEST_F(GroupHosts, memory_is_not_shared_and_every_rank_is_told) {
    on_hosts(hosts, 2, [](int) {
        const auto group = make_group();
        try {
            SharedMemory::create(group, 4096, false);
            ADD_FAILURE() << "memory across hosts";
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), UJOIN_E_UNSUPPORTED) << error.text();
        }
        expect_sum(*group, 10);
    });
}

TEST_F(GroupHosts, a_rank_that_dies_is_lost_everywhere_within_a_second) {
    on_hosts(hosts, 3, [](int rank) {
        const auto group = make_group();
        expect_sum(*group, 5'000);
        if (rank == 3) {
            harness::expect_death(SIGKILL);
            kill(getpid(), SIGKILL);
        }
        expect_lost(*group, 3);
    });
}

TEST_F(GroupHosts, a_rank_that_dies_is_lost_also_if_it_has_forked) {
    auto *child = static_cast<std::atomic<pid_t> *>(
        mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    on_hosts(hosts, 2, [&](int rank) {
        const auto group = make_group();
        expect_sum(*group, 5'000);
        if (rank == 3) {
            harness::expect_death(SIGKILL);
            const pid_t pid = fork();
            if (pid == 0) { // loads data, as it were, and knows nothing of its parent's end
                alarm(60);
                for (;;) pause();
            }
            *child = pid;
            kill(getpid(), SIGKILL);
        }
        expect_lost(*group, 3);
        EXPECT_EQ(kill(*child, 0), 0) << "it still has what it inherited";
    });
    EXPECT_EQ(kill(*child, SIGKILL), 0);
    munmap(child, sizeof *child);
}

TEST_F(GroupHosts, a_host_that_is_silent_is_lost) {
    on_hosts(hosts, 2, [&](int rank) {
        const auto group = make_group();
        expect_sum(*group, 300'001);
        if (rank == 0) hosts.cut(1);
        const int64_t begin = now_ms();
        const Error error = failure_of(*group);
        EXPECT_LT(now_ms() - begin, static_cast<int64_t>(50'000 * harness::slack())); // 10 s
        EXPECT_EQ(error.code(), UJOIN_E_PEER_LOST) << error.text();
        for (const int32_t other : error.ranks()) EXPECT_NE(other / per_host, rank / per_host) << error.text();
    });
}

TEST_F(GroupHosts, ujoin_run_starts_both_halves_and_they_stop_at_the_same_step) {
    const auto start = [&](int node) {
        std::vector<std::string> argv = hosts.prefix(node);
        const std::vector<std::string> run = {harness::built("bin/ujoin-run"),
                                              "--nnodes",
                                              "2",
                                              "--node-rank",
                                              std::to_string(node),
                                              "--nproc-per-node",
                                              "2",
                                              "--master-addr",
                                              Hosts::address(0),
                                              "--master-port",
                                              "29500",
                                              harness::built("tests/bin/join_stopper"),
                                              "7"};
        argv.insert(argv.end(), run.begin(), run.end());
        return std::make_unique<harness::Launch>(
            argv, harness::Launch::Variables{{"RANK", ""}, {"WORLD_SIZE", ""}, {"UJOIN_SECRET", "between us"}});
    };
    const auto first = start(0);
    const auto second = start(1);
    std::set<std::string> steps;
    int ranks = 0;
    for (harness::Launch *node : {first.get(), second.get()}) {
        EXPECT_EQ(node->wait(), 0) << node->out() << node->err();
        std::istringstream lines(node->out());
        for (std::string line; std::getline(lines, line);) {
            const size_t at = line.find(" left after ");
            if (at == std::string::npos) continue;
            ranks++;
            steps.insert(line.substr(at));
        }
    }
    EXPECT_EQ(ranks, 4) << first->out() << second->out();
    EXPECT_EQ(steps.size(), 1U) << first->out() << second->out();
}

} // namespace
