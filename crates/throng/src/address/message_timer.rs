//! Messages to be sent later, once or repeatedly.
//!
//! ```text
//! ┌───────┬───────┬───────┬─────────────┬──────┬────┬───────┬─────────┐  one pooled block, 64 bytes if
//! │ state │ wheel │ place │ rest/period │ kind │ to │ index │ message │  the message has no more than 32
//! └───────┴───────┴───────┴─────────────┴──────┴────┴───────┴─────────┘
//! ```
//!
//! | field | access |
//! |---|---|
//! | state | any thread; see `timer_state` |
//! | wheel | the share's side writes, any side reads |
//! | place | written under the wheel's lock, any side reads |
//! | rest | the share's side |
//! | kind, to, period | any thread reads |
//! | index | the holder of the process's token |
//! | message | the side that owns it by `timer_state` |
//!
//! Three sides hold a block: the user's [`Timer`], the wheel's [`TimerShare`], and the process's
//! [`TimerTie`], an entry of the list ([`Timers`]) in its extension. A process that exits ends the
//! timers on its list, as OTP cancels timers whose destination is gone: the messages are dropped
//! then.
//!
//! The side that drops the tie of a timer that has not rung takes the share out of the wheel, too.
//! Wheel and place only say where to look: the share is taken if the entry there is this timer's. So
//! an outdated place does no harm: the share stays in the wheel until its time.
//!
//! The list belongs to the token's holder between two turns. A handler may hand its context to
//! other threads while it sets a timer without the context, so a turn does not touch the list: all
//! threads, its own included, enter timers and strike them off by a signal (`tie`, `untie`).
//! Exactly one side strikes a timer off before the process exits: the canceller, or else the
//! process as it handles the message of a timer that has rung ([`Fired`]). So the tie exists when a
//! signal `untie` is acted on. A turn that sets or cancels a timer by its context, which is lent
//! exclusively, touches the list without a signal.
//!
//! A timer that rings sends its message as any sender would, but no bound of a mailbox refuses it.
//! An interval sends its share in the block ([`Beat`]) in place of the message: the process clones
//! the message when it comes to the beat, and from then on the interval stands in the wheel again.
//! Thus a slow process finds at most one message of an interval in its mailbox, and missed beats are
//! skipped.

mod timer_state;

use self::timer_state::{Ended, TimerState};
use crate::address::{Address, Pid, RawAddress};
use crate::cell::extension::Extension;
use crate::cell::{CurrentProcess, Token};
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::budget;
use crate::mailbox::dead_letters::DropReason;
use crate::mailbox::envelope::{Cast, Dispatch, Envelope};
use crate::mailbox::{Gone, Link};
use crate::memory::block;
use crate::scheduler::Scheduler;
use crate::scheduler::watchdog::TurnTitle;
use crate::signal::{self, Signal};
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use crate::timer::{Place, REACH_TIME, Tick};
use crate::turn::after::Progress;
use crate::turn::context::Context;
use crate::turn::frame;
use crate::turn::process::{Process, Turn};
use crate::turn::sink::NoReply;
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(1);

/// Handle to a message that is to be sent later, once or repeatedly. Returned by
/// [`Context::send_after`](crate::Context::send_after) and the other methods that set a timer.
///
/// Dropping the handle does not cancel the timer. The timer ends with the process it sends to, as
/// in OTP: when that process exits, the message is dropped, whatever time is left.
///
/// Memory: 24 bytes, and a pooled block, of 64 bytes if the message has no more than 32 bytes; for
/// the first timer of a process without links, monitors and names, about 300 bytes more. A
/// cancelled timer drops its message at once; its block is freed when the handle is dropped, too,
/// and its process has acted on the signal of [`cancel`](Timer::cancel).
pub struct Timer(NonNull<Head>);

// SAFETY: the message is `Send`, and invariant 1 of `timer_state` gives it to one side at a time.
unsafe impl Send for Timer {}
// SAFETY: a shared `Timer` only ends the timer and reads its state, both atomic; by invariant 1 of
// `timer_state` the message goes to the one call that sets `OVER`.
unsafe impl Sync for Timer {}

