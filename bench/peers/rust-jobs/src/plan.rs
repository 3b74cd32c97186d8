//! The jobs of a run, shared by those who push and those who run them.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::outcome::{Outcome, histogram};
use crate::{Error, Settings};

/// Text that each job carries besides its number.
pub(crate) const TEXT: &str = "a letter of forty bytes to somebody else";

pub(crate) struct Plan {
    begun: Instant,
    /// Number of attempts at each job.
    attempts: Box<[AtomicU8]>,
    ran: AtomicU64,
    sum: AtomicU64,
    wrong_texts: AtomicU64,
    /// Number of the first paced job, and the time of each push in nanoseconds.
    paced_from: u64,
    pushed_ns: Box<[AtomicU64]>,
    latencies: Mutex<Histogram<u64>>,
}

impl Plan {
    pub(crate) fn new(settings: &Settings) -> Result<Plan, Error> {
        let (jobs, paced) = (2 * settings.count + settings.get("singles")?, settings.get("paced")?);
        Ok(Plan {
            begun: Instant::now(),
            attempts: (0..jobs + paced).map(|_| AtomicU8::new(0)).collect(),
            ran: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            wrong_texts: AtomicU64::new(0),
            paced_from: jobs,
            pushed_ns: (0..paced).map(|_| AtomicU64::new(0)).collect(),
            latencies: Mutex::new(histogram()?),
        })
    }

    fn nanoseconds(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Place of the time at which a job is pushed, if it is a paced one.
    fn pushed_ns(&self, number: u64) -> Option<&AtomicU64> {
        self.pushed_ns.get(usize::try_from(number.checked_sub(self.paced_from)?).ok()?)
    }

    /// Notes that a job is about to be pushed.
    pub(crate) fn push(&self, number: u64) {
        if let Some(pushed) = self.pushed_ns(number) {
            pushed.store(self.nanoseconds(), Ordering::Relaxed);
        }
    }

    /// Makes an attempt at a job.
    pub(crate) fn run(&self, number: u64, text: &str) {
        if let Some(pushed) = self.pushed_ns(number) {
            let latency = self.nanoseconds().saturating_sub(pushed.load(Ordering::Relaxed));
            let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            latencies.saturating_record(latency);
        }
        if let Some(attempts) = self.attempts.get(number as usize) {
            attempts.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(number, Ordering::Relaxed);
        self.wrong_texts.fetch_add(u64::from(text != TEXT), Ordering::Relaxed);
        self.ran.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of attempts.
    pub(crate) fn ran(&self) -> u64 {
        self.ran.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self, moment: &str, outcome: &mut Outcome) {
        let jobs = self.attempts.len() as u64;
        let ran = |attempts: &&AtomicU8| attempts.load(Ordering::Relaxed) == 1;
        let once = self.attempts.iter().filter(ran).count() as u64;
        outcome.check(&format!("jobs that ran once {moment}"), once, jobs);
        let sum = self.sum.load(Ordering::Relaxed);
        outcome.check(&format!("sum of the jobs {moment}"), sum, jobs * (jobs - 1) / 2);
        let wrong = self.wrong_texts.load(Ordering::Relaxed);
        outcome.check(&format!("wrong texts {moment}"), wrong, 0);
    }

    pub(crate) fn report(&self, outcome: &mut Outcome) {
        let latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.latencies(&latencies);
    }
}
