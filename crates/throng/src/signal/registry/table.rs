//! A table of processes by key, in the order of the keys.
//!
//! ```text
//!  insert ──▶ shard of the key: key ─▶ Slot ◀── membership of the process, which removes the
//!  find ────▶ (a lock each)            pid, value    slot when the process exits
//! ```
//! Invariants:
//! 1. A key belongs to at most one process; a process may have any number of keys.
//! 2. The signals by which a process gains and loses a membership are sent under the shard's lock,
//!    so that they come in the order in which the table changed.
//! 3. A slot of a dead process is treated as absent: another process may take the key, and the
//!    membership of the dead process, which leaves later, removes only its own slot.
//!
//! No two shards are locked at once. Keys are compared, cloned and dropped, and values are cloned, under a
//! shard's lock; no other user code runs under it.

use crate::address::Pid;
use crate::cell::extension::Membership;
use crate::exit::drop_users;
use crate::signal::{self, Signal};
use crate::sync::{Mutex, MutexGuard, lock};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Number of shards, a power of two. When all workers look keys up at once, two of them rarely
/// meet in the same shard.
const SHARDS: usize = 64;

/// Processes by key, each with a value. See the file's head.
pub(super) struct Table<K, V> {
    shards: [Mutex<Shard<K, V>>; SHARDS],
}

type Shard<K, V> = BTreeMap<K, Slot<V>>;

struct Slot<V> {
    pid: Pid,
    /// Shared with the process's membership, which it identifies.
    holder: Arc<Holder>,
    value: V,
}

/// The identity of a slot and its membership: its address.
pub(super) struct Holder;

/// Reason for which a process did not get a key.
pub(super) enum Refused<K> {
    /// Another process has the key.
    Taken(K, Pid),
    /// The process has exited.
    NoProcess(K),
}

