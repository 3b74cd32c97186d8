//! The simulator of a node: power cuts, faults of the disk, and time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use throng_durable::sim::{self, Sim};
use throng_durable::{EntityError, Node, OpenError, Options};

use crate::{Counter, CounterClient};

fn options() -> Options {
    Node::options("")
}

#[test]
fn a_power_cut_ends_the_node_and_the_next_one_has_what_was_acknowledged() {
    let kept = Rc::new(Cell::new([0; 2]));
    sim::check(60, |sim: Sim| {
        let kept = kept.clone();
        async move {
            let node = sim.start(options()).unwrap();
            let before = sim.disk().operations();
            let counter = node.entity::<Counter>("a");
            assert_eq!(counter.add(1).await.unwrap(), 1);
            assert!(sim.disk().operations() > before, "the turn reached the disk");
            // A flush on the way of this turn may be the last operation.
            sim.disk().cut_at(1 + sim.random(3));
            let outcome = counter.add(1).await;
            sim.crashed().await;
            assert!(sim.disk().is_down());
            sim.crash();
            assert!(matches!(counter.get().await, Err(EntityError::ShutDown)));

            let node = sim.start(options()).unwrap();
            let found = node.entity::<Counter>("a").get().await.unwrap();
            match outcome {
                Ok(count) => assert_eq!((count, found), (2, 2)),
                Err(EntityError::Unknown(_)) => assert!(found == 1 || found == 2, "{found}"),
                Err(EntityError::NotCommitted(_)) => assert_eq!(found, 1),
                Err(other) => panic!("{other}"),
            }
            let mut counts = kept.get();
            counts[found as usize - 1] += 1;
            kept.set(counts);
        }
    });
    // A power cut decides either way.
    assert!(kept.get().iter().all(|count| *count > 0), "{kept:?}");
}

#[test]
fn a_turn_under_way_at_a_power_cut_is_kept_as_a_whole_or_not_at_all() {
    sim::check(60, |sim| async move {
        let node = sim.start(options()).unwrap();
        let counter = node.entity::<Counter>("a");
        sim.spawn("client", async move { while counter.add(1).await.is_ok() {} });
        // Time stands still while the client goes on, so the moment is one of the schedule.
        for _ in 0..sim.random(100) {
            tokio::task::yield_now().await;
        }
        sim.crash();
        let node = sim.start(options()).unwrap();
        let found = node.entity::<Counter>("a").get().await.unwrap();
        assert_eq!(node.entity::<Counter>("a").add(1).await.unwrap(), found + 1);
        node.shutdown().await;
        drop(node);
        // The store was closed, and is opened again without a power cut.
        let node = sim.start(options()).unwrap();
        assert_eq!(node.entity::<Counter>("a").get().await.unwrap(), found + 1);
    });
}

#[test]
fn a_full_disk_refuses_turns_until_there_is_room() {
    sim::check(5, |sim| async move {
        let node = sim.start(options()).unwrap();
        let counter = node.entity::<Counter>("a");
        sim.disk().set_room(Some(0));
        // The room that the log has reserved is used up first.
        let mut count = 0;
        let refused = loop {
            match counter.add(1).await {
                Ok(added) => count = added,
                Err(error) => break error,
            }
            assert!(count < 10_000, "a full disk takes turns without end");
        };
        assert!(matches!(refused, EntityError::NotCommitted(_)), "{refused:?}");
        sim.disk().set_room(None);
        assert_eq!(counter.add(1).await.unwrap(), count + 1);
    });
}

#[test]
fn a_second_node_on_the_disk_is_refused_while_the_first_is_up() {
    sim::check(3, |sim| async move {
        let node = sim.start(options()).unwrap();
        assert!(matches!(sim.start(options()), Err(OpenError::InUse { .. })));
        assert_eq!(node.entity::<Counter>("a").add(1).await.unwrap(), 1);
        sim.crash();
        sim.start(options()).unwrap();
    });
}

#[test]
fn an_idle_store_is_written_to_lmdb_in_virtual_time() {
    sim::check(5, |sim| async move {
        let node = sim.start(options().idle_after(Duration::from_secs(3600))).unwrap();
        node.entity::<Counter>("a").add(1).await.unwrap();
        let stat = || node.stat().unwrap().store;
        let commits = |sim: &Sim| sim.disk().operations();
        let before = commits(&sim);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let after = commits(&sim);
        assert!(after > before, "nothing was written");
        assert_eq!(stat().commits, 1);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(commits(&sim), after, "a store without changes is written again");
    });
}
