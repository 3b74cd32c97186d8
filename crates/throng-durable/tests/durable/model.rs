//! Random programs of turns against a plain model.
//!
//! A program is the list of operations that one turn does. The state of an entity is the list of the programs
//! that changed it, so each reply tells on which turns it builds. The model runs the programs of that list on a
//! plain map: the reply has to show the same cells. Replies that left must be prefixes of the list that is on
//! disk in the end, each program is in the list once at most, and:
//!
//! | outcome of a call                 | its program is in the list | its action ran |
//! |-----------------------------------|----------------------------|----------------|
//! | `Ok`                              | yes, if it changes anything| once           |
//! | `NotCommitted`, `Panicked`, `Died`| no                         | never          |
//! | `Unknown`, `TimedOut`; `Died` of a call by the address | yes or no | if it is in the list |
//!
//! `THRONG_MODEL_CASES` is the number of cases, `THRONG_DURABLE_SEED` the seed of the first; the next case has the
//! next seed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::CallError;
use throng::prelude::*;
use throng_durable::{
    Bytes, CellError, CommitError, Durable, DurableContext, Entity, EntityError, Node, Options,
};
use throng_store::Store;
use tokio::task::JoinHandle;

use crate::{BlockedWriter, HANGS_AFTER, begin, number_or, reopen, runtime, stored, until};

const ENTITIES: usize = 3;
const STEPS: usize = 8;
const MAP_BYTES: usize = 2 << 20;

type Cells = BTreeMap<u8, u32>;

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u32),
    Delete(u8),
    /// Puts a cell whose key is too long.
    Misplace,
    /// Puts more than the store has room for.
    Flood,
    Panic,
    /// Lets other processes run.
    Yield,
    /// Leaves an action behind.
    Act,
    /// Adds the program to the state.
    Note,
}

#[derive(Clone, Debug)]
struct Program {
    number: u32,
    ops: Vec<Op>,
    range: (Bound<u8>, Bound<u8>),
}

impl Program {
    fn any(number: u32, random: &mut fastrand::Rng, is_small: bool) -> Program {
        let mut ops = Vec::new();
        for _ in 0..random.usize(..5) {
            ops.push(match random.u8(..10) {
                0..4 => Op::Put(random.u8(..6), random.u32(..)),
                4..6 => Op::Delete(random.u8(..6)),
                6 => Op::Yield,
                _ => Op::Act,
            });
        }
        let is_change = ops.iter().any(|op| matches!(op, Op::Put(..) | Op::Delete(_)));
        if is_change || random.bool() {
            ops.insert(random.usize(..=ops.len()), Op::Note);
        }
        let fault = match random.u8(..24) {
            0 | 1 => Some(Op::Panic),
            2 => Some(Op::Misplace),
            3 if is_small => Some(Op::Flood),
            _ => None,
        };
        if let Some(fault) = fault {
            ops.insert(random.usize(..=ops.len()), fault);
        }
        let mut bound = || match random.u8(..3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(random.u8(..6)),
            _ => Bound::Excluded(random.u8(..6)),
        };
        Program { number, ops, range: (bound(), bound()) }
    }

    fn has(&self, is_wanted: impl Fn(&Op) -> bool) -> bool {
        self.ops.iter().any(is_wanted)
    }

    fn is_read(&self) -> bool {
        !self.has(|op| matches!(op, Op::Note))
    }

    /// Runs the program on the model.
    fn apply(&self, cells: &mut Cells) {
        for op in &self.ops {
            match op {
                Op::Put(key, value) => drop(cells.insert(*key, *value)),
                Op::Delete(key) => drop(cells.remove(key)),
                _ => {}
            }
        }
    }

    /// Whether the cell is within the program's range.
    fn ranges_over(&self, key: u8) -> bool {
        std::ops::RangeBounds::contains(&self.range, &key)
    }
}

/// The numbers of actions that ran, in their order.
type Acted = Arc<Mutex<Vec<u32>>>;

struct Turn {
    program: Arc<Program>,
    acted: Acted,
}
impl Message for Turn {
    type Reply = Result<Seen, CellError>;
}

