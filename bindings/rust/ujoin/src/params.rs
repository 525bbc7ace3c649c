// SPDX-License-Identifier: Apache-2.0
//! Parameters and gradients in memory that the library borrows, and who is using it at the moment.
use crate::text::to_c;
use crate::{Element, Error, ErrorKind, Result};
use std::alloc::{self, Layout};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_void, CString};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use ujoin_sys as sys;

/// Named tensors and their gradients, in memory that [`Ddp`](crate::Ddp) and [`Zero`](crate::Zero) share with the program.
///
/// A clone is the same parameters. The memory lives until the last clone and every object made of it are gone. Like a
/// `RefCell` it checks who uses it: the program looks through [`Ref`] and [`RefMut`]; while one of them is there, a call
/// of the library that needs the memory answers [`State`](crate::ErrorKind::State), and while the library uses it (a
/// gradient from `ready` to the end of the iteration, everything inside of `step`, `finish` and the like), asking for one
/// panics with a text that says so. All of this may happen on several threads.
pub struct Params<E: Element = f32> {
    pub(crate) set: Arc<ParamSet>,
    element: PhantomData<E>,
}

impl<E: Element> Clone for Params<E> {
    fn clone(&self) -> Self {
        Self { set: Arc::clone(&self.set), element: PhantomData }
    }
}

/// Collects the tensors of [`Params`].
#[derive(Default)]
pub struct ParamsBuilder<E: Element = f32> {
    tensors: Vec<(String, Vec<usize>, Vec<E>, Role)>,
}

impl<E: Element> ParamsBuilder<E> {
    /// A tensor with its initial values, row-major; `[]` is the shape of a single number. Its gradient begins as zeros.
    pub fn tensor(self, name: impl Into<String>, shape: &[usize], values: Vec<E>) -> Self {
        self.add(name, shape, values, Role::Trained)
    }

    /// A tensor without a gradient, which no optimizer changes.
    pub fn frozen(self, name: impl Into<String>, shape: &[usize], values: Vec<E>) -> Self {
        self.add(name, shape, values, Role::Frozen)
    }

    /// A tensor with a gradient that optimizers do not train for now; [`Zero::set_frozen`](crate::Zero::set_frozen)
    /// changes it.
    pub fn untrained(self, name: impl Into<String>, shape: &[usize], values: Vec<E>) -> Self {
        self.add(name, shape, values, Role::Untrained)
    }

    /// A tensor that reducers leave alone: neither compared nor copied nor reduced, each rank's own. Optimizers train it.
    pub fn ignored(self, name: impl Into<String>, shape: &[usize], values: Vec<E>) -> Self {
        self.add(name, shape, values, Role::Ignored)
    }

    fn add(mut self, name: impl Into<String>, shape: &[usize], values: Vec<E>, role: Role) -> Self {
        self.tensors.push((name.into(), shape.to_vec(), values, role));
        self
    }

    /// The parameters. [`Invalid`](crate::ErrorKind::Invalid): a shape does not have as many elements as there are values,
    /// or a name has a NUL character.
    pub fn build(self) -> Result<Params<E>> {
        let tensors =
            self.tensors.into_iter().map(|(name, shape, values, role)| Tensor::new(&name, &shape, &values, role));
        let tensors = tensors.collect::<Result<Box<[_]>>>()?;
        let set = Arc::new(ParamSet {
            tensors,
            dtype: E::DTYPE.value(),
            users: AtomicUsize::new(0),
            pins: AtomicUsize::new(0),
        });
        Ok(Params { set, element: PhantomData })
    }
}

impl<E: Element> Params<E> {
    /// No tensors yet.
    pub fn builder() -> ParamsBuilder<E> {
        ParamsBuilder { tensors: Vec::new() }
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.set.tensors.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of a tensor by its name.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.set.tensors.iter().position(|t| t.name.as_bytes() == name.as_bytes())
    }

    /// The name of a tensor.
    pub fn name(&self, index: usize) -> &str {
        self.set.tensors[index].name.to_str().expect("made of a str")
    }

    /// The shape of a tensor.
    pub fn shape(&self, index: usize) -> Vec<usize> {
        self.set.tensors[index].shape.iter().map(|&extent| extent as usize).collect()
    }

