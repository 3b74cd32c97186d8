//! Nodes and connections that end, are not there, or begin again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use throng_cluster::Incarnation;
use throng_cluster::link::{CallError, Options, Target};
use tokio::time::timeout;

use crate::support::{Ca, Node, PATIENCE, introduce, load};

#[tokio::test]
async fn a_call_in_flight_is_unknown_when_its_node_dies() {
    let ca = Ca::new();
    let a = Node::start(&ca, 1, Options::default()).await;
    let b = Node::start(&ca, 2, Options::default()).await;
    let call = a.spawn_call(&b.target, "wait", PATIENCE);
    b.until_begun(1).await;
    drop(b);
    assert!(matches!(call.await.unwrap(), Err(CallError::Unknown(_))));
    assert_eq!(a.links.stats().calls_unknown, 1);
}

#[tokio::test]
async fn the_service_of_a_caller_that_dies_is_dropped() {
    let ca = Ca::new();
    let b = Node::start(&ca, 2, Options::default()).await;
    let mut raw = introduce(&b.target, &ca).await;
    raw.request(1, "wait", 4 * PATIENCE).await;
    b.until_begun(1).await;
    drop(raw);
    b.until(|_| b.service.dropped.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_call_to_a_port_where_nobody_listens_has_not_happened_and_the_next_waits_for_no_dial() {
    let pause = Duration::from_secs(600);
    let a =
        Node::start(&Ca::new(), 1, Options { backoff: pause..=pause, ..Options::default() }).await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let target = Target { address: free.to_string(), node: Incarnation(2) };
    for _ in 0..3 {
        let refused = a.call(&target, "hi").await;
        assert!(matches!(&refused, Err(CallError::Unreachable { request, .. }) if request == "hi"));
    }
    let stats = a.links.stats();
    assert_eq!((stats.dials, stats.dials_failed, stats.calls_unreachable), (1, 1, 3));
}

#[tokio::test]
async fn a_node_that_was_not_there_is_dialed_again_after_a_pause() {
    let ca = Ca::new();
    let a = Node::start(&ca, 1, Options::default()).await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let target = Target { address: free.to_string(), node: Incarnation(2) };
    assert!(a.call(&target, "hi").await.is_err());
    let identity = load(&ca, &ca.issue("shop"), "shop").unwrap();
    let _b = Node::start_at(&target.address, identity, 2, Options::default()).await;
    let answered = async {
        while a.call(&target, "hi").await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await
        }
    };
    timeout(PATIENCE, answered).await.expect("the pause ends");
}

#[tokio::test]
async fn a_request_for_one_incarnation_is_not_sent_to_another() {
    let ca = Ca::new();
    let a = Node::start(&ca, 1, Options::default()).await;
    let b = Node::start(&ca, 2, Options::default()).await;
    let target = Target { node: Incarnation(3), ..b.target.clone() };
    let error = a.call(&target, "hi").await.unwrap_err();
    assert_eq!(error, CallError::WrongNode { request: "hi".into(), found: Incarnation(2) });
    assert_eq!(b.links.stats().requests, 0);
}

#[tokio::test]
async fn a_node_that_was_started_again_is_reached_by_its_new_incarnation_alone() {
    let ca = Ca::new();
    let quick = Duration::from_millis(1);
    let a = Node::start(&ca, 1, Options { backoff: quick..=quick, ..Options::default() }).await;
    let b = Node::start(&ca, 2, Options::default()).await;
    let before = b.target.clone();
    a.call(&before, "hi").await.unwrap();
    drop(b);
    a.until(|stats| stats.connections_open == 0).await;
    while !matches!(a.call(&before, "hi").await, Err(CallError::Unreachable { .. })) {}

    let identity = load(&ca, &ca.issue("shop"), "shop").unwrap();
    let b = Node::start_at(&before.address, identity, 3, Options::default()).await;
    assert_eq!(a.call(&b.target, "hi").await.unwrap(), "hi");
    let found = loop {
        match a.call(&before, "hi").await {
            Err(CallError::WrongNode { found, .. }) => break found,
            Err(CallError::Unreachable { .. }) => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(quick).await;
    };
    assert_eq!((found, b.links.stats().requests), (Incarnation(3), 1));
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_made_again_by_the_next_call() {
    let ca = Ca::new();
    let idle_timeout = Duration::from_millis(50);
    let a = Node::start(&ca, 1, Options { idle_timeout, ..Options::default() }).await;
    let b = Node::start(&ca, 2, Options::default()).await;
    for dials in 1..=2 {
        assert_eq!(a.call(&b.target, "hi").await.unwrap(), "hi");
        assert_eq!(a.links.stats().dials, dials);
        a.until(|stats| stats.connections_open == 0).await;
        b.until(|stats| stats.connections_open == 0).await;
    }
}

#[tokio::test]
async fn a_connection_is_not_idle_while_a_call_waits() {
    let ca = Ca::new();
    let idle_timeout = Duration::from_millis(20);
    let a = Node::start(&ca, 1, Options { idle_timeout, ..Options::default() }).await;
    let b = Node::start(&ca, 2, Options::default()).await;
    let call = a.spawn_call(&b.target, "wait", PATIENCE);
    b.until_begun(1).await;
    tokio::time::sleep(5 * idle_timeout).await;
    b.service.release.notify_one();
    assert_eq!(call.await.unwrap().unwrap(), "wait");
}

#[tokio::test]
async fn a_node_that_ends_in_order_answers_what_it_has_begun_and_refuses_the_rest() {
    let ca = Ca::new();
    let a = Node::start(&ca, 1, Options::default()).await;
    let b = Node::start(&ca, 2, Options::default()).await;
    let calls: Vec<_> = (0..10).map(|_| a.spawn_call(&b.target, "wait", PATIENCE)).collect();
    b.until_begun(10).await;
    let (links, release) = (b.links.clone(), b.service.release.clone());
    let stop = tokio::spawn(async move { links.stop(4 * PATIENCE).await });
    let late = loop {
        match a.call(&b.target, "hi").await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(&late, CallError::Unreachable { request, .. } if request == "hi"), "{late}");
    assert!(!stop.is_finished());
    release.notify_waiters();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "wait");
    }
    timeout(PATIENCE, stop).await.expect("nothing is left to wait for").unwrap();
    assert_eq!(b.links.stats().connections_open, 0);
    assert_eq!(a.links.stats().calls_unknown, 0);
    assert_eq!(Arc::strong_count(&b.links), 1);
}
