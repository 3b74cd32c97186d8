//! Shares of a worker, counted in turns: busy processes, woken processes and messages from outside.

use crate::{Actor, Await, scaled, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use throng::prelude::*;

/// Number of messages that a process may handle in a row.
const BUDGET: u64 = 256;

/// Counts of all turns of the busy processes, and of the end of their work.
#[derive(Clone, Default)]
struct Busy {
    turns: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    next: Option<Address<Busy>>,
}
#[process]
impl Busy {
    #[message(send)]
    fn join(&mut self, next: Address<Busy>) {
        self.next = Some(next);
    }
    #[message(send)]
    fn go_on(&mut self, cx: &mut Context<Self>) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        if !self.is_over.load(Ordering::Relaxed) {
            self.next.unwrap_or(cx.address()).go_on().unwrap();
        }
    }
}

/// Records the longest wait of a message, in turns of the busy processes.
#[derive(Default)]
struct Waits {
    most: AtomicU64,
    handled: AtomicU64,
}

#[derive(Clone)]
struct Witness(Arc<Waits>, Busy);
#[process]
impl Witness {
    #[message(send)]
    fn sent_at(&mut self, turns: u64) {
        let waited = self.1.turns.load(Ordering::Relaxed) - turns;
        self.0.most.fetch_max(waited, Ordering::Relaxed);
        self.0.handled.fetch_add(1, Ordering::Release);
    }
}

/// Sends to witnesses, as a turn of its own: the worker runs no other process until they are woken.
async fn probe(witnesses: Vec<Address<Witness>>, from_outside: bool, busy: Busy) {
    let now = busy.turns.load(Ordering::Relaxed);
    let send = move || witnesses.iter().for_each(|to| to.sent_at(now).unwrap());
    if from_outside { std::thread::spawn(send).join().unwrap() } else { send() }
}

/// Returns the longest wait of messages to eight idle processes, in turns of two thousand busy
/// processes on the same worker.
fn longest_wait(from_outside: bool) -> u64 {
    const ROUNDS: u64 = 50;
    let (waits, busy) = (Arc::new(Waits::default()), Busy::default());
    let runtime = Runtime::builder().workers(1).spare_workers(0).start().unwrap();
    for _ in 0..scaled(2_000) {
        runtime.spawn(busy.clone()).unwrap().go_on().unwrap();
    }
    let witness = Witness(waits.clone(), busy.clone());
    let witnesses: Vec<_> = (0..8).map(|_| runtime.spawn(witness.clone()).unwrap()).collect();
    let prober = runtime.spawn(Actor).unwrap();
    // From here on each busy process has used its budget once.
    until(|| busy.turns.load(Ordering::Relaxed) >= 2 * scaled(2_000) * BUDGET);
    for round in 1..=scaled(ROUNDS) {
        prober.send(Await(probe(witnesses.clone(), from_outside, busy.clone()))).unwrap();
        until(|| waits.handled.load(Ordering::Acquire) >= 8 * round);
    }
    busy.is_over.store(true, Ordering::Relaxed);
    waits.most.load(Ordering::Relaxed)
}

#[test]
#[cfg_attr(miri, ignore = "runs thousands of processes")]
fn a_woken_process_does_not_wait_behind_all_busy_processes() {
    let waited = longest_wait(false);
    assert!(waited <= 8 * BUDGET, "{waited} turns of busy processes came first");
}

#[test]
#[cfg_attr(miri, ignore = "runs thousands of processes")]
fn a_message_from_outside_does_not_wait_behind_all_busy_processes() {
    let waited = longest_wait(true);
    assert!(waited <= 8 * BUDGET, "{waited} turns of busy processes came first");
}

/// Processes that wake each other without end share the worker with one that is always busy.
#[test]
#[cfg_attr(miri, ignore = "runs thousands of processes")]
fn woken_processes_do_not_starve_a_busy_process() {
    let (woken, busy) = (Busy::default(), Busy::default());
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let ring: Vec<_> = (0..100).map(|_| runtime.spawn(woken.clone()).unwrap()).collect();
    for (index, member) in ring.iter().enumerate() {
        member.join(ring[(index + 1) % ring.len()]).unwrap();
    }
    let alone = runtime.spawn(busy.clone()).unwrap();
    alone.go_on().unwrap();
    // Several messages go round, so that the queue of the woken processes is never empty.
    ring.iter().step_by(10).for_each(|member| member.go_on().unwrap());
    let turns = |of: &Busy| of.turns.load(Ordering::Relaxed);
    while turns(&woken) == 0 || turns(&busy) == 0 {
        std::thread::yield_now();
    }
    let (first, ours) = (turns(&woken), turns(&busy));
    while turns(&woken) - first < scaled(1_000_000) {
        std::thread::yield_now();
    }
    let (woken_turns, busy_turns) = (turns(&woken) - first, turns(&busy) - ours);
    woken.is_over.store(true, Ordering::Relaxed);
    busy.is_over.store(true, Ordering::Relaxed);
    assert!(busy_turns > woken_turns / 4, "{busy_turns} beside {woken_turns}");
}
