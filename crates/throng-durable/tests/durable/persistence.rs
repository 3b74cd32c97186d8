//! State outlives processes, nodes and versions.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::SortBy;
use throng::prelude::*;
use throng_durable::{
    CellError, Durable, DurableContext, EntityError, Node, OldState, OpenError, Options,
    StateError, Str,
};

use crate::{
    Counter, CounterClient, on_node, on_runtime, program, reopen, runtime, stored, two_workers,
    until,
};

#[test]
fn a_counter_goes_on_after_the_node_was_restarted() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..5 {
        program(Node::options(directory.path()), async |node| {
            let stat = node.stat().unwrap();
            assert_eq!(
                (stored(node, "counter"), stat.at_rest()),
                if round == 0 { (0, 0) } else { (3, 3) }
            );
            for key in ["alice", "bob", "Ångström, the key 42"] {
                let counter = node.entity::<Counter>(key);
                assert_eq!(counter.get().await.unwrap(), round * 5);
                assert_eq!(counter.add(2).await.unwrap(), round * 5 + 2);
                assert_eq!(counter.add(3).await.unwrap(), round * 5 + 5);
                // The very first activation found nothing, changed nothing, and may have left.
                let turns = counter.turns().await.unwrap();
                assert!(turns == 4 || round == 0 && turns == 3, "{turns}");
            }
            assert_eq!(node.live(), 3);
        });
    }
}

#[test]
fn a_counter_goes_on_after_the_whole_runtime_was_restarted_without_a_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let runtime = runtime();
        let node = Node::options(directory.path()).open(&runtime).unwrap();
        let count = runtime.block_on(async |_| node.entity::<Counter>("it").add(1).await);
        assert_eq!(count.unwrap(), round + 1);
        // The node is dropped after the runtime, and neither is shut down explicitly.
        drop(runtime);
        drop(node);
    }
}

#[test]
fn a_dropped_node_releases_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let node = Node::options(directory.path()).open(&runtime).unwrap();
    let second = Node::options(directory.path()).open(&runtime);
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    runtime.block_on(async |runtime| {
        node.entity::<Counter>("it").add(1).await.unwrap();
        drop(node);
        // The process, which no caller can reach any more, ends by itself.
        until(async || runtime.process_count() == 0).await;
    });
    runtime.block_on(async |runtime| reopen(Node::options(directory.path()), runtime).await);
}

/// Table of the moments at which a weak handle is asked for its node.
#[test]
fn a_weak_handle_has_the_node_until_its_shutdown_and_keeps_nothing_open() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let open = || Node::options(directory.path()).open(&runtime).unwrap();
    runtime.block_on(async |runtime| {
        // A node that is open; the handle that comes of it keeps the node open.
        let node = open();
        let weak = node.downgrade();
        let upgraded = weak.upgrade().unwrap();
        drop(node);
        assert_eq!(upgraded.entity::<Counter>("it").add(1).await.unwrap(), 1);
        // A node without handles, but with a live entity.
        let entity = upgraded.entity::<Counter>("it");
        drop(upgraded);
        assert!(weak.upgrade().is_some());
        assert_eq!(entity.add(1).await.unwrap(), 2);
        drop(entity);
        until(async || runtime.process_count() == 0).await;
        // A node that has ended by itself: the directory is free although the weak handle is there.
        assert!(weak.upgrade().is_none());
        // A node that was shut down, and still has a handle.
        let node = open();
        let weak = node.downgrade();
        node.shutdown().await;
        assert!(weak.upgrade().is_none());
        drop(node);
        assert_eq!(open().entity::<Counter>("it").get().await.unwrap(), 2);
    });
}

#[test]
fn impossible_keys_and_closed_nodes_are_errors() {
    on_node(async |node| {
        for key in [String::new(), "k".repeat(256)] {
            let counter = node.entity::<Counter>(&key);
            assert!(matches!(counter.get().await, Err(EntityError::Key(_))));
            let unsent = counter.send_add(7).unwrap_err();
            assert_eq!(unsent.message.number, 7);
        }
        let longest = node.entity::<Counter>("k".repeat(255));
        assert_eq!(longest.add(1).await.unwrap(), 1);
        node.shutdown().await;
        assert!(matches!(longest.get().await, Err(EntityError::ShutDown)));
        // A second shutdown is harmless, and comes at the end.
    });
}

/// The counter's kind, as another program version sees it.
macro_rules! version {
    ($module:ident, $version:literal, $state:ty, $migrate:expr) => {
        mod $module {
            use super::*;

            #[derive(Default, Serialize, Deserialize)]
            pub(super) struct Thing(pub(super) $state);
            impl Process for Thing {}
            impl Durable for Thing {
                const KIND: &'static str = "thing";
                const VERSION: u16 = $version;
                type Deps = ();
                fn initial(_: &str, (): &()) -> Self {
                    Self::default()
                }
                fn migrate(old: OldState<'_>) -> Result<Self, StateError> {
                    $migrate(old)
                }
            }

            pub(super) struct Set(pub(super) $state);
            impl Message for Set {
                type Reply = $state;
            }
            impl Handle<Set> for Thing {
                async fn handle(&mut self, message: Set, _: &mut Context<Self>) -> $state {
                    std::mem::replace(&mut self.0, message.0)
                }
            }
        }
    };
}

