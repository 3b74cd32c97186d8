//! Durable counters, queues of jobs and workflows on databases, for the workloads `durable-turns`, `durable-http`,
//! `queue` and `workflow` of bench/src/workloads, by the steps and with the checks of bench/steps.
//!
//! ```text
//! peer skip-locked | apalis-sqlite | apalis-postgres | durare-sqlite | durare-postgres
//!      | redis | postgres-rows | postgres-calls | sqlite-writer | rocksdb
//!      WORKLOAD --count N --workers W --set KEY=VALUE…
//! ```
//!
//! | row | settings that its expert users choose |
//! |---|---|
//! | `skip-locked` | `skip_locked.rs`: batches both ways, prepared statements, pipelines, a wake-up without `NOTIFY` |
//! | `apalis-…` | batches of 100, no second lock, several workers; `synchronous=FULL` on SQLite, which its setup turns off |
//! | `durare-…` | a pool of 64 connections on PostgreSQL instead of 8; `synchronous=FULL` on SQLite, whose default is `NORMAL` |
//! | `redis`, `postgres-…`, `sqlite-writer`, `rocksdb` | `counters`: calls that wait share a commit; each file states its settings |
//!
//! PostgreSQL runs for the run only: see `postgres.rs`. Every commit of every row is on the disk.

mod apalis;
mod counters;
mod durare;
mod postgres;
mod server;
mod skip_locked;

use std::collections::HashMap;
use std::env;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench_steps::Error;
use bench_steps::outcome::Outcome;
use bench_steps::{queue, workflow};
use tempfile::TempDir;

use crate::postgres::Cluster;

/// Number of jobs that are pushed together.
const JOBS_AT_ONCE: u64 = 500;

/// The arguments of the run.
struct Settings {
    row: String,
    workload: String,
    count: u64,
    workers: usize,
    keys: HashMap<String, String>,
}

impl Settings {
    fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Settings, Error> {
        let mut arguments = arguments.into_iter();
        let mut next = || arguments.next().ok_or("an argument is missing");
        let (row, workload) = (next()?, next()?);
        let mut settings = Settings { row, workload, count: 0, workers: 1, keys: HashMap::new() };
        while let Ok(option) = next() {
            let value = next()?;
            match (option.as_str(), value.split_once('=')) {
                ("--count", _) => settings.count = value.parse()?,
                ("--workers", _) => settings.workers = value.parse()?,
                ("--set", Some((key, value))) => {
                    settings.keys.insert(key.to_owned(), value.to_owned());
                }
                _ => return Err(format!("{option} {value} is no setting").into()),
            }
        }
        Ok(settings)
    }

    fn get(&self, key: &str) -> Result<u64, Error> {
        let value = self.keys.get(key).ok_or_else(|| format!("the setting {key} is missing"))?;
        Ok(value.parse()?)
    }

    async fn queue(&self, home: &impl queue::Home) -> Result<Outcome, Error> {
        queue::measure(home, &queue::Sizes::of(self.count, |key| self.get(key))?).await
    }

    async fn workflow(&self, home: &impl workflow::Home) -> Result<Outcome, Error> {
        workflow::measure(home, &workflow::Sizes::of(self.count, |key| self.get(key))?).await
    }

    /// Makes the directory of the run: in the one that the settings name, or beside this program.
    fn directory(&self) -> Result<TempDir, Error> {
        let parent = match self.keys.get("dir").map(String::as_str) {
            None | Some("") => env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default(),
            Some(given) => PathBuf::from(given),
        };
        Ok(tempfile::Builder::new().prefix("bench-jobs-").tempdir_in(parent)?)
    }
}

fn main() -> ExitCode {
    match Settings::parse(env::args().skip(1)).and_then(|settings| run(&settings)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}", told(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the text of an error with its causes: that of PostgreSQL's names nothing by itself.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Parts of some jobs that are stored in one commit each.
fn commits(jobs: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = jobs.end;
    jobs.step_by(JOBS_AT_ONCE as usize).map(move |first| first..end.min(first + JOBS_AT_ONCE))
}

/// Returns the version of a package, from the lock file.
fn version(package: &str) -> Result<String, Error> {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split_once(&format!("name = \"{package}\"\nversion = \""));
    let version = entry.and_then(|(_, rest)| rest.split_once('"'));
    let (version, _) = version.ok_or_else(|| format!("{package} is not in the lock file"))?;
    Ok(version.to_owned())
}

fn run(settings: &Settings) -> Result<String, Error> {
    let directory = settings.directory()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.workers)
        .enable_all()
        .build()?;
    // The server of counters is closed and opened again with them.
    let has_counters = matches!(settings.workload.as_str(), "durable-turns" | "durable-http");
    let is_on_postgres = !has_counters && !settings.row.ends_with("-sqlite");
    let path = directory.path();
    let cluster = is_on_postgres.then(|| Cluster::start(path)).transpose()?;
    let file = path.join("data.sqlite");
    let result = runtime.block_on(async {
        match (settings.row.as_str(), settings.workload.as_str(), &cluster) {
            ("skip-locked", "queue", Some(cluster)) => {
                let home = skip_locked::Home { cluster };
                Ok((settings.queue(&home).await?, postgres::version()?))
            }
            ("apalis-postgres", "queue", Some(cluster)) => {
                let home = apalis::PostgresHome { cluster };
                Ok((settings.queue(&home).await?, version("apalis-postgres")?))
            }
            ("apalis-sqlite", "queue", None) => {
                let home = apalis::SqliteHome { file: &file };
                Ok((settings.queue(&home).await?, version("apalis-sqlite")?))
            }
            ("durare-postgres", "workflow", Some(cluster)) => {
                let home = durare::Home::Postgres(cluster);
                Ok((settings.workflow(&home).await?, version("durare")?))
            }
            ("durare-sqlite", "workflow", None) => {
                let home = durare::Home::Sqlite(&file);
                Ok((settings.workflow(&home).await?, version("durare")?))
            }
            (_, "durable-turns" | "durable-http", _) => counters::run(path, settings).await,
            (row, workload, _) => Err(Error::from(format!("{row} has no workload {workload}"))),
        }
    });
    // Connections end before the server does.
    drop(runtime);
    if let Some(cluster) = cluster {
        cluster.server.stop()?;
    }
    let (outcome, version): (Outcome, String) = result?;
    Ok(serde_json::to_string(&outcome.into_line(&version, settings.workers))?)
}
