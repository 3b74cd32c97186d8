//! Calls to durable counters, and the checks of their values: the shared parts of all durable workloads.
//!
//! ```text
//! Home ── open ──► Counters ◄── add, read ── caller × inflight: the next call after the reply to the last
//!                     │                          └──► Acknowledged: of each counter the additions replied to
//!                     └──── close ──► the values stay, and a server has ended
//! ```
//!
//! - A counter is an entity, a row or the like with a `u64` as its state. Its key is the hash of its number, so counters
//!   that follow each other in number are at random places of a store.
//! - Every reply is checked. An addition or a read returns at least the additions that were acknowledged
//!   before the call; without additions at the same time a read returns exactly that number.
//! - A caller is a process of the runtime, or a task. The latency of a call includes the formatting of its key
//!   and the reading of the clock.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};

use crate::numbers::{below, rate, scattered};
use crate::outcome::Outcome;
use crate::tasks::Tasks;
use crate::{Error, disk, latency};

/// Number of calls in flight where none is measured: when counters are created, and when values are checked.
pub const PREPARING: u64 = 4_096;

/// Number of counters up to which a check reads all of them.
const CHECKED_MAX: u64 = 1_000_000;

/// Number of latencies that a caller keeps before it adds them to the shared histogram.
const BUFFERED: usize = 64;

/// A runtime and the place of its counters.
pub trait Home {
    /// The counters when they are open.
    type Counters: Counters;

    /// Opens the counters that were stored there, of which `live_max` may be live.
    fn open(&self, live_max: u64) -> impl Future<Output = Result<Self::Counters, Error>> + Send;
}

/// Open counters, each with the value 0 before its first addition.
pub trait Counters: Tasks + Clone {
    /// Adds 1 to a counter, and returns its value as soon as that is durable.
    fn add(&self, number: u64) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Returns the value of a counter, which is durable.
    fn read(&self, number: u64) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Returns the bytes that have been written so far by this program, and by a server that it has for the counters.
    ///
    /// # Errors
    /// If the kernel does not count them.
    fn written_bytes(&self) -> io::Result<u64> {
        disk::written_bytes("self")
    }

