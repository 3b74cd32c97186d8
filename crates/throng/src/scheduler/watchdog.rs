//! The watchdog: finds turns that block their worker for long.
//!
//! A worker publishes which turn it runs, by two plain stores a turn ([`CurrentTurn`]). It does the
//! same for all other work in which user code may block: acting on signals, an exit, dropping the
//! message of a timer whose process has exited. The clock thread checks that every few milliseconds
//! ([`Watchdog`]). A turn found running for longer than `stuck_after` is reported, once, with the
//! names of its process and of its message, and the processes and alarms that the worker holds are
//! made reachable: the process in its LIFO slot goes to the injector, its alarms are rung for it,
//! and if the others do not keep up, a spare worker is woken for as long as this worker is stuck
//! (`spare`). Its queue is open to thieves anyway. So code that blocks its thread slows one
//! process, not the node.
//!
//! If a loaded machine keeps a worker off its core for that long, the same happens, and helps as
//! much.

use crate::runtime::Shared;
use crate::scheduler::Scheduler;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::timer::Tick;
use crate::turn::process::Process;
use std::any::type_name;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

/// Title of a turn: the names of its process and of the message that began it.
pub(crate) struct TurnTitle {
    process: fn() -> &'static str,
    message: fn() -> &'static str,
}

impl TurnTitle {
    pub(crate) const fn of<P: Process, T>() -> TurnTitle {
        TurnTitle { process: type_name::<P>, message: type_name::<T> }
    }

    /// Title of the message that brings a timeout, before its process is known.
    pub(crate) const TIMEOUT: TurnTitle =
        TurnTitle { process: || "any process", message: || "a timeout" };

    /// Title of acting on signals, and of dropping the turn that a signal ends.
    pub(crate) const fn signalled<P: Process>() -> TurnTitle {
        TurnTitle { process: type_name::<P>, message: || "signals" }
    }

    /// Title of an exit, which drops the state and the queued messages and notifies the watchers.
    pub(crate) const fn ending<P: Process>() -> TurnTitle {
        TurnTitle { process: type_name::<P>, message: || "its exit" }
    }

    /// Title of a signal, which the worker handles without running code of the process.
    pub(crate) const SIGNAL: TurnTitle =
        TurnTitle { process: || "any process", message: || "a signal" };

    pub(crate) fn process(&self) -> &'static str {
        (self.process)()
    }

    pub(crate) fn message(&self) -> &'static str {
        (self.message)()
    }
}

/// Title of dropping the message of a timer whose process has exited.
pub(crate) static TIMER: TurnTitle =
    TurnTitle { process: || "any process", message: || "a timer's message is dropped" };

/// Turn that a worker runs at present; written by that worker alone.
pub(crate) struct CurrentTurn {
    /// Number of the turn or continuation.
    stamp: AtomicU32,
    /// A `&'static TurnTitle`, or null between two processes.
    title: AtomicPtr<TurnTitle>,
}

