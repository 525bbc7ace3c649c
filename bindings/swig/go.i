// SPDX-License-Identifier: Apache-2.0
// Go's rules: included by ujoin.i before the header. What SWIG makes of it is raw and lives in an internal package; the
// package that people use (bindings/go) is written by hand on top.
//
// - Handles are C memory: uintptr. Memory of the program is unsafe.Pointer, so that cgo sees it, checks it and keeps it
//   alive. Structs are built in C, by flat functions below.
// - A status comes back together with its text, in the one call: the next call of this goroutine may run on another thread.
// - A call that may wait takes `call`, the address of a Go struct that begins with a flag: the interrupt check below ends
//   the call when another goroutine has set it. Callbacks get the same address, to leave a panic or an error there.

// ------------------------------------------------------------------------------------------------------------ typemaps
%typemap(gotype) void *, const void * "unsafe.Pointer"
%typemap(imtype) void *, const void * "unsafe.Pointer"

%define %handle(TYPE)
%typemap(gotype) TYPE *, const TYPE * "uintptr"
%typemap(imtype) TYPE *, const TYPE * "uintptr"
%enddef
%handle(ujoin_store)
%handle(ujoin_group)
%handle(ujoin_work)
%handle(ujoin_joinable)
%handle(ujoin_ctx)
%handle(ujoin_ddp)
%handle(ujoin_zero)
%handle(ujoin_state)
%handle(ujoin_pctx)

// As imtype uint64, not uintptr: for the latter SWIG gives the C function the status's own 32 bits.
// `described`: a status whose text counts also when it is not an error.
%typemap(gotype) ujoin_status, described "*Failure"
%typemap(imtype) ujoin_status, described "uint64"
%typemap(out) ujoin_status %{ $result = box($1, 0); %}
%typemap(out) described %{ $result = box($1, 1); %}
%typemap(goout) ujoin_status, described %{ $result = TakeFailure(uintptr($1)) %}

// SWIG makes a function of every enumerator, and a class of every struct: consts.go and the flat functions replace them.
%rename("$ignore", %$isenumitem) "";
%rename("$ignore", %$isenum) "";
%rename("$ignore", %$isclass) "";
%rename("$ignore", %$isconstant) "";

// What the flat functions replace.
%define %flat(NAME)
%ignore NAME;
%enddef
%flat(ujoin_last_error) %flat(ujoin_last_errno) %flat(ujoin_last_missing) %flat(ujoin_set_last_error)
%flat(ujoin_status_name) %flat(ujoin_set_interrupt_check) %flat(ujoin_set_log_sink)
%flat(ujoin_store_create) %flat(ujoin_store_prefix) %flat(ujoin_store_set) %flat(ujoin_store_get) %flat(ujoin_store_add)
%flat(ujoin_store_wait)
%flat(ujoin_group_create) %flat(ujoin_group_get_info) %flat(ujoin_group_close)
%flat(ujoin_all_reduce) %flat(ujoin_broadcast) %flat(ujoin_all_gather) %flat(ujoin_reduce_scatter) %flat(ujoin_barrier)
%flat(ujoin_work_wait)
%flat(ujoin_joinable_create) %flat(ujoin_joinable_notify)
%flat(ujoin_ctx_create) %flat(ujoin_ctx_finish) %flat(ujoin_ctx_stopped) %flat(ujoin_ctx_get_report) %flat(ujoin_ctx_rounds)
%flat(ujoin_ddp_create) %flat(ujoin_ddp_forward) %flat(ujoin_ddp_finish) %flat(ujoin_ddp_get_report)
%flat(zero_create) %flat(zero_step) %flat(zero_add_param_group) %flat(zero_get_hyper) %flat(zero_consolidate_state_dict)
%flat(zero_state_dict) %flat(zero_load_state_dict) %flat(zero_save) %flat(zero_load) %flat(zero_get_shard)
%flat(ujoin_state_create) %flat(ujoin_state_set) %flat(ujoin_state_get) %flat(ujoin_state_find)
%flat(pctx_parse_std) %flat(pctx_create) %flat(pctx_set_env) %flat(pctx_set_worker) %flat(pctx_start) %flat(pctx_wait)
%flat(pctx_get_result) %flat(pctx_close)

