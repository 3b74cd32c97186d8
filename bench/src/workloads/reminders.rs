//! `reminders`: messages that entities send to themselves at a later time: their room, and how soon they come.
//!
//! ```text
//! set N for next month │ all at rest │ `settle` │ memory │ close │ disk   each in a directory of its own
//! N without a reminder │ all at rest │                   │ close │ disk
//! set `due` for one instant │ all at rest │ that instant … │ the last is on the disk
//!                                         ├── due_per_s ───┤
//! set `paced`, `pace` a second from an instant on │ all at rest │ they come │ close, open │ check
//! ```
//!
//! - Each reminder is that of an entity of its own. A call changes the entity's state and sets the reminder.
//! - The bytes on the disk are the blocks of all files after the node was closed, less those of a node with the same
//!   entities without reminders, divided by N. The bytes of memory are the growth of anonymous memory since the first
//!   node was opened, divided by N.
//! - The entities are out of memory when their reminders are due, as those of reminders mostly are.
//! - The percentiles are of the paced reminders: from the time for which a reminder was set until its handler runs.
//! - Each due reminder must have come once, none before its time, and be gone when all was opened again. Those of next
//!   month must be set then.

use std::future::ready;
use std::str;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bench_steps::Error;
use bench_steps::latency::Latencies;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, Entity, EntityError, Node, Schedule};

use super::durable::{
    self, Counters, Done, Home, Order, TIMEOUT, ThrongCounters, ThrongHome, in_turn, key, on_node,
    wait,
};
use super::prelude::*;
use super::records::rate;
use crate::stores::disk_bytes;

const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// Idle time after which an entity leaves memory.
const IDLE: Duration = Duration::from_millis(200);

/// Time before the first reminder is due, besides three times the time that as many have taken before.
const AHEAD: Duration = Duration::from_secs(2);

/// Number of calls in flight that set reminders.
const SETTERS: u64 = 1_000;

/// Number of entities with a reminder for next month that the check reads.
const SAMPLE: u64 = 10_000;

/// The due reminders of a run.
struct Plan {
    /// Number of times that each has come.
    comings: Box<[AtomicU8]>,
    /// Number of those whose turn is on the disk.
    stored: AtomicU64,
    early: AtomicU64,
    latencies: Latencies,
}

impl Plan {
    fn add_stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "trial", deps = Arc<Plan>)]
struct Trial {
    calls: u64,
    ends: u64,
}

#[process]
impl Trial {
    /// Sets a reminder for a time since 1970, unless there is none, and returns the number of calls.
    #[message]
    fn begin(&mut self, number: u64, due: Option<Duration>, cx: &mut Context<Self>) -> u64 {
        if let Some(due) = due {
            cx.remind("end", Schedule::at(SystemTime::UNIX_EPOCH + due), End { number });
        }
        self.calls += 1;
        self.calls
    }

