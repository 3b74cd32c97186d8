//! The cost of each operation, in nanoseconds and bytes, for the page `guide::costs`. Operations
//! that `bench/` compares with other runtimes have no row.
//!
//! ```text
//! cargo run --release -p throng --example costs                 every row
//! cargo run --release -p throng --example costs timer           a single row
//! cargo run --release -p throng --example costs timer 1000      the same, with 1,000 operations
//! ```
//!
//! - Each run is an operating-system process of its own, because memory that is reused does not
//!   show as growth. A row's figures are the medians of [`RUNS`] runs.
//! - The runtime has one worker, so a figure contains the work of both sides, on one core.
//! - Bytes are the growth of the resident set, as the operating system counts it.
//!
//! Invariant: a row checks that the measured operations took place, and prints no figure otherwise.

// A row that cannot be measured ends with the error.
#![allow(clippy::unwrap_used)]

#[path = "../../../../stress/src/resident.rs"]
#[expect(dead_code, reason = "only the present size is used here")]
mod resident;
mod rows;

use rows::{Cost, Driver, ROWS, Row};
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::time::Duration;
use throng::Runtime;

const RUNS: usize = 5;

/// First argument of a child process: measure the row once, in this process, and print a line for
/// [`parse`].
const ONCE: &str = "--once";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let once = arguments.first().is_some_and(|first| first == ONCE);
    if once {
        arguments.remove(0);
    }
    let count = match arguments.get(1).map(|count| count.parse::<u64>()) {
        None => None,
        Some(Ok(count)) if count > 0 => Some(count),
        Some(_) => return usage("the count is not a positive number"),
    };
    let name = arguments.first().map(String::as_str);
    // `all` stands for every row, so that a count can follow.
    let name = name.filter(|&name| name != "all");
    let chosen: Vec<&Row> =
        ROWS.iter().filter(|row| name.is_none_or(|name| name == row.name)).collect();
    if chosen.is_empty() {
        return usage("no row has that name");
    }
    if !once {
        println!("{:<16} {:>9} {:>9}  operation (count)", "row", "ns", "bytes");
    }
    let mut code = ExitCode::SUCCESS;
    for row in chosen {
        let count = count.unwrap_or(row.count);
        let measured = if once { measure(row, count) } else { median(row, count) };
        match measured {
            Ok(cost) if once => println!("{} {}", number(cost.ns), number(cost.bytes)),
            Ok(Cost { ns, bytes }) => println!(
                "{:<16} {:>9} {:>9}  {} ({count})",
                row.name,
                number(ns),
                number(bytes),
                row.about
            ),
            Err(failed) => {
                eprintln!("{}: {failed}", row.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("costs: {problem}; usage: costs [NAME|all [COUNT]], with NAME one of");
    for row in ROWS {
        eprintln!("  {:<16} {} ({})", row.name, row.about, row.count);
    }
    ExitCode::from(2)
}

/// Returns the medians of [`RUNS`] runs, each in an operating-system process of its own.
fn median(row: &Row, count: u64) -> Result<Cost, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut costs = Vec::new();
    for _ in 0..RUNS {
        let output = Command::new(&program).args([ONCE, row.name, &count.to_string()]).output();
        let output = output.map_err(|error| error.to_string())?;
        let line = String::from_utf8_lossy(&output.stdout);
        let failed = || String::from_utf8_lossy(&output.stderr).into_owned();
        costs.push(parse(&line).filter(|_| output.status.success()).ok_or_else(failed)?);
    }
    let middle = |figure: fn(&Cost) -> Option<f64>| {
        let mut figures: Vec<f64> = costs.iter().filter_map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    };
    Ok(Cost { ns: middle(|cost| cost.ns), bytes: middle(|cost| cost.bytes) })
}

fn number(figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.1}"))
}

fn parse(line: &str) -> Option<Cost> {
    let mut words = line.split_whitespace();
    let mut figure = || match words.next() {
        Some("-") => Some(None),
        Some(word) => word.parse().ok().map(Some),
        None => None,
    };
    Some(Cost { ns: figure()?, bytes: figure()? })
}

/// Measures a row in this process.
fn measure(row: &Row, count: u64) -> Result<Cost, String> {
    // The driver blocks its worker for long. No spare worker may take over, or there would be two.
    let runtime = Runtime::builder().workers(1).spare_workers(0).stuck_after(Duration::MAX);
    let runtime = runtime.start().map_err(|error| error.to_string())?;
    let (sender, outcome) = mpsc::channel();
    let run = row.run;
    let driver = runtime.spawner().spawn_async(move |mut driver: Driver| async move {
        let _ = sender.send(run(&mut driver, count).await);
    });
    driver.map_err(|error| error.to_string())?;
    outcome.recv().unwrap_or_else(|_| Err("the driver died".to_owned()))
}
