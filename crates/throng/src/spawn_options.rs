//! What a process may be given at its spawn beside its state.

use crate::bound::MailboxBound;

/// What a process is spawned with; for [`spawn_with`](crate::RuntimeHandle::spawn_with).
///
/// ```
/// use throng::{MailboxBound, Overflow, SpawnOptions};
///
/// let options = SpawnOptions::new().mailbox(MailboxBound::new(1000, Overflow::DropOldest));
/// # let _ = options;
/// ```
#[derive(Clone, Default, Debug)]
#[must_use]
pub struct SpawnOptions {
    pub(crate) mailbox: Option<MailboxBound>,
}

impl SpawnOptions {
    /// As [`spawn`](crate::RuntimeHandle::spawn) does it.
    pub fn new() -> SpawnOptions {
        SpawnOptions::default()
    }

    /// Bounds the mailbox, which otherwise takes what comes.
    pub fn mailbox(mut self, bound: MailboxBound) -> Self {
        self.mailbox = Some(bound);
        self
    }
}
