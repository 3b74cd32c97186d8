//! [`Directory`]: the live entities of a kind, with their addresses.
//!
//! The lock of a shard is held while the process of one of its entities is spawned, so an entity
//! has a single activation at a time. No user code runs under the lock: the process loads its state
//! in its first turn. An entry is removed when its activation ends or is given up; an entry whose
//! process has ended counts as absent and is replaced. Nobody else removes it, because it tells the next
//! activation to wait.
//!
//! An activation that is given up ends when its mailbox is empty. Its last turn may be that of a
//! message that came around this crate, and such a turn does not check whether the process should
//! end. So the activation stays listed until its process has ended, and is asked to leave with the
//! others.
//!
//! An activation that ends may leave submissions whose outcome is not known yet. The shard keeps the
//! number of the last one, and every activation that begins there waits until it is settled. If the entity's
//! last activation is just ending, the next one waits for all submissions of the store.
//!
//! Lock order: a shard's lock may be held while the runtime spawns. The runtime holds no lock of
//! its own when it drops an activation, and the drop takes the shard's lock.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasher;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::HashTable;
use throng::__sync::HashState;
use throng::Address;
use throng_store::Submission;

use crate::activation::Fresh;
use crate::catalogue::Numbered;
use crate::name::Name;
use crate::node::{Counts, Inner};
use crate::turn::Passivate;
use crate::users::drop_user_value;
use crate::{Durable, EntityError};

/// Number of locks that share the entities of a kind. So many that a search of a whole shard for entities
/// that should leave is short, even with a million of them.
pub(crate) const SHARDS: usize = 1024;

/// The live entities of kind `P`, and everything else that they share.
pub(crate) struct Directory<P: Durable> {
    hasher: HashState,
    shards: Box<[Mutex<Shard<P>>]>,
    /// Number of the kind.
    kind: Arc<Numbered>,
    /// Dependencies of the kind, from its registration to the shutdown of the node, which they may refer to.
    deps: Mutex<Option<Arc<P::Deps>>>,
    counts: Arc<Counts>,
    /// The home of the live entities, if there are any.
    home: Mutex<Weak<Home<P>>>,
}

/// Everything that the activations of a kind share, behind one pointer. The live entities of a kind share it, so
/// that it keeps the node only while there are such entities.
pub(crate) struct Home<P: Durable> {
    pub(crate) node: Arc<Inner>,
    pub(crate) directory: Arc<Directory<P>>,
    pub(crate) deps: Arc<P::Deps>,
}

#[derive(Debug)]
struct Shard<P> {
    /// The activations by their own names.
    active: HashTable<Name<P>>,
    /// Activations that were given up and may not have ended yet. Empty except for moments.
    retired: Vec<Address<P>>,
    /// The last submission of the activations that have ended.
    ended: Submission,
    /// Keys of the states of pinned entities, live or not.
    pinned: HashSet<Box<[u8]>>,
}

impl<P: Durable> Directory<P> {
    pub(crate) fn new(hasher: HashState, kind: Arc<Numbered>, counts: Arc<Counts>) -> Directory<P> {
        let shard = || {
            Mutex::new(Shard {
                active: HashTable::new(),
                retired: Vec::new(),
                ended: Submission::START,
                pinned: HashSet::new(),
            })
        };
        Directory {
            hasher,
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
            kind,
            // A kind without dependencies is registered from the beginning.
            deps: Mutex::new(Arc::downcast(Arc::new(()) as Arc<dyn Any + Send + Sync>).ok()),
            counts,
            home: Mutex::default(),
        }
    }

