// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "base/deadline.hpp"
#include "base/env.hpp"
#include "comm/together.hpp"
#include "ddp/reducer.hpp"
#include "ujoin.h"
#include "zero/checkpoint.hpp"
#include "zero/zero.hpp"
#include <cmath>
#include <cstddef>
#include <memory>

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

/// The rule's user_data is destroyed in any case, also if nothing else of the options can be used.
Release take_rule(const ujoin_zero_options *options) {
    constexpr size_t needed = offsetof(ujoin_zero_options, rule) + sizeof(void *);
    constexpr size_t rule_needed = offsetof(ujoin_rule, destroy) + sizeof(void *);
    if (!options || options->size < needed || !options->rule || options->rule->size < rule_needed) return {};
    return {options->rule->destroy, options->rule->user_data};
}

bool wants_detail() {
    const std::optional<std::string> value = env::text(env::Var::debug);
    return value && *value == "detail";
}

ZeroOptions read_partition(const ujoin_zero_options &given) {
    ZeroOptions options;
    options.balance_trainable = api::flag(given.balance_trainable, "options.balance_trainable");
    options.master_copies = !api::flag(given.no_master_copy, "options.no_master_copy");
    options.stochastic_rounding = api::flag(given.stochastic_rounding, "options.stochastic_rounding");
    options.seed = given.seed;
    options.partition =
        api::choice(given.partition, UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS, "options.partition");
    options.bucket_view = api::flag(given.bucket_view, "options.bucket_view");
    options.compare_values = wants_detail();
    if (options.stochastic_rounding && options.master_copies)
        fail_invalid("options.stochastic_rounding needs options.no_master_copy: a master copy is rounded to nearest");
    return options;
}

std::shared_ptr<Ddp> read_ddp(const std::shared_ptr<Group> &group, const ujoin_zero_options *options) {
    const ujoin_zero_options read = api::read_options(options, "options");
    if (!read.ddp) return nullptr;
    std::shared_ptr<Ddp> ddp = api::use(read.ddp, "options.ddp");
    if (ddp->group() != group) fail_invalid("options.ddp is a reducer of another group");
    ddp->check_attachable();
    return ddp;
}

ZeroConfig read_config(ujoin_optimizer optimizer, const ujoin_zero_options *options, Release rule_data) {
    const ujoin_zero_options read = api::read_options(options, "options");
    ZeroConfig config;
    if (optimizer == UJOIN_OPTIMIZER_CUSTOM) {
        if (!read.rule) fail_invalid("options.rule is NULL; UJOIN_OPTIMIZER_CUSTOM needs one");
        const ujoin_rule rule = api::read_options(read.rule, "options.rule");
        config.custom = std::make_shared<CustomRule>(rule, std::move(rule_data));
        config.rule = std::shared_ptr<const optim::Rule>(config.custom, &config.custom->rule());
    } else {
        if (read.rule) fail_invalid("options.rule is set, but the optimizer is not UJOIN_OPTIMIZER_CUSTOM");
        config.rule = optim::shared_rule(optimizer);
    }
    config.defaults = optim::with_hyper(*config.rule, optim::default_hyper(*config.rule), read.hyper, read.hyper_count);
    config.options = read_partition(read);
    config.idle_timeout_ms = duration_option(read.idle_timeout_ms, UJOIN_NEVER, "options.idle_timeout_ms");
    duration_option(read.consolidate_timeout_ms, 0, "options.consolidate_timeout_ms");
    config.consolidate_timeout_ms = read.consolidate_timeout_ms;
    return config;
}

/// The options are read on every rank before one of them is told that they are wrong.
std::shared_ptr<Zero> create(const std::shared_ptr<Group> &group, ujoin_optimizer optimizer, const ujoin_param *params,
                             size_t count, const ujoin_zero_options *options, bool has_out, Release release,
                             Release rule_data) {
    std::shared_ptr<Zero> zero;
    std::shared_ptr<Ddp> ddp;
    together(*group, [&] {
        if (!has_out) fail_invalid("out is NULL");
        ZeroConfig config = read_config(optimizer, options, std::move(rule_data));
        ddp = read_ddp(group, options);
        if (ddp) config.reduced = ddp->params();
        config.fused = ddp && ddp->to_owner();
        config.options.overlaps = ddp && !config.fused;
        config.options.fuses = config.fused;
        zero = std::make_shared<Zero>(group, std::move(config), std::move(release));
    });
    zero->add_param_group(params, count, nullptr, 0);
    if (ddp && ddp->to_owner()) zero->take_from(ddp);
    if (ddp) ddp->attach(zero);
    return zero;
}

