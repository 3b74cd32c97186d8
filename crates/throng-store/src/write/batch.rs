//! [`Batch`]: a list of changes that becomes durable as a whole.
//!
//! Operations are consecutive in a single buffer, so a batch costs one allocation however many
//! operations it holds, and travels to the writer thread and back without touching them:
//!
//! | bytes | content                           |
//! |-------|-----------------------------------|
//! | 0     | the operation                     |
//! | 1     | the kind of the database          |
//! | 2..6  | the number of its table           |
//! | 6..8  | the length of the key             |
//! | 8..12 | the length of the value           |
//! | 12..  | the key, then the value           |
//!
//! Sizes are checked as operations are added. An operation that can never be stored is dropped: the
//! batch remembers the reason, and is refused as a whole.

use std::mem;

use crate::table::{Kind, Table, TableRef};
use crate::{CodecError, KEY_BYTES_MAX, Rejection, VALUE_BYTES_MAX};

/// Puts, deletes and additions that are applied atomically and in order: all of them or none.
///
/// ```
/// use throng_store::{Batch, Store, Str, U64};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let balances = store.database::<Str, U64>("balances")?;
/// let transfers = store.database::<U64, Str>("transfers")?;
/// let batch = Batch::new().put(&balances, "ada", &5).put(&balances, "alan", &7).delete(&transfers, &1);
/// assert_eq!(batch.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    buffer: Vec<u8>,
    operations: usize,
    /// Id of the store whose databases the batch names.
    store: Option<u64>,
    /// Whether the batch is refused if a key exists.
    conditional: bool,
    /// Reason why the batch can never be stored.
    rejection: Option<Rejection>,
}

/// A single operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<'b> {
    /// Sets the key to this value; in a database with several values under a key, adds the value.
    Put(&'b [u8]),
    /// Sets the key to this value, or refuses the whole batch if the key exists.
    PutNew(&'b [u8]),
    /// Removes the key.
    Delete,
    /// Removes this value of the key.
    DeleteValue(&'b [u8]),
    /// Adds this number to the counter under the key.
    Add(i64),
    /// Removes all keys.
    Clear,
}

const HEADER_BYTES: usize = 12;

/// Most bytes of a batch that are copied into another; more are moved with their memory.
const COPIED_BYTES_MAX: usize = 4 << 10;

#[repr(u8)]
#[derive(Clone, Copy)]
pub(crate) enum Code {
    Put,
    PutNew,
    Delete,
    DeleteValue,
    Add,
    Clear,
}

impl Batch {
    /// Creates an empty batch. Writing an empty batch changes nothing; its ticket resolves after
    /// all writes queued before it.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds an operation that sets `key` to `value` in a table, or adds the value where a key may have
    /// several.
    pub(crate) fn put_at(mut self, table_ref: TableRef, key: &[u8], value: &[u8]) -> Batch {
        self.push(Code::Put, table_ref, key, value);
        self
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations
    }

    /// Whether the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Iterates over the operations in order: each with its key and its change. Operations that can
    /// never be stored are not included.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Change<'_>)> {
        self.operations().map(|(_, key, change)| (key, change))
    }

    /// Iterates over the operations in order, each with its table.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (TableRef, &[u8], Change<'_>)> {
        let mut rest = self.buffer.as_slice();
        std::iter::from_fn(move || {
            let (header, after_header) = rest.split_first_chunk::<HEADER_BYTES>()?;
            let [code, kind, t0, t1, t2, t3, k0, k1, v0, v1, v2, v3] = *header;
            let key_bytes = usize::from(u16::from_le_bytes([k0, k1]));
            let value_bytes = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
            let (key, after_key) = after_header.split_at(key_bytes);
            let (value, after) = after_key.split_at(value_bytes);
            rest = after;
            let table = Table(u32::from_le_bytes([t0, t1, t2, t3]));
            let table_ref = TableRef { table, kind: kind_of(kind) };
            let change = match code {
                code if code == Code::Put as u8 => Change::Put(value),
                code if code == Code::PutNew as u8 => Change::PutNew(value),
                code if code == Code::Delete as u8 => Change::Delete,
                code if code == Code::DeleteValue as u8 => Change::DeleteValue(value),
                code if code == Code::Add as u8 => Change::Add(counter(value)),
                _ => Change::Clear,
            };
            Some((table_ref, key, change))
        })
    }

    /// Whether the batch may be refused because of what is stored.
    pub(crate) fn is_conditional(&self) -> bool {
        self.conditional
    }

    /// Moves the operations of another batch behind those of this one, and leaves it empty.
    pub(crate) fn append(&mut self, other: &mut Batch) {
        if self.buffer.is_empty() && other.buffer.len() > COPIED_BYTES_MAX {
            mem::swap(&mut self.buffer, &mut other.buffer);
        } else {
            self.buffer.extend_from_slice(&other.buffer);
            other.buffer.clear();
        }
        self.operations += mem::take(&mut other.operations);
        self.conditional |= mem::take(&mut other.conditional);
        self.store = self.store.or(other.store.take());
        if let Some(rejection) = other.rejection.take() {
            self.rejection.get_or_insert(rejection);
        }
    }

    /// Bytes that the batch counts towards the queue's limit.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len() + size_of::<Batch>()
    }

    pub(crate) fn check(&self, store: u64) -> Result<(), Rejection> {
        match &self.rejection {
            Some(rejection) => Err(rejection.clone()),
            None if self.store.is_some_and(|own| own != store) => Err(Rejection::OtherStore),
            None => Ok(()),
        }
    }

    /// Refuses the batch if it names databases of several stores.
    pub(crate) fn belongs_to(&mut self, store: u64) {
        if *self.store.get_or_insert(store) != store {
            self.rejection.get_or_insert(Rejection::OtherStore);
        }
    }

    /// Refuses the batch if a key or value has no encoding.
    pub(crate) fn encoded(&mut self, encoded: Result<(), CodecError>) {
        if let Err(error) = encoded {
            self.rejection.get_or_insert(Rejection::Encoding(error));
        }
    }

    pub(crate) fn push(&mut self, code: Code, table_ref: TableRef, key: &[u8], value: &[u8]) {
        match check(code, table_ref.kind, key, value) {
            Ok(()) => self.push_unchecked(code, table_ref, key, value),
            Err(rejection) => {
                self.rejection.get_or_insert(rejection);
            }
        }
    }

    pub(crate) fn push_unchecked(
        &mut self,
        code: Code,
        table_ref: TableRef,
        key: &[u8],
        value: &[u8],
    ) {
        self.conditional |= matches!(code, Code::PutNew);
        self.operations += 1;
        let mut header = [0; HEADER_BYTES];
        header[0] = code as u8;
        header[1] = table_ref.kind as u8;
        header[2..6].copy_from_slice(&table_ref.table.0.to_le_bytes());
        // The lengths were checked: at most 511 bytes for a key, and 16 MiB for a value.
        header[6..8].copy_from_slice(&(key.len() as u16).to_le_bytes());
        header[8..12].copy_from_slice(&(value.len() as u32).to_le_bytes());
        self.buffer.reserve(HEADER_BYTES + key.len() + value.len());
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
    }
}

