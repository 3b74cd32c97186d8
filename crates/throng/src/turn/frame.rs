//! A turn under way: the handler's future, and the values it borrows.
//!
//! ```text
//! ┌──────────────────────┬────────────┬───────────────┬──────────────────┐
//! │ functions to resume  │ sink of    │ Context<P>    │ the future, made │
//! │ and discard, title   │ the reply  │               │ and polled here  │
//! └──────────────────────┴────────────┴───────────────┴──────────────────┘
//! ```
//!
//! The future is made in a pooled block and polled there at once. A handler that does not suspend
//! gives the block back, still in the cache, for the next turn; a handler that suspends leaves the
//! block with its process (`Cell::frame`). The future is never moved, so none is boxed on
//! speculation.
//!
//! Invariants:
//! 1. A cell has at most one frame: a turn is over before the next begins.
//! 2. The future borrows the cell's state and the frame's context. No other code touches either
//!    until the future is dropped, and the context, the state and the slot all outlive the future.
//!    (The future of an async process borrows the context only; see `async_process`.)
//! 3. Whatever happens (reply, panic, exit), the sink of a turn is given exactly one answer.
//! 4. No panic of user code leaves this file.

use crate::cell::{CurrentProcess, Token};
use crate::exit::{ExitReason, catch, drop_users};
use crate::memory::block;
use crate::process::{Process, Turn};
use crate::scheduler::watchdog::TurnTitle;
use crate::scheduler::with_worker;
use crate::turn::context::Context;
use crate::turn::layer::{self, Layer, TurnEnd};
use crate::turn::waker;
use std::alloc::Layout;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::Poll;

/// Progress of a turn after a poll.
#[must_use]
pub(crate) enum Progress {
    /// The turn waits for something; the frame stays with the cell.
    Pending,
    /// The turn is over.
    Done(After),
}

/// The step that a finished turn requests for its process.
#[derive(Debug)]
pub(crate) enum After {
    /// Go on with the next message.
    Next,
    /// Exit.
    Exit(BoxedReason),
    /// Exit if no message waits.
    ExitIfIdle,
    /// Exit at once, without a last turn.
    Kill,
    /// End the process: this was the last turn of an exit, for this reason.
    Ended(BoxedReason),
}

impl After {
    pub(crate) fn exit(reason: ExitReason) -> After {
        After::Exit(BoxedReason::from(reason))
    }

    pub(crate) fn ended(reason: ExitReason) -> After {
        After::Ended(BoxedReason::from(reason))
    }
}

// Every turn returns a `Progress`: two words travel in registers, more would go through memory.
const _: () = assert!(size_of::<Progress>() <= 16, "a turn's progress fits two registers");

/// An exit reason in one word.
#[derive(Debug)]
pub(crate) struct BoxedReason(Option<Box<ExitReason>>);

impl BoxedReason {
    pub(crate) fn reason(&self) -> &ExitReason {
        self.0.as_deref().unwrap_or(&ExitReason::Normal)
    }
}

impl From<ExitReason> for BoxedReason {
    fn from(reason: ExitReason) -> BoxedReason {
        // The most frequent reason, without an allocation.
        BoxedReason((reason != ExitReason::Normal).then(|| Box::new(reason)))
    }
}

impl From<BoxedReason> for ExitReason {
    fn from(BoxedReason(reason): BoxedReason) -> ExitReason {
        reason.map_or(ExitReason::Normal, |reason| *reason)
    }
}

/// Destination of a turn's reply.
pub(crate) trait Sink: Send + 'static {
    type Reply: Send + 'static;
    /// Whether this is the last turn of an exit. Such a turn requests the exit itself.
    const LAST: bool = false;
    /// Whether a layer is consulted before the answer; see `layer`.
    const LAYERED: bool = true;

    fn deliver(self, reply: Self::Reply);
    fn fail(self, reason: &ExitReason);
}

