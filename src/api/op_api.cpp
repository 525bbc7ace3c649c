// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "comm/group.hpp"
#include <algorithm>
#include <vector>

using namespace ujoin;

namespace {

/// The checks that all operations share; "rank 1: " in front of every text.
class Call {
  public:
    Call(ujoin_group *group, const ujoin_op_options *options) {
        const auto given = options ? api::read_options(options, "ujoin_op_options") : ujoin_op_options{};
        release_ = Release(given.release, given.release_data);
        group_ = api::use(group, "group");
        timeout_ms_ = given.timeout_ms;
        if (given.stream)
            fail(UJOIN_E_UNSUPPORTED, "rank ", group_->rank(), ": stream is not NULL; this version has no device memory");
    }

    size_t ranks() const { return static_cast<size_t>(group_->size()); }

    template <class Buffer> Memory memory(const Buffer *buffer, const char *name, OpArgs &op, size_t times) {
        if (!buffer) invalid(name, " is NULL");
        if (buffer->device != UJOIN_DEVICE_HOST)
            fail(UJOIN_E_UNSUPPORTED, "rank ", group_->rank(), ": ", name, " is on device ", buffer->device,
                 "; this version has host memory only");
        if (buffer->reserved != 0) invalid(name, ".reserved is not 0");
        if (!dtype_known(buffer->dtype))
            invalid(name, ".dtype is ", buffer->dtype, "; expected a value of ujoin_dtype_value");
        if (!buffer->data && buffer->count != 0) invalid(name, ".data is NULL, but its count is ", buffer->count);
        if (op.dtype != buffer->dtype)
            invalid("send is of ", dtype_name(buffer->dtype), ", recv of ", dtype_name(op.dtype));
        if (buffer->count != op.count * times) invalid(name, ".count is ", buffer->count, "; expected ", op.count * times);
        if (buffer->count > SIZE_MAX / 16) invalid(name, ".count is ", buffer->count);
        return Memory(buffer->data ? buffer->data : &nothing_, buffer->count * dtype_size(buffer->dtype));
    }
    ujoin_reduce reduction(ujoin_reduce reduce, ujoin_dtype dtype) {
        if (reduce < 0 || reduce > UJOIN_MAX) invalid("reduce is ", reduce, "; expected a value of ujoin_reduce_value");
        if (dtype == UJOIN_U8) invalid("u8 is not reduced");
        return reduce ? reduce : UJOIN_SUM;
    }
    template <class... Parts> [[noreturn]] void invalid(const Parts &...parts) {
        fail_invalid("rank ", group_->rank(), ": ", parts...);
    }

    void go(OpArgs &op, ujoin_work **out_work) {
        op.program = true;
        const Deadline deadline = group_->bare_deadline(timeout_ms_);
        try {
            if (out_work)
                api::give(out_work, group_->submit(op, deadline, std::move(release_)));
            else
                group_->run(op, deadline);
        } catch (Error &error) {
            throw error.in(cat("rank ", group_->rank(), " of ", group_->size()));
        }
    }

  private:
    std::shared_ptr<Group> group_;
    Release release_; ///< runs when the call ends, or with the work
    int64_t timeout_ms_ = 0;
    char nothing_ = 0; ///< a place for empty buffers, so that they are not taken for "in place"
};

template <class Body> ujoin_status operation(const char *name, ujoin_work **out_work, Body &&body) {
    return api::guard(name, [&] {
        if (out_work) *out_work = nullptr;
        body();
    });
}

} // namespace

ujoin_status ujoin_all_reduce(ujoin_group *group, const ujoin_const_buffer *send, const ujoin_buffer *recv,
                              ujoin_reduce reduce, const ujoin_op_options *options, ujoin_work **out_work) {
    return operation("ujoin_all_reduce", out_work, [&] {
        Call call(group, options);
        if (!recv) call.invalid("recv is NULL");
        OpArgs op;
        op.kind = OpKind::all_reduce;
        op.dtype = recv->dtype;
        op.count = recv->count;
        op.recv = call.memory(recv, "recv", op, 1);
        if (send && send->data) op.send = call.memory(send, "send", op, 1);
        op.reduce = call.reduction(reduce, op.dtype);
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
        op.recv = call.memory(buffer, "buffer", op, 1);
        if (root < 0 || static_cast<size_t>(root) >= call.ranks())
            call.invalid("root is ", root, "; expected 0 to ", call.ranks() - 1);
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
        op.recv = call.memory(recv, "recv", op, call.ranks());
        if (send && send->data) op.send = call.memory(send, "send", op, 1);
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
        op.recv = call.memory(recv, "recv", op, 1);
        op.send = call.memory(send, "send", op, call.ranks());
        op.reduce = call.reduction(reduce, op.dtype);
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