version!(first, 1, u32, |old: OldState<'_>| Err(old.not_migrated()));
version!(second, 2, String, |old: OldState<'_>| {
    old.decode().map(|first::Thing(number)| Thing(number.to_string()))
});
version!(changed, 2, (u64, u64, u64), |old: OldState<'_>| Err(old.not_migrated()));

#[test]
fn versions_are_migrated_or_refused_never_misread() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Node::options(directory.path());
    program(options(), async |node| {
        assert_eq!(node.entity::<first::Thing>("it").call(first::Set(42)).await.unwrap(), 0);
    });
    program(options(), async |node| {
        let it = node.entity::<second::Thing>("it");
        assert_eq!(it.call(second::Set("hello".into())).await.unwrap(), "42");
    });
    program(options(), async |node| {
        let refused = node.entity::<first::Thing>("it").call(first::Set(1)).await;
        let Err(EntityError::State(error)) = refused else { panic!("{refused:?}") };
        assert_eq!(error, StateError::Newer { kind: "thing", found: 2, known: 1 });
    });
    program(options(), async |node| {
        let refused = node.entity::<changed::Thing>("it").call(changed::Set((0, 0, 0))).await;
        assert!(matches!(refused, Err(EntityError::State(StateError::Changed { .. }))));
    });
    // None of these attempts changed the state.
    program(options(), async |node| {
        let it = node.entity::<second::Thing>("it");
        assert_eq!(it.call(second::Set(String::new())).await.unwrap(), "hello");
    });
}

#[test]
fn a_message_to_an_entity_that_cannot_be_loaded_is_counted_as_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let node = || Node::options(directory.path()).open(&runtime).unwrap();
    runtime.block_on(async |runtime| {
        let two = node();
        two.entity::<second::Thing>("it").call(second::Set("hello".into())).await.unwrap();
        two.shutdown().await;
        drop(two);

        let mut letters = runtime.dead_letters(10);
        let back = node();
        back.entity::<first::Thing>("it").send(first::Set(1)).unwrap();
        let letter = letters.recv().await.unwrap();
        assert_eq!((letter.reason, letter.messages), (throng::DropReason::Refused, 1));
        assert_eq!(letter.process, std::any::type_name::<first::Thing>());
        back.shutdown().await;
        assert_eq!(runtime.metrics().dropped.len(), 1, "nothing else was dropped");
    });
}

#[test]
#[should_panic = "two types have the kind \"thing\""]
fn two_types_of_one_kind_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let node = Node::options(directory.path()).open(&runtime).unwrap();
    let _ = node.entity::<first::Thing>("it");
    let _ = node.entity::<second::Thing>("it");
}

/// Rebuilds the fields that are not stored from the stored ones, at each activation.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "index")]
struct Index {
    activations: u32,
    #[serde(skip)]
    words: Vec<String>,
}
#[process]
impl Index {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        self.activations += 1;
        let mut words = cx.cells::<Str, ()>("words");
        let words = words.range(..).map(|entry| Ok::<_, CellError>(entry?.0.to_owned()));
        self.words = words.collect::<Result<_, _>>().unwrap();
        assert_eq!(cx.key(), "index");
    }
    #[message]
    fn insert(&mut self, word: &'static str, cx: &mut Context<Self>) -> (u32, Vec<String>) {
        cx.cells::<Str, ()>("words").put(word, &());
        self.words.push(word.into());
        (self.activations, self.words.clone())
    }
}

#[test]
fn the_first_hook_reads_cells_and_its_changes_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["ant", "bee", "cow"];
    for (round, word) in words.iter().enumerate() {
        program(Node::options(directory.path()), async |node| {
            let (activations, known) = node.entity::<Index>("index").insert(word).await.unwrap();
            assert_eq!(activations as usize, round + 1);
            assert_eq!(known, words[..=round]);
        });
    }
}

#[test]
fn an_entity_is_labelled_by_its_kind_and_key() {
    on_runtime(two_workers(), async |node, runtime| {
        for key in ["ada", "bob/2"] {
            node.entity::<Counter>(key).add(1).await.unwrap();
        }
        let found = runtime.search("counter/B", 10, SortBy::Memory).await;
        let labels = found.into_iter().map(|info| info.label);
        assert!(labels.eq([Some("counter/bob/2".to_owned())]));
    });
}

/// Values at which a limit leaves room for nothing, or a sum or product of it does not fit its type.
#[test]
fn options_at_their_extremes_hang_neither_calls_nor_the_shutdown() {
    let extremes: [fn(Options) -> Options; 8] = [
        |options| options.idle_after(Duration::ZERO),
        |options| options.idle_after(Duration::MAX),
        |options| options.live_max(0),
        |options| options.live_max(usize::MAX),
        |options| options.live_bytes_max(0),
        |options| options.store(throng_store::Store::options().queue_batches_max(0)),
        |options| options.store(throng_store::Store::options().queue_batches_max(usize::MAX)),
        |options| options.store(throng_store::Store::options().queue_bytes_max(usize::MAX)),
    ];
    for set in extremes {
        crate::with_node(set, async |node| {
            for round in 1..=3 {
                for number in 0..4 {
                    let counter = node.entity::<Counter>(format!("{number}"));
                    assert_eq!(counter.add(1).await.unwrap(), round);
                }
            }
        });
    }
}
