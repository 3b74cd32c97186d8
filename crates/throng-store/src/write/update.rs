//! [`Update`]: reading and writing in a single transaction, on the writer thread.
//!
//! The writes of a closure are kept in a memtable of their own until it has returned, over everything that
//! it reads. So a closure that fails or panics leaves no trace in its group, and costs the other requests
//! nothing.

use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::disk::lmdb::ReadTxn;
use crate::disk::record;
use crate::memtable::change::{self, Operation};
use crate::memtable::{Layers, Memtable};
use crate::read::readers::Readers;
use crate::read::state::State;
use crate::table::{Kind, TableRef};
use crate::write::foreign;
use crate::{Batch, KEY_BYTES_MAX, ReadError, Rejection};

/// The argument of a closure of [`Store::update`](crate::Store::update): the store as it is at that
/// point of the commit, including the closure's own writes.
///
/// A put that can never be stored (see [`Rejection`]) makes the update fail when
/// the closure has returned.
pub struct Update<'t> {
    txn: &'t ReadTxn,
    /// Everything that was written before, with the closure's own writes on top.
    layers: Layers,
    store: u64,
    batch: Batch,
    /// The closure's writes, for its own reads.
    own: Arc<Memtable>,
    /// Position of the closure's next write.
    position: u64,
}

impl<'t> Update<'t> {
    /// Creates an update over a state; the closure's first write gets the `position`.
    pub(crate) fn new(readers: &Readers, state: State<'t>, position: u64) -> Update<'t> {
        let own = Arc::new(Memtable::new(readers.tables_max(), 0));
        let layers = state.layers.under(own.clone());
        let (store, batch) = (readers.id(), Batch::new());
        Update { txn: state.txn, layers, store, batch, own, position }
    }

    /// Returns the reason why the writes of the closure can never be stored, if there is one.
    pub(crate) fn rejection(&self) -> Option<Rejection> {
        self.batch.check(self.store).err()
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.store
    }

    pub(crate) fn into_batch(self) -> Batch {
        self.batch
    }

    /// Returns the state that the closure reads, with its own writes.
    pub(crate) fn state(&self) -> State<'_> {
        State { txn: self.txn, layers: &self.layers }
    }

    pub(crate) fn read(&self, table_ref: TableRef, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let stored = self.state().stored(table_ref, key).map_err(ReadError::from_engine)?;
        stored.map(|stored| table_ref.value(key, stored)).transpose()
    }

    /// Adds an operation to the batch; returns whether it can be stored.
    pub(crate) fn add(&mut self, add: impl FnOnce(Batch) -> Batch) -> bool {
        let before = self.batch.len();
        self.batch = add(mem::take(&mut self.batch));
        self.batch.len() > before
    }

    /// Keeps a write that the batch has, for the closure's own reads.
    pub(crate) fn write(
        &mut self,
        operation: Operation,
        table_ref: TableRef,
        key: &[u8],
        value: &[u8],
    ) {
        // A value without bytes is never among several.
        if operation != Operation::DeleteValue || !value.is_empty() {
            let is_checked = table_ref.kind == Kind::Checked && operation == Operation::Put;
            let header = is_checked.then(|| record::header(key, value));
            let header = header.as_deref().unwrap_or_default();
            let mut change = Vec::new();
            change::write(&mut change, operation, table_ref.table, key, [header, value]);
            self.own.add(self.position, change.into());
            self.position += 1;
        }
    }
}

impl fmt::Debug for Update<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("batch", &self.batch).finish_non_exhaustive()
    }
}

/// A closure for the writer; it returns whether its writes are to be applied. Runs again if its
/// group is retried.
pub(crate) struct Job(Option<Box<Closure>>);

type Closure = dyn FnMut(&mut Update<'_>) -> bool + Send;

impl Job {
    /// Creates a job from a closure that does not panic.
    pub(crate) fn new(closure: impl FnMut(&mut Update<'_>) -> bool + Send + 'static) -> Job {
        Job(Some(Box::new(closure)))
    }

    pub(crate) fn run(&mut self, update: &mut Update<'_>) -> bool {
        self.0.as_mut().is_some_and(|closure| closure(update))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The closure owns the user's captures, and perhaps the last reference to the outcome. The
        // writer drops it if no task waits for the ticket.
        foreign::discard(self.0.take());
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}