// What is flat already gets a name of Go's.
%rename(Version) ujoin_version;
%rename(ABIVersion) ujoin_abi_version;
%rename(Backends) ujoin_backends;
%rename(StoreURL) ujoin_store_url;
%rename(StoreAbort) ujoin_store_abort;
%rename(StoreDestroy) ujoin_store_destroy;
%rename(GroupRank) ujoin_group_rank;
%rename(GroupSize) ujoin_group_size;
%rename(GroupAbort) ujoin_group_abort;
%rename(GroupDestroy) ujoin_group_destroy;
%rename(WorkTest) ujoin_work_test;
%rename(WorkAbort) ujoin_work_abort;
%rename(WorkDestroy) ujoin_work_destroy;
%rename(JoinableDestroy) ujoin_joinable_destroy;
%rename(CtxStart) ujoin_ctx_start;
%rename(CtxStop) ujoin_ctx_stop;
%rename(CtxAbort) ujoin_ctx_abort;
%rename(CtxDestroy) ujoin_ctx_destroy;
%rename(DDPJoinable) ujoin_ddp_joinable;
%rename(DDPReady) ujoin_ddp_ready;
%rename(DDPDestroy) ujoin_ddp_destroy;
%rename(ZeroJoinable) zero_joinable;
%rename(ZeroGroupCount) zero_group_count;
%rename(ZeroHyperName) zero_hyper_name;
%rename(ZeroSetHyper) zero_set_hyper;
%rename(ZeroSetGradient) zero_set_gradient;
%rename(ZeroClearGradients) zero_clear_gradients;
%rename(ZeroShardCount) zero_shard_count;
%rename(ZeroDestroy) zero_destroy;
%rename(StateCount) ujoin_state_count;
%rename(StateDestroy) ujoin_state_destroy;
%rename(PctxFailed) pctx_failed;
%rename(PctxFirstFailure) pctx_first_failure;
%rename(PctxReport) pctx_report;
%rename(PctxSignal) pctx_signal;
%rename(PctxAbort) pctx_abort;
%rename(PctxDestroy) pctx_destroy;

// Short functions that never wait, never log and run no callback: Go need not prepare for one.
%insert(cgo_comment) %{
// Memory is passed as bytes: cgo's check of void * walks the whole Go object around it, and refuses numbers that lie in
// a struct with pointers. Numbers hold none.
typedef char *bytes;
#define swig_voidp bytes

#cgo nocallback _wrap_ABIVersion_cujoin
#cgo nocallback _wrap_GroupRank_cujoin
#cgo nocallback _wrap_GroupSize_cujoin
#cgo nocallback _wrap_ZeroGroupCount_cujoin
#cgo nocallback _wrap_ZeroShardCount_cujoin
#cgo nocallback _wrap_StateCount_cujoin
%}

