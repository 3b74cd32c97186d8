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

mod pins;
mod recheck;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::BuildHasher;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hashbrown::HashTable;
use throng::Address;
use throng::layer::{HashState, Instant};
use throng_store::Submission;
use tokio::sync::watch;

use self::recheck::DueRecheck;
use crate::activation::{Failure, Fresh};
use crate::catalogue::{Catalogue, Numbered, Shaped};
use crate::durable::decode_state;
use crate::inbox::{Entry, Recheck};
use crate::index::{AnyIndexed, Indexes, Keys};
use crate::keeper;
use crate::monitor::EntityFailure;
use crate::name::Name;
use crate::node::{Counts, Inner};
use crate::reminder::{Clock, Due, Queue, Ring};
use crate::turn::Passivate;
use crate::users::{catch, drop_user_value};
use crate::{Durable, Entity, EntityError, Node, Receives};

/// Number of locks that share the entities of a kind. So many that a search of a whole shard for entities
/// that should leave is short, even with a million of them.
pub(crate) const SHARDS: usize = 1024;

/// Most maps of a kind's cells whose numbers are found without the catalogue.
const KNOWN_MAPS_MAX: usize = 16;

/// The live entities of kind `P`, and everything else that they share.
pub(crate) struct Directory<P: Durable> {
    hasher: HashState,
    shards: Box<[Mutex<Shard<P>>]>,
    /// Number of the kind.
    kind: Arc<Numbered>,
    /// Numbers of the durable messages of the kind, in the order of [`Durable::MESSAGES`]; `None` without one.
    messages: Box<[Option<Arc<Numbered>>]>,
    /// Numbers of maps of the kind's cells by their names, as far as there is room.
    maps: boxcar::Vec<(Box<str>, Arc<Numbered>)>,
    /// Dependencies of the kind, from its registration to the shutdown of the node, which they may refer to.
    deps: Mutex<Option<Arc<P::Deps>>>,
    counts: Arc<Counts>,
    indexes: Indexes,
    /// The entities whose reminders are due soon.
    queue: Queue,
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
    /// Pinned entities, live or not, by the keys of their states.
    pinned: HashMap<Box<[u8]>, keeper::Pin>,
    /// Entities to be forgotten if they cannot be loaded, with the number of those who have asked for it.
    to_forget: HashMap<Box<[u8]>, usize>,
    /// Entities that are to recheck their inboxes, by the keys of their states.
    rechecks: HashMap<Box<[u8]>, DueRecheck>,
    /// Senders of the failures of entities that have monitors, by the keys of their states.
    monitored: HashMap<Box<[u8]>, watch::Sender<EntityFailure>>,
}

/// Destination of a message.
enum Route<P> {
    To(Address<P>),
    /// The entity is to recheck its inbox, and the copy of a stored message is dropped.
    Dropped,
    /// The entity is to be activated.
    Absent,
}