impl Timer {
    /// Cancels the messages that are still to be sent. Returns whether there were any.
    ///
    /// `false` means that the message has been sent, though perhaps not handled yet, or that its
    /// process has exited. An interval is cancelled for good, even while a message of it waits in
    /// the mailbox.
    ///
    /// Cost: constant, with a signal to the process the timer sends to. That process itself cancels its
    /// timers at less cost by [`Context::cancel_timer`](crate::Context::cancel_timer).
    pub fn cancel(&self) -> bool {
        self.cancel_with(|timer| timer.strike_off(self.head().to))
    }

    /// Cancels a timer like [`cancel`](Self::cancel), without a signal if it is a timer of the running
    /// process, to which the caller has exclusive access.
    pub(crate) fn cancel_in(&self, current: &mut CurrentProcess) -> bool {
        let to = self.head().to;
        self.cancel_with(|timer| {
            // The index of another process's timer is that process's.
            let is_own = to == current.pid().raw();
            let remove = |own: &mut Extension| if is_own { own.remove_timer(timer) } else { None };
            match current.if_extension(remove).flatten() {
                Some(tie) => tie.end(current.runtime().scheduler()),
                None => timer.strike_off(to),
            }
        })
    }

    fn head(&self) -> &Head {
        // SAFETY: the handle has not set `HANDLE_GONE`, so the block exists (invariant 2 of
        // `timer_state`).
        unsafe { self.0.as_ref() }
    }

