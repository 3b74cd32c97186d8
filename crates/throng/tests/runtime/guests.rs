//! Whoever runs a turn, it sees and does the same: a worker, or, if its type never blocks, a guest, which is a
//! task of the caller's tokio runtime. The first half is the table of what a turn can observe; the second, what
//! guests do.

use crate::{Actor, Add, Await, Counter, PATIENCE, hold, scaled, spawn_async, until};
use std::cell::Cell;
use std::future::Future;
use std::panic;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, Once, mpsc};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;
use throng::prelude::*;
use throng::{MailboxBound, Overflow, Registry};
use tokio::runtime::Builder;

fn start() -> Runtime {
    Runtime::builder().workers(1).start().unwrap()
}

/// An [`Actor`] whose turns never block.
struct Nimble;
impl Process for Nimble {
    const NEVER_BLOCKS: bool = true;
}

/// Runs a closure in a turn.
struct Do<F>(F);
impl<P: Process, R: Send + 'static, F: FnOnce() -> R + Send + 'static> Turn<P> for Do<F> {
    type Reply = R;
    async fn run(self, _: &mut P, _: &mut Context<P>) -> R {
        (self.0)()
    }
}

fn here() -> ThreadId {
    thread::current().id()
}

/// Waits for a future without any runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Task::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Places from which a process is called.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    /// A task of a tokio runtime with several threads.
    Task,
    /// A task of a tokio runtime with one thread.
    OneThread,
    /// A task of a set of tasks that stay on their thread.
    LocalSet,
    /// A thread that knows nothing of tokio.
    Plain,
    /// A thread with a small stack.
    SmallStack,
    /// A `Drop` while the thread unwinds.
    Unwinding,
    /// The hook of a panic.
    PanicHook,
    /// The destructor of a thread-local, when the others are gone.
    ThreadEnds,
    /// A blocking thread of tokio's.
    Blocking,
}

const PLACES: [Place; 9] = [
    Place::Task,
    Place::OneThread,
    Place::LocalSet,
    Place::Plain,
    Place::SmallStack,
    Place::Unwinding,
    Place::PanicHook,
    Place::ThreadEnds,
    Place::Blocking,
];

/// Runs on drop.
struct OnDrop(Option<Box<dyn FnOnce()>>);
impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

thread_local! {
    static AT_END: Cell<Option<OnDrop>> = const { Cell::new(None) };
    /// Value that the hook of this thread's next panic drops.
    static IN_HOOK: Cell<Option<OnDrop>> = const { Cell::new(None) };
    /// Whether a future of [`at`] is being polled on this thread.
    static POLLING: Cell<bool> = const { Cell::new(false) };
}

tokio::task_local! {
    static OF_CALLER: u32;
}

/// A future that notes on which thread it is being polled.
struct Noted<F>(Pin<Box<F>>);
impl<F: Future> Future for Noted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<F::Output> {
        // In the destructor of a thread-local others may be gone.
        let _ = POLLING.try_with(|polling| polling.set(true));
        let polled = self.0.as_mut().poll(task);
        let _ = POLLING.try_with(|polling| polling.set(false));
        polled
    }
}

/// Awaits a future at a place, with a task-local of its own, and returns what it returns.
fn at<F>(place: Place, future: F) -> F::Output
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let future = Noted(Box::pin(OF_CALLER.scope(1, future)));
    let (sender, receiver) = mpsc::channel();
    let task = async move { sender.send(future.await).unwrap() };
    match place {
        Place::Task => {
            let tokio = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            tokio.block_on(async { tokio::spawn(task).await.unwrap() });
        }
        Place::OneThread => {
            Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
        }
        Place::LocalSet => {
            let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&tokio, async { tokio::task::spawn_local(task).await.unwrap() });
        }
        Place::Plain => thread::spawn(|| block_on(task)).join().unwrap(),
        Place::SmallStack => {
            let small = thread::Builder::new().stack_size(128 << 10);
            small.spawn(|| block_on(task)).unwrap().join().unwrap();
        }
        Place::Unwinding => {
            let unwinds = thread::spawn(|| {
                let _at_end = OnDrop(Some(Box::new(|| block_on(task))));
                panic::resume_unwind(Box::new(()));
            });
            assert!(unwinds.join().is_err());
        }
        Place::PanicHook => {
            static HOOK: Once = Once::new();
            HOOK.call_once(|| {
                let before = panic::take_hook();
                panic::set_hook(Box::new(move |info| match IN_HOOK.take() {
                    Some(run) => drop(run),
                    None => before(info),
                }));
            });
            let panics = thread::spawn(|| {
                IN_HOOK.set(Some(OnDrop(Some(Box::new(|| block_on(task))))));
                panic!("in a hook");
            });
            assert!(panics.join().is_err());
        }
        Place::ThreadEnds => {
            thread::spawn(|| AT_END.set(Some(OnDrop(Some(Box::new(|| block_on(task)))))))
                .join()
                .unwrap();
        }
        Place::Blocking => {
            let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            tokio.block_on(async { tokio::task::spawn_blocking(|| block_on(task)).await.unwrap() });
        }
    }
    receiver.recv_timeout(PATIENCE).unwrap()
}

