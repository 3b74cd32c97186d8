//! Nodes on one control log, in a network that loses, delays and repeats, on machines that stop, from seeds.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use super::*;
use crate::guard::{Guard, OUT};
use crate::placement::Copies;

const NODES: usize = 4;
/// Time between two steps, in milliseconds.
const STEP: u64 = 20;
const FAULTS_END: u64 = 40_000;
const END: u64 = 70_000;
const SHARDS: u16 = 8;

/// Faults that a world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    All,
    /// Only the log stops at times, as in an election, and machines do.
    Silences,
}

struct World {
    random: fastrand::Rng,
    faults: Faults,
    /// True time, in milliseconds.
    now: u64,
    log: Vec<(u64, Bytes)>,
    /// Members after all of the log.
    members: Members,
    ended: BTreeSet<Incarnation>,
    /// Entries on their way, with the time of their arrival.
    under_way: Vec<(u64, Bytes)>,
    /// The plan that the author of a plan knew.
    bases: HashMap<Bytes, BTreeMap<Shard, Copies>>,
    stalled_until: u64,
    nodes: Vec<Node>,
    starts: u128,
    numbers: Numbers,
}

#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    expired: u64,
    left: u64,
    refused: u64,
    plans: u64,
    noise: u64,
}

struct Node {
    name: String,
    core: ControlCore,
    /// Speed of its clock in thousandths, and what it showed at the begin.
    clock: (u64, u64),
    stopped_until: u64,
    /// Entries are read with a delay.
    read_delay: u64,
    /// Own entries do not reach the log before.
    cut_until: u64,
    starts_at: Option<u64>,
    acks: Vec<(u64, Position, Position)>,
}

fn member(name: usize) -> Member {
    Member {
        name: format!("n{name}"),
        address: format!("n{name}:1"),
        zone: format!("z{name}"),
        weight: 1,
        levels: (0, 0),
        renewal: 0,
        is_draining: false,
    }
}

fn node(name: usize, me: u128, clock: (u64, u64), now: u64) -> Node {
    let (gather, settle) = (Duration::from_secs(1), Duration::from_secs(10));
    let rules = Rules { shards: SHARDS, gather, settle, ..Rules::default() };
    let from = (Position(0), Members::default());
    let core = ControlCore::new(Incarnation(me), member(name), rules, from, shown(clock, now));
    Node {
        name: format!("n{name}"),
        core,
        clock,
        stopped_until: 0,
        read_delay: 10,
        cut_until: 0,
        starts_at: None,
        acks: Vec::new(),
    }
}

fn shown((speed, begin): (u64, u64), now: u64) -> Duration {
    Duration::from_millis(begin) + Duration::from_micros(now * speed)
}

impl World {
    fn new(seed: u64, faults: Faults) -> World {
        let mut world = World {
            random: fastrand::Rng::with_seed(seed),
            faults,
            now: 0,
            log: Vec::new(),
            members: Members::default(),
            ended: BTreeSet::new(),
            under_way: Vec::new(),
            bases: HashMap::new(),
            stalled_until: 0,
            nodes: Vec::new(),
            starts: 0,
            numbers: Numbers::default(),
        };
        for name in 0..NODES {
            let started = world.start(name);
            world.nodes.push(started);
        }
        world
    }

    fn start(&mut self, name: usize) -> Node {
        self.starts += 1;
        let me = u128::from(self.random.u32(..)) << 32 | self.starts;
        let clock = (self.random.u64(910..=1_000), self.random.u64(..1_000_000));
        // Two nodes have the same name at times, and one of them cannot join.
        let is_namesake = self.faults == Faults::All && self.random.u32(..12) == 0;
        let name =
            if is_namesake && self.now < FAULTS_END { self.random.usize(..NODES) } else { name };
        node(name, me, clock, self.now)
    }

