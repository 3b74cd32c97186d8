//! Runs the built program with small counts, as users run it.

mod durable;
mod served;
mod social;
mod stores;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const IN_THIS_PROGRAM: [&str; 8] =
    ["throng", "tokio", "smol", "actix", "kameo", "ractor", "tellus", "threads"];
const SHAPED: [&str; 7] =
    ["throng", "tokio", "tokio-recv-many", "tokio-current-thread", "actix", "kameo", "ractor"];
const SHAPED_INSIDE: [&str; 10] = [
    "throng",
    "tokio",
    "tokio-recv-many",
    "tokio-current-thread",
    "smol",
    "actix",
    "actix-arbiters",
    "kameo",
    "ractor",
    "threads",
];
/// The runtimes whose processes are actors, and tokio.
const ACTORS_AND_TOKIO: [&str; 6] = ["throng", "tokio", "actix", "kameo", "ractor", "tellus"];
const STORES: [&str; 4] = ["throng", "heed", "redb", "fjall"];

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(arguments);
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("the program starts")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal ended it")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json_rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// Runs a workload on every runtime of this program, and checks each row's form and verification.
#[track_caller]
fn check(workload: &str, settings: &[&str], metrics: &[(&str, &str)]) {
    // On a single worker, spinning or starvation shows as a run that never ends.
    for workers in ["1", "2"] {
        check_on(&IN_THIS_PROGRAM, workers, workload, settings, metrics);
    }
}

/// Runs a shape on every runtime that has it, and checks each row's form and verification.
#[track_caller]
fn check_shape(workload: &str, settings: &[&str], metrics: &[(&str, &str)]) {
    for workers in ["1", "2"] {
        check_on(&SHAPED_INSIDE, workers, workload, settings, metrics);
    }
}

#[track_caller]
fn check_on(
    expected: &[&str],
    workers: &str,
    workload: &str,
    settings: &[&str],
    metrics: &[(&str, &str)],
) {
    check_rows(
        expected,
        workload,
        &[&["--quick", "--workers", workers], settings].concat(),
        metrics,
        1,
    );
}

/// Runs a workload on the expected runtimes, and checks that each has a verified row of so many runs.
#[track_caller]
fn check_rows(
    expected: &[&str],
    workload: &str,
    options: &[&str],
    metrics: &[(&str, &str)],
    runs: usize,
) {
    let runtimes = expected.join(",");
    let chosen = ["run", workload, "--json", "--runtime", &runtimes];
    let output = output(bench(&[&chosen[..], options].concat()));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let rows = json_rows(&output);
    let runtimes: Vec<&str> = rows.iter().filter_map(|row| row["runtime"].as_str()).collect();
    assert_eq!(runtimes, expected);
    for row in &rows {
        let keys: Vec<&String> = row.as_object().expect("a row is an object").keys().collect();
        let has_quantiles = metrics.iter().any(|(name, _)| name.ends_with("p50_ns"));
        let names = "workload runtime class version commit machine params metrics cpu_s cores_used steal \
                     max_rss_bytes instructions_per_op quantiles runs verified";
        let names = names.split_whitespace().filter(|name| *name != "quantiles" || has_quantiles);
        assert_eq!(keys, names.collect::<Vec<_>>());
        check_quantiles(row);
        assert_eq!(row["workload"], workload);
        assert_eq!(row["verified"], true, "{row}");
        assert_eq!(row["params"]["runs"], runs);
        let version = row["version"].as_str().expect("there is a version");
        assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
        let found: Vec<(&str, &str)> = row["metrics"]
            .as_object()
            .expect("the metrics are an object")
            .iter()
            .map(|(name, summary)| (name.as_str(), summary["unit"].as_str().unwrap_or("none")))
            .collect();
        assert_eq!(found, metrics);
        check_runs(row, metrics, runs);
        for (name, _) in metrics {
            let [min, median, max] = ["min", "median", "max"]
                .map(|of| row["metrics"][name][of].as_f64().expect("each is a number"));
            assert!(min <= median && median <= max, "{name}: {min} {median} {max}");
            assert!(min >= 0.0, "{name}: {min}");
        }
    }
}

/// Checks that the quantiles of a row increase, and that the third of each distribution is its median.
#[track_caller]
fn check_quantiles(row: &Value) {
    for (name, values) in row["quantiles"].as_object().into_iter().flatten() {
        let values: Vec<f64> =
            values.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        assert_eq!(values.len(), 10, "{row}");
        assert!(values.is_sorted(), "{name}: {values:?}");
        let metric = if name == "latency" { "p50_ns" } else { &format!("{name}_p50_ns") };
        assert_eq!(row["metrics"][metric]["median"], values[2], "{row}");
    }
}

