//! Eviction: entities that are seldom used make room when there are too many.
//!
//! A clock hand goes round the shards of all directories. An entity that it passes, and that was not used since it
//! passed before, is asked to leave; entities with ties come last.

use std::sync::atomic::Ordering;
use std::time::Duration;

use throng::layer::Instant;

use super::Inner;
use crate::directory::AnyDirectory;

/// Least time between two warnings of the same kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The clock hand that chooses entities to leave: it goes round the shards of all directories, and an entity
/// that was not used since it passed before must leave.
#[derive(Default)]
pub(super) struct Hand {
    /// Shard over which the hand has passed, counted over all directories.
    shard: usize,
    /// Tick of the last search that found too few. Until the next tick another one would find no more.
    exhausted: Option<u32>,
    /// Time of the last warning that entities with ties make room.
    warned: Option<Instant>,
}

impl Inner {
    /// Passivates entities that were not used for long, if there are too many.
    pub(crate) fn evict_if_crowded(&self) {
        let residents = self.counts.residents.load(Ordering::Relaxed);
        let staying = residents.saturating_sub(self.counts.leaving.load(Ordering::Relaxed));
        // Entities of the mean size. If those that leave are smaller, the next look finds too many again.
        let mean = self.counts.resident_bytes.load(Ordering::Relaxed).div_ceil(residents.max(1));
        let limit = self.live_max.min(self.live_bytes_max / mean.max(1));
        self.evict(staying.saturating_sub(limit));
    }

    /// Passivates a sixteenth of the entities, because the runtime has no room for another process.
    pub(crate) fn evict_for_room(&self) {
        let enough = self.counts.residents.load(Ordering::Relaxed).div_ceil(16);
        // One more in any case, because entities that were asked before may be in long turns.
        self.evict(enough.saturating_sub(self.counts.leaving.load(Ordering::Relaxed)).max(1));
    }

    /// Moves the clock hand until so many entities are asked to leave: at most twice round for entities without
    /// ties, and then once for the others.
    fn evict(&self, mut count: usize) {
        if count == 0 {
            return;
        }
        // If the hand is moving already, this caller need not wait for it.
        let Ok(mut hand) = self.hand.try_lock() else { return };
        if hand.exhausted == Some(self.tick()) {
            return;
        }
        let shards = self.shards();
        for step in 0..3 * shards {
            hand.shard = (hand.shard + 1) % shards;
            let even_if_tied = step >= 2 * shards;
            let evict =
                |(directory, shard): (&dyn AnyDirectory, _)| directory.evict(shard, even_if_tied);
            let asked = self.shard(hand.shard).map_or(0, evict);
            if even_if_tied && asked > 0 {
                self.warn_of_ties(&mut hand);
            }
            count = count.saturating_sub(asked);
            if count == 0 {
                return;
            }
        }
        hand.exhausted = Some(self.tick());
    }

    /// Warns, once in a while, that entities with ties make room.
    fn warn_of_ties(&self, hand: &mut Hand) {
        let now = Instant::now();
        if hand.warned.is_none_or(|warned| now.duration_since(warned) >= WARNING_INTERVAL) {
            hand.warned = Some(now);
            tracing::warn!(
                live_max = self.live_max,
                live_bytes_max = self.live_bytes_max,
                "entities leave memory to make room, and their timers, streams and links end; raise the limit of \
                 live entities, or of the runtime's processes"
            );
        }
    }
}
