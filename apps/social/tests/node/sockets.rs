//! The sockets of clients: changes of a timeline as they happen, across lost connections and a kill.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use crate::harness::{Client, Node, PASSWORD, send};

/// Time after which a message that does not come is missed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Socket(WebSocket<TcpStream>);

/// End of a socket: the code of the close frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed(pub(crate) u16);

impl Socket {
    pub(crate) fn connect(address: &str) -> Socket {
        Socket::connect_to(address, "/api/v1/socket")
    }

    pub(crate) fn connect_to(address: &str, path: &str) -> Socket {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Socket(tungstenite::client(format!("ws://{address}{path}"), stream).unwrap().0)
    }

    /// Connects, says hello, and returns the socket with the position in the welcome.
    pub(crate) fn open(address: &str, token: &str, last: &Value) -> (Socket, Value) {
        let mut socket = Socket::connect(address);
        socket.say(&json!({ "type": "hello", "token": token, "last": last }).to_string());
        let welcome = socket.next().unwrap();
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        (socket, welcome["position"].clone())
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    pub(crate) fn next(&mut self) -> Result<Value, Closed> {
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => return Ok(serde_json::from_str(text.as_str()).unwrap()),
                Message::Close(Some(close)) => return Err(Closed(close.code.into())),
                _ => {}
            }
        }
    }

    pub(crate) fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next().unwrap();
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// Reads to the close frame, answers it, and returns its code and its reason.
    pub(crate) fn end(mut self) -> (Closed, String) {
        loop {
            if let Message::Close(Some(close)) = self.0.read().unwrap() {
                // The answer to the frame is queued. The server may have closed the connection.
                let _ = self.0.flush();
                return (Closed(close.code.into()), close.reason.to_string());
            }
        }
    }

    /// Returns the next message, or `None` once the connection is lost.
    pub(crate) fn next_until_lost(&mut self) -> Option<Value> {
        loop {
            match self.0.read().ok()? {
                Message::Text(text) => return Some(serde_json::from_str(text.as_str()).unwrap()),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }
}

async fn timeline(client: &Client, token: &str) -> Vec<String> {
    let page = client.get("/api/v1/timeline?limit=100", token).await;
    assert_eq!(page.status, 200, "{page:?}");
    let posts = page.body["posts"].as_array().unwrap();
    posts.iter().map(|post| post["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_client_gets_each_change_once_across_lost_connections_and_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    let before = client.publish(&alice, "before").await;
    let (mut socket, position) = Socket::open(&node.address, &bob, &Value::Null);
    assert_eq!(socket.next().unwrap(), json!({ "type": "reset", "position": position }));
    socket.say(r#"{"type":"ping"}"#);
    assert_eq!(socket.next().unwrap(), json!({ "type": "pong" }));

    // A follow brings posts that no change has shown.
    assert_eq!(client.put("/api/v1/following/alice", &bob).await.status, 204);
    let reset = socket.next().unwrap();
    assert_eq!(reset["type"], "reset", "{reset}");
    assert_eq!(timeline(&client, &bob).await, [&*before]);
    let first = client.publish(&alice, "<b>first</b>").await;
    let shown = socket.next().unwrap();
    assert_eq!((&shown["type"], &shown["post"]["id"]), (&json!("post"), &json!(first)), "{shown}");
    assert_eq!(shown["post"]["text"], "<b>first</b>");
    assert_eq!(client.delete(&format!("/api/v1/posts/{first}"), &alice).await.status, 204);
    assert_eq!(socket.next().unwrap(), json!({ "type": "deleted", "id": first }));

    // What comes while the client is away is sent when it is back.
    drop(socket);
    let missed =
        [client.publish(&alice, "missed").await, client.publish(&alice, "missed too").await];
    let mut last = reset["position"].clone();
    last["sequence"] = json!(last["sequence"].as_u64().unwrap() + 2);
    let (mut socket, position) = Socket::open(&node.address, &bob, &last);
    assert_eq!(position["sequence"].as_u64().unwrap(), last["sequence"].as_u64().unwrap() + 2);
    for id in &missed {
        assert_eq!(socket.next().unwrap()["post"]["id"], json!(id));
    }
    // A post that came and went meanwhile is not shown again.
    drop(socket);
    let brief = client.publish(&alice, "brief").await;
    assert_eq!(client.delete(&format!("/api/v1/posts/{brief}"), &alice).await.status, 204);
    let (mut socket, position) = Socket::open(&node.address, &bob, &position);
    for _ in 0..2 {
        assert_eq!(socket.next().unwrap(), json!({ "type": "deleted", "id": brief }));
    }
    // At the newest position nothing is sent again, and any other position gives a reset.
    let (mut newest, same) = Socket::open(&node.address, &bob, &position);
    assert_eq!(same, position);
    for wrong in [
        json!({ "stream": 1, "sequence": 0 }),
        json!({ "stream": position["stream"], "sequence": 99 }),
    ] {
        let (mut lost, position) = Socket::open(&node.address, &bob, &wrong);
        assert_eq!(lost.next().unwrap(), json!({ "type": "reset", "position": position }));
    }
    let both = client.publish(&alice, "to both").await;
    for socket in [&mut socket, &mut newest] {
        assert_eq!(socket.next().unwrap()["post"]["id"], json!(both));
    }
    node.signal("KILL").await;
    node.wait();

    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let (mut socket, position) = Socket::open(&node.address, &bob, &position);
    assert_eq!(socket.next().unwrap(), json!({ "type": "reset", "position": position }));
    assert_eq!(timeline(&client, &bob).await, [&*both, &*missed[1], &*missed[0], &*before]);
    let after = client.publish(&alice, "after").await;
    assert_eq!(socket.next().unwrap()["post"]["id"], json!(after));

    // A drain tells the client to connect again.
    node.signal("TERM").await;
    assert_eq!(socket.next(), Err(Closed(1012)));
    assert!(node.wait().status.success());
}

#[tokio::test]
async fn a_socket_without_a_valid_token_is_closed() {
    let (node, client) = Node::with_client(&[]);
    let alice = client.register("alice").await;
    let revoked = client.register("bob").await;
    assert_eq!(client.delete("/api/v1/sessions", &revoked).await.status, 204);
    let hello = |token: &str| json!({ "type": "hello", "token": token, "last": null }).to_string();
    let table = [
        ("no token", hello(""), 4401),
        ("a token that is none", hello("letmein"), 4401),
        ("a changed token", hello(&format!("{alice}A")), 4401),
        ("a revoked token", hello(&revoked), 4401),
        ("not JSON", "hello".to_owned(), 1008),
        ("another type", json!({ "type": "post" }).to_string(), 1008),
        (
            "a field too many",
            json!({ "type": "hello", "token": alice, "last": null, "x": 1 }).to_string(),
            1008,
        ),
        (
            "a position that is none",
            json!({ "type": "hello", "token": alice, "last": 7 }).to_string(),
            1008,
        ),
    ];
    for (name, text, code) in table {
        let mut socket = Socket::connect(&node.address);
        socket.say(&text);
        assert_eq!(socket.next(), Err(Closed(code)), "{name}");
    }
    let (mut socket, _) = Socket::open(&node.address, &alice, &Value::Null);
    assert_eq!(socket.next().unwrap()["type"], "reset");
    socket.say(&hello(&alice));
    assert_eq!(socket.next(), Err(Closed(1008)), "a second hello");

    // A page of another origin cannot open a socket.
    let request = client.upgrade().header("origin", "https://evil.example");
    assert_eq!(send(request).await.unwrap().status, 403);
}

#[tokio::test]
async fn a_revoked_token_closes_its_sockets() {
    let (node, client) = Node::with_client(&[]);
    let one = client.register("alice").await;
    let other = &client.log_in("alice", PASSWORD).await.token();
    let mut sockets = [&one, &one, other].map(|token| {
        let (mut socket, _) = Socket::open(&node.address, token, &Value::Null);
        assert_eq!(socket.next().unwrap()["type"], "reset");
        socket
    });
    assert_eq!(client.delete("/api/v1/sessions/current", &one).await.status, 204);
    assert_eq!(sockets[0].next(), Err(Closed(4401)));
    assert_eq!(sockets[1].next(), Err(Closed(4401)));
    // The other session goes on, until all are revoked.
    sockets[2].say(&json!({ "type": "enter", "room": "nowhere", "last": null }).to_string());
    assert_eq!(sockets[2].next().unwrap()["type"], "refused");
    assert_eq!(client.delete("/api/v1/sessions", other).await.status, 204);
    assert_eq!(sockets[2].next(), Err(Closed(4401)));
}

#[tokio::test]
async fn an_expired_token_closes_its_socket() {
    let node = Node::fresh(&["--token-ttl", "2s"]);
    let alice = node.client().register("alice").await;
    let (mut socket, _) = Socket::open(&node.address, &alice, &Value::Null);
    assert_eq!(socket.next().unwrap()["type"], "reset");
    assert_eq!(socket.next(), Err(Closed(4401)));
}

#[tokio::test]
async fn a_client_that_applies_all_changes_has_the_timeline() {
    let (node, client) = Node::with_client(&[]);
    let mut tokens = Vec::new();
    for user in 0..4 {
        tokens.push(client.register(&format!("user_{user}")).await);
    }
    let (mut socket, _) = Socket::open(&node.address, &tokens[0], &Value::Null);
    let mut random = fastrand::Rng::with_seed(7);
    let mut shown: BTreeSet<String> = BTreeSet::new();
    for round in 0..10 {
        for _ in 0..20 {
            let user = random.usize(1..4);
            match random.u8(..8) {
                0 => drop(client.put(&format!("/api/v1/following/user_{user}"), &tokens[0]).await),
                1 => {
                    drop(client.delete(&format!("/api/v1/following/user_{user}"), &tokens[0]).await)
                }
                2 => {
                    let own = client.get(&format!("/api/v1/users/user_{user}/posts"), "").await;
                    if let Some(id) = own.body["posts"][0]["id"].as_str() {
                        client.delete(&format!("/api/v1/posts/{id}"), &tokens[user]).await;
                    }
                }
                _ => drop(client.publish(&tokens[user], "a post").await),
            }
        }
        // The last change of the round that the client must see.
        assert_eq!(client.put("/api/v1/following/user_1", &tokens[0]).await.status, 204);
        let last = client.publish(&tokens[1], &format!("the last of round {round}")).await;
        loop {
            let message = socket.next().unwrap();
            match message["type"].as_str().unwrap() {
                "post" => {
                    let id = message["post"]["id"].as_str().unwrap().to_owned();
                    let is_last = id == last;
                    shown.insert(id);
                    if is_last {
                        break;
                    }
                }
                "deleted" => drop(shown.remove(message["id"].as_str().unwrap())),
                "reset" => {
                    // It may show changes that are still on their way, which change nothing then.
                    shown = timeline(&client, &tokens[0]).await.into_iter().collect();
                    if shown.contains(&last) {
                        break;
                    }
                }
                other => panic!("{other}"),
            }
        }
        let found: BTreeSet<String> = timeline(&client, &tokens[0]).await.into_iter().collect();
        let newest: BTreeSet<String> = shown.iter().rev().take(100).cloned().collect();
        assert_eq!(newest, found, "round {round}");
    }
}
