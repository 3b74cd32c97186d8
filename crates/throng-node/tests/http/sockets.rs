//! WebSockets over real sockets: the handshake, the protocol, slow and vanished clients, the drain.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Answer, PATIENCE, serve};
use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use futures_util::StreamExt;
use throng_node::http::{
    CloseCode, Drained, Frames, Limits, Outbox, OutboxError, Serving, SocketEnd, SocketInbox,
    SocketLimits, SocketUpgrade, Sockets, Utf8Bytes,
};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tungstenite::Message;

/// State of the router: `/mine` hands the socket to the test, `/echo` sends back each message and
/// the end to the test.
#[derive(Clone)]
struct App {
    sockets: Sockets,
    mine: mpsc::Sender<(SocketInbox, Outbox)>,
    ends: mpsc::Sender<SocketEnd>,
    hold: Arc<Semaphore>,
}

impl FromRef<App> for Sockets {
    fn from_ref(app: &App) -> Sockets {
        app.sockets.clone()
    }
}

async fn mine(State(app): State<App>, upgrade: SocketUpgrade) -> Response {
    let (response, inbox, outbox) = upgrade.accept();
    app.mine.send((inbox, outbox)).unwrap();
    response
}

async fn echo(State(app): State<App>, upgrade: SocketUpgrade) -> Response {
    let (response, mut inbox, outbox) = upgrade.accept();
    tokio::spawn(async move {
        while let Some(message) = inbox.next().await {
            match message {
                Ok(message) => drop(outbox.send(message)),
                Err(end) => drop(app.ends.send(end)), // a test may have ended before
            }
        }
    });
    response
}

/// Waits long enough for the server to look at the bytes behind the handshake.
async fn later(state: State<App>, upgrade: SocketUpgrade) -> Response {
    tokio::time::sleep(Duration::from_millis(50)).await;
    echo(state, upgrade).await
}

/// Answers the handshake when the test permits it.
async fn held(State(app): State<App>, upgrade: SocketUpgrade) -> Response {
    let (response, inbox, outbox) = upgrade.accept();
    app.mine.send((inbox, outbox)).unwrap();
    let _ = app.hold.acquire().await;
    response
}

async fn forgets(State(app): State<App>, upgrade: SocketUpgrade) -> StatusCode {
    let (_, inbox, outbox) = upgrade.accept();
    app.mine.send((inbox, outbox)).unwrap();
    StatusCode::NO_CONTENT
}

struct Running {
    address: SocketAddr,
    runtime: Runtime,
    serving: Serving,
    sockets: Sockets,
    mine: Mutex<mpsc::Receiver<(SocketInbox, Outbox)>>,
    ends: Mutex<mpsc::Receiver<SocketEnd>>,
    hold: Arc<Semaphore>,
}

impl Running {
    fn start(limits: Limits, sockets: SocketLimits) -> Running {
        let sockets = Sockets::new(sockets, ["https://friend.example", "null"]);
        let hold = Arc::new(Semaphore::new(0));
        let ((mine_to, mine_from), (ends_to, ends_from)) = (mpsc::channel(), mpsc::channel());
        let router = Router::new()
            .route("/mine", get(mine))
            .route("/echo", get(echo))
            .route("/later", get(later))
            .route("/held", get(held))
            .route("/forgets", get(forgets))
            .route("/empty", get(|| async { StatusCode::NO_CONTENT }))
            .with_state(App {
                sockets: sockets.clone(),
                mine: mine_to,
                ends: ends_to,
                hold: hold.clone(),
            });
        let (runtime, serving) = serve(router, limits);
        let (mine, ends) = (Mutex::new(mine_from), Mutex::new(ends_from));
        Running { address: serving.address(), runtime, serving, sockets, mine, ends, hold }
    }

    fn with(sockets: SocketLimits) -> Running {
        Running::start(Limits::default(), sockets)
    }

    fn exchange(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut stream = crate::support::connect(self.address);
        stream.write_all(bytes.as_ref()).unwrap();
        Answer::read(stream)
    }

    fn open(&self, path: &str) -> Client {
        Client::open_with(self.address, path, b"")
    }

    /// Opens a socket whose server side belongs to the test.
    fn open_mine(&self) -> (Client, SocketInbox, Outbox) {
        let client = self.open("/mine");
        let (inbox, outbox) = self.mine.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        (client, inbox, outbox)
    }

