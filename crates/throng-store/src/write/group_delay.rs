//! [`Gathering`]: whether the writer waits a little for more, though there is work.
//!
//! Those who write and wait for it, again and again, fall into two halves: while the writes of one
//! half are flushed, the other half queues, and is the next group. Each group then has half the
//! writes, and each write waits for two flushes. So the writer waits for those whom it has just told,
//! who are likely to write again at once, for a fraction of the time that a flush takes. Where they do
//! not come, it soon stops asking; and where nothing is flushed, it never does: then one half makes
//! its next writes while those of the other are applied.

use std::time::Duration;

use crate::write::backoff::Backoff;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// How many were told of the last commit, or waited when they were.
    due: usize,
    /// For how long that waited for the disk.
    flush: Duration,
    /// After they did not come.
    backoff: Backoff,
}

/// Groups of so many share the cost of a commit well enough.
const ENOUGH: usize = 256;
/// The part of a flush's time that is waited, at most.
const PART: u32 = 3;
/// Below this it is not worth the while.
const FLUSH_MIN: Duration = Duration::from_micros(50);
const PATIENCE_MAX: Duration = Duration::from_micros(500);

impl Gathering {
    /// Takes note of a commit: how many are about to be told, and how many wait already.
    pub(crate) fn committed(&mut self, told: usize, waiting: usize, flush: Duration) {
        self.due = told + waiting;
        self.flush = flush;
    }

    /// How many to wait for, and for how long, where so many wait.
    pub(crate) fn wanted(&mut self, waiting: usize) -> Option<(usize, Duration)> {
        if !self.backoff.is_over() {
            return None;
        }
        (self.due > 1 && waiting < ENOUGH && self.flush >= FLUSH_MIN)
            .then(|| (self.due.min(ENOUGH), (self.flush / PART).min(PATIENCE_MAX)))
    }

    /// Takes note of how many came of those who were missing.
    pub(crate) fn came(&mut self, came: usize, missing: usize) {
        if came * 2 >= missing {
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
    fn those_who_were_told_are_waited_for_and_one_alone_is_not() {
        let mut gathering = Gathering::default();
        assert_eq!(gathering.wanted(1), None);
        gathering.committed(1, 0, FLUSH);
        assert_eq!(gathering.wanted(1), None);
        gathering.committed(8, 8, FLUSH);
        assert_eq!(gathering.wanted(9), Some((16, FLUSH / PART)));
        gathering.committed(8, 0, FLUSH);
        assert_eq!(gathering.wanted(1), Some((8, FLUSH / PART)));
        assert_eq!(gathering.wanted(ENOUGH), None);
        gathering.committed(ENOUGH, 1, Duration::from_secs(1));
        assert_eq!(gathering.wanted(1), Some((ENOUGH, PATIENCE_MAX)));
        gathering.committed(8, 0, Duration::ZERO);
        assert_eq!(gathering.wanted(8), None);
    }

    #[test]
    fn where_nobody_comes_it_stops_asking_for_longer_and_longer() {
        let mut gathering = Gathering::default();
        gathering.committed(8, 2, FLUSH);
        let mut asked = Vec::new();
        for group in 0..200 {
            if gathering.wanted(2).is_some() {
                asked.push(group);
                gathering.came(1, 8);
            }
        }
        assert_eq!(asked, [0, 2, 5, 10, 19, 36, 69, 134, 199]);
        while gathering.wanted(2).is_none() {}
        gathering.came(4, 8);
        assert!(gathering.wanted(2).is_some());
    }
}
