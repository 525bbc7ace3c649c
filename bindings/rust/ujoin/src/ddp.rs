// SPDX-License-Identifier: Apache-2.0
use crate::callback;
use crate::error::check;
use crate::handle::{Entered, Handle, Raw};
use crate::hook::{BufferTime, CommHook};
use crate::join::Joinable;
use crate::params::{For, Hold, HoldValues, Keeper, ParamSet, Params};
use crate::scaler::RawScaler;
use crate::text::{limit_ms, maybe_rank, rank_to_c};
use crate::{zero, Element, Error, ErrorKind, Group, Result};
use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use ujoin_sys as sys;

impl Raw for sys::ujoin_ddp {
    const NAME: &'static str = "gradient reducer";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::ujoin_ddp_destroy(raw) }
    }
    unsafe fn abort(_raw: *mut Self, _reason: &CStr) {} // a reducer is given up with its group
}

/// What a summed gradient is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// The size of the group (default).
    Initial = sys::UJOIN_DIVISION_INITIAL as isize,
    /// The ranks that have not joined.
    Active = sys::UJOIN_DIVISION_ACTIVE as isize,
    /// The samples of all ranks: equals one process that sees every sample.
    Samples = sys::UJOIN_DIVISION_SAMPLES as isize,
}

/// What the program's gradients are, for [`Division::Samples`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientKind {
    /// The mean over the rank's own samples (default).
    Mean = sys::UJOIN_GRADIENT_MEAN as isize,
    /// Their sum; the one for accumulation.
    Sum = sys::UJOIN_GRADIENT_SUM as isize,
}

/// Who sums the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientSync {
    /// The reducer, for every rank (default).
    All = sys::UJOIN_GRADIENT_SYNC_ALL as isize,
    /// The step of the optimizer that is made with the reducer, each element for the rank that owns it. An iteration then
    /// reduces nothing, and a step comes after it.
    ToOwner = sys::UJOIN_GRADIENT_SYNC_TO_OWNER as isize,
}

/// How a [`Ddp`] is made.
pub struct DdpBuilder<'g> {
    group: &'g Group,
    sets: Vec<Arc<ParamSet>>,
    buffers: Vec<Arc<ParamSet>>,
    options: sys::ujoin_ddp_options,
}