    fn next(&self, inbox: &mut SocketInbox) -> Option<Result<Utf8Bytes, SocketEnd>> {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, inbox.next()).await.unwrap() })
    }

    /// Takes messages until the end of the inbox.
    fn end_of(&self, mut inbox: SocketInbox) -> SocketEnd {
        loop {
            if let Err(end) = self.next(&mut inbox).expect("an end before `None`") {
                assert_eq!(self.next(&mut inbox), None);
                return end;
            }
        }
    }

    /// Returns the reason for the end of an `/echo`.
    fn end(&self) -> SocketEnd {
        self.ends.lock().unwrap().recv_timeout(PATIENCE).unwrap()
    }

    fn wait_until_none_is_open(&self) {
        let start = Instant::now();
        while self.sockets.open() > 0 {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.sockets);
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn drain(self) -> Drained {
        self.runtime.block_on(self.serving.drain())
    }
}

/// Handshake of a client that is not a browser; `rest` has further header lines.
fn handshake(path: &str, rest: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: here:80\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{rest}\r\n"
    )
}

/// Client that can break every rule.
struct Client(TcpStream);

impl Client {
    /// Opens a socket, with `early` behind the handshake.
    fn open_with(address: SocketAddr, path: &str, early: &[u8]) -> Client {
        let mut stream = crate::support::connect(address);
        stream.write_all(&[handshake(path, "").as_bytes(), early].concat()).unwrap();
        Client::opened(stream)
    }

    /// Reads the answer to a handshake.
    fn opened(mut stream: TcpStream) -> Client {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(head.contains("\r\nconnection: upgrade\r\nupgrade: websocket\r\n"), "{head}");
        assert!(!head.contains("connection: close"), "{head}");
        // The key and its answer are the example in RFC 6455.
        assert!(head.contains("accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        Client(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Returns the first byte and the payload of the next frame.
    fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).unwrap();
        let mut length = [0; 8];
        match head[1] {
            127 => self.0.read_exact(&mut length).unwrap(),
            126 => self.0.read_exact(&mut length[6..]).unwrap(),
            short => length[7] = short,
        }
        let mut payload = vec![0; u64::from_be_bytes(length) as usize];
        self.0.read_exact(&mut payload).unwrap();
        (head[0], payload)
    }

    #[track_caller]
    fn expect(&mut self, first: u8, payload: &[u8]) {
        let (got, bytes) = self.frame();
        assert!((got, &bytes[..]) == (first, payload), "{got:#x} {:?}", bytes.get(..200));
    }

    /// Skips frames up to the close frame, and returns its code.
    fn close_code(&mut self) -> u16 {
        loop {
            if let (0x88, payload) = self.frame() {
                return u16::from_be_bytes(payload[..2].try_into().unwrap());
            }
        }
    }

    /// Skips all bytes up to the end of the connection.
    fn wait_for_eof(&mut self) {
        if let Err(error) = self.0.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
    }
}

/// Encodes a client's frame; `first` has the flags and the opcode.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let mut frame = match length {
        0..126 => vec![first, 0x80 | length as u8],
        126..65536 => vec![first, 0x80 | 126, (length >> 8) as u8, length as u8],
        _ => [&[first, 0x80 | 127][..], &(length as u64).to_be_bytes()].concat(),
    };
    let mask = [7, 0, 0xff, 0x80];
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn another_implementation_gets_its_messages_back() {
    let running = Running::with(SocketLimits::default());
    let url = format!("ws://{}/echo", running.address);
    let (mut client, _) =
        tungstenite::client(url, crate::support::connect(running.address)).unwrap();
    for bytes in [0, 1, 125, 126, 4096, 65_535, 65_536] {
        let text = "y".repeat(bytes);
        client.send(Message::text(text.clone())).unwrap();
        assert!(client.read().unwrap() == Message::text(text), "{bytes}");
    }
    client.send(Message::text("grüße 🎈")).unwrap();
    assert_eq!(client.read().unwrap(), Message::text("grüße 🎈"));
    client.send(Message::Ping("are you there?".into())).unwrap();
    assert_eq!(client.read().unwrap(), Message::Pong("are you there?".into()));
    assert_eq!(running.sockets.open(), 1);

    let frame = tungstenite::protocol::CloseFrame { code: 4321.into(), reason: "enough".into() };
    client.close(Some(frame)).unwrap();
    let Message::Close(Some(answer)) = client.read().unwrap() else { panic!("no close frame") };
    assert_eq!(u16::from(answer.code), 4321);
    assert!(matches!(client.read(), Err(tungstenite::Error::ConnectionClosed)));
    assert_eq!(running.end(), SocketEnd::Client { code: Some(4321), reason: "enough".into() });
    running.wait_until_none_is_open();
}

