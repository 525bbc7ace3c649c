// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "harness/temp_dir.hpp"
#include "optim/blocks.hpp"
#include "optim/update.hpp"
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

using namespace ujoin;
using nlohmann::json;

namespace {

/// The same numbers as tests/tools/make_optim_vectors.py.
double gradient(uint32_t seed, uint32_t step, uint32_t index) {
    uint32_t x = seed * 0x9E3779B1U + step * 0x85EBCA77U + index * 0xC2B2AE3DU;
    for (int i = 0; i < 2; i++) {
        x ^= x >> 15;
        x *= 0x2C1B3C6DU;
    }
    x ^= x >> 16;
    return ((x >> 12) / 1048576.0 - 0.5) * std::pow(4.0, static_cast<int>(index % 4) - 2);
}

const std::map<std::string, ujoin_optimizer> by_name{
    {"sgd", UJOIN_OPTIMIZER_SGD},         {"adam", UJOIN_OPTIMIZER_ADAM},       {"adamw", UJOIN_OPTIMIZER_ADAMW},
    {"adagrad", UJOIN_OPTIMIZER_ADAGRAD}, {"rmsprop", UJOIN_OPTIMIZER_RMSPROP}, {"adadelta", UJOIN_OPTIMIZER_ADADELTA},
    {"adamax", UJOIN_OPTIMIZER_ADAMAX},   {"nadam", UJOIN_OPTIMIZER_NADAM},     {"radam", UJOIN_OPTIMIZER_RADAM},
    {"rprop", UJOIN_OPTIMIZER_RPROP},     {"lamb", UJOIN_OPTIMIZER_LAMB},       {"lion", UJOIN_OPTIMIZER_LION}};

/// One parameter and its state, stepped without a group.
template <class T> struct Stepper {
    const optim::Rule &rule;
    optim::Hyper hyper;
    std::vector<T> param;
    std::vector<std::vector<T>> states;
    double number = 1;
    int64_t step = 0;
    bool first = true;

    Stepper(ujoin_optimizer id, const std::vector<ujoin_hyper> &pairs, std::vector<T> start)
        : rule(optim::find_rule(id)),
          hyper(optim::with_hyper(rule, optim::default_hyper(rule), pairs.data(), pairs.size())), param(std::move(start)),
          states(optim::max_states, std::vector<T>(param.size())) {}

    void apply(const std::vector<T> &grad) {
        optim::Update update;
        update.param = param.data();
        update.grad = grad.data();
        update.dtype = update.grad_dtype = sizeof(T) == 4 ? UJOIN_F32 : UJOIN_F64;
        update.count = param.size();
        for (size_t i = 0; i < optim::max_states; i++) update.states[i] = states[i].data();
        update.step = ++step;
        if (rule.next_number) number = rule.next_number(hyper, step, number);
        update.number = number;
        update.first = first;
        first = false;
        optim::apply(rule, hyper, update);
    }
};

double largest(const json &values) {
    double top = 0;
    for (const json &value : values) top = std::max(top, std::abs(value.get<double>()));
    return top;
}

template <class T> void expect_near(const std::vector<T> &ours, const json &theirs, double scale, const std::string &what) {
    ASSERT_EQ(ours.size(), theirs.size()) << what;
    for (size_t i = 0; i < ours.size(); i++)
        EXPECT_NEAR(static_cast<double>(ours[i]), theirs[i].get<double>(), 1e-6 * scale) << what << ", element " << i;
}

/// Calls `after(step)` behind each step that is not skipped.
template <class T, class After> Stepper<T> run_case(const json &test, uint32_t steps, uint32_t count, const After &after) {
    std::vector<ujoin_hyper> pairs;
    const json::object_t &hyper = test["hyper"].get_ref<const json::object_t &>();
    for (const std::pair<const std::string, json> &pair : hyper)
        pairs.push_back({pair.first.c_str(), pair.second.get<double>()});
    const uint32_t seed = test["seed"];
    const uint32_t skip = test["skip"];
    std::vector<T> start(count);
    for (uint32_t i = 0; i < count; i++) start[i] = static_cast<T>(gradient(seed, 0, i) * 4);
    Stepper<T> stepper(by_name.at(test["optimizer"]), pairs, start);
    for (uint32_t step = 1; step <= steps; step++) {
        std::vector<T> grad(count);
        for (uint32_t i = 0; i < count; i++) grad[i] = static_cast<T>(gradient(seed, step, i));
        if (skip == 0 || step % skip != 0) stepper.apply(grad);
        after(stepper, step);
    }
    return stepper;
}

void check_state(const Stepper<float> &stepper, const json &state, const std::string &what) {
    size_t known = 0;
    for (size_t i = 0; i < stepper.rule.states.size(); i++) {
        const std::string &name = stepper.rule.states[i];
        if (!state.contains(name)) continue;
        known++;
        expect_near(stepper.states[i], state[name], largest(state[name]), what + " " + name);
    }
    if (state.contains("step")) {
        EXPECT_EQ(static_cast<double>(stepper.step), state["step"].get<double>()) << what;
        EXPECT_TRUE(stepper.rule.counts_steps) << what;
    }
    if (!stepper.rule.number.empty()) {
        EXPECT_NEAR(stepper.number, state[stepper.rule.number].get<double>(), 1e-6 * stepper.number) << what;
    }
    EXPECT_EQ(state.size(), known + (state.contains("step") ? 1 : 0) + (stepper.rule.number.empty() ? 0 : 1)) << what;
}

void check_case(const json &test, uint32_t steps, uint32_t count) {
    const std::string what = test["optimizer"].dump() + " " + test["hyper"].dump() + " ";
    size_t shown = 0;
    double scale = 0;
    const Stepper<float> single = run_case<float>(test, steps, count, [&](const Stepper<float> &now, uint32_t step) {
        if (step == 1)
            for (const float value : now.param) scale = std::max(scale, static_cast<double>(std::abs(value)));
        const std::string key = std::to_string(step);
        if (!test["f32"].contains(key)) return;
        shown++;
        expect_near(now.param, test["f32"][key], std::max(scale, largest(test["f32"][key])), what + "after " + key);
    });
    EXPECT_EQ(shown, test["f32"].size());
    check_state(single, test["state"], what);
    const Stepper<double> exact = run_case<double>(test, steps, count, [](const Stepper<double> &, uint32_t) {});
    expect_near(exact.param, test["f64"], 1e-3 * std::max(scale, largest(test["f64"])), what + "in f64"); // 1e-9
    double off = 0;
    for (size_t i = 0; i < count; i++) off = std::max(off, std::abs(static_cast<double>(single.param[i]) - exact.param[i]));
    // Half a unit in the last place of the result is nobody's fault.
    EXPECT_LE(off, 2 * test["off"].get<double>() + 6e-8 * std::max(scale, largest(test["f64"]))) << what;
}

TEST(ZeroRules, equal_pytorch_over_a_hundred_steps) {
    const json vectors = json::parse(harness::read_file(UJOIN_TEST_DATA "/optim_vectors.json"));
    std::set<std::string> seen;
    for (const json &test : vectors["cases"]) {
        seen.insert(test["optimizer"]);
        check_case(test, vectors["steps"], vectors["count"]);
    }
    EXPECT_EQ(seen.size(), by_name.size() - 2); // PyTorch has no LAMB and no Lion
}

/// The two rules that PyTorch does not have, written down once more, in f64.
struct Reference {
    bool lion;
    double lr, beta1, beta2, eps, decay, sign;
    std::vector<double> p, m, v;
    int step = 0;

