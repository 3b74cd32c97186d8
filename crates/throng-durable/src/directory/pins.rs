//! Pins: entities that stay in memory, and are woken when they are not there.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throng::layer::Instant;
use throng_store::{Submission, SubmitError};

use super::{Directory, Shard};
use crate::keeper::Pin;
use crate::name::Name;
use crate::node::Inner;
use crate::{Durable, EntityError, layout};

impl<P: Durable> Directory<P> {
    /// Makes an entity stay in memory, and has it woken, if `submit` has submitted the pin. The two are one step, so
    /// that pins and their removals take effect in the order of their submissions.
    pub(crate) fn pin(
        self: &Arc<Self>,
        node: &Inner,
        name: &Name<P>,
        submit: impl FnOnce() -> Result<Submission, SubmitError>,
    ) -> Result<Submission, SubmitError> {
        let hash = self.hasher.hash_one(name.state_key());
        let mut shard = self.shard_of(hash);
        let submission = submit()?;
        let pin = self.pin_of(&mut shard, node, name.state_key());
        (pin.is_stored, pin.submitted) = (true, pin.submitted.max(submission));
        if let Some(live) = shard.active.find(hash, |live| live.is_of(name)) {
            live.marks().pin(true);
        }
        Ok(submission)
    }

    /// Makes entities stay in memory whose pins are in the store, and has them woken.
    pub(crate) fn pin_stored(self: &Arc<Self>, node: &Inner) {
        for state_key in node.keeper.claim(self.kind.number()) {
            let mut shard = self.shard_of(self.hasher.hash_one(&*state_key));
            self.pin_of(&mut shard, node, &state_key).is_stored = true;
            node.keeper.pinned.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Makes an entity stay in memory, and has it woken, as long as somebody keeps it.
    pub(crate) fn keep(self: &Arc<Self>, node: &Inner, name: &Name<P>) {
        let hash = self.hasher.hash_one(name.state_key());
        let mut shard = self.shard_of(hash);
        self.pin_of(&mut shard, node, name.state_key()).keepers += 1;
        if let Some(live) = shard.active.find(hash, |live| live.is_of(name)) {
            live.marks().pin(true);
        }
    }

    /// Undoes [`Directory::keep`].
    pub(crate) fn release(&self, node: &Inner, name: &Name<P>) {
        self.loosen(node, name, |pin| pin.keepers = pin.keepers.saturating_sub(1));
    }

    /// Returns the pin of an entity, which is made if there is none, and has the entity woken.
    fn pin_of<'s>(
        self: &Arc<Self>,
        shard: &'s mut Shard<P>,
        node: &Inner,
        state_key: &[u8],
    ) -> &'s mut Pin {
        let pin = shard.pinned.entry(state_key.into()).or_insert_with(|| {
            node.keeper.pinned.fetch_add(1, Ordering::Relaxed);
            Pin::new()
        });
        pin.hurry();
        node.keeper.add(pin.due(), self.clone(), state_key);
        pin
    }

    /// Lets an entity be passivated again, after a submission has removed its pin from the store.
    pub(crate) fn unpin(&self, node: &Inner, name: &Name<P>, submission: Submission) {
        // A later submission may have pinned the entity again.
        self.loosen(node, name, |pin| pin.is_stored &= pin.submitted > submission);
    }

    /// Changes the pin of an entity, and lets the entity be passivated again if nothing holds it any more.
    fn loosen(&self, node: &Inner, name: &Name<P>, change: impl FnOnce(&mut Pin)) {
        let hash = self.hasher.hash_one(name.state_key());
        let mut shard = self.shard_of(hash);
        let Some(pin) = shard.pinned.get_mut(name.state_key()) else { return };
        change(pin);
        if pin.is_stored || pin.keepers > 0 {
            return;
        }
        shard.pinned.remove(name.state_key());
        node.keeper.pinned.fetch_sub(1, Ordering::Relaxed);
        if let Some(live) = shard.active.find(hash, |live| live.is_of(name)) {
            live.marks().pin(false);
        }
    }

    /// Has an entity woken again if it is pinned, after an activation of it has ended.
    pub(super) fn wake_again(self: &Arc<Self>, node: &Inner, shard: &mut Shard<P>, name: &Name<P>) {
        let Some(pin) = shard.pinned.get_mut(name.state_key()) else { return };
        if pin.fails(|failures| self.hasher.hash_one((name.state_key(), failures))) {
            node.keeper.add(pin.due(), self.clone(), name.state_key());
        }
    }

    /// Activates a pinned entity that is due since this time, unless the time is outdated.
    pub(super) fn wake_pinned(self: &Arc<Self>, node: &Arc<Inner>, state_key: &[u8], due: Instant) {
        let hash = self.hasher.hash_one(state_key);
        if self.shard_of(hash).pinned.get(state_key).is_none_or(|pin| pin.due() != due) {
            return;
        }
        let woken = self.activate(node, &Name::of_state_key(state_key));
        let mut shard = self.shard_of(hash);
        // It may have failed meanwhile, and have another time.
        let Some(pin) = shard.pinned.get_mut(state_key).filter(|pin| pin.due() == due) else {
            return;
        };
        match woken {
            // A kind that is registered later has its entities woken then.
            Ok(_) | Err(EntityError::NotRegistered { .. }) => pin.checked(),
            Err(EntityError::ShutDown) => return,
            Err(error) => {
                node.keeper.failures.fetch_add(1, Ordering::Relaxed);
                pin.fails(|failures| self.hasher.hash_one((state_key, failures)));
                let key = layout::own_key(state_key).escape_ascii();
                tracing::error!(kind = P::KIND, %key, %error, "a pinned entity was not activated");
            }
        }
        node.keeper.add(pin.due(), self.clone(), state_key);
    }
}