    /// Stops all counters, each of which has handled all calls. Their values stay.
    fn close(self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Number of reads in flight when all counters are read.
const READS: usize = 512;

/// Runs `serve` on open counters, then compares their values with those that are there when the counters were closed
/// and opened again.
///
/// # Errors
/// Errors of `serve` and of the counters.
pub async fn served<H: Home>(
    home: &H,
    count: u64,
    live_max: u64,
    serve: impl AsyncFnOnce(&H::Counters) -> Result<Outcome, Error>,
) -> Result<Outcome, Error> {
    let counters = home.open(live_max).await?;
    let mut outcome = serve(&counters).await?;
    let before = read_all(&counters, count).await?;
    counters.close().await?;

    let counters = home.open(live_max).await?;
    let after = read_all(&counters, count).await?;
    counters.close().await?;
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    outcome.check("counters that differ when opened again", changed as u64, 0);
    Ok(outcome)
}

async fn read_all<C: Counters>(counters: &C, count: u64) -> Result<Vec<u64>, Error> {
    let (mut values, mut reads) = (vec![0; count as usize], JoinSet::new());
    for number in 0..count {
        if reads.len() == READS {
            note(reads.join_next().await, &mut values)?;
        }
        let counters = counters.clone();
        reads.spawn(async move { (number, counters.read(number).await) });
    }
    while let Some(read) = reads.join_next().await {
        note(Some(read), &mut values)?;
    }
    return Ok(values);

    type Read = Result<(u64, Result<u64, Error>), JoinError>;
    fn note(read: Option<Read>, values: &mut [u64]) -> Result<(), Error> {
        if let Some(read) = read {
            let (number, value) = read?;
            values[number as usize] = value?;
        }
        Ok(())
    }
}

/// The counter that each call is made to.
#[derive(Clone)]
pub enum Order {
    /// The counter with the number of the call.
    Numbered,
    /// A random counter; the same seed gives the same counters.
    Random(u64),
    /// Each counter once, in random order, and then all of them again.
    Rounds,
    /// These counters, in order.
    Listed(Arc<[u64]>),
}

/// Step between the counters of [`Order::Rounds`]: a prime above any number of counters, so that each counter
/// comes up once in a round.
const STRIDE: u64 = 0xFFFF_FFFF_FFFF_FFC5;

impl Order {
    /// The counter of a call, of so many counters.
    #[inline]
    pub fn pick(&self, call: u64, counters: u64) -> u64 {
        match self {
            Order::Numbered => call % counters,
            Order::Random(seed) => below(scattered(call ^ scattered(*seed)), counters),
            Order::Rounds => (u128::from(call) * u128::from(STRIDE) % u128::from(counters)) as u64,
            Order::Listed(list) => list[call as usize % list.len()],
        }
    }
}

type OnReply = Arc<dyn Fn(u64) + Send + Sync>;

/// Calls that are made together.
#[derive(Clone)]
pub struct Calls {
    /// The counter of each.
    pub order: Order,
    /// Number of calls in flight.
    pub inflight: u64,
    /// Percentage of the calls that only read.
    pub reads: u64,
    /// Number of calls, unless they have a time.
    pub count: u64,
    /// Time after which no further call is made.
    pub time: Option<Duration>,
    /// Function that gets each counter whose addition was acknowledged.
    pub on_reply: Option<OnReply>,
}

impl Calls {
    /// Additions in an order: so many, or as many as are made in some seconds unless that is 0.
    pub fn adding(order: Order, inflight: u64, count: u64, seconds: u64) -> Calls {
        let count = if seconds > 0 { u64::MAX } else { count };
        let time = (seconds > 0).then(|| Duration::from_secs(seconds));
        Calls { order, inflight, reads: 0, count, time, on_reply: None }
    }

    /// An addition to each counter.
    pub fn creating(counters: u64) -> Calls {
        Calls { reads: 0, ..Calls::reading(Order::Numbered, counters) }
    }

    fn reading(order: Order, count: u64) -> Calls {
        Calls { order, inflight: PREPARING, reads: 100, count, time: None, on_reply: None }
    }
}

/// Number of acknowledged additions to each counter.
pub struct Acknowledged {
    additions: Vec<AtomicU32>,
    /// Number of further additions to a counter that may have been made, without a reply.
    unknown: HashMap<u64, u32>,
}

impl Acknowledged {
    /// The same number of additions to each of the counters, in memory that is resident.
    pub fn all(counters: u64, additions: u32) -> Acknowledged {
        let additions = (0..counters).map(|_| AtomicU32::new(additions)).collect();
        Acknowledged { additions, unknown: HashMap::new() }
    }

    /// Adds an addition of which only the call is known, not the outcome.
    pub fn add_unknown(&mut self, number: u64) {
        *self.unknown.entry(number).or_default() += 1;
    }

    /// Turns an unknown addition into an acknowledged addition.
    pub fn acknowledge(&mut self, number: u64) {
        self.additions[number as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(unknown) = self.unknown.get_mut(&number) {
            *unknown = unknown.saturating_sub(1);
        }
    }

    /// Returns the number of counters.
    pub fn counters(&self) -> u64 {
        self.additions.len() as u64
    }

    fn of(&self, number: u64) -> u64 {
        // Relaxed: a caller compares with its own reply only.
        self.additions[number as usize].load(Ordering::Relaxed).into()
    }

    fn unknown(&self, number: u64) -> u64 {
        self.unknown.get(&number).copied().unwrap_or(0).into()
    }
}

/// The replies to calls that were made together.
pub struct Replies {
    /// Number of replies.
    pub count: u64,
    /// Number of replies with an impossible value.
    pub wrong: u64,
    /// Time of all calls together.
    pub time: Duration,
    latencies: Histogram<u64>,
}

impl Replies {
    /// Returns the latencies of the calls, in nanoseconds.
    pub fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }

    /// Adds the rate under a name, and the percentiles, to an outcome.
    pub fn report(&self, outcome: &mut Outcome, name: &str) {
        outcome.metric(name, rate(self.count, self.time));
        latency::report(outcome, "", &self.latencies);
    }
}

struct Calling<C> {
    counters: C,
    calls: Calls,
    acknowledged: Arc<Acknowledged>,
    begun: Instant,
    next: AtomicU64,
    replies: Mutex<Replies>,
}

/// Makes calls, each of a caller after the reply to its last.
///
/// # Errors
/// The first error of a call.
pub async fn call_all<C: Counters>(
    counters: &C,
    calls: Calls,
    acknowledged: &Arc<Acknowledged>,
) -> Result<Replies, Error> {
    let callers = calls.inflight.min(calls.count);
    let replies =
        Replies { count: 0, wrong: 0, time: Duration::ZERO, latencies: latency::histogram()? };
    let calling = Arc::new(Calling {
        counters: counters.clone(),
        calls,
        acknowledged: acknowledged.clone(),
        begun: Instant::now(),
        next: AtomicU64::new(0),
        replies: Mutex::new(replies),
    });
    let mut ends = Vec::with_capacity(callers as usize);
    for _ in 0..callers {
        let (done, end) = oneshot::channel();
        let caller = calling.clone();
        counters.start(async move {
            let result = caller.call_in_turn().await;
            // The counters can be closed only when no caller has them any more.
            drop(caller);
            let _ = done.send(result);
        });
        ends.push(end);
    }
    for end in ends {
        end.await.map_err(|_| "a caller died")??;
    }
    let time = calling.begun.elapsed();
    let calling = Arc::into_inner(calling).ok_or("a caller goes on")?;
    let replies = calling.replies.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Replies { time, ..replies })
}

impl<C: Counters> Calling<C> {
    async fn call_in_turn(&self) -> Result<(), Error> {
        let mut latencies = Vec::with_capacity(BUFFERED);
        let mut wrong = 0;
        while let Some(call) = self.next_call() {
            let number = self.calls.order.pick(call, self.acknowledged.counters());
            let is_read = below(scattered(!call), 100) < self.calls.reads;
            let before = self.acknowledged.of(number);
            let clock = Instant::now();
            let value = if is_read {
                self.counters.read(number).await
            } else {
                self.counters.add(number).await
            };
            latencies.push(clock.elapsed().as_nanos() as u64);
            wrong += u64::from(!self.is_right(number, is_read, before, value?));
            if latencies.len() == BUFFERED {
                self.record(&mut latencies, &mut wrong);
            }
        }
        self.record(&mut latencies, &mut wrong);
        Ok(())
    }

