//! Answers that need not come from the turn that was asked: later, from elsewhere, or never.

use crate::address::RawAddress;
use crate::address::call::{self, StopWaiting, Waited};
use crate::address::cycle::Chase;
use crate::address::deadline::Deadline;
use crate::error::CallError;
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::bounded::Refusal;
use crate::mailbox::envelope::{self, Failure, OfferOrWait, PendingReply, Responder, WaitingCast};
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The way to answer one question, once. Made by [`Address::ask`](crate::Address::ask).
///
/// It travels in a message like any other value. A process may answer in the same turn, or keep
/// it in its state and answer later, while it handles other messages; or pass it on to a process
/// that knows more, whose answer then goes to the asker directly:
///
/// ```
/// use throng::prelude::*;
///
/// /// Asks for a number, as soon as there is one.
/// struct Get { reply: ReplyTo<u64> }
/// impl Message for Get { type Reply = (); }
/// struct Set(u64);
/// impl Message for Set { type Reply = (); }
///
/// #[derive(Default)]
/// struct Later { number: Option<u64>, waiting: Vec<ReplyTo<u64>> }
/// impl Process for Later {}
/// impl Handle<Get> for Later {
///     async fn handle(&mut self, Get { reply }: Get, _: &mut Context<Self>) {
///         match self.number {
///             // That the asker has given up is no concern of ours.
///             Some(number) => drop(reply.send(number)),
///             None => self.waiting.push(reply),
///         }
///     }
/// }
/// impl Handle<Set> for Later {
///     async fn handle(&mut self, Set(number): Set, _: &mut Context<Self>) {
///         self.number = Some(number);
///         self.waiting.drain(..).for_each(|reply| drop(reply.send(number)));
///     }
/// }
///
/// /// Passes each question on. It waits for nothing, and so is free for the next.
/// struct Front { back: Address<Later> }
/// impl Process for Front {}
/// impl Handle<Get> for Front {
///     async fn handle(&mut self, get: Get, _: &mut Context<Self>) {
///         // If there is nobody, the question is dropped with the error, and its asker is told.
///         let _ = self.back.send(get);
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let number = runtime.block_on(async |runtime| {
///     let later = runtime.spawn(Later::default())?;
///     let front = runtime.spawn(Front { back: later })?;
///     let asked = tokio::spawn(front.ask(|reply| Get { reply }));
///     later.send(Set(7))?;
///     Ok::<_, throng::Error>(asked.await.expect("does not panic")?)
/// })?;
/// assert_eq!(number, 7);
/// # Ok(())
/// # }
/// ```
///
/// Dropping it unused tells the asker [`CallError::Unanswered`]: at once, not at the deadline.
#[must_use = "dropping it tells the asker that there will be no answer"]
pub struct ReplyTo<R>(Option<Responder<(), R>>);

impl<R> ReplyTo<R> {
    /// Answers.
    ///
    /// # Errors
    /// The answer comes back if the asker has given up, by its deadline or otherwise. That it was
    /// still waiting does not mean that it will look.
    pub fn send(mut self, answer: R) -> Result<(), R> {
        match self.0.take().map(|responder| responder.complete(Ok(answer))) {
            Some(Err(Ok(unwanted))) => Err(unwanted),
            _ => Ok(()),
        }
    }

    /// Whether the asker still waits; if not, there is no need to work out an answer.
    pub fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(Responder::is_awaited)
    }
}

impl<R> Drop for ReplyTo<R> {
    fn drop(&mut self) {
        if let Some(responder) = self.0.take() {
            // The reason is not looked at: to the asker each one is `Unanswered`.
            drop_users(responder.complete(Err(Failure::Died(ExitReason::Normal))));
        }
    }
}

impl<R> fmt::Debug for ReplyTo<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_awaited() { "ReplyTo(awaited)" } else { "ReplyTo(given up)" })
    }
}

/// A question under way: with a `T`, for an `R`. Made by [`Address::ask`](crate::Address::ask).
///
/// Its deadline is a [`Call`](crate::Call)'s, and like a call it waits within that for room in a
/// mailbox that is full and bounded with [`Overflow::Wait`](crate::Overflow::Wait).
#[must_use = "a question is not sent until it is awaited"]
pub struct Ask<T, R> {
    stage: Stage<T, R>,
    deadline: Deadline,
}

enum Stage<T, R> {
    Unsent {
        to: RawAddress,
        offer_or_wait: OfferOrWait<T>,
        message: T,
        pending: PendingReply<(), R>,
    },
    /// There is nobody to send it to.
    Refused(T),
    WaitingForRoom(WaitingCast<T>, PendingReply<(), R>, Chase),
    Waiting(PendingReply<(), R>, Chase),
    Over,
}