#[test]
fn a_request_that_is_no_handshake_gets_its_problem() {
    let running = Running::with(SocketLimits::default());
    let good = handshake("/echo", "connection: close\r\n");
    let without = |line: &str| {
        assert!(good.contains(line));
        good.replacen(line, "", 1)
    };
    let with = |line: &str, other: &str| without(line).replacen("\r\n", &format!("\r\n{other}"), 1);
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let version = "sec-websocket-version: 13\r\n";
    #[rustfmt::skip]
    let cases = [
        ("no Upgrade", without("upgrade: WebSocket\r\n"), 426, "upgrade-required"),
        ("another Upgrade", with("upgrade: WebSocket\r\n", "upgrade: h2c\r\n"), 426, "upgrade-required"),
        ("no Connection", without("connection: keep-alive, Upgrade\r\n"), 426, "upgrade-required"),
        ("HTTP/1.0", good.replacen("HTTP/1.1", "HTTP/1.0", 1), 426, "upgrade-required"),
        ("HEAD", good.replacen("GET", "HEAD", 1), 426, ""),
        ("no version", without(version), 426, "websocket-version"),
        ("version 8", with(version, "sec-websocket-version: 8\r\n"), 426, "websocket-version"),
        ("two versions", with("", version), 426, "websocket-version"),
        ("no key", without(key), 400, "malformed-websocket-handshake"),
        ("two keys", with("", key), 400, "malformed-websocket-handshake"),
        ("a short key", with(key, "sec-websocket-key: dGhl\r\n"), 400, "malformed-websocket-handshake"),
        ("a key that is not base64", with(key, "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=!\r\n"), 400, "malformed-websocket-handshake"),
        ("a body", with("", "content-length: 2\r\n") + "xx", 400, "malformed-websocket-handshake"),
        ("a chunked body", with("", "transfer-encoding: chunked\r\n") + "0\r\n\r\n", 400, "malformed-websocket-handshake"),
    ];
    for (name, bytes, status, problem) in cases {
        eprintln!("{name}"); // shown if it fails
        let answer = running.exchange(bytes);
        if status == 426 {
            assert!(answer.head.contains("\r\nsec-websocket-version: 13"), "{answer:?}");
            assert!(answer.head.contains("\r\nupgrade: websocket"), "{answer:?}");
        }
        if name == "HEAD" {
            assert_eq!((answer.status, answer.body.as_str()), (status, ""));
        } else {
            answer.is_problem(status, problem);
        }
    }
    assert_eq!(running.sockets.open(), 0);
}

#[test]
fn a_page_of_a_foreign_origin_is_refused() {
    let running = Running::with(SocketLimits::default());
    for (origin, is_allowed) in [
        ("", true),
        ("origin: http://here\r\n", true),
        ("origin: http://here:80\r\n", true),
        ("origin: http://HERE\r\n", true),
        ("origin: https://friend.example\r\n", true),
        ("origin: null\r\n", true), // it is in the list
        ("origin: http://there\r\n", false),
        ("origin: https://here\r\n", false),
        ("origin: http://here:81\r\n", false),
        ("origin: http://here.evil\r\n", false),
        ("origin: http://evil.here\r\n", false),
        ("origin: http://friend.example\r\n", false),
        ("origin: https://friend.example.evil\r\n", false),
        ("origin: here\r\n", false),
        ("origin:\r\n", false),
        ("origin: http://here\r\norigin: http://there\r\n", false),
    ] {
        eprintln!("{origin}"); // shown if it fails
        let request = handshake("/echo", &format!("{origin}connection: close\r\n"));
        if is_allowed {
            let mut client = crate::support::connect(running.address);
            client.write_all(request.as_bytes()).unwrap();
            let mut begun = [0; 12];
            client.read_exact(&mut begun).unwrap();
            assert_eq!(&begun, b"HTTP/1.1 101");
        } else {
            running.exchange(request).is_problem(403, "origin-refused");
        }
    }
}

