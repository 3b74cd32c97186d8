//! The death of a process: its address goes, then its messages, its state, and at last its slot.
//!
//! ```text
//! die: pending ─▶ mailbox closed ─▶ bounded queue ─▶ state ─▶ kept messages ─▶ extension │ obituary │ free
//! ```
//!
//! Access: the column "token held" of the table in `cell`.
//!
//! Invariant: a panic that cuts a death short loses no step: each leaves the cell before its work is done,
//! and the next call continues where the last stopped.

use super::frame_word::WAITS;
use super::{Losses, Token};
use crate::cell::slab::{Slab, SlotCache};
use crate::exit::{ExitReason, catch};
use crate::fault::{self, Step};
use crate::mailbox::Generation;
use crate::mailbox::envelope;
use crate::signal::{self, Signal};
use std::cell::RefCell;
use std::ptr::{self, NonNull};
use tracing::Level;

impl Token {
    /// Ends the process's life: removes its address, drops its queued messages (callers are
    /// notified) and drops its state. If a panic cuts it short, the next call continues where it
    /// stopped: each step has left the cell before its work is done.
    ///
    /// # Panics
    /// If a turn is under way.
    pub(crate) fn die(&self, generation: Generation, reason: &ExitReason) {
        assert!(self.frame().is_none(), "a process ends after its turn");
        if self.first_pending().is_some() {
            self.discard_queued(reason);
        }
        if !self.is_closed() {
            let rest = self.cell().mailbox.close(generation);
            if !rest.is_null() {
                // SAFETY: the token's holder has exclusive access to `pending` (table in `cell`),
                // which `discard_queued` or the check above has left empty.
                self.cell().pending.with_mut(|pending| unsafe { *pending = rest });
                self.discard_queued(reason);
            }
        }
        if generation.is_bounded() {
            self.close_bounded_queue(reason);
        }
        let state_dropped = self.drop_state();
        self.count_kept(reason);
        let dropped = match self.if_extension(|own| own.exit(reason)) {
            Some(life) => state_dropped.and(catch(|| drop(life))),
            None => state_dropped,
        };
        if let Err(reason) = dropped {
            let process = self.class().name;
            let what = "the state of a process panicked when it was dropped";
            self.class().runtime.events().report(Level::ERROR, what, process, move |what| {
                tracing::error!(target: "throng::worker", process, %reason, "{what}");
            });
        }
    }

    /// Drops the state, once.
    pub(super) fn drop_state(&self) -> Result<(), ExitReason> {
        fault::point(Step::State, self.class().name);
        // SAFETY: the token's holder has exclusive access to `frame` (table in `cell`). The mark is
        // the word of no frame and of a wait without an end, which no other step of an exit writes.
        let dropped = self.cell().frame.with_mut(|frame| unsafe {
            let dropped = (*frame).is_some_and(|frame| frame.addr().get() == WAITS);
            *frame = NonNull::new(ptr::without_provenance_mut(WAITS));
            dropped
        });
        if dropped {
            return Ok(());
        }
        let drop_state = self.class().drop_state;
        // SAFETY: the process has no address and no turn, so nothing else refers to the state, and
        // the mark says that it was not dropped before.
        catch(|| unsafe { drop_state(self.0) })
    }

    /// Drops the messages taken from the mailbox, one at a time, so that a panic loses none but its
    /// own. Watchers that are no processes are notified with the others, when the names of the
    /// process are free.
    #[cold]
    fn discard_queued(&self, reason: &ExitReason) {
        let mut losses = Losses::new(self, reason);
        while let Some(message) = self.first_pending() {
            // SAFETY: a drained message belongs to the token's holder; the link is read before the
            // message goes.
            let signal = unsafe {
                fault::point(Step::Refuse, self.class().name);
                let next = message.as_ref().next();
                self.cell().pending.with_mut(|pending| *pending = next);
                envelope::take_signal(message)
            };
            if signal.is_some() {
                self.cell().turn.retract();
            }
            match signal {
                Some(Signal::Watch(callback)) => signal::add_callback(self, callback),
                Some(Signal::Tie(tie)) => tie.end(self.class().runtime.scheduler()),
                Some(signal) => signal.refuse(self.pid(), reason),
                // SAFETY: the message belongs to the token's holder and was taken out of the list
                // above.
                None => unsafe {
                    let title = envelope::title_of(message);
                    losses.add(title, envelope::discard(message, reason));
                },
            }
        }
    }

    /// Returns the reason of the process's exit, if the process has exited and its links and
    /// watchers are being notified.
    pub(crate) fn obituary(&self) -> Option<ExitReason> {
        self.if_extension(|own| own.obituary().cloned()).flatten()
    }

    /// Gives back the slot of a process that has died.
    ///
    /// # Panics
    /// If the process still has an address.
    pub(crate) fn free(self, slab: &Slab, slots: &RefCell<SlotCache>) {
        fault::point(Step::Free, self.class().name);
        let (next, is_alive) = self.cell().mailbox.peek();
        assert!(!is_alive, "a process dies before its cell is freed");
        // SAFETY: the token's holder has exclusive access to `extension` (table in `cell`); it is
        // moved out once.
        drop(self.cell().extension.with_mut(|field| unsafe { field.replace(None) }));
        let slot = self.class().slot;
        // SAFETY: `create` took the slot from the slab of this runtime, with the class's slot size.
        // This call consumes the token (`given`), and the mailbox is closed (asserted above), so no
        // thread gets the token again.
        unsafe { slots.borrow_mut().give(slab, slot, self.0, next) };
        self.given();
    }
}
