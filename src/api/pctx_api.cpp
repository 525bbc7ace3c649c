// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "pctx/context.hpp"
#include "ujoin.h"

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
        api::give(out, std::make_shared<ProcessContext>(read_job(api::read_options(spec, "spec"))));
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

const char *pctx_report(ujoin_pctx *pctx) {
    return api::guard_value<const char *>("pctx_report", nullptr, [&] { return api::use(pctx, "pctx")->report(); });
}

ujoin_status pctx_signal(ujoin_pctx *pctx, int32_t rank, int32_t signal) {
    return api::guard("pctx_signal", [&] { api::use(pctx, "pctx")->signal(rank, signal); });
}

ujoin_status pctx_close(ujoin_pctx *pctx, int32_t signal, int64_t grace_ms) {
    return api::guard("pctx_close", [&] { return api::use(pctx, "pctx")->close(signal, grace_ms); });
}

void pctx_abort(ujoin_pctx *pctx) {
    if (!pctx) return;
    api::guard("pctx_abort", [&] { api::use(pctx, "pctx")->abort(); });
}

void pctx_destroy(ujoin_pctx *pctx) { api::drop(pctx); }
