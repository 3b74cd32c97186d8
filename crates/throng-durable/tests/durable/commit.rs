//! A reply leaves after the commit; changes that were not committed are gone.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use throng::prelude::*;
use throng_durable::{
    Bytes, CellError, CommitError, Durable, DurableContext, Entity, EntityError, Node, Options,
    Str, Unit,
};

use crate::layouts::Layout;
use crate::{
    BlockedWriter, Counter, CounterClient, HANGS_AFTER, begin, on_node, on_runtime, on_small_store,
    stored, until, with_node,
};

/// The record of an entity's state as it lies in the store, by the documented layout.
pub(super) fn state_record(node: &Node, kind: &str, key: &str) -> Option<Vec<u8>> {
    let snapshot = node.store().snapshot().unwrap();
    Layout::of(node.store(), &snapshot).state(kind, key).map(<[u8]>::to_vec)
}

#[test]
fn the_reply_comes_after_the_commit() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        for count in 1..=100u8 {
            counter.add(1).await.unwrap();
            // The number of the shape, then the count as a varint: one byte up to 127.
            assert_eq!(state_record(node, "counter", "it").unwrap(), [1, count]);
        }
    });
}

#[test]
fn turns_that_change_nothing_write_nothing() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        assert_eq!(counter.get().await.unwrap(), 0);
        assert_eq!(counter.add(0).await.unwrap(), 0);
        assert_eq!(state_record(node, "counter", "it"), None);
        assert_eq!(stored(node, "counter"), 0);
        counter.add(1).await.unwrap();
        let commits = node.stat().unwrap().store.commits;
        for _ in 0..10 {
            counter.get().await.unwrap();
            counter.turns().await.unwrap();
        }
        assert_eq!(node.stat().unwrap().store.commits, commits);
    });
}

#[test]
fn many_turns_share_a_commit() {
    on_node(async |node| {
        let calls: Vec<_> = (0..1000)
            .map(|number| {
                let counter = node.entity::<Counter>(format!("{number}"));
                tokio::spawn(async move { counter.add(number).await })
            })
            .collect();
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), number as u64);
        }
        let stat = node.stat().unwrap().store;
        // One of the entities only added zero.
        assert_eq!((stored(node, "counter"), stat.batches), (999, 999));
        assert!(stat.commits < 500, "{stat:?}");
    });
}

#[test]
fn a_panic_discards_what_was_not_committed() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        for round in 1..=20 {
            assert_eq!(counter.add(1).await.unwrap(), round);
            let panicked = counter.explode().await.unwrap_err();
            assert!(
                matches!(&panicked, EntityError::Panicked(panic) if panic.message() == "boom"),
                "{panicked}"
            );
            // A new activation, with the last committed state.
            assert_eq!(counter.turns().await.unwrap(), 1);
            assert_eq!(counter.get().await.unwrap(), round);
        }
        // Its state, its kind's count, and the records of the layout, the kind and its shape, but not the cell.
        assert_eq!(node.stat().unwrap().store.entries, 5);
    });
}

#[test]
fn messages_behind_a_panic_are_handled_once_by_the_next_activation() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        for round in 1..=20 {
            // The panic comes after a moment, in which all these messages queue up behind it.
            let panicking = tokio::spawn(counter.explode());
            let calls: Vec<_> = (0..50)
                .map(|number| {
                    let counter = counter.clone();
                    tokio::spawn(async move {
                        if number % 5 == 0 {
                            counter.send_add(1).map_err(|unsent| unsent.error)
                        } else {
                            counter.add(1).await.map(drop)
                        }
                    })
                })
                .collect();
            for call in calls {
                call.await.unwrap().unwrap();
            }
            assert!(matches!(panicking.await.unwrap(), Err(EntityError::Panicked(_))));
            // The messages that were only sent may still be on their way.
            until(async || counter.get().await.unwrap() >= round * 50).await;
            assert_eq!(counter.get().await.unwrap(), round * 50);
        }
    });
}

#[test]
fn a_message_behind_a_panic_is_handled_although_its_caller_has_given_up() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        for round in 1..=20 {
            let panicking = begin(counter.explode()).await;
            // The first poll sends the message.
            let mut given_up = Box::pin(counter.add(1));
            let _ =
                std::future::poll_fn(|cx| std::task::Poll::Ready(given_up.as_mut().poll(cx))).await;
            drop(given_up);
            assert!(matches!(panicking.await.unwrap(), Err(EntityError::Panicked(_))));
            until(async || counter.get().await.unwrap() >= round).await;
        }
    });
}

