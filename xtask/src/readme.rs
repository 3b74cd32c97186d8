//! The README's command that starts a node, run unchanged.
//!
//! The directory of the data and the address come from the environment. So the command needs no
//! change, and nothing else on the machine is touched.

use crate::steps::{Failure, Tests, root};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The line before the block in the README.
const MARK: &str = "<!-- test:readme -->";

/// Starts the node, requests its health, and stops it with the signal of Ctrl-C.
///
/// # Errors
/// The first of these that fails.
pub(crate) fn run() -> Result<Tests, Failure> {
    let text = std::fs::read_to_string(root().join("README.md"))
        .map_err(|error| Failure(format!("README.md cannot be read: {error}")))?;
    let command = command_after(&text, MARK)
        .ok_or_else(|| Failure(format!("README.md has no command after {MARK}")))?;
    println!("    {command}");
    let data = scratch_dir();
    let outcome = start_and_stop(&command, &data);
    // Files that remain lie in the target directory and do no harm.
    let _ = std::fs::remove_dir_all(&data);
    outcome.map(|()| Tests::one_passed())
}

fn scratch_dir() -> PathBuf {
    root().join("target").join(format!("readme-{}", std::process::id()))
}

/// The first line that starts with `$ ` after the mark.
fn command_after(text: &str, mark: &str) -> Option<String> {
    let (_, after) = text.split_once(mark)?;
    after.lines().find_map(|line| line.strip_prefix("$ ")).map(str::to_owned)
}

fn start_and_stop(command: &str, data: &PathBuf) -> Result<(), Failure> {
    let mut words = command.split_whitespace();
    let mut node = Command::new(words.next().unwrap_or_default())
        .args(words)
        .current_dir(root())
        .env("THRONG_LISTEN", "127.0.0.1:0")
        .env("THRONG_DATA", data)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure(format!("`{command}` cannot be started: {error}")))?;
    let asked = address_of(&mut node).and_then(|address| ask(&address));
    // The node treats SIGTERM and SIGINT alike; SIGINT is the signal of Ctrl-C.
    let interrupted = Command::new("kill").args(["-INT", &node.id().to_string()]).status();
    if asked.is_err() || !interrupted.is_ok_and(|status| status.success()) {
        let _ = node.kill();
    }
    let status =
        node.wait().map_err(|error| Failure(format!("`{command}` cannot be awaited: {error}")))?;
    asked?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure(format!("`{command}` ended with {status} when it was interrupted")))
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

fn ask(address: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure(format!("{address} does not answer: {error}"));
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    let request =
        format!("GET /api/v1/health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    if answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"status\":\"ok\"") {
        Ok(())
    } else {
        Err(Failure(format!("{address} is not well: {answer}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_first_after_the_mark() {
        let text = "$ no\n<!-- test:readme -->\n```console\n$ cargo run -- serve\n$ other\n```\n";
        assert_eq!(command_after(text, MARK).as_deref(), Some("cargo run -- serve"));
        assert_eq!(command_after("$ no\n", MARK), None);
    }
}
