//! [`Loader`]: a bulk load, which goes straight into LMDB.
//!
//! Entries that come in order need neither the queue nor the log: they are appended to LMDB's tree in
//! chunks, and each chunk is as durable as the store is when the next one begins.

use std::borrow::Borrow;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::disk::environment::Environment;
use crate::disk::{lmdb, record};
use crate::error::is_lack_of_room;
use crate::memtable::change::{self, Operation};
use crate::table::{Kind, TableRef};
use crate::write::batch::{check_key, check_value};
use crate::{Codec, LoadError, LoadFailure, Rejection};

/// Most bytes and entries of a chunk: what a writer waits for, if it comes meanwhile.
const CHUNK_BYTES: usize = 8 << 20;
/// Most chunks that a map has room for: the last that does not fit leaves little room unused.
const CHUNKS_MAX: u64 = 64;
const CHUNK_ENTRIES: usize = 64 << 10;

struct Loader<'e> {
    environment: &'e Environment,
    table_ref: TableRef,
    chunk: Vec<u8>,
    chunk_bytes: usize,
    entries: u64,
    loaded: u64,
    /// The last key, and the last value if a key may have several.
    last: (Vec<u8>, Vec<u8>),
}

/// Stores entries, whose keys ascend, and returns their number.
pub(crate) fn load<K: Codec, V: Codec>(
    environment: &Environment,
    table_ref: TableRef,
    entries: impl IntoIterator<Item = (impl Borrow<K::Item>, impl Borrow<V::Item>)>,
) -> Result<u64, LoadError> {
    let share = environment.env().map_or(0, |env| env.map_bytes() / CHUNKS_MAX);
    let mut loader = Loader {
        environment,
        table_ref,
        chunk: Vec::new(),
        chunk_bytes: usize::try_from(share).map_or(CHUNK_BYTES, |share| share.min(CHUNK_BYTES)),
        entries: 0,
        loaded: 0,
        last: (Vec::new(), Vec::new()),
    };
    // The caller's iterator and codecs may panic. A chunk gets an entry as a whole, so it is intact then.
    let added = catch_unwind(AssertUnwindSafe(|| loader.add_all::<K, V>(entries)));
    let stored = loader.store();
    match added.unwrap_or_else(|panic| resume_unwind(panic)) {
        Ok(()) => stored.map(|()| loader.loaded),
        Err(failure) => stored.and(Err(LoadError { loaded: loader.loaded, failure })),
    }
}

impl Loader<'_> {
    /// Adds entries up to the first that cannot be stored.
    fn add_all<K: Codec, V: Codec>(
        &mut self,
        entries: impl IntoIterator<Item = (impl Borrow<K::Item>, impl Borrow<V::Item>)>,
    ) -> Result<(), LoadFailure> {
        for (key, value) in entries {
            let added = K::encode(key.borrow(), |key| {
                V::encode(value.borrow(), |value| self.add(key, value))
            });
            let added = added.and_then(|added| added);
            added.map_err(|error| LoadFailure::Rejected(Rejection::Encoding(error)))??;
        }
        Ok(())
    }

    /// Adds an entry to the chunk, and stores the chunk before if it is full.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadFailure> {
        let TableRef { table, kind } = self.table_ref;
        let several = kind == Kind::Duplicates;
        check_key(key).and_then(|()| check_value(kind, value)).map_err(LoadFailure::Rejected)?;
        if several && value.is_empty() {
            return Err(LoadFailure::Rejected(Rejection::ValueEmpty));
        }
        let sorted_by = if several { value } else { &[] };
        // Every key is above the empty one, with which a load begins.
        if (self.last.0.as_slice(), self.last.1.as_slice()) >= (key, sorted_by) {
            return Err(LoadFailure::Order);
        }
        if self.chunk.len() >= self.chunk_bytes || self.entries >= CHUNK_ENTRIES as u64 {
            self.store().map_err(|error| error.failure)?;
        }
        self.last.0.clear();
        self.last.0.extend_from_slice(key);
        self.last.1.clear();
        self.last.1.extend_from_slice(sorted_by);
        let header = (kind == Kind::Checked).then(|| record::header(key, value));
        let header = header.as_deref().unwrap_or_default();
        let operation = if several { Operation::PutValue } else { Operation::Put };
        change::write(&mut self.chunk, operation, table, key, [header, value]);
        self.entries += 1;
        Ok(())
    }

    fn store(&mut self) -> Result<(), LoadError> {
        if self.entries == 0 {
            return Ok(());
        }
        let entries = std::mem::take(&mut self.entries);
        let stored = self.environment.load(self.table_ref.table, &self.chunk);
        self.chunk.clear();
        stored.map_err(|failure| LoadError { loaded: self.loaded, failure })?;
        self.loaded += entries;
        Ok(())
    }
}

impl LoadFailure {
    pub(crate) fn from_engine(error: lmdb::Error) -> LoadFailure {
        match error {
            lmdb::Error::Panic => LoadFailure::Recovering,
            error => LoadFailure::from_io(error.into_io()),
        }
    }

    pub(crate) fn from_io(error: io::Error) -> LoadFailure {
        if is_lack_of_room(&error) { LoadFailure::Full(error) } else { LoadFailure::Failed(error) }
    }
}
