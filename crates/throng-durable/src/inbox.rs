//! The inbox of an entity: messages that are stored until the entity has handled them, each exactly once.
//!
//! ```text
//!  sender's turn ──▶ its record, with the message in the receiver's inbox ──▶ submitted
//!                                                                                │ a copy in memory
//!                        receiver's mailbox ◀──(no older one waits)──────────────┘
//!                            │
//!                            ▼
//!  receiver's turn ──▶ its record, with the deletion from the inbox ──▶ submitted
//! ```
//!
//! A *copy* brings the message to the receiver without a read of the store. It may be dropped anywhere: the stored
//! message is what counts. An activation that finds stored messages at its start, or is asked to look, *feeds* them to
//! itself one by one, in the order of their sequence numbers. While it feeds, it drops copies, and looks again
//! afterwards. So messages from one sender are handled in the order of sending.
//!
//! | place where a copy is lost | who has the entity recheck its inbox |
//! |---|---|
//! | the entity cannot be activated, or has no room in its mailbox | [`Copy::leave`] |
//! | the process is killed, also before its first turn, stops, or gives up after a panic | the directory, from which the activation is removed |
//! | the entity feeds | the entity itself, once it has fed what it knows of |
//! | the program ends | [`Redelivery`] at the next start |
//!
//! An entity that is to be rechecked is on the list of [`Redelivery`], and copies for it are dropped until then: an
//! older message may be in the store alone.
//!
//! Invariants:
//!
//! 1. A stored message has a copy in a mailbox, is known to an activation that feeds, or its entity is to be rechecked.
//! 2. A copy whose message may have been fed is not handled. A message of which the activation does not know was fed by
//!    an earlier activation, if at all. Then it is settled, because an activation begins after its predecessor's last
//!    submission is, and the store does not have it any more.
//! 3. The turn that handles a message builds on the submission that has stored it.

mod backlog;
mod failure;
pub(crate) mod list;
mod redelivery;
mod sequence;

use std::ptr;
use std::sync::Arc;

use throng::{Context, Handle, Turn};
use throng_store::{Batch, Submission};

use crate::activation::{Activation, Closed, conclude};
use crate::catalogue::Number;
use crate::changes::Outgoing;
use crate::directory::Directory;
use crate::entity::Entity;
use crate::layout::{self, Table};
use crate::message::{Encoded, encode};
use crate::name::Name;
use crate::node::Inner;
use crate::turn::handle;
use crate::users::drop_user_value;
use crate::{Durable, DurableMessage, EntityError, SendError};

pub(crate) use self::backlog::{
    Backlog, Found, Recheck, feed_next, find_waiting, weight_of_waiting,
};
pub use self::failure::OnFailure;
pub(crate) use self::failure::{Failed, is_of_message};
pub use self::list::{FailedAttempt, Inbox, StoredMessage};
pub(crate) use self::redelivery::{Redelivery, waits};
pub(crate) use self::sequence::{Sequence, block_of};

/// The place of a message in an inbox.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) sequence: u64,
    /// The submission that has stored the message; the first one of all for a message that was fed.
    pub(crate) after: Submission,
    /// Number of attempts to handle the message that have failed.
    pub(crate) failures: u32,
    /// Whether the entity has fed the message to itself.
    pub(crate) is_fed: bool,
    /// Share of the message in the limit of the inbox.
    pub(crate) weight: u32,
}

/// Returns the share in the limit of an inbox of a message of so many bytes: one for each KiB that is begun.
pub(crate) fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).max(1)
}

/// A stored message in memory, on its way to the turn that handles it.
pub(crate) struct Copy<M> {
    pub(crate) message: M,
    pub(crate) entry: Entry,
}

/// A message that is about to be stored.
pub(crate) struct Posting<R: Durable, M> {
    to: Name<R>,
    copy: Copy<M>,
    record: (Vec<u8>, Vec<u8>),
    /// Numbers in the record that may have none of their own.
    numbers: [Option<Arc<Number>>; 4],
}

