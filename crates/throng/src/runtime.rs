//! The runtime: what holds the slab, the workers and the clock together, and how it starts and
//! ends.
//!
//! ```text
//! Runtime ──owns──▶ threads: worker × n, clock; a tokio runtime unless attached to one
//!    │
//!    └─ RuntimeHandle ─▶ Shared { scheduler, slab, classes, permits }
//! ```
//! Classes hold handles, and so keep their own runtime alive: the end of the runtime breaks that
//! ring on purpose, once no process is left that could need its class.
//!
//! Shutdown is in phases (see [`Phase`]): *draining* asks each process to exit when its mailbox is
//! empty; when the deadline is over, *killing* drops turns that are suspended. Both are carried to
//! idle processes by sweeping over the slab until none is left.

use crate::address::{Address, RawAddress};
use crate::alarms::Alarms;
use crate::bound::MailboxBound;
use crate::budget::{BUDGET_BYTES, OwnBudget};
use crate::cell::{Class, Token};
use crate::error::{SpawnError, StartError};
use crate::exit::ExitReason;
use crate::extension::Extension;
use crate::frame::{self, Progress};
use crate::group::Groups;
use crate::message_timer::{self, Timer};
use crate::process::{self, Process, Started, Stopping, TimedOut, Turn};
use crate::registry::Registry;
use crate::scheduler::{self, Phase, Remote, Scheduler};
use crate::slab::{Slab, SlotCache};
use crate::spare::Activated;
use crate::spawn_options::SpawnOptions;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{self, Epoch, JoinHandle, Mutex, Thread, ThreadBuilder, lock};
use crate::timer::Clock;
use crate::watch::Watch;
use crate::worker::Worker;
use std::any::TypeId;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// As many processes as live at once unless told otherwise.
const PROCESS_LIMIT: u64 = 10_000_000;
/// How long a dropped runtime waits for its processes.
const DROP_DEADLINE: Duration = Duration::from_secs(1);
/// How long killing goes on without any process exiting, and how long stuck workers have to end.
const KILL_DEADLINE: Duration = Duration::from_secs(1);
/// How long a turn may hold its worker.
const STUCK_AFTER: Duration = Duration::from_millis(10);
/// How many spare workers there are at most.
const SPARES_MOST: usize = 256;
const SWEEP_PAUSE: Duration = Duration::from_millis(1);

/// Settings of a runtime to be started.
///
/// ```
/// use throng::prelude::*;
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().process_limit(50_000_000).workers(2).start()?;
/// assert_eq!(runtime.process_limit(), 50_000_000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RuntimeBuilder {
    process_limit: u64,
    mailbox_budget: u64,
    workers: usize,
    io_threads: usize,
    spare_workers: Option<usize>,
    stuck_after: Duration,
}

impl RuntimeBuilder {
    pub(crate) fn new() -> RuntimeBuilder {
        let cores = sync::parallelism();
        RuntimeBuilder {
            process_limit: PROCESS_LIMIT,
            mailbox_budget: BUDGET_BYTES,
            workers: cores,
            io_threads: (cores / 2).max(1),
            spare_workers: None,
            stuck_after: STUCK_AFTER,
        }
    }

    /// How many processes may live at once; ten million by default.
    ///
    /// The limit costs nothing until it is used. It is kept exactly up to 65,536; above that each
    /// worker may hold up to 128 places in reserve that others cannot use.
    pub fn process_limit(mut self, limit: u64) -> Self {
        self.process_limit = limit;
        self
    }

    /// How many bytes of messages may wait in all mailboxes together; four GiB by default.
    ///
    /// While it is more, `send`, `deliver` and `call` fail with
    /// [`Overloaded`](crate::SendError::Overloaded), to whomever they go. What the runtime itself
    /// says (replies, timers, the end of a process, a request to exit) gets through, and so does
    /// all again once enough is handled.
    ///
    /// Counted is the memory of the queue itself: what a message has on the heap is not seen, and
    /// messages of one turn that share a block count as that block. A sender learns of the excess
    /// within two milliseconds, or 256 messages of one turn; so much may wait above the budget.
    pub fn mailbox_budget(mut self, bytes: u64) -> Self {
        self.mailbox_budget = bytes;
        self
    }

