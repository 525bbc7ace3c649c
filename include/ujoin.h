/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ujoin.h
 * ujoin: join contexts, sharded optimizers and process contexts for data-parallel training. The whole public API.
 *
 * FAMILIES    ujoin_* library, stores, groups, collectives, join contexts, gradient reduction (ddp); zero_* the sharded
 *             optimizer; pctx_* worker processes. Types and constants always begin with ujoin_ or UJOIN_.
 *
 * ERRORS      A call that can fail returns ujoin_status: 0 ok; positive: not an error (UJOIN_PENDING, ...); negative: an
 *             error, whose code says what the caller can do. ujoin_last_error() has the text, per thread. Getters that
 *             return a value answer -1, 0 or NULL on a bad handle, and set the text. Errors of work in flight come from
 *             ujoin_work_wait(), errors of workers from pctx_get_result(). Nothing prints, exits or throws.
 *             A failed operation breaks its group: every later call on it returns the first cause. Objects built on the
 *             group fail with it. Close or destroy them and make new ones.
 *
 * HANDLES     Opaque; each is one strong reference. *_destroy drops it: void, takes NULL, never blocks, in any order.
 *             *_close ends activity, may block until its deadline, may be called twice. *_abort gives up now and wakes
 *             whoever waits, from any thread. Destroying without closing says goodbye, it does not abort peers.
 *             Out parameters of a failed call are set to NULL or left alone, never half-written, unless stated.
 *
 * MEMORY      Memory passed to a call is the caller's and is borrowed until the call, or the work handle that it gave,
 *             reports its final status, whatever that is: from then on neither the library nor a peer touches it. An
 *             object (ddp, zero) borrows its parameters until its `release` notice, at the latest soon after destroy.
 *             Names, paths and option structs are copied. Strings and pointers that the library returns live as long as
 *             their handle, unless stated; nothing returned needs free().
 *
 * OPTIONS     Option structs begin with `size_t size`, the caller's sizeof. NULL means all defaults, a zero field means
 *             its default. A shorter struct (an older program) is filled with zeros; a longer one is accepted if its
 *             unknown tail is zero, else UJOIN_E_UNSUPPORTED. Structs that the library fills (argument `out`) also begin
 *             with `size`, set by the caller; the library writes no more than that. Those given to callbacks carry the
 *             library's size. Fields called `reserved` must be 0.
 *             Structs given in arrays keep their size for ever (ujoin_param, ujoin_hyper, ujoin_worker_fd, ujoin_buffer).
 *
 * CHOICES     A type such as ujoin_dtype is an int32_t; its values are listed in `enum ujoin_dtype_value`. Real choices
 *             begin at 1; 0 is "the default". Values are never renumbered; an unknown one is UJOIN_E_INVALID.
 *             Flags are int32_t fields, 0 or 1, named for what is not the default.
 *
 * TIME        int64_t milliseconds on the monotonic clock. As a parameter: 0 = now (poll), negative = for ever. In a
 *             struct: 0 = default, UJOIN_NEVER, UJOIN_NOW. UJOIN_PENDING: this wait ran out, the object lives on.
 *             UJOIN_E_TIMEOUT: the operation's own deadline passed, it is dead, and the text names who is missing.
 *             A bare collective has 10 minutes (UJOIN_TIMEOUT_MS, group, operation), from its first rank's entry. What
 *             ddp, zero and a join context issue has no deadline: liveness, abort, and their optional idle_timeout_ms (but
 *             zero_consolidate_state_dict: as a bare collective, unless it has one of its own).
 *
 * THREADS     Any thread, one call at a time per handle; *_abort, *_test and the ujoin_last_* functions are free of that
 *             limit. Tags: @local concerns this process alone; @collective must be called by every rank of the group, in
 *             the same order (in an armed join context: by every rank that has not joined); @blocking may wait, and runs
 *             the interrupt check; @anythread may be called while another thread is inside a call on the same handle.
 *             After fork() the child's old handles answer UJOIN_E_STATE and can be destroyed; new handles work.
 *
 * CALLBACKS   A function, `user_data`, and `destroy(user_data)`, which runs exactly once when the library will never call
 *             again, also when registering fails. A callback returns a status; a negative one stops the call that ran it,
 *             which returns UJOIN_E_CALLBACK with the callback's text (ujoin_set_last_error); so does a C++ exception that
 *             it throws, with its what(). Callbacks run only on a thread that is inside a call documented to run them,
 *             never two at once per handle; they may not call back into the same handle unless stated. The log sink and
 *             release notices are different: they run on any thread, and what they throw is dropped.
 *
 * DEVICES     Memory is named by device kind and index; kind 0 is the host, and the only one that this version has:
 *             another kind, or a `stream` that is not NULL, is UJOIN_E_UNSUPPORTED.
 *
 * A minimal program: ujoin_group_create(NULL, &group), ujoin_ddp_create, zero_create, ujoin_ctx_create; per epoch
 * ujoin_ctx_start, per batch ujoin_ddp_forward, ujoin_ddp_ready for each gradient, ujoin_ddp_finish, zero_step; then
 * ujoin_ctx_finish.
 */
#ifndef UJOIN_H
#define UJOIN_H

#include <stddef.h>
#include <stdint.h>

#if defined(SWIG) || !defined(__GNUC__)
#define UJOIN_API
#else
#define UJOIN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ======================================================================================================== Library == */

#define UJOIN_VERSION_MAJOR 0
#define UJOIN_VERSION_MINOR 1
#define UJOIN_VERSION_PATCH 0
/** Grows with every change that a program or a binding built for an older header could notice. */
#define UJOIN_ABI_VERSION 1

/** Opaque handles. */
typedef struct ujoin_store ujoin_store;       /**< keys and values shared by the ranks */
typedef struct ujoin_group ujoin_group;       /**< a set of ranks that communicate */
typedef struct ujoin_work ujoin_work;         /**< an operation in flight */
typedef struct ujoin_memory ujoin_memory;     /**< memory that the ranks of a host share */
typedef struct ujoin_joinable ujoin_joinable; /**< one participant of a join context */
typedef struct ujoin_ctx ujoin_ctx;           /**< a join context: training on uneven inputs */
typedef struct ujoin_ddp ujoin_ddp;           /**< a gradient reducer */
typedef struct ujoin_zero ujoin_zero;         /**< a sharded optimizer */
typedef struct ujoin_scaler ujoin_scaler;     /**< a dynamic loss scale */
typedef struct ujoin_state ujoin_state;       /**< a typed list of saved items */
typedef struct ujoin_pctx ujoin_pctx;         /**< a set of worker processes */

/** The result of a call. */
typedef int32_t ujoin_status;
enum ujoin_status_value {
    UJOIN_OK = 0,
    UJOIN_PENDING = 1,          /**< this wait ran out; the object lives on */
    UJOIN_JOINED = 2,           /**< this rank has joined: the call is part of a shadow */
    UJOIN_SKIPPED = 3,          /**< gradients are not finite: nothing was changed, on any rank */
    UJOIN_DONE = 4,             /**< this process was a function worker and has run: return from main */
    UJOIN_E_INVALID = -1,       /**< an argument is wrong: correct the call */
    UJOIN_E_STATE = -2,         /**< not now: called in the wrong order, on a closed or broken object, or after fork */
    UJOIN_E_UNSUPPORTED = -3,   /**< not in this build, backend or machine; the text says what is missing */
    UJOIN_E_NO_MEMORY = -4,     /**< memory cannot be had; nothing was changed */
    UJOIN_E_TIMEOUT = -5,       /**< the operation's deadline passed; it is dead (ujoin_last_missing) */
    UJOIN_E_ABORTED = -6,       /**< this rank or a peer gave up; the text says who */
    UJOIN_E_PEER_LOST = -7,     /**< a rank died or left (ujoin_last_missing) */
    UJOIN_E_MISMATCH = -8,      /**< ranks called different things; the text has both descriptions */
    UJOIN_E_EXHAUSTED = -9,     /**< throw mode: a rank has no more inputs; the same use on every rank */
    UJOIN_E_SYSTEM = -10,       /**< the system refused; ujoin_last_errno */
    UJOIN_E_BACKEND = -11,      /**< a library under a backend reported an error */
    UJOIN_E_CALLBACK = -12,     /**< a callback failed, or the interrupt check asked to stop */
    UJOIN_E_CHILD_FAILED = -13, /**< a worker failed; pctx_report */
    UJOIN_E_INTERNAL = -14      /**< a defect of the library; please report the text */
};

/** Durations in structs (milliseconds). */
enum ujoin_time_value {
    UJOIN_NEVER = -1, /**< no limit */
    UJOIN_NOW = -2    /**< zero milliseconds, where 0 means "the default" */
};

/** Runs once, when the library will never use user_data again. */
typedef void (*ujoin_destroy_fn)(void *user_data);

/** A plain function of the program: an interrupt check, a closure, a recorded function. */
typedef ujoin_status (*ujoin_call_fn)(void *user_data);

/**
 * The library's version as text, "0.1.0". Compare numbers with the macros of the header that was compiled.
 * @local @anythread @since 0.1
 */
UJOIN_API const char *ujoin_version(void);

/**
 * The library's UJOIN_ABI_VERSION. A binding refuses to load when it is lower than that of the header it was made from.
 * @local @anythread @since 0.1
 */
UJOIN_API int32_t ujoin_abi_version(void);

/**
 * What this build and this machine can do: one line per backend, "name<TAB>yes|no<TAB>why not, or the library found".
 * Looks for the modules on the first call. The text lives as long as the process.
 * @local @anythread @since 0.1
 */
UJOIN_API const char *ujoin_backends(void);

/* ========================================================================================================= Errors == */

/**
 * The text of the last failed call on this thread, with its whole chain of causes, rank and operation.
 * Never NULL; "" if nothing has failed yet. Valid until the next failing call on this thread.
 * @local @anythread @since 0.1
 */
UJOIN_API const char *ujoin_last_error(void);

/**
 * The errno behind the last error of this thread; 0 if the system was not its cause.
 * @local @anythread @since 0.1
 */
UJOIN_API int32_t ujoin_last_errno(void);

/**
 * The ranks that the last error of this thread is about: missing, late, lost, aborted or exhausted.
 * Writes at most `capacity` of them, ascending, and returns how many there are.
 * @local @anythread @since 0.1
 */
UJOIN_API size_t ujoin_last_missing(int32_t *out_ranks, size_t capacity);

/**
 * The name of a status, "UJOIN_E_TIMEOUT". Static; "UJOIN_E_?" for an unknown value.
 * @local @anythread @since 0.1
 */
UJOIN_API const char *ujoin_status_name(ujoin_status status);

/**
 * For callbacks: sets this thread's error text (copied) and returns `status`, so that a hook can say
 * `return ujoin_set_last_error(UJOIN_E_CALLBACK, text)`. The text becomes the cause in the failing call's error.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_set_last_error(ujoin_status status, const char *text);

/* ============================================================================================= Hooks for bindings == */

/** Severity of a log line. */
typedef int32_t ujoin_log_level;
enum ujoin_log_level_value { UJOIN_LOG_ERROR = 1, UJOIN_LOG_WARNING = 2, UJOIN_LOG_INFO = 3, UJOIN_LOG_DEBUG = 4 };

/** Receives one log line without a newline; may run on any thread, and at the same time on several. */
typedef void (*ujoin_log_fn)(void *user_data, ujoin_log_level level, const char *text);

/**
 * Sets the check that lets Ctrl-C end a blocking call (a binding looks for its runtime's pending signals there). It runs
 * on the thread that waits, every 100 ms at most; a negative status ends the call with UJOIN_E_CALLBACK. A wait that it
 * ends (ujoin_work_wait, pctx_wait) leaves the object as it was; any other call behaves as if its object had been aborted.
 * NULL removes it. Process-wide.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_set_interrupt_check(ujoin_call_fn fn, void *user_data, ujoin_destroy_fn destroy);

/**
 * Sets where log lines of at least this severity go; level 0 = warnings and errors. Without a sink nothing is written.
 * NULL removes it; when this returns, the old sink is no longer running on any thread but the caller's. Process-wide.
 * The sink may not call the library.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_set_log_sink(ujoin_log_level level, ujoin_log_fn fn, void *user_data,
                                          ujoin_destroy_fn destroy);

/* ========================================================================================================== Store == */

