// SPDX-License-Identifier: Apache-2.0
// Gradients that become ready on several threads at once, reduced by hooks, inside and outside of a join context: the result
// has the bits of the same iterations with one thread. UJOIN_TEST_SEED=n repeats the orders of that seed.
#include "harness/ddp_kit.hpp"
#include <algorithm>
#include <atomic>
#include <latch>
#include <numeric>
#include <random>
#include <thread>

using namespace ddp_kit;

namespace {

constexpr size_t params = 24;
constexpr size_t workers = 4;
constexpr int iterations = 12; ///< of the last rank; in a join context each rank before it has two fewer

/// Different in each element, rank and iteration, and no number that 16 bits hold exactly.
float gradient(int rank, int iteration, size_t param, size_t k) {
    return 0.1F * static_cast<float>(1 + rank) + 0.37F * static_cast<float>(iteration) -
           0.013F * static_cast<float>(param + 3 * k);
}

/// The program's hook: divides, then sums. It notes what it is called for, and that it is called for one at a time.
struct Hook {
    std::atomic<bool> busy{false};
    std::atomic<int> collisions{0};
    std::vector<int32_t> buckets; ///< index by call
    std::vector<int64_t> iterations;

    static ujoin_status start(void *self, const ujoin_bucket *bucket, ujoin_work **out_work) {
        Hook &hook = *static_cast<Hook *>(self);
        if (hook.busy.exchange(true)) hook.collisions++;
        hook.buckets.push_back(bucket->index);
        hook.iterations.push_back(bucket->iteration);
        float *values = static_cast<float *>(bucket->buffer.data);
        for (size_t k = 0; k < bucket->buffer.count; k++) values[k] /= static_cast<float>(bucket->divisor);
        const ujoin_status status = ujoin_all_reduce(bucket->group, nullptr, &bucket->buffer, UJOIN_SUM, nullptr, out_work);
        hook.busy = false;
        return status;
    }
};

uint64_t seed_of_run() {
    const char *given = std::getenv("UJOIN_TEST_SEED");
    return given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

using Bits = std::vector<std::vector<float>>; ///< all gradients after each iteration, and after the context

/// One rank's iterations on a reducer of its own.
class Trainee {
  public:
    Trainee(ujoin_group *group, int rank, bool joins, ujoin_comm_hook_kind kind) : rank_(rank), joins_(joins) {
        for (size_t i = 0; i < params; i++) tensors_.emplace_back("p" + std::to_string(i), 5 + i);
        ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_ACTIVE);
        options.first_bucket_bytes = 1;
        options.bucket_bytes = 300; // a few gradients in each
        ddp_ = make_ddp(group, tensors_, options);
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.kind = kind;
        if (kind == UJOIN_COMM_HOOK_CUSTOM) {
            hook.start = Hook::start;
            hook.user_data = &hook_;
        }
        EXPECT_EQ(ujoin_ddp_set_comm_hook(ddp_.get(), &hook), UJOIN_OK) << ujoin_last_error();
        if (joins) ctx_ = make_ctx({ujoin_ddp_joinable(ddp_.get())});
    }

    /// `seed` 0: one thread, from the last gradient to the first; else four in an order of their own.
    void train(int size, uint64_t seed) {
        std::mt19937_64 random(seed + static_cast<uint64_t>(rank_));
        if (joins_) {
            ASSERT_UJOIN_OK(ujoin_ctx_start(ctx_.get()));
        }
        const int own = joins_ ? iterations - 2 * (size - 1 - rank_) : iterations;
        for (int t = 0; t < own; t++) {
            ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp_.get(), 1));
            if (seed == 0)
                for (size_t i = params; i-- > 0;) make_ready(i, t);
            else
                make_ready_on_threads(t, random);
            ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp_.get()));
            keep();
        }
        if (!joins_) return;
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx_.get()));
        keep(); // those of the last rank's last iteration, here as there
    }

    /// In each iteration, those that were shadowed too, one call for each bucket, in the buckets' order.
    void expect_ordered_calls() const {
        EXPECT_EQ(hook_.collisions.load(), 0);
        size_t call = 0;
        for (int64_t t = 0; t < iterations; t++)
            for (int32_t b = 0; call < hook_.buckets.size() && hook_.iterations[call] == t; b++, call++)
                ASSERT_EQ(hook_.buckets[call], b) << "iteration " << t;
        EXPECT_EQ(call, hook_.buckets.size());
        ASSERT_FALSE(hook_.iterations.empty());
        EXPECT_EQ(hook_.iterations.back(), iterations - 1);
        EXPECT_GE(report_of(ddp_.get()).bucket_count, 5U);
    }
    const Bits &bits() const { return bits_; }

  private:
    void make_ready(size_t i, int t) {
        for (size_t k = 0; k < tensors_[i].count; k++) tensors_[i].grads<float>()[k] = gradient(rank_, t, i, k);
        EXPECT_EQ(ujoin_ddp_ready(ddp_.get(), i), UJOIN_OK) << ujoin_last_error();
    }
    void make_ready_on_threads(int t, std::mt19937_64 &random) {
        std::vector<size_t> order(params);
        std::iota(order.begin(), order.end(), size_t{0});
        std::shuffle(order.begin(), order.end(), random);
        std::latch together(workers);
        std::vector<std::thread> threads;
        for (size_t w = 0; w < workers; w++)
            threads.emplace_back([&, w] {
                together.arrive_and_wait();
                for (size_t place = w; place < params; place += workers) make_ready(order[place], t);
            });
        for (std::thread &thread : threads) thread.join();
    }
    void keep() {
        std::vector<float> all;
        for (Tensor &tensor : tensors_) all.insert(all.end(), tensor.grads<float>(), tensor.grads<float>() + tensor.count);
        bits_.push_back(std::move(all));
    }

    int rank_;
    bool joins_;
    std::vector<Tensor> tensors_;
    Hook hook_;
    DdpPtr ddp_;
    CtxPtr ctx_;
    Bits bits_;
};

