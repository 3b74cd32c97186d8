//! throng's store with its default options, except for the options that a workload sets.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Instant;

use throng_store::elmdb::Reader;
use throng_store::{
    Batch, Database, DatabaseOptions, Durability, Options, ReadError, Snapshot, Store, Ticket,
};

use super::{Engine, OpenOptions, Read, View, Visit, WRITE_MAP_BYTES};
use crate::workloads::records::RoleStats;

/// A store that uses its default database, or a database without checksums.
pub(crate) struct Throng {
    pub(crate) store: Store,
    entries: Database,
}

/// The store's options for a workload with at most `batches` batches in the queue.
fn store_options(options: OpenOptions, batches: u64) -> Options {
    let durability = if options.durable { Durability::Durable } else { Durability::Volatile };
    let least = match options.write_map {
        true => Options::default().write_map(true).map_bytes(WRITE_MAP_BYTES),
        false => Options::default(),
    };
    let least = match options.checkpoint_bytes {
        Some(bytes) => least.checkpoint_bytes(bytes),
        None => least,
    };
    match usize::try_from(batches) {
        Ok(batches) if batches > 16 << 10 => least.queue_batches_max(batches),
        _ => least,
    }
    .durability(durability)
}

impl Throng {
    /// Opens or makes a store with room for `batches` batches in its queue.
    pub(crate) fn open_for(
        directory: &Path,
        options: OpenOptions,
        batches: u64,
    ) -> io::Result<Throng> {
        let store = store_options(options, batches).open(directory).map_err(io::Error::other)?;
        let entries = if options.checksums {
            store.default_database()
        } else {
            let unchecked = DatabaseOptions::new().without_checksums();
            store.database_with("plain", &unchecked).map_err(io::Error::other)?
        };
        Ok(Throng { store, entries })
    }

    pub(crate) fn put(&self, batch: Batch, key: &[u8], value: &[u8]) -> Batch {
        batch.put(&self.entries, key, value)
    }

    /// Creates a reader of the current snapshot, which may move to another thread.
    pub(crate) fn snapshot_reader(&self) -> io::Result<ThrongReader> {
        let snapshot = self.store.snapshot().map_err(io::Error::other)?;
        Ok(ThrongReader { source: ReadSource::Frozen(snapshot), entries: self.entries.clone() })
    }

    /// Creates a reader of the latest state, which may move to another thread.
    pub(crate) fn latest_reader(&self) -> ThrongReader {
        ThrongReader {
            source: ReadSource::Latest(Reader::new(&self.store)),
            entries: self.entries.clone(),
        }
    }
}

impl Engine for Throng {
    type Reader<'e> = ThrongReader;

    fn open(directory: &Path, options: OpenOptions) -> io::Result<Throng> {
        Throng::open_for(directory, options, 0)
    }

    fn commit<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> io::Result<()> {
        let batch = entries.iter().fold(Batch::new(), |batch, (key, value)| {
            self.put(batch, key.as_ref(), value.as_ref())
        });
        self.store.write(batch).wait().map_err(io::Error::other)
    }

    fn groups(&self) -> bool {
        true
    }

    /// Reads the latest state for both views: throng's reader keeps its snapshot while that is
    /// current, so following the latest state costs no new snapshot.
    fn reader(&self, _: View) -> io::Result<ThrongReader> {
        Ok(self.latest_reader())
    }
}

/// A process's puts in flight, each with the time at which it was submitted.
pub(crate) struct PutsInFlight {
    tickets: VecDeque<(Instant, Ticket)>,
    limit: u64,
}

impl PutsInFlight {
    pub(crate) fn at_most(limit: u64) -> PutsInFlight {
        PutsInFlight { tickets: VecDeque::new(), limit }
    }

    /// Submits a put, then waits until fewer than `limit` are in flight; with a limit of 1 it waits
    /// for this put.
    pub(crate) async fn put(
        &mut self,
        engine: &Throng,
        key: &[u8],
        value: &[u8],
        role: &mut RoleStats,
    ) -> io::Result<()> {
        let clock = Instant::now();
        let ticket = engine.store.write(engine.put(Batch::new(), key, value));
        self.tickets.push_back((clock, ticket));
        while self.tickets.len() as u64 >= self.limit {
            self.wait_for_oldest(role).await?;
        }
        Ok(())
    }

    pub(crate) async fn wait_for_all(&mut self, role: &mut RoleStats) -> io::Result<()> {
        while !self.tickets.is_empty() {
            self.wait_for_oldest(role).await?;
        }
        Ok(())
    }

    async fn wait_for_oldest(&mut self, role: &mut RoleStats) -> io::Result<()> {
        let Some((clock, ticket)) = self.tickets.pop_front() else { return Ok(()) };
        ticket.await.map_err(io::Error::other)?;
        role.record(clock.elapsed());
        role.attempts += 1;
        Ok(())
    }
}

/// A reader of the default database or of the database without checksums.
pub(crate) struct ThrongReader {
    source: ReadSource,
    entries: Database,
}

enum ReadSource {
    Latest(Reader),
    Frozen(Snapshot),
}

impl Read for ThrongReader {
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> io::Result<R> {
        let value = match &mut self.source {
            ReadSource::Latest(reader) => reader.get(&self.entries, key),
            ReadSource::Frozen(snapshot) => self.entries.get(snapshot, key),
        };
        Ok(visit(value.map_err(io::Error::other)?))
    }

    fn scan(&mut self, from: &[u8], limit: u64, mut visit: impl Visit) -> io::Result<u64> {
        let snapshot = match &mut self.source {
            ReadSource::Latest(reader) => reader.view().map_err(io::Error::other)?,
            ReadSource::Frozen(snapshot) => snapshot,
        };
        let range = self.entries.range(snapshot, from..);
        let mut rows = 0;
        for entry in range.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            let (key, value) = entry.map_err(|error: ReadError| io::Error::other(error))?;
            visit(key, value);
            rows += 1;
        }
        Ok(rows)
    }
}
