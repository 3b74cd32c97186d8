//! `monitors`: N processes, all monitored by one watcher or by each of several; then all are made to end.
//!
//! ```text
//! driver     start × N, watchers │ RSS │ watch × watchers, until all are established │ RSS │ end × N, until all are counted
//! watcher                                monitor × N                                         notified × N
//!                                      ├──────────────── monitor_ns ────────────────┤     ├──────── down_ns ──────────┤
//! ```
//!
//! - Every process has handled a message before the first reading of memory, and every watcher has room for
//!   the notifications that it will get. So memory grows by the monitors alone.
//! - A monitor is established when its process has it. Where a monitor is a signal to the process, the
//!   driver sends each process a message after all signals, and waits until it has been handled.
//! - All processes end normally, on a message. A watcher puts down each process that is reported, as the
//!   runtime identifies it, and hands its list to the driver with the last. After the clock every list must have
//!   each process once, and no other.
mod joined;

use std::convert::Infallible;
use std::io;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use self::joined::Joined;
use super::prelude::*;
use super::tally::{TIMEOUT, Tally};
use crate::host::{Next, Receiver};
use crate::runtimes::kameo::Kameo;
use crate::runtimes::ractor::Ractor;
use crate::runtimes::tellus::Tellus;
use crate::runtimes::throng::Throng;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => runtimes::throng::drive(settings, false, measure::<Throng>),
        "tokio" => runtimes::tokio::drive(settings, false, |settings| {
            measure(Joined::new(settings.get("watchers") > 1), settings)
        }),
        "kameo" => runtimes::kameo::drive(settings, measure::<Kameo>),
        "ractor" => runtimes::ractor::drive(settings, measure::<Ractor>),
        "tellus" => runtimes::tellus::drive(settings, measure::<Tellus>),
        _ => Err(runtimes::no_row(row)),
    }
}

static ANSWERED: Tally = Tally::new();
/// Watchers that have made all their monitors.
static WATCHING: Tally = Tally::new();
/// Notifications after the last that a watcher was to get.
static SURPLUS: Tally = Tally::new();

/// The state of each process, which ends on the message `true`, and answers others.
pub(crate) struct Watched;

impl Receiver for Watched {
    type Message = bool;
    type Pause = Infallible;

    fn receive(&mut self, ends: bool) -> Next {
        if ends {
            return Next::Stop;
        }
        ANSWERED.add(1);
        Next::Message
    }
}

/// The state of a watcher, the same on each runtime. A process is identified by an `I`.
pub(crate) struct Watch<I> {
    /// Number of notifications to come, in all.
    due: usize,
    report: Report<I>,
    reports: UnboundedSender<Report<I>>,
}

struct Report<I> {
    processes: Vec<I>,
    /// Number of processes that, by their notifications, did not end normally.
    abnormal: u64,
}

impl<I> Watch<I> {
    fn new(due: u64, reports: UnboundedSender<Report<I>>) -> Watch<I> {
        let due = due as usize;
        let report = Report { processes: memory::resident_vec(due), abnormal: 0 };
        Watch { due, report, reports }
    }

    /// Counts the watcher; called when it has made all its monitors.
    pub(crate) fn begin(&self) {
        WATCHING.add(1);
    }

    /// Puts down a process that has ended.
    pub(crate) fn notify(&mut self, process: I, is_normal: bool) {
        if self.due == 0 {
            return SURPLUS.add(1);
        }
        self.report.processes.push(process);
        self.report.abnormal += u64::from(!is_normal);
        self.due -= 1;
        if self.due == 0 {
            let report = Report { processes: Vec::new(), abnormal: 0 };
            // A report that the driver does not get is missing in its counts.
            let _ = self.reports.send(std::mem::replace(&mut self.report, report));
        }
    }
}