class DdpThreads : public testing::TestWithParam<std::tuple<Ranks, int>> {
  protected:
    static void compare(ujoin_comm_hook_kind kind) {
        const auto [where, size] = GetParam();
        const uint64_t seed = seed_of_run();
        std::printf("UJOIN_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
        std::fflush(stdout); // before the processes that inherit it
        for (const bool joins : {false, true})
            ddp_kit::run(where, size, [&, size = size](ujoin_group *group, int rank) {
                SCOPED_TRACE(joins ? "in a join context" : "without one");
                Trainee one(group, rank, joins, kind);
                one.train(size, 0);
                Trainee several(group, rank, joins, kind);
                several.train(size, 1 + seed);
                if (testing::Test::HasFatalFailure()) return;
                ASSERT_EQ(several.bits().size(), one.bits().size());
                for (size_t t = 0; t < one.bits().size(); t++) ASSERT_EQ(several.bits()[t], one.bits()[t]) << t;
                expect_right(one.bits().back(), joins, size, kind);
                if (kind != UJOIN_COMM_HOOK_CUSTOM) return;
                one.expect_ordered_calls();
                several.expect_ordered_calls();
            });
    }

  private:
    /// The gradients of the last iteration, which in a join context the last rank has alone.
    static void expect_right(const std::vector<float> &last, bool joins, int size, ujoin_comm_hook_kind kind) {
        size_t at = 0;
        for (size_t i = 0; i < params; i++)
            for (size_t k = 0; k < 5 + i; k++, at++) {
                float sum = 0;
                for (int r = joins ? size - 1 : 0; r < size; r++) sum += gradient(r, iterations - 1, i, k);
                const float wanted = sum / static_cast<float>(joins ? 1 : size);
                ASSERT_NEAR(last[at], wanted, kind == UJOIN_COMM_HOOK_F16 ? 4e-3 : 1e-5) << "parameter " << i;
            }
    }
};

} // namespace

TEST_P(DdpThreads, a_hook_of_the_programs_own) { compare(UJOIN_COMM_HOOK_CUSTOM); }
TEST_P(DdpThreads, compression_to_f16) { compare(UJOIN_COMM_HOOK_F16); }
TEST_P(DdpThreads, the_gradients_where_they_lie) { compare(UJOIN_COMM_HOOK_ALL_REDUCE); }

INSTANTIATE_TEST_SUITE_P(Ranks, DdpThreads,
                         testing::Combine(testing::Values(Ranks::threads, Ranks::processes), testing::Values(2, 3)),
                         name_of);
