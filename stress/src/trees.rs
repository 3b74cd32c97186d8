//! Random supervision trees in the simulator: each behaves as a model of OTP's rules predicts.
//!
//! Each tree is drawn from a seed. Its life:
//!
//! 1. The tree starts. Then it undergoes a single act at a time, and all consequences are compared
//!    with the [model]: the processes that ended and started, their order, and the children that
//!    each supervisor reports.
//! 2. [Chaos](chaos): crashes and delays are injected, and several tasks act on the tree at once.
//!    When the tree is quiet, the properties that hold in every case are checked.
//! 3. More single acts follow. In the end the tree is stopped, in the reverse order of its start.
//!
//! Every sixteenth seed is run a second time, and must leave the identical log.

mod chaos;
mod model;
mod tree;
mod worker;

use self::model::{Act, Answer, Kept, Model, Order, State};
use self::tree::{Handle, Id, Tree, What, pick};
use self::worker::{Event, Log, Record, Task, Witness};
use crate::{Outcome, ensure};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use throng::prelude::*;
use throng::sim::{self, Sim};
use throng::{ChildError, ChildState, Supervisor};

/// A seed divisible by this is run twice.
const REPLAYED: u64 = 16;
/// After so long without an event, no consequence is still to come.
const QUIET: Duration = Duration::from_millis(500);
/// Most delays, of [`QUIET`] each, of an act whose outcome is in doubt. After all of them, no
/// supervisor counts an earlier restart.
const PATIENCE: u32 = 50;

/// Counts over all trees.
#[derive(Default)]
struct Tally {
    processes: u64,
    acts: u64,
    restarts: u64,
    given_up: u64,
    /// Number of trees that went through chaos.
    shaken: u64,
    /// Number of trees whose root was alive after chaos.
    survived: u64,
    /// Seeds and logs of the trees that are run a second time.
    logs: Vec<(u64, Vec<(Duration, Event)>)>,
}

pub(crate) fn run(size: u64) -> Outcome {
    // Panics in here are on purpose, or appear in the outcome.
    std::panic::set_hook(Box::new(|_| {}));
    let tally = RefCell::new(Tally::default());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        sim::check(size, |sim| live(sim, &tally, &|seed| seed % REPLAYED == 0));
        replay(&tally.borrow().logs);
    }));
    drop(std::panic::take_hook());
    if let Err(payload) = outcome {
        let reason = ExitReason::from_panic(payload);
        return Err(format!("{reason} cargo xtask stress trees"));
    }
    let Tally { processes, acts, restarts, given_up, shaken, survived, logs } = tally.into_inner();
    let replayed = logs.len();
    Ok(format!(
        "seeds 0 to {}: {processes} processes; {acts} acts with the outcome predicted, among them \
         {restarts} restarts and {given_up} supervisors that gave up; {survived} of {shaken} trees \
         survived chaos; {replayed} were replayed with the identical log",
        size.saturating_sub(1)
    ))
}

/// Runs trees a second time.
///
/// # Panics
/// If a tree leaves another log.
fn replay(logs: &[(u64, Vec<(Duration, Event)>)]) {
    for (seed, log) in logs {
        let tally = RefCell::new(Tally::default());
        sim::replay(*seed, |sim| live(sim, &tally, &|_| true));
        let other = &tally.borrow().logs[0].1;
        if let Some(place) =
            (0..log.len().max(other.len())).find(|&at| log.get(at) != other.get(at))
        {
            panic!(
                "seed {seed}: the second run differs: {:?} instead of {:?}, in event {place}; run \
                 it alone with THRONG_SIM_SEED={seed}",
                other.get(place),
                log.get(place),
            );
        }
    }
}

