//! [`Options`]: the settings of a node, and its start.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use throng::RuntimeHandle;
use throng_store::{OpenError, Recovery, Store};

use super::{Inner, Node};
use crate::catalogue::Catalogue;
use crate::gate::OutputGate;
use crate::inbox::Redelivery;
use crate::loader::Loader;
use crate::reminder::{self, Bell};
use crate::tables::Tables;
use crate::{once, sweeper};

/// Tells whether entities with this [part of their keys](crate::Durable::slot_key) are of a shard.
#[derive(Clone)]
pub(super) struct Has(pub(super) Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl fmt::Debug for Has {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Has")
    }
}

/// Options for starting a [`Node`], from [`Node::options`].
#[derive(Clone, Debug)]
pub struct Options {
    path: PathBuf,
    idle_after: Duration,
    live_max: usize,
    live_bytes_max: usize,
    inbox_max: u64,
    store: throng_store::Options,
    has: Option<Has>,
}

impl Options {
    pub(super) fn new(path: &Path) -> Options {
        Options {
            path: path.into(),
            idle_after: Duration::from_secs(60),
            live_max: 1_000_000,
            live_bytes_max: usize::MAX,
            inbox_max: 10_000,
            store: Store::options(),
            has: None,
        }
    }

    /// Sets the time without a message through an [`Entity`](crate::Entity) after which an entity is
    /// passivated. 60 s by default.
    ///
    /// An entity that something else may still wake stays: a timer, a receive timeout, a piped future, an attached
    /// stream, a link, a monitor, a name or a group. So does an entity that another process monitors.
    #[must_use]
    pub fn idle_after(mut self, idle_after: Duration) -> Options {
        self.idle_after = idle_after;
        self
    }

    /// Sets the number of entities that may be live before entities that are seldom used are
    /// passivated. 1,000,000 by default.
    ///
    /// Activation never waits for room, because it might wait for itself: entities with messages
    /// stay live beyond the limit until the messages are handled. Entities with nothing on disk
    /// leave after their turn and do not count, unless a timer, a link or the like may still wake
    /// them.
    ///
    /// Entities that a timer, a link or the like may still wake make room last. If only such entities are left over the
    /// limit, they leave nevertheless, and their timers, streams and links end:
    /// [`NodeStat::evicted_with_ties`](crate::NodeStat::evicted_with_ties) counts them, and the log warns. Set the limit above the number of entities
    /// that wait for something.
    #[must_use]
    pub fn live_max(mut self, entities: usize) -> Options {
        self.live_max = entities;
        self
    }

    /// Sets the memory, in bytes, that the live entities may take before entities that are seldom used are
    /// passivated. No limit by default.
    ///
    /// An entity counts as 250 bytes, the size of its type, and the size of its state's record on the disk, rounded
    /// up to a multiple of 64 bytes; a record of more than 4 MiB counts as 4 MiB. The record stands for the memory
    /// that the state owns, which may be more: a map has room for further values, for example. Messages and
    /// changed cells do not count, and the exceptions of [`live_max`](Options::live_max) apply.
    #[must_use]
    pub fn live_bytes_max(mut self, bytes: usize) -> Options {
        self.live_bytes_max = bytes;
        self
    }

    /// Sets the number of [durable messages](crate::DurableMessage) that may wait for an entity, 10,000 by default; a
    /// message of more than 1 KiB counts once for each KiB that it begins. Beyond that, a send is refused with
    /// [`EntityError::Full`](crate::EntityError::Full). Senders that are under way at the same time may together exceed the limit.
    #[must_use]
    pub fn inbox_max(mut self, messages: u64) -> Options {
        self.inbox_max = messages;
        self
    }

    /// Sets the options of the store: the size of its map and the bounds of its queue.
    #[must_use]
    pub fn store(mut self, options: throng_store::Options) -> Options {
        self.store = options;
        self
    }

    /// Sets a function that is told of the progress while the start replays the log of the store.
    #[must_use]
    pub fn on_recovery(mut self, progress: impl Fn(Recovery) + Send + Sync + 'static) -> Options {
        self.store = self.store.on_recovery(progress);
        self
    }

