//! Shutdowns: where they can be requested, and the abandoned processes that their outcome names.

use crate::{Actor, AddSlowly, Await, Counter, Hold, eventually, hold, runtime};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use throng::Shutdown;
use throng::prelude::*;
use tokio::sync::oneshot;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the abandoned count of each kind, by the last part of its name.
fn kinds(outcome: &Shutdown) -> Vec<(&'static str, u64)> {
    let short = |kind: &'static str| kind.rsplit("::").next().unwrap();
    outcome.abandoned_kinds.iter().map(|kind| (short(kind.kind), kind.count)).collect()
}

/// Waits in `stopping` for ever.
struct Slow;
#[process]
impl Slow {
    #[hook]
    async fn stopping(&mut self) {
        std::future::pending().await
    }
    #[message(send)]
    async fn hang(&mut self) {
        std::future::pending().await
    }
}

#[process(manual)]
impl Counter {
    /// Signals `begun`, waits for `until`, and replies.
    #[message]
    async fn wait(
        &mut self,
        begun: oneshot::Sender<()>,
        until: oneshot::Receiver<()>,
    ) -> &'static str {
        begun.send(()).unwrap();
        let _ = until.await;
        // The sleep needs the thread that drives tokio's timers.
        tokio::time::sleep(Duration::from_millis(1)).await;
        "done"
    }
}

/// Spawns a process in a turn that waits. Returns the sender that ends the wait, and the reply.
async fn waiting(
    runtime: &RuntimeHandle,
) -> (oneshot::Sender<()>, tokio::task::JoinHandle<Result<&'static str, CallError<Wait>>>) {
    let (begun, begins) = oneshot::channel();
    let (let_go, until) = oneshot::channel();
    let counter = runtime.spawn(Counter::default()).unwrap();
    let call = tokio::spawn(counter.wait(begun, until).within(MINUTE));
    begins.await.unwrap();
    (let_go, call)
}

#[test]
fn an_outcome_names_the_kinds_of_abandoned_processes() {
    let runtime = runtime();
    for _ in 0..2 {
        runtime.spawn(Counter::default()).unwrap().send(AddSlowly(1, 60 * MINUTE)).unwrap();
    }
    for _ in 0..3 {
        // Counted once, though it waits in its turn and then in its hook.
        runtime.spawn(Slow).unwrap().hang().unwrap();
        runtime.spawn(Slow).unwrap();
    }
    runtime.spawn(Actor).unwrap();
    let outcome = runtime.shutdown(Duration::from_millis(100));
    assert_eq!((outcome.stopped, outcome.abandoned), (1, 8));
    assert_eq!(kinds(&outcome), [("Slow", 6), ("Counter", 2)]);
    let text = outcome.to_string();
    assert!(text.starts_with("1 stopped, 8 abandoned (6 ") && text.ends_with("::Counter)"));
}

#[test]
#[cfg_attr(miri, ignore = "blocks for seconds")]
fn an_outcome_names_kinds_that_block_or_are_queued_behind_a_blocked_process() {
    let runtime = Runtime::builder().workers(1).spare_workers(0).start().unwrap();
    let (hold, held) = hold();
    runtime.spawn(Actor).unwrap().send(Await(async { hold.wait() })).unwrap();
    held.has_begun();
    for _ in 0..100 {
        runtime.spawn(Slow).unwrap();
    }
    let outcome = runtime.shutdown(Duration::ZERO);
    assert_eq!((outcome.stopped, outcome.abandoned), (0, 101));
    assert_eq!(kinds(&outcome), [("Slow", 100), ("Actor", 1)]);
}