    /// The values of a tensor, to read.
    ///
    /// # Panics
    /// While they are being written, by the program or by the library.
    #[track_caller]
    pub fn value(&self, index: usize) -> Ref<'_, E> {
        Ref(Lease::take(&self.set, index, &self.set.tensors[index].value, Use::Read), PhantomData)
    }

    /// The values of a tensor, to write.
    ///
    /// # Panics
    /// While they are being used, by the program or by the library.
    #[track_caller]
    pub fn value_mut(&self, index: usize) -> RefMut<'_, E> {
        RefMut(Lease::take(&self.set, index, &self.set.tensors[index].value, Use::Write), PhantomData)
    }

    /// The gradient of a tensor, to read.
    ///
    /// # Panics
    /// While it is being written, and if the tensor is frozen.
    #[track_caller]
    pub fn grad(&self, index: usize) -> Ref<'_, E> {
        Ref(Lease::take(&self.set, index, self.set.tensors[index].gradient(), Use::Read), PhantomData)
    }

    /// The gradient of a tensor, to write.
    ///
    /// # Panics
    /// While it is being used, from `ready` on also by the library, and if the tensor is frozen.
    #[track_caller]
    pub fn grad_mut(&self, index: usize) -> RefMut<'_, E> {
        RefMut(Lease::take(&self.set, index, self.set.tensors[index].gradient(), Use::Write), PhantomData)
    }
}

// -------------------------------------------------------------------------------------------------------------- memory

/// What keeps memory that is not of this crate.
pub(crate) type Keeper = Arc<dyn Any + Send + Sync>;

enum Place {
    Own(NonNull<u8>),
    /// Of a reducer, as long as there is one.
    View(NonNull<u8>, Weak<dyn Any + Send + Sync>),
}

/// Uninterpreted memory for elements, aligned to cache lines, with the word that says who uses it.
struct Memory {
    place: Mutex<Place>,
    layout: Layout,
    /// 0: nobody; 1, 2, ...: so many readers; WRITER: one who writes; LENT: the library, beyond a single call.
    word: AtomicU32,
}

const WRITER: u32 = u32::MAX;
const LENT: u32 = u32::MAX - 1;

// SAFETY: whoever touches the memory has taken the word, or the whole set (ParamSet::users).
unsafe impl Send for Memory {}
unsafe impl Sync for Memory {}

impl Memory {
    fn zeroed<E: Element>(count: usize) -> Self {
        let layout = Layout::array::<E>(count.max(1)).expect("a Vec of as many exists").align_to(64).expect("small");
        Self { place: Mutex::new(Place::Own(zeros(layout))), layout, word: AtomicU32::new(0) }
    }

    fn of<E: Element>(values: &[E]) -> Self {
        let memory = Self::zeroed::<E>(values.len());
        // SAFETY: fresh memory for as many elements.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), memory.place().0.as_ptr().cast(), values.len()) };
        memory
    }

    /// Where it is, and what keeps it there if that is not this crate. When that is gone, there are zeros.
    fn place(&self) -> (NonNull<u8>, Option<Keeper>) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        match &*place {
            Place::Own(data) => return (*data, None),
            Place::View(data, keeper) => {
                if let Some(keeper) = keeper.upgrade() {
                    return (*data, Some(keeper));
                }
            }
        }
        let data = zeros(self.layout);
        *place = Place::Own(data);
        (data, None)
    }

    /// Where it is for C. Whoever gives that to C keeps the keepers.
    fn pointer(&self) -> *mut c_void {
        self.place().0.as_ptr().cast()
    }

    fn move_to(&self, data: NonNull<u8>, keeper: Weak<dyn Any + Send + Sync>) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, Place::View(data, keeper));
        free(before, self.layout);
    }

    fn take(&self, to: Use) -> bool {
        let next = |w: u32| match to {
            Use::Read => (w < LENT - 1).then(|| w + 1),
            Use::Write => (w == 0).then_some(WRITER),
            Use::Lend => (w == 0).then_some(LENT),
        };
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, next).is_ok()
    }

    fn give_back(&self, from: Use) {
        match from {
            Use::Read => self.word.fetch_sub(1, Ordering::Release),
            Use::Write | Use::Lend => self.word.swap(0, Ordering::Release),
        };
    }
}

fn zeros(layout: Layout) -> NonNull<u8> {
    // SAFETY: the size is not 0.
    let data = unsafe { alloc::alloc_zeroed(layout) };
    NonNull::new(data).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

fn free(place: Place, layout: Layout) {
    if let Place::Own(data) = place {
        // SAFETY: from alloc, with this layout.
        unsafe { alloc::dealloc(data.as_ptr(), layout) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        free(std::mem::replace(place, Place::View(NonNull::dangling(), Weak::<()>::new() as _)), self.layout);
    }
}

/// What is done with a tensor.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Trained,
    Frozen,
    Untrained,
    Ignored,
}

/// Who is told of parameters: each knows flags of its own.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum For {
    Ddp,
    Zero,
}

