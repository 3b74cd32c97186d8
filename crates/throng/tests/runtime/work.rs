//! Work beside a process's turns, and many processes at once.

use crate::{Add, Counter, Do, eventually, in_turn, quiet, runtime, scaled};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use throng::BlockingError;
use throng::prelude::*;

/// Collects the results piped to it.
#[derive(Default)]
struct Owner {
    results: Vec<u64>,
    down: Vec<ExitReason>,
}
#[process]
impl Owner {
    #[hook]
    fn down(&mut self, down: Down) {
        self.down.push(down.reason);
    }
    #[message]
    fn piped(&mut self, number: u64) {
        self.results.push(number);
    }
    #[message]
    fn collected(&mut self) -> (Vec<u64>, Vec<ExitReason>) {
        (self.results.clone(), self.down.clone())
    }
}

/// A turn that pipes a future to the owner, and monitors it.
fn pipe(future: impl Future<Output = Piped> + Send + 'static) -> impl Turn<Owner, Reply = Pid> {
    Do(|_: &mut Owner, cx: &mut Context<Owner>| {
        let pid = cx.pipe(future).unwrap();
        cx.monitor(pid);
        pid
    })
}

async fn slow(number: u64) -> Piped {
    tokio::time::sleep(Duration::from_millis(2)).await;
    Piped { number }
}

