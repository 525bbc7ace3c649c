// SPDX-License-Identifier: Apache-2.0
use crate::callback;
use crate::text::{from_c, maybe_rank};
use std::fmt;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is wrong: correct the call.
    Invalid,
    /// Not now: called in the wrong order, or on a closed, broken or busy object.
    State,
    /// Not in this build, backend or machine.
    Unsupported,
    /// Memory cannot be had; nothing was changed.
    NoMemory,
    /// The operation's deadline passed; it is dead. [`Error::ranks`] are missing.
    Timeout,
    /// This rank or a peer gave up.
    Aborted,
    /// A rank died or left.
    PeerLost,
    /// Ranks called different things.
    Mismatch,
    /// Throw mode: a rank has no more inputs; the same use on every rank.
    Exhausted,
    /// The system refused; see [`Error::errno`].
    System,
    /// A library under a backend reported an error.
    Backend,
    /// A callback failed, or the interrupt check asked to stop.
    Callback,
    /// A worker failed; see [`Workers::report`](crate::Workers::report).
    ChildFailed,
    /// A defect of the library; please report the text.
    Internal,
    /// A status that this version of the crate does not know.
    Unknown(i32),
}

const KINDS: [(i32, ErrorKind); 14] = [
    (ujoin_sys::UJOIN_E_INVALID, ErrorKind::Invalid),
    (ujoin_sys::UJOIN_E_STATE, ErrorKind::State),
    (ujoin_sys::UJOIN_E_UNSUPPORTED, ErrorKind::Unsupported),
    (ujoin_sys::UJOIN_E_NO_MEMORY, ErrorKind::NoMemory),
    (ujoin_sys::UJOIN_E_TIMEOUT, ErrorKind::Timeout),
    (ujoin_sys::UJOIN_E_ABORTED, ErrorKind::Aborted),
    (ujoin_sys::UJOIN_E_PEER_LOST, ErrorKind::PeerLost),
    (ujoin_sys::UJOIN_E_MISMATCH, ErrorKind::Mismatch),
    (ujoin_sys::UJOIN_E_EXHAUSTED, ErrorKind::Exhausted),
    (ujoin_sys::UJOIN_E_SYSTEM, ErrorKind::System),
    (ujoin_sys::UJOIN_E_BACKEND, ErrorKind::Backend),
    (ujoin_sys::UJOIN_E_CALLBACK, ErrorKind::Callback),
    (ujoin_sys::UJOIN_E_CHILD_FAILED, ErrorKind::ChildFailed),
    (ujoin_sys::UJOIN_E_INTERNAL, ErrorKind::Internal),
];

impl ErrorKind {
    fn of(status: i32) -> Self {
        KINDS.iter().find(|(s, _)| *s == status).map_or(Self::Unknown(status), |(_, kind)| *kind)
    }

    pub(crate) fn status(self) -> i32 {
        match self {
            Self::Unknown(status) => status,
            known => KINDS.iter().find(|(_, kind)| *kind == known).map_or(ujoin_sys::UJOIN_E_CALLBACK, |(s, _)| *s),
        }
    }

    /// The name of the status in C, `UJOIN_E_TIMEOUT`.
    pub fn name(self) -> String {
        // SAFETY: any number has a name, a static text.
        unsafe { from_c(ujoin_sys::ujoin_status_name(self.status())) }
    }
}

/// Why a call failed. `Display` gives the library's text: rank, operation and the whole chain of causes.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Parts>);

#[derive(Clone, PartialEq, Eq)]
struct Parts {
    kind: ErrorKind,
    text: String,
    errno: Option<i32>,
    ranks: Vec<usize>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self(Box::new(Parts { kind, text: text.into(), errno: None, ranks: Vec::new() }))
    }

    /// An error of the program's own, of kind [`ErrorKind::Callback`], for closures that return the crate's errors.
    pub fn program(text: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Callback, text.to_string())
    }

    /// What this thread's last call failed with. Text and ranks are the thread's own, so nothing can come in between.
    #[cold]
    pub(crate) fn last(status: i32) -> Self {
        // SAFETY: the text is valid until the next failing call of this thread.
        let text = unsafe { from_c(ujoin_sys::ujoin_last_error()) };
        // SAFETY: always allowed.
        let errno = unsafe { ujoin_sys::ujoin_last_errno() };
        Self(Box::new(Parts {
            kind: ErrorKind::of(status),
            text,
            errno: (errno != 0).then_some(errno),
            ranks: last_ranks(),
        }))
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The text: rank, operation and causes.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The system's error number, if the system was the cause.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }

    /// The ranks that it is about, ascending: missing, late, lost, aborted or exhausted.
    pub fn ranks(&self) -> &[usize] {
        &self.0.ranks
    }
}

fn last_ranks() -> Vec<usize> {
    // SAFETY: capacity 0 asks how many there are.
    let count = unsafe { ujoin_sys::ujoin_last_missing(std::ptr::null_mut(), 0) };
    let mut ranks = vec![0; count];
    // SAFETY: the array has the capacity that is given.
    unsafe { ujoin_sys::ujoin_last_missing(ranks.as_mut_ptr(), ranks.len()) };
    ranks.into_iter().filter_map(maybe_rank).collect()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

/// For a person too: it is what `unwrap` and a `main` that returns it print.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.text)
    }
}

impl std::error::Error for Error {}

/// Negative: an error. Else the status, which is 0 or says something that is none.
#[inline]
pub(crate) fn check(status: i32) -> Result<i32> {
    if status >= 0 {
        Ok(status)
    } else {
        Err(failed(status))
    }
}

/// For calls that can run out of time without being over: whether it is over.
pub(crate) fn check_done(status: i32) -> Result<bool> {
    Ok(check(status)? != ujoin_sys::UJOIN_PENDING)
}

#[cold]
fn failed(status: i32) -> Error {
    let error = Error::last(status);
    callback::resume_panic(); // of the interrupt check or a hook, in the call that ran it
    error
}
