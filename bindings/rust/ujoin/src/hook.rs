// SPDX-License-Identifier: Apache-2.0
//! How a reducer's buckets and buffers are reduced: ways that the library has, and the program's own.
use crate::callback;
use crate::collective::{Reduce, Work};
use crate::error::check;
use crate::handle::Handle;
use crate::text::{maybe_rank, rank_to_c};
use crate::{DType, Element, Error, ErrorKind, Group, Result};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex};
use ujoin_sys as sys;

/// What a part of a hook gives: work in flight, or nothing if the bucket is reduced; `?` takes any error.
pub type HookWork = Result<Option<BucketWork>, Box<dyn std::error::Error + Send + Sync>>;

/// The program's own way to reduce buckets or buffers: collectives on [`Bucket::group`], the same ones on every rank, also
/// where the bucket is a shadow. It runs on the threads that are in `ready`, in [`Ddp::finish`](crate::Ddp::finish) and, on
/// a rank that has joined, in [`Join::finish`](crate::Join::finish), never twice at once. It works on the bucket and may
/// not look at [`Params`](crate::Params). An error or a panic gives the group up.
pub trait BucketHook: Send {
    /// Reduces the bucket now, or passes out work in flight. The result is what is left in the bucket, divided.
    fn start(&mut self, bucket: Bucket<'_>) -> HookWork;

    /// When that work is complete. May pass out more, and is called again.
    fn then(&mut self, bucket: Bucket<'_>) -> HookWork {
        let _ = bucket;
        Ok(None)
    }
}

/// A bucket of gradients, or a buffer, in a [`BucketHook`].
pub struct Bucket<'b> {
    raw: &'b sys::ujoin_bucket,
    group: Group,
    finished: Option<Box<dyn Any + Send>>,
}

impl Bucket<'_> {
    /// For the hook's collectives, while it runs.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        DType::of(self.raw.buffer.dtype)
    }

    /// This rank's undivided gradients, end to end; the hook leaves the result here.
    /// [`Invalid`](crate::ErrorKind::Invalid): they are of another type.
    pub fn data<E: Element>(&mut self) -> Result<&mut [E]> {
        check_type::<E>(self.raw.buffer.dtype, "the bucket")?;
        // SAFETY: the library lends so many elements of this type for the call; `start_...` end the bucket.
        Ok(unsafe { elements(self.raw.buffer.data, self.raw.buffer.count) })
    }

    /// The indices of the parameters in it; empty for a buffer.
    pub fn params(&self) -> &[usize] {
        // SAFETY: so many lie there while the hook runs.
        unsafe { array(self.raw.params, self.raw.param_count) }
    }

    /// Where each of them begins, in elements.
    pub fn offsets(&self) -> &[usize] {
        // SAFETY: so many lie there while the hook runs.
        unsafe { array(self.raw.offsets, self.raw.param_count) }
    }

    /// What the sum over the ranks is to be divided by. With [`Division::Samples`](crate::Division::Samples) and means the
    /// bucket holds this rank's share, n g / sum(n), and this is 1, or 0 if no rank has a sample.
    pub fn divisor(&self) -> f64 {
        self.raw.divisor
    }

    /// Synchronised iterations before this one, those that this rank shadowed too.
    pub fn iteration(&self) -> u64 {
        self.raw.iteration as u64
    }

    /// Of the bucket in the order of launch, or of the buffer; from 0.
    pub fn index(&self) -> usize {
        maybe_rank(self.raw.index).unwrap_or_default()
    }

    /// Whether it is the last one of its iteration.
    pub fn is_last(&self) -> bool {
        self.raw.is_last != 0
    }

    /// Whether this rank has joined: its contribution is zero.
    pub fn is_shadow(&self) -> bool {
        self.raw.is_shadow != 0
    }

    /// The lowest rank that has not joined, whose buffers all get where there is no hook.
    pub fn source_rank(&self) -> usize {
        maybe_rank(self.raw.source_rank).unwrap_or_default()
    }

    /// In [`BucketHook::then`]: the result of the [`Work`] that was passed out; `None` if it worked on the bucket itself,
    /// or on elements of another type.
    pub fn take_result<E: Element>(&mut self) -> Option<Vec<E>> {
        // SAFETY: the library calls `then` when the work is complete, and it is ours alone.
        unsafe { Work::<E>::result_of(self.finished.take()?) }
    }

    /// Begins to reduce the bucket in place.
    pub fn start_all_reduce(self, reduce: Reduce) -> HookWork {
        let (buffer, mut out) = (&raw const self.raw.buffer, ptr::null_mut());
        // SAFETY: the library keeps the bucket until the work is done, and this call has taken it from the hook.
        check(unsafe {
            sys::ujoin_all_reduce(self.raw.group, ptr::null(), buffer, reduce as i32, ptr::null(), &mut out)
        })?;
        Ok(Some(BucketWork { handle: Handle::adopt(out), buffers: None }))
    }

    /// Begins to copy the root's bucket over the others'.
    pub fn start_broadcast(self, root: usize) -> HookWork {
        let (buffer, mut out) = (&raw const self.raw.buffer, ptr::null_mut());
        // SAFETY: as in start_all_reduce.
        check(unsafe { sys::ujoin_broadcast(self.raw.group, buffer, rank_to_c(root), ptr::null(), &mut out) })?;
        Ok(Some(BucketWork { handle: Handle::adopt(out), buffers: None }))
    }
}

