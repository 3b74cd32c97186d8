//! Trains: many messages of one type, from one turn to one process, in one block.
//!
//! A turn that sends the same kind of message to the same process again and again (a flood, a
//! bulk load, a stream) would pay for a block, a push and a cache line each time. After [`STREAK`]
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

use crate::address::RawAddress;
use crate::cell::Token;
use crate::cell::slab;
use crate::error::SendError;
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::Link;
use crate::mailbox::budget;
use crate::mailbox::coupling::{Coupling, Found, OutsidePushes};
use crate::mailbox::envelope::{self, Cast, Dispatch, Envelope};
use crate::memory::block;
use crate::scheduler;
use crate::scheduler::watchdog::TurnTitle;
use crate::scheduler::worker::Worker;
use crate::sync::UnsafeCell;
use crate::turn::frame::{self, After, Progress};
use crate::turn::process::{Process, Turn};
use std::alloc::Layout;
use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::ptr::{self, NonNull};

/// Number of messages in a row to a process after which a train is made up.
pub(crate) const STREAK: u32 = 4;
/// Sizes of the blocks of trains: pooled sizes. A streak begins with the first of them that has
/// room for [`CARS_MIN`] cars, and a full train is followed by one of the next size. Messages of 8
/// bytes take 16, 9.1 and 8.3 bytes each.
const SIZES: [usize; 3] = [256, 1024, 4096];
/// Minimum number of cars for which a train is worthwhile.
const CARS_MIN: usize = 8;
/// Number of places of a worker's table of streaks, as a power of two: in a new table, while the
/// worker sleeps, and at most. With 20 bytes each they take 1.25 KiB, 20 KiB and 2.5 MiB. A turn
/// that sends 10 million messages to 100,000 receivers takes 440 ns for each with 16 bits, 240 ns
/// with 17.
const BITS_FIRST: u32 = 6;
const BITS_KEPT: u32 = 10;
const BITS_MOST: u32 = 17;
/// Number of places that a receiver may have: a cache line of them.
const BESIDE: usize = 4;
/// Number of receivers without a place in a table of the greatest size, of which one gets the place
/// of another.
const REPLACED: u32 = 8;

/// Number of cars that the receiver has taken, and number that it has seen.
#[derive(Clone, Copy)]
struct Front {
    taken: u32,
    seen: u32,
}

/// A part of the identity of a streak's type of messages, which leaves the highest bits free.
///
/// Two types may have the same kind: a streak that counts both only gets its train earlier. A train has the
/// whole identity. The address of a generic function would be shorter to compare, but each unit of code
/// that the compiler makes may have its own.
#[derive(Clone, Copy)]
struct Kind(usize);

impl Kind {
    #[inline(always)]
    fn of<T: 'static>() -> Kind {
        // The hash of a type is a constant when this is compiled with optimization.
        let mut bits = LowBits(0);
        TypeId::of::<T>().hash(&mut bits);
        Kind(bits.0 as usize & (usize::MAX >> Following::BITS_TAKEN))
    }
}

/// A hasher that returns the last number it was given.
struct LowBits(u64);

impl Hasher for LowBits {
    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }

    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

/// The sender's record of a train. Only the coupling changes while the train is there.
///
/// The record begins a cache line: the line of the coupling, which the sender needs for each car.
#[repr(C, align(64))]
struct Rear {
    coupling: Coupling,
    /// Number of cars for which the train has room.
    cars: u32,
    /// Type of the messages.
    of: TypeId,
    outside: &'static OutsidePushes,
    /// Count of the outside pushes before the train was pushed.
    outside_before: usize,
    /// Size of the train, by its place among the sizes.
    size: usize,
}

impl Rear {
    /// Whether no thread outside the workers has pushed anything since the train was pushed, as far
    /// as the turn can have learnt.
    #[inline(always)]
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

