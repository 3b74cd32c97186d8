//! `children`: N children are started under one supervisor, from outside, one after the other.
//!
//! ```text
//! driver    (start a child, wait until it runs) × N │ message × N, wait until counted
//!           ├──────────────── start_ns ─────────────┤
//! ```
//!
//! - The driver is outside of the runtime's workers, as the future of `block_on`.
//! - A child counts itself when it is made, and once more when it handles a message; the supervisor
//!   must then have N children that run.
use std::time::Instant;

use throng::prelude::*;

use super::prelude::*;
use super::tally::Tally;

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    // Beside the children: the supervisor.
    runtimes::throng::drive_with(settings, settings.count + 1, true, measure)
}

static MADE: Tally = Tally::new();
static COUNTED: Tally = Tally::new();

struct Worker;

#[process]
impl Worker {
    #[message]
    fn count(&mut self) {
        COUNTED.add(1);
    }
}

async fn measure(runtime: RuntimeHandle, settings: Settings) -> Measured {
    let count = settings.count;
    let supervisor = Supervisor::dynamic().start_async(&runtime).await?;
    let mut children = Vec::with_capacity(count as usize);

    let clock = Instant::now();
    for _ in 0..count {
        let child = ChildSpec::new(|| {
            MADE.add(1);
            Worker
        });
        children.push(supervisor.spawn_child(child).await?);
    }
    let elapsed = clock.elapsed();
    COUNTED.arm(count);
    for child in &children {
        // A message without a receiver is missing in the count.
        let _ = child.send_count();
    }
    COUNTED.complete().await;
    let running = supervisor.count_children().await?;

    let mut outcome = Outcome::default();
    outcome.metric("start_ns", elapsed.as_nanos() as f64 / count as f64);
    outcome.check("children made", MADE.count(), count);
    outcome.check("children that handled a message", COUNTED.count(), count);
    outcome.check("children that run", running as u64, count);
    Ok(outcome)
}
