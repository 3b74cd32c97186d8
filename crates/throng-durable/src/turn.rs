//! The turns of an entity: loading, the user's handler with a commit behind it, and passivation.
//!
//! Turns that did not come through an [`Entity`](crate::Entity) are committed by the entity's
//! layer; see `activation`.
//!
//! A turn on a retired activation does not run its handler. A called message goes back to its
//! caller inside the reply, a cast message to the directory; either way to the next activation.

use throng::{Context, Handle, Message, Turn};

use crate::activation::{
    self, Activation, EnterError, Failure, PendingWrite, commit, conclude, conclude_first, discard,
};
use crate::durable::encode_state;
use crate::node::NodeGuard;
use crate::users::{catch, catch_future, drop_user_value};
use crate::{Durable, EntityError, SendError};

/// A message that waits for its reply.
pub(crate) struct DurableCall<M>(pub(crate) M, pub(crate) NodeGuard);

/// Error of a turn without a reply.
pub(crate) enum TurnError<M> {
    /// The activation is given up; the message goes to the next activation.
    Retired(M, NodeGuard),
    /// The handler ran, but its changes were not kept, or their outcome is unknown; or the entity
    /// could not be loaded.
    Discarded(EntityError),
}

/// A message without a caller that waits for it.
pub(crate) struct DurableCast<M>(pub(crate) M, pub(crate) NodeGuard);

/// Ends the process if no message waits.
pub(crate) struct Passivate;

impl<P: Durable + Handle<M>, M: Message> Turn<P> for DurableCall<M> {
    type Reply = Result<M::Reply, TurnError<M>>;
    const LAYERED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) -> Self::Reply {
        run(self.0, self.1, process, cx).await
    }
}

impl<P: Durable + Handle<M>, M: Message> Turn<P> for DurableCast<M> {
    type Reply = ();
    const LAYERED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        if let Err(TurnError::Retired(message, guard)) = run(self.0, self.1, process, cx).await
            && let Some(activation) = Activation::of(cx)
        {
            let entity = activation.entity(guard.node().clone());
            if let Err(SendError { error, message }) = entity.send(message) {
                // A cast has no caller to return the error to.
                tracing::error!(kind = P::KIND, key = entity.key(), %error, "a message was dropped");
                drop_user_value(message);
            }
        }
    }
}

impl<P: Durable> Turn<P> for Passivate {
    type Reply = ();
    const LAYERED: bool = false;

    async fn run(self, _: &mut P, cx: &mut Context<P>) {
        if let Some(activation) = Activation::of(cx) {
            activation.passivate();
        }
        cx.stop_if_idle();
    }
}

/// The first turn of an activation: loads the state, and runs the user's hook `started`.
pub(crate) struct Load<P: Durable> {
    pub(crate) guard: NodeGuard,
    /// A write of an earlier activation whose outcome is not known yet.
    pub(crate) predecessor: Option<PendingWrite<P>>,
}

impl<P: Durable> Turn<P> for Load<P> {
    type Reply = ();
    const LAYERED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        let address = cx.address();
        let Some(activation) = Activation::of(cx) else { return };
        let store = self.guard.node().inner().store.clone();
        if activation.enter(address, self.guard).is_err() {
            return;
        }
        if let Some(predecessor) = self.predecessor {
            // The predecessor's caller already got an error that leaves the outcome open; the load
            // shows the outcome.
            let _ = predecessor.await;
        }
        let Some(activation) = Activation::of(cx) else { return };
        match activation::load::<P>(&store, activation.key_prefix()) {
            Ok(loaded) => {
                let stored = loaded.process.is_some();
                let record = match loaded.process {
                    Some(found) => {
                        drop_user_value(std::mem::replace(process, found));
                        loaded.record
                    }
                    // If the default cannot be encoded, that is an error of the first commit.
                    None => catch(|| encode_state(process))
                        .ok()
                        .and_then(Result::ok)
                        .unwrap_or_default(),
                };
                activation.loaded(record, stored);
            }
            Err(failure) => return activation.fail(failure),
        }
        if const { throng::__has_started::<P>() }
            && let Err(failure) = start(process, cx).await
            && let Some(activation) = Activation::of(cx)
        {
            return activation.fail(failure);
        }
        conclude_first(cx);
    }
}

/// Runs the user's hook `started` and commits its changes.
async fn start<P: Durable>(process: &mut P, cx: &mut Context<P>) -> Result<(), Failure> {
    let started = catch_future(async {
        process.started(cx).await;
        encode_state(process)
    });
    let state = started.await.map_err(Failure::Panicked)?;
    let committed = commit(state, cx).await;
    committed.map_err(|error| {
        Failure::Started(format!("its hook `started` was not kept: {error}").into())
    })
}

async fn run<P: Durable + Handle<M>, M: Message>(
    message: M,
    guard: NodeGuard,
    process: &mut P,
    cx: &mut Context<P>,
) -> Result<M::Reply, TurnError<M>> {
    let address = cx.address();
    let entered = match Activation::of(cx) {
        Some(activation) => activation.enter(address, guard),
        None => Err(EnterError::Retired(guard)),
    };
    if let Err(closed) = entered {
        // Only messages that were already under way can still arrive.
        cx.stop_if_idle();
        return Err(match closed {
            EnterError::Retired(guard) => TurnError::Retired(message, guard),
            EnterError::Failed(failure) => {
                drop_user_value(message);
                TurnError::Discarded(failure.into())
            }
        });
    }
    let handled = catch_future(async {
        let reply = process.handle(message, cx).await;
        // Encoded here, because the state must not be borrowed across the wait for the disk, and
        // because the user's `Serialize` may panic like the handler.
        (reply, encode_state(process))
    });
    let outcome = match handled.await {
        Ok((reply, state)) => commit(state, cx).await.map(|()| reply),
        Err(text) => Err(EntityError::Panicked(text)),
    };
    match &outcome {
        Ok(_) => conclude(cx),
        Err(error) => discard(cx, error),
    }
    outcome.map_err(TurnError::Discarded)
}