    /// Whether messages of this type may travel by train.
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
            if to.offer(train.cast::<Link>()).is_err() {
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
    #[inline(always)]
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
    #[inline(always)]
    unsafe fn car(train: NonNull<Self>, place: u32) -> *mut T {
        // SAFETY: by the contract, the car lies inside the block.
        unsafe { (&raw mut (*train.as_ptr()).cars).cast::<T>().add(place as usize) }
    }

    /// Returns the receiver's progress.
    ///
    /// # Safety
    /// The caller is the receiver, and has not let go.
    #[inline(always)]
    unsafe fn front(train: NonNull<Self>) -> Front {
        // SAFETY: only the receiver touches `front`, and the train is there until it lets go.
        unsafe { (*train.as_ptr()).head.front.with(|front| *front) }
    }

    /// Receiver: polls the coupling for a car beyond the number taken, and returns the number
    /// added; `None` if there is no such car, and then the receiver has let go.
    ///
    /// # Safety
    /// The caller is the receiver, and has not let go.
    #[inline(always)]
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
    #[inline(always)]
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
    #[inline(always)]
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

/// Layouts of the blocks of trains.
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

/// The messages of a streak after the first: the train, or the number and the type of the messages
/// that have travelled by themselves, in one word.
///
/// | highest bit | other bits |
/// |---|---|
/// | 0 | pointer to the train, which the streak must leave; null if there is no streak |
/// | 1 | number of messages, up to [`STREAK`]; below, the type's [`Kind`] |
#[derive(Clone, Copy)]
struct Following(*mut Head);

// SAFETY: the sender's end of a train is used through exclusive references only, and the cars that
// it may add are `Send` (a bound of `Turn`).
unsafe impl Send for Following {}

impl Following {
    const NOTHING: Following = Following(ptr::null_mut());
    const IS_NUMBER: usize = 1 << (usize::BITS - 1);
    const NUMBER_SHIFT: u32 = usize::BITS - Self::BITS_TAKEN;
    /// Number of bits that a [`Kind`] leaves free.
    const BITS_TAKEN: u32 = 4;

    #[inline(always)]
    fn number(kind: Kind, number: u32) -> Following {
        const { assert!(STREAK < 8, "the number has three bits") };
        let number = (number as usize) << Self::NUMBER_SHIFT;
        Following(ptr::without_provenance_mut(kind.0 | number | Self::IS_NUMBER))
    }

    /// Returns the number of messages; more than [`STREAK`] if they are of another type.
    #[inline(always)]
    fn number_of(self, kind: Kind) -> usize {
        let beyond = self.0.addr().wrapping_sub(Self::number(kind, 0).0.addr());
        beyond.rotate_right(Self::NUMBER_SHIFT)
    }

    #[inline(always)]
    fn is_nothing(self) -> bool {
        self.0.is_null()
    }

    #[inline(always)]
    fn train(self) -> Option<NonNull<Head>> {
        if self.0.addr() & Self::IS_NUMBER == 0 { NonNull::new(self.0) } else { None }
    }
}

/// The running turn's streak of messages to one process.
struct Streak {
    /// Receiver of the messages; `None` before the first.
    to: Cell<Option<RawAddress>>,
    following: Cell<Following>,
}

// Four receivers in a row share a cache line.
const _: () = assert!(size_of::<Streak>() == 16);

impl Streak {
    const fn new() -> Streak {
        Streak { to: Cell::new(None), following: Cell::new(Following::NOTHING) }
    }

    /// Begins a streak with a message that travels by itself. There is no train to leave.
    #[inline(always)]
    fn begin(&self, to: RawAddress, kind: Kind) {
        self.to.set(Some(to));
        self.following.set(Following::number(kind, 0));
    }

    /// Returns what follows, or counts a message of this type that travels by itself and returns
    /// nothing.
    #[inline(always)]
    fn count(&self, kind: Kind) -> Following {
        let following = self.following.get();
        if following.train().is_some() {
            return following;
        }
        let number = following.number_of(kind);
        if number >= STREAK as usize - 1 {
            return following;
        }
        self.following.set(Following::number(kind, number as u32 + 1));
        Following::NOTHING
    }

    fn end(&self) {
        self.leave_train();
        self.to.set(None);
    }

    fn leave_train(&self) {
        if let Some(train) = self.following.replace(Following::NOTHING).train() {
            // SAFETY: the streak had the sender's end of its train, and has given it up here.
            unsafe { leave(train) };
        }
    }
}

/// The streaks of a turn that changes its receiver again and again.
///
/// A receiver has a place of its own, which it shares with others, and may have one of the
/// [`BESIDE`] places in the same cache line if its own is taken. If all of them are taken, it has no
/// streak. If this happens often, the table grows; a table of the greatest size gives every
/// [`REPLACED`]th such receiver the place of another.
struct Table {
    /// A power of two in number, or none.
    places: Box<[Streak]>,
    /// Number of places as a power of two.
    bits: u32,
    /// Places whose streaks have begun in this turn. None of them is vacated before the turn ends.
    begun: Vec<u32>,
    /// Number of times that a receiver has found no place.
    misses: u32,
}

impl Table {
    fn new(bits: u32) -> Table {
        let places = (0..1 << bits).map(|_| Streak::new()).collect();
        Table { places, bits, begun: Vec::new(), misses: 0 }
    }

    fn none() -> Table {
        Table { places: Box::default(), bits: 0, begun: Vec::new(), misses: 0 }
    }

    /// Returns the streak in the receiver's own place, perhaps that of another receiver.
    #[inline(always)]
    fn own(&self, to: RawAddress) -> Option<&Streak> {
        self.places.get(to.place(self.bits))
    }

    /// Returns the receiver's place; if it has none, a free place that it may have.
    fn place(&self, to: RawAddress) -> Option<usize> {
        let own = to.place(self.bits);
        // No place is vacated before the turn ends, so a receiver is not behind a free place.
        (0..BESIDE).map(|beside| own ^ beside).find(|&place| {
            let entry = self.places.get(place).map(|streak| streak.to.get());
            entry == Some(None) || entry == Some(Some(to))
        })
    }

    fn find(&self, to: RawAddress) -> Option<&Streak> {
        let streak = self.place(to).map(|place| &self.places[place]);
        streak.filter(|streak| streak.to.get() == Some(to))
    }

    /// Begins a streak in a free place.
    fn begin(&mut self, place: usize, to: RawAddress, following: Following) {
        self.begun.push(place as u32);
        self.places[place].to.set(Some(to));
        self.places[place].following.set(following);
    }

    /// Begins a streak to a receiver for which no place is free, if it may have one.
    #[cold]
    fn begin_elsewhere(&mut self, to: RawAddress, first: Following) {
        self.misses += 1;
        let number = self.places.len();
        // Receivers that all share a few places do not make the table grow.
        let is_full = (self.misses as usize).min(self.begun.len()) >= number / 4;
        if is_full && self.bits < BITS_MOST {
            self.grow();
            if let Some(place) = self.place(to) {
                self.begin(place, to, first);
            }
        } else if self.bits == BITS_MOST && self.misses.is_multiple_of(REPLACED) {
            let own = &self.places[to.place(self.bits)];
            own.leave_train();
            own.to.set(Some(to));
            own.following.set(first);
        }
    }

    fn grow(&mut self) {
        let bits = if self.bits == 0 { BITS_FIRST } else { self.bits + 1 };
        let mut old = mem::replace(self, Table::new(bits));
        for place in old.begun.drain(..) {
            let streak = &old.places[place as usize];
            let Some(to) = streak.to.get() else { continue };
            match self.place(to) {
                Some(place) => self.begin(place, to, streak.following.get()),
                None => streak.leave_train(),
            }
        }
    }

    fn end(&mut self) {
        self.misses = 0;
        self.begun.drain(..).for_each(|place| self.places[place as usize].end());
    }
}

/// A worker's record of the running turn's latest sends.
///
/// A turn that changes its receiver again and again has a streak for each of them, in a table: a
/// process that distributes work, or that tells a room what was said.
pub(crate) struct Streaks {
    /// Streak to the latest receiver; at rest while the table is in use.
    latest: Streak,
    /// Whether there is more to end than [`latest`](Self::latest)'s record of its receiver: a train,
    /// or a change of the receiver.
    in_use: Cell<bool>,
    /// Number of changes of the receiver in this turn, up to [`STREAK`].
    changes: Cell<u32>,
    table: RefCell<Table>,
}

impl Streaks {
    pub(crate) fn new() -> Streaks {
        Streaks {
            latest: Streak::new(),
            in_use: Cell::new(false),
            changes: Cell::new(0),
            table: RefCell::new(Table::none()),
        }
    }

    /// Ends all streaks: the turn is over, or suspended, or has sent a message by another way.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.latest.to.set(None);
        if self.in_use.get() {
            self.end_use();
        }
    }

    #[inline(never)]
    fn end_use(&self) {
        self.in_use.set(false);
        self.latest.leave_train();
        if self.changes.replace(0) == STREAK {
            self.table.borrow_mut().end();
        }
    }

    /// Gives back the memory of a table that has grown beyond the size that a worker keeps, between
    /// two turns.
    pub(crate) fn shrink(&self) {
        if self.table.borrow().bits > BITS_KEPT && !self.in_use.get() {
            self.table.replace(Table::none());
        }
    }

    /// Sends a message of the worker's running turn: by train if it continues a streak, otherwise by
    /// itself.
    #[inline(always)]
    pub(crate) fn send<P: Process, T: Turn<P>>(
        &self,
        worker: &Worker,
        to: RawAddress,
        mut message: T,
    ) -> Result<(), SendError<T>> {
        let kind = Kind::of::<T>();
        'alone: {
            let latest = self.latest.to.get();
            let following = if latest == Some(to) {
                self.latest.following.get()
            } else if latest.is_none() && !self.in_use.get() {
                self.latest.begin(to, kind);
                break 'alone;
            } else {
                self.change(to, kind)
            };
            if let Some(train) = following.train() {
                // SAFETY: a streak has the sender's end of its train. The train is for this
                // address, whose process is a `P`, and a car is added only if the train's messages are of
                // this type.
                unsafe {
                    let rear = &(*train.as_ptr()).rear;
                    if rear.of == TypeId::of::<T>() && rear.may_add() {
                        match Train::<P, T>::add(train.cast(), message) {
                            Ok(()) => return Ok(()),
                            Err(back) => message = back,
                        }
                    }
                }
            } else if following.is_nothing() {
                break 'alone;
            }
            return self.send_slowly::<P, T>(worker, to, message);
        }
        Cast::<P, T>::send_from(worker, to, message)
    }

