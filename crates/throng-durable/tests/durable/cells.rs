//! Cells: keyed values of an entity, in the same commit as its state.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{
    CellError, CommitError, Durable, DurableContext, EntityError, Node, Str, TakenCells, U32,
};

use crate::{BlockedWriter, HANGS_AFTER, begin, on_node, program, stored};

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "diary")]
struct Diary {
    pages: u32,
}
#[process]
impl Diary {
    /// Writes a page and returns the last three pages as the same turn sees them.
    #[message]
    fn write(&mut self, page: String, cx: &mut Context<Self>) -> Result<Vec<String>, CellError> {
        let mut pages = cx.cells::<U32, String>("pages");
        pages.put(&self.pages, &page);
        self.pages += 1;
        assert_eq!(pages.get(&(self.pages - 1))?, Some(page));
        pages.range(..).rev().take(3).map(|entry| Ok(entry?.1)).collect()
    }
    /// Tears out a page, and returns all other pages, oldest first.
    #[message]
    fn tear(&mut self, page: u32, cx: &mut Context<Self>) -> Result<Vec<(u32, String)>, CellError> {
        let mut pages = cx.cells::<U32, String>("pages");
        pages.delete(&page);
        assert!(!pages.contains(&page)?);
        pages.range(..).collect()
    }
    /// Returns the pages within a half-open range.
    #[message]
    fn between(
        &mut self,
        from: u32,
        to: u32,
        cx: &mut Context<Self>,
    ) -> Result<Vec<String>, CellError> {
        let mut pages = cx.cells::<U32, String>("pages");
        pages.range(&from..&to).map(|entry| Ok(entry?.1)).collect()
    }
    /// Writes cells, then panics.
    #[message]
    fn scribble(&mut self, cx: &mut Context<Self>) {
        let mut pages = cx.cells::<U32, String>("pages");
        pages.put(&0, "scribble");
        pages.put(&99, "scribble");
        pages.delete(&1);
        panic!("out of ink");
    }
    /// Changes a cell and not the state.
    #[message]
    fn correct(&mut self, page: u32, text: String, cx: &mut Context<Self>) {
        cx.cells::<U32, String>("pages").put(&page, &text);
    }
}

#[test]
fn cells_are_kept_and_read_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        program(Node::options(directory.path()), async |node| {
            let diary = node.entity::<Diary>("ada");
            let other = node.entity::<Diary>("ad");
            for page in round * 10..round * 10 + 10 {
                let last = diary.write(format!("page {page}")).await.unwrap().unwrap();
                let expected: Vec<_> =
                    (0..=page).rev().take(3).map(|page| format!("page {page}")).collect();
                assert_eq!(last, expected);
                other.write("another diary".into()).await.unwrap().unwrap();
            }
            let between = diary.between(5, 8).await.unwrap().unwrap();
            assert_eq!(between, ["page 5", "page 6", "page 7"]);
        });
    }
    program(Node::options(directory.path()), async |node| {
        let diary = node.entity::<Diary>("ada");
        let left = diary.tear(7).await.unwrap().unwrap();
        let expected: Vec<_> =
            (0..30).filter(|page| *page != 7).map(|page| (page, format!("page {page}"))).collect();
        assert_eq!(left, expected);
        let between = diary.between(5, 9).await.unwrap().unwrap();
        assert_eq!(between, ["page 5", "page 6", "page 8"]);
        // 29 and 30 pages, the two states, their count, the names of the layout, the kind and the map, and two shapes.
        assert_eq!(node.stat().unwrap().store.entries, 67);
    });
}

#[test]
fn cells_are_committed_with_the_turn_or_not_at_all() {
    on_node(async |node| {
        let diary = node.entity::<Diary>("ada");
        for page in 0..3 {
            diary.write(format!("{page}")).await.unwrap().unwrap();
        }
        let panicked = diary.scribble().await;
        assert!(matches!(panicked, Err(EntityError::Panicked(_))));
        let pages = diary.between(0, 9).await.unwrap().unwrap();
        assert_eq!(pages, ["0", "1", "2"]);

        diary.correct(1, "one".into()).await.unwrap();
        let panicked = diary.scribble().await;
        assert!(matches!(panicked, Err(EntityError::Panicked(_))));
        let pages = diary.between(0, 9).await.unwrap().unwrap();
        assert_eq!(pages, ["0", "one", "2"]);
        // Three pages, the state, the count, three names, and two shapes.
        assert_eq!(node.stat().unwrap().store.entries, 10);
    });
}

