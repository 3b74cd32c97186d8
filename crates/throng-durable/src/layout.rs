//! Layout of an entity's records in the store.
//!
//! | key                                          | value                                      |
//! |----------------------------------------------|--------------------------------------------|
//! | `K` kind `L` key `0x00`                      | version (`u16`, little endian), then state |
//! | `K` kind `L` key `0x01` cell key             | the cell's value                           |
//! | `0x00` kind                                  | number of stored entities of it (`i64`)    |
//! | anything that begins with `0x41` or more     | free, for later tables                     |
//!
//! `K` (1 to 64) and `L` (1 to 255) are the lengths of the parts after them, a byte each. The
//! lengths make every entity's prefix unique and no prefix the beginning of another. So the keys
//! need no escaping, an entity's records are adjacent, and its cells are in the order of their own
//! keys. States and cell values are encoded with postcard.
//!
//! The longest key has to fit the store: 1 + 64 + 1 + 255 + 1 bytes leave 189 for a cell key.

use std::ops::{Bound, RangeBounds};

use throng_store::KEY_BYTES_MAX;

use crate::KeyError;

/// Maximum length of a [`KIND`](crate::Durable::KIND), in bytes.
pub const KIND_BYTES_MAX: usize = 64;

/// Maximum length of an entity's key, in bytes.
pub const ENTITY_KEY_BYTES_MAX: usize = 255;

/// Maximum length of a cell's key, in bytes.
pub const CELL_KEY_BYTES_MAX: usize =
    KEY_BYTES_MAX - (1 + KIND_BYTES_MAX + 1 + ENTITY_KEY_BYTES_MAX + 1);

/// Common prefix of the records of counts.
pub(crate) const COUNTS: &[u8] = &[0];

const STATE: u8 = 0;
const CELLS: u8 = 1;
const AFTER_CELLS: u8 = 2;

/// Returns the key of the count of a kind.
pub(crate) fn count(kind: &str) -> Vec<u8> {
    [COUNTS, kind.as_bytes()].concat()
}

/// The common prefix of the keys of an entity's records, followed by [`STATE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPrefix(Box<[u8]>);

impl KeyPrefix {
    /// Builds the prefix of the entity (kind, key).
    pub(crate) fn new(kind: &'static str, key: &str) -> Result<KeyPrefix, KeyError> {
        let kind_bytes = length(kind, KIND_BYTES_MAX)?;
        let key_bytes = length(key, ENTITY_KEY_BYTES_MAX)?;
        let parts = [&[kind_bytes], kind.as_bytes(), &[key_bytes], key.as_bytes(), &[STATE]];
        Ok(KeyPrefix(parts.concat().into()))
    }

    /// Returns the key of the state.
    pub(crate) fn state(&self) -> &[u8] {
        &self.0
    }

    /// Returns the key of a cell.
    pub(crate) fn cell(&self, key: &[u8]) -> Vec<u8> {
        self.with(CELLS, key)
    }

    /// Returns the cell's own key, the rest of `key` after this prefix.
    pub(crate) fn cell_of<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        &key[self.0.len()..]
    }

    /// Returns the store's bounds for a range of cells.
    pub(crate) fn cells<'k>(
        &self,
        bounds: &impl RangeBounds<&'k [u8]>,
    ) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let start = match bounds.start_bound() {
            Bound::Unbounded => Bound::Included(self.with(CELLS, b"")),
            bound => bound.map(|key| self.cell(key)),
        };
        let end = match bounds.end_bound() {
            Bound::Unbounded => Bound::Excluded(self.with(AFTER_CELLS, b"")),
            bound => bound.map(|key| self.cell(key)),
        };
        (start, end)
    }

    fn with(&self, part: u8, rest: &[u8]) -> Vec<u8> {
        [&self.0[..self.0.len() - 1], &[part], rest].concat()
    }
}

fn length(text: &str, bytes_max: usize) -> Result<u8, KeyError> {
    match text.len() {
        0 => Err(KeyError::Empty),
        bytes if bytes > bytes_max => Err(KeyError::TooLong { bytes, bytes_max }),
        // Both limits fit a byte.
        bytes => Ok(bytes as u8),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_checked_at_their_edges() {
        assert_eq!(KeyPrefix::new("kind", ""), Err(KeyError::Empty));
        assert!(KeyPrefix::new("kind", &"k".repeat(255)).is_ok());
        let too_long = KeyError::TooLong { bytes: 256, bytes_max: 255 };
        assert_eq!(KeyPrefix::new("kind", &"k".repeat(256)), Err(too_long));
    }

    #[test]
    fn the_longest_keys_just_fit_the_store() {
        const KIND: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
        assert_eq!(KIND.len(), KIND_BYTES_MAX);
        let prefix = KeyPrefix::new(KIND, &"k".repeat(ENTITY_KEY_BYTES_MAX)).unwrap();
        assert_eq!(prefix.cell(&[0; CELL_KEY_BYTES_MAX]).len(), KEY_BYTES_MAX);
    }

    /// Kinds and keys that are easily confused with each other.
    fn texts() -> impl Strategy<Value = (&'static str, String)> {
        let kind = prop_oneof![Just("a"), Just("aa"), Just("a\u{1}a"), Just("\u{1}")];
        (kind, "[a\u{0}\u{1}\u{2}]{1,4}")
    }

    proptest! {
        #[test]
        fn no_two_entities_share_a_record(
            (kind, key) in texts(),
            (other_kind, other_key) in texts(),
            cell in prop::collection::vec(0u8..3, 0..4),
            other_cell in prop::collection::vec(0u8..3, 0..4),
        ) {
            let prefix = KeyPrefix::new(kind, &key).unwrap();
            let other = KeyPrefix::new(other_kind, &other_key).unwrap();
            let same = kind == other_kind && key == other_key;
            prop_assert_eq!(prefix == other, same);
            prop_assert_eq!(prefix.cell(&cell) == other.cell(&other_cell), same && cell == other_cell);
            prop_assert_ne!(prefix.state(), other.cell(&other_cell));
            let stored = prefix.cell(&cell);
            prop_assert_eq!(prefix.cell_of(&stored), &cell[..]);

            let all = prefix.cells(&(..));
            let within = |key: Vec<u8>| all.contains(&key);
            prop_assert!(within(prefix.cell(&cell)));
            prop_assert_eq!(within(other.cell(&other_cell)), same);
            prop_assert!(!within(other.state().to_vec()));
            prop_assert!(!within(count(other_kind)) && !prefix.state().starts_with(COUNTS));
        }
    }
}
