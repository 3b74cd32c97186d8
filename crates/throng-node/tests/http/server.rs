//! The server over real sockets: hostile and malformed input, and the answers to it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Answer, serve};
use axum::Router;
use axum::extract::FromRef;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde::Deserialize;
use throng_node::http::{
    Bearer, ClientAddress, Drained, Json, Limits, Problem, Query, Serving, Signer,
};
use tokio::sync::Semaphore;

#[derive(Clone)]
struct State {
    signer: Signer,
    hold: Hold,
}

/// Tells a test that a request is being handled, and lets the test decide when it continues.
#[derive(Clone)]
struct Hold {
    inside: Arc<AtomicBool>,
    release: Arc<Semaphore>,
}

impl FromRef<State> for Hold {
    fn from_ref(state: &State) -> Hold {
        state.hold.clone()
    }
}

impl Hold {
    fn wait_until_inside(&self) {
        while !self.inside.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

async fn held(axum::extract::State(hold): axum::extract::State<Hold>) {
    hold.inside.store(true, Ordering::SeqCst);
    let _ = hold.release.acquire().await;
}

impl FromRef<State> for Signer {
    fn from_ref(state: &State) -> Signer {
        state.signer.clone()
    }
}

#[derive(Deserialize)]
struct Sum {
    a: u64,
    b: u64,
}

fn router(hold: Hold) -> Router {
    let signer = Signer::from_key([1; 32]);
    Router::new()
        .route("/sum", post(|Json(sum): Json<Sum>| async move { Json(sum.a + sum.b) }))
        .route("/sum", get(|Query(sum): Query<Sum>| async move { Json(sum.a + sum.b) }))
        .route("/me", get(|Bearer(token): Bearer| async move { token.subject }))
        .route("/held", get(held))
        .route("/never", get(std::future::pending::<()>).post(std::future::pending::<()>))
        .route(
            "/later",
            get(|| async { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "7")]) }),
        )
        .route("/large", get(|| async { vec![b'x'; 64 << 20] }))
        .route("/empty", get(|| async { StatusCode::NO_CONTENT }))
        .route("/panic", get(panics))
        .route(
            "/address",
            get(|ClientAddress(address): ClientAddress| async move { address.to_string() }),
        )
        .route("/mine", get(|| async { Problem::new(StatusCode::GONE, "all-gone", "it was") }))
        .route("/bare", get(|| async { (StatusCode::IM_A_TEAPOT, "short and stout") }))
        .with_state(State { signer, hold })
}

async fn panics() -> &'static str {
    panic!("on purpose")
}

/// Server in its own runtime, with the handle to drain it.
struct Running {
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    serving: Serving,
    hold: Hold,
}

impl Running {
    fn start(limits: Limits) -> Running {
        let hold = Hold { inside: Arc::default(), release: Arc::new(Semaphore::new(0)) };
        let (runtime, serving) = serve(router(hold.clone()), limits);
        Running { address: serving.address(), runtime, serving, hold }
    }

    fn connect(&self) -> TcpStream {
        crate::support::connect(self.address)
    }

    /// Sends `bytes` over a new connection, and reads until the server closes it.
    fn exchange(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut stream = self.connect();
        // A server that refuses early may close the connection before it has read all bytes.
        let _ = stream.write_all(bytes.as_ref());
        Answer::read(stream)
    }

