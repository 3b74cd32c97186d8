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
// The lists are in clippy.toml; `sync` alone may call the methods.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]
// The models exercise parts of files whose other parts only the whole runtime uses.
#![cfg_attr(throng_loom, allow(dead_code))]

mod sync;

cfg_if::cfg_if! {
    if #[cfg(throng_loom)] {
        // The files that have models, in the folders in which the runtime has them.
        mod mailbox;
        mod scheduler {
            mod lifo_slot;
            mod run_queue;
            mod sleepers;
        }
        mod signal {
            #[allow(unused)]
            pub(crate) mod links;
            pub(crate) mod small_map;
        }
        mod timer {
            mod timer_state;
        }
        mod turn {
            pub(crate) mod turn_state;
        }
    } else {
        mod address;
        mod cell;
        mod error;
        mod exit;
        mod fault;
        mod mailbox;
        mod memory;
        pub mod prelude;
        mod process;
        mod runtime;
        mod scheduler;
        mod signal;
        mod supervisor;
        mod timer;
        mod turn;

        // What a process is written with.
        pub use crate::exit::{ExitReason, IntoExitReason};
        pub use crate::process::{Down, Exit, Handle, Message, MonitorRef, Process, Repeatable, Turn};
        pub use crate::turn::async_process::{AsyncProcess, Inbox};
        pub use crate::turn::context::Context;

        // Where to send, and what comes of it.
        pub use crate::address::ask::{Ask, ReplyTo};
        pub use crate::address::call::Call;
        pub use crate::address::delivery::Delivery;
        pub use crate::address::recipient::Recipient;
        pub use crate::address::send_all::SendAll;
        pub use crate::address::{Address, Pid};
        pub use crate::error::{
            BlockingError, CallError, Error, SendAllError, SendError, SpawnError, SpawnManyError,
            StartError,
        };
        pub use crate::mailbox::bound::{MailboxBound, Overflow};
        pub use crate::timer::message_timer::Timer;

        // The runtime: its start, its end, and how processes are spawned.
        pub use crate::runtime::spawner::Spawner;
        pub use crate::runtime::{AbandonedKind, Runtime, RuntimeBuilder, RuntimeHandle, Shutdown};

        // Names and groups.
        pub use crate::signal::group::{Group, GroupChange, GroupEvent, GroupMonitor};
        pub use crate::signal::registry::{Name, RegisterError, Registered};

        // Supervision.
        pub use crate::supervisor::{
            AutoShutdown, Child, ChildCount, ChildError, ChildInfo, ChildRef, ChildSpec, ChildState,
            IntoChildSpec, Restart, Supervisor, SupervisorError, SupervisorSpec,
        };

        // Seeing into it.
        pub use crate::runtime::inspect::{
            ProcessInfo, ProcessList, ProcessState, ProcessTree, SortBy,
        };
        pub use crate::runtime::metrics::{Metrics, WorkerMetrics};

        // What is built on processes, as durable ones are.
        pub use crate::turn::layer::{Layer, TurnEnd};

        // For the workspace's own crates, and no part of the public interface.
        #[doc(hidden)]
        pub use crate::process::has_started as __has_started;
        #[doc(hidden)]
        pub use crate::runtime::metrics::PrometheusText as __PrometheusText;
    }
}

#[cfg(all(feature = "sim", not(throng_loom)))]
pub mod sim;

cfg_if::cfg_if! {
    if #[cfg(all(feature = "macros", not(throng_loom)))] {
        #[doc(inline)]
        pub use throng_macros::{hook, message, process};

        #[doc(hidden)]
        #[path = "expansion.rs"]
        pub mod __expansion;
        // Its examples use the macros, and so do the README's, which are tests, too.
        pub mod guide;
        #[cfg(doctest)]
        #[doc = include_str!("../../../README.md")]
        mod readme {}
    }
}
