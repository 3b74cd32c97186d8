//! The registry: the names of the processes of a runtime.
//!
//! ```text
//!  register ──▶ shard of the name: name ─▶ Entry ◀── a membership of the process, which takes the
//!  whereis ───▶ (a lock each)              pid, type    name away when the process exits
//! ```
//! Invariants:
//! 1. A name belongs to at most one process of the runtime; a process may have any number of names.
//! 2. The signals by which a process gains and loses a membership are sent under the shard's lock,
//!    so that they come in the order in which the table changed.
//! 3. An entry whose process is dead counts for nothing: the next process may have the name, and
//!    the membership of the dead process, which leaves later, removes only its own entry.
//!
//! No two locks are held at once, and no user code runs under a lock.

use crate::address::{Address, Pid};
use crate::cell::extension::Membership;
use crate::error::Error;
use crate::process::Process;
use crate::runtime::RuntimeHandle;
use crate::signal::{self, Signal};
use crate::sync::{Mutex, lock};
use std::any::{TypeId, type_name};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Number of shards, a power of two. When all workers look names up at once, two of them rarely
/// meet in the same shard.
const SHARDS: usize = 64;

/// The name of a process, of a group, or of a supervisor's child. Cloning it costs a reference
/// count.
///
/// ```
/// use throng::Name;
///
/// let name: Name = "ledger".into();
/// assert_eq!(&*name, "ledger");
/// assert_eq!(name, Name::from(format!("led{}", "ger")));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl<T: Into<Arc<str>>> From<T> for Name {
    fn from(name: T) -> Name {
        Name(name.into())
    }
}

impl From<&Name> for Name {
    fn from(name: &Name) -> Name {
        name.clone()
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// The reason why a name was not registered.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// Another process has the name, or this process has it already.
    #[error("the name {name} is taken by {by:?}")]
    Taken {
        /// The name.
        name: Name,
        /// The process that has the name.
        by: Pid,
    },
    /// The process has exited.
    #[error("the process to be registered as {name} has exited")]
    NoProcess {
        /// The name.
        name: Name,
    },
}

impl From<RegisterError> for Error {
    fn from(error: RegisterError) -> Error {
        Error::new(error)
    }
}

/// A registered name and its process.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Registered {
    /// The name.
    pub name: Name,
    /// The process that has the name.
    pub pid: Pid,
    /// The name of the process's type.
    pub process: &'static str,
}

/// Registered names of processes.
///
/// ```
/// # use throng::{RegisterError, prelude::*};
/// # #[derive(Default)]
/// # struct Ledger;
/// # impl Process for Ledger {}
/// # struct Other;
/// # impl Process for Other {}
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let ledger = runtime.spawn(Ledger)?;
/// runtime.register("ledger", ledger)?;
///
/// assert_eq!(runtime.whereis::<Ledger>("ledger"), Some(ledger));
/// assert_eq!(runtime.whereis::<Other>("ledger"), None, "it is no `Other`");
/// assert!(matches!(runtime.register("ledger", ledger), Err(RegisterError::Taken { .. })));
///
/// runtime.unregister("ledger");
/// assert_eq!(runtime.whereis::<Ledger>("ledger"), None);
/// # Ok(())
/// # }
/// ```
impl RuntimeHandle {
    /// Registers a name for a process of this runtime, until the process exits or the name is
    /// [unregistered](Self::unregister).
    ///
    /// A process may have several names; OTP allows a single name.
    ///
    /// # Errors
    /// [`RegisterError::Taken`] and [`RegisterError::NoProcess`].
    ///
    /// Cost: a lock with little contention, two allocations, and a signal to the process.
    pub fn register<P: Process>(
        &self,
        name: impl Into<Name>,
        address: Address<P>,
    ) -> Result<(), RegisterError> {
        let entry =
            Entry { pid: address.pid(), process: TypeId::of::<P>(), type_name: type_name::<P>() };
        Registry::register(self.registry(), name.into(), entry)
    }

    /// Returns the address of the process with this name, if it lives and is a `P`.
    ///
    /// Use [`whereis_pid`](Self::whereis_pid) to find a process of any type.
    ///
    /// Cost: a lock with little contention.
    pub fn whereis<P: Process>(&self, name: &str) -> Option<Address<P>> {
        let entry = self.registry().find(name)?;
        (entry.process == TypeId::of::<P>()).then(|| Address::from_raw(entry.pid.raw()))
    }

