//! Settings from a file, the environment and flags.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::Node;

/// Builds `social serve` with a file of settings, if any, and without the environment's settings.
pub(crate) fn with(file: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_social"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("THRONG_")) {
            command.env_remove(name);
        }
    }
    command.arg("serve");
    if let Some(file) = file {
        command.arg("--config").arg(file);
    }
    command
}

#[track_caller]
fn printed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.arg("--print-config").output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_no_panic() {
    let data = tempfile::tempdir().unwrap();
    let mut settings = with(None);
    settings.arg("--print-config");
    let mut token = Command::new(env!("CARGO_BIN_EXE_social"));
    token.args(["admin-token", "--data"]).arg(data.path());
    for (mut command, error) in [
        (settings, "social: cannot print the settings: No space left"),
        (
            token,
            "social: the admin token was replaced and cannot be printed; run this command again: No space left",
        ),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with(error), "{said}");
    }
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("throng.toml");
    fs::write(
        &file,
        "# settings\nheader-timeout = \"1s\"\nrequest-timeout = \"2s\"\ndrain-timeout = '3s'\n\
         connections-max = 1_000\nkeep-log = true\nlog = \"debug\"\n\
         origins = [\"https://a.example\", \"https://b.example\"]\n",
    )
    .unwrap();
    let mut command = with(Some(&file));
    command.env("THRONG_REQUEST_TIMEOUT", "4s").env("THRONG_DRAIN_TIMEOUT", "5s");
    let text = printed(command.args(["--drain-timeout", "6s"]));
    for line in [
        "header-timeout = \"1s\" # file",
        "request-timeout = \"4s\" # environment",
        "drain-timeout = \"6s\" # flag",
        "token-ttl = \"30d\" # default",
        "connections-max = 1000 # file",
        "keep-log = true # file",
        "log = \"debug\" # file",
        "origins = [\"https://a.example\", \"https://b.example\"] # file",
        "# admin-socket has no value # default",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line}\n{text}");
    }

    // The output is a file with the same settings, and the environment can name it.
    let again = directory.path().join("again.toml");
    fs::write(&again, &text).unwrap();
    let values = |text: &str| -> toml::Table { text.parse().unwrap() };
    let reread = printed(with(None).env("THRONG_CONFIG", &again));
    assert_eq!(values(&reread), values(&text));
    assert!(reread.contains("drain-timeout = \"6s\" # file"), "{reread}");
}

#[test]
fn a_bound_of_zero_that_would_stop_the_service_is_refused() {
    const NUMBERS: [&str; 2] = ["--connections-max", "--connections-per-network-max"];
    const TIMES: [&str; 3] = ["--token-ttl", "--header-timeout", "--request-timeout"];
    let numbers = NUMBERS.map(|flag| (flag, "0", "a maximum is a whole number of at least 1"));
    let times = TIMES.map(|flag| (flag, "0s", "this duration must be above zero"));
    for (flag, value, sentence) in numbers.into_iter().chain(times) {
        let output = with(None).args([flag, value, "--print-config"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flag}: {said}");
        assert!(said.contains(flag) && said.contains(sentence), "{said}");
    }
    // A node may stop at once, and do without sockets.
    let text = printed(with(None).args(["--drain-timeout", "0s", "--sockets-max", "0"]));
    for line in ["drain-timeout = \"0s\" # flag", "sockets-max = 0 # flag"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_switch_can_be_set_and_unset_by_the_environment() {
    let text = printed(with(None).env("THRONG_KEEP_LOG", "true"));
    assert!(text.contains("keep-log = true # environment"), "{text}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("throng.toml");
    fs::write(&file, "keep-log = true\n").unwrap();
    let text = printed(with(Some(&file)).env("THRONG_KEEP_LOG", "false"));
    assert!(text.contains("keep-log = false # environment"), "{text}");
}

#[test]
fn a_wrong_file_is_explained_with_its_name_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("throng.toml");
    let name = file.display();
    for (text, expected) in [
        (
            "\n\ndrain-timeot = '1s'",
            "3: there is no setting \"drain-timeot\"; did you mean \"drain-timeout\"?",
        ),
        ("colour = 'blue'", "1: there is no setting \"colour\"; see"),
        ("config = 'other.toml'", "1: there is no setting \"config\""),
        ("print-config = true", "1: there is no setting \"print-config\""),
        ("[data]\npath = 'x'", "1: the value of data must be a string, not table"),
        ("listen = 7070", "1: the value of listen must be a string, not integer"),
        ("keep-log = 'yes'", "1: the value of keep-log must be true or false, not string"),
        (
            "connections-max = '7'",
            "1: the value of connections-max must be a whole number, not string",
        ),
        (
            "origins = 'https://a.example'",
            "1: the value of origins must be an array of strings, not string",
        ),
        ("connections-max = -1", "1: invalid value \"-1\" for connections-max"),
        ("origins = ['a.example']", "1: invalid value \"a.example\" for origins: an origin is"),
        ("token-ttl = '1 moon'", "1: invalid value \"1 moon\" for token-ttl: unknown time unit"),
        ("data = 'a'\ndata = 'b'", "2: the file is not TOML: duplicate key"),
        ("data", "1: the file is not TOML"),
    ] {
        fs::write(&file, text).unwrap();
        // A value that a flag overrides must be valid, too.
        let output = with(Some(&file)).args(["--token-ttl", "1d"]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}: {errors}");
        assert!(errors.starts_with(&format!("social: {name}:{expected}")), "{text}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    let missing = directory.path().join("missing.toml");
    let output = with(Some(&missing)).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains(missing.to_str().unwrap()), "{errors}");
}

#[test]
fn a_wrong_variable_is_explained_by_its_setting() {
    let output = with(None).env("THRONG_TOKEN_TTL", "soon").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("--token-ttl") && errors.contains("soon"), "{errors}");
}

#[tokio::test]
async fn a_node_runs_by_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let (file, data) = (directory.path().join("throng.toml"), directory.path().join("data"));
    let text = format!("listen = \"127.0.0.1:0\"\ndata = {:?}\nlog = \"warn\"\n", data);
    fs::write(&file, text).unwrap();
    let node = Node::spawn(with(Some(&file)));
    node.client().assert_healthy().await;
    assert!(data.join("admin.sock").exists());
}
