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
    let run = ["run", "http-social", "--runs", "1", "--runtime", "throng"];
    let output = output(bench(&[&run[..], &few].concat()));
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("fewer connections"), "{}", stderr(&output));
}
