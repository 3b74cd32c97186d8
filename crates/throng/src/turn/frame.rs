//! A turn under way: the handler's future, and the values it borrows.
//!
//! ```text
//! ┌──────────────────────┬────────────┬───────────────┬──────────────────┐
//! │ functions to resume  │ sink of    │ Context<P>    │ the future, made │
//! │ and discard, title   │ the reply  │               │ and polled here  │
//! └──────────────────────┴────────────┴───────────────┴──────────────────┘
//! ```
//!
//! The future is made in a pooled block and polled there at once: in the block of its message, if
//! the message has no caller and the frame fits. A handler that does not suspend gives the block
//! back, still in the cache, for the next turn; a handler that suspends leaves the block with its
//! process (`Cell::frame`). The future is never moved, so none is boxed on speculation. The head is
//! written once the future has suspended.
//!
//! Functions that are compiled for each kind of message, and those that they call, are inlined by force in optimised
//! builds alone. An unoptimised build calls one instance of each: the code of its many kinds is a third smaller.
//!
//! Invariants:
//! 1. A cell has at most one frame: a turn is over before the next begins.
//! 2. The future borrows the cell's state and the frame's context. No other code touches either
//!    until the future is dropped, and the context, the state and the slot all outlive the future.
//!    (The future of an async process borrows the context only; see `async_process`.)
//! 3. Whatever happens (reply, panic, exit), the sink of a turn is given exactly one answer.
//! 4. No panic of user code leaves this file.

mod layered;

pub use self::layered::HeldReply;
pub(crate) use self::layered::settle;

use self::layered::{begin_layered, consult};
use crate::cell::{CurrentProcess, Token};
use crate::exit::{ExitReason, catch, drop_users};
use crate::memory::block;
use crate::scheduler::watchdog::TurnTitle;
use crate::scheduler::with_worker;
use crate::turn::after::{After, Progress};
use crate::turn::context::{Context, OwnContext};
use crate::turn::process::{Process, Turn};
use crate::turn::sink::{NoReply, Sink};
use crate::turn::waker;
use std::alloc::Layout;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::Poll;

/// The type-erased front of a frame.
pub(crate) struct FrameHead(&'static FrameKind);

/// The data that all frames of a type share.
struct FrameKind {
    resume: unsafe fn(NonNull<FrameHead>, &Token) -> Progress,
    discard: unsafe fn(NonNull<FrameHead>, &ExitReason),
    is_last: bool,
    title: TurnTitle,
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
    context: OwnContext<P>,
    future: F,
}

/// Begins a turn.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) unsafe fn begin<P, T, S>(token: &Token, turn: T, sink: S) -> Progress
where
    P: Process,
    T: Turn<P>,
    S: Sink<Reply = T::Reply>,
{
    // SAFETY: by this function's contract the process is a `P` and has no turn under way, as
    // `begin_layered` and `place` require. The process gets no layer after its spawn.
    unsafe {
        if S::LAYERED && token.is_layered() {
            return begin_layered::<P, T, S>(token, turn, sink);
        }
        place(token, turn, sink, false, block::allocate, T::run)
    }
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

pub(crate) fn begin_last<P: Process, T: Turn<P>>(token: &Token, turn: T) -> Progress {
    assert!(token.is_a::<P>() && token.is_between_turns(), "the last turn is for another process");
    announce::<P, T>();
    // SAFETY: the assertion above has checked that the process is a `P` with no turn under way.
    unsafe { begin::<P, T, _>(token, turn, NoReply::<true, _>::new()) }
}

/// Begins a turn that has no caller, in the block of its message if that fits.
///
/// # Safety
/// The token's process is a `P` and has no turn under way. The block came from [`block::allocate`]
/// with the layout of a `B`, and the caller does not use it again.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) unsafe fn begin_in_place<P: Process, T: Turn<P>, B>(
    token: &Token,
    turn: T,
    block: NonNull<B>,
) -> Progress {
    // SAFETY: this function has the contract of `begin` and of `place`, and gives the block up.
    unsafe {
        if token.is_layered() {
            block::free(block.cast(), Layout::new::<B>());
            return begin_layered::<P, T, _>(token, turn, NoReply::<false, _>::new());
        }
        let sink = NoReply::<false, _>::new();
        place(token, turn, sink, false, |layout| recycle(block, layout), T::run)
    }
}

/// Returns a block of a layout for a block of another: the same block if both layouts have the same
/// size in the pool.
///
/// # Safety
/// The block came from [`block::allocate`] with the layout of a `B`, and the caller does not use it
/// again.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn recycle<B>(block: NonNull<B>, layout: Layout) -> NonNull<u8> {
    if block::is_same_size(Layout::new::<B>(), layout) {
        return block.cast();
    }
    // SAFETY: this function has the same contract.
    unsafe { block::free(block.cast(), Layout::new::<B>()) };
    block::allocate(layout)
}