    /// Makes steps, and returns the first promise that was broken.
    fn run(mut self) -> Result<Numbers, String> {
        while self.now < END {
            self.now += STEP;
            let has_faults = self.now < FAULTS_END;
            if has_faults {
                self.fault();
            }
            self.arrive()?;
            for index in 0..NODES {
                self.step_node(index, has_faults)?;
            }
            self.check_leases()?;
        }
        self.check_end()
    }

    fn fault(&mut self) {
        let until = self.now + self.random.u64(500..9_000);
        let is_election = self.random.u32(..800) == 0;
        if is_election && self.now > self.stalled_until + 1_000 {
            self.stalled_until = until;
        }
        let (index, pause) = (self.random.usize(..NODES), self.random.u64(..8_000));
        let node = &mut self.nodes[index];
        match self.random.u32(..600) {
            0 => node.stopped_until = self.now + self.random.u64(500..20_000),
            _ if self.faults == Faults::Silences => {}
            1 => node.read_delay = self.random.u64(..4_000),
            2..5 => node.read_delay = self.random.u64(..300),
            5 => node.cut_until = until,
            6 => node.starts_at = node.starts_at.or(Some(self.now + pause)),
            7 => self.tell(index, Event::Leave),
            _ => {}
        }
    }

    /// Lets entries reach the log, and judges them.
    fn arrive(&mut self) -> Result<(), String> {
        if self.now < self.stalled_until {
            return Ok(());
        }
        self.random.shuffle(&mut self.under_way);
        let now = self.now;
        let arrived: Vec<(u64, Bytes)> =
            self.under_way.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, bytes) in arrived {
            self.store(bytes)?;
        }
        Ok(())
    }

    fn store(&mut self, bytes: Bytes) -> Result<(), String> {
        let before = self.members.plan().clone();
        match self.members.read(&bytes) {
            Some(Entry::Expire(node, _)) => {
                self.numbers.expired += 1;
                self.ended.insert(node);
                let is_well = |other: &Node| {
                    other.core.me() == node && self.now > other.stopped_until + 10_000
                };
                if self.faults == Faults::Silences && self.nodes.iter().any(is_well) {
                    return Err(format!("{node} was expired, and nothing was wrong with it"));
                }
            }
            Some(Entry::Leave(node)) => {
                self.numbers.left += 1;
                self.ended.insert(node);
            }
            Some(Entry::Join(node, _)) if self.ended.contains(&node) => {
                return Err(format!("{node} has ended, and joins"));
            }
            Some(Entry::Plan(number, _)) => {
                self.numbers.plans += 1;
                if self.bases.get(&bytes) != Some(&before) {
                    return Err(format!("plan {number} was made of another plan"));
                }
            }
            None => self.numbers.noise += 1,
            _ => {}
        }
        let names: BTreeSet<_> = self.members.nodes().values().map(|member| &member.name).collect();
        if names.len() != self.members.nodes().len() {
            return Err("two members have the same name".into());
        }
        self.log.push((self.now, bytes));
        Ok(())
    }

    fn step_node(&mut self, index: usize, has_faults: bool) -> Result<(), String> {
        let (now, end) = (self.now, self.log.len() as u64);
        if self.nodes[index].starts_at.is_some_and(|at| now >= at) {
            self.nodes[index] = self.start(index);
        }
        let node = &mut self.nodes[index];
        if !has_faults {
            (node.stopped_until, node.read_delay, node.cut_until) = (0, 10, 0);
        }
        if now < node.stopped_until || node.starts_at.is_some() {
            return Ok(());
        }
        if *node.core.phase() == Phase::CatchingUp {
            // An end may be old.
            let end = self.random.u64(end / 2..=end);
            self.tell(index, Event::End(Position(end)));
        }
        // A node that was stopped may look at its clock before it reads.
        if self.random.bool() {
            self.tell(index, Event::Tick);
        }
        let node = &mut self.nodes[index];
        let acks: Vec<_> = node.acks.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, before, position) in acks {
            self.tell(index, Event::Appended(before, Ok(position)));
        }
        while let node = &self.nodes[index]
            && !matches!(node.core.phase(), Phase::Ended(_))
            && let Position(at) = node.core.at()
            && let Some((stored, bytes)) = self.log.get(at as usize)
            && stored + node.read_delay <= now
        {
            let (position, bytes) = (Position(at + 1), bytes.clone());
            self.tell(index, Event::Read(position, &bytes));
        }
        self.tell(index, Event::Tick);
        self.report(index);
        self.restart_if_ended(index)
    }

    /// Says that copies are caught up, a while after they were planned.
    fn report(&mut self, index: usize) {
        let core = &self.nodes[index].core;
        let Some(me) = core.members().nodes().get(&core.me()) else { return };
        let plan = core.members().plan().clone();
        let name = me.name.clone();
        for (shard, copies) in plan {
            let has = copies.owner == name || copies.standbys.contains(&name);
            if self.random.u32(..20) == 0 {
                let lag = Duration::from_millis(if self.random.u32(..8) == 0 { 3_000 } else { 0 });
                self.tell(index, Event::Report(shard, has.then_some(lag)));
            }
        }
    }

    fn restart_if_ended(&mut self, index: usize) -> Result<(), String> {
        let pause = self.random.u64(..2_000);
        let node = &mut self.nodes[index];
        match node.core.phase() {
            Phase::Ended(Ended::Refused(Refusal::Name { .. })) => self.numbers.refused += 1,
            Phase::Ended(Ended::Left | Ended::Expired) => {}
            Phase::Ended(ended) => return Err(format!("a node ended: {ended}")),
            _ => return Ok(()),
        }
        node.starts_at = node.starts_at.or(Some(self.now + pause));
        Ok(())
    }

    fn tell(&mut self, index: usize, event: Event<'_>) {
        let node = &mut self.nodes[index];
        let entries = node.core.step(shown(node.clock, self.now), event);
        let before = node.core.at();
        for entry in entries {
            let bytes = entry.encode();
            if let Entry::Plan(..) = entry {
                self.bases.insert(bytes.clone(), node.core.members().plan().clone());
            }
            let mut arrives = self.now.max(node.cut_until) + self.random.u64(5..100);
            if self.now < self.stalled_until {
                // Clients find the new leader one after another.
                arrives = arrives.max(self.stalled_until + self.random.u64(..2_000));
            }
            if self.faults == Faults::All && self.now < FAULTS_END {
                match self.random.u32(..100) {
                    0..2 => continue,
                    // It arrives once more, much later.
                    2..5 => {
                        self.under_way.push((arrives + self.random.u64(..20_000), bytes.clone()))
                    }
                    5..7 => {
                        self.under_way.push((arrives + self.random.u64(..8_000), bytes));
                        continue;
                    }
                    _ => {}
                }
            }
            self.under_way.push((arrives, bytes));
            if self.random.u32(..10) > 0 {
                node.acks.push((arrives + 100, before, Position(before.0 + 1)));
            }
        }
    }

    fn check_leases(&self) -> Result<(), String> {
        for node in &self.nodes {
            let believes = shown(node.clock, self.now) < node.core.lease_until();
            if believes && self.ended.contains(&node.core.me()) {
                return Err(format!("{} believes at {}", node.core.me(), self.now));
            }
        }
        Ok(())
    }

    /// Checks that all is well, long after the last fault.
    fn check_end(self) -> Result<Numbers, String> {
        for node in &self.nodes {
            let named = self.members.named(&node.name).map(|(named, _)| named);
            if named.is_some_and(|named| named != node.core.me()) {
                // Another one was faster to take the name.
                continue;
            }
            let behind = node.core.members().plan() != self.members.plan()
                || node.core.members().plans() != self.members.plans()
                || node.core.members().candidates() != self.members.candidates();
            if *node.core.phase() != Phase::Member || behind {
                return Err(format!("{} is {:?}", node.core.me(), node.core.phase()));
            }
            if shown(node.clock, self.now) >= node.core.lease_until() {
                return Err(format!("{} has no lease", node.core.me()));
            }
            let Position(at) = node.core.at();
            let mut members = Members::default();
            self.log[..at as usize].iter().for_each(|(_, bytes)| drop(members.read(bytes)));
            if members != *node.core.members() {
                return Err(format!("{} has other members than the log", node.core.me()));
            }
        }
        let plan = self.members.plan();
        let is_owned = |copies: &Copies| self.members.named(&copies.owner).is_some();
        if plan.len() != usize::from(SHARDS) || !plan.values().all(is_owned) {
            return Err(format!("a shard has no living owner: {plan:?}"));
        }
        Ok(self.numbers)
    }
}

