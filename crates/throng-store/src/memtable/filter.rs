//! [`Filter`]: tells without a search that a run has no change of a key.
//!
//! A Bloom filter whose bits of a key lie in one word, so that a question costs one access to memory:
//! ten bits for each key, of which four are set. It answers "perhaps" for some 2 % of the keys that are
//! not there.

use crate::disk::lmdb::Table;

/// Bits for each key.
const BITS_PER_KEY: usize = 10;

/// Number of keys below which a search is as fast as a question.
const KEYS_MIN: usize = 8;

/// Set of keys that answers "no" or "perhaps"; the empty one always answers "perhaps".
#[derive(Default)]
pub(crate) struct Filter(Box<[u64]>);

impl Filter {
    /// Creates a filter for this many keys.
    pub(crate) fn for_keys(keys: usize) -> Filter {
        let words = if keys < KEYS_MIN { 0 } else { (keys * BITS_PER_KEY).div_ceil(64) };
        Filter(vec![0; words].into())
    }

    pub(crate) fn insert(&mut self, hash: u64) {
        if let Some(at) = self.word(hash) {
            self.0[at] |= bits(hash);
        }
    }

    /// Whether the set may have the key of this hash.
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let bits = bits(hash);
        self.word(hash).is_none_or(|at| self.0[at] & bits == bits)
    }

    /// Number of bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * size_of::<u64>()
    }

    /// Returns the index of a hash's word: the upper half of the hash, scaled to the number of words.
    fn word(&self, hash: u64) -> Option<usize> {
        let words = self.0.len() as u64;
        (words > 0).then(|| (((hash >> 32) * words) >> 32) as usize)
    }
}

/// Returns the bits of a hash within its word, from the lower half of the hash.
fn bits(hash: u64) -> u64 {
    (0..4).fold(0, |bits, part| bits | 1 << (hash >> (6 * part) & 63))
}

/// Hashes a key of a table: multiplies and folds eight bytes at a time. Keys that someone has chosen to
/// collide cost a search each, and nothing else.
pub(crate) fn hash(table: Table, key: &[u8]) -> u64 {
    let mut hash = u64::from(table.0).wrapping_mul(FACTOR) ^ key.len() as u64;
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = mix(hash ^ u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(hash ^ u64::from_le_bytes(last)))
}

/// An odd number without a pattern: the golden ratio's fraction.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(hash: u64) -> u64 {
    let product = u128::from(hash ^ FACTOR) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_its_keys_and_few_others() {
        for keys in [1, 8, 100, 100_000u64] {
            let of = |key: u64| hash(Table(2), format!("user/{key}").as_bytes());
            let mut filter = Filter::for_keys(keys as usize);
            (0..keys).for_each(|key| filter.insert(of(key)));
            assert!((0..keys).all(|key| filter.may_have(of(key))));
            let others = (keys..2 * keys).filter(|key| filter.may_have(of(*key))).count();
            let most = if keys < 100_000 { keys / 16 } else { keys / 40 };
            assert!(keys < 100 || others < most as usize, "{others} of {keys}");
        }
    }

    #[test]
    fn a_hash_depends_on_table_length_and_every_byte() {
        let key = [7; 20];
        let mut hashes =
            vec![hash(Table(1), &key), hash(Table(2), &key), hash(Table(1), &key[1..])];
        for at in 0..key.len() {
            let mut other = key;
            other[at] = 8;
            hashes.push(hash(Table(1), &other));
        }
        let all = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), all);
    }
}
