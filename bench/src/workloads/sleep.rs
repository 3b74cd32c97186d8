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
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use throng::{Inbox, Message};
use tokio::task::unconstrained;
use tokio::time::sleep;

use super::prelude::*;
use super::tally::{Tally, sum_below};
use crate::host::{Host, OnHost, Timed, on_host};
use crate::runtimes::throng::Throng;
use crate::runtimes::{self, Measured, Work};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng-async" => runtimes::throng::drive(settings, false, as_functions),
        "tokio-sleep" => runtimes::tokio::drive(settings, false, only_asleep),
        "tokio-join" => runtimes::tokio::drive(settings, false, in_one_task),
        _ => on_host::<Sleep>(row, settings),
    }
}

struct Sleep;

impl OnHost for Sleep {
    fn measure<H: Host>(host: H, settings: Settings) -> impl Work {
        measure(settings, |count| async move {
            let mut kept = Vec::with_capacity(count as usize);
            for number in 0..count {
                kept.push(host.start_timed(State(number)).await);
            }
            kept
        })
    }
}

struct Wake;

impl Message for Wake {
    type Reply = ();
}

/// throng's async processes: each is a function that receives with a time-out.
fn as_functions(Throng { runtime }: Throng, settings: Settings) -> impl Work {
    measure(settings, |count| async move {
        let start = |number| {
            let state = State(number);
            let begin = async move |mut inbox: Inbox<Wake>| {
                if inbox.recv_timeout(receive_timeout()).await.is_none() {
                    state.time_out();
                }
            };
            match runtime.spawner().spawn_async(begin) {
                Ok(address) => address,
                Err(error) => panic!("the process limit leaves room for every process: {error}"),
            }
        };
        (0..count).map(start).collect::<Vec<_>>()
    })
}

/// tokio tasks that only sleep and cannot receive messages.
fn only_asleep(settings: Settings) -> impl Work {
    measure(settings, |count| async move {
        for number in 0..count {
            tokio::spawn(async move {
                sleep(receive_timeout()).await;
                State(number).time_out();
            });
        }
    })
}

/// A single tokio task that awaits N timers: no timer can run independently of the others.
fn in_one_task(settings: Settings) -> impl Work {
    measure(settings, |count| async move {
        let naps = (0..count).map(|number| async move {
            sleep(receive_timeout()).await;
            State(number).time_out();
        });
        // `unconstrained`: with a task's budget of polls, `join_all` would poll all N timers again for every 128 that are
        // done.
        unconstrained(join_all(naps)).await
    })
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

struct State(u64);

impl Timed for State {
    type Message = ();

    fn receive(&mut self, (): ()) {}

    fn waits(&mut self) -> Option<Duration> {
        Some(receive_timeout())
    }

    fn time_out(&self) {
        if timing().begun.elapsed() < receive_timeout() {
            EARLY.add(self.0);
        }
        TIMED_OUT.add(self.0);
    }
}

/// Drives the workload: its order, clock and checks. `start` starts a process for each number below the count, and returns
/// the addresses that keep the processes reachable and alive.
async fn measure<K, F: Future<Output = K> + Send>(
    settings: Settings,
    start: impl FnOnce(u64) -> F + Send,
) -> Measured {
    let count = settings.count;
    TIMED_OUT.arm(count);
    let begun = Instant::now();
    let timeout = Duration::from_secs(settings.get("seconds"));
    if TIMING.set(Timing { begun, timeout }).is_err() {
        return Err("the workload can run only once per process".into());
    }

    let kept = start(count).await;
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
