//! [`Deferred`]: groups that are acknowledged, but not yet visible to readers.
//!
//! A commit of LMDB writes every page on the way from the root to each leaf it changed, and a few
//! writes share few of these pages; so the writer keeps its transaction open over several groups.
//! Each group is in the journal before its callers are acknowledged, so a crash loses nothing; but
//! a snapshot shows only committed groups. A reader that needs the whole state *requests a commit*
//! and waits for it. A reader of a single key does not wait unless that key is deferred.
//!
//! ```text
//! writer:  record ─ defer ─ ack ─ apply ── record ─ defer ─ ack ─ apply ── commit ─ publish
//! reader:                            snapshot: request ················· waits ········ begin
//!                                    get of another key: reads at once
//! ```
//!
//! Other processes can neither request a commit nor check for a key. While another process reads,
//! nothing is deferred; and a process that begins to read waits, by a lock on a file of the journal
//! (see `journal/recovery.rs`).
//!
//! Access, and its order:
//!
//! - The writer alone inserts keys, before it counts the group in `acked`, and it counts the group
//!   before any ticket resolves. So a reader that has learned of a group finds it counted and its
//!   keys present.
//! - The writer alone removes the keys, after readers begin with the commit (`Pool::committed`). A
//!   reader checks for its key *before* it checks whether its snapshot is of the last commit; so it
//!   finds either the key, or an emptied slot and then the commit.
//! - `visible` follows `acked` once readers can see the commit, under the lock if a reader waits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use crate::ReadError;
use crate::disk::lmdb::Table;

/// The deferred groups of a store: their number and the fingerprints of their keys.
#[derive(Debug)]
pub(crate) struct Deferred {
    /// Number of groups deferred and acknowledged so far.
    acked: AtomicU64,
    /// Number of the acknowledged groups that readers can see.
    visible: AtomicU64,
    /// Fingerprints of the deferred keys, by open addressing; a zero is an empty slot.
    keys: [AtomicU32; SLOTS],
    /// Whether a reader waits for a commit.
    commit_requested: AtomicBool,
    /// Whether the deferred groups cannot be committed before the engine is reopened.
    failed: Mutex<bool>,
    changed: Condvar,
    /// Number of threads that want to commit beside the writer; see [`Deferred::suspend`].
    suspensions: AtomicU32,
    writer_waker: Arc<WriterWaker>,
}

/// Number of keys that can be deferred. Four slots for each keep a search short.
pub(crate) const KEYS_MAX: usize = 1024;
const SLOTS: usize = 4 * KEYS_MAX;

/// Hash of a table and a key. Two keys with the same fingerprint are treated as the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u32);

impl Fingerprint {
    pub(crate) fn of(table: Table, key: &[u8]) -> Fingerprint {
        let mut hasher = crc32fast::Hasher::new_with_initial(table.0);
        hasher.update(key);
        Fingerprint(hasher.finalize().max(1))
    }
}

impl Deferred {
    pub(crate) fn new(writer_waker: Arc<WriterWaker>) -> Deferred {
        Deferred {
            acked: AtomicU64::new(0),
            visible: AtomicU64::new(0),
            keys: [const { AtomicU32::new(0) }; SLOTS],
            commit_requested: AtomicBool::new(false),
            failed: Mutex::new(false),
            changed: Condvar::new(),
            suspensions: AtomicU32::new(0),
            writer_waker,
        }
    }

    pub(crate) fn writer_waker(&self) -> &Arc<WriterWaker> {
        &self.writer_waker
    }

    /// Whether every acknowledged group is visible.
    pub(crate) fn is_visible(&self) -> bool {
        self.is_visible_to(self.acked.load(Ordering::Acquire))
    }

    fn is_visible_to(&self, acked: u64) -> bool {
        self.visible.load(Ordering::Acquire) >= acked
    }

    /// Whether the key may be deferred.
    pub(crate) fn has(&self, table: Table, key: &[u8]) -> bool {
        !self.is_visible() && self.slot(Fingerprint::of(table, key)).is_none()
    }

    /// Waits until every group acknowledged before this call is visible.
    ///
    /// # Errors
    ///
    /// [`ReadError::Recovering`] if the groups are not visible before the store has recovered.
    pub(crate) fn wait(&self) -> Result<(), ReadError> {
        let acked = self.acked.load(Ordering::Acquire);
        if self.is_visible_to(acked) { Ok(()) } else { self.request_commit(acked) }
    }

