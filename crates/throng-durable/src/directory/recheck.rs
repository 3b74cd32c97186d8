//! Rechecks: entities that are to search their inboxes for messages whose copies were lost.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use throng::layer::Instant;
use throng_store::{ReadError, Submission};

use super::{Directory, Shard};
use crate::inbox::{Entry, Recheck, weight_of_waiting};
use crate::name::Name;
use crate::node::Inner;
use crate::view::View;
use crate::{Durable, EntityError, layout};

/// Time after which an entity is rechecked whose kind is not registered with its dependencies.
const REGISTRATION: Duration = Duration::from_secs(60);

/// Time after which an entity is rechecked that cannot be activated.
const RETRY: Duration = Duration::from_secs(5);

/// Time after which an entity is rechecked of which a message is not on disk yet.
const PAUSE: Duration = Duration::from_millis(10);

/// An entity that is to recheck its inbox.
#[derive(Debug)]
pub(super) struct DueRecheck {
    pub(super) due: Instant,
    /// The last submission that has stored a message whose copy was lost.
    pub(super) after: Submission,
}

impl<P: Durable> Directory<P> {
    /// Lets an entity recheck its inbox a little later, when the messages are on disk.
    fn postpone_recheck(self: &Arc<Self>, shard: &mut Shard<P>, node: &Inner, state_key: &[u8]) {
        if let Some(recheck) = shard.rechecks.get_mut(state_key) {
            recheck.due = Instant::now() + PAUSE;
            node.redelivery.due.add(recheck.due, self.clone(), state_key);
        }
    }

    /// Has an entity recheck its inbox to which a copy could not be sent after all.
    pub(crate) fn copy_refused(self: &Arc<Self>, node: &Inner, name: &Name<P>, weight: u32) {
        let hash = self.hasher.hash_one(name.state_key());
        let mut shard = self.shard_of(hash);
        if let Some(live) = shard.active.find(hash, |live| live.is_of(name)) {
            live.marks().copy_arrived(weight);
        }
        self.add_recheck(&mut shard, node, name.state_key(), PAUSE);
    }

    /// Returns the share in the limit of the inbox of the messages that wait for an entity.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub(crate) fn waiting(&self, node: &Inner, name: &Name<P>) -> Result<u64, ReadError> {
        let hash = self.hasher.hash_one(name.state_key());
        let shard = self.shard_of(hash);
        let mut activating = None;
        if !shard.rechecks.contains_key(name.state_key())
            && let Some(live) = shard.active.find(hash, |live| live.is_of(name))
        {
            match live.marks().waiting() {
                Some(waiting) => return Ok(waiting),
                None => activating = Some(live.clone()),
            }
        }
        drop(shard);
        let view = View::of(&node.tables)?;
        let stored = weight_of_waiting(&view, name.state_key(), node.inbox_max)?;
        // Once for an activation: with each message of a burst, all before it would be read.
        if let Some(live) = activating {
            live.marks().estimate_backlog(stored);
        }
        Ok(stored)
    }

    /// Has an entity recheck its inbox after a pause, and drops the copies of messages for it until then. A pause that
    /// runs already is replaced.
    pub(crate) fn recheck_later(self: &Arc<Self>, node: &Inner, state_key: &[u8], pause: Duration) {
        let mut shard = self.shard_of(self.hasher.hash_one(state_key));
        self.add_recheck(&mut shard, node, state_key, pause);
    }

    pub(super) fn add_recheck(
        self: &Arc<Self>,
        shard: &mut Shard<P>,
        node: &Inner,
        state_key: &[u8],
        pause: Duration,
    ) {
        if P::MESSAGES.is_empty() || node.is_closed() {
            return;
        }
        let (due, after) = (Instant::now() + pause, node.store.submitted_through());
        if shard.rechecks.insert(state_key.into(), DueRecheck { due, after }).is_none() {
            node.redelivery.entities.fetch_add(1, Ordering::Relaxed);
        }
        node.redelivery.due.add(due, self.clone(), state_key);
    }

    /// Has an entity recheck its inbox that is due since this time, unless the time is outdated.
    pub(super) fn recheck_due(self: &Arc<Self>, node: &Arc<Inner>, state_key: &[u8], due: Instant) {
        let hash = self.hasher.hash_one(state_key);
        let mut shard = self.shard_of(hash);
        let Some(recheck) = shard.rechecks.get(state_key).filter(|recheck| recheck.due == due)
        else {
            return;
        };
        let after = recheck.after;
        if !node.gate.is_settled(after) {
            return self.postpone_recheck(&mut shard, node, state_key);
        }
        drop(shard);
        // Most entities that have failed have no stored messages, and need not be activated.
        let waits = View::of(&node.tables)
            .and_then(|view| weight_of_waiting(&view, state_key, 1))
            .map(|weight| weight > 0);
        let activated = match waits {
            Ok(true) => self.activate(node, &Name::of_state_key(state_key)).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error.into()),
        };
        let mut shard = self.shard_of(hash);
        let Some(recheck) = shard.rechecks.get(state_key).filter(|recheck| recheck.due == due)
        else {
            return;
        };
        match activated {
            Ok(None) if recheck.after > after => {
                self.postpone_recheck(&mut shard, node, state_key);
            }
            Ok(None) => shard.end_recheck(node, state_key),
            Ok(Some(address)) => {
                // Under the lock, so that no copy comes between.
                let after = Some(node.store.submitted_through());
                match address.send(Recheck { after }) {
                    Ok(()) => shard.end_recheck(node, state_key),
                    Err(_) => self.add_recheck(&mut shard, node, state_key, PAUSE),
                }
            }
            Err(EntityError::ShutDown) => {}
            // The registration has it rechecked.
            Err(EntityError::NotRegistered { .. }) => {
                self.add_recheck(&mut shard, node, state_key, REGISTRATION);
            }
            Err(error) => {
                self.add_recheck(&mut shard, node, state_key, RETRY);
                drop(shard);
                let key = layout::own_key(state_key).escape_ascii();
                tracing::error!(kind = P::KIND, %key, %error, "stored messages have to wait");
            }
        }
    }

    /// Has an entity recheck its inbox in which a search has found messages, unless it is live.
    pub(super) fn recheck_if_at_rest(self: &Arc<Self>, node: &Inner, state_key: &[u8]) {
        let name = Name::of_state_key(state_key);
        let hash = self.hasher.hash_one(state_key);
        let mut shard = self.shard_of(hash);
        let is_live = shard.active.find(hash, |live| live.is_of(&name)).is_some();
        if !is_live && !shard.rechecks.contains_key(state_key) {
            self.add_recheck(&mut shard, node, state_key, Duration::ZERO);
        }
    }
}

impl<P: Durable> Shard<P> {
    /// Takes an entity off the list of those that are to recheck their inboxes.
    pub(super) fn end_recheck(&mut self, node: &Inner, state_key: &[u8]) {
        if self.rechecks.remove(state_key).is_some() {
            node.redelivery.entities.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether an entity is to recheck its inbox. The recheck then finds the message of this copy, too.
    pub(super) fn must_recheck(&mut self, name: &Name<P>, copy: &Entry) -> bool {
        if self.rechecks.is_empty() {
            return false;
        }
        let Some(recheck) = self.rechecks.get_mut(name.state_key()) else { return false };
        recheck.after = recheck.after.max(copy.after);
        true
    }
}
