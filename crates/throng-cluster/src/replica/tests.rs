//! Owners that take a log from each other, in a network that loses, delays and repeats, from seeds.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::*;
use crate::guard::OUT;
use crate::record::{Chain, Record};

const NODES: usize = 3;
const STEPS: usize = 2_000;

/// A log, and nodes that want it.
struct World {
    random: fastrand::Rng,
    /// Whether the log checks the end that an append expects.
    is_conditional: bool,
    log: Vec<Bytes>,
    /// States of a reader before the first record and after each.
    tails: Vec<Tail>,
    /// Position of each payload that counts.
    counted: HashMap<u64, Position>,
    /// Greatest position that was published in each epoch.
    published: BTreeMap<u64, Position>,
    lost: HashSet<u64>,
    nodes: Vec<Node>,
    /// Appends that will arrive at any time, after their author was told that their outcome is unknown.
    strays: Vec<(Bytes, Option<Position>)>,
    payloads: u64,
    incarnations: u128,
    numbers: Numbers,
}

#[derive(Debug, Default)]
struct Numbers {
    serves: u64,
    published: u64,
    lost: u64,
    deposed: u64,
    handed_over: u64,
    noise: u64,
}

struct Node {
    replica: Replica,
    /// Number of records that were published and applied.
    history: u64,
    /// Appends under way to the log, in order.
    appends: VecDeque<(Ticket, Bytes, Option<Position>)>,
    /// Answers under way.
    outcomes: Vec<(Ticket, Result<Position, AppendError>)>,
    asks_end: bool,
    reads_to: Position,
    payloads: HashMap<Ticket, u64>,
    has_left: bool,
    me: Incarnation,
    /// Whether it has served since it left last, and whether another node was the owner since.
    serves: bool,
    is_taken_over: bool,
}

impl Node {
    fn new(me: u128, at: usize, tail: Tail) -> Node {
        Node {
            replica: {
                let mut replica = Replica::new(Incarnation(me), 0, Position(at as u64), tail);
                replica.claim();
                replica
            },
            history: tail.number,
            appends: VecDeque::new(),
            outcomes: Vec::new(),
            asks_end: false,
            reads_to: Position(0),
            payloads: HashMap::new(),
            has_left: false,
            me: Incarnation(me),
            serves: false,
            is_taken_over: false,
        }
    }
}

impl World {
    fn new(seed: u64, is_conditional: bool) -> World {
        World {
            random: fastrand::Rng::with_seed(seed),
            is_conditional,
            log: Vec::new(),
            tails: vec![Tail::default()],
            counted: HashMap::new(),
            published: BTreeMap::new(),
            lost: HashSet::new(),
            nodes: (1..=NODES).map(|me| Node::new(me as u128, 0, Tail::default())).collect(),
            strays: Vec::new(),
            payloads: 0,
            incarnations: NODES as u128,
            numbers: Numbers::default(),
        }
    }

    /// Makes steps, and returns the first promise that was broken.
    fn run(mut self) -> Result<Numbers, String> {
        for _ in 0..STEPS {
            let index = self.random.usize(..NODES);
            self.step(index)?;
            self.follow(index)?;
        }
        // Without further faults somebody becomes the owner.
        for _ in 0..STEPS {
            if self.nodes.iter().any(|node| node.replica.has_room()) {
                return Ok(self.numbers);
            }
            for index in 0..NODES {
                self.restart_if_left(index);
                self.arrive(index, Fault::None)?;
                self.answer(index, true);
                self.follow(index)?;
            }
        }
        Err("nobody serves".into())
    }

    fn step(&mut self, index: usize) -> Result<(), String> {
        match self.random.u32(..100) {
            0..30 => self.append(index),
            30..55 => {
                let fault = match self.random.u32(..40) {
                    0 => Fault::RequestLost,
                    1 => Fault::AnswerLost,
                    2 => Fault::Delayed,
                    3 => Fault::Repeated,
                    _ => Fault::None,
                };
                self.arrive(index, fault)?;
            }
            55..95 => {
                let is_exact = self.random.u32(..3) > 0;
                self.answer(index, is_exact);
            }
            95..98 if !self.strays.is_empty() => {
                let stray = self.random.usize(..self.strays.len());
                let (record, after) = self.strays.swap_remove(stray);
                let _stored = self.store(record, after)?;
            }
            98 => {
                let node = &mut self.nodes[index];
                if self.random.u32(..4) == 0 {
                    node.replica.hand_over(Incarnation(1), 0);
                }
            }
            99 if self.random.u32(..6) == 0 => self.crash(index),
            _ => self.restart_if_left(index),
        }
        Ok(())
    }