/// # Safety
/// NULL, or so many elements that live for `'a` and that nobody else uses.
pub(crate) unsafe fn elements<'a, E>(data: *mut c_void, count: usize) -> &'a mut [E] {
    if data.is_null() || count == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts_mut(data.cast(), count) }
}

/// # Safety
/// NULL, or so many elements that live for `'a`.
pub(crate) unsafe fn array<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if data.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(data, count) }
}

pub(crate) fn check_type<E: Element>(dtype: i32, what: &str) -> Result<()> {
    if dtype == E::DTYPE.value() {
        return Ok(());
    }
    let text = format!("{what} is of type {:?}, not {:?}", DType::of(dtype), E::DTYPE);
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Work that a hook passes out: of the bucket itself, or any [`Work`] on its group.
pub struct BucketWork {
    handle: Handle<sys::ujoin_work>,
    buffers: Option<Box<dyn Any + Send>>,
}

impl<E: Element> From<Work<E>> for BucketWork {
    /// The buffer with the result comes back by [`Bucket::take_result`].
    fn from(work: Work<E>) -> Self {
        let (handle, buffers) = work.into_parts();
        Self { handle, buffers: Some(buffers) }
    }
}

/// The program's hook, and the buffers of works that it has passed out, by bucket.
struct Hooked {
    hook: Box<dyn BucketHook>,
    passed_out: HashMap<i32, Box<dyn Any + Send>>,
}

type Which = fn(&mut dyn BucketHook, Bucket) -> HookWork;

/// # Safety
/// Called by the library with what `CommHook::with_c` registered.
unsafe fn run(
    user_data: *mut c_void,
    bucket: *const sys::ujoin_bucket,
    out: *mut *mut sys::ujoin_work,
    which: Which,
) -> i32 {
    // SAFETY: the caller's promise.
    let (hooked, raw) = unsafe { (&*user_data.cast_const().cast::<Mutex<Hooked>>(), &*bucket) };
    callback::run(|| {
        let mut hooked = hooked.try_lock().map_err(|_| "the hook of a reducer is running or has panicked")?;
        let finished = hooked.passed_out.remove(&raw.index);
        // SAFETY: the bucket, and with it the group, ends with the hook.
        let group = Group(unsafe { Handle::borrow(raw.group) });
        if let Some(work) = which(&mut *hooked.hook, Bucket { raw, group, finished })? {
            let handle = work.handle.into_raw()?;
            hooked.passed_out.extend(work.buffers.map(|buffers| (raw.index, buffers)));
            // SAFETY: the library takes the handle from here.
            unsafe { *out = handle };
        }
        Ok(())
    })
}

unsafe extern "C" fn start(data: *mut c_void, bucket: *const sys::ujoin_bucket, out: *mut *mut sys::ujoin_work) -> i32 {
    // SAFETY: registered together.
    unsafe { run(data, bucket, out, |hook, bucket| hook.start(bucket)) }
}

unsafe extern "C" fn then(data: *mut c_void, bucket: *const sys::ujoin_bucket, out: *mut *mut sys::ujoin_work) -> i32 {
    // SAFETY: registered together.
    unsafe { run(data, bucket, out, |hook, bucket| hook.then(bucket)) }
}

/// When a buffer hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferTime {
    /// At the end of an iteration.
    AfterForward = sys::UJOIN_BUFFER_AFTER_FORWARD as isize,
    /// At its begin.
    BeforeForward = sys::UJOIN_BUFFER_BEFORE_FORWARD as isize,
}

