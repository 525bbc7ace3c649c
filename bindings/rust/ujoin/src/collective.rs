// SPDX-License-Identifier: Apache-2.0
use crate::callback;
use crate::error::{check, check_done};
use crate::handle::{Aborter, Handle, Raw};
use crate::op::{List, Op, OpBuffers};
use crate::text::{limit_ms, maybe_rank, rank_to_c, wait_ms};
use crate::{Element, Group, Result};
use std::any::Any;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;
use ujoin_sys as sys;

/// How values of ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Sums of 16-bit types are accumulated in 32 bits.
    Sum = sys::UJOIN_SUM as isize,
    /// The sum divided by the number of contributors (integers: toward zero); cannot overflow.
    Avg = sys::UJOIN_AVG as isize,
    /// The smallest; NaN if one is NaN.
    Min = sys::UJOIN_MIN as isize,
    /// The largest; NaN if one is NaN.
    Max = sys::UJOIN_MAX as isize,
    /// The product; of integers it wraps, as their sum does.
    Prod = sys::UJOIN_PROD as isize,
}

/// One collective operation of a group with a deadline of its own; each function is described at [`Group`].
#[must_use = "this only prepares an operation"]
#[derive(Clone, Copy)]
pub struct Operation<'g> {
    group: &'g Group,
    timeout: Option<Duration>,
}

/// The memory of an operation as C sees it; `send` NULL means in place.
struct Memory {
    send: Option<sys::ujoin_const_buffer>,
    recv: sys::ujoin_buffer,
}

impl Memory {
    fn new<E: Element>(send: Option<&[E]>, recv: &mut [E]) -> Self {
        let dtype = E::DTYPE.value();
        let send = send.map(|s| sys::ujoin_const_buffer {
            data: s.as_ptr().cast(),
            count: s.len(),
            dtype,
            ..Default::default()
        });
        let recv = sys::ujoin_buffer { data: recv.as_mut_ptr().cast(), count: recv.len(), dtype, ..Default::default() };
        Self { send, recv }
    }

    fn send(&self) -> *const sys::ujoin_const_buffer {
        self.send.as_ref().map_or(ptr::null(), |s| s)
    }
}

/// What is to be done with the memory.
#[derive(Clone, Copy)]
enum What {
    AllReduce(Reduce),
    Broadcast(usize),
    AllGather,
    ReduceScatter(Reduce),
}

type WorkSlot = *mut *mut sys::ujoin_work;

impl What {
    /// # Safety
    /// The memory is valid until the call is over, or the work that it gives.
    unsafe fn call(
        self,
        group: *mut sys::ujoin_group,
        memory: &Memory,
        options: &sys::ujoin_op_options,
        out: WorkSlot,
    ) -> i32 {
        let (send, recv) = (memory.send(), &raw const memory.recv);
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                What::AllReduce(reduce) => sys::ujoin_all_reduce(group, send, recv, reduce as i32, options, out),
                What::Broadcast(root) => sys::ujoin_broadcast(group, recv, rank_to_c(root), options, out),
                What::AllGather => sys::ujoin_all_gather(group, send, recv, options, out),
                What::ReduceScatter(reduce) => {
                    sys::ujoin_reduce_scatter(group, send, recv, reduce as i32, options, out)
                }
            }
        }
    }
}

#[allow(missing_docs)] // each is described at Group
impl<'g> Operation<'g> {
    pub(crate) fn new(group: &'g Group, timeout: Option<Duration>) -> Self {
        Self { group, timeout }
    }

    pub fn all_reduce<E: Element>(self, data: &mut [E], reduce: Reduce) -> Result<()> {
        self.run(What::AllReduce(reduce), None, data)
    }

    pub fn all_reduce_into<E: Element>(self, send: &[E], recv: &mut [E], reduce: Reduce) -> Result<()> {
        self.run(What::AllReduce(reduce), Some(send), recv)
    }

    pub fn broadcast<E: Element>(self, data: &mut [E], root: usize) -> Result<()> {
        self.run(What::Broadcast(root), None, data)
    }

    pub fn all_gather<E: Element>(self, send: &[E], recv: &mut [E]) -> Result<()> {
        self.run(What::AllGather, Some(send), recv)
    }

    pub fn all_gather_in_place<E: Element>(self, recv: &mut [E]) -> Result<()> {
        self.run(What::AllGather, None, recv)
    }

    pub fn reduce_scatter<E: Element>(self, send: &[E], recv: &mut [E], reduce: Reduce) -> Result<()> {
        self.run(What::ReduceScatter(reduce), Some(send), recv)
    }

    pub fn reduce<E: Element>(self, data: &mut [E], root: usize, reduce: Reduce) -> Result<()> {
        self.submit([Op::reduce(data, root, reduce)])
    }

