// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/options.hpp"
#include "base/callback.hpp"
#include "base/log.hpp"
#include "comm/registry.hpp"
#include "os/interrupt.hpp"
#include "ujoin.h"

using namespace ujoin;

#define UJOIN_TEXT_(x) #x
#define UJOIN_TEXT(x) UJOIN_TEXT_(x)

const char *ujoin_version(void) {
    return UJOIN_TEXT(UJOIN_VERSION_MAJOR) "." UJOIN_TEXT(UJOIN_VERSION_MINOR) "." UJOIN_TEXT(UJOIN_VERSION_PATCH);
}

int32_t ujoin_abi_version(void) { return UJOIN_ABI_VERSION; }

const char *ujoin_backends(void) {
    return api::guard_value<const char *>("ujoin_backends", "", [] {
        static const auto *text = new std::string(describe_backends()); // never destroyed: the program keeps it
        return text->c_str();
    });
}

const char *ujoin_last_error(void) { return last_error().text.c_str(); }

int32_t ujoin_last_errno(void) { return last_error().system_errno; }

size_t ujoin_last_missing(int32_t *out_ranks, size_t capacity) {
    const std::vector<int32_t> &ranks = last_error().ranks;
    if (out_ranks) std::copy_n(ranks.begin(), std::min(capacity, ranks.size()), out_ranks);
    return ranks.size();
}

const char *ujoin_status_name(ujoin_status status) { return status_name(status); }

ujoin_status ujoin_set_last_error(ujoin_status status, const char *text) { return record(status, "", text ? text : ""); }

ujoin_status ujoin_set_interrupt_check(ujoin_call_fn fn, void *user_data, ujoin_destroy_fn destroy) {
    return api::guard("ujoin_set_interrupt_check", [&] { os::set_interrupt_check(fn, user_data, destroy); });
}

ujoin_status ujoin_set_log_sink(ujoin_log_level level, ujoin_log_fn fn, void *user_data, ujoin_destroy_fn destroy) {
    return api::guard("ujoin_set_log_sink", [&] {
        if (level < 0 || level > UJOIN_LOG_DEBUG) {
            end_user_data(destroy, user_data); // owned from the call on, also when it fails
            fail_invalid("level is ", level, "; expected 0 to ", UJOIN_LOG_DEBUG);
        }
        set_log_sink(level, fn, user_data, destroy);
    });
}
