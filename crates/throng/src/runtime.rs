//! The runtime: owner of the slab, the workers and the clock.
//!
//! ```text
//! Runtime ──owns──▶ threads: worker × n, clock; a tokio runtime unless attached to one
//!    │
//!    └─ RuntimeHandle ─▶ Shared { scheduler, slab, classes, permits }
//! ```
//! Classes hold runtime handles and so keep their own runtime alive. The end of the runtime breaks
//! this reference cycle on purpose, once no process is left that could need its class.
//!
//! A runtime starts in `builder` and ends in `shutdown`; processes are made in `spawn`.

pub(crate) mod inspect;
pub(crate) mod metrics;
pub(crate) mod short_kind;
pub(crate) mod spawner;

mod abandoned;
mod builder;
mod class_cache;
mod clock_keeper;
mod dead_letters;
mod permits;
mod shutdown;
mod spawn;

pub use self::abandoned::AbandonedKind;
pub use self::builder::RuntimeBuilder;
pub(crate) use self::class_cache::ClassCache;
pub use self::shutdown::Shutdown;

use self::abandoned::Abandoned;
use self::clock_keeper::ClockKeeper;
use self::permits::Permits;
use crate::address::Address;
use crate::address::message_timer::{self, Timer};
use crate::cell::Class;
use crate::cell::slab::{Slab, SlotCache};
use crate::error::BlockingError;
use crate::error::SpawnError;
use crate::events::Events;
use crate::exit::catch;
use crate::mailbox::budget::OwnBudget;
use crate::mailbox::dead_letters::Drops;
use crate::scheduler::spare::Activated;
use crate::scheduler::worker::Worker;
use crate::scheduler::{Phase, Scheduler};
use crate::signal::group::Groups;
use crate::signal::registry::Names;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{HashState, JoinHandle, Mutex, ThreadBuilder, lock};
use crate::turn::pipe;
use crate::turn::process::{Process, Repeatable, Turn};
use std::any::TypeId;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

/// A running runtime; its owner decides when it ends.
///
/// Everything but the shutdown is done through the [`RuntimeHandle`], to which `Runtime`
/// dereferences. Several runtimes may run in one program; they are independent of each other.
///
/// # Dropping
///
/// Dropping a runtime shuts it down and waits at most a second for the processes, and two more for
/// turns that block their threads. To wait longer, or to learn the outcome, call
/// [`shutdown`](Self::shutdown) or [`shutdown_async`](Self::shutdown_async).
///
/// The drop does not wait for an event that cannot happen before it returns. A drop in a handler of
/// this runtime returns at once. A drop on the only thread of the tokio runtime that this one is
/// [attached](RuntimeBuilder::attach) to, which drives the timers that handlers wait for, returns
/// when every remaining process is in a suspended turn. In both cases the runtime ends in the
/// background, with the same deadline.
pub struct Runtime {
    handle: RuntimeHandle,
    tokio: Option<tokio::runtime::Runtime>,
    /// Whether another thread, or a shutdown under way, ends the runtime, so the drop need not.
    is_ending: bool,
}

impl Runtime {
    /// Returns the settings of a runtime to start, with their defaults.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// Returns a handle to this runtime, which can be cloned and kept anywhere.
    pub fn handle(&self) -> &RuntimeHandle {
        &self.handle
    }

    /// Runs async code on the calling thread until it completes, inside the tokio runtime.
    ///
    /// # Panics
    /// If called within async code, which must not block.
    pub fn block_on<R>(&self, f: impl AsyncFnOnce(&RuntimeHandle) -> R) -> R {
        self.tokio().block_on(f(&self.handle))
    }