/** Options of ujoin_store_create. */
typedef struct ujoin_store_options {
    size_t size;
    const char *secret; /**< tcp: shared secret; default: the variable UJOIN_SECRET; neither: none */
    int64_t timeout_ms; /**< to reach the server or the file; default 5 minutes */
    int32_t listen;     /**< tcp: be the server (port 0 in the address = any free port) */
    int32_t reserved;
} ujoin_store_options;

/**
 * Opens a store: "memory://name" (this process: equal names share it), "file:///path", "tcp://host:port" (one process
 * opens it with `listen`).
 * A tcp server listens on the given address only. UJOIN_E_SYSTEM: address in use, no such host, unwritable file. UJOIN_E_TIMEOUT: nobody answered.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_store_create(const char *url, const ujoin_store_options *options, ujoin_store **out);

/**
 * A view of a store in which every key carries a prefix. It keeps the store alive.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_store_prefix(ujoin_store *store, const char *prefix, ujoin_store **out);

/**
 * The address by which other processes reach this store, with the real port; "" for memory. Lives with the handle.
 * @local @anythread @since 0.1
 */
UJOIN_API const char *ujoin_store_url(const ujoin_store *store);

/**
 * Sets a key. Values are bytes, at most 16 MiB; keys are text, at most 1 KiB. Overwrites.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_store_set(ujoin_store *store, const char *key, const void *data, size_t size);

/**
 * Waits until a key exists and copies its value. UJOIN_PENDING: not there in time. If `capacity` is too small nothing is
 * copied, out_size tells what is needed, and the status is UJOIN_E_INVALID; out_data may be NULL with capacity 0.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_store_get(ujoin_store *store, const char *key, int64_t timeout_ms, void *out_data,
                                       size_t capacity, size_t *out_size);

/**
 * Adds to a counter (absent = 0) and returns its new value; atomic over all clients. 0 reads it.
 * The value of the key is the number as decimal text. UJOIN_E_MISMATCH: the key holds something else.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_store_add(ujoin_store *store, const char *key, int64_t amount, int64_t *out_value);

/**
 * Waits until all keys exist. UJOIN_PENDING: not all in time; the text lists the missing ones.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_store_wait(ujoin_store *store, const char *const *keys, size_t count, int64_t timeout_ms);

/**
 * Ends every wait on this handle with UJOIN_E_ABORTED, now and later. Other clients are not concerned.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_store_abort(ujoin_store *store);

/**
 * Drops the handle. A server goes on until the last group or prefix made from it is gone.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_store_destroy(ujoin_store *store);

/* ================================================================================================ Element and memory == */

/** Element types. */
typedef int32_t ujoin_dtype;
enum ujoin_dtype_value {
    UJOIN_F32 = 1,
    UJOIN_F64 = 2,
    UJOIN_F16 = 3,
    UJOIN_BF16 = 4,
    UJOIN_I32 = 5,
    UJOIN_I64 = 6,
    UJOIN_U8 = 7
};

/** Where memory lies. */
typedef int32_t ujoin_device;
enum ujoin_device_value { UJOIN_DEVICE_HOST = 0, UJOIN_DEVICE_CUDA = 1 };

/** Memory that is written. Any alignment; count 0 is allowed, also with NULL. Given in arrays: fixed. */
typedef struct ujoin_buffer {
    void *data;
    size_t count; /**< elements, not bytes */
    ujoin_dtype dtype;
    ujoin_device device;  /**< 0 = host */
    int32_t device_index; /**< counts only if device is not the host */
    int32_t reserved;
} ujoin_buffer;

/** Memory that is only read. The same layout. */
typedef struct ujoin_const_buffer {
    const void *data;
    size_t count;
    ujoin_dtype dtype;
    ujoin_device device;
    int32_t device_index;
    int32_t reserved;
} ujoin_const_buffer;

/** A name and a number: hyper-parameters ({"lr", 1e-3}) and options of join hooks. Given in arrays: fixed. */
typedef struct ujoin_hyper {
    const char *name;
    double value;
} ujoin_hyper;

/** Bits of ujoin_param.flags, so that ddp and zero may share one array: each passes over the other's. */
enum ujoin_param_flag {
    UJOIN_PARAM_FROZEN = 1, /**< zero: not trained for now; zero_set_frozen changes it */
    UJOIN_PARAM_IGNORED = 2 /**< ddp: takes no part, is neither verified nor broadcast nor reduced; data may be NULL */
};

/** A parameter and its gradient in the program's memory, row-major. Given in arrays: fixed, hence the reserve. */
typedef struct ujoin_param {
    const char *name; /**< unique; NULL = its index as text. State is keyed by it */
    void *data;
    void *grad;   /**< NULL: no gradient (yet) */
    size_t count; /**< elements; 0 with a shape = the shape's product */
    ujoin_dtype dtype;
    ujoin_dtype grad_dtype; /**< 0 = as dtype */
    ujoin_device device;    /**< of data and grad; 0 = host */
    int32_t device_index;
    const int64_t *shape; /**< NULL = one dimension of `count` */
    int32_t ndim;
    int32_t flags; /**< ujoin_param_flag */
    uint64_t reserved[2];
} ujoin_param;

/* ========================================================================================================== Group == */

/** Reductions; 0 = sum. avg divides by the number of contributors and cannot overflow (of integers: toward zero); min and
    max propagate NaN; sums and products of integers wrap. */
typedef int32_t ujoin_reduce;
enum ujoin_reduce_value { UJOIN_SUM = 1, UJOIN_AVG = 2, UJOIN_MIN = 3, UJOIN_MAX = 4, UJOIN_PROD = 5 };

/** Kinds of operations. n = elements, W = size of the group; in parentheses what a rank sends -> what it receives. */
typedef int32_t ujoin_op_kind;
enum ujoin_op_kind_value {
    UJOIN_OP_BARRIER = 1,
    UJOIN_OP_ALL_REDUCE = 2,     /**< (n -> n) */
    UJOIN_OP_REDUCE = 3,         /**< (n -> n at the root) in rank order; elsewhere recv is not written */
    UJOIN_OP_BROADCAST = 4,      /**< (n at the root -> n): the root gives send or recv, the others recv */
    UJOIN_OP_ALL_GATHER = 5,     /**< (n -> W n, by rank), or recv_counts, the same on every rank */
    UJOIN_OP_GATHER = 6,         /**< (n -> W n at the root), or its recv_counts */
    UJOIN_OP_SCATTER = 7,        /**< (W n at the root, or its send_counts -> n) */
    UJOIN_OP_REDUCE_SCATTER = 8, /**< (W n -> n), or recv_counts, the same on every rank */
    UJOIN_OP_ALL_TO_ALL = 9,     /**< (W n -> W n), or send_counts and recv_counts */
    UJOIN_OP_SEND = 10,          /**< (n -> nothing) to `peer` */
    UJOIN_OP_RECV = 11           /**< (nothing -> n) from `peer` */
};

/** One operation, completely described. What a kind does not use on this rank is not looked at. */
typedef struct ujoin_op {
    size_t size; /**< in arrays that of the first is the distance between elements; all have the same */
    ujoin_op_kind kind;
    ujoin_reduce reduce; /**< of kinds that reduce; 0 = sum */
    int32_t peer;        /**< the root, or the other rank of send and recv */
    int32_t reserved;
    ujoin_const_buffer send;   /**< all zero = in place: what this rank sends lies in recv (its own part, of a gather) */
    ujoin_buffer recv;         /**< all zero at the root of a scatter: its own part stays in send */
    const size_t *send_counts; /**< elements for each rank, end to end in send; NULL = equal parts; read during the call */
    const size_t *recv_counts; /**< likewise in recv */
} ujoin_op;

/** How an operation runs. */
typedef struct ujoin_op_options {
    size_t size;
    int64_t timeout_ms;       /**< default: the group's */
    void *stream;             /**< NULL: there is no device memory in this version */
    ujoin_destroy_fn release; /**< once, when the memory is free again, also if the call fails; on any thread */
    void *release_data;
} ujoin_op_options;

/** Options of ujoin_group_create. */
typedef struct ujoin_group_options {
    size_t size;
    const char *rendezvous; /**< "env://" (default), "tcp://host:port", "file:///path", "local://name" (threads) */
    const char *backend;    /**< "auto" (default), "self" (one rank), "local" (threads), "shm" (one host), "hier" (several
                                 hosts), "tcp" (ranks anywhere, without shared memory) */
    const char *name;       /**< tells apart several groups of one rendezvous; default "" */
    ujoin_store *store;     /**< instead of a rendezvous: meet here */
    int32_t rank;           /**< counts only if world_size is set; else from the environment */
    int32_t world_size;
    int64_t timeout_ms;            /**< deadline of a bare collective; default UJOIN_TIMEOUT_MS, else 10 minutes */
    int64_t rendezvous_timeout_ms; /**< default 5 minutes */
    int32_t shadow_collectives;    /**< a joined rank shadows the program's own collectives, see ujoin_ctx_start */
    int32_t threads;               /**< that compute; default UJOIN_THREADS, else processors / local ranks; at most 1024 */
} ujoin_group_options;

/** Facts about a group. */
typedef struct ujoin_group_info {
    size_t size;
    const char *backend; /**< what "auto" chose; lives with the group */
    int32_t rank;
    int32_t world_size;
    int32_t local_rank; /**< among the ranks of this host */
    int32_t local_size;
    int32_t progress; /**< 1: work advances by itself; 0: only inside calls (fewer processors than ranks) */
    int32_t threads;  /**< that compute in this rank, see ujoin_group_options */
} ujoin_group_info;

/**
 * Makes a group: ranks meet, agree on a backend, attach. NULL options: env:// and the best backend for all.
 * UJOIN_E_INVALID: a variable or option is wrong (named). UJOIN_E_TIMEOUT: the text names the ranks that came.
 * UJOIN_E_MISMATCH: ranks differ in size, backend or options. UJOIN_E_UNSUPPORTED: who could not use the backend, and why.
 * env:// reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as ujoin-run sets them. The group keeps `store` alive.
 * "auto" takes several hosts to be meant where LOCAL_WORLD_SIZE is not WORLD_SIZE, UJOIN_STORE is set (ujoin-run does both), or
 * the rendezvous is tcp:// with another address than this machine's loopback. Ranks then meet in a store: the launcher's, the
 * option's, a file that all hosts see, or one that rank 0 opens at the rendezvous's address, with the secret UJOIN_SECRET if it
 * is set. Ranks of a host (UJOIN_HOST_ID; by default they are found) share memory, and each has a connection to each rank of
 * other hosts: it listens at the address from which it reaches the store, or that of the interface UJOIN_IFNAME, and lets in
 * only who proves to belong to the group. Results have the same bits as on one host. A rank whose process ends is lost at once,
 * one whose host is silent in about 10 s. Such a group shares no memory of ujoin_memory_create.
 * threads: what a step of an optimizer computes over many elements is shared by the calling thread and threads that the group
 * makes when they are first needed; they sleep in between, block all signals, and end with the group. Results do not depend
 * on the number, which may differ between ranks. By default it is the rank's share of the processors that affinity mask and
 * cgroup quota leave this process. Rules and hooks of the program's own run on the calling thread.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_group_create(const ujoin_group_options *options, ujoin_group **out);

/**
 * Makes a group of the ranks that give the same color, in the order of their keys, and of their ranks where keys are equal. A
 * negative color: no group for this rank, *out = NULL, UJOIN_SKIPPED. Of `options` (NULL: as ujoin_group_create's defaults)
 * rendezvous, store, rank and world_size must be absent; backend "auto" is the group's own. The new group does not depend on
 * the old one: each has its operations, may be used from a thread of its own, and fails alone.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_group_split(ujoin_group *group, int32_t color, int32_t key, const ujoin_group_options *options,
                                         ujoin_group **out);

/**
 * This process's rank in the group, 0 to size - 1; -1 for NULL.
 * @local @anythread @since 0.1
 */
