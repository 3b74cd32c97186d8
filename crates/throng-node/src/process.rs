//! This program as the system sees it: the metrics that Prometheus calls `process_…`.
//!
//! Figures that the system does not tell are left out. They come from Linux's `/proc`, but for the limit of open files.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use throng::PrometheusText;

use crate::files;

/// Returns the memory of this program in the machine's memory, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    pages.split(' ').nth(1)?.parse::<u64>().ok()?.checked_mul(page_size() as u64)
}

/// Returns the time for which this program has kept processors busy, in seconds.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some(seconds_of(&stat, UTIME)? + seconds_of(&stat, UTIME + 1)?)
}

/// Returns the start of this program, in seconds since 1970.
fn start_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let boot = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.parse::<f64>().ok()? + seconds_of(&stat, STARTTIME)?)
}

/// Returns a time in `/proc/self/stat` by the number of its field, as proc_pid_stat(5) counts.
fn seconds_of(stat: &str, field: usize) -> Option<f64> {
    // The name of the program, in parentheses, may hold anything; the third field follows it.
    let ticks = stat.rsplit_once(") ")?.1.split(' ').nth(field - 3)?.parse::<u64>().ok()?;
    Some(ticks as f64 / clock_ticks_per_second() as f64)
}

const UTIME: usize = 14;
const STARTTIME: usize = 22;

/// Appends the figures that the system tells.
pub(crate) fn write_prometheus(text: &mut PrometheusText) {
    if let Some(seconds) = cpu_seconds() {
        let help = "Time for which this program has kept processors busy.";
        text.counter("process_cpu_seconds_total", help, seconds);
    }
    if let Some(bytes) = resident_bytes() {
        text.gauge("process_resident_memory_bytes", "Memory in the machine's memory.", bytes);
    }
    if let Some(open) = files::open() {
        text.gauge("process_open_fds", "Open files.", open);
    }
    if let Some(max) = files::limit_max() {
        text.gauge("process_max_fds", "Maximum number of open files.", max);
    }
    if let Some(start) = start_seconds() {
        text.gauge("process_start_time_seconds", "Start of this program, since 1970.", start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_figures_of_this_program_are_known() {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let age = now - start_seconds().unwrap();
        assert!((-2.0..36_000.0).contains(&age), "{age}");
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000));
        let before = cpu_seconds().unwrap();
        // The processor's time is counted in ticks.
        while cpu_seconds().unwrap() <= before {}
        let mut text = PrometheusText::default();
        write_prometheus(&mut text);
        let names: Vec<String> = text
            .into_text()
            .lines()
            .filter_map(|line| Some(line.strip_prefix("# TYPE ")?.replace("process_", "")))
            .collect();
        let expected = [
            "cpu_seconds_total counter",
            "resident_memory_bytes gauge",
            "open_fds gauge",
            "max_fds gauge",
            "start_time_seconds gauge",
        ];
        assert_eq!(names, expected);
    }
}
