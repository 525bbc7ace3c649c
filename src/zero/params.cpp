// SPDX-License-Identifier: Apache-2.0
#include "zero/params.hpp"
#include "base/dtype.hpp"
#include "zero/state.hpp"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

namespace ujoin {
namespace {

std::string place(size_t index) { return cat("params[", index, "]"); }

void read_type(const ujoin_param &given, const std::string &where, ZeroParam &param) {
    if (!dtype_known(given.dtype))
        fail_invalid(where, ".dtype is ", given.dtype, "; expected a value of ujoin_dtype_value");
    if (!dtype_is_float(given.dtype))
        fail_invalid(where, ".dtype is ", dtype_name(given.dtype), "; an optimizer needs f32, f64, f16 or bf16");
    if (given.grad_dtype != 0 && !dtype_is_float(given.grad_dtype))
        fail_invalid(where, ".grad_dtype is ", given.grad_dtype,
                     "; expected f32, f64, f16 or bf16, or 0 for the parameter's");
    if (given.device != UJOIN_DEVICE_HOST)
        fail(UJOIN_E_UNSUPPORTED, where, ".device is ", given.device, "; this version has only the host (0)");
    if ((given.flags & ~(UJOIN_PARAM_FROZEN | UJOIN_PARAM_IGNORED)) != 0)
        fail_invalid(where, ".flags is ", given.flags, "; expected bits of ujoin_param_flag");
    if (given.reserved[0] != 0 || given.reserved[1] != 0) fail_invalid(where, ".reserved is not 0");
    param.dtype = given.dtype;
    param.grad_dtype = given.grad_dtype != 0 ? given.grad_dtype : given.dtype;
    param.frozen = (given.flags & UJOIN_PARAM_FROZEN) != 0;
}

void read_shape(const ujoin_param &given, const std::string &where, ZeroParam &param) {
    if (given.ndim < 0 || given.ndim > max_dimensions)
        fail_invalid(where, ".ndim is ", given.ndim, "; expected 0 to ", max_dimensions);
    if (!given.shape && given.ndim != 0) fail_invalid(where, ".shape is NULL, but ndim is ", given.ndim);
    if (given.shape) {
        param.shape.assign(given.shape, given.shape + given.ndim);
    } else {
        if (given.count > INT64_MAX) fail_invalid(where, ".count is ", given.count, ": too large");
        param.shape = {static_cast<int64_t>(given.count)};
    }
    param.count = shape_count(param.shape.data(), param.shape.size(), dtype_size(param.dtype), where + ".shape");
    param.bytes = param.count * dtype_size(param.dtype);
    if (given.count != 0 && given.count != param.count)
        fail_invalid(where, ".count is ", given.count, ", but its shape ", shape_text(param.shape), " has ", param.count,
                     " elements");
}

bool aligned(const void *data, ujoin_dtype dtype) { return reinterpret_cast<uintptr_t>(data) % dtype_size(dtype) == 0; }

void read_memory(const ujoin_param &given, const std::string &where, ZeroParam &param) {
    if (!given.data && param.count != 0) fail_invalid(where, ".data is NULL, but it has ", param.count, " elements");
    if (!aligned(given.data, param.dtype))
        fail_invalid(where, ".data is not aligned to the ", dtype_size(param.dtype), " bytes of ", dtype_name(param.dtype));
    param.data = param.home = static_cast<std::byte *>(given.data);
    check_gradient(param, given.grad);
    param.grad = given.grad;
}

/// Two parameters in one memory would be stepped twice, by two ranks.
void check_overlap(const std::vector<ZeroParam> &known, const std::vector<ZeroParam> &added) {
    std::vector<const ZeroParam *> order;
    for (const std::vector<ZeroParam> *list : {&known, &added})
        for (const ZeroParam &param : *list)
            if (param.bytes != 0) order.push_back(&param);
    std::sort(order.begin(), order.end(), [](const ZeroParam *a, const ZeroParam *b) { return a->home < b->home; });
    for (size_t i = 1; i < order.size(); i++)
        if (order[i - 1]->home + order[i - 1]->bytes > order[i]->home)
            fail_invalid("parameters \"", order[i - 1]->name, "\" and \"", order[i]->name, "\" share memory; give it once");
}

std::string read_text(const std::string &text, size_t &at) {
    uint64_t size = 0;
    if (text.size() - at < sizeof size) fail(UJOIN_E_INTERNAL, "facts of a rank end early");
    std::memcpy(&size, text.data() + at, sizeof size);
    at += sizeof size;
    if (text.size() - at < size) fail(UJOIN_E_INTERNAL, "facts of a rank end early");
    at += size;
    return text.substr(at - size, size);
}

std::string pack(const Facts &facts) {
    std::string text;
    const auto add = [&](const std::string &part) {
        const uint64_t size = part.size();
        text.append(reinterpret_cast<const char *>(&size), sizeof size);
        text += part;
    };
    for (const auto &[label, value] : facts) {
        add(label);
        add(value);
    }
    return text;
}

Facts unpack(const std::string &text) {
    Facts facts;
    for (size_t at = 0; at < text.size();) {
        std::string label = read_text(text, at);
        std::string value = read_text(text, at);
        facts.emplace_back(std::move(label), std::move(value));
    }
    return facts;
}

} // namespace

std::vector<ZeroParam> read_params(const ujoin_param *params, size_t count, const std::vector<ZeroParam> &known) {
    if (count == 0 && known.empty()) fail_invalid("no parameters: count is 0");
    if (!params && count != 0) fail_invalid("params is NULL, but count is ", count);
    std::unordered_map<std::string, size_t> index_by_name;
    for (size_t i = 0; i < known.size(); i++) index_by_name.emplace(known[i].name, i);
    std::vector<ZeroParam> list(count);
    for (size_t i = 0; i < count; i++) {
        const std::string where = place(i);
        ZeroParam &param = list[i];
        param.name = params[i].name ? params[i].name : cat(known.size() + i);
        if (param.name.empty()) fail_invalid(where, ".name is empty; NULL stands for its index");
        read_type(params[i], where, param);
        read_shape(params[i], where, param);
        read_memory(params[i], where, param);
        const auto [other, added] = index_by_name.emplace(param.name, known.size() + i);
        if (!added)
            fail_invalid("parameters ", other->second, " and ", known.size() + i, " have the same name, \"", param.name,
                         '"');
    }
    check_overlap(known, list);
    return list;
}

void check_gradient(const ZeroParam &param, const void *grad) {
    if (!aligned(grad, param.grad_dtype))
        fail_invalid("the gradient of \"", param.name, "\" is not aligned to the ", dtype_size(param.grad_dtype),
                     " bytes of ", dtype_name(param.grad_dtype));
}

size_t ZeroParam::grad_bytes() const { return count * dtype_size(grad_dtype); }

std::byte *ZeroParam::data_at(size_t element) const { return data + element * dtype_size(dtype); }

const void *ZeroParam::grad_at(size_t element) const {
    return static_cast<const std::byte *>(grad) + element * dtype_size(grad_dtype);
}

std::vector<int64_t> piece_shape(const ZeroParam &param, size_t count) {
    return count == param.count ? param.shape : std::vector<int64_t>{static_cast<int64_t>(count)};
}

std::string number_text(double value) {
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        std::snprintf(text, sizeof text, "%.*g", digits, value);
        if (std::strtod(text, nullptr) == value) break;
    }
    return text;
}

