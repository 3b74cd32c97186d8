//! A part of a workload in a process of its own: this program once more, with the same arguments.
//!
//! Nothing of the part stays in the process of the run, and a part may be killed.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, getpid, kill_process};

/// Names of the environment variables that tell a child its part of the workload and its directory.
const PART: &str = "BENCH_PART";
const DIRECTORY: &str = "BENCH_DIRECTORY";

/// The part of the workload that this process has as a child, and its directory; `None` in the run itself.
pub(super) fn own() -> Option<(String, PathBuf)> {
    Some((env::var(PART).ok()?, env::var_os(DIRECTORY)?.into()))
}

/// Runs a part, and waits for its end, which is that of a kill if `is_killed`.
pub(super) fn run(part: &str, directory: &Path, is_killed: bool) -> io::Result<()> {
    let mut child = Command::new(env::current_exe()?);
    child.args(env::args_os().skip(1).collect::<Vec<OsString>>());
    child.env(PART, part).env(DIRECTORY, directory);
    let status = child.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let is_right =
        if is_killed { status.signal() == Some(Signal::KILL.as_raw()) } else { status.success() };
    let error = || io::Error::other(format!("the part `{part}` ended otherwise: {status}"));
    is_right.then_some(()).ok_or_else(error)
}

pub(super) fn kill_own() -> io::Error {
    match kill_process(getpid(), Signal::KILL) {
        Ok(()) => io::Error::other("a killed process goes on"),
        Err(error) => error.into(),
    }
}