    /// Ends the runtime in order: nothing can be spawned any more, and each process exits with
    /// [`ExitReason::Shutdown`](crate::ExitReason::Shutdown) once it has handled the messages in
    /// its mailbox.
    ///
    /// When the deadline has passed, the suspended turn of each remaining process is dropped; its
    /// `stopping` then runs up to its first suspension. The outcome counts such a process as
    /// abandoned and names its type.
    ///
    /// Blocks the calling thread. In async code call [`shutdown_async`](Self::shutdown_async): a
    /// handler that waits for a tokio timer or socket makes no progress while the thread that
    /// drives these is blocked here.
    ///
    /// Called in a handler of this very runtime, `shutdown` waits for all other processes. The
    /// calling process is not counted, and exits after its turn.
    ///
    /// Cost: a check of each process, and a turn for its exit.
    pub fn shutdown(self, deadline: Duration) -> Shutdown {
        self.shut_down(deadline)
    }

    /// Ends the runtime as [`shutdown`](Self::shutdown) does, without blocking the calling thread.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::prelude::*;
    ///
    /// struct Clerk;
    /// impl Process for Clerk {}
    /// struct File;
    /// impl Message for File { type Reply = (); }
    /// impl Handle<File> for Clerk {
    ///     async fn handle(&mut self, _: File, _: &mut Context<Self>) {
    ///         // Driven by the thread that awaits the shutdown.
    ///         tokio::time::sleep(Duration::from_millis(5)).await;
    ///     }
    /// }
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), throng::Error> {
    ///     let runtime = Runtime::builder().attach()?;
    ///     runtime.spawn(Clerk)?.send(File)?;
    ///     let outcome = runtime.shutdown_async(Duration::from_secs(60)).await;
    ///     assert_eq!((outcome.stopped, outcome.abandoned), (1, 0));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The shutdown begins when the future is first polled, and then continues whether the future
    /// is polled or dropped. Dropping the future before its first poll [drops](Self#dropping) the
    /// runtime.
    ///
    /// Called in a handler of this very runtime, the future resolves when all other processes have
    /// exited. The calling process is not counted, and exits after its turn; if the deadline passes
    /// first, the turn is dropped.
    ///
    /// Cost: a thread until the runtime has ended.
    pub async fn shutdown_async(self, deadline: Duration) -> Shutdown {
        self.shut_down_async(deadline).await
    }
}

impl Deref for Runtime {
    type Target = RuntimeHandle;

    fn deref(&self) -> &RuntimeHandle {
        &self.handle
    }
}

/// A handle to a runtime: spawns processes, sets timers, inspects. Cloning it costs a reference
/// count.
#[derive(Clone)]
pub struct RuntimeHandle(Arc<Shared>);

impl RuntimeHandle {
    /// Spawns a process.
    ///
    /// The process has no parent and lives until it stops, panics, or the runtime ends. All other ways to
    /// spawn are those of a [`Spawner`](crate::Spawner): [`spawner`](Self::spawner) makes one for processes
    /// without a parent, [`Context::linked`](crate::Context::linked) and
    /// [`Context::monitored`](crate::Context::monitored) for children.
    ///
    /// # Errors
    /// [`SpawnError::Limit`] and [`SpawnError::ShutDown`] hand the state back.
    ///
    /// Cost: about 35 ns from within a process (`spawn` in `bench/`), two more locks from
    /// elsewhere; for the memory see [`Process`].
    #[inline]
    pub fn spawn<P: Process>(&self, process: P) -> Result<Address<P>, SpawnError<P>> {
        self.spawn_process(process, None, None)
    }

    /// Sends a message to a process after a delay. Can be called from any thread.
    ///
    /// The timer belongs to the receiver, as in OTP: when the receiver exits, the message is
    /// dropped; if it has already exited, the message is dropped at once.
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
    /// The message is never early, and counts against no bound of the mailbox. Two timers due in
    /// the same millisecond may fire in either order.
    ///
    /// Resolution: a millisecond. Cost: a read of the clock, a pooled block, a rarely contended
    /// lock; and, unless a process sets the timer for itself, a signal to the receiver. For the
    /// memory see [`Timer`].
    pub fn send_after<P: Process, T: Turn<P>>(
        &self,
        to: Address<P>,
        delay: Duration,
        message: T,
    ) -> Timer {
        message_timer::send_after(self.scheduler(), to, delay, message)
    }

