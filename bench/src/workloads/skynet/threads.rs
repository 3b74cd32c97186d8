//! `skynet` with threads: a thread joins the threads of its children.

use std::ops::Range;
use std::thread::{self, JoinHandle};

use super::children;
use crate::runtimes::Work;
use crate::settings::Settings;

pub(super) fn measure(settings: Settings) -> impl Work {
    super::measure(settings, async |leaves| start(leaves).join().ok()?.ok())
}

fn start(leaves: Range<u64>) -> JoinHandle<thread::Result<u64>> {
    thread::spawn(move || {
        if leaves.end - leaves.start == 1 {
            return Ok(leaves.start);
        }
        let children: Vec<_> = children(leaves).map(start).collect();
        let mut sum = 0;
        for child in children {
            sum += child.join()??;
        }
        Ok(sum)
    })
}
