//! Peers with a valid certificate, or none, that break the protocol or keep what others need.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use throng_cluster::link::frame::{Frame, Hello, Limits, Reason};
use throng_cluster::link::{CallError, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::support::{Ca, LIMITS, Node, PATIENCE, Trap, dial, hello, introduce};

const SOON: Duration = Duration::from_millis(200);

#[tokio::test]
async fn bytes_that_are_no_tls_are_refused() {
    let node = Node::start(&Ca::new(), 1, Options::default()).await;
    let mut tcp = TcpStream::connect(&node.target.address).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = tcp.read_to_end(&mut answer).await;
    assert!(!answer.windows(4).any(|bytes| bytes == b"HTTP"));
    node.until(|stats| stats.handshakes_failed == 1).await;
}

#[tokio::test]
async fn a_peer_that_never_finishes_its_handshake_is_cut_and_its_place_is_free() {
    let ca = Ca::new();
    let options = Options { handshakes_max: 1, handshake_timeout: 5 * SOON, ..Options::default() };
    let node = Node::start(&ca, 1, options).await;
    let mut slow = TcpStream::connect(&node.target.address).await.unwrap();
    node.until(|stats| stats.accepts == 1).await;
    let mut one_too_many = TcpStream::connect(&node.target.address).await.unwrap();
    assert_eq!(one_too_many.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(node.links.stats().connections_refused, 1);
    assert_eq!(slow.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(node.links.stats().handshakes_slow, 1);

    // TLS alone is no handshake either: HELLO is missing.
    let _silent = dial(&node.target, &ca, Some(&ca.issue("shop"))).await;
    node.until(|stats| stats.handshakes_slow == 2 && stats.connections_open == 0).await;
    let other = Node::start(&ca, 2, Options::default()).await;
    // Many attempts: on a slow machine, an honest node may be too slow as well.
    for _ in 0..20 {
        match other.call(&node.target, "hi").await {
            Ok(_) => return,
            Err(error) => assert!(matches!(error, CallError::Unreachable { .. }), "{error}"),
        }
        sleep(SOON).await;
    }
    panic!("the place is not free");
}

#[tokio::test]
async fn a_peer_with_a_silent_handshake_leaves_calls_undone() {
    let ca = Ca::new();
    let options = Options { handshake_timeout: SOON, ..Options::default() };
    let node = Node::start(&ca, 1, options).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut target = node.target.clone();
    target.address = silent.local_addr().unwrap().to_string();
    let refused = node.call(&target, "hi").await;
    assert!(matches!(refused, Err(CallError::Unreachable { .. })), "{refused:?}");
}

#[tokio::test]
async fn forged_and_forbidden_frames_cut_the_connection() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options::default()).await;
    let bytes = |frame: Frame| {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        bytes
    };
    let request = Frame::Request { id: 0, within: PATIENCE, payload: "hi".into() };
    let oversized = |kind| {
        let mut bytes = BytesMut::new();
        bytes.put_u32_le(u32::MAX);
        bytes.put_slice(&[1, kind]);
        bytes
    };
    let forged = [
        BytesMut::from(&[12, 0, 0, 0, 1, 99, 0, 0][..]),
        BytesMut::from(&[12, 0, 0, 0, 9, 2, 0, 0][..]),
        BytesMut::from(&[12, 0, 0, 0, 1, 2, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0][..]),
        oversized(2),
        oversized(6),
        bytes(request),
        bytes(Frame::Hello(hello(77))),
        bytes(Frame::Reply { id: 1, payload: "hi".into() }),
        bytes(Frame::Goodbye),
    ];
    for (cut, bytes) in (1..).zip(forged) {
        let mut raw = introduce(&node.target, &ca).await;
        raw.send_bytes(&bytes).await;
        assert_eq!(raw.next().await, None, "{bytes:?}");
        node.until(|stats| stats.connections_malformed == cut && stats.connections_open == 0).await;
    }
    assert_eq!(node.service.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_frame_that_begins_and_never_ends_cuts_the_connection_however_it_trickles() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options { frame_timeout: SOON, ..Options::default() }).await;
    let mut raw = introduce(&node.target, &ca).await;
    raw.send_bytes(&[0, 1, 0, 0, 1, 2, 11, 0]).await;
    for _ in 0..240 {
        raw.send_bytes(&[0]).await;
        sleep(Duration::from_millis(10)).await;
        if node.links.stats().connections_slow == 1 {
            break;
        }
    }
    node.until(|stats| stats.connections_slow == 1 && stats.connections_open == 0).await;
}

#[tokio::test]
async fn a_peer_without_a_sign_of_life_is_dead_and_one_with_heartbeats_is_not() {
    let ca = Ca::new();
    let options = Options {
        silence_max: 10 * SOON,
        heartbeat: SOON / 10,
        idle_timeout: PATIENCE,
        ..Options::default()
    };
    let node = Node::start(&ca, 1, options.clone()).await;
    let alive = Node::start(&ca, 2, options).await;
    assert_eq!(alive.call(&node.target, "hi").await.unwrap(), "hi");
    let mut silent = introduce(&node.target, &ca).await;
    assert_eq!(silent.next().await, None);
    assert_eq!(node.links.stats().connections_silent, 1);
    assert_eq!(alive.call(&node.target, "hi").await.unwrap(), "hi");
    assert_eq!(alive.links.stats().dials, 1);
}

fn requests(ids: RangeInclusive<u64>, payload: &'static str) -> BytesMut {
    let mut requests = BytesMut::new();
    for id in ids {
        Frame::Request { id, within: PATIENCE, payload: payload.into() }.encode(&mut requests);
    }
    requests
}

#[tokio::test]
async fn a_peer_that_asks_far_beyond_its_limit_is_cut_before_refusals_fill_the_memory() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options { requests_max: 10, ..Options::default() }).await;
    let mut raw = introduce(&node.target, &ca).await;
    raw.send_bytes(&requests(1..=100, "wait")).await;
    node.until(|stats| stats.connections_malformed == 1 && stats.connections_open == 0).await;
    assert_eq!(node.links.stats().requests_busy, 20);
}