    fn cancel_with(&self, strike_off: impl FnOnce(TimerRef)) -> bool {
        let head = self.head();
        let ended = head.state.end();
        if ended == Ended::Mine {
            // SAFETY: `Ended::Mine` gives the message to this call; the kind is the block's own.
            unsafe { (head.kind.drop_message)(self.0) };
        }
        if ended == Ended::Before {
            return false;
        }
        // The tie has not been dropped: only the side that ended the timer has it dropped, or the
        // process as it exits, and an exited process refuses the signal without reading the timer.
        strike_off(TimerRef(self.0));
        true
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: `HANDLE_GONE` is set only here; the last side to go frees the block (invariant 2
        // of `timer_state`).
        unsafe {
            if self.0.as_ref().state.drop_handle() {
                block::free(self.0.cast(), self.0.as_ref().kind.layout);
            }
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_over = self.head().state.is_over();
        f.write_str(if is_over { "Timer(over)" } else { "Timer(set)" })
    }
}

/// Type-erased front of a block.
struct Head {
    state: TimerState,
    /// Index of the wheel in which the timer was last set, cut off with more than 65,536 workers.
    wheel: AtomicU16,
    /// Place of the share's entry in the wheel, as the wheel has noted it last.
    place: AtomicU32,
    /// Period of an interval in milliseconds; of a message that is sent once, the number of full reaches
    /// of the wheel that are left when the alarm rings.
    span: AtomicU32,
    kind: &'static Kind,
    to: RawAddress,
    /// Index in the process's list; [`UNTIED`] before the timer is entered.
    index: UnsafeCell<u32>,
}

const UNTIED: u32 = u32::MAX;

impl Head {
    /// Takes the share out of the wheel; `None` if it is not where it was placed last.
    fn take_share(&self, scheduler: &Scheduler) -> Option<TimerShare> {
        let wheel = self.wheel.load(Ordering::Relaxed).into();
        let place = Place::from_raw(self.place.load(Ordering::Relaxed));
        scheduler.take_timer(wheel, place, NonNull::from(self).cast())
    }
}

/// Function called when the alarm set for this tick rings.
type Ring = unsafe fn(TimerShare, Tick, &Scheduler) -> Option<Unsent>;

struct Kind {
    ring: Ring,
    drop_message: unsafe fn(NonNull<Head>),
    /// Drops the message and counts it, because its process is gone.
    lose_message: unsafe fn(NonNull<Head>),
    layout: Layout,
}

#[repr(C)]
struct Block<P, T> {
    head: Head,
    message: UnsafeCell<ManuallyDrop<T>>,
    process: PhantomData<fn(P)>,
}

const _: () = assert!(size_of::<Block<(), [u64; 4]>>() == 64, "32 bytes of message fit one block");

/// Three sides of a timer just made.
type Sides = (Timer, TimerShare, TimerTie);

impl<P: Process, T: Turn<P>> Block<P, T> {
    const ONCE: &'static Kind = &Self::kind(Self::send_or_wait);

    const fn kind(ring: Ring) -> Kind {
        Kind {
            ring,
            drop_message: Self::drop_message,
            lose_message: Self::lose_message,
            layout: Layout::new::<Self>(),
        }
    }

    fn allocate(kind: &'static Kind, to: RawAddress, span: u32, message: T) -> Sides {
        let block = block::allocate(Layout::new::<Self>()).cast::<Self>();
        // SAFETY: the block was just allocated with this layout, and nothing else points to it.
        unsafe {
            block.write(Block {
                head: Head {
                    state: TimerState::new(),
                    wheel: AtomicU16::new(0),
                    place: AtomicU32::new(Place::NONE.to_raw()),
                    span: AtomicU32::new(span),
                    kind,
                    to,
                    index: UnsafeCell::new(UNTIED),
                },
                message: UnsafeCell::new(ManuallyDrop::new(message)),
                process: PhantomData,
            });
        }
        (Timer(block.cast()), TimerShare(block.cast()), TimerTie(block.cast()))
    }

    /// Moves the message out of a block.
    ///
    /// # Safety
    /// The block exists and is a `Block<P, T>`, and the caller has the right to its message.
    unsafe fn take_message(head: NonNull<Head>) -> T {
        // SAFETY: by the contract the block is a `Self`, and only the caller takes the message.
        unsafe {
            let message = &(*head.cast::<Self>().as_ptr()).message;
            message.with_mut(|message| ManuallyDrop::take(&mut *message))
        }
    }

    /// Drops the message of a block.
    ///
    /// # Safety
    /// The same as for [`take_message`](Self::take_message).
    unsafe fn drop_message(head: NonNull<Head>) {
        // SAFETY: the caller keeps the contract of `take_message`: it owns the message of a `Self`.
        drop_users(unsafe { Self::take_message(head) });
    }

    /// Drops the message of a block, and counts it as dropped, because its process is gone.
    ///
    /// # Safety
    /// The same as for [`take_message`](Self::take_message).
    unsafe fn lose_message(head: NonNull<Head>) {
        // SAFETY: the caller keeps the contract of `take_message`: it owns the message of a `Self`,
        // so the block exists.
        let (to, message) = unsafe { (head.as_ref().to, Self::take_message(head)) };
        Cast::<P, T>::lose(to, message, DropReason::NoProcess);
    }

    /// Sends the message of a timer that has rung, unless the timer is over or has reaches of the wheel
    /// left to wait.
    ///
    /// # Safety
    /// The block is a `Block<P, T>`.
    unsafe fn send_or_wait(share: TimerShare, at: Tick, scheduler: &Scheduler) -> Option<Unsent> {
        if share.is_over() {
            return None;
        }
        let rest = &share.head().span;
        if let Some(left) = rest.load(Ordering::Relaxed).checked_sub(1) {
            rest.store(left, Ordering::Relaxed);
            scheduler.set_timer(at.after(REACH_TIME), share, true);
            return None;
        }
        if share.head().state.end() != Ended::Mine {
            return None;
        }
        // SAFETY: `send_or_wait` is in `ONCE` of this very type, so the block is a `Self`; `Ended::Mine`
        // gives the message to this call.
        unsafe { Fired::<P, T>::push(share) }
    }
}

impl<P: Process, T: Turn<P> + Clone> Block<P, T> {
    const EVERY: &'static Kind = &Self::kind(Self::beat);

    /// Sends the beat of an interval that has rung, unless the interval is over.
    ///
    /// # Safety
    /// The block is a `Block<P, T>`.
    unsafe fn beat(share: TimerShare, at: Tick, _: &Scheduler) -> Option<Unsent> {
        if share.is_over() {
            return None;
        }
        let to = share.head().to;
        let pushed = Cast::<P, Beat<P, T>>::push(to, Beat { share, at, block: PhantomData });
        pushed.err().map(|beat| Unsent { share: beat.share, has_message: false })
    }
}

/// The wheel's side of a timer. Dropping it ends the timer.
pub(crate) struct TimerShare(NonNull<Head>);

// SAFETY: the message is `Send`, and invariant 1 of `timer_state` gives it to one side at a time.
unsafe impl Send for TimerShare {}
// SAFETY: a shared `TimerShare` gives access only to atomics and constant fields of the head.
unsafe impl Sync for TimerShare {}

impl TimerShare {
    pub(crate) fn into_raw(self) -> NonNull<()> {
        ManuallyDrop::new(self).0.cast()
    }

    /// Restores a share from a pointer.
    ///
    /// # Safety
    /// The pointer is from `into_raw`, and is used for one share at a time.
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> TimerShare {
        TimerShare(raw.cast())
    }

    /// Whether the timer has ended. For a share in a wheel, that means it is cancelled, or its
    /// process has exited.
    pub(crate) fn is_over(&self) -> bool {
        self.head().state.is_over()
    }

    /// Records the wheel in which the timer is about to be set.
    pub(crate) fn set_wheel(&self, wheel: usize) {
        self.head().wheel.store(wheel as u16, Ordering::Relaxed);
    }

    /// Records where the timer's entry is. The wheel calls it under its lock.
    pub(crate) fn set_place(&self, place: Place) {
        self.head().place.store(place.to_raw(), Ordering::Relaxed);
    }

    /// Acts on the alarm set for this tick, which has come up.
    ///
    /// Runs no user code: a message that cannot be sent because its process has exited is returned.
    pub(crate) fn ring(self, at: Tick, scheduler: &Scheduler) -> Option<Unsent> {
        let ring = self.head().kind.ring;
        // SAFETY: the function is that of the block's own type.
        unsafe { ring(self, at, scheduler) }
    }

    fn head(&self) -> &Head {
        // SAFETY: the share has not set `SHARE_GONE`, so the block exists (invariant 2 of
        // `timer_state`).
        unsafe { self.0.as_ref() }
    }
}

/// Message that a timer could not send. Dropping it runs the user's `Drop`.
pub(crate) struct Unsent {
    share: TimerShare,
    /// Whether this value owns the message; if not, the share ends the timer when it is dropped.
    has_message: bool,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if self.has_message {
            // SAFETY: the share keeps the block alive, the kind is the block's own, and
            // `has_message` says that the message belongs to this value.
            unsafe { (self.share.head().kind.lose_message)(self.share.0) };
        }
    }
}

impl Drop for TimerShare {
    fn drop(&mut self) {
        // SAFETY: `SHARE_GONE` is set only here, after `OVER`; the last side to go frees the block
        // (invariant 2 of `timer_state`).
        unsafe {
            end(self.0);
            if self.head().state.drop_share() {
                block::free(self.0.cast(), self.head().kind.layout);
            }
        }
    }
}

/// Ends a timer, if it is not over, and drops its message.
///
/// # Safety
/// The caller has a side of the block.
unsafe fn end(timer: NonNull<Head>) {
    // SAFETY: by the contract the block exists; the kind is its own, and `Ended::Mine` gives the
    // message to this call.
    unsafe {
        if timer.as_ref().state.end() == Ended::Mine {
            (timer.as_ref().kind.drop_message)(timer);
        }
    }
}

/// The process's side of a timer. Dropping it ends the timer.
pub(crate) struct TimerTie(NonNull<Head>);

// SAFETY: the message is `Send`, and invariant 1 of `timer_state` gives it to one side at a time;
// the index moves with the token of the process.
unsafe impl Send for TimerTie {}

impl TimerTie {
    /// Ends a timer whose process has exited before the timer was set, and counts its message as dropped.
    fn lose(self) {
        // SAFETY: the tie has not set `TIE_GONE`, so the block exists (invariant 2 of `timer_state`);
        // the kind is its own, and `Ended::Mine` gives the message to this call.
        unsafe {
            let head = self.0.as_ref();
            if head.state.end() == Ended::Mine {
                (head.kind.lose_message)(self.0);
            }
        }
    }

