// SPDX-License-Identifier: Apache-2.0
use crate::error::{check, check_done};
use crate::handle::{Aborter, Handle, Raw, Shared};
use crate::library::check_abi;
use crate::text::{
    from_c, limit_ms, maybe_rank, maybe_to_c, path_to_c, pointer, rank_or_all, rank_to_c, to_c, wait_ms, CTexts,
};
use crate::{Error, ErrorKind, Result};
use std::ffi::{CStr, CString};
use std::ops::BitOr;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use ujoin_sys as sys;

impl Raw for sys::ujoin_pctx {
    const NAME: &'static str = "set of workers";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::pctx_destroy(raw) }
    }
    unsafe fn abort(raw: *mut Self, _reason: &CStr) {
        unsafe { sys::pctx_abort(raw) }
    }
}

/// Standard streams: `Std::OUT | Std::ERR`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Std(i32);

impl Std {
    /// Neither.
    pub const NONE: Self = Self(sys::UJOIN_STD_NONE);
    /// Standard output.
    pub const OUT: Self = Self(sys::UJOIN_STD_OUT);
    /// Standard error.
    pub const ERR: Self = Self(sys::UJOIN_STD_ERR);
    /// Both.
    pub const ALL: Self = Self(sys::UJOIN_STD_ALL);

    /// Whether it has all streams of the other one.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Reads `3` (all ranks) or `0:1,12:3` (rank:value) into one value per rank.
    pub fn parse(text: &str, nprocs: usize) -> Result<Vec<Self>> {
        let (text, mut values) = (to_c(text, "text")?, vec![0; nprocs]);
        // SAFETY: the array has so many values.
        check(unsafe { sys::pctx_parse_std(text.as_ptr(), values.as_mut_ptr(), nprocs) })?;
        Ok(values.into_iter().map(Self).collect())
    }
}

impl BitOr for Std {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How workers and their descendants are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containment {
    /// Session and process group (default).
    Group = sys::UJOIN_CONTAINMENT_GROUP as isize,
    /// A helper process outlives this one and ends all, also if this one is killed.
    Warden = sys::UJOIN_CONTAINMENT_WARDEN as isize,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Not started.
    Created,
    /// Running.
    Running,
    /// Ended with this code.
    Exited(i32),
    /// Ended by this signal.
    Signaled(i32),
    /// Ended, but this process took the status elsewhere.
    Unknown,
    /// Still there after SIGKILL; given up.
    Unkillable,
}

/// A worker: what is known now, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerResult {
    /// Its index.
    pub rank: usize,
    /// Its state, with exit code or signal.
    pub state: WorkerState,
    /// Its process.
    pub pid: i32,
    /// It failed by itself.
    pub failed: bool,
    /// It ended because of another's failure, or on request: a victim, not a cause.
    pub stopped: bool,
    /// Whether the helper process holds it.
    pub containment: Option<Containment>,
    /// When it was started.
    pub start: Option<SystemTime>,
    /// When it ended.
    pub end: Option<SystemTime>,
    /// When it last wrote something.
    pub last_output: Option<SystemTime>,
    /// Processor time of its own.
    pub user_time: Duration,
    /// Processor time that the system spent for it.
    pub system_time: Duration,
    /// Resident memory at most.
    pub peak_bytes: u64,
    /// Bytes that it wrote to standard output.
    pub stdout_bytes: u64,
    /// Bytes that it wrote to standard error.
    pub stderr_bytes: u64,
    /// The file of its standard output.
    pub stdout_path: Option<PathBuf>,
    /// The file of its standard error.
    pub stderr_path: Option<PathBuf>,
}

/// What one worker has of its own; what is not set stays the job's.
#[derive(Clone, Debug, Default)]
pub struct WorkerSetup {
    program: Option<String>,
    args: Option<Vec<String>>,
    directory: Option<PathBuf>,
    redirects: Std,
    tee: Std,
}

/// Set in C: the value counts, also if it is none.
const COUNTS: Std = Std(sys::UJOIN_STD_SET);