/// The type-erased front of a frame.
pub(crate) struct FrameHead(&'static FrameKind);

/// The data that all frames of a type share.
struct FrameKind {
    resume: unsafe fn(NonNull<FrameHead>, &Token) -> Progress,
    discard: unsafe fn(NonNull<FrameHead>, &ExitReason),
    is_last: bool,
    title: TurnTitle,
    /// Bytes of the frame's block.
    bytes: usize,
}

/// The `FrameKind` of a turn `T`, whose future is an `F`.
struct KindOf<P, T, S, F>(PhantomData<(P, T, S, F)>);

impl<P, T, S, F> KindOf<P, T, S, F>
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    const KIND: &'static FrameKind = &FrameKind {
        resume: resume::<P, S, F>,
        discard: discard::<P, S, F>,
        is_last: S::LAST,
        title: TurnTitle::of::<P, T>(),
        bytes: block::bytes(Layout::new::<Frame<P, S, F>>()),
    };
}

#[repr(C)]
struct Frame<P: Process, S, F> {
    head: FrameHead,
    sink: ManuallyDrop<S>,
    context: Context<P>,
    future: F,
}

/// Begins a turn.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
#[inline(always)]
pub(crate) unsafe fn begin<P, T, S>(token: &Token, turn: T, sink: S) -> Progress
where
    P: Process,
    T: Turn<P>,
    S: Sink<Reply = T::Reply>,
{
    if S::LAYERED && T::LAYERED && token.is_layered() {
        // SAFETY: by this function's contract the process is a `P` and has no turn under way, as
        // `admit` requires.
        if let Err(reason) = unsafe { admit::<P>(token) } {
            // The refused turn may be the first turn, for which signals wait.
            token.forgo_first();
            drop_users(turn);
            sink.fail(&reason);
            return Progress::Done(After::ExitIfIdle);
        }
    }
    // SAFETY: by this function's contract the process is a `P` and has no turn under way, as
    // `place` requires.
    unsafe { place::<P, T, S, _>(token, sink, |process, cx| turn.run(process, cx)) }
}

/// Asks the layer whether a turn may begin.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
#[cold]
unsafe fn admit<P: Process>(token: &Token) -> Result<(), ExitReason> {
    let Some(layer) = layer::of::<P>(token) else { return Ok(()) };
    // SAFETY: by the contract no turn is under way, so no other context exists while this context
    // lives.
    let mut context = Context::new(unsafe { CurrentProcess::new(token) });
    catch(|| (layer.begin)(&mut context)).flatten()
}

/// Begins the turn of a hook, which no message of the mailbox asks for.
pub(crate) fn begin_hook<P: Process, T: Turn<P>>(token: &Token, turn: T) -> Progress {
    assert!(token.is_a::<P>(), "the hook is for another type of process");
    announce::<P, T>();
    // SAFETY: the assertion above has checked that the process is a `P`; hooks begin between two
    // turns, so no turn is under way.
    unsafe { begin::<P, T, _>(token, turn, NoReply::<false, _>::new()) }
}

/// Notes the turn that begins for the watchdog, where no message has noted it.
fn announce<P: Process, T: Turn<P>>() {
    with_worker(|worker| {
        if let Some(worker) = worker {
            worker.current_turn().begin(const { &TurnTitle::of::<P, T>() });
        }
    });
}

/// Begins the last turn of an exit.
pub(crate) fn begin_last<P: Process, T: Turn<P>>(token: &Token, turn: T) -> Progress {
    assert!(token.is_a::<P>() && token.is_between_turns(), "the last turn is for another process");
    announce::<P, T>();
    // SAFETY: the assertion above has checked that the process is a `P` with no turn under way.
    unsafe { begin::<P, T, _>(token, turn, NoReply::<true, _>::new()) }
}

/// Makes a turn's future in a frame, and polls it.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
#[inline(always)]
unsafe fn place<'a, P, T, S, F>(
    token: &Token,
    sink: S,
    make: impl FnOnce(&'a mut P, &'a mut Context<P>) -> F,
) -> Progress
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    let frame = block::allocate(Layout::new::<Frame<P, S, F>>()).cast::<Frame<P, S, F>>();
    let raw = frame.as_ptr();
    // SAFETY: the block is freshly allocated with this layout, so its fields may be written. The
    // borrows given to `make` are exclusive: the state's because no turn is under way, the
    // context's because it was written just now; both outlive the future (invariant 2).
    unsafe {
        (&raw mut (*raw).head).write(FrameHead(KindOf::<P, T, S, F>::KIND));
        (&raw mut (*raw).sink).write(ManuallyDrop::new(sink));
        (&raw mut (*raw).context).write(Context::new(CurrentProcess::new(token)));
        let state = token.state::<P>();
        let made = catch(|| make(&mut *state, &mut (*raw).context));
        match made {
            Ok(future) => {
                (&raw mut (*raw).future).write(future);
                poll(frame, token)
            }
            Err(reason) => conclude(frame, token, Err(reason)),
        }
    }
}

