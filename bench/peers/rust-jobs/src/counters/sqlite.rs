//! `sqlite-writer`: counters in a table of SQLite, whose write-ahead log each commit flushes (`synchronous=FULL`).
//!
//! - SQLite has one writer at a time, so one thread commits the calls that wait. Its statement is prepared once, and
//!   replaces the row: an `update … returning` takes a third more time than the writer's own values.
//! - Reads have connections of their own, on the threads of the callers: the log lets them pass a commit. A commit can
//!   be read only after its flush.
//! - The log grows to 64 MiB before its pages are copied to the data file, sixteen times the default, as each copy
//!   has flushes of its own.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bench_steps::numbers::{Key, key};
use bench_steps::tasks::Tasks;
use bench_steps::{Error, counters};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::group::{Group, Ledger, Sum, Values};

const TABLE: &str = "create table if not exists counters (
    key blob primary key, value integer not null
) without rowid";
const PUT: &str = "replace into counters values (?1, ?2)";
const READ: &str = "select value from counters where key = ?1";

/// Number of pages in the log after which they are copied.
const LOG_PAGES: u32 = 16_000;

pub(super) struct Home<'a> {
    pub(super) file: &'a Path,
    pub(super) workers: usize,
}

#[derive(Clone)]
pub(super) struct Counters {
    writer: Arc<Group>,
    readers: Arc<[Mutex<Connection>]>,
}

struct Writer {
    connection: Connection,
    values: Values,
}

impl Home<'_> {
    fn connect(&self) -> Result<Connection, Error> {
        let connection = Connection::open(self.file)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        connection.pragma_update(None, "cache_size", -64_000)?;
        Ok(connection)
    }
}

impl counters::Home for Home<'_> {
    type Counters = Counters;

    async fn open(&self, _: u64) -> Result<Counters, Error> {
        let writer = self.connect()?;
        writer.execute_batch(TABLE)?;
        // More than threads, so that a caller rarely finds its connection in use.
        let readers = (0..4 * self.workers).map(|_| Ok(Mutex::new(self.connect()?)));
        let readers = readers.collect::<Result<_, Error>>()?;
        let writer = Writer { connection: writer, values: Values::default() };
        Ok(Counters { writer: Arc::new(Group::of_thread(writer)), readers })
    }
}

fn read(connection: &Connection, key: &Key) -> Result<u64, Error> {
    let mut statement = connection.prepare_cached(READ)?;
    let value = statement.query_row((&key[..],), |row| row.get(0)).optional()?;
    Ok(value.unwrap_or(0))
}

impl Ledger for Writer {
    async fn apply(&mut self, sums: &[Sum]) -> Result<Vec<u64>, Error> {
        let Writer { connection, values } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut statement = transaction.prepare_cached(PUT)?;
        let mut added = Vec::with_capacity(sums.len());
        for sum in sums {
            let value = values.add(sum, |key| read(&transaction, key))?;
            statement.execute((&sum.key[..], value))?;
            added.push(value);
        }
        drop(statement);
        transaction.commit()?;
        Ok(added)
    }
}

impl Tasks for Counters {}

impl counters::Counters for Counters {
    async fn add(&self, number: u64) -> Result<u64, Error> {
        self.writer.call(number, 1).await
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        let reader = &self.readers[number as usize % self.readers.len()];
        let connection = reader.lock().unwrap_or_else(PoisonError::into_inner);
        read(&connection, &key(number))
    }

    async fn close(self) -> Result<(), Error> {
        drop(self.readers);
        Arc::into_inner(self.writer).ok_or("the counters are in use")?.close().await
    }
}