    /// How many threads run processes; by default one for each core.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// How many threads drive sockets and tokio timers, for [`start`](Self::start); by default one
    /// for every two cores.
    pub fn io_threads(mut self, threads: usize) -> Self {
        self.io_threads = threads.max(1);
        self
    }

    /// How many threads may stand in for workers whose handlers block them; by default four for each
    /// worker and twelve more, but not above 256. With none, code that blocks holds up what is
    /// queued behind it.
    ///
    /// Cost: 4 KiB each; the thread is started when it is first needed, and then kept.
    pub fn spare_workers(mut self, spares: usize) -> Self {
        self.spare_workers = Some(spares.min(SPARES_MOST));
        self
    }

    /// After how long in one turn a worker counts as stuck; ten milliseconds by default. That is
    /// reported by [`tracing`], with the names of the process and of the message, and a spare
    /// worker takes over what was queued behind that turn.
    ///
    /// Resolution: some milliseconds.
    pub fn stuck_after(mut self, time: Duration) -> Self {
        self.stuck_after = time;
        self
    }

    /// Starts a runtime with a tokio runtime of its own beside it.
    ///
    /// # Errors
    /// [`StartError::Tokio`] and [`StartError::Thread`] if the system refuses what they need.
    pub fn start(self) -> Result<Runtime, StartError> {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.io_threads)
            .thread_name("throng-io")
            .enable_all()
            .build()
            .map_err(StartError::Tokio)?;
        let handle = tokio.handle().clone();
        self.start_on(handle, Some(tokio))
    }

    /// Starts a runtime inside the tokio runtime this is called from.
    ///
    /// ```
    /// use throng::prelude::*;
    /// # struct Idle;
    /// # impl Process for Idle {}
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), throng::Error> {
    ///     let runtime = Runtime::builder().attach()?;
    ///     runtime.spawn(Idle)?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`StartError::NoTokio`] outside of a tokio runtime; [`StartError::Thread`] if the system
    /// refuses a thread.
    pub fn attach(self) -> Result<Runtime, StartError> {
        let handle = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoTokio)?;
        self.start_on(handle, None)
    }

    /// A runtime without threads, which a simulator drives.
    #[cfg(feature = "sim")]
    pub(crate) fn start_simulated(self, tokio: tokio::runtime::Handle) -> Runtime {
        let shared = self.shared(1, 0, Clock::simulated(), tokio);
        Runtime { handle: RuntimeHandle(shared), tokio: None }
    }

    fn shared(
        &self,
        workers: usize,
        spares: usize,
        clock: Clock,
        tokio: tokio::runtime::Handle,
    ) -> Arc<Shared> {
        let budget = OwnBudget::new(self.mailbox_budget);
        Arc::new(Shared {
            scheduler: Scheduler::new(workers, spares, clock),
            slab: Slab::new(budget.get()),
            budget,
            guest_slots: Mutex::new(SlotCache::new()),
            classes: Mutex::new(HashMap::new()),
            permits: Permits::new(self.process_limit),
            abandoned: AtomicU64::new(0),
            clock_keeper: ClockKeeper::default(),
            threads: Mutex::new(Vec::new()),
            registry: Arc::new(Registry::new()),
            groups: Arc::new(Groups::new()),
            tokio,
        })
    }

    fn start_on(
        self,
        tokio: tokio::runtime::Handle,
        owned: Option<tokio::runtime::Runtime>,
    ) -> Result<Runtime, StartError> {
        let spares = self.spare_workers.unwrap_or((4 * self.workers + 12).min(SPARES_MOST));
        let shared = self.shared(self.workers, spares, Clock::new(), tokio);
        // From here on a failure drops the runtime, which ends what has started.
        let runtime = Runtime { handle: RuntimeHandle(shared.clone()), tokio: owned };
        for index in 0..self.workers {
            shared.spawn_worker(index).map_err(StartError::Thread)?;
        }
        let keeper = shared.clone();
        let watch = Watch::new(self.stuck_after);
        shared
            .spawn_thread("throng-clock".into(), move || ClockKeeper::run(&keeper, watch))
            .map_err(StartError::Thread)?;
        Ok(runtime)
    }
}