    fn next_call(&self) -> Option<u64> {
        if self.calls.time.is_some_and(|time| self.begun.elapsed() >= time) {
            return None;
        }
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        (call < self.calls.count).then_some(call)
    }

    /// Whether a value is possible; counts an addition as acknowledged.
    fn is_right(&self, number: u64, is_read: bool, before: u64, value: u64) -> bool {
        if !is_read {
            self.acknowledged.additions[number as usize].fetch_add(1, Ordering::Relaxed);
            if let Some(on_reply) = &self.calls.on_reply {
                on_reply(number);
            }
            return value > before;
        }
        let most = match self.calls.reads {
            100 => before + self.acknowledged.unknown(number),
            _ => u64::MAX,
        };
        (before..=most).contains(&value)
    }

    fn record(&self, latencies: &mut Vec<u64>, wrong: &mut u64) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.count += latencies.len() as u64;
        replies.wrong += std::mem::take(wrong);
        for latency in latencies.drain(..) {
            replies.latencies.saturating_record(latency);
        }
    }
}

/// Reads all counters or, of more than a million, `sample` of them at random, and checks the values.
pub async fn check_values(
    counters: &impl Counters,
    acknowledged: &Arc<Acknowledged>,
    sample: u64,
    moment: &str,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let all = acknowledged.counters();
    let number = if all <= CHECKED_MAX { all } else { sample };
    check_listed(counters, acknowledged, Calls::reading(Order::Rounds, number), moment, outcome)
        .await
}

/// Reads `count` random counters, each once, and checks the values.
pub async fn check_sample(
    counters: &impl Counters,
    acknowledged: &Arc<Acknowledged>,
    count: u64,
    moment: &str,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let calls = Calls::reading(Order::Rounds, count.min(acknowledged.counters()));
    check_listed(counters, acknowledged, calls, moment, outcome).await
}

