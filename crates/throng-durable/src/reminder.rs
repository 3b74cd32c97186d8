//! Reminders: messages that an entity sends to itself at a later time, stored until then.
//!
//! ```text
//!  cx.remind(key, schedule, message) ──▶ one commit: state, T reminder, U due entity
//!                                                                  │ its time comes
//!                     Ring ◀──(entity activated)── queue ◀─────────┘
//!                      │
//!                      ▼ each reminder that is due, one after the other
//!  Fire: the handler's turn ──▶ one commit: state, T deleted or with its next time, U moved
//!                      └──(fails)──▶ one commit: the message in the inbox, with its failure; T and U as after success
//! ```
//!
//! An occurrence has one effect, because its turn deletes it. Messages whose handler fails go on as other
//! [durable messages](crate::DurableMessage) that fail.

mod list;
mod queue;
mod schedule;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use throng::{Address, Context, Handle, Turn};
use throng_store::{ReadError, Submission};

use self::list::Record;
pub use self::list::Reminder;
pub(crate) use self::list::{Firing, List, index_of, keys, next_due, read, split};
pub(crate) use self::queue::{Bell, Due, Queue, run, waits};
pub(crate) use self::schedule::Clock;
pub use self::schedule::{CronError, Missed, Schedule};
use crate::activation::{Activation, Closed, commit, conclude, discard, submit_turn};
use crate::changes::Outgoing;
use crate::inbox::{self, Failed};
use crate::layout::{self, Table};
use crate::message::{Encoded, Unput, encode, put};
use crate::name::Name;
use crate::node::Inner;
use crate::turn::handle;
use crate::users::drop_user_value;
use crate::view::View;
use crate::{Durable, DurableMessage, EntityError};

/// Maximum length of the key of a [reminder](crate::DurableContext::remind), in bytes.
pub const REMINDER_KEY_BYTES_MAX: usize = 128;

/// Tells the queue that a turn of an entity has moved its earliest reminder by a clock, once the turn is submitted.
struct Moved<P: Durable> {
    name: Name<P>,
    clock: Clock,
    due: Option<u64>,
}

impl<P: Durable> Outgoing for Moved<P> {
    fn leave(self: Box<Self>, node: &Arc<Inner>, _: Submission) {
        node.directory::<P>().queue().moved(self.clock, self.name.state_key(), self.due);
    }
}

impl<P: Durable> Activation<P> {
    /// Returns the reminders of the entity, which are read first if they are not known.
    fn list(&mut self) -> Result<&mut List, ReadError> {
        if !self.is_stored() && self.reminders().is_none() {
            // An entity with a reminder is stored.
            *self.reminders() = Some(Box::default());
        }
        if self.reminders().is_none() {
            let view = View::of(&self.node().tables)?;
            let list = List::load(&view, self.name().state_key())?;
            list.report_unreadable(P::KIND, self.key());
            *self.reminders() = Some(Box::new(list));
        }
        match self.reminders() {
            Some(list) => Ok(list),
            None => unreachable!("the list was just read"),
        }
    }

    /// Sets a reminder, with the changes of the turn that runs.
    pub(crate) fn remind<M: DurableMessage>(
        &mut self,
        key: &str,
        schedule: Schedule,
        message: &M,
    ) -> Result<(), EntityError>
    where
        P: Handle<M>,
    {
        if key.is_empty() || key.len() > REMINDER_KEY_BYTES_MAX {
            let bytes = key.len();
            return Err(EntityError::Reminder(format!(
                "its key has {bytes} bytes, and not 1 to {REMINDER_KEY_BYTES_MAX}"
            )));
        }
        let node = self.node().clone();
        let now = node.bell.now(schedule.clock(), &node);
        let due = schedule.first(now).ok_or_else(|| {
            EntityError::Reminder(format!("{key:?} is never due: its schedule is {schedule}"))
        })?;
        let Encoded { record: message, numbers } = encode(self.directory(), message)?;
        let record = list::encode(due, &schedule, &message);
        self.list()?.insert(key.into(), due, schedule, &message);
        let stored = layout::record(Table::Reminders, self.name().state_key(), key);
        self.changes().forget_settled(&node.gate);
        self.changes().set_own(stored, Some(record.into()), numbers.into_iter().flatten());
        Ok(())
    }

