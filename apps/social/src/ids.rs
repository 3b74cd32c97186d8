//! Post ids: 64 bits, ordered by time, never given twice.
//!
//! ```text
//!  63 62                            22 21          12 11         0
//!  0 │ milliseconds since 2025 (41)   │ node (10)    │ sequence (12)
//! ```
//!
//! Within a node, milliseconds and sequence form one counter, the *tick*, which never goes back: a
//! clock that steps back, or 4,096 posts within a millisecond, only make it run ahead of the clock.
//! So that it does not go back across a restart either, ticks are given out from a lease: a durable
//! process records how far they may go before they do. A restart begins beyond the recorded end,
//! at most [`LEASE`] ahead of the clock.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use throng::prelude::*;
use throng_durable::{Durable, Entity, EntityError, Node};

/// A post's id. Ids of one node are ordered as they were given; in JSON a decimal string, because
/// many languages read numbers of that size wrongly.
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
    /// The id of this number.
    pub const fn new(number: u64) -> PostId {
        PostId(number)
    }

    /// The number of this id.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// When the id was given, in milliseconds since 1970.
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

/// Gives out the post ids of one node.
pub(crate) struct Ids {
    node: u16,
    granted: Mutex<Granted>,
    lease: Entity<Lease>,
    /// Held while the lease is extended, so that one post asks for all that wait.
    extending: tokio::sync::Mutex<()>,
}

impl Ids {
    /// The ids of node number `number`; no two nodes of a service may share one.
    pub(crate) fn new(node: &Node, number: u16) -> Ids {
        Ids {
            node: number,
            granted: Mutex::new(Granted::default()),
            lease: node.entity(number.to_string()),
            extending: tokio::sync::Mutex::new(()),
        }
    }

    /// An id greater than all given before. Waits for the disk about once per [`LEASE`].
    ///
    /// # Errors
    /// The lease could not be extended; no id was given.
    pub(crate) async fn next(&self) -> Result<PostId, EntityError> {
        loop {
            if let Some(tick) = self.take() {
                return Ok(PostId::from_tick(self.node, tick));
            }
            let _extending = self.extending.lock().await;
            if let Some(tick) = self.take() {
                return Ok(PostId::from_tick(self.node, tick)); // extended while we waited
            }
            let granted = self.lease.call(Extend { from: clock_tick() }).await?;
            *self.granted.lock().unwrap_or_else(PoisonError::into_inner) = granted;
        }
    }

    fn take(&self) -> Option<u64> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).take(clock_tick())
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Ticks that may be given out without asking: `next..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    next: u64,
    end: u64,
}

impl Granted {
    /// The first tick that is neither given nor before the clock.
    fn take(&mut self, clock: u64) -> Option<u64> {
        let tick = self.next.max(clock);
        if tick >= self.end {
            return None;
        }
        self.next = tick + 1;
        Some(tick)
    }
}

/// Records how far ticks may have been given out; one per node, durable.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Lease {
    end: u64,
}

impl Process for Lease {}

impl Durable for Lease {
    const KIND: &'static str = "post-id-lease";
}

/// Asks a [`Lease`] for ticks that nobody was granted before, not before `from`.
#[derive(Debug)]
pub(crate) struct Extend {
    from: u64,
}

impl Message for Extend {
    type Reply = Granted;
}

impl Handle<Extend> for Lease {
    async fn handle(&mut self, Extend { from }: Extend, _: &mut Context<Self>) -> Granted {
        self.grant(from)
    }
}

impl Lease {
    fn grant(&mut self, from: u64) -> Granted {
        let next = self.end.max(from);
        self.end = next + tick_of(LEASE);
        Granted { next, end: self.end }
    }
}

/// How far ahead of the clock ids may be after a restart; also how often the disk is waited for.
const LEASE: Duration = Duration::from_secs(1);

/// 2025-01-01T00:00:00Z; 41 bits of milliseconds reach from there to 2094.
const EPOCH_MS: u64 = 1_735_689_600_000;
const NODE_BITS: u32 = 10;
const SEQUENCE_BITS: u32 = 12;

fn clock_tick() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    tick_of(since_1970.saturating_sub(Duration::from_millis(EPOCH_MS)))
}

fn tick_of(duration: Duration) -> u64 {
    (duration.as_millis() as u64) << SEQUENCE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `count` ticks at a standing `clock`, extending the lease as [`Ids::next`] does.
    fn take(granted: &mut Granted, lease: &mut Lease, clock: u64, count: usize) -> Vec<u64> {
        let mut ticks = Vec::new();
        while ticks.len() < count {
            match granted.take(clock) {
                Some(tick) => ticks.push(tick),
                None => *granted = lease.grant(clock),
            }
        }
        ticks
    }

    #[test]
    fn ticks_rise_through_clock_steps_restarts_and_exhausted_leases() {
        let (mut granted, mut lease) = (Granted::default(), Lease::default());
        let mut all = Vec::new();
        let lease_ticks = tick_of(LEASE);
        let noon = 1000 * lease_ticks;
        all.extend(take(&mut granted, &mut lease, noon, 10));
        assert_eq!(all[0], noon);
        all.extend(take(&mut granted, &mut lease, noon - 500 * lease_ticks, 10)); // a step back
        all.extend(take(&mut granted, &mut lease, noon + 7 * lease_ticks, 10)); // forward
        all.extend(take(&mut granted, &mut lease, noon, lease_ticks as usize + 10)); // used up
        granted = Granted::default(); // a restart: only the lease survives
        all.extend(take(&mut granted, &mut lease, noon, 10));
        assert!(all.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_restart_is_at_most_a_lease_ahead_of_the_clock() {
        let (mut granted, mut lease) = (Granted::default(), Lease::default());
        let clock = 1_000_000 * tick_of(LEASE);
        take(&mut granted, &mut lease, clock, 1);
        let restarted = lease.grant(clock).take(clock);
        assert_eq!(restarted, Some(clock + tick_of(LEASE)));
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
