// SPDX-License-Identifier: Apache-2.0
//! An update rule of the program's own.
use crate::callback::{self, HookResult};
use crate::hook::{array, check_type, elements};
use crate::join::pairs;
use crate::text::{from_c, maybe_rank, to_c, CTexts};
use crate::{DType, Element, Result};
use std::ffi::{c_void, CString};
use std::sync::{Arc, Mutex};
use ujoin_sys as sys;

type Part = Box<dyn FnMut(&mut RuleArgs) -> HookResult + Send>;

/// An optimizer of the program's own, for [`Zero::builder`](crate::Zero::builder). Its closures run on the thread that is
/// in a step, or in [`Join::finish`](crate::Join::finish) on a rank that has joined, for one parameter after the other, and
/// may not look at [`Params`](crate::Params). An error or a panic in one ends the step.
///
/// ```no_run
/// # fn main() -> ujoin::Result<()> {
/// # let (group, params) = (ujoin::Group::alone()?, ujoin::Params::<f32>::builder().build()?);
/// let sign = ujoin::Rule::new("sign", |args| {
///     let lr = args.hyper("lr") as f32;
///     let parts = args.parts::<f32>()?;
///     parts.data.iter_mut().zip(parts.grad).for_each(|(value, grad)| *value -= lr * grad.signum());
///     Ok(())
/// });
/// let opt = ujoin::Zero::builder(&group, sign.hyper("lr", 1e-3)).params(&params).build()?;
/// # Ok(())
/// # }
/// ```
pub struct Rule {
    name: String,
    states: Vec<String>,
    hyper: Vec<(String, f64)>,
    step: Part,
    init: Option<Part>,
    per_tensor: bool,
}

impl Rule {
    /// A rule of this name, which goes into saved state; `step` updates data and state.
    pub fn new(name: impl Into<String>, step: impl FnMut(&mut RuleArgs) -> HookResult + Send + 'static) -> Self {
        let (states, hyper) = (Vec::new(), Vec::new());
        Self { name: name.into(), states, hyper, step: Box::new(step), init: None, per_tensor: false }
    }

    /// One array of state more, by its name in saved state: `exp_avg`; at most 8. It begins as zeros.
    pub fn state(mut self, name: impl Into<String>) -> Self {
        self.states.push(name.into());
        self
    }

    /// One hyper-parameter more, with its default.
    pub fn hyper(mut self, name: impl Into<String>, default: f64) -> Self {
        self.hyper.push((name.into(), default));
        self
    }

    /// It needs whole parameters (a norm, a shape): refused with [`Partition::Elements`](crate::Partition::Elements).
    pub fn per_tensor(mut self) -> Self {
        self.per_tensor = true;
        self
    }

    /// Fills a parameter's state before its first update.
    pub fn init(mut self, init: impl FnMut(&mut RuleArgs) -> HookResult + Send + 'static) -> Self {
        self.init = Some(Box::new(init));
        self
    }
}

/// What a [`Rule`] updates: a parameter, or a piece of one, that this rank owns.
pub struct RuleArgs<'a> {
    raw: &'a sys::ujoin_rule_args,
    hyper: &'a [CString],
    states: usize,
}

/// Its elements.
pub struct RuleParts<'a, E> {
    /// The values, updated in place.
    pub data: &'a mut [E],
    /// The reduced gradient, unscaled and clipped.
    pub grad: &'a [E],
    /// One array for each state, in the order in which they were named.
    pub state: Vec<&'a mut [E]>,
}

