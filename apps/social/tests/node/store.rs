//! `social store`, beside a running node and on its data.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Node, serve};

/// Runs `social store` with these arguments.
fn store(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
    command.arg("store").args(words).output().unwrap()
}

/// Returns the standard output of a successful run.
#[track_caller]
fn said(words: &[&str]) -> String {
    let output = store(words);
    assert!(output.status.success(), "{output:?}");
    // Progress is shown only on terminals.
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the standard error of a run that must end with this status.
#[track_caller]
fn complaint(status: i32, words: &[&str]) -> String {
    let output = store(words);
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn all_of_it_works_beside_a_running_node() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let node = Node::start(&data, &["--keep-log"]);
    let client = node.client();
    let ada = client.register("ada").await;
    let path = data.to_str().unwrap();
    let entries = |path: &str| -> u64 {
        let stat = json(&said(&["stat", path, "--json"]));
        let databases = stat["databases"].as_array().unwrap().clone();
        databases.iter().map(|database| database["entries"].as_u64().unwrap()).sum()
    };
    let before = entries(path);
    assert!(before > 0);
    client.register("alan").await;
    assert!(entries(path) > before, "what is durable is seen");
    let copy = directory.path().join("copy");
    // What is refused leaves nothing, nor does it show anyone the key.
    let inside = data.join("copies/copy");
    let refused = complaint(1, &["backup", path, inside.to_str().unwrap()]);
    assert!(refused.contains("choose a directory outside"), "{refused}");
    assert!(!data.join("copies").exists());
    let told = said(&["backup", path, copy.to_str().unwrap()]);
    assert!(told.ends_with(", with the key that signs logins\n"), "{told}");
    let sound = json(&said(&["verify", copy.to_str().unwrap(), "--json"]));
    assert_eq!(sound["entries"], entries(copy.to_str().unwrap()));
    assert!(said(&["verify", path]).starts_with("sound: "));
    assert!(!said(&["scan", path, "--limit", "3"]).is_empty());
    // The node is unaffected.
    client.register("grace").await;
    client.assert_healthy().await;

    // The end of the node does not matter either: it is killed.
    drop(node);
    assert!(entries(path) > before);

    // The copy and the log are what the node was.
    assert!(data.join("log/kept").exists());
    let restored = directory.path().join("restored").to_str().unwrap().to_owned();
    let log = format!("{path}/log");
    let late = ["restore", copy.to_str().unwrap(), &log, &restored, "--at", "1000000"];
    assert!(complaint(1, &late).contains("the log ends at position"));
    assert!(!Path::new(&restored).exists());
    said(&["restore", copy.to_str().unwrap(), &log, &restored]);
    assert_eq!(said(&["scan", &restored]), said(&["scan", path]));
    assert!(Path::new(&restored).join("signing.key").exists());

    // Another node can continue from the copy.
    let second = Node::start(&copy, &[]);
    second.client().assert_healthy().await;
    let following = second.client().get("/api/v1/following", &ada).await;
    assert_eq!(following.status, 200, "who was logged in still is: {following:?}");
}

#[tokio::test]
async fn a_node_is_not_started_on_a_data_file_that_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    drop(Node::start(directory.path(), &[]));
    let file = std::fs::OpenOptions::new().write(true).open(directory.path().join("data.mdb"));
    file.unwrap().set_len(4_096).unwrap();
    let refused = serve(directory.path(), &["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("data.mdb is cut"), "{refused:?}");
}