impl<K, V> Table<K, V>
where
    K: Ord + Hash + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new() -> Table<K, V> {
        Table { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> MutexGuard<'_, Shard<K, V>> {
        lock(&self.shards[shard_of(key, SHARDS)])
    }

    /// Gives a process a key, unless a living process has the key. `title` makes the process's name out of the
    /// key, if keys of this table are names.
    pub(super) fn insert(
        self: &Arc<Self>,
        key: K,
        pid: Pid,
        value: V,
        title: Title<K>,
    ) -> Result<(), Refused<K>> {
        // Users' values are dropped after the lock.
        let mut shard = self.shard(&key);
        let refused = if let Some(slot) = shard.get(&key).filter(|slot| slot.pid.is_alive()) {
            Refused::Taken(key, slot.pid)
        } else if let Some(holder) = self.join(&key, pid, title) {
            let replaced = shard.insert(key, Slot { pid, holder, value });
            drop(shard);
            drop_users(replaced);
            return Ok(());
        } else {
            Refused::NoProcess(key)
        };
        drop(shard);
        drop_users(value);
        Err(refused)
    }

    /// Returns the living process that has the key, or spawns `process` and gives the key to it. The shard is
    /// locked during `spawn`, which must therefore run no user code.
    pub(super) fn find_or_insert<P, E>(
        self: &Arc<Self>,
        key: K,
        value: V,
        process: P,
        spawn: impl FnOnce(P) -> Result<Pid, E>,
    ) -> Result<Pid, E> {
        let mut shard = self.shard(&key);
        if let Some(slot) = shard.get(&key).filter(|slot| slot.pid.is_alive()) {
            let present = slot.pid;
            drop(shard);
            drop_users((key, value, process));
            return Ok(present);
        }
        let pid = spawn(process)?;
        let replaced = match self.join(&key, pid, |_| None) {
            Some(holder) => Ok(shard.insert(key, Slot { pid, holder, value })),
            // The process was killed before it got the key, for instance because its parent has exited.
            None => Err((key, value)),
        };
        drop(shard);
        drop_users(replaced);
        Ok(pid)
    }

    /// Sends a process the membership for a key; `None` if the process has exited. The caller has locked the shard.
    fn join(self: &Arc<Self>, key: &K, pid: Pid, title: Title<K>) -> Option<Arc<Holder>> {
        let holder = Arc::new(Holder);
        let (table, key) = (self.clone(), key.clone());
        let membership = Box::new(Keyed { table, key, holder: holder.clone(), title });
        let signal = Signal::Join { key: id(&holder), membership };
        signal::try_send(pid, signal).is_ok().then_some(holder)
    }

    /// Calls `read` with the process and the value of a key, and returns its result; `None` if no living process
    /// has the key.
    pub(super) fn find<Q, R>(&self, key: &Q, read: impl FnOnce(Pid, &V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        let shard = self.shard(key);
        let slot = shard.get(key).filter(|slot| slot.pid.is_alive())?;
        Some(read(slot.pid, &slot.value))
    }

    /// Replaces the value of a key; hands `value` back if no living process has the key.
    pub(super) fn replace<Q>(&self, key: &Q, value: V) -> Result<V, V>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        let mut shard = self.shard(key);
        match shard.get_mut(key).filter(|slot| slot.pid.is_alive()) {
            Some(slot) => Ok(std::mem::replace(&mut slot.value, value)),
            None => Err(value),
        }
    }

    /// Takes a key away from its process, and returns the process; `None` if no living process has the key.
    pub(super) fn remove<Q>(&self, key: &Q) -> Option<Pid>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        let mut shard = self.shard(key);
        let slot = shard.remove(key)?;
        // A process that refuses the signal has exited, or still lives and is about to leave.
        let left = signal::try_send(slot.pid, Signal::Leave { key: id(&slot.holder) });
        drop(shard);
        let pid = slot.pid;
        drop_users(slot);
        (left.is_ok() || pid.is_alive()).then_some(pid)
    }

    /// Calls `read` for each entry of a range while `while_in` accepts its key, and returns the results, sorted by
    /// key. Each entry was true at some moment during the call.
    pub(super) fn list<Q, R>(
        &self,
        range: (Bound<&Q>, Bound<&Q>),
        while_in: impl Fn(&K) -> bool,
        read: impl Fn(Pid, &V) -> R,
    ) -> Vec<(K, R)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut all = Vec::new();
        if is_empty(range) {
            return all;
        }
        for shard in &self.shards {
            let shard = lock(shard);
            let entries = shard.range::<Q, _>(range).take_while(|(key, _)| while_in(key));
            let living = entries.filter(|(_, slot)| slot.pid.is_alive());
            all.extend(living.map(|(key, slot)| (key.clone(), read(slot.pid, &slot.value))));
        }
        all.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        all
    }

    #[cfg(test)]
    pub(super) fn holder<Q>(&self, key: &Q) -> Option<Arc<Holder>>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        Some(self.shard(key).get(key)?.holder.clone())
    }

    /// Number of keys, including the keys of processes that have just exited.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }
}

/// Whether a range can have no keys; [`BTreeMap::range`] panics for some empty ranges.
fn is_empty<Q: Ord + ?Sized>((from, to): (Bound<&Q>, Bound<&Q>)) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

pub(super) fn bounds<Q: ?Sized>(range: &impl RangeBounds<Q>) -> (Bound<&Q>, Bound<&Q>) {
    (range.start_bound(), range.end_bound())
}

/// Function that makes a process's name out of a key; `None` if keys are not names.
pub(super) type Title<K> = fn(&K) -> Option<String>;

/// Key of a slot's membership: the holder's address, unique while the membership has the holder.
fn id(holder: &Arc<Holder>) -> usize {
    Arc::as_ptr(holder).addr()
}

/// Returns the index, below `shards`, of the shard that a key belongs to; the same in each run of a program.
pub(crate) fn shard_of<T: Hash + ?Sized>(key: &T, shards: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as usize % shards
}

/// A process's side of a slot.
struct Keyed<K, V> {
    table: Arc<Table<K, V>>,
    key: K,
    holder: Arc<Holder>,
    title: Title<K>,
}

impl<K, V> Membership for Keyed<K, V>
where
    K: Ord + Hash + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn name(&self) -> Option<String> {
        (self.title)(&self.key)
    }

    fn leave(self: Box<Self>, _: Pid) {
        let Keyed { table, key, holder, .. } = *self;
        let mut shard = table.shard(&key);
        let removed = match shard.entry(key) {
            Entry::Occupied(entry) if Arc::ptr_eq(&entry.get().holder, &holder) => {
                Some(entry.remove_entry())
            }
            _ => None,
        };
        drop(shard);
        drop_users(removed);
    }
}
