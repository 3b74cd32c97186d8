//! Malformed requests: each gets the right status and a problem, and the node keeps running.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use throng_node::http::Signer;

use crate::harness::{Client, Node, PASSWORD, send};

#[tokio::test]
async fn every_bad_request_gets_its_problem() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let alice = client.register("alice").await;
    let bob = client.register("bob").await;
    for text in ["first", "second"] {
        let posted = client.post("/api/v1/posts", &alice, &json!({ "text": text })).await;
        assert_eq!(posted.status, 201, "{posted:?}");
    }
    let page = client.get("/api/v1/users/alice/posts?limit=1", "").await;
    let cursor = page.body["next_cursor"].as_str().unwrap();
    let (forged, _) = Signer::from_key([1; 32]).issue_token("alice", Duration::from_secs(60));

    let request = |method: Method, path: &str| client.request(method, &format!("/api/v1{path}"));
    let get = |path: &str| request(Method::GET, path);
    let post = |path: &str, body: Value| request(Method::POST, path).json(&body);
    let credentials = |name: &str, password: &str| json!({ "name": name, "password": password });
    let text = |text: String| post("/posts", json!({ "text": text })).bearer_auth(&alice);
    let raw = |body: &str| {
        let request = request(Method::POST, "/users").body(body.to_owned());
        request.header("content-type", "application/json")
    };
    let long = "x".repeat(33);

    #[rustfmt::skip]
    let cases: Vec<(&str, RequestBuilder, u16, &str)> = vec![
        ("not JSON", raw("{\"name\":"), 400, "malformed-json"),
        ("no body", raw(""), 400, "malformed-json"),
        ("a field missing", raw("{\"name\":\"carol\"}"), 422, "unprocessable"),
        ("a field too many", post("/users", json!({"name": "carol", "password": PASSWORD, "admin": true})), 422, "unprocessable"),
        ("a field of another type", post("/users", json!({"name": 7, "password": PASSWORD})), 422, "unprocessable"),
        ("a body too large", raw(&" ".repeat(65 * 1024)), 413, "body-too-large"),
        ("a body that is text", request(Method::POST, "/users").body("name=carol"), 415, "wrong-content-type"),

        ("a name that is taken", post("/users", credentials("alice", "another password")), 409, "name-taken"),
        ("an empty name", post("/users", credentials("", PASSWORD)), 422, "name-invalid"),
        ("a long name", post("/users", credentials(&long, PASSWORD)), 422, "name-invalid"),
        ("upper case", post("/users", credentials("Alice", PASSWORD)), 422, "name-invalid"),
        ("a name with a space", post("/users", credentials("al ice", PASSWORD)), 422, "name-invalid"),
        ("a name with a slash", post("/users", credentials("../alice", PASSWORD)), 422, "name-invalid"),
        ("a name beyond ASCII", post("/users", credentials("älice", PASSWORD)), 422, "name-invalid"),
        ("a name with a zero byte", post("/users", credentials("alice\0", PASSWORD)), 422, "name-invalid"),
        ("a short password", post("/users", credentials("carol", "1234567")), 422, "password-length"),
        ("a short password of many bytes", post("/users", credentials("carol", "語語語語語語語")), 422, "password-length"),
        ("a long password", post("/users", credentials("carol", &"x".repeat(129))), 422, "password-length"),
        ("a password of zero bytes", post("/users", credentials("carol", &"\0".repeat(8))), 422, "password-length"),

        ("a wrong password", post("/sessions", credentials("alice", "wrong horse")), 401, "wrong-credentials"),
        ("a login of nobody", post("/sessions", credentials("nobody", PASSWORD)), 401, "wrong-credentials"),
        ("a login of an impossible name", post("/sessions", credentials("No Body", PASSWORD)), 401, "wrong-credentials"),

        ("no token", get("/timeline"), 401, "token-missing"),
        ("a token that is none", get("/timeline").bearer_auth("letmein"), 401, "token-malformed"),
        ("another scheme", get("/timeline").basic_auth("alice", Some(PASSWORD)), 401, "token-malformed"),
        ("a forged token", get("/timeline").bearer_auth(&forged), 401, "token-forged"),
        ("half of two tokens", get("/timeline").bearer_auth(crossed(&alice, &bob)), 401, "token-forged"),
        ("a cursor as token", get("/timeline").bearer_auth(cursor), 401, "token-forged"),

        ("a post without text", text(String::new()), 422, "text-length"),
        ("a post of white space", text(" \n\t\u{a0}".into()), 422, "text-length"),
        ("a post of zero-width spaces", text("\u{200b}\u{feff}".into()), 422, "text-length"),
        ("a post of zero bytes", text("\0\0".into()), 422, "text-length"),
        ("a post of 5001 characters", text("ö".repeat(5001)), 422, "text-length"),
        ("a post of 100,000 characters", text("x".repeat(100_000)), 413, "body-too-large"),
        ("an idempotency key with a space", text("x".into()).header("idempotency-key", "a b"), 400, "idempotency-key-invalid"),
        ("an empty idempotency key", text("x".into()).header("idempotency-key", ""), 400, "idempotency-key-invalid"),
        ("two idempotency keys", text("x".into()).header("idempotency-key", "a").header("idempotency-key", "b"), 400, "idempotency-key-invalid"),

        ("following oneself", request(Method::PUT, "/following/alice").bearer_auth(&alice), 422, "follows-oneself"),
        ("following nobody", request(Method::PUT, "/following/nobody").bearer_auth(&alice), 404, "no-such-user"),
        ("following an impossible name", request(Method::PUT, "/following/No%20Body").bearer_auth(&alice), 404, "no-such-user"),
        ("unfollowing nobody", request(Method::DELETE, "/following/nobody").bearer_auth(&alice), 404, "no-such-user"),
        ("the profile of nobody", get("/users/nobody"), 404, "no-such-user"),
        ("the posts of nobody", get("/users/nobody/posts"), 404, "no-such-user"),
        ("a name that is not UTF-8", get("/users/%ff"), 400, "malformed-path"),

        ("a cursor that is none", get("/users/alice/posts?cursor=7"), 400, "cursor-invalid"),
        ("a changed cursor", get(&format!("/users/alice/posts?cursor=B{}", &cursor[1..])), 400, "cursor-invalid"),
        ("a cursor of another listing", get(&format!("/users/bob/posts?cursor={cursor}")), 400, "cursor-invalid"),
        ("a cursor of another kind", get(&format!("/timeline?cursor={cursor}")).bearer_auth(&alice), 400, "cursor-invalid"),
        ("a token as cursor", get(&format!("/users/alice/posts?cursor={alice}")), 400, "cursor-invalid"),
        ("a limit of 0", get("/users/alice/posts?limit=0"), 400, "limit-invalid"),
        ("a limit of 101", get("/users/alice/posts?limit=101"), 400, "limit-invalid"),
        ("a limit that is no number", get("/users/alice/posts?limit=all"), 400, "malformed-query"),
        ("a parameter that is not known", get("/users/alice/posts?offset=7"), 400, "malformed-query"),

        ("a path that is not known", get("/nowhere"), 404, "no-such-route"),
        ("a wrong method", request(Method::DELETE, "/posts").bearer_auth(&alice), 405, "method-not-allowed"),
    ];
    for (what, request, status, name) in cases {
        eprintln!("{what}"); // shown if it fails
        let answer = send(request).await.unwrap();
        answer.is_problem(status, name);
        match status {
            401 => assert!(answer.headers.contains_key("www-authenticate")),
            405 => assert!(answer.headers.contains_key("allow")),
            _ => {}
        }
    }

    // No bad request has changed any data.
    client.assert_healthy().await;
    let profile = client.get("/api/v1/users/alice", "").await;
    assert_eq!(profile.body["posts"], 2);
    assert_eq!(profile.body["following"], 0);
    client.get("/api/v1/users/carol", "").await.is_problem(404, "no-such-user");
}