    /// Removes a reminder, with the changes of the turn that runs. Returns whether there was one.
    pub(crate) fn cancel_reminder(&mut self, key: &str) -> Result<bool, EntityError> {
        let was_set = self.list()?.remove(key);
        if was_set {
            let stored = layout::record(Table::Reminders, self.name().state_key(), key);
            self.changes().set_own(stored, None, []);
        }
        Ok(was_set)
    }

    /// Removes all reminders.
    pub(crate) fn cancel_reminders(&mut self) -> Result<(), EntityError> {
        for key in self.list()?.keys() {
            self.cancel_reminder(&key)?;
        }
        Ok(())
    }

    /// Returns the reminders as the running turn has left them.
    pub(crate) fn list_reminders(&mut self) -> Result<Vec<Reminder>, EntityError> {
        let node = self.node().clone();
        self.list()?.describe(&node.catalogue, P::KIND)
    }

    /// Returns the time for which the reminder was set whose message is handled.
    pub(crate) fn reminded_at(&mut self) -> Option<SystemTime> {
        let due = self.reminders().as_ref()?.running?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_millis(due))
    }

    /// Adds the records of the entity's earliest reminders to the changes of the turn that ends.
    pub(crate) fn index_reminders(&mut self) {
        let name = self.name().clone();
        let Some(list) = self.reminders() else { return };
        for (clock, due, records) in list.index(name.state_key()) {
            for (key, value) in records {
                self.changes().set_record(key, value);
            }
            self.changes().leave_later(Box::new(Moved { name: name.clone(), clock, due }));
        }
    }

    /// Returns the keys of the records that a removal of the entity deletes, and has the queue know of it.
    pub(crate) fn forget_reminders(&mut self, view: &View) -> Result<Vec<Box<[u8]>>, ReadError> {
        let name = self.name().clone();
        let mut keys = keys(view, name.state_key())?;
        if let Some(list) = self.reminders() {
            keys.extend(list.index_keys(name.state_key()));
        }
        if !keys.is_empty() {
            for clock in Clock::ALL {
                let moved = Moved { name: name.clone(), clock, due: None };
                self.changes().leave_later(Box::new(moved));
            }
        }
        Ok(keys)
    }

    /// Returns the record of a reminder as the running turn or an earlier one has left it.
    fn reminder_record(&mut self, key: &str) -> Result<Box<[u8]>, EntityError> {
        let stored = layout::record(Table::Reminders, self.name().state_key(), key);
        let record = match self.changes().own(&stored) {
            Some(own) => own.map(Box::from),
            None => View::of(&self.node().tables)?.get(&stored)?.map(Box::from),
        };
        record.ok_or_else(|| EntityError::Reminder(format!("{key:?} is not stored")))
    }

    /// Removes a reminder whose occurrence is over, or sets it for the next time.
    fn end_occurrence(&mut self, key: &str) -> Result<(), EntityError> {
        let node = self.node().clone();
        let Some(clock) = self.list()?.clock(key) else { return Ok(()) };
        let record = match self.list()?.next(key, node.bell.now(clock, &node)) {
            None => {
                self.list()?.remove(key);
                None
            }
            Some(next) => {
                let record = self.reminder_record(key)?;
                let message = list::decode(&record).map_err(EntityError::Reminder)?.message;
                self.list()?.set_next(key, next, message)
            }
        };
        let stored = layout::record(Table::Reminders, self.name().state_key(), key);
        self.changes().forget_settled(&node.gate);
        self.changes().set_own(stored, record, []);
        Ok(())
    }
}

/// Asks an entity to see to its reminders that are due.
pub(crate) struct Ring {
    /// The record of the entity.
    pub(crate) clock: Clock,
    pub(crate) due: u64,
}

