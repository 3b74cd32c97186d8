//! A count kept by processes and awaited by the driver, the same for every runtime.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Limit of each wait, so that a lost message cannot hang the benchmark; far longer than any wait
/// without such a loss.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// Counts processes and adds up their values. Used as a static, so that no process holds a pointer
/// to it.
///
/// Only the process that completes the armed count wakes the driver, so counting costs two atomic
/// additions and a load, in every runtime.
pub(crate) struct Tally {
    count: AtomicU64,
    sum: AtomicU64,
    armed: AtomicU64,
    complete: Notify,
}

impl Tally {
    pub(crate) const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            armed: AtomicU64::new(u64::MAX),
            complete: Notify::const_new(),
        }
    }

    pub(crate) fn add(&self, value: u64) {
        self.sum.fetch_add(value, Ordering::Relaxed);
        // Release: the acquiring load in `count` sees the sum.
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        if count == self.armed.load(Ordering::Relaxed) {
            self.complete.notify_one();
        }
    }

    /// Sets the count that the next [`Tally::complete`] waits for. Must be called before any
    /// message that could complete that count is sent: the message then carries the new value to
    /// the process that counts itself.
    pub(crate) fn arm(&self, count: u64) {
        self.armed.store(count, Ordering::Relaxed);
    }

    /// Waits until the armed count is reached, for [`TIMEOUT`] at most.
    pub(crate) async fn complete(&self) {
        // The workload checks the count, so a time-out here shows as a failed check.
        let _ = tokio::time::timeout(TIMEOUT, self.complete.notified()).await;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Sum of the values of all counted processes; read [`Tally::count`] first.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

/// Computes 0 + 1 + … + (`count` − 1) modulo 2⁶⁴, as the processes add it.
pub(crate) fn sum_below(count: u64) -> u64 {
    (u128::from(count) * u128::from(count.saturating_sub(1)) / 2) as u64
}

/// The share of a part when the numbers below `count` are divided among `parts`; the sizes of two
/// shares differ by at most one.
pub(crate) fn share(count: u64, part: u64, parts: u64) -> Range<u64> {
    let begin = |part| (u128::from(count) * u128::from(part) / u128::from(parts)) as u64;
    begin(part)..begin(part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_each_other_and_differ_by_at_most_one() {
        for (count, parts) in [(10, 3), (3, 10), (u64::MAX, 7)] {
            let mut end = 0;
            for part in 0..parts {
                let share = share(count, part, parts);
                assert_eq!(share.start, end);
                assert!((count / parts..=count / parts + 1).contains(&(share.end - share.start)));
                end = share.end;
            }
            assert_eq!(end, count);
        }
    }

    #[test]
    fn sums_are_of_the_numbers_below() {
        for count in [0, 1, 2, 3, 1000] {
            assert_eq!(sum_below(count), (0..count).sum::<u64>());
        }
        assert_eq!(sum_below(1 << 33), (1u64 << 32).wrapping_mul((1 << 33) - 1));
    }
}
