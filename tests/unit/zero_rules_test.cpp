// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "harness/temp_dir.hpp"
#include "optim/update.hpp"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

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

/// One parameter and its state, stepped without a group.
template <class T> struct Stepper {
    const optim::Rule &rule;
    optim::Hyper hyper;
    std::vector<T> param;
    std::vector<std::vector<T>> states;
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
        update.count = param.size();
        for (size_t i = 0; i < optim::max_states; i++) update.states[i] = states[i].data();
        update.step = ++step;
        update.first = first;
        first = false;
        optim::apply(rule, hyper, sizeof(T) == 4 ? UJOIN_F32 : UJOIN_F64, update);
    }
};

template <class T> void expect_near(const std::vector<T> &ours, const json &theirs, const std::string &what) {
    ASSERT_EQ(ours.size(), theirs.size()) << what;
    double largest = 0;
    for (const json &value : theirs) largest = std::max(largest, std::abs(value.get<double>()));
    for (size_t i = 0; i < ours.size(); i++)
        EXPECT_NEAR(static_cast<double>(ours[i]), theirs[i].get<double>(), 1e-6 * largest) << what << ", element " << i;
}

template <class T> void check_case(const json &test, uint32_t steps, uint32_t count) {
    const std::string name = test["optimizer"];
    const ujoin_optimizer id = name == "sgd"    ? UJOIN_OPTIMIZER_SGD
                               : name == "adam" ? UJOIN_OPTIMIZER_ADAM
                                                : UJOIN_OPTIMIZER_ADAMW;
    std::vector<ujoin_hyper> pairs;
    const json::object_t &hyper = test["hyper"].get_ref<const json::object_t &>();
    for (const std::pair<const std::string, json> &pair : hyper)
        pairs.push_back({pair.first.c_str(), pair.second.get<double>()});
    const uint32_t seed = test["seed"];
    const uint32_t skip = test["skip"];
    std::vector<T> start(count);
    for (uint32_t i = 0; i < count; i++) start[i] = static_cast<T>(gradient(seed, 0, i) * 4);
    Stepper<T> stepper(id, pairs, start);
    size_t next = 0;
    for (uint32_t step = 1; step <= steps; step++) {
        std::vector<T> grad(count);
        for (uint32_t i = 0; i < count; i++) grad[i] = static_cast<T>(gradient(seed, step, i));
        if (skip == 0 || step % skip != 0) stepper.apply(grad);
        if (next == test["shown"].size() || test["shown"][next]["after"] != step) continue;
        const json &shown = test["shown"][next++];
        const std::string what = test["optimizer"].dump() + " " + test["hyper"].dump() + " after " + std::to_string(step);
        expect_near(stepper.param, shown["param"], what + " param");
        for (size_t i = 0; i < stepper.rule.states.size(); i++)
            if (shown.contains(stepper.rule.states[i]))
                expect_near(stepper.states[i], shown[stepper.rule.states[i]], what + " " + stepper.rule.states[i]);
        if (shown.contains("step")) {
            EXPECT_EQ(static_cast<double>(stepper.step), shown["step"].get<double>()) << what;
        }
    }
    EXPECT_EQ(next, test["shown"].size());
}

TEST(ZeroRules, equal_pytorch_over_a_hundred_steps) {
    const json vectors = json::parse(harness::read_file(UJOIN_TEST_DATA "/optim_vectors.json"));
    ASSERT_GE(vectors["cases"].size(), 15U);
    for (const json &test : vectors["cases"])
        test["dtype"] == "f32" ? check_case<float>(test, vectors["steps"], vectors["count"])
                               : check_case<double>(test, vectors["steps"], vectors["count"]);
}

TEST(ZeroRules, results_do_not_depend_on_how_elements_are_grouped) {
    const size_t count = 67;
    for (const ujoin_optimizer id : {UJOIN_OPTIMIZER_SGD, UJOIN_OPTIMIZER_ADAM, UJOIN_OPTIMIZER_ADAMW}) {
        std::vector<ujoin_hyper> hyper{{"lr", 0.1}, {"weight_decay", 0.1}};
        if (id == UJOIN_OPTIMIZER_SGD) hyper.push_back({"momentum", 0.9});
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
        for (size_t i = 0; i < count; i++) EXPECT_EQ(whole.param[i], single[i].param[0]) << i; // every bit
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
}

} // namespace
