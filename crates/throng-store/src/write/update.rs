//! [`Update`]: reading and writing in a single transaction, on the writer thread.
//!
//! The writes of a closure are kept in a memtable of their own until it has returned, over everything that
//! it reads. So a closure that fails or panics leaves no trace in its group, and costs the other requests
//! nothing.

use std::fmt;
use std::future::Future;
use std::mem;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::database::{Kind, TableRef, encode_bounds};
use crate::disk::environment::Environment;
use crate::disk::lmdb::ReadTxn;
use crate::disk::record;
use crate::memtable::change::{self, Operation};
use crate::memtable::{Layers, Memtable};
use crate::read::merge;
use crate::read::range::{OwnedBounds, Source, borrow, prefix_bounds};
use crate::read::state::State;
use crate::write::foreign;
use crate::{
    Batch, Codec, Database, KEY_BYTES_MAX, Range, ReadError, Ticket, UpdateError, WriteError,
};

/// The argument of a closure of [`Store::update`](crate::Store::update): the store as it is at that
/// point of the commit, including the closure's own writes.
///
/// A put that can never be stored (see [`Rejection`](crate::Rejection)) makes the update fail when
/// the closure has returned.
pub struct Update<'t> {
    txn: &'t ReadTxn,
    /// Everything that was written before, with the closure's own writes on top.
    layers: Layers,
    environment: &'t Environment,
    batch: Batch,
    /// The closure's writes, for its own reads.
    own: Arc<Memtable>,
    /// Position of the closure's next write.
    position: u64,
}

