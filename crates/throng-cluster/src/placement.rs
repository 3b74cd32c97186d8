//! [`place`]: which nodes have which shards; [`next_moves`]: how a cluster gets there, some shards at a time.
//!
//! ```text
//!             rendezvous: each node draws a number for each shard; the highest draws come first
//! shard 17    b 0.93   a 0.71   d 0.40   c 0.08
//!             owner    standby                      unless b has its fair share and a seventh already
//! ```
//!
//! 1. A node that comes or goes moves the shards that it wins or loses, and few others.
//! 2. No node has more than [`LOAD_MAX`] times its share by weight, rounded up, of owners, nor of all copies.
//! 3. The copies of a shard are on different nodes, and in different zones where there are enough.
//! 4. A shard moves only to a node that has all of its records, so that no owner begins cold.

use std::collections::BTreeMap;
use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// Number of a shard.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Shard(pub u16);

/// Name of a node, which it keeps when it is started again.
pub type NodeName = String;

/// A node that may have shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the node.
    pub name: NodeName,
    /// Part of the installation that fails as a whole.
    pub zone: String,
    /// Share of the load that the node takes, in relation to those of others; not 0.
    pub weight: u32,
}

/// The nodes of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// The node that appends to the shard's log.
    pub owner: NodeName,
    /// The nodes that apply the log, the first of which would be the next owner.
    pub standbys: Vec<NodeName>,
}

impl Copies {
    fn all(&self) -> impl Iterator<Item = &NodeName> {
        [&self.owner].into_iter().chain(&self.standbys)
    }

    /// Makes a node the owner, and the owner the first standby.
    pub(crate) fn hand_over(&mut self, node: &str) {
        self.standbys.retain(|standby| standby != node);
        let before = std::mem::replace(&mut self.owner, node.to_owned());
        self.standbys.insert(0, before);
    }

    fn has(&self, node: &str) -> bool {
        self.all().any(|name| name == node)
    }
}

/// Greatest ratio of a node's load to its fair share.
pub const LOAD_MAX: f64 = 1.15;

/// Returns the nodes that each shard should have: an owner and some standbys, as far as there are nodes. Empty
/// without candidates.
pub fn place(shards: u16, standbys: usize, candidates: &[Candidate]) -> BTreeMap<Shard, Copies> {
    let copies = (standbys + 1).min(candidates.len());
    if copies == 0 {
        return BTreeMap::new();
    }
    let all: f64 = candidates.iter().map(|node| f64::from(node.weight)).sum();
    let bound = |node: &Candidate, copies: usize| {
        let share = f64::from(shards) * copies as f64 * f64::from(node.weight) / all;
        ((share * LOAD_MAX).ceil() as usize).max(1)
    };
    // Owners, and copies of all kinds.
    let mut load: Vec<[usize; 2]> = vec![[0; 2]; candidates.len()];
    let mut placed = BTreeMap::new();
    for shard in (0..shards).map(Shard) {
        let draws: Vec<f64> = candidates.iter().map(|node| draw(shard, node)).collect();
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by(|a, b| draws[*b].total_cmp(&draws[*a]));
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < copies {
            let is_owner = chosen.is_empty();
            let is_new_zone = |index: &usize| {
                chosen.iter().all(|other| candidates[*other].zone != candidates[*index].zone)
            };
            let has_room = |index: &usize| {
                let node = &candidates[*index];
                load[*index][1] < bound(node, copies)
                    && (!is_owner || load[*index][0] < bound(node, 1))
            };
            let free = || order.iter().filter(|index| !chosen.contains(index));
            // A bound gives way before a copy is missing, and a zone gives way before a bound.
            let next = free().find(|index| is_new_zone(index) && has_room(index));
            let next = next.or_else(|| free().find(|index| has_room(index)));
            let Some(next) = next.or_else(|| free().next()).copied() else { break };
            load[next][1] += 1;
            load[next][0] += usize::from(is_owner);
            chosen.push(next);
        }
        let name = |index: &usize| candidates[*index].name.clone();
        let [owner, rest @ ..] = chosen.as_slice() else { continue };
        placed.insert(
            shard,
            Copies { owner: name(owner), standbys: rest.iter().map(name).collect() },
        );
    }
    placed
}

/// A node's draw for a shard: the higher, the sooner the node has it. Draws of a heavier node are higher.
fn draw(shard: Shard, node: &Candidate) -> f64 {
    let mut hasher = SipHasher13::new();
    hasher.write(node.name.as_bytes());
    hasher.write_u16(shard.0.to_le());
    // In (0, 1).
    let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    f64::from(node.weight) / -uniform.ln()
}

