//! Messages that are dropped unhandled: each is counted once, by process and reason, and reported to
//! whoever subscribes.

use crate::{bounded_by, in_turn, poll_once, runtime, spawn_async};
use std::any::type_name;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use throng::layer::{Layer, TurnEnd};
use throng::prelude::*;
use throng::{CallError, DropReason, MailboxBound, Overflow, Pool, SendAll};
use tokio::sync::Semaphore;

/// Messages that are dropped by each row.
const MANY: u64 = if cfg!(miri) { 20 } else { 300 };

/// Numbers of dropped messages by reason. All numbers must be of processes `P`.
fn dropped<P>(runtime: &RuntimeHandle) -> BTreeMap<DropReason, u64> {
    let dropped = runtime.metrics().dropped;
    assert!(dropped.iter().all(|dropped| dropped.process == type_name::<P>()), "{dropped:?}");
    dropped.into_iter().map(|dropped| (dropped.reason, dropped.messages)).collect()
}

struct Clerk(Arc<Semaphore>);
impl Process for Clerk {}

#[derive(Clone, Copy, Debug)]
enum Job {
    /// Waits for the gate.
    Hold,
    Nothing,
    Panic,
    Stop,
}
impl Message for Job {
    type Reply = ();
}
impl Handle<Job> for Clerk {
    async fn handle(&mut self, job: Job, cx: &mut Context<Self>) {
        match job {
            Job::Hold => self.0.acquire().await.unwrap().forget(),
            Job::Nothing => {}
            Job::Panic => panic!("on purpose"),
            Job::Stop => cx.stop(ExitReason::Normal),
        }
    }
}

/// The name of an end, the job that is behind the job at the gate, the call that ends the process
/// otherwise, and the reason of the drops.
type End = (&'static str, Job, Option<fn(Address<Clerk>)>, DropReason);

#[test]
fn an_exit_counts_each_message_that_waits_however_it_was_sent() {
    let ends: [End; 4] = [
        ("panic", Job::Panic, None, DropReason::Panic),
        ("stop", Job::Stop, None, DropReason::Exit),
        ("kill", Job::Nothing, Some(|clerk| clerk.kill()), DropReason::Exit),
        (
            "exit signal",
            Job::Nothing,
            Some(|clerk| clerk.pid().exit(ExitReason::other("enough"))),
            DropReason::Exit,
        ),
    ];
    for (name, job, ended, reason) in ends {
        for bound in [None, Some(MailboxBound::new(10_000, Overflow::Reject))] {
            for by_train in [false, true] {
                let row = format!("{name}, {bound:?}, by train: {by_train}");
                runtime().block_on(async |runtime| {
                    let mut letters = runtime.dead_letters(10_000);
                    let gate = Arc::new(Semaphore::new(0));
                    let clerk = bounded_by(runtime, bound).spawn(Clerk(gate.clone())).unwrap();
                    let mut jobs = vec![Job::Nothing, Job::Nothing, Job::Nothing, Job::Hold, job];
                    jobs.extend((0..MANY).map(|_| Job::Nothing));
                    let post = move || jobs.into_iter().for_each(|job| clerk.send(job).unwrap());
                    // The messages of a turn travel by train.
                    if by_train {
                        in_turn(runtime, async { post() }).await
                    } else {
                        post()
                    }
                    // The process has begun the job at the gate, and all others wait.
                    eventually(async || runtime.info(clerk).await.unwrap().mailbox_len == MANY + 1)
                        .await;
                    let expected = MANY + u64::from(ended.is_some());
                    end(clerk.pid(), || match ended {
                        None => gate.add_permits(1),
                        Some(ended) => ended(clerk),
                    })
                    .await;
                    assert_eq!(
                        dropped::<Clerk>(runtime),
                        BTreeMap::from([(reason, expected)]),
                        "{row}"
                    );
                    let mut listed = 0;
                    while let Some(letter) = letters.try_recv() {
                        assert_eq!((letter.to, letter.reason), (clerk.pid(), reason), "{row}");
                        assert_eq!(letter.process, type_name::<Clerk>(), "{row}");
                        assert_eq!(letter.message, type_name::<Job>(), "{row}");
                        listed += letter.messages;
                    }
                    assert_eq!((listed, letters.missed()), (expected, 0), "{row}");
                });
            }
        }
    }
}

/// Ends a process, and waits for the exit. Watched from before the end: a process that has closed its
/// mailbox may still be dropping its messages.
async fn end(pid: Pid, end: impl FnOnce()) {
    let mut exited = Box::pin(pid.exited());
    assert!(poll_once(&mut exited).is_pending());
    end();
    exited.await;
}

/// Waits until the condition holds.
async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..60_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the condition does not hold in time");
}

