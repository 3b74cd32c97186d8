//! The word of a turn: whether it is suspended, which thread may continue it, and whether signals
//! are under way.
//!
//! A turn that awaits something keeps its process's mailbox `BUSY`, so that no other turn begins.
//! The turn is woken by a [`Waker`](std::task::Waker), which any thread may call any number of
//! times, even long after. This word decides which of these calls gets the token:
//!
//! | bits | meaning | set by | cleared by |
//! |---|---|---|---|
//! | – | running, or no turn at all | holder | |
//! | `NOTIFIED` | the turn was woken since its last poll began, while another thread held the token | any waker | holder, by `resume` |
//! | `SUSPENDED` | the last poll was pending, no thread holds the token | holder, by `suspend` | the thread that takes the token |
//! | 6..31 | signals announced and not yet taken out of the mailbox | senders, before the push | holder, having taken them out; a sender whose push failed |
//! | `TIMEOUT` | between turns: an alarm that rings brings a message | holder | holder |
//! | `FLOODED` (31) | so many signals are unread that the process is to be killed; it takes no more | a sender that has pushed a signal as the count reached [`SIGNALS_MOST`] | the slot's next process |
//!
//! Invariants:
//! 1. Exactly one of all the wakes after a `suspend` gets the token.
//! 2. A wake during the poll, or between turns, is not lost: the next `suspend` fails.
//! 3. A wake that comes late hits the process that lives in the slot by then: that process polls
//!    once without effect, which any future must tolerate. Messages are never misdirected; see `mailbox`.
//! 4. The holder looks for signals after `resume`, never before: a wake that `resume` forgets may
//!    have been for a signal.
//! 5. A signal is announced before it is pushed and retracted after it was taken out. So the thread
//!    that drains a mailbox with a signal in it sees the announcement. A sender with a stale
//!    address both announces and retracts; so no new process of a slot sets the count to zero.
//! 6. `FLOODED` is set only while [`SIGNALS_MOST`] signals are counted, so the holder has a signal
//!    to take out after the bit was set, and then sees the bit: each process that has refused a
//!    signal ends. The count exceeds the bound by at most the number of threads that are just
//!    sending, far less than the room above it, so it never wraps.

use crate::sync::atomic::{AtomicU32, Ordering};

const SUSPENDED: u32 = 1;
const NOTIFIED: u32 = 2;
const TIMEOUT: u32 = 4;
/// The flags below the count.
const LOW_FLAGS: u32 = 0x3F;
const SIGNAL: u32 = LOW_FLAGS + 1;
const FLOODED: u32 = 1 << 31;
const COUNT: u32 = !(LOW_FLAGS | FLOODED);

/// Unread signals at which a process is killed: a GiB of them.
pub(crate) const SIGNALS_MOST: u32 = match () {
    () if cfg!(throng_loom) => 1,
    () if cfg!(test) => 4096,
    () => 1 << 24,
};
/// Number of unread signals at which signals that only ask for something are dropped.
const SIGNALS_CROWDED: u32 = SIGNALS_MOST / 16;

const _: () = assert!(COUNT / SIGNAL - SIGNALS_MOST >= 1 << 20, "there is room for all threads");

/// Whether a signal may be pushed.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announced {
    /// The sender pushes the signal.
    Counted,
    /// The sender pushes the signal, and then calls [`TurnState::flood`].
    AtBound,
    /// The process takes no more signals: the sender does not push the signal.
    Refused,
}

/// Outcome of an alarm that rings: the next step of the caller.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum AlarmOutcome {
    /// The caller holds the token of a suspended turn and must schedule the process.
    Woke,
    /// The process's wait for a message is over; the caller must queue the message that says so.
    TimedOut,
    /// The caller has nothing to do.
    Noted,
}

/// The word of a turn. See the file's head.
#[repr(transparent)]
pub(crate) struct TurnState(AtomicU32);

