//! A server with TLS: handshakes, files that change or cannot be used, sockets, slow clients, the drain.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Answer, PATIENCE, connect};
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use futures_util::StreamExt;
use throng_node::http::{Drained, Limits, Server, Serving, SocketUpgrade, Sockets, Tls, TlsError};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use tungstenite::Message;

/// Files of a server in a directory of their own, as `tls/make.sh` makes them.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    /// Copies the certificate and the key of a name.
    fn of(name: &str) -> Files {
        let files = Files { directory: tempfile::tempdir().unwrap() };
        files.put(name, name);
        files
    }

    fn certificate(&self) -> PathBuf {
        self.directory.path().join("chain.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    /// Replaces the files by the certificate and the key of these names.
    fn put(&self, certificate: &str, key: &str) {
        fs::copy(made(&format!("{certificate}.pem")), self.certificate()).unwrap();
        fs::copy(made(&format!("{key}.key")), self.key()).unwrap();
        fs::set_permissions(self.key(), Permissions::from_mode(0o600)).unwrap();
    }

    fn load(&self) -> Result<Tls, TlsError> {
        Tls::load(&self.certificate(), &self.key())
    }
}

fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

struct Running {
    runtime: Runtime,
    serving: Option<Serving>,
    address: SocketAddr,
}

impl Running {
    fn start(tls: Tls, limits: Limits) -> Running {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = runtime.block_on(Server::bind(any, limits)).unwrap().with_tls(tls);
        let serving = server.start(router(), runtime.handle());
        let address = serving.address();
        Running { runtime, serving: Some(serving), address }
    }

    fn client(&self) -> Client {
        self.client_with(&[&TLS13, &TLS12], &[b"h2", b"http/1.1"])
    }

    fn client_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&[u8]],
    ) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(made("root.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        Client(StreamOwned::new(connection, connect(self.address)))
    }

    fn drain(&mut self) -> Drained {
        self.runtime.block_on(self.serving.take().unwrap().drain())
    }
}

struct Client(StreamOwned<ClientConnection, TcpStream>);

impl Client {
    /// Does the handshake and returns the certificate of the server.
    fn certificate(&mut self) -> CertificateDer<'static> {
        self.0.conn.complete_io(&mut self.0.sock).unwrap();
        self.0.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }

    /// Sends a request that is the last one, and reads its answer.
    fn last(mut self, path: &str, host: &str) -> Answer {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        self.0.write_all(request.as_bytes()).unwrap();
        let mut all = String::new();
        // The end is a close of TLS; a connection that was cut would be an error.
        self.0.read_to_string(&mut all).unwrap();
        Answer::parse(&all)
    }
}

fn router() -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .route("/large", get(async || "x".repeat(64 << 20)))
        .route("/medium", get(async || "x".repeat(30_000)))
        .route("/socket", get(echo))
        .with_state(Sockets::default())
}

async fn echo(upgrade: SocketUpgrade) -> Response {
    let (response, mut inbox, outbox) = upgrade.accept();
    tokio::spawn(async move {
        while let Some(Ok(message)) = inbox.next().await {
            let _ = outbox.send(message);
        }
    });
    response
}

fn first_of(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(made(&format!("{name}.pem"))).unwrap()
}