/// Everything that a turn sees at its end.
#[derive(Clone, Debug)]
struct Seen {
    /// Numbers of the programs on which it builds, and its own.
    turns: Vec<u32>,
    cells: Cells,
    ranged: Cells,
}

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "machine")]
struct Machine {
    turns: Vec<u32>,
}
#[process]
impl Machine {
    #[message]
    fn reveal(&mut self, cx: &mut Context<Self>) -> Address<Machine> {
        cx.address()
    }
}
impl Handle<Turn> for Machine {
    async fn handle(&mut self, turn: Turn, cx: &mut Context<Self>) -> Result<Seen, CellError> {
        let Turn { program, acted } = turn;
        for op in &program.ops {
            match op {
                Op::Put(key, value) => cx.cells::<Bytes, u32>("").put(&[*key], value),
                Op::Delete(key) => cx.cells::<Bytes, u32>("").delete(&[*key]),
                Op::Misplace => cx.cells::<Bytes, u32>("").put(&[0; 1000], &0),
                Op::Flood => {
                    cx.cells::<Bytes, String>("").put(&[u8::MAX], &"f".repeat(2 * MAP_BYTES));
                }
                Op::Panic => panic!("on purpose"),
                Op::Yield => tokio::task::yield_now().await,
                Op::Act => {
                    let (acted, number) = (acted.clone(), program.number);
                    cx.after_commit(move || acted.lock().unwrap().push(number));
                }
                Op::Note => self.turns.push(program.number),
            }
        }
        let mut cells = cx.cells::<Bytes, u32>("");
        let (start, end) = (program.range.0.map(|key| [key]), program.range.1.map(|key| [key]));
        let bounds =
            (start.as_ref().map(|key| key.as_slice()), end.as_ref().map(|key| key.as_slice()));
        let ranged = cells.range(bounds).map(|cell| cell.map(|(key, value)| (key[0], value)));
        let ranged = ranged.collect::<Result<_, _>>()?;
        let mut all = Cells::new();
        for key in 0..6 {
            if let Some(value) = cells.get(&[key])? {
                all.insert(key, value);
            }
        }
        Ok(Seen { turns: self.turns.clone(), cells: all, ranged })
    }
}

/// The fate of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Kept,
    NotKept,
    Open,
}

type Outcome = Result<Result<Seen, CellError>, EntityError>;

/// A program under way.
struct Sent {
    entity: usize,
    program: Arc<Program>,
    by_address: bool,
    /// `None` if it was sent without a caller.
    call: Option<JoinHandle<Outcome>>,
}

#[derive(Default)]
struct Model {
    programs: BTreeMap<u32, (usize, Arc<Program>)>,
    fates: BTreeMap<u32, Fate>,
    /// The longest list of programs that a reply of each entity showed.
    kept: [Vec<u32>; ENTITIES],
}

impl Model {
    /// Compares a reply with the model, and returns the list of programs on which it builds.
    fn check_seen(&mut self, entity: usize, program: &Program, seen: &Seen) {
        let mut cells = Cells::new();
        for number in &seen.turns {
            let (of, program) = &self.programs[number];
            assert_eq!(*of, entity, "program {number} ran on another entity");
            assert_ne!(
                self.fates.get(number),
                Some(&Fate::NotKept),
                "program {number} was not kept"
            );
            program.apply(&mut cells);
        }
        assert_eq!(seen.turns.iter().collect::<BTreeSet<_>>().len(), seen.turns.len(), "{seen:?}");
        assert_eq!(seen.turns.last() == Some(&program.number), !program.is_read(), "{seen:?}");
        assert_eq!(seen.cells, cells, "{program:?} {:?}", seen.turns);
        cells.retain(|key, _| program.ranges_over(*key));
        assert_eq!(seen.ranged, cells, "{program:?}");
        let kept = &mut self.kept[entity];
        let (shorter, longer) = match kept.len() < seen.turns.len() {
            true => (&*kept, &seen.turns),
            false => (&seen.turns, &*kept),
        };
        assert_eq!(
            shorter[..],
            longer[..shorter.len()],
            "a reply showed turns that were taken back"
        );
        *kept = longer.clone();
    }

