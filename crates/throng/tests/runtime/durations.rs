//! Durations at both ends of their range, in every place that takes a duration.

use crate::{Add, Counter, Do, eventually, in_turn, spawn_async};
use std::time::Duration;
use throng::prelude::*;

/// Starts a runtime with a single worker, so that the loss of a worker shows.
fn one_worker() -> Runtime {
    let builder = Runtime::builder().workers(1).spare_workers(0);
    builder.stuck_after(Duration::MAX).start().unwrap()
}

struct Waits;
#[process]
impl Waits {
    #[hook]
    fn timeout(&mut self, cx: &mut Context<Self>) {
        cx.stop(ExitReason::other("the time is over"));
    }
    #[message(derive(Clone))]
    fn ping(&mut self) {}
}

#[process(manual)]
impl Counter {
    #[message]
    fn answer(&mut self, reply: ReplyTo<u64>) {
        let _ = reply.send(7);
    }
}

#[test]
fn the_longest_durations_work_in_a_process() {
    let longest =
        [Duration::MAX, Duration::MAX - Duration::from_nanos(1), Duration::from_secs(u64::MAX)];
    for time in longest {
        let runtime = one_worker();
        runtime.block_on(async |runtime| {
            let waits = runtime.spawn(Waits).unwrap();
            let cancels = Do(move |_: &mut Waits, cx: &mut Context<Waits>| {
                cx.receive_timeout(time);
                [cx.send_after(time, Ping).cancel(), cx.send_every(time, Ping).cancel()]
            });
            assert_eq!(waits.call(cancels).await.unwrap(), [true, true], "{time:?}");
            waits.ping().await.unwrap();
            assert!(waits.is_alive(), "{time:?}");
            let counter = runtime.spawn(Counter::default()).unwrap();
            let calls = async move {
                let called = counter.call(Add(1)).within(time).await;
                (called.ok(), counter.answer().within(time).await.ok())
            };
            assert_eq!(in_turn(runtime, calls).await, (Some(1), Some(7)), "{time:?}");
        });
    }
}

#[test]
fn the_shortest_durations_are_over_at_once() {
    let runtime = one_worker();
    runtime.block_on(async |runtime| {
        let waits = runtime.spawn(Waits).unwrap();
        let set = Do(|_: &mut Waits, cx: &mut Context<Waits>| cx.receive_timeout(Duration::ZERO));
        // `exited` is polled before the call, because the process exits at once after it.
        let (exit, reply) = tokio::join!(waits.pid().exited(), waits.call(set));
        reply.unwrap();
        assert_eq!(exit, ExitReason::other("the time is over"));
    });
}

/// Message to the async process.
struct Number(u64);
impl Message for Number {
    type Reply = ();
}

#[test]
fn an_inbox_waits_for_the_longest_of_times() {
    let runtime = one_worker();
    runtime.block_on(async |runtime| {
        let (process, numbers) = spawn_async(runtime, |mut inbox: Inbox<Number>| async move {
            let first = inbox.recv_timeout(Duration::MAX).await;
            let second = inbox.recv_match_timeout(|number| number.0 == 3, Duration::MAX).await;
            [first, second].map(|number| number.map(|number| number.0))
        });
        for number in 1..=3 {
            process.send(Number(number)).unwrap();
        }
        assert_eq!(numbers.await.unwrap(), [Some(1), Some(3)]);
    });
}

#[test]
fn the_longest_durations_work_outside_of_processes() {
    let runtime = one_worker();
    runtime.block_on(async |runtime| {
        let counter = runtime.spawn(Counter::default()).unwrap();
        assert_eq!(counter.call(Add(1)).within(Duration::MAX).await.unwrap(), 1);
        let answer = counter.answer().within(Duration::MAX);
        assert_eq!(answer.await.unwrap(), 7);
        let waits = runtime.spawn(Waits).unwrap();
        assert!(runtime.send_after(waits, Duration::MAX, Ping).cancel());
        assert!(runtime.send_every(waits, Duration::MAX, Ping).cancel());

        let child = ChildSpec::new(Counter::default).shutdown(Duration::MAX);
        let handle = child.handle();
        let tree = Supervisor::one_for_one().intensity(1, Duration::MAX).child("child", child);
        let tree = tree.start_async(runtime).await.unwrap();
        assert_eq!(handle.call(Add(1)).await.unwrap(), 1);
        tree.stop();
        eventually(|| !tree.is_alive()).await;
    });
    let outcome = runtime.shutdown(Duration::MAX);
    assert_eq!(outcome.abandoned, 0);
}