/// Checks whether an operation can ever be stored.
fn check(code: Code, kind: Kind, key: &[u8], value: &[u8]) -> Result<(), Rejection> {
    check_key(key)?;
    let duplicates = kind == Kind::Duplicates;
    match code {
        Code::Put | Code::PutNew if duplicates && value.is_empty() => {
            return Err(Rejection::ValueEmpty);
        }
        Code::Add if duplicates => return Err(Rejection::Duplicates),
        Code::DeleteValue if !duplicates => return Err(Rejection::NoDuplicates),
        _ => {}
    }
    check_value(kind, value)
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Rejection> {
    match key.len() {
        0 => Err(Rejection::KeyEmpty),
        bytes if bytes > KEY_BYTES_MAX => Err(Rejection::KeyTooLong { bytes }),
        _ => Ok(()),
    }
}

pub(crate) fn check_value(kind: Kind, value: &[u8]) -> Result<(), Rejection> {
    let bytes = value.len();
    let bytes_max = if kind == Kind::Duplicates { KEY_BYTES_MAX } else { VALUE_BYTES_MAX };
    if bytes > bytes_max { Err(Rejection::ValueTooLong { bytes, bytes_max }) } else { Ok(()) }
}

pub(crate) fn counter(value: &[u8]) -> i64 {
    value.try_into().map_or(0, i64::from_le_bytes)
}

fn kind_of(byte: u8) -> Kind {
    match byte {
        byte if byte == Kind::Plain as u8 => Kind::Plain,
        byte if byte == Kind::Duplicates as u8 => Kind::Duplicates,
        _ => Kind::Checked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Store};

    #[test]
    fn operations_come_back_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let db = &store.default_database::<Bytes, Bytes>();
        let batch = Batch::new()
            .put(db, b"a", b"1")
            .delete(db, b"bb")
            .put(db, b"c", b"")
            .add(db, b"n", -7)
            .put_new(db, b"x", b"2");
        let operations: Vec<_> = batch.iter().collect();
        let expected: [(&[u8], _); 5] = [
            (b"a", Change::Put(b"1")),
            (b"bb", Change::Delete),
            (b"c", Change::Put(b"")),
            (b"n", Change::Add(-7)),
            (b"x", Change::PutNew(b"2")),
        ];
        assert_eq!(operations, expected);
        assert_eq!(batch.len(), 5);
        assert!(batch.is_conditional());
    }

    #[test]
    fn sizes_are_checked_at_their_edges() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let db = &store.default_database::<Bytes, Bytes>();
        let check = |batch: Batch| batch.check(store.id());
        let key = |bytes: usize| {
            check(Batch::new().put(db, b"fine", b"fine").delete(db, &vec![7; bytes]))
        };
        assert_eq!(key(0), Err(Rejection::KeyEmpty));
        assert_eq!(key(1), Ok(()));
        assert_eq!(key(511), Ok(()));
        assert_eq!(key(512), Err(Rejection::KeyTooLong { bytes: 512 }));

        let value = |bytes: usize| check(Batch::new().put(db, b"k", &vec![7; bytes]));
        assert_eq!(value(0), Ok(()));
        assert_eq!(value(VALUE_BYTES_MAX), Ok(()));
        let bytes = VALUE_BYTES_MAX + 1;
        let bytes_max = VALUE_BYTES_MAX;
        assert_eq!(value(bytes), Err(Rejection::ValueTooLong { bytes, bytes_max }));
    }
}
