//! The durable workloads, on every runtime that has them.

use crate::check_on;

const RUNTIMES: [&str; 3] = ["throng", "tokio+heed", "tellus-memory"];

/// The percentiles of calls.
const PERCENTILES: [(&str, &str); 3] = [("p50_ns", "ns"), ("p99_ns", "ns"), ("p999_ns", "ns")];

/// A rate, the percentiles, and further metrics.
fn metrics(
    before: &[(&'static str, &'static str)],
    after: &[(&'static str, &'static str)],
) -> Vec<(&'static str, &'static str)> {
    [before, &PERCENTILES, after].concat()
}

#[test]
fn durable_turns_is_verified_on_each_runtime() {
    let metrics = metrics(
        &[("turns_per_s", "1/s")],
        &[
            ("written_bytes_per_turn", "bytes"),
            ("device_bytes_per_turn", "bytes"),
            ("disk_bytes_per_entity", "bytes"),
        ],
    );
    // Many counters, a hot counter, a single call at a time, reads among the turns, and reads only.
    for settings in [
        ["--count", "3000", "--set", "entities=500", "--set", "inflight=100"],
        ["--count", "300", "--set", "entities=1", "--set", "inflight=100"],
        ["--count", "50", "--set", "entities=20", "--set", "inflight=1"],
        ["--count", "3000", "--set", "entities=500", "--set", "reads=50"],
        ["--count", "3000", "--set", "entities=500", "--set", "reads=100"],
    ] {
        check_on(&RUNTIMES, "2", "durable-turns", &settings, &metrics);
    }
    let alone = ["--count", "1000", "--set", "entities=500", "--set", "inflight=100"];
    check_on(&RUNTIMES, "1", "durable-turns", &alone, &metrics);
    let timed = ["--set", "seconds=1", "--set", "entities=500", "--set", "cap=100"];
    check_on(&RUNTIMES, "2", "durable-turns", &timed, &metrics);
}

#[test]
fn durable_live_is_verified() {
    let metrics = [
        ("bytes_per_entity", "bytes"),
        ("settled_rss_bytes", "bytes"),
        ("settled_anonymous_bytes", "bytes"),
        ("peak_rss_bytes", "bytes"),
        ("shutdown_s", "s"),
    ];
    for workers in ["1", "2"] {
        let settings = ["--count", "2000", "--set", "settle=0"];
        check_on(&["throng"], workers, "durable-live", &settings, &metrics);
    }
}

#[test]
fn activate_is_verified() {
    let metrics = metrics(
        &[("activations_per_s", "1/s")],
        &[("rss_growth_bytes", "bytes"), ("disk_reads_per_s", "1/s")],
    );
    let check = |settings: &[&str]| {
        let settings = [&["--set", "entities=2000"], settings].concat();
        check_on(&["throng"], "2", "activate", &settings, &metrics);
    };
    check(&["--count", "1000"]);
    // More activations than counters, with a limit of live counters and without.
    check(&["--count", "5000", "--set", "cap=200"]);
    check(&["--count", "5000", "--set", "cold=1"]);
    // A round of so many counters takes far longer than a caller may lose its processor for, after which it would
    // call a counter that its next round has just activated.
    check(&["--set", "seconds=1", "--set", "cap=200", "--set", "entities=30000"]);
}

#[test]
fn durable_rest_is_verified() {
    let metrics = metrics(
        &[
            ("disk_bytes_per_entity", "bytes"),
            ("start_clean_s", "s"),
            ("start_killed_s", "s"),
            ("anonymous_bytes", "bytes"),
            ("turns_per_s", "1/s"),
        ],
        &[("file_growth_bytes", "bytes")],
    );
    let settings = ["--count", "2000", "--set", "seconds=1", "--set", "killed=1000"];
    check_on(&["throng"], "2", "durable-rest", &settings, &metrics);
    let capped = [&settings[..], &["--set", "cap=100", "--set", "inflight=50"]].concat();
    check_on(&["throng"], "1", "durable-rest", &capped, &metrics);
}