#[test]
fn a_violation_is_answered_with_its_close_code() {
    let limits = SocketLimits {
        frame_bytes_max: 1000,
        message_bytes_max: 1500,
        close_timeout: 10 * PATIENCE, // after a violation, no answer is awaited
        ..SocketLimits::default()
    };
    let running = Running::with(limits);
    let large = [b'x'; 1001];
    #[rustfmt::skip]
    let cases = [
        ("a large frame", frame(0x81, &large), 1009),
        ("a large message", [frame(0x01, &large[1..]), frame(0x80, &large[1..])].concat(), 1009),
        ("a head that announces 2^63 bytes", [&[0x81, 0xff, 0x80][..], &[0; 11]].concat(), 1009),
        ("bad UTF-8", frame(0x81, b"\xc3\x28"), 1007),
        ("bad UTF-8 over two frames", [frame(0x01, b"\xc3"), frame(0x80, b"\x28")].concat(), 1007),
        ("binary", frame(0x82, b"x"), 1003),
        ("a frame without a mask", vec![0x81, 1, b'x'], 1002),
        ("a reserved bit", frame(0xc1, b"x"), 1002),
        ("a reserved opcode", frame(0x83, b"x"), 1002),
        ("a continuation of nothing", frame(0x80, b"x"), 1002),
        ("a message within a message", [frame(0x01, b"x"), frame(0x81, b"x")].concat(), 1002),
        ("a fragmented ping", frame(0x09, b"x"), 1002),
        ("a reserved close code", frame(0x88, &1005_u16.to_be_bytes()), 1002),
        ("HTTP", b"GET /empty HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(), 1002),
    ];
    for (name, bytes, code) in cases {
        eprintln!("{name}"); // shown if it fails
        let mut client = running.open("/echo");
        client.send(&frame(0x81, b"before"));
        client.expect(0x81, b"before");
        client.send(&[bytes, frame(0x81, b"behind")].concat());
        let (first, payload) = client.frame();
        assert_eq!((first, &payload[..2]), (0x88, &u16::to_be_bytes(code)[..]));
        assert!(payload.len() > 2, "a reason");
        client.wait_for_eof();
        let end = running.end();
        assert!(matches!(end, SocketEnd::Violation(violated) if violated.get() == code), "{end}");
    }
    running.wait_until_none_is_open();
}

#[test]
fn a_message_in_fragments_arrives_whole_and_pings_between_them_are_answered() {
    let running = Running::with(SocketLimits::default());
    let mut client = running.open("/echo");
    let bytes = [
        frame(0x01, b"one, \xc3"),
        frame(0x89, b"still there?"),
        frame(0x00, b"\xa9, "),
        frame(0x8a, b"a pong that nobody asked for"),
        frame(0x00, b""),
        frame(0x80, b"three"),
    ]
    .concat();
    // In pieces, the server sees the fragments one by one.
    for piece in bytes.chunks(7) {
        client.send(piece);
    }
    client.expect(0x8a, b"still there?");
    client.expect(0x81, "one, é, three".as_bytes());
}

#[test]
fn a_close_within_a_message_drops_the_message() {
    let running = Running::with(SocketLimits::default());
    let mut client = running.open("/echo");
    client.send(&[frame(0x01, b"begun"), frame(0x88, b"")].concat());
    client.expect(0x88, b"");
    client.wait_for_eof();
    assert_eq!(running.end(), SocketEnd::Client { code: None, reason: "".into() });

    // The connection ends within a frame.
    let mut client = running.open("/echo");
    client.send(&frame(0x81, b"begun")[..8]);
    drop(client);
    assert_eq!(running.end(), SocketEnd::Lost);
    running.wait_until_none_is_open();
}

#[test]
fn a_full_queue_hands_the_frame_back_and_others_are_unaffected() {
    let limits =
        SocketLimits { outbox_frames_max: 8, outbox_bytes_max: 100_000, ..SocketLimits::default() };
    let running = Running::with(limits);
    let (_slow, _slow_inbox, slow) = running.open_mine();
    let (mut quick, _quick_inbox, others) = running.open_mine();

    // The system's own buffers take some frames before the queue fills up.
    let page = Frames::from("x".repeat(49_996));
    let mut sent = 0;
    let refused = loop {
        match slow.send(page.clone()) {
            Ok(()) => sent += 1,
            Err(error) if slow.queued() == 2 => break error,
            Err(error) => assert!(matches!(error, OutboxError::Full(_)), "{error}"),
        }
        assert!(sent < 10_000, "the queue has no bound");
        thread::sleep(Duration::from_millis(1));
    };
    assert!(matches!(&refused, OutboxError::Full(frame) if *frame == page), "{refused}");
    assert!(
        refused.into_frames().as_bytes().as_ptr() == page.as_bytes().as_ptr(),
        "the frame was copied"
    );
    assert_eq!(slow.queued_bytes(), 100_000);
    assert!(slow.frames_dropped() > 0);
    assert_eq!(running.sockets.frames_dropped(), slow.frames_dropped());

    assert_eq!(others.send("news"), Ok(()));
    quick.expect(0x81, b"news");
    let large = Frames::from("x".repeat(100_001));
    assert_eq!(others.send(large.clone()), Err(OutboxError::TooLarge(large)));
    assert_eq!(others.frames_dropped(), 1);

    // Small frames fill the queue by their number.
    let (_full, _inbox, full) = running.open_mine();
    let mut sent = 0;
    while full.send("").is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "the queue has no bound");
    }
    assert_eq!(full.send("z").unwrap_err().into_frames(), "z".into());
}

