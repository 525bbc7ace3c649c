// SPDX-License-Identifier: Apache-2.0
// Written by bindings/tools/gen.sh from SWIG's tree of ujoin.h: change the header, not this file.
//! `ujoin.h` as Rust declarations: join contexts, sharded optimizers and process contexts for data-parallel training.
//! The crate `ujoin` is made for programs; this one is what it stands on. The header's manual says what each item means,
//! which memory is borrowed and how long, and which calls may run at the same time.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};

pub const UJOIN_VERSION_MAJOR: i32 = 0;

pub const UJOIN_VERSION_MINOR: i32 = 1;

pub const UJOIN_VERSION_PATCH: i32 = 0;

/// Grows with every change that a program or a binding built for an older header could notice.
pub const UJOIN_ABI_VERSION: i32 = 1;

/// Opaque handle: keys and values shared by the ranks.
#[repr(C)]
pub struct ujoin_store {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: a set of ranks that communicate.
#[repr(C)]
pub struct ujoin_group {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: an operation in flight.
#[repr(C)]
pub struct ujoin_work {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: memory that the ranks of a host share.
#[repr(C)]
pub struct ujoin_memory {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: one participant of a join context.
#[repr(C)]
pub struct ujoin_joinable {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: a join context: training on uneven inputs.
#[repr(C)]
pub struct ujoin_ctx {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: a gradient reducer.
#[repr(C)]
pub struct ujoin_ddp {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: a sharded optimizer.
#[repr(C)]
pub struct ujoin_zero {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: a dynamic loss scale.
#[repr(C)]
pub struct ujoin_scaler {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: a typed list of saved items.
#[repr(C)]
pub struct ujoin_state {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque handle: a set of worker processes.
#[repr(C)]
pub struct ujoin_pctx {
    _data: (),
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// The result of a call.
pub type ujoin_status = i32;

// enum ujoin_status_value
pub const UJOIN_OK: ujoin_status = 0;
/// this wait ran out; the object lives on
pub const UJOIN_PENDING: ujoin_status = 1;
/// this rank has joined: the call is part of a shadow
pub const UJOIN_JOINED: ujoin_status = 2;
/// gradients are not finite: nothing was changed, on any rank
pub const UJOIN_SKIPPED: ujoin_status = 3;
/// this process was a function worker and has run: return from main
pub const UJOIN_DONE: ujoin_status = 4;
/// an argument is wrong: correct the call
pub const UJOIN_E_INVALID: ujoin_status = -1;
/// not now: called in the wrong order, on a closed or broken object, or after fork
pub const UJOIN_E_STATE: ujoin_status = -2;
/// not in this build, backend or machine; the text says what is missing
pub const UJOIN_E_UNSUPPORTED: ujoin_status = -3;
/// memory cannot be had; nothing was changed
pub const UJOIN_E_NO_MEMORY: ujoin_status = -4;
/// the operation's deadline passed; it is dead (ujoin_last_missing)
pub const UJOIN_E_TIMEOUT: ujoin_status = -5;
/// this rank or a peer gave up; the text says who
pub const UJOIN_E_ABORTED: ujoin_status = -6;
/// a rank died or left (ujoin_last_missing)
pub const UJOIN_E_PEER_LOST: ujoin_status = -7;
/// ranks called different things; the text has both descriptions
pub const UJOIN_E_MISMATCH: ujoin_status = -8;
/// throw mode: a rank has no more inputs; the same use on every rank
pub const UJOIN_E_EXHAUSTED: ujoin_status = -9;
/// the system refused; ujoin_last_errno
pub const UJOIN_E_SYSTEM: ujoin_status = -10;
/// a library under a backend reported an error
pub const UJOIN_E_BACKEND: ujoin_status = -11;
/// a callback failed, or the interrupt check asked to stop
pub const UJOIN_E_CALLBACK: ujoin_status = -12;
/// a worker failed; pctx_report
pub const UJOIN_E_CHILD_FAILED: ujoin_status = -13;
/// a defect of the library; please report the text
pub const UJOIN_E_INTERNAL: ujoin_status = -14;

// enum ujoin_time_value: Durations in structs (milliseconds).
/// no limit
pub const UJOIN_NEVER: i32 = -1;
/// zero milliseconds, where 0 means "the default"
pub const UJOIN_NOW: i32 = -2;

/// Runs once, when the library will never use user_data again.
pub type ujoin_destroy_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// A plain function of the program: an interrupt check, a closure, a recorded function.
pub type ujoin_call_fn = Option<unsafe extern "C" fn(user_data: *mut c_void) -> ujoin_status>;

/// Severity of a log line.
pub type ujoin_log_level = i32;

// enum ujoin_log_level_value
pub const UJOIN_LOG_ERROR: ujoin_log_level = 1;
pub const UJOIN_LOG_WARNING: ujoin_log_level = 2;
pub const UJOIN_LOG_INFO: ujoin_log_level = 3;
pub const UJOIN_LOG_DEBUG: ujoin_log_level = 4;

/// Receives one log line without a newline; may run on any thread, and at the same time on several.
pub type ujoin_log_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, level: ujoin_log_level, text: *const c_char)>;

/// Options of ujoin_store_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_store_options {
    pub size: usize,
    /// tcp: shared secret; default: the variable UJOIN_SECRET; neither: none
    pub secret: *const c_char,
    /// to reach the server or the file; default 5 minutes
    pub timeout_ms: i64,
    /// tcp: be the server (port 0 in the address = any free port)
    pub listen: i32,
    pub reserved: i32,
}
impl ujoin_store_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self { size: size_of::<Self>(), secret: core::ptr::null(), timeout_ms: 0, listen: 0, reserved: 0 }
    }
}
impl Default for ujoin_store_options {
    fn default() -> Self {
        Self::new()
    }
}

/// Element types.
pub type ujoin_dtype = i32;

// enum ujoin_dtype_value
pub const UJOIN_F32: ujoin_dtype = 1;
pub const UJOIN_F64: ujoin_dtype = 2;
pub const UJOIN_F16: ujoin_dtype = 3;
pub const UJOIN_BF16: ujoin_dtype = 4;
pub const UJOIN_I32: ujoin_dtype = 5;
pub const UJOIN_I64: ujoin_dtype = 6;
pub const UJOIN_U8: ujoin_dtype = 7;

/// Where memory lies.
pub type ujoin_device = i32;

// enum ujoin_device_value
pub const UJOIN_DEVICE_HOST: ujoin_device = 0;
pub const UJOIN_DEVICE_CUDA: ujoin_device = 1;

/// Memory that is written. Any alignment; count 0 is allowed, also with NULL. Given in arrays: fixed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_buffer {
    pub data: *mut c_void,
    /// elements, not bytes
    pub count: usize,
    pub dtype: ujoin_dtype,
    /// 0 = host
    pub device: ujoin_device,
    /// counts only if device is not the host
    pub device_index: i32,
    pub reserved: i32,
}
impl ujoin_buffer {
    /// All zero: every field has its default.
    pub const fn new() -> Self {
        Self { data: core::ptr::null_mut(), count: 0, dtype: 0, device: 0, device_index: 0, reserved: 0 }
    }
}
impl Default for ujoin_buffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory that is only read. The same layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_const_buffer {
    pub data: *const c_void,
    pub count: usize,
    pub dtype: ujoin_dtype,
    pub device: ujoin_device,
    pub device_index: i32,
    pub reserved: i32,
}
impl ujoin_const_buffer {
    /// All zero: every field has its default.
    pub const fn new() -> Self {
        Self { data: core::ptr::null(), count: 0, dtype: 0, device: 0, device_index: 0, reserved: 0 }
    }
}
impl Default for ujoin_const_buffer {
    fn default() -> Self {
        Self::new()
    }
}

/// A name and a number: hyper-parameters ({"lr", 1e-3}) and options of join hooks. Given in arrays: fixed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_hyper {
    pub name: *const c_char,
    pub value: f64,
}
impl ujoin_hyper {
    /// All zero: every field has its default.
    pub const fn new() -> Self {
        Self { name: core::ptr::null(), value: 0.0 }
    }
}
impl Default for ujoin_hyper {
    fn default() -> Self {
        Self::new()
    }
}

// enum ujoin_param_flag: Bits of ujoin_param.flags, so that ddp and zero may share one array: each passes over the
// other's.
/// zero: not trained for now; zero_set_frozen changes it
pub const UJOIN_PARAM_FROZEN: i32 = 1;
/// ddp: takes no part, is neither verified nor broadcast nor reduced; data may be NULL
pub const UJOIN_PARAM_IGNORED: i32 = 2;

/// A parameter and its gradient in the program's memory, row-major. Given in arrays: fixed, hence the reserve.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_param {
    /// unique; NULL = its index as text. State is keyed by it
    pub name: *const c_char,
    pub data: *mut c_void,
    /// NULL: no gradient (yet)
    pub grad: *mut c_void,
    /// elements; 0 with a shape = the shape's product
    pub count: usize,
    pub dtype: ujoin_dtype,
    /// 0 = as dtype
    pub grad_dtype: ujoin_dtype,
    /// of data and grad; 0 = host
    pub device: ujoin_device,
    pub device_index: i32,
    /// NULL = one dimension of `count`
    pub shape: *const i64,
    pub ndim: i32,
    /// ujoin_param_flag
    pub flags: i32,
    pub reserved: [u64; 2],
}
impl ujoin_param {
    /// All zero: every field has its default.
    pub const fn new() -> Self {
        Self {
            name: core::ptr::null(),
            data: core::ptr::null_mut(),
            grad: core::ptr::null_mut(),
            count: 0,
            dtype: 0,
            grad_dtype: 0,
            device: 0,
            device_index: 0,
            shape: core::ptr::null(),
            ndim: 0,
            flags: 0,
            reserved: [0; 2],
        }
    }
}
impl Default for ujoin_param {
    fn default() -> Self {
        Self::new()
    }
}

/// Reductions; 0 = sum. avg divides by the number of contributors and cannot overflow (of integers: toward zero);
/// min and max propagate NaN; sums and products of integers wrap.
pub type ujoin_reduce = i32;

// enum ujoin_reduce_value
pub const UJOIN_SUM: ujoin_reduce = 1;
pub const UJOIN_AVG: ujoin_reduce = 2;
pub const UJOIN_MIN: ujoin_reduce = 3;
pub const UJOIN_MAX: ujoin_reduce = 4;
pub const UJOIN_PROD: ujoin_reduce = 5;

/// Kinds of operations. n = elements, W = size of the group; in parentheses what a rank sends -> what it
/// receives.
pub type ujoin_op_kind = i32;

// enum ujoin_op_kind_value
pub const UJOIN_OP_BARRIER: ujoin_op_kind = 1;
/// (n -> n)
pub const UJOIN_OP_ALL_REDUCE: ujoin_op_kind = 2;
/// (n -> n at the root) in rank order; elsewhere recv is not written
pub const UJOIN_OP_REDUCE: ujoin_op_kind = 3;
/// (n at the root -> n): the root gives send or recv, the others recv
pub const UJOIN_OP_BROADCAST: ujoin_op_kind = 4;
/// (n -> W n, by rank), or recv_counts, the same on every rank
pub const UJOIN_OP_ALL_GATHER: ujoin_op_kind = 5;
/// (n -> W n at the root), or its recv_counts
pub const UJOIN_OP_GATHER: ujoin_op_kind = 6;
/// (W n at the root, or its send_counts -> n)
pub const UJOIN_OP_SCATTER: ujoin_op_kind = 7;
/// (W n -> n), or recv_counts, the same on every rank
pub const UJOIN_OP_REDUCE_SCATTER: ujoin_op_kind = 8;
/// (W n -> W n), or send_counts and recv_counts
pub const UJOIN_OP_ALL_TO_ALL: ujoin_op_kind = 9;
/// (n -> nothing) to `peer`
pub const UJOIN_OP_SEND: ujoin_op_kind = 10;
/// (nothing -> n) from `peer`
pub const UJOIN_OP_RECV: ujoin_op_kind = 11;

/// One operation, completely described. What a kind does not use on this rank is not looked at.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_op {
    /// in arrays that of the first is the distance between elements; all have the same
    pub size: usize,
    pub kind: ujoin_op_kind,
    /// of kinds that reduce; 0 = sum
    pub reduce: ujoin_reduce,
    /// the root, or the other rank of send and recv
    pub peer: i32,
    pub reserved: i32,
    /// all zero = in place: what this rank sends lies in recv (its own part, of a gather)
    pub send: ujoin_const_buffer,
    /// all zero at the root of a scatter: its own part stays in send
    pub recv: ujoin_buffer,
    /// elements for each rank, end to end in send; NULL = equal parts; read during the call
    pub send_counts: *const usize,
    /// likewise in recv
    pub recv_counts: *const usize,
}
impl ujoin_op {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            kind: 0,
            reduce: 0,
            peer: 0,
            reserved: 0,
            send: ujoin_const_buffer::new(),
            recv: ujoin_buffer::new(),
            send_counts: core::ptr::null(),
            recv_counts: core::ptr::null(),
        }
    }
}
impl Default for ujoin_op {
    fn default() -> Self {
        Self::new()
    }
}

/// How an operation runs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_op_options {
    pub size: usize,
    /// default: the group's
    pub timeout_ms: i64,
    /// NULL: there is no device memory in this version
    pub stream: *mut c_void,
    /// once, when the memory is free again, also if the call fails; on any thread
    pub release: ujoin_destroy_fn,
    pub release_data: *mut c_void,
}
impl ujoin_op_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            timeout_ms: 0,
            stream: core::ptr::null_mut(),
            release: None,
            release_data: core::ptr::null_mut(),
        }
    }
}
impl Default for ujoin_op_options {
    fn default() -> Self {
        Self::new()
    }
}