    void apply(const std::vector<float> &grad) {
        step++;
        std::vector<double> r(p.size());
        double p2 = 0;
        double r2 = 0;
        for (size_t i = 0; i < p.size(); i++) {
            const double g = sign * static_cast<double>(grad[i]);
            if (lion) {
                const double mix = beta1 * m[i] + (1 - beta1) * g;
                r[i] = (mix > 0 ? 1 : mix < 0 ? -1 : 0) + decay * p[i];
                m[i] = beta2 * m[i] + (1 - beta2) * g;
            } else {
                m[i] = beta1 * m[i] + (1 - beta1) * g;
                v[i] = beta2 * v[i] + (1 - beta2) * g * g;
                r[i] = m[i] / (1 - std::pow(beta1, step)) / (std::sqrt(v[i] / (1 - std::pow(beta2, step))) + eps) +
                       decay * p[i];
            }
            p2 += p[i] * p[i];
            r2 += r[i] * r[i];
        }
        const double ratio = lion || p2 == 0 || r2 == 0 ? 1 : std::sqrt(p2 / r2);
        for (size_t i = 0; i < p.size(); i++) p[i] -= lr * ratio * r[i];
    }
};

void check_reference(bool lion, Reference reference, const std::vector<ujoin_hyper> &hyper) {
    const size_t count = 67;
    std::vector<float> start(count);
    for (uint32_t i = 0; i < count; i++) start[i] = static_cast<float>(gradient(3, 0, i));
    reference.lion = lion;
    reference.p.assign(start.begin(), start.end());
    reference.m = reference.v = std::vector<double>(count);
    Stepper<float> stepper(lion ? UJOIN_OPTIMIZER_LION : UJOIN_OPTIMIZER_LAMB, hyper, start);
    for (uint32_t step = 1; step <= 100; step++) {
        std::vector<float> grad(count);
        for (uint32_t i = 0; i < count; i++) grad[i] = static_cast<float>(gradient(3, step, i));
        stepper.apply(grad);
        reference.apply(grad);
        for (size_t i = 0; i < count; i++)
            ASSERT_NEAR(static_cast<double>(stepper.param[i]), reference.p[i], 4e-6)
                << "step " << step << ", element " << i;
    }
}

TEST(ZeroRules, a_common_divisor_gives_the_bits_of_a_division) {
    for (const double beta : {0.5, 0.9, 0.95, 0.99, 0.999, 0.9999999}) {
        for (const double step : {1.0, 2.0, 3.0, 10.0, 100.0, 1e6}) {
            const double correction = 1 - std::pow(beta, step);
            for (const double exact : {correction, std::sqrt(correction)}) {
                const optim::Divisor<float> common(exact);
                const auto divisor = static_cast<float>(exact);
                // Of every exponent, so also subnormal results and those that overflow.
                for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1'000'003) {
                    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
                    if (std::isnan(value)) {
                        EXPECT_TRUE(std::isnan(common.divide(value)));
                        continue;
                    }
                    ASSERT_EQ(std::bit_cast<uint32_t>(common.divide(value)), std::bit_cast<uint32_t>(value / divisor))
                        << value << " / " << divisor;
                }
            }
        }
    }
}

