// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handle.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "base/callback.hpp"
#include "base/deadline.hpp"
#include "join/join_context.hpp"
#include "join/joinable.hpp"
#include <algorithm>
#include <cstddef>

using namespace ujoin;
using namespace ujoin::api;

namespace {

/// Runs destroy(user_data) once, whatever becomes of the call that was given them.
class UserData {
  public:
    /// The struct may be of any version, and wrong otherwise.
    explicit UserData(const ujoin_hooks *hooks) {
        if (!hooks || hooks->size < offsetof(ujoin_hooks, name)) return;
        data_ = hooks->user_data;
        destroy_ = hooks->destroy;
    }
    UserData(UserData &&other) noexcept : data_(other.data_), destroy_(std::exchange(other.destroy_, nullptr)) {}
    UserData(const UserData &) = delete;
    UserData &operator=(const UserData &) = delete;
    ~UserData() { end_user_data(destroy_, data_); }
    void *get() const { return data_; }

  private:
    void *data_ = nullptr;
    ujoin_destroy_fn destroy_ = nullptr;
};

/// The program's own hooks.
class HookedJoinable final : public Joinable {
  public:
    HookedJoinable(std::shared_ptr<Group> group, const ujoin_hooks &hooks, UserData &&user_data)
        : Joinable(std::move(group), text_or(hooks.name, "joinable")), main_hook_(hooks.main_hook),
          post_hook_(hooks.post_hook), user_data_(std::move(user_data)) {
        for (size_t i = 0; i < hooks.option_count; i++) option_names_.emplace_back(hooks.options[i]);
    }

    void main_hook(const HookArgs &args) override { call(main_hook_, args); }
    void post_hook(const HookArgs &args) override { call(post_hook_, args); }
    std::vector<std::string> option_names() const override { return option_names_; }

  private:
    void call(ujoin_hook_fn hook, const HookArgs &from) {
        if (!hook) return;
        ujoin_joinable handle(shared_from_this()); // the program may have destroyed its own
        std::vector<ujoin_hyper> options;
        for (const auto &[name, value] : *from.options) options.push_back({name.c_str(), value});
        ujoin_hook_args args{};
        args.size = sizeof args;
        args.joinable = &handle;
        args.round = from.round;
        args.active = from.active;
        args.is_last_joiner = from.is_last_joiner;
        args.authoritative_rank = from.authoritative_rank;
        args.options = options.data();
        args.option_count = options.size();

        const ujoin_status status = call_program([&] { return hook(user_data_.get(), &args); });
        if (status >= 0) return;
        const LastError cause = last_error();
        const std::string text = cause.text.empty() ? status_name(status) : cause.text;
        // What broke the group inside of the hook says more than that the hook failed.
        Watch &watch = group()->board().watch();
        const bool broken = watch.fate(watch.rank()) != Fate::none;
        throw Error(broken ? status : UJOIN_E_CALLBACK, text).with_ranks(broken ? cause.ranks : std::vector<int32_t>{});
    }

    ujoin_hook_fn main_hook_;
    ujoin_hook_fn post_hook_;
    UserData user_data_;
    std::vector<std::string> option_names_;
};

} // namespace

ujoin_status ujoin_joinable_create(ujoin_group *group, const ujoin_hooks *hooks, ujoin_joinable **out) {
    return guard("ujoin_joinable_create", [&] {
        UserData user_data(hooks);
        begin_out(out);
        const std::shared_ptr<Group> &of = use(group, "group");
        if (!hooks) fail_invalid("hooks is NULL");
        const auto given = read_options(hooks, "ujoin_hooks");
        if (given.device != UJOIN_DEVICE_HOST)
            fail(UJOIN_E_UNSUPPORTED, "ujoin_hooks.device is ", given.device, "; this version has host memory only");
        if (given.option_count > 0 && !given.options)
            fail_invalid("ujoin_hooks.options is NULL, option_count is ", given.option_count);
        for (size_t i = 0; i < given.option_count; i++)
            if (!given.options[i]) fail_invalid("ujoin_hooks.options[", i, "] is NULL");
        std::shared_ptr<Joinable> joinable = std::make_shared<HookedJoinable>(of, given, std::move(user_data));
        give(out, std::move(joinable));
    });
}

void ujoin_joinable_destroy(ujoin_joinable *joinable) { drop(joinable); }

ujoin_status ujoin_joinable_notify(ujoin_joinable *joinable, int32_t *out_active) {
    return guard("ujoin_joinable_notify", [&] { return use(joinable, "joinable")->notify(out_active); });
}

