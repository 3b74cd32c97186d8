//! The process cell: a header of 48 bytes, and the user's state behind it.
//!
//! ```text
//!  0         8        16        24       32           40      44      48 (aligned for the state)
//! ┌─────────┬────────┬─────────┬────────┬────────────┬───────┬───────┬───────────────┐
//! │ mailbox │ class  │ pending │ frame  │ extension  │ turn  │ alarm │ state, or its │
//! │ word    │        │         │        │            │ state │       │ box           │
//! └─────────┴────────┴─────────┴────────┴────────────┴───────┴───────┴───────────────┘
//! ```
//!
//! Access by threads:
//!
//! | field | free slot | live, token held | live, token not held |
//! |---|---|---|---|
//! | mailbox, turn, alarm | any thread (atomics) | any thread | any thread |
//! | class, pending, frame, extension, state | no thread | token's holder | no thread |
//!
//! The *token* (see `mailbox` and `turn_state`) is the type [`Token`]: made where the word changes
//! hands, moved through the run queues, consumed where it is given back. The accessors below are
//! sound because their caller holds it.
//!
//! Parts: [`Class`] is the state's type, `queue` holds the messages and signals to be handled,
//! [`CurrentProcess`] is the cell seen from its own turn, `inspect` reads a cell for other threads.

pub(crate) mod extension;

mod class;
mod current;
pub(crate) mod inspect;
mod losses;
mod queue;
pub(crate) mod slab;

pub(crate) use self::class::{Class, ClassOf};
pub(crate) use self::current::CurrentProcess;
pub(crate) use self::queue::MessageList;

use self::class::{StateLayout, state};
pub(crate) use self::losses::Losses;
use crate::address::{Pid, RawAddress};
use crate::cell::extension::Extension;
use crate::cell::slab::{Slab, SlotCache};
use crate::exit::{ExitReason, catch};
use crate::fault::{self, Step};
use crate::mailbox::bound::MailboxBound;
use crate::mailbox::bounded;
use crate::mailbox::envelope;
use crate::mailbox::{Generation, Gone, Link, Mailbox, Pushed};
use crate::scheduler;
use crate::scheduler::watchdog::CurrentTurn;
use crate::signal::{self, Signal};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{UnsafeCell, is_unwinding};
use crate::timer::Tick;
use crate::turn::frame::{self, FrameHead, Progress};
use crate::turn::process::{Process, Stop};
use crate::turn::receive_timeout;
use crate::turn::turn_state::{AlarmOutcome, Announced, TurnState};
use std::any::TypeId;
use std::cell::RefCell;
use std::ptr::{self, NonNull};
use tracing::Level;

/// Header of a slot, in front of the state. See the file's head.
#[repr(C)]
pub(crate) struct Cell {
    pub(crate) mailbox: Mailbox,
    class: UnsafeCell<*const Class>,
    /// Messages taken from the mailbox and not yet run, oldest first.
    pending: UnsafeCell<*mut Link>,
    /// A turn that has begun and is not over. With one of the lowest bits set: no turn, and with
    /// [`WAITS`], in the upper half, the tick until which the process waits for a message; see
    /// `receive_timeout`.
    frame: UnsafeCell<Option<NonNull<FrameHead>>>,
    extension: UnsafeCell<Option<Box<Extension>>>,
    turn: TurnState,
    /// Tick at which the timer wheel will wake this process; zero for none.
    alarm: AtomicU32,
}

/// Bit in the word of the frame: there is no frame, and the process waits for a message.
const WAITS: usize = 1;
/// Bit in the word of the frame: there is no frame, and the process is to exit in place of its next
/// turn.
const TO_STOP: usize = 2;
/// Bit in the word of the frame: there is no frame, and the process's first turn has not begun:
/// signals wait for it.
const FRESH: usize = 4;
/// Bit in the word of the frame, with [`FRESH`]: the first turn is that of the hook `started`. If
/// not, it is in the first message.
const TO_START: usize = 8;
const MARKS: usize = WAITS | TO_STOP | FRESH | TO_START;
/// Position, in the word of the frame, of the tick until which the process waits.
const TICK_SHIFT: u32 = 32;

const _: () = assert!(size_of::<Cell>() == 48, "the header's size is a promise to users");

/// Reference to a cell, usable by any thread for ever, because slots are never unmapped. Reaches
/// only the cell's atomic words; the process in the slot may have changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CellRef(NonNull<Cell>);

