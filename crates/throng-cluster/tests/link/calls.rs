//! Calls between nodes that keep the rules: replies, deadlines, limits, refusals.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use throng_cluster::link::frame::{Frame, Hello, Limits};
use throng_cluster::link::{CallError, Options};
use tokio::time::sleep;

use crate::support::{Ca, LIMITS, Node, PATIENCE, Trap, hello, introduce};

const SOON: Duration = Duration::from_millis(200);

async fn two(options: Options) -> (Node, Node) {
    let ca = Ca::new();
    (Node::start(&ca, 1, options.clone()).await, Node::start(&ca, 2, options).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_concurrent_calls_are_answered_to_their_own_callers() {
    let (a, b) = two(Options::default()).await;
    let request = |number: usize, length: usize| Bytes::from(format!("{number:length$}"));
    let lengths: Vec<usize> = (0..4000).map(|_| fastrand::usize(6..2000)).collect();
    let calls: Vec<_> = (lengths.iter().enumerate())
        .map(|(number, length)| {
            let (from, to) = if number % 2 == 0 { (&a, &b) } else { (&b, &a) };
            from.spawn_call(&to.target, request(number, *length), PATIENCE)
        })
        .collect();
    for (number, (call, length)) in calls.into_iter().zip(lengths).enumerate() {
        assert_eq!(call.await.unwrap().unwrap(), request(number, length));
    }
    for node in [&a, &b] {
        let stats = node.links.stats();
        assert_eq!((stats.dials, stats.calls_replied, stats.requests), (1, 2000, 2000));
        assert_eq!(stats.connections_open, 2);
    }
}

#[tokio::test]
async fn a_slow_call_does_not_block_the_others() {
    let (a, b) = two(Options::default()).await;
    let slow = a.spawn_call(&b.target, "wait", PATIENCE);
    b.until_begun(1).await;
    for _ in 0..100 {
        assert_eq!(a.call(&b.target, "hi").await.unwrap(), "hi");
    }
    assert!(!slow.is_finished());
    b.service.release.notify_one();
    assert_eq!(slow.await.unwrap().unwrap(), "wait");
}

#[tokio::test]
async fn the_time_that_is_left_shrinks_while_a_request_waits() {
    let ca = Ca::new();
    let (node, trap) =
        (Node::start(&ca, 1, Options::default()).await, Trap::new(&ca.issue("shop")).await);
    let within = 2 * PATIENCE;
    // The first ones fill the buffers of the system, so that the last waits for the peer to read.
    let _first: Vec<_> =
        (0..20).map(|_| node.spawn_call(&trap.target, vec![1; 1 << 20], within)).collect();
    let mut raw = trap.accept(hello(77)).await.unwrap();
    sleep(SOON).await;
    let _last = node.spawn_call(&trap.target, "last", within);
    node.until(|stats| stats.calls == 21).await;
    sleep(SOON).await;
    let mut seen = 0;
    loop {
        match raw.next().await {
            Some(Frame::Request { within: left, payload, .. }) if payload == "last" => {
                assert!(left <= within - SOON, "{left:?}");
                break;
            }
            Some(Frame::Request { .. }) => seen += 1,
            other => assert!(matches!(other, Some(Frame::Hello(_))), "{other:?}"),
        }
    }
    assert_eq!(seen, 20);
}

#[tokio::test]
async fn a_call_whose_time_ends_while_it_waits_to_be_sent_has_not_happened() {
    let ca = Ca::new();
    let trap = Trap::new(&ca.issue("shop")).await;
    let node = Node::start(&ca, 1, Options::default()).await;
    // More than the buffers of the system take.
    let _first: Vec<_> =
        (0..20).map(|_| node.spawn_call(&trap.target, vec![1; 1 << 20], 2 * PATIENCE)).collect();
    let mut raw = trap.accept(hello(77)).await.unwrap();
    node.until(|stats| stats.calls == 20 && stats.connections_open == 1).await;
    let expired = node.links.call(&trap.target, "late".into(), SOON).await;
    assert_eq!(expired, Err(CallError::Expired { request: "late".into() }));
    let _last = node.spawn_call(&trap.target, "last", PATIENCE);
    loop {
        match raw.next().await {
            Some(Frame::Request { payload, .. }) if payload == "last" => break,
            Some(Frame::Request { payload, .. }) => assert_ne!(payload, "late"),
            other => assert!(matches!(other, Some(Frame::Hello(_))), "{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_service_knows_how_much_time_is_left() {
    let (a, b) = two(Options::default()).await;
    let reply = a.links.call(&b.target, "time".into(), Duration::from_secs(9)).await.unwrap();
    let left: u64 = std::str::from_utf8(&reply).unwrap().parse().unwrap();
    assert!((1..9000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_request_whose_time_is_over_is_not_begun_and_a_late_reply_is_not_sent() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options::default()).await;
    let mut raw = introduce(&node.target, &ca).await;
    raw.request(1, "hi", Duration::ZERO).await;
    raw.request(2, "wait", 5 * SOON).await;
    node.until(|stats| stats.requests_expired == 1 && stats.replies_late == 1).await;
    let counts = [&node.service.begun, &*node.service.dropped].map(|n| n.load(Ordering::SeqCst));
    assert_eq!(counts, [1, 1]);
    raw.request(3, "hi", PATIENCE).await;
    assert_eq!(raw.next().await, Some(Frame::Reply { id: 3, payload: "hi".into() }));
}

#[tokio::test]
async fn a_reply_that_comes_after_the_deadline_is_dropped_and_the_connection_is_not() {
    let ca = Ca::new();
    let trap = Trap::new(&ca.issue("shop")).await;
    let node = Node::start(&ca, 1, Options::default()).await;
    let first = node.spawn_call(&trap.target, "first", PATIENCE);
    let mut raw = trap.accept(hello(77)).await.unwrap();
    let first_id = raw.next_request().await;
    raw.send(&Frame::Reply { id: first_id, payload: "in time".into() }).await;
    assert_eq!(first.await.unwrap().unwrap(), "in time");
    // On a slow machine the time may be over before the request is sent.
    while !matches!(
        node.links.call(&trap.target, "late".into(), SOON).await,
        Err(CallError::Unknown(_))
    ) {}
    let id = raw.next_request().await;
    assert_eq!(raw.next().await, Some(Frame::Cancel { id }));
    raw.send(&Frame::Reply { id, payload: "late".into() }).await;
    let call = node.spawn_call(&trap.target, "last", PATIENCE);
    let id = raw.next_request().await;
    raw.send(&Frame::Reply { id, payload: "in time".into() }).await;
    assert_eq!(call.await.unwrap().unwrap(), "in time");
    assert_eq!(node.links.stats().answers_late, 1);
}

#[tokio::test]
async fn a_call_without_time_has_not_happened() {
    let (a, b) = two(Options::default()).await;
    a.call(&b.target, "hi").await.unwrap();
    for within in [Duration::ZERO, Duration::from_micros(900)] {
        let expired = a.links.call(&b.target, "now".into(), within).await;
        assert!(
            matches!(&expired, Err(CallError::Expired { request }) if request == "now"),
            "{expired:?}"
        );
    }
    a.call(&b.target, "hi").await.unwrap();
    assert_eq!((a.links.stats().calls_expired, b.links.stats().requests), (2, 2));
}

#[tokio::test]
async fn a_dropped_call_makes_room_here_and_at_the_other_node() {
    let (a, b) = two(Options { requests_max: 1, ..Options::default() }).await;
    let call = a.spawn_call(&b.target, "wait", 4 * PATIENCE);
    b.until_begun(1).await;
    let busy = a.call(&b.target, "hi").await;
    assert!(matches!(&busy, Err(CallError::Busy { request }) if request == "hi"), "{busy:?}");
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(a.call(&b.target, "hi").await.unwrap(), "hi");
    let (here, there) = (a.links.stats(), b.links.stats());
    assert_eq!((here.calls_cancelled, there.requests_cancelled, there.requests_busy), (1, 1, 0));
    b.until(|_| b.service.dropped.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn bytes_in_flight_have_a_limit_but_one_request_always_fits() {
    let (a, b) = two(Options { queued_bytes_max: 1000, ..Options::default() }).await;
    assert_eq!(a.links.call(&b.target, vec![1; 5000].into(), PATIENCE).await.unwrap().len(), 5000);
    let call = a.spawn_call(&b.target, "wait", PATIENCE);
    b.until_begun(2).await;
    let busy = a.links.call(&b.target, vec![1; 1000].into(), PATIENCE).await;
    assert!(matches!(busy, Err(CallError::Busy { .. })), "{busy:?}");
    b.service.release.notify_one();
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_longer_than_this_node_sends_or_the_other_takes_is_handed_back() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options { request_bytes_max: 100, ..Options::default() }).await;
    let trap = Trap::new(&ca.issue("shop")).await;
    let long = node.links.call(&trap.target, vec![1; 101].into(), PATIENCE).await;
    assert!(
        matches!(&long, Err(CallError::TooLarge { request, bytes_max: 100 }) if request.len() == 101)
    );
    let call = node.spawn_call(&trap.target, vec![1; 100], PATIENCE);
    let limits = Limits { request_bytes: 50, ..LIMITS };
    let mut raw = trap.accept(Hello { limits, ..hello(77) }).await.unwrap();
    assert!(matches!(call.await.unwrap(), Err(CallError::TooLarge { bytes_max: 50, .. })));
    assert!(matches!(raw.next().await, Some(Frame::Hello(_))));
    drop(node);
    assert_eq!(raw.next().await, None);
}

#[tokio::test]
async fn a_refusal_hands_the_request_back_and_a_failure_does_not() {
    let (a, b) = two(Options { reply_bytes_max: 1 << 16, ..Options::default() }).await;
    let refused = a.call(&b.target, "refuse").await;
    let expected = CallError::Refused { request: "refuse".into(), reason: "not here".into() };
    assert_eq!(refused, Err(expected));
    for request in ["panic", "long"] {
        let unknown = a.call(&b.target, request).await.unwrap_err();
        assert_eq!(unknown.into_request(), None);
    }
    let stats = b.links.stats();
    assert_eq!((stats.requests_failed, stats.replies_too_large), (1, 1));
    assert_eq!(a.call(&b.target, "hi").await.unwrap(), "hi");
    assert_eq!(a.links.stats().dials, 1);
}
