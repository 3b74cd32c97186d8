//! Processor time of the client's threads and of all others in this process, as the Linux kernel
//! accounts for it.

use std::fs;
use std::io;

use super::client::THREAD_NAME;

/// Processor time in nanoseconds, to within a tick of the kernel's clock for each thread that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Usage {
    pub(super) client_ns: u64,
    pub(super) server_ns: u64,
}

impl Usage {
    /// The processor time of all threads so far.
    pub(super) fn read() -> io::Result<Usage> {
        let mut usage = Usage { client_ns: 0, server_ns: 0 };
        for thread in fs::read_dir("/proc/self/task")? {
            let thread = thread?.path();
            let read = |file| fs::read_to_string(thread.join(file));
            let (name, times) = match (read("comm"), read("schedstat")) {
                (Ok(name), Ok(times)) => (name, times),
                // A thread that has ended since the directory was read.
                _ if !thread.exists() => continue,
                (Err(error), _) | (_, Err(error)) => return Err(error),
            };
            let nanoseconds: u64 = times
                .split_whitespace()
                .next()
                .and_then(|running| running.parse().ok())
                .ok_or_else(|| io::Error::other(format!("{times:?} has no time")))?;
            if name.trim_end() == THREAD_NAME {
                usage.client_ns += nanoseconds;
            } else {
                usage.server_ns += nanoseconds;
            }
        }
        Ok(usage)
    }

    /// The processor time since an earlier reading.
    pub(super) fn since(self, earlier: Usage) -> Usage {
        Usage {
            client_ns: self.client_ns.saturating_sub(earlier.client_ns),
            server_ns: self.server_ns.saturating_sub(earlier.server_ns),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_a_thread_is_found_under_its_name() {
        let before = Usage::read().expect("this is Linux");
        let client = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(|| {
            let own = || -> u64 {
                let times = fs::read_to_string("/proc/thread-self/schedstat").expect("is there");
                times.split_whitespace().next().and_then(|time| time.parse().ok()).expect("a time")
            };
            while own() < 20_000_000 {
                thread::sleep(Duration::from_nanos(1));
            }
            Usage::read().expect("this is Linux")
        });
        let after = client.expect("there is room for a thread").join().expect("it does not panic");
        assert!(after.since(before).client_ns >= 20_000_000, "{after:?}");
        assert_eq!(before.client_ns, 0);
    }
}
