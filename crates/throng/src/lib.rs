//! Millions of isolated, addressable processes on one machine.

#![deny(missing_docs)]
// The models exercise parts of files whose other parts only the whole runtime uses.
#![cfg_attr(throng_loom, allow(dead_code))]

mod coupling;
mod mailbox;
mod rendezvous;
mod run_queue;
mod sync;
mod turn_state;

#[cfg(not(throng_loom))]
mod address;
#[cfg(not(throng_loom))]
mod block;
#[cfg(not(throng_loom))]
mod call;
#[cfg(not(throng_loom))]
mod cell;
#[cfg(not(throng_loom))]
mod context;
#[cfg(not(throng_loom))]
mod error;
#[cfg(not(throng_loom))]
mod exit;
#[cfg(not(throng_loom))]
mod frame;
#[cfg(not(throng_loom))]
mod magazine;
#[cfg(not(throng_loom))]
mod message;
#[cfg(not(throng_loom))]
mod process;
#[cfg(not(throng_loom))]
mod runtime;
#[cfg(not(throng_loom))]
mod scheduler;
#[cfg(not(throng_loom))]
mod slab;
#[cfg(not(throng_loom))]
mod timer;
#[cfg(not(throng_loom))]
mod train;
#[cfg(not(throng_loom))]
mod waker;
#[cfg(not(throng_loom))]
mod worker;

#[cfg(not(throng_loom))]
pub use crate::{
    address::Address,
    call::Call,
    context::Context,
    error::{CallError, Error, SendError, SpawnError, StartError},
    exit::ExitReason,
    process::{Handle, Message, Process, Turn},
    runtime::{Runtime, RuntimeBuilder, RuntimeHandle, Shutdown},
};

/// Everything a process is usually written with.
#[cfg(not(throng_loom))]
pub mod prelude {
    pub use crate::{
        Address, CallError, Context, ExitReason, Handle, Message, Process, Runtime, RuntimeHandle,
        SendError, SpawnError, Turn,
    };
}
