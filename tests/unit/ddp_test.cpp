// SPDX-License-Identifier: Apache-2.0
#include "api/handles.hpp"
#include "ddp/reducer.hpp"
#include "harness/ddp_kit.hpp"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <numeric>
#include <thread>

using namespace ddp_kit;
using ujoin::BFloat16;
using ujoin::Bucket;
using ujoin::GradParam;
using ujoin::Half;

namespace {

GradParam param(size_t elements, ujoin_dtype dtype = UJOIN_F32, void *grad = nullptr) {
    GradParam result;
    result.elements = elements;
    result.dtype = dtype;
    result.grad = grad;
    return result;
}

std::vector<std::vector<size_t>> members(const std::vector<Bucket> &buckets) {
    std::vector<std::vector<size_t>> result;
    for (const Bucket &bucket : buckets) result.push_back(bucket.params);
    return result;
}

std::vector<Bucket> assign(const std::vector<GradParam> &params, size_t first_bytes, size_t bucket_bytes) {
    return ujoin::assign_buckets(params, ujoin::backward_order(params.size()), first_bytes, bucket_bytes);
}

/// A gate that one rank opens for another.
class Gate {
  public:
    void open() {
        const std::scoped_lock lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void pass() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return open_; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
};

} // namespace

// ------------------------------------------------------------------------------------------------------------ buckets

TEST(DdpBuckets, walk_from_the_last_parameter_with_a_small_first_bucket) {
    const std::vector<GradParam> params{param(100), param(100), param(100), param(50), param(60)};
    // 400 bytes close the first bucket of a type, 800 the others; a bucket may overshoot by its last member.
    EXPECT_EQ(members(assign(params, 400, 800)), (std::vector<std::vector<size_t>>{{3, 4}, {1, 2}, {0}}));
    EXPECT_EQ(members(assign(params, 1, 1)), (std::vector<std::vector<size_t>>{{4}, {3}, {2}, {1}, {0}}));
    EXPECT_EQ(members(assign(params, 1, 1 << 20)), (std::vector<std::vector<size_t>>{{4}, {0, 1, 2, 3}}));
}

TEST(DdpBuckets, hold_one_type_each_and_are_ordered_by_when_they_are_complete) {
    std::vector<GradParam> params;
    for (int i = 0; i < 6; i++) params.push_back(param(i % 2 == 0 ? 50 : 25, i % 2 == 0 ? UJOIN_F32 : UJOIN_F64));
    EXPECT_EQ(members(assign(params, 200, 400)), (std::vector<std::vector<size_t>>{{5}, {4}, {1, 3}, {0, 2}}));
    EXPECT_EQ(members(assign(params, 400, 400)), (std::vector<std::vector<size_t>>{{3, 5}, {2, 4}, {1}, {0}}));
}

namespace {

/// Buckets of a walk from the first parameter to the last.
void expect_forward(const std::vector<GradParam> &params, size_t first, size_t rest,
                    const std::vector<std::vector<size_t>> &expected, const std::vector<size_t> &limits) {
    std::vector<size_t> order(params.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const std::vector<Bucket> buckets = ujoin::assign_buckets(params, order, first, rest);
    EXPECT_EQ(members(buckets), expected);
    std::vector<size_t> seen;
    for (const Bucket &bucket : buckets) seen.push_back(bucket.limit);
    EXPECT_EQ(seen, limits);
}

std::vector<GradParam> alternating() {
    std::vector<GradParam> params;
    for (int i = 0; i < 6; i++) params.push_back(param(i % 2 == 0 ? 50 : 25, i % 2 == 0 ? UJOIN_F32 : UJOIN_F64));
    return params;
}

} // namespace

TEST(DdpBuckets, D_21_a_limit_that_each_tensor_reaches_or_the_end) {
    expect_forward({param(100), param(200), param(100), param(50)}, 400, 400, {{0}, {1}, {2}, {3}}, {400, 400, 400, 400});
}

TEST(DdpBuckets, D_22_two_types_make_buckets_of_their_own) {
    expect_forward(alternating(), 400, 400, {{0, 2}, {1, 3}, {4}, {5}}, {400, 400, 400, 400});
}

TEST(DdpBuckets, D_23_a_small_first_limit_then_a_larger_one) {
    expect_forward({param(10), param(10), param(10), param(10)}, 40, 80, {{0}, {1, 2}, {3}}, {40, 80, 80});
}

TEST(DdpBuckets, D_24_two_types_with_two_limits) {
    expect_forward(alternating(), 200, 400, {{0}, {1}, {2, 4}, {3, 5}}, {200, 200, 400, 400});
}

TEST(DdpBuckets, follow_any_order_and_hold_their_members_ascending) {
    const std::vector<GradParam> params{param(10), param(10), param(10), param(10)};
    const std::vector<Bucket> buckets = ujoin::assign_buckets(params, {3, 0, 2, 1}, 80, 80);
    EXPECT_EQ(members(buckets), (std::vector<std::vector<size_t>>{{0, 3}, {1, 2}}));
    EXPECT_EQ(buckets[0].offsets, (std::vector<size_t>{0, 10}));
}

TEST(DdpBuckets, skip_parameters_without_elements) {
    const std::vector<GradParam> params{param(4), param(0), param(4), param(0, UJOIN_F64)};
    EXPECT_EQ(members(assign(params, 1000, 1000)), (std::vector<std::vector<size_t>>{{0, 2}}));
}

TEST(DdpBuckets, merge_gradients_that_are_adjacent) {
    std::vector<float> memory(40);
    const std::vector<GradParam> params{param(10, UJOIN_F32, memory.data()), param(10, UJOIN_F32, memory.data() + 10),
                                        param(10, UJOIN_F32, memory.data() + 30)};
    const std::vector<Bucket> buckets = assign(params, 1 << 20, 1 << 20);
    ASSERT_EQ(buckets.size(), 1U);
    EXPECT_EQ(buckets[0].bytes, 120U);
    ASSERT_EQ(buckets[0].gradients.size(), 2U);
    EXPECT_EQ(buckets[0].gradients[0].data, memory.data());
    EXPECT_EQ(buckets[0].gradients[0].bytes, 80U);
    EXPECT_EQ(buckets[0].gradients[1].data, memory.data() + 30);
}

TEST(DdpBuckets, refuse_gradients_that_share_memory) {
    std::vector<float> memory(40);
    const std::vector<GradParam> params{param(10, UJOIN_F32, memory.data() + 20), param(0),
                                        param(21, UJOIN_F32, memory.data())};
    try {
        ujoin::check_gradients_apart(params);
        FAIL() << "no error";
    } catch (const ujoin::Error &error) {
        EXPECT_EQ(error.code(), UJOIN_E_INVALID);
        EXPECT_NE(error.text().find("parameters 2"), std::string::npos) << error.text();
    }
}

// -------------------------------------------------------------------------------------------------------------- ready

TEST(DdpReady, every_order_gives_the_same_average) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"a", 3}, {"b", 1}, {"c", 5}, {"d", 2}};
        ujoin_ddp_options options = ddp_options();
        options.first_bucket_bytes = 1;
        options.bucket_bytes = 16; // d | c | a, b
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        EXPECT_EQ(report_of(ddp.get()).bucket_count, 3U);
        std::vector<size_t> order{0, 1, 2, 3};
        int64_t iterations = 0;
        do {
            std::vector<size_t> mine = order;
            if (rank == 1) std::reverse(mine.begin(), mine.end()); // the ranks need not agree
            ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
            for (const size_t i : mine) {
                tensors[i].fill_grad(static_cast<float>((rank + 1) * 10) + static_cast<float>(i));
                ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), i));
            }
            ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
            iterations++;
            for (size_t i = 0; i < tensors.size(); i++)
                for (size_t k = 0; k < tensors[i].count; k++)
                    ASSERT_EQ(tensors[i].grads<float>()[k], 15 + static_cast<float>(i));
        } while (std::next_permutation(order.begin(), order.end()));
        EXPECT_EQ(report_of(ddp.get()).iterations, iterations);
        EXPECT_EQ(report_of(ddp.get()).divisor, 2);
    });
}

