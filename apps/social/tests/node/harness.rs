//! A node as a child process, and its clients.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Running node; killed when dropped.
pub(crate) struct Node {
    child: Child,
    /// Address, such as `127.0.0.1:40123`.
    pub(crate) address: String,
    /// Standard output until the node served.
    pub(crate) greeting: String,
    /// Standard error so far.
    errors: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
    /// Directory of its own, if it has one.
    data: Option<TempDir>,
}

/// Outcome of a node.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) errors: String,
}

impl Node {
    /// Starts a node on `data` and a free port, and waits until it serves.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Node {
        let mut command = serve(data, &["--listen", "127.0.0.1:0"]);
        command.args(flags);
        Node::spawn(command)
    }

    /// Starts a node on a directory of its own.
    pub(crate) fn fresh(flags: &[&str]) -> Node {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(data.path(), flags);
        node.data = Some(data);
        node
    }

    /// Starts a node on a directory of its own, and returns a client, too.
    pub(crate) fn with_client(flags: &[&str]) -> (Node, Client) {
        let node = Node::fresh(flags);
        let client = node.client();
        (node, client)
    }

    /// Starts a node by `command`, and waits until it serves.
    pub(crate) fn spawn(mut command: Command) -> Node {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listener = thread::spawn({
            let errors = errors.clone();
            move || {
                for line in lines.map_while(Result::ok) {
                    errors.lock().unwrap().push_str(&(line + "\n"));
                }
            }
        });
        let mut greeting = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        // The last line that a node prints when it serves.
        while !greeting.ends_with("Ctrl-C\n") {
            if lines.read_line(&mut greeting).unwrap() == 0 {
                listener.join().unwrap();
                panic!("the node did not start: {greeting}{}", errors.lock().unwrap());
            }
        }
        let address = greeting.split("://").nth(1).unwrap().split('/').next().unwrap();
        Node {
            address: address.to_owned(),
            child,
            greeting,
            errors,
            listener: Some(listener),
            data: None,
        }
    }

    /// Returns the URL of the page.
    pub(crate) fn url(&self) -> &str {
        self.greeting.lines().next().unwrap().strip_prefix("serving ").unwrap()
    }

    /// Returns the URL of the dashboard that the node has printed, with the token if it was drawn at this start.
    pub(crate) fn dashboard(&self) -> String {
        let rest = self.greeting.split("dashboard at ").nth(1).unwrap();
        rest.split([',', '\n']).next().unwrap().to_owned()
    }

    /// Returns a client of this node, with its own connection.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address)
    }

    /// Returns the process id of the node.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns a size of memory in bytes that the system tells of the node, such as `VmRSS`.
    pub(crate) fn memory_bytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Waits until the node has written `text` to standard error.
    pub(crate) async fn wait_until_said(&self, text: &str) {
        for _ in 0..30_000 {
            if self.errors.lock().unwrap().contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("the node never said {text:?}");
    }

    /// Sends a signal by name, such as `INT`.
    pub(crate) async fn signal(&self, signal: &str) {
        let command = format!("kill -{signal} {}", self.child.id());
        let sent = tokio::process::Command::new("sh").args(["-c", &command]).status().await;
        assert!(sent.unwrap().success());
    }

    /// Waits for the node's end.
    pub(crate) fn wait(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        self.listener.take().unwrap().join().unwrap();
        Ended { status, errors: self.errors.lock().unwrap().clone() }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the node said: {}", self.errors.lock().unwrap());
        }
    }
}

/// Builds the command that serves `data` with `flags`. A busy machine may take a worker off its
/// core for so long that its turn is reported; tests ignore such reports.
pub(crate) fn serve(data: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
    command.args(["--log", "warn,throng::watch=off", "serve", "--data"]).arg(data).args(flags);
    command
}

/// HTTP client that uses one connection at a time.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
}

/// Response with its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Null if there was no body.
    pub(crate) body: Value,
}

impl Client {
    pub(crate) fn new(address: &str) -> Client {
        Client::from("127.0.0.1", address)
    }

    /// Creates a client with the local address `from`.
    pub(crate) fn from(from: &str, address: &str) -> Client {
        let http = reqwest::Client::builder().local_address(from.parse::<IpAddr>().unwrap());
        let http = http.pool_max_idle_per_host(1).build().unwrap();
        Client { http, base: format!("http://{address}") }
    }

    /// Starts to build a request.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answer {
        send(self.request(Method::GET, path).bearer_auth(token)).await.unwrap()
    }

    pub(crate) async fn put(&self, path: &str, token: &str) -> Answer {
        send(self.request(Method::PUT, path).bearer_auth(token)).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str, token: &str) -> Answer {
        send(self.request(Method::DELETE, path).bearer_auth(token)).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: &Value) -> Answer {
        send(self.request(Method::POST, path).bearer_auth(token).json(body)).await.unwrap()
    }

    /// Registers a user, and returns the token.
    pub(crate) async fn register(&self, name: &str) -> String {
        let body = json!({ "name": name, "password": PASSWORD });
        let answer = send(self.request(Method::POST, "/api/v1/users").json(&body)).await.unwrap();
        let token = answer.token();
        assert_eq!(answer.body["name"], name);
        token
    }

    pub(crate) async fn log_in(&self, name: &str, password: &str) -> Answer {
        let body = json!({ "name": name, "password": password });
        send(self.request(Method::POST, "/api/v1/sessions").json(&body)).await.unwrap()
    }

    /// Publishes a post, and returns its id.
    pub(crate) async fn publish(&self, token: &str, text: &str) -> String {
        let posted = self.post("/api/v1/posts", token, &json!({ "text": text })).await;
        assert_eq!(posted.status, 201, "{posted:?}");
        posted.body["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn upgrade(&self) -> reqwest::RequestBuilder {
        let request = self.request(Method::GET, "/api/v1/socket");
        let request = request.header("connection", "upgrade").header("upgrade", "websocket");
        let request = request.header("sec-websocket-version", "13");
        request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
    }

    /// Returns a value of `/metrics`, if the node can tell it.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let metrics = self.request(Method::GET, "/metrics").send().await.unwrap();
        metric(&metrics.text().await.unwrap(), name)
    }

    pub(crate) async fn assert_healthy(&self) {
        let health = send(self.request(Method::GET, "/api/v1/health")).await.unwrap();
        assert_eq!(health.status, 200, "{health:?}");
        assert_eq!(health.body["status"], "ok");
        assert!(health.body["processes"].as_u64() <= health.body["process_limit"].as_u64());
    }
}

pub(crate) async fn until(is_so: impl AsyncFn() -> bool) {
    for _ in 0..6_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was never so");
}

/// Returns a value of a text of metrics, if it is there.
pub(crate) fn metric(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

/// Password of all users in these tests.
pub(crate) const PASSWORD: &str = "correct horse";

/// Sends a request and reads the response; fails if the node stopped meanwhile.
pub(crate) async fn send(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let body = response.bytes().await?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Ok(Answer { status, headers, body })
}

impl Answer {
    /// Returns the token of a new session.
    #[track_caller]
    pub(crate) fn token(&self) -> String {
        assert_eq!(self.status, 201, "{self:?}");
        self.body["token"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, name: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        assert_eq!(self.headers["cache-control"], "no-store", "{self:?}");
        assert_eq!(self.body["type"], format!("urn:throng:problem:{name}"), "{self:?}");
        assert_eq!(self.body["status"], status, "{self:?}");
        assert!(self.body["title"].as_str().is_some_and(|title| !title.is_empty()), "{self:?}");
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
    }
}
