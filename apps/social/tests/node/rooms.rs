//! Rooms over HTTP and sockets: messages, presence and typing, across slow clients and a kill.

use std::collections::BTreeMap;
use std::ops::Range;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use social::{Name, Password, RoomName, Text};
use throng::SortBy;
use throng_node::http::{SocketLimits, Sockets};

use crate::harness::{Answer, Client, Node, PASSWORD, send};
use crate::in_process::{Service, with_the_service};
use crate::sockets::{Closed, Socket};

/// Opens a socket, and passes over the reset of its timeline.
fn open(address: &str, token: &str) -> Socket {
    let (mut socket, _) = Socket::open(address, token, &Value::Null);
    assert_eq!(socket.next().unwrap()["type"], "reset");
    socket
}

/// Sends a message with fields.
fn tell(socket: &mut Socket, kind: &str, room: &str, fields: Value) {
    let mut message = json!({ "type": kind, "room": room });
    message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    socket.say(&message.to_string());
}

/// Returns the next message that is neither presence nor typing.
fn next(socket: &mut Socket) -> Result<Value, Closed> {
    loop {
        let message = socket.next()?;
        if message["type"] != "presence" && message["type"] != "typing" {
            return Ok(message);
        }
    }
}

/// Enters a room, and returns the answer.
fn enter(socket: &mut Socket, room: &str, last: Value) -> Value {
    tell(socket, "enter", room, json!({ "last": last }));
    let entered = next(socket).unwrap();
    assert_eq!(
        (&entered["type"], &entered["room"]),
        (&json!("entered"), &json!(room)),
        "{entered}"
    );
    entered
}

/// Reads the room "rust" up to message `last`: each comes in its order, or is left out up to the number of a reset.
/// Returns the numbers that each reset has left out.
fn follow(socket: &mut Socket, last: u64) -> Vec<Range<u64>> {
    let (mut position, mut resets) = (0, Vec::new());
    while position < last {
        let message = next(socket).unwrap();
        match message["type"].as_str().unwrap() {
            "said" => {
                assert_eq!(message["message"]["sequence"], position + 1, "{}", message["type"]);
                position += 1;
            }
            "room_reset" => {
                let sequence = message["sequence"].as_u64().unwrap();
                assert_eq!((&message["room"], &message["present"]), (&json!("rust"), &json!(1)));
                assert!(sequence >= position, "{message} after message {position}");
                resets.push(position..sequence);
                position = sequence;
            }
            _ => panic!("{message}"),
        }
    }
    resets
}

/// Creates the room "rust" with these members, the first of them the owner.
async fn create(client: &Client, members: &[&str]) {
    let created = client.post("/api/v1/rooms", members[0], &json!({ "name": "rust" })).await;
    assert_eq!(created.status, 201, "{created:?}");
    for token in &members[1..] {
        assert_eq!(client.put("/api/v1/memberships/rust", token).await.status, 204);
    }
}

async fn say(client: &Client, token: &str, text: &str) -> Answer {
    client.post("/api/v1/rooms/rust/messages", token, &json!({ "text": text })).await
}

/// Returns all messages of the room "rust", oldest first.
async fn history(client: &Client, token: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page =
            client.get(&format!("/api/v1/rooms/rust/messages?limit=100{cursor}"), token).await;
        assert_eq!(page.status, 200, "{page:?}");
        found.extend(page.body["messages"].as_array().unwrap().clone());
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    found.reverse();
    found
}

