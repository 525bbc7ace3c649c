// SPDX-License-Identifier: Apache-2.0
use crate::callback;
use crate::ddp::{Lender, Lent};
use crate::error::check;
use crate::handle::{Handle, Raw};
use crate::hook::{check_type, elements};
use crate::join::{pairs, Joinable};
use crate::params::{For, Hold, Keeper, ParamSet, Params};
use crate::rule::{Rule, RuleInC};
use crate::scaler::{RawScaler, Scaler};
use crate::text::{from_c, limit_ms, maybe_rank, path_to_c, rank_or_all, rank_to_c, to_c};
use crate::{Ddp, Element, Error, ErrorKind, Group, Result, State};
use std::cell::{Cell, RefCell};
use std::ffi::{c_void, CStr, CString};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use ujoin_sys as sys;

impl Raw for sys::ujoin_zero {
    const NAME: &'static str = "optimizer";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::zero_destroy(raw) }
    }
    unsafe fn abort(_raw: *mut Self, _reason: &CStr) {} // an optimizer is given up with its group
}

/// An update rule with its hyper-parameters: [`AdamW`] and the like, or a [`Rule`] of the program's own.
pub trait Hyper: sealed::Rule {}
impl<R: sealed::Rule> Hyper for R {}

mod sealed {
    pub trait Rule: Sized {
        const RULE: i32;
        fn pairs(&self) -> Vec<(&'static str, f64)>;
        fn custom(self) -> Option<crate::Rule> {
            None
        }
    }
}

impl sealed::Rule for Rule {
    const RULE: i32 = sys::UJOIN_OPTIMIZER_CUSTOM;
    fn pairs(&self) -> Vec<(&'static str, f64)> {
        Vec::new() // the rule has its defaults itself
    }
    fn custom(self) -> Option<Rule> {
        Some(self)
    }
}

/// f64 and flags alike.
trait Number {
    fn number(self) -> f64;
}
impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}
impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// What a hyper-parameter means, which is the same in every rule.
macro_rules! meaning {
    (lr) => {
        "Learning rate."
    };
    (lr_decay) => {
        "Of the learning rate, by steps."
    };
    (momentum) => {
        "Share of the last step's direction."
    };
    (momentum_decay) => {
        "Of the first moment over the steps."
    };
    (dampening) => {
        "Of the gradient as it enters the momentum."
    };
    (nesterov) => {
        "Nesterov's momentum."
    };
    (beta1) => {
        "Decay of the first moment."
    };
    (beta2) => {
        "Decay of the second moment."
    };
    (rho) => {
        "Decay of the means of squares."
    };
    (alpha) => {
        "Decay of the mean of squares."
    };
    (eps) => {
        "Added to the denominator."
    };
    (centered) => {
        "Divide by the standard deviation instead."
    };
    (amsgrad) => {
        "Keep the largest second moment."
    };
    (initial_accumulator_value) => {
        "What the sums of squares begin with."
    };
    (etaminus) => {
        "The factor where the sign changes."
    };
    (etaplus) => {
        "The factor where it stays."
    };
    (step_min) => {
        "The smallest step."
    };
    (step_max) => {
        "The largest step."
    };
    (weight_decay) => {
        "Share of the parameter that is"
    };
    (decoupled_weight_decay) => {
        "Weight decay apart from the gradient."
    };
    (maximize) => {
        "Go up instead of down."
    };
}

