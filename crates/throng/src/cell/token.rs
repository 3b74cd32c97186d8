//! The token: the right and the duty to run one process.
//!
//! ```text
//! create ─▶ open_idle ─▶ mailbox ── push, wake ──▶ Token ─▶ run queue ─▶ worker ─▶ park, suspend, free
//!                           ▲                                                  │
//!                           └──────────────── the next message ◀───────────────┘
//! ```
//!
//! Access: the column "token held" of the table in `cell`.

use super::class::{StateLayout, state};
use super::frame_word::FRESH;
use super::{Cell, CellRef, Class, ClassOf, pid};
use crate::address::Pid;
use crate::cell::extension::Extension;
use crate::cell::slab::{self, Slab, SlotCache};
use crate::exit::ExitReason;
use crate::fault::{self, Step};
use crate::mailbox::bound::MailboxBound;
use crate::mailbox::{Generation, Link};
use crate::scheduler;
use crate::scheduler::watchdog::CurrentTurn;
use crate::sync::atomic::Ordering;
use crate::sync::is_unwinding;
use crate::turn::after::Progress;
use crate::turn::frame;
use crate::turn::process::Process;
use std::any::TypeId;
use std::ptr::{self, NonNull};

/// The right and the duty to run one process. A token dropped without being given back strands its
/// process, so every function that takes a token consumes it. Only a thread that unwinds drops one: a worker
/// recovers the token of the process it runs (`Worker::recover`), and any other token is scheduled again.
#[must_use]
pub(crate) struct Token(pub(super) NonNull<Cell>);

impl Drop for Token {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn drop(&mut self) {
        if is_unwinding() {
            scheduler::strand(Stranded(self.0));
        }
    }
}

/// Remains of a token that a panic dropped: the same right and duty. Made once for each dropped
/// token; if it is not used, its process stays as it is for good.
pub(crate) struct Stranded(pub(super) NonNull<Cell>);

// SAFETY: it is the same right as a token, which may move to another thread.
unsafe impl Send for Stranded {}

impl Stranded {
    pub(crate) fn is_of(&self, cell: CellRef) -> bool {
        self.0 == cell.0
    }

    /// Restores the token.
    pub(crate) fn recover(self) -> Token {
        Token(self.0)
    }
}

// SAFETY: holding the token is the right to access the cell (table in `cell`); the words that hand it
// from thread to thread release and acquire.
unsafe impl Send for Token {}

