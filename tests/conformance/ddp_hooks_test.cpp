// SPDX-License-Identifier: Apache-2.0
// Comm hooks and buffer hooks: those of the library, and the program's own. Ranks are threads, then processes.
#include "harness/ddp_kit.hpp"
#include <algorithm>
#include <cmath>
#include <fcntl.h>
#include <random>
#include <unistd.h>

using namespace ddp_kit;

namespace {

void expect_error(ujoin_status status, ujoin_status code, const std::vector<std::string> &words) {
    EXPECT_EQ(status, code) << ujoin_status_name(status) << ": " << ujoin_last_error();
    for (const std::string &word : words)
        EXPECT_NE(std::string(ujoin_last_error()).find(word), std::string::npos)
            << word << " not in: " << ujoin_last_error();
}

float *floats(const ujoin_bucket *bucket) { return static_cast<float *>(bucket->buffer.data); }

/// The program's side of a hook.
struct Own {
    bool late = false;      ///< divides when the sum is there, in two stages, not before
    bool by_divisor = true; ///< else by the size of the group
    int fail_in_round = -1;
    ujoin_ddp *calls_back = nullptr;
    int32_t world = 0;
    int destroyed = 0;
    std::vector<ujoin_bucket> seen;
    std::vector<std::vector<float>> contents;
    std::vector<std::vector<size_t>> params;

    double by(const ujoin_bucket *bucket) const { return by_divisor ? bucket->divisor : world; }
    static void scale(const ujoin_bucket *bucket, double factor) {
        for (size_t k = 0; k < bucket->buffer.count; k++) floats(bucket)[k] *= static_cast<float>(factor);
    }
    static ujoin_status start(void *self, const ujoin_bucket *bucket, ujoin_work **out_work) {
        Own &own = *static_cast<Own *>(self);
        own.seen.push_back(*bucket);
        own.contents.emplace_back(floats(bucket), floats(bucket) + bucket->buffer.count);
        own.params.emplace_back(bucket->params, bucket->params + bucket->param_count);
        if (own.calls_back) return ujoin_ddp_set_sync(own.calls_back, 0);
        if (bucket->iteration == own.fail_in_round)
            return ujoin_set_last_error(UJOIN_E_CALLBACK, "the hook has had enough");
        if (!own.late && own.by(bucket) != 0) scale(bucket, 1 / own.by(bucket));
        return ujoin_all_reduce(bucket->group, nullptr, &bucket->buffer, UJOIN_SUM, nullptr, out_work);
    }
    /// Doubles the sum, waits for work that changes nothing, then takes half and divides.
    static ujoin_status then(void *self, const ujoin_bucket *bucket, ujoin_work **out_work) {
        Own &own = *static_cast<Own *>(self);
        if (!own.late) return UJOIN_OK;
        if (own.stage_[bucket->index] == 0) {
            own.stage_[bucket->index] = 1;
            scale(bucket, 2);
            return ujoin_all_reduce(bucket->group, nullptr, &bucket->buffer, UJOIN_MAX, nullptr, out_work);
        }
        own.stage_[bucket->index] = 0;
        scale(bucket, 0.5 / own.by(bucket));
        return UJOIN_OK;
    }
    static void destroy(void *self) { static_cast<Own *>(self)->destroyed++; }

    ujoin_comm_hook hook() {
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.start = start;
        hook.then = then;
        hook.user_data = this;
        hook.destroy = destroy;
        return hook;
    }

  private:
    int stage_[64] = {};
};

ujoin_comm_hook ready_made(ujoin_comm_hook_kind kind, int32_t rank = 0) {
    ujoin_comm_hook hook{};
    hook.size = sizeof hook;
    hook.kind = kind;
    hook.rank = rank;
    hook.start_iteration = -1;
    return hook;
}

class DdpHooks : public testing::TestWithParam<Ranks> {
  protected:
    static void ranks(int size, const Body &body) { ddp_kit::run(GetParam(), size, body); }
};

} // namespace

// ------------------------------------------------------------------------------------------------- the program's hook

