//! Messages to be sent later, once or again and again.
//!
//! ```text
//! ┌───────┬───────┬──────┬────┬────────┬─────────┐  one pooled block, 64 bytes if the message has
//! │ state │ rest  │ kind │ to │ period │ message │  no more than 32
//! └───────┴───────┴──────┴────┴────────┴─────────┘
//! ```
//!
//! | field | who may touch it |
//! |---|---|
//! | state | anybody; see `timer_state` |
//! | rest | the share's side alone |
//! | kind, to, period | anybody reads |
//! | message | as `timer_state` says |
//!
//! A timer that rings sends its message as any sender would, but no bound of a mailbox refuses it.
//! Of an interval not the message is sent but its share in the block ([`Beat`]): the message is
//! cloned when the process comes to it, and the interval stands in the wheel again from then on. So
//! a process that is slow finds one message of an interval in its mailbox at most, and beats that
//! are missed are skipped.

use crate::address::{Address, RawAddress};
use crate::alarms::Target;
use crate::block;
use crate::context::Context;
use crate::exit::drop_users;
use crate::message::Cast;
use crate::process::{Process, Turn};
use crate::scheduler::Scheduler;
use crate::sync::UnsafeCell;
use crate::timer::{REACH_TIME, Tick};
use crate::timer_state::{Ended, TimerState};
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

/// The resolution of the clock.
const TICK: Duration = Duration::from_millis(1);

/// A message that is to be sent later, or again and again. Made by
/// [`Context::send_after`](crate::Context::send_after) and its kin.
///
/// Dropping it does not cancel it.
///
/// Cost: 16 bytes, and a pooled block of 64 if the message has no more than 32. A timer cancelled
/// drops its message at once; its block goes when its time comes, or earlier as other timers are
/// set or cancelled.
pub struct Timer(NonNull<Head>);

// SAFETY: the message is `Send`, and the state says who may touch it.
unsafe impl Send for Timer {}
// SAFETY: the same; cancelling needs no exclusive access.
unsafe impl Sync for Timer {}

impl Timer {
    /// Cancels what is still to be sent; true if there was anything.
    ///
    /// If not, the message has been sent, which does not mean that it is handled yet, or its
    /// process has exited. An interval is cancelled for good, also if a message of it waits in
    /// the mailbox.
    ///
    /// Cost: constant.
    pub fn cancel(&self) -> bool {
        // SAFETY: this side is not gone.
        let head = unsafe { self.0.as_ref() };
        let ended = head.state.end();
        if ended == Ended::Mine {
            // SAFETY: ours, and the kind is the block's own.
            unsafe { (head.kind.drop_message)(self.0) };
        }
        if ended != Ended::Before {
            crate::scheduler::with_worker(|worker| worker.map(|worker| worker.weed_alarms()));
        }
        ended != Ended::Before
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: this side is not gone before; the last frees.
        unsafe {
            if self.0.as_ref().state.drop_handle() {
                block::free(self.0.cast(), self.0.as_ref().kind.layout);
            }
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: this side is not gone.
        let is_over = unsafe { self.0.as_ref() }.state.is_over();
        f.write_str(if is_over { "Timer(over)" } else { "Timer(set)" })
    }
}

/// The type-erased front of a block.
struct Head {
    state: TimerState,
    /// How many full reaches of the wheel the time goes on when the alarm rings.
    rest: UnsafeCell<u32>,
    kind: &'static Kind,
}

struct Kind {
    /// The alarm set for this tick rings.
    ring: unsafe fn(TimerShare, Tick),
    drop_message: unsafe fn(NonNull<Head>),
    layout: Layout,
}

#[repr(C)]
struct Block<P, T> {
    head: Head,
    to: RawAddress,
    /// In milliseconds.
    period: u32,
    message: UnsafeCell<ManuallyDrop<T>>,
    process: PhantomData<fn(P)>,
}

impl<P: Process, T: Turn<P>> Block<P, T> {
    const ONCE: &'static Kind =
        &Kind { ring: Self::send, drop_message: Self::drop_message, layout: Layout::new::<Self>() };

    /// Makes a timer and its two sides.
    fn allocate(
        kind: &'static Kind,
        to: RawAddress,
        rest: u32,
        period: u32,
        message: T,
    ) -> (Timer, TimerShare) {
        let block = block::allocate(Layout::new::<Self>()).cast::<Self>();
        // SAFETY: freshly allocated with this layout.
        unsafe {
            block.write(Block {
                head: Head { state: TimerState::new(), rest: UnsafeCell::new(rest), kind },
                to,
                period,
                message: UnsafeCell::new(ManuallyDrop::new(message)),
                process: PhantomData,
            });
        }
        (Timer(block.cast()), TimerShare(block.cast()))
    }

    /// # Safety
    /// The block is one of these and there, and the caller has the right to the message.
    unsafe fn take_message(head: NonNull<Head>) -> T {
        // SAFETY: by the contract.
        unsafe {
            let message = &(*head.cast::<Self>().as_ptr()).message;
            message.with_mut(|message| ManuallyDrop::take(&mut *message))
        }
    }

    unsafe fn drop_message(head: NonNull<Head>) {
        // SAFETY: passed on.
        drop_users(unsafe { Self::take_message(head) });
    }

    unsafe fn send(share: TimerShare, _: Tick) {
        let head = share.0;
        // SAFETY: the share is alive; the message is ours if we have ended it.
        unsafe {
            if head.as_ref().state.end() == Ended::Mine {
                let message = Self::take_message(head);
                let to = (*head.cast::<Self>().as_ptr()).to;
                if let Err(message) = Cast::<P, T>::push(to, message) {
                    drop_users(message);
                }
            }
        }
    }
}

impl<P: Process, T: Turn<P> + Clone> Block<P, T> {
    const EVERY: &'static Kind =
        &Kind { ring: Self::beat, drop_message: Self::drop_message, layout: Layout::new::<Self>() };