TEST(ZeroRules, lion_and_lamb_are_as_published) {
    check_reference(true, {true, 1e-4, 0.9, 0.99, 0, 0, 1, {}, {}, {}}, {});
    check_reference(true, {true, 0.01, 0.8, 0.95, 0, 0.1, -1, {}, {}, {}},
                    {{"lr", 0.01}, {"beta1", 0.8}, {"beta2", 0.95}, {"weight_decay", 0.1}, {"maximize", 1}});
    check_reference(false, {false, 1e-3, 0.9, 0.999, 1e-6, 0.01, 1, {}, {}, {}}, {});
    check_reference(false, {false, 0.01, 0.8, 0.95, 1e-3, 0.1, -1, {}, {}, {}},
                    {{"lr", 0.01}, {"beta1", 0.8}, {"beta2", 0.95}, {"eps", 1e-3}, {"weight_decay", 0.1}, {"maximize", 1}});
    // Without a norm there is no ratio: a parameter of zeros moves like Adam's.
    Stepper<float> lamb(UJOIN_OPTIMIZER_LAMB, {{"lr", 0.5}}, {0, 0});
    lamb.apply({2, -2});
    EXPECT_NEAR(lamb.param[0], -0.5, 1e-6);
    EXPECT_NEAR(lamb.param[1], 0.5, 1e-6);
}

