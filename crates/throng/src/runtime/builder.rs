//! The settings of a runtime, and its start.
//!
//! Invariants: nothing runs before [`start`](RuntimeBuilder::start) or
//! [`attach`](RuntimeBuilder::attach); what has started when a later step fails is ended by the
//! runtime that is dropped then.

use super::{Abandoned, ClockKeeper, Permits, Runtime, RuntimeHandle, Shared};
use crate::error::StartError;
use crate::mailbox::budget::{BUDGET_BYTES, OwnBudget};
use crate::memory::block;
use crate::memory::slab::{Slab, SlotCache};
use crate::memory::spare_bits::NoSpareBits;
use crate::runtime::events::Events;
use crate::scheduler::Scheduler;
use crate::scheduler::watchdog::Watchdog;
use crate::signal::group::Groups;
use crate::signal::registry::Registry;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{self, Mutex};
use crate::timer::Clock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// As many processes as live at once unless told otherwise.
const PROCESS_LIMIT: u64 = 10_000_000;
/// How long a turn may hold its worker.
const STUCK_AFTER: Duration = Duration::from_millis(10);
/// How many spare workers there are at most.
const SPARES_MOST: usize = 256;

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
    /// says (replies, timers, the end of a process, a request to exit) gets through, counted but not
    /// refused, as are links, monitors and other signals (see [`Pid`](crate::Pid)); and so does
    /// all again once enough is handled.
    ///
    /// Counted is the memory of the queue itself: what a message has on the heap is not seen, and
    /// messages of one turn that share a block count as that block. Messages that an async process
    /// has [passed over](crate::Inbox::recv_match) count until a receive takes them. A sender learns of the excess
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
    /// [`StartError::Tokio`] and [`StartError::Thread`] if the system refuses what they need;
    /// [`StartError::Address`] if its memory lies where mailboxes cannot point to.
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

    /// Starts a runtime inside the tokio runtime this is called from. End it with
    /// [`shutdown_async`](Runtime::shutdown_async) there.
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
    /// refuses a thread; [`StartError::Address`] if its memory lies where mailboxes cannot point to.
    pub fn attach(self) -> Result<Runtime, StartError> {
        let handle = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoTokio)?;
        self.start_on(handle, None)
    }

    /// A runtime without threads, which a simulator drives.
    #[cfg(feature = "sim")]
    pub(crate) fn start_simulated(self, tokio: tokio::runtime::Handle) -> Runtime {
        let shared = self.shared(1, 0, Clock::simulated(), Events::inline(), tokio);
        Runtime { handle: RuntimeHandle(shared), tokio: None, is_ending: false }
    }

    fn shared(
        &self,
        workers: usize,
        spares: usize,
        clock: Clock,
        events: Arc<Events>,
        tokio: tokio::runtime::Handle,
    ) -> Arc<Shared> {
        let budget = OwnBudget::new(self.mailbox_budget, events.clone());
        Arc::new(Shared {
            scheduler: Scheduler::new(workers, spares, clock, events.clone()),
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
        block::probe().map_err(|NoSpareBits { address }| StartError::Address { address })?;
        let spares = self.spare_workers.unwrap_or((4 * self.workers + 12).min(SPARES_MOST));
        let shared = self.shared(self.workers, spares, Clock::new(), Events::new(), tokio);
        // From here on a failure drops the runtime, which ends what has started.
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
