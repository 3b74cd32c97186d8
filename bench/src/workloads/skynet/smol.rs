//! `skynet` with smol: a task awaits the tasks of its children.

use std::ops::Range;

use smol::Task;

use super::children;
use crate::runtimes::{self, Work};
use crate::settings::Settings;

pub(super) fn measure(settings: Settings) -> impl Work {
    super::measure(settings, async |leaves| Some(start(leaves).await))
}

fn start(leaves: Range<u64>) -> Task<u64> {
    runtimes::smol::spawn(async move {
        if leaves.end - leaves.start == 1 {
            return leaves.start;
        }
        let children: Vec<_> = children(leaves).map(start).collect();
        let mut sum = 0;
        for child in children {
            sum += child.await;
        }
        sum
    })
}
