//! Permits to live: each process holds one from its spawn to its exit.
//!
//! Invariants: the permits taken, including the workers' reserves, never exceed the limit. A
//! worker's reserve is changed only by that worker, so plain loads and stores suffice.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The limit on live processes, and the permits taken. Workers take permits in batches, so that
/// spawns do not contend for the counter; small limits use batches of 1 and so are exact.
pub(crate) struct Permits {
    pub(super) limit: u64,
    /// Permits held by processes and by the workers' reserves.
    taken: AtomicU64,
    /// Permits that a worker takes or gives back at once.
    batch: u32,
    /// Reserve at which a worker gives a batch back.
    full: u32,
}

impl Permits {
    const BATCH: u32 = 64;

    pub(super) fn new(limit: u64) -> Permits {
        let batch = if limit <= 65_536 { 1 } else { Permits::BATCH };
        let full = if batch == 1 { 1 } else { 2 * batch };
        Permits { limit, taken: AtomicU64::new(0), batch, full }
    }

    fn take_many(&self, count: u32) -> bool {
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(u64::from(count)).filter(|&taken| taken <= self.limit)
            })
            .is_ok()
    }

    pub(super) fn take_one(&self) -> bool {
        self.take_many(1)
    }

    /// Takes a permit for a process spawned by a worker, whose reserve is `spare`. False if the
    /// limit is reached.
    #[inline(always)]
    pub(super) fn take(&self, spare: &AtomicU32) -> bool {
        let left = spare.load(Ordering::Relaxed);
        if left > 0 {
            spare.store(left - 1, Ordering::Relaxed);
            return true;
        }
        if self.batch > 1 && self.take_many(self.batch) {
            spare.store(self.batch - 1, Ordering::Relaxed);
            return true;
        }
        self.take_one()
    }

    /// Gives back the permit of a process that has exited on a worker, whose reserve is `spare`.
    #[inline(always)]
    pub(crate) fn give_back(&self, spare: &AtomicU32) {
        let left = spare.load(Ordering::Relaxed) + 1;
        if left >= self.full {
            let returned = self.batch;
            spare.store(left - returned, Ordering::Relaxed);
            self.taken.fetch_sub(u64::from(returned), Ordering::Relaxed);
        } else {
            spare.store(left, Ordering::Relaxed);
        }
    }

    /// Returns a worker's whole reserve, `spare`, to the other workers.
    pub(crate) fn return_spare(&self, spare: &AtomicU32) {
        let left = spare.swap(0, Ordering::Relaxed);
        self.taken.fetch_sub(u64::from(left), Ordering::Relaxed);
    }

    pub(super) fn give_one_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