impl WorkerSetup {
    /// Another program.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Other arguments.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args = Some(args.into_iter().map(Into::into).collect());
        self
    }

    /// Its working directory.
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        self.directory = Some(path.as_ref().to_owned());
        self
    }

    /// Streams that go to files.
    pub fn redirects(mut self, streams: Std) -> Self {
        self.redirects = streams | COUNTS;
        self
    }

    /// Streams that go to both.
    pub fn tee(mut self, streams: Std) -> Self {
        self.tee = streams | COUNTS;
        self
    }
}

/// The job of [`Workers`].
pub struct WorkersBuilder {
    program: String,
    args: Vec<String>,
    name: Option<String>,
    log_dir: Option<PathBuf>,
    run_id: Option<String>,
    prefix: Option<String>,
    spec: sys::ujoin_pctx_spec,
}

impl WorkersBuilder {
    /// How many; default 1. Their index is their rank.
    pub fn nprocs(mut self, count: usize) -> Self {
        self.spec.nprocs = rank_to_c(count);
        self
    }

    /// Without the program's name; `${local_rank}` is replaced.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// For prefixes and the report; default `worker`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Where files of output go; default a fresh temporary directory if one is needed.
    pub fn log_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.log_dir = Some(path.as_ref().to_owned());
        self
    }

    /// The job's name in the log directory; default random.
    pub fn run_id(mut self, id: impl Into<String>) -> Self {
        self.run_id = Some(id.into());
        self
    }

    /// Of console lines: `${role_name}`, `${rank}`, `${local_rank}`; default `[name<rank>]: `.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Between the polite signal and SIGKILL, when the library ends workers; default 30 s.
    pub fn grace(mut self, limit: Duration) -> Self {
        self.spec.grace_ms = limit_ms(Some(limit));
        self
    }

    /// For output that a grandchild still holds after a worker's end; default 1 s.
    pub fn drain(mut self, limit: Duration) -> Self {
        self.spec.drain_ms = limit_ms(Some(limit));
        self
    }

    /// An unfinished line goes to the console after this; default 200 ms.
    pub fn partial_line(mut self, limit: Duration) -> Self {
        self.spec.partial_line_ms = limit_ms(Some(limit));
        self
    }

    /// Added to the index in texts and prefixes, for several hosts.
    pub fn first_rank(mut self, rank: usize) -> Self {
        self.spec.first_rank = rank_to_c(rank);
        self
    }

    /// `attempt_<k>` in the log directory.
    pub fn restart_count(mut self, count: usize) -> Self {
        self.spec.restart_count = rank_to_c(count);
        self
    }

    /// Streams that go to files instead of the console.
    pub fn redirects(mut self, streams: Std) -> Self {
        self.spec.redirects = streams.0;
        self
    }

    /// Streams that go to both.
    pub fn tee(mut self, streams: Std) -> Self {
        self.spec.tee = streams.0;
        self
    }

    /// How workers are held.
    pub fn containment(mut self, how: Containment) -> Self {
        self.spec.containment = how as i32;
        self
    }

    /// Stay on the terminal: one worker, for debuggers.
    pub fn same_session(mut self) -> Self {
        self.spec.same_session = 1;
        self
    }

    /// Describes the job; starts nothing.
    pub fn build(self) -> Result<Workers> {
        check_abi()?;
        let (program, args) = (to_c(&self.program, "program")?, CTexts::new(&self.args, "argument")?);
        let name = maybe_to_c(&self.name, "name")?;
        let log_dir = maybe_path(&self.log_dir, "log_dir")?;
        let (run_id, prefix) = (maybe_to_c(&self.run_id, "run_id")?, maybe_to_c(&self.prefix, "prefix")?);
        let spec = sys::ujoin_pctx_spec {
            name: pointer(&name),
            program: program.as_ptr(),
            args: args.as_ptr(),
            arg_count: args.len(),
            log_dir: pointer(&log_dir),
            run_id: pointer(&run_id),
            prefix: pointer(&prefix),
            ..self.spec
        };
        let mut out = ptr::null_mut();
        // SAFETY: the texts live beyond the call, which copies them.
        check(unsafe { sys::pctx_create(&spec, &mut out) })?;
        Ok(Workers(Handle::adopt(out)))
    }
}

fn maybe_path(path: &Option<PathBuf>, what: &str) -> Result<Option<CString>> {
    path.as_deref().map(|p| path_to_c(p, what)).transpose()
}

