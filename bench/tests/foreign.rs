//! Runs the runtimes in other languages, as far as they are installed, and sets them up.

mod program;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use self::program::{bench, json_rows, output, programs, run, status, stderr, stdout};

/// The contents of `foreign.toml`, which explains the fields.
#[derive(Deserialize)]
struct Runs {
    work: BTreeMap<String, Vec<String>>,
    rows: Vec<Rows>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    runtime: String,
    names: String,
    class: String,
    work: String,
    #[serde(default)]
    without: Vec<String>,
    workers: Vec<String>,
    beside: Option<String>,
    states: Option<String>,
    #[serde(default)]
    optional: bool,
}

/// Makes the runs of a runtime, and checks that every row of them is verified.
#[track_caller]
fn check_work(runtime: &str, configure: impl Fn(&mut Command)) {
    let runs: Runs = toml::from_str(include_str!("foreign.toml")).expect("it is well formed");
    let cores = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let of_runtime: Vec<&Rows> = runs.rows.iter().filter(|rows| rows.runtime == runtime).collect();
    assert!(!of_runtime.is_empty(), "{runtime}");
    for rows in of_runtime {
        if rows.optional && lacks_flags(&rows.names) {
            println!("skipped: {} has flags that the version does not know", rows.names);
            continue;
        }
        let is_left_out = |work: &String| rows.without.iter().any(|start| work.starts_with(start));
        for work in runs.work[&rows.work].iter().filter(|work| !is_left_out(work)) {
            for workers in &rows.workers {
                let names: Vec<&str> = rows.names.split(' ').collect();
                let beside = rows.beside.as_deref().unwrap_or("tokio");
                let runtimes = format!("{},{beside}", names.join(","));
                let line = format!("run {work} --quick --json --runtime {runtimes}");
                let mut command = bench(&line);
                configure(command.args(["--workers", workers]));
                let output = output(&mut command);
                assert_eq!(status(&output), 0, "{work}: {}", stderr(&output));
                let found = json_rows(&output);
                assert_eq!(found.len(), names.len() + 1, "{work}: {}", stderr(&output));
                let stated = match rows.states.as_deref() {
                    Some("cores") => cores.as_str(),
                    Some(one) => one,
                    None => workers.as_str(),
                };
                for (row, name) in found.iter().zip(names) {
                    assert_eq!(row["runtime"], name);
                    assert_eq!(row["class"], *rows.class, "{row}");
                    assert_eq!(row["verified"], true, "{row}");
                    assert_eq!(row["params"]["workers"].to_string(), *stated, "{row}");
                }
            }
        }
    }
}

/// Whether a row is absent because the installed version does not know its flags.
fn lacks_flags(row: &str) -> bool {
    let tried = run(&format!("run send --count 10 --runs 1 --runtime {row}"));
    stderr(&tried).contains(&format!("{row}: absent: the version that"))
}

/// Whether a runtime is set up in the place for all users of this checkout, or can be built without
/// downloads; says so if not, because a test is skipped then.
fn is_set_up(runtime: &str) -> bool {
    let planned = stdout(&run(&format!("setup {runtime} --dry-run")));
    // The scripts of Pekko and of the databases call Maven and Cargo.
    let downloads = [
        "would stay absent",
        "apt-get",
        "pip install",
        "npm install",
        "pekko/build.sh",
        "rust-jobs/build.sh",
    ];
    if downloads.iter().any(|word| planned.contains(word)) {
        println!("skipped: `bench setup {runtime}` has not been run: {planned}");
        return false;
    }
    let set_up = run(&format!("setup {runtime}"));
    let ready = format!("{runtime}: ready, ");
    assert!(stdout(&set_up).starts_with(&ready), "{}{}", stdout(&set_up), stderr(&set_up));
    true
}

