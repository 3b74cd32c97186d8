//! A node at the limits of the system: of open files, and of their sizes.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use crate::harness::{Node, send};

/// Builds the command of a node that may open at most `files` files.
fn limited(data: &Path, files: usize) -> Command {
    let mut command = Command::new("sh");
    let node = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
    command.args(["-c", &node, env!("CARGO_BIN_EXE_social"), "--log", "warn,throng::watch=off"]);
    command.args(["serve", "--unlimited", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.args(["--admin-listen", "127.0.0.1:0"]);
    command
}

#[tokio::test]
async fn idle_connections_leave_open_files_to_the_store_and_the_admin_socket() {
    const FILES: usize = 160;
    let data = tempfile::tempdir().unwrap();
    let node = Node::spawn(limited(data.path(), FILES));
    node.wait_until_said("fewer connections are served").await;
    let client = node.client();
    let token = client.register("alice").await;
    // Whoever is refused is closed at once or gets a 503, and is replaced here.
    let mut idle = Vec::new();
    for _ in 0..6000 {
        idle.extend((0..FILES).map_while(|_| TcpStream::connect(&node.address).ok()));
        if client.metric("throng_connections_refused_total").await >= Some(FILES as f64) {
            break;
        }
        idle.truncate(FILES);
        sleep(Duration::from_millis(1)).await;
    }
    let open = client.metric("throng_connections_open").await.unwrap();
    assert_eq!(Some(open), client.metric("throng_connections_limit").await);
    let files = client.metric("process_open_fds").await.expect("a file can be opened");
    assert!(open >= 50.0 && files + 20.0 <= FILES as f64, "{open} connections, {files} files");
    let top = Command::new(env!("CARGO_BIN_EXE_social"))
        .args(["top", "--once", "--data"])
        .arg(data.path())
        .output();
    assert!(top.unwrap().status.success());
    client.publish(&token, "hello").await;
    client.assert_healthy().await;
}

#[test]
fn a_node_that_could_serve_nobody_says_so_instead_of_starting() {
    let data = tempfile::tempdir().unwrap();
    let refused = limited(data.path(), 70).output().unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("the limit of open files is 70") && errors.contains("ulimit -n"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_node_is_not_ready_while_writes_fail_and_tries_until_they_succeed() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let (node, client) = Node::with_client(&[]);
    let token = client.register("alice").await;
    let process = Pid::from_raw(node.process().try_into().unwrap());
    let limit_sizes = |current| {
        prlimit(process, Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    };
    let post = async || client.post("/api/v1/posts", &token, &json!({ "text": "hello" })).await;
    let ready = async || client.request(Method::GET, "/readyz").send().await.unwrap().status();

    limit_sizes(Some(0));
    let failed = post().await;
    assert!(failed.status >= 500, "{failed:?}");
    let unready = send(client.request(Method::GET, "/readyz")).await.unwrap();
    unready.is_problem(503, "read-only");
    node.wait_until_said("writes to the store fail").await;
    assert_eq!(ready().await, 503, "another try has failed");
    assert_eq!(client.metric("throng_store_writable").await, Some(0.0));

    limit_sizes(None);
    for _ in 0..60_000 {
        if ready().await == 200 {
            break;
        }
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(ready().await, 200);
    assert_eq!(post().await.status, 201);
    node.signal("TERM").await;
    assert_eq!(node.wait().status.code(), Some(0));
}
