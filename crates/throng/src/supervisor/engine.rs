//! The decisions of a supervisor: which children to stop, which to start, in which order, and when
//! to give up. The engine has no process, no clock and never waits: the time is an argument, and a
//! decision is a value, a [`Verdict`], that the caller carries out.
//!
//! ```text
//!              started                 exited, to be restarted
//!   Stopped ─────────────▶ Running(pid) ──────────────────────▶ Restarting ─┐
//!      ▲                      │   ▲                                │        │ retry
//!      └── exited for good, ──┘   └──────────── started ───────────┘◀───────┘
//!          or stopped on purpose: forgotten if temporary or nameless
//! ```
//!
//! Invariants:
//! 1. Children are kept in the order in which they were added. They start in this order and stop in
//!    the reverse order.
//! 2. `running` has exactly the children in `Running`, by pid; `names` has exactly the children
//!    with a name.
//! 3. Under [`Strategy::OneForOne`] and [`Strategy::Dynamic`] the exit of a child visits no other
//!    child: a restart costs O(log n).

use super::spec::{AutoShutdown, Restart};
use crate::signal::registry::Name;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

/// The children that are restarted after the death of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strategy {
    /// Restart only the dead child.
    OneForOne,
    /// Restarts all children.
    OneForAll,
    /// Restarts the dead child and the children started after it.
    RestForOne,
    /// Restart only the dead child; at the supervisor's end all children are stopped at once.
    Dynamic,
}

/// A child's place in the order of starting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key(u64);

/// Run state of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunState<T> {
    /// Not started, stopped on purpose, or ended for good.
    Stopped,
    Running(T),
    /// Died, and not started successfully since.
    Restarting,
}

/// The engine's entry for a child. The engine does not use `content`, which is the caller's.
#[derive(Debug)]
pub(crate) struct Child<T, C> {
    pub(crate) name: Option<Name>,
    pub(crate) restart: Restart,
    pub(crate) significant: bool,
    pub(crate) state: RunState<T>,
    pub(crate) content: C,
}

/// A decision of the engine, for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Verdict {
    Nothing,
    /// Restart this child.
    Restart(Key),
    /// Stop the running children in `stop`, in that order. When they are gone, start the children
    /// in `start`, in that order.
    RestartMany {
        stop: Vec<Key>,
        start: Vec<Key>,
    },
    /// Stop all children, and exit.
    Exit(Cause),
}

/// The reason for which a supervisor exits by its own decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// More restarts were needed than the intensity allows.
    Intensity,
    /// Significant children have ended; see [`AutoShutdown`].
    AutoShutdown,
}

/// The settings of a supervisor, without its children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) strategy: Strategy,
    pub(crate) auto_shutdown: AutoShutdown,
    pub(crate) intensity: u32,
    pub(crate) period: Duration,
}

/// A supervisor's table of children, and its rules. `T` names a running process.
#[derive(Debug)]
pub(crate) struct Engine<T, C> {
    settings: Settings,
    restarts: Window,
    children: BTreeMap<Key, Child<T, C>>,
    names: HashMap<Name, Key>,
    running: HashMap<T, Key>,
    /// Number of significant children that are not `Stopped`.
    significant: usize,
    next: u64,
}

impl<T: Copy + Eq + Hash, C> Engine<T, C> {
    pub(crate) fn new(settings: Settings) -> Self {
        Engine {
            settings,
            restarts: Window::default(),
            children: BTreeMap::new(),
            names: HashMap::new(),
            running: HashMap::new(),
            significant: 0,
            next: 0,
        }
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.settings.strategy
    }

