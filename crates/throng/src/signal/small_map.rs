//! A map that costs nothing while it is empty, and no allocation for a single entry: few processes
//! have more than a single link or name.
//!
//! The order of iteration depends on the operations alone, never on hashes or addresses: a
//! simulated run must repeat exactly.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::hash::Hash;

/// A map for few entries. See the file's head.
#[derive(Debug, Default)]
pub(crate) enum SmallMap<K, V> {
    #[default]
    Empty,
    One(K, V),
    Many(Box<IndexMap<K, V, FxBuildHasher>>),
}

const CAPACITY_MIN: usize = 4;

impl<K: Eq + Hash, V> SmallMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            SmallMap::Empty => 0,
            SmallMap::One(..) => 1,
            SmallMap::Many(map) => map.len(),
        }
    }

    /// Bytes of the entries that are not stored in the map itself.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            SmallMap::Empty | SmallMap::One(..) => 0,
            // Each entry is stored with its hash, and its position is stored in the index.
            SmallMap::Many(map) => map.capacity() * (size_of::<(K, V)>() + 2 * size_of::<usize>()),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self {
            SmallMap::One(own, value) if own == key => Some(value),
            SmallMap::Many(map) => map.get(key),
            SmallMap::Empty | SmallMap::One(..) => None,
        }
    }

    /// Sets an entry, and returns its previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            SmallMap::Empty => {
                *self = SmallMap::One(key, value);
                None
            }
            SmallMap::One(own, old) if *own == key => Some(std::mem::replace(old, value)),
            SmallMap::One(..) => {
                let mut map = IndexMap::with_capacity_and_hasher(CAPACITY_MIN, FxBuildHasher);
                if let SmallMap::One(own, old) = std::mem::take(self) {
                    map.insert(own, old);
                }
                map.insert(key, value);
                *self = SmallMap::Many(Box::new(map));
                None
            }
            SmallMap::Many(map) => map.insert(key, value),
        }
    }

    /// Takes an entry out. Cost: constant on average; the last entry moves to the free position,
    /// and a map that has become far too large shrinks.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            SmallMap::One(own, _) if own == key => self.pop().map(|(_, value)| value),
            SmallMap::Many(map) => {
                let removed = map.swap_remove(key);
                // To twice the entries left, so that as many changes come before the next move.
                if removed.is_some() && map.len() < map.capacity() / 4 {
                    map.shrink_to((2 * map.len()).max(CAPACITY_MIN));
                }
                removed
            }
            SmallMap::Empty | SmallMap::One(..) => None,
        }
    }

    /// Reverses the order, so that [`pop`](Self::pop) begins with the oldest entry.
    pub(crate) fn reverse(&mut self) {
        if let SmallMap::Many(map) = self {
            map.reverse();
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(K, V)> {
        match self {
            SmallMap::Empty => None,
            SmallMap::One(..) => match std::mem::take(self) {
                SmallMap::One(key, value) => Some((key, value)),
                _ => None,
            },
            SmallMap::Many(map) => map.pop(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (one, many) = match self {
            SmallMap::Empty => (None, None),
            SmallMap::One(key, value) => (Some((key, value)), None),
            SmallMap::Many(map) => (None, Some(map.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_map_that_was_large_once_is_small_again() {
        let mut map = SmallMap::default();
        for key in 0..10_000_u32 {
            map.insert(key, key);
        }
        assert!(map.bytes() >= 10_000 * 8);
        for key in (0..10_000).step_by(2).chain((1..10_000).step_by(2)) {
            assert_eq!(map.remove(&key), Some(key));
            assert!(map.bytes() <= (4 * map.len() + 32) * 64, "{} in {}", map.len(), map.bytes());
        }
    }

    proptest! {
        #[test]
        fn matches_a_model(steps in prop::collection::vec((0_u8..5, 0_u8..6, any::<u8>()), 0..60)) {
            let mut map = SmallMap::default();
            let mut model = BTreeMap::new();
            for (step, key, value) in steps {
                match step {
                    0 | 1 => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                    2 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    3 => {
                        let mut order: Vec<_> = map.iter().map(|(&key, _)| key).collect();
                        map.reverse();
                        order.reverse();
                        let reversed: Vec<_> = map.iter().map(|(&key, _)| key).collect();
                        prop_assert_eq!(reversed, order);
                    }
                    _ => {
                        let popped = map.pop();
                        prop_assert_eq!(popped.is_some(), !model.is_empty());
                        if let Some((key, value)) = popped {
                            prop_assert_eq!(model.remove(&key), Some(value));
                        }
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.get(&key), model.get(&key));
                let all: BTreeMap<_, _> = map.iter().map(|(&key, &value)| (key, value)).collect();
                prop_assert_eq!(&all, &model);
            }
        }
    }
}
