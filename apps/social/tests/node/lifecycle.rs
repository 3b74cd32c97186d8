//! Start, refusal to start, stop, restart.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::config::with;
use crate::harness::{Client, Node, serve};

#[tokio::test]
async fn a_node_stops_on_a_signal_and_continues_from_its_data() {
    let data = tempfile::tempdir().unwrap();
    let mut token = String::new();
    let mut posted = Vec::new();
    for (round, signal) in ["INT", "TERM", "INT"].into_iter().enumerate() {
        let node = Node::start(data.path(), &[]);
        let shown = data.path().canonicalize().unwrap();
        assert!(node.greeting.contains(shown.to_str().unwrap()), "{}", node.greeting);
        let client = node.client();
        if round == 0 {
            token = client.register("alice").await;
        }
        let text = format!("round {round}");
        let post = client.post("/api/v1/posts", &token, &json!({ "text": text })).await;
        assert_eq!(post.status, 201, "{post:?}");
        posted.insert(0, post.body);
        let listing = client.get("/api/v1/users/alice/posts", "").await;
        assert_eq!(listing.body["posts"], json!(posted));

        node.signal(signal).await;
        let ended = node.wait();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(ended.errors, "", "stopping in order is nothing to warn of");
    }
    let ids: Vec<u64> =
        posted.iter().map(|post| post["id"].as_str().unwrap().parse().unwrap()).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
}

#[tokio::test]
async fn signals_that_stop_nothing_are_logged_and_the_node_goes_on() {
    let node = Node::fresh(&[]);
    for signal in ["HUP", "USR1", "USR2"] {
        node.signal(signal).await;
        node.wait_until_said(&format!("ignored SIG{signal}")).await;
    }
    node.signal("PIPE").await;
    node.signal("XFSZ").await;
    node.client().assert_healthy().await;
    node.signal("TERM").await;
    assert_eq!(node.wait().status.code(), Some(0));
}

#[tokio::test]
async fn a_node_whose_log_nobody_reads_serves_and_stops_in_order() {
    let data = tempfile::tempdir().unwrap();
    let mut command = with(None);
    command.args(["--log", "trace", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let greeting: Vec<String> = lines.take_while(|line| !line.ends_with("Ctrl-C")).collect();
    let address = greeting[0].strip_prefix("serving http://").unwrap().trim_end_matches('/');
    Client::new(address).assert_healthy().await;
    let stop = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(stop.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_node_tells_of_its_start_in_one_line_that_a_program_can_read() {
    let data = tempfile::tempdir().unwrap();
    let mut command = with(None);
    command.args(["--log-format", "json", "--admin-listen", "127.0.0.1:0", "--data"]);
    command.arg(data.path()).args(["--listen", "127.0.0.1:0", "--connections-max", "100"]);
    let node = Node::spawn(command);
    node.wait_until_said("\"serving\"").await;
    let (address, process) = (node.address.clone(), node.process());
    let dashboard = node.dashboard();
    node.signal("TERM").await;
    let log = node.wait().errors;
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let start = lines.into_iter().find(|line| line["message"] == "serving").unwrap();
    assert_eq!((&start["address"], &start["pid"]), (&json!(address), &json!(process)));
    assert!(dashboard.contains(start["dashboard"].as_str().unwrap()), "{start}");
    assert_eq!(start["data"], json!(data.path().canonicalize().unwrap()));
    assert_eq!((&start["connections_max"], &start["sockets_max"]), (&json!(100), &json!(90)));
    assert!(start["version"].is_string() && start["workers"].as_u64() > Some(0), "{start}");
}

#[test]
fn an_error_that_ends_the_program_is_a_line_of_json_if_the_log_is() {
    let data = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = with(None);
    command.args(["--log-format", "json", "--listen", &address, "--data"]).arg(data.path());
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let log = String::from_utf8(refused.stderr).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    let message = last["message"].as_str().unwrap();
    assert!(message.contains(&format!("cannot listen on {address}")), "{last}");
    assert_eq!(last["level"], "ERROR");
}

#[tokio::test]
async fn a_second_node_on_the_same_data_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let refused = serve(data.path(), &["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_refused(&refused, "another node");
    node.client().assert_healthy().await;
}

#[test]
fn a_port_in_use_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = serve(data.path(), &["--listen", &address]).output().unwrap();
    assert_refused(&refused, &format!("cannot listen on {address}"));
}

#[test]
fn a_data_directory_that_cannot_be_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "in the way").unwrap();
    for path in [file.clone(), file.join("below")] {
        let refused = serve(&path, &["--listen", "127.0.0.1:0"]).output().unwrap();
        assert_refused(&refused, path.to_str().unwrap());
    }
    let refused = serve(&file, &["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_refused(&refused, "it is not a directory; choose another path");
}

#[tokio::test]
async fn a_node_keeps_its_renamed_directory_and_leaves_another_node_alone_that_has_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let (data, renamed) = (directory.path().join("data"), directory.path().join("renamed"));
    let first = Node::start(&data, &[]);
    let ada = first.client().register("ada").await;
    fs::rename(&data, &renamed).unwrap();
    let second = Node::start(&data, &[]);
    let alan = second.client().register("alan").await;
    let post = async |node: &Node, token: &str, number: u32| {
        let text = format!("{number} {}", "x".repeat(900));
        let answer = node.client().post("/api/v1/posts", token, &json!({ "text": text })).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    };
    for number in 0..5 {
        post(&first, &ada, number).await;
        post(&second, &alan, number).await;
    }
    first.signal("INT").await;
    assert_eq!(first.wait().status.code(), Some(0));
    // The socket at that path is that of the second node.
    assert!(data.join("admin.sock").exists());
    drop(second);
    for (path, name) in [(&renamed, "ada"), (&data, "alan")] {
        let node = Node::start(path, &[]);
        let posts = node.client().get(&format!("/api/v1/users/{name}/posts"), "").await;
        assert_eq!(posts.body["posts"].as_array().unwrap().len(), 5, "{posts:?}");
    }
}

#[tokio::test]
async fn a_node_without_its_directory_acknowledges_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let node = Node::start(&data, &[]);
    let client = node.client();
    let token = client.register("ada").await;
    fs::remove_dir_all(&data).unwrap();
    let answer = client.post("/api/v1/posts", &token, &json!({ "text": "lost" })).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    node.wait_until_said("was removed, renamed or replaced").await;
}

#[test]
fn a_wrong_command_line_is_explained() {
    let data = tempfile::tempdir().unwrap();
    for flags in [["--listen", "nowhere"], ["--token-ttl", "soon"], ["--colour", "blue"]] {
        let refused = serve(data.path(), &flags).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert!(errors.contains(flags[0]) && errors.contains("--help"), "{errors}");
    }
}

/// Expects exit status 1, empty standard output, and one line on standard error that contains
/// `why`.
#[track_caller]
fn assert_refused(output: &Output, why: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(output.stdout.is_empty());
    assert!(errors.starts_with("social: ") && errors.contains(why), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
}
