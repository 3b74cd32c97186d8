//! The caller's side of a call: a future that sends when first polled and always has a deadline.

use crate::address::RawAddress;
use crate::address::cycle::Chase;
use crate::address::deadline::Deadline;
use crate::error::CallError;
use crate::exit::drop_users;
use crate::mailbox::envelope::{Failure, GivenUp, Outcome, PendingReply, Route};
use crate::scheduler;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A call under way: with a `T`, for an `R`. Made by [`Address::call`](crate::Address::call).
///
/// The deadline counts from the first poll, in the process or the task that awaits it; a call that is
/// handed on to another after that begins to count anew. In a process it is kept to the millisecond by the
/// scheduler and costs next to nothing; elsewhere a tokio timer keeps it.
#[must_use = "a call is not sent until it is awaited"]
pub struct Call<T, R> {
    stage: Stage<T, R>,
    deadline: Deadline,
}

enum Stage<T, R> {
    Unsent(Route<T, R>, T),
    /// There is nobody to send it to.
    Refused(T),
    Waiting(PendingReply<T, R>, Chase),
    Over,
}

// Nothing in here is pinned in place: the message has a block of its own.
impl<T, R> Unpin for Call<T, R> {}

impl<T, R> Call<T, R> {
    pub(crate) fn new(route: Route<T, R>, turn: T) -> Self {
        Call { stage: Stage::Unsent(route, turn), deadline: Deadline::usual() }
    }

    pub(crate) fn refused(turn: T) -> Self {
        Call { stage: Stage::Refused(turn), deadline: Deadline::usual() }
    }

    /// Waits so long and no longer, instead of five seconds.
    ///
    /// Resolution: 1 ms, and at most 12 days inside a process. A deadline set here never fires
    /// early; the default one may, by a few milliseconds on an overloaded machine.
    ///
    /// Cost: a look at the system's clock, about 20 ns, which the usual deadline does without.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Deadline::within(deadline);
        self
    }
}

impl<T, R> Future for Call<T, R> {
    type Output = Result<R, CallError<T>>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let waited = match std::mem::replace(&mut this.stage, Stage::Over) {
            Stage::Unsent(route, turn) => {
                if begin(route.address()) {
                    return Poll::Ready(Err(CallError::Cycle(Some(turn))));
                }
                let chase = Chase::new(route.address());
                match PendingReply::send(route, turn, cx.waker()) {
                    Ok(pending) => wait(pending, chase, &mut this.deadline, cx),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            Stage::Waiting(pending, chase) => poll(pending, chase, &mut this.deadline, cx),
            Stage::Refused(turn) => return Poll::Ready(Err(CallError::NoProcess(turn))),
            Stage::Over => panic!("a call was polled after it was over"),
        };
        match waited {
            Waited::Replied(reply) => Poll::Ready(Ok(reply)),
            Waited::Failed(failure) => Poll::Ready(Err(failure.into())),
            Waited::Late { enqueued } => Poll::Ready(Err(CallError::TimedOut { enqueued })),
            Waited::Cycle(turn) => Poll::Ready(Err(CallError::Cycle(turn))),
            Waited::Pending(pending, chase) => {
                this.stage = Stage::Waiting(pending, chase);
                Poll::Pending
            }
        }
    }
}

/// How waiting for an outcome went.
pub(crate) enum Waited<T, R> {
    Replied(R),
    Failed(Failure<T>),
    /// Time is over; the message may have waited for room until then, and is dropped.
    Late {
        enqueued: bool,
    },
    /// Whoever is to answer waits for the asker; here is the message if it waited for room.
    Cycle(Option<T>),
    Pending(PendingReply<T, R>, Chase),
}

impl<T, R> From<Outcome<T, R>> for Waited<T, R> {
    fn from(outcome: Outcome<T, R>) -> Self {
        match outcome {
            Ok(reply) => Waited::Replied(reply),
            Err(failure) => Waited::Failed(failure),
        }
    }
}

/// Before anything is sent that this thread's process will wait for; true if it would wait for
/// itself.
#[inline]
pub(crate) fn begin(to: RawAddress) -> bool {
    scheduler::with_worker(|worker| {
        let Some(worker) = worker else { return false };
        worker.end_streak();
        worker.running().is_some_and(|cell| to.is_in(cell))
    })
}

/// Goes on waiting.
pub(crate) fn poll<T, R>(
    pending: PendingReply<T, R>,
    chase: Chase,
    deadline: &mut Deadline,
    cx: &mut Context<'_>,
) -> Waited<T, R> {
    match pending.poll(cx.waker()) {
        Ok(outcome) => outcome.into(),
        Err(pending) => wait(pending, chase, deadline, cx),
    }
}

/// Reason to stop waiting for an outcome.
pub(crate) enum StopWaiting {
    /// Time is over.
    Late,
    /// The callee is itself waiting, directly or not, for this caller.
    Cycle,
}

/// Sees to it that waiting ends; none if it is too early for that.
#[inline]
pub(crate) fn give_up(
    chase: &mut Chase,
    deadline: &mut Deadline,
    cx: &mut Context<'_>,
) -> Option<StopWaiting> {
    let in_process = scheduler::with_polling(cx.waker(), |worker, cell| {
        (chase.has_come_round(worker, cell), deadline.is_late_in(worker, cell))
    });
    match in_process.unwrap_or_else(|| (false, deadline.is_late(cx))) {
        (true, _) => Some(StopWaiting::Cycle),
        (false, true) => Some(StopWaiting::Late),
        (false, false) => None,
    }
}

/// Waits for an outcome that was not there just now, unless it is late or never comes.
#[inline]
fn wait<T, R>(
    pending: PendingReply<T, R>,
    mut chase: Chase,
    deadline: &mut Deadline,
    cx: &mut Context<'_>,
) -> Waited<T, R> {
    let Some(stop) = give_up(&mut chase, deadline, cx) else {
        return Waited::Pending(pending, chase);
    };
    match (pending.give_up(), stop) {
        (GivenUp::Over(outcome), _) => outcome.into(),
        (GivenUp::Enqueued, StopWaiting::Cycle) => Waited::Cycle(None),
        (GivenUp::Enqueued, StopWaiting::Late) => Waited::Late { enqueued: true },
        (GivenUp::Withdrawn(turn), StopWaiting::Cycle) => Waited::Cycle(Some(turn)),
        (GivenUp::Withdrawn(turn), StopWaiting::Late) => {
            drop_users(turn);
            Waited::Late { enqueued: false }
        }
    }
}
