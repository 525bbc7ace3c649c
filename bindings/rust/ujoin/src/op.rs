// SPDX-License-Identifier: Apache-2.0
//! Operations as values, for lists of them.
use crate::text::rank_to_c;
use crate::{Element, Error, ErrorKind, Reduce, Result};
use std::any::Any;
use std::marker::PhantomData;
use ujoin_sys as sys;

type Kept = Option<Box<dyn Any + Send + Sync>>;

/// Memory that an operation reads: a slice, array or `Vec` by reference, or a `Vec` of its own.
pub struct SendBuffer<'b, E> {
    raw: sys::ujoin_const_buffer,
    kept: Kept,
    borrowed: PhantomData<&'b [E]>,
}

/// Memory that an operation writes: a slice, array or `Vec` by mutable reference, or a `Vec` of its own.
pub struct RecvBuffer<'b, E> {
    raw: sys::ujoin_buffer,
    kept: Kept,
    borrowed: PhantomData<&'b mut [E]>,
}

impl<'b, E: Element> From<&'b [E]> for SendBuffer<'b, E> {
    fn from(slice: &'b [E]) -> Self {
        let (data, count, dtype) = (slice.as_ptr().cast(), slice.len(), E::DTYPE.value());
        let raw = sys::ujoin_const_buffer { data, count, dtype, ..Default::default() };
        Self { raw, kept: None, borrowed: PhantomData }
    }
}

impl<'b, E: Element> From<&'b mut [E]> for RecvBuffer<'b, E> {
    fn from(slice: &'b mut [E]) -> Self {
        let (data, count, dtype) = (slice.as_mut_ptr().cast(), slice.len(), E::DTYPE.value());
        let raw = sys::ujoin_buffer { data, count, dtype, ..Default::default() };
        Self { raw, kept: None, borrowed: PhantomData }
    }
}

impl<'b, E: Element> From<&'b Vec<E>> for SendBuffer<'b, E> {
    fn from(vec: &'b Vec<E>) -> Self {
        Self::from(&vec[..])
    }
}

impl<'b, E: Element> From<&'b mut Vec<E>> for RecvBuffer<'b, E> {
    fn from(vec: &'b mut Vec<E>) -> Self {
        Self::from(&mut vec[..])
    }
}

impl<'b, E: Element, const N: usize> From<&'b [E; N]> for SendBuffer<'b, E> {
    fn from(array: &'b [E; N]) -> Self {
        Self::from(&array[..])
    }
}

impl<'b, E: Element, const N: usize> From<&'b mut [E; N]> for RecvBuffer<'b, E> {
    fn from(array: &'b mut [E; N]) -> Self {
        Self::from(&mut array[..])
    }
}

impl<E: Element> From<Vec<E>> for SendBuffer<'_, E> {
    fn from(vec: Vec<E>) -> Self {
        let raw = SendBuffer::from(&vec[..]).raw; // its memory stays where it is when the Vec moves
        Self { raw, kept: Some(Box::new(vec)), borrowed: PhantomData }
    }
}

impl<E: Element> From<Vec<E>> for RecvBuffer<'_, E> {
    fn from(mut vec: Vec<E>) -> Self {
        let raw = RecvBuffer::from(&mut vec[..]).raw;
        Self { raw, kept: Some(Box::new(vec)), borrowed: PhantomData }
    }
}

/// The buffers that an operation of [`Group::start_submit`](crate::Group::start_submit) owned.
#[derive(Default)]
pub struct OpBuffers {
    send: Kept,
    recv: Kept,
}

impl OpBuffers {
    /// Takes what was sent; `None` if that was borrowed, of another type, or taken already.
    pub fn send<E: Element>(&mut self) -> Option<Vec<E>> {
        take(&mut self.send)
    }

    /// Takes what was received, or reduced in place; `None` as of [`send`](Self::send).
    pub fn recv<E: Element>(&mut self) -> Option<Vec<E>> {
        take(&mut self.recv)
    }
}

fn take<E: Element>(from: &mut Kept) -> Option<Vec<E>> {
    from.as_mut()?.downcast_mut::<Vec<E>>()?;
    from.take()?.downcast().ok().map(|vec| *vec)
}

/// An operation for [`Group::submit`](crate::Group::submit), on memory that it borrows for `'b` or owns.
#[must_use = "this only describes an operation"]
pub struct Op<'b> {
    raw: sys::ujoin_op,
    send_counts: Option<Vec<usize>>,
    recv_counts: Option<Vec<usize>>,
    buffers: OpBuffers,
    borrowed: PhantomData<&'b mut ()>,
}

