//! The sweeper: passivates entities that are idle for too long or exceed the limit.
//!
//! Each node has a single sweeper task. It visits one shard at a time and lets other tasks run in
//! between. Its pauses are a quarter of the idle time, so an entity may stay by that much longer.

use std::sync::Weak;
use std::time::Duration;

use crate::directory::{Nanos, SHARDS};
use crate::node::Inner;

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Sweeps until the node is gone or shut down.
pub(crate) async fn run(node: Weak<Inner>, idle_after: Duration) {
    let idle_nanos = Nanos::try_from(idle_after.as_nanos()).unwrap_or(Nanos::MAX);
    loop {
        tokio::time::sleep((idle_after / 4).clamp(PAUSE_MIN, PAUSE_MAX)).await;
        let directories = match node.upgrade() {
            Some(node) if !node.is_closed() => {
                // Entities that were too busy to leave when asked may be idle by this time.
                node.evict_if_crowded();
                node.directories()
            }
            _ => return,
        };
        for directory in directories {
            for shard in 0..SHARDS {
                let Some(node) = node.upgrade() else { return };
                let now = node.now();
                directory.passivate_idle(shard, now.saturating_sub(idle_nanos), now);
                drop(node);
                tokio::task::yield_now().await;
            }
        }
    }
}