#[process(manual, client = CounterHere)]
impl Counter {
    /// Writes more than the store accepts.
    #[message]
    fn flood(&mut self, bytes: usize, cx: &mut Context<Self>) {
        self.count += 1;
        cx.cells::<Str, Vec<u8>>("flood").put("", &vec![7u8; bytes]);
    }
    /// Puts a cell whose key is too long.
    #[message]
    fn misplace(&mut self, cx: &mut Context<Self>) {
        self.count += 1;
        cx.cells::<Bytes, ()>("far").put(&[0; 1000], &());
    }
    /// Adds 1, and sends itself a message for the rest.
    #[message]
    fn count_up(&mut self, rest: u64, cx: &mut Context<Self>) {
        self.count += 1;
        if rest > 1 {
            cx.cells::<Unit, u64>("rest").put(&(), &(rest - 1));
            cx.entity().send_count_up(rest - 1).unwrap();
        }
    }
    /// Tells that all turns before this one are over.
    #[message(send)]
    fn reached(&mut self, tell: tokio::sync::oneshot::Sender<()>) {
        let _ = tell.send(());
    }
    /// Adds 1, and sends the count once the turn is on disk; may panic after that.
    #[message]
    fn tell(
        &mut self,
        to: tokio::sync::mpsc::UnboundedSender<u64>,
        ending: Ending,
        cx: &mut Context<Self>,
    ) {
        let count = self.count;
        cx.after_commit(move || to.send(count).unwrap());
        match ending {
            Ending::Well => self.count += 1,
            Ending::InAction => cx.after_commit(|| panic!("on purpose")),
            Ending::Panicking => panic!("on purpose"),
            Ending::Unchanged => {}
        }
    }
    /// Adds to the entity with another key.
    #[message(send)]
    async fn pass(&mut self, key: String, cx: &mut Context<Self>) {
        // Also after the handler was suspended.
        tokio::task::yield_now().await;
        cx.node().entity::<Counter>(key).send_add(1).unwrap();
    }
    /// Waits for the test.
    #[message]
    async fn hold(&mut self, release: tokio::sync::oneshot::Receiver<()>) {
        let _ = release.await;
    }
    /// Calls the entity with the first key, which calls the entity with the second key.
    #[message]
    async fn via(
        &mut self,
        first: &'static str,
        second: &'static str,
        cx: &mut Context<Self>,
    ) -> Result<Result<(String, u64), EntityError>, EntityError> {
        cx.node().entity::<Counter>(first).add_to(second.into(), 1).await
    }
}

#[test]
fn a_failed_commit_discards_the_turn_and_is_the_callers_error() {
    on_small_store(async |node| {
        let counter = node.entity::<Counter>("it");
        assert_eq!(counter.add(3).await.unwrap(), 3);
        for _ in 0..5 {
            let full = counter.flood(8 << 20).await.unwrap_err();
            assert!(matches!(full, EntityError::NotCommitted(CommitError::Lost(_))), "{full}");
            assert_eq!(counter.turns().await.unwrap(), 1);
            let misplaced = counter.misplace().await.unwrap_err();
            assert!(
                matches!(
                    misplaced,
                    EntityError::NotCommitted(CommitError::Cell(CellError::KeyTooLong {
                        bytes: 1000
                    }))
                ),
                "{misplaced}"
            );
            assert_eq!(counter.get().await.unwrap(), 3);
        }
        counter.flood(1 << 20).await.unwrap();
        assert_eq!(counter.get().await.unwrap(), 4);
    });
}

#[test]
fn entities_are_forgotten_in_a_full_store() {
    on_small_store(async |node| {
        let entity = |number: usize| node.entity::<Counter>(format!("{number}"));
        let mut kept = Vec::new();
        let mut lost = 0;
        for number in 0.. {
            match entity(number).flood(1 + number * 977 % 30_000).await {
                Ok(_) => kept.push(number),
                Err(EntityError::NotCommitted(CommitError::Lost(_))) => lost += 1,
                Err(other) => panic!("{other}"),
            }
            if lost == 40 {
                break;
            }
        }
        assert!(kept.len() > 100, "{}", kept.len());
        for (round, number) in kept.iter().enumerate() {
            entity(*number).forget().await.unwrap();
            assert_eq!(stored(node, "counter"), (kept.len() - round - 1) as u64);
        }
        entity(0).flood(30_000).await.unwrap();
    });
}