#[tokio::test]
async fn an_expired_token_gets_a_401() {
    let (_node, client) = Node::with_client(&["--token-ttl", "1ms"]);
    let token = client.register("alice").await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    let answer = client.get("/api/v1/timeline", &token).await;
    answer.is_problem(401, "token-expired");
    client.assert_healthy().await;
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_gets_a_408() {
    let node = Node::fresh(&["--header-timeout", "200ms"]);
    let mut slow = TcpStream::connect(&node.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    slow.write_all(b"GET /api/v1/health HTTP/1.1\r\nhost: x\r\nx-slow: ").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["type"], "urn:throng:problem:head-timeout");
    node.client().assert_healthy().await;
}

#[tokio::test]
async fn valid_requests_can_be_repeated() {
    let (_node, client) = Node::with_client(&[]);
    let alice = client.register("alice").await;
    let bob = client.register("bob").await;

    for _ in 0..2 {
        assert_eq!(client.put("/api/v1/following/bob", &alice).await.status, 204);
        let following = client.get("/api/v1/following", &alice).await;
        assert_eq!(following.body, json!({ "following": ["bob"] }));
    }
    let first = keyed(&client, &bob, "key", "once").await;
    assert_eq!(first.0, 201);
    let again = keyed(&client, &bob, "key", "once").await;
    assert_eq!(again, (200, first.1.clone()));
    assert_eq!(keyed(&client, &bob, "key", "twice").await.0, 422);
    let other = keyed(&client, &bob, "other", "once").await;
    assert_eq!(other.0, 201);
    let timeline = client.get("/api/v1/timeline", &alice).await;
    assert_eq!(timeline.body, json!({ "posts": [other.1, first.1], "next_cursor": null }));
    for _ in 0..2 {
        assert_eq!(client.delete("/api/v1/following/bob", &alice).await.status, 204);
        let timeline = client.get("/api/v1/timeline", &alice).await;
        assert_eq!(timeline.body, json!({ "posts": [], "next_cursor": null }));
    }

    // A text of maximum length, with characters of every width, is returned unchanged.
    let text = "aß語😀<b>&amp;\\\"".repeat(500).chars().take(5000).collect::<String>();
    assert_eq!(text.chars().count(), 5000);
    let long = client.post("/api/v1/posts", &bob, &json!({ "text": text })).await;
    assert_eq!((long.status, long.body["text"].as_str()), (201, Some(text.as_str())));
    let login = json!({ "name": "bob", "password": PASSWORD });
    let session = client.post("/api/v1/sessions", "", &login).await;
    assert_eq!(session.status, 201);
    let newest = client.get("/api/v1/users/bob/posts?limit=1", "").await;
    assert_eq!(newest.body["posts"], json!([long.body]));
}

async fn keyed(client: &Client, token: &str, key: &str, text: &str) -> (u16, Value) {
    let request = client.request(Method::POST, "/api/v1/posts").bearer_auth(token);
    let request = request.header("idempotency-key", key).json(&json!({ "text": text }));
    let answer = send(request).await.unwrap();
    (answer.status, answer.body)
}

/// Payload of one token with the signature of another.
fn crossed(payload: &str, signature: &str) -> String {
    format!("{}.{}", payload.split('.').next().unwrap(), signature.split('.').nth(1).unwrap())
}
