//! The built program, as users run it, and programs that stand for others.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;

/// The program with the arguments of a line.
pub(crate) fn bench(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(line.split_whitespace());
    command
}

pub(crate) fn output(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

pub(crate) fn run(line: &str) -> Output {
    output(&mut bench(line))
}

pub(crate) fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal ended it")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn json_rows(output: &Output) -> Vec<Value> {
    let rows = stdout(output);
    rows.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// Creates a directory of programs, which are the lines of shell scripts.
pub(crate) fn programs(scripts: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    for (name, script) in scripts {
        let program = directory.path().join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("there is room");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, executable).expect("the file is ours");
    }
    directory
}
