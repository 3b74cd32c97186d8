//! Concurrent acts: crashes and delays are injected while several tasks act on the tree. The outcome
//! cannot be predicted; the properties that hold in every case are checked when the tree is quiet.

use super::model::{Act, Kept, Kid, State};
use super::tree::{Handle, Id, Strategy, What, pick};
use super::worker::{Event, Task, Worker};
use super::{Life, Way, listed};
use crate::ensure;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use throng::prelude::*;
use throng::{Child, ChildState, Restart, Supervisor};

/// Longer than every intensity period, so that no supervisor counts an earlier restart.
const FORGOTTEN: Duration = Duration::from_secs(21);

impl Life<'_> {
    /// Runs the chaos, checks the tree after it, and copies its state into the model. Returns false
    /// if that state cannot be known.
    pub(crate) async fn chaos(&mut self) -> Result<bool, String> {
        let before = self.log.len();
        self.tally.borrow_mut().shaken += 1;
        for node in &self.tree.borrow().nodes {
            node.knobs.refuse.store(0, Ordering::Relaxed);
            node.knobs.stumble.store(0, Ordering::Relaxed);
        }
        let crashes = pick(&self.sim, &[0, 2, 10, 30]);
        let supervisors = pick(&self.sim, &[0, 0, 0, 5, 20]);
        let delays = pick(&self.sim, &[0, 20, 200]);
        let faults = self.sim.faults();
        faults
            .crash::<Worker>(crashes)
            .crash::<Supervisor>(supervisors)
            .delay(Duration::from_millis(20), delays);
        tokio::join!(self.meddle(), self.meddle(), self.meddle());
        self.sim.faults().stop();
        self.calm().await;
        let managed = self.touched.borrow().clone();
        self.history.push(format!(
            "chaos; managed at any time: {managed:?}{}",
            listed(&self.log.since(before))
        ));
        // All delayed panics are over. Removes the links between workers.
        for id in self.workers() {
            self.tell(id, Task::Unlink);
        }
        self.calm().await;
        tokio::time::sleep(FORGOTTEN).await;
        self.check_log()?;
        self.check_downs()?;
        let is_known = self.take_stock().await?;
        if is_known {
            self.check("the chaos").await?;
        }
        Ok(is_known)
    }

    async fn calm(&self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.settle().await;
    }

    fn workers(&self) -> Vec<Id> {
        let tree = self.tree.borrow();
        (0..tree.nodes.len()).filter(|&id| tree.regime(id).is_none()).collect()
    }

    fn worker(&self, id: Id) -> Option<Child<Worker>> {
        match self.handle(id) {
            Some(Handle::Worker(child)) => Some(child),
            _ => None,
        }
    }

    fn tell(&self, id: Id, task: Task) {
        if let Some(worker) = self.worker(id) {
            // The worker may be dead, or between two incarnations.
            let _ = worker.send(task);
        }
    }

    async fn meddle(&self) {
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(self.sim.random(40))).await;
            let count = self.tree.borrow().nodes.len();
            let id = self.sim.random(count as u64) as Id;
            let workers = self.workers();
            let other = match workers.is_empty() {
                true => None,
                false => self.worker(pick(&self.sim, &workers)),
            };
            match (self.sim.random(12), other) {
                (0, _) => self.strike(id, Way::Kill),
                (1, _) => self.strike(id, Way::Stop),
                (2, _) => self.strike(id, Way::Exit(self.sim.random(2) == 0)),
                (3, _) => self.tell(id, Task::Panic),
                (4, _) => self.tell(id, Task::PanicIn(self.sim.random(100))),
                (5, _) => self.tell(id, Task::Work(self.sim.random(50))),
                (6..8, Some(other)) => self.tell(id, Task::Link(other)),
                (8, Some(other)) => self.tell(id, Task::Ask(other)),
                _ => self.manage(id).await,
            }
        }
    }

    async fn manage(&self, id: Id) {
        let act = match self.sim.random(5) {
            0..2 => Act::Terminate(id),
            2 => Act::Restart(id),
            3 => Act::Delete(id),
            _ if self.supervisor(id).is_some() => {
                let added = self.tree.borrow_mut().draw_added(&self.sim, id);
                Act::Add(added, self.sim.random(2) == 0)
            }
            _ => return,
        };
        let by_name = matches!(act, Act::Add(_, true)) || self.sim.random(2) == 0;
        self.carry_out(act, Way::Manage { by_name }).await;
    }

    /// Checks the properties of all starts and ends that hold for any cause. Among the children of
    /// an incarnation of a supervisor: no child has two live incarnations, no temporary child is
    /// started again, and a child is restarted only after all children of its group have ended.
    fn check_log(&self) -> Result<(), String> {
        let (tree, touched) = (self.tree.borrow(), self.touched.borrow());
        let records = self.log.since(0);
        // By supervisor: the events at which each child last started and ended.
        let mut families: HashMap<Pid, HashMap<Id, (usize, Option<usize>)>> = HashMap::new();
        for (now, record) in records.iter().enumerate() {
            let (Event::Started(id, _) | Event::Ended(id, _)) = record.event else { continue };
            let family =
                families.entry(record.parent.ok_or("a worker without parent")?).or_default();
            if let Event::Ended(..) = record.event {
                let life = family
                    .get_mut(&id)
                    .ok_or_else(|| format!("node {id} ended before it started"))?;
                ensure(life.1.is_none(), || format!("node {id} ended twice"))?;
                life.1 = Some(now);
                continue;
            }
            let Some((_, end)) = family.insert(id, (now, None)) else { continue };
            let end =
                end.ok_or_else(|| format!("node {id} has two live incarnations at event {now}"))?;
            let node = &tree.nodes[id];
            ensure(node.restart != Restart::Temporary, || {
                format!("node {id} is temporary and was started again, in event {now}")
            })?;
            let Some(regime) = node.parent.and_then(|parent| tree.regime(parent)) else { continue };
            let place = |id: Id| regime.children.iter().position(|&child| child == id);
            let own = place(id);
            // A manager may have asked for this start, and the place of an added child is unknown.
            if touched.contains(&id) || own.is_none() {
                continue;
            }
            for (&other, &(start, over)) in family.iter() {
                let lives = other != id && over.is_none();
                let is_wrong = match regime.strategy {
                    Strategy::OneForOne | Strategy::Dynamic => false,
                    Strategy::RestForOne => place(other) > own || place(other).is_none(),
                    Strategy::OneForAll => {
                        start < end || place(other) > own || place(other).is_none()
                    }
                };
                ensure(!(lives && is_wrong), || {
                    format!("node {id} is started again in event {now}, while {other} is alive")
                })?;
            }
        }
        Ok(())
    }

    /// Copies the tree, as its supervisors report it, into the model, and checks that every child
    /// that should be alive is. Returns false if a stopped child without a name is left: no
    /// supervisor can say which node it is.
    async fn take_stock(&mut self) -> Result<bool, String> {
        let count = self.tree.borrow().nodes.len();
        self.states.resize_with(count, State::default);
        for (id, node) in self.tree.borrow().nodes.iter().enumerate() {
            let knobs = &node.knobs;
            let State { incarnation, incarnations, .. } = self.states[id];
            let incarnations = match node.what {
                What::Worker(_) => knobs.incarnations.load(Ordering::Relaxed),
                What::Supervisor(_) => incarnations,
            };
            let refused = knobs.refused.load(Ordering::Relaxed);
            self.states[id] = State { incarnation, incarnations, refused, ..State::default() };
        }
        let mut left: Vec<Id> = self.pid(0).into_iter().map(|_| 0).collect();
        while let Some(id) = left.pop() {
            self.states[id].is_alive = true;
            self.states[id].incarnation = self.incarnation(id);
            let Some(supervisor) = self.supervisor(id) else { continue };
            let children = supervisor.which_children().await.map_err(|why| why.to_string())?;
            for child in children {
                if child.id.is_none() && child.state == ChildState::Stopped {
                    return Ok(false);
                }
                let kid = self.recognize(child.id.as_deref(), child.state);
                let kid =
                    kid.ok_or_else(|| format!("node {id} has an unknown child: {child:?}"))?;
                let (parent, restart) = {
                    let node = &self.tree.borrow().nodes[kid.id];
                    (node.parent, node.restart)
                };
                ensure(parent == Some(id), || format!("node {id} has a child of {parent:?}"))?;
                if kid.kept == Kept::Running {
                    left.push(kid.id);
                } else {
                    ensure(self.may_be_down(kid, restart), || {
                        format!("node {} is {restart:?}, and {:?}", kid.id, kid.kept)
                    })?;
                }
                self.states[id].kids.push(kid);
            }
            self.check_kids(id)?;
        }
        Ok(true)
    }

    /// Returns the number of the live incarnation. Workers log it on their start; supervisors are
    /// distinguished by their pids.
    fn incarnation(&mut self, id: Id) -> u32 {
        let pid = self.pid(id);
        let records = self.log.since(0);
        let started = records.iter().find_map(|record| match record.event {
            Event::Started(_, number) if record.pid == pid => Some(number),
            _ => None,
        });
        let state = &mut self.states[id];
        match (started, self.known.get(&id)) {
            (Some(number), _) => number,
            (None, Some(&(incarnation, before))) if Some(before) == pid => incarnation,
            (None, _) => {
                state.incarnations += 1;
                state.incarnations
            }
        }
    }

    /// Returns whether a child that is not running may be left.
    fn may_be_down(&self, kid: Kid, restart: Restart) -> bool {
        let (tree, touched) = (self.tree.borrow(), self.touched.borrow());
        let parent = tree.nodes[kid.id].parent;
        // A child of a group that is restarted may fail to start, and a manager may stop it before
        // the supervisor tries again. Then the rest of the group is not started, as in OTP.
        let is_group = parent.and_then(|parent| tree.regime(parent)).is_some_and(|regime| {
            matches!(regime.strategy, Strategy::OneForAll | Strategy::RestForOne)
        });
        let is_managed = |id: Id| id == kid.id || is_group && tree.nodes[id].parent == parent;
        if touched.iter().any(|&id| is_managed(id)) {
            return true;
        }
        let records = self.log.since(0);
        let end = records
            .iter()
            .rev()
            .find(|record| matches!(record.event, Event::Ended(id, _) if id == kid.id));
        let reason = end.and_then(|record| record.reason.as_ref());
        restart == Restart::Transient
            && kid.kept == Kept::Stopped
            && reason.is_none_or(|why| matches!(why, ExitReason::Normal | ExitReason::Shutdown))
    }

    /// Finds the node of a child that a supervisor reports.
    fn recognize(&self, name: Option<&str>, state: ChildState) -> Option<Kid> {
        let kept = match state {
            ChildState::Running(_) => Kept::Running,
            ChildState::Restarting => Kept::Restarting,
            ChildState::Stopped => Kept::Stopped,
        };
        let id = match (name, state) {
            (Some(name), _) => self.tree.borrow().by_name(name)?,
            (None, ChildState::Running(pid)) => {
                (1..self.states.len()).find(|&id| self.pid(id) == Some(pid))?
            }
            _ => return None,
        };
        Some(Kid { id, is_named: name.is_some(), kept })
    }

    /// Checks that the remaining children of a spec are in its order, before all added children,
    /// and that no child of the spec is missing unless it is temporary.
    fn check_kids(&self, id: Id) -> Result<(), String> {
        let tree = self.tree.borrow();
        let Some(regime) = tree.regime(id) else { return Ok(()) };
        let kids: Vec<Id> = self.states[id].kids.iter().map(|kid| kid.id).collect();
        let touched = self.touched.borrow();
        let mut own = regime.children.iter().filter(|child| kids.contains(child));
        let stands = kids.iter().take_while(|kid| Some(*kid) == own.next()).count();
        let rest = kids[stands..].iter().any(|kid| regime.children.contains(kid));
        ensure(!rest, || format!("the children of node {id} are in the order {kids:?}"))?;
        let missing = regime.children.iter().find(|&&child| {
            tree.nodes[child].restart != Restart::Temporary
                && !touched.contains(&child)
                && !kids.contains(&child)
        });
        ensure(missing.is_none(), || format!("node {id} has lost its child {missing:?}"))
    }
}
