//! [`Order`]: which job of a queue starts next. Pure.
//!
//! ```text
//!  store: jobs by id ──read──▶ ready ──next──▶ running ──ended──▶
//!              ▲     from        │ ▲                │
//!              │                 ▼ └── a place ─────┘
//!              └─(too many)   blocked: the jobs of a key that runs at its limit
//! ```
//!
//! Invariants: each job with an id below `unread` is ready, blocked or running; at most `KNOWN_MAX` jobs are ready or
//! blocked. A job is moved a bounded number of times for each job that starts, however many are blocked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::JobId;

/// Most jobs that are ready or blocked in memory.
const KNOWN_MAX: usize = 100_000;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Most jobs that run.
    pub(super) running: usize,
    /// Most jobs of a key that run.
    pub(super) per_key: usize,
    /// Most jobs that start in so many milliseconds.
    pub(super) rate: Option<(u32, u64)>,
}

/// Key of jobs that share a limit.
pub(super) type Key = Option<Arc<str>>;

/// The jobs that may start, and those that run; see the file's head.
#[derive(Debug)]
pub(super) struct Order {
    bounds: Bounds,
    known_max: usize,
    ready: BTreeMap<JobId, Key>,
    blocked: HashMap<Arc<str>, BTreeSet<JobId>>,
    blocked_jobs: usize,
    running: HashMap<JobId, Key>,
    running_of: HashMap<Arc<str>, usize>,
    /// The first id that was not read from the store; `None` if the store has no job that is not known.
    unread: Option<JobId>,
    /// Begin of the period of the rate, and number of jobs that have started in it.
    period: (u64, u32),
}

/// Next step of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Start(JobId),
    /// The rate allows the next start at this time.
    At(u64),
    /// No job may start before one ends or another one comes.
    Nothing,
}

impl Order {
    /// Returns the order of a queue of which nothing is known but the jobs that run.
    pub(super) fn new(bounds: Bounds, running: impl IntoIterator<Item = (JobId, Key)>) -> Order {
        let mut own = Order {
            bounds,
            known_max: KNOWN_MAX,
            ready: BTreeMap::new(),
            blocked: HashMap::new(),
            blocked_jobs: 0,
            running: HashMap::new(),
            running_of: HashMap::new(),
            unread: Some(JobId::FIRST),
            period: (0, 0),
        };
        running.into_iter().for_each(|(id, key)| own.run(id, key));
        own
    }

    fn run(&mut self, id: JobId, key: Key) {
        if let Some(key) = &key {
            *self.running_of.entry(key.clone()).or_default() += 1;
        }
        self.running.insert(id, key);
    }

    /// Number of jobs that run.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Adds a job that is in the store; one that is known already is left as it is.
    pub(super) fn offer(&mut self, id: JobId, key: Key) {
        if self.unread.is_none_or(|unread| id < unread) {
            self.add(id, key);
        }
    }

    fn add(&mut self, id: JobId, key: Key) {
        let is_blocked =
            |key: &Arc<str>| self.blocked.get(key).is_some_and(|own| own.contains(&id));
        if self.running.contains_key(&id) || key.as_ref().is_some_and(is_blocked) {
            return;
        }
        self.ready.insert(id, key);
        if self.ready.len() + self.blocked_jobs > self.known_max
            && let Some((last, _)) = self.ready.pop_last()
        {
            self.unread = Some(self.unread.map_or(last, |unread| unread.min(last)));
        }
    }

    /// Returns the id from which jobs are to be read, if some are wanted.
    pub(super) fn wants(&self) -> Option<JobId> {
        let is_wanting = self.ready.is_empty()
            && self.running.len() < self.bounds.running
            && self.blocked_jobs < self.known_max;
        self.unread.filter(|_| is_wanting)
    }

    /// Adds jobs that were read, all that the store has from the wanted id up to `through`, or to the end.
    pub(super) fn read(
        &mut self,
        jobs: impl IntoIterator<Item = (JobId, Key)>,
        through: Option<JobId>,
    ) {
        self.unread = through.map(JobId::next);
        for (id, key) in jobs {
            self.offer(id, key);
        }
    }

