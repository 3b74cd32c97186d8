//! What can go wrong with supervisors and their children.

use crate::address::Pid;
use crate::error::Error;
use crate::exit::ExitReason;
use crate::signal::registry::Name;

/// A supervisor that did not start. What it had started is stopped.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SupervisorError {
    /// Two children have the same id.
    #[error("two children have the id {id}")]
    DuplicateId {
        /// The id.
        id: Name,
    },
    /// A child did not start: it could not be made or spawned, or it exited in
    /// [`started`](crate::Process::started). Those before it are stopped again.
    #[error("the child {id} did not start: {reason}")]
    Child {
        /// Which child.
        id: Name,
        /// Why it did not start, or why it exited.
        reason: ExitReason,
    },
    /// The supervisor itself could not be spawned, or was killed while it started.
    #[error("the supervisor did not start: {0}")]
    Supervisor(ExitReason),
    /// [`start`](crate::SupervisorSpec::start) would block a worker that runs processes; await
    /// [`start_linked`](crate::SupervisorSpec::start_linked) instead.
    #[error("starting a supervisor from within a process must be awaited")]
    WouldBlock,
}

/// Something that could not be done to a child.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildError {
    /// The supervisor has no such child.
    #[error("there is no such child")]
    NoChild,
    /// It runs; stop it first.
    #[error("the child runs")]
    Running(Pid),
    /// It has died and has not started again since; the supervisor goes on trying.
    #[error("the child is being restarted")]
    Restarting,
    /// There is one already that has this id and is stopped: restart or delete it.
    #[error("the child is stopped")]
    Stopped,
    /// It did not start.
    #[error("the child did not start: {0}")]
    Failed(ExitReason),
    /// It is a process of another type.
    #[error("the child is a {0}")]
    OtherProcess(&'static str),
    /// The supervisor has exited, or could not be asked.
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
