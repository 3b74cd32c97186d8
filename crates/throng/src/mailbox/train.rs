//! Trains: many messages of one type, from one turn to one process, in one block.
//!
//! A turn that sends the same kind of message to the same process again and again (a flood, a
//! bulk load, a stream) would pay for a block, a push and a cache line each time. After a few
//! such messages it uses a train instead: a block that is pushed once, with the message as its first
//! *car*, and to which the turn adds further cars while the receiver takes cars off the front. A car
//! costs its own size and an exchange on a cache line that the two already share. A turn that
//! distributes messages over many processes has a train for each of them ([`Streaks`]).
//!
//! ```text
//! mailbox ─▶ ┌──────────┬─────────────┬──────────┬──────┬──────┬──────┬───┐
//!            │ envelope │ taken, seen │ coupling │ car  │ car  │ car  │ … │ ◀─ the sending worker adds
//!            │          │             │ rear     │      │      │      │   │
//!            └──────────┴─────────────┴──────────┴──────┴──────┴──────┴───┘
//!            │ receiver's line        │ sender's lines
//! ```
//!
//! The receiver writes to the envelope's line with each car that it takes, the sender to the
//! coupling's line with each car that it adds; the receiver reads the coupling's line only when it
//! has taken all cars that it saw there. So the two run at their own speeds even in the same train.
//!
//! Order: all cars come from a single turn, between two of its suspensions, with no other message
//! of the turn to the same process in between, no call of the turn to any process, and no message
//! from outside the workers since the train was pushed (`coupling::OutsidePushes`), such as from a
//! thread that the turn waits for. So messages from one process to another arrive in order, and a
//! car never overtakes a message of which the sender has learnt meanwhile by a message, by waiting
//! or from such a thread. A turn may also learn something from a turn on another worker without
//! being suspended, by a lock or a channel; then its next car may overtake a message that the other
//! turn has sent before. `lib.rs` documents this.
//!
//! A car is in the mailbox as soon as it is added: the sender buffers nothing.
//!
//! The table of streaks grows with the receivers of a turn. 10 million messages of one turn, in ns for each (one worker,
//! a busy machine, medians of 3):
//!
//! | receivers | fixed table of 1,024 places | growing table | tokio |
//! |---|---|---|---|
//! | 3,000 | 424 | 43 | 128 |
//! | 10,000 | 578 | 88 | 141 |
//! | 100,000 | 296 | 114 | 98 |

mod streaks;

pub(crate) use self::streaks::Streaks;

use crate::address::{Patience, RawAddress};
use crate::cell::Token;
use crate::cell::slab;
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::Link;
use crate::mailbox::budget;
use crate::mailbox::coupling::{Coupling, Found, OutsidePushes};
use crate::mailbox::envelope::{self, Dispatch, Envelope};
use crate::memory::block;
use crate::scheduler;
use crate::scheduler::watchdog::TurnTitle;
use crate::sync::UnsafeCell;
use crate::turn::after::{After, Progress};
use crate::turn::frame;
use crate::turn::process::{Process, Turn};
use std::alloc::Layout;
use std::any::TypeId;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Sizes of the blocks of trains: pooled sizes. A streak begins with the first of them that has
/// room for [`CARS_MIN`] cars, and a full train is followed by one of the next size. Messages of 8
/// bytes take 16, 9.1 and 8.3 bytes each.
const SIZES: [usize; 3] = [256, 1024, 4096];
/// Minimum number of cars for which a train is worthwhile.
const CARS_MIN: usize = 8;
/// Number of cars that the receiver has taken, and number that it has seen.
#[derive(Clone, Copy)]
struct Front {
    taken: u32,
    seen: u32,
}

/// The sender's record of a train. Only the coupling changes while the train is there.
///
/// The record begins a cache line: the line of the coupling, which the sender needs for each car.
#[repr(C, align(64))]
struct Rear {
    coupling: Coupling,
    cars: u32,
    of: TypeId,
    outside: &'static OutsidePushes,
    /// Count of the outside pushes before the train was pushed.
    outside_before: usize,
    size: usize,
}

impl Rear {
    /// Whether no thread outside the workers has pushed anything since the train was pushed, as far
    /// as the turn can have learnt.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn may_add(&self) -> bool {
        self.outside.count() == self.outside_before
    }
}

/// The part of a train that is the same for all types.
#[repr(C)]
struct Head {
    envelope: Envelope,
    /// The receiver's progress; only the receiver touches it.
    front: UnsafeCell<Front>,
    rear: Rear,
}

#[repr(C)]
struct Train<P, T> {
    head: Head,
    process: PhantomData<fn(P)>,
    // As many cars as fit follow: see `cars` and `car`.
    cars: [MaybeUninit<T>; 0],
}