    fn append(&mut self, index: usize) {
        let payload = self.payloads.to_le_bytes();
        let body: &[&[u8]] = &[&payload];
        let (kind, count) = (RecordKind::Changes, 1);
        let entry = Entry { kind, level: 0, first: 0, count, time: 0, body };
        let node = &mut self.nodes[index];
        if let Some((ticket, ..)) = node.replica.append(&entry) {
            node.payloads.insert(ticket, self.payloads);
            self.payloads += 1;
        }
    }

    /// Lets the first append under way reach the log.
    fn arrive(&mut self, index: usize, fault: Fault) -> Result<(), String> {
        let Some((ticket, record, after)) = self.nodes[index].appends.pop_front() else {
            return Ok(());
        };
        let outcome = match fault {
            Fault::RequestLost => Err(AppendError::Unknown),
            Fault::Delayed => {
                self.strays.push((record, after));
                Err(AppendError::Unknown)
            }
            Fault::AnswerLost => {
                let _ = self.store(record, after)?;
                Err(AppendError::Unknown)
            }
            Fault::Repeated => {
                self.strays.push((record.clone(), after));
                self.store(record, after)?
            }
            Fault::None => self.store(record, after)?,
        };
        self.nodes[index].outcomes.push((ticket, outcome));
        Ok(())
    }

    fn store(
        &mut self,
        record: Bytes,
        after: Option<Position>,
    ) -> Result<Result<Position, AppendError>, String> {
        let end = Position(self.log.len() as u64);
        if self.is_conditional && after.is_some_and(|after| after != end) {
            return Ok(Err(AppendError::Refused));
        }
        let mut tail = self.tails[self.log.len()];
        match tail.read(0, &record) {
            Verdict::Counts(Record { header, body }) if header.kind == RecordKind::Changes => {
                let payload = u64::from_le_bytes(body.try_into().expect("a payload"));
                if self.lost.contains(&payload) {
                    return Err(format!("{payload} was given up, and counts"));
                }
                self.counted.insert(payload, end.next());
            }
            Verdict::Counts(_) => {}
            _ => self.numbers.noise += 1,
        }
        self.log.push(record);
        self.tails.push(tail);
        Ok(Ok(end.next()))
    }

    /// Lets an answer or a record reach a node. The end of the log may be old.
    fn answer(&mut self, index: usize, is_exact: bool) {
        let end = self.log.len() as u64;
        let node = &mut self.nodes[index];
        if !node.outcomes.is_empty() && self.random.bool() {
            let outcome = self.random.usize(..node.outcomes.len());
            let (ticket, outcome) = node.outcomes.swap_remove(outcome);
            node.replica.appended(ticket, outcome);
        } else if node.asks_end {
            node.asks_end = false;
            node.replica.found_end(Position(if is_exact { end } else { self.random.u64(..=end) }));
        } else {
            let (Position(at), _) = node.replica.known();
            // A reader may be ahead of what was asked for.
            if at < end && (at < node.reads_to.0 || self.random.u32(..20) == 0) {
                node.replica.read(Position(at + 1), &self.log[at as usize]);
            }
        }
    }