TEST(DdpReady, from_several_threads_at_once) {
    with_threads(2, [](ujoin_group *group, int rank) {
        constexpr size_t count = 32;
        std::vector<Tensor> tensors;
        for (size_t i = 0; i < count; i++) tensors.emplace_back("p" + std::to_string(i), 100 + i);
        ujoin_ddp_options options = ddp_options();
        options.first_bucket_bytes = 1;
        options.bucket_bytes = 1200;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        for (int round = 0; round < 20; round++) {
            ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
            std::vector<std::thread> threads;
            std::atomic<int> failed{0};
            for (size_t t = 0; t < 4; t++)
                threads.emplace_back([&, t] {
                    for (size_t i = t; i < count; i += 4) {
                        tensors[i].fill_grad(static_cast<float>(rank) + static_cast<float>(i));
                        if (ujoin_ddp_ready(ddp.get(), i) != UJOIN_OK) failed++;
                    }
                });
            for (std::thread &thread : threads) thread.join();
            ASSERT_EQ(failed.load(), 0);
            ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
            for (size_t i = 0; i < count; i++) {
                ASSERT_EQ(tensors[i].grads<float>()[0], 0.5F + static_cast<float>(i));
                ASSERT_EQ(tensors[i].grads<float>()[tensors[i].count - 1], 0.5F + static_cast<float>(i));
            }
        }
    });
}