impl DdpBuilder<'_> {
    /// The parameters to train; may be repeated, also with another type of element.
    pub fn params<E: Element>(mut self, params: &Params<E>) -> Self {
        self.sets.push(Arc::clone(&params.set));
        self
    }

    /// Tensors that are synchronised and not trained, running statistics for example, of any type; may be repeated. Each
    /// iteration begins with those of the lowest rank that has not joined. Their gradients are not used:
    /// [`ParamsBuilder::frozen`](crate::ParamsBuilder::frozen) needs no memory for them.
    pub fn buffers<E: Element>(mut self, buffers: &Params<E>) -> Self {
        self.buffers.push(Arc::clone(&buffers.set));
        self
    }

    /// Buffers are each rank's own during training.
    pub fn no_buffer_broadcast(mut self) -> Self {
        self.options.no_buffer_broadcast = 1;
        self
    }

    /// Parameters may get no gradient in an iteration: those that are not ready at its end are unused. One that no rank
    /// used is left alone, one that others used counts as zeros here.
    pub fn find_unused(mut self) -> Self {
        self.options.find_unused = 1;
        self
    }

    /// The same, but each rank uses the same ones in every iteration.
    pub fn static_graph(mut self) -> Self {
        self.options.static_graph = 1;
        self
    }

    /// The gradients of the parameters move into the library's memory, side by side, which saves copying them; they stay
    /// where they were for the program. To be made before other objects of the same parameters
    /// ([`State`](crate::ErrorKind::State)). The memory lives as long as anything uses it; when the reducer and all that
    /// was made of these parameters later are gone, gradients are zeros in memory of their own again.
    pub fn bucket_view(mut self) -> Self {
        self.options.bucket_view = 1;
        self
    }

    /// A parameter is not read any more once its gradient is ready: an optimizer that was made with this reducer then
    /// updates it, on every rank, while later gradients are still computed. From `ready` to the end of the iteration its
    /// values are the library's.
    pub fn params_released_on_ready(mut self) -> Self {
        self.options.params_released_on_ready = 1;
        self
    }

    /// Default: [`Division::Initial`].
    pub fn division(mut self, division: Division) -> Self {
        self.options.division = division as i32;
        self
    }

    /// Default: [`GradientKind::Mean`].
    pub fn gradient_kind(mut self, kind: GradientKind) -> Self {
        self.options.gradient_kind = kind as i32;
        self
    }

    /// Default: [`GradientSync::All`].
    pub fn gradient_sync(mut self, sync: GradientSync) -> Self {
        self.options.gradient_sync = sync as i32;
        self
    }

    /// Parameters and buffers are equal already: only names, shapes and types are compared.
    pub fn no_initial_broadcast(mut self) -> Self {
        self.options.no_initial_broadcast = 1;
        self
    }

    /// Whose parameters and buffers all start from; default rank 0.
    pub fn source_rank(mut self, rank: usize) -> Self {
        self.options.source_rank = rank_to_c(rank);
        self
    }

    /// The size of the first bucket; default 1 MiB.
    pub fn first_bucket_bytes(mut self, bytes: usize) -> Self {
        self.options.first_bucket_bytes = bytes;
        self
    }

    /// The size of the other buckets; default 25 MiB.
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.options.bucket_bytes = bytes;
        self
    }

    /// How long without progress of the peers; default for ever.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.options.idle_timeout_ms = limit_ms(Some(limit));
        self
    }

    /// Compares the parameters over the ranks, then copies the source rank's values to all. Collective, blocking.
    pub fn build(self) -> Result<Ddp> {
        let group = self.group.0.enter()?;
        let all: Vec<_> = self.sets.iter().chain(&self.buffers).cloned().collect();
        let hold = Hold::take(&all)?;
        let moves = self.options.bucket_view != 0;
        if moves && self.sets.iter().any(|set| set.is_pinned()) {
            let text = "gradients cannot move: something was made of these parameters before; bucket_view comes first";
            return Err(Error::new(ErrorKind::State, text));
        }
        let may_lack = self.options.find_unused != 0 || self.options.static_graph != 0;
        let releases = self.options.params_released_on_ready != 0;
        let memory = Arc::new(Borrowed::new(self.sets, self.buffers, may_lack, releases));
        let params: Vec<_> = memory.sets.iter().flat_map(|set| set.to_c(For::Ddp)).collect();
        let buffers: Vec<_> = memory.buffers.iter().flat_map(|set| set.buffers_to_c()).collect();
        let options = sys::ujoin_ddp_options {
            buffers: buffers.as_ptr(),
            buffer_count: buffers.len(),
            release: Some(release),
            release_data: callback::share(&memory),
            ..self.options
        };
        let mut out = ptr::null_mut();
        // SAFETY: the library's share keeps the parameters until its notice, also if the call fails.
        check(unsafe { sys::ujoin_ddp_create(group.raw(), params.as_ptr(), params.len(), &options, &mut out) })?;
        let ddp = Ddp { handle: Handle::adopt(out), memory };
        if moves {
            ddp.move_gradients();
        }
        drop(hold);
        Ok(ddp)
    }
}

/// The parameters of a reducer, and which of their gradients the library has in an iteration.
pub(crate) struct Borrowed {
    sets: Vec<Arc<ParamSet>>,
    buffers: Vec<Arc<ParamSet>>,
    /// Of each parameter in turn: its set, its index there, whether its gradient is lent.
    places: Vec<(usize, usize, AtomicBool)>,
    lent: AtomicUsize,
    /// How many are reduced.
    reduced: usize,
    /// Those that are not ready at the end of an iteration are unused.
    may_lack: bool,
    /// Values are lent with their gradients.
    releases: bool,
    iterating: AtomicBool,
    /// Of the optimizer that it steps.
    stepped: Mutex<Weak<zero::Borrowed>>,
    /// Of gradients that lie in another reducer's memory.
    _keepers: Vec<Keeper>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.sets.iter().for_each(|set| set.unpin());
    }
}

impl Borrowed {
    fn new(sets: Vec<Arc<ParamSet>>, buffers: Vec<Arc<ParamSet>>, may_lack: bool, releases: bool) -> Self {
        let of_set = |(s, set): (usize, &Arc<ParamSet>)| (0..set.len()).map(move |i| (s, i, AtomicBool::new(false)));
        let places: Vec<(usize, usize, AtomicBool)> = sets.iter().enumerate().flat_map(of_set).collect();
        let reduced = places.iter().filter(|(set, place, _)| sets[*set].is_reduced(*place)).count();
        let _keepers = sets.iter().flat_map(|set| set.keepers()).collect();
        sets.iter().for_each(|set| set.pin());
        let (lent, iterating) = (AtomicUsize::new(0), AtomicBool::new(false));
        let stepped = Mutex::default();
        Self { sets, buffers, places, lent, reduced, may_lack, releases, iterating, stepped, _keepers }
    }