/// Checks that a row has the metrics and the use of the processors of each run.
#[track_caller]
fn check_runs(row: &Value, metrics: &[(&str, &str)], number: usize) {
    let runs = row["runs"].as_array().expect("the runs are a list");
    assert_eq!(runs.len(), number, "{row}");
    for run in runs {
        for (name, _) in metrics {
            let value = run[name].as_f64().expect("each metric is a number");
            let [min, max] = ["min", "max"].map(|of| row["metrics"][name][of].as_f64());
            assert!(min <= Some(value) && Some(value) <= max, "{name}: {row}");
        }
        if cfg!(target_os = "linux") {
            for name in ["cpu_s", "cores_used", "steal"] {
                assert!(run[name].as_f64().is_some_and(|value| value >= 0.0), "{name}: {row}");
            }
            assert!(run["max_rss_bytes"].as_f64().is_some_and(|bytes| bytes > 1e6), "{row}");
            let cores = rustix::thread::sched_getaffinity(None).expect("Linux tells it").count();
            assert_eq!(run["core_to_core_ns"].is_f64(), cores > 1, "{row}");
        }
    }
}

#[test]
fn processes_is_verified_on_each_runtime_up_to_the_maximum() {
    let runtimes = ["throng", "tokio", "smol", "actix", "threads"];
    let metrics = [("wall_ns", "ns"), ("cpu_ns", "ns")];
    for workers in ["1", "2"] {
        check_on(&runtimes, workers, "processes", &["--count", "10000"], &metrics);
        // All that are allowed; above 65,536 each worker of throng may keep places for itself.
        // So many are beyond the limit of threads.
        for (count, runtimes) in [("1000", &runtimes[..]), ("70000", &runtimes[..4])] {
            let settings = ["--count", count, "--set", &format!("maximum={count}")];
            check_on(runtimes, workers, "processes", &settings, &metrics);
        }
        for runtime in runtimes {
            let limit = if runtime == "throng" { 1001 } else { 1000 };
            let arguments = ["run", "processes", "--count", "1001", "--set", "maximum=1000"];
            let further = ["--runs", "1", "--workers", workers, "--runtime", runtime];
            let output = output(bench(&[arguments, further].concat()));
            assert_eq!(status(&output), 1, "{runtime}");
            let requested = "1001 processes requested, 1000 allowed: number 1001 was refused";
            let refused = format!("{requested}: the limit of {limit} processes is reached");
            assert!(stderr(&output).contains(&refused), "{}", stderr(&output));
        }
    }
}

