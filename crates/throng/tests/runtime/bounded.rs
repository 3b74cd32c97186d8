//! Bounded mailboxes, and the budget of all mailboxes together.

use crate::{
    Actor, Await, DropPanics, OVERFLOWS, PATIENCE, bounded_by, eventually, in_turn, poll_once,
    quiet, runtime, scaled, until,
};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;
use throng::prelude::*;
use throng::{MailboxBound, Overflow};
use tokio::sync::Notify;

/// Records the messages it receives. A [`Hold`] keeps it in a single turn until its gate opens.
struct Scribe {
    heard: Arc<Mutex<Vec<u64>>>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    entered: Notify,
    open: Notify,
}

impl Gate {
    async fn pass(&self) {
        self.entered.notify_one();
        self.open.notified().await;
    }
}

#[process]
impl Scribe {
    #[message]
    fn fail(&mut self) {
        panic!("on purpose");
    }
}

struct Hold;
impl Message for Hold {
    type Reply = ();
}
impl Handle<Hold> for Scribe {
    async fn handle(&mut self, _: Hold, _: &mut Context<Self>) {
        self.gate.pass().await;
    }
}

#[derive(PartialEq, Debug)]
struct Note(u64);
impl Message for Note {
    type Reply = usize;
}
impl Handle<Note> for Scribe {
    async fn handle(&mut self, Note(number): Note, _: &mut Context<Self>) -> usize {
        let mut heard = self.heard.lock().unwrap();
        heard.push(number);
        heard.len()
    }
}

/// A scribe in the turn of a [`Hold`], with its record and its gate.
struct Held {
    scribe: Address<Scribe>,
    heard: Arc<Mutex<Vec<u64>>>,
    gate: Arc<Gate>,
}

impl Held {
    async fn spawn(runtime: &RuntimeHandle, bound: Option<MailboxBound>) -> Held {
        let (heard, gate) = <(Arc<Mutex<Vec<u64>>>, Arc<Gate>)>::default();
        let process = Scribe { heard: heard.clone(), gate: gate.clone() };
        let scribe = bounded_by(runtime, bound).spawn(process).unwrap();
        scribe.send(Hold).unwrap();
        gate.entered.notified().await;
        Held { scribe, heard, gate }
    }

    async fn heard(&self, count: usize) -> Vec<u64> {
        loop {
            if let heard = self.heard.lock().unwrap()
                && heard.len() >= count
            {
                return heard.clone();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Opens the gate, stops the scribe, and returns the messages it has handled.
    async fn read(&self) -> Vec<u64> {
        self.gate.open.notify_one();
        self.scribe.stop();
        eventually(|| !self.scribe.is_alive()).await;
        self.heard.lock().unwrap().clone()
    }
}

fn bound(capacity: usize, overflow: Overflow) -> Option<MailboxBound> {
    Some(MailboxBound::new(capacity, overflow))
}

/// Polls a future once, with a waker that counts in `wakes`.
fn poll<F: Future>(future: Pin<&mut F>, wakes: &Arc<Wakes>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(&Waker::from(wakes.clone())))
}

#[derive(Default)]
struct Wakes(AtomicU64);
impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn overloaded<R: std::fmt::Debug>(outcome: Result<R, CallError<Note>>) -> u64 {
    match outcome {
        Err(CallError::Overloaded(Note(number))) => number,
        other => panic!("not overloaded: {other:?}"),
    }
}

#[test]
fn a_full_mailbox_that_rejects_hands_messages_back_and_accepts_again_when_there_is_room() {
    runtime().block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(3, Overflow::Reject)).await;
        for number in 0..3 {
            held.scribe.send(Note(number)).unwrap();
        }
        for _ in 0..2 {
            let Err(SendError::Overloaded(Note(7))) = held.scribe.send(Note(7)) else {
                panic!("the message was accepted");
            };
            let Err(SendError::Overloaded(Note(8))) = held.scribe.deliver(Note(8)).await else {
                panic!("the message was accepted");
            };
            assert_eq!(overloaded(held.scribe.call(Note(9)).await), 9);
        }
        held.gate.open.notify_one();
        held.heard(3).await;
        assert_eq!(held.scribe.call(Note(3)).await.unwrap(), 4);
        assert_eq!(held.read().await, [0, 1, 2, 3]);
        assert!(matches!(held.scribe.send(Note(1)), Err(SendError::NoProcess(Note(1)))));
        assert!(matches!(held.scribe.deliver(Note(2)).await, Err(SendError::NoProcess(Note(2)))));
        assert!(matches!(held.scribe.call(Note(3)).await, Err(CallError::NoProcess(Note(3)))));
    });
}

