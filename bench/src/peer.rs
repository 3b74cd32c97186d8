//! A peer: the implementation of a workload on a runtime, run as a separate process that prints a
//! [`Line`].
//!
//! Every peer takes the same arguments: `WORKLOAD --count N --workers W --set KEY=VALUE…`. For a
//! peer compiled into this program the process is this program again, with a hidden subcommand; a
//! peer in another language is a program of its own: see [`foreign`](crate::foreign).

use std::env;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use bench_steps::Error;
use serde::Deserialize;
use wait4::{ResUse, ResourceUsage, Wait4};

use crate::foreign::{Absence, ForeignRow, ForeignRuntime};
use crate::limits::{self, Beyond, Limit};
use crate::outcome::Line;
use crate::runtimes;
use crate::settings::{self, ALLOCATOR, Settings};
use crate::workloads::latency::{self, PROBABILITIES};
use crate::workloads::{self, Workload};

/// A mark of the sources that this program was built from. `cargo run` builds a single program, so the
/// program with another allocator may be older; it must not be measured as the same.
pub(crate) const BUILD: &str = env!("BUILD");

/// The error of a program whose [`BUILD`] differs from that of the program that starts it.
pub(crate) const STALE: &str = "built from other sources than the program that started this one; \
                                `cargo build` builds both";

/// A runtime, by the name of its row, for a workload that has the row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) runtime: &'static str,
    /// Difference to the runtime's default row.
    pub(crate) about: &'static str,
    /// Kind of the runtime's processes: figures of different classes buy different things.
    pub(crate) class: &'static str,
    pub(crate) program: Program,
    /// The values of word keys that this peer supports besides each key's default.
    pub(crate) words: &'static str,
    pub(crate) limits: &'static [Limit],
}

/// The program that a peer runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    Here { version: &'static str, threads: Threads },
    Foreign { runtime: &'static ForeignRuntime, row: &'static ForeignRow },
}

/// The number of threads on which a runtime runs its processes.
#[derive(Deserialize, Clone, Copy, Default, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Threads {
    #[default]
    Workers,
    One,
    /// Every core: a process is a thread, which the system schedules.
    Cores,
}

