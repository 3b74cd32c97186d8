//! Processes whose state outlives the program.
//!
//! An *entity* is a process with an identity, (kind, key), and a state on disk. It always exists:
//! the first message *activates* it, which means that a process is spawned that loads its state;
//! when it has been idle for a while it is *passivated*, which means that the process ends. So the number of entities is bounded by the disk, the number of live ones by the memory.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use throng::prelude::*;
//! use throng_durable::{Durable, Node};
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Account {
//!     balance: u64,
//! }
//! impl Process for Account {}
//! impl Durable for Account {
//!     const KIND: &'static str = "account";
//! }
//!
//! struct Deposit(u64);
//! impl Message for Deposit {
//!     type Reply = u64;
//! }
//! impl Handle<Deposit> for Account {
//!     async fn handle(&mut self, Deposit(amount): Deposit, _: &mut Context<Self>) -> u64 {
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
//!     let node = Node::open(path).start(runtime.handle())?;
//!     runtime.block_on(async |_| {
//!         let alice = node.entity::<Account>("alice");
//!         assert_eq!(alice.call(Deposit(5)).await?, expected);
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
//!  mailbox, timer, hook ──► handler runs ──► state or cells changed? ──no──► reply
//!                                   └──yes──► one atomic batch ──► on disk ──► reply
//! ```
//!
//! Everything that wakes an entity is such a turn: calls and sends through an [`Entity`], timers,
//! receive timeouts, piped results, messages to its [address](throng::Context::address), and the
//! hooks `started`, `down`, `exit` and `timeout`. The one exception is the hook
//! [`stopping`](throng::Process::stopping), which runs after the last turn: its changes are not kept.
//!
//! # Invariants
//!
//! - A reply leaves only after everything its turn changed is on disk.
//! - A turn's state and cells are committed together or not at all, whatever ends its process: a
//!   kill, an exit signal, a link, a panic, a shutdown.
//! - An activation sees every commit of the one before. If that was ended while it waited for a
//!   commit, the next one waits for the outcome before it loads the state.
//! - One activation per entity: its handlers never run twice at the same time.
//! - When a handler or a hook panics or a commit fails, that activation is given up with all it
//!   holds in memory, and the next message meets the last committed state.
//! - A message sent through an [`Entity`] that finds its entity just passivated, or given up, is
//!   handed back inside the call and delivered to the next activation: none is lost, none handled
//!   twice. If the process was killed or exited, callers are told; messages only sent are dropped.
//! - Code of the user's runs under no lock of this crate, and a panic in it (also in `Default`,
//!   `Deserialize`, `migrate`) is an error of the calls to that entity and of no others.
//! - An activation that found nothing on disk and has changed nothing leaves after its turn and
//!   does not count against [`live_max`](Options::live_max). If a timer, a piped future, a receive
//!   timeout, a link, a monitor, a name or a group may still wake it, it stays and counts like one
//!   that is stored. Like any process it takes room in the runtime: at the runtime's limit of
//!   processes the longest idle entities leave for it.
//! - A stored state that is newer than the program, or damaged, is refused, never misread.
//!
//! Not promised: that what a handler does to the world outside waits for its commit. Messages it
//! sends leave at once, and are not taken back if the turn is discarded; only its reply waits. And
//! an activation's timers, links, monitors, names and fields marked `#[serde(skip)]` end with it.
//!
//! Larger collections belong in [cells](DurableContext::cells): keyed values beside the state
//! that are read one by one and written in the same commit.
#![forbid(unsafe_code)]

mod activation;
mod cells;
mod context;
mod directory;
mod durable;
mod entity;
mod error;
mod layout;
mod node;
mod sweeper;
mod turn;
mod users;

pub use cells::{CellRange, Cells};
pub use context::DurableContext;
pub use durable::{Durable, OldState};
pub use entity::{Entity, EntityCall};
pub use error::{CellError, CommitError, EntityError, KeyError, SendError, StateError};
pub use layout::{CELL_KEY_BYTES_MAX, ENTITY_KEY_BYTES_MAX, KIND_BYTES_MAX};
pub use node::{Node, NodeStat, Options};
pub use throng_store::{OpenError, ReadError, WriteError};
