//! How much a mailbox takes, and what happens to a message for which there is no room.

/// A mailbox's bound: how many messages may wait, and what becomes of one more.
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
/// assert_eq!(refused.0, 5, "what does not fit is handed back");
/// # Ok(())
/// # }
/// ```
///
/// Only what others send and call counts against the bound. What the process itself has asked for
/// (timers, [piped](crate::Context::pipe) results, the end of another, changes of a group) and a
/// request to exit are neither refused nor dropped, and keep their place in the order.
///
/// A message that an async process has [passed over](crate::Inbox::recv_match) takes its place until
/// a receive takes it or the process exits. The table of [`Overflow`] applies to such messages, too;
/// the oldest of them is older than every message that has not been looked at.
///
/// Cost: a bounded mailbox is a queue under a lock: some tens of nanoseconds for each message, some
/// two hundred while a flood and its process both want the lock; and about 200 bytes beside its
/// process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MailboxBound {
    pub(crate) capacity: usize,
    pub(crate) overflow: Overflow,
}

impl MailboxBound {
    /// So many messages, at least one. One that is being handled does not count any more.
    #[must_use]
    pub const fn new(capacity: usize, overflow: Overflow) -> MailboxBound {
        MailboxBound { capacity: if capacity == 0 { 1 } else { capacity }, overflow }
    }

    /// How many messages may wait.
    #[must_use]
    pub const fn capacity(self) -> usize {
        self.capacity
    }

    /// What becomes of one more.
    #[must_use]
    pub const fn overflow(self) -> Overflow {
        self.overflow
    }
}

/// What becomes of a message that comes to a full mailbox.
///
/// | | `send` | `deliver` | `call`, `ask` |
/// |---|---|---|---|
/// | `Wait` | `Overloaded` | waits for room | waits for room, within its deadline |
/// | `Reject` | `Overloaded` | `Overloaded` | `Overloaded` |
/// | `DropNewest` | is dropped, and `Ok` | is dropped, and `Ok` | `Overloaded` |
/// | `DropOldest` | the oldest is dropped | the oldest is dropped | the oldest is dropped |
///
/// `Overloaded` hands the message back. If the oldest, dropped for a newer one, was a call, its
/// caller gets `Overloaded` and the message too: a call is never lost silently. (A question that
/// is dropped so is [`Unanswered`](crate::CallError::Unanswered): the message is gone with it.) A
/// call to an async process has returned when its message is passed over, so nobody is told if that
/// is dropped later.
///
/// If messages that an async process has [passed over](crate::Inbox::recv_match) fill its mailbox,
/// then with `Wait`, `Reject` and `DropNewest` the message that it waits for does not get in. With
/// `Wait` the sender and the receive wait for each other until the first of their deadlines is over;
/// without a deadline on either side, until the process is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overflow {
    /// Whoever can wait does, in the order of coming.
    Wait,
    /// It is handed back.
    Reject,
    /// It is dropped: what waits already is worth more.
    DropNewest,
    /// It takes the place of the one that has waited longest: the latest is worth most.
    DropOldest,
}
