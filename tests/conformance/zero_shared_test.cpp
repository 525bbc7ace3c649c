// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks share, and fused steps over it.
#include "harness/fused_kit.hpp"
#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <utility>

using namespace harness;

namespace {

/// Shared memory that is given away piece by piece.
class Arena {
  public:
    Arena(ujoin_group *group, size_t bytes, bool one_per_host = false) {
        ujoin_memory_options options{};
        options.size = sizeof options;
        options.one_per_host = one_per_host ? 1 : 0;
        ok(ujoin_memory_create(group, bytes, &options, &memory_));
        next_ = data();
    }
    ~Arena() { ujoin_memory_destroy(memory_); }
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;

    char *data() const { return static_cast<char *>(ujoin_memory_data(memory_)); }
    ujoin_memory *handle() const { return memory_; }
    void drop() { ujoin_memory_destroy(std::exchange(memory_, nullptr)); }
    Place place() {
        return [this](size_t bytes) { return std::exchange(next_, next_ + (bytes + 63) / 64 * 64); };
    }

  private:
    ujoin_memory *memory_ = nullptr;
    char *next_ = nullptr;
};

class ZeroShared : public TestOfRanks {};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroShared,
                         testing::Values(Where{"self", 1}, Where{"local", 2}, Where{"local", 3}, Where{"local", 4},
                                         Where{"shm", 2}, Where{"shm", 3}),
                         where_name);

TEST_P(ZeroShared, is_zeroed_aligned_and_of_its_own_size) {
    on_ranks([](ujoin_group *group, int rank) {
        const size_t bytes = 5000 + 5000 * static_cast<size_t>(rank);
        const Arena own(group, bytes);
        EXPECT_EQ(ujoin_memory_size(own.handle()), bytes);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(own.data()) % 4096, 0U);
        EXPECT_TRUE(std::all_of(own.data(), own.data() + bytes, [](char byte) { return byte == 0; }));
        ok(ujoin_barrier(group, nullptr));
        std::fill_n(own.data(), bytes, static_cast<char>(rank + 1));
        ok(ujoin_barrier(group, nullptr));
        EXPECT_TRUE(std::all_of(own.data(), own.data() + bytes, [&](char byte) { return byte == rank + 1; }));
    });
}

TEST_P(ZeroShared, one_per_host_is_the_same_for_all) {
    on_ranks([](ujoin_group *group, int rank) {
        const Arena one(group, 10'000, true);
        one.data()[rank] = static_cast<char>(rank + 1);
        ok(ujoin_barrier(group, nullptr));
        for (int k = 0; k < ujoin_group_size(group); k++) EXPECT_EQ(one.data()[k], k + 1);
    });
}

TEST_P(ZeroShared, wrong_requests_fail_on_every_rank) {
    on_ranks([](ujoin_group *group, int rank) {
        const auto refused = [&](size_t bytes, const ujoin_memory_options &options, ujoin_status expected,
                                 const std::string &part) {
            ujoin_memory *memory = nullptr;
            EXPECT_EQ(ujoin_memory_create(group, bytes, &options, &memory), expected) << ujoin_last_error();
            EXPECT_EQ(memory, nullptr);
            EXPECT_NE(std::string(ujoin_last_error()).find(part), std::string::npos) << ujoin_last_error();
        };
        const bool last = rank + 1 == ujoin_group_size(group);
        ujoin_memory_options options{};
        options.size = sizeof options;
        refused(last ? 0 : 100, options, UJOIN_E_INVALID, "bytes is 0");
        refused(last ? size_t{1} << 50 : 100, options, UJOIN_E_NO_MEMORY, "bytes of shared memory");
        options.device = last ? UJOIN_DEVICE_CUDA : UJOIN_DEVICE_HOST;
        refused(100, options, UJOIN_E_UNSUPPORTED, "options.device is 1");
        options.device = UJOIN_DEVICE_HOST;
        if (ujoin_group_size(group) > 1) {
            options.one_per_host = 1;
            refused(last ? 200 : 100, options, UJOIN_E_MISMATCH, "ranks differ in the size");
            options.one_per_host = last ? 1 : 0;
            refused(100, options, UJOIN_E_MISMATCH, "one_per_host");
        }
        const Arena after(group, 100); // and the group goes on
    });
}

/// Recipes that differ in all that a step looks at.
std::vector<FusedRecipe> recipes() {
    std::vector<FusedRecipe> list;
    for (const ujoin_partition partition : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS})
        for (const ujoin_optimizer rule :
             {UJOIN_OPTIMIZER_SGD, UJOIN_OPTIMIZER_ADAMW, UJOIN_OPTIMIZER_NADAM, UJOIN_OPTIMIZER_LION}) {
            FusedRecipe &recipe = list.emplace_back();
            recipe.partition = partition;
            recipe.rule = rule;
            recipe.counts = {5, 70'001, 900, 1, 0, 33'000};
        }
    for (ujoin_division division = UJOIN_DIVISION_INITIAL; division <= UJOIN_DIVISION_SAMPLES; division++) {
        FusedRecipe &recipe = list.emplace_back();
        recipe.division = division;
        recipe.types = {UJOIN_BF16, UJOIN_F64, UJOIN_F32, UJOIN_F16};
    }
    list.emplace_back().rule = UJOIN_OPTIMIZER_LAMB;
    return list;
}

