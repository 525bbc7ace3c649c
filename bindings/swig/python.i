// SPDX-License-Identifier: Apache-2.0
// Python: what the generated module _ujoin adds to the header. Every function of ujoin.h is there under its own name, flat:
// options are plain arguments, handles are capsules, structs come back as tuples. The package ujoin is to on top of it.
//
// Interpreter lock: SWIG runs with -threads; what can wait, compute, take a lock of the library or run a callback releases
// it (%thread below), getters keep it. A library thread that logs waits for the lock, so a function that such a thread may
// block must never be called with it.

%begin %{
#define PY_SSIZE_T_CLEAN
%}

%{
#include "python_runtime.hpp"
%}

// ------------------------------------------------------------------------------------------------------ what is left out
// Structs are arguments and tuples; handles end with their capsules.
%ignore ujoin_store_options;
%ignore ujoin_buffer;
%ignore ujoin_const_buffer;
%ignore ujoin_hyper;
%ignore ujoin_param;
%ignore ujoin_op;
%ignore ujoin_op_options;
%ignore ujoin_group_options;
%ignore ujoin_group_info;
%ignore ujoin_hook_args;
%ignore ujoin_hooks;
%ignore ujoin_ctx_options;
%ignore ujoin_ctx_report;
%ignore ujoin_ddp_options;
%ignore ujoin_ddp_report;
%ignore ujoin_zero_options;
%ignore ujoin_step_options;
%ignore ujoin_shard;
%ignore ujoin_save_options;
%ignore ujoin_item;
%ignore ujoin_pctx_spec;
%ignore ujoin_worker;
%ignore ujoin_worker_result;
%ignore ujoin_worker_health;
%ignore ujoin_bucket;
%ignore ujoin_comm_hook;
%ignore ujoin_rule_args;
%ignore ujoin_rule;
%ignore ujoin_zero_memory;
%ignore ujoin_schedule_options;
%ignore ujoin_scaler_options;
%ignore ujoin_memory_options;
%ignore ujoin_worker_args;
%ignore ujoin_store_destroy;
%ignore ujoin_group_destroy;
%ignore ujoin_work_destroy;
%ignore ujoin_joinable_destroy;
%ignore ujoin_ctx_destroy;
%ignore ujoin_ddp_destroy;
%ignore zero_destroy;
%ignore zero_scaler_destroy;
%ignore ujoin_memory_destroy;
%ignore ujoin_state_destroy;
%ignore pctx_destroy;

// ------------------------------------------------------------------------------------------------------ interpreter lock
%nothread;
%thread ujoin_backends;
%thread ujoin_store_prefix;
%thread ujoin_store_set;
%thread ujoin_store_add;
%thread ujoin_store_abort;
%thread ujoin_group_close;
%thread ujoin_group_abort;
%thread ujoin_work_wait;
%thread ujoin_work_test;
%thread ujoin_work_abort;
%thread ujoin_ctx_start;
%thread ujoin_ctx_finish;
%thread ujoin_ctx_stop;
%thread ujoin_ctx_stopped;
%thread ujoin_ctx_abort;
%thread ujoin_ddp_forward;
%thread ujoin_ddp_ready;
%thread ujoin_ddp_finish;
%thread ujoin_ddp_set_sync;
%thread ujoin_ddp_get_report;
%thread zero_set_hyper;
%thread zero_set_frozen;
%thread zero_clip_grad_norm;
%thread zero_get_memory;
%thread zero_clear_gradients;
%thread zero_consolidate_state_dict;
%thread zero_state_dict;
%thread zero_load_state_dict;
%thread pctx_set_env;
%thread pctx_start;
%thread pctx_wait;
%thread pctx_failed;
%thread pctx_first_failure;
%thread pctx_get_result;
%thread pctx_report;
%thread pctx_report_json;
%thread pctx_record_error;
%thread pctx_signal;
%thread pctx_stop;
%thread pctx_close;
%thread pctx_abort;

// --------------------------------------------------------------------------------------------------------- plain values
%typemap(in) const char * "if (!ujoin_py::as_text($input, const_cast<const char **>(&$1))) SWIG_fail;"
%typemap(freearg) const char * ""
%typemap(typecheck) const char * "$1 = 1;"
%typemap(out) const char * "$result = ujoin_py::from_text($1);"

// A status: an error is raised, with the cause that a callback left; 0 and what is not an error come back as a number.
%typemap(out) ujoin_status %{
    if (!ujoin_py::check($1)) SWIG_fail;
    $result = PyLong_FromLong($1);
%}
// Getters that answer -1 on an error.
%typemap(out) int32_t ujoin_ctx_stopped, int32_t ujoin_group_rank, int32_t ujoin_group_size %{
    if ($1 < 0) {
        ujoin_py::raise(UJOIN_E_STATE);
        SWIG_fail;
    }
    $result = PyLong_FromLong($1);
%}

