//! `timers`: a process that uses timers as time-outs: it starts N timers to itself, and cancels nearly all.
//!
//! ```text
//! driver    RSS │ go, wait until the process is done           │ wait until the last timer was due
//! process       │ start × live │ RSS │ cancel × live │ start × live │ cancel × live │ …
//!               ├─ start_ns ───┤     ├─ cancel_ns ───┤                  (the sums of all rounds)
//! ```
//!
//! - Every hundredth timer is not cancelled, and fires after 100 ms to `longest`: 100 ms + (607 k mod
//!   (`longest` − 99)) ms for the k-th of them. All others would fire after `seconds`.
//! - The process starts or cancels a hundred timers on a message, and then sends itself the next. So a timer
//!   that fires waits for a hundred operations at most, and work that a runtime leaves for later, or gives to
//!   other messages of the process, is done while a clock runs: the message after a round's last is what stops it.
//! - A lateness is the time from when a timer was due, by a clock that was read before it was started, until
//!   the process handles it. No timer may be early.
//! - The run ends `longest` after the last round, so with `seconds=1` it sees every cancelled timer that fires.
use std::collections::VecDeque;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::StreamExt;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::prelude::*;
use super::tally::Tally;
use crate::runtimes::throng::Throng;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => runtimes::throng::drive(settings, false, |Throng { runtime }, settings| {
            measure(async move || runtimes::throng::start_owner(&runtime), settings)
        }),
        "tokio" => runtimes::tokio::drive(settings, false, |settings| {
            measure(async || start_with_queue(), settings)
        }),
        "tokio-sleep" => runtimes::tokio::drive(settings, false, |settings| {
            measure(async || runtimes::tokio::start_owner(), settings)
        }),
        "actix" => runtimes::actix::drive(settings, 1, false, |_, settings| {
            measure(async || runtimes::actix::start_owner(), settings)
        }),
        "ractor" => runtimes::ractor::drive(settings, |_, settings| {
            measure(runtimes::ractor::start_owner, settings)
        }),
        _ => Err(runtimes::no_row(row)),
    }
}

/// Starts the process in tokio: a task that owns a `DelayQueue` of tokio-util.
fn start_with_queue() {
    let (myself, mut mailbox) = unbounded_channel();
    let _ = myself.send(());
    tokio::spawn(async move {
        let (mut owner, mut timers) = (Owner::new(), DelayQueue::new());
        loop {
            tokio::select! {
                Some(expired) = timers.next() => fire(expired.into_inner()),
                Some(()) = mailbox.recv() => {
                    if owner.slice(&mut timers) {
                        let _ = myself.send(());
                    }
                }
            }
        }
    });
}

impl Timers for DelayQueue<u64> {
    type Timer = Key;

    fn start(&mut self, delay: Duration, number: u64) -> Key {
        self.insert(number, delay)
    }

    fn cancel(&mut self, timer: Key) -> bool {
        self.try_remove(&timer).is_some()
    }
}

/// Number of timers that the process starts or cancels on a message; the last of them is not cancelled.
const SLICE: u64 = 100;

/// The message on which the process starts or cancels some timers; others are the numbers of timers that fire.
pub(crate) const SLICE_MESSAGE: u64 = u64::MAX;

/// Shortest delay of a timer that fires, in milliseconds.
const SHORTEST: u64 = 100;

/// Time that a cancelled timer has to fire after it was due, at the end of the run.
const GRACE: Duration = Duration::from_millis(20);

static DONE: Tally = Tally::new();
static FIRED: Tally = Tally::new();
static EARLY: Tally = Tally::new();
static AGAIN: Tally = Tally::new();
/// Timers that were cancelled before they fired, as far as the runtime tells.
static CANCELLED: Tally = Tally::new();
/// Timers that fired though they were to be cancelled.
static STRAY: Tally = Tally::new();
static SHARED: OnceLock<Shared> = OnceLock::new();