    /// Adds a child, `Stopped`, as the last in the order of starting.
    ///
    /// # Errors
    /// The key of the child that already has this name, and the content back.
    pub(crate) fn add(
        &mut self,
        name: Option<Name>,
        restart: Restart,
        significant: bool,
        content: C,
    ) -> Result<Key, (Key, C)> {
        if let Some(&taken) = name.as_ref().and_then(|name| self.names.get(name)) {
            return Err((taken, content));
        }
        let key = Key(self.next);
        self.next += 1;
        if let Some(name) = &name {
            self.names.insert(name.clone(), key);
        }
        let state = RunState::Stopped;
        // A permanent child is always restarted, so `AllSignificant` would wait for it for ever.
        let significant = significant && restart != Restart::Permanent;
        self.children.insert(key, Child { name, restart, significant, state, content });
        Ok(key)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Child<T, C>> {
        self.children.get(&key)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Key> {
        self.names.get(name).copied()
    }

    pub(crate) fn by_pid(&self, pid: T) -> Option<Key> {
        self.running.get(&pid).copied()
    }

    /// Iterates over all children in the order of starting (invariant 1).
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Key, &Child<T, C>)> {
        self.children.iter().map(|(key, child)| (*key, child))
    }

    pub(crate) fn len(&self) -> (usize, usize) {
        (self.children.len(), self.running.len())
    }

    /// Returns the running children in the order of stopping (invariant 1).
    pub(crate) fn stop_order(&self) -> Vec<Key> {
        self.iter().rev().filter(|(_, child)| is_running(child)).map(|(key, _)| key).collect()
    }

    pub(crate) fn started(&mut self, key: Key, pid: T) {
        if self.set(key, RunState::Running(pid)) {
            self.running.insert(pid, key);
        }
    }

    /// Records that a *restart* of a child has failed; the caller must call [`retry`](Self::retry)
    /// later.
    pub(crate) fn start_failed(&mut self, key: Key) {
        self.set(key, RunState::Restarting);
    }

    /// Records that a child has been stopped to be restarted together with others. A temporary
    /// child is forgotten.
    pub(crate) fn halted(&mut self, key: Key) {
        match self.children.get(&key).map(|child| child.restart) {
            Some(Restart::Temporary) => drop(self.remove(key)),
            _ => drop(self.set(key, RunState::Stopped)),
        }
    }

    /// Records that a child has been stopped on request, or has ended and is not restarted. A
    /// temporary or nameless child is forgotten.
    pub(crate) fn stopped(&mut self, key: Key) {
        match self.children.get(&key) {
            // Without a name, no request could start the child again.
            Some(child) if child.name.is_none() => drop(self.remove(key)),
            _ => self.halted(key),
        }
    }

    /// Forgets a child, running or not.
    pub(crate) fn remove(&mut self, key: Key) -> Option<C> {
        self.set(key, RunState::Stopped);
        let child = self.children.remove(&key)?;
        if let Some(name) = &child.name {
            self.names.remove(name);
        }
        Some(child.content)
    }

    /// Handles the exit of a process. A pid of no child gives [`Verdict::Nothing`].
    ///
    /// `orderly` is true if the exit reason is that of a process that has done its work.
    pub(crate) fn exited(&mut self, pid: T, orderly: bool, now: Duration) -> Verdict {
        let Some(key) = self.by_pid(pid) else { return Verdict::Nothing };
        let Some(child) = self.children.get(&key) else { return Verdict::Nothing };
        let significant = child.significant;
        let restarts = match child.restart {
            Restart::Permanent => true,
            Restart::Transient => !orderly,
            Restart::Temporary => false,
        };
        if restarts {
            self.set(key, RunState::Restarting);
            return self.restart(key, now);
        }
        self.stopped(key);
        let exit = significant
            && match self.settings.auto_shutdown {
                AutoShutdown::Never => false,
                AutoShutdown::AnySignificant => true,
                AutoShutdown::AllSignificant => self.significant == 0,
            };
        if exit { Verdict::Exit(Cause::AutoShutdown) } else { Verdict::Nothing }
    }

    /// Decides on another attempt after a failed restart of a child; counts as a restart.
    pub(crate) fn retry(&mut self, key: Key, now: Duration) -> Verdict {
        match self.children.get(&key) {
            Some(Child { state: RunState::Restarting, .. }) => self.restart(key, now),
            // The child was stopped, forgotten or started meanwhile.
            _ => Verdict::Nothing,
        }
    }

    fn restart(&mut self, key: Key, now: Duration) -> Verdict {
        let Settings { intensity, period, .. } = self.settings;
        if self.restarts.add(now, period) > intensity as usize {
            self.stopped(key);
            return Verdict::Exit(Cause::Intensity);
        }
        let first = match self.settings.strategy {
            Strategy::OneForOne | Strategy::Dynamic => return Verdict::Restart(key),
            Strategy::OneForAll => Key(0),
            Strategy::RestForOne => key,
        };
        // `Stopped`, not `Restarting`: the first child in `start` that fails, this child or
        // another, is set to `Restarting` by `start_failed`, and that child is tried again.
        self.set(key, RunState::Stopped);
        let affected = || self.children.range(first..);
        let stop = affected().rev().filter(|(_, child)| is_running(child)).map(|(key, _)| *key);
        let start = affected()
            .filter(|(_, child)| child.restart != Restart::Temporary)
            .map(|(key, _)| *key);
        Verdict::RestartMany { stop: stop.collect(), start: start.collect() }
    }

    /// Changes a child's state, and updates `running` and `significant` except for a new running
    /// pid, which `started` inserts. False if there is no such child.
    fn set(&mut self, key: Key, state: RunState<T>) -> bool {
        let Some(child) = self.children.get_mut(&key) else { return false };
        let before = std::mem::replace(&mut child.state, state);
        if let RunState::Running(pid) = before {
            self.running.remove(&pid);
        }
        if child.significant {
            self.significant += usize::from(!matches!(child.state, RunState::Stopped));
            self.significant -= usize::from(!matches!(before, RunState::Stopped));
        }
        true
    }
}

fn is_running<T, C>(child: &Child<T, C>) -> bool {
    matches!(child.state, RunState::Running(_))
}

/// Times of the restarts that still count, oldest first. A restart exactly as old as the period
/// counts.
///
/// At most intensity + 1 entries, because the supervisor exits when the intensity is exceeded.
#[derive(Debug, Default)]
struct Window(VecDeque<Duration>);

impl Window {
    /// Records a restart; returns the number of restarts that count.
    fn add(&mut self, now: Duration, period: Duration) -> usize {
        while self.0.front().is_some_and(|&at| now.saturating_sub(at) > period) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Just, any, prop, prop_oneof, proptest};
    use proptest::strategy::Strategy as Generator;

