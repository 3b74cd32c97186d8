//! Bounded selection of the newest items, for a timeline while the pages of its authors come in.
//!
//! Invariant: after any offers in any order, it holds the `limit` highest ids offered (or all, if
//! fewer were offered), each once.

use std::collections::BTreeMap;

use crate::ids::PostId;

/// Keeps the `limit` newest of the offered items.
#[derive(Debug)]
pub(crate) struct Newest<T> {
    limit: usize,
    kept: BTreeMap<PostId, T>,
}

impl<T> Newest<T> {
    /// Creates an empty selection; `limit` must be at least 1.
    pub(crate) fn new(limit: usize) -> Newest<T> {
        Newest { limit, kept: BTreeMap::new() }
    }

    /// Keeps `item` if it is among the newest so far. Cost: logarithmic in the limit.
    pub(crate) fn offer(&mut self, id: PostId, item: T) {
        if self.floor().is_some_and(|floor| id < floor) {
            return;
        }
        self.kept.insert(id, item);
        if self.kept.len() > self.limit {
            self.kept.pop_first();
        }
    }

    /// Returns the id below which offers have no effect, or `None` while there is room.
    pub(crate) fn floor(&self) -> Option<PostId> {
        if self.kept.len() < self.limit { None } else { self.kept.keys().next().copied() }
    }

    /// Returns the kept items, newest first.
    pub(crate) fn into_newest_first(self) -> impl Iterator<Item = T> {
        self.kept.into_values().rev()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_highest_stay_whatever_the_order(
            ids in prop::collection::vec(0..1000_u64, 0..200),
            limit in 1..30_usize,
        ) {
            let mut newest = Newest::new(limit);
            for &id in &ids {
                newest.offer(PostId::new(id), id);
            }
            let mut expected = ids;
            expected.sort_unstable_by(|a, b| b.cmp(a));
            expected.dedup();
            expected.truncate(limit);
            prop_assert_eq!(newest.into_newest_first().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn offers_below_the_floor_change_nothing(
            ids in prop::collection::btree_set(0..1000_u64, 10..100),
        ) {
            let mut newest = Newest::new(5);
            for &id in &ids {
                newest.offer(PostId::new(id), id);
            }
            let floor = newest.floor().map(PostId::get);
            prop_assert_eq!(floor, ids.iter().rev().nth(4).copied());
            for below in 0..floor.unwrap_or(0) {
                newest.offer(PostId::new(below), below);
            }
            let expected: Vec<u64> = ids.into_iter().rev().take(5).collect();
            prop_assert_eq!(newest.into_newest_first().collect::<Vec<_>>(), expected);
        }
    }
}
