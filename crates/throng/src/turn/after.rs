//! Progress of a turn after a poll, and the step that a finished turn requests for its process.

use crate::exit::ExitReason;

/// Progress of a turn after a poll.
#[must_use]
pub(crate) enum Progress {
    /// The turn waits for something; the frame stays with the cell.
    Pending,
    /// The turn is over.
    Done(After),
}

/// The step that a finished turn requests for its process.
#[derive(Debug)]
pub(crate) enum After {
    /// The process takes its next message.
    Next,
    /// The process exits.
    Exit(BoxedReason),
    /// The process exits if no message waits.
    ExitIfIdle,
    /// The process exits at once, without a last turn.
    Kill,
    /// The process ends: this was the last turn of its exit, for this reason.
    Ended(BoxedReason),
}

impl After {
    pub(crate) fn exit(reason: ExitReason) -> After {
        After::Exit(BoxedReason::from(reason))
    }

    pub(crate) fn ended(reason: ExitReason) -> After {
        After::Ended(BoxedReason::from(reason))
    }
}

// Every turn returns a `Progress`: two words travel in registers, more would go through memory.
const _: () = assert!(size_of::<Progress>() <= 16, "a turn's progress fits two registers");

/// An exit reason in one word.
#[derive(Debug)]
pub(crate) struct BoxedReason(Option<Box<ExitReason>>);

impl BoxedReason {
    pub(crate) const NORMAL: BoxedReason = BoxedReason(None);

    pub(crate) fn reason(&self) -> &ExitReason {
        self.0.as_deref().unwrap_or(&ExitReason::Normal)
    }
}

impl From<ExitReason> for BoxedReason {
    fn from(reason: ExitReason) -> BoxedReason {
        // The most frequent reason, without an allocation.
        BoxedReason((reason != ExitReason::Normal).then(|| Box::new(reason)))
    }
}

impl From<BoxedReason> for ExitReason {
    fn from(BoxedReason(reason): BoxedReason) -> ExitReason {
        reason.map_or(ExitReason::Normal, |reason| *reason)
    }
}
