//! Tags, interests and For you over HTTP.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Client, Node, send, until};

/// Reads For you until the first page has a post with this text.
async fn wait_for(client: &Client, token: &str, text: &str) -> Value {
    let find = async || {
        let page = client.get("/api/v1/for-you", token).await;
        assert_eq!(page.status, 200, "{page:?}");
        let posts = page.body["posts"].as_array().unwrap();
        posts.iter().find(|post| post["text"] == text).cloned()
    };
    until(async || find().await.is_some()).await;
    find().await.unwrap()
}

#[tokio::test]
async fn a_reader_finds_posts_by_tags_and_pages_through_a_visit() {
    let (_node, client) = Node::with_client(&[]);
    let alice = client.register("alice").await;
    let bob = client.register("bob").await;
    for _ in 0..2 {
        assert_eq!(client.put("/api/v1/interests/Rust", &alice).await.status, 204);
        assert_eq!(client.put("/api/v1/interests/%C3%84rger", &alice).await.status, 204);
    }
    let interests = client.get("/api/v1/interests", &alice).await;
    assert_eq!(interests.body, json!({ "tags": ["rust", "ärger"] }));
    for _ in 0..2 {
        assert_eq!(client.delete("/api/v1/interests/%C3%84rger", &alice).await.status, 204);
    }
    for number in 0..10 {
        let added = client.put(&format!("/api/v1/interests/tag{number}"), &bob).await;
        assert_eq!(added.status, 204);
    }
    client.put("/api/v1/interests/rust", &bob).await.is_problem(422, "interests-full");

    let empty = client.get("/api/v1/for-you", &alice).await;
    assert_eq!(empty.body, json!({ "posts": [], "next_cursor": null }));
    let mut last = String::new();
    for text in ["one #rust", "two #Rust #web", "three"] {
        last = client.publish(&bob, text).await;
    }
    let like = format!("/api/v1/users/bob/posts/{last}/like");
    assert_eq!(client.put(&like, &alice).await.status, 204);
    let post = wait_for(&client, &alice, "three").await;
    assert_eq!(
        (&post["author"], &post["likes"], &post["reason"]),
        (&json!("bob"), &json!(1), &json!("popular"))
    );
    assert!(post["id"] == last.as_str() && post["time"].is_u64(), "{post}");
    assert_eq!(wait_for(&client, &alice, "one #rust").await["reason"], "tag:rust");

    let (mut texts, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/api/v1/for-you?limit=1{cursor}"), &alice).await;
        texts.push(page.body["posts"][0]["text"].as_str().unwrap().to_owned());
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    texts.sort_unstable();
    assert_eq!(texts, ["one #rust", "three", "two #Rust #web"]);

    // The cursor is of the last page but one, and belongs to alice and her visit.
    let cursor = cursor.trim_start_matches("&cursor=");
    let page = client.get(&format!("/api/v1/for-you?cursor={cursor}"), &alice).await;
    assert_eq!(page.body["posts"].as_array().unwrap().len(), 1);
    let path = format!("/api/v1/for-you?cursor={cursor}");
    client.get(&path, &bob).await.is_problem(400, "cursor-invalid");
    let path = format!("/api/v1/timeline?cursor={cursor}");
    client.get(&path, &alice).await.is_problem(400, "cursor-invalid");
    for _ in 0..2 {
        assert_eq!(client.get("/api/v1/for-you", &alice).await.status, 200);
    }
    let path = format!("/api/v1/for-you?cursor={cursor}");
    client.get(&path, &alice).await.is_problem(410, "visit-over");

    // A tag has its posts and no others, also the reader's own.
    client.publish(&alice, "mine #rust").await;
    until(async || {
        let page = client.get("/api/v1/for-you?tag=Rust", &alice).await;
        let posts = page.body["posts"].as_array().unwrap();
        assert!(posts.iter().all(|post| post["reason"] == "tag:rust"), "{page:?}");
        let mut texts: Vec<_> = posts.iter().map(|post| post["text"].as_str().unwrap()).collect();
        texts.sort_unstable();
        texts == ["mine #rust", "one #rust", "two #Rust #web"]
    })
    .await;

    // Without a token. The counts come a moment after the posts.
    until(async || {
        let tags = send(client.request(Method::GET, "/api/v1/tags")).await.unwrap();
        assert_eq!(tags.status, 200, "{tags:?}");
        tags.body == json!({ "tags": ["rust", "web"] })
    })
    .await;
}
