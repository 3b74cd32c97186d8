//! Runs the built program with small counts, as users run it.

#[path = "../program/mod.rs"]
mod program;
mod served;
mod social;

use std::path::Path;
use std::process::{Command, Output};

use serde::Deserialize;
use serde_json::Value;

use self::program::{bench, json_rows, output, programs, run, status, stderr, stdout};

#[derive(Deserialize)]
struct Workloads {
    workload: Vec<Workload>,
}

#[derive(Deserialize)]
struct Workload {
    name: String,
    metrics: String,
}

#[derive(Deserialize)]
struct Runtimes {
    lists: std::collections::BTreeMap<String, String>,
    row: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    workloads: String,
}

#[derive(Deserialize)]
struct Runs {
    run: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    workload: String,
    #[serde(default)]
    workers: Vec<String>,
    with: Vec<String>,
    #[serde(default)]
    without: String,
}

fn parsed<T: for<'de> Deserialize<'de>>(text: &str) -> T {
    toml::from_str(text).expect("the file is well formed")
}

/// The metrics of a workload, each with the unit that the end of its name tells; all of them, or those of each setting.
fn metrics(workload: &str, all_of_them: bool) -> Vec<(String, &'static str)> {
    let all: Workloads = parsed(include_str!("../../workloads.toml"));
    let workload = all.workload.into_iter().find(|known| known.name == workload);
    let ends = [
        ("_per_s", "1/s"),
        ("_ns", "ns"),
        ("_us_per_turn", "µs"),
        ("_s", "s"),
        ("_per_call", "1"),
        ("_ratio", "1"),
        ("", "bytes"),
    ];
    let unit =
        |name: &str| ends.iter().find(|(end, _)| name.ends_with(end)).map_or("", |(_, unit)| unit);
    let metrics = workload.expect("the workload exists").metrics;
    let names = metrics.split(' ').filter(|name| all_of_them || !name.ends_with('?'));
    names.map(|name| name.trim_end_matches('?')).map(|name| (name.to_owned(), unit(name))).collect()
}

fn rows(workload: &str) -> Vec<String> {
    let Runtimes { lists, row } = parsed(include_str!("../../runtimes.toml"));
    let has = |listed: &str| match listed.strip_prefix('@') {
        Some(list) => lists[list]
            .split(' ')
            .flat_map(|of| match of.strip_prefix('@') {
                Some(list) => lists[list].split(' ').collect(),
                None => vec![of],
            })
            .any(|name| name == workload),
        None => listed == workload,
    };
    let own = row.into_iter().filter(|row| row.workloads.split(' ').any(has));
    own.map(|row| row.name).collect()
}

/// Makes the small runs of a workload, and checks each row's form and verification.
#[track_caller]
fn check_small(workload: &str) {
    let all: Runs = parsed(include_str!("small.toml"));
    let rows = rows(workload);
    let runs: Vec<Run> = all.run.into_iter().filter(|run| run.workload == workload).collect();
    assert!(!rows.is_empty() && !runs.is_empty(), "{workload}");
    for Run { workers, with, without, .. } in &runs {
        let expected: Vec<&str> =
            rows.iter().map(String::as_str).filter(|row| row != without).collect();
        let workers =
            if workers.is_empty() { &["1", "2"].map(str::to_owned) } else { &workers[..] };
        for (with, workers) in with.iter().flat_map(|with| workers.iter().map(move |of| (with, of)))
        {
            let mut options = vec!["--quick", "--workers", workers];
            options.extend(with.split(' '));
            check_rows(&expected, workload, &options, 1);
        }
    }
}

/// Defines a test for each workload: its small runs are verified on each row.
macro_rules! verified_on_each_row {
    ($($test:ident $workload:literal)*) => {
        $(
            #[test]
            fn $test() {
                check_small($workload);
            }
        )*

        /// The workloads with a test of their own are `sleep` and `social`.
        #[test]
        fn every_workload_has_small_runs() {
            let all: Workloads = parsed(include_str!("../../workloads.toml"));
            for workload in all.workload.iter().map(|workload| workload.name.as_str()) {
                assert!(["sleep", "social" $(, $workload)*].contains(&workload), "{workload}");
            }
        }
    };
}