TEST_P(DdpHooks, D_28_D_29_accumulation_with_a_hook_of_the_programs_own) {
    for (const bool late : {false, true})
        ranks(2, [&](ujoin_group *group, int rank) {
            Own own;
            own.late = late;
            own.by_divisor = false;
            own.world = 2;
            std::vector<Tensor> tensors{{"a", 3}, {"b", 2}};
            ujoin_ddp_options options = ddp_options();
            options.bucket_bytes = 1;
            {
                const DdpPtr ddp = make_ddp(group, tensors, options);
                ASSERT_TRUE(ddp);
                const ujoin_comm_hook hook = own.hook();
                ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
                for (int t = 0; t < 4; t++) {
                    const bool sync = t % 2 == 1;
                    ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), sync));
                    for (Tensor &tensor : tensors)
                        for (size_t k = 0; k < tensor.count; k++) tensor.grads<float>()[k] += static_cast<float>(rank + t);
                    ASSERT_UJOIN_OK(reduce(ddp.get(), 2));
                    const float local = static_cast<float>(rank + t);
                    const float full = 0.5F + static_cast<float>(t) + 0.5F + static_cast<float>(t - 1);
                    EXPECT_EQ(tensors[0].grads<float>()[2], sync ? full : local) << t;
                    EXPECT_EQ(tensors[1].grads<float>()[1], sync ? full : local) << t;
                    if (sync)
                        for (Tensor &tensor : tensors) tensor.fill_grad(0.0F);
                }
                ASSERT_EQ(own.seen.size(), 4U);
                EXPECT_EQ(own.destroyed, 0);
            }
            EXPECT_EQ(own.destroyed, 1);
            EXPECT_EQ(own.params[0], std::vector<size_t>{1});
            EXPECT_EQ(own.seen[0].index, 0);
            EXPECT_EQ(own.seen[0].is_last, 0);
            EXPECT_EQ(own.seen[1].is_last, 1);
            EXPECT_EQ(own.seen[1].buffer.count, 3U);
            EXPECT_EQ(own.seen[3].iteration, 1);
        });
}

TEST_P(DdpHooks, D_09_a_joined_rank_calls_the_hook_with_zeros_and_gets_the_result) {
    ranks(3, [](ujoin_group *group, int rank) {
        Own own;
        std::vector<Tensor> tensors{{"w", 4}}; // one piece of memory: the hook gets it itself, where it counts
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options(UJOIN_DIVISION_ACTIVE));
        ASSERT_TRUE(ddp);
        const ujoin_comm_hook hook = own.hook();
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        for (int t = 0; t < 1 + rank; t++) {
            for (Tensor &tensor : tensors) tensor.fill_grad(static_cast<float>(10 * (rank + 1)));
            ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
        ASSERT_EQ(own.seen.size(), 3U);
        for (int t = 0; t < 3; t++) {
            const ujoin_bucket &bucket = own.seen[static_cast<size_t>(t)];
            const bool shadow = t > rank;
            EXPECT_EQ(bucket.is_shadow, shadow) << t;
            EXPECT_EQ(bucket.source_rank, t);
            EXPECT_EQ(bucket.divisor, 3 - t) << "D-47";
            EXPECT_EQ(own.contents[static_cast<size_t>(t)][3], shadow ? 0 : static_cast<float>(10 * (rank + 1)));
        }
        EXPECT_EQ(tensors[0].grads<float>()[0], 30) << "the mean over the last active rank";
    });
}

