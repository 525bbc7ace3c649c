// SPDX-License-Identifier: Apache-2.0
#include "optim/hyper.hpp"
#include "base/error.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

std::vector<HyperSpec> adam_hypers(double weight_decay) {
    return {{"lr", 1e-3, false},
            {"beta1", 0.9, false},
            {"beta2", 0.999, false},
            {"eps", 1e-8, false},
            {"weight_decay", weight_decay, false},
            {"amsgrad", 0, true},
            {"maximize", 0, true}};
}

const std::vector<Rule> &rules() {
    static const std::vector<Rule> list = {
        {UJOIN_OPTIMIZER_SGD,
         "sgd",
         {{"lr", 1e-3, false},
          {"momentum", 0, false},
          {"dampening", 0, false},
          {"nesterov", 0, true},
          {"weight_decay", 0, false},
          {"maximize", 0, true}},
         {"momentum_buffer"},
         false},
        {UJOIN_OPTIMIZER_ADAM, "adam", adam_hypers(0), {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, true},
        {UJOIN_OPTIMIZER_ADAMW, "adamw", adam_hypers(1e-2), {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, true}};
    return list;
}

void at_least_zero(const char *name, double value) {
    if (!(value >= 0)) fail_invalid(name, " is ", value, "; it must be 0 or more");
}

void below_one(const char *name, double value) {
    if (!(value >= 0 && value < 1)) fail_invalid(name, " is ", value, "; it must be at least 0 and less than 1");
}

} // namespace

const Rule &find_rule(ujoin_optimizer id) {
    for (const Rule &rule : rules())
        if (rule.id == id) return rule;
    std::vector<std::string> known;
    for (const Rule &rule : rules()) known.push_back(cat(rule.id, " (", rule.name, ")"));
    fail_invalid("optimizer is ", id, "; expected one of ", join_list(known));
}

Hyper default_hyper(const Rule &rule) {
    Hyper hyper;
    for (const HyperSpec &spec : rule.hypers) hyper.push_back(spec.value);
    return hyper;
}

size_t hyper_index(const Rule &rule, const std::string &name) {
    std::vector<std::string> known;
    for (size_t i = 0; i < rule.hypers.size(); i++) {
        if (name == rule.hypers[i].name) return i;
        known.emplace_back(rule.hypers[i].name);
    }
    fail_invalid("\"", name, "\" is no hyper-parameter of ", rule.name, "; known are ", join_list(known));
}

Hyper with_hyper(const Rule &rule, Hyper base, const ujoin_hyper *pairs, size_t count) {
    if (count != 0 && !pairs) fail_invalid("hyper is NULL, but hyper_count is ", count);
    std::vector<bool> given(base.size());
    for (size_t i = 0; i < count; i++) {
        if (!pairs[i].name) fail_invalid("hyper[", i, "].name is NULL");
        const size_t place = hyper_index(rule, pairs[i].name);
        if (given[place]) fail_invalid("hyper-parameter \"", pairs[i].name, "\" is given twice");
        given[place] = true;
        base[place] = pairs[i].value;
    }
    check_hyper(rule, base);
    return base;
}

void check_hyper(const Rule &rule, const Hyper &hyper) {
    for (size_t i = 0; i < hyper.size(); i++) {
        const HyperSpec &spec = rule.hypers[i];
        if (!std::isfinite(hyper[i])) fail_invalid(spec.name, " is ", hyper[i], "; it must be a finite number");
        if (spec.flag && hyper[i] != 0 && hyper[i] != 1) fail_invalid(spec.name, " is ", hyper[i], "; expected 0 or 1");
    }
    if (rule.id == UJOIN_OPTIMIZER_SGD) {
        at_least_zero("lr", hyper[sgd_lr]);
        at_least_zero("momentum", hyper[sgd_momentum]);
        at_least_zero("weight_decay", hyper[sgd_weight_decay]);
        if (hyper[sgd_nesterov] != 0 && (hyper[sgd_momentum] <= 0 || hyper[sgd_dampening] != 0))
            fail_invalid("nesterov needs a momentum above 0 and a dampening of 0; momentum is ", hyper[sgd_momentum],
                         ", dampening is ", hyper[sgd_dampening]);
    } else {
        at_least_zero("lr", hyper[adam_lr]);
        below_one("beta1", hyper[adam_beta1]);
        below_one("beta2", hyper[adam_beta2]);
        at_least_zero("eps", hyper[adam_eps]);
        at_least_zero("weight_decay", hyper[adam_weight_decay]);
    }
}

} // namespace ujoin::optim
