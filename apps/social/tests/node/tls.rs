//! A node with TLS: requests and sockets, a certificate that is renewed, files that cannot be used.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tungstenite::Message;

use crate::config::with;
use crate::harness::{Node, PASSWORD, serve};
use crate::sockets::PATIENCE;

/// Stream of a client that trusts the root of the tests alone.
type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Returns the path of a file that `make.sh` has made for the tests of the server.
pub(crate) fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/throng-node/tests/tls").join(name)
}

/// Puts the certificate and the key of these names into `directory`.
fn put(directory: &Path, certificate: &str, key: &str) {
    fs::copy(made(&format!("{certificate}.pem")), directory.join("chain.pem")).unwrap();
    fs::copy(made(&format!("{key}.key")), directory.join("key.pem")).unwrap();
    fs::set_permissions(directory.join("key.pem"), Permissions::from_mode(0o600)).unwrap();
}

/// Returns the flags that name these files.
fn flags(directory: &Path) -> [String; 4] {
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    ["--tls-cert".to_owned(), path("chain.pem"), "--tls-key".to_owned(), path("key.pem")]
}

/// Starts a node with the certificate `ec` in `directory`.
pub(crate) fn start(directory: &Path) -> Node {
    put(directory, "ec", "ec");
    Node::start(&directory.join("data"), &flags(directory).each_ref().map(String::as_str))
}

fn connect(node: &Node) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(made("root.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let stream = TcpStream::connect(&node.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream =
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream);
    stream.conn.complete_io(&mut stream.sock).unwrap();
    stream
}

/// Returns whether a new connection gets the certificate of this name.
fn has_certificate(node: &Node, name: &str) -> bool {
    let expected = CertificateDer::from_pem_file(made(&format!("{name}.pem"))).unwrap();
    connect(node).conn.peer_certificates().unwrap()[0] == expected
}

/// Sends a request that is the last one of a connection, and returns the status and the body.
fn send(node: &Node, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut stream = connect(node);
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len(),
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn a_node_serves_with_tls_and_renews_its_certificate_at_sighup() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path());
    assert!(node.greeting.starts_with("serving https://"), "{}", node.greeting);

    let credentials = json!({ "name": "alice", "password": PASSWORD });
    let (status, session) = send(&node, "POST", "/api/v1/users", &credentials);
    assert_eq!(status, 201, "{session}");
    let url = format!("wss://localhost:{}/api/v1/socket", node.address.split(':').nth(1).unwrap());
    let (mut socket, _) = tungstenite::client(url, connect(&node)).unwrap();
    let hello = json!({ "type": "hello", "token": session["token"], "last": null });
    socket.send(Message::text(hello.to_string())).unwrap();
    let welcome = socket.read().unwrap().into_text().unwrap();
    assert!(welcome.contains("\"welcome\"") && welcome.contains("alice"), "{welcome}");

    // Files that cannot be used keep the certificate, and the reason is logged.
    put(directory.path(), "rsa", "ec");
    node.signal("HUP").await;
    node.wait_until_said("the old one stays").await;
    node.wait_until_said("does not belong to the first certificate").await;
    assert!(has_certificate(&node, "ec"));

    put(directory.path(), "rsa", "rsa");
    node.signal("HUP").await;
    while !has_certificate(&node, "rsa") {}

    // The socket of before lives on until the node drains.
    socket.send(Message::Ping("still there?".into())).unwrap();
    loop {
        if let Message::Pong(payload) = socket.read().unwrap() {
            assert_eq!(payload, "still there?");
            break;
        }
    }
    node.signal("INT").await;
    let code = loop {
        if let Message::Close(Some(close)) = socket.read().unwrap() {
            let _ = socket.flush();
            break u16::from(close.code);
        }
    };
    assert_eq!(code, 1012);
    drop(socket);
    assert_eq!(node.wait().status.code(), Some(0));
}

#[test]
fn a_node_does_not_start_with_files_that_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let failed = |flags: &[String], status: i32, expected: &[&str]| {
        let mut command = serve(&directory.path().join("data"), &["--listen", "127.0.0.1:0"]);
        let Output { status: ended, stderr, .. } = command.args(flags).output().unwrap();
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!(ended.code(), Some(status), "{errors}");
        assert!(expected.iter().all(|part| errors.contains(part)), "{errors}");
    };
    let flags = flags(directory.path());
    failed(&flags, 1, &["cannot serve with TLS: cannot read", "chain.pem"]);
    put(directory.path(), "ec", "rsa");
    failed(&flags, 1, &["key.pem does not belong to the first certificate in", "chain.pem"]);
    put(directory.path(), "ec", "ec");
    fs::set_permissions(directory.path().join("key.pem"), Permissions::from_mode(0o644)).unwrap();
    failed(&flags, 1, &["every user of this machine can access", "key.pem"]);
    assert!(!directory.path().join("data").exists(), "nothing was opened");
    failed(&flags[..2], 2, &["--tls-cert and --tls-key need each other"]);
    failed(&flags[2..], 2, &["--tls-cert and --tls-key need each other"]);
}

#[tokio::test]
async fn the_files_may_come_from_a_file_of_settings_and_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "ed25519", "ed25519");
    let [_, certificate, _, key] = flags(directory.path());
    let file = directory.path().join("throng.toml");
    let data = directory.path().join("data");
    let text = format!("listen = \"127.0.0.1:0\"\ndata = {data:?}\ntls-cert = {certificate:?}\n");
    fs::write(&file, text).unwrap();
    let mut command = with(Some(&file));
    command.env("THRONG_TLS_KEY", key);
    let node = Node::spawn(command);
    assert!(has_certificate(&node, "ed25519"));
    assert_eq!(send(&node, "GET", "/api/v1/health", &json!({})).0, 200);
}
