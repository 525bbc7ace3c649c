// SPDX-License-Identifier: Apache-2.0
// Uneven inputs on models of many kinds, each against a simulator of the semantics that has no ranks: rows D-04 to D-14. The
// models are least squares: the gradient of parameter p on an input x is w - x, so that each depends on all that was before.
#include "harness/ddp_kit.hpp"
#include <algorithm>
#include <cmath>

using namespace ddp_kit;

namespace {

struct Model {
    std::vector<std::vector<int64_t>> shapes;
    size_t bucket_bytes = 0;
    size_t buffers = 0; ///< running statistics of so many elements
    ujoin_comm_hook_kind hook = 0;
    bool find_unused = false;
    /// Whether a rank uses a parameter on its input t.
    bool (*uses)(int rank, size_t param, int t) = [](int, size_t, int) { return true; };
    double tolerance = 1e-4; ///< negative: only that all ranks are equal
};

struct Plan {
    std::vector<int> inputs; ///< by rank
    int window = 1;          ///< every so many inputs are reduced, the others accumulated
    bool throws = false;
};

constexpr double learning_rate = 0.1;

/// Inputs, as numbers between -1 and 1.
double input(int rank, size_t param, int t, size_t element) {
    uint64_t bits =
        (static_cast<uint64_t>(rank + 1) << 48) ^ (static_cast<uint64_t>(t + 1) << 32) ^ (param << 24) ^ element;
    bits = (bits ^ (bits >> 31)) * 0x9e3779b97f4a7c15U;
    bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9U;
    return static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;
}

size_t elements(const std::vector<int64_t> &shape) {
    size_t product = 1;
    for (const int64_t extent : shape) product *= static_cast<size_t>(extent);
    return product;
}

/// Rounds of a rank: whole windows; in throw mode no more than the least of all.
int rounds_of(const Plan &plan, size_t rank) {
    const int least = *std::min_element(plan.inputs.begin(), plan.inputs.end());
    return (plan.throws ? least : plan.inputs[rank]) / plan.window;
}

/// The parameters that division by the number of ranks leads to.
std::vector<std::vector<double>> simulate(const Model &model, const Plan &plan) {
    std::vector<std::vector<double>> w;
    for (const auto &shape : model.shapes) w.emplace_back(elements(shape), 0.0);
    const size_t ranks = plan.inputs.size();
    int rounds = 0;
    for (size_t r = 0; r < ranks; r++) rounds = std::max(rounds, rounds_of(plan, r));
    for (int u = 0; u < rounds; u++)
        for (size_t p = 0; p < w.size(); p++) {
            std::vector<double> sum(w[p].size());
            for (size_t r = 0; r < ranks; r++)
                for (int t = u * plan.window; t < (u + 1) * plan.window && rounds_of(plan, r) > u; t++) {
                    const int rank = static_cast<int>(r);
                    if (!model.uses(rank, p, t)) continue;
                    for (size_t k = 0; k < sum.size(); k++) sum[k] += w[p][k] - input(rank, p, t, k);
                }
            for (size_t k = 0; k < sum.size(); k++) w[p][k] -= learning_rate * sum[k] / static_cast<double>(ranks);
        }
    return w;
}

/// A running statistic of one rank, when it trains on one more input.
float follow(float statistic, size_t rank) { return 0.9F * statistic + static_cast<float>(rank + 1); }

/// What it is at the beginning of each round, taken from the lowest rank that is still active, and in the end, when all have
/// that of the last one.
std::vector<float> simulate_statistic(const Plan &plan) {
    const size_t ranks = plan.inputs.size();
    std::vector<float> own(ranks);
    std::vector<float> seen;
    size_t last = 0;
    for (size_t r = 0; r < ranks; r++)
        if (rounds_of(plan, r) >= rounds_of(plan, last)) last = r;
    for (int u = 0; u < rounds_of(plan, last); u++) {
        size_t source = ranks;
        for (size_t r = ranks; r-- > 0;) {
            if (rounds_of(plan, r) <= u) continue;
            for (int t = 1; t < plan.window; t++) own[r] = follow(own[r], r);
            source = r;
        }
        seen.push_back(own[source]);
        for (size_t r = 0; r < ranks; r++) own[r] = rounds_of(plan, r) > u ? follow(seen.back(), r) : seen.back();
    }
    for (int t = rounds_of(plan, last) * plan.window; t < plan.inputs[last]; t++) own[last] = follow(own[last], last);
    seen.push_back(own[last]);
    return seen;
}

/// A rank of a run.
class Trainee {
  public:
    Trainee(ujoin_group *group, int rank, const Model &model, const Plan &plan)
        : group_(group), rank_(rank), model_(model), plan_(plan), statistics_(model.buffers),
          statistic_(simulate_statistic(plan)) {
        for (size_t p = 0; p < model.shapes.size(); p++)
            tensors_.emplace_back("p" + std::to_string(p), elements(model.shapes[p]));
    }

