//! The command line and the exit status.
//!
//! 0: at least one runtime ran, and every row is verified. 1: a check failed, a peer crashed, or no
//! runtime could run; for `setup`, a runtime that was named is not ready. 2: a usage error.

use std::process::ExitCode;
use std::thread;

use clap::{Args, Parser, Subcommand};

use crate::harness::{self, Request};
use crate::origin::Origin;
use crate::peer::{self, BUILD, Peer, Program};
use crate::report;
use crate::runtimes::FOREIGN;
use crate::settings::{ALLOCATOR, Allocator, Key, Kind, Settings};
use crate::setup;
use crate::workloads::{self, Workload};

/// Measures throng beside other runtimes doing the same work.
#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a workload on some runtimes
    Run(Run),
    /// List the workloads with their settings, metrics and runtimes
    List,
    /// Install and build the runtimes in other languages
    Setup {
        /// Runtimes to set up [default: all in other languages]
        runtime: Vec<String>,
        /// Print the commands, and run none of them
        #[arg(long)]
        dry_run: bool,
    },
    /// Run a workload once in this process and print its line of JSON
    #[command(hide = true)]
    Peer {
        runtime: String,
        /// Build of the program that starts this one, which must be its own
        #[arg(long)]
        build: Option<String>,
        #[command(flatten)]
        work: Work,
    },
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    work: Work,
    /// Runtimes to measure, separated by commas [default: every runtime of the workload]
    #[arg(long, value_name = "RUNTIME", value_delimiter = ',')]
    runtime: Vec<String>,
    /// Counted runs per runtime, after a warm-up run that is not counted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Print one line of JSON per runtime instead of a table
    #[arg(long)]
    json: bool,
}

/// A workload with its settings.
#[derive(Args)]
struct Work {
    /// Workload to measure; see `list`
    workload: String,
    /// Number of processes, messages or entries [default: set by the workload; see `list`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Worker threads [default: the number of cores]
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Setting of the workload; may be repeated; see `list`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Names a workload, runtime, setting or value that does not exist, and lists the existing ones.
#[derive(Debug, thiserror::Error)]
enum UsageError {
    #[error("unknown workload `{name}`; known: {}", listed(workloads::ALL.iter().map(|w| w.name)))]
    Workload { name: String },
    #[error(
        "unknown runtime `{name}`; `{}` runs on {}",
        workload.name,
        listed(workload.all_peers().map(|peer| peer.runtime))
    )]
    Runtime { name: String, workload: &'static Workload },
    #[error(
        "`{name}` is no runtime in another language; known: {}",
        listed(FOREIGN.iter().map(|runtime| runtime.name))
    )]
    Foreign { name: String },
    #[error(
        "unknown setting `{name}`; the settings of `{}` are {}",
        workload.name,
        listed(workload.all_keys().map(|key| key.name))
    )]
    Key { name: String, workload: &'static Workload },
    #[error("invalid value `{value}` for `{}`; expected {}", key.name, key.kind)]
    Value { value: String, key: &'static Key },
    #[error(
        "invalid setting `{setting}`; expected KEY=VALUE, where KEY is one of {}",
        listed(workload.all_keys().map(|key| key.name))
    )]
    Setting { setting: String, workload: &'static Workload },
}

/// Runs the command line of a program with this allocator.
pub fn main(allocator: Allocator) -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(run) => run.request().map(|request| measure(&request, run.json)),
        Command::List => {
            list();
            Ok(ExitCode::SUCCESS)
        }
        Command::Setup { runtime, dry_run } => set_up(&runtime, dry_run),
        Command::Peer { build: Some(build), .. } if build != BUILD => {
            eprintln!("{}", peer::STALE);
            Ok(ExitCode::FAILURE)
        }
        Command::Peer { runtime, work, .. } => work.run_here(&runtime, allocator),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

impl Run {
    fn request(&self) -> Result<Request, UsageError> {
        let (workload, settings) = self.work.settings()?;
        let mut peers: Vec<Peer> = Vec::new();
        for runtime in &self.runtime {
            let peer = find_peer(workload, runtime)?;
            if !peers.iter().any(|known| known.runtime == peer.runtime) {
                peers.push(peer);
            }
        }
        if peers.is_empty() {
            peers.extend(workload.all_peers());
        }
        Ok(Request { workload, peers, settings, runs: self.runs })
    }
}

