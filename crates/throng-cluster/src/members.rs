//! [`Members`]: the nodes of a cluster and the plan of its shards, as the control log says.
//!
//! ```text
//! control log │ JOIN a │ JOIN b │ RENEW a 1 │ PLAN 1 │ RENEW b 1 │ EXPIRE a 1 │ PLAN 2 │ PLAN 2 │
//!               counts   counts   counts      counts   counts      counts       counts   noise
//! ```
//!
//! The control log has no owner: any node appends to it, and whether an entry counts follows from the entries before
//! it. Each that depends on something says on what: an expiry on the last renewal, a plan on the plan before. So of
//! several that were made at the same time the first counts, and nobody has to be elected. Usually one node makes
//! plans and expiries, the [coordinator](Members::coordinator), which spares the log the noise of others.
//!
//! 1. All readers of the log are in the same state after each entry.
//! 2. A plan is a wish. Who is the owner of a shard is what the shard's own log says.
//! 3. A node of this cluster that is started again is another member, with the same name: what it promised before
//!    binds it no more, and shards that it had are placed by its name.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::placement::{Candidate, Copies, NodeName, Shard};
use crate::record::Incarnation;

/// An entry of the control log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A node has started, and may have shards.
    Join(Incarnation, Member),
    /// A node is alive; the number is above that of its renewals before, some of which may be lost.
    Renew(Incarnation, u64),
    /// A node is dead, unless it has renewed its lease since this renewal.
    Expire(Incarnation, u64),
    /// A node is to have no shards any more, or may have some again.
    Drain(Incarnation, bool),
    /// A node has ended in order.
    Leave(Incarnation),
    /// Nodes of some shards. The number is one more than that of the plan before.
    Plan(u64, BTreeMap<Shard, Copies>),
    /// Level of features that all nodes understand from here on.
    Level(u32),
}

/// A node of a cluster, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Name that the node keeps when it is started again.
    pub name: NodeName,
    /// Host and port at which other nodes reach it.
    pub address: String,
    /// Part of the installation that fails as a whole.
    pub zone: String,
    /// Share of the load that the node takes, in relation to those of others; not 0.
    pub weight: u32,
    /// Lowest and highest level of features that the node's program understands.
    pub levels: (u32, u32),
    /// Number of its last renewal.
    pub renewal: u64,
    /// Whether the node is to have no shards.
    pub is_draining: bool,
}

/// State of a cluster after entries of the control log; see the file's head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    nodes: BTreeMap<Incarnation, Member>,
    plan: BTreeMap<Shard, Copies>,
    plans: u64,
    level: u32,
}

impl Entry {
    /// Returns the encoded entry, with a checksum.
    pub fn encode(&self) -> Bytes {
        let encoded = postcard::to_extend(self, vec![0; 4]);
        let mut bytes = encoded.expect("all lengths of an entry are known beforehand");
        let crc = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes.into()
    }

    fn decode(bytes: &[u8]) -> Option<Entry> {
        let (crc, entry) = bytes.split_first_chunk()?;
        if crc32fast::hash(entry) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (entry, rest) = postcard::take_from_bytes(entry).ok()?;
        rest.is_empty().then_some(entry)
    }
}

impl Members {
    /// Reads the next entry of the control log. Returns the entry if it counts.
    pub fn read(&mut self, bytes: &[u8]) -> Option<Entry> {
        Entry::decode(bytes).filter(|entry| self.apply(entry))
    }

