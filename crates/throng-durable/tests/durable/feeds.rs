//! Feeds: a reader that follows the entities of a kind has what is on disk, after cuts and kills as well.
//!
//! `THRONG_FEED_SEEDS` is the number of seeds of the simulated followers, `THRONG_SIM_SEED` the only one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{
    Changes, Durable, Entity, EntityError, FeedError, FeedPosition, ForEachCause, Node, Options,
};
use throng_store::Store;
use tokio::time::{sleep, timeout};

use crate::{Counter, CounterClient, draw_faults, end, number_or, on_node, start_again, with_node};

/// An entity of another kind.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "other")]
struct Other {
    changes: u64,
}

#[process]
impl Other {
    #[message]
    fn change(&mut self) {
        self.changes += 1;
    }
}

/// A copy of all counters, with its position: what a reader keeps in one transaction of its own. And the number of times
/// that it has read all.
#[derive(Clone, Default)]
struct Follower(Arc<Mutex<Followed>>, Arc<AtomicU64>);

type Followed = (BTreeMap<String, u64>, Option<FeedPosition>);

impl Follower {
    /// Follows until the node is gone.
    async fn follow(&self, node: Node) -> Result<(), FeedError> {
        let weak = node.downgrade();
        let position = self.0.lock().unwrap().1;
        let mut followed = match position.map(|position| node.changes(Some(position))) {
            Some(Ok(changes)) => self.read(changes).await,
            Some(Err(error)) => Err(error),
            None => Err(FeedError::Lost { reason: "nothing was read".into() }),
        };
        drop(node);
        while let Err(FeedError::Lost { .. }) = followed {
            let Some(node) = weak.upgrade() else { return Ok(()) };
            let changes = node.changes(None)?;
            if self.read_all(&node).await.is_err() {
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            drop(node);
            self.1.fetch_add(1, Ordering::Relaxed);
            followed = self.read(changes).await;
        }
        followed
    }

    async fn read(&self, mut changes: Changes<Counter>) -> Result<(), FeedError> {
        while let Some(commit) = changes.next().await? {
            let (counters, position) = &mut *self.0.lock().unwrap();
            for change in commit.changed {
                match change.state().unwrap() {
                    Some(counter) => _ = counters.insert(change.key().to_owned(), counter.count),
                    None if change.is_removed() => _ = counters.remove(change.key()),
                    None => {}
                }
            }
            *position = Some(changes.position());
        }
        Ok(())
    }

    /// Reads all counters; the changes behind the position come again, and end at the same.
    async fn read_all(&self, node: &Node) -> Result<(), EntityError> {
        self.0.lock().unwrap().0.clear();
        let add = |counter: Entity<Counter>| {
            let follower = self.clone();
            async move {
                let count = counter.get().await?;
                follower.0.lock().unwrap().0.insert(counter.key().to_owned(), count);
                Ok(())
            }
        };
        match node.for_each(2, None, add).await {
            Ok(_) => Ok(()),
            Err(failed) => match failed.cause {
                ForEachCause::Work(error) => Err(error),
                cause => panic!("{cause}"),
            },
        }
    }
}

fn options() -> Options {
    let store = Store::options().map_bytes(32 << 20).checkpoint_bytes(4 << 10).keep_log(true);
    Node::options("").store(store).idle_after(Duration::from_millis(100)).live_max(2)
}

#[test]
fn simulated_followers_have_what_is_on_disk() {
    let seeds = number_or("THRONG_FEED_SEEDS", 25);
    let (commits, read) = (AtomicU64::new(0), AtomicU64::new(0));
    sim::check(seeds, |sim: Sim| {
        let (commits, read) = (&commits, &read);
        async move {
            let follower = Follower::default();
            for _ in 0..4 {
                let node = start_again(&sim, options);
                let following = {
                    let (follower, node) = (follower.clone(), node.clone());
                    tokio::spawn(async move { follower.follow(node).await })
                };
                draw_faults::<Counter>(&sim, 200);
                for _ in 0..sim.random(30) {
                    let counter = node.entity::<Counter>(sim.random(5).to_string());
                    let outcome = match sim.random(8) {
                        0 => counter.forget().await.map(|()| 0),
                        _ => counter.add(1).await,
                    };
                    commits.fetch_add(u64::from(outcome.is_ok()), Ordering::Relaxed);
                }
                end(&sim, node).await;
                following.abort();
                let _ = following.await;
            }
            let node = start_again(&sim, options);
            let following = {
                let (follower, node) = (follower.clone(), node.clone());
                tokio::spawn(async move { follower.follow(node).await })
            };
            for key in 0..5 {
                node.entity::<Counter>(key.to_string()).add(1).await.unwrap();
            }
            sleep(Duration::from_millis(100)).await;
            let (counters, _) = follower.0.lock().unwrap().clone();
            for key in 0..5 {
                let count = node.entity::<Counter>(key.to_string()).get().await.unwrap();
                assert_eq!(counters.get(&key.to_string()), Some(&count), "counter {key}");
            }
            node.shutdown().await;
            assert!(following.await.unwrap().is_ok(), "the follower ends with the node");
            read.fetch_add(follower.1.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    });
    assert!(commits.into_inner() > seeds * 10);
    // Once at first, and after groups that went around the log.
    assert!(read.into_inner() < seeds * 3, "nearly nothing is followed");
}

#[test]
fn a_feed_wakes_at_once_and_shows_no_other_kinds() {
    on_node(async |node| {
        let mut changes = node.changes::<Counter>(None).unwrap();
        assert!(timeout(Duration::from_millis(20), changes.next()).await.is_err());
        let counter = node.entity::<Counter>("a");
        let (changed, _) = tokio::join!(changes.next(), counter.add(5));
        let commit = changed.unwrap().unwrap();
        assert_eq!(commit.changed.len(), 1);
        assert_eq!(commit.changed[0].key(), "a");
        assert_eq!(commit.changed[0].state().unwrap().unwrap().count, 5);
        node.entity::<Other>("a").change().await.unwrap();
        counter.forget().await.unwrap();
        let commit = changes.next().await.unwrap().unwrap();
        assert!(commit.changed[0].is_removed() && commit.changed[0].state().unwrap().is_none());
    });
}

#[test]
fn work_for_each_entity_is_bounded_and_goes_on_behind_a_failure() {
    with_node(
        |options| options,
        async |node| {
            for key in 0..250 {
                node.entity::<Counter>(format!("{key:03}")).add(1).await.unwrap();
            }
            let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let add = |counter: Entity<Counter>| {
                let (under_way, most) = (under_way.clone(), most.clone());
                async move {
                    most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    counter.add(1).await?;
                    sleep(Duration::from_millis(1)).await;
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    match counter.key() {
                        "100" if counter.get().await? == 2 => Err(EntityError::Died),
                        _ => Ok(()),
                    }
                }
            };
            let failed = node.for_each(8, None, add).await.unwrap_err();
            assert_eq!(failed.after.as_deref(), Some("099"));
            assert!(matches!(failed.cause, ForEachCause::Work(EntityError::Died)), "{failed}");
            let rest = node.for_each(8, failed.after.as_deref(), add).await.unwrap();
            assert_eq!(rest, 150);
            assert_eq!(most.load(Ordering::SeqCst), 8);
            for key in 0..250 {
                let count = node.entity::<Counter>(format!("{key:03}")).get().await.unwrap();
                // Those behind the failure that were under way were done twice.
                assert!((2..=3).contains(&count) && (key >= 100 || count == 2), "{key}: {count}");
            }
            let panicked = node.for_each(1, Some("248"), async |_: Entity<Counter>| panic!("boom"));
            let panicked: throng_durable::ForEachError<EntityError> = panicked.await.unwrap_err();
            assert!(matches!(panicked.cause, ForEachCause::Panicked(_)), "{panicked}");
            assert_eq!((panicked.after.as_deref(), panicked.done), (Some("248"), 0));
        },
    );
}
