//! [`Node`]: a data directory, and the entities that live in it.

mod eviction;
mod operate;
mod options;
mod stat;
mod weak;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use throng::RuntimeHandle;
use throng::layer::HashState;
use throng_store::{DatabaseError, ReadError, Store};
use tokio::task::JoinHandle;

use crate::catalogue::Catalogue;
use crate::directory::{AnyDirectory, Directory, SHARDS};
use crate::entity::InvalidKey;
use crate::gate::OutputGate;
use crate::inbox::{self, Redelivery, Sequence};
use crate::keeper::Keeper;
use crate::layout::KIND_BYTES_MAX;
use crate::loader::Loader;
use crate::name::Name;
use crate::queue::WeakQueues;
use crate::reminder::{self, Bell};
use crate::stored::{self, Stored};
use crate::tables::Tables;
use crate::view::View;
use crate::{Durable, Entity, EntityError, KeyError, Records, once};

use self::eviction::Hand;
use self::options::Has;
pub use self::options::Options;
pub use self::stat::NodeStat;
pub use self::weak::WeakNode;

/// Interval at which [`Node::shutdown`] checks whether all entities have ended.
const SHUTDOWN_PAUSE: Duration = Duration::from_millis(1);

/// Number of these intervals for which attempts at jobs may go on.
const ATTEMPT_ROUNDS: u64 = 1_000;

/// Number of these intervals after which entities that are still live are asked to leave again.
const ROUNDS_AGAIN: u64 = 100;

/// Memory of a live entity, in bytes, as [`Options::live_bytes_max`] counts it.
fn live_bytes<P>(record_bytes: usize) -> usize {
    250 + size_of::<P>() + record_bytes
}

/// The entities of one data directory. Cheap to clone; all clones are the same node.
///
/// A node takes one process of the runtime besides those of its live entities: the output gate, which sends
/// replies once the changes behind them are on disk. The process counts towards the runtime's limit. If there
/// is no room for it at the start, the store's writer thread sends the replies.
///
/// Ends in order with [`shutdown`](Node::shutdown). If the node is dropped instead, with all clones
/// and entities, the live entities are passivated after the messages in their mailboxes, and the directory is
/// free soon after the last process has ended. Either way, no acknowledged change is lost.
#[derive(Clone)]
pub struct Node(Arc<Handle>);

/// The last clone of a node that is dropped ends it, while live entities still share the inside.
struct Handle(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Store,
    /// The store's number.
    pub(crate) store_id: u64,
    /// Whether the node closes the store at its end.
    owns_store: bool,
    /// Tells whether an entity with this key may be of the node; `None` if each may.
    has: Option<Has>,
    path: PathBuf,
    /// Table of all records.
    pub(crate) tables: Tables,
    pub(crate) gate: Arc<OutputGate>,
    pub(crate) loader: Arc<Loader>,
    pub(crate) runtime: RuntimeHandle,
    pub(crate) counts: Arc<Counts>,
    /// Number of handles. The clones of a node share one.
    handles: AtomicUsize,
    /// Whether the last handle was dropped once.
    is_dropped: AtomicBool,
    /// Makes the hashes of states, so that nobody can know two states with the same hash.
    hasher: HashState,
    /// Numbers of the kinds and of the maps of their cells.
    pub(crate) catalogue: Catalogue,
    /// Wakes pinned entities.
    pub(crate) keeper: Keeper,
    pub(crate) redelivery: Redelivery,
    pub(crate) sequence: Sequence,
    /// Has entities rung whose reminders are due.
    pub(crate) bell: Arc<Bell>,
    pub(crate) expiries: once::Expiries,
    /// Number of times that a run of a workflow got stuck.
    pub(crate) stuck_runs: AtomicU64,
    /// Number of jobs that have become dead.
    pub(crate) dead_jobs: AtomicU64,
    /// The queues of the program, if it has some.
    pub(crate) queues: OnceLock<WeakQueues>,
    /// Maximum share of the messages that wait for an entity.
    pub(crate) inbox_max: u64,
    live_max: usize,
    live_bytes_max: usize,
    /// The directories of all kinds that were ever asked for. A call finds its own without a lock.
    directories: boxcar::Vec<RegisteredDirectory>,
    /// Locked while a directory is added.
    adding: Mutex<()>,
    closed: AtomicBool,
    /// Whether the store takes nothing from the node any more.
    fenced: AtomicBool,
    /// The time in the steps of the sweeper.
    tick: AtomicU32,
    /// Number of activations since the start.
    activations: AtomicU64,
    /// Locked while the hand moves.
    hand: Mutex<Hand>,
    /// The sweeper, and the task that rings.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Numbers that the activations keep up to date; they may outlive the node for a moment.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Number of activations, retired ones included.
    pub(crate) live: AtomicUsize,
    /// Number of activations that count against the limits: all except the blank activations that
    /// only a message can wake.
    pub(crate) residents: AtomicUsize,
    /// Memory of these activations in bytes, as [`Options::live_bytes_max`] counts it.
    pub(crate) resident_bytes: AtomicUsize,
    /// Number of activations that were asked to leave and not used since.
    pub(crate) leaving: AtomicUsize,
    /// Number of activations that ended in order.
    pub(crate) passivations: AtomicU64,
    /// Number of these that had ties and made room.
    pub(crate) evicted_with_ties: AtomicU64,
}

