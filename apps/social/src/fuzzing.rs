//! Bodies of the fuzz targets of the service: each takes any bytes and panics if a property does not hold.
//!
//! | function | bytes | property |
//! |---|---|---|
//! | [`http`] | what a client sends on a connection | each answer is well-formed, and none is an error of the server |
//! | [`socket`] | what a client sends on a WebSocket | each frame is well-formed, and the close is not an error of the server |
//! | [`inputs`] | texts of a client: names, keys, ids, messages | values that are accepted keep their rules and their spelling |
//! | [`states`] | records of durable processes | decoding ends with a state or an error |
//!
//! [`http`] and [`socket`] send the bytes to a real server in this process, by TCP. `@TOKEN@` in them becomes a
//! valid token of a user, and `@CURSOR@` a valid cursor of that user's timeline.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use throng::Runtime;
use throng_durable::{Node, fuzzing};
use throng_node::http::{Cursor, Limits, Server, Serving, Signer, Sockets};

use crate::http::{RateLimits, Settings, routes};
use crate::idempotency::IdempotencyKey;
use crate::ids::PostId;
use crate::name::{Name, RoomName};
use crate::password::Password;
use crate::post::Text;
use crate::revoked::Revoked;
use crate::room::Room;
use crate::service::Social;
use crate::socket::check_text;
use crate::user::User;

/// Server for all inputs of a process.
struct Service {
    address: SocketAddr,
    token: String,
    cursor: String,
    _serving: Serving,
    _runtime: Runtime,
}

/// Returns the path of a new data directory, in `/dev/shm` if it exists. The service lasts until the process ends, so
/// a later process removes the directory.
fn data_directory() -> std::io::Result<PathBuf> {
    const NAME: &str = "throng-fuzz-";
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    for entry in std::fs::read_dir(&parent)? {
        let name = entry?.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            // Another process may remove it, too.
            let _ = std::fs::remove_dir_all(parent.join(name));
        }
    }
    Ok(parent.join(format!("{NAME}{}", std::process::id())))
}

/// Time after which an answer counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

impl Service {
    fn shared() -> &'static Service {
        static SERVICE: OnceLock<Service> = OnceLock::new();
        SERVICE.get_or_init(|| Service::start().unwrap_or_else(|error| panic!("{error}")))
    }

    fn start() -> Result<Service, Box<dyn std::error::Error>> {
        let data = data_directory()?;
        let signer = Signer::from_key([7; 32]);
        let runtime = Runtime::builder().workers(1).start()?;
        let serving = runtime.block_on(async |runtime| {
            let node = Node::options(&data).open(runtime)?;
            let social = Social::new(node, runtime.clone(), 0)?;
            for name in ["alice", "bob"] {
                social.register(&name.parse()?, Password::new("correct horse")?).await?;
            }
            let (alice, bob) = ("alice".parse()?, "bob".parse()?);
            social.follow(&alice, &bob).await?;
            social.post(&bob, Text::new("hello")?, None).await?;
            social.create_room(&"rust".parse()?, &alice).await?;
            let settings = Settings {
                signer: signer.clone(),
                token_ttl: Duration::from_secs(3600),
                sockets: Sockets::default(),
                limits: RateLimits::default(),
            };
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let server = Server::bind(any, Limits::default()).await?;
            let serving = server.start(routes(social, settings), runtime.tokio());
            Ok::<_, Box<dyn std::error::Error>>(serving)
        })?;
        let (token, _) = signer.issue_token("alice", Duration::from_secs(30 * 24 * 3600));
        let cursor = Cursor { time: 0, id: u64::MAX >> 1 };
        let cursor = signer.seal_cursor("timeline alice", cursor);
        let address = serving.address();
        Ok(Service { address, token, cursor, _serving: serving, _runtime: runtime })
    }

    /// Replaces `@TOKEN@` and `@CURSOR@` by the token and the cursor.
    fn filled(&self, data: &[u8]) -> Vec<u8> {
        let filled = replaced(data, b"@TOKEN@", self.token.as_bytes());
        replaced(&filled, b"@CURSOR@", self.cursor.as_bytes())
    }

    /// Sends bytes, ends the stream, and returns all bytes of the server.
    fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        self.exchange_until(bytes, true, |_| false)
    }

    /// Sends bytes, ends the stream if it `is_ended`, and returns the bytes of the server up to their end, or as soon
    /// as they are enough.
    fn exchange_until(
        &self,
        bytes: &[u8],
        is_ended: bool,
        is_enough: impl Fn(&[u8]) -> bool,
    ) -> Vec<u8> {
        let exchanged = || {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            // A server that refuses early may close the connection before it has read all bytes.
            let _ = stream.write_all(bytes);
            if is_ended {
                let _ = stream.shutdown(Shutdown::Write);
            }
            let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
            while !is_enough(&answer) {
                match stream.read(&mut buffer) {
                    // The system discards unread bytes of a large input by a reset.
                    Err(error) if error.kind() != ErrorKind::ConnectionReset => return Err(error),
                    Ok(0) | Err(_) => break,
                    Ok(count) => answer.extend_from_slice(&buffer[..count]),
                }
            }
            Ok(answer)
        };
        exchanged().unwrap_or_else(|error| panic!("the server does not answer: {error}"))
    }
}