/// Returns the results of an owner, and the exit reasons of its pipes, as soon as so many have exited.
async fn collected(owner: Address<Owner>, exited: usize) -> (Vec<u64>, Vec<ExitReason>) {
    loop {
        let collected = owner.collected().await.unwrap();
        if collected.1.len() == exited {
            return collected;
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn piped_futures_run_side_by_side_and_come_back_as_messages() {
    let runtime = runtime();
    let count = scaled(1_000);
    runtime.block_on(async |runtime| {
        let owner = runtime.spawn(Owner::default()).unwrap();
        for number in 0..count {
            owner.call(pipe(slow(number))).await.unwrap();
        }
        let (mut results, down) = collected(owner, count as usize).await;
        results.sort_unstable();
        assert_eq!(results, (0..count).collect::<Vec<_>>());
        // A pipe that has ended before it was monitored is reported as `NoProcess`.
        assert!(down.iter().all(|why| matches!(why, ExitReason::Normal | ExitReason::NoProcess)));
        assert_eq!(runtime.process_count(), 1);
    });
}

#[test]
fn a_piped_future_that_panics_or_is_killed_sends_nothing_and_its_monitor_fires() {
    runtime().block_on(async |runtime| {
        let owner = runtime.spawn(Owner::default()).unwrap();
        owner.call(pipe(async { panic!("on purpose") })).await.unwrap();
        owner.call(pipe(std::future::pending())).await.unwrap().kill();
        let (results, down) = collected(owner, 2).await;
        assert_eq!(results, [0_u64; 0]);
        assert!(down.contains(&ExitReason::Killed));
        // The panicking pipe may have ended before it was monitored.
        let panicked = ExitReason::Panicked("on purpose".into());
        assert!(down.contains(&panicked) || down.contains(&ExitReason::NoProcess));
        // A result whose owner has exited is dropped.
        let pipe = owner.call(pipe(slow(1))).await.unwrap();
        owner.kill();
        pipe.exited().await;
        eventually(|| runtime.process_count() == 0).await;
    });
}

#[test]
fn blocking_closures_delay_no_other_process() {
    struct Blocker;
    #[process]
    impl Blocker {
        #[message]
        async fn wait(
            &mut self,
            number: std::sync::mpsc::Receiver<u64>,
            cx: &mut Context<Self>,
        ) -> Result<u64, BlockingError> {
            let received = cx.blocking(move || number.recv().expect("sent below")).await;
            received.map_err(BlockingError::without_closure)
        }
    }
    let runtime = Runtime::builder().workers(1).start().unwrap();
    runtime.block_on(async |runtime| {
        let (send, receive) = std::sync::mpsc::channel();
        let blocker = runtime.spawn(Blocker).unwrap();
        let waiting = tokio::spawn(blocker.wait(receive));
        let counter = runtime.spawn(Counter::default()).unwrap();
        assert_eq!(counter.call(Add(1)).await.unwrap(), 1);
        send.send(7).unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), Ok(7));
        let (_, disconnected) = std::sync::mpsc::channel();
        let panicked = blocker.wait(disconnected).await.unwrap();
        assert!(
            matches!(panicked, Err(BlockingError::Panicked(panic)) if panic.message().contains("sent below"))
        );
    });
}

async fn send_to_many(runtime: RuntimeHandle, count: u64) {
    let counters = runtime.spawner().spawn_many((0..count).map(|count| Counter { count })).unwrap();
    assert_eq!(counters.len() as u64, count);
    counters.send_all(Add(1)).unwrap();
    counters.send_all(Add(10)).unwrap();
    let recipients: Vec<Recipient<Add>> = counters.iter().map(|&counter| counter.into()).collect();
    recipients.send_all(Add(100)).unwrap();
    for (number, counter) in (0..).zip(&counters) {
        assert_eq!(counter.call(Add(0)).await.unwrap(), number + 111);
    }
    let (gone, _) = counters.split_at(counters.len() / 2);
    for counter in gone {
        counter.kill();
        counter.pid().exited().await;
    }
    let error = counters.send_all(Add(1)).unwrap_err();
    assert_eq!(error.failed.iter().map(|(to, _)| *to).collect::<Vec<_>>(), gone);
    assert!(error.failed.iter().all(|(_, error)| matches!(error, SendError::NoProcess(Add(1)))));
    let nobody: [Address<Counter>; 0] = [];
    nobody.send_all(Add(1)).unwrap();
    for (number, counter) in (0..).zip(&counters).skip(gone.len()) {
        assert_eq!(counter.call(Add(0)).await.unwrap(), number + 112);
        counter.stop();
    }
}

#[test]
fn messages_to_many_reach_each_and_report_exited_receivers() {
    let runtime = runtime();
    let count = scaled(5_000);
    runtime.block_on(async |runtime| {
        send_to_many(runtime.clone(), count).await;
        in_turn(runtime, send_to_many(runtime.clone(), count)).await;
    });
}

#[test]
fn a_clone_that_panics_recalls_no_sent_message() {
    /// A message that can be cloned as many times as its number says.
    struct Fragile(Arc<AtomicU64>);
    impl Clone for Fragile {
        fn clone(&self) -> Fragile {
            assert!(self.0.fetch_sub(1, Ordering::SeqCst) > 0, "on purpose");
            Fragile(self.0.clone())
        }
    }
    impl Message for Fragile {
        type Reply = ();
    }
    impl Handle<Fragile> for Counter {
        async fn handle(&mut self, _: Fragile, _: &mut Context<Self>) {
            self.count += 10;
        }
    }
    let runtime = runtime();
    let counters = runtime.spawner().spawn_many((0..4).map(|count| Counter { count })).unwrap();
    let message = Fragile(Arc::new(AtomicU64::new(2)));
    let sent = std::panic::catch_unwind(AssertUnwindSafe(|| counters.send_all(message)));
    assert!(sent.is_err());
    let counts = runtime.block_on(async |_| {
        let mut counts = Vec::new();
        for counter in counters {
            counts.push(counter.call(Add(0)).await.unwrap());
        }
        counts
    });
    assert_eq!(
        counts,
        [10, 11, 2, 3],
        "not exactly the two messages before the failed clone were sent"
    );
}

#[test]
fn states_beyond_the_process_limit_are_handed_back() {
    struct Starts(u64);
    impl Process for Starts {
        async fn started(&mut self, _: &mut Context<Self>) {
            self.0 += 1;
        }
    }
    impl Handle<Add> for Starts {
        async fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> u64 {
            self.0 += number;
            self.0
        }
    }
    let runtime = Runtime::builder().workers(1).process_limit(5).start().unwrap();
    let error = runtime.spawner().spawn_many((0..8).map(Starts)).unwrap_err();
    assert_eq!(error.rest.iter().map(|starts| starts.0).collect::<Vec<_>>(), [5, 6, 7]);
    assert!(matches!(error.reason, SpawnError::Limit { limit: 5, .. }));
    runtime.block_on(async |_| {
        for (number, starts) in (0..).zip(error.spawned) {
            assert_eq!(starts.call(Add(0)).await.unwrap(), number + 1);
        }
    });
}

/// Runs a closure that may block, and runs it itself if it comes back.
struct Blocks(std::sync::mpsc::Sender<&'static str>);
#[process]
impl Blocks {
    #[message]
    async fn block(&mut self, cx: &mut Context<Self>) {
        let heard = self.0.clone();
        let said = match cx.blocking(move || heard.send("ran").unwrap()).await {
            Ok(()) => "in a thread",
            Err(BlockingError::NoThread(run)) => {
                run();
                "no thread"
            }
            Err(BlockingError::ShutDown(run)) => {
                run();
                "shut down"
            }
            Err(error) => panic!("{error}"),
        };
        self.0.send(said).unwrap();
    }
}

#[test]
#[cfg_attr(miri, ignore = "the stack of a thread has no size there")]
fn a_blocking_closure_that_cannot_run_comes_back() {
    // Silences the panic by which tokio refuses.
    quiet();
    assert!(Runtime::builder().attach().is_err(), "outside of tokio");
    // No system has room for such a stack, so no thread can be started.
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_stack_size(1 << 60)
        .build()
        .unwrap();
    let runtime = tokio.block_on(async { Runtime::builder().workers(1).attach().unwrap() });
    let (heard, hears) = std::sync::mpsc::channel();
    let blocks = runtime.spawn(Blocks(heard)).unwrap();
    let work = Arc::new(AtomicU64::new(0));
    tokio.block_on(async {
        for _ in 0..2 {
            blocks.block().await.unwrap();
            assert_eq!([hears.recv().unwrap(), hears.recv().unwrap()], ["ran", "no thread"]);
        }
        let done = work.clone();
        runtime.run_blocking(move || done.store(1, Ordering::Relaxed)).await;
        assert_eq!(work.load(Ordering::Relaxed), 1, "the work of the runtime is done here");
    });
    tokio.shutdown_background();
    blocks.send_block().unwrap();
    assert_eq!([hears.recv().unwrap(), hears.recv().unwrap()], ["ran", "shut down"]);
}
