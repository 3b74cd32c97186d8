//! `skynet` with tokio's channels: a task that is a process, and receives the sums of its children in
//! its mailbox.

use std::ops::Range;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::children;
use crate::runtimes::Work;
use crate::settings::Settings;

pub(super) fn measure(settings: Settings) -> impl Work {
    super::measure(settings, async |leaves| {
        let (parent, mut sums) = unbounded_channel();
        start(leaves, parent);
        sums.recv().await
    })
}

fn start(leaves: Range<u64>, parent: UnboundedSender<u64>) {
    tokio::spawn(async move {
        let mut sum = leaves.start;
        if leaves.end - leaves.start > 1 {
            let (mailbox, mut sums) = unbounded_channel();
            children(leaves).for_each(|leaves| start(leaves, mailbox.clone()));
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