#[tokio::test]
async fn members_meet_in_a_room() {
    let (node, client) = Node::with_client(&[]);
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    create(&client, &[&alice, &bob]).await;
    let (mut one, mut other) = (open(&node.address, &alice), open(&node.address, &bob));
    let entered = enter(&mut one, "rust", Value::Null);
    let expected = json!({ "type": "entered", "room": "rust", "sequence": 0, "members": 2, "present": 1, "truncated": false });
    assert_eq!(entered, expected);
    assert_eq!(enter(&mut other, "rust", Value::Null)["present"], 2);
    // The first news may have come before bob entered.
    loop {
        let presence = one.next_of("presence");
        let entered = presence["entered"].as_array().unwrap();
        if entered.contains(&json!("bob")) {
            assert_eq!((&presence["present"], &presence["exited"]), (&json!(2), &json!([])));
            break;
        }
    }
    tell(&mut other, "typing", "rust", json!({}));
    let typing = one.next_of("typing");
    assert_eq!(typing, json!({ "type": "typing", "room": "rust", "name": "bob" }));

    tell(&mut other, "say", "rust", json!({ "text": "hello", "key": "first" }));
    let (mut stored, mut said) = (Value::Null, Value::Null);
    for _ in 0..2 {
        let message = next(&mut other).unwrap();
        if message["type"] == "stored" { stored = message } else { said = message }
    }
    assert_eq!(stored, json!({ "type": "stored", "room": "rust", "key": "first", "sequence": 1 }));
    let time = said["message"]["time"].clone();
    assert!(time.as_u64().is_some_and(|time| time > 1_700_000_000_000), "{said}");
    let message = json!({ "sequence": 1, "author": "bob", "text": "hello", "time": time });
    assert_eq!(said, json!({ "type": "said", "room": "rust", "message": message }));
    assert_eq!(next(&mut one).unwrap(), said);
    // Said again with its key, it is stored once, by either way.
    tell(&mut other, "say", "rust", json!({ "text": "hello", "key": "first" }));
    assert_eq!(next(&mut other).unwrap(), stored);
    let request = client.request(Method::POST, "/api/v1/rooms/rust/messages").bearer_auth(&bob);
    let request = request.header("idempotency-key", "first").json(&json!({ "text": "hello" }));
    let again = send(request).await.unwrap();
    assert_eq!(again.status, 200);
    assert_eq!(again.body["room"], "rust");
    assert_eq!((&again.body["sequence"], &again.body["time"]), (&json!(1), &time));
    tell(&mut other, "say", "rust", json!({ "text": "another", "key": "first" }));
    let refused = next(&mut other).unwrap();
    assert_eq!((&refused["type"], &refused["key"]), (&json!("refused"), &json!("first")));
    assert_eq!(refused["error"], "idempotency-key-reused");

    // A socket that has exited gets no messages, and gets those it has missed when it enters again.
    tell(&mut one, "exit", "rust", json!({}));
    assert_eq!(next(&mut one).unwrap(), json!({ "type": "exited", "room": "rust" }));
    assert_eq!(other.next_of("presence")["present"], 1);
    for text in ["missed", "missed too"] {
        assert_eq!(say(&client, &bob, text).await.status, 201);
    }
    let entered = enter(&mut one, "rust", json!(1));
    assert_eq!((&entered["sequence"], &entered["truncated"]), (&json!(3), &json!(false)));
    for (sequence, text) in [(2, "missed"), (3, "missed too")] {
        let said = next(&mut one).unwrap();
        assert_eq!(said["message"]["sequence"], sequence, "{said}");
        assert_eq!(said["message"]["text"], text, "{said}");
    }
    // A number that was never said, as after the restore of an older backup.
    assert_eq!(enter(&mut one, "rust", json!(99))["truncated"], true);

    // A member who leaves is shown out.
    assert_eq!(client.delete("/api/v1/memberships/rust", &alice).await.status, 204);
    assert_eq!(next(&mut one).unwrap(), json!({ "type": "exited", "room": "rust" }));
    let profile = client.get("/api/v1/rooms/rust", "").await;
    assert_eq!((&profile.body["owner"], &profile.body["members"]), (&json!("alice"), &json!(1)));
    assert_eq!((&profile.body["messages"], &profile.body["present"]), (&json!(3), &json!(1)));
}