TEST(DdpReady, a_full_bucket_goes_out_at_once_but_never_before_its_predecessors) {
    with_threads(2, [&](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"last", 4}, {"first", 4}}; // the bucket of parameter 1 is the first
        ujoin_ddp_options options = ddp_options();
        options.first_bucket_bytes = 1;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        const auto own = static_cast<float>(rank);
        for (Tensor &tensor : tensors) tensor.fill_grad(own);
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 1));
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr)); // complete only after all that is in flight
        EXPECT_EQ(tensors[1].grads<float>()[3], 0.5F);
        EXPECT_EQ(tensors[0].grads<float>()[3], own);
        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
        ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
        EXPECT_EQ(tensors[0].grads<float>()[3], 0.5F);

        for (Tensor &tensor : tensors) tensor.fill_grad(own);
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0)); // full, but it waits for its predecessor
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
        EXPECT_EQ(tensors[0].grads<float>()[3], own);
        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 1));
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
        EXPECT_EQ(tensors[0].grads<float>()[3], 0.5F);
        ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
    });
}

TEST(DdpReady, types_are_reduced_apart_and_16_bit_ones_in_32_bit) {
    with_threads(3, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"f", 3}, {"d", 3, UJOIN_F64}, {"h", 3, UJOIN_F16}, {"b", 3, UJOIN_BF16}, {"none", 0},
                                    {"f2", 2}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        EXPECT_EQ(report_of(ddp.get()).bucket_count, 4U);
        tensors[0].fill_grad(static_cast<float>(rank));
        tensors[1].fill_grad(1.0 + rank);
        tensors[2].fill_grad(Half(60000)); // the sum does not fit into the type, the average does
        tensors[3].fill_grad(BFloat16(static_cast<float>(3 * rank)));
        tensors[5].fill_grad(3.0F * static_cast<float>(rank));
        ASSERT_UJOIN_OK(reduce(ddp.get(), tensors.size()));
        EXPECT_EQ(tensors[0].grads<float>()[2], 1);
        EXPECT_EQ(tensors[1].grads<double>()[2], 2);
        EXPECT_EQ(static_cast<float>(tensors[2].grads<Half>()[0]), static_cast<float>(Half(60000)));
        EXPECT_EQ(static_cast<float>(tensors[3].grads<BFloat16>()[1]), 3);
        EXPECT_EQ(tensors[5].grads<float>()[1], 3);
    });
}

// ----------------------------------------------------------------------------------------------------------- division

TEST(DdpDivision, by_samples_of_means_and_of_sums) {
    for (const ujoin_gradient_kind kind : {UJOIN_GRADIENT_MEAN, UJOIN_GRADIENT_SUM}) {
        with_threads(3, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"w", 2}, {"v", 2, UJOIN_F64}};
            ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_SAMPLES);
            options.gradient_kind = kind;
            const DdpPtr ddp = make_ddp(group, tensors, options);
            ASSERT_TRUE(ddp);
            const double samples = rank + 1; // 1, 2, 3
            const double gradient = 10 * (rank + 1);
            tensors[0].fill_grad(static_cast<float>(gradient));
            tensors[1].fill_grad(gradient);
            ASSERT_UJOIN_OK(reduce(ddp.get(), tensors.size(), samples));
            const double expected = kind == UJOIN_GRADIENT_MEAN ? (10 + 2 * 20 + 3 * 30) / 6.0 : 60 / 6.0;
            EXPECT_NEAR(tensors[0].grads<float>()[1], expected, 1e-5);
            EXPECT_NEAR(tensors[1].grads<double>()[1], expected, 1e-13);
            EXPECT_EQ(report_of(ddp.get()).divisor, 6);
            EXPECT_EQ(report_of(ddp.get()).samples, 6);
        });
    }
}

