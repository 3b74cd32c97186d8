//! Changes of the types of states and cells between two runs of a program, without a new version.

use std::path::Path;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{
    CellError, CommitError, Durable, DurableContext, EntityError, Node, StateError, U64,
};

use crate::{BlockedWriter, HANGS_AFTER, begin_turn};

/// A program with its own types of an account, the one of the state and the one of its cells.
macro_rules! program {
    ($name:ident, $cell:ty, { $($fields:tt)* }) => {
        mod $name {
            use super::*;

            #[derive(Durable, Default, Debug, Serialize, Deserialize)]
            #[durable(kind = "account")]
            pub(super) struct Account { $($fields)* }

            #[process]
            impl Account {
                /// Changes the state, so that it is stored as this program has it.
                #[message]
                pub(super) fn touch(&mut self) {
                    self.turns += 1;
                }

                #[message]
                pub(super) fn show(&self) -> String {
                    format!("{self:?}")
                }

                /// Puts a cell, and does not store the state.
                #[message]
                pub(super) fn note(&self, cx: &mut Context<Self>, cell: $cell) {
                    cx.cells::<U64, $cell>("notes").put(&self.turns, &cell);
                }

                #[message]
                pub(super) fn notes(&self, cx: &mut Context<Self>) -> Result<String, CellError> {
                    let mut notes = cx.cells::<U64, $cell>("notes");
                    let notes = notes.range(..).map(|note| Ok(note?.1));
                    Ok(format!("{:?}", notes.collect::<Result<Vec<_>, CellError>>()?))
                }
            }

            /// Runs the program on the account of ann.
            pub(super) fn run(data: &Path, test: impl AsyncFnOnce(&Node, throng_durable::Entity<Account>)) {
                let store = throng_store::Store::options().map_bytes(1 << 22);
                crate::program(Node::options(data).store(store), async |node| {
                    test(node, node.entity::<Account>("ann")).await;
                });
            }
        }
    };
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    cents: u64,
    at: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Posting {
    #[serde(default)]
    from: Option<String>,
    at: i64,
    cents: u128,
}

program!(first, Entry, { pub(super) balance: u64, pub(super) limit: u64, pub(super) name: String, turns: u64 });
program!(swapped, Posting, { limit: u64, balance: u64, name: String, turns: u64 });
program!(added, Posting, { #[serde(default)] blocked: bool, limit: u64, email: Option<String>, balance: i64, name: String, turns: u64 });
program!(removed, Entry, { limit: u64, balance: u64, turns: u64 });
program!(renamed, Entry, { limit: u64, #[serde(alias = "balance")] cents: u64, turns: u64 });
program!(grown, (u64, u64), { limit: Option<u64>, cents: u64, turns: u64 });
program!(narrow, u64, { limit: Option<u8>, cents: u64, turns: u64 });
program!(lacking, Entry, { limit: u64, cents: u64, turns: u64, email: String });
program!(begun_anew, Entry, { limit: u64, turns: u64, #[serde(default)] sum: u64 });

/// Sets the fields of the first program, and puts a cell.
fn fill(data: &Path) {
    use first::{Account, AccountClient};
    first::run(data, async |_, ann| {
        struct Fill;
        impl Message for Fill {
            type Reply = ();
        }
        impl Handle<Fill> for Account {
            async fn handle(&mut self, _: Fill, _: &mut Context<Self>) {
                (self.balance, self.limit, self.name) = (7, 1000, "ann".into());
            }
        }
        ann.call(Fill).await.unwrap();
        ann.note(Entry { cents: 5, at: 300 }).await.unwrap();
        assert_eq!(
            ann.show().await.unwrap(),
            "Account { balance: 7, limit: 1000, name: \"ann\", turns: 0 }"
        );
    });
}

#[test]
fn fields_that_move_come_leave_grow_or_are_renamed_are_read_by_their_names() {
    let data = tempfile::tempdir().unwrap();
    fill(data.path());
    /// Shows the account, stores it as the program has it, and shows it again from the store.
    macro_rules! shows {
        ($program:ident, $shown:literal, $notes:literal) => {{
            use $program::AccountClient;
            for turns in 0..2 {
                $program::run(data.path(), async |_, ann| {
                    let shown = ann.show().await.unwrap();
                    assert!(shown.starts_with($shown), "{shown}");
                    assert_eq!(ann.notes().await.unwrap().unwrap(), $notes);
                    if turns == 0 {
                        ann.touch().await.unwrap();
                    }
                });
            }
        }};
    }
    shows!(
        swapped,
        "Account { limit: 1000, balance: 7, name: \"ann\"",
        "[Posting { from: None, at: 300, cents: 5 }]"
    );
    shows!(
        added,
        "Account { blocked: false, limit: 1000, email: None, balance: 7, name: \"ann\"",
        "[Posting { from: None, at: 300, cents: 5 }]"
    );
    shows!(removed, "Account { limit: 1000, balance: 7", "[Entry { cents: 5, at: 300 }]");
    shows!(renamed, "Account { limit: 1000, cents: 7", "[Entry { cents: 5, at: 300 }]");
    shows!(grown, "Account { limit: Some(1000), cents: 7", "[(5, 300)]");
}

#[test]
fn a_state_or_cell_that_does_not_fit_is_refused_with_its_field_and_the_way_out() {
    let data = tempfile::tempdir().unwrap();
    fill(data.path());
    macro_rules! refuses {
        ($program:ident, $reason:literal) => {{
            use $program::AccountClient;
            $program::run(data.path(), async |_, ann| {
                let refused = ann.show().await.unwrap_err();
                let text = refused.to_string();
                let EntityError::State(StateError::Changed { kind: "account", found: 1, reason }) =
                    refused
                else {
                    panic!("{text}");
                };
                assert!(reason.contains($reason), "{reason}");
                for way in ["`#[serde(default)]`", "`#[serde(alias", "`version`", "`migrate`"] {
                    assert!(text.contains(way), "{text}");
                }
            });
        }};
    }
    refuses!(lacking, "`balance`");
    refuses!(begun_anew, "`balance`");
    removed::run(data.path(), async |_, ann| removed::AccountClient::touch(&ann).await.unwrap());
    renamed::run(data.path(), async |_, ann| renamed::AccountClient::touch(&ann).await.unwrap());
    refuses!(lacking, "`email`");
    refuses!(narrow, "`limit`");
    // None of the attempts changed the state.
    grown::run(data.path(), async |_, ann| {
        use grown::AccountClient;
        assert_eq!(ann.show().await.unwrap(), "Account { limit: Some(1000), cents: 7, turns: 2 }");
        ann.touch().await.unwrap();
    });
    added::run(data.path(), async |_, ann| {
        let refused = added::AccountClient::show(&ann).await;
        assert!(matches!(refused, Err(EntityError::State(StateError::Changed { .. }))));
    });
}

#[test]
fn a_cell_of_another_type_is_its_readers_error() {
    let data = tempfile::tempdir().unwrap();
    narrow::run(data.path(), async |_, ann| {
        use narrow::AccountClient;
        ann.note(9).await.unwrap();
        assert_eq!(ann.notes().await.unwrap().unwrap(), "[9]");
    });
    grown::run(data.path(), async |_, ann| {
        use grown::AccountClient;
        let notes = ann.notes().await.unwrap();
        assert!(matches!(notes, Err(CellError::Decode(_))), "{notes:?}");
        // The state is read, and a cell of this type takes the place of the other one.
        ann.note((1, 2)).await.unwrap();
        assert_eq!(ann.notes().await.unwrap().unwrap(), "[(1, 2)]");
    });
}

/// Each row: whether the turn with the new shape is lost, and whether turns without the state come first.
#[test]
fn no_state_is_stored_without_its_shape() {
    for (is_lost, has_notes) in [(false, false), (true, false), (false, true), (true, true)] {
        let data = tempfile::tempdir().unwrap();
        fill(data.path());
        swapped::run(data.path(), async |node, ann| {
            use swapped::AccountClient;
            if has_notes {
                // The cell has a shape of its own; the state keeps the one that it was stored with.
                ann.note(Posting { from: None, at: 1, cents: 2 }).await.unwrap();
            }
            if is_lost {
                let blocked = BlockedWriter::new(node).await;
                let mut flood = throng_store::Batch::new().put(
                    &node.store().default_database::<throng_store::Str, throng_store::Str>(),
                    "\u{7f}",
                    &"f".repeat(8 << 20),
                );
                node.store().submit(&mut flood, throng_store::Submission::START).unwrap();
                let lost = begin_turn(node, ann.touch().within(HANGS_AFTER)).await;
                drop(blocked);
                let lost = lost.await.unwrap();
                assert!(
                    matches!(lost, Err(EntityError::NotCommitted(CommitError::Lost(_)))),
                    "{lost:?}"
                );
            }
            ann.touch().await.unwrap();
            ann.touch().await.unwrap();
        });
        // A program that numbers its own shapes anew must find that of the other one.
        removed::run(data.path(), async |_, ann| {
            use removed::AccountClient;
            assert_eq!(ann.show().await.unwrap(), "Account { limit: 1000, balance: 7, turns: 2 }");
        });
    }
}
