//! Hostile clients of a real node: malformed and ambiguous bytes, clients that are slow, silent or too many.
//!
//! After each attack the node answers a normal request, has as many open files as before, has not grown, and has
//! logged nothing: no panic and no error. The rules of each protocol are tested in `throng-node`; here some of them meet
//! the routes of the service and the limits of the command line.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::harness::{Client, Node, PASSWORD, send};
use crate::sockets::{PATIENCE, Socket};

/// Node under attack, with its resources before the attack.
struct Target {
    node: Node,
    files: usize,
    memory_bytes: u64,
    token: String,
    _data: TempDir,
}

/// Memory that a node may have more than before an attack: pools and buffers that it keeps for the next clients.
const MEMORY_BYTES_MORE: u64 = 48 << 20;

/// Files that may be open more than before: connections of tests that have just ended.
const FILES_MORE: usize = 4;

impl Target {
    async fn start(flags: &[&str]) -> Target {
        let data = tempfile::tempdir().unwrap();
        let node = Node::start(data.path(), flags);
        let client = node.client();
        let token = client.register("alice").await;
        client.post("/api/v1/posts", &token, &json!({ "text": "hello" })).await;
        drop(Socket::open(&node.address, &token, &Value::Null));
        drop(client);
        let (files, memory_bytes) = (files(&node), node.memory_bytes("VmRSS"));
        Target { node, files, memory_bytes, token, _data: data }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.node.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends `bytes` over a new connection, reads a number of answers, ends the stream, and reads until the node closes
    /// the connection. The end of a stream cancels a request that is not answered yet.
    fn exchange(&self, bytes: &[u8], answers: usize) -> String {
        let mut stream = self.connect();
        // A node that refuses early may close the connection before it has read all bytes.
        let _ = stream.write_all(bytes);
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        while statuses(&String::from_utf8_lossy(&answer)).len() < answers {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => answer.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error} after {}", answer.escape_ascii()),
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        answer.extend(read_to_end(&mut stream));
        String::from_utf8(answer).unwrap()
    }

    /// Opens a socket with further headers, and sends `bytes` behind the handshake. Returns the head of the answer, too.
    fn upgrade(&self, headers: &str, bytes: &[u8]) -> (TcpStream, String) {
        let mut stream = self.connect();
        stream.write_all(handshake(headers).as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let _ = stream.write_all(bytes);
        (stream, head)
    }

    /// Waits until the node has no more open files than before, whether or not its clients keep theirs.
    async fn wait_for_files(&self) {
        for _ in 0..PATIENCE.as_millis() / 10 {
            if files(&self.node) <= self.files + FILES_MORE {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} files are open, and {} were before", files(&self.node), self.files);
    }

    async fn assert_unharmed(self) {
        self.wait_for_files().await;
        let client = self.node.client();
        client.assert_healthy().await;
        let profile = client.get("/api/v1/users/alice", "").await;
        assert_eq!((profile.status, &profile.body["posts"]), (200, &json!(1)), "{profile:?}");
        drop(client);
        let more = self.node.memory_bytes("VmRSS").saturating_sub(self.memory_bytes);
        assert!(more < MEMORY_BYTES_MORE, "{more} bytes of memory more than before");
        self.node.signal("INT").await;
        let ended = self.node.wait();
        assert!(ended.status.success() && ended.errors.is_empty(), "{ended:?}");
    }
}

fn files(node: &Node) -> usize {
    fs::read_dir(format!("/proc/{}/fd", node.process())).unwrap().count()
}

/// Reads until the node ends the connection, by an end or by a reset.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

fn handshake(rest: &str) -> String {
    format!(
        "GET /api/v1/socket HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{rest}\r\n"
    )
}

/// Statuses of the answers in `bytes`.
fn statuses(bytes: &str) -> Vec<u16> {
    // The details of some problems name a version, too.
    let status = |after: &str| after.get(2..5)?.parse().ok();
    bytes.split("HTTP/1.").skip(1).filter_map(status).collect()
}

/// Encodes a client's frame of up to 64 KiB, with a mask that changes no byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let head = match payload.len() {
        length @ 0..126 => vec![first, 0x80 | length as u8],
        length => vec![first, 0xfe, (length >> 8) as u8, length as u8],
    };
    [&head, &[0; 4][..], payload].concat()
}

/// First bytes of whole frames.
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;

#[tokio::test]
async fn no_ambiguous_or_malformed_request_reaches_the_service() {
    let target = Target::start(&[]).await;
    let token = &target.token;
    let post = format!(
        "POST /api/v1/posts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
    );
    let smuggled = "GET /api/v1/users/alice HTTP/1.1\r\nhost: x\r\n\r\n";
    let json = r#"{"text":"smuggled"}"#;
    let chunk = format!("{:x}\r\n{json}\r\n0\r\n\r\n", json.len());
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    let health = get("/api/v1/health");

    #[rustfmt::skip]
    let cases: Vec<(&str, String, &[u16])> = vec![
        // Two programs that read this differently would see a second request in its body.
        ("a length before chunks", format!("{post}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"), &[400]),
        ("chunks within another encoding", format!("{post}transfer-encoding: chunked, identity\r\n\r\n{chunk}"), &[501]),
        ("an encoding that looks like chunks", format!("{post}transfer-encoding: xchunked\r\n\r\n{chunk}"), &[501]),
        ("a vertical tab in a header", format!("{post}transfer-encoding:\x0bchunked\r\n\r\n{chunk}"), &[400]),

        ("a chunk of -1 bytes", format!("{post}transfer-encoding: chunked\r\n\r\n-1\r\n{json}\r\n0\r\n\r\n"), &[400]),
        ("a target beyond the limit", get(&format!("/{}", "y".repeat(40_000))), &[431]),

        ("HTTP/0.9", "GET /api/v1/health\r\n\r\n".into(), &[400]),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), &[400]),
        ("a tunnel", "CONNECT other:80 HTTP/1.1\r\nhost: other:80\r\n\r\n".into(), &[404]),
        ("a trace", "TRACE /api/v1/health HTTP/1.1\r\nhost: x\r\n\r\n".into(), &[405]),
        ("a method of its own", "EXPLODE /api/v1/health HTTP/1.1\r\nhost: x\r\n\r\n".into(), &[405]),