// ----------------------------------------------------------------------------------------- for the C side of the wrapper
%{
#include "bridge.h"
#include <stdlib.h>
#include <string.h>

typedef ujoin_status described;

/* 0 = ok; below 4096: a status that is not an error; else an ujgo_failure, which the Go side frees. */
static uintptr_t box(ujoin_status status, int with_text) {
    static ujgo_failure no_memory = {.status = UJOIN_E_NO_MEMORY, .is_static = 1};
    if (status == UJOIN_OK || (status > 0 && !with_text)) return (uintptr_t)status;
    const char *text = ujoin_last_error();
    size_t length = strlen(text), ranks = ujoin_last_missing(NULL, 0);
    ujgo_failure *failure = malloc(sizeof *failure + ranks * sizeof(int32_t) + length + 1);
    if (!failure) return (uintptr_t)&no_memory;
    *failure = (ujgo_failure){.status = status, .system_errno = ujoin_last_errno(), .rank_count = ranks};
    failure->ranks = (int32_t *)(failure + 1);
    ujoin_last_missing(failure->ranks, ranks);
    failure->text = memcpy(failure->ranks + ranks, text, length + 1);
    return (uintptr_t)failure;
}

/* The call that this thread is in: the Go struct whose flag ends it. Hooks make calls of their own, so calls nest. */
static __thread void *current_call;
static int user_check; /* the program has an interrupt check of its own */

#define BEGIN(call) void *const outer_call = current_call; current_call = (call)
#define END(status) current_call = outer_call; return (status)

static ujoin_status check_interrupt(void *unused) {
    (void)unused;
    if (current_call && __atomic_load_n((int32_t *)current_call, __ATOMIC_ACQUIRE))
        return ujoin_set_last_error(UJOIN_E_CALLBACK, "its context is done");
    return __atomic_load_n(&user_check, __ATOMIC_ACQUIRE) ? ujoinGoInterrupt(current_call) : UJOIN_OK;
}

static ujoin_status main_hook(void *user, const ujoin_hook_args *args) {
    return ujoinGoHook((uintptr_t)user, 0, (void *)args, current_call);
}
static ujoin_status post_hook(void *user, const ujoin_hook_args *args) {
    return ujoinGoHook((uintptr_t)user, 1, (void *)args, current_call);
}
static ujoin_status closure(void *user) { return ujoinGoClosure((uintptr_t)user, current_call); }
static void release(void *user) { ujoinGoRelease((uintptr_t)user); }
static void log_line(void *user, ujoin_log_level level, const char *text) {
    ujoinGoLog((uintptr_t)user, level, (char *)text);
}

/* Go has no NULL string: an empty one is the default. */
static const char *or_null(const char *text) { return text && *text ? text : NULL; }

/* A list of texts arrives as one block, each text with its NUL. NULL if there is no memory. */
static const char **split(const void *block, size_t count) {
    const char **texts = malloc((count + 1) * sizeof *texts), *next = block;
    for (size_t i = 0; texts && i < count; i++, next += strlen(next) + 1) texts[i] = next;
    return texts;
}

static ujoin_hyper *hypers(const void *names, const double *values, size_t count) {
    ujoin_hyper *list = calloc(count + 1, sizeof *list);
    const char *next = names;
    for (size_t i = 0; list && i < count; i++, next += strlen(next) + 1) list[i] = (ujoin_hyper){next, values[i]};
    return list;
}

static ujoin_status no_memory(void) { return ujoin_set_last_error(UJOIN_E_NO_MEMORY, "no memory for the arguments"); }

/* The arrays of a call with parameters: one value per parameter, shapes one after the other. The names are one block. */
static ujoin_param *params_of(size_t count, const void *names, void **data, void **grad, const int64_t *facts,
                              const int64_t *shapes) {
    ujoin_param *list = calloc(count + 1, sizeof *list);
    const char *name = names;
    for (size_t i = 0; list && i < count; i++, name += strlen(name) + 1) {
        const int64_t *fact = facts + 3 * i;
        list[i] = (ujoin_param){.name = or_null(name), .data = data[i], .grad = grad[i], .count = (size_t)fact[0],
                                .dtype = (ujoin_dtype)fact[1], .ndim = (int32_t)fact[2]};
        if (fact[2] > 0) list[i].shape = shapes;
        shapes += fact[2];
    }
    return list;
}
%}

// -------------------------------------------------------------------------------------------------------- flat functions
typedef ujoin_status described;

