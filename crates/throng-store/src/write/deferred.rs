//! [`Deferred`]: writes whose owners have been told, and which readers are still to see.
//!
//! A commit of the engine writes every page on the way from the root to each leaf it changed, and a
//! few writes share few of them; so the writer keeps its transaction open over several groups. Each
//! group is in the journal before its owners are told, so nothing is lost by this; but snapshots
//! show only what is committed. So who is to see everything *demands* a commit and waits for it. Who
//! looks for one key only needs not, unless that key is among those deferred.
//!
//! ```text
//! writer:  record ─ hold ─ tell ─ apply ── record ─ hold ─ tell ─ apply ── commit ─ show
//! reader:                            snapshot: demand ·················· waits ········ begin
//!                                    get of another key: reads at once
//! ```
//!
//! Other processes can neither demand nor look for a key. Where one reads, nothing is held back; and
//! one that begins to waits, by a lock on a file of the journal (see `Gate` there).
//!
//! Who may touch what, and in which order:
//!
//! - The writer alone puts keys in, before it counts the group as `told`, and that before any ticket
//!   resolves. So whoever has heard of a group finds it counted and its keys there.
//! - The writer alone empties the keys, after the commit is what begins for readers
//!   (`Pool::committed`). A reader looks for its key *before* it asks whether its snapshot is of the
//!   last commit; so it finds the key, or a slot that was emptied, and then the commit.
//! - `shown` follows `told` once the commit can be seen, under the lock if anyone waits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use crate::ReadError;
use crate::disk::lmdb::Table;

/// See the module.
#[derive(Debug)]
pub(crate) struct Deferred {
    /// How many groups were held back until now.
    told: AtomicU64,
    /// How many of these can be seen.
    shown: AtomicU64,
    /// By open addressing; zeros are empty.
    keys: [AtomicU32; SLOTS],
    /// Somebody waits for all to be shown.
    demanded: AtomicBool,
    /// Whether what was held back cannot be shown before the engine is opened anew.
    lost: Mutex<bool>,
    changed: Condvar,
    /// How many others want to commit.
    others: AtomicU32,
    writer_waker: Arc<WriterWaker>,
}

/// How many keys can be held back. Four slots for each, so that a search is short.
pub(crate) const KEYS_MAX: usize = 1024;
const SLOTS: usize = 4 * KEYS_MAX;