UJOIN_API int32_t ujoin_group_rank(const ujoin_group *group);

/**
 * The number of ranks; -1 for NULL.
 * @local @anythread @since 0.1
 */
UJOIN_API int32_t ujoin_group_size(const ujoin_group *group);

/**
 * Fills a struct (set its size) with what was agreed: backend, ranks of this host, progress; and with this rank's threads.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_group_get_info(const ujoin_group *group, ujoin_group_info *out);

/**
 * Waits until all operations of this rank are complete and every rank has come here, then ends the group.
 * UJOIN_PENDING: not in this time; call again, or destroy. Later operations are UJOIN_E_STATE.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_group_close(ujoin_group *group, int64_t timeout_ms);

/**
 * Gives up: everything on this group ends with UJOIN_E_ABORTED on every rank, within a second; `reason` (copied, may be
 * NULL) becomes part of their texts. The group is broken from then on.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_group_abort(ujoin_group *group, const char *reason);

/**
 * Drops the handle; says goodbye if the group is not closed. What was complete stays complete; a peer's later operation
 * is UJOIN_E_PEER_LOST. Work in flight and objects made from the group keep it alive.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_group_destroy(ujoin_group *group);

/* =========================================================================================== Collectives and work == */

/**
 * Reduces over all ranks (in rank order) into recv on every rank; bit-identical on all of them.
 * send NULL = in place. Sums of 16-bit types are accumulated in 32-bit. out_work NULL = returns when done; else returns at
 * once and *out_work is in flight. UJOIN_E_MISMATCH: ranks differ in operation, reduction, type or count.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_all_reduce(ujoin_group *group, const ujoin_const_buffer *send, const ujoin_buffer *recv,
                                        ujoin_reduce reduce, const ujoin_op_options *options, ujoin_work **out_work);

/**
 * Copies the root's memory into every rank's; on the root it is only read. out_work as in ujoin_all_reduce.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_broadcast(ujoin_group *group, const ujoin_buffer *buffer, int32_t root,
                                       const ujoin_op_options *options, ujoin_work **out_work);

/**
 * Gathers send of every rank, in rank order, into recv (size times its count). send NULL = in place: this rank's part lies
 * in recv already. out_work as in ujoin_all_reduce.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_all_gather(ujoin_group *group, const ujoin_const_buffer *send, const ujoin_buffer *recv,
                                        const ujoin_op_options *options, ujoin_work **out_work);

/**
 * Reduces send (size times recv's count) and leaves part r in recv of rank r. out_work as in ujoin_all_reduce.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_reduce_scatter(ujoin_group *group, const ujoin_const_buffer *send, const ujoin_buffer *recv,
                                            ujoin_reduce reduce, const ujoin_op_options *options, ujoin_work **out_work);

/**
 * Runs operations as one: they are complete together. For the rarer kinds, parts of unequal size, many tensors at once
 * (neighbours of one kind, type, reduction and root become a single operation), and messages that must not wait for each
 * other. Every rank gives the same operations in the same order; send and recv concern their two ranks only, and go before
 * the others, all at once. Between two ranks messages come in order. A message is complete, on both sides, when it has been
 * received: of two ranks that send to each other by calls of their own, each waits for the other until the deadline. Messages
 * are no part of join contexts. out_work as in ujoin_all_reduce; the array is read during the call.
 * UJOIN_E_MISMATCH: ranks differ in kind, reduction, type, count or root; a part or a message has another size than its
 * receiver expects, or its peer is in another operation (on ranks not concerned, in a later call).
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_submit(ujoin_group *group, const ujoin_op *ops, size_t count, const ujoin_op_options *options,
                                    ujoin_work **out_work);

/**
 * Returns when every rank has come here. Past its deadline UJOIN_E_TIMEOUT, with the missing ranks in the text and in
 * ujoin_last_missing().
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_barrier(ujoin_group *group, const ujoin_op_options *options);

/**
 * Waits for an operation. UJOIN_PENDING: not in this time. Otherwise its final status, the same on every later call;
 * an error's text is set on this thread. Work of one group completes in the order of submission.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_work_wait(ujoin_work *work, int64_t timeout_ms);

/**
 * UJOIN_PENDING, or the final status. Advances the operation if the group has no progress thread; never waits.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_work_test(ujoin_work *work);

/**
 * The ranks that contributed to a completed operation: all, unless joined ranks shadowed it; none if it is a message. Writes at
 * most `capacity` of them, ascending, and returns how many there are; 0 while it is in flight, and if it failed.
 * @local @anythread @since 0.1
 */
UJOIN_API size_t ujoin_work_contributors(const ujoin_work *work, int32_t *out_ranks, size_t capacity);

/**
 * Gives up an operation in flight; its final status is UJOIN_E_ABORTED on every rank, and its group is broken.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_work_abort(ujoin_work *work);

/**
 * Drops the handle. An operation in flight goes on: its memory is free when its `release` has run.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_work_destroy(ujoin_work *work);

/* ================================================================================================== Shared memory == */

/** Options of ujoin_memory_create. */
typedef struct ujoin_memory_options {
    size_t size;
    ujoin_device device; /**< 0 = host, the only one of this version */
    int32_t device_index;
    int32_t one_per_host; /**< one copy for all ranks of a host instead of one each; the same on every rank */
    int32_t reserved;
} ujoin_memory_options;

/**
 * Memory that the ranks of a host share: aligned to 4 KiB, zeroed, reserved now (UJOIN_E_NO_MEMORY instead of a bus error
 * later), and gone with its ranks, however they end. Each rank has its own, of its own size; with one_per_host all see the
 * same bytes and must give the same size (UJOIN_E_MISMATCH). An optimizer whose parameters and gradients all lie in such
 * memory of its group, on every rank, needs no copies for a fused step (UJOIN_GRADIENT_SYNC_TO_OWNER) and writes parameters
 * once where they are shared. If it fails on one rank it fails on all, with that rank's error. UJOIN_E_INVALID: bytes is 0,
 * or more than memory can hold. UJOIN_E_UNSUPPORTED: a device.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_memory_create(ujoin_group *group, size_t bytes, const ujoin_memory_options *options,
                                           ujoin_memory **out);

/**
 * The address of the memory in this process. Valid until the handle is destroyed.
 * @local @anythread @since 0.1
 */
UJOIN_API void *ujoin_memory_data(const ujoin_memory *memory);

/**
 * Its size in bytes, as it was asked for.
 * @local @anythread @since 0.1
 */
UJOIN_API size_t ujoin_memory_size(const ujoin_memory *memory);

/**
 * Drops the handle. The pages go when no optimizer and no peer uses them any more.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_memory_destroy(ujoin_memory *memory);

/* =========================================================================================== Join: uneven inputs == */

/** What a hook is told. */
typedef struct ujoin_hook_args {
    size_t size;
    ujoin_joinable *joinable;
    int64_t round;              /**< rounds of the context so far, from 0 */
    int32_t active;             /**< ranks that have not joined; 0 in post hooks */
    int32_t is_last_joiner;     /**< post hook: this rank ran no shadow */
    int32_t authoritative_rank; /**< post hook: the largest last joiner, the same on every rank; -1 in main hooks */
    int32_t reserved;
    const ujoin_hyper *options; /**< as given to the context */
    size_t option_count;
} ujoin_hook_args;

/** A join hook. May issue collectives on the joinable's group, and call ujoin_joinable_notify (which answers UJOIN_JOINED). */
typedef ujoin_status (*ujoin_hook_fn)(void *user_data, const ujoin_hook_args *args);

/** A joinable of the program's own. */
typedef struct ujoin_hooks {
    size_t size;
    ujoin_hook_fn main_hook; /**< the collectives of one use, in their order; NULL = none */
    ujoin_hook_fn post_hook; /**< once per rank, after all have joined; NULL = none */
    void *user_data;
    ujoin_destroy_fn destroy;
    const char *name;           /**< for texts; default "joinable" */
    const char *const *options; /**< names of the options that the hooks know */
    size_t option_count;
    ujoin_device device; /**< 0 = host */
    int32_t device_index;
} ujoin_hooks;

/** Options of ujoin_ctx_create. */
typedef struct ujoin_ctx_options {
    size_t size;
    int64_t idle_timeout_ms;         /**< without progress of any rank; default UJOIN_NEVER */
    int64_t skew_warning_rounds;     /**< a joined rank warns once; default 1,000; negative = never */
    const ujoin_hyper *hook_options; /**< for all hooks; a name that no joinable knows is UJOIN_E_INVALID */
    size_t hook_option_count;
    int32_t disabled;           /**< start, notify and finish do nothing (inputs are known to be even) */
    int32_t throw_on_exhausted; /**< no shadows: when one rank has no more inputs, all get UJOIN_E_EXHAUSTED */
    int32_t strict;             /**< once per use of the first joinable every hook in list order, as PyTorch does */
    int32_t reserved;
} ujoin_ctx_options;

/** What happened in a context since its last start. */
typedef struct ujoin_ctx_report {
    size_t size;
    int64_t rounds;        /**< of this rank's own */
    int64_t shadow_rounds; /**< that it worked for others */
    int64_t shadow_uses;   /**< main hooks run */
    int64_t shadow_us;     /**< time in them */
    int64_t wait_us;       /**< time waiting for others' progress */
    int32_t is_last_joiner;
    int32_t authoritative_rank; /**< -1 before finish */
    int32_t joined;             /**< ranks that have joined by now */
    int32_t stopped;            /**< an agreed stop ended it */
} ujoin_ctx_report;

/**
 * Makes a joinable: something with collectives in each round, which a joined rank must shadow (metrics, synchronised
 * statistics, a second model). It calls ujoin_joinable_notify before its collectives. Hooks run on the thread that is in
 * ujoin_ctx_finish. A failing hook ends it on all ranks: UJOIN_E_CALLBACK there, UJOIN_E_ABORTED on the others, all with
 * hook and rank. What broke the group inside of a hook (a peer's death, say) keeps its own status.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_joinable_create(ujoin_group *group, const ujoin_hooks *hooks, ujoin_joinable **out);

/**
 * Drops the handle. A context keeps its joinables alive.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_joinable_destroy(ujoin_joinable *joinable);

/**
 * Makes a context over joinables of one group, in the order in which their hooks run. Arms nothing.
 * UJOIN_E_INVALID: none, a NULL, different groups or devices, an unknown hook option (the known ones are listed).
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_ctx_create(ujoin_joinable *const *joinables, size_t count, const ujoin_ctx_options *options,
                                        ujoin_ctx **out);

/**
 * Begins a pass over the inputs and arms the joinables until ujoin_ctx_finish or ujoin_ctx_abort. One armed context per
 * group, one per joinable: else UJOIN_E_STATE. Does not wait for the others. Collectives that are issued in a main hook
 * contribute nothing to a reduction (avg divides by the contributors).
 * On a group with shadow_collectives a joined rank also takes part in what the program itself calls there between start and
 * finish, and no hook does: ujoin_all_reduce and reduce_scatter (it adds nothing: avg divides by the contributors, min and
 * max are over them), all_gather (its part of recv is left as it was; ujoin_work_contributors has the ranks whose parts are
 * there), barrier. A broadcast whose root has joined is UJOIN_E_STATE on every rank. Every rank that has not joined issues
 * them in the same order among the uses. A collective in a main hook counts as the same one that the loop issues, if it is
 * of the same kind, reduction, type, root and count. The results are not for a joined rank; its memory is not touched.
 * Without shadow_collectives such a call is UJOIN_E_MISMATCH on every rank once one has joined.
 * @collective @since 0.1
 */
