//! A peer: one runtime's way to do one workload, run as a process of its own that prints a
//! [`Line`].
//!
//! Every peer takes the same arguments: `WORKLOAD --count N --workers W --set KEY=VALUE…`. One
//! compiled into this program is this program again, under a hidden subcommand; one in another
//! language is a script and the interpreter that must be on the machine.

use std::env;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::outcome::{Line, Outcome};
use crate::settings::Settings;
use crate::workloads::Workload;

/// A runtime by the name of its row, and how it does the workload that lists this peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) runtime: &'static str,
    pub(crate) program: Program,
    /// The words beyond each key's first that this peer does the workload by.
    pub(crate) words: &'static [&'static str],
}

/// Where a peer's code is.
#[derive(Debug)]
pub(crate) enum Program {
    /// In this program.
    Here { version: &'static str, threads: Threads, run: fn(&Settings) -> io::Result<Outcome> },
    /// In a script of `bench/peers`, for an interpreter that is looked for in `PATH`.
    Script {
        interpreter: &'static str,
        script: &'static str,
        /// What the interpreter has to be told beside the arguments.
        environment: fn(&Settings) -> Vec<(&'static str, String)>,
    },
}

/// On how many threads a runtime runs its processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Threads {
    /// As many as the settings say.
    Workers,
    /// One, whatever the settings say.
    One,
}

/// Why a run has no line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The runtime is not on this machine: nothing was run, and nothing is wrong.
    #[error("absent: there is no `{interpreter}`")]
    Absent { interpreter: &'static str },
    /// The runtime has nothing that would do what a setting asks for: nothing was run, and nothing
    /// is wrong.
    #[error("unsupported: it has no `{word}` for this")]
    Unsupported { word: &'static str },
    /// The peer could not be started.
    #[error("could not be started")]
    Start(#[source] io::Error),
    /// The peer ended without saying what it measured; its standard error says why.
    #[error("ended with {0} instead of a result")]
    Died(ExitStatus),
    /// The peer printed something else than one line with the workload's metrics.
    #[error("printed no result but {output:?}: {reason}")]
    Garbled { output: String, reason: String },
}

impl Peer {
    /// A peer that is in this program.
    pub(crate) const fn here(
        runtime: &'static str,
        version: &'static str,
        threads: Threads,
        run: fn(&Settings) -> io::Result<Outcome>,
    ) -> Peer {
        Peer { runtime, program: Program::Here { version, threads, run }, words: &[] }
    }

    /// This peer under another name: a second way to do the same workload with the same runtime.
    pub(crate) const fn named(self, runtime: &'static str) -> Peer {
        Peer { runtime, ..self }
    }

    /// This peer, which knows these words too.
    pub(crate) const fn knowing(self, words: &'static [&'static str]) -> Peer {
        Peer { words, ..self }
    }

    /// Runs the workload once in a fresh process and waits for its line.
    ///
    /// # Errors
    /// See [`RunError`]. A failed verification is not an error: the line tells of it.
    pub(crate) fn run(&self, workload: &Workload, settings: &Settings) -> Result<Line, RunError> {
        if let Some(word) = settings.special_words().find(|word| !self.words.contains(word)) {
            return Err(RunError::Unsupported { word });
        }
        let mut command = self.command(settings).map_err(RunError::Start)?;
        command.arg(workload.name);
        command.arg("--count").arg(settings.count.to_string());
        command.arg("--workers").arg(settings.workers.to_string());
        for (key, value) in settings.keys() {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().map_err(|error| match &self.program {
            Program::Script { interpreter, .. } if error.kind() == io::ErrorKind::NotFound => {
                RunError::Absent { interpreter }
            }
            _ => RunError::Start(error),
        })?;
        if !output.status.success() {
            return Err(RunError::Died(output.status));
        }
        parse(&String::from_utf8_lossy(&output.stdout), workload)
    }

    /// The child's side of [`Peer::run`], for a peer that is in this program.
    ///
    /// # Errors
    /// What kept the workload from running. `None` for a peer that is not in this program.
    pub(crate) fn run_here(&self, settings: &Settings) -> Option<io::Result<Line>> {
        let Program::Here { version, threads, run } = &self.program else { return None };
        let workers = match threads {
            Threads::Workers => settings.workers,
            Threads::One => 1,
        };
        Some(run(settings).map(|outcome| outcome.into_line(version, workers)))
    }

    fn command(&self, settings: &Settings) -> io::Result<Command> {
        match &self.program {
            Program::Here { .. } => {
                let mut command = Command::new(env::current_exe()?);
                command.args(["peer", self.runtime]);
                Ok(command)
            }
            Program::Script { interpreter, script, environment } => {
                let mut command = Command::new(interpreter);
                command.envs(environment(settings));
                command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(script));
                Ok(command)
            }
        }
    }
}

/// A peer's output as its line, which must have each of the workload's metrics and no other.
fn parse(output: &str, workload: &Workload) -> Result<Line, RunError> {
    let garbled = |reason: String| RunError::Garbled { output: output.to_owned(), reason };
    let line: Line = serde_json::from_str(output).map_err(|error| garbled(error.to_string()))?;
    for metric in workload.metrics() {
        if !line.metrics.get(metric.name).is_some_and(serde_json::Value::is_f64) {
            return Err(garbled(format!("{} is not there, or not a float", metric.name)));
        }
    }
    if line.metrics.len() != workload.metrics().count() {
        return Err(garbled("there are metrics that the workload does not have".to_owned()));
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
    fn anything_else_is_garbled() {
        let workload = workloads::find("send").expect("the workload exists");
        assert!(matches!(parse("hello", workload), Err(RunError::Garbled { .. })));
    }
}