impl<P: Process, T: Turn<P>> Train<P, T> {
    const DISPATCHES: [&'static Dispatch; SIZES.len()] =
        [&Self::dispatch(SIZES[0]), &Self::dispatch(SIZES[1]), &Self::dispatch(SIZES[2])];

    /// Size of a streak's first train, by its place among the sizes.
    const FIRST: usize = if Self::cars(0) < CARS_MIN as u32 { 1 } else { 0 };

    const IS_WORTHWHILE: bool = Self::cars(1) >= CARS_MIN as u32;

    const fn dispatch(bytes: usize) -> Dispatch {
        Dispatch {
            run: Self::run,
            discard: Self::discard,
            uncouple: Some(Self::uncouple),
            // A bounded mailbox takes single messages only.
            refuse: None,
            is_counted: true,
            bytes: bytes as u32,
            is_signal: false,
            title: TurnTitle::of::<P, T>(),
            left: Some(Self::left),
        }
    }

    /// Returns the number of cars for which a train has room; zero for messages that no train
    /// takes.
    const fn cars(size: usize) -> u32 {
        match size_of::<T>() {
            _ if align_of::<T>() > 64 => 0,
            0 => 0xFFFF,
            bytes => ((SIZES[size] - size_of::<Self>()) / bytes) as u32,
        }
    }

    /// Makes up a train and pushes it; the message comes back if it was refused.
    fn depart(to: RawAddress, first: T, size: usize) -> Result<NonNull<Head>, T> {
        let train = block::allocate(LAYOUTS[size]).cast::<Self>();
        let outside = slab::budget_of(to.parts().1).outside_pushes();
        let rear = Rear {
            coupling: Coupling::new(),
            cars: Self::cars(size),
            of: TypeId::of::<T>(),
            outside,
            outside_before: outside.count(),
            size,
        };
        // SAFETY: the block was just allocated with this layout, which has room for a car. If the
        // train is refused, both of its sides are still the caller's, and its only car is read here.
        unsafe {
            train.write(Train {
                head: Head {
                    envelope: Envelope::new(Self::DISPATCHES[size]),
                    front: UnsafeCell::new(Front { taken: 0, seen: 1 }),
                    rear,
                },
                process: PhantomData,
                cars: [],
            });
            Self::car(train, 0).write(first);
            if to.offer(train.cast::<Link>(), Patience::None).is_err() {
                let first = Self::car(train, 0).read();
                free(train.cast());
                return Err(first);
            }
        }
        Ok(train.cast())
    }

    /// Sender: adds a message; it comes back if the train is full or the receiver has detached.
    ///
    /// # Safety
    /// The train is of this type. The caller is the sender, and has not left.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn add(train: NonNull<Self>, message: T) -> Result<(), T> {
        // SAFETY: by the contract the train is there. The car is the sender's until it is added
        // (invariant 1 of `coupling`).
        unsafe {
            let rear = &(*train.as_ptr()).head.rear;
            let Some(place) = rear.coupling.next_place(rear.cars) else { return Err(message) };
            let car = Self::car(train, place);
            car.write(message);
            if rear.coupling.add(place) { Ok(()) } else { Err(car.read()) }
        }
    }

    /// Returns a pointer to the car at `place`.
    ///
    /// # Safety
    /// The train has not been freed, and `place` is below the number of its [`cars`](Self::cars).
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn car(train: NonNull<Self>, place: u32) -> *mut T {
        // SAFETY: by the contract, the car lies inside the block.
        unsafe { (&raw mut (*train.as_ptr()).cars).cast::<T>().add(place as usize) }
    }

