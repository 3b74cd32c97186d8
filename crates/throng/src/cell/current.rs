//! A cell seen from its own turn.
//!
//! Invariants: what is here runs while the calling thread holds the cell's token and the turn is
//! under way; it borrows that token and never gives it back. Who may touch what is as in `cell`.

use super::class;
use super::{Cell, CellRef, TICK_SHIFT, Token, WAITS, pid};
use crate::address::Pid;
use crate::cell::extension::{Attachment, Extension};
use crate::exit::ExitReason;
use crate::mailbox::bounded::BoundedQueue;
use crate::process::Process;
use crate::runtime::RuntimeHandle;
use crate::scheduler::watchdog::CurrentTurn;
use crate::sync::atomic::Ordering;
use crate::timer::Tick;
use crate::turn::frame::{self, After, Progress};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// What the caller of a turn learns that an async process could not run to its end.
const NESTED_TURN_WAITED: &str = "an async process runs no turns that wait, besides its own";

/// The current process: a cell as its own turn sees it, which holds the token for as long as this
/// is used.
#[derive(Clone, Copy)]
pub(crate) struct CurrentProcess(NonNull<Cell>);

// SAFETY: it travels with the turn's future, and that with the token.
unsafe impl Send for CurrentProcess {}
// SAFETY: shared, it only shows the class, which does not change.
unsafe impl Sync for CurrentProcess {}

impl CurrentProcess {
    /// # Safety
    /// Used only while a turn of this cell is under way, and by that turn.
    #[inline(always)]
    pub(crate) unsafe fn new(token: &Token) -> CurrentProcess {
        CurrentProcess(token.0)
    }

    /// # Safety
    /// As [`new`](Self::new): the calling thread holds the cell's token and is in its turn.
    #[inline(always)]
    pub(crate) unsafe fn of(cell: CellRef) -> CurrentProcess {
        CurrentProcess(cell.0)
    }

    /// Which process the turn belongs to.
    pub(crate) fn pid(self) -> Pid {
        pid(self.0)
    }

    /// The cell itself.
    pub(crate) fn as_ref(self) -> CellRef {
        CellRef(self.0)
    }

    /// The turn is over, and the process waits for a message until then.
    pub(crate) fn wait_until(self, at: Tick) {
        let word = (at.to_raw() as usize) << TICK_SHIFT | WAITS;
        // SAFETY: the turn has the token, and its frame is no longer under way.
        unsafe { self.0.as_ref() }
            .frame
            .with_mut(|frame| unsafe { *frame = NonNull::new(ptr::without_provenance_mut(word)) });
    }

    pub(crate) fn runtime(&self) -> &RuntimeHandle {
        // SAFETY: the turn has the token; classes outlive the turns of their runtime.
        unsafe { self.0.as_ref().class.with(|class| &(**class).runtime) }
    }

    #[inline(always)]
    pub(crate) fn cell(self) -> CellRef {
        CellRef(self.0)
    }

    /// Where the state of the process is, which must be a `P`.
    #[inline(always)]
    pub(crate) fn state<P: Process>(self) -> NonNull<P> {
        debug_assert!(ManuallyDrop::new(Token(self.0)).is_a::<P>(), "the state is another type's");
        // SAFETY: the pointer is only made here; whoever uses it says why that is sound.
        unsafe { NonNull::new_unchecked(class::state::<P>(self.0)) }
    }

    /// Runs the turn of the next message inside the one under way; none if there is no message.
    ///
    /// It must not have to wait: if it would, it is dropped, and its caller is told.
    ///
    /// # Safety
    /// No reference to the process's state is in use.
    pub(crate) unsafe fn run_nested(self, current_turn: &CurrentTurn) -> Option<After> {
        // Lent by the turn under way, and not given back by it before this is over.
        let token = ManuallyDrop::new(Token(self.0));
        let generation = token.generation();
        if token.is_signalled()
            && let Some(after) = token.handle_signals(generation)
        {
            return Some(after);
        }
        let outer = token.frame();
        token.set_frame(None);
        let progress = token.run_next(generation, current_turn);
        if let Some(nested) = token.frame() {
            // SAFETY: the cell's frame, replaced below.
            unsafe { frame::discard_turn(nested, &ExitReason::other(NESTED_TURN_WAITED)) };
        }
        token.set_frame(outer);
        Some(match progress? {
            Progress::Done(after) => after,
            Progress::Pending => After::Next,
        })
    }

    /// Has the turn under way woken by the next message; false if there is one already.
    pub(crate) fn await_message(self) -> bool {
        let token = ManuallyDrop::new(Token(self.0));
        let (mailbox, generation) = (&token.cell().mailbox, token.generation());
        if generation.is_bounded() {
            return token.bounded_queue().if_empty(|| mailbox.await_message(generation));
        }
        mailbox.await_message(generation)
    }

    /// Where the process's messages wait, if it is bounded.
    pub(crate) fn bounded_queue(self) -> Option<&'static BoundedQueue> {
        let token = ManuallyDrop::new(Token(self.0));
        token.generation().is_bounded().then(|| token.bounded_queue())
    }

    /// The process's first turn runs: signals need not wait any more.
    pub(crate) fn has_begun(self) {
        // SAFETY: slots are cells for good.
        unsafe { self.0.as_ref() }.turn.clear_fresh();
    }

    /// What was attached at the spawn.
    pub(crate) fn attachment(&mut self) -> Option<&mut Attachment> {
        // SAFETY: the turn has the token and one context, which holds this and lends it
        // exclusively; signals, which change the extension, are not acted on while it runs.
        let extension = unsafe { self.0.as_ref().extension.with_mut(|field| &mut *field) };
        extension.as_deref_mut()?.attachment.as_mut()
    }

    /// The turn has piped a future. Noted only where there is an extension.
    pub(crate) fn note_pipe(&self) {
        // SAFETY: the turn has the token. Exclusive references to the extension come from the one
        // context, exclusively borrowed; this is called with it shared, so there is none.
        let extension = unsafe { self.0.as_ref().extension.with(|field| &*field) };
        if let Some(own) = extension {
            // Relaxed: read within a turn of the process, after this one's threads have joined it.
            own.has_piped.store(true, Ordering::Relaxed);
        }
    }

    /// Has the extension looked at or changed, made if need be. Not to be nested.
    pub(crate) fn with_extension<R>(&mut self, f: impl FnOnce(&mut Extension) -> R) -> R {
        // SAFETY: as above.
        unsafe { self.0.as_ref().extension.with_mut(|field| f((*field).get_or_insert_default())) }
    }

    /// Has the extension looked at or changed, if there is one. Not to be nested.
    pub(crate) fn if_extension<R>(&mut self, f: impl FnOnce(&mut Extension) -> R) -> Option<R> {
        // SAFETY: as above.
        unsafe { self.0.as_ref().extension.with_mut(|field| (*field).as_deref_mut().map(f)) }
    }
}
