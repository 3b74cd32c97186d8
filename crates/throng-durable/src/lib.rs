//! Processes whose state outlives the program.
//!
//! An *entity* is a process with an identity, (kind, key), and a state on disk. An entity always
//! exists. The first message *activates* it: a process is spawned and loads the state. After some
//! idle time the entity is *passivated*: the process ends. So the disk bounds the number of
//! entities, and the memory bounds the number of live entities.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use throng::prelude::*;
//! use throng_durable::{Durable, Node};
//!
//! #[derive(Durable, Default, Serialize, Deserialize)]
//! #[durable(kind = "account")]
//! struct Account {
//!     balance: u64,
//! }
//!
//! #[process]
//! impl Account {
//!     #[message]
//!     async fn deposit(&mut self, amount: u64) -> u64 {
//!         self.balance += amount;
//!         self.balance
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path();
//! let runtime = Runtime::builder().workers(1).start()?;
//! for expected in [5, 10] {
//!     // The second time around everything comes from the disk.
//!     let node = Node::options(path).open(runtime.handle())?;
//!     runtime.block_on(async |_| {
//!         let alice = node.entity::<Account>("alice");
//!         assert_eq!(alice.deposit(5).await?, expected);
//!         node.shutdown().await;
//!         Ok::<(), throng_durable::EntityError>(())
//!     })?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # A turn
//!
//! ```text
//!  entity.call(message) ──► directory: live? ──yes──────────────────────► mailbox
//!                               └──no──► spawn; load the state ─────────► mailbox
//!  mailbox, timer, hook ──► handler ──► changed? ──yes──► submit one atomic batch ──► next message
//!                              │ reply                            │
//!                              └──► output gate ◄── on disk ──────┘
//!                                        └──► caller
//! ```
//!
//! A turn ends when its changes are *submitted* to the store's log. The process goes on with its next
//! message at once, on state that may not be on disk yet. The *output gate* holds the reply until
//! everything that the turn changed and saw of its entity is on disk. So an entity is as fast as its
//! handler, and turns share the flushes of the disk.
//!
//! Everything that wakes an entity is such a turn: calls and sends through an [`Entity`], timers,
//! receive timeouts, piped results, items of attached streams, messages to its [address](throng::Context::address), and the
//! hooks `started`, `down`, `exit` and `timeout`. The only exception is the hook
//! [`stopping`](throng::Process::stopping), which runs after the last turn: its changes are not
//! kept.
//!
//! # Invariants
//!
//! - A reply leaves only after everything its turn changed is on disk, and after the earlier changes of
//!   the entity that the turn saw. Replies of turns that changed nothing wait as well.
//! - The changes of a turn, to state and cells, are committed together or not at all, no matter how
//!   the process ends: by a kill, an exit signal, a link, a panic or a shutdown.
//! - The store keeps a prefix of an entity's turns. If a commit fails, it takes back every turn behind
//!   it, and the callers of all of them get the error.
//! - A turn that is submitted needs its process no more: after a kill it is kept, and its reply is sent.
//!   [`EntityError::Died`] means that nothing of the turn was kept.
//! - An activation sees every commit of the previous activations. It waits for the outcome of their
//!   last submission before it loads the state, whatever ended them.
//! - An entity has at most one activation: its handlers never run twice at the same time.
//! - When a handler or a hook panics or a commit fails, the activation is given up with everything
//!   it holds in memory, and the next message loads the last committed state.
//! - If the activation that a message sent through an [`Entity`] reaches was just passivated, or
//!   given up, the message goes to the next activation: no message is lost, and none is handled
//!   twice. If the process was killed or exited, its callers get an error, and messages that were only
//!   sent are dropped.
//! - User code runs under no lock of this crate. A panic in user code (also in `initial`,
//!   `Deserialize`, `migrate`) fails the calls to that entity and no other calls.
//! - An activation that found nothing on disk and has changed nothing ends after its turn and does
//!   not count against [`live_max`](Options::live_max). If a timer, a piped future, an attached
//!   stream, a receive timeout, a link, a monitor, a name or a group may still wake it, the activation stays and
//!   counts like that of a stored entity. Every activation takes a process of the runtime: at the
//!   runtime's limit of processes, seldom used entities are passivated to make room.
//! - A stored state that is newer than the program, damaged, or of a type with other fields that it does
//!   not fit, is refused, never misread.
//!
//! Messages that a handler sends leave at once, before its commit and also before the commits of
//! earlier turns, and are not recalled if the turn is discarded. The same holds for its I/O. Only
//! the reply waits, and the actions of [`after_commit`](DurableContext::after_commit). Timers, streams,
//! links, monitors, names and fields marked `#[serde(skip)]` end with the activation. An entity is not
//! passivated for idleness while it has one of the former; [`Options::live_max`] bounds that. A
//! [pinned](Entity::pin) entity is brought into memory by the node itself, also after a failure or a restart.
//!
//! A [durable message](DurableMessage) is stored in the commit of its sender, and handled exactly once: see
//! [`send_durable`](DurableContext::send_durable).
//!
//! A [reminder](DurableContext::remind) is a message that an entity sends to itself at a later time: once, in a period or
//! by a cron expression. It is stored, and brings the entity into memory when it is due.
//!
//! A [workflow](Workflow) is an async function whose steps are stored, so that it survives the end of its program.
//!
//! A [queue](Queue) does jobs, each until it succeeds, and so many at the same time.
//!
//! An [index](Index) finds entities by a field of their states, and keeps a key from being used twice.
//!
//! A feed of [changes](Changes) lets a search engine or a cache follow the entities of a kind.
//!
//! Larger collections belong in [cells](DurableContext::cells): keyed values beside the state
//! that are read individually and written in the same commit.
//!
//! # Further reading
//!
//! The [`guide`] builds a bank: accounts, transfers that bear a kill at any moment, and messages that
//! always fail; [`guide::choose`] tells which of all this is for what, and [`guide::coming_from`] what the words of
//! other systems are here. `docs/durable.md` in the repository follows a turn through the crate, and lists the
//! guarantees with the tests that hold them.