    /// Ends the timer before its time and takes it out of its wheel. Runs the user's `Drop`.
    pub(crate) fn end(self, scheduler: &Scheduler) {
        // SAFETY: the tie has not set `TIE_GONE`, so the block exists (invariant 2 of
        // `timer_state`), which `end` asks for.
        let head = unsafe {
            end(self.0);
            self.0.as_ref()
        };
        // The tie keeps the block, so that no other timer's entry has its address.
        let share = TimerState::find_alarm(|| head.take_share(scheduler));
        let Some(share) = share else { return };
        // SAFETY: neither share nor tie drops anything itself any more; the last side to go frees the
        // block (invariant 2 of `timer_state`), and the timer is over.
        unsafe {
            let (share, tie) = (ManuallyDrop::new(share), ManuallyDrop::new(self));
            debug_assert_eq!(share.0, tie.0);
            if head.state.drop_share_and_tie() {
                block::free(tie.0.cast(), head.kind.layout);
            }
        }
    }
}

impl Drop for TimerTie {
    fn drop(&mut self) {
        // SAFETY: `TIE_GONE` is set only here, after `OVER`; the last side to go frees the block
        // (invariant 2 of `timer_state`).
        unsafe {
            end(self.0);
            let head = self.0.as_ref();
            if head.state.drop_tie() {
                block::free(self.0.cast(), head.kind.layout);
            }
        }
    }
}

/// Identifies a timer in a signal to the process to which it sends. Does not keep the timer's
/// block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerRef(NonNull<Head>);

// SAFETY: only the token's holder follows the pointer, in `Timers::remove`, while the block exists.
unsafe impl Send for TimerRef {}

impl TimerRef {
    /// Has a timer that ended early taken off the list of its process.
    fn strike_off(self, to: RawAddress) {
        // A process that has exited drops its ties by itself.
        let _ = signal::try_send(Pid::from_raw(to), Signal::Untie(self));
    }
}

/// Capacity that a list of timers does not give back.
const CAPACITY_MIN: usize = 8;

/// Timers of one process that have neither been handled nor cancelled.
///
/// Only the holder of the process's token calls the methods.
#[derive(Default)]
pub(crate) struct Timers(Vec<TimerTie>);

impl Timers {
    pub(crate) fn insert(&mut self, tie: TimerTie) {
        // Memory for 2³² timers is out of reach.
        Self::set_index(&tie, self.0.len() as u32);
        self.0.push(tie);
    }