impl Token {
    /// Creates a process in a free slot. No other thread may reach the process before its mailbox
    /// is opened.
    ///
    /// The class must live as long as the runtime has processes.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn create<P: Process>(
        slab: &Slab,
        slots: &mut SlotCache,
        ClassOf { class, .. }: &ClassOf<'_, P>,
        process: P,
        extension: Option<Box<Extension>>,
    ) -> Token {
        let slot = slots.take(slab, class.slot);
        // SAFETY: a slot just taken from the slab belongs to this call alone, and is big enough by
        // `StateLayout::SLOT`.
        unsafe {
            let cell = slot.as_ref();
            cell.class.with_mut(|field| *field = *class);
            cell.pending.with_mut(|field| *field = ptr::null_mut());
            cell.frame.with_mut(|field| *field = None);
            cell.extension.with_mut(|field| field.write(extension));
            cell.turn.reset();
            cell.alarm.store(0, Ordering::Relaxed);
            if StateLayout::<P>::BOXED {
                slot.add(1).cast::<*mut P>().write(Box::into_raw(Box::new(process)));
            } else {
                slot.byte_add(StateLayout::<P>::OFFSET).cast::<P>().write(process);
            }
        }
        Token(slot)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn cell(&self) -> &Cell {
        // SAFETY: tokens are made of slots; slots stay cells and are never unmapped.
        unsafe { self.0.as_ref() }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn as_ref(&self) -> CellRef {
        CellRef(self.0)
    }

    /// Turns the token into a pointer for a container of tokens, which must not lose it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn into_raw(self) -> *mut Cell {
        let cell = self.0.as_ptr();
        self.given();
        cell
    }

    /// Forgets the token: it belongs to another holder from here on, or to none.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn given(self) {
        std::mem::forget(self);
    }

    /// Restores a token from a pointer; `None` if the pointer is null.
    ///
    /// # Safety
    /// The pointer is from `into_raw` and is made a token once.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn from_raw(raw: *mut Cell) -> Option<Token> {
        NonNull::new(raw).map(Token)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn generation(&self) -> Generation {
        self.cell().mailbox.peek().0
    }

    pub(crate) fn pid(&self) -> Pid {
        pid(self.0)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn class(&self) -> &Class {
        // SAFETY: the token's holder may read `class` (table in `cell`); classes outlive the tokens of
        // their processes.
        unsafe { self.cell().class.with(|class| &**class) }
    }

    /// Returns a pointer to the state of the process.
    ///
    /// # Safety
    /// The process is a `P`, and no other reference to its state is in use.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn state<P: Process>(&self) -> *mut P {
        // SAFETY: by this function's contract the cell is that of a `P`.
        unsafe { state::<P>(self.0) }
    }

    /// Generation that a process just created will have; opens its bounded queue, if it has a
    /// bound.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn generation_to_open(&self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation().with_bounded(bound.is_some());
        if let Some(bound) = bound {
            slab::bounded_queue_for(self.as_ref()).open(generation, bound);
        }
        generation
    }

    /// Opens the mailbox of a process just created, and keeps the token.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn open_busy(&self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation_to_open(bound);
        self.cell().mailbox.open(generation, true);
        generation
    }

    /// Opens the mailbox of a process just created, and gives the token up.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn open_idle(self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation_to_open(bound);
        self.cell().mailbox.open(generation, false);
        self.given();
        generation
    }

    /// Gives the token up until the next message; returns it if a message is there already.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn park(self, generation: Generation) -> Result<(), Token> {
        let mailbox = &self.cell().mailbox;
        let parked = if generation.is_bounded() {
            self.bounded_queue().if_empty(|| mailbox.park(generation))
        } else {
            mailbox.park(generation)
        };
        if parked {
            self.given();
            Ok(())
        } else {
            Err(self)
        }
    }

    /// Gives the token up until the turn is woken; returns it if the turn was woken already.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn suspend(self) -> Result<(), Token> {
        if self.cell().turn.suspend() {
            self.given();
            Ok(())
        } else {
            Err(self)
        }
    }

    /// Removes the process's address if no message waits.
    pub(crate) fn close_if_idle(&self, generation: Generation) -> bool {
        if self.has_pending() {
            return false;
        }
        let mailbox = &self.cell().mailbox;
        if generation.is_bounded() {
            return self.bounded_queue().close_if_empty(|| mailbox.close_if_empty(generation));
        }
        mailbox.close_if_empty(generation)
    }

    pub(crate) fn start(&self) -> Progress {
        match self.class().started {
            Some(begin) => begin(self),
            None => unreachable!("only a process with the hook is to begin with it"),
        }
    }

    /// Makes the process's alarm queue no timeout message any more.
    pub(crate) fn forget_timeout(&self) {
        self.cell().turn.forget_timeout();
    }

    /// Begins a run: only wakes from here on count. Must be the first call of a run, because the
    /// work that earlier wakes announced is looked for after it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn begin_run(&self) {
        if self.frame().is_some() {
            self.cell().turn.resume();
        }
    }

    /// Whether a run of this process can begin with its next message: no turn is under way, no
    /// receive timeout is set, no signal is announced, and the process is not exiting.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_plain(&self) -> bool {
        let has_no_frame = self.frame_word() & !FRESH == 0;
        let is_exiting = || self.if_extension(|own| own.is_exiting()).unwrap_or(false);
        has_no_frame && !self.is_signalled() && !is_exiting()
    }

    /// Whether the process has none of the things that few processes have: links, monitors, names,
    /// timers, a layer.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_bare(&self) -> bool {
        self.if_extension(|_| ()).is_none()
    }

    /// Resumes the turn that is under way, if there is one.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn resume(&self, current_turn: &CurrentTurn) -> Option<Progress> {
        let frame = self.frame()?;
        // SAFETY: the frame is stored in the cell, so it is alive.
        current_turn.begin(unsafe { frame::title_of(frame) });
        // SAFETY: the frame is stored in the cell, so it is alive, and the caller holds the cell's
        // token.
        Some(unsafe { frame::resume_turn(frame, self) })
    }

    pub(crate) fn is_between_turns(&self) -> bool {
        self.frame().is_none()
    }

    /// Whether the turn under way is the process's last.
    pub(crate) fn is_stopping(&self) -> bool {
        // SAFETY: the frame is stored in the cell, so it is alive, and the caller holds the cell's
        // token.
        self.frame().is_some_and(|frame| unsafe { frame::is_last(frame) })
    }

    /// Drops the turn that is under way; false if there is none.
    pub(crate) fn discard_turn(&self, reason: &ExitReason) -> bool {
        let Some(frame) = self.frame() else { return false };
        fault::point(Step::Discard, self.class().name);
        self.set_frame(None);
        // SAFETY: the frame was alive in the cell, which has just given it up, so it is discarded
        // once.
        unsafe { frame::discard_turn(frame, reason) };
        true
    }

    /// Records that the end of the runtime has dropped work that the process had to do.
    #[cold]
    pub(crate) fn mark_abandoned(&self) {
        self.with_extension(|own| own.abandoned = true);
    }

    /// Whether the process has no address any more.
    pub(crate) fn is_closed(&self) -> bool {
        !self.cell().mailbox.peek().1
    }

    pub(crate) fn is_a<P: Process>(&self) -> bool {
        self.class().process == TypeId::of::<P>()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_layered(&self) -> bool {
        self.if_extension(|own| own.is_layered()).unwrap_or(false)
    }

    /// Runs `f` with the extension, which is created if there is none. Must not be nested.
    pub(crate) fn with_extension<R>(&self, f: impl FnOnce(&mut Extension) -> R) -> R {
        // SAFETY: the token's holder has exclusive access to `extension` (table in `cell`); all
        // closures are this crate's, and none comes back here.
        self.cell().extension.with_mut(|field| f(unsafe { (*field).get_or_insert_default() }))
    }

    /// Runs `f` with the extension, if there is one. Must not be nested.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn if_extension<R>(&self, f: impl FnOnce(&mut Extension) -> R) -> Option<R> {
        // SAFETY: the token's holder has exclusive access to `extension` (table in `cell`); all
        // closures are this crate's, and none comes back here.
        self.cell().extension.with_mut(|field| unsafe { (*field).as_deref_mut().map(f) })
    }

    /// Returns the oldest message taken from the mailbox, which stays in the list.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn first_pending(&self) -> Option<NonNull<Link>> {
        // SAFETY: the token's holder has exclusive access to `pending` (table in `cell`).
        self.cell().pending.with_mut(|pending| unsafe {
            if (*pending).is_null() {
                *pending = self.next_backlog().unwrap_or(ptr::null_mut());
            }
            NonNull::new(*pending)
        })
    }
}
