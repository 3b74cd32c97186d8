//! The word that the two ends of a train share: see `train` for the train itself.
//!
//! A single sender adds cars, a single receiver takes them, in order, each car once. The word
//! counts the cars added and records which side has let go:
//!
//! | bits | meaning | set by |
//! |---|---|---|
//! | 0..16 | cars added | sender |
//! | `DETACHED` | the receiver had taken all cars and stops polling | receiver |
//! | `LEFT` | the sender stops adding | sender |
//!
//! Invariants:
//! 1. A car is written before the count that covers it, and read after that count was seen.
//! 2. No car is added once `DETACHED` is set: adding and detaching are exchanges of the same word.
//! 3. Exactly one of the two sides learns that it is the last, and frees the train.
//!
//! A train is in the mailbox before every message that is pushed while cars are added to it. Such a
//! message may come from a thread that the sending turn waits for; the turn must then add no more
//! cars. [`OutsidePushes`] lets the sender detect such a push.

use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const DETACHED: u32 = 1 << 30;
const LEFT: u32 = 1 << 31;
const COUNT: u32 = 0xFFFF;

/// Shared word of a train; see the file's head.
#[repr(transparent)]
pub(crate) struct Coupling(AtomicU32);

/// Result of the receiver's poll.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// More cars: the number added so far.
    Cars(u32),
    /// No car is left, and none will come: the receiver frees the train.
    End,
    /// No car is left, and the receiver has detached: it must not poll again, and the sender frees
    /// the train.
    Detached,
}

impl Coupling {
    /// Creates the coupling of a train with a single car.
    pub(crate) fn new() -> Coupling {
        Coupling(AtomicU32::new(1))
    }

    /// Sender: returns the place of the next car, unless the train is full or the receiver has
    /// detached.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn next_place(&self, cars_most: u32) -> Option<u32> {
        debug_assert!(cars_most <= COUNT);
        // Each of the two flags is greater than any count.
        let word = self.0.load(Ordering::Relaxed);
        (word < cars_most).then_some(word)
    }

    /// Sender: adds the car at `place`, which is written; false if the receiver has detached
    /// meanwhile.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn add(&self, place: u32) -> bool {
        // Releases the car to the receiver's poll.
        self.0.compare_exchange(place, place + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Sender: stops adding; true if the sender is the last side.
    pub(crate) fn leave(&self) -> bool {
        // Orders the receiver's reads before any other use of the memory.
        self.0.fetch_or(LEFT, Ordering::AcqRel) & DETACHED != 0
    }

    pub(crate) fn added(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & COUNT
    }

    /// Receiver: looks for a car beyond the number taken, and detaches if there is none.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn poll(&self, taken: u32) -> Found {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if word & COUNT > taken {
                return Found::Cars(word & COUNT);
            }
            if word & LEFT != 0 {
                return Found::End;
            }
            match self.0.compare_exchange(
                word,
                word | DETACHED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Found::Detached,
                Err(now) => word = now,
            }
        }
    }
}

/// Counts the pushes to the processes of one runtime by threads that are not its workers.
///
/// The pusher counts after its push, and the sender of a train reads the count before it pushes the
/// train and again before each car. So if a push came after the train's and the sender has learnt
/// of it in any way, then the two counts differ.
#[derive(Default)]
pub(crate) struct OutsidePushes(AtomicUsize);

impl OutsidePushes {
    /// Counts a push that has happened.
    pub(crate) fn note(&self) {
        // Relaxed: the event by which the sender learns of the push orders this before its next
        // car.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use crate::mailbox::items::{item, take};
    use crate::mailbox::{Generation, Mailbox};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;
    use std::sync::atomic::{AtomicUsize as StdAtomicUsize, Ordering::SeqCst};

    struct Train {
        coupling: Coupling,
        cars: [UnsafeCell<u32>; 4],
        frees: StdAtomicUsize,
    }

    impl Train {
        /// Touches all memory, as freeing does: loom reports a race with any concurrent access.
        fn free(&self) {
            for car in &self.cars {
                // SAFETY: the last side has the train to itself (invariant 3).
                car.with_mut(|car| unsafe { *car = 0 });
            }
            self.frees.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn loom_each_car_arrives_once_in_order_and_one_side_frees() {
        loom::model(|| {
            let train = Arc::new(Train {
                coupling: Coupling::new(),
                cars: [1, 0, 0, 0].map(UnsafeCell::new),
                frees: StdAtomicUsize::new(0),
            });
            let sender = thread::spawn({
                let train = train.clone();
                move || {
                    let mut added = 1;
                    for value in 2..=3 {
                        let Some(place) = train.coupling.next_place(4) else { break };
                        // SAFETY: the car is the sender's until it is added (invariant 1).
                        train.cars[place as usize].with_mut(|car| unsafe { *car = value });
                        if !train.coupling.add(place) {
                            break;
                        }
                        added += 1;
                    }
                    if train.coupling.leave() {
                        train.free();
                    }
                    added
                }
            });
            let mut taken = 0;
            loop {
                match train.coupling.poll(taken) {
                    // All cars seen are taken without another poll.
                    Found::Cars(seen) => {
                        while taken < seen {
                            // SAFETY: the count seen covers the car (invariant 1).
                            let value = train.cars[taken as usize].with(|car| unsafe { *car });
                            taken += 1;
                            assert_eq!(value, taken);
                        }
                    }
                    Found::End => {
                        train.free();
                        break;
                    }
                    Found::Detached => break,
                }
            }
            assert_eq!(taken, sender.join().unwrap(), "all cars added were taken");
            assert_eq!(train.frees.load(SeqCst), 1);
        });
    }

    #[test]
    fn loom_a_sender_that_knows_of_an_outside_push_after_its_train_adds_no_car() {
        loom::model(|| {
            let generation = Generation::FIRST;
            let shared = Arc::new((
                Mailbox::new_open(generation),
                OutsidePushes(AtomicUsize::new(0)),
                AtomicUsize::new(0),
            ));
            let outsider = thread::spawn({
                let shared = shared.clone();
                move || {
                    let (mailbox, pushes, notified) = &*shared;
                    // SAFETY: the item was just made.
                    let _ = unsafe { mailbox.push(generation, item(2)) };
                    pushes.note();
                    // Stands for the end of a thread, a lock or a channel.
                    notified.store(1, Ordering::Release);
                }
            });
            let (mailbox, pushes, notified) = &*shared;
            let count = pushes.count();
            // SAFETY: the item was just made.
            let _ = unsafe { mailbox.push(generation, item(1)) };
            let knows = notified.load(Ordering::Acquire) == 1;
            let adds = pushes.count() == count;
            outsider.join().unwrap();
            // SAFETY: only this thread drains, so the items are its own.
            let order = unsafe { take(mailbox.drain(generation)) };
            assert!(!(knows && adds && order == [1, 2]), "a car overtakes an earlier message");
        });
    }
}
