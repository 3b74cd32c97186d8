//! The current process: a cell seen from its own turn.
//!
//! Invariants:
//! 1. Every function here runs while the calling thread holds the cell's token and the turn is
//!    under way.
//! 2. A [`CurrentProcess`] borrows that token and never gives it back. So access follows the column
//!    "token held" of the table in `cell`.

use super::class;
use super::frame_word::{TICK_SHIFT, WAITS};
use super::{Cell, CellRef, Token, pid};
use crate::address::Pid;
use crate::cell::extension::Extension;
use crate::exit::ExitReason;
use crate::mailbox::bounded::BoundedQueue;
use crate::runtime::RuntimeHandle;
use crate::scheduler::watchdog::CurrentTurn;
use crate::signal::{self, Signal};
use crate::timer::Tick;
use crate::turn::after::{After, Progress};
use crate::turn::frame;
use crate::turn::process::Process;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// Reason given to the caller of a turn that did not run to its end inside an async process.
const NESTED_TURN_WAITED: &str = "a turn inside the receive of an async process must not wait";

/// The current process: a cell as its own turn sees it. The turn holds the token for as long as
/// this value is used.
#[derive(Clone, Copy)]
pub(crate) struct CurrentProcess(NonNull<Cell>);

// SAFETY: it travels with the turn's future, which travels with the token.
unsafe impl Send for CurrentProcess {}
// SAFETY: a shared reference gives access to the class, which does not change, and to the kind of the
// extension, which no turn changes; all other methods are for the turn alone (invariant 1).
unsafe impl Sync for CurrentProcess {}

impl CurrentProcess {
    /// Returns the token's process as the current process.
    ///
    /// # Safety
    /// The value is used only while a turn of this cell is under way, and only by that turn.
    #[inline(always)]
    pub(crate) unsafe fn new(token: &Token) -> CurrentProcess {
        CurrentProcess(token.0)
    }

    /// Returns the process of `cell` as the current process.
    ///
    /// # Safety
    /// The calling thread holds the cell's token and is in its turn, for as long as the value is
    /// used.
    #[inline(always)]
    pub(crate) unsafe fn of(cell: CellRef) -> CurrentProcess {
        CurrentProcess(cell.0)
    }

    pub(crate) fn pid(self) -> Pid {
        pid(self.0)
    }

    pub(crate) fn as_ref(self) -> CellRef {
        CellRef(self.0)
    }

    /// Ends the turn's frame and makes the process wait for a message until `at`.
    pub(crate) fn wait_until(self, at: Tick) {
        let word = (at.to_raw() as usize) << TICK_SHIFT | WAITS;
        // SAFETY: the turn has the token (invariant 1), and its frame is no longer under way.
        unsafe { self.0.as_ref() }
            .frame
            .with_mut(|frame| unsafe { *frame = NonNull::new(ptr::without_provenance_mut(word)) });
    }

    /// Returns the tick until which the process waits for a message, by an earlier turn; `None` once this turn has
    /// waited.
    pub(crate) fn waits_until(self) -> Option<Tick> {
        // The turn under way lends its token.
        ManuallyDrop::new(Token(self.0)).waits_until()
    }

    pub(crate) fn runtime(&self) -> &RuntimeHandle {
        // SAFETY: the turn has the token (invariant 1); classes outlive the turns of their runtime.
        unsafe { self.0.as_ref().class.with(|class| &(**class).runtime) }
    }

    #[inline(always)]
    pub(crate) fn cell(self) -> CellRef {
        CellRef(self.0)
    }

    /// Returns a pointer to the state of the process, which must be a `P`.
    #[inline(always)]
    pub(crate) fn state<P: Process>(self) -> NonNull<P> {
        debug_assert!(ManuallyDrop::new(Token(self.0)).is_a::<P>(), "the state is another type's");
        // SAFETY: the turn has the token of a `P`'s cell (invariant 1; the assertion above checks
        // the type), so the pointer is into its slot or box, and not null; code that dereferences
        // the pointer justifies that itself.
        unsafe { NonNull::new_unchecked(class::state::<P>(self.0)) }
    }

