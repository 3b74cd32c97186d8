//! The memory of a burst goes back to the system: many messages wait, all are handled, and after a
//! few seconds of quiet the program is about as small as before.

use crate::resident;
use crate::{Outcome, ensure};
use std::sync::Arc;
use std::time::{Duration, Instant};
use throng::prelude::*;
use tokio::sync::{Notify, oneshot};

/// Bytes that may stay: blocks that threads keep, the heads of chunks, and the allocations of other
/// parts of the program.
const KEPT: u64 = 6 << 20;
/// Bytes that may stay besides for each message, which takes 64 bytes while it is queued.
const KEPT_PER_MESSAGE: u64 = 6;
/// Number of messages from which on there are several bursts, each with seconds of quiet after it.
const FULL: u64 = 1_000_000;
/// Longest wait for the memory, on a machine that does other work besides.
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
impl Process for Sender {}
struct Burst {
    to: Vec<Address<Receiver>>,
    messages: u64,
    order: Order,
    sent: oneshot::Sender<()>,
}
impl Message for Burst {
    type Reply = ();
}
impl Handle<Burst> for Sender {
    async fn handle(&mut self, burst: Burst, _: &mut Context<Self>) {
        let Burst { to, messages, order, sent } = burst;
        let mut draw = Draw(1);
        for number in 0..messages {
            let index = match order {
                Order::InTurn => number % to.len() as u64,
                Order::Random => draw.below(to.len() as u64),
            };
            // Messages of two kinds in turn, so that none shares a block with others.
            let receiver = to[index as usize];
            if number % 2 == 0 {
                receiver.even(1).unwrap();
            } else {
                receiver.odd(1).unwrap();
            }
        }
        sent.send(()).unwrap();
    }
}

/// Draws of the same numbers in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (self.0 >> 33) % bound
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
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
        let (sent, is_sent) = oneshot::channel();
        sender.send(Burst { to: to.clone(), messages, order, sent }).unwrap();
        is_sent.await.unwrap();
        let peak = resident::now();
        let mut gates: Vec<_> = gates.iter().collect();
        if let Order::Random = order {
            Draw(2).shuffle(&mut gates);
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
