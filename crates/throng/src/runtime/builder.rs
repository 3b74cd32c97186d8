//! The settings of a runtime, and its start.
//!
//! Invariants: nothing runs before [`start`](RuntimeBuilder::start) or
//! [`attach`](RuntimeBuilder::attach). If a step of the start fails, the drop of the half-started
//! [`Runtime`] ends the threads that have already started.

use super::{Abandoned, ClockKeeper, Permits, Runtime, RuntimeHandle, Shared};
use crate::cell::slab::{Slab, SlotCache};
use crate::error::StartError;
use crate::events::Events;
use crate::exit::panic;
use crate::mailbox::budget::{BUDGET_BYTES, OwnBudget};
use crate::memory::block;
use crate::memory::spare_bits::NoSpareBits;
use crate::scheduler::watchdog::Watchdog;
use crate::scheduler::{self, Scheduler};
use crate::signal::group::Groups;
use crate::signal::registry::Names;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{self, Mutex};
use crate::timer::Clock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const PROCESS_LIMIT: u64 = 10_000_000;
/// Default time after which a turn counts as blocking its worker.
const STUCK_AFTER: Duration = Duration::from_millis(10);
const SPARES_MOST: usize = 256;
/// Greatest number of threads outside of the workers that may run processes at a time.
const GUESTS_MOST: usize = 64;

/// Settings of a runtime to start.
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
    guests: Option<usize>,
    stuck_after: Duration,
    kind_metrics: bool,
}

impl RuntimeBuilder {
    pub(crate) fn new() -> RuntimeBuilder {
        let cores = sync::parallelism();
        RuntimeBuilder {
            process_limit: PROCESS_LIMIT,
            mailbox_budget: BUDGET_BYTES,
            workers: cores,
            // Handlers of a web server run on these threads, with the idle processes that they call.
            io_threads: cores,
            spare_workers: None,
            guests: None,
            stuck_after: STUCK_AFTER,
            kind_metrics: false,
        }
    }

    /// Sets the maximum number of live processes; ten million by default.
    ///
    /// A high limit costs nothing until processes are spawned. Limits up to 65,536 are exact; above
    /// that each worker and each [guest](Self::guests) may keep up to 128 places in reserve, which
    /// others cannot use.
    pub fn process_limit(mut self, limit: u64) -> Self {
        self.process_limit = limit;
        self
    }

    /// Sets the maximum bytes of messages queued in all mailboxes together; 4 GiB by default.
    ///
    /// While the queues hold more, `send`, `deliver` and `call` fail with
    /// [`Overloaded`](crate::SendError::Overloaded), whatever process they address. Messages of the
    /// runtime itself (replies, timers, the end of a process, a request to exit), links, monitors
    /// and other signals (see [`Pid`](crate::Pid)) are counted but not refused. Once enough
    /// messages have been handled, sends succeed again.
    ///
    /// The count covers the memory of the queue itself: heap memory owned by a message is not
    /// included, and messages of one turn that share a block count as that block. Messages that an
    /// async process has [passed over](crate::Inbox::recv_match) count until a receive takes them.
    /// A sender learns of the excess within two milliseconds, or 256 messages of one turn; the
    /// queues may exceed the budget by that much.
    pub fn mailbox_budget(mut self, bytes: u64) -> Self {
        self.mailbox_budget = bytes;
        self
    }

    /// Sets the number of threads that run processes; one per core by default.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Sets the number of threads that drive sockets and tokio timers, for [`start`](Self::start);
    /// one per core by default. A program that mostly sends the same to thousands of sockets may be faster
    /// with half as many, which compete less with its workers.
    pub fn io_threads(mut self, threads: usize) -> Self {
        self.io_threads = threads.max(1);
        self
    }

    /// Sets the maximum number of spare threads that stand in for workers blocked by a handler; by
    /// default four for each worker and twelve more, at most 256. Without spares, code that blocks
    /// delays the processes queued behind it.
    ///
    /// Cost: 4 KiB each; the thread is started when first needed, and then kept.
    pub fn spare_workers(mut self, spares: usize) -> Self {
        self.spare_workers = Some(spares.min(SPARES_MOST));
        self
    }

    /// Sets the maximum number of guests: of tokio's threads that may each run, as one of their tasks, the
    /// processes whose types promise [`NEVER_BLOCKS`](crate::Process::NEVER_BLOCKS); by default the number of
    /// workers and of I/O threads, and two more. At most 64. With 0, only workers run processes.
    ///
    /// Cost: 4 KiB each, once used.
    pub fn guests(mut self, guests: usize) -> Self {
        self.guests = Some(guests.min(GUESTS_MOST));
        self
    }

