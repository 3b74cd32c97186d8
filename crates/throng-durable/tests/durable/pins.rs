//! Pins: entities that the node keeps in memory, over failures and restarts; and monitors of failures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{Durable, DurableContext, EntityError, Node};
use tokio::time::{Instant, sleep};

use crate::{Counter, CounterClient, on_node};

/// Long enough for twenty failures with the longest back-off.
const LONG: Duration = Duration::from_secs(1200);

/// An entity that logs when it begins, and fails then if it shall.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "beacon", deps = Arc<Log>)]
struct Beacon {
    lit: u64,
}

#[derive(Debug)]
struct Log {
    epoch: Instant,
    begun: Mutex<Vec<Duration>>,
    fails: AtomicBool,
}

impl Log {
    fn new() -> Arc<Log> {
        Arc::new(Log {
            epoch: Instant::now(),
            begun: Mutex::default(),
            fails: AtomicBool::new(false),
        })
    }

    /// Returns the times at which the entities began, and forgets them.
    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.begun.lock().unwrap())
    }
}

#[process]
impl Beacon {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        let log = cx.deps();
        log.begun.lock().unwrap().push(log.epoch.elapsed());
        assert!(!log.fails.load(Ordering::Relaxed), "the lamp is broken");
    }
    /// Changes the state, and returns the pid.
    #[message]
    fn light(&mut self, cx: &mut Context<Self>) -> Pid {
        self.lit += 1;
        cx.pid()
    }
}

/// Starts a node whose sweeper makes a step each second.
fn start(sim: &Sim, log: &Arc<Log>) -> Node {
    let node = sim.start(Node::options("").idle_after(LONG / 4)).unwrap();
    node.register::<Beacon>(log.clone());
    node
}

#[test]
fn a_pin_wakes_its_entity_at_each_start_until_it_is_removed() {
    sim::check(3, |sim: Sim| async move {
        let log = Log::new();
        let mut node = start(&sim, &log);
        // One is stored before, one has nothing but its pin.
        node.entity::<Beacon>("stored").light().await.unwrap();
        node.entity::<Beacon>("stored").pin().await.unwrap();
        node.entity::<Beacon>("blank").pin().await.unwrap();
        for round in 0..4 {
            sleep(Duration::from_secs(10)).await;
            assert_eq!((node.live(), log.take().len()), (2, 2), "round {round}");
            assert_eq!(node.stat().unwrap().pinned, 2);
            match round % 2 {
                0 => sim.crash(),
                _ => node.shutdown().await,
            }
            drop(node);
            node = start(&sim, &log);
        }
        sleep(Duration::from_secs(10)).await;
        log.take();
        node.entity::<Beacon>("stored").unpin().await.unwrap();
        node.entity::<Beacon>("blank").forget().await.unwrap();
        sleep(LONG).await;
        for _ in 0..2 {
            let stat = node.stat().unwrap();
            assert_eq!((node.live(), stat.pinned, stat.pinned_failures), (0, 0, 0));
            assert_eq!(stat.stored["beacon"], 1);
            log.take();
            sim.crash();
            node = start(&sim, &log);
            sleep(Duration::from_secs(10)).await;
            assert_eq!(log.take().len(), 0, "it was woken without a pin");
        }
        node.entity::<Beacon>("stored").pin().await.unwrap();
        node.entity::<Beacon>("stored").forget().await.unwrap();
        sim.crash();
        node = start(&sim, &log);
        sleep(Duration::from_secs(10)).await;
        assert_eq!((node.live(), node.stat().unwrap().pinned), (0, 0));
    });
}

#[test]
fn a_kind_that_is_registered_late_has_its_pinned_entities_woken_then() {
    sim::check(3, |sim: Sim| async move {
        let log = Log::new();
        let node = start(&sim, &log);
        node.entity::<Beacon>("it").pin().await.unwrap();
        sim.crash();
        let node = sim.start(Node::options("")).unwrap();
        // Named, but not registered.
        let called = node.entity::<Beacon>("other").light().await;
        assert!(matches!(called, Err(EntityError::NotRegistered { .. })), "{called:?}");
        sleep(Duration::from_secs(10)).await;
        assert_eq!((node.live(), node.stat().unwrap().pinned), (0, 1));
        node.register::<Beacon>(log);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(node.live(), 1);
        // A kind without dependencies may be registered, once and again.
        node.register::<Counter>(());
        node.register::<Counter>(());
        node.shutdown().await;
    });
}