mod activation;
mod catalogue;
mod cells;
mod changes;
mod context;
mod directory;
mod due;
mod durable;
mod entity;
mod error;
mod feed;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
#[doc = include_str!("guide.md")]
#[doc(alias = "saga")]
#[doc(alias = "outbox")]
pub mod guide {
    #[doc = include_str!("guide/choose.md")]
    pub mod choose {}
    #[doc = include_str!("guide/coming_from.md")]
    pub mod coming_from {}
}
mod inbox;
mod index;
mod keeper;
mod layout;
mod loader;
mod message;
mod monitor;
mod name;
mod node;
mod once;
mod queue;
mod records;
mod reminder;
mod shape;
#[cfg(feature = "sim")]
pub mod sim;
mod stored;
mod sweeper;
mod tables;
mod taken;
mod turn;
mod users;
mod values;
mod view;
mod workflow;

pub use cells::{CellRange, Cells};
pub use context::DurableContext;
pub use durable::{Durable, OldState};
pub use entity::{Entity, EntityCall, InstrumentedEntity};
pub use error::{CellError, CommitError, EntityError, KeyError, SendError, StateError};
pub use feed::{Changed, Changes, Commit, ForEachCause, ForEachError};
pub use inbox::{FailedAttempt, Inbox, OnFailure, StoredMessage};
pub use index::{
    Conflict, Found, Index, IndexDefinition, IndexError, IndexField, IndexInfo, IndexKey,
    IndexState, IndexView,
};
pub use layout::{
    CELL_KEY_BYTES_MAX, ENTITY_KEY_BYTES_MAX, INDEX_KEY_BYTES_MAX, KIND_BYTES_MAX,
    MAP_NAME_BYTES_MAX,
};
#[doc(hidden)]
pub use message::NoMessages;
pub use message::{DurableMessage, Receives};
pub use monitor::{EntityFailure, EntityMonitor, Kept};
pub use node::{Node, NodeStat, Options, WeakNode};
pub use once::{ONCE_ID_BYTES_MAX, OnceCall};
pub use queue::{
    Attempt, Job, JobError, JobId, JobInfo, JobState, Pushed, Queue, QueueChange, QueueOptions,
    QueueStat, Queues, ShownJob, ShownQueue, Worker,
};
pub use records::{
    Export, ExportedRecord, Inspection, Pending, Record, Records, RecordsError, Shown, ShownCell,
    ShownMessage, ShownReminder, ShownRun, ShownStep, Tally,
};
pub use reminder::{CronError, Missed, REMINDER_KEY_BYTES_MAX, Reminder, Schedule};
pub use stored::{Keys, Stored, Unreadable};
pub use taken::TakenCells;
pub use throng_macros::{Durable, workflow};
pub use throng_store::{
    Bytes, Codec, CodecError, FeedError, FeedPosition, I64, OpenError, ReadError, Str, SubmitError,
    U32, U64, U128, Unit,
};
pub use users::Sender;
pub use workflow::{
    Branch, Failure, Journal, ReplayError, Retry, RunStatus, StepError, StepInfo, Steps, Workflow,
    WorkflowError, WorkflowRun, Workflows,
};