#[tokio::test]
async fn a_peer_that_never_reads_its_replies_keeps_their_slots_and_is_cut() {
    let ca = Ca::new();
    let options = Options {
        write_timeout: 5 * SOON,
        queued_bytes_max: 2 << 20,
        requests_max: 60,
        ..Options::default()
    };
    let node = Node::start(&ca, 1, options).await;
    let mut raw = introduce(&node.target, &ca).await;
    raw.send_bytes(&requests(1..=60, "long")).await;
    node.until_begun(60).await;
    // Most of these replies of 1 MiB are neither with the peer, nor in the queue, nor in the buffers of the system.
    raw.send_bytes(&requests(61..=120, "long")).await;
    node.until(|stats| stats.connections_stalled == 1 && stats.connections_open == 0).await;
    let stats = node.links.stats();
    assert!(stats.requests == 120 && stats.requests_busy > 0, "{stats:?}");
}

#[tokio::test]
async fn a_peer_that_never_reads_makes_sent_calls_unknown_and_hands_the_others_back() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options { write_timeout: SOON, ..Options::default() }).await;
    let trap = Trap::new(&ca.issue("shop")).await;
    let calls: Vec<_> =
        (0..30).map(|_| node.spawn_call(&trap.target, vec![1; 1 << 20], PATIENCE)).collect();
    let _raw = trap.accept(hello(77)).await.unwrap();
    let (mut unknown, mut unsent) = (0, 0);
    for call in calls {
        match call.await.unwrap() {
            Err(CallError::Unknown(_)) => unknown += 1,
            Err(CallError::Unreachable { request, .. }) if request.len() == 1 << 20 => unsent += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(unknown > 0 && unsent > 0, "{unknown} unknown, {unsent} unsent");
    assert_eq!(node.links.stats().connections_stalled, 1);
}

#[tokio::test]
async fn calls_that_never_left_this_node_are_not_unknown() {
    const BYTES: usize = 4000;
    let ca = Ca::new();
    let options = Options { write_timeout: SOON, requests_max: 3000, ..Options::default() };
    let node = Node::start(&ca, 1, options).await;
    let trap = Trap::new(&ca.issue("shop")).await;
    let calls: Vec<_> =
        (0..3000).map(|_| node.spawn_call(&trap.target, vec![1; BYTES], PATIENCE)).collect();
    let limits = Limits { requests: 3000, ..LIMITS };
    let mut raw = trap.accept(Hello { limits, ..hello(77) }).await.unwrap();
    let (mut unknown, mut unsent) = (0, 0);
    for call in calls {
        match call.await.unwrap() {
            Err(CallError::Unknown(_)) => unknown += 1,
            Err(CallError::Unreachable { .. }) => unsent += 1,
            other => panic!("{other:?}"),
        }
    }
    let mut arrived = 0;
    while let Some(frame) = raw.next().await {
        arrived += usize::from(matches!(frame, Frame::Request { .. }));
    }
    // TLS may hold 64 KiB that it has taken and not written, and one more may be cut.
    let most = arrived + (64 << 10) / BYTES + 1;
    assert!((arrived..=most).contains(&unknown), "{unknown} unknown, {arrived} arrived");
    assert!(unsent > 0 && node.links.stats().connections_stalled == 1, "{unsent} unsent");
}

#[tokio::test]
async fn an_answer_to_what_was_not_asked_cuts_the_connection() {
    let ca = Ca::new();
    let trap = Trap::new(&ca.issue("shop")).await;
    let node = Node::start(&ca, 1, Options::default()).await;
    let call = node.spawn_call(&trap.target, "hi", PATIENCE);
    let mut raw = trap.accept(hello(77)).await.unwrap();
    assert_eq!(raw.next_request().await, 1);
    raw.send(&Frame::Reply { id: 2, payload: "forged".into() }).await;
    assert!(matches!(call.await.unwrap(), Err(CallError::Unknown(_))));
    assert_eq!(node.links.stats().connections_malformed, 1);
}

#[tokio::test]
async fn an_unfit_hello_is_refused_on_both_sides_and_says_what_the_node_speaks() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options::default()).await;
    let trap = Trap::new(&ca.issue("shop")).await;
    let version = Hello { versions: 2..=3, ..hello(77) };
    let cluster = Hello { cluster: "bank".to_owned(), ..hello(77) };
    for (unfit, reason) in [(version, "version"), (cluster, "another cluster")] {
        let mut raw = dial(&node.target, &ca, Some(&ca.issue("shop"))).await.unwrap();
        raw.send(&Frame::Hello(unfit.clone())).await;
        raw.request(1, "hi", PATIENCE).await;
        assert!(matches!(raw.next().await, Some(Frame::Hello(ours)) if ours.versions == (1..=1)));
        assert_eq!(raw.next().await, None);

        let asks = Node::start(&ca, 2, Options::default()).await;
        let call = asks.spawn_call(&trap.target, "hi", PATIENCE);
        let mut raw = trap.accept(unfit).await.unwrap();
        assert!(matches!(raw.next().await, Some(Frame::Hello(_))));
        assert_eq!(raw.next().await, None);
        assert!(matches!(call.await.unwrap(),
            Err(CallError::Unreachable { request, reason: said }) if request == "hi" && said.contains(reason)));
    }
    node.until(|stats| stats.handshakes_failed == 2 && stats.connections_open == 0).await;
    assert_eq!(node.service.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_before_a_request() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options { connections_max: 1, ..Options::default() }).await;
    let raw = introduce(&node.target, &ca).await;
    let other = Node::start(&ca, 2, Options::default()).await;
    let refused = other.call(&node.target, "hi").await;
    assert!(matches!(refused, Err(CallError::Unreachable { .. })), "{refused:?}");
    assert_eq!(node.links.stats().connections_refused, 1);
    // The limit is one of both directions.
    assert!(matches!(node.call(&other.target, "hi").await, Err(CallError::Busy { .. })));
    drop(raw);
    node.until(|stats| stats.connections_open == 0).await;
    assert_eq!(node.call(&other.target, "hi").await.unwrap(), "hi");
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused_and_have_not_happened() {
    let ca = Ca::new();
    let node = Node::start(&ca, 1, Options { requests_max: 1, ..Options::default() }).await;
    let mut raw = introduce(&node.target, &ca).await;
    raw.request(1, "wait", PATIENCE).await;
    raw.request(2, "hi", PATIENCE).await;
    let refusal = raw.next().await;
    assert!(
        matches!(refusal, Some(Frame::Refusal { id: 2, reason: Reason::Busy, .. })),
        "{refusal:?}"
    );
    raw.send(&Frame::Cancel { id: 1 }).await;
    raw.request(3, "hi", PATIENCE).await;
    assert_eq!(raw.next().await, Some(Frame::Reply { id: 3, payload: "hi".into() }));
}
