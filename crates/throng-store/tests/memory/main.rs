//! The memory of a store, in a process without other tests.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use throng_store::{Bytes, Store, Str};

/// Resident memory of this process that is not mapped from a file, in bytes.
fn anonymous_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") << 10
}

/// Writes batches of a single change, whose memory the allocator keeps the second time. LMDB keeps the pages of a
/// transaction, and so does not return everything.
#[test]
fn an_idle_store_returns_its_memory() {
    const ENTRIES: u32 = 400_000;
    const QUEUED: u32 = 500;
    let directory = tempfile::tempdir().unwrap();
    let store = Store::options().open(directory.path()).unwrap();
    let entries = store.default_database::<Str, Bytes>();
    let before = anonymous_bytes();
    for round in 0..2 {
        for first in (0..ENTRIES).step_by(QUEUED as usize) {
            let put = |entry: u32| entries.put(&format!("{entry:020}"), &[round; 8]);
            let tickets: Vec<_> = (first..first + QUEUED).map(put).collect();
            tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
        }
        let full = anonymous_bytes() - before;
        assert!(full > 32 << 20, "{full} bytes in use");
        let patience = Instant::now() + Duration::from_secs(60);
        while anonymous_bytes() - before > full * 3 / 4 {
            assert!(Instant::now() < patience, "{} of {full} bytes", anonymous_bytes() - before);
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(store.stat().unwrap().memory_bytes, 0);
    }
}