impl Role {
    fn flags(self, to: For) -> i32 {
        match (self, to) {
            (Self::Untrained, For::Zero) => sys::UJOIN_PARAM_FROZEN,
            (Self::Ignored, For::Ddp) => sys::UJOIN_PARAM_IGNORED,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Use {
    Read,
    Write,
    /// By the library, until an iteration ends.
    Lend,
}

struct Tensor {
    name: CString,
    shape: Box<[i64]>,
    count: usize,
    role: Role,
    value: Memory,
    grad: Option<Memory>,
}

impl Tensor {
    fn new<E: Element>(name: &str, shape: &[usize], values: &[E], role: Role) -> Result<Self> {
        let elements = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        if elements != Some(values.len()) {
            let text = format!("parameter {name:?} of shape {shape:?} has {} values", values.len());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(Self {
            name: to_c(name, "the name of a parameter")?,
            shape: shape.iter().map(|&extent| extent as i64).collect(),
            count: values.len(),
            role,
            value: Memory::of(values),
            grad: (role != Role::Frozen).then(|| Memory::zeroed::<E>(values.len())),
        })
    }

    #[track_caller]
    fn gradient(&self) -> &Memory {
        self.grad.as_ref().unwrap_or_else(|| panic!("parameter {:?} is frozen: it has no gradient", self.name))
    }
}

/// What the library borrows as a whole.
pub(crate) struct ParamSet {
    tensors: Box<[Tensor]>,
    dtype: i32,
    /// How many leases there are (references of the program, gradients lent); EXCLUSIVE: a call uses all of it.
    users: AtomicUsize,
    /// How many objects have told the library where gradients lie.
    pins: AtomicUsize,
}

const EXCLUSIVE: usize = 1 << (usize::BITS - 1);

impl ParamSet {
    /// As C sees it. Names and shapes live with the set.
    pub(crate) fn to_c(&self, to: For) -> impl Iterator<Item = sys::ujoin_param> + '_ {
        self.tensors.iter().map(move |t| sys::ujoin_param {
            name: t.name.as_ptr(),
            data: t.value.pointer(),
            grad: t.grad.as_ref().map_or(ptr::null_mut(), Memory::pointer),
            flags: t.role.flags(to),
            count: t.count,
            dtype: self.dtype,
            shape: t.shape.as_ptr(),
            ndim: t.shape.len() as i32,
            ..Default::default()
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// The values as buffers of C.
    pub(crate) fn buffers_to_c(&self) -> impl Iterator<Item = sys::ujoin_buffer> + '_ {
        self.tensors.iter().map(|t| sys::ujoin_buffer {
            data: t.value.pointer(),
            count: t.count,
            dtype: self.dtype,
            ..Default::default()
        })
    }

    /// Whether a reducer reduces this one.
    pub(crate) fn is_reduced(&self, index: usize) -> bool {
        self.tensors[index].grad.is_some() && self.tensors[index].role != Role::Ignored
    }

    pub(crate) fn dtype(&self) -> i32 {
        self.dtype
    }

    pub(crate) fn count(&self, index: usize) -> usize {
        self.tensors[index].count
    }

    pub(crate) fn gradient_pointer(&self, index: usize) -> Option<*mut c_void> {
        self.tensors[index].grad.as_ref().map(Memory::pointer)
    }

    /// What keeps gradients that lie in a reducer's memory.
    pub(crate) fn keepers(&self) -> impl Iterator<Item = Keeper> + '_ {
        self.tensors.iter().filter_map(|t| t.grad.as_ref()?.place().1)
    }

    /// From now on a gradient lies in the memory of `keeper`, as long as that lives. Nobody may know the old place.
    pub(crate) fn move_gradient(&self, index: usize, to: NonNull<u8>, keeper: Weak<dyn Any + Send + Sync>) {
        if let Some(grad) = &self.tensors[index].grad {
            grad.move_to(to, keeper);
        }
    }

    /// The library knows where gradients lie, until `unpin`.
    pub(crate) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    /// The caller counts as a user first, so that no exclusive call can begin in between.
    fn lease(&self, memory: &Memory, to: Use) -> Result<(), &'static str> {
        if self.users.fetch_add(1, Ordering::Acquire) & EXCLUSIVE != 0 {
            self.users.fetch_sub(1, Ordering::Release);
            return Err("a call of the library is using it");
        }
        if memory.take(to) {
            return Ok(());
        }
        self.users.fetch_sub(1, Ordering::Release);
        Err(match memory.word.load(Ordering::Relaxed) {
            LENT => "it is being reduced or updated: the iteration has not ended",
            WRITER => "it is being written through a RefMut",
            _ => "it is being read through a Ref",
        })
    }

    fn release(&self, memory: &Memory, from: Use) {
        memory.give_back(from);
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Lends a gradient to the library until `take_back_gradient`.
    pub(crate) fn lend_gradient(&self, index: usize) -> Result<()> {
        let Some(grad) = &self.tensors[index].grad else {
            return Ok(());
        };
        self.lease(grad, Use::Lend).map_err(|why| {
            let text = format!("the gradient of parameter {:?} cannot be reduced: {why}", self.tensors[index].name);
            Error::new(ErrorKind::State, text)
        })
    }

    pub(crate) fn take_back_gradient(&self, index: usize) {
        if let Some(grad) = &self.tensors[index].grad {
            self.release(grad, Use::Lend);
        }
    }

    /// Lends the values of a parameter until `take_back_value`.
    pub(crate) fn lend_value(&self, index: usize) -> Result<()> {
        self.lease(&self.tensors[index].value, Use::Lend).map_err(|why| {
            let text = format!("parameter {:?} cannot be updated: {why}", self.tensors[index].name);
            Error::new(ErrorKind::State, text)
        })
    }

    pub(crate) fn take_back_value(&self, index: usize) {
        self.release(&self.tensors[index].value, Use::Lend);
    }

    /// Lends the values of all parameters until `take_back_values`.
    pub(crate) fn lend_values(&self) -> Result<()> {
        for index in 0..self.len() {
            if let Err(error) = self.lend_value(index) {
                (0..index).for_each(|taken| self.take_back_value(taken));
                return Err(error);
            }
        }
        Ok(())
    }

    pub(crate) fn take_back_values(&self) {
        (0..self.len()).for_each(|index| self.take_back_value(index));
    }

    fn take_all(&self) -> Result<()> {
        let taken = self.users.compare_exchange(0, EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            Ok(())
        } else {
            Err(self.in_use())
        }
    }

    fn give_back_all(&self) {
        self.users.fetch_sub(EXCLUSIVE, Ordering::Release);
    }

    #[cold]
    fn in_use(&self) -> Error {
        let state = |memory: &Memory| match memory.word.load(Ordering::Relaxed) {
            0 => None,
            LENT => Some("is being reduced: finish the iteration first"),
            WRITER => Some("is being written through a RefMut: drop it first"),
            _ => Some("is being read through a Ref: drop it first"),
        };
        let found = self.tensors.iter().find_map(|t| {
            let value = state(&t.value).map(|why| format!("parameter {:?} {why}", t.name));
            value.or_else(|| Some(format!("the gradient of parameter {:?} {}", t.name, state(t.grad.as_ref()?)?)))
        });
        let text = found.unwrap_or_else(|| "the parameters are inside another call of the library".to_owned());
        Error::new(ErrorKind::State, text)
    }
}

// ---------------------------------------------------------------------------------------------------------- references

struct Lease<'p> {
    set: &'p ParamSet,
    memory: &'p Memory,
    data: NonNull<u8>,
    count: usize,
    kind: Use,
    /// Of `data`, where that is a reducer's.
    _keeper: Option<Keeper>,
}

// SAFETY: it has taken the memory's word, and keeps the memory.
unsafe impl Send for Lease<'_> {}
unsafe impl Sync for Lease<'_> {}

impl<'p> Lease<'p> {
    #[track_caller]
    fn take(set: &'p ParamSet, index: usize, memory: &'p Memory, kind: Use) -> Self {
        let tensor = &set.tensors[index];
        if let Err(why) = set.lease(memory, kind) {
            let part = if ptr::eq(memory, &tensor.value) { "" } else { "the gradient of " };
            panic!("{part}parameter {:?} cannot be used now: {why}", tensor.name);
        }
        let (data, keeper) = memory.place();
        Self { set, memory, data, count: tensor.count, kind, _keeper: keeper }
    }

    fn data<E>(&self) -> *mut E {
        self.data.as_ptr().cast()
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.set.release(self.memory, self.kind);
    }
}

/// The elements of a tensor or gradient, to read; many may be there at a time.
pub struct Ref<'p, E: Element>(Lease<'p>, PhantomData<&'p [E]>);

/// The elements of a tensor or gradient, to write; nobody else uses them meanwhile.
pub struct RefMut<'p, E: Element>(Lease<'p>, PhantomData<&'p mut [E]>);

impl<E: Element> Deref for Ref<'_, E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        // SAFETY: as many elements, nobody writes while the lease is there.
        unsafe { slice::from_raw_parts(self.0.data(), self.0.count) }
    }
}

impl<E: Element> Deref for RefMut<'_, E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        // SAFETY: as many elements, ours alone while the lease is there.
        unsafe { slice::from_raw_parts(self.0.data(), self.0.count) }
    }
}