#[tokio::test]
async fn an_async_shutdown_leaves_the_thread_to_the_timers_that_handlers_wait_for() {
    let runtime = Runtime::builder().workers(1).attach().unwrap();
    let (let_go, call) = waiting(&runtime).await;
    let shutdown = tokio::spawn(runtime.shutdown_async(MINUTE));
    let_go.send(()).unwrap();
    let outcome = shutdown.await.unwrap();
    assert_eq!((outcome.stopped, outcome.abandoned), (1, 0));
    assert_eq!(call.await.unwrap().unwrap(), "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_async_shutdown_in_a_task_of_the_only_tokio_thread() {
    let shutdown = tokio::spawn(async {
        let runtime = Runtime::builder().workers(1).attach().unwrap();
        let (let_go, call) = waiting(&runtime).await;
        let shutdown = tokio::spawn(runtime.shutdown_async(MINUTE));
        let_go.send(()).unwrap();
        assert_eq!(call.await.unwrap().unwrap(), "done");
        shutdown.await.unwrap()
    });
    let outcome = shutdown.await.unwrap();
    assert_eq!((outcome.stopped, outcome.abandoned), (1, 0));
}

#[tokio::test]
async fn an_async_shutdown_continues_when_its_future_is_dropped() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let handle = runtime.handle().clone();
    let (let_go, call) = waiting(&handle).await;
    {
        let mut shutdown = pin!(runtime.shutdown_async(MINUTE));
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(shutdown.as_mut().poll(cx)));
        assert!(first.await.is_pending());
    }
    assert!(matches!(handle.spawn(Slow), Err(SpawnError::ShutDown { .. })));
    let_go.send(()).unwrap();
    assert_eq!(call.await.unwrap().unwrap(), "done");
    eventually(|| handle.process_count() == 0).await;
}

#[tokio::test]
async fn two_shutdowns_at_once_in_one_thread() {
    let start = || Runtime::builder().workers(1).attach().unwrap();
    let (one, other) = (start(), start());
    let (let_one_go, one_call) = waiting(&one).await;
    let (let_other_go, other_call) = waiting(&other).await;
    let outcomes = async { tokio::join!(one.shutdown_async(MINUTE), other.shutdown_async(MINUTE)) };
    let let_go = async {
        let_other_go.send(()).unwrap();
        let_one_go.send(()).unwrap();
        (one_call.await.unwrap().unwrap(), other_call.await.unwrap().unwrap())
    };
    let ((one, other), calls) = tokio::join!(outcomes, let_go);
    assert_eq!((one.stopped, other.stopped, calls), (1, 1, ("done", "done")));
}

#[tokio::test]
async fn a_dropped_runtime_leaves_turns_to_the_thread_that_drives_their_timers() {
    let runtime = Runtime::builder().workers(1).attach().unwrap();
    let (let_go, call) = waiting(&runtime).await;
    drop(runtime);
    // If the drop had waited for its deadline, the turn would be gone by now.
    let_go.send(()).unwrap();
    assert_eq!(call.await.unwrap().unwrap(), "done");
}

#[test]
fn a_runtime_dropped_in_a_task_of_its_only_tokio_thread_leaves_turns_to_it() {
    let runtime = Runtime::builder().workers(1).io_threads(1).start().unwrap();
    let io = runtime.tokio().clone();
    let (sender, receiver) = mpsc::channel();
    io.spawn(async move {
        let (let_go, call) = waiting(&runtime).await;
        drop(runtime);
        let_go.send(()).unwrap();
        sender.send(call.await.unwrap().unwrap()).unwrap();
    });
    assert_eq!(receiver.recv(), Ok("done"));
}

