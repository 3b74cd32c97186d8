//! Guests: workers that are tasks of a tokio runtime.
//!
//! A message from a task of tokio's makes a process ready on a thread of tokio's. A worker's thread would
//! have to be woken for it, and the caller's thread again for the reply, which takes some 40 µs together. If
//! the type of the process [promises](crate::Process::NEVER_BLOCKS) that its turns never block, a guest runs
//! it: a worker that is a task of that tokio runtime. tokio runs the task that was woken last next on the
//! same thread, so a call and its reply wake no thread:
//!
//! ```text
//! task ─ call ─▶ push ─▶ token ─▶ seat of this thread ─ wakes ─▶ guest      caller's task is pending
//!                                                                  │ runs the process, and the processes
//!                        caller's task is woken ◀── reply ◀────────┘ that it wakes; leaves the rest to workers
//! ```
//!
//! No code of a process runs inside the poll, and on the stack, of the task that has called it: span,
//! task-locals, unwinding and locals of the caller are out of its reach.
//!
//! Each thread of a multi-threaded tokio runtime has a *seat* for each runtime of throng's that it sends to:
//! the queue of a guest. The seat's place in the scheduler's `remotes` is between the regular and the spare
//! workers. A thread that ends leaves its seat to the next thread of the same tokio runtime.
//!
//! | state of a seat | the guest | tokens in the inbox |
//! |---|---|---|
//! | `Rests` | waits to be woken | none |
//! | `Woken` | is about to be polled | any |
//! | `Runs` | is polled | those pushed meanwhile |
//! | `Closed` | has ended, or is about to | none; a push is refused |
//!
//! Invariants:
//! 1. Only processes whose type promises never to block are run by guests: [`accept`] keeps others from the
//!    seats, and [`Worker::push`] from a guest's own queue.
//! 2. A token in an inbox is run. Either the guest is polled, or its drop hands the token to the workers, or
//!    the clock thread does so, if tokio has not polled the guest for some milliseconds ([`Guests::rescue`]).
//! 3. A seat is busy from the push that wakes its guest until the guest rests; while one is, the clock thread
//!    is awake (`clock_keeper`).
//! 4. Classes are freed only once all seats are closed; the guest that runs until then frees them.

use crate::cell::Token;
use crate::runtime::Shared;
use crate::scheduler::worker::Worker;
use crate::scheduler::{self, Phase, Scheduler};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};
use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use tokio::runtime::{Handle, Id, RuntimeFlavor};

/// Checks of the clock thread, in a row, that find the same tokens in an inbox before it hands them to the
/// workers.
const PATIENCE: u8 = 3;
/// Times in a row that a guest goes on with what has come meanwhile before it lets other tasks run.
const ROUNDS: u32 = 4;

/// Guests of a runtime; see the file's head.
pub(crate) struct Guests {
    /// Place of the first seat among the workers.
    first: usize,
    /// Number of seats.
    seats: usize,
    places: Mutex<Box<[Option<Arc<Seat>>]>>,
}

/// Queue of a guest. Has cache lines of its own, because each thread mostly uses one seat.
#[repr(align(128))]
struct Seat {
    /// Place among the seats.
    place: usize,
    /// tokio runtime that runs the guest.
    tokio: Id,
    /// Waker of the guest's task, from its first poll on.
    waker: OnceLock<Waker>,
    is_busy: AtomicBool,
    desk: Mutex<Desk>,
}

struct Desk {
    state: State,
    inbox: Vec<Token>,
    /// Whether a thread has the seat as its home.
    is_owned: bool,
    /// Checks of the clock thread since the oldest token came.
    checks: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Rests,
    Woken,
    Runs,
    Closed,
}

/// Seats of a thread, each with the address of its runtime's guests. Its drop leaves the seats.
struct Home(Vec<(usize, Arc<Seat>)>);

impl Drop for Home {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, seat)| lock(&seat.desk).is_owned = false);
    }
}

thread_local! {
    static HOME: RefCell<Home> = const { RefCell::new(Home(Vec::new())) };
}

/// Leaves a process, which this thread has made ready, to a guest of this thread's tokio runtime. Returns the
/// token if a worker's thread must run the process.
pub(crate) fn accept(token: Token) -> Option<Token> {
    if !token.class().never_blocks {
        return Some(token);
    }
    let mut token = Some(token);
    // Without the thread-local, because the thread is ending, a worker runs the process.
    let _ = HOME.try_with(|home| {
        if let Ok(mut home) = home.try_borrow_mut() {
            token = token.take().and_then(|token| home.push(token));
        }
    });
    token
}

