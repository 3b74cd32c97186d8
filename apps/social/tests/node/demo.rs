//! `social demo`: a population that a newcomer can watch, and a clean end.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Client, Node};
use crate::sockets::Socket;

/// Builds the command of a demo on free ports, whose temporary directory is made in `temporary`.
fn demo(temporary: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
    command.args(["--log", "warn,throng::watch=off", "demo", "--rate", "50"]);
    command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]).args(flags);
    command.env("TMPDIR", temporary);
    command
}

/// Logs the newcomer in, as the demo says.
async fn log_in(node: &Node, client: &Client) -> String {
    let login = node.greeting.lines().find_map(|line| line.strip_prefix("log in as ")).unwrap();
    let (name, password) = login.split_once(" with the password ").unwrap();
    client.log_in(name, password).await.token()
}

/// Asks until `found` finds something in the answer.
async fn poll<T>(
    client: &Client,
    path: &str,
    token: &str,
    found: impl Fn(&Value) -> Option<T>,
) -> T {
    for _ in 0..3000 {
        let answer = client.get(path, token).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        if let Some(found) = found(&answer.body) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{path} never showed it");
}

/// Returns the number of turns that the dashboard's metrics show.
async fn turns(dashboard: &str) -> u64 {
    let (url, token) = dashboard.split_once("#token=").unwrap();
    let metrics = reqwest::Client::new().get(format!("{url}metrics")).bearer_auth(token);
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    let workers = metrics.lines().filter(|line| line.starts_with("throng_worker_turns_total{"));
    let turns = workers.map(|line| line.split(' ').nth(1).unwrap().parse::<f64>().unwrap() as u64);
    turns.reduce(|turns, more| turns + more).unwrap_or_else(|| panic!("{metrics}"))
}

#[tokio::test]
async fn a_newcomer_sees_a_living_population_and_ctrl_c_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let node = Node::spawn(demo(temporary.path(), &["--users", "12", "--seed", "7"]));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1, "{}", node.greeting);
    let client = node.client();
    let token = log_in(&node, &client).await;

    // The newcomer follows some people when the demo announces itself, and their posts keep coming.
    let following = client.get("/api/v1/following", &token).await.body;
    assert!(following["following"].as_array().unwrap().len() >= 4, "{following}");
    let first = turns(&node.dashboard()).await;
    let newest = |page: &Value| page["posts"][0]["id"].as_str().map(str::to_owned);
    let before = poll(&client, "/api/v1/timeline", &token, newest).await;
    poll(&client, "/api/v1/timeline", &token, |page| newest(page).filter(|id| *id != before)).await;
    poll(&client, "/api/v1/timeline", &token, |page| {
        let authors = page["posts"].as_array()?.iter().map(|post| post["author"].to_string());
        (authors.collect::<std::collections::BTreeSet<_>>().len() >= 3).then_some(())
    })
    .await;
    assert!(turns(&node.dashboard()).await > first);

    // A room has a conversation, with typing.
    let rooms = client.get("/api/v1/memberships", &token).await.body;
    let room = rooms["rooms"][0].as_str().unwrap().to_owned();
    let address = node.address.clone();
    let mine = token.clone();
    let watched = tokio::task::spawn_blocking(move || {
        let (mut socket, _) = Socket::open(&address, &mine, &Value::Null);
        socket.say(&json!({ "type": "enter", "room": room, "last": null }).to_string());
        let mut wanted = vec!["typing", "said", "post"];
        while !wanted.is_empty() {
            let message = socket.next().unwrap();
            wanted.retain(|kind| message["type"] != *kind);
        }
    });
    watched.await.unwrap();

    // The population likes the newcomer's post, which it sees by its sockets.
    let post = client.publish(&token, "hello, people").await;
    let path = format!("/api/v1/users/newcomer/posts/{post}");
    poll(&client, &path, &token, |post| post["likes"].as_u64().filter(|likes| *likes > 0)).await;

    node.signal("INT").await;
    let ended = node.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.errors);
    assert!(!ended.errors.contains("WARN"), "{}", ended.errors);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn no_signal_leaves_the_temporary_directory_behind() {
    // A terminal that goes, and an impatient person, in the middle of the start.
    for signal in ["HUP", "QUIT", "TERM"] {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = demo(temporary.path(), &[]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while fs::read_dir(temporary.path()).unwrap().next().is_none() {
            assert!(child.try_wait().unwrap().is_none(), "the demo ended by itself");
            thread::sleep(Duration::from_millis(1));
        }
        let mut kill = Command::new("kill");
        assert!(
            kill.args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success()
        );
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "{signal}");
    }
}

#[tokio::test]
async fn a_directory_that_is_named_is_kept_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = ["--data", data.to_str().unwrap(), "--users", "3"];
    let flags = [&data[..], &["--duration", "1s"]].concat();
    let ended = Node::spawn(demo(directory.path(), &flags)).wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.errors);
    // A real node's variable does not make its data the demo's.
    let mut command = demo(directory.path(), &data);
    command.env("THRONG_DATA", directory.path().join("other"));
    let node = Node::spawn(command);
    let client = node.client();
    log_in(&node, &client).await;
    let path = "/api/v1/users?limit=100";
    let population = poll(&client, path, "", |page| {
        page["users"].as_array().filter(|users| users.len() == 4).cloned()
    })
    .await;
    assert!(population.contains(&json!("newcomer")), "{population:?}");
    node.signal("TERM").await;
    assert_eq!(node.wait().status.code(), Some(0));
    let left: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["data"]);

    // The people of another seed have other passwords, also for the newcomer.
    let output = demo(directory.path(), &[&data[..], &["--seed", "2"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("the population cannot enter") && errors.contains("401"), "{errors}");
}