UJOIN_API ujoin_status ujoin_ctx_start(ujoin_ctx *ctx);

/**
 * Says that this joinable begins one use (one set of its collectives); ddp and zero say it themselves. Publishes and
 * returns, in nanoseconds. With out_active, or in throw mode, it waits until every rank has started this round or joined,
 * and gives the number that started. Without an armed context it does nothing (*out_active = size of the group).
 * UJOIN_JOINED: called from a hook on a joined rank, nothing published. UJOIN_E_EXHAUSTED: throw mode.
 * @collective @since 0.1
 */
UJOIN_API ujoin_status ujoin_joinable_notify(ujoin_joinable *joinable, int32_t *out_active);

/**
 * This rank has no more inputs: works for the others, one main hook per use of the rank that it follows, until all have
 * joined; then runs the post hooks and disarms. UJOIN_E_EXHAUSTED: throw mode, inputs were uneven. UJOIN_E_MISMATCH:
 * ranks started contexts of different joinables or options; a joinable was used too often or too rarely (named, with rank
 * and round; also from ujoin_joinable_notify and collectives); loop and hooks differ in their collectives. The context can
 * be started again.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_ctx_finish(ujoin_ctx *ctx);

/**
 * Asks all ranks to leave after the same round (a signal, a time limit, early stopping). Any rank, any number of times;
 * also from a signal handler, which must be gone before the context is destroyed. Before ujoin_ctx_start it counts for
 * that pass.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_ctx_stop(ujoin_ctx *ctx);

/**
 * 1 when the round that has just ended was the last one by an agreed stop, on every rank alike; else 0; -1 on an error.
 * Ask between rounds; unless it is 0 leave the loop and call ujoin_ctx_finish. A launcher can ask for it too (pctx_stop).
 * Waits only where a rank is 16 uses behind this one.
 * @local @blocking @since 0.1
 */
UJOIN_API int32_t ujoin_ctx_stopped(ujoin_ctx *ctx);

/**
 * The loop's body failed: disarms, and every peer gets UJOIN_E_ABORTED with `reason` (may be NULL). Breaks the group.
 * Nothing if the context is not armed, so bindings call it on every way out that is not the good one.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_ctx_abort(ujoin_ctx *ctx, const char *reason);

/**
 * Fills a struct (set its size) with rounds, shadows and times since the last start.
 * @local @since 0.1
 */
UJOIN_API ujoin_status ujoin_ctx_get_report(const ujoin_ctx *ctx, ujoin_ctx_report *out);

/**
 * The rounds that each rank ran before it joined: who joined when. Writes at most `capacity` entries, by rank (-1: not
 * joined yet), and returns the size of the group. The last joiners are those with the largest number.
 * @local @since 0.1
 */
UJOIN_API size_t ujoin_ctx_rounds(const ujoin_ctx *ctx, int64_t *out_rounds, size_t capacity);

/**
 * Drops the handle; an armed context is aborted first.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_ctx_destroy(ujoin_ctx *ctx);

/* ======================================================================================== Ddp: gradient reduction == */

/** What a summed gradient is divided by. */
typedef int32_t ujoin_division;
enum ujoin_division_value {
    UJOIN_DIVISION_INITIAL = 1, /**< the size of the group (default) */
    UJOIN_DIVISION_ACTIVE = 2,  /**< the ranks that have not joined */
    UJOIN_DIVISION_SAMPLES = 3  /**< the samples of all ranks: equals one process that sees every sample */
};

/** What the program's gradients are, for UJOIN_DIVISION_SAMPLES. */
typedef int32_t ujoin_gradient_kind;
enum ujoin_gradient_kind_value {
    UJOIN_GRADIENT_MEAN = 1, /**< over the rank's own samples (default): result = sum(n g) / sum(n) */
    UJOIN_GRADIENT_SUM = 2   /**< result = sum(g) / sum(n); the one for accumulation */
};

/** Who sums the gradients. */
typedef int32_t ujoin_gradient_sync;
enum ujoin_gradient_sync_value {
    UJOIN_GRADIENT_SYNC_ALL = 1,     /**< the reducer, for every rank (default) */
    UJOIN_GRADIENT_SYNC_TO_OWNER = 2 /**< zero_step, each element for the rank that owns it: the fused step */
};

/** Ways to reduce a bucket. */
typedef int32_t ujoin_comm_hook_kind;
enum ujoin_comm_hook_kind_value {
    UJOIN_COMM_HOOK_ALL_REDUCE = 1, /**< the gradients as they are */
    UJOIN_COMM_HOOK_F16 = 2,        /**< f32 and f64 as f16 on the way; what is beyond 65504 becomes infinite */
    UJOIN_COMM_HOOK_BF16 = 3,       /**< f32 and f64 as bf16 on the way */
    UJOIN_COMM_HOOK_LOW_RANK = 4,   /**< matrices as low-rank factors with error feedback (PowerSGD) */
    UJOIN_COMM_HOOK_CUSTOM = 5      /**< the program's functions */
};

/** When a buffer hook runs. */
typedef int32_t ujoin_buffer_time;
enum ujoin_buffer_time_value {
    UJOIN_BUFFER_AFTER_FORWARD = 1, /**< in ujoin_ddp_finish (default) */
    UJOIN_BUFFER_BEFORE_FORWARD = 2 /**< in ujoin_ddp_forward */
};

/** Options of ujoin_ddp_create. */
typedef struct ujoin_ddp_options {
    size_t size;
    ujoin_division division;
    ujoin_gradient_kind gradient_kind;
    int32_t find_unused;          /**< parameters may get no gradient in an iteration: finish takes them as unused */
    int32_t static_graph;         /**< as find_unused, but each rank uses the same ones in every iteration */
    int32_t bucket_view;          /**< the library has the gradients' memory: see ujoin_ddp_gradient */
    int32_t no_buffer_broadcast;  /**< buffers are each rank's own during training */
    int32_t no_initial_broadcast; /**< parameters and buffers are equal already: only verify names, shapes and types */
    int32_t source_rank;          /**< whose parameters and buffers all start from; 0 = rank 0 */
    const ujoin_buffer *buffers; /**< synchronised, not trained (running statistics); any type; memory borrowed as params */
    size_t buffer_count;
    size_t first_bucket_bytes; /**< default 1 MiB, or bucket_bytes where that is given and less */
    size_t bucket_bytes;       /**< default 25 MiB */
    int64_t idle_timeout_ms;   /**< without progress of the peers; default UJOIN_NEVER */
    ujoin_destroy_fn release;  /**< once, when the memory is no longer touched, also if create fails */
    void *release_data;
    ujoin_gradient_sync gradient_sync; /**< see zero_create; buckets do not count with UJOIN_GRADIENT_SYNC_TO_OWNER */
    /** A parameter is not read any more once its gradient is ready: an optimizer that was made with this reducer may update
        it, on every rank, before ujoin_ddp_finish. The same on every rank. See zero_create. */
    int32_t params_released_on_ready;
} ujoin_ddp_options;

/** A bucket as a comm hook sees it, or a buffer as a buffer hook does. */
typedef struct ujoin_bucket {
    size_t size;
    ujoin_group *group;    /**< borrowed, for this call */
    ujoin_buffer buffer;   /**< this rank's undivided gradients, end to end; the hook leaves the result here */
    const size_t *params;  /**< indices of the parameters in it; NULL for a buffer */
    const size_t *offsets; /**< where each begins, in elements */
    size_t param_count;
    double divisor;      /**< of the sum over the ranks: size, active ranks or samples; see ujoin_ddp_set_comm_hook */
    int64_t iteration;   /**< synchronised ones before it, those that this rank shadowed too */
    int32_t index;       /**< of the bucket in the order of launch, or of the buffer; from 0 */
    int32_t is_last;     /**< the last bucket or buffer of its iteration */
    int32_t is_shadow;   /**< this rank has joined: the contribution is zero */
    int32_t source_rank; /**< the lowest rank that has not joined: the buffers' source where there is no hook */
} ujoin_bucket;

/** A part of a comm hook: collectives on bucket->group, the same ones on every rank, shadows included. */
typedef ujoin_status (*ujoin_bucket_fn)(void *user_data, const ujoin_bucket *bucket, ujoin_work **out_work);

/** How buckets, or buffers, are reduced. */
typedef struct ujoin_comm_hook {
    size_t size;
    ujoin_bucket_fn start; /**< custom: reduces now, or passes out work in flight, whose handle the library takes */
    ujoin_bucket_fn then; /**< custom: when that work is complete; may pass out more, and is called again; NULL = nothing */
    void *user_data;
    ujoin_destroy_fn destroy;
    int64_t start_iteration; /**< low rank: plain all-reduce before this one; default 1,000; negative = from the first on */
    ujoin_comm_hook_kind kind; /**< default: custom if `start` is given, else all-reduce */
    int32_t rank;              /**< low rank: of the factors; default 1 */
} ujoin_comm_hook;

/** What a reducer did. */
typedef struct ujoin_ddp_report {
    size_t size;
    int64_t iterations; /**< synchronised ones */
    double divisor;     /**< of the last one; 0: no rank had a sample, gradients were left alone */
    double samples;     /**< of all ranks in the last one */
    int64_t reduce_us;  /**< time that reductions took, all iterations */
    int64_t exposed_us; /**< of that, time spent waiting in finish, or for updates in ready: the rest was hidden */
    size_t bucket_count;
    int32_t rebuilt;       /**< buckets follow the order in which gradients became ready */
    int32_t joined_uneven; /**< has been in a join context with uneven inputs */
} ujoin_ddp_report;

/**
 * Makes a reducer for these parameters: verifies count, names, shapes and types over the ranks, then copies the source
 * rank's values to all. Parameters, gradients and buffers are borrowed until `release`. Buckets of one type each are filled
 * in the reverse order of the parameters; from the second synchronised iteration on in the order in which gradients became
 * ready in the first one on the lowest rank that had one (not with find_unused).
 * UJOIN_E_MISMATCH on every rank: the text names the first difference and the ranks. UJOIN_E_INVALID: nothing to train,
 * a parameter without gradient memory, a gradient type other than the parameter's, a type that is no floating-point one.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_ddp_create(ujoin_group *group, const ujoin_param *params, size_t count,
                                        const ujoin_ddp_options *options, ujoin_ddp **out);

/**
 * The reducer as a participant of a join context. Borrowed: do not destroy it; it lives as long as the reducer.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_joinable *ujoin_ddp_joinable(ujoin_ddp *ddp);

/**
 * Begins an iteration on a batch of so many samples (0 is allowed: with UJOIN_DIVISION_SAMPLES its gradients are not even
 * read): notifies the join context and copies the buffers of the lowest rank that has not joined to all. While sync is off
 * (ujoin_ddp_set_sync) it only counts: samples add up until the iteration that synchronises. Runs buffer hooks.
 * UJOIN_E_STATE: the last iteration is not finished (parameters without gradient are listed); with
 * UJOIN_GRADIENT_SYNC_TO_OWNER, no optimizer was made with the reducer. UJOIN_E_EXHAUSTED.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_ddp_forward(ujoin_ddp *ddp, double samples);

/**
 * Gradient `index` is complete; its bucket is reduced when it is full. Any order; different gradients from several
 * threads at once. Runs comm hooks, one at a time. With params_released_on_ready it also makes the updates that are due
 * (see zero_create): the call that fills a bucket waits until every rank has reduced the one before, and runs a rule of the
 * program's. Without effect for an ignored parameter. UJOIN_E_STATE: ready twice, outside of an iteration, or a parameter
 * that a static graph did not use in its first one. An error in a hook or an update ends the iteration: no memory is in use
 * any more, and ujoin_ddp_finish, or another call of this, returns it again.
 * @local @blocking @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_ddp_ready(ujoin_ddp *ddp, size_t index);

/**
 * Ends an iteration: waits for the reductions; gradients then hold the divided sum on every rank, also on joined ones.
 * With find_unused or static_graph a gradient that no rank used since the last synchronised iteration is left alone, one
 * that others used counts as zeros here. Without sync nothing is reduced. Runs comm and buffer hooks, and the step of an
 * optimizer that was made with this reducer (ujoin_zero_options.ddp), whose errors it returns. With
 * UJOIN_GRADIENT_SYNC_TO_OWNER gradients are left as they are, and zero_step comes next.
 * UJOIN_E_STATE: a gradient is not ready (listed), or no iteration was begun. UJOIN_E_MISMATCH: ranks disagree on how many
 * iterations they accumulated, or on hooks.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status ujoin_ddp_finish(ujoin_ddp *ddp);

/**
 * 0: the next iterations accumulate (no reduction, no notice to the join context); 1: they synchronise again.
 * The same on every rank. What was accumulated when a join context ends is not reduced. Not within an iteration.
 * @local @since 0.1
 */