/// A running runtime; whoever owns it decides when it ends.
///
/// All else is done through the [`RuntimeHandle`], to which this dereferences. Several runtimes
/// may run in one program and know nothing of each other. Dropping it shuts it down and waits a
/// second at most; to wait longer, and to know the outcome, call [`shutdown`](Self::shutdown).
pub struct Runtime {
    handle: RuntimeHandle,
    tokio: Option<tokio::runtime::Runtime>,
}

/// How a shutdown went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    /// Processes that exited in order.
    pub stopped: u64,
    /// Processes that did not within the deadline: those suspended were dropped in mid-turn, and
    /// those that block their thread still do.
    pub abandoned: u64,
}

impl Runtime {
    /// Settings, with their defaults.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// A handle, to be cloned and kept anywhere.
    pub fn handle(&self) -> &RuntimeHandle {
        &self.handle
    }

    /// Runs async code on the calling thread, with tokio at hand, until it is done.
    ///
    /// # Panics
    /// From within async code, as any blocking would harm it.
    pub fn block_on<R>(&self, f: impl AsyncFnOnce(&RuntimeHandle) -> R) -> R {
        self.tokio().block_on(f(&self.handle))
    }

    /// Ends the runtime in order: from now on nothing can be spawned, and each process exits with
    /// [`ExitReason::Shutdown`] when it has handled what is in its mailbox. What has not exited
    /// when the deadline is over is dropped where it waits; its `stopping` then runs up to where
    /// it would wait.
    ///
    /// Blocks the calling thread. Cost: a look at each process, and a turn for its exit.
    pub fn shutdown(mut self, deadline: Duration) -> Shutdown {
        self.shut_down(deadline)
    }

    fn shut_down(&mut self, deadline: Duration) -> Shutdown {
        let shared = self.handle.0.clone();
        shared.scheduler.set_phase(Phase::Draining);
        let live = shared.scheduler.live();
        if !shared.sweep_until_empty(Patience::in_all(deadline)) {
            shared.scheduler.set_phase(Phase::Killing);
            shared.sweep_until_empty(Patience::without_exit(KILL_DEADLINE));
        }
        let stuck = shared.scheduler.live();
        shared.scheduler.set_phase(Phase::Over);
        shared.clock_keeper.end();
        shared.join_threads();
        // Messages still to be sent may hold handles of this very runtime.
        shared.scheduler.alarms.iter().for_each(Alarms::close);
        tracing::debug!(workers = ?shared.scheduler.worker_metrics(), "the runtime is over");
        if stuck == 0 {
            // Breaks the ring from class to runtime; nobody needs a class any more.
            lock(&shared.classes).clear();
            lock(&shared.guest_slots).drain(&shared.slab);
        } else {
            tracing::error!(processes = stuck, "processes block their threads and are left behind");
        }
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
        let abandoned = shared.abandoned.load(Ordering::Relaxed) + stuck;
        Shutdown { stopped: live.saturating_sub(abandoned), abandoned }
    }
}

impl Deref for Runtime {
    type Target = RuntimeHandle;

    fn deref(&self) -> &RuntimeHandle {
        &self.handle
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.handle.0.scheduler.phase() != Phase::Over {
            self.shut_down(DROP_DEADLINE);
        }
    }
}

/// A runtime to spawn processes in. Cloning it costs a reference count.
#[derive(Clone)]
pub struct RuntimeHandle(Arc<Shared>);