/// Frames that wait are written together; their bytes must be those of single frames.
#[test]
fn frames_that_wait_together_arrive_whole_and_in_order() {
    let (outbox_frames_max, outbox_bytes_max) = (10_000, 1 << 30);
    let running =
        Running::with(SocketLimits { outbox_frames_max, outbox_bytes_max, ..Default::default() });
    let (mut client, mut inbox, outbox) = running.open_mine();
    // Around the lengths at which a head, the buffer for small frames or the system's buffers change.
    let lengths = [0, 120, 121, 122, 4_000, 8_187, 16_379, 16_380, 65_530, 65_531, 300_000];
    let mut random = fastrand::Rng::with_seed(7);
    let frames: Vec<String> = (0..1_000)
        .map(|number| {
            let special = lengths[random.usize(..lengths.len())];
            let length = if random.u8(..) < 200 { random.usize(..300) } else { special };
            format!("{number:05}{}", "z".repeat(length))
        })
        .collect();
    frames.iter().for_each(|frame| outbox.send(frame.as_str()).unwrap());
    // A ping in the middle is answered between two frames, never within one.
    client.send(&frame(0x89, b"ping"));
    let (mut texts, mut pongs) = (frames.iter(), 0);
    while texts.len() > 0 || pongs == 0 {
        let (first, payload) = client.frame();
        if (first, &payload[..]) == (0x8a, b"ping") {
            pongs += 1;
        } else {
            let text = texts.next().unwrap();
            assert!(first == 0x81 && payload == text.as_bytes(), "{first:#x} {}", &text[..5]);
        }
    }
    client.send(&frame(0x81, b"the socket goes on"));
    assert_eq!(running.next(&mut inbox), Some(Ok("the socket goes on".into())));
}

#[test]
fn a_client_that_does_not_read_is_closed_with_1013() {
    let limits = SocketLimits { stall_timeout: SECOND / 10, ..SocketLimits::default() };
    let running = Running::with(SocketLimits { close_timeout: PATIENCE, ..limits.clone() });
    let (mut client, inbox, outbox) = running.open_mine();
    let fill = |outbox: &Outbox| {
        while !outbox.is_closed() {
            let _ = outbox.send("x".repeat(50_000));
            thread::sleep(Duration::from_millis(1));
        }
    };
    fill(&outbox);
    assert_eq!(running.end_of(inbox), SocketEnd::Stalled);
    assert!(matches!(outbox.send("x"), Err(OutboxError::Closed(_))));
    // A client that reads again learns the reason.
    assert_eq!(client.close_code(), 1013);
    client.send(&frame(0x88, &1013_u16.to_be_bytes()));
    client.wait_for_eof();
    running.wait_until_none_is_open();

    // A client that never reads again is dropped.
    let running = Running::with(SocketLimits { close_timeout: SECOND / 10, ..limits });
    let (_client, inbox, outbox) = running.open_mine();
    fill(&outbox);
    assert_eq!(running.end_of(inbox), SocketEnd::Stalled);
    running.wait_until_none_is_open();
}