impl Home {
    /// Puts a token into this thread's seat. Returns the token if the thread has no seat.
    fn push(&mut self, token: Token) -> Option<Token> {
        // The token keeps the runtime in place until it is pushed.
        let shared = token.class().runtime.shared();
        let guests = ptr::from_ref(&shared.scheduler.guests).addr();
        if shared.scheduler.phase() != Phase::Running {
            return Some(token);
        }
        let found = self.0.iter().position(|(of, _)| *of == guests);
        let seat = match found {
            Some(at) => &self.0[at].1,
            None => {
                let Some(seat) = Guests::seat_here(shared) else { return Some(token) };
                self.0.push((guests, seat));
                &self.0[self.0.len() - 1].1
            }
        };
        match seat.push(token) {
            Ok(wakes) => {
                if wakes {
                    seat.wake();
                }
                None
            }
            Err(token) => {
                // The guest has ended, with its tokio runtime or its own.
                self.0.retain(|(of, _)| *of != guests);
                Some(token)
            }
        }
    }
}

impl Seat {
    /// Creates the seat of a guest that is about to be spawned.
    fn new(place: usize, tokio: Id) -> Seat {
        let desk = Desk { state: State::Woken, inbox: Vec::new(), is_owned: true, checks: 0 };
        let (waker, is_busy) = (OnceLock::new(), AtomicBool::new(true));
        Seat { place, tokio, waker, is_busy, desk: Mutex::new(desk) }
    }

    /// Puts a token into the inbox; true if the guest must be woken. Returns the token if the seat is closed.
    fn push(&self, token: Token) -> Result<bool, Token> {
        let mut desk = lock(&self.desk);
        match desk.state {
            State::Closed => return Err(token),
            State::Rests => {
                desk.state = State::Woken;
                self.is_busy.store(true, Ordering::SeqCst);
                let shared = token.class().runtime.shared();
                shared.clock_keeper.wake_for_guest(&shared.scheduler.clock);
                desk.inbox.push(token);
                return Ok(true);
            }
            State::Woken | State::Runs => desk.inbox.push(token),
        }
        Ok(false)
    }

    /// Wakes the guest. Not under the lock: if its tokio runtime is over, this drops the guest.
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Moves the inbox to `batch`, which is empty; false if the seat is closed.
    fn begin(&self, batch: &mut Vec<Token>) -> bool {
        let mut desk = lock(&self.desk);
        if desk.state == State::Closed {
            return false;
        }
        desk.state = State::Runs;
        desk.checks = 0;
        mem::swap(&mut desk.inbox, batch);
        true
    }

    /// Makes the guest rest; false if there are tokens, so that it must go on.
    fn rest(&self) -> bool {
        let mut desk = lock(&self.desk);
        if !desk.inbox.is_empty() {
            desk.state = State::Woken;
            return false;
        }
        desk.state = State::Rests;
        self.is_busy.store(false, Ordering::SeqCst);
        true
    }

    /// Closes the seat, unless its guest runs or has tokens.
    fn close_if_idle(&self) -> bool {
        let mut desk = lock(&self.desk);
        let is_idle = desk.inbox.is_empty() && desk.state != State::Runs;
        if is_idle {
            desk.state = State::Closed;
        }
        is_idle
    }

    /// Closes the seat, whose guest has ended, and returns the tokens in it.
    fn close(&self) -> Vec<Token> {
        let mut desk = lock(&self.desk);
        desk.state = State::Closed;
        self.is_busy.store(false, Ordering::SeqCst);
        mem::take(&mut desk.inbox)
    }

    /// Becomes the home of the calling thread, if its last thread has ended and the guest is a task of this
    /// tokio runtime.
    fn adopt(&self, tokio: Id) -> bool {
        let mut desk = lock(&self.desk);
        let is_free = !desk.is_owned && desk.state != State::Closed && self.tokio == tokio;
        desk.is_owned |= is_free;
        is_free
    }

    /// Takes the tokens that the guest has left lying for several checks.
    fn overdue(&self) -> Vec<Token> {
        let mut desk = lock(&self.desk);
        desk.checks = if desk.inbox.is_empty() { 0 } else { desk.checks + 1 };
        if desk.checks < PATIENCE {
            return Vec::new();
        }
        desk.checks = 0;
        mem::take(&mut desk.inbox)
    }
}