#[test]
fn processes_prints_the_lines_of_the_original() {
    let arguments = ["run", "processes", "--count", "1000", "--runs", "1", "--runtime", "tokio"];
    let output = output(bench(&arguments));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "Maximum allowed processes: 10000000\nRequested number of processes: 1000\nProcess spawn time: ",
        " [µs], wall time: ",
        "\nTotal time: ",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn spawn_is_verified_on_each_runtime() {
    let metrics = [
        ("spawn_ns", "ns"),
        ("ready_ns", "ns"),
        ("bytes_per_process", "bytes"),
        ("peak_rss_bytes", "bytes"),
        ("exit_ns", "ns"),
    ];
    check("spawn", &["--count", "10000"], &metrics);
    // A last chunk that is not full, and a single process.
    check("spawn", &["--count", "1000", "--set", "chunk=300"], &metrics);
    check("spawn", &["--count", "1"], &metrics);
}

#[test]
fn send_is_verified_on_each_runtime() {
    let metrics = [("send_ns", "ns"), ("delivered_ns", "ns")];
    check("send", &["--count", "100000"], &metrics);
    // Shares of different sizes, and senders with an empty share.
    check("send", &["--count", "99999", "--set", "senders=100"], &metrics);
    check("send", &["--count", "3", "--set", "senders=10"], &metrics);
}

#[test]
fn send_cost_is_verified_on_each_runtime() {
    let metrics = [("local_ns", "ns"), ("send_ns", "ns"), ("delivered_ns", "ns")];
    // Numbers; bytes; messages of which a round has few; messages that wait before.
    for settings in ["payload=0", "payload=1", "payload=64", "payload=1000000", "depth=1000"] {
        for workers in ["1", "2"] {
            let settings = ["--count", "2", "--set", settings];
            check_on(&ACTORS_AND_TOKIO, workers, "send-cost", &settings, &metrics);
        }
    }
}

#[test]
fn send_cost_prints_the_lines_of_the_original() {
    let arguments = ["run", "send-cost", "--count", "2", "--runs", "1", "--runtime", "tokio"];
    let output = output(bench(&arguments));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in ["\nlocal 2ms: calls/usec=", "\nremote 2ms: calls/usec=", " calls_2ms="] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn call_is_verified_on_each_runtime() {
    let metrics = [("round_trip_ns", "ns"), ("p50_ns", "ns"), ("p99_ns", "ns")];
    check("call", &["--count", "5000", "--set", "samples=1000"], &metrics);
    check("call", &["--count", "5000", "--set", "samples=1000", "--set", "callees=777"], &metrics);
}

#[test]
fn churn_is_verified_on_each_runtime() {
    let metrics = [("cycle_ns", "ns"), ("rss_growth_bytes", "bytes")];
    check("churn", &["--count", "5000", "--set", "warmup=100"], &metrics);
    check("churn", &["--count", "1", "--set", "warmup=1"], &metrics);
}

#[test]
fn sleep_is_verified_on_each_runtime() {
    let arguments = ["run", "sleep", "--count", "1000", "--set", "seconds=1", "--quick"];
    let output = output(bench(&[&arguments[..], &["--workers", "2", "--json"]].concat()));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    for row in json_rows(&output) {
        assert_eq!(row["verified"], true, "{row}");
        let finished = &row["metrics"]["finished_s"];
        assert_eq!(finished["unit"], "s");
        // A process may time out late, but never early.
        assert!(finished["min"].as_f64().is_some_and(|seconds| seconds >= 1.0), "{row}");
        let peak = row["metrics"]["peak_rss_bytes"]["min"].as_f64();
        assert!(peak.is_some_and(|bytes| bytes > 1e6), "{row}");
    }
}

#[test]
fn tasks_is_verified_on_each_runtime() {
    let metrics = [
        ("spawn_ns", "ns"),
        ("ready_ns", "ns"),
        ("ready_rss_bytes", "bytes"),
        ("messages_per_s", "1/s"),
        ("late_p50_ns", "ns"),
        ("late_p99_ns", "ns"),
        ("late_max_ns", "ns"),
        ("peak_rss_bytes", "bytes"),
        ("rss_after_bytes", "bytes"),
    ];
    for workers in ["1", "2"] {
        // A single task sends its messages to itself.
        for count in ["1000", "1"] {
            let settings = ["--count", count, "--set", "seconds=1"];
            check_on(
                &["throng", "tokio", "smol", "threads"],
                workers,
                "tasks",
                &settings,
                &metrics,
            );
        }
    }
}

#[test]
fn pairs_is_verified_on_each_runtime() {
    let metrics = [("message_ns", "ns")];
    check_shape("pairs", &["--count", "20000", "--set", "pairs=100"], &metrics);
    // Shares of different sizes, odd and even; pairs without a share; a single pair.
    check_shape("pairs", &["--count", "1009", "--set", "pairs=100"], &metrics);
    check_shape("pairs", &["--count", "3", "--set", "pairs=5"], &metrics);
    check_shape("pairs", &["--count", "5000", "--set", "pairs=1"], &metrics);
}

#[test]
fn ring_is_verified_on_each_runtime() {
    let metrics = [("wall_s", "s"), ("hop_ns", "ns")];
    check_shape("ring", &["--count", "10000"], &metrics);
    // Fewer hops than processes; a process that sends to itself.
    check_shape("ring", &["--count", "7", "--set", "processes=50"], &metrics);
    check_shape("ring", &["--count", "1000", "--set", "processes=1"], &metrics);
}

#[test]
fn calls_is_verified_on_each_runtime() {
    let metrics = [("round_trip_ns", "ns"), ("p50_ns", "ns"), ("p99_ns", "ns")];
    let small = ["--count", "20000", "--set", "samples=2000"];
    check_shape("calls", &small, &metrics);
    let to_one = ["--set", "callers=64", "--set", "callees=1"];
    check_shape("calls", &[&small[..], &to_one].concat(), &metrics);
    // More callees than callers; callers without a call.
    let few = ["--count", "3", "--set", "samples=1", "--set", "callers=5", "--set", "callees=7"];
    check_shape("calls", &few, &metrics);
}

#[test]
fn outside_is_verified_on_each_runtime() {
    let metrics = [("round_trip_ns", "ns"), ("p50_ns", "ns"), ("p99_ns", "ns")];
    let small = ["--count", "5000", "--set", "samples=500"];
    for workers in ["1", "2"] {
        check_on(&SHAPED, workers, "outside", &small, &metrics);
        let one_task = [&small[..], &["--set", "tasks=1"]].concat();
        check_on(&SHAPED, workers, "outside", &one_task, &metrics);
    }
}

#[test]
fn the_first_calls_of_new_processes_are_verified_on_each_runtime() {
    let metrics =
        [("round_trip_ns", "ns"), ("p50_ns", "ns"), ("p99_ns", "ns"), ("sleeps_per_call", "1")];
    let runtimes = ["throng", "throng-default", "tokio", "tokio-current-thread"];
    for (workload, workers) in
        [("first-call", "1"), ("first-call", "2"), ("send-then-call", "1"), ("send-then-call", "2")]
    {
        let small = ["--count", "2000", "--set", "samples=500"];
        check_on(&runtimes, workers, workload, &small, &metrics);
        let least = ["--count", "1", "--set", "samples=1"];
        check_on(&runtimes, workers, workload, &least, &metrics);
    }
}

#[test]
fn http_is_verified_on_each_runtime() {
    let cpu = [("server_cpu_ns", "ns"), ("client_cpu_ns", "ns")];
    let metrics = [&[("requests_per_s", "1/s"), ("p50_ns", "ns"), ("p99_ns", "ns")][..], &cpu];
    let few_users = ["--set", "users=1000"];
    for workers in ["1", "2"] {
        let check = |settings: &[&str]| {
            let settings = [settings, &few_users].concat();
            check_on(&["throng", "axum", "tokio"], workers, "http", &settings, &metrics.concat());
        };
        check(&["--count", "3000", "--set", "samples=500"]);
        check(&["--count", "500", "--set", "samples=100", "--set", "connections=1"]);
        check(&["--count", "1500", "--set", "samples=600", "--set", "connections=512"]);
        // Shares of different sizes; more connections than requests.
        check(&["--count", "1009", "--set", "samples=101", "--set", "connections=100"]);
        check(&["--count", "3", "--set", "samples=1", "--set", "connections=5"]);
    }
}

#[test]
fn http_refuses_more_connections_than_users() {
    let arguments = ["run", "http", "--set", "users=3", "--set", "connections=4", "--quick"];
    let output = output(bench(&arguments));
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("fewer connections"), "{}", stderr(&output));
}

#[test]
fn fan_is_verified_on_each_runtime() {
    let metrics = [("delivered_ns", "ns"), ("rss_after_bytes", "bytes")];
    let small = ["--count", "50000", "--set", "settle=0"];
    check_shape("fan", &small, &metrics);
    // Chunks; chunks that are no multiple of the receivers; a last chunk that reaches only some.
    check_shape("fan", &[&small[..], &["--set", "chunk=1000"]].concat(), &metrics);
    let uneven = ["--count", "1234", "--set", "chunk=100", "--set", "receivers=7"];
    check_shape("fan", &[&uneven[..], &["--set", "settle=0"]].concat(), &metrics);
    let few = ["--count", "3", "--set", "receivers=7", "--set", "settle=0"];
    check_shape("fan", &few, &metrics);
}

#[test]
fn burst_is_verified_on_each_runtime() {
    let metrics =
        ["bytes_per_message", "peak_rss_bytes", "rss_after_bytes"].map(|name| (name, "bytes"));
    let small = ["--count", "50000", "--set", "settle=0"];
    check_shape("burst", &small, &metrics);
    check_shape("burst", &[&small[..], &["--set", "receivers=1"]].concat(), &metrics);
}

#[test]
fn a_burst_holds_every_message_until_it_is_measured() {
    let arguments = ["run", "burst", "--quick", "--workers", "2", "--json"];
    let small = ["--count", "300000", "--set", "receivers=1", "--set", "settle=0"];
    let output = output(bench(&[&arguments[..], &small].concat()));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    for row in json_rows(&output) {
        // A message carries eight bytes, and no runtime here stores it in fewer.
        let bytes = row["metrics"]["bytes_per_message"]["min"].as_f64();
        assert!(bytes.is_some_and(|bytes| bytes >= 7.5), "{row}");
    }
}

#[test]
fn fairness_is_verified_on_each_runtime() {
    let metrics = [("p50_ns", "ns"), ("p99_ns", "ns"), ("message_ns", "ns")];
    let yielding = SHAPED.into_iter().filter(|name| *name != "actix");
    let yielding: Vec<&str> = yielding.chain(["threads"]).collect();
    for workers in ["1", "2"] {
        let small = ["--count", "5", "--set", "flooders=50"];
        check_on(&yielding, workers, "fairness", &small, &metrics);
    }
}

#[test]
fn skynet_is_verified_on_each_runtime() {
    let runtimes = ["throng", "tokio", "tokio-channels", "tokio-current-thread", "smol"];
    for workers in ["1", "2"] {
        // A power of ten, as in the original; levels that are not full; a root that is a leaf.
        for count in ["1000", "12345", "1"] {
            check_on(&runtimes, workers, "skynet", &["--count", count], &[("wall_s", "s")]);
        }
        for count in ["1000", "1234", "1"] {
            check_on(&["threads"], workers, "skynet", &["--count", count], &[("wall_s", "s")]);
        }
    }
}

#[test]
fn monitors_is_verified_on_each_runtime_that_has_monitors() {
    let metrics = [("monitor_ns", "ns"), ("down_ns", "ns"), ("bytes_per_monitor", "bytes")];
    let runtimes = ["throng", "tokio", "kameo", "ractor", "tellus"];
    for workers in ["1", "2"] {
        // Many processes to one watcher, and many watchers to few processes.
        check_on(&runtimes, workers, "monitors", &["--count", "3000"], &metrics);
        let settings = ["--count", "7", "--set", "watchers=50"];
        check_on(&runtimes, workers, "monitors", &settings, &metrics);
    }
}

#[test]
fn timers_is_verified_on_each_runtime_that_has_timers() {
    let metrics = [
        ("start_ns", "ns"),
        ("cancel_ns", "ns"),
        ("late_p50_ns", "ns"),
        ("late_p99_ns", "ns"),
        ("late_max_ns", "ns"),
        ("bytes_per_timer", "bytes"),
    ];
    let runtimes = ["throng", "tokio", "tokio-sleep", "actix", "ractor"];
    for workers in ["1", "2"] {
        // Several rounds, the last of them smaller; a cancelled timer that fires does so before the run ends.
        let settings = ["--count", "2050", "--set", "live=1000", "--set", "seconds=1"];
        check_on(&runtimes, workers, "timers", &settings, &metrics);
        // No timer fires.
        let settings = ["--count", "7", "--set", "longest=1", "--set", "live=2000"];
        check_on(&runtimes, workers, "timers", &settings, &metrics);
    }
}

#[test]
fn a_row_in_rust_beyond_its_limit_is_unsupported() {
    let output = output(bench(&["run", "timers", "--runtime", "actix"]));
    assert_eq!(status(&output), 1, "nothing ran");
    let limit = "actix: unsupported: this row is measured with live 2000 at most, and not with";
    assert!(stderr(&output).contains(limit), "{}", stderr(&output));
}

#[test]
fn children_is_verified() {
    for workers in ["1", "2"] {
        let metrics = [("start_ns", "ns")];
        check_on(&["throng"], workers, "children", &["--count", "1000"], &metrics);
        // Above 65,536 processes each worker may keep places of the limit for itself.
        check_on(&["throng"], workers, "children", &["--count", "70000"], &metrics);
    }
}

#[test]
fn the_workloads_of_savina_are_verified_on_each_runtime() {
    for (workload, count, settings) in [
        ("chameneos", "2000", &[][..]),
        ("chameneos", "3", &["creatures=1"]),
        ("big", "100", &[]),
        ("big", "50", &["actors=1"]),
        ("dictionary", "100", &[]),
        ("dictionary", "700", &["clients=1", "writes=100"]),
        ("buffer", "20", &[]),
        ("buffer", "20", &["capacity=1", "producers=7", "consumers=2"]),
        ("philosophers", "100", &[]),
        ("philosophers", "20", &["philosophers=1"]),
        ("philosophers", "20", &["philosophers=2"]),
        ("barber", "50", &[]),
        ("barber", "30", &["room=1", "arrival=1"]),
        ("smokers", "50", &[]),
        ("smokers", "1", &["smokers=1"]),
        ("banking", "500", &[]),
        ("banking", "50", &["accounts=1"]),
        ("sieve", "5000", &[]),
        ("sieve", "100", &["block=1"]),
        ("sieve", "1", &[]),
        ("queens", "8", &[]),
        ("queens", "6", &["threshold=9", "solvers=1"]),
        ("queens", "1", &[]),
    ] {
        let mut arguments = vec!["--count", count];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        check_shape(workload, &arguments, &[("wall_s", "s")]);
    }
}

#[test]
fn a_feature_is_in_use_where_there_is_one_and_unsupported_elsewhere() {
    for (workload, sizes) in [
        ("send", ["--count", "10000", "--set", "senders=3"]),
        ("call", ["--count", "1000", "--set", "callees=50"]),
    ] {
        for feature in ["monitor", "bounded", "supervisor", "metrics"] {
            let arguments = ["run", workload, "--runtime", "throng,tokio", "--quick", "--json"];
            let set = ["--set", &format!("feature={feature}")];
            let output = output(bench(&[&arguments[..], &sizes, &set].concat()));
            assert_eq!(status(&output), 0, "{}", stderr(&output));
            assert!(stderr(&output).contains("tokio: unsupported"), "{}", stderr(&output));
            let rows = json_rows(&output);
            assert_eq!(rows.len(), 1);
            assert_eq!(rows[0]["runtime"], "throng");
            assert_eq!(rows[0]["verified"], true, "{rows:?}");
            assert_eq!(rows[0]["params"]["feature"], feature);
        }
    }
}

#[test]
fn the_params_state_the_settings_of_the_run() {
    let arguments = ["run", "send", "--runtime", "tokio,actix", "--count", "1000", "--json"];
    let output = output(bench(&[&arguments[..], &["--workers", "3", "--runs", "1"]].concat()));
    let rows = json_rows(&output);
    assert_eq!(rows[0]["params"]["count"], 1000);
    assert_eq!(rows[0]["params"]["senders"], 1);
    assert_eq!(rows[0]["params"]["workers"], 3);
    assert_eq!(rows[1]["params"]["workers"], 1, "actix has a single thread, whatever the setting");
}

#[test]
fn a_row_has_every_run_but_the_warm_up() {
    let metrics = [("send_ns", "ns"), ("delivered_ns", "ns")];
    for (options, runs) in
        [(&["--runs", "2"][..], 2), (&["--quick", "--runs", "3"], 3), (&["--quick"], 1), (&[], 5)]
    {
        let options = [options, &["--count", "100000"]].concat();
        check_rows(&["throng", "tokio"], "send", &options, &metrics, runs);
    }
}

#[test]
fn a_runtime_is_measured_once_however_often_it_is_named() {
    let arguments = ["run", "send", "--runtime", "tokio,tokio", "--count", "10", "--runs", "1"];
    let output = output(bench(&[&arguments[..], &["--json"]].concat()));
    assert_eq!(json_rows(&output).len(), 1);
}

#[test]
fn the_table_has_ratios_to_throng() {
    let arguments = ["run", "send", "--runtime", "throng,tokio", "--count", "1000", "--runs", "1"];
    let output = output(bench(&arguments));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = |metric: &str| {
        table.lines().find(|line| line.starts_with(metric)).map(str::to_owned).expect("in there")
    };
    assert!(row("metric").ends_with("÷ throng"), "{table}");
    assert!(row("send_ns").contains("throng"), "{table}");
    assert!(row("send_ns").ends_with("1.00"), "{table}");
    assert_eq!(table.matches(" tokio ").count(), 3, "{table}");
}

#[test]
fn an_error_for_an_unknown_name_lists_the_known_names() {
    for (arguments, known) in [
        (&["run", "juggle"][..], "processes, spawn, send, send-cost, call, churn, sleep"),
        (&["run", "spawn", "--runtime", "tokio,fortran"], "throng, tokio, smol, actix, kameo"),
        (&["run", "call", "--set", "colour=3"], "callees, samples, feature, allocator"),
        (&["run", "send", "--set", "senders=many"], "senders"),
        (&["run", "send", "--set", "senders=0"], "positive"),
        (&["run", "send", "--set", "feature=magic"], "none, monitor, bounded, supervisor, metrics"),
        (&["run", "send", "--set", "senders"], "KEY=VALUE"),
        (&["run", "send", "--count", "0"], "--count"),
        (&["run", "send", "--workers", "0"], "--workers"),
        (&["run", "send", "--runs", "0"], "--runs"),
    ] {
        let output = output(bench(arguments));
        assert_eq!(status(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(known), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_list_names_every_workload_key_and_runtime() {
    let output = output(bench(&["list"]));
    assert_eq!(status(&output), 0);
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let known = [
        "spawn",
        "send",
        "call",
        "churn",
        "sleep",
        "senders",
        "callees",
        "none|monitor|bounded|supervisor",
        "tokio-recv-many",
        "tokio-current-thread",
        "tokio-channels",
        "erlang-tuned",
        "receivers=100",
        "store-mega",
        "store-update",
        "store-rest",
        "store-recover",
        "durable-turns",
        "durable-live",
        "activate",
        "durable-rest",
        "tokio+heed",
        "tellus-memory",
        "erlang-central",
        "mix|deliveries|timelines|profiles",
        "volatile|durable",
        "dir=TEXT",
        "writers=0",
        "allocator=system|mimalloc",
    ];
    for name in known.iter().chain(&IN_THIS_PROGRAM).chain(&STORES) {
        assert!(list.contains(name), "{name} is not in {list}");
    }
}

#[test]
fn each_runtime_in_rust_runs_with_either_allocator_and_the_row_states_it() {
    for allocator in ["system", "mimalloc"] {
        let arguments = ["run", "burst", "--count", "100000", "--quick", "--json"];
        let set = ["--set", &format!("allocator={allocator}"), "--set", "settle=0"];
        let output = output(bench(&[&arguments[..], &set].concat()));
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        let rows = json_rows(&output);
        let in_rust = |row: &&Value| row["params"]["allocator"] == allocator;
        assert_eq!(rows.iter().filter(in_rust).count(), SHAPED_INSIDE.len(), "{rows:?}");
        assert!(rows.iter().all(|row| row["verified"] == true), "{rows:?}");
        if allocator == "mimalloc" {
            assert!(stderr(&output).contains("erlang: unsupported"), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_program_with_another_allocator_or_build_does_not_run_a_workload() {
    let work = ["peer", "throng", "send", "--count", "1"];
    let of_another_build = ["peer", "throng", "--build", "0", "send", "--count", "1"];
    for (program, arguments, complaint) in [
        (env!("CARGO_BIN_EXE_bench-mimalloc"), &work[..], "the allocator `mimalloc`"),
        (env!("CARGO_BIN_EXE_bench"), &of_another_build, "other sources"),
    ] {
        let output = Command::new(program).args(arguments).output().expect("the program starts");
        assert_eq!(status(&output), 1);
        assert!(stderr(&output).contains(complaint), "{}", stderr(&output));
    }
}

#[test]
fn a_program_that_is_not_built_is_named_and_does_no_harm() {
    let place = tempfile::tempdir().expect("there is room for a directory");
    let alone = place.path().join("bench");
    std::fs::copy(env!("CARGO_BIN_EXE_bench"), &alone).expect("there is room");
    let arguments = ["run", "send", "--runtime", "throng", "--set", "allocator=mimalloc"];
    let output = Command::new(alone).args(arguments).output().expect("the program starts");
    assert_eq!(status(&output), 1, "nothing ran");
    assert!(stderr(&output).contains("throng: absent"), "{}", stderr(&output));
}

/// Runs a workload on some runtimes, with `PATH` set to a single directory.
fn run_with_path(workload: &str, runtimes: &str, path: &Path) -> Output {
    let arguments = ["run", workload, "--runtime", runtimes, "--count", "1000", "--runs", "2"];
    let mut command = bench(&[&arguments[..], &["--json"]].concat());
    command.env("PATH", path);
    output(command)
}

#[test]
fn an_absent_runtime_is_named_and_does_no_harm() {
    let empty = tempfile::tempdir().expect("there is room for a directory");
    let output = run_with_path("send", "erlang,tokio", empty.path());
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("erlang: absent").count(), 1, "{}", stderr(&output));
    let rows = json_rows(&output);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["runtime"], "tokio");

    let output = run_with_path("send", "erlang", empty.path());
    assert_eq!(status(&output), 1, "nothing ran");
    assert!(stderr(&output).contains("erlang: absent"), "{}", stderr(&output));
}

/// Runs `send` with a shell script in place of Elixir's interpreter.
#[cfg(unix)]
fn send_with_fake_elixir(script: &str) -> Output {
    with_fake_elixir("send", script)
}

/// Runs a workload with a shell script in place of Elixir's interpreter.
#[cfg(unix)]
fn with_fake_elixir(workload: &str, script: &str) -> Output {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().expect("there is room for a directory");
    let interpreter = directory.path().join("elixir");
    std::fs::write(&interpreter, format!("#!/bin/sh\n{script}\n")).expect("there is room");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&interpreter, executable).expect("the file is ours");
    run_with_path(workload, "elixir", directory.path())
}

#[cfg(unix)]
fn line(send_ns: f64, failures: &str) -> String {
    format!(
        r#"echo '{{"version":"0","workers":1,"metrics":{{"send_ns":{send_ns:.1},"delivered_ns":2.0}},"failures":[{failures}]}}'"#
    )
}

#[cfg(unix)]
#[test]
fn a_peer_in_another_language_is_a_peer_like_any() {
    let output = send_with_fake_elixir(&line(7.0, ""));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let row = &json_rows(&output)[0];
    assert_eq!(row["runtime"], "elixir");
    assert_eq!(row["verified"], true);
    assert_eq!(row["metrics"]["send_ns"]["median"], 7.0);
    assert!(row["params"].get("allocator").is_none(), "it is not this program's");
}

#[cfg(unix)]
#[test]
fn a_failed_verification_is_reported_and_fails() {
    let output = send_with_fake_elixir(&line(7.0, r#""the sum received: 1 instead of 2""#));
    assert_eq!(status(&output), 1);
    assert_eq!(json_rows(&output)[0]["verified"], false);
    assert!(stderr(&output).contains("the sum received: 1 instead of 2"), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn a_peer_that_crashes_or_prints_no_result_is_not_verified() {
    for script in ["exit 3", "echo hello", "true"] {
        let output = send_with_fake_elixir(script);
        assert_eq!(status(&output), 1, "{script}");
        let row = &json_rows(&output)[0];
        assert_eq!(row["verified"], false, "{script}");
        assert_eq!(row["metrics"].as_object().map(serde_json::Map::len), Some(0), "{script}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_peer_that_misstates_its_peak_memory_is_not_verified() {
    for (peak, verified) in [("1000000.0", true), ("1e9", false)] {
        let line = format!(
            r#"echo '{{"version":"0","workers":1,"metrics":{{"peak_rss_bytes":{peak},"finished_s":1.0}},"failures":[]}}'"#
        );
        let output = with_fake_elixir("sleep", &line);
        assert_eq!(json_rows(&output)[0]["verified"], verified, "{}", stderr(&output));
        assert_eq!(stderr(&output).contains("peak memory: "), !verified, "{}", stderr(&output));
    }
}

#[test]
fn the_suite_is_measured_stored_continued_and_compared() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let results = directory.path().join("results");
    let results = results.to_str().expect("the path is text");
    let quick = ["run", "all", "--quick", "--json", "--runtime", "throng", "--output", results];
    let measured = output(bench(&quick));
    assert_eq!(status(&measured), 0, "{}", stderr(&measured));
    let rows = json_rows(&measured);
    assert!(rows.len() > 15 && rows.iter().all(|row| row["verified"] == true), "{rows:?}");
    let again = output(bench(&quick));
    assert_eq!(status(&again), 1);
    assert!(stderr(&again).contains("has results; `--continue` adds"), "{}", stderr(&again));
    // The file lacks the last measurement, as if the run had been interrupted.
    let file = Path::new(results).join("rows.jsonl");
    let text = std::fs::read_to_string(&file).expect("the rows are stored");
    assert_eq!(text.lines().count(), rows.len());
    let shorter: String = text.split_inclusive('\n').take(rows.len() - 1).collect();
    std::fs::write(&file, shorter).expect("the rows can be stored");
    let others = output(bench(&[&quick[..], &["--continue", "--group", "tasks,store"]].concat()));
    assert!(json_rows(&others).is_empty(), "the last measurement is of another group");
    let continued = output(bench(&[&quick[..], &["--continue"]].concat()));
    assert_eq!(status(&continued), 0, "{}", stderr(&continued));
    assert_eq!(json_rows(&continued).len(), 1);
    let compared = output(bench(&["compare", results, results]));
    assert_eq!(status(&compared), 0, "{}", stderr(&compared));
    let text = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(text.contains("medians that differ by more than 15 %: 0"), "{text}");
    let reported = output(bench(&["report", results]));
    assert_eq!(status(&reported), 0, "{}", stderr(&reported));
    let page = String::from_utf8_lossy(&reported.stdout).trim_end().to_owned();
    let page = std::fs::read_to_string(page).expect("the page is there");
    for row in &rows {
        let name = row["measurement"].as_str().expect("the measurement is named");
        assert!(page.contains(&format!("<article id=\"{name}\">")), "{name}");
    }
    let absent = output(bench(&["compare", results, "no-such-directory"]));
    assert_eq!(status(&absent), 1);
    assert!(stderr(&absent).contains("no-such-directory"), "{}", stderr(&absent));
}

#[test]
fn options_of_the_suite_and_of_a_workload_do_not_mix() {
    for (arguments, reason) in [
        (&["run", "all", "--count", "3"][..], "are for a single workload"),
        (&["run", "all", "--set", "pairs=3"], "are for a single workload"),
        (
            &["run", "all", "--runtime", "cobol"],
            "unknown runtime `cobol`; the suite's are throng, ",
        ),
        (&["run", "send", "--output", "here"], "are for `run all`"),
    ] {
        let output = output(bench(arguments));
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}
