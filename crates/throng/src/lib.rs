//! Give everything its own process: millions of isolated, addressable processes on one machine.
//!
//! A process is a value of yours with a mailbox. It handles one message at a time, nobody else can
//! see its state, a panic in it ends it alone, and one that is idle costs 48 bytes more than its
//! state. So there can be one for each user, room, device, game or contract, and what would need
//! locks becomes plain `&mut self`.
//!
//! # In ten lines
//!
//! ```
//! use throng::prelude::*;
//!
//! struct Account { balance: u64 }
//! impl Process for Account {}
//!
//! struct Deposit(u64);
//! impl Message for Deposit { type Reply = u64; }
//!
//! impl Handle<Deposit> for Account {
//!     async fn handle(&mut self, Deposit(amount): Deposit, _: &mut Context<Self>) -> u64 {
//!         self.balance += amount;
//!         self.balance
//!     }
//! }
//!
//! fn main() -> Result<(), throng::Error> {
//!     let runtime = Runtime::builder().start()?;
//!     runtime.block_on(async |runtime| {
//!         let account = runtime.spawn(Account { balance: 0 })?;   // Address<Account>: 8 bytes, Copy
//!         account.send(Deposit(5))?;                              // goes its way
//!         assert_eq!(account.call(Deposit(5)).await?, 10);        // waits, five seconds at most
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # What can be relied on
//!
//! - **Order.** What one process sends another arrives in the order of sending; the threads that a
//!   handler starts and waits for send in its name. A message also arrives after each message to the
//!   same process of which its sender has learnt by a message, or by something that its turn had to
//!   wait for; a thread outside the workers, by whatever means. What a handler learns without
//!   waiting (from a lock, an atomic, a blocking channel, a future that was ready at once) about
//!   another process's messages orders nothing.
//! - **Turns.** A handler runs from its first line to its last, `await`s included, before the next
//!   message is looked at. Different processes run in parallel.
//! - **Nothing vanishes.** A message is handled, or handed back ([`SendError`]), or its caller
//!   learns why not ([`CallError`]). Messages that were only *sent* to a process that exits before
//!   it comes to them are dropped.
//! - **Addresses name one process for ever.** Memory is reused, addresses are not.
//! - **Every call has a deadline**, five seconds unless [`within`](Call::within) says otherwise.
//!
//! # Waiting
//!
//! Handlers may await anything made for tokio: timers, sockets, database clients. throng brings a
//! tokio runtime ([`RuntimeBuilder::start`]) or moves into yours ([`RuntimeBuilder::attach`]);
//! processes are not tokio tasks, they run on throng's own workers. What should not happen in a
//! handler is blocking the thread; await [`Context::blocking`] instead. A handler that does it all the
//! same is reported, and a spare worker takes over what waits behind it.
//!
//! A turn is not interrupted. So a call to oneself fails at once, and of processes whose calls wait
//! for each other in a ring one is told so before long: [`CallError::Cycle`]. Send instead, or
//! [ask](Address::ask) and answer from a later turn.
//!
//! # Seeing into it
//!
//! [`RuntimeHandle::info`], [`list`](RuntimeHandle::list), [`top`](RuntimeHandle::top) and
//! [`tree`](RuntimeHandle::tree) say what processes do, [`metrics`](RuntimeHandle::metrics) what the
//! runtime does. Faults and overload are also reported as events of [`tracing`]. A separate thread
//! calls the subscriber, so one that blocks or panics holds up no process and no timer. At most ten
//! events a second are emitted of one kind about one kind of process, and at most 1,024 wait;
//! another event says how many were left out. The targets are part of the public interface:
//!
//! | event | level | target | fields |
//! |---|---|---|---|
//! | `a process panicked` | error | `throng::worker` | `process`, `panic` |
//! | `a process exited` (neither normally nor by a shutdown or panic) | debug | `throng::worker` | `process`, `reason` |
//! | `the state of a process panicked when it was dropped` | error | `throng::worker` | `process`, `reason` |
//! | `a child was started again` | info | `throng::supervisor::process` | `supervisor`, `id` |
//! | `a child did not start` | error | `throng::supervisor::process` | `supervisor`, `id`, `reason` |
//! | `a child did not stop in time and is killed` | warn | `throng::supervisor::process` | `pid` |
//! | `too many restarts: gives up` | error | `throng::supervisor::process` | `supervisor` |
//! | `a turn blocks its worker`, and `… is over` | warn | `throng::watch` | `worker`, `process`, `turn`, `milliseconds` |
//! | `the mailbox budget is reached` | warn | `throng::budget` | `limit` |
//! | `there is mailbox budget again` | info | `throng::budget` | `limit` |
//! | `no thread for a spare worker` | error | `throng::runtime` | `error` |
//! | `events were left out: …` | warn | `throng::events` | `event`, `subject`, `events` |
//!
//! # On
//!
//! [`guide::tutorial`] goes through all of it in ten minutes, with `#[process]`, which makes the
//! messages of an `impl` block's methods. [`guide::testing`] is about tests that find the schedules
//! nobody thought of. [`guide::erlang`] says what is what for those who know OTP. [`guide::costs`]
//! says what everything costs and how to measure it.

#![deny(missing_docs)]
// The models exercise parts of files whose other parts only the whole runtime uses.
#![cfg_attr(throng_loom, allow(dead_code))]

mod coupling;
#[cfg_attr(throng_loom, allow(unused))]
mod links;
mod mailbox;
mod rendezvous;
mod run_queue;
mod sleep;
mod small_map;
mod sync;
mod timer_state;
mod turn_state;
mod warm;