fn replaced(data: &[u8], name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut filled = Vec::with_capacity(data.len());
    let mut rest = data;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(name) {
            filled.extend_from_slice(value);
            rest = after;
        } else {
            filled.push(*first);
            rest = after;
        }
    }
    filled
}

/// Sends the bytes as the requests of a connection.
///
/// # Panics
/// If the server fails, does not end the connection, or sends a malformed answer.
pub fn http(data: &[u8]) {
    let service = Service::shared();
    // The end of the stream cancels the last request. A further request comes last, so that all requests of the input
    // are answered.
    let last = b"GET /api/v1/health HTTP/1.1\r\nhost: x\r\n\r\n";
    let answers = service.exchange(&[&service.filled(data), &last[..]].concat());
    let mut rest = answers.as_slice();
    while !rest.is_empty() {
        match check_answer(rest) {
            Some(after) => rest = after,
            None => return,
        }
    }
}

/// Checks the answer at the front of `bytes`, and returns the bytes behind it; `None` if they are frames.
fn check_answer(bytes: &[u8]) -> Option<&[u8]> {
    let shown = || String::from_utf8_lossy(bytes);
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("an answer without an end of its head: {}", shown()));
    let (head, rest) = (&bytes[..end], &bytes[end + 4..]);
    let head = std::str::from_utf8(head).unwrap_or_else(|_| panic!("not text: {}", shown()));
    let mut lines = head.split("\r\n");
    let status =
        lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok());
    let status: u16 = status.unwrap_or_else(|| panic!("no status line: {head}"));
    // 501 answers a transfer encoding that is not chunked.
    assert!(status < 500 || status == 501, "the server failed: {}", shown());
    let (mut length, mut media_type) = (0, "");
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("no header: {line:?}"));
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        assert!(!name.is_empty() && name.bytes().all(is_name), "the name of a header: {line:?}");
        assert!(!value.contains(|c: char| c.is_control()), "the value of a header: {line:?}");
        match name {
            "content-length" => length = value.parse().unwrap_or(usize::MAX),
            "content-type" => media_type = value,
            "transfer-encoding" => panic!("an answer of the service has a length: {head}"),
            _ => {}
        }
    }
    if status == 101 {
        return None;
    }
    // An answer to HEAD has the length of a body and no body.
    if rest.is_empty() || rest.starts_with(b"HTTP/1.") {
        return Some(rest);
    }
    let body = rest.get(..length).unwrap_or_else(|| panic!("a body is cut: {}", shown()));
    if status >= 400 {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_problem = media_type == "application/problem+json" && problem["status"] == status;
        assert!(is_problem, "not a problem: {}", shown());
    }
    Some(&rest[length..])
}

