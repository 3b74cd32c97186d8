//! throng's store as it opens by default, beside the settings that a workload is about.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Instant;

use throng_store::{
    Batch, Database, DatabaseOptions, Durability, Options, ReadError, Reader, Snapshot, Store,
    Ticket,
};

use super::{Engine, Look, Opening, Read, View, WRITE_MAP_BYTES};
use crate::workloads::records::Role;

/// The default database, or one without checksums.
pub(crate) struct Throng {
    pub(crate) store: Store,
    plain: Option<Database>,
}

/// The options for a workload that has as many batches waiting at most.
pub(crate) fn options(opening: Opening, batches: u64) -> Options {
    let durability = if opening.durable { Durability::Durable } else { Durability::Volatile };
    let least = match opening.write_map {
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
    pub(crate) fn open_for(directory: &Path, opening: Opening, batches: u64) -> io::Result<Throng> {
        let store = options(opening, batches).open(directory).map_err(io::Error::other)?;
        let plain = if opening.checksums {
            None
        } else {
            let options = DatabaseOptions::new().without_checksums();
            Some(store.database_with("plain", &options).map_err(io::Error::other)?)
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
    pub(crate) fn freeze(&self) -> io::Result<Follow> {
        let snapshot = self.store.snapshot().map_err(io::Error::other)?;
        Ok(Follow { sight: Sight::Frozen(snapshot), plain: self.plain.clone() })
    }

    /// A reader that may go to another thread.
    pub(crate) fn follow(&self) -> Follow {
        Follow { sight: Sight::Latest(self.store.reader()), plain: self.plain.clone() }
    }
}

impl Engine for Throng {
    type Reader<'e> = Follow;

    fn open(directory: &Path, opening: Opening) -> io::Result<Throng> {
        Throng::open_for(directory, opening, 0)
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
    fn reader(&self, _: View) -> io::Result<Follow> {
        Ok(self.follow())
    }
}

/// Puts of one process that are under way, each with the time when it was handed over.
pub(crate) struct UnderWay {
    tickets: VecDeque<(Instant, Ticket)>,
    most: u64,
}

impl UnderWay {
    /// None yet, and never more than so many while more are put.
    pub(crate) fn at_most(most: u64) -> UnderWay {
        UnderWay { tickets: VecDeque::new(), most }
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
        role: &mut Role,
    ) -> io::Result<()> {
        let clock = Instant::now();
        let ticket = engine.store.write(engine.put(Batch::new(), key, value));
        self.tickets.push_back((clock, ticket));
        while self.tickets.len() as u64 >= self.most {
            self.settle_one(role).await?;
        }
        Ok(())
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// When one has failed.
    pub(crate) async fn settle(&mut self, role: &mut Role) -> io::Result<()> {
        while !self.tickets.is_empty() {
            self.settle_one(role).await?;
        }
        Ok(())
    }

    /// Waits for the oldest.
    async fn settle_one(&mut self, role: &mut Role) -> io::Result<()> {
        let Some((clock, ticket)) = self.tickets.pop_front() else { return Ok(()) };
        ticket.await.map_err(io::Error::other)?;
        role.took(clock.elapsed());
        role.attempts += 1;
        Ok(())
    }
}

/// A reader of whichever database is used.
pub(crate) struct Follow {
    sight: Sight,
    plain: Option<Database>,
}

/// What it sees.
enum Sight {
    /// Each time what is there.
    Latest(Reader),
    /// One moment.
    Frozen(Snapshot),
}

impl Read for Follow {
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> io::Result<R> {
        let value = match (&mut self.sight, &self.plain) {
            (Sight::Latest(reader), None) => reader.get(key),
            (Sight::Latest(reader), Some(plain)) => reader.get_in(plain, key),
            (Sight::Frozen(snapshot), None) => snapshot.get(key),
            (Sight::Frozen(snapshot), Some(plain)) => plain.get(snapshot, key),
        };
        Ok(look(value.map_err(io::Error::other)?))
    }

    fn scan(&mut self, from: &[u8], limit: u64, mut look: impl Look) -> io::Result<u64> {
        let snapshot = match &mut self.sight {
            Sight::Latest(reader) => reader.view().map_err(io::Error::other)?,
            Sight::Frozen(snapshot) => snapshot,
        };
        let range = match &self.plain {
            None => snapshot.range(from..),
            Some(plain) => plain.range(snapshot, from..),
        };
        let mut rows = 0;
        for entry in range.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            let (key, value) = entry.map_err(|error: ReadError| io::Error::other(error))?;
            look(key, value);
            rows += 1;
        }
        Ok(rows)
    }
}
