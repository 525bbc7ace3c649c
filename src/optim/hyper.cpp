// SPDX-License-Identifier: Apache-2.0
#include "optim/hyper.hpp"
#include "base/error.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

/// Never destroyed: at the end of the process threads of the program may still be in here.
const std::vector<Rule> &rules() {
    static const auto *list =
        new std::vector<Rule>{sgd_rule(),    adam_rule(),  adamw_rule(), adagrad_rule(), rmsprop_rule(), adadelta_rule(),
                              adamax_rule(), nadam_rule(), radam_rule(), rprop_rule(),   lamb_rule(),    lion_rule()};
    return *list;
}

} // namespace

const Rule &find_rule(ujoin_optimizer id) {
    for (const Rule &rule : rules())
        if (rule.id == id) return rule;
    std::vector<std::string> known{cat(UJOIN_OPTIMIZER_CUSTOM, " (custom)")};
    for (const Rule &rule : rules()) known.push_back(cat(rule.id, " (", rule.name, ")"));
    fail_invalid("optimizer is ", id, "; expected one of ", join_list(known));
}

std::shared_ptr<const Rule> shared_rule(ujoin_optimizer id) { return {std::shared_ptr<void>(), &find_rule(id)}; }

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
    if (rule.check) rule.check(hyper);
}

void at_least_zero(const char *name, double value) {
    if (!(value >= 0)) fail_invalid(name, " is ", value, "; it must be 0 or more");
}

void below_one(const char *name, double value) {
    if (!(value >= 0 && value < 1)) fail_invalid(name, " is ", value, "; it must be at least 0 and less than 1");
}

void check_like_adam(const Hyper &hyper) {
    at_least_zero("lr", hyper[0]);
    below_one("beta1", hyper[1]);
    below_one("beta2", hyper[2]);
    at_least_zero("eps", hyper[3]);
    at_least_zero("weight_decay", hyper[4]);
}

} // namespace ujoin::optim
