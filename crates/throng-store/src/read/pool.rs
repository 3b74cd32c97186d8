//! [`Pool`]: read transactions kept for reuse.
//!
//! Beginning a read transaction takes the engine's lock and searches its table of readers. Renewing
//! a transaction does neither, and a transaction that already sees the last commit needs nothing at
//! all. So threads leave their transactions here, each on a shelf of its own. A transaction that
//! sees the last commit is kept unchanged until the next commit; then its thread, which may be in the
//! middle of a checkpoint, resets all transactions that lag behind ([`sweep`](Pool::sweep)). So the pool
//! retains old pages for at most one commit.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::disk::lmdb::{IdleTxn, ReadTxn};

/// Number of shelves, a power of two; with more threads, some threads share a shelf.
const SHELVES: usize = 16;

/// Maximum number of idle transactions on a shelf.
const IDLE_MAX: usize = 8;

/// Read transactions kept for reuse, and the number of the last commit.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    shelves: [Mutex<Shelf>; SHELVES],
    committed: AtomicU64,
}

#[derive(Debug, Default)]
struct Shelf {
    /// A transaction that sees the commit that was the last one when it was left here.
    fresh: Option<ReadTxn>,
    idle: Vec<IdleTxn>,
}

#[derive(Debug)]
pub(crate) enum Pooled {
    /// A transaction that sees the last commit.
    Fresh(ReadTxn),
    /// A transaction that must be renewed.
    Idle(IdleTxn),
}

impl Pool {
    /// Number of the last commit whose writers may have been acknowledged.
    pub(crate) fn committed(&self) -> u64 {
        // Acquire: a thread that sees the number also sees the commit (pairs with `sweep`).
        self.committed.load(Ordering::Acquire)
    }

    /// Takes a transaction that this thread left, or a thread that shares its shelf.
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

    /// Takes any transaction, from any shelf.
    pub(crate) fn take_anywhere(&self) -> Option<IdleTxn> {
        self.shelves.iter().find_map(|shelf| {
            let mut shelf = lock(shelf);
            shelf.idle.pop().or_else(|| shelf.fresh.take().map(ReadTxn::reset))
        })
    }

    /// Keeps a transaction for later; unchanged if it sees the last commit and `may_stay`, which is
    /// true where [`sweep`](Pool::sweep) follows each commit.
    pub(crate) fn give(&self, txn: ReadTxn, may_stay: bool) {
        let mut shelf = self.own_shelf();
        // Under the lock: a transaction that arrives before `clear` empties the shelf is dropped
        // with it.
        if txn.env().is_retired() {
            drop(shelf);
            return drop(txn);
        }
        // Under the lock as well: the sweep of a later commit finds the transaction here.
        if may_stay && txn.id() == self.committed() && shelf.fresh.is_none() {
            shelf.fresh = Some(txn);
        } else if shelf.idle.len() < IDLE_MAX {
            shelf.idle.push(txn.reset());
        }
    }

    /// Announces a commit, and resets the transactions that see an older one.
    ///
    /// A thread that creates a database commits beside the writer, so the two may arrive here in
    /// either order.
    pub(crate) fn sweep(&self, committed: u64) {
        // Release: pairs with the load in `committed`.
        let before = self.committed.fetch_max(committed, Ordering::Release);
        let committed = committed.max(before);
        for shelf in &self.shelves {
            let mut shelf = lock(shelf);
            if let Some(txn) = shelf.fresh.take_if(|txn| txn.id() != committed) {
                shelf.idle.push(txn.reset());
            }
        }
    }

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
                // Relaxed: any distribution is correct.
                own.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHELVES);
            }
            own.get()
        });
        lock(&self.shelves[own])
    }
}

fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    // Taking from and adding to a shelf leave it intact even if they panic.
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}
