//! Calls that take effect once: the reply is stored under the caller's id, in the commit of its effect.
//!
//! `THRONG_ONCE_SEEDS` is the number of seeds of the simulated callers, `THRONG_SIM_SEED` the only one.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{Durable, DurableContext, Entity, EntityError, Node, ONCE_ID_BYTES_MAX, Str};
use tokio::time::sleep;

use crate::{busy_options, number_or, on_node, set_clock, start_again};

/// An entity whose replies are never the same twice.
#[derive(Durable, Clone, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "till")]
struct Till {
    /// The numbers of all calls that took effect.
    taken: Vec<u64>,
}

#[process]
impl Till {
    /// Returns a receipt: the place of the call in the order of all.
    #[message]
    async fn take(&mut self, number: u64, waits: bool) -> Result<u64, String> {
        if waits {
            sleep(Duration::from_millis(5)).await;
        }
        self.taken.push(number);
        match number {
            13 => Err("unlucky".into()),
            _ => Ok(self.taken.len() as u64),
        }
    }

    #[message]
    fn all(&self) -> Vec<u64> {
        self.taken.clone()
    }

    #[message]
    fn fail(&mut self, number: u64) -> u64 {
        self.taken.push(number);
        panic!("asked for");
    }

    /// Fails the commit of the turn, with a key that is too long.
    #[message]
    fn spoil(&self, cx: &mut Context<Self>) -> u64 {
        cx.cells::<Str, ()>("spoiled").put(&"k".repeat(1_000), &());
        0
    }

    #[message]
    fn die(&self, cx: &mut Context<Self>) {
        cx.pid().kill();
    }
}

/// Replies by the number of the call.
type Replies = Arc<Mutex<BTreeMap<u64, Result<u64, String>>>>;

/// Makes calls, each again and again, and compares the replies.
async fn call(sim: Sim, node: Node, replies: Replies) {
    for _ in 0..12 {
        let number = sim.random(16);
        let till: Entity<Till> = node.entity((number % 2).to_string());
        let take = till.take(number, sim.random(3) == 0).once(number.to_string());
        match take.await {
            Ok(reply) => {
                let mut replies = replies.lock().unwrap();
                let first = replies.entry(number).or_insert_with(|| reply.clone());
                assert_eq!(*first, reply, "call {number} has two replies");
            }
            Err(EntityError::ShutDown) => return,
            Err(_) if sim.disk().is_down() => return,
            Err(_) => {}
        }
        if sim.random(8) == 0 {
            let _ = till.die().await;
        }
        sleep(Duration::from_millis(sim.random(4))).await;
    }
}

#[test]
fn simulated_calls_take_effect_once_and_always_have_the_same_reply() {
    sim::check(number_or("THRONG_ONCE_SEEDS", 60), |sim: Sim| async move {
        let replies = Replies::default();
        for _ in 0..3 {
            let node = start_again(&sim, busy_options);
            match sim.random(4) {
                0 => sim.disk().fail_randomly(30),
                1 => _ = sim.faults().crash::<Till>(10),
                _ => {}
            }
            sim.disk().cut_at(1 + sim.random(120));
            for _ in 0..4 {
                sim.spawn("caller", call(sim.clone(), node.clone(), replies.clone()));
            }
            sleep(Duration::from_millis(sim.random(100))).await;
            sim.faults().stop();
            sim.crash();
            sim.disk().heal();
        }
        let node = start_again(&sim, busy_options);
        for key in 0..2_u64 {
            let taken = node.entity::<Till>(key.to_string()).all().await.unwrap();
            let mut once = taken.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), taken.len(), "a call took effect twice: {taken:?}");
            for (number, reply) in &*replies.lock().unwrap() {
                if number % 2 == key {
                    let place = taken.iter().position(|own| own == number);
                    let place = place.unwrap_or_else(|| panic!("call {number} was lost")) as u64;
                    assert!(*reply == Ok(place + 1) || *number == 13, "{number}: {reply:?}");
                }
            }
        }
    });
}

#[test]
fn a_reply_expires_and_its_records_are_removed() {
    sim::check(1, |sim: Sim| async move {
        let node = start_again(&sim, busy_options);
        let till = node.entity::<Till>("it");
        let take =
            |number| till.take(number, false).once("id").expires_after(Duration::from_secs(60));
        assert_eq!(take(1).await.unwrap(), Ok(1));
        let entries = node.stat().unwrap().store.entries;
        // The effect of the second call is that of the first, for as long as its reply is kept.
        sleep(Duration::from_secs(59)).await;
        assert_eq!(take(2).await.unwrap(), Ok(1));
        sleep(Duration::from_secs(2)).await;
        assert_eq!(take(3).await.unwrap(), Ok(2));
        assert_eq!(till.all().await.unwrap(), [1, 3]);
        // More than are removed in a step.
        for id in 0..1_100 {
            let take = till.take(4, false).once(id.to_string());
            let _ = take.expires_after(Duration::from_secs(1)).await.unwrap();
        }
        sleep(Duration::from_secs(120)).await;
        assert_eq!(node.stat().unwrap().store.entries, entries - 2, "records are left");
    });
}

#[test]
fn a_reply_is_removed_from_among_many_that_are_kept() {
    sim::check(1, |sim: Sim| async move {
        let node = start_again(&sim, busy_options);
        let till = node.entity::<Till>("it");
        // More than the sweeper reads at a time, and all before the one that expires.
        for id in 0..2_100 {
            till.take(1, false).once(id.to_string()).await.unwrap().unwrap();
        }
        let entries = node.stat().unwrap().store.entries;
        let last = till.take(1, false).once("last").expires_after(Duration::from_secs(1));
        last.await.unwrap().unwrap();
        sleep(Duration::from_secs(10)).await;
        assert_eq!(node.stat().unwrap().store.entries, entries);
        assert_eq!(till.take(1, false).once("2099").await.unwrap(), Ok(2_100));
    });
}

