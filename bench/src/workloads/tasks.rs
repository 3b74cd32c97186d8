//! `tasks`: N tasks that do what tasks of programs do, and then wait.
//!
//! ```text
//! driver   start × N │ wait until all are ready │ RSS │ go × N, wait until all are handled │   wait   │ RSS
//! task         put and get in a shared map, ready             4 messages to the next task,   receive,
//!                                                             4 from the one before          time out, exit
//!          ├spawn_ns─┤                                ├────── messages_per_s ─────────────┤
//!          ├──────────────────── ready_ns ──────┤
//! ```
//!
//! - The source compares tasks that only sleep, which is `sleep`. Here each task shares a map with all, sends
//!   and receives messages of 16 bytes round a ring, and waits in a receive with a time-out.
//! - Task i puts i → f(i), and gets a random key, which another task may not have put yet.
//! - The order of messages is checked, their sum, the map, and that every task times out, never early.
//! - A lateness is the time from the end of the `seconds` until the task runs again.
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;

use super::prelude::*;
use super::tally::{Tally, sum_below};
use crate::host::{Host, OnHost, Timed};

const EACH: u64 = 4;

static READY: Tally = Tally::new();
/// Tasks that have handled all their messages, and the sum of the messages' values.
static HANDLED: Tally = Tally::new();
static TIMED_OUT: Tally = Tally::new();
static EXITED: Tally = Tally::new();
static EARLY: Tally = Tally::new();
static MISPLACED: Tally = Tally::new();
/// Gets that found the value of another key.
static WRONG: Tally = Tally::new();
static SHARED: OnceLock<Shared> = OnceLock::new();

/// The data that all tasks share. A static, so that no task holds a pointer to it.
struct Shared {
    map: DashMap<u64, u64>,
    count: u64,
    begun: Instant,
    timeout: Duration,
    late: Vec<AtomicU32>,
}

fn shared() -> &'static Shared {
    SHARED.get_or_init(|| panic!("the driver sets it before it starts any task"))
}

fn value_of(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7
}

/// A key that depends on the task in no simple way.
fn key_for(index: u64, count: u64) -> u64 {
    let mixed = (index ^ index >> 15).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (u128::from(mixed ^ mixed >> 32) % u128::from(count)) as u64
}

pub(crate) enum Request<H: Host> {
    /// The address of the next task, to which the task sends its messages.
    Go(H::TimedAddress<Task<H>>),
    /// A message round the ring: the task that sent it, and the number among its messages.
    Item { from: u64, number: u32 },
}

pub(crate) struct Task<H: Host> {
    index: u64,
    received: u64,
    sum: u64,
    has_sent: bool,
    /// Nanoseconds from the beginning until the task began to wait.
    waits_since: u64,
    host: PhantomData<fn(H)>,
}

impl<H: Host> Task<H> {
    fn new(index: u64) -> Task<H> {
        Task { index, received: 0, sum: 0, has_sent: false, waits_since: 0, host: PhantomData }
    }
}

impl<H: Host> Timed for Task<H> {
    type Message = Request<H>;

    /// Uses the map, and counts the task as ready.
    fn begin(&self) {
        let Shared { map, count, .. } = shared();
        map.insert(self.index, value_of(self.index));
        let key = key_for(self.index, *count);
        if map.get(&key).is_some_and(|value| *value != value_of(key)) {
            WRONG.add(key);
        }
        READY.add(self.index);
    }

    fn receive(&mut self, request: Request<H>) {
        match request {
            Request::Go(next) => {
                for number in 0..EACH as u32 {
                    H::send_timed(&next, Request::Item { from: self.index, number });
                }
                self.has_sent = true;
            }
            Request::Item { from, number } => {
                let number = u64::from(number);
                if (from + 1) % shared().count != self.index || number != self.received {
                    MISPLACED.add(1);
                }
                self.received += 1;
                self.sum = self.sum.wrapping_add(from * EACH + number);
                if self.received == EACH {
                    HANDLED.add(self.sum);
                }
            }
        }
    }

