// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "ddp/reducer.hpp"
#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>

using namespace ujoin;

namespace {

/// The release notice of the options, which is owed whatever else is wrong with the call.
Release release_of(const ujoin_ddp_options *options) {
    constexpr size_t end = offsetof(ujoin_ddp_options, release_data) + sizeof(void *);
    if (!options || options->size < end) return {};
    return {options->release, options->release_data};
}

/// Elements by `shape`, which becomes text, or by `count`.
size_t elements_of(const ujoin_param &param, const std::string &where, std::string &shape) {
    if (param.ndim < 0) fail_invalid(where, ".ndim is ", param.ndim, "; expected 0 or more");
    if (!param.shape) {
        if (param.ndim > 1) fail_invalid(where, ".shape is NULL, but ndim is ", param.ndim);
        shape = cat('[', param.count, ']');
        return param.count;
    }
    size_t product = 1;
    std::vector<std::string> parts;
    for (int32_t d = 0; d < param.ndim; d++) {
        const int64_t extent = param.shape[d];
        if (extent < 0) fail_invalid(where, ".shape[", d, "] is ", extent, "; expected 0 or more");
        if (__builtin_mul_overflow(product, static_cast<size_t>(extent), &product))
            fail_invalid(where, ".shape has more elements than memory can hold");
        parts.push_back(std::to_string(extent));
    }
    shape = cat('[', join_list(parts), ']');
    if (param.count != 0 && param.count != product)
        fail_invalid(where, ".count is ", param.count, ", but its shape ", shape, " has ", product, " elements");
    return product;
}

GradParam read_param(const ujoin_param &param, size_t index, bool needs_gradient) {
    GradParam result;
    result.name = param.name ? std::string(param.name) : std::to_string(index);
    const std::string where = cat("params[", index, "] (\"", result.name, "\")");
    if (param.device != UJOIN_DEVICE_HOST)
        fail(UJOIN_E_UNSUPPORTED, where, ".device is ", param.device, "; this version has host memory (0) only");
    if ((param.flags & ~(UJOIN_PARAM_IGNORED | UJOIN_PARAM_FROZEN)) != 0)
        fail_invalid(where, ".flags is ", param.flags, "; expected bits of ujoin_param_flag");
    if (param.reserved[0] != 0 || param.reserved[1] != 0) fail_invalid(where, ".reserved is not 0");
    if (param.flags & UJOIN_PARAM_IGNORED) {
        result.ignored = true;
        return result;
    }
    if (!dtype_known(param.dtype))
        fail_invalid(where, ".dtype is ", param.dtype, "; expected a value of ujoin_dtype_value");
    if (!dtype_is_float(param.dtype))
        fail_invalid(where, ".dtype is ", dtype_name(param.dtype), "; a parameter to train is f32, f64, f16 or bf16");
    if (param.grad_dtype != 0 && param.grad_dtype != param.dtype)
        fail_invalid(where, ".grad_dtype is ", dtype_name(param.grad_dtype), ", but its dtype is ", dtype_name(param.dtype),
                     "; they must be equal");
    result.elements = elements_of(param, where, result.shape);
    if (result.elements > std::numeric_limits<size_t>::max() / 2 / dtype_size(param.dtype))
        fail_invalid(where, " has ", result.elements, " elements, more than memory can hold");
    if (result.elements != 0 && !param.data) fail_invalid(where, ".data is NULL");
    if (result.elements != 0 && !param.grad && needs_gradient)
        fail_invalid(where, ".grad is NULL; each parameter needs memory for its gradient, or use bucket_view");
    if (param.shape && param.ndim > 1 && result.elements != 0) result.rows = static_cast<size_t>(param.shape[0]);
    result.data = param.data;
    result.grad = param.grad;
    result.dtype = param.dtype;
    return result;
}

std::vector<GradParam> read_params(const ujoin_param *params, size_t count, bool need_gradients) {
    if (count == 0) fail_invalid("count is 0; there is nothing to train");
    if (!params) fail_invalid("params is NULL");
    std::vector<GradParam> result;
    std::set<std::string> names;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        result.push_back(read_param(params[i], i, need_gradients));
        if (!names.insert(result.back().name).second)
            fail_invalid("params[", i, "].name is \"", result.back().name,
                         "\", the name of an earlier one too; names are unique");
        any = any || result.back().elements != 0;
    }
    if (!any) fail_invalid("no parameter has elements; there is nothing to train");
    return result;
}

std::vector<ujoin_buffer> read_buffers(const ujoin_buffer *buffers, size_t count) {
    if (count != 0 && !buffers) fail_invalid("buffers is NULL, buffer_count is ", count);
    for (size_t i = 0; i < count; i++) {
        const ujoin_buffer &buffer = buffers[i];
        const std::string where = cat("buffers[", i, "]");
        if (buffer.device != UJOIN_DEVICE_HOST)
            fail(UJOIN_E_UNSUPPORTED, where, ".device is ", buffer.device, "; this version has host memory (0) only");
        if (buffer.reserved != 0) fail_invalid(where, ".reserved is not 0");
        if (!dtype_known(buffer.dtype))
            fail_invalid(where, ".dtype is ", buffer.dtype, "; expected a value of ujoin_dtype_value");
        if (buffer.count != 0 && !buffer.data) fail_invalid(where, ".data is NULL");
        if (buffer.count > std::numeric_limits<size_t>::max() / 2 / dtype_size(buffer.dtype))
            fail_invalid(where, " has ", buffer.count, " elements, more than memory can hold");
    }
    return {buffers, buffers + count};
}

