//! `sleep`: N processes that each wait for a message, give up after `seconds`, and exit.
//!
//! ```text
//! driver      start × N │               wait until all have timed out │ peak RSS
//! processes      │      receive, for at most `seconds`  │ count itself
//!             ├───────────────────── finished_s ─────────────────────┤
//! ```
//!
//! - No messages are sent: each receive must end by its time-out, and never early.
//! - Every address is kept until the end, so that a message could still arrive.
//! - The rows that only sleep have no mailbox; many comparisons call such tasks "a million tasks".

mod actix;
mod kameo;
mod ractor;
mod smol;
mod tellus;
mod threads;
mod throng;
mod throng_async;
mod tokio;
mod tokio_join;
mod tokio_sleep;

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::tally::{Tally, sum_below};
use crate::memory;
use crate::outcome::Outcome;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "throng-async" => throng_async::run(settings),
        "tokio" => tokio::run(settings),
        "tokio-sleep" => tokio_sleep::run(settings),
        "tokio-join" => tokio_join::run(settings),
        "smol" => smol::run(settings),
        "actix" => actix::run(settings),
        "kameo" => kameo::run(settings),
        "ractor" => ractor::run(settings),
        "tellus" => tellus::run(settings),
        "threads" => threads::run(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

static TIMED_OUT: Tally = Tally::new();
static EARLY: Tally = Tally::new();
static TIMING: OnceLock<Timing> = OnceLock::new();

/// The start of the clock, and the time-out of each process. A static, so that no process holds
/// either value.
struct Timing {
    begun: Instant,
    timeout: Duration,
}

fn timing() -> &'static Timing {
    TIMING.get_or_init(|| panic!("the driver sets the timing before it starts any process"))
}

/// The time-out of each process's receive.
fn receive_timeout() -> Duration {
    timing().timeout
}

/// The state of each process: a number, which the process adds to the tally when it times out.
struct State(u64);

impl State {
    /// Counts the process as timed out; called when its receive has timed out.
    fn time_out(&self) {
        if timing().begun.elapsed() < receive_timeout() {
            EARLY.add(self.0);
        }
        TIMED_OUT.add(self.0);
    }
}

/// A runtime's implementation of the step that starts the processes; called in a process of the
/// runtime.
trait SleepSteps {
    /// The addresses that keep the processes reachable and alive.
    type Kept;

    /// Starts a process for each state, which waits for a message for [`receive_timeout`].
    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept;
}

/// Drives the workload: its order, clock and checks.
async fn measure<S: SleepSteps>(steps: S, settings: Settings) -> io::Result<Outcome> {
    let count = settings.count;
    TIMED_OUT.arm(count);
    let begun = Instant::now();
    let timeout = Duration::from_secs(settings.get("seconds"));
    if TIMING.set(Timing { begun, timeout }).is_err() {
        return Err(io::Error::other("the workload can run only once per process"));
    }

    let kept = steps.start((0..count).map(State)).await;
    TIMED_OUT.complete().await;
    let finished = begun.elapsed();
    drop(kept);

    let mut outcome = Outcome::default();
    outcome.metric(memory::PEAK, memory::peak_resident_bytes()? as f64);
    outcome.metric("finished_s", finished.as_secs_f64());
    outcome.check("processes that timed out", TIMED_OUT.count(), count);
    outcome.check("the sum of their states", TIMED_OUT.sum(), sum_below(count));
    outcome.check("processes that timed out early", EARLY.count(), 0);
    Ok(outcome)
}