constexpr size_t arena_bytes = size_t{2} << 20;

TEST_P(ZeroShared, steps_over_it_have_the_bits_of_a_reduction_and_a_step) {
    on_ranks([](ujoin_group *group, int rank) {
        for (FusedRecipe recipe : recipes())
            for (const bool one_per_host : {false, true}) {
                SCOPED_TRACE(testing::Message() << "rule " << recipe.rule << " partition " << recipe.partition << " type "
                                                << recipe.types[0] << " division " << recipe.division);
                Arena data(group, arena_bytes, one_per_host);
                Arena grad(group, arena_bytes);
                FusedModel apart(group, reduced_for_all(recipe));
                recipe.data = data.place();
                recipe.grad = grad.place();
                FusedModel fused(group, recipe);
                for (int t = 0; t < 4; t++) {
                    for (FusedModel *model : {&fused, &apart}) {
                        model->clear();
                        model->iterate(t, 1 + (t + rank) % 3);
                        const Bytes before = model->gradients();
                        model->step();
                        if (model == &fused && recipe.rule != UJOIN_OPTIMIZER_LAMB) {
                            EXPECT_TRUE(model->gradients() == before);
                        }
                        ok(ujoin_barrier(group, nullptr));
                    }
                    EXPECT_TRUE(fused.values() == apart.values()) << t;
                    if (t == 1) { // what an optimizer uses stays
                        data.drop();
                        grad.drop();
                    }
                }
                EXPECT_TRUE(fused.state() == apart.state());
                fused.destroy_zero();
            }
    });
}

TEST_P(ZeroShared, unused_parameters_and_changes_of_place) {
    on_ranks([](ujoin_group *group, int rank) {
        FusedRecipe recipe;
        recipe.find_unused = true;
        FusedModel apart(group, reduced_for_all(recipe));
        Arena arena(group, arena_bytes);
        Arena other(group, arena_bytes);
        recipe.data = recipe.grad = arena.place();
        FusedModel fused(group, recipe);
        for (int t = 0; t < 6; t++)
            for (FusedModel *model : {&fused, &apart}) {
                model->clear();
                if (t == 2 || t == 4) ok(zero_set_frozen(model->zero(), 2, t == 2 ? 1 : 0));
                const auto uses = [&](size_t p) {
                    if (p == 0) return rank == 0;
                    return p != 4 || (t + rank) % 2 == 0;
                };
                for (size_t p = 0; p < model->size(); p++)
                    if (!uses(p)) model->spoil(p, 0.25F * static_cast<float>(rank + 1));
                model->iterate(t, 1, uses);
                model->step();
            }
        EXPECT_TRUE(fused.values() == apart.values());
        EXPECT_TRUE(fused.state() == apart.state());
    });
}

TEST_P(ZeroShared, uneven_inputs) {
    on_ranks([](ujoin_group *group, int rank) {
        for (ujoin_division division = UJOIN_DIVISION_INITIAL; division <= UJOIN_DIVISION_SAMPLES; division++) {
            FusedRecipe recipe;
            recipe.division = division;
            FusedModel apart(group, reduced_for_all(recipe));
            Arena arena(group, arena_bytes);
            recipe.data = recipe.grad = arena.place();
            FusedModel fused(group, recipe);
            for (FusedModel *model : {&fused, &apart}) {
                const ddp_kit::CtxPtr ctx =
                    ddp_kit::make_ctx({ujoin_ddp_joinable(model->ddp()), zero_joinable(model->zero())});
                ok(ujoin_ctx_start(ctx.get()));
                for (int t = 0; t < 2 + 2 * rank; t++) {
                    model->clear();
                    model->iterate(t, 1 + rank);
                    model->step();
                }
                ok(ujoin_ctx_finish(ctx.get()));
            }
            EXPECT_TRUE(fused.values() == apart.values());
            EXPECT_TRUE(fused.state() == apart.state());
        }
    });
}

TEST_P(ZeroShared, gradients_of_two_ranks_in_one_place_are_refused) {
    if (size() == 1) return; // a rank alone has its own
    on_ranks([](ujoin_group *group, int) {
        Arena arena(group, arena_bytes, true);
        FusedRecipe recipe;
        recipe.data = recipe.grad = arena.place();
        FusedModel model(group, recipe);
        ok(ujoin_ddp_forward(model.ddp(), 1));
        for (size_t p = 0; p < model.size(); p++) ok(ujoin_ddp_ready(model.ddp(), p));
        ok(ujoin_ddp_finish(model.ddp()));
        EXPECT_EQ(zero_step(model.zero(), nullptr), UJOIN_E_INVALID) << ujoin_last_error();
        EXPECT_NE(std::string(ujoin_last_error()).find("only parameters can be one per host"), std::string::npos)
            << ujoin_last_error();
    });
}

} // namespace
