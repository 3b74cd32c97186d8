//! Turns of a process with a layer: the layer is asked before a turn and after it.
//!
//! ```text
//! begin ─▶ admit ── refused ─▶ the caller gets the layer's reason
//!            │
//!            ▼
//!          turn ─▶ consult ── Over ────▶ answer
//!                     ├────── Refused ─▶ the caller gets the layer's reason
//!                     ├────── Hold ────▶ the layer keeps the answer and gives it later
//!                     └────── Settle ──▶ a turn of the layer's own, which has the answer
//! ```
//!
//! | value | touched by |
//! |---|---|
//! | state, context | `begin`, `end` and `hold`, one after the other and beside no future; the future of `settle` |
//! | sink, context of the frame | moved out once, by `consult` |
//!
//! Invariants: those of `frame`. Its third holds by [`HeldReply`], which gives its answer once, at its drop at the latest.

use super::{Frame, finish, free, place, take_apart};
use crate::cell::{CurrentProcess, Token};
use crate::exit::{ExitReason, catch, drop_users};
use crate::mailbox::dead_letters::{DeadLetter, DropReason};
use crate::memory::block;
use crate::scheduler::watchdog::TurnTitle;
use crate::sync::{Mutex, lock};
use crate::turn::after::{After, Progress};
use crate::turn::context::{Context, OwnContext};
use crate::turn::layer::{self, Around, Layer, TurnEnd};
use crate::turn::process::{Process, Turn};
use crate::turn::sink::Sink;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Begins a turn of a layered process, if the layer admits it.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
#[cold]
pub(super) unsafe fn begin_layered<P, T, S>(token: &Token, turn: T, sink: S) -> Progress
where
    P: Process,
    T: Turn<P>,
    S: Sink<Reply = T::Reply>,
{
    // SAFETY: by this function's contract the process is a `P` and has no turn under way, as
    // `admit` and `place` require.
    unsafe {
        if T::LAYERED
            && let Err(reason) = admit::<P>(token)
        {
            // The refused turn may be the first turn, for which signals wait.
            token.clear_fresh();
            drop_users(turn);
            let title = const { &TurnTitle::of::<P, T>() };
            let lost = u64::from(T::COUNTED);
            let letter = DeadLetter::of(title, token.pid(), DropReason::Refused, lost);
            token.class().runtime.drops().count(letter);
            sink.fail(&reason);
            return Progress::Done(After::ExitIfIdle);
        }
        place(token, turn, sink, true, block::allocate, T::run)
    }
}

/// Asks the layer whether a turn may begin.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
unsafe fn admit<P: Process>(token: &Token) -> Result<(), ExitReason> {
    let Some(layer) = layer::of::<P>(token) else { return Ok(()) };
    // SAFETY: by the contract no turn is under way, so no other context exists while this context
    // lives.
    let mut context = OwnContext::new(unsafe { CurrentProcess::new(token) });
    catch(|| (layer.begin)(&mut context)).flatten()
}

/// Ends a turn whose future is gone, as its layer decides.
///
/// # Safety
/// The contract of [`conclude`].
#[cold]
pub(super) unsafe fn consult<P, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    token: &Token,
    outcome: Result<S::Reply, ExitReason>,
) -> Progress
where
    P: Process,
    S: Sink,
{
    let raw = frame.as_ptr();
    // SAFETY: the future, which borrowed state and context, is gone (invariant 2), so both may be
    // lent to the layer. After that the frame is finished, or sink and context are moved out once
    // and the frame is freed.
    unsafe {
        let Some(layer) = layer::of::<P>(token) else { return finish(frame, outcome) };
        let so_far = outcome.as_ref().map(drop);
        let ended = match ask(layer, token, &mut (*raw).context, so_far, S::HAS_CALLER) {
            Ok(TurnEnd::Over) => return finish(frame, outcome),
            Ok(ended) => ended,
            Err(reason) => {
                drop_users(outcome);
                return finish(frame, Err(reason));
            }
        };
        let (sink, context) = take_apart(frame);
        free(frame);
        let reply = HeldReply(Some(Box::new(Answer { sink, outcome })));
        hand_over(layer, token, ended, reply, context)
    }
}

/// Asks the layer how a turn ends. In one place for all kinds of turns.
///
/// # Errors
/// The reason of the layer's panic.
///
/// # Safety
/// The token's process is a `P` with no turn under way, and no reference to its state is in use.
#[inline(never)]
unsafe fn ask<P: Process>(
    layer: &Around<P>,
    token: &Token,
    context: &mut Context<P>,
    outcome: Result<(), &ExitReason>,
    has_caller: bool,
) -> Result<TurnEnd, ExitReason> {
    // SAFETY: by the contract the process is a `P` whose state nothing else uses.
    let state = unsafe { &mut *token.state::<P>() };
    catch(|| (layer.end)(state, context, outcome, has_caller))
}

