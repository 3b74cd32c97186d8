//! A model of OTP's rules of supervision: it predicts the events of a whole tree. It shares no code
//! with the supervisors it is compared with.
//!
//! A supervisor works sequentially, so each act has a single outcome: the nodes that end and start,
//! and their order. Only the orphans of a killed supervisor end in their own time.

use super::tree::{Grace, Id, Strategy, Tree, What};
use super::worker::Event;
use std::collections::HashMap;
use throng::{AutoShutdown, Restart};

/// Milliseconds by which virtual time may differ from the model's. A restart this close to the end
/// of the intensity period makes the outcome doubtful.
const DOUBT: u64 = 300;

/// Order in which events must happen.
#[derive(Debug)]
pub(crate) enum Order {
    One(Event),
    /// Each part after the part before it.
    Each(Vec<Order>),
    /// Parts in any order, also interleaved.
    Beside(Vec<Order>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    Running,
    Stopped,
    Restarting,
}

/// A child as its supervisor should know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kid {
    pub(crate) id: Id,
    /// Whether the supervisor knows the child by an id.
    pub(crate) is_named: bool,
    pub(crate) kept: Kept,
}

#[derive(Clone, Default)]
pub(crate) struct State {
    /// Number of incarnations so far.
    pub(crate) incarnations: u32,
    /// Number of the incarnation that lives, or lived last. It may be less than `incarnations`: an
    /// incarnation whose supervisor was killed just after the spawn may run after its successor.
    pub(crate) incarnation: u32,
    pub(crate) is_alive: bool,
    pub(crate) refuse: u32,
    pub(crate) stumble: u32,
    pub(crate) refused: u32,
    pub(crate) restarts: Vec<u64>,
    pub(crate) kids: Vec<Kid>,
}

impl State {
    fn live(&mut self) {
        self.incarnations += 1;
        self.incarnation = self.incarnations;
        self.is_alive = true;
    }
}

/// Act on the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Kill the process.
    Kill(Id),
    /// End the process by an exit, a stop or a panic; true if the end is orderly.
    End(Id, bool),
    Terminate(Id),
    Restart(Id),
    Delete(Id),
    Add(Id, bool),
}

/// Reply of a supervisor to the last four acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    NoChild,
    Running,
    Restarting,
    Stopped,
    Failed,
}

#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub(crate) restarts: u64,
    pub(crate) given_up: u64,
}

