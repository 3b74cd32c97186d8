//! Endless spawning and exiting must not cost memory: slots, classes, permits and extensions are
//! all reused.

use crate::resident::Watch;
use crate::{Outcome, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use throng::prelude::*;

/// Processes spawned in each turn.
const BATCH: u64 = 1_000;
/// Most growth in bytes: resident memory varies with the number of live processes.
const GROWTH_MOST: u64 = 16 << 20;

struct Mayfly(Arc<AtomicU64>);
impl Process for Mayfly {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.stop(ExitReason::Normal);
    }
    async fn stopping(&mut self, _: &ExitReason, _: &mut Context<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Spawner(Arc<AtomicU64>);
#[process]
impl Spawner {
    #[message]
    async fn spawn(&mut self, cx: &mut Context<Self>) {
        for number in 0..BATCH {
            let mayfly = Mayfly(self.0.clone());
            // Some are linked, so that extensions are allocated and freed too.
            if number % 8 == 0 {
                cx.linked().spawn(mayfly).unwrap();
            } else {
                cx.runtime().spawn(mayfly).unwrap();
            }
        }
        // Waits until this batch has exited, so that few processes live at a time.
        while cx.runtime().process_count() > BATCH {
            tokio::task::yield_now().await;
        }
    }
}

pub(crate) fn run(size: u64) -> Outcome {
    let runtime = Runtime::builder().start().map_err(|error| error.to_string())?;
    let exits = Arc::new(AtomicU64::new(0));
    let batches = size.div_ceil(BATCH);
    let watch = runtime.block_on(async |runtime| {
        let spawner = runtime.spawn(Spawner(exits.clone())).unwrap();
        let mut watch = None;
        for batch in 0..batches {
            spawner.spawn().await.unwrap();
            if batch == batches / 10 {
                watch = Some(Watch::start());
            } else if let Some(watch) = &mut watch
                && batch % 1_000 == 0
            {
                watch.sample();
            }
        }
        watch
    });
    drop(runtime);
    let mut watch = watch.ok_or("nothing ran")?;
    watch.sample();
    let exits = exits.load(Ordering::Relaxed);
    ensure(exits == batches * BATCH, || format!("{exits} exits of {} spawns", batches * BATCH))?;
    ensure(watch.growth() < GROWTH_MOST, || format!("memory grew by {} bytes", watch.growth()))?;
    Ok(format!("each exited once; memory grew by {} KiB", watch.growth() >> 10))
}
