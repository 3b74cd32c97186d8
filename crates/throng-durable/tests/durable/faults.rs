//! User code that fails while an entity is brought into memory: the failure is an error of that
//! entity's callers and blocks no other entity.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::de::Deserializer;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, EntityError, Node, OldState, ReadError, StateError};

use crate::{on_node, until};

/// The step of an activation that fails; each test has a type of its own.
macro_rules! fragile {
    ($name:ident, $kind:literal) => {
        #[derive(Debug, Serialize)]
        struct $name {
            count: u64,
        }
        impl $name {
            const FAILS_DEFAULT: &'static AtomicBool = {
                static FAILS: AtomicBool = AtomicBool::new(false);
                &FAILS
            };
            const FAILS_DECODING: &'static AtomicBool = {
                static FAILS: AtomicBool = AtomicBool::new(false);
                &FAILS
            };
            const FAILS_STARTED: &'static AtomicBool = {
                static FAILS: AtomicBool = AtomicBool::new(false);
                &FAILS
            };
        }
        impl Default for $name {
            fn default() -> Self {
                assert!(!Self::FAILS_DEFAULT.load(Ordering::SeqCst), "no default");
                $name { count: 0 }
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                assert!(!Self::FAILS_DECODING.load(Ordering::SeqCst), "no decoding");
                Ok($name { count: u64::deserialize(deserializer)? })
            }
        }
        impl Process for $name {
            async fn started(&mut self, _: &mut Context<Self>) {
                self.count += 1_000;
                tokio::task::yield_now().await;
                assert!(!Self::FAILS_STARTED.load(Ordering::SeqCst), "not started");
                self.count -= 1_000;
            }
        }
        impl Durable for $name {
            const KIND: &'static str = $kind;
            type Deps = ();
            fn initial(_: &str, (): &()) -> Self {
                Self::default()
            }
        }
        impl Handle<Add> for $name {
            async fn handle(&mut self, _: Add, _: &mut Context<Self>) -> u64 {
                self.count += 1;
                self.count
            }
        }
    };
}

struct Add;
impl Message for Add {
    type Reply = u64;
}

fragile!(Fragile, "fragile");

#[test]
fn a_panic_while_an_entity_is_loaded_is_its_callers_error() {
    let panicked = |error: &EntityError, text: &str| match error {
        EntityError::Panicked(found) => found.message() == text,
        _ => false,
    };
    on_node(async |node| {
        let fragile = node.entity::<Fragile>("it");
        let other = node.entity::<Fragile>("other");
        assert_eq!(fragile.call(Add).await.unwrap(), 1);
        other.call(Add).await.unwrap();
        let mut count = 1;
        for (fails, text) in [
            (Fragile::FAILS_DEFAULT, "no default"),
            (Fragile::FAILS_DECODING, "no decoding"),
            (Fragile::FAILS_STARTED, "not started"),
        ] {
            for _ in 0..10 {
                leave(node, &fragile).await;
                fails.store(true, Ordering::SeqCst);
                let calls: Vec<_> = (0..10).map(|_| tokio::spawn(fragile.call(Add))).collect();
                for call in calls {
                    let error = call.await.unwrap().unwrap_err();
                    assert!(panicked(&error, text), "{error}");
                }
                match fragile.send(Add) {
                    // Detected in the caller: the message is handed back.
                    Err(unsent) => assert!(panicked(&unsent.error, text), "{unsent}"),
                    Ok(()) => assert_ne!(text, "no default"),
                }
                // An entity that is in memory is not affected.
                other.call(Add).await.unwrap();
                // The activation for the message that was only sent fails as well.
                while node.live() > 1 {
                    let _ = fragile.call(Add).await;
                    tokio::task::yield_now().await;
                }
                fails.store(false, Ordering::SeqCst);
                count += 1;
                assert_eq!(fragile.call(Add).await.unwrap(), count, "{text}");
            }
        }
    });
}

#[process(manual)]
impl Fragile {
    #[message]
    fn leave(&mut self, cx: &mut Context<Self>) {
        cx.stop(ExitReason::Normal);
    }
}

