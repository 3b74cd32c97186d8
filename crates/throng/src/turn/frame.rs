//! A turn under way: the handler's future, and what it borrows.
//!
//! ```text
//! ┌──────────────────────┬────────────┬───────────────┬──────────────────┐
//! │ how to go on, how to │ whom to    │ Context<P>    │ the future, made │
//! │ give up, what it is  │ answer     │               │ and polled here  │
//! └──────────────────────┴────────────┴───────────────┴──────────────────┘
//! ```
//!
//! The future is made in a pooled block and polled there at once. A handler that does not suspend
//! gives the block back hot, to be the next turn's; one that does just leaves it with its process
//! (`Cell::frame`). Nothing is ever moved, so nothing is boxed on speculation.
//!
//! Invariants:
//! 1. A cell has at most one frame: a turn is over before the next begins.
//! 2. The future borrows the cell's state and the frame's context; nobody else touches either
//!    until it is dropped, which is before the context, the state and the slot are.
//! 3. Whatever happens (reply, panic, exit), the one who is to be answered is answered once.
//! 4. No panic of the user's leaves this file.

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

/// How far a turn came.
#[must_use]
pub(crate) enum Progress {
    /// It waits for something; the frame stays with the cell.
    Pending,
    /// It is over.
    Done(After),
}

/// What a finished turn wants done with its process.
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
    /// It was the last turn of an exit for this reason.
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

// Every turn returns one: two words travel in registers, more would go through memory.
const _: () = assert!(size_of::<Progress>() <= 16, "how a turn went fits two registers");

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
        // The most frequent one, and the cheapest.
        BoxedReason((reason != ExitReason::Normal).then(|| Box::new(reason)))
    }
}

impl From<BoxedReason> for ExitReason {
    fn from(BoxedReason(reason): BoxedReason) -> ExitReason {
        reason.map_or(ExitReason::Normal, |reason| *reason)
    }
}

/// Where a turn's reply goes.
pub(crate) trait Sink: Send + 'static {
    type Reply: Send + 'static;
    /// Whether this is the last turn of an exit. Such a turn asks for the exit itself.
    const LAST: bool = false;
    /// Whether a layer has its say before the answer; see `layer`.
    const LAYERED: bool = true;

    fn deliver(self, reply: Self::Reply);
    fn fail(self, reason: &ExitReason);
}

/// The type-erased front of a frame.
pub(crate) struct FrameHead(&'static FrameKind);

/// What frames of one type have in common.
struct FrameKind {
    resume: unsafe fn(NonNull<FrameHead>, &Token) -> Progress,
    discard: unsafe fn(NonNull<FrameHead>, &ExitReason),
    is_last: bool,
    title: TurnTitle,
    /// What the frame's block takes.
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
        // SAFETY: passed on.
        if let Err(reason) = unsafe { admit::<P>(token) } {
            // It may have been the first turn, for which signals wait.
            token.forgo_first();
            drop_users(turn);
            sink.fail(&reason);
            return Progress::Done(After::ExitIfIdle);
        }
    }
    // SAFETY: passed on.
    unsafe { place::<P, T, S, _>(token, sink, |process, cx| turn.run(process, cx)) }
}

/// Asks the layer whether a turn may begin.
///
/// # Safety
/// As [`begin`].
#[cold]
unsafe fn admit<P: Process>(token: &Token) -> Result<(), ExitReason> {
    let Some(layer) = layer::of::<P>(token) else { return Ok(()) };
    // SAFETY: no turn is under way, so this context is the only one while it lives.
    let mut context = Context::new(unsafe { CurrentProcess::new(token) });
    catch(|| (layer.begin)(&mut context)).flatten()
}

/// Begins a turn that no message of the mailbox asks for.
pub(crate) fn begin_hook<P: Process, T: Turn<P>>(token: &Token, turn: T) -> Progress {
    assert!(token.is_a::<P>(), "the hook is another process's");
    announce::<P, T>();
    // SAFETY: a `P`, and hooks begin between two turns.
    unsafe { begin::<P, T, _>(token, turn, NoReply::<false, _>::new()) }
}

/// Says which turn begins, where no message has said it.
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
    // SAFETY: a `P`, and no turn is under way.
    unsafe { begin::<P, T, _>(token, turn, NoReply::<true, _>::new()) }
}

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
    // SAFETY: freshly allocated with this layout, so all fields are ours to write. The borrows
    // given to `make` are exclusive: the state's because no turn is under way, the context's
    // because it was written just now; both outlive the future by the file's invariant 2.
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

/// Goes on with a turn that was pending.
///
/// # Safety
/// The frame is the token's cell's.
pub(crate) unsafe fn resume_turn(frame: NonNull<FrameHead>, token: &Token) -> Progress {
    // SAFETY: the head is the frame's own.
    unsafe { (frame.as_ref().0.resume)(frame, token) }
}

