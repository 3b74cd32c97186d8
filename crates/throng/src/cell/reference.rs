//! A cell as any thread may reach it: by its atomic words.
//!
//! ```text
//! address, timer wheel, slab ─▶ CellRef ── wake, push, ring ──▶ the token, if no thread held it
//! ```
//!
//! Access: the first column of the table in `cell`. The slot may be free, or hold another process than the
//! one that the caller means, so the words that matter compare the generation.

use super::{Cell, Token, pid};
use crate::address::{Pid, RawAddress};
use crate::mailbox::bounded;
use crate::mailbox::{Generation, Gone, Link, Pushed};
use crate::sync::atomic::Ordering;
use crate::timer::Tick;
use crate::turn::receive_timeout;
use crate::turn::turn_state::{AlarmOutcome, Announced};
use std::ptr::NonNull;

/// Reference to a cell, usable by any thread for ever, because slots are never unmapped. Reaches
/// only the cell's atomic words; the process in the slot may have changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CellRef(pub(super) NonNull<Cell>);

// SAFETY: only the cell's atomic words are reached through it, by any thread (first row of the
// table in `cell`).
unsafe impl Send for CellRef {}
// SAFETY: only the cell's atomic words are reached through it, by any thread (first row of the
// table in `cell`).
unsafe impl Sync for CellRef {}