%inline %{
const char *StatusName(int status) { return ujoin_status_name(status); }
ujoin_status InstallInterruptCheck(void) { return ujoin_set_interrupt_check(check_interrupt, NULL, NULL); }
void EnableUserCheck(int on) { __atomic_store_n(&user_check, on, __ATOMIC_RELEASE); }

/* user 0: removes the sink. */
ujoin_status SetLogSink(int level, uintptr_t user) {
    return ujoin_set_log_sink(level, user ? log_line : NULL, (void *)user, user ? release : NULL);
}
/* Leaves a failure on this thread and fetches it, as a failing call does. */
ujoin_status Fail(int status, const char *text) { return ujoin_set_last_error(status, text); }

/* ------------------------------------------------------------------------------------------------------------- stores */
ujoin_status StoreCreate(const char *url, const char *secret, int has_secret, int64_t timeout_ms, int listen, void *call,
                         void *out) {
    ujoin_store_options options = {.size = sizeof options, .secret = has_secret ? secret : NULL, .timeout_ms = timeout_ms,
                                   .listen = listen};
    BEGIN(call);
    ujoin_status status = ujoin_store_create(url, &options, out);
    END(status);
}
ujoin_status StorePrefix(ujoin_store *store, const char *prefix, void *out) {
    return ujoin_store_prefix(store, prefix, out);
}
ujoin_status StoreSet(ujoin_store *store, const char *key, const void *data, size_t size, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_store_set(store, key, data, size);
    END(status);
}
described StoreGet(ujoin_store *store, const char *key, int64_t timeout_ms, void *data, size_t capacity, void *out_size,
                   void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_store_get(store, key, timeout_ms, data, capacity, out_size);
    END(status);
}
ujoin_status StoreAdd(ujoin_store *store, const char *key, int64_t amount, void *out_value, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_store_add(store, key, amount, out_value);
    END(status);
}
described StoreWait(ujoin_store *store, const void *keys, size_t count, int64_t timeout_ms, void *call) {
    const char **list = split(keys, count);
    BEGIN(call);
    ujoin_status status = list ? ujoin_store_wait(store, list, count, timeout_ms) : no_memory();
    free(list);
    END(status);
}

/* ------------------------------------------------------------------------------------------------------------- groups */
ujoin_status GroupCreate(const char *rendezvous, const char *backend, const char *name, ujoin_store *store, int rank,
                         int world_size, int64_t timeout_ms, int64_t rendezvous_timeout_ms, void *call, void *out) {
    ujoin_group_options options = {.size = sizeof options,
                                   .rendezvous = or_null(rendezvous),
                                   .backend = or_null(backend),
                                   .name = or_null(name),
                                   .store = store,
                                   .rank = rank,
                                   .world_size = world_size,
                                   .timeout_ms = timeout_ms,
                                   .rendezvous_timeout_ms = rendezvous_timeout_ms};
    BEGIN(call);
    ujoin_status status = ujoin_group_create(&options, out);
    END(status);
}
/* facts: rank, size, local rank, local size, progress */
ujoin_status GroupInfo(ujoin_group *group, void *facts) {
    ujoin_group_info info = {.size = sizeof info};
    ujoin_status status = ujoin_group_get_info(group, &info);
    memcpy(facts, (int64_t[]){info.rank, info.world_size, info.local_rank, info.local_size, info.progress},
           5 * sizeof(int64_t));
    return status;
}
const char *GroupBackend(ujoin_group *group) {
    ujoin_group_info info = {.size = sizeof info};
    return ujoin_group_get_info(group, &info) == UJOIN_OK ? info.backend : "";
}
ujoin_status GroupClose(ujoin_group *group, int64_t timeout_ms, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_group_close(group, timeout_ms);
    END(status);
}

/* -------------------------------------------------------------------------------------------------------- collectives */
/* kind: 1 all_reduce, 2 broadcast (argument = root), 3 all_gather, 4 reduce_scatter (argument = reduction), 5 barrier.
 * out_work NULL: returns when done. release_handle 0: no notice. */
ujoin_status Collective(int kind, ujoin_group *group, const void *send, size_t send_count, void *recv, size_t recv_count,
                        int dtype, int argument, int64_t timeout_ms, uintptr_t release_handle, void *call, void *out_work) {
    ujoin_op_options options = {.size = sizeof options, .timeout_ms = timeout_ms};
    ujoin_const_buffer from = {.data = send, .count = send_count, .dtype = dtype};
    ujoin_buffer to = {.data = recv, .count = recv_count, .dtype = dtype};
    const ujoin_const_buffer *given = send ? &from : NULL; /* none: in place */
    ujoin_status status;
    if (release_handle) {
        options.release = release;
        options.release_data = (void *)release_handle;
    }
    BEGIN(call);
    switch (kind) {
    case 1:
        status = ujoin_all_reduce(group, given, &to, argument, &options, out_work);
        break;
    case 2:
        status = ujoin_broadcast(group, &to, argument, &options, out_work);
        break;
    case 3:
        status = ujoin_all_gather(group, given, &to, &options, out_work);
        break;
    case 4:
        status = ujoin_reduce_scatter(group, &from, &to, argument, &options, out_work);
        break;
    default:
        status = ujoin_barrier(group, &options);
    }
    END(status);
}
ujoin_status WorkWait(ujoin_work *work, int64_t timeout_ms, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_work_wait(work, timeout_ms);
    END(status);
}

/* --------------------------------------------------------------------------------------------------------------- join */
ujoin_status JoinableCreate(ujoin_group *group, const char *name, const void *options, size_t count, uintptr_t user,
                            void *out) {
    const char **list = split(options, count);
    ujoin_hooks hooks = {.size = sizeof hooks,
                         .main_hook = main_hook,
                         .post_hook = post_hook,
                         .user_data = (void *)user,
                         .destroy = release,
                         .name = or_null(name),
                         .options = list,
                         .option_count = count};
    if (!list) {
        release((void *)user);
        return no_memory();
    }
    ujoin_status status = ujoin_joinable_create(group, &hooks, out);
    free(list);
    return status;
}
ujoin_status JoinableNotify(ujoin_joinable *joinable, void *out_active, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_joinable_notify(joinable, out_active);
    END(status);
}
/* flags: disabled, throw, strict */
ujoin_status CtxCreate(const void *joinables, size_t count, int64_t idle_ms, int64_t skew, const void *names,
                       const void *values, size_t option_count, const void *flags, void *out) {
    const int64_t *flag = flags;
    ujoin_hyper *given = hypers(names, values, option_count);
    ujoin_ctx_options options = {.size = sizeof options,
                                 .idle_timeout_ms = idle_ms,
                                 .skew_warning_rounds = skew,
                                 .hook_options = given,
                                 .hook_option_count = option_count,
                                 .disabled = (int32_t)flag[0],
                                 .throw_on_exhausted = (int32_t)flag[1],
                                 .strict = (int32_t)flag[2]};
    ujoin_status status =
        given ? ujoin_ctx_create((ujoin_joinable *const *)joinables, count, &options, out) : no_memory();
    free(given);
    return status;
}
ujoin_status CtxFinish(ujoin_ctx *ctx, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_ctx_finish(ctx);
    END(status);
}
/* PENDING stands for "not stopped": one call answers both the question and the error. */
ujoin_status CtxStopped(ujoin_ctx *ctx, void *call) {
    BEGIN(call);
    int32_t stopped = ujoin_ctx_stopped(ctx);
    ujoin_status status = stopped > 0 ? UJOIN_OK : stopped == 0 ? UJOIN_PENDING : UJOIN_E_STATE;
    END(status);
}
/* facts: the fields of ujoin_ctx_report in their order */
ujoin_status CtxReport(ujoin_ctx *ctx, void *facts) {
    ujoin_ctx_report r = {.size = sizeof r};
    ujoin_status status = ujoin_ctx_get_report(ctx, &r);
    memcpy(facts,
           (int64_t[]){r.rounds, r.shadow_rounds, r.shadow_uses, r.shadow_us, r.wait_us, r.is_last_joiner,
                       r.authoritative_rank, r.joined, r.stopped},
           9 * sizeof(int64_t));
    return status;
}
size_t CtxRounds(ujoin_ctx *ctx, void *rounds, size_t capacity) { return ujoin_ctx_rounds(ctx, rounds, capacity); }

/* ---------------------------------------------------------------------------------------------------------------- ddp */
/* facts of the parameters: count, dtype, ndim each; those of the options: division, gradient kind, no initial broadcast,
 * source rank, first bucket, bucket, idle time-out. */
ujoin_status DDPCreate(ujoin_group *group, size_t count, const void *names, void *data, void *grad, const void *facts,
                       const void *shapes, const void *options, uintptr_t release_handle, void *call, void *out) {
    const int64_t *o = options;
    ujoin_ddp_options given = {.size = sizeof given,
                               .division = (ujoin_division)o[0],
                               .gradient_kind = (ujoin_gradient_kind)o[1],
                               .no_initial_broadcast = (int32_t)o[2],
                               .source_rank = (int32_t)o[3],
                               .first_bucket_bytes = (size_t)o[4],
                               .bucket_bytes = (size_t)o[5],
                               .idle_timeout_ms = o[6],
                               .release = release,
                               .release_data = (void *)release_handle};
    ujoin_param *params = params_of(count, names, data, grad, facts, shapes);
    if (!params) release((void *)release_handle);
    BEGIN(call);
    ujoin_status status = params ? ujoin_ddp_create(group, params, count, &given, out) : no_memory();
    free(params);
    END(status);
}
ujoin_status DDPForward(ujoin_ddp *ddp, double samples, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_ddp_forward(ddp, samples);
    END(status);
}
ujoin_status DDPFinish(ujoin_ddp *ddp, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_ddp_finish(ddp);
    END(status);
}
/* facts: iterations, reduce_us, exposed_us, buckets, joined uneven; numbers: divisor, samples */
ujoin_status DDPReport(ujoin_ddp *ddp, void *facts, void *numbers) {
    ujoin_ddp_report r = {.size = sizeof r};
    ujoin_status status = ujoin_ddp_get_report(ddp, &r);
    memcpy(facts, (int64_t[]){r.iterations, r.reduce_us, r.exposed_us, (int64_t)r.bucket_count, r.joined_uneven},
           5 * sizeof(int64_t));
    memcpy(numbers, (double[]){r.divisor, r.samples}, 2 * sizeof(double));
    return status;
}

/* --------------------------------------------------------------------------------------------------------------- zero */
ujoin_status ZeroCreate(ujoin_group *group, int optimizer, size_t count, const void *names, void *data, void *grad,
                        const void *facts, const void *shapes, const void *hyper_names, const void *hyper_values,
                        size_t hyper_count, int64_t idle_ms, uintptr_t release_handle, void *call, void *out) {
    ujoin_param *params = params_of(count, names, data, grad, facts, shapes);
    ujoin_hyper *hyper = hypers(hyper_names, hyper_values, hyper_count);
    ujoin_zero_options options = {.size = sizeof options,
                                  .hyper = hyper,
                                  .hyper_count = hyper_count,
                                  .idle_timeout_ms = idle_ms,
                                  .release = release,
                                  .release_data = (void *)release_handle};
    int ready = params && hyper;
    if (!ready) release((void *)release_handle);
    BEGIN(call);
    ujoin_status status = ready ? zero_create(group, optimizer, params, count, &options, out) : no_memory();
    free(params);
    free(hyper);
    END(status);
}
ujoin_status ZeroAddParamGroup(ujoin_zero *zero, size_t count, const void *names, void *data, void *grad, const void *facts,
                               const void *shapes, const void *hyper_names, const void *hyper_values, size_t hyper_count,
                               void *call) {
    ujoin_param *params = params_of(count, names, data, grad, facts, shapes);
    ujoin_hyper *hyper = hypers(hyper_names, hyper_values, hyper_count);
    BEGIN(call);
    ujoin_status status =
        params && hyper ? zero_add_param_group(zero, params, count, hyper, hyper_count) : no_memory();
    free(params);
    free(hyper);
    END(status);
}
/* closure_handle 0: none */
ujoin_status ZeroStep(ujoin_zero *zero, uintptr_t closure_handle, void *call) {
    ujoin_step_options options = {
        .size = sizeof options, .closure = closure_handle ? closure : NULL, .closure_data = (void *)closure_handle};
    BEGIN(call);
    ujoin_status status = zero_step(zero, &options);
    END(status);
}
ujoin_status ZeroGetHyper(ujoin_zero *zero, int group, const char *name, void *out_value) {
    return zero_get_hyper(zero, group, name, out_value);
}
ujoin_status ZeroConsolidate(ujoin_zero *zero, int to, void *call) {
    BEGIN(call);
    ujoin_status status = zero_consolidate_state_dict(zero, to);
    END(status);
}
ujoin_status ZeroStateDict(ujoin_zero *zero, void *out) { return zero_state_dict(zero, out); }
ujoin_status ZeroLoadStateDict(ujoin_zero *zero, ujoin_state *state, void *call) {
    BEGIN(call);
    ujoin_status status = zero_load_state_dict(zero, state);
    END(status);
}
ujoin_status ZeroSave(ujoin_zero *zero, const char *path, ujoin_state *extra, int parts, int no_sync, void *call) {
    ujoin_save_options options = {.size = sizeof options, .extra = extra, .parts = parts, .no_sync = no_sync};
    BEGIN(call);
    ujoin_status status = zero_save(zero, path, &options);
    END(status);
}
ujoin_status ZeroLoad(ujoin_zero *zero, const char *path, int parts, void *call, void *out) {
    ujoin_save_options options = {.size = sizeof options, .parts = parts};
    BEGIN(call);
    ujoin_status status = zero_load(zero, path, &options, out);
    END(status);
}
/* facts: parameter, offset, count, rank, param group */
ujoin_status ZeroShard(ujoin_zero *zero, size_t index, void *facts) {
    ujoin_shard s = {.size = sizeof s};
    ujoin_status status = zero_get_shard(zero, index, &s);
    memcpy(facts, (int64_t[]){(int64_t)s.param, (int64_t)s.offset, (int64_t)s.count, s.rank, s.group}, 5 * sizeof(int64_t));
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- state */
ujoin_status StateCreate(void *out) { return ujoin_state_create(out); }
/* facts: kind, owner, param group, dtype, ndim, bytes */
ujoin_status StateSet(ujoin_state *state, const char *param, const char *key, const void *facts, const void *shape,
                      const void *data, double number) {
    const int64_t *f = facts;
    ujoin_item item = {.size = sizeof item,
                       .param = or_null(param),
                       .key = key,
                       .data = data,
                       .bytes = (size_t)f[5],
                       .shape = shape,
                       .number = number,
                       .kind = (ujoin_item_kind)f[0],
                       .dtype = (ujoin_dtype)f[3],
                       .ndim = (int32_t)f[4],
                       .owner = (ujoin_item_owner)f[1],
                       .group = (int32_t)f[2]};
    return ujoin_state_set(state, &item);
}
/* Fills *out with an item (by its key if that is not empty, else by its index), for ItemParam and ItemKey. */
ujoin_status StateItem(ujoin_state *state, size_t index, const char *key, int by_key, void *out) {
    ujoin_item *item = out;
    *item = (ujoin_item){.size = sizeof *item};
    return by_key ? ujoin_state_find(state, key, item) : ujoin_state_get(state, index, item);
}

/* ---------------------------------------------------------------------------------------------------- process contexts */
ujoin_status PctxParseStd(const char *text, void *values, size_t nprocs) { return pctx_parse_std(text, values, nprocs); }
/* texts: name, program, log directory, run id, prefix; facts: grace, drain, partial line, nprocs, first rank, restart
 * count, redirects, tee, containment, same session */
ujoin_status PctxCreate(const void *texts, const void *args, size_t arg_count, const void *facts, void *out) {
    const int64_t *f = facts;
    const char **text = split(texts, 5), **list = split(args, arg_count);
    ujoin_status status = UJOIN_E_NO_MEMORY;
    if (text && list) {
        ujoin_pctx_spec spec = {.size = sizeof spec,
                                .name = or_null(text[0]),
                                .program = or_null(text[1]),
                                .args = list,
                                .arg_count = arg_count,
                                .log_dir = or_null(text[2]),
                                .run_id = or_null(text[3]),
                                .prefix = or_null(text[4]),
                                .grace_ms = f[0],
                                .drain_ms = f[1],
                                .partial_line_ms = f[2],
                                .nprocs = (int32_t)f[3],
                                .first_rank = (int32_t)f[4],
                                .restart_count = (int32_t)f[5],
                                .redirects = (ujoin_std)f[6],
                                .tee = (ujoin_std)f[7],
                                .containment = (ujoin_containment)f[8],
                                .same_session = (int32_t)f[9]};
        status = pctx_create(&spec, out);
    } else {
        no_memory();
    }
    free(text);
    free(list);
    return status;
}
ujoin_status PctxSetEnv(ujoin_pctx *pctx, int rank, const char *name, const char *value, int unset) {
    return pctx_set_env(pctx, rank, name, unset ? NULL : value);
}
ujoin_status PctxSetWorker(ujoin_pctx *pctx, int rank, const char *program, const void *args, size_t arg_count, int has_args,
                           const char *directory, int redirects, int tee) {
    const char **list = split(args, arg_count);
    ujoin_worker worker = {.size = sizeof worker,
                           .program = or_null(program),
                           .args = has_args ? list : NULL,
                           .arg_count = arg_count,
                           .directory = or_null(directory),
                           .redirects = redirects,
                           .tee = tee};
    ujoin_status status = list ? pctx_set_worker(pctx, rank, &worker) : no_memory();
    free(list);
    return status;
}
ujoin_status PctxStart(ujoin_pctx *pctx, void *call) {
    BEGIN(call);
    ujoin_status status = pctx_start(pctx);
    END(status);
}
ujoin_status PctxWait(ujoin_pctx *pctx, int64_t timeout_ms, void *call) {
    BEGIN(call);
    ujoin_status status = pctx_wait(pctx, timeout_ms);
    END(status);
}
/* Fills *out, for ResultPath. */
ujoin_status PctxResult(ujoin_pctx *pctx, int rank, void *out) {
    ujoin_worker_result *result = out;
    *result = (ujoin_worker_result){.size = sizeof *result};
    return pctx_get_result(pctx, rank, result);
}
ujoin_status PctxClose(ujoin_pctx *pctx, int signal, int64_t grace_ms, void *call) {
    BEGIN(call);
    ujoin_status status = pctx_close(pctx, signal, grace_ms);
    END(status);
}
%}