    void run() {
        ASSERT_NO_FATAL_FAILURE(create());
        ujoin_ctx_options options{};
        options.size = sizeof options;
        options.throw_on_exhausted = plan_.throws ? 1 : 0;
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp_.get())}, &options);
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        ujoin_status status = UJOIN_OK;
        int done = 0;
        const int own = plan_.inputs[static_cast<size_t>(rank_)];
        for (int t = 0; t < own && status == UJOIN_OK; t++) {
            status = train_on(t);
            if (status == UJOIN_OK && (t + 1) % plan_.window == 0) done++;
        }
        if (status == UJOIN_OK) status = ujoin_ctx_finish(ctx.get());
        const bool even = std::all_of(plan_.inputs.begin(), plan_.inputs.end(),
                                      [&](int inputs) { return inputs / plan_.window == own / plan_.window; });
        ASSERT_EQ(status, plan_.throws && !even ? UJOIN_E_EXHAUSTED : UJOIN_OK) << ujoin_last_error();
        if (status == UJOIN_E_EXHAUSTED) check_exhausted(done);
        EXPECT_EQ(done, rounds_of(plan_, static_cast<size_t>(rank_)));
        EXPECT_EQ(report_of(ddp_.get()).iterations, done);
        if (!plan_.throws) {
            EXPECT_EQ(report_of(ddp_.get()).joined_uneven, even ? 0 : 1);
            check_report(ctx.get());
            expect_statistics(statistic_.size() - 1);
        }
        check_values();
        ASSERT_NO_FATAL_FAILURE(check_equal());
    }

  private:
    void create() {
        std::vector<ujoin_param> params = params_of(tensors_);
        for (size_t p = 0; p < params.size(); p++) {
            params[p].shape = model_.shapes[p].data();
            params[p].ndim = static_cast<int32_t>(model_.shapes[p].size());
        }
        ujoin_buffer buffer{};
        buffer.data = statistics_.data();
        buffer.count = statistics_.size();
        buffer.dtype = UJOIN_F32;
        ujoin_ddp_options options = ddp_options();
        options.bucket_bytes = model_.bucket_bytes;
        options.find_unused = model_.find_unused ? 1 : 0;
        options.buffers = &buffer;
        options.buffer_count = statistics_.empty() ? 0 : 1;
        ujoin_ddp *ddp = nullptr;
        ASSERT_UJOIN_OK(ujoin_ddp_create(group_, params.data(), params.size(), &options, &ddp));
        ddp_.reset(ddp);
        if (model_.hook == 0) return;
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.kind = model_.hook;
        hook.start_iteration = -1;
        ASSERT_UJOIN_OK(ujoin_ddp_set_comm_hook(ddp, &hook));
    }

    ujoin_status train_on(int t) {
        const bool sync = (t + 1) % plan_.window == 0;
        ujoin_status status = ujoin_ddp_set_sync(ddp_.get(), sync ? 1 : 0);
        if (status == UJOIN_OK) status = ujoin_ddp_forward(ddp_.get(), 1);
        if (status == UJOIN_OK && sync) expect_statistics(static_cast<size_t>(t / plan_.window));
        for (float &value : statistics_) value = follow(value, static_cast<size_t>(rank_));
        for (size_t p = tensors_.size(); p-- > 0 && status == UJOIN_OK;) {
            if (!model_.uses(rank_, p, t)) continue;
            float *grad = tensors_[p].grads<float>();
            for (size_t k = 0; k < tensors_[p].count; k++)
                grad[k] += tensors_[p].values<float>()[k] - static_cast<float>(input(rank_, p, t, k));
            status = ujoin_ddp_ready(ddp_.get(), p);
        }
        if (status == UJOIN_OK) status = ujoin_ddp_finish(ddp_.get());
        if (status != UJOIN_OK || !sync) return status;
        for (Tensor &tensor : tensors_) {
            for (size_t k = 0; k < tensor.count; k++)
                tensor.values<float>()[k] -= static_cast<float>(learning_rate) * tensor.grads<float>()[k];
            tensor.fill_grad(0.0F);
        }
        return status;
    }

    void expect_statistics(size_t moment) {
        for (const float value : statistics_) EXPECT_EQ(value, statistic_[moment]) << "moment " << moment;
    }

    void check_exhausted(int done) const {
        const std::string text = ujoin_last_error();
        const bool mine = plan_.inputs[static_cast<size_t>(rank_)] / plan_.window == done;
        EXPECT_NE(text.find(mine ? "exhausted all inputs" : "found at least one rank that exhausted inputs"),
                  std::string::npos)
            << text;
    }

    void check_report(const ujoin_ctx *ctx) const {
        ujoin_ctx_report report{};
        report.size = sizeof report;
        ASSERT_UJOIN_OK(ujoin_ctx_get_report(ctx, &report));
        int most = 0;
        int last = 0;
        for (size_t r = 0; r < plan_.inputs.size(); r++) {
            if (rounds_of(plan_, r) >= most) last = static_cast<int>(r);
            most = std::max(most, rounds_of(plan_, r));
        }
        EXPECT_EQ(report.rounds, rounds_of(plan_, static_cast<size_t>(rank_)));
        EXPECT_EQ(report.shadow_rounds, most - report.rounds) << "rounds without reduction are no rounds";
        EXPECT_EQ(report.authoritative_rank, last);
    }

    void check_values() {
        if (model_.tolerance < 0) return;
        const std::vector<std::vector<double>> expected = simulate(model_, plan_);
        for (size_t p = 0; p < tensors_.size(); p++)
            for (size_t k = 0; k < tensors_[p].count; k++)
                ASSERT_NEAR(tensors_[p].values<float>()[k], expected[p][k], model_.tolerance)
                    << "parameter " << p << ", element " << k;
    }

    /// Parameters, and after a context that all left well the statistics too, are those of rank 0, bit by bit.
    void check_equal() {
        std::vector<float> state;
        for (Tensor &tensor : tensors_)
            state.insert(state.end(), tensor.values<float>(), tensor.values<float>() + tensor.count);
        if (!plan_.throws) state.insert(state.end(), statistics_.begin(), statistics_.end());
        std::vector<float> first = state;
        const ujoin_buffer buffer{first.data(), first.size(), UJOIN_F32, 0, 0, 0};
        ASSERT_UJOIN_OK(ujoin_broadcast(group_, &buffer, 0, nullptr, nullptr));
        EXPECT_EQ(state, first);
    }

    ujoin_group *group_;
    int rank_;
    const Model &model_;
    const Plan &plan_;
    std::vector<Tensor> tensors_;
    std::vector<float> statistics_;
    std::vector<float> statistic_; ///< expected, by round, then in the end
    DdpPtr ddp_;
};