#[test]
fn a_client_that_has_vanished_is_dropped() {
    let limits = SocketLimits {
        ping_interval: SECOND / 20,
        idle_timeout: SECOND / 5,
        ..SocketLimits::default()
    };
    let running = Running::with(limits);
    // Without an answer to the pings, an open connection is like a client without power.
    let mut client = running.open("/echo");
    client.expect(0x89, b"");
    assert_eq!(running.end(), SocketEnd::Silent);
    running.wait_until_none_is_open();
    client.wait_for_eof();
}

#[test]
fn a_client_that_answers_pings_stays() {
    let limits = SocketLimits {
        ping_interval: SECOND / 50,
        idle_timeout: 2 * SECOND,
        ..SocketLimits::default()
    };
    let running = Running::with(limits);
    let mut client = running.open("/echo");
    let opened = Instant::now();
    while opened.elapsed() < 5 * SECOND / 2 {
        client.expect(0x89, b"");
        client.send(&frame(0x8a, b""));
    }
    client.send(&frame(0x81, b"still here"));
    while client.frame() != (0x81, b"still here".to_vec()) {}
}

#[test]
fn the_server_stops_reading_while_messages_are_not_taken() {
    for (ping_interval, idle_timeout) in [(SECOND / 50, SECOND / 5), (10 * PATIENCE, 20 * PATIENCE)]
    {
        let (inbox_messages_max, limits) = (3, SocketLimits::default());
        let running = Running::with(SocketLimits {
            inbox_messages_max,
            ping_interval,
            idle_timeout,
            ..limits
        });
        let (mut client, mut inbox, outbox) = running.open_mine();
        for number in 0..2000 {
            client.send(&frame(0x81, format!("{number}").as_bytes()));
        }
        while !format!("{inbox:?}").contains("queued: 3") {
            thread::sleep(Duration::from_millis(1));
        }
        // The idle limit does not count while nobody reads: the client is not at fault.
        thread::sleep(SECOND / 2);
        assert!(format!("{inbox:?}").contains("queued: 3"), "{inbox:?}");
        assert!(!outbox.is_closed());
        for number in 0..2000 {
            assert_eq!(running.next(&mut inbox), Some(Ok(number.to_string().into())));
        }
    }
}

#[test]
fn an_application_closes_a_socket_after_its_frames() {
    let running = Running::with(SocketLimits::default());
    let (mut client, mut inbox, outbox) = running.open_mine();
    for number in 0..100 {
        outbox.send(format!("{number}")).unwrap();
    }
    outbox.close(CloseCode::application(4000).unwrap(), &"ü".repeat(100));
    outbox.close(CloseCode::NORMAL, "too late");
    assert!(matches!(outbox.send("x"), Err(OutboxError::Closed(_))));
    for number in 0..100 {
        client.expect(0x81, format!("{number}").as_bytes());
    }
    let reason = "ü".repeat(61); // 122 bytes of at most 123
    client.expect(0x88, &[&4000_u16.to_be_bytes(), reason.as_bytes()].concat());
    client.send(&[frame(0x81, b"not delivered"), frame(0x88, &4000_u16.to_be_bytes())].concat());
    client.wait_for_eof();
    assert_eq!(running.next(&mut inbox), Some(Err(SocketEnd::Application)));
    assert_eq!(running.next(&mut inbox), None);
    running.wait_until_none_is_open();

    // Nobody takes the messages of a client whose process has ended.
    let (mut client, inbox, outbox) = running.open_mine();
    drop(inbox);
    assert_eq!(client.close_code(), 1011);
    assert!(outbox.is_closed());
}

#[test]
fn an_answer_to_a_close_is_not_awaited_for_ever() {
    let running =
        Running::with(SocketLimits { close_timeout: SECOND / 10, ..SocketLimits::default() });
    let (mut client, _inbox, outbox) = running.open_mine();
    outbox.close(CloseCode::NORMAL, "");
    assert_eq!(client.close_code(), 1000);
    running.wait_until_none_is_open();
    client.wait_for_eof();
}

#[test]
fn a_socket_that_does_not_open_ends_its_inbox() {
    let running = Running::with(SocketLimits::default());
    let answer = running.exchange(handshake("/forgets", "connection: close\r\n"));
    assert_eq!(answer.status, 204);
    let (inbox, outbox) = running.mine.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    assert_eq!(running.end_of(inbox), SocketEnd::NotOpened);
    assert!(matches!(outbox.send("x"), Err(OutboxError::Closed(_))));
}