    /// Returns the job that starts at this time, which runs from here on.
    pub(super) fn next(&mut self, now: u64) -> Next {
        while self.running.len() < self.bounds.running {
            let Some((id, key)) = self.ready.pop_first() else { return Next::Nothing };
            let of_key = |key: &Arc<str>| self.running_of.get(key).copied().unwrap_or(0);
            if let Some(key) = key.as_ref().filter(|key| of_key(key) >= self.bounds.per_key) {
                self.blocked.entry(key.clone()).or_default().insert(id);
                self.blocked_jobs += 1;
                continue;
            }
            if let Some(at) = self.rate_allows(now) {
                self.ready.insert(id, key);
                return Next::At(at);
            }
            self.run(id, key);
            return Next::Start(id);
        }
        Next::Nothing
    }

    /// Counts a start; returns the time from which one is allowed if none is now.
    fn rate_allows(&mut self, now: u64) -> Option<u64> {
        let (most, time) = self.bounds.rate?;
        let (begin, started) = &mut self.period;
        // A clock that was set back begins a period as well.
        if *started == 0 || now < *begin || now - *begin >= time {
            (*begin, *started) = (now, 0);
        }
        if *started >= most {
            return Some(begin.saturating_add(time));
        }
        *started += 1;
        None
    }

    /// Notes that a job does not run any more.
    pub(super) fn ended(&mut self, id: JobId) {
        let Some(key) = self.running.remove(&id) else { return };
        let Some(key) = key else { return };
        if let Some(running) = self.running_of.get_mut(&key) {
            *running -= 1;
            if *running == 0 {
                self.running_of.remove(&key);
            }
        }
        self.promote(&key);
    }

    /// Forgets a job that is not in the store any more, unless it runs.
    pub(super) fn remove(&mut self, id: JobId, key: &Key) {
        let was_ready = self.ready.remove(&id).is_some();
        let Some(key) = key else { return };
        match was_ready {
            // It may have been the one for which its key has a place.
            true => self.promote(key),
            false => _ = self.take_blocked(key, |own| own.take(&id)),
        }
    }

    /// Makes a blocked job of a key ready.
    fn promote(&mut self, key: &Arc<str>) {
        if let Some(first) = self.take_blocked(key, BTreeSet::pop_first) {
            self.ready.insert(first, Some(key.clone()));
        }
    }