#[test]
fn a_full_mailbox_drops_the_newest_but_no_call_silently() {
    runtime().block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(3, Overflow::DropNewest)).await;
        for number in 0..6 {
            held.scribe.send(Note(number)).unwrap();
        }
        held.scribe.deliver(Note(6)).await.unwrap();
        assert_eq!(overloaded(held.scribe.call(Note(7)).await), 7);
        assert_eq!(held.read().await, [0, 1, 2]);
    });
}

#[test]
fn a_full_mailbox_drops_the_oldest_also_during_a_turn_and_fails_its_call() {
    runtime().block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(3, Overflow::DropOldest)).await;
        let wakes = Arc::new(Wakes::default());
        held.scribe.send(Note(0)).unwrap();
        let mut called = pin!(held.scribe.call(Note(1)));
        assert!(poll(called.as_mut(), &wakes).is_pending());
        held.scribe.send(Note(2)).unwrap();
        held.scribe.send(Note(3)).unwrap();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "the call was dropped before an older cast");
        held.scribe.deliver(Note(4)).await.unwrap();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        assert_eq!(overloaded(called.await), 1);
        let mut last = pin!(held.scribe.call(Note(5)));
        assert!(poll(last.as_mut(), &wakes).is_pending());
        held.gate.open.notify_one();
        assert_eq!(last.await.unwrap(), 3);
        assert_eq!(held.read().await, [3, 4, 5]);
    });
}

#[test]
fn waiting_senders_are_served_in_order_and_cancelled_ones_are_skipped() {
    runtime().block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(2, Overflow::Wait)).await;
        held.scribe.deliver(Note(0)).await.unwrap();
        held.scribe.send(Note(1)).unwrap();
        assert!(matches!(held.scribe.send(Note(99)), Err(SendError::Overloaded(Note(99)))));
        let count = scaled(2_000);
        let mut queue: Vec<_> =
            (2..count).map(|number| Some(Box::pin(held.scribe.deliver(Note(number))))).collect();
        for delivery in queue.iter_mut().flatten() {
            assert!(poll_once(delivery).is_pending());
        }
        // A call waits in the same queue.
        let mut called = pin!(held.scribe.call(Note(count)));
        assert!(poll_once(&mut called).is_pending());
        for cancelled in queue.iter_mut().step_by(3) {
            *cancelled = None;
        }
        assert!(poll_once(queue[1].as_mut().unwrap()).is_pending());
        held.gate.open.notify_one();
        for delivery in queue.iter_mut().flatten() {
            delivery.await.unwrap();
        }
        called.await.unwrap();
        let mut expected: Vec<_> = (0..=count).collect();
        expected.retain(|number| !(2..count).contains(number) || (number - 2) % 3 != 0);
        assert_eq!(held.read().await, expected);
    });
}

#[test]
fn a_cancelled_sender_whose_waker_panics_leaves_nothing_behind() {
    runtime().block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(1, Overflow::Wait)).await;
        held.scribe.send(Note(0)).unwrap();
        let before = runtime.mailbox_bytes();
        let mut waits = held.scribe.deliver(Note(1));
        let waker = Waker::from(Arc::new(DropPanics));
        assert!(Pin::new(&mut waits).poll(&mut TaskContext::from_waker(&waker)).is_pending());
        drop(waker);
        // Drops the last clone of the waker.
        drop(waits);
        assert_eq!(runtime.mailbox_bytes(), before);
        assert_eq!(held.read().await, [0]);
    });
}

#[test]
fn a_call_waits_for_room_within_its_deadline_and_is_then_not_enqueued() {
    runtime().block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(1, Overflow::Wait)).await;
        held.scribe.send(Note(0)).unwrap();
        let hasty = held.scribe.call(Note(1)).within(Duration::from_millis(5));
        assert!(matches!(hasty.await, Err(CallError::TimedOut { enqueued: false })));
        let mut dropped = Box::pin(held.scribe.call(Note(2)));
        assert!(poll_once(&mut dropped).is_pending());
        drop(dropped);
        let patient = tokio::spawn(held.scribe.call(Note(3)).within(Duration::from_secs(60)));
        tokio::task::yield_now().await;
        held.gate.open.notify_one();
        assert!(patient.await.unwrap().is_ok());
        assert_eq!(held.read().await, [0, 3]);
    });
}

