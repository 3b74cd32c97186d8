//! throng's store as it opens by default, beside the settings that a workload is about.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Instant;

use throng_store::{
    Batch, Database, DatabaseOptions, Durability, Options, ReadError, Reader, Snapshot, Store,
    Ticket,
};

use super::{Engine, OpenOptions, Read, View, Visit, WRITE_MAP_BYTES};
use crate::workloads::records::RoleStats;

/// The default database, or one without checksums.
pub(crate) struct Throng {
    pub(crate) store: Store,
    plain: Option<Database>,
}

/// The options for a workload that has as many batches waiting at most.
fn store_options(options: OpenOptions, batches: u64) -> Options {
    let durability = if options.durable { Durability::Durable } else { Durability::Volatile };
    let least = match options.write_map {
        true => Options::default().write_map(true).map_bytes(WRITE_MAP_BYTES),
        false => Options::default(),
    };
    match usize::try_from(batches) {
        Ok(batches) if batches > 16 << 10 => least.queue_batches_max(batches),
        _ => least,
    }
    .durability(durability)
}

impl Throng {
    /// Opens a new store for so many batches waiting at most.
    pub(crate) fn open_for(
        directory: &Path,
        options: OpenOptions,
        batches: u64,
    ) -> io::Result<Throng> {
        let store = store_options(options, batches).open(directory).map_err(io::Error::other)?;
        let plain = if options.checksums {
            None
        } else {
            let unchecked = DatabaseOptions::new().without_checksums();
            Some(store.database_with("plain", &unchecked).map_err(io::Error::other)?)
        };
        Ok(Throng { store, plain })
    }

    /// A batch with one more put.
    pub(crate) fn put(&self, batch: Batch, key: &[u8], value: &[u8]) -> Batch {
        match &self.plain {
            None => batch.put(key, value),
            Some(plain) => batch.put_in(plain, key, value),
        }
    }

    /// A view of this moment that may go to another thread.
    pub(crate) fn snapshot_reader(&self) -> io::Result<ThrongReader> {
        let snapshot = self.store.snapshot().map_err(io::Error::other)?;
        Ok(ThrongReader { source: ReadSource::Frozen(snapshot), plain: self.plain.clone() })
    }

    /// A reader that may go to another thread.
    pub(crate) fn latest_reader(&self) -> ThrongReader {
        ThrongReader { source: ReadSource::Latest(self.store.reader()), plain: self.plain.clone() }
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

    /// Follows in either case: what is fresh is not taken anew.
    fn reader(&self, _: View) -> io::Result<ThrongReader> {
        Ok(self.latest_reader())
    }
}

/// Puts of one process that are under way, each with the time when it was handed over.
pub(crate) struct PutsInFlight {
    tickets: VecDeque<(Instant, Ticket)>,
    limit: u64,
}

impl PutsInFlight {
    /// None yet, and never more than so many while more are put.
    pub(crate) fn at_most(limit: u64) -> PutsInFlight {
        PutsInFlight { tickets: VecDeque::new(), limit }
    }

    /// Puts one more, once there is room for it; with room for one only, waits for it as well.
    ///
    /// # Errors
    /// When a put before has failed, or this one.
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

    /// Waits for all of them.
    ///
    /// # Errors
    /// When one has failed.
    pub(crate) async fn wait_for_all(&mut self, role: &mut RoleStats) -> io::Result<()> {
        while !self.tickets.is_empty() {
            self.wait_for_oldest(role).await?;
        }
        Ok(())
    }

    /// Waits for the oldest.
    async fn wait_for_oldest(&mut self, role: &mut RoleStats) -> io::Result<()> {
        let Some((clock, ticket)) = self.tickets.pop_front() else { return Ok(()) };
        ticket.await.map_err(io::Error::other)?;
        role.record(clock.elapsed());
        role.attempts += 1;
        Ok(())
    }
}

/// A reader of whichever database is used.
pub(crate) struct ThrongReader {
    source: ReadSource,
    plain: Option<Database>,
}

/// What it sees.
enum ReadSource {
    /// Each time what is there.
    Latest(Reader),
    /// One moment.
    Frozen(Snapshot),
}

impl Read for ThrongReader {
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> io::Result<R> {
        let value = match (&mut self.source, &self.plain) {
            (ReadSource::Latest(reader), None) => reader.get(key),
            (ReadSource::Latest(reader), Some(plain)) => reader.get_in(plain, key),
            (ReadSource::Frozen(snapshot), None) => snapshot.get(key),
            (ReadSource::Frozen(snapshot), Some(plain)) => plain.get(snapshot, key),
        };
        Ok(visit(value.map_err(io::Error::other)?))
    }

    fn scan(&mut self, from: &[u8], limit: u64, mut visit: impl Visit) -> io::Result<u64> {
        let snapshot = match &mut self.source {
            ReadSource::Latest(reader) => reader.view().map_err(io::Error::other)?,
            ReadSource::Frozen(snapshot) => snapshot,
        };
        let range = match &self.plain {
            None => snapshot.range(from..),
            Some(plain) => plain.range(snapshot, from..),
        };
        let mut rows = 0;
        for entry in range.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            let (key, value) = entry.map_err(|error: ReadError| io::Error::other(error))?;
            visit(key, value);
            rows += 1;
        }
        Ok(rows)
    }
}
