// SPDX-License-Identifier: Apache-2.0
use crate::callback::{self, HookResult};
use crate::ddp::{Lender, Lent};
use crate::error::check;
use crate::handle::{Aborter, Entry, Handle, Raw, Shared};
use crate::params::{self, HookedHold, ParamSet};
use crate::scaler::RawScaler;
use crate::text::{from_c, limit_ms, maybe_rank, maybe_to_c, pointer, to_c, CTexts};
use crate::{Error, ErrorKind, Group, Result};
use std::ffi::{c_void, CStr, CString};
use std::fmt::Display;
use std::ptr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use ujoin_sys as sys;

impl Raw for sys::ujoin_joinable {
    const NAME: &'static str = "joinable";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::ujoin_joinable_destroy(raw) }
    }
    unsafe fn abort(_raw: *mut Self, _reason: &CStr) {}
}

impl Raw for sys::ujoin_ctx {
    const NAME: &'static str = "join context";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::ujoin_ctx_destroy(raw) }
    }
    unsafe fn abort(raw: *mut Self, reason: &CStr) {
        unsafe { sys::ujoin_ctx_abort(raw, reason.as_ptr()) }
    }
}

// -------------------------------------------------------------------------------------------------------------- joinables

/// The hooks of something with collectives in each round, which a joined rank must shadow: metrics, synchronised
/// statistics, a second model. They run on the thread that is in [`Join::finish`].
pub trait Hooks: Send {
    /// The collectives of one use, in their order.
    fn main_hook(&mut self, args: &HookArgs) -> HookResult {
        let _ = args;
        Ok(())
    }

    /// Once per rank, after all have joined.
    fn post_hook(&mut self, args: &HookArgs) -> HookResult {
        let _ = args;
        Ok(())
    }
}

/// What a hook is told.
pub struct HookArgs<'a> {
    args: &'a sys::ujoin_hook_args,
    group: Option<Group>,
}

impl HookArgs<'_> {
    /// Rounds of the context so far, from 0.
    pub fn round(&self) -> u64 {
        self.args.round as u64
    }

    /// Ranks that have not joined; 0 in post hooks.
    pub fn active(&self) -> usize {
        maybe_rank(self.args.active).unwrap_or_default()
    }

    /// Post hook: whether this rank ran no shadow.
    pub fn is_last_joiner(&self) -> bool {
        self.args.is_last_joiner != 0
    }

    /// Post hook: the largest last joiner, the same on every rank.
    pub fn authoritative_rank(&self) -> Option<usize> {
        maybe_rank(self.args.authoritative_rank)
    }

    /// The value of an option that the context was given for its hooks.
    pub fn option(&self, name: &str) -> Option<f64> {
        self.options().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// All options that the context was given for its hooks.
    pub fn options(&self) -> impl Iterator<Item = (String, f64)> {
        let (first, count) = (self.args.options, self.args.option_count);
        // SAFETY: so many options lie there while the hook runs; their names are texts.
        (0..count).map(move |i| unsafe { (from_c((*first.add(i)).name), (*first.add(i)).value) })
    }

    /// What the round says to its joinable; false on a rank that has joined, where nothing is published.
    pub fn notify(&self) -> Result<bool> {
        // SAFETY: allowed inside of a hook.
        Ok(check(unsafe { sys::ujoin_joinable_notify(self.args.joinable, ptr::null_mut()) })? != sys::UJOIN_JOINED)
    }

    /// The joinable's group, for the hook's collectives.
    pub fn group(&self) -> Result<&Group> {
        let gone = || Error::new(ErrorKind::State, "the group of this joinable was dropped");
        self.group.as_ref().ok_or_else(gone)
    }
}

/// The hooks of the program, owned by the library until it will never call them again.
struct Hooked {
    hooks: Mutex<Box<dyn Hooks>>,
    group: Weak<Shared<sys::ujoin_group>>,
}

type Which = fn(&mut dyn Hooks, &HookArgs) -> HookResult;

