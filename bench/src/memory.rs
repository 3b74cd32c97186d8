//! Memory of this process, as the Linux kernel accounts for it.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bench_steps::disk::moved_bytes;

use crate::settings::Settings;

pub(crate) const PEAK: &str = "peak_rss_bytes";

const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// Current resident memory, in bytes.
///
/// The kernel walks the page tables, so the number is exact (`statm` lags by the changes that each
/// core has yet to report). The call takes milliseconds when much memory is resident: never make it
/// while a clock runs.
pub(crate) fn resident_bytes() -> io::Result<u64> {
    kibibytes("/proc/self/smaps_rollup", "Rss:")
}

pub(crate) fn resident_bytes_of(process: u32) -> io::Result<u64> {
    kibibytes(&format!("/proc/{process}/smaps_rollup"), "Rss:")
}

/// Resident memory after the number of seconds that [`SETTLE`] is set to, in bytes; called in a tokio
/// runtime with timers.
pub(crate) async fn settled_bytes(settings: &Settings) -> io::Result<u64> {
    tokio::time::sleep(Duration::from_secs(settings.get("settle"))).await;
    resident_bytes()
}

pub(crate) fn peak_resident_bytes() -> io::Result<u64> {
    kibibytes("/proc/self/status", "VmHWM:")
}

/// Current resident memory that is not mapped from a file, in bytes; lags by the changes that each
/// core has yet to report.
pub(crate) fn anonymous_bytes() -> io::Result<u64> {
    kibibytes("/proc/self/status", "RssAnon:")
}

/// Bytes that this process has read by system calls so far, from files, the kernel's own included, and from
/// sockets, whether the disk was read or not. Reads through a map do not count.
pub(crate) fn read_bytes() -> io::Result<u64> {
    moved_bytes("self", "rchar:")
}

/// Bytes that this process has caused to be read from the disk so far, as the kernel counts them; pages that are in
/// its cache do not count.
pub(crate) fn disk_read_bytes() -> io::Result<u64> {
    moved_bytes("self", "read_bytes:")
}

/// Runs `work`, and returns its result and the peak of anonymous memory sampled during it, in bytes.
pub(crate) fn with_anonymous_peak<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, u64)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(anonymous_bytes()?);
                thread::sleep(SAMPLE_INTERVAL);
            }
            io::Result::Ok(peak)
        });
        let result = work();
        let last = anonymous_bytes();
        done.store(true, Ordering::Relaxed);
        let peak =
            sampler.join().unwrap_or_else(|_| Err(io::Error::other("the memory sampler panicked")));
        Ok((result?, peak?.max(last?)))
    })
}

/// A thread that samples anonymous memory at a fixed interval.
pub(crate) struct AnonymousSampler {
    done: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<u64>>>,
}

impl AnonymousSampler {
    pub(crate) fn start() -> AnonymousSampler {
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let thread = thread::spawn(move || {
            let mut samples = vec![anonymous_bytes()?];
            while !is_done.load(Ordering::Relaxed) {
                thread::sleep(SAMPLE_INTERVAL);
                samples.push(anonymous_bytes()?);
            }
            Ok(samples)
        });
        AnonymousSampler { done, thread }
    }

    /// Stops sampling; returns the mean of the last tenth of the samples less the mean of the first tenth, or 0.
    pub(crate) fn growth(self) -> io::Result<u64> {
        self.done.store(true, Ordering::Relaxed);
        let samples = self.thread.join();
        let samples = samples.map_err(|_| io::Error::other("the memory sampler panicked"))??;
        Ok(growth(&samples))
    }
}

/// The mean of the last tenth of some numbers less the mean of the first tenth, or 0.
fn growth(samples: &[u64]) -> u64 {
    let tenth = samples.len().div_ceil(10);
    let mean = |samples: &[u64]| samples.iter().sum::<u64>() / samples.len().max(1) as u64;
    mean(&samples[samples.len() - tenth..]).saturating_sub(mean(&samples[..tenth]))
}

/// Memory of the machine that programs could still use without swapping, in bytes.
pub(crate) fn available_bytes() -> io::Result<u64> {
    kibibytes("/proc/meminfo", "MemAvailable:")
}

/// Allocates an empty vector whose memory is resident from the start, so that filling it causes no
/// page fault and no growth of resident memory.
pub(crate) fn resident_vec<T>(capacity: usize) -> Vec<T> {
    // The black box keeps the optimiser from merging the allocation and the zeroing into a request
    // for zeroed memory, which the kernel grants without making it resident.
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
    fn growth_is_that_between_the_first_and_the_last_tenth() {
        let samples: Vec<u64> = (0..20).map(|sample| sample * 10).collect();
        assert_eq!(growth(&samples), 185 - 5);
        assert_eq!((growth(&[7]), growth(&[9, 5]), growth(&[])), (0, 0, 0));
    }

    #[test]
    fn a_resident_vec_is_resident_before_it_is_filled() {
        const BYTES: u64 = 64 << 20;
        let vec: Vec<u64> = resident_vec(BYTES as usize / 8);
        let resident = resident_bytes_around(vec.as_ptr() as u64);
        assert!(vec.is_empty());
        assert!(resident >= BYTES, "only {resident} bytes are resident");
        assert!(peak_resident_bytes().expect("this is Linux") >= resident);
    }

    /// Resident memory of the mapping that holds an address, in bytes: other tests of this process allocate and free
    /// meanwhile, so the sum over all mappings says nothing of one.
    fn resident_bytes_around(address: u64) -> u64 {
        let maps = fs::read_to_string("/proc/self/smaps").expect("this is Linux");
        let mut lines = maps
            .lines()
            .skip_while(|line| !range(line).is_some_and(|range| range.contains(&address)));
        let resident =
            lines.find_map(|line| line.strip_prefix("Rss:")).expect("the address is mapped");
        let kibibytes: u64 =
            resident.trim().trim_end_matches(" kB").parse().expect("it is a number");
        kibibytes * 1024
    }

    fn range(line: &str) -> Option<std::ops::Range<u64>> {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(begin, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    }
}
