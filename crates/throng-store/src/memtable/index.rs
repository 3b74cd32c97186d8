//! [`Index`]: finds the node of a sort key by its hash, while one thread inserts.
//!
//! ```text
//!         oldest                   newest, × 8
//! tags  [ 9f 03 c1 0 0 0 0 0 │ … ]  [ 41 0 0 0 0 0 0 0 │ … │ … │ … │ … │ … │ … │ … ]
//! ids   [  7  2  9           │ … ]  [ 12               │ … │ … │ … │ … │ … │ … │ … ]
//!         └─── a group ─────┘
//! ```
//!
//! 1. A *tag* is a byte of the hash, 0 for a free slot. A group is eight slots; its tags are a
//!    single word, filled from the left. An id is in the first group, from the hash's own on, that
//!    had room.
//! 2. A lookup compares a word of tags at once and reads ids only where tags are equal: an absent
//!    key costs one access to the tags, which are small enough for the caches.
//! 3. A lookup probes the parts, newest first: the newest one has most of the keys.
//! 4. A part that is half full is left alone and a larger one is begun, so no insertion moves
//!    others, and a reader never waits.
//! 5. A tag is stored once, with `Release`, after its id and all that the id names.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Number of parts, enough for ids of 32 bits.
const PARTS: usize = 11;

const GROWTH: usize = 8;

const GROUP: usize = 8;

/// The least byte of each slot of a group.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Number of bytes that the first use of a slot makes resident, at most: a page of tags and one of
/// ids.
const PAGES_BYTES: usize = 2 * 4096;

/// Map from hashes to ids, of one writer and many readers; see the file's head.
pub(super) struct Index {
    parts: [OnceLock<Slots>; PARTS],
    made: AtomicUsize,
    /// Number of used slots of the newest part; only the writer looks.
    used: AtomicUsize,
    first: usize,
}

struct Slots {
    /// The tags of each group; the number of groups is a power of two.
    tags: Box<[AtomicU64]>,
    ids: Box<[AtomicU32]>,
}

impl Index {
    /// Creates an index whose first part has room for this many keys.
    pub(super) fn new(expected: usize) -> Index {
        Index {
            parts: [const { OnceLock::new() }; PARTS],
            made: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            first: (2 * expected).next_power_of_two().max(2 * GROUP),
        }
    }

    /// Returns the id of this hash for which `is_match` is true.
    pub(super) fn find(&self, hash: u64, is_match: impl Fn(u32) -> bool) -> Option<u32> {
        let made = self.made.load(Ordering::Acquire);
        let mut parts = self.parts[..made].iter().rev().filter_map(OnceLock::get);
        parts.find_map(|slots| slots.find(hash, &is_match))
    }

    /// Adds an id that is not in the index. Returns the number of bytes of memory that this took.
    /// Only one thread inserts.
    pub(super) fn insert(&self, hash: u64, id: u32) -> usize {
        let mut used = self.used.load(Ordering::Relaxed);
        let made = self.made.load(Ordering::Relaxed);
        let newest = made.checked_sub(1).and_then(|newest| self.parts[newest].get());
        let slots = match newest {
            Some(slots) if used < slots.len() / 2 => slots,
            full => {
                used = 0;
                let len = full.map_or(self.first, |full| full.len() * GROWTH);
                let slots = self.parts[made].get_or_init(|| Slots::new(len));
                self.made.store(made + 1, Ordering::Release);
                slots
            }
        };
        self.used.store(used + 1, Ordering::Relaxed);
        slots.insert(hash, id);
        let resident = |used: usize| (used * PAGES_BYTES).min(slots.bytes());
        resident(used + 1) - resident(used)
    }
}

impl Slots {
    /// Makes free slots. The compiler turns the vectors of numbers into those of atomics in place
    /// and without a loop, so that the pages, which the system provides zeroed, stay untouched.
    fn new(len: usize) -> Slots {
        Slots {
            tags: vec![0; len / GROUP].into_iter().map(AtomicU64::new).collect(),
            ids: vec![0; len].into_iter().map(AtomicU32::new).collect(),
        }
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.tags) + size_of_val(&*self.ids)
    }

    fn find(&self, hash: u64, is_match: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let mut group = hash as usize;
        loop {
            group &= self.tags.len() - 1;
            let tags = self.tags[group].load(Ordering::Acquire);
            let mut equal = zero_bytes(tags ^ (ONES * tag));
            while equal != 0 {
                let slot = GROUP * group + equal.trailing_zeros() as usize / 8;
                let id = self.ids[slot].load(Ordering::Relaxed);
                if is_match(id) {
                    return Some(id);
                }
                equal &= equal - 1;
            }
            if tags.leading_zeros() >= 8 {
                return None;
            }
            group += 1;
        }
    }

    fn insert(&self, hash: u64, id: u32) {
        let mut group = hash as usize & (self.tags.len() - 1);
        let mut tags = self.tags[group].load(Ordering::Relaxed);
        while tags.leading_zeros() < 8 {
            group = (group + 1) & (self.tags.len() - 1);
            tags = self.tags[group].load(Ordering::Relaxed);
        }
        let used = GROUP - tags.leading_zeros() as usize / 8;
        self.ids[GROUP * group + used].store(id, Ordering::Relaxed);
        self.tags[group].store(tags | (tag(hash) << (8 * used)), Ordering::Release);
    }
}

/// Returns a byte of the hash that does not choose the group, and is not 0.
fn tag(hash: u64) -> u64 {
    (hash >> 56).max(1)
}

/// Returns a word with the highest bit of each byte set where the given word's byte is 0.
fn zero_bytes(word: u64) -> u64 {
    let low = ONES * 0x7f;
    !(((word & low) + low) | word | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_all_parts_and_by_their_whole_hash() {
        let index = Index::new(0);
        let hash = |id: u32| u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for id in 0..5_000 {
            assert_eq!(index.find(hash(id), |found| found == id), None);
            index.insert(hash(id), id);
        }
        assert_eq!(index.made.load(Ordering::Relaxed), 5);
        assert!((0..5_000).all(|id| index.find(hash(id), |found| found == id) == Some(id)));
        assert_eq!(index.find(hash(5), |_| false), None);
    }

    #[test]
    fn ids_with_equal_hashes_are_distinguished_by_the_match() {
        let index = Index::new(100);
        for id in 0..150 {
            index.insert(7, id);
        }
        assert_eq!(index.find(7, |id| id == 149), Some(149));
    }

    #[test]
    fn memory_is_counted_when_it_is_used() {
        let index = Index::new(1 << 20);
        assert_eq!(index.insert(1, 0), PAGES_BYTES);
        let small = Index::new(0);
        assert_eq!([small.insert(1, 0), small.insert(2, 1)], [16 * 5, 0]);
    }

    #[test]
    #[ignore = "a measurement"]
    fn free_slots_cost_no_time() {
        let start = std::time::Instant::now();
        let slots = Slots::new(1 << 28);
        println!("{} MiB in {:?}", slots.bytes() >> 20, start.elapsed());
    }
}
