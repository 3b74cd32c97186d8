//! Streaks: messages of one type in a row from the running turn to one process, and the trains that they get.
//!
//! ```text
//! message ─▶ latest receiver? ── yes ─▶ count, or add a car
//!                 │ no
//!                 └─▶ its place in the table ─▶ count, or add a car
//!                          number 0 … STREAK ─▶ train
//! ```
//!
//! | value | touched by |
//! |---|---|
//! | streaks, table | the worker whose turn sends |
//! | a train's rear | the streak that has the sender's end, until it leaves the train |
//! | a train's cars | the sender adds, the receiver takes; see `coupling` |
//!
//! Invariants:
//! 1. A train has one sender: the streak that points to it, which leaves it once.
//! 2. A streak ends with its turn, with the turn's suspension, or before a message that goes another way, so
//!    no car overtakes a message of the same turn.

use super::{CARS_MIN, Head, SIZES, Train, leave};
use crate::address::RawAddress;
use crate::error::SendError;
use crate::mailbox::envelope::Cast;
use crate::scheduler::worker::Worker;
use crate::turn::process::{Process, Turn};
use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::mem;
use std::ptr::{self, NonNull};

/// Number of messages in a row to a process after which a train is made up.
const STREAK: u32 = 4;
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

/// A part of the identity of a streak's type of messages, which leaves the highest bits free.
///
/// Two types may have the same kind: a streak that counts both only gets its train earlier. A train has the
/// whole identity. The address of a generic function would be shorter to compare, but each unit of code
/// that the compiler makes may have its own.
#[derive(Clone, Copy)]
struct Kind(usize);

impl Kind {
    #[cfg_attr(not(debug_assertions), inline(always))]
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
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn finish(&self) -> u64 {
        self.0
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
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

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn number(kind: Kind, number: u32) -> Following {
        const { assert!(STREAK < 8, "the number has three bits") };
        let number = (number as usize) << Self::NUMBER_SHIFT;
        Following(ptr::without_provenance_mut(kind.0 | number | Self::IS_NUMBER))
    }

    /// Returns the number of messages; more than [`STREAK`] if they are of another type.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn number_of(self, kind: Kind) -> usize {
        let beyond = self.0.addr().wrapping_sub(Self::number(kind, 0).0.addr());
        beyond.rotate_right(Self::NUMBER_SHIFT)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn is_nothing(self) -> bool {
        self.0.is_null()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
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
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn begin(&self, to: RawAddress, kind: Kind) {
        self.to.set(Some(to));
        self.following.set(Following::number(kind, 0));
    }

    /// Returns what follows, or counts a message of this type that travels by itself and returns
    /// nothing.
    #[cfg_attr(not(debug_assertions), inline(always))]
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
    /// The table of streaks, whose length is zero or a power of two.
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
    #[cfg_attr(not(debug_assertions), inline(always))]
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
    #[cfg_attr(not(debug_assertions), inline(always))]
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
    #[cfg_attr(not(debug_assertions), inline(always))]
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
