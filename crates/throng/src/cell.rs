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
//! Who may touch what:
//!
//! | field | free slot | live, token held | live, nobody holds the token |
//! |---|---|---|---|
//! | mailbox, turn, alarm | anybody (atomics) | anybody | anybody |
//! | class, pending, frame, extension, state | nobody | holder | nobody |
//!
//! The *token* (see `mailbox` and `turn_state`) is the type [`Token`]: made where the word changes
//! hands, moved through the run queues, consumed where it is given back. Holding one is what makes
//! the accessors below sound.
//!
//! Its parts: [`Class`] is the state's type, `queue` what is to be handled, [`CurrentProcess`] the
//! cell seen from its own turn, `inspect` a cell that others inspect.

pub(crate) mod extension;

mod class;
mod current;
mod inspect;
mod queue;

pub(crate) use self::class::Class;
pub(crate) use self::current::CurrentProcess;
pub(crate) use self::queue::MessageList;

use self::class::{StateLayout, state};
use crate::address::{Pid, RawAddress};
use crate::cell::extension::{Extension, KeptLoad};
use crate::exit::{ExitReason, catch};
use crate::fault::{self, Step};
use crate::mailbox::bound::MailboxBound;
use crate::mailbox::bounded;
use crate::mailbox::envelope;
use crate::mailbox::{Generation, Gone, Link, Mailbox, Pushed};
use crate::memory::slab::{self, Slab, SlotCache};
use crate::process::Process;
use crate::scheduler;
use crate::scheduler::watchdog::CurrentTurn;
use crate::signal::{self, Signal};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{UnsafeCell, is_unwinding};
use crate::timer::Tick;
use crate::timer::receive_timeout;
use crate::turn::frame::{self, FrameHead, Progress};
use crate::turn::turn_state::{AlarmOutcome, Announced, TurnState};
use std::any::TypeId;
use std::cell::RefCell;
use std::ptr::{self, NonNull};
use tracing::Level;

/// The head of a slot. See the file's head.
#[repr(C)]
pub(crate) struct Cell {
    pub(crate) mailbox: Mailbox,
    class: UnsafeCell<*const Class>,
    /// Messages taken from the mailbox and not yet run, oldest first.
    pending: UnsafeCell<*mut Link>,
    /// A turn that has begun and is not over; or, with the lowest bit set, none, and in the upper
    /// half the tick until which the process waits for a message: see `receive_timeout`.
    frame: UnsafeCell<Option<NonNull<FrameHead>>>,
    extension: UnsafeCell<Option<Box<Extension>>>,
    turn: TurnState,
    /// The tick at which the timer wheel will wake this process; zero for none.
    alarm: AtomicU32,
}

/// In the word of the frame: there is none, and the process waits for a message.
const WAITS: usize = 1;
/// Where in that word the tick is until which it waits.
const TICK_SHIFT: u32 = 32;

const _: () = assert!(size_of::<Cell>() == 48, "the header's size is a promise to users");

/// A cell that anybody may look at, for ever: slots are never unmapped. Only its atomic words can
/// be reached by this; what lives there may have changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CellRef(NonNull<Cell>);

// SAFETY: only atomics are reached through it.
unsafe impl Send for CellRef {}
// SAFETY: the same.
unsafe impl Sync for CellRef {}