#[tokio::test]
async fn a_message_stays_as_it_was_said() {
    let (node, client) = Node::with_client(&[]);
    let alice = client.register("alice").await;
    create(&client, &[&alice]).await;
    let mut socket = open(&node.address, &alice);
    enter(&mut socket, "rust", Value::Null);
    let long = "😀".repeat(5000);
    let escaped = "x\0\u{1}\u{1f}".repeat(1250);
    let texts = [
        "<script>alert(1)</script>",
        "\"},{\"type\":\"said\"",
        "a\0b",
        "\u{7f}\u{85}\u{2028}\u{2029}x",
        "\u{202e}right to left",
        "é e\u{301} \u{feff} 👨\u{200d}👩\u{200d}👧",
        "\\u0000 \\ / \r\n\t",
        " ' OR 1=1; -- ",
        &long,
        &escaped,
    ];
    for (number, text) in texts.iter().enumerate() {
        tell(&mut socket, "say", "rust", json!({ "text": text, "key": format!("{number}") }));
        let (mut said, mut is_stored) = (None, false);
        while said.is_none() || !is_stored {
            let message = next(&mut socket).unwrap();
            match message["type"].as_str().unwrap() {
                "stored" => is_stored = true,
                "said" => said = Some(message["message"]["text"].clone()),
                _ => panic!("{message}"),
            }
        }
        assert_eq!(said, Some(json!(text)), "{number}");
    }
    let kept = history(&client, &alice).await;
    assert!(kept.iter().map(|message| &message["text"]).eq(texts.iter().map(|text| &**text)));
}

