//! The log of a node: request ids, the log of requests, and the secrets that it must not have.

use reqwest::Method;
use serde_json::{Value, json};

use crate::config::with;
use crate::harness::{Ended, Node, PASSWORD, send};

/// Starts a node on `data` that logs by `flags`.
fn start(data: &std::path::Path, flags: &[&str]) -> Node {
    let mut command = with(None);
    command.args(["--listen", "127.0.0.1:0", "--data"]).arg(data).args(flags);
    Node::spawn(command)
}

async fn end(node: Node) -> String {
    node.signal("TERM").await;
    let Ended { status, errors } = node.wait();
    assert_eq!(status.code(), Some(0), "{errors}");
    errors
}

#[tokio::test]
async fn every_request_has_one_line_with_the_id_of_its_answer() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path(), &["--log", "warn", "--log-format", "json", "--access-log"]);
    let client = node.client();
    let mut ids = Vec::new();
    for (path, sent, status) in [
        ("/livez", None, 200),
        ("/api/v1/users/nobody?x=hidden", Some("trace-1.of_2"), 404),
        ("/nowhere", Some("not well formed"), 404),
    ] {
        let mut request = client.request(Method::GET, path);
        if let Some(sent) = sent {
            request = request.header("x-request-id", sent);
        }
        let response = request.send().await.unwrap();
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        let bytes = response.bytes().await.unwrap().len();
        let path = path.split('?').next().unwrap();
        ids.push(json!({ "id": id, "path": path, "status": status, "bytes": bytes }));
    }
    assert_eq!(ids[1]["id"], "trace-1.of_2");
    assert_eq!(ids[0]["id"].as_str().unwrap().len(), 16);
    assert_eq!(ids[2]["id"].as_str().unwrap().len(), 16);
    let log = end(node).await;
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .filter(|line: &Value| line["target"] == "throng_node::access")
        .collect();
    let logged: Vec<Value> = lines
        .iter()
        .map(|line| {
            assert_eq!((&line["method"], &line["client"]), (&json!("GET"), &json!("127.0.0.1")));
            assert!(line["elapsed"].as_str().is_some_and(|elapsed| elapsed.ends_with('s')));
            let id = &line["span"]["id"];
            json!({ "id": id, "path": line["path"], "status": line["status"], "bytes": line["bytes"] })
        })
        .collect();
    assert_eq!(logged, ids);
}

#[tokio::test]
async fn the_turns_of_users_log_the_id_of_their_request() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path(), &["--log", "debug", "--log-format", "json"]);
    let client = node.client();
    let (mut tokens, mut ids) = (Vec::new(), Vec::new());
    for user in ["alice", "bob"] {
        tokens.push(client.register(user).await);
    }
    for (token, text) in tokens.iter().zip(["one", "two"]) {
        let request = client.request(Method::POST, "/api/v1/posts").bearer_auth(token);
        let response = request.json(&json!({ "text": text })).send().await.unwrap();
        ids.push(json!(response.headers()["x-request-id"].to_str().unwrap()));
    }
    let log = end(node).await;
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let posts: Vec<Value> = lines.filter(|line| line["message"] == "publishes a post").collect();
    let logged: Vec<&Value> = posts.iter().map(|line| &line["span"]["id"]).collect();
    assert_eq!(logged, [&ids[0], &ids[1]], "{log}");
    assert_eq!((&posts[0]["user"], &posts[1]["user"]), (&json!("alice"), &json!("bob")));
}

#[tokio::test]
async fn the_most_verbose_log_has_no_password_token_text_or_query() {
    let data = tempfile::tempdir().unwrap();
    for format in ["text", "json"] {
        let node = start(data.path(), &["--log", "trace", "--access-log", "--log-format", format]);
        let client = node.client();
        let name = format!("alice_{format}");
        let registered = client.register(&name).await;
        let token = client.log_in(&name, PASSWORD).await.token();
        assert_eq!(client.log_in(&name, "a wrong password").await.status, 401);
        let text = json!({ "text": "a text for friends" });
        let request = client.request(Method::POST, "/api/v1/posts").bearer_auth(&token);
        let request = request.header("idempotency-key", "a-secret-key").json(&text);
        assert_eq!(send(request).await.unwrap().status, 201);
        assert_eq!(client.get("/api/v1/timeline?limit=7", &token).await.status, 200);
        assert_eq!(client.get("/api/v1/timeline?cursor=a-forged-cursor", &token).await.status, 400);
        assert_eq!(client.get("/api/v1/timeline", "a-forged-token").await.status, 401);
        let log = end(node).await;
        // The log is not empty: it has the requests.
        assert!(log.contains("/api/v1/timeline") && log.contains("/api/v1/sessions"), "{log}");
        for secret in [
            PASSWORD,
            "a wrong password",
            &registered,
            &token,
            "a text for friends",
            "a-secret-key",
            "limit=7",
            "a-forged-cursor",
            "a-forged-token",
        ] {
            assert!(!log.contains(secret), "{format}: {secret}\n{log}");
        }
    }
}
