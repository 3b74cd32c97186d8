//! Threads that each write one entry at a time, and how they come together in one transaction.
//!
//! A store that leaves this to its users gets a thread that takes all that waits, sorts it, and
//! commits it as one: as throng's own writer does, without what else that one can do.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

use super::Engine;
use crate::workloads::records::{Key, RoleStats};

/// What is to be committed, for the writer of that number.
struct PendingPut {
    key: Key,
    value: Vec<u8>,
    writer: usize,
}

/// How far one writer has got.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    thread: OnceLock<Thread>,
}

/// Where writers leave what they write.
pub(crate) struct Committer<'e, E> {
    engine: &'e E,
    /// Not for a store that brings writers together itself.
    pending: Option<Sender<PendingPut>>,
    progress: &'e [Progress],
    failed: &'e AtomicBool,
}

/// Runs `body` beside a committing thread, for so many writers, which must all have ended with it.
///
/// # Errors
/// What a commit failed with, or the body.
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

/// The committing thread.
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
            // Release: the entry is there for whoever sees the number.
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

/// One writer's place at a committer.
pub(crate) struct WriterHandle<'d, E> {
    committer: &'d Committer<'d, E>,
    writer: usize,
    /// When each of those under way was left; the first is the oldest.
    under_way: std::collections::VecDeque<Instant>,
    settled: u64,
    inflight: usize,
}

impl<'e, E: Engine> Committer<'e, E> {
    /// The place of the writer of that number, on its own thread, who has at most so many entries
    /// under way.
    pub(crate) fn writer_handle(&'e self, writer: usize, inflight: u64) -> WriterHandle<'e, E> {
        self.progress[writer].thread.get_or_init(thread::current);
        let inflight = usize::try_from(inflight).unwrap_or(usize::MAX);
        WriterHandle {
            committer: self,
            writer,
            under_way: Default::default(),
            settled: 0,
            inflight,
        }
    }
}

impl<E: Engine> WriterHandle<'_, E> {
    /// Writes an entry and waits until no more than the others are under way, noting for each that
    /// is done how long it took.
    ///
    /// # Errors
    /// When a commit has failed.
    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>, role: &mut RoleStats) -> io::Result<()> {
        let begun = Instant::now();
        let Some(pending) = &self.committer.pending else {
            self.committer.engine.commit(&[(key, value)])?;
            role.record(begun.elapsed());
            return Ok(());
        };
        let gone = |_| io::Error::other("the committing thread is gone");
        pending.send(PendingPut { key, value, writer: self.writer }).map_err(gone)?;
        self.under_way.push_back(begun);
        self.wait_until_at_most(self.inflight - 1, role)
    }

    /// Waits until no more than so many are under way.
    ///
    /// # Errors
    /// When a commit has failed.
    pub(crate) fn wait_until_at_most(
        &mut self,
        rest: usize,
        role: &mut RoleStats,
    ) -> io::Result<()> {
        loop {
            // Acquire: see where it is added to.
            let done = self.committer.progress[self.writer].done.load(Ordering::Acquire);
            for _ in mem::replace(&mut self.settled, done)..done {
                role.record(
                    self.under_way.pop_front().map_or_else(Default::default, |at| at.elapsed()),
                );
            }
            if self.under_way.len() <= rest {
                return Ok(());
            }
            if self.committer.failed.load(Ordering::Acquire) {
                return Err(io::Error::other("a commit has failed"));
            }
            thread::park();
        }
    }
}
