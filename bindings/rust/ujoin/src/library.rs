// SPDX-License-Identifier: Apache-2.0
//! The library itself: version, backends, log lines, the interrupt check.
use crate::callback::{self, HookResult};
use crate::error::check;
use crate::text::from_c;
use crate::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use ujoin_sys as sys;

/// The library's version, `"0.1.0"`.
pub fn version() -> String {
    // SAFETY: a static text.
    unsafe { from_c(sys::ujoin_version()) }
}

/// The number that grows with every change a binding could notice; this crate needs at least the one it was made from.
pub fn abi_version() -> i32 {
    // SAFETY: always allowed.
    unsafe { sys::ujoin_abi_version() }
}

/// The crate was made from a header; an older library lacks what it says. Asked before the first handle is made.
pub(crate) fn check_abi() -> Result<()> {
    static CHECKED: AtomicBool = AtomicBool::new(false);
    if CHECKED.load(Ordering::Relaxed) {
        return Ok(());
    }
    if abi_version() < sys::UJOIN_ABI_VERSION {
        let text = format!(
            "libujoin {} has ABI {}; this crate needs {} or later",
            version(),
            abi_version(),
            sys::UJOIN_ABI_VERSION
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    CHECKED.store(true, Ordering::Relaxed);
    Ok(())
}

/// A backend, and what this build and machine make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What [`GroupBuilder::backend`](crate::GroupBuilder::backend) takes.
    pub name: String,
    /// Whether groups can use it here.
    pub available: bool,
    /// Why not, or which library was found.
    pub detail: String,
}

/// What this build and this machine can do.
pub fn backends() -> Vec<Backend> {
    // SAFETY: the text lives as long as the process.
    let table = unsafe { from_c(sys::ujoin_backends()) };
    table.lines().filter_map(backend_of).collect()
}

fn backend_of(line: &str) -> Option<Backend> {
    let mut cells = line.splitn(3, '\t');
    let (name, available) = (cells.next()?.to_owned(), cells.next()? == "yes");
    Some(Backend { name, available, detail: cells.next().unwrap_or_default().to_owned() })
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error = 1,
    Warning = 2,
    Info = 3,
    Debug = 4,
}

impl LogLevel {
    fn of(level: i32) -> Self {
        match level {
            i32::MIN..=sys::UJOIN_LOG_ERROR => Self::Error,
            sys::UJOIN_LOG_WARNING => Self::Warning,
            sys::UJOIN_LOG_INFO => Self::Info,
            _ => Self::Debug,
        }
    }
}

type Sink = Box<dyn Fn(LogLevel, &str) + Send + Sync>;

thread_local! {
    static IN_SINK: Cell<bool> = const { Cell::new(false) };
}

/// Sets where log lines of at least this severity go, for the whole process. The sink runs on any thread and on several at
/// once, and may not call the library. A panic in it is caught and loses that line only.
pub fn set_log_sink(level: LogLevel, sink: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Result<()> {
    refuse_in_sink()?;
    let sink: Arc<Sink> = Arc::new(Box::new(sink));
    // SAFETY: the library owns a share of the sink until it calls the notice.
    check(unsafe {
        sys::ujoin_set_log_sink(level as i32, Some(log_line), callback::share(&sink), Some(callback::drop_arc::<Sink>))
    })?;
    Ok(())
}

/// Removes the log sink: when this returns it is not running any more, and dropped.
pub fn clear_log_sink() -> Result<()> {
    refuse_in_sink()?;
    // SAFETY: NULL removes it.
    check(unsafe { sys::ujoin_set_log_sink(0, None, std::ptr::null_mut(), None) })?;
    Ok(())
}

/// Replacing a sink drops the closure, which must not happen while it runs.
fn refuse_in_sink() -> Result<()> {
    if !IN_SINK.get() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::State, "the log sink may not be changed from inside of a log sink"))
}

unsafe extern "C" fn log_line(user_data: *mut c_void, level: i32, text: *const c_char) {
    // SAFETY: the share that was registered; it lives until the notice.
    let sink = unsafe { &*user_data.cast_const().cast::<Sink>() };
    IN_SINK.set(true);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the library gives a text.
        sink(LogLevel::of(level), &unsafe { from_c(text) })
    }));
    IN_SINK.set(false);
}

type Check = Box<dyn Fn() -> HookResult + Send + Sync>;

/// Sets the check that lets something outside end a blocking call, a signal for example: it runs every 100 ms at most on
/// each thread that waits, and its error ends the call with [`ErrorKind::Callback`]. A wait that it ends leaves the object
/// as it was; any other call behaves as if its object had been aborted. For the whole process.
pub fn set_interrupt_check(check_now: impl Fn() -> HookResult + Send + Sync + 'static) -> Result<()> {
    let closure: Arc<Check> = Arc::new(Box::new(check_now));
    // SAFETY: the library owns a share of the closure until it calls the notice.
    check(unsafe {
        sys::ujoin_set_interrupt_check(Some(interrupt), callback::share(&closure), Some(callback::drop_arc::<Check>))
    })?;
    Ok(())
}

/// Removes the interrupt check.
pub fn clear_interrupt_check() -> Result<()> {
    // SAFETY: NULL removes it.
    check(unsafe { sys::ujoin_set_interrupt_check(None, std::ptr::null_mut(), None) })?;
    Ok(())
}

unsafe extern "C" fn interrupt(user_data: *mut c_void) -> i32 {
    // SAFETY: the share that was registered. This one of our own keeps it if the check replaces itself.
    let check = unsafe {
        Arc::increment_strong_count(user_data.cast_const().cast::<Check>());
        Arc::from_raw(user_data.cast_const().cast::<Check>())
    };
    callback::run(|| check())
}
