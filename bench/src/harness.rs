//! Runs the peers in turn and summarizes their results.
//!
//! - Each run is a fresh process, and runs never overlap, so a run inherits nothing from the run
//!   before.
//! - Runs are interleaved: every peer has its n-th run before any peer has its (n+1)-th, so that
//!   noise on the machine affects all of them. The first round is a warm-up and is not counted.
//! - The warm-up has a quarter of the size of the counted runs. The instructions per operation are the
//!   difference in instructions divided by the difference in size, so starting and ending do not count.
//! - A run during which the hypervisor took more than [`STEAL_MAX`] of the machine's time is repeated,
//!   up to [`REPEATS_MAX`] times, so that such a run is not mistaken for a slow one. The share that
//!   remained is part of the row. A request may leave this out.
//! - A run's own account of its peak memory must be that of its parent: a metric of that name is
//!   compared with the kernel's account of the process.
//! - Failures are never dropped: a failed check, a crash or garbled output in any run, the warm-up
//!   included, makes the row unverified.

use indicatif::{ProgressBar, ProgressStyle};

use crate::memory;
use crate::outcome::{Line, Quantiles};
use crate::peer::{Peer, RunError};
use crate::settings::Settings;
use crate::usage::{Meter, Usage};

/// Number of counted runs per runtime, unless a request has another.
pub(crate) const RUNS: u64 = 5;

/// Share of the machine's time that the hypervisor may take in a run.
const STEAL_MAX: f64 = 0.02;

/// Seconds that a peer's counted runs may take together, by the time of the longest so far, where time is spared; one
/// run is made in any case, and its spread is then unknown.
const SPARED_S: f64 = 3.0;

/// The counted runs are so many times larger than the warm-up.
const WARM_UP_PART: u64 = 4;

/// Number of times that a run is repeated, at most, because the hypervisor took too much time.
const REPEATS_MAX: u32 = 2;

pub(crate) struct Request {
    pub(crate) peers: Vec<Peer>,
    pub(crate) settings: Settings,
    pub(crate) runs: u64,
    /// Whether a smaller run, which does not count, comes first.
    pub(crate) warms_up: bool,
    /// Whether a run is repeated while the hypervisor takes too much time.
    pub(crate) repeats: bool,
    /// Whether a peer whose first run takes long has fewer runs.
    pub(crate) spares_time: bool,
    /// Name of the measurement, if this is one of the suite's.
    pub(crate) measurement: Option<&'static str>,
}

pub(crate) struct Row {
    pub(crate) peer: Peer,
    /// The version that the peer reports; `None` if no run completed.
    pub(crate) version: Option<String>,
    pub(crate) workers: usize,
    /// A summary of each metric, in the workload's order; empty if no counted run completed.
    pub(crate) metrics: Vec<Summary>,
    /// Instructions in user mode per operation, which `--count` counts; `None` if there is no counter.
    pub(crate) instructions_per_op: Option<f64>,
    pub(crate) quantiles: Quantiles,
    pub(crate) runs: Vec<CountedRun>,
    /// Descriptions of all failures; empty means verified.
    pub(crate) failures: Vec<String>,
}

pub(crate) struct CountedRun {
    pub(crate) metrics: serde_json::Map<String, serde_json::Value>,
    pub(crate) quantiles: Quantiles,
    pub(crate) usage: Usage,
}

