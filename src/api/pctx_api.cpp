// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "base/callback.hpp"
#include "pctx/context.hpp"
#include "pctx/error_file.hpp"
#include "pctx/function_worker.hpp"
#include "ujoin.h"
#include <cstdio>

using namespace ujoin;

ujoin_status pctx_parse_std(const char *text, ujoin_std *out_values, size_t nprocs) {
    return api::guard("pctx_parse_std", [&] {
        if (!text) fail_invalid("text is NULL");
        if (!out_values && nprocs > 0) fail_invalid("out_values is NULL");
        const std::vector<ujoin_std> values = parse_std(text, nprocs);
        std::copy(values.begin(), values.end(), out_values);
    });
}

ujoin_status pctx_create(const ujoin_pctx_spec *spec, ujoin_pctx **out) {
    return api::guard("pctx_create", [&] {
        api::begin_out(out);
        if (!spec) fail_invalid("spec is NULL; at least program and nprocs are needed");
        const ujoin_pctx_spec given = api::read_options(spec, "spec");
        std::shared_ptr<OutputCallback> output;
        if (given.output || given.destroy)
            output = std::make_shared<OutputCallback>(given.output, given.user_data, given.destroy);
        if (output && !output->fn) fail_invalid("spec.output is NULL, but spec.destroy is not");
        api::give(out, std::make_shared<ProcessContext>(read_job(given, std::move(output))));
    });
}

ujoin_status pctx_set_env(ujoin_pctx *pctx, int32_t rank, const char *name, const char *value) {
    return api::guard("pctx_set_env", [&] { api::use(pctx, "pctx")->set_env(rank, name, value); });
}

ujoin_status pctx_set_worker(ujoin_pctx *pctx, int32_t rank, const ujoin_worker *worker) {
    return api::guard("pctx_set_worker", [&] {
        const auto &context = api::use(pctx, "pctx");
        if (!worker) fail_invalid("worker is NULL");
        context->set_worker(rank, api::read_options(worker, "worker"));
    });
}

ujoin_status pctx_start(ujoin_pctx *pctx) {
    return api::guard("pctx_start", [&] { api::use(pctx, "pctx")->start(); });
}

ujoin_status pctx_wait(ujoin_pctx *pctx, int64_t timeout_ms) {
    return api::guard("pctx_wait", [&] { return api::use(pctx, "pctx")->wait(timeout_ms); });
}

int32_t pctx_failed(const ujoin_pctx *pctx) {
    return api::guard_value("pctx_failed", -1, [&] { return api::use(pctx, "pctx")->first_failure() >= 0 ? 1 : 0; });
}

int32_t pctx_first_failure(const ujoin_pctx *pctx) {
    return api::guard_value("pctx_first_failure", -1, [&] { return api::use(pctx, "pctx")->first_failure(); });
}

ujoin_status pctx_get_result(ujoin_pctx *pctx, int32_t rank, ujoin_worker_result *out) {
    return api::guard("pctx_get_result", [&] {
        const auto &context = api::use(pctx, "pctx");
        if (!out) fail_invalid("out is NULL");
        api::write_struct(out, context->result(rank), "out");
    });
}

ujoin_status pctx_health(ujoin_pctx *pctx, int32_t rank, ujoin_worker_health *out) {
    return api::guard("pctx_health", [&] {
        const auto &context = api::use(pctx, "pctx");
        if (!out) fail_invalid("out is NULL");
        api::write_struct(out, context->health(rank), "out");
    });
}

const char *pctx_report(ujoin_pctx *pctx) {
    return api::guard_value<const char *>("pctx_report", nullptr, [&] { return api::use(pctx, "pctx")->report(); });
}

const char *pctx_report_json(ujoin_pctx *pctx) {
    return api::guard_value<const char *>("pctx_report_json", nullptr,
                                          [&] { return api::use(pctx, "pctx")->json_report(); });
}

ujoin_status pctx_signal(ujoin_pctx *pctx, int32_t rank, int32_t signal) {
    return api::guard("pctx_signal", [&] { api::use(pctx, "pctx")->signal(rank, signal); });
}

ujoin_status pctx_stop(ujoin_pctx *pctx) {
    return api::guard("pctx_stop", [&] { api::use(pctx, "pctx")->stop(); });
}

ujoin_status pctx_close(ujoin_pctx *pctx, int32_t signal, int64_t grace_ms) {
    return api::guard("pctx_close", [&] { return api::use(pctx, "pctx")->close(signal, grace_ms); });
}

void pctx_abort(ujoin_pctx *pctx) {
    if (!pctx) return;
    api::guard("pctx_abort", [&] { api::use(pctx, "pctx")->abort(); });
}

void pctx_destroy(ujoin_pctx *pctx) { api::drop(pctx); }

ujoin_status pctx_register(const char *name, ujoin_worker_fn fn, void *user_data, ujoin_destroy_fn destroy) {
    const ujoin_status status = api::guard("pctx_register", [&] { register_function(name, fn, user_data, destroy); });
    if (status < 0) end_user_data(destroy, user_data);
    return status;
}

ujoin_status pctx_worker_main(int32_t *out_exit_code) {
    int32_t code = 0;
    const ujoin_status status = api::guard("pctx_worker_main", [&] { return worker_main(code); });
    if (status < 0) std::fprintf(stderr, "%s\n", ujoin::last_error().text.c_str()); // main returns: nobody else would
    if (out_exit_code) *out_exit_code = code;
    return status;
}

ujoin_status pctx_return(const void *data, size_t size) {
    return api::guard("pctx_return", [&] { return_value(data, size); });
}

ujoin_status pctx_record(ujoin_call_fn fn, void *user_data) {
    return api::guard("pctx_record", [&] {
        if (!fn) fail_invalid("fn is NULL");
        return record_failure(fn, user_data);
    });
}

ujoin_status pctx_record_error(const char *message, const char *traceback, int32_t code) {
    return api::guard("pctx_record_error", [&] {
        if (!message) fail_invalid("message is NULL");
        record_error(message, traceback ? traceback : "", code);
    });
}

ujoin_status pctx_record_crashes(void) {
    return api::guard("pctx_record_crashes", [] { record_crashes(); });
}
