//! [`Pool`]: read transactions that wait to be used again.
//!
//! Beginning a read transaction takes the engine's lock and searches its table of readers; renewing
//! one does neither; and one that already sees the last commit needs nothing at all. So threads
//! leave theirs here, each at a shelf of its own. One that still sees the last commit stays as it
//! is, until the next commit, after which the writer lets go of all that were left behind
//! ([`sweep`](Pool::sweep)): nothing here holds old pages back for longer than one commit.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::disk::lmdb::{IdleTxn, ReadTxn};

/// Power of two; more threads than these share.
const SHELVES: usize = 16;

/// How many idle transactions a shelf keeps.
const IDLE_MAX: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    shelves: [Mutex<Shelf>; SHELVES],
    /// The number of the last commit.
    committed: AtomicU64,
}

#[derive(Debug, Default)]
struct Shelf {
    /// Sees a commit that was the last one when it was left here.
    fresh: Option<ReadTxn>,
    idle: Vec<IdleTxn>,
}

/// A transaction from a pool.
#[derive(Debug)]
pub(crate) enum Pooled {
    /// Sees the last commit.
    Fresh(ReadTxn),
    /// To be renewed.
    Idle(IdleTxn),
}

impl Pool {
    /// The number of the last commit whose writers may have been told.
    pub(crate) fn committed(&self) -> u64 {
        // Acquire: whoever sees the number also sees the commit.
        self.committed.load(Ordering::Acquire)
    }

    /// Takes a transaction that was left by this thread, or by one that shares its shelf.
    pub(crate) fn take(&self) -> Option<Pooled> {
        let mut shelf = self.own_shelf();
        if let Some(txn) = shelf.fresh.take() {
            if txn.id() == self.committed() {
                return Some(Pooled::Fresh(txn));
            }
            return Some(Pooled::Idle(txn.reset()));
        }
        shelf.idle.pop().map(Pooled::Idle)
    }

    /// Takes any transaction, from whichever shelf.
    pub(crate) fn take_anywhere(&self) -> Option<IdleTxn> {
        self.shelves.iter().find_map(|shelf| {
            let mut shelf = lock(shelf);
            shelf.idle.pop().or_else(|| shelf.fresh.take().map(ReadTxn::reset))
        })
    }

    /// Leaves a transaction for later, as it is if it sees the last commit and `may_stay`: where
    /// [`sweep`](Pool::sweep) follows each commit.
    pub(crate) fn give(&self, txn: ReadTxn, may_stay: bool) {
        let mut shelf = self.own_shelf();
        // Under the lock: what comes before `retire` empties the shelf is emptied with it.
        if txn.env().is_retired() {
            drop(shelf);
            return drop(txn);
        }
        // Under the lock as well: a later commit finds it here.
        if may_stay && txn.id() == self.committed() && shelf.fresh.is_none() {
            shelf.fresh = Some(txn);
        } else if shelf.idle.len() < IDLE_MAX {
            shelf.idle.push(txn.reset());
        }
    }

    /// Says that there is another commit, and lets go of what sees an older one.
    ///
    /// Who makes a database commits beside the writer, so the two may come here in either order.
    pub(crate) fn sweep(&self, committed: u64) {
        // Release: see `committed`.
        let before = self.committed.fetch_max(committed, Ordering::Release);
        let committed = committed.max(before);
        for shelf in &self.shelves {
            let mut shelf = lock(shelf);
            if let Some(txn) = shelf.fresh.take_if(|txn| txn.id() != committed) {
                shelf.idle.push(txn.reset());
            }
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&self) {
        for shelf in &self.shelves {
            let taken = std::mem::take(&mut *lock(shelf));
            drop(taken);
        }
    }

    fn own_shelf(&self) -> MutexGuard<'_, Shelf> {
        thread_local! {
            static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = OWN.with(|own| {
            if own.get() == usize::MAX {
                // Relaxed: any distribution is right.
                own.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHELVES);
            }
            own.get()
        });
        lock(&self.shelves[own])
    }
}

fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    // Taking from and adding to a shelf leave it whole even if they panic.
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}
