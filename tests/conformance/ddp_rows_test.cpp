// SPDX-License-Identifier: Apache-2.0
// Gradient reduction in join contexts: rows D-01 to D-03, D-16 to D-19, D-43, J-15, cases JOIN-01, JOIN-04, DDP-02. Ranks are threads, then
// processes. Models are written out by hand: a linear layer without bias under the loss sum(W x), whose gradient is the sum
// of the inputs, whatever the weights.
#include "harness/ddp_kit.hpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

using namespace ddp_kit;

namespace {

/// A layer of out x in weights.
struct Linear {
    size_t out;
    size_t in;
    std::vector<Tensor> tensors;

    Linear(size_t o, size_t i) : out(o), in(i) { tensors.emplace_back("weight", o * i); }
    float *weight() { return tensors[0].values<float>(); }
    float *grad() { return tensors[0].grads<float>(); }
    /// Gradient of sum(W x) over a batch.
    void backward(const std::vector<std::vector<float>> &batch) {
        for (size_t o = 0; o < out; o++)
            for (size_t i = 0; i < in; i++) {
                float sum = 0;
                for (const std::vector<float> &x : batch) sum += x[i];
                grad()[o * in + i] = sum;
            }
    }
    void sgd(float lr) {
        for (size_t k = 0; k < out * in; k++) weight()[k] -= lr * grad()[k];
    }
};

void expect_all(const float *values, size_t count, float expected, const std::string &what) {
    for (size_t k = 0; k < count; k++) ASSERT_EQ(values[k], expected) << what << ", element " << k;
}

class DdpRows : public testing::TestWithParam<std::tuple<Ranks, int>> {
  protected:
    static Ranks kind() { return std::get<0>(GetParam()); }
    static int size() { return std::get<1>(GetParam()); }
};

/// Rank 0 runs 3 iterations, the others 5, each with gradient 50; what each iteration leaves in the gradient.
void run_5x5(Ranks kind, int size, ujoin_division division, const std::function<float(int iteration)> &expected) {
    run(kind, size, [&](ujoin_group *group, int rank) {
        Linear model(5, 5);
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options(division));
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        const std::vector<std::vector<float>> batch(50, std::vector<float>(5, 1));
        const int own = rank == 0 ? 3 : 5;
        for (int t = 0; t < own; t++) {
            model.backward(batch);
            ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
            expect_all(model.grad(), 25, expected(t), "iteration " + std::to_string(t));
            EXPECT_EQ(report_of(ddp.get()).divisor, division == UJOIN_DIVISION_INITIAL || t < 3 ? size : size - 1);
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
        // The joined rank has what the last iteration of the others left, not its own old gradient.
        expect_all(model.grad(), 25, expected(4), "after finish");
        EXPECT_EQ(report_of(ddp.get()).iterations, own);
        EXPECT_EQ(report_of(ddp.get()).joined_uneven, 1);
        // Out of the context the divisor is the group's size again.
        model.backward(batch);
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
        expect_all(model.grad(), 25, 50, "after the context");
        EXPECT_EQ(report_of(ddp.get()).divisor, size);
    });
}

} // namespace

TEST_P(DdpRows, D_01_active_division_keeps_the_gradient) {
    run_5x5(kind(), size(), UJOIN_DIVISION_ACTIVE, [](int) { return 50.0F; });
}

TEST_P(DdpRows, D_02_initial_division_shrinks_it_once_a_rank_has_joined) {
    const auto w = static_cast<float>(size());
    run_5x5(kind(), size(), UJOIN_DIVISION_INITIAL, [w](int t) { return t < 3 ? 50.0F : 50.0F * (w - 1) / w; });
}