/// Options of ujoin_group_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_group_options {
    pub size: usize,
    /// "env://" (default), "tcp://host:port", "file:///path", "local://name" (threads)
    pub rendezvous: *const c_char,
    /// "auto" (default), "self" (one rank), "local" (threads), "shm" (one host), "hier" (several hosts), "tcp" (ranks
    /// anywhere, without shared memory)
    pub backend: *const c_char,
    /// tells apart several groups of one rendezvous; default ""
    pub name: *const c_char,
    /// instead of a rendezvous: meet here
    pub store: *mut ujoin_store,
    /// counts only if world_size is set; else from the environment
    pub rank: i32,
    pub world_size: i32,
    /// deadline of a bare collective; default UJOIN_TIMEOUT_MS, else 10 minutes
    pub timeout_ms: i64,
    /// default 5 minutes
    pub rendezvous_timeout_ms: i64,
    /// a joined rank shadows the program's own collectives, see ujoin_ctx_start
    pub shadow_collectives: i32,
    /// that compute; default UJOIN_THREADS, else processors / local ranks; at most 1024
    pub threads: i32,
}
impl ujoin_group_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            rendezvous: core::ptr::null(),
            backend: core::ptr::null(),
            name: core::ptr::null(),
            store: core::ptr::null_mut(),
            rank: 0,
            world_size: 0,
            timeout_ms: 0,
            rendezvous_timeout_ms: 0,
            shadow_collectives: 0,
            threads: 0,
        }
    }
}
impl Default for ujoin_group_options {
    fn default() -> Self {
        Self::new()
    }
}

/// Facts about a group.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_group_info {
    pub size: usize,
    /// what "auto" chose; lives with the group
    pub backend: *const c_char,
    pub rank: i32,
    pub world_size: i32,
    /// among the ranks of this host
    pub local_rank: i32,
    pub local_size: i32,
    /// 1: work advances by itself; 0: only inside calls (fewer processors than ranks)
    pub progress: i32,
    /// that compute in this rank, see ujoin_group_options
    pub threads: i32,
}
impl ujoin_group_info {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            backend: core::ptr::null(),
            rank: 0,
            world_size: 0,
            local_rank: 0,
            local_size: 0,
            progress: 0,
            threads: 0,
        }
    }
}
impl Default for ujoin_group_info {
    fn default() -> Self {
        Self::new()
    }
}

/// Options of ujoin_memory_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_memory_options {
    pub size: usize,
    /// 0 = host, the only one of this version
    pub device: ujoin_device,
    pub device_index: i32,
    /// one copy for all ranks of a host instead of one each; the same on every rank
    pub one_per_host: i32,
    pub reserved: i32,
}
impl ujoin_memory_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self { size: size_of::<Self>(), device: 0, device_index: 0, one_per_host: 0, reserved: 0 }
    }
}
impl Default for ujoin_memory_options {
    fn default() -> Self {
        Self::new()
    }
}

/// What a hook is told.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_hook_args {
    pub size: usize,
    pub joinable: *mut ujoin_joinable,
    /// rounds of the context so far, from 0
    pub round: i64,
    /// ranks that have not joined; 0 in post hooks
    pub active: i32,
    /// post hook: this rank ran no shadow
    pub is_last_joiner: i32,
    /// post hook: the largest last joiner, the same on every rank; -1 in main hooks
    pub authoritative_rank: i32,
    pub reserved: i32,
    /// as given to the context
    pub options: *const ujoin_hyper,
    pub option_count: usize,
}
impl ujoin_hook_args {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            joinable: core::ptr::null_mut(),
            round: 0,
            active: 0,
            is_last_joiner: 0,
            authoritative_rank: 0,
            reserved: 0,
            options: core::ptr::null(),
            option_count: 0,
        }
    }
}
impl Default for ujoin_hook_args {
    fn default() -> Self {
        Self::new()
    }
}

/// A join hook. May issue collectives on the joinable's group, and call ujoin_joinable_notify (which answers
/// UJOIN_JOINED).
pub type ujoin_hook_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, args: *const ujoin_hook_args) -> ujoin_status>;

/// A joinable of the program's own.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_hooks {
    pub size: usize,
    /// the collectives of one use, in their order; NULL = none
    pub main_hook: ujoin_hook_fn,
    /// once per rank, after all have joined; NULL = none
    pub post_hook: ujoin_hook_fn,
    pub user_data: *mut c_void,
    pub destroy: ujoin_destroy_fn,
    /// for texts; default "joinable"
    pub name: *const c_char,
    /// names of the options that the hooks know
    pub options: *const *const c_char,
    pub option_count: usize,
    /// 0 = host
    pub device: ujoin_device,
    pub device_index: i32,
}
impl ujoin_hooks {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            main_hook: None,
            post_hook: None,
            user_data: core::ptr::null_mut(),
            destroy: None,
            name: core::ptr::null(),
            options: core::ptr::null(),
            option_count: 0,
            device: 0,
            device_index: 0,
        }
    }
}
impl Default for ujoin_hooks {
    fn default() -> Self {
        Self::new()
    }
}

/// Options of ujoin_ctx_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_ctx_options {
    pub size: usize,
    /// without progress of any rank; default UJOIN_NEVER
    pub idle_timeout_ms: i64,
    /// a joined rank warns once; default 1,000; negative = never
    pub skew_warning_rounds: i64,
    /// for all hooks; a name that no joinable knows is UJOIN_E_INVALID
    pub hook_options: *const ujoin_hyper,
    pub hook_option_count: usize,
    /// start, notify and finish do nothing (inputs are known to be even)
    pub disabled: i32,
    /// no shadows: when one rank has no more inputs, all get UJOIN_E_EXHAUSTED
    pub throw_on_exhausted: i32,
    /// once per use of the first joinable every hook in list order, as PyTorch does
    pub strict: i32,
    pub reserved: i32,
}
impl ujoin_ctx_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            idle_timeout_ms: 0,
            skew_warning_rounds: 0,
            hook_options: core::ptr::null(),
            hook_option_count: 0,
            disabled: 0,
            throw_on_exhausted: 0,
            strict: 0,
            reserved: 0,
        }
    }
}
impl Default for ujoin_ctx_options {
    fn default() -> Self {
        Self::new()
    }
}

/// What happened in a context since its last start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_ctx_report {
    pub size: usize,
    /// of this rank's own
    pub rounds: i64,
    /// that it worked for others
    pub shadow_rounds: i64,
    /// main hooks run
    pub shadow_uses: i64,
    /// time in them
    pub shadow_us: i64,
    /// time waiting for others' progress
    pub wait_us: i64,
    pub is_last_joiner: i32,
    /// -1 before finish
    pub authoritative_rank: i32,
    /// ranks that have joined by now
    pub joined: i32,
    /// an agreed stop ended it
    pub stopped: i32,
}
impl ujoin_ctx_report {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            rounds: 0,
            shadow_rounds: 0,
            shadow_uses: 0,
            shadow_us: 0,
            wait_us: 0,
            is_last_joiner: 0,
            authoritative_rank: 0,
            joined: 0,
            stopped: 0,
        }
    }
}
impl Default for ujoin_ctx_report {
    fn default() -> Self {
        Self::new()
    }
}

/// What a summed gradient is divided by.
pub type ujoin_division = i32;

// enum ujoin_division_value
/// the size of the group (default)
pub const UJOIN_DIVISION_INITIAL: ujoin_division = 1;
/// the ranks that have not joined
pub const UJOIN_DIVISION_ACTIVE: ujoin_division = 2;
/// the samples of all ranks: equals one process that sees every sample
pub const UJOIN_DIVISION_SAMPLES: ujoin_division = 3;

/// What the program's gradients are, for UJOIN_DIVISION_SAMPLES.
pub type ujoin_gradient_kind = i32;

// enum ujoin_gradient_kind_value
/// over the rank's own samples (default): result = sum(n g) / sum(n)
pub const UJOIN_GRADIENT_MEAN: ujoin_gradient_kind = 1;
/// result = sum(g) / sum(n); the one for accumulation
pub const UJOIN_GRADIENT_SUM: ujoin_gradient_kind = 2;

/// Who sums the gradients.
pub type ujoin_gradient_sync = i32;

// enum ujoin_gradient_sync_value
/// the reducer, for every rank (default)
pub const UJOIN_GRADIENT_SYNC_ALL: ujoin_gradient_sync = 1;
/// zero_step, each element for the rank that owns it: the fused step
pub const UJOIN_GRADIENT_SYNC_TO_OWNER: ujoin_gradient_sync = 2;

/// Ways to reduce a bucket.
pub type ujoin_comm_hook_kind = i32;

// enum ujoin_comm_hook_kind_value
/// the gradients as they are
pub const UJOIN_COMM_HOOK_ALL_REDUCE: ujoin_comm_hook_kind = 1;
/// f32 and f64 as f16 on the way; what is beyond 65504 becomes infinite
pub const UJOIN_COMM_HOOK_F16: ujoin_comm_hook_kind = 2;
/// f32 and f64 as bf16 on the way
pub const UJOIN_COMM_HOOK_BF16: ujoin_comm_hook_kind = 3;
/// matrices as low-rank factors with error feedback (PowerSGD)
pub const UJOIN_COMM_HOOK_LOW_RANK: ujoin_comm_hook_kind = 4;
/// the program's functions
pub const UJOIN_COMM_HOOK_CUSTOM: ujoin_comm_hook_kind = 5;

/// When a buffer hook runs.
pub type ujoin_buffer_time = i32;

// enum ujoin_buffer_time_value
/// in ujoin_ddp_finish (default)
pub const UJOIN_BUFFER_AFTER_FORWARD: ujoin_buffer_time = 1;
/// in ujoin_ddp_forward
pub const UJOIN_BUFFER_BEFORE_FORWARD: ujoin_buffer_time = 2;

/// Options of ujoin_ddp_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_ddp_options {
    pub size: usize,
    pub division: ujoin_division,
    pub gradient_kind: ujoin_gradient_kind,
    /// parameters may get no gradient in an iteration: finish takes them as unused
    pub find_unused: i32,
    /// as find_unused, but each rank uses the same ones in every iteration
    pub static_graph: i32,
    /// the library has the gradients' memory: see ujoin_ddp_gradient
    pub bucket_view: i32,
    /// buffers are each rank's own during training
    pub no_buffer_broadcast: i32,
    /// parameters and buffers are equal already: only verify names, shapes and types
    pub no_initial_broadcast: i32,
    /// whose parameters and buffers all start from; 0 = rank 0
    pub source_rank: i32,
    /// synchronised, not trained (running statistics); any type; memory borrowed as params
    pub buffers: *const ujoin_buffer,
    pub buffer_count: usize,
    /// default 1 MiB, or bucket_bytes where that is given and less
    pub first_bucket_bytes: usize,
    /// default 25 MiB
    pub bucket_bytes: usize,
    /// without progress of the peers; default UJOIN_NEVER
    pub idle_timeout_ms: i64,
    /// once, when the memory is no longer touched, also if create fails
    pub release: ujoin_destroy_fn,
    pub release_data: *mut c_void,
    /// see zero_create; buckets do not count with UJOIN_GRADIENT_SYNC_TO_OWNER
    pub gradient_sync: ujoin_gradient_sync,
    /// A parameter is not read any more once its gradient is ready: an optimizer that was made with this reducer may
    /// update it, on every rank, before ujoin_ddp_finish. The same on every rank. See zero_create.
    pub params_released_on_ready: i32,
}
impl ujoin_ddp_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            division: 0,
            gradient_kind: 0,
            find_unused: 0,
            static_graph: 0,
            bucket_view: 0,
            no_buffer_broadcast: 0,
            no_initial_broadcast: 0,
            source_rank: 0,
            buffers: core::ptr::null(),
            buffer_count: 0,
            first_bucket_bytes: 0,
            bucket_bytes: 0,
            idle_timeout_ms: 0,
            release: None,
            release_data: core::ptr::null_mut(),
            gradient_sync: 0,
            params_released_on_ready: 0,
        }
    }
}
impl Default for ujoin_ddp_options {
    fn default() -> Self {
        Self::new()
    }
}

/// A bucket as a comm hook sees it, or a buffer as a buffer hook does.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_bucket {
    pub size: usize,
    /// borrowed, for this call
    pub group: *mut ujoin_group,
    /// this rank's undivided gradients, end to end; the hook leaves the result here
    pub buffer: ujoin_buffer,
    /// indices of the parameters in it; NULL for a buffer
    pub params: *const usize,
    /// where each begins, in elements
    pub offsets: *const usize,
    pub param_count: usize,
    /// of the sum over the ranks: size, active ranks or samples; see ujoin_ddp_set_comm_hook
    pub divisor: f64,
    /// synchronised ones before it, those that this rank shadowed too
    pub iteration: i64,
    /// of the bucket in the order of launch, or of the buffer; from 0
    pub index: i32,
    /// the last bucket or buffer of its iteration
    pub is_last: i32,
    /// this rank has joined: the contribution is zero
    pub is_shadow: i32,
    /// the lowest rank that has not joined: the buffers' source where there is no hook
    pub source_rank: i32,
}
impl ujoin_bucket {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            group: core::ptr::null_mut(),
            buffer: ujoin_buffer::new(),
            params: core::ptr::null(),
            offsets: core::ptr::null(),
            param_count: 0,
            divisor: 0.0,
            iteration: 0,
            index: 0,
            is_last: 0,
            is_shadow: 0,
            source_rank: 0,
        }
    }
}
impl Default for ujoin_bucket {
    fn default() -> Self {
        Self::new()
    }
}

