//! A reply leaves after the commit; changes that were not committed are gone.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use throng::prelude::*;
use throng_durable::{
    Bytes, CellError, CommitError, Durable, DurableContext, Entity, EntityError, Node, Str, Unit,
};

use crate::layouts::Layout;
use crate::{
    Add, AddTo, BlockedWriter, Counter, Explode, Get, HANGS_AFTER, Turns, begin, stored, with_node,
};

/// The record of an entity's state as it lies in the store, by the documented layout.
fn state_record(node: &Node, kind: &str, key: &str) -> Option<Vec<u8>> {
    Layout(&node.store().snapshot().unwrap()).state(kind, key).map(<[u8]>::to_vec)
}

#[test]
fn the_reply_comes_after_the_commit() {
    with_node(
        |options| options,
        async |node| {
            let counter = node.entity::<Counter>("it");
            for count in 1..=100u8 {
                counter.call(Add(1)).await.unwrap();
                // The number of the shape, then the count as a varint: one byte up to 127.
                assert_eq!(state_record(node, "counter", "it").unwrap(), [1, count]);
            }
        },
    );
}

#[test]
fn turns_that_change_nothing_write_nothing() {
    with_node(
        |options| options,
        async |node| {
            let counter = node.entity::<Counter>("it");
            assert_eq!(counter.call(Get).await.unwrap(), 0);
            assert_eq!(counter.call(Add(0)).await.unwrap(), 0);
            assert_eq!(state_record(node, "counter", "it"), None);
            assert_eq!(stored(node, "counter"), 0);
            counter.call(Add(1)).await.unwrap();
            let commits = node.stat().unwrap().store.commits;
            for _ in 0..10 {
                counter.call(Get).await.unwrap();
                counter.call(Turns).await.unwrap();
            }
            assert_eq!(node.stat().unwrap().store.commits, commits);
        },
    );
}

#[test]
fn many_turns_share_a_commit() {
    with_node(
        |options| options,
        async |node| {
            let calls: Vec<_> = (0..1000)
                .map(|number| {
                    let counter = node.entity::<Counter>(format!("{number}"));
                    tokio::spawn(async move { counter.call(Add(number)).await })
                })
                .collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), number as u64);
            }
            let stat = node.stat().unwrap().store;
            // One of the entities only added zero.
            assert_eq!((stored(node, "counter"), stat.batches), (999, 999));
            assert!(stat.commits < 500, "{stat:?}");
        },
    );
}

#[test]
fn a_panic_discards_what_was_not_committed() {
    with_node(
        |options| options,
        async |node| {
            let counter = node.entity::<Counter>("it");
            for round in 1..=20 {
                assert_eq!(counter.call(Add(1)).await.unwrap(), round);
                let panicked = counter.call(Explode).await.unwrap_err();
                assert!(
                    matches!(&panicked, EntityError::Panicked(panic) if panic.message() == "boom"),
                    "{panicked}"
                );
                // A new activation, with the last committed state.
                assert_eq!(counter.call(Turns).await.unwrap(), 1);
                assert_eq!(counter.call(Get).await.unwrap(), round);
            }
            // Its state, its kind's count, and the records of the layout, the kind and its shape, but not the cell.
            assert_eq!(node.stat().unwrap().store.entries, 5);
        },
    );
}

#[test]
fn messages_behind_a_panic_are_handled_once_by_the_next_activation() {
    with_node(
        |options| options,
        async |node| {
            let counter = node.entity::<Counter>("it");
            for round in 1..=20 {
                // The panic comes after a moment, in which all these messages queue up behind it.
                let panicking = tokio::spawn(counter.call(Explode));
                let calls: Vec<_> = (0..50)
                    .map(|number| {
                        let counter = counter.clone();
                        tokio::spawn(async move {
                            if number % 5 == 0 {
                                counter.send(Add(1)).map_err(|unsent| unsent.error)
                            } else {
                                counter.call(Add(1)).await.map(drop)
                            }
                        })
                    })
                    .collect();
                for call in calls {
                    call.await.unwrap().unwrap();
                }
                assert!(matches!(panicking.await.unwrap(), Err(EntityError::Panicked(_))));
                // The messages that were only sent may still be on their way.
                while counter.call(Get).await.unwrap() < round * 50 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(counter.call(Get).await.unwrap(), round * 50);
            }
        },
    );
}