    const SECOND: Duration = Duration::from_secs(1);

    fn engine(strategy: Strategy, intensity: u32) -> Engine<u32, &'static str> {
        let auto_shutdown = AutoShutdown::Never;
        Engine::new(Settings { strategy, auto_shutdown, intensity, period: 5 * SECOND })
    }

    /// An engine with permanent children a, b, c, d running as pids 1, 2, 3, 4.
    fn four(strategy: Strategy) -> (Engine<u32, &'static str>, [Key; 4]) {
        let mut engine = engine(strategy, 10);
        let keys = ["a", "b", "c", "d"].map(|name| {
            engine.add(Some(name.into()), Restart::Permanent, false, name).expect("a new name")
        });
        for (key, pid) in keys.into_iter().zip(1..) {
            engine.started(key, pid);
        }
        (engine, keys)
    }

    fn state(engine: &Engine<u32, &'static str>, key: Key) -> RunState<u32> {
        engine.get(key).expect("known").state
    }

    #[test]
    fn one_for_one_restarts_only_the_dead_child() {
        let (mut engine, [_, b, ..]) = four(Strategy::OneForOne);
        assert_eq!(engine.exited(2, false, SECOND), Verdict::Restart(b));
        assert_eq!(state(&engine, b), RunState::Restarting);
        engine.started(b, 9);
        assert_eq!(engine.exited(2, false, SECOND), Verdict::Nothing, "an old incarnation");
        assert_eq!(engine.exited(9, true, SECOND), Verdict::Restart(b), "permanent");
    }

