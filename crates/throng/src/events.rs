//! Events on their way to the `tracing` subscriber.
//!
//! ```text
//! worker ───────┐
//! clock thread ─┼─► rate limit ─► queue ─► reporter thread ─► subscriber (user code)
//! supervisor ───┘
//! ```
//!
//! A subscriber may block or panic. So neither a worker nor the clock thread calls it: an event is
//! queued as a closure, and the reporter, a thread started with the first event, runs the closure.
//! Without a subscriber nothing is queued and no thread is started.
//!
//! Invariants:
//! 1. Reporting an event does not wait for a subscriber and does not unwind.
//! 2. No user code runs under the lock.
//! 3. At most [`RATE`] events of the same kind about the same subject are queued in each
//!    [`WINDOW`], and at most [`QUEUED_MOST`] in all. A separate event reports the number left out.

use crate::exit::catch;
use crate::sync::{Condvar, Epoch, JoinHandle, Mutex, PoisonError, ThreadBuilder, lock};
use std::any::TypeId;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;
use tracing::level_filters::LevelFilter;

/// Maximum number of events of the same kind and subject queued in a window.
const RATE: u32 = 10;
/// The time over which the rate is counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Maximum number of events that wait for the subscriber.
const QUEUED_MOST: usize = 1024;

/// The event queue and rate limits of a runtime. For the path of an event see the file's head.
pub(crate) struct Events {
    state: Mutex<State>,
    changed: Condvar,
    epoch: Epoch,
    /// Whether events are emitted by the thread that reports them: a simulation has no threads.
    inline: bool,
}

type Emit = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Emit>,
    /// Windows by the type of the event's closure, which stands for the kind of event, and by the
    /// subject.
    windows: HashMap<(TypeId, &'static str), Window>,
    /// Number of events left out because the queue was full, since the last report of that number.
    overflowed: u64,
    reporter: Option<JoinHandle<()>>,
    closed: bool,
}

/// State of the rate limit for a kind of event and a subject.
struct Window {
    what: &'static str,
    /// Time at which the window ends, counted from the runtime's start.
    ends: Duration,
    events: u32,
    left_out: u64,
}

impl Events {
    pub(crate) fn new() -> Arc<Events> {
        Arc::new(Events::with(Epoch::now(), false))
    }

    /// Returns a queue whose events are emitted at once, by the thread that reports them.
    #[cfg(feature = "sim")]
    pub(crate) fn inline() -> Arc<Events> {
        Arc::new(Events::with(Epoch::now(), true))
    }

    fn with(epoch: Epoch, inline: bool) -> Events {
        Events { state: Mutex::default(), changed: Condvar::new(), epoch, inline }
    }