#[tokio::test]
async fn strangers_and_malformed_messages_are_refused() {
    let (node, client) = Node::with_client(&[]);
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    create(&client, &[&alice]).await;

    let rooms = client.get("/api/v1/memberships", &bob).await;
    assert_eq!(rooms.body, json!({ "rooms": [] }));
    let rooms = client.get("/api/v1/memberships", &alice).await;
    assert_eq!(rooms.body, json!({ "rooms": ["rust"] }));
    let rooms = client.get("/api/v1/rooms?prefix=ru", "").await;
    assert_eq!(rooms.body, json!({ "rooms": ["rust"], "next_after": null }));
    let members = client.get("/api/v1/rooms/rust/members", &bob).await;
    assert_eq!(members.body, json!({ "members": ["alice"], "next_after": null }));

    let mut socket = open(&node.address, &bob);
    let refused = |socket: &mut Socket, kind: &str, room: &str, fields: Value, error: &str| {
        let key = fields.get("key").cloned().unwrap_or(Value::Null);
        tell(socket, kind, room, fields);
        let refused = next(socket).unwrap();
        assert_eq!((&refused["type"], &refused["room"]), (&json!("refused"), &json!(room)));
        assert_eq!((&refused["error"], &refused["key"]), (&json!(error), &key), "{refused}");
        assert!(refused["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{refused}");
    };
    let words = |text: &str, key: &str| json!({ "text": text, "key": key });
    refused(&mut socket, "enter", "rust", json!({ "last": null }), "not-a-member");
    refused(&mut socket, "say", "rust", words("x", "key"), "not-a-member");
    refused(&mut socket, "enter", "go", json!({ "last": 7 }), "no-such-room");
    refused(&mut socket, "enter", "No Room", json!({ "last": null }), "no-such-room");
    refused(&mut socket, "say", "rust", words("", "key"), "text-length");
    refused(&mut socket, "say", "rust", words("x", "a b"), "idempotency-key-invalid");
    // Typing and exits without presence do nothing; the socket goes on.
    tell(&mut socket, "typing", "rust", json!({}));
    tell(&mut socket, "exit", "rust", json!({}));
    refused(&mut socket, "enter", "rust", json!({ "last": null }), "not-a-member");
    // A socket is present in a hundred rooms at most.
    for number in 0..=100 {
        let room = format!("room_{number}");
        let created = client.post("/api/v1/rooms", &bob, &json!({ "name": room })).await;
        assert_eq!(created.status, 201);
        if number < 100 {
            enter(&mut socket, &room, Value::Null);
        } else {
            refused(&mut socket, "enter", &room, json!({ "last": null }), "too-many-rooms");
        }
    }
    tell(&mut socket, "say", "rust", json!({ "text": "x", "key": null, "x": 1 }));
    assert_eq!(next(&mut socket), Err(Closed(1008)));
    let mut socket = Socket::connect(&node.address);
    tell(&mut socket, "enter", "rust", json!({ "last": null }));
    assert_eq!(socket.next(), Err(Closed(1008)), "no hello");
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_when_the_node_is_killed() {
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(data.path(), &[]);
    let (alice, bob) = (node.client().register("alice").await, node.client().register("bob").await);
    create(&node.client(), &[&alice, &bob]).await;
    // By sequence number, as bob has seen them.
    let mut seen: BTreeMap<u64, String> = BTreeMap::new();
    let (mut number, mut unanswered) = (0, Vec::<usize>::new());
    for round in 0..3 {
        let mut listener = open(&node.address, &bob);
        let last = seen.keys().next_back().copied();
        let entered = enter(&mut listener, "rust", json!(last.unwrap_or(0)));
        assert_eq!(entered["truncated"], false, "{entered}");
        let mut speaker = open(&node.address, &alice);
        let say = |speaker: &mut Socket, number: usize| {
            let (text, key) =
                (format!("message {number}"), format!("key {number}").replace(' ', "-"));
            tell(speaker, "say", "rust", json!({ "text": text, "key": key }));
        };
        // Messages without an answer are said again, with the same key.
        let again = unanswered.len();
        for old in &unanswered {
            say(&mut speaker, *old);
        }
        for _ in 0..again {
            let stored = speaker.next_of("stored");
            let key = stored["key"].as_str().unwrap();
            unanswered.retain(|number| format!("key-{number}") != key);
        }
        assert!(unanswered.is_empty(), "{unanswered:?}");
        for _ in 0..40 {
            number += 1;
            say(&mut speaker, number);
            unanswered.push(number);
        }
        // The node is killed while some of the messages are on their way.
        for _ in 0..5 + 10 * round {
            let stored = speaker.next_of("stored");
            let key = stored["key"].as_str().unwrap();
            unanswered.retain(|number| format!("key-{number}") != key);
        }
        node.signal("KILL").await;
        node.wait();
        while let Some(message) = listener.next_until_lost() {
            if message["type"] == "said" {
                let sequence = message["message"]["sequence"].as_u64().unwrap();
                assert_eq!(sequence, seen.len() as u64 + 1, "a gap or a double");
                seen.insert(sequence, message["message"]["text"].as_str().unwrap().to_owned());
            }
        }
        node = Node::start(data.path(), &[]);
    }
    let kept = history(&node.client(), &bob).await;
    // Each message that was shown or answered is kept, in its place, and none is there twice.
    for (sequence, text) in &seen {
        assert_eq!(kept[*sequence as usize - 1]["text"], *text);
    }
    let mut texts: Vec<&str> =
        kept.iter().map(|message| message["text"].as_str().unwrap()).collect();
    assert!(
        kept.iter().map(|message| message["sequence"].as_u64().unwrap()).eq(1..=kept.len() as u64)
    );
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), kept.len(), "a message was stored twice");
    for answered in (1..=number).filter(|number| !unanswered.contains(number)) {
        assert!(
            texts.binary_search(&&*format!("message {answered}")).is_ok(),
            "{answered} is lost"
        );
    }
    let mut listener = open(&node.address, &bob);
    enter(&mut listener, "rust", json!(seen.len()));
    for message in &kept[seen.len()..] {
        assert_eq!(next(&mut listener).unwrap()["message"], *message);
    }
}