UJOIN_API ujoin_status ujoin_ddp_set_sync(ujoin_ddp *ddp, int32_t enabled);

/**
 * Chooses how buckets are reduced; once, before the first iteration (else UJOIN_E_STATE), the same on every rank; not with
 * UJOIN_GRADIENT_SYNC_TO_OWNER (UJOIN_E_STATE), which has no buckets. The hook's functions run on the threads in
 * ujoin_ddp_ready, ujoin_ddp_finish and, as shadows, ujoin_ctx_finish: `start` in the order of the buckets, then `then` bucket
 * by bucket (with params_released_on_ready that of a bucket right behind the next `start`). The result is what they leave in
 * the bucket: dividing is theirs. With UJOIN_DIVISION_SAMPLES and means a bucket holds this rank's share, n g / sum(n), and its
 * divisor is 1 (0: no rank has a sample). A failing hook aborts the group. The hook is owned from this call on.
 * @local @since 0.1
 */
UJOIN_API ujoin_status ujoin_ddp_set_comm_hook(ujoin_ddp *ddp, const ujoin_comm_hook *hook);

/**
 * Replaces the broadcast of buffers: called for each buffer in each synchronised iteration, before or after forward; work
 * that it passes out is complete when that call returns. Kinds: all-reduce (the average), custom. Shadowed by joined
 * ranks. Once, before the first iteration. The hook is owned from this call on.
 * @local @since 0.1
 */
UJOIN_API ujoin_status ujoin_ddp_set_buffer_hook(ujoin_ddp *ddp, ujoin_buffer_time time, const ujoin_comm_hook *hook);

/**
 * Where gradient `index` lies: with bucket_view in the library's memory, gradients of one type side by side (zeros at the
 * start, or what `grad` held), the same place as long as the reducer lives; else the caller's own. NULL: ignored.
 * @local @anythread @since 0.1
 */
UJOIN_API void *ujoin_ddp_gradient(ujoin_ddp *ddp, size_t index);

/**
 * How many ranks used each parameter in the last synchronised iteration (joined ranks do not count; with a static graph in
 * the first one). Writes at most `capacity` entries and returns the number of parameters. Without find_unused and
 * static_graph all that are not ignored are taken as used by every active rank.
 * @local @since 0.1
 */
UJOIN_API size_t ujoin_ddp_used(const ujoin_ddp *ddp, int32_t *out_ranks, size_t capacity);

/**
 * Fills a struct (set its size) with counts, divisor and times.
 * @local @since 0.1
 */
UJOIN_API ujoin_status ujoin_ddp_get_report(const ujoin_ddp *ddp, ujoin_ddp_report *out);

/**
 * Drops the handle. The parameters are free when `release` has run.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_ddp_destroy(ujoin_ddp *ddp);

/* ======================================================================================== Zero: sharded optimizer == */

/** Update rules; hyper-parameters in parentheses, with PyTorch's names and defaults where it has them. All but LAMB work
    element by element. LAMB's trust ratio |p| / |update| is that of a whole parameter, which one rank must own. */
typedef int32_t ujoin_optimizer;
enum ujoin_optimizer_value {
    UJOIN_OPTIMIZER_CUSTOM = 1,   /**< ujoin_zero_options.rule */
    UJOIN_OPTIMIZER_SGD = 2,      /**< (lr 1e-3, momentum, dampening, nesterov, weight_decay, maximize) */
    UJOIN_OPTIMIZER_ADAM = 3,     /**< (lr, beta1, beta2, eps, weight_decay, amsgrad, maximize) */
    UJOIN_OPTIMIZER_ADAMW = 4,    /**< as Adam, decoupled weight decay */
    UJOIN_OPTIMIZER_ADAGRAD = 5,  /**< (lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize) */
    UJOIN_OPTIMIZER_RMSPROP = 6,  /**< (lr, alpha, eps, weight_decay, momentum, centered, maximize) */
    UJOIN_OPTIMIZER_ADADELTA = 7, /**< (lr, rho, eps, weight_decay, maximize) */
    UJOIN_OPTIMIZER_ADAMAX = 8,   /**< (lr, beta1, beta2, eps, weight_decay, maximize) */
    UJOIN_OPTIMIZER_NADAM = 9,    /**< as Adamax, and (momentum_decay, decoupled_weight_decay) */
    UJOIN_OPTIMIZER_RADAM = 10,   /**< as Adamax, and (decoupled_weight_decay) */
    UJOIN_OPTIMIZER_RPROP = 11,   /**< (lr, etaminus, etaplus, step_min, step_max, maximize) */
    UJOIN_OPTIMIZER_LAMB = 12,    /**< (lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-6, weight_decay 0.01, maximize) */
    UJOIN_OPTIMIZER_LION = 13     /**< (lr 1e-4, beta1 0.9, beta2 0.99, weight_decay 0, maximize) */
};

/** How parameters are given to ranks. Element by element, rules give the same bits with either, and on any number of ranks. */
typedef int32_t ujoin_partition;
enum ujoin_partition_value {
    UJOIN_PARTITION_PARAMETERS = 1, /**< whole, largest first, to the rank with the fewest elements: PyTorch's (default) */
    UJOIN_PARTITION_ELEMENTS = 2    /**< each param group end to end, cut at cache lines: within one of equal parts */
};

/** What a rule of the program's own updates: a parameter, or a piece of one, that this rank owns. */
typedef struct ujoin_rule_args {
    size_t size;
    const char *name;     /**< of the parameter */
    void *data;           /**< `count` elements, updated in place */
    const void *grad;     /**< the reduced gradient, unscaled and clipped; of data's type */
    void *const *state;   /**< one array for each state name; `count` elements of data's type */
    const double *hyper;  /**< of its param group, in the order of ujoin_rule.hyper */
    const int64_t *shape; /**< of the whole parameter */
    size_t count;
    size_t offset; /**< where the piece begins in the parameter (elements) */
    size_t param;  /**< index of the parameter */
    int64_t step;  /**< which update of this parameter it is, from 1 */
    int32_t ndim;
    int32_t group;     /**< param group */
    ujoin_dtype dtype; /**< f32 or f64; for 16-bit parameters f32: the master copy, or a copy that is rounded afterwards */
    int32_t reserved;
} ujoin_rule_args;

/**
 * One update, or the first filling of the state. Runs on the thread that is in zero_step (with options.ddp in
 * ujoin_ddp_finish; with params_released_on_ready also ujoin_ddp_ready), or in ujoin_ctx_finish for a rank that has joined,
 * one parameter after the other.
 */
typedef ujoin_status (*ujoin_rule_fn)(void *user_data, const ujoin_rule_args *args);

/** An optimizer of the program's own. Its parts are copied. */
typedef struct ujoin_rule {
    size_t size;
    const char *name;               /**< goes into saved state */
    ujoin_rule_fn step;             /**< updates data and state */
    ujoin_rule_fn init;             /**< before a parameter's first update: fills its state. NULL: zeros */
    const char *const *state_names; /**< as in saved state: "exp_avg", ...; at most 8 */
    size_t state_count;
    const ujoin_hyper *hyper; /**< names and defaults */
    size_t hyper_count;
    void *user_data;
    ujoin_destroy_fn destroy; /**< given user_data, also if zero_create fails */
    int32_t per_tensor;       /**< needs whole parameters (a norm, a shape): refused with UJOIN_PARTITION_ELEMENTS */
    int32_t reserved;
} ujoin_rule;

/** Options of zero_create. */
typedef struct ujoin_zero_options {
    size_t size;
    const ujoin_hyper *hyper; /**< of the first param group; absent = the rule's default; unknown = an error */
    size_t hyper_count;
    int64_t idle_timeout_ms;  /**< without progress of the peers; default UJOIN_NEVER */
    ujoin_destroy_fn release; /**< once, when parameters and gradients are no longer touched, also if create fails */
    void *release_data;
    const ujoin_rule *rule;      /**< with UJOIN_OPTIMIZER_CUSTOM */
    uint64_t seed;               /**< of stochastic rounding; results do not depend on the number of ranks */
    int32_t balance_trainable;   /**< frozen parameters do not count in the balance */
    int32_t no_master_copy;      /**< 16-bit parameters are updated without an f32 copy of their values */
    int32_t stochastic_rounding; /**< of bf16 without a master copy: up or down at random, right on average */
    ujoin_partition partition;
    int64_t consolidate_timeout_ms; /**< of zero_consolidate_state_dict, without progress; default: the group's timeout */
    int32_t bucket_view;            /**< parameters move into the library's memory, side by side: see zero_param_data */
    int32_t reserved;
    ujoin_ddp *ddp; /**< overlapped or fused steps, with this reducer of the gradients: see zero_create */
} ujoin_zero_options;

/** Options of zero_step; all but the closure must be the same on every rank. */
typedef struct ujoin_step_options {
    size_t size;
    ujoin_call_fn closure; /**< computes loss and gradients anew, before the update; keeps its loss */
    void *closure_data;
    ujoin_scaler *scaler;   /**< gradients carry its scale: they are divided by it and checked, and it is adapted */
    double *out_norm;       /**< with max_norm: receives the global norm as it was; may be NULL */
    double max_norm;        /**< gradients are clipped to this global norm as they are used; 0 = they are not */
    double norm_type;       /**< p of the norm, above 0; default 2; HUGE_VAL = the largest magnitude */
    int32_t skip_nonfinite; /**< gradients are checked; with a scaler or max_norm they always are */
    int32_t reserved;
} ujoin_step_options;

/** Bytes that this rank holds for an optimizer. */
typedef struct ujoin_zero_memory {
    size_t size;
    uint64_t parameters; /**< the program's */
    uint64_t gradients;  /**< the program's, of parameters that have one */
    uint64_t state;      /**< of this rank's shard, master copies included, as it is now */
    uint64_t buffers;    /**< what a step needs beside that, and the memory of bucket_view */
    uint64_t full_state; /**< state of all parameters with every step made: what an unsharded optimizer holds */
} ujoin_zero_memory;

/** One piece of the partition. */
typedef struct ujoin_shard {
    size_t size;
    size_t param;  /**< index of the parameter */
    size_t offset; /**< elements */
    size_t count;
    int32_t rank;  /**< the owner */
    int32_t group; /**< param group */
} ujoin_shard;

/** What zero_save writes and zero_load reads (bits); 0 = the optimizer's state. */
enum ujoin_save_part {
    UJOIN_SAVE_STATE = 1,     /**< a directory: one file per rank and an index, which is renamed last */
    UJOIN_SAVE_PARAMETERS = 2 /**< alone: one safetensors file of the parameters, at `path`; else in the directory */
};

/** Options of zero_save and zero_load. */
typedef struct ujoin_save_options {
    size_t size;
    const ujoin_state *extra; /**< save: this rank's own texts, numbers and bytes (step, position in the data, ...) */
    int32_t parts;            /**< ujoin_save_part */
    int32_t no_sync;          /**< save: do not wait for the disk (a crash of the machine may lose it) */
} ujoin_save_options;