void add_facts(const std::vector<ZeroParam> &params, size_t first_index, Facts &facts) {
    facts.emplace_back("number of parameters", cat(params.size()));
    for (size_t i = 0; i < params.size(); i++)
        facts.emplace_back(cat("parameter ", first_index + i),
                           cat('"', params[i].name, "\" ", dtype_name(params[i].dtype), ' ', shape_text(params[i].shape),
                               params[i].frozen ? " frozen" : ""));
}

void check_same(Group &group, const Facts &facts, const Deadline &deadline) {
    const std::vector<std::string> all = group.exchange(pack(facts), deadline);
    const auto differs = std::find_if(all.begin(), all.end(), [&](const std::string &other) { return other != all[0]; });
    if (differs == all.end()) return;
    const auto rank = static_cast<int32_t>(differs - all.begin());
    const Facts first = unpack(all[0]);
    const Facts other = unpack(*differs);
    size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) i++;
    const std::pair<std::string, std::string> nothing{"", "nothing"};
    const auto &a = i < first.size() ? first[i] : nothing;
    const auto &b = i < other.size() ? other[i] : nothing;
    Error error(UJOIN_E_MISMATCH, cat("ranks differ in ", a.first.empty() ? b.first : a.first, ": rank 0 has ", a.second,
                                      ", rank ", rank, " has ", b.second));
    throw error.with_ranks({0, rank});
}

} // namespace ujoin
