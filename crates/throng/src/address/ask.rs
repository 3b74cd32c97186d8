//! Questions: calls whose answer need not come from the turn that handles the message, but may come
//! later, from another process, or never.

use crate::address::RawAddress;
use crate::address::call::{self, StopWaiting};
use crate::address::cycle::Chase;
use crate::address::deadline::Deadline;
use crate::error::CallError;
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::bounded::Refusal;
use crate::mailbox::envelope::{
    self, Failure, GivenUp, OfferOrWait, PendingReply, Responder, WaitingCast,
};
use crate::scheduler;
use crate::scheduler::worker::Worker;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
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

    /// Declares that the answer no longer depends on the process that was asked, which goes on with
    /// other messages before the answer comes.
    ///
    /// Until then the asker counts as waiting for that process, in the search for
    /// [cycles of calls](CallError::Cycle). If a later turn of the process may call the asker, detach
    /// the answer in the turn that got the question. Otherwise that call may fail with a cycle, or the
    /// question may, although the answer will come. A ring that the detached answer does depend on is
    /// not found, and ends at the deadline of a call.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::prelude::*;
    ///
    /// /// Takes orders, and confirms each when it was printed, which takes some time.
    /// #[derive(Default)]
    /// struct Shop { orders: u32 }
    ///
    /// #[process]
    /// impl Shop {
    ///     #[message(send)]
    ///     fn order(&mut self, reply: ReplyTo<&'static str>) {
    ///         self.orders += 1;
    ///         reply.detach();
    ///         tokio::spawn(async move {
    ///             tokio::time::sleep(Duration::from_millis(100)).await;
    ///             let _ = reply.send("printed");
    ///         });
    ///     }
    ///
    ///     /// Calls a buyer, which may wait for a confirmation, but not for this process.
    ///     #[message]
    ///     async fn survey(&mut self, buyer: Address<Buyer>) -> bool {
    ///         buyer.is_content().await.is_ok()
    ///     }
    ///     # #[message]
    ///     # fn orders(&self) -> u32 {
    ///     #     self.orders
    ///     # }
    /// }
    ///
    /// struct Buyer { shop: Address<Shop> }
    ///
    /// #[process]
    /// impl Buyer {
    ///     #[message]
    ///     async fn buy(&mut self) -> Option<&'static str> {
    ///         self.shop.ask(|reply| Order { reply }).await.ok()
    ///     }
    ///
    ///     #[message]
    ///     fn is_content(&self) -> bool {
    ///         true
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// runtime.block_on(async |runtime| {
    ///     let shop = runtime.spawn(Shop::default())?;
    ///     let buyer = runtime.spawn(Buyer { shop })?;
    ///     let bought = tokio::spawn(buyer.buy());
    ///     // A survey before the order would wait for a buyer that waits for the shop.
    ///     while shop.orders().await? == 0 {}
    ///     assert!(shop.survey(buyer).await?);
    ///     assert_eq!(bought.await.expect("does not panic")?, Some("printed"));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// Cost: one atomic instruction.
    pub fn detach(&self) {
        if let Some(responder) = &self.0 {
            responder.detach();
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
        let (pending, responder) = envelope::question();
        let message = question(ReplyTo(Some(responder)));
        let stage = Stage::Unsent { to, offer_or_wait, message, pending };
        Ask { stage, deadline: Deadline::usual() }
    }

    pub(crate) fn refused(question: impl FnOnce(ReplyTo<R>) -> T) -> Self {
        let (_, responder) = envelope::question();
        let stage = Stage::Refused(question(ReplyTo(Some(responder))));
        Ask { stage, deadline: Deadline::usual() }
    }

    /// Sets the deadline: the longest time to wait, instead of five seconds; see
    /// [`Call::within`](crate::Call::within).
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Deadline::within(deadline);
        self
    }

    /// Advances to the next stage; returns the outcome if there is one.
    #[inline(never)]
    fn go_on(&mut self, cx: &mut Context<'_>) -> Option<Outcome<T, R>> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unsent { to, offer_or_wait, message, pending } => {
                if scheduler::with_worker(|worker| call::begin(worker, to)) {
                    return Some(Err(CallError::Cycle(Some(message))));
                }
                let chase = Chase::new(to, to.is_in_turn());
                let sent = offer_or_wait(to, message, cx.waker());
                self.stage = match sent {
                    Ok(None) => Stage::Waiting(pending, chase),
                    Ok(Some(waiting)) => Stage::WaitingForRoom(waiting, pending, chase),
                    Err((Refusal::Gone, message)) => {
                        return Some(Err(CallError::NoProcess(message)));
                    }
                    Err((Refusal::Full | Refusal::Dropped, message)) => {
                        return Some(Err(CallError::Overloaded(message)));
                    }
                };
            }
            Stage::Refused(message) => return Some(Err(CallError::NoProcess(message))),
            Stage::WaitingForRoom(waiting, pending, chase) => match waiting.poll(cx.waker()) {
                None => self.stage = Stage::WaitingForRoom(waiting, pending, chase),
                Some(Ok(())) => self.stage = Stage::Waiting(pending, chase),
                Some(Err(message)) => return Some(Err(CallError::NoProcess(message))),
            },
            Stage::Waiting(..) | Stage::Over => {
                panic!("a question was polled after it had completed")
            }
        }
        self.wait(cx)
    }

    /// Polls the answer, the deadline and the probes.
    fn wait(&mut self, cx: &mut Context<'_>) -> Option<Outcome<T, R>> {
        loop {
            let (chase, pending) = match &mut self.stage {
                Stage::Waiting(pending, _) if pending.is_done(cx.waker()) => {
                    return Some(self.take_answer());
                }
                Stage::Waiting(pending, chase) => (chase, Some(&*pending)),
                // Without room, the question waits for the process in any case.
                Stage::WaitingForRoom(_, _, chase) => (chase, None),
                _ => unreachable!("the stage is one that waits"),
            };
            let is_detached = || pending.is_some_and(PendingReply::is_detached);
            let stop = scheduler::with_worker(|worker| {
                call::give_up(worker, chase, &mut self.deadline, is_detached, cx)
            })?;
            if let Some(outcome) = self.give_up(stop) {
                return Some(outcome);
            }
        }
    }

    /// Takes the answer, which is there.
    #[inline(always)]
    fn take_answer(&mut self) -> Outcome<T, R> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Waiting(pending, _) => pending.into_outcome().map_err(|_| CallError::Unanswered),
            _ => unreachable!("the question waits for its answer"),
        }
    }

    /// Ends the wait, unless the message has been admitted just before.
    #[cold]
    fn give_up(&mut self, stop: StopWaiting) -> Option<Outcome<T, R>> {
        Some(Err(match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Waiting(pending, _) => match (pending.give_up(), stop) {
                (GivenUp::Over(answer), _) => {
                    return Some(answer.map_err(|_| CallError::Unanswered));
                }
                (_, StopWaiting::Cycle) => CallError::Cycle(None),
                (_, StopWaiting::Late) => CallError::TimedOut { enqueued: true },
            },
            Stage::WaitingForRoom(waiting, pending, chase) => match (waiting.withdraw(), stop) {
                (Some(message), StopWaiting::Cycle) => CallError::Cycle(Some(message)),
                (Some(message), StopWaiting::Late) => {
                    drop_users(message);
                    CallError::TimedOut { enqueued: false }
                }
                (None, _) => {
                    self.stage = Stage::Waiting(pending, chase);
                    return None;
                }
            },
            _ => unreachable!("the stage is one that waits"),
        }))
    }
}

impl<T, R> Future for Ask<T, R> {
    type Output = Outcome<T, R>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let outcome = match &mut this.stage {
            Stage::Waiting(pending, _) if pending.is_done(cx.waker()) => Some(this.take_answer()),
            Stage::Waiting(pending, chase) => {
                let (deadline, is_detached) = (&mut this.deadline, || pending.is_detached());
                let give_up = |worker: Option<&Worker>| {
                    call::give_up(worker, chase, deadline, is_detached, cx)
                };
                scheduler::with_worker(give_up).and_then(|stop| this.give_up(stop))
            }
            _ => this.go_on(cx),
        };
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}
