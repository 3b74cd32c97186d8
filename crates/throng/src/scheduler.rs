//! State shared by the workers of one runtime: the injector (the queue for tokens from outside),
//! the alarms, the sleeping workers, and the phase of the shutdown. Also finds the worker that the
//! calling thread is, if any.
//!
//! A token that becomes runnable on a worker stays with that worker; from any other thread it goes
//! through the injector. Every function that makes work visible to others calls
//! [`Scheduler::notify`], which wakes a sleeper unless a worker is searching already (`sleepers`).
//!
//! The places of guests (`guest`) come after those of the regular workers, and the places of the
//! spare workers (`spare`) after these. A spare worker
//! has a queue like the others, but no alarms of its own; it sets the alarms of its processes with
//! a regular worker.

pub(crate) mod alarms;
pub(crate) mod counters;
pub(crate) mod guest;
pub(crate) mod kinds;
pub(crate) mod lifo_slot;
pub(crate) mod run_queue;
pub(crate) mod seat;
pub(crate) mod sleepers;
pub(crate) mod slices;
pub(crate) mod spare;
pub(crate) mod token_queue;
pub(crate) mod watchdog;
pub(crate) mod worker;

use crate::address::RawAddress;
use crate::address::cycle::Probe;
use crate::address::message_timer::{TimerShare, Unsent};
use crate::cell::{CurrentProcess, Stranded, Token};
use crate::events::Events;
use crate::exit::catch;
use crate::fault::{self, Step};
use crate::runtime::metrics::WorkerMetrics;
use crate::scheduler::alarms::{AlarmTarget, Alarms, PackedTarget};
use crate::scheduler::counters::Counters;
use crate::scheduler::guest::Guests;
use crate::scheduler::kinds::{Counts, KindCounts, KindNumber};
use crate::scheduler::sleepers::Sleepers;
use crate::scheduler::spare::Spares;
use crate::scheduler::token_queue::{TokenQueue, TokenSlot};
use crate::scheduler::watchdog::CurrentTurn;
use crate::scheduler::worker::Worker;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Fences, Mutex, Thread, lock};
use crate::timer::{Clock, Place, Tick};
use std::cell::{Cell as StdCell, RefCell};
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};
#[cfg(feature = "sim")]
use std::task::Waker;
use tracing::Level;

thread_local! {
    static CURRENT: StdCell<*const Worker> = const { StdCell::new(ptr::null()) };
    static BATCH: StdCell<*const RefCell<Vec<Token>>> = const { StdCell::new(ptr::null()) };
}

/// Runs `f` with the worker that this thread is, if it is a worker.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn with_worker<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    // SAFETY: `enter` sets `CURRENT` to a worker it borrows, and resets it before the borrow ends.
    f(unsafe { CURRENT.get().as_ref() })
}

/// Returns the number of the turn that this thread runs, if it is a worker or a guest.
pub(crate) fn turn_number() -> Option<u32> {
    with_worker(|worker| worker.map(|worker| worker.current_turn().stamp()))
}

/// Runs `f` as a worker. A thread that is another worker already, in a handler that drives a
/// simulator, is that worker again afterwards.
pub(crate) fn enter<R>(worker: &Worker, f: impl FnOnce() -> R) -> R {
    struct Leave(*const Worker);
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    // Messages that the outer worker's turn sends after this must not overtake messages sent in
    // `f`.
    with_worker(|outer| outer.map(Worker::end_streaks));
    let _leave = Leave(CURRENT.replace(worker));
    f()
}

/// Runs `f` if this thread is running the process of this address.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn with_turn_of<R>(
    address: RawAddress,
    f: impl FnOnce(&Worker, CurrentProcess) -> R,
) -> Option<R> {
    with_worker(|worker| {
        let worker = worker?;
        let cell = worker.running().filter(|&cell| address.is_in(cell))?;
        // SAFETY: a worker holds the token of the process it is running, and this thread is the
        // worker.
        Some(f(worker, unsafe { CurrentProcess::of(cell) }))
    })
}

/// Shows a probe to the calls in the turn that this thread is about to poll.
pub(crate) fn show_probe(probe: Probe) {
    with_worker(|worker| worker.map(|worker| worker.show_probe(probe)));
}