    /// Returns the receiver's progress.
    ///
    /// # Safety
    /// The caller is the receiver, and has not let go.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn front(train: NonNull<Self>) -> Front {
        // SAFETY: only the receiver touches `front`, and the train is there until it lets go.
        unsafe { (*train.as_ptr()).head.front.with(|front| *front) }
    }

    /// Receiver: polls the coupling for a car beyond the number taken, and returns the number
    /// added; `None` if there is no such car, and then the receiver has let go.
    ///
    /// # Safety
    /// The caller is the receiver, and has not let go.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn poll(train: NonNull<Self>, taken: u32) -> Option<u32> {
        // SAFETY: the train is there until the receiver lets go, which it does in the poll. `End`
        // makes the receiver the last side.
        unsafe {
            let bytes = envelope::bytes(train.cast());
            match (*train.as_ptr()).head.rear.coupling.poll(taken) {
                Found::Cars(added) => return Some(added),
                Found::End => free(train.cast()),
                Found::Detached => {}
            }
            budget::discharge_here(bytes);
        }
        None
    }

    /// Receiver: takes the next of the cars that it has seen.
    ///
    /// # Safety
    /// The caller is the receiver, and has not let go.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn take_seen(train: NonNull<Self>) -> Option<T> {
        // SAFETY: the caller is the receiver, and has not let go. The count seen covers the car
        // (invariant 1 of `coupling`), which is read once.
        unsafe {
            let Front { taken, seen } = Self::front(train);
            if taken >= seen {
                return None;
            }
            let front = Front { taken: taken + 1, seen };
            (*train.as_ptr()).head.front.with_mut(|field| *field = front);
            Some(Self::car(train, taken).read())
        }
    }

    /// Receiver: takes the next car; `None` if there is none, and then the receiver has let go.
    ///
    /// # Safety
    /// The caller is the receiver, and has not let go.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn take(train: NonNull<Self>) -> Option<T> {
        // SAFETY: the caller is the receiver, and has not let go. The count seen covers the car
        // (invariant 1 of `coupling`), which is read once.
        unsafe {
            let Front { taken, seen } = Self::front(train);
            let found = if taken < seen { Some(seen) } else { Self::poll(train, taken) };
            let front = Front { taken: taken + 1, seen: found? };
            (*train.as_ptr()).head.front.with_mut(|field| *field = front);
            Some(Self::car(train, taken).read())
        }
    }

    unsafe fn run(message: NonNull<Envelope>, token: &Token) -> Progress {
        // SAFETY: `DISPATCHES` head only trains of this type, and its caller is the receiver; the
        // message that is put back was just taken. Further cars are taken only while the train is
        // in front.
        unsafe {
            let Some(turn) = Self::take(message.cast()) else {
                return Progress::Done(After::Next);
            };
            token.put_back(message.cast());
            scheduler::with_worker(|worker| {
                frame::begin_each::<P, T>(token, turn, || {
                    let worker = worker?;
                    if !worker.may_follow(token) {
                        return None;
                    }
                    let turn = Self::take_seen(message.cast())?;
                    worker.follow_on(token);
                    Some(turn)
                })
            })
        }
    }

    unsafe fn discard(message: NonNull<Envelope>, _: &ExitReason) -> u64 {
        let mut cars = 0;
        // SAFETY: `DISPATCHES` head only trains of this type, and its caller is the receiver.
        while let Some(turn) = unsafe { Self::take(message.cast()) } {
            drop_users(turn);
            cars += 1;
        }
        if T::COUNTED { cars } else { 0 }
    }

    /// Returns the number of cars left.
    ///
    /// # Safety
    /// The message is the envelope of such a train; the caller is the receiver, and has not let go.
    unsafe fn left(message: NonNull<Envelope>) -> u64 {
        let train = message.cast::<Self>();
        // SAFETY: `DISPATCHES` head only trains of this type, and its caller is the receiver.
        unsafe {
            let added = (*train.as_ptr()).head.rear.coupling.added();
            u64::from(added.saturating_sub(Self::front(train).taken))
        }
    }

    /// Lets go of the train if no car is left; false if there is one.
    ///
    /// # Safety
    /// The message is the envelope of such a train; the caller is the receiver, and has not let go.
    unsafe fn uncouple(message: NonNull<Envelope>) -> bool {
        let train = message.cast::<Self>();
        // SAFETY: `DISPATCHES` head only trains of this type, and its caller is the receiver.
        unsafe { Self::poll(train, Self::front(train).taken).is_none() }
    }
}

const LAYOUTS: [Layout; SIZES.len()] = [layout(SIZES[0]), layout(SIZES[1]), layout(SIZES[2])];

const fn layout(bytes: usize) -> Layout {
    match Layout::from_size_align(bytes, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("a train has a layout"),
    }
}

/// Frees the block of a train.
///
/// # Safety
/// The caller is the last side of the train, or has never pushed it, and all cars are taken.
#[inline(never)]
unsafe fn free(train: NonNull<Head>) {
    // SAFETY: by the contract no other side reaches the block, which was allocated with the layout
    // of its size.
    unsafe {
        let size = (*train.as_ptr()).rear.size;
        block::free(train.cast(), LAYOUTS[size]);
    }
}

/// Ends the sender's use of a train, and frees it if the receiver has let go before.
///
/// # Safety
/// The caller is the sender, and has not left.
unsafe fn leave(train: NonNull<Head>) {
    // SAFETY: by the contract the sender has not left before, so the train is there; if the sender
    // is the last side, all cars are taken (invariants 2 and 3 of `coupling`).
    unsafe {
        if (*train.as_ptr()).rear.coupling.leave() {
            free(train);
        }
    }
}