TEST_P(DdpHooks, D_45_D_46_D_47_the_divisor_is_right_with_every_hook_and_place_and_after_the_context) {
    for (const ujoin_comm_hook_kind kind : {UJOIN_COMM_HOOK_ALL_REDUCE, UJOIN_COMM_HOOK_F16, UJOIN_COMM_HOOK_BF16,
                                            UJOIN_COMM_HOOK_LOW_RANK, UJOIN_COMM_HOOK_CUSTOM})
        ranks(3, [&](ujoin_group *group, int rank) {
            Own own;
            std::vector<Tensor> tensors{{"a", 64}, {"other", 4}};
            const int64_t shape[] = {8, 8};
            std::vector<ujoin_param> params = params_of(tensors);
            params[0].shape = shape;
            params[0].ndim = 2;
            ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_ACTIVE);
            ujoin_ddp *handle = nullptr;
            ASSERT_UJOIN_OK(ujoin_ddp_create(group, params.data(), 2, &options, &handle));
            const DdpPtr ddp(handle);
            const ujoin_comm_hook hook = kind == UJOIN_COMM_HOOK_CUSTOM ? own.hook() : ready_made(kind);
            ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(handle, &hook));
            ujoin_hooks none{};
            none.size = sizeof none;
            ujoin_joinable *first = nullptr;
            ASSERT_UJOIN_OK(ujoin_joinable_create(group, &none, &first));
            const CtxPtr ctx = make_ctx({first, ujoin_ddp_joinable(handle)});
            ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
            const auto iterate = [&](double divisor) {
                for (Tensor &tensor : tensors) tensor.fill_grad(4.0F);
                ASSERT_UJOIN_OK(reduce(handle, 2));
                EXPECT_EQ(report_of(handle).divisor, divisor);
                for (Tensor &tensor : tensors)
                    for (size_t k = 0; k < tensor.count; k++) ASSERT_NEAR(tensor.grads<float>()[k], 4, 1e-4) << tensor.name;
            };
            for (int t = 0; t < 2 + 2 * rank; t++) {
                ASSERT_UJOIN_OK(ujoin_joinable_notify(first, nullptr));
                iterate(t < 2 ? 3 : t < 4 ? 2 : 1);
            }
            ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
            ujoin_joinable_destroy(first);
            iterate(3); // D-46
        });
}

TEST_P(DdpHooks, division_by_samples_gives_a_hook_shares_that_need_no_dividing) {
    for (const ujoin_gradient_kind kind : {UJOIN_GRADIENT_MEAN, UJOIN_GRADIENT_SUM})
        for (const ujoin_comm_hook_kind reduced_by :
             {UJOIN_COMM_HOOK_CUSTOM, UJOIN_COMM_HOOK_F16, UJOIN_COMM_HOOK_BF16, UJOIN_COMM_HOOK_LOW_RANK})
            ranks(3, [&](ujoin_group *group, int rank) {
                Own own;
                std::vector<Tensor> tensors{{"w", 4}};
                ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_SAMPLES);
                options.gradient_kind = kind;
                const DdpPtr ddp = make_ddp(group, tensors, options);
                ASSERT_TRUE(ddp);
                const ujoin_comm_hook hook = reduced_by == UJOIN_COMM_HOOK_CUSTOM ? own.hook() : ready_made(reduced_by);
                ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
                const double samples = 2.0 * rank;                                              // 0, 2, 4
                tensors[0].fill_grad(rank == 0 ? std::nanf("") : static_cast<float>(3 * rank)); // NaN, 3, 6
                ASSERT_UJOIN_OK(reduce(ddp.get(), 1, samples));
                const double expected = kind == UJOIN_GRADIENT_MEAN ? (2 * 3 + 4 * 6) / 6.0 : (3 + 6) / 6.0;
                EXPECT_NEAR(tensors[0].grads<float>()[3], expected, reduced_by == UJOIN_COMM_HOOK_LOW_RANK ? 1e-6 : 2e-2);
                tensors[0].fill_grad(5.0F);
                ASSERT_UJOIN_OK(reduce(ddp.get(), 1, 0));
                EXPECT_EQ(tensors[0].grads<float>()[3], 5) << "without any sample gradients are left alone";
                if (!own.seen.empty()) {
                    EXPECT_EQ(own.seen[0].divisor, kind == UJOIN_GRADIENT_MEAN ? 1 : 6);
                    EXPECT_EQ(own.seen[1].divisor, 0);
                }
            });
}

TEST_P(DdpHooks, unused_parameters_are_zeros_in_a_hooks_bucket) {
    for (const ujoin_comm_hook_kind kind : {UJOIN_COMM_HOOK_CUSTOM, UJOIN_COMM_HOOK_F16})
        ranks(2, [&](ujoin_group *group, int rank) {
            Own own;
            std::vector<Tensor> tensors{{"a", 2}, {"b", 2}, {"c", 2}};
            ujoin_ddp_options options = ddp_options();
            options.find_unused = 1;
            const DdpPtr ddp = make_ddp(group, tensors, options);
            ASSERT_TRUE(ddp);
            const ujoin_comm_hook hook = kind == UJOIN_COMM_HOOK_CUSTOM ? own.hook() : ready_made(kind);
            ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
            for (Tensor &tensor : tensors) tensor.fill_grad(4.0F);
            ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
            ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
            if (rank == 1) {
                ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 1));
            }
            ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
            EXPECT_EQ(tensors[0].grads<float>()[1], 4);
            EXPECT_EQ(tensors[1].grads<float>()[1], 2) << "one of two ranks used it";
            EXPECT_EQ(tensors[2].grads<float>()[1], 4) << "nobody used it: left alone";
        });
}