TEST_P(DdpRows, D_03_equals_one_process_that_runs_all_iterations) {
    const int w = size();
    run(kind(), w, [w](ujoin_group *group, int rank) {
        std::mt19937 random(7);
        std::uniform_real_distribution<float> value(-1, 1);
        Linear local(10, 10);
        std::generate_n(local.weight(), 100, [&] { return value(random); });
        std::vector<std::vector<float>> batch(3, std::vector<float>(10));
        for (std::vector<float> &x : batch) std::generate(x.begin(), x.end(), [&] { return value(random); });
        Linear model(10, 10);
        std::copy_n(local.weight(), 100, model.weight());

        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        for (int t = 0; t < 2 * (rank + 1); t++) {
            model.backward(batch);
            ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
            model.sgd(0.03F * static_cast<float>(w));
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));

        const int steps = w * (w + 1); // 6 for two ranks, 20 for four
        for (int t = 0; t < steps; t++) {
            local.backward(batch);
            local.sgd(0.03F);
        }
        for (size_t k = 0; k < 100; k++) ASSERT_NEAR(model.weight()[k], local.weight()[k], 1e-5) << "weight " << k;
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpRows,
                         testing::Combine(testing::Values(Ranks::threads, Ranks::processes, Ranks::connections,
                                                          Ranks::hosts),
                                          testing::Values(2, 4)),
                         name_of);

// ---------------------------------------------------------------------------------------------- rows with fixed sizes

class DdpCases : public testing::TestWithParam<Ranks> {};

TEST_P(DdpCases, J_15_ddp_alone_on_5_and_6_inputs) {
    run(GetParam(), 2, [](ujoin_group *group, int rank) {
        Linear model(1, 1);
        model.weight()[0] = 1;
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        int inputs = 0;
        for (; inputs < 5 + rank; inputs++) {
            model.backward({{1.0F}});
            ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
        ujoin_ctx_report report{};
        report.size = sizeof report;
        ASSERT_UJOIN_OK(ujoin_ctx_get_report(ctx.get(), &report));
        EXPECT_EQ(report.rounds, 5 + rank);
        EXPECT_EQ(report.shadow_rounds, 1 - rank);
    });
}

namespace {

/// One scalar parameter under plain SGD with lr 0.1; `gradients` of each rank's inputs. What each iteration averages, seen by
/// the rank with the most inputs, and the final parameter, the same on all.
void run_scalar(Ranks kind, ujoin_division division, const std::vector<std::vector<float>> &gradients,
                const std::vector<float> &averages, float final_value) {
    const int size = static_cast<int>(gradients.size());
    run(kind, size, [&](ujoin_group *group, int rank) {
        Linear model(1, 1);
        model.weight()[0] = 1;
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options(division));
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        const std::vector<float> &mine = gradients[static_cast<size_t>(rank)];
        for (size_t t = 0; t < mine.size(); t++) {
            model.grad()[0] = mine[t];
            ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
            EXPECT_NEAR(model.grad()[0], averages[t], 1e-6) << "iteration " << t;
            model.sgd(0.1F);
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
        EXPECT_NEAR(model.weight()[0], final_value, 1e-6);
    });
}

} // namespace

TEST_P(DdpCases, JOIN_01_divisor_and_parameters_after_a_rank_ran_out) {
    const std::vector<std::vector<float>> two{{2}, {4, 6}};
    run_scalar(GetParam(), UJOIN_DIVISION_INITIAL, two, {3, 3}, 0.4F);
    run_scalar(GetParam(), UJOIN_DIVISION_ACTIVE, two, {3, 6}, 0.1F);
    const std::vector<std::vector<float>> four{{1}, {2, 2}, {3, 3, 3}, {4, 4, 4, 4}};
    run_scalar(GetParam(), UJOIN_DIVISION_INITIAL, four, {2.5F, 2.25F, 1.75F, 1}, 0.25F);
    run_scalar(GetParam(), UJOIN_DIVISION_ACTIVE, four, {2.5F, 3, 3.5F, 4}, -0.3F);
}

namespace {

ZeroPtr make_sgd(ujoin_group *group, std::vector<Tensor> &tensors, double lr) {
    const std::vector<ujoin_param> params = params_of(tensors);
    const ujoin_hyper hyper{"lr", lr};
    ujoin_zero_options options{};
    options.size = sizeof options;
    options.hyper = &hyper;
    options.hyper_count = 1;
    ujoin_zero *zero = nullptr;
    const ujoin_status status = zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &options, &zero);
    EXPECT_EQ(status, UJOIN_OK) << ujoin_last_error();
    return ZeroPtr(zero);
}

/// The rank that owns a parameter.
int32_t owner_of(const ujoin_zero *zero, size_t param) {
    for (size_t i = 0; i < zero_shard_count(zero); i++) {
        ujoin_shard shard{};
        shard.size = sizeof shard;
        EXPECT_EQ(zero_get_shard(zero, i, &shard), UJOIN_OK) << ujoin_last_error();
        if (shard.param == param) return shard.rank;
    }
    return -1;
}

} // namespace

TEST_P(DdpCases, JOIN_04_D_44_a_joined_rank_steps_its_shard_with_the_reduced_gradients) {
    for (const ujoin_division division : {UJOIN_DIVISION_INITIAL, UJOIN_DIVISION_ACTIVE}) {
        run(GetParam(), 2, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"p0", 1}, {"p1", 1}};
            for (Tensor &tensor : tensors) tensor.fill(1.0F);
            const DdpPtr ddp = make_ddp(group, tensors, ddp_options(division));
            const ZeroPtr zero = make_sgd(group, tensors, 0.1);
            ASSERT_TRUE(ddp && zero);
            EXPECT_EQ(owner_of(zero.get(), 0), 0);
            EXPECT_EQ(owner_of(zero.get(), 1), 1);
            const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get()), zero_joinable(zero.get())});
            ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
            for (int t = 0; t < (rank == 0 ? 1 : 3); t++) {
                for (Tensor &tensor : tensors) tensor.fill_grad(1.0F);
                ASSERT_UJOIN_OK(reduce(ddp.get(), 2));
                ASSERT_UJOIN_OK(zero_step(zero.get(), nullptr));
            }
            ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
            const float expected = division == UJOIN_DIVISION_INITIAL ? 0.8F : 0.7F;
            for (Tensor &tensor : tensors) EXPECT_NEAR(tensor.values<float>()[0], expected, 1e-6) << tensor.name;
        });
    }
}