    #[message(durable)]
    fn end(&mut self, number: u64, cx: &mut Context<Self>) {
        self.ends += 1;
        let due = cx.reminded_at().unwrap_or(SystemTime::UNIX_EPOCH);
        let plan = cx.deps().clone();
        match SystemTime::now().duration_since(due) {
            Ok(late) => plan.latencies.record(late.as_nanos() as u64),
            Err(_) => {
                plan.early.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(comings) = plan.comings.get(number as usize) {
            comings.fetch_add(1, Ordering::Relaxed);
        }
        cx.after_commit(move || plan.add_stored());
    }

    /// Returns the number of calls, of reminders that have come, and of those that are set.
    #[message]
    fn counts(&mut self, cx: &mut Context<Self>) -> Result<(u64, u64, u64), EntityError> {
        Ok((self.calls, self.ends, cx.reminders()?.len() as u64))
    }
}

fn trial(node: &Node, number: u64) -> Entity<Trial> {
    node.entity(str::from_utf8(&key(number)).unwrap_or_default())
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[derive(Clone)]
struct Trials {
    counters: ThrongCounters,
    plan: Arc<Plan>,
}

/// Times for which reminders are set.
#[derive(Clone, Copy)]
struct Times {
    first: Duration,
    /// Reminders per second; 0 if all are due at once.
    pace: u64,
}

impl Times {
    fn of(self, place: u64) -> Duration {
        let later = (place * 1_000_000_000).checked_div(self.pace).unwrap_or(0);
        self.first + Duration::from_nanos(later)
    }
}

impl Trials {
    async fn open(home: &ThrongHome, entities: u64, plan: &Arc<Plan>) -> Result<Trials, Error> {
        let counters = home.open(durable::unlimited(entities)).await?;
        counters.node().register::<Trial>(plan.clone());
        Ok(Trials { counters, plan: plan.clone() })
    }

    /// Calls entities, and has each set a reminder if there are times; returns the time until no entity is in memory any
    /// more.
    async fn set(&self, first: u64, count: u64, times: Option<Times>) -> Result<Duration, Error> {
        let (begun, trials) = (Instant::now(), self.clone());
        let set = move |_, number: u64| {
            let trial = trial(trials.counters.node(), number);
            let due = times.map(|times| times.of(number - first));
            async move {
                match trial.begin(number, due).within(TIMEOUT).await? {
                    1 => Ok(()),
                    calls => Err(format!("a first call is number {calls}").into()),
                }
            }
        };
        in_turn(&self.counters, first..first + count, SETTERS, 0, set).await?;
        self.counters.rest().await?;
        Ok(begun.elapsed())
    }

    /// Waits until the turns of so many reminders, of which the first is due at a time since 1970, are on the disk; returns
    /// the time since 1970 then.
    async fn wait(&self, reminders: u64, first: Duration) -> Result<Duration, Error> {
        tokio::time::sleep(first.saturating_sub(since_1970())).await;
        wait(|| {
            let number = self.plan.stored.load(Ordering::Relaxed);
            ready(Ok(Done { number, is_all: number >= reminders }))
        })
        .await?;
        Ok(since_1970())
    }

    /// Reads entities, each of which has had a call; returns how many have these numbers of reminders that have come and
    /// are set.
    async fn count(
        &self,
        first: u64,
        of: u64,
        sample: u64,
        expected: (u64, u64),
    ) -> Result<u64, Error> {
        let (trials, found) = (self.clone(), Arc::new(AtomicU64::new(0)));
        let right = found.clone();
        let read = move |_, number| {
            let number = first + Order::Rounds.pick(number, of);
            let (trial, right) = (trial(trials.counters.node(), number), right.clone());
            async move {
                let (calls, came, set) = trial.counts().within(TIMEOUT).await??;
                let is_right = (calls, (came, set)) == (1, expected);
                right.fetch_add(u64::from(is_right), Ordering::Relaxed);
                Ok(())
            }
        };
        in_turn(&self.counters, 0..sample, SETTERS, 0, read).await?;
        Ok(found.load(Ordering::Relaxed))
    }
}

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let entities = settings.count + settings.get("due") + settings.get("paced");
    let processes = durable::processes(2 * entities, SETTERS);
    on_node(settings, processes, |home, settings| measure(home.idle_after(IDLE), settings))
}

async fn measure(place: ThrongHome, settings: Settings) -> Measured {
    let count = settings.count;
    let (due, paced) = (settings.get("due"), settings.get("paced"));
    let plan = Arc::new(Plan {
        comings: (0..count + due + paced).map(|_| AtomicU8::new(0)).collect(),
        stored: AtomicU64::new(0),
        early: AtomicU64::new(0),
        latencies: Latencies::new()?,
    });
    let [home, bare] = ["node", "bare"].map(|name| place.within(name));
    let mut outcome = Outcome::default();

    let trials = Trials::open(&home, count, &plan).await?;
    let before = memory::anonymous_bytes()?;
    let times = Times { first: since_1970() + MONTH, pace: 0 };
    let time = trials.set(0, count, Some(times)).await?;
    tokio::time::sleep(Duration::from_secs(settings.get("settle"))).await;
    let grown = memory::anonymous_bytes()?.saturating_sub(before);
    trials.counters.close().await?;
    let disk = disk_bytes(home.directory())?;
    let trials = Trials::open(&bare, count, &plan).await?;
    trials.set(0, count, None).await?;
    trials.counters.close().await?;
    let of_reminders = disk.saturating_sub(disk_bytes(bare.directory())?);

    let trials = Trials::open(&home, count + due + paced, &plan).await?;
    let ahead = |calls: u64| AHEAD + time.mul_f64(3.0 * calls as f64 / count as f64);
    let first = since_1970() + ahead(due);
    trials.set(count, due, Some(Times { first, pace: 0 })).await?;
    outcome.check("reminders before all are at rest", plan.stored.load(Ordering::Relaxed), 0);
    let due_time = trials.wait(due, first).await?.saturating_sub(first);

    let of_due = plan.latencies.lock().len();
    outcome.check("due reminders", of_due + plan.early.load(Ordering::Relaxed), due);
    plan.latencies.lock().reset();
    let first = since_1970() + ahead(paced);
    let times = Times { first, pace: settings.get("pace") };
    trials.set(count + due, paced, Some(times)).await?;
    trials.wait(due + paced, first).await?;
    trials.counters.close().await?;

    let trials = Trials::open(&home, count + due + paced, &plan).await?;
    let sample = SAMPLE.min(count);
    let pending = trials.count(0, count, sample, (0, 1)).await?;
    outcome.check("entities with a reminder for next month", pending, sample);
    let ended = trials.count(count, due + paced, due + paced, (1, 0)).await?;
    outcome.check("entities whose reminder has come", ended, due + paced);
    trials.counters.close().await?;
    let came = |comings: &&AtomicU8| comings.load(Ordering::Relaxed) == 1;
    let once = plan.comings.iter().skip(count as usize).filter(came).count() as u64;
    outcome.check("reminders that came once", once, due + paced);
    let comings = plan.comings.iter().map(|comings| u64::from(comings.load(Ordering::Relaxed)));
    outcome.check("reminders that came", comings.sum(), due + paced);
    outcome.check("reminders before their time", plan.early.load(Ordering::Relaxed), 0);

    outcome.metric("disk_bytes_per_reminder", of_reminders as f64 / count as f64);
    outcome.metric("anonymous_bytes_per_reminder", grown as f64 / count as f64);
    outcome.metric("due_per_s", rate(due, due_time));
    plan.latencies.report(&mut outcome);
    Ok(outcome)
}
