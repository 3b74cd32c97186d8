//! A random supervision tree: its nodes, and the specs that start them.
//!
//! A node's id is its index, and is never reused. Node 0 is the root; children added while the tree
//! runs get the next ids. Times are milliseconds of virtual time.

use super::worker::{Knobs, Log, Worker};
use std::sync::Arc;
use std::time::Duration;
use throng::sim::Sim;
use throng::{AutoShutdown, Child, ChildSpec, Pid, Restart, Supervisor, SupervisorSpec};

pub(crate) type Id = usize;

/// Most levels of supervisors below the root.
const DEPTH: u64 = 3;
/// Number of nodes from which on only workers are drawn. A tree may have a few more nodes.
const NODES: usize = 24;

pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub(crate) parent: Option<Id>,
    /// Id as a child. A child started by
    /// [`Address::spawn_child`](throng::Address::spawn_child) has none.
    pub(crate) name: String,
    pub(crate) restart: Restart,
    pub(crate) significant: bool,
    pub(crate) grace: Grace,
    pub(crate) what: What,
    /// Handle of the child, from its spec, once that has been made.
    pub(crate) handle: Option<Handle>,
    pub(crate) knobs: Arc<Knobs>,
}

#[derive(Clone, Copy)]
pub(crate) enum Grace {
    None,
    Within(u64),
    Unlimited,
}

pub(crate) enum What {
    Worker(Habits),
    Supervisor(Regime),
}

/// Behaviour of a worker.
#[derive(Clone, Copy)]
pub(crate) struct Habits {
    pub(crate) start: u64,
    pub(crate) stop: u64,
    pub(crate) traps: bool,
    pub(crate) registered: bool,
}

/// Policy of a supervisor.
#[derive(Clone)]
pub(crate) struct Regime {
    pub(crate) strategy: Strategy,
    pub(crate) auto: AutoShutdown,
    pub(crate) intensity: u32,
    pub(crate) period: u64,
    /// The children of its spec, in order.
    pub(crate) children: Vec<Id>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strategy {
    OneForOne,
    OneForAll,
    RestForOne,
    Dynamic,
}

#[derive(Clone)]
pub(crate) enum Handle {
    Worker(Child<Worker>),
    Supervisor(Child<Supervisor>),
}

impl Handle {
    /// Returns the pid of the live incarnation.
    pub(crate) fn pid(&self) -> Option<Pid> {
        match self {
            Handle::Worker(child) => child.address().map(|address| address.pid()),
            Handle::Supervisor(child) => child.address().map(|address| address.pid()),
        }
    }
}

impl Tree {
    pub(crate) fn draw(sim: &Sim) -> Tree {
        let mut tree = Tree { nodes: Vec::new() };
        tree.draw_supervisor(sim, None, 0);
        // A root that tolerates more restarts lives longer, so that more acts can be checked.
        if let What::Supervisor(regime) = &mut tree.nodes[0].what {
            regime.intensity += 5;
            regime.auto = AutoShutdown::Never;
        }
        tree
    }

    /// Draws a child to be added to a running supervisor.
    pub(crate) fn draw_added(&mut self, sim: &Sim, parent: Id) -> Id {
        match sim.random(4) {
            0 => self.draw_supervisor(sim, Some(parent), DEPTH),
            _ => self.draw_worker(sim, Some(parent), false),
        }
    }

    fn draw_node(&mut self, sim: &Sim, parent: Option<Id>, what: What) -> Id {
        let restart = match sim.random(10) {
            0..6 => Restart::Permanent,
            6..8 => Restart::Transient,
            _ => Restart::Temporary,
        };
        let id = self.nodes.len();
        self.nodes.push(Node {
            parent,
            name: format!("node {id}"),
            restart,
            significant: sim.random(4) == 0,
            grace: Grace::Unlimited,
            what,
            handle: None,
            knobs: Arc::default(),
        });
        id
    }

    fn draw_worker(&mut self, sim: &Sim, parent: Option<Id>, registered: bool) -> Id {
        let habits = Habits {
            start: pick(sim, &[0, 0, 0, 7, 20]),
            stop: pick(sim, &[0, 0, 0, 0, 10, 30, 60]),
            traps: sim.random(2) == 0,
            registered,
        };
        let id = self.draw_node(sim, parent, What::Worker(habits));
        // No limit is close to a `habits.stop`, so no outcome depends on a millisecond.
        self.nodes[id].grace =
            pick(sim, &[Grace::None, Grace::Within(20), Grace::Within(5000), Grace::Unlimited]);
        id
    }