impl Work {
    fn settings(&self) -> Result<(&'static Workload, Settings), UsageError> {
        let workload = workloads::find(&self.workload)
            .ok_or_else(|| UsageError::Workload { name: self.workload.clone() })?;
        let workers = match self.workers {
            Some(workers) => usize::from(workers),
            None => thread::available_parallelism().map_or(1, usize::from),
        };
        let count = self.count.unwrap_or(workload.count);
        let mut settings = Settings::new(count, workers, workload.keys);
        for setting in &self.set {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| UsageError::Setting { setting: setting.clone(), workload })?;
            let key = workload
                .key(name)
                .ok_or_else(|| UsageError::Key { name: name.to_owned(), workload })?;
            let value = key
                .kind
                .parse(value)
                .ok_or_else(|| UsageError::Value { value: value.to_owned(), key })?;
            settings.set(name, value);
        }
        Ok((workload, settings))
    }

    /// Runs the workload once in this process: the child's side of a run.
    fn run_here(&self, runtime: &str, allocator: Allocator) -> Result<ExitCode, UsageError> {
        let (workload, settings) = self.settings()?;
        if settings.word(ALLOCATOR.name) != allocator.word() {
            eprintln!("{runtime}: this program has the allocator `{}`", allocator.word());
            return Ok(ExitCode::FAILURE);
        }
        let peer = find_peer(workload, runtime)?;
        match peer.run_here(&settings) {
            Some(Ok(line)) => {
                println!("{}", serde_json::json!(line));
                Ok(ExitCode::SUCCESS)
            }
            Some(Err(error)) => {
                eprintln!("{runtime}: {error}");
                Ok(ExitCode::FAILURE)
            }
            None => {
                eprintln!("{runtime}: not part of this program");
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

fn find_peer(workload: &'static Workload, runtime: &str) -> Result<Peer, UsageError> {
    workload.peer(runtime).ok_or_else(|| UsageError::Runtime { name: runtime.to_owned(), workload })
}

/// Sets up the named runtimes, or all. Fails if a named runtime is not ready afterwards.
fn set_up(names: &[String], dry: bool) -> Result<ExitCode, UsageError> {
    let mut runtimes = Vec::new();
    for name in names {
        let found = setup::find(name);
        runtimes.push(found.ok_or_else(|| UsageError::Foreign { name: name.clone() })?);
    }
    if names.is_empty() {
        runtimes.extend(FOREIGN);
    }
    let all_ready = setup::run(&runtimes, dry);
    Ok(if all_ready || names.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(request: &Request, json: bool) -> ExitCode {
    let rows = harness::measure(request);
    if json {
        let origin = Origin::here();
        for row in &rows {
            println!("{}", report::json_line(request, &origin, row));
        }
    } else if !rows.is_empty() {
        print!("{}", report::table(request, &rows));
    }
    for row in &rows {
        for failure in &row.failures {
            eprintln!("{}: {failure}", row.peer.runtime);
        }
    }
    if rows.is_empty() {
        eprintln!("error: no runtime could run");
    }
    if rows.is_empty() || rows.iter().any(|row| !row.failures.is_empty()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn list() {
    for workload in workloads::ALL {
        println!("{}: {}", workload.name, workload.about);
        println!("  --count {} {}", workload.count, workload.counts);
        for key in workload.all_keys() {
            match key.kind {
                Kind::Text => println!("  --set {}=TEXT  {}", key.name, key.about),
                Kind::Number(default) | Kind::Count(default) => {
                    println!("  --set {}={default}  {}", key.name, key.about)
                }
                Kind::Word(words) => {
                    println!("  --set {}={}  {}", key.name, words.join("|"), key.about);
                }
            }
        }
        println!("  metrics: {}", listed(workload.metrics().map(|metric| metric.name)));
        let runtimes = workload.all_peers().map(|peer| match peer.program {
            Program::Here { version, .. } => {
                format!("{} {version} ({})", peer.runtime, peer.class.name())
            }
            Program::Foreign { .. } => format!("{} ({})", peer.runtime, peer.class.name()),
        });
        println!("  runtimes: {}", listed(runtimes));
    }
}

fn listed(names: impl Iterator<Item = impl Into<String>>) -> String {
    names.map(Into::into).collect::<Vec<String>>().join(", ")
}
