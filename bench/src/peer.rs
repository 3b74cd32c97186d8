//! A peer: the implementation of a workload on a runtime, run as a separate process that prints a
//! [`Line`].
//!
//! Every peer takes the same arguments: `WORKLOAD --count N --workers W --set KEY=VALUE…`. For a
//! peer compiled into this program the process is this program again, with a hidden subcommand; a
//! peer in another language is a script, run by an interpreter that must be installed.

use std::env;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use wait4::{ResUse, ResourceUsage, Wait4};

use crate::outcome::{Line, Outcome};
use crate::settings::{self, ALLOCATOR, Settings};
use crate::workloads::Workload;

/// A mark of the sources that this program was built from. `cargo run` builds a single program, so the
/// program with another allocator may be older; it must not be measured as the same.
pub(crate) const BUILD: &str = env!("BUILD");

/// The error of a program whose [`BUILD`] differs from that of the program that starts it.
pub(crate) const STALE: &str = "built from other sources than the program that started this one; \
                                `cargo build` builds both";

/// A runtime, by the name of its row, and its implementation of the workload that lists this peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) runtime: &'static str,
    pub(crate) program: Program,
    /// The values of word keys that this peer supports besides each key's default.
    pub(crate) words: &'static [&'static str],
}

/// The program that a peer runs.
#[derive(Debug)]
pub(crate) enum Program {
    /// A function of this program.
    Here { version: &'static str, threads: Threads, run: fn(&Settings) -> io::Result<Outcome> },
    /// A script in `bench/peers`, for an interpreter that is searched for in `PATH`.
    Script {
        interpreter: &'static str,
        script: &'static str,
        /// Number of processes that the workload starts, at most.
        processes: fn(&Settings) -> u64,
        /// Environment variables for the interpreter, in addition to the arguments, given the number
        /// of processes and of workers.
        environment: fn(u64, usize) -> Vec<(&'static str, String)>,
    },
}

/// The number of threads on which a runtime runs its processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Threads {
    /// [`Settings::workers`] threads.
    Workers,
    /// A single thread, regardless of the settings.
    One,
}

/// A run that produced no line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The runtime is not installed: nothing was run, and nothing is wrong.
    #[error("absent: `{interpreter}` is not installed")]
    Absent { interpreter: &'static str },
    /// The program with the allocator is not there: nothing was run, and nothing is wrong.
    #[error("absent: no program with this allocator beside this one; `cargo build` builds it")]
    NotBuilt,
    /// The peer does not support the value of a setting: nothing was run, and nothing is wrong.
    #[error("unsupported: this runtime has no `{word}` for this workload")]
    Unsupported { word: &'static str },
    /// The peer could not be started.
    #[error("could not be started")]
    Start(#[source] io::Error),
    /// The peer's output or end could not be awaited.
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
    /// Creates a peer that is a function of this program.
    pub(crate) const fn here(
        runtime: &'static str,
        version: &'static str,
        threads: Threads,
        run: fn(&Settings) -> io::Result<Outcome>,
    ) -> Peer {
        Peer { runtime, program: Program::Here { version, threads, run }, words: &[] }
    }

    /// Renames the peer: for a second implementation of a workload on the same runtime.
    pub(crate) const fn named(self, runtime: &'static str) -> Peer {
        Peer { runtime, ..self }
    }

    /// Sets the values of word keys that the peer supports besides each key's default.
    pub(crate) const fn knowing(self, words: &'static [&'static str]) -> Peer {
        Peer { words, ..self }
    }

    /// Runs the workload once in a fresh process and waits for its line and its end; returns also the
    /// resources that the process used.
    ///
    /// # Errors
    /// See [`RunError`]. A failed verification is not an error: the line reports it.
    pub(crate) fn run(
        &self,
        workload: &Workload,
        settings: &Settings,
    ) -> Result<(Line, ResourceUsage), RunError> {
        if let Some(word) = settings.special_words().find(|word| !self.supports(word)) {
            return Err(RunError::Unsupported { word });
        }
        let mut command = self.command(settings).map_err(RunError::Start)?;
        command.arg(workload.name);
        command.arg("--count").arg(settings.count.to_string());
        command.arg("--workers").arg(settings.workers.to_string());
        for (key, value) in self.keys(settings) {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().map_err(|error| match &self.program {
            Program::Script { interpreter, .. } if error.kind() == io::ErrorKind::NotFound => {
                RunError::Absent { interpreter }
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
    /// peer that is a script.
    ///
    /// # Errors
    /// If the workload could not run.
    pub(crate) fn run_here(&self, settings: &Settings) -> Option<io::Result<Line>> {
        let Program::Here { version, threads, run } = &self.program else { return None };
        let workers = match threads {
            Threads::Workers => settings.workers,
            Threads::One => 1,
        };
        Some(run(settings).map(|outcome| outcome.into_line(version, workers)))
    }

    /// The name and value of every setting that concerns the peer: the allocator is none of a
    /// script's.
    pub(crate) fn keys(
        &self,
        settings: &Settings,
    ) -> impl Iterator<Item = (&'static str, settings::Value)> {
        let is_here = matches!(self.program, Program::Here { .. });
        settings.keys().filter(move |(name, _)| is_here || *name != ALLOCATOR.name)
    }

    fn supports(&self, word: &str) -> bool {
        let is_here = matches!(self.program, Program::Here { .. });
        self.words.contains(&word) || is_here && ALLOCATOR.kind.parse(word).is_some()
    }

    fn command(&self, settings: &Settings) -> io::Result<Command> {
        match &self.program {
            Program::Here { .. } => {
                let mut command = Command::new(program_with(settings.word(ALLOCATOR.name))?);
                command.args(["peer", self.runtime, "--build", BUILD]);
                Ok(command)
            }
            Program::Script { interpreter, script, processes, environment } => {
                let mut command = Command::new(interpreter);
                command.envs(environment(processes(settings), settings.workers));
                command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(script));
                Ok(command)
            }
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

/// Parses a peer's output, which must have each of the workload's metrics and no other.
fn parse(output: &str, workload: &Workload) -> Result<Line, RunError> {
    let garbled = |reason: String| RunError::Garbled { output: output.to_owned(), reason };
    let line: Line = serde_json::from_str(output).map_err(|error| garbled(error.to_string()))?;
    for metric in workload.metrics() {
        if !line.metrics.get(metric.name).is_some_and(serde_json::Value::is_f64) {
            return Err(garbled(format!("the metric {} is missing or not a float", metric.name)));
        }
    }
    if line.metrics.len() != workload.metrics().count() {
        return Err(garbled("there are metrics that the workload does not define".to_owned()));
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
    fn output_that_is_no_json_is_garbled() {
        let workload = workloads::find("send").expect("the workload exists");
        assert!(matches!(parse("hello", workload), Err(RunError::Garbled { .. })));
    }
}
