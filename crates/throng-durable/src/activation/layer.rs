//! The layer around every turn of an entity, and the end of a turn.
//!
//! ```text
//! begin ──► the turn ──► end: submit ──┬── nothing to wait for ──► reply
//!                                      ├── submitted ──► hold: the gate has the reply, the process goes on
//!                                      └── no room in the store's queue ──► settle: submitted once there is
//! ```
//!
//! A message by an [`Entity`](crate::Entity) brings its own right to reply, and ends by the same steps in
//! `turn::Request`, with an [`EntityError`] where a caller by address gets the reason of an exit.

use throng::layer::{HeldReply, Layer, TurnEnd};
use throng::{Context, ExitReason};
use throng_store::CommitFailure;

use super::{Activation, Closed, commit, submit_turn};
use crate::gate::Held;
use crate::turn::Passivate;
use crate::{Durable, EntityError};

impl<P: Durable> Layer<P> for Activation<P> {
    fn label(&self) -> Option<String> {
        Some(format!("{}/{}", P::KIND, self.key()))
    }

    fn begin(cx: &mut Context<P>) -> Result<(), ExitReason> {
        match Activation::enter(cx) {
            Ok(()) => Ok(()),
            Err(Closed::Retired(_)) => Err(ExitReason::other("the entity was given up")),
            Err(Closed::Failed(_, failure)) => {
                Err(ExitReason::other(EntityError::from(failure).to_string()))
            }
        }
    }

    fn end(
        process: &mut P,
        cx: &mut Context<P>,
        outcome: Result<(), &ExitReason>,
        has_caller: bool,
    ) -> TurnEnd {
        if !Activation::of(cx).is_some_and(|own| own.in_turn) {
            // The turn was not the user's, or has ended by itself.
            return TurnEnd::Over;
        }
        if let Err(reason) = outcome {
            discard(cx, &panicked(reason));
            return TurnEnd::Refused(reason.clone());
        }
        let submitted = submit_turn(process, cx, false);
        let Some(own) = Activation::of(cx) else { return TurnEnd::Over };
        match submitted {
            Ok(None) if has_caller && own.must_wait() => TurnEnd::Hold,
            Ok(None) => {
                conclude(cx);
                TurnEnd::Over
            }
            Ok(Some(waiting)) => {
                own.kept().prepared = Some(waiting);
                TurnEnd::Settle
            }
            Err(error) => {
                discard(cx, &error);
                TurnEnd::Refused(reason_of(error))
            }
        }
    }

    fn hold(cx: &mut Context<P>, reply: HeldReply) {
        if let Some(own) = Activation::of(cx) {
            own.leave(Box::new(reply));
        }
        conclude(cx);
    }

    async fn settle(_: &mut P, cx: &mut Context<P>) -> Result<(), ExitReason> {
        let prepared = Activation::of(cx).and_then(|own| own.kept().prepared.take());
        let committed = match prepared {
            Some(waiting) => commit(waiting, cx).await,
            None => Ok(()),
        };
        committed.map_err(|error| {
            discard(cx, &error);
            reason_of(error)
        })
    }
}

impl Held for HeldReply {
    fn release(self: Box<Self>, outcome: Result<(), CommitFailure>) {
        match outcome {
            Ok(()) => self.send(),
            Err(failure) => self.refuse(&reason_of(failure.into())),
        }
    }
}

/// Returns the error of a turn that ended by a panic.
fn panicked(reason: &ExitReason) -> EntityError {
    match reason {
        ExitReason::Panicked(panic) => EntityError::Panicked(panic.clone()),
        reason => EntityError::Panicked(reason.to_string().into()),
    }
}

/// Returns the reason that the caller of an address gets for a turn that was not kept.
fn reason_of(error: EntityError) -> ExitReason {
    match error {
        EntityError::Panicked(panic) => ExitReason::Panicked(panic),
        error => ExitReason::other(error.to_string()),
    }
}

/// Gives up the activation after a turn whose changes cannot be kept.
pub(crate) fn discard<P: Durable>(cx: &mut Context<P>, error: &EntityError) {
    if let Some(activation) = Activation::of(cx) {
        match error {
            // An answer like others.
            EntityError::Conflict(_) => {
                tracing::debug!(kind = P::KIND, key = activation.key(), %error, "a turn was discarded");
            }
            _ => {
                tracing::error!(kind = P::KIND, key = activation.key(), %error, "a turn was discarded");
            }
        }
        activation.report(error);
        activation.retire();
        cx.stop_if_idle();
    }
}

/// Ends a turn whose changes are submitted. An activation that is still blank leaves, unless a timer, a link
/// or the like may still wake it.
pub(crate) fn conclude<P: Durable>(cx: &mut Context<P>) {
    let Some(activation) = Activation::of(cx) else { return };
    let marks = activation.name.marks();
    let (is_bare, was_tied) = (!activation.stored && !marks.is_pinned(), marks.is_tied());
    let is_untied = (is_bare || was_tied) && !cx.has_ties();
    let is_blank = is_bare && is_untied;
    let Some(activation) = Activation::of(cx) else { return };
    if was_tied && is_untied {
        activation.name.marks().untie();
    }
    activation.release_actions();
    if !is_blank {
        activation.reside();
    }
    activation.in_turn = false;
    if is_blank {
        activation.passivate(Passivate::Always, false);
        cx.stop_if_idle();
    }
}
