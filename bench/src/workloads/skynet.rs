//! `skynet`: a tree of processes, ten children to each, whose N leaves are numbered; each process
//! reports the sum of its leaves to its parent and exits.
//!
//! ```text
//! driver    start the root │ wait for the sum
//!           ├──────────────── wall_s ────────┤
//! ```
//!
//! - With the original's million leaves there are 1,111,111 processes. For a number that is no
//!   power of ten, a process divides its leaves among at most ten children as evenly as possible.
//! - The sum shows that each leaf has run once.
use std::ops::Range;
use std::thread;
use std::time::Instant;

use smol::Task;
use throng::prelude::*;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{JoinError, JoinHandle};

use super::prelude::*;
use super::tally::{Tally, share, sum_below};
use crate::runtimes::throng::Throng;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => runtimes::throng::drive(settings, false, |Throng { runtime }, settings| {
            measure(settings, async move |leaves| {
                ROOT.arm(1);
                runtimes::throng::start(
                    &runtime,
                    Node { parent: None, leaves, missing: 0, sum: 0 },
                );
                ROOT.complete().await;
                (ROOT.count() == 1).then(|| ROOT.sum())
            })
        }),
        "tokio-channels" => runtimes::tokio::drive(settings, false, |settings| {
            measure(settings, async |leaves| {
                let (parent, mut sums) = unbounded_channel();
                report(leaves, parent);
                sums.recv().await
            })
        }),
        "smol" => runtimes::smol::drive(settings, |_, settings| {
            measure(settings, async |leaves| Some(await_all(leaves).await))
        }),
        "threads" => runtimes::threads::drive(settings, |_, settings| {
            measure(settings, async |leaves| join_threads(leaves).join().ok()?.ok())
        }),
        _ => runtimes::tokio::drive_row(row, settings, false, |settings| {
            measure(settings, async |leaves| join(leaves).await.ok()?.ok())
        }),
    }
}

/// The root's sum, for a runtime in which no process awaits the root.
static ROOT: Tally = Tally::new();

/// The leaves of each child of the process that has some leaves. A process with a single leaf has no
/// children.
fn children(leaves: Range<u64>) -> impl ExactSizeIterator<Item = Range<u64>> + Send {
    let count = leaves.end - leaves.start;
    let parts = count.min(10);
    (0..parts as usize).map(move |part| {
        let share = share(count, part as u64, parts);
        leaves.start + share.start..leaves.start + share.end
    })
}

/// Drives the workload: its clock and its check. `root` starts the root, and awaits its sum.
async fn measure<F: Future<Output = Option<u64>>>(
    settings: Settings,
    root: impl FnOnce(Range<u64>) -> F,
) -> Measured {
    let clock = Instant::now();
    let sum = root(0..settings.count).await;
    let elapsed = clock.elapsed();

    let mut outcome = Outcome::default();
    outcome.metric("wall_s", elapsed.as_secs_f64());
    outcome.check("roots that reported", u64::from(sum.is_some()), 1);
    outcome.check("the sum", sum.unwrap_or_default(), sum_below(settings.count));
    Ok(outcome)
}

/// tokio: a task awaits the join handles of its children.
fn join(leaves: Range<u64>) -> JoinHandle<Result<u64, JoinError>> {
    tokio::spawn(async move {
        if leaves.end - leaves.start == 1 {
            return Ok(leaves.start);
        }
        let children: Vec<_> = children(leaves).map(join).collect();
        let mut sum = 0;
        for child in children {
            sum += child.await??;
        }
        Ok(sum)
    })
}

/// tokio's channels: a task is a process, and receives the sums of its children in its mailbox.
fn report(leaves: Range<u64>, parent: UnboundedSender<u64>) {
    tokio::spawn(async move {
        let mut sum = leaves.start;
        if leaves.end - leaves.start > 1 {
            let (mailbox, mut sums) = unbounded_channel();
            children(leaves).for_each(|leaves| report(leaves, mailbox.clone()));
            drop(mailbox);
            sum = 0;
            while let Some(child) = sums.recv().await {
                sum += child;
            }
        }
        // A report without a receiver is missing in the sum.
        let _ = parent.send(sum);
    });
}

/// smol: a task awaits the tasks of its children.
fn await_all(leaves: Range<u64>) -> Task<u64> {
    runtimes::smol::spawn(async move {
        if leaves.end - leaves.start == 1 {
            return leaves.start;
        }
        let children: Vec<_> = children(leaves).map(await_all).collect();
        let mut sum = 0;
        for child in children {
            sum += child.await;
        }
        sum
    })
}

/// Threads: a thread joins the threads of its children.
fn join_threads(leaves: Range<u64>) -> thread::JoinHandle<thread::Result<u64>> {
    thread::spawn(move || {
        if leaves.end - leaves.start == 1 {
            return Ok(leaves.start);
        }
        let children: Vec<_> = children(leaves).map(join_threads).collect();
        let mut sum = 0;
        for child in children {
            sum += child.join()??;
        }
        Ok(sum)
    })
}

/// throng: a process starts its children in `started`, and each child sends its sum to its parent.
struct Node {
    parent: Option<Address<Node>>,
    leaves: Range<u64>,
    missing: usize,
    sum: u64,
}

impl Node {
    fn report(&self, cx: &mut Context<Self>) {
        match self.parent {
            // A report without a receiver is missing in the sum.
            Some(parent) => drop(parent.send_sum(self.sum)),
            None => ROOT.add(self.sum),
        }
        cx.stop(ExitReason::Normal);
    }
}

#[process]
impl Node {
    #[hook]
    async fn started(&mut self, cx: &mut Context<Self>) {
        if self.leaves.end - self.leaves.start == 1 {
            self.sum = self.leaves.start;
            return self.report(cx);
        }
        let children = children(self.leaves.clone());
        self.missing = children.len();
        for leaves in children {
            let parent = Some(cx.address());
            runtimes::throng::start(cx.runtime(), Node { parent, leaves, missing: 0, sum: 0 });
        }
    }

    #[message]
    fn sum(&mut self, sum: u64, cx: &mut Context<Self>) {
        self.sum += sum;
        self.missing -= 1;
        if self.missing == 0 {
            self.report(cx);
        }
    }
}
