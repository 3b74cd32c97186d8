//! Lists of users, their pages, and likes over HTTP.

use serde_json::{Value, json};

use crate::harness::{Node, until};

#[tokio::test]
async fn follows_and_blocks_are_listed_until_they_end() {
    let (_node, client) = Node::with_client(&[]);
    let alice = client.register("alice").await;
    client.register("bob").await;
    for list in ["following", "blocks"] {
        let (all, one) = (format!("/api/v1/{list}"), format!("/api/v1/{list}/bob"));
        for _ in 0..2 {
            assert_eq!(client.put(&one, &alice).await.status, 204);
            assert_eq!(client.get(&all, &alice).await.body, json!({ list: ["bob"] }));
        }
        for _ in 0..2 {
            assert_eq!(client.delete(&one, &alice).await.status, 204);
            assert_eq!(client.get(&all, &alice).await.body, json!({ list: [] }));
        }
    }
}

#[tokio::test]
async fn a_page_of_users_says_after_whom_the_next_begins() {
    let (_node, client) = Node::with_client(&[]);
    client.register("bob").await;
    for name in ["alice", "carol"] {
        let token = client.register(name).await;
        assert_eq!(client.put("/api/v1/following/bob", &token).await.status, 204);
    }
    // The target learns of its followers by messages.
    until(async || client.get("/api/v1/users/bob", "").await.body["followers"] == 2).await;
    for (path, users, next) in [
        ("", &["alice", "bob", "carol"][..], Value::Null),
        ("?prefix=al", &["alice"], Value::Null),
        ("?prefix=%2e%2e", &[], Value::Null),
        ("?limit=1", &["alice"], json!("alice")),
        ("?limit=1&after=bob", &["carol"], Value::Null),
        ("/bob/followers", &["alice", "carol"], Value::Null),
        ("/bob/followers?limit=1", &["alice"], json!("alice")),
        ("/bob/followers?limit=1&after=alice", &["carol"], Value::Null),
    ] {
        let page = client.get(&format!("/api/v1/users{path}"), "").await;
        assert_eq!(page.body, json!({ "users": users, "next_after": next }), "{path}");
    }
}

#[tokio::test]
async fn a_like_counts_once_until_it_is_taken_back() {
    let (_node, client) = Node::with_client(&[]);
    let alice = client.register("alice").await;
    let id = client.publish(&alice, "hello").await;
    let path = format!("/api/v1/users/alice/posts/{id}");
    let like = format!("{path}/like");
    for _ in 0..2 {
        assert_eq!(client.put(&like, &alice).await.status, 204);
        assert_eq!(client.get(&path, "").await.body["likes"], 1);
    }
    for _ in 0..2 {
        assert_eq!(client.delete(&like, &alice).await.status, 204);
        assert_eq!(client.get(&path, "").await.body["likes"], 0);
    }
}