        ("a file beside the page", get("/page/../signing.key"), &[404]),
        ("an escaped file beside the page", get("/page/%2e%2e/%2e%2e/etc/passwd"), &[404]),
        ("escaped slashes", get("/page/..%2f..%2fsigning.key"), &[404]),
        ("backslashes", get("/page/..\\..\\signing.key"), &[404]),
        ("a zero byte in a path", get("/page/main.js%00.css"), &[404]),
        ("an absolute file", get("//etc/passwd"), &[404]),
        ("a token in the query", get(&format!("/api/v1/timeline?token={token}")), &[401]),
        ("an access token in the query", get(&format!("/api/v1/following?access_token={token}")), &[401]),
        ("a header in a path", get("/api/v1/users/a%0d%0aset-cookie:%20x=y"), &[404]),

        ("requests in a row", health.repeat(50), &[200; 50]),
    ];
    for (name, bytes, expected) in &cases {
        let answer = target.exchange(bytes.as_bytes(), expected.len());
        assert_eq!(statuses(&answer), *expected, "{name}: {answer}");
        assert!(!answer.contains("set-cookie") && !answer.contains("root:"), "{name}: {answer}");
    }

    // A text of a client that reaches a header would end it here.
    let client = target.node.client();
    let lines = "x\r\nset-cookie: y";
    for (path, body) in [
        ("/api/v1/users", json!({ "name": lines, "password": PASSWORD })),
        ("/api/v1/rooms", json!({ "name": lines })),
        ("/api/v1/posts", json!({ "text": "" })),
    ] {
        let answer = client.post(path, token, &body).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(!answer.headers.contains_key("set-cookie"), "{answer:?}");
    }
    target.assert_unharmed().await;
}