    /// Sends a clone of a message to a process every period, until the timer is cancelled or the
    /// process exits.
    ///
    /// Each clone is due one period after the previous clone was due, and its timer is set when the
    /// process begins to handle the previous clone. So at most one clone is in the mailbox: periods
    /// that a slow process misses are skipped, and later clones keep their phase. Periods are
    /// limited to the range from a millisecond to twelve days. The message is cloned in the
    /// process's own turn; if the clone panics, the process exits. A message generated by
    /// `#[process]` becomes [`Clone`] by `#[message(derive(Clone))]` on its method.
    ///
    /// Cost: for each period, a [`send_after`](Self::send_after) and one more message.
    pub fn send_every<P: Process, T: Turn<P> + Repeatable>(
        &self,
        to: Address<P>,
        period: Duration,
        message: T,
    ) -> Timer {
        message_timer::send_every(self.scheduler(), to, period, message)
    }

    /// Returns the number of live processes. The number is exact while no process is being spawned
    /// or exits.
    pub fn process_count(&self) -> u64 {
        self.0.scheduler.live()
    }

    /// Returns the bytes of messages and signals queued in all mailboxes; see
    /// [`mailbox_budget`](RuntimeBuilder::mailbox_budget). The number is exact while no message is
    /// being sent or handled.
    pub fn mailbox_bytes(&self) -> u64 {
        self.0.budget.queued()
    }

    /// Returns the limit on the bytes of messages queued in all mailboxes together.
    pub fn mailbox_bytes_limit(&self) -> u64 {
        self.0.budget.limit()
    }

    /// Returns the limit on the number of live processes.
    pub fn process_limit(&self) -> u64 {
        self.0.permits.limit
    }

    pub(crate) fn drops(&self) -> &Drops {
        self.0.budget.drops()
    }

    /// Returns the tokio runtime whose timers and sockets the handlers use.
    pub fn tokio(&self) -> &tokio::runtime::Handle {
        &self.0.tokio
    }

    /// Returns a state for the hashers of a table: drawn at random, and in a simulation always the same.
    pub fn hash_state(&self) -> HashState {
        HashState::new(self.0.scheduler.clock.is_simulated())
    }

    /// Runs work that blocks, on a thread where it may. A simulation, which has no other threads, runs it at once.
    ///
    /// If no thread is free, the calling thread blocks, and if the runtime is ending, the work is dropped. A panic of the
    /// work is caught. For work with a result, see [`Context::blocking`](crate::Context::blocking).
    pub async fn run_blocking(&self, work: impl FnOnce() + Send + 'static) {
        if self.0.scheduler.clock.is_simulated() {
            let _ = catch(work);
        } else {
            // If the runtime is ending, the work is dropped.
            if let Err(BlockingError::NoThread(work)) =
                pipe::run_blocking(&self.0.tokio, work).await
            {
                // The work must be done, so this thread blocks.
                let _ = catch(work);
            }
        }
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

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    pub(crate) fn names(&self) -> &Names {
        &self.0.names
    }

    pub(crate) fn groups(&self) -> &Arc<Groups> {
        &self.0.groups
    }

    pub(crate) fn events(&self) -> &Arc<Events> {
        &self.0.events
    }

    /// Whether a shutdown has begun, so that nothing can be spawned any more.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.0.scheduler.phase() != Phase::Running
    }
}

impl std::fmt::Debug for RuntimeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RuntimeHandle({} of {} processes)", self.process_count(), self.process_limit())
    }
}

/// The state shared by all threads of a runtime and its handles.
pub(crate) struct Shared {
    pub(crate) scheduler: Scheduler,
    pub(crate) slab: Slab,
    pub(crate) budget: OwnBudget,
    pub(crate) events: Arc<Events>,
    /// Cached slots for spawns from threads that are no workers.
    guest_slots: Mutex<SlotCache>,
    classes: Mutex<HashMap<TypeId, Arc<Class>>>,
    pub(crate) permits: Permits,
    abandoned: Abandoned,
    /// Number of worker threads that have been started and have not ended.
    workers_running: AtomicUsize,
    pub(crate) clock_keeper: ClockKeeper,
    threads: Mutex<Vec<JoinHandle<()>>>,
    names: Names,
    groups: Arc<Groups>,
    tokio: tokio::runtime::Handle,
}