#[tokio::test]
async fn a_slow_reader_gets_a_reset_and_reads_the_history() {
    let (node, client) = Node::with_client(&[]);
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    create(&client, &[&alice, &bob]).await;
    let mut slow = open(&node.address, &bob);
    enter(&mut slow, "rust", Value::Null);
    // More bytes than the buffers of the kernel and the queue of the socket hold.
    let long = "😀".repeat(5000);
    let total = 400;
    // Several at once, so that a full queue also refuses several together.
    for _ in 0..total / 8 {
        for said in join_all((0..8).map(|_| say(&client, &alice, &long))).await {
            assert_eq!(said.status, 201);
        }
    }
    assert_eq!(say(&client, &alice, "the last").await.status, 201);
    let resets = follow(&mut slow, total + 1);
    assert!(!resets.is_empty(), "the queue was never full");
    assert!(resets.iter().all(|left_out| !left_out.is_empty()), "{resets:?}");
    // From here on, nothing is left out.
    assert_eq!(say(&client, &alice, "after the reset").await.status, 201);
    assert_eq!(next(&mut slow).unwrap()["message"]["text"], "after the reset");
    let kept = history(&client, &bob).await;
    assert_eq!(kept.len() as u64, total + 2);
}

#[test]
fn a_socket_whose_relay_ends_misses_nothing() {
    with_the_service(Sockets::default(), async |Service { runtime, address, client, .. }| {
        let (alice, bob) = (client.register("alice").await, client.register("bob").await);
        create(client, &[&alice, &bob]).await;
        let mut sockets = [&alice, &bob].map(|token| {
            let mut socket = open(address, token);
            enter(&mut socket, "rust", Value::Null);
            socket
        });
        let mut said = 0;
        for _ in 0..5 {
            for process in runtime.top(100_000, SortBy::Turns).await {
                if process.kind.is_some_and(|kind| kind.ends_with("room::live::Relay")) {
                    process.pid.kill();
                    break;
                }
            }
            // Some of these find no relay that knows the sockets.
            for _ in 0..20 {
                assert_eq!(say(client, &alice, "on and on").await.status, 201);
            }
            for socket in &mut sockets {
                for sequence in said + 1..=said + 20 {
                    let message = next(socket).unwrap();
                    assert_eq!(message["message"]["sequence"], sequence, "{message}");
                }
            }
            said += 20;
        }
        // Both are present again.
        while client.get("/api/v1/rooms/rust", "").await.body["present"] != 2 {}
        drop(sockets);
    });
}

#[test]
fn a_socket_with_a_small_queue_knows_what_it_misses_of_a_busy_room() {
    const AUTHORS: usize = 16;
    const ROUNDS: usize = 20;
    let limits = SocketLimits { outbox_frames_max: 3, ..SocketLimits::default() };
    let sockets = Sockets::new::<String>(limits, []);
    with_the_service(
        sockets.clone(),
        async |Service { runtime, social, address, client, .. }| {
            let names = (0..AUTHORS).map(|number| format!("user_{number}"));
            let hash = social.hash(Password::new(PASSWORD).unwrap()).await.unwrap();
            let (mut authors, rust): (Vec<Name>, RoomName) = (Vec::new(), "rust".parse().unwrap());
            let alice = client.register("alice").await;
            create(client, &[&alice]).await;
            for author in names.map(|name| name.parse().unwrap()) {
                social.register_hashed(&author, hash.clone()).await.unwrap();
                social.join_room(&rust, &author).await.unwrap();
                authors.push(author);
            }
            let mut socket = open(address, &alice);
            enter(&mut socket, "rust", json!(0));
            let found = runtime.search("alice", 10, SortBy::Memory).await;
            let label = |kind: &str| {
                let is_kind = |found: &str| throng::short_kind(found) == kind;
                let process = found.iter().find(|process| process.kind.is_some_and(is_kind));
                process.and_then(|process| process.label.as_deref())
            };
            assert_eq!((label("Connection"), label("User")), (Some("alice"), Some("user/alice")));
            let client =
                tokio::task::spawn_blocking(move || follow(&mut socket, (AUTHORS * ROUNDS) as u64));
            for round in 0..ROUNDS {
                let say = async |author: &Name| {
                    let text = Text::new(format!("round {round}")).unwrap();
                    social.say(&rust, author, text, None).await.unwrap();
                };
                join_all(authors.iter().map(say)).await;
            }
            let resets = client.await.unwrap();
            assert!(resets.iter().any(|left_out| !left_out.is_empty()), "{resets:?}");
            assert!(sockets.frames_dropped() > 0);
        },
    );
}
