//! The word of the frame: a turn under way, or marks that say how the next turn begins.
//!
//! | lowest bits | the rest of the word | set by |
//! |---|---|---|
//! | none | the frame of a turn under way; zero for none | the turn's first poll |
//! | `WAITS` | the tick until which the process waits for a message, in the upper half | the end of a turn |
//! | `TO_STOP` | unused | a request to stop, which an idle process gets |
//! | `FRESH` | unused | a spawn: signals wait for the first turn |
//! | `FRESH`, `TO_START` | unused | a spawn: the first turn is the hook `started` |
//!
//! Access: the token's holder alone (table in `cell`). `WAITS` without a tick is the mark of a state that
//! has been dropped.

use super::Token;
use crate::timer::Tick;
use crate::turn::frame::FrameHead;
use crate::turn::process::{Process, Stop};
use std::ptr::{self, NonNull};

/// Bit in the word of the frame: there is no frame, and the process waits for a message.
pub(super) const WAITS: usize = 1;
/// Bit in the word of the frame: there is no frame, and the process is to exit in place of its next
/// turn.
const TO_STOP: usize = 2;
/// Bit in the word of the frame: there is no frame, and the process's first turn has not begun:
/// signals wait for it.
pub(super) const FRESH: usize = 4;
/// Bit in the word of the frame, with [`FRESH`]: the first turn is that of the hook `started`. If
/// not, it is in the first message.
const TO_START: usize = 8;
const MARKS: usize = WAITS | TO_STOP | FRESH | TO_START;
/// Position, in the word of the frame, of the tick until which the process waits.
pub(super) const TICK_SHIFT: u32 = 32;

impl Token {
    /// Stores a pending turn in the cell, or records that no turn is pending.
    #[inline(always)]
    pub(crate) fn set_frame(&self, frame: Option<NonNull<FrameHead>>) {
        // SAFETY: the token's holder has exclusive access to `frame` (table in `cell`).
        self.cell().frame.with_mut(|field| unsafe { *field = frame });
    }

    #[inline(always)]
    pub(super) fn frame(&self) -> Option<NonNull<FrameHead>> {
        // SAFETY: the token's holder has exclusive access to `frame` (table in `cell`).
        let frame = self.cell().frame.with(|frame| unsafe { *frame });
        frame.filter(|frame| frame.addr().get() & MARKS == 0)
    }

    /// Returns the tick until which the process waits for a message, if it waits and no turn is
    /// under way.
    pub(crate) fn waits_until(&self) -> Option<Tick> {
        let word = self.frame_word();
        Tick::from_raw((word >> TICK_SHIFT) as u32).filter(|_| word & WAITS != 0)
    }

    /// Makes an idle process, whose token was just taken, exit in place of its next turn. Signals
    /// that come before are acted on first, as before a message.
    #[inline(always)]
    pub(crate) fn ask_to_stop<P: Process>(&self) {
        if self.is_layered() {
            // The layer has its part in the exit.
            return self.queue::<Stop, P>(Stop);
        }
        self.set_frame(NonNull::new(ptr::without_provenance_mut(TO_STOP)));
    }

    /// Whether the process is to exit in place of its next turn.
    #[inline(always)]
    pub(crate) fn is_to_stop(&self) -> bool {
        self.frame_word() & TO_STOP != 0
    }

    /// Makes the hook `started` the first turn of a process that was just created, which has the
    /// hook. Signals wait for it.
    #[inline(always)]
    pub(crate) fn set_to_start(&self) {
        self.set_frame(NonNull::new(ptr::without_provenance_mut(TO_START | FRESH)));
    }

    /// Whether the process is to begin with the hook `started`.
    #[inline(always)]
    pub(crate) fn is_to_start(&self) -> bool {
        self.frame_word() & TO_START != 0
    }

    /// Makes signals wait until the first turn has begun.
    #[inline(always)]
    pub(super) fn set_fresh(&self) {
        self.set_frame(NonNull::new(ptr::without_provenance_mut(FRESH)));
    }

    /// Lets signals no longer wait for the first turn, because it has begun or will not run.
    #[inline(always)]
    pub(crate) fn clear_fresh(&self) {
        if self.is_fresh() {
            self.set_frame(None);
        }
    }

    #[inline(always)]
    pub(super) fn is_fresh(&self) -> bool {
        self.frame_word() & FRESH != 0
    }

    /// Returns the address of the frame, or the word in its place; zero for none.
    #[inline(always)]
    pub(super) fn frame_word(&self) -> usize {
        // SAFETY: the token's holder has exclusive access to `frame` (table in `cell`).
        let frame = self.cell().frame.with(|frame| unsafe { *frame });
        frame.map_or(0, |frame| frame.addr().get())
    }
}