/// Counts the runs of its `stopping` hook.
struct Orderly(Arc<AtomicU64>);
impl Process for Orderly {
    async fn stopping(&mut self, _: &ExitReason, _: &mut Context<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_dropped_runtime_waits_for_processes_that_need_no_other_thread() {
    let runtime = Runtime::builder().workers(1).attach().unwrap();
    let exits = Arc::new(AtomicU64::new(0));
    for _ in 0..100 {
        runtime.spawn(Orderly(exits.clone())).unwrap();
    }
    drop(runtime);
    assert_eq!(exits.load(Ordering::SeqCst), 100);
}

/// Starts a runtime with a process that ends it, and five whose `stopping` hooks are counted.
fn with_ender() -> (Runtime, RuntimeHandle, Address<Actor>, Arc<AtomicU64>) {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let exits = Arc::new(AtomicU64::new(0));
    for _ in 0..5 {
        runtime.spawn(Orderly(exits.clone())).unwrap();
    }
    let ender = runtime.spawn(Actor).unwrap();
    let handle = runtime.handle().clone();
    (runtime, handle, ender, exits)
}

#[tokio::test]
#[cfg_attr(miri, ignore = "blocks its thread")]
async fn a_shutdown_in_a_handler_waits_for_all_others_and_then_its_own_process_exits() {
    let (runtime, handle, ender, exits) = with_ender();
    let end = Await(async { runtime.shutdown(MINUTE) });
    let outcome = ender.call(end).within(2 * MINUTE).await.unwrap();
    assert_eq!((outcome.stopped, outcome.abandoned), (5, 0));
    assert_eq!(exits.load(Ordering::SeqCst), 5);
    eventually(|| handle.process_count() == 0).await;
}

#[tokio::test]
async fn an_async_shutdown_in_a_handler_waits_for_all_others_and_then_its_own_process_exits() {
    let (runtime, handle, ender, exits) = with_ender();
    let end = Await(runtime.shutdown_async(MINUTE));
    let outcome = ender.call(end).within(2 * MINUTE).await.unwrap();
    assert_eq!((outcome.stopped, outcome.abandoned), (5, 0));
    assert_eq!(exits.load(Ordering::SeqCst), 5);
    eventually(|| handle.process_count() == 0).await;
}

#[tokio::test]
async fn an_async_shutdown_in_a_handler_is_dropped_with_its_turn_at_the_deadline() {
    let (runtime, handle, ender, _) = with_ender();
    let (_let_go, call) = waiting(&handle).await;
    let end = Await(runtime.shutdown_async(Duration::from_millis(50)));
    let outcome = ender.call(end).within(MINUTE).await;
    assert!(matches!(outcome, Err(CallError::Died(ExitReason::Shutdown))));
    assert!(matches!(call.await.unwrap(), Err(CallError::Died(ExitReason::Shutdown))));
    eventually(|| handle.process_count() == 0).await;
}

#[tokio::test]
async fn a_runtime_dropped_in_its_own_handler_delays_neither_that_nor_the_others() {
    let (runtime, handle, ender, exits) = with_ender();
    let own = handle.clone();
    let end = async move {
        drop(runtime);
        assert!(matches!(own.spawn(Actor), Err(SpawnError::ShutDown { .. })));
        // The turn suspends once more, and would be dropped if the deadline were over.
        tokio::task::yield_now().await;
    };
    ender.call(Await(end)).within(MINUTE).await.unwrap();
    eventually(|| handle.process_count() == 0).await;
    assert_eq!(exits.load(Ordering::SeqCst), 5, "a process exited without its hook");
}

/// Blocks past the end of its runtime, then suspends for ever; its `stopping` hook does so too.
struct BlocksThenWaits(#[expect(dead_code, reason = "held to be dropped")] mpsc::Sender<()>);
#[process]
impl BlocksThenWaits {
    #[hook]
    async fn stopping(&mut self) {
        std::future::pending().await
    }
    #[message(send)]
    async fn block_then_wait(&mut self, hold: Hold) {
        hold.wait();
        std::future::pending().await
    }
}

#[test]
fn a_turn_that_waits_after_the_end_of_its_runtime_is_dropped() {
    let runtime = Runtime::builder().workers(1).spare_workers(0).start().unwrap();
    let (hold, held) = hold();
    let (sender, dropped) = mpsc::channel();
    let blocks = runtime.spawn(BlocksThenWaits(sender.clone())).unwrap();
    // An idle process queued behind the blocked process. Its `stopping` hook suspends for ever.
    runtime.spawn(BlocksThenWaits(sender)).unwrap();
    blocks.block_then_wait(hold).unwrap();
    held.has_begun();
    assert_eq!(runtime.shutdown(Duration::ZERO).abandoned, 2);
    held.let_go();
    // Each process is dropped.
    assert_eq!(dropped.recv_timeout(MINUTE), Err(mpsc::RecvTimeoutError::Disconnected));
}
