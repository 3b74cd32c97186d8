//! Permits to live, of which each process holds one.
//!
//! Invariants: there are never more out than the limit says, those counted that workers keep in
//! reserve; a worker's reserve is changed by that worker only, and plain loads and stores do.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many processes there may still be. Workers take permits in batches, so that spawning does
/// not contend for one counter; small limits are kept one by one, and exactly.
pub(crate) struct Permits {
    pub(super) limit: u64,
    taken: AtomicU64,
    batch: u32,
}

impl Permits {
    const BATCH: u32 = 64;

    pub(super) fn new(limit: u64) -> Permits {
        let batch = if limit <= 65_536 { 1 } else { Permits::BATCH };
        Permits { limit, taken: AtomicU64::new(0), batch }
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

    #[inline(always)]
    pub(crate) fn give_back(&self, spare: &AtomicU32) {
        let left = spare.load(Ordering::Relaxed) + 1;
        if left >= 2 * self.batch || self.batch == 1 {
            let returned = self.batch;
            spare.store(left - returned, Ordering::Relaxed);
            self.taken.fetch_sub(u64::from(returned), Ordering::Relaxed);
        } else {
            spare.store(left, Ordering::Relaxed);
        }
    }

    pub(crate) fn return_spare(&self, spare: &AtomicU32) {
        let left = spare.swap(0, Ordering::Relaxed);
        self.taken.fetch_sub(u64::from(left), Ordering::Relaxed);
    }

    pub(super) fn give_one_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
