//! The simulator's part of a store, for tests: a disk in memory whose faults and power cuts are drawn from a
//! seed, and a store whose writer and checkpoints make steps when the test says so, without threads.
//!
//! `throng_durable::sim` drives a whole node with it, and is what a program tests its entities with. A test of a
//! store alone makes the steps itself:
//!
//! ```
//! use throng_store::sim::{Disk, Steps, Written};
//! use throng_store::{Store, Str};
//!
//! let disk = Disk::new(7)?;
//! let store = disk.open(&Store::options())?;
//! let steps = Steps::of(&store);
//! let ticket = store.default_database::<Str, Str>().put("key", "value");
//! assert_eq!(steps.write(), Written::Group);
//! // The ticket has resolved.
//! ticket.wait()?;
//!
//! // The power fails. What is acknowledged is there.
//! disk.cut_power()?;
//! let store = disk.open(&Store::options())?;
//! let names = store.default_database::<Str, Str>();
//! assert_eq!(names.get(&store.snapshot()?, "key")?, Some("value"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | simulated | not simulated |
//! |---|---|
//! | the files of the log: contents by sectors, lengths, names | LMDB's file, which after a power cut is as of LMDB's last commit; the power test of this crate covers it |
//! | power cuts at each operation, and between any two | threads: steps of one store never overlap |
//! | writes and flushes that fail, a full disk, commits of LMDB that fail before they write | damage while the power is on |
//! | the clock, the id of a new store | the time that operations take |
//!
//! In a simulated store, [`Ticket::wait`](crate::Ticket::wait) and the like wait for ever, because they block the
//! thread that would make the steps: await the future.

mod content;
mod disk;
#[doc(hidden)]
pub mod model;

pub use disk::{Disk, Operation};

use std::sync::{PoisonError, Weak};
use std::task::Waker;

use crate::Store;
use crate::store::{Shared, steps};
use crate::write::writer::Step;

/// The steps of a simulated store's writer and of its checkpoints. Does not keep the store open.
#[derive(Clone, Debug)]
pub struct Steps(Weak<Shared>);

/// Outcome of a step of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The writer took a group. There may be more to do.
    Group,
    /// Nothing is queued.
    Nothing,
    /// The store recovers from a failed commit: a later step tries again.
    Recovering,
    /// The store is closed. No step follows.
    Closed,
}

impl Steps {
    /// Returns the steps of a store that was opened on a simulated disk. A store with threads has none.
    pub fn of(store: &Store) -> Steps {
        Steps(store.shared())
    }

    /// Makes a step of the writer: commits everything queued as a group. Runs the wakers of the tasks that wait
    /// for an outcome.
    pub fn write(&self) -> Written {
        match self.with(steps::Steps::write) {
            Some(Step::Commit) => Written::Group,
            Some(Step::Idle) => Written::Nothing,
            Some(Step::Recovering) => Written::Recovering,
            Some(Step::End) | None => Written::Closed,
        }
    }

    /// Makes a step of the checkpoints: writes the frozen changes in memory to LMDB. If nothing was written since
    /// the last step, the others are frozen first.
    pub fn checkpoint(&self) {
        self.with(steps::Steps::checkpoint);
    }

    /// Whether steps may follow. `false` once the store is closed and everything queued is committed.
    pub fn is_open(&self) -> bool {
        self.with(|steps| steps.is_open()).unwrap_or(false)
    }

    /// Whether changes are in memory that a step of the checkpoints would write, at once or after another one.
    pub fn is_checkpoint_due(&self) -> bool {
        self.with(|steps| steps.is_checkpoint_due()).unwrap_or(false)
    }

    /// Sets the wakers that are called when there is something to do for the writer, and for the checkpoints. The
    /// first call counts.
    pub fn wakes(&self, writer: Waker, checkpoints: Waker) {
        self.with(|steps| steps.wakes(writer, checkpoints));
    }

    /// Ends all steps as the end of the program does: nothing more is written, and what is queued is handed back.
    pub fn abandon(&self) {
        self.with(steps::Steps::abandon);
    }

    fn with<T>(&self, step: impl FnOnce(&mut steps::Steps) -> T) -> Option<T> {
        // The store may end with this reference: its end makes the last steps itself, so without the lock.
        let shared = self.0.upgrade()?;
        let mut steps = shared.steps.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(step(&mut steps))
    }
}
