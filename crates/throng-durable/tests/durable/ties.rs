//! Ties: timers, streams, links and the like keep an entity in memory, as far as the limits go.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{Durable, Node};
use tokio::time::Instant;
use tokio_stream::StreamExt;

use crate::until;

const IDLE_AFTER: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3600);

/// Records after how many milliseconds its ties have woken it.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "waiter")]
struct Waiter {
    woken: Vec<u64>,
    /// Time at which it was tied, in this activation.
    #[serde(skip)]
    tied: Option<Instant>,
}

impl Waiter {
    fn note(&mut self) {
        let waited = self.tied.map(|tied| tied.elapsed().as_millis() as u64);
        self.woken.push(waited.unwrap_or(u64::MAX));
    }
}

#[process]
impl Waiter {
    #[hook]
    fn down(&mut self) {
        self.note();
    }
    #[hook]
    fn exit(&mut self) {
        self.note();
    }
    #[hook]
    fn timeout(&mut self) {
        self.note();
    }
    #[message(derive(Clone))]
    fn wake(&mut self) {
        self.note();
    }
    /// Ties the entity in some way, and changes its state.
    #[message]
    fn tie(&mut self, way: Way, cx: &mut Context<Self>) {
        self.note();
        self.tied = Some(Instant::now());
        way(cx);
    }
    /// Returns the times of the wakes, and whether this activation was tied.
    #[message(derive(Clone))]
    fn woken(&mut self) -> (Vec<u64>, bool) {
        (self.woken.clone(), self.tied.is_some())
    }
}

type Way = fn(&mut Context<Waiter>);

/// Makes an entity that is stored and has ties.
async fn tied(node: &Node, key: &str, way: Way) {
    node.entity::<Waiter>(key).tie(way).await.unwrap();
}

/// A process that ends after a while.
struct Peer;
impl Process for Peer {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.send_after(LATER, End);
    }
}
struct End;
impl Message for End {
    type Reply = ();
}
impl Handle<End> for Peer {
    async fn handle(&mut self, _: End, cx: &mut Context<Self>) {
        cx.stop(ExitReason::other("the time is over"));
    }
}

/// A process that monitors another until it ends.
struct Watcher(Pid);
impl Process for Watcher {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.monitor(self.0);
        cx.send_after(LATER, End);
    }
}
impl Handle<End> for Watcher {
    async fn handle(&mut self, _: End, cx: &mut Context<Self>) {
        cx.stop(ExitReason::Normal);
    }
}

/// A tie by its name, whether it wakes the entity, and whether it is over then.
const TIES: [(&str, Way, bool, bool); 12] = [
    ("timer", |cx| drop(cx.send_after(LATER, Wake)), true, true),
    (
        "timer set elsewhere",
        |cx| {
            let (runtime, address) = (cx.runtime().clone(), cx.address());
            drop(cx.runtime().spawner().spawn_async(async move |_: Inbox<Wake>| {
                drop(runtime.send_after(address, LATER, Wake));
            }));
        },
        true,
        true,
    ),
    ("interval", |cx| drop(cx.send_every(LATER, Wake)), true, false),
    (
        "stream",
        |cx| {
            let later = tokio_stream::once(()).then(async |()| tokio::time::sleep(LATER).await);
            cx.attach(later.map(|()| Wake), |_| Woken).unwrap();
        },
        true,
        true,
    ),
    (
        "pipe",
        |cx| {
            let later = async {
                tokio::time::sleep(LATER).await;
                Wake
            };
            cx.pipe(later).unwrap();
        },
        true,
        true,
    ),
    ("receive timeout", |cx| cx.receive_timeout(LATER), true, true),
    (
        "monitor",
        |cx| {
            let peer = cx.runtime().spawn(Peer).unwrap();
            cx.monitor(peer);
        },
        true,
        true,
    ),
    (
        "link",
        |cx| {
            cx.trap_exits(true);
            let peer = cx.runtime().spawn(Peer).unwrap();
            cx.link(peer);
        },
        true,
        true,
    ),
    ("monitored child", |cx| _ = cx.monitored().spawn(Peer).unwrap(), true, true),
    (
        "linked child",
        |cx| {
            cx.trap_exits(true);
            cx.linked().spawn(Peer).unwrap();
        },
        true,
        true,
    ),
    (
        "monitor of another",
        |cx| {
            cx.runtime().spawn(Watcher(cx.pid())).unwrap();
        },
        false,
        true,
    ),
    (
        "name",
        |cx| {
            let address = cx.address();
            cx.runtime().register("waiter", address).unwrap();
        },
        false,
        false,
    ),
];

