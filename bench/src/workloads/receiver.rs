//! A receiver: a process that receives numbers and sends numbers to other receivers. `pairs`,
//! `ring`, `fan`, `burst` and `fairness` consist of receivers.
//!
//! A [`Receiver`] is the workload's part of the process. A [`ReceiverHost`] starts such processes
//! and sends to them on a runtime; each file below has the host of a runtime.

pub(super) mod actix;
pub(super) mod kameo;
pub(super) mod ractor;
pub(super) mod smol;
pub(super) mod threads;
pub(super) mod throng;
pub(super) mod tokio;

use std::sync::atomic::{AtomicU64, Ordering};

use ::tokio::sync::Semaphore;

use crate::outcome::Outcome;

/// The state and the handler of a process that receives numbers.
pub(super) trait Receiver: Send + Unpin + 'static {
    /// Handles a number.
    fn receive(&mut self, value: u64);

    /// Returns the latch at which the process waits before it takes its next number, if any.
    fn latch(&self) -> Option<&'static Latch> {
        None
    }
}

/// A runtime's means to run receivers; used in a process of the runtime, or outside where the
/// workload says so.
pub(super) trait ReceiverHost: Send + Sync + 'static {
    /// The address of a receiver.
    type Mailbox<R: Receiver>: Clone + Send + Sync + Unpin + 'static;

    /// Starts `count` receivers that may send to each other: `make` creates the receiver of an
    /// index, given the addresses of all.
    fn start_receivers<R: Receiver>(
        &self,
        count: u64,
        make: impl FnMut(usize, &[Self::Mailbox<R>]) -> R + Send,
    ) -> impl Future<Output = Vec<Self::Mailbox<R>>> + Send;

    /// Sends a number to a receiver, without waiting. A number that is not accepted is missing in
    /// the counts that the workload checks.
    fn send<R: Receiver>(to: &Self::Mailbox<R>, value: u64);
}

static MISPLACED: AtomicU64 = AtomicU64::new(0);

/// The order in which a receiver must receive its numbers: each greater than the previous number
/// by the same step.
pub(super) struct Order {
    due: u64,
    step: u64,
}

impl Order {
    pub(super) fn new(first: u64, step: u64) -> Self {
        Self { due: first, step }
    }

    /// Notes a number that was received; returns the number that must be received next.
    pub(super) fn note(&mut self, value: u64) -> u64 {
        if value != self.due {
            MISPLACED.fetch_add(1, Ordering::Relaxed);
        }
        self.due = value.wrapping_add(self.step);
        self.due
    }

    /// Checks that no receiver has received a number in the wrong order.
    pub(super) fn check(outcome: &mut Outcome) {
        let misplaced = MISPLACED.load(Ordering::Relaxed);
        outcome.check("messages received in the wrong order", misplaced, 0);
    }
}

/// A latch at which processes wait until it is opened, once and for all.
pub(super) struct Latch(Semaphore);

impl Latch {
    pub(super) const fn closed() -> Self {
        Self(Semaphore::const_new(0))
    }

    /// Waits until the latch is open.
    pub(super) async fn wait(&self) {
        // Without permits, the only end of this wait is that `open` closes the semaphore.
        let _ = self.0.acquire().await;
    }

    pub(super) fn open(&self) {
        self.0.close();
    }
}
