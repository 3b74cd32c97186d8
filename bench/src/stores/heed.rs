//! heed, used directly: LMDB with the tuning that its users do by hand.
//!
//! The tuning: puts in key order within a transaction; appends above the last key; read
//! transactions in their thread's reader slot, so that starting a transaction takes no lock; and a
//! map that never has to grow. The environment is leaked: a run opens a single environment, and its
//! databases borrow from it.

use std::io;
use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithTls};

use super::{Engine, OpenOptions, Read, View, Visit, WRITE_MAP_BYTES};

/// Size of the map: address space only, neither memory nor disk.
const MAP_BYTES: usize = 1 << 38;

pub(crate) struct Heed {
    env: &'static Env<WithTls>,
    entries: Database<'static, Bytes, Bytes>,
}

impl Heed {
    /// Opens an environment. Contains the only unsafe block of this program.
    #[allow(unsafe_code)]
    fn open_env(directory: &Path, options: OpenOptions) -> heed::Result<Env<WithTls>> {
        let mut env_options = EnvOpenOptions::new();
        env_options.map_size(MAP_BYTES).max_readers(256);
        if options.write_map {
            env_options.map_size(WRITE_MAP_BYTES);
        }
        // SAFETY: `Directory::make` created the directory for this run, so no other process or
        // environment maps or changes the file. Without syncs a crash of the machine may damage the
        // file, but no later run reads it.
        unsafe {
            if !options.durable {
                env_options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC);
                if options.write_map {
                    env_options.flags(EnvFlags::WRITE_MAP);
                }
            }
            env_options.open(directory)
        }
    }
}

impl Engine for Heed {
    type Reader<'e> = Reader;

    fn open(directory: &Path, options: OpenOptions) -> io::Result<Heed> {
        let env = Heed::open_env(directory, options).map_err(io::Error::other)?;
        let env: &'static Env<WithTls> = Box::leak(Box::new(env));
        let entries = env
            .write_txn()
            .and_then(|txn| {
                env.create_databases_and_commit(txn, |opener, txn| {
                    opener.create_database(txn, None).map(CommitOrAbort::<_, ()>::Commit)
                })
            })
            .map_err(io::Error::other)?
            .commit()
            .ok_or_else(|| io::Error::other("the database was not created"))?;
        Ok(Heed { env, entries })
    }

    fn commit<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> io::Result<()> {
        let put_all = || {
            let mut txn = self.env.write_txn()?;
            let last = self.entries.last(&txn)?.map(|(key, _)| key.to_vec());
            for (key, value) in entries {
                let (key, value) = (key.as_ref(), value.as_ref());
                if last.as_deref().is_none_or(|last| key > last) {
                    self.entries.put_with_flags(&mut txn, PutFlags::APPEND, key, value)?;
                } else {
                    self.entries.put(&mut txn, key, value)?;
                }
            }
            txn.commit()
        };
        put_all().map_err(io::Error::other)
    }

    fn groups(&self) -> bool {
        false
    }

    fn reader(&self, view: View) -> io::Result<Reader> {
        let frozen = match view {
            View::Latest => None,
            View::Frozen => Some(self.env.read_txn().map_err(io::Error::other)?),
        };
        Ok(Reader { env: self.env, entries: self.entries, frozen })
    }
}

/// Reads in a transaction that lives as long as the reader, or in a new transaction for each read.
pub(crate) struct Reader {
    env: &'static Env<WithTls>,
    entries: Database<'static, Bytes, Bytes>,
    frozen: Option<RoTxn<'static, WithTls>>,
}

impl Reader {
    fn within<R>(
        &self,
        read: impl FnOnce(&RoTxn<'_, WithTls>) -> heed::Result<R>,
    ) -> io::Result<R> {
        match &self.frozen {
            Some(txn) => read(txn),
            None => self.env.read_txn().and_then(|txn| read(&txn)),
        }
        .map_err(io::Error::other)
    }
}

impl Read for Reader {
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> io::Result<R> {
        self.within(|txn| Ok(visit(self.entries.get(txn, key)?)))
    }

    fn scan(&mut self, from: &[u8], limit: u64, mut visit: impl Visit) -> io::Result<u64> {
        self.within(|txn| {
            let mut rows = 0;
            let range = self.entries.range(txn, &(Bound::Included(from), Bound::Unbounded))?;
            for entry in range.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
                let (key, value) = entry?;
                visit(key, value);
                rows += 1;
            }
            Ok(rows)
        })
    }
}
