//! The dashboard's listener: its token, its hosts and origins, its socket.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;

use crate::harness::{Answer, Client, Node, metric, send, serve};
use crate::sockets::{Closed, Socket};

/// A node with a dashboard, at its first start.
struct Subject {
    node: Node,
    /// Address of the dashboard.
    address: String,
    token: String,
}

impl Subject {
    fn fresh() -> Subject {
        Subject::of(Node::fresh(&["--admin-listen", "127.0.0.1:0"]))
    }

    fn of(node: Node) -> Subject {
        let url = node.dashboard();
        let (address, token) = url.strip_prefix("http://").unwrap().split_once("/#token=").unwrap();
        Subject { address: address.to_owned(), token: token.to_owned(), node }
    }

    async fn get(&self, path: &str, token: &str) -> Answer {
        Client::new(&self.address).get(path, token).await
    }
}

/// Sockets of dashboards.
impl Socket {
    fn connect_dashboard(address: &str) -> Socket {
        Socket::connect_to(address, "/api/socket")
    }

    fn open_dashboard(address: &str, token: &str) -> Socket {
        let mut socket = Socket::connect_dashboard(address);
        socket.tell(&json!({ "type": "hello", "token": token }));
        assert_eq!(socket.next().unwrap()["type"], "welcome");
        socket
    }

    fn tell(&mut self, message: &Value) {
        self.say(&message.to_string());
    }

    fn sample(&mut self) -> Value {
        self.next_of("sample")["sample"].clone()
    }

    fn ask(&mut self, id: u64, mut request: Value) -> Value {
        request["type"] = json!("ask");
        request["id"] = json!(id);
        self.tell(&request);
        let answer = self.next_of("answer");
        assert_eq!(answer["id"], id);
        answer
    }
}

