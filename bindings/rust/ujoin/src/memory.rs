// SPDX-License-Identifier: Apache-2.0
//! Memory that the ranks of a host share.
use crate::error::check;
use crate::group::Group;
use crate::handle::{Handle, Raw};
use crate::Result;
use std::ffi::CStr;
use std::ptr;
use ujoin_sys as sys;

impl Raw for sys::ujoin_memory {
    const NAME: &'static str = "memory";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::ujoin_memory_destroy(raw) }
    }
    unsafe fn abort(_raw: *mut Self, _reason: &CStr) {}
}

/// Memory that the ranks of a host share: zeros, reserved when it is made, and gone with its ranks.
pub struct SharedMemory(Handle<sys::ujoin_memory>);

impl SharedMemory {
    /// So many bytes of this rank's own. Collective.
    pub fn new(group: &Group, bytes: usize) -> Result<Self> {
        Self::create(group, bytes, false)
    }

    /// One copy for all ranks of the host, which give the same size. Collective.
    pub fn one_per_host(group: &Group, bytes: usize) -> Result<Self> {
        Self::create(group, bytes, true)
    }

    fn create(group: &Group, bytes: usize, one_per_host: bool) -> Result<Self> {
        let group = group.0.enter()?;
        let options = sys::ujoin_memory_options { one_per_host: one_per_host.into(), ..Default::default() };
        let mut out = ptr::null_mut();
        // SAFETY: one call at a time on the group; gives a new handle.
        check(unsafe { sys::ujoin_memory_create(group.raw(), bytes, &options, &mut out) })?;
        Ok(Self(Handle::adopt(out)))
    }

    /// Where it lies, at a multiple of 4 KiB, as long as this object lives. Other ranks may read and write what their part is.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: any thread may ask.
        unsafe { sys::ujoin_memory_data(self.0.raw()).cast() }
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        // SAFETY: any thread may ask.
        unsafe { sys::ujoin_memory_size(self.0.raw()) }
    }
}
