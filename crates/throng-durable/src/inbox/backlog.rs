//! [`Backlog`]: the stored messages that an activation feeds to itself.
//!
//! ```text
//!              ┌──────────(none are found)─────────────┐
//!              ▼                                       │
//!   direct: copies are handled ──(Recheck)──▶ search ──┴─(some)──▶ feeding: one fed, handled, the next …
//!                                               ▲                     │  copies are dropped
//!                                               └──(all handled, and copies were dropped)
//! ```
//!
//! Invariant: a message that was found stays known to the activation, so that a copy of it is recognised.

use std::mem;

use throng::{Context, Turn};
use throng_store::{ReadError, Submission};

use super::failure::{self, Attempts};
use super::{Entry, redelivery, weight};
use crate::activation::{Activation, Closed, conclude};
use crate::layout::{self, Table};
use crate::message::{Unput, put};
use crate::view::View;
use crate::{Durable, EntityError};

/// The backlog of an activation; see the file's head.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Sequence numbers of the messages that the last search has found, in order.
    found: Box<[u64]>,
    /// Number of these that were fed, or need not be fed.
    fed: usize,
    /// Whether copies are dropped.
    is_feeding: bool,
    /// Whether a message that was fed is in the mailbox.
    is_under_way: bool,
    /// Whether the next message stops the entity, until somebody retries or skips the message.
    is_stopped: bool,
    /// The last submission of a copy that was dropped since the search.
    dropped: Option<Submission>,
}

impl Backlog {
    /// Whether the entity takes no stored message until somebody acts.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Whether the activation knows of no message that somebody should see to when the activation ends.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_feeding || self.is_stopped
    }
}

/// Stored messages that wait for an entity.
#[derive(Debug, Default)]
pub(crate) struct Found {
    sequences: Vec<u64>,
    /// Their share in the limit of the inbox.
    weight: u64,
}

/// Searches the store for the messages of an entity.
pub(crate) fn find_waiting(view: &View, state_key: &[u8]) -> Result<Found, ReadError> {
    let mut found = Found::default();
    for record in view.prefix(&layout::table_of(Table::Inbox, state_key)) {
        let (key, value) = record?;
        if let Some((_, sequence)) = layout::state_key_of_entry(key) {
            found.sequences.push(sequence);
            found.weight += u64::from(weight(value.len()));
        }
    }
    Ok(found)
}

/// Returns the share in the limit of an inbox of an entity's stored messages, counted up to the limit.
pub(crate) fn weight_of_waiting(
    view: &View,
    state_key: &[u8],
    most: u64,
) -> Result<u64, ReadError> {
    let mut sum = 0;
    for record in view.prefix(&layout::table_of(Table::Inbox, state_key)) {
        sum += u64::from(weight(record?.1.len()));
        if sum >= most {
            break;
        }
    }
    Ok(sum)
}

impl<P: Durable> Activation<P> {
    /// Notes the messages that a search has found, which were all handled before or are yet to be fed.
    pub(crate) fn found(&mut self, found: Found) {
        self.name().marks().set_backlog(found.weight);
        if found.sequences.is_empty() && self.backlog().is_none() {
            return;
        }
        let backlog = self.backlog_mut();
        backlog.found = found.sequences.into();
        (backlog.fed, backlog.is_feeding, backlog.is_stopped) = (0, true, false);
    }

    /// Whether a message that has reached the entity is to be handled: it was not handled before, and will not be fed.
    pub(super) fn takes(&mut self, entry: &Entry) -> bool {
        if entry.is_fed {
            if let Some(backlog) = self.backlog() {
                backlog.is_under_way = false;
            }
            self.name().marks().backlog_handled(entry.weight);
            return true;
        }
        // The sender's turn is lost, and the message with it, unless the outcome is unknown.
        if self.build_on(entry.after).is_err() {
            let (node, state_key) = (self.node().clone(), self.name().state_key());
            self.directory().recheck_later(&node, state_key, redelivery::PAUSE);
            return false;
        }
        let is_known = |backlog: &mut Backlog| backlog.found.binary_search(&entry.sequence).is_ok();
        if self.backlog().is_some_and(is_known) {
            return false;
        }
        if self.node().gate.is_settled(entry.after) {
            let key = layout::entry(Table::Inbox, self.name().state_key(), entry.sequence);
            let view = View::of(&self.node().tables);
            match view.and_then(|view| Ok(view.get(&key)?.is_some())) {
                Ok(true) => {}
                // An earlier activation has handled it.
                Ok(false) => return false,
                Err(error) => {
                    self.recheck_after(&error);
                    return false;
                }
            }
        }
        match self.backlog() {
            Some(backlog) if backlog.is_feeding => {
                backlog.dropped = backlog.dropped.max(Some(entry.after));
                self.name().marks().add_backlog(entry.weight);
                false
            }
            _ => true,
        }
    }

    /// Has the inbox rechecked after it could not be read.
    fn recheck_after(&mut self, error: &ReadError) {
        tracing::warn!(kind = P::KIND, key = self.key(), %error, "an inbox could not be read");
        let node = self.node().clone();
        self.directory().recheck_later(&node, self.name().state_key(), redelivery::PAUSE);
    }
}

/// Step of an entity that feeds.
enum Step {
    /// A message is in the mailbox.
    Fed,
    /// The next message has to wait.
    Paused,
    /// The message is of no use to this program.
    Park(u64, EntityError, String),
    /// All messages that were found were fed.
    Over,
}