/**
 * Makes an optimizer whose state is sharded over the group. Parameters and gradients are borrowed until `release`; each may
 * have any floating-point type. State of 16-bit parameters is f32. Who owns what follows from sizes and order alone (see
 * ujoin_partition); the ranks check that they agree. UJOIN_E_INVALID: no parameters, two with one name, an unknown
 * hyper-parameter (the known ones are listed). UJOIN_E_UNSUPPORTED: UJOIN_PARTITION_ELEMENTS with a rule that needs whole
 * parameters. UJOIN_E_MISMATCH: ranks differ. With UJOIN_DEBUG=detail each step compares the parameters' values on all
 * ranks before it begins.
 * With options.ddp the steps are part of the reducer's iterations: ujoin_ddp_finish updates the parameters of each bucket
 * when it is reduced, while later ones still are, and shares them while the next ones are updated. Where the reducer has
 * params_released_on_ready, that begins in ujoin_ddp_ready: as soon as the reduction of a bucket is in flight, the one before
 * it is waited for, updated and shared, while the next gradients are computed; the last one is left to finish. With
 * find_unused, and in the first iteration of a static graph, all are, as which parameters are used is not known before.
 * Between the first update and finish, zero_ functions that change, save, load or gather anything are UJOIN_E_STATE. Every
 * synchronised iteration makes one step, the first included, with the bits of a finish and a zero_step after it; also for a
 * rank that has joined, where the context has the reducer (the optimizer may be in it too). Who owns what does not depend
 * on buckets. Without that option parameters are not written before finish. Each one that is trained must have the name,
 * the number of elements and the gradient of one of the reducer's (UJOIN_E_INVALID, also later from zero_set_gradient,
 * zero_set_frozen and zero_add_param_group); the group is the reducer's. One optimizer for a reducer, made and destroyed
 * between iterations (UJOIN_E_STATE). What must see all gradients before the first update is not possible: zero_step and
 * zero_clip_grad_norm, hence closures, clipping, loss scales and skipped steps, are UJOIN_E_STATE. An error in an update or
 * in what follows it breaks the optimizer as one of zero_step does, and is that of ujoin_ddp_finish, or of the
 * ujoin_ddp_ready that met it; a rule of the program's that fails is told by finish, on every rank. Destroyed, it leaves a
 * reducer that only reduces.
 * With options.ddp of UJOIN_GRADIENT_SYNC_TO_OWNER the steps are fused: ujoin_ddp_finish ends an iteration without reducing,
 * and zero_step, once after it, sums each gradient at the rank that owns the element, divides, updates and shares, piece by
 * piece in the cache, with the bits of a reducer that reduces for all and a zero_step after it. Gradients stay each rank's
 * own, with this exception: where all must be seen before the first update, or a whole one at once (a scaler, max_norm,
 * skip_nonfinite, LAMB, rules of the program's own), the average is left in the owner's gradients. What is said above of
 * names, gradients, groups and of one optimizer for a reducer holds here too; of the shadows, each object makes its own, so a
 * join context has both or none. zero_clip_grad_norm is UJOIN_E_STATE: give max_norm to zero_step. So is zero_step where
 * no iteration with sync has been finished since the last step.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status zero_create(ujoin_group *group, ujoin_optimizer optimizer, const ujoin_param *params, size_t count,
                                   const ujoin_zero_options *options, ujoin_zero **out);

/**
 * The optimizer as a participant of a join context. Borrowed: do not destroy it; it lives as long as the optimizer.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_joinable *zero_joinable(ujoin_zero *zero);

/**
 * One step: runs the closure, notifies the join context, each rank updates its shard, all get the new parameters.
 * Parameters that are frozen or without gradient are skipped and keep their step count. Only the owner's gradients are
 * read, and none is written (of a fused step see zero_create). UJOIN_SKIPPED: a gradient is not finite, and no parameter or
 * state was changed, on every rank (a scaler was lowered). UJOIN_E_MISMATCH: ranks differ in hyper-parameters or options. UJOIN_E_CALLBACK: the program's rule failed.
 * A joined rank adapts the scaler that it gave to its last step.
 * A failure in the middle makes the object broken: step and save refuse (UJOIN_E_STATE) until parameters and state are
 * loaded anew.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status zero_step(ujoin_zero *zero, const ujoin_step_options *options);

/**
 * Adds parameters with hyper-parameters of their own (absent = as given to zero_create); earlier assignments do not move.
 * Indices go on from the last. A group may be empty.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status zero_add_param_group(ujoin_zero *zero, const ujoin_param *params, size_t count,
                                            const ujoin_hyper *hyper, size_t hyper_count);

/**
 * The number of param groups.
 * @local @since 0.1
 */
UJOIN_API size_t zero_group_count(const ujoin_zero *zero);

/**
 * The name of hyper-parameter `index` of this rule; NULL past the last. Lives with the handle.
 * @local @since 0.1
 */
UJOIN_API const char *zero_hyper_name(const ujoin_zero *zero, size_t index);

/**
 * Changes a hyper-parameter of a param group, or of all (group -1), from the next step on. The same on every rank: the
 * step compares. UJOIN_E_INVALID lists the known names.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_set_hyper(ujoin_zero *zero, int32_t group, const char *name, double value);

/**
 * Reads a hyper-parameter of a param group.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_get_hyper(const ujoin_zero *zero, int32_t group, const char *name, double *out_value);

/**
 * Where parameter `index` lies. With bucket_view that is the library's memory from zero_create (zero_add_param_group) on,
 * with the same value: a rank's parameters lie end to end there and are sent as one range. A frozen parameter leaves that
 * memory for the program's own, with its value, and comes back when it is trained again. The library's memory ends with
 * the optimizer: take the values before. Without bucket_view it is always the program's own. NULL: no such parameter.
 * @local @since 0.1
 */
UJOIN_API void *zero_param_data(ujoin_zero *zero, size_t index);

/**
 * Where the gradient of parameter `index` lies from now on; NULL: it has none, and the parameter is
 * skipped.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_set_gradient(ujoin_zero *zero, size_t index, void *grad);

/**
 * Freezes a parameter (1) or trains it again (0) from the next step on; its state is kept. The same on every rank: the step
 * compares. With bucket_view the parameter moves: see zero_param_data.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_set_frozen(ujoin_zero *zero, size_t index, int32_t frozen);

/**
 * Scales all gradients so that their global norm is at most max_norm; out_norm (may be NULL) is the norm before.
 * norm_type as in ujoin_step_options. The norm counts each parameter once, at its owner; frozen ones do not count.
 * UJOIN_SKIPPED: a gradient is not finite; nothing was changed, on every rank. Not for use in an armed join context: there,
 * give max_norm to zero_step.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status zero_clip_grad_norm(ujoin_zero *zero, double max_norm, double norm_type, double *out_norm);

/**
 * Sets the gradients of all parameters to zero, not only those of the shard.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_clear_gradients(ujoin_zero *zero);

/**
 * Brings all state together on rank `to`, where zero_state_dict then gives it until the next step or load. Every other
 * rank sends its own shard, once and in chunks, and needs no memory for it; rank `to` needs memory for the whole state, of
 * which zero_state_dict makes no second copy. It ends in a whole list or in an error, on every rank: UJOIN_E_TIMEOUT names
 * the ranks that have not come, or stand still, for consolidate_timeout_ms. The optimizer stays as it is.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status zero_consolidate_state_dict(ujoin_zero *zero, int32_t to);

/**
 * The consolidated state as a list of its own, which stays as it is: tensors by parameter and state name, step counts and
 * hyper-parameters as numbers. UJOIN_E_STATE: nothing was consolidated to this rank, or a step, a load or a new param group
 * has come after it. Never a part of the state.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_state_dict(ujoin_zero *zero, ujoin_state **out);

/**
 * Takes state and hyper-parameters from a list, which is only read: each rank keeps its shard, by parameter name, whatever
 * the number of ranks that saved it. UJOIN_E_MISMATCH: a name, shape, type or rule does not fit; nothing was changed.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status zero_load_state_dict(ujoin_zero *zero, const ujoin_state *state);

/**
 * Saves for any number of ranks. Until the index is renamed, after every file is on the disk, what was there before
 * stays whole. UJOIN_E_SYSTEM on every rank: the text names rank, file and reason. The path is seen by all ranks. In a
 * directory index.json names all other files; those of earlier saves are removed last. All are safetensors:
 * state/<key>/<parameter> and program/<kind>/<key> in that of a rank (a piece of a parameter has one dimension; the index
 * has the pieces), the parameters' names in that of the parameters.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status zero_save(ujoin_zero *zero, const char *path, const ujoin_save_options *options);

/**
 * Loads what zero_save wrote, by any number of ranks and with either partition; mends a broken object if state and parameters are loaded. `out` (may
 * be NULL) receives the own items of the rank of this number, or of rank 0 if so many did not save. Every length and name
 * is checked before use: UJOIN_E_MISMATCH says what is wrong with which file, and nothing was changed.
 * @collective @blocking @since 0.1
 */
UJOIN_API ujoin_status zero_load(ujoin_zero *zero, const char *path, const ujoin_save_options *options, ujoin_state **out);

/**
 * The number of pieces of the partition, over all ranks.
 * @local @since 0.1
 */
UJOIN_API size_t zero_shard_count(const ujoin_zero *zero);

/**
 * Fills a struct (set its size) with one piece: which part of which parameter belongs to which rank.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_get_shard(const ujoin_zero *zero, size_t index, ujoin_shard *out);

/**
 * Fills a struct (set its size) with the bytes that this rank holds.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_get_memory(const ujoin_zero *zero, ujoin_zero_memory *out);

/**
 * Drops the handle. Parameters and gradients are free when `release` has run.
 * @local @anythread @since 0.1
 */
UJOIN_API void zero_destroy(ujoin_zero *zero);

/* ------------------------------------------------------------------------------------------- State as a typed list -- */

/** Kinds of items. */
typedef int32_t ujoin_item_kind;
enum ujoin_item_kind_value { UJOIN_ITEM_TENSOR = 1, UJOIN_ITEM_NUMBER = 2, UJOIN_ITEM_TEXT = 3, UJOIN_ITEM_BYTES = 4 };

/** What an item belongs to. */
typedef int32_t ujoin_item_owner;
enum ujoin_item_owner_value {
    UJOIN_ITEM_OF_PROGRAM = 1, /**< the program's own (default) */
    UJOIN_ITEM_OF_PARAM = 2,   /**< state of the parameter named `param` */
    UJOIN_ITEM_OF_GROUP = 3    /**< a hyper-parameter of param group `group` */
};

/** One item; `key` is unique within its owner. */
typedef struct ujoin_item {
    size_t size;
    const char *param; /**< name of the parameter that owns it */
    const char *key;   /**< "exp_avg", "step", "lr", or the program's own name */
    const void *data;  /**< tensor (row-major), text (without a NUL), bytes */
    size_t bytes;
    const int64_t *shape; /**< tensor */
    double number;
    ujoin_item_kind kind;
    ujoin_dtype dtype; /**< tensor */
    int32_t ndim;
    ujoin_item_owner owner;
    int32_t group; /**< the param group of the parameter or hyper-parameter */
    int32_t reserved;
} ujoin_item;

/**
 * Makes an empty list: for the program's own items of zero_save, or to bring another library's state into zero.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status ujoin_state_create(ujoin_state **out);

/**
 * Adds an item, or replaces the one with the same key. Names, shape and data are copied.
 * @local @since 0.1
 */
UJOIN_API ujoin_status ujoin_state_set(ujoin_state *state, const ujoin_item *item);

/**
 * The number of items.
 * @local @since 0.1
 */
UJOIN_API size_t ujoin_state_count(const ujoin_state *state);