impl<E: Element> DerefMut for RefMut<'_, E> {
    fn deref_mut(&mut self) -> &mut [E] {
        // SAFETY: as many elements, ours alone while the lease is there.
        unsafe { slice::from_raw_parts_mut(self.0.data(), self.0.count) }
    }
}

// ------------------------------------------------------------------------------------------------- calls that use it all

/// While it lives a call of the library uses all of these sets, and nobody else.
pub(crate) struct Hold<'a> {
    sets: &'a [Arc<ParamSet>],
}

impl<'a> Hold<'a> {
    pub(crate) fn take(sets: &'a [Arc<ParamSet>]) -> Result<Self> {
        take_each(sets)?;
        Ok(Self { sets })
    }
}

/// While it lives a call of the library uses the values of these sets, and nobody else.
pub(crate) struct HoldValues(Vec<Arc<ParamSet>>);

impl HoldValues {
    pub(crate) fn take(sets: &[Arc<ParamSet>]) -> Result<Self> {
        let mut held = Self(Vec::new());
        for set in sets {
            set.lend_values()?;
            held.0.push(Arc::clone(set));
        }
        Ok(held)
    }
}

impl Drop for HoldValues {
    fn drop(&mut self) {
        self.0.iter().for_each(|set| set.take_back_values());
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.sets.iter().for_each(|set| set.give_back_all());
    }
}

