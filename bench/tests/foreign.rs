//! Runs the runtimes in other languages, as far as they are installed, and sets them up.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Small runs of every workload that all runtimes in other languages have.
const WORK: &[&str] = &[
    "processes --count 5000",
    "spawn --count 5000 --set chunk=300",
    "send --count 10000 --set senders=7",
    "send-cost --count 5 --set payload=0",
    "send-cost --count 5 --set payload=1",
    "send-cost --count 5 --set payload=1000000",
    "send-cost --count 5 --set depth=1000",
    "call --count 1000 --set callees=10 --set samples=100",
    "churn --count 1000 --set warmup=100",
    "sleep --count 1000 --set seconds=1",
    "tasks --count 1000 --set seconds=1",
    "tasks --count 1 --set seconds=1",
    "pairs --count 20000 --set pairs=100",
    "pairs --count 3 --set pairs=5",
    "ring --count 7 --set processes=50",
    "ring --count 1000 --set processes=1",
    "calls --count 5000 --set samples=500 --set callees=7",
    "calls --count 3 --set samples=1 --set callers=5",
    "fan --count 50000 --set settle=0",
    "fan --count 1234 --set chunk=100 --set receivers=7 --set settle=0",
    "fan --count 3 --set receivers=7 --set settle=0",
    "burst --count 50000 --set settle=0",
    "fairness --count 5 --set flooders=50",
    "skynet --count 12345",
    "skynet --count 1",
    "monitors --count 2000",
    "monitors --count 100 --set watchers=7",
    // A cancelled timer that fires does so before the run ends.
    "timers --count 2050 --set live=1000 --set seconds=1",
    "timers --count 7 --set longest=1",
];

/// Small runs of every workload of Savina, which Erlang, Go and Java have.
const SAVINA: &[&str] = &[
    "chameneos --count 2000",
    "chameneos --count 1 --set creatures=2",
    "big --count 100",
    "big --count 10 --set actors=1",
    "dictionary --count 100",
    "buffer --count 20",
    "buffer --count 10 --set producers=5 --set consumers=1 --set capacity=1",
    "philosophers --count 100",
    "barber --count 50",
    "barber --count 50 --set room=1 --set arrival=1",
    "smokers --count 50",
    "banking --count 500",
    "banking --count 100 --set accounts=1",
    "sieve --count 5000 --set block=100",
    "queens --count 8",
    "queens --count 1",
];

/// Small runs of the microblog, which only Erlang has.
const SOCIAL: &[&str] = &[
    "social --count 300 --set requests=2000 --set users_per_process=70",
    "social --count 100 --set requests=500 --set graph=zipf --set users_per_process=1 --set part=timelines",
    "social --count 100 --set requests=200 --set rounds=3 --set dropped=1 --set clients=1 --set part=profiles",
    "social --count 1 --set requests=50 --set follows=3",
];

/// The same with posts only, which the central design of Erlang has not.
const SOCIAL_POSTS: &[&str] = &[
    "social --count 300 --set requests=2000 --set part=deliveries",
    "social --count 50 --set requests=200 --set graph=ring --set follows=7 --set part=deliveries",
];

fn bench(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(arguments.split(' '));
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal ended it")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Rows of a runtime that do the same work.
struct Rows<'a> {
    names: &'a [&'a str],
    class: &'a str,
    /// Workloads, or units of work, that the rows leave out.
    without: &'a [&'a str],
    /// The number of workers that a row states; `None` if it is the number that the run asks for.
    workers: Option<&'static str>,
}

impl Rows<'_> {
    /// Runs all work on the rows beside tokio, with each of some numbers of workers, and checks that every
    /// row is verified.
    #[track_caller]
    fn check_work(&self, workers: &[&str], configure: impl Fn(&mut Command)) {
        let left_out = |work: &str| self.without.iter().any(|start| work.starts_with(start));
        let work: Vec<&str> = WORK.iter().copied().filter(|work| !left_out(work)).collect();
        self.check(&work, workers, configure);
    }

    /// The same with the work of Savina.
    #[track_caller]
    fn check_savina(&self, workers: &[&str], configure: impl Fn(&mut Command)) {
        self.check(SAVINA, workers, configure);
    }

    #[track_caller]
    fn check(&self, work: &[&str], workers: &[&str], configure: impl Fn(&mut Command)) {
        self.check_beside("tokio", work, workers, configure);
    }

    /// Runs work on the rows beside a runtime of this program.
    #[track_caller]
    fn check_beside(
        &self,
        other: &str,
        work: &[&str],
        workers: &[&str],
        configure: impl Fn(&mut Command),
    ) {
        for work in work {
            for &workers in workers {
                let runtimes = self.names.join(",");
                let line = format!("run {work} --quick --json --runtime {runtimes},{other}");
                let mut command = bench(&line);
                configure(command.args(["--workers", workers]));
                let output = output(&mut command);
                assert_eq!(status(&output), 0, "{work}: {}", stderr(&output));
                let found: Vec<Value> = stdout(&output)
                    .lines()
                    .map(|line| serde_json::from_str(line).expect("each line is JSON"))
                    .collect();
                assert_eq!(found.len(), self.names.len() + 1, "{work}: {}", stderr(&output));
                for (row, runtime) in found.iter().zip(self.names) {
                    assert_eq!(row["runtime"], *runtime);
                    assert_eq!(row["class"], self.class, "{row}");
                    assert_eq!(row["verified"], true, "{row}");
                    let stated = row["params"]["workers"].to_string();
                    assert_eq!(stated, self.workers.unwrap_or(workers), "{row}");
                }
            }
        }
    }
}