verified_on_each_row! {
    processes "processes"
    spawn "spawn"
    send "send"
    send_cost "send-cost"
    selective "selective"
    traffic "traffic"
    call "call"
    churn "churn"
    tasks "tasks"
    pairs "pairs"
    ring "ring"
    calls "calls"
    outside "outside"
    first_call "first-call"
    send_then_call "send-then-call"
    http "http"
    http_social "http-social"
    chat "chat"
    fan "fan"
    burst "burst"
    fairness "fairness"
    skynet "skynet"
    monitors "monitors"
    timers "timers"
    children "children"
    chameneos "chameneos"
    big "big"
    dictionary "dictionary"
    buffer "buffer"
    philosophers "philosophers"
    barber "barber"
    smokers "smokers"
    banking "banking"
    sieve "sieve"
    queens "queens"
    store_mega "store-mega"
    store_put "store-put"
    store_get "store-get"
    store_scan "store-scan"
    store_rest "store-rest"
    store_update "store-update"
    store_recover "store-recover"
    durable_turns "durable-turns"
    durable_http "durable-http"
    once "once"
    durable_send "durable-send"
    durable_live "durable-live"
    activate "activate"
    durable_rest "durable-rest"
    queue "queue"
    workflow "workflow"
    workflow_rest "workflow-rest"
    reminders "reminders"
}