/// A part of a comm hook: collectives on bucket->group, the same ones on every rank, shadows included.
pub type ujoin_bucket_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        bucket: *const ujoin_bucket,
        out_work: *mut *mut ujoin_work,
    ) -> ujoin_status,
>;

/// How buckets, or buffers, are reduced.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_comm_hook {
    pub size: usize,
    /// custom: reduces now, or passes out work in flight, whose handle the library takes
    pub start: ujoin_bucket_fn,
    /// custom: when that work is complete; may pass out more, and is called again; NULL = nothing
    pub then: ujoin_bucket_fn,
    pub user_data: *mut c_void,
    pub destroy: ujoin_destroy_fn,
    /// low rank: plain all-reduce before this one; default 1,000; negative = from the first on
    pub start_iteration: i64,
    /// default: custom if `start` is given, else all-reduce
    pub kind: ujoin_comm_hook_kind,
    /// low rank: of the factors; default 1
    pub rank: i32,
}
impl ujoin_comm_hook {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            start: None,
            then: None,
            user_data: core::ptr::null_mut(),
            destroy: None,
            start_iteration: 0,
            kind: 0,
            rank: 0,
        }
    }
}
impl Default for ujoin_comm_hook {
    fn default() -> Self {
        Self::new()
    }
}

/// What a reducer did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_ddp_report {
    pub size: usize,
    /// synchronised ones
    pub iterations: i64,
    /// of the last one; 0: no rank had a sample, gradients were left alone
    pub divisor: f64,
    /// of all ranks in the last one
    pub samples: f64,
    /// time that reductions took, all iterations
    pub reduce_us: i64,
    /// of that, time spent waiting in finish, or for updates in ready: the rest was hidden
    pub exposed_us: i64,
    pub bucket_count: usize,
    /// buckets follow the order in which gradients became ready
    pub rebuilt: i32,
    /// has been in a join context with uneven inputs
    pub joined_uneven: i32,
}
impl ujoin_ddp_report {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            iterations: 0,
            divisor: 0.0,
            samples: 0.0,
            reduce_us: 0,
            exposed_us: 0,
            bucket_count: 0,
            rebuilt: 0,
            joined_uneven: 0,
        }
    }
}
impl Default for ujoin_ddp_report {
    fn default() -> Self {
        Self::new()
    }
}

/// Update rules; hyper-parameters in parentheses, with PyTorch's names and defaults where it has them. All but
/// LAMB work element by element. LAMB's trust ratio |p| / |update| is that of a whole parameter, which one rank
/// must own.
pub type ujoin_optimizer = i32;

// enum ujoin_optimizer_value
/// ujoin_zero_options.rule
pub const UJOIN_OPTIMIZER_CUSTOM: ujoin_optimizer = 1;
/// (lr 1e-3, momentum, dampening, nesterov, weight_decay, maximize)
pub const UJOIN_OPTIMIZER_SGD: ujoin_optimizer = 2;
/// (lr, beta1, beta2, eps, weight_decay, amsgrad, maximize)
pub const UJOIN_OPTIMIZER_ADAM: ujoin_optimizer = 3;
/// as Adam, decoupled weight decay
pub const UJOIN_OPTIMIZER_ADAMW: ujoin_optimizer = 4;
/// (lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize)
pub const UJOIN_OPTIMIZER_ADAGRAD: ujoin_optimizer = 5;
/// (lr, alpha, eps, weight_decay, momentum, centered, maximize)
pub const UJOIN_OPTIMIZER_RMSPROP: ujoin_optimizer = 6;
/// (lr, rho, eps, weight_decay, maximize)
pub const UJOIN_OPTIMIZER_ADADELTA: ujoin_optimizer = 7;
/// (lr, beta1, beta2, eps, weight_decay, maximize)
pub const UJOIN_OPTIMIZER_ADAMAX: ujoin_optimizer = 8;
/// as Adamax, and (momentum_decay, decoupled_weight_decay)
pub const UJOIN_OPTIMIZER_NADAM: ujoin_optimizer = 9;
/// as Adamax, and (decoupled_weight_decay)
pub const UJOIN_OPTIMIZER_RADAM: ujoin_optimizer = 10;
/// (lr, etaminus, etaplus, step_min, step_max, maximize)
pub const UJOIN_OPTIMIZER_RPROP: ujoin_optimizer = 11;
/// (lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-6, weight_decay 0.01, maximize)
pub const UJOIN_OPTIMIZER_LAMB: ujoin_optimizer = 12;
/// (lr 1e-4, beta1 0.9, beta2 0.99, weight_decay 0, maximize)
pub const UJOIN_OPTIMIZER_LION: ujoin_optimizer = 13;

/// How parameters are given to ranks. Element by element, rules give the same bits with either, and on any number
/// of ranks.
pub type ujoin_partition = i32;

// enum ujoin_partition_value
/// whole, largest first, to the rank with the fewest elements: PyTorch's (default)
pub const UJOIN_PARTITION_PARAMETERS: ujoin_partition = 1;
/// each param group end to end, cut at cache lines: within one of equal parts
pub const UJOIN_PARTITION_ELEMENTS: ujoin_partition = 2;

/// What a rule of the program's own updates: a parameter, or a piece of one, that this rank owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_rule_args {
    pub size: usize,
    /// of the parameter
    pub name: *const c_char,
    /// `count` elements, updated in place
    pub data: *mut c_void,
    /// the reduced gradient, unscaled and clipped; of data's type
    pub grad: *const c_void,
    /// one array for each state name; `count` elements of data's type
    pub state: *const *mut c_void,
    /// of its param group, in the order of ujoin_rule.hyper
    pub hyper: *const f64,
    /// of the whole parameter
    pub shape: *const i64,
    pub count: usize,
    /// where the piece begins in the parameter (elements)
    pub offset: usize,
    /// index of the parameter
    pub param: usize,
    /// which update of this parameter it is, from 1
    pub step: i64,
    pub ndim: i32,
    /// param group
    pub group: i32,
    /// f32 or f64; for 16-bit parameters f32: the master copy, or a copy that is rounded afterwards
    pub dtype: ujoin_dtype,
    pub reserved: i32,
}
impl ujoin_rule_args {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            name: core::ptr::null(),
            data: core::ptr::null_mut(),
            grad: core::ptr::null(),
            state: core::ptr::null(),
            hyper: core::ptr::null(),
            shape: core::ptr::null(),
            count: 0,
            offset: 0,
            param: 0,
            step: 0,
            ndim: 0,
            group: 0,
            dtype: 0,
            reserved: 0,
        }
    }
}
impl Default for ujoin_rule_args {
    fn default() -> Self {
        Self::new()
    }
}

/// One update, or the first filling of the state. Runs on the thread that is in zero_step (with options.ddp in
/// ujoin_ddp_finish; with params_released_on_ready also ujoin_ddp_ready), or in ujoin_ctx_finish for a rank that
/// has joined, one parameter after the other.
pub type ujoin_rule_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, args: *const ujoin_rule_args) -> ujoin_status>;

/// An optimizer of the program's own. Its parts are copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_rule {
    pub size: usize,
    /// goes into saved state
    pub name: *const c_char,
    /// updates data and state
    pub step: ujoin_rule_fn,
    /// before a parameter's first update: fills its state. NULL: zeros
    pub init: ujoin_rule_fn,
    /// as in saved state: "exp_avg", ...; at most 8
    pub state_names: *const *const c_char,
    pub state_count: usize,
    /// names and defaults
    pub hyper: *const ujoin_hyper,
    pub hyper_count: usize,
    pub user_data: *mut c_void,
    /// given user_data, also if zero_create fails
    pub destroy: ujoin_destroy_fn,
    /// needs whole parameters (a norm, a shape): refused with UJOIN_PARTITION_ELEMENTS
    pub per_tensor: i32,
    pub reserved: i32,
}
impl ujoin_rule {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            name: core::ptr::null(),
            step: None,
            init: None,
            state_names: core::ptr::null(),
            state_count: 0,
            hyper: core::ptr::null(),
            hyper_count: 0,
            user_data: core::ptr::null_mut(),
            destroy: None,
            per_tensor: 0,
            reserved: 0,
        }
    }
}
impl Default for ujoin_rule {
    fn default() -> Self {
        Self::new()
    }
}

/// Options of zero_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_zero_options {
    pub size: usize,
    /// of the first param group; absent = the rule's default; unknown = an error
    pub hyper: *const ujoin_hyper,
    pub hyper_count: usize,
    /// without progress of the peers; default UJOIN_NEVER
    pub idle_timeout_ms: i64,
    /// once, when parameters and gradients are no longer touched, also if create fails
    pub release: ujoin_destroy_fn,
    pub release_data: *mut c_void,
    /// with UJOIN_OPTIMIZER_CUSTOM
    pub rule: *const ujoin_rule,
    /// of stochastic rounding; results do not depend on the number of ranks
    pub seed: u64,
    /// frozen parameters do not count in the balance
    pub balance_trainable: i32,
    /// 16-bit parameters are updated without an f32 copy of their values
    pub no_master_copy: i32,
    /// of bf16 without a master copy: up or down at random, right on average
    pub stochastic_rounding: i32,
    pub partition: ujoin_partition,
    /// of zero_consolidate_state_dict, without progress; default: the group's timeout
    pub consolidate_timeout_ms: i64,
    /// parameters move into the library's memory, side by side: see zero_param_data
    pub bucket_view: i32,
    pub reserved: i32,
    /// overlapped or fused steps, with this reducer of the gradients: see zero_create
    pub ddp: *mut ujoin_ddp,
}
impl ujoin_zero_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            hyper: core::ptr::null(),
            hyper_count: 0,
            idle_timeout_ms: 0,
            release: None,
            release_data: core::ptr::null_mut(),
            rule: core::ptr::null(),
            seed: 0,
            balance_trainable: 0,
            no_master_copy: 0,
            stochastic_rounding: 0,
            partition: 0,
            consolidate_timeout_ms: 0,
            bucket_view: 0,
            reserved: 0,
            ddp: core::ptr::null_mut(),
        }
    }
}
impl Default for ujoin_zero_options {
    fn default() -> Self {
        Self::new()
    }
}

/// Options of zero_step; all but the closure must be the same on every rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_step_options {
    pub size: usize,
    /// computes loss and gradients anew, before the update; keeps its loss
    pub closure: ujoin_call_fn,
    pub closure_data: *mut c_void,
    /// gradients carry its scale: they are divided by it and checked, and it is adapted
    pub scaler: *mut ujoin_scaler,
    /// with max_norm: receives the global norm as it was; may be NULL
    pub out_norm: *mut f64,
    /// gradients are clipped to this global norm as they are used; 0 = they are not
    pub max_norm: f64,
    /// p of the norm, above 0; default 2; HUGE_VAL = the largest magnitude
    pub norm_type: f64,
    /// gradients are checked; with a scaler or max_norm they always are
    pub skip_nonfinite: i32,
    pub reserved: i32,
}
impl ujoin_step_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            closure: None,
            closure_data: core::ptr::null_mut(),
            scaler: core::ptr::null_mut(),
            out_norm: core::ptr::null_mut(),
            max_norm: 0.0,
            norm_type: 0.0,
            skip_nonfinite: 0,
            reserved: 0,
        }
    }
}
impl Default for ujoin_step_options {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes that this rank holds for an optimizer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_zero_memory {
    pub size: usize,
    /// the program's
    pub parameters: u64,
    /// the program's, of parameters that have one
    pub gradients: u64,
    /// of this rank's shard, master copies included, as it is now
    pub state: u64,
    /// what a step needs beside that, and the memory of bucket_view
    pub buffers: u64,
    /// state of all parameters with every step made: what an unsharded optimizer holds
    pub full_state: u64,
}
impl ujoin_zero_memory {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self { size: size_of::<Self>(), parameters: 0, gradients: 0, state: 0, buffers: 0, full_state: 0 }
    }
}
impl Default for ujoin_zero_memory {
    fn default() -> Self {
        Self::new()
    }
}

/// One piece of the partition.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_shard {
    pub size: usize,
    /// index of the parameter
    pub param: usize,
    /// elements
    pub offset: usize,
    pub count: usize,
    /// the owner
    pub rank: i32,
    /// param group
    pub group: i32,
}
impl ujoin_shard {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self { size: size_of::<Self>(), param: 0, offset: 0, count: 0, rank: 0, group: 0 }
    }
}
impl Default for ujoin_shard {
    fn default() -> Self {
        Self::new()
    }
}

// enum ujoin_save_part: What zero_save writes and zero_load reads (bits); 0 = the optimizer's state.
/// a directory: one file per rank and an index, which is renamed last
pub const UJOIN_SAVE_STATE: i32 = 1;
/// alone: one safetensors file of the parameters, at `path`; else in the directory
pub const UJOIN_SAVE_PARAMETERS: i32 = 2;

/// Options of zero_save and zero_load.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_save_options {
    pub size: usize,
    /// save: this rank's own texts, numbers and bytes (step, position in the data, ...)
    pub extra: *const ujoin_state,
    /// ujoin_save_part
    pub parts: i32,
    /// save: do not wait for the disk (a crash of the machine may lose it)
    pub no_sync: i32,
}
impl ujoin_save_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self { size: size_of::<Self>(), extra: core::ptr::null(), parts: 0, no_sync: 0 }
    }
}
impl Default for ujoin_save_options {
    fn default() -> Self {
        Self::new()
    }
}

/// Kinds of items.
pub type ujoin_item_kind = i32;

// enum ujoin_item_kind_value
pub const UJOIN_ITEM_TENSOR: ujoin_item_kind = 1;
pub const UJOIN_ITEM_NUMBER: ujoin_item_kind = 2;
pub const UJOIN_ITEM_TEXT: ujoin_item_kind = 3;
pub const UJOIN_ITEM_BYTES: ujoin_item_kind = 4;

