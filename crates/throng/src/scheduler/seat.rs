//! Seat: room for a worker that one thread at a time uses, for the length of a call.
//!
//! The worker in a seat keeps the runtime alive, and with it the memory of the seat. So a guest takes
//! the seat and leaves it by one exchange each, and counts no reference to the runtime.
//!
//! ```text
//!            take                  close                     the guest leaves
//!   FREE ◀──────────▶ TAKEN ──────────────▶ TAKEN | CLOSED ───────────────────▶ CLOSED
//!     │      leave                                ▲                               ▲
//!     └───────────────────── close ───────────────┘          the occupant is out ─┘
//! ```
//!
//! | field | changed by |
//! |---|---|
//! | state: from `FREE` | any thread, by an exchange |
//! | state: to `FREE` | the guest, by an exchange, while the seat is not closed |
//! | state: `CLOSED` set | the end of the runtime, by an exchange; or the guest, if it sees the end |
//! | state: `CLOSED` alone | the thread that has taken the occupant out |
//! | occupant | the thread that has changed the state from `FREE` |
//!
//! Invariants:
//! 1. Between an exchange that sets `TAKEN` and the store that clears it, one thread uses the occupant.
//! 2. A seat that is taken has an occupant, which keeps the seat in place; except while it is made, when
//!    the caller of `take` does so.
//! 3. A closed seat is not taken again. Its occupant is taken out by the closing thread if the seat was
//!    free, and by the guest otherwise; the guest learns it by the exchange with which it leaves.

use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU32, Ordering};
use std::ops::Deref;
use std::ptr::NonNull;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const CLOSED: u32 = 2;

/// Value that a seat holds.
///
/// # Safety
/// While the value exists, the seat that holds it is neither freed nor moved.
pub(crate) unsafe trait Occupant {
    /// Whether the seat is to be closed.
    fn is_over(&self) -> bool;

    /// Ends the occupant, which its last guest has taken out of a closed seat. Calls `close` while the
    /// seat is still in place.
    fn end(self, close: impl FnOnce());
}

/// Seat on cache lines of its own, because each guest prefers a seat of its own.
#[repr(align(128))]
pub(crate) struct Seat<T> {
    state: AtomicU32,
    occupant: UnsafeCell<Option<T>>,
}

// SAFETY: by invariant 1 one thread at a time uses the occupant, and the exchanges order their uses.
unsafe impl<T: Send> Sync for Seat<T> {}

/// A taken seat. Its drop leaves the seat.
pub(crate) struct Seated<T: Occupant> {
    seat: NonNull<Seat<T>>,
    occupant: NonNull<T>,
}

impl<T: Occupant> Seat<T> {
    pub(crate) fn new() -> Seat<T> {
        Seat { state: AtomicU32::new(FREE), occupant: UnsafeCell::new(None) }
    }

    /// Takes the seat if it is free; makes the occupant if there is none.
    #[inline(always)]
    pub(crate) fn take(&self, make: impl FnOnce() -> T) -> Option<Seated<T>> {
        /// Frees the seat if the occupant could not be made.
        struct Free<'a>(&'a AtomicU32);
        impl Drop for Free<'_> {
            fn drop(&mut self) {
                self.0.fetch_and(!TAKEN, Ordering::Release);
            }
        }
        // Acquire: the occupant as its last guest has left it.
        self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let making = Free(&self.state);
        // SAFETY: this thread has taken the seat, so it alone uses the occupant (invariant 1).
        let occupant = self
            .occupant
            .with_mut(|it| NonNull::from(unsafe { &mut *it }.get_or_insert_with(make)));
        std::mem::forget(making);
        Some(Seated { seat: NonNull::from(self), occupant })
    }

    /// Whether a guest has the seat, or its occupant is being ended.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Acquire) & TAKEN != 0
    }

    /// Closes the seat, and gives its occupant to `end` if the seat was free. Returns `false` if another
    /// thread still has the occupant.
    pub(crate) fn close(&self, end: impl FnOnce(T)) -> bool {
        let close = |state| (state != CLOSED).then_some(TAKEN | CLOSED);
        // Acquire as in `take`. Release: a guest that finds the seat closed sees that the runtime is over.
        match self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, close) {
            Ok(FREE) => {
                self.take_out().map(end);
                self.end_close();
                true
            }
            Ok(_) => false,
            Err(_) => true,
        }
    }

    /// Announces that the occupant is out. An exchange, because loom would order a plain store before
    /// the exchange of `close` in cases that the language rules out.
    fn end_close(&self) {
        self.state.swap(CLOSED, Ordering::AcqRel);
    }

    /// Takes the occupant out; only for the thread that has taken the seat.
    fn take_out(&self) -> Option<T> {
        // SAFETY: the caller has set `TAKEN` and not cleared it, so it alone uses the occupant
        // (invariant 1).
        self.occupant.with_mut(|it| unsafe { &mut *it }.take())
    }
}