/// Ends the entity's process.
async fn leave(node: &Node, fragile: &throng_durable::Entity<Fragile>) {
    fragile.leave().await.unwrap();
    until(async || node.live() <= 1).await;
}

/// A state that an older version stored.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "slow")]
struct Old(u64);
impl Process for Old {}
impl Handle<Add> for Old {
    async fn handle(&mut self, _: Add, _: &mut Context<Self>) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// A state whose migration takes as long as the test wants.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "slow", version = 2, migrate = Slow::from_old)]
struct Slow(u64);
static MIGRATION: Mutex<()> = Mutex::new(());
static MIGRATING: AtomicUsize = AtomicUsize::new(0);
impl Process for Slow {}
impl Slow {
    fn from_old(old: OldState<'_>) -> Result<Self, StateError> {
        MIGRATING.fetch_add(1, Ordering::SeqCst);
        drop(MIGRATION.lock().unwrap());
        old.decode().map(|Old(count)| Slow(count))
    }
}
impl Handle<Add> for Slow {
    async fn handle(&mut self, _: Add, _: &mut Context<Self>) -> u64 {
        self.0 += 1;
        self.0
    }
}

#[test]
fn a_migration_that_blocks_blocks_only_its_own_callers() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = crate::runtime();
    let node = Node::options(directory.path()).open(&runtime).unwrap();
    runtime.block_on(async |_| {
        node.entity::<Old>("it").call(Add).await.unwrap();
        node.shutdown().await;
    });
    drop(node);
    let node = Node::options(directory.path()).open(&runtime).unwrap();
    let held = MIGRATION.lock().unwrap();
    let slow = node.entity::<Slow>("it");
    let sender = std::thread::spawn({
        let slow = slow.clone();
        // The message is sent nevertheless, by a thread that does not wait for the migration.
        move || slow.send(Add).map_err(|unsent| unsent.error)
    });
    while MIGRATING.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    sender.join().unwrap().unwrap();
    // Enough entities to need each shard's lock.
    let others = async {
        for number in 0..1_000 {
            assert_eq!(node.entity::<Slow>(format!("{number}")).call(Add).await.unwrap(), 1);
        }
    };
    let done = runtime.block_on(async |_| tokio::time::timeout(crate::HANGS_AFTER, others).await);
    assert!(done.is_ok(), "they wait for the migration");
    drop(held);
    runtime.block_on(async |_| {
        // The older version's count is 1, and the sent message added 1.
        assert_eq!(slow.call(Add).await.unwrap(), 3);
        node.shutdown().await;
    });
}

/// A state that is easily found in a file.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "page")]
struct Page(String);
#[process]
impl Page {
    /// Replaces the text, and returns its length before.
    #[message]
    fn rewrite(&mut self, text: String) -> usize {
        std::mem::replace(&mut self.0, text).len()
    }
}

#[test]
fn a_damaged_state_is_its_callers_error_and_no_others() {
    const TEXT: &str = "a text that stands nowhere else in the file";
    let directory = tempfile::tempdir().unwrap();
    let runtime = crate::runtime();
    let node = || Node::options(directory.path()).open(&runtime).unwrap();
    let first = node();
    runtime.block_on(async |_| {
        first.entity::<Page>("whole").rewrite("whole".into()).await.unwrap();
        first.entity::<Page>("it").rewrite(TEXT.into()).await.unwrap();
        first.shutdown().await;
    });
    drop(first);

    let path = directory.path().join("data.mdb");
    let mut bytes = std::fs::read(&path).unwrap();
    let found = |at: &usize| bytes[*at..].starts_with(TEXT.as_bytes());
    let places: Vec<_> = (0..bytes.len()).filter(found).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at] ^= 1);
    std::fs::write(&path, bytes).unwrap();

    let second = node();
    runtime.block_on(async |_| {
        let it = second.entity::<Page>("it");
        for _ in 0..3 {
            let refused = it.rewrite(String::new()).await;
            assert!(
                matches!(refused, Err(EntityError::Load(ReadError::Corrupt(_)))),
                "{refused:?}"
            );
        }
        assert_eq!(second.entity::<Page>("whole").rewrite(String::new()).await.unwrap(), 5);
        second.shutdown().await;
    });
}
