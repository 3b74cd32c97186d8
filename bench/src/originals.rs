//! The lines that a source's own program prints, with the figures of our rows.

use std::fmt::Write;

use crate::harness::{Request, Row};
use crate::workloads::store_mega::{LISTERS, READERS, WRITERS};

/// Formats the rows as the program of the workload's source does; empty if there is no such program.
pub(crate) fn lines(request: &Request, rows: &[Row]) -> String {
    let lines_of: fn(&Request, &Row) -> Option<String> = match request.settings.workload.name {
        "processes" => of_processes,
        "send-cost" => of_send_cost,
        "store-mega" => of_store_mega,
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

/// The lines of `multi_process_benchmark:run()`. A rate per process is that of its role in the role's own time. The
/// operations are those that the original counts: puts, gets that found an entry, and listed entries.
fn of_store_mega(_: &Request, row: &Row) -> Option<String> {
    let wall = row.median("wall_s")?;
    let rate = |role: &str| row.median(&format!("original_{role}_per_s"));
    let total = |role: &str| Some((rate(role)? * wall).round() as u64);
    let mut text = format!(
        "=== MULTI-PROCESS MEGA STRESS RESULTS ===\nWall Clock Time: {:.0} ms ({wall:.2} seconds)\n\n\
         Process Performance Summary:\n",
        wall * 1e3
    );
    for (name, processes, role, own) in [
        ("Writers", WRITERS, "puts", "puts_per_s"),
        ("Readers", READERS, "gets", "hits_per_s"),
        ("Listers", LISTERS, "rows", "rows_per_s"),
    ] {
        let (total, each) = (total(role)?, row.median(own)? / processes as f64);
        let _ = writeln!(
            text,
            "  {name}: {processes} processes, {total} total ops, avg {each:.2} ops/sec per process"
        );
    }
    let _ = writeln!(text, "\nAggregate Performance:\n  Total operations: {}", total("combined")?);
    for (name, role) in
        [("Combined", "combined"), ("Write", "puts"), ("Read", "gets"), ("List", "rows")]
    {
        let _ = writeln!(text, "  {name} throughput: {:.2} ops/sec", rate(role)?);
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

    #[test]
    fn the_44_processes_on_a_store_are_printed_as_by_the_original() {
        let workload = "store-mega";
        // The original's own figures.
        let row = row(
            workload,
            &[
                ("wall_s", 76.741),
                ("puts_per_s", 54_673.76),
                ("hits_per_s", 89_244.2),
                ("rows_per_s", 7_339_618.16),
                ("original_puts_per_s", 52_123.38),
                ("original_gets_per_s", 17_705.85),
                ("original_rows_per_s", 46_068.71),
                ("original_combined_per_s", 115_897.94),
            ],
        );
        let text = lines(&request(workload, 250_000), &[row]);
        for line in [
            "Wall Clock Time: 76741 ms (76.74 seconds)",
            "  Writers: 16 processes, 4000000 total ops, avg 3417.11 ops/sec per process",
            "  Readers: 20 processes, 1358765 total ops, avg 4462.21 ops/sec per process",
            "  Listers: 8 processes, 3535359 total ops, avg 917452.27 ops/sec per process",
            "  Total operations: 8894124",
            "  Combined throughput: 115897.94 ops/sec",
            "  List throughput: 46068.71 ops/sec",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line}: {text}");
        }
    }
}