TEST_P(DdpCases, J_15_ddp_and_zero_on_5_and_6_inputs) {
    run(GetParam(), 2, [](ujoin_group *group, int rank) {
        Linear model(3, 2);
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        const ZeroPtr zero = make_sgd(group, model.tensors, 0.01);
        ASSERT_TRUE(ddp && zero);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get()), zero_joinable(zero.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        int inputs = 0;
        for (; inputs < 5 + rank; inputs++) {
            model.backward({{1.0F, 2.0F}});
            ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
            ASSERT_UJOIN_OK(zero_step(zero.get(), nullptr));
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
        ujoin_ctx_report report{};
        report.size = sizeof report;
        ASSERT_UJOIN_OK(ujoin_ctx_get_report(ctx.get(), &report));
        EXPECT_EQ(report.rounds, 5 + rank);
        EXPECT_EQ(report.shadow_uses, rank == 0 ? 2 : 0);
        // Five full averages and one of half: as one process would step.
        for (size_t k = 0; k < 6; k++) EXPECT_NEAR(model.weight()[k], -0.01 * 5.5 * (k % 2 == 0 ? 1 : 2), 1e-6);
    });
}

TEST_P(DdpCases, DDP_02_D_34_D_35_different_parameter_lists_are_reported_on_every_rank) {
    run(GetParam(), 2, [](ujoin_group *group, int rank) {
        const auto expect_mismatch = [&](std::vector<Tensor> tensors, const std::vector<std::string> &words) {
            for (Tensor &tensor : tensors) {
                std::fill(tensor.data.begin(), tensor.data.end(), static_cast<char>(rank + 1));
                std::fill(tensor.grad.begin(), tensor.grad.end(), static_cast<char>(rank + 3));
            }
            const std::vector<ujoin_param> params = params_of(tensors);
            ujoin_ddp *ddp = nullptr;
            ASSERT_EQ(ujoin_ddp_create(group, params.data(), params.size(), nullptr, &ddp), UJOIN_E_MISMATCH)
                << ujoin_last_error();
            EXPECT_EQ(ddp, nullptr);
            for (const std::string &word : words)
                EXPECT_NE(std::string(ujoin_last_error()).find(word), std::string::npos)
                    << word << " is not in: " << ujoin_last_error();
            for (const Tensor &tensor : tensors) {
                EXPECT_EQ(tensor.data, std::vector<char>(tensor.data.size(), static_cast<char>(rank + 1)))
                    << "a parameter was written";
                EXPECT_EQ(tensor.grad, std::vector<char>(tensor.grad.size(), static_cast<char>(rank + 3)))
                    << "a gradient was written";
            }
        };
        std::vector<Tensor> fewer{{"a", 4}, {"b", 4}};
        if (rank == 0) fewer.emplace_back("c", 4);
        expect_mismatch(fewer, {"number of parameters", "3 on rank 0", "2 on rank 1"});
        expect_mismatch({{"a", 4}, {"b", rank == 0 ? 4U : 5U}, {"c", 4}},
                        {"parameter 1", "[4] on rank 0", "[5] on rank 1"});
        expect_mismatch({{"a", 4}, {"b", 4}, {"c", 4, rank == 0 ? UJOIN_F32 : UJOIN_F64}}, {"parameter 2", "f32", "f64"});
        expect_mismatch({{"a", 4}, {rank == 0 ? "b" : "c", 4}}, {"parameter 1", "\"b\"", "\"c\""});
    });
}

namespace {

/// Mean squared error of w x against a target, over some samples: the gradient depends on the weights.
struct Regression {
    static constexpr size_t dimension = 24;
    using Vector = std::vector<double>;
    struct Sample {
        Vector x;
        double y;
    };

    static Sample sample(std::mt19937_64 &random) {
        std::normal_distribution<double> normal;
        Sample s{Vector(dimension), 0};
        for (double &x : s.x) x = normal(random);
        s.y = 3 * s.x[0] - s.x[1] + 0.1 * normal(random);
        return s;
    }
    /// Sum over the batch.
    static Vector gradient(const Vector &w, const std::vector<Sample> &batch) {
        Vector g(dimension);
        for (const Sample &s : batch) {
            const double error = std::inner_product(w.begin(), w.end(), s.x.begin(), -s.y);
            for (size_t i = 0; i < dimension; i++) g[i] += error * s.x[i];
        }
        return g;
    }
};

/// What all ranks draw alike: the number of rounds of each rank, one of which has 50, and the batch of each in each.
struct Rounds {
    std::vector<size_t> own;
    std::vector<std::vector<std::vector<Regression::Sample>>> batches; ///< by round and rank

    Rounds(int size, uint64_t seed) : own(static_cast<size_t>(size)), batches(50) {
        std::mt19937_64 random(seed);
        for (size_t &rounds : own) rounds = 20 + random() % 31;
        own[random() % own.size()] = batches.size();
        for (size_t t = 0; t < batches.size(); t++) {
            batches[t].resize(own.size());
            for (size_t r = 0; r < own.size(); r++) {
                const size_t samples = t >= own[r] || random() % 4 == 0 ? 0 : random() % 12;
                for (size_t k = 0; k < samples; k++) batches[t][r].push_back(Regression::sample(random));
            }
        }
    }
};

constexpr double learning_rate = 0.05;

/// One process that sees the union of each round's batches.
Regression::Vector run_union(const Rounds &rounds) {
    Regression::Vector w(Regression::dimension, 0.5);
    for (const auto &of_ranks : rounds.batches) {
        std::vector<Regression::Sample> all;
        for (const auto &batch : of_ranks) all.insert(all.end(), batch.begin(), batch.end());
        if (all.empty()) continue;
        const Regression::Vector g = Regression::gradient(w, all);
        for (size_t i = 0; i < w.size(); i++) w[i] -= learning_rate * g[i] / static_cast<double>(all.size());
    }
    return w;
}

/// The same by ranks, in type T.
template <class T>
void run_ranks(ujoin_group *group, int rank, ujoin_gradient_kind kind, const Rounds &rounds, double tolerance) {
    constexpr size_t n = Regression::dimension;
    std::vector<Tensor> tensors{{"w", n, std::is_same_v<T, float> ? UJOIN_F32 : UJOIN_F64}};
    tensors[0].fill<T>(0.5);
    T *w = tensors[0].values<T>();
    T *grad = tensors[0].grads<T>();
    ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_SAMPLES);
    options.gradient_kind = kind;
    const DdpPtr ddp = make_ddp(group, tensors, options);
    ASSERT_TRUE(ddp);
    const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
    ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
    const auto me = static_cast<size_t>(rank);
    for (size_t t = 0; t < rounds.own[me]; t++) {
        const std::vector<Regression::Sample> &batch = rounds.batches[t][me];
        const Regression::Vector g = Regression::gradient(Regression::Vector(w, w + n), batch);
        const double divisor =
            kind == UJOIN_GRADIENT_SUM ? 1 : static_cast<double>(batch.size()); // a mean over nothing is NaN
        for (size_t i = 0; i < n; i++)
            grad[i] = batch.empty() ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(g[i] / divisor);
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1, static_cast<double>(batch.size())));
        size_t total = 0;
        for (const auto &of_rank : rounds.batches[t]) total += of_rank.size();
        ASSERT_EQ(report_of(ddp.get()).divisor, static_cast<double>(total));
        if (total == 0) continue;
        for (size_t i = 0; i < n; i++) w[i] -= static_cast<T>(learning_rate) * grad[i];
    }
    ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
    const Regression::Vector expected = run_union(rounds);
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += std::pow(static_cast<double>(w[i]) - expected[i], 2);
        norm += std::pow(expected[i], 2);
    }
    EXPECT_LE(std::sqrt(difference / norm), tolerance);
}

} // namespace

