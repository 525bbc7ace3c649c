// SPDX-License-Identifier: Apache-2.0
use crate::callback::{self, HookResult};
use crate::error::{check, check_done};
use crate::handle::{Aborter, Handle, Raw, Shared};
use crate::hook::array;
use crate::join::pairs;
use crate::library::check_abi;
use crate::text::{
    from_c, limit_ms, maybe_rank, maybe_to_c, path_to_c, pointer, rank_or_all, rank_to_c, to_c, wait_ms, CTexts,
};
use crate::{Error, ErrorKind, Result};
use std::ffi::{c_char, c_void, CStr, CString};
use std::ops::BitOr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    /// The same, and all are in a cgroup of their own, which is killed as one. [`System`](crate::ErrorKind::System) where none
    /// can be made.
    Cgroup = sys::UJOIN_CONTAINMENT_CGROUP as isize,
    /// A cgroup where one can be made, else a warden; for forked workers the group.
    Best = sys::UJOIN_CONTAINMENT_BEST as isize,
}

/// How a function worker comes to be; programs are always executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMethod {
    /// This program is executed again (default).
    Spawn = sys::UJOIN_START_SPAWN as isize,
    /// A copy of this process; dangerous if it has threads.
    Fork = sys::UJOIN_START_FORK as isize,
    /// Forked from this program, executed once more.
    ForkServer = sys::UJOIN_START_FORKSERVER as isize,
}

/// What happens when the console is slower than the workers; files always get everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// The workers wait (default).
    Block = sys::UJOIN_CONSOLE_BLOCK as isize,
    /// Lines are dropped and counted; a note in their place says how many.
    Drop = sys::UJOIN_CONSOLE_DROP as isize,
    /// What is late is in the log file alone; where there is none, the worker waits.
    Spill = sys::UJOIN_CONSOLE_SPILL as isize,
}

/// Placement of workers on processors, of those that this process may use, and their memory nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// None (default).
    None = sys::UJOIN_BINDING_NONE as isize,
    /// Worker after worker on another memory node, a part of its processors for each.
    Spread = sys::UJOIN_BINDING_SPREAD as isize,
    /// Side by side: equal parts of the processors in their order.
    Compact = sys::UJOIN_BINDING_COMPACT as isize,
    /// What [`WorkerSetup::cpus`] says.
    List = sys::UJOIN_BINDING_LIST as isize,
}

/// Where standard input comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// This process's; one worker at most.
    Inherit,
    /// These bytes.
    Bytes(Vec<u8>),
    /// A file.
    File(PathBuf),
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
    /// A function worker exited with 0, but its function had not returned: a failure.
    NoValue,
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
    /// When it failed or was stopped: the time in its error file, else its end.
    pub failed_at: Option<SystemTime>,
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
    /// Lines that were not written to the console.
    pub dropped_lines: u64,
    /// What a function worker returned ([`return_value`](crate::return_value)).
    pub value: Option<Vec<u8>>,
    /// Why it failed: that of its error file, else of the signal, else how to get one; empty if it did not fail.
    pub message: String,
    /// That of its error file, else the last lines of its standard error, or empty.
    pub traceback: String,
    /// The `error.json` that it wrote.
    pub error_path: Option<PathBuf>,
    /// The file of its standard output.
    pub stdout_path: Option<PathBuf>,
    /// The file of its standard error.
    pub stderr_path: Option<PathBuf>,
}

/// What a worker does now; its group's words are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerHealth {
    /// Its index.
    pub rank: usize,
    /// Its state; exit code and signal are in [`Workers::result`].
    pub running: bool,
    /// Its process; 0 before the start.
    pub pid: i32,
    /// What its group says; of several the one that waits longest, else is busy longest, else is the first.
    pub group: Option<GroupHealth>,
    /// When it last wrote something, as far as the launcher sees it.
    pub last_output: Option<SystemTime>,
    /// All this in one line for a person, also of a worker that has ended.
    pub text: String,
}

