//! Examples of deployment: their flags and variables exist, their settings are valid, and a node
//! speaks systemd's protocol.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::config::with;
use crate::harness::{Node, serve};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

/// Returns the words of a text that start with `start`, up to the first byte that is in no flag and
/// no variable.
fn words(text: &str, start: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.split(|c: char| !is_part(c))
        .filter(|word| word.starts_with(start))
        .map(str::to_owned)
        .collect()
}

fn help(command: &str) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_social")).args([command, "--help"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_flag_and_variable_in_the_examples_exists() {
    let help = |commands: &[&str]| commands.iter().map(|command| help(command)).collect::<String>();
    let unit = fs::read_to_string(example("social.service")).unwrap();
    let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    let used = words(start, "--");
    assert!(used.len() >= 2 && used.is_subset(&words(&help(&["serve"]), "--")), "{used:?}");

    let container = fs::read_to_string(example("Containerfile")).unwrap();
    let check = container.lines().find(|line| line.starts_with("HEALTHCHECK")).unwrap();
    let used = words(check.split_once("CMD").unwrap().1, "--");
    assert!(!used.is_empty() && used.is_subset(&words(&help(&["top"]), "--")), "{used:?}");
    let used = words(&container, "THRONG_");
    assert!(used.len() >= 3 && used.is_subset(&words(&help(&["serve"]), "THRONG_")), "{used:?}");
}

#[test]
fn the_settings_in_the_examples_are_valid() {
    let output = with(Some(&example("social.toml"))).arg("--print-config").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("origins = [\"https://throng.example\"] # file"), "{text}");
}

#[tokio::test]
async fn a_node_notifies_its_supervisor_and_serves_a_linked_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let supervisor = UnixDatagram::bind(&path).unwrap();
    supervisor.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let notice = || {
        let mut notice = [0; 64];
        let bytes = supervisor.recv(&mut notice).unwrap();
        String::from_utf8(notice[..bytes].to_vec()).unwrap()
    };
    // With DynamicUser, systemd makes the directory of the state a link.
    let (data, link) = (directory.path().join("private"), directory.path().join("linked"));
    fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink(&data, &link).unwrap();
    let mut command = serve(&link, &["--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &path);
    let node = Node::spawn(command);
    assert_eq!(notice(), "READY=1\n");
    node.signal("TERM").await;
    assert_eq!(notice(), "STOPPING=1\n");
    assert_eq!(node.wait().status.code(), Some(0));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_supervisor_may_have_an_abstract_socket_or_none_that_answers() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let directory = tempfile::tempdir().unwrap();
    let name = format!("throng-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let supervisor = UnixDatagram::bind_addr(&address).unwrap();
    supervisor.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for (socket, answers) in [(format!("@{name}"), true), ("/nowhere/notify".to_owned(), false)] {
        let mut command = serve(directory.path(), &["--listen", "127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", socket);
        let node = Node::spawn(command);
        if answers {
            let mut notice = [0; 64];
            let bytes = supervisor.recv(&mut notice).unwrap();
            assert_eq!(&notice[..bytes], b"READY=1\n");
        }
        node.signal("TERM").await;
        let ended = node.wait();
        assert_eq!(ended.status.code(), Some(0));
        assert_eq!(ended.errors.contains("cannot notify the supervisor"), !answers, "{ended:?}");
    }
}