macro_rules! rule {
    ($(#[$doc:meta])* $name:ident = $rule:ident { $($(#[$more:meta])* $field:ident: $type:ty = $default:expr),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name { $(#[doc = meaning!($field)] $(#[$more])* pub $field: $type),* }
        impl Default for $name {
            fn default() -> Self { Self { $($field: $default),* } }
        }
        impl sealed::Rule for $name {
            const RULE: i32 = sys::$rule;
            fn pairs(&self) -> Vec<(&'static str, f64)> { vec![$((stringify!($field), self.$field.number())),*] }
        }
    };
}

rule! {
    /// Stochastic gradient descent, with PyTorch's names and defaults.
    Sgd = UJOIN_OPTIMIZER_SGD {
        lr: f64 = 1e-3, momentum: f64 = 0.0, dampening: f64 = 0.0, nesterov: bool = false,
        /// added to the gradient.
        weight_decay: f64 = 0.0, maximize: bool = false
    }
}
rule! {
    /// Adam, with PyTorch's names and defaults.
    Adam = UJOIN_OPTIMIZER_ADAM {
        lr: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8,
        /// added to the gradient.
        weight_decay: f64 = 0.0, amsgrad: bool = false, maximize: bool = false
    }
}
rule! {
    /// Adam with decoupled weight decay, with PyTorch's names and defaults.
    AdamW = UJOIN_OPTIMIZER_ADAMW {
        lr: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8,
        /// taken off, apart from the gradient.
        weight_decay: f64 = 1e-2, amsgrad: bool = false, maximize: bool = false
    }
}
rule! {
    /// Adagrad, with PyTorch's names and defaults.
    Adagrad = UJOIN_OPTIMIZER_ADAGRAD {
        lr: f64 = 1e-2, lr_decay: f64 = 0.0,
        /// added to the gradient.
        weight_decay: f64 = 0.0, initial_accumulator_value: f64 = 0.0, eps: f64 = 1e-10, maximize: bool = false
    }
}
rule! {
    /// RMSprop, with PyTorch's names and defaults.
    RmsProp = UJOIN_OPTIMIZER_RMSPROP {
        lr: f64 = 1e-2, alpha: f64 = 0.99, eps: f64 = 1e-8,
        /// added to the gradient.
        weight_decay: f64 = 0.0, momentum: f64 = 0.0, centered: bool = false, maximize: bool = false
    }
}
rule! {
    /// Adadelta, with PyTorch's names and defaults.
    Adadelta = UJOIN_OPTIMIZER_ADADELTA {
        lr: f64 = 1.0, rho: f64 = 0.9, eps: f64 = 1e-6,
        /// added to the gradient.
        weight_decay: f64 = 0.0, maximize: bool = false
    }
}
rule! {
    /// Adamax, with PyTorch's names and defaults.
    Adamax = UJOIN_OPTIMIZER_ADAMAX {
        lr: f64 = 2e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8,
        /// added to the gradient.
        weight_decay: f64 = 0.0, maximize: bool = false
    }
}
rule! {
    /// NAdam, with PyTorch's names and defaults.
    NAdam = UJOIN_OPTIMIZER_NADAM {
        lr: f64 = 2e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8,
        /// added to the gradient.
        weight_decay: f64 = 0.0, momentum_decay: f64 = 4e-3, decoupled_weight_decay: bool = false, maximize: bool = false
    }
}
rule! {
    /// RAdam, with PyTorch's names and defaults.
    RAdam = UJOIN_OPTIMIZER_RADAM {
        lr: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8,
        /// added to the gradient.
        weight_decay: f64 = 0.0, decoupled_weight_decay: bool = false, maximize: bool = false
    }
}
rule! {
    /// Rprop, with PyTorch's names and defaults.
    Rprop = UJOIN_OPTIMIZER_RPROP {
        lr: f64 = 1e-2, etaminus: f64 = 0.5, etaplus: f64 = 1.2, step_min: f64 = 1e-6, step_max: f64 = 50.0,
        maximize: bool = false
    }
}
rule! {
    /// LAMB: Adam with a trust ratio for each parameter, which one rank owns as a whole.
    Lamb = UJOIN_OPTIMIZER_LAMB {
        lr: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-6,
        /// taken off, apart from the gradient.
        weight_decay: f64 = 1e-2, maximize: bool = false
    }
}
rule! {
    /// Lion: the sign of a momentum.
    Lion = UJOIN_OPTIMIZER_LION {
        lr: f64 = 1e-4, beta1: f64 = 0.9, beta2: f64 = 0.99,
        /// taken off, apart from the gradient.
        weight_decay: f64 = 0.0, maximize: bool = false
    }
}

/// How parameters are given to ranks. Rules that work element by element give the same bits with either, and on any number
/// of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// Whole ones, largest first, to the rank with the fewest elements: PyTorch's.
    Parameters,
    /// Each param group end to end, cut at cache lines: within one of equal parts. Not for rules that need whole parameters.
    Elements,
}

/// How a [`Zero`] is made.
pub struct ZeroBuilder<'g> {
    group: &'g Group,
    rule: i32,
    custom: Option<Rule>,
    hyper: Vec<(&'static str, f64)>,
    sets: Vec<Arc<ParamSet>>,
    ddp: Option<&'g Ddp>,
    options: sys::ujoin_zero_options,
}

impl<'g> ZeroBuilder<'g> {
    /// The parameters of the first param group, of any floating-point type; may be repeated.
    pub fn params<E: Element>(mut self, params: &Params<E>) -> Self {
        self.sets.push(Arc::clone(&params.set));
        self
    }

    /// How long without progress of the peers; default for ever.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.options.idle_timeout_ms = limit_ms(Some(limit));
        self
    }

    /// Of stochastic rounding; results do not depend on the number of ranks.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// Frozen parameters do not count in the balance of the ranks.
    pub fn balance_trainable(mut self) -> Self {
        self.options.balance_trainable = 1;
        self
    }

    /// 16-bit parameters are updated without an `f32` copy of their values.
    pub fn no_master_copy(mut self) -> Self {
        self.options.no_master_copy = 1;
        self
    }

    /// [`Bf16`](crate::Bf16) without a master copy is rounded up or down at random, right on average.
    pub fn stochastic_rounding(mut self) -> Self {
        self.options.stochastic_rounding = 1;
        self
    }

    /// How parameters are given to ranks; default [`Partition::Parameters`].
    pub fn partition(mut self, partition: Partition) -> Self {
        self.options.partition = match partition {
            Partition::Parameters => sys::UJOIN_PARTITION_PARAMETERS,
            Partition::Elements => sys::UJOIN_PARTITION_ELEMENTS,
        };
        self
    }

    /// Parameters move into the library's memory, side by side: see [`Zero::with_value`].
    pub fn bucket_view(mut self) -> Self {
        self.options.bucket_view = 1;
        self
    }

    /// How long [`Zero::consolidate_state_dict`] may be without progress; default the group's.
    pub fn consolidate_timeout(mut self, limit: Duration) -> Self {
        self.options.consolidate_timeout_ms = limit_ms(Some(limit));
        self
    }

    /// The reducer of the same gradients makes the steps: each of its synchronised iterations ends with one in
    /// [`Ddp::finish`], bucket by bucket while later buckets are reduced, with the bits that [`Zero::step`] would have. That
    /// and clipping are refused then. The optimizer is dropped between iterations. With
    /// [`GradientSync::ToOwner`](crate::GradientSync::ToOwner) the reducer sums nothing, and a step comes after each iteration:
    /// it sums, updates and shares, piece by piece in the cache.
    pub fn ddp(mut self, ddp: &'g Ddp) -> Self {
        self.ddp = Some(ddp);
        self
    }

    /// The optimizer; the ranks check that they agree. Collective, blocking.
    pub fn build(self) -> Result<Zero> {
        let group = self.group.0.enter()?;
        let ddp = self.ddp.map(Ddp::enter).transpose()?;
        let hold = Hold::take(&self.sets)?;
        let memory = Arc::new(Borrowed::new(&self.sets));
        let params = all_to_c(&self.sets);
        let (_names, hyper) = hyper_to_c(&self.hyper)?;
        let custom = self.custom.map(RuleInC::new).transpose()?;
        let rule = custom.as_ref().map(RuleInC::to_c);
        let options = sys::ujoin_zero_options {
            hyper: hyper.as_ptr(),
            hyper_count: hyper.len(),
            rule: rule.as_ref().map_or(ptr::null(), |rule| rule),
            release: Some(callback::drop_arc::<Borrowed>),
            release_data: callback::share(&memory),
            ddp: ddp.as_ref().map_or(ptr::null_mut(), |ddp| ddp.raw()),
            ..self.options
        };
        let mut out = ptr::null_mut();
        // SAFETY: the library's shares keep parameters and rule until its notice, also if the call fails.
        check(unsafe { sys::zero_create(group.raw(), self.rule, params.as_ptr(), params.len(), &options, &mut out) })?;
        drop(hold);
        self.ddp.iter().for_each(|ddp| ddp.now_steps(&memory));
        let sets = RefCell::new(memory.sets());
        Ok(Zero { handle: Handle::adopt(out), memory, sets, has_scaler: Cell::new(false) })
    }
}

