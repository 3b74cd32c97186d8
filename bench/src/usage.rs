//! Processor time that a run used, and the time that the hypervisor took away meanwhile, as the Linux
//! kernel accounts for them.

use std::fs;
use std::time::Instant;

/// Ticks of the kernel's clock in a second, in every number below `/proc`.
const TICKS_PER_S: f64 = 100.0;

/// A run's use of the processors. A value is absent outside Linux.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Processor time of the run's process, in seconds, to within a hundredth.
    pub(crate) cpu_s: Option<f64>,
    /// Processor time divided by the time that the run took.
    pub(crate) cores_used: Option<f64>,
    /// Share of the machine's time that the hypervisor gave to other machines.
    pub(crate) steal: Option<f64>,
}

/// A run under way.
pub(crate) struct Meter {
    begun: Instant,
    children: Option<u64>,
    machine: Option<Machine>,
}

impl Meter {
    /// Starts to measure, before the run's process is started.
    pub(crate) fn start() -> Meter {
        Meter { begun: Instant::now(), children: children_ticks(), machine: machine_ticks() }
    }

    /// Returns the use since the start, after the run's process has ended.
    pub(crate) fn stop(self) -> Usage {
        let elapsed = self.begun.elapsed().as_secs_f64();
        let cpu_s = self
            .children
            .zip(children_ticks())
            .map(|(before, after)| after.saturating_sub(before) as f64 / TICKS_PER_S);
        let steal = self.machine.zip(machine_ticks()).map(|(before, after)| {
            let all = after.all.saturating_sub(before.all).max(1);
            after.stolen.saturating_sub(before.stolen) as f64 / all as f64
        });
        Usage { cpu_s, cores_used: cpu_s.map(|cpu_s| cpu_s / elapsed), steal }
    }
}

/// Ticks of all processors together since the machine was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Machine {
    all: u64,
    stolen: u64,
}

/// Ticks of all processes that this process has started and that have ended.
fn children_ticks() -> Option<u64> {
    parse_children(&fs::read_to_string("/proc/self/stat").ok()?)
}

fn machine_ticks() -> Option<Machine> {
    parse_machine(&fs::read_to_string("/proc/stat").ok()?)
}

/// Adds up `cutime` and `cstime`, fields 16 and 17. The second field is the program's name in
/// parentheses, which may contain spaces.
fn parse_children(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
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
    use super::*;

    #[test]
    fn the_ticks_of_ended_children_follow_a_name_with_spaces_and_parentheses() {
        let stat = "12 (a ) b) S 1 12 12 0 -1 4194304 9 8 7 6 100 200 30 4 20 0 1 0 5";
        assert_eq!(parse_children(stat), Some(34));
        assert_eq!(parse_children("12 (a) S"), None);
    }

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
        let mut child = std::process::Command::new("sh");
        assert!(child.args(["-c", busy]).status().expect("there is a shell").success());
        let usage = meter.stop();
        assert!(usage.cpu_s.is_some_and(|seconds| seconds > 0.0), "{usage:?}");
        assert!(usage.cores_used.is_some_and(|cores| cores > 0.0), "{usage:?}");
        assert!(usage.steal.is_some_and(|share| (0.0..=1.0).contains(&share)), "{usage:?}");
    }
}