    /// Sets the time in a single turn after which a worker counts as stuck; ten milliseconds by
    /// default. A stuck worker is reported through [`tracing`] with the names of the process and
    /// the message, and a spare worker takes over the processes queued behind that turn.
    ///
    /// Resolution: a few milliseconds.
    pub fn stuck_after(mut self, time: Duration) -> Self {
        self.stuck_after = time;
        self
    }

    /// Sets whether the runtime counts by kind of process, for [`Metrics::kinds`]; off by default.
    ///
    /// ```
    /// use throng::prelude::*;
    ///
    /// struct Room;
    /// impl Process for Room {}
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().kind_metrics(true).start()?;
    /// runtime.spawn(Room)?;
    /// let metrics = runtime.metrics();
    /// let room = metrics.kinds.iter().find(|kind| kind.process.ends_with("::Room"));
    /// assert_eq!(room.map(|room| room.processes), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cost: some 35 instructions for each run of a process, which may be of many messages: nothing
    /// measurable for a message of a flood, 11 % for a question and its answer between processes,
    /// 14 % for a spawn and its exit. 4 KiB for each worker, guest and spare worker, and 640 bytes
    /// there for every 16 kinds. Off: a branch for each run.
    ///
    /// [`Metrics::kinds`]: crate::Metrics::kinds
    pub fn kind_metrics(mut self, on: bool) -> Self {
        self.kind_metrics = on;
        self
    }

    /// Starts a runtime together with its own tokio runtime.
    ///
    /// The first start in a program installs a panic hook, which notes the
    /// [place](crate::Panic::place) of each panic and calls the hook before it.
    ///
    /// # Errors
    /// [`StartError::Tokio`] if the tokio runtime cannot start; [`StartError::Thread`] if the
    /// system refuses a thread; [`StartError::Address`] if the system's memory lies at addresses
    /// that mailboxes cannot point to.
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

    /// Starts a runtime that uses the tokio runtime of the calling thread. End it there with
    /// [`shutdown_async`](Runtime::shutdown_async).
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
    /// refuses a thread; [`StartError::Address`] if the system's memory lies at addresses that
    /// mailboxes cannot point to.
    pub fn attach(self) -> Result<Runtime, StartError> {
        let handle = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoTokio)?;
        self.start_on(handle, None)
    }

    /// Builds a runtime without threads, driven by a simulator.
    #[cfg(feature = "sim")]
    pub(crate) fn start_simulated(self, tokio: tokio::runtime::Handle) -> Runtime {
        let shared = self.shared(1, 0, 0, Clock::simulated(), Events::inline(), tokio);
        Runtime { handle: RuntimeHandle(shared), tokio: None, is_ending: false }
    }

    fn shared(
        &self,
        workers: usize,
        seats: usize,
        spares: usize,
        clock: Clock,
        events: Arc<Events>,
        tokio: tokio::runtime::Handle,
    ) -> Arc<Shared> {
        panic::note_places(scheduler::turn_number);
        let budget = OwnBudget::new(self.mailbox_budget, events.clone());
        Arc::new(Shared {
            scheduler: Scheduler::new(
                workers,
                seats,
                spares,
                clock,
                self.kind_metrics,
                events.clone(),
            ),
            slab: Slab::new(budget.get()),
            budget,
            events,
            guest_slots: Mutex::new(SlotCache::new()),
            classes: Mutex::new(HashMap::new()),
            permits: Permits::new(self.process_limit),
            abandoned: Abandoned::default(),
            workers_running: AtomicUsize::new(0),
            clock_keeper: ClockKeeper::default(),
            threads: Mutex::new(Vec::new()),
            names: Names::new(),
            groups: Arc::new(Groups::new()),
            tokio,
        })
    }

    fn start_on(
        self,
        tokio: tokio::runtime::Handle,
        owned: Option<tokio::runtime::Runtime>,
    ) -> Result<Runtime, StartError> {
        block::probe().map_err(|NoSpareBits { address }| StartError::Address { address })?;
        let seats = self.guests.unwrap_or((self.workers + self.io_threads + 2).min(GUESTS_MOST));
        let spares = self.spare_workers.unwrap_or((4 * self.workers + 12).min(SPARES_MOST));
        let shared = self.shared(self.workers, seats, spares, Clock::new(), Events::new(), tokio);
        // From here on a failure drops `runtime`, which ends the threads that have started.
        let handle = RuntimeHandle(shared.clone());
        let runtime = Runtime { handle, tokio: owned, is_ending: false };
        for index in 0..self.workers {
            shared.spawn_worker(index).map_err(StartError::Thread)?;
        }
        let keeper = shared.clone();
        let watchdog = Watchdog::new(self.stuck_after);
        shared
            .spawn_thread("throng-clock".into(), move || ClockKeeper::run(&keeper, watchdog))
            .map_err(StartError::Thread)?;
        Ok(runtime)
    }
}
