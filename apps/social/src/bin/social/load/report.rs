//! Results of a run, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use super::drive::{Pace, Workload};
use super::schedule::{Arrivals, Mix};
use super::tally::{KindTally, Tally};

/// Results of a run. Latencies are in microseconds, and of good answers only.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    target: String,
    /// `open` or `closed`.
    pub(crate) loop_kind: &'static str,
    connections: usize,
    arrivals: Option<Arrivals>,
    mix: Mix,
    users: usize,
    seed: u64,
    /// Length of the run in seconds, without the wait for its last answers.
    pub(crate) seconds: f64,
    interrupted: bool,
    /// Requests a second that were due, in an open loop.
    target_rate: Option<f64>,
    /// Requests a second that were answered or failed.
    rate: f64,
    requests: u64,
    /// Arrivals that were not sent, because their backlog was full or the run was over.
    late: u64,
    /// Answers with status 429.
    limited: u64,
    pub(crate) errors: u64,
    errors_by_name: BTreeMap<String, u64>,
    all: Row,
    kinds: BTreeMap<&'static str, Row>,
    /// Length of a window in seconds.
    window_seconds: f64,
    windows: Vec<Row>,
}

/// Requests of one kind, or of one window.
#[derive(Clone, Debug, Serialize)]
struct Row {
    requests: u64,
    limited: u64,
    errors: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl Row {
    fn of(tally: &KindTally) -> Row {
        let at = |quantile| tally.latency.value_at_quantile(quantile);
        Row {
            requests: tally.requests,
            limited: tally.limited,
            errors: tally.errors,
            mean: tally.latency.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: tally.latency.max(),
        }
    }
}

impl Report {
    /// Builds the report of a run that took `elapsed`.
    pub(crate) fn new(
        workload: &Workload,
        tally: &Tally,
        late: u64,
        elapsed: Duration,
        interrupted: bool,
    ) -> Report {
        let (loop_kind, target_rate, arrivals) = match workload.pace {
            Pace::Open { rate, arrivals } => ("open", Some(rate), Some(arrivals)),
            Pace::Closed => ("closed", None, None),
        };
        let seconds = elapsed.as_secs_f64();
        Report {
            target: workload.target.url(),
            loop_kind,
            connections: workload.connections,
            arrivals,
            mix: workload.mix,
            users: workload.users.len(),
            seed: workload.seed,
            seconds,
            interrupted,
            target_rate,
            rate: tally.all.requests as f64 / seconds.max(f64::MIN_POSITIVE),
            requests: tally.all.requests,
            late,
            limited: tally.all.limited,
            errors: tally.all.errors,
            errors_by_name: tally.errors.clone(),
            all: Row::of(&tally.all),
            kinds: tally.kinds.iter().map(|(kind, tally)| (kind.name(), Row::of(tally))).collect(),
            window_seconds: tally.window.as_secs_f64(),
            windows: tally.windows.iter().map(Row::of).collect(),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        // Encoding cannot fail: all keys of maps are texts.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Describes the run in one line.
    pub(crate) fn title(&self) -> String {
        let pace = match self.target_rate {
            Some(rate) => format!("{:.1} requests/s of {rate} due", self.rate),
            None => format!("{:.1} requests/s, closed loop", self.rate),
        };
        format!("{pace}, {} connections, {:.1} s", self.connections, self.seconds)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title())?;
        writeln!(
            f,
            "requests {}, errors {}, limited {} (429), late {}",
            self.requests, self.errors, self.limited, self.late
        )?;
        if !self.errors_by_name.is_empty() {
            let mut names = String::new();
            for (name, count) in &self.errors_by_name {
                write!(names, "  {name}: {count}")?;
            }
            writeln!(f, "errors{names}")?;
        }
        if self.late > 0 {
            writeln!(
                f,
                "OVERLOADED: late requests were due but not sent, and no percentile has them; \
                 lower --rate, or raise --connections"
            )?;
        }
        writeln!(
            f,
            "\n{:<10}{:>9}{:>8}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "KIND", "REQUESTS", "ERRORS", "LIMITED", "P50", "P90", "P99", "P99.9", "MAX"
        )?;
        let kinds = self.kinds.iter().map(|(name, row)| (*name, row));
        for (name, row) in kinds.chain([("all", &self.all)]) {
            writeln!(
                f,
                "{name:<10}{:>9}{:>8}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}",
                row.requests,
                row.errors,
                row.limited,
                time(row.p50),
                time(row.p90),
                time(row.p99),
                time(row.p999),
                time(row.max),
            )?;
        }
        Ok(())
    }
}

/// Writes microseconds with a unit and about three digits.
pub(crate) fn time(micros: u64) -> String {
    let micros = micros as f64;
    match micros {
        ..1e3 => format!("{micros:.0} µs"),
        ..1e4 => format!("{:.2} ms", micros / 1e3),
        ..1e5 => format!("{:.1} ms", micros / 1e3),
        ..1e6 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_about_three_digits() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_234, "1.23 ms"),
            (45_678, "45.7 ms"),
            (456_789, "457 ms"),
            (1_234_567, "1.23 s"),
        ] {
            assert_eq!(time(micros), text);
        }
    }
}
