//! The command line and the exit status.
//!
//! 0: at least one runtime ran, and every row is verified. 1: a check failed, a peer crashed, or no
//! runtime could run; for `setup`, a runtime that was named is not ready. 2: a usage error.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use bench_steps::Error;
use clap::{Args, Parser, Subcommand};

use crate::claims::{ClaimError, Ledger};
use crate::compare::{self, Comparison};
use crate::foreign::ForeignRuntime;
use crate::harness::{self, RUNS, Request};
use crate::origin::Origin;
use crate::originals;
use crate::outcome::Line;
use crate::peer::{self, BUILD, Peer, Program};
use crate::report;
use crate::results::{self, Results, ResultsError};
use crate::row::Row;
use crate::runtimes;
use crate::settings::{ALLOCATOR, Allocator, Key, Kind, Settings};
use crate::setup;
use crate::suite::{Measurement, grouped, measurements, suite};
use crate::table;
use crate::workloads::served::Server;
use crate::workloads::{self, Workload};

const SUITE_NAME: &str = "all";

/// Measures throng beside other runtimes doing the same work.
#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a workload, or `all` measurements of the suite, on some runtimes
    Run(Run),
    /// Compare the results of two runs of the suite; exit status 1 if throng became worse
    Compare {
        /// Directory with the results of the first run
        before: PathBuf,
        /// Directory with the results of the second run
        after: PathBuf,
    },
    /// Write a page with all tables and figures of a run of the suite
    Report {
        /// Directory with the results [default: the newest in the directory of bench]
        results: Option<PathBuf>,
        /// Directory with the results of another run: the page marks the ratios that differ there
        #[arg(long, value_name = "DIRECTORY")]
        again: Option<PathBuf>,
        /// Directory for the page and its figures [default: that with the results]
        #[arg(long, value_name = "DIRECTORY")]
        output: Option<PathBuf>,
    },
    /// Write the numbers that the pages state, from the rows that `claims.toml` names; exit status 1 if
    /// a text has a number that nothing explains
    Claims,
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
    /// Run the client of a workload in this process, and print the line of JSON
    #[command(hide = true)]
    Client {
        #[command(flatten)]
        server: ServerArgs,
        #[command(flatten)]
        work: Work,
    },
}

#[derive(Args)]
struct ServerArgs {
    /// Name of the server's row
    #[arg(long)]
    server: String,
    /// Process of the server
    #[arg(long)]
    process: u32,
    /// Address of the server
    #[arg(long)]
    address: SocketAddr,
    /// Version of the server's runtime, if the client prints the line of the run
    #[arg(long, default_value = "")]
    runtime_version: String,
    /// Number of threads of the server, if it is not that of the settings
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    work: Work,
    /// Runtimes to measure, separated by commas [default: every runtime of the workload]
    #[arg(long, value_name = "RUNTIME", value_delimiter = ',')]
    runtime: Vec<String>,
    /// Counted runs per runtime, after a warm-up run that is not counted [default: 5, or 1 with `--quick`]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Print one line of JSON per runtime instead of a table
    #[arg(long)]
    json: bool,
    /// No warm-up, no repeated run and, unless `--runs` is given, a single run; with `all` small counts as well
    #[arg(long)]
    quick: bool,
    /// With `all`: groups of measurements, separated by commas [default: every group]
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    group: Vec<String>,
    /// With `all`: directory for the results [default: results/DATE-MACHINE in the directory of bench]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// With `all`: add the measurements that the directory lacks
    #[arg(long = "continue")]
    continues: bool,
}