std::string text_of(const Plan &plan) {
    std::string text = plan.throws ? "throw, inputs" : "inputs";
    for (const int inputs : plan.inputs) text += ' ' + std::to_string(inputs);
    return text + ", window " + std::to_string(plan.window);
}

/// The grid of D-13: early ranks have b inputs, others b + o; with more than two ranks a second early one has o / 2 more.
std::vector<Plan> grid(int size) {
    std::vector<Plan> plans;
    for (const int b : {0, 5})
        for (const int o : {2, 3, 10}) {
            std::vector<int> inputs(static_cast<size_t>(size), b + o);
            inputs[0] = b;
            plans.push_back({inputs, 1, false});
            if (size <= 2) continue;
            inputs[1] = b + o / 2;
            plans.push_back({inputs, 1, false});
        }
    return plans;
}

class DdpUneven : public testing::TestWithParam<std::tuple<Ranks, int>> {
  protected:
    static int size() { return std::get<1>(GetParam()); }
    static void train(const Model &model, const std::vector<Plan> &plans) {
        ddp_kit::run(std::get<0>(GetParam()), size(), [&](ujoin_group *group, int rank) {
            for (const Plan &plan : plans) {
                const testing::ScopedTrace trace(__FILE__, __LINE__, text_of(plan));
                ASSERT_NO_FATAL_FAILURE(Trainee(group, rank, model, plan).run());
            }
        });
    }
    /// The whole grid, then with accumulation, then in throw mode.
    static void train_everywhere(const Model &model) {
        std::vector<Plan> plans = grid(size());
        for (const Plan &plan : grid(size()))
            for (const int window : {2, 3, 4}) plans.push_back({plan.inputs, window, false});
        for (const Plan &plan : grid(size())) plans.push_back({plan.inputs, 1, true});
        plans.push_back({std::vector<int>(static_cast<size_t>(size()), 6), 2, true}); // even: nobody is exhausted
        train(model, plans);
    }
};