/// # Safety
/// Called by the library with what `JoinableBuilder::build` registered.
unsafe fn run_hook(user_data: *mut c_void, args: *const sys::ujoin_hook_args, which: Which) -> i32 {
    // SAFETY: the caller's promise.
    let (hooked, args) = unsafe { (&*user_data.cast_const().cast::<Hooked>(), &*args) };
    let run = || {
        let mut hooks = hooked.hooks.try_lock().map_err(|_| "the hooks of a joinable are running or have panicked")?;
        let args = HookArgs { args, group: hooked.group.upgrade().map(|group| Group(Handle::of(group))) };
        which(&mut **hooks, &args)
    };
    match params::paused(|| callback::run(run)) {
        Ok(status) => status,
        Err(error) => callback::run(|| Err(format!("after a hook, {error}").into())),
    }
}

unsafe extern "C" fn main_hook(user_data: *mut c_void, args: *const sys::ujoin_hook_args) -> i32 {
    // SAFETY: registered together.
    unsafe { run_hook(user_data, args, |hooks, args| hooks.main_hook(args)) }
}

unsafe extern "C" fn post_hook(user_data: *mut c_void, args: *const sys::ujoin_hook_args) -> i32 {
    // SAFETY: registered together.
    unsafe { run_hook(user_data, args, |hooks, args| hooks.post_hook(args)) }
}

type Closure = Box<dyn FnMut(&HookArgs) -> HookResult + Send>;

/// Hooks that were given one by one.
#[derive(Default)]
struct Closures {
    main: Option<Closure>,
    post: Option<Closure>,
}

impl Hooks for Closures {
    fn main_hook(&mut self, args: &HookArgs) -> HookResult {
        self.main.as_mut().map_or(Ok(()), |hook| hook(args))
    }

    fn post_hook(&mut self, args: &HookArgs) -> HookResult {
        self.post.as_mut().map_or(Ok(()), |hook| hook(args))
    }
}

/// How a [`Joinable`] of the program's own is made.
pub struct JoinableBuilder<'g> {
    group: &'g Group,
    closures: Closures,
    name: Option<String>,
    options: Vec<String>,
}

impl JoinableBuilder<'_> {
    /// For texts; default `joinable`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The name of an option that the hooks know; may be repeated.
    pub fn option(mut self, name: impl Into<String>) -> Self {
        self.options.push(name.into());
        self
    }

    /// See [`Hooks::main_hook`].
    pub fn main_hook(mut self, hook: impl FnMut(&HookArgs) -> HookResult + Send + 'static) -> Self {
        self.closures.main = Some(Box::new(hook));
        self
    }

    /// See [`Hooks::post_hook`].
    pub fn post_hook(mut self, hook: impl FnMut(&HookArgs) -> HookResult + Send + 'static) -> Self {
        self.closures.post = Some(Box::new(hook));
        self
    }

    /// A joinable with the hooks that were given one by one.
    pub fn build(mut self) -> Result<Joinable> {
        let closures = std::mem::take(&mut self.closures);
        self.build_with(closures)
    }

    /// A joinable with the hooks of this object.
    pub fn build_with(self, hooks: impl Hooks + 'static) -> Result<Joinable> {
        let (name, options) = (maybe_to_c(&self.name, "name")?, CTexts::new(&self.options, "option")?);
        let group = self.group.0.enter()?;
        let hooked = Arc::new(Hooked { hooks: Mutex::new(Box::new(hooks)), group: self.group.0.weak() });
        let to_c = sys::ujoin_hooks {
            main_hook: Some(main_hook),
            post_hook: Some(post_hook),
            user_data: callback::share(&hooked),
            destroy: Some(callback::drop_arc::<Hooked>),
            name: pointer(&name),
            options: options.as_ptr(),
            option_count: options.len(),
            ..Default::default()
        };
        let mut out = ptr::null_mut();
        // SAFETY: the library's share keeps the hooks until its notice, also if the call fails.
        check(unsafe { sys::ujoin_joinable_create(group.raw(), &to_c, &mut out) })?;
        Ok(Joinable::of(out, Arc::clone(Handle::adopt(out).shared()) as _, Arc::new(Lent::default)))
    }
}