/// A clerk at work, with a bound, whose mailbox is empty and whose gate is closed.
async fn busy(
    runtime: &RuntimeHandle,
    bound: Option<MailboxBound>,
) -> (Address<Clerk>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let clerk = bounded_by(runtime, bound).spawn(Clerk(gate.clone())).unwrap();
    clerk.send(Job::Hold).unwrap();
    eventually(async || runtime.info(clerk).await.unwrap().mailbox_len == 0).await;
    (clerk, gate)
}

/// A clerk that has exited.
async fn gone(runtime: &RuntimeHandle) -> Address<Clerk> {
    let clerk = runtime.spawn(Clerk(Arc::new(Semaphore::new(0)))).unwrap();
    end(clerk.pid(), || clerk.kill()).await;
    clerk
}

/// A clerk whose mailbox is full.
async fn full(runtime: &RuntimeHandle, overflow: Overflow) -> Address<Clerk> {
    let (clerk, _gate) = busy(runtime, Some(MailboxBound::new(1, overflow))).await;
    clerk.send(Job::Nothing).unwrap();
    clerk
}

#[test]
fn each_policy_of_a_full_mailbox_counts_what_nobody_gets_back() {
    let table = [
        (Overflow::DropNewest, [1, 1, 0]),
        (Overflow::DropOldest, [1, 1, 1]),
        (Overflow::Reject, [0, 0, 0]),
        (Overflow::Wait, [0, 0, 0]),
    ];
    for (overflow, [sent, delivered, called]) in table {
        let runtime = runtime();
        let reason = DropReason::Overflow(overflow);
        runtime.block_on(async |runtime| {
            let clerk = full(runtime, overflow).await;
            let expect = |number, what: &str| {
                let is = dropped::<Clerk>(runtime).get(&reason).copied().unwrap_or_default();
                assert_eq!(is, number, "{overflow:?}: {what}");
            };
            let _ = clerk.send(Job::Nothing);
            expect(sent, "send");
            if overflow != Overflow::Wait {
                let _ = clerk.deliver(Job::Nothing).await;
            }
            expect(sent + delivered, "deliver");
            let call = tokio::time::timeout(Duration::from_millis(1), clerk.call(Job::Nothing));
            let _ = call.await;
            expect(sent + delivered + called, "call");
            // A broadcast tells nobody who was not reached.
            let before = sent + delivered + called;
            let group = runtime.group::<Address<Clerk>>("clerks");
            group.join(clerk);
            let jobs = runtime.group::<Recipient<Job>>("jobs");
            jobs.join(clerk.recipient());
            group.broadcast(Job::Nothing);
            jobs.broadcast(Job::Nothing);
            // The call, which nobody awaits any more, was the oldest.
            expect(before + 2, "broadcast to addresses and to recipients");
            // Its turn would hold up the end of the runtime.
            clerk.kill();
        });
    }
}

#[test]
fn what_its_sender_gets_back_is_not_counted() {
    runtime().block_on(async |runtime| {
        let clerk = gone(runtime).await;
        assert!(clerk.send(Job::Nothing).is_err());
        assert!(clerk.deliver(Job::Nothing).await.is_err());
        assert!(matches!(clerk.call(Job::Nothing).await, Err(CallError::NoProcess(_))));
        assert!([clerk].send_all(Job::Nothing).is_err());
        let rejects = full(runtime, Overflow::Reject).await;
        assert!(matches!(rejects.call(Job::Nothing).await, Err(CallError::Overloaded(_))));
        // A call that makes room goes back to its caller.
        let (drops, _gate) = busy(runtime, Some(MailboxBound::new(1, Overflow::DropOldest))).await;
        let mut call = Box::pin(drops.call(Job::Nothing));
        assert!(poll_once(&mut call).is_pending());
        drops.send(Job::Nothing).unwrap();
        assert!(matches!(call.await, Err(CallError::Overloaded(_))));
        // A message that waits for room when the process exits goes back, too.
        let waits = full(runtime, Overflow::Wait).await;
        let mut delivery = Box::pin(waits.deliver(Job::Nothing));
        assert!(poll_once(&mut delivery).is_pending());
        end(waits.pid(), || waits.kill()).await;
        assert!(delivery.await.is_err());
        assert_eq!(dropped::<Clerk>(runtime), BTreeMap::from([(DropReason::Exit, 1)]), "its queue");
    });
}

#[test]
fn a_call_that_waits_at_the_exit_is_counted_and_its_caller_gets_the_reason() {
    runtime().block_on(async |runtime| {
        let (clerk, _gate) = busy(runtime, None).await;
        let mut call = Box::pin(clerk.call(Job::Nothing));
        assert!(poll_once(&mut call).is_pending());
        end(clerk.pid(), || clerk.kill()).await;
        assert!(matches!(call.await, Err(CallError::Died(ExitReason::Killed))));
        assert_eq!(dropped::<Clerk>(runtime), BTreeMap::from([(DropReason::Exit, 1)]));
    });
}