impl<R: Durable + Handle<M>, M: DurableMessage> Posting<R, M> {
    /// Prepares a message for an entity.
    ///
    /// # Errors
    ///
    /// The message cannot be stored, or the inbox is full.
    pub(crate) fn prepare(
        node: &Inner,
        to: &Entity<R>,
        message: M,
    ) -> Result<Posting<R, M>, SendError<M>> {
        let directory = node.directory::<R>();
        let encoded = to.name().map_err(EntityError::from).and_then(|name| {
            let encoded = encode(directory, &message)?;
            check_room(node, directory, to, name, &encoded)?;
            Ok((name.clone(), encoded))
        });
        let (name, Encoded { record, numbers: [number, shape] }) = match encoded {
            Ok(encoded) => encoded,
            Err(error) => return Err(SendError { message, error }),
        };
        let (sequence, block) = node.sequence.draw();
        let (after, weight) = (Submission::START, weight(record.len()));
        let entry = Entry { sequence, after, failures: 0, is_fed: false, weight };
        let key = layout::entry(Table::Inbox, name.state_key(), sequence);
        Ok(Posting {
            to: name,
            copy: Copy { message, entry },
            record: (key, record),
            numbers: [directory.kind().unstored(), number, shape, block],
        })
    }

    /// Adds the record of the message to a batch of its own.
    pub(crate) fn add_to(&self, batch: Batch, node: &Inner) -> Batch {
        let (key, value) = &self.record;
        let batch = batch.put(node.tables.at(key), key, value);
        let numbers = self.numbers.iter().flatten();
        numbers
            .fold(batch, |batch, number| number.add_to(batch, &node.tables, node.gate.outcomes()))
    }

    /// Notes the submission of the batch.
    pub(crate) fn submitted(self, node: &Arc<Inner>, submission: Submission) -> Submitted<R, M> {
        self.numbers.iter().flatten().for_each(|number| number.submitted(submission));
        let Posting { to, mut copy, .. } = self;
        copy.entry.after = submission;
        Submitted { node: node.clone(), to, copy: Some(copy) }
    }

    /// Takes the message back.
    pub(crate) fn into_message(self) -> M {
        self.copy.message
    }
}

/// A message whose batch is submitted. If it is dropped, the receiver finds the message by a recheck.
pub(crate) struct Submitted<R: Durable, M> {
    node: Arc<Inner>,
    to: Name<R>,
    copy: Option<Copy<M>>,
}

impl<R: Durable + Handle<M>, M: DurableMessage> Submitted<R, M> {
    /// Sends the copy.
    pub(crate) fn leave(mut self) {
        if let Some(copy) = self.copy.take() {
            copy.leave(&self.node, &self.to);
        }
    }
}

impl<R: Durable, M> Submitted<R, M> {
    /// Takes back the message, whose batch may be lost.
    pub(crate) fn into_message(mut self) -> M {
        self.recheck();
        match self.copy.take() {
            Some(copy) => copy.message,
            None => unreachable!("the copy leaves with the value"),
        }
    }

    fn recheck(&self) {
        let directory = self.node.directory::<R>();
        directory.recheck_later(&self.node, self.to.state_key(), redelivery::PAUSE);
    }
}

impl<R: Durable, M> Drop for Submitted<R, M> {
    fn drop(&mut self) {
        if let Some(copy) = self.copy.take() {
            self.recheck();
            drop_user_value(copy.message);
        }
    }
}

/// A copy that leaves once the turn of its sender is submitted.
struct Leaving<R: Durable, M> {
    to: Name<R>,
    copy: Copy<M>,
}

impl<R: Durable + Handle<M>, M: DurableMessage> Outgoing for Leaving<R, M> {
    fn leave(self: Box<Self>, node: &Arc<Inner>, after: Submission) {
        let Leaving { to, mut copy } = *self;
        copy.entry.after = after;
        copy.leave(node, &to);
    }
}

