//! Counts by kind of process, for [`KindMetrics`](crate::KindMetrics), if the runtime keeps them.
//!
//! ```text
//! run of a process:  begin ──▶ turns ──▶ end ──▶ counts of this worker for this kind
//!                    └─ in one run of 64 ─┘
//!                       the clock is read
//! ```
//!
//! A turn takes some 25 ns, and reading the clock takes as long. So the turns are added up at the end of a
//! run, where the worker counts them anyway, and only a random run in [`RUNS_PER_SAMPLE`] is timed; its time
//! is multiplied by [`RUNS_PER_SAMPLE`]. A run that is long by the coarse clock is counted once, with the
//! time of that clock.
//!
//! Invariants:
//! 1. One thread at a time writes counts: the worker its own, and the threads outside of the workers under
//!    the lock of `guest_slots`. So counts are written by plain stores.
//! 2. No cache line holds counts of two workers.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

/// Number of kinds in a chunk of counts.
const CHUNK: usize = 16;
pub(crate) const KINDS_MOST: usize = 4096;
/// Mean number of runs for each run that is timed.
const RUNS_PER_SAMPLE: u32 = 64;
/// Minimum length of a long run, in ticks of the coarse clock: milliseconds.
const LONG: u32 = 8;

/// Number of a kind of process in its runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindNumber(u32);

impl KindNumber {
    /// Returns the number of the kind with this index, from 0, in its runtime.
    pub(crate) fn new(index: usize) -> KindNumber {
        KindNumber(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

#[derive(Default)]
pub(crate) struct Counts {
    turns: AtomicU64,
    spawned: AtomicU64,
    exited: AtomicU64,
    panicked: AtomicU64,
    busy_nanoseconds: AtomicU64,
}

/// Adds to a count that no other thread writes.
fn add(count: &AtomicU64, number: u64, order: Ordering) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(number), order);
}

impl Counts {
    pub(crate) fn count_spawn(&self) {
        add(&self.spawned, 1, Ordering::Release);
    }

    pub(crate) fn count_exit(&self) {
        add(&self.exited, 1, Ordering::Release);
    }

    pub(crate) fn count_panic(&self) {
        add(&self.panicked, 1, Ordering::Relaxed);
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Number of processes that have exited. Read it before [`spawned`](Self::spawned), so that no exit is
    /// read without its own spawn.
    pub(crate) fn exited(&self) -> u64 {
        self.exited.load(Ordering::Acquire)
    }

    pub(crate) fn spawned(&self) -> u64 {
        self.spawned.load(Ordering::Acquire)
    }

    pub(crate) fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanoseconds.load(Ordering::Relaxed))
    }
}

/// Counts by kind of process, of a worker or of the threads outside of the workers.
pub(crate) struct KindCounts(Box<[OnceLock<Box<Chunk>>]>);

#[derive(Default)]
#[repr(align(128))]
struct Chunk([Counts; CHUNK]);

impl KindCounts {
    pub(crate) fn new() -> KindCounts {
        KindCounts((0..KINDS_MOST / CHUNK).map(|_| OnceLock::new()).collect())
    }

    /// Returns the counts of a kind to the writer; `None` if there are too many kinds.
    pub(crate) fn of(&self, KindNumber(kind): KindNumber) -> Option<&Counts> {
        let chunk = self.0.get(kind as usize / CHUNK)?;
        chunk.get_or_init(Box::default).0.get(kind as usize % CHUNK)
    }

    /// Returns the counts of a kind to a reader; `None` if the writer has counted nothing in the kind's chunk.
    pub(crate) fn read(&self, KindNumber(kind): KindNumber) -> Option<&Counts> {
        self.0.get(kind as usize / CHUNK)?.get()?.0.get(kind as usize % CHUNK)
    }
}

/// The current run of a worker, which it counts.
pub(crate) struct KindRun {
    kind: Cell<KindNumber>,
    /// Number of runs until the next run that is timed.
    runs_left: Cell<u32>,
    /// State of the random generator for `runs_left`.
    random: Cell<u32>,
    /// Time at which the current run began, if the run is timed.
    began: Cell<Option<Duration>>,
}

