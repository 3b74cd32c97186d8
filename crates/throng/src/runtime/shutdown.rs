//! The end of a runtime.
//!
//! A shutdown has phases (see [`Phase`]): *draining* asks each process to exit when its mailbox is
//! empty; after the deadline, *killing* drops suspended turns. A thread sweeps over the slab and
//! applies the phase to idle processes until no process is left.
//!
//! The caller's thread sweeps if it may block; otherwise a separate thread does:
//!
//! | call | sweeping thread | the caller waits |
//! |---|---|---|
//! | `shutdown` on a plain thread | the caller's | for all processes |
//! | `shutdown` in a handler of this runtime | a separate one | for all but its own process |
//! | `shutdown_async` | a separate one | as a future; in a handler, for all but its own process |
//! | `drop` on a plain thread | the caller's | for all processes |
//! | `drop` on a worker of this runtime | a separate one | not at all |
//! | `drop` on the only thread that drives the handlers' tokio | a separate one | until only suspended turns are left |
//!
//! Invariants:
//! 1. A phase is set before the sweep that applies it, so a process that begins to run after the
//!    sweep has passed its slot sees the phase itself.
//! 2. Classes are released only once no process lives, no worker runs and all seats are closed. The
//!    last worker, the last guest or the sweeping thread, whichever ends last, releases them.
//! 3. A thread blocked by a handler is never waited for beyond a deadline.

use super::abandoned::AbandonedKind;
use super::{Runtime, Shared};
use crate::scheduler::worker::Worker;
use crate::scheduler::{self, Phase};
use crate::sync::atomic::Ordering;
use crate::sync::{self, Epoch, JoinHandle, Mutex, ThreadBuilder, lock};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tracing::Level;

/// A second; a hundred seconds under Miri, which is that much slower and runs no test that blocks
/// its thread.
const SECOND: Duration = Duration::from_secs(if cfg!(miri) { 100 } else { 1 });
/// Time that a dropped runtime waits for its processes.
const DROP_DEADLINE: Duration = SECOND;
/// Time that killing continues without an exit; also the time that stuck workers have to end.
const KILL_DEADLINE: Duration = SECOND;
/// Pause between two sweeps, and between two checks of an outcome.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);
/// Number of checks in a row, a [`SWEEP_PAUSE`] apart, that must find only suspended turns before a
/// dropped runtime gives up waiting for them.
const STALLED_CHECKS: u32 = 10;

/// The `tracing` target of the events in this file.
const TARGET: &str = "throng::runtime";

/// The outcome of a shutdown.
///
/// Its `Display` text names the types of abandoned processes:
/// `7 stopped, 3 abandoned (2 app::User, 1 app::Room)`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Shutdown {
    /// Number of processes that exited in order: each had handled all messages in its mailbox, and
    /// its `stopping` ran to the end.
    pub stopped: u64,
    /// Number of processes that did not exit in order within the deadline. The runtime dropped the
    /// turn of such a process, its `stopping`, or messages that it had not handled; or the process
    /// blocks its thread and still lives.
    pub abandoned: u64,
    /// Types of the abandoned processes, the most frequent first; at most 32 types.
    ///
    /// The counts add up to [`abandoned`](Self::abandoned), unless there are more types, or a
    /// process that still lives could not be inspected.
    pub abandoned_kinds: Vec<AbandonedKind>,
}

impl fmt::Display for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stopped, {} abandoned", self.stopped, self.abandoned)?;
        for (index, AbandonedKind { kind, count, .. }) in self.abandoned_kinds.iter().enumerate() {
            write!(f, "{}{count} {kind}", if index == 0 { " (" } else { ", " })?;
        }
        f.write_str(if self.abandoned_kinds.is_empty() { "" } else { ")" })
    }
}