/// One participant of a join context: [`Ddp::joinable`](crate::Ddp::joinable),
/// [`Zero::joinable`](crate::Zero::joinable), or one of the program's own. A clone is the same one.
#[derive(Clone)]
pub struct Joinable {
    raw: *mut sys::ujoin_joinable,
    owner: Arc<dyn Entry>,
    lender: Lender,
}

// SAFETY: handles may move to another thread, and `owner` keeps this one. Not Sync.
unsafe impl Send for Joinable {}

impl Joinable {
    /// A joinable of the program's own.
    pub fn builder(group: &Group) -> JoinableBuilder<'_> {
        JoinableBuilder { group, closures: Closures::default(), name: None, options: Vec::new() }
    }

    /// `raw` lives as long as `owner`.
    pub(crate) fn of(raw: *mut sys::ujoin_joinable, owner: Arc<dyn Entry>, lender: Lender) -> Self {
        Self { raw, owner, lender }
    }

    fn call_notify(&self, out_active: *mut i32) -> Result<i32> {
        // SAFETY: one call at a time; NULL, or a number of the caller.
        check(self.owner.call(&mut || unsafe { sys::ujoin_joinable_notify(self.raw, out_active) })?)
    }

    /// Says that one use begins, one set of its collectives; ddp and zero say it themselves. False: called from a hook on a
    /// rank that has joined, nothing was published. [`Exhausted`](crate::ErrorKind::Exhausted): throw mode.
    pub fn notify(&self) -> Result<bool> {
        Ok(self.call_notify(ptr::null_mut())? != sys::UJOIN_JOINED)
    }

    /// The same, and waits until every rank has begun this round or joined: how many have begun it.
    pub fn notify_active(&self) -> Result<usize> {
        let mut active = 0;
        self.call_notify(&mut active)?;
        Ok(maybe_rank(active).unwrap_or_default())
    }
}

// --------------------------------------------------------------------------------------------------------------- contexts

/// How a [`Join`] is made.
pub struct JoinBuilder {
    joinables: Vec<Joinable>,
    hook_options: Vec<(String, f64)>,
    options: sys::ujoin_ctx_options,
}

impl JoinBuilder {
    /// How long without progress of any rank; default for ever.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.options.idle_timeout_ms = limit_ms(Some(limit));
        self
    }

    /// A joined rank warns once after so many rounds; default 1,000, `None` never.
    pub fn skew_warning(mut self, rounds: Option<u32>) -> Self {
        self.options.skew_warning_rounds = rounds.map_or(-1, i64::from);
        self
    }

    /// An option for all hooks; a name that no joinable knows is [`Invalid`](crate::ErrorKind::Invalid).
    pub fn hook_option(mut self, name: impl Into<String>, value: f64) -> Self {
        self.hook_options.push((name.into(), value));
        self
    }

    /// Inputs are known to be even: start, notify and finish do nothing.
    pub fn disabled(mut self) -> Self {
        self.options.disabled = 1;
        self
    }

    /// No shadows: when one rank has no more inputs, all get [`Exhausted`](crate::ErrorKind::Exhausted).
    pub fn throw_on_exhausted(mut self) -> Self {
        self.options.throw_on_exhausted = 1;
        self
    }

    /// Once per use of the first joinable every hook in list order, as PyTorch does.
    pub fn strict(mut self) -> Self {
        self.options.strict = 1;
        self
    }

    /// The context. [`Invalid`](crate::ErrorKind::Invalid): no joinables, different groups, an unknown option of hooks.
    pub fn build(self) -> Result<Join> {
        let names = self.hook_options.iter().map(|(name, _)| to_c(name, "hook option")).collect::<Result<Vec<_>>>()?;
        let hyper = pairs(&names, self.hook_options.iter().map(|(_, value)| *value));
        let options =
            sys::ujoin_ctx_options { hook_options: hyper.as_ptr(), hook_option_count: hyper.len(), ..self.options };
        let (list, mut out): (Vec<_>, _) = (self.joinables.iter().map(|j| j.raw).collect(), ptr::null_mut());
        // SAFETY: the joinables live beyond the call; the context keeps what it needs of them.
        check(unsafe { sys::ujoin_ctx_create(list.as_ptr(), list.len(), &options, &mut out) })?;
        let lenders = self.joinables.iter().map(|j| Arc::clone(&j.lender)).collect();
        Ok(Join { handle: Handle::adopt(out), lenders })
    }
}

