//! The budget of mailbox memory: the bytes queued in a runtime, checked against a limit.
//!
//! Each worker counts the bytes that it queues and takes off queues in a tally of its own, with
//! plain adds; all other threads add to a shared count. The sum is formed now and then: by the
//! clock thread, every 256 sends of a turn, and every 64 KiB that come from other threads. The
//! check sets a flag, which is all that a sender reads.
//!
//! ```text
//! worker ── tally ─┐
//! worker ── tally ─┼─ check ─▶ over? ◀── every send
//! guests ── count ─┘
//! ```
//!
//! Invariants:
//! 1. A message is charged before it is queued, and discharged if the queueing fails; so every
//!    queued message was charged to its own runtime, and none is discharged before it was charged.
//! 2. A charged message is discharged once: when its turn begins, when it is discarded, or when its
//!    sender takes it back; a signal, when it is taken out to be acted on or refused. A message
//!    that an async process keeps is charged again while it is kept, and discharged when a receive
//!    takes it, when it is dropped, or when its process dies.
//! 3. A budget is never freed: a stale address may lead to a budget whose runtime is over. By
//!    invariant 1, a charge that goes there by mistake is taken back.

use crate::events::Events;
use crate::mailbox::coupling::OutsidePushes;
use crate::mailbox::dead_letters::Drops;
use crate::scheduler;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;
use tracing::Level;

pub(crate) const BUDGET_BYTES: u64 = 4 << 30;
/// Change of the count from outside the workers, in bytes, after which a check is due.
const CHECK_BYTES: u64 = 64 * 1024;

/// Mailbox budget of a runtime; see the file's head.
#[repr(align(128))]
pub(crate) struct Budget {
    /// Whether the sum was over the limit at the last check. Read by every send and seldom written.
    over: AtomicBool,
    limit: AtomicU64,
    tallies: Mutex<Vec<Arc<Tally>>>,
    guests: Guests,
    events: Mutex<Option<Arc<Events>>>,
    /// Messages that the runtime has dropped: here, because every address leads to its budget.
    drops: Drops,
}

/// The thread to which a message is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payer {
    /// A worker of the budget's runtime.
    Worker,
    /// A thread that is no worker of the runtime.
    Outside,
}

/// Bytes and pushes of threads that are not workers of the runtime.
#[derive(Default)]
#[repr(align(128))]
struct Guests {
    /// Bytes charged minus bytes discharged by these threads.
    bytes: AtomicU64,
    pushes: OutsidePushes,
}

/// Bytes that a worker has queued and taken off queues; only the worker writes them.
#[derive(Default)]
#[repr(align(128))]
struct Tally {
    charged: AtomicU64,
    discharged: AtomicU64,
}

static POOL: Mutex<Vec<&'static Budget>> = Mutex::new(Vec::new());

impl Budget {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Charges the bytes of a message that is about to be queued, to the calling thread.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn charge(&self, bytes: u32) -> Payer {
        self.with_tally(|tally| match tally {
            Some(tally) => {
                add(&tally.charged, bytes);
                Payer::Worker
            }
            None => {
                self.charge_from_outside(bytes);
                Payer::Outside
            }
        })
    }

    pub(crate) fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the count of pushes from outside the workers; see `coupling`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn outside_pushes(&self) -> &OutsidePushes {
        &self.guests.pushes
    }

    /// Counts a push from outside the workers, after the push and before the thread can let any other learn
    /// of it; see `coupling::OutsidePushes`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn note_push(&self, payer: Payer) {
        if payer == Payer::Outside {
            self.guests.pushes.note();
        }
    }

    /// Whether the calling thread is a worker of this budget's runtime.
    pub(crate) fn is_workers(&self) -> bool {
        self.with_tally(|tally| tally.is_some())
    }

    /// Discharges the bytes of a message that could not be queued or was taken back.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn discharge(&self, bytes: u32) {
        self.with_tally(|tally| match tally {
            Some(tally) => add(&tally.discharged, bytes),
            None => self.discharge_from_outside(bytes),
        });
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn with_tally<R>(&self, f: impl FnOnce(Option<&Tally>) -> R) -> R {
        scheduler::with_worker(|worker| match worker {
            Some(worker) if ptr::eq(worker.account.budget, self) => f(Some(&worker.account.tally)),
            _ => f(None),
        })
    }

    #[cold]
    fn charge_from_outside(&self, bytes: u32) {
        let before = self.guests.bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
        // The clock thread may be asleep, and does not check then: a message to a process whose
        // turn is suspended wakes no thread.
        if before / CHECK_BYTES != before.wrapping_add(u64::from(bytes)) / CHECK_BYTES {
            self.check();
        }
    }

    #[cold]
    fn discharge_from_outside(&self, bytes: u32) {
        self.guests.bytes.fetch_sub(u64::from(bytes), Ordering::Relaxed);
        if self.is_over() {
            self.check();
        }
    }

    /// Returns the number of bytes queued. Exact when nothing is being sent or handled.
    pub(crate) fn queued(&self) -> u64 {
        self.sum(&lock(&self.tallies))
    }

    fn sum(&self, tallies: &[Arc<Tally>]) -> u64 {
        let sum = |count: fn(&Tally) -> &AtomicU64| {
            // Acquires the charges that preceded the worker's count: a message it has handled was
            // charged.
            let counts = tallies.iter().map(|tally| count(tally).load(Ordering::Acquire));
            counts.fold(0_u64, u64::wrapping_add)
        };
        // Discharges are read first, so that the sum includes none without its charge.
        let discharged = sum(|tally| &tally.discharged);
        let charged =
            sum(|tally| &tally.charged).wrapping_add(self.guests.bytes.load(Ordering::Acquire));
        let queued = charged.wrapping_sub(discharged);
        // A guest may discharge a message that a worker charged. The two are not synchronized, so
        // the difference may be negative.
        if queued > i64::MAX as u64 { 0 } else { queued }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Forms the sum, and sets the flag if it is over the limit.
    pub(crate) fn check(&self) {
        // The flag is set under the lock, too, so that the last check determines it.
        let tallies = lock(&self.tallies);
        let over = self.sum(&tallies) > self.limit();
        let changes = over != self.is_over();
        if changes {
            self.over.store(over, Ordering::Relaxed);
        }
        drop(tallies);
        if changes {
            self.report(over);
        }
    }

    #[cold]
    fn report(&self, over: bool) {
        let events = lock(&self.events).clone();
        let Some(events) = events else { return };
        let limit = self.limit();
        if over {
            events.report(Level::WARN, "the mailbox budget is reached", "", move |what| {
                tracing::warn!(target: "throng::budget", limit, "{what}");
            });
        } else {
            events.report(Level::INFO, "there is mailbox budget again", "", move |what| {
                tracing::info!(target: "throng::budget", limit, "{what}");
            });
        }
    }
}