/// What a worker's group does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHealth {
    /// The process that has it: the worker, or one that it started.
    pub pid: i32,
    /// The worker's rank in it.
    pub rank: usize,
    /// Its ranks.
    pub size: usize,
    /// Its name.
    pub name: String,
    /// Groups of this worker that tell, at most 4.
    pub groups: usize,
    /// Number of the operation that it is in, or was in last, from 1; 0 if there was none.
    pub sequence: u64,
    /// Whether that one is not complete.
    pub in_operation: bool,
    /// Such as `all_reduce`: the last one that began.
    pub operation: String,
    /// Such as `all_reduce(sum, f32, 100)`; empty if it does not wait.
    pub waiting_for: String,
    /// The ranks that it waits for.
    pub missing: Vec<usize>,
    /// The round of the join context that is armed.
    pub round: Option<u64>,
    /// It works for the others.
    pub joined: bool,
    /// An operation has failed: the group is of no use any more.
    pub broken: bool,
    /// When that began, to a few milliseconds.
    pub since: Option<SystemTime>,
}

/// What one worker has of its own; what is not set stays the job's.
#[derive(Clone, Debug, Default)]
pub struct WorkerSetup {
    program: Option<String>,
    args: Option<Vec<String>>,
    directory: Option<PathBuf>,
    input: Option<Vec<u8>>,
    stdin: Option<Stdin>,
    cpus: Vec<usize>,
    limits: Vec<(String, f64)>,
    umask: Option<u32>,
    fds: Vec<(i32, Arc<OwnedFd>)>,
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

    /// Bytes for a function worker: [`WorkerArgs::input`](crate::WorkerArgs::input).
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Where its standard input comes from.
    pub fn stdin(mut self, from: Stdin) -> Self {
        self.stdin = Some(from);
        self
    }