/// A set of worker processes. Dropping it ends those that still run, in the background.
pub struct Workers(Handle<sys::ujoin_pctx>);

impl Workers {
    /// A job of this program: a path, or a name in `PATH`; no shell.
    pub fn builder(program: impl Into<String>) -> WorkersBuilder {
        WorkersBuilder {
            program: program.into(),
            args: Vec::new(),
            name: None,
            log_dir: None,
            run_id: None,
            prefix: None,
            spec: sys::ujoin_pctx_spec { nprocs: 1, ..Default::default() },
        }
    }

    /// Sets a variable for one worker (`None`: for all), over what it inherits. Before [`start`](Self::start).
    pub fn set_env(&self, rank: Option<usize>, name: &str, value: &str) -> Result<()> {
        self.change_env(rank, name, Some(to_c(value, "value")?))
    }

    /// Removes a variable that would be inherited.
    pub fn remove_env(&self, rank: Option<usize>, name: &str) -> Result<()> {
        self.change_env(rank, name, None)
    }

    fn change_env(&self, rank: Option<usize>, name: &str, value: Option<CString>) -> Result<()> {
        let (name, call) = (to_c(name, "name")?, self.0.enter()?);
        // SAFETY: one call at a time; the texts are copied.
        check(unsafe { sys::pctx_set_env(call.raw(), rank_or_all(rank), name.as_ptr(), pointer(&value)) })?;
        Ok(())
    }

    /// Gives one worker (`None`: all) a program, arguments, a directory or redirections of its own. Before start.
    pub fn set_worker(&self, rank: Option<usize>, setup: &WorkerSetup) -> Result<()> {
        let (program, directory) = (maybe_to_c(&setup.program, "program")?, maybe_path(&setup.directory, "directory")?);
        let args = CTexts::new(setup.args.iter().flatten(), "argument")?;
        let none: [*const std::ffi::c_char; 1] = [ptr::null()];
        let worker = sys::ujoin_worker {
            program: pointer(&program),
            // not NULL: no arguments instead of the job's
            args: if setup.args.is_some() && args.len() == 0 { none.as_ptr() } else { args.as_ptr() },
            arg_count: args.len(),
            directory: pointer(&directory),
            redirects: setup.redirects.0,
            tee: setup.tee.0,
            ..Default::default()
        };
        let call = self.0.enter()?;
        // SAFETY: one call at a time; everything is copied.
        check(unsafe { sys::pctx_set_worker(call.raw(), rank_or_all(rank), &worker) })?;
        Ok(())
    }

    /// Starts all, or none. [`System`](crate::ErrorKind::System): which one could not be executed and why.
    pub fn start(&self) -> Result<()> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        check(unsafe { sys::pctx_start(call.raw()) })?;
        Ok(())
    }

    /// Waits until all have ended well. [`ChildFailed`](crate::ErrorKind::ChildFailed): one has failed, and the others
    /// have been ended because of it; see [`report`](Self::report).
    pub fn wait(&self) -> Result<()> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        check(unsafe { sys::pctx_wait(call.raw(), -1) })?;
        Ok(())
    }

    /// The same for at most this time: false if they still run.
    pub fn wait_for(&self, limit: Duration) -> Result<bool> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        check_done(unsafe { sys::pctx_wait(call.raw(), wait_ms(limit)) })
    }

    /// Whether a worker has failed by itself, out of the last wait or close.
    pub fn failed(&self) -> bool {
        // SAFETY: may be called at any time.
        unsafe { sys::pctx_failed(self.0.raw()) == 1 }
    }

    /// The worker that failed first, never a victim.
    pub fn first_failure(&self) -> Option<usize> {
        // SAFETY: may be called at any time.
        maybe_rank(unsafe { sys::pctx_first_failure(self.0.raw()) })
    }

    /// What is known of a worker, at any time.
    pub fn result(&self, rank: usize) -> Result<WorkerResult> {
        let (call, mut result) = (self.0.enter()?, sys::ujoin_worker_result::new());
        // SAFETY: one call at a time; the struct has its size, and its texts are copied before the next one.
        check(unsafe { sys::pctx_get_result(call.raw(), rank_to_c(rank), &mut result) })?;
        // SAFETY: the same.
        Ok(unsafe { result_of(&result) })
    }

    /// The failure for a person: first cause, last lines of its standard error, then the others. Empty if nothing failed.
    pub fn report(&self) -> Result<String> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time; the text lives with the handle.
        let text = unsafe { sys::pctx_report(call.raw()) };
        if text.is_null() {
            return Err(Error::last(ErrorKind::State.status()));
        }
        // SAFETY: the same.
        Ok(unsafe { from_c(text) })
    }

    /// Sends a signal to one worker's process group (`None`: to all).
    pub fn signal(&self, rank: Option<usize>, signal: i32) -> Result<()> {
        send(&self.0, rank, signal)
    }

    /// The same from another thread.
    pub fn signaller(&self) -> Signaller {
        Signaller(Arc::downgrade(self.0.shared()))
    }

    /// Ends all workers: `signal` (`None`: SIGTERM), SIGKILL to what is left after `grace`, then reads the rest of the
    /// output. False: the console does not take the output; call again.
    pub fn close(&self, signal: Option<i32>, grace: Duration) -> Result<bool> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        check_done(unsafe { sys::pctx_close(call.raw(), signal.unwrap_or(0), wait_ms(grace)) })
    }

    /// Kills all workers now and wakes whoever waits. Does not wait for their end.
    pub fn abort(&self) {
        self.0.abort("");
    }

    /// The same from another thread.
    pub fn aborter(&self) -> Aborter {
        self.0.aborter()
    }
}