impl RuntimeHandle {
    /// Spawns a process.
    ///
    /// It belongs to nobody and lives until it stops, panics, or the runtime ends.
    ///
    /// # Errors
    /// [`SpawnError::Limit`] and [`SpawnError::ShutDown`] hand the state back.
    ///
    /// Cost: about 30 ns from within a process (`spawn` in `bench/`), two locks more from
    /// elsewhere; memory as said at [`Process`].
    #[inline]
    pub fn spawn<P: Process>(&self, process: P) -> Result<Address<P>, SpawnError<P>> {
        self.spawn_process(process, None, None)
    }

    /// Spawns a process as the options say, with a bounded mailbox for one.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn spawn_with<P: Process>(
        &self,
        process: P,
        options: SpawnOptions,
    ) -> Result<Address<P>, SpawnError<P>> {
        self.spawn_process(process, None, options.mailbox)
    }

    /// Spawns a process with something beside its state, which a layer on top keeps there and its
    /// handlers reach by [`Context::attachment`](crate::Context::attachment).
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    ///
    /// Cost: two allocations more.
    pub fn spawn_attached<P: Process, A: Send + 'static>(
        &self,
        process: P,
        attachment: A,
    ) -> Result<Address<P>, SpawnError<P>> {
        let attachment = Some(Box::new(attachment) as _);
        self.spawn_extended(process, Extension { attachment, ..Extension::default() })
    }

    pub(crate) fn spawn_extended<P: Process>(
        &self,
        process: P,
        extension: Extension,
    ) -> Result<Address<P>, SpawnError<P>> {
        self.spawn_process(process, Some(Box::new(extension)), None)
    }

    /// Sends a message to a process when a time has passed, from any thread. If the process has
    /// exited by then, the message is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::prelude::*;
    ///
    /// struct Reminder;
    /// impl Process for Reminder {}
    /// struct Remind;
    /// impl Message for Remind { type Reply = (); }
    /// impl Handle<Remind> for Reminder {
    ///     async fn handle(&mut self, _: Remind, cx: &mut Context<Self>) {
    ///         cx.stop(ExitReason::Normal);
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let reminder = runtime.spawn(Reminder)?;
    /// let timer = runtime.send_after(reminder, Duration::from_millis(5), Remind);
    /// let never = runtime.send_after(reminder, Duration::from_secs(5), Remind);
    /// assert!(never.cancel());
    /// while reminder.is_alive() {
    ///     std::thread::yield_now();
    /// }
    /// assert!(!timer.cancel());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The message is never early, and counts against no bound of the mailbox. Of two timers for
    /// the same millisecond either may come first.
    ///
    /// Resolution: a millisecond. Cost: a look at the clock, a pooled block, a lock that is seldom
    /// contended; for the memory see [`Timer`].
    pub fn send_after<P: Process, T: Turn<P>>(
        &self,
        to: Address<P>,
        delay: Duration,
        message: T,
    ) -> Timer {
        message_timer::send_after(self.scheduler(), to, delay, message)
    }

    /// Sends clones of a message to a process, one each period, until it is cancelled or the
    /// process exits.
    ///
    /// The next one is due a period after the last was due, and is set when the process begins to
    /// handle the last. So at most one of them is in the mailbox: beats that a slow process misses
    /// are skipped, and the others keep their phase. Periods count from a millisecond to twelve
    /// days. The message is cloned in the process's own turn; if that panics, the process exits.
    ///
    /// Cost: each beat as a [`send_after`](Self::send_after) and a message more.
    pub fn send_every<P: Process, T: Turn<P> + Clone>(
        &self,
        to: Address<P>,
        period: Duration,
        message: T,
    ) -> Timer {
        message_timer::send_every(self.scheduler(), to, period, message)
    }

    /// How many processes live. Exact when nothing is being spawned or exiting.
    pub fn process_count(&self) -> u64 {
        self.0.scheduler.live()
    }

    /// How many bytes of messages wait in all mailboxes; see
    /// [`mailbox_budget`](RuntimeBuilder::mailbox_budget). Exact when nothing is being sent or
    /// handled.
    pub fn mailbox_bytes(&self) -> u64 {
        self.0.budget.queued()
    }

    /// How many bytes of messages may wait in all mailboxes.
    pub fn mailbox_bytes_limit(&self) -> u64 {
        self.0.budget.limit()
    }

    /// How many processes may live at once.
    pub fn process_limit(&self) -> u64 {
        self.0.permits.limit
    }

    /// The tokio runtime in whose reach all handlers run.
    pub fn tokio(&self) -> &tokio::runtime::Handle {
        &self.0.tokio
    }

    pub(crate) fn slab(&self) -> &Slab {
        &self.0.slab
    }

    pub(crate) fn is_same(&self, other: &RuntimeHandle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[inline(always)]
    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.0.scheduler
    }

    #[cfg(feature = "sim")]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    pub(crate) fn groups(&self) -> &Arc<Groups> {
        &self.0.groups
    }

    /// Whether nothing can be spawned any more.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.0.scheduler.phase() != Phase::Running
    }

    #[inline(always)]
    fn spawn_process<P: Process>(
        &self,
        process: P,
        extension: Option<Box<Extension>>,
        bound: Option<MailboxBound>,
    ) -> Result<Address<P>, SpawnError<P>> {
        Ok(open(self.create(process, extension)?, bound))
    }

    /// Spawns a process without a `started` hook, which has a first turn instead.
    pub(crate) fn spawn_first<P: Process, T: Turn<P>>(
        &self,
        process: P,
        first: T,
    ) -> Result<Address<P>, SpawnError<(P, T)>> {
        self.spawn_first_extended(process, first, None)
    }

    pub(crate) fn spawn_first_extended<P: Process, T: Turn<P>>(
        &self,
        process: P,
        first: T,
        extension: Option<Box<Extension>>,
    ) -> Result<Address<P>, SpawnError<(P, T)>> {
        const { assert!(!process::has_started::<P>(), "a process has one first turn") };
        match self.create(process, extension) {
            Ok(token) => Ok(open_with::<P, T>(token, first, None)),
            Err(error) => Err(error.map(|process| (process, first))),
        }
    }

    #[inline(always)]
    fn create<P: Process>(
        &self,
        process: P,
        extension: Option<Box<Extension>>,
    ) -> Result<Token, SpawnError<P>> {
        self.with_nursery::<P, _>(|nursery| nursery.create(process, extension))
            .map_err(|process| self.refusal(process))
    }

    /// Spawns one process after the other until one is refused.
    pub(crate) fn spawn_each<P: Process>(
        &self,
        processes: &mut impl Iterator<Item = P>,
        mut each: impl FnMut(Address<P>),
    ) -> Option<SpawnError<P>> {
        let refused = self.with_nursery::<P, _>(|nursery| {
            processes.find_map(|process| match nursery.create(process, None) {
                Ok(token) => {
                    each(open(token, None));
                    None
                }
                Err(refused) => Some(refused),
            })
        });
        refused.map(|process| self.refusal(process))
    }

    /// Runs `f` with all that is needed to make processes of a type.
    #[inline(always)]
    fn with_nursery<P: Process, R>(&self, f: impl FnOnce(&mut Nursery<'_>) -> R) -> R {
        let shared = &*self.0;
        scheduler::with_worker(|worker| {
            match worker.filter(|worker| std::ptr::eq(&*worker.shared, shared)) {
                Some(worker) => {
                    let remote = Some(&shared.scheduler.remotes[worker.index()]);
                    let mut classes = worker.classes.borrow_mut();
                    let class = classes.get::<P>(self);
                    let slots = &mut worker.slots.borrow_mut();
                    f(&mut Nursery { shared, remote, class, slots })
                }
                None => {
                    let class = &self.class::<P>();
                    let slots = &mut lock(&shared.guest_slots);
                    f(&mut Nursery { shared, remote: None, class, slots })
                }
            }
        })
    }

    /// Why there was no room for a process.
    #[cold]
    fn refusal<P>(&self, process: P) -> SpawnError<P> {
        match self.0.scheduler.phase() {
            Phase::Running => SpawnError::Limit { limit: self.0.permits.limit, process },
            _ => SpawnError::ShutDown { process },
        }
    }

    fn class<P: Process>(&self) -> Arc<Class> {
        let stopping =
            const { process::has_stopping::<P>() }.then_some(stopping::<P> as fn(&_, _) -> _);
        let timeout = const { process::has_timeout::<P>() }.then_some(timeout::<P> as fn(&_) -> _);
        lock(&self.0.classes)
            .entry(TypeId::of::<P>())
            .or_insert_with(|| Arc::new(Class::new::<P>(self.clone(), stopping, timeout)))
            .clone()
    }
}