#[test]
fn an_exit_rejects_waiting_senders_and_fails_queued_calls() {
    runtime().block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(2, Overflow::Wait)).await;
        let mut first = pin!(held.scribe.fail());
        let mut second = pin!(held.scribe.call(Note(1)));
        let mut third = pin!(held.scribe.deliver(Note(2)));
        let mut fourth = pin!(held.scribe.call(Note(3)));
        let mut fifth = pin!(held.scribe.deliver(Note(4)));
        assert!(poll_once(&mut first).is_pending());
        assert!(poll_once(&mut second).is_pending());
        assert!(poll_once(&mut third).is_pending());
        assert!(poll_once(&mut fourth).is_pending());
        assert!(poll_once(&mut fifth).is_pending());
        held.gate.open.notify_one();
        assert!(matches!(first.await, Err(CallError::Died(ExitReason::Panicked(_)))));
        assert!(matches!(second.await, Err(CallError::Died(ExitReason::Panicked(_)))));
        // The failing call had left the mailbox, so there was room for a message.
        assert!(third.await.is_ok());
        assert!(matches!(fourth.await, Err(CallError::NoProcess(Note(3)))));
        assert!(matches!(fifth.await, Err(SendError::NoProcess(Note(4)))));
        assert!(held.heard.lock().unwrap().is_empty());
    });
}

#[test]
fn a_request_to_stop_finds_room_and_keeps_its_place() {
    for overflow in OVERFLOWS {
        runtime().block_on(async |runtime| {
            let held = Held::spawn(runtime, bound(4, overflow)).await;
            for number in 0..2 {
                held.scribe.send(Note(number)).unwrap();
            }
            assert!(held.scribe.stop());
            // The stop does not count against the bound, so two more messages fit.
            for number in 2..4 {
                held.scribe.send(Note(number)).unwrap();
            }
            assert!(held.scribe.stop(), "a second stop did not fit the full mailbox");
            assert_eq!(held.read().await, [0, 1]);
        });
    }
}

#[test]
fn dropping_the_oldest_message_never_drops_a_stop() {
    runtime().block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(2, Overflow::DropOldest)).await;
        held.scribe.send(Note(0)).unwrap();
        assert!(held.scribe.stop());
        for number in 1..10 {
            held.scribe.send(Note(number)).unwrap();
        }
        // The message before the stop was dropped, but not the stop.
        held.gate.open.notify_one();
        eventually(|| !held.scribe.is_alive()).await;
        assert!(held.heard.lock().unwrap().is_empty());
    });
}

#[test]
fn stale_addresses_of_bounded_processes_reach_no_process() {
    let runtime = runtime();
    let mut old: Vec<Address<Scribe>> = Vec::new();
    let spawn = |bound: Option<MailboxBound>| {
        let process = Scribe { heard: Arc::default(), gate: Arc::default() };
        bounded_by(&runtime, bound).spawn(process).unwrap()
    };
    runtime.block_on(async |runtime| {
        for round in 0..scaled(300) {
            // The kinds of mailbox alternate, so that slots are reused for another kind.
            let kinds = [None, bound(1, Overflow::Wait), bound(1, Overflow::DropOldest)];
            let born: Vec<_> = (0..3)
                .map(|number| spawn(kinds[((round + number) % 3 * (round % 2)) as usize]))
                .collect();
            for stale in old.iter().rev().take(20) {
                assert!(!stale.is_alive());
                assert!(matches!(stale.send(Note(666)), Err(SendError::NoProcess(_))));
                assert!(matches!(stale.deliver(Note(666)).await, Err(SendError::NoProcess(_))));
                assert!(!stale.stop());
            }
            for scribe in &born {
                assert!(!old.contains(scribe));
                assert_eq!(
                    scribe.call(Note(1)).await.unwrap(),
                    1,
                    "this is the first message of the process"
                );
                scribe.stop();
            }
            eventually(|| runtime.process_count() == 0).await;
            old.extend(born);
        }
    });
}