/// Runs a workload on the expected runtimes, and checks that each has a verified row of so many runs.
#[track_caller]
fn check_rows(expected: &[&str], workload: &str, options: &[&str], runs: usize) {
    let metrics = metrics(workload, options.iter().any(|option| option.starts_with("busy=")));
    let runtimes = expected.join(",");
    let output = run(&format!("run {workload} --json --runtime {runtimes} {}", options.join(" ")));
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
        let found: Vec<(String, &str)> = row["metrics"]
            .as_object()
            .expect("the metrics are an object")
            .iter()
            .map(|(name, summary)| (name.clone(), summary["unit"].as_str().unwrap_or("none")))
            .collect();
        assert_eq!(found, metrics);
        check_runs(row, &metrics, runs);
        for (name, _) in &metrics {
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
fn check_runs(row: &Value, metrics: &[(String, &str)], number: usize) {
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
fn processes_beyond_the_maximum_are_refused_on_each_runtime() {
    for (runtime, workers) in rows("processes").iter().flat_map(|row| [(row, "1"), (row, "2")]) {
        let limit = if runtime == "throng" { 1001 } else { 1000 };
        let of = format!("--workers {workers} --runtime {runtime}");
        let output = run(&format!("run processes --count 1001 --set maximum=1000 --runs 1 {of}"));
        assert_eq!(status(&output), 1, "{runtime}");
        let requested = "1001 processes requested, 1000 allowed: number 1001 was refused";
        let refused = format!("{requested}: the limit of {limit} processes is reached");
        assert!(stderr(&output).contains(&refused), "{}", stderr(&output));
    }
}

#[test]
fn processes_prints_the_lines_of_the_original() {
    let text = stdout(&run("run processes --count 1000 --runs 1 --runtime tokio"));
    for line in [
        "Maximum allowed processes: 10000000\nRequested number of processes: 1000\nProcess spawn time: ",
        " [µs], wall time: ",
        "\nTotal time: ",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn send_cost_prints_the_lines_of_the_original() {
    let text = stdout(&run("run send-cost --count 2 --runs 1 --runtime tokio"));
    for line in ["\nlocal 2ms: calls/usec=", "\nremote 2ms: calls/usec=", " calls_2ms="] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn sleep_is_verified_on_each_runtime() {
    let output = run("run sleep --count 1000 --set seconds=1 --quick --workers 2 --json");
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
fn http_refuses_more_connections_than_users() {
    let output = run("run http --set users=3 --set connections=4 --quick");
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("fewer connections"), "{}", stderr(&output));
}

#[test]
fn a_burst_holds_every_message_until_it_is_measured() {
    let small = "--count 300000 --set receivers=1 --set settle=0";
    let output = run(&format!("run burst --quick --workers 2 --json {small}"));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    // The heap of a Java machine may have had the room before.
    let is_exact =
        |row: &Value| !row["runtime"].as_str().is_some_and(|row| row.starts_with("pekko"));
    for row in json_rows(&output).into_iter().filter(is_exact) {
        // A message carries eight bytes, and no runtime here stores it in fewer.
        let bytes = row["metrics"]["bytes_per_message"]["min"].as_f64();
        assert!(bytes.is_some_and(|bytes| bytes >= 7.5), "{row}");
    }
}

#[test]
fn a_row_in_rust_beyond_its_limit_is_unsupported() {
    let output = run("run timers --runtime actix");
    assert_eq!(status(&output), 1, "nothing ran");
    let limit = "actix: unsupported: this row is measured with live 2000 at most, and not with";
    assert!(stderr(&output).contains(limit), "{}", stderr(&output));
}

#[test]
fn a_feature_is_in_use_where_there_is_one_and_unsupported_elsewhere() {
    for (workload, sizes) in
        [("send", "--count 10000 --set senders=3"), ("call", "--count 1000 --set callees=50")]
    {
        for feature in ["monitor", "bounded", "supervisor", "metrics"] {
            let arguments = format!("{workload} {sizes} --set feature={feature}");
            let output = run(&format!("run --runtime throng,tokio --quick --json {arguments}"));
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
    let few = "--count 1000 --json --workers 3 --runs 1";
    let rows = json_rows(&run(&format!("run send --runtime tokio,actix {few}")));
    assert_eq!(rows[0]["params"]["count"], 1000);
    assert_eq!(rows[0]["params"]["senders"], 1);
    assert_eq!(rows[0]["params"]["workers"], 3);
    assert_eq!(rows[1]["params"]["workers"], 1, "actix has a single thread, whatever the setting");
}

#[test]
fn a_row_has_every_run_but_the_warm_up() {
    for (options, runs) in
        [(&["--runs", "2"][..], 2), (&["--quick", "--runs", "3"], 3), (&["--quick"], 1), (&[], 5)]
    {
        let options = [options, &["--count", "100000"]].concat();
        check_rows(&["throng", "tokio"], "send", &options, runs);
    }
}

#[test]
fn a_runtime_is_measured_once_however_often_it_is_named() {
    let output = run("run send --runtime tokio,tokio --count 10 --runs 1 --json");
    assert_eq!(json_rows(&output).len(), 1);
}

#[test]
fn the_table_has_ratios_to_throng() {
    let output = run("run send --runtime throng,tokio --count 1000 --runs 1");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let table = stdout(&output);
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
        ("run juggle", "processes, spawn, send, send-cost, call, churn, sleep"),
        ("run spawn --runtime tokio,fortran", "tokio-kanal, tokio-futures"),
        ("run call --set colour=3", "callees, samples, feature, allocator"),
        ("run send --set senders=many", "senders"),
        ("run send --set senders=0", "positive"),
        ("run send --set feature=magic", "none, monitor, bounded, supervisor, metrics"),
        ("run send --set senders", "KEY=VALUE"),
        ("run send --count 0", "--count"),
        ("run send --workers 0", "--workers"),
        ("run send --runs 0", "--runs"),
    ] {
        let output = run(arguments);
        assert_eq!(status(&output), 2, "{arguments}: {}", stderr(&output));
        assert!(stderr(&output).contains(known), "{arguments}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_list_names_every_workload_key_and_runtime() {
    let output = run("list");
    assert_eq!(status(&output), 0);
    let list = stdout(&output);
    let all: Workloads = parsed(include_str!("../../workloads.toml"));
    let Runtimes { row, .. } = parsed(include_str!("../../runtimes.toml"));
    let names = all.workload.iter().map(|of| &*of.name).chain(row.iter().map(|of| &*of.name));
    for name in names.chain([
        "senders",
        "callees",
        "none|monitor|bounded|supervisor",
        "erlang-tuned",
        "receivers=100",
        "mix|deliveries|timelines|profiles",
        "volatile|durable",
        "dir=TEXT",
        "writers=0",
        "allocator=system|mimalloc",
    ]) {
        assert!(list.contains(name), "{name} is not in {list}");
    }
}

#[test]
fn each_runtime_in_rust_runs_with_either_allocator_and_the_row_states_it() {
    for allocator in ["system", "mimalloc"] {
        let set = format!("--set allocator={allocator} --set settle=0");
        let output = run(&format!("run burst --count 100000 --quick --json {set}"));
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        let rows = json_rows(&output);
        let in_rust = |row: &&Value| row["params"]["allocator"] == allocator;
        assert_eq!(rows.iter().filter(in_rust).count(), self::rows("burst").len(), "{rows:?}");
        assert!(rows.iter().all(|row| row["verified"] == true), "{rows:?}");
        if allocator == "mimalloc" {
            assert!(stderr(&output).contains("erlang: unsupported"), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_program_with_another_allocator_or_build_does_not_run_a_workload() {
    let work = "peer throng send --count 1";
    let of_another_build = "peer throng --build 0 send --count 1";
    for (program, arguments, complaint) in [
        (env!("CARGO_BIN_EXE_bench-mimalloc"), work, "the allocator `mimalloc`"),
        (env!("CARGO_BIN_EXE_bench"), of_another_build, "other sources"),
    ] {
        let output = output(Command::new(program).args(arguments.split(' ')));
        assert_eq!(status(&output), 1);
        assert!(stderr(&output).contains(complaint), "{}", stderr(&output));
    }
}

#[test]
fn a_program_that_is_not_built_is_named_and_does_no_harm() {
    let place = tempfile::tempdir().expect("there is room for a directory");
    let alone = place.path().join("bench");
    std::fs::copy(env!("CARGO_BIN_EXE_bench"), &alone).expect("there is room");
    let arguments = "run send --runtime throng --set allocator=mimalloc".split(' ');
    let output = output(Command::new(alone).args(arguments));
    assert_eq!(status(&output), 1, "nothing ran");
    assert!(stderr(&output).contains("throng: absent"), "{}", stderr(&output));
}

/// Runs a workload on some runtimes, with `PATH` set to a single directory.
fn run_with_path(workload: &str, runtimes: &str, path: &Path) -> Output {
    let few = "--count 1000 --runs 2 --json";
    let mut command = bench(&format!("run {workload} --runtime {runtimes} {few}"));
    output(command.env("PATH", path))
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

fn with_fake_elixir(workload: &str, script: &str) -> Output {
    run_with_path(workload, "elixir", programs(&[("elixir", script)]).path())
}

fn line(send_ns: f64, failures: &str) -> String {
    format!(
        r#"echo '{{"version":"0","workers":1,"metrics":{{"send_ns":{send_ns:.1},"delivered_ns":2.0}},"failures":[{failures}]}}'"#
    )
}

#[test]
fn a_peer_in_another_language_is_a_peer_like_any() {
    let output = with_fake_elixir("send", &line(7.0, ""));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let row = &json_rows(&output)[0];
    assert_eq!(row["runtime"], "elixir");
    assert_eq!(row["verified"], true);
    assert_eq!(row["metrics"]["send_ns"]["median"], 7.0);
    assert!(row["params"].get("allocator").is_none(), "it is not this program's");
}

#[test]
fn a_failed_verification_is_reported_and_fails() {
    let output = with_fake_elixir("send", &line(7.0, r#""the sum received: 1 instead of 2""#));
    assert_eq!(status(&output), 1);
    assert_eq!(json_rows(&output)[0]["verified"], false);
    assert!(stderr(&output).contains("the sum received: 1 instead of 2"), "{}", stderr(&output));
}

#[test]
fn a_peer_that_crashes_or_prints_no_result_is_not_verified() {
    for script in ["exit 3", "echo hello", "true"] {
        let output = with_fake_elixir("send", script);
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
    let quick = format!("run all --quick --json --runtime throng --output {results}");
    let measured = run(&quick);
    assert_eq!(status(&measured), 0, "{}", stderr(&measured));
    let rows = json_rows(&measured);
    assert!(rows.len() > 15 && rows.iter().all(|row| row["verified"] == true), "{rows:?}");
    let again = run(&quick);
    assert_eq!(status(&again), 1);
    assert!(stderr(&again).contains("has results; `--continue` adds"), "{}", stderr(&again));
    // The file lacks the last measurement, as if the run had been interrupted.
    let file = Path::new(results).join("rows.jsonl");
    let text = std::fs::read_to_string(&file).expect("the rows are stored");
    assert_eq!(text.lines().count(), rows.len());
    let shorter: String = text.split_inclusive('\n').take(rows.len() - 1).collect();
    std::fs::write(&file, shorter).expect("the rows can be stored");
    let others = run(&format!("{quick} --continue --group tasks,store"));
    assert!(json_rows(&others).is_empty(), "the last measurement is of another group");
    let continued = run(&format!("{quick} --continue"));
    assert_eq!(status(&continued), 0, "{}", stderr(&continued));
    assert_eq!(json_rows(&continued).len(), 1);
    let compared = run(&format!("compare {results} {results}"));
    assert_eq!(status(&compared), 0, "{}", stderr(&compared));
    let text = stdout(&compared);
    assert!(text.contains("medians that differ by more than 15 %: 0"), "{text}");
    let reported = run(&format!("report {results}"));
    assert_eq!(status(&reported), 0, "{}", stderr(&reported));
    let page = std::fs::read_to_string(stdout(&reported).trim_end()).expect("the page is there");
    for row in &rows {
        let name = row["measurement"].as_str().expect("the measurement is named");
        assert!(page.contains(&format!("<article id=\"{name}\">")), "{name}");
    }
    let absent = run(&format!("compare {results} no-such-directory"));
    assert_eq!(status(&absent), 1);
    assert!(stderr(&absent).contains("no-such-directory"), "{}", stderr(&absent));
}

#[test]
fn options_of_the_suite_and_of_a_workload_do_not_mix() {
    for (arguments, reason) in [
        ("run all --count 3", "are for a single workload"),
        ("run all --set pairs=3", "are for a single workload"),
        ("run all --runtime cobol", "unknown runtime `cobol`; the suite's are throng, "),
        ("run send --output here", "are for `run all`"),
    ] {
        let output = run(arguments);
        assert_eq!(status(&output), 2, "{arguments}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}

#[test]
fn a_store_is_in_the_given_directory_and_removed_afterwards() {
    let place = tempfile::tempdir().expect("there is room for a directory");
    let few = "run store-put --count 100 --runs 1 --json --set";
    let output = run(&format!("{few} dir={}", place.path().display()));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert_eq!(json_rows(&output)[0]["params"]["dir"], place.path().to_str().expect("is text"));
    assert_eq!(std::fs::read_dir(place.path()).expect("it is there").count(), 0);
    assert_eq!(status(&run(&format!("{few} dir=/nowhere/at"))), 1);
}
