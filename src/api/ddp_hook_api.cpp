// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "base/callback.hpp"
#include "ddp/reducer.hpp"
#include <cstddef>
#include <memory>

using namespace ujoin;

namespace {

/// The program's functions.
class ProgramHook final : public BucketHook {
  public:
    ProgramHook(const std::shared_ptr<Group> &group, const ujoin_comm_hook &hook, Release user_data)
        : group_(group), hook_(hook), user_data_(std::move(user_data)) {}

    std::shared_ptr<Work> start(const BucketArgs &args) override { return call(hook_.start, args); }
    std::shared_ptr<Work> then(const BucketArgs &args) override { return hook_.then ? call(hook_.then, args) : nullptr; }

  private:
    std::shared_ptr<Work> call(ujoin_bucket_fn function, const BucketArgs &args) const {
        ujoin_group handle(group_.lock());
        ujoin_bucket bucket{};
        bucket.size = sizeof bucket;
        bucket.group = &handle;
        bucket.buffer.data = args.data;
        bucket.buffer.count = args.count;
        bucket.buffer.dtype = args.dtype;
        bucket.params = args.params;
        bucket.offsets = args.offsets;
        bucket.param_count = args.param_count;
        bucket.divisor = args.divisor;
        bucket.iteration = args.iteration;
        bucket.index = args.index;
        bucket.is_last = args.is_last;
        bucket.is_shadow = args.is_shadow;
        bucket.source_rank = args.source_rank;

        ujoin_work *work = nullptr;
        const ujoin_status status = call_program([&] { return function(hook_.user_data, &bucket, &work); });
        std::shared_ptr<Work> result = work ? work->object : nullptr;
        api::drop(work);
        if (status >= 0) return result;
        const LastError cause = last_error();
        throw Error(UJOIN_E_CALLBACK, cause.text.empty() ? status_name(status) : cause.text).with_ranks(cause.ranks);
    }

    std::weak_ptr<Group> group_; ///< the reducer, which owns this, has it
    ujoin_comm_hook hook_;
    Release user_data_;
};

/// The notice of the hook, which is owed whatever else is wrong with the call.
Release user_data_of(const ujoin_comm_hook *hook) {
    constexpr size_t end = offsetof(ujoin_comm_hook, destroy) + sizeof(ujoin_destroy_fn);
    if (!hook || hook->size < end) return {};
    return {hook->destroy, hook->user_data};
}

HookChoice read_hook(const std::shared_ptr<Group> &group, const ujoin_comm_hook *hook, Release user_data) {
    if (!hook) fail_invalid("hook is NULL");
    const ujoin_comm_hook given = api::read_options(hook, "ujoin_comm_hook");
    HookChoice choice;
    choice.kind = api::choice(given.kind, given.start ? UJOIN_COMM_HOOK_CUSTOM : UJOIN_COMM_HOOK_ALL_REDUCE,
                              UJOIN_COMM_HOOK_CUSTOM, "ujoin_comm_hook.kind");
    const bool custom = choice.kind == UJOIN_COMM_HOOK_CUSTOM;
    if (custom && !given.start) fail_invalid("ujoin_comm_hook.start is NULL; a custom hook needs it");
    if (!custom && (given.start || given.then))
        fail_invalid("ujoin_comm_hook.kind is ", given.kind, ", but functions are given; they are for custom hooks");
    if (given.rank < 0) fail_invalid("ujoin_comm_hook.rank is ", given.rank, "; expected 1 or more");
    if (given.rank != 0) choice.rank = given.rank;
    if (given.start_iteration != 0) choice.start_iteration = given.start_iteration;
    if (custom) choice.custom = std::make_shared<ProgramHook>(group, given, std::move(user_data));
    return choice;
}

} // namespace

ujoin_status ujoin_ddp_set_comm_hook(ujoin_ddp *ddp, const ujoin_comm_hook *hook) {
    return api::guard("ujoin_ddp_set_comm_hook", [&] {
        Release user_data = user_data_of(hook);
        const std::shared_ptr<Ddp> &of = api::use(ddp, "ddp");
        of->set_comm_hook(read_hook(of->joinable()->group(), hook, std::move(user_data)));
    });
}

ujoin_status ujoin_ddp_set_buffer_hook(ujoin_ddp *ddp, ujoin_buffer_time time, const ujoin_comm_hook *hook) {
    return api::guard("ujoin_ddp_set_buffer_hook", [&] {
        Release user_data = user_data_of(hook);
        const std::shared_ptr<Ddp> &of = api::use(ddp, "ddp");
        const int32_t when = api::choice(time, UJOIN_BUFFER_AFTER_FORWARD, UJOIN_BUFFER_BEFORE_FORWARD, "time");
        HookChoice choice = read_hook(of->joinable()->group(), hook, std::move(user_data));
        if (choice.kind != UJOIN_COMM_HOOK_ALL_REDUCE && choice.kind != UJOIN_COMM_HOOK_CUSTOM)
            fail_invalid("ujoin_comm_hook.kind is ", choice.kind, "; a buffer hook is all-reduce or custom");
        of->set_buffer_hook(when, std::move(choice));
    });
}