/// What a turn sees of its surroundings.
#[derive(PartialEq, Debug)]
struct Seen {
    is_inside_the_callers_poll: bool,
    is_panicking: bool,
    task_local: Option<u32>,
    tokio: tokio::runtime::Id,
}

fn see() -> Seen {
    Seen {
        is_inside_the_callers_poll: POLLING.get(),
        is_panicking: thread::panicking(),
        task_local: OF_CALLER.try_with(|&it| it).ok(),
        tokio: tokio::runtime::Handle::current().id(),
    }
}

#[test]
fn a_turn_sees_the_same_wherever_its_caller_is() {
    let runtime = start();
    let (actor, nimble) = (runtime.spawn(Actor).unwrap(), runtime.spawn(Nimble).unwrap());
    let tokio = runtime.tokio().id();
    for place in PLACES {
        let seen = Seen {
            is_inside_the_callers_poll: false,
            is_panicking: false,
            task_local: None,
            tokio,
        };
        assert_eq!(at(place, actor.call(Do(see))).unwrap(), seen, "{place:?}");
        assert_eq!(at(place, nimble.call(Do(see))).unwrap(), seen, "{place:?}");
    }
}

/// Bytes that a turn takes of the stack. Under Miri a turn that touched more would outlive its caller's deadline.
const DEEP: usize = if cfg!(miri) { 4 << 10 } else { 512 << 10 };

/// What blocks its thread: each panics, hangs or overflows on some thread of tokio's, or in some poll.
fn block_in_many_ways() -> u64 {
    let tokio = tokio::runtime::Handle::current();
    assert_eq!(tokio.block_on(async { 7 }), 7);
    assert_eq!(block_on(async { 7 }), 7);
    drop(Builder::new_current_thread().build().unwrap());
    assert_eq!(tokio::task::block_in_place(|| 7), 7);
    throng::sim::check(1, |sim| async move {
        let counter = sim.runtime().spawn(Counter::default()).unwrap();
        assert_eq!(counter.call(Add(1)).await.unwrap(), 1);
    });
    let mut deep = [0_u8; DEEP];
    for (place, byte) in deep.iter_mut().enumerate() {
        *byte = std::hint::black_box(place as u8);
    }
    deep.iter().map(|&byte| u64::from(byte)).sum()
}