impl CellRef {
    /// # Safety
    /// The pointer is to a slot that has been handed out by a slab, and may be used for all of it.
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
        // SAFETY: slots are cells for good.
        unsafe { self.0.as_ref() }
    }

    /// The generation of the process here, if one lives here.
    #[inline(always)]
    pub(crate) fn generation(self) -> Option<Generation> {
        let (generation, live) = self.cell().mailbox.peek();
        live.then_some(generation)
    }

    /// The process here, if one lives here.
    pub(crate) fn resident(self) -> Option<Pid> {
        self.generation().map(|generation| Pid::from_raw(RawAddress::new(self.0, generation)))
    }

    /// Queues a message; the token comes along if nobody had it.
    ///
    /// # Safety
    /// The caller owns the message, and it is one for the type of process that the generation
    /// names.
    #[inline(always)]
    pub(crate) unsafe fn push(
        self,
        generation: Generation,
        message: NonNull<Link>,
    ) -> Result<Option<Token>, Gone> {
        if generation.is_bounded() {
            return bounded::push(self, generation, message);
        }
        // SAFETY: passed on.
        unsafe { self.push_on_word(generation, message) }
    }

    /// As [`push`](Self::push), but past the bounded queue.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn push_on_word(
        self,
        generation: Generation,
        message: NonNull<Link>,
    ) -> Result<Option<Token>, Gone> {
        // SAFETY: passed on.
        let pushed = unsafe { self.cell().mailbox.push(generation, message) }?;
        Ok(self.token_after(pushed))
    }

    /// Something has been put in the bounded queue of a process here; the token comes along if
    /// nobody had it.
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

    /// Queues a signal; the token comes along if nobody had it. A process that is to be killed for
    /// its unread signals takes no more, as if it were gone.
    ///
    /// # Safety
    /// The caller owns the message, and it is a signal.
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
        // SAFETY: passed on; a signal is for any type of process.
        let pushed = unsafe { self.push_on_word(generation, message) };
        if pushed.is_err() {
            turn.retract();
            return Err(Gone);
        }
        if announced == Announced::AtBound {
            turn.flood();
        }
        match pushed {
            // Whoever holds the token looks before the next message; if it is nobody, because a
            // turn is suspended, we take it.
            Ok(None) => Ok(self.wake_turn()),
            pushed => pushed,
        }
    }

    /// Whether so many signals are unread that a process here takes no more questions.
    pub(crate) fn is_crowded(self) -> bool {
        self.cell().turn.is_crowded()
    }

    /// Takes the token of an idle process.
    pub(crate) fn wake_idle(self) -> Option<Token> {
        let generation = self.generation()?;
        self.cell().mailbox.wake(generation).then(|| Token(self.0))
    }

    /// Wakes whatever turn is suspended here; the token comes along if nobody had it.
    #[inline(always)]
    pub(crate) fn wake_turn(self) -> Option<Token> {
        self.cell().turn.notify().then(|| Token(self.0))
    }

    /// Which process lives here.
    pub(crate) fn pid(self) -> Pid {
        pid(self.0)
    }

    /// Whether a turn runs, or waits for something other than messages.
    #[inline(always)]
    pub(crate) fn is_in_turn(self, generation: Generation) -> bool {
        !self.cell().mailbox.is_at_rest(generation)
    }

    /// Wakes a turn that waits for a message, though none has come.
    pub(crate) fn wake_awaiting(self) -> Option<Token> {
        let generation = self.generation()?;
        if self.cell().mailbox.is_awaiting(generation) { self.wake_turn() } else { None }
    }

    pub(crate) fn is_suspended(self) -> bool {
        self.cell().turn.is_suspended()
    }

    /// Notes when the wheel is to wake this process; false if an alarm at least as early is set.
    #[inline]
    pub(crate) fn advance_alarm(self, at: Tick) -> bool {
        let alarm = &self.cell().alarm;
        // Only the token's holder sets it, and a ring that comes between finds it changed or has
        // woken us already; relaxed is enough because `turn` orders the wake.
        match Tick::from_raw(alarm.load(Ordering::Relaxed)) {
            Some(set) if set.is_due(at) => false,
            _ => {
                alarm.store(at.to_raw(), Ordering::Relaxed);
                true
            }
        }
    }

    /// Whether the wheel's entry for `at` is not superseded.
    pub(crate) fn has_alarm(self, at: Tick) -> bool {
        self.cell().alarm.load(Ordering::Relaxed) == at.to_raw()
    }

    /// The wheel's entry for `at` has come up: wakes the process unless it is superseded.
    pub(crate) fn ring(self, at: Tick) -> Option<Token> {
        let alarm = &self.cell().alarm;
        alarm.compare_exchange(at.to_raw(), 0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        match self.cell().turn.ring() {
            AlarmOutcome::Woke => Some(Token(self.0)),
            AlarmOutcome::TimedOut => receive_timeout::queue(self),
            AlarmOutcome::Noted => None,
        }
    }

    /// The alarm is to bring a message, from here on. For the token's holder.
    pub(crate) fn expect_timeout(self) {
        self.cell().turn.expect_timeout();
    }
}

