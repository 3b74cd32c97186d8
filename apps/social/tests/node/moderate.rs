//! `social moderate`: the operator's commands on the data of a stopped node.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use reqwest::Method;
use serde_json::json;

use crate::harness::{Node, PASSWORD, send};

/// Runs `social moderate` with a text on standard input.
fn moderate(data: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
    command.args(["--log", "off", "moderate", "--data"]).arg(data).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that reads no input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[tokio::test]
async fn an_operator_removes_posts_messages_rooms_and_users_and_resets_a_password() {
    const NEW: &str = "battery staple";
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    let carol = client.register("carol").await;
    let bad = client.publish(&alice, "bad").await;
    let good = client.publish(&alice, "good").await;
    client.publish(&bob, "of bob").await;
    for followed in ["alice", "bob"] {
        let path = format!("/api/v1/following/{followed}");
        assert_eq!(client.put(&path, &carol).await.status, 204);
    }
    for room in ["tea", "spam"] {
        let created = client.post("/api/v1/rooms", &alice, &json!({ "name": room })).await;
        assert_eq!(created.status, 201, "{created:?}");
    }
    let said = json!({ "text": "bad" });
    assert_eq!(client.post("/api/v1/rooms/tea/messages", &alice, &said).await.status, 201);

    let refused = moderate(data.path(), &["remove-user", "bob"], "");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("stop it first"), "{said}");
    node.signal("TERM").await;
    node.wait();
    for (arguments, input) in [
        (&["remove-post", "alice", &bad][..], ""),
        (&["remove-message", "tea", "1"], ""),
        (&["remove-room", "spam"], ""),
        (&["remove-user", "bob"], ""),
        (&["reset-password", "carol"], "battery staple\n"),
    ] {
        let output = moderate(data.path(), arguments, input);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    for (arguments, input, sentence) in [
        (&["remove-post", "alice", &bad][..], "", "there is no post"),
        (&["remove-room", "spam"], "", "there is no room named spam"),
        (&["remove-user", "bob"], "", "there is no user named bob"),
        (&["reset-password", "carol"], "short\n", "a password must have"),
    ] {
        let output = moderate(data.path(), arguments, input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(sentence), "{said}");
    }
    let elsewhere = moderate(&data.path().join("elsewhere"), &["remove-user", "bob"], "");
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("there is no data in"));
    assert!(!data.path().join("elsewhere").exists());

    let node = Node::start(data.path(), &[]);
    let client = node.client();
    client.get("/api/v1/timeline", &carol).await.is_problem(401, "token-revoked");
    let carol = client.log_in("carol", NEW).await.token();
    let timeline = client.get("/api/v1/timeline", &carol).await;
    let posts = timeline.body["posts"].as_array().unwrap();
    assert!(posts.len() == 1 && posts[0]["id"] == good.as_str(), "{timeline:?}");
    let following = client.get("/api/v1/following", &carol).await;
    assert_eq!(following.body, json!({ "following": ["alice"] }));
    let body = json!({ "name": "bob", "password": PASSWORD });
    let again = send(client.request(Method::POST, "/api/v1/users").json(&body)).await.unwrap();
    again.is_problem(409, "name-taken");
    client.get("/api/v1/rooms/spam", "").await.is_problem(404, "no-such-room");
    let messages = client.get("/api/v1/rooms/tea/messages", &alice).await;
    assert_eq!(messages.body["messages"][0]["text"], json!(null), "{messages:?}");
}
