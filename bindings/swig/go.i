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
%handle(ujoin_scaler)
%handle(ujoin_memory)
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
%flat(ujoin_group_create) %flat(ujoin_group_split) %flat(ujoin_group_get_info) %flat(ujoin_group_close)
%flat(ujoin_all_reduce) %flat(ujoin_broadcast) %flat(ujoin_all_gather) %flat(ujoin_reduce_scatter) %flat(ujoin_submit)
%flat(ujoin_barrier)
%flat(ujoin_work_wait) %flat(ujoin_work_contributors)
%flat(ujoin_memory_create) %flat(ujoin_memory_data)
%flat(ujoin_joinable_create) %flat(ujoin_joinable_notify)
%flat(ujoin_ctx_create) %flat(ujoin_ctx_finish) %flat(ujoin_ctx_stopped) %flat(ujoin_ctx_get_report) %flat(ujoin_ctx_rounds)
%flat(ujoin_ddp_create) %flat(ujoin_ddp_forward) %flat(ujoin_ddp_ready) %flat(ujoin_ddp_finish)
%flat(ujoin_ddp_set_comm_hook) %flat(ujoin_ddp_set_buffer_hook) %flat(ujoin_ddp_gradient) %flat(ujoin_ddp_used)
%flat(ujoin_ddp_get_report)
%flat(zero_create) %flat(zero_step) %flat(zero_add_param_group) %flat(zero_get_hyper) %flat(zero_consolidate_state_dict)
%flat(zero_state_dict) %flat(zero_load_state_dict) %flat(zero_save) %flat(zero_load) %flat(zero_get_shard)
%flat(zero_clip_grad_norm) %flat(zero_param_data) %flat(zero_get_memory) %flat(zero_schedule) %flat(zero_scaler_create) %flat(zero_scaler_get)
%flat(ujoin_state_create) %flat(ujoin_state_set) %flat(ujoin_state_get) %flat(ujoin_state_find)
%flat(pctx_parse_std) %flat(pctx_create) %flat(pctx_set_env) %flat(pctx_set_worker) %flat(pctx_start) %flat(pctx_wait)
%flat(pctx_get_result) %flat(pctx_health) %flat(pctx_close) %flat(pctx_register) %flat(pctx_worker_main) %flat(pctx_return) %flat(pctx_record)
%flat(pctx_record_error) %flat(pctx_record_crashes)

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
%rename(DDPSetSync) ujoin_ddp_set_sync;
%rename(DDPDestroy) ujoin_ddp_destroy;
%rename(ZeroJoinable) zero_joinable;
%rename(ZeroGroupCount) zero_group_count;
%rename(ZeroHyperName) zero_hyper_name;
%rename(ZeroSetHyper) zero_set_hyper;
%rename(ZeroSetGradient) zero_set_gradient;
%rename(ZeroSetFrozen) zero_set_frozen;
%rename(ZeroClearGradients) zero_clear_gradients;
%rename(ZeroShardCount) zero_shard_count;
%rename(ZeroDestroy) zero_destroy;
%rename(MemorySize) ujoin_memory_size;
%rename(MemoryDestroy) ujoin_memory_destroy;
%rename(ScalerScale) zero_scaler_scale;
%rename(ScalerDestroy) zero_scaler_destroy;
%rename(StateCount) ujoin_state_count;
%rename(StateDestroy) ujoin_state_destroy;
%rename(PctxFailed) pctx_failed;
%rename(PctxFirstFailure) pctx_first_failure;
%rename(PctxReport) pctx_report;
%rename(PctxReportJSON) pctx_report_json;
%rename(PctxSignal) pctx_signal;
%rename(PctxStop) pctx_stop;
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
static ujoin_status bucket_start(void *user, const ujoin_bucket *bucket, ujoin_work **out_work) {
    return ujoinGoBucket((uintptr_t)user, 0, (void *)bucket, out_work, current_call);
}
static ujoin_status bucket_then(void *user, const ujoin_bucket *bucket, ujoin_work **out_work) {
    return ujoinGoBucket((uintptr_t)user, 1, (void *)bucket, out_work, current_call);
}
static ujoin_status rule_step(void *user, const ujoin_rule_args *args) {
    return ujoinGoRule((uintptr_t)user, 0, (void *)args, current_call);
}
static ujoin_status rule_init(void *user, const ujoin_rule_args *args) {
    return ujoinGoRule((uintptr_t)user, 1, (void *)args, current_call);
}
static ujoin_status output(void *user, int32_t rank, ujoin_std stream, const char *data, size_t size) {
    return ujoinGoOutput((uintptr_t)user, rank, stream, (char *)data, size, current_call);
}
static ujoin_status worker(void *user, const ujoin_worker_args *args) {
    return ujoinGoWorker((uintptr_t)user, (void *)args);
}
static void release(void *user) { ujoinGoRelease((uintptr_t)user); }
static void release_if(uintptr_t user) {
    if (user) release((void *)user);
}
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
        const int64_t *fact = facts + 5 * i;
        list[i] = (ujoin_param){.name = or_null(name), .data = data[i], .grad = grad[i], .count = (size_t)fact[0],
                                .dtype = (ujoin_dtype)fact[1], .grad_dtype = (ujoin_dtype)fact[2],
                                .flags = (int32_t)fact[3], .ndim = (int32_t)fact[4]};
        if (fact[4] > 0) list[i].shape = shapes;
        shapes += fact[4];
    }
    return list;
}

