//! Limits of accounts and client networks: rates, caps, and the address of a client behind a proxy.
//!
//! A rate of `N/d` gives a client N requests in a test: the next comes back after hours.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Client, Node, PASSWORD, send};
use crate::sockets::{Closed, Socket};

/// Sends requests until one is refused by a rate. Returns the number of admitted requests.
async fn admitted(mut request: impl AsyncFnMut() -> Answer) -> usize {
    for admitted in 0..100 {
        let answer = request().await;
        if answer.status == 429 {
            answer.is_problem(429, "rate-limited");
            assert!(seconds(&answer) > 0);
            return admitted;
        }
    }
    panic!("nothing was refused");
}

fn seconds(answer: &Answer) -> u64 {
    answer.headers["retry-after"].to_str().unwrap().parse().unwrap()
}

async fn post(client: &Client, token: &str, key: &str) -> Answer {
    let request = client.request(Method::POST, "/api/v1/posts").bearer_auth(token);
    let request = request.header("idempotency-key", key).json(&json!({ "text": "hello" }));
    send(request).await.unwrap()
}

/// Sends a request without a token.
async fn look(client: &Client) -> Answer {
    send(client.request(Method::GET, "/api/v1/users/alice")).await.unwrap()
}

#[tokio::test]
async fn each_account_and_network_has_its_own_reads_and_writes() {
    let (node, client) = Node::with_client(&["--rate-reads", "10/d", "--rate-writes", "3/d"]);
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);

    // Writes of all kinds are one budget.
    for answer in [
        client.put("/api/v1/following/bob", &alice).await,
        post(&client, &alice, "one").await,
        client.delete("/api/v1/following/bob", &alice).await,
    ] {
        assert!(answer.status < 300, "{answer:?}");
    }
    post(&client, &alice, "two").await.is_problem(429, "rate-limited");
    client
        .post("/api/v1/rooms", &alice, &json!({ "name": "x" }))
        .await
        .is_problem(429, "rate-limited");
    assert_eq!(post(&client, &bob, "one").await.status, 201, "another account");

    // Reads are another budget, also on routes that need no token.
    assert_eq!(admitted(async || client.get("/api/v1/timeline", &alice).await).await, 10);
    client.get("/api/v1/users/alice", &alice).await.is_problem(429, "rate-limited");
    assert_eq!(client.get("/api/v1/users/alice", &bob).await.status, 200);

    // The two registrations and a request without a token, of 10 of the network.
    assert_eq!(admitted(async || look(&client).await).await, 8);
    for path in ["/api/v1/health", "/api/v1/openapi.json", "/api/v1/users?prefix=a"] {
        let answer = send(client.request(Method::GET, path)).await.unwrap();
        answer.is_problem(429, "rate-limited");
    }
    assert_eq!(look(&Client::from("127.0.0.2", &node.address)).await.status, 200);
    assert_eq!(client.get("/api/v1/timeline", &bob).await.status, 200, "an account of the network");
    // Probes and the page have no limit.
    for path in ["/livez", "/readyz", "/metrics", "/"] {
        let answer = client.request(Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn a_limited_write_is_stored_once_when_it_is_repeated_in_time() {
    let (node, client) = Node::with_client(&["--rate-writes", "2/2s"]);
    let alice = client.register("alice").await;
    // On a slow machine, tokens come back meanwhile.
    let mut posted = 0;
    let refused = loop {
        let keys = (posted..posted + 5).map(|key| format!("key-{key}"));
        let posts = keys.map(|key| {
            let (client, alice) = (node.client(), &alice);
            async move { (post(&client, alice, &key).await, key) }
        });
        let answers = join_all(posts).await;
        posted += answers.len();
        if let Some(refused) = answers.into_iter().find(|(answer, _)| answer.status == 429) {
            break refused;
        }
    };
    let (mut answer, key) = refused;
    for status in [201, 200] {
        answer.is_problem(429, "rate-limited");
        tokio::time::sleep(Duration::from_secs(seconds(&answer))).await;
        // No other request of the account is made, so this one is admitted.
        answer = post(&client, &alice, &key).await;
        assert_eq!(answer.status, status, "{answer:?}");
        // A repetition costs as much as any other write.
        while answer.status != 429 {
            answer = post(&client, &alice, &key).await;
        }
    }
    let page = client.get("/api/v1/users/alice/posts?limit=100", &alice).await;
    let posts = page.body["posts"].as_array().unwrap();
    let profile = client.get("/api/v1/users/alice", &alice).await;
    assert_eq!(profile.body["posts"], posts.len());
}

#[tokio::test]
async fn registrations_of_a_network_are_limited_and_repetitions_are_free() {
    let (node, client) = Node::with_client(&["--rate-registrations", "3/d"]);
    let register = async |client: &Client, name: &str, password: &str| {
        let body = json!({ "name": name, "password": password });
        send(client.request(Method::POST, "/api/v1/users").json(&body)).await.unwrap()
    };
    for _ in 0..5 {
        client.register("alice").await;
    }
    // An invalid name is none, but a name that is taken costs as much as a new one: it tells of a password.
    register(&client, "Alice", PASSWORD).await.is_problem(422, "name-invalid");
    register(&client, "alice", "battery staple").await.is_problem(409, "name-taken");
    client.register("bob").await;
    register(&client, "carol", PASSWORD).await.is_problem(429, "rate-limited");
    register(&client, "alice", "battery staple").await.is_problem(429, "rate-limited");
    assert_eq!(client.log_in("alice", PASSWORD).await.status, 201, "logins go on");
    Client::from("127.0.0.2", &node.address).register("carol").await;
}

#[tokio::test]
async fn wrong_passwords_of_a_network_are_limited_and_right_ones_are_free() {
    let (node, client) = Node::with_client(&["--rate-logins", "5/d"]);
    let alice = client.register("alice").await;
    for _ in 0..7 {
        assert_eq!(client.log_in("alice", PASSWORD).await.status, 201);
    }
    let change = async |old: &str| {
        let body = json!({ "old": old, "new": PASSWORD });
        send(client.request(Method::PUT, "/api/v1/password").bearer_auth(&alice).json(&body))
            .await
            .unwrap()
    };
    change("wrong horse").await.is_problem(401, "wrong-credentials");
    client.log_in("No Name", "wrong horse").await.is_problem(401, "wrong-credentials");
    // However many at once, no more than three are looked at.
    let clients: Vec<Client> = (0..20).map(|_| node.client()).collect();
    let answers = join_all(clients.iter().map(|client| client.log_in("alice", "guess"))).await;
    let looked_at = answers.iter().filter(|answer| answer.status == 401).count();
    assert_eq!(looked_at, 3, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 401) {
        answer.is_problem(429, "rate-limited");
    }
    // From then on, a right password is refused as well; from another network it is not.
    client.log_in("alice", PASSWORD).await.is_problem(429, "rate-limited");
    change(PASSWORD).await.is_problem(429, "rate-limited");
    let elsewhere = Client::from("127.0.0.2", &node.address);
    assert_eq!(elsewhere.log_in("alice", PASSWORD).await.status, 201);
    assert_eq!(client.get("/api/v1/timeline", &alice).await.status, 200, "sessions go on");
}

#[tokio::test]
async fn guessed_tokens_are_limited_and_cost_the_user_nothing() {
    let flags = ["--rate-tokens", "6/d", "--rate-reads", "4/d", "--rate-writes", "1/d"];
    let (node, client) = Node::with_client(&flags);
    let revoked = client.register("alice").await;
    assert_eq!(client.delete("/api/v1/sessions/current", &revoked).await.status, 204);
    let login = client.log_in("alice", PASSWORD).await;
    let alice = login.body["token"].as_str().unwrap();

    let elsewhere = Client::from("127.0.0.2", &node.address);
    // A bad token counts for its network, as a request and as a bad token.
    for (client, token, problem) in [
        (&client, "letmein", "token-malformed"),
        (&client, &*format!("{alice}A"), "token-forged"),
        (&elsewhere, &*revoked, "token-revoked"),
        (&elsewhere, &*revoked, "token-revoked"),
        (&elsewhere, &*revoked, "token-revoked"),
        (&elsewhere, &*revoked, "token-revoked"),
    ] {
        client.get("/api/v1/timeline", token).await.is_problem(401, problem);
    }
    elsewhere.get("/api/v1/timeline", &revoked).await.is_problem(429, "rate-limited");

    // Nothing of this counts for the user.
    for _ in 0..4 {
        assert_eq!(client.get("/api/v1/timeline", alice).await.status, 200);
    }
    client.get("/api/v1/timeline", alice).await.is_problem(429, "rate-limited");

    let other = tempfile::tempdir().unwrap();
    let node = Node::start(other.path(), &["--rate-tokens", "3/d"]);
    let client = node.client();
    let alice = client.register("alice").await;
    assert_eq!(admitted(async || client.get("/api/v1/timeline", "letmein").await).await, 3);
    client.delete("/api/v1/sessions", "letmein").await.is_problem(429, "rate-limited");
    // A route that needs no token does not look at it; a valid token is admitted.
    assert_eq!(client.get("/api/v1/users/alice", "letmein").await.status, 200);
    assert_eq!(client.get("/api/v1/timeline", &alice).await.status, 200);
    send(client.request(Method::GET, "/api/v1/timeline"))
        .await
        .unwrap()
        .is_problem(401, "token-missing");
    // The hello of a socket is a token, too.
    let hello = |token: &str| json!({ "type": "hello", "token": token, "last": null }).to_string();
    let mut socket = Socket::connect(&node.address);
    socket.say(&hello("letmein"));
    let (Closed(code), reason) = socket.end();
    assert_eq!(code, 4429);
    assert!(reason.starts_with("too many requests; try again in "), "{reason}");
    Socket::open(&node.address, &alice, &Value::Null);
}

#[tokio::test]
async fn a_socket_is_limited_with_its_account_and_stays_open() {
    // Of the reads, one is the hello's, over HTTP.
    let (node, client) = Node::with_client(&["--rate-writes", "4/d", "--rate-reads", "20/d"]);
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    assert_eq!(client.post("/api/v1/rooms", &alice, &json!({ "name": "rust" })).await.status, 201);
    assert_eq!(client.put("/api/v1/memberships/rust", &bob).await.status, 204);
    let (mut socket, _) = Socket::open(&node.address, &alice, &Value::Null);
    assert_eq!(socket.next().unwrap()["type"], "reset");
    let enter = json!({ "type": "enter", "room": "rust", "last": 0 }).to_string();
    let say = |key: &str| {
        json!({ "type": "say", "room": "rust", "text": "hello", "key": key }).to_string()
    };
    socket.say(&enter);
    socket.next_of("entered");
    for key in ["one", "two"] {
        socket.say(&say(key));
        assert_eq!(socket.next_of("stored")["key"], key);
    }
    // The fourth write is by HTTP, so the socket has none left.
    assert_eq!(post(&client, &alice, "three").await.status, 201);
    for (message, key) in [
        (say("four"), json!("four")),
        (json!({ "type": "typing", "room": "rust" }).to_string(), Value::Null),
    ] {
        socket.say(&message);
        let refused = socket.next_of("refused");
        assert_eq!(
            (&refused["room"], &refused["key"], &refused["error"]),
            (&json!("rust"), &key, &json!("rate-limited"))
        );
        assert!(refused["retry_after"].as_u64().unwrap() > 0, "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains("try again in"), "{refused}");
    }
    // It still receives, and reads are admitted until they are used up.
    let body = json!({ "text": "from bob" });
    assert_eq!(client.post("/api/v1/rooms/rust/messages", &bob, &body).await.status, 201);
    let said = loop {
        let message = socket.next().unwrap();
        if message["message"]["author"] == "bob" {
            break message;
        }
    };
    assert_eq!(said["message"]["sequence"], 3, "the refused message is not stored");
    let entries = (0..20).take_while(|_| {
        socket.say(&enter);
        loop {
            let message = socket.next().unwrap();
            match message["type"].as_str() {
                Some("entered") => break true,
                Some("refused") => break false,
                _ => {}
            }
        }
    });
    assert_eq!(entries.count(), 19);
}

#[tokio::test]
async fn a_network_has_so_many_connections() {
    let node = Node::fresh(&["--connections-per-network-max", "3"]);
    let elsewhere = Client::from("127.0.0.2", &node.address);
    let alice = elsewhere.register("alice").await;
    let mut silent: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(&node.address).unwrap()).collect();
    // The listener accepts in order, so the fourth is refused.
    let mut refused = TcpStream::connect(&node.address).unwrap();
    let mut answer = String::new();
    refused.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.contains("problem:too-many-connections-of-network"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert_eq!(elsewhere.get("/api/v1/timeline", &alice).await.status, 200, "another network");
    // A place is free once the node has noticed the end of a connection.
    silent.clear();
    let client = node.client();
    let look = async || send(client.request(Method::GET, "/api/v1/users/alice")).await;
    while !look().await.is_ok_and(|answer| answer.status == 200) {}

    assert!(elsewhere.metric("throng_connections_refused_of_network_total").await >= Some(1.0));
    assert_eq!(elsewhere.metric("throng_connections_refused_total").await, Some(0.0));
}

#[tokio::test]
async fn an_account_has_so_many_sockets() {
    let (node, client) = Node::with_client(&["--sockets-per-account-max", "1"]);
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    let (first, _) = Socket::open(&node.address, &alice, &Value::Null);
    let (_other, _) = Socket::open(&node.address, &bob, &Value::Null);
    let hello = json!({ "type": "hello", "token": alice, "last": null }).to_string();
    let mut second = Socket::connect(&node.address);
    second.say(&hello);
    assert_eq!(second.end(), (Closed(1013), "the user has the maximum number of sockets".into()));
    assert_eq!(client.metric("throng_sockets_refused_of_account_total").await, Some(1.0));
    drop(first);
    // A place is free once the node has noticed the end of the socket.
    loop {
        let mut third = Socket::connect(&node.address);
        third.say(&hello);
        match third.next() {
            Ok(welcome) => break assert_eq!(welcome["type"], "welcome"),
            Err(end) => assert_eq!(end, Closed(1013)),
        }
    }
}

#[tokio::test]
async fn sockets_leave_room_for_requests() {
    let (node, client) = Node::with_client(&["--connections-max", "20"]);
    let alice = client.register("alice").await;
    let mut sockets: Vec<Socket> =
        (0..18).map(|_| Socket::open(&node.address, &alice, &Value::Null).0).collect();
    let refused = send(client.upgrade()).await.unwrap();
    refused.is_problem(503, "too-many-sockets");
    assert_eq!(seconds(&refused), 1);
    assert_eq!(client.get("/api/v1/timeline", &alice).await.status, 200);
    assert_eq!(client.metric("throng_sockets_refused_total").await, Some(1.0));
    // A place is free once the node has noticed the end of a socket.
    sockets.pop();
    while client.upgrade().send().await.unwrap().status() != 101 {}
}

#[tokio::test]
async fn only_a_trusted_proxy_names_the_client() {
    let flags = ["--trusted-proxies", "127.0.0.2,127.0.0.3", "--rate-reads", "2/d"];
    let node = Node::fresh(&flags);
    let proxy = Client::from("127.0.0.2", &node.address);
    let look = async |client: &Client, header: &str, value: &str| {
        let request = client.request(Method::GET, "/api/v1/users").header(header, value);
        send(request).await.unwrap()
    };
    // Each client of the proxy has its own requests, whatever it has put before its address.
    for client in ["198.51.100.1", "2001:db8::1"] {
        let made_up = |number| format!("10.0.0.{number}, {client}");
        assert_eq!(look(&proxy, "x-forwarded-for", client).await.status, 200);
        assert_eq!(look(&proxy, "x-forwarded-for", &made_up(1)).await.status, 200);
        look(&proxy, "x-forwarded-for", &made_up(2)).await.is_problem(429, "rate-limited");
        let behind_two = format!("{client}, 127.0.0.3");
        look(&proxy, "x-forwarded-for", &behind_two).await.is_problem(429, "rate-limited");
    }
    look(&proxy, "x-forwarded-for", "2001:db8::2").await.is_problem(429, "rate-limited");
    assert_eq!(look(&proxy, "x-forwarded-for", "2001:db8:0:1::1").await.status, 200);
    // The header of another convention is the client's own.
    assert_eq!(look(&proxy, "forwarded", "for=203.0.113.1").await.status, 200);
    assert_eq!(look(&proxy, "forwarded", "for=203.0.113.2").await.status, 200);
    look(&proxy, "forwarded", "for=203.0.113.3").await.is_problem(429, "rate-limited");
    // Nobody else names a client.
    let stranger = node.client();
    assert_eq!(look(&stranger, "x-forwarded-for", "203.0.113.1").await.status, 200);
    assert_eq!(look(&stranger, "x-forwarded-for", "203.0.113.2").await.status, 200);
    look(&stranger, "x-forwarded-for", "203.0.113.3").await.is_problem(429, "rate-limited");
}

#[tokio::test]
async fn the_log_and_the_other_header_name_the_client_of_a_proxy() {
    let flags = [
        "--trusted-proxies",
        "127.0.0.0/8",
        "--forwarded-header",
        "forwarded",
        "--connections-per-network-max",
        "1",
        "--access-log",
    ];
    let node = Node::fresh(&flags);
    let request = node.client().request(Method::GET, "/api/v1/users");
    let request = request.header("forwarded", "for=\"[2001:db8::7]:4711\";proto=https");
    // A proxy has as many connections as it likes.
    assert_eq!(send(request).await.unwrap().status, 200);
    node.wait_until_said("client=2001:db8::7").await;
}

#[tokio::test]
async fn limits_hold_during_a_drain_and_end_with_the_node() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--drain-delay", "1h", "--rate-writes", "1/d"];
    let node = Node::start(data.path(), &flags);
    let client = node.client();
    let alice = client.register("alice").await;
    assert_eq!(post(&client, &alice, "one").await.status, 201);
    node.signal("TERM").await;
    let ready = async || client.request(Method::GET, "/readyz").send().await.unwrap().status();
    while ready().await == 200 {}
    post(&client, &alice, "two").await.is_problem(429, "rate-limited");
    assert_eq!(client.get("/api/v1/timeline", &alice).await.status, 200);
    node.signal("TERM").await;
    assert_eq!(node.wait().status.code(), Some(0));
    // The rates are kept in memory only; the refused post was not stored.
    let node = Node::start(data.path(), &flags);
    let client = node.client();
    assert_eq!(post(&client, &alice, "two").await.status, 201);
    assert_eq!(client.get("/api/v1/users/alice", &alice).await.body["posts"], 2);
}

#[tokio::test]
async fn refusals_are_counted_and_all_limits_can_be_switched_off() {
    let mut flags = vec!["--rate-reads", "5/d", "--rate-writes", "1/d", "--rate-tokens", "1/d"];
    flags.extend(["--rate-logins", "1/d", "--rate-registrations", "1/d"]);
    flags.extend(["--connections-per-network-max", "50", "--sockets-per-account-max", "1"]);
    let (_node, client) = Node::with_client(&flags);
    let alice = client.register("alice").await;
    for _ in 0..2 {
        post(&client, &alice, "key").await;
        client.log_in("alice", "wrong horse").await;
        client.get("/api/v1/timeline", "letmein").await;
    }
    assert_eq!(admitted(async || look(&client).await).await, 0, "five were made without a token");
    for (class, refused) in
        [("reads", 1.0), ("writes", 1.0), ("registrations", 0.0), ("logins", 1.0), ("tokens", 1.0)]
    {
        let name = format!("throng_rate_limited_total{{class=\"{class}\"}}");
        assert_eq!(client.metric(&name).await, Some(refused), "{class}");
    }

    flags.push("--unlimited");
    let (node, client) = Node::with_client(&flags);
    let alice = client.register("alice").await;
    client.register("bob").await;
    for number in 0..10 {
        assert_eq!(post(&client, &alice, &number.to_string()).await.status, 201);
        assert_eq!(look(&client).await.status, 200);
        assert_eq!(client.log_in("alice", "wrong horse").await.status, 401);
        assert_eq!(client.get("/api/v1/timeline", "letmein").await.status, 401);
    }
    let sockets = [(); 2].map(|()| Socket::open(&node.address, &alice, &Value::Null));
    let crowd: Vec<TcpStream> =
        (0..60).map(|_| TcpStream::connect(&node.address).unwrap()).collect();
    node.client().assert_healthy().await;
    drop((sockets, crowd));
}