    unsafe fn beat(share: TimerShare, at: Tick) {
        if share.is_over() {
            return;
        }
        // SAFETY: the share is alive.
        let to = unsafe { (*share.0.cast::<Self>().as_ptr()).to };
        // If the process is gone, the share comes back and is dropped.
        let _ = Cast::<P, Beat<P, T>>::push(to, Beat { share, at, block: PhantomData });
    }
}

/// The wheel's side of a timer. Dropping it ends the timer.
pub(crate) struct TimerShare(NonNull<Head>);

// SAFETY: as for `Timer`.
unsafe impl Send for TimerShare {}
// SAFETY: shared, it shows only the state.
unsafe impl Sync for TimerShare {}

impl TimerShare {
    pub(crate) fn into_raw(self) -> NonNull<()> {
        ManuallyDrop::new(self).0.cast()
    }

    /// # Safety
    /// The pointer is from `into_raw`, and is used for one share at a time.
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> TimerShare {
        TimerShare(raw.cast())
    }

    /// Whether it is cancelled, if this stands in a wheel.
    pub(crate) fn is_over(&self) -> bool {
        self.head().state.is_over()
    }

    /// The alarm set for this tick rings.
    pub(crate) fn ring(self, at: Tick, scheduler: &Scheduler) {
        // SAFETY: the share's side alone touches it.
        let goes_on = self.head().rest.with_mut(|rest| unsafe {
            let left = *rest;
            *rest = left.saturating_sub(1);
            left > 0
        });
        if goes_on {
            scheduler.set_alarm(at.after(REACH_TIME), Target::timer(self));
        } else {
            let ring = self.head().kind.ring;
            // SAFETY: the function is that of the block's type.
            unsafe { ring(self, at) };
        }
    }

    fn head(&self) -> &Head {
        // SAFETY: this side is not gone.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for TimerShare {
    fn drop(&mut self) {
        // SAFETY: this side is not gone before; the kind is the block's own; the last frees.
        unsafe {
            let head = self.0.as_ref();
            if head.state.end() == Ended::Mine {
                (head.kind.drop_message)(self.0);
            }
            if head.state.drop_share() {
                block::free(self.0.cast(), head.kind.layout);
            }
        }
    }
}

/// A beat of an interval, on its way through the mailbox. Dropping it, as when the process exits,
/// ends the interval.
struct Beat<P, T> {
    share: TimerShare,
    at: Tick,
    block: PhantomData<fn(P, T)>,
}

impl<P: Process, T: Turn<P> + Clone> Beat<P, T> {
    /// The message, unless the interval is cancelled.
    fn message(&self) -> Option<T> {
        /// Also if the user's clone panics.
        struct Cloning<'a, P: Process, T: Turn<P>>(&'a TimerShare, PhantomData<fn(P, T)>);
        impl<P: Process, T: Turn<P>> Drop for Cloning<'_, P, T> {
            fn drop(&mut self) {
                if !self.0.head().state.end_clone() {
                    // SAFETY: ended meanwhile, so the message is ours.
                    unsafe { Block::<P, T>::drop_message(self.0.0) };
                }
            }
        }
        if !self.share.head().state.begin_clone() {
            return None;
        }
        let _cloning = Cloning::<P, T>(&self.share, PhantomData);
        // SAFETY: not over while we clone, so the message stays and nobody changes it.
        unsafe {
            let message = &(*self.share.0.cast::<Block<P, T>>().as_ptr()).message;
            Some(message.with(|message| T::clone(&*message)))
        }
    }

    fn arm_next(self, scheduler: &Scheduler) {
        // SAFETY: the share is alive.
        let period = unsafe { (*self.share.0.cast::<Block<P, T>>().as_ptr()).period };
        let period = Duration::from_millis(period.into());
        let at = self.at.next_beat(scheduler.clock.now(), period);
        scheduler.set_alarm(at, Target::timer(self.share));
    }
}

impl<P: Process, T: Turn<P> + Clone> Turn<P> for Beat<P, T> {
    type Reply = ();

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        if let Some(message) = self.message() {
            self.arm_next(cx.runtime().scheduler());
            message.run(process, cx).await;
        }
    }
}

/// Sends a message when the time is over.
pub(crate) fn send_after<P: Process, T: Turn<P>>(
    scheduler: &Scheduler,
    to: Address<P>,
    delay: Duration,
    message: T,
) -> Timer {
    let reach = REACH_TIME.as_millis();
    // First what does not fill the wheel's reach, then that so many times.
    let first = Duration::from_millis((delay.as_millis() % reach) as u64);
    let rest = u32::try_from(delay.as_millis() / reach).unwrap_or(u32::MAX);
    let (timer, share) = Block::<P, T>::allocate(Block::<P, T>::ONCE, to.raw(), rest, 0, message);
    // A tick has begun some time before now.
    let at = scheduler.clock.refresh().after(first + TICK);
    scheduler.set_alarm(at, Target::timer(share));
    timer
}

/// Sends clones of a message at each multiple of the period.
pub(crate) fn send_every<P: Process, T: Turn<P> + Clone>(
    scheduler: &Scheduler,
    to: Address<P>,
    period: Duration,
    message: T,
) -> Timer {
    let period = period.clamp(TICK, REACH_TIME);
    let milliseconds = u32::try_from(period.as_millis()).unwrap_or(u32::MAX);
    let (timer, share) =
        Block::<P, T>::allocate(Block::<P, T>::EVERY, to.raw(), 0, milliseconds, message);
    let at = scheduler.clock.refresh().after(period + TICK);
    scheduler.set_alarm(at, Target::timer(share));
    timer
}
