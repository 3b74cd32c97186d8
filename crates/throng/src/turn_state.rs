//! Whether a turn is suspended, and who may continue it.
//!
//! A turn that awaits something keeps its process's mailbox `BUSY`, so that no other turn begins;
//! what wakes it is a [`Waker`](std::task::Waker), which may be called from anywhere, any number
//! of times, even long after. This word decides which of those calls gets the token:
//!
//! | bits | meaning | set by | cleared by |
//! |---|---|---|---|
//! | – | running, or no turn at all | holder | |
//! | `NOTIFIED` | somebody woke it since it last began a poll | any waker | holder, by `resume` |
//! | `SUSPENDED` | the last poll was pending, nobody holds the token | holder, by `suspend` | holder, by `resume` |
//!
//! Invariants:
//! 1. Of all wakes after a `suspend`, exactly one gets the token.
//! 2. A wake during the poll, or between turns, is not lost: the next `suspend` fails.
//! 3. A wake that comes late hits whatever lives in the slot by then: that process polls once in
//!    vain, which any future must tolerate. Messages are never misdirected; see `mailbox`.

use crate::sync::atomic::{AtomicU32, Ordering};

const SUSPENDED: u32 = 1;
const NOTIFIED: u32 = 2;

/// See the file's head.
#[repr(transparent)]
pub(crate) struct TurnState(AtomicU32);

impl TurnState {
    #[cfg(all(test, throng_loom))]
    fn new() -> TurnState {
        TurnState(AtomicU32::new(0))
    }

    /// Forgets wakes meant for an earlier process of this slot.
    #[inline(always)]
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Gives the token up until the next wake; false if there was one already, then the holder
    /// keeps the token and polls again after [`resume`](Self::resume).
    #[must_use]
    pub(crate) fn suspend(&self) -> bool {
        // Releases the frame and the state to whoever resumes.
        self.0.compare_exchange(0, SUSPENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Begins the next poll: wakes from here on count anew. For the token's holder.
    pub(crate) fn resume(&self) {
        // Acquires what the waking thread did before it woke.
        self.0.swap(0, Ordering::AcqRel);
    }

    /// Records a wake; true if the caller now holds the token and must schedule the process.
    #[must_use]
    pub(crate) fn notify(&self) -> bool {
        self.0.fetch_or(NOTIFIED, Ordering::AcqRel) == SUSPENDED
    }

    /// Whether a turn waits here that nobody has woken.
    pub(crate) fn is_suspended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SUSPENDED
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_a_wake_is_never_lost_and_never_doubled() {
        loom::model(|| {
            let state = Arc::new(TurnState::new());
            // Stands for the frame: only the token's holder may touch it.
            let polls = Arc::new(loom::cell::UnsafeCell::new(0_u32));
            let ready = Arc::new(AtomicU32::new(0));
            let continue_turn = {
                let (state, polls, ready) = (state.clone(), polls.clone(), ready.clone());
                move || loop {
                    state.resume();
                    // SAFETY: the token is ours.
                    polls.with_mut(|polls| unsafe { *polls += 1 });
                    if ready.load(Ordering::Acquire) == 2 {
                        return true;
                    }
                    if state.suspend() {
                        return false;
                    }
                }
            };
            let finished = Arc::new(AtomicU32::new(0));
            let wakers = [(); 2].map(|()| {
                let (state, ready, finished) = (state.clone(), ready.clone(), finished.clone());
                let continue_turn = continue_turn.clone();
                thread::spawn(move || {
                    ready.fetch_add(1, Ordering::AcqRel);
                    if state.notify() && continue_turn() {
                        finished.fetch_add(1, Ordering::Relaxed);
                    }
                })
            });
            if continue_turn() {
                finished.fetch_add(1, Ordering::Relaxed);
            }
            for waker in wakers {
                waker.join().unwrap();
            }
            assert_eq!(finished.load(Ordering::Relaxed), 1);
        });
    }
}