/// Checks that an entity is of this node, and that its inbox has room for a message.
fn check_room<R: Durable>(
    node: &Inner,
    directory: &Directory<R>,
    to: &Entity<R>,
    name: &Name<R>,
    encoded: &Encoded,
) -> Result<(), EntityError> {
    if !ptr::eq(Arc::as_ptr(to.node().inner()), node) {
        return Err(EntityError::OtherNode { receiver: format!("{to:?}") });
    }
    let waiting = directory.waiting(node, name)?;
    if waiting + u64::from(weight(encoded.record.len())) > node.inbox_max {
        let (receiver, inbox_max) = (format!("{to:?}"), node.inbox_max);
        return Err(EntityError::Full { receiver, waiting, inbox_max });
    }
    Ok(())
}

impl<P: Durable> Activation<P> {
    /// Stores a message for another entity, with the changes of the turn that runs.
    ///
    /// # Errors
    ///
    /// The message cannot be stored.
    pub(crate) fn post<R, M>(&mut self, to: &Entity<R>, message: M) -> Result<(), SendError<M>>
    where
        R: Durable + Handle<M>,
        M: DurableMessage,
    {
        let posting = Posting::prepare(self.node(), to, message)?;
        let Posting { to, copy, record, numbers } = posting;
        let leaving = Box::new(Leaving { to, copy });
        let (key, value) = record;
        self.changes().set_record(key, Some(value));
        self.changes().use_numbers(numbers.into_iter().flatten());
        self.changes().leave_later(leaving);
        Ok(())
    }
}

impl<M> Copy<M> {
    /// Sends the copy to the entity, which is activated first if need be. If it cannot be reached, has it rechecked.
    fn leave<R: Durable + Handle<M>>(mut self, node: &Arc<Inner>, to: &Name<R>)
    where
        M: DurableMessage,
    {
        let directory = node.directory::<R>();
        loop {
            let error = match directory.activate_for_copy(node, to, &self.entry) {
                Ok(Some(address)) => match address.send(self) {
                    Ok(()) => return,
                    // The entity was just passivated.
                    Err(throng::SendError::NoProcess(copy)) => {
                        self = copy;
                        continue;
                    }
                    Err(refused) => {
                        let copy = refused.into_message();
                        directory.copy_refused(node, to, copy.entry.weight);
                        return drop_user_value(copy.message);
                    }
                },
                // The entity is to be rechecked.
                Ok(None) => return drop_user_value(self.message),
                Err(error) => error,
            };
            drop_user_value(self.message);
            if !matches!(error, EntityError::ShutDown) {
                let key = to.key();
                tracing::warn!(kind = R::KIND, key, %error, "a stored message has to wait");
                directory.recheck_later(node, to.state_key(), redelivery::PAUSE);
            }
            return;
        }
    }
}

impl<P: Durable + Handle<M>, M: DurableMessage> Turn<P> for Copy<M> {
    type Reply = ();
    const LAYERED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        match Activation::enter(cx) {
            Ok(()) => {}
            // The entity is to be rechecked since this activation was given up.
            Err(Closed::Retired(_) | Closed::Failed(..)) => {
                cx.stop_if_idle();
                return drop_user_value(self.message);
            }
        }
        let Copy { message, entry } = self;
        let Some(own) = Activation::of(cx) else { return };
        if !entry.is_fed {
            own.name().marks().copy_arrived(entry.weight);
        }
        if !own.takes(&entry) {
            drop_user_value(message);
            return conclude(cx);
        }
        let handled = handle(message, process, cx, |own| own.delete_from_inbox(&entry)).await;
        match handled {
            Ok(reply) => {
                drop_user_value(reply);
                conclude(cx);
                if entry.is_fed {
                    backlog::feed_next(cx).await;
                }
            }
            Err(error) => failure::note(cx, &entry, &error, M::NAME).await,
        }
    }
}

impl<P: Durable> Activation<P> {
    /// Removes a message that was handled from the inbox, with the changes of the turn that runs.
    fn delete_from_inbox(&mut self, entry: &Entry) {
        let state_key = self.name().state_key();
        let key = layout::entry(Table::Inbox, state_key, entry.sequence);
        let attempts =
            (entry.failures > 0).then(|| layout::entry(Table::Attempts, state_key, entry.sequence));
        self.changes().set_record(key, None);
        if let Some(attempts) = attempts {
            self.changes().set_record(attempts, None);
        }
    }
}