type Outcome<T, R> = Result<R, CallError<T>>;

// Nothing in here is pinned in place: message and outcome have blocks of their own.
impl<T, R> Unpin for Ask<T, R> {}

impl<T, R> Ask<T, R> {
    pub(crate) fn new(
        to: RawAddress,
        offer_or_wait: OfferOrWait<T>,
        question: impl FnOnce(ReplyTo<R>) -> T,
    ) -> Self {
        let (pending, responder) = envelope::question(Waker::noop());
        let message = question(ReplyTo(Some(responder)));
        let stage = Stage::Unsent { to, offer_or_wait, message, pending };
        Ask { stage, deadline: Deadline::usual() }
    }

    pub(crate) fn refused(question: impl FnOnce(ReplyTo<R>) -> T) -> Self {
        let (_, responder) = envelope::question(Waker::noop());
        let stage = Stage::Refused(question(ReplyTo(Some(responder))));
        Ask { stage, deadline: Deadline::usual() }
    }

    /// Waits so long and no longer, instead of five seconds; as [`Call::within`](crate::Call::within).
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Deadline::within(deadline);
        self
    }

    /// Goes on from a stage: to another, or to the end.
    fn go_on(
        &mut self,
        stage: Stage<T, R>,
        cx: &mut Context<'_>,
    ) -> Result<Stage<T, R>, Outcome<T, R>> {
        match stage {
            Stage::Unsent { to, offer_or_wait, message, pending } => {
                if call::begin(to) {
                    return Err(Err(CallError::Cycle(Some(message))));
                }
                let chase = Chase::new(to);
                match offer_or_wait(to, message, cx.waker()) {
                    Ok(None) => self.wait(pending, chase, cx),
                    Ok(Some(waiting)) => self.wait_for_room(waiting, pending, chase, cx),
                    Err((Refusal::Gone, message)) => Err(Err(CallError::NoProcess(message))),
                    Err((Refusal::Full | Refusal::Dropped, message)) => {
                        Err(Err(CallError::Overloaded(message)))
                    }
                }
            }
            Stage::Refused(message) => Err(Err(CallError::NoProcess(message))),
            Stage::WaitingForRoom(waiting, pending, chase) => match waiting.poll(cx.waker()) {
                None => self.wait_for_room(waiting, pending, chase, cx),
                Some(Ok(())) => self.wait(pending, chase, cx),
                Some(Err(message)) => Err(Err(CallError::NoProcess(message))),
            },
            Stage::Waiting(pending, chase) => self.wait(pending, chase, cx),
            Stage::Over => panic!("a question was polled after it was over"),
        }
    }

    /// Waits for room.
    fn wait_for_room(
        &mut self,
        waiting: WaitingCast<T>,
        pending: PendingReply<(), R>,
        mut chase: Chase,
        cx: &mut Context<'_>,
    ) -> Result<Stage<T, R>, Outcome<T, R>> {
        let Some(stop) = call::give_up(&mut chase, &mut self.deadline, cx) else {
            return Ok(Stage::WaitingForRoom(waiting, pending, chase));
        };
        match (waiting.withdraw(), stop) {
            (Some(message), StopWaiting::Cycle) => Err(Err(CallError::Cycle(Some(message)))),
            (Some(message), StopWaiting::Late) => {
                drop_users(message);
                Err(Err(CallError::TimedOut { enqueued: false }))
            }
            // Let in at this moment: as one that had been before.
            (None, _) => self.wait(pending, chase, cx),
        }
    }

    /// Waits for the answer.
    fn wait(
        &mut self,
        pending: PendingReply<(), R>,
        chase: Chase,
        cx: &mut Context<'_>,
    ) -> Result<Stage<T, R>, Outcome<T, R>> {
        Err(match call::poll(pending, chase, &mut self.deadline, cx) {
            Waited::Replied(reply) => Ok(reply),
            Waited::Failed(_) => Err(CallError::Unanswered),
            Waited::Late { .. } => Err(CallError::TimedOut { enqueued: true }),
            Waited::Cycle(_) => Err(CallError::Cycle(None)),
            Waited::Pending(pending, chase) => return Ok(Stage::Waiting(pending, chase)),
        })
    }
}

impl<T, R> Future for Ask<T, R> {
    type Output = Result<R, CallError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stage = mem::replace(&mut self.stage, Stage::Over);
        match self.go_on(stage, cx) {
            Ok(stage) => {
                self.stage = stage;
                Poll::Pending
            }
            Err(outcome) => Poll::Ready(outcome),
        }
    }
}