/// Makes a turn's future in a frame, and polls it. The layer, if there is one, is consulted at the
/// end. `allocate` returns a block from [`block::allocate`] for the layout that it gets.
///
/// `make` is a function and no closure, so that all callers for a turn share one instance of this code.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn place<'a, P, T, S, F>(
    token: &Token,
    turn: T,
    sink: S,
    is_layered: bool,
    allocate: impl FnOnce(Layout) -> NonNull<u8>,
    make: impl FnOnce(T, &'a mut P, &'a mut Context<P>) -> F,
) -> Progress
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    let frame = allocate(Layout::new::<Frame<P, S, F>>()).cast();
    // SAFETY: this function has the same contract, and the frame was just allocated.
    match unsafe { place_in(frame, token, turn, sink, is_layered, make) } {
        FirstPoll::Over(after) => {
            // SAFETY: the frame was allocated above, and came back.
            unsafe { free(frame) };
            Progress::Done(after)
        }
        FirstPoll::Taken(progress) => progress,
    }
}

/// Frees the block of a frame.
///
/// # Safety
/// The block came from [`block::allocate`] for this type, its fields have been moved out or dropped, and it
/// is not used again.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn free<P: Process, S, F>(frame: NonNull<Frame<P, S, F>>) {
    // SAFETY: by the contract the block was allocated with this layout and is not used again.
    unsafe { block::free(frame.cast(), Layout::new::<Frame<P, S, F>>()) };
}

/// Outcome of a turn's first poll.
enum FirstPoll {
    /// The turn is over, and its block belongs to the caller again.
    Over(After),
    /// The turn is pending, or has ended out of the ordinary; the block is gone.
    Taken(Progress),
}

/// Does the same as [`place`], in a block of the caller's.
///
/// # Safety
/// The same as for [`place`]; `frame` came from [`block::allocate`], and nothing else uses it.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn place_in<'a, P, T, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    token: &Token,
    turn: T,
    sink: S,
    is_layered: bool,
    make: impl FnOnce(T, &'a mut P, &'a mut Context<P>) -> F,
) -> FirstPoll
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    let raw = frame.as_ptr();
    // SAFETY: the block is the caller's and has this layout, so its fields may be written. The
    // borrows given to `make` are exclusive: the state's because no turn is under way, the
    // context's because it was written just now; both outlive the future (invariant 2).
    unsafe {
        (&raw mut (*raw).sink).write(ManuallyDrop::new(sink));
        (&raw mut (*raw).context).write(OwnContext::new(CurrentProcess::new(token)));
        let state = token.state::<P>();
        let made = catch(|| make(turn, &mut *state, &mut (*raw).context));
        match made {
            Ok(future) => (&raw mut (*raw).future).write(future),
            Err(reason) => {
                return FirstPoll::Taken(conclude(frame, token, is_layered, Err(reason)));
            }
        }
        match poll_once(frame, token, is_layered) {
            Polled::Pending => {
                // Nothing reads the head before the frame is that of a pending turn.
                (&raw mut (*raw).head).write(FrameHead(KindOf::<P, T, S, F>::KIND));
                token.set_frame(Some(frame.cast()));
                FirstPoll::Taken(Progress::Pending)
            }
            Polled::Ready(reply) => FirstPoll::Over(answer(frame, Ok(reply))),
            Polled::Concluded(progress) => FirstPoll::Taken(progress),
        }
    }
}

