//! fjall with its default options: a log-structured merge tree with a journal.
//!
//! A durable commit is flushed with `fdatasync`, which suffices for fjall's journal. In volatile
//! mode each thread inserts directly: fjall's own lock serializes them.

use std::io;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use super::{Engine, OpenOptions, Read, View, Visit};

pub(crate) struct Fjall {
    database: Database,
    entries: Keyspace,
    durable: bool,
}

impl Engine for Fjall {
    type Reader<'e> = Reader<'e>;

    fn open(directory: &Path, options: OpenOptions) -> io::Result<Fjall> {
        let open = || {
            let database = Database::builder(directory).open()?;
            let entries = database.keyspace("entries", KeyspaceCreateOptions::default)?;
            Ok(Fjall { database, entries, durable: options.durable })
        };
        open().map_err(|error: fjall::Error| io::Error::other(error))
    }

    fn commit<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> io::Result<()> {
        let put_all = || {
            if let ([(key, value)], false) = (entries, self.durable) {
                return self.entries.insert(key.as_ref(), value.as_ref());
            }
            // Without a mode, a batch stays in the journal's buffer, and a single insert does not.
            let mode = if self.durable { PersistMode::SyncData } else { PersistMode::Buffer };
            let mut batch = self.database.batch().durability(Some(mode));
            for (key, value) in entries {
                batch.insert(&self.entries, key.as_ref(), value.as_ref());
            }
            batch.commit()
        };
        put_all().map_err(io::Error::other)
    }

    fn groups(&self) -> bool {
        !self.durable
    }

    fn reader(&self, view: View) -> io::Result<Reader<'_>> {
        let frozen = (view == View::Frozen).then(|| self.database.snapshot());
        Ok(Reader { fjall: self, frozen })
    }
}

/// Reads from a snapshot that lives as long as the reader, or from the latest state if it has none.
pub(crate) struct Reader<'e> {
    fjall: &'e Fjall,
    frozen: Option<Snapshot>,
}

impl Read for Reader<'_> {
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> io::Result<R> {
        let value = match &self.frozen {
            Some(snapshot) => snapshot.get(&self.fjall.entries, key),
            None => self.fjall.entries.get(key),
        };
        Ok(visit(value.map_err(io::Error::other)?.as_deref()))
    }

    fn scan(&mut self, from: &[u8], limit: u64, mut visit: impl Visit) -> io::Result<u64> {
        let range = match &self.frozen {
            Some(snapshot) => snapshot.range(&self.fjall.entries, from..),
            None => self.fjall.entries.range(from..),
        };
        let mut rows = 0;
        for entry in range.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            let (key, value) = entry.into_inner().map_err(io::Error::other)?;
            visit(&key, &value);
            rows += 1;
        }
        Ok(rows)
    }
}