    /// Lends a gradient; false if it is lent already or there is none, which the library has its own words for.
    fn lend(&self, index: usize) -> Result<bool> {
        let Some((set, place, lent)) = self.places.get(index) else {
            return Ok(false);
        };
        if lent.load(Ordering::Acquire) || !self.sets[*set].is_reduced(*place) {
            return Ok(false);
        }
        self.sets[*set].lend_gradient(*place)?;
        if self.releases {
            if let Err(error) = self.sets[*set].lend_value(*place) {
                self.sets[*set].take_back_gradient(*place);
                return Err(error);
            }
        }
        lent.store(true, Ordering::Release);
        self.lent.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }

    fn take_back(&self, index: usize) {
        let (set, place, lent) = &self.places[index];
        if lent.swap(false, Ordering::AcqRel) {
            self.lent.fetch_sub(1, Ordering::AcqRel);
            self.sets[*set].take_back_gradient(*place);
            if self.releases {
                self.sets[*set].take_back_value(*place);
            }
        }
    }

    fn take_all_back(&self) {
        (0..self.places.len()).for_each(|index| self.take_back(index));
    }

    fn all_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire) == self.reduced
    }

    /// Lends what is not ready, as the end of an iteration fills in what other ranks have.
    fn lend_rest(&self) -> Result<Vec<usize>> {
        let mut newly = Vec::new();
        for index in (0..self.places.len()).filter(|_| self.may_lack) {
            match self.lend(index) {
                Ok(lent) => newly.extend(lent.then_some(index)),
                Err(error) => {
                    newly.iter().for_each(|&index| self.take_back(index));
                    return Err(error);
                }
            }
        }
        Ok(newly)
    }

    fn all_sets(&self) -> Vec<Arc<ParamSet>> {
        self.sets.iter().chain(&self.buffers).chain(self.stepped().iter()).cloned().collect()
    }

    /// Whose values the end of an iteration may write, of those that are not lent with their gradients.
    fn written_at_the_end(&self) -> Arc<[Arc<ParamSet>]> {
        if self.releases {
            [].into()
        } else {
            self.stepped()
        }
    }

    /// Of the optimizer that it steps.
    fn stepped(&self) -> Arc<[Arc<ParamSet>]> {
        let optimizer = self.stepped.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        optimizer.map_or_else(|| [].into(), |optimizer| optimizer.sets())
    }
}

/// The library does not touch the memory any more: what an unfinished iteration had is free too.
unsafe extern "C" fn release(data: *mut std::ffi::c_void) {
    // SAFETY: the share that was given, not taken back yet.
    unsafe { (*data.cast_const().cast::<Borrowed>()).take_all_back() };
    // SAFETY: the same.
    unsafe { callback::drop_arc::<Borrowed>(data) };
}

/// Says that a gradient is complete: `ready(index)?`. Different gradients may be said by several threads at once.
pub type Ready<'a> = dyn Fn(usize) -> Result<()> + Sync + 'a;

/// What a reducer did.
#[derive(Clone, Debug, PartialEq)]
pub struct DdpReport {
    /// Synchronised iterations.
    pub iterations: u64,
    /// Of the last one; 0: no rank had a sample, gradients were left alone.
    pub divisor: f64,
    /// Of all ranks in the last one.
    pub samples: f64,
    /// The time that reductions took, all iterations.
    pub reduce: Duration,
    /// Of that, the time spent waiting at the end of iterations: the rest was hidden.
    pub exposed: Duration,
    /// The number of buckets.
    pub buckets: usize,
    /// Whether buckets follow the order in which gradients became ready.
    pub rebuilt: bool,
    /// Whether it has been in a join context with uneven inputs.
    pub joined_uneven: bool,
}

/// Reduces gradients over the ranks while the backward pass goes on.
pub struct Ddp {
    handle: Handle<sys::ujoin_ddp>,
    memory: Arc<Borrowed>,
}