    pub fn reduce_into<E: Element>(self, send: &[E], recv: &mut [E], root: usize, reduce: Reduce) -> Result<()> {
        self.submit([Op::reduce_into(send, recv, root, reduce)])
    }

    pub fn gather<E: Element>(self, send: &[E], recv: &mut [E], root: usize) -> Result<()> {
        self.submit([Op::gather(send, recv, root)])
    }

    pub fn scatter<E: Element>(self, send: &[E], recv: &mut [E], root: usize) -> Result<()> {
        self.submit([Op::scatter(send, recv, root)])
    }

    pub fn all_to_all<E: Element>(self, send: &[E], recv: &mut [E]) -> Result<()> {
        self.submit([Op::all_to_all(send, recv)])
    }

    pub fn all_to_all_in_place<E: Element>(self, data: &mut [E]) -> Result<()> {
        self.submit([Op::all_to_all_in_place(data)])
    }

    pub fn send<E: Element>(self, data: &[E], to: usize) -> Result<()> {
        self.submit([Op::send(data, to)])
    }

    pub fn recv<E: Element>(self, data: &mut [E], from: usize) -> Result<()> {
        self.submit([Op::recv(data, from)])
    }

    pub fn submit<'b>(self, ops: impl IntoIterator<Item = Op<'b>>) -> Result<()> {
        let list = List::new(ops, self.group.size())?;
        let call = self.group.0.enter()?;
        let (raw, options) = (&list.raw, self.options());
        // SAFETY: what the list points to lives beyond the call, and the operations are over when it returns.
        check(unsafe { sys::ujoin_submit(call.raw(), raw.as_ptr(), raw.len(), &options, ptr::null_mut()) })?;
        Ok(())
    }

    pub fn barrier(self) -> Result<()> {
        let call = self.group.0.enter()?;
        // SAFETY: one call at a time.
        check(unsafe { sys::ujoin_barrier(call.raw(), &self.options()) })?;
        Ok(())
    }

    pub fn start_all_reduce<E: Element>(self, data: Vec<E>, reduce: Reduce) -> Result<Work<E>> {
        self.start(What::AllReduce(reduce), None, data)
    }

    pub fn start_all_reduce_into<E: Element>(self, send: Vec<E>, recv: Vec<E>, reduce: Reduce) -> Result<Work<E>> {
        self.start(What::AllReduce(reduce), Some(send), recv)
    }

    pub fn start_broadcast<E: Element>(self, data: Vec<E>, root: usize) -> Result<Work<E>> {
        self.start(What::Broadcast(root), None, data)
    }

    pub fn start_all_gather<E: Element>(self, send: Vec<E>, recv: Vec<E>) -> Result<Work<E>> {
        self.start(What::AllGather, Some(send), recv)
    }

    pub fn start_all_gather_in_place<E: Element>(self, recv: Vec<E>) -> Result<Work<E>> {
        self.start(What::AllGather, None, recv)
    }

    pub fn start_reduce_scatter<E: Element>(self, send: Vec<E>, recv: Vec<E>, reduce: Reduce) -> Result<Work<E>> {
        self.start(What::ReduceScatter(reduce), Some(send), recv)
    }

    pub fn start_submit(self, ops: impl IntoIterator<Item = Op<'static>>) -> Result<Work<Op<'static>>> {
        let mut list = List::new(ops, self.group.size())?;
        let call = self.group.0.enter()?;
        let buffers = Arc::new(Buffers { send: None, recv: UnsafeCell::new(std::mem::take(&mut list.buffers)) });
        let options = self.options_of(&buffers);
        let mut out = ptr::null_mut();
        // SAFETY: the list is read during the call; the memory is the buffers', as in `start`, or lives for ever.
        check(unsafe { sys::ujoin_submit(call.raw(), list.raw.as_ptr(), list.raw.len(), &options, &mut out) })?;
        Ok(Work { handle: Handle::adopt(out), buffers })
    }

    fn options(&self) -> sys::ujoin_op_options {
        sys::ujoin_op_options { timeout_ms: limit_ms(self.timeout), ..Default::default() }
    }

    /// The same with a share of the buffers for the library.
    fn options_of<T: Contents>(&self, buffers: &Arc<Buffers<T>>) -> sys::ujoin_op_options {
        sys::ujoin_op_options {
            release: Some(callback::drop_arc::<Buffers<T>>),
            release_data: callback::share(buffers),
            ..self.options()
        }
    }

    fn run<E: Element>(self, what: What, send: Option<&[E]>, recv: &mut [E]) -> Result<()> {
        let call = self.group.0.enter()?;
        let memory = Memory::new(send, recv);
        // SAFETY: the slices live beyond the call, and it is over when it returns.
        check(unsafe { what.call(call.raw(), &memory, &self.options(), ptr::null_mut()) })?;
        Ok(())
    }

    fn start<E: Element>(self, what: What, send: Option<Vec<E>>, recv: Vec<E>) -> Result<Work<E>> {
        let call = self.group.0.enter()?;
        let buffers = Arc::new(Buffers { send, recv: UnsafeCell::new(recv) });
        // SAFETY: nobody else has the buffers yet.
        let recv: &mut Vec<E> = unsafe { &mut *buffers.recv.get() };
        let memory = Memory::new(buffers.send.as_deref(), recv);
        let options = self.options_of(&buffers);
        let mut out = ptr::null_mut();
        // SAFETY: the library's share keeps the memory until its notice, also if the call fails.
        check(unsafe { what.call(call.raw(), &memory, &options, &mut out) })?;
        Ok(Work { handle: Handle::adopt(out), buffers })
    }
}

