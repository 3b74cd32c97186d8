//! Sessions, blocks, deletion and search over HTTP, across a kill.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Client, Node, PASSWORD, send};

async fn log_in(client: &Client, password: &str) -> Answer {
    let body = json!({ "name": "alice", "password": password });
    send(client.request(Method::POST, "/api/v1/sessions").json(&body)).await.unwrap()
}

fn token(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn sessions_end_by_logout_everywhere_and_by_a_new_password_also_after_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let first = client.register("alice").await;
    let (second, third) =
        (token(&log_in(&client, PASSWORD).await), token(&log_in(&client, PASSWORD).await));
    assert_eq!(client.delete("/api/v1/sessions/current", &second).await.status, 204);
    let states = async |client: &Client| {
        let mut states = Vec::new();
        for token in [&first, &second, &third] {
            let mut answers = Vec::new();
            // The user's process checks the token of the first request, the live timeline that of the second.
            for path in ["/api/v1/following", "/api/v1/timeline"] {
                let answer = client.get(path, token).await;
                if answer.status != 200 {
                    answer.is_problem(401, "token-revoked");
                    assert_eq!(answer.headers["www-authenticate"], "Bearer");
                }
                answers.push(answer.status == 200);
            }
            assert_eq!(answers[0], answers[1]);
            states.push(answers[0]);
        }
        states
    };
    assert_eq!(states(&client).await, [true, false, true]);
    client.delete("/api/v1/sessions/current", &second).await.is_problem(401, "token-revoked");
    node.signal("KILL").await;
    node.wait();

    let node = Node::start(data.path(), &[]);
    let client = node.client();
    assert_eq!(states(&client).await, [true, false, true]);
    assert_eq!(client.delete("/api/v1/sessions", &first).await.status, 204);
    assert_eq!(states(&client).await, [false; 3]);

    let fourth = token(&log_in(&client, PASSWORD).await);
    assert_eq!(client.get("/api/v1/timeline", &fourth).await.status, 200);
    let change = async |old: &str, new: &str| {
        let request = client.request(Method::PUT, "/api/v1/password").bearer_auth(&fourth);
        send(request.json(&json!({ "old": old, "new": new }))).await.unwrap()
    };
    change("wrong password", "battery staple").await.is_problem(401, "wrong-credentials");
    change(PASSWORD, "short").await.is_problem(422, "password-length");
    assert_eq!(change(PASSWORD, "battery staple").await.status, 204);
    for path in ["/api/v1/following", "/api/v1/timeline"] {
        client.get(path, &fourth).await.is_problem(401, "token-revoked");
    }
    log_in(&client, PASSWORD).await.is_problem(401, "wrong-credentials");
    token(&log_in(&client, "battery staple").await);
}