    /// Its processors, with [`Binding::List`]; memory comes from their nodes.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = cpus.into_iter().collect();
        self
    }

    /// A resource limit: `nofile`, `core`, ...; `None`: unlimited. May be repeated.
    pub fn limit(mut self, name: impl Into<String>, value: Option<u64>) -> Self {
        self.limits.push((name.into(), value.map_or(f64::INFINITY, |v| v as f64)));
        self
    }

    /// The bits that files of its own do not get.
    pub fn umask(mut self, mask: u32) -> Self {
        self.umask = Some(mask);
        self
    }

    /// A descriptor that the worker inherits, as number `number` (3 or more). May be repeated; every other one is closed in
    /// the worker.
    pub fn fd(mut self, number: i32, fd: impl Into<OwnedFd>) -> Self {
        self.fds.push((number, Arc::new(fd.into())));
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

type Output = Box<dyn FnMut(usize, Std, &[u8]) -> HookResult + Send>;

/// The job of [`Workers`].
pub struct WorkersBuilder {
    program: Option<String>,
    function: Option<String>,
    args: Vec<String>,
    console_ranks: Option<Vec<i32>>,
    stdout_filters: Vec<String>,
    stderr_filters: Vec<String>,
    output: Option<Output>,
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

    /// Where files of output go; default a fresh temporary directory if one is needed; `/dev/null`: no files.
    pub fn log_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.log_dir = Some(path.as_ref().to_owned());
        self
    }

    /// The job's name in the log directory; default random.
    pub fn run_id(mut self, id: impl Into<String>) -> Self {
        self.run_id = Some(id.into());
        self
    }

    /// Of console lines: `${role_name}`, `${rank}`, `${local_rank}`, `${time}`; default `[name<rank>]: `.
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

    /// Only these are on the console, others in their files or nowhere.
    pub fn console_ranks(mut self, ranks: impl IntoIterator<Item = usize>) -> Self {
        self.console_ranks = Some(ranks.into_iter().map(rank_to_c).collect());
        self
    }

    /// Console lines of standard output with one of these also go to `filtered_stdout.log` of the attempt.
    pub fn stdout_filters<S: Into<String>>(mut self, filters: impl IntoIterator<Item = S>) -> Self {
        self.stdout_filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// The same of standard error, in `filtered_stderr.log`.
    pub fn stderr_filters<S: Into<String>>(mut self, filters: impl IntoIterator<Item = S>) -> Self {
        self.stderr_filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// Gets the output of all workers, besides files and instead of the console: rank, stream ([`Std::OUT`] or
    /// [`Std::ERR`]), and whole lines with their ends or parts of 64 KiB. Runs on the thread that is in
    /// [`Workers::wait`] or [`Workers::close`]; meanwhile at most 1 MiB is kept, then the workers wait.
    pub fn output(mut self, output: impl FnMut(usize, Std, &[u8]) -> HookResult + Send + 'static) -> Self {
        self.output = Some(Box::new(output));
        self
    }

    /// A log file of this size becomes `<name>.1`, and a new one is begun; so many old ones are kept (`None`: 1).
    pub fn rotate(mut self, bytes: u64, keep: Option<usize>) -> Self {
        self.spec.rotate_bytes = bytes;
        self.spec.rotate_keep = match keep {
            None => 0,
            Some(0) => -1,
            Some(count) => rank_to_c(count),
        };
        self
    }

    /// How function workers come to be.
    pub fn start_method(mut self, method: StartMethod) -> Self {
        self.spec.start_method = method as i32;
        self
    }

    /// What happens when the console is slower than the workers.
    pub fn console(mut self, policy: Console) -> Self {
        self.spec.console = policy as i32;
        self
    }

    /// Placement on processors.
    pub fn binding(mut self, binding: Binding) -> Self {
        self.spec.binding = binding as i32;
        self
    }

    /// Workers get no path for `error.json`.
    pub fn no_error_file(mut self) -> Self {
        self.spec.no_error_file = 1;
        self
    }

    /// Prefixes are not coloured by rank, also if the console is a terminal.
    pub fn no_colour(mut self) -> Self {
        self.spec.no_colour = 1;
        self
    }

    /// If standard error is a terminal to which no worker writes directly, its last line tells how the job stands.
    pub fn status_line(mut self) -> Self {
        self.spec.status_line = 1;
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
        let (program, args) = (maybe_to_c(&self.program, "program")?, CTexts::new(&self.args, "argument")?);
        let function = maybe_to_c(&self.function, "function")?;
        let out_filters = CTexts::new(&self.stdout_filters, "filter")?;
        let err_filters = CTexts::new(&self.stderr_filters, "filter")?;
        let name = maybe_to_c(&self.name, "name")?;
        let log_dir = maybe_path(&self.log_dir, "log_dir")?;
        let (run_id, prefix) = (maybe_to_c(&self.run_id, "run_id")?, maybe_to_c(&self.prefix, "prefix")?);
        let ranks = self.console_ranks.as_deref();
        let mut spec = sys::ujoin_pctx_spec {
            name: pointer(&name),
            program: pointer(&program),
            function: pointer(&function),
            console_ranks: ranks.map_or(ptr::null(), not_null),
            console_rank_count: ranks.map_or(0, <[_]>::len),
            stdout_filters: out_filters.as_ptr(),
            stdout_filter_count: out_filters.len(),
            stderr_filters: err_filters.as_ptr(),
            stderr_filter_count: err_filters.len(),
            args: args.as_ptr(),
            arg_count: args.len(),
            log_dir: pointer(&log_dir),
            run_id: pointer(&run_id),
            prefix: pointer(&prefix),
            ..self.spec
        };
        if let Some(output) = self.output {
            let output = Arc::new(Mutex::new(output));
            spec.output = Some(deliver);
            spec.user_data = callback::share(&output);
            spec.destroy = Some(callback::drop_arc::<Mutex<Output>>);
        }
        let mut out = ptr::null_mut();
        // SAFETY: the texts live beyond the call, which copies them; the library owns the callback from now on.
        check(unsafe { sys::pctx_create(&spec, &mut out) })?;
        Ok(Workers(Handle::adopt(out), Mutex::default()))
    }
}

/// An empty list that is not NULL: none, instead of the default.
fn not_null<T>(list: &[T]) -> *const T {
    list.as_ptr()
}

unsafe extern "C" fn deliver(user_data: *mut c_void, rank: i32, stream: i32, data: *const c_char, size: usize) -> i32 {
    // SAFETY: the share that was given; so many bytes lie there for the call.
    let (output, bytes) = unsafe { (&*user_data.cast_const().cast::<Mutex<Output>>(), array(data.cast::<u8>(), size)) };
    callback::run(|| {
        let mut output = output.try_lock().map_err(|_| "the output callback is running or has panicked")?;
        output(maybe_rank(rank).unwrap_or_default(), Std(stream), bytes)
    })
}

fn maybe_path(path: &Option<PathBuf>, what: &str) -> Result<Option<CString>> {
    path.as_deref().map(|p| path_to_c(p, what)).transpose()
}

/// A set of worker processes. Dropping it ends those that still run, in the background.
pub struct Workers(Handle<sys::ujoin_pctx>, Mutex<Vec<Arc<OwnedFd>>>); // descriptors for workers, until they have them

impl Workers {
    /// A job of this program: a path, or a name in `PATH`; no shell.
    pub fn builder(program: impl Into<String>) -> WorkersBuilder {
        Self::job(Some(program.into()), None)
    }

    /// A job of a function: a name given to [`register_worker`](crate::register_worker), in a program whose `main` begins
    /// with [`worker_main`](crate::worker_main); or `library.so:symbol`.
    pub fn function(name: impl Into<String>) -> WorkersBuilder {
        Self::job(None, Some(name.into()))
    }

    /// A job whose workers each get a program of their own by [`set_worker`](Self::set_worker) before they start.
    pub fn of_programs() -> WorkersBuilder {
        Self::job(None, None)
    }

    fn job(program: Option<String>, function: Option<String>) -> WorkersBuilder {
        WorkersBuilder {
            program,
            function,
            args: Vec::new(),
            console_ranks: None,
            stdout_filters: Vec::new(),
            stderr_filters: Vec::new(),
            output: None,
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

    /// Gives one worker (`None`: all) what the setup says, instead of an earlier setup. Before start.
    pub fn set_worker(&self, rank: Option<usize>, setup: &WorkerSetup) -> Result<()> {
        let (program, directory) = (maybe_to_c(&setup.program, "program")?, maybe_path(&setup.directory, "directory")?);
        let args = CTexts::new(setup.args.iter().flatten(), "argument")?;
        let none: [*const c_char; 1] = [ptr::null()];
        let stdin_path =
            if let Some(Stdin::File(path)) = &setup.stdin { Some(path_to_c(path, "stdin")?) } else { None };
        let stdin_data = if let Some(Stdin::Bytes(bytes)) = &setup.stdin { Some(bytes.as_slice()) } else { None };
        let names = setup.limits.iter().map(|(name, _)| to_c(name, "limit")).collect::<Result<Vec<_>>>()?;
        let limits = pairs(&names, setup.limits.iter().map(|(_, value)| *value));
        let cpus: Vec<i32> = setup.cpus.iter().map(|&cpu| rank_to_c(cpu)).collect();
        let fds: Vec<sys::ujoin_worker_fd> =
            setup.fds.iter().map(|(to, fd)| sys::ujoin_worker_fd { from: fd.as_raw_fd(), to: *to }).collect();
        let worker = sys::ujoin_worker {
            program: pointer(&program),
            // not NULL: no arguments instead of the job's
            args: if setup.args.is_some() && args.len() == 0 { none.as_ptr() } else { args.as_ptr() },
            arg_count: args.len(),
            directory: pointer(&directory),
            input: setup.input.as_deref().map_or(ptr::null(), not_null).cast(),
            input_size: setup.input.as_deref().map_or(0, <[_]>::len),
            stdin_data: stdin_data.map_or(ptr::null(), not_null).cast(),
            stdin_size: stdin_data.map_or(0, <[_]>::len),
            stdin_path: pointer(&stdin_path),
            stdin_from: match setup.stdin {
                None => 0,
                Some(Stdin::Null) => sys::UJOIN_STDIN_NULL,
                Some(Stdin::Inherit) => sys::UJOIN_STDIN_INHERIT,
                Some(Stdin::Bytes(_)) => sys::UJOIN_STDIN_BYTES,
                Some(Stdin::File(_)) => sys::UJOIN_STDIN_FILE,
            },
            cpus: cpus.as_ptr(),
            cpu_count: cpus.len(),
            limits: limits.as_ptr(),
            limit_count: limits.len(),
            umask_set: setup.umask.is_some().into(),
            umask: setup.umask.map_or(0, |mask| mask as i32),
            redirects: setup.redirects.0,
            tee: setup.tee.0,
            fds: if fds.is_empty() { ptr::null() } else { fds.as_ptr() },
            fd_count: fds.len(),
            ..Default::default()
        };
        let call = self.0.enter()?;
        // SAFETY: one call at a time; everything is copied.
        check(unsafe { sys::pctx_set_worker(call.raw(), rank_or_all(rank), &worker) })?;
        self.fds().extend(setup.fds.iter().map(|(_, fd)| fd.clone()));
        Ok(())
    }

    fn fds(&self) -> MutexGuard<'_, Vec<Arc<OwnedFd>>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts all, or none. [`System`](crate::ErrorKind::System): which one could not be executed and why.
    pub fn start(&self) -> Result<()> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        let started = check(unsafe { sys::pctx_start(call.raw()) });
        self.fds().clear();
        started.map(|_| ())
    }

    /// Waits until all have ended well. [`ChildFailed`](crate::ErrorKind::ChildFailed): one has failed, and the others
    /// have been ended because of it; see [`report`](Self::report).
    pub fn wait(&self) -> Result<()> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        called(unsafe { sys::pctx_wait(call.raw(), -1) })?;
        Ok(())
    }

    /// The same for at most this time: false if they still run.
    pub fn wait_for(&self, limit: Duration) -> Result<bool> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        called(unsafe { sys::pctx_wait(call.raw(), wait_ms(limit)) })
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

    /// What a worker does now, out of memory that it shares with its groups: it is asked nothing, so this works for one that
    /// hangs; one that has died keeps what it was doing. Also while another thread waits.
    pub fn health(&self, rank: usize) -> Result<WorkerHealth> {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut health = sys::ujoin_worker_health::new();
        // SAFETY: may be called at any time; the struct has its size, and its texts are copied before the next call.
        check(unsafe { sys::pctx_health(self.0.shared().raw(), rank_to_c(rank), &mut health) })?;
        // SAFETY: the same.
        Ok(unsafe { health_of(&health) })
    }

    /// The failure for a person, in the layout of PyTorch's launcher: the other failures, then the first cause with time,
    /// host, rank, exit code, and its traceback, message or last lines of standard error. Empty if nothing failed.
    pub fn report(&self) -> Result<String> {
        self.text_of(sys::pctx_report)
    }

    /// All results as one JSON object: name, run_id, first_failure (a rank or null) and workers, a list by rank.
    pub fn report_json(&self) -> Result<String> {
        self.text_of(sys::pctx_report_json)
    }

    fn text_of(&self, function: unsafe extern "C" fn(*mut sys::ujoin_pctx) -> *const c_char) -> Result<String> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time; the text lives until the next one.
        let text = unsafe { function(call.raw()) };
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

    /// Asks the workers for an agreed stop: their join contexts, also later ones, leave after the same round
    /// (`Join::stopped`), and the workers have the time to save. Ends nobody.
    pub fn ask_stop(&self) -> Result<()> {
        // SAFETY: may be called at any time.
        check(unsafe { sys::pctx_stop(self.0.shared().raw()) })?;
        Ok(())
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
        called(unsafe { sys::pctx_close(call.raw(), signal.unwrap_or(0), wait_ms(grace)) })
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

/// For calls that run the output callback: a panic in it goes on, whatever the call says. Whether it is over.
fn called(status: i32) -> Result<bool> {
    let result = check_done(status);
    callback::resume_panic();
    result
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
    // SAFETY: the same.
    let (message, traceback, error_path) =
        unsafe { (from_c(result.message), from_c(result.traceback), from_c(result.error_path)) };
    // SAFETY: the same: so many bytes, or NULL.
    let value = unsafe { array::<u8>(result.value.cast(), result.value_size) };
    let path = |text: String| (!text.is_empty()).then(|| PathBuf::from(text));
    WorkerResult {
        rank: maybe_rank(result.rank).unwrap_or_default(),
        state: state_of(result),
        pid: result.pid,
        failed: result.failed != 0,
        stopped: result.stopped != 0,
        containment: match result.containment {
            sys::UJOIN_CONTAINMENT_GROUP => Some(Containment::Group),
            sys::UJOIN_CONTAINMENT_WARDEN => Some(Containment::Warden),
            sys::UJOIN_CONTAINMENT_CGROUP => Some(Containment::Cgroup),
            _ => None,
        },
        start: time_of(result.start_ns),
        end: time_of(result.end_ns),
        failed_at: time_of(result.failed_ns),
        last_output: time_of(result.last_output_ns),
        user_time: Duration::from_micros(result.user_us.unsigned_abs()),
        system_time: Duration::from_micros(result.system_us.unsigned_abs()),
        peak_bytes: result.peak_bytes,
        stdout_bytes: result.stdout_bytes,
        stderr_bytes: result.stderr_bytes,
        dropped_lines: result.dropped_lines,
        value: (!result.value.is_null()).then(|| value.to_vec()),
        message,
        traceback,
        error_path: path(error_path),
        stdout_path: path(stdout_path),
        stderr_path: path(stderr_path),
    }
}

/// # Safety
/// Filled by the library, no call since.
unsafe fn health_of(health: &sys::ujoin_worker_health) -> WorkerHealth {
    // SAFETY: the caller's promise.
    let (operation, waiting_for) = unsafe { (from_c(health.operation), from_c(health.waiting_for)) };
    // SAFETY: the same.
    let (name, text) = unsafe { (from_c(health.group), from_c(health.text)) };
    // SAFETY: the same: so many ranks, or NULL.
    let missing = unsafe { array::<i32>(health.missing, health.missing_count) };
    let group = maybe_rank(health.group_rank).map(|rank| GroupHealth {
        pid: health.group_pid,
        rank,
        size: maybe_rank(health.group_size).unwrap_or_default(),
        name,
        groups: maybe_rank(health.groups).unwrap_or_default(),
        sequence: health.sequence.unsigned_abs(),
        in_operation: health.in_operation != 0,
        operation,
        waiting_for,
        missing: missing.iter().filter_map(|&rank| maybe_rank(rank)).collect(),
        round: u64::try_from(health.round).ok(),
        joined: health.joined != 0,
        broken: health.broken != 0,
        since: time_of(health.since_ns),
    });
    WorkerHealth {
        rank: maybe_rank(health.rank).unwrap_or_default(),
        running: health.state == sys::UJOIN_WORKER_RUNNING,
        pid: health.pid,
        group,
        last_output: time_of(health.last_output_ns),
        text,
    }
}

fn time_of(ns: i64) -> Option<SystemTime> {
    u64::try_from(ns).ok().filter(|&ns| ns > 0).map(|ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns))
}

fn state_of(result: &sys::ujoin_worker_result) -> WorkerState {
    match result.state {
        sys::UJOIN_WORKER_CREATED => WorkerState::Created,
        sys::UJOIN_WORKER_RUNNING => WorkerState::Running,
        sys::UJOIN_WORKER_EXITED => WorkerState::Exited(result.exit_code),
        sys::UJOIN_WORKER_SIGNALED => WorkerState::Signaled(result.signal),
        sys::UJOIN_WORKER_UNKILLABLE => WorkerState::Unkillable,
        sys::UJOIN_WORKER_NO_VALUE => WorkerState::NoValue,
        _ => WorkerState::Unknown,
    }
}
