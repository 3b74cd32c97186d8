//! `skynet` with tokio: a task awaits the join handles of its children.

use std::ops::Range;

use tokio::task::{JoinError, JoinHandle};

use super::children;
use crate::runtimes::Work;
use crate::settings::Settings;

pub(super) fn measure(settings: Settings) -> impl Work {
    super::measure(settings, async |leaves| start(leaves).await.ok()?.ok())
}

fn start(leaves: Range<u64>) -> JoinHandle<Result<u64, JoinError>> {
    tokio::spawn(async move {
        if leaves.end - leaves.start == 1 {
            return Ok(leaves.start);
        }
        let children: Vec<_> = children(leaves).map(start).collect();
        let mut sum = 0;
        for child in children {
            sum += child.await??;
        }
        Ok(sum)
    })
}