/// What an item belongs to.
pub type ujoin_item_owner = i32;

// enum ujoin_item_owner_value
/// the program's own (default)
pub const UJOIN_ITEM_OF_PROGRAM: ujoin_item_owner = 1;
/// state of the parameter named `param`
pub const UJOIN_ITEM_OF_PARAM: ujoin_item_owner = 2;
/// a hyper-parameter of param group `group`
pub const UJOIN_ITEM_OF_GROUP: ujoin_item_owner = 3;

/// One item; `key` is unique within its owner.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_item {
    pub size: usize,
    /// name of the parameter that owns it
    pub param: *const c_char,
    /// "exp_avg", "step", "lr", or the program's own name
    pub key: *const c_char,
    /// tensor (row-major), text (without a NUL), bytes
    pub data: *const c_void,
    pub bytes: usize,
    /// tensor
    pub shape: *const i64,
    pub number: f64,
    pub kind: ujoin_item_kind,
    /// tensor
    pub dtype: ujoin_dtype,
    pub ndim: i32,
    pub owner: ujoin_item_owner,
    /// the param group of the parameter or hyper-parameter
    pub group: i32,
    pub reserved: i32,
}
impl ujoin_item {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            param: core::ptr::null(),
            key: core::ptr::null(),
            data: core::ptr::null(),
            bytes: 0,
            shape: core::ptr::null(),
            number: 0.0,
            kind: 0,
            dtype: 0,
            ndim: 0,
            owner: 0,
            group: 0,
            reserved: 0,
        }
    }
}
impl Default for ujoin_item {
    fn default() -> Self {
        Self::new()
    }
}

/// Shapes of schedules.
pub type ujoin_schedule_kind = i32;

// enum ujoin_schedule_kind_value
pub const UJOIN_SCHEDULE_CONSTANT: ujoin_schedule_kind = 1;
/// from base to minimum along half a cosine, at total_steps and then on
pub const UJOIN_SCHEDULE_COSINE: ujoin_schedule_kind = 2;
/// likewise, in a straight line
pub const UJOIN_SCHEDULE_LINEAR: ujoin_schedule_kind = 3;
/// times gamma every `every` steps, but not below minimum
pub const UJOIN_SCHEDULE_STEP: ujoin_schedule_kind = 4;

/// A schedule.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_schedule_options {
    pub size: usize,
    /// the value after warm-up
    pub base: f64,
    pub minimum: f64,
    /// step; default 0.1
    pub gamma: f64,
    /// step i \< warmup_steps: base (i + 1) / warmup_steps
    pub warmup_steps: i64,
    /// cosine, linear: warm-up included
    pub total_steps: i64,
    /// step: counted from the end of warm-up
    pub every: i64,
    /// default: constant
    pub kind: ujoin_schedule_kind,
    pub reserved: i32,
}
impl ujoin_schedule_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            base: 0.0,
            minimum: 0.0,
            gamma: 0.0,
            warmup_steps: 0,
            total_steps: 0,
            every: 0,
            kind: 0,
            reserved: 0,
        }
    }
}
impl Default for ujoin_schedule_options {
    fn default() -> Self {
        Self::new()
    }
}

/// State of a loss scale: to make one, to read and to save it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_scaler_options {
    pub size: usize,
    /// default 65,536
    pub scale: f64,
    /// factor after `interval` good steps in a row, above 1; default 2
    pub growth: f64,
    /// factor after a skipped step, below 1; default 0.5
    pub backoff: f64,
    /// default 2,000
    pub interval: i64,
    /// since the last change
    pub good_steps: i64,
    /// steps, in all
    pub skipped: i64,
}
impl ujoin_scaler_options {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self { size: size_of::<Self>(), scale: 0.0, growth: 0.0, backoff: 0.0, interval: 0, good_steps: 0, skipped: 0 }
    }
}
impl Default for ujoin_scaler_options {
    fn default() -> Self {
        Self::new()
    }
}

/// Standard streams (bits).
pub type ujoin_std = i32;

// enum ujoin_std_value
pub const UJOIN_STD_NONE: ujoin_std = 0;
pub const UJOIN_STD_OUT: ujoin_std = 1;
pub const UJOIN_STD_ERR: ujoin_std = 2;
pub const UJOIN_STD_ALL: ujoin_std = 3;
/// in ujoin_worker: the value counts, also if it is none
pub const UJOIN_STD_SET: ujoin_std = 4;

/// How a function worker comes to be; programs are always executed.
pub type ujoin_start_method = i32;

// enum ujoin_start_method_value
/// this program is executed again (default)
pub const UJOIN_START_SPAWN: ujoin_start_method = 1;
/// a copy of this process; dangerous if it has threads
pub const UJOIN_START_FORK: ujoin_start_method = 2;
/// forked from this program, executed once more, which holds the workers as a warden does
pub const UJOIN_START_FORKSERVER: ujoin_start_method = 3;

/// How workers and their descendants are held; the result says which was in force.
pub type ujoin_containment = i32;

// enum ujoin_containment_value
/// session and process group (default); no effect on this process
pub const UJOIN_CONTAINMENT_GROUP: ujoin_containment = 1;
/// a helper process outlives this one and ends all, also if this one is killed
pub const UJOIN_CONTAINMENT_WARDEN: ujoin_containment = 2;
/// the same, and all are in a cgroup (version 2) of their own, which is killed as one: not even programs that
/// fork without end escape. Below the cgroup of this process, which has to be allowed to make one (delegation, or
/// root)
pub const UJOIN_CONTAINMENT_CGROUP: ujoin_containment = 3;
/// a cgroup where one can be made, else a warden; for forked workers the group
pub const UJOIN_CONTAINMENT_BEST: ujoin_containment = 4;

/// What happens when the console is slower than the workers; files always get everything.
pub type ujoin_console_policy = i32;

// enum ujoin_console_policy_value
/// the workers wait (default)
pub const UJOIN_CONSOLE_BLOCK: ujoin_console_policy = 1;
/// lines are dropped and counted; a note in their place says how many
pub const UJOIN_CONSOLE_DROP: ujoin_console_policy = 2;
/// what is late is in the log file alone: where there is none, the worker waits
pub const UJOIN_CONSOLE_SPILL: ujoin_console_policy = 3;

/// Where stdin comes from.
pub type ujoin_stdin = i32;

// enum ujoin_stdin_value
/// /dev/null (default)
pub const UJOIN_STDIN_NULL: ujoin_stdin = 1;
/// this process's; one worker at most
pub const UJOIN_STDIN_INHERIT: ujoin_stdin = 2;
/// stdin_data
pub const UJOIN_STDIN_BYTES: ujoin_stdin = 3;
/// stdin_path
pub const UJOIN_STDIN_FILE: ujoin_stdin = 4;

/// Placement of workers on processors (of those that this process may use) and their memory nodes.
pub type ujoin_binding = i32;

// enum ujoin_binding_value
/// (default)
pub const UJOIN_BINDING_NONE: ujoin_binding = 1;
/// worker after worker on another memory node, a part of its processors for each
pub const UJOIN_BINDING_SPREAD: ujoin_binding = 2;
/// side by side: equal parts of the processors in their order
pub const UJOIN_BINDING_COMPACT: ujoin_binding = 3;
/// ujoin_worker.cpus
pub const UJOIN_BINDING_LIST: ujoin_binding = 4;

/// Receives output of a worker: whole lines with their ends, or parts of 64 KiB; stream is UJOIN_STD_OUT or
/// UJOIN_STD_ERR. Runs on the thread that is in pctx_wait or pctx_close; meanwhile at most 1 MiB is kept, then
/// the workers wait.
pub type ujoin_output_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        rank: i32,
        stream: ujoin_std,
        data: *const c_char,
        size: usize,
    ) -> ujoin_status,
>;

/// A job: what all its workers have in common.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_pctx_spec {
    pub size: usize,
    /// for prefixes and the report; default "worker"
    pub name: *const c_char,
    /// path, or name in PATH; no shell
    pub program: *const c_char,
    /// instead: a name given to pctx_register, or "library.so:symbol" (an ujoin_worker_fn)
    pub function: *const c_char,
    /// without the program's name; ${local_rank} is replaced
    pub args: *const *const c_char,
    pub arg_count: usize,
    /// NULL = a fresh temporary one if a file is needed; "/dev/null" = no files
    pub log_dir: *const c_char,
    /// default: random
    pub run_id: *const c_char,
    /// of console lines: ${role_name}, ${rank}, ${local_rank}, ${time}; default "\[name\<rank>]: "
    pub prefix: *const c_char,
    /// only these on the console, others to their files or nowhere; NULL = all
    pub console_ranks: *const i32,
    pub console_rank_count: usize,
    /// lines that go to the console by tee and have one of these also go to filtered_stdout.log
    pub stdout_filters: *const *const c_char,
    pub stdout_filter_count: usize,
    pub stderr_filters: *const *const c_char,
    pub stderr_filter_count: usize,
    /// gets the lines of all streams, besides files and instead of an untouched console stream
    pub output: ujoin_output_fn,
    pub user_data: *mut c_void,
    pub destroy: ujoin_destroy_fn,
    /// between the polite signal and SIGKILL, when the library ends workers; default 30 s
    pub grace_ms: i64,
    /// for output that a grandchild still holds after a worker's end; default 1 s
    pub drain_ms: i64,
    /// an unfinished line goes to the console after this; default 200 ms
    pub partial_line_ms: i64,
    /// a log file of this size becomes \<name>.1, and a new one is begun; 0 = never
    pub rotate_bytes: u64,
    /// workers; their index is "rank" in this family
    pub nprocs: i32,
    /// added to the index in texts and prefixes (several hosts)
    pub first_rank: i32,
    /// attempt_\<k> in the log directory
    pub restart_count: i32,
    /// streams that go to files instead of the console
    pub redirects: ujoin_std,
    /// streams that go to both
    pub tee: ujoin_std,
    pub start_method: ujoin_start_method,
    pub containment: ujoin_containment,
    pub console: ujoin_console_policy,
    pub binding: ujoin_binding,
    /// workers get no path for error.json
    pub no_error_file: i32,
    /// stay on the terminal (one worker, for debuggers)
    pub same_session: i32,
    /// by default prefixes are coloured by rank if the console is a terminal (and NO_COLOR is unset)
    pub no_colour: i32,
    /// old log files kept per stream; default 1; negative = none
    pub rotate_keep: i32,
    /// 1: how the job stands, in the last line of a terminal on stderr that no worker writes to
    pub status_line: i32,
}
impl ujoin_pctx_spec {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            name: core::ptr::null(),
            program: core::ptr::null(),
            function: core::ptr::null(),
            args: core::ptr::null(),
            arg_count: 0,
            log_dir: core::ptr::null(),
            run_id: core::ptr::null(),
            prefix: core::ptr::null(),
            console_ranks: core::ptr::null(),
            console_rank_count: 0,
            stdout_filters: core::ptr::null(),
            stdout_filter_count: 0,
            stderr_filters: core::ptr::null(),
            stderr_filter_count: 0,
            output: None,
            user_data: core::ptr::null_mut(),
            destroy: None,
            grace_ms: 0,
            drain_ms: 0,
            partial_line_ms: 0,
            rotate_bytes: 0,
            nprocs: 0,
            first_rank: 0,
            restart_count: 0,
            redirects: 0,
            tee: 0,
            start_method: 0,
            containment: 0,
            console: 0,
            binding: 0,
            no_error_file: 0,
            same_session: 0,
            no_colour: 0,
            rotate_keep: 0,
            status_line: 0,
        }
    }
}
impl Default for ujoin_pctx_spec {
    fn default() -> Self {
        Self::new()
    }
}

/// A descriptor that a worker inherits.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_worker_fd {
    /// open in this process when pctx_start is called; stays open here, may be given to several workers
    pub from: i32,
    /// its number in the worker: 3 or more, below the limit for open files; -1 = the same as `from`
    pub to: i32,
}
impl ujoin_worker_fd {
    /// All zero: every field has its default.
    pub const fn new() -> Self {
        Self { from: 0, to: 0 }
    }
}
impl Default for ujoin_worker_fd {
    fn default() -> Self {
        Self::new()
    }
}

/// What one worker has of its own; a zero field leaves the job's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_worker {
    pub size: usize,
    pub program: *const c_char,
    /// replaces the job's, if not NULL
    pub args: *const *const c_char,
    pub arg_count: usize,
    /// working directory
    pub directory: *const c_char,
    /// bytes for a function worker (ujoin_worker_args)
    pub input: *const c_void,
    /// counts if input is not NULL
    pub input_size: usize,
    /// with UJOIN_STDIN_BYTES
    pub stdin_data: *const c_void,
    pub stdin_size: usize,
    /// with UJOIN_STDIN_FILE
    pub stdin_path: *const c_char,
    /// processors, with UJOIN_BINDING_LIST; memory comes from their nodes
    pub cpus: *const i32,
    pub cpu_count: usize,
    /// resource limits: {"nofile", 4096}, {"core", 0}; HUGE_VAL = unlimited
    pub limits: *const ujoin_hyper,
    pub limit_count: usize,
    /// counts with UJOIN_STD_SET, or if not 0
    pub redirects: ujoin_std,
    pub tee: ujoin_std,
    pub stdin_from: ujoin_stdin,
    /// 1: umask counts
    pub umask_set: i32,
    pub umask: i32,
    pub reserved: i32,
    /// descriptors of this process for the worker, at most 64; every other one is closed in it
    pub fds: *const ujoin_worker_fd,
    /// counts if fds is not NULL
    pub fd_count: usize,
}
impl ujoin_worker {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            program: core::ptr::null(),
            args: core::ptr::null(),
            arg_count: 0,
            directory: core::ptr::null(),
            input: core::ptr::null(),
            input_size: 0,
            stdin_data: core::ptr::null(),
            stdin_size: 0,
            stdin_path: core::ptr::null(),
            cpus: core::ptr::null(),
            cpu_count: 0,
            limits: core::ptr::null(),
            limit_count: 0,
            redirects: 0,
            tee: 0,
            stdin_from: 0,
            umask_set: 0,
            umask: 0,
            reserved: 0,
            fds: core::ptr::null(),
            fd_count: 0,
        }
    }
}
impl Default for ujoin_worker {
    fn default() -> Self {
        Self::new()
    }
}

