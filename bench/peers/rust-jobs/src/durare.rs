//! `durare-…`: workflows of the crate `durare`, in the manner of DBOS, on SQLite and on PostgreSQL.
//!
//! - A start is a commit, each step another, and the result a third one: seven in all, as in the workflow of throng.
//! - On SQLite the pool is one with `synchronous = FULL`; the crate's own has `NORMAL`, which loses commits in a power
//!   cut. It has one connection.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bench_steps::Error;
use bench_steps::tasks::Tasks;
use bench_steps::workflow::{self, NAMES, Plan};
use durare::{
    DurableContext, DurableEngine, PostgresProvider, SqliteProvider, StateProvider, WorkflowHandle,
    WorkflowOptions,
};
use sqlx_08::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx_08::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};

use crate::postgres::{Cluster, USER};

/// Number of connections to PostgreSQL. The crate's own pool has eight.
const CONNECTIONS: u32 = 64;

/// Time for which a run waits for a connection, which is longer than any.
const PATIENCE: Duration = Duration::from_secs(600);

/// Longest time of a shutdown.
const CLOSING: Duration = Duration::from_secs(10);

const WORKFLOW: &str = "order";

pub(crate) enum Home<'a> {
    Sqlite(&'a Path),
    Postgres(&'a Cluster),
}

#[derive(Clone)]
pub(crate) struct Engine(Arc<DurableEngine>);

async fn provider(home: &Home<'_>) -> Result<Arc<dyn StateProvider>, Error> {
    Ok(match home {
        Home::Sqlite(file) => {
            let options = SqliteConnectOptions::new()
                .filename(file)
                .create_if_missing(true)
                .foreign_keys(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full);
            let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(PATIENCE);
            Arc::new(SqliteProvider::from_pool(pool.connect_with(options).await?))
        }
        Home::Postgres(cluster) => {
            let options = PgConnectOptions::new_without_pgpass();
            let options = options.host(&cluster.host()).username(USER).database(USER);
            let options = options.options([("search_path", "dbos")]);
            let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
            let pool = pool.connect_with(options).await?;
            Arc::new(PostgresProvider::from_pool_with_schema(pool, "dbos")?)
        }
    })
}

impl workflow::Home for Home<'_> {
    type Engine = Engine;

    async fn open(&self, plan: &Arc<Plan>) -> Result<Engine, Error> {
        let mut builder = DurableEngine::builder(provider(self).await?);
        let plan = plan.clone();
        builder.register(WORKFLOW, move |cx: DurableContext, input: u64| {
            let plan = plan.clone();
            async move {
                let mut sum = 0;
                for (place, name) in (0..).zip(NAMES) {
                    let plan = &plan;
                    let step = async move || Ok::<u64, durare::Error>(plan.step(input, place));
                    sum += cx.step(name, step).await?;
                }
                Ok::<u64, durare::Error>(sum)
            }
        });
        Ok(Engine(Arc::new(builder.build().await?)))
    }
}

impl Tasks for Engine {}

impl workflow::Engine for Engine {
    async fn run(&self, number: u64) -> Result<u64, Error> {
        let options = WorkflowOptions::with_id(id(number));
        let handle: WorkflowHandle<u64> = self.0.start(WORKFLOW, number, options).await?;
        Ok(handle.result().await?)
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        let handle: WorkflowHandle<u64> = self.0.retrieve_workflow(&id(number)).await?;
        Ok(handle.result().await?)
    }

    async fn close(self) -> Result<(), Error> {
        Ok(self.0.shutdown(CLOSING).await?)
    }
}

/// Returns the id of a run: twenty digits.
fn id(number: u64) -> String {
    format!("{number:020}")
}