    /// Runs the turn of the next message inside the turn under way; `None` if there is no message.
    ///
    /// The inner turn must not wait: if it would, it is dropped, and its caller gets an error.
    ///
    /// # Safety
    /// No reference to the process's state is in use.
    pub(crate) unsafe fn run_nested(self, current_turn: &CurrentTurn) -> Option<After> {
        // The turn under way lends its token, and does not give it back before the inner turn is
        // over.
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
            // SAFETY: the frame is stored in the cell, so it is alive, and it is replaced below.
            unsafe { frame::discard_turn(nested, &ExitReason::other(NESTED_TURN_WAITED)) };
        }
        token.set_frame(outer);
        Some(match progress? {
            Progress::Done(after) => after,
            Progress::Pending => After::Next,
        })
    }

    /// Has the turn under way woken by the next message; false if a message is there already.
    pub(crate) fn await_message(self) -> bool {
        let token = ManuallyDrop::new(Token(self.0));
        let (mailbox, generation) = (&token.cell().mailbox, token.generation());
        if generation.is_bounded() {
            return token.bounded_queue().if_empty(|| mailbox.await_message(generation));
        }
        mailbox.await_message(generation)
    }

    /// Returns the queue in which the process's messages wait, if its mailbox is bounded.
    pub(crate) fn bounded_queue(self) -> Option<&'static BoundedQueue> {
        let token = ManuallyDrop::new(Token(self.0));
        token.generation().is_bounded().then(|| token.bounded_queue())
    }

    /// Records that the process's first turn runs: signals need not wait any more.
    pub(crate) fn has_begun(self) {
        // The turn under way lends its token.
        ManuallyDrop::new(Token(self.0)).clear_fresh();
    }

    /// Whether signals wait, on which the process will act after the turn.
    pub(crate) fn is_signalled(self) -> bool {
        // The turn under way lends its token.
        ManuallyDrop::new(Token(self.0)).is_signalled()
    }

    /// Returns the value attached at the spawn.
    pub(crate) fn attachment(&mut self) -> Option<&mut dyn Any> {
        // SAFETY: the turn has the token (invariant 1) and one context, which holds this and lends
        // it exclusively; signals, which change the extension, are not acted on while the turn
        // runs.
        let extension = unsafe { self.0.as_ref().extension.with_mut(|field| &mut *field) };
        extension.as_deref_mut()?.attachment()
    }

    /// Enters a process that will send this one the result of a future or the items of a stream. Only a layer asks
    /// for it, so only processes with a layer have the entry.
    pub(crate) fn note_pipe(&self, pipe: Pid) {
        // SAFETY: the turn has the token (invariant 1). Exclusive references to the extension come
        // from the one context, exclusively borrowed; this is called with it shared, so there is
        // none.
        let extension = unsafe { self.0.as_ref().extension.with(|field| &*field) };
        if extension.as_ref().is_some_and(|own| own.is_layered()) {
            // By a signal, because other threads may share the context.
            signal::send(self.pid(), Signal::Pipe(pipe));
        }
    }

    /// Runs `f` with the extension, which is created if there is none. Must not be nested.
    pub(crate) fn with_extension<R>(&mut self, f: impl FnOnce(&mut Extension) -> R) -> R {
        // SAFETY: the turn has the token (invariant 1) and one context, which is lent exclusively
        // here; all closures are this crate's, and none comes back here.
        unsafe { self.0.as_ref().extension.with_mut(|field| f((*field).get_or_insert_default())) }
    }

    /// Runs `f` with the extension, if there is one. Must not be nested.
    pub(crate) fn if_extension<R>(&mut self, f: impl FnOnce(&mut Extension) -> R) -> Option<R> {
        // SAFETY: the turn has the token (invariant 1) and one context, which is lent exclusively
        // here; all closures are this crate's, and none comes back here.
        unsafe { self.0.as_ref().extension.with_mut(|field| (*field).as_deref_mut().map(f)) }
    }
}