/// Handles a token dropped by a thread that unwinds: if it belongs to the process that the thread's
/// worker runs, the worker recovers it. Any other is scheduled again, because its process has a message
/// or a signal that no other thread will notice.
#[cold]
pub(crate) fn strand(token: Stranded) {
    let left = with_worker(|worker| match worker {
        Some(worker) => worker.strand(token),
        None => Some(token),
    });
    if let Some(token) = left {
        inject(token.recover());
    }
}

#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn schedule(token: Token) {
    with_worker(|worker| match worker {
        Some(worker) if is_own(worker, &token) => worker.push(token),
        _ => schedule_outside(token),
    });
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn is_own(worker: &Worker, token: &Token) -> bool {
    ptr::eq(worker.scheduler(), token.class().runtime.scheduler())
}

/// Schedules a process from a thread that is no worker of its runtime.
#[cold]
fn schedule_outside(token: Token) {
    if let Some(token) = collect(token).and_then(guest::accept) {
        inject(token);
    }
}

/// Schedules a process that was just asked to stop. On a worker it comes next: its exit is short
/// and gives back the memory that the next spawn takes; run elsewhere, it would find that memory
/// cold.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn schedule_exit(token: Token) {
    with_worker(|worker| match worker {
        Some(worker) if is_own(worker, &token) => worker.push_exit(token),
        _ => schedule_outside(token),
    });
}

/// Leaves a process to the workers of its runtime.
fn inject(token: Token) {
    // The token is gone once it is injected, and the class may go with it.
    let runtime = token.class().runtime.clone();
    runtime.scheduler().inject([token]);
}

/// Runs `f`, which makes many processes ready, and wakes sleeping workers only once, after it.
pub(crate) fn batched<R>(f: impl FnOnce() -> R) -> R {
    with_worker(|worker| match worker {
        Some(worker) => worker.batched(f),
        None => {
            let batch = Batch { tokens: RefCell::new(Vec::new()), outer: BATCH.get() };
            BATCH.set(&batch.tokens);
            // Its drop schedules the processes, also if `f` panics.
            let _batch = &batch;
            f()
        }
    })
}

/// Processes made ready by a thread that is no worker, to be injected together.
struct Batch {
    tokens: RefCell<Vec<Token>>,
    outer: *const RefCell<Vec<Token>>,
}

const BATCH_MOST: usize = 1024;

/// Adds a token to the thread's batch; returns it if there is no batch.
fn collect(token: Token) -> Option<Token> {
    // SAFETY: `batched` sets `BATCH` to a batch on this thread's stack, whose drop resets it.
    let Some(tokens) = (unsafe { BATCH.get().as_ref() }) else { return Some(token) };
    let mut tokens = tokens.borrow_mut();
    tokens.push(token);
    if tokens.len() >= BATCH_MOST {
        inject_all(&mut tokens);
    }
    None
}

impl Drop for Batch {
    fn drop(&mut self) {
        BATCH.set(self.outer);
        inject_all(self.tokens.get_mut());
    }
}

fn inject_all(tokens: &mut Vec<Token>) {
    while let Some(last) = tokens.last() {
        let runtime = last.class().runtime.clone();
        let is_other = |token: &Token| !token.class().runtime.is_same(&runtime);
        let first = tokens.iter().rposition(is_other).map_or(0, |other| other + 1);
        runtime.scheduler().inject(tokens.drain(first..));
    }
}

/// Phase of a runtime's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The runtime runs normally.
    Running,
    /// No process is spawned any more; each exits when its mailbox is empty.
    Draining,
    /// Each process exits at once.
    Killing,
    /// The workers end.
    Over,
}

/// Alarms taken out of a wheel to be rung. Its drop puts the remaining ones back.
struct Due<'a> {
    alarms: &'a Alarms,
    now: Tick,
    rest: VecDeque<(Tick, PackedTarget)>,
}

impl Drop for Due<'_> {
    fn drop(&mut self) {
        for (at, target) in self.rest.drain(..) {
            self.alarms.set(self.now, at, target, true);
        }
    }
}

/// The part of a worker that other threads access. Has cache lines of its own, because its worker
/// writes there at each turn; the worker holds it by a pointer of its own, for the same reason.
#[repr(align(128))]
pub(crate) struct Remote {
    pub(crate) queue: TokenQueue,
    /// Process woken last, which the worker runs next.
    pub(crate) lifo_slot: TokenSlot,
    /// Process asked to stop last, if it was idle: see [`schedule_exit`].
    pub(crate) exit_slot: TokenSlot,
    pub(crate) current_turn: CurrentTurn,
    pub(crate) counters: Counters,
    /// Counts by kind of process, if the runtime keeps them.
    pub(crate) kinds: Option<KindCounts>,
    thread: OnceLock<Thread>,
    /// Spawn permits that this worker has taken and not used; written by it alone.
    pub(crate) spare_permits: AtomicU32,
}

