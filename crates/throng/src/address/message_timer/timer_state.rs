//! The state word of a message timer: which side owns the message, and which side frees the block.
//!
//! A timer has three sides: the *handle*, which may cancel it; the *share*, which stands in a wheel
//! or travels to the process; and the *tie*, by which the process ends the timer as it exits.
//!
//! | bit | meaning | set by |
//! |---|---|---|
//! | `OVER` | the message is taken; it was fired or cancelled, or the process has exited | any side, once |
//! | `CLONING` | the share's side reads the message | the share's side, which clears it |
//! | `HANDLE_GONE`, `SHARE_GONE`, `TIE_GONE` | that side is gone | that side |
//!
//! Invariants:
//! 1. The side that sets `OVER` owns the message; but if `CLONING` was set, the cloning side owns
//!    it once its clone is done.
//! 2. The side that goes last frees the block. The message is gone by then: share and tie set
//!    `OVER` before they go.
//! 3. If one thread sets a timer's alarm (`set_alarm`) while another ends the timer and looks for the alarm
//!    (`find_alarm`), one of the two takes the alarm out again.

use crate::sync::atomic::{AtomicU16, Ordering, fence};

const OVER: u16 = 1;
const CLONING: u16 = 2;
const HANDLE_GONE: u16 = 4;
const SHARE_GONE: u16 = 8;
const TIE_GONE: u16 = 16;
const ALL_GONE: u16 = HANDLE_GONE | SHARE_GONE | TIE_GONE;

/// State word of a message timer; see the file's head.
#[repr(transparent)]
pub(crate) struct TimerState(AtomicU16);

/// Result of an attempt to end a timer.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The timer was over already.
    Before,
    /// The timer is over, and the message belongs to the caller.
    Mine,
    /// The timer is over, and the share's side, which is cloning the message, drops it.
    Theirs,
}

impl TimerState {
    pub(crate) fn new() -> TimerState {
        TimerState(AtomicU16::new(0))
    }

