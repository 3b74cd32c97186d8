//! A node as a child process, for commands that need a running one.

use crate::steps::{Failure, root};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Starts a node by `command`, runs `work` with its address, and stops it with the signal of Ctrl-C. The node has a
/// free port and a data directory of its own.
///
/// # Errors
/// If the node does not start, `work` fails, or the node ends with another status than success.
pub(crate) fn with_node(
    command: &mut Command,
    name: &str,
    work: impl FnOnce(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let data = root().join("target").join(format!("{name}-{}", std::process::id()));
    let outcome = start_and_stop(command, &data, work);
    // Files that remain lie in the target directory and do no harm.
    let _ = std::fs::remove_dir_all(&data);
    outcome
}

fn start_and_stop(
    command: &mut Command,
    data: &PathBuf,
    work: impl FnOnce(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let line = format!("{command:?}");
    let mut node = command
        .current_dir(root())
        .env("THRONG_LISTEN", "127.0.0.1:0")
        .env("THRONG_ADMIN_LISTEN", "127.0.0.1:0")
        .env("THRONG_DATA", data)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure(format!("`{line}` cannot be started: {error}")))?;
    let worked = address_of(&mut node).and_then(|address| work(&address));
    // The node treats SIGTERM and SIGINT alike; SIGINT is the signal of Ctrl-C.
    let interrupted = Command::new("kill").args(["-INT", &node.id().to_string()]).status();
    if worked.is_err() || !interrupted.is_ok_and(|status| status.success()) {
        let _ = node.kill();
    }
    let status =
        node.wait().map_err(|error| Failure(format!("`{line}` cannot be awaited: {error}")))?;
    worked?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure(format!("`{line}` ended with {status} when it was interrupted")))
    }
}

/// The address on which the node prints that it listens.
fn address_of(node: &mut Child) -> Result<String, Failure> {
    let stdout = node.stdout.take().ok_or_else(|| Failure("the node has no output".to_owned()))?;
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        println!("    | {line}");
        if let Some((_, address)) = line.split_once("http://") {
            let end = address.find(|c: char| c == '/' || c.is_whitespace());
            return Ok(address[..end.unwrap_or(address.len())].to_owned());
        }
    }
    Err(Failure("the node ended before it said where it listens".to_owned()))
}

/// Sends a request, as `METHOD PATH`, with a body of JSON or none, and returns the body of the answer.
///
/// # Errors
/// If the node does not answer, or answers with an error.
pub(crate) fn request(address: &str, line: &str, body: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure(format!("{address} does not answer: {error}"));
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 2") => Ok(body.to_owned()),
        _ => Err(Failure(format!("{address} refuses {line}: {answer}"))),
    }
}
