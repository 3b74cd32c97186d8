//! Turns of a process with a layer: the layer is asked before a turn and after it.
//!
//! ```text
//! begin ─▶ admit ── refused ─▶ the caller gets the layer's reason
//!            │
//!            ▼
//!          turn ─▶ consult ── Over ────▶ answer
//!                     ├────── Refused ─▶ the caller gets the layer's reason
//!                     └────── Settle ──▶ a turn of the layer's own, which holds the answer
//! ```
//!
//! | value | touched by |
//! |---|---|
//! | state, context | the layer's functions, while no future of a turn exists |
//! | sink, context of a frame to settle | moved out once, by `consult` |
//!
//! Invariants: those of `frame`; of them 3 holds by the type [`Held`], whose answer is given once.

use super::{Frame, finish, free, place, take_apart};
use crate::cell::{CurrentProcess, Token};
use crate::exit::{ExitReason, catch, drop_users};
use crate::mailbox::dead_letters::{DeadLetter, DropReason};
use crate::memory::block;
use crate::scheduler::watchdog::TurnTitle;
use crate::turn::after::{After, Progress};
use crate::turn::context::OwnContext;
use crate::turn::layer::{self, Layer, TurnEnd};
use crate::turn::process::{Process, Turn};
use crate::turn::sink::Sink;
use std::ptr::NonNull;

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
    // lent to `layer.end`. After that exactly one call of `finish` or `take_apart` follows, so sink
    // and context are moved out once.
    unsafe {
        let Some(layer) = layer::of::<P>(token) else { return finish(frame, outcome) };
        let ended = catch(|| {
            let outcome = outcome.as_ref().map(drop);
            (layer.end)(&mut *token.state::<P>(), &mut (*raw).context, outcome, S::HAS_CALLER)
        });
        let ended = match ended {
            Ok(TurnEnd::Over) => return finish(frame, outcome),
            Ok(ended) => ended,
            Err(reason) => {
                drop_users(outcome);
                return finish(frame, Err(reason));
            }
        };
        let (sink, context) = take_apart(frame);
        free(frame);
        let held = Held(Box::new(Answer { sink, outcome }));
        match ended {
            TurnEnd::Refused(reason) => {
                held.0.give(Err(reason));
                Progress::Done(context.into_after())
            }
            TurnEnd::Over | TurnEnd::Settle => (layer.settle)(token, held, context),
        }
    }
}

/// Continues a turn that its layer has to settle before the answer, with the context of the turn so
/// far.
pub(crate) fn settle<P: Process, L: Layer<P>>(
    token: &Token,
    held: Held,
    context: OwnContext<P>,
) -> Progress {
    assert!(token.is_a::<P>() && token.is_between_turns(), "the turn to settle is not over");
    // SAFETY: the assertion above has checked that the process is a `P` with no turn under way: the
    // frame of the turn to settle is gone.
    unsafe {
        place(token, Settling, held, false, block::allocate, |Settling, process: &mut P, cx| {
            cx.go_on_from(context);
            L::settle(process, cx)
        })
    }
}

/// Title of a turn that its layer settles; see `TurnTitle`.
struct Settling;

/// An answer that waits until a layer says whether it may be given.
pub(crate) struct Held(Box<dyn Give>);

/// The outcome of a turn, and the sink for it.
struct Answer<S, R> {
    sink: S,
    outcome: Result<R, ExitReason>,
}

/// An [`Answer`] of any type.
trait Give: Send {
    /// Gives the answer, or the layer's reason to refuse it.
    fn give(self: Box<Self>, verdict: Result<(), ExitReason>);
}

impl<S: Sink> Give for Answer<S, S::Reply> {
    fn give(self: Box<Self>, verdict: Result<(), ExitReason>) {
        let Answer { sink, outcome } = *self;
        match (verdict, outcome) {
            (Ok(()), Ok(reply)) => sink.deliver(reply),
            (Err(reason), outcome) => {
                drop_users(outcome);
                sink.fail(&reason);
            }
            (Ok(()), Err(reason)) => sink.fail(&reason),
        }
    }
}

impl Sink for Held {
    type Reply = Result<(), ExitReason>;
    const LAYERED: bool = false;

    fn deliver(self, verdict: Result<(), ExitReason>) {
        self.0.give(verdict);
    }

    fn fail(self, reason: &ExitReason) {
        self.0.give(Err(reason.clone()));
    }
}
