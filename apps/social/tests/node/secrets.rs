//! Secrets stay with their owners: none is stored as it is, and a node is reached from its own machine only, unless
//! it is configured otherwise.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::harness::{Node, PASSWORD, serve};

#[tokio::test]
async fn no_password_and_no_token_is_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    let node = Node::start(&data, &["--keep-log", "--admin-listen", "127.0.0.1:0"]);
    let client = node.client();
    let alice = client.register("alice").await;
    let revoked = client.log_in("alice", PASSWORD).await.token();
    assert_eq!(client.delete("/api/v1/sessions/current", &revoked).await.status, 204);
    let passwords = json!({ "old": PASSWORD, "new": "another horse" });
    let text = "a text that everybody may read";
    client.publish(&alice, text).await;
    let changed = client.request(reqwest::Method::PUT, "/api/v1/password").bearer_auth(&alice);
    assert_eq!(changed.json(&passwords).send().await.unwrap().status(), 204);
    let admin = node.dashboard().split("token=").nth(1).unwrap().to_owned();
    node.signal("INT").await;
    assert!(node.wait().status.success());
    let backup = ["store", "backup", data.to_str().unwrap(), copy.to_str().unwrap()];
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_social")).args(backup).output();
    assert!(made.unwrap().status.success());

    for stored in [&data, &copy] {
        // The search finds what is stored as it is.
        assert!(holds(stored, text) && holds(stored, "$argon2id$"), "{}", stored.display());
        for secret in [PASSWORD, "another horse", &alice, &revoked, &admin] {
            assert!(!holds(stored, secret), "{secret} is in {}", stored.display());
            // A signature alone, which makes a token of public parts.
            let last = secret.rsplit('.').next().unwrap();
            assert!(!holds(stored, last), "{last} is in {}", stored.display());
        }
    }
}

/// Returns whether a file in a directory has the bytes of `text`.
fn holds(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => holds(&path, text),
            false => {
                let bytes = fs::read(&path).unwrap();
                bytes.windows(text.len()).any(|window| window == text.as_bytes())
            }
        }
    })
}

#[tokio::test]
async fn a_node_listens_on_loopback_unless_it_is_configured_otherwise() {
    let data = tempfile::tempdir().unwrap();
    let printed = serve(data.path(), &["--print-config"]).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let value = |key: &str| {
        let line = printed.lines().find(|line| line.trim_start_matches("# ").starts_with(key));
        line.unwrap_or_else(|| panic!("no {key} in {printed}")).to_owned()
    };
    assert!(value("listen =").contains("\"127.0.0.1:7070\""), "{printed}");
    // The dashboard takes a free port if another node has its port.
    let node = Node::start(data.path(), &[]);
    let dashboard = node.dashboard();
    assert!(dashboard.starts_with("http://127.0.0.1:"), "{dashboard}");
}
