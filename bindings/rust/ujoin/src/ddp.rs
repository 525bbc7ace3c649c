// SPDX-License-Identifier: Apache-2.0
use crate::callback;
use crate::error::check;
use crate::handle::{Handle, Raw};
use crate::join::Joinable;
use crate::params::{Hold, ParamSet, Params};
use crate::text::{limit_ms, rank_to_c};
use crate::{Element, Error, Group, Result};
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
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

/// How a [`Ddp`] is made.
pub struct DdpBuilder<'g> {
    group: &'g Group,
    sets: Vec<Arc<ParamSet>>,
    options: sys::ujoin_ddp_options,
}

impl DdpBuilder<'_> {
    /// The parameters to train; may be repeated, also with another type of element.
    pub fn params<E: Element>(mut self, params: &Params<E>) -> Self {
        self.sets.push(Arc::clone(&params.set));
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

    /// Parameters are equal already: only names, shapes and types are compared.
    pub fn no_initial_broadcast(mut self) -> Self {
        self.options.no_initial_broadcast = 1;
        self
    }

    /// Whose parameters all start from; default rank 0.
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
        let hold = Hold::take(&self.sets)?;
        let memory = Arc::new(Borrowed::new(self.sets.clone()));
        let params: Vec<_> = self.sets.iter().flat_map(|set| set.to_c()).collect();
        let options =
            sys::ujoin_ddp_options { release: Some(release), release_data: callback::share(&memory), ..self.options };
        let mut out = ptr::null_mut();
        // SAFETY: the library's share keeps the parameters until its notice, also if the call fails.
        check(unsafe { sys::ujoin_ddp_create(group.raw(), params.as_ptr(), params.len(), &options, &mut out) })?;
        drop(hold);
        Ok(Ddp { handle: Handle::adopt(out), memory })
    }
}

/// The parameters of a reducer, and which of their gradients the library has in an iteration.
pub(crate) struct Borrowed {
    pub(crate) sets: Vec<Arc<ParamSet>>,
    /// Of each parameter in turn: its set, its index there, whether its gradient is lent.
    places: Vec<(usize, usize, AtomicBool)>,
    lent: AtomicUsize,
    iterating: AtomicBool,
}

impl Borrowed {
    fn new(sets: Vec<Arc<ParamSet>>) -> Self {
        let of_set = |(s, set): (usize, &Arc<ParamSet>)| (0..set.len()).map(move |i| (s, i, AtomicBool::new(false)));
        let places = sets.iter().enumerate().flat_map(of_set).collect();
        Self { sets, places, lent: AtomicUsize::new(0), iterating: AtomicBool::new(false) }
    }

    /// Lends a gradient; false if it is lent already or there is none, which the library has its own words for.
    fn lend(&self, index: usize) -> Result<bool> {
        let Some((set, place, lent)) = self.places.get(index) else {
            return Ok(false);
        };
        if lent.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.sets[*set].lend_gradient(*place)?;
        lent.store(true, Ordering::Release);
        self.lent.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }

    fn take_back(&self, index: usize) {
        let (set, place, lent) = &self.places[index];
        if lent.swap(false, Ordering::AcqRel) {
            self.lent.fetch_sub(1, Ordering::AcqRel);
            self.sets[*set].take_back_gradient(*place);
        }
    }

    fn take_all_back(&self) {
        (0..self.places.len()).for_each(|index| self.take_back(index));
    }

    fn all_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire) == self.places.len()
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
        DdpBuilder { group, sets: Vec::new(), options: Default::default() }
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
        let call = self.handle.enter()?;
        // SAFETY: one call at a time.
        let begun = check(unsafe { sys::ujoin_ddp_forward(call.raw(), samples) })? != sys::UJOIN_JOINED;
        self.memory.iterating.store(begun, Ordering::Release);
        Ok(begun)
    }

    /// Gradient `index` is complete, and the library's until the iteration ends.
    pub fn ready(&self, index: usize) -> Result<()> {
        ReadyCaller { ddp: self.handle.shared(), memory: &self.memory }.ready(index)
    }

    /// Ends an iteration: waits for the reductions. [`State`](crate::ErrorKind::State): a gradient is not ready (listed).
    pub fn finish(&self) -> Result<()> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time.
        let result = check(unsafe { sys::ujoin_ddp_finish(call.raw()) });
        // With all gradients ready the iteration is over, whatever the result. Else they are still in flight.
        if result.is_ok() || self.memory.all_lent() {
            self.memory.take_all_back();
            self.memory.iterating.store(false, Ordering::Release);
        }
        result.map(|_| ())
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
            joined_uneven: report.joined_uneven != 0,
        })
    }

    /// The reducer as a participant of a join context.
    pub fn joinable(&self) -> Joinable {
        // SAFETY: may be called at any time; the joinable lives as long as the reducer, which it keeps.
        let raw = unsafe { sys::ujoin_ddp_joinable(self.handle.raw()) };
        let (owner, memory) = (Arc::clone(self.handle.shared()), Arc::clone(&self.memory));
        Joinable::of(raw, owner, Arc::new(move || memory.sets.clone()))
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
        result.map(|_| ())
    }
}

/// Parameter sets at the moment: an optimizer's grow.
pub(crate) type Sets = Arc<dyn Fn() -> Vec<Arc<ParamSet>> + Send + Sync>;