fn all_to_c(sets: &[Arc<ParamSet>]) -> Vec<sys::ujoin_param> {
    sets.iter().flat_map(|set| set.to_c(For::Zero)).collect()
}

fn hyper_to_c(hyper: &[(&str, f64)]) -> Result<(Vec<CString>, Vec<sys::ujoin_hyper>)> {
    let names = hyper.iter().map(|(name, _)| to_c(name, "hyper-parameter")).collect::<Result<Vec<_>>>()?;
    let values = pairs(&names, hyper.iter().map(|(_, value)| *value));
    Ok((names, values))
}

/// All parameters of an optimizer, of its later param groups too.
pub(crate) struct Borrowed(Mutex<Now>);

struct Now {
    sets: Arc<[Arc<ParamSet>]>,
    /// Of gradients that lie in a reducer's memory.
    keepers: Vec<Keeper>,
    /// Of the last step.
    scaler: Option<Arc<RawScaler>>,
}

impl Borrowed {
    fn new(sets: &[Arc<ParamSet>]) -> Self {
        let this = Self(Mutex::new(Now { sets: [].into(), keepers: Vec::new(), scaler: None }));
        sets.iter().for_each(|set| this.add(set));
        this
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sets(&self) -> Arc<[Arc<ParamSet>]> {
        Arc::clone(&self.now().sets)
    }

    fn add(&self, set: &Arc<ParamSet>) {
        let mut now = self.now();
        set.pin();
        now.keepers.extend(set.keepers());
        now.sets = now.sets.iter().chain([set]).cloned().collect();
    }

    /// The library did not take the last one.
    fn remove_last(&self) {
        let mut now = self.now();
        if let Some((last, before)) = now.sets.clone().split_last() {
            last.unpin();
            now.sets = before.into();
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.sets().iter().for_each(|set| set.unpin());
    }
}

/// One piece of the partition: which part of which parameter belongs to which rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The index of the parameter.
    pub param: usize,
    /// Where it begins, in elements.
    pub offset: usize,
    /// How many elements.
    pub count: usize,
    /// The owner.
    pub rank: usize,
    /// The param group.
    pub group: usize,
}

/// Bytes that a rank holds for an optimizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZeroMemory {
    /// The program's parameters.
    pub parameters: u64,
    /// The program's gradients.
    pub gradients: u64,
    /// The state of this rank's shard, master copies included, as it is now.
    pub state: u64,
    /// What a step needs beside that.
    pub buffers: u64,
    /// The state of all parameters with every step made: what an unsharded optimizer holds.
    pub full_state: u64,
}

