//! The simulator of a whole node: entities, their store and its disk run on one thread, in an order and with
//! faults that are drawn from a seed. A test that fails in it fails again, exactly, from the same seed.
//!
//! It is [`throng::sim`] with a disk. A test starts a node on the disk, works with its entities, cuts the power at
//! any operation of the disk, starts the node again, and compares what is there with what was acknowledged:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use throng::prelude::*;
//! use throng_durable::{Durable, Node, sim};
//!
//! #[derive(Durable, Default, Serialize, Deserialize)]
//! #[durable(kind = "counter")]
//! struct Counter {
//!     count: u64,
//! }
//!
//! #[process]
//! impl Counter {
//!     #[message]
//!     fn add(&mut self, number: u64) -> u64 {
//!         self.count += number;
//!         self.count
//!     }
//! }
//!
//! sim::check(20, |sim| async move {
//!     let node = sim.start(Node::options("")).unwrap();
//!     // Somewhere in the next 30 writes and flushes the power fails.
//!     sim.disk().cut_at(1 + sim.random(30));
//!     let mut acknowledged = 0;
//!     while let Ok(count) = node.entity::<Counter>("a").add(1).await {
//!         acknowledged = count;
//!     }
//!     sim.crash();
//!
//!     let node = sim.start(Node::options("")).unwrap();
//!     let found = node.entity::<Counter>("a").add(0).await.unwrap();
//!     // The turn without a reply may have been kept.
//!     assert!((acknowledged..=acknowledged + 1).contains(&found), "found {found}");
//! });
//! ```
//!
//! Add the feature among the dev-dependencies: `throng-durable = { version = "…", features = ["sim"] }`.
//!
//! # Simulated
//!
//! | matter | how |
//! |---|---|
//! | the schedule | the seed decides which process, writer, checkpoint or [task](throng::sim::Sim::spawn) makes the next step |
//! | time | virtual, for entities and store |
//! | crashes of processes, delays | [`faults`](throng::sim::Sim::faults), as in [`throng::sim`] |
//! | the files of the store's log | in memory; a power cut leaves of each sector of 512 bytes, and of the names, any state since the last flush |
//! | power cuts | now ([`Sim::crash`]), or at an operation of the disk ([`Disk::cut_at`], [`Disk::cut_randomly`]): each write, each flush, each change of a name, each commit of LMDB |
//! | operations that fail | [`Disk::fail_at`], [`Disk::fail_randomly`]: a failed write has written any part, a failed flush any of the sectors |
//! | a full disk | [`Disk::set_room`] |
//!
//! # Not simulated
//!
//! | matter | instead |
//! |---|---|
//! | LMDB's own file | a real one, in memory; after a power cut it is as of LMDB's last commit, which is LMDB's promise |
//! | steps of the store that overlap | each step is made as a whole |
//! | waiting on a thread: [`Ticket::wait`](throng_store::Ticket::wait), `Settled::wait` | waits for ever: await the future |
//! | a second node | one disk, one node at a time |
//! | whatever takes chance or time from elsewhere | see [`throng::sim`] |
//!
//! # A seed that fails
//!
//! The report has the last 100 events: the steps by the type of the process, each operation of the disk with file,
//! offset and length, the faults, and what the test [notes](throng::sim::Sim::note). `THRONG_SIM_SEED` runs that
//! seed alone.
//!
//! # After a power cut
//!
//! When the disk cuts the power at an operation, this and every later operation fails, as on a broken disk: the
//! callers of turns that may be on the disk get [`EntityError::Unknown`](crate::EntityError::Unknown). The
//! program goes on until the test calls [`Sim::crash`] or [`Sim::start`], which kill it. From then on its entities
//! answer [`EntityError::ShutDown`](crate::EntityError::ShutDown).

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

pub use throng::sim::{Faults, Trace};
pub use throng_store::sim::{Disk, Operation};
use throng_store::sim::{Steps, Written};
use tokio::sync::Notify;

use crate::node::Inner;
use crate::{Node, OpenError, Options};

/// Time since 1970 at which every simulation begins.
const BEGIN: Duration = Duration::from_secs(1_000_000_000);
/// Time after which a store without writes is written to LMDB.
const IDLE: Duration = Duration::from_secs(1);
/// Time between two attempts of a store to recover.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a test with each seed from 0 up to, not including, `seeds`; see [`throng::sim::check`].
///
/// # Panics
/// If the test panics: with its message, the seed, the way to run that seed alone, and the last events. If
/// `THRONG_SIM_SEED` is not a number.
pub fn check<F: Future<Output = ()>>(seeds: u64, test: impl Fn(Sim) -> F) {
    throng::sim::check(seeds, |sim| run(sim, &test));
}

