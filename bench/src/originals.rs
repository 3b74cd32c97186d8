//! The lines that a source's own program prints, with the figures of our rows.

use std::fmt::Write;

use crate::harness::{Request, Row};
use crate::workloads::processes;

/// Formats the rows as the program of the workload's source does; empty if there is no such program.
pub(crate) fn lines(request: &Request, rows: &[Row]) -> String {
    let lines_of: fn(&Request, &Row) -> Option<String> = match request.workload.name {
        "processes" => of_processes,
        _ => return String::new(),
    };
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.failures.is_empty()) {
        if let Some(lines) = lines_of(request, row) {
            // Writing into a string does not fail.
            let _ = write!(text, "\n{}, as the original prints it:\n{lines}", row.peer.runtime);
        }
    }
    text
}

fn median(row: &Row, metric: &str) -> Option<f64> {
    row.metrics.iter().find(|summary| summary.name == metric).map(|summary| summary.median)
}

/// The lines of `processes:max(N)`: times of each process in microseconds, then of all in milliseconds.
fn of_processes(request: &Request, row: &Row) -> Option<String> {
    let count = request.settings.count;
    let maximum = request.settings.get(processes::MAXIMUM);
    let (cpu, wall) = (median(row, "cpu_ns")?, median(row, "wall_ns")?);
    let (each, all) = (1e-3, 1e-6 * count as f64);
    Some(format!(
        "Maximum allowed processes: {maximum}\n\
         Requested number of processes: {count}\n\
         Process spawn time: {:.4} [µs], wall time: {:.4} [µs]\n\
         Total time: {:.0} [ms], wall time: {:.0} [ms]\n",
        cpu * each,
        wall * each,
        cpu * all,
        wall * all,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Summary;
    use crate::settings::Settings;

    #[test]
    fn processes_are_printed_as_by_the_original() {
        let workload = &processes::WORKLOAD;
        let summary = |name, median| Summary { name, unit: "ns", median, min: 0.0, max: 0.0 };
        let mut row = Row {
            peer: workload.peers[0],
            version: None,
            workers: 1,
            metrics: vec![summary("wall_ns", 2951.0), summary("cpu_ns", 2253.0)],
            instructions_per_op: None,
            quantiles: Default::default(),
            runs: Vec::new(),
            failures: Vec::new(),
        };
        let settings = Settings::new(1_000_000, 1, workload.keys);
        let peers = workload.peers.to_vec();
        let request = Request {
            workload,
            peers,
            settings,
            runs: 1,
            warms_up: true,
            spares_time: false,
            measurement: None,
        };
        let text = lines(&request, std::slice::from_ref(&row));
        let printed = "Process spawn time: 2.2530 [µs], wall time: 2.9510 [µs]\nTotal time: 2253 [ms], \
                       wall time: 2951 [ms]\n";
        assert!(text.ends_with(printed), "{text}");
        row.failures.push("wrong".to_owned());
        assert_eq!(lines(&request, &[row]), "");
    }
}