    /// Returns the pid of the process with this name, whatever its type.
    pub fn whereis_pid(&self, name: &str) -> Option<Pid> {
        Some(self.registry().find(name)?.pid)
    }

    /// Takes a name away from its process, and returns that process's pid.
    pub fn unregister(&self, name: &str) -> Option<Pid> {
        self.registry().unregister(name)
    }

    /// Returns all names in sorted order. Each entry was true at some moment during the call.
    ///
    /// Cost: in proportion to the number of names; each shard is locked for its part of the list.
    pub fn registered(&self) -> Vec<Registered> {
        self.registry().list()
    }
}

/// The names of a runtime's processes. See the file's head.
pub(crate) struct Registry {
    shards: [Mutex<HashMap<Name, Arc<Entry>>>; SHARDS],
}

struct Entry {
    pid: Pid,
    process: TypeId,
    type_name: &'static str,
}

impl Registry {
    pub(crate) fn new() -> Registry {
        Registry { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard(&self, name: &str) -> &Mutex<HashMap<Name, Arc<Entry>>> {
        &self.shards[shard_of(name, SHARDS)]
    }

    fn register(self: &Arc<Self>, name: Name, entry: Entry) -> Result<(), RegisterError> {
        let pid = entry.pid;
        let mut names = lock(self.shard(&name));
        if let Some(holder) = names.get(&name).filter(|entry| entry.pid.is_alive()) {
            return Err(RegisterError::Taken { by: holder.pid, name });
        }
        let entry = Arc::new(entry);
        let membership = Named { registry: self.clone(), name: name.clone(), entry: entry.clone() };
        let signal = Signal::Join { key: key(&entry), membership: Box::new(membership) };
        if signal::try_send(pid, signal).is_err() {
            return Err(RegisterError::NoProcess { name });
        }
        names.insert(name, entry);
        Ok(())
    }

    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        lock(self.shard(name)).get(name).filter(|entry| entry.pid.is_alive()).cloned()
    }

    fn unregister(&self, name: &str) -> Option<Pid> {
        let mut names = lock(self.shard(name));
        let entry = names.remove(name)?;
        // A process that has exited has left already; a process that refuses signals still lives,
        // and leaves soon.
        let left = signal::try_send(entry.pid, Signal::Leave { key: key(&entry) });
        (left.is_ok() || entry.pid.is_alive()).then_some(entry.pid)
    }

    fn list(&self) -> Vec<Registered> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).iter().filter(|(_, entry)| entry.pid.is_alive()).map(
                |(name, entry)| Registered {
                    name: name.clone(),
                    pid: entry.pid,
                    process: entry.type_name,
                },
            ));
        }
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

/// Key of an entry's membership: the entry's address, unique while the membership holds the entry.
fn key(entry: &Arc<Entry>) -> usize {
    Arc::as_ptr(entry).addr()
}

/// Returns the index, below `shards`, of the shard that a key belongs to; the same in each run.
pub(crate) fn shard_of<T: Hash + ?Sized>(key: &T, shards: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as usize % shards
}

/// A process's side of an entry: its membership under that name.
struct Named {
    registry: Arc<Registry>,
    name: Name,
    entry: Arc<Entry>,
}

impl Membership for Named {
    fn name(&self) -> Option<String> {
        Some(self.name.to_string())
    }

    fn leave(self: Box<Self>, _: Pid) {
        let mut names = lock(self.registry.shard(&self.name));
        if names.get(&self.name).is_some_and(|entry| Arc::ptr_eq(entry, &self.entry)) {
            names.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;

    struct Idle;
    impl Process for Idle {}

    #[test]
    fn a_process_drops_its_entry_of_a_name_that_was_unregistered() {
        let runtime = Runtime::builder().workers(1).start().expect("starts");
        let idle = runtime.spawn(Idle).expect("spawns");
        runtime.register("idle", idle).expect("registers");
        let entry = Arc::downgrade(&runtime.registry().find("idle").expect("is registered"));
        assert_eq!(runtime.unregister("idle"), Some(idle.pid()));
        // The process drops its membership in its own time.
        while entry.strong_count() > 0 {
            std::hint::spin_loop();
        }
        assert!(idle.is_alive());
    }
}