pub(crate) struct Summary {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Runs all requested peers and returns a row for each. A runtime that is not installed, or does
/// not support a setting's value, has no row and is named on standard error.
pub(crate) fn measure(request: &Request) -> Vec<Row> {
    let mut small = request.settings.clone();
    small.count = (small.count / WARM_UP_PART).max(1);
    let first = if request.warms_up { 0 } else { 1 };
    let progress = progress_bar((request.runs + 1 - first) * request.peers.len() as u64);
    let mut runs: Vec<PeerRuns> =
        request.peers.iter().map(|peer| PeerRuns::new(*peer, request.runs)).collect();
    for round in first..=request.runs {
        for peer_runs in &mut runs {
            let runtime = peer_runs.peer.runtime;
            let name = request.measurement.unwrap_or(request.settings.workload.name);
            progress.set_message(format!("{name} {runtime}"));
            if !peer_runs.left_out && round <= peer_runs.due {
                let settings = if round == 0 { &small } else { &request.settings };
                // A warm-up within a limit is of no use to a run beyond it.
                let supported = peer_runs.peer.check(&request.settings);
                let ran =
                    supported.and_then(|()| run_undisturbed(&peer_runs.peer, request, settings));
                match ran {
                    Ok((line, usage)) => {
                        if request.spares_time && round > 0 {
                            let affordable = affordable(request.runs, usage.elapsed_s);
                            peer_runs.due = peer_runs.due.min(affordable);
                        }
                        peer_runs.note(line, usage, round > 0);
                    }
                    Err(
                        error @ (RunError::Absent(_)
                        | RunError::NotBuilt
                        | RunError::Unsupported { .. }
                        | RunError::Beyond(_)),
                    ) => {
                        progress.suspend(|| eprintln!("{runtime}: {error}"));
                        peer_runs.left_out = true;
                    }
                    Err(error) => peer_runs.failures.push(with_sources(&error)),
                }
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let rows = runs.into_iter().filter(|peer_runs| !peer_runs.left_out);
    rows.map(|peer_runs| peer_runs.into_row(request, small.count)).collect()
}

/// Runs a peer once, and again while the hypervisor takes too much time. Every run is checked, and a
/// failure in any of them is that of the run.
fn run_undisturbed(
    peer: &Peer,
    request: &Request,
    settings: &Settings,
) -> Result<(Line, Usage), RunError> {
    let mut failures = Vec::new();
    let mut left = if request.repeats { REPEATS_MAX } else { 0 };
    loop {
        let meter = Meter::start();
        let (mut line, used) = peer.run(settings)?;
        let usage = meter.stop(used);
        failures.append(&mut line.failures);
        let peak = line.metrics.get(memory::PEAK).and_then(serde_json::Value::as_f64);
        failures.extend(peak.and_then(|peak| usage.doubt(peak, peer.is_here())));
        if left == 0 || usage.steal.is_none_or(|steal| steal <= STEAL_MAX) {
            return Ok((Line { failures, ..line }, usage));
        }
        left -= 1;
    }
}

/// The number of counted runs, `runs` at most, of a peer whose run takes some seconds.
fn affordable(runs: u64, run_s: f64) -> u64 {
    // The conversion saturates.
    let number = (SPARED_S / run_s) as u64;
    number.clamp(1, runs)
}

struct PeerRuns {
    peer: Peer,
    /// Whether the peer cannot run: it is absent or does not support a setting's value.
    left_out: bool,
    /// Number of counted runs that it is to have.
    due: u64,
    /// The line of the latest run, which has the version and the number of workers.
    latest: Option<Line>,
    warm_up: Option<f64>,
    counted: Vec<CountedRun>,
    failures: Vec<String>,
}

impl PeerRuns {
    fn new(peer: Peer, due: u64) -> Self {
        Self {
            peer,
            left_out: false,
            due,
            latest: None,
            warm_up: None,
            counted: Vec::new(),
            failures: Vec::new(),
        }
    }

    fn note(&mut self, mut line: Line, usage: Usage, counts: bool) {
        self.failures.append(&mut line.failures);
        if counts {
            let (metrics, quantiles) = (line.metrics.clone(), line.quantiles.clone());
            self.counted.push(CountedRun { metrics, quantiles, usage });
        } else {
            self.warm_up = usage.instructions;
        }
        self.latest = Some(line);
    }

    fn into_row(self, request: &Request, warm_up_count: u64) -> Row {
        let values = |name| {
            let mut values: Vec<f64> =
                self.counted.iter().filter_map(|run| run.metrics.get(name)?.as_f64()).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let metrics = request
            .settings
            .workload
            .metrics()
            .filter_map(|metric| Summary::of(metric.name, metric.unit(), &values(metric.name)))
            .collect();
        let (version, workers) = match self.latest {
            Some(line) => (Some(line.version), line.workers),
            None => (None, request.settings.workers),
        };
        let (runs, failures) = (self.counted, self.failures);
        let instructions = median_of(&runs, |usage| usage.instructions);
        let further = (request.settings.count - warm_up_count) as f64;
        let instructions_per_op = per_op(self.warm_up, instructions, further);
        let quantiles = median_quantiles(&runs);
        Row {
            peer: self.peer,
            version,
            workers,
            metrics,
            instructions_per_op,
            quantiles,
            runs,
            failures,
        }
    }
}

#[cfg(test)]
impl Request {
    /// A single run of some peers.
    pub(crate) fn once(peers: Vec<Peer>, settings: Settings) -> Request {
        let (warms_up, repeats, spares_time) = (true, true, false);
        Request { peers, settings, runs: 1, warms_up, repeats, spares_time, measurement: None }
    }
}

impl Row {
    /// A verified row without runs.
    #[cfg(test)]
    pub(crate) fn without_runs(peer: Peer) -> Row {
        Row {
            peer,
            version: None,
            workers: 1,
            metrics: Vec::new(),
            instructions_per_op: None,
            quantiles: Quantiles::new(),
            runs: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn summary(&self, metric: &str) -> Option<&Summary> {
        self.metrics.iter().find(|summary| summary.name == metric)
    }

    pub(crate) fn median(&self, metric: &str) -> Option<f64> {
        self.summary(metric).map(|summary| summary.median)
    }

    /// The median of a value over the counted runs; `None` if there are none.
    pub(crate) fn median_usage(&self, value: impl Fn(&Usage) -> Option<f64>) -> Option<f64> {
        median_of(&self.runs, value)
    }
}

fn median_of(runs: &[CountedRun], value: impl Fn(&Usage) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = runs.iter().filter_map(|run| value(&run.usage)).collect();
    values.sort_by(f64::total_cmp);
    median(&values)
}

/// The instructions of each further operation, given those of a small run and of a run that has some
/// further operations; `None` if they were not counted, or if there are none.
fn per_op(small: Option<f64>, large: Option<f64>, further: f64) -> Option<f64> {
    let per_op = (large? - small?) / further;
    (per_op.is_finite() && per_op > 0.0).then_some(per_op)
}

impl Summary {
    /// Summarizes sorted values; returns `None` if there are none.
    fn of(name: &'static str, unit: &'static str, sorted: &[f64]) -> Option<Self> {
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { name, unit, median: median(sorted)?, min, max })
    }
}

/// The medians over the runs of each quantile of each distribution.
fn median_quantiles(runs: &[CountedRun]) -> Quantiles {
    let Some(first) = runs.first() else { return Quantiles::new() };
    let medians = first.quantiles.iter().map(|(name, values)| {
        let at = |index: usize| {
            let quantiles = runs.iter().filter_map(|run| run.quantiles.get(name)?.get(index));
            let mut quantiles: Vec<f64> = quantiles.copied().collect();
            quantiles.sort_by(f64::total_cmp);
            median(&quantiles).unwrap_or_default()
        };
        (name.clone(), (0..values.len()).map(at).collect())
    });
    medians.collect()
}

/// The median of sorted values; `None` if there are none.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

fn progress_bar(runs: u64) -> ProgressBar {
    let progress = ProgressBar::new(runs);
    // A template that does not parse affects the appearance only.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})") {
        progress.set_style(style);
    }
    progress
}

pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_further_operations() {
        assert_eq!(per_op(Some(1000.0), Some(4000.0), 100.0), Some(30.0));
        assert_eq!(per_op(Some(1000.0), Some(4000.0), 0.0), None);
        assert_eq!(per_op(Some(1000.0), Some(900.0), 100.0), None);
        assert_eq!(per_op(None, Some(900.0), 100.0), None);
    }

    #[test]
    fn a_slow_peer_has_fewer_runs() {
        let runs = [0.0, 0.2, 0.6, 0.7, 1.0, 60.0].map(|run_s| affordable(5, run_s));
        assert_eq!(runs, [5, 5, 5, 4, 3, 1]);
        assert_eq!([affordable(1, 60.0), affordable(3, 60.0), affordable(3, 1.0)], [1, 1, 3]);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[1.0, 3.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 100.0]), Some(2.0));
    }
}
