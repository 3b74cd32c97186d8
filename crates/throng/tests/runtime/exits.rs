//! Exits: stopping, panics, hooks, shutdown.

use crate::{Add, AddSlowly, Counter, in_turn, runtime, scaled, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use throng::Timeout;
use throng::prelude::*;

/// Records the calls of its hooks.
struct Hooked(Arc<AtomicU64>);
#[process]
impl Hooked {
    #[hook]
    async fn started(&mut self) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    #[hook]
    async fn stopping(&mut self, reason: &ExitReason) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let code = match reason {
            ExitReason::Normal => 100,
            ExitReason::Shutdown => 1_000,
            _ => 10_000,
        };
        self.0.fetch_add(code, Ordering::SeqCst);
    }
    #[message]
    fn read(&mut self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
impl Drop for Hooked {
    fn drop(&mut self) {
        self.0.fetch_add(10, Ordering::SeqCst);
    }
}

#[test]
fn an_idle_process_that_is_asked_to_stop_exits_as_if_the_request_were_a_message() {
    // Stops idle processes on the worker that they have run on.
    async fn stop_idle(runtime: RuntimeHandle) {
        let bound = throng::MailboxBound::new(2, throng::Overflow::Reject);
        for spawner in [runtime.spawner(), runtime.spawner().mailbox(bound)] {
            let counter = spawner.spawn(Counter::default()).unwrap();
            assert_eq!(counter.call(Add(1)).await.unwrap(), 1);
            assert!(counter.stop());
            // The process is alive until its exit runs: the message is queued, but not handled.
            assert!(counter.is_alive() && counter.stop());
            let late = counter.call(Add(1)).await;
            assert!(matches!(late, Err(CallError::Died(ExitReason::Normal))), "{late:?}");
            assert!(!counter.is_alive() && !counter.stop());
        }
        // A signal is acted on before the exit, as before a message.
        let killed = runtime.spawn(Counter::default()).unwrap();
        assert_eq!(killed.call(Add(1)).await.unwrap(), 1);
        assert!(killed.stop());
        killed.kill();
        assert_eq!(killed.pid().exited().await, ExitReason::Killed);
        let hooked = runtime.spawn(Hooked(Arc::default())).unwrap();
        assert_eq!(hooked.read().await.unwrap(), 1);
        assert!(hooked.stop());
        tokio::task::yield_now().await;
        assert!(hooked.is_alive(), "its last turn waits");
        assert_eq!(hooked.pid().exited().await, ExitReason::Normal);
    }
    let runtime = Runtime::builder().workers(1).start().unwrap();
    runtime.block_on(async |runtime| in_turn(runtime, stop_idle(runtime.clone())).await);
}

#[test]
fn stop_if_idle_loses_no_message() {
    struct Shy(u64);
    impl Process for Shy {}
    impl Handle<Add> for Shy {
        async fn handle(&mut self, Add(number): Add, cx: &mut Context<Self>) -> u64 {
            self.0 += number;
            cx.stop_if_idle();
            self.0
        }
    }
    let runtime = runtime();
    let handled = runtime.block_on(async |runtime| {
        let mut handled = 0;
        for _ in 0..scaled(500) {
            let shy = runtime.spawn(Shy(0)).unwrap();
            let calls: Vec<_> = (0..8).map(|_| tokio::spawn(shy.call(Add(1)))).collect();
            for call in calls {
                match call.await.unwrap() {
                    Ok(_) => handled += 1,
                    // The message was not queued, so it can be sent to another process.
                    Err(CallError::NoProcess(Add(number))) => handled += number,
                    Err(error) => panic!("lost: {error}"),
                }
            }
        }
        handled
    });
    assert_eq!(handled, 8 * scaled(500));
}

/// Ties that the same turn makes are no queued messages: each sends the process a signal.
#[test]
fn a_process_that_makes_a_tie_and_stops_if_idle_exits() {
    const LONG: Duration = Duration::from_secs(3600);
    type Tie = fn(&mut Idle, &mut Context<Idle>, Pid);
    struct Idle {
        timeout: Timeout,
        timer: Option<Timer>,
    }
    #[process]
    impl Idle {
        #[message]
        fn leave(&mut self, tie: Tie, other: Pid, cx: &mut Context<Self>) {
            cx.stop_if_idle();
            tie(self, cx, other);
        }
    }
    let ties: [(&str, Tie); 6] = [
        ("none", |_, _, _| {}),
        ("a timeout", |idle, cx, other| {
            idle.timeout.set(cx, LONG, Leave { tie: |_, _, _| {}, other })
        }),
        ("a timer", |idle, cx, other| {
            idle.timer = Some(cx.send_after(LONG, Leave { tie: |_, _, _| {}, other }));
        }),
        ("a timer in the past", |_, cx, other| {
            let _ = cx.send_after(Duration::ZERO, Leave { tie: |_, _, _| {}, other });
        }),
        ("a monitor", |_, cx, other| {
            cx.monitor(other);
        }),
        ("a link", |_, cx, other| cx.link(other)),
    ];
    runtime().block_on(async |runtime| {
        for (name, tie) in ties {
            for is_call in [false, true] {
                let other = runtime.spawn(Counter::default()).unwrap();
                let idle =
                    runtime.spawn(Idle { timeout: Timeout::default(), timer: None }).unwrap();
                if is_call {
                    let _ = idle.leave(tie, other.pid()).await;
                } else {
                    idle.send_leave(tie, other.pid()).unwrap();
                }
                let begun = std::time::Instant::now();
                while idle.is_alive() {
                    assert!(begun.elapsed() < Duration::from_secs(30), "{name}");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    });
}

#[test]
fn shutdown_drains_mailboxes_runs_hooks_and_drops_hanging_turns() {
    let runtime = runtime();
    let seen = Arc::new(AtomicU64::new(0));
    let hooked = scaled(1_000).min(100);
    for _ in 0..hooked {
        runtime.spawn(Hooked(seen.clone())).unwrap();
    }
    let counter = runtime.spawn(Counter::default()).unwrap();
    counter.send(AddSlowly(1, Duration::from_millis(20))).unwrap();
    let hanging = runtime.spawn(Counter::default()).unwrap();
    hanging.send(AddSlowly(1, Duration::from_secs(3600))).unwrap();
    let handle = runtime.handle().clone();
    let outcome = runtime.shutdown(Duration::from_millis(if cfg!(miri) { 20_000 } else { 2_000 }));
    assert_eq!((outcome.stopped, outcome.abandoned), (hooked + 1, 1));
    assert_eq!(seen.load(Ordering::SeqCst), hooked * 1_011);
    assert!(
        matches!(handle.spawn(Counter { count: 5 }), Err(SpawnError::ShutDown { process }) if process.count == 5)
    );
}

#[test]
fn a_state_whose_drop_panics_ends_no_other_process() {
    struct Vicious;
    impl Process for Vicious {}
    impl Drop for Vicious {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }
    let runtime = runtime();
    let vicious = runtime.spawn(Vicious).unwrap();
    vicious.stop();
    let counter = runtime.spawn(Counter::default()).unwrap();
    assert_eq!(runtime.block_on(async |_| counter.call(Add(2)).await).unwrap(), 2);
    until(|| runtime.process_count() <= 1);
}

#[test]
#[cfg_attr(miri, ignore = "blocks for seconds, and many processes")]
fn a_blocked_worker_does_not_hold_the_shutdown_up_for_ever() {
    struct Blocker;
    #[process]
    impl Blocker {
        #[message(send)]
        fn block(&mut self) {
            std::thread::sleep(Duration::from_secs(20));
        }
    }
    let runtime = Runtime::builder().workers(1).start().unwrap();
    for _ in 0..40_000 {
        runtime.spawn(Counter::default()).unwrap();
    }
    runtime.spawn(Blocker).unwrap().block().unwrap();
    let outcome = runtime.shutdown(Duration::from_millis(50));
    assert_eq!(outcome.stopped + outcome.abandoned, 40_001);
    assert!(outcome.abandoned > 0);
}

#[test]
fn spawns_from_outside_race_with_the_shutdown_and_nothing_is_left() {
    for _ in 0..scaled(400).min(40) {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let handle = runtime.handle().clone();
        let dropped = Arc::new(AtomicU64::new(0));
        struct Counted(Arc<AtomicU64>);
        impl Process for Counted {}
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let spawner = std::thread::spawn({
            let dropped = dropped.clone();
            move || (0..50).filter(|_| handle.spawn(Counted(dropped.clone())).is_ok()).count()
        });
        runtime.shutdown(Duration::from_secs(5));
        spawner.join().unwrap();
        assert_eq!(
            dropped.load(Ordering::SeqCst),
            50,
            "a refused or exited process was not dropped"
        );
    }
}

/// Waits for messages for so long after each, and counts the times it has waited in vain.
struct Waiting(Duration, Arc<AtomicU64>);
impl Process for Waiting {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.receive_timeout(self.0);
    }
    async fn timeout(&mut self, cx: &mut Context<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        cx.receive_timeout(self.0);
    }
}

#[test]
fn an_idle_process_with_a_receive_timeout_stops_once_and_waits_no_more() {
    let runtime = runtime();
    let waits = [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(3600)];
    runtime.block_on(async |runtime| {
        for wait in waits {
            let timeouts = Arc::new(AtomicU64::new(0));
            let waiting = runtime.spawn(Waiting(wait, timeouts.clone())).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(waiting.stop());
            // The exit may come before the monitor.
            let reason = waiting.pid().exited().await;
            assert!(matches!(reason, ExitReason::Normal | ExitReason::NoProcess), "{reason:?}");
            let before = timeouts.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(timeouts.load(Ordering::Relaxed), before, "{wait:?}");
        }
    });
    // The request may meet the end of the runtime at any step.
    let last = runtime.spawn(Waiting(Duration::from_millis(1), Arc::default())).unwrap();
    last.stop();
    assert_eq!(runtime.shutdown(Duration::from_secs(60)).abandoned, 0);
}

#[test]
fn a_process_cannot_wait_for_its_own_exit() {
    /// Reports the reasons that it got.
    struct Own(tokio::sync::mpsc::UnboundedSender<ExitReason>);
    #[process]
    impl Own {
        #[hook]
        async fn stopping(&mut self, cx: &mut Context<Self>) {
            self.0.send(cx.pid().exited().await).unwrap();
        }

        #[message]
        async fn wait(&mut self, cx: &mut Context<Self>) {
            let me = cx.address();
            me.stop();
            // Beside the turn, a process may wait for the exit.
            let (exited, heard) = (me.pid().exited(), self.0.clone());
            let beside = async move {
                heard.send(exited.await).unwrap();
                Wait
            };
            cx.pipe(beside).unwrap();
            self.0.send(me.pid().exited().await).unwrap();
        }
    }
    runtime().block_on(async |runtime| {
        let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let own = runtime.spawn(Own(heard)).unwrap();
        own.wait().await.unwrap();
        let mut reasons = Vec::new();
        while let Some(reason) = hears.recv().await {
            reasons.push(reason);
        }
        assert_eq!(reasons[..2], [ExitReason::Cycle, ExitReason::Cycle]);
        // The piped future may have asked after the exit.
        assert!(matches!(reasons[2], ExitReason::Normal | ExitReason::NoProcess), "{reasons:?}");
    });
}
