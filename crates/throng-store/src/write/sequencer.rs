//! [`Sequencer`]: the seam between a store and a log that several machines share.
//!
//! ```text
//!            begin                              settle: published
//! writer ─────────────▶ Sequencer ─▶ shared log ─────────────────▶ memtable ─▶ visible, tickets resolve
//!   │ plans the next group on those begun         settle: lost
//!   └───────────────────────────────────────────▶ handed back
//!
//! another machine's records ─▶ apply ─────────────────────────────▶ memtable ─▶ visible
//! ```
//!
//! A store that is opened with a sequencer is a *copy*: its changes are those of the records of a shared log that
//! count, in their order. The shared log is its log. The copy's own log has no records; its data file says, with each
//! checkpoint, up to which state of the shared log it has all changes, and records behind that are applied again.
//!
//! 1. What is visible, and what is in the data file, is published: it counts for all copies.
//! 2. Positions of changes are the same in all copies.
//! 3. Groups in flight are only in the writer. A group that is lost takes all behind it along.

use std::fmt;

/// State of a shared log after one of its records, as its readers encode it: opaque to the store, which keeps it beside
/// the changes up to that record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp(pub [u8; Stamp::BYTES]);

impl Stamp {
    /// Length of a stamp, in bytes.
    pub const BYTES: usize = 64;
    /// State before the first record.
    pub const START: Stamp = Stamp([0; Stamp::BYTES]);
}

impl fmt::Debug for Stamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// A group of changes that the writer begins to commit.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'r> {
    /// State of the shared log on which the group was planned.
    pub after: &'r Stamp,
    /// Position of the first change.
    pub first: u64,
    /// Number of changes.
    pub count: u32,
    /// Time of the commit, in milliseconds since 1970.
    pub time: u64,
    /// Encoded changes, in parts.
    pub changes: &'r [Box<[u8]>],
}

/// The shared log as a store's writer sees it; see the head of `sequencer.rs`. Its functions run on the writer's
/// thread, and wait for nothing.
pub trait Sequencer: Send + Sync + fmt::Debug {
    /// Whether a record can be begun now on this state of the log. If not, the writer asks again once something is
    /// [settled](crate::Store::settle), or it [leads](crate::Store::lead) again.
    fn has_room(&self, after: &Stamp) -> bool;

    /// Begins to append a record. Returns its number, by which it is settled, and the state of the log after it if it
    /// counts; `None` if it cannot be begun on that state, or not now.
    fn begin(&self, record: &NewRecord<'_>) -> Option<(u64, Stamp)>;

    /// Most bytes of the changes of a record.
    fn bytes_max(&self) -> usize;
}

/// Outcome of a record that the writer has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The record counts; the state of the log after it.
    Published(Stamp),
    /// The record does not count, nor does any that was begun after it.
    Lost,
    /// The record may count: this node will not learn it.
    Unknown,
}

/// A record of the shared log that counts and that this copy has not begun, from [`Store::apply`](crate::Store::apply).
#[derive(Clone, Copy, Debug)]
pub struct AppliedRecord<'r> {
    /// Position of the first change.
    pub first: u64,
    /// Number of changes; none in a record of the log's own purposes.
    pub count: u32,
    /// State of the log after the record.
    pub stamp: Stamp,
    /// Encoded changes.
    pub changes: &'r [u8],
}

/// Error of applying a record of the shared log: nothing of it was applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The record does not follow those that the copy has: make the copy anew of another one.
    #[error("a record begins at change {found}, and the copy goes up to {last}")]
    Misplaced {
        /// Position of the record's first change.
        found: u64,
        /// Position of the copy's last change.
        last: u64,
    },
    /// The record's changes are not such as this program writes, or are of databases that this copy does not have: use
    /// the program's version that wrote them.
    #[error("a record has changes that this program does not know")]
    Unreadable,
    /// The disk or the map is full: free some space and try again.
    #[error("no space is left for a record: {0}")]
    Full(#[source] std::io::Error),
    /// The data file cannot be written at this moment: try again later.
    #[error("a record cannot be applied: {0}")]
    Failed(#[source] std::io::Error),
    /// The store is closed, or is no copy.
    #[error("the store is closed, or has a log of its own")]
    Closed,
}