    /// Notes the outcome of a program. `is_disturbed` tells whether its process may have been killed.
    async fn note(&mut self, sent: Sent, is_disturbed: bool) {
        let Sent { entity, program, by_address, call } = sent;
        let Some(call) = call else { return };
        let fate = match call.await.unwrap() {
            Ok(seen) => {
                self.check_seen(entity, &program, &seen.unwrap());
                let fault = |op: &Op| matches!(op, Op::Panic | Op::Misplace | Op::Flood);
                assert!(!program.has(fault), "{program:?} came through");
                Fate::Kept
            }
            Err(EntityError::Panicked(_)) => {
                assert!(program.has(|op| matches!(op, Op::Panic)), "{program:?}");
                Fate::NotKept
            }
            Err(EntityError::NotCommitted(CommitError::Cell(_))) => {
                assert!(program.has(|op| matches!(op, Op::Misplace)), "{program:?}");
                Fate::NotKept
            }
            Err(EntityError::NotCommitted(_)) => Fate::NotKept,
            Err(EntityError::Died) if by_address => Fate::Open,
            Err(EntityError::Died) => {
                assert!(is_disturbed, "nobody killed the process of {program:?}");
                Fate::NotKept
            }
            Err(EntityError::Unknown(_) | EntityError::TimedOut { .. }) => Fate::Open,
            Err(error) => panic!("{program:?}: {error}"),
        };
        self.fates.insert(program.number, fate);
    }

    /// Compares the whole run with the lists that are on disk in the end, and with the actions that ran.
    fn check_end(&self, lists: &[Vec<u32>; ENTITIES], acted: &[u32]) {
        for (entity, (kept, list)) in self.kept.iter().zip(lists).enumerate() {
            assert_eq!(kept, list, "entity {entity}");
        }
        let listed: BTreeSet<u32> = lists.iter().flatten().copied().collect();
        let mut times: BTreeMap<u32, usize> = BTreeMap::new();
        acted.iter().for_each(|number| *times.entry(*number).or_default() += 1);
        for (number, (_, program)) in &self.programs {
            let fate = self.fates.get(number).copied().unwrap_or(Fate::Open);
            let is_listed = listed.contains(number);
            match fate {
                Fate::Kept => assert_eq!(is_listed, !program.is_read(), "{program:?}"),
                Fate::NotKept => assert!(!is_listed, "{program:?} is kept"),
                Fate::Open => {}
            }
            let acts = program.ops.iter().filter(|op| matches!(op, Op::Act)).count();
            let ran = times.get(number).copied().unwrap_or(0);
            let is_expected = match fate {
                Fate::Kept => ran == acts,
                Fate::NotKept => ran == 0,
                Fate::Open if is_listed => ran == acts,
                Fate::Open => ran == 0 || (program.is_read() && ran == acts),
            };
            assert!(is_expected, "{program:?} {fate:?}: the action ran {ran} times");
        }
    }
}

/// Prints how to run a failed case again.
struct Replay(u64);
impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: THRONG_MODEL_CASES=1 THRONG_DURABLE_SEED={}", self.0);
        }
    }
}

struct Case {
    random: fastrand::Rng,
    model: Model,
    acted: Acted,
    programs: u32,
    is_small: bool,
}

impl Case {
    fn options(&mut self, path: &Path) -> Options {
        let random = &mut self.random;
        let mut store = Store::options();
        if self.is_small {
            store = store.map_bytes(MAP_BYTES);
        }
        if random.bool() {
            store = store.queue_batches_max(random.usize(1..4));
        }
        let mut options = Node::options(path).store(store);
        if random.bool() {
            options = options.idle_after(Duration::from_millis(1));
        }
        if random.bool() {
            options = options.live_max(random.usize(1..=ENTITIES));
        }
        if random.bool() {
            options = options.live_bytes_max(random.usize(1..2_000));
        }
        options
    }

    /// Sends a program in some way.
    async fn send(
        &mut self,
        entity: &Entity<Machine>,
        index: usize,
        address: Option<Address<Machine>>,
    ) -> Sent {
        self.programs += 1;
        let number = self.programs;
        let program = Arc::new(Program::any(number, &mut self.random, self.is_small));
        self.model.programs.insert(number, (index, program.clone()));
        let turn = Turn { program: program.clone(), acted: self.acted.clone() };
        let mut sent = Sent { entity: index, program, by_address: address.is_some(), call: None };
        let is_call = self.random.u8(..4) > 0;
        match (address, is_call) {
            (None, true) => sent.call = Some(begin(entity.call(turn).within(HANGS_AFTER)).await),
            (None, false) => entity.send(turn).unwrap(),
            (Some(address), true) => {
                let call = address.call(turn).within(HANGS_AFTER);
                let call = async move { call.await.map_err(of_address) };
                sent.call = Some(begin(call).await);
            }
            // The process may have ended.
            (Some(address), false) => drop(address.send(turn)),
        }
        sent
    }