impl<P: Durable> Directory<P> {
    pub(crate) fn new(hasher: HashState, kind: Arc<Numbered>, node: &Inner) -> Directory<P> {
        let shard = || {
            Mutex::new(Shard {
                active: HashTable::new(),
                retired: Vec::new(),
                ended: Submission::START,
                pinned: HashMap::new(),
                to_forget: HashMap::new(),
                rechecks: HashMap::new(),
                monitored: HashMap::new(),
            })
        };
        let indexes = Indexes::open::<P>(node, kind.number());
        Directory {
            hasher,
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
            kind,
            messages: P::MESSAGES
                .iter()
                .map(|message| node.catalogue.message(P::KIND, message.name()))
                .collect(),
            maps: boxcar::Vec::new(),
            // A kind without dependencies is registered from the beginning.
            deps: Mutex::new(Arc::downcast(Arc::new(()) as Arc<dyn Any + Send + Sync>).ok()),
            counts: node.counts.clone(),
            indexes,
            queue: Queue::new(node.bell.clone()),
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

    /// Returns the indexes of the kind.
    pub(crate) fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// Returns the entities whose reminders are due soon.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns the number of the kind.
    pub(crate) fn kind(&self) -> &Arc<Numbered> {
        &self.kind
    }

    /// Returns the number of the durable message with this index in [`Durable::MESSAGES`]; `None` if it has none.
    pub(crate) fn message_number(&self, index: usize) -> Option<&Arc<Numbered>> {
        self.messages[index].as_ref()
    }

    /// Returns the number of a map of the kind's cells; `None` if there are no more numbers.
    pub(crate) fn map(&self, name: &str, catalogue: &Catalogue) -> Option<Arc<Numbered>> {
        let known = self.maps.iter().find(|(_, (known, _))| **known == *name);
        if let Some((_, (_, number))) = known {
            return Some(number.clone());
        }
        let number = catalogue.map(P::KIND, name)?;
        // Entities may give their maps any number of names.
        if self.maps.count() < KNOWN_MAPS_MAX {
            self.maps.push((name.into(), number.clone()));
        }
        Some(number)
    }

    /// Returns the durable message with this number; `None` if this program does not have it.
    pub(crate) fn message(&self, number: u16) -> Option<(&'static Receives<P>, &Arc<Numbered>)> {
        let numbered = P::MESSAGES.iter().zip(&self.messages);
        let mut numbered =
            numbered.filter_map(|(message, number)| Some((message, number.as_ref()?)));
        numbered.find(|(_, known)| known.number() == number)
    }

    /// Returns the shape of the kind's states.
    ///
    /// # Errors
    ///
    /// The reason why such states cannot be stored.
    pub(crate) fn shape(&self) -> Result<&Arc<Shaped>, &'static str> {
        self.kind.shape_of::<P>(P::VERSION)
    }

    /// Sets the dependencies of the kind, and has its pinned entities woken; hands the dependencies back if the kind
    /// has others. `()` are the dependencies of a kind without any.
    pub(crate) fn register(
        self: &Arc<Self>,
        node: &Inner,
        deps: Arc<P::Deps>,
    ) -> Result<(), Arc<P::Deps>> {
        let mut registered = self.deps();
        if registered.is_some() {
            return if is_unit::<P::Deps>() { Ok(()) } else { Err(deps) };
        }
        *registered = Some(deps);
        drop(registered);
        node.bell.wake();
        for shard in 0..SHARDS {
            let mut shard = self.shard(shard);
            for (state_key, pin) in &mut shard.pinned {
                pin.hurry();
                node.keeper.add(pin.due(), self.clone(), state_key);
            }
            for (state_key, recheck) in &mut shard.rechecks {
                recheck.due = Instant::now();
                node.redelivery.due.add(recheck.due, self.clone(), state_key);
            }
        }
        Ok(())
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
        self.activate_for(node, name, None)?.ok_or(EntityError::ShutDown)
    }

    /// Does the same for the copy of a stored message; `None` if the entity is to recheck its inbox and the copy must
    /// not come before the messages there.
    pub(crate) fn activate_for_copy(
        self: &Arc<Self>,
        node: &Arc<Inner>,
        name: &Name<P>,
        copy: &Entry,
    ) -> Result<Option<Address<P>>, EntityError> {
        self.activate_for(node, name, Some(copy))
    }

    fn activate_for(
        self: &Arc<Self>,
        node: &Arc<Inner>,
        name: &Name<P>,
        copy: Option<&Entry>,
    ) -> Result<Option<Address<P>>, EntityError> {
        let hash = self.hasher.hash_one(name.state_key());
        match self.route(&mut self.shard_of(hash), node, name, hash, copy)? {
            Route::To(address) => return Ok(Some(address)),
            Route::Dropped => return Ok(None),
            Route::Absent => {}
        }
        let fresh = Fresh::new(node, self, name)?;
        let mut shard = self.shard_of(hash);
        match self.route(&mut shard, node, name, hash, copy) {
            Ok(Route::Absent) => {}
            found => {
                drop(shard);
                fresh.discard();
                return found.map(|found| match found {
                    Route::To(address) => Some(address),
                    Route::Dropped | Route::Absent => None,
                });
            }
        }
        let ending = shard.active.find_entry(hash, |live| live.is_of(name)).ok();
        if let Some(ending) = ending {
            self.forget(&ending.remove().0);
            // It may have been killed, with copies in its mailbox.
            self.add_recheck(&mut shard, node, name.state_key(), Duration::ZERO);
            // It has not told its last submission yet. If this activation never has a turn, the next one waits, too.
            shard.ended = shard.ended.max(node.store.submitted_through());
        }
        let after = shard.ended;
        // Before the spawn, because the process may run at once.
        let name = fresh.name().clone();
        name.marks().begin(node.tick());
        if let Some(pin) = shard.pinned.get_mut(name.state_key()) {
            name.marks().pin(true);
            pin.begins();
        }
        match fresh.spawn(after) {
            Ok(address) => {
                name.lives_at(address);
                let hash_of = |live: &Name<P>| self.hasher.hash_one(live.state_key());
                shard.active.insert_unique(hash, name.clone(), hash_of);
                let has_ended = name.marks().spawned();
                // It may be to recheck its inbox since this call has found its end.
                let is_dropped = copy.is_some_and(|copy| shard.must_recheck(&name, copy));
                if let Some(copy) = copy.filter(|_| !is_dropped) {
                    name.marks().copy_sent(copy.weight);
                }
                drop(shard);
                if has_ended {
                    // Killed at once, before its end could know of the entry.
                    self.remove(node, &name, after, !P::MESSAGES.is_empty());
                }
                node.count_activation();
                Ok((!is_dropped).then_some(address))
            }
            Err((error, unspawned)) => {
                drop(shard);
                drop(unspawned);
                if matches!(error, EntityError::NoRoom { .. }) {
                    node.evict_for_room();
                }
                Err(error)
            }
        }
    }

    /// Finds out where a message for the entity goes.
    fn route(
        &self,
        shard: &mut Shard<P>,
        node: &Inner,
        name: &Name<P>,
        hash: u64,
        copy: Option<&Entry>,
    ) -> Result<Route<P>, EntityError> {
        if node.is_closed() {
            return Err(EntityError::ShutDown);
        }
        if let Some(copy) = copy
            && shard.must_recheck(name, copy)
        {
            return Ok(Route::Dropped);
        }
        let Some(live) = shard.active.find(hash, |live| live.is_of(name)) else {
            return Ok(Route::Absent);
        };
        let Some(address) = live.address().filter(|address| address.is_alive()) else {
            return Ok(Route::Absent);
        };
        if live.marks().touch(node.tick()) {
            self.counts.stays();
        }
        if let Some(copy) = copy {
            live.marks().copy_sent(copy.weight);
        }
        Ok(Route::To(address))
    }

    /// Has the entity forgotten if an activation cannot load it, until the returned value is dropped.
    pub(crate) fn forget_if_unreadable(self: &Arc<Self>, name: &Name<P>) -> ForgetIfUnreadable<P> {
        let mut shard = self.shard_of(self.hasher.hash_one(name.state_key()));
        *shard.to_forget.entry(name.state_key().into()).or_default() += 1;
        ForgetIfUnreadable { directory: self.clone(), name: name.clone() }
    }

    /// Whether an entity that cannot be loaded is to be forgotten.
    pub(crate) fn is_to_forget(&self, name: &Name<P>) -> bool {
        let shard = self.shard_of(self.hasher.hash_one(name.state_key()));
        shard.to_forget.contains_key(name.state_key())
    }

    /// Returns a receiver of the entity's failures.
    pub(crate) fn monitor(&self, node: &Inner, name: &Name<P>) -> watch::Receiver<EntityFailure> {
        let mut shard = self.shard_of(self.hasher.hash_one(name.state_key()));
        if node.is_closed() {
            return watch::Sender::default().subscribe();
        }
        shard.monitored.entry(name.state_key().into()).or_default().subscribe()
    }

    /// Forgets a monitor of the entity, whose receiver is about to be dropped.
    pub(crate) fn forget_monitor(&self, name: &Name<P>) {
        let mut shard = self.shard_of(self.hasher.hash_one(name.state_key()));
        if shard.monitored.get(name.state_key()).is_some_and(|own| own.receiver_count() <= 1) {
            shard.monitored.remove(name.state_key());
        }
    }

    /// Tells the monitors of an entity of a failure, and counts it if the entity is pinned.
    pub(crate) fn report(&self, node: &Inner, name: &Name<P>, reason: &dyn fmt::Display) {
        let shard = self.shard_of(self.hasher.hash_one(name.state_key()));
        if shard.pinned.contains_key(name.state_key()) {
            node.keeper.failures.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(monitored) = shard.monitored.get(name.state_key()) {
            monitored.send_modify(|failure| {
                *failure =
                    EntityFailure { count: failure.count + 1, reason: reason.to_string().into() };
            });
        }
    }

    /// Removes the entry of an activation that ends, unless it belongs to a later one. `has_lost` tells whether copies
    /// of messages may have been lost with it.
    pub(crate) fn remove(
        self: &Arc<Self>,
        node: &Inner,
        name: &Name<P>,
        last: Submission,
        has_lost: bool,
    ) {
        let hash = self.hasher.hash_one(name.state_key());
        let mut shard = self.shard_of(hash);
        if let Some(own) = shard.take(hash, name, last) {
            self.forget(&own);
            self.wake_again(node, &mut shard, name);
            if has_lost {
                self.add_recheck(&mut shard, node, name.state_key(), Duration::ZERO);
            }
        }
    }

    /// Moves the entry to the retired activations, so that a later activation can begin before the
    /// process of this activation has ended.
    pub(crate) fn retire(self: &Arc<Self>, node: &Inner, name: &Name<P>, last: Submission) {
        let hash = self.hasher.hash_one(name.state_key());
        let mut shard = self.shard_of(hash);
        if let Some(own) = shard.take(hash, name, last) {
            // Ended activations are removed here as well, so that the list stays short even if no
            // sweeper runs.
            shard.retired.retain(|address| address.is_alive());
            shard.retired.extend(own.address());
            self.forget(&own);
            self.wake_again(node, &mut shard, name);
            self.add_recheck(&mut shard, node, name.state_key(), Duration::ZERO);
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

    /// Asks the entities of a shard that `chosen` selects to leave, as `request` says, and all retired
    /// activations. Returns the number of entities that were not asked before.
    fn ask(
        &self,
        shard: usize,
        request: Passivate,
        mut chosen: impl FnMut(&Name<P>) -> bool,
    ) -> usize {
        let (mut leaving, mut asked) = (Vec::new(), 0);
        let mut entries = self.shard(shard);
        let Shard { active, retired, .. } = &mut *entries;
        retired.retain(|address| address.is_alive());
        let given_up = retired.clone();
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
        send_passivate(given_up, Passivate::Always);
        send_passivate(leaving, request);
        asked
    }
}

fn is_unit<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<()>()
}

fn send_passivate<P: Durable>(leaving: impl IntoIterator<Item = Address<P>>, request: Passivate) {
    for address in leaving {
        // A process that has just ended needs no request.
        let _ = address.send(request);
    }
}

/// The wish that an entity be forgotten if it cannot be loaded.
pub(crate) struct ForgetIfUnreadable<P: Durable> {
    directory: Arc<Directory<P>>,
    name: Name<P>,
}

impl<P: Durable> Drop for ForgetIfUnreadable<P> {
    fn drop(&mut self) {
        let state_key = self.name.state_key();
        let mut shard = self.directory.shard_of(self.directory.hasher.hash_one(state_key));
        if let Some(wishes) = shard.to_forget.get_mut(state_key) {
            *wishes -= 1;
            if *wishes == 0 {
                shard.to_forget.remove(state_key);
            }
        }
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

/// The removal of an entity, under way.
pub(crate) type Forgetting = Pin<Box<dyn Future<Output = Result<(), EntityError>> + Send>>;

/// A type-erased [`Directory`].
pub(crate) trait AnyDirectory: AnyIndexed + Send + Sync {
    /// Asks the entities of a shard to leave that were last used more than `ticks` ago, and again the
    /// entities that were asked before.
    fn passivate_idle(&self, shard: usize, tick: u32, ticks: u32);

    /// Asks all entities to leave.
    fn passivate_all(&self);

    /// Removes the entries of all activations that have ended after the node was closed, and the dependencies of the
    /// kind.
    fn clear(&self);

    /// Activates a pinned entity that is due since this time, unless the time is outdated.
    fn wake(self: Arc<Self>, node: &Arc<Inner>, state_key: &[u8], due: Instant);

    /// Whether the kind has its dependencies, so that its entities can be activated.
    fn is_registered(&self) -> bool;

    /// Has an entity recheck its inbox that is due since this time, unless the time is outdated.
    fn recheck(self: Arc<Self>, node: &Arc<Inner>, state_key: &[u8], due: Instant);

    /// Has the entities of a shard notice that turns of theirs are lost, if they have messages.
    fn notice_loss(&self, shard: usize);

    /// Returns the entities whose reminders are due soon; `None` if the kind's entities cannot be activated, or can have
    /// no reminders.
    fn reminders(&self) -> Option<&Queue>;

    /// Begins to search the reminders of the kind anew.
    fn search_reminders(&self);

    /// Returns the number of the kind.
    fn kind_number(&self) -> u16;

    /// Returns the name of the kind.
    fn kind_name(&self) -> &'static str;

    /// Asks an entity to see to its reminders that are due, and activates it for that.
    fn ring(self: Arc<Self>, node: &Arc<Inner>, clock: Clock, due: &Due);

    /// Has an entity recheck its inbox in which a search has found messages, unless it is live: then it has found them
    /// itself.
    fn recheck_found(self: Arc<Self>, node: &Inner, state_key: &[u8]);

    /// Whether an entity is in memory.
    fn is_live(&self, state_key: &[u8]) -> bool;

    /// Has an entity recheck its inbox, which an operator has changed.
    fn recheck_now(self: Arc<Self>, node: &Arc<Inner>, state_key: &[u8]);

    /// Removes everything that is stored of an entity, whether it can be loaded or not.
    fn forget_entity(self: Arc<Self>, node: &Arc<Inner>, state_key: &[u8]) -> Forgetting;

    /// Kills all activations of a shard.
    #[cfg(feature = "sim")]
    fn kill(&self, shard: usize);

    /// Lets the clock hand pass over a shard, and asks the residents to leave that were not used since it
    /// passed before, those that are known to have ties only if `even_if_tied`. Returns their number.
    fn evict(&self, shard: usize, even_if_tied: bool) -> usize;
}

impl<P: Durable> AnyIndexed for Directory<P> {
    fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    fn keys_of(&self, record: &[u8]) -> Result<Keys, Failure> {
        let state = catch(|| decode_state::<P>(&self.kind, record)).map_err(Failure::Panicked)?;
        let state = state.map_err(Failure::State)?;
        let keys = Keys::of(&state, false);
        drop_user_value(state);
        keys.map_err(Failure::Panicked)
    }
}

impl<P: Durable> AnyDirectory for Directory<P> {
    fn passivate_idle(&self, shard: usize, tick: u32, ticks: u32) {
        self.ask(shard, Passivate::Untied, |name| name.marks().is_idle(tick, ticks));
    }

    fn wake(self: Arc<Self>, node: &Arc<Inner>, state_key: &[u8], due: Instant) {
        self.wake_pinned(node, state_key, due);
    }

    fn is_registered(&self) -> bool {
        self.deps().is_some()
    }

    fn recheck(self: Arc<Self>, node: &Arc<Inner>, state_key: &[u8], due: Instant) {
        self.recheck_due(node, state_key, due);
    }

    fn notice_loss(&self, shard: usize) {
        if !P::MESSAGES.is_empty() {
            let live: Vec<_> = self.shard(shard).active.iter().filter_map(Name::address).collect();
            // A process that has just ended need not know.
            live.into_iter().for_each(|address| drop(address.send(Recheck { after: None })));
        }
    }

    fn reminders(&self) -> Option<&Queue> {
        (!P::MESSAGES.is_empty() && self.is_registered()).then_some(&self.queue)
    }

    fn search_reminders(&self) {
        self.queue.search_again();
    }

    fn kind_number(&self) -> u16 {
        self.kind.number()
    }

    fn kind_name(&self) -> &'static str {
        P::KIND
    }

    fn ring(self: Arc<Self>, node: &Arc<Inner>, clock: Clock, due: &Due) {
        let name = Name::of_state_key(&due.state_key);
        loop {
            let address = match self.activate(node, &name) {
                Ok(address) => address,
                Err(EntityError::ShutDown) => return,
                Err(error) => {
                    let (key, rings) = (name.key(), due.rings);
                    tracing::error!(kind = P::KIND, key, rings, %error, "a reminder has to wait");
                    return;
                }
            };
            match address.send(Ring { clock, due: due.due }) {
                // The entity was just passivated.
                Err(throng::SendError::NoProcess(_)) => {}
                // If there is no memory for messages, it is rung again.
                _ => return,
            }
        }
    }

    fn recheck_found(self: Arc<Self>, node: &Inner, state_key: &[u8]) {
        self.recheck_if_at_rest(node, state_key);
    }

    fn is_live(&self, state_key: &[u8]) -> bool {
        let hash = self.hasher.hash_one(state_key);
        let shard = self.shard_of(hash);
        let live = shard.active.find(hash, |live| live.state_key() == state_key);
        live.and_then(Name::address).is_some_and(|address| address.is_alive())
    }

    fn recheck_now(self: Arc<Self>, node: &Arc<Inner>, state_key: &[u8]) {
        self.recheck_later(node, state_key, Duration::ZERO);
    }

    fn forget_entity(self: Arc<Self>, node: &Arc<Inner>, state_key: &[u8]) -> Forgetting {
        let entity =
            Entity::<P>::from_parts(Node::of(node.clone()), Ok(Name::of_state_key(state_key)));
        Box::pin(async move { entity.forget_unreadable().await })
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
        send_passivate(leaving, Passivate::Always);
    }

    fn clear(&self) {
        let mut ended = Vec::new();
        for shard in 0..SHARDS {
            ended.extend(mem::take(&mut self.shard(shard).active));
        }
        // In the order of their memory as well.
        ended.sort_unstable_by_key(Name::address);
        ended.into_iter().for_each(|name| self.forget(&name));
        for shard in 0..SHARDS {
            // Their monitors learn that there is nothing more to come.
            self.shard(shard).monitored.clear();
            self.shard(shard).rechecks.clear();
        }
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

    fn evict(&self, shard: usize, even_if_tied: bool) -> usize {
        let request = if even_if_tied { Passivate::Tied } else { Passivate::Untied };
        self.ask(shard, request, |name| name.marks().pass(even_if_tied))
    }
}
