// SPDX-License-Identifier: Apache-2.0
#include "zero/custom_rule.hpp"
#include "base/callback.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include <algorithm>

namespace ujoin {
namespace {

/// A name becomes a part of the names in saved files.
std::string read_name(const char *name, const std::string &what) {
    if (!name || !*name) fail_invalid(what, " is ", name ? "empty" : "NULL");
    const std::string text = name;
    if (text.find('/') != std::string::npos) fail_invalid(what, " is \"", text, "\"; a name cannot have a slash");
    return text;
}

optim::Rule describe(const ujoin_rule &given) {
    optim::Rule rule;
    rule.id = UJOIN_OPTIMIZER_CUSTOM;
    rule.name = read_name(given.name, "options.rule.name");
    rule.counts_steps = true;
    if (given.per_tensor != 0 && given.per_tensor != 1)
        fail_invalid("options.rule.per_tensor is ", given.per_tensor, "; expected 0 or 1");
    if (given.reserved != 0) fail_invalid("options.rule.reserved is not 0");
    rule.per_tensor = given.per_tensor == 1;
    if (given.state_count > optim::max_states)
        fail_invalid("options.rule.state_count is ", given.state_count, "; at most ", optim::max_states, " are possible");
    if (given.state_count != 0 && !given.state_names)
        fail_invalid("options.rule.state_names is NULL, but state_count is ", given.state_count);
    for (size_t i = 0; i < given.state_count; i++) {
        const std::string name = read_name(given.state_names[i], cat("options.rule.state_names[", i, "]"));
        if (name == "step" || name == "master" || std::count(rule.states.begin(), rule.states.end(), name) != 0)
            fail_invalid("options.rule.state_names[", i, "] is \"", name, "\", which is taken");
        rule.states.push_back(name);
    }
    if (given.hyper_count != 0 && !given.hyper)
        fail_invalid("options.rule.hyper is NULL, but hyper_count is ", given.hyper_count);
    for (size_t i = 0; i < given.hyper_count; i++) {
        const std::string name = read_name(given.hyper[i].name, cat("options.rule.hyper[", i, "].name"));
        for (const optim::HyperSpec &other : rule.hypers)
            if (other.name == name) fail_invalid("options.rule.hyper has \"", name, "\" twice");
        rule.hypers.push_back({name, given.hyper[i].value});
    }
    return rule;
}

} // namespace

CustomRule::CustomRule(const ujoin_rule &rule, Release user_data)
    : user_data_(std::move(user_data)), rule_(describe(rule)), step_(rule.step), init_(rule.init),
      argument_(rule.user_data) {
    if (!step_) fail_invalid("options.rule.step is NULL");
}

void CustomRule::update(const ZeroParam &param, size_t index, const optim::Hyper &hyper,
                        const optim::Update &update) const {
    const ujoin_dtype type = optim::arithmetic_dtype(update.dtype);
    const bool as_is = update.grad_dtype == type && update.unscale == 1 && update.clip == 1;
    std::vector<std::byte> gradient(as_is ? 0 : update.count * dtype_size(type));
    std::vector<float> values;
    ujoin_rule_args args{};
    args.size = sizeof args;
    args.name = param.name.c_str();
    args.grad = update.grad;
    if (!as_is) {
        optim::read_gradient(update, gradient.data());
        args.grad = gradient.data();
    }
    args.data = update.param;
    if (update.dtype != type) args.data = optim::read_values(update, values);
    args.state = update.states;
    args.hyper = hyper.data();
    args.shape = param.shape.data();
    args.count = update.count;
    args.offset = update.offset;
    args.param = index;
    args.step = update.step;
    args.ndim = static_cast<int32_t>(param.shape.size());
    args.group = param.group;
    args.dtype = type;
    if (update.first && init_) call(init_, "init", args);
    call(step_, "step", args);
    if (update.dtype != type) optim::write_values(update, static_cast<const float *>(args.data));
}

void CustomRule::call(ujoin_rule_fn fn, const char *what, const ujoin_rule_args &args) const {
    const ujoin_status status = call_program([&] { return fn(argument_, &args); });
    if (status >= 0) return;
    const std::string cause = last_error().text;
    fail(UJOIN_E_CALLBACK, what, " of rule \"", rule_.name, "\" failed on parameter \"", args.name,
         "\": ", cause.empty() ? status_name(status) : cause);
}

} // namespace ujoin