#[tokio::test]
async fn nothing_but_the_page_is_shown_without_the_token() {
    let subject = Subject::fresh();
    let client = Client::new(&subject.address);
    for path in ["/api/session", "/metrics", "/api/anything", "/api/v1/health", "/index.html"] {
        let answer = send(client.request(Method::GET, path)).await.unwrap();
        answer.is_problem(401, "token-missing");
        subject.get(path, "AAAA").await.is_problem(401, "admin-token-wrong");
    }
    assert_eq!(subject.get("/api/session", &subject.token).await.status, 204);
    subject.get("/api/anything", &subject.token).await.is_problem(404, "no-such-route");
    let metrics = client.request(Method::GET, "/metrics").bearer_auth(&subject.token);
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    assert!(
        metrics.contains("\nthrong_processes ")
            && metrics.contains("throng_store_checkpoints_total ")
    );

    let page = client.request(Method::GET, "/").send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    let html = page.text().await.unwrap();
    for inline in ["<style", "style=\"", "onclick", "<script>", "https:"] {
        assert!(!html.contains(inline), "the policy forbids {inline}");
    }
    let links = ["src=\"/", "href=\"/"].iter().flat_map(|attribute| html.split(attribute).skip(1));
    let links: Vec<&str> = links.map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(links.len() >= 3, "{links:?}");
    for link in links {
        let answer = client.request(Method::GET, &format!("/{link}")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{link}");
    }

    // The listener of the service has none of it, whatever the token.
    for path in ["/api/session", "/api/socket", "/main.js"] {
        let answer = subject.node.client().get(path, &subject.token).await;
        answer.is_problem(404, "no-such-route");
    }
    let home = subject.node.client().request(Method::GET, "/").send().await.unwrap();
    assert!(!home.text().await.unwrap().contains("dashboard"));
}

#[tokio::test]
async fn wrong_tokens_are_limited_by_address() {
    let subject = Subject::fresh();
    let mut answer = subject.get("/api/session", "guess").await;
    for _ in 0..1000 {
        if answer.status == 429 {
            break;
        }
        answer.is_problem(401, "admin-token-wrong");
        answer = subject.get("/api/session", "guess").await;
    }
    answer.is_problem(429, "too-many-attempts");
    let limited = answer;
    let wait: u64 = limited.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(wait >= 1);
    // Guesses over sockets count as well.
    let mut socket = Socket::connect_dashboard(&subject.address);
    let mut codes = Vec::new();
    for _ in 0..3 {
        socket.tell(&json!({ "type": "hello", "token": "guess" }));
        codes.push(socket.end().0);
        socket = Socket::connect_dashboard(&subject.address);
    }
    assert!(codes.contains(&Closed(4429)), "{codes:?}");
    let other = Client::from("127.0.0.2", &subject.address);
    assert_eq!(other.get("/api/session", &subject.token).await.status, 204);
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let subject = Subject::fresh();
    let client = Client::new(&subject.address);
    for path in ["/", "/api/session", "/api/socket"] {
        let request = client.request(Method::GET, path).bearer_auth(&subject.token);
        let answer = send(request.header("host", "evil.example")).await.unwrap();
        answer.is_problem(421, "host-refused");
    }
    let local = client.request(Method::GET, "/api/session").bearer_auth(&subject.token);
    assert_eq!(send(local.header("host", "localhost:9000")).await.unwrap().status, 204);

    for (origin, is_allowed) in [
        ("https://evil.example".to_owned(), false),
        (format!("http://{}", subject.node.address), false),
        (format!("http://{}", subject.address), true),
    ] {
        let url = format!("ws://{}/api/socket", subject.address);
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("origin", origin.parse().unwrap());
        let stream = TcpStream::connect(&subject.address).unwrap();
        assert_eq!(tungstenite::client(request, stream).is_ok(), is_allowed, "{origin}");
    }
}

#[tokio::test]
async fn dashboards_share_samples_that_agree_with_the_metrics() {
    let subject = Subject::fresh();
    subject.node.client().register("alice").await;
    let mut sockets = [(); 2].map(|()| Socket::open_dashboard(&subject.address, &subject.token));
    let mut samples = BTreeMap::new();
    let mut shared = 0;
    while shared < 2 {
        for socket in &mut sockets {
            let sample = socket.sample();
            let sequence = sample["sequence"].as_u64().unwrap();
            if let Some(other) = samples.insert(sequence, sample.clone()) {
                assert_eq!(other, sample, "one sampler for both");
                shared += 1;
            }
        }
    }
    // A node at rest changes by nothing but the requests for its metrics.
    let sample = loop {
        let [before, after] = [sockets[0].sample(), sockets[0].sample()];
        if before["durable"] == after["durable"]
            && before["metrics"]["spawned"] == after["metrics"]["spawned"]
        {
            break after;
        }
    };
    let metrics = subject.node.client().request(Method::GET, "/metrics").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for (name, value) in [
        ("throng_processes", &sample["metrics"]["processes"]),
        ("throng_processes_spawned_total", &sample["metrics"]["spawned"]),
        ("throng_mailbox_limit_bytes", &sample["metrics"]["mailbox_bytes_limit"]),
        ("throng_entities_live", &sample["durable"]["live"]),
        ("throng_entities_activated_total", &sample["durable"]["activations"]),
        ("throng_store_entries", &sample["durable"]["entries"]),
        ("throng_store_batches_total", &sample["durable"]["batches"]),
        ("throng_store_commits_total", &sample["durable"]["commits"]),
        ("throng_store_flush_seconds_total", &sample["durable"]["flush_seconds"]),
        ("throng_store_file_bytes", &sample["durable"]["file_bytes"]),
    ] {
        let scraped = metric(&metrics, name);
        assert!(scraped.is_some() && scraped == value.as_f64(), "{name}: {scraped:?}, {value}");
    }
    let requests =
        sample["requests"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap());
    assert_eq!(requests.sum::<u64>(), 1, "the registration");
    assert_eq!(sample["dashboards"], 2);
}

#[tokio::test]
async fn questions_are_answered_and_anything_else_closes_the_socket() {
    let subject = Subject::fresh();
    subject.node.client().register("alice").await;
    let mut socket = Socket::open_dashboard(&subject.address, &subject.token);
    let top =
        socket.ask(7, json!({ "get": "top", "by": "turns", "limit": 1_000_000 }))["top"].clone();
    let user =
        top.as_array().unwrap().iter().find(|p| p["kind"].as_str().unwrap().ends_with("User"));
    let pid = &user.unwrap()["pid"];
    assert_eq!(&socket.ask(8, json!({ "get": "info", "pid": pid }))["info"]["pid"], pid);
    let gone = socket.ask(9, json!({ "get": "info", "pid": "ffff" }));
    assert_eq!(gone["error"]["kind"], "no_process", "{gone}");
    assert!(
        !socket.ask(10, json!({ "get": "tree", "limit": 9 }))["tree"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let kinds = socket.ask(11, json!({ "get": "kinds", "limit": 99 }))["kinds"].clone();
    let is_user = |kind: &&Value| kind["process"].as_str().unwrap().ends_with("User");
    let kind = kinds.as_array().unwrap().iter().find(is_user).unwrap();
    assert!(kind["turns"].as_u64().unwrap() >= 1 && kind["processes"] == 1, "{kind}");
    socket.tell(&json!({ "type": "ask", "id": 1, "get": "salary" }));
    assert_eq!(socket.end().0, Closed(1008));
    for first in [json!({ "type": "ask", "id": 1, "get": "metrics" }), json!("hello")] {
        let mut socket = Socket::connect_dashboard(&subject.address);
        socket.tell(&first);
        assert_eq!(
            socket.next(),
            Err(Closed(1008)),
            "nothing is sent before the token was checked"
        );
    }
}

#[tokio::test]
async fn the_number_of_dashboards_is_bounded_and_a_stop_closes_all() {
    let subject = Subject::fresh();
    let mut sockets = vec![];
    for _ in 0..16 {
        sockets.push(Socket::open_dashboard(&subject.address, &subject.token));
    }
    let mut late = Socket::connect_dashboard(&subject.address);
    late.tell(&json!({ "type": "hello", "token": subject.token }));
    assert_eq!(late.next(), Err(Closed(1013)));
    subject.node.signal("INT").await;
    for socket in sockets {
        assert_eq!(socket.end().0, Closed(1012));
    }
    let ended = subject.node.wait();
    assert!(ended.status.success() && ended.errors.is_empty(), "{ended:?}");
}

#[tokio::test]
async fn a_replaced_token_ends_the_access_of_the_one_before() {
    let data = tempfile::tempdir().unwrap();
    let subject = Subject::of(Node::start(data.path(), &["--admin-listen", "127.0.0.1:0"]));
    let file = data.path().join("admin.token");
    assert!(!fs::read_to_string(&file).unwrap().contains(&subject.token));
    let mut socket = Socket::open_dashboard(&subject.address, &subject.token);
    socket.sample();
    let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
    command.args(["admin-token", "--admin-listen", &subject.address, "--data"]).arg(data.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let url = String::from_utf8(output.stdout).unwrap();
    let url = url.trim().strip_prefix(&format!("http://{}/#token=", subject.address));
    let token = url.unwrap();
    assert_eq!(socket.end().0, Closed(4401));
    subject.get("/api/session", &subject.token).await.is_problem(401, "admin-token-wrong");
    assert_eq!(subject.get("/api/session", token).await.status, 204);
    Socket::open_dashboard(&subject.address, token).sample();

    // The token of a stopped node opens the next one, which does not print it.
    drop(subject.node);
    let node = Node::start(data.path(), &["--admin-listen", "127.0.0.1:0"]);
    assert!(!node.greeting.contains("#token=") && node.greeting.contains("throng admin-token"));
    let address =
        node.dashboard().strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
    assert_eq!(Client::new(&address).get("/api/session", token).await.status, 204);
}

#[tokio::test]
async fn the_dashboard_can_be_off_and_its_address_must_be_free() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &["--admin-listen", "off"]);
    assert!(!node.greeting.contains("dashboard"), "{}", node.greeting);
    assert!(!data.path().join("admin.token").exists());
    let other = tempfile::tempdir().unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--admin-listen", &node.address];
    let refused = serve(other.path(), &flags).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(errors.contains(&node.address) && errors.contains("--admin-listen"), "{errors}");

    let exposed = Node::start(other.path(), &["--admin-listen", "0.0.0.0:0"]);
    exposed.wait_until_said("other machines can reach the dashboard").await;
}
