// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "comm/group.hpp"
#include "store/store.hpp"

using namespace ujoin;

namespace {

GroupConfig common_config(const ujoin_group_options &given) {
    GroupConfig config;
    config.backend = api::text_or(given.backend, "auto");
    config.name = api::text_or(given.name, "");
    config.timeout_ms = given.timeout_ms;
    config.shadow_collectives = api::flag(given.shadow_collectives, "ujoin_group_options.shadow_collectives");
    config.threads = given.threads;
    config.rendezvous_timeout_ms = given.rendezvous_timeout_ms;
    return config;
}

} // namespace

ujoin_status ujoin_group_create(const ujoin_group_options *options, ujoin_group **out) {
    return api::guard("ujoin_group_create", [&] {
        api::begin_out(out);
        const auto given = api::read_options(options, "ujoin_group_options");
        GroupConfig config = common_config(given);
        config.rendezvous = api::text_or(given.rendezvous, "env://");
        if (given.store) config.store = api::use(given.store, "store");
        config.rank = given.rank;
        config.size = given.world_size;
        api::give(out, Group::create(config));
    });
}

ujoin_status ujoin_group_split(ujoin_group *group, int32_t color, int32_t key, const ujoin_group_options *options,
                               ujoin_group **out) {
    return api::guard("ujoin_group_split", [&] {
        api::begin_out(out);
        const std::shared_ptr<Group> whole = api::use(group, "group");
        const auto given = api::read_options(options, "ujoin_group_options");
        if (given.rendezvous || given.store || given.rank != 0 || given.world_size != 0)
            fail_invalid("rank ", whole->rank(),
                         ": rendezvous, store, rank and world_size of a group that is split off follow from the group");
        const std::shared_ptr<Group> part = whole->split(color, key, common_config(given));
        if (!part) return UJOIN_SKIPPED;
        api::give(out, part);
        return UJOIN_OK;
    });
}

int32_t ujoin_group_rank(const ujoin_group *group) {
    return api::guard_value<int32_t>("ujoin_group_rank", -1, [&] { return api::use(group, "group")->rank(); });
}

int32_t ujoin_group_size(const ujoin_group *group) {
    return api::guard_value<int32_t>("ujoin_group_size", -1, [&] { return api::use(group, "group")->size(); });
}

ujoin_status ujoin_group_get_info(const ujoin_group *group, ujoin_group_info *out) {
    return api::guard("ujoin_group_get_info", [&] {
        const Group &of = *api::use(group, "group");
        ujoin_group_info info{};
        info.backend = of.backend_name();
        info.rank = of.rank();
        info.local_rank = of.here().rank;
        info.world_size = of.size();
        info.local_size = of.here().size;
        info.progress = of.has_progress() ? 1 : 0;
        info.threads = of.threads();
        api::write_struct(out, info, "out");
    });
}

ujoin_status ujoin_group_close(ujoin_group *group, int64_t timeout_ms) {
    return api::guard("ujoin_group_close", [&] { return api::use(group, "group")->close(timeout_ms); });
}

void ujoin_group_abort(ujoin_group *group, const char *reason) {
    api::guard("ujoin_group_abort", [&] { api::use(group, "group")->abort(api::text_or(reason, "")); });
}

void ujoin_group_destroy(ujoin_group *group) {
    api::guard("ujoin_group_destroy", [&] {
        if (group && group->generation == os::fork_generation()) group->object->handle_dropped();
        api::drop(group);
    });
}