    /// Returns the home of the live entities; `None` if the kind is not registered.
    pub(crate) fn home(self: &Arc<Self>, node: &Arc<Inner>) -> Option<Arc<Home<P>>> {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = home.upgrade() {
            return Some(home);
        }
        let deps = self.deps().clone()?;
        let new = Arc::new(Home { node: node.clone(), directory: self.clone(), deps });
        *home = Arc::downgrade(&new);
        Some(new)
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Returns the number of the kind.
    pub(crate) fn kind(&self) -> &Numbered {
        &self.kind
    }

    /// Sets the dependencies of the kind; hands them back if it has some.
    pub(crate) fn register(&self, deps: P::Deps) -> Result<(), P::Deps> {
        let mut registered = self.deps();
        match *registered {
            Some(_) => Err(deps),
            None => {
                *registered = Some(Arc::new(deps));
                Ok(())
            }
        }
    }

    fn deps(&self) -> MutexGuard<'_, Option<Arc<P::Deps>>> {
        // No user code runs under the lock.
        self.deps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of the entity, and activates it first if it is not live.
    pub(crate) fn activate(
        self: &Arc<Self>,
        node: &Arc<Inner>,
        name: &Name<P>,
    ) -> Result<Address<P>, EntityError> {
        let hash = self.hasher.hash_one(name.state_key());
        if let Some(address) = self.find(&self.shard_of(hash), node, name, hash)? {
            return Ok(address);
        }
        let fresh = Fresh::new(node, self, name)?;
        let mut shard = self.shard_of(hash);
        match self.find(&shard, node, name, hash) {
            Ok(None) => {}
            found => {
                drop(shard);
                fresh.discard();
                return found.and_then(|address| address.ok_or(EntityError::ShutDown));
            }
        }
        let ending = shard.active.find_entry(hash, |live| live.is_of(name)).ok();
        let after = match ending {
            // An activation that is ending has not told its last submission yet.
            Some(ending) => {
                self.forget(&ending.remove().0);
                node.store.submitted_through()
            }
            None => shard.ended,
        };
        // Before the spawn, because the process may run at once.
        let name = fresh.name().clone();
        name.marks().begin(node.tick());
        name.marks().pin(shard.pinned.contains(name.state_key()));
        match fresh.spawn(after) {
            Ok(address) => {
                name.lives_at(address);
                let hash_of = |live: &Name<P>| self.hasher.hash_one(live.state_key());
                shard.active.insert_unique(hash, name, hash_of);
                drop(shard);
                node.count_activation();
                Ok(address)
            }
            Err((error, unspawned)) => {
                // The next activation waits as this one would have.
                shard.ended = shard.ended.max(after);
                drop(shard);
                drop(unspawned);
                if matches!(error, EntityError::NoRoom { .. }) {
                    node.evict_for_room();
                }
                Err(error)
            }
        }
    }

    /// Returns the address of the entity, if it is live.
    fn find(
        &self,
        shard: &Shard<P>,
        node: &Inner,
        name: &Name<P>,
        hash: u64,
    ) -> Result<Option<Address<P>>, EntityError> {
        if node.is_closed() {
            return Err(EntityError::ShutDown);
        }
        let Some(live) = shard.active.find(hash, |live| live.is_of(name)) else { return Ok(None) };
        let address = live.address().filter(|address| address.is_alive());
        if address.is_some() && live.marks().touch(node.tick()) {
            self.counts.stays();
        }
        Ok(address)
    }

    /// Makes an entity stay in memory once it is live, or not.
    pub(crate) fn pin(&self, name: &Name<P>, is_pinned: bool) {
        let hash = self.hasher.hash_one(name.state_key());
        let mut shard = self.shard_of(hash);
        match is_pinned {
            true => shard.pinned.insert(name.state_key().into()),
            false => shard.pinned.remove(name.state_key()),
        };
        if let Some(live) = shard.active.find(hash, |live| live.is_of(name)) {
            live.marks().pin(is_pinned);
        }
    }

    /// Removes the entry of an activation that ends, unless it belongs to a later one.
    pub(crate) fn remove(&self, name: &Name<P>, last: Submission) {
        let hash = self.hasher.hash_one(name.state_key());
        if let Some(own) = self.shard_of(hash).take(hash, name, last) {
            self.forget(&own);
        }
    }

    /// Moves the entry to the retired activations, so that a later activation can begin before the
    /// process of this activation has ended.
    pub(crate) fn retire(&self, name: &Name<P>, last: Submission) {
        let hash = self.hasher.hash_one(name.state_key());
        let mut shard = self.shard_of(hash);
        if let Some(own) = shard.take(hash, name, last) {
            // Ended activations are removed here as well, so that the list stays short even if no
            // sweeper runs.
            shard.retired.retain(|address| address.is_alive());
            shard.retired.extend(own.address());
            self.forget(&own);
        }
    }

    /// Removes an activation from the number of leaving ones.
    fn forget(&self, name: &Name<P>) {
        if name.marks().stay() {
            self.counts.stays();
        }
    }

    fn shard_of(&self, hash: u64) -> MutexGuard<'_, Shard<P>> {
        // The table uses the lowest and the highest bits.
        self.shard((hash >> 32) as usize % SHARDS)
    }