pub(crate) struct Model<'a> {
    tree: &'a Tree,
    pub(crate) states: Vec<State>,
    now: u64,
    /// Whether the prediction depends on a few milliseconds.
    pub(crate) in_doubt: bool,
    pub(crate) counts: Counts,
    path: Vec<Order>,
    aside: Vec<Order>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(tree: &'a Tree, mut states: Vec<State>, now: u64) -> Model<'a> {
        states.resize_with(tree.nodes.len(), State::default);
        let (path, aside, counts) = (Vec::new(), Vec::new(), Counts::default());
        Model { tree, states, now, in_doubt: false, counts, path, aside }
    }

    /// Returns the predicted events in their order.
    pub(crate) fn order(&mut self) -> Order {
        let mut parts = std::mem::take(&mut self.aside);
        parts.push(Order::Each(std::mem::take(&mut self.path)));
        Order::Beside(parts)
    }

    pub(crate) fn act(&mut self, act: Act) -> Answer {
        match act {
            Act::Kill(id) => {
                match self.tree.regime(id) {
                    Some(_) => self.vanish(id),
                    None => self.ended(id),
                }
                self.exited(id, false);
            }
            Act::End(id, orderly) => {
                match &self.tree.nodes[id].what {
                    What::Worker(habits) => {
                        self.now += habits.stop;
                        self.ended(id);
                    }
                    What::Supervisor(_) => self.retire(id),
                }
                self.exited(id, orderly);
            }
            Act::Terminate(id) => return self.terminate(id),
            Act::Restart(id) => {
                let kept = self.kid(id).map(|kid| kid.kept);
                return match self.why_not_startable(kept) {
                    Answer::Stopped if self.start(id) => {
                        self.keep(id, Kept::Running);
                        Answer::Done
                    }
                    Answer::Stopped => Answer::Failed,
                    other => other,
                };
            }
            Act::Delete(id) => {
                let kept = self.kid(id).map(|kid| kid.kept);
                return match self.why_not_startable(kept) {
                    Answer::Stopped => {
                        self.forget(id);
                        Answer::Done
                    }
                    other => other,
                };
            }
            Act::Add(id, is_named) => return self.add(id, is_named),
        }
        Answer::Done
    }

    fn terminate(&mut self, id: Id) -> Answer {
        let Some(kid) = self.kid(id) else { return Answer::NoChild };
        if kid.kept == Kept::Running {
            self.stop(id);
        }
        self.ended_for_good(id);
        Answer::Done
    }

    fn add(&mut self, id: Id, is_named: bool) -> Answer {
        let Some(parent) = self.tree.nodes[id].parent else { return Answer::NoChild };
        let name = &self.tree.nodes[id].name;
        let nodes = &self.tree.nodes;
        let namesake = |kid: &&Kid| is_named && kid.is_named && nodes[kid.id].name == *name;
        if let Some(kid) = self.states[parent].kids.iter().find(namesake) {
            return self.why_not_startable(Some(kid.kept));
        }
        if !self.start(id) {
            return Answer::Failed;
        }
        self.states[parent].kids.push(Kid { id, is_named, kept: Kept::Running });
        Answer::Done
    }

    fn why_not_startable(&self, kept: Option<Kept>) -> Answer {
        match kept {
            None => Answer::NoChild,
            Some(Kept::Running) => Answer::Running,
            Some(Kept::Stopped) => Answer::Stopped,
            Some(Kept::Restarting) => Answer::Restarting,
        }
    }

    /// Starts a node with all children of its spec. Returns false if a start failed.
    pub(crate) fn start(&mut self, id: Id) -> bool {
        let tree = self.tree;
        let state = &mut self.states[id];
        match &tree.nodes[id].what {
            What::Worker(_) if state.refuse > 0 => {
                state.refuse -= 1;
                state.refused += 1;
                let event = Event::Refused(id, state.refused);
                self.path.push(Order::One(event));
                return false;
            }
            What::Worker(habits) => {
                state.live();
                self.path.push(Order::One(Event::Started(id, state.incarnation)));
                self.now += habits.start;
                if state.stumble > 0 {
                    state.stumble -= 1;
                    self.now += habits.stop;
                    self.ended(id);
                    return false;
                }
            }
            What::Supervisor(regime) => {
                state.live();
                state.restarts.clear();
                state.kids.clear();
                for &child in &regime.children {
                    if !self.start(child) {
                        self.retire(id);
                        return false;
                    }
                    let kid = Kid { id: child, is_named: true, kept: Kept::Running };
                    self.states[id].kids.push(kid);
                }
            }
        }
        true
    }

    /// Stops a child, as its supervisor does.
    fn stop(&mut self, id: Id) {
        match (&self.tree.nodes[id].what, self.tree.nodes[id].grace) {
            (What::Worker(habits), grace) => {
                self.now += match grace {
                    Grace::None => 0,
                    Grace::Within(grace) => grace.min(habits.stop),
                    Grace::Unlimited => habits.stop,
                };
                self.ended(id);
            }
            (What::Supervisor(_), Grace::None) => self.vanish(id),
            (What::Supervisor(_), _) => self.retire(id),
        }
    }

    /// Has a supervisor stop its children and exit.
    pub(crate) fn retire(&mut self, id: Id) {
        let running = self.running(id, 0);
        if self.tree.regime(id).is_some_and(|regime| regime.strategy == Strategy::Dynamic) {
            let begun = self.now;
            let mut done = begun;
            let path = std::mem::take(&mut self.path);
            let mut parts = Vec::new();
            for kid in running {
                self.now = begun;
                self.stop(kid);
                done = done.max(self.now);
                parts.push(Order::Each(std::mem::take(&mut self.path)));
            }
            self.now = done;
            self.path = path;
            self.path.push(Order::Beside(parts));
        } else {
            running.into_iter().for_each(|kid| self.stop(kid));
        }
        self.gone(id);
    }

    /// Kills a supervisor. Its children learn of it by their links, and exit in their own time.
    fn vanish(&mut self, id: Id) {
        for kid in self.running(id, 0) {
            let (now, path) = (self.now, std::mem::take(&mut self.path));
            match self.tree.regime(kid) {
                Some(_) => self.retire(kid),
                None => self.ended(kid),
            }
            self.now = now;
            let own = std::mem::replace(&mut self.path, path);
            self.aside.push(Order::Each(own));
        }
        self.gone(id);
    }

    fn gone(&mut self, id: Id) {
        self.states[id].is_alive = false;
        self.states[id].kids.clear();
    }

    fn ended(&mut self, id: Id) {
        let state = &mut self.states[id];
        state.is_alive = false;
        self.path.push(Order::One(Event::Ended(id, state.incarnation)));
    }

    /// Has a supervisor act on the exit of a child that it did not stop.
    fn exited(&mut self, id: Id, orderly: bool) {
        let Some(parent) = self.tree.nodes[id].parent else { return };
        let tree = self.tree;
        let restarts = match tree.nodes[id].restart {
            Restart::Permanent => true,
            Restart::Transient => !orderly,
            Restart::Temporary => false,
        };
        if restarts {
            return self.restart(parent, id);
        }
        self.ended_for_good(id);
        let is_significant =
            |id: Id| tree.nodes[id].significant && tree.nodes[id].restart != Restart::Permanent;
        let auto = tree.regime(parent).map_or(AutoShutdown::Never, |regime| regime.auto);
        let is_over = match auto {
            AutoShutdown::Never => false,
            AutoShutdown::AnySignificant => true,
            AutoShutdown::AllSignificant => {
                !self.running(parent, 0).into_iter().any(is_significant)
            }
        };
        if is_significant(id) && is_over {
            self.give_up(parent);
        }
    }

    fn restart(&mut self, parent: Id, id: Id) {
        let tree = self.tree;
        let Some(regime) = tree.regime(parent) else { return };
        let mut id = id;
        loop {
            self.keep(id, Kept::Restarting);
            let (now, period) = (self.now, regime.period);
            let restarts = &mut self.states[parent].restarts;
            self.in_doubt |= restarts.iter().any(|at| (now - at).abs_diff(period) < DOUBT);
            restarts.retain(|at| now - at <= period);
            restarts.push(now);
            if restarts.len() > regime.intensity as usize {
                self.ended_for_good(id);
                self.counts.given_up += 1;
                return self.give_up(parent);
            }
            self.counts.restarts += 1;
            let first = match regime.strategy {
                Strategy::OneForOne | Strategy::Dynamic => {
                    if self.start(id) {
                        return self.keep(id, Kept::Running);
                    }
                    continue;
                }
                Strategy::OneForAll => 0,
                Strategy::RestForOne => {
                    let kids = &self.states[parent].kids;
                    kids.iter().position(|kid| kid.id == id).unwrap_or(kids.len())
                }
            };
            self.keep(id, Kept::Stopped);
            for kid in self.running(parent, first) {
                self.stop(kid);
                self.keep(kid, Kept::Stopped);
            }
            // Temporary children are forgotten.
            let mut place = 0;
            self.states[parent].kids.retain(|kid| {
                place += 1;
                place <= first || tree.nodes[kid.id].restart != Restart::Temporary
            });
            let again: Vec<Id> =
                self.states[parent].kids[first..].iter().map(|kid| kid.id).collect();
            let failed = again.into_iter().find(|&kid| {
                let has_started = self.start(kid);
                self.keep(kid, if has_started { Kept::Running } else { Kept::Restarting });
                !has_started
            });
            match failed {
                // Starting the failed child again counts as another restart.
                Some(failed) => id = failed,
                None => return,
            }
        }
    }

    /// Has a supervisor exit by its own decision.
    fn give_up(&mut self, id: Id) {
        self.retire(id);
        self.exited(id, true);
    }

    /// Marks a child as stopped, or forgets it if its supervisor does not keep it.
    fn ended_for_good(&mut self, id: Id) {
        match self.kid(id) {
            Some(kid) if kid.is_named && self.tree.nodes[id].restart != Restart::Temporary => {
                self.keep(id, Kept::Stopped);
            }
            _ => self.forget(id),
        }
    }

    fn forget(&mut self, id: Id) {
        if let Some(parent) = self.tree.nodes[id].parent {
            self.states[parent].kids.retain(|kid| kid.id != id);
        }
    }

    fn keep(&mut self, id: Id, kept: Kept) {
        let Some(parent) = self.tree.nodes[id].parent else { return };
        let kid = self.states[parent].kids.iter_mut().find(|kid| kid.id == id);
        if let Some(kid) = kid {
            kid.kept = kept;
        }
    }

    fn kid(&self, id: Id) -> Option<Kid> {
        let parent = self.tree.nodes[id].parent?;
        self.states[parent].kids.iter().find(|kid| kid.id == id).copied()
    }

    /// Returns the running children from place `first` on, in the order of stopping.
    fn running(&self, id: Id, first: usize) -> Vec<Id> {
        let kids = self.states[id].kids.get(first..).unwrap_or_default();
        kids.iter().rev().filter(|kid| kid.kept == Kept::Running).map(|kid| kid.id).collect()
    }
}