impl Remote {
    fn new(fences: Fences, counts_kinds: bool) -> Remote {
        Remote {
            queue: TokenQueue::new(),
            lifo_slot: TokenSlot::new(fences),
            exit_slot: TokenSlot::new(fences),
            current_turn: CurrentTurn::new(),
            counters: Counters::new(),
            kinds: counts_kinds.then(KindCounts::new),
            thread: OnceLock::new(),
            spare_permits: AtomicU32::new(0),
        }
    }

    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

pub(crate) struct Scheduler {
    pub(crate) clock: Clock,
    /// Parts of the workers that other threads access: the regular workers first, then the seats
    /// of guests, then the spare workers.
    pub(crate) remotes: Box<[Arc<Remote>]>,
    pub(crate) alarms: Box<[Arc<Alarms>]>,
    injector: Mutex<VecDeque<Token>>,
    injected: AtomicUsize,
    pub(crate) sleepers: Sleepers,
    pub(crate) guests: Guests,
    pub(crate) spares: Spares,
    phase: AtomicU8,
    events: Arc<Events>,
    guests_spawned: AtomicU64,
    /// Counts by kind of the processes spawned by threads that are no workers, if the runtime keeps
    /// them; written under the lock of `guest_slots`.
    pub(crate) guests_kinds: Option<KindCounts>,
    /// Number of alarms set by threads that are no workers, to spread the alarms over the wheels.
    guests_alarms: AtomicUsize,
    /// Waker of the simulator that runs the processes, if there is one.
    #[cfg(feature = "sim")]
    driver: Mutex<Option<Waker>>,
}

impl Scheduler {
    pub(crate) fn new(
        workers: usize,
        seats: usize,
        spares: usize,
        clock: Clock,
        counts_kinds: bool,
        events: Arc<Events>,
    ) -> Scheduler {
        let fences = Fences::default();
        let remote = |_| Arc::new(Remote::new(fences, counts_kinds));
        Scheduler {
            remotes: (0..workers + seats + spares).map(remote).collect(),
            alarms: (0..workers).map(|_| Arc::new(Alarms::new(clock.now()))).collect(),
            injector: Mutex::new(VecDeque::new()),
            injected: AtomicUsize::new(0),
            sleepers: Sleepers::new(workers),
            guests: Guests::new(workers, seats),
            spares: Spares::new(workers + seats, spares),
            phase: AtomicU8::new(Phase::Running as u8),
            events,
            guests_spawned: AtomicU64::new(0),
            guests_kinds: counts_kinds.then(KindCounts::new),
            guests_alarms: AtomicUsize::new(0),
            #[cfg(feature = "sim")]
            driver: Mutex::new(None),
            clock,
        }
    }

    /// Sets the waker of a simulator, which every event from outside of processes wakes.
    #[cfg(feature = "sim")]
    pub(crate) fn set_driver(&self, waker: &Waker) {
        *lock(&self.driver) = Some(waker.clone());
    }