#[cfg(all(feature = "macros", not(throng_loom)))]
#[doc(hidden)]
#[path = "expansion.rs"]
pub mod __expansion;
/// The README's examples are tests, too.
#[cfg(all(doctest, feature = "macros", not(throng_loom)))]
#[doc = include_str!("../../../README.md")]
mod readme {}

#[cfg(not(throng_loom))]
mod address;
#[cfg(not(throng_loom))]
mod alarms;
#[cfg(not(throng_loom))]
mod block;
#[cfg(not(throng_loom))]
mod bound;
#[cfg(not(throng_loom))]
mod budget;
#[cfg(not(throng_loom))]
mod call;
#[cfg(not(throng_loom))]
mod cell;
#[cfg(not(throng_loom))]
mod context;
#[cfg(not(throng_loom))]
mod counters;
#[cfg(not(throng_loom))]
mod crowd;
#[cfg(not(throng_loom))]
mod cycle;
#[cfg(not(throng_loom))]
mod deadline;
#[cfg(not(throng_loom))]
mod delivery;
#[cfg(not(throng_loom))]
mod error;
#[cfg(not(throng_loom))]
mod events;
#[cfg(not(throng_loom))]
mod exit;
#[cfg(not(throng_loom))]
mod extension;
#[cfg(not(throng_loom))]
mod fault;
#[cfg(not(throng_loom))]
mod frame;
#[cfg(not(throng_loom))]
mod group;
// Its examples use the macros.
#[cfg(all(feature = "macros", not(throng_loom)))]
pub mod guide;
#[cfg(not(throng_loom))]
mod inbox;
#[cfg(not(throng_loom))]
mod inspect;
#[cfg(not(throng_loom))]
mod layer;
#[cfg(not(throng_loom))]
mod lobby;
#[cfg(not(throng_loom))]
mod magazine;
#[cfg(not(throng_loom))]
mod message;
#[cfg(not(throng_loom))]
mod message_timer;
#[cfg(not(throng_loom))]
mod metrics;
#[cfg(not(throng_loom))]
mod pace;
#[cfg(not(throng_loom))]
mod process;
#[cfg(not(throng_loom))]
mod receive_timeout;
#[cfg(not(throng_loom))]
mod recipient;
#[cfg(not(throng_loom))]
mod registry;
#[cfg(not(throng_loom))]
mod reply;
#[cfg(not(throng_loom))]
mod runtime;
#[cfg(not(throng_loom))]
mod scheduler;
#[cfg(not(throng_loom))]
mod signal;
#[cfg(all(feature = "sim", not(throng_loom)))]
pub mod sim;
#[cfg(not(throng_loom))]
mod slab;
#[cfg(not(throng_loom))]
mod spare;
#[cfg(not(throng_loom))]
mod spare_bits;
#[cfg(not(throng_loom))]
mod spawner;
#[cfg(not(throng_loom))]
mod supervisor;
#[cfg(not(throng_loom))]
mod timer;
#[cfg(not(throng_loom))]
mod token_queue;
#[cfg(not(throng_loom))]
mod train;
#[cfg(not(throng_loom))]
mod unwind;
#[cfg(not(throng_loom))]
mod waker;
#[cfg(not(throng_loom))]
mod watch;
#[cfg(not(throng_loom))]
mod work;
#[cfg(not(throng_loom))]
mod worker;

#[cfg(not(throng_loom))]
pub use crate::{
    address::{Address, Pid},
    bound::{MailboxBound, Overflow},
    call::Call,
    context::Context,
    crowd::SendAll,
    delivery::Delivery,
    error::{
        BlockingError, CallError, Error, SendAllError, SendError, SpawnError, SpawnManyError,
        StartError,
    },
    exit::{ExitReason, IntoExitReason},
    group::{Group, GroupChange, GroupEvent, GroupMonitor},
    inbox::{AsyncProcess, Inbox},
    inspect::{Branch, By, List, ProcessInfo, ProcessState},
    layer::{Layer, TurnEnd},
    message_timer::Timer,
    metrics::{Exposition, Metrics, WorkerMetrics},
    process::{Down, Exit, Handle, Message, MonitorRef, Process, Repeatable, Turn},
    recipient::Recipient,
    registry::{Name, RegisterError, Registered},
    reply::{Ask, ReplyTo},
    runtime::{AbandonedKind, Runtime, RuntimeBuilder, RuntimeHandle, Shutdown},
    spawner::Spawner,
    supervisor::{
        AutoShutdown, Child, ChildCount, ChildError, ChildInfo, ChildRef, ChildSpec, ChildState,
        IntoChildSpec, Restart, Supervisor, SupervisorError, SupervisorSpec,
    },
};

/// For layers, whose first turn stands in for the hook.
#[cfg(not(throng_loom))]
#[doc(hidden)]
pub use crate::process::has_started as __has_started;

#[cfg(all(feature = "macros", not(throng_loom)))]
#[doc(inline)]
pub use throng_macros::{hook, message, process};

/// Everything a process is usually written with.
#[cfg(not(throng_loom))]
pub mod prelude {
    pub use crate::{
        Address, CallError, Child, ChildSpec, Context, Down, Exit, ExitReason, Group, Handle,
        Inbox, Message, MonitorRef, Pid, Process, Recipient, ReplyTo, Restart, Runtime,
        RuntimeHandle, SendAll, SendError, SpawnError, Supervisor, Timer, Turn,
    };
    #[cfg(feature = "macros")]
    pub use crate::{hook, message, process};
}
