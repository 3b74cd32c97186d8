//! `durable-rest`: many durable counters at rest: their room on the disk, the start of a node that has them, its
//! memory, and turns of random counters.
//!
//! ```text
//! loader   store N │ stop
//! victim           │ start                │ add 1 at random │ SIGKILL
//!                  ├─────── start_clean_s ┤
//! run                                                       │ start, read │ memory │ add 1 at random │ check
//!                                                           ├ start_killed_s       ├──── turns_per_s ┤
//! ```
//!
//! - The loader and the victim are this program once more. The counters are stored in a random order of their keys.
//! - A start ends with the reply to the first read. The files are in the system's cache, as they are after the
//!   end of a process, as far as it has room.
//! - The victim kills itself with `inflight` calls in flight, as soon as `killed` turns have been acknowledged. It notes
//!   each acknowledged turn in a file. The run checks that each acknowledged turn was kept, and that each
//!   of the others in flight was kept once at most.
//! - The anonymous memory is that of the whole program, a second after the start that follows the kill.
//! - The growth of the files is that of their blocks during the turns. A counter's bytes on the disk are the
//!   blocks of all files after the loader has stopped, divided by N.
//! - The processor time, instructions and resident memory of a row are the sums, or the peak, of all three processes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench_steps::Error;

use super::durable::{
    self, Acknowledged, Calls, Counters, Home, Order, ThrongHome, call_all, on_node_at,
};
use super::part;
use super::prelude::*;
use crate::stores::{Directory, disk_bytes};

/// Name of the part that makes turns and kills itself.
const VICTIM: &str = "victim";

/// Names, in the directory of the run, of the node's directory and of the victim's notes.
const NODE: &str = "node";
const NOTES: &str = "notes";

/// Number of counters that the checks read besides the victim's.
const SAMPLE: u64 = 10_000;

/// Time between the start and the reading of the memory.
const IDLE: Duration = Duration::from_secs(1);

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    match part::own() {
        Some((part, directory)) if part == VICTIM => run_victim(settings, &directory),
        Some((_, directory)) => durable::load(settings, &directory, settings.count),
        None => run_all(settings),
    }
}

fn processes(settings: &Settings) -> u64 {
    let live = settings.get("cap").min(settings.count);
    durable::processes(live, settings.get("inflight"))
}

fn fatal_calls(settings: &Settings) -> Calls {
    let (killed, inflight) = (settings.get("killed"), settings.get("inflight"));
    let count = killed.saturating_add(inflight);
    Calls { count, time: None, ..durable::calls(settings, Order::Random(1)) }
}

/// Starts the node until it replies; returns it with the time of the start.
async fn start(home: ThrongHome, settings: &Settings) -> Result<(impl Counters, Duration), Error> {
    let begun = Instant::now();
    let counters = home.open(settings.get("cap")).await?;
    match counters.read(0).await? {
        0 => Err("the first counter is lost".into()),
        _ => Ok((counters, begun.elapsed())),
    }
}

/// Starts the node, makes turns, and kills this process. Notes the nanoseconds of the start, and then the
/// counter of each acknowledged turn, as numbers of eight bytes.
fn run_victim(settings: &Settings, directory: &Path) -> Measured {
    let notes = OpenOptions::new().create_new(true).append(true).open(directory.join(NOTES))?;
    let node = directory.join(NODE);
    on_node_at(&node, settings, processes(settings), |home, settings| async move {
        let (counters, time) = start(home, &settings).await?;
        note(&notes, time.as_nanos() as u64);
        let (killed, acknowledged) = (settings.get("killed"), AtomicU64::new(0));
        let on_reply = Arc::new(move |number| {
            note(&notes, number);
            if acknowledged.fetch_add(1, Ordering::AcqRel) + 1 == killed {
                // If the signal failed, the run would find this process alive.
                let _ = part::kill_own();
            }
        });
        let calls = Calls { on_reply: Some(on_reply), ..fatal_calls(&settings) };
        let expected = Acknowledged::all(settings.count, 1).into();
        call_all(&counters, calls, &expected).await?;
        Err("a killed process goes on".into())
    })
}

/// Appends a number in a single write, which stays whole beside the notes of other threads and survives a kill.
fn note(mut notes: &File, number: u64) {
    // A note that is missing shows as a failed check of the victim's turns.
    let _ = notes.write_all(&number.to_le_bytes());
}

/// Reads the victim's notes: the time of its start, and the counters of its acknowledged turns.
fn read_notes(path: &Path) -> io::Result<(Duration, Vec<u64>)> {
    let notes = fs::read(path)?;
    let mut numbers = notes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let start = numbers.next().ok_or_else(|| io::Error::other("the victim has no notes"))?;
    Ok((Duration::from_nanos(start), numbers.collect()))
}

fn run_all(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let node = directory.path().join(NODE);
    fs::create_dir(&node)?;
    part::run("load", &node, false)?;
    let disk = disk_bytes(&node)?;
    part::run(VICTIM, directory.path(), true)?;
    let (start_clean, turns) = read_notes(&directory.path().join(NOTES))?;

    let mut outcome = Outcome::default();
    outcome.metric("disk_bytes_per_entity", disk as f64 / settings.count as f64);
    outcome.metric("start_clean_s", start_clean.as_secs_f64());
    let due = settings.get("killed");
    outcome.check("turns of the victim", u64::from(turns.len() as u64 >= due), 1);
    on_node_at(&node, settings, processes(settings), |home, settings| {
        measure(home, turns, settings, outcome)
    })
}

async fn measure(
    home: ThrongHome,
    turns_of_victim: Vec<u64>,
    settings: Settings,
    mut outcome: Outcome,
) -> Measured {
    let (counters, start_killed) = start(home.clone(), &settings).await?;
    tokio::time::sleep(IDLE).await;
    let anonymous = memory::anonymous_bytes()?;
    outcome.metric("start_killed_s", start_killed.as_secs_f64());
    outcome.metric("anonymous_bytes", anonymous as f64);

    let mut expected = Acknowledged::all(settings.count, 1);
    let fatal = fatal_calls(&settings);
    for call in 0..fatal.count {
        expected.add_unknown(fatal.order.pick(call, settings.count));
    }
    turns_of_victim.into_iter().for_each(|number| expected.acknowledge(number));
    let expected = expected.into();
    let blocks = disk_bytes(home.directory())?;
    let calls = durable::calls(&settings, Order::Random(2));
    let turns = call_all(&counters, calls, &expected).await?;
    let growth = disk_bytes(home.directory())?.saturating_sub(blocks);

    turns.report(&mut outcome, "turns_per_s");
    outcome.metric("file_growth_bytes", growth as f64);
    outcome.check("wrong replies", turns.wrong, 0);
    let moment = "after the turns";
    durable::check_sample(&counters, &expected, SAMPLE, moment, &mut outcome).await?;
    durable::check_unknown(&counters, &expected, moment, &mut outcome).await?;
    counters.close().await?;
    let (reopened, _) = start(home, &settings).await?;
    let moment = "when opened again";
    durable::check_sample(&reopened, &expected, SAMPLE, moment, &mut outcome).await?;
    durable::check_unknown(&reopened, &expected, moment, &mut outcome).await?;
    reopened.close().await?;
    Ok(outcome)
}