impl CellRef {
    /// Makes a reference to the cell in a slot.
    ///
    /// # Safety
    /// The pointer is to a slot that a slab has handed out, and may be used for the whole slot.
    #[inline(always)]
    pub(crate) unsafe fn new(cell: NonNull<Cell>) -> CellRef {
        CellRef(cell)
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> NonNull<Cell> {
        self.0
    }

    #[inline(always)]
    pub(super) fn cell(&self) -> &Cell {
        // SAFETY: by the contract of `new` this is a slot; slots stay cells and are never unmapped.
        unsafe { self.0.as_ref() }
    }

    /// Returns the generation of the process in this cell, if a process lives in it.
    #[inline(always)]
    pub(crate) fn generation(self) -> Option<Generation> {
        let (generation, live) = self.cell().mailbox.peek();
        live.then_some(generation)
    }

    /// Returns the pid of the process in this cell, if a process lives in it.
    pub(crate) fn resident(self) -> Option<Pid> {
        self.generation().map(|generation| Pid::from_raw(RawAddress::new(self.0, generation)))
    }

    /// Queues a message; returns the token if no thread held it.
    ///
    /// # Safety
    /// The caller owns the message, which fits the type of process that the generation names.
    #[inline(always)]
    pub(crate) unsafe fn push(
        self,
        generation: Generation,
        message: NonNull<Link>,
    ) -> Result<Option<Token>, Gone> {
        if generation.is_bounded() {
            return bounded::push(self, generation, message);
        }
        // SAFETY: the caller keeps the contract of `push`, which is that of `push_on_word`.
        unsafe { self.push_on_word(generation, message) }
    }

    /// Queues a message like [`push`](Self::push), but past the bounded queue.
    ///
    /// # Safety
    /// The caller owns the message, which fits the type of process that the generation names.
    #[inline(always)]
    pub(crate) unsafe fn push_on_word(
        self,
        generation: Generation,
        message: NonNull<Link>,
    ) -> Result<Option<Token>, Gone> {
        // SAFETY: by this function's contract the caller owns the message, and it fits the
        // generation's process.
        let pushed = unsafe { self.cell().mailbox.push(generation, message) }?;
        Ok(self.token_after(pushed))
    }

    /// Wakes a process in whose bounded queue a message was put; returns the token if no thread
    /// held it.
    pub(crate) fn wake_for_push(self, generation: Generation) -> Option<Token> {
        self.token_after(self.cell().mailbox.wake_for_push(generation))
    }

    #[inline(always)]
    fn token_after(self, pushed: Pushed) -> Option<Token> {
        match pushed {
            Pushed::Queued => None,
            Pushed::Woke => Some(Token(self.0)),
            Pushed::Awaited => self.wake_turn(),
        }
    }

    /// Queues a signal; returns the token if no thread held it. A process that is to be killed for
    /// its unread signals takes no more, as if it were gone.
    ///
    /// # Safety
    /// The caller owns the message, which is a signal.
    pub(crate) unsafe fn push_signal(
        self,
        generation: Generation,
        message: NonNull<Link>,
    ) -> Result<Option<Token>, Gone> {
        let turn = &self.cell().turn;
        let announced = turn.announce();
        if announced == Announced::Refused {
            return Err(Gone);
        }
        // SAFETY: by this function's contract the caller owns the message; a signal fits any type
        // of process.
        let pushed = unsafe { self.push_on_word(generation, message) };
        if pushed.is_err() {
            turn.retract();
            return Err(Gone);
        }
        if announced == Announced::AtBound {
            turn.flood();
        }
        match pushed {
            // The token's holder acts on signals before the next message. If a turn is suspended,
            // no thread holds the token, and this call takes it.
            Ok(None) => Ok(self.wake_turn()),
            pushed => pushed,
        }
    }

    /// Whether so many signals are unread that the process in this cell takes no more questions.
    pub(crate) fn is_crowded(self) -> bool {
        self.cell().turn.is_crowded()
    }

    /// Takes the token of an idle process.
    pub(crate) fn wake_idle(self) -> Option<Token> {
        self.wake(self.generation()?)
    }

    /// Takes the token of the idle process that the generation names.
    #[inline(always)]
    pub(crate) fn wake(self, generation: Generation) -> Option<Token> {
        self.cell().mailbox.wake(generation).then(|| Token(self.0))
    }

    /// Wakes the suspended turn of the process in this cell; returns the token if no thread held
    /// it.
    #[inline(always)]
    pub(crate) fn wake_turn(self) -> Option<Token> {
        self.cell().turn.notify().then(|| Token(self.0))
    }

    /// Returns the pid of the process in this cell, or of the last process if it has exited.
    pub(crate) fn pid(self) -> Pid {
        pid(self.0)
    }

    /// Whether a turn runs, or waits for something other than messages.
    #[inline(always)]
    pub(crate) fn is_in_turn(self, generation: Generation) -> bool {
        !self.cell().mailbox.is_at_rest(generation)
    }

    /// Wakes a turn that waits for a message, although no message has come.
    pub(crate) fn wake_awaiting(self) -> Option<Token> {
        let generation = self.generation()?;
        if self.cell().mailbox.is_awaiting(generation) { self.wake_turn() } else { None }
    }

    pub(crate) fn is_suspended(self) -> bool {
        self.cell().turn.is_suspended()
    }

    /// Records when the wheel is to wake this process; false if an alarm at least as early is set.
    #[inline(always)]
    pub(crate) fn advance_alarm(self, at: Tick) -> bool {
        let alarm = &self.cell().alarm;
        // Only the token's holder sets the alarm, and a ring that comes between finds it changed or
        // has already woken the process; relaxed is enough because `turn` orders the wake.
        match Tick::from_raw(alarm.load(Ordering::Relaxed)) {
            Some(set) if set.is_due(at) => false,
            _ => {
                alarm.store(at.to_raw(), Ordering::Relaxed);
                true
            }
        }
    }

    /// Whether the wheel's entry for `at` is still the current alarm.
    pub(crate) fn has_alarm(self, at: Tick) -> bool {
        self.cell().alarm.load(Ordering::Relaxed) == at.to_raw()
    }

    /// Acts on the wheel's entry for `at`, which has come up: wakes the process unless the entry is
    /// superseded.
    pub(crate) fn ring(self, at: Tick) -> Option<Token> {
        let alarm = &self.cell().alarm;
        alarm.compare_exchange(at.to_raw(), 0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        match self.cell().turn.ring() {
            AlarmOutcome::Woke => Some(Token(self.0)),
            AlarmOutcome::TimedOut => receive_timeout::queue(self),
            AlarmOutcome::Noted => None,
        }
    }

    /// Makes the process's alarm queue a timeout message when it rings. For the token's holder.
    pub(crate) fn expect_timeout(self) {
        self.cell().turn.expect_timeout();
    }
}