/// Change of the nodes of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// A node begins to copy the shard.
    Add(Shard, NodeName),
    /// A standby that has all records becomes the owner, and the owner a standby.
    HandOver(Shard, NodeName),
    /// A standby drops its copy.
    Drop(Shard, NodeName),
}

impl Move {
    /// Makes the move.
    pub fn apply(&self, plan: &mut BTreeMap<Shard, Copies>) {
        let (Move::Add(shard, node) | Move::HandOver(shard, node) | Move::Drop(shard, node)) = self;
        let Some(copies) = plan.get_mut(shard) else { return };
        match self {
            Move::Add(..) => copies.standbys.push(node.clone()),
            Move::HandOver(..) => copies.hand_over(node),
            Move::Drop(..) => copies.standbys.retain(|standby| standby != node),
        }
    }
}

/// Number of shards in motion at the same time, at most: of each node, and of all.
pub const MOTION_MAX: (usize, usize) = (2, 8);

/// Returns the next moves from the nodes that shards have to those that they should have. `is_caught_up` says whether
/// a standby has all records of a shard.
///
/// A shard is in motion while it has a copy too many: one is added, then another is dropped. A shard with too few
/// copies is not counted, and does not wait for others.
pub fn next_moves(
    present: &BTreeMap<Shard, Copies>,
    wanted: &BTreeMap<Shard, Copies>,
    is_caught_up: impl Fn(Shard, &str) -> bool,
) -> Vec<Move> {
    let mut moves = Vec::new();
    let mut motion = Motion::default();
    let pairs =
        || present.iter().filter_map(|(shard, has)| Some((*shard, has, wanted.get(shard)?)));
    for (shard, has, should) in pairs() {
        let is_moving = has.all().count() > should.all().count();
        if is_moving {
            motion.count(has.all());
        }
        if is_moving || should.all().all(|node| has.has(node)) {
            moves.extend(progress(shard, has, should, &is_caught_up));
        }
    }
    for (shard, has, should) in pairs() {
        let (copies, enough) = (has.all().count(), should.all().count());
        let Some(missing) = should.all().find(|node| !has.has(node)) else { continue };
        if copies < enough || copies == enough && motion.has_room(has.all().chain([missing])) {
            if copies == enough {
                motion.count(has.all().chain([missing]));
            }
            moves.push(Move::Add(shard, missing.clone()));
        }
    }
    moves
}

/// Returns the next move of a shard that has all copies that it needs for it.
fn progress(
    shard: Shard,
    has: &Copies,
    should: &Copies,
    is_caught_up: &impl Fn(Shard, &str) -> bool,
) -> Option<Move> {
    if has.owner != should.owner && has.has(&should.owner) {
        let is_ready = is_caught_up(shard, &should.owner);
        return is_ready.then(|| Move::HandOver(shard, should.owner.clone()));
    }
    let stays = |node: &&NodeName| should.has(node);
    let are_ready = has.standbys.iter().filter(stays).all(|node| is_caught_up(shard, node));
    let surplus = has.standbys.iter().find(|node| !stays(node)).filter(|_| are_ready)?;
    Some(Move::Drop(shard, surplus.clone()))
}

/// Number of shards in motion, of each node and of all.
#[derive(Debug, Default)]
struct Motion {
    of: BTreeMap<NodeName, usize>,
    all: usize,
}

