//! A counter of the instructions that a run executes in user mode, where the processor has one that this
//! program may read. Virtual machines often have none.
//!
//! The kernel passes the counter on to processes and threads that the counting thread starts, and adds
//! their counts when they end.

#[cfg(target_os = "linux")]
use perf_event::events::{Event, Hardware};

/// A counter that counts for the calling thread, and for the processes that this thread starts.
#[cfg(target_os = "linux")]
pub(crate) struct Counter(perf_event::Counter);

/// Never exists: the counters are Linux's.
#[cfg(not(target_os = "linux"))]
pub(crate) struct Counter(std::convert::Infallible);

#[cfg(target_os = "linux")]
impl Counter {
    /// Starts to count instructions in user mode; returns `None` if there is no counter.
    pub(crate) fn start() -> Option<Counter> {
        Counter::of(Hardware::INSTRUCTIONS)
    }

    fn of(event: impl Event) -> Option<Counter> {
        // The kernel's part is left out by default, and reading it takes a privilege.
        let mut counter = perf_event::Builder::new(event).inherit(true).build().ok()?;
        counter.enable().ok()?;
        Some(Counter(counter))
    }

    /// Returns the count; `None` if the counter was shared, and counted only some of the time.
    pub(crate) fn stop(mut self) -> Option<u64> {
        let counted = self.0.read_count_and_time().ok()?;
        (counted.time_running == counted.time_enabled).then_some(counted.count)
    }
}

#[cfg(not(target_os = "linux"))]
impl Counter {
    pub(crate) fn start() -> Option<Counter> {
        None
    }

    pub(crate) fn stop(self) -> Option<u64> {
        match self.0 {}
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use perf_event::events::Software;

    use super::*;

    fn run(script: &str) {
        let status = Command::new("sh").args(["-c", script]).status().expect("there is a shell");
        assert!(status.success());
    }

    fn counted(start: fn() -> Option<Counter>, script: &str) -> Option<u64> {
        let counter = start()?;
        run(script);
        counter.stop()
    }

    #[test]
    fn the_work_of_a_child_is_counted() {
        let short = "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done";
        let long = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        // A machine without a counter of instructions still has the kernel's clock of tasks, unless
        // this program may read none.
        let of: [fn() -> Option<Counter>; 2] =
            [Counter::start, || Counter::of(Software::TASK_CLOCK)];
        for start in of {
            if let Some((few, many)) = counted(start, short).zip(counted(start, long)) {
                assert!(many > 5 * few, "{few} and {many}");
            }
        }
    }
}
