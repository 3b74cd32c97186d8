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
//! 4. A name belongs to one member at a time, and a member that has ended does not come back: a join that was repeated
//!    on its way is noise.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::guard::{Guard, holds};
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
    /// Time by which each copy on a node is behind, in whole seconds; all copies that the node has. The number is above
    /// that of its reports before.
    Report(Incarnation, u64, BTreeMap<Shard, u32>),
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

impl Member {
    /// Returns a node of weight 1 without a zone, whose program understands no level but 0.
    pub fn new(name: impl Into<NodeName>, address: impl Into<String>) -> Member {
        Member {
            name: name.into(),
            address: address.into(),
            zone: String::new(),
            weight: 1,
            levels: (0, 0),
            renewal: 0,
            is_draining: false,
        }
    }
}

/// State of a cluster after entries of the control log; see the file's head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    nodes: BTreeMap<Incarnation, Member>,
    plan: BTreeMap<Shard, Copies>,
    plans: u64,
    level: u32,
    /// Number of the last report of each node, and its content.
    reports: BTreeMap<Incarnation, (u64, BTreeMap<Shard, u32>)>,
    /// The members that have ended last.
    ended: VecDeque<Incarnation>,
}

/// Number of members that have ended and are remembered: copies of their joins are long gone when they are forgotten.
const ENDED_MAX: usize = 256;