/// Adds to a count that only the calling thread writes.
#[cfg_attr(not(debug_assertions), inline(always))]
fn add(count: &AtomicU64, bytes: impl Into<u64>) {
    let sum = count.load(Ordering::Relaxed).wrapping_add(bytes.into());
    count.store(sum, Ordering::Release);
}

/// Discharges a message that was taken off the queue of the process whose token this worker holds.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn discharge_here(bytes: impl Into<u64>) {
    scheduler::with_worker(|worker| {
        debug_assert!(worker.is_some(), "only workers hold tokens");
        if let Some(worker) = worker {
            add(&worker.account.tally.discharged, bytes);
        }
    });
}

/// A worker's access to its runtime's budget.
pub(crate) struct Account {
    budget: &'static Budget,
    tally: Arc<Tally>,
}

impl Account {
    pub(crate) fn open(budget: &OwnBudget) -> Account {
        let tally = Arc::new(Tally::default());
        lock(&budget.tallies).push(tally.clone());
        Account { budget: budget.0, tally }
    }

    /// Charges the bytes of a user's message that is about to be queued, if the budget is this
    /// account's and not exceeded; otherwise charges nothing and returns false.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn charge_message(&self, budget: &Budget, bytes: u32) -> bool {
        let may_charge = ptr::eq(self.budget, budget) && !budget.is_over();
        if may_charge {
            add(&self.tally.charged, bytes);
        }
        may_charge
    }

    pub(crate) fn check_budget(&self) {
        self.budget.check();
    }

    /// Charges messages that the process run by this worker sends, or keeps for a later receive.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn charge(&self, bytes: u64) {
        add(&self.tally.charged, bytes);
    }

    /// Discharges messages that the process run by this worker could not send, or has kept and
    /// keeps no longer.
    pub(crate) fn discharge(&self, bytes: impl Into<u64>) {
        add(&self.tally.discharged, bytes);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut tallies = lock(&self.budget.tallies);
        tallies.retain(|tally| !Arc::ptr_eq(tally, &self.tally));
        let charged = self.tally.charged.load(Ordering::Relaxed);
        let discharged = self.tally.discharged.load(Ordering::Relaxed);
        self.budget.guests.bytes.fetch_add(charged.wrapping_sub(discharged), Ordering::AcqRel);
    }
}

/// Ownership of a budget by a runtime.
pub(crate) struct OwnBudget(&'static Budget);

impl OwnBudget {
    pub(crate) fn new(limit: u64, events: Arc<Events>) -> OwnBudget {
        let budget = lock(&POOL).pop().unwrap_or_else(|| {
            Box::leak(Box::new(Budget {
                over: AtomicBool::new(false),
                limit: AtomicU64::new(0),
                tallies: Mutex::new(Vec::new()),
                guests: Guests::default(),
                events: Mutex::new(None),
                drops: Drops::default(),
            }))
        });
        budget.limit.store(limit, Ordering::Relaxed);
        budget.over.store(false, Ordering::Relaxed);
        *lock(&budget.events) = Some(events);
        OwnBudget(budget)
    }

    pub(crate) fn get(&self) -> &'static Budget {
        self.0
    }
}

impl Deref for OwnBudget {
    type Target = Budget;

    fn deref(&self) -> &Budget {
        self.0
    }
}

impl Drop for OwnBudget {
    /// Puts the budget into the pool, unless a charge is left that no thread will take back.
    fn drop(&mut self) {
        *lock(&self.events) = None;
        self.drops.clear();
        if self.queued() == 0 {
            lock(&POOL).push(self.0);
        }
    }
}