/// Reads the counters whose additions have an unknown outcome, and checks the values.
pub async fn check_unknown(
    counters: &impl Counters,
    acknowledged: &Arc<Acknowledged>,
    moment: &str,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let listed: Arc<[u64]> = acknowledged.unknown.keys().copied().collect();
    let count = listed.len() as u64;
    let calls = Calls::reading(Order::Listed(listed), count);
    check_listed(counters, acknowledged, calls, moment, outcome).await
}

async fn check_listed(
    counters: &impl Counters,
    acknowledged: &Arc<Acknowledged>,
    calls: Calls,
    moment: &str,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let due = calls.count;
    let replies = call_all(counters, calls, acknowledged).await?;
    outcome.check(&format!("counters read {moment}"), replies.count, due);
    outcome.check(&format!("wrong counters {moment}"), replies.wrong, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Counters in memory, of which the counter 0 forgets every second addition if `forgets`.
    #[derive(Clone)]
    struct Fake {
        values: Arc<Vec<AtomicU64>>,
        forgets: bool,
    }

    impl Tasks for Fake {}

    impl Counters for Fake {
        async fn add(&self, number: u64) -> Result<u64, Error> {
            let value = self.values[number as usize].fetch_add(1, Ordering::SeqCst) + 1;
            if self.forgets && number == 0 && value == 2 {
                self.values[0].store(1, Ordering::SeqCst);
            }
            Ok(value)
        }

        async fn read(&self, number: u64) -> Result<u64, Error> {
            Ok(self.values[number as usize].load(Ordering::SeqCst))
        }

        async fn close(self) -> Result<(), Error> {
            Ok(())
        }
    }

    /// Adds to ten counters a hundred times, with the counts of `prepare` before; returns the failed checks.
    fn failures(forgets: bool, prepare: impl FnOnce(&Fake, &mut Acknowledged)) -> usize {
        let values = Arc::new((0..10).map(|_| AtomicU64::new(0)).collect());
        let (fake, mut acknowledged) = (Fake { values, forgets }, Acknowledged::all(10, 0));
        prepare(&fake, &mut acknowledged);
        let calls = Calls { count: 100, inflight: 7, ..Calls::creating(10) };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let work = async {
            let (acknowledged, mut outcome) = (Arc::new(acknowledged), Outcome::default());
            let replies = call_all(&fake, calls, &acknowledged).await?;
            outcome.check("replies", replies.count, 100);
            outcome.check("wrong replies", replies.wrong, 0);
            check_values(&fake, &acknowledged, 10, "after it", &mut outcome).await?;
            check_unknown(&fake, &acknowledged, "after it", &mut outcome).await?;
            Ok::<_, Error>(outcome.into_line("0", 1).failures.len())
        };
        runtime.expect("it starts").block_on(work).expect("no call fails")
    }

    #[test]
    fn a_lost_addition_fails_the_checks() {
        assert_eq!(failures(false, |_, _| ()), 0);
        assert_ne!(failures(true, |_, _| ()), 0);
    }

    #[test]
    fn an_addition_with_an_unknown_outcome_may_be_kept_once() {
        for (kept, failed) in [(0, false), (1, false), (2, true)] {
            let failures = failures(false, |fake, acknowledged| {
                acknowledged.add_unknown(3);
                fake.values[3].store(kept, Ordering::SeqCst);
            });
            assert_eq!(failures > 0, failed, "{kept}");
        }
        // An addition that was acknowledged must be there.
        let lost = failures(false, |_, acknowledged| {
            acknowledged.add_unknown(3);
            acknowledged.acknowledge(3);
        });
        assert_ne!(lost, 0);
    }

    #[test]
    fn each_counter_comes_up_once_in_a_round() {
        for counters in [1, 2, 10, 4_096, 99_999] {
            let picks = |round: u64| {
                (round * counters..(round + 1) * counters)
                    .map(|call| Order::Rounds.pick(call, counters))
                    .collect::<HashSet<_>>()
            };
            assert_eq!(picks(0).len() as u64, counters);
            assert_eq!(picks(0), picks(1));
        }
    }

    #[test]
    fn random_picks_are_below_the_number_of_counters() {
        for counters in [1, 3, 1_000] {
            assert!((0..1_000).all(|call| Order::Random(1).pick(call, counters) < counters));
        }
    }
}
