//! Other users of the machine have no access to a node's files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::harness::{Node, serve};

#[tokio::test]
async fn another_user_reads_nothing_that_a_node_writes() {
    let directory = tempfile::tempdir().unwrap();
    open_to_all(directory.path());
    let data = directory.path().join("data");
    let node = start_with_umask(&data, "000");
    let client = node.client();
    let token = client.register("alice").await;
    client.post("/api/v1/posts", &token, &json!({ "text": "hello" })).await;
    let copy = directory.path().join("copies/copy");
    let dump = directory.path().join("dump");
    throng_with_umask("000", &["store", "backup", text(&data), text(&copy)]);
    throng_with_umask("000", &["store", "scan", text(&data), "--output", text(&dump)]);

    assert_private(&data);
    assert_private(&directory.path().join("copies"));
    assert_private(&dump);
    for name in ["data.mdb", "lock.mdb", "log/mark", "signing.key"] {
        assert!(data.join(name).is_file(), "{name}");
    }
    assert!(fs::metadata(data.join("admin.sock")).unwrap().file_type().is_socket());

    if is_root() {
        assert_unreadable_to_another_user(&data);
        assert_unreadable_to_another_user(&copy);
        // They have none even where the directory lets them pass.
        open_to_all(&data);
        assert_unreadable_to_another_user(&data);
    }
    node.signal("INT").await;
    let ended = node.wait();
    assert_eq!(ended.errors, "", "nothing was open, so there is nothing to tell");
}

#[tokio::test]
async fn an_open_directory_of_an_older_version_is_closed_with_a_line_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(Node::start(&data, &[]));
    open_to_all(&data);
    let opened: Vec<PathBuf> = files_below(&data)
        .into_iter()
        .filter(|path| path.is_file() && !path.ends_with("signing.key"))
        .collect();
    assert!(opened.len() >= 5, "{opened:?}");
    for path in &opened {
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }
    let node = Node::start(&data, &[]);
    node.wait_until_said("their permissions were removed").await;
    assert_private(&data);
    node.client().assert_healthy().await;
}

/// A new volume contains a directory of its file system, so it is neither empty nor a store.
#[tokio::test]
async fn a_new_volume_that_is_not_empty_is_closed_at_the_first_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("volume");
    let found = data.join("lost+found");
    fs::create_dir_all(&found).unwrap();
    open_to_all(&data);
    open_to_all(&found);
    let node = Node::start(&data, &[]);
    assert_eq!(fs::metadata(&found).unwrap().permissions().mode() & 0o777, 0o755);
    fs::remove_dir(&found).unwrap();
    assert_private(&data);
    node.wait_until_said("their permissions were removed").await;
    node.client().assert_healthy().await;
}

fn start_with_umask(data: &Path, umask: &str) -> Node {
    let served = serve(data, &["--listen", "127.0.0.1:0"]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
    command.arg(served.get_program()).args(served.get_args());
    Node::spawn(command)
}

fn throng_with_umask(umask: &str, words: &[&str]) {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
    let output = command.arg(env!("CARGO_BIN_EXE_social")).args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Expects that neither group nor others have any permission on the path and everything below it.
#[track_caller]
fn assert_private(path: &Path) {
    for path in files_below(path) {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(mode, expected, "{}: {mode:o}", path.display());
    }
}

#[track_caller]
fn assert_unreadable_to_another_user(directory: &Path) {
    for path in files_below(directory).into_iter().filter(|path| path.is_file()) {
        let mut other = Command::new("cat");
        let read = other.arg(&path).uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
        assert!(!read.status.success() && read.stdout.is_empty(), "{}", path.display());
        let said = String::from_utf8(read.stderr).unwrap();
        assert!(said.contains("Permission denied"), "{said}");
    }
}

/// Returns the path and everything below it.
fn files_below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            found.extend(files_below(&entry.unwrap().path()));
        }
    }
    found
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
}

/// Returns whether the test runs as root; only root can become another user.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// User id of a user without files.
const NOBODY: u32 = 65_534;