impl<'b> Op<'b> {
    /// [`Group::all_reduce`](crate::Group::all_reduce).
    pub fn all_reduce<E: Element>(data: impl Into<RecvBuffer<'b, E>>, reduce: Reduce) -> Self {
        Self::new(sys::UJOIN_OP_ALL_REDUCE).recv_into(data).reducing(reduce)
    }

    /// [`Group::all_reduce_into`](crate::Group::all_reduce_into).
    pub fn all_reduce_into<E: Element>(
        send: impl Into<SendBuffer<'b, E>>,
        recv: impl Into<RecvBuffer<'b, E>>,
        reduce: Reduce,
    ) -> Self {
        Self::new(sys::UJOIN_OP_ALL_REDUCE).send_from(send).recv_into(recv).reducing(reduce)
    }

    /// [`Group::reduce`](crate::Group::reduce).
    pub fn reduce<E: Element>(data: impl Into<RecvBuffer<'b, E>>, root: usize, reduce: Reduce) -> Self {
        Self::new(sys::UJOIN_OP_REDUCE).recv_into(data).with(root).reducing(reduce)
    }

    /// [`Group::reduce_into`](crate::Group::reduce_into).
    pub fn reduce_into<E: Element>(
        send: impl Into<SendBuffer<'b, E>>,
        recv: impl Into<RecvBuffer<'b, E>>,
        root: usize,
        reduce: Reduce,
    ) -> Self {
        Self::new(sys::UJOIN_OP_REDUCE).send_from(send).recv_into(recv).with(root).reducing(reduce)
    }

    /// [`Group::broadcast`](crate::Group::broadcast).
    pub fn broadcast<E: Element>(data: impl Into<RecvBuffer<'b, E>>, root: usize) -> Self {
        Self::new(sys::UJOIN_OP_BROADCAST).recv_into(data).with(root)
    }

    /// [`Group::all_gather`](crate::Group::all_gather); parts of unequal length with [`recv_counts`](Self::recv_counts),
    /// the same on every rank.
    pub fn all_gather<E: Element>(send: impl Into<SendBuffer<'b, E>>, recv: impl Into<RecvBuffer<'b, E>>) -> Self {
        Self::new(sys::UJOIN_OP_ALL_GATHER).send_from(send).recv_into(recv)
    }

    /// [`Group::all_gather_in_place`](crate::Group::all_gather_in_place); unequal parts as of
    /// [`all_gather`](Self::all_gather).
    pub fn all_gather_in_place<E: Element>(recv: impl Into<RecvBuffer<'b, E>>) -> Self {
        Self::new(sys::UJOIN_OP_ALL_GATHER).recv_into(recv)
    }

    /// [`Group::gather`](crate::Group::gather); parts of unequal length with the root's [`recv_counts`](Self::recv_counts).
    pub fn gather<E: Element>(
        send: impl Into<SendBuffer<'b, E>>,
        recv: impl Into<RecvBuffer<'b, E>>,
        root: usize,
    ) -> Self {
        Self::new(sys::UJOIN_OP_GATHER).send_from(send).recv_into(recv).with(root)
    }

    /// The root's side of [`gather`](Self::gather) where its own part lies in `recv` already.
    pub fn gather_in_place<E: Element>(recv: impl Into<RecvBuffer<'b, E>>, root: usize) -> Self {
        Self::new(sys::UJOIN_OP_GATHER).recv_into(recv).with(root)
    }

    /// [`Group::scatter`](crate::Group::scatter); parts of unequal length with the root's
    /// [`send_counts`](Self::send_counts).
    pub fn scatter<E: Element>(
        send: impl Into<SendBuffer<'b, E>>,
        recv: impl Into<RecvBuffer<'b, E>>,
        root: usize,
    ) -> Self {
        Self::new(sys::UJOIN_OP_SCATTER).send_from(send).recv_into(recv).with(root)
    }

    /// The root's side of [`scatter`](Self::scatter) where its own part stays in `send`.
    pub fn scatter_in_place<E: Element>(send: impl Into<SendBuffer<'b, E>>, root: usize) -> Self {
        Self::new(sys::UJOIN_OP_SCATTER).send_from(send).with(root)
    }

    /// [`Group::reduce_scatter`](crate::Group::reduce_scatter); parts of unequal length with
    /// [`recv_counts`](Self::recv_counts), the same on every rank.
    pub fn reduce_scatter<E: Element>(
        send: impl Into<SendBuffer<'b, E>>,
        recv: impl Into<RecvBuffer<'b, E>>,
        reduce: Reduce,
    ) -> Self {
        Self::new(sys::UJOIN_OP_REDUCE_SCATTER).send_from(send).recv_into(recv).reducing(reduce)
    }