/// Starts more processes than are allowed, on a row and on tokio, and checks that both refuse them.
#[track_caller]
fn check_limit(row: &str, configure: impl Fn(&mut Command)) {
    let work = "run processes --count 10000 --set maximum=1000 --runs 1 --runtime";
    let mut command = bench(&format!("{work} {row},tokio"));
    configure(&mut command);
    let output = output(&mut command);
    assert_eq!(status(&output), 1, "{}", stdout(&output));
    assert_eq!(stdout(&output).matches("NOT VERIFIED").count(), 2, "{}", stdout(&output));
    // The warm-up has a quarter of the processes.
    for requested in ["2500", "10000"] {
        let refused = format!("{requested} processes requested, 1000 allowed: ");
        assert_eq!(stderr(&output).matches(&refused).count(), 2, "{}", stderr(&output));
    }
}

/// Whether a program can be started; says so if not, because a test is skipped then.
fn is_installed(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output();
    if let Err(error) = &found {
        println!("skipped: `{program}` cannot be started: {error}");
    }
    found.is_ok()
}

/// A directory for built peers that no user of this checkout has set up.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn erlang_does_the_same_work_where_it_is_set_up() {
    if is_set_up("erlang") {
        check_work("erlang", |_| {});
        check_limit("erlang", |_| {});
        let line = "run social --runs 1 --count 10 --set part=deliveries --runtime erlang-central";
        let refused = run(line);
        assert_eq!(status(&refused), 1);
        let refused = stderr(&refused);
        assert!(refused.contains("this runtime has no `deliveries`"), "{refused}");
    }
}

#[test]
fn java_and_pekko_do_the_same_work_where_they_are_set_up() {
    check_all("java pekko");
}

#[test]
fn elixir_caf_node_bun_and_python_do_the_same_work_where_they_are_set_up() {
    check_all("elixir caf node bun python");
}

#[test]
fn databases_hold_durable_counters_where_they_are_set_up() {
    check_all("redis postgres sqlite rocksdb");
}

fn check_all(runtimes: &str) {
    for runtime in runtimes.split(' ').filter(|runtime| is_set_up(runtime)) {
        check_work(runtime, |_| {});
    }
}

#[test]
fn libraries_of_websockets_are_set_up_and_deliver_where_their_languages_are_installed() {
    for (row, program, argument) in [("node-ws", "npm", "--version"), ("go-ws", "go", "version")] {
        if !is_installed(program, argument) {
            continue;
        }
        let target = built("sockets-peer");
        let run = |arguments: &str| {
            let mut command = bench(arguments);
            command.env("BENCH_PEERS_TARGET", &target);
            output(&mut command)
        };
        let set_up = run(&format!("setup {row}"));
        if !set_up.status.success() {
            println!("skipped: {row} cannot be set up: {}", stderr(&set_up));
            continue;
        }
        let small = "--count 3000 --set sockets=60 --set room=6 --set settle=0";
        let output = run(&format!("run chat {small} --quick --json --runtime {row}"));
        assert_eq!(status(&output), 0, "{row}: {}", stderr(&output));
        let line = &json_rows(&output)[0];
        assert_eq!((&line["runtime"], &line["verified"]), (&row.into(), &true.into()), "{line}");
        let version = line["version"].as_str().unwrap_or_default();
        assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
    }
}