// ----------------------------------------------------------------------------------------------------------- low rank

TEST_P(DdpHooks, D_10_low_rank_errors_are_made_good_in_later_iterations) {
    ranks(3, [](ujoin_group *group, int rank) {
        constexpr size_t rows = 12;
        constexpr size_t columns = 20;
        std::vector<Tensor> tensors{{"matrix", rows * columns}, {"bias", 5}};
        const int64_t shape[] = {rows, columns};
        std::vector<ujoin_param> params = params_of(tensors);
        params[0].shape = shape;
        params[0].ndim = 2;
        ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_INITIAL);
        ujoin_ddp *handle = nullptr;
        ASSERT_UJOIN_OK(ujoin_ddp_create(group, params.data(), 2, &options, &handle));
        const DdpPtr ddp(handle);
        const ujoin_comm_hook hook = ready_made(UJOIN_COMM_HOOK_LOW_RANK, 2);
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(handle, &hook));

        std::mt19937 random(5); // the same on every rank: each knows the mean
        std::normal_distribution<float> normal;
        std::vector<std::vector<float>> gradients(3, std::vector<float>(rows * columns));
        for (std::vector<float> &of_rank : gradients)
            for (float &value : of_rank) value = normal(random);
        std::vector<double> mean(rows * columns);
        for (size_t k = 0; k < mean.size(); k++) mean[k] = (gradients[0][k] + gradients[1][k] + gradients[2][k]) / 3.0;

        constexpr int iterations = 60;
        std::vector<double> total(rows * columns);
        double first_error = 0;
        const auto distance = [&](int times) { // of what arrived so far from what should have, per iteration
            double sum = 0;
            double norm = 0;
            for (size_t k = 0; k < mean.size(); k++) {
                sum += std::pow(total[k] / times - mean[k], 2);
                norm += mean[k] * mean[k];
            }
            return std::sqrt(sum / norm);
        };
        for (int t = 1; t <= iterations; t++) {
            std::copy(gradients[static_cast<size_t>(rank)].begin(), gradients[static_cast<size_t>(rank)].end(),
                      tensors[0].grads<float>());
            tensors[1].fill_grad(static_cast<float>(3 * rank));
            ASSERT_UJOIN_OK(reduce(handle, 2));
            EXPECT_NEAR(tensors[1].grads<float>()[4], 3, 1e-6) << "what is no matrix is exact";
            for (size_t k = 0; k < mean.size(); k++) total[k] += tensors[0].grads<float>()[k];
            if (t == 1) first_error = distance(1);
        }
        EXPECT_GT(first_error, 0.3) << "two factors cannot hold this matrix";
        EXPECT_LT(distance(iterations), 0.15) << "without feedback it stays at " << first_error;
    });
}

TEST_P(DdpHooks, low_rank_begins_at_its_iteration_on_joined_ranks_too) {
    ranks(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"matrix", 64 * 64}};
        const int64_t shape[] = {64, 64};
        std::vector<ujoin_param> params = params_of(tensors);
        params[0].shape = shape;
        params[0].ndim = 2;
        ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_ACTIVE);
        ujoin_ddp *handle = nullptr;
        ASSERT_UJOIN_OK(ujoin_ddp_create(group, params.data(), 1, &options, &handle));
        const DdpPtr ddp(handle);
        ujoin_comm_hook hook = ready_made(UJOIN_COMM_HOOK_LOW_RANK);
        hook.start_iteration = 3;
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(handle, &hook));
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(handle)});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        for (int t = 0; t < (rank == 0 ? 1 : 5); t++) {
            for (size_t k = 0; k < 64 * 64; k++) tensors[0].grads<float>()[k] = static_cast<float>((k * 37) % 101);
            ASSERT_UJOIN_OK(reduce(handle, 1));
            const bool exact = tensors[0].grads<float>()[1] == 37 && tensors[0].grads<float>()[77] == (77 * 37) % 101;
            EXPECT_EQ(exact, t < 3) << t;
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
    });
}