/**
 * Fills a struct (set its size) with item `index`, in order of owner, group, parameter and key. Its pointers live until
 * the list is changed or destroyed.
 * @local @since 0.1
 */
UJOIN_API ujoin_status ujoin_state_get(const ujoin_state *state, size_t index, ujoin_item *out);

/**
 * Fills a struct (set its size) with an item of the program's own by its name. UJOIN_E_INVALID: there is none.
 * @local @since 0.1
 */
UJOIN_API ujoin_status ujoin_state_find(const ujoin_state *state, const char *key, ujoin_item *out);

/**
 * Drops the handle.
 * @local @anythread @since 0.1
 */
UJOIN_API void ujoin_state_destroy(ujoin_state *state);

/* ------------------------------------------------------------------------------------- Schedules and loss scaling -- */

/** Shapes of schedules. */
typedef int32_t ujoin_schedule_kind;
enum ujoin_schedule_kind_value {
    UJOIN_SCHEDULE_CONSTANT = 1,
    UJOIN_SCHEDULE_COSINE = 2, /**< from base to minimum along half a cosine, at total_steps and then on */
    UJOIN_SCHEDULE_LINEAR = 3, /**< likewise, in a straight line */
    UJOIN_SCHEDULE_STEP = 4    /**< times gamma every `every` steps, but not below minimum */
};

/** A schedule. */
typedef struct ujoin_schedule_options {
    size_t size;
    double base; /**< the value after warm-up */
    double minimum;
    double gamma;             /**< step; default 0.1 */
    int64_t warmup_steps;     /**< step i < warmup_steps: base (i + 1) / warmup_steps */
    int64_t total_steps;      /**< cosine, linear: warm-up included */
    int64_t every;            /**< step: counted from the end of warm-up */
    ujoin_schedule_kind kind; /**< default: constant */
    int32_t reserved;
} ujoin_schedule_options;

/** State of a loss scale: to make one, to read and to save it. */
typedef struct ujoin_scaler_options {
    size_t size;
    double scale;       /**< default 65,536 */
    double growth;      /**< factor after `interval` good steps in a row, above 1; default 2 */
    double backoff;     /**< factor after a skipped step, below 1; default 0.5 */
    int64_t interval;   /**< default 2,000 */
    int64_t good_steps; /**< since the last change */
    int64_t skipped;    /**< steps, in all */
} ujoin_scaler_options;

/**
 * The value of a schedule at a step (from 0): a pure function, to be given to zero_set_hyper. UJOIN_E_INVALID names the
 * field that makes no sense.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status zero_schedule(const ujoin_schedule_options *schedule, int64_t step, double *out_value);

/**
 * Makes a dynamic loss scale for one optimizer, the same on every rank. Multiply the loss by zero_scaler_scale and give the
 * scaler to zero_step. NULL = defaults. Steps keep it alive.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status zero_scaler_create(const ujoin_scaler_options *options, ujoin_scaler **out);

/**
 * The scale of the next loss, the same on every rank after each step; 0 for NULL.
 * @local @since 0.1
 */
UJOIN_API double zero_scaler_scale(const ujoin_scaler *scaler);

/**
 * Fills a struct (set its size) with the present state, to be saved; zero_scaler_create takes it back.
 * @local @since 0.1
 */
UJOIN_API ujoin_status zero_scaler_get(const ujoin_scaler *scaler, ujoin_scaler_options *out);

/**
 * Drops the handle.
 * @local @anythread @since 0.1
 */
UJOIN_API void zero_scaler_destroy(ujoin_scaler *scaler);

/* ========================================================================================== Pctx: worker processes == */

/** Standard streams (bits). */
typedef int32_t ujoin_std;
enum ujoin_std_value {
    UJOIN_STD_NONE = 0,
    UJOIN_STD_OUT = 1,
    UJOIN_STD_ERR = 2,
    UJOIN_STD_ALL = 3,
    UJOIN_STD_SET = 4 /**< in ujoin_worker: the value counts, also if it is none */
};

/** How a function worker comes to be; programs are always executed. */
typedef int32_t ujoin_start_method;
enum ujoin_start_method_value {
    UJOIN_START_SPAWN = 1, /**< this program is executed again (default) */
    UJOIN_START_FORK = 2,  /**< a copy of this process; dangerous if it has threads */
    UJOIN_START_FORKSERVER =
        3 /**< forked from this program, executed once more, which holds the workers as a warden does */
};

/** How workers and their descendants are held; the result says which was in force. */
typedef int32_t ujoin_containment;
enum ujoin_containment_value {
    UJOIN_CONTAINMENT_GROUP = 1,  /**< session and process group (default); no effect on this process */
    UJOIN_CONTAINMENT_WARDEN = 2, /**< a helper process outlives this one and ends all, also if this one is killed */
    UJOIN_CONTAINMENT_CGROUP =
        3,                     /**< the same, and all are in a cgroup (version 2) of their own, which is killed as one: not
                                       even programs that fork without end escape. Below the cgroup of this process, which
                                       has to be allowed to make one (delegation, or root) */
    UJOIN_CONTAINMENT_BEST = 4 /**< a cgroup where one can be made, else a warden; for forked workers the group */
};

/** What happens when the console is slower than the workers; files always get everything. */
typedef int32_t ujoin_console_policy;
enum ujoin_console_policy_value {
    UJOIN_CONSOLE_BLOCK = 1, /**< the workers wait (default) */
    UJOIN_CONSOLE_DROP = 2,  /**< lines are dropped and counted; a note in their place says how many */
    UJOIN_CONSOLE_SPILL = 3  /**< what is late is in the log file alone: where there is none, the worker waits */
};

/** Where stdin comes from. */
typedef int32_t ujoin_stdin;
enum ujoin_stdin_value {
    UJOIN_STDIN_NULL = 1,    /**< /dev/null (default) */
    UJOIN_STDIN_INHERIT = 2, /**< this process's; one worker at most */
    UJOIN_STDIN_BYTES = 3,   /**< stdin_data */
    UJOIN_STDIN_FILE = 4     /**< stdin_path */
};

/** Placement of workers on processors (of those that this process may use) and their memory nodes. */
typedef int32_t ujoin_binding;
enum ujoin_binding_value {
    UJOIN_BINDING_NONE = 1,    /**< (default) */
    UJOIN_BINDING_SPREAD = 2,  /**< worker after worker on another memory node, a part of its processors for each */
    UJOIN_BINDING_COMPACT = 3, /**< side by side: equal parts of the processors in their order */
    UJOIN_BINDING_LIST = 4     /**< ujoin_worker.cpus */
};

/** Receives output of a worker: whole lines with their ends, or parts of 64 KiB; stream is UJOIN_STD_OUT or UJOIN_STD_ERR.
    Runs on the thread that is in pctx_wait or pctx_close; meanwhile at most 1 MiB is kept, then the workers wait. */
typedef ujoin_status (*ujoin_output_fn)(void *user_data, int32_t rank, ujoin_std stream, const char *data, size_t size);

/** A job: what all its workers have in common. */
typedef struct ujoin_pctx_spec {
    size_t size;
    const char *name;        /**< for prefixes and the report; default "worker" */
    const char *program;     /**< path, or name in PATH; no shell */
    const char *function;    /**< instead: a name given to pctx_register, or "library.so:symbol" (an ujoin_worker_fn) */
    const char *const *args; /**< without the program's name; ${local_rank} is replaced */
    size_t arg_count;
    const char *log_dir; /**< NULL = a fresh temporary one if a file is needed; "/dev/null" = no files */
    const char *run_id;  /**< default: random */
    const char *prefix;  /**< of console lines: ${role_name}, ${rank}, ${local_rank}, ${time}; default "[name<rank>]: " */
    const int32_t *console_ranks; /**< only these on the console, others to their files or nowhere; NULL = all */
    size_t console_rank_count;
    const char *const
        *stdout_filters; /**< lines that go to the console by tee and have one of these also go to filtered_stdout.log */
    size_t stdout_filter_count;
    const char *const *stderr_filters;
    size_t stderr_filter_count;
    ujoin_output_fn output; /**< gets the lines of all streams, besides files and instead of an untouched console stream */
    void *user_data;
    ujoin_destroy_fn destroy;
    int64_t grace_ms;        /**< between the polite signal and SIGKILL, when the library ends workers; default 30 s */
    int64_t drain_ms;        /**< for output that a grandchild still holds after a worker's end; default 1 s */
    int64_t partial_line_ms; /**< an unfinished line goes to the console after this; default 200 ms */
    uint64_t rotate_bytes;   /**< a log file of this size becomes <name>.1, and a new one is begun; 0 = never */
    int32_t nprocs;          /**< workers; their index is "rank" in this family */
    int32_t first_rank;      /**< added to the index in texts and prefixes (several hosts) */
    int32_t restart_count;   /**< attempt_<k> in the log directory */
    ujoin_std redirects;     /**< streams that go to files instead of the console */
    ujoin_std tee;           /**< streams that go to both */
    ujoin_start_method start_method;
    ujoin_containment containment;
    ujoin_console_policy console;
    ujoin_binding binding;
    int32_t no_error_file; /**< workers get no path for error.json */
    int32_t same_session;  /**< stay on the terminal (one worker, for debuggers) */
    int32_t no_colour; /**< by default prefixes are coloured by rank if the console is a terminal (and NO_COLOR is unset) */
    int32_t rotate_keep; /**< old log files kept per stream; default 1; negative = none */
    int32_t status_line; /**< 1: how the job stands, in the last line of a terminal on stderr that no worker writes to */
} ujoin_pctx_spec;

/** A descriptor that a worker inherits. */
typedef struct ujoin_worker_fd {
    int32_t from; /**< open in this process when pctx_start is called; stays open here, may be given to several workers */
    int32_t to;   /**< its number in the worker: 3 or more, below the limit for open files; -1 = the same as `from` */
} ujoin_worker_fd;

/** What one worker has of its own; a zero field leaves the job's. */
typedef struct ujoin_worker {
    size_t size;
    const char *program;
    const char *const *args; /**< replaces the job's, if not NULL */
    size_t arg_count;
    const char *directory;  /**< working directory */
    const void *input;      /**< bytes for a function worker (ujoin_worker_args) */
    size_t input_size;      /**< counts if input is not NULL */
    const void *stdin_data; /**< with UJOIN_STDIN_BYTES */
    size_t stdin_size;
    const char *stdin_path; /**< with UJOIN_STDIN_FILE */
    const int32_t *cpus;    /**< processors, with UJOIN_BINDING_LIST; memory comes from their nodes */
    size_t cpu_count;
    const ujoin_hyper *limits; /**< resource limits: {"nofile", 4096}, {"core", 0}; HUGE_VAL = unlimited */
    size_t limit_count;
    ujoin_std redirects; /**< counts with UJOIN_STD_SET, or if not 0 */
    ujoin_std tee;
    ujoin_stdin stdin_from;
    int32_t umask_set; /**< 1: umask counts */
    int32_t umask;
    int32_t reserved;
    const ujoin_worker_fd
        *fds;        /**< descriptors of this process for the worker, at most 64; every other one is closed in it */
    size_t fd_count; /**< counts if fds is not NULL */
} ujoin_worker;

/** State of a worker. */
typedef int32_t ujoin_worker_state;
enum ujoin_worker_state_value {
    UJOIN_WORKER_CREATED = 1, /**< not started */
    UJOIN_WORKER_RUNNING = 2,
    UJOIN_WORKER_EXITED = 3,     /**< exit_code counts */
    UJOIN_WORKER_SIGNALED = 4,   /**< signal counts */
    UJOIN_WORKER_UNKNOWN = 5,    /**< ended, but this process took the status elsewhere */
    UJOIN_WORKER_UNKILLABLE = 6, /**< still there after SIGKILL; given up */
    UJOIN_WORKER_NO_VALUE = 7    /**< a function worker exited with 0, but its function had not returned: a failure */
};