/// Runs worlds from seeds, and returns the first promise that one broke.
fn broken(seeds: u64, faults: Faults) -> Option<String> {
    (0..seeds).find_map(|seed| {
        let broken = World::new(seed, faults).run().err()?;
        Some(format!("seed {seed}: {broken}"))
    })
}

fn seeds() -> u64 {
    std::env::var("THRONG_CONTROL_SEEDS").map_or(60, |seeds| seeds.parse().expect("a number"))
}

#[test]
fn no_node_believes_beyond_its_end_and_all_shards_get_owners_that_live() {
    let mut all = Numbers::default();
    for seed in 0..seeds() {
        let run = World::new(seed, Faults::All).run();
        let one = run.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        all.expired += one.expired;
        all.left += one.left;
        all.refused += one.refused;
        all.plans += one.plans;
        all.noise += one.noise;
    }
    // Each kind of event is there in numbers.
    println!("{all:?}");
    let (least, Numbers { expired, left, refused, plans, noise }) = (seeds(), all);
    assert!(expired > 3 * least && left > least && refused > least / 10, "{all:?}");
    assert!(plans > 5 * least && noise > 10 * least, "{all:?}");
}

#[test]
fn nobody_is_expired_because_the_log_was_silent() {
    assert_eq!(broken(seeds(), Faults::Silences), None);
}