/// How buckets, or buffers, are reduced.
pub struct CommHook {
    hook: Option<Box<dyn BucketHook>>,
    options: sys::ujoin_comm_hook,
}

impl CommHook {
    fn of(kind: i32) -> Self {
        Self { hook: None, options: sys::ujoin_comm_hook { kind, ..Default::default() } }
    }

    /// The gradients as they are; of buffers the average.
    pub fn all_reduce() -> Self {
        Self::of(sys::UJOIN_COMM_HOOK_ALL_REDUCE)
    }

    /// `f32` and `f64` as half-precision numbers on the way; what is beyond 65504 becomes infinite.
    pub fn f16() -> Self {
        Self::of(sys::UJOIN_COMM_HOOK_F16)
    }

    /// `f32` and `f64` as bfloat16 on the way.
    pub fn bf16() -> Self {
        Self::of(sys::UJOIN_COMM_HOOK_BF16)
    }

    /// Matrices as factors of this rank, with error feedback (PowerSGD), after `start_iteration` plain ones (`None`: 1,000).
    pub fn low_rank(rank: usize, start_iteration: Option<u64>) -> Self {
        let mut hook = Self::of(sys::UJOIN_COMM_HOOK_LOW_RANK);
        hook.options.rank = rank_to_c(rank);
        hook.options.start_iteration = match start_iteration {
            None => 0,
            Some(0) => -1,
            Some(first) => i64::try_from(first).unwrap_or(i64::MAX),
        };
        hook
    }

    /// The program's own.
    pub fn custom(hook: impl BucketHook + 'static) -> Self {
        Self { hook: Some(Box::new(hook)), ..Self::of(sys::UJOIN_COMM_HOOK_CUSTOM) }
    }

    /// The program's own as a closure; see [`BucketHook::start`].
    pub fn closure(start: impl FnMut(Bucket<'_>) -> HookWork + Send + 'static) -> Self {
        struct Closure<F>(F);
        impl<F: FnMut(Bucket<'_>) -> HookWork + Send> BucketHook for Closure<F> {
            fn start(&mut self, bucket: Bucket<'_>) -> HookWork {
                self.0(bucket)
            }
        }
        Self::custom(Closure(start))
    }

    /// Gives it to a call that owns it from then on.
    pub(crate) fn with_c(mut self, call: impl FnOnce(*const sys::ujoin_comm_hook) -> i32) -> Result<()> {
        if let Some(hook) = self.hook {
            let hooked = Arc::new(Mutex::new(Hooked { hook, passed_out: HashMap::new() }));
            self.options.start = Some(start);
            self.options.then = Some(then);
            self.options.user_data = callback::share(&hooked);
            self.options.destroy = Some(callback::drop_arc::<Mutex<Hooked>>);
        }
        check(call(&self.options)).map(|_| ())
    }
}