impl<T: Occupant> Deref for Seated<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the occupant stays in the taken seat until the drop, and only this thread uses it.
        unsafe { self.occupant.as_ref() }
    }
}

impl<T: Occupant> Drop for Seated<T> {
    #[inline(always)]
    fn drop(&mut self) {
        let is_over = self.is_over();
        // SAFETY: the seat is in place until the exchange, because its occupant is in it (invariant 2),
        // and afterwards if the exchange has failed. The exchange is the last access if it succeeds.
        let state = unsafe { &(*self.seat.as_ptr()).state };
        let left = || {
            // Release: the next guest, or the closing thread, takes the occupant over. Acquire: see
            // `close`.
            state.compare_exchange(TAKEN, FREE, Ordering::Release, Ordering::Acquire).is_ok()
        };
        if is_over || !left() {
            self.close();
        }
    }
}

impl<T: Occupant> Seated<T> {
    #[cold]
    fn close(&mut self) {
        // SAFETY: the seat is taken, so its occupant keeps it in place (invariant 2), here and while
        // `end` calls `close`.
        let seat = unsafe { self.seat.as_ref() };
        if let Some(occupant) = seat.take_out() {
            occupant.end(|| seat.end_close());
        }
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use crate::sync::{Mutex, lock};
    use loom::sync::Arc;
    use loom::thread;

    /// Stands for the runtime's shared part: the seat, the phase, and the injector.
    struct Home {
        seat: Seat<Stand>,
        over: AtomicU32,
        made: AtomicU32,
        ended: AtomicU32,
        injector: Mutex<Vec<u32>>,
    }

    /// Stands for a worker. Loom reports it if two threads use it at once, and if its reference to the
    /// runtime is not dropped.
    struct Stand {
        home: Arc<Home>,
        uses: UnsafeCell<u32>,
    }

    // SAFETY: the stand holds a reference to the memory that has the seat.
    unsafe impl Occupant for Stand {
        fn is_over(&self) -> bool {
            self.home.over.load(Ordering::Relaxed) != 0
        }

        fn end(self, close: impl FnOnce()) {
            self.home.ended.fetch_add(1, Ordering::Relaxed);
            lock(&self.home.injector).clear();
            self.touch();
            close();
        }
    }

    impl Stand {
        fn touch(&self) {
            // SAFETY: the caller has the seat; loom checks that no other thread is in here.
            self.uses.with_mut(|uses| unsafe { *uses += 1 });
        }
    }

    impl Home {
        fn new() -> Arc<Home> {
            let zero = || AtomicU32::new(0);
            let (over, made, ended) = (zero(), zero(), zero());
            Arc::new(Home {
                seat: Seat::new(),
                over,
                made,
                ended,
                injector: Mutex::new(Vec::new()),
            })
        }

        fn sit(home: &Arc<Home>) -> Option<Seated<Stand>> {
            home.seat.take(|| {
                home.made.fetch_add(1, Ordering::Relaxed);
                Stand { home: home.clone(), uses: UnsafeCell::new(0) }
            })
        }

        /// Ends the runtime as the shutdown does: sets the phase, lets the workers run what is left, and
        /// closes the seat.
        fn end(&self) -> bool {
            self.over.store(1, Ordering::Relaxed);
            lock(&self.injector).clear();
            self.seat.close(|stand| {
                stand.touch();
                self.ended.fetch_add(1, Ordering::Relaxed);
            })
        }
    }

    #[test]
    fn loom_a_seat_has_one_guest_and_its_occupant_ends_once() {
        loom::model(|| {
            let home = Home::new();
            let guests: Vec<_> = (0..2)
                .map(|_| {
                    let home = home.clone();
                    thread::spawn(move || {
                        let seated = Home::sit(&home);
                        // From here on the occupant alone keeps the seat in place for this thread.
                        drop(home);
                        if let Some(stand) = seated {
                            stand.touch();
                        }
                    })
                })
                .collect();
            home.end();
            for guest in guests {
                guest.join().unwrap();
            }
            assert!(home.seat.close(|_| unreachable!("the seat was closed before")));
            assert!(Home::sit(&home).is_none());
            let [made, ended] = [&home.made, &home.ended].map(|it| it.load(Ordering::Relaxed));
            assert_eq!(made, ended);
        });
    }

    #[test]
    fn loom_a_process_that_a_guest_hands_over_is_run() {
        loom::model(|| {
            let home = Home::new();
            let guest = thread::spawn({
                let home = home.clone();
                move || {
                    let Some(stand) = Home::sit(&home) else { return false };
                    lock(&home.injector).push(1);
                    drop(stand);
                    true
                }
            });
            home.end();
            guest.join().unwrap();
            assert!(lock(&home.injector).is_empty());
        });
    }
}