    #[cold]
    fn request_commit(&self, acked: u64) -> Result<(), ReadError> {
        let mut failed = self.lock();
        while !self.is_visible_to(acked) {
            if *failed {
                return Err(ReadError::Recovering);
            }
            // Relaxed: waking orders it for a writer that sleeps, and a writer that runs polls
            // anyway.
            self.commit_requested.store(true, Ordering::Relaxed);
            self.writer_waker.wake();
            failed = self.changed.wait(failed).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Keeps the writer from deferring groups while the guard lives, for a thread that commits
    /// beside the writer.
    pub(crate) fn suspend(&self) -> Suspension<'_> {
        // Relaxed here and below: the count affects only how long threads wait for each other.
        self.suspensions.fetch_add(1, Ordering::Relaxed);
        Suspension(self)
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspensions.load(Ordering::Relaxed) > 0
    }

    /// Whether a reader waits for a commit.
    pub(crate) fn is_commit_requested(&self) -> bool {
        self.commit_requested.load(Ordering::Relaxed)
    }

    /// Defers a group. The writer calls this before it acknowledges the group.
    pub(crate) fn defer(&self, keys: impl IntoIterator<Item = Fingerprint>) {
        for key in keys {
            if let Some(slot) = self.slot(key) {
                slot.store(key.0, Ordering::Release);
            }
        }
        self.acked.fetch_add(1, Ordering::Release);
    }

    /// Makes the deferred groups visible: they are committed, and a snapshot begun now shows them.
    pub(crate) fn publish(&self) {
        self.end(false);
    }

    /// Marks the deferred groups as in the journal only, until the engine is reopened. Waiting
    /// readers return with an error.
    pub(crate) fn fail(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Marks recovery as complete: it has applied the journal, so no group is deferred.
    pub(crate) fn recover(&self) {
        self.end(true);
    }

    fn end(&self, recovered: bool) {
        let acked = self.acked.load(Ordering::Relaxed);
        if self.visible.load(Ordering::Relaxed) != acked {
            self.visible.store(acked, Ordering::Release);
            for slot in &self.keys {
                slot.store(0, Ordering::Release);
            }
        }
        if recovered || self.commit_requested.swap(false, Ordering::Relaxed) {
            let mut failed = self.lock();
            *failed &= !recovered;
            drop(failed);
            self.changed.notify_all();
        }
    }

    /// Returns the empty slot in which to enter the key; `None` if the key is present or all slots
    /// are taken.
    fn slot(&self, key: Fingerprint) -> Option<&AtomicU32> {
        let start = key.0 as usize;
        for slot in (start..start + SLOTS).map(|at| &self.keys[at % SLOTS]) {
            match slot.load(Ordering::Acquire) {
                0 => return Some(slot),
                other if other == key.0 => return None,
                _ => {}
            }
        }
        // All slots are taken by other keys: the key counts as present.
        None
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of [`Deferred::suspend`].
#[derive(Debug)]
pub(crate) struct Suspension<'d>(&'d Deferred);

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        self.0.suspensions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Wakes the writer thread; a wake-up while it runs ends its next sleep at once.
#[derive(Debug, Default)]
pub(crate) struct WriterWaker(OnceLock<Thread>);

impl WriterWaker {
    /// Registers the calling thread as the writer thread.
    pub(crate) fn register(&self) {
        // Every call but the first finds it registered.
        let _ = self.0.set(std::thread::current());
    }

    /// Wakes the writer thread, if it has registered.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    fn keys(numbers: std::ops::Range<u32>) -> Vec<Fingerprint> {
        numbers.map(|number| Fingerprint::of(Table(1), &number.to_be_bytes())).collect()
    }

    fn deferred() -> Deferred {
        Deferred::new(Arc::default())
    }

    #[test]
    fn keys_are_present_from_deferral_until_publication() {
        let deferred = deferred();
        let has = |number: u32| deferred.has(Table(1), &number.to_be_bytes());
        assert!(deferred.is_visible() && !has(1));
        deferred.defer(keys(0..200));
        deferred.defer(keys(100..KEYS_MAX as u32));
        assert!(!deferred.is_visible());
        assert!((0..KEYS_MAX as u32).all(has));
        assert!(!deferred.has(Table(2), &1u32.to_be_bytes()));
        assert_eq!((5000..6000).filter(|number| has(*number)).count(), 0);
        deferred.publish();
        assert!(deferred.is_visible() && !(0..KEYS_MAX as u32).any(has));
        deferred.defer(keys(5..6));
        assert!(has(5) && !has(6));
    }

    #[test]
    fn with_more_keys_than_slots_every_key_counts_as_present() {
        let deferred = deferred();
        deferred.defer(keys(0..2 * SLOTS as u32));
        assert!((0..3 * SLOTS as u32).all(|number| deferred.has(Table(1), &number.to_be_bytes())));
    }

    #[test]
    fn waiting_readers_return_when_all_is_visible_or_failed() {
        let deferred = deferred();
        deferred.wait().unwrap();
        deferred.defer(keys(0..1));
        let woken = AtomicUsize::new(0);
        let wait = || {
            let outcome = deferred.wait();
            woken.fetch_add(1, Ordering::Relaxed);
            outcome
        };
        std::thread::scope(|scope| {
            let waiting = [scope.spawn(wait), scope.spawn(wait)];
            while !deferred.is_commit_requested() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(woken.load(Ordering::Relaxed), 0);
            // As the writer does: as long as a commit is requested.
            while woken.load(Ordering::Relaxed) < 2 {
                deferred.publish();
                std::thread::yield_now();
            }
            waiting.into_iter().for_each(|waiting| waiting.join().unwrap().unwrap());
        });

        deferred.defer(keys(0..1));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(wait);
            while !deferred.is_commit_requested() {
                std::thread::yield_now();
            }
            deferred.fail();
            assert!(matches!(waiting.join().unwrap(), Err(ReadError::Recovering)));
        });
        assert!(matches!(deferred.wait(), Err(ReadError::Recovering)));
        deferred.recover();
        deferred.wait().unwrap();
        deferred.defer(keys(0..1));
        assert!(!deferred.is_visible());
    }
}
