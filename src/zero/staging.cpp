// SPDX-License-Identifier: Apache-2.0
#include "zero/staging.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "optim/convert.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace ujoin {
namespace {

/// A number that stands in a tensor of one element, as PyTorch keeps step counts.
double number_in(const StateItem &item) {
    if (item.kind == UJOIN_ITEM_NUMBER) return item.number;
    const auto read = [&](auto value) {
        std::memcpy(&value, item.data.data(), sizeof value);
        return static_cast<double>(value);
    };
    if (item.kind == UJOIN_ITEM_TENSOR && item.bytes == dtype_size(item.dtype)) {
        if (item.dtype == UJOIN_F32) return read(float{});
        if (item.dtype == UJOIN_F64) return read(double{});
        if (item.dtype == UJOIN_I64) return read(int64_t{});
    }
    fail(UJOIN_E_MISMATCH, '"', item.key, "\" of parameter \"", item.param, "\" is no number");
}

} // namespace

Staging::Staging(const Layout &layout)
    : hypers(layout.hypers), states(layout.params.size()), layout_(layout), taken_(layout.params.size()),
      has_step_(layout.params.size()), has_number_(layout.params.size()) {
    for (size_t i = 0; i < layout.params.size(); i++) index_by_name_.emplace(layout.params[i].name, i);
}

size_t Staging::find(const std::string &name) const {
    const auto found = index_by_name_.find(name);
    if (found == index_by_name_.end()) fail(UJOIN_E_MISMATCH, "the optimizer has no parameter \"", name, '"');
    return found->second;
}

void Staging::take_hyper(int64_t group, const std::string &name, double value) {
    if (group < 0 || static_cast<size_t>(group) >= hypers.size())
        fail(UJOIN_E_MISMATCH, "there is a param group ", group, ", but the optimizer has ", hypers.size());
    const std::vector<optim::HyperSpec> &specs = layout_.rule->hypers;
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const optim::HyperSpec &s) { return s.name == name; });
    if (spec == specs.end()) fail(UJOIN_E_MISMATCH, '"', name, "\" is no hyper-parameter of ", layout_.rule->name);
    hypers[static_cast<size_t>(group)][static_cast<size_t>(spec - specs.begin())] = value;
}

ReadTarget Staging::take_tensor(size_t index, const std::string &key, ujoin_dtype dtype, const std::vector<int64_t> &shape,
                                size_t offset, size_t count) {
    const ZeroParam &param = layout_.params[index];
    const std::vector<std::string> &names = layout_.state_names;
    const auto name = std::find(names.begin(), names.end(), key);
    if (name == names.end())
        fail(UJOIN_E_MISMATCH, '"', key, "\" of parameter \"", param.name, "\" is no state of ", layout_.rule->name);
    const std::vector<int64_t> expected = piece_shape(param, count);
    if (dtype != layout_.state_dtype(index) || shape != expected)
        fail(UJOIN_E_MISMATCH, '"', key, "\" of parameter \"", param.name, "\" is ", dtype_name(dtype), ' ',
             shape_text(shape), ", but the parameter's state is ", dtype_name(layout_.state_dtype(index)), ' ',
             shape_text(expected));
    const auto place = static_cast<size_t>(name - names.begin());
    ParamState &state = states[index];
    state.valid |= 1U << place;
    if (!layout_.owns(index)) return {};
    const Piece &own = layout_.own(index);
    state.tensors[place].resize(layout_.state_bytes(index, own.count));
    const size_t begin = std::max(offset, own.offset);
    const size_t end = std::min(offset + count, own.offset + own.count);
    if (begin >= end) return {};
    taken_[index][place] += end - begin;
    return {state.tensors[place].data() + layout_.state_bytes(index, begin - own.offset),
            layout_.state_bytes(index, begin - offset), layout_.state_bytes(index, end - begin)};
}

void Staging::take_step(size_t index, double value) {
    const std::string &name = layout_.params[index].name;
    if (!layout_.counts_steps())
        fail(UJOIN_E_MISMATCH, "\"step\" of parameter \"", name, "\" is no state of ", layout_.rule->name);
    if (!(value >= 0 && value <= 0x1p53) || value != std::floor(value))
        fail(UJOIN_E_MISMATCH, "\"step\" of parameter \"", name, "\" is ", value, "; it must be a whole number, 0 or more");
    const auto step = static_cast<int64_t>(value);
    if (has_step_[index] && states[index].step != step)
        fail(UJOIN_E_MISMATCH, "\"step\" of parameter \"", name, "\" is ", states[index].step, " for one piece of it and ",
             step, " for another");
    states[index].step = step;
    has_step_[index] = true;
}