    /// Sends programs without waiting for their ends, then waits for all of them.
    async fn burst(&mut self, node: &Node, length: usize) {
        let blocked = match self.random.u8(..3) {
            0 => BlockedWriter::try_new(node).await,
            _ => None,
        };
        let release_at = self.random.usize(..=length);
        let (mut blocked, mut sent, mut killed) = (blocked, Vec::new(), Vec::new());
        let mut addresses = [None; ENTITIES];
        if blocked.is_none() && self.random.bool() {
            for (index, address) in addresses.iter_mut().enumerate() {
                *address = node.entity::<Machine>(index.to_string()).reveal().await.ok();
            }
        }
        for number in 0..length {
            if number == release_at {
                blocked = None;
            }
            let index = self.random.usize(..ENTITIES);
            let entity = node.entity::<Machine>(index.to_string());
            let address = addresses[index].filter(|_| self.random.u8(..3) == 0);
            if let Some(address) = address
                && self.random.u8(..4) == 0
            {
                address.kill();
                killed.push(address);
            }
            sent.push(self.send(&entity, index, address).await);
        }
        drop(blocked);
        for sent in sent {
            self.model.note(sent, !killed.is_empty()).await;
        }
        for address in killed {
            until(async || !address.is_alive()).await;
        }
    }

    /// Reads the programs on the disk, and compares the records with the model.
    async fn read_lists(&mut self, node: &Node) -> [Vec<u32>; ENTITIES] {
        let mut lists: [Vec<u32>; ENTITIES] = Default::default();
        for (index, list) in lists.iter_mut().enumerate() {
            self.programs += 1;
            let program = Program {
                number: self.programs,
                ops: Vec::new(),
                range: (Bound::Unbounded, Bound::Unbounded),
            };
            let program = Arc::new(program);
            self.model.programs.insert(program.number, (index, program.clone()));
            let turn = Turn { program: program.clone(), acted: self.acted.clone() };
            let entity = node.entity::<Machine>(index.to_string());
            let seen = entity.call(turn).within(HANGS_AFTER).await.unwrap().unwrap();
            assert!(
                seen.turns.starts_with(&self.model.kept[index]),
                "entity {index} lost turns: {seen:?}"
            );
            self.model.check_seen(index, &program, &seen);
            *list = seen.turns;
        }
        let on_disk = lists.iter().filter(|list| !list.is_empty()).count() as u64;
        assert_eq!(stored(node, "machine"), on_disk);
        lists
    }

    async fn run(&mut self, path: &Path, runtime: &RuntimeHandle) {
        let mut node = self.options(path).open(runtime).unwrap();
        for _ in 0..STEPS {
            match self.random.u8(..16) {
                0 => tokio::time::sleep(Duration::from_millis(3)).await,
                1 => {
                    let is_dropped = self.random.bool();
                    if !is_dropped {
                        node.shutdown().await;
                    }
                    drop(node);
                    node = reopen(self.options(path), runtime).await;
                    self.read_lists(&node).await;
                }
                2..6 => self.burst(&node, 1).await,
                _ => {
                    let length = self.random.usize(2..14);
                    self.burst(&node, length).await;
                }
            }
        }
        node.shutdown().await;
        drop(node);
        let node = reopen(Node::options(path), runtime).await;
        let lists = self.read_lists(&node).await;
        node.shutdown().await;
        let acted = std::mem::take(&mut *self.acted.lock().unwrap());
        self.model.check_end(&lists, &acted);
    }
}

/// Returns the error of a call by the address, by what it says of the turn.
fn of_address<T>(error: CallError<T>) -> EntityError {
    match error {
        CallError::Died(ExitReason::Panicked(panic)) => EntityError::Panicked(panic),
        CallError::NoProcess(_) | CallError::Died(_) => EntityError::Died,
        error => panic!("a call by the address: {error}"),
    }
}

#[test]
fn random_programs_leave_what_the_model_says() {
    let cases = number_or("THRONG_MODEL_CASES", 300);
    let first = number_or("THRONG_DURABLE_SEED", fastrand::u64(..u64::MAX / 2));
    println!("{cases} cases, THRONG_DURABLE_SEED={first}");
    let runtime = runtime();
    for seed in first..first + cases {
        let replay = Replay(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let is_small = random.u8(..3) == 0;
        let mut case = Case {
            random,
            model: Model::default(),
            acted: Acted::default(),
            programs: 0,
            is_small,
        };
        let run = case.run(directory.path(), &runtime);
        let done = runtime.block_on(async |_| tokio::time::timeout(HANGS_AFTER, run).await);
        assert!(done.is_ok(), "the case hangs");
        drop(replay);
    }
}