impl Order {
    /// Compares the prediction with the events that happened.
    ///
    /// # Errors
    /// If an event is missing, unexpected, repeated or in the wrong order.
    pub(crate) fn compare(&self, happened: &[Event]) -> Result<(), String> {
        let mut places = HashMap::new();
        for (place, &event) in happened.iter().enumerate() {
            if places.insert(event, place).is_some() {
                return Err(format!("{event:?} has happened twice"));
            }
        }
        let mut expected = 0;
        self.span(&places, &mut expected)?;
        if expected < happened.len() {
            return Err(format!("too many events: {happened:?} instead of {self:?}"));
        }
        Ok(())
    }

    /// Returns the first and the last place of the events in this order.
    fn span(
        &self,
        places: &HashMap<Event, usize>,
        count: &mut usize,
    ) -> Result<Option<(usize, usize)>, String> {
        match self {
            Order::One(event) => {
                *count += 1;
                let place = places.get(event);
                let &place = place.ok_or_else(|| format!("{event:?} has not happened"))?;
                Ok(Some((place, place)))
            }
            Order::Each(parts) => {
                let mut whole: Option<(usize, usize)> = None;
                for part in parts {
                    let Some((first, last)) = part.span(places, count)? else { continue };
                    if whole.is_some_and(|(_, before)| before > first) {
                        return Err(format!("{part:?} has happened too early"));
                    }
                    whole = Some((whole.map_or(first, |(first, _)| first), last));
                }
                Ok(whole)
            }
            Order::Beside(parts) => {
                let mut whole: Option<(usize, usize)> = None;
                for part in parts {
                    let Some((first, last)) = part.span(places, count)? else { continue };
                    let (low, high) = whole.unwrap_or((first, last));
                    whole = Some((low.min(first), high.max(last)));
                }
                Ok(whole)
            }
        }
    }
}
