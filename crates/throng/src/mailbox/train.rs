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
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::Link;
use crate::mailbox::budget;
use crate::mailbox::coupling::{Coupling, Found, OutsidePushes};
use crate::mailbox::envelope::{self, Dispatch, Envelope};
use crate::memory::block;
use crate::memory::slab;
use crate::process::{Process, Turn};
use crate::scheduler;
use crate::scheduler::watchdog::TurnTitle;
use crate::sync::UnsafeCell;
use crate::turn::frame::{self, After, Progress};
use std::alloc::Layout;
use std::any::TypeId;
use std::cell::{Cell, OnceCell, RefCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, fn_addr_eq};

/// Number of messages in a row to a process after which a train is made up.
pub(crate) const STREAK: u32 = 4;
/// Sizes of the blocks of trains: pooled sizes. A streak begins with the first of them that has
/// room for [`CARS_MIN`] cars, and a full train is followed by one of the next size. Messages of 8
/// bytes take 16, 9.1 and 8.3 bytes each.
const SIZES: [usize; 3] = [256, 1024, 4096];
/// Minimum number of cars for which a train is worthwhile.
const CARS_MIN: usize = 8;
/// Number of streaks that a turn may have at once, as a power of two.
const PLACES_BITS: u32 = 10;
const PLACES: usize = 1 << PLACES_BITS;

/// Number of cars that the receiver has taken, and number that it has seen.
#[derive(Clone, Copy)]
struct Front {
    taken: u32,
    seen: u32,
}

/// A value that begins a cache line.
#[repr(C, align(64))]
struct OwnLine<T>(T);

#[repr(C)]
struct Train<P, T> {
    envelope: Envelope,
    /// The receiver's progress; only the receiver touches it.
    front: UnsafeCell<Front>,
    process: PhantomData<fn(P)>,
    coupling: OwnLine<Coupling>,
    // As many cars as fit follow: see `cars` and `car`.
    cars: [MaybeUninit<T>; 0],
}

