//! Checkpoints: the frozen memtable is written to LMDB, on a thread of its own.
//!
//! ```text
//! writer ──▶ active ──freeze──▶ frozen ──write──▶ LMDB ──▶ release the older segments of the log
//!                                 in key order, in transactions of bounded size;
//!                                 the last one also has the point of the log
//! ```
//!
//! A crash between two transactions leaves LMDB with some changes after its point. The log has all
//! changes after the point, and each states an outcome. So a recovery that overlays them finds the same
//! state, whichever of them LMDB has already.
//!
//! The writer keeps pace with a checkpoint that is slower than the writes: once the active memtable is
//! [`BURST`] full, it fills no faster than LMDB takes the frozen one ([`Checkpoints::keep_pace`]). So the
//! writes behind it wait for milliseconds each, and not together for the rest of the checkpoint.
//!
//! Everything that needs LMDB complete (a load, a commit that found no room, the end of the store) writes
//! the memtables itself. The lock on the engine keeps the two apart.

pub(crate) mod worker;
pub(crate) mod write;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

/// The state that the writer, the checkpoint thread and the end of the store share.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    state: Mutex<State>,
    changed: Condvar,
    /// Number of changes that the checkpoint in progress has applied, and of all.
    applied: [AtomicUsize; 2],
    /// Number of checkpoints that are done, and the nanoseconds that they took.
    finished: [AtomicU64; 2],
    /// Wakes the checkpoints of a simulation, which have no thread.
    stepper: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the thread shall look for work.
    is_asked: bool,
    has_failed: bool,
    is_ended: bool,
}

/// Time after which a store without writes is written to LMDB, which frees the memory and makes reads
/// cheaper; also the time between two attempts after a failure.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// Share of the active memtable that fills at full speed while a checkpoint is in progress. A million random
/// changes of a hundred million keys are checkpointed in 15 s. Longest wait of a turn meanwhile, by this share:
///
/// | 0 | 1/4 | 1/2 | 3/4 | no pace |
/// |---|---|---|---|---|
/// | 1.3 s | 0.08 s | 0.10 s | 0.11 s | 2.7 s |
const BURST: f64 = 0.25;
/// Pause of a writer before it looks again how far the checkpoint is. The checkpoint of the table above applies
/// about 70 changes meanwhile, which is less than a group of a thousand turns in flight, so the writer is not
/// late by more than it would be with an exact wake.
const PACE: Duration = Duration::from_millis(1);

impl Checkpoints {
    /// Makes the thread look for a frozen memtable, or for an engine to reopen.
    pub(crate) fn ask(&self) {
        self.lock().is_asked = true;
        self.changed.notify_all();
        if let Some(stepper) = self.stepper.get() {
            stepper.wake_by_ref();
        }
    }

    /// Makes the writer wake the checkpoints of a simulation, by the first waker that is given.
    #[cfg(feature = "sim")]
    pub(crate) fn wakes(&self, stepper: Waker) {
        let _ = self.stepper.set(stepper);
    }

    /// Reports the outcome of a checkpoint to a writer that waits.
    pub(crate) fn report(&self, has_succeeded: bool) {
        self.lock().has_failed = !has_succeeded;
        self.changed.notify_all();
    }

    /// Waits until `is_done`, until a checkpoint fails, or until `is_hopeless`; returns whether it is
    /// done.
    pub(crate) fn wait(&self, is_done: impl Fn() -> bool, is_hopeless: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        state.has_failed = false;
        state.is_asked = true;
        self.changed.notify_all();
        loop {
            if is_done() {
                return true;
            }
            if state.has_failed || state.is_ended || is_hopeless() {
                return false;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits while the active memtable, of which a share is `full`, is ahead of the checkpoint in progress; until
    /// `is_over`, or until the checkpoint fails.
    pub(crate) fn keep_pace(&self, full: f64, is_over: impl Fn() -> bool) {
        let is_ahead = || full > BURST + (1.0 - BURST) * self.share_applied();
        while is_ahead() && !is_over() {
            let State { has_failed, is_ended, .. } = *self.lock();
            if has_failed || is_ended {
                return;
            }
            thread::sleep(PACE);
        }
    }

    /// Notes how many of a checkpoint's changes are applied.
    pub(crate) fn advance(&self, done: usize, all: usize) {
        // Relaxed: a share that mixes two checkpoints makes a group wait a millisecond more, or less.
        self.applied[0].store(done, Ordering::Relaxed);
        self.applied[1].store(all, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, took: Duration) {
        // Relaxed: the numbers guard no other data.
        self.finished[0].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.finished[1].fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the number of checkpoints that are done, and the time that they took.
    pub(crate) fn finished(&self) -> (u64, Duration) {
        // Relaxed: as in `count`.
        let [number, nanoseconds] = [0, 1].map(|at| self.finished[at].load(Ordering::Relaxed));
        (number, Duration::from_nanos(nanoseconds))
    }

    fn share_applied(&self) -> f64 {
        let [done, all] = [0, 1].map(|index| self.applied[index].load(Ordering::Relaxed) as f64);
        done / all.max(1.0)
    }

    /// Ends the thread after the checkpoint in progress.
    pub(crate) fn end(&self) {
        self.lock().is_ended = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.lock().is_ended
    }

    /// Waits until the thread is asked, or for a while; returns `false` at the end.
    pub(crate) fn sleep(&self) -> bool {
        let state = self.lock();
        let is_idle = |state: &mut State| !state.is_asked && !state.is_ended;
        let slept = self.changed.wait_timeout_while(state, IDLE, is_idle);
        let (mut state, _) = slept.unwrap_or_else(PoisonError::into_inner);
        state.is_asked = false;
        !state.is_ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Returns how often a writer looks whether the checkpoint is over, which ends at the tenth time. Before each
    /// time, a tenth of the checkpoint is applied.
    fn pauses(checkpoints: &Checkpoints, full: f64) -> usize {
        let looks = Cell::new(0);
        checkpoints.advance(0, 10);
        checkpoints.keep_pace(full, || {
            looks.set(looks.get() + 1);
            checkpoints.advance(looks.get(), 10);
            looks.get() == 10
        });
        looks.get()
    }

    #[test]
    fn a_writer_waits_while_it_is_ahead_of_the_checkpoint() {
        let checkpoints = Checkpoints::default();
        let filled = [0.0, BURST, BURST + 0.01, 0.76, 0.9, 1.0, 1.5];
        let waited = filled.map(|full| pauses(&checkpoints, full));
        assert_eq!(waited, [0, 0, 1, 7, 9, 10, 10]);
    }

    #[test]
    fn a_writer_keeps_no_pace_with_a_checkpoint_that_failed_or_ended() {
        let checkpoints = Checkpoints::default();
        checkpoints.report(false);
        assert_eq!(pauses(&checkpoints, 1.0), 1);
        checkpoints.report(true);
        assert_eq!(pauses(&checkpoints, 1.0), 10);
        checkpoints.end();
        assert_eq!(pauses(&checkpoints, 1.0), 1);
    }
}