#[test]
fn a_pinned_entity_that_fails_is_woken_again_after_a_back_off() {
    sim::check(2, |sim: Sim| async move {
        let log = Log::new();
        let node = start(&sim, &log);
        let beacon = node.entity::<Beacon>("it");
        beacon.pin().await.unwrap();
        let mut pid = beacon.light().await.unwrap();
        for _ in 0..3 {
            sleep(LONG).await;
            log.take();
            pid.kill();
            sleep(Duration::from_secs(2)).await;
            assert_eq!((node.live(), log.take().len()), (1, 1), "the first failure after a while");
            pid = beacon.light().await.unwrap();
        }
        sleep(LONG).await;
        log.fails.store(true, Ordering::Relaxed);
        pid.kill();
        sleep(LONG).await;
        let begun = log.take();
        let waits: Vec<_> = begun.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(waits.iter().all(|wait| *wait < Duration::from_secs(62)), "{waits:?}");
        let last = &waits[waits.len() - 10..];
        assert!(last.iter().all(|wait| *wait >= Duration::from_secs(30)), "{waits:?}");
        assert!(waits[..4].iter().all(|wait| *wait < Duration::from_secs(4)), "{waits:?}");
        let stat = node.stat().unwrap();
        assert_eq!(stat.pinned_failures as usize, 4 + begun.len(), "{stat:?}");

        log.fails.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(65)).await;
        assert_eq!((node.live(), log.take().len()), (1, 1), "it has recovered");
        // An entity that fails can be unpinned.
        log.fails.store(true, Ordering::Relaxed);
        beacon.light().await.unwrap().kill();
        sleep(LONG).await;
        beacon.unpin().await.unwrap();
        log.take();
        sleep(LONG).await;
        assert_eq!((node.live(), log.take().len()), (0, 0));
        node.shutdown().await;
    });
}

#[test]
fn many_pinned_entities_are_woken_at_a_bounded_rate() {
    const MANY: usize = 1_500;
    sim::check(1, |sim: Sim| async move {
        let log = Log::new();
        let node = start(&sim, &log);
        for number in 0..MANY {
            node.entity::<Beacon>(format!("{number}")).pin().await.unwrap();
        }
        sim.crash();
        log.take();
        let node = start(&sim, &log);
        sleep(Duration::from_millis(1_500)).await;
        let woken = log.take().len();
        assert!((500..=1_100).contains(&woken), "{woken}");
        sleep(Duration::from_secs(9)).await;
        assert_eq!((woken + log.take().len(), node.live()), (MANY, MANY));
    });
}

#[test]
fn a_monitor_tells_of_each_failure_and_of_the_end_of_the_node() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        let mut monitor = counter.monitor().unwrap();
        let mut other = counter.monitor().unwrap();
        assert!(node.entity::<Counter>("").monitor().is_err());
        counter.add(1).await.unwrap();
        counter.explode().await.unwrap_err();
        let failure = monitor.failed().await.unwrap();
        assert_eq!(failure.count, 1);
        assert!(failure.reason.contains("boom"), "{failure:?}");
        drop(monitor);
        assert_eq!(other.failed().await.unwrap(), failure);
        assert_eq!((counter.get().await.unwrap(), other.entity().key()), (1, "it"));
        node.shutdown().await;
        assert_eq!(other.failed().await, None);
        assert_eq!(counter.monitor().unwrap().failed().await, None);
    });
}

#[test]
fn an_entity_is_kept_as_long_as_somebody_keeps_it() {
    sim::check(3, |sim: Sim| async move {
        let log = Log::new();
        let mut node = start(&sim, &log);
        let beacon = node.entity::<Beacon>("a");
        let kept = [node.keep(&beacon).unwrap(), node.keep(&beacon).unwrap()];
        sleep(LONG * 2).await;
        assert_eq!(
            (log.take().len(), node.live()),
            (1, 1),
            "it was brought into memory, and stays"
        );
        // It comes back after a failure.
        let pid = beacon.light().await.unwrap();
        pid.kill();
        sleep(Duration::from_secs(10)).await;
        assert_eq!((log.take().len(), node.live()), (1, 1));
        let [first, second] = kept;
        drop(first);
        sleep(LONG * 2).await;
        assert_eq!(node.live(), 1, "another one keeps it");
        // A pin and its removal do not end that, nor does the entity's removal.
        beacon.pin().await.unwrap();
        beacon.unpin().await.unwrap();
        second.entity().forget().await.unwrap();
        sleep(LONG * 2).await;
        assert_eq!((node.live(), node.stat().unwrap().pinned), (1, 1));
        // A pin outlives those who keep it.
        beacon.pin().await.unwrap();
        drop(second);
        sleep(LONG * 2).await;
        assert_eq!(node.live(), 1);
        beacon.unpin().await.unwrap();
        sleep(LONG * 2).await;
        assert_eq!((node.live(), node.stat().unwrap().pinned), (0, 0));
        // Nothing of it is stored.
        let _kept = node.keep(&beacon).unwrap();
        log.take();
        sim.crash();
        node = start(&sim, &log);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(log.take().len(), 0);
        assert!(node.keep(&node.entity::<Beacon>("")).is_err());
    });
}
