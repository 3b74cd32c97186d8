//! The layout of the records.

use throng_durable::{Node, OpenError};
use throng_store::{Bytes, Database, Snapshot, Store, Str};

/// The records of entities by the documented layout: those of the default database, and cells.
pub(crate) struct Layout<'s> {
    table: Database,
    cells: Database,
    snapshot: &'s Snapshot,
}

impl<'s> Layout<'s> {
    pub(crate) fn of(store: &Store, snapshot: &'s Snapshot) -> Layout<'s> {
        let cells = store.database("durable cells").unwrap();
        Layout { table: store.default_database(), cells, snapshot }
    }

    /// Returns the states of a kind with the keys of their entities.
    pub(crate) fn states(&self, kind: &str) -> impl Iterator<Item = (String, &'s [u8])> {
        let rest = self.numbered(kind.as_bytes()).into_iter();
        let records = rest.flat_map(|kind| self.records(&self.table, [b"S", &kind[..]].concat()));
        records.map(|(key, state)| (text(key), state))
    }

    /// Returns the state of an entity.
    pub(crate) fn state(&self, kind: &str, key: &str) -> Option<&'s [u8]> {
        self.table.get(self.snapshot, &self.state_key(kind, key)?).unwrap()
    }

    /// Returns the store's key of an entity's state.
    pub(crate) fn state_key(&self, kind: &str, key: &str) -> Option<Vec<u8>> {
        let kind = self.numbered(kind.as_bytes())?;
        Some([b"S", &kind[..], key.as_bytes()].concat())
    }

    /// Returns the cells in a map of a kind with the keys of their entities and their own keys. The values are of
    /// the map's first shape.
    pub(crate) fn cells(&self, kind: &str, map: &str) -> Vec<(String, Vec<u8>, &'s [u8])> {
        let Some(map) = self.numbered(&[kind.as_bytes(), &[0], map.as_bytes()].concat()) else {
            return Vec::new();
        };
        let kind = self.numbered(kind.as_bytes()).unwrap();
        let cells =
            self.records(&self.cells, [b"C", &kind[..]].concat()).filter_map(|(key, value)| {
                let (length, rest) = key.split_first().unwrap();
                let (entity, rest) = rest.split_at(usize::from(*length));
                Some((
                    text(entity),
                    rest.strip_prefix(&map)?.to_vec(),
                    value.strip_prefix(b"\x01")?,
                ))
            });
        cells.collect()
    }

    /// Returns the number of a name, as a part of keys.
    fn numbered(&self, name: &[u8]) -> Option<[u8; 2]> {
        let number = self.table.get(self.snapshot, &[b"K", name].concat()).unwrap()?;
        Some(u16::from_le_bytes(number.try_into().unwrap()).to_be_bytes())
    }

    /// Returns the records with a prefix, and the rest of their keys.
    fn records(
        &self,
        table: &Database,
        prefix: Vec<u8>,
    ) -> impl Iterator<Item = (&'s [u8], &'s [u8])> {
        table.prefix(self.snapshot, &prefix).map(move |record| {
            let (key, value) = record.unwrap();
            (&key[prefix.len()..], value)
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_store_of_another_layout_is_refused_with_both_versions() {
    let runtime = crate::runtime();
    for found in [0_u16, 1, 3] {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::options().open(directory.path()).unwrap();
        store.default_database::<Str, Bytes>().put("L", &found.to_le_bytes()).wait().unwrap();
        drop(store);
        let refused = Node::options(directory.path()).open(&runtime).unwrap_err();
        assert!(
            matches!(refused, OpenError::Format { found: layout, known: 2, .. } if layout == u32::from(found)),
            "{refused}"
        );
        let store = Store::options().open(directory.path()).unwrap();
        assert_eq!(store.stat().unwrap().databases, 0, "a store that was refused has changed");
    }
}