#[test]
fn keys_of_every_form_serve_both_versions() {
    for name in ["ec", "rsa", "ed25519"] {
        let mut running = Running::start(Files::of(name).load().unwrap(), Limits::default());
        for version in [&TLS12, &TLS13] {
            let mut client = running.client_with(&[version], &[b"h2", b"http/1.1"]);
            assert_eq!(client.certificate(), first_of(name));
            assert_eq!(client.0.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(client.0.conn.protocol_version(), Some(version.version));
            let answer = client.last("/", "node.example");
            assert_eq!((answer.status, &*answer.body), (200, "hello"));
            assert!(answer.head.contains("\r\nstrict-transport-security: max-age="), "{answer:?}");
        }
        // A client without ALPN gets HTTP/1.1, too. The machine itself has other programs on other ports.
        let answer = running.client_with(&[&TLS13], &[]).last("/", "localhost:7070");
        assert!(answer.status == 200 && !answer.head.contains("strict-transport"), "{answer:?}");
        // A client that speaks nothing but HTTP/2 gets an alert.
        let mut client = running.client_with(&[&TLS13], &[b"h2"]);
        let error = client.0.conn.complete_io(&mut client.0.sock).unwrap_err();
        assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
        assert_eq!(running.drain(), Drained { cut: 0 });
    }
}

#[test]
fn a_reload_gives_new_connections_the_new_certificate_and_keeps_old_ones() {
    let files = Files::of("ec");
    let tls = files.load().unwrap();
    let running = Running::start(tls.clone(), Limits::default());
    let mut old = running.client();
    assert_eq!(old.certificate(), first_of("ec"));
    files.put("rsa", "rsa");
    assert_eq!(running.client().certificate(), first_of("ec"), "nothing was reloaded yet");
    tls.reload().unwrap();
    assert_eq!(running.client().certificate(), first_of("rsa"));
    assert_eq!(old.last("/", "x").status, 200);

    // Files that cannot be used change nothing.
    for (certificate, key) in [("ec", "rsa"), ("expired", "ec")] {
        files.put(certificate, key);
        tls.reload().unwrap_err();
        assert_eq!(running.client().certificate(), first_of("rsa"), "{certificate} {key}");
    }
    fs::remove_file(files.key()).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::File { .. })));
    assert_eq!(running.client().last("/", "x").status, 200);
}

#[test]
fn files_that_cannot_be_used_are_explained() {
    let files = Files::of("ec");
    let (certificate, key) = (files.certificate(), files.key());
    let error = |files: &Files| files.load().unwrap_err().to_string();

    files.put("ec", "rsa");
    assert!(matches!(files.load(), Err(TlsError::Unmatched { .. })), "{:?}", files.load());
    assert!(error(&files).contains("chain.pem") && error(&files).contains("key.pem"));

    files.put("ec", "ec");
    for (mode, is_exposed) in [(0o604, true), (0o602, true), (0o640, false), (0o400, false)] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let loaded = files.load();
        let exposed = matches!(loaded, Err(TlsError::Exposed { .. }));
        assert!(exposed == is_exposed && loaded.is_err() == is_exposed, "{mode:o} {loaded:?}");
    }
    files.put("ec", "ec");

    let text = fs::read_to_string(&key).unwrap();
    for (content, expected) in [
        (String::new(), "key.pem has no private key"),
        (fs::read_to_string(&certificate).unwrap(), "key.pem has no private key"),
        (text.replace("EC PRIVATE", "ENCRYPTED PRIVATE"), "key.pem has no private key"),
        (text.replacen('M', "!", 1), "key.pem cannot be used"),
        (text[..text.len() - 20].to_owned(), "key.pem cannot be used"),
        (text.replacen("MHcCAQEE", "MHcCAQEF", 1), "key.pem cannot be used"),
    ] {
        fs::write(&key, &content).unwrap();
        assert!(error(&files).contains(expected), "{content} {}", error(&files));
    }
    files.put("ec", "ec");

    let text = fs::read_to_string(&certificate).unwrap();
    for (content, expected) in [
        (String::new(), "chain.pem has no certificate"),
        (fs::read_to_string(&key).unwrap(), "chain.pem has no certificate"),
        (text.replacen("MII", "!!!", 1), "chain.pem cannot be used"),
        (text.replacen("MII", "AAA", 1), "chain.pem cannot be used"),
    ] {
        fs::write(&certificate, &content).unwrap();
        assert!(error(&files).contains(expected), "{content} {}", error(&files));
    }
    fs::remove_file(&certificate).unwrap();
    assert!(matches!(files.load(), Err(TlsError::File { .. })));

    // A node with an expired certificate starts; a reload takes no such certificate.
    files.put("expired", "ec");
    let tls = files.load().unwrap();
    let error = tls.reload().unwrap_err();
    assert!(error.to_string().contains("expired") && error.to_string().contains("days ago"));
}