#[derive(Args)]
struct Work {
    /// Workload to measure, or `all`; see `list`
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
    #[error("unknown workload `{name}`; known: {}", listed(workloads::all().iter().map(|w| w.name)))]
    Workload { name: String },
    #[error(
        "unknown runtime `{name}`; `{}` runs on {}",
        workload.name,
        listed(runtimes::peers(workload.name).map(|peer| peer.runtime))
    )]
    Runtime { name: String, workload: &'static Workload },
    #[error(
        "`{name}` is no runtime in another language; known: {}",
        listed(runtimes::foreign().iter().map(|runtime| runtime.name))
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
    #[error("`--count`, `--workers` and `--set` are for a single workload; `all` has its own")]
    SettingsOfSuite,
    #[error("`--group`, `--output` and `--continue` are for `run all`")]
    OnlyForSuite,
    #[error("unknown runtime `{name}`; the suite's are {}", listed(suite_runtimes().into_iter()))]
    RuntimeOfSuite { name: String },
    #[error("unknown group `{name}`; known: {}", listed(suite().group.iter().map(|group| group.name)))]
    Group { name: String },
}

/// Runs the command line of a program with this allocator.
pub fn main(allocator: Allocator) -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(run) if run.work.workload == SUITE_NAME => run.measure_suite(),
        Command::Run(run) => run.request().map(|request| measure(&request, run.json)),
        Command::Report { results, again, output } => Ok(report_results(results, again, output)),
        Command::Claims => Ok(write_claims().unwrap_or_else(|error| failed(&error))),
        Command::Compare { before, after } => Ok(compare_results(&before, &after)),
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
        Command::Client { server, work } => work.run_client(server),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

impl Run {
    fn request(&self) -> Result<Request, UsageError> {
        if !self.group.is_empty() || self.output.is_some() || self.continues {
            return Err(UsageError::OnlyForSuite);
        }
        let settings = self.work.settings()?;
        let workload = settings.workload;
        let mut peers: Vec<Peer> = Vec::new();
        for runtime in &self.runtime {
            let peer = find_peer(workload, runtime)?;
            if !peers.iter().any(|known| known.runtime == peer.runtime) {
                peers.push(peer);
            }
        }
        if peers.is_empty() {
            peers.extend(runtimes::peers(workload.name));
        }
        let runs = self.runs.unwrap_or(if self.quick { 1 } else { RUNS });
        Ok(Request {
            peers,
            settings,
            runs,
            warms_up: !self.quick,
            repeats: !self.quick,
            spares_time: false,
            measurement: None,
        })
    }