TEST(DdpDivision, weighting_by_samples_does_not_overflow_16_bit_types) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"h", 3, UJOIN_F16}, {"b", 3, UJOIN_BF16}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options(UJOIN_DIVISION_SAMPLES));
        ASSERT_TRUE(ddp);
        tensors[0].fill_grad(Half(rank == 0 ? 1000.0F : 2000.0F)); // times 300 it is beyond f16
        tensors[1].fill_grad(BFloat16(1.0F + 0.0078125F));         // times 3 it is between two bf16 numbers
        ASSERT_UJOIN_OK(reduce(ddp.get(), 2, 300));
        EXPECT_EQ(static_cast<float>(tensors[0].grads<Half>()[0]), 1500);
        EXPECT_EQ(static_cast<float>(tensors[1].grads<BFloat16>()[0]), 1.0F + 0.0078125F);
    });
}

TEST(DdpDivision, gradients_of_a_rank_without_samples_are_not_read) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 1000}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options(UJOIN_DIVISION_SAMPLES));
        ASSERT_TRUE(ddp);
        tensors[0].fill_grad(rank == 0 ? std::numeric_limits<float>::quiet_NaN() : 4.0F);
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1, rank == 0 ? 0 : 5));
        for (size_t k = 0; k < 1000; k++) ASSERT_EQ(tensors[0].grads<float>()[k], 4);
    });
}

TEST(DdpDivision, without_any_sample_gradients_are_left_alone) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 1000}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options(UJOIN_DIVISION_SAMPLES));
        ASSERT_TRUE(ddp);
        tensors[0].fill_grad(static_cast<float>(rank + 7));
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1, 0));
        for (size_t k = 0; k < 1000; k++) ASSERT_EQ(tensors[0].grads<float>()[k], static_cast<float>(rank + 7));
        EXPECT_EQ(report_of(ddp.get()).divisor, 0);
        EXPECT_EQ(report_of(ddp.get()).iterations, 1);
    });
}

TEST(DdpDivision, samples_are_told_whatever_the_division) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 1}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        tensors[0].fill_grad(4.0F * static_cast<float>(rank));
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1, 8.0 * rank)); // 0 samples count as any other batch here
        EXPECT_EQ(tensors[0].grads<float>()[0], 2);
        EXPECT_EQ(report_of(ddp.get()).divisor, 2);
        EXPECT_EQ(report_of(ddp.get()).samples, 8);
        EXPECT_EQ(report_of(ddp.get()).joined_uneven, 0);
    });
}

// ------------------------------------------------------------------------------------------------------------- create

TEST(DdpCreate, parameters_come_from_the_source_rank) {
    for (const bool keep : {false, true}) {
        with_threads(3, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"w", 5}, {"v", 3, UJOIN_F64}};
            tensors[0].fill(static_cast<float>(rank));
            tensors[1].fill(10.0 * rank);
            ujoin_ddp_options options = ddp_options();
            options.source_rank = 2;
            options.no_initial_broadcast = keep ? 1 : 0;
            const DdpPtr ddp = make_ddp(group, tensors, options);
            ASSERT_TRUE(ddp);
            EXPECT_EQ(tensors[0].values<float>()[4], static_cast<float>(keep ? rank : 2));
            EXPECT_EQ(tensors[1].values<double>()[2], keep ? 10.0 * rank : 20.0);
        });
    }
}

TEST(DdpCreate, an_error_of_one_rank_is_told_to_all) {
    with_threads(3, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 5}};
        tensors[0].fill(static_cast<float>(rank));
        std::vector<ujoin_param> params = params_of(tensors);
        if (rank == 1) params[0].grad = nullptr;
        ujoin_ddp *ddp = nullptr;
        ASSERT_EQ(ujoin_ddp_create(group, params.data(), 1, nullptr, &ddp), UJOIN_E_INVALID);
        EXPECT_EQ(ddp, nullptr);
        const std::string text = ujoin_last_error();
        EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
        EXPECT_NE(text.find(".grad is NULL"), std::string::npos) << text;
        EXPECT_EQ(tensors[0].values<float>()[0], static_cast<float>(rank)) << "a parameter was written";
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr)); // the group is as good as before
    });
}