impl RuleArgs<'_> {
    /// The name of the parameter.
    pub fn name(&self) -> String {
        // SAFETY: a text that lives while the rule runs.
        unsafe { from_c(self.raw.name) }
    }

    /// Its index.
    pub fn param(&self) -> usize {
        self.raw.param
    }

    /// Its param group.
    pub fn group(&self) -> usize {
        maybe_rank(self.raw.group).unwrap_or_default()
    }

    /// Which update of it this is, from 1.
    pub fn step(&self) -> u64 {
        self.raw.step as u64
    }

    /// The shape of the whole parameter.
    pub fn shape(&self) -> &[i64] {
        // SAFETY: so many lie there while the rule runs.
        unsafe { array(self.raw.shape, self.raw.ndim as usize) }
    }

    /// Where the piece begins in the parameter, in elements.
    pub fn offset(&self) -> usize {
        self.raw.offset
    }

    /// `F32` or `F64`; 16-bit parameters are updated as `F32`.
    pub fn dtype(&self) -> DType {
        DType::of(self.raw.dtype)
    }

    /// A hyper-parameter of the param group.
    ///
    /// # Panics
    /// If the rule has none of this name.
    pub fn hyper(&self, name: &str) -> f64 {
        let index = self.hyper.iter().position(|known| known.as_bytes() == name.as_bytes());
        let index = index.unwrap_or_else(|| panic!("the rule has no hyper-parameter {name:?}"));
        // SAFETY: the library gives one number for each name.
        unsafe { *self.raw.hyper.add(index) }
    }

    /// Values, gradient and state. [`Invalid`](crate::ErrorKind::Invalid): they are of another type.
    pub fn parts<E: Element>(&mut self) -> Result<RuleParts<'_, E>> {
        check_type::<E>(self.raw.dtype, "the parameter of a rule")?;
        let count = self.raw.count;
        // SAFETY: the library lends so many elements of this type while the rule runs, and nobody else uses them.
        unsafe {
            Ok(RuleParts {
                data: elements(self.raw.data, count),
                grad: array(self.raw.grad.cast(), count),
                state: (0..self.states).map(|i| elements(*self.raw.state.add(i), count)).collect(),
            })
        }
    }
}

/// A rule as C takes it.
pub(crate) struct RuleInC {
    name: CString,
    states: CTexts,
    hyper: Vec<sys::ujoin_hyper>,
    parts: Arc<Mutex<Parts>>,
    has_init: bool,
    per_tensor: bool,
}

struct Parts {
    step: Part,
    init: Option<Part>,
    names: Vec<CString>,
    states: usize,
}

impl RuleInC {
    pub(crate) fn new(rule: Rule) -> Result<Self> {
        let name = to_c(&rule.name, "the name of a rule")?;
        let states = CTexts::new(&rule.states, "the name of a state")?;
        let names = rule.hyper.iter().map(|(name, _)| to_c(name, "hyper-parameter")).collect::<Result<Vec<_>>>()?;
        let hyper = pairs(&names, rule.hyper.iter().map(|(_, value)| *value));
        let (has_init, per_tensor) = (rule.init.is_some(), rule.per_tensor);
        let parts = Parts { step: rule.step, init: rule.init, names, states: rule.states.len() };
        Ok(Self { name, states, hyper, parts: Arc::new(Mutex::new(parts)), has_init, per_tensor })
    }

    /// Owned by the call that it is given to, also if that fails.
    pub(crate) fn to_c(&self) -> sys::ujoin_rule {
        sys::ujoin_rule {
            name: self.name.as_ptr(),
            step: Some(step),
            init: if self.has_init { Some(init) } else { None },
            state_names: self.states.as_ptr(),
            state_count: self.states.len(),
            hyper: self.hyper.as_ptr(),
            hyper_count: self.hyper.len(),
            user_data: callback::share(&self.parts),
            destroy: Some(callback::drop_arc::<Mutex<Parts>>),
            per_tensor: self.per_tensor.into(),
            ..Default::default()
        }
    }
}

type Which = fn(&mut Parts) -> Option<&mut Part>;

/// # Safety
/// Called by the library with what `RuleInC::to_c` gave.
unsafe fn run(user_data: *mut c_void, args: *const sys::ujoin_rule_args, which: Which) -> i32 {
    // SAFETY: the caller's promise.
    let (parts, raw) = unsafe { (&*user_data.cast_const().cast::<Mutex<Parts>>(), &*args) };
    callback::run(|| {
        let mut parts = parts.try_lock().map_err(|_| "the rule is running or has panicked")?;
        let names = std::mem::take(&mut parts.names);
        let mut args = RuleArgs { raw, hyper: &names, states: parts.states };
        let result = which(&mut parts).map_or(Ok(()), |part| part(&mut args));
        parts.names = names;
        result
    })
}

unsafe extern "C" fn step(user_data: *mut c_void, args: *const sys::ujoin_rule_args) -> i32 {
    // SAFETY: registered together.
    unsafe { run(user_data, args, |parts| Some(&mut parts.step)) }
}

unsafe extern "C" fn init(user_data: *mut c_void, args: *const sys::ujoin_rule_args) -> i32 {
    // SAFETY: registered together.
    unsafe { run(user_data, args, |parts| parts.init.as_mut()) }
}
