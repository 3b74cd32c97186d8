//! The stores that are compared: what the store workloads need of each, and where its files lie.
//!
//! Each is used as someone who knows it would: transactions in key order, readers of the kind that
//! is cheapest for the work, caches as large as their defaults. How several writers come together
//! in one transaction is [`writers`]' part, for the stores that leave it to their users.

mod directory;
mod fjall;
mod heed;
mod redb;
mod throng;
pub(crate) mod writers;

use std::io;
use std::path::Path;

pub(crate) use directory::Directory;
pub(crate) use fjall::Fjall;
pub(crate) use heed::Heed;
pub(crate) use redb::Redb;
pub(crate) use throng::{PutsInFlight, Throng};

use crate::peer::{Peer, Threads};
use crate::settings::{Key, Kind, Settings};

/// What a commit promises, in the workloads where that is the point of them.
pub(crate) const DURABILITY: Key = Key {
    name: "durability",
    kind: Kind::Word(&["durable", "volatile"]),
    about: "whether a write that is done is on the disk, or with the operating system",
};

/// Whether throng's values have checksums that each read compares; no other store has any.
pub(crate) const CHECKSUMS: Key = Key {
    name: "checksums",
    kind: Kind::Word(&["on", "off"]),
    about: "whether each value in throng has a checksum, which each read compares",
};

/// Whether the mapped stores write through their map.
pub(crate) const MAP: Key = Key {
    name: "map",
    kind: Kind::Word(&["read", "write"]),
    about: "whether a mapped store also writes through its map, where it is volatile",
};

/// Every word of the store workloads: all stores know all of them.
pub(crate) const WORDS: &[&str] =
    &["durable", "volatile", "random", "premade", "once", "whole", "on", "off"];

/// The words of those that are mapped.
pub(crate) const MAPPED_WORDS: &[&str] =
    &["durable", "volatile", "random", "premade", "once", "whole", "on", "off", "write"];

/// All four, for what each does on threads alone.
pub(crate) const fn peers(
    [throng, heed, redb, fjall]: [fn(&Settings) -> io::Result<crate::outcome::Outcome>; 4],
) -> [Peer; 4] {
    [
        peer("throng", env!("VERSION_THRONG"), throng),
        peer("heed", env!("VERSION_HEED"), heed),
        peer("redb", env!("VERSION_REDB"), redb),
        peer("fjall", env!("VERSION_FJALL"), fjall),
    ]
}

/// A peer that is a store in this program, and runs on as many threads as its workload has it.
pub(crate) const fn peer(
    store: &'static str,
    version: &'static str,
    run: fn(&Settings) -> io::Result<crate::outcome::Outcome>,
) -> Peer {
    Peer::here(store, version, Threads::Workers, run).knowing(WORDS)
}

/// How a store is to be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenOptions {
    pub(crate) durable: bool,
    /// Whether throng's values have checksums.
    pub(crate) checksums: bool,
    /// Whether LMDB writes through its map; where it is volatile only.
    pub(crate) write_map: bool,
}

/// How large the map is where it is written, for the file takes its size at once, as a hole.
const WRITE_MAP_BYTES: usize = 20 << 30;

impl OpenOptions {
    /// As the settings of a workload say that has the first two of the keys above.
    pub(crate) fn of(settings: &Settings) -> OpenOptions {
        OpenOptions {
            durable: settings.word("durability") == "durable",
            checksums: settings.word("checksums") == "on",
            write_map: settings.special_words().any(|word| word == "write"),
        }
    }
}

/// What a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// With each get, everything that was committed before it.
    Latest,
    /// One moment, for as long as the reader lives, in the stores where that costs less.
    Frozen,
}

/// A store that is open.
pub(crate) trait Engine: Sized + Sync {
    type Reader<'e>: Read
    where
        Self: 'e;

    /// Opens a new store in an empty directory.
    fn open(directory: &Path, options: OpenOptions) -> io::Result<Self>;

    /// Writes entries, in key order and no key twice, in one transaction; waits until they are what
    /// the opening promises.
    fn commit<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> io::Result<()>;

    /// Whether threads that commit one entry each had better do it by themselves: the store brings
    /// them together, or has nothing to gain from that.
    fn groups(&self) -> bool;

    /// A reader for one thread.
    fn reader(&self, view: View) -> io::Result<Self::Reader<'_>>;
}

/// A closure that is shown the key and the value of an entry.
pub(crate) trait Visit: FnMut(&[u8], &[u8]) {}

impl<F: FnMut(&[u8], &[u8])> Visit for F {}

/// What one thread reads by.
pub(crate) trait Read {
    /// Looks at the value under a key.
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> io::Result<R>;

    /// Looks at the entries from a key on, in order, at most so many, all of one moment; how many
    /// there were.
    fn scan(&mut self, from: &[u8], limit: u64, visit: impl Visit) -> io::Result<u64>;
}