    /// Does what the owner of a node asks for, and checks what it says.
    fn follow(&mut self, index: usize) -> Result<(), String> {
        while let Some(effect) = self.nodes[index].replica.effect() {
            let node = &mut self.nodes[index];
            match effect {
                Effect::Append { ticket, record, after } => {
                    node.appends.push_back((ticket, record, after));
                }
                Effect::FindEnd => node.asks_end = true,
                Effect::Read(end) => node.reads_to = node.reads_to.max(end),
                Effect::Serve => {
                    self.numbers.serves += 1;
                    let (at, tail) = node.replica.known();
                    if node.is_taken_over {
                        return Err(format!("an owner serves on behind another one, at {at:?}"));
                    }
                    node.serves = true;
                    if node.history != tail.number {
                        return Err(format!(
                            "an owner has {} of {} records",
                            node.history, tail.number
                        ));
                    }
                    if self.tails[at.0 as usize] != tail {
                        return Err(format!("an owner has another state at {at:?} than readers"));
                    }
                    // Another owner may have taken over already: then this one will publish nothing.
                    let mut earlier = self.published.range(..tail.epoch);
                    if earlier.any(|(_, position)| *position > at) {
                        return Err(format!(
                            "an owner serves from {at:?}, before what was published"
                        ));
                    }
                }
                Effect::Apply { at, tail, .. } => {
                    let is_of_other = tail.owner.is_some_and(|owner| owner != node.me);
                    node.is_taken_over |= node.serves && is_of_other;
                    node.history += 1;
                    if self.tails[at.0 as usize] != tail || node.history != tail.number {
                        return Err(format!(
                            "record {} was applied after {}",
                            tail.number,
                            node.history - 1
                        ));
                    }
                }
                Effect::Publish { ticket, at, tail } => {
                    if self.tails[at.0 as usize] != tail {
                        return Err(format!("record {} was published at {at:?}", tail.number));
                    }
                    node.history += 1;
                    self.numbers.published += 1;
                    let Some(payload) = node.payloads.remove(&ticket) else { continue };
                    let Some(position) = self.counted.get(&payload) else {
                        return Err(format!("{payload} was published, and does not count"));
                    };
                    let (_, tail) = node.replica.known();
                    let published = self.published.entry(tail.epoch).or_default();
                    *published = (*published).max(*position);
                }
                Effect::Lose(ticket) => {
                    self.numbers.lost += 1;
                    let Some(payload) = node.payloads.remove(&ticket) else { continue };
                    if self.counted.contains_key(&payload) {
                        return Err(format!("{payload} was given up, and counts"));
                    }
                    self.lost.insert(payload);
                }
                Effect::Doubt(_) => return Err("the log loses nothing here".into()),
                Effect::Leave(reason) => {
                    (node.has_left, node.serves, node.is_taken_over) = (true, false, false);
                    match reason {
                        Reason::Deposed => self.numbers.deposed += 1,
                        Reason::HandedOver => self.numbers.handed_over += 1,
                        other => return Err(format!("a node left: {other:?}")),
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a node, whose appends under way may arrive at any time, and starts another one, which has read a
    /// part of the log.
    fn crash(&mut self, index: usize) {
        self.incarnations += 1;
        let at = self.random.usize(..=self.log.len());
        let node = Node::new(self.incarnations, at, self.tails[at]);
        let gone = std::mem::replace(&mut self.nodes[index], node);
        self.strays.extend(gone.appends.into_iter().map(|(_, record, after)| (record, after)));
    }

    fn restart_if_left(&mut self, index: usize) {
        if self.nodes[index].has_left {
            self.crash(index);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    RequestLost,
    AnswerLost,
    /// The append arrives later, after its author has given up waiting.
    Delayed,
    /// The append arrives, and later once more.
    Repeated,
}

/// Runs worlds from seeds, and returns the first promise that one broke.
fn broken(seeds: u64) -> Option<String> {
    (0..seeds).find_map(|seed| World::new(seed, seed % 2 == 0).run().err())
}

#[test]
fn what_is_published_counts_and_what_is_given_up_does_not() {
    let seeds =
        std::env::var("THRONG_REPLICA_SEEDS").map_or(400, |seeds| seeds.parse().expect("a number"));
    let mut all = Numbers::default();
    for seed in 0..seeds {
        let run = World::new(seed, seed % 2 == 0).run();
        let Numbers { serves, published, lost, deposed, handed_over, noise } =
            run.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        all.serves += serves;
        all.published += published;
        all.lost += lost;
        all.deposed += deposed;
        all.handed_over += handed_over;
        all.noise += noise;
    }
    let Numbers { serves, published, lost, deposed, handed_over, noise } = all;
    // Each kind of event is there in numbers.
    assert!(serves > 2_000 && published > 10_000 && lost > 5_000, "{all:?}");
    assert!(deposed > 500 && handed_over > 50 && noise > 1_000, "{all:?}");
}

#[test]
fn without_any_of_its_guards_the_protocol_breaks_a_promise() {
    let guards = [
        Guard::RecordFollows,
        Guard::PositionFits,
        Guard::LaterAcksVoid,
        Guard::ClaimIsRead,
        Guard::ClaimsAgain,
        Guard::TakeoverLeaves,
    ];
    for guard in guards {
        OUT.set(Some(guard));
        let broken = broken(2_000);
        OUT.set(None);
        assert!(broken.is_some(), "{guard:?}");
    }
}

#[test]
fn a_log_that_goes_back_is_noticed_by_the_next_claim() {
    let mut replica = Replica::new(Incarnation(1), 0, Position(7), Tail::default());
    replica.claim();
    assert_eq!(replica.effect(), Some(Effect::FindEnd));
    replica.found_end(Position(3));
    assert_eq!(replica.effect(), Some(Effect::Read(Position(3))));
    let Some(Effect::Append { ticket, after: None, .. }) = replica.effect() else {
        panic!("an old end is no reason to wait")
    };
    replica.appended(ticket, Ok(Position(5)));
    let left = Effect::Leave(Reason::LogLost(Position(7), Position(5)));
    assert_eq!(replica.effect(), Some(left));
}

#[test]
fn a_replica_stops_before_a_record_that_it_is_too_old_for() {
    let (owner, chain) = (Incarnation(2), Chain::default());
    let header = Header {
        kind: RecordKind::Epoch,
        level: 1,
        epoch: 1,
        number: 1,
        chain,
        owner,
        first: 0,
        count: 1,
        time: 0,
    };
    let mut replica = Replica::new(Incarnation(1), 0, Position(0), Tail::default());
    replica.read(Position(1), &header.encode([]));
    assert_eq!(replica.effect(), Some(Effect::Leave(Reason::Beyond(1))));
    replica.claim();
    assert_eq!((replica.effect(), replica.known().0), (None, Position(0)));
}

/// Returns a replica that is the owner of an empty log but for its epoch.
fn owner() -> Replica {
    let mut replica = Replica::new(Incarnation(1), 0, Position(0), Tail::default());
    replica.claim();
    replica.found_end(Position(0));
    let appended = std::iter::from_fn(|| replica.effect()).find_map(|effect| match effect {
        Effect::Append { ticket, record, .. } => Some((ticket, record)),
        _ => None,
    });
    let (ticket, record) = appended.expect("it claims");
    replica.appended(ticket, Ok(Position(1)));
    replica.read(Position(1), &record);
    assert!(replica.has_room());
    while replica.effect().is_some() {}
    replica
}

#[test]
fn a_handover_that_is_lost_is_no_loss_of_the_caller() {
    let mut replica = owner();
    assert!(replica.hand_over(Incarnation(2), 0));
    let Some(Effect::Append { ticket, .. }) = replica.effect() else { panic!("it is appended") };
    replica.appended(ticket, Err(AppendError::Refused));
    replica.found_end(Position(1));
    let mut effects = std::iter::from_fn(|| replica.effect());
    let claim = effects.find_map(|effect| match effect {
        Effect::Append { ticket, record, .. } => Some((ticket, record)),
        _ => None,
    });
    let (ticket, record) = claim.expect("it claims again");
    replica.appended(ticket, Ok(Position(2)));
    replica.read(Position(2), &record);
    let effects: Vec<Effect> = std::iter::from_fn(|| replica.effect()).collect();
    assert!(
        matches!(effects[..], [Effect::Read(_), Effect::Apply { .. }, Effect::Serve]),
        "{effects:?}"
    );
}

#[test]
fn a_gap_in_what_is_read_stops_a_replica() {
    let mut replica = owner();
    replica.read(Position(3), &Bytes::new());
    let gap = Reason::Gap(Position(2), Position(3));
    assert_eq!(replica.effect(), Some(Effect::Leave(gap)));
    assert!(!replica.has_room());
}
