//! The caller's side of a call: a future that sends when it is first polled, and always has a
//! deadline. Its waiting is shared with questions (`ask`).

use crate::address::RawAddress;
use crate::address::cycle::Chase;
use crate::address::deadline::Deadline;
use crate::error::CallError;
use crate::exit::drop_users;
use crate::mailbox::envelope::{GivenUp, PendingReply, Route};
use crate::scheduler;
use crate::scheduler::worker::Worker;
use crate::turn::waker;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A call that sends a `T` and waits for an `R`. Made by [`Address::call`](crate::Address::call).
///
/// A call can be awaited by any executor, inside a process or not, with tokio or without. The handler's turn
/// never runs inside the poll of this future: not on its stack, nor in its span or with its task-locals, and
/// not as a part of its unwinding. The same holds in a `LocalSet`, a panic hook, and the destructor of a
/// thread-local.
///
/// The deadline counts from the first poll, by throng's own clock: a paused clock of tokio's does not change
/// it, nor does a handler that blocks its thread, unless its type promises
/// [`NEVER_BLOCKS`](crate::Process::NEVER_BLOCKS). If the future moves from a process to a task that is no
/// process, or back, the deadline starts again there. Resolution: some milliseconds.
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
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn new(route: Route<T, R>, turn: T) -> Self {
        Call { stage: Stage::Unsent(route, turn), deadline: Deadline::usual() }
    }

    pub(crate) fn refused(turn: T) -> Self {
        Call { stage: Stage::Refused(turn), deadline: Deadline::usual() }
    }

    /// Sends the message at once, for a caller that is polled with this waker later.
    pub(crate) fn sent(self, waker: &Waker) -> Result<Self, CallError<T>> {
        let Stage::Unsent(route, turn) = self.stage else {
            unreachable!("a call is sent once");
        };
        let to = route.address();
        let (pending, was_in_turn) = PendingReply::send(None, route, turn, waker)?;
        let stage = Stage::Waiting(pending, Chase::new(to, was_in_turn));
        Ok(Call { stage, deadline: self.deadline })
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

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &this.stage {
            Stage::Waiting(pending, _) if pending.is_done(cx.waker()) => {
                let Stage::Waiting(pending, _) = mem::replace(&mut this.stage, Stage::Over) else {
                    unreachable!("the stage was matched above")
                };
                Poll::Ready(pending.into_outcome().map_err(CallError::from))
            }
            Stage::Unsent(..) => scheduler::with_worker(|worker| this.send(worker, cx)),
            _ => this.go_on(cx),
        }
    }
}

impl<T, R> Call<T, R> {
    /// Sends the message, and begins to wait.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn send(&mut self, worker: Option<&Worker>, cx: &mut Context<'_>) -> Poll<Outcome<T, R>> {
        let Stage::Unsent(route, turn) = mem::replace(&mut self.stage, Stage::Over) else {
            unreachable!("the stage was matched before")
        };
        let to = route.address();
        if begin(worker, to) {
            return Poll::Ready(Err(CallError::Cycle(Some(turn))));
        }
        let (pending, was_in_turn) = match PendingReply::send(worker, route, turn, cx.waker()) {
            Ok(sent) => sent,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let mut chase = Chase::new(to, was_in_turn);
        match give_up(worker, &mut chase, &mut self.deadline, || pending.is_detached(), cx) {
            None => {
                self.stage = Stage::Waiting(pending, chase);
                Poll::Pending
            }
            Some(stop) => Poll::Ready(end(pending, stop)),
        }
    }

    /// Goes on waiting for an outcome that was not there at this poll, unless the deadline has
    /// passed or a cycle was found.
    #[cold]
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<T, R>> {
        if let Stage::Waiting(pending, chase) = &mut self.stage {
            let (deadline, is_detached) = (&mut self.deadline, || pending.is_detached());
            let give_up =
                |worker: Option<&Worker>| give_up(worker, chase, deadline, is_detached, cx);
            let Some(stop) = scheduler::with_worker(give_up) else { return Poll::Pending };
            if let Stage::Waiting(pending, _) = mem::replace(&mut self.stage, Stage::Over) {
                return Poll::Ready(end(pending, stop));
            }
        }
        Poll::Ready(match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Refused(turn) => Err(CallError::NoProcess(turn)),
            _ => panic!("a call was polled after it had completed"),
        })
    }
}

type Outcome<T, R> = Result<R, CallError<T>>;

/// Prepares a message whose reply the running process will wait for: ends the worker's streaks, so
/// that later sends do not overtake the message. Returns whether the process would wait for itself.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn begin(worker: Option<&Worker>, to: RawAddress) -> bool {
    let Some(worker) = worker else { return false };
    worker.end_streaks();
    worker.running().is_some_and(|cell| to.is_in(cell))
}

/// Reason to stop waiting for an outcome.
pub(crate) enum StopWaiting {
    /// The deadline has passed.
    Late,
    /// The callee is itself waiting, directly or not, for this caller.
    Cycle,
}

/// Checks the deadline and the probes of a waiting call, and sets the alarm that polls it again.
/// `is_detached` tells whether the call no longer waits for its callee. Returns `None` if the call is
/// to go on waiting.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn give_up(
    worker: Option<&Worker>,
    chase: &mut Chase,
    deadline: &mut Deadline,
    is_detached: impl Fn() -> bool,
    cx: &mut Context<'_>,
) -> Option<StopWaiting> {
    let polling = worker.and_then(|worker| {
        let cell = worker.running().filter(|&cell| waker::is_of(cx.waker(), cell))?;
        Some((worker, cell))
    });
    let Some((worker, cell)) = polling else {
        return deadline.is_late(cx).then_some(StopWaiting::Late);
    };
    loop {
        if chase.has_come_round(worker, cell, &is_detached) {
            return Some(StopWaiting::Cycle);
        }
        let late = deadline.tick_in(worker);
        let at = chase.next_or(late);
        if !worker.set_alarm(cell, at) {
            return None;
        }
        if at == late {
            return Some(StopWaiting::Late);
        }
        // The next probe has come due since the first check.
    }
}

/// Gives up a call, unless its outcome came first.
#[cold]
fn end<T, R>(pending: PendingReply<T, R>, stop: StopWaiting) -> Outcome<T, R> {
    match (pending.give_up(), stop) {
        (GivenUp::Over(outcome), _) => outcome.map_err(CallError::from),
        (GivenUp::Enqueued, StopWaiting::Cycle) => Err(CallError::Cycle(None)),
        (GivenUp::Enqueued, StopWaiting::Late) => Err(CallError::TimedOut { enqueued: true }),
        (GivenUp::Withdrawn(turn), StopWaiting::Cycle) => Err(CallError::Cycle(Some(turn))),
        (GivenUp::Withdrawn(turn), StopWaiting::Late) => {
            drop_users(turn);
            Err(CallError::TimedOut { enqueued: false })
        }
    }
}
