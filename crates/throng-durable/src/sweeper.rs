//! The sweeper: passivates entities that are idle for too long, has those woken that are pinned or have messages, and
//! builds indexes.
//!
//! Each node has a single sweeper task. It goes round the shards of all directories, once in a quarter of the
//! idle time, in small steps. So an entity may stay by that much longer. After the idle time the task also
//! reports kinds whose entities nothing has asked for.

use std::sync::Weak;
use std::time::Duration;

use throng::layer::Instant;

use crate::index;
use crate::node::Inner;

/// Steps of a round, unless they would be too short or too long.
const STEPS: u32 = 64;
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Pinned entities that are woken in a second, at most, and entities with messages that wait.
const WAKES_PER_SECOND: f64 = 1000.0;
/// Entities that come into an index that is built, and entries that are deleted, for each of these, at most.
const INDEXED_PER_WAKE: usize = 10;
/// Time after the start at which pinned entities and reminders of kinds that nobody has named are reported.
const CLAIMED_AFTER: Duration = Duration::from_secs(30);

/// Sweeps until the node is gone or shut down.
pub(crate) async fn run(node: Weak<Inner>, idle_after: Duration) {
    let round = idle_after / 4;
    let pause = (round / STEPS).clamp(PAUSE_MIN, PAUSE_MAX);
    let ticks = u32::try_from(idle_after.as_nanos().div_ceil(pause.as_nanos())).unwrap_or(u32::MAX);
    let steps = usize::try_from(round.as_nanos() / pause.as_nanos()).unwrap_or(usize::MAX).max(1);
    let wakes = (pause.as_secs_f64() * WAKES_PER_SECOND).ceil() as usize;
    let begun = Instant::now();
    let mut is_reported = false;
    let mut next = 0;
    loop {
        tokio::time::sleep(pause).await;
        let Some(node) = node.upgrade().filter(|node| !node.is_closed()) else { return };
        let tick = node.advance();
        node.wake(wakes).await;
        index::maintain(&node, wakes * INDEXED_PER_WAKE).await;
        if !is_reported && begun.elapsed() >= CLAIMED_AFTER {
            is_reported = true;
            node.warn_of_unclaimed_pins();
            node.warn_of_unclaimed_reminders();
        }
        // By this time a program has used the kinds that it has.
        if tick == ticks.max(1) {
            node.report_unclaimed();
        }
        // Entities that were too busy to leave when asked may be idle by this time.
        node.evict_if_crowded();
        let shards = node.shards();
        for _ in 0..shards.div_ceil(steps) {
            next = (next + 1) % shards;
            if let Some((directory, shard)) = node.shard(next) {
                directory.passivate_idle(shard, tick, ticks);
            }
        }
    }
}