/// Draws a tree and runs it through its life.
///
/// # Panics
/// If a property does not hold, with an outline of the tree.
async fn live(sim: Sim, tally: &RefCell<Tally>, keeps: &dyn Fn(u64) -> bool) {
    let witness = Witness::default();
    let heard = witness.heard.clone();
    let witness = sim.runtime().spawn(witness).unwrap();
    let log = Log::new(&sim, witness);
    let tree = Tree::draw(&sim);
    let mut life = Life {
        root: None,
        states: vec![State::default(); tree.nodes.len()],
        tree: RefCell::new(tree),
        known: HashMap::new(),
        touched: RefCell::default(),
        heard,
        history: Vec::new(),
        log,
        sim,
        tally,
    };
    if let Err(why) = life.run().await {
        panic!("{why}\n{}", life.outline());
    }
    let records = life.log.since(0);
    let mut tally = tally.borrow_mut();
    tally.processes +=
        records.iter().filter(|record| matches!(record.event, Event::Started(..))).count() as u64;
    if keeps(life.sim.seed()) {
        let log = records.iter().map(|record| (record.at, record.event)).collect();
        tally.logs.push((life.sim.seed(), log));
    }
}

struct Life<'a> {
    sim: Sim,
    log: Log,
    tree: RefCell<Tree>,
    root: Option<Address<Supervisor>>,
    /// The nodes' states as the model predicts them.
    states: Vec<State>,
    /// The number and pid of each node's last known incarnation.
    known: HashMap<Id, (u32, Pid)>,
    /// Nodes whose supervisor was asked to stop, start or delete them.
    touched: RefCell<HashSet<Id>>,
    heard: Arc<std::sync::Mutex<HashMap<Pid, Vec<ExitReason>>>>,
    /// Each act with the events that followed.
    history: Vec<String>,
    tally: &'a RefCell<Tally>,
}

/// Means by which an act is carried out.
#[derive(Clone, Copy, Debug)]
enum Way {
    Kill,
    Panic,
    Stop,
    Exit(bool),
    Manage { by_name: bool },
}

