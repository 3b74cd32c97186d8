//! The stored entities of a kind: their number and their keys; and the numbers of kinds and maps.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{
    CellError, CommitError, Durable, DurableContext, EntityError, MAP_NAME_BYTES_MAX, Node, U64,
};

use crate::{BlockedWriter, HANGS_AFTER, begin_turn, on_node, program};

/// Puts a cell into a map.
struct Put(String, u64);
impl Message for Put {
    type Reply = ();
}

/// Returns the keys of the cells in a map.
struct List(&'static str);
impl Message for List {
    type Reply = Result<Vec<u64>, CellError>;
}

/// A kind that counts its turns.
macro_rules! kind {
    ($name:ident, $kind:literal) => {
        #[derive(Durable, Default, Serialize, Deserialize)]
        #[durable(kind = $kind)]
        struct $name(u64);
        impl Process for $name {}
        impl Handle<Put> for $name {
            async fn handle(&mut self, Put(map, key): Put, cx: &mut Context<Self>) {
                self.0 += 1;
                cx.cells::<U64, u64>(&map).put(&key, &key);
            }
        }
        impl Handle<List> for $name {
            async fn handle(
                &mut self,
                List(map): List,
                cx: &mut Context<Self>,
            ) -> Result<Vec<u64>, CellError> {
                cx.cells::<U64, u64>(map).range(..).map(|cell| Ok(cell?.0)).collect()
            }
        }
    };
}
kind!(A, "a");
kind!(Ab, "ab");
kind!(B, "b");

fn keys<P: Durable>(node: &Node, prefix: &str) -> Vec<String> {
    let stored = node.stored::<P>().unwrap();
    let keys: Vec<_> = stored.prefix(prefix).map(|key| key.unwrap().to_owned()).collect();
    let backward = stored.prefix(prefix).rev().map(|key| key.unwrap().to_owned());
    let mut backward: Vec<_> = backward.collect();
    backward.reverse();
    assert_eq!(keys, backward);
    keys
}

/// Asks for pages of `size` keys until there are no more.
fn pages(node: &Node, prefix: &str, size: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let stored = node.stored::<A>().unwrap();
        let last = all.last().map_or("", String::as_str);
        let page = stored.prefix(prefix).after(last).take(size);
        let page: Vec<_> = page.map(|key| key.unwrap().to_owned()).collect();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

#[test]
fn keys_are_listed_by_kind_and_prefix_in_their_order() {
    on_node(async |node| {
        assert_eq!(keys::<A>(node, ""), [""; 0]);
        assert_eq!(node.stored::<A>().unwrap().count().unwrap(), 0);
        let mut expected: Vec<_> = (0..40).map(|number| format!("user-{number}")).collect();
        expected.extend(
            ["\0", "\u{1}", "u", "user", "user.", "zo\u{eb}", "\u{10ffff}"].map(String::from),
        );
        expected.push("k".repeat(255));
        for key in &expected {
            node.entity::<A>(key).call(Put("m".into(), 1)).await.unwrap();
        }
        for key in ["user-1", "other"] {
            node.entity::<Ab>(key).call(Put("m".into(), 1)).await.unwrap();
        }
        // Nothing is stored of an entity that was only read.
        node.entity::<A>("read").call(List("m")).await.unwrap().unwrap();
        expected.sort();
        let with_prefix = |prefix: &str| {
            expected.iter().filter(|key| key.starts_with(prefix)).cloned().collect::<Vec<_>>()
        };
        for prefix in ["", "u", "user", "user-", "user-1", "user-11", "v", "\u{10ffff}", "\0"] {
            assert_eq!(keys::<A>(node, prefix), with_prefix(prefix), "{prefix:?}");
            for size in [1, 7, 100] {
                assert_eq!(pages(node, prefix, size), with_prefix(prefix), "{prefix:?}");
            }
        }
        assert_eq!(keys::<Ab>(node, ""), ["other", "user-1"]);

        let stored = node.stored::<A>().unwrap();
        assert_eq!(stored.count().unwrap(), expected.len() as u64);
        assert!(stored.contains("user-7").unwrap() && !stored.contains("other").unwrap());
        assert!(!stored.contains("").unwrap() && !stored.contains(&"k".repeat(300)).unwrap());
        // Bounds outside the prefix do not widen it.
        let between = stored.prefix("user-1").after("a").before("z").count();
        assert_eq!(between, with_prefix("user-1").len());
        let between = stored.keys().after("user-1").before("user-12");
        assert_eq!(between.map(Result::unwrap).collect::<Vec<_>>(), ["user-10", "user-11"]);
        assert_eq!(stored.keys().after("x").before("b").count(), 0);

        // The view is of one moment; the next one does without the entity.
        node.entity::<A>("user-7").forget().await.unwrap();
        assert!(stored.contains("user-7").unwrap());
        assert!(!node.stored::<A>().unwrap().contains("user-7").unwrap());
        assert_eq!(node.stored::<A>().unwrap().count().unwrap(), expected.len() as u64 - 1);
    });
}

#[test]
fn kinds_and_maps_keep_their_numbers_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    // In each round other kinds and maps are used first, and new ones are added.
    for (round, map) in ["one", "two", "three"].into_iter().enumerate() {
        program(Node::options(directory.path()), async |node| {
            match round {
                0 => node.entity::<B>("it").call(List("unused")).await.unwrap().unwrap(),
                1 => node.entity::<Ab>("it").call(List("two")).await.unwrap().unwrap(),
                _ => node.entity::<A>("it").call(List("three")).await.unwrap().unwrap(),
            };
            for number in 0..10 {
                node.entity::<A>("it").call(Put(map.into(), number)).await.unwrap();
                node.entity::<Ab>("it").call(Put("one".into(), 100 + number)).await.unwrap();
            }
            if round == 2 {
                node.entity::<B>("it").call(Put("one".into(), 7)).await.unwrap();
            }
            for (seen, map) in ["one", "two", "three"].into_iter().enumerate() {
                let listed = node.entity::<A>("it").call(List(map)).await.unwrap().unwrap();
                let expected = if seen <= round { (0..10).collect() } else { vec![] };
                assert_eq!(listed, expected, "{map} in round {round}");
            }
            let listed = node.entity::<Ab>("it").call(List("one")).await.unwrap().unwrap();
            assert_eq!(listed, (100..110).collect::<Vec<_>>());
        });
    }
}

/// Each row: whether the first turn of a new kind and a new map is lost, together with its numbers.
#[test]
fn a_lost_turn_loses_the_numbers_of_its_names_and_the_next_turn_stores_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = throng_store::Store::options().map_bytes(1 << 22);
    let options = || Node::options(directory.path()).store(store.clone());
    program(options(), async |node| {
        let blocked = BlockedWriter::new(node).await;
        // The store's file has no room for this batch, so all batches behind it are lost.
        let mut flood = throng_store::Batch::new().put(
            &node.store().default_database::<throng_store::Str, throng_store::Str>(),
            "\u{7f}",
            &"f".repeat(8 << 20),
        );
        node.store().submit(&mut flood, throng_store::Submission::START).unwrap();
        let entity = node.entity::<A>("it");
        let mut begun = Vec::new();
        for number in [1, 2] {
            let call = entity.call(Put("map".into(), number)).within(HANGS_AFTER);
            begun.push(begin_turn(node, call).await);
        }
        drop(blocked);
        for lost in begun {
            let lost = lost.await.unwrap();
            assert!(
                matches!(lost, Err(EntityError::NotCommitted(CommitError::Lost(_)))),
                "{lost:?}"
            );
        }
        entity.call(Put("map".into(), 3)).await.unwrap();
        entity.call(Put("map".into(), 4)).await.unwrap();
    });
    program(options(), async |node| {
        // If the numbers were not stored, this kind would get that of the other one.
        node.entity::<B>("it").call(Put("other".into(), 9)).await.unwrap();
        let listed = node.entity::<A>("it").call(List("map")).await.unwrap().unwrap();
        assert_eq!(listed, [3, 4]);
        assert_eq!(keys::<A>(node, ""), ["it"]);
        assert_eq!(keys::<B>(node, ""), ["it"]);
    });
}

#[test]
fn a_name_of_a_map_that_is_too_long_fails_the_turn() {
    on_node(async |node| {
        let entity = node.entity::<A>("it");
        entity.call(Put("m".repeat(MAP_NAME_BYTES_MAX), 1)).await.unwrap();
        let refused = entity.call(Put("m".repeat(MAP_NAME_BYTES_MAX + 1), 1)).await;
        let error = CommitError::Cell(CellError::NameTooLong { bytes: MAP_NAME_BYTES_MAX + 1 });
        let error = EntityError::NotCommitted(error);
        assert_eq!(refused.unwrap_err().to_string(), error.to_string());
        entity.call(Put(String::new(), 5)).await.unwrap();
        assert_eq!(entity.call(List("")).await.unwrap().unwrap(), [5]);
    });
}
