//! How much memory this program has resident, as the system counts it.

/// Bytes resident now; zero where the system does not say.
pub(crate) fn now() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Resident memory over a run: what it was after the start, and the most since.
pub(crate) struct Watch {
    start: u64,
    most: u64,
}

impl Watch {
    /// Starts from the present size.
    pub(crate) fn start() -> Watch {
        let start = now();
        Watch { start, most: start }
    }

    /// Looks again.
    pub(crate) fn look(&mut self) {
        self.most = self.most.max(now());
    }

    /// Growth over the start, in bytes.
    pub(crate) fn growth(&self) -> u64 {
        self.most - self.start
    }
}