double read_norm_type(double given, const char *name) {
    if (given == 0) return 2;
    if (!(given > 0)) fail_invalid(name, " is ", given, "; it must be above 0 (HUGE_VAL: the largest magnitude)");
    return given;
}

StepPlan read_plan(const ujoin_step_options &read, const optim::Scaler *scaler) {
    StepPlan plan;
    if (!(read.max_norm >= 0)) fail_invalid("options.max_norm is ", read.max_norm, "; it must be 0 or more");
    plan.max_norm = read.max_norm;
    plan.norm_type = read_norm_type(read.norm_type, "options.norm_type");
    plan.check = api::flag(read.skip_nonfinite, "options.skip_nonfinite") ? 1 : 0;
    if (scaler) plan.scale = scaler->scale();
    return plan;
}

} // namespace

ujoin_status zero_create(ujoin_group *group, ujoin_optimizer optimizer, const ujoin_param *params, size_t count,
                         const ujoin_zero_options *options, ujoin_zero **out) {
    return api::guard("zero_create", [&] {
        if (out) *out = nullptr;
        Release release = take_release(options);
        Release rule_data = take_rule(options);
        const std::shared_ptr<Group> &members = api::use(group, "group");
        on_rank(members->rank(), [&] {
            std::shared_ptr<Zero> zero = create(members, optimizer, params, count, options, out != nullptr,
                                                std::move(release), std::move(rule_data));
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
        std::shared_ptr<optim::Scaler> scaler;
        if (read.scaler) scaler = api::use(read.scaler, "options.scaler");
        const StepPlan plan = read_plan(read, scaler.get());
        return object.step(read.closure, read.closure_data, plan, std::move(scaler), read.out_norm);
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
        return index < specs.size() ? specs[index].name.c_str() : nullptr;
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

void *zero_param_data(ujoin_zero *zero, size_t index) {
    return api::guard_value<void *>("zero_param_data", nullptr, [&] { return api::use(zero, "zero")->param_data(index); });
}

ujoin_status zero_set_gradient(ujoin_zero *zero, size_t index, void *grad) {
    return call("zero_set_gradient", zero, [&](Zero &object) { object.set_gradient(index, grad); });
}

ujoin_status zero_set_frozen(ujoin_zero *zero, size_t index, int32_t frozen) {
    return call("zero_set_frozen", zero, [&](Zero &object) { object.set_frozen(index, api::flag(frozen, "frozen")); });
}

ujoin_status zero_clip_grad_norm(ujoin_zero *zero, double max_norm, double norm_type, double *out_norm) {
    return call("zero_clip_grad_norm", zero, [&](Zero &object) {
        if (!(max_norm > 0)) fail_invalid("max_norm is ", max_norm, "; it must be above 0");
        return object.clip_gradients(max_norm, read_norm_type(norm_type, "norm_type"), out_norm);
    });
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
        std::unique_ptr<ujoin_state> list; // made before: once the load has been taken nothing can fail
        together(object.group(), [&] {
            request = read_request(path, options, false);
            if (out) list = std::make_unique<ujoin_state>(std::make_shared<State>());
        });
        State extra = load_checkpoint(object, request);
        if (!out) return;
        *list->object = std::move(extra);
        *out = list.release();
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

ujoin_status zero_get_memory(const ujoin_zero *zero, ujoin_zero_memory *out) {
    return call("zero_get_memory", zero, [&](const Zero &object) { api::write_struct(out, object.memory(), "out"); });
}

void zero_destroy(ujoin_zero *zero) {
    if (zero && zero->generation == os::fork_generation()) zero->object->drop();
    api::drop(zero);
}