impl<'t> Update<'t> {
    /// Creates an update over a state; the closure's first write gets the `position`.
    pub(crate) fn new(environment: &'t Environment, state: State<'t>, position: u64) -> Update<'t> {
        let own = Arc::new(Memtable::new(environment.tables_max(), 0));
        let layers = state.layers.under(own.clone());
        Update { txn: state.txn, layers, environment, batch: Batch::new(), own, position }
    }

    /// Returns the value under `key` in `database`; the first, if there are several.
    ///
    /// # Errors
    ///
    /// [`ReadError`], also if the codec cannot decode the bytes.
    pub fn get<K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
        key: &K::Item,
    ) -> Result<Option<V::Decoded<'_>>, ReadError> {
        self.check(database)?;
        let bytes = K::encode(key, |key| self.read(database.table_ref(), key))??;
        bytes.map(|bytes| V::decode(bytes).map_err(ReadError::from)).transpose()
    }

    /// Sets `key` to `value` in `database`; if a key may have several values there, adds the value.
    pub fn put<K: Codec, V: Codec>(
        &mut self,
        database: &Database<K, V>,
        key: &K::Item,
        value: &V::Item,
    ) {
        let table_ref = database.table_ref();
        let several = table_ref.kind == Kind::Duplicates;
        let operation = if several { Operation::PutValue } else { Operation::Put };
        if self.add(|batch| batch.put(database, key, value)) {
            self.write_in(operation, database, key, Some(value));
        }
    }

    /// Removes `key` from `database`, with all its values.
    pub fn delete<K: Codec, V: Codec>(&mut self, database: &Database<K, V>, key: &K::Item) {
        let several = database.table_ref().kind == Kind::Duplicates;
        let operation = if several { Operation::DeleteAll } else { Operation::Delete };
        if self.add(|batch| batch.delete(database, key)) {
            self.write_in(operation, database, key, None);
        }
    }

    /// Removes this value of the key, in a database with several values under a key.
    pub fn delete_value<K: Codec, V: Codec>(
        &mut self,
        database: &Database<K, V>,
        key: &K::Item,
        value: &V::Item,
    ) {
        if self.add(|batch| batch.delete_value(database, key, value)) {
            self.write_in(Operation::DeleteValue, database, key, Some(value));
        }
    }

    /// Removes all entries of `database`. LMDB calls it `mdb_drop`.
    ///
    /// ```
    /// # use throng_store::{ReadError, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let seats = store.database::<Str, U64>("seats")?;
    /// seats.put("ada", &1).wait()?;
    /// let taken = store.update({
    ///     let seats = seats.clone();
    ///     move |update| {
    ///         update.clear(&seats);
    ///         update.put(&seats, "alan", &1);
    ///         Ok::<_, ReadError>(update.range(&seats, ..).count())
    ///     }
    /// });
    /// assert_eq!(taken.wait()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear<K: Codec, V: Codec>(&mut self, database: &Database<K, V>) {
        if self.add(|batch| batch.clear(database)) {
            self.write(Operation::Clear, database.table_ref(), &[], &[]);
        }
    }

    /// Iterates over the entries of `database` whose keys lie within the bounds, from either end.
    ///
    /// ```
    /// # use throng_store::{Batch, ReadError, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let jobs = store.database::<U64, Str>("jobs")?;
    /// store.write(Batch::new().put(&jobs, &1, "a").put(&jobs, &2, "b")).wait()?;
    /// // Takes the first job from the queue, exactly once among concurrent updates.
    /// let taken = store.update(move |update| {
    ///     let Some((number, job)) = update.range(&jobs, ..).next().transpose()? else {
    ///         return Ok::<_, ReadError>(None);
    ///     };
    ///     let job = job.to_owned();
    ///     update.delete(&jobs, &number);
    ///     Ok(Some(job))
    /// });
    /// assert_eq!(taken.wait()?, Some("a".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<'k, K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
        bounds: impl RangeBounds<&'k K::Item>,
    ) -> Range<'_, K, V>
    where
        K::Item: 'k,
    {
        let bounds = self.check(database).and_then(|()| encode_bounds::<K>(bounds));
        self.range_of(database.table_ref(), bounds)
    }

    /// Iterates over the entries of `database` whose encoded keys begin with `prefix`, from either
    /// end.
    pub fn prefix<K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
        prefix: &[u8],
    ) -> Range<'_, K, V> {
        let bounds = self.check(database).map(|()| prefix_bounds(prefix));
        self.range_of(database.table_ref(), bounds)
    }

    /// Returns the writes of the closure.
    pub(crate) fn into_batch(self) -> Batch {
        self.batch
    }

    /// Opens a cursor over a table, with the closure's writes.
    pub(crate) fn open_cursor(&self, table_ref: TableRef) -> Result<merge::Cursor<'_>, ReadError> {
        self.state().cursor(table_ref).map_err(ReadError::from_engine)
    }

    fn state(&self) -> State<'_> {
        State { txn: self.txn, layers: &self.layers }
    }

    fn range_of<K: Codec, V: Codec>(
        &self,
        table_ref: TableRef,
        bounds: Result<OwnedBounds, ReadError>,
    ) -> Range<'_, K, V> {
        let source = Source::Update(self);
        match bounds {
            Ok((start, end)) => Range::new(source, table_ref, (borrow(&start), borrow(&end))),
            Err(error) => Range::failed(source, table_ref, error),
        }
    }

    fn read(&self, table_ref: TableRef, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let stored = self.state().stored(table_ref, key).map_err(ReadError::from_engine)?;
        stored.map(|stored| table_ref.value(key, stored)).transpose()
    }

    /// Adds an operation to the batch; returns whether it can be stored.
    fn add(&mut self, add: impl FnOnce(Batch) -> Batch) -> bool {
        let before = self.batch.len();
        self.batch = add(mem::take(&mut self.batch));
        self.batch.len() > before
    }

    /// Keeps a write that the batch has, for the closure's own reads.
    fn write_in<K: Codec, V: Codec>(
        &mut self,
        operation: Operation,
        database: &Database<K, V>,
        key: &K::Item,
        value: Option<&V::Item>,
    ) {
        let table_ref = database.table_ref();
        // The batch has encoded them, so they have encodings.
        let _ = K::encode(key, |key| match value {
            Some(value) => V::encode(value, |value| self.write(operation, table_ref, key, value)),
            None => {
                self.write(operation, table_ref, key, &[]);
                Ok(())
            }
        });
    }

    fn write(&mut self, operation: Operation, table_ref: TableRef, key: &[u8], value: &[u8]) {
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

    /// Refuses databases of another store, in which the table number has no meaning.
    pub(crate) fn check<K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
    ) -> Result<(), ReadError> {
        let own = database.store().id() == self.environment.id();
        if own { Ok(()) } else { Err(ReadError::OtherStore) }
    }
}

