//! Plain text of a report, for scripts and for output that is not a terminal.

use std::fmt::{self, Write};

use super::client::Report;
use super::figures;
use super::rows::{self, Column};

/// Formats the report: counts by name, an empty line, and the rows under their columns.
pub(crate) fn write(report: &Report) -> Result<String, fmt::Error> {
    let metrics = &report.metrics;
    let mut text = String::new();
    writeln!(text, "uptime     {}", figures::uptime(metrics.uptime_seconds))?;
    writeln!(text, "processes  {} of {}", metrics.processes, metrics.process_limit)?;
    writeln!(text, "spawned    {}", metrics.spawned)?;
    writeln!(text, "exited     {}", metrics.exited)?;
    writeln!(text, "panics     {}", metrics.panicked)?;
    writeln!(text, "dropped    {}", metrics.dropped)?;
    writeln!(text, "messages   {}", metrics.turns())?;
    writeln!(text, "mailboxes  {}", figures::bytes(metrics.mailbox_bytes))?;
    writeln!(text, "ready      {}", metrics.ready())?;
    writeln!(text, "stuck      {}", metrics.stuck_turns())?;
    writeln!(text, "workers    {}", metrics.workers.len())?;
    writeln!(text)?;
    let columns = rows::columns(&report.rows);
    let rows = rows::of(&report.rows);
    let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| {
            let cells = rows.iter().chain([&names]).filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in [&names].into_iter().chain(&rows) {
        let cells = columns.iter().zip(&widths).zip(row);
        let cells: Vec<String> =
            cells.map(|((column, &width), cell)| padded(column, width, cell)).collect();
        writeln!(text, "{}", cells.join("  ").trim_end())?;
    }
    Ok(text)
}

fn padded(column: &Column, width: usize, cell: &str) -> String {
    if column.is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::screen::tests::{report, tree};

    #[test]
    fn the_picture_is_text_in_columns() {
        let text = write(&report(61.0, 6, "ab")).unwrap();
        let expected = "\
uptime     00:01:01
processes  2 of 1000
spawned    60
exited     0
panics     0
dropped    0
messages   6
mailboxes  0 B
ready      0
stuck      0
workers    2

PID  KIND  STATE  MAILBOX  BYTES   MEMORY  TURNS  LONGEST
a    A     idle         0    0 B  2.0 KiB      –        –
b    B     idle         0    0 B  2.0 KiB      –        –
";
        assert_eq!(text, expected);
        let text = write(&tree("ab")).unwrap();
        assert!(
            text.ends_with("PROCESS  CHILDREN  PID\nA               1  a\n  B             1  b\n")
        );
    }
}