TEST(ZeroRules, results_do_not_depend_on_how_elements_are_grouped) {
    const size_t count = 67;
    for (const auto &[name, id] : by_name) {
        if (id == UJOIN_OPTIMIZER_LAMB) continue; // its ratio is that of the whole tensor
        std::vector<ujoin_hyper> hyper{{"lr", 0.1}};
        if (id != UJOIN_OPTIMIZER_RPROP) hyper.push_back({"weight_decay", 0.1});
        if (id == UJOIN_OPTIMIZER_SGD || id == UJOIN_OPTIMIZER_RMSPROP) hyper.push_back({"momentum", 0.9});
        std::vector<float> start(count);
        for (uint32_t i = 0; i < count; i++) start[i] = static_cast<float>(gradient(7, 0, i));
        Stepper<float> whole(id, hyper, start);
        std::vector<Stepper<float>> single;
        for (size_t i = 0; i < count; i++) single.emplace_back(id, hyper, std::vector<float>{start[i]});
        for (uint32_t step = 1; step <= 20; step++) {
            std::vector<float> grad(count);
            for (uint32_t i = 0; i < count; i++) grad[i] = static_cast<float>(gradient(7, step, i));
            whole.apply(grad);
            for (size_t i = 0; i < count; i++) single[i].apply({grad[i]});
        }
        for (size_t i = 0; i < count; i++) EXPECT_EQ(whole.param[i], single[i].param[0]) << name << ' ' << i; // every bit
    }
}

TEST(ZeroRules, amsgrad_keeps_the_largest_and_a_nan) {
    Stepper<float> stepper(UJOIN_OPTIMIZER_ADAM, {{"amsgrad", 1}}, {0, 0});
    stepper.apply({10, 1});
    const float top = stepper.states[2][0];
    stepper.apply({0, std::numeric_limits<float>::quiet_NaN()});
    EXPECT_EQ(stepper.states[2][0], top);
    stepper.apply({0, 1});
    EXPECT_TRUE(std::isnan(stepper.states[2][1]));
    EXPECT_TRUE(std::isnan(stepper.param[1]));
}

TEST(ZeroRules, a_nan_never_looks_like_a_number) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const auto &[name, id] : by_name) {
        if (id == UJOIN_OPTIMIZER_RPROP) continue; // uses signs alone, and a NaN has none: the step after it is a NaN
        Stepper<float> stepper(id, {}, {1, 1});
        stepper.apply({nan, 0.5F});
        EXPECT_TRUE(std::isnan(stepper.param[0])) << name;
        EXPECT_EQ(std::isnan(stepper.param[1]), id == UJOIN_OPTIMIZER_LAMB) << name; // there one ratio serves all
    }
}

void expect_invalid(ujoin_optimizer id, const std::vector<ujoin_hyper> &pairs, const std::string &part) {
    const optim::Rule &rule = optim::find_rule(id);
    try {
        optim::with_hyper(rule, optim::default_hyper(rule), pairs.data(), pairs.size());
        ADD_FAILURE() << "accepted; expected: " << part;
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), UJOIN_E_INVALID);
        EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
    }
}

