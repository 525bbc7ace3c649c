// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "base/deadline.hpp"
#include "ujoin.h"
#include "zero/checkpoint.hpp"
#include "zero/together.hpp"
#include "zero/zero.hpp"
#include <cstddef>

using namespace ujoin;

namespace {

/// The notice is owed from the call on, also when the other options are wrong.
Release take_release(const ujoin_zero_options *options) {
    constexpr size_t needed = offsetof(ujoin_zero_options, release_data) + sizeof(void *);
    if (!options || options->size < needed) return {};
    return {options->release, options->release_data};
}

SaveRequest read_request(const char *path, const ujoin_save_options *given, bool saving) {
    const ujoin_save_options options = api::read_options(given, "options");
    SaveRequest request;
    if (!path || !*path) fail_invalid("path is ", path ? "empty" : "NULL");
    request.path = path;
    if ((options.parts & ~(UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS)) != 0)
        fail_invalid("options.parts is ", options.parts, "; expected bits of ujoin_save_part");
    if (options.parts != 0) request.parts = options.parts;
    request.sync = !api::flag(options.no_sync, "options.no_sync");
    if (!saving || !options.extra) return request;
    request.extra = *api::use(options.extra, "options.extra");
    for (size_t i = 0; i < request.extra.count(); i++)
        if (request.extra.at(i).owner != UJOIN_ITEM_OF_PROGRAM)
            fail_invalid("options.extra has an item \"", request.extra.at(i).key, "\" that is not the program's own");
    if (request.extra.count() != 0 && (request.parts & UJOIN_SAVE_STATE) == 0)
        fail_invalid("options.extra is only saved with UJOIN_SAVE_STATE");
    return request;
}

/// Runs `body`; an error that names no rank yet gets this one's.
template <class Body> auto on_rank(int32_t rank, Body &&body) {
    try {
        return body();
    } catch (Error &error) {
        if (error.text().find("rank ") == std::string::npos) error.in(cat("rank ", rank));
        throw;
    }
}

/// The body of a function of an optimizer.
template <class Body> ujoin_status call(const char *where, const ujoin_zero *zero, Body &&body) {
    return api::guard(where, [&] {
        const std::shared_ptr<Zero> &object = api::use(zero, "zero");
        return on_rank(object->group().rank(), [&] { return body(*object); });
    });
}

/// The options are read on every rank before one of them is told that they are wrong.
std::shared_ptr<Zero> create(const std::shared_ptr<Group> &group, ujoin_optimizer optimizer,
                             const ujoin_zero_options *options, bool has_out, Release release) {
    std::shared_ptr<Zero> zero;
    together(*group, [&] {
        if (!has_out) fail_invalid("out is NULL");
        const ujoin_zero_options read = api::read_options(options, "options");
        const optim::Rule &rule = optim::find_rule(optimizer);
        optim::Hyper defaults = optim::with_hyper(rule, optim::default_hyper(rule), read.hyper, read.hyper_count);
        const int64_t idle = duration_option(read.idle_timeout_ms, UJOIN_NEVER, "options.idle_timeout_ms");
        zero = std::make_shared<Zero>(group, rule, std::move(defaults), idle, std::move(release));
    });
    return zero;
}

} // namespace

ujoin_status zero_create(ujoin_group *group, ujoin_optimizer optimizer, const ujoin_param *params, size_t count,
                         const ujoin_zero_options *options, ujoin_zero **out) {
    return api::guard("zero_create", [&] {
        if (out) *out = nullptr;
        Release release = take_release(options);
        const std::shared_ptr<Group> &members = api::use(group, "group");
        on_rank(members->rank(), [&] {
            std::shared_ptr<Zero> zero = create(members, optimizer, options, out != nullptr, std::move(release));
            zero->add_param_group(params, count, nullptr, 0);
            std::shared_ptr<Joinable> joinable = zero->joinable();
            *out = new ujoin_zero(std::move(zero), std::move(joinable));
        });
    });
}

ujoin_joinable *zero_joinable(ujoin_zero *zero) {
    return api::guard_value<ujoin_joinable *>("zero_joinable", nullptr, [&] {
        api::use(zero, "zero");
        return &zero->joinable;
    });
}

ujoin_status zero_step(ujoin_zero *zero, const ujoin_step_options *options) {
    return call("zero_step", zero, [&](Zero &object) {
        const ujoin_step_options read = api::read_options(options, "options");
        return object.step(read.closure, read.closure_data);
    });
}

