//! Steps: named pieces of work that run in order until the first failure, and their summary.
//!
//! Invariants: the output of every command appears as it is written; the last line printed is a
//! `test result:` line in the format of `cargo test`, whose counts are the sums over all steps, so
//! a program that reads the output of `cargo test` can read this output.

use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The reason for which a command failed, as a sentence for a person.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A named piece of work.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn() -> Result<Tests, Failure>,
}

/// Numbers of tests by outcome; the columns of a `test result:` line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    passed: u64,
    failed: u64,
    ignored: u64,
    measured: u64,
    filtered_out: u64,
    /// Whether the step was left out, because its tool is missing.
    is_skipped: bool,
}

impl Tests {
    /// The numbers of a step that was left out.
    pub(crate) fn skipped() -> Tests {
        Tests { is_skipped: true, ..Tests::default() }
    }

    /// The numbers for a step that is a test itself.
    pub(crate) fn one_passed() -> Tests {
        Tests { passed: 1, ..Tests::default() }
    }

    fn add(&mut self, other: Tests) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.measured += other.measured;
        self.filtered_out += other.filtered_out;
    }

    /// Reads a line such as `test result: ok. 3 passed; 0 failed; …`; `None` for any other line.
    fn parse(line: &str) -> Option<Tests> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut tests = Tests::default();
        for part in counts.split(';') {
            let Some((count, what)) = part.trim().split_once(' ') else { continue };
            let Ok(count) = count.parse() else { continue };
            match what {
                "passed" => tests.passed = count,
                "failed" => tests.failed = count,
                "ignored" => tests.ignored = count,
                "measured" => tests.measured = count,
                "filtered out" => tests.filtered_out = count,
                _ => {}
            }
        }
        Some(tests)
    }

    /// The `test result:` line for these counts.
    fn result_line(&self, ok: bool, elapsed: Duration) -> String {
        let verdict = if ok { "ok" } else { "FAILED" };
        let Tests { passed, failed, ignored, measured, filtered_out, is_skipped: _ } = self;
        format!(
            "test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; \
             {measured} measured; {filtered_out} filtered out; finished in {:.2}s",
            elapsed.as_secs_f64()
        )
    }
}

/// Runs `steps` in order, stops at the first that fails, and prints the time that each took.
///
/// # Errors
/// Names the step that failed and why.
pub(crate) fn run(steps: &[Step]) -> Result<(), Failure> {
    let start = Instant::now();
    let mut total = Tests::default();
    let mut rows = Vec::new();
    let mut failure = None;
    for (index, step) in steps.iter().enumerate() {
        println!("\n==> [{}/{}] {}: {}", index + 1, steps.len(), step.name, step.about);
        let step_start = Instant::now();
        let outcome = (step.run)();
        let verdict = match &outcome {
            Ok(tests) if tests.is_skipped => "skipped",
            Ok(_) => "ok",
            Err(_) => "FAILED",
        };
        rows.push((step.name, verdict, step_start.elapsed()));
        match outcome {
            Ok(tests) => total.add(tests),
            Err(Failure(why)) => {
                failure = Some(Failure(format!("{}: {why}", step.name)));
                break;
            }
        }
    }
    println!("\n==> summary");
    for (name, verdict, elapsed) in &rows {
        println!("{name:<10} {verdict:<7} {:>8.1} s", elapsed.as_secs_f64());
    }
    for step in &steps[rows.len()..] {
        println!("{:<10} not run", step.name);
    }
    println!("\n{}", total.result_line(failure.is_none(), start.elapsed()));
    failure.map_or(Ok(()), Err)
}

/// Builds a program of the workspace with the features of its tests, so that all of its dependencies are compiled
/// already after `cargo test --workspace`; returns its path.
///
/// # Errors
/// If it cannot be built.
pub(crate) fn program_beside_tests(name: &str) -> Result<PathBuf, Failure> {
    // An example, unlike another program, is built with the features of dev-dependencies.
    let line = "cargo build --workspace --locked --bin throng-stress --example costs";
    Tool::new(line).arg("--message-format=json-render-diagnostics").build(name)
}

/// A command of the tool chain, run at the root of the workspace.
pub(crate) struct Tool(Command);

impl Tool {
    /// Splits `line` at blanks; [`Tool::arg`] adds an argument that holds blanks.
    pub(crate) fn new(line: &str) -> Tool {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(root());
        Tool(command)
    }

    /// A program that was built, without arguments.
    pub(crate) fn program(path: &Path) -> Tool {
        let mut command = Command::new(path);
        command.current_dir(root());
        Tool(command)
    }

    /// Adds arguments, which are not split at blanks.
    pub(crate) fn args(mut self, arguments: &[&str]) -> Tool {
        self.0.args(arguments);
        self
    }

    /// Adds an argument, which is not split at blanks.
    pub(crate) fn arg(mut self, argument: &str) -> Tool {
        self.0.arg(argument);
        self
    }