/// The data of the run. A static, so that no timer holds a pointer to it.
struct Shared {
    count: u64,
    live: u64,
    /// Delay of a timer that is cancelled.
    timeout: Duration,
    /// Longest delay of a timer that fires, in milliseconds.
    longest: u64,
    begun: Instant,
    /// For each timer that fires, the nanoseconds from the beginning until it is due.
    due: Vec<AtomicU64>,
    /// For each timer that fires, its lateness in nanoseconds.
    late: Vec<AtomicU64>,
    start_ns: AtomicU64,
    cancel_ns: AtomicU64,
    resident_before: OnceLock<io::Result<u64>>,
    /// Resident memory while the timers of the first round are armed.
    resident: OnceLock<io::Result<u64>>,
}

impl Shared {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}

fn shared() -> &'static Shared {
    SHARED.get_or_init(|| panic!("the driver sets it before it starts the process"))
}

fn fires(number: u64) -> bool {
    number % SLICE == SLICE - 1
}

/// Delay of a timer that fires, in milliseconds.
fn delay_of(number: u64, longest: u64) -> u64 {
    SHORTEST + number / SLICE * 607 % (longest.saturating_sub(SHORTEST) + 1)
}

fn sum_of_fires(count: u64) -> u64 {
    (0..count).filter(|&number| fires(number)).sum()
}

/// A runtime's timers of the process.
pub(crate) trait Timers {
    type Timer;

    fn start(&mut self, delay: Duration, number: u64) -> Self::Timer;

    /// Cancels a timer. Returns whether it had not fired; true if the runtime does not tell.
    fn cancel(&mut self, timer: Self::Timer) -> bool;
}

pub(crate) struct Owner<T> {
    phase: Phase,
    /// Number of timers that were started, and that will be when the round is.
    started: u64,
    end: u64,
    /// The timers that are to be cancelled, the oldest first.
    armed: VecDeque<T>,
    clock: Instant,
}

enum Phase {
    Idle,
    Start,
    Cancel,
}

impl<T> Owner<T> {
    pub(crate) fn new() -> Owner<T> {
        let armed = memory::resident_vec(shared().live as usize).into();
        Owner { phase: Phase::Idle, started: 0, end: 0, armed, clock: Instant::now() }
    }

    /// Starts or cancels some timers; called on each message that says so. Returns whether there will be more.
    pub(crate) fn slice(&mut self, timers: &mut impl Timers<Timer = T>) -> bool {
        let Shared { count, start_ns, cancel_ns, resident_before, resident, .. } = shared();
        let elapsed = self.clock.elapsed().as_nanos() as u64;
        match self.phase {
            Phase::Idle => {
                resident_before.get_or_init(memory::resident_bytes);
                self.begin(timers);
            }
            Phase::Start if self.started < self.end => self.start(timers),
            Phase::Start => {
                start_ns.fetch_add(elapsed, Ordering::Relaxed);
                resident.get_or_init(memory::resident_bytes);
                (self.phase, self.clock) = (Phase::Cancel, Instant::now());
                self.cancel(timers);
            }
            Phase::Cancel if !self.armed.is_empty() => self.cancel(timers),
            Phase::Cancel => {
                cancel_ns.fetch_add(elapsed, Ordering::Relaxed);
                if self.started == *count {
                    DONE.add(1);
                    return false;
                }
                self.begin(timers);
            }
        }
        true
    }

    fn begin(&mut self, timers: &mut impl Timers<Timer = T>) {
        let Shared { count, live, .. } = shared();
        self.end = (self.started + live).min(*count);
        (self.phase, self.clock) = (Phase::Start, Instant::now());
        self.start(timers);
    }

    fn start(&mut self, timers: &mut impl Timers<Timer = T>) {
        let Shared { timeout, longest, due, .. } = shared();
        let end = self.end.min(self.started + SLICE);
        for number in self.started..end {
            if fires(number) {
                let delay = Duration::from_millis(delay_of(number, *longest));
                let at = shared().now() + delay.as_nanos() as u64;
                due[(number / SLICE) as usize].store(at, Ordering::Relaxed);
                timers.start(delay, number);
            } else {
                self.armed.push_back(timers.start(*timeout, number));
            }
        }
        self.started = end;
    }

