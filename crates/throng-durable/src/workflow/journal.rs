//! The journal of a run: what became of each step, as it is stored.

use serde::{Deserialize, Serialize};

/// A step in the journal of a run. Its key is its name, with `#2` and so on behind later steps of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Number of steps that the journal had before.
    pub(crate) order: u32,
    pub(crate) kind: Kind,
    pub(crate) state: State,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Runs a closure of the program's.
    Step,
    Sleep,
    /// Waits for a signal.
    Signal,
    /// Waits for another run.
    Child,
    /// Sends a message to an entity.
    Send,
    /// Marks a version of the program.
    Version,
    /// Chooses one of several branches.
    Race,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    /// It has begun, and waits for a time, a message or another run.
    Waits,
    /// So many attempts have failed, and another one follows at its time.
    Fails { attempts: u32, reason: String },
    /// The time for another attempt has come, after so many that have failed.
    Again { attempts: u32 },
    /// It is over, with an encoded result.
    Done(Vec<u8>),
    /// It is over, without what it has waited for.
    TimedOut,
    /// It has failed for good.
    Failed(String),
}

impl State {
    /// Whether nothing more happens to the step.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, State::Done(_) | State::TimedOut | State::Failed(_))
    }
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Step => "step",
            Kind::Sleep => "sleep",
            Kind::Signal => "wait",
            Kind::Child => "child",
            Kind::Send => "send",
            Kind::Version => "version",
            Kind::Race => "race",
        }
    }
}