    fn take_blocked(
        &mut self,
        key: &Arc<str>,
        take: impl FnOnce(&mut BTreeSet<JobId>) -> Option<JobId>,
    ) -> Option<JobId> {
        let own = self.blocked.get_mut(key)?;
        let taken = take(own)?;
        self.blocked_jobs -= 1;
        if own.is_empty() {
            self.blocked.remove(key);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A queue by its definition: all jobs in a list.
    #[derive(Default)]
    struct Model {
        waiting: BTreeMap<JobId, Key>,
        running: BTreeMap<JobId, Key>,
    }

    impl Model {
        fn of_key(&self, key: &str) -> usize {
            self.running.values().filter(|own| own.as_deref() == Some(key)).count()
        }

        fn may_start(&self, key: &Key, bounds: &Bounds) -> bool {
            key.as_ref().is_none_or(|key| self.of_key(key) < bounds.per_key)
        }

        fn next(&self, bounds: &Bounds) -> Option<JobId> {
            let may_start = |own: &(&JobId, &Key)| self.may_start(own.1, bounds);
            let first = || self.waiting.iter().find(may_start).map(|(id, _)| *id);
            (self.running.len() < bounds.running).then(first).flatten()
        }
    }

    #[derive(Clone, Debug)]
    enum Action {
        Push {
            priority: u8,
            key: Option<u8>,
        },
        /// Ends the n-th job that runs.
        End(usize),
        /// Removes the n-th job that waits.
        Remove(usize),
        Start,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            3 => (0..3u8, prop::option::of(0..3u8))
                .prop_map(|(priority, key)| Action::Push { priority, key }),
            2 => (0..9usize).prop_map(Action::End),
            1 => (0..9usize).prop_map(Action::Remove),
            3 => Just(Action::Start),
        ]
    }

    /// Reads jobs as an activation does, `at_once` at a time.
    fn read(order: &mut Order, model: &Model, at_once: usize) {
        while let Some(from) = order.wants() {
            let jobs = model.waiting.range(from..).chain(model.running.range(from..));
            let mut jobs: Vec<_> = jobs.map(|(id, key)| (*id, key.clone())).collect();
            jobs.sort();
            let is_end = jobs.len() <= at_once;
            jobs.truncate(at_once);
            let through = jobs.last().map(|(id, _)| *id).filter(|_| !is_end);
            order.read(jobs, through);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn the_first_job_that_may_start_does(
            actions in prop::collection::vec(action(), 1..120),
            running in 1..4usize,
            per_key in 1..3usize,
            known_max in prop_oneof![Just(2usize), Just(1_000)],
            at_once in 1..4usize,
        ) {
            let bounds = Bounds { running, per_key, rate: None };
            let mut order = Order { known_max, ..Order::new(bounds, []) };
            let (mut model, mut pushed) = (Model::default(), 0);
            let mut step = |order: &mut Order, model: &mut Model, action| {
                match action {
                    Action::Push { priority, key } => {
                        pushed += 1;
                        let id = JobId::new(priority, pushed);
                        let key: Key = key.map(|key| key.to_string().into());
                        model.waiting.insert(id, key.clone());
                        order.offer(id, key);
                    }
                    Action::End(nth) => {
                        if let Some(id) = model.running.keys().nth(nth).copied() {
                            model.running.remove(&id);
                            order.ended(id);
                        }
                    }
                    Action::Remove(nth) => {
                        if let Some(id) = model.waiting.keys().nth(nth).copied() {
                            let key = model.waiting.remove(&id).unwrap();
                            order.remove(id, &key);
                        }
                    }
                    Action::Start => {
                        let started = loop {
                            read(order, model, at_once);
                            match order.next(0) {
                                Next::Start(id) => break Some(id),
                                // All that was read is blocked.
                                _ if order.wants().is_some() => {}
                                _ => break None,
                            }
                        };
                        // With all in memory, the order is that of the model.
                        if known_max > 2 {
                            assert_eq!(started, model.next(&bounds));
                        }
                        if let Some(id) = started {
                            let key = model.waiting.remove(&id).expect("it waits");
                            assert!(model.running.len() < bounds.running);
                            assert!(model.may_start(&key, &bounds));
                            model.running.insert(id, key);
                        }
                        assert!(order.ready.len() + order.blocked_jobs <= known_max.max(at_once));
                    }
                }
            };
            for action in actions {
                step(&mut order, &mut model, action);
            }
            // None is left over.
            for _ in 0..300 {
                step(&mut order, &mut model, Action::Start);
                step(&mut order, &mut model, Action::End(0));
            }
            prop_assert!(model.waiting.is_empty(), "{:?} {:?}", model.waiting, order);
        }
    }

    #[test]
    fn so_many_start_in_a_period_and_no_more() {
        let bounds = Bounds { running: 100, per_key: 1, rate: Some((2, 1_000)) };
        let mut order = Order::new(bounds, []);
        let id = |number| JobId::new(0, number);
        order.read((1..=5).map(|number| (id(number), None)), None);
        assert_eq!([order.next(500), order.next(600)], [Next::Start(id(1)), Next::Start(id(2))]);
        assert_eq!(order.next(1_499), Next::At(1_500));
        assert_eq!(order.next(1_500), Next::Start(id(3)));
        // The clock was set back.
        assert_eq!([order.next(7), order.next(8)], [Next::Start(id(4)), Next::Start(id(5))]);
        assert_eq!(order.next(9), Next::Nothing);
    }

    #[test]
    fn the_longest_period_never_ends() {
        let bounds = Bounds { running: 100, per_key: 1, rate: Some((1, u64::MAX)) };
        let mut order = Order::new(bounds, []);
        let id = |number| JobId::new(0, number);
        order.read((1..=2).map(|number| (id(number), None)), None);
        assert_eq!(order.next(500), Next::Start(id(1)));
        assert_eq!(order.next(u64::MAX - 1), Next::At(u64::MAX));
    }
}