impl std::fmt::Debug for RuntimeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RuntimeHandle({} of {} processes)", self.process_count(), self.process_limit())
    }
}

/// Where processes of one type are made: by a worker, or by a guest.
struct Nursery<'a> {
    shared: &'a Shared,
    /// The worker's.
    remote: Option<&'a Remote>,
    class: &'a Class,
    slots: &'a mut SlotCache,
}

impl Nursery<'_> {
    /// Makes a process; it comes back if there may be no more of them.
    #[inline(always)]
    fn create<P: Process>(
        &mut self,
        process: P,
        extension: Option<Box<Extension>>,
    ) -> Result<Token, P> {
        let Shared { scheduler, permits, slab, .. } = self.shared;
        match self.remote {
            Some(remote) => {
                if scheduler.phase() != Phase::Running || !permits.take(&remote.spare_permits) {
                    return Err(process);
                }
                remote.counters.count_spawn();
            }
            None => {
                if scheduler.phase() != Phase::Running || !permits.take_one() {
                    return Err(process);
                }
                if !scheduler.count_guest_spawn() {
                    permits.give_one_back();
                    return Err(process);
                }
            }
        }
        Ok(Token::create(slab, self.slots, self.class, process, extension))
    }
}

/// Gives a process just created its address, and its first turn if it has one.
#[inline(always)]
fn open<P: Process>(token: Token, bound: Option<MailboxBound>) -> Address<P> {
    if const { process::has_started::<P>() } {
        return open_with(token, Started, bound);
    }
    let cell = token.as_ref();
    Address::from_raw(RawAddress::new(cell.as_ptr(), token.open_idle(bound)))
}

