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
        Program::start_with(&mut Command::new(path))
    }

    fn start_with(command: &mut Command) -> Program {
        let mut child = command.env("RUST_BACKTRACE", "0").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let (ended, ends) = channel();
        let id = child.id();
        let watchdog = Some(thread::spawn(move || kill_late(id, &ends)));
        Program { child, lines, ended: Some(ended), watchdog }
    }

    /// Starts a server and returns it with the address in its first line.
    fn serve(path: &str) -> (Program, String) {
        let mut program = Program::start(path);
        let address = program.line().strip_prefix("listening on ").unwrap().to_owned();
        (program, address)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends the signal of Ctrl-C.
    fn interrupt(&self) {
        signal("INT", self.child.id());
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

/// A connection for one HTTP request.
struct Request(TcpStream);

impl Request {
    /// Sends the head of a request, with the length of a body that is sent later.
    fn head(address: &str, line: &str, length: usize, header: &str) -> Request {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
             content-length: {length}\r\n{header}\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        Request(socket)
    }

    /// Waits for the status and the body of the response.
    fn response(mut self) -> (u16, String) {
        let mut response = String::new();
        self.0.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

fn request(address: &str, line: &str, body: &str) -> (u16, String) {
    let mut request = Request::head(address, line, body.len(), "");
    request.0.write_all(body.as_bytes()).unwrap();
    request.response()
}

#[test]
fn a_service_maps_calls_without_a_reply_to_statuses() {
    let (server, address) = Program::serve(env!("CARGO_BIN_EXE_axum_service"));
    let request = |line, body| request(&address, line, body);
    let (status, reason) = request("DELETE /queues/jobs/head", "");
    assert_eq!((status, &*reason), (404, "no such queue"));
    assert_eq!(request("POST /queues/jobs", "one").0, 201);
    assert_eq!(request("POST /queues/jobs", "two").0, 201);
    assert_eq!(request("GET /queues/jobs", "").1, r#"{"items":2,"waiting":0}"#);
    assert_eq!(request("DELETE /queues/jobs/head", ""), (200, "one".to_owned()));
    assert_eq!(request("DELETE /queues/jobs/head", ""), (200, "two".to_owned()));
    let (status, reason) = request("DELETE /queues/jobs/head?wait_ms=20", "");
    assert_eq!((status, &*reason), (504, "no reply in time"));
    // No item goes to a request whose time is up.
    assert_eq!(request("POST /queues/jobs", "three").0, 201);
    assert_eq!(request("DELETE /queues/jobs/head", ""), (200, "three".to_owned()));

    for _ in 0..100 {
        assert_eq!(request("POST /queues/full", "item").0, 201);
    }
    assert_eq!(request("POST /queues/full", "item").0, 429);
    server.interrupt();
    assert_eq!(server.output(), "2 stopped, 0 abandoned\n");
}

#[test]
fn a_service_that_shuts_down_finishes_the_requests_it_has_begun() {
    let (server, address) = Program::serve(env!("CARGO_BIN_EXE_axum_service"));
    assert_eq!(request(&address, "POST /queues/jobs", "one").0, 201);
    assert_eq!(request(&address, "DELETE /queues/jobs/head", "").0, 200);
    let take = Request::head(&address, "DELETE /queues/jobs/head", 0, "");
    while request(&address, "GET /queues/jobs", "").1 != r#"{"items":0,"waiting":1}"# {}
    let mut put = Request::head(&address, "POST /queues/jobs", 3, "expect: 100-continue\r\n");
    let mut goes_on = [0; 25];
    put.0.read_exact(&mut goes_on).unwrap();
    assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");

    server.interrupt();
    // It accepts no more.
    while TcpStream::connect(&address).is_ok() {}
    put.0.write_all(b"two").unwrap();
    assert_eq!(put.response().0, 201);
    assert_eq!(take.response(), (200, "two".to_owned()));
    assert_eq!(server.output(), "1 stopped, 0 abandoned\n");
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
    // The place changes with each edit of the example.
    let (before, after) = output.split_once(" at ").expect("the panic has a place");
    let (place, after) = after.split_once(": ").expect("a message follows the place");
    assert!(place.contains("device_fleet.rs:"), "{place}");
    let output = format!("{before}: {after}");
    let expected = "\
1000 devices report
device-7: the process exited before it replied: panicked: device 7 has a fault
1000 devices report
1000 devices supervised
1000 devices in the group
device-7 is another process: true
";
    assert_eq!(output, expected);
}

#[test]
fn a_bank_completes_half_done_transfers_after_a_restart() {
    let output = run(env!("CARGO_BIN_EXE_durable_bank"));
    let expected = "\
ann 1000, bob 1000, carl 1000, dora 1000, in all 4000
ann 1021, bob 975, carl 1013, dora 991, in all 4000
5000 from ann to bob: the balance is 1021
50 from ann to bob: sent, and the node stops
ann 971, bob 1025, carl 1013, dora 991, in all 4000
";
    assert_eq!(output, expected);
}

#[test]
fn each_order_comes_to_an_end_though_the_program_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_order_saga"));
        Program::start_with(command.arg(directory.path()).arg("40"))
    };
    for lines in [0, 1, 15] {
        let mut program = start();
        (0..lines).for_each(|_| _ = program.line());
        signal("KILL", program.child.id());
        program.child.wait().unwrap();
    }
    let output = start().output();
    let count = |end: &str| output.lines().filter(|line| line.ends_with(end)).count();
    assert_eq!((count(": shipped"), count(": the purse is empty")), (20, 20), "{output}");
    assert!(output.ends_with("20 books reserved, 20 paid\n"), "{output}");
}

#[test]
fn each_mail_is_sent_though_the_program_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut sent = String::new();
    for (mails, lines) in [("40", 0), ("0", 3), ("0", 15)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_job_queue"));
        let mut program = Program::start_with(command.arg(directory.path()).arg(mails));
        let mut pushed = 0;
        while pushed < lines || !sent.contains("pushed") {
            sent += &format!("{}\n", program.line());
            pushed += 1;
        }
        signal("KILL", program.child.id());
        program.child.wait().unwrap();
        program.lines.read_to_string(&mut sent).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_job_queue"));
    sent += &Program::start_with(command.arg(directory.path()).arg("0")).output();
    let sent: Vec<&str> = sent.lines().collect();
    for mail in (0..40).map(|mail| format!("to customer {mail}")) {
        assert!(sent.contains(&&*mail), "{mail} is missing: {sent:?}");
    }
    // One that was sent in the moment of a kill is sent again.
    assert!(sent.len() < 40 + 3 * 2 + 4 * 4, "{sent:?}");
    let dead = sent.iter().filter(|line| **line == "dead: \"nobody\": nobody has this name");
    assert!(dead.count() >= 1, "{sent:?}");
}

#[test]
fn a_reminder_comes_after_a_kill_unless_it_was_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let start = |mode: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reminders"));
        Program::start_with(command.arg(directory.path()).arg(mode))
    };
    let mut program = start("set");
    assert_eq!(program.line(), "set");
    signal("KILL", program.child.id());
    program.child.wait().unwrap();
    let mut program = start("wait");
    assert_eq!(program.line(), "it is time for tea");
    thread::sleep(Duration::from_millis(300));
    signal("KILL", program.child.id());
    let mut rest = String::new();
    program.lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
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