fn send(workers: &Shared<sys::ujoin_pctx>, rank: Option<usize>, signal: i32) -> Result<()> {
    // SAFETY: may be called at any time.
    check(unsafe { sys::pctx_signal(workers.raw(), rank_or_all(rank), signal) })?;
    Ok(())
}

/// Sends signals to workers from any thread. It does not keep them alive.
#[derive(Clone)]
pub struct Signaller(Weak<Shared<sys::ujoin_pctx>>);

impl Signaller {
    /// Sends a signal to one worker's process group (`None`: to all); nothing if they are gone.
    pub fn signal(&self, rank: Option<usize>, signal: i32) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |workers| send(&workers, rank, signal))
    }
}

/// # Safety
/// Filled by the library, no call since.
unsafe fn result_of(result: &sys::ujoin_worker_result) -> WorkerResult {
    // SAFETY: the caller's promise.
    let (stdout_path, stderr_path) = unsafe { (from_c(result.stdout_path), from_c(result.stderr_path)) };
    let path = |text: String| (!text.is_empty()).then(|| PathBuf::from(text));
    let time = |ns: i64| {
        u64::try_from(ns).ok().filter(|&ns| ns > 0).map(|ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns))
    };
    WorkerResult {
        rank: maybe_rank(result.rank).unwrap_or_default(),
        state: state_of(result),
        pid: result.pid,
        failed: result.failed != 0,
        stopped: result.stopped != 0,
        containment: match result.containment {
            sys::UJOIN_CONTAINMENT_GROUP => Some(Containment::Group),
            sys::UJOIN_CONTAINMENT_WARDEN => Some(Containment::Warden),
            _ => None,
        },
        start: time(result.start_ns),
        end: time(result.end_ns),
        last_output: time(result.last_output_ns),
        user_time: Duration::from_micros(result.user_us.unsigned_abs()),
        system_time: Duration::from_micros(result.system_us.unsigned_abs()),
        peak_bytes: result.peak_bytes,
        stdout_bytes: result.stdout_bytes,
        stderr_bytes: result.stderr_bytes,
        stdout_path: path(stdout_path),
        stderr_path: path(stderr_path),
    }
}

fn state_of(result: &sys::ujoin_worker_result) -> WorkerState {
    match result.state {
        sys::UJOIN_WORKER_CREATED => WorkerState::Created,
        sys::UJOIN_WORKER_RUNNING => WorkerState::Running,
        sys::UJOIN_WORKER_EXITED => WorkerState::Exited(result.exit_code),
        sys::UJOIN_WORKER_SIGNALED => WorkerState::Signaled(result.signal),
        sys::UJOIN_WORKER_UNKILLABLE => WorkerState::Unkillable,
        _ => WorkerState::Unknown,
    }
}
