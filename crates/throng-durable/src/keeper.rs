//! [`Keeper`]: wakes pinned entities when the node starts, and again after they have failed.
//!
//! ```text
//!  node starts, pin ──▶ due at once ──▶ woken ──▶ due in CHECK_INTERVAL, to be looked at
//!                                        ▲                        │
//!          due after a back-off ─────────┘ ◀──── its activation ──┘ has failed
//! ```
//!
//! The sweeper's task has the keeper wake those that are due, some at each of its steps. Each pin has one valid
//! entry in the list: that of the time in the pin. Entries of other times are dropped when their time comes.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::layer::Instant;
use throng_store::{ReadError, Submission};

use crate::directory::AnyDirectory;
use crate::due::{DueList, Task, lock};
use crate::layout;
use crate::node::Inner;
use crate::view::View;

/// Time after the first failure until a pinned entity is woken again, at most; it doubles with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Longest such time.
const BACKOFF_LONGEST: Duration = Duration::from_secs(60);
/// Time after which an activation has not failed at its start: the next failure counts as the first.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Time after which the keeper looks at a pinned entity that is in memory, as far as it knows.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The list of pinned entities by the time at which they are due; see the file's head.
#[derive(Default)]
pub(crate) struct Keeper {
    due: DueList,
    /// Pins in the store of kinds that the program has not named yet, by the numbers of the kinds.
    unclaimed: Mutex<HashMap<u16, Vec<Box<[u8]>>>>,
    /// Number of pinned entities.
    pub(crate) pinned: AtomicU64,
    /// Number of times that a pinned entity has failed.
    pub(crate) failures: AtomicU64,
}

/// A pinned entity, in the shard of its directory.
#[derive(Debug)]
pub(crate) struct Pin {
    /// The last submission that has stored the pin.
    pub(crate) submitted: Submission,
    /// Whether the pin is stored, or about to be.
    pub(crate) is_stored: bool,
    /// Number of those who keep the entity without a stored pin.
    pub(crate) keepers: u32,
    /// Time at which the keeper looks at the entity.
    due: Instant,
    /// Number of failures in a row.
    failures: u32,
    /// Time at which the last activation began.
    begun: Option<Instant>,
}

impl Pin {
    /// Makes a pin whose entity is to be woken at once.
    pub(crate) fn new() -> Pin {
        let (submitted, is_stored, keepers) = (Submission::START, false, 0);
        Pin { submitted, is_stored, keepers, due: Instant::now(), failures: 0, begun: None }
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Notes that the entity was woken, or need not be woken.
    pub(crate) fn checked(&mut self) {
        self.due = Instant::now() + CHECK_INTERVAL;
    }

    /// Has the entity woken at once.
    pub(crate) fn hurry(&mut self) {
        self.due = Instant::now();
    }

    /// Notes that an activation of the entity begins.
    pub(crate) fn begins(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Notes that the entity has failed. Returns whether it has another time to be woken at. `hash` makes a random
    /// number of the number of failures before.
    pub(crate) fn fails(&mut self, hash: impl FnOnce(u32) -> u64) -> bool {
        let now = Instant::now();
        if self.begun.take().is_some_and(|begun| now.duration_since(begun) >= STABLE_AFTER) {
            self.failures = 0;
        }
        let longest = BACKOFF_FIRST.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_LONGEST);
        // Between half of it and the whole, so that entities that failed together do not come together again.
        let due = now + longest.mul_f64(0.5 + (hash(self.failures) % 1024) as f64 / 2048.0);
        self.failures = self.failures.saturating_add(1);
        let is_moved = self.due <= now || due < self.due;
        if is_moved {
            self.due = due;
        }
        is_moved
    }
}

impl Keeper {
    /// Reads the pins of a store.
    pub(crate) fn read(view: &View) -> Result<Keeper, ReadError> {
        let mut pins = view.prefix(layout::PINS);
        let mut unclaimed: HashMap<u16, Vec<Box<[u8]>>> = HashMap::new();
        let mut pinned = 0;
        while let Some(record) = pins.next_key() {
            let record = record?;
            match layout::state_key_of_pin(record) {
                Some((kind, state_key)) => {
                    unclaimed.entry(kind).or_default().push(state_key);
                    pinned += 1;
                }
                None => {
                    let record = record.escape_ascii();
                    tracing::error!(%record, "the record of a pinned entity has no valid key, and is ignored");
                }
            }
        }
        Ok(Keeper {
            unclaimed: unclaimed.into(),
            pinned: AtomicU64::new(pinned),
            ..Keeper::default()
        })
    }

    /// Returns the keys of the states of a kind's pinned entities that were in the store at the start, once.
    pub(crate) fn claim(&self, kind: u16) -> Vec<Box<[u8]>> {
        lock(&self.unclaimed).remove(&kind).unwrap_or_default()
    }

    /// Returns the numbers of the kinds whose pins nobody has claimed, with the numbers of these pins.
    pub(crate) fn unclaimed(&self) -> Vec<(u16, usize)> {
        lock(&self.unclaimed).iter().map(|(kind, pins)| (*kind, pins.len())).collect()
    }

    /// Adds a pinned entity that is due at this time.
    pub(crate) fn add(&self, due: Instant, directory: Arc<dyn AnyDirectory>, state_key: &[u8]) {
        self.due.add(due, directory, state_key);
    }

    /// Wakes pinned entities that are due, so many at most.
    pub(crate) fn wake(&self, node: &Arc<Inner>, most: usize) {
        let now = Instant::now();
        for _ in 0..most {
            let Some((at, Task { directory, state_key })) = self.due.pop(now) else { return };
            directory.wake(node, &state_key, at);
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_its_bound() {
        for jitter in [0, 511, 1023] {
            let mut pin = Pin::new();
            let mut last = Duration::ZERO;
            for _ in 0..40 {
                pin.hurry();
                assert!(pin.fails(|_| jitter));
                let wait = pin.due().duration_since(Instant::now());
                assert!(wait <= BACKOFF_LONGEST, "{wait:?}");
                assert!(wait + BACKOFF_FIRST > last, "{wait:?} after {last:?}");
                last = wait;
            }
            assert!(last > BACKOFF_LONGEST.mul_f64(0.4), "{last:?}");
        }
    }

    #[test]
    fn a_later_time_replaces_no_earlier_one() {
        let mut pin = Pin::new();
        pin.checked();
        assert!(pin.fails(|_| 0), "the back-off is over before the next look");
        let due = pin.due();
        assert!(!pin.fails(|_| 1023));
        assert_eq!(pin.due(), due);
    }
}
