//! A process that reads the runtime's metrics every 100 ms, in Prometheus's text format, and checks
//! that the numbers are plausible.
//!
//! The texts are parsed only after the clock has stopped, because parsing is the work of a scraper,
//! not of the runtime.

use std::io;
use std::time::{Duration, Instant};

use throng::{Address, AsyncProcess, Inbox, Message, ReplyTo, RuntimeHandle};

use crate::outcome::Outcome;
use crate::workloads::tally::TIMEOUT;

/// Interval between two scrapes: far shorter than usual, so that any cost shows.
const INTERVAL: Duration = Duration::from_millis(100);

/// The address of the process, which scrapes until it receives [`Finish`].
pub(super) struct Scraper(Address<AsyncProcess<Finish>>);

/// Asks for all texts so far and a last text, in which at least `handled` messages are counted.
pub(super) struct Finish {
    handled: u64,
    texts: ReplyTo<Vec<String>>,
}

impl Message for Finish {
    type Reply = ();
}

impl Scraper {
    pub(super) fn start(runtime: &RuntimeHandle) -> io::Result<Scraper> {
        let inside = runtime.clone();
        let process = runtime.spawner().spawn_async(|inbox| scrape(inbox, inside));
        // Only the text is kept: the error also hands back the function, which is not needed.
        process.map(Scraper).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Checks the texts, given that `processes` processes were started in all and none has exited,
    /// and adds the results to the outcome.
    pub(super) async fn check(self, processes: u64, handled: u64, outcome: &mut Outcome) {
        let finish = |texts| Finish { handled, texts };
        let texts = self.0.ask(finish).within(2 * TIMEOUT).await.unwrap_or_default();
        let scrapes: Vec<Scrape> = texts.iter().map(|text| Scrape::of(text)).collect();
        let fell = scrapes.windows(2).filter(|two| !two[1].may_follow(&two[0])).count();
        let last = scrapes.last().copied().unwrap_or_default();
        outcome.check("scrapes, counted up to two", scrapes.len().min(2) as u64, 2);
        outcome.check("scrapes in which a total is smaller than before", fell as u64, 0);
        outcome.check("processes in the last scrape", last.processes, processes);
        outcome.check("processes spawned in the last scrape", last.spawned, processes);
        outcome.check("processes exited in the last scrape", last.exited, 0);
        // Hooks are turns too, so the number of turns may exceed that of messages.
        outcome.check("messages handled in the last scrape", last.turns.min(handled), handled);
    }
}

async fn scrape(mut inbox: Inbox<Finish>, runtime: RuntimeHandle) {
    let mut texts = vec![runtime.metrics().to_prometheus()];
    let Finish { handled, texts: reply } = loop {
        match inbox.recv_timeout(INTERVAL).await {
            Some(finish) => break finish,
            None => texts.push(runtime.metrics().to_prometheus()),
        }
    };
    // A worker counts a process's messages when it leaves the process, which may be after the last
    // reply.
    let begun = Instant::now();
    let mut last = runtime.metrics().to_prometheus();
    while Scrape::of(&last).turns < handled && begun.elapsed() < TIMEOUT {
        let _ = inbox.recv_timeout(Duration::from_millis(1)).await;
        last = runtime.metrics().to_prometheus();
    }
    texts.push(last);
    // The send fails only if `check` no longer waits, at the end of the program.
    let _ = reply.send(texts);
}

#[derive(Clone, Copy, Default)]
struct Scrape {
    processes: u64,
    spawned: u64,
    exited: u64,
    turns: u64,
}

impl Scrape {
    fn of(text: &str) -> Scrape {
        Scrape {
            processes: sum(text, "throng_processes"),
            spawned: sum(text, "throng_processes_spawned_total"),
            exited: sum(text, "throng_processes_exited_total"),
            turns: sum(text, "throng_worker_turns_total"),
        }
    }

    /// Whether every total is at least as large as in the scrape before.
    fn may_follow(&self, before: &Scrape) -> bool {
        self.spawned >= before.spawned && self.exited >= before.exited && self.turns >= before.turns
    }
}

/// The sum of a family's samples: a single sample or a sample per worker. A missing family is zero.
fn sum(text: &str, family: &str) -> u64 {
    let samples = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next()?;
        (name == family).then(|| value.parse::<u64>().ok())?
    });
    samples.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_summed_over_its_workers_without_other_families() {
        let text = "# HELP a_total All.\n# TYPE a_total counter\na_total{worker=\"0\"} 3\n\
                    a_total{worker=\"1\"} 4\na_total_more 50\nb 6\n";
        assert_eq!((sum(text, "a_total"), sum(text, "b"), sum(text, "c")), (7, 6, 0));
    }
}