/// State of a worker.
pub type ujoin_worker_state = i32;

// enum ujoin_worker_state_value
/// not started
pub const UJOIN_WORKER_CREATED: ujoin_worker_state = 1;
pub const UJOIN_WORKER_RUNNING: ujoin_worker_state = 2;
/// exit_code counts
pub const UJOIN_WORKER_EXITED: ujoin_worker_state = 3;
/// signal counts
pub const UJOIN_WORKER_SIGNALED: ujoin_worker_state = 4;
/// ended, but this process took the status elsewhere
pub const UJOIN_WORKER_UNKNOWN: ujoin_worker_state = 5;
/// still there after SIGKILL; given up
pub const UJOIN_WORKER_UNKILLABLE: ujoin_worker_state = 6;
/// a function worker exited with 0, but its function had not returned: a failure
pub const UJOIN_WORKER_NO_VALUE: ujoin_worker_state = 7;

/// A worker: what is known now, and how it ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_worker_result {
    pub size: usize,
    pub state: ujoin_worker_state,
    pub rank: i32,
    pub pid: i32,
    /// -1 unless exited
    pub exit_code: i32,
    /// 0 unless signaled
    pub signal: i32,
    /// by itself
    pub failed: i32,
    /// ended because of another's failure, or on request: a victim, not a cause
    pub stopped: i32,
    /// in force; before the start as asked for
    pub containment: ujoin_containment,
    /// CLOCK_REALTIME
    pub start_ns: i64,
    /// 0 while it runs
    pub end_ns: i64,
    /// of a failed or stopped one: the time in its error file, else end_ns; 0 otherwise
    pub failed_ns: i64,
    pub last_output_ns: i64,
    /// processor time
    pub user_us: i64,
    pub system_us: i64,
    /// resident memory
    pub peak_bytes: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// of the console
    pub dropped_lines: u64,
    /// function worker: what it returned (pctx_return); NULL if nothing
    pub value: *const c_void,
    /// bytes
    pub value_size: usize,
    /// of error.json, else of the signal, else how to get one; "" if it did not fail
    pub message: *const c_char,
    /// of error.json, else the last lines of stderr, or ""
    pub traceback: *const c_char,
    /// "" if there is no file
    pub stdout_path: *const c_char,
    pub stderr_path: *const c_char,
    /// of the error.json that it wrote; "" if it wrote none
    pub error_path: *const c_char,
}
impl ujoin_worker_result {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            state: 0,
            rank: 0,
            pid: 0,
            exit_code: 0,
            signal: 0,
            failed: 0,
            stopped: 0,
            containment: 0,
            start_ns: 0,
            end_ns: 0,
            failed_ns: 0,
            last_output_ns: 0,
            user_us: 0,
            system_us: 0,
            peak_bytes: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            dropped_lines: 0,
            value: core::ptr::null(),
            value_size: 0,
            message: core::ptr::null(),
            traceback: core::ptr::null(),
            stdout_path: core::ptr::null(),
            stderr_path: core::ptr::null(),
            error_path: core::ptr::null(),
        }
    }
}
impl Default for ujoin_worker_result {
    fn default() -> Self {
        Self::new()
    }
}

/// What a worker does now: pctx_health. Its group's words are its own, so nothing that needs to be safe may rest
/// on them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_worker_health {
    pub size: usize,
    /// number of the operation that its group is in, or was in last, from 1; 0 = none yet
    pub sequence: i64,
    /// of the join context that is armed; a joined rank's goes on; -1 = none is
    pub round: i64,
    /// CLOCK_REALTIME, to a few ms: what it does now began; 0 without a group
    pub since_ns: i64,
    /// likewise; 0 = nothing yet, or the stream is not read here
    pub last_output_ns: i64,
    /// the ranks of its group that it waits for (of the first 1024), 0.1 s old at most
    pub missing: *const i32,
    /// of missing
    pub missing_count: usize,
    /// "all_reduce": the last one that began; "" = none yet
    pub operation: *const c_char,
    /// "all_reduce(sum, f32, 100)", "rank 2 to catch up in join context 1"; "" = does not wait
    pub waiting_for: *const c_char,
    /// its name, as in ujoin_group_options; 32 bytes of it
    pub group: *const c_char,
    /// all this in one line for a person, also of a worker that has ended
    pub text: *const c_char,
    pub state: ujoin_worker_state,
    /// its index
    pub rank: i32,
    /// 0 = not started
    pub pid: i32,
    /// the process that has the group: it, or one that it started
    pub group_pid: i32,
    /// -1 = it has no group that tells
    pub group_rank: i32,
    /// ranks
    pub group_size: i32,
    /// that tell (4 at most); the one described waits longest, else is busy longest, else is the first
    pub groups: i32,
    /// 1 = the operation has begun and is not complete
    pub in_operation: i32,
    /// 1 = a join context is armed
    pub in_context: i32,
    /// 1 = it works for the others
    pub joined: i32,
    /// 1 = an operation has failed: the group is of no use any more
    pub broken: i32,
    pub reserved: i32,
}
impl ujoin_worker_health {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            sequence: 0,
            round: 0,
            since_ns: 0,
            last_output_ns: 0,
            missing: core::ptr::null(),
            missing_count: 0,
            operation: core::ptr::null(),
            waiting_for: core::ptr::null(),
            group: core::ptr::null(),
            text: core::ptr::null(),
            state: 0,
            rank: 0,
            pid: 0,
            group_pid: 0,
            group_rank: 0,
            group_size: 0,
            groups: 0,
            in_operation: 0,
            in_context: 0,
            joined: 0,
            broken: 0,
            reserved: 0,
        }
    }
}
impl Default for ujoin_worker_health {
    fn default() -> Self {
        Self::new()
    }
}

/// What a function worker is told.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ujoin_worker_args {
    pub size: usize,
    pub args: *const *const c_char,
    pub arg_count: usize,
    /// ujoin_worker.input
    pub input: *const c_void,
    /// bytes
    pub input_size: usize,
    /// its index
    pub rank: i32,
    pub nprocs: i32,
}
impl ujoin_worker_args {
    /// All zero, but for `size`: every field has its default.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            args: core::ptr::null(),
            arg_count: 0,
            input: core::ptr::null(),
            input_size: 0,
            rank: 0,
            nprocs: 0,
        }
    }
}
impl Default for ujoin_worker_args {
    fn default() -> Self {
        Self::new()
    }
}

/// A function worker; a negative status is a failure with the text of ujoin_last_error, and exit code 1.
pub type ujoin_worker_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, args: *const ujoin_worker_args) -> ujoin_status>;