/// Begins the turns of several messages, one after the other in the same block, for as long as each
/// is over at its first poll. `next` returns the next message, and notes that its turn begins.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) unsafe fn begin_each<P: Process, T: Turn<P>>(
    token: &Token,
    first: T,
    next: impl FnMut() -> Option<T>,
) -> Progress {
    // SAFETY: this function has the contract of both functions.
    unsafe {
        if token.is_layered() {
            return begin_layered::<P, T, _>(token, first, NoReply::<false, _>::new());
        }
        place_each(token, first, next, T::run)
    }
}

/// Does the work of [`begin_each`], for turns whose futures `make` makes.
///
/// # Safety
/// The token's process is a `P` and has no turn under way.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn place_each<'a, P, T, F>(
    token: &Token,
    first: T,
    mut next: impl FnMut() -> Option<T>,
    make: impl Fn(T, &'a mut P, &'a mut Context<P>) -> F + Copy,
) -> Progress
where
    P: Process,
    T: Turn<P>,
    F: Future<Output = T::Reply>,
{
    let layout = Layout::new::<Frame<P, NoReply<false, T::Reply>, F>>();
    let frame = block::allocate(layout).cast::<Frame<P, NoReply<false, T::Reply>, F>>();
    let mut turn = first;
    loop {
        let sink = NoReply::new();
        // SAFETY: this function has the same contract; the frame is this function's, or came back.
        match unsafe { place_in(frame, token, turn, sink, false, make) } {
            FirstPoll::Over(After::Next) => match next() {
                Some(further) => turn = further,
                None => {
                    // SAFETY: the frame was allocated above, and came back.
                    unsafe { free(frame) };
                    return Progress::Done(After::Next);
                }
            },
            FirstPoll::Over(after) => {
                // SAFETY: the frame was allocated above, and came back.
                unsafe { free(frame) };
                return Progress::Done(after);
            }
            FirstPoll::Taken(progress) => return progress,
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
    let frame = frame.cast::<Frame<P, S, F>>();
    let is_layered = token.is_layered();
    // SAFETY: `KindOf` gives this function to frames of exactly this type; by the contract of
    // `resume_turn` the frame is pending in the token's cell. It is set in the cell for as long as
    // it is pending.
    unsafe {
        match poll_once(frame, token, is_layered) {
            Polled::Pending => Progress::Pending,
            Polled::Ready(reply) => finish(frame, Ok(reply)),
            Polled::Concluded(progress) => progress,
        }
    }
}

/// Outcome of a poll.
enum Polled<R> {
    Pending,
    /// The future is dropped and no layer is to be asked; the rest of the frame is whole.
    Ready(R),
    /// The turn is over, and so is its frame.
    Concluded(Progress),
}

/// Polls the future of a frame. If the future is done, drops it, and concludes the turn unless that
/// takes no more than the answer.
///
/// # Safety
/// The frame is whole, and pending in the token's cell if it was polled before. The token's process
/// is a `P`.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn poll_once<P, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    token: &Token,
    is_layered: bool,
) -> Polled<S::Reply>
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
    let reply = match polled {
        Ok(Poll::Pending) => return Polled::Pending,
        Ok(Poll::Ready(reply)) => reply,
        Err(reason) => {
            // SAFETY: the future has panicked, and has not been dropped.
            let progress = unsafe { conclude_panicked(frame, token, is_layered, reason) };
            return Polled::Concluded(progress);
        }
    };
    token.set_frame(None);
    // SAFETY: the future has ended. The cell has no frame now, so it is not polled or dropped again.
    let dropped = unsafe { drop_caught(future) };
    // SAFETY: the future has been dropped, and the other fields of the frame are whole.
    unsafe {
        match dropped {
            Ok(()) if !is_layered => Polled::Ready(reply),
            Ok(()) => Polled::Concluded(conclude(frame, token, is_layered, Ok(reply))),
            Err(reason) => {
                drop_users(reply);
                Polled::Concluded(conclude(frame, token, is_layered, Err(reason)))
            }
        }
    }
}

