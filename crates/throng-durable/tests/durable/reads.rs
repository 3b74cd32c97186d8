//! Handlers with `&self`, which only read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, EntityError, Unit};
use tracing::Instrument;

use crate::{BlockedWriter, begin, on_node, stored};

/// A state that counts its encodings, and can change behind `&self`.
#[derive(Default, Deserialize, Durable)]
#[durable(kind = "counted")]
struct Counted {
    number: AtomicU64,
    /// Number of times that this activation has encoded the state.
    #[serde(skip)]
    encoded: AtomicUsize,
}

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            number: u64,
        }
        self.encoded.fetch_add(1, Ordering::Relaxed);
        Fields { number: self.number.load(Ordering::Relaxed) }.serialize(serializer)
    }
}

#[process]
impl Counted {
    #[message]
    fn set(&mut self, number: u64) {
        *self.number.get_mut() = number;
    }

    #[message]
    fn get(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    #[message]
    fn encoded(&self) -> usize {
        self.encoded.load(Ordering::Relaxed)
    }

    #[message]
    async fn get_slowly(&self) -> u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.number.load(Ordering::Relaxed)
    }

    #[message]
    fn put(&self, value: u64, cx: &mut Context<Self>) {
        cx.cells::<Unit, u64>("cell").put(&(), &value);
    }

    #[message]
    fn cell(&self, cx: &mut Context<Self>) -> Option<u64> {
        cx.cells::<Unit, u64>("cell").get(&()).unwrap()
    }

    #[message]
    fn set_behind(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    #[message]
    fn fail(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_turn_that_reads_does_not_encode_the_state() {
    on_node(async |node| {
        let it = node.entity::<Counted>("it");
        // Nothing is stored yet: a cell brings the state with it.
        it.put(1).await.unwrap();
        assert_eq!(stored(node, "counted"), 1);
        it.set(7).await.unwrap();
        let encoded = it.encoded().await.unwrap();
        let commits = node.stat().unwrap().store.commits;
        for _ in 0..10 {
            assert_eq!(it.get().await.unwrap(), 7);
            assert_eq!(it.get_slowly().await.unwrap(), 7);
            assert_eq!(it.call(Get {}.in_current_span()).await.unwrap(), 7);
        }
        assert_eq!(node.stat().unwrap().store.commits, commits);
        it.put(2).await.unwrap();
        assert_eq!(node.stat().unwrap().store.commits, commits + 1);
        assert_eq!(it.encoded().await.unwrap(), encoded);

        // A change behind `&self` is not stored with its turn, but a cell is.
        it.set_behind(8).await.unwrap();
        assert_eq!(it.get().await.unwrap(), 8);
        assert!(matches!(it.fail().await, Err(EntityError::Panicked(_))));
        assert_eq!(it.get().await.unwrap(), 7);
        assert_eq!(it.cell().await.unwrap(), Some(2));
    });
}

#[test]
fn a_reply_that_shows_a_change_waits_until_it_is_on_disk() {
    on_node(async |node| {
        let it = node.entity::<Counted>("gated");
        it.set(1).await.unwrap();
        let blocked = BlockedWriter::new(node).await;
        let set = begin(it.set(2)).await;
        let get = begin(it.get()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!set.is_finished() && !get.is_finished());
        drop(blocked);
        set.await.unwrap().unwrap();
        assert_eq!(get.await.unwrap().unwrap(), 2);
    });
}
