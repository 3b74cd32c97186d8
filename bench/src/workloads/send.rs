//! `send`: M messages, each a `u64`, from a process (or from `senders` processes) to another
//! process.
//!
//! ```text
//! driver    start senders │                      wait │ ask the receiver for its sum
//! senders                 │ send × M/senders          │
//!           ├────── send_ns, the last sender is done ─┤
//!           ├───────────────────────────── delivered_ns ┤
//! ```
//!
//! - The values are 0…M−1, each sent once, so the sum shows that no message was lost or duplicated.
//! - Mailboxes are unbounded and no sender waits for the receiver: the receiver's backlog depends
//!   on the runtime, and `delivered_ns` includes its processing.
//! - Each sender reads the clock itself when it is done, so `send_ns` does not include the wake-up
//!   of the driver.

mod actix;
mod kameo;
mod ractor;
mod smol;
mod tellus;
mod threads;
mod throng;
mod tokio;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::tally::{Tally, share, sum_below};
use crate::outcome::Outcome;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "tokio" => tokio::run(settings),
        "smol" => smol::run(settings),
        "actix" => actix::run(settings),
        "kameo" => kameo::run(settings),
        "ractor" => ractor::run(settings),
        "tellus" => tellus::run(settings),
        "threads" => threads::run(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

static SENDERS_DONE: Tally = Tally::new();
static LAST_DONE_NS: AtomicU64 = AtomicU64::new(0);

/// A sender's share of the messages.
struct Share {
    values: Range<u64>,
    clock: Instant,
}

impl Share {
    /// Sends all values and reports the sender as done; called in the sender's process.
    fn send_all(self, mut send: impl FnMut(u64)) {
        let count = self.values.end - self.values.start;
        for value in self.values {
            send(value);
        }
        LAST_DONE_NS.fetch_max(self.clock.elapsed().as_nanos() as u64, Ordering::Relaxed);
        SENDERS_DONE.add(count);
    }
}

/// A runtime's implementation of the steps. The receiver is already running. Called in a process of
/// the runtime.
trait SendSteps {
    /// Starts a process that sends a share to the receiver.
    async fn start_sender(&self, share: Share);

    /// Asks the receiver for the sum of all received values, after every sender is done; returns
    /// `None` if no reply came.
    async fn sum(self) -> Option<u64>;
}

/// Drives the workload: its order, clocks and checks.
async fn measure<S: SendSteps>(steps: S, settings: Settings) -> io::Result<Outcome> {
    let count = settings.count;
    let senders = settings.get("senders");
    SENDERS_DONE.arm(senders);

    let clock = Instant::now();
    for sender in 0..senders {
        steps.start_sender(Share { values: share(count, sender, senders), clock }).await;
    }
    SENDERS_DONE.complete().await;
    let sum = steps.sum().await;
    let delivered = clock.elapsed();

    let each = 1.0 / count as f64;
    let mut outcome = Outcome::default();
    outcome.metric("send_ns", LAST_DONE_NS.load(Ordering::Relaxed) as f64 * each);
    outcome.metric("delivered_ns", delivered.as_nanos() as f64 * each);
    outcome.check("receivers that replied", u64::from(sum.is_some()), 1);
    outcome.check("the sum received", sum.unwrap_or_default(), sum_below(count));
    outcome.check("senders that finished", SENDERS_DONE.count(), senders);
    outcome.check("messages sent", SENDERS_DONE.sum(), count);
    Ok(outcome)
}