TEST(DdpCreate, options_must_agree) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 5}};
        const std::vector<ujoin_param> params = params_of(tensors);
        const ujoin_ddp_options options = ddp_options(rank == 0 ? UJOIN_DIVISION_ACTIVE : UJOIN_DIVISION_SAMPLES);
        ujoin_ddp *ddp = nullptr;
        ASSERT_EQ(ujoin_ddp_create(group, params.data(), 1, &options, &ddp), UJOIN_E_MISMATCH);
        EXPECT_NE(std::string(ujoin_last_error()).find("division"), std::string::npos) << ujoin_last_error();
    });
}

// ------------------------------------------------------------------------------------------------------------- misuse

namespace {

void expect_error(ujoin_status status, ujoin_status code, const std::vector<std::string> &words) {
    EXPECT_EQ(status, code) << ujoin_status_name(status) << ": " << ujoin_last_error();
    for (const std::string &word : words)
        EXPECT_NE(std::string(ujoin_last_error()).find(word), std::string::npos)
            << word << " is not in: " << ujoin_last_error();
}

} // namespace

TEST(DdpMisuse, is_refused_with_the_parameters_and_costs_nothing) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"weight", 4}, {"bias", 4}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const std::string me = "rank " + std::to_string(rank);
        expect_error(ujoin_ddp_ready(ddp.get(), 0), UJOIN_E_STATE,
                     {"ujoin_ddp_ready", me, "\"weight\"", "ujoin_ddp_forward"});
        expect_error(ujoin_ddp_finish(ddp.get()), UJOIN_E_STATE, {"ujoin_ddp_finish", me, "ujoin_ddp_forward"});
        expect_error(ujoin_ddp_forward(ddp.get(), -1), UJOIN_E_INVALID, {"samples is -1", me});
        expect_error(ujoin_ddp_forward(ddp.get(), std::nan("")), UJOIN_E_INVALID, {"samples"});
        expect_error(ujoin_ddp_forward(ddp.get(), HUGE_VAL), UJOIN_E_INVALID, {"samples"});
        for (Tensor &tensor : tensors) tensor.fill_grad(static_cast<float>(rank));
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        expect_error(ujoin_ddp_ready(ddp.get(), 2), UJOIN_E_INVALID, {"index is 2", me});
        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 1));
        expect_error(ujoin_ddp_ready(ddp.get(), 1), UJOIN_E_STATE, {"1 (\"bias\")", "already", me});
        expect_error(ujoin_ddp_finish(ddp.get()), UJOIN_E_STATE, {"0 (\"weight\")", me});
        EXPECT_EQ(std::string(ujoin_last_error()).find("bias"), std::string::npos);
        expect_error(ujoin_ddp_forward(ddp.get(), 1), UJOIN_E_STATE, {"0 (\"weight\")", me});
        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
        expect_error(ujoin_ddp_forward(ddp.get(), 1), UJOIN_E_STATE, {"ujoin_ddp_finish", me});
        ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
        EXPECT_EQ(tensors[0].grads<float>()[0], 0.5F);
        EXPECT_EQ(report_of(ddp.get()).iterations, 1);
    });
}

TEST(DdpMisuse, a_long_list_of_missing_gradients_is_cut) {
    with_threads(1, [](ujoin_group *group, int) {
        std::vector<Tensor> tensors;
        for (int i = 0; i < 100; i++) tensors.emplace_back("p" + std::to_string(i), 1);
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        expect_error(ujoin_ddp_finish(ddp.get()), UJOIN_E_STATE, {"\"p0\"", "\"p7\"", "92 more"});
        for (size_t i = 0; i < 100; i++) ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), i));
        ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
    });
}

// ------------------------------------------------------------------------------------------------------------ failure