/// Whether a runtime is set up in the place for all users of this checkout, or can be built without
/// downloads; says so if not, because a test is skipped then.
fn is_set_up(runtime: &str) -> bool {
    let planned = stdout(&output(&mut bench(&format!("setup {runtime} --dry-run"))));
    // The script of Pekko calls Maven.
    let downloads =
        ["would stay absent", "apt-get", "pip install", "npm install", "pekko/build.sh"];
    if downloads.iter().any(|word| planned.contains(word)) {
        println!("skipped: `bench setup {runtime}` has not been run: {planned}");
        return false;
    }
    let set_up = output(&mut bench(&format!("setup {runtime}")));
    let ready = format!("{runtime}: ready, ");
    assert!(stdout(&set_up).starts_with(&ready), "{}{}", stdout(&set_up), stderr(&set_up));
    true
}

/// Starts more processes than are allowed, on a row and on tokio, and checks that both refuse them.
#[track_caller]
fn check_limit(row: &str, configure: impl Fn(&mut Command)) {
    let work = "run processes --count 5000 --set maximum=1000 --runs 1 --runtime";
    let mut command = bench(&format!("{work} {row},tokio"));
    configure(&mut command);
    let output = output(&mut command);
    assert_eq!(status(&output), 1, "{}", stdout(&output));
    assert_eq!(stdout(&output).matches("NOT VERIFIED").count(), 2, "{}", stdout(&output));
    // The warm-up has half of the processes.
    for requested in ["2500", "5000"] {
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
        let names = &["erlang", "erlang-tuned"];
        let rows = Rows { names, class: "isolated process", without: &[], workers: None };
        rows.check_work(&["2"], |_| {});
        rows.check_savina(&["1", "2"], |_| {});
        check_limit("erlang", |_| {});
    }
}

#[test]
fn erlang_has_both_designs_of_the_microblog_where_it_is_set_up() {
    if is_set_up("erlang") {
        let all = &["erlang", "erlang-tuned", "erlang-central"];
        let rows = |names| Rows { names, class: "isolated process", without: &[], workers: None };
        rows(all).check_beside("throng", SOCIAL, &["1", "2"], |_| {});
        rows(&all[..2]).check_beside("throng", SOCIAL_POSTS, &["2"], |_| {});
        let line = "run social --runs 1 --count 10 --set part=deliveries --runtime erlang-central";
        let refused = output(&mut bench(line));
        assert_eq!(status(&refused), 1);
        let refused = stderr(&refused);
        assert!(refused.contains("this runtime has no `deliveries`"), "{refused}");
    }
}

#[test]
fn elixir_does_the_same_work_where_it_is_installed() {
    if is_set_up("elixir") {
        let names = &["elixir", "elixir-tuned"];
        let rows = Rows {
            names,
            class: "isolated process",
            without: &["processes", "tasks"],
            workers: None,
        };
        rows.check_work(&["2"], |_| {});
    }
}

#[test]
fn java_does_the_same_work_where_it_is_set_up() {
    if !is_set_up("java") {
        return;
    }
    let class = "green thread";
    let names = &["java-virtual"];
    let rows = Rows { names, class, without: &["fairness", "processes", "tasks"], workers: None };
    rows.check_work(&["1"], |_| {});
    rows.check_savina(&["2"], |_| {});
    let tuned = output(&mut bench("run send --count 10 --runs 1 --runtime java-virtual-tuned"));
    if stderr(&tuned).contains("java-virtual-tuned: absent: the version that") {
        println!("skipped: the JRE does not know the flags of java-virtual-tuned");
    } else {
        let names = &["java-virtual-tuned"];
        Rows { names, class, without: &["fairness", "processes", "tasks"], workers: None }
            .check_work(&["2"], |_| {});
    }
}

