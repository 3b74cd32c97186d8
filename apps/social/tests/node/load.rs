//! `social load` against a real node: its counts are the node's, and its exit status says whether
//! the node served everything.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Client, Node};
use crate::tls;

/// Builds the command that loads the node at `address` with `flags`.
fn load(address: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
    command.args(["load", &format!("http://{address}"), "--users", "4"]).args(flags);
    command
}

/// Runs a load to its end, which must have the exit status `status`. Returns its table and its report.
fn run(mut load: Command, status: i32) -> (String, Value) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("load.json");
    let output = load.arg("--json").arg(&file).output().unwrap();
    assert_status(&output, status);
    let report = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    (String::from_utf8(output.stdout).unwrap(), report)
}

#[track_caller]
fn assert_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
}

/// Returns the number of posts of all users of the load with seed 1.
async fn posts_on(client: &Client) -> u64 {
    let mut posts = 0;
    for number in 0..4 {
        let path = format!("/api/v1/users/load_1_{number}");
        // A user that is not registered yet has none.
        posts += client.get(&path, "").await.body["posts"].as_u64().unwrap_or(0);
    }
    posts
}

#[tokio::test]
async fn a_load_uses_tls_and_accepts_only_certificates_that_it_trusts() {
    let directory = tempfile::tempdir().unwrap();
    let node = tls::start(directory.path());
    let (_, port) = node.address.rsplit_once(':').unwrap();
    let url = format!("https://localhost:{port}");
    let root = tls::made("root.pem");
    let root = root.to_str().unwrap();
    let load = |url: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
        command.args(["load", url, "--users", "2", "--duration", "1s", "--rate", "50"]);
        command.args(["--mix", "reads=1,posts=1,rooms=1"]).args(more);
        command
    };
    let (_, report) = run(load(&url, &["--trust", root]), 0);
    assert_eq!(
        (&report["errors"], &report["target"]),
        (&0.into(), &url.clone().into()),
        "{report}"
    );
    assert!(report["kinds"]["say"]["requests"].as_u64().unwrap() > 0, "{report}");
    let plain = format!("http://{}", node.address);
    for (url, more, reason) in [
        (&url, &[][..], "invalid peer certificate"),
        (&url, &["--trust", "/nowhere"], "cannot read certificates in PEM from /nowhere"),
        (&url, &["--trust", "/dev/null"], "/dev/null has no certificate in PEM"),
        (&plain, &["--trust", root], "certificates are for a URL that begins with https://"),
    ] {
        let refused = load(url, more).output().unwrap();
        assert_status(&refused, 1);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains(reason), "{said}");
    }
}

