//! A worker: one thread that runs processes.
//!
//! The next process comes from these places, in this order: the LIFO slot, which holds the process
//! woken last (warm in the cache; a call and its reply stay on one core this way), the worker's own
//! queues, another worker's queues. Before a process comes from a queue, the worker moves its share
//! of the injector there. `slices` says how the queues share the worker, so that no process starves.
//!
//! A process keeps the worker for at most [`BUDGET`] messages and [`TIME_BUDGET`] ticks of the
//! clock, then waits among the processes that have used their budget.
//!
//! The parts that other threads must reach while a turn blocks this worker are not in here but in
//! its `Remote`: the queue and the LIFO slot; and its alarms in the scheduler.

mod alarms;
mod recovery;
mod run;
mod selection;

use crate::address::RawAddress;
use crate::address::cycle::Probe;
use crate::cell::slab::SlotCache;
use crate::cell::{CellRef, Stranded, Token};
use crate::error::SendError;
use crate::exit::ExitReason;
use crate::fault::{self, Step};
use crate::mailbox::Generation;
use crate::mailbox::budget::Account;
use crate::mailbox::train::Streaks;
use crate::runtime::{ClassCache, Shared};
use crate::scheduler::alarms::Alarms;
use crate::scheduler::kinds::{Counts, KindNumber, KindRun};
use crate::scheduler::slices::Slices;
use crate::scheduler::watchdog::CurrentTurn;
use crate::scheduler::{self, Phase, Remote, Scheduler};
use crate::signal;
use crate::sync::{current, park};
use crate::timer::Tick;
use crate::turn::async_process::Receiving;
use crate::turn::frame::{After, Progress};
use crate::turn::process::{Process, Turn};
use run::Run;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;
use tracing::field::display;

/// Number of messages that a process may handle before other processes get their turn.
pub(super) const BUDGET: u32 = 256;
/// Ticks of the coarse clock for which a process may go on to the next message.
pub(super) const TIME_BUDGET: u32 = 2;
/// Ticks up to which a turn may have taken no time at all, because the clock is coarse.
const TURN_TICKS_UNNOTICED: u32 = 2;
/// Number of sends in a turn after which the worker puts the process woken last where other workers
/// can take it.
const SENDS_PER_EXPOSURE: u32 = 256;
/// Number of links and monitors of a dead process that are notified before other processes run.
const NOTIFIED_AT_ONCE: usize = 256;
/// Number of processes that a guest runs before it leaves the rest to the workers: a call whose process calls
/// others, and they others in turn, is answered without a worker to this depth.
const GUEST_RUNS: u32 = 32;

pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) account: Account,
    remote: Arc<Remote>,
    index: usize,
    /// Whether this is a spare worker or a guest.
    is_spare: bool,
    /// Whether this is a guest, which runs no process that may block.
    is_guest: bool,
    /// Alarms of this worker; a spare worker and a guest use those of a regular one.
    alarms: Arc<Alarms>,
    slices: Slices,
    running: Cell<Option<CellRef>>,
    /// Token of the running process, if a panic dropped it.
    stranded: Cell<Option<Stranded>>,
    runs: Cell<u32>,
    /// Number of sends of the running process that come before the next exposure.
    sends_left: Cell<u32>,
    /// Number of turns that the running process has begun inside its own.
    nested: Cell<u32>,
    /// The receive whose nested turn runs.
    receiving: Cell<Option<Receiving>>,
    run: Run,
    /// The same run, for the counts by kind, if the runtime keeps them.
    kind_run: Option<KindRun>,
    /// Whether sleepers are woken later for processes that become ready.
    batching: Cell<bool>,
    /// Probes that have met the running process in its turn.
    probes: RefCell<Vec<Probe>>,
    has_probes: Cell<bool>,
    probes_numbered: Cell<u64>,
    streaks: Streaks,
    pub(crate) slots: RefCell<SlotCache>,
    pub(crate) classes: RefCell<ClassCache>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Worker {
        let workers = shared.scheduler.workers();
        Worker {
            account: Account::open(&shared.budget),
            remote: shared.scheduler.remotes[index].clone(),
            index,
            is_spare: index >= workers,
            is_guest: shared.scheduler.guests.is_seat(index),
            alarms: shared.scheduler.alarms[index % workers].clone(),
            slices: Slices::new(shared.scheduler.clock.now()),
            running: Cell::new(None),
            stranded: Cell::new(None),
            runs: Cell::new(0),
            sends_left: Cell::new(SENDS_PER_EXPOSURE),
            nested: Cell::new(0),
            receiving: Cell::new(None),
            run: Run::new(shared.scheduler.clock.now()),
            kind_run: shared.scheduler.guests_kinds.is_some().then(|| KindRun::new(index)),
            batching: Cell::new(false),
            probes: RefCell::new(Vec::new()),
            has_probes: Cell::new(false),
            probes_numbered: Cell::new(0),
            streaks: Streaks::new(),
            slots: RefCell::new(SlotCache::new()),
            classes: RefCell::new(ClassCache::new()),
            shared,
        }
    }

    /// Runs processes until the runtime is over.
    pub(crate) fn run(self) {
        self.scheduler().introduce(self.index, current());
        self.remote().counters.start(self.scheduler().clock.refresh_exactly().1);
        scheduler::enter(&self, || {
            while self.scheduler().phase() != Phase::Over {
                self.guard(|| self.run_processes());
            }
            self.run_left();
        });
        self.give_up_reserves();
    }

    fn run_processes(&self) {
        while self.scheduler().phase() != Phase::Over {
            if self.is_spare && self.scheduler().spares.surplus() && self.retire() {
                continue;
            }
            if let Some(token) = self.next().or_else(|| self.search_or_sleep()) {
                self.run_process(token);
            }
        }
    }

    /// Runs the processes left when the runtime is over, behind a turn that has blocked its worker
    /// until now: they all exit at once. No other thread sweeps any more, so this worker does, and
    /// sweeps again after each process it has met, because that process may have suspended its last
    /// turn.
    fn run_left(&self) {
        let queued = || {
            self.take_queued().or_else(|| {
                // By its lock, not by its length: see `leave_seat`.
                self.take_share();
                self.take_queued()
            })
        };
        loop {
            let mut ran = false;
            let mut run = |token| {
                ran = true;
                self.guard(|| self.run_process(token));
            };
            while let Some(token) = queued() {
                run(token);
            }
            self.shared.slab.for_each_slot(|cell| {
                let suspended = cell.is_suspended();
                let idle = || cell.wake_idle().or_else(|| cell.wake_awaiting());
                if let Some(token) = if suspended { cell.wake_turn() } else { idle() } {
                    run(token);
                }
            });
            if !ran {
                return;
            }
        }
    }

    /// Runs the processes of a guest's inbox, and then the processes that they wake; leaves the rest to the
    /// workers when the guest has run for long enough.
    pub(crate) fn run_as_guest(&self, inbox: &mut Vec<Token>) {
        let began = self.scheduler().clock.now();
        let mut next = inbox.pop();
        // Where other workers reach them.
        inbox.drain(..).for_each(|token| self.remote().queue.push(token));
        for _ in 0..GUEST_RUNS {
            let Some(token) = next.take() else { return };
            self.guard(|| self.run_process(token));
            if began.until(self.scheduler().clock.now()) >= TIME_BUDGET {
                break;
            }
            next = self.take_queued();
        }
        self.streaks.shrink();
        self.inject_queued(next);
    }

    /// Leaves a process, and those in the slots and the own queue, to the workers.
    fn inject_queued(&self, first: Option<Token>) {
        if let Some(left) = first.or_else(|| self.take_queued()) {
            let rest = std::iter::from_fn(|| self.take_queued());
            self.scheduler().inject(std::iter::once(left).chain(rest));
        }
    }

    /// Ends a guest, and leaves these processes to the workers. If the runtime is over, no worker may be left,
    /// and the processes exit here.
    pub(crate) fn leave_seat(&self, left: impl Iterator<Item = Token>) {
        left.for_each(|token| self.remote().queue.push(token));
        self.inject_queued(None);
        // After the injection: by the injector's lock, either a worker that ends finds the processes, or this
        // thread sees the end.
        if self.scheduler().phase() == Phase::Over {
            scheduler::enter(self, || self.run_left());
        }
        self.give_up_reserves();
    }

    /// Takes the next process out of the slots or the own queue.
    fn take_queued(&self) -> Option<Token> {
        self.take_from_slots().or_else(|| self.remote().queue.pop())
    }

    fn give_up_reserves(&self) {
        self.slots.borrow_mut().drain(&self.shared.slab);
        self.shared.permits.return_spare(&self.remote().spare_permits);
    }

    /// Retires a spare worker that is not needed any more: it passes on its processes and sleeps
    /// until it is needed; false if it is needed.
    #[cold]
    fn retire(&self) -> bool {
        let scheduler = self.scheduler();
        if !scheduler.spares.retire(self.index) {
            return false;
        }
        let slots = std::iter::from_fn(|| self.take_from_slots());
        let queued = std::iter::from_fn(|| self.remote().queue.pop());
        scheduler.inject(slots.chain(queued));
        self.give_up_reserves();
        self.remote().counters.fall_asleep(scheduler.clock.refresh_exactly().1);
        while !scheduler.spares.is_active(self.index) && scheduler.phase() != Phase::Over {
            park();
        }
        self.remote().counters.wake(scheduler.clock.refresh_exactly().1);
        true
    }

    #[inline(always)]
    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.shared.scheduler
    }

    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    #[inline(always)]
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Counts of this worker for a kind of process, if the runtime keeps them.
    #[inline(always)]
    fn kind_counts(&self, kind: KindNumber) -> Option<&Counts> {
        self.remote().kinds.as_ref()?.of(kind)
    }

    /// Turn that this worker runs, for the watchdog.
    pub(crate) fn current_turn(&self) -> &CurrentTurn {
        &self.remote().current_turn
    }

    /// Process whose turn this worker is polling.
    #[inline(always)]
    pub(crate) fn running(&self) -> Option<CellRef> {
        self.running.get()
    }

    /// Schedules a process that was woken on this worker.
    #[inline(always)]
    pub(crate) fn push(&self, token: Token) {
        if self.is_guest && !token.class().never_blocks {
            return self.scheduler().inject([token]);
        }
        if let Some(older) = self.remote().lifo_slot.replace(token) {
            self.push_back(older);
        }
    }

    /// Schedules a process that was just asked to stop.
    #[inline(always)]
    pub(crate) fn push_exit(&self, token: Token) {
        if self.is_guest && !token.class().never_blocks {
            return self.scheduler().inject([token]);
        }
        if let Some(earlier) = self.remote().exit_slot.replace(token) {
            self.push_back(earlier);
        }
    }

    /// Takes the process that comes before the queue, if there is one: first from the exit slot,
    /// then from the LIFO slot.
    #[inline(always)]
    fn take_from_slots(&self) -> Option<Token> {
        let Remote { lifo_slot, exit_slot, .. } = self.remote();
        exit_slot.take().or_else(|| lifo_slot.take())
    }

    /// Puts a process at the end of the queue, where other workers may take it.
    #[inline(never)]
    fn push_back(&self, token: Token) {
        self.remote().queue.push(token);
        if !self.batching.get() {
            self.scheduler().notify();
        }
    }

    /// Puts a process that has used its budget behind the others like it.
    fn push_spent(&self, token: Token) {
        self.remote().queue.push_spent(token);
        self.scheduler().notify();
    }

    /// Lets other processes come before one that has used its budget. If no message waits for it,
    /// it is at rest: the clock may have run on because the thread was preempted, and the next
    /// message must not find the process behind all the busy ones.
    #[cold]
    fn give_way(&self, token: Token, generation: Generation) {
        let may_park = self.scheduler().phase() == Phase::Running && !token.has_pending();
        let busy = if may_park { token.park(generation).err() } else { Some(token) };
        busy.into_iter().for_each(|token| self.push_spent(token));
    }

    /// Runs `f`, which makes many processes ready, and wakes sleepers only once, after it.
    pub(crate) fn batched<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Batch<'a>(&'a Worker, bool);
        impl Drop for Batch<'_> {
            fn drop(&mut self) {
                self.0.batching.set(self.1);
                self.0.scheduler().notify();
            }
        }
        let _batch = Batch(self, self.batching.replace(true));
        f()
    }

    /// Sends a message of the running turn.
    #[inline(always)]
    pub(crate) fn send<P: Process, T: Turn<P>>(
        &self,
        to: RawAddress,
        turn: T,
    ) -> Result<(), SendError<T>> {
        self.count_send();
        self.streaks.send::<P, T>(self, to, turn)
    }

    /// Ends the streaks of the running turn, which is over or sends a message by another way: a
    /// later car of a streak's train would overtake that message.
    #[inline(always)]
    pub(crate) fn end_streaks(&self) {
        self.streaks.end();
    }

    #[inline(always)]
    fn count_send(&self) {
        let left = self.sends_left.get() - 1;
        self.sends_left.set(left);
        if left == 0 {
            self.expose_slots();
        }
    }

    #[cold]
    fn expose_slots(&self) {
        self.sends_left.set(SENDS_PER_EXPOSURE);
        // A turn that sends so much must not wait for the clock to learn that the budget is
        // exceeded.
        self.account.check_budget();
        self.empty_slots();
    }

    fn empty_slots(&self) {
        while let Some(token) = self.take_from_slots() {
            self.push_back(token);
        }
    }

    /// Counts a turn that the running process begins inside its own; false if other processes come
    /// first.
    #[inline(always)]
    pub(crate) fn may_nest(&self) -> bool {
        let nested = self.nested.get() + 1;
        self.nested.set(nested);
        nested <= BUDGET
    }

    /// Begins to wait for a nested turn, until the returned value is dropped.
    pub(crate) fn receive(&self, receiving: Receiving) -> impl Drop {
        struct Received<'a>(&'a Worker, Option<Receiving>);
        impl Drop for Received<'_> {
            fn drop(&mut self) {
                self.0.receiving.set(self.1);
            }
        }
        Received(self, self.receiving.replace(Some(receiving)))
    }

    /// The receive whose nested turn runs.
    pub(crate) fn receiving(&self) -> Option<Receiving> {
        self.receiving.get()
    }

    // --- call cycles ---

    #[inline(always)]
    pub(crate) fn has_probes(&self) -> bool {
        self.has_probes.get()
    }

    #[inline(always)]
    fn forget_probes(&self) {
        if self.has_probes() {
            self.has_probes.set(false);
            self.probes.borrow_mut().clear();
        }
    }

    pub(crate) fn probes(&self) -> Vec<Probe> {
        self.probes.borrow().clone()
    }

    pub(crate) fn show_probe(&self, probe: Probe) {
        self.probes.borrow_mut().push(probe);
        self.has_probes.set(true);
    }

    /// Returns a number that no other probe of this runtime has.
    pub(crate) fn number_probe(&self) -> u64 {
        let number = self.probes_numbered.get() + 1;
        self.probes_numbered.set(number);
        (self.index as u64) << 48 | number
    }

    // --- running ---

    #[inline(always)]
    fn run_process(&self, token: Token) {
        self.run_process_for(token, BUDGET);
    }

    /// Runs a process, for at most `budget` messages.
    #[inline(always)]
    pub(crate) fn run_process_for(&self, token: Token, budget: u32) {
        self.begin_run(&token, budget);
        if let Some((token, progress)) = self.run_usually(token) {
            self.run_turns(token, progress);
        }
        self.end_run();
    }

    /// Resumes a process, and runs its messages for as long as nothing else is to be done; returns
    /// the token with the progress of the last turn if the run goes on.
    #[inline(always)]
    fn run_usually(&self, token: Token) -> Option<(Token, Progress)> {
        let may_be_plain = self.scheduler().phase() == Phase::Running;
        if may_be_plain && token.is_plain() {
            return token.run_plain(self);
        }
        if may_be_plain && token.is_to_stop() && !token.is_signalled() {
            return self.run_exit(token);
        }
        let progress = if may_be_plain && token.is_to_start() {
            self.count_turn();
            token.count_turn();
            token.start()
        } else {
            self.resume(&token)
        };
        let goes_on = self.end_turn(&token);
        match progress {
            Progress::Pending => {
                self.suspend(token);
                None
            }
            Progress::Done(After::Next) if may_be_plain && goes_on && token.is_plain() => {
                token.run_plain(self)
            }
            progress => Some((token, progress)),
        }
    }

    /// Ends a process that was asked to stop while it was idle; if it has a last turn, returns the
    /// token with the progress of that turn.
    #[inline(always)]
    fn run_exit(&self, token: Token) -> Option<(Token, Progress)> {
        self.count_turn();
        if token.class().stopping.is_some() {
            return Some((token, Progress::Done(After::exit(ExitReason::Normal))));
        }
        let generation = token.generation();
        self.finish(token, generation, ExitReason::Normal);
        None
    }

    /// Suspends the turn under way until it is woken.
    #[inline(always)]
    fn suspend(&self, token: Token) {
        let Err(token) = token.suspend() else { return };
        // The turn was woken during the poll. Other processes come first, because it may be a turn
        // that only yields.
        if self.run.began.get().until(self.scheduler().clock.now()) < TIME_BUDGET {
            self.push_back(token);
        } else {
            self.push_spent(token);
        }
    }

    #[inline(always)]
    fn begin_run(&self, token: &Token, budget: u32) {
        self.running.set(Some(token.as_ref()));
        self.sends_left.set(SENDS_PER_EXPOSURE);
        self.nested.set(0);
        self.run.begin(budget, self.scheduler().clock.now());
        if let Some(run) = &self.kind_run {
            run.begin(token.class().kind, || self.scheduler().clock.elapsed());
        }
    }

    #[inline(always)]
    fn end_run(&self) {
        self.forget_probes();
        // Cleared before a user's `Drop` may run below: the token is given up already.
        self.running.set(None);
        let Remote { current_turn, counters, kinds, .. } = self.remote();
        current_turn.end();
        counters.count_run(self.run.turns());
        if let (Some(run), Some(kinds)) = (&self.kind_run, kinds) {
            let clock = &self.scheduler().clock;
            let ticks = self.run.began.get().until(clock.now());
            run.end(kinds, self.run.turns(), ticks, || clock.elapsed());
        }
    }

    /// Counts a message of a run that is not over.
    #[inline(always)]
    pub(crate) fn count_turn(&self) {
        self.run.count_turn();
    }

    /// Ends a turn, or a part of it between two suspensions; false if the run is over.
    #[inline(always)]
    pub(crate) fn end_turn(&self, token: &Token) -> bool {
        self.end_streaks();
        let now = self.scheduler().clock.now();
        if now != self.run.turn_began.get() {
            self.note_ticks(token, now);
        }
        !self.run.is_over()
    }

    /// Ends a turn of the running process; whether the next of its pending messages may follow at
    /// once.
    #[inline(always)]
    pub(crate) fn may_follow(&self, token: &Token) -> bool {
        self.end_turn(token) && !token.is_signalled()
    }

    /// Begins the turn of a message that follows one of its type at once.
    #[inline(always)]
    pub(crate) fn follow_on(&self, token: &Token) {
        token.count_turn();
        self.count_turn();
        self.current_turn().begin_again();
    }

    /// Makes the run of the running process end after its turn, because the turn takes messages out
    /// of the mailbox itself.
    #[inline(always)]
    pub(crate) fn end_run_early(&self) {
        self.run.end();
    }

    /// Records that the clock has advanced during a turn.
    #[cold]
    fn note_ticks(&self, token: &Token, now: Tick) {
        let time = self.run.turn_began.replace(now).until(now);
        if time > TURN_TICKS_UNNOTICED {
            let time = Duration::from_millis(time.into());
            token.note_turn(time);
        }
        if self.run.began.get().until(now) >= TIME_BUDGET {
            self.run.end();
        }
    }

    /// Runs a process as long as it may run, after a turn with this progress.
    #[inline(never)]
    fn run_turns(&self, mut token: Token, mut progress: Progress) {
        let generation = token.generation();
        loop {
            if !matches!(progress, Progress::Done(After::Next)) {
                match self.follow(token, generation, progress) {
                    Some(kept) => (token, progress) = kept,
                    None => return,
                }
            } else if self.run.is_over() {
                return self.give_way(token, generation);
            } else {
                // Before the turn, which may end the run.
                self.count_turn();
                match self.next_turn(&token, generation) {
                    Some(begun) => {
                        token.count_turn();
                        progress = begun;
                    }
                    None => {
                        self.run.uncount_turn();
                        match token.park(generation) {
                            Ok(()) => return,
                            Err(kept) => token = kept,
                        }
                        continue;
                    }
                }
            }
            self.end_turn(&token);
        }
    }

    /// Takes the step that follows a turn, if it is not simply the next message; returns the token
    /// if the run goes on.
    fn follow(
        &self,
        token: Token,
        generation: Generation,
        progress: Progress,
    ) -> Option<(Token, Progress)> {
        let progress = match progress {
            Progress::Pending => {
                self.suspend(token);
                return None;
            }
            Progress::Done(After::Next) => progress,
            Progress::Done(After::Exit(why)) => match token.class().stopping {
                Some(begin) => begin(&token, why.into()),
                None => {
                    self.finish(token, generation, why.into());
                    return None;
                }
            },
            Progress::Done(After::ExitIfIdle) => {
                // A timer that the turn has set is tied to the process by a signal. A signal is no queued message.
                if token.is_signalled() {
                    self.current_turn().begin(token.class().signalled);
                    if let Some(after) = token.handle_signals(generation) {
                        return self.follow(token, generation, Progress::Done(after));
                    }
                }
                if token.close_if_idle(generation) {
                    stop(&token, ExitReason::Normal)
                } else {
                    Progress::Done(After::Next)
                }
            }
            Progress::Done(After::Kill) => {
                let reason = token.reason_of_kill();
                self.finish(token, generation, reason);
                return None;
            }
            Progress::Done(After::Ended(why)) => {
                self.finish(token, generation, why.into());
                return None;
            }
        };
        Some((token, progress))
    }

    /// Resumes a process where it left off.
    #[inline(always)]
    fn resume(&self, token: &Token) -> Progress {
        token.begin_run();
        let signalled = token.is_signalled();
        let phase = self.scheduler().phase();
        if !signalled && phase < Phase::Killing {
            return token.resume(self.current_turn()).unwrap_or_else(|| self.end_late(token));
        }
        self.resume_otherwise(token, signalled, phase)
    }

    /// Does the rest of [`resume`](Self::resume) if signals wait or the shutdown's deadline is over.
    #[cold]
    fn resume_otherwise(&self, token: &Token, signalled: bool, phase: Phase) -> Progress {
        if signalled {
            self.current_turn().begin(token.class().signalled);
            let stopping = token.is_stopping();
            match token.handle_signals(token.generation()) {
                None => {}
                // The process is exiting already.
                Some(After::Exit(_)) if stopping => {}
                Some(after) => {
                    match &after {
                        After::Exit(why) => token.discard_turn(why.reason()),
                        _ => token.discard_turn(&token.reason_of_kill()),
                    };
                    return Progress::Done(after);
                }
            }
        }
        if phase >= Phase::Killing {
            let stopping = token.is_stopping();
            self.current_turn().begin(token.class().ending);
            if token.discard_turn(&ExitReason::Shutdown) {
                token.mark_abandoned();
                if stopping {
                    return Progress::Done(After::ended(ExitReason::Shutdown));
                }
                return Progress::Done(After::exit(ExitReason::Shutdown));
            }
        }
        let progress = token.resume(self.current_turn()).unwrap_or_else(|| self.end_late(token));
        if signalled && matches!(progress, Progress::Done(_)) {
            // The processes whose probes met this turn waited for it, and do not wait for the next.
            self.forget_probes();
        }
        progress
    }

    /// Returns the progress of a process that has no turn under way, but may have to exit.
    #[cold]
    fn end_late(&self, token: &Token) -> Progress {
        match token.obituary() {
            Some(reason) => Progress::Done(After::ended(reason)),
            None if token.is_to_stop() => {
                self.count_turn();
                Progress::Done(After::exit(ExitReason::Normal))
            }
            None => Progress::Done(After::Next),
        }
    }

    /// Begins the next turn, if there is one.
    fn next_turn(&self, token: &Token, generation: Generation) -> Option<Progress> {
        if token.is_signalled() {
            self.current_turn().begin(token.class().signalled);
            if let Some(after) = token.handle_signals(generation) {
                return Some(Progress::Done(after));
            }
        }
        match self.scheduler().phase() {
            Phase::Running => token.run_next(generation, self.current_turn()),
            Phase::Draining => token.run_next(generation, self.current_turn()).or_else(|| {
                token.close_if_idle(generation).then(|| stop(token, ExitReason::Shutdown))
            }),
            Phase::Killing | Phase::Over => Some(self.end_at_once(token, generation)),
        }
    }

    /// Makes a process exit because the deadline of the shutdown is over; its queued messages are
    /// dropped.
    #[cold]
    fn end_at_once(&self, token: &Token, generation: Generation) -> Progress {
        if token.close_if_idle(generation) {
            return stop(token, ExitReason::Shutdown);
        }
        token.mark_abandoned();
        Progress::Done(After::exit(ExitReason::Shutdown))
    }

    /// Ends a process: drops its state and notifies its links and watchers, a slice at a time.
    fn finish(&self, token: Token, generation: Generation, reason: ExitReason) {
        self.end_process(token, generation, reason);
        // Messages that the last drops of the exit have sent must not be joined to the next
        // process's messages.
        self.end_streaks();
    }

    fn end_process(&self, token: Token, generation: Generation, reason: ExitReason) {
        fault::point(Step::Finish, token.class().name);
        self.current_turn().begin(token.class().ending);
        if token.obituary().is_none() {
            if let ExitReason::Panicked(panic) = &reason {
                self.remote().counters.count_panic();
                self.kind_counts(token.class().kind).inspect(|counts| counts.count_panic());
                let (process, panic) = (token.class().name, panic.clone());
                self.shared.events.report(
                    Level::ERROR,
                    "a process panicked",
                    process,
                    move |what| {
                        let (message, place) = (panic.message(), panic.place().map(display));
                        tracing::error!(target: "throng::worker", process, panic = %message, place, "{what}");
                    },
                );
            } else if !matches!(reason, ExitReason::Normal | ExitReason::Shutdown) {
                let (process, reason) = (token.class().name, reason.clone());
                self.shared.events.report(Level::DEBUG, "a process exited", process, move |what| {
                    tracing::debug!(target: "throng::worker", process, %reason, "{what}");
                });
            }
            token.die(generation, &reason);
        }
        if !token.is_bare() && !signal::publish_obituary(&token, NOTIFIED_AT_ONCE) {
            return self.push_back(token);
        }
        if !matches!(reason, ExitReason::Normal) {
            self.shared.count_if_abandoned(&token);
        }
        let kind = token.class().kind;
        token.free(&self.shared.slab, &self.slots);
        self.kind_counts(kind).inspect(|counts| counts.count_exit());
        let remote = self.remote();
        self.shared.permits.give_back(&remote.spare_permits);
        remote.counters.count_exit();
    }
}

