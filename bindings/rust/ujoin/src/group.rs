// SPDX-License-Identifier: Apache-2.0
use crate::collective::{Operation, Reduce, Work};
use crate::error::{check, check_done};
use crate::handle::{Aborter, Handle, Raw};
use crate::library::check_abi;
use crate::op::Op;
use crate::text::{from_c, limit_ms, maybe_rank, maybe_to_c, pointer, rank_to_c, wait_ms};
use crate::{Element, Result, Store};
use std::ffi::CStr;
use std::ptr;
use std::time::Duration;
use ujoin_sys as sys;

impl Raw for sys::ujoin_group {
    const NAME: &'static str = "group";
    unsafe fn destroy(raw: *mut Self) {
        unsafe { sys::ujoin_group_destroy(raw) }
    }
    unsafe fn abort(raw: *mut Self, reason: &CStr) {
        unsafe { sys::ujoin_group_abort(raw, reason.as_ptr()) }
    }
}

/// A set of ranks that communicate.
///
/// Collectives must be called by every rank in the same order. Dropping it says goodbye: what was complete stays complete,
/// a peer's later operation is [`PeerLost`](crate::ErrorKind::PeerLost). Work in flight and objects made of the group keep
/// it alive inside.
pub struct Group(pub(crate) Handle<sys::ujoin_group>);

/// How a [`Group`] is made.
#[derive(Default)]
pub struct GroupBuilder<'s> {
    rendezvous: Option<String>,
    backend: Option<String>,
    name: Option<String>,
    store: Option<&'s Store>,
    place: Option<(usize, usize)>,
    timeout: Option<Duration>,
    rendezvous_timeout: Option<Duration>,
    shadow_collectives: bool,
    threads: usize,
}

impl<'s> GroupBuilder<'s> {
    /// Where ranks meet: `env://` (default), `tcp://host:port`, `file:///path`, `local://name` (threads).
    pub fn rendezvous(mut self, url: impl Into<String>) -> Self {
        self.rendezvous = Some(url.into());
        self
    }

    /// `auto` (default), `self` (one rank), `local` (threads of a process), `shm` (processes of a host); see
    /// [`backends`](crate::backends).
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// Tells apart several groups of one rendezvous.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Meet in this store instead of a rendezvous; the group keeps it alive.
    pub fn store(mut self, store: &'s Store) -> Self {
        self.store = Some(store);
        self
    }

    /// This process's rank and the number of ranks, instead of those of the environment.
    pub fn rank(mut self, rank: usize, world_size: usize) -> Self {
        self.place = Some((rank, world_size));
        self
    }

    /// The deadline of an operation, from its first rank's entry; default `UJOIN_TIMEOUT_MS`, else 10 minutes.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// How long ranks wait for each other here; default 5 minutes.
    pub fn rendezvous_timeout(mut self, limit: Duration) -> Self {
        self.rendezvous_timeout = Some(limit);
        self
    }

    /// In a join context a rank that has joined also takes part in what the program itself calls on this group (it adds
    /// nothing: averages divide by the contributors; see [`Work::contributors`]), so that no hook needs to.
    pub fn shadow_collectives(mut self) -> Self {
        self.shadow_collectives = true;
        self
    }

    /// The threads that compute a step of an optimizer, with the caller's; default `UJOIN_THREADS`, else the rank's share of
    /// the processors.
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = count;
        self
    }

    /// Meets the other ranks, agrees on a backend and attaches. Collective, blocking.
    pub fn build(self) -> Result<Group> {
        // SAFETY: the options are whole, and so is what they point to.
        let group = self.make(|options, out| unsafe { sys::ujoin_group_create(options, out) })?;
        Ok(group.expect("the library gives a handle with every success"))
    }

    /// [`Group::split`] with options; rendezvous, store and rank must not be given.
    pub fn split(self, group: &Group, color: Option<usize>, key: i32) -> Result<Option<Group>> {
        let color = color.map_or(-1, rank_to_c);
        let call = group.0.enter()?;
        // SAFETY: as above; one call at a time.
        self.make(|options, out| unsafe { sys::ujoin_group_split(call.raw(), color, key, options, out) })
    }

    fn make(
        self,
        create: impl FnOnce(&sys::ujoin_group_options, &mut *mut sys::ujoin_group) -> i32,
    ) -> Result<Option<Group>> {
        check_abi()?;
        let rendezvous = maybe_to_c(&self.rendezvous, "rendezvous")?;
        let backend = maybe_to_c(&self.backend, "backend")?;
        let name = maybe_to_c(&self.name, "name")?;
        let store = self.store.map(|s| s.0.enter()).transpose()?;
        let (rank, size) = self.place.unwrap_or((0, 0));
        let options = sys::ujoin_group_options {
            rendezvous: pointer(&rendezvous),
            backend: pointer(&backend),
            name: pointer(&name),
            store: store.as_ref().map_or(ptr::null_mut(), |s| s.raw()),
            rank: rank_to_c(rank),
            world_size: rank_to_c(size),
            timeout_ms: limit_ms(self.timeout),
            rendezvous_timeout_ms: limit_ms(self.rendezvous_timeout),
            shadow_collectives: self.shadow_collectives.into(),
            threads: rank_to_c(self.threads),
            ..Default::default()
        };
        let mut out = ptr::null_mut();
        check(create(&options, &mut out))?; // texts and store live beyond the call, which copies or keeps them
        Ok((!out.is_null()).then(|| Group(Handle::adopt(out))))
    }
}

