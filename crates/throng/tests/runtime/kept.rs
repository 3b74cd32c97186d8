//! Messages that a selective receive passes over: they count as queued.

use crate::{
    Add, Counter, bounded_by, eventually, in_turn, poll_once, runtime, scaled, spawn_async,
};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use throng::prelude::*;
use throng::{AsyncProcess, MailboxBound, Overflow, SortBy};
use tokio::sync::{mpsc, oneshot};

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a message that takes much of the budget")]
enum Event {
    Number(u64),
    Big(#[expect(dead_code, reason = "only its size counts")] [u8; 1000]),
    Down(#[expect(dead_code, reason = "only its coming counts")] Down),
    /// Has the process receive all kept messages, and return their numbers.
    Drain(oneshot::Sender<Vec<u64>>),
}
impl Message for Event {
    type Reply = ();
}
use Event::{Big, Drain, Number};

/// A process that receives a `Drain` selectively, passing all other messages over, in a loop.
struct Picky {
    process: Address<AsyncProcess<Event>>,
    /// Number of messages that the selective receive has examined.
    examined: Arc<AtomicU64>,
    /// Number in the last examined message.
    last: Arc<AtomicU64>,
}

impl Picky {
    fn spawn(runtime: &RuntimeHandle, bound: Option<MailboxBound>) -> Picky {
        let (examined, last) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let examine = {
            let (examined, last) = (examined.clone(), last.clone());
            move |event: &Event| {
                examined.fetch_add(1, Ordering::SeqCst);
                if let Number(number) = event {
                    last.store(*number, Ordering::SeqCst);
                }
                matches!(event, Drain(_))
            }
        };
        let body = |mut inbox: Inbox<Event>| async move {
            loop {
                let drain = inbox.recv_match(&examine).await;
                let mut numbers = Vec::new();
                while let Some(event) = inbox.try_recv() {
                    if let Number(number) = event {
                        numbers.push(number);
                    }
                }
                if let Drain(sender) = drain {
                    let _ = sender.send(numbers);
                }
            }
        };
        let process = bounded_by(runtime, bound).spawn_async(body).unwrap();
        Picky { process, examined, last }
    }

    /// Waits until the process has examined `count` messages.
    async fn has_examined(&self, count: u64) {
        eventually(|| self.examined.load(Ordering::SeqCst) == count).await;
    }

    /// Has the process receive all kept messages, and returns their numbers.
    async fn drain(&self) -> Vec<u64> {
        let (sender, numbers) = oneshot::channel();
        self.process.send(Drain(sender)).unwrap();
        numbers.await.unwrap()
    }
}

/// Returns the length of a process's mailbox, and its size in bytes.
async fn len(runtime: &RuntimeHandle, process: Address<AsyncProcess<Event>>) -> (u64, u64) {
    loop {
        let info = runtime.info(process).await.unwrap();
        // On a busy machine the process may not answer in time, and then its mailbox is unknown.
        if info.state != throng::ProcessState::Running {
            return (info.mailbox_len, info.mailbox_bytes);
        }
    }
}

#[test]
fn messages_that_are_passed_over_are_seen_wherever_queued_ones_are() {
    runtime().block_on(async |runtime| {
        let idle = runtime.spawn(Counter::default()).unwrap();
        let picky = Picky::spawn(runtime, None);
        let process = picky.process;
        assert_eq!(len(runtime, process).await, (0, 0));
        for number in 0..50 {
            process.send(Number(number)).unwrap();
        }
        // A flood from a single turn travels in trains.
        in_turn(runtime, async move {
            (50..100).for_each(|number| process.send(Number(number)).unwrap());
        })
        .await;
        picky.has_examined(100).await;

        let (messages, bytes) = len(runtime, process).await;
        assert_eq!(messages, 100);
        assert!(bytes >= 100 * size_of::<Event>() as u64, "{bytes} bytes");
        eventually(|| runtime.mailbox_bytes() == bytes).await;
        assert_eq!(runtime.metrics().mailbox_bytes, bytes);
        for by in [SortBy::MailboxLen, SortBy::MailboxBytes] {
            let top = runtime.top(2, by).await;
            assert_eq!([top[0].pid, top[1].pid], [process.pid(), idle.pid()]);
            assert_eq!((top[0].mailbox_len, top[0].mailbox_bytes), (100, bytes));
        }

        assert_eq!(picky.drain().await, (0..100).collect::<Vec<_>>());
        assert_eq!(len(runtime, process).await, (0, 0));
        eventually(|| runtime.mailbox_bytes() == 0).await;
    });
}

#[test]
fn kept_messages_are_counted_while_the_process_does_something_else() {
    runtime().block_on(async |runtime| {
        let (held, holds) = oneshot::channel();
        let (process, _) = spawn_async(runtime, |inbox: Inbox<Event>| async move {
            {
                // Kept messages outlive the inbox, like messages in the mailbox.
                let mut inbox = inbox;
                inbox.recv_match(|event| matches!(event, Drain(_))).await;
            }
            held.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        for number in 0..7 {
            process.send(Number(number)).unwrap();
        }
        process.send(Drain(oneshot::channel().0)).unwrap();
        holds.await.unwrap();
        process.send(Number(7)).unwrap();
        assert_eq!(len(runtime, process).await.0, 8);
        process.kill();
        process.pid().exited().await;
        eventually(|| runtime.mailbox_bytes() == 0).await;
    });
}

#[test]
fn the_budget_of_all_mailboxes_holds_for_messages_that_are_passed_over() {
    const BUDGET: u64 = if cfg!(miri) { 16 * 1024 } else { 1024 * 1024 };
    let runtime = Runtime::builder().workers(2).mailbox_budget(BUDGET).start().unwrap();
    runtime.block_on(async |runtime| {
        let counter = runtime.spawn(Counter::default()).unwrap();
        let picky = Picky::spawn(runtime, None);
        let process = picky.process;
        let mut sent = 0;
        while process.send(Big([0; 1000])).is_ok() {
            sent += 1;
            assert!(sent < 100 * BUDGET / 1000, "the budget does not stop the sender");
            picky.has_examined(sent).await;
        }
        assert_eq!(len(runtime, process).await.0, sent);
        assert!(runtime.mailbox_bytes() >= BUDGET);
        assert!(matches!(counter.send(Add(1)), Err(SendError::Overloaded(_))));
        // The exit of the process returns the whole charge.
        process.kill();
        process.pid().exited().await;
        assert_eq!(runtime.mailbox_bytes(), 0);
        eventually(|| counter.send(Add(1)).is_ok()).await;
    });
}

#[test]
fn a_bound_holds_for_messages_that_are_passed_over_and_rejects_further_ones() {
    runtime().block_on(async |runtime| {
        let picky = Picky::spawn(runtime, Some(MailboxBound::new(10, Overflow::Reject)));
        let process = picky.process;
        let mut taken = 0;
        for number in 0..scaled(10_000) {
            match process.send(Number(number)) {
                Ok(()) => taken += 1,
                Err(SendError::Overloaded(Number(_))) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(taken, 10);
        picky.has_examined(10).await;
        assert_eq!(len(runtime, process).await.0, 10);
        // The wanted message is rejected too.
        let wanted = Drain(oneshot::channel().0);
        assert!(matches!(process.send(wanted), Err(SendError::Overloaded(Drain(_)))));
    });
}

#[test]
fn a_bound_holds_for_messages_that_are_passed_over_and_drops_the_newest() {
    runtime().block_on(async |runtime| {
        let picky = Picky::spawn(runtime, Some(MailboxBound::new(10, Overflow::DropNewest)));
        let process = picky.process;
        for number in 0..scaled(10_000) {
            process.send(Number(number)).unwrap();
        }
        picky.has_examined(10).await;
        assert_eq!(len(runtime, process).await.0, 10);
        let (sender, numbers) = oneshot::channel();
        process.send(Drain(sender)).unwrap();
        numbers.await.unwrap_err();
        assert_eq!(len(runtime, process).await.0, 10);
    });
}

#[test]
fn a_kept_message_is_dropped_as_the_oldest_so_that_the_wanted_one_gets_in() {
    runtime().block_on(async |runtime| {
        let picky = Picky::spawn(runtime, Some(MailboxBound::new(10, Overflow::DropOldest)));
        let process = picky.process;
        for round in 0..3 {
            let first = round * 10_000;
            let end = first + scaled(10_000);
            for number in first..end {
                process.send(Number(number)).unwrap();
            }
            eventually(|| picky.last.load(Ordering::SeqCst) == end - 1).await;
            assert_eq!(len(runtime, process).await.0, 10);
            // The `Drain` itself displaces another message.
            assert_eq!(picky.drain().await, (end - 9..end).collect::<Vec<_>>());
        }
        assert_eq!(len(runtime, process).await.0, 0);
        eventually(|| runtime.mailbox_bytes() == 0).await;
    });
}

#[test]
fn a_kept_message_that_is_dropped_for_a_newer_one_is_not_received() {
    runtime().block_on(async |runtime| {
        let (go_on, goes_on) = oneshot::channel();
        let (has_kept, keeps) = oneshot::channel();
        let (sender, numbers) = oneshot::channel();
        let bound = MailboxBound::new(4, Overflow::DropOldest);
        let watched = runtime.spawn(Counter::default()).unwrap();
        let body = move |mut inbox: Inbox<Event>| async move {
            inbox.on_down(Event::Down);
            inbox.context(|cx| cx.monitor(watched));
            inbox.recv_match(|event| matches!(event, Drain(_))).await;
            has_kept.send(()).unwrap();
            goes_on.await.unwrap();
            let mut numbers = Vec::new();
            while let Some(event) = inbox.try_recv() {
                numbers.push(if let Number(number) = event { number } else { u64::MAX });
            }
            sender.send(numbers).unwrap();
        };
        let process = runtime.spawner().mailbox(bound).spawn_async(body).unwrap();
        // The down of another process counts against no bound: it is passed over, and kept.
        process.call(Number(0)).await.unwrap();
        watched.stop();
        watched.pid().exited().await;
        for number in 1..3 {
            process.call(Number(number)).await.unwrap();
        }
        process.send(Drain(oneshot::channel().0)).unwrap();
        keeps.await.unwrap();
        assert_eq!(len(runtime, process).await.0, 4, "three numbers and the down are expected");
        for number in 3..6 {
            process.send(Number(number)).unwrap();
        }
        assert_eq!(len(runtime, process).await.0, 5, "four numbers and the down are expected");
        go_on.send(()).unwrap();
        assert_eq!(numbers.await.unwrap(), [u64::MAX, 2, 3, 4, 5]);
        process.pid().exited().await;
        eventually(|| runtime.mailbox_bytes() == 0).await;
    });
}

#[test]
fn senders_wait_for_the_place_of_a_message_that_is_passed_over() {
    runtime().block_on(async |runtime| {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let (go_on, mut goes_on) = mpsc::unbounded_channel::<()>();
        let bound = MailboxBound::new(2, Overflow::Wait);
        let body = move |mut inbox: Inbox<Event>| async move {
            // The wanted message finds no room, so the receive times out.
            let wanted = |event: &Event| matches!(event, Drain(_));
            let late = inbox.recv_match_timeout(wanted, Duration::from_millis(30)).await;
            sender.send(late.map_or(u64::MAX, |_| 0)).unwrap();
            loop {
                goes_on.recv().await.unwrap();
                match inbox.recv().await {
                    Number(number) => sender.send(number).unwrap(),
                    _ => break,
                }
            }
        };
        let process = runtime.spawner().mailbox(bound).spawn_async(body).unwrap();
        for number in 0..2 {
            process.deliver(Number(number)).await.unwrap();
        }
        let mut third = pin!(process.deliver(Number(2)));
        let mut wanted = pin!(process.deliver(Drain(oneshot::channel().0)));
        assert!(poll_once(&mut third).is_pending());
        assert!(poll_once(&mut wanted).is_pending());
        assert_eq!(receiver.recv().await, Some(u64::MAX));
        assert!(poll_once(&mut third).is_pending());
        // Each received message makes room for a waiting sender, in order.
        go_on.send(()).unwrap();
        assert_eq!(receiver.recv().await, Some(0));
        third.await.unwrap();
        assert!(poll_once(&mut wanted).is_pending());
        go_on.send(()).unwrap();
        wanted.await.unwrap();
        for number in 1..3 {
            go_on.send(()).unwrap();
            assert_eq!(receiver.recv().await, Some(number));
        }
        process.pid().exited().await;
        eventually(|| runtime.mailbox_bytes() == 0).await;
    });
}

#[test]
fn a_sender_that_waits_for_room_gets_its_message_back_if_the_process_exits() {
    runtime().block_on(async |runtime| {
        let picky = Picky::spawn(runtime, Some(MailboxBound::new(1, Overflow::Wait)));
        let process = picky.process;
        process.deliver(Number(0)).await.unwrap();
        picky.has_examined(1).await;
        let mut second = pin!(process.deliver(Number(1)));
        assert!(poll_once(&mut second).is_pending());
        process.kill();
        assert!(matches!(second.await, Err(SendError::NoProcess(Number(1)))));
        eventually(|| runtime.mailbox_bytes() == 0).await;
    });
}

/// Counts its drops, and panics in each.
struct Bomb(Arc<AtomicU64>);
impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    }
}
impl Message for Bomb {
    type Reply = ();
}

#[test]
fn messages_whose_drop_panics_are_all_dropped_with_the_process_that_keeps_them() {
    runtime().block_on(async |runtime| {
        let drops = Arc::new(AtomicU64::new(0));
        let (process, _) = spawn_async(runtime, |mut inbox: Inbox<Bomb>| async move {
            inbox.recv_match(|_| false).await;
        });
        for _ in 0..3 {
            process.call(Bomb(drops.clone())).await.unwrap();
        }
        let mut exited = pin!(process.pid().exited());
        assert!(poll_once(&mut exited).is_pending());
        process.exit(ExitReason::other("enough"));
        assert_eq!(exited.await, ExitReason::other("enough"));
        assert_eq!(drops.load(Ordering::SeqCst), 3);
        assert_eq!(runtime.mailbox_bytes(), 0);
    });
}

#[test]
fn a_condition_that_panics_loses_no_message() {
    runtime().block_on(async |runtime| {
        let (process, numbers) = spawn_async(runtime, |mut inbox: Inbox<Event>| async move {
            {
                let mut receive = pin!(inbox.recv_match(|event| match event {
                    Number(1) => panic!("on purpose"),
                    _ => false,
                }));
                poll_fn(|task| {
                    let receive = receive.as_mut();
                    match catch_unwind(AssertUnwindSafe(|| receive.poll(task).is_pending())) {
                        Ok(_) => Poll::Pending,
                        Err(_) => Poll::Ready(()),
                    }
                })
                .await;
            }
            let numbers = [inbox.recv().await, inbox.recv().await, inbox.recv().await];
            numbers.map(|event| if let Number(n) = event { n } else { 99 })
        });
        for number in 0..3 {
            process.send(Number(number)).unwrap();
        }
        assert_eq!(numbers.await.unwrap(), [0, 1, 2]);
    });
}
