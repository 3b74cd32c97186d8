//! Logs on a single server: order, conditions, readers, trimming, and all that is refused.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use bytes::Bytes;
use futures_util::future::join_all;
use throng_cluster::{AppendError, LogError, Position, ShardLog};
use throng_nats::{Certificate, Credentials, Nats, NatsError, NatsLog, Options};

use crate::servers::{Servers, next, password, read_all};

fn record(number: u64) -> Bytes {
    format!("record {number}").into()
}

/// Appends records until the log ends at a position.
async fn fill(log: &NatsLog, from: u64, to: u64) {
    let appends = (from..=to).map(|number| log.append(record(number), Some(Position(number - 1))));
    let outcomes = join_all(appends.collect::<Vec<_>>()).await;
    assert!(outcomes.into_iter().eq((from..=to).map(|at| Ok(Position(at)))));
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_are_stored_in_the_order_of_the_calls_whether_or_not_they_are_polled() {
    let Some(servers) = Servers::start(1) else { return };
    let log = servers.connect().await.create("order").await.unwrap();
    let clone = log.clone();
    let mut appends: Vec<_> = (1..=500)
        .map(|number| (if number % 3 == 0 { &log } else { &clone }).append(record(number), None))
        .collect();
    // Polled last first; some are not polled at all.
    appends.truncate(400);
    appends.reverse();
    let mut outcomes = join_all(appends).await;
    outcomes.reverse();
    assert_eq!(outcomes, (1..=400).map(|at| Ok(Position(at))).collect::<Vec<_>>());
    fill(&log, 501, 501).await;
    let read = read_all(&log, 1).await;
    assert!(read.into_iter().eq((1..=501).map(|at| (Position(at), record(at)))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_holds_or_refuses_and_appends_behind_a_refusal_may_still_be_stored() {
    let Some(servers) = Servers::start(1) else { return };
    let nats = servers.connect().await;
    let (log, other) = (nats.create("fence").await.unwrap(), nats.open("fence").await.unwrap());
    assert_eq!(log.append("a".into(), Some(Position(0))).await, Ok(Position(1)));
    assert_eq!(log.append("b".into(), Some(Position(0))).await, Err(AppendError::Refused));
    assert_eq!(log.append("b".into(), Some(Position(2))).await, Err(AppendError::Refused));
    assert_eq!(other.append("foreign".into(), None).await, Ok(Position(2)));
    // The second one fits by its number: the server does not know that the record before it is foreign.
    let pipeline = ["c", "d", "e"].into_iter().zip([1, 2, 3]);
    let appends = pipeline.map(|(record, after)| log.append(record.into(), Some(Position(after))));
    let outcomes = join_all(appends.collect::<Vec<_>>()).await;
    assert_eq!(outcomes, [Err(AppendError::Refused), Ok(Position(3)), Ok(Position(4))]);
    assert_eq!(log.end().await, Ok(Position(4)));
    let read: Vec<_> = read_all(&log, 1).await.into_iter().map(|(_, record)| record).collect();
    assert_eq!(read, ["a", "foreign", "d", "e"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_begins_at_any_position_and_goes_on_with_what_comes() {
    let Some(servers) = Servers::start(1) else { return };
    let log = servers.connect().await.create("read").await.unwrap();
    let mut early = log.read(Position(0));
    fill(&log, 1, 100).await;
    let mut starts = [1, 50, 100, 101, 105].map(|from| (from, log.read(Position(from))));
    // The last two wait for records that are yet to come.
    let waiting = tokio::time::timeout(Duration::from_millis(300), next(&mut starts[4].1)).await;
    assert!(waiting.is_err(), "{waiting:?}");
    fill(&log, 101, 110).await;
    for (from, records) in &mut starts {
        for at in *from..=110 {
            assert_eq!(next(records).await, Some(Ok((Position(at), record(at)))));
        }
    }
    for at in 1..=110 {
        assert_eq!(next(&mut early).await, Some(Ok((Position(at), record(at)))));
    }
    // More than is under way to a reader at a time.
    let large: Vec<_> = (0..60).map(|byte| Bytes::from(vec![byte; 500_000])).collect();
    for record in &large {
        assert!(log.append(record.clone(), None).await.is_ok());
    }
    for (index, record) in large.iter().enumerate() {
        let at = Position(111 + index as u64);
        assert!(next(&mut early).await == Some(Ok((at, record.clone()))), "{at:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_trimmed_records_is_told_where_the_log_begins() {
    let Some(servers) = Servers::start(1) else { return };
    let log = servers.connect().await.create("trim").await.unwrap();
    assert_eq!(log.trim(Position(1)).await, Ok(()));
    fill(&log, 1, 100).await;
    for before in [0, 1] {
        assert_eq!(log.trim(Position(before)).await, Ok(()));
    }
    assert_eq!(read_all(&log, 1).await.len(), 100);
    assert_eq!(log.trim(Position(50)).await, Ok(()));
    let mut late = log.read(Position(10));
    assert_eq!(next(&mut late).await, Some(Err(LogError::Trimmed(Position(50)))));
    assert_eq!(next(&mut late).await, None);
    let read = read_all(&log, 50).await;
    assert_eq!(read.first(), Some(&(Position(50), record(50))));
    assert_eq!(read.len(), 51);
    // Backwards, and beyond the end.
    for (before, begin) in [(20, 50), (9999, 100)] {
        assert_eq!(log.trim(Position(before)).await, Ok(()));
        let error = next(&mut log.read(Position(1))).await;
        assert_eq!(error, Some(Err(LogError::Trimmed(Position(begin)))));
        assert_eq!(log.end().await, Ok(Position(100)));
    }
    fill(&log, 101, 102).await;
    assert_eq!(read_all(&log, 100).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_longer_than_the_servers_take_is_refused_and_the_longest_is_stored() {
    let Some(servers) = Servers::start(1) else { return };
    let log = servers.connect().await.create("long").await.unwrap();
    let bytes_max = log.record_bytes_max();
    assert!(bytes_max > 1_000_000, "{bytes_max}");
    let record = |bytes| Bytes::from(vec![7; bytes]);
    assert_eq!(log.append(record(bytes_max), Some(Position(0))).await, Ok(Position(1)));
    assert_eq!(log.append(record(bytes_max + 1), None).await, Err(AppendError::Refused));
    assert_eq!(log.append("short".into(), Some(Position(1))).await, Ok(Position(2)));
    assert_eq!(log.append(Bytes::new(), Some(Position(2))).await, Ok(Position(3)));
    let read: Vec<_> = read_all(&log, 1).await.into_iter().map(|(_, record)| record).collect();
    assert!(read == [record(bytes_max), "short".into(), Bytes::new()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_stream_was_deleted_fails_and_another_stream_of_the_name_is_not_it() {
    let Some(servers) = Servers::start(1) else { return };
    let (nats, context) = (servers.connect().await, servers.context().await);
    let log = nats.create("gone").await.unwrap();
    fill(&log, 1, 3).await;
    let mut records = log.read(Position(3));
    assert!(matches!(next(&mut records).await, Some(Ok(_))));
    context.delete_stream("gone").await.unwrap();
    assert!(matches!(next(&mut records).await, Some(Err(LogError::Unavailable(_)))));
    assert_eq!(next(&mut records).await, None);
    assert_eq!(log.append("a".into(), None).await, Err(AppendError::Unknown));
    assert!(matches!(log.end().await, Err(LogError::Unavailable(_))));
    assert!(matches!(log.trim(Position(2)).await, Err(LogError::Unavailable(_))));
    assert_eq!(nats.open("gone").await.err(), Some(NatsError::NoLog("gone".into())));
    let other = nats.create("gone").await.unwrap();
    assert_eq!(other.end().await, Ok(Position(0)));
    let Err(LogError::Unavailable(reason)) = log.end().await else { panic!("another stream") };
    assert!(reason.contains("made again"), "{reason}");
    let error = next(&mut log.read(Position(1))).await;
    assert!(matches!(error, Some(Err(LogError::Unavailable(_)))));
    assert_eq!(log.append("b".into(), Some(Position(3))).await, Err(AppendError::Refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_in_a_log_ends_a_reader_each_time() {
    let Some(servers) = Servers::start(1) else { return };
    let (nats, context) = (servers.connect().await, servers.context().await);
    let log = nats.create("hole").await.unwrap();
    fill(&log, 1, 5).await;
    let stream = context.get_stream("hole").await.unwrap();
    assert!(stream.delete_message(3).await.is_err(), "the stream denies it");
    // No setting of a log allows this, so another stream has to serve.
    context.delete_stream("hole").await.unwrap();
    let config = Config { subjects: vec!["throng.hole".into()], .."hole".into() };
    context.create_stream(config).await.unwrap();
    for number in 1..=5 {
        context.publish("throng.hole", record(number)).await.unwrap().await.unwrap();
    }
    let mut stream = context.get_stream("hole").await.unwrap();
    stream.delete_message(3).await.unwrap();
    let mut config = stream.info().await.unwrap().config.clone();
    (config.discard, config.deny_delete) = (DiscardPolicy::New, true);
    config.allow_direct = false;
    context.update_stream(config).await.unwrap();
    let log = nats.open("hole").await.unwrap();
    for _ in 0..2 {
        let mut records = log.read(Position(2));
        assert_eq!(next(&mut records).await, Some(Ok((Position(2), record(2)))));
        let Some(Err(LogError::Unavailable(reason))) = next(&mut records).await else {
            panic!("position 4 was taken for 3");
        };
        assert!(reason.contains("position 3") && reason.contains("4 came"), "{reason}");
        assert_eq!(next(&mut records).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_no_log_is_refused_by_the_name_of_its_setting() {
    let Some(servers) = Servers::start(1) else { return };
    let (nats, context) = (servers.connect().await, servers.context().await);
    let config = Config { subjects: vec!["throng.other".into()], .."other".into() };
    context.create_stream(config).await.unwrap();
    for found in [nats.create("other").await, nats.open("other").await] {
        let Err(error @ NatsError::Setting { .. }) = found else { panic!("{found:?}") };
        assert!(error.to_string().contains("has "), "{error}");
    }
    let found = nats.create("a.b").await.err();
    assert!(matches!(found, Some(NatsError::Option { option: "name", .. })), "{found:?}");
    let mut three = servers.options("throng");
    three.replicas = 3;
    let found = Nats::connect(three).await.unwrap().create("three").await.err();
    assert!(matches!(found, Some(NatsError::Refused { .. })), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_cannot_be_used_are_refused_with_the_reason() {
    let Some(servers) = Servers::start(1) else { return };
    let refusal = |options: Options| async { Nats::connect(options).await.err() };
    drop(servers.connect().await);

    let mut wrong = servers.options("throng");
    wrong.credentials = Credentials::Token("wrong".into());
    assert!(matches!(refusal(wrong).await, Some(NatsError::Denied(_))));
    let mut absent = servers.options("throng");
    absent.credentials = Credentials::File("no/such/file".into());
    let found = refusal(absent).await;
    assert!(matches!(found, Some(NatsError::Option { option: "credentials", .. })), "{found:?}");
    let found = refusal(servers.options("plain")).await;
    assert!(matches!(found, Some(NatsError::NoJetStream(_))), "{found:?}");
    assert!(matches!(refusal(Options::new([""; 0])).await, Some(NatsError::Option { .. })));
    let mut nobody = Options::new(["nats://127.0.0.1:1"]);
    nobody.patience = Duration::from_millis(200);
    assert!(matches!(refusal(nobody).await, Some(NatsError::Unavailable(_))));

    let mut asked = servers.options("throng");
    asked.system = Some(password("system"));
    assert_eq!(refusal(asked.clone()).await, None);
    asked.system = Some(password("plain"));
    assert!(matches!(refusal(asked).await, Some(NatsError::Denied(_))));
    let mut more = servers.options("throng");
    (more.system, more.replicas) = (Some(password("system")), 3);
    more.patience = Duration::from_millis(200);
    assert!(matches!(refusal(more).await, Some(NatsError::Unavailable(_))));

    let Some(servers) = Servers::start_with(1, "2m", "") else { return };
    drop(servers.connect().await);
    let mut asked = servers.options("throng");
    asked.system = Some(password("system"));
    let found = refusal(asked).await;
    assert_eq!(found, Some(NatsError::Unsynced { server: "n0".into() }));
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_shown_to_and_demanded_from_servers() {
    let path = |name: &str| {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../throng-node/tests/tls");
        std::path::Path::new(dir).join(name)
    };
    let tls = format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        path("rsa.pem"),
        path("rsa.key"),
        path("root.pem")
    );
    let Some(servers) = Servers::start_with(1, "always", &tls) else { return };
    let mut options = servers.options("throng");
    options.authorities = Some(path("root.pem"));
    options.certificate = Some(Certificate { chain: path("ec.pem"), key: path("ec.key") });
    let log = Nats::connect(options.clone()).await.unwrap().create("tls").await.unwrap();
    fill(&log, 1, 1).await;
    let mut nameless = options.clone();
    nameless.certificate = None;
    let found = Nats::connect(nameless).await.err();
    assert!(matches!(found, Some(NatsError::Denied(_))), "{found:?}");
    options.authorities = None;
    let found = Nats::connect(options).await.err();
    assert!(matches!(found, Some(NatsError::Denied(_))), "{found:?}");
}
