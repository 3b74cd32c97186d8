//! Post ids: 64 bits, ordered by time, each assigned at most once.
//!
//! ```text
//!  63 62                            22 21          12 11         0
//!  0 │ milliseconds since 2025 (41)   │ node (10)    │ sequence (12)
//! ```
//!
//! Within a node, milliseconds and sequence form one counter, the *tick*, which never decreases:
//! after a clock step backwards, or 4,096 posts within a millisecond, the counter runs ahead of the
//! clock. A lease keeps the counter from decreasing across a restart: a durable process records the
//! end of the ticks that may be assigned, before they are assigned. After a restart, ticks begin
//! beyond the recorded end, at most [`LEASE`] ahead of the clock. A tick that does not fit its bits
//! is never assigned.
//!
//! The time in an id orders posts, and is ahead after a clock was ahead. So nothing shows it, and nothing is kept or
//! forgotten by it: a post has a time of its own.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use throng::prelude::*;
use throng_durable::{Durable, EntityError, Node};
use tokio::sync::Mutex;

use crate::clock::since_1970;

/// Id of a post. The ids of one node are ordered by assignment. In JSON an id is a decimal string,
/// because many languages lose precision in numbers of that size.
///
/// ```
/// use social::PostId;
///
/// let id: PostId = "1234567890123456789".parse()?;
/// assert_eq!(id.to_string(), "1234567890123456789");
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PostId(u64);

impl PostId {
    /// Creates the id with this number.
    pub const fn new(number: u64) -> PostId {
        PostId(number)
    }

    /// Returns the id's number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the time of assignment in milliseconds since 1970, or a later one if ids run ahead of the clock.
    pub const fn time_ms(self) -> u64 {
        (self.0 >> (NODE_BITS + SEQUENCE_BITS)) + EPOCH_MS
    }

    fn from_tick(node: u16, tick: u64) -> PostId {
        let time = tick >> SEQUENCE_BITS;
        let sequence = tick & ((1 << SEQUENCE_BITS) - 1);
        let node = u64::from(node) & ((1 << NODE_BITS) - 1);
        PostId(time << (NODE_BITS + SEQUENCE_BITS) | node << SEQUENCE_BITS | sequence)
    }
}

impl fmt::Display for PostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PostId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<PostId, Self::Err> {
        text.parse().map(PostId)
    }
}

impl Serialize for PostId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for PostId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PostId, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
        } else {
            u64::deserialize(deserializer).map(PostId)
        }
    }
}