impl CurrentTurn {
    pub(crate) fn new() -> CurrentTurn {
        CurrentTurn { stamp: AtomicU32::new(0), title: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Worker: announces a turn that is about to begin or to continue.
    #[inline(always)]
    pub(crate) fn begin(&self, title: &'static TurnTitle) {
        self.begin_again();
        self.title.store(ptr::from_ref(title).cast_mut(), Ordering::Relaxed);
    }

    /// Worker: announces another turn with the title of the turn before.
    #[inline(always)]
    pub(crate) fn begin_again(&self) {
        let stamp = self.stamp.load(Ordering::Relaxed).wrapping_add(1);
        self.stamp.store(stamp, Ordering::Relaxed);
    }

    /// Worker: announces that the run of its process is over.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.title.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Worker: number of the turn that runs.
    pub(crate) fn stamp(&self) -> u32 {
        self.stamp.load(Ordering::Relaxed)
    }

    /// Number and title of the running turn. The two may belong to neighbouring turns, unless the
    /// worker has been in this turn for some time.
    pub(crate) fn read(&self) -> Option<(u32, &'static TurnTitle)> {
        let title = self.title.load(Ordering::Relaxed);
        // SAFETY: `title` is null, or `begin` stored it from a `&'static`.
        let title = unsafe { title.as_ref() }?;
        Some((self.stamp.load(Ordering::Relaxed), title))
    }
}

/// State of one worker as seen by the last checks.
#[derive(Default)]
struct Seen {
    stamp: u32,
    since: Option<Tick>,
    checks: u32,
    stuck: Option<&'static TurnTitle>,
}

/// Watchdog of the workers of one runtime; kept by the clock thread.
pub(crate) struct Watchdog {
    stuck_after: Duration,
    seen: Vec<Seen>,
    stuck: usize,
    /// Number of guests that are stuck; no spare worker stands in for them.
    stuck_guests: usize,
    /// Number of checks in a row that found work waiting for a worker.
    backlog: u32,
}

impl Watchdog {
    /// Number of checks that must see a turn before it counts as stuck: time alone may have passed
    /// because this thread was held up.
    const CHECKS: u32 = 3;

    pub(crate) fn new(stuck_after: Duration) -> Watchdog {
        Watchdog { stuck_after, seen: Vec::new(), stuck: 0, stuck_guests: 0, backlog: 0 }
    }

    /// Checks each worker, and passes on the processes and alarms of the stuck ones.
    pub(crate) fn check(&mut self, shared: &Arc<Shared>) {
        let scheduler = &shared.scheduler;
        let now = scheduler.clock.now();
        let before = self.stuck;
        let workers = scheduler.spares.in_use();
        self.seen.resize_with(workers.max(self.seen.len()), Seen::default);
        for (index, seen) in self.seen.iter_mut().enumerate() {
            let is_guest = scheduler.guests.is_seat(index);
            let stuck = if is_guest { &mut self.stuck_guests } else { &mut self.stuck };
            let remote = &scheduler.remotes[index];
            let running = remote.current_turn.read();
            match (running, seen.since) {
                (Some((stamp, title)), Some(since)) if stamp == seen.stamp => {
                    seen.checks += 1;
                    let time = Duration::from_millis(since.until(now).into());
                    let is_late = time >= self.stuck_after && seen.checks >= Self::CHECKS;
                    if is_late && seen.stuck.is_none() {
                        seen.stuck = Some(title);
                        *stuck += 1;
                        remote.counters.count_stuck();
                        report(shared, STUCK, index, title, time);
                    }
                }
                _ => {
                    if let (Some(title), Some(since)) = (seen.stuck, seen.since) {
                        *stuck -= 1;
                        let time = Duration::from_millis(since.until(now).into());
                        report(shared, OVER, index, title, time);
                    }
                    let stamp = running.map(|(stamp, _)| stamp);
                    *seen = Seen {
                        stamp: stamp.unwrap_or(0),
                        since: stamp.map(|_| now),
                        ..Seen::default()
                    };
                }
            }
        }
        if self.stuck != before || self.stuck + self.stuck_guests > 0 {
            self.relieve(shared);
            shared.staff(self.needed(shared));
        }
    }

    /// Number of spare workers wanted: one for each stuck worker, but no more than are active while
    /// the others keep up. A turn that only computes keeps its core busy, and a further thread
    /// would take that core from the rest.
    fn needed(&mut self, shared: &Shared) -> usize {
        let Scheduler { spares, .. } = &shared.scheduler;
        self.backlog = if shared.scheduler.has_work() { self.backlog + 1 } else { 0 };
        let nobody_left = self.stuck >= shared.scheduler.workers() + spares.active();
        if self.backlog >= Self::CHECKS || (self.backlog > 0 && nobody_left) {
            self.stuck
        } else {
            self.stuck.min(spares.active())
        }
    }

    /// Passes on the processes and alarms of stuck workers.
    fn relieve(&self, shared: &Shared) {
        let stuck = self.seen.iter().enumerate().filter(|(_, seen)| seen.stuck.is_some());
        stuck.for_each(|(index, _)| shared.scheduler.relieve(index));
    }
}

const STUCK: &str = "a turn blocks its worker";
const OVER: &str = "a turn that blocked its worker is over";

fn report(
    shared: &Shared,
    what: &'static str,
    worker: usize,
    title: &'static TurnTitle,
    time: Duration,
) {
    shared.events.report(Level::WARN, what, title.process(), move |what| {
        tracing::warn!(
            target: "throng::watch",
            worker,
            process = title.process(),
            turn = title.message(),
            milliseconds = time.as_millis(),
            "{what}"
        );
    });
}
