// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "comm/memory.hpp"
#include "comm/together.hpp"
#include "ujoin.h"

using namespace ujoin;

ujoin_status ujoin_memory_create(ujoin_group *group, size_t bytes, const ujoin_memory_options *options,
                                 ujoin_memory **out) {
    return api::guard("ujoin_memory_create", [&] {
        if (out) *out = nullptr;
        const std::shared_ptr<Group> &members = api::use(group, "group");
        bool one_copy = false;
        together(*members, [&] {
            api::begin_out(out);
            const ujoin_memory_options read = api::read_options(options, "options");
            if (read.device != UJOIN_DEVICE_HOST)
                fail(UJOIN_E_UNSUPPORTED, "options.device is ", read.device, "; this version has host memory (0) only");
            one_copy = api::flag(read.one_per_host, "options.one_per_host");
        });
        api::give(out, SharedMemory::create(members, bytes, one_copy));
    });
}

void *ujoin_memory_data(const ujoin_memory *memory) {
    return api::guard_value<void *>("ujoin_memory_data", nullptr, [&] { return api::use(memory, "memory")->data(); });
}

size_t ujoin_memory_size(const ujoin_memory *memory) {
    return api::guard_value<size_t>("ujoin_memory_size", 0, [&] { return api::use(memory, "memory")->bytes(); });
}

void ujoin_memory_destroy(ujoin_memory *memory) { api::drop(memory); }