DdpConfig read_config(const Group &group, const ujoin_param *params, size_t count, const ujoin_ddp_options *given) {
    const ujoin_ddp_options options = api::read_options(given, "ujoin_ddp_options");
    DdpConfig config;
    config.division = api::choice(options.division, UJOIN_DIVISION_INITIAL, UJOIN_DIVISION_SAMPLES, "division");
    config.gradient_kind = api::choice(options.gradient_kind, UJOIN_GRADIENT_MEAN, UJOIN_GRADIENT_SUM, "gradient_kind");
    config.to_owner = api::choice(options.gradient_sync, UJOIN_GRADIENT_SYNC_ALL, UJOIN_GRADIENT_SYNC_TO_OWNER,
                                  "gradient_sync") == UJOIN_GRADIENT_SYNC_TO_OWNER;
    config.find_unused = api::flag(options.find_unused, "find_unused");
    config.static_graph = api::flag(options.static_graph, "static_graph");
    config.bucket_view = api::flag(options.bucket_view, "bucket_view");
    config.buffer_broadcast = !api::flag(options.no_buffer_broadcast, "no_buffer_broadcast");
    config.initial_broadcast = !api::flag(options.no_initial_broadcast, "no_initial_broadcast");
    config.source_rank = options.source_rank;
    if (config.source_rank < 0 || config.source_rank >= group.size())
        fail_invalid("source_rank is ", config.source_rank, "; the group has ranks 0 to ", group.size() - 1);
    if (options.bucket_bytes != 0) config.bucket_bytes = options.bucket_bytes;
    config.first_bucket_bytes = std::min(config.first_bucket_bytes, config.bucket_bytes);
    if (options.first_bucket_bytes != 0) config.first_bucket_bytes = options.first_bucket_bytes;
    config.idle_timeout_ms = duration_option(options.idle_timeout_ms, -1, "idle_timeout_ms");
    config.params_released = api::flag(options.params_released_on_ready, "params_released_on_ready");
    config.buffers = read_buffers(options.buffers, options.buffer_count);
    config.params = read_params(params, count, !config.bucket_view);
    return config;
}

} // namespace

ujoin_status ujoin_ddp_create(ujoin_group *group, const ujoin_param *params, size_t count, const ujoin_ddp_options *options,
                              ujoin_ddp **out) {
    return api::guard("ujoin_ddp_create", [&] {
        Release release = release_of(options);
        if (out) *out = nullptr;
        const std::shared_ptr<Group> &g = api::use(group, "group");
        DdpConfig config;
        std::optional<Error> local; // kept until the other ranks know of it: they are in this call too
        try {
            api::begin_out(out);
            config = read_config(*g, params, count, options);
        } catch (Error &error) {
            local = error.in(cat("rank ", g->rank()));
        } catch (const std::bad_alloc &) {
            local = Error(UJOIN_E_NO_MEMORY, "out of memory");
        }
        std::shared_ptr<Ddp> ddp = Ddp::create(g, config, std::move(local), std::move(release));
        std::shared_ptr<Joinable> joinable = ddp->joinable();
        *out = new ujoin_ddp(std::move(ddp), std::move(joinable));
    });
}

ujoin_joinable *ujoin_ddp_joinable(ujoin_ddp *ddp) {
    return api::guard_value<ujoin_joinable *>("ujoin_ddp_joinable", nullptr, [&] {
        api::use(ddp, "ddp");
        return &ddp->joinable;
    });
}

ujoin_status ujoin_ddp_forward(ujoin_ddp *ddp, double samples) {
    return api::guard("ujoin_ddp_forward", [&] { return api::use(ddp, "ddp")->forward(samples); });
}

ujoin_status ujoin_ddp_ready(ujoin_ddp *ddp, size_t index) {
    return api::guard("ujoin_ddp_ready", [&] { api::use(ddp, "ddp")->ready(index); });
}

ujoin_status ujoin_ddp_finish(ujoin_ddp *ddp) {
    return api::guard("ujoin_ddp_finish", [&] { api::use(ddp, "ddp")->finish(); });
}

ujoin_status ujoin_ddp_set_sync(ujoin_ddp *ddp, int32_t enabled) {
    return api::guard("ujoin_ddp_set_sync", [&] { api::use(ddp, "ddp")->set_sync(api::flag(enabled, "enabled")); });
}

void *ujoin_ddp_gradient(ujoin_ddp *ddp, size_t index) {
    return api::guard_value<void *>("ujoin_ddp_gradient", nullptr, [&] { return api::use(ddp, "ddp")->gradient(index); });
}

size_t ujoin_ddp_used(const ujoin_ddp *ddp, int32_t *out_ranks, size_t capacity) {
    return api::guard_value<size_t>("ujoin_ddp_used", 0, [&] {
        const std::shared_ptr<Ddp> &of = api::use(ddp, "ddp");
        if (capacity > 0 && !out_ranks) fail_invalid("out_ranks is NULL, capacity is ", capacity);
        const std::vector<int32_t> used = of->used();
        std::copy_n(used.begin(), std::min(capacity, used.size()), out_ranks);
        return used.size();
    });
}

ujoin_status ujoin_ddp_get_report(const ujoin_ddp *ddp, ujoin_ddp_report *out) {
    return api::guard("ujoin_ddp_get_report", [&] { api::write_struct(out, api::use(ddp, "ddp")->report(), "out"); });
}

void ujoin_ddp_destroy(ujoin_ddp *ddp) { api::drop(ddp); }