/// Runs a test with a single seed, and returns the trace of the run.
///
/// # Panics
/// If the test panics, or if it waits for something that can no longer happen.
pub fn replay<F: Future<Output = ()>>(seed: u64, test: impl Fn(Sim) -> F) -> Trace {
    throng::sim::replay(seed, |sim| run(sim, &test))
}

async fn run<F: Future<Output = ()>>(sim: throng::sim::Sim, test: impl Fn(Sim) -> F) {
    let sim = Sim::new(sim);
    test(sim.clone()).await;
    sim.kill();
}

/// A run of the simulator, as passed to the test. It is a [`throng::sim::Sim`], with its runtime, faults, time and
/// chance, and has a disk. Cheap to clone.
#[derive(Clone)]
pub struct Sim {
    sim: throng::sim::Sim,
    disk: Disk,
    program: Arc<Mutex<Option<Program>>>,
}

/// The program that has the disk: a node, and the steps of its store.
struct Program {
    node: Weak<Inner>,
    steps: Steps,
}

impl Deref for Sim {
    type Target = throng::sim::Sim;

    fn deref(&self) -> &throng::sim::Sim {
        &self.sim
    }
}

impl Sim {
    fn new(sim: throng::sim::Sim) -> Sim {
        let disk = Disk::new(sim.random(u64::MAX));
        let disk = disk.unwrap_or_else(|error| panic!("no directory for LMDB's files: {error}"));
        let clock = sim.clone();
        disk.set_clock(move || BEGIN + clock.elapsed());
        let events = sim.clone();
        disk.on_event(move |event| events.note(event));
        Sim { sim, disk, program: Arc::default() }
    }

    /// Starts the node on the simulated disk, which recovers its store. The path of the options does not matter.
    /// After a power cut, what is left of the node before is killed first.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: by a fault of the disk, or `InUse` while another node is up.
    pub fn start(&self, options: Options) -> Result<Node, OpenError> {
        if self.disk.is_down() {
            self.kill();
        }
        self.note("the node starts");
        let node = options.simulated(&self.disk).open(self.runtime())?;
        self.note("the node is up");
        let steps = Steps::of(node.store());
        let [queued, asked, written] = [(); 3].map(|()| Arc::new(TaskWaker::default()));
        steps.wakes(Waker::from(queued.clone()), Waker::from(asked.clone()));
        self.spawn("store writer", write(steps.clone(), queued, written.clone()));
        self.spawn("store checkpoint", make_checkpoints(steps.clone(), asked, written));
        *self.lock() = Some(Program { node: Arc::downgrade(node.inner()), steps });
        Ok(node)
    }

    /// Returns the disk, by which a test injects faults.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Cuts the power, unless the disk has cut it already: kills all processes of the node at once, and leaves on the
    /// disk any part of what was not flushed. Other processes and tasks go on, as those of other machines.
    ///
    /// # Panics
    /// If the operating system refuses to copy LMDB's file.
    pub fn crash(&self) {
        if let Err(error) = self.disk.cut_power() {
            panic!("LMDB's file cannot be copied: {error}");
        }
        self.kill();
    }

    /// Waits until the power is cut.
    pub async fn crashed(&self) {
        let is_down = |waker: &Waker| self.disk.poll_down(waker);
        poll_fn(|cx| if is_down(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Ends the program, if there is one, without any further step.
    fn kill(&self) {
        let program = self.lock().take();
        if let Some(Program { node, steps }) = program {
            self.note("the node is killed");
            if let Some(node) = node.upgrade() {
                node.kill();
            }
            steps.abandon();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Program>> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the steps of a store's writer.
async fn write(steps: Steps, queued: Arc<TaskWaker>, written: Arc<TaskWaker>) {
    loop {
        match steps.write() {
            Written::Group => {
                written.0.notify_one();
                // Others may come first, with batches for the next group.
                tokio::task::yield_now().await;
            }
            Written::Nothing => queued.0.notified().await,
            Written::Recovering => tokio::time::sleep(RECOVERY_INTERVAL).await,
            Written::Closed => return written.0.notify_one(),
        }
    }
}

/// Makes the steps of a store's checkpoints: when the writer asks for one, or when changes have been in memory for
/// a while. Time stands still for a store without changes in memory.
async fn make_checkpoints(steps: Steps, asked: Arc<TaskWaker>, written: Arc<TaskWaker>) {
    while steps.is_open() {
        if steps.is_checkpoint_due() {
            let _ = tokio::time::timeout(IDLE, asked.0.notified()).await;
            steps.checkpoint();
        } else {
            written.0.notified().await;
        }
    }
}

/// The waker of a task of the store.
#[derive(Default)]
struct TaskWaker(Notify);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}