impl Life<'_> {
    async fn run(&mut self) -> Result<(), String> {
        if !self.start().await? {
            return Ok(());
        }
        for _ in 0..4 + self.sim.random(8) {
            self.act().await?;
        }
        if self.sim.random(4) > 0 && self.is_alive() {
            if !self.chaos().await? {
                return self.abandon().await;
            }
            let survived = u64::from(self.is_alive());
            self.tally.borrow_mut().survived += survived;
            for _ in 0..3 {
                self.act().await?;
            }
        }
        self.end().await?;
        self.check_downs()
    }

    fn is_alive(&self) -> bool {
        self.states[0].is_alive
    }

    /// Starts the tree. Returns false if the start failed as predicted.
    async fn start(&mut self) -> Result<bool, String> {
        if self.sim.random(10) == 0 {
            self.hinder();
        }
        let spec = self.tree.get_mut().supervisor_spec(0, &self.log);
        let (order, starts) = {
            let tree = self.tree.borrow();
            let mut model = Model::new(&tree, self.states.clone(), 0);
            let starts = model.start(0);
            let order = model.order();
            self.states = model.states;
            (order, starts)
        };
        self.root = spec.start_async(self.sim.runtime()).await.ok();
        ensure(self.root.is_some() == starts, || format!("the start: {starts} was predicted"))?;
        self.settle().await;
        order.compare(&events(&self.log.since(0))).map_err(|why| format!("the start: {why}"))?;
        self.check("the start").await?;
        Ok(starts)
    }

    /// Carries out a random act, and compares all its consequences with the model.
    async fn act(&mut self) -> Result<(), String> {
        if !self.is_alive() {
            return Ok(());
        }
        let pause = pick(&self.sim, &[0, 0, 100, 1_200, 6_000]);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if self.sim.random(3) == 0 {
            self.hinder();
        }
        let (act, way) = self.draw_act();
        let before = self.log.len();
        let mut predicted = self.predict(act);
        for _ in 0..PATIENCE {
            if predicted.is_some() {
                break;
            }
            tokio::time::sleep(QUIET).await;
            predicted = self.predict(act);
        }
        // The act's own restarts may take a period, give or take a few milliseconds.
        let Some((order, answer)) = predicted else { return Ok(()) };
        let what = format!("{act:?}, by {way:?}");
        let answered = self.carry_out(act, way).await;
        ensure(answered == answer, || format!("{what}: answered {answered:?}, not {answer:?}"))?;
        self.settle().await;
        let happened = self.log.since(before);
        self.history.push(format!("{what}: {}", listed(&happened)));
        order.compare(&events(&happened)).map_err(|why| format!("{what}: {why}"))?;
        self.check(&what).await
    }

    /// Returns the consequences that the model predicts, or `None` if they depend on a few
    /// milliseconds.
    fn predict(&mut self, act: Act) -> Option<(Order, Answer)> {
        let tree = self.tree.borrow();
        let now = self.sim.elapsed().as_millis() as u64;
        let mut model = Model::new(&tree, self.states.clone(), now);
        let answer = model.act(act);
        if model.in_doubt {
            return None;
        }
        let order = model.order();
        let mut tally = self.tally.borrow_mut();
        tally.acts += 1;
        tally.restarts += model.counts.restarts;
        tally.given_up += model.counts.given_up;
        self.states = model.states;
        Some((order, answer))
    }

    /// Makes the next one or two starts of a random worker fail.
    fn hinder(&mut self) {
        let tree = self.tree.borrow();
        let workers: Vec<Id> =
            (0..tree.nodes.len()).filter(|&id| tree.regime(id).is_none()).collect();
        if workers.is_empty() {
            return;
        }
        let id = pick(&self.sim, &workers);
        let (knobs, state) = (&tree.nodes[id].knobs, &mut self.states[id]);
        let times = 1 + self.sim.random(2) as u32;
        if self.sim.random(2) == 0 {
            knobs.refuse.store(times, Ordering::Relaxed);
            state.refuse = times;
        } else {
            knobs.stumble.store(times, Ordering::Relaxed);
            state.stumble = times;
        }
    }

    fn draw_act(&mut self) -> (Act, Way) {
        let sim = self.sim.clone();
        let alive: Vec<Id> =
            (0..self.states.len()).filter(|&id| self.states[id].is_alive).collect();
        let id = match pick(&sim, &alive) {
            0 if sim.random(10) > 0 => pick(&sim, &alive),
            id => id,
        };
        let (has_names, is_worker) = {
            let tree = self.tree.borrow();
            (tree.has_names(id), tree.regime(id).is_none())
        };
        match sim.random(10) {
            0 if is_worker || !has_names => (Act::Kill(id), Way::Kill),
            1..3 if is_worker => (Act::End(id, false), Way::Panic),
            0..4 => (Act::End(id, true), Way::Stop),
            4 => (Act::End(id, true), Way::Exit(true)),
            5 => (Act::End(id, false), Way::Exit(false)),
            _ => self.draw_management(&sim, &alive),
        }
    }

    fn draw_management(&mut self, sim: &Sim, alive: &[Id]) -> (Act, Way) {
        let tree = self.tree.get_mut();
        let supervisors: Vec<Id> =
            alive.iter().copied().filter(|&id| tree.regime(id).is_some()).collect();
        let parent = pick(sim, &supervisors);
        let kids: Vec<_> = self.states[parent].kids.clone();
        if kids.is_empty() || sim.random(4) == 0 {
            let id = tree.draw_added(sim, parent);
            let by_name = sim.random(2) == 0;
            let named: Vec<Id> = kids.iter().filter(|kid| kid.is_named).map(|kid| kid.id).collect();
            if by_name && !named.is_empty() && sim.random(4) == 0 {
                // The supervisor will refuse this child, because the name is taken.
                let taken = tree.nodes[pick(sim, &named)].name.clone();
                tree.nodes[id].name = taken;
            }
            self.states.resize_with(tree.nodes.len(), State::default);
            return (Act::Add(id, by_name), Way::Manage { by_name });
        }
        let stopped: Vec<_> =
            kids.iter().copied().filter(|kid| kid.kept == Kept::Stopped).collect();
        let kid = match sim.random(2) {
            0 if !stopped.is_empty() => pick(sim, &stopped),
            _ => pick(sim, &kids),
        };
        let by_name = kid.is_named && sim.random(2) == 0;
        let act = pick(sim, &[Act::Terminate, Act::Terminate, Act::Restart, Act::Delete]);
        (act(kid.id), Way::Manage { by_name })
    }

    fn handle(&self, id: Id) -> Option<Handle> {
        self.tree.borrow().nodes[id].handle.clone()
    }

    fn pid(&self, id: Id) -> Option<Pid> {
        match id {
            0 => self.root.map(|root| root.pid()).filter(|pid| pid.is_alive()),
            _ => self.handle(id)?.pid(),
        }
    }

    fn supervisor(&self, id: Id) -> Option<Address<Supervisor>> {
        match self.handle(id) {
            Some(Handle::Supervisor(child)) => child.address(),
            _ if id == 0 => self.root,
            _ => None,
        }
    }

    async fn carry_out(&self, act: Act, way: Way) -> Answer {
        let (id, by_name) = match (act, way) {
            (
                Act::Terminate(id) | Act::Restart(id) | Act::Delete(id) | Act::Add(id, _),
                Way::Manage { by_name },
            ) => (id, by_name),
            (Act::Kill(id) | Act::End(id, _), _) => {
                self.strike(id, way);
                return Answer::Done;
            }
            _ => return Answer::Failed,
        };
        let parent = self.tree.borrow().nodes[id].parent;
        let Some(parent) = parent.and_then(|parent| self.supervisor(parent)) else {
            return Answer::NoChild;
        };
        // The name may belong to another node, if this one was refused for it.
        let named = {
            let tree = self.tree.borrow();
            tree.by_name(&tree.nodes[id].name)
        };
        self.touched.borrow_mut().extend([Some(id), named].into_iter().flatten());
        if let Act::Add(..) = act {
            return answer(self.add(parent, id, by_name).await);
        }
        let name = self.tree.borrow().nodes[id].name.clone();
        let child: throng::ChildRef = match self.handle(id) {
            _ if by_name => name.as_str().into(),
            Some(Handle::Worker(child)) => (&child).into(),
            Some(Handle::Supervisor(child)) => (&child).into(),
            None => name.as_str().into(),
        };
        answer(match act {
            Act::Terminate(_) => parent.terminate_child(child).await,
            Act::Restart(_) => parent.restart_child(child).await,
            _ => parent.delete_child(child).await,
        })
    }

    /// Ends a process, by `way`.
    fn strike(&self, id: Id, way: Way) {
        let Some(pid) = self.pid(id) else { return };
        match (way, self.handle(id)) {
            (Way::Kill, _) => pid.kill(),
            (Way::Exit(true), _) => pid.exit(ExitReason::Shutdown),
            (Way::Panic, Some(Handle::Worker(child))) => drop(child.send(Task::Panic)),
            (Way::Stop, Some(Handle::Worker(child))) => {
                child.address().map(Address::stop);
            }
            (Way::Stop, _) => {
                self.supervisor(id).map(Address::stop);
            }
            _ => pid.exit(ExitReason::other("an exit signal")),
        }
    }

    async fn add(
        &self,
        parent: Address<Supervisor>,
        id: Id,
        by_name: bool,
    ) -> Result<(), ChildError> {
        let name = self.tree.borrow().nodes[id].name.clone();
        let worker = match self.tree.borrow().nodes[id].what {
            What::Worker(habits) => Some(habits),
            What::Supervisor(_) => None,
        };
        if let Some(habits) = worker {
            let spec = self.tree.borrow_mut().worker(id, habits, &self.log);
            return match by_name {
                true => parent.start_child(name, spec).await.map(drop),
                false => parent.spawn_child(spec).await.map(drop),
            };
        }
        let spec = self.tree.borrow_mut().supervisor(id, &self.log);
        match by_name {
            true => parent.start_child(name, spec).await.map(drop),
            false => parent.spawn_child(spec).await.map(drop),
        }
    }

    /// Stops the tree, and compares the order of the exits with the model.
    async fn end(&mut self) -> Result<(), String> {
        if let Some(root) = self.root.filter(|_| self.is_alive()) {
            let before = self.log.len();
            let order = {
                let tree = self.tree.borrow();
                let mut model = Model::new(&tree, self.states.clone(), 0);
                model.retire(0);
                let order = model.order();
                self.states = model.states;
                order
            };
            match self.sim.random(2) {
                0 => root.exit(ExitReason::Shutdown),
                _ => drop(root.stop()),
            }
            self.settle().await;
            let happened = events(&self.log.since(before));
            order.compare(&happened).map_err(|why| format!("the end: {why}"))?;
        }
        self.check("the end").await
    }

    /// Kills a tree that the model does not know completely, and checks that no process is left.
    async fn abandon(&mut self) -> Result<(), String> {
        if let Some(root) = self.root {
            root.kill();
        }
        self.settle().await;
        let count = self.sim.runtime().process_count() - 1;
        ensure(count == 0, || format!("{count} processes have outlived the tree"))?;
        self.check_downs()
    }

    async fn settle(&self) {
        let mut before = usize::MAX;
        while before != self.log.len() {
            before = self.log.len();
            tokio::time::sleep(QUIET).await;
        }
    }

    /// Compares the live processes, and the children that each supervisor reports, with the model.
    async fn check(&mut self, after: &str) -> Result<(), String> {
        for id in 0..self.states.len() {
            let state = self.states[id].clone();
            let pid = self.pid(id);
            ensure(pid.is_some() == state.is_alive, || {
                format!("{after}: node {id} should be alive: {}, and is {pid:?}", state.is_alive)
            })?;
            let Some(pid) = pid else { continue };
            match self.known.insert(id, (state.incarnation, pid)) {
                Some((incarnation, before))
                    if (incarnation == state.incarnation) != (before == pid) =>
                {
                    return Err(format!(
                        "{after}: node {id} was {before:?} in its incarnation {incarnation}, and is \
                         {pid:?} in {}",
                        state.incarnation
                    ));
                }
                _ => {}
            }
            self.check_name(id, pid).map_err(|why| format!("{after}: {why}"))?;
            let Some(supervisor) = self.supervisor(id) else { continue };
            let children = supervisor.which_children().await.map_err(|why| why.to_string())?;
            let reported: Vec<_> = children
                .iter()
                .map(|child| (child.id.clone(), child.state, child.restart))
                .collect();
            let tree = self.tree.borrow();
            let predicted: Vec<_> = state
                .kids
                .iter()
                .map(|kid| {
                    let node = &tree.nodes[kid.id];
                    let pid = node.handle.as_ref().and_then(Handle::pid);
                    let state = match (kid.kept, pid) {
                        (Kept::Running, Some(pid)) => ChildState::Running(pid),
                        (Kept::Restarting, _) => ChildState::Restarting,
                        _ => ChildState::Stopped,
                    };
                    (kid.is_named.then(|| node.name.as_str().into()), state, node.restart)
                })
                .collect();
            ensure(reported == predicted, || {
                format!("{after}: supervisor {id} reports {reported:?} instead of {predicted:?}")
            })?;
        }
        let alive = self.states.iter().filter(|state| state.is_alive).count() as u64;
        // Minus the witness.
        let count = self.sim.runtime().process_count() - 1;
        ensure(count == alive, || {
            format!("{after}: {count} processes are alive instead of {alive}")
        })
    }

    /// Checks that a registered worker's name leads to its live incarnation.
    fn check_name(&self, id: Id, pid: Pid) -> Result<(), String> {
        let tree = self.tree.borrow();
        if matches!(tree.nodes[id].what, What::Worker(habits) if habits.registered) {
            let found = self.sim.runtime().whereis_pid(&tree.nodes[id].name);
            ensure(found == Some(pid), || {
                format!("node {id} is {pid:?}, but its name leads to {found:?}")
            })?;
        }
        Ok(())
    }

    /// Checks that the witness has received a single `down`, with the exit reason, for each worker
    /// that has ended, and none for live workers.
    fn check_downs(&self) -> Result<(), String> {
        let heard = self.heard.lock().unwrap();
        let mut ended = HashMap::new();
        for record in self.log.since(0) {
            match (record.event, record.pid) {
                (Event::Started(..), Some(pid)) => {
                    ended.entry(pid).or_insert(None);
                }
                (Event::Ended(..), Some(pid)) => {
                    ended.insert(pid, Some(record.reason));
                }
                _ => {}
            }
        }
        for (pid, end) in &ended {
            let downs = heard.get(pid).map(Vec::as_slice).unwrap_or_default();
            let is_right = match (end, downs) {
                (None, []) => true,
                (Some(_), [ExitReason::NoProcess]) | (Some(None), [_]) => true,
                (Some(Some(reason)), [down]) => reason == down,
                _ => false,
            };
            ensure(is_right, || {
                format!("{pid:?} ended {end:?}, and the witness received {downs:?}")
            })?;
        }
        let strangers = heard.keys().filter(|pid| !ended.contains_key(pid)).count();
        ensure(strangers == 0, || format!("{strangers} downs are of workers that never started"))
    }

    /// Describes the tree and its history, for the report of a failure.
    fn outline(&self) -> String {
        let tree = self.tree.borrow();
        let line = |id: Id| {
            let node = &tree.nodes[id];
            let grace = match node.grace {
                tree::Grace::None => "killed".to_owned(),
                tree::Grace::Within(grace) => format!("within {grace} ms"),
                tree::Grace::Unlimited => "without a limit".to_owned(),
            };
            let what = match &node.what {
                What::Worker(habits) => format!(
                    "worker, starts in {} ms, stops in {}, traps: {}, registered: {}",
                    habits.start, habits.stop, habits.traps, habits.registered
                ),
                What::Supervisor(regime) => format!(
                    "{:?}, {} in {} ms, {:?}, of {:?}",
                    regime.strategy, regime.intensity, regime.period, regime.auto, regime.children
                ),
            };
            let significant = if node.significant { " significant" } else { "" };
            let parent = node.parent.map(|parent| format!(" below {parent}")).unwrap_or_default();
            let lives = self.pid(id).map(|pid| format!(" ({pid:?})")).unwrap_or_default();
            format!(
                "  {id}{lives}{parent}: {:?}{significant} {what}; stopped {grace}",
                node.restart
            )
        };
        let lines: Vec<_> =
            (0..tree.nodes.len()).map(line).chain(self.history.iter().cloned()).collect();
        lines.join("\n")
    }
}

fn events(records: &[Record]) -> Vec<Event> {
    records.iter().map(|record| record.event).collect()
}

fn listed(records: &[Record]) -> String {
    let lines = records.iter().map(|record| format!("\n    {:?} {:?}", record.at, record.event));
    lines.collect::<String>()
}

fn answer(result: Result<(), ChildError>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(ChildError::Running(_)) => Answer::Running,
        Err(ChildError::Restarting) => Answer::Restarting,
        Err(ChildError::Stopped) => Answer::Stopped,
        Err(ChildError::Failed(_)) => Answer::Failed,
        Err(_) => Answer::NoChild,
    }
}
