//! `postgres-rows` and `postgres-calls`: a row of PostgreSQL for each counter, written by batches and by single calls.
//!
//! - `postgres-rows` writes the calls that wait as one statement on each of a few connections. The plan is made once,
//!   for few rows, so that it looks each key up by the index. A counter without a row gets it by a second statement.
//! - `postgres-calls` has a statement for each call, on one of many connections, whose commits the server flushes
//!   together. It waits a moment for further commits before a flush (`commit_delay`).
//! - Pages have room for a new version of each row, so that an update leaves the index alone.
//! - The server ends when the counters are closed.

use std::io;
use std::path::Path;
use std::str;
use std::sync::Arc;

use bench_steps::numbers::key;
use bench_steps::tasks::Tasks;
use bench_steps::{Error, counters};
use tokio_postgres::{Client, Statement};

use super::disk::written_with;
use super::group::{Group, Lanes, Ledger, Sum};
use crate::postgres::Cluster;
use crate::server::Server;

/// Number of connections that write batches, and of those that read them.
const LANES: usize = 2;

/// Number of connections of single calls.
const CONNECTIONS: usize = 64;

const TABLE: &str = "create table if not exists counters (
    key text collate \"C\" primary key, value bigint not null
) with (fillfactor = 50)";

const ADD_MANY: &str = "update counters set value = counters.value + sums.added
    from unnest($1::text[], $2::bigint[]) with ordinality as sums (key, added, place)
    where counters.key = sums.key returning sums.place, counters.value";
const READ_MANY: &str = "select sums.place, counters.value
    from unnest($1::text[], $2::bigint[]) with ordinality as sums (key, added, place)
    join counters on counters.key = sums.key";
const INSERT_MANY: &str = "insert into counters select * from unnest($1::text[], $2::bigint[])";
const INDEXED: &str = "set plan_cache_mode = force_generic_plan";

const ADD: &str = "insert into counters values ($1, 1)
    on conflict (key) do update set value = counters.value + 1 returning value";
const READ: &str = "select coalesce((select value from counters where key = $1), 0)";
const DELAYED: &str = "set commit_delay = 200";

pub(super) struct Rows<'a> {
    pub(super) path: &'a Path,
}

struct Lane {
    client: Client,
    statement: Statement,
    /// Statement for counters without a row, unless the lane only reads.
    insert: Option<Statement>,
}

async fn start(directory: &Path) -> Result<Cluster, Error> {
    let cluster = Cluster::start(directory)?;
    cluster.connect().await?.batch_execute(TABLE).await?;
    Ok(cluster)
}

impl counters::Home for Rows<'_> {
    type Counters = Lanes;

    async fn open(&self, _: u64) -> Result<Lanes, Error> {
        let cluster = start(self.path).await?;
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for (groups, text) in [(&mut writers, ADD_MANY), (&mut readers, READ_MANY)] {
            for _ in 0..LANES {
                let client = cluster.connect().await?;
                client.batch_execute(INDEXED).await?;
                let statement = client.prepare(text).await?;
                let insert = match text {
                    ADD_MANY => Some(client.prepare(INSERT_MANY).await?),
                    _ => None,
                };
                groups.push(Group::of_task(Lane { client, statement, insert }));
            }
        }
        Ok(Lanes::new(writers, readers, cluster.server))
    }
}

impl Ledger for Lane {
    async fn apply(&mut self, sums: &[Sum]) -> Result<Vec<u64>, Error> {
        let (mut keys, mut added) = (Vec::new(), Vec::new());
        for sum in sums {
            keys.push(str::from_utf8(&sum.key)?);
            added.push(i64::try_from(sum.added)?);
        }
        let mut values = vec![None; sums.len()];
        for row in self.client.query(&self.statement, &[&keys, &added]).await? {
            let (place, value): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            values[usize::try_from(place - 1)?] = Some(u64::try_from(value)?);
        }
        if let Some(insert) = self.insert.as_ref().filter(|_| values.contains(&None)) {
            let mut absent = values.iter().map(Option::is_none);
            keys.retain(|_| absent.next().unwrap_or(false));
            let mut absent = values.iter().map(Option::is_none);
            added.retain(|_| absent.next().unwrap_or(false));
            self.client.execute(insert, &[&keys, &added]).await?;
        }
        let values = values.into_iter().zip(sums);
        Ok(values.map(|(value, sum)| value.unwrap_or(sum.added)).collect())
    }
}

pub(super) struct Calls<'a> {
    pub(super) path: &'a Path,
}

#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    connections: Vec<Connection>,
    server: Server,
}

struct Connection {
    client: Client,
    add: Statement,
    read: Statement,
}

impl counters::Home for Calls<'_> {
    type Counters = Pool;

    async fn open(&self, _: u64) -> Result<Pool, Error> {
        let cluster = start(self.path).await?;
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = cluster.connect().await?;
            client.batch_execute(DELAYED).await?;
            let (add, read) = (client.prepare(ADD).await?, client.prepare(READ).await?);
            connections.push(Connection { client, add, read });
        }
        Ok(Pool(Arc::new(Shared { connections, server: cluster.server })))
    }
}

impl Pool {
    /// Calls a counter on its connection: no two connections wait for the same row.
    async fn call(
        &self,
        number: u64,
        statement: impl Fn(&Connection) -> &Statement,
    ) -> Result<u64, Error> {
        let connection = &self.0.connections[number as usize % CONNECTIONS];
        let (client, key) = (&connection.client, key(number));
        let row = client.query_one(statement(connection), &[&str::from_utf8(&key)?]).await?;
        Ok(u64::try_from(row.try_get::<_, i64>(0)?)?)
    }
}

impl Tasks for Pool {}

impl counters::Counters for Pool {
    async fn add(&self, number: u64) -> Result<u64, Error> {
        self.call(number, |connection| &connection.add).await
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        self.call(number, |connection| &connection.read).await
    }

    fn written_bytes(&self) -> io::Result<u64> {
        written_with(&self.0.server)
    }

    async fn close(self) -> Result<(), Error> {
        let Shared { connections, server } =
            Arc::into_inner(self.0).ok_or("the counters are in use")?;
        drop(connections);
        server.stop()
    }
}
