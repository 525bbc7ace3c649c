// SPDX-License-Identifier: Apache-2.0
// What an optimizer costs a rank: its share of the state and 2 %, nothing of the size of the model, whatever it does.
#include "harness/temp_dir.hpp"
#include "harness/zero_kit.hpp"
#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>

using namespace harness;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool memory_is_the_programs = false; // a sanitizer has several bytes for each of the program's
#else
constexpr bool memory_is_the_programs = true;
#endif

constexpr size_t mib = size_t{1} << 20;
/// What does not grow with the model: stacks of threads, buffers of files, and the staging memory of all ranks, which counts
/// as each one's.
size_t fixed_bytes(int ranks) { return 2 * mib + static_cast<size_t>(ranks) * 2 * mib; }

size_t status_bytes(const char *format) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        size_t kib = 0;
        if (std::sscanf(line.c_str(), format, &kib) == 1) return kib * 1024; // NOLINT(*-format-nonliteral)
    }
    throw std::runtime_error("not in /proc/self/status");
}

/// Resident memory that `body` needed beyond what there was, at its peak.
template <class Body> size_t peak_of(Body &&body) {
    const size_t before = status_bytes("VmRSS: %zu");
    std::ofstream("/proc/self/clear_refs") << 5; // the peak counts anew
    body();
    const size_t peak = status_bytes("VmHWM: %zu");
    return peak > before ? peak - before : 0;
}

void expect_at_most(size_t bytes, size_t bound, const char *what) {
    if (memory_is_the_programs) {
        EXPECT_LE(bytes, bound) << what;
    }
}

class ZeroMemory : public TestOfRanks {};

TEST_P(ZeroMemory, a_rank_pays_for_its_share_of_the_state_and_no_full_size_temporary) {
    constexpr size_t tensors = 12;
    constexpr size_t elements = mib; // 48 MiB of parameters, 96 MiB of state
    const size_t share = tensors * elements * 4 * 2 / static_cast<size_t>(size());
    const size_t fixed = fixed_bytes(size());
    const TempDir folder;
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x(std::vector<size_t>(tensors, elements));
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAMW, x, {});
        const size_t steps = peak_of([&] {
            ujoin_step_options clipped{};
            clipped.size = sizeof clipped;
            clipped.max_norm = 1;
            for (int i = 0; i < 2; i++) ok(zero_step(optimizer.get(), &clipped));
        });
        expect_at_most(steps, share + share / 50 + fixed, "steps");
        ujoin_zero_memory told{};
        told.size = sizeof told;
        ok(zero_get_memory(optimizer.get(), &told));
        EXPECT_EQ(told.state, share);
        EXPECT_LE(told.buffers, share / 50 + fixed);
        const size_t saved = peak_of([&] { ok(zero_save(optimizer.get(), (folder / "saved").c_str(), nullptr)); });
        expect_at_most(saved, share / 50 + fixed, "a save");
        const size_t gathered = peak_of([&] { ok(zero_consolidate_state_dict(optimizer.get(), 0)); });
        const size_t whole = share * static_cast<size_t>(size());
        expect_at_most(gathered, (rank == 0 ? whole : 0) + whole / 50 + fixed, "bringing the state together");
    });
}

INSTANTIATE_TEST_SUITE_P(Backends, ZeroMemory, testing::Values(Where{"shm", 2}, Where{"shm", 4}), where_name);

} // namespace