#[test]
fn no_reply_is_left_after_a_failed_turn_or_a_clock_that_was_set() {
    sim::check(1, |sim: Sim| async move {
        let skew = set_clock(&sim);
        let kept = Duration::from_secs(160);
        let node = sim.start(busy_options().idle_after(kept * 100)).unwrap();
        let till = node.entity::<Till>("it");
        let first = till.take(1, false).once("first").expires_after(Duration::from_secs(1));
        first.await.unwrap().unwrap();
        sleep(Duration::from_secs(10)).await;
        let entries = || node.stat().unwrap().store.entries;
        let before = entries();
        // The turn that is not committed would have stored the record of the expiry.
        till.spoil().once("a").expires_after(kept).await.unwrap_err();
        till.take(1, false).once("b").expires_after(kept).await.unwrap().unwrap();
        assert_eq!(entries(), before + 2);
        skew.store(200, Ordering::Relaxed);
        sleep(Duration::from_millis(1_100)).await;
        assert_eq!(entries(), before);
        // The record of this expiry was stored, and is gone.
        skew.store(0, Ordering::Relaxed);
        till.take(1, false).once("c").expires_after(kept).await.unwrap().unwrap();
        assert_eq!(entries(), before + 2);
        sleep(kept * 2).await;
        assert_eq!(entries(), before);
    });
}

#[test]
fn a_second_call_waits_for_the_first_and_gets_its_reply() {
    on_node(async |node| {
        let till = node.entity::<Till>("it");
        let call = |number| tokio::spawn(till.take(number, true).once("id").into_future());
        let calls: Vec<_> = (0..20).map(call).collect();
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), Ok(1));
        }
        // An error that the handler returns is a reply.
        assert_eq!(till.take(13, false).once("other").await.unwrap(), Err("unlucky".into()));
        assert_eq!(till.take(14, false).once("other").await.unwrap(), Err("unlucky".into()));
        assert_eq!(till.all().await.unwrap().len(), 2);
        // The same id means another call to another entity.
        assert_eq!(node.entity::<Till>("two").take(1, false).once("id").await.unwrap(), Ok(1));
    });
}

#[test]
fn a_turn_that_fails_stores_no_reply() {
    on_node(async |node| {
        let till = node.entity::<Till>("it");
        for _ in 0..2 {
            let failed = till.fail(1).once("id").await;
            assert!(matches!(failed, Err(EntityError::Panicked(_))), "{failed:?}");
        }
        assert_eq!(till.take(2, false).once("id").await.unwrap(), Ok(1));
    });
}

#[test]
fn a_reply_that_is_not_to_be_stored_leaves_its_id_unused() {
    on_node(async |node| {
        let till = node.entity::<Till>("it");
        // With a span, too.
        let take = async |number| {
            let till = till.clone().in_current_span();
            till.take(number, false).once("id").stored_if(Result::is_ok).await.unwrap()
        };
        for _ in 0..2 {
            assert_eq!(take(13).await, Err("unlucky".into()));
        }
        for number in [1, 2, 13] {
            assert_eq!(take(number).await, Ok(3), "{number}");
        }
        assert_eq!(till.all().await.unwrap(), [13, 13, 1], "the changes are kept");
    });
}

#[test]
fn ids_that_are_not_valid_or_taken_are_refused() {
    on_node(async |node| {
        let till = node.entity::<Till>("it");
        for id in [String::new(), "i".repeat(ONCE_ID_BYTES_MAX + 1)] {
            let refused = till.take(1, false).once(id).await;
            assert!(matches!(refused, Err(EntityError::Once(_))), "{refused:?}");
        }
        let longest = "i".repeat(ONCE_ID_BYTES_MAX);
        let till = node.entity::<Till>("k".repeat(255));
        assert_eq!(till.take(1, false).once(longest.clone()).await.unwrap(), Ok(1));
        assert_eq!(till.take(2, false).once(longest.clone()).await.unwrap(), Ok(1));
        let refused = till.all().once(longest.clone()).await;
        assert!(matches!(refused, Err(EntityError::Once(_))), "{refused:?}");
        assert_eq!(till.all().await.unwrap(), [1]);
        till.forget().await.unwrap();
        assert_eq!(till.take(3, false).once(longest).await.unwrap(), Ok(1));
        assert_eq!(till.all().await.unwrap(), [3]);
    });
}

#[test]
fn a_reply_that_has_expired_is_not_used_and_one_that_is_stored_anew_stays() {
    sim::check(3, |sim: Sim| async move {
        // The sweeper makes a step each second.
        let node = sim.start(busy_options().idle_after(Duration::from_secs(400))).unwrap();
        let till = node.entity::<Till>("it");
        let take = |number| till.take(number, false).once("id");
        sleep(Duration::from_millis(1100)).await;
        assert_eq!(take(1).expires_after(Duration::from_millis(100)).await.unwrap(), Ok(1));
        sleep(Duration::from_millis(200)).await;
        assert_eq!(take(2).await.unwrap(), Ok(2));
        sleep(Duration::from_secs(10)).await;
        // An activation knows its own writes; the next one reads the store.
        till.die().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(take(3).await.unwrap(), Ok(2));
    });
}