impl Counts {
    /// Counts an activation whose state's record has so many bytes against the limits.
    pub(crate) fn enter<P>(&self, record_bytes: usize) {
        self.residents.fetch_add(1, Ordering::Relaxed);
        self.resident_bytes.fetch_add(live_bytes::<P>(record_bytes), Ordering::Relaxed);
    }

    /// Undoes [`Counts::enter`].
    pub(crate) fn leave<P>(&self, record_bytes: usize) {
        self.residents.fetch_sub(1, Ordering::Relaxed);
        self.resident_bytes.fetch_sub(live_bytes::<P>(record_bytes), Ordering::Relaxed);
    }

    /// Notes that the record of an activation's state has another size.
    pub(crate) fn resize(&self, before: usize, after: usize) {
        // The sum wraps, so the difference may be negative.
        self.resident_bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Notes that an activation that was asked to leave stays, or is not listed any more.
    pub(crate) fn stays(&self) {
        self.leaving.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The directory of a kind, typed and type-erased.
struct RegisteredDirectory {
    kind: &'static str,
    /// An `Arc<Directory<P>>`.
    typed: Box<dyn Any + Send + Sync>,
    untyped: Arc<dyn AnyDirectory>,
}

impl Node {
    /// Returns the options of a node on the data directory `path`, which is created if it does not
    /// exist.
    ///
    /// ```
    /// # use throng::prelude::*;
    /// use std::time::Duration;
    /// use throng_durable::Node;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// # let runtime = Runtime::builder().workers(1).start()?;
    /// let node = Node::options(path).idle_after(Duration::from_secs(10)).live_max(50_000).open(&runtime)?;
    /// assert_eq!(node.live(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn options(path: impl AsRef<Path>) -> Options {
        Options::new(path.as_ref())
    }

    /// Returns the absolute path of the data directory, as it was when the node was started.
    pub fn path(&self) -> &Path {
        &self.inner().path
    }

    /// Makes the databases of a node in a store, so that a copy of a shared log can apply the records of a node elsewhere.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`] if the store cannot be written.
    pub fn prepare(store: &Store) -> Result<(), DatabaseError> {
        Tables::open(store).map(drop)
    }

    /// Returns a handle that does not keep the node open.
    pub fn downgrade(&self) -> WeakNode {
        WeakNode::of(Arc::downgrade(self.inner()))
    }

    /// Returns the entity of kind `P` with this key. No I/O: an entity exists whether it is in
    /// memory or not, and whether it was ever stored or not.
    ///
    /// An invalid key (see [`KeyError`](crate::KeyError)) makes the calls fail.
    ///
    /// # Panics
    ///
    /// If another type of this node has the same [`KIND`](Durable::KIND).
    pub fn entity<P: Durable>(&self, key: impl AsRef<str>) -> Entity<P> {
        let key = key.as_ref();
        let is_here = self.inner().has.as_ref().is_none_or(|Has(has)| has(P::slot_key(key)));
        let name = match is_here {
            true => Name::new(self.inner().directory::<P>().kind().number(), key),
            false => Err(KeyError::OtherShard),
        };
        let name = name.map_err(|error| InvalidKey { key: key.into(), error });
        Entity::from_parts(self.clone(), name)
    }

    /// Sets the dependencies of the kind `P`, which its handlers reach by
    /// [`cx.deps()`](crate::DurableContext::deps). Until then, its entities cannot be activated. From here on, the
    /// node wakes the kind's [pinned](Entity::pin) entities; for that, a kind without dependencies may be registered
    /// with `()`, more than once.
    ///
    /// # Panics
    ///
    /// If the kind is registered already, or another type of this node has the same [`KIND`](Durable::KIND).
    pub fn register<P: Durable>(&self, deps: P::Deps) {
        self.register_shared::<P>(Arc::new(deps));
    }

    /// Does the same as [`register`](Node::register) with dependencies that several nodes of the program share.
    ///
    /// # Panics
    ///
    /// Panics under the conditions of [`register`](Node::register).
    pub fn register_shared<P: Durable>(&self, deps: Arc<P::Deps>) {
        let registered = self.inner().directory::<P>().register(self.inner(), deps);
        assert!(registered.is_ok(), "the kind {:?} is registered already", P::KIND);
    }

    /// Returns a view of the stored entities of kind `P`: their number, and their keys in order.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the store cannot be read.
    ///
    /// # Panics
    ///
    /// If another type of this node has the same [`KIND`](Durable::KIND).
    pub fn stored<P: Durable>(&self) -> Result<Stored<P>, ReadError> {
        let kind = self.inner().directory::<P>().kind().clone();
        Ok(Stored::new(View::of(&self.inner().tables)?, kind))
    }

    /// Removes everything that is stored of an entity, like [`Entity::forget`], also if the entity cannot be loaded:
    /// its state is damaged, newer than the program, without a migration, or not of the type; or its decoding or its
    /// hook `started` panics. [`Stored::unreadable`] lists such entities, and [`Records::export`] returns what is
    /// stored of one.
    ///
    /// # Errors
    ///
    /// See [`EntityError`]. An entity that cannot be loaded for the moment, as for an error of the disk, is not
    /// removed.
    pub async fn forget_unreadable<P: Durable>(
        &self,
        key: impl AsRef<str>,
    ) -> Result<(), EntityError> {
        self.entity::<P>(key).forget_unreadable().await
    }

    /// Returns the records of the node's entities as they are stored.
    pub fn records(&self) -> Records {
        Records::of_node(self.inner())
    }

    /// Number of entities in memory.
    pub fn live(&self) -> usize {
        self.inner().counts.live.load(Ordering::Relaxed)
    }

    /// Returns statistics of the node.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the store cannot be read.
    pub fn stat(&self) -> Result<NodeStat, ReadError> {
        let stored = self.inner().stored()?;
        let (parked, stopped) = self.inner().redelivery.parked_and_stopped();
        Ok(NodeStat {
            live: self.live(),
            live_max: self.inner().live_max,
            live_bytes: self.inner().counts.resident_bytes.load(Ordering::Relaxed),
            activations: self.inner().activations.load(Ordering::Relaxed),
            passivations: self.inner().counts.passivations.load(Ordering::Relaxed),
            evicted_with_ties: self.inner().counts.evicted_with_ties.load(Ordering::Relaxed),
            pinned: self.inner().keeper.pinned.load(Ordering::Relaxed),
            pinned_failures: self.inner().keeper.failures.load(Ordering::Relaxed),
            parked,
            stopped,
            reminders_skipped: self.inner().bell.skipped(),
            reminders_late: self.inner().bell.late(),
            workflows_stuck: self.inner().stuck_runs.load(Ordering::Relaxed),
            jobs_dead: self.inner().dead_jobs.load(Ordering::Relaxed),
            redeliveries: self.inner().redelivery.entities.load(Ordering::Relaxed),
            unclaimed: self.inner().unclaimed(&stored),
            stored,
            store: self.inner().store.stat()?,
        })
    }

    /// Returns the store, for inspection and for backups. Its keys belong to the node.
    pub fn store(&self) -> &Store {
        &self.inner().store
    }

    /// Ends the node in order: stops activations, lets each live entity handle the messages in its
    /// mailbox, flushes the store, and sends the replies that waited for it.
    ///
    /// Later calls, also from handlers, get [`EntityError::ShutDown`]. Shutdown waits for running
    /// handlers without a limit, so a handler of the node's own entities must not wait for it. The
    /// directory is free for another node as soon as all clones of this node and its entities are
    /// dropped; a process that may outlive the node takes a [`WeakNode`].
    ///
    /// [`EntityError::ShutDown`]: crate::EntityError::ShutDown
    pub async fn shutdown(&self) {
        // Attempts at jobs end first, so that their queues note it. One that does not `await` is left behind.
        for _ in 0..ATTEMPT_ROUNDS {
            if !self.inner().queues.get().is_some_and(WeakQueues::end) {
                break;
            }
            tokio::time::sleep(SHUTDOWN_PAUSE).await;
        }
        // An activation reads the flag under its shard's lock: it either sees the flag and fails,
        // or its entity is live already.
        self.inner().closed.store(true, Ordering::SeqCst);
        let tasks =
            mem::take(&mut *self.inner().tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            // A step of a task would keep the directory in use.
            task.abort();
            let _ = task.await;
        }
        for round in 0.. {
            if !self.inner().has_live() {
                break;
            }
            self.inner().passivate_all(round);
            tokio::time::sleep(SHUTDOWN_PAUSE).await;
        }
        self.inner().directories().for_each(AnyDirectory::clear);
        self.inner().keeper.clear();
        self.inner().redelivery.clear();
        if !self.inner().owns_store {
            // The store goes on, so the node waits for what is queued in it, and for those who wait for that.
            let last = self.inner().store.submitted_through();
            let _ = self.inner().gate.settled(last).await;
            return self.inner().gate.release();
        }
        let store = self.inner().store.clone();
        // Closing blocks on the last flush. If the runtime is ending, dropping the store flushes.
        self.inner().runtime.run_blocking(move || store.close()).await;
        self.inner().gate.release();
    }

    /// Has all further changes of the node's entities refused, for a node over a store that goes on: a handler that is
    /// still busy when a [shutdown](Node::shutdown) was given up must not write behind another node's back.
    pub fn fence(&self) {
        self.inner().fenced.store(true, Ordering::SeqCst);
    }

    /// Returns another handle of a node.
    pub(crate) fn of(inner: Arc<Inner>) -> Node {
        // Relaxed: a handle is made from another one or by a live activation, which keeps the node.
        inner.handles.fetch_add(1, Ordering::Relaxed);
        Node(Arc::new(Handle(inner)))
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) == 1
            && self.0.has_live()
            && !self.0.is_dropped.swap(true, Ordering::Relaxed)
        {
            // If tokio's runtime is ending, the task and its share of the node are dropped right here.
            self.0.runtime.tokio().spawn(end(self.0.clone()));
        }
    }
}

/// Ends a node without handles once its entities have handled the messages in their mailboxes.
async fn end(inner: Arc<Inner>) {
    let (mut round, mut waited) = (0, 0);
    loop {
        // A handler may make another handle, and keep it.
        if inner.handles.load(Ordering::Acquire) > 0 {
            if let Some(queues) = inner.queues.get().filter(|_| !inner.is_closed()) {
                queues.go_on();
            }
            (round, waited) = (0, 0);
        } else if waited < ATTEMPT_ROUNDS && inner.queues.get().is_some_and(WeakQueues::end) {
            // Attempts end before their queues, which note it.
            waited += 1;
        } else if inner.has_live() {
            inner.passivate_all(round);
            round += 1;
        } else {
            break;
        }
        tokio::time::sleep(SHUTDOWN_PAUSE).await;
    }
    // Closing the store waits for its last flush. A `Stored` that somebody holds does not keep it open.
    let runtime = inner.runtime.clone();
    runtime
        .run_blocking(move || {
            inner.close_store();
            drop(inner);
        })
        .await;
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("live", &self.live()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns the time in the steps of the sweeper.
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Moves the time on by a step, and returns it.
    pub(crate) fn advance(&self) -> u32 {
        self.tick.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Asks all entities to leave once no message waits, in the first and every hundredth round: an entity that had
    /// messages may stay.
    fn passivate_all(&self, round: u64) {
        if round.is_multiple_of(ROUNDS_AGAIN) {
            self.directories().for_each(AnyDirectory::passivate_all);
        }
    }

    /// Returns the hash of a state's record.
    pub(crate) fn hash(&self, record: &[u8]) -> u64 {
        self.hasher.hash_one(record)
    }

    /// Ends the node as the end of its program does: kills its processes, and drops the replies that wait.
    #[cfg(feature = "sim")]
    pub(crate) fn kill(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.queues.get().map(WeakQueues::end);
        for directory in self.directories() {
            (0..SHARDS).for_each(|shard| directory.kill(shard));
        }
        self.gate.abandon();
        self.gate.close();
    }

    /// Wakes pinned entities that are due, and entities with messages that wait, so many of each at most, unless the
    /// node is about to end.
    pub(crate) async fn wake(self: &Arc<Self>, most: usize) {
        if self.has_handles() {
            self.keeper.wake(self, most);
            self.redelivery.run(self, most).await;
        }
        once::remove_expired(self).await;
        let lost = self.gate.outcomes().lost_through();
        if self.redelivery.is_new_loss(lost) {
            for directory in self.directories() {
                (0..SHARDS).for_each(|shard| directory.notice_loss(shard));
                directory.search_reminders();
            }
            self.bell.wake();
        }
    }

    /// Logs the kinds whose pinned entities nobody has woken, because the program has not named the kinds.
    pub(crate) fn warn_of_unclaimed_pins(&self) {
        let kinds = self.catalogue.kinds();
        for (number, pinned) in self.keeper.unclaimed() {
            let kind = kinds.iter().find(|(_, own)| *own == number).map(|(kind, _)| kind.as_str());
            tracing::warn!(
                kind = kind.unwrap_or("?"),
                pinned,
                "pinned entities are not in memory: the program has not registered their kind"
            );
        }
    }

    /// Logs the kinds whose reminders do not come, because the program has not named the kinds.
    pub(crate) fn warn_of_unclaimed_reminders(&self) {
        for (kind, number) in self.catalogue.kinds() {
            let is_used = self.directories.iter().any(|(_, used)| used.kind == kind);
            if !is_used && reminder::waits(&self.tables, number) {
                tracing::warn!(
                    kind,
                    "reminders do not come: the program has not registered their kind"
                );
            }
        }
    }

    /// Number of entities on disk for each kind.
    fn stored(&self) -> Result<BTreeMap<String, u64>, ReadError> {
        let view = View::of(&self.tables)?;
        let counts = self.catalogue.kinds().into_iter().filter_map(|(kind, number)| {
            let count = stored::count(&view, number);
            count.map(|count| count.map(|count| (kind, count))).transpose()
        });
        counts.collect()
    }

    /// Selects the entities whose kinds nothing has asked for.
    fn unclaimed(&self, stored: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        let is_claimed = |kind: &str| self.directories.iter().any(|(_, used)| used.kind == kind);
        let unclaimed = stored.iter().filter(|(kind, count)| **count > 0 && !is_claimed(kind));
        unclaimed.map(|(kind, count)| (kind.clone(), *count)).collect()
    }

    /// Reports kinds with entities that nothing has asked for.
    pub(crate) fn report_unclaimed(&self) {
        // If the store cannot be read, its own errors tell.
        for (kind, entities) in
            self.stored().map(|stored| self.unclaimed(&stored)).unwrap_or_default()
        {
            tracing::warn!(
                kind,
                entities,
                "the program has not used this kind since the start; if the kind was renamed, its entities \
                 are left behind under the earlier name"
            );
        }
    }

    /// Whether anybody has a handle of the node, so that it is not about to end.
    pub(crate) fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Relaxed) > 0
    }

    /// Whether the store takes nothing from the node any more.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::SeqCst)
    }

