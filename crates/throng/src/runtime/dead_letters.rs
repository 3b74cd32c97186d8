//! The runtime's door to its dead letters: messages that were dropped unhandled.

use crate::address::Pid;
use crate::mailbox::dead_letters::{DeadLetter, DeadLetters, DropReason};
use crate::runtime::RuntimeHandle;

impl RuntimeHandle {
    /// Subscribes to the messages that are dropped unhandled from here on. At most `capacity` letters
    /// wait for the subscriber (1 for zero); the messages of further letters are
    /// [counted](DeadLetters::missed).
    ///
    /// ```
    /// use throng::{DropReason, prelude::*};
    ///
    /// struct Divider;
    /// #[process]
    /// impl Divider {
    ///     #[message]
    ///     fn divide(&self, by: u32) -> u32 { 100 / by }
    /// }
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let mut letters = runtime.dead_letters(100);
    /// let divider = runtime.spawn(Divider)?;
    /// for by in [2, 1, 0, 4, 5] {
    ///     // The process may have panicked already.
    ///     let _ = divider.send(Divide { by });
    /// }
    /// runtime.block_on(async |_| divider.pid().exited().await);
    /// while let Some(letter) = letters.try_recv() {
    ///     assert_eq!(letter.reason, DropReason::Panic);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The numbers of all dropped messages are in [`Metrics::dropped`](crate::Metrics::dropped), with
    /// and without a subscription.
    ///
    /// Cost: nothing, until a message is dropped; then a lock, and a place in the subscription. A
    /// process that exits makes one letter of messages of a type that follow each other.
    pub fn dead_letters(&self, capacity: usize) -> DeadLetters {
        self.drops().subscribe(capacity)
    }

    /// Counts a message that a [layer](crate::layer) has dropped for the process `to`: the names are those of the types
    /// of process and message, as [`std::any::type_name`] has them.
    pub fn count_dropped(&self, to: Pid, process: &'static str, message: &'static str) {
        let reason = DropReason::Refused;
        self.drops().count(DeadLetter { to, process, message, reason, messages: 1 });
    }
}
