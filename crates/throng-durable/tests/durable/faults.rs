//! User code that fails while an entity is brought into memory: the failure is an error of that
//! entity's callers and blocks no other entity.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::de::Deserializer;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, EntityError, Node, OldState, ReadError, StateError};

use crate::{on_node, program, until};

/// The step of an activation that fails, by the text of its panic.
static FAILS: Mutex<&str> = Mutex::new("");

fn step(text: &str) {
    let fails = *FAILS.lock().unwrap();
    assert!(fails != text, "{text}");
}

#[derive(Debug, Durable, Serialize)]
#[durable(kind = "fragile")]
struct Fragile {
    count: u64,
}
impl Default for Fragile {
    fn default() -> Self {
        step("no default");
        Fragile { count: 0 }
    }
}
impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            count: u64,
        }
        step("no decoding");
        Fields::deserialize(deserializer).map(|Fields { count }| Fragile { count })
    }
}
#[process]
impl Fragile {
    #[hook]
    async fn started(&mut self) {
        self.count += 1_000;
        tokio::task::yield_now().await;
        step("not started");
        self.count -= 1_000;
    }
    #[message]
    fn add(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
    #[message]
    fn leave(&mut self, cx: &mut Context<Self>) {
        cx.stop(ExitReason::Normal);
    }
}

#[test]
fn a_panic_while_an_entity_is_loaded_is_its_callers_error() {
    let panicked = |error: &EntityError, text: &str| match error {
        EntityError::Panicked(found) => found.message() == text,
        _ => false,
    };
    on_node(async |node| {
        let fragile = node.entity::<Fragile>("it");
        let other = node.entity::<Fragile>("other");
        assert_eq!(fragile.add().await.unwrap(), 1);
        other.add().await.unwrap();
        let mut count = 1;
        for text in ["no default", "no decoding", "not started"] {
            for _ in 0..10 {
                leave(node, &fragile).await;
                *FAILS.lock().unwrap() = text;
                let calls: Vec<_> = (0..10).map(|_| tokio::spawn(fragile.add())).collect();
                for call in calls {
                    let error = call.await.unwrap().unwrap_err();
                    assert!(panicked(&error, text), "{error}");
                }
                match fragile.send_add() {
                    // Detected in the caller: the message is handed back.
                    Err(unsent) => assert!(panicked(&unsent.error, text), "{unsent}"),
                    Ok(()) => assert_ne!(text, "no default"),
                }
                // An entity that is in memory is not affected.
                other.add().await.unwrap();
                // The activation for the message that was only sent fails as well.
                while node.live() > 1 {
                    let _ = fragile.add().await;
                    tokio::task::yield_now().await;
                }
                *FAILS.lock().unwrap() = "";
                count += 1;
                assert_eq!(fragile.add().await.unwrap(), count, "{text}");
            }
        }
    });
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
#[process]
impl Old {
    #[message(name = AddOld)]
    fn add(&mut self) -> u64 {
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
#[process]
impl Slow {
    fn from_old(old: OldState<'_>) -> Result<Self, StateError> {
        MIGRATING.fetch_add(1, Ordering::SeqCst);
        drop(MIGRATION.lock().unwrap());
        old.decode().map(|Old(count)| Slow(count))
    }
    #[message(name = AddSlow)]
    fn add(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

#[test]
fn a_migration_that_blocks_blocks_only_its_own_callers() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = crate::runtime();
    program(Node::options(directory.path()), async |node| {
        node.entity::<Old>("it").add().await.unwrap();
    });
    let node = Node::options(directory.path()).open(&runtime).unwrap();
    let held = MIGRATION.lock().unwrap();
    let slow = node.entity::<Slow>("it");
    let sender = std::thread::spawn({
        let slow = slow.clone();
        // The message is sent nevertheless, by a thread that does not wait for the migration.
        move || slow.send_add().map_err(|unsent| unsent.error)
    });
    while MIGRATING.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    sender.join().unwrap().unwrap();
    // Enough entities to need each shard's lock.
    let others = async {
        for number in 0..1_000 {
            assert_eq!(node.entity::<Slow>(format!("{number}")).add().await.unwrap(), 1);
        }
    };
    let done = runtime.block_on(async |_| tokio::time::timeout(crate::HANGS_AFTER, others).await);
    assert!(done.is_ok(), "they wait for the migration");
    drop(held);
    runtime.block_on(async |_| {
        // The older version's count is 1, and the sent message added 1.
        assert_eq!(slow.add().await.unwrap(), 3);
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
    program(Node::options(directory.path()), async |first| {
        first.entity::<Page>("whole").rewrite("whole".into()).await.unwrap();
        first.entity::<Page>("it").rewrite(TEXT.into()).await.unwrap();
    });

    let path = directory.path().join("data.mdb");
    let mut bytes = std::fs::read(&path).unwrap();
    let found = |at: &usize| bytes[*at..].starts_with(TEXT.as_bytes());
    let places: Vec<_> = (0..bytes.len()).filter(found).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at] ^= 1);
    std::fs::write(&path, bytes).unwrap();

    program(Node::options(directory.path()), async |second| {
        let it = second.entity::<Page>("it");
        for _ in 0..3 {
            let refused = it.rewrite(String::new()).await;
            assert!(
                matches!(refused, Err(EntityError::Load(ReadError::Corrupt(_)))),
                "{refused:?}"
            );
        }
        assert_eq!(second.entity::<Page>("whole").rewrite(String::new()).await.unwrap(), 5);
    });
}
