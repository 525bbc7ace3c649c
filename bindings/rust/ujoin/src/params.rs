// SPDX-License-Identifier: Apache-2.0
//! Parameters and gradients in memory that the library borrows, and who is using it at the moment.
use crate::text::to_c;
use crate::{Element, Error, ErrorKind, Result};
use std::alloc::{self, Layout};
use std::cell::RefCell;
use std::ffi::{c_void, CString};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
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
    tensors: Vec<(String, Vec<usize>, Vec<E>, bool)>,
}

impl<E: Element> ParamsBuilder<E> {
    /// A tensor with its initial values, row-major; `[]` is the shape of a single number. Its gradient begins as zeros.
    pub fn tensor(mut self, name: impl Into<String>, shape: &[usize], values: Vec<E>) -> Self {
        self.tensors.push((name.into(), shape.to_vec(), values, true));
        self
    }

    /// A tensor without a gradient, which no optimizer changes.
    pub fn frozen(mut self, name: impl Into<String>, shape: &[usize], values: Vec<E>) -> Self {
        self.tensors.push((name.into(), shape.to_vec(), values, false));
        self
    }

    /// The parameters. [`Invalid`](crate::ErrorKind::Invalid): a shape does not have as many elements as there are values,
    /// or a name has a NUL character.
    pub fn build(self) -> Result<Params<E>> {
        let tensors =
            self.tensors.into_iter().map(|(name, shape, values, grad)| Tensor::new(&name, &shape, &values, grad));
        let tensors = tensors.collect::<Result<Box<[_]>>>()?;
        let set = Arc::new(ParamSet { tensors, dtype: E::DTYPE.value(), users: AtomicUsize::new(0) });
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

/// Uninterpreted memory for elements, aligned to cache lines, with the word that says who uses it.
struct Memory {
    data: NonNull<u8>,
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
        // SAFETY: the size is not 0.
        let data = unsafe { alloc::alloc_zeroed(layout) };
        let data = NonNull::new(data).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Self { data, layout, word: AtomicU32::new(0) }
    }

    fn of<E: Element>(values: &[E]) -> Self {
        let memory = Self::zeroed::<E>(values.len());
        // SAFETY: fresh memory for as many elements.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), memory.data.as_ptr().cast(), values.len()) };
        memory
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

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from alloc, with this layout.
        unsafe { alloc::dealloc(self.data.as_ptr(), self.layout) }
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
    value: Memory,
    grad: Option<Memory>,
}

impl Tensor {
    fn new<E: Element>(name: &str, shape: &[usize], values: &[E], grad: bool) -> Result<Self> {
        let elements = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        if elements != Some(values.len()) {
            let text = format!("parameter {name:?} of shape {shape:?} has {} values", values.len());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(Self {
            name: to_c(name, "the name of a parameter")?,
            shape: shape.iter().map(|&extent| extent as i64).collect(),
            count: values.len(),
            value: Memory::of(values),
            grad: grad.then(|| Memory::zeroed::<E>(values.len())),
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
}

const EXCLUSIVE: usize = 1 << (usize::BITS - 1);

impl ParamSet {
    /// As C sees it. Names and shapes live with the set.
    pub(crate) fn to_c(&self) -> impl Iterator<Item = sys::ujoin_param> + '_ {
        self.tensors.iter().map(|t| sys::ujoin_param {
            name: t.name.as_ptr(),
            data: t.value.data.as_ptr().cast(),
            grad: t.grad.as_ref().map_or(ptr::null_mut(), |g| g.data.as_ptr().cast()),
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

    pub(crate) fn gradient_pointer(&self, index: usize) -> Option<*mut c_void> {
        self.tensors[index].grad.as_ref().map(|g| g.data.as_ptr().cast())
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
            LENT => "it is being reduced: `ready` was called, the iteration has not ended",
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
    count: usize,
    kind: Use,
}

impl<'p> Lease<'p> {
    #[track_caller]
    fn take(set: &'p ParamSet, index: usize, memory: &'p Memory, kind: Use) -> Self {
        let tensor = &set.tensors[index];
        if let Err(why) = set.lease(memory, kind) {
            let part = if ptr::eq(memory, &tensor.value) { "" } else { "the gradient of " };
            panic!("{part}parameter {:?} cannot be used now: {why}", tensor.name);
        }
        Self { set, memory, count: tensor.count, kind }
    }

    fn data<E>(&self) -> *mut E {
        self.memory.data.as_ptr().cast()
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
