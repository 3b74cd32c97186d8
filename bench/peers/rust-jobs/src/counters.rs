//! `durable-turns` and `durable-http` on databases, by the steps and with the checks of bench/steps.
//!
//! ```text
//! Home ── open ──► Counters ──► Group: the calls that wait ──► Ledger: one commit ──► disk
//!                     └──── close ──► the values stay, and a server has ended
//! ```

mod disk;
mod group;
mod postgres;
mod redis;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use std::path::Path;

use bench_steps::Error;
use bench_steps::counters::Home;
use bench_steps::outcome::Outcome;
use bench_steps::turns::{self, Sizes};

use crate::{Settings, postgres as cluster};

/// Runs the workload on the row; returns its outcome and the version of the database.
pub(crate) async fn run(path: &Path, settings: &Settings) -> Result<(Outcome, String), Error> {
    match settings.row.as_str() {
        "redis" if settings.workload == "durable-http" => {
            Ok((redis::serve(path, settings).await?, redis::version()?))
        }
        "redis" => {
            let home = redis::Home { path, port: 0 };
            Ok((measure(&home, path, settings).await?, redis::version()?))
        }
        "postgres-rows" => {
            Ok((measure(&postgres::Rows { path }, path, settings).await?, cluster::version()?))
        }
        "postgres-calls" => {
            Ok((measure(&postgres::Calls { path }, path, settings).await?, cluster::version()?))
        }
        "sqlite-writer" => {
            let (file, workers) = (&path.join("data.sqlite"), settings.workers);
            let home = sqlite::Home { file, workers };
            Ok((measure(&home, path, settings).await?, rusqlite::version().to_owned()))
        }
        #[cfg(feature = "rocksdb")]
        "rocksdb" => {
            Ok((measure(&rocksdb::Home { path }, path, settings).await?, rocksdb::version(path)?))
        }
        row => Err(format!("{row} has no counters in this build").into()),
    }
}

async fn measure(home: &impl Home, path: &Path, settings: &Settings) -> Result<Outcome, Error> {
    let sizes = Sizes::of(settings.count, |key| settings.get(key))?;
    // No database limits its counters.
    turns::measure(home, u64::MAX, path, &sizes).await
}