/// Gives a process just created its address and a first turn.
fn open_with<P: Process, T: Turn<P>>(
    token: Token,
    first: T,
    bound: Option<MailboxBound>,
) -> Address<P> {
    token.set_first::<T, P>(first);
    let address = RawAddress::new(token.as_ref().as_ptr(), token.open_busy(bound));
    scheduler::schedule(token);
    Address::from_raw(address)
}

/// Begins [`Process::stopping`].
fn stopping<P: Process>(token: &Token, reason: ExitReason) -> Progress {
    frame::begin_last::<P, _>(token, Stopping(reason))
}

/// Begins [`Process::timeout`].
fn timeout<P: Process>(token: &Token) -> Progress {
    frame::begin_hook::<P, _>(token, TimedOut)
}

/// What all threads of a runtime, and its handles, hold in common.
pub(crate) struct Shared {
    pub(crate) scheduler: Scheduler,
    pub(crate) slab: Slab,
    pub(crate) budget: OwnBudget,
    /// Slots for spawns from outside the workers.
    guest_slots: Mutex<SlotCache>,
    classes: Mutex<HashMap<TypeId, Arc<Class>>>,
    pub(crate) permits: Permits,
    /// Turns dropped by the shutdown.
    pub(crate) abandoned: AtomicU64,
    pub(crate) clock_keeper: ClockKeeper,
    threads: Mutex<Vec<JoinHandle<()>>>,
    registry: Arc<Registry>,
    groups: Arc<Groups>,
    tokio: tokio::runtime::Handle,
}

