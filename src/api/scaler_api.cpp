// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "optim/scaler.hpp"
#include "optim/schedule.hpp"
#include "ujoin.h"

using namespace ujoin;

ujoin_status zero_schedule(const ujoin_schedule_options *schedule, int64_t step, double *out_value) {
    return api::guard("zero_schedule", [&] {
        if (!schedule) fail_invalid("schedule is NULL");
        if (!out_value) fail_invalid("out_value is NULL");
        *out_value = optim::schedule_value(api::read_options(schedule, "schedule"), step);
    });
}

ujoin_status zero_scaler_create(const ujoin_scaler_options *options, ujoin_scaler **out) {
    return api::guard("zero_scaler_create", [&] {
        api::begin_out(out);
        api::give(out, std::make_shared<optim::Scaler>(api::read_options(options, "options")));
    });
}

double zero_scaler_scale(const ujoin_scaler *scaler) {
    return api::guard_value<double>("zero_scaler_scale", 0, [&] { return api::use(scaler, "scaler")->scale(); });
}

ujoin_status zero_scaler_get(const ujoin_scaler *scaler, ujoin_scaler_options *out) {
    return api::guard("zero_scaler_get", [&] { api::write_struct(out, api::use(scaler, "scaler")->state(), "out"); });
}

void zero_scaler_destroy(ujoin_scaler *scaler) { api::drop(scaler); }