ujoin_status ujoin_ctx_create(ujoin_joinable *const *joinables, size_t count, const ujoin_ctx_options *options,
                              ujoin_ctx **out) {
    return guard("ujoin_ctx_create", [&] {
        begin_out(out);
        const auto given = read_options(options, "ujoin_ctx_options");
        if (count > 0 && !joinables) fail_invalid("joinables is NULL, count is ", count);
        std::vector<std::shared_ptr<Joinable>> list;
        for (size_t i = 0; i < count; i++) list.push_back(use(joinables[i], cat("joinables[", i, "]").c_str()));
        if (given.hook_option_count > 0 && !given.hook_options)
            fail_invalid("ujoin_ctx_options.hook_options is NULL, hook_option_count is ", given.hook_option_count);
        JoinOptions to;
        for (size_t i = 0; i < given.hook_option_count; i++) {
            const ujoin_hyper &option = given.hook_options[i];
            if (!option.name) fail_invalid("ujoin_ctx_options.hook_options[", i, "].name is NULL");
            to.hook_options.emplace_back(option.name, option.value);
        }
        to.idle_timeout_ms = duration_option(given.idle_timeout_ms, UJOIN_NEVER, "ujoin_ctx_options.idle_timeout_ms");
        to.skew_warning_rounds = given.skew_warning_rounds == 0 ? 1000 : given.skew_warning_rounds;
        to.disabled = flag(given.disabled, "ujoin_ctx_options.disabled");
        to.throw_on_exhausted = flag(given.throw_on_exhausted, "ujoin_ctx_options.throw_on_exhausted");
        to.strict = flag(given.strict, "ujoin_ctx_options.strict");
        give(out, JoinContext::create(std::move(list), std::move(to)));
    });
}

ujoin_status ujoin_ctx_start(ujoin_ctx *ctx) {
    return guard("ujoin_ctx_start", [&] { use(ctx, "ctx")->start(); });
}

ujoin_status ujoin_ctx_finish(ujoin_ctx *ctx) {
    return guard("ujoin_ctx_finish", [&] { use(ctx, "ctx")->finish(); });
}

ujoin_status ujoin_ctx_stop(ujoin_ctx *ctx) {
    return guard("ujoin_ctx_stop", [&] { use(ctx, "ctx")->stop(); });
}

int32_t ujoin_ctx_stopped(ujoin_ctx *ctx) {
    return guard_value<int32_t>("ujoin_ctx_stopped", -1, [&] { return use(ctx, "ctx")->stopped() ? 1 : 0; });
}

void ujoin_ctx_abort(ujoin_ctx *ctx, const char *reason) {
    guard("ujoin_ctx_abort", [&] { use(ctx, "ctx")->abort(text_or(reason, "")); });
}

ujoin_status ujoin_ctx_get_report(const ujoin_ctx *ctx, ujoin_ctx_report *out) {
    return guard("ujoin_ctx_get_report", [&] {
        const JoinReport report = use(ctx, "ctx")->report();
        ujoin_ctx_report to{};
        to.rounds = report.rounds;
        to.shadow_rounds = report.shadow_rounds;
        to.shadow_uses = report.shadow_uses;
        to.shadow_us = report.shadow_ns / 1000;
        to.wait_us = report.wait_ns / 1000;
        to.is_last_joiner = report.is_last_joiner;
        to.authoritative_rank = report.authoritative_rank;
        to.joined = report.joined;
        to.stopped = report.stopped;
        write_struct(out, to, "out");
    });
}

size_t ujoin_ctx_rounds(const ujoin_ctx *ctx, int64_t *out_rounds, size_t capacity) {
    return guard_value<size_t>("ujoin_ctx_rounds", 0, [&] {
        const std::shared_ptr<JoinContext> &of = use(ctx, "ctx");
        if (capacity > 0 && !out_rounds) fail_invalid("out_rounds is NULL, capacity is ", capacity);
        const std::vector<int64_t> rounds = of->rounds();
        std::copy_n(rounds.begin(), std::min(capacity, rounds.size()), out_rounds);
        return rounds.size();
    });
}

void ujoin_ctx_destroy(ujoin_ctx *ctx) {
    if (!ctx) return;
    if (ctx->generation == os::fork_generation()) // a forked child leaves the parent's group alone
        guard("ujoin_ctx_destroy", [&] { ctx->object->abort("its join context was destroyed before it was finished"); });
    drop(ctx);
}