/* facts: count and type of each */
static ujoin_buffer *buffers_of(size_t count, void **data, const int64_t *facts) {
    ujoin_buffer *list = calloc(count + 1, sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        list[i] = (ujoin_buffer){.data = data[i], .count = (size_t)facts[2 * i], .dtype = (ujoin_dtype)facts[2 * i + 1]};
    return list;
}

static ujoin_group_options group_options(const char *rendezvous, const char *backend, const char *name, ujoin_store *store,
                                         int rank, int world_size, int64_t timeout_ms, int64_t rendezvous_timeout_ms,
                                         int shadow, int threads) {
    return (ujoin_group_options){.size = sizeof(ujoin_group_options),
                                 .rendezvous = or_null(rendezvous),
                                 .backend = or_null(backend),
                                 .name = or_null(name),
                                 .store = store,
                                 .rank = rank,
                                 .world_size = world_size,
                                 .timeout_ms = timeout_ms,
                                 .rendezvous_timeout_ms = rendezvous_timeout_ms,
                                 .shadow_collectives = shadow,
                                 .threads = threads};
}

/* data: where send and recv of each lie. facts of each: kind, reduction, peer, type, the elements of send and of recv (-1: not
 * given), how many counts of send and of recv it has; the counts of all come one after the other. */
static ujoin_op *ops_of(size_t count, void **data, const int64_t *facts, const size_t *counts) {
    ujoin_op *list = calloc(count + 1, sizeof *list);
    for (size_t i = 0; list && i < count; i++) {
        const int64_t *fact = facts + 8 * i;
        list[i] = (ujoin_op){.size = sizeof *list, .kind = (ujoin_op_kind)fact[0], .reduce = (ujoin_reduce)fact[1],
                             .peer = (int32_t)fact[2]};
        if (fact[4] >= 0)
            list[i].send = (ujoin_const_buffer){.data = data[2 * i], .count = (size_t)fact[4], .dtype = (ujoin_dtype)fact[3]};
        if (fact[5] >= 0)
            list[i].recv = (ujoin_buffer){.data = data[2 * i + 1], .count = (size_t)fact[5], .dtype = (ujoin_dtype)fact[3]};
        if (fact[6] > 0) list[i].send_counts = counts;
        counts += fact[6];
        if (fact[7] > 0) list[i].recv_counts = counts;
        counts += fact[7];
    }
    return list;
}

static ujoin_comm_hook hook_of(int kind, uintptr_t user, int has_then, int64_t start_iteration, int rank) {
    ujoin_comm_hook hook = {.size = sizeof hook, .start_iteration = start_iteration, .kind = kind, .rank = rank};
    if (!user) return hook;
    hook.start = bucket_start;
    hook.then = has_then ? bucket_then : NULL;
    hook.user_data = (void *)user;
    hook.destroy = release;
    return hook;
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
ujoin_status StoreCreate(const char *url, const char *secret, int64_t timeout_ms, int listen, void *call, void *out) {
    ujoin_store_options options = {.size = sizeof options, .secret = or_null(secret), .timeout_ms = timeout_ms,
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
                         int world_size, int64_t timeout_ms, int64_t rendezvous_timeout_ms, int shadow, int threads,
                         void *call, void *out) {
    ujoin_group_options options = group_options(rendezvous, backend, name, store, rank, world_size, timeout_ms,
                                                rendezvous_timeout_ms, shadow, threads);
    BEGIN(call);
    ujoin_status status = ujoin_group_create(&options, out);
    END(status);
}
ujoin_status GroupSplit(ujoin_group *group, int color, int key, const char *rendezvous, const char *backend,
                        const char *name, ujoin_store *store, int rank, int world_size, int64_t timeout_ms,
                        int64_t rendezvous_timeout_ms, int shadow, int threads, void *call, void *out) {
    ujoin_group_options options = group_options(rendezvous, backend, name, store, rank, world_size, timeout_ms,
                                                rendezvous_timeout_ms, shadow, threads);
    BEGIN(call);
    ujoin_status status = ujoin_group_split(group, color, key, &options, out);
    END(status);
}
/* facts: rank, size, local rank, local size, progress, threads */
ujoin_status GroupInfo(ujoin_group *group, void *facts) {
    ujoin_group_info info = {.size = sizeof info};
    ujoin_status status = ujoin_group_get_info(group, &info);
    memcpy(facts,
           (int64_t[]){info.rank, info.world_size, info.local_rank, info.local_size, info.progress, info.threads},
           6 * sizeof(int64_t));
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
/* release_handle as above; the arrays are described at ops_of. */
ujoin_status Submit(ujoin_group *group, size_t count, void *data, const void *facts, const void *counts, int64_t timeout_ms,
                    uintptr_t release_handle, void *call, void *out_work) {
    ujoin_op_options options = {.size = sizeof options, .timeout_ms = timeout_ms};
    ujoin_op *ops = ops_of(count, data, facts, counts);
    if (!ops) {
        release_if(release_handle);
        return no_memory();
    }
    if (release_handle) {
        options.release = release;
        options.release_data = (void *)release_handle;
    }
    BEGIN(call);
    ujoin_status status = ujoin_submit(group, ops, count, &options, out_work);
    free(ops);
    END(status);
}
ujoin_status WorkWait(ujoin_work *work, int64_t timeout_ms, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_work_wait(work, timeout_ms);
    END(status);
}

size_t WorkContributors(ujoin_work *work, void *ranks, size_t capacity) {
    return ujoin_work_contributors(work, ranks, capacity);
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
/* facts of the parameters: count, dtype, gradient's dtype, flags, ndim each; those of the options: division, gradient kind,
 * no initial broadcast, source rank, first bucket, bucket, idle time-out, find unused, static graph, bucket view, no buffer
 * broadcast, parameters released. */
ujoin_status DDPCreate(ujoin_group *group, size_t count, const void *names, void *data, void *grad, const void *facts,
                       const void *shapes, size_t buffer_count, void *buffer_data, const void *buffer_facts,
                       const void *options, uintptr_t release_handle, void *call, void *out) {
    const int64_t *o = options;
    ujoin_param *params = params_of(count, names, data, grad, facts, shapes);
    ujoin_buffer *buffers = buffers_of(buffer_count, buffer_data, buffer_facts);
    ujoin_ddp_options given = {.size = sizeof given,
                               .division = (ujoin_division)o[0],
                               .gradient_kind = (ujoin_gradient_kind)o[1],
                               .no_initial_broadcast = (int32_t)o[2],
                               .source_rank = (int32_t)o[3],
                               .first_bucket_bytes = (size_t)o[4],
                               .bucket_bytes = (size_t)o[5],
                               .idle_timeout_ms = o[6],
                               .find_unused = (int32_t)o[7],
                               .static_graph = (int32_t)o[8],
                               .bucket_view = (int32_t)o[9],
                               .no_buffer_broadcast = (int32_t)o[10],
                               .gradient_sync = (ujoin_gradient_sync)o[11],
                               .params_released_on_ready = (int32_t)o[12],
                               .buffers = buffers,
                               .buffer_count = buffer_count,
                               .release = release,
                               .release_data = (void *)release_handle};
    int ready = params && buffers;
    if (!ready) release((void *)release_handle);
    BEGIN(call);
    ujoin_status status = ready ? ujoin_ddp_create(group, params, count, &given, out) : no_memory();
    free(params);
    free(buffers);
    END(status);
}
ujoin_status MemoryCreate(ujoin_group *group, size_t bytes, int one_per_host, void *call, void *out) {
    ujoin_memory_options options = {.size = sizeof options, .one_per_host = one_per_host};
    BEGIN(call);
    ujoin_status status = ujoin_memory_create(group, bytes, &options, out);
    END(status);
}
void MemoryData(ujoin_memory *memory, void *out) { *(void **)out = ujoin_memory_data(memory); }
ujoin_status DDPForward(ujoin_ddp *ddp, double samples, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_ddp_forward(ddp, samples);
    END(status);
}
ujoin_status DDPReady(ujoin_ddp *ddp, size_t index, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_ddp_ready(ddp, index);
    END(status);
}
ujoin_status DDPFinish(ujoin_ddp *ddp, void *call) {
    BEGIN(call);
    ujoin_status status = ujoin_ddp_finish(ddp);
    END(status);
}
/* user 0: none of the program's functions. The hook is owned from here on. */
ujoin_status DDPSetCommHook(ujoin_ddp *ddp, int kind, uintptr_t user, int has_then, int64_t start_iteration, int rank) {
    ujoin_comm_hook hook = hook_of(kind, user, has_then, start_iteration, rank);
    return ujoin_ddp_set_comm_hook(ddp, &hook);
}
ujoin_status DDPSetBufferHook(ujoin_ddp *ddp, int time, int kind, uintptr_t user, int has_then, int64_t start_iteration,
                              int rank) {
    ujoin_comm_hook hook = hook_of(kind, user, has_then, start_iteration, rank);
    return ujoin_ddp_set_buffer_hook(ddp, time, &hook);
}
void DDPGradient(ujoin_ddp *ddp, size_t index, void *out) { *(void **)out = ujoin_ddp_gradient(ddp, index); }
size_t DDPUsed(ujoin_ddp *ddp, void *ranks, size_t capacity) { return ujoin_ddp_used(ddp, ranks, capacity); }
/* facts: iterations, reduce_us, exposed_us, buckets, joined uneven, rebuilt; numbers: divisor, samples */
ujoin_status DDPReport(ujoin_ddp *ddp, void *facts, void *numbers) {
    ujoin_ddp_report r = {.size = sizeof r};
    ujoin_status status = ujoin_ddp_get_report(ddp, &r);
    memcpy(facts,
           (int64_t[]){r.iterations, r.reduce_us, r.exposed_us, (int64_t)r.bucket_count, r.joined_uneven, r.rebuilt},
           6 * sizeof(int64_t));
    memcpy(numbers, (double[]){r.divisor, r.samples}, 2 * sizeof(double));
    return status;
}

/* --------------------------------------------------------------------------------------------------------------- zero */
/* facts of the options: idle time-out, seed, balance trainable, no master copy, stochastic rounding, partition, time-out of
 * consolidation, bucket view, rule per tensor. ddp may be NULL. rule_user 0: none of the program's own; its hyper-parameters are in their
 * order. The rule is owned from here on. */
ujoin_status ZeroCreate(ujoin_group *group, int optimizer, size_t count, const void *names, void *data, void *grad,
                        const void *facts, const void *shapes, const void *hyper_names, const void *hyper_values,
                        size_t hyper_count, const void *options, ujoin_ddp *ddp, const char *rule_name,
                        const void *state_names,
                        size_t state_count, const void *rule_hyper_names, const void *rule_hyper_values,
                        size_t rule_hyper_count, int has_init, uintptr_t rule_user, uintptr_t release_handle, void *call,
                        void *out) {
    const int64_t *o = options;
    ujoin_param *params = params_of(count, names, data, grad, facts, shapes);
    ujoin_hyper *hyper = hypers(hyper_names, hyper_values, hyper_count);
    ujoin_hyper *rule_hyper = hypers(rule_hyper_names, rule_hyper_values, rule_hyper_count);
    const char **states = split(state_names, state_count);
    ujoin_rule rule = {.size = sizeof rule,
                       .name = rule_name,
                       .step = rule_step,
                       .init = has_init ? rule_init : NULL,
                       .state_names = states,
                       .state_count = state_count,
                       .hyper = rule_hyper,
                       .hyper_count = rule_hyper_count,
                       .user_data = (void *)rule_user,
                       .destroy = release,
                       .per_tensor = (int32_t)o[8]};
    ujoin_zero_options given = {.size = sizeof given,
                                .hyper = hyper,
                                .hyper_count = hyper_count,
                                .idle_timeout_ms = o[0],
                                .release = release,
                                .release_data = (void *)release_handle,
                                .rule = rule_user ? &rule : NULL,
                                .seed = (uint64_t)o[1],
                                .balance_trainable = (int32_t)o[2],
                                .no_master_copy = (int32_t)o[3],
                                .stochastic_rounding = (int32_t)o[4],
                                .partition = (int32_t)o[5],
                                .consolidate_timeout_ms = o[6],
                                .bucket_view = (int32_t)o[7],
                                .ddp = ddp};
    int ready = params && hyper && rule_hyper && states;
    if (!ready) {
        release((void *)release_handle);
        release_if(rule_user);
    }
    BEGIN(call);
    ujoin_status status = ready ? zero_create(group, optimizer, params, count, &given, out) : no_memory();
    free(params);
    free(hyper);
    free(rule_hyper);
    free(states);
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
void ZeroParamData(ujoin_zero *zero, size_t index, void *out) { *(void **)out = zero_param_data(zero, index); }
/* closure_handle 0: none. numbers: max_norm, norm_type; NULL: neither. out_norm may be NULL. */
ujoin_status ZeroStep(ujoin_zero *zero, uintptr_t closure_handle, ujoin_scaler *scaler, const void *numbers,
                      int skip_nonfinite, void *out_norm, void *call) {
    const double *n = numbers;
    ujoin_step_options options = {.size = sizeof options,
                                  .closure = closure_handle ? closure : NULL,
                                  .closure_data = (void *)closure_handle,
                                  .scaler = scaler,
                                  .out_norm = out_norm,
                                  .max_norm = n ? n[0] : 0,
                                  .norm_type = n ? n[1] : 0,
                                  .skip_nonfinite = skip_nonfinite};
    BEGIN(call);
    ujoin_status status = zero_step(zero, &options);
    END(status);
}
ujoin_status ZeroClipGradNorm(ujoin_zero *zero, double max_norm, double norm_type, void *out_norm, void *call) {
    BEGIN(call);
    ujoin_status status = zero_clip_grad_norm(zero, max_norm, norm_type, out_norm);
    END(status);
}
/* facts: parameters, gradients, state, buffers, full state */
ujoin_status ZeroMemory(ujoin_zero *zero, void *facts) {
    ujoin_zero_memory m = {.size = sizeof m};
    ujoin_status status = zero_get_memory(zero, &m);
    memcpy(facts, (uint64_t[]){m.parameters, m.gradients, m.state, m.buffers, m.full_state}, 5 * sizeof(uint64_t));
    return status;
}
/* numbers: base, minimum, gamma; facts: kind, warm-up, total, every */
ujoin_status ScheduleAt(const void *numbers, const void *facts, int64_t step, void *out_value) {
    const double *n = numbers;
    const int64_t *f = facts;
    ujoin_schedule_options schedule = {.size = sizeof schedule,
                                       .base = n[0],
                                       .minimum = n[1],
                                       .gamma = n[2],
                                       .warmup_steps = f[1],
                                       .total_steps = f[2],
                                       .every = f[3],
                                       .kind = (ujoin_schedule_kind)f[0]};
    return zero_schedule(&schedule, step, out_value);
}
/* numbers: scale, growth, backoff; facts: interval, good steps, skipped */
ujoin_status ScalerCreate(const void *numbers, const void *facts, void *out) {
    const double *n = numbers;
    const int64_t *f = facts;
    ujoin_scaler_options options = {.size = sizeof options, .scale = n[0], .growth = n[1], .backoff = n[2],
                                    .interval = f[0], .good_steps = f[1], .skipped = f[2]};
    return zero_scaler_create(&options, out);
}
ujoin_status ScalerGet(ujoin_scaler *scaler, void *numbers, void *facts) {
    ujoin_scaler_options o = {.size = sizeof o};
    ujoin_status status = zero_scaler_get(scaler, &o);
    memcpy(numbers, (double[]){o.scale, o.growth, o.backoff}, 3 * sizeof(double));
    memcpy(facts, (int64_t[]){o.interval, o.good_steps, o.skipped}, 3 * sizeof(int64_t));
    return status;
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
/* texts: name, program, log directory, run id, prefix, function; facts: grace, drain, partial line, nprocs, first rank,
 * restart count, redirects, tee, containment, same session, rotate bytes, rotate keep, start method, console, binding, no
 * error file, no colour, status line. output_user 0: no callback; it is owned from here on. */
ujoin_status PctxCreate(const void *texts, const void *args, size_t arg_count, const void *facts, const void *console_ranks,
                        size_t console_rank_count, const void *out_filters, size_t out_filter_count,
                        const void *err_filters, size_t err_filter_count, uintptr_t output_user, void *out) {
    const int64_t *f = facts;
    const char **text = split(texts, 6), **list = split(args, arg_count);
    const char **out_list = split(out_filters, out_filter_count), **err_list = split(err_filters, err_filter_count);
    ujoin_status status = UJOIN_E_NO_MEMORY;
    if (text && list && out_list && err_list) {
        ujoin_pctx_spec spec = {.size = sizeof spec,
                                .name = or_null(text[0]),
                                .program = or_null(text[1]),
                                .function = or_null(text[5]),
                                .args = list,
                                .arg_count = arg_count,
                                .log_dir = or_null(text[2]),
                                .run_id = or_null(text[3]),
                                .prefix = or_null(text[4]),
                                .console_ranks = console_ranks,
                                .console_rank_count = console_rank_count,
                                .stdout_filters = out_list,
                                .stdout_filter_count = out_filter_count,
                                .stderr_filters = err_list,
                                .stderr_filter_count = err_filter_count,
                                .output = output_user ? output : NULL,
                                .user_data = (void *)output_user,
                                .destroy = output_user ? release : NULL,
                                .grace_ms = f[0],
                                .drain_ms = f[1],
                                .partial_line_ms = f[2],
                                .rotate_bytes = (uint64_t)f[10],
                                .nprocs = (int32_t)f[3],
                                .first_rank = (int32_t)f[4],
                                .restart_count = (int32_t)f[5],
                                .redirects = (ujoin_std)f[6],
                                .tee = (ujoin_std)f[7],
                                .start_method = (ujoin_start_method)f[12],
                                .containment = (ujoin_containment)f[8],
                                .console = (ujoin_console_policy)f[13],
                                .binding = (ujoin_binding)f[14],
                                .no_error_file = (int32_t)f[15],
                                .same_session = (int32_t)f[9],
                                .no_colour = (int32_t)f[16],
                                .rotate_keep = (int32_t)f[11],
                                .status_line = (int32_t)f[17]};
        status = pctx_create(&spec, out);
    } else {
        no_memory();
        release_if(output_user);
    }
    free(text);
    free(list);
    free(out_list);
    free(err_list);
    return status;
}
ujoin_status PctxSetEnv(ujoin_pctx *pctx, int rank, const char *name, const char *value, int unset) {
    return pctx_set_env(pctx, rank, name, unset ? NULL : value);
}
/* texts: program, directory, path of stdin; facts: redirects, tee, source of stdin, umask set, umask, has arguments */
ujoin_status PctxSetWorker(ujoin_pctx *pctx, int rank, const void *texts, const void *args, size_t arg_count,
                           const void *facts, const void *input, size_t input_size, const void *stdin_data,
                           size_t stdin_size, const void *cpus, size_t cpu_count, const void *limit_names,
                           const void *limit_values, size_t limit_count, const void *fds, size_t fd_count) {
    const int64_t *f = facts;
    const char **text = split(texts, 3), **list = split(args, arg_count);
    ujoin_hyper *limits = hypers(limit_names, limit_values, limit_count);
    ujoin_status status = UJOIN_E_NO_MEMORY;
    if (text && list && limits) {
        ujoin_worker worker = {.size = sizeof worker,
                               .program = or_null(text[0]),
                               .args = f[5] ? list : NULL,
                               .arg_count = arg_count,
                               .directory = or_null(text[1]),
                               .input = input,
                               .input_size = input_size,
                               .stdin_data = stdin_data,
                               .stdin_size = stdin_size,
                               .stdin_path = or_null(text[2]),
                               .cpus = cpus,
                               .cpu_count = cpu_count,
                               .limits = limits,
                               .limit_count = limit_count,
                               .fds = fds, /* from, to: pairs of int32_t, as the struct has them */
                               .fd_count = fd_count,
                               .redirects = (ujoin_std)f[0],
                               .tee = (ujoin_std)f[1],
                               .stdin_from = (ujoin_stdin)f[2],
                               .umask_set = (int32_t)f[3],
                               .umask = (int32_t)f[4]};
        status = pctx_set_worker(pctx, rank, &worker);
    } else {
        no_memory();
    }
    free(text);
    free(list);
    free(limits);
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
/* Fills *out, for PctxHealthOf. */
ujoin_status PctxHealth(ujoin_pctx *pctx, int rank, void *out) {
    ujoin_worker_health *health = out;
    *health = (ujoin_worker_health){.size = sizeof *health};
    return pctx_health(pctx, rank, health);
}
ujoin_status PctxClose(ujoin_pctx *pctx, int signal, int64_t grace_ms, void *call) {
    BEGIN(call);
    ujoin_status status = pctx_close(pctx, signal, grace_ms);
    END(status);
}

/* ----------------------------------------------------------------------------------------------------- inside a worker */
/* The function is owned from here on. */
ujoin_status PctxRegister(const char *name, uintptr_t user) { return pctx_register(name, worker, (void *)user, release); }
/* DONE stands for a worker that has run, whatever its exit code. */
ujoin_status PctxWorkerMain(void *out_exit_code) { return pctx_worker_main(out_exit_code); }
ujoin_status PctxReturn(const void *data, size_t size) { return pctx_return(data, size); }
ujoin_status PctxRecord(uintptr_t user, void *call) {
    BEGIN(call);
    ujoin_status status = pctx_record(closure, (void *)user);
    END(status);
}
ujoin_status PctxRecordError(const char *message, const char *traceback, int code) {
    return pctx_record_error(message, or_null(traceback), code);
}
%}
