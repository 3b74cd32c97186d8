//! Resident memory of this program, as the operating system counts it.

/// Returns the resident bytes, or zero on a system without `/proc`.
pub(crate) fn now() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Resident memory over a run: its size at the start, and its peak since.
pub(crate) struct Watch {
    start: u64,
    most: u64,
}

impl Watch {
    /// Starts with the present size.
    pub(crate) fn start() -> Watch {
        let start = now();
        Watch { start, most: start }
    }

    /// Updates the peak with the present size.
    pub(crate) fn sample(&mut self) {
        self.most = self.most.max(now());
    }

    /// Returns the growth from the start to the peak, in bytes.
    pub(crate) fn growth(&self) -> u64 {
        self.most - self.start
    }
}