#[test]
fn every_tie_keeps_a_stored_entity_in_memory_until_it_is_over() {
    for (name, way, wakes, ends) in TIES {
        sim::check(1, |sim: Sim| async move {
            let node = sim.start(Node::options("").idle_after(IDLE_AFTER)).unwrap();
            tied(&node, "it", way).await;
            tokio::time::sleep(LATER - 2 * IDLE_AFTER).await;
            assert_eq!((node.live(), node.stat().unwrap().activations), (1, 1), "{name}");
            tokio::time::sleep(6 * IDLE_AFTER).await;
            assert_eq!(node.live(), usize::from(!ends), "{name}");
            let (woken, _) = node.entity::<Waiter>("it").woken().await.unwrap();
            // The first one was not tied.
            let [u64::MAX, woken @ ..] = &woken[..] else { panic!("{name}: {woken:?}") };
            assert_eq!(woken.len(), usize::from(wakes), "{name}: {woken:?}");
            let due = LATER.as_millis() as u64;
            assert!(woken.iter().all(|at| (due..due + 100).contains(at)), "{name}: {woken:?}");
            assert_eq!(node.stat().unwrap().evicted_with_ties, 0);
            node.shutdown().await;
        });
    }
}

#[test]
fn a_tie_that_is_cancelled_keeps_no_entity() {
    sim::check(2, |sim: Sim| async move {
        let node = sim.start(Node::options("").idle_after(IDLE_AFTER)).unwrap();
        tied(&node, "it", |cx| assert!(cx.send_after(HOUR, Wake).cancel())).await;
        tokio::time::sleep(10 * IDLE_AFTER).await;
        assert_eq!(node.live(), 0);
        node.shutdown().await;
    });
}

#[test]
fn entities_with_ties_are_the_last_to_make_room() {
    const LIVE_MAX: usize = 8;
    sim::check(2, |sim: Sim| async move {
        let options = Node::options("").idle_after(HOUR).live_max(LIVE_MAX);
        let node = sim.start(options).unwrap();
        for number in 0..LIVE_MAX / 2 {
            tied(&node, &format!("tied {number}"), |cx| drop(cx.send_after(HOUR, Wake))).await;
        }
        for number in 0..200 {
            node.entity::<Waiter>(format!("{number}")).wake().await.unwrap();
        }
        until(async || node.live() <= LIVE_MAX).await;
        for number in 0..LIVE_MAX / 2 {
            let waiter = node.entity::<Waiter>(format!("tied {number}"));
            assert_eq!(waiter.woken().await.unwrap(), (vec![u64::MAX], true));
        }
        assert_eq!(node.stat().unwrap().evicted_with_ties, 0);
        node.shutdown().await;
    });
}

#[test]
fn entities_with_ties_beyond_the_limit_make_room_and_are_counted() {
    const LIVE_MAX: usize = 4;
    const TIED: u64 = 40;
    let ways: [Way; 3] = [
        |cx| drop(cx.send_after(HOUR, Wake)),
        |cx| cx.receive_timeout(HOUR),
        // Has a turn between any two questions whether it has ties.
        |cx| drop(cx.send_every(Duration::from_millis(100), Woken)),
    ];
    for way in ways {
        sim::check(2, |sim: Sim| async move {
            let options = Node::options("").idle_after(HOUR).live_max(LIVE_MAX);
            let node = sim.start(options).unwrap();
            for number in 0..TIED {
                tied(&node, &format!("{number}"), way).await;
            }
            let crowded = async {
                until(async || node.live() <= LIVE_MAX).await;
            };
            assert!(tokio::time::timeout(HOUR / 2, crowded).await.is_ok(), "too many stay");
            let stat = node.stat().unwrap();
            assert_eq!(stat.activations, TIED, "{stat:?}");
            assert_eq!(stat.evicted_with_ties, TIED - stat.live as u64, "{stat:?}");
            assert!(stat.to_prometheus().contains("evicted_with_ties_total"));
            node.shutdown().await;
        });
    }
}