impl Runtime {
    pub(super) fn shut_down(mut self, deadline: Duration) -> Shutdown {
        let ending = self.begin_shutdown();
        if ending.shared.calling_worker(|_| ()).is_none() {
            return ending.run(deadline, None);
        }
        let mut outcome = ending.run_apart(deadline);
        loop {
            if let Some(outcome) = outcome.poll() {
                return outcome;
            }
            sync::sleep(SWEEP_PAUSE);
        }
    }

    pub(super) async fn shut_down_async(mut self, deadline: Duration) -> Shutdown {
        let Outcome { shared, live, done } = self.begin_shutdown().run_apart(deadline);
        done.await.unwrap_or_else(|_| shared.outcome(live, None))
    }

    /// Sets [`Phase::Draining`], after which nothing can be spawned. The returned [`Ending`] does
    /// the rest, on this or another thread.
    fn begin_shutdown(&mut self) -> Ending {
        self.is_ending = true;
        let shared = self.handle.0.clone();
        shared.scheduler.set_phase(Phase::Draining);
        let live = shared.scheduler.live();
        let kind = |worker: &Worker| {
            let turn = worker.current_turn().read();
            worker.running().map(|_| turn.map_or("", |(_, title)| title.process()))
        };
        let caller = shared.calling_worker(kind).flatten();
        Ending { shared, tokio: self.tokio.take(), live, caller }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.is_ending {
            return;
        }
        let ending = self.begin_shutdown();
        let shared = ending.shared.clone();
        if shared.calling_worker(|_| ()).is_some() {
            // The process whose turn runs this drop cannot end before the drop returns.
            drop(ending.run_apart(DROP_DEADLINE));
        } else if ending.live > 0 && shared.is_tokio_driven_here() {
            // Turns that wait for tokio make no progress until this drop returns; all others do.
            let mut outcome = ending.run_apart(DROP_DEADLINE);
            let mut stalled = 0;
            while stalled < STALLED_CHECKS && outcome.poll().is_none() {
                stalled = if shared.waits_in_all_turns() { stalled + 1 } else { 0 };
                sync::sleep(SWEEP_PAUSE);
            }
        } else {
            ending.run(DROP_DEADLINE, None);
        }
    }
}

/// A shutdown that has begun: the data that the ending thread needs.
struct Ending {
    shared: Arc<Shared>,
    tokio: Option<tokio::runtime::Runtime>,
    /// Number of processes that lived when the shutdown began.
    live: u64,
    /// Type of the process whose turn requested the shutdown, if any. While that turn waits for the
    /// outcome, its process cannot end.
    caller: Option<&'static str>,
}

/// The outcome of an [`Ending`] that runs on another thread.
struct Outcome {
    shared: Arc<Shared>,
    live: u64,
    done: oneshot::Receiver<Shutdown>,
}

impl Outcome {
    /// Returns the outcome if the ending thread has finished.
    fn poll(&mut self) -> Option<Shutdown> {
        match self.done.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(self.shared.outcome(self.live, None)),
        }
    }
}

impl Ending {
    /// Ends the runtime on a separate thread; on the calling thread if the system refuses a thread.
    fn run_apart(self, deadline: Duration) -> Outcome {
        let (sender, done) = oneshot::channel();
        let outcome = Outcome { shared: self.shared.clone(), live: self.live, done };
        // In an `Arc`, because a failed spawn of a thread drops its closure.
        let ending = Arc::new(Mutex::new(Some((self, sender))));
        let run = {
            let ending = ending.clone();
            move || {
                let ending = lock(&ending).take();
                if let Some((ending, sender)) = ending {
                    ending.run(deadline, Some(sender));
                }
            }
        };
        if let Err(error) = ThreadBuilder::new().name("throng-end".into()).spawn(run.clone()) {
            let what = "no thread to end the runtime: the calling thread does it";
            outcome.shared.events.report(Level::ERROR, what, "", move |what| {
                tracing::error!(target: TARGET, %error, "{what}");
            });
            run();
        }
        outcome
    }

