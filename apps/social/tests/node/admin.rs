//! Inspection of a running node: over the admin socket, by `throng top --once`, by `/metrics`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Node, metric, serve};

/// Client that can send any line.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn connect(data: &Path) -> Raw {
        let stream = UnixStream::connect(data.join("admin.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Raw(BufReader::new(stream))
    }

    fn say(&mut self, line: &str) -> Value {
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
        self.hear()
    }

    fn hear(&mut self) -> Value {
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["v"], 1);
        answer
    }

    fn ends(mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

fn top(data: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
    command.args(["top", "--data"]).arg(data).args(flags).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap()
}

#[tokio::test]
async fn the_socket_is_for_its_owner_only_and_goes_with_the_node() {
    let data = tempfile::tempdir().unwrap();
    let socket = data.path().join("admin.sock");
    for signal in ["KILL", "INT"] {
        // The second node finds the socket that the killed node left behind.
        let node = Node::start(data.path(), &[]);
        let found = fs::symlink_metadata(&socket).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        assert!(stdout(&top(data.path(), &["--once"])).contains("processes"));
        node.signal(signal).await;
        node.wait();
        assert_eq!(socket.exists(), signal == "KILL");
    }
    let ended = top(data.path(), &["--once"]);
    assert_eq!(ended.status.code(), Some(1));
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert!(errors.starts_with("social: no node is running"), "{errors}");
    assert!(errors.contains(socket.to_str().unwrap()) && errors.contains("start the node"));
}

#[tokio::test]
async fn a_malformed_line_is_answered_and_the_next_line_works() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let mut client = Raw::connect(data.path());
    for (line, kind) in [
        ("\n", "malformed"),
        ("metrics\n", "malformed"),
        ("{\"v\":1,\"get\":\"salary\"}\n", "malformed"),
        ("{\"v\":1,\"get\":\"top\",\"by\":\"beauty\",\"limit\":1}\n", "malformed"),
        ("{\"v\":7,\"get\":\"metrics\"}\n", "version"),
        ("{\"v\":1,\"get\":\"info\",\"pid\":\"no pid\"}\n", "no_process"),
        ("{\"v\":1,\"get\":\"info\",\"pid\":\"ffffffffffffffff\"}\n", "no_process"),
        ("\u{0}\u{1}\n", "malformed"),
    ] {
        let answer = client.say(line);
        assert_eq!(answer["error"]["kind"], kind, "{line} {answer}");
        assert!(answer["error"]["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        let metrics = &client.say("{\"v\":1,\"get\":\"metrics\"}\n")["metrics"];
        assert!(metrics["process_limit"].as_u64().unwrap() > 0, "{metrics}");
    }
    let long = client.say(&"x".repeat(5000));
    assert_eq!(long["error"]["kind"], "malformed");
    assert!(client.ends());

    // Clients beyond the maximum are refused; when others have gone, there is room again.
    let mut crowd: Vec<Raw> = (0..16).map(|_| Raw::connect(data.path())).collect();
    for client in &mut crowd {
        assert!(client.say("{\"v\":1,\"get\":\"metrics\"}\n")["metrics"].is_object());
    }
    let mut late = Raw::connect(data.path());
    assert_eq!(late.hear()["error"]["kind"], "busy");
    let refused = top(data.path(), &["--once"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("16 clients"));
    drop((crowd, late));
    while !top(data.path(), &["--once"]).status.success() {}
    node.client().assert_healthy().await;
}

#[tokio::test]
async fn users_are_seen_as_processes() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    for name in ["alice", "bob"] {
        node.client().register(name).await;
    }
    let mut client = Raw::connect(data.path());
    let metrics = client.say("{\"v\":1,\"get\":\"metrics\"}\n")["metrics"].clone();
    assert!(metrics["processes"].as_u64().unwrap() >= 2, "{metrics}");
    let workers = metrics["workers"].as_array().unwrap();
    let turns: u64 = workers.iter().map(|worker| worker["turns"].as_u64().unwrap()).sum();
    assert!(turns >= 2, "{metrics}");

    let list = client.say("{\"v\":1,\"get\":\"list\",\"limit\":100}\n")["list"].clone();
    let pids = list["pids"].as_array().unwrap();
    assert!(pids.len() >= 2 && list["more"] == json!(false), "{list}");
    let one = client.say("{\"v\":1,\"get\":\"list\",\"limit\":1}\n")["list"].clone();
    assert_eq!((one["pids"].as_array().unwrap().len(), &one["more"]), (1, &json!(true)));

    let mut kinds = Vec::new();
    for pid in pids {
        let line = json!({ "v": 1, "get": "info", "pid": pid }).to_string() + "\n";
        let info = client.say(&line)["info"].clone();
        assert_eq!(&info["pid"], pid);
        assert!(info["memory_bytes"].as_u64().unwrap() >= 64, "{info}");
        kinds.push(info["kind"].as_str().unwrap().to_owned());
    }
    assert!(kinds.iter().filter(|kind| kind.contains("User")).count() >= 2, "{kinds:?}");

    let by_memory = stdout(&top(data.path(), &["--once", "--by", "memory"])).to_owned();
    assert!(by_memory.contains("PID") && by_memory.contains("User"), "{by_memory}");
    assert_eq!(by_memory.matches("User").count(), 2, "{by_memory}");
    assert!(by_memory.contains("user/alice (User)"), "{by_memory}");
    let found = stdout(&top(data.path(), &["--once", "--filter", "USER/b"])).to_owned();
    assert!(found.contains("user/bob (User)") && !found.contains("alice"), "{found}");
    let sums = stdout(&top(data.path(), &["--once", "--group", "--filter", "user"])).to_owned();
    let row: Vec<&str> = sums.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row[..2], ["User", "2"], "{sums}");
    let first = client.say("{\"v\":1,\"get\":\"top\",\"by\":\"memory\",\"limit\":9}\n");
    let second =
        client.say("{\"v\":1,\"get\":\"top\",\"by\":\"memory\",\"limit\":1,\"offset\":1}\n");
    assert_eq!(second["top"].as_array().unwrap().len(), 1);
    assert_eq!(second["top"][0]["pid"], first["top"][1]["pid"]);
    let list = client.say("{\"v\":1,\"get\":\"list\",\"limit\":1,\"filter\":\"user/\"}\n");
    let list = &list["list"];
    assert_eq!((list["pids"].as_array().unwrap().len(), &list["more"]), (1, &json!(true)));
    let limited = stdout(&top(data.path(), &["--once", "--limit", "1"])).to_owned();
    assert_eq!(limited.lines().skip_while(|line| !line.is_empty()).count(), 3, "{limited}");
    let tree = stdout(&top(data.path(), &["--once", "--tree"])).to_owned();
    assert!(tree.contains("CHILDREN"), "{tree}");
}

#[tokio::test]
async fn prometheus_finds_what_it_reads() {
    let node = Node::fresh(&[]);
    node.client().register("alice").await;
    let answer = node.client().request(Method::GET, "/metrics").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text().await.unwrap();
    let value = |name: &str| -> f64 {
        metric(&text, name).unwrap_or_else(|| panic!("{name} is missing: {text}"))
    };
    assert!(value("throng_processes") >= 1.0);
    assert!(value("throng_processes_spawned_total") >= value("throng_processes"));
    assert!(value("throng_worker_turns_total{worker=\"0\"}") >= 0.0);
    // The user, and other entities that the registration has changed.
    assert!(value("throng_entities_activated_total") >= 1.0);
    assert!(value("throng_entities_live") >= 1.0);
    assert!(value("throng_entities_live") <= value("throng_entities_activated_total"));
    // An entity that is only asked whether it exists, and does not, leaves memory at once.
    let passivated = value("throng_entities_passivated_total");
    assert!(passivated < value("throng_entities_activated_total"));
    assert!(value("throng_store_entries") >= value("throng_entities_stored"));
    assert!(value("throng_entities_stored") >= 1.0);
    assert!(value("throng_store_batches_total") >= value("throng_store_commits_total"));
    assert!(value("throng_store_commits_total") >= 1.0);
    assert!(value("throng_store_file_bytes") > 0.0);
    assert!(value("throng_store_file_bytes") <= value("throng_store_map_bytes"));
    assert_eq!(value("throng_store_writable"), 1.0);
    // The registration, and this connection.
    assert_eq!(value("throng_http_answers_total{route=\"/api/v1/users\",status=\"2xx\"}"), 1.0);
    assert!(value("throng_connections_open") >= 1.0);
    assert!(value("throng_connections_limit") >= value("throng_sockets_limit"));
    assert_eq!(
        (value("throng_sockets_open"), value("throng_socket_frames_dropped_total")),
        (0.0, 0.0)
    );
    assert!(text.contains("\nthrong_build_info{version="), "{text}");
    assert!(value("process_open_fds") <= value("process_max_fds"));
    assert!(value("process_resident_memory_bytes") > value("throng_memory_bytes"));
    assert!(value("process_cpu_seconds_total") > 0.0 && value("process_start_time_seconds") > 1e9);
    let memory = value("throng_memory_bytes") / value("throng_processes");
    assert!(memory >= 64.0, "{memory}");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut names: Vec<&str> = types.map(|line| line.split(' ').next().unwrap()).collect();
    let families = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), families, "each family comes once");
    assert!(value("throng_store_snapshot_lag_commits") <= value("throng_store_commits_total"));
}

#[test]
fn a_directory_without_a_node_is_explained() {
    let data = tempfile::tempdir().unwrap();
    let output = top(data.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("social: no node is running"), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
}

#[tokio::test]
async fn without_a_terminal_the_live_view_says_so() {
    let data = tempfile::tempdir().unwrap();
    let _node = Node::start(data.path(), &[]);
    let output = top(data.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--once"));
}

#[test]
fn a_file_that_is_not_a_socket_is_not_removed() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("admin.sock");
    fs::write(&file, "precious").unwrap();
    let refused = serve(data.path(), &["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(errors.contains("admin.sock") && errors.contains("--admin-socket"), "{errors}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}