#[test]
fn a_forgotten_entity_leaves_nothing_and_begins_anew() {
    on_node(async |node| {
        let neighbours = [node.entity::<Diary>("ad"), node.entity::<Diary>("ada ")];
        for neighbour in &neighbours {
            neighbour.write("kept".into()).await.unwrap().unwrap();
        }
        let before = node.stat().unwrap().store.entries;
        let diary = node.entity::<Diary>("ada");
        // Nothing is stored yet.
        diary.forget().await.unwrap();
        for round in 0..3 {
            for page in 0..20 {
                diary.write(format!("{page}")).await.unwrap().unwrap();
            }
            assert_eq!(stored(node, "diary"), 3);
            // Some changes are on disk, some are only submitted, and the message behind is handled after.
            let blocked = BlockedWriter::new(node).await;
            let late = begin(diary.write("late".into()).within(HANGS_AFTER)).await;
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
            let pages = diary.between(0, 99).await.unwrap().unwrap();
            assert_eq!(pages, [""; 0]);
        }
        for neighbour in &neighbours {
            assert_eq!(neighbour.between(0, 9).await.unwrap().unwrap(), ["kept"]);
        }
    });
}

/// An entity that lends its cells to an engine.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "script", deps = Exchange)]
struct Script {
    runs: u64,
}

/// Cells of a turn that waits, or has ended.
#[derive(Default)]
struct Exchange {
    kept: std::sync::Mutex<Option<TakenCells>>,
    is_kept: tokio::sync::Notify,
    is_exchanged: tokio::sync::Notify,
}

#[process]
impl Script {
    #[message]
    async fn run(&mut self, how: &'static str, cx: &mut Context<Self>) -> Result<(), CellError> {
        self.runs += 1;
        let mut taken = cx.take_cells()?;
        let mut engine = std::thread::spawn(move || {
            let mut cells = taken.cells::<Str, u64>("globals");
            let x = cells.get("x")?.unwrap_or(0);
            cells.put("x", &(x + 1));
            assert_eq!(cells.get("x")?, Some(x + 1));
            Ok::<_, CellError>(taken)
        })
        .join()
        .unwrap()?;
        let kept = |cx: &mut Context<Self>| cx.deps().kept.lock().unwrap().take().unwrap();
        match how {
            "back" => {}
            "lost" => {
                drop(engine);
                return Ok(());
            }
            "kept" => {
                *cx.deps().kept.lock().unwrap() = Some(engine);
                return Ok(());
            }
            "foreign" => {
                let foreign = kept(cx);
                assert!(cx.put_back(foreign).is_err());
            }
            "twice" => assert!(matches!(cx.take_cells(), Err(CellError::Taken))),
            "beside" => cx.cells::<Str, u64>("globals").put("x", &100),
            "long" => engine.cells::<Str, u64>(&"m".repeat(65)).put("x", &1),
            "waits" => {
                *cx.deps().kept.lock().unwrap() = Some(engine);
                cx.deps().is_kept.notify_one();
                cx.deps().is_exchanged.notified().await;
                engine = kept(cx);
                assert!(cx.put_back(engine).is_err());
                return Ok(());
            }
            "swaps" => {
                cx.deps().is_kept.notified().await;
                std::mem::swap(cx.deps().kept.lock().unwrap().as_mut().unwrap(), &mut engine);
                cx.deps().is_exchanged.notify_one();
                assert!(cx.put_back(engine).is_err());
                return Ok(());
            }
            _ => unreachable!("{how}"),
        }
        assert!(cx.put_back(engine).is_ok());
        Ok(())
    }
    #[message]
    fn read(&self, cx: &mut Context<Self>) -> Result<(u64, Option<u64>), CellError> {
        Ok((self.runs, cx.cells::<Str, u64>("globals").get("x")?))
    }
}

#[test]
fn cells_that_were_taken_come_back_to_their_turn_or_it_fails() {
    on_node(async |node| {
        node.register::<Script>(Exchange::default());
        let script = node.entity::<Script>("a");
        let mut runs = 0;
        for (how, is_kept) in [
            ("back", true),
            ("back", true),
            ("lost", false),
            ("kept", false),
            ("foreign", true),
            ("twice", true),
            ("beside", false),
            ("long", false),
            ("back", true),
        ] {
            let outcome = script.run(how).await;
            runs += u64::from(is_kept);
            let refused = match &outcome {
                Ok(own) => own.is_err(),
                Err(EntityError::NotCommitted(CommitError::Cell(
                    CellError::Taken | CellError::NameTooLong { .. },
                ))) => true,
                Err(_) => panic!("{how}: {outcome:?}"),
            };
            assert_eq!(refused, !is_kept, "{how}: {outcome:?}");
            assert_eq!(script.read().await.unwrap().unwrap(), (runs, Some(runs)), "{how}");
        }
        let other = node.entity::<Script>("b");
        let (one, two) = tokio::join!(script.run("waits"), other.run("swaps"));
        for outcome in [one, two] {
            assert!(matches!(outcome, Err(EntityError::NotCommitted(_))), "{outcome:?}");
        }
        assert_eq!(script.read().await.unwrap().unwrap(), (runs, Some(runs)));
        assert_eq!(other.read().await.unwrap().unwrap(), (0, None));
    });
}
