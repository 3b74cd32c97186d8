//! The stop of a node as its clients and its load balancer see it.

use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{Node, send};
use crate::sockets::{Closed, Socket};

/// Time after which an event that does not come is missed.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_node_is_unready_before_its_listener_closes() {
    let (node, client) = Node::with_client(&["--drain-delay", "1h"]);
    let probe = async |path: &str| {
        let response = client.request(Method::GET, path).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(probe("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(probe("/readyz").await, (200, "ok\n".to_owned()));
    node.signal("TERM").await;
    timeout(PATIENCE, async { while probe("/readyz").await.0 == 200 {} }).await.unwrap();
    let unready = send(client.request(Method::GET, "/readyz")).await.unwrap();
    unready.is_problem(503, "draining");
    // New clients are still served, and the process is alive.
    assert_eq!(probe("/livez").await.0, 200);
    TcpStream::connect(&node.address).unwrap();
    node.client().register("alice").await;
    node.signal("TERM").await;
    assert_eq!(node.wait().status.code(), Some(0));
}

#[tokio::test]
async fn a_drain_closes_every_socket_and_loses_no_acknowledged_post() {
    const SOCKETS: usize = 100;
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &["--drain-timeout", "10m"]);
    let client = node.client();
    let token = client.register("alice").await;
    let mut sockets: Vec<Socket> =
        (0..SOCKETS).map(|_| Socket::open(&node.address, &token, &json!(null)).0).collect();
    // Each socket gets its starting position before anything else.
    for socket in &mut sockets {
        assert_eq!(socket.next().unwrap()["type"], "reset");
    }
    // A client posts until the node ends the connection.
    let poster = tokio::spawn({
        let (client, token) = (node.client(), token.clone());
        async move {
            let mut acknowledged = Vec::new();
            loop {
                let text = format!("post {}", acknowledged.len());
                let request = client.request(Method::POST, "/api/v1/posts").bearer_auth(&token);
                match send(request.json(&json!({ "text": text }))).await {
                    Ok(answer) if answer.status == 201 => {
                        acknowledged.push(answer.body["id"].as_str().unwrap().to_owned());
                    }
                    _ => return acknowledged,
                }
            }
        }
    });
    let posts = async || client.get("/api/v1/users/alice", "").await.body["posts"].as_u64();
    timeout(PATIENCE, async { while posts().await < Some(3) {} }).await.unwrap();
    node.signal("TERM").await;
    // Each client closes as a browser does, when it has read the close frame.
    let ends = move || sockets.into_iter().map(Socket::end).collect::<Vec<_>>();
    let ends = tokio::task::spawn_blocking(ends).await.unwrap();
    assert_eq!(ends.len(), SOCKETS);
    for end in ends {
        assert_eq!(end, (Closed(1012), "the server restarts".to_owned()));
    }
    let acknowledged = poster.await.unwrap();
    let ended = node.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!ended.errors.contains("at the drain timeout"), "{ended:?}");
    assert!(!ended.errors.contains("ERROR"), "{ended:?}");

    let node = Node::start(data.path(), &[]);
    let profile = node.client().get("/api/v1/users/alice", "").await;
    let kept = profile.body["posts"].as_u64().unwrap() as usize;
    assert!(acknowledged.len() >= 3 && kept >= acknowledged.len(), "{kept}");
    // At most one post was stored without its answer.
    assert!(kept <= acknowledged.len() + 1, "{kept} > {}", acknowledged.len());
}
