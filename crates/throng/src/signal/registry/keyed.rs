//! Registries: processes of a type by keys of any type, each with a value.

use super::RegisterError;
use super::table::{Table, bounds};
use crate::address::{Address, Pid};
use crate::error::SpawnError;
use crate::runtime::RuntimeHandle;
use crate::runtime::spawner::Spawner;
use crate::turn::process::Process;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Processes of type `P` by keys of type `K`, each with a value of type `V`. Cloning this handle costs a
/// reference count.
///
/// A key belongs to its process until the process exits, or until it is [unregistered](Self::unregister).
/// A process may have several keys.
///
/// ```
/// use throng::{Registry, prelude::*};
///
/// #[derive(Default)]
/// struct Room { said: Vec<String> }
/// #[process]
/// impl Room {
///     #[message]
///     fn say(&mut self, text: String) -> usize {
///         self.said.push(text);
///         self.said.len()
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let rooms: Registry<(u32, String), Room, String> = Registry::new(&runtime);
/// let kitchen = (7, "kitchen".to_owned());
/// runtime.block_on(async |_| {
///     // The first of any number of callers spawns the room.
///     assert_eq!(rooms.get_or_spawn(kitchen.clone(), Room::default)?.say("hi".into()).await?, 1);
///     assert_eq!(rooms.get_or_spawn(kitchen.clone(), Room::default)?.say("you".into()).await?, 2);
///     Ok::<_, throng::Error>(())
/// })?;
/// rooms.set(&kitchen, "for cooks".to_owned()).expect("the room lives");
/// let of_house = rooms.range((7, String::new())..(8, String::new()));
/// assert_eq!(of_house.len(), 1);
/// assert_eq!((&of_house[0].key, &*of_house[0].value), (&kitchen, "for cooks"));
/// # Ok(())
/// # }
/// ```
///
/// Keys are compared, cloned and dropped, and values are cloned, under a lock. If one of these operations calls
/// the registry, it can deadlock.
pub struct Registry<K, P, V = ()> {
    table: Arc<Table<K, V>>,
    runtime: RuntimeHandle,
    process: std::marker::PhantomData<fn() -> Address<P>>,
}

/// A key of a [`Registry`], with its process and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RegistryEntry<K, P, V> {
    /// Key that was registered.
    pub key: K,
    /// The process that has the key.
    pub address: Address<P>,
    /// Value that was registered with the key, or set later.
    pub value: V,
}