    fn shard(&self, shard: usize) -> MutexGuard<'_, Shard<P>> {
        // No user code runs under the lock, and no step leaves the maps half-changed.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the entities of a shard that `chosen` selects, and all retired activations, to leave. Returns the
    /// number of entities that were not asked before.
    fn ask(&self, shard: usize, mut chosen: impl FnMut(&Name<P>) -> bool) -> usize {
        let (mut leaving, mut asked) = (Vec::new(), 0);
        let mut entries = self.shard(shard);
        let Shard { active, retired, .. } = &mut *entries;
        retired.retain(|address| address.is_alive());
        leaving.extend(&*retired);
        for live in active.iter().filter(|live| chosen(live)) {
            asked += usize::from(!live.marks().leave());
            leaving.extend(live.address());
        }
        self.counts.leaving.fetch_add(asked, Ordering::Relaxed);
        // A table that has shrunk a lot must not keep its largest capacity.
        if active.capacity() > 64 && active.len() < active.capacity() / 8 {
            active.shrink_to_fit(|live| self.hasher.hash_one(live.state_key()));
        }
        drop(entries);
        send_passivate(leaving);
        asked
    }
}

fn send_passivate<P: Durable>(leaving: impl IntoIterator<Item = Address<P>>) {
    for address in leaving {
        // A process that has just ended needs no request.
        let _ = address.send(Passivate);
    }
}

impl<P: Durable> fmt::Debug for Directory<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<P: Durable> fmt::Debug for Home<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl<P: Durable> Shard<P> {
    /// Removes the active entry of the activation with this name; `None` if a later one has replaced it.
    /// `last` is the activation's last submission.
    fn take(&mut self, hash: u64, name: &Name<P>, last: Submission) -> Option<Name<P>> {
        self.ended = self.ended.max(last);
        let own = self.active.find_entry(hash, |live| live.is_clone_of(name));
        own.ok().map(|own| own.remove().0)
    }
}

/// A type-erased [`Directory`].
pub(crate) trait AnyDirectory: Send + Sync {
    /// Asks the entities of a shard to leave that were last used more than `ticks` ago, and again the
    /// entities that were asked before.
    fn passivate_idle(&self, shard: usize, tick: u32, ticks: u32);

    /// Asks all entities to leave.
    fn passivate_all(&self);

    /// Removes the entries of all activations that have ended after the node was closed, and the dependencies of the
    /// kind.
    fn clear(&self);

    /// Kills all activations of a shard.
    #[cfg(feature = "sim")]
    fn kill(&self, shard: usize);

    /// Lets the clock hand pass over a shard, and asks the residents to leave that were not used since it
    /// passed before. Returns their number.
    fn evict(&self, shard: usize) -> usize;
}

impl<P: Durable> AnyDirectory for Directory<P> {
    fn passivate_idle(&self, shard: usize, tick: u32, ticks: u32) {
        self.ask(shard, |name| name.marks().is_idle(tick, ticks));
    }

    fn passivate_all(&self) {
        let mut leaving = Vec::new();
        for shard in 0..SHARDS {
            let shard = self.shard(shard);
            leaving.extend(shard.retired.iter().copied());
            leaving.extend(shard.active.iter().filter_map(Name::address));
        }
        // In the order of their memory, in which a million processes end in half the time.
        leaving.sort_unstable();
        send_passivate(leaving);
    }

    fn clear(&self) {
        let mut ended = Vec::new();
        for shard in 0..SHARDS {
            ended.extend(mem::take(&mut self.shard(shard).active));
        }
        // In the order of their memory as well.
        ended.sort_unstable_by_key(Name::address);
        ended.into_iter().for_each(|name| self.forget(&name));
        let deps = self.deps().take();
        drop_user_value(deps);
    }

    #[cfg(feature = "sim")]
    fn kill(&self, shard: usize) {
        let entries = self.shard(shard);
        let retired = entries.retired.iter().copied();
        let all: Vec<_> = entries.active.iter().filter_map(Name::address).chain(retired).collect();
        drop(entries);
        all.into_iter().for_each(Address::kill);
    }

    fn evict(&self, shard: usize) -> usize {
        self.ask(shard, |name| name.marks().pass())
    }
}