impl<P: Process, T: Turn<P>> Train<P, T> {
    const DISPATCHES: [&'static Dispatch; SIZES.len()] =
        [&Self::dispatch(SIZES[0]), &Self::dispatch(SIZES[1]), &Self::dispatch(SIZES[2])];

    /// Size of a streak's first train, by its place among the sizes.
    const FIRST: usize = if Self::cars(0) < CARS_MIN as u32 { 1 } else { 0 };

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

    /// Creates a train with its first car.
    fn allocate(first: T, size: usize) -> NonNull<Self> {
        let train = block::allocate(LAYOUTS[size]).cast::<Self>();
        // SAFETY: the block was just allocated with this layout, which has room for a car.
        unsafe {
            train.write(Train {
                envelope: Envelope::new(Self::DISPATCHES[size]),
                front: UnsafeCell::new(Front { taken: 0, seen: 1 }),
                process: PhantomData,
                coupling: OwnLine(Coupling::new()),
                cars: [],
            });
            Self::car(train, 0).write(first);
        }
        train
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

    /// Frees the block of a train.
    ///
    /// # Safety
    /// The caller is the last side of the train, or has never pushed it, and all cars are taken.
    #[inline(never)]
    unsafe fn free(train: NonNull<Self>) {
        // SAFETY: by the contract no other side reaches the block, which was allocated with the
        // layout of its dispatch.
        unsafe {
            let bytes = Self::bytes(train) as usize;
            let layout = if bytes == SIZES[0] {
                LAYOUTS[0]
            } else if bytes == SIZES[1] {
                LAYOUTS[1]
            } else {
                LAYOUTS[2]
            };
            block::free(train.cast(), layout);
        }
    }

    /// Returns the size of the block of a train.
    ///
    /// # Safety
    /// The train has not been freed.
    unsafe fn bytes(train: NonNull<Self>) -> u32 {
        // SAFETY: every train begins with an envelope, which does not change.
        unsafe { envelope::bytes(train.cast()) }
    }

    /// Returns the receiver's progress.
    ///
    /// # Safety
    /// The caller is the receiver, and has not let go.
    #[inline(always)]
    unsafe fn front(train: NonNull<Self>) -> Front {
        // SAFETY: only the receiver touches `front`, and the train is there until it lets go.
        unsafe { (*train.as_ptr()).front.with(|front| *front) }
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
            let bytes = Self::bytes(train);
            match (*train.as_ptr()).coupling.0.poll(taken) {
                Found::Cars(added) => return Some(added),
                Found::End => Self::free(train),
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
            (*train.as_ptr()).front.with_mut(|field| *field = front);
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
            (*train.as_ptr()).front.with_mut(|field| *field = front);
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
                    worker.follow_on(token, &Self::DISPATCHES[0].title);
                    Some(turn)
                })
            })
        }
    }

    unsafe fn discard(message: NonNull<Envelope>, _: &ExitReason) {
        // SAFETY: `DISPATCHES` head only trains of this type, and its caller is the receiver.
        while let Some(turn) = unsafe { Self::take(message.cast()) } {
            drop_users(turn);
        }
    }

    /// Returns the number of cars left.
    ///
    /// # Safety
    /// The message is the envelope of such a train; the caller is the receiver, and has not let go.
    unsafe fn left(message: NonNull<Envelope>) -> u64 {
        let train = message.cast::<Self>();
        // SAFETY: `DISPATCHES` head only trains of this type, and its caller is the receiver.
        unsafe {
            let added = (*train.as_ptr()).coupling.0.added();
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

/// The sender's end of a train. The turn that made it up must [`leave`](Self::leave) it, once.
#[derive(Clone, Copy)]
pub(crate) struct Rear {
    train: NonNull<Envelope>,
    /// Number of cars for which the train has room.
    cars: u32,
    /// Size of the train, by its place among the sizes.
    size: u8,
    leave: unsafe fn(NonNull<Envelope>),
    outside: &'static OutsidePushes,
    /// Count of the outside pushes before the train was pushed.
    outside_before: usize,
}

// SAFETY: the sender's end is used through exclusive references only, and the cars that it may add
// are `Send` (a bound of `Turn`).
unsafe impl Send for Rear {}

impl Rear {
    /// Whether messages of this type may travel by train.
    pub(crate) const fn takes<P: Process, T: Turn<P>>() -> bool {
        Train::<P, T>::cars(1) >= CARS_MIN as u32
    }

    /// Makes up a train and pushes it; the message comes back if it was refused.
    pub(crate) fn depart<P: Process, T: Turn<P>>(
        to: RawAddress,
        first: T,
        size: usize,
    ) -> Result<Rear, T> {
        let train = Train::<P, T>::allocate(first, size);
        let outside = slab::budget_of(to.parts().1).outside_pushes();
        let outside_before = outside.count();
        // SAFETY: the train was just allocated, for a `P`; if it is refused, both of its sides are
        // still the caller's, and its only car is read here.
        unsafe {
            if to.offer(train.cast::<Link>()).is_err() {
                let first = Train::car(train, 0).read();
                Train::free(train);
                return Err(first);
            }
        }
        let cars = Train::<P, T>::cars(size);
        Ok(Rear {
            train: train.cast(),
            cars,
            size: size as u8,
            leave: leave::<P, T>,
            outside,
            outside_before,
        })
    }

    /// Whether no thread outside the workers has pushed anything since the train was pushed, as far
    /// as the turn can have learnt.
    #[inline(always)]
    fn may_add(&self) -> bool {
        self.outside.count() == self.outside_before
    }

    /// Adds a message; it comes back if the train is full or the receiver has detached.
    ///
    /// # Safety
    /// The train was made up for a `P` and a `T`.
    #[inline(always)]
    pub(crate) unsafe fn add<P: Process, T: Turn<P>>(&self, message: T) -> Result<(), T> {
        let train = self.train.cast::<Train<P, T>>();
        // SAFETY: the sender has not let go, so the train is there; by the contract it is of this
        // type. The car is the sender's until it is added (invariant 1 of `coupling`).
        unsafe {
            let coupling = &(*train.as_ptr()).coupling.0;
            let Some(place) = coupling.next_place(self.cars) else { return Err(message) };
            let car = Train::car(train, place);
            car.write(message);
            if coupling.add(place) { Ok(()) } else { Err(car.read()) }
        }
    }

    /// Returns the number of cars added.
    ///
    /// # Safety
    /// The train was made up for a `P` and a `T`.
    unsafe fn added<P: Process, T: Turn<P>>(&self) -> u32 {
        // SAFETY: the sender has not let go, so the train is there; by the contract it is of this
        // type.
        unsafe { (*self.train.cast::<Train<P, T>>().as_ptr()).coupling.0.added() }
    }

    pub(crate) fn leave(self) {
        // SAFETY: `depart` stored the function for the train's type; taking `self` calls it once.
        unsafe { (self.leave)(self.train) };
    }
}

/// Ends the sender's use of a train, and frees it if the receiver has let go before.
///
/// # Safety
/// The message is the envelope of a `Train<P, T>`; the caller is the sender, and has not let go.
unsafe fn leave<P: Process, T: Turn<P>>(message: NonNull<Envelope>) {
    let train = message.cast::<Train<P, T>>();
    // SAFETY: by the contract the sender has not let go before, so the train is there; if the
    // sender is the last side, all cars are taken (invariants 2 and 3 of `coupling`).
    unsafe {
        if (*train.as_ptr()).coupling.0.leave() {
            Train::free(train);
        }
    }
}

/// The running turn's streak of messages to one process.
struct Streak {
    /// Receiver of the messages; `None` before the first.
    to: Cell<Option<RawAddress>>,
    /// Type of the messages. A comparison of the functions is enough: equal functions return equal
    /// types.
    kind: Cell<fn() -> TypeId>,
    /// Number of messages that follow the first; zero while there is no train.
    length: Cell<u32>,
    rear: Cell<Option<Rear>>,
}

// A thousand receivers in a row: one cache line each.
const _: () = assert!(size_of::<Streak>() <= 64);

impl Streak {
    const fn new() -> Streak {
        Streak {
            to: Cell::new(None),
            kind: Cell::new(TypeId::of::<()>),
            length: Cell::new(0),
            rear: Cell::new(None),
        }
    }

    #[inline(always)]
    fn is_of(&self, to: RawAddress, kind: fn() -> TypeId) -> bool {
        self.to.get() == Some(to) && fn_addr_eq(self.kind.get(), kind)
    }

    #[inline(always)]
    fn begin(&self, to: RawAddress, kind: fn() -> TypeId) {
        self.end_length();
        self.to.set(Some(to));
        self.kind.set(kind);
    }

    #[inline(always)]
    fn end(&self) {
        self.to.set(None);
        self.end_length();
    }

    #[inline(always)]
    fn end_length(&self) {
        if self.length.get() != 0 {
            self.length.set(0);
            self.leave_train();
        }
    }

    #[inline(never)]
    fn leave_train(&self) {
        if let Some(rear) = self.rear.take() {
            rear.leave();
        }
    }

    /// Sends by train, if the streak is long enough: adds a car, or makes up a train.
    #[inline(always)]
    fn go_on<P: Process, T: Turn<P>>(&self, to: RawAddress, mut message: T) -> Result<(), T> {
        let mut size = Train::<P, T>::FIRST;
        if let Some(rear) = self.rear.get() {
            if rear.may_add() {
                // SAFETY: `self.to` is this address, whose process is a `P`, and this type of
                // message.
                match unsafe { rear.add::<P, T>(message) } {
                    Ok(()) => return Ok(()),
                    Err(back) => message = back,
                }
                size = self.next_size::<P, T>(&rear);
            } else {
                // If this happens often, trains with few cars would cost more than they save.
                self.length.set(STREAK / 2);
            }
            self.leave_train();
        }
        self.length.set(self.length.get() + 1);
        if self.length.get() < STREAK || !Rear::takes::<P, T>() || to.is_bounded() {
            return Err(message);
        }
        self.depart::<P, T>(to, message, size)
    }

    /// Returns the size of the train that follows one which takes no more cars.
    #[inline(never)]
    fn next_size<P: Process, T: Turn<P>>(&self, rear: &Rear) -> usize {
        // SAFETY: the streak's train was made up for its receiver, a `P`, and its type of message.
        let added = unsafe { rear.added::<P, T>() };
        if added >= rear.cars {
            return (usize::from(rear.size) + 1).min(SIZES.len() - 1);
        }
        if added < CARS_MIN as u32 {
            // The receiver keeps up: it would get a block as long as a train for each message.
            self.length.set(0);
        }
        Train::<P, T>::FIRST
    }

    #[inline(never)]
    fn depart<P: Process, T: Turn<P>>(
        &self,
        to: RawAddress,
        message: T,
        size: usize,
    ) -> Result<(), T> {
        self.rear.set(Some(Rear::depart::<P, T>(to, message, size)?));
        Ok(())
    }
}

/// A worker's record of the running turn's latest sends.
///
/// A turn that changes its receiver again and again has a streak for each of them, in a table: a
/// process that distributes work, or that tells a room what was said. Two receivers that share a
/// place in the table end each other's streaks.
pub(crate) struct Streaks {
    /// Streak to the latest receiver; at rest while the table is in use.
    latest: Streak,
    /// Number of changes of the receiver in this turn, up to [`STREAK`].
    changes: Cell<u32>,
    table: OnceCell<Box<[Streak; PLACES]>>,
    /// Places of the table whose streaks have begun in this turn.
    begun: RefCell<Vec<u16>>,
}

impl Streaks {
    pub(crate) fn new() -> Streaks {
        Streaks {
            latest: Streak::new(),
            changes: Cell::new(0),
            table: OnceCell::new(),
            begun: RefCell::new(Vec::new()),
        }
    }

    /// Ends all streaks: the turn is over, or suspended, or has sent a message by another way.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.latest.end();
        if self.changes.get() != 0 {
            self.end_changes();
        }
    }

    #[inline(never)]
    fn end_changes(&self) {
        if self.changes.replace(0) == STREAK
            && let Some(table) = self.table.get()
        {
            self.begun.borrow_mut().drain(..).for_each(|place| table[usize::from(place)].end());
        }
    }

    /// Sends by train if the message continues a streak; otherwise returns it, to be sent by
    /// itself.
    #[inline(always)]
    pub(crate) fn send<P: Process, T: Turn<P>>(&self, to: RawAddress, message: T) -> Result<(), T> {
        let kind: fn() -> TypeId = TypeId::of::<T>;
        let streak = if self.latest.is_of(to, kind) {
            &self.latest
        } else if self.latest.to.get().is_none() && self.changes.get() == 0 {
            self.latest.begin(to, kind);
            return Err(message);
        } else {
            match self.change(to, kind) {
                Some(streak) => streak,
                None => return Err(message),
            }
        };
        streak.go_on::<P, T>(to, message)
    }

    /// Changes to another receiver, or to another type of message; returns the streak that the
    /// message continues.
    #[inline(never)]
    fn change(&self, to: RawAddress, kind: fn() -> TypeId) -> Option<&Streak> {
        let changes = self.changes.get();
        if changes < STREAK {
            self.changes.set(changes + 1);
            self.latest.begin(to, kind);
            return None;
        }
        let table = self.table.get_or_init(|| Box::new([const { Streak::new() }; PLACES]));
        let place = to.place(PLACES_BITS);
        let streak = &table[place];
        if streak.is_of(to, kind) {
            return Some(streak);
        }
        // A later car of this streak would overtake the messages that leave it here.
        self.latest.end();
        if streak.to.get().is_none() {
            self.begun.borrow_mut().push(place as u16);
        }
        streak.begin(to, kind);
        None
    }
}