#[tokio::test]
async fn the_counts_of_a_load_are_those_of_the_node() {
    let (node, client) = Node::with_client(&[]);
    let mut posts = 0;
    let mixed = ["--mix", "reads=40,posts=40,follows=10,rooms=10"];
    for (flags, loop_kind) in [
        (&["--rate", "200", "--arrivals", "even"][..], "open"),
        (&["--connections", "3"], "closed"),
        (&["--rate", "100", "--mix", "posts=1"], "open"),
    ] {
        // A later flag takes the place of an earlier one only where it is given.
        let mix = if flags.contains(&"--mix") { &[][..] } else { &mixed };
        let flags = [&["--duration", "1s"], mix, flags].concat();
        let (table, report) = run(load(&node.address, &flags), 0);
        assert_eq!(report["loop_kind"], loop_kind);
        assert_eq!((&report["errors"], &report["limited"]), (&0.into(), &0.into()), "{report}");
        let kinds = report["kinds"].as_object().unwrap();
        let requests = kinds.values().map(|kind| kind["requests"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(report["requests"], requests);
        let windows = report["windows"].as_array().unwrap().iter();
        assert_eq!(
            windows.map(|window| window["requests"].as_u64().unwrap()).sum::<u64>(),
            requests
        );
        if loop_kind == "open" && flags.contains(&"even") {
            // One request for each arrival, whether it was sent or late.
            assert_eq!(requests + report["late"].as_u64().unwrap(), 199, "{report}");
            assert_eq!(kinds.len(), 6, "{report}");
        }
        posts += kinds["post"]["requests"].as_u64().unwrap();
        assert_eq!(posts_on(&client).await, posts);
        assert!(table.contains("P99.9") && table.contains("\npost "), "{table}");
    }
    let rooms = client.get("/api/v1/rooms?prefix=load_", "").await;
    assert_eq!(rooms.body["rooms"], serde_json::json!(["load_1"]));
}

#[tokio::test]
async fn the_plot_is_well_formed_and_has_both_panels() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::fresh(&[]);
    let file = directory.path().join("load.svg");
    let flags = ["--rate", "200", "--duration", "500ms", "--plot", file.to_str().unwrap()];
    assert_status(&load(&node.address, &flags).output().unwrap(), 0);
    let svg = fs::read_to_string(&file).unwrap();
    assert_well_formed(&svg);
    for part in ["id=\"percentiles\"", "id=\"time\"", ">99%<", ">p99<", "prefers-color-scheme"] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let curve = svg.split("line all\" d=\"M").nth(1).unwrap().split('"').next().unwrap();
    assert!(curve.matches('L').count() > 50, "{curve}");
}

/// Checks that each element is closed in order, and that no text has a stray `&` or `<`.
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        assert!(!text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").contains('&'));
        let (tag, after) = tag[1..].split_once('>').unwrap();
        rest = after;
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!tag.contains('<'), "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
}

#[tokio::test]
async fn arrivals_at_a_node_that_hangs_are_errors_or_late() {
    let (node, client) = Node::with_client(&[]);
    let flags = ["--rate", "100", "--connections", "4", "--duration", "2s", "--arrivals", "even"];
    let flags = [&flags[..], &["--mix", "posts=1"]].concat();
    let command = load(&node.address, &flags);
    let loaded = thread::spawn(move || run(command, 1));
    while posts_on(&client).await == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    node.signal("STOP").await;
    let (_, report) = tokio::task::spawn_blocking(|| loaded.join().unwrap()).await.unwrap();
    node.signal("CONT").await;
    let number = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(number("requests") + number("late"), 199, "{report}");
    assert!(number("errors") == 4 && number("late") > 0, "{report}");
}

#[tokio::test]
async fn an_overload_is_said_and_counted() {
    let node = Node::fresh(&[]);
    // One connection waits for each answer, so it cannot keep a rate of one request per microsecond.
    let flags = ["--rate", "1000000", "--connections", "1", "--duration", "300ms", "--arrivals"];
    let (table, report) = run(load(&node.address, &[&flags[..], &["even"]].concat()), 0);
    let (requests, late) = (report["requests"].as_u64().unwrap(), report["late"].as_u64().unwrap());
    assert_eq!(requests + late, 299_999, "{report}");
    assert!(late > requests, "{report}");
    assert!(table.contains("OVERLOADED") && table.contains(&format!("late {late}")), "{table}");
}

#[tokio::test]
async fn a_signal_ends_a_load_with_its_results() {
    let (node, client) = Node::with_client(&[]);
    let flags = ["--duration", "2m", "--mix", "posts=1"];
    let child = load(&node.address, &flags).stdout(Stdio::piped()).spawn().unwrap();
    while posts_on(&client).await == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let command = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 0);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("requests/s") && table.contains("\npost "), "{table}");
}

#[test]
fn a_node_that_is_not_there_is_said_and_a_wrong_url_is_a_usage_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let output = load(&free, &[]).output().unwrap();
    assert_status(&output, 1);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(&format!("cannot reach a node at http://{free}")), "{errors}");
    assert!(output.stdout.is_empty());
    assert_status(&load("a/b", &[]).output().unwrap(), 2);
}

/// A server that registers users, and answers 500 to every other request that a load sends.
fn broken_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut head = [0; 4096];
                while let Ok(1..) = stream.read(&mut head) {
                    let (status, body) = match &head[..20] {
                        start if start.starts_with(b"GET /api/v1/health") => ("200 OK", "{}"),
                        start if start.starts_with(b"POST /api/v1/users") => {
                            ("201 Created", r#"{"token":"t"}"#)
                        }
                        start if start.starts_with(b"POST /api/v1/posts") => {
                            ("429 Too Many Requests", "")
                        }
                        _ => ("500 Internal Server Error", ""),
                    };
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
        }
    });
    address
}

#[test]
fn errors_give_the_exit_status_and_answers_429_do_not() {
    let address = broken_server();
    for (mix, status) in [("reads=1", 1), ("posts=1", 0)] {
        let (_, report) = run(load(&address, &["--duration", "300ms", "--mix", mix]), status);
        let requests = &report["requests"];
        assert!(requests.as_u64().unwrap() > 0);
        if status == 1 {
            assert_eq!((&report["errors"], &report["errors_by_name"]["500"]), (requests, requests));
        } else {
            assert_eq!((&report["limited"], &report["errors"]), (requests, &0.into()));
        }
    }
}

#[test]
fn a_load_of_a_limited_node_counts_what_is_limited_and_waits_for_no_long_limit() {
    // Each user creates or joins the room of the load with two writes, and has one more.
    let node = Node::fresh(&["--rate-writes", "3/d", "--rate-reads", "12/d"]);
    let flags = ["--rate", "300", "--duration", "1s", "--mix", "reads=1,posts=1,rooms=1"];
    let (_, report) = run(load(&node.address, &flags), 0);
    assert_eq!(report["errors"], 0, "{report}");
    for kind in ["timeline", "post", "say"] {
        assert!(report["kinds"][kind]["limited"].as_u64().unwrap() > 0, "{kind}: {report}");
    }

    let node = Node::fresh(&["--rate-registrations", "2/d"]);
    let output = load(&node.address, &[]).output().unwrap();
    assert_status(&output, 1);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("429") && errors.contains("try again in "), "{errors}");
}