impl Shared {
    fn spawn_thread(
        &self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let thread = ThreadBuilder::new().name(name).spawn(run)?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    fn spawn_worker(self: &Arc<Self>, index: usize) -> std::io::Result<()> {
        let shared = self.clone();
        self.spawn_thread(format!("throng-{index}"), move || {
            let tokio = shared.tokio.clone();
            let _inside_tokio = tokio.enter();
            Worker::new(shared, index).run();
        })
    }

    /// So many workers are stuck: sees to it that as many spare ones stand in for them.
    pub(crate) fn staff(self: &Arc<Self>, stuck: usize) {
        if self.scheduler.phase() == Phase::Over {
            return;
        }
        let Scheduler { spares, remotes, .. } = &self.scheduler;
        while let Some(activated) = spares.activate(stuck) {
            match activated {
                Activated::Wake(spare) => remotes[spare].unpark(),
                Activated::Start(spare) => {
                    if let Err(error) = self.spawn_worker(spare) {
                        tracing::error!(%error, "no thread for a spare worker");
                        return spares.give_up(spare);
                    }
                }
            }
        }
        // So that one that sleeps retires.
        spares.superfluous().into_iter().for_each(|spare| remotes[spare].unpark());
    }

    /// Joins what ends in time; a thread stuck in a handler is left to itself.
    fn join_threads(&self) {
        let begun = Epoch::now();
        let mut threads = std::mem::take(&mut *lock(&self.threads));
        while threads.iter().any(|thread| !thread.is_finished()) && begun.elapsed() < KILL_DEADLINE
        {
            sync::sleep(Duration::from_micros(100));
        }
        for thread in threads.drain(..).filter(JoinHandle::is_finished) {
            if thread.join().is_err() {
                tracing::error!("a thread of the runtime panicked");
            }
        }
    }

    /// Carries the present phase to processes that would not notice it, until none lives; false if
    /// the patience is over before.
    fn sweep_until_empty(&self, mut patience: Patience) -> bool {
        while self.scheduler.live() > 0 {
            self.sweep(&mut patience);
            if patience.is_over(self.scheduler.live()) {
                return self.scheduler.live() == 0;
            }
            sync::sleep(SWEEP_PAUSE);
        }
        true
    }

    /// Carries the present phase to processes that would not notice it.
    #[cfg(feature = "sim")]
    pub(crate) fn sweep_once(&self) {
        self.sweep(&mut Patience::in_all(Duration::ZERO));
    }

    fn sweep(&self, patience: &mut Patience) {
        /// So many tokens may wait; a sweep over millions must not queue them all.
        const INJECTED_MOST: usize = 16 * 1024;
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
                while !is_over && self.scheduler.injected() > INJECTED_MOST {
                    sync::sleep(SWEEP_PAUSE);
                    is_over = patience.is_over(self.scheduler.live());
                }
            }
        });
        self.scheduler.inject(batch);
    }
}

/// How long a shutdown waits: for so long in all, or for so long without any exit.
struct Patience {
    limit: Duration,
    since: Epoch,
    /// How few processes lived at the last look, if exits renew the patience.
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

/// Classes this worker has met, found without a lock.
pub(crate) struct ClassCache([Option<(TypeId, Arc<Class>)>; ClassCache::SIZE]);

impl ClassCache {
    const SIZE: usize = 32;

    pub(crate) fn new() -> ClassCache {
        ClassCache([const { None }; ClassCache::SIZE])
    }

    #[inline(always)]
    fn get<P: Process>(&mut self, runtime: &RuntimeHandle) -> &Arc<Class> {
        let id = TypeId::of::<P>();
        // The name's address differs from type to type, mostly; equal ones only share a place.
        let place = std::any::type_name::<P>().as_ptr().addr() / 8 % Self::SIZE;
        let entry = &mut self.0[place];
        if entry.as_ref().is_none_or(|(known, _)| *known != id) {
            *entry = Some((id, runtime.class::<P>()));
        }
        match entry {
            Some((_, class)) => class,
            None => unreachable!("filled above"),
        }
    }
}

/// How many processes there may still be. Workers take permits in batches, so that spawning does
/// not contend for one counter; small limits are kept one by one, and exactly.
pub(crate) struct Permits {
    limit: u64,
    taken: AtomicU64,
    batch: u32,
}

impl Permits {
    const BATCH: u32 = 64;