#[test]
fn without_any_of_its_guards_the_control_breaks_a_promise() {
    let guards = [
        (Guard::LeaseCountsFromSending, Faults::All),
        (Guard::ExpiryWaitsLonger, Faults::All),
        (Guard::ExpiryNamesRenewal, Faults::All),
        (Guard::SilenceIsNoDeath, Faults::Silences),
        (Guard::SilenceStartsAnew, Faults::Silences),
        (Guard::PlanFollowsPlan, Faults::All),
        (Guard::NameOnce, Faults::All),
        (Guard::EndIsFinal, Faults::All),
        (Guard::LeaveEndsLease, Faults::All),
    ];
    for (guard, faults) in guards {
        OUT.set(Some(guard));
        let broken = broken(1_000, faults);
        OUT.set(None);
        println!("{guard:?}: {broken:?}");
        assert!(broken.is_some(), "{guard:?}");
    }
}

#[test]
fn a_member_proposes_what_those_before_it_have_not_proposed_in_their_time() {
    // In a cluster of three, of which the first two renew, and propose nothing.
    let clock = (1_000, 0);
    let mut core = node(2, 3, clock, 0).core;
    let mut log: Vec<Bytes> = Vec::new();
    for name in 0..2 {
        log.push(Entry::Join(Incarnation(name + 1), member(name as usize)).encode());
    }
    let joins = core.step(Duration::ZERO, Event::End(Position(0)));
    log.extend(joins.iter().map(Entry::encode));
    let mut proposed_at = None;
    for now in (0..3_000).step_by(20).map(Duration::from_millis) {
        let mut entries = core.step(now, Event::Tick);
        while let Some(bytes) = log.get(core.at().0 as usize) {
            entries.extend(core.step(now, Event::Read(Position(core.at().0 + 1), bytes)));
        }
        for entry in entries {
            if matches!(entry, Entry::Plan(..)) {
                proposed_at = proposed_at.or(Some(now));
            }
            log.push(entry.encode());
        }
    }
    // Two ranks behind the time for nodes to gather.
    assert_eq!(proposed_at, Some(Duration::from_millis(1_000 + 400)));
}
