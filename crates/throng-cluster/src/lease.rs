//! [`Lease`]: until when a node may believe that it is alive; [`Watch`]: when another one may declare it dead.
//!
//! ```text
//! node   sends renewal 7 ──────────── reads it back          believes until sent + L
//!             │                                                          │
//! log         └──▶ RENEW 7 ─────┐                                        │
//!                               ▼                                        ▼
//! other                     reads it ────────── 1.1 L ──────────▶ may propose EXPIRE 7
//! ```
//!
//! A node counts from the moment *before* a renewal went out, another one from the moment *after* it had read it: so
//! as long as clocks run equally fast but for a tenth, a node has stopped believing when an expiry is proposed. An
//! expiry counts only if no later renewal precedes it in the log, so a renewal that comes late wins.
//!
//! Times are those of a clock that goes on while the machine sleeps and never goes back. Only reads by lease depend
//! on it: writes do not.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::guard::{Guard, holds};
use crate::record::Incarnation;

/// A node's own lease.
#[derive(Clone, Debug)]
pub struct Lease {
    length: Duration,
    /// Number of the renewal that was sent last.
    sent: u64,
    /// Times at which the renewals after the one read back last were sent, by their numbers.
    sent_at: BTreeMap<u64, Duration>,
    until: Duration,
}

impl Lease {
    /// Returns a lease that does not hold, and will hold for some time after each renewal.
    pub fn new(length: Duration) -> Lease {
        Lease { length, sent: 0, sent_at: BTreeMap::new(), until: Duration::ZERO }
    }

    /// Returns the number of a renewal that is sent after this moment.
    pub fn renew(&mut self, now: Duration) -> u64 {
        self.sent += 1;
        self.sent_at.insert(self.sent, now);
        self.sent
    }

    /// Notes that the log has a renewal, which counts.
    pub fn read_back(&mut self, renewal: u64) {
        if let Some(sent_at) = self.sent_at.get(&renewal) {
            self.until = self.until.max(*sent_at + self.length);
        }
        self.sent_at.retain(|number, _| *number > renewal);
    }

    /// Ends the lease: the log has the node's expiry.
    pub fn end(&mut self) {
        self.sent_at.clear();
        self.until = Duration::ZERO;
    }

    /// Returns the time up to which the lease holds; 0 if it does not.
    pub fn until(&self) -> Duration {
        self.until
    }

    /// Whether the node may answer reads from its own state at this moment.
    pub fn holds(&self, now: Duration) -> bool {
        now < self.until
    }
}

/// The renewals of all nodes, as one of them has read them.
#[derive(Clone, Debug)]
pub struct Watch {
    length: Duration,
    /// Longest time between two own renewals of which nothing follows for others.
    silence_max: Duration,
    me: Incarnation,
    /// Time at which the last renewal of each node was read, and its number.
    read: BTreeMap<Incarnation, (Duration, u64)>,
}

impl Watch {
    /// Returns the watch of a node over all others, whose leases have this length. The node declares no other dead
    /// while its own renewals have not come back for `silence_max`, and counts anew when they do.
    pub fn new(me: Incarnation, length: Duration, silence_max: Duration) -> Watch {
        Watch { length, silence_max, me, read: BTreeMap::new() }
    }

    /// Notes a renewal, or that a node has joined, by 0.
    pub fn read(&mut self, node: Incarnation, renewal: u64, now: Duration) {
        if node == self.me && !self.hears(now) && holds(Guard::SilenceStartsAnew) {
            // When an election below the log is over, renewals of others may be on their way behind the own one.
            self.read.values_mut().for_each(|(at, _)| *at = now);
        }
        self.read.insert(node, (now, renewal));
    }

    /// Returns the time at which the node's own last renewal came back.
    pub fn heard(&self) -> Option<Duration> {
        self.read.get(&self.me).map(|(at, _)| *at)
    }

    /// Whether the node's own renewals come back.
    pub fn hears(&self, now: Duration) -> bool {
        self.heard().is_some_and(|at| now.saturating_sub(at) <= self.silence_max)
    }

    /// Forgets a node that has left or has expired.
    pub fn forget(&mut self, node: Incarnation) {
        self.read.remove(&node);
    }

