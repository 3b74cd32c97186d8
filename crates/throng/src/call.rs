//! The caller's side of a call: a future that sends when first polled and always has a deadline.

use crate::address::RawAddress;
use crate::deadline::Deadline;
use crate::error::CallError;
use crate::message::Awaited;
use crate::process::{Process, Turn};
use crate::scheduler;
use crate::worker::Worker;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A call under way. Made by [`Address::call`](crate::Address::call).
///
/// The deadline counts from the first poll, in the process or the task that awaits it; a call that is
/// handed on to another after that begins to count anew. In a process it is kept to the millisecond by the
/// scheduler and costs next to nothing; elsewhere a tokio timer keeps it.
#[must_use = "a call is not sent until it is awaited"]
pub struct Call<P: Process, T: Turn<P>> {
    stage: Stage<P, T>,
    deadline: Deadline,
}

enum Stage<P: Process, T: Turn<P>> {
    Unsent(RawAddress, T),
    Waiting(Awaited<P, T>),
    Over,
}

// Nothing in here is pinned in place: the message has a block of its own.
impl<P: Process, T: Turn<P>> Unpin for Call<P, T> {}

impl<P: Process, T: Turn<P>> Call<P, T> {
    pub(crate) fn new(address: RawAddress, turn: T) -> Self {
        Call { stage: Stage::Unsent(address, turn), deadline: Deadline::usual() }
    }

    /// Waits so long and no longer, instead of five seconds.
    ///
    /// Resolution: a millisecond; within a process, more than twelve days count as twelve. The call never times out early. (The usual five seconds may, by
    /// as much as a very busy machine holds up the clock's thread: milliseconds.)
    ///
    /// Cost: a look at the system's clock, about 20 ns, which the usual deadline does without.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Deadline::within(deadline);
        self
    }
}

impl<P: Process, T: Turn<P>> Future for Call<P, T> {
    type Output = Result<T::Reply, CallError<T>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let awaited = match std::mem::replace(&mut this.stage, Stage::Over) {
            Stage::Unsent(address, turn) => {
                scheduler::with_worker(|worker| worker.map(Worker::end_streak));
                match Awaited::send(address, turn, cx.waker()) {
                    Ok(awaited) => awaited,
                    Err(turn) => return Poll::Ready(Err(CallError::NoProcess(turn))),
                }
            }
            Stage::Waiting(awaited) => match awaited.poll(cx.waker()) {
                Ok(outcome) => return Poll::Ready(outcome.map_err(CallError::Died)),
                Err(awaited) => awaited,
            },
            Stage::Over => panic!("a call was polled after it was over"),
        };
        if !this.deadline.is_late(cx) {
            this.stage = Stage::Waiting(awaited);
            return Poll::Pending;
        }
        Poll::Ready(match awaited.give_up() {
            Some(outcome) => outcome.map_err(CallError::Died),
            None => Err(CallError::TimedOut { enqueued: true }),
        })
    }
}