#[test]
fn a_message_behind_a_panic_is_handled_although_its_caller_has_given_up() {
    with_node(
        |options| options,
        async |node| {
            let counter = node.entity::<Counter>("it");
            for round in 1..=20 {
                let panicking = begin(counter.call(Explode)).await;
                // The first poll sends the message.
                let mut given_up = Box::pin(counter.call(Add(1)));
                let _ =
                    std::future::poll_fn(|cx| std::task::Poll::Ready(given_up.as_mut().poll(cx)))
                        .await;
                drop(given_up);
                assert!(matches!(panicking.await.unwrap(), Err(EntityError::Panicked(_))));
                while counter.call(Get).await.unwrap() < round {
                    tokio::task::yield_now().await;
                }
            }
        },
    );
}

/// Writes more than the store accepts.
struct Flood(usize);
impl Message for Flood {
    type Reply = ();
}
impl Handle<Flood> for Counter {
    async fn handle(&mut self, Flood(bytes): Flood, cx: &mut Context<Self>) {
        self.count += 1;
        cx.cells::<Str, Vec<u8>>("flood").put("", &vec![7u8; bytes]);
    }
}

/// Puts a cell whose key is too long.
struct Misplace;
impl Message for Misplace {
    type Reply = ();
}
impl Handle<Misplace> for Counter {
    async fn handle(&mut self, _: Misplace, cx: &mut Context<Self>) {
        self.count += 1;
        cx.cells::<Bytes, ()>("far").put(&[0; 1000], &());
    }
}

#[test]
fn a_failed_commit_discards_the_turn_and_is_the_callers_error() {
    with_node(
        |options| options.store(throng_store::Store::options().map_bytes(4 << 20)),
        async |node| {
            let counter = node.entity::<Counter>("it");
            assert_eq!(counter.call(Add(3)).await.unwrap(), 3);
            for _ in 0..5 {
                let full = counter.call(Flood(8 << 20)).await.unwrap_err();
                assert!(matches!(full, EntityError::NotCommitted(CommitError::Lost(_))), "{full}");
                assert_eq!(counter.call(Turns).await.unwrap(), 1);
                let misplaced = counter.call(Misplace).await.unwrap_err();
                assert!(
                    matches!(
                        misplaced,
                        EntityError::NotCommitted(CommitError::Cell(CellError::KeyTooLong {
                            bytes: 1000
                        }))
                    ),
                    "{misplaced}"
                );
                assert_eq!(counter.call(Get).await.unwrap(), 3);
            }
            counter.call(Flood(1 << 20)).await.unwrap();
            assert_eq!(counter.call(Get).await.unwrap(), 4);
        },
    );
}