#[test]
fn requests_and_signals_of_the_runtime_are_no_messages() {
    runtime().block_on(async |runtime| {
        let (clerk, _gate) = busy(runtime, None).await;
        clerk.stop();
        clerk.stop();
        // The interval's message is not cloned before its turn; a timer that is set ends with its process.
        let _interval = runtime.send_every(clerk, Duration::from_millis(1), Job::Nothing);
        let _timer = runtime.send_after(clerk, Duration::from_secs(1_000), Job::Nothing);
        eventually(async || runtime.info(clerk).await.unwrap().mailbox_len == 3).await;
        end(clerk.pid(), || clerk.kill()).await;
        let (unstarted, _) = spawn_async(runtime, |_: Inbox<Job>| std::future::pending::<()>());
        unstarted.kill();
        eventually(async || runtime.process_count() == 0).await;
        assert_eq!(runtime.metrics().dropped, []);
    });
}

#[test]
fn what_nobody_waits_for_is_counted_if_its_process_is_gone() {
    runtime().block_on(async |runtime| {
        let clerk = gone(runtime).await;
        let _timer = runtime.send_after(clerk, Duration::ZERO, Job::Nothing);
        let _interval = runtime.send_every(clerk, Duration::from_millis(1), Job::Nothing);
        assert_eq!(dropped::<Clerk>(runtime), BTreeMap::from([(DropReason::NoProcess, 2)]));
        // The message of a timer that is due waits like any other.
        let (clerk, _gate) = busy(runtime, None).await;
        let _timer = runtime.send_after(clerk, Duration::ZERO, Job::Nothing);
        eventually(async || runtime.info(clerk).await.unwrap().mailbox_len == 1).await;
        end(clerk.pid(), || clerk.kill()).await;
        let expected = BTreeMap::from([(DropReason::NoProcess, 2), (DropReason::Exit, 1)]);
        assert_eq!(dropped::<Clerk>(runtime), expected);
    });
}

/// Pipes a job to itself that comes when the gate opens, and exits.
struct Pipes(Arc<Semaphore>);
impl Process for Pipes {
    async fn started(&mut self, cx: &mut Context<Self>) {
        let gate = self.0.clone();
        let late = async move {
            gate.acquire().await.unwrap().forget();
            Job::Nothing
        };
        cx.pipe(late).unwrap();
        cx.stop(ExitReason::Normal);
    }
}
impl Handle<Job> for Pipes {
    async fn handle(&mut self, _: Job, _: &mut Context<Self>) {}
}

#[test]
fn a_piped_result_is_counted_if_its_process_is_gone() {
    runtime().block_on(async |runtime| {
        let mut letters = runtime.dead_letters(1);
        let gate = Arc::new(Semaphore::new(0));
        let pipes = runtime.spawn(Pipes(gate.clone())).unwrap();
        eventually(async || !pipes.is_alive()).await;
        gate.add_permits(1);
        let letter = letters.recv().await.unwrap();
        assert_eq!((letter.reason, letter.messages), (DropReason::NoProcess, 1));
        assert_eq!(dropped::<Pipes>(runtime), BTreeMap::from([(DropReason::NoProcess, 1)]));
    });
}

#[test]
fn messages_that_an_async_process_has_passed_over_are_counted() {
    for overflow in [None, Some(Overflow::DropOldest)] {
        runtime().block_on(async |runtime| {
            let bound = overflow.map(|overflow| MailboxBound::new(10, overflow));
            let waits = bounded_by(runtime, bound).spawn_async(|mut inbox| async move {
                inbox.recv_match(|job| matches!(job, Job::Stop)).await;
            });
            let waits = waits.unwrap();
            // Taken out of the mailbox one after the other, and passed over.
            for _ in 0..10 {
                waits.call(Job::Nothing).await.unwrap();
            }
            let mut expected = BTreeMap::from([(DropReason::Exit, 10)]);
            if let Some(overflow) = overflow {
                waits.send(Job::Nothing).unwrap();
                waits.call(Job::Nothing).await.unwrap();
                expected.insert(DropReason::Overflow(overflow), 2);
            }
            end(waits.pid(), || waits.send(Job::Stop).unwrap()).await;
            if overflow.is_some() {
                // `Stop` makes room, too.
                *expected.get_mut(&DropReason::Overflow(Overflow::DropOldest)).unwrap() += 1;
                *expected.get_mut(&DropReason::Exit).unwrap() -= 1;
            }
            assert_eq!(dropped::<throng::AsyncProcess<Job>>(runtime), expected, "{overflow:?}");
        });
    }
}