    fn apply(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::Join(node, member) => {
                let understands = (member.levels.0..=member.levels.1).contains(&self.level);
                let is_new = !self.nodes.contains_key(node) && member.renewal == 0;
                let counts = understands && is_new && member.weight > 0;
                if counts {
                    self.nodes.insert(*node, member.clone());
                }
                counts
            }
            Entry::Renew(node, renewal) => self.change(node, |member| {
                let is_later = *renewal > member.renewal;
                member.renewal = member.renewal.max(*renewal);
                is_later
            }),
            Entry::Expire(node, renewal) => {
                let counts = self.nodes.get(node).is_some_and(|member| member.renewal == *renewal);
                counts && self.nodes.remove(node).is_some()
            }
            Entry::Drain(node, is_draining) => self.change(node, |member| {
                std::mem::replace(&mut member.is_draining, *is_draining) != *is_draining
            }),
            Entry::Leave(node) => self.nodes.remove(node).is_some(),
            Entry::Plan(number, shards) => {
                let counts = *number == self.plans + 1;
                if counts {
                    self.plans = *number;
                    self.plan.extend(shards.clone());
                }
                counts
            }
            Entry::Level(level) => {
                let all_understand = self.nodes.values().all(|member| member.levels.1 >= *level);
                let counts = *level > self.level && all_understand && !self.nodes.is_empty();
                if counts {
                    self.level = *level;
                }
                counts
            }
        }
    }

    fn change(&mut self, node: &Incarnation, change: impl FnOnce(&mut Member) -> bool) -> bool {
        self.nodes.get_mut(node).is_some_and(change)
    }

    /// Returns the nodes that have joined and are not known to have ended.
    pub fn nodes(&self) -> &BTreeMap<Incarnation, Member> {
        &self.nodes
    }

    /// Returns the nodes that each shard is to have.
    pub fn plan(&self) -> &BTreeMap<Shard, Copies> {
        &self.plan
    }

    /// Returns the number of the last plan.
    pub fn plans(&self) -> u64 {
        self.plans
    }

    /// Returns the level of features that all nodes understand.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Returns the node that should make plans and expiries: the lowest, but that is only a habit.
    pub fn coordinator(&self) -> Option<Incarnation> {
        self.nodes.keys().next().copied()
    }

    /// Returns the nodes that may have shards, each name once.
    pub fn candidates(&self) -> Vec<Candidate> {
        let named: BTreeMap<&NodeName, &Member> = self
            .nodes
            .values()
            .filter(|member| !member.is_draining)
            .map(|member| (&member.name, member))
            .collect();
        let candidate = |member: &Member| Candidate {
            name: member.name.clone(),
            zone: member.zone.clone(),
            weight: member.weight,
        };
        named.into_values().map(candidate).collect()
    }

    /// Whether programs of different levels are among the nodes, as during a deploy.
    pub fn is_mixed(&self) -> bool {
        let mut levels = self.nodes.values().map(|member| member.levels);
        levels.next().is_some_and(|first| levels.any(|other| other != first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);

    fn member(name: &str, levels: (u32, u32)) -> Member {
        Member {
            name: name.into(),
            address: format!("{name}:7001"),
            zone: String::new(),
            weight: 1,
            levels,
            renewal: 0,
            is_draining: false,
        }
    }

    fn two() -> Members {
        let mut members = Members::default();
        for (node, name) in [(A, "a"), (B, "b")] {
            assert!(members.apply(&Entry::Join(node, member(name, (0, 2)))));
        }
        members
    }

    fn counts(members: &mut Members, entries: &[Entry]) -> Vec<bool> {
        entries.iter().map(|entry| members.read(&entry.encode()).is_some()).collect()
    }

    #[test]
    fn a_renewal_that_precedes_an_expiry_wins() {
        let mut members = two();
        let entries = [
            Entry::Renew(A, 1),
            Entry::Renew(A, 2),
            Entry::Expire(A, 1),
            Entry::Expire(A, 2),
            Entry::Renew(A, 3),
            Entry::Expire(A, 3),
        ];
        assert_eq!(counts(&mut members, &entries), [true, true, false, true, false, false]);
        assert_eq!(members.nodes().keys().collect::<Vec<_>>(), [&B]);
    }

    #[test]
    fn renewals_after_a_lost_one_count_and_a_late_one_does_not() {
        let mut members = two();
        let entries =
            [Entry::Renew(A, 1), Entry::Renew(A, 3), Entry::Renew(A, 2), Entry::Expire(A, 2)];
        assert_eq!(counts(&mut members, &entries), [true, true, false, false]);
        assert_eq!(members.nodes()[&A].renewal, 3);
    }

    #[test]
    fn of_two_plans_made_at_the_same_time_the_first_counts() {
        let mut members = two();
        let plan = |owner: &str| {
            let copies = Copies { owner: owner.into(), standbys: Vec::new() };
            BTreeMap::from([(Shard(3), copies)])
        };
        let entries =
            [Entry::Plan(1, plan("a")), Entry::Plan(1, plan("b")), Entry::Plan(3, plan("b"))];
        assert_eq!(counts(&mut members, &entries), [true, false, false]);
        assert_eq!((members.plan()[&Shard(3)].owner.as_str(), members.plans()), ("a", 1));
    }

    #[test]
    fn a_level_is_raised_once_all_understand_it_and_older_programs_cannot_join() {
        let mut members = two();
        let old = Incarnation(3);
        let entries = [
            Entry::Join(old, member("c", (0, 1))),
            Entry::Level(2),
            Entry::Leave(old),
            Entry::Level(2),
            Entry::Level(1),
            Entry::Join(old, member("c", (0, 1))),
            Entry::Join(old, member("c", (2, 3))),
        ];
        assert_eq!(counts(&mut members, &entries), [true, false, true, true, false, false, true]);
        assert!(members.is_mixed());
    }

    #[test]
    fn a_node_that_drains_or_has_gone_is_no_candidate_and_one_started_again_counts_once() {
        let mut members = two();
        let again = Incarnation(3);
        let entries =
            [Entry::Drain(A, true), Entry::Drain(A, true), Entry::Join(again, member("b", (0, 2)))];
        assert_eq!(counts(&mut members, &entries), [true, false, true]);
        let names = |members: &Members| {
            members.candidates().into_iter().map(|node| node.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&members), ["b"]);
        assert_eq!(members.coordinator(), Some(A));
        assert_eq!(counts(&mut members, &[Entry::Drain(A, false), Entry::Leave(B)]), [true, true]);
        assert_eq!(names(&members), ["a", "b"]);
    }

    #[test]
    fn damaged_entries_and_entries_of_unknown_nodes_do_not_count() {
        let mut members = two();
        let bytes = Entry::Renew(A, 1).encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(members.read(&damaged), None, "bit {bit}");
        }
        let unknown = Incarnation(9);
        let entries = [Entry::Renew(unknown, 1), Entry::Expire(unknown, 0), Entry::Leave(unknown)];
        assert_eq!(counts(&mut members, &entries), [false; 3]);
        assert_eq!(counts(&mut members, &[Entry::Join(A, member("a", (0, 2)))]), [false]);
        assert_eq!(members, two());
    }
}
