//! [`Order`]: the nodes of a table in the order of their sort keys, as sorted runs.
//!
//! ```text
//! nodes by id   │ 0 1 2 3 4 5 6 7 8 9 10 11 │ 12 13 14 │ 15 …      added by the writer
//!                 └───────── run ─────────┘   └─ run ─┘    not covered yet
//! run           prefix "user/"   [ (head "ada", 7) (head "bob", 2) (head "eve", 9) … ]
//! ```
//!
//! 1. The first reader that needs order makes a run of the nodes since the last run; the writer
//!    never sorts.
//! 2. A run that is not far smaller than the one before is merged with it, so the runs are few and
//!    a node is copied a few times only.
//! 3. Runs never change, so a reader goes on with its runs while others make new ones.
//! 4. The *head* of a key is its eight bytes after the common prefix. Heads decide almost every
//!    comparison: keys are far away in memory.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Ratio of the sizes of a run and the next up to which they are merged.
const MERGED: usize = 4;

const FEW: usize = 16;

/// Key and value by which a node is sorted.
pub(super) type Text<'t> = (&'t [u8], &'t [u8]);

/// The id of a node, after the head of its key.
type Item = (u64, u32);

pub(super) struct Run {
    /// Length of the prefix that all keys have in common.
    prefix: usize,
    items: Box<[Item]>,
}

/// The runs of a table, oldest first; see the file's head.
pub(super) struct Order {
    current: RwLock<Runs>,
    /// Number of entries that the runs have taken note of; locked to make runs.
    scanned: Mutex<usize>,
}

#[derive(Clone)]
pub(super) struct Runs {
    covered: u64,
    list: Arc<[Arc<Run>]>,
}

impl Order {
    pub(super) fn new() -> Order {
        let current = RwLock::new(Runs { covered: 0, list: Arc::default() });
        Order { current, scanned: Mutex::new(0) }
    }

    /// Returns runs that have all nodes up to a position.
    ///
    /// `scan` returns the nodes among the entries from this id on, the number of all entries, and
    /// the position up to which these are all.
    pub(super) fn runs<'t>(
        &self,
        upto: u64,
        scan: impl FnOnce(usize) -> (Vec<u32>, usize, u64),
        text: impl Fn(u32) -> Text<'t>,
    ) -> Arc<[Arc<Run>]> {
        if let Some(list) = self.covering(upto) {
            return list;
        }
        let mut scanned = self.scanned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = self.covering(upto) {
            return list;
        }
        let (nodes, entries, covered) = scan(*scanned);
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let list = if nodes.is_empty() { current.list } else { pushed(&current.list, nodes, text) };
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Runs { covered, list: Arc::clone(&list) };
        *scanned = entries;
        list
    }

    fn covering(&self, upto: u64) -> Option<Arc<[Arc<Run>]>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        (current.covered >= upto).then(|| Arc::clone(&current.list))
    }
}

/// Adds a run of nodes to runs, merged with those that are not far larger.
fn pushed<'t>(
    runs: &[Arc<Run>],
    nodes: Vec<u32>,
    text: impl Fn(u32) -> Text<'t>,
) -> Arc<[Arc<Run>]> {
    let mut newest = Run::sort(nodes, &text);
    let mut kept = runs;
    while let Some((last, rest)) = kept.split_last()
        && newest.len() >= last.len() / MERGED
    {
        newest = Run::merge(last, &newest, &text);
        kept = rest;
    }
    kept.iter().cloned().chain([Arc::new(newest)]).collect()
}

