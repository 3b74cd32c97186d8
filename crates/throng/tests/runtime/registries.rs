//! Registries: processes by keys of any type, with values, and spawned by the first who asks.

use crate::{Actor, Add, Counter, Do, eventually, runtime, scaled};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use throng::prelude::*;
use throng::{MailboxBound, Overflow, RegisterError, Registry, SpawnError};

#[test]
fn a_key_leads_to_its_process_and_value_until_the_process_exits() {
    let runtime = runtime();
    let rooms: Registry<(u64, &str), Counter, u64> = Registry::new(&runtime);
    let (first, second) =
        (runtime.spawn(Counter::default()).unwrap(), runtime.spawn(Counter::default()).unwrap());
    rooms.register((7, "a"), first, 1).unwrap();
    rooms.register((7, "b"), first, 2).unwrap();
    let taken = RegisterError::Taken { name: (7, "a"), by: first.pid() };
    assert_eq!(rooms.register((7, "a"), second, 3), Err(taken));
    assert_eq!((rooms.get(&(7, "a")), rooms.value(&(7, "a"))), (Some(first), Some(1)));
    assert_eq!((rooms.get(&(8, "a")), rooms.value(&(8, "a"))), (None, None));
    assert_eq!((rooms.set(&(7, "b"), 4), rooms.set(&(8, "b"), 5)), (Ok(2), Err(5)));
    assert_eq!(rooms.unregister(&(7, "a")), Some(first));
    assert_eq!(rooms.unregister(&(7, "a")), None);
    rooms.register((7, "a"), second, 6).unwrap();
    assert_eq!(rooms.clone().len(), 2);
    assert!(runtime.registered().is_empty(), "a key is no name");
    runtime.block_on(async |_| {
        first.kill();
        first.pid().exited().await;
        assert_eq!((rooms.get(&(7, "b")), rooms.value(&(7, "b"))), (None, None));
        assert_eq!(rooms.set(&(7, "b"), 7), Err(7));
        let dead = RegisterError::NoProcess { name: (7, "b") };
        assert_eq!(rooms.register((7, "b"), first, 8), Err(dead));
        // What the dead process had given up is not its to take away.
        eventually(|| rooms.len() == 1).await;
        assert_eq!(rooms.value(&(7, "a")), Some(6));
    });
}

