//! Group commit: the calls that wait share a commit.
//!
//! ```text
//! callers ──► queue ──► all that wait, by key and then by arrival ──► Ledger: a sum for each counter, one commit
//!    ◄────────────── each its own value, after the commit ──────────────────────────────┘
//! ```
//!
//! - A counter is in a commit once, with the sum of its additions, so the calls of a hot counter share a write.
//! - If a commit fails, its callers get no reply, as nobody knows what is on the disk, and the queue takes no more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;

use bench_steps::Error;
use bench_steps::counters::Counters;
use bench_steps::numbers::{Key, key};
use bench_steps::tasks::Tasks;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};

use super::disk::written_with;
use crate::server::Server;
use crate::told;

/// Number of calls in a commit, at most.
const CALLS_MAX: usize = 4_096;

/// The part of a database that a [`Group`] commits to.
pub(super) trait Ledger: Send + 'static {
    /// Adds to counters, whose keys are sorted and differ, and returns the value of each when all are on the disk.
    fn apply(&mut self, sums: &[Sum]) -> impl Future<Output = Result<Vec<u64>, Error>> + Send;
}

/// The additions to a counter in a commit.
pub(super) struct Sum {
    pub(super) key: Key,
    /// Number of additions; 0 if all calls read.
    pub(super) added: u64,
    calls: usize,
}

/// The counters that a ledger has changed, of which it is the only writer: each is read from the database once.
#[derive(Default)]
pub(super) struct Values(HashMap<Key, u64>);

impl Values {
    /// Adds to a counter, and returns its value, which is ahead of the disk until the commit.
    pub(super) fn add(
        &mut self,
        sum: &Sum,
        stored: impl FnOnce(&Key) -> Result<u64, Error>,
    ) -> Result<u64, Error> {
        let value = match self.0.entry(sum.key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let stored = stored(unknown.key())?;
                unknown.insert(stored)
            }
        };
        *value += sum.added;
        Ok(*value)
    }
}

struct Call {
    key: Key,
    added: u64,
    reply: oneshot::Sender<u64>,
}

/// The queue of a ledger, which is used by one task or thread.
pub(super) struct Group {
    calls: mpsc::UnboundedSender<Call>,
    worker: JoinHandle<()>,
}

impl Group {
    /// Starts a task for a ledger that waits for a server.
    pub(super) fn of_task(ledger: impl Ledger) -> Group {
        let (calls, queue) = mpsc::unbounded_channel();
        Group { calls, worker: tokio::spawn(work(ledger, queue)) }
    }

    /// Starts a thread for a ledger that waits for the disk.
    pub(super) fn of_thread(ledger: impl Ledger) -> Group {
        let (calls, queue) = mpsc::unbounded_channel();
        let runtime = Handle::current();
        Group { calls, worker: spawn_blocking(move || runtime.block_on(work(ledger, queue))) }
    }

    /// Adds to a counter, and returns its value after that.
    pub(super) async fn call(&self, number: u64, added: u64) -> Result<u64, Error> {
        let (reply, value) = oneshot::channel();
        let call = Call { key: key(number), added, reply };
        self.calls.send(call).map_err(|_| "a commit has failed before")?;
        Ok(value.await.map_err(|_| "the commit has failed")?)
    }

    pub(super) async fn close(self) -> Result<(), Error> {
        drop(self.calls);
        Ok(self.worker.await?)
    }
}

async fn work(ledger: impl Ledger, queue: mpsc::UnboundedReceiver<Call>) {
    if let Err(error) = commit_all(ledger, queue).await {
        eprintln!("a commit has failed: {}", told(&*error));
    }
}

async fn commit_all(
    mut ledger: impl Ledger,
    mut queue: mpsc::UnboundedReceiver<Call>,
) -> Result<(), Error> {
    let (mut calls, mut sums) = (Vec::new(), Vec::new());
    while queue.recv_many(&mut calls, CALLS_MAX).await > 0 {
        // Stable: the calls of a counter keep the order of their arrival.
        calls.sort_by_key(|call: &Call| call.key);
        sums.extend(calls.chunk_by(|one, next| one.key == next.key).map(|same| Sum {
            key: same[0].key,
            added: same.iter().map(|call| call.added).sum(),
            calls: same.len(),
        }));
        let values = ledger.apply(&sums).await?;
        let mut calls = calls.drain(..);
        for (sum, after) in sums.drain(..).zip(values) {
            let mut value = after.wrapping_sub(sum.added);
            for call in calls.by_ref().take(sum.calls) {
                value = value.wrapping_add(call.added);
                let _ = call.reply.send(value);
            }
        }
    }
    Ok(())
}

/// Groups on connections of their own to a server. A counter belongs to one of them, so that no two commits wait for
/// each other's locks.
#[derive(Clone)]
pub(super) struct Lanes(Arc<Shared>);

struct Shared {
    writers: Vec<Group>,
    readers: Vec<Group>,
    server: Server,
}

impl Lanes {
    pub(super) fn new(writers: Vec<Group>, readers: Vec<Group>, server: Server) -> Lanes {
        Lanes(Arc::new(Shared { writers, readers, server }))
    }

    pub(super) fn server(&self) -> &Server {
        &self.0.server
    }
}

impl Tasks for Lanes {}

impl Counters for Lanes {
    async fn add(&self, number: u64) -> Result<u64, Error> {
        self.0.writers[number as usize % self.0.writers.len()].call(number, 1).await
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        self.0.readers[number as usize % self.0.readers.len()].call(number, 0).await
    }

    fn written_bytes(&self) -> io::Result<u64> {
        written_with(&self.0.server)
    }

    async fn close(self) -> Result<(), Error> {
        let Shared { writers, readers, server } =
            Arc::into_inner(self.0).ok_or("the counters are in use")?;
        for group in writers.into_iter().chain(readers) {
            group.close().await?;
        }
        server.stop()
    }
}
