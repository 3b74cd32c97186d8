//! Many monitors of a process that dies: each fires once, with the exit reason. First each monitor
//! belongs to another process, then all belong to a single process.

use crate::{Outcome, ensure};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use throng::prelude::*;

struct Star;
impl Process for Star {}

#[derive(Default)]
struct Counts {
    ready: AtomicU64,
    downs: AtomicU64,
    wrong: AtomicU64,
    said: AtomicU64,
}

struct Watcher {
    star: Pid,
    monitors: HashSet<MonitorRef>,
    counts: Arc<Counts>,
}

#[process]
impl Watcher {
    #[hook]
    fn down(&mut self, down: Down) {
        let expected = down.pid == self.star && down.reason == ExitReason::other("burnt out");
        // The set has lost the monitor when it fires a second time.
        if !expected || !self.monitors.remove(&down.monitor) {
            self.counts.wrong.fetch_add(1, Ordering::Relaxed);
        }
        self.counts.downs.fetch_add(1, Ordering::Relaxed);
    }
    #[message(send, name = Monitor)]
    fn observe(&mut self, times: u64, cx: &mut Context<Self>) {
        for _ in 0..times {
            self.monitors.insert(cx.monitor(self.star));
        }
        self.counts.ready.fetch_add(times, Ordering::Relaxed);
    }
    #[message(send)]
    fn say(&mut self) {
        self.counts.said.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn run(size: u64) -> Outcome {
    monitor_by(size, size)?;
    monitor_by(1, size)?;
    Ok(format!(
        "{size} monitors of as many processes, and {size} of a single process, each fired once"
    ))
}

/// Has `watchers` processes set `size` monitors between them.
fn monitor_by(watchers: u64, size: u64) -> Result<(), String> {
    let runtime = Runtime::builder().start().map_err(|error| error.to_string())?;
    let counts = Arc::new(Counts::default());
    let star = runtime.spawn(Star).unwrap();
    let addresses: Vec<_> = (0..watchers)
        .map(|_| {
            let monitors = HashSet::new();
            runtime.spawn(Watcher { star: star.pid(), monitors, counts: counts.clone() }).unwrap()
        })
        .collect();
    for watcher in &addresses {
        watcher.observe(size / watchers).unwrap();
    }
    let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
    while seen(&counts.ready) < size {
        std::thread::yield_now();
    }
    star.exit(ExitReason::other("burnt out"));
    while runtime.process_count() > watchers || seen(&counts.downs) < size {
        std::thread::yield_now();
    }
    // A second notification that is still in flight would arrive before this message.
    for watcher in &addresses {
        watcher.say().unwrap();
    }
    while seen(&counts.said) < watchers {
        std::thread::yield_now();
    }
    ensure(seen(&counts.downs) == size, || format!("{} of {size} fired", seen(&counts.downs)))?;
    ensure(seen(&counts.wrong) == 0, || format!("{} fired wrongly", seen(&counts.wrong)))
}