#[tokio::test]
async fn no_extension_that_a_client_offers_is_taken() {
    let target = Target::start(&[]).await;
    let offer = "sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n";
    let (mut stream, head) = target.upgrade(offer, &frame(CLOSE, b""));
    assert!(!head.contains("sec-websocket-extensions"), "{head}");
    assert!(read_to_end(&mut stream).ends_with(b"\x88\0"));
    target.assert_unharmed().await;
}

#[tokio::test]
async fn a_malformed_message_ends_its_socket_with_its_code() {
    let target = Target::start(&[]).await;
    let hello = json!({ "type": "hello", "token": target.token, "last": null }).to_string();
    let (start, end) = hello.as_bytes().split_at(9);
    let pieces = [frame(0x01, start), frame(0x80, end)].concat();
    #[rustfmt::skip]
    let cases = [
        ("no mask", vec![TEXT, 1, b'x'], 1002),
        ("a frame of 2^63 bytes", [&[TEXT, 0xff, 0x80][..], &[0; 11]].concat(), 1009),
        ("a message before the hello", frame(TEXT, br#"{"type":"typing","room":"rust"}"#), 1008),
        ("a forged token", frame(TEXT, br#"{"type":"hello","token":"a.b","last":null}"#), 4401),
        ("a hello in fragments, and then no mask", [pieces, vec![TEXT, 1, b'x']].concat(), 1002),
    ];
    for (name, bytes, code) in cases {
        let (mut stream, _) = target.upgrade("", &bytes);
        let mut answer = Vec::new();
        while close_code(&answer).is_none() {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "{name}: no close frame in {}", answer.escape_ascii());
            answer.extend_from_slice(&bytes[..count]);
        }
        assert_eq!(close_code(&answer), Some(code), "{name}: {}", answer.escape_ascii());
    }
    target.assert_unharmed().await;
}

/// Returns the code of the close frame among the frames of a node.
fn close_code(mut bytes: &[u8]) -> Option<u16> {
    while let [first, length, rest @ ..] = bytes {
        let (length, rest) = match (*length, rest) {
            (126, [high, low, rest @ ..]) => (usize::from(*high) << 8 | usize::from(*low), rest),
            (length, rest) => (usize::from(length), rest),
        };
        let (payload, after) = rest.split_at_checked(length)?;
        if *first == 0x88 {
            return payload.first_chunk().map(|code| u16::from_be_bytes(*code));
        }
        bytes = after;
    }
    None
}

#[tokio::test]
async fn a_flood_of_pings_takes_no_memory_and_the_socket_still_works() {
    let target = Target::start(&[]).await;
    let pings = frame(PING, &[b'x'; 125]).repeat(20_000);
    // Nothing is read meanwhile.
    let (mut stream, _) = target.upgrade("", &pings);
    let hello = json!({ "type": "hello", "token": target.token, "last": null }).to_string();
    let hello = frame(TEXT, hello.as_bytes());
    stream.write_all(&[hello, frame(CLOSE, b"\x03\xe8")].concat()).unwrap();
    let answers = read_to_end(&mut stream);
    assert!(answers.starts_with(&[0x8a, 125]), "a pong comes first");
    assert_eq!(close_code(&answers), Some(1000), "{}", answers.len());
    target.assert_unharmed().await;
}

#[tokio::test]
async fn clients_that_write_byte_by_byte_are_cut() {
    let target = Target::start(&["--header-timeout", "500ms", "--request-timeout", "1s"]).await;
    let post = format!(
        "POST /api/v1/posts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        target.token
    );
    // The rest of each comes byte by byte, and each byte comes in time.
    let slow = [
        ("GET /api/v1/health HTTP/1.1\r\nx: ".to_owned(), "head-timeout"),
        (format!("{post}content-length: 60000\r\n\r\n{{"), "body-timeout"),
        (format!("{post}transfer-encoding: chunked\r\n\r\nfff0\r\n"), "body-timeout"),
    ];
    let clients: Vec<_> = (0..60)
        .map(|number| {
            let (start, problem) = &slow[number % slow.len()];
            let mut stream = target.connect();
            stream.write_all(start.as_bytes()).unwrap();
            (stream, *problem)
        })
        .collect();
    let writers: Vec<_> = clients
        .into_iter()
        .map(|(mut stream, problem)| {
            std::thread::spawn(move || {
                while stream.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                    stream.set_nonblocking(true).unwrap();
                    let is_answered = stream.peek(&mut [0]).is_ok();
                    stream.set_nonblocking(false).unwrap();
                    if is_answered {
                        break;
                    }
                }
                let answer = String::from_utf8(read_to_end(&mut stream)).unwrap();
                assert_eq!(statuses(&answer), [408], "{answer}");
                assert!(answer.contains(problem), "{answer}");
            })
        })
        .collect();
    // Other clients are served meanwhile.
    target.node.client().assert_healthy().await;
    for writer in writers {
        tokio::task::spawn_blocking(move || writer.join().unwrap()).await.unwrap();
    }
    target.assert_unharmed().await;
}

#[tokio::test]
async fn clients_that_do_not_read_are_cut() {
    let target = Target::start(&["--request-timeout", "1s"]).await;
    let pages = "GET /page/main.js HTTP/1.1\r\nhost: x\r\n\r\n".repeat(3000);
    let readers: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = target.connect();
            stream.set_nonblocking(true).unwrap();
            // As many as the node takes before it waits for the client.
            let _ = stream.write(pages.as_bytes());
            stream
        })
        .collect();
    target.node.client().assert_healthy().await;
    // The clients keep their connections, and the node does not.
    target.wait_for_files().await;
    drop(readers);
    target.assert_unharmed().await;
}

