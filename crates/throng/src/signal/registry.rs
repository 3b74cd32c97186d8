//! Processes by name and by key: the names of a runtime, and registries for keys of any type.
//!
//! ```text
//!  RuntimeHandle::register, whereis ─▶ Names ─────┐
//!                                                 ├─▶ Table: key ─▶ process, value
//!  Registry (handle): register, get_or_spawn ─────┘
//! ```
//! Invariants: see [`table`].

use crate::address::{Address, Pid};
use crate::error::Error;
use crate::runtime::RuntimeHandle;
use crate::turn::process::Process;
use std::any::{TypeId, type_name};
use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, Deref};
use std::sync::Arc;
use table::{Refused, Table};

pub(crate) mod keyed;
pub(crate) mod table;

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

/// The reason why a name, or a key of a [`Registry`](crate::Registry), was not registered.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError<K = Name> {
    /// Another process has the name, or this process has it already.
    #[error("the name {name:?} is taken by {by:?}")]
    Taken {
        /// The name or the key.
        name: K,
        /// The process that has the name.
        by: Pid,
    },
    /// The process has exited.
    #[error("the process to be registered as {name:?} has exited")]
    NoProcess {
        /// The name or the key.
        name: K,
    },
}

impl<K> From<Refused<K>> for RegisterError<K> {
    fn from(refused: Refused<K>) -> RegisterError<K> {
        match refused {
            Refused::Taken(name, by) => RegisterError::Taken { name, by },
            Refused::NoProcess(name) => RegisterError::NoProcess { name },
        }
    }
}

impl<K: fmt::Debug + Send + Sync + 'static> From<RegisterError<K>> for Error {
    fn from(error: RegisterError<K>) -> Error {
        Error::new(error)
    }
}

/// A registered name and its process.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Registered {
    /// Name of the process.
    pub name: Name,
    /// The process that has the name.
    pub pid: Pid,
    /// The name of the process's type, with its path.
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
        let process = ProcessType { id: TypeId::of::<P>(), name: type_name::<P>() };
        let title = |name: &Name| Some(name.to_string());
        Ok(self.names().0.insert(name.into(), address.pid(), process, title)?)
    }

    /// Returns the address of the process with this name, if it lives and is a `P`.
    ///
    /// Use [`whereis_pid`](Self::whereis_pid) to find a process of any type.
    ///
    /// Cost: a lock with little contention.
    pub fn whereis<P: Process>(&self, name: &str) -> Option<Address<P>> {
        let (pid, process) = self.names().0.find(name, |pid, process| (pid, process.id))?;
        (process == TypeId::of::<P>()).then(|| Address::from_raw(pid.raw()))
    }

    /// Returns the pid of the process with this name, whatever its type.
    pub fn whereis_pid(&self, name: &str) -> Option<Pid> {
        self.names().0.find(name, |pid, _| pid)
    }

    /// Takes a name away from its process, and returns the process's pid; `None` if no living process has the name.
    pub fn unregister(&self, name: &str) -> Option<Pid> {
        self.names().0.remove(name)
    }

    /// Returns all names in sorted order. Each entry was true at some moment during the call.
    ///
    /// Cost: in proportion to the number of names; each shard is locked for its part of the list.
    pub fn registered(&self) -> Vec<Registered> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let names =
            self.names().0.list::<str, _>(all, |_| true, |pid, process| (pid, process.name));
        let registered = |(name, (pid, process))| Registered { name, pid, process };
        names.into_iter().map(registered).collect()
    }
}

pub(crate) struct Names(Arc<Table<Name, ProcessType>>);

#[derive(Clone, Copy)]
struct ProcessType {
    id: TypeId,
    name: &'static str,
}

impl Names {
    pub(crate) fn new() -> Names {
        Names(Arc::new(Table::new()))
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
        let entry = Arc::downgrade(&runtime.names().0.holder("idle").expect("is registered"));
        assert_eq!(runtime.unregister("idle"), Some(idle.pid()));
        // The process drops its membership in its own time.
        while entry.strong_count() > 0 {
            std::hint::spin_loop();
        }
        assert!(idle.is_alive());
    }
}
