//! Rate limits: a bucket of tokens for each key, in bounded memory.
//!
//! ```text
//! take ──► bucket of the key ──┬─ has a token ──► taken
//!                              └─ is empty ─────► Limited: the time until it has one
//!
//!            cursor
//!              ▼
//!   … │ key │ key │ key │ …    each new key: four buckets at the cursor are dropped if they are full;
//!     │ full at │              in a full table, the fullest of the eight buckets at the cursor is dropped
//! ```
//!
//! A bucket is one number, the time at which it will be full again (*generic cell rate algorithm*). Taking a token
//! moves that time on by the interval in which a token comes back. A bucket that is not in the table is full, so a
//! full bucket can be dropped without a trace.
//!
//! Invariants:
//! * A table has at most `keys_max` buckets, and each call takes constant time, whatever keys the clients send.
//! * A refused request takes no token.
//! * [`Limited::wait`] is exact: if no other request takes from the bucket, a request after that time is admitted, and
//!   a request before is not. A bucket that was dropped only admits a request earlier.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, StatusCode, header};
use foldhash::quality::RandomState;
use indexmap::IndexMap;

use crate::http::Problem;

/// Number of requests in a period: the size of a bucket of tokens, which fills up within the period.
///
/// ```
/// use std::time::Duration;
/// use throng_node::http::Rate;
///
/// // 600 requests at once, or 10 in each second.
/// assert!(Rate::new(600, Duration::from_secs(60)).is_some());
/// assert!(Rate::new(0, Duration::from_secs(60)).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(Option<Bucket>);

/// Size of a bucket, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    /// Time in which a token comes back.
    interval: u64,
    /// Time in which an empty bucket becomes full.
    capacity: u64,
}

impl Rate {
    /// Every request is admitted.
    pub const UNLIMITED: Rate = Rate(None);

    /// Longest period of a rate: a year.
    pub const PERIOD_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// Creates a rate; `None` if there are no requests, more than one in each nanosecond, or a period longer than
    /// [`PERIOD_MAX`](Rate::PERIOD_MAX).
    pub const fn new(requests: u32, period: Duration) -> Option<Rate> {
        let nanoseconds = period.as_nanos();
        if requests == 0 || nanoseconds > Rate::PERIOD_MAX.as_nanos() {
            return None;
        }
        let interval = nanoseconds as u64 / requests as u64;
        if interval == 0 {
            return None;
        }
        // The capacity is a whole number of intervals, so the bucket has exactly `requests` tokens.
        Some(Rate(Some(Bucket { interval, capacity: interval * requests as u64 })))
    }
}

/// The bucket of a request is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Time until the bucket has a token.
    pub wait: Duration,
}

impl Limited {
    /// Returns the time to wait in whole seconds, rounded up: the value of `Retry-After`.
    pub fn retry_after_seconds(self) -> u64 {
        let seconds = self.wait.as_nanos().div_ceil(1_000_000_000).max(1);
        u64::try_from(seconds).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.retry_after_seconds();
        let plural = if seconds == 1 { "" } else { "s" };
        write!(f, "too many requests; try again in {seconds} second{plural}")
    }
}

impl std::error::Error for Limited {}

impl From<Limited> for Problem {
    fn from(limited: Limited) -> Problem {
        let seconds = HeaderValue::from(limited.retry_after_seconds());
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", limited.to_string())
            .with_header(header::RETRY_AFTER, seconds)
    }
}

/// Buckets of one rate, by key.
pub struct RateTable<K> {
    rate: Rate,
    keys_max: usize,
    /// Origin of the times in the buckets.
    start: Instant,
    buckets: Mutex<Buckets<K>>,
    refused: AtomicU64,
}

struct Buckets<K> {
    /// Nanoseconds from the start of the table to the time at which the bucket is full.
    full_at: IndexMap<K, u64, RandomState>,
    /// Index of the bucket that is checked next.
    cursor: usize,
}

impl<K: Clone + Eq + Hash> RateTable<K> {
    /// Creates a table of at most `keys_max` buckets, at least one. If more keys have buckets that are not full, some
    /// of them are treated as full, preferably the fullest.
    pub fn new(rate: Rate, keys_max: usize) -> RateTable<K> {
        let buckets = Buckets { full_at: IndexMap::default(), cursor: 0 };
        RateTable {
            rate,
            keys_max: keys_max.max(1),
            start: Instant::now(),
            buckets: Mutex::new(buckets),
            refused: AtomicU64::new(0),
        }
    }

