//! The turns of an entity: loading, the user's handler with a commit behind it, and passivation.
//!
//! A turn that did not come through an [`Entity`](crate::Entity) ends by the same steps in the entity's layer; see
//! `activation`.

use std::any::type_name;
use throng::{Context, ReplyTo, Turn};
use throng_store::Submission;

use crate::activation::{
    Activation, Closed, Failure, commit, conclude, discard, load, prepare_removal, submit_turn,
};
use crate::gate::{Answer, answer};
use crate::inbox::feed_next;
use crate::users::{Sender, catch_turn, drop_user_value};
use crate::{Durable, EntityError, SendError};

/// A message from an [`Entity`](crate::Entity), with the right to answer it if it was called.
///
/// A retired activation passes the request on to the next activation.
pub(crate) struct Request<T, R> {
    pub(crate) message: T,
    /// The last submission of the entity that sent the message from its handler. If it is lost, the message is
    /// not handled, and neither are changes kept that follow from it.
    pub(crate) after: Submission,
    pub(crate) to: Option<ReplyTo<Result<R, EntityError>>>,
}

impl<T, R: Send + 'static> Request<T, R> {
    /// Drops a message that will not be handled; the error goes to its caller if it has one.
    pub(crate) fn refuse<P: Durable>(self, cx: &Context<P>, key: &str, error: EntityError) {
        drop_user_value(self.message);
        let (process, message) = (type_name::<P>(), type_name::<T>());
        cx.runtime().count_dropped(cx.pid(), process, message);
        match self.to {
            Some(to) => answer(to, Err(error)),
            None => tracing::error!(kind = P::KIND, key, %error, "a message was dropped"),
        }
    }
}

impl<P: Durable, T: Turn<P>> Turn<P> for Request<T, T::Reply> {
    type Reply = ();
    const LAYERED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        match Activation::enter(cx) {
            Ok(()) => {}
            Err(Closed::Retired(entity)) => {
                cx.stop_if_idle();
                if let Err(SendError { error, message }) = entity.deliver(self) {
                    message.refuse::<P>(cx, entity.key(), error);
                }
                return;
            }
            Err(Closed::Failed(name, failure)) => {
                cx.stop_if_idle();
                return self.refuse::<P>(cx, name.key(), failure.into());
            }
        }
        let Some(own) = Activation::of(cx) else { return };
        if let Err(failure) = own.build_on(self.after) {
            let key = own.key().to_owned();
            self.refuse::<P>(cx, &key, failure.into());
            return conclude(cx);
        }
        let Request { message, to, .. } = self;
        match handle(message, process, cx, |_| ()).await {
            Ok(reply) => {
                match to {
                    Some(to) => {
                        if let Some(own) = Activation::of(cx) {
                            // The caller waits for the disk from here on, and not for this process.
                            to.detach();
                            own.leave(Box::new(Answer { reply, to }));
                        }
                    }
                    None => drop_user_value(reply),
                }
                conclude(cx);
            }
            Err(error) => {
                discard(cx, &error);
                if let Some(to) = to {
                    answer(to, Err(error));
                }
            }
        }
    }
}

/// Runs a message, and submits the changes of its turn, to which `add` adds once the handler is done.
pub(crate) async fn handle<P: Durable, T: Turn<P>>(
    message: T,
    process: &mut P,
    cx: &mut Context<P>,
    add: impl FnOnce(&mut Activation<P>) + Send,
) -> Result<T::Reply, EntityError> {
    let last = Activation::of(cx).map_or(Sender::NOBODY, |own| own.sender());
    let handled = match catch_turn(last, message.run(process, cx)).await {
        Ok(reply) => {
            if let Some(own) = Activation::of(cx) {
                add(own);
            }
            // Not in the next match, because the state must not be borrowed while the commit waits for room.
            submit_turn(process, cx, T::READ_ONLY).map(|waiting| (reply, waiting))
        }
        Err(panic) => Err(EntityError::Panicked(panic)),
    };
    match handled? {
        (reply, None) => Ok(reply),
        (reply, Some(waiting)) => commit(waiting, cx).await.map(|()| reply),
    }
}

/// Removes everything that is stored of the entity, and ends the activation.
pub(crate) struct Forget {
    /// The last submission of the entity that asks, as in a [`Request`].
    pub(crate) after: Submission,
    pub(crate) to: ReplyTo<Result<(), EntityError>>,
}

impl<P: Durable> Turn<P> for Forget {
    type Reply = ();
    const LAYERED: bool = false;