    fn run(self, deadline: Duration, mut sender: Option<oneshot::Sender<Shutdown>>) -> Shutdown {
        let Ending { shared, tokio, live, caller } = self;
        // The caller stops waiting when its turn is dropped, which closes the channel.
        let waiting = |sender: &Option<oneshot::Sender<Shutdown>>| match (caller, sender.as_ref()) {
            (Some(caller), Some(sender)) if !sender.is_closed() => Some(caller),
            _ => None,
        };
        shared.empty(deadline, || waiting(&sender).is_some());
        if let Some(caller) = waiting(&sender) {
            // The caller's process exits after its turn, which resumes when it gets the outcome.
            let outcome = shared.outcome(live, Some(caller));
            let _ = sender.take().map(|sender| sender.send(outcome));
            shared.empty(DROP_DEADLINE, || false);
        }
        shared.scheduler.set_phase(Phase::Over);
        shared.clock_keeper.end();
        shared.scheduler.guests.wake_all();
        shared.join_threads();
        // Messages of pending timers may hold handles of this very runtime and so keep it alive.
        shared.scheduler.alarms.iter().for_each(|alarms| alarms.close());
        let workers = shared.scheduler.worker_metrics();
        shared.events.report(Level::DEBUG, "the runtime has ended", "", move |what| {
            tracing::debug!(target: TARGET, ?workers, "{what}");
        });
        let outcome = shared.outcome(live, None);
        let left = shared.scheduler.live();
        if !shared.free_if_over() && left > 0 {
            let what = "processes block their threads and are abandoned";
            shared.events.report(Level::ERROR, what, "", move |what| {
                tracing::error!(target: TARGET, processes = left, "{what}");
            });
        }
        // A subscriber that blocks gets the same deadline as a handler that blocks (invariant 3).
        wait_for_end(&shared.events.close().into_iter().collect::<Vec<_>>(), || true);
        if let Some(tokio) = tokio {
            tokio.shutdown_background();
        }
        if let Some(sender) = sender {
            // The shared part must be free before the caller receives the outcome.
            drop(shared);
            let _ = sender.send(outcome.clone());
        }
        outcome
    }
}

/// Waits until threads have ended and `others` have, up to a deadline.
fn wait_for_end(threads: &[JoinHandle<()>], others: impl Fn() -> bool) {
    let begun = Epoch::now();
    let is_over = || threads.iter().all(JoinHandle::is_finished) && others();
    while !is_over() && begun.elapsed() < KILL_DEADLINE {
        sync::sleep(Duration::from_micros(100));
    }
}

impl Shared {
    /// Joins the threads that end in time; a thread blocked by a handler is left running
    /// (invariant 3).
    fn join_threads(&self) {
        let mut threads = std::mem::take(&mut *lock(&self.threads));
        wait_for_end(&threads, || !self.scheduler.guests.any_seated());
        for thread in threads.drain(..).filter(JoinHandle::is_finished) {
            if thread.join().is_err() {
                self.events.report(Level::ERROR, "a thread of the runtime panicked", "", |what| {
                    tracing::error!(target: TARGET, "{what}");
                });
            }
        }
    }

    /// Makes all processes exit: in order until the deadline, then at once. The calling process is
    /// not counted while it waits.
    fn empty(&self, deadline: Duration, caller_waits: impl Fn() -> bool) {
        let left = || self.scheduler.live() - u64::from(caller_waits()).min(self.scheduler.live());
        if !self.sweep_until_empty(Patience::in_all(deadline), &left) {
            self.scheduler.set_phase(Phase::Killing);
            self.sweep_until_empty(Patience::without_exit(KILL_DEADLINE), &left);
        }
    }

    /// Applies the present phase to idle processes until no process is left; false if `patience` is
    /// over first.
    fn sweep_until_empty(&self, mut patience: Patience, left: &impl Fn() -> u64) -> bool {
        while left() > 0 {
            self.sweep(&mut patience);
            if patience.is_over(self.scheduler.live()) {
                return left() == 0;
            }
            sync::sleep(SWEEP_PAUSE);
        }
        true
    }