    /// Takes a timer off the list; `None` if it is not on it yet. Cost: constant.
    ///
    /// The block must exist: its tie is on the list, or the caller has another side.
    pub(crate) fn remove(&mut self, timer: TimerRef) -> Option<TimerTie> {
        // SAFETY: by the contract the block exists; the caller holds the token, to which the index
        // belongs.
        let index = unsafe { timer.0.as_ref().index.with(|index| *index) } as usize;
        if self.0.get(index)?.0 != timer.0 {
            return None;
        }
        let tie = self.0.swap_remove(index);
        if let Some(moved) = self.0.get(index) {
            Self::set_index(moved, index as u32);
        }
        // A process with one timer at a time keeps its list.
        if self.0.capacity() > CAPACITY_MIN && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len() * 2);
        }
        Some(tie)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<TimerTie> {
        self.0.pop()
    }

    /// Bytes that the list takes besides itself, without the timers.
    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<TimerTie>()
    }

    fn set_index(tie: &TimerTie, index: u32) {
        // SAFETY: the tie has not set `TIE_GONE`, so the block exists; the caller holds the token,
        // to which the index belongs.
        unsafe { tie.0.as_ref().index.with_mut(|field| *field = index) };
    }
}

/// Message of a timer that has rung, on its way through the mailbox. The user's message stays in
/// the timer's block and belongs to this value.
#[repr(C)]
struct Fired<P, T> {
    envelope: Envelope,
    share: TimerShare,
    process: PhantomData<fn(P, T)>,
}

