//! [`Change`]: the outcome of a write for a key, or for one of its values, as runs hold it.
//!
//! | bytes | content                 |
//! |-------|-------------------------|
//! | 0     | the operation           |
//! | 1..5  | the number of the table |
//! | 5..7  | the length of the key   |
//! | 7..11 | the length of the value |
//! | 11..  | the key, then the value |
//!
//! Numbers are little endian. A change states an outcome, not a request: applying the changes since
//! some moment twice has the same result as applying them once, starting from any state in between.
//!
//! Changes are ordered by their *sort key*: the table, the key and, where a key may have several values,
//! the value. A change of all values of a key comes before those of single values, and a change of a
//! whole table before those of its keys, because their values and keys are empty, and no other is.

use std::mem;

use crate::table::Table;

#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Sets the only value of a key.
    Put = 1,
    /// Adds a value to the values of a key.
    PutValue = 2,
    /// Removes a key that has one value at most.
    Delete = 3,
    DeleteAll = 4,
    DeleteValue = 5,
    Clear = 6,
}

/// The outcome of a write for a key, or for one of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change<'c> {
    pub(crate) operation: Operation,
    pub(crate) table: Table,
    pub(crate) key: &'c [u8],
    /// The stored bytes of the value, with their checksum.
    pub(crate) value: &'c [u8],
}

/// Sort key of a change: its table, its key, and its value if the key may have several.
pub(crate) type SortKey<'c> = (Table, &'c [u8], &'c [u8]);

const HEADER_BYTES: usize = 11;

impl Operation {
    fn of(byte: u8) -> Option<Operation> {
        use Operation::{Clear, Delete, DeleteAll, DeleteValue, Put, PutValue};
        [Put, PutValue, Delete, DeleteAll, DeleteValue, Clear]
            .into_iter()
            .find(|operation| *operation as u8 == byte)
    }

    /// Whether an entry exists afterwards.
    pub(crate) fn puts(self) -> bool {
        matches!(self, Operation::Put | Operation::PutValue)
    }

    /// Whether the operation may have these lengths.
    fn admits(self, key_bytes: usize, value_bytes: usize) -> bool {
        match self {
            Operation::Put => key_bytes > 0,
            Operation::PutValue | Operation::DeleteValue => key_bytes > 0 && value_bytes > 0,
            Operation::Delete | Operation::DeleteAll => key_bytes > 0 && value_bytes == 0,
            Operation::Clear => key_bytes == 0 && value_bytes == 0,
        }
    }
}

impl<'c> Change<'c> {
    pub(crate) fn sort_key(&self) -> SortKey<'c> {
        match self.operation {
            Operation::PutValue | Operation::DeleteValue => (self.table, self.key, self.value),
            _ => (self.table, self.key, &[]),
        }
    }

    /// Removes the first change from `bytes` and returns it; `None` if the bytes begin with none.
    pub(crate) fn take(bytes: &mut &'c [u8]) -> Option<Change<'c>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [operation, t0, t1, t2, t3, k0, k1, v0, v1, v2, v3] = *header;
        let operation = Operation::of(operation)?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([k0, k1])))?;
        let value_bytes = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let (value, rest) = rest.split_at_checked(value_bytes)?;
        if !operation.admits(key.len(), value.len()) {
            return None;
        }
        *bytes = rest;
        let table = Table(u32::from_le_bytes([t0, t1, t2, t3]));
        Some(Change { operation, table, key, value })
    }
}

/// Encoded changes of a group, in chunks: each has whole changes, and few bytes unless it has only one.
///
/// An allocator reuses small chunks. A buffer for all changes of a large group would be new memory of the
/// system each time, and a page fault for each of its pages.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    full: Vec<Box<[u8]>>,
    last: Vec<u8>,
    /// Number of bytes that are expected after the full chunks.
    expected: usize,
    count: u32,
}

/// Most bytes of a chunk with several changes. With 4 KiB a flood of puts of 350 bytes costs a sixth more
/// processor time; 16 KiB to 1 MiB cost the same.
const CHUNK_BYTES_MAX: usize = 64 << 10;

