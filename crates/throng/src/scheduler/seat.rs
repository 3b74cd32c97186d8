//! Seat: the queue of a guest, between the threads that push and the task that takes.
//!
//! | state | the guest's task | items |
//! |---|---|---|
//! | `Rests` | waits to be woken | none |
//! | `Woken` | is about to be polled | any |
//! | `Runs` | is polled | those pushed meanwhile |
//! | `Closed` | has ended, or is about to | none; a push is refused |
//!
//! Invariants:
//! 1. Each item that was pushed comes out once: by `begin`, `overdue` or `close`.
//! 2. A push from `Rests` tells the pusher to wake the task; after any other the task, which has been woken
//!    or is polled, finds the item before it rests.
//! 3. The seat is busy from that push until the task rests.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use std::mem;

/// Checks of the clock thread, in a row, that find an item before it takes the item out.
const PATIENCE: u8 = 3;

/// Queue of a guest. Has cache lines of its own, because each thread mostly uses one seat.
#[repr(align(128))]
pub(crate) struct Seat<T> {
    /// One if the seat is busy; written under the lock.
    busy: AtomicUsize,
    desk: Mutex<Desk<T>>,
}

struct Desk<T> {
    state: State,
    items: Vec<T>,
    /// Whether a thread has the seat as its home.
    is_owned: bool,
    /// Checks of the clock thread since the oldest item came.
    checks: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Rests,
    Woken,
    Runs,
    Closed,
}

impl<T> Seat<T> {
    /// Creates the seat of a thread, whose guest is about to be spawned.
    pub(crate) fn new() -> Seat<T> {
        let desk = Desk { state: State::Woken, items: Vec::new(), is_owned: true, checks: 0 };
        Seat { busy: AtomicUsize::new(1), desk: Mutex::new(desk) }
    }

    /// Pushes an item; true if the caller must wake the task. `at_busy` runs with the item once the seat has
    /// become busy. Returns the item if the seat is closed.
    pub(crate) fn push(&self, item: T, at_busy: impl FnOnce(&T)) -> Result<bool, T> {
        let mut desk = lock(&self.desk);
        let wakes = match desk.state {
            State::Closed => return Err(item),
            State::Woken | State::Runs => false,
            State::Rests => {
                desk.state = State::Woken;
                // SeqCst: pairs with the check of a clock thread that is about to sleep; see `clock_keeper`.
                self.busy.store(1, Ordering::SeqCst);
                at_busy(&item);
                true
            }
        };
        desk.items.push(item);
        Ok(wakes)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) != 0
    }

    /// Task: moves the items to `batch`, which is empty; false if the seat is closed.
    pub(crate) fn begin(&self, batch: &mut Vec<T>) -> bool {
        let mut desk = lock(&self.desk);
        if desk.state == State::Closed {
            return false;
        }
        desk.state = State::Runs;
        desk.checks = 0;
        mem::swap(&mut desk.items, batch);
        true
    }

    /// Task: rests; false if there are items, so that it must go on, or if the seat is closed.
    pub(crate) fn rest(&self) -> bool {
        let mut desk = lock(&self.desk);
        if !desk.items.is_empty() {
            desk.state = State::Woken;
            return false;
        }
        desk.state = State::Rests;
        self.busy.store(0, Ordering::SeqCst);
        true
    }

    /// Closes the seat, unless its task runs or has items.
    pub(crate) fn close_if_idle(&self) -> bool {
        let mut desk = lock(&self.desk);
        let is_idle = desk.items.is_empty() && desk.state != State::Runs;
        if is_idle {
            desk.state = State::Closed;
            self.busy.store(0, Ordering::SeqCst);
        }
        is_idle
    }

    /// Task: closes the seat and returns the items in it.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut desk = lock(&self.desk);
        desk.state = State::Closed;
        self.busy.store(0, Ordering::SeqCst);
        mem::take(&mut desk.items)
    }

    /// Becomes the home of another thread, if its last thread has left it.
    pub(crate) fn adopt(&self) -> bool {
        let mut desk = lock(&self.desk);
        let is_free = !desk.is_owned && desk.state != State::Closed;
        desk.is_owned |= is_free;
        is_free
    }

    /// Is no thread's home any more.
    pub(crate) fn leave(&self) {
        lock(&self.desk).is_owned = false;
    }

    /// Takes the items that the task has left lying for several checks.
    pub(crate) fn overdue(&self) -> Vec<T> {
        let mut desk = lock(&self.desk);
        desk.checks = if desk.items.is_empty() { 0 } else { desk.checks + 1 };
        if desk.checks < PATIENCE {
            return Vec::new();
        }
        desk.checks = 0;
        mem::take(&mut desk.items)
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads push while the task runs and rests, and the clock thread takes what is overdue.
    #[test]
    fn loom_each_item_comes_out_once_and_none_is_left_with_a_task_at_rest() {
        loom::model(|| {
            let seat = Arc::new(Seat::new());
            let wakes = Arc::new(AtomicUsize::new(1));
            let taken = Arc::new(AtomicUsize::new(0));
            let pushers = [1, 2].map(|item| {
                let (seat, wakes) = (seat.clone(), wakes.clone());
                thread::spawn(move || {
                    if seat.push(item, |_| ()) == Ok(true) {
                        wakes.fetch_add(1, Ordering::AcqRel);
                    }
                })
            });
            let poll = || {
                let mut batch = Vec::new();
                assert!(seat.begin(&mut batch));
                taken.fetch_add(batch.drain(..).sum(), Ordering::Relaxed);
                seat.rest()
            };
            // One poll for each wake, and more while the task does not come to rest.
            let mut polled = 0;
            while polled < wakes.load(Ordering::Acquire) {
                polled += usize::from(poll());
            }
            for pusher in pushers {
                pusher.join().unwrap();
            }
            while polled < wakes.load(Ordering::Acquire) {
                polled += usize::from(poll());
            }
            assert_eq!(taken.load(Ordering::Relaxed), 3);
            assert!(!seat.is_busy());
        });
    }

    /// The runtime closes the seat while a thread pushes and the task runs: either the push is refused, or
    /// the task gets the item, and the seat is closed by one of them.
    #[test]
    fn loom_an_item_pushed_as_the_seat_closes_is_refused_or_taken() {
        loom::model(|| {
            let seat = Arc::new(Seat::new());
            let pusher = thread::spawn({
                let seat = seat.clone();
                move || seat.push(1, |_| ()).is_err()
            });
            let closer = thread::spawn({
                let seat = seat.clone();
                move || seat.close_if_idle()
            });
            let mut batch = Vec::new();
            let mut taken = 0;
            if seat.begin(&mut batch) {
                taken += batch.drain(..).count();
                // Closed or not, what came meanwhile must not be lost.
                let _ = seat.rest();
            }
            let (refused, closed) = (pusher.join().unwrap(), closer.join().unwrap());
            taken += seat.close().len();
            assert_eq!(taken, usize::from(!refused));
            assert!(closed || taken == 1 || !refused);
        });
    }
}
