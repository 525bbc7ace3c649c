// SPDX-License-Identifier: Apache-2.0
//! Data-parallel training: join contexts for uneven inputs, gradient reduction, sharded optimizers, worker processes.
//!
//! ```no_run
//! use ujoin::{AdamW, Ddp, Division, Group, Join, Params, Zero};
//! # struct Batch { samples: usize }
//! # fn backward(_: &Batch, _: &Params, _: &ujoin::Ready) -> ujoin::Result<()> { Ok(()) }
//! # fn main() -> ujoin::Result<()> {
//! # let batches: Vec<Batch> = Vec::new();
//! let group = Group::from_env()?;
//! let params = Params::builder().tensor("w", &[10, 3], vec![0.0f32; 30]).build()?;
//! let ddp = Ddp::builder(&group).params(&params).division(Division::Samples).build()?;
//! let opt = Zero::builder(&group, AdamW { lr: 3e-4, ..AdamW::default() }).params(&params).build()?;
//!
//! Join::new([ddp.joinable(), opt.joinable()])?.run(|| {
//!     for batch in &batches { // ranks have different numbers of them
//!         ddp.iteration(batch.samples, |ready| backward(batch, &params, ready))?;
//!         opt.step()?;
//!     }
//!     Ok(())
//! })
//! # }
//! ```
//!
//! **Errors** are [`Error`]: a kind, the library's text with rank, operation and cause, the ranks concerned. A failed
//! operation breaks its group; what is built on it fails too and is made anew.
//!
//! **Memory.** Parameters and gradients live in [`Params`], which lends them to the library; looking at them while the
//! library uses them is an error or a panic that says so, never a race. Buffers of operations in flight belong to their
//! [`Work`] until it is done.
//!
//! **Threads.** Handles may move to another thread, but take one call at a time, so they are `Send` and not `Sync`. What
//! may be called from any thread at any time comes as an object of its own: [`Aborter`], [`Stopper`], [`Signaller`],
//! [`Ready`].
//!
//! **Callbacks** are closures. An error that one returns ends the call that ran it with [`ErrorKind::Callback`]; a panic
//! in one is caught before it reaches C, becomes the peers' error text, and goes on in the call that ran it.
//!
//! **Drop** never blocks, and says goodbye to the peers without waiting for them.
#![warn(missing_docs)]

mod callback;
mod collective;
mod ddp;
mod element;
mod error;
mod function;
mod group;
mod handle;
mod hook;
mod join;
mod library;
mod memory;
mod op;
mod params;
mod rule;
mod scaler;
mod state;
mod store;
mod text;
mod workers;
mod zero;

pub use callback::HookResult;
pub use collective::{Contents, Operation, Reduce, Work};
pub use ddp::{Ddp, DdpBuilder, DdpReport, Division, GradientKind, GradientSync, Ready};
pub use element::{Bf16, DType, Element, F16};
pub use error::{Error, ErrorKind, Result};
pub use function::{
    record, record_crashes, record_error, register_worker, return_value, worker_main, FailureResult, WorkerArgs,
};
pub use group::{Group, GroupBuilder, GroupInfo};
pub use handle::Aborter;
pub use hook::{Bucket, BucketHook, BucketWork, BufferTime, CommHook, HookWork};
pub use join::{HookArgs, Hooks, Join, JoinBuilder, JoinReport, Joinable, JoinableBuilder, Stopper};
pub use library::{
    abi_version, backends, clear_interrupt_check, clear_log_sink, set_interrupt_check, set_log_sink, version, Backend,
    LogLevel,
};
pub use memory::SharedMemory;
pub use op::{Op, OpBuffers, RecvBuffer, SendBuffer};
pub use params::{Params, ParamsBuilder, Ref, RefMut};
pub use rule::{Rule, RuleArgs, RuleParts};
pub use scaler::{Scaler, ScalerState, Schedule};
pub use state::{Item, Owner, State, Value};
pub use store::{Store, StoreBuilder};
pub use workers::{
    Binding, Console, Containment, GroupHealth, Signaller, StartMethod, Std, Stdin, WorkerHealth, WorkerResult,
    WorkerSetup, WorkerState, Workers, WorkersBuilder,
};
pub use zero::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Hyper, Lamb, Lion, NAdam, Partition, RAdam, RmsProp, Rprop, SaveOptions,
    Sgd, Shard, Step, StepOptions, Zero, ZeroBuilder, ZeroMemory,
};
