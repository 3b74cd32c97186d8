//! The caller's side of a call: a future that sends when it is first polled, and always has a
//! deadline. Its waiting is shared with questions (`ask`).

use crate::address::RawAddress;
use crate::address::cycle::Chase;
use crate::address::deadline::Deadline;
use crate::error::CallError;
use crate::exit::drop_users;
use crate::mailbox::envelope::{Failure, GivenUp, Outcome, PendingReply, Route};
use crate::scheduler::{self, guest};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A call that sends a `T` and waits for an `R`. Made by [`Address::call`](crate::Address::call).
///
/// The deadline counts from the first poll. If the future then moves from a process to a task that
/// is no process, or back, the deadline starts again there. In a process the scheduler keeps it to
/// the millisecond, at almost no cost; elsewhere a tokio timer keeps it.
#[must_use = "a call is not sent until it is awaited"]
pub struct Call<T, R> {
    stage: Stage<T, R>,
    deadline: Deadline,
}

enum Stage<T, R> {
    Unsent(Route<T, R>, T),
    /// There is no process to send the message to.
    Refused(T),
    Waiting(PendingReply<T, R>, Chase),
    Over,
}

// A call may move: no field is pinned, and a message that was sent has a block of its own.
impl<T, R> Unpin for Call<T, R> {}

impl<T, R> Call<T, R> {
    pub(crate) fn new(route: Route<T, R>, turn: T) -> Self {
        Call { stage: Stage::Unsent(route, turn), deadline: Deadline::usual() }
    }

    pub(crate) fn refused(turn: T) -> Self {
        Call { stage: Stage::Refused(turn), deadline: Deadline::usual() }
    }

    /// Sets the deadline: the longest time to wait, instead of five seconds.
    ///
    /// Resolution: 1 ms, and at most 12 days inside a process. A deadline set here never fires
    /// early; the default one may, by a few milliseconds on an overloaded machine.
    ///
    /// Cost: a read of the system's clock, about 20 ns, which the default deadline does without.
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
                let caller = begin(route.address());
                if matches!(caller, Caller::Outside) && guest::must_yield(cx) {
                    this.stage = Stage::Unsent(route, turn);
                    return Poll::Pending;
                }
                let chase = Chase::new(route.address());
                match caller {
                    Caller::Callee => return Poll::Ready(Err(CallError::Cycle(Some(turn)))),
                    Caller::Worker => match PendingReply::send(route, turn, cx.waker()) {
                        Ok(pending) => wait(pending, chase, &mut this.deadline, cx),
                        Err(error) => return Poll::Ready(Err(error)),
                    },
                    Caller::Outside => match send_from_outside(route, turn) {
                        Ok(pending) => poll(pending, chase, &mut this.deadline, cx),
                        Err(error) => return Poll::Ready(Err(error)),
                    },
                }
            }
            Stage::Waiting(pending, chase) => poll(pending, chase, &mut this.deadline, cx),
            Stage::Refused(turn) => return Poll::Ready(Err(CallError::NoProcess(turn))),
            Stage::Over => panic!("a call was polled after it had completed"),
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

/// Result of polling a pending reply.
pub(crate) enum Waited<T, R> {
    Replied(R),
    Failed(Failure<T>),
    /// The deadline has passed. A message that was still waiting for room (not `enqueued`) has been
    /// dropped.
    Late {
        enqueued: bool,
    },
    /// The callee is itself waiting, directly or not, for this caller. Holds the message if it was
    /// still waiting for room.
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

/// Thread that sends a message and will wait for the reply.
pub(crate) enum Caller {
    /// The process that the message is for: it would wait for itself.
    Callee,
    /// A worker, which runs another process.
    Worker,
    /// A thread that is no worker.
    Outside,
}

/// Prepares a message whose reply the running process will wait for: ends the worker's streak, so
/// that later sends do not overtake the message.
#[inline]
pub(crate) fn begin(to: RawAddress) -> Caller {
    scheduler::with_worker(|worker| {
        let Some(worker) = worker else { return Caller::Outside };
        worker.end_streak();
        match worker.running() {
            Some(cell) if to.is_in(cell) => Caller::Callee,
            _ => Caller::Worker,
        }
    })
}

/// Queues a call on a thread that is no worker, and runs the process here if it is idle. The caller
/// is awake meanwhile, so the reply wakes nothing.
#[cold]
fn send_from_outside<T, R>(
    route: Route<T, R>,
    turn: T,
) -> Result<PendingReply<T, R>, CallError<T>> {
    guest::call(
        || PendingReply::send(route, turn, Waker::noop()),
        |sent| sent.as_ref().map_or(true, PendingReply::is_done),
    )
}

/// Polls the reply to a message that was sent, and the deadline.
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
    /// The deadline has passed.
    Late,
    /// The callee is itself waiting, directly or not, for this caller.
    Cycle,
}

/// Checks the deadline and the probes of a waiting call, and sets the alarms that poll it again.
/// Returns `None` if the call is to go on waiting.
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

/// Goes on waiting for an outcome that was not there at the last poll, unless the deadline has
/// passed or a cycle was found.
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