/// A key of a table, or one of the few that are taken for it.
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
            told: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            keys: [const { AtomicU32::new(0) }; SLOTS],
            demanded: AtomicBool::new(false),
            lost: Mutex::new(false),
            changed: Condvar::new(),
            others: AtomicU32::new(0),
            writer_waker,
        }
    }

    pub(crate) fn writer_waker(&self) -> &Arc<WriterWaker> {
        &self.writer_waker
    }

    /// Whether everything that anyone was told of can be seen.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown_to(self.told.load(Ordering::Acquire))
    }

    fn is_shown_to(&self, told: u64) -> bool {
        self.shown.load(Ordering::Acquire) >= told
    }

    /// Whether the key may be held back.
    pub(crate) fn has(&self, table: Table, key: &[u8]) -> bool {
        !self.is_shown() && self.slot(Fingerprint::of(table, key)).is_none()
    }

    /// Waits until everything that anyone was told of before this call can be seen.
    ///
    /// # Errors
    ///
    /// [`ReadError::Recovering`] if that must wait until the store has recovered.
    pub(crate) fn wait(&self) -> Result<(), ReadError> {
        let told = self.told.load(Ordering::Acquire);
        if self.is_shown_to(told) { Ok(()) } else { self.demand(told) }
    }

    #[cold]
    fn demand(&self, told: u64) -> Result<(), ReadError> {
        let mut lost = self.lock();
        while !self.is_shown_to(told) {
            if *lost {
                return Err(ReadError::Recovering);
            }
            // Relaxed: waking orders it for a writer that sleeps, and a writer that runs polls anyway.
            self.demanded.store(true, Ordering::Relaxed);
            self.writer_waker.wake();
            lost = self.changed.wait(lost).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Keeps the writer from holding anything back, for one who is to commit beside it.
    pub(crate) fn keep_out(&self) -> KeptOut<'_> {
        // Relaxed here and below: it is about who waits for whom for how long.
        self.others.fetch_add(1, Ordering::Relaxed);
        KeptOut(self)
    }

    pub(crate) fn is_kept_out(&self) -> bool {
        self.others.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody waits.
    pub(crate) fn is_demanded(&self) -> bool {
        self.demanded.load(Ordering::Relaxed)
    }

    /// Holds a group back. The writer calls this before it tells anyone.
    pub(crate) fn hold(&self, keys: impl IntoIterator<Item = Fingerprint>) {
        for key in keys {
            if let Some(slot) = self.slot(key) {
                slot.store(key.0, Ordering::Release);
            }
        }
        self.told.fetch_add(1, Ordering::Release);
    }

    /// Everything that was held back is committed, and so is what a snapshot begun now shows.
    pub(crate) fn show(&self) {
        self.end(false);
    }

    /// What was held back, if anything, is in the journal only, until the engine is opened anew.
    pub(crate) fn lose(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// It has been, so there is nothing left that was held back.
    pub(crate) fn recover(&self) {
        self.end(true);
    }

    fn end(&self, recovered: bool) {
        let told = self.told.load(Ordering::Relaxed);
        if self.shown.load(Ordering::Relaxed) != told {
            self.shown.store(told, Ordering::Release);
            for slot in &self.keys {
                slot.store(0, Ordering::Release);
            }
        }
        if recovered || self.demanded.swap(false, Ordering::Relaxed) {
            let mut lost = self.lock();
            *lost &= !recovered;
            drop(lost);
            self.changed.notify_all();
        }
    }

    /// Where the key would be put; nothing if it is there.
    fn slot(&self, key: Fingerprint) -> Option<&AtomicU32> {
        let start = key.0 as usize;
        for slot in (start..start + SLOTS).map(|at| &self.keys[at % SLOTS]) {
            match slot.load(Ordering::Acquire) {
                0 => return Some(slot),
                other if other == key.0 => return None,
                _ => {}
            }
        }
        // Full of others: it is held to be there.
        None
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Deferred::keep_out`].
#[derive(Debug)]
pub(crate) struct KeptOut<'d>(&'d Deferred);

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        self.0.others.fetch_sub(1, Ordering::Relaxed);
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
    fn keys_are_there_from_when_they_are_held_until_they_are_shown() {
        let deferred = deferred();
        let has = |number: u32| deferred.has(Table(1), &number.to_be_bytes());
        assert!(deferred.is_shown() && !has(1));
        deferred.hold(keys(0..200));
        deferred.hold(keys(100..KEYS_MAX as u32));
        assert!(!deferred.is_shown());
        assert!((0..KEYS_MAX as u32).all(has));
        assert!(!deferred.has(Table(2), &1u32.to_be_bytes()));
        assert_eq!((5000..6000).filter(|number| has(*number)).count(), 0);
        deferred.show();
        assert!(deferred.is_shown() && !(0..KEYS_MAX as u32).any(has));
        deferred.hold(keys(5..6));
        assert!(has(5) && !has(6));
    }

    #[test]
    fn more_keys_than_there_is_room_for_are_all_held_to_be_there() {
        let deferred = deferred();
        deferred.hold(keys(0..2 * SLOTS as u32));
        assert!((0..3 * SLOTS as u32).all(|number| deferred.has(Table(1), &number.to_be_bytes())));
    }

    #[test]
    fn who_waits_hears_when_all_is_shown_or_lost() {
        let deferred = deferred();
        deferred.wait().unwrap();
        deferred.hold(keys(0..1));
        let woken = AtomicUsize::new(0);
        let wait = || {
            let outcome = deferred.wait();
            woken.fetch_add(1, Ordering::Relaxed);
            outcome
        };
        std::thread::scope(|scope| {
            let waiting = [scope.spawn(wait), scope.spawn(wait)];
            while !deferred.is_demanded() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(woken.load(Ordering::Relaxed), 0);
            // As the writer does: as long as it is demanded.
            while woken.load(Ordering::Relaxed) < 2 {
                deferred.show();
                std::thread::yield_now();
            }
            waiting.into_iter().for_each(|waiting| waiting.join().unwrap().unwrap());
        });

        deferred.hold(keys(0..1));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(wait);
            while !deferred.is_demanded() {
                std::thread::yield_now();
            }
            deferred.lose();
            assert!(matches!(waiting.join().unwrap(), Err(ReadError::Recovering)));
        });
        assert!(matches!(deferred.wait(), Err(ReadError::Recovering)));
        deferred.recover();
        deferred.wait().unwrap();
        deferred.hold(keys(0..1));
        assert!(!deferred.is_shown());
    }
}
