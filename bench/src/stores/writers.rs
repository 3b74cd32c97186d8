//! Group commit for threads that each write an entry at a time.
//!
//! A store that leaves group commit to its users gets a committing thread, which takes all pending
//! puts, sorts them, and commits them in a transaction. throng's own writer does the same, with
//! further features.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

use super::Engine;
use crate::workloads::records::{Key, RoleStats};

/// A put that waits for its commit, with the number of its writer.
struct PendingPut {
    key: Key,
    value: Vec<u8>,
    writer: usize,
}

/// Number of a writer's completed puts, and the thread to wake after each commit.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    thread: OnceLock<Thread>,
}

pub(crate) struct Committer<'e, E> {
    engine: &'e E,
    /// The queue of the committing thread; `None` if the writers commit directly.
    pending: Option<Sender<PendingPut>>,
    progress: &'e [Progress],
    failed: &'e AtomicBool,
}

/// Runs `body` with a committing thread for `writers` writers, all of which must end before `body`
/// returns.
pub(crate) fn with_committer<E: Engine, R>(
    engine: &E,
    writers: usize,
    body: impl FnOnce(&Committer<'_, E>) -> io::Result<R>,
) -> io::Result<R> {
    let progress: Vec<Progress> = (0..writers).map(|_| Progress::default()).collect();
    let failed = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let result = thread::scope(|scope| {
        let mut pending = None;
        if !engine.groups() {
            let (sender, receiver) = mpsc::channel();
            pending = Some(sender);
            let (progress, failed, failure) = (&progress[..], &failed, &failure);
            scope.spawn(move || {
                if let Err(error) = commit_all(engine, &receiver, progress) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    failed.store(true, Ordering::Release);
                    wake(progress);
                }
            });
        }
        body(&Committer { engine, pending, progress: &progress, failed: &failed })
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => result,
    }
}

fn commit_all<E: Engine>(
    engine: &E,
    pending: &Receiver<PendingPut>,
    progress: &[Progress],
) -> io::Result<()> {
    let (mut group, mut writers) = (Vec::new(), Vec::new());
    while let Ok(first) = pending.recv() {
        for PendingPut { key, value, writer } in std::iter::once(first).chain(pending.try_iter()) {
            group.push((key, value));
            writers.push(writer);
        }
        // No key is written twice in these workloads.
        group.sort_unstable_by_key(|entry| entry.0);
        engine.commit(&group)?;
        group.clear();
        for &writer in &writers {
            // Release: the load in `wait_until_at_most` that sees the number sees the commit too.
            progress[writer].done.fetch_add(1, Ordering::Release);
        }
        for writer in writers.drain(..) {
            if let Some(thread) = progress[writer].thread.get() {
                thread.unpark();
            }
        }
    }
    Ok(())
}

fn wake(progress: &[Progress]) {
    progress.iter().filter_map(|writer| writer.thread.get()).for_each(Thread::unpark);
}

pub(crate) struct WriterHandle<'d, E> {
    committer: &'d Committer<'d, E>,
    writer: usize,
    /// Times at which the puts in flight were submitted, the oldest first.
    in_flight: std::collections::VecDeque<Instant>,
    done: u64,
    limit: usize,
}

impl<'e, E: Engine> Committer<'e, E> {
    /// Creates the handle of a writer, which has at most `inflight` puts in flight. Call it on the
    /// writer's own thread.
    pub(crate) fn writer_handle(&'e self, writer: usize, inflight: u64) -> WriterHandle<'e, E> {
        self.progress[writer].thread.get_or_init(thread::current);
        let limit = usize::try_from(inflight).unwrap_or(usize::MAX);
        WriterHandle { committer: self, writer, in_flight: Default::default(), done: 0, limit }
    }
}

impl<E: Engine> WriterHandle<'_, E> {
    /// Submits a put, then waits until fewer than the limit are in flight. Records the latency of
    /// each completed put.
    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>, role: &mut RoleStats) -> io::Result<()> {
        let begun = Instant::now();
        let Some(pending) = &self.committer.pending else {
            self.committer.engine.commit(&[(key, value)])?;
            role.record(begun.elapsed());
            return Ok(());
        };
        let gone = |_| io::Error::other("the committing thread has ended");
        pending.send(PendingPut { key, value, writer: self.writer }).map_err(gone)?;
        self.in_flight.push_back(begun);
        self.wait_until_at_most(self.limit - 1, role)
    }

    pub(crate) fn wait_until_at_most(
        &mut self,
        rest: usize,
        role: &mut RoleStats,
    ) -> io::Result<()> {
        loop {
            // Acquire: pairs with the releasing addition in `commit_all`.
            let done = self.committer.progress[self.writer].done.load(Ordering::Acquire);
            for _ in mem::replace(&mut self.done, done)..done {
                role.record(
                    self.in_flight.pop_front().map_or_else(Default::default, |at| at.elapsed()),
                );
            }
            if self.in_flight.len() <= rest {
                return Ok(());
            }
            if self.committer.failed.load(Ordering::Acquire) {
                return Err(io::Error::other("a commit failed"));
            }
            thread::park();
        }
    }
}