impl Motion {
    fn count<'n>(&mut self, nodes: impl Iterator<Item = &'n NodeName>) {
        self.all += 1;
        nodes.for_each(|node| *self.of.entry(node.clone()).or_default() += 1);
    }

    fn has_room<'n>(&self, mut nodes: impl Iterator<Item = &'n NodeName>) -> bool {
        let is_free = |node| self.of.get(node).is_none_or(|moving| *moving < MOTION_MAX.0);
        self.all < MOTION_MAX.1 && nodes.all(is_free)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const SHARDS: u16 = 64;

    fn candidates(nodes: u32, zones: u32, weight: impl Fn(u32) -> u32) -> Vec<Candidate> {
        let candidate = |node| Candidate {
            name: format!("n{node}"),
            zone: format!("z{}", node % zones),
            weight: weight(node),
        };
        (0..nodes).map(candidate).collect()
    }

    fn owners(placed: &BTreeMap<Shard, Copies>) -> BTreeMap<&str, usize> {
        placed.values().fold(BTreeMap::new(), |mut owners, copies| {
            *owners.entry(copies.owner.as_str()).or_default() += 1;
            owners
        })
    }

    #[test]
    fn each_shard_has_its_copies_on_different_nodes_and_zones_within_the_bound() {
        for nodes in 1..12 {
            let candidates = candidates(nodes, 3, |_| 1);
            let placed = place(SHARDS, 1, &candidates);
            assert_eq!(placed.len(), usize::from(SHARDS));
            let bound = (f64::from(SHARDS) / f64::from(nodes) * LOAD_MAX).ceil() as usize;
            assert!(owners(&placed).values().all(|shards| *shards <= bound), "{nodes}");
            let zone = |node: &str| {
                candidates.iter().find(|known| known.name == node).map(|node| &node.zone)
            };
            for copies in placed.values() {
                assert_eq!(copies.standbys.len(), usize::from(nodes > 1));
                let mut standbys = copies.standbys.iter();
                assert!(standbys.all(|standby| zone(standby) != zone(&copies.owner)), "{nodes}");
            }
        }
        assert!(place(SHARDS, 1, &[]).is_empty());
    }

    #[test]
    fn a_heavier_node_has_more_shards() {
        let candidates = candidates(4, 4, |node| if node == 0 { 3 } else { 1 });
        let owners = place(SHARDS, 1, &candidates);
        let owners = self::owners(&owners);
        assert!((25..=37).contains(&owners["n0"]), "{owners:?}");
    }

    #[test]
    fn a_node_that_comes_moves_little_more_than_its_share() {
        for nodes in 3..12 {
            let all = candidates(nodes + 1, nodes + 1, |_| 1);
            let before = place(512, 1, &all[..nodes as usize]);
            let after = place(512, 1, &all);
            let moved =
                before.iter().filter(|(shard, copies)| after[shard].owner != copies.owner).count();
            let share = 512 / (nodes as usize + 1);
            assert!(moved <= 2 * share, "{nodes}: {moved} of {share}");
        }
    }

    /// Makes moves until there are none, and returns the number of rounds.
    fn move_all(
        mut present: BTreeMap<Shard, Copies>,
        wanted: &BTreeMap<Shard, Copies>,
        seed: u64,
    ) -> usize {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut caught_up: BTreeSet<(Shard, NodeName)> = BTreeSet::new();
        for (shard, copies) in &present {
            caught_up.extend(copies.all().map(|node| (*shard, node.clone())));
        }
        for round in 0..10_000 {
            let is_caught_up = |shard, node: &str| caught_up.contains(&(shard, node.to_owned()));
            let moves = next_moves(&present, wanted, is_caught_up);
            let lacking: Vec<(Shard, NodeName)> = present
                .iter()
                .flat_map(|(shard, copies)| copies.all().map(|node| (*shard, node.clone())))
                .filter(|copy| !caught_up.contains(copy))
                .collect();
            if moves.is_empty() && lacking.is_empty() {
                assert_eq!(sorted(&present), sorted(wanted));
                return round;
            }
            let moving = |present: &BTreeMap<Shard, Copies>| {
                let is_moving = |(shard, copies): &(&Shard, &Copies)| {
                    copies.all().count() > wanted[shard].all().count()
                };
                present.iter().filter(is_moving).count()
            };
            let before = moving(&present);
            for step in moves {
                match step {
                    Move::Add(shard, node) => {
                        present.get_mut(&shard).expect("is there").standbys.push(node)
                    }
                    Move::HandOver(shard, node) => {
                        assert!(
                            caught_up.contains(&(shard, node.clone())),
                            "{shard:?} begins cold"
                        );
                        let copies = present.get_mut(&shard).expect("is there");
                        copies.standbys.retain(|standby| *standby != node);
                        let before = std::mem::replace(&mut copies.owner, node);
                        copies.standbys.insert(0, before);
                    }
                    Move::Drop(shard, node) => {
                        let copies = present.get_mut(&shard).expect("is there");
                        copies.standbys.retain(|standby| *standby != node);
                        caught_up.remove(&(shard, node));
                        let left = copies
                            .all()
                            .filter(|node| caught_up.contains(&(shard, (*node).clone())));
                        assert!(
                            left.count() >= wanted[&shard].all().count(),
                            "{shard:?} lost its copies"
                        );
                    }
                }
            }
            assert!(moving(&present) <= before.max(MOTION_MAX.1));
            caught_up.extend(lacking.into_iter().filter(|_| random.bool()));
        }
        panic!("the moves do not end")
    }

    fn sorted(placed: &BTreeMap<Shard, Copies>) -> BTreeMap<Shard, Copies> {
        let mut placed = placed.clone();
        placed.values_mut().for_each(|copies| copies.standbys.sort());
        placed
    }

    proptest! {
        #[test]
        fn moves_end_where_shards_should_be_and_no_owner_begins_cold(
            before in 1..7u32, after in 1..7u32, skip in 0..3u32, standbys in 0..3usize, seed in any::<u64>()
        ) {
            let all = candidates(12, 3, |_| 1);
            let wanted = place(SHARDS, standbys, &all[skip as usize..(skip + after) as usize]);
            let present = place(SHARDS, standbys, &all[..before as usize]);
            move_all(present, &wanted, seed);
        }
    }
}