/// Polls a turn that was pending again.
///
/// # Safety
/// The frame is that of the token's cell.
pub(crate) unsafe fn resume_turn(frame: NonNull<FrameHead>, token: &Token) -> Progress {
    // SAFETY: by the contract the frame is whole and belongs to the token's cell; `resume` is the
    // function for the frame's own type (`KindOf`).
    unsafe { (frame.as_ref().0.resume)(frame, token) }
}

/// Returns the title of a turn under way.
///
/// # Safety
/// The frame has not been freed.
pub(crate) unsafe fn title_of(frame: NonNull<FrameHead>) -> &'static TurnTitle {
    // SAFETY: by the contract the head can be read; the title itself is static.
    unsafe { &frame.as_ref().0.title }
}

/// Drops a turn that was pending; its caller gets the reason.
///
/// # Safety
/// The frame is that of a cell whose token the caller holds, and is not used again.
pub(crate) unsafe fn discard_turn(frame: NonNull<FrameHead>, reason: &ExitReason) {
    // SAFETY: by the contract the frame is whole and is given up here; `discard` is the function
    // for the frame's own type (`KindOf`).
    unsafe { (frame.as_ref().0.discard)(frame, reason) }
}

/// Returns the name of a pending turn's message, and the bytes of the turn's frame.
///
/// # Safety
/// The frame is that of a cell whose token the caller holds.
pub(crate) unsafe fn describe(frame: NonNull<FrameHead>) -> (&'static str, usize) {
    // SAFETY: by the contract no other thread frees the frame, so its head can be read.
    let kind = unsafe { frame.as_ref().0 };
    (kind.title.message(), kind.bytes)
}

/// Whether a pending turn is the last turn of its process.
///
/// # Safety
/// The frame is that of a cell whose token the caller holds.
pub(crate) unsafe fn is_last(frame: NonNull<FrameHead>) -> bool {
    // SAFETY: by the contract no other thread frees the frame, so its head can be read.
    unsafe { frame.as_ref().0.is_last }
}

unsafe fn resume<P, S, F>(frame: NonNull<FrameHead>, token: &Token) -> Progress
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    // SAFETY: `KindOf` gives this function to frames of exactly this type; by the contract of
    // `resume_turn` the frame is pending in the token's cell.
    unsafe { poll(frame.cast::<Frame<P, S, F>>(), token) }
}

/// Polls the future of a frame, and concludes the turn if the future is done.
///
/// # Safety
/// The frame is pending in the token's cell, and the token's process is a `P`.
#[inline(always)]
unsafe fn poll<P, S, F>(frame: NonNull<Frame<P, S, F>>, token: &Token) -> Progress
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    // SAFETY: the frame is whole: its future is written before the first poll, and there is no poll
    // after the future's drop, below or in `discard`.
    let future = unsafe { &raw mut (*frame.as_ptr()).future };
    let waker = waker::of(token);
    let polled = catch(|| {
        // SAFETY: the future stays in its block until it is dropped; the token excludes any other
        // poll.
        let future = unsafe { Pin::new_unchecked(&mut *future) };
        future.poll(&mut std::task::Context::from_waker(&waker))
    });
    let outcome = match polled {
        Ok(Poll::Pending) => {
            token.set_frame(Some(frame.cast()));
            return Progress::Pending;
        }
        Ok(Poll::Ready(reply)) => Ok(reply),
        Err(reason) => Err(reason),
    };
    token.set_frame(None);
    // SAFETY: the future has ended or panicked. The cell has no frame now, so it is not polled or
    // dropped again.
    let dropped = catch(|| unsafe { future.drop_in_place() });
    let outcome = match dropped {
        Ok(()) => outcome,
        Err(reason) => {
            drop_users(outcome);
            Err(reason)
        }
    };
    // SAFETY: the future has been dropped, and the other fields of the frame are whole.
    unsafe { conclude(frame, token, outcome) }
}

