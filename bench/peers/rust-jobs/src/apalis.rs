//! `apalis-…`: the queue of the crate `apalis` on SQLite and on PostgreSQL.
//!
//! - A worker takes a batch of jobs, and stores the ends of jobs in batches as well. Several workers take jobs at a time
//!   on PostgreSQL. SQLite has one connection.
//! - `lock_tasks` is off, as the take has locked a job already.
//! - A worker without jobs looks for some every 20 milliseconds; on PostgreSQL `NOTIFY` of the crate's trigger wakes it besides.
//! - On SQLite the migrations run without the crate's `setup`, which has commits not flushed (`synchronous = OFF`).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{PgPool, PostgresStorage};
use apalis_sqlite::{SqlitePool, SqliteStorage};
use bench_steps::Error;
use bench_steps::queue::{self, Plan, TEXT};
use bench_steps::tasks::{Done, Tasks};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::commits;
use crate::postgres::{Cluster, USER};

/// Number of workers on PostgreSQL.
const WORKERS: usize = 4;

/// Number of connections to PostgreSQL.
const CONNECTIONS: u32 = 64;

/// Time after which a worker without jobs looks for some. With a shorter one the looks leave pushes no room.
const LOOK: Duration = Duration::from_millis(20);

const QUEUE: &str = "mail";

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Letter {
    number: u64,
    text: String,
}

impl Letter {
    fn new(number: u64) -> Letter {
        Letter { number, text: TEXT.to_owned() }
    }
}

/// The plan of a run, and the number of attempts since the queue was opened.
struct Jobs {
    plan: Arc<Plan>,
    ran: AtomicU64,
}

async fn run(letter: Letter, jobs: Data<Arc<Jobs>>) -> Result<(), BoxDynError> {
    jobs.plan.run(letter.number, &letter.text);
    jobs.ran.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Workers of a queue, while it is not paused.
#[derive(Default)]
struct Workers {
    running: Mutex<Vec<JoinHandle<()>>>,
}

/// Number of workers that have begun. Each has a name of its own, also after the queue was opened again: a name that the
/// database knows is refused to another worker.
static BEGUN: AtomicU64 = AtomicU64::new(0);

impl Workers {
    fn name() -> String {
        format!("worker-{}", BEGUN.fetch_add(1, Ordering::Relaxed))
    }

    async fn end(&self) {
        for worker in self.running.lock().await.drain(..) {
            worker.abort();
            let _ = worker.await;
        }
    }
}

/// Defines the queue on one of the two databases, whose types have no trait in common that has all of it.
macro_rules! queue {
    ($queue:ident $pool:ident $storage:ident $config:path, $workers:expr, $left:expr, $backend:expr) => {
        #[derive(Clone)]
        pub(crate) struct $queue {
            pool: $pool,
            storage: $storage<Letter>,
            jobs: Arc<Jobs>,
            concurrency: usize,
            workers: Arc<Workers>,
        }

        impl $queue {
            async fn open(
                pool: $pool,
                plan: &Arc<Plan>,
                concurrency: usize,
            ) -> Result<$queue, Error> {
                let config = $config().queue(QUEUE).batch_size(concurrency).lock_tasks(false);
                let storage = $storage::new(&pool).with_config(config);
                let jobs = Arc::new(Jobs { plan: plan.clone(), ran: AtomicU64::new(0) });
                let queue = $queue { pool, storage, jobs, concurrency, workers: Arc::default() };
                queue::Queue::resume(&queue).await?;
                Ok(queue)
            }
        }

        impl Tasks for $queue {}

        impl queue::Queue for $queue {
            async fn push_all(&self, jobs: Range<u64>) -> Result<(), Error> {
                for part in commits(jobs) {
                    let letters = part.map(Letter::new).collect();
                    self.storage.clone().push_bulk(letters).await?;
                }
                Ok(())
            }

            async fn push(&self, _: u64, number: u64) -> Result<(), Error> {
                Ok(self.storage.clone().push(Letter::new(number)).await?)
            }

            async fn pause(&self) -> Result<(), Error> {
                self.workers.end().await;
                Ok(())
            }

            async fn resume(&self) -> Result<(), Error> {
                let mut running = self.workers.running.lock().await;
                for _ in 0..$workers {
                    let worker = WorkerBuilder::new(Workers::name())
                        .backend($backend(self.storage.clone()))
                        .data(self.jobs.clone())
                        .concurrency(self.concurrency)
                        .build(run);
                    running.push(tokio::spawn(async move {
                        if let Err(error) = worker.run().await {
                            eprintln!("a worker has failed: {error}");
                        }
                    }));
                }
                Ok(())
            }

            async fn done(&self, pushed: u64) -> Result<Done, Error> {
                let number = self.jobs.ran.load(Ordering::Relaxed);
                if number < pushed {
                    return Ok(Done { number, is_all: false });
                }
                let exists = format!("select exists(select 1 {})", $left);
                let (exists,): (bool,) =
                    sqlx::query_as(sqlx::AssertSqlSafe(exists)).fetch_one(&self.pool).await?;
                Ok(Done { number, is_all: !exists })
            }

            async fn left(&self) -> Result<u64, Error> {
                let count = format!("select count(*) {}", $left);
                let (count,): (i64,) =
                    sqlx::query_as(sqlx::AssertSqlSafe(count)).fetch_one(&self.pool).await?;
                Ok(u64::try_from(count)?)
            }

            async fn close(self) -> Result<(), Error> {
                self.workers.end().await;
                self.pool.close().await;
                Ok(())
            }
        }
    };
}

queue!(
    PostgresQueue PgPool PostgresStorage apalis_postgres::Config::default,
    WORKERS,
    "from apalis.jobs where status <> 'Done'",
    |storage: PostgresStorage<Letter>| storage.with_pubsub().poll_with_interval(LOOK)
);
queue!(
    SqliteQueue SqlitePool SqliteStorage apalis_sqlite::Config::default,
    1,
    "from Jobs where status <> 'Done'",
    |storage: SqliteStorage<Letter>| storage.poll_with_interval(LOOK)
);

pub(crate) struct PostgresHome<'a> {
    pub(crate) cluster: &'a Cluster,
}

impl queue::Home for PostgresHome<'_> {
    type Queue = PostgresQueue;

    async fn open(&self, plan: &Arc<Plan>, concurrency: usize) -> Result<PostgresQueue, Error> {
        let options = PgConnectOptions::new_without_pgpass();
        let options = options.host(&self.cluster.host()).username(USER).database(USER);
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
        PostgresStorage::setup(&pool).await?;
        PostgresQueue::open(pool, plan, concurrency).await
    }
}

pub(crate) struct SqliteHome<'a> {
    pub(crate) file: &'a Path,
}

impl queue::Home for SqliteHome<'_> {
    type Queue = SqliteQueue;

    async fn open(&self, plan: &Arc<Plan>, concurrency: usize) -> Result<SqliteQueue, Error> {
        let options = SqliteConnectOptions::new()
            .filename(self.file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("temp_store", "memory")
            .pragma("cache_size", "64000");
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        SqliteStorage::migrations().run(&pool).await?;
        SqliteQueue::open(pool, plan, concurrency).await
    }
}
