//! The turns of an entity: the user's handler with a commit behind it, and passivation.
//!
//! A turn on a retired activation does not run its handler. A called message goes back to its
//! caller inside the reply, a cast one to the directory; either way to the next activation.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use throng::{Context, ExitReason, Handle, Message, Turn};

use crate::activation::{Activation, commit};
use crate::durable::encode_state;
use crate::entity::died;
use crate::node::Hold;
use crate::{Durable, EntityError};

/// A message that waits for its reply.
pub(crate) struct Durably<M>(pub(crate) M, pub(crate) Hold);

/// Why there is no reply.
pub(crate) enum Refusal<M> {
    /// The activation is given up; here is the message for the next one.
    Retired(M, Hold),
    /// The handler ran, but what it did was not kept, or may not have been.
    Discarded(EntityError),
}

/// A message that nobody waits for.
pub(crate) struct DurablyCast<M>(pub(crate) M, pub(crate) Hold);

/// Ends the process if no message waits.
pub(crate) struct Passivate;

impl<P: Durable + Handle<M>, M: Message> Turn<P> for Durably<M> {
    type Reply = Result<M::Reply, Refusal<M>>;

    async fn run(self, process: &mut P, cx: &mut Context<P>) -> Self::Reply {
        run(self.0, self.1, process, cx).await
    }
}

impl<P: Durable + Handle<M>, M: Message> Turn<P> for DurablyCast<M> {
    type Reply = ();

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        if let Err(Refusal::Retired(message, hold)) = run(self.0, self.1, process, cx).await
            && let Some(activation) = Activation::of(cx)
        {
            // As with any cast, nobody would learn why the next activation is impossible.
            let _ = activation.entity(hold.node().clone()).send(message);
        }
    }
}

impl<P: Durable> Turn<P> for Passivate {
    type Reply = ();

    async fn run(self, _: &mut P, cx: &mut Context<P>) {
        if let Some(activation) = Activation::of(cx) {
            activation.passivate();
        }
        cx.stop_if_idle();
    }
}

async fn run<P: Durable + Handle<M>, M: Message>(
    message: M,
    hold: Hold,
    process: &mut P,
    cx: &mut Context<P>,
) -> Result<M::Reply, Refusal<M>> {
    let address = cx.address();
    let entered = match Activation::of(cx) {
        Some(activation) => activation.enter(address, hold),
        None => Err(hold),
    };
    if let Err(hold) = entered {
        // Nothing new can arrive but what was already on its way.
        cx.stop_if_idle();
        return Err(Refusal::Retired(message, hold));
    }
    let handled = catch_panic(async {
        let reply = process.handle(message, cx).await;
        // Encoded here, for the state must not be borrowed across the wait for the disk; and the
        // user's `Serialize` may panic as the handler may.
        (reply, encode_state(process))
    });
    let outcome = match handled.await {
        Ok((reply, state)) => commit(state, cx).await.map(|()| reply),
        Err(reason) => Err(died(reason)),
    };
    if let Some(activation) = Activation::of(cx) {
        match &outcome {
            Ok(_) => activation.leave(),
            Err(error) => {
                tracing::error!(kind = P::KIND, key = activation.key(), %error, "a turn was discarded");
                activation.retire();
                cx.stop_if_idle();
            }
        }
    }
    outcome.map_err(Refusal::Discarded)
}

/// Runs a future to its end or to its panic.
async fn catch_panic<F: Future>(future: F) -> Result<F::Output, ExitReason> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        // After a panic neither the future nor the state behind it is used again, only dropped.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(ExitReason::from_panic(payload))),
        }
    })
    .await
}