    /// Takes a token from the bucket of `key`.
    ///
    /// # Errors
    /// The bucket is empty; the request must be refused.
    pub fn take(&self, key: &K) -> Result<(), Limited> {
        // An unlimited table reads no clock.
        if self.rate == Rate::UNLIMITED { Ok(()) } else { self.take_at(key, Instant::now()) }
    }

    /// Takes a token from the bucket of `key` at the time `now`.
    ///
    /// # Errors
    /// The bucket is empty; the request must be refused.
    pub fn take_at(&self, key: &K, now: Instant) -> Result<(), Limited> {
        let Rate(Some(Bucket { interval, capacity })) = self.rate else { return Ok(()) };
        let now = self.nanoseconds_at(now);
        let mut buckets = self.lock();
        let Some(full_at) = buckets.full_at.get_mut(key) else {
            buckets.insert(key.clone(), now.saturating_add(interval), now, self.keys_max);
            return Ok(());
        };
        let next = now.max(*full_at).saturating_add(interval);
        let missing = (next - now).saturating_sub(capacity);
        if missing == 0 {
            *full_at = next;
            return Ok(());
        }
        drop(buckets);
        self.refused.fetch_add(1, Ordering::Relaxed); // Relaxed: the count guards no other data.
        Err(Limited { wait: Duration::from_nanos(missing) })
    }

    /// Puts a token back that was taken from the bucket of `key`.
    pub fn give_back(&self, key: &K) {
        let Rate(Some(Bucket { interval, .. })) = self.rate else { return };
        if let Some(full_at) = self.lock().full_at.get_mut(key) {
            *full_at = full_at.saturating_sub(interval);
        }
    }

    /// Returns the number of requests that were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed) // Relaxed: as above
    }

    /// Returns the number of buckets in memory. Some of them may be full.
    pub fn buckets(&self) -> usize {
        self.lock().full_at.len()
    }

    fn nanoseconds_at(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.start))
    }

    fn lock(&self) -> MutexGuard<'_, Buckets<K>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Buckets<K> {
    fn insert(&mut self, key: K, full_at: u64, now: u64, keys_max: usize) {
        for _ in 0..CHECKED {
            match self.full_at.get_index(self.cursor) {
                // The last bucket moves to the place of the removed one.
                Some((_, full_at)) if *full_at <= now => {
                    self.full_at.swap_remove_index(self.cursor);
                }
                Some(_) => self.cursor += 1,
                None => self.cursor = 0,
            }
        }
        if self.full_at.len() >= keys_max {
            let places = (self.cursor..self.cursor + CANDIDATES).map(|at| at % self.full_at.len());
            let fullest = places.min_by_key(|at| self.full_at.get_index(*at).map(|found| *found.1));
            self.full_at.swap_remove_index(fullest.unwrap_or(0));
            self.cursor += CANDIDATES;
        }
        self.full_at.insert(key, full_at);
    }
}

impl<K> fmt::Debug for RateTable<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateTable").field("rate", &self.rate).finish_non_exhaustive()
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Number of buckets that are checked for each new key. Removing a bucket moves the last one, which is often new, to
/// its place, so that every other check may find nothing; with four checks, full buckets still become fewer.
const CHECKED: usize = 4;

