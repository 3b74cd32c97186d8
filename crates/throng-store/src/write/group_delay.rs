//! [`GroupDelay`]: how long the writer waits for more requests although some are queued.
//!
//! Callers that write and wait in a loop fall into two halves: while the writes of one half are
//! flushed, the other half queues and becomes the next group. Each group then has half the writes,
//! and each write waits for two flushes. So the writer waits for the callers that it has just
//! acknowledged, which are likely to write again at once, for a fraction of the time that a flush
//! takes. If they do not arrive, a back-off stops the waiting. With 16 such callers, on two cores that had
//! other work too, this took 38,000 puts/s instead of 8,000 to 24,000. Without flushes the writer never
//! waits: one half makes its next writes while the writes of the other half are applied.

use std::time::Duration;

use crate::write::backoff::Backoff;

/// The writer's estimate of how many requests are about to arrive.
#[derive(Debug, Default)]
pub(crate) struct GroupDelay {
    /// Requests that the last commit acknowledged, plus the requests queued at that moment.
    due: usize,
    /// Time that commit waited for the disk.
    flush: Duration,
    /// Suspends the delay after too few requests arrived.
    backoff: Backoff,
}

/// Number of requests in a group that share the cost of a commit well enough.
const GROUP_ENOUGH: usize = 256;
/// Divisor of the time of a flush: the result is the longest delay.
const FLUSH_DIVISOR: u32 = 3;
/// Shortest flush for which a delay pays.
const FLUSH_MIN: Duration = Duration::from_micros(50);
/// The longest delay, however slow the disk.
const DELAY_MAX: Duration = Duration::from_micros(500);

impl GroupDelay {
    /// Records a commit: how many requests it acknowledges, and how many are queued already.
    pub(crate) fn committed(&mut self, acked: usize, waiting: usize, flush: Duration) {
        self.due = acked + waiting;
        self.flush = flush;
    }

    /// Returns the number of requests to wait for and the longest delay, if `waiting` requests are
    /// queued and a delay is likely to pay.
    pub(crate) fn wanted(&mut self, waiting: usize) -> Option<(usize, Duration)> {
        if !self.backoff.is_over() {
            return None;
        }
        (self.due > 1 && waiting < GROUP_ENOUGH && self.flush >= FLUSH_MIN)
            .then(|| (self.due.min(GROUP_ENOUGH), (self.flush / FLUSH_DIVISOR).min(DELAY_MAX)))
    }

    /// Records how many of the missing requests arrived during a delay.
    pub(crate) fn arrived(&mut self, arrived: usize, missing: usize) {
        if arrived * 2 >= missing {
            self.backoff.reset();
        } else {
            self.backoff.grow();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Duration = Duration::from_micros(400);

    #[test]
    fn acknowledged_callers_are_waited_for_and_a_single_caller_is_not() {
        let mut group_delay = GroupDelay::default();
        assert_eq!(group_delay.wanted(1), None);
        group_delay.committed(1, 0, FLUSH);
        assert_eq!(group_delay.wanted(1), None);
        group_delay.committed(8, 8, FLUSH);
        assert_eq!(group_delay.wanted(9), Some((16, FLUSH / FLUSH_DIVISOR)));
        group_delay.committed(8, 0, FLUSH);
        assert_eq!(group_delay.wanted(1), Some((8, FLUSH / FLUSH_DIVISOR)));
        assert_eq!(group_delay.wanted(GROUP_ENOUGH), None);
        group_delay.committed(GROUP_ENOUGH, 1, Duration::from_secs(1));
        assert_eq!(group_delay.wanted(1), Some((GROUP_ENOUGH, DELAY_MAX)));
        group_delay.committed(8, 0, Duration::ZERO);
        assert_eq!(group_delay.wanted(8), None);
    }

    #[test]
    fn without_arrivals_the_delay_is_suspended_for_longer_and_longer() {
        let mut group_delay = GroupDelay::default();
        group_delay.committed(8, 2, FLUSH);
        let mut asked = Vec::new();
        for group in 0..200 {
            if group_delay.wanted(2).is_some() {
                asked.push(group);
                group_delay.arrived(1, 8);
            }
        }
        assert_eq!(asked, [0, 2, 5, 10, 19, 36, 69, 134, 199]);
        while group_delay.wanted(2).is_none() {}
        group_delay.arrived(4, 8);
        assert!(group_delay.wanted(2).is_some());
    }
}