/// The right and the duty to run one process. A token that is dropped without being given back
/// strands its process, so everything that takes a token consumes it. Only a worker that unwinds
/// drops the token of the process it runs, and recovers it (`Worker::recover`).
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

/// What is left of a token that was dropped by a panic: the same right and duty. Made for each
/// dropped token once; not used, it leaves its process as it is for good.
pub(crate) struct Stranded(NonNull<Cell>);

impl Stranded {
    pub(crate) fn is_of(&self, cell: CellRef) -> bool {
        self.0 == cell.0
    }

    /// The token again.
    pub(crate) fn recover(self) -> Token {
        Token(self.0)
    }
}

// SAFETY: a token is what passes the cell from thread to thread; the words that hand it over
// release and acquire.
unsafe impl Send for Token {}

impl Token {
    /// Makes a process in a free slot. It is not to be reached before its mailbox is opened.
    ///
    /// The class must live as long as the runtime has processes.
    #[inline]
    pub(crate) fn create<P: Process>(
        slab: &Slab,
        slots: &mut SlotCache,
        class: &Class,
        process: P,
        extension: Option<Box<Extension>>,
    ) -> Token {
        assert_eq!(class.process, TypeId::of::<P>(), "the class is another type's");
        let slot = slots.take(slab, class.slot);
        // SAFETY: a slot just taken is ours alone, and big enough by `StateLayout::SLOT`.
        unsafe {
            let cell = slot.as_ref();
            cell.class.with_mut(|field| *field = class);
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
        // SAFETY: slots are cells for good.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn as_ref(&self) -> CellRef {
        CellRef(self.0)
    }

    /// For what keeps tokens; it must not lose it.
    #[inline(always)]
    pub(crate) fn into_raw(self) -> *mut Cell {
        let cell = self.0.as_ptr();
        self.given();
        cell
    }

    /// The token is somebody else's from here on, or nobody's.
    #[inline(always)]
    fn given(self) {
        std::mem::forget(self);
    }

    /// The token again; none if the pointer is null.
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

    /// Which process this is.
    pub(crate) fn pid(&self) -> Pid {
        pid(self.0)
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> &Class {
        // SAFETY: the token lets us read it; classes live as long as there are tokens.
        unsafe { self.cell().class.with(|class| &**class) }
    }

    /// The state of the process.
    ///
    /// # Safety
    /// The process is a `P`, and no other reference to its state is in use.
    #[inline(always)]
    pub(crate) unsafe fn state<P: Process>(&self) -> *mut P {
        // SAFETY: passed on.
        unsafe { state::<P>(self.0) }
    }

    /// The generation that a process just created will have.
    #[inline(always)]
    fn generation_to_open(&self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation().with_bounded(bound.is_some());
        if let Some(bound) = bound {
            slab::bounded_queue_for(self.as_ref()).open(generation, bound);
        }
        generation
    }

    /// Opens the mailbox of a process just created and keeps the token.
    #[inline(always)]
    pub(crate) fn open_busy(&self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation_to_open(bound);
        self.cell().mailbox.open(generation, true);
        generation
    }

    /// Opens the mailbox of a process just created and gives the token up.
    #[inline(always)]
    pub(crate) fn open_idle(self, bound: Option<MailboxBound>) -> Generation {
        let generation = self.generation_to_open(bound);
        self.cell().mailbox.open(generation, false);
        self.given();
        generation
    }

    /// Gives the token up until the next message; or not, if one is there.
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

    /// Gives the token up until the turn is woken; or not, if it was meanwhile.
    #[inline(always)]
    pub(crate) fn suspend(self) -> Result<(), Token> {
        if self.cell().turn.suspend() {
            self.given();
            Ok(())
        } else {
            Err(self)
        }
    }

    /// Ends the process's life as an address if no message waits.
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

    /// Leaves a pending turn with the cell, or notes that there is none.
    #[inline(always)]
    pub(crate) fn set_frame(&self, frame: Option<NonNull<FrameHead>>) {
        // SAFETY: the token's.
        self.cell().frame.with_mut(|field| unsafe { *field = frame });
    }

    #[inline(always)]
    fn frame(&self) -> Option<NonNull<FrameHead>> {
        // SAFETY: the token's.
        let frame = self.cell().frame.with(|frame| unsafe { *frame });
        frame.filter(|frame| frame.addr().get() & WAITS == 0)
    }

    /// Until when the process waits for a message, if it does and no turn is under way.
    pub(crate) fn waits_until(&self) -> Option<Tick> {
        // SAFETY: the token's.
        let frame = self.cell().frame.with(|frame| unsafe { *frame })?.addr().get();
        Tick::from_raw((frame >> TICK_SHIFT) as u32).filter(|_| frame & WAITS != 0)
    }

    /// The alarm brings no message any more.
    pub(crate) fn forget_timeout(&self) {
        self.cell().turn.forget_timeout();
    }

    /// Wakes from here on count anew. To be called before anything else of a run: what they
    /// announce is looked at after it.
    #[inline(always)]
    pub(crate) fn begin_run(&self) {
        if self.frame().is_some() {
            self.cell().turn.resume();
        }
    }

    /// Goes on with the turn that is under way, if one is.
    #[inline(always)]
    pub(crate) fn resume(&self, current_turn: &CurrentTurn) -> Option<Progress> {
        let frame = self.frame()?;
        // SAFETY: the cell's frame.
        current_turn.begin(unsafe { frame::title_of(frame) });
        // SAFETY: the cell's frame, and the token is ours.
        Some(unsafe { frame::resume_turn(frame, self) })
    }

    pub(crate) fn is_between_turns(&self) -> bool {
        self.frame().is_none()
    }

    /// Whether the turn under way is the process's last.
    pub(crate) fn is_stopping(&self) -> bool {
        // SAFETY: the cell's frame, and the token is ours.
        self.frame().is_some_and(|frame| unsafe { frame::is_last(frame) })
    }

    /// Gives up the turn that is under way; false if there is none.
    pub(crate) fn discard_turn(&self, reason: &ExitReason) -> bool {
        let Some(frame) = self.frame() else { return false };
        fault::point(Step::Discard, self.class().name);
        self.set_frame(None);
        // SAFETY: the cell's frame, and no longer so.
        unsafe { frame::discard_turn(frame, reason) };
        true
    }

    /// The end of the runtime has dropped something that the process had to do.
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
        self.if_extension(|own| own.layer.is_some()).unwrap_or(false)
    }

    /// Has the extension looked at or changed, made if need be. Not to be nested.
    pub(crate) fn with_extension<R>(&self, f: impl FnOnce(&mut Extension) -> R) -> R {
        // SAFETY: the token's; none of the closures, all this crate's, comes back here.
        self.cell().extension.with_mut(|field| f(unsafe { (*field).get_or_insert_default() }))
    }

    /// Has the extension looked at or changed, if there is one. Not to be nested.
    #[inline(always)]
    pub(crate) fn if_extension<R>(&self, f: impl FnOnce(&mut Extension) -> R) -> Option<R> {
        // SAFETY: as above.
        self.cell().extension.with_mut(|field| unsafe { (*field).as_deref_mut().map(f) })
    }

    /// Ends the process's life: it has no address any more, what is queued is dropped and callers
    /// are told, the state is dropped. If it is cut short by a panic, the next call goes on where
    /// it broke off: each step has left the cell before its work is done.
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
                // SAFETY: the token's, and empty since just now.
                self.cell().pending.with_mut(|pending| unsafe { *pending = rest });
                self.discard_queued(reason);
            }
        }
        if generation.is_bounded() {
            self.close_bounded_queue(reason);
        }
        let state_dropped = self.drop_state();
        let attachment = self.if_extension(|own| {
            own.kept = KeptLoad::default();
            if own.obituary.is_none() {
                own.obituary = Some(reason.clone());
                // They are told in the order in which they asked.
                own.links.reverse();
                own.watchers.processes.reverse();
                own.watchers.others.reverse();
            }
            own.attachment.take()
        });
        if let Err(reason) = state_dropped.and(catch(|| drop(attachment))) {
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
        // SAFETY: the token's. The mark is the word of a frame that is none and of a wait without
        // an end, which no other step of an exit writes.
        let dropped = self.cell().frame.with_mut(|frame| unsafe {
            let dropped = (*frame).is_some_and(|frame| frame.addr().get() == WAITS);
            *frame = NonNull::new(ptr::without_provenance_mut(WAITS));
            dropped
        });
        if dropped {
            return Ok(());
        }
        let drop_state = self.class().drop_state;
        // SAFETY: nobody else has it any more, and it was not dropped before.
        catch(|| unsafe { drop_state(self.0) })
    }

    /// Drops what was taken from the mailbox, one message at a time, so that a panic loses none
    /// but its own. Watchers that are no processes are told with the others, when the names of the
    /// process are free.
    #[cold]
    fn discard_queued(&self, reason: &ExitReason) {
        while let Some(message) = self.first_pending() {
            // SAFETY: drained, so owned by the token; the link is read before the message goes.
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
                Some(Signal::Watch(watcher)) => {
                    signal::add_watcher(self, watcher);
                }
                // Its entry in a wheel is dropped soon, like those of timers on the list.
                Some(Signal::Tie(tie)) => tie.end(self.class().runtime.scheduler()),
                Some(signal) => signal.refuse(self.pid(), reason),
                // SAFETY: owned, and out of the list.
                None => unsafe { envelope::discard(message, reason) },
            }
        }
    }

    /// The oldest message taken from the mailbox, which stays where it is.
    #[inline(always)]
    fn first_pending(&self) -> Option<NonNull<Link>> {
        // SAFETY: the token's.
        self.cell().pending.with_mut(|pending| unsafe {
            if (*pending).is_null() {
                *pending = self.next_backlog().unwrap_or(ptr::null_mut());
            }
            NonNull::new(*pending)
        })
    }

    /// Why the process has died, if it has and those who want to know are being told.
    pub(crate) fn obituary(&self) -> Option<ExitReason> {
        self.if_extension(|own| own.obituary.clone()).flatten()
    }

    /// Gives the slot of a process that has died back.
    ///
    /// # Panics
    /// If it still has an address.
    pub(crate) fn free(self, slab: &Slab, slots: &RefCell<SlotCache>) {
        fault::point(Step::Free, self.class().name);
        assert!(self.is_closed(), "a process dies before its cell is freed");
        // SAFETY: the token's; moved out once.
        drop(self.cell().extension.with_mut(|field| unsafe { field.replace(None) }));
        let slot = self.class().slot;
        // SAFETY: closed and empty; the token ends here.
        unsafe { slots.borrow_mut().give(slab, slot, self.0) };
        self.given();
    }
}

/// Which process lives in a cell, or has just stopped living there. For the token's holder.
fn pid(cell: NonNull<Cell>) -> Pid {
    // SAFETY: slots are cells for good.
    let generation = match unsafe { cell.as_ref() }.mailbox.peek() {
        (generation, true) => generation,
        // The mailbox counts for the next process already.
        (generation, false) => generation.previous(),
    };
    Pid::from_raw(RawAddress::new(cell, generation))
}
