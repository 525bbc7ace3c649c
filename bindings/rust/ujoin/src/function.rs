// SPDX-License-Identifier: Apache-2.0
//! Inside of a worker: functions of this program that run as workers, and records of failures.
use crate::callback::{self, HookResult};
use crate::error::check;
use crate::hook::array;
use crate::library::check_abi;
use crate::text::{from_c, maybe_rank, maybe_to_c, pointer, to_c};
use crate::{Error, Result};
use std::ffi::c_void;
use std::process::ExitCode;
use std::sync::Arc;
use ujoin_sys as sys;

/// What a function worker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerArgs {
    /// Its index.
    pub rank: usize,
    /// The number of workers.
    pub nprocs: usize,
    /// The job's arguments, or its own.
    pub args: Vec<String>,
    /// The bytes of [`WorkerSetup::input`](crate::WorkerSetup::input).
    pub input: Vec<u8>,
}

type Function = Box<dyn Fn(&WorkerArgs) -> HookResult + Send + Sync>;

/// Gives a function a name, in the launcher and in its workers alike, before [`worker_main`]; see
/// [`Workers::function`](crate::Workers::function). An error or a panic is the worker's failure, with its text and exit code
/// 1. [`Invalid`](crate::ErrorKind::Invalid): the name is taken, empty or has a `:`.
pub fn register_worker(name: &str, function: impl Fn(&WorkerArgs) -> HookResult + Send + Sync + 'static) -> Result<()> {
    check_abi()?;
    let name = to_c(name, "name")?;
    let function: Arc<Function> = Arc::new(Box::new(function));
    let (data, destroy) = (callback::share(&function), Some(callback::drop_arc::<Function> as _));
    // SAFETY: the library owns a share of the function for the life of the process.
    check(unsafe { sys::pctx_register(name.as_ptr(), Some(call), data, destroy) }).map(|_| ())
}

unsafe extern "C" fn call(user_data: *mut c_void, args: *const sys::ujoin_worker_args) -> i32 {
    // SAFETY: the share that was registered; the arguments live for the call.
    let (function, args) = unsafe { (&*user_data.cast_const().cast::<Function>(), &*args) };
    callback::run(|| {
        // SAFETY: the same.
        let (texts, input) = unsafe { (array(args.args, args.arg_count), array(args.input.cast(), args.input_size)) };
        let told = WorkerArgs {
            rank: maybe_rank(args.rank).unwrap_or_default(),
            nprocs: maybe_rank(args.nprocs).unwrap_or_default(),
            // SAFETY: each is a text.
            args: texts.iter().map(|&text| unsafe { from_c(text) }).collect(),
            input: input.to_vec(),
        };
        function(&told)
    })
}

/// The first thing in the `main` of a program that starts functions of its own, right after [`register_worker`]. `None`:
/// this is no worker, go on. Else it was one and the function has run: return the code from `main`. An error: it is one,
/// but its function is not known, say.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ujoin::Result<ExitCode> {
///     ujoin::register_worker("greet", |args| {
///         println!("hello from {} of {}", args.rank, args.nprocs);
///         Ok(())
///     })?;
///     if let Some(code) = ujoin::worker_main()? {
///         return Ok(code);
///     }
///     let workers = ujoin::Workers::function("greet").nprocs(4).build()?;
///     workers.start()?;
///     workers.wait()?;
///     Ok(ExitCode::SUCCESS)
/// }
/// ```
pub fn worker_main() -> Result<Option<ExitCode>> {
    check_abi()?;
    let mut code = 0;
    // SAFETY: the number is there.
    let status = unsafe { sys::pctx_worker_main(&mut code) };
    callback::forget_panic(); // of a function: it is recorded, and the exit code says it
    let was_worker = check(status)? == sys::UJOIN_DONE;
    Ok(was_worker.then(|| ExitCode::from(u8::try_from(code).unwrap_or(1))))
}