TEST(ZeroRules, hyper_parameters_are_checked) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    expect_invalid(UJOIN_OPTIMIZER_SGD, {{"lr", -1}}, "lr is -1");
    expect_invalid(UJOIN_OPTIMIZER_SGD, {{"lr", nan}}, "lr is nan");
    expect_invalid(UJOIN_OPTIMIZER_SGD, {{"momentum", -0.1}}, "momentum");
    expect_invalid(UJOIN_OPTIMIZER_SGD, {{"nesterov", 1}}, "nesterov needs a momentum");
    expect_invalid(UJOIN_OPTIMIZER_SGD, {{"nesterov", 1}, {"momentum", 0.9}, {"dampening", 0.1}}, "dampening is 0.1");
    expect_invalid(UJOIN_OPTIMIZER_SGD, {{"maximize", 2}}, "maximize is 2; expected 0 or 1");
    expect_invalid(UJOIN_OPTIMIZER_SGD, {{"beta1", 0.9}},
                   "known are lr, momentum, dampening, nesterov, weight_decay, maximize");
    expect_invalid(UJOIN_OPTIMIZER_ADAM, {{"beta1", 1}}, "beta1 is 1");
    expect_invalid(UJOIN_OPTIMIZER_ADAM, {{"beta2", -0.5}}, "beta2 is -0.5");
    expect_invalid(UJOIN_OPTIMIZER_ADAM, {{"eps", -1e-8}}, "eps");
    expect_invalid(UJOIN_OPTIMIZER_ADAMW, {{"weight_decay", -1}}, "weight_decay");
    expect_invalid(UJOIN_OPTIMIZER_ADAMW, {{"lr", 0.1}, {"lr", 0.2}}, "given twice");
    expect_invalid(UJOIN_OPTIMIZER_ADAMW, {{nullptr, 0.1}}, "hyper[0].name is NULL");
    EXPECT_THROW(optim::find_rule(1), Error);
    expect_invalid(UJOIN_OPTIMIZER_ADAGRAD, {{"initial_accumulator_value", -1}}, "initial_accumulator_value is -1");
    expect_invalid(UJOIN_OPTIMIZER_RMSPROP, {{"alpha", -1}}, "alpha is -1");
    expect_invalid(UJOIN_OPTIMIZER_ADADELTA, {{"rho", 1.5}}, "rho is 1.5; it must be between 0 and 1");
    expect_invalid(UJOIN_OPTIMIZER_ADAMAX, {{"beta2", 1}}, "beta2 is 1");
    expect_invalid(UJOIN_OPTIMIZER_NADAM, {{"momentum_decay", -1}}, "momentum_decay is -1");
    expect_invalid(UJOIN_OPTIMIZER_RADAM, {{"decoupled_weight_decay", 2}}, "expected 0 or 1");
    expect_invalid(UJOIN_OPTIMIZER_RPROP, {{"etaminus", 1}}, "etaminus is 1");
    expect_invalid(UJOIN_OPTIMIZER_RPROP, {{"etaplus", 1}}, "etaplus is 1; it must be above 1");
    expect_invalid(UJOIN_OPTIMIZER_RPROP, {{"step_max", 0}}, "step_max is 0, but step_min is 1e-06");
    expect_invalid(UJOIN_OPTIMIZER_LAMB, {{"eps", -1}}, "eps is -1");
    expect_invalid(UJOIN_OPTIMIZER_LION, {{"eps", 1}}, "known are lr, beta1, beta2, weight_decay, maximize");
}

TEST(ZeroRules, defaults_are_pytorchs) {
    using Pairs = std::vector<std::pair<std::string, double>>;
    const auto defaults = [](ujoin_optimizer id) {
        Pairs pairs;
        for (const optim::HyperSpec &spec : optim::find_rule(id).hypers) pairs.emplace_back(spec.name, spec.value);
        return pairs;
    };
    EXPECT_EQ(
        defaults(UJOIN_OPTIMIZER_SGD),
        (Pairs{{"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"nesterov", 0}, {"weight_decay", 0}, {"maximize", 0}}));
    Pairs adam{{"lr", 1e-3},        {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8},
               {"weight_decay", 0}, {"amsgrad", 0}, {"maximize", 0}};
    EXPECT_EQ(defaults(UJOIN_OPTIMIZER_ADAM), adam);
    adam[4].second = 1e-2;
    EXPECT_EQ(defaults(UJOIN_OPTIMIZER_ADAMW), adam);
    EXPECT_EQ(defaults(UJOIN_OPTIMIZER_ADAGRAD), (Pairs{{"lr", 1e-2},
                                                        {"lr_decay", 0},
                                                        {"weight_decay", 0},
                                                        {"initial_accumulator_value", 0},
                                                        {"eps", 1e-10},
                                                        {"maximize", 0}}));
    EXPECT_EQ(defaults(UJOIN_OPTIMIZER_RMSPROP), (Pairs{{"lr", 1e-2},
                                                        {"alpha", 0.99},
                                                        {"eps", 1e-8},
                                                        {"weight_decay", 0},
                                                        {"momentum", 0},
                                                        {"centered", 0},
                                                        {"maximize", 0}}));
    EXPECT_EQ(defaults(UJOIN_OPTIMIZER_ADADELTA),
              (Pairs{{"lr", 1}, {"rho", 0.9}, {"eps", 1e-6}, {"weight_decay", 0}, {"maximize", 0}}));
    EXPECT_EQ(
        defaults(UJOIN_OPTIMIZER_RPROP),
        (Pairs{{"lr", 1e-2}, {"etaminus", 0.5}, {"etaplus", 1.2}, {"step_min", 1e-6}, {"step_max", 50}, {"maximize", 0}}));
    // What has a row of its own in the vectors with all values left alone needs no second list here.
}

} // namespace