#[test]
fn threads_of_java_do_the_same_work_where_it_is_set_up() {
    if is_set_up("java") {
        // Threads run on all cores.
        let cores = std::thread::available_parallelism().map_or(1, usize::from).to_string();
        let workers = Some(&*cores.leak());
        // So many leaves are beyond a limit of the row.
        let without = &["skynet --count 12345", "processes", "tasks"];
        let rows = Rows { names: &["java-threads"], class: "OS thread", without, workers };
        rows.check_work(&["1"], |_| {});
        rows.check_savina(&["1"], |_| {});
    }
}

#[test]
fn pekko_does_the_same_work_where_it_is_set_up() {
    if !is_set_up("pekko") {
        return;
    }
    let class = "actor";
    let without = &["fairness", "processes", "tasks", "send-cost", "monitors", "timers"];
    Rows { names: &["pekko"], class, without, workers: None }.check_work(&["1", "2"], |_| {});
    let tuned = output(&mut bench("run send --count 10 --runs 1 --runtime pekko-tuned"));
    if stderr(&tuned).contains("pekko-tuned: absent: the version that") {
        println!("skipped: the JRE does not know the flags of pekko-tuned");
    } else {
        Rows { names: &["pekko-tuned"], class, without, workers: None }.check_work(&["2"], |_| {});
    }
    check_fairness_alone("pekko-thread-pool");
}

#[test]
fn caf_does_the_same_work_where_it_is_set_up() {
    if !is_set_up("caf") {
        return;
    }
    let without = &["fairness", "processes", "tasks", "send-cost", "monitors", "timers"];
    let rows = Rows { names: &["caf"], class: "actor", without, workers: None };
    rows.check_work(&["1", "2"], |_| {});
    check_fairness_alone("caf-max-throughput");
}

/// Runs `fairness` on a row of actors that has no other workload.
#[track_caller]
fn check_fairness_alone(row: &str) {
    let others: Vec<&str> =
        WORK.iter().copied().filter(|work| !work.starts_with("fairness")).collect();
    Rows { names: &[row], class: "actor", without: &others, workers: None }
        .check_work(&["1", "2"], |_| {});
}

#[test]
fn node_bun_and_python_do_the_same_work_on_one_thread_where_they_are_set_up() {
    for (runtime, names) in
        [("node", &["node"][..]), ("bun", &["bun"]), ("python", &["python", "python-uvloop"])]
    {
        if is_set_up(runtime) {
            let (class, workers) = ("stackless task", Some("1"));
            let without = &["fairness", "processes", "tasks", "monitors"];
            let rows = Rows { names, class, without, workers };
            rows.check_work(&["2"], |_| {});
        }
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
        let line: Value = serde_json::from_str(&stdout(&output)).expect("a line of JSON");
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
        let output = output(&mut bench(&format!("run {work} --runs 1 --runtime {row}")));
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
    let names = &["go", "go-tuned"];
    let rows = Rows { names, class: "green thread", without: &[], workers: None };
    rows.check_work(&["1", "2"], with_target);
    rows.check_savina(&["1", "2"], with_target);
    let syncmap =
        Rows { names: &["go-syncmap"], class: "green thread", without: &[], workers: None };
    syncmap.check(&["tasks --count 1000 --set seconds=1"], &["2"], with_target);
    check_limit("go", with_target);

    // A program that was built from other sources is not measured.
    std::fs::write(target.join("go/built"), "other").expect("setup has made the directory");
    let stale = set_up("run send --count 10 --runs 1 --runtime go");
    assert_eq!(status(&stale), 1);
    assert!(stderr(&stale).contains("go: absent: it was built from other"), "{}", stderr(&stale));
    assert!(stdout(&set_up("setup go --dry-run")).contains("would run `go build"));
}

/// Creates a directory of programs, which are the lines of shell scripts.
#[cfg(unix)]
fn programs(scripts: &[(&str, &str)]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().expect("there is room for a directory");
    for (name, script) in scripts {
        let program = directory.path().join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("there is room");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, executable).expect("the file is ours");
    }
    directory
}

#[cfg(unix)]
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

#[cfg(unix)]
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

#[cfg(unix)]
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
    let listed = stdout(&output(&mut bench("list")));
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
#[cfg(unix)]
#[test]
fn the_scripts_of_java_and_pekko_take_a_jre_by_its_release_and_link_it_by_its_flags() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let releases =
        [("1.8", false, false), ("17", false, false), ("21", true, false), ("25", true, true)];
    for (peer, (release, taken, tuned)) in
        ["java", "pekko"].into_iter().flat_map(|peer| releases.map(|release| (peer, release)))
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
