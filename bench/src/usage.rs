//! Processor time and memory that a run used, as the kernel tells the parent of the run's process, and
//! the time that the hypervisor took away meanwhile.

use std::fs;
use std::io;
use std::time::Instant;

use wait4::ResourceUsage;

use crate::cores;
use crate::counter::Counter;
use crate::memory;

/// Part by which a run and its parent may differ about the peak of the run's memory.
const PEAK_TOLERANCE: f64 = 0.05;

/// Bytes by which both may differ in addition: the line is printed after the run has read its peak, by code
/// whose pages are loaded then. Without optimisation that code is several times as large.
const PEAK_TOLERANCE_BYTES: f64 = if cfg!(debug_assertions) { 8.0 } else { 2.0 } * 1024.0 * 1024.0;

/// The same for a program in another language, whose runtime loads and compiles code to print its line,
/// after the run has read its peak.
const PEAK_TOLERANCE_FOREIGN_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// The part for such a program: its heap may grow before the collector sees that the run is over.
const PEAK_TOLERANCE_FOREIGN: f64 = 0.1;

/// A run's use of the machine. A value is absent where the system does not tell it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) elapsed_s: f64,
    pub(crate) cpu_s: Option<f64>,
    /// Processor time divided by the time that the run took.
    pub(crate) cores_used: Option<f64>,
    /// Share of the machine's time that the hypervisor gave to other machines.
    pub(crate) steal: Option<f64>,
    /// Peak resident memory of the run's process, in bytes; at least the parent's own, which the
    /// kernel passes on to the new process.
    pub(crate) max_rss_bytes: Option<f64>,
    /// Instructions in user mode of the run's process, its threads and its children; a few of the
    /// parent are included.
    pub(crate) instructions: Option<f64>,
    /// Time in which a value went from one core to another, before the run.
    pub(crate) core_to_core_ns: Option<f64>,
}

/// Processor time of all threads of this process so far, in nanoseconds.
pub(crate) fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Number of times so far that a thread of this process gave up its core to wait.
pub(crate) fn own_sleeps() -> io::Result<u64> {
    let field = |line: &str| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok();
    sum_of_threads("/proc/self/task", "status", |status| status.lines().find_map(field))
}

/// Processor time so far of all threads that another process has, in nanoseconds, to within a tick of the
/// kernel's clock for each thread that runs.
pub(crate) fn cpu_ns_of(process: u32) -> io::Result<u64> {
    let running = |times: &str| times.split_whitespace().next()?.parse().ok();
    sum_of_threads(&format!("/proc/{process}/task"), "schedstat", running)
}

/// Adds up a number that a file of each thread has. Threads that have ended are not included.
fn sum_of_threads(
    threads: &str,
    file: &str,
    number: impl Fn(&str) -> Option<u64>,
) -> io::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(threads)? {
        let thread = thread?.path();
        let text = match fs::read_to_string(thread.join(file)) {
            Ok(text) => text,
            // A thread that has ended since the directory was read.
            Err(_) if !thread.exists() => continue,
            Err(error) => return Err(error),
        };
        sum += number(&text)
            .ok_or_else(|| io::Error::other(format!("{file} has no such number: {text:?}")))?;
    }
    Ok(sum)
}

pub(crate) struct Meter {
    begun: Instant,
    machine: Option<Machine>,
    instructions: Option<Counter>,
    core_to_core_ns: Option<f64>,
}

impl Meter {
    /// Starts to measure, before the same thread starts the run's process.
    pub(crate) fn start() -> Meter {
        let core_to_core_ns = cores::core_to_core_ns();
        Meter {
            begun: Instant::now(),
            machine: machine_ticks(),
            instructions: Counter::start(),
            core_to_core_ns,
        }
    }

