//! A socket whose queue holds less than a busy room has to say.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use social::{Name, RateLimits, RoomName, Settings, Text, routes};
use support::on;
use throng::SortBy;
use throng::prelude::*;
use throng_node::http::{Limits, Server, Signer, SocketLimits, Sockets};
use tungstenite::Message;
use users::register;

mod support;
#[path = "support/users.rs"]
mod users;

/// Number of users who say a message at the same time.
const AUTHORS: usize = 16;

/// Number of times that all of them say a message.
const ROUNDS: usize = 20;

/// Follows a room up to message `last`. Counts the messages before a reset as known, because a client reads them over
/// HTTP. Returns the number of messages that came, and of resets.
fn follow(address: SocketAddr, token: &str, last: u64) -> (u64, u64) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let url = format!("ws://{address}/api/v1/socket");
    let (mut socket, _) = tungstenite::client(url, stream).unwrap();
    let mut send = |message: Value| socket.send(Message::text(message.to_string())).unwrap();
    send(json!({ "type": "hello", "token": token, "last": null }));
    send(json!({ "type": "enter", "room": "rust", "last": 0 }));
    let (mut sequence, mut came, mut resets) = (0, 0, 0);
    while sequence < last {
        let Message::Text(text) = socket.read().unwrap() else { continue };
        let message: Value = serde_json::from_str(&text).unwrap();
        match message["type"].as_str().unwrap() {
            "said" => {
                let number = message["message"]["sequence"].as_u64().unwrap();
                assert_eq!(number, sequence + 1, "a message is missing or came twice");
                (sequence, came) = (number, came + 1);
            }
            "room_reset" => {
                let number = message["sequence"].as_u64().unwrap();
                assert!(number >= sequence, "a reset to {number} after message {sequence}");
                (sequence, resets) = (number, resets + 1);
            }
            "welcome" | "entered" | "presence" | "reset" => {}
            _ => panic!("{message}"),
        }
    }
    (came, resets)
}

#[test]
fn a_socket_with_a_small_queue_knows_what_it_misses_of_a_busy_room() {
    let data = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |runtime| {
        on(runtime, data.path(), async |social| {
            let users: Vec<Name> =
                (0..=AUTHORS).map(|number| format!("user_{number}").parse().unwrap()).collect();
            let room: RoomName = "rust".parse().unwrap();
            register(social, &users).await;
            social.create_room(&room, &users[0]).await.unwrap();
            for user in &users[1..] {
                social.join_room(&room, user).await.unwrap();
            }

            let signer = Signer::from_key([7; 32]);
            let ttl = Duration::from_secs(3600);
            let (token, _) = signer.issue_token(users[0].as_str(), ttl);
            let limits = SocketLimits { outbox_frames_max: 3, ..SocketLimits::default() };
            let sockets = Sockets::new::<String>(limits, []);
            let settings = Settings {
                signer,
                token_ttl: ttl,
                sockets: sockets.clone(),
                limits: RateLimits::default(),
            };
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let server = Server::bind(any, Limits::default()).await.unwrap();
            let serving = server.start(routes(social.clone(), settings), runtime.tokio());
            let (address, last) = (serving.address(), (AUTHORS * ROUNDS) as u64);
            let client = tokio::task::spawn_blocking(move || follow(address, &token, last));
            while social.room_profile(&room).await.unwrap().present == 0 {
                assert!(!client.is_finished(), "the client failed");
                tokio::task::yield_now().await;
            }
            let found = runtime.search("user_0", 10, SortBy::Memory).await;
            let label = |kind: &str| {
                let mut of_kind = found.iter().filter(|found| {
                    found.kind.is_some_and(|found| throng::short_kind(found) == kind)
                });
                of_kind.next().and_then(|found| found.label.as_deref())
            };
            assert_eq!((label("Connection"), label("User")), (Some("user_0"), Some("user/user_0")));
            for round in 0..ROUNDS {
                let say = async |author: &Name| {
                    let text = Text::new(format!("round {round}")).unwrap();
                    social.say(&room, author, text, None).await.unwrap();
                };
                join_all(users[1..].iter().map(say)).await;
            }
            let (came, resets) = client.await.unwrap();
            assert!(came < last && resets > 0, "{came} messages and {resets} resets");
            assert!(sockets.frames_dropped() > 0);
            let _ = serving.drain().await;
        })
        .await;
    });
}
