//! Guests: threads outside the runtime that run the process they call themselves.
//!
//! A call from a thread that is no worker costs two wake-ups of threads if a worker runs the
//! process: the worker's and the caller's. If the process is idle, the caller's push gives it the
//! token, so the caller can do the work: it takes a free *seat*, and is a worker until the reply is
//! there. Then it hands what is left to the workers.
//!
//! ```text
//! call ─▶ push ─▶ token ─▶ seat free? ──yes──▶ run the process, and the processes it wakes,
//!                            │ no              until the reply is there ─▶ inject the rest ─▶ reply
//!                            └──────▶ inject
//! ```
//!
//! A message that is only sent is never handled this way, because `send` does not wait. A turn that
//! suspends continues on a worker. A turn that blocks its thread blocks the caller; the watchdog
//! makes the other processes of the seat reachable (`watchdog`), and guests leave the processes of
//! its class to the workers for a while ([`Class::repel_guests`]).
//!
//! A [`Seat`] holds a [`Worker`], made when the seat is first taken. Its place in the scheduler's
//! `remotes` is between the regular and the spare workers.
//!
//! Invariants:
//! 1. The slots and the queue of a seat that is free are empty.
//! 2. A worker in a seat keeps the runtime alive, so it leaves the seat when the runtime is over: the end
//!    of the runtime closes the seats, and a guest that finds its seat closed, or sees the end before
//!    that, ends the worker.
//! 3. A process that a guest has handed to the workers runs: either a worker that ends finds it, or the
//!    guest sees the end. The lock of the injector orders the two.
//!
//! [`Class::repel_guests`]: crate::cell::Class::repel_guests

use crate::cell::Token;
use crate::runtime::Shared;
use crate::scheduler::seat::{Occupant, Seat, Seated};
use crate::scheduler::worker::Worker;
use crate::scheduler::{self, Phase};
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Seats of a runtime; see the file's head.
pub(crate) struct Guests {
    /// Place of the first seat among the workers.
    first: usize,
    seats: Box<[Seat<Worker>]>,
}

/// Number given to each thread that becomes a guest, to spread the threads over the seats.
static NUMBERED: AtomicUsize = AtomicUsize::new(0);

/// The token that a push has given to this thread while it offers to run the process.
struct Offer {
    is_open: Cell<bool>,
    token: Cell<Option<Token>>,
}

thread_local! {
    static OFFER: Offer = const { Offer { is_open: Cell::new(false), token: Cell::new(None) } };
    static NUMBER: usize = NUMBERED.fetch_add(1, Ordering::Relaxed);
}

/// Runs `send`, which queues a call's message, on a thread that is no worker. If that makes a
/// process ready, runs the process, and the processes that it wakes, until `is_done`.
pub(crate) fn call<R>(send: impl FnOnce() -> R, is_done: impl Fn(&R) -> bool) -> R {
    /// Closes the offer also if `send` panics, and then leaves the process to the workers.
    struct Close;
    impl Drop for Close {
        fn drop(&mut self) {
            if let Some(token) = close() {
                scheduler::inject(token);
            }
        }
    }
    fn close() -> Option<Token> {
        let closed = OFFER.try_with(|offer| {
            offer.is_open.set(false);
            offer.token.take()
        });
        closed.ok().flatten()
    }
    let opened = OFFER.try_with(|offer| !offer.is_open.replace(true));
    if opened != Ok(true) {
        return send();
    }
    let closing = Close;
    let sent = send();
    if let Some(token) = close() {
        run(token, &|| is_done(&sent));
    }
    std::mem::forget(closing);
    sent
}

/// Consumes a unit of the budget that tokio gives a task for each poll, because a call whose
/// process runs here is ready at once; true if the budget is used up and the task must yield.
pub(crate) fn must_yield(cx: &mut Context<'_>) -> bool {
    pin!(tokio::task::consume_budget()).poll(cx).is_pending()
}

/// Keeps a token for the call that this thread is sending; returns it if there is none.
pub(crate) fn accept(token: Token) -> Option<Token> {
    let mut token = Some(token);
    let _ = OFFER.try_with(|offer| {
        if offer.is_open.replace(false) {
            offer.token.set(token.take());
        }
    });
    token
}

/// Runs a process on this thread if there is a free seat for it; otherwise leaves it to the
/// workers.
#[inline(never)]
fn run(token: Token, is_done: &dyn Fn() -> bool) {
    match sit_down(&token) {
        Some(worker) => run_in(&worker, token, is_done),
        None => scheduler::inject(token),
    }
}

/// Takes a seat in the runtime of a process, whose token keeps the runtime alive meanwhile.
#[inline(always)]
fn sit_down(token: &Token) -> Option<Seated<Worker>> {
    let class = token.class();
    let shared = class.runtime.shared();
    let scheduler = &shared.scheduler;
    if scheduler.phase() != Phase::Running || !class.admits_guests(scheduler.clock.now()) {
        return None;
    }
    let seated = scheduler.guests.take_seat(shared)?;
    shared.clock_keeper.wake_for_guest(&scheduler.clock);
    Some(seated)
}

/// Runs a process with the seat's worker, in the tokio runtime of the handlers and without the
/// cooperative budget of the caller's task.
fn run_in(worker: &Worker, token: Token, is_done: &dyn Fn() -> bool) {
    let _inside_tokio = worker.shared.tokio().enter();
    let mut token = Some(token);
    let run = poll_fn(|_| {
        if let Some(token) = token.take() {
            scheduler::enter(worker, || worker.run_as_guest(token, is_done));
        }
        Poll::Ready(())
    });
    let run = pin!(tokio::task::unconstrained(run));
    let _ = run.poll(&mut Context::from_waker(Waker::noop()));
}

impl Guests {
    pub(crate) fn new(first: usize, seats: usize) -> Guests {
        Guests { first, seats: (0..seats).map(|_| Seat::new()).collect() }
    }

    /// Number of seats.
    pub(crate) fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Whether a place among the workers is a seat.
    pub(crate) fn is_seat(&self, index: usize) -> bool {
        (self.first..self.first + self.seats.len()).contains(&index)
    }

    /// Whether a guest runs a process.
    pub(crate) fn any_seated(&self) -> bool {
        self.seats.iter().any(Seat::is_taken)
    }

    /// Takes a free seat, the calling thread's own if possible.
    #[inline(always)]
    fn take_seat(&self, shared: &Arc<Shared>) -> Option<Seated<Worker>> {
        let number = NUMBER.try_with(|&number| number).unwrap_or(0);
        (0..self.seats.len()).find_map(|offset| {
            let index = (number + offset) % self.seats.len();
            self.seats[index].take(|| Worker::new(shared.clone(), self.first + index))
        })
    }

    /// Closes the seats, because the runtime is over; false if a guest has not left yet, which then
    /// frees what the runtime holds.
    pub(crate) fn close_seats(&self) -> bool {
        let is_open = |seat: &&Seat<Worker>| !seat.close(|worker| worker.leave_seat(false));
        self.seats.iter().filter(is_open).count() == 0
    }
}

// SAFETY: the worker holds a reference to the runtime's shared part, which owns the seats in a box.
unsafe impl Occupant for Worker {
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.shared.scheduler.phase() == Phase::Over
    }

    fn end(self, close: impl FnOnce()) {
        let shared = self.shared.clone();
        self.leave_seat(true);
        close();
        shared.free_if_over();
    }
}