#[tokio::test]
async fn connections_of_vanished_clients_are_closed() {
    let target = Target::start(&["--header-timeout", "500ms"]).await;
    let health = b"GET /api/v1/health HTTP/1.1\r\nhost: x\r\n\r\n";
    let vanished: Vec<_> = (0..150)
        .map(|number| match number % 3 {
            // A socket that says nothing; its client does not answer the close either.
            0 => target.upgrade("", b"").0,
            // A connection between two requests.
            1 => {
                let mut stream = target.connect();
                stream.write_all(health).unwrap();
                stream.read_exact(&mut [0; 12]).unwrap();
                stream
            }
            // A connection without a byte.
            _ => target.connect(),
        })
        .collect();
    target.wait_for_files().await;
    drop(vanished);
    target.assert_unharmed().await;
}

#[tokio::test]
async fn thousands_of_connections_leave_nothing_behind() {
    let count = std::env::var("THRONG_CONNECTIONS");
    let count: usize = count.map_or(3000, |count| count.parse().unwrap());
    // More connections are more requests than a network may send at once, and the node would refuse to show its health.
    let flags: &[&str] = if count > 3000 { &["--unlimited"] } else { &[] };
    let target = Target::start(flags).await;
    let starts: [&[u8]; 5] = [
        b"",
        b"GET /api/v1/health HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /api/v1/users HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{",
        b"GET / HTTP/1.1\r\nhost:",
        &handshake("").into_bytes(),
    ];
    let mut dropped = 0;
    while dropped < count {
        let opened = (0..100).map(async |number: usize| {
            let mut stream = tokio::net::TcpStream::connect(&target.node.address).await.unwrap();
            // Every second one is reset, and the others end.
            if number.is_multiple_of(2) {
                stream.set_zero_linger().unwrap();
            }
            let _ = stream.write_all(starts[number / 2 % starts.len()]).await;
            stream
        });
        dropped += futures_util::future::join_all(opened).await.len();
    }
    assert_healthy(&target.node.client()).await;
    target.assert_unharmed().await;
}

/// Waits until a node that is busy with many connections has room for another one.
async fn assert_healthy(client: &Client) {
    for _ in 0..1000 {
        let health = send(client.request(reqwest::Method::GET, "/api/v1/health")).await;
        if health.is_ok_and(|health| health.status == 200) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.assert_healthy().await;
}