#[test]
fn entities_are_forgotten_in_a_full_store() {
    with_node(
        |options| options.store(throng_store::Store::options().map_bytes(4 << 20)),
        async |node| {
            let entity = |number: usize| node.entity::<Counter>(format!("{number}"));
            let mut kept = Vec::new();
            let mut lost = 0;
            for number in 0.. {
                match entity(number).call(Flood(1 + number * 977 % 30_000)).await {
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
            entity(0).call(Flood(30_000)).await.unwrap();
        },
    );
}

#[test]
fn a_crowded_store_queue_is_waited_for() {
    with_node(
        |options| options.store(throng_store::Store::options().queue_batches_max(2)),
        async |node| {
            let calls: Vec<_> = (1..=200)
                .map(|number| {
                    let counter = node.entity::<Counter>(format!("{number}"));
                    tokio::spawn(async move { counter.call(Add(number)).await })
                })
                .collect();
            for call in calls {
                call.await.unwrap().unwrap();
            }
            assert_eq!(stored(node, "counter"), 200);
        },
    );
}

#[test]
fn the_runtimes_limit_is_an_error_that_passes() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(1).process_limit(6).start().unwrap();
    let node = Node::open(directory.path()).start(&runtime).unwrap();
    runtime.block_on(async |_| {
        for number in 0..5 {
            node.entity::<Counter>(format!("{number}")).call(Add(1)).await.unwrap();
        }
        let sixth = node.entity::<Counter>("5");
        let refused = sixth.call(Add(1)).await;
        assert!(matches!(refused, Err(EntityError::NoRoom { limit: 6 })), "{refused:?}");
        // Live entities keep running, and the longest idle entity makes room.
        assert_eq!(node.entity::<Counter>("4").call(Add(1)).await.unwrap(), 2);
        while let Err(error) = sixth.call(Add(1)).await {
            assert!(matches!(error, EntityError::NoRoom { .. }), "{error}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(sixth.call(Get).await.unwrap(), 1);
        node.shutdown().await;
    });
}

#[test]
fn a_node_without_room_for_its_gate_sends_replies_after_the_commit_as_well() {
    struct Squatter;
    impl Process for Squatter {}
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(1).process_limit(1).start().unwrap();
    let squatter = runtime.spawn(Squatter).unwrap();
    let node = Node::open(directory.path()).start(&runtime).unwrap();
    squatter.kill();
    runtime.block_on(async |runtime| {
        while runtime.process_count() > 0 {
            tokio::task::yield_now().await;
        }
        let counter = node.entity::<Counter>("it");
        for count in 1..=100u8 {
            assert_eq!(counter.call(Add(1)).await.unwrap(), u64::from(count));
            assert_eq!(state_record(&node, "counter", "it").unwrap(), [1, count]);
        }
        assert_eq!(runtime.process_count(), 1);
        node.shutdown().await;
    });
}

#[test]
fn a_process_that_no_node_spawned_has_no_identity() {
    let runtime = crate::runtime();
    let stray = runtime.spawn(Counter::default()).unwrap();
    let refused = runtime.block_on(async |_| stray.call(crate::AddTo("it".into(), 1)).await);
    assert!(matches!(refused, Err(CallError::Died(ExitReason::Panicked(_)))), "{refused:?}");
}

/// A state whose encoding panics while it is broken.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "fragile")]
struct Fragile {
    #[serde(serialize_with = "whole_or_panic")]
    broken: bool,
}
impl Process for Fragile {}
fn whole_or_panic<S: Serializer>(broken: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    assert!(!broken, "broken");
    serializer.serialize_bool(*broken)
}

/// Runs for a moment, and leaves a state that cannot be encoded.
struct Break;
impl Message for Break {
    type Reply = ();
}
impl Handle<Break> for Fragile {
    async fn handle(&mut self, _: Break, _: &mut Context<Self>) {
        self.broken = true;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

struct IsBroken;
impl Message for IsBroken {
    type Reply = bool;
}
impl Handle<IsBroken> for Fragile {
    async fn handle(&mut self, _: IsBroken, _: &mut Context<Self>) -> bool {
        self.broken
    }
}

#[test]
fn a_panic_in_the_encoding_harms_only_its_own_turn() {
    with_node(
        |options| options,
        async |node| {
            let fragile = node.entity::<Fragile>("it");
            for _ in 0..20 {
                // The second message is queued while the first is being handled.
                let breaking = tokio::spawn(fragile.call(Break));
                let behind = tokio::spawn(fragile.call(IsBroken));
                let (broken, behind) = (breaking.await.unwrap(), behind.await.unwrap());
                assert!(
                    matches!(&broken, Err(EntityError::Panicked(panic)) if panic.message() == "broken"),
                    "{broken:?}"
                );
                assert!(!behind.unwrap());
            }
        },
    );
}

/// Adds 1, and sends itself a message for the rest.
struct CountUp(u64);
impl Message for CountUp {
    type Reply = ();
}
impl Handle<CountUp> for Counter {
    async fn handle(&mut self, CountUp(rest): CountUp, cx: &mut Context<Self>) {
        self.count += 1;
        if rest > 1 {
            cx.cells::<Unit, u64>("rest").put(&(), &(rest - 1));
            cx.entity().send(CountUp(rest - 1)).unwrap();
        }
    }
}

#[test]
fn messages_of_an_entity_to_itself_are_committed() {
    with_node(
        |options| options,
        async |node| {
            let counter = node.entity::<Counter>("it");
            counter.call(CountUp(10)).await.unwrap();
            while counter.call(Get).await.unwrap() < 10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(state_record(node, "counter", "it").unwrap(), [1, 10]);
            assert_eq!(node.stat().unwrap().store.batches, 10);
        },
    );
}

#[test]
fn a_call_cycle_is_an_error_and_the_entities_go_on() {
    /// Calls the entity with the first key, which calls the entity with the second key.
    struct Via(&'static str, &'static str);
    impl Message for Via {
        type Reply = Result<Result<(String, u64), EntityError>, EntityError>;
    }
    impl Handle<Via> for Counter {
        async fn handle(
            &mut self,
            Via(first, second): Via,
            cx: &mut Context<Self>,
        ) -> Result<Result<(String, u64), EntityError>, EntityError> {
            cx.node().entity::<Counter>(first).call(AddTo(second.into(), 1)).await
        }
    }
    with_node(
        |options| options,
        async |node| {
            let alice = node.entity::<Counter>("alice");
            let outcome = alice.call(AddTo("alice".into(), 1)).await.unwrap();
            assert!(matches!(outcome, Err(EntityError::Cycle { enqueued: false })), "{outcome:?}");
            let outcome = alice.call(Via("bob", "alice")).within(HANGS_AFTER).await.unwrap();
            let (Err(outcome) | Ok(Err(outcome))) = outcome else {
                panic!("came through: {outcome:?}")
            };
            assert!(matches!(outcome, EntityError::Cycle { enqueued: true }), "{outcome:?}");
            alice.call(Get).await.unwrap();
        },
    );
}

/// Tells that all turns before this one are over.
struct Reached(tokio::sync::oneshot::Sender<()>);
impl Message for Reached {
    type Reply = ();
}
impl Handle<Reached> for Counter {
    async fn handle(&mut self, Reached(tell): Reached, _: &mut Context<Self>) {
        let _ = tell.send(());
    }
}

/// Waits until the turns of all messages sent before are over, whether they are on disk or not.
async fn reach(counter: &Entity<Counter>) {
    let (tell, told) = tokio::sync::oneshot::channel();
    counter.send(Reached(tell)).unwrap();
    told.await.unwrap();
}

#[test]
fn turns_go_on_while_commits_are_open_and_no_reply_leaves() {
    with_node(
        |options| options,
        async |node| {
            let counter = node.entity::<Counter>("it");
            counter.call(Add(1)).await.unwrap();
            let other = node.entity::<Counter>("other");
            other.call(Add(1)).await.unwrap();
            let blocked = BlockedWriter::new(node).await;
            let mut adds = Vec::new();
            for _ in 0..50 {
                adds.push(begin(counter.call(Add(1)).within(HANGS_AFTER)).await);
            }
            // A turn that changes nothing has seen the state of turns that a crash may take back.
            let reads = [
                begin(counter.call(Get).within(HANGS_AFTER)).await,
                begin(counter.call(Turns).within(HANGS_AFTER)).await,
            ];
            // Another entity's state is on disk, and its reply does not wait.
            assert_eq!(other.call(Get).within(HANGS_AFTER).await.unwrap(), 1);
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
        },
    );
}

#[test]
fn a_lost_commit_discards_all_turns_that_build_on_it() {
    with_node(
        |options| options.store(throng_store::Store::options().map_bytes(4 << 20)),
        async |node| {
            let counter = node.entity::<Counter>("it");
            let other = node.entity::<Counter>("other");
            for round in 1..=5 {
                let blocked = BlockedWriter::new(node).await;
                let first = begin(counter.call(Add(1)).within(HANGS_AFTER)).await;
                let flood = begin(counter.call(Flood(8 << 20)).within(HANGS_AFTER)).await;
                let behind = begin(counter.call(Add(1)).within(HANGS_AFTER)).await;
                let read = begin(counter.call(Get).within(HANGS_AFTER)).await;
                reach(&counter).await;
                let unlucky = begin(other.call(Add(1)).within(HANGS_AFTER)).await;
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
                assert_eq!(counter.call(Turns).await.unwrap(), 1, "a new activation");
                assert_eq!(counter.call(Get).await.unwrap(), round);
                assert_eq!(other.call(Get).await.unwrap(), 0);
            }
        },
    );
}

/// Adds 1, and sends the count once the turn is on disk; may panic after that.
struct Tell(tokio::sync::mpsc::UnboundedSender<u64>, Ending);
#[derive(Clone, Copy)]
enum Ending {
    Well,
    InAction,
    Panicking,
    Unchanged,
}
impl Message for Tell {
    type Reply = ();
}
impl Handle<Tell> for Counter {
    async fn handle(&mut self, Tell(to, ending): Tell, cx: &mut Context<Self>) {
        let count = self.count;
        cx.after_commit(move || to.send(count).unwrap());
        match ending {
            Ending::Well => self.count += 1,
            Ending::InAction => cx.after_commit(|| panic!("on purpose")),
            Ending::Panicking => panic!("on purpose"),
            Ending::Unchanged => {}
        }
    }
}

#[test]
fn actions_after_a_commit_follow_it_in_order_or_are_dropped_with_their_turn() {
    with_node(
        |options| options,
        async |node| {
            let counter = node.entity::<Counter>("it");
            let (to, mut told) = tokio::sync::mpsc::unbounded_channel();
            let tell = |ending| Tell(to.clone(), ending);
            counter.call(tell(Ending::Unchanged)).await.unwrap();
            counter.call(Add(1)).await.unwrap();
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
            assert_eq!(counter.call(Get).await.unwrap(), 21);
            assert!(told.try_recv().is_err());
        },
    );
}

/// Adds to the entity with another key.
struct Pass(String);
impl Message for Pass {
    type Reply = ();
}
impl Handle<Pass> for Counter {
    async fn handle(&mut self, Pass(key): Pass, cx: &mut Context<Self>) {
        // Also after the handler was suspended.
        tokio::task::yield_now().await;
        cx.node().entity::<Counter>(key).send(Add(1)).unwrap();
    }
}

/// Waits for the test.
struct Hold(tokio::sync::oneshot::Receiver<()>);
impl Message for Hold {
    type Reply = ();
}
impl Handle<Hold> for Counter {
    async fn handle(&mut self, Hold(release): Hold, _: &mut Context<Self>) {
        let _ = release.await;
    }
}

#[test]
fn a_message_that_follows_from_a_lost_turn_changes_no_other_entity() {
    with_node(
        |options| options.store(throng_store::Store::options().map_bytes(4 << 20)),
        async |node| {
            let (sender, receiver) =
                (node.entity::<Counter>("it"), node.entity::<Counter>("other"));
            for round in 1..=5 {
                receiver.call(Add(1)).await.unwrap();
                // Messages may change places around a lost turn, such as that of the last round.
                reach(&sender).await;
                let blocked = BlockedWriter::new(node).await;
                let flood = begin(sender.call(Flood(8 << 20)).within(HANGS_AFTER)).await;
                let (release, released) = tokio::sync::oneshot::channel();
                let held = begin(receiver.call(Hold(released)).within(HANGS_AFTER)).await;
                sender.send(Pass("other".into())).unwrap();
                reach(&sender).await;
                let called = begin(receiver.call(Add(0)).within(HANGS_AFTER)).await;
                drop(blocked);
                let lost = flood.await.unwrap();
                assert!(matches!(lost, Err(EntityError::NotCommitted(_))), "{lost:?}");
                // Only now does the receiver come to the message.
                release.send(()).unwrap();
                held.await.unwrap().unwrap();
                assert_eq!(called.await.unwrap().unwrap(), round, "the message is dropped");
            }
        },
    );
}