#[test]
fn a_range_and_a_prefix_are_in_order_and_complete() {
    let runtime = runtime();
    let all: Registry<String, Counter, usize> = Registry::new(&runtime);
    let mut keys: Vec<String> = (0..scaled(500)).map(|n| format!("{}/{}", n % 7, n)).collect();
    keys.push("3".to_owned());
    for key in &keys {
        let value = key.len();
        all.register(key.clone(), runtime.spawn(Counter::default()).unwrap(), value).unwrap();
    }
    keys.sort_unstable();
    let within = |low: Bound<&str>, high: Bound<&str>| {
        let range = all.range::<str>((low, high));
        assert!(
            range.iter().all(|entry| entry.value == entry.key.len() && entry.address.is_alive())
        );
        range.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    let (included, excluded) = (Bound::Included::<&str>, Bound::Excluded::<&str>);
    let table = [
        (Bound::Unbounded, Bound::Unbounded),
        (included("3/"), excluded("4/")),
        (included("3"), included("3")),
        (excluded("3"), included("5/9")),
        (included("9"), Bound::Unbounded),
        // These have no keys, and must not panic.
        (included("4"), excluded("3")),
        (included("4"), included("3")),
        (excluded("3"), excluded("3")),
        (excluded("3"), included("3")),
    ];
    for (low, high) in table {
        let holds = |key: &&String| {
            let above = match low {
                Bound::Included(low) => &***key >= low,
                Bound::Excluded(low) => &***key > low,
                Bound::Unbounded => true,
            };
            let below = match high {
                Bound::Included(high) => &***key <= high,
                Bound::Excluded(high) => &***key < high,
                Bound::Unbounded => true,
            };
            above && below
        };
        let expected: Vec<String> = keys.iter().filter(holds).cloned().collect();
        assert_eq!(within(low, high), expected, "{low:?} to {high:?}");
    }
    for prefix in ["", "3", "3/", "3/1", "x"] {
        let found: Vec<_> = all.prefix(prefix).into_iter().map(|entry| entry.key).collect();
        let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
        assert_eq!(found, expected, "{prefix:?}");
    }
}

#[test]
fn all_who_ask_at_once_get_the_process_that_one_of_them_spawns() {
    let runtime = runtime();
    for round in 0..scaled(200) {
        let rooms: Registry<u64, Counter> = Registry::new(&runtime);
        let made = AtomicU64::new(0);
        let make = || {
            made.fetch_add(1, Ordering::Relaxed);
            Counter::default()
        };
        let found: BTreeSet<Pid> = thread::scope(|scope| {
            let ask = || rooms.get_or_spawn(round, make).unwrap().pid();
            let threads = [(); 4].map(|()| scope.spawn(ask));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((found.len(), rooms.len()), (1, 1));
        let pid = *found.first().unwrap();
        runtime.block_on(async |_| {
            pid.kill();
            pid.exited().await;
        });
        assert_ne!(rooms.get_or_spawn(round, make).unwrap().pid(), pid, "it is dead");
    }
    // A killed process is counted for a moment after its exit was announced.
    runtime.block_on(async |runtime| eventually(|| runtime.process_count() <= scaled(200)).await);
    assert_eq!(runtime.process_count(), scaled(200));
}

#[test]
fn a_process_that_is_not_spawned_comes_back_and_leaves_no_key() {
    let runtime = Runtime::builder().workers(1).process_limit(1).start().unwrap();
    let rooms: Registry<u64, Counter> = Registry::new(&runtime);
    let first = rooms.get_or_spawn(1, Counter::default).unwrap();
    let refused = rooms.get_or_spawn(2, || Counter { count: 7 });
    assert!(matches!(refused, Err(SpawnError::Limit { process: Counter { count: 7 }, .. })));
    assert_eq!((rooms.len(), rooms.get(&1)), (1, Some(first)));
    let make = || -> Counter { panic!("on purpose") };
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rooms.get_or_spawn(2, make)));
    assert!(panicked.is_err());
    assert_eq!(
        rooms.get_or_spawn(1, make).unwrap(),
        first,
        "nothing was made for a key that is there"
    );
    assert_eq!(rooms.len(), 1);
}

#[test]
fn the_options_of_a_spawner_apply_to_the_process_that_is_spawned() {
    let runtime = runtime();
    let rooms: Registry<u64, Counter> = Registry::new(&runtime);
    runtime.block_on(async |runtime| {
        let parent = runtime.spawn(Actor).unwrap();
        let all = rooms.clone();
        let spawn = Do(move |_: &mut Actor, cx: &mut Context<Actor>| {
            let linked = cx.linked().mailbox(MailboxBound::new(1, Overflow::Reject));
            all.get_or_spawn_by(linked, 1, Counter::default).unwrap()
        });
        let room = parent.call(spawn).await.unwrap();
        assert_eq!(rooms.get(&1), Some(room));
        assert_eq!(room.call(Add(1)).await.unwrap(), 1);
        parent.kill();
        room.pid().exited().await;
        eventually(|| rooms.is_empty()).await;
    });
}

#[test]
fn a_value_whose_drop_panics_harms_nobody() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let runtime = runtime();
    let rooms: Registry<u64, Counter, Bad> = Registry::new(&runtime);
    let room = runtime.spawn(Counter::default()).unwrap();
    rooms.register(1, room, Bad).unwrap();
    rooms.register(2, room, Bad).unwrap();
    assert_eq!(rooms.unregister(&1), Some(room));
    runtime.block_on(async |_| {
        room.kill();
        room.pid().exited().await;
        eventually(|| rooms.is_empty()).await;
    });
}