/// Reason for which a node cannot join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The node's program does not understand the level of the cluster: start another version.
    #[error("the cluster is at level {level}, and this program understands the levels {} to {}", .levels.0, .levels.1)]
    Level {
        /// Level of the cluster.
        level: u32,
        /// Levels of the program.
        levels: (u32, u32),
    },
    /// A living node has the name: stop that node, or choose another name.
    #[error("the name {name} belongs to a living node, {node} at {address}")]
    Name {
        /// Name of both.
        name: NodeName,
        /// The living node.
        node: Incarnation,
        /// Its host and port.
        address: String,
    },
    /// The member is none that can join.
    #[error("a member has a weight above 0, and no renewals when it joins")]
    Invalid,
    /// The incarnation has joined before.
    #[error("the incarnation has joined before")]
    Known,
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

    /// Returns the entry that some bytes are; `None` if they are none, or damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Entry> {
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

    /// Applies the next entry of the control log. Returns whether the entry counts.
    pub(crate) fn apply(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::Join(node, member) => {
                let counts = self.refusal(*node, member).is_none();
                if counts {
                    if self.is_unused() {
                        self.level = member.levels.0;
                    }
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
                let is_last = |member: &Member| {
                    member.renewal == *renewal || !holds(Guard::ExpiryNamesRenewal)
                };
                self.nodes.get(node).is_some_and(is_last) && self.end(*node)
            }
            Entry::Drain(node, is_draining) => self.change(node, |member| {
                std::mem::replace(&mut member.is_draining, *is_draining) != *is_draining
            }),
            Entry::Leave(node) => self.end(*node),
            Entry::Plan(number, shards) => {
                let counts = *number == self.plans + 1 || !holds(Guard::PlanFollowsPlan);
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
            Entry::Report(node, number, lags) => {
                let last = self.reports.get(node).map_or(0, |(last, _)| *last);
                let counts = self.nodes.contains_key(node) && *number > last;
                if counts {
                    self.reports.insert(*node, (*number, lags.clone()));
                }
                counts
            }
        }
    }

    /// Returns the reason for which a node cannot join at this point of the log; `None` if it can.
    pub(crate) fn refusal(&self, node: Incarnation, member: &Member) -> Option<Refusal> {
        let (level, levels) = (self.level, member.levels);
        let was_here = self.ended.contains(&node) && holds(Guard::EndIsFinal);
        if member.weight == 0 || member.renewal != 0 || levels.0 > levels.1 {
            Some(Refusal::Invalid)
        } else if self.nodes.contains_key(&node) || was_here {
            Some(Refusal::Known)
        } else if !(levels.0..=levels.1).contains(&level) && !self.is_unused() {
            Some(Refusal::Level { level, levels })
        } else {
            let (node, other) = self.named(&member.name).filter(|_| holds(Guard::NameOnce))?;
            let (name, address) = (other.name.clone(), other.address.clone());
            Some(Refusal::Name { name, node, address })
        }
    }

    /// Whether no shard was ever placed, so that there is nothing that a first program would have to understand.
    fn is_unused(&self) -> bool {
        self.nodes.is_empty() && self.plans == 0 && self.level == 0
    }

    fn end(&mut self, node: Incarnation) -> bool {
        let was_there = self.nodes.remove(&node).is_some();
        if was_there {
            self.reports.remove(&node);
            self.ended.push_back(node);
            if self.ended.len() > ENDED_MAX {
                self.ended.pop_front();
            }
        }
        was_there
    }

    fn change(&mut self, node: &Incarnation, change: impl FnOnce(&mut Member) -> bool) -> bool {
        self.nodes.get_mut(node).is_some_and(change)
    }

    /// Returns the nodes that have joined and are not known to have ended.
    pub fn nodes(&self) -> &BTreeMap<Incarnation, Member> {
        &self.nodes
    }

    /// Returns the node that has a name.
    pub fn named(&self, name: &str) -> Option<(Incarnation, &Member)> {
        let mut nodes = self.nodes.iter();
        nodes.find(|(_, member)| member.name == name).map(|(node, member)| (*node, member))
    }

    /// Returns the time by which a node's copy of a shard is behind, in whole seconds, as the node has said last; `None`
    /// without a copy.
    pub fn lag(&self, shard: Shard, name: &str) -> Option<u32> {
        let (node, _) = self.named(name)?;
        self.reports.get(&node)?.1.get(&shard).copied()
    }

    /// Whether a node has said that it has all of a shard's records but those of the last second.
    pub fn is_caught_up(&self, shard: Shard, name: &str) -> bool {
        self.lag(shard, name) == Some(0)
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
            Entry::Join(Incarnation(4), member("c", (0, 1))),
            Entry::Join(Incarnation(4), member("c", (2, 3))),
        ];
        assert_eq!(counts(&mut members, &entries), [true, false, true, true, false, false, true]);
        assert!(members.is_mixed());
    }

    #[test]
    fn a_node_that_drains_or_has_gone_is_no_candidate_and_one_started_again_counts_once() {
        let mut members = two();
        let again = Incarnation(3);
        let entries = [
            Entry::Drain(A, true),
            Entry::Drain(A, true),
            Entry::Join(again, member("b", (0, 2))),
            Entry::Leave(B),
            Entry::Join(B, member("b", (0, 2))),
            Entry::Join(again, member("b", (0, 2))),
        ];
        assert_eq!(counts(&mut members, &entries), [true, false, false, true, false, true]);
        let names = |members: &Members| {
            members.candidates().into_iter().map(|node| node.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&members), ["b"]);
        assert_eq!(members.coordinator(), Some(A));
        assert_eq!(
            counts(&mut members, &[Entry::Drain(A, false), Entry::Leave(again)]),
            [true, true]
        );
        assert_eq!(names(&members), ["a"]);
    }

    #[test]
    fn the_first_program_decides_the_level_of_a_cluster_that_holds_nothing() {
        let mut members = Members::default();
        let entries = [
            Entry::Join(A, member("a", (2, 3))),
            Entry::Join(B, member("b", (0, 1))),
            Entry::Leave(A),
            Entry::Join(B, member("b", (0, 1))),
        ];
        assert_eq!(counts(&mut members, &entries), [true, false, true, false]);
        let refusal = members.refusal(B, &member("b", (0, 1)));
        assert_eq!(refusal, Some(Refusal::Level { level: 2, levels: (0, 1) }));
    }

    #[test]
    fn a_report_counts_in_its_order_and_ends_with_its_node() {
        let mut members = two();
        let lags = |lag| BTreeMap::from([(Shard(1), lag)]);
        let entries = [Entry::Report(A, 2, lags(0)), Entry::Report(A, 1, lags(9))];
        assert_eq!(counts(&mut members, &entries), [true, false]);
        assert!(members.is_caught_up(Shard(1), "a") && !members.is_caught_up(Shard(1), "b"));
        let entries = [Entry::Expire(A, 0), Entry::Report(A, 3, lags(0))];
        assert_eq!(counts(&mut members, &entries), [true, false]);
        assert_eq!(members.lag(Shard(1), "a"), None);
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