/// In a function worker: what it returns to the launcher, any bytes, once. [`State`](crate::ErrorKind::State): elsewhere.
pub fn return_value(bytes: &[u8]) -> Result<()> {
    // SAFETY: the bytes are copied.
    check(unsafe { sys::pctx_return(bytes.as_ptr().cast(), bytes.len()) }).map(|_| ())
}

/// What [`record`] takes and gives: `?` takes any error.
pub type FailureResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs the program's main part and records its failure, an error or a panic, where the launcher looks for it: in the file
/// that `TORCHELASTIC_ERROR_FILE` names, if any. If it is [`ChildFailed`](crate::ErrorKind::ChildFailed) from
/// [`Workers::wait`](crate::Workers::wait), the record of the worker that failed first becomes this process's own. Returns
/// what `body` returns.
pub fn record<T>(body: impl FnOnce() -> FailureResult<T>) -> FailureResult<T> {
    check_abi()?;
    let mut slot = Slot { body: Some(body), result: None };
    // SAFETY: the slot outlives the call.
    let status = unsafe { sys::pctx_record(Some(run_of(&slot)), (&raw mut slot).cast()) };
    callback::resume_panic();
    slot.result.unwrap_or_else(|| Err(Error::last(status).into()))
}

struct Slot<F, T> {
    body: Option<F>,
    result: Option<FailureResult<T>>,
}

fn run_of<F: FnOnce() -> FailureResult<T>, T>(_slot: &Slot<F, T>) -> unsafe extern "C" fn(*mut c_void) -> i32 {
    run::<F, T>
}

/// # Safety
/// Called by the library with the slot of the call that it is in.
unsafe extern "C" fn run<F: FnOnce() -> FailureResult<T>, T>(data: *mut c_void) -> i32 {
    // SAFETY: the caller's promise; nobody else looks at the slot meanwhile.
    let slot = unsafe { &mut *data.cast::<Slot<F, T>>() };
    callback::run_borrowed(|| {
        let body = slot.body.take().expect("a recorded function runs once");
        slot.result.insert(body()).as_ref().err().map(|error| &**error)
    })
}

/// Writes `error.json` for this worker: message, traceback, error code. A later record replaces an earlier one. Does nothing
/// where `TORCHELASTIC_ERROR_FILE` is not set.
pub fn record_error(message: &str, traceback: Option<&str>, code: Option<i32>) -> Result<()> {
    check_abi()?;
    let message = to_c(message, "message")?;
    let traceback = maybe_to_c(&traceback.map(str::to_owned), "traceback")?;
    // SAFETY: the texts live beyond the call.
    check(unsafe { sys::pctx_record_error(message.as_ptr(), pointer(&traceback), code.unwrap_or(0)) }).map(|_| ())
}

/// From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT leave a record with signal, address and backtrace in
/// `error.json`, then go to the handler that was there before. Process-wide, but only the calling thread gets the stack that
/// a record needs: call it at the begin of `main`.
pub fn record_crashes() -> Result<()> {
    check_abi()?;
    drop_small_signal_stack();
    // SAFETY: the handlers go on to those of Rust's runtime.
    check(unsafe { sys::pctx_record_crashes() }).map(|_| ())
}

/// `stack_t` of Linux.
#[repr(C)]
struct SignalStack {
    start: *mut c_void,
    flags: i32,
    size: usize,
}

const SS_DISABLE: i32 = 2;
const ENOUGH: usize = 1 << 16;

extern "C" {
    fn sigaltstack(new: *const SignalStack, old: *mut SignalStack) -> i32;
}

/// Rust's runtime gives each thread a few KiB for signal handlers, too little to look for the cause of a crash. Without it
/// the library makes one that is large enough.
fn drop_small_signal_stack() {
    let mut now = SignalStack { start: std::ptr::null_mut(), flags: 0, size: 0 };
    // SAFETY: the runtime frees its stack by its address, whatever is in use.
    unsafe {
        if sigaltstack(std::ptr::null(), &mut now) == 0 && now.flags == 0 && now.size < ENOUGH {
            sigaltstack(&SignalStack { start: std::ptr::null_mut(), flags: SS_DISABLE, size: 0 }, std::ptr::null_mut());
        }
    }
}
