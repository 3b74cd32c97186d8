//! Counts and latencies of a run.
//!
//! ```text
//! outcome ──► kinds[kind]    histogram of 3 digits
//!         └─► windows[n]     histogram of 2 digits, by the time at which the request was due
//! ```
//!
//! Invariant: memory is bounded by the number of kinds and windows, not by requests. A request counts
//! in the window in which it was due, so a stall shows where it began.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::schedule::Kind;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Good,
    /// The node answered 429: it protects itself, as it should.
    Limited,
    /// The error's name: a status, `connect`, `closed`, `timeout` or `body`.
    Failed(String),
}

/// Requests of one kind.
#[derive(Clone, Debug)]
pub(crate) struct KindTally {
    /// Answered and failed requests.
    pub(crate) requests: u64,
    pub(crate) limited: u64,
    pub(crate) errors: u64,
    /// Latencies of good answers, in microseconds.
    pub(crate) latency: Histogram<u64>,
}

/// All outcomes so far.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) kinds: BTreeMap<Kind, KindTally>,
    pub(crate) all: KindTally,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) window: Duration,
    pub(crate) windows: Vec<KindTally>,
}

impl KindTally {
    fn new(digits: u8) -> KindTally {
        // Both bounds and the digits are valid constants of the histogram.
        #[expect(clippy::unwrap_used, reason = "the bounds are constants that a test covers")]
        let latency = Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, digits).unwrap();
        KindTally { requests: 0, limited: 0, errors: 0, latency }
    }

    fn add(&mut self, outcome: &Outcome, latency: Duration) {
        self.requests += 1;
        match outcome {
            Outcome::Good => {
                let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                self.latency.saturating_record(micros);
            }
            Outcome::Limited => self.limited += 1,
            Outcome::Failed(_) => self.errors += 1,
        }
    }
}

impl Tally {
    /// Creates an empty tally of a run that takes about `duration`.
    pub(crate) fn new(duration: Duration) -> Tally {
        Tally {
            kinds: BTreeMap::new(),
            all: KindTally::new(DIGITS),
            errors: BTreeMap::new(),
            window: (duration / WINDOWS).max(WINDOW_MIN),
            windows: Vec::new(),
        }
    }

    /// Counts a request that was due at `at` since the start of the run.
    pub(crate) fn add(&mut self, kind: Kind, at: Duration, outcome: &Outcome, latency: Duration) {
        let tally = self.kinds.entry(kind).or_insert_with(|| KindTally::new(DIGITS));
        tally.add(outcome, latency);
        self.all.add(outcome, latency);
        if let Outcome::Failed(name) = outcome {
            *self.errors.entry(name.clone()).or_default() += 1;
        }
        // A request of a closed loop can be due a moment after the last window.
        let window = (at.as_nanos() / self.window.as_nanos()).min(WINDOWS.into());
        let window = usize::try_from(window).unwrap_or_default();
        while self.windows.len() <= window {
            self.windows.push(KindTally::new(WINDOW_DIGITS));
        }
        self.windows[window].add(outcome, latency);
    }
}

/// Maximum latency that is recorded exactly, in microseconds: 10 minutes, far beyond every timeout.
const LATENCY_MICROS_MAX: u64 = 600_000_000;

/// Significant digits of the percentiles in a report.
const DIGITS: u8 = 3;

/// Significant digits of the percentiles of a window: what a plot shows. With three, the windows of
/// a run would take some twenty megabytes.
const WINDOW_DIGITS: u8 = 2;

/// Windows of a run: about one for every four pixels of a plot.
const WINDOWS: u32 = 120;

/// Minimum length of a window, so that it has some requests.
const WINDOW_MIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_in_its_kind_and_in_the_window_in_which_it_was_due() {
        let mut tally = Tally::new(Duration::from_secs(12));
        let second = Duration::from_secs(1);
        tally.add(Kind::Post, second, &Outcome::Good, 5 * second);
        tally.add(Kind::Post, second, &Outcome::Limited, second);
        tally.add(Kind::Say, second * 1000, &Outcome::Failed("500".to_owned()), second);
        assert_eq!(tally.windows.len(), 121);
        assert_eq!((tally.windows[10].requests, tally.windows[120].errors), (2, 1));
        let posts = &tally.kinds[&Kind::Post];
        assert_eq!((posts.requests, posts.limited, posts.errors), (2, 1, 0));
        assert!(posts.latency.max().abs_diff(5_000_000) < 5_000, "{}", posts.latency.max());
        assert_eq!(tally.errors, BTreeMap::from([("500".to_owned(), 1)]));
        tally.add(Kind::Say, second, &Outcome::Good, Duration::MAX);
    }
}