impl Guests {
    pub(crate) fn new(first: usize, seats: usize) -> Guests {
        Guests { first, seats, places: Mutex::new((0..seats).map(|_| None).collect()) }
    }

    /// Number of seats.
    pub(crate) fn seats(&self) -> usize {
        self.seats
    }

    /// Whether a place among the workers is a seat.
    pub(crate) fn is_seat(&self, index: usize) -> bool {
        (self.first..self.first + self.seats).contains(&index)
    }

    /// Returns a seat for this thread: one that a thread of the same tokio runtime has left, or a new one.
    /// `None` on a thread that runs no task of a multi-threaded tokio runtime, and if no seat is free. A
    /// runtime with a single thread has no seats: if its thread leaves tokio, nothing polls the guest.
    #[cold]
    fn seat_here(shared: &Arc<Shared>) -> Option<Arc<Seat>> {
        tokio::task::try_id()?;
        let tokio = Handle::try_current().ok()?;
        if tokio.runtime_flavor() != RuntimeFlavor::MultiThread {
            return None;
        }
        let guests = &shared.scheduler.guests;
        let seat = {
            let mut places = lock(&guests.places);
            if let Some(left) = places.iter().flatten().find(|seat| seat.adopt(tokio.id())) {
                return Some(left.clone());
            }
            let place = places.iter().position(Option::is_none)?;
            places[place].insert(Arc::new(Seat::new(place, tokio.id()))).clone()
        };
        let worker = Worker::new(shared.clone(), guests.first + seat.place);
        let is_own = tokio.id() == shared.tokio().id();
        let guest = Guest { worker: Some(Box::new(worker)), seat: seat.clone(), batch: Vec::new(), is_own };
        tokio.spawn(tokio::task::unconstrained(guest));
        Some(seat)
    }

    /// Whether a guest runs a process, or is about to.
    pub(crate) fn any_seated(&self) -> bool {
        lock(&self.places).iter().flatten().any(|seat| seat.is_busy.load(Ordering::SeqCst))
    }

    /// Hands tokens to the workers that tokio has given no guest the time to run; called by the clock thread.
    pub(crate) fn rescue(&self, scheduler: &Scheduler) {
        let overdue: Vec<Token> = lock(&self.places).iter().flatten().flat_map(|seat| seat.overdue()).collect();
        if !overdue.is_empty() {
            scheduler.inject(overdue);
        }
    }

    /// Wakes all guests, so that they see that the runtime is over.
    pub(crate) fn wake_all(&self) {
        let seats: Vec<_> = lock(&self.places).iter().flatten().cloned().collect();
        seats.iter().for_each(|seat| seat.wake());
    }

    /// Closes the seats, because the runtime is over; false if a guest runs or has tokens, which then frees
    /// what the runtime holds.
    pub(crate) fn close_seats(&self) -> bool {
        let seats = lock(&self.places);
        seats.iter().flatten().fold(true, |all, seat| seat.close_if_idle() && all)
    }
}

/// The task of a guest. Its drop ends the guest: by the end of the runtime, or of the tokio runtime.
struct Guest {
    worker: Option<Box<Worker>>,
    seat: Arc<Seat>,
    /// Tokens taken out of the inbox and not yet run.
    batch: Vec<Token>,
    /// Whether the guest's tokio runtime is that of the handlers.
    is_own: bool,
}

impl Future for Guest {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let Guest { worker, seat, batch, is_own } = &mut *self;
        let Some(worker) = worker else { return Poll::Ready(()) };
        if seat.waker.get().is_none() {
            let _ = seat.waker.set(task.waker().clone());
        }
        for _ in 0..ROUNDS {
            if !seat.begin(batch) || worker.scheduler().phase() == Phase::Over {
                return Poll::Ready(());
            }
            let _inside_tokio = (!*is_own).then(|| worker.shared.tokio().enter());
            scheduler::enter(worker, || worker.run_as_guest(batch));
            if seat.rest() {
                return Poll::Pending;
            }
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        let shared = worker.shared.clone();
        let left = self.batch.drain(..).chain(self.seat.close());
        worker.leave_seat(left);
        lock(&shared.scheduler.guests.places)[self.seat.place] = None;
        shared.free_if_over();
    }
}