/// Number of buckets of a full table among which the fullest makes room.
const CANDIDATES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NANOSECOND: Duration = Duration::from_nanos(1);

    fn table(requests: u32, period: Duration, keys_max: usize) -> RateTable<u32> {
        RateTable::new(Rate::new(requests, period).unwrap(), keys_max)
    }

    fn wait(limited: Result<(), Limited>) -> Duration {
        limited.expect_err("the bucket should be empty").wait
    }

    #[test]
    fn a_request_is_admitted_after_the_time_to_wait_and_not_before() {
        for (requests, period) in [
            (1, SECOND),
            (3, SECOND),
            (7, 60 * SECOND),
            (600, 60 * SECOND),
            (100, 3600 * SECOND),
            (1, Rate::PERIOD_MAX),
        ] {
            let table = table(requests, period, 10);
            let mut now = table.start + 5 * SECOND;
            // Twice, because the second bucket begins empty.
            for _ in 0..2 {
                while table.take_at(&1, now).is_ok() {}
                let limited = table.take_at(&1, now).unwrap_err();
                let before = table.take_at(&1, now + limited.wait - NANOSECOND).unwrap_err();
                assert_eq!(before.wait, NANOSECOND);
                // In whole seconds as well.
                let seconds = Duration::from_secs(limited.retry_after_seconds());
                assert!(seconds >= limited.wait && seconds < limited.wait + SECOND);
                now += seconds;
                assert_eq!(table.take_at(&1, now), Ok(()), "{requests} in {period:?}");
            }
        }
    }

    #[test]
    fn a_bucket_has_the_tokens_of_a_period_and_gets_them_back_over_the_period() {
        let table = table(7, 60 * SECOND, 10);
        let now = table.start;
        let taken = |now| (0..100).take_while(|_| table.take_at(&1, now).is_ok()).count();
        assert_eq!(taken(now), 7);
        assert_eq!(taken(now), 0);
        assert_eq!(table.refused(), 2);
        assert_eq!(taken(now + 30 * SECOND), 3);
        assert_eq!(taken(now + 600 * SECOND), 7, "no more than the bucket holds");
        assert_eq!(table.take_at(&2, now), Ok(()), "another key has its own bucket");
    }

    #[test]
    fn a_token_that_is_given_back_can_be_taken_again() {
        let table = table(2, 60 * SECOND, 10);
        let now = table.start;
        for _ in 0..10 {
            assert_eq!(table.take_at(&1, now), Ok(()));
            table.give_back(&1);
        }
        assert_eq!(table.take_at(&1, now), Ok(()));
        assert_eq!(table.take_at(&1, now), Ok(()));
        assert_eq!(wait(table.take_at(&1, now)), 30 * SECOND);
        table.give_back(&2);
        assert_eq!(table.buckets(), 1);
    }

    #[test]
    fn no_rate_limits_nothing_and_stores_nothing() {
        let table = RateTable::new(Rate::UNLIMITED, 10);
        assert!((0..1000).all(|_| table.take(&1).is_ok()));
        table.give_back(&1);
        assert_eq!(table.buckets(), 0);
        for (requests, period) in
            [(0, SECOND), (1, Duration::ZERO), (2, NANOSECOND), (1, Rate::PERIOD_MAX + NANOSECOND)]
        {
            assert_eq!(Rate::new(requests, period), None, "{requests} in {period:?}");
        }
    }

    #[test]
    fn a_million_keys_take_bounded_memory() {
        let table = table(2, 60 * SECOND, 1000);
        let now = table.start;
        for key in 0..1_000_000 {
            assert_eq!(table.take_at(&key, now), Ok(()));
            assert!(table.buckets() <= 1000);
        }
    }

    #[test]
    fn full_buckets_are_dropped_by_new_keys() {
        let table = table(2, 60 * SECOND, 100_000);
        for key in 0..10_000 {
            assert_eq!(table.take_at(&key, table.start), Ok(()));
        }
        assert_eq!(table.buckets(), 10_000);
        // All of them are full by then.
        let later = table.start + 60 * SECOND;
        for key in 10_000..17_000 {
            assert_eq!(table.take_at(&key, later), Ok(()));
        }
        assert_eq!(table.buckets(), 7_000);
    }

    #[test]
    fn an_empty_bucket_stays_in_a_full_table() {
        let table = table(100, 100 * SECOND, 1000);
        let now = table.start;
        for _ in 0..100 {
            assert_eq!(table.take_at(&0, now), Ok(()));
        }
        for key in 1..100_000 {
            assert_eq!(table.take_at(&key, now), Ok(()));
        }
        assert_eq!(wait(table.take_at(&0, now)), SECOND);
    }

    #[test]
    fn a_limited_request_gets_a_problem_with_the_time_to_wait() {
        for (wait, seconds) in [(NANOSECOND, 1), (SECOND, 1), (SECOND + NANOSECOND, 2)] {
            let limited = Limited { wait };
            assert_eq!(limited.retry_after_seconds(), seconds);
            let problem = Problem::from(limited);
            assert_eq!(problem.status(), StatusCode::TOO_MANY_REQUESTS);
            let wire = String::from_utf8(problem.to_wire()).unwrap();
            assert!(wire.contains(&format!("retry-after: {seconds}\r\n")), "{wire}");
        }
    }
}