TEST_P(DdpCases, division_by_samples_equals_one_process_that_sees_every_sample) {
    for (int size = 1; size <= 5; size++) {
        for (const ujoin_gradient_kind gradient_kind : {UJOIN_GRADIENT_MEAN, UJOIN_GRADIENT_SUM}) {
            const uint64_t seed = 100 + static_cast<uint64_t>(10 * size + gradient_kind);
            const testing::ScopedTrace trace(__FILE__, __LINE__, "seed " + std::to_string(seed));
            const Rounds rounds(size, seed);
            run(GetParam(), size, [&](ujoin_group *group, int rank) {
                run_ranks<float>(group, rank, gradient_kind, rounds, 1e-6);
                run_ranks<double>(group, rank, gradient_kind, rounds, 1e-13);
            });
        }
    }
}

TEST_P(DdpCases, leaving_with_an_unfinished_iteration_is_an_error_on_every_rank) {
    run(GetParam(), 2, [](ujoin_group *group, int rank) {
        Linear model(2, 2);
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        ujoin_status status = UJOIN_OK;
        if (rank == 0) {
            ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
            status = ujoin_ctx_finish(ctx.get());
            EXPECT_EQ(status, UJOIN_E_STATE);
            EXPECT_NE(std::string(ujoin_last_error()).find("\"weight\""), std::string::npos) << ujoin_last_error();
        } else {
            for (int t = 0; t < 2 && status == UJOIN_OK; t++) status = reduce(ddp.get(), 1);
            if (status == UJOIN_OK) status = ujoin_ctx_finish(ctx.get());
            EXPECT_EQ(status, UJOIN_E_ABORTED);
            EXPECT_NE(std::string(ujoin_last_error()).find("rank 0"), std::string::npos) << ujoin_last_error();
        }
    });
}

