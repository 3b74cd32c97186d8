//! A process dies that a crowd monitors: each monitor fires once, with the reason; and one process
//! with as many monitors of its own hears as often.

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

impl Process for Watcher {
    async fn down(&mut self, down: Down, _: &mut Context<Self>) {
        let expected = down.pid == self.star && down.reason == ExitReason::other("burnt out");
        // A monitor that fires twice is not in the set any more.
        if !expected || !self.monitors.remove(&down.monitor) {
            self.counts.wrong.fetch_add(1, Ordering::Relaxed);
        }
        self.counts.downs.fetch_add(1, Ordering::Relaxed);
    }
}

struct Monitor(u64);
impl Message for Monitor {
    type Reply = ();
}
impl Handle<Monitor> for Watcher {
    async fn handle(&mut self, Monitor(times): Monitor, cx: &mut Context<Self>) {
        for _ in 0..times {
            self.monitors.insert(cx.monitor(self.star));
        }
        self.counts.ready.fetch_add(times, Ordering::Relaxed);
    }
}

struct Say;
impl Message for Say {
    type Reply = ();
}
impl Handle<Say> for Watcher {
    async fn handle(&mut self, _: Say, _: &mut Context<Self>) {
        self.counts.said.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn run(size: u64) -> Outcome {
    by(size, size)?;
    by(1, size)?;
    Ok(format!("{size} monitors of as many processes, and {size} of one, each fired once"))
}

/// `crowd` processes make `size` monitors between them.
fn by(crowd: u64, size: u64) -> Result<(), String> {
    let runtime = Runtime::builder().start().map_err(|error| error.to_string())?;
    let counts = Arc::new(Counts::default());
    let star = runtime.spawn(Star).unwrap();
    let watchers: Vec<_> = (0..crowd)
        .map(|_| {
            let monitors = HashSet::new();
            runtime.spawn(Watcher { star: star.pid(), monitors, counts: counts.clone() }).unwrap()
        })
        .collect();
    for watcher in &watchers {
        watcher.send(Monitor(size / crowd)).unwrap();
    }
    let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
    while seen(&counts.ready) < size {
        std::thread::yield_now();
    }
    star.exit(ExitReason::other("burnt out"));
    while runtime.process_count() > crowd || seen(&counts.downs) < size {
        std::thread::yield_now();
    }
    // Once more round: were anything still on its way, it would come before this.
    for watcher in &watchers {
        watcher.send(Say).unwrap();
    }
    while seen(&counts.said) < crowd {
        std::thread::yield_now();
    }
    ensure(seen(&counts.downs) == size, || format!("{} of {size} fired", seen(&counts.downs)))?;
    ensure(seen(&counts.wrong) == 0, || format!("{} fired wrongly", seen(&counts.wrong)))
}
