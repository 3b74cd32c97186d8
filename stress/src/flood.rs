//! A slow consumer flooded by fast senders. Queued messages and resident memory stay at the mailbox
//! budget. Messages that do not fit are handed back; all accepted messages are handled in the end.

use crate::resident::Watch;
use crate::{Outcome, ensure};
use std::time::{Duration, Instant};
use throng::prelude::*;

/// Bytes of mailbox budget for each second of the run. A short run has a small budget, so that
/// senders slowed down by a sanitizer can exhaust it too.
const BUDGET_A_SECOND: u64 = 4 << 20;
const BUDGET_MAX: u64 = 64 << 20;
const SENDERS: usize = 8;
/// Messages that a sender sends in each turn.
const BURST: u64 = 10_000;
/// Bytes allowed above the budget: messages sent before every sender learns of the limit, free
/// blocks, and the rest of the program. A flood without a limit takes gigabytes in a few seconds.
const SLACK: u64 = 64 << 20;

struct Consumer {
    handled: u64,
}
#[process]
impl Consumer {
    #[message]
    fn load(&mut self, number: u64) -> u64 {
        // About a microsecond of work.
        std::hint::black_box((0..1000).fold(number, |sum, step| sum.rotate_left(5) ^ step));
        self.handled += 1;
        self.handled
    }
}

struct Sender {
    to: Address<Consumer>,
}
#[process]
impl Sender {
    #[message]
    fn burst(&mut self) -> (u64, u64) {
        let (mut taken, mut refused) = (0, 0);
        for number in 0..BURST {
            match self.to.send_load(number) {
                Ok(()) => taken += 1,
                Err(SendError::Overloaded(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        (taken, refused)
    }
}

pub(crate) fn run(seconds: u64) -> Outcome {
    let budget = BUDGET_MAX.min(seconds * BUDGET_A_SECOND);
    let builder = Runtime::builder().mailbox_budget(budget);
    let runtime = builder.start().map_err(|error| error.to_string())?;
    let consumer = runtime.spawn(Consumer { handled: 0 }).unwrap();
    let senders: Vec<_> =
        (0..SENDERS).map(|_| runtime.spawn(Sender { to: consumer }).unwrap()).collect();
    let begun = Instant::now();
    let mut memory = Watch::start();
    let (mut taken, mut refused, mut most) = (0, 0, 0);
    runtime.block_on(async |runtime| {
        let mut bursts = tokio::task::JoinSet::new();
        let burst = |sender: Address<Sender>| async move {
            // The budget applies to calls too.
            loop {
                match sender.burst().within(Duration::from_secs(60)).await {
                    Err(CallError::Overloaded(Burst)) => tokio::task::yield_now().await,
                    outcome => break (sender, outcome.unwrap()),
                }
            }
        };
        for &sender in &senders {
            bursts.spawn(burst(sender));
        }
        while let Some(done) = bursts.join_next().await {
            let (sender, counts) = done.unwrap();
            taken += counts.0;
            refused += counts.1;
            most = most.max(runtime.mailbox_bytes());
            memory.sample();
            if begun.elapsed() < Duration::from_secs(seconds) {
                bursts.spawn(burst(sender));
            }
        }
    });
    ensure(refused > 0, || {
        format!("all {taken} messages fitted, so the budget was never reached")
    })?;
    ensure(most <= budget + SLACK, || {
        format!("{most} bytes were queued at most, of {budget} allowed")
    })?;
    let growth = memory.growth();
    ensure(growth <= budget + SLACK, || format!("resident memory grew by {growth} bytes"))?;
    let handled = runtime.block_on(async |_| {
        loop {
            match consumer.load(0).within(Duration::from_secs(600)).await {
                Err(CallError::Overloaded(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
                outcome => break outcome.unwrap(),
            }
        }
    });
    ensure(handled == taken + 1, || {
        format!("{taken} messages were accepted, and {} handled", handled - 1)
    })?;
    let left = runtime.mailbox_bytes();
    ensure(left == 0, || format!("{left} bytes are charged, though no message is queued"))?;
    Ok(format!(
        "{taken} messages accepted, {refused} handed back; of {} MiB allowed, {} were queued at \
         most; resident memory grew by {} MiB",
        budget >> 20,
        most >> 20,
        growth >> 20
    ))
}