impl<P: Durable> Turn<P> for Ring {
    type Reply = ();
    const COUNTED: bool = false;
    const LAYERED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        match Activation::enter(cx) {
            Ok(()) => {}
            Err(Closed::Retired(entity)) => {
                cx.stop_if_idle();
                // If it cannot be reached, it is rung again.
                return drop(entity.deliver(self));
            }
            Err(Closed::Failed(..)) => return cx.stop_if_idle(),
        }
        end_turn(fire_next(process, cx, Some(self)).await, cx);
    }
}

/// The message of a reminder that is due.
pub(crate) struct Fire<M> {
    pub(crate) message: M,
    pub(crate) firing: Firing,
}

impl<P: Durable + Handle<M>, M: DurableMessage> Turn<P> for Fire<M> {
    type Reply = ();
    const LAYERED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        // An activation that was given up leaves the reminder to the next one, which is rung.
        if Activation::enter(cx).is_err() {
            cx.stop_if_idle();
            return drop_user_value(self.message);
        }
        let Fire { message, firing } = self;
        let Some(own) = Activation::of(cx) else { return };
        let is_current = own.reminders().as_mut().is_some_and(|list| list.begin(&firing));
        if !is_current {
            drop_user_value(message);
            return end_turn(fire_next(process, cx, None).await, cx);
        }
        let handled = handle(message, process, cx, |own| {
            let is_current = own.reminders().as_ref().is_some_and(|list| list.is_current(&firing));
            if is_current && let Err(error) = own.end_occurrence(&firing.key) {
                own.changes().fail(error);
            }
        });
        match handled.await {
            Ok(reply) => {
                drop_user_value(reply);
                if let Some(list) = Activation::of(cx).and_then(|own| own.reminders().as_mut()) {
                    list.end();
                }
                end_turn(fire_next(process, cx, None).await, cx);
            }
            Err(error) => {
                let pause = admit(process, cx, &firing, &error, M::NAME).await;
                discard(cx, &error);
                let Some(own) = Activation::of(cx) else { return };
                let (node, name) = (own.node().clone(), own.name().clone());
                node.directory::<P>().recheck_later(&node, name.state_key(), pause);
            }
        }
    }
}

fn end_turn<P: Durable>(outcome: Result<(), EntityError>, cx: &mut Context<P>) {
    match outcome {
        Ok(()) => conclude(cx),
        // The entity is rung again.
        Err(error) => discard(cx, &error),
    }
}

/// Step of an entity that is rung.
enum Step {
    /// A message is in the mailbox, or has to wait.
    Wait,
    /// The entity has changes to submit.
    Changed,
    /// No reminder is due.
    Over,
}

/// Puts the message of the next reminder that is due into the mailbox, unless one is on its way.
async fn fire_next<P: Durable>(
    process: &mut P,
    cx: &mut Context<P>,
    rung: Option<Ring>,
) -> Result<(), EntityError> {
    let mut rung = rung;
    loop {
        let address = cx.address();
        let Some(own) = Activation::of(cx) else { return Ok(()) };
        match own.fire(address)? {
            Step::Wait => return Ok(()),
            Step::Changed => {}
            Step::Over => match rung.take() {
                Some(rung) if own.answer(&rung)? => {}
                _ => return Ok(()),
            },
        }
        // The state is as it was, so that nothing but the changes is stored.
        if let Some(waiting) = submit_turn(process, cx, true)? {
            commit(waiting, cx).await?;
        }
    }
}