    fn new(limit: u64) -> Permits {
        let batch = if limit <= 65_536 { 1 } else { Permits::BATCH };
        Permits { limit, taken: AtomicU64::new(0), batch }
    }

    fn take_many(&self, count: u32) -> bool {
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(u64::from(count)).filter(|&taken| taken <= self.limit)
            })
            .is_ok()
    }

    fn take_one(&self) -> bool {
        self.take_many(1)
    }

    #[inline(always)]
    fn take(&self, spare: &AtomicU32) -> bool {
        let left = spare.load(Ordering::Relaxed);
        if left > 0 {
            spare.store(left - 1, Ordering::Relaxed);
            return true;
        }
        if self.batch > 1 && self.take_many(self.batch) {
            spare.store(self.batch - 1, Ordering::Relaxed);
            return true;
        }
        self.take_one()
    }

    #[inline(always)]
    pub(crate) fn give_back(&self, spare: &AtomicU32) {
        let left = spare.load(Ordering::Relaxed) + 1;
        if left >= 2 * self.batch || self.batch == 1 {
            let returned = self.batch;
            spare.store(left - returned, Ordering::Relaxed);
            self.taken.fetch_sub(u64::from(returned), Ordering::Relaxed);
        } else {
            spare.store(left, Ordering::Relaxed);
        }
    }

    pub(crate) fn return_spare(&self, spare: &AtomicU32) {
        let left = spare.swap(0, Ordering::Relaxed);
        self.taken.fetch_sub(u64::from(left), Ordering::Relaxed);
    }

    fn give_one_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread that advances the clock, keeps the watch and looks at the mailbox budget while any
/// worker is awake.
#[derive(Default)]
pub(crate) struct ClockKeeper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl ClockKeeper {
    /// For so many looks with nobody awake it goes on: waking it costs a system call.
    const PATIENCE: u32 = 50;

    fn run(shared: &Arc<Shared>, mut watch: Watch) {
        let Shared { scheduler, clock_keeper, budget, .. } = &**shared;
        let _ = clock_keeper.thread.set(sync::current());
        let mut idle = 0;
        while scheduler.phase() != Phase::Over {
            scheduler.clock.refresh();
            budget.look();
            watch.look(shared);
            idle = if scheduler.all_asleep() { idle + 1 } else { 0 };
            if idle < Self::PATIENCE {
                sync::sleep(Clock::STALE);
                continue;
            }
            clock_keeper.asleep.store(true, Ordering::SeqCst);
            // Whoever wakes after this look sees that we sleep.
            if scheduler.all_asleep() && scheduler.phase() != Phase::Over {
                // What was handled is handled for good; nobody else would say so.
                budget.look();
                sync::park();
            }
            clock_keeper.asleep.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }

    /// A worker is awake again; returns how long the runtime has run.
    pub(crate) fn wake(&self, clock: &Clock) -> Duration {
        let (_, now) = clock.refresh_exactly();
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.end();
        }
        now
    }

    fn end(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Idle;
    impl Process for Idle {}

    #[test]
    fn a_runtime_that_is_over_leaves_no_thread_and_no_memory_behind() {
        for _ in 0..20 {
            let runtime = Runtime::builder().workers(4).start().expect("starts");
            runtime.spawn(Idle).expect("there is room");
            let shared = Arc::downgrade(&runtime.handle.0);
            assert_eq!(runtime.shutdown(Duration::from_secs(20)).abandoned, 0);
            // Each thread holds it until its end.
            assert!(shared.upgrade().is_none(), "a thread has not ended");
        }
    }
}
