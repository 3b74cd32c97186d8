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

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throng::Address;
use throng_store::Submission;

use crate::activation::Fresh;
use crate::node::Inner;
use crate::turn::Passivate;
use crate::{Durable, EntityError};

/// Number of locks that share the entities of a kind. A power of two, well above the number of
/// cores.
pub(crate) const SHARDS: usize = 64;

/// Minimum time between two requests to leave, for an entity that did not leave after the first.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A time on the node's clock, in nanoseconds since its start.
pub(crate) type Nanos = u64;

/// The live entities of kind `P`.
#[derive(Debug)]
pub(crate) struct Directory<P> {
    hasher: RandomState,
    shards: [Mutex<Shard<P>>; SHARDS],
}

#[derive(Debug)]
struct Shard<P> {
    active: HashMap<Arc<str>, Live<P>>,
    /// Activations that were given up and may not have ended yet. Empty except for moments.
    retired: Vec<Live<P>>,
    /// The last submission of the activations that have ended.
    ended: Submission,
}

#[derive(Debug)]
struct Live<P> {
    address: Address<P>,
    used: Nanos,
    /// Time of the last request to leave; `None` if the entity was used since.
    asked: Option<Nanos>,
    /// Whether the entity counts against the limit of live entities.
    resident: bool,
}

impl<P> Live<P> {
    fn is_leaving(&self, now: Nanos) -> bool {
        self.asked.is_some_and(|asked| now.saturating_sub(asked) < ASK_AGAIN.as_nanos() as Nanos)
    }
}

impl<P> Live<P> {
    /// Whether the entity counts against the limit and is not leaving yet.
    fn is_evictable(&self, now: Nanos) -> bool {
        self.resident && !self.is_leaving(now)
    }
}

impl<P: Durable> Directory<P> {
    pub(crate) fn new() -> Directory<P> {
        Directory {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    active: HashMap::new(),
                    retired: Vec::new(),
                    ended: Submission::START,
                })
            }),
        }
    }

    /// Returns the address of the entity, and activates it first if it is not live.
    pub(crate) fn activate(
        self: &Arc<Self>,
        node: &Arc<Inner>,
        key: &Arc<str>,
    ) -> Result<Address<P>, EntityError> {
        if let Some(address) = self.find(&mut self.shard_of(key), node, key)? {
            return Ok(address);
        }
        let fresh = Fresh::new(node, self, key)?;
        let mut shard = self.shard_of(key);
        match self.find(&mut shard, node, key) {
            Ok(None) => {}
            found => {
                drop(shard);
                fresh.discard();
                return found.and_then(|address| address.ok_or(EntityError::ShutDown));
            }
        }
        let after = match shard.active.contains_key(key) {
            // An activation that is ending has not told its last submission yet.
            true => node.store.submitted_through(),
            false => shard.ended,
        };
        match fresh.spawn(node, after) {
            Ok(address) => {
                let live = Live { address, used: node.now(), asked: None, resident: false };
                shard.active.insert(key.clone(), live);
                drop(shard);
                node.count_activation();
                Ok(address)
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

    /// Returns the address of the entity, if it is live.
    fn find(
        &self,
        shard: &mut Shard<P>,
        node: &Inner,
        key: &str,
    ) -> Result<Option<Address<P>>, EntityError> {
        if node.is_closed() {
            return Err(EntityError::ShutDown);
        }
        Ok(shard.active.get_mut(key).filter(|live| live.address.is_alive()).map(|live| {
            live.used = node.now();
            live.asked = None;
            live.address
        }))
    }

    /// Marks an entity as counting against the limit.
    pub(crate) fn reside(&self, key: &str, address: Address<P>) {
        if let Some(live) = self.shard_of(key).active.get_mut(key)
            && live.address == address
        {
            live.resident = true;
        }
    }

    /// Removes the entry of an activation that ends, unless it belongs to a later one.
    pub(crate) fn remove(&self, key: &str, address: Address<P>, last: Submission) {
        self.shard_of(key).take(key, address, last);
    }

    /// Moves the entry to the retired activations, so that a later activation can begin before the
    /// process of this activation has ended.
    pub(crate) fn retire(&self, key: &str, address: Address<P>, last: Submission) {
        let mut shard = self.shard_of(key);
        let retired = shard.take(key, address, last);
        // Ended activations are removed here as well, so that the list stays short even if no
        // sweeper runs.
        shard.retired.retain(|live| live.address.is_alive());
        shard.retired.extend(retired);
    }

    fn shard_of(&self, key: &str) -> MutexGuard<'_, Shard<P>> {
        self.shard(self.hasher.hash_one(key) as usize % SHARDS)
    }

    fn shard(&self, shard: usize) -> MutexGuard<'_, Shard<P>> {
        // No user code runs under the lock, and no step leaves the maps half-changed.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the entities of a shard that `chosen` selects, and all retired activations, to leave.
    fn ask(&self, shard: usize, now: Nanos, mut chosen: impl FnMut(&Live<P>) -> bool) {
        let mut leaving = Vec::new();
        let mut entries = self.shard(shard);
        let Shard { active, retired, .. } = &mut *entries;
        retired.retain(|live| live.address.is_alive());
        let active_chosen = active.values_mut().filter(|live| chosen(live));
        let retired_again = retired.iter_mut().filter(|live| !live.is_leaving(now));
        for live in active_chosen.chain(retired_again) {
            live.asked = Some(now);
            leaving.push(live.address);
        }
        // A map that has shrunk a lot must not keep its largest capacity.
        if active.capacity() > 64 && active.len() < active.capacity() / 8 {
            active.shrink_to_fit();
        }
        drop(entries);
        for address in leaving {
            // A process that has just ended needs no request.
            let _ = address.send(Passivate);
        }
    }
}

impl<P> Shard<P> {
    /// Takes the active entry of an activation, unless it belongs to a later one. `last` is the activation's
    /// last submission.
    fn take(&mut self, key: &str, address: Address<P>, last: Submission) -> Option<Live<P>> {
        self.ended = self.ended.max(last);
        match self.active.get(key) {
            Some(live) if live.address == address => self.active.remove(key),
            _ => None,
        }
    }
}

/// A type-erased [`Directory`].
pub(crate) trait AnyDirectory: Send + Sync {
    /// Asks all entities of a shard that were not used since `before` to leave.
    fn passivate_idle(&self, shard: usize, before: Nanos, now: Nanos);

    /// Appends the times of last use of all residents that are not leaving yet.
    fn collect_uses(&self, now: Nanos, uses: &mut Vec<Nanos>);

    /// Asks residents that were not used after `newest` to leave, at most `count` of them, and
    /// subtracts their number from `count`.
    fn evict(&self, newest: Nanos, count: &mut usize, now: Nanos);
}

impl<P: Durable> AnyDirectory for Directory<P> {
    fn passivate_idle(&self, shard: usize, before: Nanos, now: Nanos) {
        self.ask(shard, now, |live| live.used <= before && !live.is_leaving(now));
    }

    fn collect_uses(&self, now: Nanos, uses: &mut Vec<Nanos>) {
        for shard in 0..SHARDS {
            let entries = self.shard(shard);
            uses.extend(
                entries.active.values().filter(|live| live.is_evictable(now)).map(|live| live.used),
            );
        }
    }

    fn evict(&self, newest: Nanos, count: &mut usize, now: Nanos) {
        for shard in 0..SHARDS {
            self.ask(shard, now, |live| {
                let chosen = *count > 0 && live.used <= newest && live.is_evictable(now);
                *count -= usize::from(chosen);
                chosen
            });
        }
    }
}