    /// [`Group::all_to_all`](crate::Group::all_to_all); parts of unequal length with [`send_counts`](Self::send_counts) and
    /// [`recv_counts`](Self::recv_counts).
    pub fn all_to_all<E: Element>(send: impl Into<SendBuffer<'b, E>>, recv: impl Into<RecvBuffer<'b, E>>) -> Self {
        Self::new(sys::UJOIN_OP_ALL_TO_ALL).send_from(send).recv_into(recv)
    }

    /// [`Group::all_to_all_in_place`](crate::Group::all_to_all_in_place).
    pub fn all_to_all_in_place<E: Element>(data: impl Into<RecvBuffer<'b, E>>) -> Self {
        Self::new(sys::UJOIN_OP_ALL_TO_ALL).recv_into(data)
    }

    /// [`Group::send`](crate::Group::send).
    pub fn send<E: Element>(data: impl Into<SendBuffer<'b, E>>, to: usize) -> Self {
        Self::new(sys::UJOIN_OP_SEND).send_from(data).with(to)
    }

    /// [`Group::recv`](crate::Group::recv).
    pub fn recv<E: Element>(data: impl Into<RecvBuffer<'b, E>>, from: usize) -> Self {
        Self::new(sys::UJOIN_OP_RECV).recv_into(data).with(from)
    }

    /// [`Group::barrier`](crate::Group::barrier).
    pub fn barrier() -> Self {
        Self::new(sys::UJOIN_OP_BARRIER)
    }

    /// What is sent has a part of this many elements for each rank, end to end.
    pub fn send_counts(mut self, counts: impl Into<Vec<usize>>) -> Self {
        self.send_counts = Some(counts.into());
        self
    }

    /// What is received has a part of this many elements of each rank, end to end; what
    /// [`reduce_scatter`](Self::reduce_scatter) sends, for each rank.
    pub fn recv_counts(mut self, counts: impl Into<Vec<usize>>) -> Self {
        self.recv_counts = Some(counts.into());
        self
    }

    fn new(kind: sys::ujoin_op_kind) -> Self {
        Self {
            raw: sys::ujoin_op { kind, ..Default::default() },
            send_counts: None,
            recv_counts: None,
            buffers: OpBuffers::default(),
            borrowed: PhantomData,
        }
    }

    fn send_from<E: Element>(mut self, buffer: impl Into<SendBuffer<'b, E>>) -> Self {
        let buffer = buffer.into();
        (self.raw.send, self.buffers.send) = (buffer.raw, buffer.kept);
        self
    }

    fn recv_into<E: Element>(mut self, buffer: impl Into<RecvBuffer<'b, E>>) -> Self {
        let buffer = buffer.into();
        (self.raw.recv, self.buffers.recv) = (buffer.raw, buffer.kept);
        self
    }

    fn with(mut self, peer: usize) -> Self {
        self.raw.peer = rank_to_c(peer);
        self
    }

    fn reducing(mut self, reduce: Reduce) -> Self {
        self.raw.reduce = reduce as i32;
        self
    }
}

/// Operations as C takes them; the memory lives as long as `buffers`, or as what it is borrowed from.
pub(crate) struct List {
    pub(crate) raw: Vec<sys::ujoin_op>,
    _counts: Vec<Vec<usize>>,
    pub(crate) buffers: Vec<OpBuffers>,
}

impl List {
    /// The library reads a count for each of the ranks.
    pub(crate) fn new<'b>(ops: impl IntoIterator<Item = Op<'b>>, ranks: usize) -> Result<Self> {
        let mut list = Self { raw: Vec::new(), _counts: Vec::new(), buffers: Vec::new() };
        for (i, mut op) in ops.into_iter().enumerate() {
            for (counts, pointer, name) in [
                (op.send_counts, &mut op.raw.send_counts, "send_counts"),
                (op.recv_counts, &mut op.raw.recv_counts, "recv_counts"),
            ] {
                let Some(counts) = counts else { continue };
                if counts.len() != ranks {
                    let text =
                        format!("ops[{i}].{name} has {} elements; expected {ranks}, one for each rank", counts.len());
                    return Err(Error::new(ErrorKind::Invalid, text));
                }
                *pointer = counts.as_ptr();
                list._counts.push(counts);
            }
            list.raw.push(op.raw);
            list.buffers.push(op.buffers);
        }
        Ok(list)
    }
}