impl Ddp {
    /// A reducer over a group; its parameters are added with [`DdpBuilder::params`].
    pub fn builder(group: &Group) -> DdpBuilder<'_> {
        DdpBuilder { group, sets: Vec::new(), buffers: Vec::new(), options: Default::default() }
    }

    /// One iteration on a batch of so many samples (0 is allowed): `backward` computes the gradients and says of each that
    /// it is ready; when this returns, gradients hold the divided sum on every rank. Indices count the parameters in the
    /// order in which they were given to the builder. An error of `backward` leaves the iteration open, and with it a join
    /// context and the group are to be given up, as [`Join::run`](crate::Join::run) does.
    pub fn iteration<T>(&self, samples: usize, backward: impl FnOnce(&Ready) -> Result<T>) -> Result<T> {
        self.try_iteration(samples, backward)
    }

    /// [`iteration`](Self::iteration) for a backward pass with an error type of its own.
    pub fn try_iteration<T, E>(&self, samples: usize, backward: impl FnOnce(&Ready) -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error>,
    {
        self.forward(samples as f64)?;
        let caller = ReadyCaller { ddp: self.handle.shared(), memory: &self.memory };
        let result = backward(&|index| caller.ready(index))?;
        self.finish()?;
        Ok(result)
    }

    /// Begins an iteration and notifies the join context. False: called from a hook of a rank that has joined, nothing was
    /// begun.
    pub fn forward(&self, samples: f64) -> Result<bool> {
        let (call, hold) = (self.handle.enter()?, Hold::take(&self.memory.buffers)?);
        // SAFETY: one call at a time; the buffers are the library's meanwhile.
        let status = unsafe { sys::ujoin_ddp_forward(call.raw(), samples) };
        drop(hold);
        let begun = check_call(status)? != sys::UJOIN_JOINED;
        self.memory.iterating.store(begun, Ordering::Release);
        Ok(begun)
    }

    /// Gradient `index` is complete, and the library's until the iteration ends. With
    /// [`params_released_on_ready`](DdpBuilder::params_released_on_ready) so are the values of the parameter, and updates that
    /// are due are made here, which waits for the other ranks; an error in one ends the iteration.
    pub fn ready(&self, index: usize) -> Result<()> {
        ReadyCaller { ddp: self.handle.shared(), memory: &self.memory }.ready(index)
    }

    /// Ends an iteration: waits for the reductions, and for the step of an optimizer that was made with
    /// [`ZeroBuilder::ddp`](crate::ZeroBuilder::ddp). [`State`](crate::ErrorKind::State): a gradient is not ready (listed).
    /// A panic in the program's hook or rule goes on here.
    pub fn finish(&self) -> Result<()> {
        let (call, hold) = (self.handle.enter()?, Hold::take(&self.memory.buffers)?);
        let values = HoldValues::take(&self.memory.written_at_the_end())?;
        let all_ready = self.memory.all_lent();
        let newly = self.memory.lend_rest()?;
        // SAFETY: one call at a time; buffers, gradients and what an optimizer updates are the library's meanwhile.
        let status = unsafe { sys::ujoin_ddp_finish(call.raw()) };
        drop((hold, values));
        // With all gradients ready the iteration is over, whatever the result. Else they may be in flight still.
        if status >= 0 || all_ready {
            self.memory.take_all_back();
            self.memory.iterating.store(false, Ordering::Release);
        } else {
            newly.into_iter().for_each(|index| self.memory.take_back(index));
        }
        check_call(status).map(|_| ())
    }

    /// False: the next iterations accumulate gradients, with no reduction and no notice to the join context; true: they
    /// synchronise again. The same on every rank, between iterations. What was accumulated when a join context ends is not
    /// reduced.
    pub fn set_sync(&self, enabled: bool) -> Result<()> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time.
        check(unsafe { sys::ujoin_ddp_set_sync(call.raw(), enabled.into()) }).map(|_| ())
    }

    /// Chooses how buckets are reduced; once, before the first iteration, the same on every rank.
    pub fn set_comm_hook(&self, hook: CommHook) -> Result<()> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time; the library owns the hook from now on.
        hook.with_c(|hook| unsafe { sys::ujoin_ddp_set_comm_hook(call.raw(), hook) })
    }

    /// Replaces the broadcast of buffers: the hook is called for each of them in each synchronised iteration. Average or
    /// the program's own; once, before the first iteration, the same on every rank.
    pub fn set_buffer_hook(&self, time: BufferTime, hook: CommHook) -> Result<()> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time; the library owns the hook from now on.
        hook.with_c(|hook| unsafe { sys::ujoin_ddp_set_buffer_hook(call.raw(), time as i32, hook) })
    }

    /// How many ranks used each parameter in the last synchronised iteration (with a static graph in the first one);
    /// joined ranks do not count.
    pub fn used(&self) -> Result<Vec<usize>> {
        let call = self.handle.enter()?;
        let mut ranks = vec![0; self.memory.places.len()];
        // SAFETY: one call at a time; the array has the capacity that is given.
        if unsafe { sys::ujoin_ddp_used(call.raw(), ranks.as_mut_ptr(), ranks.len()) } == 0 {
            return Err(Error::last(ErrorKind::State.status()));
        }
        Ok(ranks.into_iter().map(|count| maybe_rank(count).unwrap_or_default()).collect())
    }

    /// Gradients are where the library has them from now on.
    fn move_gradients(&self) {
        for (index, (set, place, _)) in self.memory.places.iter().enumerate() {
            // SAFETY: may be called at any time; the place is good as long as the reducer.
            let gradient = unsafe { sys::ujoin_ddp_gradient(self.handle.raw(), index) };
            if let Some(gradient) = NonNull::new(gradient.cast()) {
                let keeper = Arc::downgrade(self.handle.shared()) as _;
                self.memory.sets[*set].move_gradient(*place, gradient, keeper);
            }
        }
    }

    /// Counts, divisor and times.
    pub fn report(&self) -> Result<DdpReport> {
        let (call, mut report) = (self.handle.enter()?, sys::ujoin_ddp_report::new());
        // SAFETY: one call at a time; the struct has its size.
        check(unsafe { sys::ujoin_ddp_get_report(call.raw(), &mut report) })?;
        Ok(DdpReport {
            iterations: report.iterations as u64,
            divisor: report.divisor,
            samples: report.samples,
            reduce: Duration::from_micros(report.reduce_us as u64),
            exposed: Duration::from_micros(report.exposed_us as u64),
            buckets: report.bucket_count,
            rebuilt: report.rebuilt != 0,
            joined_uneven: report.joined_uneven != 0,
        })
    }

    /// A call of the library's that attaches an optimizer.
    pub(crate) fn enter(&self) -> Result<Entered<'_, sys::ujoin_ddp>> {
        self.handle.enter()
    }

    /// The end of an iteration updates these from now on, as long as they are there.
    pub(crate) fn now_steps(&self, optimizer: &Arc<zero::Borrowed>) {
        *self.memory.stepped.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(optimizer);
    }

    /// The reducer as a participant of a join context.
    pub fn joinable(&self) -> Joinable {
        // SAFETY: may be called at any time; the joinable lives as long as the reducer, which it keeps.
        let raw = unsafe { sys::ujoin_ddp_joinable(self.handle.raw()) };
        let (owner, memory) = (Arc::clone(self.handle.shared()), Arc::clone(&self.memory));
        Joinable::of(raw, owner, Arc::new(move || Lent { sets: memory.all_sets(), scaler: None }))
    }
}