/// Sends the bytes as frames. If the first byte is even, each line of the rest is the text of a message. A valid hello
/// comes before the lines, and a text that is no message after them, which the service must answer by a close.
/// Otherwise the rest are the bytes of frames, with a close frame after them.
///
/// # Panics
/// If the server fails, does not end the connection, or sends a malformed frame.
pub fn socket(data: &[u8]) {
    let service = Service::shared();
    let Some((kind, data)) = data.split_first() else { return };
    let mut bytes =
        b"GET /api/v1/socket HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            .to_vec();
    let has_texts = kind.is_multiple_of(2);
    if has_texts {
        let hello = br#"{"type":"hello","token":"@TOKEN@","last":null}"#;
        let lines = [&hello[..]].into_iter().chain(data.split(|byte| *byte == b'\n'));
        for line in lines.chain([&b"end"[..]]) {
            frame(&mut bytes, 0x81, &service.filled(line));
        }
    } else {
        bytes.extend_from_slice(data);
        frame(&mut bytes, 0x88, b"\x03\xe8");
    }
    let is_over = |answer: &[u8]| {
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        has_texts && end.is_some_and(|end| check_frames(&answer[end + 4..]))
    };
    let answer = service.exchange_until(&bytes, !has_texts, is_over);
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer to the handshake"));
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    let is_closed = check_frames(&answer[end + 4..]);
    assert!(is_closed || !has_texts, "the service does not close the socket");
}

/// Encodes a frame of a client, with a mask that changes no byte.
fn frame(bytes: &mut Vec<u8>, first: u8, payload: &[u8]) {
    match payload.len() {
        length @ 0..126 => bytes.extend([first, 0x80 | length as u8]),
        length @ 126..65536 => bytes.extend([first, 0xfe, (length >> 8) as u8, length as u8]),
        length => {
            bytes.extend([first, 0xff]);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend_from_slice(payload);
}

/// Checks the frames of the server: whole texts in JSON, controls, and at most one close as the last. The last frame
/// may still be on its way. Returns whether there is a close.
fn check_frames(mut bytes: &[u8]) -> bool {
    while let [first, length, rest @ ..] = bytes {
        assert!(*first & 0x70 == 0 && *first & 0x80 != 0, "the flags {first:x}");
        let (length, rest) = match (*length, rest) {
            (126, [high, low, rest @ ..]) => (usize::from(*high) << 8 | usize::from(*low), rest),
            (length @ 0..126, rest) => (usize::from(length), rest),
            (126, _) => return false,
            (length, _) => panic!("the length {length}: masked, or longer than any message"),
        };
        let Some((payload, after)) = rest.split_at_checked(length) else { return false };
        bytes = after;
        match first & 0x0f {
            1 => {
                let message: Value = serde_json::from_slice(payload).unwrap_or_default();
                assert!(message["type"].is_string(), "{}", String::from_utf8_lossy(payload));
            }
            8 => {
                let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                assert!(code != Some(1011), "the server failed");
                assert!(bytes.is_empty(), "frames after the close");
                return true;
            }
            9 | 10 => assert!(length <= 125),
            opcode => panic!("the opcode {opcode}"),
        }
    }
    false
}

/// Decodes the bytes as each text that a client may choose.
///
/// # Panics
/// If a value is accepted against its rule, or is shown in another spelling.
pub fn inputs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let is_safe = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if let Ok(name) = text.parse::<Name>() {
        assert!(
            name.as_str() == text && (1..=32).contains(&text.len()) && text.bytes().all(is_safe)
        );
    }
    if let Ok(room) = text.parse::<RoomName>() {
        assert!(room.as_str() == text && text.parse::<Name>().is_ok());
    }
    if let Ok(id) = text.parse::<PostId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
    }
    if IdempotencyKey::new(&text).is_some() {
        assert!(
            (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        );
    }
    if let Ok(post) = Text::new(text.clone()) {
        assert!(post.as_str() == text && text.chars().count() <= Text::CHARACTERS_MAX);
        let json = serde_json::to_string(&post).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap_or_default(), *text);
    }
    if let Ok(password) = Password::new(text.clone()) {
        assert_eq!(format!("{password:?}"), "Password(…)", "a password is printed");
    }
    check_text(&text);
}

/// Decodes the bytes after the first, which chooses the type, as the record of a process.
///
/// # Panics
/// If decoding panics, or a decoded value has changed after it was stored again.
pub fn states(data: &[u8]) {
    let Some((kind, record)) = data.split_first() else { return };
    match kind % 8 {
        0..=2 => fuzzing::state::<User>(record),
        3 => fuzzing::state::<Room>(record),
        4 => fuzzing::cell::<(u64, Name, Option<Text>)>(record),
        5 => fuzzing::cell::<(u64, Text)>(record),
        6 => fuzzing::cell::<Revoked>(record),
        _ => fuzzing::cell::<u64>(record),
    }
}