    /// Reports an event about a subject, usually a kind of process. `emit` gets `what` as the
    /// event's text, and runs on the reporter thread.
    pub(crate) fn report(
        self: &Arc<Self>,
        level: Level,
        what: &'static str,
        subject: &'static str,
        emit: impl FnOnce(&'static str) + Send + 'static,
    ) {
        // `current` is an upper bound that costs a load; the reporter asks the subscriber itself.
        if level <= LevelFilter::current() {
            self.queue(what, subject, emit);
        }
    }

    #[cold]
    fn queue<F: FnOnce(&'static str) + Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        subject: &'static str,
        emit: F,
    ) {
        if self.inline {
            let _ = catch(|| emit(what));
            return;
        }
        let now = self.epoch.elapsed();
        let mut state = lock(&self.state);
        if state.closed || !state.admit((TypeId::of::<F>(), subject), what, now) {
            return;
        }
        state.queue.push_back(Box::new(move || emit(what)));
        if state.reporter.is_none() {
            let events = self.clone();
            let thread = ThreadBuilder::new().name("throng-events".to_owned());
            // If the system refuses a thread, the events wait; the next event tries again.
            state.reporter = thread.spawn(move || events.run()).ok();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Emits the queued events until the end of the runtime.
    fn run(&self) {
        while let Some(emit) = self.next() {
            // The panic hook has reported the subscriber's panic; the next event is emitted anyway.
            let _ = catch(emit);
        }
    }

    /// Waits for the next event; `None` once the queue is closed and empty.
    fn next(&self) -> Option<Emit> {
        let mut state = lock(&self.state);
        loop {
            let now = self.epoch.elapsed();
            if let Some(emit) = state.next(now) {
                return Some(emit);
            }
            if state.closed {
                return None;
            }
            let summary = state.windows.values().map(|window| window.ends).min();
            state = match summary {
                Some(ends) => {
                    let wait = ends.saturating_sub(now);
                    let waited = self.changed.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Ends the reporting after the queued events; returns the reporter thread, if it has started.
    pub(crate) fn close(&self) -> Option<JoinHandle<()>> {
        let mut state = lock(&self.state);
        state.closed = true;
        self.changed.notify_one();
        state.reporter.take()
    }
}

impl State {
    /// Counts an event; false if the event must be left out (invariant 3).
    fn admit(&mut self, key: (TypeId, &'static str), what: &'static str, now: Duration) -> bool {
        let window = self.windows.entry(key).or_insert_with(|| Window::new(what, now));
        if window.ends <= now && window.left_out == 0 {
            *window = Window::new(what, now);
        }
        if window.events == RATE {
            window.left_out += 1;
            return false;
        }
        if self.queue.len() >= QUEUED_MOST {
            self.overflowed += 1;
            return false;
        }
        window.events += 1;
        true
    }

    /// Returns the next event to emit: a queued event, or a report of events left out.
    fn next(&mut self, now: Duration) -> Option<Emit> {
        if let Some(emit) = self.queue.pop_front() {
            return Some(emit);
        }
        if self.overflowed > 0 {
            let events = std::mem::take(&mut self.overflowed);
            return Some(Box::new(move || {
                tracing::warn!(target: "throng::events", events, "events were left out: the subscriber is slow");
            }));
        }
        let over = |window: &Window| window.ends <= now || self.closed;
        let (key, _) = self.windows.iter().find(|(_, window)| over(window))?;
        let key = *key;
        let Window { what, left_out, .. } = self.windows.remove(&key)?;
        if left_out == 0 {
            return self.next(now);
        }
        Some(Box::new(move || {
            let subject = key.1;
            tracing::warn!(target: "throng::events", event = what, subject, events = left_out, "events were left out: too many of one kind");
        }))
    }
}

impl Window {
    fn new(what: &'static str, now: Duration) -> Window {
        Window { what, ends: now.saturating_add(WINDOW), events: 0, left_out: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A subscriber that records the events it receives.
    struct Slow {
        events: Arc<Events>,
        emitted: mpsc::Receiver<&'static str>,
        tell: mpsc::Sender<&'static str>,
    }

    impl Slow {
        fn new() -> Slow {
            let (tell, emitted) = mpsc::channel();
            Slow { events: Events::new(), emitted, tell }
        }

        /// Reports an event that the subscriber records without blocking.
        fn report(&self, what: &'static str, subject: &'static str) {
            let tell = self.tell.clone();
            self.events.queue(what, subject, move |what| tell.send(what).expect("is heard"));
        }

        fn end(self) -> Vec<&'static str> {
            let reporter = self.events.close();
            reporter.into_iter().for_each(|reporter| reporter.join().expect("does not panic"));
            self.emitted.try_iter().collect()
        }
    }

    #[test]
    fn a_few_events_of_a_kind_and_subject_are_emitted_and_the_rest_counted() {
        let slow = Slow::new();
        for _ in 0..1000 {
            slow.report("often", "one");
        }
        for _ in 0..3 {
            slow.report("often", "another");
        }
        let key = |state: &State, subject| {
            let found = state.windows.iter().find(|((_, of), _)| *of == subject);
            found.map(|(_, window)| window.left_out)
        };
        // The reports fall into a single window, or into several if this thread was delayed.
        let left_out = key(&lock(&slow.events.state), "one");
        let emitted = slow.end();
        assert!(left_out.is_none_or(|left_out| left_out <= 990), "{left_out:?}");
        assert!(emitted.len() >= 13 && emitted.len() <= 1003, "{}", emitted.len());
        assert!(left_out.is_none() || emitted.len() < 1003, "none was left out");
    }

    #[test]
    fn a_window_ends_with_the_number_left_out() {
        let (mut state, key) = (State::default(), (TypeId::of::<()>(), "subject"));
        let admitted = (0..25).filter(|_| state.admit(key, "what", Duration::ZERO)).count();
        assert_eq!(admitted, RATE as usize);
        assert!(state.next(WINDOW / 2).is_none(), "the window is not over");
        assert!(state.next(WINDOW).is_some(), "the summary of 15 events");
        assert!(state.next(WINDOW).is_none() && state.windows.is_empty());
        assert!(state.admit(key, "what", WINDOW));
    }

    #[test]
    fn a_blocked_subscriber_delays_no_sender_and_loses_events_beyond_the_queue() {
        /// Subjects of the events that find the queue full.
        const SUBJECTS: [&str; 4] = ["a", "b", "c", "d"];
        let slow = Slow::new();
        let (let_go, blocks) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        slow.events.queue("first", "", move |_| {
            began.send(()).expect("is awaited");
            let _ = blocks.recv();
        });
        begins.recv().expect("the reporter begins");
        let mut state = lock(&slow.events.state);
        // Filled directly: the rate limit would hide the bound of the queue.
        state.queue.extend((0..QUEUED_MOST).map(|_| Box::new(|| {}) as Emit));
        drop(state);
        SUBJECTS.iter().for_each(|subject| slow.report("too many", subject));
        let overflowed = lock(&slow.events.state).overflowed;
        assert_eq!(overflowed, 4);
        let_go.send(()).expect("blocks");
        assert!(slow.end().is_empty());
    }

    #[test]
    fn a_subscriber_that_panics_gets_the_next_event() {
        let slow = Slow::new();
        slow.events.queue("panics", "", |_| std::panic::resume_unwind(Box::new("on purpose")));
        slow.report("comes next", "");
        assert_eq!(slow.emitted.recv(), Ok("comes next"));
        assert!(slow.end().is_empty());
    }

    #[test]
    fn an_event_reported_after_the_end_is_dropped() {
        let events = Events::new();
        assert!(events.close().is_none(), "without an event there is no thread");
        events.queue("late", "", |_| panic!("emitted after the end"));
        assert!(events.close().is_none());
    }
}