/// What turn it is.
///
/// # Safety
/// The frame is there.
pub(crate) unsafe fn title_of(frame: NonNull<FrameHead>) -> &'static TurnTitle {
    // SAFETY: as said.
    unsafe { &frame.as_ref().0.title }
}

/// Drops a turn that was pending; its caller is told the reason.
///
/// # Safety
/// The frame is one of a cell whose token the caller holds, and is not used again.
pub(crate) unsafe fn discard_turn(frame: NonNull<FrameHead>, reason: &ExitReason) {
    // SAFETY: as above.
    unsafe { (frame.as_ref().0.discard)(frame, reason) }
}

/// Which message's turn is pending, and what its frame takes.
///
/// # Safety
/// The frame is one of a cell whose token the caller holds.
pub(crate) unsafe fn describe(frame: NonNull<FrameHead>) -> (&'static str, usize) {
    // SAFETY: the head is the frame's own.
    let kind = unsafe { frame.as_ref().0 };
    (kind.title.message(), kind.bytes)
}

/// Whether a turn that is pending is its process's last.
///
/// # Safety
/// The frame is one of a cell whose token the caller holds.
pub(crate) unsafe fn is_last(frame: NonNull<FrameHead>) -> bool {
    // SAFETY: the head is the frame's own.
    unsafe { frame.as_ref().0.is_last }
}

unsafe fn resume<P, S, F>(frame: NonNull<FrameHead>, token: &Token) -> Progress
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    // SAFETY: a frame's functions are those of its type.
    unsafe { poll(frame.cast::<Frame<P, S, F>>(), token) }
}

#[inline(always)]
unsafe fn poll<P, S, F>(frame: NonNull<Frame<P, S, F>>, token: &Token) -> Progress
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    // SAFETY: the frame is whole and its future is never moved: it stays in its block.
    let future = unsafe { &raw mut (*frame.as_ptr()).future };
    let waker = waker::of(token);
    let polled = catch(|| {
        // SAFETY: as above; the token excludes any other poll.
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
    // SAFETY: the future is over and nobody polls it again.
    let dropped = catch(|| unsafe { future.drop_in_place() });
    let outcome = match dropped {
        Ok(()) => outcome,
        Err(reason) => {
            drop_users(outcome);
            Err(reason)
        }
    };
    // SAFETY: the future is gone, the rest is whole.
    unsafe { conclude(frame, token, outcome) }
}

/// Ends a turn whose future is gone: at once, or when the layer has had its say.
///
/// # Safety
/// As [`finish`]; the token's process is a `P`, and no reference to its state is in use.
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
    // SAFETY: passed on.
    unsafe {
        if S::LAYERED && token.is_layered() {
            return consult(frame, token, outcome);
        }
        finish(frame, outcome)
    }
}

/// # Safety
/// As [`conclude`].
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
    // SAFETY: the future, which borrowed state and context, is gone; both are lent for the call.
    // Then the frame is finished, or taken apart as there: sink and context are moved out once.
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

/// Goes on with a turn that a layer has to settle before it is answered. The context is that of
/// the turn so far.
pub(crate) fn settle<P: Process, L: Layer<P>>(
    token: &Token,
    held: Held,
    context: Context<P>,
) -> Progress {
    assert!(token.is_a::<P>() && token.is_between_turns(), "another turn is to be settled");
    // SAFETY: a `P`, and the frame of the turn that settles is gone.
    unsafe {
        place::<P, Settling, Held, _>(token, held, |process, cx| {
            *cx = context;
            L::settle(process, cx)
        })
    }
}

/// What a turn that settles is called.
struct Settling;

/// An answer that is held back until a layer says whether it may be given.
pub(crate) struct Held(Box<dyn Give>);

/// What was to be answered, and to whom.
struct Answer<S, R> {
    sink: S,
    outcome: Result<R, ExitReason>,
}

/// An [`Answer`] of some type.
trait Give: Send {
    /// Gives the answer, or the reason why it may not be given.
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

/// Answers, frees the frame, and says what comes next.
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
    // SAFETY: by the contract.
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

/// Frees the frame and returns what is left in it.
///
/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn take_apart<P: Process, S, F>(frame: NonNull<Frame<P, S, F>>) -> (S, Context<P>) {
    let raw = frame.as_ptr();
    // SAFETY: by the contract; both are moved out once.
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
    // SAFETY: by the contract the frame is whole, pending, and ours.
    unsafe {
        let future = &raw mut (*frame.as_ptr()).future;
        // Its caller is told the reason of the exit, whatever this does.
        let _ = catch(|| future.drop_in_place());
        let _ = finish(frame, Err(reason.clone()));
    }
}

/// For turns whose reply nobody waits for.
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