impl Run {
    pub(super) fn sort<'t>(nodes: Vec<u32>, text: &impl Fn(u32) -> Text<'t>) -> Run {
        let mut items: Box<[Item]> = nodes.into_iter().map(|id| (0, id)).collect();
        let prefix = sort_by_field(&mut items, text, |(key, _)| key);
        Run { prefix, items }
    }

    fn merge<'t>(one: &Run, other: &Run, text: &impl Fn(u32) -> Text<'t>) -> Run {
        let (Some(first), Some(second)) = (one.items.first(), other.items.first()) else {
            let larger = if one.items.is_empty() { other } else { one };
            return Run { prefix: larger.prefix, items: larger.items.clone() };
        };
        let (first, second) = (text(first.1).0, text(second.1).0);
        let prefix = common(first, second).min(one.prefix).min(other.prefix);
        let mut items = Vec::with_capacity(one.len() + other.len());
        items.extend(one.items_after(prefix, first));
        items.extend(other.items_after(prefix, second));
        // The sort finds the two sorted pieces, and only merges them.
        items.sort_by(|one, other| compare(one, other, text));
        Run { prefix, items: items.into() }
    }

    /// Returns the items with heads after a shorter prefix, given one of the keys: the bytes by
    /// which the prefix gets shorter move into the heads.
    fn items_after(&self, prefix: usize, key: &[u8]) -> impl Iterator<Item = Item> {
        let moved = self.prefix - prefix;
        let start = head(&key[prefix..self.prefix]);
        self.items.iter().map(move |(head, id)| match 8 * moved as u32 {
            bits @ 0..64 => (start | (head >> bits), *id),
            _ => (start, *id),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn node(&self, index: usize) -> u32 {
        self.items[index].1
    }

    /// Returns the index of the first node that is not below this key and value.
    pub(super) fn seek<'t>(&self, sought: Text<'_>, text: impl Fn(u32) -> Text<'t>) -> usize {
        let Some((_, first)) = self.items.first() else { return 0 };
        let prefix = &text(*first).0[..self.prefix];
        let start = &sought.0[..sought.0.len().min(self.prefix)];
        if start != prefix {
            return if start < prefix { 0 } else { self.len() };
        }
        let sought_head = head(&sought.0[self.prefix..]);
        self.items.partition_point(|(head, id)| match head.cmp(&sought_head) {
            Ordering::Equal => text(*id) < sought,
            order => order.is_lt(),
        })
    }
}

/// Sorts by a field of the text, the key or the value, and returns the length of the field's common
/// prefix, after which the heads are.
///
/// Items whose heads are equal are sorted by heads further back; keys in clusters of long prefixes
/// are so read once for each level of prefixes, and not once for each comparison.
fn sort_by_field<'t>(
    items: &mut [Item],
    text: &impl Fn(u32) -> Text<'t>,
    field: fn(Text<'t>) -> &'t [u8],
) -> usize {
    let Some((_, first)) = items.first() else { return 0 };
    let first = field(text(*first));
    let (mut prefix, mut longest) = (first.len(), 0);
    for (_, id) in items.iter() {
        let bytes = field(text(*id));
        prefix = common(&first[..prefix], bytes);
        longest = longest.max(bytes.len());
    }
    for item in items.iter_mut() {
        item.0 = head(&field(text(item.1))[prefix..]);
    }
    items.sort_unstable();
    let all = items.len();
    for group in items.chunk_by_mut(|one, other| one.0 == other.0) {
        let head = group[0].0;
        if group.len() <= FEW {
            group.sort_unstable_by(|one, other| text(one.1).cmp(&text(other.1)));
        } else if longest == prefix {
            // The fields are all equal.
            sort_by_field(group, text, |(_, value)| value);
        } else if group.len() < all {
            sort_by_field(group, text, field);
        } else {
            // The fields differ by zeros at their ends.
            group.sort_unstable_by(|one, other| text(one.1).cmp(&text(other.1)));
        }
        group.iter_mut().for_each(|item| item.0 = head);
    }
    prefix
}

fn compare<'t>(one: &Item, other: &Item, text: &impl Fn(u32) -> Text<'t>) -> Ordering {
    one.0.cmp(&other.0).then_with(|| text(one.1).cmp(&text(other.1)))
}

fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Returns the first eight bytes as a number of the same order; of fewer bytes, as if zeros
/// followed.
fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Key = (Vec<u8>, Vec<u8>);

    fn key(random: &mut fastrand::Rng) -> Key {
        let prefixes = ["", "k", "common/prefix/", "common/prefix/of many/", "z"];
        let prefix = random.choice(prefixes).unwrap().as_bytes();
        let mut bytes = |most| -> Vec<u8> {
            let length = random.usize(0..=most);
            (0..length).map(|_| random.choice([0, 1, b'a', 0xff]).unwrap()).collect()
        };
        ([prefix, &bytes(5)].concat(), bytes(3))
    }

    #[test]
    fn runs_are_sorted_and_searched_as_their_texts_are() {
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..300 {
            let mut keys: Vec<Key> = (0..random.usize(1..600)).map(|_| key(&mut random)).collect();
            if round % 3 == 0 {
                // A key with many values, and keys with a long prefix.
                let start = if round % 2 == 0 { "the only key" } else { "a long prefix/" };
                keys.iter_mut().for_each(|(key, _)| *key = start.into());
                if round % 2 == 1 {
                    keys.iter_mut().for_each(|(key, value)| key.append(value));
                }
            }
            keys.sort_unstable();
            keys.dedup();
            random.shuffle(&mut keys);
            let text = |id: u32| (&*keys[id as usize].0, &*keys[id as usize].1);
            let mut runs: Vec<Arc<Run>> = Vec::new();
            let mut start = 0;
            while start < keys.len() {
                let end = (start + random.usize(1..200)).min(keys.len());
                runs = pushed(&runs, (start as u32..end as u32).collect(), text).to_vec();
                start = end;
            }
            assert_eq!(runs.iter().map(|run| run.len()).sum::<usize>(), keys.len());
            for run in &runs {
                let texts: Vec<_> = (0..run.len()).map(|index| text(run.node(index))).collect();
                assert!(texts.is_sorted_by(|one, other| one < other));
                let heads =
                    run.items.iter().map(|(one, id)| (*one, head(&text(*id).0[run.prefix..])));
                heads.for_each(|(one, expected)| assert_eq!(one, expected));
                for sought in keys.iter().cloned().chain((0..20).map(|_| key(&mut random))) {
                    let sought = (&*sought.0, &*sought.1);
                    let below = texts.partition_point(|text| *text < sought);
                    assert_eq!(run.seek(sought, text), below);
                }
            }
        }
    }

    #[test]
    fn keys_in_clusters_are_not_compared_as_a_whole() {
        // Four clusters: the heads of all keys of a cluster are equal.
        let keys: Vec<String> = (0..40_000u64)
            .map(|n| {
                format!("{}-a-long-prefix-{:016x}", n % 4, n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            })
            .collect();
        let reads = std::cell::Cell::new(0);
        let text = |id: u32| {
            reads.set(reads.get() + 1);
            (keys[id as usize].as_bytes(), &b""[..])
        };
        let run = Run::sort((0..keys.len() as u32).collect(), &text);
        assert!(reads.get() < 5 * keys.len(), "{}", reads.get());
        assert!((1..run.len()).all(|at| text(run.node(at - 1)) < text(run.node(at))));
    }
}