// -------------------------------------------------------------------------------------------------------------- handles
%define UJOIN_HANDLE(TYPE, DESTROY)
%typemap(in) TYPE * (ujoin_py::Use use), const TYPE * (ujoin_py::Use use) %{
    if (!use.enter($input, #TYPE, ujoin_py::any_thread("$symname"))) SWIG_fail;
    $1 = static_cast<TYPE *>(use.handle());
%}
%typemap(in) TYPE *optional (ujoin_py::Use use), const TYPE *optional (ujoin_py::Use use) %{
    if ($input != Py_None && !use.enter($input, #TYPE, false)) SWIG_fail;
    $1 = static_cast<TYPE *>(use.handle());
%}
%typemap(in, numinputs=0) TYPE **out (TYPE *made = nullptr) "$1 = &made;"
%typemap(argout) TYPE **out %{
    Py_XDECREF($result);
    $result = ujoin_py::wrap<TYPE, DESTROY>(std::exchange(made$argnum, nullptr), #TYPE);
%}
%typemap(freearg) TYPE **out "DESTROY(made$argnum); // made, but the call raises what a signal's handler did"
%enddef
UJOIN_HANDLE(ujoin_store, ujoin_store_destroy)
UJOIN_HANDLE(ujoin_group, ujoin_group_destroy)
UJOIN_HANDLE(ujoin_work, ujoin_work_destroy)
UJOIN_HANDLE(ujoin_joinable, ujoin_joinable_destroy)
UJOIN_HANDLE(ujoin_ctx, ujoin_ctx_destroy)
UJOIN_HANDLE(ujoin_ddp, ujoin_ddp_destroy)
UJOIN_HANDLE(ujoin_zero, zero_destroy)
UJOIN_HANDLE(ujoin_scaler, zero_scaler_destroy)
UJOIN_HANDLE(ujoin_memory, ujoin_memory_destroy)
UJOIN_HANDLE(ujoin_state, ujoin_state_destroy)
UJOIN_HANDLE(ujoin_pctx, pctx_destroy)

// Only ddp and zero return one: it is borrowed, so the capsule holds theirs.
%typemap(out) ujoin_joinable * %{
    $result = ujoin_py::borrow($1, use1.capsule(), "ujoin_joinable");
    if (!$result) SWIG_fail;
%}
// A rank may be in no group.
%typemap(in, numinputs=0) ujoin_group **out_or_none (ujoin_group *made = nullptr) "$1 = &made;"
%typemap(argout) ujoin_group **out_or_none %{
    Py_XDECREF($result);
    $result = made$argnum ? ujoin_py::wrap<ujoin_group, ujoin_group_destroy>(std::exchange(made$argnum, nullptr), "ujoin_group")
                          : Py_NewRef(Py_None);
%}
%typemap(freearg) ujoin_group **out_or_none "ujoin_group_destroy(made$argnum);"
// An operation that was not to be awaited gives None.
%typemap(in, numinputs=0) ujoin_work **out_work (ujoin_work *made = nullptr) "$1 = &made;"
%typemap(argout) ujoin_work **out_work %{
    if (made$argnum) {
        Py_XDECREF($result);
        $result = ujoin_py::wrap<ujoin_work, ujoin_work_destroy>(std::exchange(made$argnum, nullptr), "ujoin_work");
    }
%}
%typemap(freearg) ujoin_work **out_work "ujoin_work_destroy(made$argnum);"

// ----------------------------------------------------------------------------------------------------------- containers
%define UJOIN_INPUT(TYPE)
%typemap(in) ujoin_py::TYPE * (ujoin_py::TYPE value) %{
    if (!value.read($input)) SWIG_fail;
    $1 = &value;
%}
%enddef
UJOIN_INPUT(Strings)
UJOIN_INPUT(Hypers)
UJOIN_INPUT(Params)
UJOIN_INPUT(Joinables)
UJOIN_INPUT(Closure)
UJOIN_INPUT(Bytes)
UJOIN_INPUT(Shape)
UJOIN_INPUT(Ints)
UJOIN_INPUT(Buffers)
UJOIN_INPUT(Operations)
UJOIN_INPUT(Rule)
%typemap(in) ujoin_py::Bytes *maybe_input (ujoin_py::Bytes value), ujoin_py::Bytes *maybe_stdin (ujoin_py::Bytes value) %{
    if ($input != Py_None && !value.read($input)) SWIG_fail;
    $1 = &value;
%}

%typemap(in) ujoin_py::Memory *recv (ujoin_py::Memory value), ujoin_py::Memory *buffer (ujoin_py::Memory value) %{
    if (!value.read($input, true, "$1_name")) SWIG_fail;
    $1 = &value;
%}
%typemap(in) ujoin_py::Memory *send (ujoin_py::Memory value) %{
    if ($input != Py_None && !value.read($input, false, "$1_name")) SWIG_fail;
    $1 = &value;
%}
%typemap(argout) ujoin_py::Params *new_params "if (!value$argnum.attach_to($result)) SWIG_fail;"
%typemap(in) ujoin_py::Params *new_params = ujoin_py::Params *;
%typemap(in) ujoin_py::Params *more_params = ujoin_py::Params *;
%typemap(argout) ujoin_py::Params *more_params "use1.box()->keep(value$argnum);"
%typemap(in) ujoin_py::Memory *gradient (ujoin_py::Memory value) %{
    if ($input != Py_None && !value.read($input, true, "gradient")) SWIG_fail;
    $1 = &value;
%}
%typemap(argout) ujoin_py::Memory *gradient "use1.box()->keep(std::move(value$argnum));"
%typemap(argout) ujoin_py::Closure * %{
    Py_XDECREF($result);
    $result = value$argnum.take_result();
%}

// A result that a flat function has built: a new reference, or NULL with an exception set.
%typemap(out) PyObject * "$result = $1; if (!$result) SWIG_fail;"

// Numbers out.
%typemap(in, numinputs=0) int64_t *out_value (int64_t value) "value = 0; $1 = &value;"
%typemap(argout) int64_t *out_value "Py_XDECREF($result); $result = PyLong_FromLongLong(value$argnum);"
%typemap(in, numinputs=0) double *out_value (double value) "value = 0; $1 = &value;"
%typemap(argout) double *out_value "Py_XDECREF($result); $result = PyFloat_FromDouble(value$argnum);"
// With what was to be returned and the status: the norm.
%typemap(in, numinputs=0) double *out_norm (double norm) "norm = 0; $1 = &norm;"
%typemap(argout) double *out_norm "$result = Py_BuildValue(\"(Nid)\", $result, result, norm$argnum);"
%typemap(in, numinputs=0) int32_t *number_or_joined (int32_t value) "value = 0; $1 = &value;"
%typemap(argout) int32_t *number_or_joined %{
    Py_XDECREF($result);
    $result = result == UJOIN_JOINED ? Py_NewRef(Py_None) : PyLong_FromLong(value$argnum);
%}
// The bytes of a store's key; None if it did not come in time.
%typemap(in, numinputs=0) std::string *value_or_pending (std::string value) "$1 = &value;"
%typemap(argout) std::string *value_or_pending %{
    Py_XDECREF($result);
    $result = result == UJOIN_PENDING ? Py_NewRef(Py_None)
                                      : PyBytes_FromStringAndSize(value$argnum.data(), (Py_ssize_t)value$argnum.size());
%}
// Structs out, as tuples.
%define UJOIN_STRUCT_OUT(TYPE)
%typemap(in, numinputs=0) TYPE *out (TYPE filled) %{
    memset(&filled, 0, sizeof filled);
    filled.size = sizeof filled;
    $1 = &filled;
%}
%typemap(argout) TYPE *out %{
    Py_XDECREF($result);
    $result = ujoin_py::as_tuple(filled$argnum);
    if (!$result) SWIG_fail;
%}
%enddef
UJOIN_STRUCT_OUT(ujoin_group_info)
UJOIN_STRUCT_OUT(ujoin_ctx_report)
UJOIN_STRUCT_OUT(ujoin_ddp_report)
UJOIN_STRUCT_OUT(ujoin_zero_memory)
UJOIN_STRUCT_OUT(ujoin_scaler_options)
UJOIN_STRUCT_OUT(ujoin_shard)
UJOIN_STRUCT_OUT(ujoin_item)
UJOIN_STRUCT_OUT(ujoin_worker_result)
UJOIN_STRUCT_OUT(ujoin_worker_health)
%typemap(in) PyObject * "$1 = $input;"

// -------------------------------------------------------------------------------------------------------- flat functions
// Each takes the place of the header's function of the same name without py_.
%define UJOIN_FLAT(NAME)
%ignore NAME;
%rename(NAME) py_##NAME;
%enddef
%define UJOIN_FLAT_UNLOCKED(NAME)
UJOIN_FLAT(NAME)
%thread py_##NAME;
%enddef
UJOIN_FLAT(ujoin_last_missing)
UJOIN_FLAT(ujoin_set_last_error)
UJOIN_FLAT(ujoin_set_interrupt_check)
UJOIN_FLAT(ujoin_set_log_sink)
UJOIN_FLAT_UNLOCKED(ujoin_store_create)
UJOIN_FLAT_UNLOCKED(ujoin_store_set)
UJOIN_FLAT_UNLOCKED(ujoin_store_get)
UJOIN_FLAT_UNLOCKED(ujoin_store_wait)
UJOIN_FLAT_UNLOCKED(ujoin_group_create)
UJOIN_FLAT_UNLOCKED(ujoin_group_split)
UJOIN_FLAT_UNLOCKED(ujoin_all_reduce)
UJOIN_FLAT_UNLOCKED(ujoin_broadcast)
UJOIN_FLAT_UNLOCKED(ujoin_all_gather)
UJOIN_FLAT_UNLOCKED(ujoin_reduce_scatter)
UJOIN_FLAT_UNLOCKED(ujoin_submit)
UJOIN_FLAT_UNLOCKED(ujoin_barrier)
UJOIN_FLAT(ujoin_work_contributors)
UJOIN_FLAT_UNLOCKED(ujoin_memory_create)
UJOIN_FLAT(ujoin_memory_data)
UJOIN_FLAT(ujoin_joinable_create)
UJOIN_FLAT_UNLOCKED(ujoin_joinable_notify)
UJOIN_FLAT_UNLOCKED(ujoin_ctx_create)
UJOIN_FLAT(ujoin_ctx_rounds)
UJOIN_FLAT_UNLOCKED(ujoin_ddp_create)
UJOIN_FLAT(ujoin_ddp_set_comm_hook)
UJOIN_FLAT(ujoin_ddp_set_buffer_hook)
UJOIN_FLAT(ujoin_ddp_gradient)
UJOIN_FLAT(zero_param_data)
UJOIN_FLAT(ujoin_ddp_used)
UJOIN_FLAT_UNLOCKED(zero_create)
UJOIN_FLAT_UNLOCKED(zero_step)
UJOIN_FLAT_UNLOCKED(zero_add_param_group)
UJOIN_FLAT_UNLOCKED(zero_set_gradient)
UJOIN_FLAT_UNLOCKED(zero_save)
UJOIN_FLAT_UNLOCKED(zero_load)
UJOIN_FLAT(zero_schedule)
UJOIN_FLAT(zero_scaler_create)
UJOIN_FLAT(ujoin_state_set)
UJOIN_FLAT(pctx_parse_std)
UJOIN_FLAT(pctx_create)
UJOIN_FLAT_UNLOCKED(pctx_set_worker)
UJOIN_FLAT(pctx_register)
UJOIN_FLAT(pctx_worker_main)
UJOIN_FLAT_UNLOCKED(pctx_return)
UJOIN_FLAT_UNLOCKED(pctx_record)

%typemap(out) ujoin_status py_ujoin_set_last_error "$result = PyLong_FromLong($1);"

%inline %{
// ---- for the package: what it registers, and where its buffers lie
static PyObject *install(PyObject *errors, PyObject *adapter) { return ujoin_py::install(errors, adapter); }
static PyObject *leave() { return ujoin_py::leave(); }
static PyObject *after_fork() { return ujoin_py::after_fork(); }
static PyObject *describe(PyObject *memory, bool writable) { return ujoin_py::describe(memory, writable); }

// ---- errors, hooks
static PyObject *py_ujoin_last_missing() { return ujoin_py::last_missing(); }
static ujoin_status py_ujoin_set_last_error(int32_t status, const char *text) { return ujoin_set_last_error(status, text); }
static PyObject *py_ujoin_set_interrupt_check(size_t main_thread) { return ujoin_py::set_interrupt_check(main_thread); }
static PyObject *py_ujoin_set_log_sink(int32_t level, PyObject *sink) { return ujoin_py::set_log_sink(level, sink); }

// ---- store
static ujoin_status py_ujoin_store_create(const char *url, const char *secret, int64_t timeout_ms, bool listen,
                                          ujoin_store **out) {
    ujoin_store_options options{};
    options.size = sizeof options;
    options.secret = secret;
    options.timeout_ms = timeout_ms;
    options.listen = listen;
    return ujoin_store_create(url, &options, out);
}
static ujoin_status py_ujoin_store_set(ujoin_store *store, const char *key, ujoin_py::Bytes *value) {
    return ujoin_store_set(store, key, value->data(), value->size());
}
static ujoin_status py_ujoin_store_get(ujoin_store *store, const char *key, int64_t timeout_ms,
                                       std::string *value_or_pending) {
    return ujoin_py::store_get(store, key, timeout_ms, *value_or_pending);
}
static ujoin_status py_ujoin_store_wait(ujoin_store *store, ujoin_py::Strings *keys, int64_t timeout_ms) {
    return ujoin_store_wait(store, keys->data(), keys->size(), timeout_ms);
}

// ---- group, collectives
static ujoin_status py_ujoin_group_create(const char *rendezvous, const char *backend, const char *name,
                                          ujoin_store *optional, int32_t rank, int32_t world_size, int64_t timeout_ms,
                                          int64_t rendezvous_timeout_ms, bool shadow_collectives, int32_t threads,
                                          ujoin_group **out) {
    ujoin_group_options options{};
    options.size = sizeof options;
    options.rendezvous = rendezvous;
    options.backend = backend;
    options.name = name;
    options.store = optional;
    options.rank = rank;
    options.world_size = world_size;
    options.timeout_ms = timeout_ms;
    options.rendezvous_timeout_ms = rendezvous_timeout_ms;
    options.shadow_collectives = shadow_collectives;
    options.threads = threads;
    return ujoin_group_create(&options, out);
}
static ujoin_status py_ujoin_group_split(ujoin_group *group, int32_t color, int32_t key, const char *backend,
                                         int64_t timeout_ms, int64_t rendezvous_timeout_ms, bool shadow_collectives,
                                         ujoin_group **out_or_none) {
    ujoin_group_options options{};
    options.size = sizeof options;
    options.backend = backend;
    options.timeout_ms = timeout_ms;
    options.rendezvous_timeout_ms = rendezvous_timeout_ms;
    options.shadow_collectives = shadow_collectives;
    return ujoin_group_split(group, color, key, &options, out_or_none);
}
static ujoin_status py_ujoin_all_reduce(ujoin_group *group, ujoin_py::Memory *send, ujoin_py::Memory *recv,
                                        int32_t reduce, int64_t timeout_ms, bool async, ujoin_work **out_work) {
    const ujoin_py::Source from(*send);
    const ujoin_buffer to = recv->as_buffer();
    const ujoin_py::Operation op(timeout_ms, async, out_work, send, recv);
    return ujoin_all_reduce(group, from.get(), &to, reduce, op.options(), op.out());
}
static ujoin_status py_ujoin_broadcast(ujoin_group *group, ujoin_py::Memory *buffer, int32_t root, int64_t timeout_ms,
                                       bool async, ujoin_work **out_work) {
    const ujoin_buffer memory = buffer->as_buffer();
    const ujoin_py::Operation op(timeout_ms, async, out_work, nullptr, buffer);
    return ujoin_broadcast(group, &memory, root, op.options(), op.out());
}
static ujoin_status py_ujoin_all_gather(ujoin_group *group, ujoin_py::Memory *send, ujoin_py::Memory *recv,
                                        int64_t timeout_ms, bool async, ujoin_work **out_work) {
    const ujoin_py::Source from(*send);
    const ujoin_buffer to = recv->as_buffer();
    const ujoin_py::Operation op(timeout_ms, async, out_work, send, recv);
    return ujoin_all_gather(group, from.get(), &to, op.options(), op.out());
}
static ujoin_status py_ujoin_reduce_scatter(ujoin_group *group, ujoin_py::Memory *send, ujoin_py::Memory *recv,
                                            int32_t reduce, int64_t timeout_ms, bool async, ujoin_work **out_work) {
    const ujoin_py::Source from(*send);
    const ujoin_buffer to = recv->as_buffer();
    const ujoin_py::Operation op(timeout_ms, async, out_work, send, recv);
    return ujoin_reduce_scatter(group, from.get(), &to, reduce, op.options(), op.out());
}
static ujoin_status py_ujoin_submit(ujoin_group *group, ujoin_py::Operations *ops, int64_t timeout_ms, bool async,
                                    ujoin_work **out_work) {
    const ujoin_status counts = ops->check_counts(group);
    if (counts < 0) return counts;
    const ujoin_py::Operation op(timeout_ms, async, out_work, ops->memory());
    return ujoin_submit(group, ops->data(), ops->size(), op.options(), op.out());
}
static ujoin_status py_ujoin_barrier(ujoin_group *group, int64_t timeout_ms) {
    ujoin_op_options options{};
    options.size = sizeof options;
    options.timeout_ms = timeout_ms;
    return ujoin_barrier(group, &options);
}

static PyObject *py_ujoin_work_contributors(const ujoin_work *work) { return ujoin_py::contributors(work); }

// ---- join
static ujoin_status py_ujoin_joinable_create(ujoin_group *group, PyObject *hook, const char *name,
                                             ujoin_py::Strings *option_names, ujoin_joinable **out) {
    return ujoin_py::joinable_create(group, hook, name, *option_names, out);
}
static ujoin_status py_ujoin_joinable_notify(ujoin_joinable *joinable, bool count_active, int32_t *number_or_joined) {
    return ujoin_joinable_notify(joinable, count_active ? number_or_joined : nullptr);
}
static ujoin_status py_ujoin_ctx_create(ujoin_py::Joinables *joinables, ujoin_py::Hypers *hook_options,
                                        int64_t idle_timeout_ms, int64_t skew_warning_rounds, bool disabled,
                                        bool throw_on_exhausted, bool strict, ujoin_ctx **out) {
    ujoin_ctx_options options{};
    options.size = sizeof options;
    options.idle_timeout_ms = idle_timeout_ms;
    options.skew_warning_rounds = skew_warning_rounds;
    options.hook_options = hook_options->data();
    options.hook_option_count = hook_options->size();
    options.disabled = disabled;
    options.throw_on_exhausted = throw_on_exhausted;
    options.strict = strict;
    return ujoin_ctx_create(joinables->data(), joinables->size(), &options, out);
}
static PyObject *py_ujoin_ctx_rounds(ujoin_ctx *ctx) { return ujoin_py::ctx_rounds(ctx); }

// ---- shared memory
static ujoin_status py_ujoin_memory_create(ujoin_group *group, size_t bytes, bool one_per_host, ujoin_memory **out) {
    ujoin_memory_options options{};
    options.size = sizeof options;
    options.one_per_host = one_per_host;
    return ujoin_memory_create(group, bytes, &options, out);
}
static PyObject *py_ujoin_memory_data(PyObject *memory) { return ujoin_py::memory_data(memory); }

// ---- gradient reduction
static ujoin_status py_ujoin_ddp_create(ujoin_group *group, int32_t division, int32_t gradient_kind, bool find_unused,
                                        bool static_graph, bool bucket_view, bool no_buffer_broadcast,
                                        bool no_initial_broadcast, int32_t source_rank, size_t first_bucket_bytes,
                                        size_t bucket_bytes, int64_t idle_timeout_ms, int32_t gradient_sync,
                                        bool params_released_on_ready,
                                        ujoin_py::Buffers *buffers, ujoin_ddp **out, ujoin_py::Params *new_params) {
    ujoin_ddp_options options{};
    options.size = sizeof options;
    options.division = division;
    options.gradient_kind = gradient_kind;
    options.find_unused = find_unused;
    options.static_graph = static_graph;
    options.bucket_view = bucket_view;
    options.no_buffer_broadcast = no_buffer_broadcast;
    options.no_initial_broadcast = no_initial_broadcast;
    options.source_rank = source_rank;
    options.buffers = buffers->data();
    options.buffer_count = buffers->size();
    options.first_bucket_bytes = first_bucket_bytes;
    options.bucket_bytes = bucket_bytes;
    options.idle_timeout_ms = idle_timeout_ms;
    options.gradient_sync = gradient_sync;
    options.params_released_on_ready = params_released_on_ready;
    options.release = ujoin_py::give_back;
    new_params->add(*buffers);
    options.release_data = new_params->lend();
    return ujoin_ddp_create(group, new_params->data(), new_params->size(), &options, out);
}
static ujoin_status py_ujoin_ddp_set_comm_hook(ujoin_ddp *ddp, int32_t kind, int32_t rank, int64_t start_iteration,
                                               PyObject *start, PyObject *then) {
    const ujoin_comm_hook hook = ujoin_py::make_comm_hook(kind, rank, start_iteration, start, then);
    return ujoin_py::unlocked([&] { return ujoin_ddp_set_comm_hook(ddp, &hook); });
}
static ujoin_status py_ujoin_ddp_set_buffer_hook(ujoin_ddp *ddp, int32_t time, int32_t kind, PyObject *start,
                                                 PyObject *then) {
    const ujoin_comm_hook hook = ujoin_py::make_comm_hook(kind, 0, 0, start, then);
    return ujoin_py::unlocked([&] { return ujoin_ddp_set_buffer_hook(ddp, time, &hook); });
}
static PyObject *py_ujoin_ddp_gradient(PyObject *ddp, size_t index, size_t bytes) {
    return ujoin_py::ddp_gradient(ddp, index, bytes);
}
static PyObject *py_ujoin_ddp_used(const ujoin_ddp *ddp) { return ujoin_py::ddp_used(ddp); }

// ---- optimizer
static ujoin_status py_zero_create(ujoin_group *group, int32_t optimizer, ujoin_py::Hypers *hyper, int64_t idle_timeout_ms,
                                   ujoin_py::Rule *rule, uint64_t seed, bool balance_trainable, bool no_master_copy,
                                   bool stochastic_rounding, int32_t partition, int64_t consolidate_timeout_ms,
                                   bool bucket_view, ujoin_ddp *optional, ujoin_zero **out,
                                   ujoin_py::Params *new_params) {
    ujoin_zero_options options{};
    options.size = sizeof options;
    options.hyper = hyper->data();
    options.hyper_count = hyper->size();
    options.idle_timeout_ms = idle_timeout_ms;
    options.rule = rule->lend();
    options.seed = seed;
    options.balance_trainable = balance_trainable;
    options.no_master_copy = no_master_copy;
    options.stochastic_rounding = stochastic_rounding;
    options.partition = partition;
    options.consolidate_timeout_ms = consolidate_timeout_ms;
    options.bucket_view = bucket_view;
    options.ddp = optional;
    options.release = ujoin_py::give_back;
    options.release_data = new_params->lend();
    return zero_create(group, optimizer, new_params->data(), new_params->size(), &options, out);
}
static ujoin_status py_zero_step(ujoin_zero *zero, ujoin_py::Closure *closure, ujoin_scaler *optional, double max_norm,
                                 double norm_type, bool skip_nonfinite, double *out_norm) {
    ujoin_step_options options{};
    options.size = sizeof options;
    options.closure = closure->function();
    options.closure_data = closure;
    options.scaler = optional;
    options.out_norm = max_norm != 0 ? out_norm : nullptr;
    options.max_norm = max_norm;
    options.norm_type = norm_type;
    options.skip_nonfinite = skip_nonfinite;
    return zero_step(zero, &options);
}
static ujoin_status py_zero_add_param_group(ujoin_zero *zero, ujoin_py::Params *more_params, ujoin_py::Hypers *hyper) {
    return zero_add_param_group(zero, more_params->data(), more_params->size(), hyper->data(), hyper->size());
}
static ujoin_status py_zero_set_gradient(ujoin_zero *zero, size_t index, ujoin_py::Memory *gradient) {
    return zero_set_gradient(zero, index, gradient->as_buffer().data);
}
static PyObject *py_zero_param_data(PyObject *zero, size_t index, size_t bytes) {
    return ujoin_py::param_data(zero, index, bytes);
}
static ujoin_status py_zero_save(ujoin_zero *zero, const char *path, ujoin_state *optional, int32_t parts, bool no_sync) {
    ujoin_save_options options{};
    options.size = sizeof options;
    options.extra = optional;
    options.parts = parts;
    options.no_sync = no_sync;
    return zero_save(zero, path, &options);
}
static ujoin_status py_zero_load(ujoin_zero *zero, const char *path, int32_t parts, ujoin_state **out) {
    ujoin_save_options options{};
    options.size = sizeof options;
    options.parts = parts;
    return zero_load(zero, path, &options, out);
}

static ujoin_status py_zero_schedule(int32_t kind, double base, double minimum, double gamma, int64_t warmup_steps,
                                     int64_t total_steps, int64_t every, int64_t step, double *out_value) {
    ujoin_schedule_options options{};
    options.size = sizeof options;
    options.base = base;
    options.minimum = minimum;
    options.gamma = gamma;
    options.warmup_steps = warmup_steps;
    options.total_steps = total_steps;
    options.every = every;
    options.kind = kind;
    return zero_schedule(&options, step, out_value);
}
static ujoin_status py_zero_scaler_create(double scale, double growth, double backoff, int64_t interval, int64_t good_steps,
                                          int64_t skipped, ujoin_scaler **out) {
    ujoin_scaler_options options{};
    options.size = sizeof options;
    options.scale = scale;
    options.growth = growth;
    options.backoff = backoff;
    options.interval = interval;
    options.good_steps = good_steps;
    options.skipped = skipped;
    return zero_scaler_create(&options, out);
}

// ---- state
static ujoin_status py_ujoin_state_set(ujoin_state *state, int32_t kind, int32_t owner, int32_t group, const char *param,
                                       const char *key, double number, ujoin_py::Bytes *data, int32_t dtype,
                                       ujoin_py::Shape *shape) {
    ujoin_item item{};
    item.size = sizeof item;
    item.param = param;
    item.key = key;
    item.data = data->data();
    item.bytes = data->size();
    item.shape = shape->data();
    item.number = number;
    item.kind = kind;
    item.dtype = dtype;
    item.ndim = static_cast<int32_t>(shape->size());
    item.owner = owner;
    item.group = group;
    return ujoin_state_set(state, &item);
}

// ---- worker processes
static PyObject *py_pctx_parse_std(const char *text, int32_t nprocs) { return ujoin_py::parse_std(text, nprocs); }
static ujoin_status py_pctx_create(const char *name, const char *program, const char *function, ujoin_py::Strings *args,
                                   const char *log_dir, const char *run_id, const char *prefix,
                                   ujoin_py::Ints *console_ranks, ujoin_py::Strings *stdout_filters,
                                   ujoin_py::Strings *stderr_filters, PyObject *output, int64_t grace_ms, int64_t drain_ms,
                                   int64_t partial_line_ms, uint64_t rotate_bytes, int32_t rotate_keep, int32_t nprocs,
                                   int32_t first_rank, int32_t restart_count, int32_t redirects, int32_t tee,
                                   int32_t start_method, int32_t containment, int32_t console, int32_t binding,
                                   bool no_error_file, bool same_session, bool no_colour, bool status_line,
                                   ujoin_pctx **out) {
    ujoin_pctx_spec spec{};
    spec.size = sizeof spec;
    spec.name = name;
    spec.program = program;
    spec.function = function;
    spec.args = args->data();
    spec.arg_count = args->size();
    spec.log_dir = log_dir;
    spec.run_id = run_id;
    spec.prefix = prefix;
    spec.console_ranks = console_ranks->data();
    spec.console_rank_count = console_ranks->size();
    spec.stdout_filters = stdout_filters->data();
    spec.stdout_filter_count = stdout_filters->size();
    spec.stderr_filters = stderr_filters->data();
    spec.stderr_filter_count = stderr_filters->size();
    spec.grace_ms = grace_ms;
    spec.drain_ms = drain_ms;
    spec.partial_line_ms = partial_line_ms;
    spec.rotate_bytes = rotate_bytes;
    spec.rotate_keep = rotate_keep;
    spec.nprocs = nprocs;
    spec.first_rank = first_rank;
    spec.restart_count = restart_count;
    spec.redirects = redirects;
    spec.tee = tee;
    spec.start_method = start_method;
    spec.containment = containment;
    spec.console = console;
    spec.binding = binding;
    spec.no_error_file = no_error_file;
    spec.same_session = same_session;
    spec.no_colour = no_colour;
    spec.status_line = status_line;
    if (output != Py_None) {
        spec.output = ujoin_py::run_output;
        spec.user_data = ujoin_py::keep_object(output);
        spec.destroy = ujoin_py::give_back;
    }
    return ujoin_py::unlocked([&] { return pctx_create(&spec, out); });
}
static ujoin_status py_pctx_set_worker(ujoin_pctx *pctx, int32_t rank, const char *program, ujoin_py::Strings *args,
                                       const char *directory, ujoin_py::Bytes *maybe_input, ujoin_py::Bytes *maybe_stdin,
                                       const char *stdin_path, int32_t stdin_from, ujoin_py::Ints *cpus,
                                       ujoin_py::Hypers *limits, int32_t umask, int32_t redirects, int32_t tee,
                                       ujoin_py::Ints *fds) {
    std::vector<ujoin_worker_fd> pairs; // from, to, from, to, ...
    for (size_t i = 0; i + 1 < fds->size(); i += 2) pairs.push_back({fds->data()[i], fds->data()[i + 1]});
    ujoin_worker worker{};
    worker.size = sizeof worker;
    worker.program = program;
    worker.args = args->given() ? args->data() : nullptr;
    worker.arg_count = args->size();
    worker.directory = directory;
    worker.input = maybe_input->data();
    worker.input_size = maybe_input->size();
    worker.stdin_data = maybe_stdin->data();
    worker.stdin_size = maybe_stdin->size();
    worker.stdin_path = stdin_path;
    worker.stdin_from = stdin_from;
    worker.cpus = cpus->data();
    worker.cpu_count = cpus->size();
    worker.limits = limits->size() ? limits->data() : nullptr;
    worker.limit_count = limits->size();
    worker.umask_set = umask >= 0;
    worker.umask = umask >= 0 ? umask : 0;
    worker.redirects = redirects;
    worker.tee = tee;
    worker.fds = pairs.empty() ? nullptr : pairs.data();
    worker.fd_count = pairs.size();
    return pctx_set_worker(pctx, rank, &worker);
}

// ---- inside a worker
static ujoin_status py_pctx_register(const char *name, PyObject *function) {
    return ujoin_py::register_worker(name, function);
}
static PyObject *py_pctx_worker_main() { return ujoin_py::worker_main(); }
static ujoin_status py_pctx_return(ujoin_py::Bytes *data) { return pctx_return(data->data(), data->size()); }
static ujoin_status py_pctx_record(ujoin_py::Closure *closure) { return pctx_record(closure->recorded(), closure); }
%}
