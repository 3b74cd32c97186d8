//! Malformed requests: each gets the right status and a problem, and the node keeps running.
//!
//! The requests of `openapi.rs` provoke each problem once; here are further ways to some of them.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::{Node, PASSWORD, send};

#[tokio::test]
async fn every_bad_request_gets_its_problem() {
    let (_node, client) = Node::with_client(&[]);
    let alice = client.register("alice").await;
    let bob = client.register("bob").await;
    for text in ["first", "second"] {
        client.publish(&alice, text).await;
    }
    let page = client.get("/api/v1/users/alice/posts?limit=1", "").await;
    let cursor = page.body["next_cursor"].as_str().unwrap();

    let request = |method: Method, path: &str| client.request(method, &format!("/api/v1{path}"));
    let get = |path: &str| request(Method::GET, path);
    let post = |path: &str, body: Value| request(Method::POST, path).json(&body);
    let credentials = |name: &str, password: &str| json!({ "name": name, "password": password });
    let text = || post("/posts", json!({ "text": "x" })).bearer_auth(&alice);
    let raw = |body: &str| {
        let request = request(Method::POST, "/users").body(body.to_owned());
        request.header("content-type", "application/json")
    };

    #[rustfmt::skip]
    let cases: Vec<(&str, RequestBuilder, u16, &str)> = vec![
        ("no body", raw(""), 400, "malformed-json"),
        ("a field too many", post("/users", json!({"name": "carol", "password": PASSWORD, "admin": true})), 422, "unprocessable"),
        ("a field of another type", post("/users", json!({"name": 7, "password": PASSWORD})), 422, "unprocessable"),

        ("a login of nobody", post("/sessions", credentials("nobody", PASSWORD)), 401, "wrong-credentials"),
        ("a login of an impossible name", post("/sessions", credentials("No Body", PASSWORD)), 401, "wrong-credentials"),

        ("another scheme", get("/timeline").basic_auth("alice", Some(PASSWORD)), 401, "token-malformed"),
        ("half of two tokens", get("/timeline").bearer_auth(crossed(&alice, &bob)), 401, "token-forged"),
        ("a cursor as token", get("/timeline").bearer_auth(cursor), 401, "token-forged"),

        ("an empty idempotency key", text().header("idempotency-key", ""), 400, "idempotency-key-invalid"),
        ("two idempotency keys", text().header("idempotency-key", "a").header("idempotency-key", "b"), 400, "idempotency-key-invalid"),
        ("another spelling of an id", request(Method::DELETE, "/posts/+1").bearer_auth(&alice), 404, "no-such-post"),
        ("an id of too many bits", get("/users/alice/posts/99999999999999999999"), 404, "no-such-post"),

        ("following an impossible name", request(Method::PUT, "/following/No%20Body").bearer_auth(&alice), 404, "no-such-user"),
        ("an impossible room", get("/rooms/%23go"), 404, "no-such-room"),
        ("unfollowing nobody", request(Method::DELETE, "/following/nobody").bearer_auth(&alice), 404, "no-such-user"),

        ("a changed cursor", get(&format!("/users/alice/posts?cursor=B{}", &cursor[1..])), 400, "cursor-invalid"),
        ("a cursor of another kind", get(&format!("/timeline?cursor={cursor}")).bearer_auth(&alice), 400, "cursor-invalid"),
        ("a token as cursor", get(&format!("/users/alice/posts?cursor={alice}")), 400, "cursor-invalid"),
        ("a limit of 101", get("/users/alice/posts?limit=101"), 400, "limit-invalid"),
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
async fn a_text_of_the_maximum_length_comes_back_unchanged() {
    let (_node, client) = Node::with_client(&[]);
    let bob = client.register("bob").await;
    let text = "aß語😀<b>&amp;\\\"".repeat(500).chars().take(5000).collect::<String>();
    assert_eq!(text.chars().count(), 5000);
    let posted = client.post("/api/v1/posts", &bob, &json!({ "text": text })).await;
    assert_eq!((posted.status, posted.body["text"].as_str()), (201, Some(text.as_str())));
    let newest = client.get("/api/v1/users/bob/posts", "").await;
    assert_eq!(newest.body, json!({ "posts": [posted.body], "next_cursor": null }));
}

/// Payload of one token with the signature of another.
fn crossed(payload: &str, signature: &str) -> String {
    format!("{}.{}", payload.split('.').next().unwrap(), signature.split('.').nth(1).unwrap())
}