#[test]
fn http_without_tls_gets_a_problem() {
    let running = Running::start(Files::of("ec").load().unwrap(), Limits::default());
    let mut stream = connect(running.address);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    Answer::read(stream).is_problem(400, "tls-required");
    // A client that says nothing and leaves is no error.
    drop(connect(running.address));
    assert_eq!(running.client().last("/", "x").status, 200);
}

#[test]
fn a_handshake_takes_a_place_and_must_end_in_time() {
    let limits = || Limits { connections_max: 1, ..Limits::default() };
    let running = Running::start(Files::of("ec").load().unwrap(), limits());
    let silent = connect(running.address);
    // The refusal is as secure as an answer.
    running.client().last("/", "x").is_problem(503, "too-many-connections");
    drop(silent);

    let limits = Limits { header_timeout: Duration::from_millis(200), ..limits() };
    let running = Running::start(Files::of("ec").load().unwrap(), limits);
    for begun in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"] {
        let mut slow = connect(running.address);
        slow.write_all(begun).unwrap();
        // The server closes the connection; a read that took longer than PATIENCE would be another error.
        match slow.read(&mut [0; 64]) {
            Ok(bytes) => assert_eq!(bytes, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    assert_eq!(running.client().last("/", "x").status, 200);
}

#[test]
fn only_a_secure_page_of_the_server_opens_a_socket() {
    let running = Running::start(Files::of("ec").load().unwrap(), Limits::default());
    let port = running.address.port();
    let open = |origin: &str| {
        let request = tungstenite::http::Request::builder()
            .uri(format!("wss://localhost:{port}/socket"))
            .header("host", format!("localhost:{port}"))
            .header("origin", origin)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
        tungstenite::client(request.body(()).unwrap(), running.client().0).ok()
    };
    for foreign in [
        format!("http://localhost:{port}"),
        "https://localhost".to_owned(),
        "https://evil.example".to_owned(),
    ] {
        assert!(open(&foreign).is_none(), "{foreign}");
    }
    let (mut socket, _) = open(&format!("https://localhost:{port}")).unwrap();
    for bytes in [1, 1000, 60_000] {
        let text = "x".repeat(bytes);
        socket.send(Message::text(&text)).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text(&text));
    }
}

#[test]
fn a_drain_ends_handshakes_requests_and_sockets() {
    let mut running = Running::start(Files::of("ec").load().unwrap(), Limits::default());
    let silent = connect(running.address);
    let mut idle = running.client();
    idle.0.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    idle.0.read_exact(&mut [0; 12]).unwrap();
    let url = format!("wss://localhost:{}/socket", running.address.port());
    let (mut socket, _) = tungstenite::client(url, running.client().0).unwrap();
    let closed = std::thread::spawn(move || {
        let read = socket.read();
        let _ = socket.flush();
        read
    });
    assert_eq!(running.drain(), Drained { cut: 0 });
    let Ok(Message::Close(Some(frame))) = closed.join().unwrap() else { panic!("no close frame") };
    assert_eq!(u16::from(frame.code), 1012);
    drop(silent);
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    // The end of a large answer waits in the socket, and small ones wait in the buffer of TLS.
    for requests in [
        b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"GET /medium HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2000),
    ] {
        let limits = Limits { request_timeout: Duration::from_millis(100), ..Limits::default() };
        let mut running = Running::start(Files::of("ec").load().unwrap(), limits);
        let mut client = running.client();
        client.0.sock.set_write_timeout(Some(PATIENCE)).unwrap();
        // The server may cut the connection before it has read all requests.
        let _ = client.0.write_all(&requests);
        let _ = client.0.read_exact(&mut [0; 12]);
        // The drain waits for this connection; without the stall timeout it would have to cut it.
        assert_eq!(running.drain(), Drained { cut: 0 });
    }
}