    fn waits(&mut self) -> Option<Duration> {
        let waits = self.has_sent && self.received == EACH;
        waits.then(|| {
            self.waits_since = shared().begun.elapsed().as_nanos() as u64;
            shared().timeout
        })
    }

    fn time_out(&self) {
        let Shared { begun, timeout, late, .. } = shared();
        let waited = (begun.elapsed().as_nanos() as u64).saturating_sub(self.waits_since);
        match waited.checked_sub(timeout.as_nanos() as u64) {
            Some(after) => {
                let microseconds = u32::try_from(after / 1000).unwrap_or(u32::MAX);
                late[self.index as usize].store(microseconds, Ordering::Relaxed);
            }
            None => EARLY.add(self.index),
        }
        TIMED_OUT.add(self.index);
    }
}

impl<H: Host> Drop for Task<H> {
    fn drop(&mut self) {
        EXITED.add(self.index);
    }
}

pub(crate) struct Tasks;

impl OnHost for Tasks {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let count = settings.count;
        let mut tasks = memory::resident_vec(count as usize);
        let shared = Shared {
            map: DashMap::new(),
            count,
            begun: Instant::now(),
            timeout: Duration::from_secs(settings.get("seconds")),
            late: (0..count).map(|_| AtomicU32::new(u32::MAX)).collect(),
        };
        let shared = SHARED.get_or_init(|| shared);

        READY.arm(count);
        let clock = Instant::now();
        for index in 0..count {
            tasks.push(host.start_timed(Task::<H>::new(index)).await);
        }
        let spawned = clock.elapsed();
        READY.complete().await;
        let ready = clock.elapsed();
        let ready_rss = memory::resident_bytes()?;

        HANDLED.arm(count);
        EXITED.arm(count);
        let clock = Instant::now();
        for (index, task) in tasks.iter().enumerate() {
            let next = tasks[(index + 1) % tasks.len()].clone();
            H::send_timed::<Task<H>>(task, Request::Go(next));
        }
        HANDLED.complete().await;
        let handled = clock.elapsed();
        EXITED.complete().await;
        drop(tasks);
        let rss_after = memory::resident_bytes()?;

        let late = shared.late.iter().map(|late| u64::from(late.load(Ordering::Relaxed)) * 1000);
        let latenesses = latency::of(late)?;
        let mut outcome = Outcome::default();
        outcome.metric("spawn_ns", spawned.as_nanos() as f64 / count as f64);
        outcome.metric("ready_ns", ready.as_nanos() as f64 / count as f64);
        outcome.metric("ready_rss_bytes", ready_rss as f64);
        outcome.metric("messages_per_s", (count * EACH) as f64 / handled.as_secs_f64());
        latency::report(&mut outcome, "late_", &latenesses);
        // Read after the histogram is made, which counts in the parent's account of the peak.
        outcome.metric(memory::PEAK, memory::peak_resident_bytes()? as f64);
        outcome.metric("rss_after_bytes", rss_after as f64);
        outcome.check("tasks that were ready", READY.count(), count);
        outcome.check("entries of the map", shared.map.len() as u64, count);
        let wrong =
            shared.map.iter().filter(|entry| *entry.value() != value_of(*entry.key())).count();
        outcome.check("entries with a wrong value", wrong as u64 + WRONG.count(), 0);
        outcome.check("tasks that handled all their messages", HANDLED.count(), count);
        outcome.check("the sum of the messages", HANDLED.sum(), sum_below(count * EACH));
        outcome.check("messages received in the wrong order", MISPLACED.count(), 0);
        outcome.check("tasks that timed out", TIMED_OUT.count(), count);
        outcome.check("tasks that timed out early", EARLY.count(), 0);
        outcome.check("tasks that exited", EXITED.count(), count);
        outcome.check("the sum of their numbers", EXITED.sum(), sum_below(count));
        Ok(outcome)
    }
}
