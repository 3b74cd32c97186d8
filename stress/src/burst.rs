//! The memory of a burst goes back to the system: many messages wait, all are handled, and after a
//! few seconds of quiet the program is about as small as before.

use crate::resident;
use crate::{Outcome, ensure};
use std::sync::Arc;
use std::time::{Duration, Instant};
use throng::prelude::*;
use tokio::sync::Notify;

/// Bytes that may stay: blocks that threads keep, the heads of chunks, and the allocations of other
/// parts of the program.
const KEPT: u64 = 6 << 20;
/// Bytes that may stay besides for each message, which takes 64 bytes while it is queued.
const KEPT_PER_MESSAGE: u64 = 6;
/// Number of messages from which on there are several bursts, each with seconds of quiet after it.
const FULL: u64 = 1_000_000;
/// Longest wait for the burst and for the memory, on a machine that does other work besides.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process whose first turn ends when its gate opens, and whose messages wait until then.
struct Receiver {
    gate: Arc<Notify>,
    handled: u64,
}
#[process]
impl Receiver {
    #[hook]
    async fn started(&mut self) {
        self.gate.notified().await;
    }
    #[message(send)]
    fn odd(&mut self, number: u64) {
        self.handled += number;
    }
    #[message(send)]
    fn even(&mut self, number: u64) {
        self.handled += number;
    }
    #[message]
    fn count(&mut self) -> u64 {
        self.handled
    }
}

/// Order in which the receivers get their messages and are let go.
#[derive(Clone, Copy, Debug)]
enum Order {
    InTurn,
    Random,
}

struct Sender;
#[process]
impl Sender {
    #[message]
    fn burst(&mut self, to: Vec<Address<Receiver>>, messages: u64, order: Order) {
        let mut draw = fastrand::Rng::with_seed(1);
        for number in 0..messages {
            let receiver = to[match order {
                Order::InTurn => number as usize % to.len(),
                Order::Random => draw.usize(..to.len()),
            }];
            // Messages of two kinds in turn, so that none shares a block with others.
            if number % 2 == 0 {
                receiver.even(1).unwrap();
            } else {
                receiver.odd(1).unwrap();
            }
        }
    }
}

pub(crate) fn run(messages: u64) -> Outcome {
    let runtime = Runtime::builder().workers(2).start().map_err(|error| error.to_string())?;
    if messages < FULL {
        return burst(&runtime, messages, 100, Order::Random);
    }
    let mut summary = Vec::new();
    for receivers in [1, 100, 10_000] {
        for order in [Order::InTurn, Order::Random] {
            summary.push(burst(&runtime, messages, receivers, order)?);
        }
    }
    Ok(summary.join("; "))
}

/// Sends a burst to so many receivers, lets them handle it, and waits for its memory.
fn burst(runtime: &Runtime, messages: u64, receivers: u64, order: Order) -> Outcome {
    let gates: Vec<_> = (0..receivers).map(|_| Arc::new(Notify::new())).collect();
    let to: Vec<_> = gates
        .iter()
        .map(|gate| runtime.spawn(Receiver { gate: gate.clone(), handled: 0 }).unwrap())
        .collect();
    let sender = runtime.spawn(Sender).unwrap();
    let before = resident::now();
    let (peak, handled) = runtime.block_on(async |_| {
        sender.burst(to.clone(), messages, order).within(PATIENCE).await.unwrap();
        let peak = resident::now();
        let mut gates: Vec<_> = gates.iter().collect();
        if let Order::Random = order {
            fastrand::Rng::with_seed(2).shuffle(&mut gates);
        }
        for gate in gates {
            gate.notify_one();
        }
        let mut handled = 0;
        for receiver in &to {
            handled += receiver.count().within(Duration::from_secs(600)).await.unwrap();
        }
        (peak, handled)
    });
    ensure(handled == messages, || format!("{handled} of {messages} messages were handled"))?;
    let drained = Instant::now();
    let most = before + KEPT + messages * KEPT_PER_MESSAGE;
    let mut after = resident::now();
    while after > most && drained.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        after = resident::now();
    }
    let waited = drained.elapsed().as_secs_f64();
    for receiver in to {
        receiver.stop();
    }
    sender.stop();
    let mebibytes = |bytes: u64| bytes.saturating_sub(before) >> 20;
    ensure(after <= most, || {
        format!(
            "{messages} messages to {receivers} receivers took {} MiB, and {} MiB stayed",
            mebibytes(peak),
            mebibytes(after)
        )
    })?;
    Ok(format!("{receivers} receivers: {} MiB, back in {waited:.1} s", mebibytes(peak)))
}