    /// Returns the nodes that may be declared dead at this moment, each with its last renewal.
    pub fn dead(&self, now: Duration) -> impl Iterator<Item = (Incarnation, u64)> {
        // An election below the log stops the renewals of all.
        let hears = self.hears(now) || !holds(Guard::SilenceIsNoDeath);
        let tenth = if holds(Guard::ExpiryWaitsLonger) { self.length / 10 } else { Duration::ZERO };
        let after = self.length + tenth;
        let others = self.read.iter().filter(move |(node, _)| hears && **node != self.me);
        others
            .filter(move |(_, (at, _))| now.saturating_sub(*at) > after)
            .map(|(node, (_, renewal))| (*node, *renewal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(5);
    const SILENCE: Duration = Duration::from_secs(1);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_lease_holds_from_the_time_of_a_renewal_that_came_back() {
        let mut lease = Lease::new(LENGTH);
        let first = lease.renew(ms(100));
        let second = lease.renew(ms(1_100));
        assert!(!lease.holds(ms(1_200)));
        lease.read_back(first);
        assert!(lease.holds(ms(5_099)) && !lease.holds(ms(5_100)));
        lease.read_back(second);
        // An old renewal takes nothing away.
        lease.read_back(first);
        assert!(lease.holds(ms(6_099)) && !lease.holds(ms(6_100)));
        lease.end();
        assert!(!lease.holds(ms(1_200)));
    }

    #[test]
    fn nobody_is_declared_dead_by_a_node_that_hears_nothing_itself() {
        let (me, other) = (Incarnation(1), Incarnation(2));
        let mut watch = Watch::new(me, LENGTH, SILENCE);
        watch.read(me, 1, ms(0));
        watch.read(other, 4, ms(0));
        let dead = |watch: &Watch, now| watch.dead(ms(now)).collect::<Vec<_>>();
        assert_eq!(dead(&watch, 6_000), []);
        // What came back after a silence says nothing about others.
        watch.read(me, 2, ms(6_000));
        assert_eq!(dead(&watch, 6_001), []);
        for at in (7_000..12_000).step_by(1_000) {
            watch.read(me, 3, ms(at));
        }
        assert_eq!(dead(&watch, 11_500), []);
        assert_eq!(dead(&watch, 11_501), [(other, 4)]);
        assert_eq!(dead(&watch, 12_001), []);
        watch.forget(other);
        assert_eq!(dead(&watch, 11_501), []);
    }

    /// A node and its watcher, whose clocks differ in speed and in what they show, with a log that delays.
    /// Returns whether the node still believed after its expiry was in the log.
    fn believes_beyond_expiry(seed: u64, drift_percent: u64) -> bool {
        let mut random = fastrand::Rng::with_seed(seed);
        let (node, watcher) = (Incarnation(1), Incarnation(2));
        let mut lease = Lease::new(LENGTH);
        let mut watch = Watch::new(watcher, LENGTH, SILENCE);
        let drift = random.u64(..=drift_percent);
        let (node_is_slow, offset) = (random.bool(), random.u64(..1_000_000));
        let local = |true_ms: u64, is_node: bool| {
            let slow = true_ms * (100 - drift) / 100;
            ms(offset + if is_node == node_is_slow { slow } else { true_ms })
        };
        // The log, with the time at which each of the two reads an entry.
        let mut entries: Vec<(u64, u64, u64)> = Vec::new();
        let (mut read, mut stops) = ((0, 0), u64::MAX);
        let mut last = (0, 0);
        for now in (0..60_000).step_by(50) {
            if now % 1_000 == 0 && now < stops {
                let renewal = lease.renew(local(now, true));
                // The first copy of a renewal that gets lost is sent again by the client, so it may be late.
                let stored = now + random.u64(..300);
                last = (
                    stored.max(last.0) + random.u64(..200),
                    stored.max(last.1) + random.u64(..200),
                );
                entries.push((renewal, last.0, last.1));
                if random.u32(..20) == 0 {
                    stops = now;
                }
            }
            watch.read(watcher, 0, local(now, false));
            while let Some((renewal, _, at)) = entries.get(read.1).filter(|entry| entry.2 <= now) {
                watch.read(node, *renewal, local(*at, false));
                read.1 += 1;
            }
            while let Some((renewal, ..)) = entries.get(read.0).filter(|entry| entry.1 <= now) {
                lease.read_back(*renewal);
                read.0 += 1;
            }
            let expiry = watch.dead(local(now, false)).next();
            // It counts if no renewal comes behind the one that it names.
            if expiry.is_some_and(|(_, renewal)| renewal == entries.len() as u64) {
                return lease.holds(local(now, true));
            }
        }
        false
    }

    #[test]
    fn no_node_believes_in_its_lease_once_another_has_expired_it() {
        assert!((0..3_000).all(|seed| !believes_beyond_expiry(seed, 9)));
        // The bound on the drift of clocks is needed.
        assert!((0..3_000).any(|seed| believes_beyond_expiry(seed, 30)));
    }
}