// SAFETY: only the cell's atomic words are reached through it, by any thread (first row of the
// head's table).
unsafe impl Send for CellRef {}
// SAFETY: only the cell's atomic words are reached through it, by any thread (first row of the
// head's table).
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
    fn cell(&self) -> &Cell {
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

/// The right and the duty to run one process. A token dropped without being given back strands its
/// process, so every function that takes a token consumes it. Only a thread that unwinds drops one: a worker
/// recovers the token of the process it runs (`Worker::recover`), and any other token is scheduled again.
#[must_use]
pub(crate) struct Token(NonNull<Cell>);

impl Drop for Token {
    #[inline(always)]
    fn drop(&mut self) {
        if is_unwinding() {
            scheduler::strand(Stranded(self.0));
        }
    }
}

/// Remains of a token that a panic dropped: the same right and duty. Made once for each dropped
/// token; if it is not used, its process stays as it is for good.
pub(crate) struct Stranded(NonNull<Cell>);

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

// SAFETY: holding the token is the right to access the cell (head's table); the words that hand it
// from thread to thread release and acquire.
unsafe impl Send for Token {}

impl Token {
    /// Creates a process in a free slot. No other thread may reach the process before its mailbox
    /// is opened.
    ///
    /// The class must live as long as the runtime has processes.
    #[inline(always)]
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

    #[inline(always)]
    fn cell(&self) -> &Cell {
        // SAFETY: tokens are made of slots; slots stay cells and are never unmapped.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn as_ref(&self) -> CellRef {
        CellRef(self.0)
    }

    /// Turns the token into a pointer for a container of tokens, which must not lose it.
    #[inline(always)]
    pub(crate) fn into_raw(self) -> *mut Cell {
        let cell = self.0.as_ptr();
        self.given();
        cell
    }

    /// Forgets the token: it belongs to another holder from here on, or to none.
    #[inline(always)]
    fn given(self) {
        std::mem::forget(self);
    }

    /// Restores a token from a pointer; `None` if the pointer is null.
    ///
    /// # Safety
    /// The pointer is from `into_raw` and is made a token once.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: *mut Cell) -> Option<Token> {
        NonNull::new(raw).map(Token)
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> Generation {
        self.cell().mailbox.peek().0
    }

    /// Returns the pid of the token's process.
    pub(crate) fn pid(&self) -> Pid {
        pid(self.0)
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> &Class {
        // SAFETY: the token's holder may read `class` (head's table); classes outlive the tokens of
        // their processes.
        unsafe { self.cell().class.with(|class| &**class) }
    }

    /// Returns a pointer to the state of the process.
    ///
    /// # Safety
    /// The process is a `P`, and no other reference to its state is in use.
    #[inline(always)]
    pub(crate) unsafe fn state<P: Process>(&self) -> *mut P {
        // SAFETY: by this function's contract the cell is that of a `P`.
        unsafe { state::<P>(self.0) }
    }

    /// Generation that a process just created will have; opens its bounded queue, if it has a
    /// bound.
    #[inline(always)]
    fn generation_to_open(&self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation().with_bounded(bound.is_some());
        if let Some(bound) = bound {
            slab::bounded_queue_for(self.as_ref()).open(generation, bound);
        }
        generation
    }

    /// Opens the mailbox of a process just created, and keeps the token.
    #[inline(always)]
    pub(crate) fn open_busy(&self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation_to_open(bound);
        self.cell().mailbox.open(generation, true);
        generation
    }

    /// Opens the mailbox of a process just created, and gives the token up.
    #[inline(always)]
    pub(crate) fn open_idle(self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation_to_open(bound);
        self.cell().mailbox.open(generation, false);
        self.given();
        generation
    }

    /// Gives the token up until the next message; returns it if a message is there already.
    #[inline(always)]
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
    #[inline(always)]
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

    /// Stores a pending turn in the cell, or records that no turn is pending.
    #[inline(always)]
    pub(crate) fn set_frame(&self, frame: Option<NonNull<FrameHead>>) {
        // SAFETY: the token's holder has exclusive access to `frame` (head's table).
        self.cell().frame.with_mut(|field| unsafe { *field = frame });
    }

    #[inline(always)]
    fn frame(&self) -> Option<NonNull<FrameHead>> {
        // SAFETY: the token's holder has exclusive access to `frame` (head's table).
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

    /// Begins the hook `started`, the first turn.
    pub(crate) fn start(&self) -> Progress {
        match self.class().started {
            Some(begin) => begin(self),
            None => unreachable!("only a process with the hook is to begin with it"),
        }
    }

    /// Makes signals wait until the first turn has begun.
    #[inline(always)]
    fn set_fresh(&self) {
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
    fn is_fresh(&self) -> bool {
        self.frame_word() & FRESH != 0
    }

    /// Returns the address of the frame, or the word in its place; zero for none.
    #[inline(always)]
    fn frame_word(&self) -> usize {
        // SAFETY: the token's holder has exclusive access to `frame` (head's table).
        let frame = self.cell().frame.with(|frame| unsafe { *frame });
        frame.map_or(0, |frame| frame.addr().get())
    }

    /// Makes the process's alarm queue no timeout message any more.
    pub(crate) fn forget_timeout(&self) {
        self.cell().turn.forget_timeout();
    }

    /// Begins a run: only wakes from here on count. Must be the first call of a run, because the
    /// work that earlier wakes announced is looked for after it.
    #[inline(always)]
    pub(crate) fn begin_run(&self) {
        if self.frame().is_some() {
            self.cell().turn.resume();
        }
    }

    /// Whether a run of this process can begin with its next message: no turn is under way, no
    /// receive timeout is set, no signal is announced, and the process is not exiting.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        let has_no_frame = self.frame_word() & !FRESH == 0;
        let is_exiting = || self.if_extension(|own| own.is_exiting()).unwrap_or(false);
        has_no_frame && !self.is_signalled() && !is_exiting()
    }

    /// Whether the process has none of the things that few processes have: links, monitors, names,
    /// timers, a layer.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        self.if_extension(|_| ()).is_none()
    }

    /// Resumes the turn that is under way, if there is one.
    #[inline(always)]
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

    /// Whether the process is a `P`.
    pub(crate) fn is_a<P: Process>(&self) -> bool {
        self.class().process == TypeId::of::<P>()
    }

    /// Whether a layer runs around the process's turns.
    #[inline(always)]
    pub(crate) fn is_layered(&self) -> bool {
        self.if_extension(|own| own.is_layered()).unwrap_or(false)
    }

    /// Runs `f` with the extension, which is created if there is none. Must not be nested.
    pub(crate) fn with_extension<R>(&self, f: impl FnOnce(&mut Extension) -> R) -> R {
        // SAFETY: the token's holder has exclusive access to `extension` (head's table); all
        // closures are this crate's, and none comes back here.
        self.cell().extension.with_mut(|field| f(unsafe { (*field).get_or_insert_default() }))
    }

    /// Runs `f` with the extension, if there is one. Must not be nested.
    #[inline(always)]
    pub(crate) fn if_extension<R>(&self, f: impl FnOnce(&mut Extension) -> R) -> Option<R> {
        // SAFETY: the token's holder has exclusive access to `extension` (head's table); all
        // closures are this crate's, and none comes back here.
        self.cell().extension.with_mut(|field| unsafe { (*field).as_deref_mut().map(f) })
    }

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
                // SAFETY: the token's holder has exclusive access to `pending` (head's table),
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
    fn drop_state(&self) -> Result<(), ExitReason> {
        fault::point(Step::State, self.class().name);
        // SAFETY: the token's holder has exclusive access to `frame` (head's table). The mark is
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
                // The timer's entry in a wheel is dropped soon, like the entries of timers on the
                // list.
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

    /// Returns the oldest message taken from the mailbox, which stays in the list.
    #[inline(always)]
    fn first_pending(&self) -> Option<NonNull<Link>> {
        // SAFETY: the token's holder has exclusive access to `pending` (head's table).
        self.cell().pending.with_mut(|pending| unsafe {
            if (*pending).is_null() {
                *pending = self.next_backlog().unwrap_or(ptr::null_mut());
            }
            NonNull::new(*pending)
        })
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
        // SAFETY: the token's holder has exclusive access to `extension` (head's table); it is
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

/// Pid of the process that lives in a cell, or has just stopped living there. For the token's
/// holder.
fn pid(cell: NonNull<Cell>) -> Pid {
    // SAFETY: the caller has the cell from a `CellRef` or a token; slots stay cells and are never
    // unmapped.
    let generation = match unsafe { cell.as_ref() }.mailbox.peek() {
        (generation, true) => generation,
        // The mailbox of a free slot has the next process's number.
        (generation, false) => generation.previous(),
    };
    Pid::from_raw(RawAddress::new(cell, generation))
}
