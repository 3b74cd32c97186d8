//! A message that waits for room in a full mailbox: a future that sends when first polled.

use crate::address::RawAddress;
use crate::error::SendError;
use crate::message::{Cast, CastInLine};
use crate::process::{Process, Turn};
use crate::scheduler;
use crate::worker::Worker;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A message on its way to a mailbox with room. Made by [`Address::deliver`](crate::Address::deliver).
#[must_use = "a message is not delivered until that is awaited"]
pub struct Delivery<P: Process, T: Turn<P>> {
    stage: Stage<P, T>,
}

enum Stage<P: Process, T: Turn<P>> {
    Unsent(RawAddress, T),
    Lined(CastInLine<P, T>),
    Over,
}

// Nothing in here is pinned in place: the message has a block of its own.
impl<P: Process, T: Turn<P>> Unpin for Delivery<P, T> {}

impl<P: Process, T: Turn<P>> Delivery<P, T> {
    pub(crate) fn new(address: RawAddress, turn: T) -> Self {
        Delivery { stage: Stage::Unsent(address, turn) }
    }
}

impl<P: Process, T: Turn<P>> Future for Delivery<P, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lined = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unsent(address, turn) => {
                scheduler::with_worker(|worker| worker.map(Worker::end_streak));
                match Cast::<P, T>::line_up(address, turn, cx.waker()) {
                    Ok(None) => return Poll::Ready(Ok(())),
                    Ok(Some(lined)) => lined,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            Stage::Lined(lined) => match lined.ask(cx.waker()) {
                Some(outcome) => return Poll::Ready(outcome.map_err(SendError::NoProcess)),
                None => lined,
            },
            Stage::Over => panic!("a delivery was polled after it was over"),
        };
        self.stage = Stage::Lined(lined);
        Poll::Pending
    }
}