/// Names and numbers as C takes them; they live as long as the names.
pub(crate) fn pairs(names: &[CString], values: impl Iterator<Item = f64>) -> Vec<sys::ujoin_hyper> {
    names.iter().zip(values).map(|(name, value)| sys::ujoin_hyper { name: name.as_ptr(), value }).collect()
}

/// What happened in a context since its last start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReport {
    /// Rounds of this rank's own.
    pub rounds: u64,
    /// Rounds that it worked for others.
    pub shadow_rounds: u64,
    /// Main hooks run.
    pub shadow_uses: u64,
    /// Time in them.
    pub shadow: Duration,
    /// Time waiting for others' progress.
    pub wait: Duration,
    /// Whether this rank ran no shadow.
    pub is_last_joiner: bool,
    /// `None` before finish.
    pub authoritative_rank: Option<usize>,
    /// Ranks that have joined by now.
    pub joined: usize,
    /// Whether an agreed stop ended it.
    pub stopped: bool,
}

/// A join context: training on uneven inputs. A rank that has no more works for the others until all are done.
///
/// Dropping an armed context aborts it.
pub struct Join {
    handle: Handle<sys::ujoin_ctx>,
    lenders: Vec<Lender>,
}

impl Join {
    /// A context over joinables of one group, in the order in which their hooks run.
    pub fn new(joinables: impl IntoIterator<Item = Joinable>) -> Result<Self> {
        Self::builder(joinables).build()
    }

    /// A context with options.
    pub fn builder(joinables: impl IntoIterator<Item = Joinable>) -> JoinBuilder {
        let joinables = joinables.into_iter().collect();
        JoinBuilder { joinables, hook_options: Vec::new(), options: Default::default() }
    }