TEST_P(DdpCases, a_reducer_destroyed_in_an_armed_context_is_an_error_on_every_rank) {
    run(GetParam(), 2, [](ujoin_group *group, int rank) {
        Linear model(2, 2);
        DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        ujoin_status status = UJOIN_OK;
        if (rank == 0)
            ddp.reset();
        else
            status = reduce(ddp.get(), 1);
        if (status == UJOIN_OK) status = ujoin_ctx_finish(ctx.get());
        EXPECT_EQ(status, rank == 0 ? UJOIN_E_STATE : UJOIN_E_ABORTED);
        EXPECT_NE(std::string(ujoin_last_error()).find("destroyed"), std::string::npos) << ujoin_last_error();
    });
}

TEST_P(DdpCases, throw_mode_begins_no_iteration_when_a_rank_is_exhausted) {
    run(GetParam(), 2, [](ujoin_group *group, int rank) {
        Linear model(2, 2);
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        ASSERT_TRUE(ddp);
        ujoin_ctx_options options{};
        options.size = sizeof options;
        options.throw_on_exhausted = 1;
        ujoin_joinable *joinable = ujoin_ddp_joinable(ddp.get());
        ujoin_ctx *handle = nullptr;
        ASSERT_UJOIN_OK(ujoin_ctx_create(&joinable, 1, &options, &handle));
        const CtxPtr ctx(handle);
        for (int pass = 0; pass < 2; pass++) {
            ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
            ujoin_status status = UJOIN_OK;
            for (int t = 0; t < 3 + rank && status == UJOIN_OK; t++) status = reduce(ddp.get(), 1);
            if (status == UJOIN_OK) status = ujoin_ctx_finish(ctx.get());
            EXPECT_EQ(status, UJOIN_E_EXHAUSTED) << ujoin_last_error();
            EXPECT_EQ(report_of(ddp.get()).iterations, 3 * (pass + 1));
        }
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1)); // nothing is broken
    });
}