// ------------------------------------------------------------------------------------------------------- buffer hooks

namespace {

/// The buffer's sum over the ranks, now or in flight; or the default.
struct BufferHook {
    bool in_flight = false;
    bool as_default = false;
    int calls = 0;
    static ujoin_status start(void *self, const ujoin_bucket *bucket, ujoin_work **out_work) {
        auto &own = *static_cast<BufferHook *>(self);
        own.calls++;
        EXPECT_EQ(bucket->params, nullptr);
        ujoin_work **work = own.in_flight ? out_work : nullptr;
        if (own.as_default) return ujoin_broadcast(bucket->group, &bucket->buffer, bucket->source_rank, nullptr, work);
        return ujoin_all_reduce(bucket->group, nullptr, &bucket->buffer, UJOIN_SUM, nullptr, work);
    }
};

} // namespace

TEST_P(DdpHooks, D_37_D_38_buffer_hooks_before_and_after_forward) {
    for (const ujoin_buffer_time time : {UJOIN_BUFFER_BEFORE_FORWARD, UJOIN_BUFFER_AFTER_FORWARD})
        for (const bool in_flight : {false, true})
            for (const bool as_default : {false, true})
                ranks(2, [&](ujoin_group *group, int rank) {
                    BufferHook own{in_flight, as_default, 0};
                    std::vector<Tensor> tensors{{"w", 1}};
                    std::vector<float> mean(3);
                    const ujoin_buffer buffer{mean.data(), mean.size(), UJOIN_F32, 0, 0, 0};
                    ujoin_ddp_options options = ddp_options();
                    options.buffers = &buffer;
                    options.buffer_count = 1;
                    const DdpPtr ddp = make_ddp(group, tensors, options);
                    ASSERT_TRUE(ddp);
                    ujoin_comm_hook hook{};
                    hook.size = sizeof hook;
                    hook.start = BufferHook::start;
                    hook.user_data = &own;
                    ASSERT_UJOIN_OK(ujoin_ddp_set_buffer_hook(ddp.get(), time, &hook));
                    const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
                    ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
                    for (int t = 0; t < 2 + rank; t++) {
                        const float mine = 10.0F * static_cast<float>(rank + 1);
                        std::fill(mean.begin(), mean.end(), mine);
                        const float all = as_default ? (t < 2 ? 10 : 20) : (t < 2 ? 30 : 20);
                        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
                        EXPECT_EQ(mean[2], time == UJOIN_BUFFER_BEFORE_FORWARD ? all : mine) << t;
                        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
                        ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
                        EXPECT_EQ(mean[2], all) << t;
                    }
                    ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
                    EXPECT_EQ(own.calls, 3) << "joined ranks shadow it";
                    EXPECT_EQ(mean[0], 20);
                });
}

TEST_P(DdpHooks, a_ready_made_buffer_hook_averages) {
    ranks(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 1}};
        std::vector<double> mean(3, 4.0 * rank);
        ujoin_buffer buffer{mean.data(), mean.size(), UJOIN_F64, 0, 0, 0};
        ujoin_ddp_options options = ddp_options();
        options.buffers = &buffer;
        options.buffer_count = 1;
        options.no_initial_broadcast = 1;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        const ujoin_comm_hook hook = ready_made(UJOIN_COMM_HOOK_ALL_REDUCE);
        ASSERT_UJOIN_OK(ujoin_ddp_set_buffer_hook(ddp.get(), 0, &hook));
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
        EXPECT_EQ(mean[2], 2);
    });
}

// --------------------------------------------------------------------------------------------------- misuse, failures

