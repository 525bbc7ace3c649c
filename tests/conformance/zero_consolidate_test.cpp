// SPDX-License-Identifier: Apache-2.0
// What consolidation costs: bytes on their way, memory, time.
#include "base/error.hpp"
#include "harness/wrapped_backend.hpp"
#include "harness/zero_kit.hpp"
#include "zero/zero.hpp"
#include <chrono>
#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <latch>

using namespace harness;

namespace {

/// Bytes that a rank gave to the others and took from them.
struct Traffic {
    size_t sent = 0;
    size_t received = 0;
};

void count(const ujoin::OpArgs &op, int32_t rank, Traffic &traffic) {
    if (op.kind == ujoin::OpKind::all_gather) {
        const auto k = static_cast<size_t>(rank);
        const size_t own = op.part_offsets ? op.part_offsets[k + 1] - op.part_offsets[k] : op.count;
        const size_t memory = op.recv.bytes();
        traffic.sent += own;
        traffic.received += memory - (memory != 0 ? own : 0);
    } else if (op.kind == ujoin::OpKind::broadcast) {
        (op.root == rank ? traffic.sent : traffic.received) += op.count;
    } else {
        EXPECT_EQ(op.kind, ujoin::OpKind::barrier) << "an operation that is not counted";
    }
}

TEST(ZeroConsolidate, Z_47_each_shard_is_sent_once_and_to_the_target_alone) {
    constexpr int32_t ranks = 4;
    constexpr int32_t to = 1;
    constexpr size_t control = 4096; // what the ranks agree on before
    const std::string meeting = unique("consolidate");
    run_threads(ranks, [&](int rank) {
        Traffic traffic;
        const std::shared_ptr<ujoin::Group> group =
            wrapped_group(meeting, rank, ranks, [&](const ujoin::OpArgs &op) { count(op, rank, traffic); });
        Tensors x({1'400'000, 700'000, 1'100'000, 1'500'000}); // more than a chunk of state each
        const std::vector<ujoin_param> params = x.params();
        ujoin::ZeroConfig config;
        config.rule = ujoin::optim::shared_rule(UJOIN_OPTIMIZER_ADAM);
        config.defaults = ujoin::optim::default_hyper(*config.rule);
        const auto zero = std::make_shared<ujoin::Zero>(group, config, ujoin::Release());
        zero->add_param_group(params.data(), params.size(), nullptr, 0);
        zero->step(nullptr, nullptr);

        traffic = {};
        zero->consolidate(to);
        const size_t all = 2 * (1'400'000 + 700'000 + 1'100'000 + 1'500'000) * sizeof(float);
        const size_t shard = zero->memory().state;
        if (rank == to) {
            EXPECT_LT(traffic.sent, control);
            EXPECT_GE(traffic.received, all - shard);
            EXPECT_LT(traffic.received, all - shard + control);
        } else {
            EXPECT_GE(traffic.sent, shard);
            EXPECT_LT(traffic.sent, shard + control);
            EXPECT_LT(traffic.received, control);
        }
    });
}

TEST(ZeroConsolidate, ZERO_07_ranks_that_do_not_come_are_named_in_time) {
    constexpr int64_t timeout_ms = 300;
    std::latch failed(1);
    on_ranks("local", 4, [&](ujoin_group *group, int rank) {
        Tensors x({4, 4, 4, 4});
        const std::vector<ujoin_param> params = x.params();
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.consolidate_timeout_ms = timeout_ms;
        ujoin_zero *zero = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_ADAM, params.data(), params.size(), &options, &zero));
        ok(zero_step(zero, nullptr));
        if (rank == 0) {
            const auto start = std::chrono::steady_clock::now();
            EXPECT_EQ(zero_consolidate_state_dict(zero, 0), UJOIN_E_TIMEOUT);
            EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(timeout_ms));
            for (const char *name : {"1", "2", "3"})
                EXPECT_NE(std::string(ujoin_last_error()).find(name), std::string::npos) << ujoin_last_error();
            ujoin_state *list = nullptr;
            EXPECT_EQ(zero_state_dict(zero, &list), UJOIN_E_STATE); // not a part of it
            failed.count_down();
        } else {
            failed.wait();
            EXPECT_LT(zero_consolidate_state_dict(zero, 0), 0); // the rank that gave up is not waited for
        }
        zero_destroy(zero);
    });
}

TEST(ZeroConsolidate, a_deadline_that_makes_no_sense_is_refused) {
    on_ranks("local", 1, [](ujoin_group *group, int) {
        Tensors x({4});
        const std::vector<ujoin_param> params = x.params();
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.consolidate_timeout_ms = -3;
        ujoin_zero *zero = nullptr;
        EXPECT_EQ(zero_create(group, UJOIN_OPTIMIZER_ADAM, params.data(), 1, &options, &zero), UJOIN_E_INVALID);
        EXPECT_NE(std::string(ujoin_last_error()).find("options.consolidate_timeout_ms is -3"), std::string::npos)
            << ujoin_last_error();
    });
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool memory_is_the_programs = false; // a sanitizer has several bytes for each of the program's
#else
constexpr bool memory_is_the_programs = true;
#endif

/// The most memory that this process has had, in bytes.
size_t peak_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        size_t kib = 0;
        if (std::sscanf(line.c_str(), "VmHWM: %zu", &kib) == 1) return kib * 1024;
    }
    throw std::runtime_error("/proc/self/status has no VmHWM");
}

TEST(ZeroConsolidate, ZERO_07_only_the_target_pays_for_the_whole_state) {
    constexpr size_t mib = size_t{1} << 20;
    constexpr size_t shard = 8 * mib;
    on_ranks("shm", 4, [&](ujoin_group *group, int rank) {
        Tensors x(std::vector<size_t>(4, mib)); // Adam: 32 MiB of state
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {});
        optimizer.step();
        const size_t before = peak_memory();
        ok(zero_consolidate_state_dict(optimizer.get(), 1));
        StateOwner list;
        EXPECT_EQ(zero_state_dict(optimizer.get(), &list.state), rank == 1 ? UJOIN_OK : UJOIN_E_STATE);
        const size_t growth = peak_memory() - before;
        if (memory_is_the_programs) {
            EXPECT_LE(growth, rank == 1 ? 4 * shard + shard : shard);
        }
        if (rank == 1) {
            EXPECT_EQ(ujoin_state_count(list.state), 4U * 3 + 7);
        }
    });
}

} // namespace