/// Facts about a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// What `auto` chose.
    pub backend: String,
    /// This process's rank.
    pub rank: usize,
    /// The number of ranks.
    pub world_size: usize,
    /// Its place among the ranks of this host.
    pub local_rank: usize,
    /// The number of ranks of this host.
    pub local_size: usize,
    /// Whether work advances by itself; else only inside calls (fewer processors than ranks).
    pub progress: bool,
    /// The threads that compute in this rank.
    pub threads: usize,
}

impl Group {
    /// Meets the ranks that `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` name, as `ujoin-run` sets them.
    pub fn from_env() -> Result<Self> {
        Self::builder().build()
    }

    /// A group of this process alone.
    pub fn alone() -> Result<Self> {
        Self::builder().backend("self").rank(0, 1).build()
    }

    /// A group with options.
    pub fn builder<'s>() -> GroupBuilder<'s> {
        GroupBuilder::default()
    }

    /// A group of the ranks that give the same color, in the order of their keys, and of their ranks where keys are equal;
    /// `None`, here and as the answer, is no group for this rank. It does not depend on this one: it has its own operations,
    /// may be used from another thread, and fails alone. Collective, blocking.
    pub fn split(&self, color: Option<usize>, key: i32) -> Result<Option<Self>> {
        Self::builder().split(self, color, key)
    }

    /// Runs operations as one: they are complete together. Every rank gives the same ones in the same order; messages
    /// ([`Op::send`], [`Op::recv`]) concern their two ranks only, and go before the others, all at once, so that none waits
    /// for another. Neighbours of one kind, type, reduction and root become a single operation.
    pub fn submit<'b>(&self, ops: impl IntoIterator<Item = Op<'b>>) -> Result<()> {
        self.operation().submit(ops)
    }

    /// [`submit`](Self::submit) in flight, of operations that own their memory: the work gives it back, by operation.
    pub fn start_submit(&self, ops: impl IntoIterator<Item = Op<'static>>) -> Result<Work<Op<'static>>> {
        self.operation().start_submit(ops)
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> usize {
        // SAFETY: may be called at any time.
        maybe_rank(unsafe { sys::ujoin_group_rank(self.0.raw()) }).unwrap_or_default()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        // SAFETY: may be called at any time.
        maybe_rank(unsafe { sys::ujoin_group_size(self.0.raw()) }).unwrap_or_default()
    }

    /// What was agreed on.
    pub fn info(&self) -> Result<GroupInfo> {
        let mut info = sys::ujoin_group_info::new();
        // SAFETY: may be called at any time; the struct has its size.
        check(unsafe { sys::ujoin_group_get_info(self.0.raw(), &mut info) })?;
        Ok(GroupInfo {
            // SAFETY: the text lives with the group.
            backend: unsafe { from_c(info.backend) },
            rank: maybe_rank(info.rank).unwrap_or_default(),
            world_size: maybe_rank(info.world_size).unwrap_or_default(),
            local_rank: maybe_rank(info.local_rank).unwrap_or_default(),
            local_size: maybe_rank(info.local_size).unwrap_or_default(),
            progress: info.progress != 0,
            threads: maybe_rank(info.threads).unwrap_or_default(),
        })
    }

    /// Waits until all operations of this rank are complete and every rank has come here, then ends the group. False: not
    /// in this time; call again, or drop.
    pub fn close(&self, limit: Duration) -> Result<bool> {
        let call = self.0.enter()?;
        // SAFETY: one call at a time.
        check_done(unsafe { sys::ujoin_group_close(call.raw(), wait_ms(limit)) })
    }

    /// Gives up: everything on this group ends on every rank, within a second, with `reason` in its text.
    pub fn abort(&self, reason: &str) {
        self.0.abort(reason);
    }

    /// The same from another thread.
    pub fn aborter(&self) -> Aborter {
        self.0.aborter()
    }

    /// One operation with a deadline of its own: `group.timeout(limit).barrier()`.
    pub fn timeout(&self, limit: Duration) -> Operation<'_> {
        Operation::new(self, Some(limit))
    }

    fn operation(&self) -> Operation<'_> {
        Operation::new(self, None)
    }
}

macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident $(<$E:ident>)? (&self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        impl Group {
            $($(#[$doc])*
            pub fn $name $(<$E: Element>)? (&self $(, $arg: $type)*) -> $result {
                self.operation().$name($($arg),*)
            })*
        }
    };
}

operations! {
    /// Reduces over all ranks, in rank order, into `data` of every rank; bit-identical on all of them.
    fn all_reduce<E>(&self, data: &mut [E], reduce: Reduce) -> Result<()>;
    /// The same from `send` into `recv`, of equal lengths.
    fn all_reduce_into<E>(&self, send: &[E], recv: &mut [E], reduce: Reduce) -> Result<()>;
    /// Copies the root's memory into every rank's.
    fn broadcast<E>(&self, data: &mut [E], root: usize) -> Result<()>;
    /// Gathers `send` of every rank, in rank order, into `recv`, which is as many times longer as there are ranks.
    fn all_gather<E>(&self, send: &[E], recv: &mut [E]) -> Result<()>;
    /// The same where this rank's part lies in `recv` already.
    fn all_gather_in_place<E>(&self, recv: &mut [E]) -> Result<()>;
    /// Reduces `send` (as many times longer than `recv` as there are ranks) and leaves part r in `recv` of rank r.
    fn reduce_scatter<E>(&self, send: &[E], recv: &mut [E], reduce: Reduce) -> Result<()>;
    /// Reduces over all ranks, in rank order, into `data` of the root; on the others it is only read.
    fn reduce<E>(&self, data: &mut [E], root: usize, reduce: Reduce) -> Result<()>;
    /// The same from `send` into the root's `recv`, of equal lengths; on the others `recv` may be empty.
    fn reduce_into<E>(&self, send: &[E], recv: &mut [E], root: usize, reduce: Reduce) -> Result<()>;
    /// Gathers `send` of every rank, in rank order, into the root's `recv`, which is as many times longer as there are
    /// ranks; on the others `recv` may be empty.
    fn gather<E>(&self, send: &[E], recv: &mut [E], root: usize) -> Result<()>;
    /// Copies part r of the root's `send`, which is as many times longer than `recv` as there are ranks, into `recv` of rank
    /// r; on the others `send` may be empty.
    fn scatter<E>(&self, send: &[E], recv: &mut [E], root: usize) -> Result<()>;
    /// Copies part r of `send` to rank r, and what rank r has for this one into part r of `recv`.
    fn all_to_all<E>(&self, send: &[E], recv: &mut [E]) -> Result<()>;
    /// The same where each part is replaced by the one that comes for it.
    fn all_to_all_in_place<E>(&self, data: &mut [E]) -> Result<()>;
    /// Sends to a rank, which calls [`recv`](Self::recv), and returns when that has received it: two ranks that send to
    /// each other do so by one [`submit`](Self::submit), or in flight.
    fn send<E>(&self, data: &[E], to: usize) -> Result<()>;
    /// Receives what a rank sends: as many elements, of the same type, in the order of its sends to this rank.
    fn recv<E>(&self, data: &mut [E], from: usize) -> Result<()>;
    /// Returns when every rank has come here.
    fn barrier(&self) -> Result<()>;
    /// [`all_reduce`](Self::all_reduce) in flight: the work owns the buffer until it is done.
    fn start_all_reduce<E>(&self, data: Vec<E>, reduce: Reduce) -> Result<Work<E>>;
    /// [`all_reduce_into`](Self::all_reduce_into) in flight; the work gives `recv` back.
    fn start_all_reduce_into<E>(&self, send: Vec<E>, recv: Vec<E>, reduce: Reduce) -> Result<Work<E>>;
    /// [`broadcast`](Self::broadcast) in flight.
    fn start_broadcast<E>(&self, data: Vec<E>, root: usize) -> Result<Work<E>>;
    /// [`all_gather`](Self::all_gather) in flight; the work gives `recv` back.
    fn start_all_gather<E>(&self, send: Vec<E>, recv: Vec<E>) -> Result<Work<E>>;
    /// [`all_gather_in_place`](Self::all_gather_in_place) in flight.
    fn start_all_gather_in_place<E>(&self, recv: Vec<E>) -> Result<Work<E>>;
    /// [`reduce_scatter`](Self::reduce_scatter) in flight; the work gives `recv` back.
    fn start_reduce_scatter<E>(&self, send: Vec<E>, recv: Vec<E>, reduce: Reduce) -> Result<Work<E>>;
}
