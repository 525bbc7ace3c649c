// SPDX-License-Identifier: Apache-2.0
//! How closures run for C: errors become a status and a text, panics never unwind into C but go on in the caller.
use crate::text::to_c;
use crate::{Error, ErrorKind};
use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// What a hook returns; `?` takes any error.
pub type HookResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

type Payload = Box<dyn Any + Send>;

thread_local! {
    /// A panic of a callback that ran on this thread, until the call that ran it is back in Rust.
    static PANIC: Cell<Option<Payload>> = const { Cell::new(None) };
}

/// Runs a callback for C: its status, with its text as the thread's last error.
pub(crate) fn run(body: impl FnOnce() -> HookResult) -> i32 {
    told(|| body().err().map(|error| (status_of(&*error), error.to_string())))
}

/// The same for a body that keeps its error.
pub(crate) fn run_borrowed<'e>(
    body: impl FnOnce() -> Option<&'e (dyn std::error::Error + Send + Sync + 'static)>,
) -> i32 {
    told(|| body().map(|error| (status_of(error), error.to_string())))
}

fn told(body: impl FnOnce() -> Option<(i32, String)>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(None) => ujoin_sys::UJOIN_OK,
        Ok(Some((status, text))) => tell(status, &text),
        Err(payload) => {
            let text = format!("panicked: {}", panic_text(&payload));
            PANIC.set(Some(payload));
            tell(ujoin_sys::UJOIN_E_CALLBACK, &text)
        }
    }
}

/// An error of the library itself keeps its status: what broke the group says more than that the hook failed.
fn status_of(error: &(dyn std::error::Error + Send + Sync + 'static)) -> i32 {
    error.downcast_ref::<Error>().map_or(ErrorKind::Callback, Error::kind).status()
}

fn tell(status: i32, text: &str) -> i32 {
    let text = to_c(&text.replace('\0', "\u{fffd}"), "text").unwrap_or_default();
    // SAFETY: the text ends with a NUL and is copied.
    unsafe { ujoin_sys::ujoin_set_last_error(status, text.as_ptr()) }
}

pub(crate) fn panic_text(payload: &Payload) -> &str {
    let of_str = payload.downcast_ref::<&str>().copied();
    of_str.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(not a text)")
}

/// Goes on with the panic of a callback that this call ran, if there was one.
pub(crate) fn resume_panic() {
    if let Some(payload) = PANIC.take() {
        resume_unwind(payload);
    }
}

/// The panic has ended as something else, an exit code.
pub(crate) fn forget_panic() {
    drop(PANIC.take());
}

/// A destroy or release notice: the library's share of what it was given is dropped. A panic in a destructor of the
/// program ends here: there is no call that it could go on in.
///
/// # Safety
/// `data` is from `Arc::<T>::into_raw`, and the library owns that share.
pub(crate) unsafe extern "C" fn drop_arc<T>(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let share = unsafe { Arc::from_raw(data.cast_const().cast::<T>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(share)));
}

/// The library's share of something: what `drop_arc` takes back.
pub(crate) fn share<T>(of: &Arc<T>) -> *mut c_void {
    Arc::into_raw(Arc::clone(of)).cast_mut().cast()
}
