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
pub const CELL_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - STATE_KEY_BYTES_MAX;

/// Common prefix of the records of counts.
pub(crate) const COUNTS: &[u8] = &[0];

const STATE: u8 = 0;
const CELLS: u8 = 1;
const AFTER_CELLS: u8 = 2;

/// Returns the key of the count of a kind.
pub(crate) fn count(kind: &str) -> Vec<u8> {
    [COUNTS, kind.as_bytes()].concat()
}

/// Writes the key of an entity's state, (kind, key), into a buffer for it, and returns it.
pub(crate) fn state_key<'b>(
    kind: &'static str,
    key: &str,
    buffer: &'b mut [u8; STATE_KEY_BYTES_MAX],
) -> Result<&'b [u8], KeyError> {
    let kind_bytes = length(kind, KIND_BYTES_MAX)?;
    let key_bytes = length(key, ENTITY_KEY_BYTES_MAX)?;
    let mut bytes = 0;
    for part in [&[kind_bytes], kind.as_bytes(), &[key_bytes], key.as_bytes(), &[STATE]] {
        buffer[bytes..bytes + part.len()].copy_from_slice(part);
        bytes += part.len();
    }
    Ok(&buffer[..bytes])
}

/// Length of the longest key of a state.
pub(crate) const STATE_KEY_BYTES_MAX: usize = 1 + KIND_BYTES_MAX + 1 + ENTITY_KEY_BYTES_MAX + 1;

/// Returns the entity's own key, a part of the key of its state.
pub(crate) fn own_key(state_key: &[u8]) -> &str {
    let start = 1 + usize::from(state_key[0]) + 1;
    match std::str::from_utf8(&state_key[start..state_key.len() - 1]) {
        Ok(key) => key,
        Err(_) => unreachable!("`state_key` has written a string"),
    }
}

/// The key of an entity's state. Without its last byte it is the prefix of the keys of all records of the
/// entity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPrefix<'n>(pub(crate) &'n [u8]);

impl KeyPrefix<'_> {
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

    fn state_key_of(kind: &'static str, key: &str) -> Result<Vec<u8>, KeyError> {
        state_key(kind, key, &mut [0; STATE_KEY_BYTES_MAX]).map(<[u8]>::to_vec)
    }

    #[test]
    fn sizes_are_checked_at_their_edges() {
        assert_eq!(state_key_of("kind", ""), Err(KeyError::Empty));
        assert_eq!(own_key(&state_key_of("kind", &"k".repeat(255)).unwrap()), "k".repeat(255));
        let too_long = KeyError::TooLong { bytes: 256, bytes_max: 255 };
        assert_eq!(state_key_of("kind", &"k".repeat(256)), Err(too_long));
    }

    #[test]
    fn the_longest_keys_just_fit_the_store() {
        const KIND: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
        assert_eq!(KIND.len(), KIND_BYTES_MAX);
        let state = state_key_of(KIND, &"k".repeat(ENTITY_KEY_BYTES_MAX)).unwrap();
        let prefix = KeyPrefix(&state);
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
            let state = state_key_of(kind, &key).unwrap();
            let other_state = state_key_of(other_kind, &other_key).unwrap();
            let (prefix, other) = (KeyPrefix(&state), KeyPrefix(&other_state));
            let same = kind == other_kind && key == other_key;
            prop_assert_eq!(state == other_state, same);
            prop_assert_eq!(own_key(&state), key);
            prop_assert_eq!(prefix.cell(&cell) == other.cell(&other_cell), same && cell == other_cell);
            prop_assert_ne!(&state, &other.cell(&other_cell));
            let stored = prefix.cell(&cell);
            prop_assert_eq!(prefix.cell_of(&stored), &cell[..]);

            let all = prefix.cells(&(..));
            let within = |key: Vec<u8>| all.contains(&key);
            prop_assert!(within(prefix.cell(&cell)));
            prop_assert_eq!(within(other.cell(&other_cell)), same);
            prop_assert!(!within(other_state));
            prop_assert!(!within(count(other_kind)) && !state.starts_with(COUNTS));
        }
    }
}