#[tokio::test]
async fn blocks_deletion_and_search_hold_after_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    let post = async |client: &Client, text: &str| {
        let posted = client.post("/api/v1/posts", &alice, &json!({ "text": text })).await;
        assert_eq!(posted.status, 201, "{posted:?}");
        posted.body["id"].as_str().unwrap().to_owned()
    };
    let (kept, deleted) = (post(&client, "kept").await, post(&client, "deleted").await);
    assert_eq!(client.put("/api/v1/following/alice", &bob).await.status, 204);
    let not_his = client.delete(&format!("/api/v1/posts/{kept}"), &bob).await;
    assert_eq!(not_his.status, 404, "he has no such post");
    assert_eq!(client.delete(&format!("/api/v1/posts/{deleted}"), &alice).await.status, 204);
    for path in [&*deleted, "0", "nonsense", "99999999999999999999", "+1"] {
        let answer = client.delete(&format!("/api/v1/posts/{path}"), &alice).await;
        assert_eq!(answer.status, 404, "{path}");
    }
    let ids = |answer: &Answer| {
        let posts = answer.body["posts"].as_array().unwrap();
        posts.iter().map(|post| post["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&client.get("/api/v1/timeline", &bob).await), [&*kept]);
    assert_eq!(client.put("/api/v1/blocks/bob", &alice).await.status, 204);
    node.signal("KILL").await;
    node.wait();

    let node = Node::start(data.path(), &[]);
    let client = node.client();
    assert_eq!(client.get("/api/v1/blocks", &alice).await.body, json!({ "blocks": ["bob"] }));
    assert_eq!(ids(&client.get("/api/v1/timeline", &bob).await), [""; 0]);
    client.put("/api/v1/following/alice", &bob).await.is_problem(403, "blocked");
    client.put("/api/v1/following/bob", &alice).await.is_problem(409, "blocking");
    client.put("/api/v1/blocks/alice", &alice).await.is_problem(422, "blocks-oneself");
    client.put("/api/v1/blocks/nobody", &alice).await.is_problem(404, "no-such-user");
    assert_eq!(client.delete("/api/v1/blocks/bob", &alice).await.status, 204);
    assert_eq!(client.put("/api/v1/following/alice", &bob).await.status, 204);
    assert_eq!(ids(&client.get("/api/v1/timeline", &bob).await), [kept]);

    let search = async |query: &str| client.get(&format!("/api/v1/users?{query}"), "").await;
    let found = |users: &[&str], next: Value| json!({ "users": users, "next_after": next });
    assert_eq!(search("prefix=al").await.body, found(&["alice"], Value::Null));
    assert_eq!(search("").await.body, found(&["alice", "bob"], Value::Null));
    assert_eq!(search("limit=1").await.body, found(&["alice"], json!("alice")));
    assert_eq!(search("limit=1&after=alice").await.body, found(&["bob"], Value::Null));
    assert_eq!(search("prefix=%2e%2e").await.body, found(&[], Value::Null));
    search("limit=0").await.is_problem(400, "limit-invalid");
    search("after=A").await.is_problem(400, "after-invalid");
}

#[tokio::test]
async fn followers_are_listed_and_counted_also_after_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client();
    client.register("bob").await;
    let mut tokens = Vec::new();
    for name in ["alice", "carol", "dave"] {
        tokens.push(client.register(name).await);
        assert_eq!(
            client.put("/api/v1/following/bob", &tokens[tokens.len() - 1]).await.status,
            204
        );
    }
    assert_eq!(client.delete("/api/v1/following/bob", &tokens[1]).await.status, 204);
    node.signal("KILL").await;
    node.wait();

    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let page =
        async |query: &str| client.get(&format!("/api/v1/users/bob/followers{query}"), "").await;
    let expected = json!({ "users": ["alice", "dave"], "next_after": null });
    let mut attempts = 0;
    while page("").await.body != expected {
        // A request of a follower makes its process send again.
        for token in &tokens {
            assert_eq!(client.get("/api/v1/following", token).await.status, 200);
        }
        attempts += 1;
        assert!(attempts < 10_000, "{:?}", page("").await);
    }
    assert_eq!(client.get("/api/v1/users/bob", "").await.body["followers"], 2);
    let first = json!({ "users": ["alice"], "next_after": "alice" });
    assert_eq!(page("?limit=1").await.body, first);
    let last = json!({ "users": ["dave"], "next_after": null });
    assert_eq!(page("?limit=1&after=alice").await.body, last);
    page("?limit=101").await.is_problem(400, "limit-invalid");
    page("?after=A").await.is_problem(400, "after-invalid");
    client.get("/api/v1/users/nobody/followers", "").await.is_problem(404, "no-such-user");
}

#[tokio::test]
async fn likes_are_counted_once_a_user_also_after_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let (alice, bob) = (client.register("alice").await, client.register("bob").await);
    let posted = client.post("/api/v1/posts", &alice, &json!({ "text": "hello" })).await;
    let path = format!("/api/v1/users/alice/posts/{}", posted.body["id"].as_str().unwrap());
    let like = format!("{path}/like");
    for token in [&bob, &bob, &alice] {
        assert_eq!(client.put(&like, token).await.status, 204);
    }
    let mut expected = posted.body.clone();
    expected["likes"] = json!(2);
    assert_eq!(client.get(&path, "").await.body, expected);
    node.signal("KILL").await;
    node.wait();

    let node = Node::start(data.path(), &[]);
    let client = node.client();
    assert_eq!(client.get(&path, "").await.body, expected);
    for _ in 0..2 {
        assert_eq!(client.delete(&like, &bob).await.status, 204);
        assert_eq!(client.get(&path, "").await.body["likes"], 1);
    }
    assert_eq!(client.put(&like, "").await.status, 401);
    assert_eq!(client.put("/api/v1/blocks/bob", &alice).await.status, 204);
    client.put(&like, &bob).await.is_problem(403, "blocked");
    for id in ["1", "+1", "nonsense", "99999999999999999999"] {
        let path = format!("/api/v1/users/alice/posts/{id}");
        client.get(&path, "").await.is_problem(404, "no-such-post");
        client.put(&format!("{path}/like"), &alice).await.is_problem(404, "no-such-post");
        assert_eq!(client.delete(&format!("{path}/like"), &alice).await.status, 204);
    }
    let own = posted.body["id"].as_str().unwrap();
    assert_eq!(client.delete(&format!("/api/v1/posts/{own}"), &alice).await.status, 204);
    client.get(&path, "").await.is_problem(404, "no-such-post");
}