unsafe extern "C" {
    /// The library's version as text, "0.1.0". Compare numbers with the macros of the header that was compiled.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_version() -> *const c_char;

    /// The library's UJOIN_ABI_VERSION. A binding refuses to load when it is lower than that of the header it was
    /// made from.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_abi_version() -> i32;

    /// What this build and this machine can do: one line per backend, "name\<TAB>yes|no\<TAB>why not, or the library
    /// found". Looks for the modules on the first call. The text lives as long as the process.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_backends() -> *const c_char;

    /// The text of the last failed call on this thread, with its whole chain of causes, rank and operation. Never
    /// NULL; "" if nothing has failed yet. Valid until the next failing call on this thread.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_last_error() -> *const c_char;

    /// The errno behind the last error of this thread; 0 if the system was not its cause.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_last_errno() -> i32;

    /// The ranks that the last error of this thread is about: missing, late, lost, aborted or exhausted. Writes at
    /// most `capacity` of them, ascending, and returns how many there are.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_last_missing(out_ranks: *mut i32, capacity: usize) -> usize;

    /// The name of a status, "UJOIN_E_TIMEOUT". Static; "UJOIN_E_?" for an unknown value.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_status_name(status: ujoin_status) -> *const c_char;

    /// For callbacks: sets this thread's error text (copied) and returns `status`, so that a hook can say `return
    /// ujoin_set_last_error(UJOIN_E_CALLBACK, text)`. The text becomes the cause in the failing call's error.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_set_last_error(status: ujoin_status, text: *const c_char) -> ujoin_status;

    /// Sets the check that lets Ctrl-C end a blocking call (a binding looks for its runtime's pending signals there).
    /// It runs on the thread that waits, every 100 ms at most; a negative status ends the call with UJOIN_E_CALLBACK.
    /// A wait that it ends (ujoin_work_wait, pctx_wait) leaves the object as it was; any other call behaves as if its
    /// object had been aborted. NULL removes it. Process-wide.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_set_interrupt_check(
        r#fn: ujoin_call_fn,
        user_data: *mut c_void,
        destroy: ujoin_destroy_fn,
    ) -> ujoin_status;

    /// Sets where log lines of at least this severity go; level 0 = warnings and errors. Without a sink nothing is
    /// written. NULL removes it; when this returns, the old sink is no longer running on any thread but the caller's.
    /// Process-wide. The sink may not call the library.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_set_log_sink(
        level: ujoin_log_level,
        r#fn: ujoin_log_fn,
        user_data: *mut c_void,
        destroy: ujoin_destroy_fn,
    ) -> ujoin_status;

    /// Opens a store: "memory://name" (this process: equal names share it), "file:///path", "tcp://host:port" (one
    /// process opens it with `listen`). A tcp server listens on the given address only. UJOIN_E_SYSTEM: address in
    /// use, no such host, unwritable file. UJOIN_E_TIMEOUT: nobody answered.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn ujoin_store_create(
        url: *const c_char,
        options: *const ujoin_store_options,
        out: *mut *mut ujoin_store,
    ) -> ujoin_status;

    /// A view of a store in which every key carries a prefix. It keeps the store alive.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_store_prefix(
        store: *mut ujoin_store,
        prefix: *const c_char,
        out: *mut *mut ujoin_store,
    ) -> ujoin_status;

    /// The address by which other processes reach this store, with the real port; "" for memory. Lives with the
    /// handle.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_store_url(store: *const ujoin_store) -> *const c_char;

    /// Sets a key. Values are bytes, at most 16 MiB; keys are text, at most 1 KiB. Overwrites.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn ujoin_store_set(
        store: *mut ujoin_store,
        key: *const c_char,
        data: *const c_void,
        size: usize,
    ) -> ujoin_status;

    /// Waits until a key exists and copies its value. UJOIN_PENDING: not there in time. If `capacity` is too small
    /// nothing is copied, out_size tells what is needed, and the status is UJOIN_E_INVALID; out_data may be NULL with
    /// capacity 0.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn ujoin_store_get(
        store: *mut ujoin_store,
        key: *const c_char,
        timeout_ms: i64,
        out_data: *mut c_void,
        capacity: usize,
        out_size: *mut usize,
    ) -> ujoin_status;

    /// Adds to a counter (absent = 0) and returns its new value; atomic over all clients. 0 reads it. The value of
    /// the key is the number as decimal text. UJOIN_E_MISMATCH: the key holds something else.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn ujoin_store_add(
        store: *mut ujoin_store,
        key: *const c_char,
        amount: i64,
        out_value: *mut i64,
    ) -> ujoin_status;

    /// Waits until all keys exist. UJOIN_PENDING: not all in time; the text lists the missing ones.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn ujoin_store_wait(
        store: *mut ujoin_store,
        keys: *const *const c_char,
        count: usize,
        timeout_ms: i64,
    ) -> ujoin_status;

    /// Ends every wait on this handle with UJOIN_E_ABORTED, now and later. Other clients are not concerned.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_store_abort(store: *mut ujoin_store);

    /// Drops the handle. A server goes on until the last group or prefix made from it is gone.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_store_destroy(store: *mut ujoin_store);

    /// Makes a group: ranks meet, agree on a backend, attach. NULL options: env:// and the best backend for all.
    /// UJOIN_E_INVALID: a variable or option is wrong (named). UJOIN_E_TIMEOUT: the text names the ranks that came.
    /// UJOIN_E_MISMATCH: ranks differ in size, backend or options. UJOIN_E_UNSUPPORTED: who could not use the
    /// backend, and why. env:// reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as ujoin-run sets them. The group
    /// keeps `store` alive. "auto" takes several hosts to be meant where LOCAL_WORLD_SIZE is not WORLD_SIZE,
    /// UJOIN_STORE is set (ujoin-run does both), or the rendezvous is tcp:// with another address than this machine's
    /// loopback. Ranks then meet in a store: the launcher's, the option's, a file that all hosts see, or one that
    /// rank 0 opens at the rendezvous's address, with the secret UJOIN_SECRET if it is set. Ranks of a host
    /// (UJOIN_HOST_ID; by default they are found) share memory, and each has a connection to each rank of other
    /// hosts: it listens at the address from which it reaches the store, or that of the interface UJOIN_IFNAME, and
    /// lets in only who proves to belong to the group. Results have the same bits as on one host. A rank whose
    /// process ends is lost at once, one whose host is silent in about 10 s. Such a group shares no memory of
    /// ujoin_memory_create. threads: what a step of an optimizer computes over many elements is shared by the calling
    /// thread and threads that the group makes when they are first needed; they sleep in between, block all signals,
    /// and end with the group. Results do not depend on the number, which may differ between ranks. By default it is
    /// the rank's share of the processors that affinity mask and cgroup quota leave this process. Rules and hooks of
    /// the program's own run on the calling thread.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_group_create(options: *const ujoin_group_options, out: *mut *mut ujoin_group) -> ujoin_status;

    /// Makes a group of the ranks that give the same color, in the order of their keys, and of their ranks where keys
    /// are equal. A negative color: no group for this rank, \*out = NULL, UJOIN_SKIPPED. Of `options` (NULL: as
    /// ujoin_group_create's defaults) rendezvous, store, rank and world_size must be absent; backend "auto" is the
    /// group's own. The new group does not depend on the old one: each has its operations, may be used from a thread
    /// of its own, and fails alone.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_group_split(
        group: *mut ujoin_group,
        color: i32,
        key: i32,
        options: *const ujoin_group_options,
        out: *mut *mut ujoin_group,
    ) -> ujoin_status;

    /// This process's rank in the group, 0 to size - 1; -1 for NULL.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_group_rank(group: *const ujoin_group) -> i32;

    /// The number of ranks; -1 for NULL.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_group_size(group: *const ujoin_group) -> i32;

    /// Fills a struct (set its size) with what was agreed: backend, ranks of this host, progress; and with this
    /// rank's threads.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_group_get_info(group: *const ujoin_group, out: *mut ujoin_group_info) -> ujoin_status;

    /// Waits until all operations of this rank are complete and every rank has come here, then ends the group.
    /// UJOIN_PENDING: not in this time; call again, or destroy. Later operations are UJOIN_E_STATE.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_group_close(group: *mut ujoin_group, timeout_ms: i64) -> ujoin_status;

    /// Gives up: everything on this group ends with UJOIN_E_ABORTED on every rank, within a second; `reason` (copied,
    /// may be NULL) becomes part of their texts. The group is broken from then on.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_group_abort(group: *mut ujoin_group, reason: *const c_char);

    /// Drops the handle; says goodbye if the group is not closed. What was complete stays complete; a peer's later
    /// operation is UJOIN_E_PEER_LOST. Work in flight and objects made from the group keep it alive.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_group_destroy(group: *mut ujoin_group);

    /// Reduces over all ranks (in rank order) into recv on every rank; bit-identical on all of them. send NULL = in
    /// place. Sums of 16-bit types are accumulated in 32-bit. out_work NULL = returns when done; else returns at once
    /// and \*out_work is in flight. UJOIN_E_MISMATCH: ranks differ in operation, reduction, type or count.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_all_reduce(
        group: *mut ujoin_group,
        send: *const ujoin_const_buffer,
        recv: *const ujoin_buffer,
        reduce: ujoin_reduce,
        options: *const ujoin_op_options,
        out_work: *mut *mut ujoin_work,
    ) -> ujoin_status;

    /// Copies the root's memory into every rank's; on the root it is only read. out_work as in ujoin_all_reduce.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_broadcast(
        group: *mut ujoin_group,
        buffer: *const ujoin_buffer,
        root: i32,
        options: *const ujoin_op_options,
        out_work: *mut *mut ujoin_work,
    ) -> ujoin_status;

    /// Gathers send of every rank, in rank order, into recv (size times its count). send NULL = in place: this rank's
    /// part lies in recv already. out_work as in ujoin_all_reduce.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_all_gather(
        group: *mut ujoin_group,
        send: *const ujoin_const_buffer,
        recv: *const ujoin_buffer,
        options: *const ujoin_op_options,
        out_work: *mut *mut ujoin_work,
    ) -> ujoin_status;

    /// Reduces send (size times recv's count) and leaves part r in recv of rank r. out_work as in ujoin_all_reduce.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_reduce_scatter(
        group: *mut ujoin_group,
        send: *const ujoin_const_buffer,
        recv: *const ujoin_buffer,
        reduce: ujoin_reduce,
        options: *const ujoin_op_options,
        out_work: *mut *mut ujoin_work,
    ) -> ujoin_status;

    /// Runs operations as one: they are complete together. For the rarer kinds, parts of unequal size, many tensors
    /// at once (neighbours of one kind, type, reduction and root become a single operation), and messages that must
    /// not wait for each other. Every rank gives the same operations in the same order; send and recv concern their
    /// two ranks only, and go before the others, all at once. Between two ranks messages come in order. A message is
    /// complete, on both sides, when it has been received: of two ranks that send to each other by calls of their
    /// own, each waits for the other until the deadline. Messages are no part of join contexts. out_work as in
    /// ujoin_all_reduce; the array is read during the call. UJOIN_E_MISMATCH: ranks differ in kind, reduction, type,
    /// count or root; a part or a message has another size than its receiver expects, or its peer is in another
    /// operation (on ranks not concerned, in a later call).
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_submit(
        group: *mut ujoin_group,
        ops: *const ujoin_op,
        count: usize,
        options: *const ujoin_op_options,
        out_work: *mut *mut ujoin_work,
    ) -> ujoin_status;

    /// Returns when every rank has come here. Past its deadline UJOIN_E_TIMEOUT, with the missing ranks in the text
    /// and in ujoin_last_missing().
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_barrier(group: *mut ujoin_group, options: *const ujoin_op_options) -> ujoin_status;

    /// Waits for an operation. UJOIN_PENDING: not in this time. Otherwise its final status, the same on every later
    /// call; an error's text is set on this thread. Work of one group completes in the order of submission.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn ujoin_work_wait(work: *mut ujoin_work, timeout_ms: i64) -> ujoin_status;

    /// UJOIN_PENDING, or the final status. Advances the operation if the group has no progress thread; never waits.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_work_test(work: *mut ujoin_work) -> ujoin_status;

    /// The ranks that contributed to a completed operation: all, unless joined ranks shadowed it; none if it is a
    /// message. Writes at most `capacity` of them, ascending, and returns how many there are; 0 while it is in
    /// flight, and if it failed.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_work_contributors(work: *const ujoin_work, out_ranks: *mut i32, capacity: usize) -> usize;

    /// Gives up an operation in flight; its final status is UJOIN_E_ABORTED on every rank, and its group is broken.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_work_abort(work: *mut ujoin_work);

    /// Drops the handle. An operation in flight goes on: its memory is free when its `release` has run.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_work_destroy(work: *mut ujoin_work);

    /// Memory that the ranks of a host share: aligned to 4 KiB, zeroed, reserved now (UJOIN_E_NO_MEMORY instead of a
    /// bus error later), and gone with its ranks, however they end. Each rank has its own, of its own size; with
    /// one_per_host all see the same bytes and must give the same size (UJOIN_E_MISMATCH). An optimizer whose
    /// parameters and gradients all lie in such memory of its group, on every rank, needs no copies for a fused step
    /// (UJOIN_GRADIENT_SYNC_TO_OWNER) and writes parameters once where they are shared. If it fails on one rank it
    /// fails on all, with that rank's error. UJOIN_E_INVALID: bytes is 0, or more than memory can hold.
    /// UJOIN_E_UNSUPPORTED: a device.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_memory_create(
        group: *mut ujoin_group,
        bytes: usize,
        options: *const ujoin_memory_options,
        out: *mut *mut ujoin_memory,
    ) -> ujoin_status;

    /// The address of the memory in this process. Valid until the handle is destroyed.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_memory_data(memory: *const ujoin_memory) -> *mut c_void;

    /// Its size in bytes, as it was asked for.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_memory_size(memory: *const ujoin_memory) -> usize;

    /// Drops the handle. The pages go when no optimizer and no peer uses them any more.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_memory_destroy(memory: *mut ujoin_memory);

    /// Makes a joinable: something with collectives in each round, which a joined rank must shadow (metrics,
    /// synchronised statistics, a second model). It calls ujoin_joinable_notify before its collectives. Hooks run on
    /// the thread that is in ujoin_ctx_finish. A failing hook ends it on all ranks: UJOIN_E_CALLBACK there,
    /// UJOIN_E_ABORTED on the others, all with hook and rank. What broke the group inside of a hook (a peer's death,
    /// say) keeps its own status.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_joinable_create(
        group: *mut ujoin_group,
        hooks: *const ujoin_hooks,
        out: *mut *mut ujoin_joinable,
    ) -> ujoin_status;

    /// Drops the handle. A context keeps its joinables alive.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_joinable_destroy(joinable: *mut ujoin_joinable);

    /// Makes a context over joinables of one group, in the order in which their hooks run. Arms nothing.
    /// UJOIN_E_INVALID: none, a NULL, different groups or devices, an unknown hook option (the known ones are
    /// listed).
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_ctx_create(
        joinables: *const *mut ujoin_joinable,
        count: usize,
        options: *const ujoin_ctx_options,
        out: *mut *mut ujoin_ctx,
    ) -> ujoin_status;

    /// Begins a pass over the inputs and arms the joinables until ujoin_ctx_finish or ujoin_ctx_abort. One armed
    /// context per group, one per joinable: else UJOIN_E_STATE. Does not wait for the others. Collectives that are
    /// issued in a main hook contribute nothing to a reduction (avg divides by the contributors). On a group with
    /// shadow_collectives a joined rank also takes part in what the program itself calls there between start and
    /// finish, and no hook does: ujoin_all_reduce and reduce_scatter (it adds nothing: avg divides by the
    /// contributors, min and max are over them), all_gather (its part of recv is left as it was;
    /// ujoin_work_contributors has the ranks whose parts are there), barrier. A broadcast whose root has joined is
    /// UJOIN_E_STATE on every rank. Every rank that has not joined issues them in the same order among the uses. A
    /// collective in a main hook counts as the same one that the loop issues, if it is of the same kind, reduction,
    /// type, root and count. The results are not for a joined rank; its memory is not touched. Without
    /// shadow_collectives such a call is UJOIN_E_MISMATCH on every rank once one has joined.
    ///
    /// `@collective` since 0.1
    pub fn ujoin_ctx_start(ctx: *mut ujoin_ctx) -> ujoin_status;

    /// Says that this joinable begins one use (one set of its collectives); ddp and zero say it themselves. Publishes
    /// and returns, in nanoseconds. With out_active, or in throw mode, it waits until every rank has started this
    /// round or joined, and gives the number that started. Without an armed context it does nothing (\*out_active =
    /// size of the group). UJOIN_JOINED: called from a hook on a joined rank, nothing published. UJOIN_E_EXHAUSTED:
    /// throw mode.
    ///
    /// `@collective` since 0.1
    pub fn ujoin_joinable_notify(joinable: *mut ujoin_joinable, out_active: *mut i32) -> ujoin_status;

    /// This rank has no more inputs: works for the others, one main hook per use of the rank that it follows, until
    /// all have joined; then runs the post hooks and disarms. UJOIN_E_EXHAUSTED: throw mode, inputs were uneven.
    /// UJOIN_E_MISMATCH: ranks started contexts of different joinables or options; a joinable was used too often or
    /// too rarely (named, with rank and round; also from ujoin_joinable_notify and collectives); loop and hooks
    /// differ in their collectives. The context can be started again.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_ctx_finish(ctx: *mut ujoin_ctx) -> ujoin_status;

    /// Asks all ranks to leave after the same round (a signal, a time limit, early stopping). Any rank, any number of
    /// times; also from a signal handler, which must be gone before the context is destroyed. Before ujoin_ctx_start
    /// it counts for that pass.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_ctx_stop(ctx: *mut ujoin_ctx) -> ujoin_status;

    /// 1 when the round that has just ended was the last one by an agreed stop, on every rank alike; else 0; -1 on an
    /// error. Ask between rounds; unless it is 0 leave the loop and call ujoin_ctx_finish. A launcher can ask for it
    /// too (pctx_stop). Waits only where a rank is 16 uses behind this one.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn ujoin_ctx_stopped(ctx: *mut ujoin_ctx) -> i32;

    /// The loop's body failed: disarms, and every peer gets UJOIN_E_ABORTED with `reason` (may be NULL). Breaks the
    /// group. Nothing if the context is not armed, so bindings call it on every way out that is not the good one.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_ctx_abort(ctx: *mut ujoin_ctx, reason: *const c_char);

    /// Fills a struct (set its size) with rounds, shadows and times since the last start.
    ///
    /// `@local` since 0.1
    pub fn ujoin_ctx_get_report(ctx: *const ujoin_ctx, out: *mut ujoin_ctx_report) -> ujoin_status;

    /// The rounds that each rank ran before it joined: who joined when. Writes at most `capacity` entries, by rank
    /// (-1: not joined yet), and returns the size of the group. The last joiners are those with the largest number.
    ///
    /// `@local` since 0.1
    pub fn ujoin_ctx_rounds(ctx: *const ujoin_ctx, out_rounds: *mut i64, capacity: usize) -> usize;

    /// Drops the handle; an armed context is aborted first.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_ctx_destroy(ctx: *mut ujoin_ctx);

    /// Makes a reducer for these parameters: verifies count, names, shapes and types over the ranks, then copies the
    /// source rank's values to all. Parameters, gradients and buffers are borrowed until `release`. Buckets of one
    /// type each are filled in the reverse order of the parameters; from the second synchronised iteration on in the
    /// order in which gradients became ready in the first one on the lowest rank that had one (not with find_unused).
    /// UJOIN_E_MISMATCH on every rank: the text names the first difference and the ranks. UJOIN_E_INVALID: nothing to
    /// train, a parameter without gradient memory, a gradient type other than the parameter's, a type that is no
    /// floating-point one.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_ddp_create(
        group: *mut ujoin_group,
        params: *const ujoin_param,
        count: usize,
        options: *const ujoin_ddp_options,
        out: *mut *mut ujoin_ddp,
    ) -> ujoin_status;

    /// The reducer as a participant of a join context. Borrowed: do not destroy it; it lives as long as the reducer.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_ddp_joinable(ddp: *mut ujoin_ddp) -> *mut ujoin_joinable;

    /// Begins an iteration on a batch of so many samples (0 is allowed: with UJOIN_DIVISION_SAMPLES its gradients are
    /// not even read): notifies the join context and copies the buffers of the lowest rank that has not joined to
    /// all. While sync is off (ujoin_ddp_set_sync) it only counts: samples add up until the iteration that
    /// synchronises. Runs buffer hooks. UJOIN_E_STATE: the last iteration is not finished (parameters without
    /// gradient are listed); with UJOIN_GRADIENT_SYNC_TO_OWNER, no optimizer was made with the reducer.
    /// UJOIN_E_EXHAUSTED.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_ddp_forward(ddp: *mut ujoin_ddp, samples: f64) -> ujoin_status;

    /// Gradient `index` is complete; its bucket is reduced when it is full. Any order; different gradients from
    /// several threads at once. Runs comm hooks, one at a time. With params_released_on_ready it also makes the
    /// updates that are due (see zero_create): the call that fills a bucket waits until every rank has reduced the
    /// one before, and runs a rule of the program's. Without effect for an ignored parameter. UJOIN_E_STATE: ready
    /// twice, outside of an iteration, or a parameter that a static graph did not use in its first one. An error in a
    /// hook or an update ends the iteration: no memory is in use any more, and ujoin_ddp_finish, or another call of
    /// this, returns it again.
    ///
    /// `@local` `@blocking` `@anythread` since 0.1
    pub fn ujoin_ddp_ready(ddp: *mut ujoin_ddp, index: usize) -> ujoin_status;

    /// Ends an iteration: waits for the reductions; gradients then hold the divided sum on every rank, also on joined
    /// ones. With find_unused or static_graph a gradient that no rank used since the last synchronised iteration is
    /// left alone, one that others used counts as zeros here. Without sync nothing is reduced. Runs comm and buffer
    /// hooks, and the step of an optimizer that was made with this reducer (ujoin_zero_options.ddp), whose errors it
    /// returns. With UJOIN_GRADIENT_SYNC_TO_OWNER gradients are left as they are, and zero_step comes next.
    /// UJOIN_E_STATE: a gradient is not ready (listed), or no iteration was begun. UJOIN_E_MISMATCH: ranks disagree
    /// on how many iterations they accumulated, or on hooks.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn ujoin_ddp_finish(ddp: *mut ujoin_ddp) -> ujoin_status;

    /// 0: the next iterations accumulate (no reduction, no notice to the join context); 1: they synchronise again.
    /// The same on every rank. What was accumulated when a join context ends is not reduced. Not within an iteration.
    ///
    /// `@local` since 0.1
    pub fn ujoin_ddp_set_sync(ddp: *mut ujoin_ddp, enabled: i32) -> ujoin_status;

    /// Chooses how buckets are reduced; once, before the first iteration (else UJOIN_E_STATE), the same on every
    /// rank; not with UJOIN_GRADIENT_SYNC_TO_OWNER (UJOIN_E_STATE), which has no buckets. The hook's functions run on
    /// the threads in ujoin_ddp_ready, ujoin_ddp_finish and, as shadows, ujoin_ctx_finish: `start` in the order of
    /// the buckets, then `then` bucket by bucket (with params_released_on_ready that of a bucket right behind the
    /// next `start`). The result is what they leave in the bucket: dividing is theirs. With UJOIN_DIVISION_SAMPLES
    /// and means a bucket holds this rank's share, n g / sum(n), and its divisor is 1 (0: no rank has a sample). A
    /// failing hook aborts the group. The hook is owned from this call on.
    ///
    /// `@local` since 0.1
    pub fn ujoin_ddp_set_comm_hook(ddp: *mut ujoin_ddp, hook: *const ujoin_comm_hook) -> ujoin_status;

    /// Replaces the broadcast of buffers: called for each buffer in each synchronised iteration, before or after
    /// forward; work that it passes out is complete when that call returns. Kinds: all-reduce (the average), custom.
    /// Shadowed by joined ranks. Once, before the first iteration. The hook is owned from this call on.
    ///
    /// `@local` since 0.1
    pub fn ujoin_ddp_set_buffer_hook(
        ddp: *mut ujoin_ddp,
        time: ujoin_buffer_time,
        hook: *const ujoin_comm_hook,
    ) -> ujoin_status;

    /// Where gradient `index` lies: with bucket_view in the library's memory, gradients of one type side by side
    /// (zeros at the start, or what `grad` held), the same place as long as the reducer lives; else the caller's own.
    /// NULL: ignored.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_ddp_gradient(ddp: *mut ujoin_ddp, index: usize) -> *mut c_void;

    /// How many ranks used each parameter in the last synchronised iteration (joined ranks do not count; with a
    /// static graph in the first one). Writes at most `capacity` entries and returns the number of parameters.
    /// Without find_unused and static_graph all that are not ignored are taken as used by every active rank.
    ///
    /// `@local` since 0.1
    pub fn ujoin_ddp_used(ddp: *const ujoin_ddp, out_ranks: *mut i32, capacity: usize) -> usize;

    /// Fills a struct (set its size) with counts, divisor and times.
    ///
    /// `@local` since 0.1
    pub fn ujoin_ddp_get_report(ddp: *const ujoin_ddp, out: *mut ujoin_ddp_report) -> ujoin_status;

    /// Drops the handle. The parameters are free when `release` has run.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_ddp_destroy(ddp: *mut ujoin_ddp);

    /// Makes an optimizer whose state is sharded over the group. Parameters and gradients are borrowed until
    /// `release`; each may have any floating-point type. State of 16-bit parameters is f32. Who owns what follows
    /// from sizes and order alone (see ujoin_partition); the ranks check that they agree. UJOIN_E_INVALID: no
    /// parameters, two with one name, an unknown hyper-parameter (the known ones are listed). UJOIN_E_UNSUPPORTED:
    /// UJOIN_PARTITION_ELEMENTS with a rule that needs whole parameters. UJOIN_E_MISMATCH: ranks differ. With
    /// UJOIN_DEBUG=detail each step compares the parameters' values on all ranks before it begins. With options.ddp
    /// the steps are part of the reducer's iterations: ujoin_ddp_finish updates the parameters of each bucket when it
    /// is reduced, while later ones still are, and shares them while the next ones are updated. Where the reducer has
    /// params_released_on_ready, that begins in ujoin_ddp_ready: as soon as the reduction of a bucket is in flight,
    /// the one before it is waited for, updated and shared, while the next gradients are computed; the last one is
    /// left to finish. With find_unused, and in the first iteration of a static graph, all are, as which parameters
    /// are used is not known before. Between the first update and finish, zero_ functions that change, save, load or
    /// gather anything are UJOIN_E_STATE. Every synchronised iteration makes one step, the first included, with the
    /// bits of a finish and a zero_step after it; also for a rank that has joined, where the context has the reducer
    /// (the optimizer may be in it too). Who owns what does not depend on buckets. Without that option parameters are
    /// not written before finish. Each one that is trained must have the name, the number of elements and the
    /// gradient of one of the reducer's (UJOIN_E_INVALID, also later from zero_set_gradient, zero_set_frozen and
    /// zero_add_param_group); the group is the reducer's. One optimizer for a reducer, made and destroyed between
    /// iterations (UJOIN_E_STATE). What must see all gradients before the first update is not possible: zero_step and
    /// zero_clip_grad_norm, hence closures, clipping, loss scales and skipped steps, are UJOIN_E_STATE. An error in
    /// an update or in what follows it breaks the optimizer as one of zero_step does, and is that of
    /// ujoin_ddp_finish, or of the ujoin_ddp_ready that met it; a rule of the program's that fails is told by finish,
    /// on every rank. Destroyed, it leaves a reducer that only reduces. With options.ddp of
    /// UJOIN_GRADIENT_SYNC_TO_OWNER the steps are fused: ujoin_ddp_finish ends an iteration without reducing, and
    /// zero_step, once after it, sums each gradient at the rank that owns the element, divides, updates and shares,
    /// piece by piece in the cache, with the bits of a reducer that reduces for all and a zero_step after it.
    /// Gradients stay each rank's own, with this exception: where all must be seen before the first update, or a
    /// whole one at once (a scaler, max_norm, skip_nonfinite, LAMB, rules of the program's own), the average is left
    /// in the owner's gradients. What is said above of names, gradients, groups and of one optimizer for a reducer
    /// holds here too; of the shadows, each object makes its own, so a join context has both or none.
    /// zero_clip_grad_norm is UJOIN_E_STATE: give max_norm to zero_step. So is zero_step where no iteration with sync
    /// has been finished since the last step.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn zero_create(
        group: *mut ujoin_group,
        optimizer: ujoin_optimizer,
        params: *const ujoin_param,
        count: usize,
        options: *const ujoin_zero_options,
        out: *mut *mut ujoin_zero,
    ) -> ujoin_status;

    /// The optimizer as a participant of a join context. Borrowed: do not destroy it; it lives as long as the
    /// optimizer.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn zero_joinable(zero: *mut ujoin_zero) -> *mut ujoin_joinable;

    /// One step: runs the closure, notifies the join context, each rank updates its shard, all get the new
    /// parameters. Parameters that are frozen or without gradient are skipped and keep their step count. Only the
    /// owner's gradients are read, and none is written (of a fused step see zero_create). UJOIN_SKIPPED: a gradient
    /// is not finite, and no parameter or state was changed, on every rank (a scaler was lowered). UJOIN_E_MISMATCH:
    /// ranks differ in hyper-parameters or options. UJOIN_E_CALLBACK: the program's rule failed. A joined rank adapts
    /// the scaler that it gave to its last step. A failure in the middle makes the object broken: step and save
    /// refuse (UJOIN_E_STATE) until parameters and state are loaded anew.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn zero_step(zero: *mut ujoin_zero, options: *const ujoin_step_options) -> ujoin_status;

    /// Adds parameters with hyper-parameters of their own (absent = as given to zero_create); earlier assignments do
    /// not move. Indices go on from the last. A group may be empty.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn zero_add_param_group(
        zero: *mut ujoin_zero,
        params: *const ujoin_param,
        count: usize,
        hyper: *const ujoin_hyper,
        hyper_count: usize,
    ) -> ujoin_status;

    /// The number of param groups.
    ///
    /// `@local` since 0.1
    pub fn zero_group_count(zero: *const ujoin_zero) -> usize;

    /// The name of hyper-parameter `index` of this rule; NULL past the last. Lives with the handle.
    ///
    /// `@local` since 0.1
    pub fn zero_hyper_name(zero: *const ujoin_zero, index: usize) -> *const c_char;

    /// Changes a hyper-parameter of a param group, or of all (group -1), from the next step on. The same on every
    /// rank: the step compares. UJOIN_E_INVALID lists the known names.
    ///
    /// `@local` since 0.1
    pub fn zero_set_hyper(zero: *mut ujoin_zero, group: i32, name: *const c_char, value: f64) -> ujoin_status;

    /// Reads a hyper-parameter of a param group.
    ///
    /// `@local` since 0.1
    pub fn zero_get_hyper(
        zero: *const ujoin_zero,
        group: i32,
        name: *const c_char,
        out_value: *mut f64,
    ) -> ujoin_status;

    /// Where parameter `index` lies. With bucket_view that is the library's memory from zero_create
    /// (zero_add_param_group) on, with the same value: a rank's parameters lie end to end there and are sent as one
    /// range. A frozen parameter leaves that memory for the program's own, with its value, and comes back when it is
    /// trained again. The library's memory ends with the optimizer: take the values before. Without bucket_view it is
    /// always the program's own. NULL: no such parameter.
    ///
    /// `@local` since 0.1
    pub fn zero_param_data(zero: *mut ujoin_zero, index: usize) -> *mut c_void;

    /// Where the gradient of parameter `index` lies from now on; NULL: it has none, and the parameter is skipped.
    ///
    /// `@local` since 0.1
    pub fn zero_set_gradient(zero: *mut ujoin_zero, index: usize, grad: *mut c_void) -> ujoin_status;

    /// Freezes a parameter (1) or trains it again (0) from the next step on; its state is kept. The same on every
    /// rank: the step compares. With bucket_view the parameter moves: see zero_param_data.
    ///
    /// `@local` since 0.1
    pub fn zero_set_frozen(zero: *mut ujoin_zero, index: usize, frozen: i32) -> ujoin_status;

    /// Scales all gradients so that their global norm is at most max_norm; out_norm (may be NULL) is the norm before.
    /// norm_type as in ujoin_step_options. The norm counts each parameter once, at its owner; frozen ones do not
    /// count. UJOIN_SKIPPED: a gradient is not finite; nothing was changed, on every rank. Not for use in an armed
    /// join context: there, give max_norm to zero_step.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn zero_clip_grad_norm(
        zero: *mut ujoin_zero,
        max_norm: f64,
        norm_type: f64,
        out_norm: *mut f64,
    ) -> ujoin_status;

    /// Sets the gradients of all parameters to zero, not only those of the shard.
    ///
    /// `@local` since 0.1
    pub fn zero_clear_gradients(zero: *mut ujoin_zero) -> ujoin_status;

    /// Brings all state together on rank `to`, where zero_state_dict then gives it until the next step or load. Every
    /// other rank sends its own shard, once and in chunks, and needs no memory for it; rank `to` needs memory for the
    /// whole state, of which zero_state_dict makes no second copy. It ends in a whole list or in an error, on every
    /// rank: UJOIN_E_TIMEOUT names the ranks that have not come, or stand still, for consolidate_timeout_ms. The
    /// optimizer stays as it is.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn zero_consolidate_state_dict(zero: *mut ujoin_zero, to: i32) -> ujoin_status;

    /// The consolidated state as a list of its own, which stays as it is: tensors by parameter and state name, step
    /// counts and hyper-parameters as numbers. UJOIN_E_STATE: nothing was consolidated to this rank, or a step, a
    /// load or a new param group has come after it. Never a part of the state.
    ///
    /// `@local` since 0.1
    pub fn zero_state_dict(zero: *mut ujoin_zero, out: *mut *mut ujoin_state) -> ujoin_status;

    /// Takes state and hyper-parameters from a list, which is only read: each rank keeps its shard, by parameter
    /// name, whatever the number of ranks that saved it. UJOIN_E_MISMATCH: a name, shape, type or rule does not fit;
    /// nothing was changed.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn zero_load_state_dict(zero: *mut ujoin_zero, state: *const ujoin_state) -> ujoin_status;

    /// Saves for any number of ranks. Until the index is renamed, after every file is on the disk, what was there
    /// before stays whole. UJOIN_E_SYSTEM on every rank: the text names rank, file and reason. The path is seen by
    /// all ranks. In a directory index.json names all other files; those of earlier saves are removed last. All are
    /// safetensors: state/\<key>/\<parameter> and program/\<kind>/\<key> in that of a rank (a piece of a parameter
    /// has one dimension; the index has the pieces), the parameters' names in that of the parameters.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn zero_save(zero: *mut ujoin_zero, path: *const c_char, options: *const ujoin_save_options) -> ujoin_status;

    /// Loads what zero_save wrote, by any number of ranks and with either partition; mends a broken object if state
    /// and parameters are loaded. `out` (may be NULL) receives the own items of the rank of this number, or of rank 0
    /// if so many did not save. Every length and name is checked before use: UJOIN_E_MISMATCH says what is wrong with
    /// which file, and nothing was changed.
    ///
    /// `@collective` `@blocking` since 0.1
    pub fn zero_load(
        zero: *mut ujoin_zero,
        path: *const c_char,
        options: *const ujoin_save_options,
        out: *mut *mut ujoin_state,
    ) -> ujoin_status;

    /// The number of pieces of the partition, over all ranks.
    ///
    /// `@local` since 0.1
    pub fn zero_shard_count(zero: *const ujoin_zero) -> usize;

    /// Fills a struct (set its size) with one piece: which part of which parameter belongs to which rank.
    ///
    /// `@local` since 0.1
    pub fn zero_get_shard(zero: *const ujoin_zero, index: usize, out: *mut ujoin_shard) -> ujoin_status;

    /// Fills a struct (set its size) with the bytes that this rank holds.
    ///
    /// `@local` since 0.1
    pub fn zero_get_memory(zero: *const ujoin_zero, out: *mut ujoin_zero_memory) -> ujoin_status;

    /// Drops the handle. Parameters and gradients are free when `release` has run.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn zero_destroy(zero: *mut ujoin_zero);

    /// Makes an empty list: for the program's own items of zero_save, or to bring another library's state into zero.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_state_create(out: *mut *mut ujoin_state) -> ujoin_status;

    /// Adds an item, or replaces the one with the same key. Names, shape and data are copied.
    ///
    /// `@local` since 0.1
    pub fn ujoin_state_set(state: *mut ujoin_state, item: *const ujoin_item) -> ujoin_status;

    /// The number of items.
    ///
    /// `@local` since 0.1
    pub fn ujoin_state_count(state: *const ujoin_state) -> usize;

    /// Fills a struct (set its size) with item `index`, in order of owner, group, parameter and key. Its pointers
    /// live until the list is changed or destroyed.
    ///
    /// `@local` since 0.1
    pub fn ujoin_state_get(state: *const ujoin_state, index: usize, out: *mut ujoin_item) -> ujoin_status;

    /// Fills a struct (set its size) with an item of the program's own by its name. UJOIN_E_INVALID: there is none.
    ///
    /// `@local` since 0.1
    pub fn ujoin_state_find(state: *const ujoin_state, key: *const c_char, out: *mut ujoin_item) -> ujoin_status;

    /// Drops the handle.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn ujoin_state_destroy(state: *mut ujoin_state);

    /// The value of a schedule at a step (from 0): a pure function, to be given to zero_set_hyper. UJOIN_E_INVALID
    /// names the field that makes no sense.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn zero_schedule(schedule: *const ujoin_schedule_options, step: i64, out_value: *mut f64) -> ujoin_status;

    /// Makes a dynamic loss scale for one optimizer, the same on every rank. Multiply the loss by zero_scaler_scale
    /// and give the scaler to zero_step. NULL = defaults. Steps keep it alive.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn zero_scaler_create(options: *const ujoin_scaler_options, out: *mut *mut ujoin_scaler) -> ujoin_status;

    /// The scale of the next loss, the same on every rank after each step; 0 for NULL.
    ///
    /// `@local` since 0.1
    pub fn zero_scaler_scale(scaler: *const ujoin_scaler) -> f64;

    /// Fills a struct (set its size) with the present state, to be saved; zero_scaler_create takes it back.
    ///
    /// `@local` since 0.1
    pub fn zero_scaler_get(scaler: *const ujoin_scaler, out: *mut ujoin_scaler_options) -> ujoin_status;

    /// Drops the handle.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn zero_scaler_destroy(scaler: *mut ujoin_scaler);

    /// Reads "3" (all ranks) or "0:1,12:3" (rank:value) into one value per rank; ranks not named get UJOIN_STD_NONE,
    /// ranks past nprocs are dropped. UJOIN_E_INVALID: anything else, with the place.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_parse_std(text: *const c_char, out_values: *mut ujoin_std, nprocs: usize) -> ujoin_status;

    /// Describes a job; starts nothing. Everything is copied; the callback is owned from this call on, also if it
    /// fails. UJOIN_E_INVALID: both program and function, nprocs below 1, unknown values. A job of neither needs a
    /// program for every worker (pctx_set_worker) before pctx_start.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_create(spec: *const ujoin_pctx_spec, out: *mut *mut ujoin_pctx) -> ujoin_status;

    /// Sets a variable for one worker (rank -1: for all), over what it inherits; value NULL removes it. Before
    /// pctx_start.
    ///
    /// `@local` since 0.1
    pub fn pctx_set_env(pctx: *mut ujoin_pctx, rank: i32, name: *const c_char, value: *const c_char) -> ujoin_status;

    /// Gives one worker (rank -1: all) a program, arguments, directory, stdin, processors, limits, descriptors or
    /// redirections of its own. Copied (descriptors by number). Before pctx_start. UJOIN_E_INVALID: two descriptors
    /// for one number, a number below 3, or a value that is not known.
    ///
    /// `@local` since 0.1
    pub fn pctx_set_worker(pctx: *mut ujoin_pctx, rank: i32, worker: *const ujoin_worker) -> ujoin_status;

    /// Starts all workers, or none. UJOIN_E_SYSTEM: which one could not be executed and why (exact errno); those
    /// started before it are gone; or why no cgroup can be made (UJOIN_CONTAINMENT_CGROUP). UJOIN_E_STATE: started
    /// before; or this is a worker that has not passed pctx_worker_main. UJOIN_E_INVALID: workers without a program
    /// are named, and descriptors that are not open (ujoin_worker.fds): nothing has been started, and the job can be
    /// mended and started. Where a log directory is in use, workers find TORCHELASTIC_ERROR_FILE set. Installs no
    /// signal handler and waits for no other child of this process.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn pctx_start(pctx: *mut ujoin_pctx) -> ujoin_status;

    /// Waits until all workers have ended well (UJOIN_OK) or one has failed and the others have been ended because of
    /// it (UJOIN_E_CHILD_FAILED). UJOIN_PENDING: neither yet. All output is delivered before it returns a final
    /// status, and a later call returns the same. Runs the output callback.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn pctx_wait(pctx: *mut ujoin_pctx, timeout_ms: i64) -> ujoin_status;

    /// 1 if a worker has failed by itself, else 0; out of the last pctx_wait or pctx_close.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_failed(pctx: *const ujoin_pctx) -> i32;

    /// The worker that failed first (monotonic time, never a victim); -1 if none did.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_first_failure(pctx: *const ujoin_pctx) -> i32;

    /// Fills a struct (set its size) with what is known of a worker, at any time. Its pointers live until the handle
    /// is destroyed, once the worker has ended; before that, until the next call on the handle.
    ///
    /// `@local` since 0.1
    pub fn pctx_get_result(pctx: *mut ujoin_pctx, rank: i32, out: *mut ujoin_worker_result) -> ujoin_status;

    /// Tells what a worker does now: fills a struct (set its size) from memory that it shares with its groups, at any
    /// time, also while another thread waits. Asks the worker nothing, so it works for one that hangs; one that has
    /// died keeps what it was doing. Groups are found as pctx_stop is. The pointers live with the handle, until the
    /// next call for that rank.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_health(pctx: *mut ujoin_pctx, rank: i32, out: *mut ujoin_worker_health) -> ujoin_status;

    /// The failure for a person, in the layout of PyTorch's launcher: the other failures, then the first cause with
    /// time, host, rank, exit code, error file, and its traceback, message or last lines of stderr. "" if nothing
    /// failed. Lives with the handle, until the next call of this function.
    ///
    /// `@local` since 0.1
    pub fn pctx_report(pctx: *mut ujoin_pctx) -> *const c_char;

    /// All results as one JSON object: name, run_id, first_failure (a rank or null) and workers, a list by rank with
    /// the fields of ujoin_worker_result (times in seconds since 1970, signal by name, no values). Lives like
    /// pctx_report.
    ///
    /// `@local` since 0.1
    pub fn pctx_report_json(pctx: *mut ujoin_pctx) -> *const c_char;

    /// Sends a signal to one worker's process group (rank -1: to all).
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_signal(pctx: *mut ujoin_pctx, rank: i32, signal: i32) -> ujoin_status;

    /// Asks the workers for an agreed stop: their join contexts, also those that start later, all leave after the
    /// same round (ujoin_ctx_stopped is 1 on every rank), and the workers have the time to save. Returns at once and
    /// ends nobody: workers without a join context notice nothing. The workers find the wish by the variable
    /// UJOIN_JOB, through /proc: not those in another process namespace or of another user. UJOIN_E_STATE: no worker
    /// runs.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_stop(pctx: *mut ujoin_pctx) -> ujoin_status;

    /// Ends all workers: `signal` (0 = SIGTERM) to their groups, SIGKILL to what is left after grace_ms (0 = at
    /// once), then reads the rest of the output. Bounded by the grace, the drain and a second. May be repeated. Runs
    /// the output callback. UJOIN_PENDING: the console does not take the output. UJOIN_E_TIMEOUT: a worker cannot be
    /// killed.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn pctx_close(pctx: *mut ujoin_pctx, signal: i32, grace_ms: i64) -> ujoin_status;

    /// Kills all workers now and wakes whoever waits (UJOIN_E_ABORTED). Does not wait for their end.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_abort(pctx: *mut ujoin_pctx);

    /// Drops the handle. Workers that still run get SIGTERM, and SIGKILL after the job's grace, in the background.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_destroy(pctx: *mut ujoin_pctx);

    /// Gives a function a name, in the launcher and in its workers alike, before pctx_worker_main. Process-wide.
    /// UJOIN_E_INVALID: the name is taken, empty or has a ':'.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_register(
        name: *const c_char,
        r#fn: ujoin_worker_fn,
        user_data: *mut c_void,
        destroy: ujoin_destroy_fn,
    ) -> ujoin_status;

    /// The first thing in main of a program that starts functions of its own. UJOIN_OK: this is no worker, go on.
    /// UJOIN_DONE: it was one, the function has run: return \*out_exit_code from main. A negative status: it is one,
    /// but its function is not known, say; \*out_exit_code is 1. So: `if (pctx_worker_main(&code)) return code;`.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn pctx_worker_main(out_exit_code: *mut i32) -> ujoin_status;

    /// In a function worker: what it returns to the launcher (copied, any size). UJOIN_E_STATE elsewhere, or the
    /// second time.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn pctx_return(data: *const c_void, size: usize) -> ujoin_status;

    /// Runs a function and records its failure: a negative status with its text, or a C++ exception (type and text),
    /// which ends here with UJOIN_E_CALLBACK. If it returns UJOIN_E_CHILD_FAILED from pctx_wait, the record of the
    /// worker that failed first becomes this process's own, with its exit code. In the file that
    /// TORCHELASTIC_ERROR_FILE names, if any.
    ///
    /// `@local` `@blocking` since 0.1
    pub fn pctx_record(r#fn: ujoin_call_fn, user_data: *mut c_void) -> ujoin_status;

    /// Writes error.json for this worker, atomically: message, traceback (may be NULL), error code (0 = none). Does
    /// nothing where TORCHELASTIC_ERROR_FILE is not set. A later record replaces an earlier one. A file that cannot
    /// be written is a warning (ujoin_set_log_sink), not an error: the failure that is recorded counts.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_record_error(message: *const c_char, traceback: *const c_char, code: i32) -> ujoin_status;

    /// From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT leave a record with signal, address and backtrace in
    /// error.json, then go to the handler that was there before. Once is enough. For C and C++ programs; runtimes
    /// that own these signals (Go, the JVM) must not call it. Process-wide.
    ///
    /// `@local` `@anythread` since 0.1
    pub fn pctx_record_crashes() -> ujoin_status;
}