fn take_each(sets: &[Arc<ParamSet>]) -> Result<()> {
    for (index, set) in sets.iter().enumerate() {
        if let Err(error) = set.take_all() {
            sets[..index].iter().for_each(|taken| taken.give_back_all());
            return Err(error);
        }
    }
    Ok(())
}

thread_local! {
    /// What calls on this thread hold that run hooks of the program, the innermost last; `true`: held, not paused.
    static HOOKED: RefCell<Vec<(Vec<Arc<ParamSet>>, bool)>> = const { RefCell::new(Vec::new()) };
}

/// A hold of a call that runs hooks of the program, which may look at the parameters in between (see `paused`).
pub(crate) struct HookedHold(PhantomData<*mut ()>);

impl HookedHold {
    /// A set that several objects share is taken once.
    pub(crate) fn take(mut sets: Vec<Arc<ParamSet>>) -> Result<Self> {
        sets.sort_by_key(|set| Arc::as_ptr(set) as usize);
        sets.dedup_by(|a, b| Arc::ptr_eq(a, b));
        take_each(&sets)?;
        HOOKED.with_borrow_mut(|stack| stack.push((sets, true)));
        Ok(Self(PhantomData))
    }
}

impl Drop for HookedHold {
    fn drop(&mut self) {
        let top = HOOKED.with_borrow_mut(Vec::pop);
        if let Some((sets, true)) = top {
            sets.iter().for_each(|set| set.give_back_all());
        }
    }
}

/// Runs a hook of the program with the parameters free for it. If it leaves some of them in use, that is its error, and
/// the call that ran it ends without them.
pub(crate) fn paused<T>(hook: impl FnOnce() -> T) -> Result<T> {
    let free = |entry: &mut (Vec<Arc<ParamSet>>, bool)| {
        let was_held = std::mem::replace(&mut entry.1, false);
        entry.0.iter().filter(|_| was_held).for_each(|set| set.give_back_all());
        was_held // those that an outer hook has paused stay so
    };
    let paused: Vec<bool> = HOOKED.with_borrow_mut(|stack| stack.iter_mut().map(free).collect());
    let result = hook();
    HOOKED.with_borrow_mut(|stack| {
        for (entry, _) in stack.iter_mut().zip(paused).filter(|(_, paused)| *paused) {
            take_each(&entry.0)?;
            entry.1 = true;
        }
        Ok(result)
    })
}
