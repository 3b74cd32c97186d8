//! Durable counters, queues of jobs and workflows on databases, for the workloads `durable-turns`, `queue` and
//! `workflow` of bench/src/workloads, in the same order of steps and with the same checks.
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
mod outcome;
mod plan;
mod postgres;
mod queue;
mod server;
mod skip_locked;
mod tasks;
mod workflow;

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tempfile::TempDir;

use crate::outcome::Outcome;
use crate::postgres::Cluster;

/// An error of the run, whichever library it comes from.
type Error = Box<dyn std::error::Error + Send + Sync>;

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

fn run(settings: &Settings) -> Result<String, Error> {
    let directory = settings.directory()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.workers)
        .enable_all()
        .build()?;
    // The server of counters is closed and opened again with them.
    let has_counters = settings.workload == "durable-turns";
    let is_on_postgres = !has_counters && !settings.row.ends_with("-sqlite");
    let path = directory.path();
    let cluster = is_on_postgres.then(|| Cluster::start(path)).transpose()?;
    let file = path.join("data.sqlite");
    let result = runtime.block_on(async {
        match (settings.row.as_str(), settings.workload.as_str(), &cluster) {
            ("skip-locked", "queue", Some(cluster)) => {
                let home = skip_locked::Home { cluster };
                Ok((queue::run(&home, settings).await?, postgres::version()?))
            }
            ("apalis-postgres", "queue", Some(cluster)) => {
                let home = apalis::PostgresHome { cluster };
                Ok((queue::run(&home, settings).await?, outcome::version("apalis-postgres")?))
            }
            ("apalis-sqlite", "queue", None) => {
                let home = apalis::SqliteHome { file: &file };
                Ok((queue::run(&home, settings).await?, outcome::version("apalis-sqlite")?))
            }
            ("durare-postgres", "workflow", Some(cluster)) => {
                let home = durare::Home::Postgres(cluster);
                Ok((workflow::run(&home, settings).await?, outcome::version("durare")?))
            }
            ("durare-sqlite", "workflow", None) => {
                let home = durare::Home::Sqlite(&file);
                Ok((workflow::run(&home, settings).await?, outcome::version("durare")?))
            }
            (_, "durable-turns", _) => counters::run(path, settings).await,
            (row, workload, _) => Err(Error::from(format!("{row} has no workload {workload}"))),
        }
    });
    // Connections end before the server does.
    drop(runtime);
    if let Some(cluster) = cluster {
        cluster.server.stop()?;
    }
    let (outcome, version): (Outcome, String) = result?;
    Ok(outcome.line(&version, settings.workers))
}
