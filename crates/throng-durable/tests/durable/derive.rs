//! `#[derive(Durable)]`; and the compiler's errors for wrong uses of this crate's macros.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, Node, OldState, StateError};

use crate::runtime;

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
    let runtime = runtime();
    let node = Node::open(directory.path()).start(&runtime).unwrap();
    runtime.block_on(async |_| {
        node.entity::<Account>("alice").deposit(7).await.unwrap();
        node.shutdown().await;
    });
    drop(node);
    let node = Node::open(directory.path()).start(&runtime).unwrap();
    let euros = runtime.block_on(async |_| {
        let euros = node.entity::<Purse>("alice").euros().await.unwrap();
        node.shutdown().await;
        euros
    });
    assert_eq!(euros, 7);
}

/// `TRYBUILD=overwrite cargo test -p throng-durable wrong_uses` regenerates the expectations.
#[test]
fn wrong_uses_are_explained_where_they_stand() {
    trybuild::TestCases::new().compile_fail("tests/refusals/*.rs");
}
