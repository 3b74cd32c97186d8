//! Cells: keyed values of an entity, in the same commit as its state.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{CellError, Durable, DurableContext, EntityError, Node, U32};

use crate::{BlockedWriter, HANGS_AFTER, begin, runtime, stored, with_node};

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "diary")]
struct Diary {
    pages: u32,
}
impl Process for Diary {}
/// Writes a page and returns the last three pages as the same turn sees them.
struct Write(String);
impl Message for Write {
    type Reply = Result<Vec<String>, CellError>;
}
impl Handle<Write> for Diary {
    async fn handle(
        &mut self,
        Write(page): Write,
        cx: &mut Context<Self>,
    ) -> Result<Vec<String>, CellError> {
        let mut pages = cx.cells::<U32, String>("pages");
        pages.put(&self.pages, &page);
        self.pages += 1;
        assert_eq!(pages.get(&(self.pages - 1))?, Some(page));
        pages.range(..).rev().take(3).map(|entry| Ok(entry?.1)).collect()
    }
}

/// Tears out a page, and returns all other pages, oldest first.
struct Tear(u32);
impl Message for Tear {
    type Reply = Result<Vec<(u32, String)>, CellError>;
}
impl Handle<Tear> for Diary {
    async fn handle(
        &mut self,
        Tear(page): Tear,
        cx: &mut Context<Self>,
    ) -> Result<Vec<(u32, String)>, CellError> {
        let mut pages = cx.cells::<U32, String>("pages");
        pages.delete(&page);
        assert!(!pages.contains(&page)?);
        pages.range(..).collect()
    }
}

/// Returns the pages within a half-open range.
struct Between(u32, u32);
impl Message for Between {
    type Reply = Result<Vec<String>, CellError>;
}
impl Handle<Between> for Diary {
    async fn handle(
        &mut self,
        Between(from, to): Between,
        cx: &mut Context<Self>,
    ) -> Result<Vec<String>, CellError> {
        let mut pages = cx.cells::<U32, String>("pages");
        pages.range(&from..&to).map(|entry| Ok(entry?.1)).collect()
    }
}

#[test]
fn cells_are_kept_and_read_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    for round in 0..3 {
        let node = Node::open(directory.path()).start(&runtime).unwrap();
        runtime.block_on(async |_| {
            let diary = node.entity::<Diary>("ada");
            let other = node.entity::<Diary>("ad");
            for page in round * 10..round * 10 + 10 {
                let last = diary.call(Write(format!("page {page}"))).await.unwrap().unwrap();
                let expected: Vec<_> =
                    (0..=page).rev().take(3).map(|page| format!("page {page}")).collect();
                assert_eq!(last, expected);
                other.call(Write("another diary".into())).await.unwrap().unwrap();
            }
            let between = diary.call(Between(5, 8)).await.unwrap().unwrap();
            assert_eq!(between, ["page 5", "page 6", "page 7"]);
            node.shutdown().await;
        });
    }
    let node = Node::open(directory.path()).start(&runtime).unwrap();
    runtime.block_on(async |_| {
        let diary = node.entity::<Diary>("ada");
        let left = diary.call(Tear(7)).await.unwrap().unwrap();
        let expected: Vec<_> =
            (0..30).filter(|page| *page != 7).map(|page| (page, format!("page {page}"))).collect();
        assert_eq!(left, expected);
        let between = diary.call(Between(5, 9)).await.unwrap().unwrap();
        assert_eq!(between, ["page 5", "page 6", "page 8"]);
        node.shutdown().await;
    });
    // 29 and 30 pages, the two states, their count, the names of the layout, the kind and the map, and two shapes.
    assert_eq!(node.stat().unwrap().store.entries, 67);
}

/// Writes cells, then panics.
struct Scribble;
impl Message for Scribble {
    type Reply = ();
}
impl Handle<Scribble> for Diary {
    async fn handle(&mut self, _: Scribble, cx: &mut Context<Self>) {
        let mut pages = cx.cells::<U32, String>("pages");
        pages.put(&0, "scribble");
        pages.put(&99, "scribble");
        pages.delete(&1);
        panic!("out of ink");
    }
}

/// Changes a cell and not the state.
struct Correct(u32, String);
impl Message for Correct {
    type Reply = ();
}
impl Handle<Correct> for Diary {
    async fn handle(&mut self, Correct(page, text): Correct, cx: &mut Context<Self>) {
        cx.cells::<U32, String>("pages").put(&page, &text);
    }
}

#[test]
fn cells_are_committed_with_the_turn_or_not_at_all() {
    with_node(
        |options| options,
        async |node| {
            let diary = node.entity::<Diary>("ada");
            for page in 0..3 {
                diary.call(Write(format!("{page}"))).await.unwrap().unwrap();
            }
            let panicked = diary.call(Scribble).await;
            assert!(matches!(panicked, Err(EntityError::Panicked(_))));
            let pages = diary.call(Between(0, 9)).await.unwrap().unwrap();
            assert_eq!(pages, ["0", "1", "2"]);

            diary.call(Correct(1, "one".into())).await.unwrap();
            let panicked = diary.call(Scribble).await;
            assert!(matches!(panicked, Err(EntityError::Panicked(_))));
            let pages = diary.call(Between(0, 9)).await.unwrap().unwrap();
            assert_eq!(pages, ["0", "one", "2"]);
            // Three pages, the state, the count, three names, and two shapes.
            assert_eq!(node.stat().unwrap().store.entries, 10);
        },
    );
}

#[test]
fn a_forgotten_entity_leaves_nothing_and_begins_anew() {
    with_node(
        |options| options,
        async |node| {
            let neighbours = [node.entity::<Diary>("ad"), node.entity::<Diary>("ada ")];
            for neighbour in &neighbours {
                neighbour.call(Write("kept".into())).await.unwrap().unwrap();
            }
            let before = node.stat().unwrap().store.entries;
            let diary = node.entity::<Diary>("ada");
            // Nothing is stored yet.
            diary.forget().await.unwrap();
            for round in 0..3 {
                for page in 0..20 {
                    diary.call(Write(format!("{page}"))).await.unwrap().unwrap();
                }
                assert_eq!(stored(node, "diary"), 3);
                // Some changes are on disk, some are only submitted, and the message behind is handled after.
                let blocked = BlockedWriter::new(node).await;
                let late = begin(diary.call(Write("late".into())).within(HANGS_AFTER)).await;
                let forgotten = tokio::spawn({
                    let diary = diary.clone();
                    async move { diary.forget().await }
                });
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                assert!(!forgotten.is_finished(), "the removal is not on disk yet");
                drop(blocked);
                late.await.unwrap().unwrap().unwrap();
                forgotten.await.unwrap().unwrap();
                assert_eq!(stored(node, "diary"), 2, "round {round}");
                assert_eq!(node.stat().unwrap().store.entries, before);
                let pages = diary.call(Between(0, 99)).await.unwrap().unwrap();
                assert_eq!(pages, [""; 0]);
            }
            for neighbour in &neighbours {
                assert_eq!(neighbour.call(Between(0, 9)).await.unwrap().unwrap(), ["kept"]);
            }
        },
    );
}