    fn close_store(&self) {
        if self.owns_store {
            self.store.close();
        }
    }

    fn has_live(&self) -> bool {
        // Acquire: pairs with the release at the end of an activation.
        self.counts.live.load(Ordering::Acquire) > 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Returns the directories of all kinds that were ever asked for.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &dyn AnyDirectory> {
        self.directories.iter().map(|(_, registered)| &*registered.untyped)
    }

    /// Returns the same to keep.
    pub(crate) fn shared_directories(&self) -> impl Iterator<Item = &Arc<dyn AnyDirectory>> {
        self.directories.iter().map(|(_, registered)| &registered.untyped)
    }

    /// Number of the shards of all directories.
    pub(crate) fn shards(&self) -> usize {
        self.directories.count() * SHARDS
    }

    /// Returns the directory that has a shard, counted over all directories, and the shard's number there; `None`
    /// while the directory is added.
    pub(crate) fn shard(&self, shard: usize) -> Option<(&dyn AnyDirectory, usize)> {
        let registered = self.directories.get(shard / SHARDS)?;
        Some((&*registered.untyped, shard % SHARDS))
    }

    pub(crate) fn count_activation(&self) {
        self.activations.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the directory of the kind `P`.
    ///
    /// # Panics
    ///
    /// If another type has the same kind.
    pub(crate) fn directory<P: Durable>(&self) -> &Arc<Directory<P>> {
        const {
            assert!(!P::KIND.is_empty(), "a kind's name is empty");
            assert!(P::KIND.len() <= KIND_BYTES_MAX, "a kind's name is longer than 64 bytes");
            let mut byte = 0;
            while byte < P::KIND.len() {
                assert!(P::KIND.as_bytes()[byte] != 0, "a kind's name has a zero byte");
                byte += 1;
            }
        }
        self.find_directory().unwrap_or_else(|| {
            self.add_directory::<P>();
            match self.find_directory() {
                Some(directory) => directory,
                None => unreachable!("the directory was added"),
            }
        })
    }

    fn find_directory<P: Durable>(&self) -> Option<&Arc<Directory<P>>> {
        let mut directories = self.directories.iter();
        directories.find_map(|(_, registered)| registered.typed.downcast_ref())
    }

    fn add_directory<P: Durable>(&self) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find_directory::<P>().is_some() {
            return;
        }
        if self.directories.iter().any(|(_, registered)| registered.kind == P::KIND) {
            panic!("two types have the kind {:?}", P::KIND);
        }
        let Some(kind) = self.catalogue.kind(P::KIND) else {
            panic!("the store has no number left for the kind {:?}", P::KIND);
        };
        let hasher = self.runtime.hash_state();
        let directory = Arc::new(Directory::<P>::new(hasher, kind, self));
        let (kind, number) = (P::KIND, directory.kind().number());
        let untyped = directory.clone();
        directory.pin_stored(self);
        if !P::MESSAGES.is_empty() {
            self.redelivery.search(number, directory.clone());
        } else if inbox::waits(&self.tables, number) || reminder::waits(&self.tables, number) {
            tracing::warn!(
                kind,
                "durable messages or reminders wait for entities of a kind that handles none in this program"
            );
        }
        self.directories.push(RegisteredDirectory { kind, typed: Box::new(directory), untyped });
        self.bell.wake();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close_store();
        self.gate.close();
    }
}
