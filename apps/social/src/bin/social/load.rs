//! `social load`: sends requests to a running node, and reports their latencies.
//!
//! ```text
//! users registered ► run (see `load/drive.rs`) ► table on standard output, --json, --plot
//! ```
//!
//! Only the public interface is used. The exit status is 1 if a request had an error; an answer 429
//! is no error, because a node that is overloaded should give it.

mod drive;
mod plot;
mod report;
pub(crate) mod schedule;
mod tally;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::drive::{Pace, Run, User, Workload};
use self::report::Report;
use self::schedule::{Arrivals, Mix};
use crate::api::{ApiError, Call, Connection, Target};
use crate::trust::TrustError;
use throng_node::Signals;

/// Arguments of `social load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// URL of the node, such as http://127.0.0.1:7070
    target: Target,

    /// File with certificates in PEM of authorities that are trusted as well as the authorities of the system
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,

    /// Requests a second, whether or not earlier ones are answered (an open loop)
    #[arg(long, value_name = "NUMBER", value_parser = parse_rate)]
    #[arg(
        default_value = "100",
        default_value_if("connections", clap::builder::ArgPredicate::IsPresent, None)
    )]
    rate: Option<f64>,

    /// Connections: at most so many for --rate (64 if not given), or exactly so many in a closed loop
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: Option<u16>,

    /// Distribution of the times between requests of an open loop
    #[arg(long, value_name = "DISTRIBUTION", value_enum, default_value_t = Arrivals::Poisson)]
    arrivals: Arrivals,

    /// Duration of the run; Ctrl-C ends it earlier, with its results
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,

    /// Shares of requests: `reads` (timelines, profiles and users' posts), `posts`, `follows`, and
    /// `rooms` (messages by WebSockets)
    #[arg(long, default_value = "reads=80,posts=15,follows=5")]
    mix: Mix,

    /// Users that send the requests; those that the node lacks are registered, which takes the node
    /// some 30 ms of a core for each
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=100_000))]
    users: u32,

    /// Seed of the schedule, the requests, and the users' names and passwords
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a plot of the latencies, by percentile and over time, to this file as SVG
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Error in loading a node, apart from the errors of single requests.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error("cannot install the handlers of SIGINT and SIGTERM")]
    Signals(#[source] io::Error),
    #[error("cannot print the results")]
    Print(#[source] io::Error),
    #[error("cannot write the results to {path}")]
    Write { path: PathBuf, source: io::Error },
}

impl LoadArgs {
    pub(crate) fn run(self) -> Result<ExitCode, LoadError> {
        // One thread: it sends more than a node on the same machine can answer.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(LoadError::Runtime)?.block_on(self.load())
    }

    async fn load(self) -> Result<ExitCode, LoadError> {
        let target = match self.trust {
            Some(file) => self.target.trusting(&file)?,
            None => self.target,
        };
        let connections = usize::from(self.connections.unwrap_or(CONNECTIONS));
        let pace = match self.rate {
            Some(rate) => Pace::Open { rate, arrivals: self.arrivals },
            None => Pace::Closed,
        };
        let workload = Workload {
            users: register(&target, self.seed, self.users).await?,
            target,
            pace,
            connections,
            mix: self.mix,
            seed: self.seed,
            duration: self.duration,
        };
        let mut signals = Signals::listen_at_terminal().map_err(LoadError::Signals)?;
        let run = Arc::new(Run::new(workload.clone()).await?);
        let start = Instant::now();
        let mut workers = run.start();
        let bar = bar(LOAD_BAR, self.duration.as_secs());
        let mut shown = (start, 0);
        let mut interrupted = false;
        loop {
            tokio::select! {
                worker = workers.join_next() => if worker.is_none() { break },
                () = signals.stop() => { interrupted = true; break }
                () = tokio::time::sleep(TICK) => shown = show(&bar, &run, start, shown),
            }
            if start.elapsed() >= self.duration {
                break;
            }
        }
        let elapsed = start.elapsed().min(self.duration);
        if interrupted {
            run.stop();
        }
        tokio::select! {
            () = run.finish(&mut workers) => {}
            () = signals.stop() => {}
        }
        run.close(workers).await;
        bar.finish_and_clear();
        let report = Report::new(&workload, &run.tally(), run.late(), elapsed, interrupted);
        let printed = io::stdout().lock().write_all(report.to_string().as_bytes());
        printed.map_err(LoadError::Print)?;
        if let Some(path) = self.json {
            write(path, report.to_json())?;
        }
        if let Some(path) = self.plot {
            write(path, plot::draw(&report, &run.tally()))?;
        }
        Ok(if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Shows the state of the run; returns the moment and the number of requests then.
fn show(
    bar: &ProgressBar,
    run: &Run,
    start: Instant,
    (before, requests_before): (Instant, u64),
) -> (Instant, u64) {
    let now = Instant::now();
    let tally = run.tally();
    let rate = (tally.all.requests - requests_before) as f64 / (now - before).as_secs_f64();
    bar.set_position(start.elapsed().as_secs());
    bar.set_message(format!(
        "{rate:.0}/s, {} errors, {} late, p99 {}",
        tally.all.errors,
        run.late(),
        report::time(tally.all.latency.value_at_quantile(0.99)),
    ));
    (now, tally.all.requests)
}

/// Registers the users that the node lacks, and logs the others in.
async fn register(target: &Target, seed: u64, users: u32) -> Result<Vec<User>, ApiError> {
    Connection::new(target.clone()).expect(Call::get("/api/v1/health")).await?;
    let bar = bar(USERS_BAR, users.into());
    if users < BAR_USERS {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let entered = stream::iter(0..users).map(|number| {
        let bar = &bar;
        async move {
            let name = format!("load_{seed}_{number}");
            let password = password(seed, number);
            let token = Connection::new(target.clone()).enter(&name, &password).await?;
            bar.inc(1);
            Ok(User { name, token })
        }
    });
    let users = entered.buffered(REGISTRATIONS).try_collect().await;
    bar.finish_and_clear();
    users
}

/// Returns the password of a user, which follows from the seed, so that a later run can log in.
pub(crate) fn password(seed: u64, number: u32) -> String {
    let mut rng = fastrand::Rng::with_seed(seed ^ (u64::from(number) << 32));
    std::iter::repeat_with(|| rng.alphanumeric()).take(16).collect()
}

fn write(path: PathBuf, text: String) -> Result<(), LoadError> {
    std::fs::write(&path, text).map_err(|source| LoadError::Write { path, source })
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a rate is a number from 0.01 to 1000000")]
pub(crate) struct RateError;

pub(crate) fn parse_rate(text: &str) -> Result<f64, RateError> {
    let rate = text.parse().map_err(|_| RateError)?;
    if (0.01..=1e6).contains(&rate) { Ok(rate) } else { Err(RateError) }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a run takes from 1ms to 30d, such as 30s or 15m")]
pub(crate) struct RunDurationError;

pub(crate) fn parse_duration(text: &str) -> Result<Duration, RunDurationError> {
    let limits = Duration::from_millis(1)..=Duration::from_secs(30 * 24 * 60 * 60);
    humantime::parse_duration(text)
        .ok()
        .filter(|time| limits.contains(time))
        .ok_or(RunDurationError)
}

/// Connections of an open loop, if not given: enough for 64 requests in flight.
const CONNECTIONS: u16 = 64;

/// Registrations at once. The node hashes few passwords at once, so more would only queue there.
const REGISTRATIONS: usize = 4;

/// Number of users from which on their registration takes seconds, and shows its progress.
const BAR_USERS: u32 = 30;

/// Time between two updates of the progress bar.
const TICK: Duration = Duration::from_millis(250);

const USERS_BAR: &str = "{bar:40} {pos} of {len} users, {eta} to go";
const LOAD_BAR: &str = "{bar:40} {pos} of {len} s, {msg}";

/// Makes a progress bar, which is drawn on standard error if that is a terminal.
pub(crate) fn bar(template: &str, length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn line(flags: &[&str]) -> Result<LoadArgs, clap::Error> {
        let line = ["load", "http://a:1"].iter().chain(flags);
        Line::try_parse_from(line).map(|line| line.load)
    }

    #[test]
    fn connections_alone_are_a_closed_loop() {
        assert_eq!(line(&[]).unwrap().rate, Some(100.0));
        assert_eq!(line(&["--connections", "5"]).unwrap().rate, None);
        let both = line(&["--connections", "5", "--rate", "7"]).unwrap();
        assert_eq!((both.rate, both.connections), (Some(7.0), Some(5)));
        for wrong in [
            ["--rate", "0"],
            ["--rate", "nan"],
            ["--users", "1"],
            ["--connections", "0"],
            ["--duration", "0s"],
            ["--mix", "reads=0"],
        ] {
            assert!(line(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_password_follows_from_the_seed_and_the_number() {
        assert_eq!(password(1, 2), password(1, 2));
        assert!(password(1, 2) != password(1, 3) && password(1, 2) != password(2, 2));
    }
}
