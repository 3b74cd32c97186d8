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
//! Parts: `selection` finds the next process, `turns` runs it, `ending` ends it; `ready` puts away the
//! processes that it has woken, `running` and `run` say what runs and for how long.
//!
//! The parts that other threads must reach while a turn blocks this worker are not in here but in
//! its `Remote`: the queue and the LIFO slot; and its alarms in the scheduler.

mod alarms;
mod ending;
mod probes;
mod ready;
mod recovery;
mod run;
mod running;
mod selection;
mod turns;

use self::probes::Probes;
use self::running::Running;
use crate::address::RawAddress;
use crate::cell::Token;
use crate::cell::slab::SlotCache;
use crate::error::SendError;
use crate::mailbox::budget::Account;
use crate::mailbox::train::Streaks;
use crate::runtime::{ClassCache, Shared};
use crate::scheduler::alarms::Alarms;
use crate::scheduler::kinds::{Counts, KindNumber, KindRun};
use crate::scheduler::slices::Slices;
use crate::scheduler::watchdog::CurrentTurn;
use crate::scheduler::{self, Phase, Remote, Scheduler};
use crate::sync::{current, park};
#[cfg(feature = "sim")]
use crate::timer::Tick;
use crate::turn::process::{Process, Turn};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Number of messages that a process may handle before other processes get their turn.
pub(super) const BUDGET: u32 = 256;
/// Ticks of the coarse clock for which a process may go on to the next message.
pub(super) const TIME_BUDGET: u32 = 2;
/// Number of processes that a guest runs before it leaves the rest to the workers: a call whose process calls
/// others, and they others in turn, is answered without a worker to this depth.
const GUEST_RUNS: u32 = 32;

/// Place of a worker among those of its runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Has a wheel of alarms of its own.
    Regular,
    /// Takes over from a worker that is stuck in a turn.
    Spare,
    /// Is a task of the caller's tokio runtime, and runs no process that may block.
    Guest,
}

impl Role {
    #[inline(always)]
    fn is_guest(self) -> bool {
        self == Role::Guest
    }
}

/// One thread that runs processes; see the file's head.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) account: Account,
    remote: Arc<Remote>,
    index: usize,
    role: Role,
    /// Alarms of this worker; a spare worker and a guest use those of a regular one.
    alarms: Arc<Alarms>,
    slices: Slices,
    runs: Cell<u32>,
    running: Running,
    probes: Probes,
    /// Whether sleepers are woken later for processes that become ready.
    batching: Cell<bool>,
    streaks: Streaks,
    pub(crate) slots: RefCell<SlotCache>,
    pub(crate) classes: RefCell<ClassCache>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Worker {
        let Scheduler { clock, remotes, alarms, guests, guests_kinds, .. } = &shared.scheduler;
        let workers = shared.scheduler.workers();
        let role = match index {
            _ if index < workers => Role::Regular,
            _ if guests.is_seat(index) => Role::Guest,
            _ => Role::Spare,
        };
        let kind_run = guests_kinds.is_some().then(|| KindRun::new(index));
        Worker {
            account: Account::open(&shared.budget),
            remote: remotes[index].clone(),
            index,
            role,
            alarms: alarms[index % workers].clone(),
            slices: Slices::new(clock.now()),
            runs: Cell::new(0),
            running: Running::new(clock.now(), kind_run),
            probes: Probes::default(),
            batching: Cell::new(false),
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
            if self.role == Role::Spare && self.scheduler().spares.surplus() && self.retire() {
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

    pub(crate) fn next_alarm(&self) -> Option<Tick> {
        self.alarms.next()
    }
}
