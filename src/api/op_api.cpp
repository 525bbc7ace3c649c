// SPDX-License-Identifier: Apache-2.0
#include "api/op_call.hpp"
#include <algorithm>
#include <vector>

using namespace ujoin;
using api::Call;
using api::operation;

ujoin_status ujoin_all_reduce(ujoin_group *group, const ujoin_const_buffer *send, const ujoin_buffer *recv,
                              ujoin_reduce reduce, const ujoin_op_options *options, ujoin_work **out_work) {
    return operation("ujoin_all_reduce", out_work, [&] {
        Call call(group, options);
        if (!recv) call.invalid("recv is NULL");
        OpArgs op;
        op.kind = OpKind::all_reduce;
        op.dtype = recv->dtype;
        op.count = recv->count;
        op.recv = call.memory(recv, "recv", op, op.count);
        if (send && send->data) op.send = call.memory(send, "send", op, op.count);
        op.reduce = call.reduction(reduce);
        call.go(op, out_work);
    });
}

ujoin_status ujoin_broadcast(ujoin_group *group, const ujoin_buffer *buffer, int32_t root, const ujoin_op_options *options,
                             ujoin_work **out_work) {
    return operation("ujoin_broadcast", out_work, [&] {
        Call call(group, options);
        if (!buffer) call.invalid("buffer is NULL");
        OpArgs op;
        op.kind = OpKind::broadcast;
        op.dtype = buffer->dtype;
        op.count = buffer->count;
        op.root = root;
        op.recv = call.memory(buffer, "buffer", op, op.count);
        call.check_rank(root, "root");
        call.go(op, out_work);
    });
}

ujoin_status ujoin_all_gather(ujoin_group *group, const ujoin_const_buffer *send, const ujoin_buffer *recv,
                              const ujoin_op_options *options, ujoin_work **out_work) {
    return operation("ujoin_all_gather", out_work, [&] {
        Call call(group, options);
        if (!recv) call.invalid("recv is NULL");
        if (recv->count % call.ranks() != 0)
            call.invalid("recv.count is ", recv->count, ", not a multiple of ", call.ranks());
        OpArgs op;
        op.kind = OpKind::all_gather;
        op.dtype = recv->dtype;
        op.count = recv->count / call.ranks();
        op.recv = call.memory(recv, "recv", op, op.count * call.ranks());
        if (send && send->data) op.send = call.memory(send, "send", op, op.count);
        call.go(op, out_work);
    });
}

ujoin_status ujoin_reduce_scatter(ujoin_group *group, const ujoin_const_buffer *send, const ujoin_buffer *recv,
                                  ujoin_reduce reduce, const ujoin_op_options *options, ujoin_work **out_work) {
    return operation("ujoin_reduce_scatter", out_work, [&] {
        Call call(group, options);
        if (!recv) call.invalid("recv is NULL");
        OpArgs op;
        op.kind = OpKind::reduce_scatter;
        op.dtype = recv->dtype;
        op.count = recv->count;
        op.recv = call.memory(recv, "recv", op, op.count);
        op.send = call.memory(send, "send", op, op.count * call.ranks());
        op.reduce = call.reduction(reduce);
        call.go(op, out_work);
    });
}

ujoin_status ujoin_barrier(ujoin_group *group, const ujoin_op_options *options) {
    return operation("ujoin_barrier", nullptr, [&] {
        Call call(group, options);
        OpArgs op;
        op.kind = OpKind::barrier;
        call.go(op, nullptr);
    });
}

ujoin_status ujoin_work_wait(ujoin_work *work, int64_t timeout_ms) {
    return api::guard("ujoin_work_wait", [&] { return api::use(work, "work")->wait(timeout_ms); });
}

ujoin_status ujoin_work_test(ujoin_work *work) {
    return api::guard("ujoin_work_test", [&] { return api::use(work, "work")->test(); });
}

size_t ujoin_work_contributors(const ujoin_work *work, int32_t *out_ranks, size_t capacity) {
    return api::guard_value<size_t>("ujoin_work_contributors", 0, [&] {
        const std::vector<int32_t> ranks = api::use(work, "work")->contributors();
        if (capacity > 0 && !out_ranks) fail_invalid("out_ranks is NULL, capacity is ", capacity);
        std::copy_n(ranks.begin(), std::min(capacity, ranks.size()), out_ranks);
        return ranks.size();
    });
}

void ujoin_work_abort(ujoin_work *work) {
    api::guard("ujoin_work_abort", [&] { api::use(work, "work")->abort(); });
}

void ujoin_work_destroy(ujoin_work *work) { api::drop(work); }