#[test]
fn many_senders_keep_their_order_and_lose_only_what_the_policy_allows() {
    for overflow in OVERFLOWS {
        let runtime = runtime();
        let (senders, each) = (8, scaled(3_000));
        let (refused, heard) = runtime.block_on(async |runtime| {
            let heard: Arc<Mutex<Vec<u64>>> = Arc::default();
            let process = Scribe { heard: heard.clone(), gate: Arc::default() };
            let bound = MailboxBound::new(16, overflow);
            let scribe = runtime.spawner().mailbox(bound).spawn(process).unwrap();
            let senders: Vec<_> = (0..senders)
                .map(|sender| {
                    let runtime = runtime.clone();
                    tokio::spawn(async move { in_turn(&runtime, post(scribe, sender, each)).await })
                })
                .collect();
            let mut refused = 0;
            for sender in senders {
                refused += sender.await.unwrap();
            }
            scribe.stop();
            eventually(|| !scribe.is_alive()).await;
            let heard = heard.lock().unwrap().clone();
            (refused, heard)
        });
        let sent = senders * each;
        match overflow {
            Overflow::Wait => assert_eq!((refused, heard.len() as u64), (0, sent)),
            Overflow::Reject => assert_eq!(heard.len() as u64 + refused, sent),
            _ => assert!(refused == 0 && heard.len() as u64 <= sent),
        }
        let mut last = vec![None; senders as usize];
        for number in heard {
            let (sender, number) = ((number >> 32) as usize, number & 0xFFFF_FFFF);
            assert!(last[sender] < Some(number), "{overflow:?}: out of order or doubled");
            last[sender] = Some(number);
        }
        if overflow == Overflow::DropOldest {
            assert!(last.contains(&Some(each - 1)), "the very last message was dropped");
        }
    }
}

/// Delivers numbers in order, and returns the number of messages handed back.
async fn post(to: Address<Scribe>, sender: u64, count: u64) -> u64 {
    let mut refused = 0;
    for number in 0..count {
        refused += u64::from(to.deliver(Note(sender << 32 | number)).await.is_err());
    }
    refused
}

#[test]
fn an_idle_exit_of_a_bounded_process_loses_nothing() {
    struct Fleeting(Arc<AtomicU64>);
    #[process]
    impl Fleeting {
        #[message]
        fn once(&mut self, cx: &mut Context<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            cx.stop_if_idle();
        }
    }
    let runtime = runtime();
    let handled = Arc::new(AtomicU64::new(0));
    let rounds = scaled(2_000);
    runtime.block_on(async |runtime| {
        for _ in 0..rounds {
            let mut handed_over = 0;
            while handed_over < 5 {
                let bound = MailboxBound::new(2, Overflow::Wait);
                let fleeting =
                    runtime.spawner().mailbox(bound).spawn(Fleeting(handled.clone())).unwrap();
                while handed_over < 5 && fleeting.deliver(Once).await.is_ok() {
                    handed_over += 1;
                }
            }
        }
        eventually(|| handled.load(Ordering::SeqCst) >= rounds * 5).await;
    });
    drop(runtime);
    assert_eq!(handled.load(Ordering::SeqCst), rounds * 5);
}

#[test]
fn a_shutdown_does_not_wait_for_full_mailboxes() {
    let runtime = runtime();
    let held = runtime.block_on(async |runtime| {
        let held = Held::spawn(runtime, bound(1, Overflow::Wait)).await;
        held.scribe.send(Note(0)).unwrap();
        // A process waits for room, and so does a future outside of all processes, below.
        runtime.spawn(Actor).unwrap().send(Await(post(held.scribe, 0, 1))).unwrap();
        held
    });
    let mut waiting = pin!(held.scribe.deliver(Note(1)));
    assert!(poll_once(&mut waiting).is_pending());
    runtime.shutdown(Duration::from_millis(20));
    let mut outcome = Poll::Pending;
    until(|| {
        outcome = poll_once(&mut waiting);
        outcome.is_ready()
    });
    assert!(matches!(outcome, Poll::Ready(Err(SendError::NoProcess(Note(1))))));
}

/// Event at a [`Witness`].
#[derive(PartialEq, Debug)]
enum Seen {
    Note(u64),
    Down,
    Exit(ExitReason),
}

