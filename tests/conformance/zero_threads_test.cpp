// SPDX-License-Identifier: Apache-2.0
// The number of threads that compute changes no bit of what an optimizer does.
#include "base/dtype.hpp"
#include "harness/launch.hpp"
#include "harness/process.hpp"
#include "harness/ranks.hpp"
#include "harness/zero_kit.hpp"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace harness;

namespace {

constexpr int steps = 5;

/// Values of a type, and what its gradients are in each step.
template <class T, class G> struct Tensor {
    std::vector<T> data;
    std::vector<G> grad;
    std::vector<std::vector<G>> gradients;

    Tensor(size_t count, unsigned seed) : grad(count) {
        for (size_t i = 0; i < count; i++) data.push_back(make<T>(seed, i));
        for (int step = 0; step < steps; step++) {
            std::vector<G> &all = gradients.emplace_back();
            for (size_t i = 0; i < count; i++) all.push_back(make<G>(seed + 7 + static_cast<unsigned>(step), i));
        }
    }
    template <class V> static V make(unsigned seed, size_t i) {
        uint32_t x = seed * 0x9E3779B1U + static_cast<uint32_t>(i) * 0xC2B2AE3DU;
        x = (x ^ x >> 15) * 0x2C1B3C6DU;
        return V(static_cast<float>(x >> 8) / 8388608.0F - 1.0F);
    }
};

/// Several pieces of each type, sizes that fit nothing, and some small tensors.
struct Model {
    Tensor<float, float> giant{150'001, 1}, small{1000, 2}, tiny{3, 3};
    Tensor<double, double> wide{70'003, 4};
    Tensor<ujoin::BFloat16, ujoin::BFloat16> brain{70'001, 5};
    Tensor<ujoin::Half, float> half{66'000, 6};

    template <class Visit> void visit(Visit &&all) {
        all("giant", giant, UJOIN_F32, UJOIN_F32);
        all("small", small, UJOIN_F32, UJOIN_F32);
        all("tiny", tiny, UJOIN_F32, UJOIN_F32);
        all("wide", wide, UJOIN_F64, UJOIN_F64);
        all("brain", brain, UJOIN_BF16, UJOIN_BF16);
        all("half", half, UJOIN_F16, UJOIN_F32);
    }
    std::vector<ujoin_param> params() {
        std::vector<ujoin_param> list;
        visit([&](const char *name, auto &tensor, ujoin_dtype dtype, ujoin_dtype grad_dtype) {
            ujoin_param param{};
            param.name = name;
            param.data = tensor.data.data();
            param.grad = tensor.grad.data();
            param.count = tensor.data.size();
            param.dtype = dtype;
            param.grad_dtype = grad_dtype;
            list.push_back(param);
        });
        return list;
    }
    void backward(int step) {
        visit([&](const char *, auto &tensor, ujoin_dtype, ujoin_dtype) {
            tensor.grad = tensor.gradients[static_cast<size_t>(step)];
        });
    }
    /// In 64-bit words, so that a difference is found fast.
    std::vector<uint64_t> bits() {
        std::vector<uint64_t> all;
        visit([&](const char *, auto &tensor, ujoin_dtype, ujoin_dtype) {
            const size_t bytes = tensor.data.size() * sizeof tensor.data[0];
            const size_t at = all.size();
            all.resize(at + (bytes + 7) / 8);
            std::memcpy(&all[at], tensor.data.data(), bytes);
        });
        return all;
    }
};

/// Plain, clipped, unscaled and clipped, clipped apart from the step, by the largest magnitude.
void train(ujoin_zero *zero, ujoin_scaler *scaler, Model &model, std::vector<uint64_t> &norms) {
    for (int step = 0; step < steps; step++) {
        model.backward(step);
        double norm = 0;
        ujoin_step_options options{};
        options.size = sizeof options;
        options.out_norm = &norm;
        if (step == 1 || step == 2) options.max_norm = 0.5;
        if (step == 2) options.scaler = scaler;
        if (step == 4) {
            options.max_norm = 0.25;
            options.norm_type = HUGE_VAL;
        }
        double apart = 0;
        if (step == 3) ok(zero_clip_grad_norm(zero, 0.75, 2, &apart));
        ok(zero_step(zero, &options));
        for (const double value : {norm, apart}) {
            uint64_t bits = 0;
            std::memcpy(&bits, &value, sizeof bits);
            norms.push_back(bits);
        }
    }
}

/// What the parameters are after some steps, then the norms on the way.
std::vector<uint64_t> trained(ujoin_group *group, ujoin_optimizer rule, ujoin_partition partition, bool stochastic,
                              Model model) {
    const ujoin_hyper momentum{"momentum", 0.9};
    ujoin_zero_options options{};
    options.size = sizeof options;
    options.partition = partition;
    options.no_master_copy = options.stochastic_rounding = stochastic ? 1 : 0;
    options.seed = 3;
    options.hyper = &momentum;
    options.hyper_count = rule == UJOIN_OPTIMIZER_SGD ? 1 : 0;
    const std::vector<ujoin_param> params = model.params();
    ujoin_zero *zero = nullptr;
    ok(zero_create(group, rule, params.data(), params.size(), &options, &zero));
    ujoin_scaler *scaler = nullptr;
    ok(zero_scaler_create(nullptr, &scaler));
    std::vector<uint64_t> norms;
    train(zero, scaler, model, norms);
    zero_scaler_destroy(scaler);
    zero_destroy(zero);
    std::vector<uint64_t> all = model.bits();
    all.insert(all.end(), norms.begin(), norms.end());
    return all;
}

void with_threads(const std::string &backend, int size, int threads, const std::function<void(ujoin_group *)> &body) {
    on_ranks(
        backend, size, [&](ujoin_group *group, int) { body(group); },
        [&](ujoin_group_options &options) { options.threads = threads; });
}

class ZeroThreads : public TestOfRanks {};

/// All; in a sanitized build, which looks at accesses, one of each way to go through the elements.
std::vector<ujoin_optimizer> rules() {
    if (slack() > 1) return {UJOIN_OPTIMIZER_ADAMW, UJOIN_OPTIMIZER_LAMB};
    std::vector<ujoin_optimizer> all;
    for (ujoin_optimizer rule = UJOIN_OPTIMIZER_SGD; rule <= UJOIN_OPTIMIZER_LION; rule++) all.push_back(rule);
    return all;
}

TEST_P(ZeroThreads, no_rule_gives_other_bits) {
    const Model model;
    for (const ujoin_optimizer rule : rules())
        for (const bool stochastic : {false, true}) {
            std::vector<uint64_t> expected;
            with_threads("self", 1, 1, [&](ujoin_group *group) {
                expected = trained(group, rule, UJOIN_PARTITION_PARAMETERS, stochastic, model);
            });
            for (const int threads : {1, 2, 3})
                with_threads(GetParam().backend, size(), threads, [&](ujoin_group *group) {
                    // The other partition in the variant without master copies; LAMB cannot have it.
                    const bool cut = stochastic && rule != UJOIN_OPTIMIZER_LAMB;
                    const ujoin_partition partition = cut ? UJOIN_PARTITION_ELEMENTS : UJOIN_PARTITION_PARAMETERS;
                    EXPECT_TRUE(trained(group, rule, partition, stochastic, model) == expected)
                        << "rule " << rule << ", " << threads << " threads, stochastic " << stochastic;
                });
        }
}

INSTANTIATE_TEST_SUITE_P(Backends, ZeroThreads,
                         testing::Values(Where{"self", 1}, Where{"local", 2}, Where{"local", 3}, Where{"shm", 4}),
                         where_name);

TEST(ZeroThreadsRank, a_custom_rule_runs_on_the_callers_thread) {
    on_ranks(
        "self", 1,
        [](ujoin_group *group, int) {
            static const pthread_t caller = pthread_self();
            static size_t elements = 0;
            static bool elsewhere = false;
            ujoin_rule rule{};
            rule.size = sizeof rule;
            rule.name = "still";
            rule.step = [](void *, const ujoin_rule_args *args) -> ujoin_status {
                elements += args->count;
                elsewhere = elsewhere || pthread_equal(caller, pthread_self()) == 0;
                return UJOIN_OK;
            };
            ujoin_zero_options options{};
            options.size = sizeof options;
            options.rule = &rule;
            Tensors tensors({200'000, 100});
            const std::vector<ujoin_param> params = tensors.params();
            ujoin_zero *zero = nullptr;
            ok(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params.data(), params.size(), &options, &zero));
            ok(zero_step(zero, nullptr));
            zero_destroy(zero);
            EXPECT_EQ(elements, 200'100U);
            EXPECT_FALSE(elsewhere);
        },
        [](ujoin_group_options &options) { options.threads = 3; });
}

TEST(ZeroThreadsRank, threads_are_there_from_the_first_large_step_to_the_end_of_the_group) {
    ujoin_group_options options{};
    options.size = sizeof options;
    options.rendezvous = "local://threads";
    options.backend = "self";
    options.world_size = 1;
    options.threads = 3;
    ujoin_group *group = nullptr;
    ok(ujoin_group_create(&options, &group));
    Tensors small({1000});
    Tensors large({400'000});
    {
        const Optimizer first(group, UJOIN_OPTIMIZER_ADAMW, small, {});
        first.step();
        EXPECT_EQ(library_threads().size(), 0) << "a small step needs no thread";
        const Optimizer second(group, UJOIN_OPTIMIZER_ADAMW, large, {});
        second.step();
        EXPECT_EQ(library_threads().size(), 2);
        second.step();
        EXPECT_EQ(library_threads().size(), 2);
    }
    ujoin_group_destroy(group);
    // Whoever joins a thread goes on a moment before the kernel takes it from its list.
    EXPECT_TRUE(eventually([] { return library_threads().size() == 0; })) << library_threads().size();
}

/// In a child of a process whose group has threads: 0, or the line of what is wrong.
int child_of_threads(ujoin_group *group, const Optimizer &optimizer) {
    if (library_threads().size() != 0) return __LINE__;
    if (zero_step(optimizer.get(), nullptr) != UJOIN_E_STATE) return __LINE__;
    ujoin_group_destroy(group);
    ujoin_group_options options{};
    options.size = sizeof options;
    options.rendezvous = "local://child";
    options.backend = "self";
    options.world_size = options.threads = 1;
    ujoin_group *fresh = nullptr;
    if (ujoin_group_create(&options, &fresh) != UJOIN_OK) return __LINE__;
    Tensors tensors({200'000});
    {
        const Optimizer own(fresh, UJOIN_OPTIMIZER_SGD, tensors, {{"lr", 0.5}});
        own.step();
    }
    ujoin_group_destroy(fresh);
    return tensors.data[0][199'999] == 0.5F ? 0 : __LINE__;
}

TEST(ZeroThreadsRank, a_forked_child_has_none_and_refuses_the_group) {
    on_ranks(
        "self", 1,
        [](ujoin_group *group, int) {
            Tensors tensors({200'000});
            const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAMW, tensors, {});
            optimizer.step();
            const pid_t child = fork();
            if (child == 0) _exit(child_of_threads(group, optimizer) & 255);
            int status = -1;
            ASSERT_EQ(waitpid(child, &status, 0), child);
            EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "line " << WEXITSTATUS(status);
            optimizer.step();
        },
        [](ujoin_group_options &options) { options.threads = 2; });
}

} // namespace