#[test]
fn a_broadcast_over_the_budget_is_counted() {
    let runtime = Runtime::builder().workers(1).mailbox_budget(1).start().unwrap();
    runtime.block_on(async |runtime| {
        let (clerk, _gate) = busy(runtime, None).await;
        let group = runtime.group::<Address<Clerk>>("clerks");
        group.join(clerk);
        while clerk.send(Job::Nothing).is_ok() {}
        assert_eq!(group.broadcast(Job::Nothing), 0);
        assert_eq!(dropped::<Clerk>(runtime), BTreeMap::from([(DropReason::Budget, 1)]));
        clerk.kill();
    });
}

/// A layer that refuses every message.
struct Refuses;
impl Layer<Clerk> for Refuses {
    fn begin(_: &mut Context<Clerk>) -> Result<(), ExitReason> {
        Err(ExitReason::other("refused"))
    }

    fn end(_: &mut Clerk, _: &mut Context<Clerk>, _: Result<(), &ExitReason>, _: bool) -> TurnEnd {
        TurnEnd::Over
    }
}

#[test]
fn messages_that_a_layer_refuses_are_counted() {
    runtime().block_on(async |runtime| {
        let clerk = runtime
            .spawn_layered(Clerk(Arc::new(Semaphore::new(0))), Refuses, Job::Nothing)
            .unwrap();
        match clerk.send(Job::Nothing) {
            Ok(()) => {
                eventually(async || !runtime.metrics().dropped.is_empty()).await;
                // Without the first turn, which nobody has sent.
                assert_eq!(dropped::<Clerk>(runtime), BTreeMap::from([(DropReason::Refused, 1)]));
            }
            // It has exited before.
            Err(_) => assert_eq!(runtime.metrics().dropped, []),
        }
    });
}

#[test]
fn the_messages_of_a_pool_and_of_a_shutdown_are_counted() {
    let runtime = runtime();
    let handle = runtime.handle().clone();
    runtime.block_on(async |runtime| {
        let gate = Arc::new(Semaphore::new(0));
        let (pool, supervisor) = Pool::new(1, 10, || {
            let gate = gate.clone();
            ChildSpec::new(move || Clerk(gate.clone()))
        });
        supervisor.start_async(runtime).await.unwrap();
        for job in [Job::Hold, Job::Panic, Job::Nothing, Job::Nothing] {
            pool.send(job).unwrap();
        }
        gate.add_permits(1);
        eventually(async || pool.is_empty() && !runtime.metrics().dropped.is_empty()).await;
        assert_eq!(dropped::<Clerk>(runtime), BTreeMap::from([(DropReason::Panic, 2)]));
        let (clerk, _gate) = busy(runtime, None).await;
        for _ in 0..5 {
            clerk.send(Job::Nothing).unwrap();
        }
    });
    runtime.shutdown(Duration::ZERO);
    let expected = BTreeMap::from([(DropReason::Panic, 2), (DropReason::Exit, 5)]);
    assert_eq!(dropped::<Clerk>(&handle), expected);
}

#[test]
fn a_full_subscription_counts_what_it_misses_and_ends_with_the_runtime() {
    let runtime = runtime();
    let (mut letters, ended) = runtime.block_on(async |runtime| {
        let mut letters = runtime.dead_letters(2);
        let unread = runtime.dead_letters(0);
        drop(runtime.dead_letters(1));
        for _ in 0..5 {
            let clerk = gone(runtime).await;
            let _timer = runtime.send_after(clerk, Duration::ZERO, Job::Nothing);
        }
        assert_eq!((letters.missed(), unread.missed()), (3, 4));
        assert_eq!(letters.recv().await.map(|letter| letter.messages), Some(1));
        (letters, unread)
    });
    drop((runtime, ended));
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio.block_on(async {
        assert!(letters.recv().await.is_some());
        assert!(letters.recv().await.is_none());
    });
}

#[test]
fn kinds_and_the_text_for_prometheus_have_the_numbers() {
    let runtime = Runtime::builder().workers(1).kind_metrics(true).start().unwrap();
    runtime.block_on(async |runtime| {
        let (clerk, _gate) = busy(runtime, None).await;
        clerk.send(Job::Nothing).unwrap();
        end(clerk.pid(), || clerk.kill()).await;
        let metrics = runtime.metrics();
        let kind = metrics.kinds.iter().find(|kind| kind.process == type_name::<Clerk>()).unwrap();
        assert_eq!(kind.dropped, 1);
        let text = metrics.to_prometheus();
        assert!(text.contains("\nthrong_dropped_messages_total{reason=\"exit\"} 1\n"), "{text}");
        assert!(text.contains("\nthrong_dropped_messages_total{reason=\"panic\"} 0\n"), "{text}");
    });
}