/// Monitors a process and traps exits. A [`Hold`] keeps it in a single turn until its gate opens.
struct Witness {
    seen: Arc<Mutex<Vec<Seen>>>,
    gate: Arc<Gate>,
}
#[process]
impl Witness {
    #[hook]
    fn down(&mut self) {
        self.seen.lock().unwrap().push(Seen::Down);
    }
    #[hook]
    fn exit(&mut self, exit: throng::Exit) {
        self.seen.lock().unwrap().push(Seen::Exit(exit.reason));
    }
    #[message]
    fn watch(&mut self, whom: Address<Accomplice>, cx: &mut Context<Self>) {
        cx.trap_exits(true);
        cx.monitor(whom);
    }
}
impl Handle<Note> for Witness {
    async fn handle(&mut self, Note(number): Note, _: &mut Context<Self>) -> usize {
        self.seen.lock().unwrap().push(Seen::Note(number));
        0
    }
}
impl Handle<Hold> for Witness {
    async fn handle(&mut self, _: Hold, _: &mut Context<Self>) {
        self.gate.pass().await;
    }
}

/// Sends, signals, sends again, and exits.
struct Accomplice(Address<Witness>);
#[process]
impl Accomplice {
    #[message]
    fn act(&mut self, cx: &mut Context<Self>) {
        self.0.send(Note(1)).unwrap();
        cx.exit(self.0, ExitReason::other("first"));
        self.0.send(Note(2)).unwrap();
        cx.exit(self.0, ExitReason::other("second"));
        assert!(matches!(self.0.send(Note(3)), Err(SendError::Overloaded(_))));
        cx.stop(ExitReason::Normal);
    }
}

#[test]
fn exit_signals_and_downs_reach_a_full_mailbox_in_order() {
    runtime().block_on(async |runtime| {
        let (seen, gate) = <(Arc<Mutex<Vec<Seen>>>, Arc<Gate>)>::default();
        let bound = MailboxBound::new(2, Overflow::Reject);
        let witness = Witness { seen: seen.clone(), gate: gate.clone() };
        let witness = runtime.spawner().mailbox(bound).spawn(witness).unwrap();
        let accomplice = runtime.spawn(Accomplice(witness)).unwrap();
        witness.watch(accomplice).await.unwrap();
        witness.send(Hold).unwrap();
        gate.entered.notified().await;
        accomplice.act().await.unwrap();
        eventually(|| runtime.process_count() <= 1).await;
        gate.open.notify_one();
        let order = [
            Seen::Note(1),
            Seen::Exit(ExitReason::other("first")),
            Seen::Note(2),
            Seen::Exit(ExitReason::other("second")),
            Seen::Down,
        ];
        eventually(|| seen.lock().unwrap().len() >= order.len()).await;
        assert_eq!(*seen.lock().unwrap(), order);
        witness.kill();
        eventually(|| !witness.is_alive()).await;
    });
}

// --- the budget ---

fn runtime_with_budget(bytes: u64) -> Runtime {
    quiet();
    Runtime::builder().workers(2).mailbox_budget(bytes).start().unwrap()
}

