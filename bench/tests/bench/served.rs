//! Runs the workloads whose server and client are processes of their own.

use super::{bench, check_on, output, status, stderr};

#[test]
fn http_social_is_verified() {
    let metrics = [
        ("requests_per_s", "1/s"),
        ("p50_ns", "ns"),
        ("p99_ns", "ns"),
        ("post_p50_ns", "ns"),
        ("post_p99_ns", "ns"),
        ("reads_per_s", "1/s"),
        ("server_cpu_ns", "ns"),
        ("client_cpu_ns", "ns"),
    ];
    let check = |workers, settings: &str| {
        let settings: Vec<&str> = settings.split(' ').collect();
        check_on(&["throng", "axum-hello"], workers, "http-social", &settings, &metrics);
    };
    // More posts than a page of either size has; pages that are not full; more connections than requests.
    check("2", "--count 200 --set users=5 --set connections=5 --set follows=3 --set posts=101");
    check("1", "--count 100 --set users=3 --set connections=3 --set follows=2 --set posts=2");
    check("2", "--count 3 --set users=6 --set connections=5 --set follows=9 --set posts=1");
}

#[test]
fn http_social_refuses_more_connections_than_users() {
    let few =
        ["--set", "users=3", "--set", "connections=4", "--set", "follows=1", "--set", "posts=1"];
    let run = ["run", "http-social", "--quick", "--runtime", "throng"];
    let output = output(bench(&[&run[..], &few].concat()));
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("fewer connections"), "{}", stderr(&output));
}

#[test]
fn chat_is_verified() {
    let metrics = [
        ("deliveries_per_s", "1/s"),
        ("p50_ns", "ns"),
        ("p99_ns", "ns"),
        ("p999_ns", "ns"),
        ("bytes_per_idle_connection", "bytes"),
        ("server_cpu_ns", "ns"),
        ("client_cpu_ns", "ns"),
    ];
    let check = |workers, settings: &str| {
        let settings: Vec<&str> = settings.split(' ').chain(["--set", "settle=0"]).collect();
        check_on(&["throng", "tokio"], workers, "chat", &settings, &metrics);
    };
    check("2", "--count 3000 --set sockets=60 --set room=6 --set senders=3");
    check("1", "--count 2000 --set sockets=40 --set room=40 --set rate=2000");
    // Fewer deliveries than sockets.
    check("2", "--count 1 --set sockets=3 --set room=1");
}

#[test]
fn chat_refuses_rooms_that_are_not_full() {
    let settings = ["--set", "sockets=30", "--set", "room=7", "--quick"];
    let run = ["run", "chat", "--runtime", "throng,tokio"];
    let output = output(bench(&[&run[..], &settings].concat()));
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("do not fill rooms of 7"), "{}", stderr(&output));
}

#[test]
fn chat_names_the_limit_of_open_files() {
    let program = env!("CARGO_BIN_EXE_bench");
    let run = "run chat --runtime tokio --runs 1 --set sockets=400 --set room=10";
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &format!("ulimit -n 500; exec {program} {run}")]);
    let output = output(limited);
    assert_eq!(status(&output), 1);
    let reason = "400 sockets need 600 open files in each process, and the system allows 500";
    assert!(stderr(&output).contains(reason), "{}", stderr(&output));
}
