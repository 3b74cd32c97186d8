//! What things cost: nanoseconds and bytes of each, as the page `guide::costs` has them. What
//! `bench/` measures beside other runtimes is left to it.
//!
//! ```text
//! cargo run --release -p throng --example costs                 every row
//! cargo run --release -p throng --example costs timer           one of them
//! cargo run --release -p throng --example costs timer 1000      one of them, with so many
//! ```
//!
//! - Each run is a process of the system of its own, for memory that was used before is not measured
//!   again; a row's figures are the medians of [`RUNS`] runs.
//! - One worker, so a figure has in it what both sides do, on one core.
//! - Bytes are what the system says is resident beyond what was before.
//!
//! Invariant: a row checks that what it measured has happened, and prints no figure if it has not.

// A row that cannot be measured ends with what went wrong.
#![allow(clippy::unwrap_used)]

#[path = "../stress/resident.rs"]
#[expect(dead_code, reason = "only the present size is of interest here")]
mod resident;
mod rows;

use rows::{Cost, Driver, ROWS, Row};
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::time::Duration;
use throng::Runtime;

const RUNS: usize = 5;

/// Before a row's name on the command line: measure it once, here, and print what `parse` reads.
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
    // With `all` every row can be had with another count.
    let name = name.filter(|&name| name != "all");
    let chosen: Vec<&Row> =
        ROWS.iter().filter(|row| name.is_none_or(|name| name == row.name)).collect();
    if chosen.is_empty() {
        return usage("no row has that name");
    }
    if !once {
        println!("{:<16} {:>9} {:>9}  what, and how many of it", "row", "ns", "bytes");
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

/// The medians of several runs, each in a process of its own.
fn median(row: &Row, count: u64) -> Result<Cost, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut costs = Vec::new();
    for _ in 0..RUNS {
        let output = Command::new(&program).args([ONCE, row.name, &count.to_string()]).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout);
        let failed = || String::from_utf8_lossy(&output.stderr).into_owned();
        costs.push(parse(&said).filter(|_| output.status.success()).ok_or_else(failed)?);
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
    // Nobody stands in for a driver that keeps its worker for long: it is to be the only one.
    let runtime = Runtime::builder().workers(1).spare_workers(0).stuck_after(Duration::MAX);
    let runtime = runtime.start().map_err(|error| error.to_string())?;
    let (told, tells) = mpsc::channel();
    let run = row.run;
    let driver = runtime.spawn_async(move |mut driver: Driver| async move {
        let _ = told.send(run(&mut driver, count).await);
    });
    driver.map_err(|error| error.to_string())?;
    tells.recv().unwrap_or_else(|_| Err("the driver died".to_owned()))
}