impl Shared {
    pub(crate) fn tokio(&self) -> &tokio::runtime::Handle {
        &self.tokio
    }

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
        let running = WorkerRunning::new(shared.clone());
        self.spawn_thread(format!("throng-{index}"), move || {
            let _running = running;
            let tokio = shared.tokio.clone();
            let _inside_tokio = tokio.enter();
            Worker::new(shared, index).run();
        })
    }

    /// Activates spare workers until there are as many as stuck workers, and retires the excess.
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
                        self.events.report(
                            Level::ERROR,
                            "no thread for a spare worker",
                            "",
                            move |what| {
                                tracing::error!(target: "throng::runtime", %error, "{what}");
                            },
                        );
                        return spares.give_up(spare);
                    }
                }
            }
        }
        // A superfluous spare that sleeps must be woken to retire.
        spares.superfluous().into_iter().for_each(|spare| remotes[spare].unpark());
    }
}

/// Counts a worker's thread in `Shared::workers_running` from before its start to its end. The last
/// worker to end breaks the class cycle if a shutdown has ended without waiting for that worker.
struct WorkerRunning(Arc<Shared>);

impl WorkerRunning {
    fn new(shared: Arc<Shared>) -> WorkerRunning {
        shared.workers_running.fetch_add(1, Ordering::SeqCst);
        WorkerRunning(shared)
    }
}

impl Drop for WorkerRunning {
    fn drop(&mut self) {
        // SeqCst: pairs with the load in `free_if_over`, which the ending thread makes after it has
        // set `Phase::Over`. Either that thread sees the count 0, or this worker sees the phase.
        if self.0.workers_running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.free_if_over();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::ExitReason;
    use crate::process;
    use crate::sync;
    use crate::turn::context::Context;
    use crate::turn::process::Turn;

    struct Idle;
    impl Process for Idle {}

    #[test]
    fn a_runtime_that_has_ended_leaves_no_thread_and_no_memory_behind() {
        for _ in 0..20 {
            let runtime = Runtime::builder().workers(4).start().expect("starts");
            runtime.spawn(Idle).expect("there is room");
            let shared = Arc::downgrade(&runtime.handle.0);
            assert_eq!(runtime.shutdown(Duration::from_secs(20)).abandoned, 0);
            // Each thread holds the shared part until the thread ends.
            assert!(shared.upgrade().is_none(), "a thread has not ended");
        }
    }

    struct Do<F>(F);
    impl<P: Process, F: FnOnce(&mut Context<P>) + Send + 'static> Turn<P> for Do<F> {
        type Reply = ();
        async fn run(self, _: &mut P, cx: &mut Context<P>) {
            (self.0)(cx);
        }
    }

    fn wait_until_freed(shared: &std::sync::Weak<Shared>) {
        for _ in 0..60_000 {
            if shared.strong_count() == 0 {
                return;
            }
            sync::sleep(Duration::from_millis(1));
        }
        panic!("the shared part of a runtime is never freed");
    }

    #[test]
    fn a_runtime_dropped_in_its_own_handler_is_freed() {
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let shared = Arc::downgrade(&runtime.handle.0);
        let idle = runtime.spawn(Idle).expect("there is room");
        let _ = idle.send(Do(move |_: &mut Context<Idle>| drop(runtime)));
        wait_until_freed(&shared);
    }

