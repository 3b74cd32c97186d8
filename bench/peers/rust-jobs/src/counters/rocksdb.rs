//! `rocksdb`: counters in RocksDB, whose log is flushed by each write (`sync`).
//!
//! - One thread writes the calls that wait as one batch.
//! - Reads go to the database, on the threads of the callers. A batch can be read only after its flush.
//! - A memtable that fits into a processor's cache takes half the time of the default's, which has 64 MiB. Tables have
//!   filters, as for all programs that look single keys up.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bench_steps::numbers::{Key, key};
use bench_steps::tasks::Tasks;
use bench_steps::{Error, counters};
use rocksdb::{DB, Options, WriteBatch, WriteOptions};

use super::group::{Group, Ledger, Sum, Values};

const MEMTABLE_BYTES: usize = 4 << 20;

const CACHE_MEBIBYTES: u64 = 64;

pub(super) struct Home<'a> {
    pub(super) path: &'a Path,
}

#[derive(Clone)]
pub(super) struct Counters {
    writer: Arc<Group>,
    database: Arc<DB>,
}

struct Writer {
    database: Arc<DB>,
    values: Values,
}

impl counters::Home for Home<'_> {
    type Counters = Counters;

    async fn open(&self, _: u64) -> Result<Counters, Error> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(MEMTABLE_BYTES);
        options.optimize_for_point_lookup(CACHE_MEBIBYTES);
        let database = Arc::new(DB::open(&options, self.path)?);
        let writer = Writer { database: database.clone(), values: Values::default() };
        Ok(Counters { writer: Arc::new(Group::of_thread(writer)), database })
    }
}

/// Returns the version that the library, which may be the system's, notes in its file of options.
pub(super) fn version(path: &Path) -> Result<String, Error> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("OPTIONS-") {
            let text = fs::read_to_string(entry.path())?;
            let version =
                text.lines().find_map(|line| line.trim().strip_prefix("rocksdb_version="));
            return Ok(version.ok_or("the options do not state a version")?.to_owned());
        }
    }
    Err("the database has no file of options".into())
}

fn read(database: &DB, key: &Key) -> Result<u64, Error> {
    match database.get_pinned(key)? {
        Some(value) => Ok(u64::from_le_bytes(value.as_ref().try_into()?)),
        None => Ok(0),
    }
}

impl Ledger for Writer {
    async fn apply(&mut self, sums: &[Sum]) -> Result<Vec<u64>, Error> {
        let (mut batch, mut added) = (WriteBatch::default(), Vec::with_capacity(sums.len()));
        for sum in sums {
            let value = self.values.add(sum, |key| read(&self.database, key))?;
            batch.put(sum.key, value.to_le_bytes());
            added.push(value);
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.database.write_opt(batch, &options)?;
        Ok(added)
    }
}

impl Tasks for Counters {}

impl counters::Counters for Counters {
    async fn add(&self, number: u64) -> Result<u64, Error> {
        self.writer.call(number, 1).await
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        read(&self.database, &key(number))
    }

    async fn close(self) -> Result<(), Error> {
        Arc::into_inner(self.writer).ok_or("the counters are in use")?.close().await
    }
}
