//! This process's memory as the Linux kernel accounts it.

use std::fs;
use std::io;
use std::mem::MaybeUninit;

/// Resident memory now, in bytes.
///
/// Walks the page tables, so it is exact (`statm` lags by what each core has yet to report) and
/// takes milliseconds when much is resident: never call it while a clock runs.
///
/// # Errors
/// When there is no `/proc/self/smaps_rollup`, as outside Linux.
pub(crate) fn resident_bytes() -> io::Result<u64> {
    kibibytes("/proc/self/smaps_rollup", "Rss:")
}

/// The most memory that was ever resident, in bytes.
///
/// # Errors
/// When there is no `/proc/self/status`, as outside Linux.
pub(crate) fn peak_resident_bytes() -> io::Result<u64> {
    kibibytes("/proc/self/status", "VmHWM:")
}

/// Resident memory now that is not a file's, in bytes; lags by what each core has yet to report.
///
/// # Errors
/// When there is no `/proc/self/status`, as outside Linux.
pub(crate) fn anonymous_bytes() -> io::Result<u64> {
    kibibytes("/proc/self/status", "RssAnon:")
}

/// An empty vector whose memory is resident already, so that filling it neither faults nor counts
/// as growth.
pub(crate) fn resident_vec<T>(capacity: usize) -> Vec<T> {
    // The optimiser may not see allocation and zeroing together: it would ask for zeroed memory,
    // which the kernel gives without making it resident.
    let mut vec = std::hint::black_box(Vec::with_capacity(capacity));
    vec.spare_capacity_mut().fill_with(MaybeUninit::zeroed);
    std::hint::black_box(vec.spare_capacity_mut());
    vec
}

fn kibibytes(path: &str, field: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .map(|kibibytes| kibibytes * 1024)
        .ok_or_else(|| io::Error::other(format!("{path} has no field {field}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resident_vec_is_resident_before_it_is_filled() {
        const BYTES: u64 = 64 << 20;
        let before = resident_bytes().expect("this is Linux");
        let vec: Vec<u64> = resident_vec(BYTES as usize / 8);
        let grown = resident_bytes().expect("this is Linux") - before;
        assert!(vec.is_empty());
        assert!(grown >= BYTES * 9 / 10, "only {grown} bytes became resident");
        assert!(peak_resident_bytes().expect("this is Linux") >= before + grown * 9 / 10);
    }
}