#[test]
fn a_crowded_store_queue_is_waited_for() {
    let options =
        |options: Options| options.store(throng_store::Store::options().queue_batches_max(2));
    with_node(options, async |node| {
        let calls: Vec<_> = (1..=200)
            .map(|number| {
                let counter = node.entity::<Counter>(format!("{number}"));
                tokio::spawn(async move { counter.add(number).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(stored(node, "counter"), 200);
    });
}

#[test]
fn the_runtimes_limit_is_an_error_that_passes() {
    on_runtime(Runtime::builder().workers(1).process_limit(6), async |node, _| {
        for number in 0..5 {
            node.entity::<Counter>(format!("{number}")).add(1).await.unwrap();
        }
        let sixth = node.entity::<Counter>("5");
        let refused = sixth.add(1).await;
        assert!(matches!(refused, Err(EntityError::NoRoom { limit: 6 })), "{refused:?}");
        // Live entities keep running, and the longest idle entity makes room.
        assert_eq!(node.entity::<Counter>("4").add(1).await.unwrap(), 2);
        while let Err(error) = sixth.add(1).await {
            assert!(matches!(error, EntityError::NoRoom { .. }), "{error}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(sixth.get().await.unwrap(), 1);
    });
}

#[test]
fn a_process_that_no_node_spawned_has_no_identity() {
    let runtime = crate::runtime();
    let stray = runtime.spawn(Counter::default()).unwrap();
    let refused = runtime.block_on(async |_| stray.add_to("it".into(), 1).await);
    assert!(matches!(refused, Err(CallError::Died(ExitReason::Panicked(_)))), "{refused:?}");
}

/// A state whose encoding panics while it is broken.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "fragile")]
struct Fragile {
    #[serde(serialize_with = "whole_or_panic")]
    broken: bool,
}
#[process]
impl Fragile {
    #[message]
    fn is_broken(&mut self) -> bool {
        self.broken
    }
    /// Runs for a moment, and leaves a state that cannot be encoded.
    #[message(name = Break)]
    async fn break_it(&mut self) {
        self.broken = true;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
fn whole_or_panic<S: Serializer>(broken: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    assert!(!broken, "broken");
    serializer.serialize_bool(*broken)
}

#[test]
fn a_panic_in_the_encoding_harms_only_its_own_turn() {
    on_node(async |node| {
        let fragile = node.entity::<Fragile>("it");
        for _ in 0..20 {
            // The second message is queued while the first is being handled.
            let breaking = tokio::spawn(fragile.break_it());
            let behind = tokio::spawn(fragile.is_broken());
            let (broken, behind) = (breaking.await.unwrap(), behind.await.unwrap());
            assert!(
                matches!(&broken, Err(EntityError::Panicked(panic)) if panic.message() == "broken"),
                "{broken:?}"
            );
            assert!(!behind.unwrap());
        }
    });
}

#[test]
fn messages_of_an_entity_to_itself_are_committed() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        counter.count_up(10).await.unwrap();
        until(async || counter.get().await.unwrap() >= 10).await;
        assert_eq!(state_record(node, "counter", "it").unwrap(), [1, 10]);
        assert_eq!(node.stat().unwrap().store.batches, 10);
    });
}

#[test]
fn a_call_cycle_is_an_error_and_the_entities_go_on() {
    on_node(async |node| {
        let alice = node.entity::<Counter>("alice");
        let outcome = alice.add_to("alice".into(), 1).await.unwrap();
        assert!(matches!(outcome, Err(EntityError::Cycle { enqueued: false })), "{outcome:?}");
        let outcome = alice.via("bob", "alice").within(HANGS_AFTER).await.unwrap();
        let (Err(outcome) | Ok(Err(outcome))) = outcome else {
            panic!("came through: {outcome:?}")
        };
        assert!(matches!(outcome, EntityError::Cycle { enqueued: true }), "{outcome:?}");
        alice.get().await.unwrap();
    });
}

/// Waits until the turns of all messages sent before are over, whether they are on disk or not.
async fn reach(counter: &Entity<Counter>) {
    let (tell, told) = tokio::sync::oneshot::channel();
    counter.reached(tell).unwrap();
    told.await.unwrap();
}

#[test]
fn turns_go_on_while_commits_are_open_and_no_reply_leaves() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        counter.add(1).await.unwrap();
        let other = node.entity::<Counter>("other");
        other.add(1).await.unwrap();
        let blocked = BlockedWriter::new(node).await;
        let mut adds = Vec::new();
        for _ in 0..50 {
            adds.push(begin(counter.add(1).within(HANGS_AFTER)).await);
        }
        // A turn that changes nothing has seen the state of turns that a crash may take back.
        let reads = [
            begin(counter.get().within(HANGS_AFTER)).await,
            begin(counter.turns().within(HANGS_AFTER)).await,
        ];
        // Another entity's state is on disk, and its reply does not wait.
        assert_eq!(other.get().within(HANGS_AFTER).await.unwrap(), 1);
        reach(&counter).await;
        assert!(adds.iter().chain(&reads).all(|call| !call.is_finished()));
        drop(blocked);
        for (number, add) in adds.into_iter().enumerate() {
            assert_eq!(add.await.unwrap().unwrap(), 2 + number as u64);
        }
        let [get, turns] = reads;
        assert_eq!((get.await.unwrap().unwrap(), turns.await.unwrap().unwrap()), (51, 53));
        // All turns were over before the first of them was on disk.
        assert!(node.stat().unwrap().store.commits < 20);
    });
}

#[test]
fn a_lost_commit_discards_all_turns_that_build_on_it() {
    on_small_store(async |node| {
        let counter = node.entity::<Counter>("it");
        let other = node.entity::<Counter>("other");
        for round in 1..=5 {
            let blocked = BlockedWriter::new(node).await;
            let first = begin(counter.add(1).within(HANGS_AFTER)).await;
            let flood = begin(counter.flood(8 << 20).within(HANGS_AFTER)).await;
            let behind = begin(counter.add(1).within(HANGS_AFTER)).await;
            let read = begin(counter.get().within(HANGS_AFTER)).await;
            reach(&counter).await;
            let unlucky = begin(other.add(1).within(HANGS_AFTER)).await;
            reach(&other).await;
            drop(blocked);
            assert_eq!(first.await.unwrap().unwrap(), round);
            for lost in
                [flood.await.unwrap().map(|()| 0), behind.await.unwrap(), read.await.unwrap()]
            {
                assert!(
                    matches!(lost, Err(EntityError::NotCommitted(CommitError::Lost(_)))),
                    "{lost:?}"
                );
            }
            // The log is one: the turn of the other entity, behind the flood, is lost with it.
            let lost = unlucky.await.unwrap();
            assert!(matches!(lost, Err(EntityError::NotCommitted(_))), "{lost:?}");
            assert_eq!(counter.turns().await.unwrap(), 1, "a new activation");
            assert_eq!(counter.get().await.unwrap(), round);
            assert_eq!(other.get().await.unwrap(), 0);
        }
    });
}

#[derive(Clone, Copy)]
enum Ending {
    Well,
    InAction,
    Panicking,
    Unchanged,
}

#[test]
fn actions_after_a_commit_follow_it_in_order_or_are_dropped_with_their_turn() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        let (to, mut told) = tokio::sync::mpsc::unbounded_channel();
        let tell = |ending| Tell { to: to.clone(), ending };
        counter.call(tell(Ending::Unchanged)).await.unwrap();
        counter.add(1).await.unwrap();
        let blocked = BlockedWriter::new(node).await;
        for _ in 0..20 {
            counter.send(tell(Ending::Well)).unwrap();
        }
        counter.send(tell(Ending::InAction)).unwrap();
        let panicking = begin(counter.call(tell(Ending::Panicking)).within(HANGS_AFTER)).await;
        assert!(matches!(panicking.await.unwrap(), Err(EntityError::Panicked(_))));
        assert_eq!(told.try_recv(), Ok(0));
        assert!(told.try_recv().is_err(), "nothing is on disk yet");
        drop(blocked);
        for count in 1..=21 {
            assert_eq!(told.recv().await, Some(count));
        }
        assert_eq!(counter.get().await.unwrap(), 21);
        assert!(told.try_recv().is_err());
    });
}

#[test]
fn a_message_that_follows_from_a_lost_turn_changes_no_other_entity() {
    on_small_store(async |node| {
        let (sender, receiver) = (node.entity::<Counter>("it"), node.entity::<Counter>("other"));
        for round in 1..=5 {
            receiver.add(1).await.unwrap();
            // Messages may change places around a lost turn, such as that of the last round.
            reach(&sender).await;
            let blocked = BlockedWriter::new(node).await;
            let flood = begin(sender.flood(8 << 20).within(HANGS_AFTER)).await;
            let (release, released) = tokio::sync::oneshot::channel();
            let held = begin(receiver.hold(released).within(HANGS_AFTER)).await;
            sender.pass("other".into()).unwrap();
            reach(&sender).await;
            let called = begin(receiver.add(0).within(HANGS_AFTER)).await;
            drop(blocked);
            let lost = flood.await.unwrap();
            assert!(matches!(lost, Err(EntityError::NotCommitted(_))), "{lost:?}");
            // Only now does the receiver come to the message.
            release.send(()).unwrap();
            held.await.unwrap().unwrap();
            assert_eq!(called.await.unwrap().unwrap(), round, "the message is dropped");
        }
    });
}