    #[test]
    fn transient_children_restart_only_after_a_fault_and_keep_their_place() {
        let mut engine = engine(Strategy::OneForOne, 10);
        let key = engine.add(Some("t".into()), Restart::Transient, false, "t").expect("new");
        engine.started(key, 1);
        assert_eq!(engine.exited(1, false, SECOND), Verdict::Restart(key));
        engine.started(key, 2);
        assert_eq!(engine.exited(2, true, SECOND), Verdict::Nothing);
        assert_eq!(state(&engine, key), RunState::Stopped);
        let nameless = engine.add(None, Restart::Transient, false, "n").expect("new");
        engine.started(nameless, 3);
        assert_eq!(engine.exited(3, true, SECOND), Verdict::Nothing);
        assert!(engine.get(nameless).is_none(), "without a name it cannot be started again");
    }

    #[test]
    fn a_restart_above_the_intensity_is_too_many_and_old_restarts_are_forgotten() {
        let mut engine = engine(Strategy::OneForOne, 2);
        let key = engine.add(Some("a".into()), Restart::Permanent, false, "a").expect("new");
        for (pid, second) in [(1, 0), (2, 1)] {
            engine.started(key, pid);
            assert_eq!(engine.exited(pid, false, second * SECOND), Verdict::Restart(key));
        }
        engine.started(key, 3);
        // The first restart is six seconds old, the second exactly five.
        assert_eq!(engine.exited(3, false, 6 * SECOND), Verdict::Restart(key));
        engine.started(key, 4);
        assert_eq!(engine.exited(4, false, 6 * SECOND), Verdict::Exit(Cause::Intensity));
    }

    #[test]
    fn of_many_starts_the_failed_start_is_tried_again() {
        let (mut engine, [a, b, c, d]) = four(Strategy::OneForAll);
        let Verdict::RestartMany { stop, .. } = engine.exited(4, false, SECOND) else {
            panic!("all restart")
        };
        stop.into_iter().for_each(|key| engine.halted(key));
        engine.started(a, 11);
        engine.start_failed(b);
        assert_eq!((state(&engine, c), state(&engine, d)), (RunState::Stopped, RunState::Stopped));
        assert_eq!(engine.retry(d, SECOND), Verdict::Nothing);
        let (stop, start) = (vec![a], vec![a, b, c, d]);
        assert_eq!(engine.retry(b, SECOND), Verdict::RestartMany { stop, start });
        engine.stopped(b);
        assert_eq!(engine.retry(b, SECOND), Verdict::Nothing, "stopped on purpose meanwhile");
    }

    /// An event of a supervisor. Numbers choose among the children that exist at that time.
    #[derive(Clone, Debug)]
    enum Event {
        Add(Restart, bool),
        Exit(usize, bool),
        Stop(usize),
        Remove(usize),
        Retry(usize),
        Wait(u8),
    }

    fn event() -> impl Generator<Value = Event> {
        let restart = prop_oneof![
            Just(Restart::Permanent),
            Just(Restart::Transient),
            Just(Restart::Temporary)
        ];
        prop_oneof![
            4 => (restart, any::<bool>()).prop_map(|(restart, named)| Event::Add(restart, named)),
            6 => (any::<usize>(), any::<bool>()).prop_map(|(at, orderly)| Event::Exit(at, orderly)),
            1 => any::<usize>().prop_map(Event::Stop),
            1 => any::<usize>().prop_map(Event::Remove),
            3 => any::<usize>().prop_map(Event::Retry),
            2 => (0..4u8).prop_map(Event::Wait),
        ]
    }

    /// A simulated caller of the engine that carries out verdicts; its starts fail now and then.
    struct World {
        engine: Engine<u32, u32>,
        pids: u32,
        fails: Vec<bool>,
        now: Duration,
        /// Times of all requested restarts, to be compared with the engine's window.
        restarts: Vec<Duration>,
    }

    impl World {
        fn start(&mut self, key: Key) -> bool {
            if self.fails.pop().unwrap_or(false) {
                self.engine.start_failed(key);
                return false;
            }
            self.pids += 1;
            self.engine.started(key, self.pids);
            true
        }

