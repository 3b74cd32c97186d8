//! Two owners that take a log from each other, each with a full window in flight.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use throng_cluster::{
    AppendError, BoxFuture, Effect, Entry, Incarnation, LogError, Position, Reason, RecordKind,
    Replica, ShardLog, Tail, Ticket, Verdict,
};
use throng_nats::NatsLog;
use tokio::time::Instant;

use crate::cluster::CLUSTER;
use crate::servers::{Servers, read_all};

/// A node that wants the log, and all that it was told of its records.
struct Node {
    log: NatsLog,
    replica: Replica,
    me: u64,
    outcomes: FuturesUnordered<BoxFuture<(Ticket, Result<Position, AppendError>)>>,
    ends: FuturesUnordered<BoxFuture<Result<Position, LogError>>>,
    payloads: HashMap<Ticket, u64>,
    count: u64,
    published: HashMap<u64, Position>,
    lost: HashSet<u64>,
    deposed: u64,
    /// Time at which the node claims the log again.
    claims: Option<Instant>,
}

impl Node {
    fn new(log: NatsLog, me: u64) -> Node {
        let (at, tail) = (Position(0), Tail::default());
        Node {
            log,
            replica: Replica::new(Incarnation(me.into()), 0, at, tail),
            me,
            outcomes: FuturesUnordered::new(),
            ends: FuturesUnordered::new(),
            payloads: HashMap::new(),
            count: 0,
            published: HashMap::new(),
            lost: HashSet::new(),
            deposed: 0,
            claims: Some(Instant::now()),
        }
    }

    async fn run(mut self, until: Instant) -> Node {
        let mut records = self.log.read(Position(1));
        while Instant::now() < until {
            self.append();
            self.follow();
            let pause = tokio::time::sleep_until(self.claims.unwrap_or(until).min(until));
            tokio::select! {
                item = records.next() => match item {
                    Some(Ok((at, record))) => self.replica.read(at, &record),
                    Some(Err(LogError::Trimmed(at))) => panic!("trimmed to {at:?}"),
                    Some(Err(LogError::Unavailable(_))) | None => {
                        let (Position(at), _) = self.replica.known();
                        records = self.log.read(Position(at + 1));
                    }
                },
                Some((ticket, outcome)) = self.outcomes.next() => {
                    self.replica.appended(ticket, outcome);
                }
                Some(end) = self.ends.next() => match end {
                    Ok(end) => self.replica.found_end(end),
                    Err(_) => self.ends.push(self.log.end()),
                },
                () = pause => {
                    if self.claims.take().is_some() {
                        self.replica.claim();
                    }
                }
            }
        }
        self
    }

    fn append(&mut self) {
        while self.replica.has_room() {
            let payload = (self.me << 32) + self.count;
            let bytes = payload.to_le_bytes();
            let (kind, body): (_, &[&[u8]]) = (RecordKind::Changes, &[&bytes]);
            let entry = Entry { kind, level: 0, first: 0, count: 1, time: 0, body };
            if let Some((ticket, ..)) = self.replica.append(&entry) {
                self.payloads.insert(ticket, payload);
                self.count += 1;
            }
        }
    }

    fn follow(&mut self) {
        while let Some(effect) = self.replica.effect() {
            match effect {
                Effect::Append { ticket, record, after } => {
                    let append = self.log.append(record, after);
                    self.outcomes.push(Box::pin(async move { (ticket, append.await) }));
                }
                Effect::FindEnd => self.ends.push(self.log.end()),
                Effect::Publish { ticket, at, .. } => {
                    self.published.insert(self.payloads[&ticket], at);
                }
                Effect::Lose(ticket) => {
                    self.lost.insert(self.payloads[&ticket]);
                }
                Effect::Leave(Reason::Deposed) => {
                    self.deposed += 1;
                    let pause = Duration::from_millis(20 + self.deposed * 37 % 100);
                    self.claims = Some(Instant::now() + pause);
                }
                Effect::Leave(reason) => panic!("node {} stops: {reason:?}", self.me),
                // The node reads all the time.
                Effect::Read(_) | Effect::Serve | Effect::Apply { .. } | Effect::Doubt(_) => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_owners_publish_count_for_all_readers_and_lost_ones_for_none() {
    let _alone = CLUSTER.lock().await;
    let Some(servers) = Servers::start(3) else { return };
    let first = servers.connect().await.create("owners").await.unwrap();
    let second = servers.connect().await.create("owners").await.unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    let nodes = [Node::new(first, 1), Node::new(second, 2)];
    let [one, two] = nodes.map(|node| tokio::spawn(node.run(until)));
    let nodes = [one.await.unwrap(), two.await.unwrap()];

    let reader = servers.connect().await.open("owners").await.unwrap();
    let (mut tail, mut counted, mut noise) = (Tail::default(), HashMap::new(), 0);
    for (at, record) in read_all(&reader, 1).await {
        match tail.read(0, &record) {
            Verdict::Counts(record) if record.header.kind == RecordKind::Changes => {
                let payload = u64::from_le_bytes(record.body.try_into().unwrap());
                assert_eq!(counted.insert(payload, at), None, "a record counts once");
            }
            Verdict::Counts(_) => {}
            Verdict::Noise(_) => noise += 1,
            Verdict::Beyond(level) => panic!("level {level}"),
        }
    }
    for node in &nodes {
        let (published, lost) = (node.published.len(), node.lost.len());
        println!("node {}: published {published}, lost {lost}, deposed {}", node.me, node.deposed);
        assert!(published > 50 && node.deposed > 2, "each node has owned the log, and lost it");
        for (payload, at) in &node.published {
            assert_eq!(counted.get(payload), Some(at), "a published record counts");
        }
        assert!(
            node.lost.iter().all(|payload| !counted.contains_key(payload)),
            "a lost one counts"
        );
    }
    println!("epochs {}, records {}, noise {noise}", tail.epoch, counted.len());
}
