//! Errors of supervisors and of operations on their children.

use crate::address::Pid;
use crate::error::Error;
use crate::exit::ExitReason;
use crate::signal::registry::Name;

/// Reasons for which a supervisor did not start. The children it had started are stopped.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SupervisorError {
    /// Two children have the same id.
    #[error("two children have the id {id}")]
    DuplicateId {
        /// Id that two children have.
        id: Name,
    },
    /// A child did not start: it could not be made or spawned, or it exited in
    /// [`started`](crate::Process::started). The children before it are stopped again.
    #[error("the child {id} did not start: {reason}")]
    Child {
        /// Id of the child.
        id: Name,
        /// Reason why the child did not start, or for which it exited.
        reason: ExitReason,
    },
    /// The supervisor itself could not be spawned, or was killed while it started.
    #[error("the supervisor did not start: {0}")]
    Supervisor(ExitReason),
    /// [`start`](crate::SupervisorSpec::start) was called within a process, where it would block a
    /// worker. Await [`start_linked`](crate::SupervisorSpec::start_linked) instead.
    #[error("a process cannot start a supervisor with `start`; await `start_linked` instead")]
    WouldBlock,
}

/// Reasons for which an operation on a child failed.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildError {
    /// The supervisor has no such child.
    #[error("there is no such child")]
    NoChild,
    /// The child, or another child with the same id, is running. Terminate it first.
    #[error("the child is running")]
    Running(Pid),
    /// The child has died and has not started since; the supervisor keeps trying to restart it.
    #[error("the child is being restarted")]
    Restarting,
    /// A child with this id exists and is stopped. Restart or delete it.
    #[error("the child is stopped")]
    Stopped,
    /// The child did not start.
    #[error("the child did not start: {0}")]
    Failed(ExitReason),
    /// The child is a process of another type.
    #[error("the child is a process of another type, {0}")]
    OtherProcess(&'static str),
    /// The call to the supervisor failed, for example because the supervisor has exited.
    #[error("the supervisor did not answer: {0}")]
    Unanswered(Error),
}

impl From<SupervisorError> for Error {
    fn from(error: SupervisorError) -> Error {
        Error::new(error)
    }
}

impl From<ChildError> for Error {
    fn from(error: ChildError) -> Error {
        Error::new(error)
    }
}