    #[test]
    fn a_runtime_dropped_with_the_state_of_its_own_process_is_freed() {
        struct Holder(Option<Runtime>);
        #[process(crate = crate)]
        impl Holder {
            #[message(send)]
            fn keep(&mut self, runtime: Runtime, cx: &mut Context<Self>) {
                self.0 = Some(runtime);
                cx.stop(ExitReason::Normal);
            }
        }
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let shared = Arc::downgrade(&runtime.handle.0);
        let holder = runtime.spawn(Holder(None)).expect("there is room");
        assert!(holder.keep(runtime).is_ok());
        wait_until_freed(&shared);
    }

    #[test]
    #[cfg_attr(miri, ignore = "blocks for seconds")]
    fn a_runtime_that_gave_up_waiting_for_a_turn_is_freed_when_the_turn_ends() {
        let runtime = Runtime::builder().workers(1).spare_workers(0).start().expect("starts");
        let shared = Arc::downgrade(&runtime.handle.0);
        let (begun, begins) = std::sync::mpsc::channel();
        let (let_go, until) = std::sync::mpsc::channel::<()>();
        let block = move |_: &mut Context<Idle>| {
            let _ = begun.send(());
            let _ = until.recv();
        };
        assert!(runtime.spawn(Idle).expect("there is room").send(Do(block)).is_ok());
        begins.recv().expect("begins");
        // No worker is free to run this process until the turn ends.
        runtime.spawn(Idle).expect("there is room").stop();
        let outcome = runtime.shutdown(Duration::ZERO);
        assert_eq!((outcome.stopped, outcome.abandoned), (0, 2));
        assert!(shared.strong_count() > 0);
        drop(let_go);
        wait_until_freed(&shared);
    }

    #[test]
    #[cfg_attr(miri, ignore = "blocks its thread")]
    fn a_process_whose_messages_the_deadline_drops_did_not_exit_in_order() {
        struct Behind;
        impl Process for Behind {}
        let runtime = Runtime::builder().workers(1).spare_workers(0).start().expect("starts");
        let (begun, begins) = std::sync::mpsc::channel();
        // Blocks the only worker until the deadline has passed.
        let block = move |cx: &mut Context<Idle>| {
            let _ = begun.send(());
            while cx.runtime().scheduler().phase() < Phase::Killing {
                sync::sleep(Duration::from_millis(1));
            }
        };
        assert!(runtime.spawn(Idle).expect("there is room").send(Do(block)).is_ok());
        begins.recv().expect("begins");
        let behind = runtime.spawn(Behind).expect("there is room");
        assert!(behind.send(Do(|_: &mut Context<Behind>| ())).is_ok());
        let outcome = runtime.shutdown(Duration::ZERO);
        assert_eq!((outcome.stopped, outcome.abandoned), (1, 1), "{outcome}");
        assert!(outcome.abandoned_kinds[0].kind.ends_with("Behind"), "{outcome}");
    }

    #[test]
    fn the_memory_of_slots_grows_with_the_processes_and_goes_with_them() {
        const COUNT: u64 = if cfg!(miri) { 200 } else { 20_000 };
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let bytes = || runtime.slab().lent_bytes();
        let before = bytes();
        let idle = runtime.spawner().spawn_many((0..COUNT).map(|_| Idle)).expect("there is room");
        assert!(bytes() >= before + 64 * COUNT, "{} after {before}", bytes());
        assert!(idle.into_iter().all(Address::stop));
        // The caches of the threads keep some free slots.
        let kept = if cfg!(miri) { 64 * COUNT } else { 32 * COUNT };
        for _ in 0..60_000 {
            if runtime.process_count() == 0 && bytes() <= before + kept {
                return;
            }
            sync::sleep(Duration::from_millis(1));
        }
        panic!("{} processes keep {} bytes", runtime.process_count(), bytes());
    }

    #[test]
    fn a_spawn_after_the_end_is_refused_and_keeps_no_memory() {
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let handle = runtime.handle().clone();
        runtime.shutdown(Duration::from_secs(20));
        assert!(matches!(handle.spawn(Idle), Err(SpawnError::ShutDown { .. })));
        let shared = Arc::downgrade(&handle.0);
        drop(handle);
        assert!(shared.upgrade().is_none(), "a class keeps its runtime");
    }
}