/// Feeds the entity its next stored message, if it feeds.
pub(crate) async fn feed_next<P: Durable>(cx: &mut Context<P>) {
    loop {
        let address = cx.address();
        let Some(own) = Activation::of(cx) else { return };
        match own.backlog() {
            Some(backlog) if backlog.is_feeding && !backlog.is_under_way => {}
            _ => return,
        }
        let step = match next(own, address) {
            Ok(step) => step,
            Err(error) => return own.recheck_after(&error),
        };
        match step {
            Step::Fed | Step::Paused => return,
            Step::Park(sequence, error, message) => {
                let parked = failure::park_undecodable(cx, sequence, &error, &message).await;
                let Some(own) = Activation::of(cx) else { return };
                if let Err(error) = parked {
                    tracing::error!(kind = P::KIND, key = own.key(), %error, "a message was not parked");
                    let node = own.node().clone();
                    let state_key = own.name().state_key();
                    return own.directory().recheck_later(&node, state_key, redelivery::PAUSE);
                }
                if let Some(backlog) = own.backlog() {
                    backlog.fed += 1;
                }
            }
            Step::Over => {
                let Some(backlog) = own.backlog() else { return };
                match mem::take(&mut backlog.dropped) {
                    Some(after) => return search(cx, after).await,
                    None => {
                        backlog.is_feeding = false;
                        own.name().marks().set_backlog(0);
                        return;
                    }
                }
            }
        }
    }
}

/// Puts the next stored message into the mailbox.
fn next<P: Durable>(
    own: &mut Activation<P>,
    address: throng::Address<P>,
) -> Result<Step, ReadError> {
    let node = own.node().clone();
    let view = View::of(&node.tables)?;
    let name = own.name().clone();
    loop {
        let Some(backlog) = own.backlog() else { return Ok(Step::Over) };
        let Some(&sequence) = backlog.found.get(backlog.fed) else { return Ok(Step::Over) };
        let [inbox, attempted] = [Table::Inbox, Table::Attempts]
            .map(|table| layout::entry(table, name.state_key(), sequence));
        let Some(record) = view.get(&inbox)? else {
            // An operator has skipped it.
            backlog.fed += 1;
            continue;
        };
        let attempts = view.get(&attempted)?.and_then(Attempts::take_from).map(|(own, _)| own);
        if let Some(attempts) = &attempts {
            if P::ON_FAILURE.stops(attempts.failures) {
                backlog.is_stopped = true;
                return Ok(Step::Paused);
            }
            let left = attempts.left(node.store.since_1970());
            if !left.is_zero() {
                own.directory().recheck_later(&node, name.state_key(), left);
                return Ok(Step::Paused);
            }
        }
        let failures = attempts.map_or(0, |attempts| attempts.failures);
        let weight = weight(record.len());
        let entry = Entry { sequence, after: Submission::START, failures, is_fed: true, weight };
        return Ok(match put(&node, record, |receives| receives.feed, entry, address) {
            Ok(()) => {
                backlog.fed += 1;
                backlog.is_under_way = true;
                Step::Fed
            }
            Err(Unput::Refused) => {
                own.directory().recheck_later(&node, name.state_key(), redelivery::PAUSE);
                Step::Paused
            }
            Err(Unput::Unusable { error, message }) => Step::Park(sequence, error, message),
        });
    }
}

/// Searches the inbox once everything up to a submission is settled, and begins to feed.
async fn search<P: Durable>(cx: &mut Context<P>, after: Submission) {
    let Some(own) = Activation::of(cx) else { return };
    let node = own.node().clone();
    // Else the search would find messages that were handled, and not find those that were dropped.
    let _ = node.gate.settled(after.max(own.last())).await;
    let Some(own) = Activation::of(cx) else { return };
    let (table, name) = (node.tables.clone(), own.name().clone());
    let found = node.loader.run(move || {
        let view = View::of(&table)?;
        find_waiting(&view, name.state_key())
    });
    let found = found.await;
    let Some(own) = Activation::of(cx) else { return };
    match found {
        Some(Ok(found)) => {
            own.found(found);
            Box::pin(feed_next(cx)).await;
        }
        Some(Err(error)) => own.recheck_after(&error),
        // The runtime ends.
        None => {}
    }
}

/// Has an entity search its inbox for messages that it does not know of.
pub(crate) struct Recheck {
    /// The last submission that may have stored one. `None` only has an entity notice that its own turns are lost,
    /// and that it is to be given up.
    pub(crate) after: Option<Submission>,
}

impl<P: Durable> Turn<P> for Recheck {
    type Reply = ();
    const COUNTED: bool = false;
    const LAYERED: bool = false;

    async fn run(self, _: &mut P, cx: &mut Context<P>) {
        match Activation::enter(cx) {
            Ok(()) => {}
            // The entity is to be rechecked anew, or will be when it can be loaded.
            Err(Closed::Retired(_) | Closed::Failed(..)) => return cx.stop_if_idle(),
        }
        let Some(own) = Activation::of(cx) else { return };
        match (own.backlog(), self.after) {
            (_, None) => {}
            // The entity searches when it has fed what it knows of.
            (Some(backlog), after) if backlog.is_under_way => {
                backlog.dropped = backlog.dropped.max(after);
            }
            (_, Some(after)) => search(cx, after).await,
        }
        conclude(cx);
    }
}