impl KindRun {
    pub(crate) fn new(worker: usize) -> KindRun {
        let run = KindRun {
            kind: Cell::new(KindNumber(u32::MAX)),
            runs_left: Cell::new(0),
            random: Cell::new(KindNumber::new(worker).0.wrapping_add(1)),
            began: Cell::new(None),
        };
        run.runs_left.set(run.gap());
        run
    }

    /// Returns a random number of runs until the next timed run. With a fixed number, processes that run
    /// alternately would be timed always or never.
    fn gap(&self) -> u32 {
        // A linear congruential generator (Numerical Recipes); its high bits are the good ones.
        let random = self.random.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random.set(random);
        1 + (random >> 8) % (2 * RUNS_PER_SAMPLE - 1)
    }

    #[inline(never)]
    pub(crate) fn begin(&self, kind: KindNumber, now: impl FnOnce() -> Duration) {
        self.kind.set(kind);
        let left = self.runs_left.get() - 1;
        self.runs_left.set(left);
        if left == 0 {
            self.runs_left.set(self.gap());
            self.began.set(Some(now()));
        }
    }

    #[inline(never)]
    pub(crate) fn end(
        &self,
        counts: &KindCounts,
        turns: u32,
        ticks: u32,
        now: impl FnOnce() -> Duration,
    ) {
        let began = self.began.take();
        let Some(counts) = counts.of(self.kind.get()) else { return };
        add(&counts.turns, turns.into(), Ordering::Relaxed);
        let busy = match began {
            _ if ticks >= LONG => Duration::from_millis(ticks.into()),
            Some(began) => now().saturating_sub(began) * RUNS_PER_SAMPLE,
            None => return,
        };
        let nanoseconds = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        add(&counts.busy_nanoseconds, nanoseconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts `runs` of each of these kinds, one after the other, on a clock that only they
    /// advance. Returns the busy times.
    fn busy_after<const N: usize>(runs: u32, times: [Duration; N]) -> [Duration; N] {
        let (run, counts) = (KindRun::new(0), KindCounts::new());
        let now = Cell::new(Duration::ZERO);
        for _ in 0..runs {
            for (kind, time) in times.iter().enumerate() {
                run.begin(KindNumber::new(kind), || now.get());
                now.set(now.get() + *time);
                run.end(&counts, 1, time.as_millis() as u32, || now.get());
            }
        }
        std::array::from_fn(|kind| {
            let counts = counts.read(KindNumber::new(kind)).expect("was counted");
            assert_eq!(counts.turns(), runs.into());
            counts.busy()
        })
    }

    #[test]
    fn the_estimate_of_the_busy_time_is_as_exact_as_the_documentation_says() {
        let times = [10, 20, 1, 500].map(Duration::from_micros);
        for runs in [10_000, 100_000, 1_000_000] {
            for (busy, time) in busy_after(runs, times).into_iter().zip(times) {
                let exact = time.as_secs_f64() * f64::from(runs);
                let error = (busy.as_secs_f64() - exact).abs() / exact;
                assert!(error < 3.0 * 8.0 / f64::from(runs).sqrt(), "{runs}: {error}");
            }
        }
    }

    #[test]
    fn a_long_run_is_counted_exactly() {
        let times = [Duration::from_millis(20), Duration::from_nanos(20)];
        let [long, _] = busy_after(10, times);
        assert_eq!(long, Duration::from_millis(200));
    }

    #[test]
    fn kinds_beyond_the_maximum_are_not_counted() {
        let counts = KindCounts::new();
        assert!(counts.of(KindNumber::new(KINDS_MOST - 1)).is_some());
        assert!(counts.of(KindNumber::new(KINDS_MOST)).is_none());
        assert!(counts.of(KindNumber::new(usize::MAX)).is_none());
        assert!(counts.read(KindNumber::new(0)).is_none());
    }
}
