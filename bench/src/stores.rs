//! The compared stores, behind the interface that the store workloads need, and the directory of a
//! store's files.
//!
//! Each store is used as its expert users would: transactions in key order, the cheapest kind of
//! reader for the work, caches of default size. For the stores that leave group commit to their
//! users, [`writers`] does it.

mod directory;
mod fjall;
mod heed;
mod redb;
mod throng;
pub(crate) mod writers;

use std::io;
use std::path::Path;

pub(crate) use bench_steps::disk::disk_bytes;
pub(crate) use directory::{Directory, files_below};
pub(crate) use fjall::Fjall;
pub(crate) use heed::Heed;
pub(crate) use redb::Redb;
pub(crate) use throng::{PutsInFlight, Throng};

use crate::settings::Settings;

#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenOptions {
    pub(crate) durable: bool,
    pub(crate) checksums: bool,
    /// Whether LMDB writes through its map; takes effect only if the store is volatile.
    pub(crate) write_map: bool,
    /// Bytes of changes in memory after which throng's store writes them to its data file, if not its
    /// default.
    pub(crate) checkpoint_bytes: Option<usize>,
}

/// Size of a map that is written through: the file has the map's size from the start, as a hole.
const WRITE_MAP_BYTES: usize = 20 << 30;

impl OpenOptions {
    pub(crate) fn of(settings: &Settings) -> OpenOptions {
        OpenOptions {
            durable: settings.word("durability") == "durable",
            checksums: settings.word("checksums") == "on",
            write_map: settings.special_words().any(|word| word == "write"),
            checkpoint_bytes: None,
        }
    }
}

/// The state that a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Each get sees all earlier commits.
    Latest,
    /// Every get sees the same snapshot, if the store reads a snapshot more cheaply.
    Frozen,
}

pub(crate) trait Engine: Sized + Sync {
    type Reader<'e>: Read
    where
        Self: 'e;

    /// Opens the store in a directory, and makes it if the directory is empty.
    fn open(directory: &Path, options: OpenOptions) -> io::Result<Self>;

    /// Writes entries in a transaction and waits until they are as durable as the options ask for.
    /// The entries must be in key order, without duplicate keys.
    fn commit<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> io::Result<()>;

    /// Whether threads should commit their entries directly: the store groups commits itself, or
    /// gains nothing from grouping.
    fn groups(&self) -> bool;

    fn reader(&self, view: View) -> io::Result<Self::Reader<'_>>;
}

pub(crate) trait Visit: FnMut(&[u8], &[u8]) {}

impl<F: FnMut(&[u8], &[u8])> Visit for F {}

pub(crate) trait Read {
    /// Passes the value of a key to `visit`.
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> io::Result<R>;

    /// Passes at most `limit` entries, from a key on and in order, to `visit`. All entries are of
    /// the same snapshot. Returns the number of entries.
    fn scan(&mut self, from: &[u8], limit: u64, visit: impl Visit) -> io::Result<u64>;
}