    /// Has cargo build another workspace in the target directory of this workspace, so that both
    /// share the dependencies they have in common.
    pub(crate) fn in_our_directory(self) -> Tool {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(_) => self,
            None => self.env("CARGO_TARGET_DIR", "target"),
        }
    }

    /// Runs the command in another directory than the root.
    pub(crate) fn in_directory(mut self, directory: &Path) -> Tool {
        self.0.current_dir(directory);
        self
    }

    /// Sets a variable of the command's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Tool {
        self.0.env(name, value);
        self
    }

    /// Removes a variable from the command's environment.
    pub(crate) fn env_remove(mut self, name: &str) -> Tool {
        self.0.env_remove(name);
        self
    }

    /// Runs the command with the output of this program.
    ///
    /// # Errors
    /// If it cannot be started or fails.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        println!("    {}", self.line());
        let status = self.0.status().map_err(|error| self.failed(&error))?;
        if status.success() { Ok(()) } else { Err(self.failed(&status)) }
    }

    /// Runs the command with the output of this program and counts the tests that it reports.
    ///
    /// # Errors
    /// If it cannot be started, fails, or ran no test at all.
    pub(crate) fn run_tests(mut self) -> Result<Tests, Failure> {
        println!("    {}", self.line());
        self.0.stdout(Stdio::piped());
        let mut child = self.0.spawn().map_err(|error| self.failed(&error))?;
        let mut tests = Tests::default();
        if let Some(stdout) = child.stdout.take() {
            tests = echo(BufReader::new(stdout), std::io::stdout())
                .map_err(|error| self.failed(&error))?;
        }
        let status = child.wait().map_err(|error| self.failed(&error))?;
        if !status.success() {
            return Err(self.failed(&status));
        }
        if tests.passed == 0 {
            return Err(Failure(format!("`{}` ran no test", self.line())));
        }
        Ok(tests)
    }

    /// Runs a command of cargo that builds the target with this name, a program, and reports its path as JSON; returns
    /// the path.
    ///
    /// # Errors
    /// If it cannot be started, fails, or builds no such program.
    pub(crate) fn build(mut self, name: &str) -> Result<PathBuf, Failure> {
        println!("    {}", self.line());
        let output = self.0.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| self.failed(&error))?;
        if !output.status.success() {
            return Err(self.failed(&output.status));
        }
        program_in(&String::from_utf8_lossy(&output.stdout), name)
            .ok_or_else(|| self.failed(&"it made no program"))
    }

    /// Runs the command silently and returns its standard output; `None` if it is absent or fails.
    pub(crate) fn output(mut self) -> Option<String> {
        let output = self.0.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn line(&self) -> String {
        let mut words = Vec::new();
        for (name, value) in self.0.get_envs() {
            if let Some(value) = value {
                let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
                let quote = if value.contains(' ') { "'" } else { "" };
                words.push(format!("{name}={quote}{value}{quote}"));
            }
        }
        words.push(self.0.get_program().to_string_lossy().into_owned());
        words.extend(self.0.get_args().map(|word| word.to_string_lossy().into_owned()));
        words.join(" ")
    }

    fn failed(&self, why: &dyn fmt::Display) -> Failure {
        Failure(format!("`{}` failed: {why}", self.line()))
    }
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // `cargo run` and `cargo test` set the variable; a binary started by hand uses the value of its
    // build.
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or_else(|| own.clone(), Path::to_path_buf)
}

/// The program of a target in cargo's messages, each a line of JSON.
fn program_in(messages: &str, name: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let program = message["executable"].as_str()?;
        (message["target"]["name"] == name).then(|| PathBuf::from(program))
    })
}

/// Copies `output` to `copy` line by line and adds up its `test result:` lines.
fn echo(mut output: impl BufRead, mut copy: impl Write) -> std::io::Result<Tests> {
    let mut tests = Tests::default();
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        copy.write_all(&line)?;
        if let Some(counted) = Tests::parse(&without_colour(&String::from_utf8_lossy(&line))) {
            tests.add(counted);
        }
        line.clear();
    }
    Ok(tests)
}

/// `text` without terminal escapes of the form `ESC [ … letter`.
fn without_colour(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_over_binaries_and_colours() {
        let output = "running 2 tests\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s\n\
            test result: \u{1b}[32mok\u{1b}[0m. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let mut copy = Vec::new();
        let tests = echo(output.as_bytes(), &mut copy).expect("a string and a vector do not fail");
        assert_eq!(copy, output.as_bytes());
        assert_eq!(tests, Tests { passed: 5, ignored: 1, filtered_out: 4, ..Tests::default() });
    }

    #[test]
    fn a_result_line_reads_back_as_itself() {
        let tests = Tests {
            passed: 7,
            failed: 1,
            ignored: 2,
            measured: 3,
            filtered_out: 4,
            ..Tests::default()
        };
        let line = tests.result_line(false, Duration::from_millis(1500));
        assert_eq!(Tests::parse(&line), Some(tests));
        assert!(line.ends_with("finished in 1.50s"), "{line}");
        assert_eq!(Tests::parse("test foo ... ok"), None);
    }

    #[test]
    fn the_program_is_read_from_cargos_messages() {
        let messages = "no JSON\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"throng\"},\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"other\"},\"executable\":\"/target/other\"}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"throng\"},\"executable\":\"/target/throng-1\"}\n\
            {\"reason\":\"build-finished\",\"success\":true}\n";
        let program = |name| program_in(messages, name);
        assert_eq!(program("throng").as_deref(), Some(Path::new("/target/throng-1")));
        assert_eq!(program("other").as_deref(), Some(Path::new("/target/other")));
        assert_eq!(program("absent"), None);
        assert!(Tool::new("true").build("throng").is_err());
    }

    #[test]
    fn a_run_of_no_test_fails() {
        assert!(Tool::new("true").run_tests().is_err());
        assert!(Tool::new("false").run().is_err());
        assert!(Tool::new("no-such-program-anywhere").run().is_err());
    }

    #[test]
    fn the_first_failure_stops_the_run() {
        let fails = Step { name: "fails", about: "", run: || Err(Failure("on purpose".into())) };
        let panics = Step { name: "never", about: "", run: || panic!("ran after a failure") };
        let failure = run(&[fails, panics]).expect_err("the first step fails");
        assert_eq!(failure.to_string(), "fails: on purpose");
    }
}