        /// Carries out a verdict; false if the supervisor exits.
        fn carry_out(&mut self, verdict: Verdict, intensity: usize) -> bool {
            if verdict != Verdict::Nothing {
                self.restarts.push(self.now);
                let period = 5 * SECOND;
                let recent = self.restarts.iter().filter(|&&at| self.now - at <= period).count();
                assert_eq!(verdict == Verdict::Exit(Cause::Intensity), recent > intensity);
            }
            match verdict {
                Verdict::Nothing => true,
                Verdict::Exit(_) => false,
                Verdict::Restart(key) => {
                    self.start(key);
                    true
                }
                Verdict::RestartMany { stop, start } => {
                    assert!(stop.is_sorted_by(|a, b| a > b), "in reverse");
                    assert!(start.is_sorted_by(|a, b| a < b), "in order");
                    for key in stop {
                        assert!(is_running(self.engine.get(key).expect("known")));
                        self.engine.halted(key);
                    }
                    let _ = start.into_iter().all(|key| self.start(key));
                    true
                }
            }
        }

        fn check(&self) {
            let running: HashMap<u32, Key> = self
                .engine
                .iter()
                .filter_map(|(key, child)| match child.state {
                    RunState::Running(pid) => Some((pid, key)),
                    _ => None,
                })
                .collect();
            assert_eq!(self.engine.running, running);
            let names =
                self.engine.iter().filter_map(|(key, child)| Some((child.name.clone()?, key)));
            assert_eq!(self.engine.names, names.collect());
            let stopped = |child: &Child<u32, u32>| matches!(child.state, RunState::Stopped);
            let significant =
                self.engine.iter().filter(|(_, child)| child.significant && !stopped(child));
            assert_eq!(self.engine.significant, significant.count());
            assert!(self.engine.restarts.0.len() <= self.restarts.len());
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_the_table_is_consistent_and_the_intensity_is_kept(
            strategy in prop_oneof![
                Just(Strategy::OneForOne), Just(Strategy::OneForAll),
                Just(Strategy::RestForOne), Just(Strategy::Dynamic),
            ],
            intensity in 0..6u32,
            events in prop::collection::vec(event(), 1..60),
            fails in prop::collection::vec(any::<bool>(), 0..30),
        ) {
            let settings = Settings {
                strategy, auto_shutdown: AutoShutdown::Never, intensity, period: 5 * SECOND,
            };
            let (engine, now) = (Engine::new(settings), Duration::ZERO);
            let mut world = World { engine, pids: 0, fails, now, restarts: Vec::new() };
            for (index, event) in events.into_iter().enumerate() {
                let keys = world.engine.iter().map(|(key, _)| key).collect::<Vec<_>>();
                let pick = |at: usize| (!keys.is_empty()).then(|| keys[at % keys.len()]);
                let verdict = match event {
                    Event::Add(restart, named) => {
                        let name = named.then(|| Name::from(format!("child {index}")));
                        let key = world.engine.add(name, restart, named, 0).expect("a new name");
                        if !world.start(key) {
                            world.engine.remove(key);
                        }
                        Verdict::Nothing
                    }
                    Event::Exit(at, orderly) => {
                        match pick(at).and_then(|key| world.engine.get(key)).map(|it| it.state) {
                            Some(RunState::Running(pid)) => world.engine.exited(pid, orderly, world.now),
                            _ => Verdict::Nothing,
                        }
                    }
                    Event::Stop(at) => {
                        pick(at).into_iter().for_each(|key| world.engine.stopped(key));
                        Verdict::Nothing
                    }
                    Event::Remove(at) => {
                        pick(at).and_then(|key| world.engine.remove(key));
                        Verdict::Nothing
                    }
                    Event::Retry(at) => {
                        pick(at).map_or(Verdict::Nothing, |key| world.engine.retry(key, world.now))
                    }
                    Event::Wait(seconds) => {
                        world.now += u32::from(seconds) * SECOND;
                        Verdict::Nothing
                    }
                };
                if !world.carry_out(verdict, intensity as usize) {
                    break;
                }
                world.check();
            }
        }
    }
}