/// `ready` for several threads at once.
struct ReadyCaller<'a> {
    ddp: &'a crate::handle::Shared<sys::ujoin_ddp>,
    memory: &'a Borrowed,
}

impl ReadyCaller<'_> {
    fn ready(&self, index: usize) -> Result<()> {
        let newly = self.memory.lend(index)?;
        // SAFETY: may be called from several threads; the gradient is the library's from now on.
        let result = check(unsafe { sys::ujoin_ddp_ready(self.ddp.raw(), index) });
        if newly && result.is_err() && !self.memory.iterating.load(Ordering::Acquire) {
            self.memory.take_back(index); // outside of an iteration nothing can be in flight
        }
        callback::resume_panic(); // of the program's hook
        result.map(|_| ())
    }
}

/// For calls that run hooks of the program: a panic in one goes on, whatever the call says.
fn check_call(status: i32) -> Result<i32> {
    let result = check(status);
    callback::resume_panic();
    result
}

/// What a joined rank's shadows use.
#[derive(Default)]
pub(crate) struct Lent {
    pub(crate) sets: Vec<Arc<ParamSet>>,
    pub(crate) scaler: Option<Arc<RawScaler>>,
}

/// That at the moment: an optimizer's parameters grow.
pub(crate) type Lender = Arc<dyn Fn() -> Lent + Send + Sync>;