impl TurnState {
    #[cfg(all(test, throng_loom))]
    pub(crate) fn new() -> TurnState {
        TurnState(AtomicU32::new(0))
    }

    /// Forgets wakes meant for an earlier process of this slot.
    #[inline(always)]
    pub(crate) fn reset(&self) {
        if self.0.load(Ordering::Relaxed) & !COUNT != 0 {
            self.0.fetch_and(COUNT, Ordering::Relaxed);
        }
    }

    /// Gives the token up until the next wake. False if there was a wake already: then the holder
    /// keeps the token and polls again after [`resume`](Self::resume).
    #[must_use]
    pub(crate) fn suspend(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & NOTIFIED == 0 {
            // Releases the frame and the state to the thread that takes the token, in `record_wake`
            // or `borrow`.
            match self.0.compare_exchange_weak(
                word,
                word | SUSPENDED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Begins the next poll, and forgets earlier wakes. For the token's holder.
    #[inline(always)]
    pub(crate) fn resume(&self) {
        // Acquires the writes of the waking thread before its wake. A wake after this load is seen
        // by `suspend`; so the usual case, a single wake that took the token, costs no exchange.
        if self.0.load(Ordering::Acquire) & NOTIFIED != 0 {
            self.0.fetch_and(!NOTIFIED, Ordering::AcqRel);
        }
    }

    /// Records a wake; true if the caller now holds the token and must schedule the process.
    #[must_use]
    pub(crate) fn notify(&self) -> bool {
        self.record_wake() & SUSPENDED != 0
    }

    /// Takes the token if the turn is suspended, otherwise notes the wake; returns the previous
    /// word.
    #[inline(always)]
    fn record_wake(&self) -> u32 {
        // The usual word first, without a load, which would fetch the line from the other core
        // twice.
        let mut word = SUSPENDED;
        loop {
            let woken = if word & SUSPENDED != 0 { word & !SUSPENDED } else { word | NOTIFIED };
            match self.0.compare_exchange_weak(word, woken, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return word,
                Err(seen) => word = seen,
            }
        }
    }

    /// Takes the token of a turn that is suspended without waking the turn; the holder gives it
    /// back by [`suspend`](Self::suspend).
    #[must_use]
    pub(crate) fn borrow(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & SUSPENDED != 0 {
            // Acquires the frame and the state from the thread that called `suspend`.
            match self.0.compare_exchange_weak(
                word,
                word & !SUSPENDED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Announces a signal, which the sender then pushes unless it is refused.
    pub(crate) fn announce(&self) -> Announced {
        let before = self.0.fetch_add(SIGNAL, Ordering::Relaxed);
        if before & FLOODED != 0 {
            self.retract();
            return Announced::Refused;
        }
        let counted = (before & COUNT) / SIGNAL + 1;
        if counted < SIGNALS_MOST { Announced::Counted } else { Announced::AtBound }
    }

    /// Sets `FLOODED` after the push of the signal that reaches the bound, unless the process has
    /// caught up since: it then takes no more signals and is to be killed.
    #[cold]
    pub(crate) fn flood(&self) {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & FLOODED == 0 && (word & COUNT) / SIGNAL >= SIGNALS_MOST {
            match self.0.compare_exchange_weak(
                word,
                word | FLOODED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Whether the process is to be killed for its unread signals. For the token's holder, after it
    /// has retracted the signals it has taken out.
    pub(crate) fn is_flooded(&self) -> bool {
        self.0.load(Ordering::Relaxed) & FLOODED != 0
    }

    /// Whether so many signals are unread that the process takes no more questions.
    pub(crate) fn is_crowded(&self) -> bool {
        (self.0.load(Ordering::Relaxed) & COUNT) / SIGNAL >= SIGNALS_CROWDED
    }

    /// Retracts the announcement of a signal that was taken out of the mailbox, or was not pushed.
    pub(crate) fn retract(&self) {
        self.0.fetch_sub(SIGNAL, Ordering::Relaxed);
    }

    /// Whether signals are in the mailbox, or about to be.
    #[inline(always)]
    pub(crate) fn is_signalled(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= SIGNAL
    }

    /// Records that the alarm has rung; see `receive_timeout`.
    pub(crate) fn ring(&self) -> AlarmOutcome {
        match self.record_wake() {
            before if before & SUSPENDED != 0 => AlarmOutcome::Woke,
            before if before & TIMEOUT != 0 => AlarmOutcome::TimedOut,
            _ => AlarmOutcome::Noted,
        }
    }

    /// Makes an alarm that rings from here on, while no turn is under way, bring a message. For the
    /// token's holder, which looks at the alarm after this.
    pub(crate) fn expect_timeout(&self) {
        if self.0.load(Ordering::Relaxed) & TIMEOUT == 0 {
            // Acquires the change to the alarm by a `ring` that did not see the bit.
            self.0.fetch_or(TIMEOUT, Ordering::AcqRel);
        }
    }

    /// Takes [`expect_timeout`](Self::expect_timeout) back. For the token's holder.
    pub(crate) fn forget_timeout(&self) {
        self.0.fetch_and(!TIMEOUT, Ordering::Relaxed);
    }

    /// Whether a turn is suspended and has not been woken.
    pub(crate) fn is_suspended(&self) -> bool {
        self.0.load(Ordering::Relaxed) & SUSPENDED != 0
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

    /// An inspector borrows the token while another thread wakes the turn: the turn goes on once.
    #[test]
    fn loom_a_wake_while_the_token_is_borrowed_is_not_lost() {
        loom::model(|| {
            let state = Arc::new(TurnState::new());
            let frame = Arc::new(loom::cell::UnsafeCell::new(0_u32));
            assert!(state.suspend());
            let polls = Arc::new(AtomicU32::new(0));
            let go_on = {
                let (state, frame, polls) = (state.clone(), frame.clone(), polls.clone());
                move || {
                    state.resume();
                    // SAFETY: the token is ours.
                    frame.with_mut(|frame| unsafe { *frame += 1 });
                    polls.fetch_add(1, Ordering::Relaxed);
                }
            };
            let inspector = {
                let (state, frame, go_on) = (state.clone(), frame.clone(), go_on.clone());
                thread::spawn(move || {
                    if state.borrow() {
                        // SAFETY: the token is ours.
                        frame.with(|frame| unsafe { assert!(*frame <= 1) });
                        if !state.suspend() {
                            go_on();
                        }
                    }
                })
            };
            if state.notify() {
                go_on();
            }
            inspector.join().unwrap();
            assert_eq!(polls.load(Ordering::Relaxed), 1);
        });
    }

    /// A process whose turn waits for ever, and a signal to it: the last holder of the token has
    /// seen the signal.
    #[test]
    fn loom_a_signal_is_seen_though_the_turn_waits_for_ever() {
        use crate::mailbox::items::{item, take};
        use crate::mailbox::{Generation, Mailbox, Pushed};
        loom::model(|| {
            let first = Generation::FIRST;
            let mailbox = Arc::new(Mailbox::new_open(first));
            let state = Arc::new(TurnState::new());
            let seen = Arc::new(loom::cell::UnsafeCell::new(Vec::new()));
            assert!(mailbox.wake(first));
            let hold = {
                let (mailbox, state, seen) = (mailbox.clone(), state.clone(), seen.clone());
                move || loop {
                    state.resume();
                    if state.is_signalled() {
                        // SAFETY: drained, and the token is ours.
                        seen.with_mut(|seen| unsafe {
                            let taken = take(mailbox.drain(first));
                            taken.iter().for_each(|_| state.retract());
                            (*seen).extend(taken);
                        });
                    }
                    if state.suspend() {
                        return;
                    }
                }
            };
            let signaller = {
                let (mailbox, state, hold) = (mailbox.clone(), state.clone(), hold.clone());
                thread::spawn(move || {
                    assert_ne!(state.announce(), Announced::Refused);
                    // SAFETY: the item is new, so nothing else points to it.
                    let pushed = unsafe { mailbox.push(first, item(1)) };
                    assert_eq!(pushed, Ok(Pushed::Queued));
                    if state.notify() {
                        hold();
                    }
                })
            };
            hold();
            signaller.join().unwrap();
            // SAFETY: both threads are done.
            seen.with(|seen| unsafe { assert_eq!(*seen, [1]) });
            assert!(!state.is_signalled());
        });
    }

    /// Two signals to a process that is flooded by a single unread signal: if the second signal is
    /// refused, the token's holder has learnt that the process is to end.
    #[test]
    fn loom_a_process_that_has_refused_a_signal_learns_that_it_is_flooded() {
        use crate::mailbox::items::{item, take};
        use crate::mailbox::{Generation, Mailbox, Pushed};
        loom::model(|| {
            let first = Generation::FIRST;
            let mailbox = Arc::new(Mailbox::new_open(first));
            let state = Arc::new(TurnState::new());
            // Signals taken out, and whether the process has ended.
            let seen = Arc::new(loom::cell::UnsafeCell::new((0_usize, false)));
            assert!(mailbox.wake(first));
            assert!(state.suspend());
            let hold = {
                let (mailbox, state, seen) = (mailbox.clone(), state.clone(), seen.clone());
                move || loop {
                    state.resume();
                    if state.is_signalled() {
                        // SAFETY: drained, and the token is ours.
                        let ended = seen.with_mut(|seen| unsafe {
                            let taken = take(mailbox.drain(first));
                            taken.iter().for_each(|_| state.retract());
                            (*seen).0 += taken.len();
                            (*seen).1 |= state.is_flooded();
                            (*seen).1
                        });
                        if ended {
                            // The process keeps its token, as a process that exits does.
                            return;
                        }
                    }
                    if state.suspend() {
                        return;
                    }
                }
            };
            let signal = {
                let (mailbox, state, hold) = (mailbox.clone(), state.clone(), hold.clone());
                move || {
                    let announced = state.announce();
                    if announced == Announced::Refused {
                        return false;
                    }
                    // SAFETY: the item is new, so nothing else points to it.
                    let pushed = unsafe { mailbox.push(first, item(1)) };
                    assert_eq!(pushed, Ok(Pushed::Queued));
                    if announced == Announced::AtBound {
                        state.flood();
                    }
                    if state.notify() {
                        hold();
                    }
                    true
                }
            };
            let other = thread::spawn(signal.clone());
            let pushed = [signal(), other.join().unwrap()];
            // SAFETY: both threads are done.
            let (taken, ended) = seen.with(|seen| unsafe { *seen });
            let pushed = pushed.into_iter().filter(|&pushed| pushed).count();
            assert!(ended || (pushed == 2 && taken == 2));
            // SAFETY: both threads are done, so the items that the process left are taken once.
            let left = unsafe { take(mailbox.drain(first)) };
            assert_eq!(taken + left.len(), pushed);
        });
    }

    /// A timeout is set while an alarm that is in the wheel already rings: either the ring brings
    /// the message, or the alarm is seen to be gone and is set again.
    #[test]
    fn loom_an_alarm_that_rings_while_a_timeout_is_set_is_not_lost() {
        loom::model(|| {
            let state = Arc::new(TurnState::new());
            let alarm = Arc::new(AtomicU32::new(5));
            let ringer = thread::spawn({
                let (state, alarm) = (state.clone(), alarm.clone());
                move || {
                    let rings =
                        alarm.compare_exchange(5, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
                    rings && state.ring() == AlarmOutcome::TimedOut
                }
            });
            state.expect_timeout();
            let set_again = alarm.load(Ordering::Relaxed) == 0;
            let brought = ringer.join().unwrap();
            assert!(set_again || brought);
        });
    }
}