/** A worker: what is known now, and how it ended. */
typedef struct ujoin_worker_result {
    size_t size;
    ujoin_worker_state state;
    int32_t rank;
    int32_t pid;
    int32_t exit_code;             /**< -1 unless exited */
    int32_t signal;                /**< 0 unless signaled */
    int32_t failed;                /**< by itself */
    int32_t stopped;               /**< ended because of another's failure, or on request: a victim, not a cause */
    ujoin_containment containment; /**< in force; before the start as asked for */
    int64_t start_ns;              /**< CLOCK_REALTIME */
    int64_t end_ns;                /**< 0 while it runs */
    int64_t failed_ns;             /**< of a failed or stopped one: the time in its error file, else end_ns; 0 otherwise */
    int64_t last_output_ns;
    int64_t user_us; /**< processor time */
    int64_t system_us;
    uint64_t peak_bytes; /**< resident memory */
    uint64_t stdout_bytes;
    uint64_t stderr_bytes;
    uint64_t dropped_lines;  /**< of the console */
    const void *value;       /**< function worker: what it returned (pctx_return); NULL if nothing */
    size_t value_size;       /**< bytes */
    const char *message;     /**< of error.json, else of the signal, else how to get one; "" if it did not fail */
    const char *traceback;   /**< of error.json, else the last lines of stderr, or "" */
    const char *stdout_path; /**< "" if there is no file */
    const char *stderr_path;
    const char *error_path; /**< of the error.json that it wrote; "" if it wrote none */
} ujoin_worker_result;

/** What a worker does now: pctx_health. Its group's words are its own, so nothing that needs to be safe may rest on them. */
typedef struct ujoin_worker_health {
    size_t size;
    int64_t sequence;        /**< number of the operation that its group is in, or was in last, from 1; 0 = none yet */
    int64_t round;           /**< of the join context that is armed; a joined rank's goes on; -1 = none is */
    int64_t since_ns;        /**< CLOCK_REALTIME, to a few ms: what it does now began; 0 without a group */
    int64_t last_output_ns;  /**< likewise; 0 = nothing yet, or the stream is not read here */
    const int32_t *missing;  /**< the ranks of its group that it waits for (of the first 1024), 0.1 s old at most */
    size_t missing_count;    /**< of missing */
    const char *operation;   /**< "all_reduce": the last one that began; "" = none yet */
    const char *waiting_for; /**< "all_reduce(sum, f32, 100)", "rank 2 to catch up in join context 1"; "" = does not wait */
    const char *group;       /**< its name, as in ujoin_group_options; 32 bytes of it */
    const char *text;        /**< all this in one line for a person, also of a worker that has ended */
    ujoin_worker_state state;
    int32_t rank;       /**< its index */
    int32_t pid;        /**< 0 = not started */
    int32_t group_pid;  /**< the process that has the group: it, or one that it started */
    int32_t group_rank; /**< -1 = it has no group that tells */
    int32_t group_size; /**< ranks */
    int32_t groups; /**< that tell (4 at most); the one described waits longest, else is busy longest, else is the first */
    int32_t in_operation; /**< 1 = the operation has begun and is not complete */
    int32_t in_context;   /**< 1 = a join context is armed */
    int32_t joined;       /**< 1 = it works for the others */
    int32_t broken;       /**< 1 = an operation has failed: the group is of no use any more */
    int32_t reserved;
} ujoin_worker_health;

/** What a function worker is told. */
typedef struct ujoin_worker_args {
    size_t size;
    const char *const *args;
    size_t arg_count;
    const void *input; /**< ujoin_worker.input */
    size_t input_size; /**< bytes */
    int32_t rank;      /**< its index */
    int32_t nprocs;
} ujoin_worker_args;

/** A function worker; a negative status is a failure with the text of ujoin_last_error, and exit code 1. */
typedef ujoin_status (*ujoin_worker_fn)(void *user_data, const ujoin_worker_args *args);

/**
 * Reads "3" (all ranks) or "0:1,12:3" (rank:value) into one value per rank; ranks not named get UJOIN_STD_NONE, ranks
 * past nprocs are dropped. UJOIN_E_INVALID: anything else, with the place.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status pctx_parse_std(const char *text, ujoin_std *out_values, size_t nprocs);

/**
 * Describes a job; starts nothing. Everything is copied; the callback is owned from this call on, also if it fails.
 * UJOIN_E_INVALID: both program and function, nprocs below 1, unknown values. A job of neither needs a program for every
 * worker (pctx_set_worker) before pctx_start.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status pctx_create(const ujoin_pctx_spec *spec, ujoin_pctx **out);

/**
 * Sets a variable for one worker (rank -1: for all), over what it inherits; value NULL removes it. Before pctx_start.
 * @local @since 0.1
 */
UJOIN_API ujoin_status pctx_set_env(ujoin_pctx *pctx, int32_t rank, const char *name, const char *value);

/**
 * Gives one worker (rank -1: all) a program, arguments, directory, stdin, processors, limits, descriptors or redirections of
 * its own. Copied (descriptors by number). Before pctx_start. UJOIN_E_INVALID: two descriptors for one number, a number below
 * 3, or a value that is not known.
 * @local @since 0.1
 */
UJOIN_API ujoin_status pctx_set_worker(ujoin_pctx *pctx, int32_t rank, const ujoin_worker *worker);

/**
 * Starts all workers, or none. UJOIN_E_SYSTEM: which one could not be executed and why (exact errno); those started before
 * it are gone; or why no cgroup can be made (UJOIN_CONTAINMENT_CGROUP). UJOIN_E_STATE: started before; or this is a worker
 * that has not passed pctx_worker_main. UJOIN_E_INVALID: workers without a program are named, and descriptors that are not
 * open (ujoin_worker.fds): nothing has been started, and the job can be mended and started. Where a log directory is in use,
 * workers find TORCHELASTIC_ERROR_FILE set.
 * Installs no signal handler and waits for no other child of this process.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status pctx_start(ujoin_pctx *pctx);

/**
 * Waits until all workers have ended well (UJOIN_OK) or one has failed and the others have been ended because of it
 * (UJOIN_E_CHILD_FAILED). UJOIN_PENDING: neither yet. All output is delivered before it returns a final status, and a
 * later call returns the same. Runs the output callback.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status pctx_wait(ujoin_pctx *pctx, int64_t timeout_ms);

/**
 * 1 if a worker has failed by itself, else 0; out of the last pctx_wait or pctx_close.
 * @local @anythread @since 0.1
 */
UJOIN_API int32_t pctx_failed(const ujoin_pctx *pctx);

/**
 * The worker that failed first (monotonic time, never a victim); -1 if none did.
 * @local @anythread @since 0.1
 */
UJOIN_API int32_t pctx_first_failure(const ujoin_pctx *pctx);

/**
 * Fills a struct (set its size) with what is known of a worker, at any time. Its pointers live until the handle is
 * destroyed, once the worker has ended; before that, until the next call on the handle.
 * @local @since 0.1
 */
UJOIN_API ujoin_status pctx_get_result(ujoin_pctx *pctx, int32_t rank, ujoin_worker_result *out);

/**
 * Tells what a worker does now: fills a struct (set its size) from memory that it shares with its groups, at any time, also
 * while another thread waits. Asks the worker nothing, so it works for one that hangs; one that has died keeps what it was
 * doing. Groups are found as pctx_stop is. The pointers live with the handle, until the next call for that rank.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status pctx_health(ujoin_pctx *pctx, int32_t rank, ujoin_worker_health *out);

/**
 * The failure for a person, in the layout of PyTorch's launcher: the other failures, then the first cause with time, host,
 * rank, exit code, error file, and its traceback, message or last lines of stderr. "" if nothing failed. Lives with the
 * handle, until the next call of this function.
 * @local @since 0.1
 */
UJOIN_API const char *pctx_report(ujoin_pctx *pctx);

/**
 * All results as one JSON object: name, run_id, first_failure (a rank or null) and workers, a list by rank with the fields
 * of ujoin_worker_result (times in seconds since 1970, signal by name, no values). Lives like pctx_report.
 * @local @since 0.1
 */
UJOIN_API const char *pctx_report_json(ujoin_pctx *pctx);

/**
 * Sends a signal to one worker's process group (rank -1: to all).
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status pctx_signal(ujoin_pctx *pctx, int32_t rank, int32_t signal);

/**
 * Asks the workers for an agreed stop: their join contexts, also those that start later, all leave after the same round
 * (ujoin_ctx_stopped is 1 on every rank), and the workers have the time to save. Returns at once and ends nobody: workers
 * without a join context notice nothing. The workers find the wish by the variable UJOIN_JOB, through /proc: not those in
 * another process namespace or of another user. UJOIN_E_STATE: no worker runs.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status pctx_stop(ujoin_pctx *pctx);

/**
 * Ends all workers: `signal` (0 = SIGTERM) to their groups, SIGKILL to what is left after grace_ms (0 = at once), then
 * reads the rest of the output. Bounded by the grace, the drain and a second. May be repeated. Runs the output callback.
 * UJOIN_PENDING: the console does not take the output. UJOIN_E_TIMEOUT: a worker cannot be killed.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status pctx_close(ujoin_pctx *pctx, int32_t signal, int64_t grace_ms);

/**
 * Kills all workers now and wakes whoever waits (UJOIN_E_ABORTED). Does not wait for their end.
 * @local @anythread @since 0.1
 */
UJOIN_API void pctx_abort(ujoin_pctx *pctx);

/**
 * Drops the handle. Workers that still run get SIGTERM, and SIGKILL after the job's grace, in the background.
 * @local @anythread @since 0.1
 */
UJOIN_API void pctx_destroy(ujoin_pctx *pctx);

/* ----------------------------------------------------------------------------------------------- Inside a worker -- */

/**
 * Gives a function a name, in the launcher and in its workers alike, before pctx_worker_main. Process-wide.
 * UJOIN_E_INVALID: the name is taken, empty or has a ':'.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status pctx_register(const char *name, ujoin_worker_fn fn, void *user_data, ujoin_destroy_fn destroy);

/**
 * The first thing in main of a program that starts functions of its own. UJOIN_OK: this is no worker, go on.
 * UJOIN_DONE: it was one, the function has run: return *out_exit_code from main. A negative status: it is one, but its
 * function is not known, say; *out_exit_code is 1. So: `if (pctx_worker_main(&code)) return code;`.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status pctx_worker_main(int32_t *out_exit_code);

/**
 * In a function worker: what it returns to the launcher (copied, any size). UJOIN_E_STATE elsewhere, or the second time.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status pctx_return(const void *data, size_t size);

/**
 * Runs a function and records its failure: a negative status with its text, or a C++ exception (type and text), which ends
 * here with UJOIN_E_CALLBACK. If it returns UJOIN_E_CHILD_FAILED from pctx_wait, the record of the worker that
 * failed first becomes this process's own, with its exit code. In the file that TORCHELASTIC_ERROR_FILE names, if any.
 * @local @blocking @since 0.1
 */
UJOIN_API ujoin_status pctx_record(ujoin_call_fn fn, void *user_data);

/**
 * Writes error.json for this worker, atomically: message, traceback (may be NULL), error code (0 = none). Does nothing
 * where TORCHELASTIC_ERROR_FILE is not set. A later record replaces an earlier one. A file that cannot be written is a
 * warning (ujoin_set_log_sink), not an error: the failure that is recorded counts.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status pctx_record_error(const char *message, const char *traceback, int32_t code);

/**
 * From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT leave a record with signal, address and backtrace in error.json,
 * then go to the handler that was there before. Once is enough. For C and C++ programs; runtimes that own these signals
 * (Go, the JVM) must not call it. Process-wide.
 * @local @anythread @since 0.1
 */
UJOIN_API ujoin_status pctx_record_crashes(void);

#ifdef __cplusplus
}
#endif

#endif /* UJOIN_H */
