//! [`View`]: the memtables over LMDB, and the position up to which their changes count.
//!
//! ```text
//! position ──▶ │ active memtable │ frozen memtable │ LMDB │
//!                newest changes    being written      the rest
//! ```
//!
//! The writer adds changes to the active memtable and then publishes their last position. A checkpoint
//! freezes the active memtable, writes it to LMDB, and drops it. A reader takes a transaction of LMDB,
//! the position and the memtables under one lock, in this order:
//!
//! - A memtable is dropped only after LMDB has its changes, and never while a reader holds the lock. So
//!   the transaction has all changes that the memtables lack.
//! - A memtable is written to LMDB only after the positions of its changes were published. So a change
//!   that the transaction has, perhaps a part of an unfinished checkpoint, is not above the position.
//! - A change that never was in a memtable is published under the lock, which no reader holds then. So a
//!   reader whose transaction lacks the change takes a position before it.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::log::{Applied, Point};
use crate::memtable::{Layers, Memtable};

/// The changes that LMDB may lack; see the file's head.
#[derive(Debug)]
pub(crate) struct View {
    memtables: RwLock<Memtables>,
    position: AtomicU64,
}

#[derive(Debug)]
struct Memtables {
    /// The active memtable, then the frozen one.
    all: Arc<[Arc<Memtable>]>,
    /// Point of the log at which the frozen memtable ends.
    frozen_at: Applied,
}

impl View {
    pub(crate) fn new(active: Memtable, position: u64) -> View {
        let all = Arc::new([Arc::new(active)]);
        let frozen_at = Point::default().into();
        View {
            memtables: RwLock::new(Memtables { all, frozen_at }),
            position: AtomicU64::new(position),
        }
    }

    /// Begins a transaction with `begin`, and returns it with the layers that lie over it.
    pub(crate) fn begin<T, E>(
        &self,
        begin: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Layers), E> {
        let memtables = self.memtables.read().unwrap_or_else(PoisonError::into_inner);
        let txn = begin()?;
        let upto = self.position();
        Ok((txn, Layers { memtables: memtables.all.clone(), after: 0, upto }))
    }

    pub(crate) fn position(&self) -> u64 {
        // Acquire: a thread that sees the position also sees the changes (pairs with `publish`).
        self.position.load(Ordering::Acquire)
    }

    /// Makes the changes up to a position visible.
    pub(crate) fn publish(&self, position: u64) {
        // Release: pairs with the load in `position`.
        self.position.store(position, Ordering::Release);
    }

    /// Makes the changes up to a position visible, some of which LMDB got at once: announces its commit
    /// first, with `announce`.
    pub(crate) fn publish_commit(&self, position: u64, announce: impl FnOnce()) {
        let _memtables = self.memtables.write().unwrap_or_else(PoisonError::into_inner);
        announce();
        self.publish(position);
    }

    pub(crate) fn memtables(&self) -> Arc<[Arc<Memtable>]> {
        self.memtables.read().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    /// The memtable that a checkpoint writes, and the point of the log at which it ends.
    pub(crate) fn frozen(&self) -> Option<(Arc<Memtable>, Applied)> {
        let memtables = self.memtables.read().unwrap_or_else(PoisonError::into_inner);
        memtables.all.get(1).map(|frozen| (frozen.clone(), memtables.frozen_at))
    }

    /// Freezes the active memtable, which ends at a point of the log, in favour of a new one. There is
    /// no frozen memtable.
    pub(crate) fn freeze(&self, active: Memtable, at: Applied) {
        let mut memtables = self.memtables.write().unwrap_or_else(PoisonError::into_inner);
        debug_assert_eq!(memtables.all.len(), 1);
        let frozen = memtables.all[0].clone();
        *memtables = Memtables { all: Arc::new([Arc::new(active), frozen]), frozen_at: at };
    }

    /// Drops the frozen memtable, whose changes LMDB has.
    pub(crate) fn drop_frozen(&self) {
        let mut memtables = self.memtables.write().unwrap_or_else(PoisonError::into_inner);
        memtables.all = Arc::new([memtables.all[0].clone()]);
    }
}