    fn cancel(&mut self, timers: &mut impl Timers<Timer = T>) {
        let some = self.armed.len().min(SLICE as usize);
        for timer in self.armed.drain(..some) {
            if timers.cancel(timer) {
                CANCELLED.add(1);
            }
        }
    }
}

/// Notes a timer that has fired; called when the process handles it.
pub(crate) fn fire(number: u64) {
    let Shared { due, late, .. } = shared();
    if !fires(number) {
        return STRAY.add(number);
    }
    let at = (number / SLICE) as usize;
    match shared().now().checked_sub(due[at].load(Ordering::Relaxed)) {
        Some(after) if late[at].swap(after, Ordering::Relaxed) != u64::MAX => AGAIN.add(number),
        Some(_) => {}
        None => EARLY.add(number),
    }
    FIRED.add(number);
}

/// Drives the workload: its order, clocks and checks. A runtime's `start` starts a process with an
/// [`Owner`], and sends it the first message.
async fn measure<F: Future<Output = ()>>(
    start: impl FnOnce() -> F,
    settings: Settings,
) -> Measured {
    let count = settings.count;
    let fire_count = count / SLICE;
    let numbers = |of| (0..fire_count).map(|_| AtomicU64::new(of)).collect();
    let shared = Shared {
        count,
        live: settings.get("live").min(count),
        timeout: Duration::from_secs(settings.get("seconds")),
        longest: settings.get("longest"),
        begun: Instant::now(),
        due: numbers(0),
        late: numbers(u64::MAX),
        start_ns: AtomicU64::new(0),
        cancel_ns: AtomicU64::new(0),
        resident_before: OnceLock::new(),
        resident: OnceLock::new(),
    };
    let shared = SHARED.get_or_init(|| shared);
    DONE.arm(1);
    FIRED.arm(fire_count);
    start().await;
    DONE.complete().await;
    let rest = Duration::from_millis(shared.longest) + GRACE;
    tokio::time::sleep(rest).await;
    if FIRED.count() < fire_count {
        FIRED.complete().await;
    }

    let late = shared.late.iter().map(|late| late.load(Ordering::Relaxed));
    // A timer that has not fired, or early, is missing in the checks.
    let latenesses = latency::of(late.filter(|late| *late != u64::MAX))?;
    let (before, resident) = (bytes(&shared.resident_before)?, bytes(&shared.resident)?);
    let cancels = count - fire_count;
    let sum = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
    let mut outcome = Outcome::default();
    outcome.metric("start_ns", sum(&shared.start_ns) / count as f64);
    outcome.metric("cancel_ns", sum(&shared.cancel_ns) / cancels.max(1) as f64);
    latency::report(&mut outcome, "late_", &latenesses);
    outcome.metric("bytes_per_timer", resident.saturating_sub(before) as f64 / shared.live as f64);
    outcome.check("ends of the process's work", DONE.count(), 1);
    outcome.check("timers that fired", FIRED.count(), fire_count);
    outcome.check("the sum of their numbers", FIRED.sum(), sum_of_fires(count));
    outcome.check("timers that fired again", AGAIN.count(), 0);
    outcome.check("timers that fired early", EARLY.count(), 0);
    outcome.check("timers that were cancelled", CANCELLED.count(), cancels);
    outcome.check("timers that fired though cancelled", STRAY.count(), 0);
    Ok(outcome)
}

fn bytes(reading: &OnceLock<io::Result<u64>>) -> io::Result<u64> {
    match reading.get() {
        Some(Ok(bytes)) => Ok(*bytes),
        Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
        None => Err(io::Error::other("the process has not read its memory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_evenly() {
        let mut delays: Vec<_> = (0..901).map(|fire| delay_of(fire * SLICE + 99, 1000)).collect();
        delays.sort_unstable();
        assert!(delays.into_iter().eq(100..=1000));
        assert_eq!(delay_of(12_399, 50), SHORTEST);
    }

    #[test]
    fn every_hundredth_timer_fires() {
        assert_eq!((0..250).filter(|&number| fires(number)).collect::<Vec<_>>(), [99, 199]);
        assert_eq!(sum_of_fires(250), 298);
    }
}