/// Gives the layer the reply of a turn, as it has asked for. In one place for all kinds of turns.
#[inline(never)]
fn hand_over<P: Process>(
    layer: &Around<P>,
    token: &Token,
    ended: TurnEnd,
    reply: HeldReply,
    mut context: OwnContext<P>,
) -> Progress {
    match ended {
        TurnEnd::Settle => return (layer.settle)(token, reply, context),
        TurnEnd::Hold => {
            reply.detach();
            // A reply that is lost in a panic of the layer is refused by its drop.
            if let Err(reason) = catch(|| (layer.hold)(&mut context, reply)) {
                return Progress::Done(After::exit(reason));
            }
        }
        TurnEnd::Refused(reason) => reply.refuse(&reason),
        TurnEnd::Over => reply.send(),
    }
    Progress::Done(context.into_after())
}

/// Continues a turn that its layer has to settle, with the context of the turn so far.
pub(crate) fn settle<P: Process, L: Layer<P>>(
    token: &Token,
    reply: HeldReply,
    context: OwnContext<P>,
) -> Progress {
    assert!(token.is_a::<P>() && token.is_between_turns(), "the turn to settle is not over");
    let settling = Settling(Arc::new(Mutex::new(Some(reply))));
    let sink = settling.clone();
    // SAFETY: the assertion above has checked that the process is a `P` with no turn under way: the
    // frame of the turn to settle is gone.
    unsafe {
        place(token, settling, sink, false, block::allocate, |settling, process: &mut P, cx| {
            cx.go_on_from(context);
            async move {
                let settled = L::settle(process, cx).await;
                let Some(reply) = settling.take() else { return };
                match settled {
                    Ok(()) => {
                        reply.detach();
                        L::hold(cx, reply);
                    }
                    Err(reason) => reply.refuse(&reason),
                }
            }
        })
    }
}

/// The reply of a turn that its layer settles: the settlement takes it, or the end of the process does, whichever
/// comes first. Also the title of such a turn; see `TurnTitle`.
#[derive(Clone)]
struct Settling(Arc<Mutex<Option<HeldReply>>>);

impl Settling {
    fn take(&self) -> Option<HeldReply> {
        lock(&self.0).take()
    }
}

impl Sink for Settling {
    type Reply = ();
    const LAYERED: bool = false;
    const HAS_CALLER: bool = false;

    fn deliver(self, (): ()) {}

    fn fail(self, reason: &ExitReason) {
        if let Some(reply) = self.take() {
            reply.refuse(reason);
        }
    }
}

/// The reply of a turn, kept by the [`Layer`] of its process.
///
/// A reply that is dropped counts as [refused](Self::refuse). The process may take other messages, and exit, while the
/// reply is held.
#[must_use = "a reply that is dropped is refused"]
pub struct HeldReply(Option<Box<dyn Give>>);

impl HeldReply {
    /// Records that the caller waits for the layer from here on, and not for the process.
    fn detach(&self) {
        if let Some(answer) = &self.0 {
            answer.detach();
        }
    }

    /// Gives the caller the reply, or the reason of the turn's panic.
    pub fn send(mut self) {
        if let Some(answer) = self.0.take() {
            answer.give(None);
        }
    }

    /// Gives the caller [`CallError::Died`](crate::CallError::Died) with a reason in place of the reply.
    pub fn refuse(mut self, reason: &ExitReason) {
        if let Some(answer) = self.0.take() {
            answer.give(Some(reason));
        }
    }
}

impl Drop for HeldReply {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer.give(Some(&ExitReason::other("the reply was given up")));
        }
    }
}

impl fmt::Debug for HeldReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldReply").finish_non_exhaustive()
    }
}

/// The outcome of a turn, and the sink for it.
struct Answer<S, R> {
    sink: S,
    outcome: Result<R, ExitReason>,
}

/// An [`Answer`] of any type.
trait Give: Send {
    /// Records that the answer depends no longer on the process.
    fn detach(&self);

    /// Gives the answer, or the layer's reason to refuse it.
    fn give(self: Box<Self>, refusal: Option<&ExitReason>);
}

impl<S: Sink> Give for Answer<S, S::Reply> {
    fn detach(&self) {
        self.sink.detach();
    }

    fn give(self: Box<Self>, refusal: Option<&ExitReason>) {
        let Answer { sink, outcome } = *self;
        match (refusal, outcome) {
            (None, Ok(reply)) => sink.deliver(reply),
            (None, Err(reason)) => sink.fail(&reason),
            (Some(reason), outcome) => {
                drop_users(outcome);
                sink.fail(reason);
            }
        }
    }
}
