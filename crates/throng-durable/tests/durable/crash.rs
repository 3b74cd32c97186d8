//! Crashes: a node killed at any moment keeps nothing that follows from a turn that it lost. That it keeps every
//! acknowledged turn, as a whole, is shown by `bank.rs`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, Node};

use crate::{program, runtime};

const ROUNDS: usize = 4;
pub(crate) const DIRECTORY: &str = "THRONG_DURABLE_TEST_DIRECTORY";

/// Tells the parent of a reply.
pub(crate) fn acknowledge(reply: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nacknowledged {reply}").unwrap();
    out.flush().unwrap();
}

/// The command that runs a child on this directory.
pub(crate) fn child(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(DIRECTORY, directory);
    command
}

/// Runs a child until it has acknowledged so many replies, and kills it after a pause. Passes on each of them, and
/// the replies that were printed before the kill took effect.
pub(crate) fn run_and_kill(
    child: &mut Command,
    replies: usize,
    pause: Duration,
    mut note: impl FnMut(&str),
) {
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("acknowledged ").map(str::to_owned));
    lines.by_ref().take(replies).for_each(|line| note(&line));
    std::thread::sleep(pause);
    child.kill().unwrap();
    lines.for_each(|line| note(&line));
    assert!(!child.wait().unwrap().success());
}

/// Counts, and tells the count before to a mirror in each turn.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "source")]
struct Source {
    count: u64,
}
#[process]
impl Source {
    #[message]
    fn step(&mut self, cx: &mut Context<Self>) -> u64 {
        // Submitted by an earlier turn, and mostly not durable yet.
        let seen = Seen { count: self.count };
        cx.node().entity::<Mirror>("it").send(seen).unwrap();
        self.count += 1;
        self.count
    }
    #[message]
    fn count(&self) -> u64 {
        self.count
    }
}
/// The greatest count that a source has told.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "mirror")]
struct Mirror {
    count: u64,
}
#[process]
impl Mirror {
    #[message]
    fn seen(&mut self, count: u64) {
        self.count = count;
    }
    #[message]
    fn seen_last(&self) -> u64 {
        self.count
    }
}

#[test]
#[ignore = "the child of a_killed_node_keeps_nothing_that_follows_from_a_turn_it_lost"]
fn telling_child() {
    let runtime = runtime();
    let node = Node::options(std::env::var(DIRECTORY).unwrap()).open(&runtime).unwrap();
    runtime.block_on(async |_| {
        // Many turns are over before the first of them is durable.
        for _ in 0..64 {
            let source = node.entity::<Source>("it");
            tokio::spawn(async move {
                loop {
                    let count = source.step().await.unwrap();
                    acknowledge(format_args!("{count}"));
                }
            });
        }
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_killed_node_keeps_nothing_that_follows_from_a_turn_it_lost() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        let mut acknowledged = 0;
        let mut child = child("crash::telling_child", directory.path());
        run_and_kill(&mut child, 500 + 61 * round, Duration::ZERO, |count| {
            acknowledged = acknowledged.max(count.parse::<u64>().unwrap());
        });

        program(Node::options(directory.path()), async |node| {
            let count = node.entity::<Source>("it").count().await.unwrap();
            let mirrored = node.entity::<Mirror>("it").seen_last().await.unwrap();
            assert!(count >= acknowledged, "{count}, {acknowledged} acknowledged");
            assert!(mirrored > 0 && mirrored <= count, "{mirrored} mirrored of {count}");
        });
    }
}
