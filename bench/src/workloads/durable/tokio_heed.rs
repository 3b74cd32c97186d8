//! Durable counters written by hand: a tokio task for each live counter, and a thread that commits the
//! states that the tasks submit to LMDB, through heed.
//!
//! ```text
//! caller ──► registry: DashMap ──► channel of the counter's task ──► all messages there are, applied in turn
//!                └─ absent: spawn; the task reads its state             │ changed
//!            ◄── oneshot: value, after the commit ──┐                   ▼
//!                                                   └──── channel of the committing thread ──► all that there
//!                                                                are, sorted, in a transaction ──► on the disk
//! ```
//!
//! - A task takes all messages that wait, applies them, and submits the state after them, so the many calls of a
//!   hot counter share a write. It replies only when that is on the disk, also to reads, so no reply shows a state
//!   that a crash would lose. If the commit fails, its callers get no reply, and the task ends.
//! - The environment stays open when the counters are closed: all tasks and the thread end, and later tasks
//!   read their states from the data file.
//! - Tasks do not leave memory. A panic ends its task, and nothing supervises or monitors it.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

use bench_steps::Error;
use dashmap::DashMap;
use tokio::sync::{mpsc, oneshot};

use super::{Counters, Home, Tasks, key};
use crate::stores::{Engine, Heed, OpenOptions, Read, View};

/// Number of messages that a task takes at once, at most.
const TAKEN_MAX: usize = 1_024;

/// Number of messages above which a task gives back the room that it had for them.
const KEPT_MAX: usize = 64;

#[derive(Clone)]
pub(in super::super) struct TokioHeedHome(Arc<OnceLock<Heed>>);

/// The registry of the tasks, and the queue of the committing thread.
#[derive(Clone)]
pub(in super::super) struct TokioHeedCounters(Arc<Shared>);

struct Shared {
    environment: Arc<OnceLock<Heed>>,
    tasks: DashMap<[u8; 20], mpsc::UnboundedSender<Request>>,
    writes: mpsc::UnboundedSender<Write>,
    /// Resolves when the committing thread has ended.
    ended: oneshot::Receiver<io::Result<()>>,
}

struct Request {
    add: u64,
    reply: oneshot::Sender<u64>,
}

/// A state that waits for its commit.
struct Write {
    key: [u8; 20],
    value: u64,
    committed: oneshot::Sender<()>,
}

impl TokioHeedHome {
    pub(in super::super) fn new(directory: &Path) -> io::Result<TokioHeedHome> {
        let options = OpenOptions {
            durable: true,
            checksums: true,
            write_map: false,
            checkpoint_bytes: None,
        };
        Ok(TokioHeedHome(Arc::new(OnceLock::from(Heed::open(directory, options)?))))
    }
}

/// The environment of a home, which [`TokioHeedHome::new`] has set.
fn opened(environment: &OnceLock<Heed>) -> io::Result<&Heed> {
    environment.get().ok_or_else(|| io::Error::other("the environment is not open"))
}

impl Home for TokioHeedHome {
    type Counters = TokioHeedCounters;

    async fn open(&self, _: u64) -> Result<TokioHeedCounters, Error> {
        let (writes, queue) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let environment = self.0.clone();
        thread::spawn(move || {
            // Nobody waits for the end if the counters are dropped without being closed.
            let _ = end.send(opened(&environment).and_then(|heed| commit_all(heed, queue)));
        });
        let tasks = DashMap::new();
        let environment = self.0.clone();
        Ok(TokioHeedCounters(Arc::new(Shared { environment, tasks, writes, ended })))
    }
}

/// The loop of the committing thread: commits all writes that wait in a transaction, until all tasks have ended.
fn commit_all(heed: &Heed, mut queue: mpsc::UnboundedReceiver<Write>) -> io::Result<()> {
    let (mut group, mut entries) = (Vec::new(), Vec::new());
    while let Some(first) = queue.blocking_recv() {
        group.push(first);
        while let Ok(next) = queue.try_recv() {
            group.push(next);
        }
        // A task has one write at a time, so no key is there twice.
        entries.extend(group.iter().map(|write| (write.key, write.value.to_le_bytes())));
        entries.sort_unstable();
        heed.commit(&entries)?;
        entries.clear();
        for write in group.drain(..) {
            let _ = write.committed.send(());
        }
    }
    Ok(())
}

impl TokioHeedCounters {
    async fn call(&self, number: u64, add: u64) -> Result<u64, Error> {
        let (reply, value) = oneshot::channel();
        let (key, request) = (key(number), Request { add, reply });
        let unsent = match self.0.tasks.get(&key) {
            Some(task) => task.send(request).err().map(|error| error.0),
            None => Some(request),
        };
        if let Some(request) = unsent {
            let task = self.0.tasks.entry(key).or_insert_with(|| self.activate(key));
            task.send(request).map_err(|_| "the counter's task has ended")?;
        }
        Ok(value.await.map_err(|_| "the counter's task gave no reply")?)
    }

    fn activate(&self, key: [u8; 20]) -> mpsc::UnboundedSender<Request> {
        let (sender, requests) = mpsc::unbounded_channel();
        let (environment, writes) = (self.0.environment.clone(), self.0.writes.clone());
        tokio::spawn(async move {
            if let Err(error) = count(key, requests, &environment, writes).await {
                eprintln!("a counter's task ended: {error}");
            }
        });
        sender
    }
}

async fn count(
    key: [u8; 20],
    mut requests: mpsc::UnboundedReceiver<Request>,
    environment: &OnceLock<Heed>,
    writes: mpsc::UnboundedSender<Write>,
) -> io::Result<()> {
    let mut value = load(opened(environment)?, &key)?;
    let (mut taken, mut replies) = (Vec::new(), Vec::new());
    while requests.recv_many(&mut taken, TAKEN_MAX).await > 0 {
        let before = value;
        for Request { add, reply } in taken.drain(..) {
            value += add;
            replies.push((reply, value));
        }
        if value != before {
            let (committed, commit) = oneshot::channel();
            let failed = |_| io::Error::other("the state was not committed");
            writes.send(Write { key, value, committed }).map_err(|_| failed(()))?;
            commit.await.map_err(|_| failed(()))?;
        }
        for (reply, value) in replies.drain(..) {
            let _ = reply.send(value);
        }
        if taken.capacity() > KEPT_MAX {
            taken = Vec::new();
            replies = Vec::new();
        }
    }
    Ok(())
}

fn load(heed: &Heed, key: &[u8; 20]) -> io::Result<u64> {
    let stored = |value: Option<&[u8]>| match value {
        None => Some(0),
        Some(value) => value.try_into().ok().map(u64::from_le_bytes),
    };
    let value = heed.reader(View::Latest)?.get(key, stored)?;
    value.ok_or_else(|| io::Error::other("a state does not have eight bytes"))
}

impl Tasks for TokioHeedCounters {}

impl Counters for TokioHeedCounters {
    async fn add(&self, number: u64) -> Result<u64, Error> {
        self.call(number, 1).await
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        self.call(number, 0).await
    }

    async fn close(self) -> Result<(), Error> {
        let Shared { tasks, writes, ended, .. } =
            Arc::into_inner(self.0).ok_or("the counters are in use")?;
        drop((tasks, writes));
        Ok(ended.await??)
    }
}
