// SPDX-License-Identifier: Apache-2.0
use crate::error::{check, check_done};
use crate::handle::{Aborter, Handle, Raw};
use crate::library::check_abi;
use crate::text::{from_c, limit_ms, maybe_to_c, pointer, to_c, wait_ms, CTexts};
use crate::Result;
use std::ffi::{CStr, CString};
use std::ptr;
use std::time::Duration;
use ujoin_sys as sys;

impl Raw for sys::ujoin_store {
    const NAME: &'static str = "store";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::ujoin_store_destroy(raw) }
    }
    unsafe fn abort(raw: *mut Self, _reason: &CStr) {
        unsafe { sys::ujoin_store_abort(raw) }
    }
}

/// Keys and values that ranks share. Dropping a server's store leaves the server up for the groups and prefixes made of it.
pub struct Store(pub(crate) Handle<sys::ujoin_store>);

/// How to open a [`Store`].
pub struct StoreBuilder {
    url: String,
    secret: Option<String>,
    timeout: Option<Duration>,
    listen: bool,
}

impl StoreBuilder {
    /// tcp: the shared secret; default: the variable `UJOIN_SECRET`.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// To reach the server or the file; default 5 minutes.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// tcp: be the server; port 0 in the address is any free one.
    pub fn listen(mut self) -> Self {
        self.listen = true;
        self
    }

    /// Opens it. [`System`](crate::ErrorKind::System): address in use, no such host, unwritable file.
    pub fn open(self) -> Result<Store> {
        check_abi()?;
        let (url, secret) = (to_c(&self.url, "url")?, maybe_to_c(&self.secret, "secret")?);
        let options = sys::ujoin_store_options {
            secret: pointer(&secret),
            timeout_ms: limit_ms(self.timeout),
            listen: self.listen.into(),
            ..Default::default()
        };
        let mut out = ptr::null_mut();
        // SAFETY: the texts live beyond the call, which copies them.
        check(unsafe { sys::ujoin_store_create(url.as_ptr(), &options, &mut out) })?;
        Ok(Store(Handle::adopt(out)))
    }
}

impl Store {
    /// Opens `memory://name` (this process), `file:///path` or `tcp://host:port`.
    pub fn open(url: impl Into<String>) -> Result<Self> {
        Self::builder(url).open()
    }

    /// A store with options.
    pub fn builder(url: impl Into<String>) -> StoreBuilder {
        StoreBuilder { url: url.into(), secret: None, timeout: None, listen: false }
    }

    /// A view in which every key carries a prefix.
    pub fn prefix(&self, prefix: &str) -> Result<Store> {
        let (prefix, mut out) = (to_c(prefix, "prefix")?, ptr::null_mut());
        // SAFETY: may be called while another call runs.
        check(unsafe { sys::ujoin_store_prefix(self.0.raw(), prefix.as_ptr(), &mut out) })?;
        Ok(Store(Handle::adopt(out)))
    }

    /// The address by which other processes reach it, with the real port; empty for memory.
    pub fn url(&self) -> String {
        // SAFETY: the text lives with the handle.
        unsafe { from_c(sys::ujoin_store_url(self.0.raw())) }
    }

    /// Sets a key of at most 1 KiB to a value of at most 16 MiB.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let (key, call) = (to_c(key, "key")?, self.0.enter()?);
        // SAFETY: key and value live beyond the call.
        check(unsafe { sys::ujoin_store_set(call.raw(), key.as_ptr(), value.as_ptr().cast(), value.len()) })?;
        Ok(())
    }

    /// Waits until a key exists: its value, or `None` if it was not there in time.
    pub fn get(&self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>> {
        let (key, call) = (to_c(key, "key")?, self.0.enter()?);
        let mut value = vec![0; 1024];
        loop {
            let (status, size) = fetch(call.raw(), &key, wait_ms(limit), &mut value);
            if status < 0 && size > value.len() {
                value.resize(size, 0); // it may have grown again when we come back: hence the loop
                continue;
            }
            value.truncate(size);
            return Ok(check_done(status)?.then_some(value));
        }
    }

    /// Adds to a counter (absent: 0) for all clients at once; its new value.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let (key, call) = (to_c(key, "key")?, self.0.enter()?);
        let mut sum = 0;
        // SAFETY: key and sum live beyond the call.
        check(unsafe { sys::ujoin_store_add(call.raw(), key.as_ptr(), amount, &mut sum) })?;
        Ok(sum)
    }

    /// Waits until all keys exist; false if they did not in time.
    pub fn wait<S: AsRef<str>>(&self, keys: impl IntoIterator<Item = S>, limit: Duration) -> Result<bool> {
        let (keys, call) = (CTexts::new(keys, "key")?, self.0.enter()?);
        // SAFETY: the keys live beyond the call.
        check_done(unsafe { sys::ujoin_store_wait(call.raw(), keys.as_ptr(), keys.len(), wait_ms(limit)) })
    }

    /// Ends every wait on this store, now and later, with [`Aborted`](crate::ErrorKind::Aborted).
    pub fn abort(&self) {
        self.0.abort("");
    }

    /// The same from another thread.
    pub fn aborter(&self) -> Aborter {
        self.0.aborter()
    }
}

fn fetch(store: *mut sys::ujoin_store, key: &CString, limit_ms: i64, into: &mut [u8]) -> (i32, usize) {
    let mut size = 0;
    // SAFETY: the buffer has the capacity that is given.
    let status =
        unsafe { sys::ujoin_store_get(store, key.as_ptr(), limit_ms, into.as_mut_ptr().cast(), into.len(), &mut size) };
    (status, size)
}