    pub(crate) fn stop(self, used: ResourceUsage) -> Usage {
        let elapsed = self.begun.elapsed().as_secs_f64();
        let cpu_s = (used.utime + used.stime).as_secs_f64();
        let steal = self.machine.zip(machine_ticks()).map(|(before, after)| {
            let all = after.all.saturating_sub(before.all).max(1);
            after.stolen.saturating_sub(before.stolen) as f64 / all as f64
        });
        Usage {
            elapsed_s: elapsed,
            cpu_s: Some(cpu_s),
            cores_used: Some(cpu_s / elapsed),
            steal,
            max_rss_bytes: (used.maxrss > 0).then_some(used.maxrss as f64),
            instructions: self.instructions.and_then(Counter::stop).map(|count| count as f64),
            core_to_core_ns: self.core_to_core_ns,
        }
    }
}

impl Usage {
    /// Compares the peak of resident memory that a run has read itself with the peak that the kernel
    /// reported to its parent; describes the difference if it is too large. `is_here` is false for a program
    /// in another language.
    pub(crate) fn doubt(&self, peak: f64, is_here: bool) -> Option<String> {
        let own = memory::peak_resident_bytes().unwrap_or_default() as f64;
        let tolerance = |seen: f64| match is_here {
            true => seen * PEAK_TOLERANCE + PEAK_TOLERANCE_BYTES,
            false => seen * PEAK_TOLERANCE_FOREIGN + PEAK_TOLERANCE_FOREIGN_BYTES,
        };
        self.max_rss_bytes.filter(|seen| is_doubtful(peak, *seen, own, tolerance(*seen))).map(
            |seen| {
                format!(
                    "peak memory: {peak:.0} bytes by the run itself, {seen:.0} bytes by its parent"
                )
            },
        )
    }
}

/// Whether a peak contradicts the peak that the parent has seen, given the parent's own peak, below
/// which the parent sees nothing.
fn is_doubtful(peak: f64, seen: f64, own: f64, tolerance: f64) -> bool {
    peak > seen + tolerance || seen > peak.max(own) + tolerance
}

/// Ticks of all processors together since the machine was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Machine {
    all: u64,
    stolen: u64,
}

fn machine_ticks() -> Option<Machine> {
    parse_machine(&fs::read_to_string("/proc/stat").ok()?)
}

/// Reads the first line: user, nice, system, idle, iowait, irq, softirq, steal; the times of guests
/// that follow are part of the first two.
fn parse_machine(stat: &str) -> Option<Machine> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    Some(Machine { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use wait4::Wait4;

    use super::*;

    #[test]
    fn stolen_ticks_are_the_eighth_number_and_guests_are_not_counted_twice() {
        let stat = "cpu  10 0 20 60 5 1 2 2 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse_machine(stat), Some(Machine { all: 100, stolen: 2 }));
        assert_eq!(parse_machine("cpu  10 0 20 60"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_that_works_is_seen() {
        let meter = Meter::start();
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let child = Command::new("sh").args(["-c", busy]).spawn().expect("there is a shell");
        let usage = meter.stop(child.wait4().expect("it is our child").rusage);
        assert!(usage.cpu_s.is_some_and(|seconds| seconds > 0.0), "{usage:?}");
        assert!(usage.cores_used.is_some_and(|cores| cores > 0.0), "{usage:?}");
        assert!(usage.steal.is_some_and(|share| (0.0..=1.0).contains(&share)), "{usage:?}");
        assert!(usage.max_rss_bytes.is_some_and(|bytes| bytes > 1e5), "{usage:?}");
        assert!(usage.doubt(1e12, false).is_some(), "{usage:?}");
    }

    #[test]
    fn a_peak_is_doubtful_if_the_parent_saw_more_or_less() {
        let is_doubtful = |peak, seen, own| super::is_doubtful(peak, seen, own, 6e6);
        assert!(!is_doubtful(100e6, 101e6, 8e6));
        assert!(!is_doubtful(101e6, 100e6, 8e6));
        assert!(is_doubtful(100e6, 110e6, 8e6));
        assert!(is_doubtful(110e6, 100e6, 8e6));
        // A parent sees its own peak if the run stays below it.
        assert!(!is_doubtful(2e6, 30e6, 30e6));
        assert!(is_doubtful(60e6, 30e6, 30e6));
    }
}
