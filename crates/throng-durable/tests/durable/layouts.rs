//! The layout of the records, and stores of each layout that a released or earlier version wrote, recorded in `tests/fixtures`.
//!
//! `THRONG_DURABLE_RECORD=<directory>` makes the test write a store of the present layout there instead.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Bytes, CellError, Durable, DurableContext, Node};
use throng_store::Snapshot;

use crate::{Add, Counter, Get, runtime};

/// The records of entities by the documented layout.
pub(crate) struct Layout<'s>(pub(crate) &'s Snapshot);

impl<'s> Layout<'s> {
    /// Returns the states of a kind with the keys of their entities.
    pub(crate) fn states(&self, kind: &str) -> impl Iterator<Item = (String, &'s [u8])> {
        let rest = self.numbered(kind.as_bytes()).into_iter();
        let records = rest.flat_map(|kind| self.records([b"S", &kind[..]].concat()));
        records.map(|(key, state)| (text(key), state))
    }

    /// Returns the state of an entity.
    pub(crate) fn state(&self, kind: &str, key: &str) -> Option<&'s [u8]> {
        self.0.get(&self.state_key(kind, key)?).unwrap()
    }

    /// Returns the store's key of an entity's state.
    pub(crate) fn state_key(&self, kind: &str, key: &str) -> Option<Vec<u8>> {
        let kind = self.numbered(kind.as_bytes())?;
        Some([b"S", &kind[..], key.as_bytes()].concat())
    }

    /// Returns the cells in a map of a kind with the keys of their entities and their own keys.
    pub(crate) fn cells(&self, kind: &str, map: &str) -> Vec<(String, Vec<u8>, &'s [u8])> {
        let Some(map) = self.numbered(&[kind.as_bytes(), &[0], map.as_bytes()].concat()) else {
            return Vec::new();
        };
        let kind = self.numbered(kind.as_bytes()).unwrap();
        let cells = self.records([b"C", &kind[..]].concat()).filter_map(|(key, value)| {
            let (length, rest) = key.split_first().unwrap();
            let (entity, rest) = rest.split_at(usize::from(*length));
            Some((text(entity), rest.strip_prefix(&map)?.to_vec(), value))
        });
        cells.collect()
    }

    /// Returns the number of a name, as a part of keys.
    fn numbered(&self, name: &[u8]) -> Option<[u8; 2]> {
        let number = self.0.get(&[b"K", name].concat()).unwrap()?;
        Some(u16::from_le_bytes(number.try_into().unwrap()).to_be_bytes())
    }

    /// Returns the records with a prefix, and the rest of their keys.
    fn records(&self, prefix: Vec<u8>) -> impl Iterator<Item = (&'s [u8], &'s [u8])> {
        self.0.prefix(&prefix).map(move |record| {
            let (key, value) = record.unwrap();
            (&key[prefix.len()..], value)
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A process with cells, and a state of varying size.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "shelf", version = 3)]
struct Shelf {
    title: String,
}
impl Process for Shelf {}
/// Sets the title, and a cell for each of the keys, whose value is the key's length.
struct Fill(String, Vec<Vec<u8>>);
impl Message for Fill {
    type Reply = ();
}
impl Handle<Fill> for Shelf {
    async fn handle(&mut self, Fill(title, keys): Fill, cx: &mut Context<Self>) {
        self.title = title;
        for key in keys {
            // Layout 1 has no names of maps.
            cx.cells::<Bytes, usize>("").put(&key, &key.len());
        }
    }
}

type Content = (String, Vec<(Vec<u8>, usize)>);

struct Show;
impl Message for Show {
    type Reply = Result<Content, CellError>;
}
impl Handle<Show> for Shelf {
    async fn handle(&mut self, _: Show, cx: &mut Context<Self>) -> Result<Content, CellError> {
        let mut cells = cx.cells::<Bytes, usize>("");
        let cells = cells.range(..).map(|cell| cell.map(|(key, value)| (key.to_vec(), value)));
        Ok((self.title.clone(), cells.collect::<Result<_, _>>()?))
    }
}

/// Keys that are easily confused with each other, in their order.
fn counters() -> Vec<String> {
    let mut keys: Vec<_> = (0..300).map(|number| format!("number-{number}")).collect();
    keys.extend(["a", "ab", "b", "\0", "\u{1}", "Ångström", "ZZ"].map(String::from));
    keys.push("k".repeat(255));
    keys.sort();
    keys
}

/// Shelves with their titles and the keys of their cells.
fn shelves() -> Vec<(String, String, Vec<Vec<u8>>)> {
    let numbers = |count: u16| (0..count).map(|number| number.to_be_bytes().to_vec()).collect();
    vec![
        ("a".into(), "none".into(), vec![]),
        ("a\0".into(), "one".into(), vec![vec![]]),
        ("ab".into(), "t".repeat(3000), numbers(700)),
        ("k".repeat(255), "long".into(), vec![vec![0; 189], vec![0xff; 189]]),
    ]
}

async fn record(node: &Node) {
    for key in counters() {
        node.entity::<Counter>(&key).call(Add(key.len() as u64)).await.unwrap();
    }
    for (key, title, cells) in shelves() {
        node.entity::<Shelf>(&key).call(Fill(title, cells)).await.unwrap();
    }
}

async fn compare(node: &Node) {
    let stored = node.stat().unwrap().stored;
    let expected = [("counter", counters().len()), ("shelf", shelves().len())];
    assert_eq!(stored, expected.map(|(kind, count)| (kind.to_owned(), count as u64)).into());
    for key in counters() {
        let count = node.entity::<Counter>(&key).call(Get).await.unwrap();
        assert_eq!(count, key.len() as u64, "{key}");
    }
    for (key, title, cells) in shelves() {
        let shown = node.entity::<Shelf>(&key).call(Show).await.unwrap().unwrap();
        let cells = cells.into_iter().map(|key| (key.clone(), key.len())).collect();
        assert_eq!(shown, (title, cells), "{key}");
    }
}

#[test]
fn a_store_of_an_earlier_layout_is_read() {
    let runtime = runtime();
    if let Some(directory) = std::env::var_os("THRONG_DURABLE_RECORD") {
        let node = Node::open(directory).start(&runtime).unwrap();
        return runtime.block_on(async |_| {
            record(&node).await;
            node.shutdown().await;
        });
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for layout in fs::read_dir(fixtures).unwrap() {
        let directory = tempfile::tempdir().unwrap();
        copy(&layout.unwrap().path(), directory.path());
        for _ in 0..2 {
            let node = Node::open(directory.path()).start(&runtime).unwrap();
            runtime.block_on(async |_| {
                compare(&node).await;
                node.shutdown().await;
            });
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