impl Changes {
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.expected = bytes;
        self.last.reserve(bytes.min(CHUNK_BYTES_MAX));
    }

    /// Appends a change, whose value is the parts together.
    pub(crate) fn push(
        &mut self,
        operation: Operation,
        table: Table,
        key: &[u8],
        value: [&[u8]; 2],
    ) {
        let bytes = HEADER_BYTES + key.len() + value[0].len() + value[1].len();
        if self.last.len() + bytes > CHUNK_BYTES_MAX && !self.last.is_empty() {
            self.expected = self.expected.saturating_sub(self.last.len());
            let next = Vec::with_capacity(self.expected.min(CHUNK_BYTES_MAX));
            self.full.push(mem::replace(&mut self.last, next).into());
        }
        write(&mut self.last, operation, table, key, value);
        self.count += 1;
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the changes after those returned before, which `seen` counts: full chunks, and bytes of the
    /// next one.
    pub(crate) fn after(&self, seen: &mut (usize, usize)) -> impl Iterator<Item = &[u8]> {
        let (full, skipped) = *seen;
        *seen = (self.full.len(), self.last.len());
        let chunks = self.full[full..].iter().map(|chunk| &**chunk).chain([&*self.last]);
        chunks
            .enumerate()
            .map(move |(number, chunk)| if number == 0 { &chunk[skipped..] } else { chunk })
    }

    pub(crate) fn into_chunks(mut self) -> Vec<Box<[u8]>> {
        if !self.last.is_empty() {
            self.full.push(self.last.into());
        }
        self.full
    }
}

/// Whether bytes are so many changes, of tables below a number.
pub(crate) fn are_whole(mut bytes: &[u8], count: u32, tables: u32) -> bool {
    let mut changes = 0;
    while let Some(change) = Change::take(&mut bytes) {
        changes += 1;
        if change.table.0 >= tables {
            return false;
        }
    }
    bytes.is_empty() && changes == count
}

/// Appends a change, whose value is the parts together, to `bytes`.
pub(crate) fn write(
    bytes: &mut Vec<u8>,
    operation: Operation,
    table: Table,
    key: &[u8],
    value: [&[u8]; 2],
) {
    let value_bytes = value[0].len() + value[1].len();
    debug_assert!(operation.admits(key.len(), value_bytes));
    bytes.reserve(HEADER_BYTES + key.len() + value_bytes);
    bytes.push(operation as u8);
    bytes.extend_from_slice(&table.0.to_le_bytes());
    // The lengths fit: the batch has checked keys and values.
    bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&(value_bytes as u32).to_le_bytes());
    for part in [key, value[0], value[1]] {
        bytes.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_and_malformed_ones_do_not() {
        let mut bytes = Vec::new();
        write(&mut bytes, Operation::Put, Table(3), b"key", [b"va", b"lue"]);
        write(&mut bytes, Operation::Clear, Table(4), b"", [b"", b""]);
        let mut rest = bytes.as_slice();
        let put = Change::take(&mut rest).unwrap();
        let (operation, table) = (Operation::Put, Table(3));
        assert_eq!(put, Change { operation, table, key: b"key", value: b"value" });
        assert_eq!(Change::take(&mut rest).unwrap().operation, Operation::Clear);
        assert!(rest.is_empty());

        let first = HEADER_BYTES + 8;
        assert!((0..first).all(|length| Change::take(&mut &bytes[..length]).is_none()));
        for operation in [0, 7, u8::MAX, Operation::Delete as u8, Operation::Clear as u8] {
            bytes[0] = operation;
            assert!(Change::take(&mut bytes.as_slice()).is_none());
        }
    }

    #[test]
    fn a_change_of_all_comes_before_changes_of_each() {
        let sort_key =
            |operation, key, value| Change { operation, table: Table(1), key, value }.sort_key();
        let sort_keys: [SortKey<'_>; 5] = [
            sort_key(Operation::Clear, b"", b""),
            sort_key(Operation::DeleteAll, b"a", b""),
            sort_key(Operation::PutValue, b"a", b"1"),
            sort_key(Operation::DeleteValue, b"a", b"2"),
            sort_key(Operation::Put, b"b", b"0"),
        ];
        assert!(sort_keys.is_sorted_by(|one, other| one < other));
    }
}