#[test]
fn a_row_beyond_its_limit_is_unsupported_and_the_limit_is_named() {
    for (work, row, limit) in [
        ("fairness --count 5", "elixir", "flooders 1000 at most, and not with 10000: "),
        ("fairness --count 5 --set flooders=1001", "go-tuned", "flooders 1000 at most, "),
        ("skynet --count 1001", "java-threads", "count 1000 at most, and not with 1001: "),
        ("pairs --count 5 --set pairs=5001", "java-threads", "pairs 5000 at most, "),
        ("spawn --count 10001", "threads", "count 10000 at most, and not with 10001: an operating"),
    ] {
        let output = run(&format!("run {work} --runs 1 --runtime {row}"));
        assert_eq!(status(&output), 1, "nothing ran");
        let sentence = format!("{row}: unsupported: this row is measured with {limit}");
        assert!(stderr(&output).contains(&sentence), "{}", stderr(&output));
        assert_eq!(stderr(&output).matches("unsupported").count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn go_is_built_and_does_the_same_work_where_it_is_installed() {
    if !is_installed("go", "version") {
        return;
    }
    let target = built("go-peer");
    let with_target = |command: &mut Command| {
        command.env("BENCH_PEERS_TARGET", &target);
    };
    let set_up = |arguments: &str| {
        let mut command = bench(arguments);
        with_target(&mut command);
        output(&mut command)
    };
    let first = set_up("setup go");
    assert_eq!(status(&first), 0, "{}", stderr(&first));
    assert!(stdout(&first).starts_with("go: ready, Go 1."), "{}", stdout(&first));
    assert_eq!(stdout(&set_up("setup go --dry-run")), "go: nothing to do\n");
    check_work("go", with_target);
    check_limit("go", with_target);

    // A program that was built from other sources is not measured.
    std::fs::write(target.join("go/built"), "other").expect("setup has made the directory");
    let stale = set_up("run send --count 10 --runs 1 --runtime go");
    assert_eq!(status(&stale), 1);
    assert!(stderr(&stale).contains("go: absent: it was built from other"), "{}", stderr(&stale));
    assert!(stdout(&set_up("setup go --dry-run")).contains("would run `go build"));
}

#[test]
fn a_dry_run_of_setup_prints_the_commands_and_runs_none() {
    let called = tempfile::tempdir().expect("there is room for a directory");
    let called = called.path().join("called");
    let note =
        format!("case $1 in --version|version) ;; *) echo $0 $* >> {} ;; esac", called.display());
    let path = programs(&[("erl", "exit 1"), ("go", &note), ("apt-get", &note)]);
    let target = tempfile::tempdir().expect("there is room for a directory");
    let mut command = bench("setup --dry-run");
    command.env("PATH", path.path()).env("BENCH_PEERS_TARGET", target.path());
    let output = output(&mut command);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let erlang =
        stdout(&output).lines().find(|line| line.starts_with("erlang: ")).map(str::to_owned);
    let erlang = erlang.expect("each runtime has a line");
    assert!(erlang.contains("erlang-base"), "{erlang}");
    // Without root there is no apt, and the line says so.
    let is_root = erlang.contains("would run `apt-get --quiet update`, then `env ");
    assert!(is_root || erlang.contains("would stay absent: "), "{erlang}");
    assert!(stdout(&output).contains("go: would run `go build -o "), "{}", stdout(&output));
    assert!(!called.exists(), "{:?}", std::fs::read_to_string(&called));
    assert_eq!(std::fs::read_dir(target.path()).expect("it is there").count(), 0);
}

#[test]
fn setup_says_which_command_failed() {
    let path = programs(&[("go", "[ $1 = version ]")]);
    let mut command = bench("setup go");
    command.env("PATH", path.path()).env("BENCH_PEERS_TARGET", built("never-built"));
    let output = output(&mut command);
    assert_eq!(status(&output), 1, "a runtime that was named is not ready");
    assert!(stdout(&output).starts_with("go: absent: `go build -o "), "{}", stdout(&output));
    assert!(stdout(&output).contains("failed (exit status: 1)"), "{}", stdout(&output));
}

#[test]
fn a_missing_toolchain_is_installed_by_apt_as_root() {
    let log = built("apt.log");
    let apt = format!("echo $* >> {}", log.display());
    let path = programs(&[("go", "exit 1"), ("apt-get", &apt)]);
    let mut command = bench("setup go");
    // `env` is in one of the further directories.
    let all = format!("{}:/usr/bin:/bin", path.path().display());
    command.env("PATH", all).env("BENCH_PEERS_TARGET", built("never-built"));
    let _ = std::fs::remove_file(&log);
    let output = output(&mut command);
    assert_eq!(status(&output), 1, "this apt-get installs nothing");
    if stdout(&output).contains("apt-get needs root") {
        return println!("skipped: apt-get needs root");
    }
    let calls = std::fs::read_to_string(&log).expect("apt-get was called");
    let calls: Vec<&str> = calls.lines().collect();
    let install = "--quiet --yes --no-install-recommends install golang-go";
    assert_eq!(calls, ["--version", "--quiet update", install]);
    assert!(stdout(&output).starts_with("go: absent: `go build -o "), "{}", stdout(&output));
}

#[test]
fn a_missing_toolchain_is_absent_and_setup_is_named() {
    let empty = tempfile::tempdir().expect("there is room for a directory");
    let alone = |arguments: &str| {
        let mut command = bench(arguments);
        command.env("PATH", empty.path()).env("BENCH_PEERS_TARGET", empty.path());
        output(&mut command)
    };
    for (runtime, row, check) in [
        ("erlang", "erlang", "erl -noshell"),
        ("elixir", "elixir", "elixir --version"),
        ("go", "go", "go version"),
        ("java", "java-virtual", "javac -version"),
        ("pekko", "pekko", "javac -version"),
        ("caf", "caf", "g++ -E"),
        ("node", "node", "node --version"),
        ("bun", "bun", "npm --version"),
        ("python", "python", "python3 -c "),
    ] {
        let set_up = alone(&format!("setup {runtime}"));
        assert_eq!(status(&set_up), 1, "a runtime that was named is not ready");
        let absent = format!("{runtime}: absent: `{check}");
        assert!(stdout(&set_up).starts_with(&absent), "{}", stdout(&set_up));
        let run = alone(&format!("run send --count 10 --runtime {row}"));
        assert_eq!(status(&run), 1, "nothing ran");
        assert!(stderr(&run).contains(&format!("{row}: absent: ")), "{}", stderr(&run));
        assert!(stderr(&run).contains(&format!("`bench setup {runtime}`")), "{}", stderr(&run));
    }
    assert_eq!(status(&alone("setup")), 0, "without names, an absent runtime is no failure");
    let unknown = alone("setup cobol");
    assert_eq!(status(&unknown), 2);
    assert!(stderr(&unknown).contains("known: erlang, elixir, go, java, "), "{}", stderr(&unknown));
}

#[test]
fn the_list_names_the_class_of_each_row() {
    let listed = stdout(&run("list"));
    for row in [
        "throng ",
        "(stackless task)",
        "(actor)",
        "(timer)",
        "go-tuned (green thread)",
        "(OS thread)",
        "erlang (isolated process)",
        "java-threads (OS thread)",
        "pekko-tuned (actor)",
        "caf (actor)",
        "bun (stackless task)",
    ] {
        assert!(listed.contains(row), "{row}: {listed}");
    }
}

/// A JRE of an old release is not taken, and one that does not know the flags of a tuned row makes this row
/// absent and no other.
#[test]
fn the_scripts_of_java_and_pekko_take_a_jre_by_its_release_and_link_it_by_its_flags() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let releases =
        [("1.8", false, false), ("17", false, false), ("21", true, false), ("25", true, true)];
    for (peer, (release, taken, tuned)) in
        ["java", "java/pekko"].into_iter().flat_map(|peer| releases.map(|release| (peer, release)))
    {
        let flags = if tuned { "" } else { "case $* in *Compact*) exit 1 ;; esac\n" };
        let java = format!("{flags}echo '    java.specification.version = {release}' >&2");
        let path = programs(&[("java", &java), ("javac", "true"), ("mvn", "true")]);
        let target = tempfile::tempdir().expect("there is room for a directory");
        let mut build = Command::new("sh");
        build.arg(peers.join(peer).join("build.sh")).arg(target.path());
        let all = format!("{}:/usr/bin:/bin", path.path().display());
        let built = output(build.env("PATH", all));
        assert_eq!(built.status.success(), taken, "{peer} {release}: {}", stderr(&built));
        assert_eq!(target.path().join("java").exists(), taken, "{peer} {release}");
        assert_eq!(target.path().join("java-tuned").exists(), tuned, "{peer} {release}");
    }
}
