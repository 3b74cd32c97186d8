//! [`Feed`]: the changes of a store in the order of their commits, from a position on, read from its log.
//!
//! ```text
//!  log/kept        log                       mark
//! ─ 1 ─ 2 ─ 3 ─│─ 4 ─ 5 ─ 6 ─ 7 ─ 8 ─ 9 ─ 10 ─│
//!                      ▲ a position             groups are read up to here
//! ```
//!
//! Invariant: what a feed returns is on the disk, whole, and follows what it has returned before. Otherwise it ends with
//! an error.

use std::iter;
use std::time::SystemTime;

use crate::disk::damage::{Damage, found};
use crate::log::{self, Access, Point, Record, Replay};
use crate::memtable::change::{self, Operation};
use crate::restore::time_of;
use crate::{Change, Codec, Database, ReadError, Store};

/// Number of attempts to open a log from which segments are removed meanwhile.
const ATTEMPTS: u32 = 5;

/// The changes of a store behind a position, from [`Store::feed`].
///
/// ```
/// use throng_store::{Batch, Change, Store, Str};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let store = Store::options().map_bytes(64 << 20).open(path)?;
/// let people = store.database::<Str, Str>("people")?;
/// let mut feed = store.feed(None)?;
/// store.write(Batch::new().put(&people, "ada", "1815").delete(&people, "bob")).wait()?;
/// let group = feed.next_group()?.expect("a group was committed");
/// let changes = group.changes(&people).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(changes, [(&b"ada"[..], Change::Put(b"1815")), (b"bob", Change::Delete)]);
/// assert!(feed.next_group()?.is_none());
///
/// // Later, as in the next program, the feed goes on behind what was read.
/// let position = feed.position();
/// assert!(store.feed(Some(position))?.next_group()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Feed {
    replay: Replay,
    /// Position at which the feed began.
    after: Point,
}

/// Position in the log of a store, from [`Feed::position`]. It fits one store: a restored one refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedPosition(Point);

impl FeedPosition {
    /// Returns the position as bytes, which may be stored.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.0.position.to_be_bytes());
        bytes[8..].copy_from_slice(&self.0.chain.to_be_bytes());
        bytes
    }

    /// Returns the position that has these bytes.
    pub fn from_bytes(bytes: [u8; 12]) -> FeedPosition {
        let [a, b, c, d, e, f, g, h, chain @ ..] = bytes;
        let position = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        FeedPosition(Point { position, chain: u32::from_be_bytes(chain) })
    }

    /// Number of the last change before the position, as [`Snapshot::commit`](crate::Snapshot::commit) counts them.
    pub fn commit(self) -> u64 {
        self.0.position
    }
}

/// Error of a [`Feed`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The log does not have the changes behind the position: they were removed after a checkpoint, came by a load, or
    /// are of another history. Take a new position, and read everything once.
    #[error("the changes behind the position are not in the log: {reason}")]
    Lost {
        /// The file, and its difference.
        reason: String,
    },
    /// The log cannot be read: try again.
    #[error("the log cannot be read")]
    Io(#[source] std::io::Error),
}

impl FeedError {
    fn of(damage: Damage) -> FeedError {
        match damage {
            Damage::Found(reason) => FeedError::Lost { reason },
            damage => FeedError::Io(damage.into_io()),
        }
    }
}

impl Store {
    /// Returns the changes behind a position, or behind all that is on the disk now.
    ///
    /// The log has the changes since the last checkpoint and some before; with [`Options::keep_log`] it has all. A feed
    /// does not keep them: one that is read too slowly, or goes on after a restart, ends with [`FeedError::Lost`] if
    /// they are gone.
    ///
    /// Cost: two small reads of files, and for an older position the part of a segment before it. Nothing for writers.
    ///
    /// # Errors
    ///
    /// [`FeedError`]
    ///
    /// [`Options::keep_log`]: crate::Options::keep_log
    pub fn feed(&self, after: Option<FeedPosition>) -> Result<Feed, FeedError> {
        let location = self.environment().location();
        let mut attempts = 0;
        loop {
            // In this order: changes without a record end before the mark, or are the last ones.
            let last = self.environment().view().position();
            let marked = log::marked(&location).map_err(FeedError::of)?;
            let end = Point { position: last.max(marked.position), chain: marked.chain };
            let after = after.map_or(end, |FeedPosition(point)| point);
            if after.position > end.position {
                return Err(FeedError::of(found(format!("it ends at {}", end.position))));
            }
            attempts += 1;
            match Replay::open(&location, after, Access::Feed) {
                Ok(replay) => return Ok(Feed { replay, after }),
                Err(damage) if attempts == ATTEMPTS => return Err(FeedError::of(damage)),
                Err(_) => {}
            }
        }
    }
}

impl Feed {
    /// Returns the next group of batches that were committed together, or `None` if there is none yet. Blocks for a read
    /// of a file, a MiB at a time.
    ///
    /// # Errors
    ///
    /// [`FeedError`]; after `Io` the same group comes again.
    pub fn next_group(&mut self) -> Result<Option<Group<'_>>, FeedError> {
        let Point { position, chain } = self.replay.point();
        if position == self.after.position && chain != self.after.chain {
            return Err(FeedError::of(found("it belongs to another state of the store")));
        }
        let record = self.replay.next(self.after.position);
        let record = record.map_err(|error| FeedError::of(error.into_damage()))?;
        Ok(record.map(|Record { time, changes, .. }| Group { time, changes }))
    }

    /// Returns the position behind the last group that was read.
    pub fn position(&self) -> FeedPosition {
        let read = self.replay.point();
        FeedPosition(if read.position > self.after.position { read } else { self.after })
    }
}

/// Batches that were committed together, from [`Feed::next_group`].
#[derive(Debug)]
pub struct Group<'f> {
    time: u64,
    changes: &'f [u8],
}

impl<'f> Group<'f> {
    /// Returns the time of the commit on the clock of the machine, to the millisecond.
    pub fn time(&self) -> SystemTime {
        time_of(self.time)
    }

    /// Iterates over the changes of a database, by their keys. A change is an outcome: [`Change::Put`],
    /// [`Change::Delete`], [`Change::DeleteValue`] or [`Change::Clear`], whose key is empty. A key that several batches
    /// have changed comes as often, in their order.
    pub fn changes<K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
    ) -> impl Iterator<Item = Result<(&'f [u8], Change<'f>), ReadError>> + use<'f, K, V> {
        let (mut rest, table) = (self.changes, database.table_ref());
        let next = move || {
            while !rest.is_empty() {
                let Some(change) = change::Change::take(&mut rest) else {
                    rest = &[];
                    return Some(Err(ReadError::from_damage(found(
                        "a group has no valid changes",
                    ))));
                };
                if change.table != table.table {
                    continue;
                }
                let outcome = match change.operation {
                    Operation::Put => table.value(change.key, change.value).map(Change::Put),
                    Operation::PutValue => Ok(Change::Put(change.value)),
                    Operation::Delete | Operation::DeleteAll => Ok(Change::Delete),
                    Operation::DeleteValue => Ok(Change::DeleteValue(change.value)),
                    Operation::Clear => Ok(Change::Clear),
                };
                return Some(outcome.map(|outcome| (change.key, outcome)));
            }
            None
        };
        iter::from_fn(next)
    }
}