TEST_P(DdpHooks, D_40_a_second_hook_is_refused_and_so_is_a_late_one) {
    ranks(2, [](ujoin_group *group, int) {
        Own own;
        std::vector<Tensor> tensors{{"w", 1}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        ujoin_comm_hook hook = own.hook();
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
        expect_error(ujoin_ddp_set_comm_hook(ddp.get(), &hook), UJOIN_E_STATE, {"set already"});
        EXPECT_EQ(own.destroyed, 1) << "a hook that is not taken is given back";
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
        expect_error(ujoin_ddp_set_buffer_hook(ddp.get(), 0, &hook), UJOIN_E_STATE, {"before the first"});
        EXPECT_EQ(own.destroyed, 2);
        hook.kind = UJOIN_COMM_HOOK_F16;
        expect_error(ujoin_ddp_set_comm_hook(ddp.get(), &hook), UJOIN_E_INVALID, {"functions are given"});
        hook.kind = 6;
        expect_error(ujoin_ddp_set_comm_hook(ddp.get(), &hook), UJOIN_E_INVALID, {"kind is 6"});
        hook = ready_made(UJOIN_COMM_HOOK_CUSTOM);
        expect_error(ujoin_ddp_set_comm_hook(ddp.get(), &hook), UJOIN_E_INVALID, {"start is NULL"});
        hook = ready_made(UJOIN_COMM_HOOK_F16);
        expect_error(ujoin_ddp_set_buffer_hook(ddp.get(), 0, &hook), UJOIN_E_INVALID, {"all-reduce or custom"});
    });
}

TEST_P(DdpHooks, that_differ_between_ranks_are_reported_on_every_rank) {
    ranks(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 100}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const ujoin_comm_hook hook = ready_made(rank == 0 ? UJOIN_COMM_HOOK_F16 : UJOIN_COMM_HOOK_BF16);
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
        expect_error(reduce(ddp.get(), 1), UJOIN_E_MISMATCH, {"ranks differ in comm hooks"});
    });
}

TEST_P(DdpHooks, a_failing_hook_ends_the_iteration_on_every_rank) {
    ranks(2, [](ujoin_group *group, int rank) {
        Own own;
        own.fail_in_round = rank == 1 ? 2 : -1;
        std::vector<Tensor> tensors{{"w", 1}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const ujoin_comm_hook hook = own.hook();
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
        ujoin_status status = UJOIN_OK;
        for (int t = 0; t < 4 && status == UJOIN_OK; t++) status = reduce(ddp.get(), 1);
        expect_error(status, rank == 1 ? UJOIN_E_CALLBACK : UJOIN_E_ABORTED,
                     {"the hook has had enough", "bucket 0 on rank 1"});
        EXPECT_EQ(report_of(ddp.get()).iterations, 2);
    });
}

TEST_P(DdpHooks, a_hook_may_not_call_its_reducer) {
    ranks(1, [](ujoin_group *group, int) {
        Own own;
        std::vector<Tensor> tensors{{"w", 1}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        own.calls_back = ddp.get();
        const ujoin_comm_hook hook = own.hook();
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
        expect_error(reduce(ddp.get(), 1), UJOIN_E_CALLBACK, {"may not call that reducer"});
    });
}

TEST_P(DdpHooks, a_reducer_destroyed_with_a_hooks_work_in_flight_leaves_no_memory_in_use) {
    int gate[2];
    ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
    ranks(2, [&](ujoin_group *group, int rank) {
        Own own;
        std::vector<Tensor> tensors{{"w", 100}, {"v", 100}};
        ujoin_ddp_options options = ddp_options();
        options.bucket_bytes = 1;
        DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        const ujoin_comm_hook hook = own.hook();
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp.get(), &hook));
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr)); // what each has to tell before the buckets is told
        char token = 0;
        if (rank == 0) {
            ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 1)); // in flight until rank 1 has given its part
            ddp.reset();
            EXPECT_EQ(own.destroyed, 1);
            EXPECT_EQ(write(gate[1], &token, 1), 1);
            return;
        }
        EXPECT_EQ(read(gate[0], &token, 1), 1);
        ujoin_status status = ujoin_ddp_ready(ddp.get(), 1);
        if (status == UJOIN_OK) status = ujoin_ddp_ready(ddp.get(), 0);
        if (status == UJOIN_OK) status = ujoin_ddp_finish(ddp.get());
        expect_error(status, UJOIN_E_ABORTED, {"rank 0", "destroyed while its comm hook had work in flight"});
    });
    close(gate[0]);
    close(gate[1]);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpHooks,
                         testing::Values(Ranks::threads, Ranks::processes, Ranks::connections, Ranks::hosts), kind_name);