    /// One pass over the inputs: begins it, runs `body`, works for the others until all are done. If `body` fails or
    /// panics, every peer gets [`Aborted`](crate::ErrorKind::Aborted) with its text.
    pub fn run<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        self.try_run(body)
    }

    /// [`run`](Self::run) for a body with an error type of its own.
    pub fn try_run<T, E>(&self, body: impl FnOnce() -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error> + Display,
    {
        self.start()?;
        let armed = Armed(self, "the loop of a join context panicked");
        let result = body();
        std::mem::forget(armed);
        match result {
            Ok(result) => {
                self.finish()?;
                Ok(result)
            }
            Err(error) => {
                self.abort(&error.to_string());
                Err(error)
            }
        }
    }

    /// Begins a pass and arms the joinables until [`finish`](Self::finish) or [`abort`](Self::abort).
    pub fn start(&self) -> Result<()> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time.
        check(unsafe { sys::ujoin_ctx_start(call.raw()) })?;
        Ok(())
    }

    /// This rank has no more inputs: works for the others until all have joined, then runs the post hooks. A panic in one
    /// of the program's hooks goes on here. The context can be started again.
    pub fn finish(&self) -> Result<()> {
        let call = self.handle.enter()?;
        let (sets, scalers) = self.lent();
        let hold = HookedHold::take(sets).and_then(|hold| {
            let scalers = scalers.iter().map(|scaler| scaler.enter()).collect::<Result<Vec<_>>>()?;
            Ok((hold, scalers))
        });
        let hold = hold.inspect_err(|error| {
            self.abort(error.text()); // the others wait for this rank's part
        })?;
        // SAFETY: one call at a time; the parameters are the library's meanwhile.
        let status = unsafe { sys::ujoin_ctx_finish(call.raw()) };
        drop(hold);
        let result = check(status);
        callback::resume_panic(); // also when the group broke while a hook panicked
        result.map(|_| ())
    }

    /// What shadows use: parameters, and scalers, each once.
    fn lent(&self) -> (Vec<Arc<ParamSet>>, Vec<Arc<RawScaler>>) {
        let (mut sets, mut scalers) = (Vec::new(), Vec::new());
        for lent in self.lenders.iter().map(|lender| lender()) {
            sets.extend(lent.sets);
            scalers.extend(lent.scaler.filter(|new| !scalers.iter().any(|known| Arc::ptr_eq(known, new))));
        }
        (sets, scalers)
    }

    /// Asks all ranks to leave after the same round.
    pub fn stop(&self) -> Result<()> {
        stop(&self.handle)
    }

    /// The same from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(self.handle.shared()))
    }

    /// Whether the round that has just ended was the last one by an agreed stop, on every rank alike. Ask between rounds,
    /// then leave the loop.
    pub fn stopped(&self) -> Result<bool> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time.
        match unsafe { sys::ujoin_ctx_stopped(call.raw()) } {
            stopped if stopped >= 0 => Ok(stopped != 0),
            _ => Err(last_of_value()),
        }
    }

    /// The loop's body failed: every peer gets [`Aborted`](crate::ErrorKind::Aborted) with `reason`; breaks the group.
    pub fn abort(&self, reason: &str) {
        self.handle.abort(reason);
    }

    /// The same from another thread.
    pub fn aborter(&self) -> Aborter {
        self.handle.aborter()
    }

    /// Rounds, shadows and times since the last start.
    pub fn report(&self) -> Result<JoinReport> {
        let (call, mut report) = (self.handle.enter()?, sys::ujoin_ctx_report::new());
        // SAFETY: one call at a time; the struct has its size.
        check(unsafe { sys::ujoin_ctx_get_report(call.raw(), &mut report) })?;
        Ok(JoinReport {
            rounds: report.rounds as u64,
            shadow_rounds: report.shadow_rounds as u64,
            shadow_uses: report.shadow_uses as u64,
            shadow: Duration::from_micros(report.shadow_us as u64),
            wait: Duration::from_micros(report.wait_us as u64),
            is_last_joiner: report.is_last_joiner != 0,
            authoritative_rank: maybe_rank(report.authoritative_rank),
            joined: maybe_rank(report.joined).unwrap_or_default(),
            stopped: report.stopped != 0,
        })
    }

    /// The rounds that each rank ran before it joined; `None`: not joined yet.
    pub fn rounds(&self) -> Result<Vec<Option<u64>>> {
        let call = self.handle.enter()?;
        // SAFETY: capacity 0 asks how many there are.
        let size = unsafe { sys::ujoin_ctx_rounds(call.raw(), ptr::null_mut(), 0) };
        let mut rounds = vec![0i64; size];
        // SAFETY: the array has the capacity that is given.
        if unsafe { sys::ujoin_ctx_rounds(call.raw(), rounds.as_mut_ptr(), size) } == 0 {
            return Err(last_of_value());
        }
        Ok(rounds.into_iter().map(|r| u64::try_from(r).ok()).collect())
    }
}

/// The error of a getter, which has no status: its text.
fn last_of_value() -> Error {
    Error::last(ErrorKind::State.status())
}

/// Aborts the context if the body panics; forgotten otherwise.
struct Armed<'j>(&'j Join, &'static str);

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.0.abort(self.1);
    }
}

fn stop(ctx: &Shared<sys::ujoin_ctx>) -> Result<()> {
    // SAFETY: may be called at any time.
    check(unsafe { sys::ujoin_ctx_stop(ctx.raw()) })?;
    Ok(())
}

/// Asks all ranks of a join context to leave, from any thread. It does not keep the context alive.
#[derive(Clone)]
pub struct Stopper(Weak<Shared<sys::ujoin_ctx>>);

impl Stopper {
    /// Asks all ranks to leave after the same round; nothing if the context is gone.
    pub fn stop(&self) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |ctx| stop(&ctx))
    }
}