/// Options of [`Zero::step_by`]; the same on every rank.
#[derive(Clone, Copy, Default)]
pub struct StepOptions<'s> {
    scaler: Option<&'s Scaler>,
    max_norm: f64,
    norm_type: f64,
    skip_nonfinite: bool,
}

impl<'s> StepOptions<'s> {
    /// Gradients carry its scale: they are divided by it and checked, and it is adapted.
    pub fn scaler(mut self, scaler: &'s Scaler) -> Self {
        self.scaler = Some(scaler);
        self
    }

    /// Gradients are clipped to this global norm as they are used.
    pub fn max_norm(mut self, norm: f64) -> Self {
        self.max_norm = norm;
        self
    }

    /// p of the norm, above 0; default 2; `f64::INFINITY` is the largest magnitude.
    pub fn norm_type(mut self, p: f64) -> Self {
        self.norm_type = p;
        self
    }

    /// Gradients are checked; with a scaler or a norm they always are.
    pub fn skip_nonfinite(mut self) -> Self {
        self.skip_nonfinite = true;
        self
    }
}

/// What a step did, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// A gradient is not finite: nothing was changed (but a scaler lowered).
    pub skipped: bool,
    /// The global norm as it was, with [`StepOptions::max_norm`].
    pub norm: Option<f64>,
}

impl Step {
    fn of(status: i32, options: &sys::ujoin_step_options, norm: f64) -> Self {
        let skipped = status == sys::UJOIN_SKIPPED;
        Self { skipped, norm: (options.max_norm != 0.0 && !skipped).then_some(norm) }
    }
}

/// What [`Zero::save_with`] writes and [`Zero::load_with`] reads; by default the optimizer's state.
#[derive(Default)]
pub struct SaveOptions<'s> {
    state: bool,
    parameters: bool,
    extra: Option<&'s State>,
    no_sync: bool,
}

impl<'s> SaveOptions<'s> {
    /// The optimizer's state: a directory with one file per rank and an index, which is renamed last.
    pub fn state(mut self) -> Self {
        self.state = true;
        self
    }

