//! The bound of a mailbox: its capacity, and the treatment of a message for which there is no room.

/// Bound of a mailbox: the number of messages that may wait, and the treatment of further messages.
///
/// ```
/// use throng::{MailboxBound, Overflow, prelude::*};
/// # struct Account;
/// # impl Process for Account {}
/// # struct Deposit(u64);
/// # impl Message for Deposit { type Reply = (); }
/// # impl Handle<Deposit> for Account {
/// #     async fn handle(&mut self, _: Deposit, _: &mut Context<Self>) { std::future::pending().await }
/// # }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().start()?;
/// let bound = MailboxBound::new(100, Overflow::Reject);
/// let account = runtime.spawner().mailbox(bound).spawn(Account)?;
/// let refused = loop {
///     match account.send(Deposit(5)) {
///         Ok(()) => {}
///         Err(SendError::Overloaded(message)) => break message,
///         Err(error) => return Err(error.into()),
///     }
/// };
/// assert_eq!(refused.0, 5, "the message that does not fit is handed back");
/// # Ok(())
/// # }
/// ```
///
/// Only the sends and calls of others count against the bound. Messages that the process itself has
/// asked for (timers, [piped](crate::Context::pipe) results, items of
/// [attached](crate::Context::attach) streams, the exit of another process, changes
/// of a group) and requests to exit are neither refused nor dropped, and keep their place in the
/// order.
///
/// A message that an async process has [passed over](crate::Inbox::recv_match) keeps its place
/// until a receive takes it or the process exits. The table of [`Overflow`] applies to such
/// messages, too; the oldest of them is older than every message that no receive has examined.
///
/// Cost: a bounded mailbox is a queue under a lock: some tens of nanoseconds for each message, some
/// two hundred while a flood of senders and the process contend for the lock; and about 200 bytes
/// of memory in addition to the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MailboxBound {
    pub(crate) capacity: usize,
    pub(crate) overflow: Overflow,
}

impl MailboxBound {
    /// Creates a bound of `capacity` messages, or of 1 for zero. The message being handled does not
    /// count.
    #[must_use]
    pub const fn new(capacity: usize, overflow: Overflow) -> MailboxBound {
        MailboxBound { capacity: if capacity == 0 { 1 } else { capacity }, overflow }
    }

    /// Returns the number of messages that may wait in the mailbox.
    #[must_use]
    pub const fn capacity(self) -> usize {
        self.capacity
    }

    /// Returns the treatment of a message that comes to a full mailbox.
    #[must_use]
    pub const fn overflow(self) -> Overflow {
        self.overflow
    }
}

/// Treatment of a message that comes to a full mailbox.
///
/// | | `send` | `deliver` | `call`, `ask` |
/// |---|---|---|---|
/// | `Wait` | `Overloaded` | waits for room | waits for room, within its deadline |
/// | `Reject` | `Overloaded` | `Overloaded` | `Overloaded` |
/// | `DropNewest` | is dropped, and `Ok` | is dropped, and `Ok` | `Overloaded` |
/// | `DropOldest` | the oldest is dropped | the oldest is dropped | the oldest is dropped |
///
/// `Overloaded` hands the message back. A dropped message that nobody gets back is counted in
/// [`Metrics::dropped`](crate::Metrics::dropped). If the dropped oldest message was a call, its caller also
/// gets `Overloaded` and the message: a call is never lost silently. (A question that is dropped
/// this way ends with [`Unanswered`](crate::CallError::Unanswered): its message is lost.) A call to
/// an async process has returned by the time a receive passes its message over, so the caller is
/// not notified if the message is dropped later.
///
/// If messages that an async process has [passed over](crate::Inbox::recv_match) fill its mailbox,
/// then with `Wait`, `Reject` and `DropNewest` the message for which the process waits does not get
/// in. With `Wait`, the sender and the process wait for each other until the first of their
/// deadlines expires; if neither has a deadline, until the process is ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Overflow {
    /// Senders that can wait do so, and are admitted in order of arrival.
    Wait,
    /// The message is handed back to its sender.
    Reject,
    /// The message is dropped: for mailboxes in which older messages are worth more.
    DropNewest,
    /// The message replaces the one that has waited longest: for mailboxes in which the latest
    /// message is worth most.
    DropOldest,
}