/// Sends until a message is refused, and returns the number of accepted messages.
fn fill(scribe: Address<Scribe>) -> u64 {
    let mut sent = 0;
    loop {
        match scribe.send(Note(sent)) {
            Ok(()) => sent += 1,
            Err(SendError::Overloaded(Note(back))) => {
                assert_eq!(back, sent);
                return sent;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_exhausted_budget_rejects_messages_to_all_processes_and_recovers() {
    let budget = 64 * 1024;
    let runtime = runtime_with_budget(budget);
    runtime.block_on(async |runtime| {
        let held = Held::spawn(runtime, None).await;
        let bystander = Held::spawn(runtime, bound(100, Overflow::DropOldest)).await;
        // Only this thread is awake. It learns of the exhausted budget without a worker's help.
        let sent = fill(held.scribe);
        assert!(runtime.mailbox_bytes() > budget);
        for scribe in [held.scribe, bystander.scribe] {
            assert!(matches!(scribe.send(Note(0)), Err(SendError::Overloaded(_))));
            assert!(matches!(scribe.deliver(Note(0)).await, Err(SendError::Overloaded(_))));
            assert_eq!(overloaded(scribe.call(Note(3)).await), 3);
        }
        assert_eq!(bystander.read().await, [0_u64; 0], "a message was accepted over the budget");
        assert!(matches!(bystander.scribe.send(Note(0)), Err(SendError::NoProcess(_))));
        held.gate.open.notify_one();
        assert_eq!(held.heard(sent as usize).await.len() as u64, sent);
        let mut number = sent;
        while let Err(error) = held.scribe.send(Note(number)) {
            assert!(matches!(error, SendError::Overloaded(_)));
            tokio::task::yield_now().await;
        }
        number += 1;
        assert_eq!(held.read().await, (0..number).collect::<Vec<_>>());
        eventually(|| runtime.process_count() == 0).await;
        assert_eq!(runtime.mailbox_bytes(), 0);
    });
}

/// Sends to a slow consumer as fast as it can, and samples the queued bytes for their peak. Returns the numbers of
/// messages accepted and handed back.
async fn flood(runtime: RuntimeHandle, to: Address<Slow>, most: Arc<AtomicU64>) -> (u64, u64) {
    let (mut taken, mut refused) = (0, 0);
    for number in 0..scaled(500_000) {
        match to.send_load(number) {
            Ok(()) => taken += 1,
            Err(SendError::Overloaded(Load { number: back })) => {
                assert_eq!(back, number);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        if number % 1024 == 0 {
            most.fetch_max(runtime.mailbox_bytes(), Ordering::Relaxed);
        }
    }
    (taken, refused)
}

struct Slow(u64);
#[process]
impl Slow {
    #[message]
    fn load(&mut self, number: u64) -> u64 {
        for spin in 0..100 {
            std::hint::black_box(number + spin);
        }
        self.0 += 1;
        self.0
    }
}

#[test]
fn a_flood_to_a_slow_consumer_stays_within_the_budget() {
    const FLOODERS: u64 = 4;
    let budget = 1 << 20;
    let runtime = runtime_with_budget(budget);
    runtime.block_on(async |runtime| {
        let slow = runtime.spawn(Slow(0)).unwrap();
        let most = Arc::new(AtomicU64::new(0));
        let floods = [(); FLOODERS as usize].map(|()| {
            let (runtime, most) = (runtime.clone(), most.clone());
            tokio::spawn(async move { in_turn(&runtime, flood(runtime.clone(), slow, most)).await })
        });
        let (mut taken, mut refused) = (0, 0);
        for flood in floods {
            let flood = flood.await.unwrap();
            taken += flood.0;
            refused += flood.1;
        }
        assert_eq!(taken + refused, FLOODERS * scaled(500_000));
        assert!(cfg!(miri) || refused > 0, "the budget was never reached");
        // Each sender checks the budget every 256 messages, each of at most a block.
        let slack = FLOODERS * 256 * 1024;
        let most = most.load(Ordering::Relaxed);
        assert!(most <= budget + slack, "{most} bytes were queued");
        let handled = loop {
            match slow.load(0).within(PATIENCE).await {
                Err(CallError::Overloaded(_)) => tokio::task::yield_now().await,
                handled => break handled.unwrap(),
            }
        };
        assert_eq!(handled, taken + 1);
        assert_eq!(runtime.mailbox_bytes(), 0);
    });
}

#[test]
fn messages_between_runtimes_are_charged_to_the_receivers_runtime() {
    let (here, there) = (runtime(), runtime());
    let counted = here.block_on(async |_| {
        let held = Held::spawn(&there, None).await;
        assert_eq!(in_turn(&here, post(held.scribe, 0, 100)).await, 0);
        let counted = (here.mailbox_bytes(), there.mailbox_bytes());
        assert_eq!(held.read().await.len(), 100);
        counted
    });
    assert_eq!(counted.0, 0);
    assert!(counted.1 >= 100 * 64);
    assert_eq!((here.mailbox_bytes(), there.mailbox_bytes()), (0, 0));
}

#[test]
fn every_charge_to_the_budget_is_returned_however_the_message_ends() {
    runtime().block_on(async |runtime| {
        for overflow in OVERFLOWS {
            let held = Held::spawn(runtime, bound(2, overflow)).await;
            let mut waiting: Vec<_> = (0..8).map(|_| Box::pin(held.scribe.call(Note(0)))).collect();
            for call in &mut waiting {
                let _ = poll_once(call);
            }
            let mut delivery = Box::pin(held.scribe.deliver(Note(1)));
            let _ = poll_once(&mut delivery);
            waiting.drain(3..5);
            let flooder = runtime.spawn(Actor).unwrap();
            flooder.send(Await(post(held.scribe, 0, 20))).unwrap();
            held.scribe.send(Note(0)).ok();
            held.gate.open.notify_one();
            held.scribe.stop();
            eventually(|| !held.scribe.is_alive()).await;
            drop(delivery);
            flooder.stop();
        }
        eventually(|| runtime.process_count() == 0).await;
        assert_eq!(runtime.mailbox_bytes(), 0);
    });
}