/// Ends a turn whose future has been dropped: at once, or as the process's layer decides.
///
/// # Safety
/// All fields of the frame but its future are whole, and the frame is not used again. The token's
/// process is a `P`, and no reference to its state is in use.
#[inline(always)]
unsafe fn conclude<P, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    token: &Token,
    outcome: Result<S::Reply, ExitReason>,
) -> Progress
where
    P: Process,
    S: Sink,
{
    // SAFETY: `consult` has the same contract as this function; the contract of `finish` is a part
    // of it.
    unsafe {
        if S::LAYERED && token.is_layered() {
            return consult(frame, token, outcome);
        }
        finish(frame, outcome)
    }
}

/// Ends a turn whose future is gone, as its layer decides.
///
/// # Safety
/// The contract of [`conclude`].
#[cold]
unsafe fn consult<P, S, F>(
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
            (layer.end)(&mut *token.state::<P>(), &mut (*raw).context, outcome)
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
    context: Context<P>,
) -> Progress {
    assert!(token.is_a::<P>() && token.is_between_turns(), "the turn to settle is not over");
    // SAFETY: the assertion above has checked that the process is a `P` with no turn under way: the
    // frame of the turn to settle is gone.
    unsafe {
        place::<P, Settling, Held, _>(token, held, |process, cx| {
            *cx = context;
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

/// Answers, frees the frame, and returns the next step.
///
/// # Safety
/// All of the frame but its future is whole, and it is not used again.
#[inline(always)]
unsafe fn finish<P, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    outcome: Result<S::Reply, ExitReason>,
) -> Progress
where
    P: Process,
    S: Sink,
{
    // SAFETY: by this function's contract, which is that of `take_apart`.
    let (sink, context) = unsafe { take_apart(frame) };
    let after = match outcome {
        Ok(reply) => {
            sink.deliver(reply);
            context.into_after()
        }
        Err(reason) => {
            sink.fail(&reason);
            After::exit(reason)
        }
    };
    Progress::Done(match after {
        After::Exit(reason) if S::LAST => After::Ended(reason),
        after => after,
    })
}

/// Frees the frame and returns its sink and context.
///
/// # Safety
/// All of the frame but its future is whole, and it is not used again.
#[inline(always)]
unsafe fn take_apart<P: Process, S, F>(frame: NonNull<Frame<P, S, F>>) -> (S, Context<P>) {
    let raw = frame.as_ptr();
    // SAFETY: by the contract both fields are whole and the frame is not used again, so each is
    // moved out once.
    unsafe {
        let sink = ManuallyDrop::take(&mut (*raw).sink);
        let context = (&raw mut (*raw).context).read();
        block::free(frame.cast(), Layout::new::<Frame<P, S, F>>());
        (sink, context)
    }
}

unsafe fn discard<P, S, F>(frame: NonNull<FrameHead>, reason: &ExitReason)
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    let frame = frame.cast::<Frame<P, S, F>>();
    // SAFETY: by the contract of `discard_turn` the frame is pending, therefore whole, and is given
    // up here: its future is dropped once, then the rest is finished once.
    unsafe {
        let future = &raw mut (*frame.as_ptr()).future;
        // The turn's caller gets the reason of the exit, whatever the future's drop does.
        let _ = catch(|| future.drop_in_place());
        let _ = finish(frame, Err(reason.clone()));
    }
}

/// Sink of a turn without a caller: drops the reply.
pub(crate) struct NoReply<const LAST: bool, R>(PhantomData<fn(R)>);

impl<const LAST: bool, R> NoReply<LAST, R> {
    pub(crate) const fn new() -> Self {
        NoReply(PhantomData)
    }
}

impl<const LAST: bool, R: Send + 'static> Sink for NoReply<LAST, R> {
    type Reply = R;
    const LAST: bool = LAST;
    const LAYERED: bool = !LAST;

    #[inline(always)]
    fn deliver(self, reply: R) {
        drop_users(reply);
    }

    fn fail(self, _: &ExitReason) {}
}