/// Assigns the post ids of one node.
pub(crate) struct IdGenerator {
    /// Number of the node; also the key of its lease.
    number: u16,
    /// Locked while the lease is extended, so that waiting posts share one extension.
    granted: Mutex<TickRange>,
    clock: fn() -> u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum IdError {
    #[error("cannot extend the lease of post ids")]
    Lease(#[source] EntityError),
    #[error("post ids are exhausted: the clock or the recorded lease is beyond the year 2094")]
    Exhausted,
}

impl IdGenerator {
    /// Creates the generator for node `number`, which must be unique among the nodes of a service.
    pub(crate) fn new(number: u16) -> IdGenerator {
        IdGenerator { number, granted: Mutex::default(), clock: clock_tick }
    }

    /// Returns an id greater than all earlier ids. Waits for the disk about once per [`LEASE`].
    ///
    /// The node is an argument, because a dependency that held its node would keep it open.
    ///
    /// # Errors
    /// [`IdError`]; no id was assigned.
    pub(crate) async fn next(&self, node: &Node) -> Result<PostId, IdError> {
        let mut granted = self.granted.lock().await;
        let tick = match granted.take((self.clock)()) {
            Some(tick) => tick,
            None => {
                let lease = node.entity::<Lease>(self.number.to_string());
                let extended = lease.grant((self.clock)()).await.map_err(IdError::Lease)?;
                *granted = extended.ok_or(IdError::Exhausted)?;
                // The clock is ignored here: it may have passed the whole lease during the wait for
                // the disk.
                granted.take(0).ok_or(IdError::Exhausted)?
            }
        };
        Ok(PostId::from_tick(self.number, tick))
    }
}

/// Ticks that may be assigned without extending the lease: `next..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TickRange {
    next: u64,
    end: u64,
}

impl TickRange {
    /// Returns the first unassigned tick that is not before the clock.
    fn take(&mut self, clock: u64) -> Option<u64> {
        let tick = self.next.max(clock);
        if tick >= self.end {
            return None;
        }
        self.next = tick + 1;
        Some(tick)
    }
}

/// Records the end of the ticks that may be assigned; one durable process per node.
#[derive(Durable, Clone, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "post-id-lease")]
pub(crate) struct Lease {
    end: u64,
}

#[process]
impl Lease {
    /// Grants a range of unassigned ticks, none of them before `from`; `None` if there are none
    /// left.
    #[message]
    fn grant(&mut self, from: u64) -> Option<TickRange> {
        let next = self.end.max(from);
        // A refused request leaves the lease unchanged, so a corrected clock can continue.
        let end = next.checked_add(tick_of(LEASE)).filter(|end| *end <= TICKS_END)?;
        if self.end > 0 && next - self.end > tick_of(JUMP) {
            tracing::info!(
                hours = (next - self.end) / tick_of(Duration::from_secs(3600)),
                "post ids skip ahead: there were no posts for this long, or the clock was set forward"
            );
        }
        self.end = end;
        Some(TickRange { next, end })
    }
}

/// Largest lead of ids over the clock after a restart, and the interval of waits for the disk.
const LEASE: Duration = Duration::from_secs(10);

/// Smallest jump of post ids that is logged.
const JUMP: Duration = Duration::from_secs(24 * 60 * 60);

/// 2025-01-01T00:00:00Z; 41 bits of milliseconds reach until 2094.
const EPOCH_MS: u64 = 1_735_689_600_000;
const NODE_BITS: u32 = 10;
const SEQUENCE_BITS: u32 = 12;
const TICKS_END: u64 = 1 << (41 + SEQUENCE_BITS);

fn clock_tick() -> u64 {
    tick_of(since_1970().saturating_sub(Duration::from_millis(EPOCH_MS)))
}

/// Returns a number that this program has not returned before, nor an earlier run of it before the clock's time: the
/// microseconds since 1970, or more if they are taken.
pub(crate) fn unique_micros() -> u64 {
    // Relaxed: the number guards no other data.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX);
    let last = LAST.fetch_max(now, Ordering::Relaxed);
    if now > last { now } else { LAST.fetch_add(1, Ordering::Relaxed) + 1 }
}

fn tick_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).saturating_mul(1 << SEQUENCE_BITS)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::clock::Now;
    use crate::idempotency::IdempotencyKey;
    use crate::post::Text;
    use crate::testing::{on_a_node, with_the_service};
    use crate::user::{Account, UserClient};

    /// Takes `count` ticks at a constant `clock`, extending the lease as [`IdGenerator::next`]
    /// does.
    fn take(granted: &mut TickRange, lease: &mut Lease, clock: u64, count: usize) -> Vec<u64> {
        let mut ticks = Vec::new();
        while ticks.len() < count {
            match granted.take(clock) {
                Some(tick) => ticks.push(tick),
                None => *granted = lease.grant(clock).unwrap(),
            }
        }
        ticks
    }

    #[test]
    fn ticks_rise_through_clock_steps_restarts_and_exhausted_leases() {
        let (mut granted, mut lease) = (TickRange::default(), Lease::default());
        let mut all = Vec::new();
        let lease_ticks = tick_of(LEASE);
        let noon = 1000 * lease_ticks;
        all.extend(take(&mut granted, &mut lease, noon, 10));
        assert_eq!(all[0], noon);
        all.extend(take(&mut granted, &mut lease, noon - 500 * lease_ticks, 10)); // a step back
        all.extend(take(&mut granted, &mut lease, noon + 7 * lease_ticks, 10)); // forward
        granted.next = granted.end - 5;
        all.extend(take(&mut granted, &mut lease, noon, 10)); // used up
        granted = TickRange::default(); // a restart: only the lease survives
        all.extend(take(&mut granted, &mut lease, noon, 10));
        assert!(all.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_restart_is_at_most_a_lease_ahead_of_the_clock() {
        let (mut granted, mut lease) = (TickRange::default(), Lease::default());
        let clock = 1_000_000 * tick_of(LEASE);
        take(&mut granted, &mut lease, clock, 1);
        let restarted = lease.grant(clock).unwrap().take(clock);
        assert_eq!(restarted, Some(clock + tick_of(LEASE)));
    }

    #[test]
    fn no_tick_is_granted_beyond_its_bits_and_a_clock_set_right_goes_on() {
        let (mut lease, lease_ticks) = (Lease::default(), tick_of(LEASE));
        for wrong in [TICKS_END, TICKS_END - lease_ticks + 1, u64::MAX] {
            assert_eq!(lease.grant(wrong), None);
        }
        let right = 1000 * lease_ticks;
        assert_eq!(lease.grant(right).and_then(|mut granted| granted.take(right)), Some(right));
        let last = lease.grant(TICKS_END - lease_ticks).unwrap();
        assert_eq!(last.end, TICKS_END);
        assert!(PostId::from_tick(1023, last.end - 1).get() < 1 << 63);
        assert_eq!(lease.grant(right), None);
    }

    #[test]
    fn a_disk_slower_than_the_lease_still_gives_ids() {
        static CLOCK: AtomicU64 = AtomicU64::new(0);
        on_a_node(1, async |_, node| {
            let mut ids = IdGenerator::new(0);
            // Each reading of the clock is beyond the lease that the previous reading extended.
            ids.clock = || CLOCK.fetch_add(2 * tick_of(LEASE), Ordering::SeqCst);
            let mut given = Vec::new();
            for _ in 0..5 {
                let id = tokio::time::timeout(Duration::from_secs(30), ids.next(node)).await;
                given.push(id.unwrap().unwrap());
            }
            assert!(given.is_sorted_by(|a, b| a < b), "{given:?}");
        });
    }

    #[test]
    fn a_clock_that_was_ahead_neither_dates_posts_ahead_nor_forgets_their_keys() {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        with_the_service(1, async |social| {
            let ahead = clock_tick() + tick_of(2 * DAY);
            social.node.entity::<Lease>("0").grant(ahead).await.unwrap().unwrap();
            let alice = "alice".parse().unwrap();
            let account = Account { password_hash: String::new(), created_ms: 0 };
            social.user(&alice).register(account).await.unwrap().unwrap();
            let post = async || {
                let text = Text::new("hello").unwrap();
                social.post(&alice, text, IdempotencyKey::new("one")).await.unwrap()
            };
            let begun = Now::by_the_clock().ms();
            let (first, again) = (post().await, post().await);
            let ended = Now::by_the_clock().ms();
            assert!(Duration::from_millis(first.post.id.time_ms() - ended) > DAY);
            assert!((begun..=ended).contains(&first.post.time), "{first:?}");
            assert!(again.repeated, "{again:?}");
        });
    }

    #[test]
    fn an_id_tells_its_time_and_sorts_by_it() {
        let tick = tick_of(Duration::from_millis(5)) + 4095;
        let id = PostId::from_tick(1023, tick);
        assert_eq!(id.time_ms(), EPOCH_MS + 5);
        assert!(PostId::from_tick(0, tick + 1) > id);
        assert!(id.get() < 1 << 63);
    }

    #[test]
    fn json_holds_ids_as_strings() {
        let id = PostId::new(u64::MAX);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"18446744073709551615\"");
        assert_eq!(serde_json::from_str::<PostId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<PostId>("7").is_err());
    }
}
