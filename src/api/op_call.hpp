// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "comm/group.hpp"
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ujoin::api {

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

    int32_t rank() const { return group_->rank(); }
    size_t ranks() const { return static_cast<size_t>(group_->size()); }

    template <class Buffer> Memory memory(const Buffer *buffer, const char *name, const OpArgs &op, size_t elements) {
        if (!buffer) invalid(name, " is NULL");
        if (buffer->device != UJOIN_DEVICE_HOST)
            fail(UJOIN_E_UNSUPPORTED, "rank ", group_->rank(), ": ", name, " is on device ", buffer->device,
                 "; this version has host memory only");
        if (buffer->reserved != 0) invalid(name, ".reserved is not 0");
        if (!dtype_known(buffer->dtype))
            invalid(name, ".dtype is ", buffer->dtype, "; expected a value of ujoin_dtype_value");
        if (!buffer->data && buffer->count != 0) invalid(name, ".data is NULL, but its count is ", buffer->count);
        constexpr bool sent = std::is_same_v<Buffer, ujoin_const_buffer>;
        if (op.dtype != buffer->dtype)
            invalid("send is of ", dtype_name(sent ? buffer->dtype : op.dtype), ", recv of ",
                    dtype_name(sent ? op.dtype : buffer->dtype));
        if (buffer->count != elements) invalid(name, ".count is ", buffer->count, "; expected ", elements);
        if (buffer->count > SIZE_MAX / 16) invalid(name, ".count is ", buffer->count);
        return Memory(buffer->data ? buffer->data : &nothing_, buffer->count * dtype_size(buffer->dtype));
    }
    ujoin_reduce reduction(ujoin_reduce reduce) {
        if (reduce < 0 || reduce > UJOIN_PROD) invalid("reduce is ", reduce, "; expected a value of ujoin_reduce_value");
        return reduce ? reduce : UJOIN_SUM;
    }
    template <class... Parts> [[noreturn]] void invalid(const Parts &...parts) {
        fail_invalid("rank ", group_->rank(), ": ", parts...);
    }

    void check_rank(int32_t rank, const char *name) {
        if (rank < 0 || static_cast<size_t>(rank) >= ranks()) invalid(name, " is ", rank, "; expected 0 to ", ranks() - 1);
    }

    void go(OpArgs &op, ujoin_work **out_work) {
        op.program = true;
        const Deadline deadline = group_->bare_deadline(timeout_ms_);
        try {
            if (!out_work) return group_->run(op, deadline);
            auto handle = std::make_unique<ujoin_work>(nullptr); // first: what is in flight cannot be taken back
            handle->object = group_->submit(op, deadline, std::move(release_));
            *out_work = handle.release();
        } catch (Error &error) {
            throw error.in(place());
        }
    }
    void go(std::vector<OpArgs> &ops, ujoin_work **out_work) {
        for (OpArgs &op : ops) op.program = true;
        const Deadline deadline = group_->bare_deadline(timeout_ms_);
        try {
            if (out_work) {
                auto handle = std::make_unique<ujoin_work>(nullptr);
                handle->object = group_->submit_all(std::move(ops), deadline, std::move(release_));
                *out_work = handle.release();
            } else {
                for (OpArgs &op : ops) group_->run(op, deadline);
            }
        } catch (Error &error) {
            throw error.in(place());
        }
    }

  private:
    std::string place() const { return cat("rank ", group_->rank(), " of ", group_->size()); }

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

} // namespace ujoin::api
