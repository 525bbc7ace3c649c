// SPDX-License-Identifier: Apache-2.0
use crate::error::check;
use crate::handle::{Handle, Raw};
use crate::library::check_abi;
use crate::text::to_c;
use crate::{DType, Element, Error, ErrorKind, Result};
use std::ffi::{c_char, c_void, CStr};
use std::ptr;
use std::slice;
use ujoin_sys as sys;

impl Raw for sys::ujoin_state {
    const NAME: &'static str = "state";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::ujoin_state_destroy(raw) }
    }
    unsafe fn abort(_raw: *mut Self, _reason: &CStr) {}
}

/// What an item belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Owner<'s> {
    /// The program itself.
    Program,
    /// The parameter of this name, in this param group.
    Param(&'s str, usize),
    /// A param group: its hyper-parameters.
    Group(usize),
}

/// What an item holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'s> {
    /// Elements of this type and shape, row-major, as bytes.
    Tensor(DType, &'s [i64], &'s [u8]),
    /// A number.
    Number(f64),
    /// A text.
    Text(&'s str),
    /// Bytes.
    Bytes(&'s [u8]),
}

/// One item of a [`State`]; `key` is unique within its owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item<'s> {
    /// What it belongs to.
    pub owner: Owner<'s>,
    /// `exp_avg`, `step`, `lr`, or the program's own name.
    pub key: &'s str,
    /// What it holds.
    pub value: Value<'s>,
}

impl Item<'_> {
    /// The elements of a tensor, if they are of this type.
    pub fn tensor<E: Element>(&self) -> Option<Vec<E>> {
        let Value::Tensor(dtype, _, bytes) = self.value else {
            return None;
        };
        if dtype != E::DTYPE {
            return None;
        }
        // SAFETY: any bytes are elements; they may lie unaligned.
        Some(bytes.chunks_exact(size_of::<E>()).map(|c| unsafe { c.as_ptr().cast::<E>().read_unaligned() }).collect())
    }
}

/// A typed list of saved items: an optimizer's state, or the program's own.
pub struct State(pub(crate) Handle<sys::ujoin_state>);

impl State {
    /// An empty list.
    pub fn new() -> Result<Self> {
        check_abi()?;
        let mut out = ptr::null_mut();
        // SAFETY: gives a new handle.
        check(unsafe { sys::ujoin_state_create(&mut out) })?;
        Ok(Self(Handle::adopt(out)))
    }

    /// Adds an item, or replaces the one with the same owner and key. Everything is copied.
    pub fn set(&mut self, item: &Item) -> Result<()> {
        let key = to_c(item.key, "key")?;
        let param = if let Owner::Param(name, _) = item.owner { Some(to_c(name, "param")?) } else { None };
        let mut to = sys::ujoin_item { key: key.as_ptr(), ..Default::default() };
        if let Some(name) = &param {
            to.param = name.as_ptr();
        }
        fill_owner(&mut to, item.owner);
        fill_value(&mut to, item.value);
        let call = self.0.enter()?;
        // SAFETY: all that the item points to lives beyond the call.
        check(unsafe { sys::ujoin_state_set(call.raw(), &to) })?;
        Ok(())
    }

    /// Sets a number of the program's own.
    pub fn set_number(&mut self, key: &str, number: f64) -> Result<()> {
        self.set(&Item { owner: Owner::Program, key, value: Value::Number(number) })
    }

    /// Sets a text of the program's own.
    pub fn set_text(&mut self, key: &str, text: &str) -> Result<()> {
        self.set(&Item { owner: Owner::Program, key, value: Value::Text(text) })
    }

    /// Sets bytes of the program's own.
    pub fn set_bytes(&mut self, key: &str, bytes: &[u8]) -> Result<()> {
        self.set(&Item { owner: Owner::Program, key, value: Value::Bytes(bytes) })
    }