    fn get(&self, path: &str) -> Answer {
        self.exchange(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    }

    fn post(&self, content_type: &str, body: &str) -> Answer {
        self.exchange(format!(
            "POST /sum HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn drain(self) -> Drained {
        self.runtime.block_on(self.serving.drain())
    }
}

#[test]
fn good_requests_are_answered() {
    let running = Running::start(Limits::default());
    assert_eq!(running.post("application/json", r#"{"a":2,"b":3}"#).body, "5");
    assert_eq!(running.post("application/json; charset=utf-8", r#"{"a":2,"b":3}"#).body, "5");
    assert_eq!(running.get("/sum?a=2&b=3").body, "5");
    assert_eq!(running.drain(), Drained { cut: 0 });
}

#[test]
fn every_bad_request_gets_its_problem() {
    let running = Running::start(Limits::default());
    running.get("/nowhere").is_problem(404, "no-such-route");
    let wrong_method =
        running.exchange("DELETE /sum HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    wrong_method.is_problem(405, "method-not-allowed");
    let allow = wrong_method.head.lines().find(|line| line.starts_with("allow:")).unwrap();
    assert!(allow.contains("get") && allow.contains("post"), "{allow}");

    running.post("application/json", "{").is_problem(400, "malformed-json");
    running.post("application/json", "").is_problem(400, "malformed-json");
    running.post("application/json", r#"{"a":2}"#).is_problem(422, "unprocessable");
    running.post("application/json", r#"{"a":2,"b":-3}"#).is_problem(422, "unprocessable");
    running.post("text/plain", r#"{"a":2,"b":3}"#).is_problem(415, "wrong-content-type");
    running.get("/sum?a=2").is_problem(400, "malformed-query");
    running.get("/sum?a=2&b=x").is_problem(400, "malformed-query");
    running.get("/panic").is_problem(500, "panicked");
    running.get("/mine").is_problem(410, "all-gone");
    running.get("/bare").is_problem(418, "rejected");
    let later = running.get("/later");
    later.is_problem(503, "rejected");
    assert!(later.head.contains("\r\nretry-after: 7"), "{later:?}");
    assert_eq!(later.head.matches("content-length").count(), 1, "{later:?}");
    running.get("/sum?a=2&b=3");
}

#[test]
fn a_browser_never_guesses_the_type_of_an_answer() {
    let running = Running::start(Limits::default());
    let malformed = running.exchange("GET\r\n\r\n");
    malformed.is_problem(400, "malformed-request");
    for answer in
        [running.get("/sum?a=2&b=3"), running.get("/nowhere"), running.get("/panic"), malformed]
    {
        assert!(answer.head.contains("\r\nx-content-type-options: nosniff"), "{answer:?}");
    }
}

#[test]
fn a_request_that_two_programs_may_read_differently_is_refused() {
    let running = Running::start(Limits::default());
    let get = "GET /sum?a=2&b=3 HTTP/1.1\r\n";
    let post = "POST /sum HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let json = "13\r\n\r\n{\"a\":2,\"b\":3}";
    let chunks = "d\r\n{\"a\":2,\"b\":3}\r\n0\r\n\r\n";
    #[rustfmt::skip]
    let cases: Vec<(&str, String, u16, &str)> = vec![
        ("no host", format!("{get}\r\n"), 400, "host-invalid"),
        ("two hosts", format!("{get}host: x\r\nhost: y\r\n\r\n"), 400, "host-invalid"),
        ("one host twice", format!("{get}host: x\r\nhost: x\r\n\r\n"), 400, "host-invalid"),
        ("two hosts in HTTP/1.0", "GET /mine HTTP/1.0\r\nhost: x\r\nhost: y\r\n\r\n".into(), 400, "host-invalid"),
        ("two hosts in a line", format!("{get}host: x, y\r\n\r\n"), 400, "host-invalid"),
        ("a host with a user", format!("{get}host: a@x\r\n\r\n"), 400, "host-invalid"),
        ("a bare LF after the first line", "GET /mine HTTP/1.1\nhost: x\r\n\r\n".into(), 400, "malformed-request"),
        ("a bare LF after a header", format!("{get}host: x\n\r\n"), 400, "malformed-request"),
        ("a bare LF at the end", format!("{get}host: x\r\n\n"), 400, "malformed-request"),
        ("a bare CR in a header", format!("{get}host: x\ry: z\r\n\r\n"), 400, "malformed-request"),
        ("a NUL in a header", format!("{get}host: x\r\ny: \0\r\n\r\n"), 400, "malformed-request"),
        ("a folded header", format!("{get}host: x\r\ny: z\r\n  z\r\n\r\n"), 400, "malformed-request"),
        ("a space before the colon", format!("{get}host : x\r\n\r\n"), 400, "malformed-request"),
        ("a header without a name", format!("{get}host: x\r\n: y\r\n\r\n"), 400, "malformed-request"),
        ("two tokens", format!("{get}host: x\r\nauthorization: a\r\nauthorization: b\r\n\r\n"), 400, "header-repeated"),
        ("two content types", format!("{post}content-type: text/plain\r\ncontent-length: {json}"), 400, "header-repeated"),
        ("two lengths", format!("{post}content-length: 12\r\ncontent-length: {json}"), 400, "malformed-request"),
        ("one length twice", format!("{post}content-length: 13\r\ncontent-length: {json}"), 400, "malformed-request"),
        ("a length that is no number", format!("{post}content-length: +{json}"), 400, "malformed-request"),
        ("a length beside chunks", format!("{post}content-length: 13\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"), 400, "malformed-request"),
        ("chunks beside a length", format!("{post}transfer-encoding: chunked\r\ncontent-length: 13\r\n\r\n{chunks}"), 400, "malformed-request"),
        ("chunks in HTTP/1.0", format!("POST /sum HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"), 400, "malformed-request"),
        ("an encoding that is not known", format!("{post}transfer-encoding: gzip, chunked\r\n\r\n{chunks}"), 501, "transfer-encoding-unknown"),
        ("chunks with a bare LF", format!("{post}transfer-encoding: chunked\r\n\r\nd\n{{\"a\":2,\"b\":3}}\r\n0\r\n\r\n"), 400, "body-incomplete"),
        ("a length of 2^63", format!("{post}content-length: 9223372036854775808\r\n\r\n"), 413, "body-too-large"),
        ("a length of 2^64", format!("{post}content-length: 18446744073709551616\r\n\r\n"), 413, "body-too-large"),
        ("a length of 2^63 - 1", format!("{post}content-length: 9223372036854775807\r\n\r\n"), 413, "body-too-large"),
    ];
    let last = "GET /empty HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for (what, bytes, status, name) in cases {
        eprintln!("{what}"); // shown if it fails
        let mut answer = running.exchange(format!("{bytes}{last}"));
        // A valid request after a merely ambiguous request is answered; after any other bad request
        // it is not.
        if let Some(next) = answer.body.find("HTTP/1.1 204") {
            assert!(matches!(name, "host-invalid" | "header-repeated"), "{answer:?}");
            assert_eq!(Answer::parse(&answer.body[next..]).status, 204);
            answer.body.truncate(next);
        }
        answer.is_problem(status, name);
    }
    for sound in [
        "GET http://other/sum?a=2&b=3 HTTP/1.1\r\nhost: x:80\r\nconnection: close\r\n\r\n",
        "GET /sum?a=2&b=3 HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n",
        "\r\nGET /sum?a=2&b=3 HTTP/1.1\r\nhost: [::1]:80\r\nconnection: close\r\n\r\n",
        "GET /sum?a=2&b=3 HTTP/1.0\r\n\r\n",
        "POST /sum HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\nd \r\n{\"a\":2,\"b\":3}\r\n0 ;last\r\n\r\n",
    ] {
        let answer = running.exchange(sound);
        assert_eq!((answer.status, answer.body.as_str()), (200, "5"), "{sound:?}");
    }
}

#[test]
fn a_head_has_32_kib_and_100_lines_and_no_more() {
    let running = Running::start(Limits::default());
    let head = |bytes: usize| {
        let start = "GET /sum?a=2&b=3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: ";
        format!("{start}{}\r\n\r\n", "y".repeat(bytes - start.len() - 4))
    };
    assert_eq!(head(32 * 1024).len(), 32 * 1024);
    assert_eq!(running.exchange(head(32 * 1024)).body, "5");
    running.exchange(head(32 * 1024 + 1)).is_problem(431, "head-too-large");
    let lines = |lines: usize| {
        let start = "GET /sum?a=2&b=3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
        format!("{start}{}\r\n", "x: y\r\n".repeat(lines - 2))
    };
    assert_eq!(running.exchange(lines(100)).body, "5");
    running.exchange(lines(101)).is_problem(431, "head-too-large");

    let running = Running::start(Limits { head_bytes_max: 100, ..Limits::default() });
    assert_eq!(running.exchange(head(100)).body, "5");
    running.exchange(head(101)).is_problem(431, "head-too-large");
}

#[test]
fn a_bad_head_behind_a_request_in_flight_does_not_abort_its_answer() {
    let running = Running::start(Limits::default());
    let mut stream = running.connect();
    stream.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\nGET /mine HTTP/1.1\n\n").unwrap();
    running.hold.wait_until_inside();
    running.hold.release.add_permits(1);
    let both = Answer::read(stream);
    assert_eq!(both.status, 200, "{both:?}");
    let second = both.body.find("HTTP/1.1").map(|at| Answer::parse(&both.body[at..]));
    second.expect("a second answer").is_problem(400, "malformed-request");
}

#[test]
fn no_answer_follows_the_last_answer() {
    let requests = [
        "GET /held HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "GET /held HTTP/1.0\r\n\r\n",
    ];
    for request in requests {
        let running = Running::start(Limits::default());
        let mut stream = running.connect();
        stream.write_all(format!("{request}GET /mine HTTP/1.1\n\n").as_bytes()).unwrap();
        running.hold.wait_until_inside();
        running.hold.release.add_permits(1);
        let answer = Answer::read(stream);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{answer:?}");
    }
}

#[test]
fn a_handler_learns_the_address_of_its_client() {
    let running = Running::start(Limits::default());
    assert_eq!(running.get("/address").body, "127.0.0.1");
}

#[test]
fn a_body_beyond_the_limit_is_refused_however_it_is_sent() {
    let limits = Limits { body_bytes_max: 1000, ..Limits::default() };
    let running = Running::start(limits);
    let fitting = format!(r#"{{"a":2,"b":3{}}}"#, " ".repeat(1000 - 13));
    assert_eq!(fitting.len(), 1000);
    assert_eq!(running.post("application/json", &fitting).body, "5");
    running.post("application/json", &" ".repeat(1001)).is_problem(413, "body-too-large");
    running.post("application/json", &" ".repeat(3 << 20)).is_problem(413, "body-too-large");

    let head = "POST /sum HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{}\r\n", 600, " ".repeat(600));
    running.exchange(format!("{head}{chunk}{chunk}0\r\n\r\n")).is_problem(413, "body-too-large");
}

#[test]
fn a_client_that_is_refused_while_it_sends_still_gets_the_answer() {
    let running = Running::start(Limits::default());
    let mut stream = running.connect();
    let head = "POST /sum HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[b'x'; 100_000]).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    // The answer is on its way; a server that closed at once would answer these bytes with a reset.
    stream.write_all(&[b'x'; 100_000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("urn:throng:problem:body-too-large"), "{rest}");
}

#[test]
fn an_answer_to_an_unread_body_says_that_the_connection_ends() {
    let running = Running::start(Limits::default());
    let head = "POST /sum HTTP/1.1\r\nhost: x\r\ncontent-type: ";
    // 415 is answered without reading the body.
    let unread = running.exchange(format!("{head}text/plain\r\ncontent-length: 5\r\n\r\n"));
    unread.is_problem(415, "wrong-content-type");
    assert!(unread.head.contains("\r\nconnection: close"), "{unread:?}");
    let huge = running.exchange(format!("{head}text/plain\r\ncontent-length: 99999\r\n\r\n"));
    huge.is_problem(413, "body-too-large");
    assert!(huge.head.contains("\r\nconnection: close"), "{huge:?}");

    // 400 is answered after reading the body, so the connection stays open.
    let bad = format!("{head}application/json\r\ncontent-length: 1\r\n\r\n{{");
    let good = "GET /sum?a=2&b=3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let both = running.exchange(format!("{bad}{good}"));
    assert_eq!(both.status, 400);
    assert!(!both.head.contains("\r\nconnection: close"), "{both:?}");
    assert!(both.body.contains("HTTP/1.1 200") && both.body.ends_with("\r\n\r\n5"), "{both:?}");
}

#[test]
fn a_token_is_required_and_checked() {
    let running = Running::start(Limits::default());
    let me = |authorization: &str| {
        running.exchange(format!(
            "GET /me HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: {authorization}\r\n\r\n"
        ))
    };
    let ours = Signer::from_key([1; 32]);
    let theirs = Signer::from_key([2; 32]);
    let minute = Duration::from_secs(60);
    assert_eq!(me(&format!("Bearer {}", ours.issue_token("alice", minute).0)).body, "alice");

    let missing = running.get("/me");
    missing.is_problem(401, "token-missing");
    let malformed = me("Bearer what");
    malformed.is_problem(401, "token-malformed");
    let forged = me(&format!("Bearer {}", theirs.issue_token("alice", minute).0));
    forged.is_problem(401, "token-forged");
    let expired = me(&format!("Bearer {}", ours.issue_token("alice", Duration::ZERO).0));
    expired.is_problem(401, "token-expired");
    let basic = me("Basic YTpi");
    basic.is_problem(401, "token-malformed");
    for answer in [missing, malformed, forged, expired, basic] {
        assert!(answer.head.contains("\r\nwww-authenticate: bearer"), "{answer:?}");
    }
}

#[test]
fn a_head_that_never_comes_gets_a_408() {
    let limits = Limits { header_timeout: Duration::from_millis(100), ..Limits::default() };
    let running = Running::start(limits);
    running.exchange("GET /sum HTTP/1.1\r\nhost: x\r\nx-slow:").is_problem(408, "head-timeout");
    running.exchange("").is_problem(408, "head-timeout");

    // On a connection that was used before, silence is not an error: it is closed without an
    // answer.
    let mut used = running.connect();
    used.write_all(b"GET /sum?a=2&b=3 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let answer = Answer::read(used);
    assert_eq!((answer.status, answer.body.as_str()), (200, "5"));

    // A second head that stops half-way is an error.
    let two = running.exchange("GET /mine HTTP/1.1\r\nhost: x\r\n\r\nGET /mine HTT");
    let second = two.body.find("HTTP/1.1").map(|at| Answer::parse(&two.body[at..]));
    second.expect("a second answer").is_problem(408, "head-timeout");
}

#[test]
fn bytes_that_are_not_http_get_a_400() {
    let running = Running::start(Limits::default());
    running.exchange("hello, who is there?\r\n\r\n").is_problem(400, "malformed-request");
    running.exchange(b"\x16\x03\x01\x02\x00\x01").is_problem(400, "malformed-request");
    let head = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    running.exchange(head).is_problem(431, "head-too-large");

    // The same holds after valid requests, with and without bodies in request and response.
    for good in [
        "GET /sum?a=2&b=3 HTTP/1.1\r\nhost: x\r\n\r\n",
        "HEAD /sum?a=2&b=3 HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /empty HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST /sum HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"a\":2,\"b\":3}",
    ] {
        let both = running.exchange(format!("{good}hello, who is there?\r\n\r\n"));
        assert_eq!(both.status / 100, 2, "{both:?}");
        let second = both.body.find("HTTP/1.1").map(|at| Answer::parse(&both.body[at..]));
        second.expect("a second answer").is_problem(400, "malformed-request");
    }
}

#[test]
fn a_request_that_takes_too_long_is_given_up() {
    let limits = Limits { request_timeout: Duration::from_millis(100), ..Limits::default() };
    let running = Running::start(limits);
    running.get("/never").is_problem(503, "request-timeout");
    let unsent = "POST /sum HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{";
    let unsent = running.exchange(unsent);
    unsent.is_problem(408, "body-timeout");
    assert!(unsent.head.contains("\r\nconnection: close"), "{unsent:?}");
    // A handler that does not read the body does not wait for it.
    let unasked =
        "POST /never HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 10\r\n\r\n{";
    running.exchange(unasked).is_problem(503, "request-timeout");
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let limits = Limits { request_timeout: Duration::from_millis(100), ..Limits::default() };
    let running = Running::start(limits);
    let mut stream = running.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    // The drain waits for this connection; without the stall timeout it would have to cut it.
    assert_eq!(running.drain(), Drained { cut: 0 });
}

#[test]
fn a_client_that_reads_but_never_ends_is_cut() {
    let limits = Limits { answer_timeout: Duration::from_millis(100), ..Limits::default() };
    let running = Running::start(limits);
    let mut stream = running.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let reader = thread::spawn({
        let done = done.clone();
        move || {
            // At this pace the answer takes longer than the drain waits.
            while !done.load(Ordering::SeqCst) && stream.read(&mut [0; 2048]).is_ok_and(|n| n > 0) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert_eq!(running.drain(), Drained { cut: 0 });
    done.store(true, Ordering::SeqCst);
    reader.join().unwrap();
}

#[test]
fn a_connection_beyond_the_maximum_gets_a_503() {
    let running = Running::start(Limits { connections_max: 2, ..Limits::default() });
    let held: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = running.connect();
            stream.write_all(b"GET /sum?a=2&b=3 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let mut answered = [0; 12];
            stream.read_exact(&mut answered).unwrap();
            assert_eq!(&answered, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let refused = running.get("/sum?a=2&b=3");
    refused.is_problem(503, "too-many-connections");
    assert!(refused.head.contains("\r\nretry-after: 1"), "{refused:?}");
    drop(held);
    // The server notices the closed connections at some later time.
    let free = (0..3000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        running.get("/sum?a=2&b=3").status == 200
    });
    assert!(free);
}

#[test]
fn every_answer_is_counted_by_the_route_and_the_class_of_its_status() {
    let start = |limits| {
        let hold = Hold { inside: Arc::default(), release: Arc::new(Semaphore::new(0)) };
        let (runtime, server) = crate::support::bind(limits);
        let answers = server.answers().clone();
        let serving = server.start(router(hold.clone()), runtime.handle());
        (Running { address: serving.address(), runtime, serving, hold }, answers)
    };
    let (running, answers) = start(Limits::default());
    for (path, status) in
        [("/sum?a=2&b=3", 200), ("/sum?a=x", 400), ("/panic", 500), ("/a/path", 404), ("/b", 404)]
    {
        assert_eq!(running.get(path).status, status, "{path}");
    }
    assert_eq!(running.exchange("no request\r\n\r\n").status, 400);
    let expected = [("", [0, 0, 0, 3, 0]), ("/panic", [0, 0, 0, 0, 1]), ("/sum", [0, 1, 0, 1, 0])];
    assert_eq!(answers.counts(), expected.map(|(route, counts)| (route.to_owned(), counts)));

    let (running, answers) =
        start(Limits { request_timeout: Duration::from_millis(1), ..Limits::default() });
    assert_eq!(running.get("/never").status, 503);
    assert_eq!(answers.counts(), [("/never".to_owned(), [0, 0, 0, 0, 1])]);
}

#[test]
fn open_connections_are_counted() {
    let hold = Hold { inside: Arc::default(), release: Arc::new(Semaphore::new(0)) };
    let (runtime, server) = crate::support::bind(Limits::default());
    let connections = server.connections().clone();
    let serving = server.start(router(hold.clone()), runtime.handle());
    let running = Running { address: serving.address(), runtime, serving, hold };
    let wait_for = |open| {
        while connections.open() != open {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let held: Vec<TcpStream> = (0..3).map(|_| running.connect()).collect();
    wait_for(3);
    drop(held);
    wait_for(0);
    let _held = running.connect();
    wait_for(1);
    let _ = running.drain();
    assert_eq!(connections.open(), 0);
}

#[test]
fn a_drain_finishes_requests_in_flight_and_closes_idle_connections() {
    let running = Running::start(Limits::default());
    let mut idle = running.connect();
    idle.write_all(b"GET /mine HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut begun = [0; 12];
    idle.read_exact(&mut begun).unwrap();
    let mut busy = running.connect();
    busy.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    running.hold.wait_until_inside();
    let Running { address, runtime, serving, hold } = running;
    let draining = runtime.spawn(serving.drain());
    // No connection is accepted while the request in flight is still held.
    while TcpStream::connect(address).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!draining.is_finished());
    hold.release.add_permits(1);
    assert_eq!(Answer::read(busy).status, 200);
    assert_eq!(runtime.block_on(draining).unwrap(), Drained { cut: 0 });
}

#[test]
fn a_drain_cuts_requests_that_do_not_end() {
    let limits = Limits { drain_timeout: Duration::from_millis(100), ..Limits::default() };
    let running = Running::start(limits);
    let mut busy = running.connect();
    busy.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    running.hold.wait_until_inside();
    assert_eq!(running.drain(), Drained { cut: 1 });
}
