// SPDX-License-Identifier: Apache-2.0
//! Schedules of hyper-parameters, and loss scales.
use crate::error::check;
use crate::handle::{Handle, Raw, Shared};
use crate::library::check_abi;
use crate::Result;
use std::ffi::CStr;
use std::ptr;
use ujoin_sys as sys;

impl Raw for sys::ujoin_scaler {
    const NAME: &'static str = "scaler";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::zero_scaler_destroy(raw) }
    }
    unsafe fn abort(_raw: *mut Self, _reason: &CStr) {}
}

pub(crate) type RawScaler = Shared<sys::ujoin_scaler>;

/// A number that changes with the step, for [`Zero::set_hyper`](crate::Zero::set_hyper): `opt.set_hyper(None, "lr",
/// schedule.at(step)?)?`.
#[derive(Clone, Debug)]
pub struct Schedule(Options);

#[derive(Clone, Debug)]
struct Options {
    kind: i32,
    base: f64,
    minimum: f64,
    gamma: f64,
    warmup: u64,
    total: u64,
    every: u64,
}

impl Schedule {
    fn of(kind: i32, base: f64) -> Self {
        Self(Options { kind, base, minimum: 0.0, gamma: 0.0, warmup: 0, total: 0, every: 0 })
    }

    /// Always `base`, but for a warm-up.
    pub fn constant(base: f64) -> Self {
        Self::of(sys::UJOIN_SCHEDULE_CONSTANT, base)
    }

    /// From `base` to the minimum along half a cosine, which ends at step `total` (warm-up included).
    pub fn cosine(base: f64, total: u64) -> Self {
        Self::of(sys::UJOIN_SCHEDULE_COSINE, base).total(total)
    }

    /// The same in a straight line.
    pub fn linear(base: f64, total: u64) -> Self {
        Self::of(sys::UJOIN_SCHEDULE_LINEAR, base).total(total)
    }

    /// Times `gamma` every so many steps after the warm-up, but not below the minimum.
    pub fn steps(base: f64, every: u64, gamma: f64) -> Self {
        let schedule = Self::of(sys::UJOIN_SCHEDULE_STEP, base);
        Self(Options { every, gamma, ..schedule.0 })
    }

    fn total(mut self, total: u64) -> Self {
        self.0.total = total;
        self
    }

    /// Default 0.
    pub fn minimum(mut self, minimum: f64) -> Self {
        self.0.minimum = minimum;
        self
    }

    /// The first so many steps rise to `base`: step i is `base (i + 1) / steps`.
    pub fn warmup(mut self, steps: u64) -> Self {
        self.0.warmup = steps;
        self
    }

    /// The value at a step, from 0. [`Invalid`](crate::ErrorKind::Invalid) names what makes no sense.
    pub fn at(&self, step: u64) -> Result<f64> {
        check_abi()?;
        let options = sys::ujoin_schedule_options {
            kind: self.0.kind,
            base: self.0.base,
            minimum: self.0.minimum,
            gamma: self.0.gamma,
            warmup_steps: count(self.0.warmup),
            total_steps: count(self.0.total),
            every: count(self.0.every),
            ..Default::default()
        };
        let mut value = 0.0;
        // SAFETY: a pure function.
        check(unsafe { sys::zero_schedule(&options, count(step), &mut value) })?;
        Ok(value)
    }
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The state of a loss scale: to make one, to read and to save it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerState {
    /// What the loss is multiplied by.
    pub scale: f64,
    /// The factor after `interval` good steps in a row, above 1.
    pub growth: f64,
    /// The factor after a skipped step, below 1.
    pub backoff: f64,
    /// How many good steps make it grow.
    pub interval: u64,
    /// Good steps since the last change.
    pub good_steps: u64,
    /// Skipped steps, in all.
    pub skipped: u64,
}

impl Default for ScalerState {
    fn default() -> Self {
        Self { scale: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000, good_steps: 0, skipped: 0 }
    }
}

/// A dynamic loss scale for one optimizer, the same on every rank: multiply the loss by [`scale`](Self::scale), and give it
/// to each step ([`StepOptions::scaler`](crate::StepOptions::scaler)). A rank that has joined adapts that of its last step.
pub struct Scaler(pub(crate) Handle<sys::ujoin_scaler>);

impl Scaler {
    /// A loss scale in this state. [`Invalid`](crate::ErrorKind::Invalid) names what makes no sense.
    pub fn new(state: ScalerState) -> Result<Self> {
        check_abi()?;
        let options = sys::ujoin_scaler_options {
            scale: state.scale,
            growth: state.growth,
            backoff: state.backoff,
            interval: count(state.interval),
            good_steps: count(state.good_steps),
            skipped: count(state.skipped),
            ..Default::default()
        };
        let mut out = ptr::null_mut();
        // SAFETY: gives a new handle.
        check(unsafe { sys::zero_scaler_create(&options, &mut out) })?;
        Ok(Self(Handle::adopt(out)))
    }

    /// The scale of the next loss. [`State`](crate::ErrorKind::State): a join context is adapting it on another thread.
    pub fn scale(&self) -> Result<f64> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        Ok(unsafe { sys::zero_scaler_scale(call.raw()) })
    }

    /// The present state, to be saved.
    pub fn state(&self) -> Result<ScalerState> {
        let (call, mut state) = (self.0.enter()?, sys::ujoin_scaler_options::new());
        // SAFETY: one call at a time; the struct has its size.
        check(unsafe { sys::zero_scaler_get(call.raw(), &mut state) })?;
        Ok(ScalerState {
            scale: state.scale,
            growth: state.growth,
            backoff: state.backoff,
            interval: state.interval as u64,
            good_steps: state.good_steps as u64,
            skipped: state.skipped as u64,
        })
    }
}