    /// Sets a tensor of any owner.
    pub fn set_tensor<E: Element>(&mut self, owner: Owner, key: &str, shape: &[i64], elements: &[E]) -> Result<()> {
        // SAFETY: elements have no padding: numbers, or bits of numbers.
        let bytes = unsafe { slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) };
        self.set(&Item { owner, key, value: Value::Tensor(E::DTYPE, shape, bytes) })
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        // SAFETY: the handle is in one thread.
        unsafe { sys::ujoin_state_count(self.0.raw()) }
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Item `index`, in the order of owner, group, parameter and key.
    pub fn get(&self, index: usize) -> Result<Item<'_>> {
        let (call, mut item) = (self.0.enter()?, sys::ujoin_item::new());
        // SAFETY: one call at a time; the struct has its size.
        check(unsafe { sys::ujoin_state_get(call.raw(), index, &mut item) })?;
        // SAFETY: the pointers live until the list changes, which needs it mutably.
        unsafe { item_of(&item) }
    }

    /// An item of the program's own by its key; `None` if there is none.
    pub fn find(&self, key: &str) -> Result<Option<Item<'_>>> {
        let (key, call, mut item) = (to_c(key, "key")?, self.0.enter()?, sys::ujoin_item::new());
        // SAFETY: one call at a time; the struct has its size.
        match check(unsafe { sys::ujoin_state_find(call.raw(), key.as_ptr(), &mut item) }) {
            // SAFETY: as in get.
            Ok(_) => unsafe { item_of(&item) }.map(Some),
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All items in their order.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        (0..self.len()).filter_map(|index| self.get(index).ok())
    }
}

fn fill_owner(to: &mut sys::ujoin_item, owner: Owner) {
    (to.owner, to.group) = match owner {
        Owner::Program => (sys::UJOIN_ITEM_OF_PROGRAM, 0),
        Owner::Param(_, group) => (sys::UJOIN_ITEM_OF_PARAM, crate::text::rank_to_c(group)),
        Owner::Group(group) => (sys::UJOIN_ITEM_OF_GROUP, crate::text::rank_to_c(group)),
    };
}

fn fill_value(to: &mut sys::ujoin_item, value: Value) {
    let bytes = match value {
        Value::Tensor(dtype, shape, bytes) => {
            (to.kind, to.dtype) = (sys::UJOIN_ITEM_TENSOR, dtype.value());
            (to.shape, to.ndim) = (shape.as_ptr(), shape.len() as i32);
            bytes
        }
        Value::Number(number) => {
            (to.kind, to.number) = (sys::UJOIN_ITEM_NUMBER, number);
            &[]
        }
        Value::Text(text) => {
            to.kind = sys::UJOIN_ITEM_TEXT;
            text.as_bytes()
        }
        Value::Bytes(bytes) => {
            to.kind = sys::UJOIN_ITEM_BYTES;
            bytes
        }
    };
    (to.data, to.bytes) = (bytes.as_ptr().cast(), bytes.len());
}

/// # Safety
/// Filled by the library, and its pointers live for `'s`.
unsafe fn item_of<'s>(item: &sys::ujoin_item) -> Result<Item<'s>> {
    // SAFETY: the caller's promise.
    unsafe {
        let group = usize::try_from(item.group).unwrap_or_default();
        let owner = match item.owner {
            sys::UJOIN_ITEM_OF_PARAM => Owner::Param(text_of(item.param)?, group),
            sys::UJOIN_ITEM_OF_GROUP => Owner::Group(group),
            _ => Owner::Program,
        };
        Ok(Item { owner, key: text_of(item.key)?, value: value_of(item)? })
    }
}

/// # Safety
/// As `item_of`.
unsafe fn value_of<'s>(item: &sys::ujoin_item) -> Result<Value<'s>> {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes: &[u8] = array(item.data, item.bytes);
        match item.kind {
            sys::UJOIN_ITEM_TENSOR => {
                let shape = array(item.shape.cast(), item.ndim as usize);
                Ok(Value::Tensor(DType::of(item.dtype), shape, bytes))
            }
            sys::UJOIN_ITEM_NUMBER => Ok(Value::Number(item.number)),
            sys::UJOIN_ITEM_TEXT => Ok(Value::Text(std::str::from_utf8(bytes).map_err(|_| not_utf8())?)),
            _ => Ok(Value::Bytes(bytes)),
        }
    }
}

/// # Safety
/// NULL or so many elements, which live for `'s`.
unsafe fn array<'s, T>(data: *const c_void, count: usize) -> &'s [T] {
    // SAFETY: the caller's promise.
    if data.is_null() || count == 0 {
        &[]
    } else {
        unsafe { slice::from_raw_parts(data.cast(), count) }
    }
}

/// # Safety
/// A text that lives for `'s`.
unsafe fn text_of<'s>(text: *const c_char) -> Result<&'s str> {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| not_utf8())
}

fn not_utf8() -> Error {
    Error::new(ErrorKind::Mismatch, "an item has a text that is not UTF-8")
}