#[test]
fn a_turn_may_block_its_thread_wherever_its_caller_is() {
    let runtime = start();
    let actor = runtime.spawn(Actor).unwrap();
    for place in PLACES {
        let sum = at(place, actor.call(Do(block_in_many_ways)));
        assert_eq!(sum.unwrap(), DEEP as u64 / 256 * 255 * 128, "{place:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "blocks its thread")]
fn a_deadline_ends_a_call_while_the_turn_blocks_for_the_callers_lock() {
    let runtime = start();
    for place in PLACES {
        let actor = runtime.spawn(Actor).unwrap();
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        let held = lock.clone().try_lock_owned().unwrap();
        let waits = actor.call(Do(move || drop(lock.blocking_lock())));
        let call = async move {
            let outcome = waits.within(Duration::from_millis(20)).await;
            drop(held);
            matches!(outcome, Err(CallError::TimedOut { enqueued: true }))
        };
        assert!(at(place, call), "{place:?}");
        // The turn gets the lock, and the process goes on.
        assert!(at(place, actor.call(Do(|| true))).unwrap());
    }
}

#[test]
#[cfg_attr(miri, ignore = "blocks its thread")]
fn a_call_to_a_busy_process_needs_no_tokio_and_no_clock_of_tokios() {
    let runtime = start();
    let busy = |actor: Address<Actor>| {
        let (hold, held) = hold();
        actor.send(Do(|| hold.wait())).unwrap();
        held.has_begun();
        held
    };
    let actor = runtime.spawn(Actor).unwrap();
    let held = busy(actor);
    let caller = thread::spawn(move || block_on(actor.call(Do(|| 7))));
    held.let_go();
    assert_eq!(caller.join().unwrap().unwrap(), 7);

    // tokio's clock stands still, and leaps as soon as nothing else is to be done.
    let held = busy(actor);
    let paused = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let called = paused.block_on(async {
        let call = tokio::spawn(actor.call(Do(|| 7)).into_future());
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        held.let_go();
        call.await.unwrap()
    });
    assert_eq!(called.unwrap(), 7);
}

// --- guests ---

/// Runs `test` in a task of a tokio runtime with one thread of tasks, until it says that a guest has done all.
/// On a loaded machine the clock thread may hand a guest's processes to the workers.
fn until_by_guests<Fut: Future<Output = bool> + Send + 'static>(test: impl Fn() -> Fut) {
    let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    while !tokio.block_on(async { tokio::spawn(test()).await.unwrap() }) {}
}

#[test]
fn a_call_from_a_task_is_a_task_of_its_own_on_the_same_thread() {
    let runtime = start();
    let nimble = runtime.spawn(Nimble).unwrap();
    until_by_guests(|| async move {
        let thread = here();
        let (of_turn, task) = nimble.call(Do(|| (here(), tokio::task::try_id()))).await.unwrap();
        assert_ne!(task, tokio::task::try_id());
        of_turn == thread
    });
    let by_guests = |worker: &&throng::WorkerMetrics| worker.guest && worker.turns > 0;
    // The turns of a run are counted when it is over.
    until(|| runtime.metrics().workers.iter().find(by_guests).is_some());
}

#[test]
fn the_first_contact_with_a_process_needs_no_worker() {
    let runtime = start();
    let handle = runtime.handle().clone();
    let registry: Registry<u64, Nimble> = Registry::new(&runtime);
    let keys = Arc::new(std::sync::atomic::AtomicU64::new(0));
    until_by_guests(move || {
        let (runtime, registry, keys) = (handle.clone(), registry.clone(), keys.clone());
        async move {
            let is_here = |nimble: Address<Nimble>| async move {
                let thread = here();
                nimble.call(Do(move || here() == thread)).await.unwrap()
            };
            let key = keys.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let by_key = registry.get_or_spawn(key, || Nimble).unwrap();
            let mut all = is_here(by_key).await;
            let named = runtime.spawn(Nimble).unwrap();
            runtime.register(format!("nimble {key}"), named).unwrap();
            all &= is_here(named).await;
            let member = runtime.spawn(Nimble).unwrap();
            runtime.group::<Address<Nimble>>("nimble").join(member);
            all &= is_here(member).await;
            let told = runtime.spawn(Nimble).unwrap();
            told.send(Do(|| ())).unwrap();
            all & is_here(told).await
        }
    });
}

#[test]
fn a_process_that_may_block_runs_on_workers_only_though_a_guest_wakes_it() {
    async fn names(runtime: RuntimeHandle, known: Address<Actor>) -> Vec<Option<String>> {
        let name = || thread::current().name().map(str::to_owned);
        let spawned = runtime.spawn(Actor).unwrap();
        let mut names = Vec::new();
        for actor in [known, spawned] {
            names.push(actor.call(Do(name)).await.unwrap());
        }
        spawned.stop();
        names
    }
    let runtime = start();
    let (known, asks) = (runtime.spawn(Actor).unwrap(), runtime.spawn(Nimble).unwrap());
    for _ in 0..scaled(200) {
        let names = Await(names(runtime.handle().clone(), known));
        let names = at(Place::Task, asks.call(names)).unwrap();
        assert!(names.iter().flatten().all(|name| name.starts_with("throng-")), "{names:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "blocks its thread")]
fn a_process_is_run_though_tokio_never_polls_its_guest() {
    let runtime = start();
    let nimble = runtime.spawn(Nimble).unwrap();
    let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (told, hears) = mpsc::channel();
    // The task keeps the only thread until the message has been handled.
    let sends = async move {
        nimble.send(Do(move || told.send(()).unwrap())).unwrap();
        hears.recv_timeout(PATIENCE).unwrap();
    };
    tokio.block_on(async { tokio::spawn(sends).await.unwrap() });

    // The same, and then the tokio runtime ends, with the guest in it.
    let (told, hears) = mpsc::channel();
    let (hold, held) = hold();
    tokio.spawn(async move {
        for _ in 0..10 {
            let told = told.clone();
            nimble.send(Do(move || told.send(()).unwrap())).unwrap();
        }
        hold.wait();
    });
    held.has_begun();
    tokio.shutdown_background();
    held.let_go();
    assert_eq!(hears.iter().count(), 10);
}

#[test]
fn guests_of_many_tokio_runtimes_come_and_go() {
    let runtime = Runtime::builder().workers(1).guests(2).start().unwrap();
    let counter = runtime.spawn(Counts(0)).unwrap();
    for number in 1..=scaled(100) {
        assert_eq!(at(Place::Task, counter.count()).unwrap(), number);
    }
    until_by_guests(|| async move {
        let thread = here();
        counter.runs_on().await.unwrap() == thread
    });
}

struct Counts(u64);
#[process(never_blocks)]
impl Counts {
    #[message]
    fn count(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
    #[message]
    fn runs_on(&mut self) -> ThreadId {
        here()
    }
}

#[test]
fn a_call_comes_after_the_messages_that_its_caller_has_sent() {
    let runtime = start();
    at(Place::Task, {
        let runtime = runtime.handle().clone();
        async move {
            for _ in 0..scaled(200) {
                let counter = runtime.spawn(Counts(0)).unwrap();
                for _ in 0..3 {
                    counter.send_count().unwrap();
                }
                assert_eq!(counter.count().await.unwrap(), 4);
            }
        }
    });
}

#[test]
fn bounded_mailboxes_and_async_processes_answer_calls_from_outside() {
    let runtime = start();
    runtime.block_on(async |runtime| {
        for overflow in [Overflow::Wait, Overflow::Reject, Overflow::DropOldest] {
            let bound = MailboxBound::new(2, overflow);
            let counter = runtime.spawner().mailbox(bound).spawn(Counts(0)).unwrap();
            let counts = async move {
                for number in 1..=10 {
                    assert_eq!(counter.count().await.unwrap(), number);
                }
            };
            tokio::spawn(counts).await.unwrap();
        }
        struct Twice(u64, ReplyTo<u64>);
        impl Message for Twice {
            type Reply = ();
        }
        let (twice, _) = spawn_async(runtime, |mut inbox| async move {
            loop {
                let Twice(number, reply) = inbox.recv().await;
                let _ = reply.send(2 * number);
            }
        });
        for number in 0..10 {
            let asked = twice.ask(|reply| Twice(number, reply));
            assert_eq!(asked.await.unwrap(), 2 * number);
        }
    });
}

#[test]
fn callers_in_many_tasks_lose_no_call() {
    let runtime = Runtime::builder().workers(2).guests(3).start().unwrap();
    let counter = runtime.spawn(Counts(0)).unwrap();
    let calls = scaled(5000);
    let tokio = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    tokio.block_on(async {
        let call_all = || async move {
            for _ in 0..calls {
                counter.count().await.unwrap();
            }
        };
        for caller in [(); 8].map(|()| tokio::spawn(call_all())) {
            caller.await.unwrap();
        }
    });
    assert_eq!(runtime.block_on(async |_| counter.count().await.unwrap()), 8 * calls + 1);
}

/// The runtime closes the seats while guests run, rest, and are woken.
#[test]
fn a_runtime_that_ends_among_its_guests_ends_every_process() {
    struct Player(Arc<()>, Option<Address<Player>>);
    #[process(never_blocks)]
    impl Player {
        #[message]
        fn pass(&mut self, times: u32) -> usize {
            if let Some(next) = self.1.filter(|_| times > 0) {
                let _ = next.send_pass(times - 1);
            }
            Arc::strong_count(&self.0)
        }
    }
    let tokio = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for workers in [1, 2] {
        for _ in 0..scaled(200) {
            let runtime = Runtime::builder().workers(workers).guests(2).start().unwrap();
            let alive = Arc::new(());
            let mut players: Vec<Address<Player>> = Vec::new();
            for _ in 0..3 {
                let next = players.last().copied();
                players.push(runtime.spawn(Player(alive.clone(), next)).unwrap());
            }
            let callers: Vec<_> = players
                .iter()
                .map(|&player| tokio.spawn(async move { while player.pass(9).await.is_ok() {} }))
                .collect();
            let outcome = runtime.shutdown(PATIENCE);
            assert_eq!(outcome.abandoned, 0);
            for caller in callers {
                tokio.block_on(caller).unwrap();
            }
            assert_eq!(Arc::strong_count(&alive), 1);
        }
    }
}

#[test]
fn a_runtime_may_end_in_a_turn_that_a_guest_runs() {
    let runtime = start();
    let nimble = runtime.spawn(Nimble).unwrap();
    let alive = Arc::new(Mutex::new(Some(runtime)));
    let taken = alive.clone();
    at(Place::Task, nimble.call(Do(move || drop(taken.lock().unwrap().take())))).unwrap();
    assert!(alive.lock().unwrap().is_none());
}