    fn measure_suite(&self) -> Result<ExitCode, UsageError> {
        if self.work.count.is_some() || self.work.workers.is_some() || !self.work.set.is_empty() {
            return Err(UsageError::SettingsOfSuite);
        }
        let known = suite_runtimes();
        if let Some(name) = self.runtime.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(UsageError::RuntimeOfSuite { name: name.clone() });
        }
        if let Some(name) =
            self.group.iter().find(|name| suite().group.iter().all(|known| known.name != **name))
        {
            return Err(UsageError::Group { name: name.clone() });
        }
        Ok(self.measure_each().unwrap_or_else(|error| failed(&error)))
    }

    fn measure_each(&self) -> Result<ExitCode, ResultsError> {
        let origin = Origin::here();
        let directory =
            self.output.clone().unwrap_or_else(|| results::usual_directory(&origin.machine));
        let mut results = Results::open(&directory, self.continues)?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let is_wanted = |measurement: &Measurement, peer: &Peer| {
            if self.runtime.is_empty() {
                measurement.is_of(peer.runtime)
            } else {
                self.runtime.iter().any(|name| name == peer.runtime)
            }
        };
        let (mut measured, mut unverified) = (0, 0);
        let all = measurements().count();
        for (index, (group, measurement)) in grouped().enumerate() {
            let group = group.name;
            let Some(settings) = measurement.settings(self.quick, cores) else { continue };
            let peers = runtimes::peers(settings.workload.name);
            let peers: Vec<_> = peers.filter(|peer| is_wanted(measurement, peer)).collect();
            let is_other = !self.group.is_empty() && self.group.iter().all(|name| name != group);
            if is_other || results.has(measurement.name) || peers.is_empty() {
                continue;
            }
            eprintln!("{}/{all} {group}: {}", index + 1, measurement.name);
            let runs = self.runs.unwrap_or(measurement.runs(self.quick));
            let request = Request {
                peers,
                settings,
                runs,
                warms_up: !self.quick && measurement.warms_up,
                repeats: !self.quick,
                spares_time: self.runs.is_none(),
                measurement: Some(measurement.name),
            };
            let rows = harness::measure(&request);
            results
                .add(&rows.iter().map(|row| Row::of(&request, &origin, row)).collect::<Vec<_>>())?;
            print(&request, &origin, &rows, self.json);
            measured += rows.len();
            unverified += rows.iter().filter(|row| !row.failures.is_empty()).count();
        }
        eprintln!("{measured} rows in {}, {unverified} not verified", directory.display());
        Ok(if measured == 0 || unverified > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

impl Work {
    fn settings(&self) -> Result<Settings, UsageError> {
        let workload = workloads::find(&self.workload)
            .ok_or_else(|| UsageError::Workload { name: self.workload.clone() })?;
        let workers = match self.workers {
            Some(workers) => usize::from(workers),
            None => thread::available_parallelism().map_or(1, usize::from),
        };
        let count = self.count.unwrap_or(workload.count);
        let mut settings = Settings::new(workload, count, workers);
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
        Ok(settings)
    }

    /// Runs the workload once in this process: the child's side of a run.
    fn run_here(&self, runtime: &str, allocator: Allocator) -> Result<ExitCode, UsageError> {
        let settings = self.settings()?;
        if settings.word(ALLOCATOR.name) != allocator.word() {
            eprintln!("{runtime}: this program has the allocator `{}`", allocator.word());
            return Ok(ExitCode::FAILURE);
        }
        let peer = find_peer(settings.workload, runtime)?;
        let line = peer.run_here(&settings);
        let line = line.unwrap_or_else(|| Err("not part of this program".into()));
        Ok(print_line(runtime, line))
    }

    fn run_client(&self, server: ServerArgs) -> Result<ExitCode, UsageError> {
        let settings = self.settings()?;
        let ServerArgs { server: row, process, address, runtime_version, threads } = server;
        let server = Server { row, process, address };
        let outcome = match workloads::client(settings.workload.name) {
            Some(client) => client(&settings, &server),
            None => Err("the workload has no client".into()),
        };
        let threads = threads.unwrap_or(settings.workers);
        let line = outcome.map(|outcome| outcome.into_line(&runtime_version, threads));
        Ok(print_line(&server.row, line))
    }
}

fn print_line(name: &str, line: Result<Line, Error>) -> ExitCode {
    match line {
        Ok(line) => {
            println!("{}", serde_json::json!(line));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn find_peer(workload: &'static Workload, runtime: &str) -> Result<Peer, UsageError> {
    runtimes::peer(workload.name, runtime)
        .ok_or_else(|| UsageError::Runtime { name: runtime.to_owned(), workload })
}

/// Sets up the named runtimes, or all. Fails if a named runtime is not ready afterwards.
fn set_up(names: &[String], dry: bool) -> Result<ExitCode, UsageError> {
    let mut wanted: Vec<&'static ForeignRuntime> = Vec::new();
    for name in names {
        let found = runtimes::foreign().iter().find(|runtime| runtime.name == name);
        wanted.push(found.ok_or_else(|| UsageError::Foreign { name: name.clone() })?);
    }
    if names.is_empty() {
        wanted.extend(runtimes::foreign());
    }
    let all_ready = setup::run(&wanted, dry);
    Ok(if all_ready || names.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn suite_runtimes() -> Vec<&'static str> {
    let mut names = Vec::new();
    for peer in measurements().flat_map(|measurement| runtimes::peers(measurement.workload().name))
    {
        if !names.contains(&peer.runtime) {
            names.push(peer.runtime);
        }
    }
    names
}

fn compare_results(before: &Path, after: &Path) -> ExitCode {
    match results::read(before).and_then(|before| Ok((before, results::read(after)?))) {
        Ok((before, after)) => {
            let Comparison { text, regressions } = compare::compare(&before, &after);
            print!("{text}");
            if regressions > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => failed(&error),
    }
}

fn report_results(
    from: Option<PathBuf>,
    again: Option<PathBuf>,
    output: Option<PathBuf>,
) -> ExitCode {
    let write = move || -> Result<PathBuf, Box<dyn std::error::Error>> {
        let from =
            from.or_else(results::newest_directory).ok_or("no results; `run all` makes them")?;
        let rows = results::read(&from)?;
        let again = again.map_or_else(|| Ok(Vec::new()), |again| results::read(&again))?;
        let output = output.unwrap_or(from);
        fs::create_dir_all(&output)?;
        report::write(&rows, &again, &output)?;
        Ok(output.join(report::PAGE))
    };
    match write() {
        Ok(page) => {
            println!("{}", page.display());
            ExitCode::SUCCESS
        }
        Err(error) => failed(&*error),
    }
}

fn write_claims() -> Result<ExitCode, ClaimError> {
    let ledger = Ledger::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
    for file in ledger.write()? {
        println!("{file}");
    }
    let unexplained = ledger.unexplained()?;
    unexplained.iter().for_each(|number| eprintln!("{number}"));
    Ok(if unexplained.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {}", harness::with_sources(error));
    ExitCode::FAILURE
}

fn measure(request: &Request, json: bool) -> ExitCode {
    let rows = harness::measure(request);
    print(request, &Origin::here(), &rows, json);
    if rows.is_empty() {
        eprintln!("error: no runtime could run");
    }
    if rows.is_empty() || rows.iter().any(|row| !row.failures.is_empty()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Prints the rows, and on standard error the failures.
fn print(request: &Request, origin: &Origin, rows: &[harness::Row], json: bool) {
    if json {
        for row in rows {
            println!("{}", Row::of(request, origin, row).line());
        }
    } else if !rows.is_empty() {
        print!("{}{}", table::table(request, rows), originals::lines(request, rows));
    }
    for row in rows {
        for failure in &row.failures {
            eprintln!("{}: {failure}", row.peer.runtime);
        }
    }
}

fn list() {
    for workload in workloads::all() {
        println!("{}: {}", workload.name, workload.about);
        println!("  --count {} {}", workload.count, workload.counts);
        for key in workload.all_keys() {
            match key.kind {
                Kind::Text(_) => println!("  --set {}=TEXT  {}", key.name, key.about),
                Kind::Number(default) | Kind::Count(default) => {
                    println!("  --set {}={default}  {}", key.name, key.about)
                }
                Kind::Words(words) => {
                    println!("  --set {}={}  {}", key.name, words.replace(' ', "|"), key.about);
                }
            }
        }
        println!("  metrics: {}", listed(workload.metrics().map(|metric| metric.name)));
        if !workload.measures.is_empty() {
            println!("    {}", workload.measures);
        }
        let runtimes = runtimes::peers(workload.name).map(|peer| match peer.program {
            Program::Here { version, .. } => {
                format!("{} {} ({})", peer.runtime, runtimes::version(version), peer.class)
            }
            Program::Foreign { .. } => format!("{} ({})", peer.runtime, peer.class),
        });
        println!("  runtimes: {}", listed(runtimes));
        for peer in runtimes::peers(workload.name).filter(|peer| !peer.about.is_empty()) {
            println!("    {}: {}", peer.runtime, peer.about);
        }
    }
}

fn listed(names: impl Iterator<Item = impl Into<String>>) -> String {
    names.map(Into::into).collect::<Vec<String>>().join(", ")
}
