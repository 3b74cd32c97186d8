//! The microblog: every part and graph, with one worker and with two.

use serde_json::Value;

use crate::program::{json_rows, run, status, stderr};

/// Runs `social` once on each row of this program, and checks that the rows are verified. Returns their metrics.
#[track_caller]
fn metrics(settings: &str) -> Vec<String> {
    let runtimes = "throng,tokio,actix,actix-arbiters,kameo,ractor";
    let line = format!("run social --json --quick --runtime {runtimes} {settings}");
    let output = run(&line);
    assert_eq!(status(&output), 0, "{settings}: {}", stderr(&output));
    let rows = json_rows(&output);
    assert_eq!(rows.len(), runtimes.split(',').count(), "{rows:?}");
    let of_row = |row: &Value| -> Vec<String> {
        assert_eq!(row["verified"], true, "{row}");
        for name in ["latency", "round"] {
            let quantiles = row["quantiles"][name].as_array().expect("the distribution is there");
            assert_eq!(quantiles.len(), 10);
        }
        let metrics = row["metrics"].as_object().expect("the metrics are an object");
        assert!(metrics.values().all(|metric| metric["median"].as_f64() > Some(0.0)), "{row}");
        metrics.keys().cloned().collect()
    };
    let all: Vec<_> = rows.iter().map(of_row).collect();
    assert!(all.iter().all(|metrics| *metrics == all[0]), "{all:?}");
    all[0].clone()
}

const TIMES: [&str; 6] =
    ["p50_ns", "p99_ns", "p999_ns", "round_p50_ns", "round_mean_ns", "register_ns"];

#[test]
fn each_part_of_social_is_verified_and_has_the_rates_of_its_requests() {
    let [deliveries, posts, timelines, profiles] =
        ["deliveries_per_s", "posts_per_s", "timelines_per_s", "profiles_per_s"];
    for (part, rates) in [
        ("mix", &[deliveries, posts, timelines, profiles][..]),
        ("deliveries", &[deliveries, posts]),
        ("timelines", &[timelines]),
        ("profiles", &[profiles]),
        ("redirects", &["redirects_per_s"]),
    ] {
        for workers in ["1", "2"] {
            let settings = format!("--set part={part} --workers {workers}");
            let small = "--count 300 --set requests=2000 --set users_per_process=70";
            let expected = [rates, &TIMES, &["follow_ns"]].concat();
            assert_eq!(metrics(&format!("{settings} {small}")), expected);
        }
    }
}

#[test]
fn the_mean_of_the_rounds_is_between_the_fastest_and_the_slowest() {
    let output = run("run social --json --quick --runtime throng --count 50 --set clients=2 \
                      --set requests=100 --set rounds=5 --set dropped=1 --set part=timelines");
    let row = &json_rows(&output)[0];
    let median = |name: &str| row["metrics"][name]["median"].as_f64().expect("there is a metric");
    let rounds = row["quantiles"]["round"].as_array().expect("there is a distribution");
    let [least, most] = [0, 9].map(|at: usize| rounds[at].as_f64().expect("it is a number"));
    // The quantiles have three digits.
    let (mean, deviation) = (median("round_mean_ns"), median("round_deviation_ns"));
    assert!(least * 0.999 <= mean && mean <= most * 1.001, "{row}");
    assert!(0.0 < deviation && deviation <= (most - least) * 1.01 + mean * 0.01, "{row}");
}

#[test]
fn each_graph_of_social_is_verified_at_its_edges() {
    for settings in [
        // A user that most follow; one user per process; fewer requests than clients.
        "--count 500 --set graph=zipf --set part=deliveries --set requests=1000",
        "--count 200 --set graph=zipf --set users_per_process=1 --set requests=1000",
        "--count 10 --set requests=20 --set clients=50",
        // One client; rounds that are not counted; a client that reads everything, or nothing.
        "--count 100 --set clients=1 --set rounds=3 --set dropped=2 --set requests=200",
        "--count 100 --set requests=500 --set read=1000",
        "--count 100 --set requests=500 --set read=0",
        // Exactly as many followers each; a timeline with all posts of all others.
        "--count 50 --set graph=ring --set follows=1 --set part=deliveries --set requests=200",
        "--count 50 --set graph=ring --set follows=90 --set part=deliveries --set requests=200",
    ] {
        metrics(settings);
    }
    // Without followers there are no deliveries; a single user follows nobody.
    for settings in ["--count 50 --set follows=0", "--count 1"] {
        let settings = format!("{settings} --set part=deliveries --set requests=200");
        assert_eq!(metrics(&settings), [&["posts_per_s"][..], &TIMES].concat());
    }
}

#[test]
fn a_ring_has_as_many_deliveries_per_post_as_follows() {
    let ring = "--count 50 --set graph=ring --set follows=7 --set part=deliveries";
    let run_twice = "run social --json --runs 2 --runtime throng --set requests=500";
    let output = run(&format!("{run_twice} {ring}"));
    let rows = json_rows(&output);
    let rate = |run: &Value, name: &str| run[name].as_f64().expect("there is a rate");
    let runs = rows[0]["runs"].as_array().expect("the runs are a list");
    assert_eq!(runs.len(), 2, "{}", stderr(&output));
    for run in runs {
        let per_post = rate(run, "deliveries_per_s") / rate(run, "posts_per_s");
        assert!((per_post - 7.0).abs() < 1e-6, "{run}");
    }
}

#[test]
fn rounds_of_which_all_are_dropped_are_refused() {
    let output = run("run social --count 10 --quick --runtime throng --set dropped=1");
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("dropped must be less than rounds"), "{}", stderr(&output));
}