impl<P: Process, T: Turn<P>> Fired<P, T> {
    const LAYOUT: Layout = Layout::new::<Self>();
    const BYTES: u32 =
        (block::bytes(Self::LAYOUT) + block::bytes(Layout::new::<Block<P, T>>())) as u32;
    const DISPATCH: &'static Dispatch = &Dispatch {
        bytes: Self::BYTES,
        ..Dispatch::aside(Self::run, Self::discard, TurnTitle::of::<P, T>())
    };

    /// Sends the message of a timer, unless the process has exited.
    ///
    /// # Safety
    /// The share is that of a `Block<P, T>`, and the caller has the right to its message.
    unsafe fn push(share: TimerShare) -> Option<Unsent> {
        let to = share.head().to;
        let message = block::allocate(Self::LAYOUT).cast::<Self>();
        // SAFETY: the block was just allocated with this layout, and the message is for a `P`; if
        // the push was refused, the message still belongs to this call.
        unsafe {
            message.write(Fired {
                envelope: Envelope::new(Self::DISPATCH),
                share,
                process: PhantomData,
            });
            let pushed = to.push(message.cast::<Link>());
            pushed.err().map(|Gone| Unsent { share: Self::take(message.cast()), has_message: true })
        }
    }

    /// Takes the share out and frees the block of the mailbox's message.
    ///
    /// # Safety
    /// The caller owns the message, which is a `Fired<P, T>`.
    unsafe fn take(message: NonNull<Envelope>) -> TimerShare {
        // SAFETY: by the contract the message is a `Self` and belongs to the caller; the share is
        // moved out once.
        unsafe {
            let Fired { share, .. } = message.cast::<Self>().read();
            block::free(message.cast(), Self::LAYOUT);
            share
        }
    }

    unsafe fn run(message: NonNull<Envelope>, token: &Token) -> Progress {
        budget::discharge_here(Self::BYTES);
        // SAFETY: `run` is in `DISPATCH` of this very type, so the message is a `Self`; a `Fired`
        // owns the message in the timer's block.
        unsafe {
            let share = Self::take(message);
            let timer = TimerRef(share.0);
            match token.if_extension(|own| own.remove_timer(timer)).flatten() {
                Some(tie) => drop(tie),
                // In a bounded mailbox a timer set by another thread may ring before its `tie` is
                // acted on; that `tie` comes before this `untie`.
                None => drop(signal::try_send(token.pid(), Signal::Untie(timer))),
            }
            let turn = Block::<P, T>::take_message(share.0);
            drop(share);
            frame::begin::<P, T, _>(token, turn, NoReply::<false, _>::new())
        }
    }

    unsafe fn discard(message: NonNull<Envelope>, _: &ExitReason) -> u64 {
        budget::discharge_here(Self::BYTES);
        // SAFETY: `discard` is in `DISPATCH` of this very type, so the message is a `Self`, which
        // owns the message in the timer's block.
        unsafe {
            let share = Self::take(message);
            Block::<P, T>::drop_message(share.0);
        }
        u64::from(T::COUNTED)
    }
}

/// Beat of an interval, on its way through the mailbox. Dropping it, as when the process exits,
/// ends the interval.
struct Beat<P, T> {
    share: TimerShare,
    at: Tick,
    block: PhantomData<fn(P, T)>,
}

impl<P: Process, T: Turn<P> + Clone> Beat<P, T> {
    /// Clone of the message; `None` if the interval is cancelled.
    fn message(&self) -> Option<T> {
        /// Ends the cloning when dropped, also if the user's `clone` panics.
        struct Cloning<'a, P: Process, T: Turn<P>>(&'a TimerShare, PhantomData<fn(P, T)>);
        impl<P: Process, T: Turn<P>> Drop for Cloning<'_, P, T> {
            fn drop(&mut self) {
                if !self.0.head().state.end_clone() {
                    // SAFETY: the timer ended while `CLONING` was set, so the message belongs to
                    // the cloning side (invariant 1 of `timer_state`).
                    unsafe { Block::<P, T>::drop_message(self.0.0) };
                }
            }
        }
        if !self.share.head().state.begin_clone() {
            return None;
        }
        let _cloning = Cloning::<P, T>(&self.share, PhantomData);
        // SAFETY: `begin_clone` found the timer not over, and while `CLONING` is set no other side
        // takes the message (invariant 1 of `timer_state`), so it stays and is not changed.
        unsafe {
            let message = &(*self.share.0.cast::<Block<P, T>>().as_ptr()).message;
            Some(message.with(|message| T::clone(&*message)))
        }
    }

    fn arm_next(self, scheduler: &Scheduler) {
        let period = self.share.head().span.load(Ordering::Relaxed);
        let period = Duration::from_millis(period.into());
        let at = self.at.next_beat(scheduler.clock.now(), period);
        scheduler.set_timer(at, self.share, false);
    }
}

impl<P: Process, T: Turn<P> + Clone> Turn<P> for Beat<P, T> {
    type Reply = ();
    // The message is not cloned before its turn.
    const COUNTED: bool = false;

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        if let Some(message) = self.message() {
            self.arm_next(cx.runtime().scheduler());
            message.run(process, cx).await;
        }
    }
}