TEST(DdpFailure, of_a_peer_ends_the_iteration_with_the_first_cause) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 100}, {"v", 100}};
        ujoin_ddp_options options = ddp_options();
        options.first_bucket_bytes = 1;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        if (rank == 1) {
            ujoin_group_abort(group, "the data set is gone");
            return;
        }
        ujoin_status status = ujoin_ddp_ready(ddp.get(), 1); // may notice already
        if (status == UJOIN_OK) status = ujoin_ddp_ready(ddp.get(), 0);
        if (status == UJOIN_OK) status = ujoin_ddp_finish(ddp.get());
        expect_error(status, UJOIN_E_ABORTED, {"the data set is gone"});
        expect_error(ujoin_ddp_ready(ddp.get(), 0), UJOIN_E_ABORTED, {"the data set is gone"});
        expect_error(ujoin_ddp_finish(ddp.get()), UJOIN_E_ABORTED, {"the data set is gone"});
        expect_error(ujoin_ddp_forward(ddp.get(), 1), UJOIN_E_ABORTED, {"the data set is gone"});
        EXPECT_EQ(report_of(ddp.get()).iterations, 0);
    });
}

TEST(DdpFailure, idle_timeout_names_who_is_missing) {
    Gate given_up;
    with_threads(2, [&](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 100}};
        ujoin_ddp_options options = ddp_options();
        options.idle_timeout_ms = 100;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        if (rank == 1) return given_up.pass();
        const int64_t start = ujoin::now_ms();
        const ujoin_status status = reduce(ddp.get(), 1);
        const int64_t took = ujoin::now_ms() - start;
        given_up.open();
        expect_error(status, UJOIN_E_TIMEOUT, {"1"});
        int32_t missing[2] = {-1, -1};
        EXPECT_EQ(ujoin_last_missing(missing, 2), 1U);
        EXPECT_EQ(missing[0], 1);
        EXPECT_GE(took, 100);
        EXPECT_LE(took, static_cast<int64_t>(2000 * harness::slack()));
        expect_error(ujoin_ddp_forward(ddp.get(), 1), UJOIN_E_TIMEOUT, {});
    });
}

TEST(DdpFailure, idle_timeout_starts_anew_with_each_bucket) {
    const auto idle_ms = static_cast<int64_t>(3000 * harness::slack()); // a loaded machine may be late by half of it
    with_threads(2, [&](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 100}, {"v", 100}};
        ujoin_ddp_options options = ddp_options();
        options.first_bucket_bytes = 1;
        options.idle_timeout_ms = idle_ms;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        const int64_t start = ujoin::now_ms();
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        for (const size_t i : {1U, 0U}) {
            // A slow peer: together its pauses are longer than the timeout, each alone is not.
            if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(idle_ms * 11 / 20));
            ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), i));
        }
        ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
        EXPECT_GE(ujoin::now_ms() - start, idle_ms);
    });
}

namespace {
thread_local bool t_interrupt = false;
ujoin_status interrupt(void *) { return t_interrupt ? ujoin_set_last_error(UJOIN_E_CALLBACK, "ctrl-c") : UJOIN_OK; }
} // namespace

TEST(DdpFailure, an_interrupted_finish_gives_up_on_all_ranks_and_leaves_no_memory_in_use) {
    Gate given_up;
    ASSERT_UJOIN_OK(ujoin_set_interrupt_check(interrupt, nullptr, nullptr));
    with_threads(2, [&](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 100}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        if (rank == 1) {
            given_up.pass();
            // What rank 0 had said before it gave up is enough for the notes, not for the bucket behind them.
            tensors[0].fill_grad(1.0F);
            expect_error(reduce(ddp.get(), 1), UJOIN_E_ABORTED, {"ctrl-c"});
            EXPECT_EQ(tensors[0].grads<float>()[99], 1);
            return;
        }
        tensors[0].fill_grad(3.0F);
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
        t_interrupt = true;
        const ujoin_status status = ujoin_ddp_finish(ddp.get());
        t_interrupt = false;
        expect_error(status, UJOIN_E_CALLBACK, {"ctrl-c"});
        given_up.open();
        EXPECT_LT(ujoin_ddp_forward(ddp.get(), 1), 0);
    });
    ASSERT_UJOIN_OK(ujoin_set_interrupt_check(nullptr, nullptr, nullptr));
}

// ------------------------------------------------------------------------------------------------------------ release

namespace {

void count(void *counter) { ++*static_cast<std::atomic<int> *>(counter); }

ujoin_ddp_options counted(std::atomic<int> &counter) {
    ujoin_ddp_options options = ddp_options();
    options.release = count;
    options.release_data = &counter;
    return options;
}

} // namespace