impl<K, P, V> Registry<K, P, V>
where
    K: Ord + Hash + Clone + Send + Sync + 'static,
    P: Process,
    V: Send + Sync + 'static,
{
    /// Returns an empty registry of processes of this runtime.
    pub fn new(runtime: &RuntimeHandle) -> Registry<K, P, V> {
        let process = std::marker::PhantomData;
        Registry { table: Arc::new(Table::new()), runtime: runtime.clone(), process }
    }

    /// Gives a process a key, with a value.
    ///
    /// # Errors
    /// [`RegisterError::Taken`] and [`RegisterError::NoProcess`].
    ///
    /// Cost: a lock with little contention, two allocations, and a signal to the process.
    pub fn register(&self, key: K, address: Address<P>, value: V) -> Result<(), RegisterError<K>> {
        Ok(self.table.insert(key, address.pid(), value, |_| None)?)
    }

    /// Returns the living process that has the key; without such a process, spawns the process that `make`
    /// returns, and registers it with a default value. If several callers ask for a key at the same time, a single
    /// process is spawned, and all callers get its address.
    ///
    /// `make` runs outside of any lock, so several callers may each make a process at the same time. All of these
    /// are dropped, except for the process that is spawned.
    ///
    /// # Errors
    /// [`SpawnError`] hands back the process that `make` has returned.
    ///
    /// # Panics
    /// If `make` panics; nothing is registered then.
    ///
    /// Cost: a lookup if the process lives; otherwise two lookups, a spawn and a registration.
    pub fn get_or_spawn(
        &self,
        key: K,
        make: impl FnOnce() -> P,
    ) -> Result<Address<P>, SpawnError<P>>
    where
        V: Default,
    {
        self.get_or_spawn_by(self.runtime.spawner(), key, make)
    }

    /// Does the same as [`get_or_spawn`](Self::get_or_spawn), with the options of a [`Spawner`]: a bounded mailbox, a
    /// link or a monitor. They apply only if this call spawns the process.
    ///
    /// # Errors
    /// The same as for [`get_or_spawn`](Self::get_or_spawn).
    ///
    /// # Panics
    /// The same as for [`get_or_spawn`](Self::get_or_spawn).
    pub fn get_or_spawn_by(
        &self,
        spawner: Spawner<'_>,
        key: K,
        make: impl FnOnce() -> P,
    ) -> Result<Address<P>, SpawnError<P>>
    where
        V: Default,
    {
        if let Some(present) = self.get(&key) {
            return Ok(present);
        }
        let spawn = |process| spawner.spawn(process).map(Address::pid);
        self.table.find_or_insert(key, V::default(), make(), spawn).map(address)
    }

    /// Returns the living process that has the key.
    ///
    /// Cost: a lock with little contention.
    pub fn get<Q>(&self, key: &Q) -> Option<Address<P>>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.table.find(key, |pid, _| address(pid))
    }

    /// Returns the value of the key; `None` if no living process has the key.
    pub fn value<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
        V: Clone,
    {
        self.table.find(key, |_, value| value.clone())
    }

    /// Replaces the value of the key, and returns the previous value.
    ///
    /// # Errors
    /// `value` is handed back if no living process has the key.
    pub fn set<Q>(&self, key: &Q, value: V) -> Result<V, V>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.table.replace(key, value)
    }

    /// Takes the key away from its process, and returns the process; `None` if no living process has the key.
    pub fn unregister<Q>(&self, key: &Q) -> Option<Address<P>>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.table.remove(key).map(address)
    }

    /// Returns the entries of a range of keys, in the order of the keys. Each entry was true at some moment during
    /// the call.
    ///
    /// Cost: 64 lookups, and a clone of each key and value of the range, under locks with little contention.
    pub fn range<Q>(&self, range: impl RangeBounds<Q>) -> Vec<RegistryEntry<K, P, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        V: Clone,
    {
        self.list(bounds(&range), |_| true)
    }

    /// Returns the entries whose keys begin with `prefix`, in the order of the keys. Each entry was true at some
    /// moment during the call.
    ///
    /// ```
    /// # use throng::{Registry, prelude::*};
    /// # struct Device;
    /// # impl Process for Device {}
    /// # fn main() -> Result<(), throng::Error> {
    /// # let runtime = Runtime::builder().workers(1).start()?;
    /// let devices: Registry<String, Device> = Registry::new(&runtime);
    /// for key in ["hall/lamp", "hall/desk", "halls"] {
    ///     devices.get_or_spawn(key.to_owned(), || Device)?;
    /// }
    /// let of_hall = devices.prefix("hall/");
    /// assert!(of_hall.iter().map(|entry| &*entry.key).eq(["hall/desk", "hall/lamp"]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cost: the same as for [`range`](Self::range).
    pub fn prefix(&self, prefix: &str) -> Vec<RegistryEntry<K, P, V>>
    where
        K: Borrow<str>,
        V: Clone,
    {
        let begins = |key: &K| key.borrow().starts_with(prefix);
        self.list((Bound::Included(prefix), Bound::Unbounded), begins)
    }

    fn list<Q>(
        &self,
        range: (Bound<&Q>, Bound<&Q>),
        while_in: impl Fn(&K) -> bool,
    ) -> Vec<RegistryEntry<K, P, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        V: Clone,
    {
        let entries = self.table.list(range, while_in, |pid, value| (address(pid), value.clone()));
        let entry = |(key, (address, value))| RegistryEntry { key, address, value };
        entries.into_iter().map(entry).collect()
    }

    /// Returns the number of keys. A process that has just exited may still be counted.
    ///
    /// Cost: 64 locks with little contention.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the registry has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the address of a registered process. Only processes of type `P` are registered.
fn address<P: Process>(pid: Pid) -> Address<P> {
    Address::from_raw(pid.raw())
}

impl<K, P, V> Clone for Registry<K, P, V> {
    fn clone(&self) -> Self {
        Registry { table: self.table.clone(), runtime: self.runtime.clone(), process: self.process }
    }
}

impl<K, P, V> fmt::Debug for Registry<K, P, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry of {}", std::any::type_name::<P>())
    }
}