/// Sends a message once, after a delay.
pub(crate) fn send_after<P: Process, T: Turn<P>>(
    scheduler: &Scheduler,
    to: Address<P>,
    delay: Duration,
    message: T,
) -> Timer {
    let (at, sides) = once(scheduler, to.raw(), delay, message);
    set(scheduler, at, sides)
}

/// Sends a message to the running process once, after a delay. The caller has exclusive access to the
/// process, so the timer needs no signal.
pub(crate) fn send_after_in<P: Process, T: Turn<P>>(
    current: &mut CurrentProcess,
    delay: Duration,
    message: T,
) -> Timer {
    let scheduler = current.runtime().scheduler();
    let (at, sides) = once::<P, T>(scheduler, current.pid().raw(), delay, message);
    set_in(current, at, sides)
}

/// Makes a timer that sends a message once; returns the tick of its first alarm, too.
fn once<P: Process, T: Turn<P>>(
    scheduler: &Scheduler,
    to: RawAddress,
    delay: Duration,
    message: T,
) -> (Tick, Sides) {
    let (first, rest) = parts(delay);
    let sides = Block::<P, T>::allocate(Block::<P, T>::ONCE, to, rest.into(), message);
    // The current tick began some time ago, so a tick is added.
    (scheduler.clock.refresh().after(first + TICK), sides)
}

/// Returns the part of a delay that the first alarm covers, and the number of the wheel's full reaches that
/// follow.
fn parts(delay: Duration) -> (Duration, u16) {
    if delay < REACH_TIME {
        return (delay, 0);
    }
    let (delay, reach) = (delay.as_millis(), REACH_TIME.as_millis());
    // The cap is about 2,200 years.
    let rest = u16::try_from(delay / reach).unwrap_or(u16::MAX);
    (Duration::from_millis((delay % reach) as u64), rest)
}

/// Sends clones of a message at each multiple of the period.
pub(crate) fn send_every<P: Process, T: Turn<P> + Clone>(
    scheduler: &Scheduler,
    to: Address<P>,
    period: Duration,
    message: T,
) -> Timer {
    let (at, sides) = every(scheduler, to.raw(), period, message);
    set(scheduler, at, sides)
}

/// Sends clones of a message to the running process, to which the caller has exclusive access.
pub(crate) fn send_every_in<P: Process, T: Turn<P> + Clone>(
    current: &mut CurrentProcess,
    period: Duration,
    message: T,
) -> Timer {
    let scheduler = current.runtime().scheduler();
    let (at, sides) = every::<P, T>(scheduler, current.pid().raw(), period, message);
    set_in(current, at, sides)
}

/// Makes an interval; returns the tick of its first alarm, too.
fn every<P: Process, T: Turn<P> + Clone>(
    scheduler: &Scheduler,
    to: RawAddress,
    period: Duration,
    message: T,
) -> (Tick, Sides) {
    let period = period.clamp(TICK, REACH_TIME);
    let milliseconds = u32::try_from(period.as_millis()).unwrap_or(u32::MAX);
    let sides = Block::<P, T>::allocate(Block::<P, T>::EVERY, to, milliseconds, message);
    (scheduler.clock.refresh().after(period + TICK), sides)
}

/// Sets the alarm of a timer of the running process, and enters it in the list.
fn set_in(current: &mut CurrentProcess, at: Tick, (timer, share, tie): Sides) -> Timer {
    current.runtime().scheduler().set_timer(at, share, false);
    current.with_extension(|own| own.rare().timers.insert(tie));
    timer
}

/// Enters a timer in the list of its process and sets its alarm. If the process has exited, the
/// timer ends at once.
fn set(scheduler: &Scheduler, at: Tick, (timer, share, tie): Sides) -> Timer {
    let tied = signal::try_send(Pid::from_raw(share.head().to), Signal::Tie(tie));
    if let Err(Signal::Tie(tie)) = tied {
        tie.lose();
    }
    // The process may end the timer before its alarm is in the wheel.
    let set_alarm = || scheduler.set_timer(at, share, true);
    timer.head().state.set_alarm(set_alarm, || drop(timer.head().take_share(scheduler)));
    timer
}

#[cfg(test)]
mod tests;