    /// Returns the path of the data directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the node that of a shard, whose entities are those of which the function says so by a [part of their
    /// keys](crate::Durable::slot_key). Another key is refused as [`KeyError::OtherShard`](crate::KeyError::OtherShard).
    #[must_use]
    pub fn shard(mut self, has: impl Fn(&str) -> bool + Send + Sync + 'static) -> Options {
        self.has = Some(Has(Arc::new(has)));
        self
    }

    /// Puts the node on a simulated disk.
    #[cfg(feature = "sim")]
    pub(crate) fn simulated(mut self, disk: &throng_store::sim::Disk) -> Options {
        (self.path, self.store) = disk.prepare(self.store);
        self
    }

    /// Opens the store and starts the node. The entities are processes of `runtime`.
    ///
    /// # Errors
    ///
    /// [`OpenError`], such as `InUse` if another node has the directory, or `Format` if a version of this crate
    /// with another layout has written it.
    pub fn open(self, runtime: &RuntimeHandle) -> Result<Node, OpenError> {
        let store = self.store.open(&self.path)?;
        self.start(store, true, runtime)
    }

    /// Starts the node over a store that is open and goes on after the node: a copy of a shared log that this program
    /// leads. The [options of the store](Options::store) have no effect.
    ///
    /// The node reads what the store has now, so only the node may write to it. End it with
    /// [`shutdown`](Node::shutdown), also when the copy does not lead any more: what its entities have not committed by
    /// then is refused.
    ///
    /// # Errors
    ///
    /// Errors of [`open`](Options::open), except those of a directory.
    pub fn open_over(self, store: Store, runtime: &RuntimeHandle) -> Result<Node, OpenError> {
        self.start(store, false, runtime)
    }

    fn start(
        self,
        store: Store,
        owns_store: bool,
        runtime: &RuntimeHandle,
    ) -> Result<Node, OpenError> {
        let failed =
            |error| OpenError::Io { path: self.path.clone(), source: std::io::Error::other(error) };
        // A store of another layout is refused before anything is written.
        let existing = Tables::existing(&store).map_err(failed)?;
        let (catalogue, keeper, sequence) = Catalogue::open(&existing, &self.path)?;
        let tables = Tables::open(&store).map_err(failed)?;
        let bell = Arc::new(Bell::new(store.since_1970()));
        // A simulated disk has no such directory.
        let path = self.path.canonicalize().unwrap_or(self.path);
        let inner = Arc::new(Inner {
            gate: OutputGate::start(store.outcomes(), runtime),
            loader: Loader::new(runtime.tokio().clone()),
            store_id: store.id(),
            owns_store,
            has: self.has,
            store,
            path,
            tables,
            runtime: runtime.clone(),
            counts: Arc::default(),
            handles: AtomicUsize::new(0),
            is_dropped: AtomicBool::new(false),
            hasher: runtime.hash_state(),
            catalogue,
            keeper,
            redelivery: Redelivery::default(),
            sequence,
            bell,
            expiries: once::Expiries::default(),
            stuck_runs: AtomicU64::new(0),
            dead_jobs: AtomicU64::new(0),
            queues: OnceLock::new(),
            inbox_max: self.inbox_max,
            live_max: self.live_max,
            live_bytes_max: self.live_bytes_max,
            directories: boxcar::Vec::new(),
            adding: Mutex::default(),
            closed: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            tick: AtomicU32::new(0),
            activations: AtomicU64::new(0),
            hand: Mutex::default(),
            tasks: Mutex::default(),
        });
        let sweeper = runtime.tokio().spawn(sweeper::run(Arc::downgrade(&inner), self.idle_after));
        let ringer = reminder::run(Arc::downgrade(&inner), inner.bell.clone());
        let ringer = runtime.tokio().spawn(ringer);
        *inner.tasks.lock().unwrap_or_else(PoisonError::into_inner) = vec![sweeper, ringer];
        Ok(Node::of(inner))
    }
}
