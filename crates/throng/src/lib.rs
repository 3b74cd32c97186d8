//! Give everything its own process: millions of isolated, addressable processes on one machine.
//!
//! A process is a value of yours with a mailbox. It handles one message at a time, no other code
//! can see its state, and a panic ends only the process in which it happens. An idle process costs
//! 48 bytes more than its state. So each user, room, device, game or contract can have a process of
//! its own, and state that would need locks becomes plain `&mut self`.
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
//!         account.send(Deposit(5))?;                              // waits for nothing
//!         assert_eq!(account.call(Deposit(5)).await?, 10);        // waits, five seconds at most
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # Guarantees
//!
//! - **Turns.** A process handles each message in a *turn*: its handler runs from the first line to
//!   the last, `await`s included, before the process takes the next message. Different processes
//!   run in parallel.
//! - **Order.** Messages from one process to another arrive in the order of sending. Messages sent
//!   by threads that a handler starts and waits for count as sent by the handler. Order is also
//!   causal: once a sender has learnt of a message to a process, every message that it sends to
//!   that process afterwards arrives after that message. A handler must have learnt of it by a
//!   message, or by something for which its turn had to wait; a thread outside the workers, by any
//!   means. A handler that learns of it without waiting (from a lock, an atomic, a blocking
//!   channel, a future that was ready at once) gets no such order.
//! - **No call vanishes.** A message is handled, or handed back ([`SendError`]), or its caller
//!   learns why not ([`CallError`]). Only messages that were *sent*, not called, are dropped
//!   silently: if the process exits before it handles them, or by a mailbox whose [`Overflow`]
//!   policy is to drop.
//! - **An address names one process for ever.** Memory is reused, addresses never are.
//! - **Every call has a deadline**, five seconds unless [`within`](Call::within) sets another.
//!
//! # Waiting
//!
//! Handlers may await anything made for tokio: timers, sockets, database clients. throng starts a
//! tokio runtime of its own ([`RuntimeBuilder::start`]) or uses yours ([`RuntimeBuilder::attach`]).
//! Processes are not tokio tasks; they run on throng's own workers. A handler should not block its
//! thread: await [`Context::blocking`] instead. A handler that blocks is reported in an event, and
//! other workers, spare ones if needed, take over the processes that wait behind it.
//!
//! During a turn a process handles no other message, so calls can deadlock. A process's call to
//! itself fails at once with [`CallError::Cycle`]. If the calls of several processes wait for each
//! other in a ring, one of these calls soon fails with the same error. To avoid both, send instead,
//! or [ask](Address::ask) and answer from a later turn.
//!
//! # Inspection
//!
//! [`RuntimeHandle::info`], [`list`](RuntimeHandle::list), [`top`](RuntimeHandle::top) and
//! [`tree`](RuntimeHandle::tree) show the processes, [`metrics`](RuntimeHandle::metrics) the
//! runtime as a whole. Metrics by type of process are kept on request
//! ([`kind_metrics`](RuntimeBuilder::kind_metrics)). Faults and overload are also reported as
//! [`tracing`] events. A separate thread calls the subscriber, so a subscriber that blocks or
//! panics delays no process and no timer. At most ten events a second of each kind are emitted
//! about each type of process, and at most 1,024 events wait for the subscriber; a further event
//! gives the number of events left out.
//! The targets are part of the public interface:
//!
//! | event | level | target | fields |
//! |---|---|---|---|
//! | `a process panicked` | error | `throng::worker` | `process`, `panic`, `place` |
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
//! A message can take a span of [`tracing`] along, so that the events of its handler belong to a
//! request: `account.call(deposit.in_current_span())`. See the implementation of [`Turn`] for
//! `Instrumented`.
//!
//! # Further reading
//!
//! [`guide::tutorial`] shows all of this in ten minutes, with `#[process]`, which turns the methods
//! of an `impl` block into messages. [`guide::testing`] is about tests that search for the schedule
//! that breaks a program. [`guide::deadlock`] is about call cycles, [`guide::sockets`] about
//! connections and web servers. [`guide::erlang`], [`guide::kameo`], [`guide::ractor`] and
//! [`guide::actix`] map the terms of these systems to throng's. [`guide::costs`] lists the cost of
//! each operation and the commands that measure it.

#![deny(missing_docs)]
// The lists are in clippy.toml; `sync` alone may call the methods.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]
// The loom models use only parts of these files; the rest is used by the whole runtime.
#![cfg_attr(throng_loom, allow(dead_code))]