void Staging::take_number(size_t index, double value) {
    if (!std::isfinite(value))
        fail(UJOIN_E_MISMATCH, '"', layout_.rule->number, "\" of parameter \"", layout_.params[index].name, "\" is ", value,
             "; it must be a finite number");
    states[index].number = value;
    has_number_[index] = true;
}

void Staging::take_list(const State &list) {
    int64_t groups = 0;
    for (size_t i = 0; i < list.count(); i++) {
        const StateItem &item = list.at(i);
        if (item.owner == UJOIN_ITEM_OF_GROUP) {
            if (item.kind != UJOIN_ITEM_NUMBER)
                fail(UJOIN_E_MISMATCH, "hyper-parameter \"", item.key, "\" of param group ", item.group, " is no number");
            take_hyper(item.group, item.key, item.number);
            groups = std::max<int64_t>(groups, int64_t{item.group} + 1);
        } else if (item.owner == UJOIN_ITEM_OF_PARAM) {
            take_param_item(find(item.param), item);
        }
    }
    if (groups != 0 && groups != static_cast<int64_t>(hypers.size()))
        fail(UJOIN_E_MISMATCH, "the list has ", groups, " param groups, the optimizer ", hypers.size());
}

/// Other ranks' parameters are checked like own ones, so that every rank gives the same answer; their data are left.
void Staging::take_param_item(size_t index, const StateItem &item) {
    if (item.key == "step") return take_step(index, number_in(item));
    if (!layout_.rule->number.empty() && item.key == layout_.rule->number) return take_number(index, number_in(item));
    if (item.kind != UJOIN_ITEM_TENSOR)
        fail(UJOIN_E_MISMATCH, '"', item.key, "\" of parameter \"", item.param, "\" is no tensor");
    // Other libraries keep the state of a 16-bit parameter in its own type.
    const ujoin_dtype own = layout_.state_dtype(index);
    const bool widen = own == UJOIN_F32 && item.dtype == layout_.params[index].dtype;
    const ReadTarget target =
        take_tensor(index, item.key, widen ? own : item.dtype, item.shape, 0, layout_.params[index].count);
    if (!target.data) return;
    if (widen) {
        optim::load(item.dtype, item.data.data(), target.skip / sizeof(float), target.bytes / sizeof(float),
                    static_cast<float *>(target.data));
    } else {
        std::memcpy(target.data, item.data.data() + target.skip, target.bytes);
    }
}

/// No part of a tensor is missing.
void Staging::check_whole(size_t index) const {
    for (size_t place = 0; place < layout_.state_names.size(); place++)
        if ((states[index].valid >> place & 1U) != 0 && taken_[index][place] != layout_.own(index).count)
            fail(UJOIN_E_MISMATCH, "a part of \"", layout_.state_names[place], "\" of parameter \"",
                 layout_.params[index].name, "\" is missing");
}

void Staging::check_state() {
    const optim::Rule &rule = *layout_.rule;
    for (size_t group = 0; group < hypers.size(); group++) {
        try {
            optim::check_hyper(rule, hypers[group]);
        } catch (const Error &error) {
            fail(UJOIN_E_MISMATCH, "param group ", group, ": ", error.text());
        }
    }
    for (size_t i = 0; i < states.size(); i++) {
        if (layout_.owns(i)) check_whole(i);
        const bool any = states[i].valid != 0 || has_step_[i];
        if (!any || !rule.counts_steps) continue;
        const std::string &name = layout_.params[i].name;
        if (!has_step_[i]) fail(UJOIN_E_MISMATCH, "parameter \"", name, "\" has state, but no \"step\"");
        if (!rule.number.empty() && !has_number_[i])
            fail(UJOIN_E_MISMATCH, "parameter \"", name, "\" has state, but no \"", rule.number, '"');
        const unsigned always = optim::needed_states(rule, optim::default_hyper(rule));
        for (size_t place = 0; place < rule.states.size(); place++)
            if ((always >> place & 1U) != 0 && (states[i].valid >> place & 1U) == 0)
                fail(UJOIN_E_MISMATCH, "parameter \"", name, "\" has state, but no \"", rule.states[place], '"');
    }
    for (size_t i = 0; i < states.size(); i++)
        if (!layout_.owns(i)) states[i] = ParamState{};
}

} // namespace ujoin