impl Raw for sys::ujoin_work {
    const NAME: &'static str = "work";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::ujoin_work_destroy(raw) }
    }
    unsafe fn abort(raw: *mut Self, _reason: &CStr) {
        unsafe { sys::ujoin_work_abort(raw) }
    }
}

/// What a [`Work`] gives back: of elements a `Vec` of them, of [`Op`]s their buffers.
pub trait Contents: 'static {
    /// Its type.
    type Value: Default + Send;
}

impl<E: Element> Contents for E {
    type Value = Vec<E>;
}

impl Contents for Op<'static> {
    type Value = Vec<OpBuffers>;
}

/// Owned by the work and by the library, whose share ends when the memory is free.
struct Buffers<T: Contents> {
    send: Option<T::Value>,
    recv: UnsafeCell<T::Value>,
}

// SAFETY: while the operation is in flight only the library touches the memory; afterwards only the one `Work` does.
unsafe impl<T: Contents> Sync for Buffers<T> {}

/// An operation in flight, which owns its buffers. Dropping it lets the operation go on; the buffers are freed when it is
/// done.
#[must_use = "an operation that nobody waits for has nobody to hear of its failure"]
pub struct Work<T: Contents> {
    handle: Handle<sys::ujoin_work>,
    buffers: Arc<Buffers<T>>,
}

impl<T: Contents> Work<T> {
    /// Waits until it is done; its error, the same on every later call.
    pub fn wait(&self) -> Result<()> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time.
        check(unsafe { sys::ujoin_work_wait(call.raw(), -1) })?;
        Ok(())
    }

    /// Waits for at most this time: whether it is done.
    pub fn wait_for(&self, limit: Duration) -> Result<bool> {
        let call = self.handle.enter()?;
        // SAFETY: one call at a time.
        check_done(unsafe { sys::ujoin_work_wait(call.raw(), wait_ms(limit)) })
    }

    /// Whether it is done; never waits, and advances it where the group does not advance by itself.
    pub fn test(&self) -> Result<bool> {
        // SAFETY: may be called at any time.
        check_done(unsafe { sys::ujoin_work_test(self.handle.raw()) })
    }

    /// The ranks that contributed, ascending: all, unless ranks that had joined shadowed it (see
    /// [`GroupBuilder::shadow_collectives`](crate::GroupBuilder::shadow_collectives)). Empty while it is in flight, and if
    /// it failed.
    pub fn contributors(&self) -> Vec<usize> {
        // SAFETY: may be called at any time; capacity 0 asks how many there are.
        let count = unsafe { sys::ujoin_work_contributors(self.handle.raw(), ptr::null_mut(), 0) };
        let mut ranks = vec![0; count];
        // SAFETY: the array has the capacity that is given.
        unsafe { sys::ujoin_work_contributors(self.handle.raw(), ranks.as_mut_ptr(), count) };
        ranks.into_iter().filter_map(maybe_rank).collect()
    }

    /// For a hook that passes it out: the handle, and what has the result when it is done.
    pub(crate) fn into_parts(self) -> (Handle<sys::ujoin_work>, Box<dyn Any + Send>) {
        (self.handle, Box::new(self.buffers))
    }

    /// The result in what `into_parts` gave.
    ///
    /// # Safety
    /// The work is complete, and nobody else has the buffers.
    pub(crate) unsafe fn result_of(parts: Box<dyn Any + Send>) -> Option<T::Value> {
        let buffers = parts.downcast::<Arc<Buffers<T>>>().ok()?;
        // SAFETY: the caller's promise.
        Some(std::mem::take(unsafe { &mut *buffers.recv.get() }))
    }

    /// Gives it up on every rank, which breaks the group.
    pub fn abort(&self) {
        self.handle.abort("");
    }

    /// The same from another thread.
    pub fn aborter(&self) -> Aborter {
        self.handle.aborter()
    }

    /// Waits until it is done and gives the buffer with the result. After an error the buffer is gone.
    pub fn into_inner(self) -> Result<T::Value> {
        self.wait()?;
        // SAFETY: from its final status on neither the library nor a peer touches the memory, and we own the only Work.
        Ok(std::mem::take(unsafe { &mut *self.buffers.recv.get() }))
    }
}
