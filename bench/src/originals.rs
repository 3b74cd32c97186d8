//! The lines that a source's own program prints, with the figures of our rows.

use std::fmt::Write;

use crate::harness::{Request, Row};

/// Formats the rows as the program of the workload's source does; empty if there is no such program.
pub(crate) fn lines(request: &Request, rows: &[Row]) -> String {
    let lines_of: fn(&Request, &Row) -> Option<String> = match request.settings.workload.name {
        "processes" => of_processes,
        "send-cost" => of_send_cost,
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

/// The lines of `processes:max(N)`: times of each process in microseconds, then of all in milliseconds.
fn of_processes(request: &Request, row: &Row) -> Option<String> {
    let count = request.settings.count;
    let maximum = request.settings.get("maximum");
    let (cpu, wall) = (row.median("cpu_ns")?, row.median("wall_ns")?);
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

/// The lines of `Testme.measure` for the longest loop. The source's numbers of calls have a fraction; these
/// are whole, and each is the number of calls that takes the loop's time at the median.
fn of_send_cost(request: &Request, row: &Row) -> Option<String> {
    let milliseconds = request.settings.count;
    let time = match milliseconds {
        whole if whole % 1000 == 0 => format!("{}s", whole / 1000),
        part => format!("{part}ms"),
    };
    let mut text = String::new();
    for (name, metric) in [("local", "local_ns"), ("remote", "send_ns")] {
        let microseconds = row.median(metric)? * 1e-3;
        let calls = (milliseconds as f64 * 1e3 / microseconds).round() as u64;
        let _ = writeln!(
            text,
            "{name} {time}: calls/usec={} usec/calls={microseconds} calls_{time}={calls}",
            microseconds.recip()
        );
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Summary;
    use crate::settings::Settings;
    use crate::{runtimes, workloads};

    fn row(workload: &str, medians: &[(&'static str, f64)]) -> Row {
        let summary = |&(name, median)| Summary { name, unit: "ns", median, min: 0.0, max: 0.0 };
        let peer = runtimes::peer(workload, "throng").expect("there is a row");
        Row { metrics: medians.iter().map(summary).collect(), ..Row::without_runs(peer) }
    }

    fn request(workload: &str, count: u64) -> Request {
        let workload = workloads::find(workload).expect("the workload exists");
        let settings = Settings::new(workload, count, 1);
        Request::once(runtimes::peers(workload.name).collect(), settings)
    }

    #[test]
    fn processes_are_printed_as_by_the_original() {
        let workload = "processes";
        let mut row = row(workload, &[("wall_ns", 2951.0), ("cpu_ns", 2253.0)]);
        let request = request(workload, 1_000_000);
        let text = lines(&request, std::slice::from_ref(&row));
        let printed = "Process spawn time: 2.2530 [µs], wall time: 2.9510 [µs]\nTotal time: 2253 [ms], \
                       wall time: 2951 [ms]\n";
        assert!(text.ends_with(printed), "{text}");
        row.failures.push("wrong".to_owned());
        assert_eq!(lines(&request, &[row]), "");
    }

    #[test]
    fn sends_are_printed_as_by_the_original() {
        let workload = "send-cost";
        let rows =
            [row(workload, &[("local_ns", 62.5), ("send_ns", 250.0), ("delivered_ns", 500.0)])];
        let printed = |time: &str, local: u64, remote: u64| {
            format!(
                "local {time}: calls/usec=16 usec/calls=0.0625 calls_{time}={local}\n\
                 remote {time}: calls/usec=4 usec/calls=0.25 calls_{time}={remote}\n"
            )
        };
        let text = lines(&request(workload, 500), &rows);
        assert!(text.ends_with(&printed("500ms", 8_000_000, 2_000_000)), "{text}");
        let text = lines(&request(workload, 3000), &rows);
        assert!(text.ends_with(&printed("3s", 48_000_000, 12_000_000)), "{text}");
    }
}