ujoin_status zero_add_param_group(ujoin_zero *zero, const ujoin_param *params, size_t count, const ujoin_hyper *hyper,
                                  size_t hyper_count) {
    return call("zero_add_param_group", zero,
                [&](Zero &object) { object.add_param_group(params, count, hyper, hyper_count); });
}

size_t zero_group_count(const ujoin_zero *zero) {
    return api::guard_value<size_t>("zero_group_count", 0, [&] { return api::use(zero, "zero")->layout().hypers.size(); });
}

const char *zero_hyper_name(const ujoin_zero *zero, size_t index) {
    return api::guard_value<const char *>("zero_hyper_name", nullptr, [&]() -> const char * {
        const std::vector<optim::HyperSpec> &specs = api::use(zero, "zero")->layout().rule->hypers;
        return index < specs.size() ? specs[index].name : nullptr;
    });
}

ujoin_status zero_set_hyper(ujoin_zero *zero, int32_t group, const char *name, double value) {
    return call("zero_set_hyper", zero, [&](Zero &object) {
        if (!name) fail_invalid("name is NULL");
        object.set_hyper(group, name, value);
    });
}

ujoin_status zero_get_hyper(const ujoin_zero *zero, int32_t group, const char *name, double *out_value) {
    return call("zero_get_hyper", zero, [&](const Zero &object) {
        if (!name) fail_invalid("name is NULL");
        if (!out_value) fail_invalid("out_value is NULL");
        *out_value = object.get_hyper(group, name);
    });
}

ujoin_status zero_set_gradient(ujoin_zero *zero, size_t index, void *grad) {
    return call("zero_set_gradient", zero, [&](Zero &object) { object.set_gradient(index, grad); });
}

ujoin_status zero_clear_gradients(ujoin_zero *zero) {
    return call("zero_clear_gradients", zero, [&](Zero &object) { object.clear_gradients(); });
}

ujoin_status zero_consolidate_state_dict(ujoin_zero *zero, int32_t to) {
    return call("zero_consolidate_state_dict", zero, [&](Zero &object) { object.consolidate(to); });
}

ujoin_status zero_state_dict(ujoin_zero *zero, ujoin_state **out) {
    if (out) *out = nullptr;
    return call("zero_state_dict", zero, [&](const Zero &object) {
        api::begin_out(out);
        api::give(out, object.state_dict());
    });
}

ujoin_status zero_load_state_dict(ujoin_zero *zero, const ujoin_state *state) {
    return call("zero_load_state_dict", zero,
                [&](Zero &object) { object.load_list(state ? api::use(state, "state").get() : nullptr); });
}

ujoin_status zero_save(ujoin_zero *zero, const char *path, const ujoin_save_options *options) {
    return call("zero_save", zero, [&](Zero &object) {
        object.check_whole("a save");
        SaveRequest request;
        together(object.group(), [&] { request = read_request(path, options, true); });
        save_checkpoint(object, request);
    });
}

ujoin_status zero_load(ujoin_zero *zero, const char *path, const ujoin_save_options *options, ujoin_state **out) {
    if (out) *out = nullptr;
    return call("zero_load", zero, [&](Zero &object) {
        SaveRequest request;
        together(object.group(), [&] { request = read_request(path, options, false); });
        State extra = load_checkpoint(object, request);
        if (out) api::give(out, std::make_shared<State>(std::move(extra)));
    });
}

size_t zero_shard_count(const ujoin_zero *zero) {
    return api::guard_value<size_t>("zero_shard_count", 0,
                                    [&] { return api::use(zero, "zero")->layout().partition.pieces().size(); });
}

ujoin_status zero_get_shard(const ujoin_zero *zero, size_t index, ujoin_shard *out) {
    return call("zero_get_shard", zero, [&](const Zero &object) {
        const std::vector<Piece> &pieces = object.layout().partition.pieces();
        if (index >= pieces.size()) fail_invalid("index is ", index, "; there are ", pieces.size(), " pieces");
        ujoin_shard shard{};
        shard.param = pieces[index].param;
        shard.offset = pieces[index].offset;
        shard.count = pieces[index].count;
        shard.rank = pieces[index].rank;
        shard.group = pieces[index].group;
        api::write_struct(out, shard, "out");
    });
}

void zero_destroy(ujoin_zero *zero) { api::drop(zero); }