    #[cfg(feature = "sim")]
    fn wake_driver(&self) {
        if let Some(driver) = &*lock(&self.driver) {
            driver.wake_by_ref();
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn workers(&self) -> usize {
        self.alarms.len()
    }

    /// Returns the parts of the workers that may hold work.
    pub(crate) fn remotes_in_use(&self) -> &[Arc<Remote>] {
        self.remotes.get(..self.spares.in_use()).unwrap_or(&self.remotes)
    }

    /// Number of live processes. Never too low: exits are read before spawns, and each exit comes
    /// after its own spawn.
    pub(crate) fn live(&self) -> u64 {
        let sum = |count: fn(&Counters) -> u64| -> u64 {
            self.remotes.iter().map(|remote| count(&remote.counters)).sum()
        };
        let exited = sum(Counters::exited);
        let spawned = sum(Counters::spawned) + self.guests_spawned.load(Ordering::Acquire);
        spawned - exited
    }

    pub(crate) fn spawned(&self) -> u64 {
        let by_workers = self.remotes.iter().map(|remote| remote.counters.spawned());
        by_workers.sum::<u64>() + self.guests_spawned.load(Ordering::Acquire)
    }

    /// Returns the counts of a kind that the workers and the threads outside of them keep; none if
    /// the runtime does not count kinds.
    pub(crate) fn counts_of(&self, kind: KindNumber) -> impl Iterator<Item = &Counts> + Clone {
        let workers = self.remotes.iter().filter_map(|remote| remote.kinds.as_ref());
        workers.chain(&self.guests_kinds).filter_map(move |kinds| kinds.read(kind))
    }

    /// Metrics of each regular worker, then of all guests together, then of each spare worker that
    /// has run.
    pub(crate) fn worker_metrics(&self) -> Vec<WorkerMetrics> {
        let (_, now) = self.clock.refresh_exactly();
        let read = |remote: &Arc<Remote>| WorkerMetrics {
            queued: u64::from(remote.queue.len()),
            ..remote.counters.metrics(now)
        };
        let (workers, others) = self.remotes.split_at(self.workers());
        let (seats, spares) = others.split_at(self.guests.seats());
        let guests = seats.iter().map(read).reduce(WorkerMetrics::add);
        let spares = spares.iter().map(read).filter(|metrics| !metrics.busy.is_zero());
        workers
            .iter()
            .map(read)
            .chain(guests.map(|metrics| WorkerMetrics { guest: true, ..metrics }))
            .chain(spares.map(|metrics| WorkerMetrics { spare: true, ..metrics }))
            .collect()
    }

    /// Counts a process that a thread which is no worker is about to spawn; false if it must not,
    /// because the runtime is shutting down.
    pub(crate) fn count_guest_spawn(&self) -> bool {
        self.guests_spawned.fetch_add(1, Ordering::Release);
        // The count comes before the check of the phase: a shutdown either counts this process too
        // and waits for it, or has set its phase before.
        fence(Ordering::SeqCst);
        let may = self.phase() == Phase::Running;
        if !may {
            self.guests_spawned.fetch_sub(1, Ordering::Release);
        }
        may
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Draining,
            2 => Phase::Killing,
            _ => Phase::Over,
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
        // Before any count of live processes; pairs with the fence in `count_guest_spawn`.
        fence(Ordering::SeqCst);
        if phase == Phase::Over {
            self.remotes.iter().for_each(|remote| remote.unpark());
        }
    }

    /// Queues tokens from outside the workers.
    pub(crate) fn inject(&self, tokens: impl IntoIterator<Item = Token>) {
        {
            let mut injector = lock(&self.injector);
            injector.extend(tokens);
            self.injected.store(injector.len(), Ordering::Release);
        }
        #[cfg(feature = "sim")]
        self.wake_driver();
        self.notify();
    }

    /// Number of tokens that wait in the injector and in the workers' queues.
    pub(crate) fn waiting(&self) -> usize {
        let queued = self.remotes.iter().map(|remote| remote.queue.len() as usize);
        self.injected() + queued.sum::<usize>()
    }

    pub(crate) fn injected(&self) -> usize {
        self.injected.load(Ordering::Acquire)
    }

    /// Takes one of `shares` equal shares of the injector, the oldest tokens; gives each to `keep`.
    pub(crate) fn take_injected(&self, shares: usize, keep: impl FnMut(Token)) {
        let mut injector = lock(&self.injector);
        let share = injector.len().div_ceil(shares);
        injector.drain(..share).for_each(keep);
        self.injected.store(injector.len(), Ordering::Release);
    }

    pub(crate) fn has_work(&self) -> bool {
        self.injected() > 0 || self.remotes_in_use().iter().any(|remote| !remote.queue.is_empty())
    }

    // --- alarms ---

    /// Sets an alarm in the calling worker's wheel, or, on other threads, in any wheel.
    pub(crate) fn set_alarm(&self, at: Tick, target: PackedTarget) {
        let own = self.own_index();
        let alarms = self.choose_alarms(own);
        self.set_alarm_in(alarms, own, at, target, true);
    }

    /// Sets the alarm of a message timer, which remembers the wheel. Without `weeds` the timer must be taken out of
    /// the wheel when it ends, so not be one of a process of another runtime, which would look in its own.
    pub(crate) fn set_timer(&self, at: Tick, share: TimerShare, weeds: bool) {
        let own = self.own_index();
        let alarms = self.choose_alarms(own);
        share.set_wheel(alarms);
        self.set_alarm_in(alarms, own, at, PackedTarget::timer(share), weeds);
    }

    /// Takes the alarm of a message timer out of a wheel; `None` if it is not at this place.
    pub(crate) fn take_timer(
        &self,
        wheel: usize,
        place: Place,
        timer: NonNull<()>,
    ) -> Option<TimerShare> {
        match self.alarms.get(wheel)?.remove(place, timer)?.open() {
            AlarmTarget::Timer(share) => Some(share),
            AlarmTarget::Process(_) => None,
        }
    }

    /// Index of the calling thread's worker, if it is a worker of this runtime.
    fn own_index(&self) -> Option<usize> {
        with_worker(|worker| {
            worker.filter(|worker| ptr::eq(worker.scheduler(), self)).map(Worker::index)
        })
    }

    fn choose_alarms(&self, own: Option<usize>) -> usize {
        let place = own.unwrap_or_else(|| self.guests_alarms.fetch_add(1, Ordering::Relaxed));
        // A division takes as long as all else here; spare workers have greater indices.
        if place < self.workers() { place } else { place % self.workers() }
    }

    fn set_alarm_in(
        &self,
        alarms: usize,
        own: Option<usize>,
        at: Tick,
        target: PackedTarget,
        weeds: bool,
    ) {
        let is_first = self.alarms[alarms].set(self.clock.now(), at, target, weeds);
        if is_first && own != Some(alarms) {
            // The worker may be about to sleep for longer than until this alarm.
            self.remotes[alarms].unpark();
            #[cfg(feature = "sim")]
            self.wake_driver();
        }
    }

    /// Rings a slice of the due alarms of a wheel; each process woken goes to `wake`. Returns the
    /// messages of timers whose processes have exited; the caller must drop them where user code
    /// may run.
    ///
    /// A panic is caught and reported; alarms that have not rung by then ring later.
    pub(crate) fn ring(&self, alarms: &Alarms, mut wake: impl FnMut(Token)) -> Vec<Unsent> {
        let mut unsent = Vec::new();
        let due = Due { alarms, now: self.clock.now(), rest: alarms.take_due(self.clock.now()) };
        if let Err(reason) = catch(|| self.ring_all(due, &mut wake, &mut unsent)) {
            self.events.report(Level::ERROR, "an alarm panicked", "", move |what| {
                tracing::error!(target: "throng::worker", %reason, "{what}");
            });
        }
        unsent
    }

    fn ring_all(&self, mut due: Due<'_>, wake: &mut impl FnMut(Token), unsent: &mut Vec<Unsent>) {
        loop {
            fault::point(Step::Alarm(ptr::from_ref(self).addr()), "");
            let Some((at, target)) = due.rest.pop_front() else { return };
            match target.open() {
                AlarmTarget::Process(cell) => {
                    if let Some(token) = cell.ring(at) {
                        wake(token);
                    }
                }
                AlarmTarget::Timer(share) => unsent.extend(share.ring(at, self)),
            }
        }
    }

    /// Takes over the processes and alarms of a worker that is stuck in a turn.
    pub(crate) fn relieve(&self, worker: usize) {
        /// Number of waiting tokens above which this call rings no more alarms; the rest of perhaps
        /// a million alarms can ring once the processes of these tokens have run.
        const WAITING_MOST: usize = 1024;
        const SLICES: usize = 64;
        let Remote { lifo_slot, exit_slot, .. } = &*self.remotes[worker];
        let held = [exit_slot.steal(), lifo_slot.steal()];
        if held.iter().any(Option::is_some) {
            self.inject(held.into_iter().flatten());
        }
        let Some(alarms) = self.alarms.get(worker) else { return };
        for _ in 0..SLICES {
            if !alarms.is_due(self.clock.now()) || self.waiting() > WAITING_MOST {
                return;
            }
            let mut woken = Vec::new();
            let unsent = self.ring(alarms, |token| woken.push(token));
            if woken.is_empty() && unsent.is_empty() {
                // The messages left for the owner keep the alarms due until it comes.
                return;
            }
            self.inject(woken);
            alarms.leave(self.clock.now(), unsent);
        }
    }

    // --- sleeping and waking ---

    /// Wakes a sleeper for work that was added, unless a worker is searching already.
    #[inline]
    pub(crate) fn notify(&self) {
        self.sleepers.notify(|worker| self.remotes[worker].unpark());
    }

    /// Ends the search of a worker that found work. If it was the last searcher, another may be
    /// needed.
    pub(crate) fn end_search(&self) {
        if self.sleepers.end_search() {
            self.notify();
        }
    }

    /// Announces that a worker that found nothing sleeps; false if it must not sleep, because there
    /// is work.
    pub(crate) fn begin_sleep(&self, worker: usize, was_searching: bool) -> bool {
        self.sleepers.begin_sleep(worker, was_searching);
        !self.has_work() && self.phase() != Phase::Over
    }

    /// Whether every worker sleeps and no guest runs a process.
    pub(crate) fn all_asleep(&self) -> bool {
        self.sleepers.count() == self.workers() + self.spares.active() && !self.guests.any_seated()
    }

    /// Makes a worker's thread known, so that it can be woken.
    pub(crate) fn introduce(&self, worker: usize, thread: Thread) {
        // Each worker calls this once, as it starts, so the cell is empty.
        let _ = self.remotes[worker].thread.set(thread);
        // The worker reads the phase after this. The end of the runtime sets the phase and then
        // unparks all threads it knows, so either it knows this thread, or this thread sees the
        // phase.
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use crate::prelude::*;
    use crate::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;
    use std::time::Duration;

    struct Idle;
    #[process(crate = crate)]
    impl Idle {
        #[message(send)]
        fn block(&mut self, until: std::sync::mpsc::Receiver<()>, cx: &mut Context<Self>) {
            let _ = until.recv();
            cx.stop(ExitReason::Normal);
        }
    }

    #[test]
    fn workers_count_turns_spawns_and_exits() {
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let (let_go, until) = std::sync::mpsc::channel();
        let idle = runtime.spawn(Idle).expect("there is room");
        idle.block(until).expect("lives");
        let stats = || runtime.scheduler().worker_metrics();
        while stats()[0].stuck_turns == 0 {
            std::thread::yield_now();
        }
        // Work for which no free worker is left.
        runtime.spawn(Idle).expect("there is room").stop();
        while runtime.process_count() > 1 {
            std::thread::yield_now();
        }
        let_go.send(()).expect("waits");
        while runtime.process_count() > 0 || stats()[0].parks == 0 {
            std::thread::yield_now();
        }
        let worker = &stats()[0];
        assert!(!worker.spare && worker.busy > Duration::ZERO && worker.idle > Duration::ZERO);
        assert_eq!((worker.turns, worker.stuck_turns), (1, 1));
        // The process was spawned by this thread, which is no worker.
        assert_eq!((worker.spawned, worker.exited), (0, 1));
        assert!(stats()[1].guest && stats()[2].spare && stats()[2].exited == 1, "one stood in");
    }

    /// Sends each message on to the next of its ring.
    struct Link(Arc<AtomicBool>);
    #[process(crate = crate)]
    impl Link {
        #[message(send)]
        fn pass(&mut self, mut ring: Vec<Address<Link>>) {
            if !self.0.load(Ordering::Relaxed) {
                ring.rotate_left(1);
                // Refused when the runtime ends.
                let _ = ring[0].pass(ring);
            }
        }
        #[message(send)]
        fn begin(&mut self, cx: &mut Context<Self>) {
            for _ in 0..if cfg!(miri) { 100 } else { 1_000 } {
                let ring = [(); 2]
                    .map(|()| cx.runtime().spawn(Link(self.0.clone())).expect("there is room"));
                ring[0].pass(ring.into()).expect("lives");
            }
        }
    }

    #[test]
    fn workers_that_are_never_idle_come_to_have_as_many_processes() {
        let (is_over, patience) = (Arc::new(AtomicBool::new(false)), Duration::from_secs(60));
        let runtime = Runtime::builder().workers(2).spare_workers(0).start().expect("starts");
        runtime.spawn(Link(is_over.clone())).expect("there is room").begin().expect("lives");
        let begun = std::time::Instant::now();
        let lengths = || [0, 1].map(|worker| runtime.scheduler().remotes[worker].queue.len());
        // Without a process that this worker runs, and another that is on its way.
        let most = if cfg!(miri) { 96 } else { 996 };
        while !matches!(lengths(), [one, other] if one + other >= most && one.abs_diff(other) <= most / 3)
        {
            assert!(begun.elapsed() < patience, "{:?} processes wait", lengths());
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    }
}
