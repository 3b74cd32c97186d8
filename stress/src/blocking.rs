//! A handler that blocks its thread slows its own process, not the node: meanwhile 100,000 other
//! processes keep running, and their messages wait only shortly for a turn.

use crate::{Outcome, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use throng::prelude::*;

const OTHERS: usize = 100_000;
/// Messages sent each millisecond, to all other processes together: a load, not a flood.
const PER_MILLISECOND: usize = 50;
const P99_MOST: Duration = Duration::from_millis(10);

struct Blocker(Arc<AtomicBool>);
#[process]
impl Blocker {
    #[message(send)]
    fn block(&mut self, time: Duration) {
        // A handler should not do this: it blocks the worker.
        std::thread::sleep(time);
        self.0.store(true, Ordering::Release);
    }
}

/// Records for each message the time from its sending to its turn.
struct Other(Vec<Duration>);
#[process]
impl Other {
    #[message(send)]
    fn sent(&mut self, at: Instant) {
        self.0.push(at.elapsed());
    }
    #[message]
    fn waits(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.0)
    }
}

pub(crate) fn run(size: u64) -> Outcome {
    let runtime = Runtime::builder().start().map_err(|error| error.to_string())?;
    let others: Vec<_> = (0..OTHERS).map(|_| runtime.spawn(Other(Vec::new())).unwrap()).collect();
    let over = Arc::new(AtomicBool::new(false));
    let blocker = runtime.spawn(Blocker(over.clone())).unwrap();
    blocker.block(Duration::from_millis(size)).unwrap();
    let begun = Instant::now();
    let mut sent = 0;
    while !over.load(Ordering::Acquire) {
        for _ in 0..PER_MILLISECOND {
            // The stride is prime to `OTHERS`, so every process has its turn.
            others[sent * 7919 % OTHERS].sent(Instant::now()).unwrap();
            sent += 1;
        }
        let next = begun + Duration::from_millis((sent / PER_MILLISECOND) as u64);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let mut waits = runtime.block_on(async |_| {
        let mut waits = Vec::new();
        for other in &others {
            waits.extend(other.waits().await.unwrap());
        }
        waits
    });
    ensure(waits.len() == sent, || format!("{} of {sent} messages were handled", waits.len()))?;
    waits.sort_unstable();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    let (p99, most) = (at(0.99), at(1.0));
    ensure(p99 < P99_MOST, || format!("{sent} messages waited p99 {p99:?}, at most {most:?}"))?;
    Ok(format!(
        "{sent} messages to {OTHERS} other processes waited p50 {:?}, p99 {p99:?}, at most {most:?}",
        at(0.5)
    ))
}