impl fmt::Debug for Update<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("batch", &self.batch).finish_non_exhaustive()
    }
}

/// The outcome of a [`Store::update`](crate::Store::update): a future that resolves to the
/// closure's result once its writes are durable.
///
/// # Panics
///
/// When polled again after it has resolved.
#[must_use = "without the future it is unknown whether the update became durable"]
pub struct Updating<T, E> {
    ticket: Ticket,
    returned: Returned<T, E>,
}

/// Result of the last run of the closure.
type Returned<T, E> = Arc<Mutex<Option<Result<T, UpdateError<E>>>>>;

impl<T, E> Updating<T, E> {
    pub(crate) fn new(
        mut closure: impl FnMut(&mut Update<'_>) -> Result<T, E> + Send + 'static,
        push: impl FnOnce(Job) -> Ticket,
    ) -> Updating<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let returned = Returned::default();
        let job = Job::new({
            let returned = returned.clone();
            move |update| {
                let ended = foreign::call(|| closure(update));
                let rejection = update.batch.check(update.environment.id()).err();
                let outcome = match (ended, rejection) {
                    (Some(Ok(value)), Some(rejection)) => {
                        foreign::discard(value);
                        Err(UpdateError::Rejected(rejection))
                    }
                    (Some(Ok(value)), None) => Ok(value),
                    (Some(Err(error)), _) => Err(UpdateError::Aborted(error)),
                    (None, _) => Err(UpdateError::Panicked),
                };
                let applies = outcome.is_ok();
                let earlier = {
                    let mut returned = returned.lock().unwrap_or_else(PoisonError::into_inner);
                    returned.replace(outcome)
                };
                // The outcome of an earlier run, if the group is retried.
                foreign::discard(earlier);
                applies
            }
        });
        Updating { ticket: push(job), returned }
    }

    /// Blocks this thread until the update resolves. For code outside async.
    ///
    /// # Errors
    ///
    /// The error to which the update resolves.
    pub fn wait(self) -> Result<T, UpdateError<E>> {
        resolve(self.ticket.wait(), &self.returned)
    }

    /// Makes dropping the future cancel the update; see [`Ticket::cancel_on_drop`].
    pub fn cancel_on_drop(mut self) -> Updating<T, E> {
        self.ticket = self.ticket.cancel_on_drop();
        self
    }
}

impl<T, E> Future for Updating<T, E> {
    type Output = Result<T, UpdateError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.ticket).poll(cx);
        outcome.map(|outcome| resolve(outcome, &self.returned))
    }
}

impl<T, E> fmt::Debug for Updating<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updating").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

fn resolve<T, E>(
    outcome: Result<(), WriteError>,
    returned: &Returned<T, E>,
) -> Result<T, UpdateError<E>> {
    outcome.map_err(UpdateError::Write)?;
    let returned = returned.lock().unwrap_or_else(PoisonError::into_inner).take();
    match returned {
        Some(returned) => returned,
        None => unreachable!("a group is committed after its closures have run"),
    }
}

/// A closure for the writer; it returns whether its writes are to be applied. Runs again if its
/// group is retried.
pub(crate) struct Job(Option<Box<Closure>>);

type Closure = dyn FnMut(&mut Update<'_>) -> bool + Send;

impl Job {
    /// Creates a job from a closure that does not panic.
    fn new(closure: impl FnMut(&mut Update<'_>) -> bool + Send + 'static) -> Job {
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