Model small() {
    Model model;
    model.shapes = {{4, 3}, {4}, {2, 4}, {2}};
    model.bucket_bytes = 32;
    return model;
}

} // namespace

TEST_P(DdpUneven, D_04_D_11_D_12_D_13_D_14_D_15_batch_norm_statistics_and_parameters_are_equal_at_the_end) {
    Model model = small();
    model.buffers = 8;
    train_everywhere(model);
}

TEST_P(DdpUneven, D_05_D_11_D_12_a_convolution_model_in_many_buckets) {
    Model model;
    model.shapes = {{20, 1, 5, 5}, {20}, {32, 20, 3, 3}, {32}, {256, 32, 3, 3}, {256}};
    model.bucket_bytes = 16384;
    std::vector<int> inputs(static_cast<size_t>(size()), 5);
    inputs[0] = 2;
    train(model, {{inputs, 1, false}, {inputs, 2, false}, {inputs, 1, true}});
}

TEST_P(DdpUneven, D_06_D_11_D_12_one_large_layer) {
    Model model;
    model.shapes = {{300, 1000}};
    std::vector<int> inputs(static_cast<size_t>(size()), 4);
    inputs[0] = 1;
    train(model, {{inputs, 1, false}, {inputs, 2, false}, {inputs, 1, true}});
}

TEST_P(DdpUneven, D_07_D_11_D_12_D_13_the_rank_that_stays_has_unused_parameters) {
    Model model = small();
    model.find_unused = true;
    model.uses = [](int rank, size_t param, int t) { return rank == 0 || param != 1 + static_cast<size_t>(t % 2); };
    train_everywhere(model);
}

TEST_P(DdpUneven, D_08_D_11_D_12_D_13_the_rank_that_joins_early_has_unused_parameters) {
    Model model = small();
    model.find_unused = true;
    model.uses = [](int rank, size_t param, int) { return rank != 0 || param != 2; };
    train_everywhere(model);
}

TEST_P(DdpUneven, D_09_D_11_D_12_D_13_the_ready_made_all_reduce_hook) {
    Model model = small();
    model.hook = UJOIN_COMM_HOOK_ALL_REDUCE;
    train_everywhere(model);
}

TEST_P(DdpUneven, D_10_D_11_D_12_D_13_low_rank_from_the_first_iteration) {
    Model model = small();
    model.shapes = {{16, 16}, {16}, {20, 12}, {12}};
    model.bucket_bytes = 1000;
    model.hook = UJOIN_COMM_HOOK_LOW_RANK;
    model.tolerance = -1;
    train_everywhere(model);
}

TEST_P(DdpUneven, D_10_compression_to_16_bits) {
    for (const ujoin_comm_hook_kind hook : {UJOIN_COMM_HOOK_F16, UJOIN_COMM_HOOK_BF16}) {
        Model model = small();
        model.hook = hook;
        model.tolerance = hook == UJOIN_COMM_HOOK_F16 ? 2e-3 : 2e-2;
        train_everywhere(model);
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpUneven,
                         testing::Values(std::make_tuple(Ranks::threads, 2), std::make_tuple(Ranks::threads, 3),
                                         std::make_tuple(Ranks::processes, 2), std::make_tuple(Ranks::processes, 4),
                                         std::make_tuple(Ranks::connections, 3), std::make_tuple(Ranks::hosts, 4)),
                         name_of);
