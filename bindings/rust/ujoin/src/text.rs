// SPDX-License-Identifier: Apache-2.0
//! Texts, ranks and durations on their way to C and back.
use crate::{Error, ErrorKind, Result};
use std::ffi::{c_char, CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

/// C would see a text only up to its first NUL, so one with a NUL is refused.
pub(crate) fn to_c(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|e| {
        let at = e.nul_position();
        Error::new(ErrorKind::Invalid, format!("{what} has a NUL character at byte {at}: {text:?}"))
    })
}

pub(crate) fn path_to_c(path: &Path, what: &str) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(ErrorKind::Invalid, format!("{what} has a NUL character: {path:?}")))
}

pub(crate) fn maybe_to_c(text: &Option<String>, what: &str) -> Result<Option<CString>> {
    text.as_deref().map(|t| to_c(t, what)).transpose()
}

/// NULL for what is absent.
pub(crate) fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |t| t.as_ptr())
}

/// Texts as C takes them: an array of pointers that lives as long as this.
pub(crate) struct CTexts {
    _owned: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CTexts {
    pub(crate) fn new<S: AsRef<str>>(texts: impl IntoIterator<Item = S>, what: &str) -> Result<Self> {
        let owned = texts.into_iter().map(|t| to_c(t.as_ref(), what)).collect::<Result<Vec<_>>>()?;
        let pointers = owned.iter().map(|t| t.as_ptr()).collect();
        Ok(Self { _owned: owned, pointers })
    }

    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        if self.pointers.is_empty() {
            ptr::null()
        } else {
            self.pointers.as_ptr()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }
}

/// # Safety
/// NULL, or a text that ends with a NUL.
pub(crate) unsafe fn from_c(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Too large a rank stays too large, so that the library says what it thinks of it.
pub(crate) fn rank_to_c(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

/// -1 is C's "none" and "all".
pub(crate) fn maybe_rank(rank: i32) -> Option<usize> {
    usize::try_from(rank).ok()
}

pub(crate) fn rank_or_all(rank: Option<usize>) -> i32 {
    rank.map_or(-1, rank_to_c)
}

/// A wait: rounded up, so that it is never shorter than asked for.
pub(crate) fn wait_ms(limit: Duration) -> i64 {
    i64::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// A limit in a struct, where 0 would mean the default; `Duration::MAX` is "never".
pub(crate) fn limit_ms(limit: Option<Duration>) -> i64 {
    match limit {
        None => 0,
        Some(Duration::ZERO) => i64::from(ujoin_sys::UJOIN_NOW),
        Some(Duration::MAX) => i64::from(ujoin_sys::UJOIN_NEVER),
        Some(limit) => wait_ms(limit),
    }
}
