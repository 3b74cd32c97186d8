//! Questions: calls whose answer need not come from the turn that handles the message, but may come
//! later, from another process, or never.

use crate::address::RawAddress;
use crate::address::call::{self, Caller, StopWaiting, Waited};
use crate::address::cycle::Chase;
use crate::address::deadline::Deadline;
use crate::error::CallError;
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::bounded::Refusal;
use crate::mailbox::envelope::{self, Failure, OfferOrWait, PendingReply, Responder, WaitingCast};
use crate::scheduler::guest;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The right to answer a question, once. Made by [`Address::ask`](crate::Address::ask).
///
/// A `ReplyTo` travels in a message like any other value. A process may answer in the same turn, or
/// keep the `ReplyTo` in its state and answer later, while it handles other messages, or pass it on
/// to another process, whose answer then goes to the asker directly:
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
///             // An error means that the asker has given up; ignore it.
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
/// /// Passes each question on without waiting, and so is free for the next.
/// struct Front { back: Address<Later> }
/// impl Process for Front {}
/// impl Handle<Get> for Front {
///     async fn handle(&mut self, get: Get, _: &mut Context<Self>) {
///         // On an error the question is dropped, and the asker gets `CallError::Unanswered`.
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
/// If a `ReplyTo` is dropped unused, the asker gets [`CallError::Unanswered`]: at once, not at the
/// deadline.
#[must_use = "if dropped unused, the asker gets `CallError::Unanswered`"]
pub struct ReplyTo<R>(Option<Responder<(), R>>);

impl<R> ReplyTo<R> {
    /// Sends the answer.
    ///
    /// # Errors
    /// The answer comes back if the asker has given up, at its deadline or before. `Ok` does not
    /// mean that the asker will still read it.
    pub fn send(mut self, answer: R) -> Result<(), R> {
        match self.0.take().map(|responder| responder.complete(Ok(answer))) {
            Some(Err(Ok(unwanted))) => Err(unwanted),
            _ => Ok(()),
        }
    }

    /// Whether the asker still waits; if not, there is no need to compute an answer.
    pub fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(Responder::is_awaited)
    }
}

impl<R> Drop for ReplyTo<R> {
    fn drop(&mut self) {
        if let Some(responder) = self.0.take() {
            // `Ask::wait` reports any failure as `Unanswered`, so this reason is never read.
            drop_users(responder.complete(Err(Failure::Died(ExitReason::Normal))));
        }
    }
}

impl<R> fmt::Debug for ReplyTo<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_awaited() { "ReplyTo(awaited)" } else { "ReplyTo(given up)" })
    }
}

/// A question that sends a `T` and waits for an `R`. Made by [`Address::ask`](crate::Address::ask).
///
/// A question has a deadline like a [`Call`](crate::Call). Until then the question also waits for
/// room, if the mailbox is full and bounded with [`Overflow::Wait`](crate::Overflow::Wait).
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
    /// There is no process to send the message to.
    Refused(T),
    WaitingForRoom(WaitingCast<T>, PendingReply<(), R>, Chase),
    Waiting(PendingReply<(), R>, Chase),
    Over,
}

type Outcome<T, R> = Result<R, CallError<T>>;

// A question may move: no field is pinned, and message and outcome have blocks of their own.
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

    /// Sets the deadline: the longest time to wait, instead of five seconds; see
    /// [`Call::within`](crate::Call::within).
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Deadline::within(deadline);
        self
    }

    /// Advances from a stage. Returns the next stage, or the outcome as the error.
    fn go_on(
        &mut self,
        stage: Stage<T, R>,
        cx: &mut Context<'_>,
    ) -> Result<Stage<T, R>, Outcome<T, R>> {
        match stage {
            Stage::Unsent { to, offer_or_wait, message, pending } => {
                let caller = call::begin(to);
                if matches!(caller, Caller::Outside) && guest::must_yield(cx) {
                    return Ok(Stage::Unsent { to, offer_or_wait, message, pending });
                }
                let send = |message| offer_or_wait(to, message, cx.waker());
                let sent = match caller {
                    Caller::Callee => return Err(Err(CallError::Cycle(Some(message)))),
                    Caller::Worker => send(message),
                    Caller::Outside => guest::call(|| send(message), |_| pending.is_done()),
                };
                let chase = Chase::new(to);
                match sent {
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
            Stage::Over => panic!("a question was polled after it had completed"),
        }
    }

    /// Goes on waiting for room in the mailbox, unless the deadline has passed or a cycle was
    /// found.
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
            // The message was admitted just before the withdrawal: wait for its answer.
            (None, _) => self.wait(pending, chase, cx),
        }
    }

    /// Polls the answer to a message that is in the mailbox, and the deadline.
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
