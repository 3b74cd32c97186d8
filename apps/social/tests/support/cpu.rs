//! The processor time of a test, for measurements.

use std::fs;

/// Returns the processor time of the program, in all threads that run, in nanoseconds.
pub(crate) fn cpu_ns() -> f64 {
    let mut sum = 0.0;
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let times = fs::read_to_string(thread.unwrap().path().join("schedstat"));
        // A thread that has ended since the directory was read.
        let Ok(times) = times else { continue };
        sum += times.split_whitespace().next().unwrap().parse::<f64>().unwrap();
    }
    sum
}
