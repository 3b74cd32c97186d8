//! Logs on three servers, which are killed.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use throng_cluster::{AppendError, BoxStream, LogError, Position, ShardLog};
use throng_nats::NatsLog;
use tokio::sync::Mutex;

use crate::servers::{Read, Servers, next, persist, read_all};

/// One cluster at a time: more would only make each other's elections fail.
pub(crate) static CLUSTER: Mutex<()> = Mutex::const_new(());

/// Number of appends in flight: if one were awaited after the other, their time-outs would take half a minute.
const WINDOW: u64 = 32;

/// Records, and those of them that were acknowledged, with their positions.
#[derive(Default)]
struct Appends {
    count: u64,
    acknowledged: Vec<(Position, Bytes)>,
    unknown: u64,
}

impl Appends {
    /// Appends a window of records, each of which has an outcome in time.
    async fn run(&mut self, log: &NatsLog) {
        let records =
            (self.count..self.count + WINDOW).map(|number| Bytes::from(number.to_string()));
        self.count += WINDOW;
        let appends: Vec<_> =
            records.map(|record| (log.append(record.clone(), None), record)).collect();
        let outcomes = async {
            for (append, record) in appends {
                match append.await {
                    Ok(at) => self.acknowledged.push((at, record)),
                    Err(AppendError::Unknown) => self.unknown += 1,
                    Err(AppendError::Refused) => panic!("there was no condition"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(15), outcomes).await.expect("all have outcomes");
    }

    /// Appends until some more records are acknowledged.
    async fn run_for(&mut self, log: &NatsLog, more: usize) {
        let enough = self.acknowledged.len() + more;
        for _ in 0..200 {
            self.run(log).await;
            if self.acknowledged.len() >= enough {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{} appends are acknowledged of {}", self.acknowledged.len(), self.count);
    }

    async fn check(&self, log: &NatsLog) {
        let read = read_all(log, 1).await;
        for (at, record) in &self.acknowledged {
            let found = read.get(at.0 as usize - 1);
            assert_eq!(found, Some(&(*at, record.clone())), "an acknowledged record is there");
        }
    }
}

/// Makes a log from several nodes at the same time.
async fn create(servers: &Servers, name: &str) -> NatsLog {
    let nodes = join_all((0..3).map(|_| servers.connect())).await;
    let logs = join_all(nodes.iter().map(|nats| nats.create(name))).await;
    let mut logs: Vec<_> = logs.into_iter().map(Result::unwrap).collect();
    for log in &logs {
        assert_eq!(persist(|| log.end()).await, Position(0));
    }
    logs.swap_remove(0)
}

/// Reads until the log can be reached; returns the first answer, and the reader.
async fn begin(log: &NatsLog, from: Position) -> (Read, BoxStream<Read>) {
    loop {
        let mut records = log.read(from);
        match next(&mut records).await {
            // The server of the client may not know yet of a consumer on another one.
            Some(Err(LogError::Unavailable(_))) => {}
            first => return (first.unwrap(), records),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_have_outcomes_and_readers_go_on_while_a_leader_is_killed() {
    let _alone = CLUSTER.lock().await;
    let Some(mut servers) = Servers::start(3) else { return };
    let log = create(&servers, "killed").await;
    let mut appends = Appends::default();
    appends.run_for(&log, 100).await;
    let follower = log.clone();
    let (seen, mut last) = tokio::sync::watch::channel(0);
    let reading = tokio::spawn(async move {
        let (mut read, mut failures) = (Vec::new(), 0);
        loop {
            let mut records = follower.read(Position(read.len() as u64 + 1));
            while let Some(item) = next(&mut records).await {
                match item {
                    Ok((_, record)) if record == "end" => return (read, failures),
                    Ok((at, record)) => {
                        assert_eq!(at.0, read.len() as u64 + 1);
                        read.push(record);
                        seen.send_replace(read.len());
                    }
                    Err(LogError::Unavailable(_)) => failures += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    last.wait_for(|last| *last >= 100).await.unwrap();
    // The stream's leader dies, and with it perhaps the reader's consumer and the connection.
    let stream = servers.context().await.get_stream("killed").await.unwrap();
    let leader = stream.cached_info().cluster.as_ref().and_then(|it| it.leader.clone()).unwrap();
    let leader: usize = leader.strip_prefix('n').unwrap().parse().unwrap();
    let pipeline = async {
        for _ in 0..10 {
            appends.run(&log).await;
        }
    };
    let killing = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        servers.kill(leader);
    };
    tokio::join!(pipeline, killing);
    appends.run_for(&log, 100).await;
    assert!(appends.unknown > 0, "an election stops the appends");
    while log.append("end".into(), None).await.is_err() {}
    let (read, failures) =
        tokio::time::timeout(Duration::from_secs(90), reading).await.unwrap().unwrap();
    println!("unknown outcomes: {}, failures of the reader: {failures}", appends.unknown);
    for (at, record) in &appends.acknowledged {
        assert_eq!(read.get(at.0 as usize - 1), Some(record));
    }
    appends.check(&log).await;
    // A node that comes later needs two servers only.
    let late = servers.connect().await.open("killed").await.unwrap();
    appends.check(&late).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_all_killed_and_started_again_have_what_they_acknowledged() {
    let _alone = CLUSTER.lock().await;
    let Some(mut servers) = Servers::start(3) else { return };
    let log = create(&servers, "all").await;
    let mut appends = Appends::default();
    appends.run_for(&log, 200).await;
    let trimmed = Position(50);
    persist(|| log.trim(trimmed)).await;
    let (first, mut live) = begin(&log, trimmed).await;
    assert_eq!(first.map(|(at, _)| at), Ok(trimmed));
    let pipeline = appends.run(&log);
    let killing = async { (0..3).for_each(|index| servers.kill(index)) };
    tokio::join!(pipeline, killing);
    // What was on its way still comes.
    let mut end = trimmed;
    let error = loop {
        match next(&mut live).await {
            Some(Ok((at, _))) => end = at,
            other => break other,
        }
    };
    assert!(matches!(error, Some(Err(LogError::Unavailable(_)))), "{error:?}");
    assert_eq!(next(&mut live).await, None);
    (0..3).for_each(|index| servers.start_again(index));
    appends.run_for(&log, 100).await;
    let read = read_all(&log, trimmed.0).await;
    for (at, record) in appends.acknowledged.iter().filter(|(at, _)| *at >= trimmed) {
        let found = read.get((at.0 - trimmed.0) as usize);
        assert_eq!(found, Some(&(*at, record.clone())), "an acknowledged record is there");
    }
    assert_eq!(read_all(&log, end.0 + 1).await.first(), read.get((end.0 + 1 - trimmed.0) as usize));
    assert_eq!(begin(&log, Position(1)).await.0, Err(LogError::Trimmed(trimmed)));
}
