//! The steps and checks of `durable-turns`, with the definitions of bench/src/workloads/durable_turns.rs.
//!
//! ```text
//! Home ── open ──► Counters ◄── add, read ── caller × inflight: the next call after the reply to the last
//!                     │    └──► Group: the calls that wait ──► Ledger: one commit ──► disk
//!                     └──── close ──► the values stay, and a server has ended
//! ```
//!
//! - A counter has a key of twenty digits, the hash of its number, and the value 0 before its first addition.
//! - Every reply is checked against the additions that were acknowledged before the call, and so are the values of all
//!   counters, before and after everything is closed and opened again.

mod disk;
mod group;
mod postgres;
mod redis;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use self::disk::{Written, disk_bytes};
use crate::outcome::{Outcome, histogram};
use crate::server::Server;
use crate::{Error, Settings};

/// Number of calls in flight where none is measured: when counters are created, and when values are checked.
const PREPARING: u64 = 4_096;

/// Number of counters up to which a check reads all of them, and number of those that it reads otherwise.
const CHECKED_MAX: u64 = 1_000_000;
const SAMPLE: u64 = 100_000;

/// Number of latencies that a caller keeps before it adds them to the shared histogram.
const BUFFERED: usize = 64;

/// Step between the counters of [`Order::Rounds`]: a prime above any number of counters.
const STRIDE: u64 = 0xFFFF_FFFF_FFFF_FFC5;

type Key = [u8; 20];

/// The place of counters.
trait Home {
    type Counters: Counters;

    /// Opens the counters that were stored there.
    fn open(&self) -> impl Future<Output = Result<Self::Counters, Error>>;

    /// Returns the version of the database.
    fn version(&self) -> Result<String, Error>;
}

/// Open counters.
trait Counters: Send + Sync + 'static {
    /// Adds 1 to a counter, and returns its value as soon as that is on the disk.
    fn add(&self, number: u64) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Returns the value of a counter, which is on the disk.
    fn read(&self, number: u64) -> impl Future<Output = Result<u64, Error>> + Send;

    /// The server that holds the counters, if this program does not.
    fn server(&self) -> Option<&Server> {
        None
    }

    fn close(self) -> impl Future<Output = Result<(), Error>>;
}

/// Hashes a number with splitmix64.
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

fn key(number: u64) -> Key {
    let (mut digits, mut rest) = ([b'0'; 20], scattered(number));
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// The counter that each call is made to.
#[derive(Clone, Copy)]
enum Order {
    Numbered,
    Random,
    /// Each counter once, in random order, and then all of them again.
    Rounds,
}

impl Order {
    fn pick(self, call: u64, counters: u64) -> u64 {
        match self {
            Order::Numbered => call % counters,
            Order::Random => below(scattered(call ^ scattered(1)), counters),
            Order::Rounds => (u128::from(call) * u128::from(STRIDE) % u128::from(counters)) as u64,
        }
    }
}

#[derive(Clone, Copy)]
struct Calls {
    order: Order,
    inflight: u64,
    /// Percentage of the calls that only read.
    reads: u64,
    count: u64,
    /// Time after which no further call is made.
    time: Option<Duration>,
}

struct Replies {
    count: u64,
    wrong: u64,
    time: Duration,
    latencies: Histogram<u64>,
}

/// The state that callers share.
struct Calling<C> {
    counters: Arc<C>,
    /// Number of acknowledged additions to each counter.
    additions: Arc<[AtomicU32]>,
    calls: Calls,
    begun: Instant,
    next: AtomicU64,
    replies: Mutex<Replies>,
}

/// Counters with the additions that were acknowledged.
struct Run<C> {
    counters: Arc<C>,
    additions: Arc<[AtomicU32]>,
}

impl<C: Counters> Run<C> {
    async fn call_all(&self, calls: Calls) -> Result<Replies, Error> {
        let latencies = histogram()?;
        let calling = Arc::new(Calling {
            counters: self.counters.clone(),
            additions: self.additions.clone(),
            calls,
            begun: Instant::now(),
            next: AtomicU64::new(0),
            replies: Mutex::new(Replies { count: 0, wrong: 0, time: Duration::ZERO, latencies }),
        });
        let caller = |_| {
            let calling = calling.clone();
            tokio::spawn(async move { calling.call_in_turn().await })
        };
        let callers: Vec<_> = (0..calls.inflight.min(calls.count)).map(caller).collect();
        for caller in callers {
            caller.await??;
        }
        let time = calling.begun.elapsed();
        let calling = Arc::into_inner(calling).ok_or("a caller goes on")?;
        let replies = calling.replies.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Replies { time, ..replies })
    }

    /// Reads all counters, or a sample of very many, and checks the values.
    async fn check(&self, moment: &str, outcome: &mut Outcome) -> Result<(), Error> {
        let all = self.additions.len() as u64;
        let count = if all <= CHECKED_MAX { all } else { SAMPLE };
        let (order, inflight) = (Order::Rounds, PREPARING);
        let calls = Calls { order, inflight, reads: 100, count, time: None };
        let replies = self.call_all(calls).await?;
        outcome.check(&format!("counters read {moment}"), replies.count, count);
        outcome.check(&format!("wrong counters {moment}"), replies.wrong, 0);
        Ok(())
    }

    async fn close(self) -> Result<(), Error> {
        Arc::into_inner(self.counters).ok_or("the counters are in use")?.close().await
    }
}

