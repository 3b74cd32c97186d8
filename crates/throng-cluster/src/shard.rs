//! [`ShardReplica`]: a node's copy of a shard: a store, kept by the shard's log, that the node may write while it owns
//! the log.
//!
//! ```text
//!            begin                    append (8 in flight)
//! Store ─────────────▶ Core ─▶ Driver ────────────────────▶ ShardLog
//!   ▲    Sequencer      │        ▲ │                            │
//!   │                Replica     │ └── read, end ───────────────┤
//!   └──── settle, apply, lead ───┴─────────────────────────────◀┘
//! ```
//!
//! The store's writer plans groups, and [`Core`] encodes them as records by the rule of [`Replica`], on the writer's own
//! thread. The [`Driver`](driver) is a task that does what the replica asks for, and tells the store what has become of
//! its records.
//!
//! 1. A record is begun only on the state that the replica has after all that is in flight, so a writer that does not
//!    know yet of a loss begins nothing.
//! 2. The store hears of outcomes in the order in which the replica decides them.
//! 3. The store accepts writes only between a `Serve` and the next `Leave` of the replica, and after all records that
//!    were read before are applied.

mod driver;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throng_store::{DatabaseError, NewRecord, OpenError, Sequencer, Stamp, Store};
use tokio::sync::{Notify, mpsc, watch};

use crate::log::ShardLog;
use crate::record::{HEADER_BYTES, Incarnation, RecordKind};
use crate::replica::{Entry, Position, Reason, Replica};
use crate::tail::Tail;
use driver::{Command, Driver};

/// Settings of a shard's copy.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Settings of the store, but for those that a copy sets itself.
    pub store: throng_store::Options,
    /// Function that makes the databases of the shard's records in a new copy, before it applies any.
    pub prepare: fn(&Store) -> Result<(), DatabaseError>,
    /// Level of features up to which this program understands records.
    pub level: u32,
    /// Longest record that the node appends, in bytes; shorter if the log takes only shorter ones.
    pub record_bytes_max: usize,
    /// Time after which the outcome of an append is unknown.
    pub append_within: Duration,
    /// Time between two questions of an owner whether another node has appended to the log.
    pub poll_every: Duration,
    /// Time between two attempts to reach a log that does not answer.
    pub retry_after: Duration,
}

impl Default for ShardOptions {
    /// Returns records of 512 KiB at most, 3 s for an append, and a question each second.
    fn default() -> ShardOptions {
        ShardOptions {
            store: Store::options(),
            prepare: |_| Ok(()),
            level: 0,
            record_bytes_max: 512 << 10,
            append_within: Duration::from_secs(3),
            poll_every: Duration::from_secs(1),
            retry_after: Duration::from_millis(100),
        }
    }
}

/// Part of a node in a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The node applies what the owner appends.
    Standby,
    /// The node reads up to the end of the log and claims it.
    Claiming,
    /// The node is the owner, and its store accepts writes.
    Owner {
        /// Epoch of the node's last claim.
        epoch: u64,
        /// Number of times that the node has become the owner. If it is the same, then no other node was the owner
        /// meanwhile.
        term: u64,
    },
    /// The node cannot go on by itself.
    Stopped(Stop),
}

/// Reason for which a copy has stopped. What it shows is a former state of the shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The log has a record of a level that this program does not know: start a newer program.
    #[error("the log has records of level {0}, which this program does not know")]
    Beyond(u32),
    /// The log has lost records that it had acknowledged: repair the shard.
    #[error("the log went up to record {} and goes up to {} now", .0.0, .1.0)]
    LogLost(Position, Position),
    /// The log has lost records between two that it has: repair the shard.
    #[error("record {} was to be read, and {} came", .0.0, .1.0)]
    Gap(Position, Position),
    /// The records that this copy needs next were removed: make it anew of another copy.
    #[error("the log begins at {}, and this copy needs earlier records", .0.0)]
    Trimmed(Position),
    /// A record does not fit what the copy has: make it anew of another copy.
    #[error("the copy is not that of its log: {0}")]
    Diverged(String),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

impl Stop {
    fn of(reason: Reason) -> Option<Stop> {
        match reason {
            Reason::Deposed | Reason::HandedOver => None,
            Reason::Beyond(level) => Some(Stop::Beyond(level)),
            Reason::LogLost(known, end) => Some(Stop::LogLost(known, end)),
            Reason::Gap(expected, found) => Some(Stop::Gap(expected, found)),
        }
    }
}

/// Counters of a copy since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Records that were appended.
    pub appends: u64,
    /// Bytes of these.
    pub append_bytes: u64,
    /// Appends that were refused.
    pub refused: u64,
    /// Appends of which no outcome came in time.
    pub unknown: u64,
    /// Records of this node that count.
    pub published: u64,
    /// Records of this node that do not.
    pub lost: u64,
    /// Records of the log that were read.
    pub read: u64,
    /// Records of the log that count and were applied.
    pub applied: u64,
    /// Failed attempts to read the log or to ask for its end.
    pub log_failures: u64,
    /// Failed attempts to apply a record, as on a full disk.
    pub apply_failures: u64,
}

/// State of a copy at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    /// Part of the node.
    pub role: Role,
    /// Position up to which the log is known.
    pub known: Position,
    /// State of a reader there.
    pub tail: Tail,
    /// Highest position that the log is known to have; `None` until the log has told its end.
    pub end: Option<Position>,
    /// Reason for which the log or the store did not answer the last attempt; `None` if it did.
    pub trouble: Option<String>,
    /// Counters since the copy was opened.
    pub counters: ShardCounters,
}

