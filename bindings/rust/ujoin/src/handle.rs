// SPDX-License-Identifier: Apache-2.0
//! What all handles have in common: one call at a time, destroyed with their last owner.
use crate::text::to_c;
use crate::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// A type of handle of the C library.
pub(crate) trait Raw: Sized {
    const NAME: &'static str;
    unsafe fn destroy(raw: *mut Self);
    /// Gives up; allowed from any thread, also while another is inside a call.
    unsafe fn abort(raw: *mut Self, reason: &CStr);
}

/// A handle that may have several owners: the object itself, and what outlives it for a while.
pub(crate) struct Shared<T: Raw> {
    raw: NonNull<T>,
    busy: AtomicBool,
    /// The library's own, for the time of a callback: not to be destroyed.
    borrowed: bool,
}

// SAFETY: the library allows any thread, one call at a time; `enter` sees to that. What `raw` is used for without it is
// documented as free of that limit.
unsafe impl<T: Raw> Send for Shared<T> {}
unsafe impl<T: Raw> Sync for Shared<T> {}

impl<T: Raw> Shared<T> {
    /// Begins a call. Another one on the same handle, on another thread or from inside of a callback, is an error.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_, T>> {
        if self.busy.swap(true, Ordering::Acquire) {
            Err(busy(T::NAME))
        } else {
            Ok(Entered { of: self })
        }
    }

    /// For calls that are documented as free of the limit.
    pub(crate) fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

#[cold]
fn busy(name: &str) -> Error {
    let text = format!("the {name} is inside another call, on another thread or in a callback; one call at a time");
    Error::new(ErrorKind::State, text)
}

impl<T: Raw> Drop for Shared<T> {
    fn drop(&mut self) {
        if !self.borrowed {
            // SAFETY: nobody else has the handle any more.
            unsafe { T::destroy(self.raw()) }
        }
    }
}

/// A handle of any type, for calls on something that belongs to it.
pub(crate) trait Entry: Send + Sync {
    fn call(&self, call: &mut dyn FnMut() -> i32) -> Result<i32>;
}

impl<T: Raw> Entry for Shared<T> {
    fn call(&self, call: &mut dyn FnMut() -> i32) -> Result<i32> {
        let _entered = self.enter()?;
        Ok(call())
    }
}

/// A call in progress.
pub(crate) struct Entered<'a, T: Raw> {
    of: &'a Shared<T>,
}

impl<T: Raw> Entered<'_, T> {
    pub(crate) fn raw(&self) -> *mut T {
        self.of.raw()
    }
}

impl<T: Raw> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.of.busy.store(false, Ordering::Release);
    }
}

/// An owner of a handle, in one thread at a time: `Send`, not `Sync`.
pub(crate) struct Handle<T: Raw> {
    shared: Arc<Shared<T>>,
    not_sync: PhantomData<Cell<()>>,
}

impl<T: Raw> Handle<T> {
    /// Takes what a successful call of the library gave.
    pub(crate) fn adopt(raw: *mut T) -> Self {
        let raw = NonNull::new(raw).expect("the library gives a handle with every success");
        Self::of(Arc::new(Shared { raw, busy: AtomicBool::new(false), borrowed: false }))
    }

    /// A handle that the library lends to a callback.
    ///
    /// # Safety
    /// It is dropped before the callback returns; `weak` sees to it that nothing keeps it longer.
    pub(crate) unsafe fn borrow(raw: *mut T) -> Self {
        let raw = NonNull::new(raw).expect("the library gives callbacks what they need");
        Self::of(Arc::new(Shared { raw, busy: AtomicBool::new(false), borrowed: true }))
    }

    /// For what may outlive this owner; of a borrowed handle nothing may.
    pub(crate) fn weak(&self) -> Weak<Shared<T>> {
        if self.shared.borrowed {
            Weak::new()
        } else {
            Arc::downgrade(&self.shared)
        }
    }

    /// Gives the handle away; an error while another thread is using it.
    pub(crate) fn into_raw(self) -> Result<*mut T> {
        let shared = Arc::into_inner(self.shared).ok_or_else(|| busy(T::NAME))?;
        Ok(std::mem::ManuallyDrop::new(shared).raw())
    }

    pub(crate) fn of(shared: Arc<Shared<T>>) -> Self {
        Self { shared, not_sync: PhantomData }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }

    pub(crate) fn abort(&self, reason: &str) {
        abort(&self.shared, reason);
    }

    pub(crate) fn aborter(&self) -> Aborter
    where
        T: 'static,
    {
        let weak: Weak<dyn Abort + Send + Sync> = self.weak() as _;
        Aborter(weak)
    }
}

impl<T: Raw> Deref for Handle<T> {
    type Target = Shared<T>;
    #[inline]
    fn deref(&self) -> &Shared<T> {
        &self.shared
    }
}

fn abort<T: Raw>(shared: &Shared<T>, reason: &str) {
    let reason = to_c(&reason.replace('\0', "\u{fffd}"), "reason").unwrap_or_default();
    // SAFETY: abort is free of the limit of one call at a time.
    unsafe { T::abort(shared.raw(), &reason) }
}

trait Abort {
    fn abort(&self, reason: &str);
}

impl<T: Raw> Abort for Shared<T> {
    fn abort(&self, reason: &str) {
        abort(self, reason);
    }
}

/// Gives something up from any thread, also while another one waits in a call on it. It does not keep the object alive;
/// once that is dropped it does nothing.
#[derive(Clone)]
pub struct Aborter(Weak<dyn Abort + Send + Sync>);

impl Aborter {
    /// Gives up now and wakes whoever waits; `reason` becomes part of the peers' error texts where there are peers.
    pub fn abort(&self, reason: &str) {
        if let Some(object) = self.0.upgrade() {
            object.abort(reason);
        }
    }
}
