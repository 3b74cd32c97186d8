//! The sender's side of a message that waits for room in a full mailbox: a future that sends when
//! it is first polled.

use crate::address::RawAddress;
use crate::error::SendError;
use crate::mailbox::bounded::Refusal;
use crate::mailbox::envelope::{OfferOrWait, WaitingCast};
use crate::scheduler;
use crate::scheduler::worker::Worker;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A message on its way to a mailbox, which waits for room if there is none. Made by
/// [`Address::deliver`](crate::Address::deliver).
#[must_use = "the message is not sent until this is awaited"]
pub struct Delivery<T> {
    stage: Stage<T>,
}

enum Stage<T> {
    Unsent(RawAddress, OfferOrWait<T>, T),
    /// There is no process to send the message to.
    Refused(T),
    WaitingForRoom(WaitingCast<T>),
    Over,
}

// A delivery may move: no field is pinned, and a message that waits has a block of its own.
impl<T> Unpin for Delivery<T> {}

impl<T> Delivery<T> {
    pub(crate) fn new(to: RawAddress, deliver: OfferOrWait<T>, message: T) -> Self {
        Delivery { stage: Stage::Unsent(to, deliver, message) }
    }

    pub(crate) fn refused(message: T) -> Self {
        Delivery { stage: Stage::Refused(message) }
    }
}

impl<T> Future for Delivery<T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let waiting = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unsent(to, deliver, message) => {
                scheduler::with_worker(|worker| worker.map(Worker::end_streaks));
                match deliver(to, message, cx.waker()) {
                    Ok(None) => return Poll::Ready(Ok(())),
                    Ok(Some(waiting)) => waiting,
                    Err((Refusal::Full | Refusal::Dropped, message)) => {
                        return Poll::Ready(Err(SendError::Overloaded(message)));
                    }
                    Err((Refusal::Gone, message)) => {
                        return Poll::Ready(Err(SendError::NoProcess(message)));
                    }
                }
            }
            Stage::Refused(message) => return Poll::Ready(Err(SendError::NoProcess(message))),
            Stage::WaitingForRoom(waiting) => match waiting.poll(cx.waker()) {
                Some(outcome) => return Poll::Ready(outcome.map_err(SendError::NoProcess)),
                None => waiting,
            },
            Stage::Over => panic!("a delivery was polled after it had completed"),
        };
        self.stage = Stage::WaitingForRoom(waiting);
        Poll::Pending
    }
}