/// A node's copy of a shard; see the file's head. Clones are handles to the same copy.
#[derive(Clone, Debug)]
pub struct ShardReplica {
    store: Store,
    core: Arc<Core>,
    commands: mpsc::UnboundedSender<Command>,
    role: watch::Receiver<Role>,
}

impl ShardReplica {
    /// Opens the copy in a directory, which is created if it does not exist, and begins to follow the log. `me` is the
    /// random number of this start of the node.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use throng_cluster::{Incarnation, MemoryLog, Role, ShardOptions, ShardReplica};
    /// use throng_store::Batch;
    /// # let directory = tempfile::tempdir()?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// let log = Arc::new(MemoryLog::new());
    /// let shard = ShardReplica::open(log, Incarnation(7), directory.path(), ShardOptions::default())?;
    /// shard.claim();
    /// shard.role().wait_for(|role| matches!(role, Role::Owner { .. })).await?;
    /// let entries = shard.store().default_database::<throng_store::Str, throng_store::Str>();
    /// shard.store().write(Batch::new().put(&entries, "ada", "1815")).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OpenError`]: [`Single`](OpenError::Single) if the directory holds a store that is no copy.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime of tokio with a clock.
    pub fn open(
        log: Arc<dyn ShardLog>,
        me: Incarnation,
        directory: &Path,
        options: ShardOptions,
    ) -> Result<ShardReplica, OpenError> {
        let core = Arc::new(Core {
            replica: Mutex::new(Replica::new(me, options.level, Position(0), Tail::default())),
            status: Mutex::default(),
            wake: Notify::new(),
            level: options.level,
            record_bytes_max: options.record_bytes_max.min(log.record_bytes_max()),
        });
        let store = options.store.clone().sequencer(core.clone()).open(directory)?;
        (options.prepare)(&store).map_err(|error| OpenError::Io {
            path: directory.into(),
            source: io::Error::other(error),
        })?;
        let stamp = store.stamp().map_or(Stamp::START, |(_, stamp)| stamp);
        let (at, tail) = Tail::from_stamp(&stamp);
        // The store leads nothing yet, so it has begun nothing.
        *core.replica() = Replica::new(me, options.level, at, tail);
        let (commands, received) = mpsc::unbounded_channel();
        let (told, role) = watch::channel(Role::Standby);
        let driver = Driver::new(log, store.clone(), core.clone(), options, told);
        tokio::spawn(driver.run(received));
        Ok(ShardReplica { store, core, commands, role })
    }

    /// Begins to claim the shard: the node becomes its owner once it has read the log up to its claim.
    pub fn claim(&self) {
        let _ = self.commands.send(Command::Claim);
    }

    /// Hands the shard over to another node, behind what is in flight. If the handover is lost, the node stays the owner.
    pub fn hand_over(&self, to: Incarnation) {
        let _ = self.commands.send(Command::HandOver(to));
    }

    /// Returns the store, which is a standby of the shard or accepts writes.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the node's part in the shard, as it changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// Returns the state at this moment.
    pub fn status(&self) -> ShardStatus {
        let (known, tail) = self.core.replica().known();
        let role = self.role.borrow().clone();
        let told = self.core.status().clone();
        let end = told.is_end_known.then(|| told.end.max(known));
        ShardStatus { role, known, tail, end, trouble: told.trouble, counters: told.counters }
    }

    /// Ends the task and closes the store, with a last checkpoint. What is in flight stays unknown; an owner that hands
    /// over first leaves nothing in flight.
    pub async fn close(self) {
        let (done, closed) = tokio::sync::oneshot::channel();
        if self.commands.send(Command::Close(done)).is_ok() {
            let _ = closed.await;
        }
    }
}

/// The replica of a shard between the store's writer and the driver.
struct Core {
    replica: Mutex<Replica>,
    status: Mutex<Told>,
    /// Wakes the driver: there are effects.
    wake: Notify,
    level: u32,
    record_bytes_max: usize,
}

/// Part of the status that the driver tells.
#[derive(Clone, Debug, Default)]
struct Told {
    end: Position,
    /// Whether the log was asked for its end since the copy was opened.
    is_end_known: bool,
    trouble: Option<String>,
    counters: ShardCounters,
}

impl Core {
    fn replica(&self) -> MutexGuard<'_, Replica> {
        // A panic of the replica is a bug, after which its state is not worse than before.
        self.replica.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> MutexGuard<'_, Told> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes(replica: &Replica, after: &Stamp) -> bool {
        // Noise moves the position and leaves the state.
        replica.has_room() && replica.ahead() == Tail::from_stamp(after).1
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Core")
            .field("known", &self.replica().known())
            .finish_non_exhaustive()
    }
}

impl Sequencer for Core {
    fn has_room(&self, after: &Stamp) -> bool {
        Core::takes(&self.replica(), after)
    }

    fn begin(&self, record: &NewRecord<'_>) -> Option<(u64, Stamp)> {
        let NewRecord { after, first, count, time, changes } = *record;
        let mut replica = self.replica();
        if !Core::takes(&replica, after) {
            return None;
        }
        let body: Vec<&[u8]> = changes.iter().map(|chunk| &**chunk).collect();
        let (kind, level, body) = (RecordKind::Changes, self.level, &*body);
        let entry = Entry { kind, level, first, count, time, body };
        let (ticket, at, tail) = replica.append(&entry)?;
        drop(replica);
        self.wake.notify_one();
        Some((ticket.0, tail.to_stamp(at)))
    }

    fn bytes_max(&self) -> usize {
        self.record_bytes_max.saturating_sub(HEADER_BYTES)
    }
}