TEST_P(DdpCases, D_16_D_17_throw_mode_with_a_reduction_inside_the_forward_pass) {
    run(GetParam(), 3, [](ujoin_group *group, int rank) {
        Linear model(2, 2);
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        ASSERT_TRUE(ddp);
        ujoin_ctx_options options{};
        options.size = sizeof options;
        options.throw_on_exhausted = 1;
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())}, &options);
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        ujoin_status status = UJOIN_OK;
        int done = 0;
        for (int t = 0; t < (rank == 0 ? 10 : 5) && status == UJOIN_OK; t++) {
            status = ujoin_ddp_forward(ddp.get(), 1);
            if (status != UJOIN_OK) break;
            float statistics[2] = {1, static_cast<float>(rank)}; // as synchronised batch-norm does
            const ujoin_buffer buffer{statistics, 2, UJOIN_F32, 0, 0, 0};
            ASSERT_UJOIN_OK(ujoin_all_reduce(group, nullptr, &buffer, UJOIN_SUM, nullptr, nullptr));
            EXPECT_EQ(statistics[0], 3);
            std::fill_n(model.grad(), 4, statistics[1] / statistics[0] + static_cast<float>(rank));
            ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
            ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
            model.sgd(0.5F);
            done++;
        }
        if (status == UJOIN_OK) status = ujoin_ctx_finish(ctx.get());
        EXPECT_EQ(status, UJOIN_E_EXHAUSTED);
        const std::string text = ujoin_last_error();
        EXPECT_NE(text.find(rank == 0 ? "found at least one rank that exhausted" : "exhausted all inputs"),
                  std::string::npos)
            << text;
        EXPECT_EQ(done, 5);
        EXPECT_EQ(model.weight()[3], -5) << "five steps of 0.5 times 2";
    });
}

TEST_P(DdpCases, D_18_a_disabled_context_over_even_inputs) {
    run(GetParam(), 3, [](ujoin_group *group, int rank) {
        Linear model(1, 1);
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        ASSERT_TRUE(ddp);
        ujoin_ctx_options options{};
        options.size = sizeof options;
        options.disabled = 1;
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())}, &options);
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        for (int t = 0; t < 5; t++) {
            model.backward({{static_cast<float>(rank)}});
            ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
            EXPECT_EQ(model.grad()[0], 1) << "(0 + 1 + 2) / 3";
            model.sgd(1);
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
        EXPECT_EQ(model.weight()[0], -5);
        EXPECT_EQ(report_of(ddp.get()).joined_uneven, 0);
    });
}

TEST_P(DdpCases, D_19_an_error_in_the_forward_pass_comes_out_unchanged) {
    run(GetParam(), 2, [](ujoin_group *group, int rank) {
        Linear model(1, 1);
        const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr)); // both bodies fail, neither is a victim of the other
        const auto body = [] { return ujoin_set_last_error(UJOIN_E_INVALID, "Intentional error"); };
        const ujoin_status status = body();
        ujoin_ctx_abort(ctx.get(), ujoin_last_error());
        EXPECT_EQ(status, UJOIN_E_INVALID);
        EXPECT_STREQ(ujoin_last_error(), "Intentional error");
        EXPECT_EQ(report_of(ddp.get()).iterations, 1);
        const ujoin_status after = ujoin_ddp_forward(ddp.get(), 1); // what it did to the group is another matter
        EXPECT_EQ(after, UJOIN_E_ABORTED) << ujoin_last_error();
        EXPECT_NE(std::string(ujoin_last_error()).find("rank " + std::to_string(rank)), std::string::npos);
    });
}

TEST_P(DdpCases, D_43_even_inputs_give_the_same_gradients_inside_and_outside) {
    run(GetParam(), 3, [](ujoin_group *group, int rank) {
        std::vector<std::vector<float>> seen;
        for (const bool inside : {false, true}) {
            Linear model(7, 3);
            const DdpPtr ddp = make_ddp(group, model.tensors, ddp_options(UJOIN_DIVISION_ACTIVE));
            ASSERT_TRUE(ddp);
            const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
            if (inside) {
                ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
            }
            std::vector<float> all;
            for (int t = 0; t < 4; t++) {
                model.backward({{0.1F * static_cast<float>(rank + t), 1.7F, static_cast<float>(rank) / 3}});
                ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
                all.insert(all.end(), model.grad(), model.grad() + 21);
            }
            if (inside) {
                ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
            }
            seen.push_back(all);
        }
        EXPECT_EQ(seen[0], seen[1]);
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpCases,
                         testing::Values(Ranks::threads, Ranks::processes, Ranks::connections, Ranks::hosts), kind_name);