impl<C: Counters> Calling<C> {
    async fn call_in_turn(&self) -> Result<(), Error> {
        let (mut latencies, mut wrong) = (Vec::with_capacity(BUFFERED), 0);
        while let Some(call) = self.next_call() {
            let number = self.calls.order.pick(call, self.additions.len() as u64);
            let is_read = below(scattered(!call), 100) < self.calls.reads;
            // Relaxed: a caller compares with its own reply only.
            let before = u64::from(self.additions[number as usize].load(Ordering::Relaxed));
            let clock = Instant::now();
            let value = match is_read {
                true => self.counters.read(number).await?,
                false => self.counters.add(number).await?,
            };
            latencies.push(clock.elapsed().as_nanos() as u64);
            let is_right = match is_read {
                true if self.calls.reads == 100 => value == before,
                true => value >= before,
                false => value > before,
            };
            wrong += u64::from(!is_right);
            if !is_read {
                self.additions[number as usize].fetch_add(1, Ordering::Relaxed);
            }
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

    fn record(&self, latencies: &mut Vec<u64>, wrong: &mut u64) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.count += latencies.len() as u64;
        replies.wrong += std::mem::take(wrong);
        for latency in latencies.drain(..) {
            replies.latencies.saturating_record(latency);
        }
    }
}

/// Runs the workload on the row; returns its outcome and the version of the database.
pub(crate) async fn run(path: &Path, settings: &Settings) -> Result<(Outcome, String), Error> {
    match settings.row.as_str() {
        "redis" => measure(&redis::Home { path }, path, settings).await,
        "postgres-rows" => measure(&postgres::Rows { path }, path, settings).await,
        "postgres-calls" => measure(&postgres::Calls { path }, path, settings).await,
        "sqlite-writer" => {
            let (file, workers) = (&path.join("data.sqlite"), settings.workers);
            measure(&sqlite::Home { file, workers }, path, settings).await
        }
        #[cfg(feature = "rocksdb")]
        "rocksdb" => measure(&rocksdb::Home { path }, path, settings).await,
        row => Err(format!("{row} has no counters in this build").into()),
    }
}

async fn measure(
    home: &impl Home,
    path: &Path,
    settings: &Settings,
) -> Result<(Outcome, String), Error> {
    let (entities, seconds) = (settings.get("entities")?, settings.get("seconds")?);
    let additions: Arc<[AtomicU32]> = (0..entities).map(|_| AtomicU32::new(0)).collect();
    let opened = async || {
        let counters = Arc::new(home.open().await?);
        Ok::<_, Error>(Run { counters, additions: additions.clone() })
    };
    let run = opened().await?;
    let (order, inflight) = (Order::Numbered, PREPARING);
    let creating = Calls { order, inflight, reads: 0, count: entities, time: None };
    let created = run.call_all(creating).await?;

    let written = Written::by(run.counters.server(), path)?;
    let calls = Calls {
        order: Order::Random,
        inflight: settings.get("inflight")?,
        reads: settings.get("reads")?,
        count: if seconds > 0 { u64::MAX } else { settings.count },
        time: (seconds > 0).then(|| Duration::from_secs(seconds)),
    };
    let turns = run.call_all(calls).await?;

    let mut outcome = Outcome::default();
    run.check("after the run", &mut outcome).await?;
    run.close().await?;
    let written = Written::by(None, path)?.since(&written);
    let disk = disk_bytes(path)?;
    let reopened = opened().await?;
    reopened.check("when opened again", &mut outcome).await?;
    reopened.close().await?;

    outcome.rate("turns_per_s", turns.count, turns.time);
    outcome.latencies(&turns.latencies);
    let per_turn = |bytes| bytes as f64 / turns.count.max(1) as f64;
    outcome.metric("written_bytes_per_turn", per_turn(written.process));
    outcome.metric("device_bytes_per_turn", per_turn(written.device));
    outcome.metric("disk_bytes_per_entity", disk as f64 / entities as f64);
    outcome.check("counters created", created.count, entities);
    if seconds == 0 {
        outcome.check("turns", turns.count, settings.count);
    }
    outcome.check("wrong replies", created.wrong + turns.wrong, 0);
    Ok((outcome, home.version()?))
}