#[test]
fn bytes_behind_a_handshake_are_frames_and_never_a_request() {
    let running = Running::with(SocketLimits::default());
    let request = b"GET /empty HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for path in ["/echo", "/later"] {
        let early = [frame(0x81, b"early"), frame(0x81, &[b'x'; 20_000])].concat();
        let mut client = Client::open_with(running.address, path, &early);
        client.expect(0x81, b"early");
        client.expect(0x81, &[b'x'; 20_000]);
        client.send(&frame(0x81, b"late"));
        client.expect(0x81, b"late");

        let mut client = Client::open_with(running.address, path, request);
        let (first, payload) = client.frame();
        assert_eq!((first, &payload[..2]), (0x88, &1002_u16.to_be_bytes()[..]));
        client.wait_for_eof();
    }
    // Behind a refused handshake, a request is a request.
    let refused = handshake("/echo", "origin: http://there\r\n");
    let both = running.exchange([refused.as_bytes(), request].concat());
    assert_eq!(both.status, 403);
    assert!(both.body.contains("HTTP/1.1 204"), "{both:?}");
}

#[test]
fn the_timeouts_of_requests_do_not_cut_a_socket() {
    let limits = Limits {
        header_timeout: SECOND / 10,
        request_timeout: SECOND / 10,
        answer_timeout: SECOND / 10,
        ..Limits::default()
    };
    let running = Running::start(limits, SocketLimits::default());
    let mut client = running.open("/echo");
    thread::sleep(SECOND); // the time after which a request would be cut
    client.send(&frame(0x81, b"still here"));
    client.expect(0x81, b"still here");
}