/// A runtime's means to monitor processes; used in a process of the runtime.
pub(crate) trait MonitorHost: Send + Sync + 'static {
    type Process: Send + Sync;

    type Watcher: Send + Sync;

    /// The identity of a process in a notification.
    type Id: Ord + Send + 'static;

    /// The processes as a watcher needs them.
    type Targets: Clone + Send;

    /// Whether a monitor is a signal, which its process has yet to handle when the watcher has gone on.
    const BY_SIGNAL: bool = false;

    fn start_watched(&mut self) -> impl Future<Output = io::Result<Self::Process>> + Send;

    fn request(process: &Self::Process, ends: bool);

    /// The identity of the process that was started as the one with this number.
    fn id(&self, number: u64, process: &Self::Process) -> Self::Id;

    fn start_watcher(&self, watch: Watch<Self::Id>) -> impl Future<Output = Self::Watcher> + Send;

    fn targets(&mut self, processes: &[Self::Process]) -> Self::Targets;

    /// Makes a watcher monitor all processes, and begin.
    fn watch(watcher: &Self::Watcher, targets: Self::Targets);
}

async fn measure<H: MonitorHost>(mut host: H, settings: Settings) -> Measured {
    let (count, watcher_count) = (settings.count, settings.get("watchers"));
    let mut processes = memory::resident_vec(count as usize);
    for _ in 0..count {
        processes.push(host.start_watched().await?);
    }
    ask_all::<H>(&processes, count).await;
    let (reports, mut reported) = unbounded_channel();
    let mut watchers = Vec::new();
    for _ in 0..watcher_count {
        watchers.push(host.start_watcher(Watch::new(count, reports.clone())).await);
    }
    let targets = host.targets(&processes);
    let resident_before = memory::resident_bytes()?;

    WATCHING.arm(watcher_count);
    let clock = Instant::now();
    for watcher in &watchers {
        H::watch(watcher, targets.clone());
    }
    WATCHING.complete().await;
    if H::BY_SIGNAL {
        ask_all::<H>(&processes, 2 * count).await;
    }
    let established = clock.elapsed();
    let resident = memory::resident_bytes()?;

    let mut found = Vec::with_capacity(watchers.len());
    let clock = Instant::now();
    for process in &processes {
        H::request(process, true);
    }
    while found.len() < watchers.len() {
        match timeout(TIMEOUT, reported.recv()).await {
            Ok(Some(report)) => found.push(report),
            // What is missing shows in the checks.
            Ok(None) | Err(_) => break,
        }
    }
    let down = clock.elapsed();

    let ids = (0..count).zip(&processes).map(|(number, process)| host.id(number, process));
    let mut due: Vec<_> = ids.collect();
    due.sort_unstable();
    let each = 1.0 / (count * watcher_count) as f64;
    let grown = resident.saturating_sub(resident_before);
    let answers = if H::BY_SIGNAL { 2 * count } else { count };
    let once: u64 = found.iter_mut().map(|report| reported_once(&due, &mut report.processes)).sum();
    let mut outcome = Outcome::default();
    outcome.metric("monitor_ns", established.as_nanos() as f64 * each);
    outcome.metric("down_ns", down.as_nanos() as f64 * each);
    outcome.metric("bytes_per_monitor", grown as f64 * each);
    outcome.check("messages that were answered", ANSWERED.count(), answers);
    outcome.check("watchers that made their monitors", WATCHING.count(), watcher_count);
    outcome.check("processes that each watcher was told of once", once, count * watcher_count);
    outcome.check("notifications beyond these", SURPLUS.count(), 0);
    let abnormal = found.iter().map(|report| report.abnormal).sum();
    outcome.check("notifications of another reason", abnormal, 0);
    Ok(outcome)
}

/// Sends each process a message, and waits until `due` messages have been answered in all.
async fn ask_all<H: MonitorHost>(processes: &[H::Process], due: u64) {
    ANSWERED.arm(due);
    for process in processes {
        H::request(process, false);
    }
    ANSWERED.complete().await;
}

/// The number of identities of a sorted list that are found exactly once among others, which it sorts.
fn reported_once<I: Ord>(due: &[I], found: &mut [I]) -> u64 {
    found.sort_unstable();
    let is_once = |id: &&I| {
        let begin = found.partition_point(|other| other < *id);
        found[begin..].iter().take_while(|other| other == id).count() == 1
    };
    due.iter().filter(is_once).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_counts_if_it_is_found_exactly_once() {
        assert_eq!(reported_once(&[1, 2, 3], &mut [3, 1, 2]), 3);
        assert_eq!(reported_once(&[1, 2, 3], &mut [3, 3, 2]), 1);
        assert_eq!(reported_once(&[1, 2, 3], &mut [4, 2]), 1);
        assert_eq!(reported_once(&[1, 2, 3], &mut []), 0);
    }
}
