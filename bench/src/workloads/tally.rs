//! A count kept by processes and awaited by the driver, the same for every runtime.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Nothing that works takes this long; what is lost must not hang the benchmark.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// Counts processes and adds up their values; a static, so that no process holds a pointer to it.
///
/// Only the process that completes the armed count wakes the driver, so counting costs two atomic
/// additions and a load, in every runtime.
pub(crate) struct Tally {
    count: AtomicU64,
    sum: AtomicU64,
    due: AtomicU64,
    complete: Notify,
}

impl Tally {
    pub(crate) const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            due: AtomicU64::new(u64::MAX),
            complete: Notify::const_new(),
        }
    }

    /// Counts one process with its value. Called from any thread.
    pub(crate) fn add(&self, value: u64) {
        self.sum.fetch_add(value, Ordering::Relaxed);
        // Releases the sum to the driver, which acquires the count.
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        if count == self.due.load(Ordering::Relaxed) {
            self.complete.notify_one();
        }
    }

    /// Says up to what the next [`Tally::complete`] waits. Must be called before anything that
    /// could complete that count is sent: the message then carries the new value to the counter.
    pub(crate) fn arm(&self, due: u64) {
        self.due.store(due, Ordering::Relaxed);
    }

    /// Waits until the armed count is there, or until it is clear that it never will be.
    pub(crate) async fn complete(&self) {
        // Whether it came in time shows in the count, which the workload checks.
        let _ = tokio::time::timeout(TIMEOUT, self.complete.notified()).await;
    }

    /// How many were counted so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The sum of the values of those that were counted; read [`Tally::count`] first.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

/// 0 + 1 + … + (`count` − 1), modulo 2⁶⁴ as the processes add it.
pub(crate) fn sum_below(count: u64) -> u64 {
    (u128::from(count) * u128::from(count.saturating_sub(1)) / 2) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_the_numbers_below() {
        for count in [0, 1, 2, 3, 1000] {
            assert_eq!(sum_below(count), (0..count).sum::<u64>());
        }
        assert_eq!(sum_below(1 << 33), (1u64 << 32).wrapping_mul((1 << 33) - 1));
    }
}