/// Drops a future in its frame; in one place for all kinds of turns.
///
/// # Errors
/// The reason of its panic, if its drop panics.
///
/// # Safety
/// The future is whole, no reference to it is in use, and it is not used again.
#[inline]
unsafe fn drop_caught<F>(future: *mut F) -> Result<(), ExitReason> {
    // SAFETY: this function has the same contract.
    catch(|| unsafe { future.drop_in_place() })
}

/// Ends a turn whose poll has panicked.
///
/// # Safety
/// The frame is that of the token's cell and is whole; neither it nor its future is used again. The
/// token's process is a `P`.
#[cold]
unsafe fn conclude_panicked<P, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    token: &Token,
    is_layered: bool,
    reason: ExitReason,
) -> Progress
where
    P: Process,
    S: Sink,
    F: Future<Output = S::Reply>,
{
    token.set_frame(None);
    // SAFETY: by the contract the future is dropped only here, and the rest of the frame is whole.
    unsafe {
        let dropped = drop_caught(&raw mut (*frame.as_ptr()).future);
        conclude(frame, token, is_layered, Err(dropped.err().unwrap_or(reason)))
    }
}

/// Ends a turn whose future has been dropped: at once, or as the process's layer decides.
///
/// # Safety
/// All fields of the frame but its future are whole, and the frame is not used again. The token's
/// process is a `P`, and no reference to its state is in use.
#[cold]
unsafe fn conclude<P, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    token: &Token,
    is_layered: bool,
    outcome: Result<S::Reply, ExitReason>,
) -> Progress
where
    P: Process,
    S: Sink,
{
    // SAFETY: `consult` has the same contract as this function; the contract of `finish` is a part
    // of it.
    unsafe {
        if S::LAYERED && is_layered {
            return consult(frame, token, outcome);
        }
        finish(frame, outcome)
    }
}

/// Answers, frees the frame, and returns the next step.
///
/// # Safety
/// All of the frame but its future is whole, and it is not used again.
#[inline]
unsafe fn finish<P, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    outcome: Result<S::Reply, ExitReason>,
) -> Progress
where
    P: Process,
    S: Sink,
{
    // SAFETY: this function has the contract of both functions.
    unsafe {
        let after = answer(frame, outcome);
        free(frame);
        Progress::Done(after)
    }
}

/// Answers, and returns the next step; the block of the frame is the caller's.
///
/// # Safety
/// All of the frame but its future is whole, and its fields are not used again.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn answer<P, S, F>(
    frame: NonNull<Frame<P, S, F>>,
    outcome: Result<S::Reply, ExitReason>,
) -> After
where
    P: Process,
    S: Sink,
{
    let after = match outcome {
        // SAFETY: by this function's contract both fields are whole and not used again, so each is
        // moved out once; a plain context need not be.
        Ok(reply) => unsafe {
            let is_plain = (*frame.as_ptr()).context.is_plain();
            ManuallyDrop::take(&mut (*frame.as_ptr()).sink).deliver(reply);
            if is_plain {
                return After::Next;
            }
            (&raw mut (*frame.as_ptr()).context).read().into_after()
        },
        Err(reason) => {
            // SAFETY: by this function's contract, which is that of `take_apart`.
            let (sink, context) = unsafe { take_apart(frame) };
            drop(context);
            sink.fail(&reason);
            After::exit(reason)
        }
    };
    match after {
        After::Exit(reason) if S::LAST => After::Ended(reason),
        after => after,
    }
}

/// Returns the sink and the context of a frame.
///
/// # Safety
/// All of the frame but its future is whole, and its fields are not used again.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn take_apart<P: Process, S, F>(frame: NonNull<Frame<P, S, F>>) -> (S, OwnContext<P>) {
    let raw = frame.as_ptr();
    // SAFETY: by the contract both fields are whole and not used again, so each is moved out once.
    unsafe {
        let sink = ManuallyDrop::take(&mut (*raw).sink);
        let context = (&raw mut (*raw).context).read();
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
        let _ = drop_caught(future);
        let _ = finish(frame, Err(reason.clone()));
    }
}