#[cfg(feature = "sim")]
impl Worker {
    /// Moves all processes that are ready to run to a list.
    pub(crate) fn take_all(&self, ready: &mut Vec<Token>) {
        while self.alarms.is_due(self.scheduler().clock.now()) {
            drop(self.scheduler().ring(&self.alarms, |token| ready.push(token)));
        }
        ready.extend(std::iter::from_fn(|| self.take_from_slots()));
        ready.extend(std::iter::from_fn(|| self.remote().queue.pop()));
        self.scheduler().take_injected(1, |token| ready.push(token));
    }

    /// Ends a process as a panic in its turn would.
    pub(crate) fn crash_process(&self, token: Token, reason: ExitReason) {
        if token.is_closed() || token.is_stopping() {
            return self.run_process_for(token, BUDGET);
        }
        self.begin_run(&token, BUDGET);
        token.begin_run();
        token.clear_fresh();
        self.current_turn().begin(token.class().ending);
        token.discard_turn(&reason);
        self.run_turns(token, Progress::Done(After::exit(reason)));
        self.end_run();
    }

    /// Tick at which the next alarm rings.
    pub(crate) fn next_alarm(&self) -> Option<Tick> {
        self.alarms.next()
    }
}

/// Begins the hook `stopping` of a process, its last turn; a process without the hook ends.
fn stop(token: &Token, reason: ExitReason) -> Progress {
    match token.class().stopping {
        Some(begin) => begin(token, reason),
        None => Progress::Done(After::ended(reason)),
    }
}