/// A run that produced no line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The runtime is not installed or not built: nothing was run, and nothing is wrong.
    #[error("absent: {0}")]
    Absent(#[from] Absence),
    /// The program with the allocator is not there: nothing was run, and nothing is wrong.
    #[error("absent: no program with this allocator beside this one; `cargo build` builds it")]
    NotBuilt,
    /// The peer does not support the value of a setting: nothing was run, and nothing is wrong.
    #[error("unsupported: this runtime has no `{word}` for this workload")]
    Unsupported { word: &'static str },
    /// The settings are beyond a limit of the peer: nothing was run, and nothing is wrong.
    #[error("unsupported: {0}")]
    Beyond(#[from] Beyond),
    #[error("could not be started")]
    Start(#[source] io::Error),
    #[error("could not be awaited")]
    Lost(#[source] io::Error),
    /// The peer failed without a result; its standard error has the reason.
    #[error("failed without a result ({0})")]
    Died(ExitStatus),
    /// The peer printed something other than a line with exactly the workload's metrics.
    #[error("printed {output:?} instead of a result: {reason}")]
    Garbled { output: String, reason: String },
}

impl Peer {
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), RunError> {
        if let Some(word) = settings.special_words().find(|word| !self.supports(word)) {
            return Err(RunError::Unsupported { word });
        }
        Ok(limits::check(self.limits, settings)?)
    }

    /// Runs the workload once in a fresh process and waits for its line and its end; returns also the
    /// resources that the process used.
    pub(crate) fn run(&self, settings: &Settings) -> Result<(Line, ResourceUsage), RunError> {
        self.check(settings)?;
        let workload = settings.workload;
        let mut command = self.command(settings)?;
        command.arg(workload.name);
        command.arg("--count").arg(settings.count.to_string());
        command.arg("--workers").arg(settings.workers.to_string());
        for (key, value) in self.keys(settings) {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().map_err(|error| match &self.program {
            Program::Foreign { runtime, row } if error.kind() == io::ErrorKind::NotFound => {
                runtime.absence(row).into()
            }
            Program::Here { .. } if error.kind() == io::ErrorKind::NotFound => RunError::NotBuilt,
            _ => RunError::Start(error),
        })?;
        let mut output = Vec::new();
        if let Some(stdout) = &mut child.stdout {
            stdout.read_to_end(&mut output).map_err(RunError::Lost)?;
        }
        let ResUse { status, rusage } = child.wait4().map_err(RunError::Lost)?;
        if !status.success() {
            return Err(RunError::Died(status));
        }
        Ok((parse(&String::from_utf8_lossy(&output), workload)?, rusage))
    }

    /// Runs the workload in this process: the child's side of [`Peer::run`]. Returns `None` for a
    /// peer in another language.
    pub(crate) fn run_here(&self, settings: &Settings) -> Option<Result<Line, Error>> {
        let Program::Here { version, threads } = &self.program else { return None };
        let workers = match threads {
            Threads::Workers => settings.workers,
            Threads::One => 1,
            Threads::Cores => thread::available_parallelism().map_or(1, usize::from),
        };
        let version = runtimes::version(version);
        let outcome = workloads::run(self.runtime, settings);
        Some(outcome.map(|outcome| outcome.into_line(&version, workers)))
    }

    /// The name and value of every setting that concerns the peer: the allocator is that of this program
    /// only.
    pub(crate) fn keys(
        &self,
        settings: &Settings,
    ) -> impl Iterator<Item = (&'static str, settings::Value)> {
        let is_here = self.is_here();
        settings.keys().filter(move |(name, _)| is_here || *name != ALLOCATOR.name)
    }

    pub(crate) fn is_here(&self) -> bool {
        matches!(self.program, Program::Here { .. })
    }

    fn supports(&self, word: &str) -> bool {
        self.words.split(' ').any(|known| known == word)
            || self.is_here() && ALLOCATOR.kind.parse(word).is_some()
    }

    fn command(&self, settings: &Settings) -> Result<Command, RunError> {
        match &self.program {
            Program::Here { .. } => {
                let mut command = Command::new(
                    program_with(settings.word(ALLOCATOR.name)).map_err(RunError::Start)?,
                );
                command.args(["peer", self.runtime, "--build", BUILD]);
                Ok(command)
            }
            Program::Foreign { runtime, row } => Ok(runtime.command(row, settings)?),
        }
    }
}

/// The program with an allocator: this one for the system's, otherwise the one beside it.
fn program_with(allocator: &str) -> io::Result<PathBuf> {
    let bench = env::current_exe()?;
    Ok(match allocator {
        "system" => bench,
        other => bench.with_file_name(format!("bench-{other}{}", env::consts::EXE_SUFFIX)),
    })
}

/// Parses a peer's output, which must have each of the workload's metrics that no setting leaves out, and none that
/// is not the workload's. Percentiles are read from the distributions, so that no peer computes them as well.
fn parse(output: &str, workload: &Workload) -> Result<Line, RunError> {
    let garbled = |reason: String| RunError::Garbled { output: output.to_owned(), reason };
    let mut line: Line =
        serde_json::from_str(output).map_err(|error| garbled(error.to_string()))?;
    for metric in workload.metrics() {
        if let Some(value) = latency::percentile(metric.name, &line.quantiles) {
            line.metrics.insert(metric.name.to_owned(), value.into());
        }
        let value = line.metrics.get(metric.name);
        if !value.map_or(metric.is_optional, serde_json::Value::is_f64) {
            return Err(garbled(format!("the metric {} is missing or not a float", metric.name)));
        }
    }
    let is_known = |name: &String| workload.metrics().any(|metric| metric.name == name);
    if !line.metrics.keys().all(is_known) {
        return Err(garbled("there are metrics that the workload does not define".to_owned()));
    }
    if let Some((name, _)) =
        line.quantiles.iter().find(|(_, values)| values.len() != PROBABILITIES.len())
    {
        return Err(garbled(format!("the quantiles of {name} are not {}", PROBABILITIES.len())));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads;

    fn parse_send(metrics: &str) -> Result<Line, RunError> {
        let workload = workloads::find("send").expect("the workload exists");
        let output =
            format!(r#"{{"version":"1","workers":1,"metrics":{{{metrics}}},"failures":[]}}"#);
        parse(&output, workload)
    }

    #[test]
    fn a_line_must_have_exactly_the_metrics_of_the_workload() {
        assert!(parse_send(r#""send_ns":1.0,"delivered_ns":2.5"#).is_ok());
        for metrics in [
            r#""send_ns":1.0"#,
            r#""send_ns":1.0,"delivered_ns":"fast""#,
            r#""send_ns":1.0,"delivered_ns":2.5,"extra":3.0"#,
        ] {
            assert!(matches!(parse_send(metrics), Err(RunError::Garbled { .. })), "{metrics}");
        }
    }

    #[test]
    fn a_line_may_lack_metrics_that_settings_leave_out() {
        let workload = workloads::find("social").expect("the workload exists");
        let parse = |metrics: &str, distributions: &[&str]| {
            let quantiles = distributions.iter().map(|name| format!(r#""{name}":{:?}"#, [1.0; 10]));
            let quantiles = quantiles.collect::<Vec<_>>().join(",");
            let output = format!(
                r#"{{"version":"1","workers":1,"metrics":{{{metrics}}},"failures":[],"quantiles":{{{quantiles}}}}}"#
            );
            super::parse(&output, workload)
        };
        let right = r#""profiles_per_s":1.0,"round_mean_ns":1.0,"register_ns":1.0"#;
        let both = ["latency", "round"];
        let line = parse(right, &both).expect("the line is complete");
        assert_eq!(line.metrics["p99_ns"], 1.0, "a percentile comes from its distribution");
        assert!(matches!(parse(right, &["latency"]), Err(RunError::Garbled { .. })));
        for wrong in [r#""profiles_per_s":"fast""#, r#""extra":1.0"#] {
            assert!(matches!(parse(wrong, &both), Err(RunError::Garbled { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_distribution_has_all_quantiles() {
        let with = |values: &str| {
            parse_send(&format!(
                r#""send_ns":1.0,"delivered_ns":2.5}},"quantiles":{{"late":[{values}]"#
            ))
        };
        assert!(with("0,1,2,3,4,5,6,7,8,9").is_ok_and(|line| line.quantiles["late"][9] == 9.0));
        assert!(matches!(with("0,1,2"), Err(RunError::Garbled { .. })));
    }

    #[test]
    fn output_that_is_no_json_is_garbled() {
        let workload = workloads::find("send").expect("the workload exists");
        assert!(matches!(parse("hello", workload), Err(RunError::Garbled { .. })));
    }
}
