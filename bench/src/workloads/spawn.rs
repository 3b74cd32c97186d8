//! `spawn`: N live processes, each with a `u64` and its own mailbox.
//!
//! ```text
//! driver   spawn × N │ message × chunk, wait until counted, … │ RSS │ stop × chunk, wait for exits, …
//!          ├ spawn_ns┤                                        │     ├───────────────── exit_ns ────┤
//!          ├──────────────────────────────────────── ready_ns ┤
//! ```
//!
//! - The driver is itself a process; the memory for the addresses it collects is resident before
//!   the clock starts and the RSS baseline is taken.
//! - A process counts itself when it handles its message, so `ready_ns` proves that it ran.
//! - An exit counts as observed when the process's state has been dropped.
//! - At most `chunk` messages are in flight, including requests to stop: neither
//!   `bytes_per_process` nor `peak_rss_bytes` includes a backlog.
use std::convert::Infallible;
use std::time::Instant;

use super::prelude::*;
use super::tally::{Tally, sum_below};
use crate::host::{Host, Next, OnHost, Receiver};

/// Number of addresses in a block of the driver's memory; the driver frees each block once its
/// processes are stopped.
const ADDRESS_BLOCK: u64 = 1 << 20;

static COUNTED: Tally = Tally::new();
static EXITED: Tally = Tally::new();

/// The state of each process: a number, which the process adds to each tally it counts itself in.
struct State(u64);

impl Receiver for State {
    type Message = ();
    type Pause = Infallible;

    fn receive(&mut self, (): ()) -> Next {
        COUNTED.add(self.0);
        Next::Message
    }
}

impl Drop for State {
    fn drop(&mut self) {
        EXITED.add(self.0);
    }
}

pub(crate) struct Spawn;

impl OnHost for Spawn {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let count = settings.count;
        let firsts = || (0..count).step_by(ADDRESS_BLOCK as usize);
        let below = |first: u64| first.saturating_add(ADDRESS_BLOCK).min(count);
        let mut processes: Vec<Vec<H::Address<State>>> =
            firsts().map(|first| memory::resident_vec((below(first) - first) as usize)).collect();
        let resident_before = memory::resident_bytes()?;

        let spawning = Instant::now();
        for (block, first) in processes.iter_mut().zip(firsts()) {
            for value in first..below(first) {
                block.push(host.start(State(value)).await?);
            }
        }
        let spawned = spawning.elapsed();
        let chunk = settings.get("chunk") as usize;
        let mut counted = 0;
        for slice in processes.iter().flat_map(|block| block.chunks(chunk)) {
            counted += slice.len() as u64;
            COUNTED.arm(counted);
            for process in slice {
                H::send(process, ());
            }
            COUNTED.complete().await;
        }
        let ready = spawning.elapsed();
        let resident = memory::resident_bytes()?;

        let stopping = Instant::now();
        let mut stopped = 0;
        for block in processes {
            let mut left = block.into_iter();
            while left.len() > 0 {
                let slice = left.len().min(chunk);
                stopped += slice as u64;
                EXITED.arm(stopped);
                for process in left.by_ref().take(slice) {
                    H::stop(process);
                }
                EXITED.complete().await;
            }
        }
        let exited = stopping.elapsed();

        let each = 1.0 / count as f64;
        let mut outcome = Outcome::default();
        outcome.metric("spawn_ns", spawned.as_nanos() as f64 * each);
        outcome.metric("ready_ns", ready.as_nanos() as f64 * each);
        outcome.metric("bytes_per_process", resident.saturating_sub(resident_before) as f64 * each);
        outcome.metric(memory::PEAK, memory::peak_resident_bytes()? as f64);
        outcome.metric("exit_ns", exited.as_nanos() as f64 * each);
        outcome.check("processes that counted themselves", COUNTED.count(), count);
        outcome.check("the sum of their states", COUNTED.sum(), sum_below(count));
        outcome.check("processes that exited", EXITED.count(), count);
        outcome.check("the sum of their last states", EXITED.sum(), sum_below(count));
        Ok(outcome)
    }
}
