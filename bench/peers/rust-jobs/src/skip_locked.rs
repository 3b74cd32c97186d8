//! `skip-locked`: the queue that an expert writes by hand on PostgreSQL.
//!
//! ```text
//! insert from arrays, 500 a commit ──▶ jobs ──▶ begin, delete 100 that nobody has locked ──▶ run ──▶ commit
//!            │                                      ▲ CONSUMERS connections
//!            └────────── Notify ────────────────────┘
//! ```
//!
//! - A batch is a transaction: its jobs are gone when they have run, and come again if the program ends before. No row is
//!   written twice.
//! - Statements are prepared, and `begin` and `delete` go out together.
//! - Consumers are woken in the program. `NOTIFY` would have commits wait for each other. A consumer of another
//!   program would see to it by the look that a consumer takes each tenth of a second.
//! - Single jobs come by many connections, so that PostgreSQL flushes their commits together.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bench_steps::Error;
use bench_steps::queue::{self, Plan, TEXT};
use bench_steps::tasks::{Done, Tasks};
use futures::future::{try_join, try_join_all};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Statement};

use crate::postgres::Cluster;
use crate::{commits, told};

/// Number of connections that take jobs.
const CONSUMERS: usize = 2;

/// Number of connections by which single jobs come.
const PUSHERS: usize = 64;

/// Time after which a consumer looks without being woken.
const LOOK: Duration = Duration::from_millis(100);

const TABLE: &str = "create table if not exists jobs (
    id bigint generated always as identity primary key, number bigint not null, body text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)";
const INSERT_MANY: &str =
    "insert into jobs (number, body) select * from unnest($1::bigint[], $2::text[])";
const INSERT: &str = "insert into jobs (number, body) values ($1, $2)";
const TAKE: &str = "delete from jobs where id = any(array(
    select id from jobs order by id for update skip locked limit $1
)) returning number, body";

pub(crate) struct Home<'a> {
    pub(crate) cluster: &'a Cluster,
}

#[derive(Clone)]
pub(crate) struct Queue(Arc<Inner>);

struct Inner {
    own: Own,
    pushers: Vec<(Client, Statement)>,
    shared: Arc<Shared>,
    consumers: Vec<JoinHandle<()>>,
}

/// The connection for batches and numbers.
struct Own {
    client: Client,
    insert_many: Statement,
}

/// State that consumers and pushers share.
struct Shared {
    plan: Arc<Plan>,
    wake: Notify,
    is_paused: AtomicBool,
    /// Number of jobs whose transaction is on the disk.
    done: AtomicU64,
    failed: AtomicBool,
}

impl queue::Home for Home<'_> {
    type Queue = Queue;

    async fn open(&self, plan: &Arc<Plan>, concurrency: usize) -> Result<Queue, Error> {
        let client = self.cluster.connect().await?;
        client.batch_execute(TABLE).await?;
        let insert_many = client.prepare(INSERT_MANY).await?;
        let pushers = try_join_all((0..PUSHERS).map(|_| async {
            let client = self.cluster.connect().await?;
            let insert = client.prepare(INSERT).await?;
            Ok::<_, Error>((client, insert))
        }));
        let pushers = pushers.await?;
        let shared = Arc::new(Shared {
            plan: plan.clone(),
            wake: Notify::new(),
            is_paused: AtomicBool::new(false),
            done: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        });
        let mut consumers = Vec::new();
        for _ in 0..CONSUMERS {
            let client = self.cluster.connect().await?;
            let take = client.prepare(TAKE).await?;
            let (shared, most) = (shared.clone(), i64::try_from(concurrency)?);
            consumers.push(tokio::spawn(async move {
                if let Err(error) = shared.consume(&client, &take, most).await {
                    eprintln!("a consumer has failed: {}", told(&*error));
                    shared.failed.store(true, Ordering::Relaxed);
                }
            }));
        }
        Ok(Queue(Arc::new(Inner { own: Own { client, insert_many }, pushers, shared, consumers })))
    }
}

impl Shared {
    async fn consume(&self, client: &Client, take: &Statement, most: i64) -> Result<(), Error> {
        loop {
            let mut taken = 0;
            if !self.is_paused.load(Ordering::Relaxed) {
                let begin = client.batch_execute("begin");
                let ((), rows) = try_join(begin, client.query(take, &[&most])).await?;
                for row in &rows {
                    let number: i64 = row.try_get(0)?;
                    self.plan.run(u64::try_from(number)?, row.try_get(1)?);
                }
                client.batch_execute("commit").await?;
                taken = rows.len();
                self.done.fetch_add(taken as u64, Ordering::Relaxed);
            }
            if taken == 0 {
                let _ = tokio::time::timeout(LOOK, self.wake.notified()).await;
            }
        }
    }
}

impl Tasks for Queue {}

impl queue::Queue for Queue {
    async fn push_all(&self, jobs: Range<u64>) -> Result<(), Error> {
        let Own { client, insert_many } = &self.0.own;
        for part in commits(jobs) {
            let numbers = part.map(i64::try_from).collect::<Result<Vec<_>, _>>()?;
            let texts = vec![TEXT; numbers.len()];
            client.execute(insert_many, &[&numbers, &texts]).await?;
            self.0.shared.wake.notify_waiters();
        }
        Ok(())
    }

    async fn push(&self, task: u64, number: u64) -> Result<(), Error> {
        let (client, insert) = &self.0.pushers[task as usize % PUSHERS];
        client.execute(insert, &[&i64::try_from(number)?, &TEXT]).await?;
        self.0.shared.wake.notify_one();
        Ok(())
    }

    async fn pause(&self) -> Result<(), Error> {
        self.0.shared.is_paused.store(true, Ordering::Relaxed);
        // A consumer that saw the queue before takes nothing from an empty one.
        tokio::time::sleep(2 * LOOK).await;
        Ok(())
    }

    async fn resume(&self) -> Result<(), Error> {
        self.0.shared.is_paused.store(false, Ordering::Relaxed);
        self.0.shared.wake.notify_waiters();
        Ok(())
    }

    async fn done(&self, pushed: u64) -> Result<Done, Error> {
        let shared = &self.0.shared;
        let number = shared.done.load(Ordering::Relaxed);
        match shared.failed.load(Ordering::Relaxed) {
            true => Err("a consumer has failed".into()),
            false => Ok(Done { number, is_all: number >= pushed }),
        }
    }

    async fn left(&self) -> Result<u64, Error> {
        let row = self.0.own.client.query_one("select count(*) from jobs", &[]).await?;
        Ok(u64::try_from(row.try_get::<_, i64>(0)?)?)
    }

    async fn close(self) -> Result<(), Error> {
        for consumer in &self.0.consumers {
            consumer.abort();
        }
        Ok(())
    }
}
