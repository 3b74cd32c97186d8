//! Async processes, which receive their messages from an inbox.

use crate::{Add, Await, Counter, eventually, runtime, scaled, spawn_async, until};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;
use throng::prelude::*;
use tokio::sync::oneshot;

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Event {
    Number(u64),
    Word(&'static str),
    End,
}
impl Message for Event {
    type Reply = ();
}
use Event::{End, Number, Word};

/// Sends messages to an async process before its first receive, and returns the result of `body`.
fn outcome<R, F>(messages: &[Event], body: impl FnOnce(Inbox<Event>) -> F + Send + 'static) -> R
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let runtime = runtime();
    let (begin, begins) = oneshot::channel();
    let (process, outcome) = spawn_async(&runtime, |inbox| async move {
        begins.await.unwrap();
        body(inbox).await
    });
    for &message in messages {
        process.send(message).unwrap();
    }
    begin.send(()).unwrap();
    runtime.block_on(async |_| outcome.await).unwrap()
}

#[test]
fn messages_come_in_the_order_of_their_sending() {
    runtime().block_on(async |runtime| {
        let (process, numbers) = spawn_async(runtime, |mut inbox: Inbox<Event>| async move {
            let mut numbers = Vec::new();
            while let Number(number) = inbox.recv().await {
                numbers.push(number);
            }
            numbers
        });
        let count = scaled(20_000);
        for number in 0..count {
            process.send(Number(number)).unwrap();
            if number % 64 == 0 {
                // Some messages then find the process waiting, others running.
                tokio::task::yield_now().await;
            }
        }
        process.send(End).unwrap();
        assert_eq!(numbers.await.unwrap(), (0..count).collect::<Vec<_>>());
    });
}

#[test]
fn a_receive_without_time_polls_the_mailbox() {
    let events = outcome(&[Number(1), Word("a"), Number(2)], |mut inbox| async move {
        let zero = Duration::ZERO;
        let mut got = vec![inbox.recv_match_timeout(|event| *event == End, zero).await];
        got.push(inbox.recv_match_timeout(|event| *event == Number(2), zero).await);
        got.push(inbox.recv_timeout(zero).await);
        got.push(inbox.try_recv());
        got.push(inbox.recv_timeout(zero).await);
        got.push(inbox.try_recv());
        got
    });
    assert_eq!(events, [None, Some(Number(2)), Some(Number(1)), Some(Word("a")), None, None]);
}

#[test]
fn a_message_in_time_wins_against_the_time_out() {
    runtime().block_on(async |runtime| {
        let (process, event) = spawn_async(runtime, |mut inbox: Inbox<Event>| async move {
            inbox.recv_timeout(Duration::from_secs(3600)).await
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
        process.send(End).unwrap();
        assert_eq!(event.await.unwrap(), Some(End));
    });
}

/// The futures around a receive poll it with wakers of their own, and drop it half-way.
#[test]
fn receives_work_inside_of_other_futures_and_can_be_cancelled() {
    runtime().block_on(async |runtime| {
        let (process, outcome) = spawn_async(runtime, |mut inbox: Inbox<Event>| async move {
            let mut numbers = Vec::new();
            loop {
                tokio::select! {
                    biased;
                    event = foreign(inbox.recv()) => match event {
                        Number(number) => numbers.push(number),
                        _ => break,
                    },
                    () = tokio::time::sleep(Duration::from_micros(100)) => {}
                }
            }
            (numbers, foreign(inbox.recv_timeout(Duration::from_millis(5))).await)
        });
        let count = scaled(500);
        for number in 0..count {
            process.send(Number(number)).unwrap();
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        process.send(End).unwrap();
        assert_eq!(outcome.await.unwrap(), ((0..count).collect::<Vec<_>>(), None));
    });
}

/// Polls a future only after its own waker was woken, like a set of many futures does.
fn foreign<F: Future + Send>(future: F) -> impl Future<Output = F::Output> + Send {
    struct Flag(AtomicBool, Waker);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
            self.1.wake_by_ref();
        }
    }
    let mut future = Box::pin(future);
    let mut flag: Option<Arc<Flag>> = None;
    std::future::poll_fn(move |task| {
        let flag =
            flag.get_or_insert_with(|| Arc::new(Flag(AtomicBool::new(true), task.waker().clone())));
        if !flag.0.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(flag.clone());
        future.as_mut().poll(&mut std::task::Context::from_waker(&waker))
    })
}

#[test]
fn calls_are_acknowledged_and_calls_to_others_work() {
    runtime().block_on(async |runtime| {
        let counter = runtime.spawn(Counter::default()).unwrap();
        let (process, _) = spawn_async(runtime, move |mut inbox: Inbox<Event>| async move {
            while let Number(number) = inbox.recv().await {
                counter.call(Add(number)).await.unwrap();
            }
        });
        for number in 1..=10 {
            process.call(Number(number)).await.unwrap();
        }
        process.call(End).await.unwrap();
        eventually(|| !process.is_alive()).await;
        assert_eq!(counter.call(Add(0)).await.unwrap(), 55);
        assert!(matches!(process.send(End), Err(SendError::NoProcess(End))));
    });
}

/// Returns the exit reason of an async process with this body.
fn exit_reason<F, R>(body: impl FnOnce(Inbox<Event>) -> F + Send + 'static) -> ExitReason
where
    F: Future<Output = R> + Send + 'static,
    R: throng::IntoExitReason,
{
    let runtime = runtime();
    let process = runtime
        .spawner()
        .spawn_async(|mut inbox| async move {
            inbox.recv().await;
            body(inbox).await
        })
        .unwrap();
    runtime.block_on(async |_| {
        // The signal of `exited` is sent before the message, and arrives before it.
        let begin = async { process.send(End).unwrap() };
        tokio::join!(biased; process.pid().exited(), begin).0
    })
}

#[test]
fn the_end_of_the_future_is_the_exit_of_the_process() {
    assert_eq!(exit_reason(|_| async {}), ExitReason::Normal);
    assert_eq!(exit_reason(|_| async { Ok::<(), String>(()) }), ExitReason::Normal);
    let no_luck = ExitReason::other("no luck");
    assert_eq!(exit_reason(|_| async { Err::<(), _>("no luck") }), no_luck);
    assert_eq!(exit_reason(|_| async { ExitReason::other("no luck") }), no_luck);
    let panicked = ExitReason::Panicked("on purpose".into());
    assert_eq!(exit_reason(|_| async { panic!("on purpose") }), panicked);
    let stopped = exit_reason(|mut inbox| async move {
        inbox.context(|cx| cx.stop(ExitReason::other("no luck")));
        inbox.recv().await;
        panic!("a message was received after the stop");
    });
    assert_eq!(stopped, no_luck);
}

/// Signals reach an async process in any state, and as messages if it asks for that.
#[test]
fn signals_end_an_async_process_or_come_as_messages() {
    enum Notice {
        Down(Down),
        Exit(Exit),
        Number(u64),
    }
    impl Message for Notice {
        type Reply = ();
    }
    runtime().block_on(async |runtime| {
        for kill in [false, true] {
            // A process that receives, a process that waits for another future, and a busy process.
            let receiving = spawn_async(runtime, |mut inbox: Inbox<Event>| async move {
                inbox.recv_match(|_| false).await;
            });
            let waiting = spawn_async(runtime, |_: Inbox<Event>| std::future::pending::<()>());
            let busy = spawn_async(runtime, |mut inbox: Inbox<Event>| async move {
                let own = inbox.address();
                loop {
                    own.send(inbox.recv_timeout(Duration::ZERO).await.unwrap_or(End)).unwrap();
                }
            });
            for process in [receiving.0, waiting.0, busy.0] {
                let exit = async {
                    if kill { process.kill() } else { process.exit(ExitReason::other("enough")) }
                };
                let (reason, ()) = tokio::join!(process.pid().exited(), exit);
                let expected = if kill { ExitReason::Killed } else { ExitReason::other("enough") };
                assert_eq!(reason, expected);
            }
        }

        let watched = runtime.spawn(Counter::default()).unwrap();
        let (process, outcome) = spawn_async(runtime, move |mut inbox| async move {
            inbox.on_down(Notice::Down);
            inbox.on_exit(Notice::Exit);
            let monitor = inbox.context(|cx| {
                cx.link(watched);
                cx.monitor(watched)
            });
            let mut seen = Vec::new();
            let number = inbox.recv_match(|notice| matches!(notice, Notice::Number(_))).await;
            let Notice::Number(number) = number else { panic!("another message was received") };
            for _ in 0..2 {
                seen.push(match inbox.recv().await {
                    Notice::Down(down) => {
                        assert_eq!(down.monitor, monitor);
                        (down.pid, down.reason)
                    }
                    Notice::Exit(exit) => (exit.pid.unwrap(), exit.reason),
                    Notice::Number(_) => panic!("a second number was received"),
                });
            }
            (number, seen)
        });
        watched.exit(ExitReason::other("enough"));
        watched.pid().exited().await;
        process.send(Notice::Number(7)).unwrap();
        let (number, seen) = outcome.await.unwrap();
        assert_eq!(number, 7);
        assert!(seen.iter().all(|(pid, reason)| {
            *pid == watched.pid()
                && matches!(reason, ExitReason::NoProcess)
                    | (*reason == ExitReason::other("enough"))
        }));
    });
}

#[test]
fn a_stop_comes_after_the_messages_before_it() {
    let runtime = runtime();
    let sum = Arc::new(AtomicU64::new(0));
    let adds = sum.clone();
    let (process, _) = spawn_async(&runtime, move |mut inbox: Inbox<Event>| async move {
        while let Number(number) = inbox.recv().await {
            adds.fetch_add(number, Ordering::SeqCst);
        }
    });
    let count = scaled(1_000);
    for _ in 0..count {
        process.send(Number(1)).unwrap();
    }
    assert!(process.stop());
    until(|| runtime.process_count() == 0);
    assert_eq!(sum.load(Ordering::SeqCst), count);
}

/// Turns other than messages run inside the turn of the async process.
#[test]
fn foreign_turns_run_if_they_do_not_wait_and_end_the_process_if_they_panic() {
    type Receiving = throng::AsyncProcess<Event>;
    struct Now;
    impl Turn<Receiving> for Now {
        type Reply = u32;
        async fn run(self, process: &mut Receiving, cx: &mut Context<Receiving>) -> u32 {
            // Two messages from a single turn keep their order too.
            process.handle(Number(1), cx).await;
            process.handle(Number(2), cx).await;
            7
        }
    }
    let runtime = runtime();
    let (sender, receiver) = oneshot::channel();
    let (process, _) = spawn_async(&runtime, |mut inbox: Inbox<Event>| async move {
        sender.send([inbox.recv().await, inbox.recv().await]).unwrap();
        inbox.recv().await;
    });
    runtime.block_on(async |runtime| {
        let waits = process.call(Await(std::future::pending::<()>())).await;
        assert!(matches!(waits, Err(CallError::Died(_))));
        assert_eq!(process.call(Now).await.unwrap(), 7);
        assert_eq!(receiver.await.unwrap(), [Number(1), Number(2)]);
        let panicked = process.call(Await(async { panic!("on purpose") })).await;
        let reason = ExitReason::Panicked("on purpose".into());
        assert!(matches!(panicked, Err(CallError::Died(died)) if died == reason));
        eventually(|| runtime.process_count() == 0).await;
    });
}

#[test]
fn shutdown_ends_waiting_processes_and_drops_kept_messages() {
    let runtime = runtime();
    let token = Arc::new(());
    struct Held(#[expect(dead_code, reason = "counted, not read")] Arc<()>);
    impl Message for Held {
        type Reply = ();
    }
    for _ in 0..scaled(1_000).min(100) {
        let (process, _) = spawn_async(&runtime, |mut inbox: Inbox<Held>| async move {
            inbox.recv_match(|_| false).await;
        });
        for _ in 0..3 {
            process.send(Held(token.clone())).unwrap();
        }
    }
    let (busy, _) = spawn_async(&runtime, |_: Inbox<Held>| std::future::pending::<()>());
    busy.send(Held(token.clone())).unwrap();
    let outcome = runtime.shutdown(Duration::from_millis(if cfg!(miri) { 20_000 } else { 2_000 }));
    assert_eq!((outcome.stopped, outcome.abandoned), (scaled(1_000).min(100), 1));
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn an_inbox_that_leaves_its_process_is_refused() {
    runtime().block_on(async |runtime| {
        let (sender, receiver) = oneshot::channel();
        spawn_async(runtime, |inbox: Inbox<Event>| async move {
            assert!(sender.send(inbox).is_ok());
            std::future::pending::<()>().await;
        });
        let mut inbox = receiver.await.unwrap();
        let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| inbox.try_recv()));
        assert!(used.is_err());
        // The inbox does not work inside another process either.
        let (thief, _) = spawn_async(runtime, |_: Inbox<Event>| async move {
            inbox.recv().await;
        });
        eventually(|| !thief.is_alive()).await;
    });
}

#[test]
fn a_flood_leaves_room_for_others() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let (flooded, _) = spawn_async(&runtime, |mut inbox: Inbox<Event>| async move {
        // Sends each received message to itself again, for ever.
        let own = inbox.address();
        loop {
            let event = inbox.recv().await;
            if event == End {
                break;
            }
            own.send(event).unwrap();
        }
    });
    let counter = runtime.spawn(Counter::default()).unwrap();
    flooded.send(Number(0)).unwrap();
    runtime.block_on(async |_| {
        for sum in 1..=scaled(400).min(100) {
            // Under Miri the flood's share of the worker's time lasts seconds.
            let call = counter.call(Add(1)).within(Duration::from_secs(600));
            assert_eq!(call.await.unwrap(), sum);
        }
    });
    flooded.send(End).unwrap();
}

/// A process starts, uses and ends a runtime in its turn, and can then still use its own context.
#[test]
fn a_handler_that_has_run_another_runtime_has_its_own_context_again() {
    let outcome = outcome(&[Number(1)], |mut inbox| async move {
        let first = inbox.recv().await;
        let own = inbox.address();
        let inner = Runtime::builder().workers(1).start().unwrap();
        let counter = inner.spawn(Counter::default()).unwrap();
        let count = inner.block_on(async |_| {
            own.send(Number(2)).unwrap();
            counter.call(Add(5)).await.unwrap()
        });
        let ended = inner.shutdown(Duration::from_secs(20));
        assert_eq!((count, ended.abandoned), (5, 0));
        (first, inbox.try_recv(), inbox.recv_timeout(Duration::from_millis(1)).await)
    });
    assert_eq!(outcome, (Number(1), Some(Number(2)), None));
}