TEST(DdpRelease, comes_once_after_destroy_and_once_after_a_failed_create) {
    with_threads(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 4}};
        std::atomic<int> released{0};
        {
            const DdpPtr ddp = make_ddp(group, tensors, counted(released));
            ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
            EXPECT_EQ(released.load(), 0);
        }
        EXPECT_EQ(released.load(), 1);

        std::vector<ujoin_param> params = params_of(tensors);
        ujoin_ddp_options options = counted(released);
        ujoin_ddp *ddp = nullptr;
        EXPECT_EQ(ujoin_ddp_create(nullptr, params.data(), 1, &options, &ddp), UJOIN_E_INVALID);
        EXPECT_EQ(released.load(), 2);
        EXPECT_EQ(ujoin_ddp_create(group, params.data(), 1, &options, nullptr), UJOIN_E_INVALID); // on both ranks
        EXPECT_EQ(released.load(), 3);
        params[0].count = static_cast<size_t>(rank + 1);
        EXPECT_EQ(ujoin_ddp_create(group, params.data(), 1, &options, &ddp), UJOIN_E_MISMATCH);
        EXPECT_EQ(released.load(), 4);
        options.division = 99;
        EXPECT_EQ(ujoin_ddp_create(group, params.data(), 1, &options, &ddp), UJOIN_E_INVALID);
        EXPECT_EQ(released.load(), 5);
    });
}

TEST(DdpRelease, waits_for_operations_in_flight_and_destroy_does_not) {
    Gate destroyed;
    with_threads(2, [&](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 4}, {"v", 4}};
        for (Tensor &tensor : tensors) tensor.fill_grad(static_cast<float>(rank));
        std::atomic<int> released{0};
        ujoin_ddp_options options = counted(released);
        options.first_bucket_bytes = 1;
        DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        if (rank == 1) destroyed.pass();
        ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 1)); // in flight
        ddp.reset();
        if (rank == 0) {
            EXPECT_EQ(released.load(), 0);
            destroyed.open();
        }
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
        EXPECT_EQ(released.load(), 1);
        EXPECT_EQ(tensors[1].grads<float>()[0], 0.5F);
        EXPECT_EQ(tensors[0].grads<float>()[0], static_cast<float>(rank)) << "never ready";
    });
}

// ------------------------------------------------------------------------------------------------------------- shadow

TEST(DdpShadow, contributes_nothing_and_receives_the_result) {
    for (const ujoin_division division : {UJOIN_DIVISION_INITIAL, UJOIN_DIVISION_ACTIVE, UJOIN_DIVISION_SAMPLES}) {
        with_threads(3, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"w", 10}, {"v", 10}};
            for (Tensor &tensor : tensors) tensor.fill_grad(rank == 0 ? std::numeric_limits<float>::quiet_NaN() : 6.0F);
            ujoin_ddp_options options = ddp_options(division);
            options.first_bucket_bytes = 1;
            const std::vector<ujoin_param> params = params_of(tensors);
            ujoin_ddp *handle = nullptr;
            ASSERT_UJOIN_OK(ujoin_ddp_create(group, params.data(), params.size(), &options, &handle));
            const DdpPtr ddp(handle);
            if (rank == 0)
                ujoin_ddp_joinable(ddp.get())->object->main_hook({}); // as a join context does it on a joined rank
            else
                ASSERT_UJOIN_OK(reduce(ddp.get(), 2, 5.0));
            const float expected = division == UJOIN_DIVISION_INITIAL ? 4 : 6;
            const double divisor = division == UJOIN_DIVISION_INITIAL ? 3 : division == UJOIN_DIVISION_ACTIVE ? 2 : 10;
            for (Tensor &tensor : tensors)
                for (size_t k = 0; k < 10; k++) ASSERT_EQ(tensor.grads<float>()[k], expected);
            EXPECT_EQ(report_of(ddp.get()).divisor, divisor);
            EXPECT_EQ(report_of(ddp.get()).samples, 10);
            EXPECT_EQ(report_of(ddp.get()).joined_uneven, 1);
            EXPECT_EQ(report_of(ddp.get()).iterations, rank == 0 ? 0 : 1);
        });
    }
}
