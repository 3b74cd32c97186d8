//! Every example, run as the program it is.
//!
//! Nothing waits without a bound: a program that hangs is killed after [`PATIENCE`], and its test fails.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bound on the life of a program and on the wait for a socket; generous, because machines are busy.
const PATIENCE: Duration = Duration::from_secs(60);

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

    /// Starts a server and returns it with the address in its first line.
    fn serve(path: &str) -> (Program, String) {
        let mut program = Program::start(path);
        let mut line = String::new();
        program.lines.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").unwrap();
        (program, address.to_owned())
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

/// A client of the chat.
struct Chatter(BufReader<TcpStream>);

impl Chatter {
    /// Connects and joins a room.
    fn join(address: &str, name: &str, room: &str) -> Chatter {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut chatter = Chatter(BufReader::new(socket));
        chatter.say(&format!("{name} {room}"));
        chatter
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line from the server; empty at the end of the connection.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

#[test]
fn a_chat_tells_a_room_what_is_said_and_who_comes_and_goes() {
    let (_server, address) = Program::serve(env!("CARGO_BIN_EXE_chat_tcp"));
    let mut ann = Chatter::join(&address, "ann", "blue");
    assert_eq!(ann.hear(), "* ann joins");
    let mut carl = Chatter::join(&address, "carl", "red");
    assert_eq!(carl.hear(), "* carl joins");
    let mut bob = Chatter::join(&address, "bob", "blue");
    assert_eq!((ann.hear(), bob.hear()), ("* bob joins".into(), "* bob joins".into()));

    ann.say("hello");
    assert_eq!((ann.hear(), bob.hear()), ("ann: hello".into(), "ann: hello".into()));
    drop(bob);
    assert_eq!(ann.hear(), "* bob leaves: stopped normally");

    ann.say(&"x".repeat(5000));
    // Reset or closed: the server has not read all of the line.
    assert!(!matches!(ann.0.read(&mut [0]), Ok(1)));
    let mut dora = Chatter::join(&address, "dora", "blue");
    assert_eq!(dora.hear(), "* dora joins");

    carl.say("nobody came");
    assert_eq!(carl.hear(), "carl: nobody came");
}

#[test]
fn a_chat_ends_a_client_that_reads_too_slowly() {
    let (_server, address) = Program::serve(env!("CARGO_BIN_EXE_chat_tcp"));
    let mut ann = Chatter::join(&address, "ann", "blue");
    assert_eq!(ann.hear(), "* ann joins");
    let _slow = Chatter::join(&address, "slow", "blue");
    assert_eq!(ann.hear(), "* slow joins");
    let words = "x".repeat(4000);
    let echo = format!("ann: {words}");
    loop {
        ann.say(&words);
        match ann.hear() {
            line if line == echo => {}
            line => break assert_eq!(line, "* slow leaves: reads too slowly"),
        }
    }
    // The next line that she hears is the echo of her last.
    assert_eq!(ann.hear(), echo);
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
