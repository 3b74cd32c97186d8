//! Runs the workloads whose server and client are processes of their own.

use super::program::{output, run, status, stderr};

#[test]
fn http_social_refuses_more_connections_than_users() {
    let few = "--set users=3 --set connections=4 --set follows=1 --set posts=1";
    let output = run(&format!("run http-social --quick --runtime throng {few}"));
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("fewer connections"), "{}", stderr(&output));
}

#[test]
fn chat_refuses_rooms_that_are_not_full() {
    let output = run("run chat --runtime throng,tokio --set sockets=30 --set room=7 --quick");
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("do not fill rooms of 7"), "{}", stderr(&output));
}

#[test]
fn chat_names_the_limit_of_open_files() {
    let program = env!("CARGO_BIN_EXE_bench");
    let run = "run chat --runtime tokio --runs 1 --set sockets=400 --set room=10";
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &format!("ulimit -n 500; exec {program} {run}")]);
    let output = output(&mut limited);
    assert_eq!(status(&output), 1);
    let reason = "400 sockets need 600 open files in each process, and the system allows 500";
    assert!(stderr(&output).contains(reason), "{}", stderr(&output));
}