#[test]
fn a_socket_counts_as_a_connection() {
    let running =
        Running::start(Limits { connections_max: 2, ..Limits::default() }, SocketLimits::default());
    let clients = [running.open("/echo"), running.open("/echo")];
    running.exchange(handshake("/echo", "")).is_problem(503, "too-many-connections");
    drop(clients);
    let start = Instant::now();
    while running.exchange("GET /empty HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").status
        == 503
    {
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn a_drain_tells_every_socket_to_connect_again() {
    let running = Running::with(SocketLimits::default());
    let mut clients: Vec<Client> = (0..20).map(|_| running.open("/echo")).collect();
    let address = running.address;
    let readers = thread::spawn(move || {
        for client in &mut clients {
            assert_eq!(client.close_code(), 1012);
            client.send(&frame(0x88, &1012_u16.to_be_bytes()));
            client.wait_for_eof();
        }
    });
    let Running { runtime, serving, sockets, ends, .. } = running;
    assert_eq!(runtime.block_on(serving.drain()), Drained { cut: 0 });
    readers.join().unwrap();
    assert_eq!(sockets.open(), 0);
    for _ in 0..20 {
        assert_eq!(ends.lock().unwrap().recv_timeout(PATIENCE), Ok(SocketEnd::Drain));
    }
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn no_socket_opens_during_a_drain() {
    let running = Running::with(SocketLimits::default());
    let address = running.address;
    let mut stream = crate::support::connect(address);
    stream.write_all(handshake("/held", "").as_bytes()).unwrap();
    let (mut inbox, _outbox) = running.mine.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    let Running { runtime, serving, hold, .. } = running;
    let draining = runtime.spawn(serving.drain());
    while TcpStream::connect(address).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    hold.add_permits(1);
    Answer::read(stream).is_problem(503, "draining");
    assert_eq!(runtime.block_on(inbox.next()), Some(Err(SocketEnd::Drain)));
    assert_eq!(runtime.block_on(draining).unwrap(), Drained { cut: 0 });
}

#[test]
fn a_drain_does_not_wait_for_clients_that_do_not_close() {
    // The close has its own limit, within the drain's.
    let running =
        Running::with(SocketLimits { close_timeout: SECOND / 10, ..SocketLimits::default() });
    let _client = running.open("/echo");
    assert_eq!(running.drain(), Drained { cut: 0 });

    // The drain's limit holds if it is the shorter one.
    let running = Running::start(
        Limits { drain_timeout: SECOND / 10, ..Limits::default() },
        SocketLimits { close_timeout: 10 * PATIENCE, ..SocketLimits::default() },
    );
    let (_client, inbox, outbox) = running.open_mine();
    let Running { runtime, serving, .. } = running;
    assert_eq!(runtime.block_on(serving.drain()), Drained { cut: 1 });
    assert!(outbox.is_closed());
    drop(inbox);
}

#[test]
fn a_thousand_sockets_leave_nothing_behind() {
    let running = Running::with(SocketLimits::default());
    let tasks = || running.runtime.metrics().num_alive_tasks();
    let before = tasks();
    let clients: Vec<Client> = (0..1000).map(|_| running.open("/echo")).collect();
    let start = Instant::now();
    while running.sockets.open() < 1000 {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
    drop(clients);
    for _ in 0..1000 {
        assert_eq!(running.end(), SocketEnd::Lost);
    }
    running.wait_until_none_is_open();
    let start = Instant::now();
    while tasks() > before {
        assert!(start.elapsed() < PATIENCE, "{} tasks", tasks());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Measures the server's memory for idle sockets, whose clients are another process. Run it alone,
/// in release mode and with `--nocapture`.
#[test]
#[ignore = "opens 15,000 connections"]
#[cfg(target_os = "linux")]
fn an_idle_socket_takes_a_few_kib() {
    const ADDRESS: &str = "THRONG_TEST_SOCKETS_ADDRESS";
    const COUNT: &str = "THRONG_TEST_SOCKETS_COUNT";
    if let Ok(address) = std::env::var(ADDRESS) {
        return be_idle(address.parse().unwrap(), std::env::var(COUNT).unwrap().parse().unwrap());
    }
    let files = raise_file_limit();
    let count = files.saturating_sub(200).min(15_000) as usize;
    assert!(count > 2000, "a limit of {files} open files is too low");
    let limits = SocketLimits {
        ping_interval: 10 * PATIENCE,
        idle_timeout: 20 * PATIENCE,
        ..SocketLimits::default()
    };
    let running =
        Running::start(Limits { connections_max: 2 * count, ..Limits::default() }, limits);
    let clients = |count: usize| {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "an_idle_socket_takes_a_few_kib", "--ignored"])
            .env(ADDRESS, running.address.to_string())
            .env(COUNT, count.to_string())
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let sockets: Vec<_> = (0..count)
            .map(|_| running.mine.lock().unwrap().recv_timeout(PATIENCE).unwrap())
            .collect();
        (child, sockets)
    };
    let wait_for_open = |count: usize| {
        while running.sockets.open() < count {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(SECOND); // the tasks come to rest
    };
    // The first sockets pay for the memory of the runtime and the router.
    let (mut first, _first_sockets) = clients(1000);
    wait_for_open(1000);
    let before = resident_bytes();
    let (mut others, mut sockets) = clients(count - 1000);
    wait_for_open(count);
    let idle = resident_bytes();
    let measured = sockets.len();
    let each = |bytes: usize| bytes.saturating_sub(before) / measured;
    println!("{measured} idle sockets: {} bytes each", each(idle));

    // Each client gets a page, and answers it with a message.
    let page = Frames::from("x".repeat(30_000));
    for (inbox, outbox) in &mut sockets {
        outbox.send(page.clone()).unwrap();
        assert_eq!(
            running.next(inbox).map(|message| message.map(|text| text.len())),
            Some(Ok(10_000))
        );
    }
    let used = resident_bytes();
    println!("after 30 kB to each and 10 kB from each: {} bytes each", each(used));
    assert!(each(idle) < 4096 && each(used) < 4096);
    drop((first.stdin.take(), others.stdin.take()));
    assert!(first.wait().unwrap().success() && others.wait().unwrap().success());
}

/// Opens `count` sockets, and answers a page on each, until the standard input ends.
#[cfg(target_os = "linux")]
fn be_idle(address: SocketAddr, count: usize) {
    raise_file_limit();
    let mut clients: Vec<Client> =
        (0..count).map(|_| Client::open_with(address, "/mine", b"")).collect();
    thread::spawn(move || {
        for client in &mut clients {
            client.0.set_read_timeout(None).unwrap();
            client.frame();
            client.send(&frame(0x81, &[b'x'; 10_000]));
        }
        clients.iter_mut().for_each(Client::wait_for_eof);
    });
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Raises the limit of open files as far as the system permits, and returns it.
#[cfg(target_os = "linux")]
fn raise_file_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}

/// Returns the memory of this process that is in use, by the system's account.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}
