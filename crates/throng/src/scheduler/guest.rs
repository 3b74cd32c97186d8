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
//! Invariants:
//! 1. Only processes whose type promises never to block are run by guests: [`accept`] keeps others from the
//!    seats, and [`Worker::push`] from a guest's own queue.
//! 2. A token in a seat is run. Either the guest is polled, or its drop hands the token to the workers, or
//!    the clock thread does so, if tokio has not polled the guest for some milliseconds ([`Guests::rescue`]).
//! 3. A seat is busy from the push that wakes its guest until the guest rests; while one is, the clock thread
//!    is awake (`clock_keeper`).
//! 4. Classes are freed only once all seats are closed; the guest that runs until then frees them.

use crate::cell::Token;
use crate::runtime::Shared;
use crate::scheduler::seat::Seat;
use crate::scheduler::worker::Worker;
use crate::scheduler::{self, Phase, Scheduler};
use crate::sync::{Mutex, lock};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use tokio::runtime::{Handle, Id, RuntimeFlavor};

/// Times in a row that a guest goes on with what has come meanwhile before it lets other tasks run.
const ROUNDS: u32 = 4;

/// Guests of a runtime; see the file's head.
pub(crate) struct Guests {
    /// Place of the first seat among the workers.
    first: usize,
    seats: usize,
    places: Mutex<Box<[Option<Arc<Post>>]>>,
}

/// A guest as other threads reach it.
struct Post {
    seat: Seat<Token>,
    place: usize,
    /// tokio runtime that runs the guest.
    tokio: Id,
    /// Waker of the guest's task, from its first poll on.
    waker: OnceLock<Waker>,
}

/// Seats of a thread, each with the address of its runtime's guests. Its drop leaves the seats.
struct Home(Vec<(usize, Arc<Post>)>);

impl Drop for Home {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, post)| post.seat.leave());
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
        let post = match found {
            Some(at) => &self.0[at].1,
            None => {
                let Some(post) = Guests::post_here(shared) else { return Some(token) };
                self.0.push((guests, post));
                &self.0[self.0.len() - 1].1
            }
        };
        let pushed = post.seat.push(token, |token| {
            let shared = token.class().runtime.shared();
            shared.clock_keeper.wake_for_guest(&shared.scheduler.clock);
        });
        match pushed {
            Ok(true) => post.wake(),
            Ok(false) => {}
            Err(token) => {
                // The guest has ended, with its tokio runtime or its own.
                self.0.retain(|(of, _)| *of != guests);
                return Some(token);
            }
        }
        None
    }
}

impl Post {
    /// Wakes the guest. If its tokio runtime is over, this drops the guest.
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

impl Guests {
    pub(crate) fn new(first: usize, seats: usize) -> Guests {
        Guests { first, seats, places: Mutex::new((0..seats).map(|_| None).collect()) }
    }

    pub(crate) fn seats(&self) -> usize {
        self.seats
    }

    pub(crate) fn is_seat(&self, index: usize) -> bool {
        (self.first..self.first + self.seats).contains(&index)
    }

    /// Returns a guest for this thread: one that a thread of the same tokio runtime has left, or a new one.
    /// `None` on a thread that runs no task of a multi-threaded tokio runtime, and if no seat is free. A
    /// runtime with a single thread has no guests: if its thread leaves tokio, nothing polls them.
    #[cold]
    fn post_here(shared: &Arc<Shared>) -> Option<Arc<Post>> {
        tokio::task::try_id()?;
        let tokio = Handle::try_current().ok()?;
        if tokio.runtime_flavor() != RuntimeFlavor::MultiThread {
            return None;
        }
        let (guests, id) = (&shared.scheduler.guests, tokio.id());
        let post = {
            let mut places = lock(&guests.places);
            let is_left = |post: &&Arc<Post>| post.tokio == id && post.seat.adopt();
            if let Some(left) = places.iter().flatten().find(is_left) {
                return Some(left.clone());
            }
            let place = places.iter().position(Option::is_none)?;
            let post = Post { seat: Seat::new(), place, tokio: id, waker: OnceLock::new() };
            places[place].insert(Arc::new(post)).clone()
        };
        let worker = Some(Box::new(Worker::new(shared.clone(), guests.first + post.place)));
        let is_own = id == shared.tokio().id();
        let guest = Guest { worker, post: post.clone(), batch: Vec::new(), is_own };
        tokio.spawn(tokio::task::unconstrained(guest));
        Some(post)
    }

    /// Whether a guest runs a process, or is about to.
    pub(crate) fn any_seated(&self) -> bool {
        lock(&self.places).iter().flatten().any(|post| post.seat.is_busy())
    }

    /// Hands tokens to the workers that tokio has given no guest the time to run; called by the clock thread.
    pub(crate) fn rescue(&self, scheduler: &Scheduler) {
        let posts = lock(&self.places);
        let overdue: Vec<Token> =
            posts.iter().flatten().flat_map(|post| post.seat.overdue()).collect();
        drop(posts);
        if !overdue.is_empty() {
            scheduler.inject(overdue);
        }
    }

    /// Wakes all guests, so that they see that the runtime is over.
    pub(crate) fn wake_all(&self) {
        let posts: Vec<_> = lock(&self.places).iter().flatten().cloned().collect();
        posts.iter().for_each(|post| post.wake());
    }

    /// Closes the seats, because the runtime is over; false if a guest runs or has tokens, which then frees
    /// what the runtime holds.
    pub(crate) fn close_seats(&self) -> bool {
        let posts = lock(&self.places);
        // Each of them, also behind one that stays open.
        posts.iter().flatten().filter(|post| !post.seat.close_if_idle()).count() == 0
    }
}

/// The task of a guest. Its drop ends the guest: by the end of the runtime, or of the tokio runtime.
struct Guest {
    worker: Option<Box<Worker>>,
    post: Arc<Post>,
    /// Tokens taken out of the seat and not yet run.
    batch: Vec<Token>,
    /// Whether the guest's tokio runtime is that of the handlers.
    is_own: bool,
}

impl Future for Guest {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let Guest { worker, post, batch, is_own } = &mut *self;
        let Some(worker) = worker else { return Poll::Ready(()) };
        if post.waker.get().is_none() {
            let _ = post.waker.set(task.waker().clone());
        }
        for _ in 0..ROUNDS {
            if !post.seat.begin(batch) || worker.scheduler().phase() == Phase::Over {
                return Poll::Ready(());
            }
            let _inside_tokio = (!*is_own).then(|| worker.shared.tokio().enter());
            scheduler::enter(worker, || worker.run_as_guest(batch));
            if post.seat.rest() {
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
        let left = self.batch.drain(..).chain(self.post.seat.close());
        worker.leave_seat(left);
        lock(&shared.scheduler.guests.places)[self.post.place] = None;
        shared.free_if_over();
    }
}