    /// Sends a message that no train takes: makes up a train, or counts the message.
    #[cold]
    #[inline(never)]
    fn send_slowly<P: Process, T: Turn<P>>(
        &self,
        worker: &Worker,
        to: RawAddress,
        message: T,
    ) -> Result<(), SendError<T>> {
        let departed = self.depart::<P, T>(to, message);
        departed.or_else(|message| Cast::<P, T>::send_from(worker, to, message))
    }

    /// Changes to another receiver, and returns what follows: nothing if the message travels by
    /// itself and is counted.
    #[inline(never)]
    fn change(&self, to: RawAddress, kind: Kind) -> Following {
        // SAFETY: the table is not borrowed mutably before this function's end or its last call.
        if let Ok(table) = unsafe { self.table.try_borrow_unguarded() }
            && let Some(streak) = table.own(to)
            && streak.to.get() == Some(to)
        {
            return streak.count(kind);
        }
        self.change_slowly(to, kind)
    }

    #[inline(never)]
    fn change_slowly(&self, to: RawAddress, kind: Kind) -> Following {
        self.in_use.set(true);
        let changes = self.changes.get();
        if changes < STREAK {
            self.changes.set(changes + 1);
            self.latest.leave_train();
            self.latest.begin(to, kind);
            return Following::NOTHING;
        }
        let mut table = self.table.borrow_mut();
        let place = table.place(to);
        if let Some(place) = place
            && table.places[place].to.get() == Some(to)
        {
            return table.places[place].count(kind);
        }
        // A later car of this streak would overtake the messages that leave it here.
        self.latest.end();
        let first = Following::number(kind, 0);
        match place {
            Some(place) => table.begin(place, to, first),
            None => table.begin_elsewhere(to, first),
        }
        Following::NOTHING
    }