    async fn run(self, _: &mut P, cx: &mut Context<P>) {
        match Activation::enter(cx) {
            Ok(()) => {}
            Err(Closed::Retired(entity)) => {
                cx.stop_if_idle();
                if let Err(SendError { error, message }) = entity.deliver(self) {
                    answer(message.to, Err(error));
                }
                return;
            }
            Err(Closed::Failed(_, failure)) => {
                cx.stop_if_idle();
                return answer(self.to, Err(failure.into()));
            }
        }
        let Some(own) = Activation::of(cx) else { return };
        if let Err(failure) = own.build_on(self.after) {
            conclude(cx);
            return answer(self.to, Err(failure.into()));
        }
        let removed = match prepare_removal(cx) {
            Ok(Some(prepared)) => commit(prepared, cx).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        let Some(own) = Activation::of(cx) else { return };
        match removed {
            Ok(()) => {
                own.unpin_after_commit();
                own.leave(Box::new(Answer { reply: (), to: self.to }));
            }
            Err(error) => answer(self.to, Err(error)),
        }
        // The next activation finds nothing.
        own.retire();
        cx.stop_if_idle();
    }
}

/// Ends the process if no message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passivate {
    /// The entity is idle, or room is wanted: it stays if anything but a message may still wake it.
    Untied,
    /// Room is wanted, and too few entities have no ties.
    Tied,
    /// The node or the activation ends.
    Always,
}

impl<P: Durable> Turn<P> for Passivate {
    type Reply = ();
    const COUNTED: bool = false;
    const LAYERED: bool = false;

    async fn run(self, _: &mut P, cx: &mut Context<P>) {
        // An entity that stays must not notice this turn.
        let is_tied = cx.keep_receive_timeout() || cx.has_ties();
        if let Some(activation) = Activation::of(cx)
            && !activation.passivate(self, is_tied)
        {
            return;
        }
        cx.stop_if_idle();
    }
}

/// The first turn of an activation: has the state loaded, and runs the user's hook `started`.
pub(crate) struct Load {
    /// The submission through which earlier activations may have submitted changes.
    pub(crate) after: Submission,
}

impl<P: Durable> Turn<P> for Load {
    type Reply = ();
    const LAYERED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        if Activation::enter(cx).is_err() {
            return;
        }
        let Some(node) = Activation::of(cx).map(|activation| activation.node().clone()) else {
            return;
        };
        if !node.gate.is_settled(self.after) {
            // Its callers learn of a loss; the load shows the state that is left.
            let _ = node.gate.settled(self.after).await;
        }
        let Some(activation) = Activation::of(cx) else { return };
        let (name, directory) = (activation.name().clone(), activation.home().directory.clone());
        let loaded = node.loader.run({
            let node = node.clone();
            move || load::<P>(&node, &directory, &name)
        });
        let loaded = loaded.await.unwrap_or(Err(Failure::ShutDown));
        let Some(activation) = Activation::of(cx) else { return };
        let waiting = match loaded {
            Ok(loaded) => {
                if let Some(found) = loaded.process {
                    activation.loaded(loaded.hash, loaded.size, loaded.keys);
                    drop_user_value(std::mem::replace(process, found));
                } else {
                    activation.loaded_default(process);
                }
                loaded.waiting
            }
            Err(failure) => return give_up(cx, failure).await,
        };
        if const { throng::layer::has_started::<P>() }
            && let Err(failure) = start(process, cx).await
        {
            return give_up(cx, failure).await;
        }
        if let Some(activation) = Activation::of(cx) {
            activation.found(waiting);
            activation.begun();
            feed_next(cx).await;
        }
    }
}

/// Gives up an activation that could not be loaded. If an operator has asked for it, everything that is stored of the
/// entity is removed, and the next activation finds nothing.
async fn give_up<P: Durable>(cx: &mut Context<P>, failure: Failure) {
    let Some(own) = Activation::of(cx) else { return };
    if !failure.is_lasting() || !own.directory().is_to_forget(own.name()) {
        return own.fail(failure);
    }
    own.drop_changes();
    let removed = match prepare_removal(cx) {
        Ok(Some(prepared)) => commit(prepared, cx).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    let Some(own) = Activation::of(cx) else { return };
    match removed {
        Ok(()) => {
            tracing::warn!(kind = P::KIND, key = own.key(), "an unreadable entity is forgotten");
            own.unpin_after_commit();
            own.release_actions();
            own.retire();
        }
        Err(error) => {
            let (kind, key) = (P::KIND, own.key());
            tracing::error!(kind, key, %error, "an unreadable entity could not be forgotten");
            own.fail(failure);
        }
    }
}

/// Runs the user's hook `started` and commits its changes.
async fn start<P: Durable>(process: &mut P, cx: &mut Context<P>) -> Result<(), Failure> {
    let last = Activation::of(cx).map_or(Sender::NOBODY, |own| own.sender());
    catch_turn(last, process.started(cx)).await.map_err(Failure::Panicked)?;
    let committed = match submit_turn(process, cx, false) {
        Ok(None) => Ok(()),
        Ok(Some(waiting)) => commit(waiting, cx).await,
        Err(error) => Err(error),
    };
    committed.map_err(|error| match error {
        EntityError::Panicked(panic) => Failure::Panicked(panic),
        error => Failure::Started(format!("its hook `started` was not kept: {error}").into()),
    })
}
