//! [`Directory`]: which entities of one kind are live, and where.
//!
//! The lock of a shard is held while one of its entities is loaded and spawned, so nobody can find
//! an entity half-activated or activate it a second time. An entry leaves when its activation ends
//! or is given up; one whose process has ended is as good as none and is replaced.
//!
//! Lock order: a shard's lock may be held while the runtime spawns; the runtime holds no lock of
//! its own when it drops an activation, which takes the shard's lock.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throng::Address;

use crate::activation;
use crate::node::Inner;
use crate::turn::Passivate;
use crate::{Durable, EntityError};

/// How many locks share the entities of a kind. A power of two, well above the number of cores.
pub(crate) const SHARDS: usize = 64;

/// After this time an entity that was asked to leave and did not may be asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A time on the node's clock, in nanoseconds since its start.
pub(crate) type Nanos = u64;

/// The live entities of kind `P`.
#[derive(Debug)]
pub(crate) struct Directory<P> {
    hasher: RandomState,
    shards: [Mutex<Shard<P>>; SHARDS],
}

type Shard<P> = HashMap<Arc<str>, Live<P>>;

#[derive(Debug)]
struct Live<P> {
    address: Address<P>,
    used: Nanos,
    /// When it was last asked to leave, if it was not used since.
    asked: Option<Nanos>,
}

impl<P> Live<P> {
    fn is_leaving(&self, now: Nanos) -> bool {
        self.asked.is_some_and(|asked| now.saturating_sub(asked) < ASK_AGAIN.as_nanos() as Nanos)
    }
}

impl<P: Durable> Directory<P> {
    pub(crate) fn new() -> Directory<P> {
        Directory {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::new(Shard::new())),
        }
    }

    /// The address of the entity, which is activated if it is not live.
    pub(crate) fn activate(
        self: &Arc<Self>,
        node: &Arc<Inner>,
        key: &Arc<str>,
    ) -> Result<Address<P>, EntityError> {
        let mut shard = self.shard_of(key);
        let now = node.now();
        if node.is_closed() {
            return Err(EntityError::ShutDown);
        }
        if let Some(live) = shard.get_mut(key)
            && live.address.is_alive()
        {
            live.used = now;
            live.asked = None;
            return Ok(live.address);
        }
        let address = match activation::start(node, self, key) {
            Ok(address) => address,
            Err(error) => {
                drop(shard);
                if matches!(error, EntityError::NoRoom { .. }) {
                    node.evict_for_room();
                }
                return Err(error);
            }
        };
        shard.insert(key.clone(), Live { address, used: now, asked: None });
        drop(shard);
        node.evict_if_crowded_since(node.count_activation());
        Ok(address)
    }

    /// Takes the entry out, unless it belongs to a later activation.
    pub(crate) fn remove(&self, key: &str, address: Address<P>) {
        let mut shard = self.shard_of(key);
        if shard.get(key).is_some_and(|live| live.address == address) {
            shard.remove(key);
        }
    }

    fn shard_of(&self, key: &str) -> MutexGuard<'_, Shard<P>> {
        self.shard(self.hasher.hash_one(key) as usize % SHARDS)
    }

    fn shard(&self, shard: usize) -> MutexGuard<'_, Shard<P>> {
        // A panic while loading (in a user's `migrate`, say) leaves the map as it was.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks those entities of a shard to leave that `chosen` picks.
    fn ask(&self, shard: usize, now: Nanos, mut chosen: impl FnMut(&Live<P>) -> bool) {
        let mut leaving = Vec::new();
        let mut entries = self.shard(shard);
        entries.retain(|_, live| live.address.is_alive());
        for live in entries.values_mut() {
            if chosen(live) {
                live.asked = Some(now);
                leaving.push(live.address);
            }
        }
        // What has shrunk a lot should not hold on to its largest size.
        if entries.capacity() > 64 && entries.len() < entries.capacity() / 8 {
            entries.shrink_to_fit();
        }
        drop(entries);
        for address in leaving {
            // If it has just ended, so much the better.
            let _ = address.send(Passivate);
        }
    }
}

/// A [`Directory`] of any kind.
pub(crate) trait Kind: Send + Sync {
    /// Asks all entities of a shard to leave that were not used since `before`.
    fn passivate_idle(&self, shard: usize, before: Nanos, now: Nanos);

    /// Adds the last uses of all entities that are not leaving yet.
    fn collect_uses(&self, now: Nanos, uses: &mut Vec<Nanos>);

    /// Asks all entities to leave that were not used after `newest`, but at most `count` of them;
    /// takes those off `count`.
    fn evict(&self, newest: Nanos, count: &mut usize, now: Nanos);

    /// Asks all entities to end after the messages they have, whatever comes later.
    fn stop_all(&self);
}

impl<P: Durable> Kind for Directory<P> {
    fn passivate_idle(&self, shard: usize, before: Nanos, now: Nanos) {
        self.ask(shard, now, |live| live.used <= before && !live.is_leaving(now));
    }

    fn collect_uses(&self, now: Nanos, uses: &mut Vec<Nanos>) {
        for shard in 0..SHARDS {
            let entries = self.shard(shard);
            uses.extend(
                entries.values().filter(|live| !live.is_leaving(now)).map(|live| live.used),
            );
        }
    }

    fn evict(&self, newest: Nanos, count: &mut usize, now: Nanos) {
        for shard in 0..SHARDS {
            self.ask(shard, now, |live| {
                let chosen = *count > 0 && live.used <= newest && !live.is_leaving(now);
                *count -= usize::from(chosen);
                chosen
            });
        }
    }

    fn stop_all(&self) {
        for shard in 0..SHARDS {
            let addresses: Vec<_> = self.shard(shard).values().map(|live| live.address).collect();
            for address in addresses {
                address.stop();
            }
        }
    }
}