    /// Makes up a train if the streak is long enough; otherwise counts the message and returns it.
    fn depart<P: Process, T: Turn<P>>(&self, to: RawAddress, message: T) -> Result<(), T> {
        let kind = Kind::of::<T>();
        let table = self.table.borrow();
        let streak =
            if self.latest.to.get() == Some(to) { Some(&self.latest) } else { table.find(to) };
        let Some(streak) = streak else { return Err(message) };
        let mut size = Train::<P, T>::FIRST;
        let before = if let Some(train) = streak.following.get().train() {
            // SAFETY: the streak has the sender's end of its train.
            let rear = unsafe { &(*train.as_ptr()).rear };
            let added = rear.coupling.added();
            let before = if rear.of != TypeId::of::<T>() {
                None
            } else if !rear.may_add() {
                // If this happens often, trains with few cars would cost more than they save.
                Some(STREAK / 2)
            } else if added >= rear.cars {
                size = (rear.size + 1).min(SIZES.len() - 1);
                Some(STREAK)
            } else if added < CARS_MIN as u32 {
                // The receiver keeps up: it would get a block as long as a train for each message.
                Some(0)
            } else {
                Some(STREAK)
            };
            streak.leave_train();
            before
        } else {
            let number = streak.following.get().number_of(kind);
            (number <= STREAK as usize).then_some(number as u32)
        };
        let number = before.map_or(0, |before| (before + 1).min(STREAK));
        streak.following.set(Following::number(kind, number));
        if number < STREAK || !Train::<P, T>::IS_WORTHWHILE || to.is_bounded() {
            return Err(message);
        }
        let train = Train::<P, T>::depart(to, message, size)?;
        streak.following.set(Following(train.as_ptr()));
        self.in_use.set(true);
        Ok(())
    }
}