    /// The parameters: alone one safetensors file at the path, with the state in its directory.
    pub fn parameters(mut self) -> Self {
        self.parameters = true;
        self
    }

    /// This rank's own texts, numbers and bytes, saved with the state.
    pub fn extra(mut self, extra: &'s State) -> Self {
        self.extra = Some(extra);
        self
    }

    /// Do not wait for the disk: a crash of the machine may lose it.
    pub fn no_sync(mut self) -> Self {
        self.no_sync = true;
        self
    }

    fn parts(&self) -> i32 {
        let state = if self.state { sys::UJOIN_SAVE_STATE } else { 0 };
        state | if self.parameters { sys::UJOIN_SAVE_PARAMETERS } else { 0 }
    }
}

/// An optimizer whose state is sharded over the group.
pub struct Zero {
    handle: Handle<sys::ujoin_zero>,
    memory: Arc<Borrowed>,
    /// Those of `memory`, for this object's own calls: without its lock, which others may take.
    sets: RefCell<Arc<[Arc<ParamSet>]>>,
    /// Whether `memory` has a scaler.
    has_scaler: Cell<bool>,
}

impl Zero {
    /// An optimizer over a group; its parameters are added with [`ZeroBuilder::params`].
    pub fn builder(group: &Group, rule: impl Hyper) -> ZeroBuilder<'_> {
        fn begin<R: sealed::Rule>(group: &Group, rule: R) -> ZeroBuilder<'_> {
            let (hyper, sets, options) = (rule.pairs(), Vec::new(), Default::default());
            ZeroBuilder { group, rule: R::RULE, hyper, custom: rule.custom(), sets, ddp: None, options }
        }
        begin(group, rule)
    }

    /// The optimizer as a participant of a join context.
    pub fn joinable(&self) -> Joinable {
        // SAFETY: may be called at any time; the joinable lives as long as the optimizer, which it keeps.
        let raw = unsafe { sys::zero_joinable(self.handle.raw()) };
        let memory = Arc::clone(&self.memory);
        let lender: Lender = Arc::new(move || {
            let now = memory.now();
            Lent { sets: now.sets.to_vec(), scaler: now.scaler.clone() }
        });
        Joinable::of(raw, Arc::clone(self.handle.shared()) as _, lender)
    }

    /// One step: each rank updates its shard, all get the new parameters. Collective, blocking.
    pub fn step(&self) -> Result<()> {
        // SAFETY: NULL is no closure.
        self.using_all(|zero| unsafe { sys::zero_step(zero, ptr::null()) }).map(|_| ())
    }

    /// One step with options, which must be the same on every rank.
    pub fn step_by(&self, options: &StepOptions) -> Result<Step> {
        let mut norm = 0.0;
        let options = self.step_to_c(options, &mut norm);
        // SAFETY: the options live beyond the call.
        let status = self.using_all(|zero| unsafe { sys::zero_step(zero, &options) })?;
        Ok(Step::of(status, &options, norm))
    }

    /// The norm has a place of the caller's.
    fn step_to_c(&self, options: &StepOptions, norm: &mut f64) -> sys::ujoin_step_options {
        if self.has_scaler.replace(options.scaler.is_some()) || options.scaler.is_some() {
            self.memory.now().scaler = options.scaler.map(|scaler| Arc::clone(scaler.0.shared()));
        }
        sys::ujoin_step_options {
            scaler: options.scaler.map_or(ptr::null_mut(), |scaler| scaler.0.raw()),
            out_norm: norm,
            max_norm: options.max_norm,
            norm_type: options.norm_type,
            skip_nonfinite: options.skip_nonfinite.into(),
            ..Default::default()
        }
    }

    /// One step with a closure that computes loss and gradients anew before the update; what it returns. If it fails,
    /// nothing was changed; a panic in it goes on here.
    pub fn step_with<T>(&self, closure: impl FnOnce() -> Result<T>) -> Result<T> {
        self.try_step_with(closure)
    }

    /// [`step_with`](Self::step_with) for a closure with an error type of its own.
    pub fn try_step_with<T, E>(&self, closure: impl FnOnce() -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error>,
    {
        self.try_step_by_with(&StepOptions::default(), closure).map(|(value, _)| value)
    }

    /// One step with options and a closure, with an error type of its own: what it returns, and what the step did.
    pub fn try_step_by_with<T, E>(
        &self,
        options: &StepOptions,
        closure: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Step), E>
    where
        E: From<Error>,
    {
        let (call, sets, mut norm) = (self.handle.enter()?, self.sets.borrow(), 0.0);
        let mut slot = Slot { closure: Some(closure), result: None, hold: None, sets: &sets };
        let options = sys::ujoin_step_options {
            closure: Some(run_closure_of(&slot)),
            closure_data: (&raw mut slot).cast(),
            ..self.step_to_c(options, &mut norm)
        };
        // SAFETY: one call at a time; the slot outlives the call, and holds the parameters once the closure is done.
        let result = check(unsafe { sys::zero_step(call.raw(), &options) });
        callback::resume_panic();
        slot.hold = None;
        match (result, slot.result) {
            (_, Some(Err(error))) => Err(error),
            (Ok(status), Some(Ok(value))) => Ok((value, Step::of(status, &options, norm))),
            (Err(error), _) => Err(error.into()),
            (Ok(_), None) => unreachable!("a step that succeeds has run its closure"),
        }
    }

    /// Adds parameters with hyper-parameters of their own (absent: as the optimizer was given); indices go on from the
    /// last. Collective, blocking.
    pub fn add_param_group<E: Element>(&self, params: &Params<E>, hyper: &[(&str, f64)]) -> Result<()> {
        let call = self.handle.enter()?;
        let (_names, hyper) = hyper_to_c(hyper)?;
        let hold = Hold::take(std::slice::from_ref(&params.set))?;
        self.memory.add(&params.set); // before the library has them
        let params: Vec<_> = params.set.to_c(For::Zero).collect();
        // SAFETY: the library's share of `memory` keeps the parameters until its notice.
        let status = unsafe {
            sys::zero_add_param_group(call.raw(), params.as_ptr(), params.len(), hyper.as_ptr(), hyper.len())
        };
        drop(hold);
        let result = check(status).inspect_err(|_| self.memory.remove_last()).map(|_| ());
        *self.sets.borrow_mut() = self.memory.sets();
        result
    }

    /// The number of param groups.
    pub fn group_count(&self) -> usize {
        // SAFETY: the handle is in one thread.
        unsafe { sys::zero_group_count(self.handle.raw()) }
    }

    /// The names of this rule's hyper-parameters.
    pub fn hyper_names(&self) -> Vec<String> {
        let name = |index| {
            // SAFETY: the handle is in one thread; the text lives with it.
            let name = unsafe { sys::zero_hyper_name(self.handle.raw(), index) };
            // SAFETY: the same.
            (!name.is_null()).then(|| unsafe { from_c(name) })
        };
        (0..).map_while(name).collect()
    }

    /// Changes a hyper-parameter of a param group, or of all (`None`), from the next step on; the same on every rank.
    pub fn set_hyper(&self, group: Option<usize>, name: &str, value: f64) -> Result<()> {
        let (name, call) = (to_c(name, "name")?, self.handle.enter()?);
        // SAFETY: one call at a time.
        check(unsafe { sys::zero_set_hyper(call.raw(), rank_or_all(group), name.as_ptr(), value) })?;
        Ok(())
    }

    /// A hyper-parameter of a param group.
    pub fn hyper(&self, group: usize, name: &str) -> Result<f64> {
        let (name, call, mut value) = (to_c(name, "name")?, self.handle.enter()?, 0.0);
        // SAFETY: one call at a time.
        check(unsafe { sys::zero_get_hyper(call.raw(), rank_to_c(group), name.as_ptr(), &mut value) })?;
        Ok(value)
    }

    /// Whether parameter `index` has a gradient from now on; one without is skipped and keeps its step count.
    pub fn set_gradient(&self, index: usize, present: bool) -> Result<()> {
        let (call, sets) = (self.handle.enter()?, self.sets.borrow());
        let grad = if present { gradient_of(&sets, index) } else { ptr::null_mut() };
        // SAFETY: one call at a time; the gradient lives with its parameter.
        check(unsafe { sys::zero_set_gradient(call.raw(), index, grad) })?;
        Ok(())
    }

    /// Freezes parameter `index` or trains it again from the next step on; its state is kept. The same on every rank. With
    /// [`ZeroBuilder::bucket_view`] its value moves, back into [`Params`] while it is frozen.
    pub fn set_frozen(&self, index: usize, frozen: bool) -> Result<()> {
        // SAFETY: nobody else uses the parameters.
        self.using_all(|zero| unsafe { sys::zero_set_frozen(zero, index, frozen.into()) }).map(|_| ())
    }

    /// Looks at the value of parameter `index`, or changes it, where it lies: with [`ZeroBuilder::bucket_view`] in the
    /// library's memory, which ends with this object, while it is trained, and in [`Params`] while it is frozen; else always
    /// there. [`Invalid`](crate::ErrorKind::Invalid): it is of another type, or there is no such parameter.
    pub fn with_value<E: Element, T>(&self, index: usize, look: impl FnOnce(&mut [E]) -> T) -> Result<T> {
        let (call, sets) = (self.handle.enter()?, self.sets.borrow());
        let (set, place) = find(&sets, index)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("there is no parameter {index}")))?;
        check_type::<E>(set.dtype(), "the parameter")?;
        let _hold = Hold::take(&sets)?;
        // SAFETY: so many elements of this type lie there, and nobody else uses them while the call lasts.
        Ok(look(unsafe { elements(sys::zero_param_data(call.raw(), index), set.count(place)) }))
    }

    /// Scales all gradients so that their global norm (`norm_type` as in [`StepOptions::norm_type`]) is at most `max_norm`:
    /// the norm before. `None`: a gradient is not finite, and nothing was changed, on every rank. Not in an armed join
    /// context: there give [`StepOptions::max_norm`] to the step. Collective, blocking.
    pub fn clip_grad_norm(&self, max_norm: f64, norm_type: f64) -> Result<Option<f64>> {
        let mut norm = 0.0;
        // SAFETY: the number lives beyond the call.
        let status =
            self.using_all(|zero| unsafe { sys::zero_clip_grad_norm(zero, max_norm, norm_type, &mut norm) })?;
        Ok((status != sys::UJOIN_SKIPPED).then_some(norm))
    }

    /// Sets the gradients of all parameters to zero, not only those of the shard.
    pub fn clear_gradients(&self) -> Result<()> {
        // SAFETY: nothing but the handle.
        self.using_all(|zero| unsafe { sys::zero_clear_gradients(zero) }).map(|_| ())
    }

    /// The bytes that this rank holds.
    pub fn memory(&self) -> Result<ZeroMemory> {
        let (call, mut memory) = (self.handle.enter()?, sys::ujoin_zero_memory::new());
        // SAFETY: one call at a time; the struct has its size.
        check(unsafe { sys::zero_get_memory(call.raw(), &mut memory) })?;
        Ok(ZeroMemory {
            parameters: memory.parameters,
            gradients: memory.gradients,
            state: memory.state,
            buffers: memory.buffers,
            full_state: memory.full_state,
        })
    }

    /// Brings all state together on rank `to`, whose [`state_dict`](Self::state_dict) then gives it until the next step or
    /// load. The others send their shards, once, and need no memory for it. Collective, blocking.
    pub fn consolidate_state_dict(&self, to: usize) -> Result<()> {
        // SAFETY: nothing but the handle.
        self.using_all(|zero| unsafe { sys::zero_consolidate_state_dict(zero, rank_to_c(to)) }).map(|_| ())
    }

    /// The consolidated state, which stays as it is. [`State`](crate::ErrorKind::State): nothing was consolidated to this
    /// rank, or a step, a load or a new param group has come after it.
    pub fn state_dict(&self) -> Result<State> {
        let (call, mut out) = (self.handle.enter()?, ptr::null_mut());
        // SAFETY: one call at a time.
        check(unsafe { sys::zero_state_dict(call.raw(), &mut out) })?;
        Ok(State(Handle::adopt(out)))
    }

    /// Takes state and hyper-parameters from a list, whatever the number of ranks that saved it. Collective, blocking.
    pub fn load_state_dict(&self, state: &State) -> Result<()> {
        let state = state.0.enter()?;
        // SAFETY: the list is only read.
        self.using_all(|zero| unsafe { sys::zero_load_state_dict(zero, state.raw()) }).map(|_| ())
    }

    /// Saves the optimizer's state into a directory that all ranks see. Collective, blocking.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, &SaveOptions::default())
    }

    /// Saves what the options say. What was there before stays whole until all is on the disk.
    pub fn save_with(&self, path: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
        let path = path_to_c(path.as_ref(), "path")?;
        let extra = options.extra.map(|state| state.0.enter()).transpose()?;
        let to_c = sys::ujoin_save_options {
            extra: extra.as_ref().map_or(ptr::null_mut(), |state| state.raw()),
            parts: options.parts(),
            no_sync: options.no_sync.into(),
            ..Default::default()
        };
        // SAFETY: path and options live beyond the call.
        self.using_all(|zero| unsafe { sys::zero_save(zero, path.as_ptr(), &to_c) }).map(|_| ())
    }

    /// Loads the optimizer's state that as many ranks saved: this rank's own items. Collective, blocking.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<State> {
        self.load_with(path, &SaveOptions::default())
    }

    /// Loads what the options say. [`Mismatch`](crate::ErrorKind::Mismatch): which file is wrong how; nothing was changed.
    pub fn load_with(&self, path: impl AsRef<Path>, options: &SaveOptions) -> Result<State> {
        let (path, mut out) = (path_to_c(path.as_ref(), "path")?, ptr::null_mut());
        let to_c = sys::ujoin_save_options { parts: options.parts(), ..Default::default() };
        // SAFETY: path and options live beyond the call.
        self.using_all(|zero| unsafe { sys::zero_load(zero, path.as_ptr(), &to_c, &mut out) })?;
        Ok(State(Handle::adopt(out)))
    }

    /// The partition, over all ranks.
    pub fn shards(&self) -> Result<Vec<Shard>> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time.
        let count = unsafe { sys::zero_shard_count(call.raw()) };
        (0..count).map(|index| shard(call.raw(), index)).collect()
    }

    /// A call that may touch all parameters and gradients.
    fn using_all(&self, call: impl FnOnce(*mut sys::ujoin_zero) -> i32) -> Result<i32> {
        let (entered, sets) = (self.handle.enter()?, self.sets.borrow());
        let hold = Hold::take(&sets)?;
        let status = call(entered.raw());
        drop(hold);
        let result = check(status);
        callback::resume_panic(); // of the program's rule, also when the group broke meanwhile
        result
    }
}