    /// Ends the timer. For any side.
    pub(crate) fn end(&self) -> Ended {
        // Acquires the message as it was written; releases only the right to it.
        match self.0.fetch_or(OVER, Ordering::AcqRel) {
            before if before & OVER != 0 => Ended::Before,
            before if before & CLONING != 0 => Ended::Theirs,
            _ => Ended::Mine,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OVER != 0
    }

    /// Sets the alarm, unless the timer is over; takes it out again if the timer has ended meanwhile.
    pub(crate) fn set_alarm(&self, set: impl FnOnce(), take_out: impl FnOnce()) {
        if self.is_over() {
            return;
        }
        set();
        // Orders the alarm before the look, as the fence of `find_alarm` orders the end before the second look there:
        // one of the two finds the other.
        fence(Ordering::SeqCst);
        if self.is_over() {
            take_out();
        }
    }

    /// Looks for the alarm of a timer that the caller has ended.
    pub(crate) fn find_alarm<S>(take_out: impl Fn() -> Option<S>) -> Option<S> {
        take_out().or_else(|| {
            // Another thread may be about to set it.
            fence(Ordering::SeqCst);
            take_out()
        })
    }

    /// Share: begins to read the message; false if the timer is over.
    #[must_use]
    pub(crate) fn begin_clone(&self) -> bool {
        self.0.fetch_or(CLONING, Ordering::AcqRel) & OVER == 0
    }

    /// Share: has read the message; false if the timer was ended meanwhile, in which case the
    /// caller must drop the message.
    #[must_use]
    pub(crate) fn end_clone(&self) -> bool {
        // Releases the reads to the side that ends the timer next.
        self.0.fetch_and(!CLONING, Ordering::AcqRel) & OVER == 0
    }

    /// Marks the handle gone; true if it is the last side and must free the block.
    #[must_use]
    pub(crate) fn drop_handle(&self) -> bool {
        self.drop_side(HANDLE_GONE)
    }

    /// Marks the share gone; true if it is the last side and must free the block. The timer is over
    /// by then.
    #[must_use]
    pub(crate) fn drop_share(&self) -> bool {
        self.drop_side(SHARE_GONE)
    }

    /// Marks the tie gone; true if it is the last side and must free the block. The timer is over
    /// by then.
    #[must_use]
    pub(crate) fn drop_tie(&self) -> bool {
        self.drop_side(TIE_GONE)
    }

    /// Marks share and tie gone, which one side has in hand; true if they are the last sides. The timer is over by
    /// then.
    #[must_use]
    pub(crate) fn drop_share_and_tie(&self) -> bool {
        self.drop_side(SHARE_GONE | TIE_GONE)
    }

    fn drop_side(&self, side: u16) -> bool {
        // Releases this side's accesses to the side that frees, which acquires them.
        (self.0.fetch_or(side, Ordering::AcqRel) | side) & ALL_GONE == ALL_GONE
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicBool, AtomicUsize};
    use loom::sync::{Arc, Mutex};
    use loom::thread;
    use std::mem;

    struct Timer {
        state: TimerState,
        /// Read while cloning, written when taken; loom reports an overlap of the two.
        message: UnsafeCell<u32>,
        taken: AtomicUsize,
        freed: AtomicUsize,
    }

    impl Timer {
        fn new() -> Arc<Timer> {
            Arc::new(Timer {
                state: TimerState::new(),
                message: UnsafeCell::new(7),
                taken: AtomicUsize::new(0),
                freed: AtomicUsize::new(0),
            })
        }

        fn take(&self) {
            // SAFETY: the caller owns the message by invariant 1; loom checks it.
            self.message.with_mut(|message| unsafe { *message = 0 });
            self.taken.fetch_add(1, Ordering::Relaxed);
        }

        fn cancel(&self) -> bool {
            let ended = self.state.end();
            if ended == Ended::Mine {
                self.take();
            }
            ended != Ended::Before
        }

        fn cancel_and_drop_handle(&self) -> bool {
            let cancelled = self.cancel();
            if self.state.drop_handle() {
                self.free();
            }
            cancelled
        }

        /// The process exits, or takes the timer off its list.
        fn drop_tie(&self) -> bool {
            let ended = self.state.end() == Ended::Mine;
            if ended {
                self.take();
            }
            if self.state.drop_tie() {
                self.free();
            }
            ended
        }

        fn free(&self) {
            // SAFETY: only the last side frees, by invariant 2; loom checks it.
            self.message.with_mut(|message| unsafe { *message = 99 });
            self.freed.fetch_add(1, Ordering::Relaxed);
        }

        fn check(&self) {
            assert_eq!(self.taken.load(Ordering::Relaxed), 1);
            assert_eq!(self.freed.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn loom_a_message_is_fired_or_dropped_once_and_the_block_freed_once() {
        loom::model(|| {
            let timer = Timer::new();
            let handle = thread::spawn({
                let timer = timer.clone();
                move || timer.cancel_and_drop_handle()
            });
            let process = thread::spawn({
                let timer = timer.clone();
                move || timer.drop_tie()
            });
            let fired = timer.state.end() == Ended::Mine;
            if fired {
                timer.take();
            }
            if timer.state.drop_share() {
                timer.free();
            }
            let ended = [handle.join().unwrap(), process.join().unwrap(), fired];
            assert_eq!(ended.iter().filter(|&&ended| ended).count(), 1);
            timer.check();
        });
    }

    #[test]
    fn loom_a_process_ends_a_timer_whose_share_it_has_taken_out_of_the_wheel() {
        loom::model(|| {
            let timer = Timer::new();
            let handle = thread::spawn({
                let timer = timer.clone();
                move || timer.cancel_and_drop_handle()
            });
            if timer.state.end() == Ended::Mine {
                timer.take();
            }
            if timer.state.drop_share_and_tie() {
                timer.free();
            }
            handle.join().unwrap();
            timer.check();
        });
    }

    #[test]
    fn loom_an_interval_cancelled_while_its_message_is_cloned() {
        loom::model(|| {
            let timer = Timer::new();
            let handle = thread::spawn({
                let timer = timer.clone();
                move || timer.cancel_and_drop_handle()
            });
            // The process holds the tie and, at present, the share.
            for _ in 0..2 {
                if !timer.state.begin_clone() {
                    break;
                }
                // SAFETY: `begin_clone` found the timer not over; while `CLONING` is set no side
                // takes the message (invariant 1).
                timer.message.with(|message| unsafe { assert_eq!(*message, 7) });
                if !timer.state.end_clone() {
                    timer.take();
                    break;
                }
            }
            if timer.state.end() == Ended::Mine {
                // The timer is not cancelled, but the process is gone.
                timer.take();
            }
            if timer.state.drop_share() {
                timer.free();
            }
            timer.drop_tie();
            handle.join().unwrap();
            timer.check();
        });
    }

    #[test]
    fn loom_an_alarm_that_is_set_while_its_timer_ends_is_taken_out() {
        /// The wheel's entry, and the place that the block remembers, written under the wheel's lock.
        #[derive(Default)]
        struct Alarm {
            is_set: Mutex<bool>,
            is_placed: AtomicBool,
        }
        impl Alarm {
            fn set(&self) {
                let mut is_set = self.is_set.lock().unwrap();
                self.is_placed.store(true, Ordering::Relaxed);
                *is_set = true;
            }
            fn take_out(&self) -> Option<()> {
                let is_placed = self.is_placed.load(Ordering::Relaxed);
                let was_set = is_placed && mem::take(&mut *self.is_set.lock().unwrap());
                was_set.then_some(())
            }
        }
        loom::model(|| {
            let timer = Arc::new((TimerState::new(), Alarm::default()));
            let process = thread::spawn({
                let timer = timer.clone();
                move || {
                    let _ = timer.0.end();
                    TimerState::find_alarm(|| timer.1.take_out());
                }
            });
            let (state, alarm) = &*timer;
            state.set_alarm(|| alarm.set(), || drop(alarm.take_out()));
            process.join().unwrap();
            assert!(!*alarm.is_set.lock().unwrap());
        });
    }
}
