//! Floods of logins: other clients still get through, and memory stays bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use futures_util::future::join_all;

use crate::harness::{Client, Node, PASSWORD};

#[tokio::test]
async fn a_flood_of_400_logins_blocks_no_other_client() {
    // However slow the machine, logins with a place in the queue get their answer.
    let node = Node::fresh(&["--request-timeout", "600s", "--unlimited"]);
    for name in ["alice", "bob"] {
        node.client().register(name).await;
    }
    let over = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(AtomicUsize::new(0));
    let flood: Vec<_> = (0..400)
        .map(|_| {
            let (client, over, refused) = (node.client(), over.clone(), refused.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let answer = client.log_in("alice", "wrong horse").await;
                    if answer.status == 401 {
                        continue;
                    }
                    answer.is_problem(429, "too-many-logins");
                    let seconds = answer.headers["retry-after"].to_str().unwrap().to_owned();
                    assert!(seconds.parse::<u32>().unwrap() > 0);
                    refused.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            })
        })
        .collect();
    while refused.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    // Another name from the same address, the same name from another address.
    for (from, name) in [("127.0.0.1", "bob"), ("127.0.0.2", "alice")] {
        let client = Client::from(from, &node.address);
        for _ in 0..5 {
            let answer = client.log_in(name, PASSWORD).await;
            assert_eq!(answer.status, 201, "{name}: {answer:?}");
        }
    }
    node.client().register("carol").await;
    let profile = node.client().get("/api/v1/users/alice", "").await;
    assert_eq!(profile.status, 200, "{profile:?}");
    node.client().assert_healthy().await;
    over.store(true, Ordering::SeqCst);
    for flooding in flood {
        flooding.await.unwrap();
    }
}

#[tokio::test]
async fn logins_leave_no_more_than_a_memory_for_each_hash_at_once() {
    let (node, client) = Node::with_client(&[]);
    client.register("alice").await;
    let before = node.memory_bytes("VmHWM");
    for at_once in [8, 8, 1, 1, 1, 1] {
        let logins = (0..at_once).map(|_| client.log_in("alice", PASSWORD));
        assert!(join_all(logins).await.iter().all(|answer| answer.status == 201));
    }
    let more = node.memory_bytes("VmHWM") - before;
    // Half the cores hash at once, and one hash has had its memory since the start.
    let at_once = (available_parallelism().unwrap().get() as u64 / 2).max(1);
    let expected = (at_once - 1) * (19 << 20);
    assert!(more < expected + (16 << 20), "{more} bytes more at {at_once} hashes at once");
}
