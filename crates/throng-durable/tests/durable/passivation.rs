//! Passivation: entities come and go, and no message is lost between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, EntityError, Node, OpenError, Options};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::{
    Add, Counter, CounterClient, Explode, Get, HANGS_AFTER, begin, on_node, on_runtime, program,
    until, with_node,
};

async fn wait_for(node: &Node, live: usize) {
    until(async || node.live() <= live).await;
}

#[test]
fn idle_entities_are_passivated_and_come_back() {
    let options = |options: Options| options.idle_after(Duration::from_millis(5));
    with_node(options, async |node| {
        let counter = node.entity::<Counter>("it");
        for round in 1..=10 {
            assert_eq!(counter.add(1).await.unwrap(), round);
            wait_for(node, 0).await;
            assert_eq!(counter.turns().await.unwrap(), 1);
        }
    });
}

const ENTITIES: u64 = 8;

/// Per entity, whether a handler runs.
static BUSY: [AtomicBool; ENTITIES as usize] =
    [const { AtomicBool::new(false) }; ENTITIES as usize];

#[process(manual, client = CounterHere)]
impl Counter {
    /// Adds 1, sometimes slowly, and checks that no other handler of the entity runs at the same time.
    #[message]
    async fn add_alone(&mut self, slowly: bool, cx: &mut Context<Self>) -> u64 {
        let busy = &BUSY[cx.key().parse::<usize>().unwrap()];
        assert!(!busy.swap(true, Ordering::SeqCst), "two activations at once");
        self.count += 1;
        if slowly {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.turns += 1;
        assert!(busy.swap(false, Ordering::SeqCst), "two activations at once");
        self.turns
    }
    /// Waits in its handler until the test lets it go.
    #[message]
    async fn linger(&mut self, release: tokio::sync::oneshot::Receiver<()>) {
        let _ = release.await;
    }
    /// A timer that keeps its entity busy around the directory.
    #[message(send)]
    fn tick(&mut self, left: u32, cx: &mut Context<Self>) {
        if left > 0 {
            cx.send_after(Duration::from_millis(1), Tick { left: left - 1 });
            cx.address().tick(0).unwrap();
        }
    }
    /// Sends itself a message around the durable layer and panics.
    #[message]
    fn explode_aside(&mut self, cx: &mut Context<Self>) {
        cx.address().send_get().unwrap();
        panic!("boom");
    }
    /// Changes nothing that is stored.
    #[message]
    fn hear(&mut self, sender: u64, number: u64) {
        HEARD.lock().unwrap().push((sender, number));
    }
    /// Asks to be reminded, and changes nothing.
    #[message]
    fn remind(&mut self, cx: &mut Context<Self>) {
        cx.send_after(Duration::from_millis(20), Add { number: 7 });
    }
    /// Attaches a stream whose items are added, and changes nothing.
    #[message]
    fn attach(&mut self, numbers: UnboundedReceiverStream<u64>, cx: &mut Context<Self>) -> Pid {
        cx.attach(numbers.map(|number| Add { number }), |_| Add { number: 1_000 }).unwrap()
    }
    /// Sets a timer that changes nothing when it fires, and returns it.
    #[message]
    fn ring(&mut self, delay: Duration, cx: &mut Context<Self>) -> Timer {
        cx.send_after(delay, Get)
    }
    /// Cancels a timer.
    #[message]
    fn cancel(&mut self, timer: Timer) -> bool {
        timer.cancel()
    }
}

/// Callers hammer a few entities with pauses about as long as the idle time, and now and then one
/// panics, so that calls meet activation, passivation, eviction and giving up in every order.
#[test]
fn no_message_is_lost_or_handled_twice_while_entities_come_and_go() {
    const CALLERS: u64 = 32;
    const CALLS: u64 = 150;
    let options = |options: Options| options.idle_after(Duration::from_millis(2)).live_max(4);
    with_node(options, async |node| {
        let sent: Arc<[AtomicU64]> = (0..ENTITIES).map(|_| AtomicU64::new(0)).collect();
        let activations = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (node, sent, activations) = (node.clone(), sent.clone(), activations.clone());
                tokio::spawn(async move {
                    for call in 0..CALLS {
                        // A cheap scatter: neither the order nor the pauses repeat.
                        let random = (caller * CALLS + call).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        let entity = (random >> 32) % ENTITIES;
                        let counter = node.entity::<Counter>(format!("{entity}"));
                        let add = AddAlone { slowly: call % 5 == 0 };
                        match call % 11 {
                            3 => counter.send(add).unwrap(),
                            7 => {
                                let panicked = counter.explode().await;
                                assert!(matches!(panicked, Err(EntityError::Panicked(_))));
                                continue;
                            }
                            _ => {
                                let turns = counter.call(add).await.unwrap();
                                activations.fetch_add(u64::from(turns == 1), Ordering::Relaxed);
                            }
                        }
                        sent[entity as usize].fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_micros((random >> 48) % 6000)).await;
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        for (entity, sent) in sent.iter().enumerate() {
            let (counter, sent) =
                (node.entity::<Counter>(format!("{entity}")), sent.load(Ordering::Relaxed));
            // Messages without a reply may still be on their way.
            until(async || counter.get().await.unwrap() >= sent).await;
            wait_for(node, 0).await;
            assert_eq!(counter.get().await.unwrap(), sent, "entity {entity}");
        }
        // Otherwise nothing was tested.
        assert!(activations.load(Ordering::Relaxed) > CALLERS);
    });
}

#[test]
fn more_entities_than_the_limit_are_handled() {
    const MANY: u64 = 10_000;
    const LIVE_MAX: usize = 1_000;
    let options = |options: Options| options.live_max(LIVE_MAX);
    with_node(options, async |node| {
        for round in 1..=2 {
            // From several tasks, as in a server.
            let tasks: Vec<_> = (0..20)
                .map(|task| {
                    let node = node.clone();
                    tokio::spawn(async move {
                        for number in (task..MANY).step_by(20) {
                            let counter = node.entity::<Counter>(format!("{number}"));
                            let count = counter.add(number + 1).await.unwrap();
                            assert_eq!(count, round * (number + 1));
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            // The last entities asked to leave may not have left yet. No entity is idle for
            // long enough to be swept.
            wait_for(node, LIVE_MAX).await;
        }
        let stat = node.stat().unwrap();
        assert!(stat.live > 0 && stat.live <= LIVE_MAX, "{stat:?}");
        assert_eq!(stat.stored["counter"], MANY);
        assert_eq!(stat.at_rest(), MANY - stat.live as u64);
        assert!(stat.activations >= MANY && stat.activations >= stat.passivations, "{stat:?}");
        assert!(stat.passivations >= stat.at_rest(), "who is at rest has left: {stat:?}");
    });
}

/// An entity with a state of any size.
#[derive(Default, Durable, Serialize, Deserialize)]
#[durable(kind = "bag")]
struct Bag {
    content: String,
}
#[process]
impl Bag {
    /// Replaces the content by this many bytes; returns the size of the content before.
    #[message]
    fn fill(&mut self, bytes: usize) -> usize {
        std::mem::replace(&mut self.content, "x".repeat(bytes)).len()
    }
    /// Returns the size of the content.
    #[message]
    fn size(&mut self) -> usize {
        self.content.len()
    }
}

impl Handle<Explode> for Bag {
    async fn handle(&mut self, _: Explode, _: &mut Context<Self>) {
        self.content.clear();
        panic!("boom");
    }
}

/// Entities that are created, loaded, grow, shrink, fail and are removed.
#[test]
fn live_entities_take_no_more_memory_than_the_limit() {
    const LIMIT: usize = 64 << 10;
    const BAGS: usize = 150;
    let options = |options: Options| options.live_bytes_max(LIMIT);
    with_node(options, async |node| {
        // One that has failed is live until it has left, but takes no memory by then.
        let settle = async |live: usize| loop {
            let stat = node.stat().unwrap();
            if stat.live_bytes <= LIMIT && stat.live <= live {
                return stat;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let bag = |number: usize| node.entity::<Bag>(format!("{number}"));
        let mut before = 0;
        // Smaller and larger than an entity's own memory, and larger than the limit.
        for bytes in [10, 10_000, 100, 2_000, LIMIT + 1] {
            for number in 0..BAGS {
                assert_eq!(bag(number).size().await.unwrap(), before);
                assert_eq!(bag(number).fill(bytes).await.unwrap(), before);
                if number % 7 == 0 {
                    bag(number).call(Explode).await.unwrap_err();
                }
            }
            let stat = settle(LIMIT / (bytes + 250)).await;
            // A record rounded up, an entity's own memory, and some bytes of the encoding.
            let each = bytes + 64 + 250 + size_of::<Bag>() + 16;
            let expected = (LIMIT / each).min(BAGS);
            assert!(stat.live * 2 >= expected, "{stat:?} at {bytes} bytes, not {expected}");
            before = bytes;
        }
        for number in 0..BAGS {
            bag(number).forget().await.unwrap();
        }
        wait_for(node, 0).await;
        assert_eq!(node.stat().unwrap().live_bytes, 0);
    });
}

#[test]
fn entities_in_use_and_pinned_entities_are_not_evicted() {
    let options = |options: Options| options.live_max(32);
    with_node(options, async |node| {
        let pinned = node.entity::<Counter>("pinned");
        pinned.pin().await.unwrap();
        pinned.add(1).await.unwrap();
        let favourite = node.entity::<Counter>("favourite");
        favourite.add(1).await.unwrap();
        for number in 1..=500 {
            node.entity::<Counter>(format!("{number}")).add(1).await.unwrap();
            // In use all the time, so never among the longest idle entities.
            assert_eq!(favourite.turns().await.unwrap(), number + 1);
        }
        wait_for(node, 32).await;
        assert_eq!(pinned.turns().await.unwrap(), 2);
        // A pinned entity that has failed is pinned again.
        pinned.explode().await.unwrap_err();
        assert_eq!(pinned.turns().await.unwrap(), 1);
        let use_others = async |from: u64| {
            for number in from..from + 200 {
                node.entity::<Counter>(format!("{number}")).add(1).await.unwrap();
            }
        };
        use_others(1000).await;
        assert_eq!(pinned.turns().await.unwrap(), 2);
        pinned.unpin().await.unwrap();
        use_others(2000).await;
        wait_for(node, 32).await;
        assert_eq!(pinned.turns().await.unwrap(), 1, "it has left");
        assert!(node.entity::<Counter>("").pin().await.is_err());
    });
}

#[test]
fn shutdown_handles_messages_sent_before() {
    let directory = tempfile::tempdir().unwrap();
    program(Node::options(directory.path()), async |node| {
        for number in 0..2000 {
            node.entity::<Counter>(format!("{}", number % 20)).send_add(1).unwrap();
        }
    });
    program(Node::options(directory.path()), async |node| {
        for number in 0..20 {
            assert_eq!(node.entity::<Counter>(format!("{number}")).get().await.unwrap(), 100);
        }
    });
}

/// At the limit of processes, an entity in a long turn is asked to leave, and must not keep the others.
#[test]
fn an_entity_that_cannot_leave_does_not_keep_others_from_making_room() {
    // One process is the node's.
    on_runtime(Runtime::builder().workers(1).process_limit(5), async |node, _| {
        let busy = node.entity::<Counter>("busy");
        busy.add(1).await.unwrap();
        let (release, released) = tokio::sync::oneshot::channel();
        let lingering = begin(busy.linger(released).within(HANGS_AFTER)).await;
        for number in 0..50 {
            let other = node.entity::<Counter>(format!("{number}"));
            while let Err(error) = other.add(1).await {
                assert!(matches!(error, EntityError::NoRoom { limit: 5 }), "{error}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(!lingering.is_finished());
        release.send(()).unwrap();
        lingering.await.unwrap().unwrap();
    });
}

/// Messages to the address come after the request to leave, again and again; the shutdown asks again.
#[test]
fn a_shutdown_ends_beside_messages_that_come_around_the_directory() {
    on_node(async |node| {
        for number in 0..20 {
            let counter = node.entity::<Counter>(format!("{number}"));
            counter.add(1).await.unwrap();
            counter.tick(50).unwrap();
        }
    });
}

/// Turns outlast the node's owner; the messages behind the panic go to another activation.
#[test]
fn a_dropped_node_handles_messages_sent_before() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = crate::runtime();
    let mut sent = 0;
    for round in 1..=10 {
        let node = loop {
            // The last turn of the previous round may be just about to release the directory.
            match Node::options(directory.path()).open(&runtime) {
                Err(OpenError::InUse { .. }) => std::thread::yield_now(),
                node => break node.unwrap(),
            }
        };
        runtime.block_on(async |runtime| {
            let counter = node.entity::<Counter>("it");
            assert_eq!(counter.get().await.unwrap(), sent, "round {round}");
            for _ in 0..10 {
                counter.send_add(1).unwrap();
            }
            // The call may be given up, but its message is on its way, unless this thread slept
            // before the message was sent.
            let called = counter.add(1).within(Duration::from_millis(1)).await;
            sent += u64::from(!matches!(called, Err(EntityError::TimedOut { enqueued: false })));
            counter.send_explode().unwrap();
            for _ in 0..10 {
                counter.send_add(1).unwrap();
            }
            sent += 20;
            drop((counter, node));
            until(async || runtime.process_count() == 0).await;
        });
    }
}

#[test]
fn a_message_to_the_bare_address_does_not_keep_a_given_up_activation() {
    for idle_after in [Duration::from_millis(5), Duration::from_secs(60)] {
        let options = |options: Options| options.idle_after(idle_after);
        with_node(options, async |node| {
            let counter = node.entity::<Counter>("it");
            for _ in 0..20 {
                let panicked = counter.explode_aside().await;
                assert!(matches!(panicked, Err(EntityError::Panicked(_))), "{panicked:?}");
            }
            if idle_after < Duration::from_secs(60) {
                // The sweeper ends the activation, or else the shutdown.
                wait_for(node, 0).await;
            }
        });
    }
}

/// Waits until no entity is live, or fails.
async fn wait_until_empty(node: &Node) {
    let left = tokio::time::timeout(Duration::from_secs(30), wait_for(node, 0)).await;
    assert!(left.is_ok(), "{} are still live", node.live());
}

#[test]
fn an_entity_that_found_nothing_and_changed_nothing_leaves_at_once() {
    let options = |options: Options| options.idle_after(Duration::from_secs(3600));
    with_node(options, async |node| {
        for number in 0..1_000 {
            let nobody = node.entity::<Counter>(format!("{number}"));
            assert_eq!(nobody.get().await.unwrap(), 0);
            nobody.send_get().unwrap();
        }
        wait_until_empty(node).await;
        // A stored entity stays, and so does an entity that has become stored.
        let counter = node.entity::<Counter>("it");
        assert_eq!(counter.get().await.unwrap(), 0);
        counter.add(1).await.unwrap();
        let before = counter.turns().await.unwrap();
        for turns in 1..100 {
            assert_eq!(counter.turns().await.unwrap(), before + turns);
        }
        assert_eq!(node.live(), 1);
    });
}

#[test]
fn reads_of_entities_that_are_not_stored_evict_no_entity() {
    const USERS: u64 = 16;
    let options =
        |options: Options| options.live_max(USERS as usize).idle_after(Duration::from_secs(3600));
    with_node(options, async |node| {
        for number in 0..USERS {
            node.entity::<Counter>(format!("user {number}")).add(1).await.unwrap();
        }
        let calls: Vec<_> = (0..2_000)
            .map(|number| tokio::spawn(node.entity::<Counter>(format!("{number}")).get()))
            .collect();
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 0);
        }
        for number in 0..USERS {
            let user = node.entity::<Counter>(format!("user {number}"));
            assert_eq!(user.turns().await.unwrap(), 2, "it was activated again");
        }
        assert_eq!(node.stat().unwrap().activations, USERS + 2_000);
    });
}

/// Messages that blank entities have handled, in this order.
static HEARD: std::sync::Mutex<Vec<(u64, u64)>> = std::sync::Mutex::new(Vec::new());

#[test]
fn messages_to_an_entity_that_just_leaves_are_neither_lost_nor_reordered() {
    const SENDERS: u64 = 4;
    const MESSAGES: u64 = 5_000;
    on_node(async |node| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let blank = node.entity::<Counter>("blank");
                tokio::spawn(async move {
                    for number in 0..MESSAGES {
                        let random =
                            (sender * MESSAGES + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
                        if random == 0 {
                            blank.hear(sender, number).await.unwrap();
                        } else {
                            blank.send_hear(sender, number).unwrap();
                        }
                        for _ in 0..random {
                            tokio::task::yield_now().await;
                        }
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
        wait_until_empty(node).await;
        let heard = HEARD.lock().unwrap();
        for sender in 0..SENDERS {
            let numbers = heard.iter().filter(|(from, _)| *from == sender).map(|(_, n)| *n);
            assert!(numbers.eq(0..MESSAGES), "sender {sender}");
        }
        // Otherwise nothing was tested.
        assert!(node.stat().unwrap().activations > 10);
    });
}

#[test]
fn a_blank_entity_stays_for_its_timer() {
    on_node(async |node| {
        node.entity::<Counter>("it").remind().await.unwrap();
        let search = until(async || crate::stored(node, "counter") != 0);
        assert!(tokio::time::timeout(Duration::from_secs(30), search).await.is_ok());
        assert_eq!(node.entity::<Counter>("it").get().await.unwrap(), 7);
    });
}

#[test]
fn a_blank_entity_stays_for_its_stream() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        let (numbers, stream) = mpsc::unbounded_channel();
        counter.attach(stream.into()).await.unwrap();
        assert_eq!(counter.get().await.unwrap(), 0);
        numbers.send(7).unwrap();
        let search = until(async || counter.get().await.unwrap() == 7);
        assert!(tokio::time::timeout(Duration::from_secs(30), search).await.is_ok());
    });
}

#[test]
fn a_stream_ends_with_the_activation() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        let (numbers, stream) = mpsc::unbounded_channel();
        let feeder = counter.attach(stream.into()).await.unwrap();
        assert!(numbers.send(7).is_ok());
        until(async || counter.get().await.unwrap() == 7).await;
        counter.explode().await.unwrap_err();
        assert!(tokio::time::timeout(Duration::from_secs(30), feeder.exited()).await.is_ok());
        assert!(numbers.send(8).is_err(), "the stream is still there");
        assert_eq!(counter.get().await.unwrap(), 7);
    });
}

#[test]
fn a_blank_entity_whose_timers_are_over_leaves() {
    const HOUR: Duration = Duration::from_secs(3600);
    let options = |options: Options| options.idle_after(HOUR);
    with_node(options, async |node| {
        let counter = node.entity::<Counter>("it");
        let fires = counter.ring(Duration::from_millis(1)).await.unwrap();
        wait_until_empty(node).await;
        assert!(!fires.cancel(), "it left before its timer");

        let timer = counter.ring(HOUR).await.unwrap();
        // Another timer is set.
        drop(counter.ring(Duration::from_millis(1)).await.unwrap());
        assert!(counter.cancel(timer).await.unwrap());
        wait_until_empty(node).await;

        // Cancelled outside of the entity, which leaves after its next turn.
        let timer = counter.ring(HOUR).await.unwrap();
        assert!(timer.cancel());
        assert_eq!(counter.get().await.unwrap(), 0);
        wait_until_empty(node).await;
    });
}