    /// Breaks the reference cycle from class to runtime if no class can be needed any more
    /// (invariant 2); false if the last worker must do so later.
    pub(crate) fn free_if_over(&self) -> bool {
        let is_over = self.scheduler.phase() == Phase::Over
            && self.scheduler.guests.close_seats()
            && self.workers_running.load(Ordering::SeqCst) == 0
            // Read after the workers have ended: a message that a worker dropped between two turns
            // may have spawned a process as the phase changed, and a live process needs its class.
            && self.scheduler.live() == 0;
        if is_over {
            let classes = std::mem::take(&mut *lock(&self.classes));
            drop(classes);
            lock(&self.guest_slots).drain(&self.slab);
        }
        is_over
    }

    /// Runs `f` with the calling thread's worker, if that thread is a worker of this runtime.
    fn calling_worker<R>(self: &Arc<Self>, f: impl FnOnce(&Worker) -> R) -> Option<R> {
        scheduler::with_worker(|worker| {
            worker.filter(|worker| Arc::ptr_eq(&worker.shared, self)).map(f)
        })
    }

    /// Whether the calling thread alone drives the timers and sockets of the handlers: it is the
    /// only thread of the tokio runtime that the handlers use.
    fn is_tokio_driven_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| {
            here.id() == self.tokio.id()
                && match here.runtime_flavor() {
                    RuntimeFlavor::CurrentThread => true,
                    _ => here.metrics().num_workers() == 1 && tokio::task::try_id().is_some(),
                }
        })
    }

    /// Whether every live process is in a suspended turn.
    fn waits_in_all_turns(&self) -> bool {
        let mut suspended = 0;
        self.slab.for_each_slot(|cell| suspended += u64::from(cell.is_suspended()));
        let live = self.scheduler.live();
        live > 0 && suspended >= live
    }

    /// Applies the present phase to idle processes, in a single sweep.
    #[cfg(feature = "sim")]
    pub(crate) fn sweep_once(&self) {
        self.sweep(&mut Patience::in_all(Duration::ZERO));
    }

    fn sweep(&self, patience: &mut Patience) {
        /// Number of waiting processes from which the sweep waits: a sweep over millions of
        /// processes must not queue them all at once.
        const WAITING_MOST: usize = 16 * 1024;
        const BATCH: usize = 1024;
        let killing = self.scheduler.phase() == Phase::Killing;
        let mut batch = Vec::new();
        let mut is_over = false;
        self.slab.for_each_slot(|cell| {
            if is_over {
                return;
            }
            let suspended = killing && cell.is_suspended();
            batch.extend(if suspended {
                cell.wake_turn()
            } else {
                cell.wake_idle().or_else(|| cell.wake_awaiting())
            });
            if batch.len() >= BATCH {
                self.scheduler.inject(batch.drain(..));
                while !is_over && self.scheduler.waiting() > WAITING_MOST {
                    sync::sleep(SWEEP_PAUSE);
                    is_over = patience.is_over(self.scheduler.live());
                }
            }
        });
        self.scheduler.inject(batch);
    }
}

/// The time that a shutdown waits: a total, or a time without any exit.
struct Patience {
    limit: Duration,
    since: Epoch,
    /// Lowest number of live processes seen so far, if an exit restarts the time.
    least: Option<u64>,
}

impl Patience {
    fn in_all(limit: Duration) -> Patience {
        Patience { limit, since: Epoch::now(), least: None }
    }

    fn without_exit(limit: Duration) -> Patience {
        Patience { limit, since: Epoch::now(), least: Some(u64::MAX) }
    }

    fn is_over(&mut self, live: u64) -> bool {
        if self.least.is_some_and(|least| live < least) {
            self.least = Some(live);
            self.since = Epoch::now();
        }
        self.since.elapsed() >= self.limit
    }
}