    fn draw_supervisor(&mut self, sim: &Sim, parent: Option<Id>, depth: u64) -> Id {
        let strategy = pick(
            sim,
            &[
                Strategy::OneForOne,
                Strategy::OneForAll,
                Strategy::RestForOne,
                Strategy::RestForOne,
                Strategy::OneForAll,
                Strategy::Dynamic,
            ],
        );
        let auto = match sim.random(6) {
            0 => AutoShutdown::AnySignificant,
            1 => AutoShutdown::AllSignificant,
            _ => AutoShutdown::Never,
        };
        let intensity = pick(sim, &[0, 1, 1, 2, 3, 5]);
        let period = pick(sim, &[1_000, 5_000, 20_000]);
        let regime = Regime { strategy, auto, intensity, period, children: Vec::new() };
        let id = self.draw_node(sim, parent, What::Supervisor(regime));
        let mut children = Vec::new();
        for _ in 0..sim.random(if depth == 0 { 5 } else { 4 }) + u64::from(depth == 0) {
            let is_supervisor =
                depth < DEPTH && self.nodes.len() < NODES && sim.random(5) < 4 - depth;
            children.push(if is_supervisor {
                self.draw_supervisor(sim, Some(id), depth + 1)
            } else {
                let registered = depth < DEPTH && sim.random(4) == 0;
                self.draw_worker(sim, Some(id), registered)
            });
        }
        if let What::Supervisor(regime) = &mut self.nodes[id].what {
            regime.children = children;
        }
        if sim.random(6) == 0 && !self.has_names(id) {
            self.nodes[id].grace = Grace::None;
        }
        id
    }

    /// Returns the regime of a supervisor, and `None` for a worker.
    pub(crate) fn regime(&self, id: Id) -> Option<&Regime> {
        match &self.nodes[id].what {
            What::Supervisor(regime) => Some(regime),
            What::Worker(_) => None,
        }
    }

    /// Returns whether this node or one below it registers a name. The children of a killed
    /// supervisor may outlive the start of its next incarnation, which then races for the name.
    pub(crate) fn has_names(&self, id: Id) -> bool {
        match &self.nodes[id].what {
            What::Worker(habits) => habits.registered,
            What::Supervisor(regime) => regime.children.iter().any(|&child| self.has_names(child)),
        }
    }

    /// Returns the node of the children with this name: the first, because a later node with the
    /// same name was refused for it.
    pub(crate) fn by_name(&self, name: &str) -> Option<Id> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Returns the spec of a worker, and keeps its handle in the node.
    pub(crate) fn worker(&mut self, id: Id, habits: Habits, log: &Log) -> ChildSpec<Worker> {
        let (log, knobs) = (log.clone(), self.nodes[id].knobs.clone());
        let mut spec =
            self.ruled(id, ChildSpec::fallible(move || Worker::make(id, habits, &knobs, &log)));
        if habits.registered {
            spec = spec.register(self.nodes[id].name.clone());
        }
        self.nodes[id].handle = Some(Handle::Worker(spec.handle()));
        spec
    }

    /// Returns the spec of a supervisor as a child, and keeps its handle in the node.
    pub(crate) fn supervisor(&mut self, id: Id, log: &Log) -> ChildSpec<Supervisor> {
        let spec = self.supervisor_spec(id, log);
        let spec = self.ruled(id, spec.into());
        self.nodes[id].handle = Some(Handle::Supervisor(spec.handle()));
        spec
    }

    /// Returns the spec of a supervisor with all nodes below it.
    ///
    /// # Panics
    /// If the node is a worker.
    pub(crate) fn supervisor_spec(&mut self, id: Id, log: &Log) -> SupervisorSpec {
        let Regime { strategy, auto, intensity, period, children } =
            self.regime(id).cloned().unwrap_or_else(|| panic!("node {id} is no supervisor"));
        let mut spec = match strategy {
            Strategy::OneForOne => Supervisor::one_for_one(),
            Strategy::OneForAll => Supervisor::one_for_all(),
            Strategy::RestForOne => Supervisor::rest_for_one(),
            Strategy::Dynamic => Supervisor::dynamic(),
        };
        spec = spec.auto_shutdown(auto).intensity(intensity, Duration::from_millis(period));
        for child in children {
            let name = self.nodes[child].name.clone();
            spec = match self.nodes[child].what {
                What::Worker(habits) => spec.child(name, self.worker(child, habits, log)),
                What::Supervisor(_) => spec.child(name, self.supervisor(child, log)),
            };
        }
        spec
    }

    fn ruled<P: throng::Process>(&self, id: Id, spec: ChildSpec<P>) -> ChildSpec<P> {
        let Node { restart, significant, grace, .. } = self.nodes[id];
        let spec = spec.restart(restart).significant(significant);
        match grace {
            Grace::None => spec.brutal_kill(),
            Grace::Within(grace) => spec.shutdown(Duration::from_millis(grace)),
            Grace::Unlimited => spec.shutdown_unlimited(),
        }
    }
}

/// Draws an element of a slice.
pub(crate) fn pick<T: Copy>(sim: &Sim, from: &[T]) -> T {
    from[sim.random(from.len() as u64) as usize]
}
