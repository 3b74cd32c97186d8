//! `#[derive(Durable)]`; and the compiler's errors for wrong uses of this crate's macros.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, EntityError, Node, OldState, StateError};

use crate::{on_node, program};

/// In euros.
#[derive(Default, Serialize, Deserialize, Durable)]
#[durable(kind = "account")]
struct Account {
    balance: u64,
}

#[process]
impl Account {
    #[message]
    fn deposit(&mut self, euros: u64) {
        self.balance += euros;
    }
}

/// The next version of [`Account`]: of the same kind, in euros and cents.
#[derive(Default, Serialize, Deserialize, throng_durable::Durable)]
#[durable(kind = "account", version = 2)]
#[durable(migrate = Self::from_euros, crate = throng_durable)]
enum Purse {
    #[default]
    Empty,
    Holds {
        euros: u64,
        cents: u8,
    },
}

#[process]
impl Purse {
    fn from_euros(old: OldState<'_>) -> Result<Self, StateError> {
        old.decode().map(|Account { balance }| Purse::Holds { euros: balance, cents: 0 })
    }

    #[message]
    fn euros(&self) -> u64 {
        match self {
            Purse::Empty => 0,
            Purse::Holds { euros, .. } => *euros,
        }
    }
}

#[test]
fn the_derive_gives_kind_version_and_migration() {
    assert_eq!((Account::KIND, Account::VERSION), ("account", 1));
    assert_eq!((Purse::KIND, Purse::VERSION), ("account", 2));
    let directory = tempfile::tempdir().unwrap();
    program(Node::options(directory.path()), async |node| {
        node.entity::<Account>("alice").deposit(7).await.unwrap();
    });
    program(Node::options(directory.path()), async |node| {
        assert_eq!(node.entity::<Purse>("alice").euros().await.unwrap(), 7);
    });
}

/// Everything that the games share.
struct Rules {
    lives: u32,
    opened: AtomicU32,
}

#[derive(Serialize, Deserialize, Durable)]
#[durable(kind = "game", deps = Arc<Rules>, initial = Self::new)]
struct Game {
    player: String,
    lives: u32,
}

#[process]
impl Game {
    fn new(key: &str, rules: &Arc<Rules>) -> Game {
        assert_ne!(key, "nobody", "no game for nobody");
        rules.opened.fetch_add(1, Ordering::Relaxed);
        Game { player: key.to_owned(), lives: rules.lives }
    }

    #[message]
    fn lose(&mut self, cx: &mut Context<Self>) -> (String, u32, u32) {
        self.lives -= 1;
        (self.player.clone(), self.lives, cx.deps().lives)
    }
}

#[test]
fn an_entity_begins_by_its_key_and_the_dependencies_of_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    // The initial state is stored with the first change; later rules do not alter it.
    for (lives, left) in [(3, 2), (9, 1)] {
        program(Node::options(directory.path()), async |node| {
            let early = node.entity::<Game>("ann");
            let refused = early.lose().await;
            assert!(matches!(refused, Err(EntityError::NotRegistered { kind: "game" })));
            let refused = early.send_lose().unwrap_err().error;
            assert_eq!(
                refused.to_string(),
                "the kind game is not registered with its dependencies"
            );

            let rules = Arc::new(Rules { lives, opened: AtomicU32::new(0) });
            node.register::<Game>(rules.clone());
            assert_eq!(early.lose().await.unwrap(), ("ann".to_owned(), left, lives));
            assert_eq!(rules.opened.load(Ordering::Relaxed), 1);
            let panicked = node.entity::<Game>("nobody").lose().await;
            assert!(
                matches!(panicked, Err(EntityError::Panicked(panic)) if panic.message().contains("no game"))
            );
        });
    }
}

/// Dependencies that refer to the node.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "ward", deps = (Node, Arc<()>))]
struct Ward;

#[process]
impl Ward {
    #[message]
    async fn lives(&self, cx: &mut Context<Self>) -> usize {
        cx.deps().0.live()
    }
}

#[test]
fn dependencies_that_refer_to_the_node_end_with_its_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let kept = Arc::new(());
    for _ in 0..3 {
        program(Node::options(directory.path()), async |node| {
            node.register::<Ward>((node.clone(), kept.clone()));
            assert_eq!(node.entity::<Ward>("it").lives().await.unwrap(), 1);
        });
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}

#[test]
#[should_panic(expected = "the kind \"game\" is registered already")]
fn a_kind_is_registered_once() {
    on_node(async |node| {
        let rules = || Arc::new(Rules { lives: 1, opened: AtomicU32::new(0) });
        node.register::<Game>(rules());
        node.register::<Game>(rules());
    });
}