mod sync;

cfg_if::cfg_if! {
    if #[cfg(throng_loom)] {
        // The files that have loom models, under the module paths that they have in the runtime.
        mod address {
            mod message_timer {
                mod timer_state;
            }
        }
        mod mailbox;
        mod scheduler {
            mod lifo_slot;
            mod run_queue;
            mod seat;
            mod sleepers;
        }
        mod signal {
            #[allow(unused)]
            pub(crate) mod links;
            pub(crate) mod small_map;
        }
        mod timer {
            mod outside {
                mod plan;
            }
        }
        mod turn {
            pub(crate) mod turn_state;
        }
    } else {
        mod address;
        mod cell;
        mod error;
        mod events;
        mod exit;
        mod fault;
        mod mailbox;
        mod memory;
        pub mod prelude;
        mod runtime;
        mod scheduler;
        mod signal;
        mod supervisor;
        mod timer;
        mod turn;
        mod unwind;

        // Processes, messages and handlers.
        pub use crate::exit::panic::{Panic, PanicPlace};
        pub use crate::exit::{ExitReason, IntoExitReason};
        pub use crate::turn::process::{Down, Exit, Handle, Message, MonitorRef, Process, Repeatable, Turn};
        pub use crate::turn::agent::{Agent, With};
        pub use crate::turn::async_process::{AsyncProcess, Inbox};
        pub use crate::turn::context::Context;

        // Addresses, and the outcomes of sending.
        pub use crate::address::ask::{Ask, ReplyTo};
        pub use crate::address::call::Call;
        pub use crate::address::delivery::Delivery;
        pub use crate::address::recipient::Recipient;
        pub use crate::address::send_all::SendAll;
        pub use crate::address::{Address, Pid};
        pub use crate::error::{
            BlockingError, CallError, Error, SendAllError, SendError, SpawnError,
            StartError,
        };
        pub use crate::mailbox::bound::{MailboxBound, Overflow};
        pub use crate::address::message_timer::Timer;
        pub use crate::address::timeout::Timeout;

        // The runtime: start, shutdown, spawning.
        pub use crate::runtime::spawner::{SpawnManyError, Spawner};
        pub use crate::runtime::{AbandonedKind, Runtime, RuntimeBuilder, RuntimeHandle, Shutdown};

        // Names and groups.
        pub use crate::signal::group::{Group, GroupChange, GroupEvent, GroupMember, GroupMonitor};
        pub use crate::signal::registry::keyed::{Registry, RegistryEntry};
        pub use crate::signal::registry::{Name, RegisterError, Registered};

        // Supervision.
        pub use crate::supervisor::{
            AutoShutdown, Child, ChildError, ChildInfo, ChildRef, ChildSpec, ChildState, KeyedWorker, Pool, Restart, Supervisor, SupervisorError, SupervisorSpec,
        };

        // Inspection and metrics.
        pub use crate::runtime::inspect::{
            KindSums, ProcessInfo, ProcessList, ProcessState, ProcessTree, SortBy,
        };
        pub use crate::mailbox::dead_letters::{
            DeadLetter, DeadLetters, DropReason, DroppedMessages,
        };
        pub use crate::runtime::metrics::{KindMetrics, Metrics, WorkerMetrics};
        pub use crate::runtime::short_kind::short_kind;

        /// The handles of a process that have the methods of its typed client.
        pub mod client {
            pub use crate::address::client::{AskClient, Client};
        }

        pub use crate::runtime::metrics::PrometheusText;

        /// Layers on top of processes, such as durable processes: code that runs around every turn.
        ///
        /// With it is what the code of a layer needs to behave under the simulator as processes do: time, and hashers
        /// of tables, which [`RuntimeHandle::hash_state`](crate::RuntimeHandle::hash_state) makes.
        pub mod layer {
            pub use crate::address::AtomicAddress;
            pub use crate::sync::{HashState, TaskInstant as Instant};
            pub use crate::turn::frame::HeldReply;
            pub use crate::turn::layer::{Layer, TurnEnd};
            pub use crate::turn::process::has_started;
        }
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
        // The examples of the guide and of the README use the macros, and all of them are tests.
        pub mod guide;
        #[cfg(doctest)]
        #[doc = include_str!("../../../README.md")]
        mod readme {}
    }
}
