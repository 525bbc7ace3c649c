// SPDX-License-Identifier: Apache-2.0
// Structs and lists of C as tuples and lists.
#pragma once
#include "handles.hpp"

namespace ujoin_py {

// ---------------------------------------------------------------------------------------------------------------- answers

inline PyObject *describe(PyObject *object, bool writable) {
    Memory memory;
    if (!memory.read(object, writable, "memory", true)) return nullptr;
    Ref shape(PyTuple_New(static_cast<Py_ssize_t>(memory.shape().size())));
    for (size_t d = 0; shape && d < memory.shape().size(); d++)
        PyTuple_SetItem(shape.get(), static_cast<Py_ssize_t>(d), PyLong_FromLongLong(memory.shape()[d]));
    if (!shape) return nullptr;
    return Py_BuildValue("(KKiN)", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(memory.data())),
                         static_cast<unsigned long long>(memory.count()), memory.dtype(), shape.take());
}

inline PyObject *as_list(const std::vector<int64_t> &values) {
    Ref list(PyList_New(static_cast<Py_ssize_t>(values.size())));
    for (size_t i = 0; list && i < values.size(); i++)
        PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
    return list.take();
}

inline PyObject *last_missing() {
    std::vector<int32_t> ranks(ujoin_last_missing(nullptr, 0));
    ujoin_last_missing(ranks.data(), ranks.size());
    return as_list({ranks.begin(), ranks.end()});
}

inline PyObject *ctx_rounds(ujoin_ctx *ctx) {
    std::vector<int64_t> rounds(ujoin_ctx_rounds(ctx, nullptr, 0));
    if (rounds.empty()) { // a group has at least one rank
        raise(UJOIN_E_STATE);
        return nullptr;
    }
    ujoin_ctx_rounds(ctx, rounds.data(), rounds.size());
    return as_list(rounds);
}

inline PyObject *parse_std(const char *text, int32_t nprocs) {
    std::vector<ujoin_std> values(nprocs > 0 ? static_cast<size_t>(nprocs) : 0);
    if (!check(pctx_parse_std(text, values.data(), values.size()))) return nullptr;
    return as_list({values.begin(), values.end()});
}

/// A value may be replaced between asking for its size and reading it.
inline ujoin_status store_get(ujoin_store *store, const char *key, int64_t timeout_ms, std::string &value) {
    size_t size = 4096;
    for (;;) {
        value.resize(size);
        const ujoin_status status = ujoin_store_get(store, key, timeout_ms, value.data(), value.size(), &size);
        if (status == UJOIN_E_INVALID && size > value.size()) continue;
        value.resize(status == UJOIN_OK ? size : 0);
        return status;
    }
}

inline PyObject *as_tuple(const ujoin_group_info &i) {
    return Py_BuildValue("(Niiiiii)", from_text(i.backend), i.rank, i.world_size, i.local_rank, i.local_size, i.progress,
                         i.threads);
}
inline PyObject *as_tuple(const ujoin_ctx_report &r) {
    return Py_BuildValue("(LLLLLiiii)", (long long)r.rounds, (long long)r.shadow_rounds, (long long)r.shadow_uses,
                         (long long)r.shadow_us, (long long)r.wait_us, r.is_last_joiner, r.authoritative_rank, r.joined,
                         r.stopped);
}
inline PyObject *as_tuple(const ujoin_ddp_report &r) {
    return Py_BuildValue("(LddLLKii)", (long long)r.iterations, r.divisor, r.samples, (long long)r.reduce_us,
                         (long long)r.exposed_us, (unsigned long long)r.bucket_count, r.rebuilt, r.joined_uneven);
}
inline PyObject *as_tuple(const ujoin_shard &s) {
    return Py_BuildValue("(KKKii)", (unsigned long long)s.param, (unsigned long long)s.offset, (unsigned long long)s.count,
                         s.rank, s.group);
}
inline PyObject *as_tuple(const ujoin_item &i) {
    Ref shape(PyTuple_New(i.ndim));
    for (int32_t d = 0; shape && d < i.ndim; d++) PyTuple_SetItem(shape.get(), d, PyLong_FromLongLong(i.shape[d]));
    if (!shape) return nullptr;
    const char *data = i.data ? static_cast<const char *>(i.data) : "";
    return Py_BuildValue("(iiiNNdNiN)", i.kind, i.owner, i.group, from_text(i.param), from_text(i.key), i.number,
                         PyBytes_FromStringAndSize(data, (Py_ssize_t)i.bytes), i.dtype, shape.take());
}
inline PyObject *as_tuple(const ujoin_zero_memory &m) {
    return Py_BuildValue("(KKKKK)", (unsigned long long)m.parameters, (unsigned long long)m.gradients,
                         (unsigned long long)m.state, (unsigned long long)m.buffers, (unsigned long long)m.full_state);
}
inline PyObject *as_tuple(const ujoin_scaler_options &s) {
    return Py_BuildValue("(dddLLL)", s.scale, s.growth, s.backoff, (long long)s.interval, (long long)s.good_steps,
                         (long long)s.skipped);
}
inline PyObject *as_tuple(const ujoin_worker_result &r) {
    PyObject *value = r.value ? PyBytes_FromStringAndSize(static_cast<const char *>(r.value), (Py_ssize_t)r.value_size)
                              : Py_NewRef(Py_None);
    return Py_BuildValue(
        "(iiiiiiiiLLLLLLKKKKNNNNNN)", r.state, r.rank, r.pid, r.exit_code, r.signal, r.failed, r.stopped, r.containment,
        (long long)r.start_ns, (long long)r.end_ns, (long long)r.failed_ns, (long long)r.last_output_ns,
        (long long)r.user_us, (long long)r.system_us, (unsigned long long)r.peak_bytes, (unsigned long long)r.stdout_bytes,
        (unsigned long long)r.stderr_bytes, (unsigned long long)r.dropped_lines, value, from_text(r.message),
        from_text(r.traceback), from_text(r.stdout_path), from_text(r.stderr_path), from_text(r.error_path));
}

inline PyObject *as_tuple(const ujoin_worker_health &h) {
    PyObject *missing = as_list({h.missing, h.missing + h.missing_count});
    return Py_BuildValue("(iiiiiiiiiiiLLLLNNNNN)", h.state, h.rank, h.pid, h.group_pid, h.group_rank, h.group_size,
                         h.groups, h.in_operation, h.in_context, h.joined, h.broken, (long long)h.sequence,
                         (long long)h.round, (long long)h.since_ns, (long long)h.last_output_ns, missing,
                         from_text(h.operation), from_text(h.waiting_for), from_text(h.group), from_text(h.text));
}

/// The ranks of a completed operation.
inline PyObject *contributors(const ujoin_work *work) {
    std::vector<int32_t> ranks;
    unlocked([&] {
        ranks.resize(ujoin_work_contributors(work, nullptr, 0));
        return ujoin_work_contributors(work, ranks.data(), ranks.size());
    });
    return as_list({ranks.begin(), ranks.end()});
}

/// How many ranks used each parameter.
inline PyObject *ddp_used(const ujoin_ddp *ddp) {
    std::vector<int32_t> ranks;
    unlocked([&] {
        ranks.resize(ujoin_ddp_used(ddp, nullptr, 0));
        return ujoin_ddp_used(ddp, ranks.data(), ranks.size());
    });
    return as_list({ranks.begin(), ranks.end()});
}

} // namespace ujoin_py