impl<P: Durable> Activation<P> {
    fn fire(&mut self, address: Address<P>) -> Result<Step, EntityError> {
        if self.backlog().is_some_and(|backlog| backlog.is_stopped()) {
            return Ok(Step::Wait);
        }
        let node = self.node().clone();
        let list = self.list()?;
        if list.is_firing() {
            return Ok(Step::Wait);
        }
        let times = Clock::ALL.map(|clock| (clock, node.bell.now(clock, &node)));
        let mut due = times.iter().filter_map(|(clock, now)| Some((list.due(*clock, *now)?, now)));
        let Some(((key, due), now)) = due.next() else { return Ok(Step::Over) };
        if !list.runs(&key, *now) {
            node.bell.count_skipped();
            tracing::info!(
                kind = P::KIND,
                key = self.key(),
                reminder = &*key,
                "an occurrence was missed"
            );
            self.end_occurrence(&key)?;
            return Ok(Step::Changed);
        }
        let firing = list.fire(key.clone(), due);
        let record = self.reminder_record(&key)?;
        let Record { message, .. } = list::decode(&record).map_err(EntityError::Reminder)?;
        match put(&node, message, |receives| receives.fire, firing, address) {
            Ok(()) => Ok(Step::Wait),
            // It is rung again.
            Err(Unput::Refused) => {
                self.list()?.unfire();
                Ok(Step::Wait)
            }
            Err(Unput::Unusable { error, message: name }) => {
                self.move_to_inbox(&key, &error, true)?.report::<P>(&node, self.key(), &name);
                Ok(Step::Changed)
            }
        }
    }

    /// Moves the message of a reminder whose occurrence is over into the inbox, with its failure, and with the changes of
    /// the turn that runs. A message that no attempt can handle is parked at once.
    fn move_to_inbox(
        &mut self,
        key: &str,
        error: &EntityError,
        is_lasting: bool,
    ) -> Result<Failed, EntityError> {
        let (node, name) = (self.node().clone(), self.name().clone());
        let record = self.reminder_record(key)?;
        let Record { message, .. } = list::decode(&record).map_err(EntityError::Reminder)?;
        let mut failed = Failed::new::<P>(&node, name.state_key(), message, error, is_lasting);
        self.end_occurrence(key)?;
        for (key, value) in failed.records.drain(..) {
            self.changes().set_record(key, Some(value));
        }
        self.changes().use_numbers(failed.block.take());
        Ok(failed)
    }

    /// Tells the queue of the entity's reminders, of which none is due. Returns whether a record of the entity is to be
    /// removed that belongs to none.
    fn answer(&mut self, rung: &Ring) -> Result<bool, EntityError> {
        let name = self.name().clone();
        let list = self.list()?;
        let (is_stale, due) = (!list.is_indexed(rung.clock, rung.due), list.earliest(rung.clock));
        self.directory().queue().moved(rung.clock, name.state_key(), due);
        if is_stale {
            let stale = layout::due(name.state_key(), rung.clock.byte(), rung.due);
            self.changes().set_record(stale, None);
        }
        Ok(is_stale)
    }
}

/// Moves the message of a reminder whose turn has failed into the inbox. Returns the time to the next attempt.
async fn admit<P: Durable>(
    process: &mut P,
    cx: &mut Context<P>,
    firing: &Firing,
    error: &EntityError,
    message: &'static str,
) -> Duration {
    let Some(own) = Activation::of(cx) else { return Duration::ZERO };
    own.drop_changes();
    // The handler may have changed them as well.
    *own.reminders() = None;
    // After a failure of the disk the reminder comes again as it is.
    if !inbox::is_of_message(error) {
        return Duration::ZERO;
    }
    let (node, name, last) = (own.node().clone(), own.name().clone(), own.last());
    let admitted = async {
        // The reminder may not be in the store yet.
        node.gate.settled(last).await?;
        let own = Activation::of(cx).ok_or(EntityError::Died)?;
        own.move_to_inbox(&firing.key, error, false)
    };
    let admitted = match admitted.await {
        // Without the state, which the handler has left half changed.
        Ok(failed) => match submit_turn(process, cx, true) {
            Ok(Some(waiting)) => commit(waiting, cx).await.map(|()| failed),
            Ok(None) => Ok(failed),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match admitted {
        Ok(failed) => {
            failed.report::<P>(&node, name.key(), message);
            failed.pause
        }
        Err(error) => {
            let (kind, key) = (P::KIND, name.key());
            tracing::error!(kind, key, message, %error, "a failed attempt was not noted");
            Duration::ZERO
        }
    }
}
