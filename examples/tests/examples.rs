//! Every example, run as the program it is.
//!
//! Nothing waits without a bound: a program that hangs is killed after [`PATIENCE`], and its test fails.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::io::{BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bound on the life of a program; generous, because machines are busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running example, killed when dropped.
struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
    ended: Option<Sender<()>>,
    watchdog: Option<JoinHandle<()>>,
}

impl Program {
    fn start(path: &str) -> Program {
        let mut child =
            Command::new(path).env("RUST_BACKTRACE", "0").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let (ended, ends) = channel();
        let id = child.id();
        let watchdog = Some(thread::spawn(move || kill_late(id, &ends)));
        Program { child, lines, ended: Some(ended), watchdog }
    }

    /// Waits for a successful end and returns the rest of the output.
    fn output(mut self) -> String {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}, after the output\n{rest}");
        rest
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // First, so that nothing kills a stranger that has the same number later.
        drop(self.ended.take());
        let _ = self.watchdog.take().map(JoinHandle::join);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a program that has not ended in time.
fn kill_late(id: u32, ends: &Receiver<()>) {
    if ends.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        signal("KILL", id);
    }
}

fn signal(name: &str, id: u32) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status();
    assert!(status.unwrap().success());
}

/// Runs a program to its end and returns its output.
fn run(path: &str) -> String {
    Program::start(path).output()
}

#[test]
fn a_device_that_crashes_is_started_again() {
    let output = run(env!("CARGO_BIN_EXE_device_fleet"));
    let expected = "\
1000 devices report
device-7 panicked: device 7 has a fault
1000 devices report
1000 devices supervised
1000 devices in the group
device-7 is another process: true
";
    assert_eq!(output, expected);
}

#[test]
fn an_order_comes_to_each_of_its_ends() {
    let output = run(env!("CARGO_BIN_EXE_state_machine"));
    let expected = "\
kept: [Placed, Paid, Shipped, Closed]
forgotten: [Placed, Expired]
forgotten: an order that is Expired does not take this
sold out: [Placed, Paid, Refunded]
";
    assert_eq!(output, expected);
}

#[test]
fn the_worker_pool_loses_no_job() {
    let output = run(env!("CARGO_BIN_EXE_worker_pool"));
    assert_eq!(output, "4 workers\n100 jobs, 9592 primes\n");
}