fn shard(zero: *const sys::ujoin_zero, index: usize) -> Result<Shard> {
    let mut piece = sys::ujoin_shard::new();
    // SAFETY: the caller is in a call; the struct has its size.
    check(unsafe { sys::zero_get_shard(zero, index, &mut piece) })?;
    Ok(Shard {
        param: piece.param,
        offset: piece.offset,
        count: piece.count,
        rank: maybe_rank(piece.rank).unwrap_or_default(),
        group: maybe_rank(piece.group).unwrap_or_default(),
    })
}

/// The gradient memory of a parameter by its index over all sets; NULL if it is frozen or there is no such parameter.
fn gradient_of(sets: &[Arc<ParamSet>], index: usize) -> *mut c_void {
    find(sets, index).and_then(|(set, place)| set.gradient_pointer(place)).unwrap_or(ptr::null_mut())
}

/// The set of a parameter, and its place there.
fn find(sets: &[Arc<ParamSet>], mut index: usize) -> Option<(&ParamSet, usize)> {
    for set in sets {
        if index < set.len() {
            return Some((set, index));
        }
        index -= set.len();
    }
    None
}

/// A step's closure, its result, and the hold on the parameters, which begins when it is done.
struct Slot<'s, F, T, E> {
    closure: Option<F>,
    result: Option<Result<T, E>>,
    hold: Option<Hold<'s>>,
    sets: &'s [Arc<ParamSet>],
}

fn run_closure_of<F, T, E>(_slot: &Slot<F, T, E>) -> unsafe extern "C" fn(*mut c_void) -> i32
where
    F: FnOnce() -> Result<T, E>,
{
    run_closure::<F, T, E>
}

/// # Safety
/// Called by the library with the slot of the step that it is in.
unsafe extern "C" fn run_closure<F, T, E>(data: *mut c_void) -> i32
where
    F: FnOnce() -> Result<T, E>,
{
    // SAFETY: the caller's promise; nobody else looks at the slot meanwhile.
    let slot = unsafe { &mut *data.cast::<Slot<F, T, E>>() };
    callback::run(|| {
        let closure = slot.closure.take().ok_or("the closure of a step runs once")?;
        let result = slot.result.insert(closure());
        if result.is_err() {
            return Err("the closure of a step failed".into());
        }
        slot.hold = Some(Hold::take(slot.sets)?);
        Ok(())
    })
}
