//! [`Memtable`]: the changes of records of the log, in memory; [`Layers`]: memtables over LMDB.
//!
//! ```text
//! chunks    │ put a=1, put b=1 │ put a=2 │ delete b │ …            the encoded changes
//!               ▲        ▲         ▲          ▲
//! entries   │   0    │   1    │    2    │     3    │ …            of one table
//!               │ newest           │
//!               ├─────────────────▶│                               0 is the node of a, 1 that of b
//!               ◀──── older ───────┘
//! index     hash of a ▶ 0, hash of b ▶ 1                           (index.rs)
//! order     0 (a), 1 (b)                                           (order.rs), walked by walk.rs
//! ```
//!
//! 1. One thread adds; any number of threads read at once and never block it. An entry is complete
//!    before it can be reached: the tag of the index and the node's `newest` are stored with
//!    `Release`.
//! 2. Each change has a position, and positions ascend along an entry's chain from old to new. A
//!    reader passes over changes that are newer than its snapshot.
//! 3. A change is stored once, in a chunk of its record; nothing is copied or allocated for it.
//! 4. Positions of different memtables are disjoint: all of a newer one are above all of an older
//!    one.

pub(crate) mod change;
mod index;
mod order;
mod walk;

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use foldhash::quality::RandomState;

use crate::memtable::change::{Change, Operation};
use crate::table::Table;
use index::Index;
use order::{Order, Run, Text};
pub(crate) use walk::Walk;

const NONE: u32 = u32::MAX;

const ENTRY_BYTES: usize = size_of::<Entry>() + size_of::<u64>();

/// Number of bytes of memory of a chunk without its changes, with its flag.
const CHUNK_BYTES: usize = size_of::<Box<[u8]>>() + size_of::<u64>();

const NODE_BYTES: usize = size_of::<(u64, u32)>();

/// Number of bytes of memory of a change, besides its encoded bytes, at least.
pub(crate) const CHANGE_BYTES_MIN: u64 = ENTRY_BYTES as u64;

/// Number of bytes of memory of a change of a key without others, besides its encoded bytes: with its node, and
/// its slots in an index that was made for as many keys, at most.
pub(crate) const CHANGE_BYTES: usize = ENTRY_BYTES + NODE_BYTES + 20;

/// The secret of the hashes of this process: keys that collide cannot be chosen from outside.
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// The changes of records, by table and key; see the file's head.
pub(crate) struct Memtable {
    chunks: boxcar::Vec<Box<[u8]>>,
    parts: Box<[OnceLock<Box<Part>>]>,
    expected: usize,
    last: AtomicU64,
    changes: AtomicUsize,
    bytes: AtomicUsize,
    is_tiresome: AtomicBool,
}

struct Part {
    /// The changes of keys, in the order of their positions.
    entries: boxcar::Vec<Entry>,
    /// The nodes by the hashes of their sort keys.
    index: Index,
    order: Order,
    /// Positions of the changes that clear the table, ascending.
    clears: boxcar::Vec<u64>,
    /// Whether any key is deleted with all its values.
    has_resets: AtomicBool,
    /// Number of changes that delete a key of one value.
    deletions: AtomicUsize,
}

/// A change of a key. The first change of a sort key is its node.
struct Entry {
    position: u64,
    chunk: u32,
    offset: u32,
    /// Id of the change of this sort key before; `NONE` for a node.
    older: u32,
    /// Id of the newest change of the sort key; only the node's is kept up to date.
    newest: AtomicU32,
}

/// Memtables over what LMDB has, and the positions that count.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(crate) memtables: Arc<[Arc<Memtable>]>,
    /// Position up to which LMDB has all changes.
    pub(crate) after: u64,
    pub(crate) upto: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'l> {
    /// The stored bytes of the value.
    Value(&'l [u8]),
    Deleted,
    /// There is no change of the key.
    Unchanged,
}

impl Memtable {
    /// Creates an empty memtable for tables with numbers below `tables`, and for about this many
    /// keys in each table that gets changes.
    pub(crate) fn new(tables: usize, expected: usize) -> Memtable {
        Memtable {
            chunks: boxcar::Vec::new(),
            parts: std::iter::repeat_with(OnceLock::new).take(tables).collect(),
            expected,
            last: AtomicU64::new(0),
            changes: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_tiresome: AtomicBool::new(false),
        }
    }

    /// Adds the encoded changes of all chunks, one after another; the first change has position `first`.
    pub(crate) fn add_all(&self, first: u64, chunks: impl IntoIterator<Item = Box<[u8]>>) {
        chunks.into_iter().fold(first, |first, chunk| self.add(first, chunk));
    }

    /// Adds the encoded changes of a chunk in order; the first has position `first`. Returns the position
    /// after the last one.
    ///
    /// Changes of a table whose number is too large are left out: a process that reads has opened no such
    /// table. Only one thread adds. Readers see the changes once their snapshots reach up to the
    /// positions.
    ///
    /// # Panics
    ///
    /// Panics if there are more than `u32::MAX` chunks or changes of a table, or if the chunk is
    /// longer than `u32::MAX` bytes.
    pub(crate) fn add(&self, first: u64, chunk: Box<[u8]>) -> u64 {
        debug_assert!(first > self.last());
        let length = chunk.len();
        let chunk = self.chunks.push(chunk);
        let mut bytes = CHUNK_BYTES + length;
        let mut rest = &*self.chunks[chunk];
        let mut position = first;
        loop {
            let offset = length - rest.len();
            let Some(change) = Change::take(&mut rest) else { break };
            if let Some(part) = self.parts.get(change.table.0 as usize) {
                let part = part.get_or_init(|| {
                    bytes += size_of::<Part>();
                    Box::new(Part::new(self.expected))
                });
                bytes += part.add(self, position, (narrow(chunk), narrow(offset)), &change);
            }
            position += 1;
        }
        debug_assert!(rest.is_empty(), "the changes are malformed");
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.changes.fetch_add((position - first) as usize, Ordering::Relaxed);
        if position > first {
            self.last.store(position - 1, Ordering::Release);
        }
        position
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn changes(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    /// Position of the last change; 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = Table> {
        let numbers = (0..).zip(&self.parts);
        numbers.filter(|(_, part)| part.get().is_some()).map(|(number, _)| Table(number))
    }

    /// Whether a reader had to pass over very many changes at once; a checkpoint would remove them.
    pub(crate) fn is_tiresome(&self) -> bool {
        self.is_tiresome.load(Ordering::Relaxed)
    }

    /// Number of changes of a table that delete a key of one value.
    pub(crate) fn deletions(&self, table: Table) -> usize {
        self.part(table).map_or(0, |part| part.deletions.load(Ordering::Relaxed))
    }

    fn part(&self, table: Table) -> Option<&Part> {
        self.parts.get(table.0 as usize)?.get().map(Box::as_ref)
    }

    fn change(&self, entry: &Entry) -> Change<'_> {
        decoded(self.encoded(entry))
    }

    /// Returns bytes that begin with the change of an entry.
    fn encoded(&self, entry: &Entry) -> &[u8] {
        &self.chunks[entry.chunk as usize][entry.offset as usize..]
    }
}

fn decoded(mut bytes: &[u8]) -> Change<'_> {
    match Change::take(&mut bytes) {
        Some(change) => change,
        None => unreachable!("the offset is that of a change"),
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Memtable");
        shown.field("last", &self.last()).field("changes", &self.changes()).finish_non_exhaustive()
    }
}

impl Part {
    fn new(expected: usize) -> Part {
        Part {
            entries: boxcar::Vec::new(),
            index: Index::new(expected),
            order: Order::new(),
            clears: boxcar::Vec::new(),
            has_resets: AtomicBool::new(false),
            deletions: AtomicUsize::new(0),
        }
    }

    /// Adds a change, which is at an offset of a chunk. Returns the number of bytes of memory that
    /// this took.
    fn add(
        &self,
        memtable: &Memtable,
        position: u64,
        (chunk, offset): (u32, u32),
        change: &Change<'_>,
    ) -> usize {
        if change.operation == Operation::Clear {
            self.clears.push(position);
            return 2 * size_of::<u64>();
        }
        match change.operation {
            Operation::DeleteAll => self.has_resets.store(true, Ordering::Relaxed),
            Operation::Delete => {
                self.deletions.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        let (_, key, value) = change.sort_key();
        let hash = hash(key, value);
        let node = self.find(memtable, hash, (key, value));
        let (older, newest) = match node {
            Some(node) => (self.entry(node).newest.load(Ordering::Relaxed), NONE),
            None => (NONE, narrow(self.entries.count())),
        };
        let newest = AtomicU32::new(newest);
        let id = self.entries.push(Entry { position, chunk, offset, older, newest });
        ENTRY_BYTES
            + match node {
                Some(node) => {
                    self.entry(node).newest.store(narrow(id), Ordering::Release);
                    0
                }
                None => self.index.insert(hash, narrow(id)),
            }
    }

    /// Returns the node of a sort key, given its hash.
    fn find(&self, memtable: &Memtable, hash: u64, text: Text<'_>) -> Option<u32> {
        self.index.find(hash, |node| self.text(memtable, node) == text)
    }

    fn entry(&self, id: u32) -> &Entry {
        &self.entries[id as usize]
    }

    /// Returns the key and the value of an entry's sort key.
    fn text<'m>(&self, memtable: &'m Memtable, id: u32) -> Text<'m> {
        let (_, key, value) = memtable.change(self.entry(id)).sort_key();
        (key, value)
    }

    /// Returns the newest change of a node's sort key up to a position. A reader of an old snapshot
    /// passes over each newer change of the key.
    fn visible(&self, node: &Entry, upto: u64) -> Option<&Entry> {
        let mut entry = self.entry(node.newest.load(Ordering::Acquire));
        while entry.position > upto {
            if entry.older == NONE {
                return None;
            }
            entry = self.entry(entry.older);
        }
        Some(entry)
    }

    /// Returns the position of the last change up to a position that clears the table.
    fn cleared(&self, upto: u64) -> Option<u64> {
        let newest_first = (0..self.clears.count()).rev();
        newest_first.map(|index| self.clears[index]).find(|position| *position <= upto)
    }

    fn is_empty(&self, upto: u64) -> bool {
        self.entries.get(0).is_none_or(|first| first.position > upto)
    }

    fn runs(&self, memtable: &Memtable, upto: u64) -> Arc<[Arc<Run>]> {
        let scan = |start: usize| {
            // In this order: all changes up to `last` are among the entries.
            let last = memtable.last();
            let count = self.entries.count();
            let nodes: Vec<u32> = self.nodes(start..count).collect();
            memtable.bytes.fetch_add(nodes.len() * NODE_BYTES, Ordering::Relaxed);
            (nodes, count, last)
        };
        self.order.runs(upto.min(memtable.last()), scan, |node| self.text(memtable, node))
    }

    /// Returns the nodes among some entries.
    fn nodes(&self, entries: Range<usize>) -> impl Iterator<Item = u32> {
        let ids = narrow(entries.start)..narrow(entries.end);
        ids.filter(|id| self.entry(*id).older == NONE)
    }

    /// Returns a run of the nodes of a memtable that does not change any more, without those whose last change deletes
    /// a key other than these. It reads entries and changes in the order in which they were added.
    fn run_without_deleted<'k>(
        &self,
        memtable: &Memtable,
        but: impl Iterator<Item = &'k [u8]>,
    ) -> Run {
        let but: HashSet<u32> =
            but.filter_map(|key| self.find(memtable, hash(key, &[]), (key, &[]))).collect();
        let is_deleted = |node: u32| {
            let newest = self.entry(self.entry(node).newest.load(Ordering::Acquire));
            memtable.change(newest).operation == Operation::Delete
        };
        let nodes = self.nodes(0..self.entries.count());
        let nodes = nodes.filter(|node| !is_deleted(*node) || but.contains(node)).collect();
        Run::sort(nodes, &|node| self.text(memtable, node))
    }
}

impl Layers {
    /// Returns the layers with another memtable over them, all of whose changes count.
    pub(crate) fn under(&self, newest: Arc<Memtable>) -> Layers {
        let memtables = std::iter::once(newest).chain(self.memtables.iter().cloned()).collect();
        Layers { memtables, after: self.after, upto: u64::MAX }
    }

    /// Searches for a key of a table with one value under each key.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Found<'_> {
        let cleared = self.cleared(table);
        match self.find(table, key) {
            Some((position, change)) if cleared.is_none_or(|cleared| position > cleared) => {
                let puts = change.operation.puts();
                if puts { Found::Value(change.value) } else { Found::Deleted }
            }
            _ if cleared.is_some() => Found::Deleted,
            _ => Found::Unchanged,
        }
    }

    pub(crate) fn walk(&self, table: Table) -> Walk<'_> {
        Walk::new(self, table)
    }

    fn find(&self, table: Table, key: &[u8]) -> Option<(u64, Change<'_>)> {
        let mut hashed = None;
        self.parts(table).find_map(|(memtable, part)| {
            let hash = *hashed.get_or_insert_with(|| hash(key, &[]));
            let node = part.find(memtable, hash, (key, &[]))?;
            let entry = part.visible(part.entry(node), self.upto)?;
            (entry.position > self.after).then(|| (entry.position, memtable.change(entry)))
        })
    }

    /// Returns the position of the last change that clears the table.
    fn cleared(&self, table: Table) -> Option<u64> {
        let last = self.parts(table).find_map(|(_, part)| part.cleared(self.upto));
        last.filter(|position| *position > self.after)
    }

    fn parts(&self, table: Table) -> impl Iterator<Item = (&Memtable, &Part)> {
        let memtables = self.memtables.iter().map(Arc::as_ref);
        memtables
            .filter(|memtable| memtable.last() > self.after)
            .filter_map(move |memtable| Some((memtable, memtable.part(table)?)))
    }
}

fn hash(key: &[u8], value: &[u8]) -> u64 {
    SECRET.hash_one((key, value))
}

/// Converts an id or an offset, which the bounds of a memtable's size keep small.
fn narrow(number: usize) -> u32 {
    match u32::try_from(number) {
        Ok(number) if number != NONE => number,
        _ => panic!("a memtable has more than 32 bits can number"),
    }
}

#[cfg(test)]
pub(crate) fn encoded(changes: &[Change<'_>]) -> Box<[u8]> {
    let mut bytes = Vec::new();
    for Change { operation, table, key, value } in changes {
        change::write(&mut bytes, *operation, *table, key, [value, &[]]);
    }
    bytes.into()
}

#[cfg(test)]
impl Layers {
    pub(crate) fn of(memtable: Memtable) -> Layers {
        Layers { upto: memtable.last(), memtables: Arc::new([Arc::new(memtable)]), after: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::thread;
    use std::time::Instant;

    use super::*;

    const TABLE: Table = Table(2);

    fn put<'c>(key: &'c [u8], value: &'c [u8]) -> Change<'c> {
        Change { operation: Operation::Put, table: TABLE, key, value }
    }

    fn keys(layers: &Layers) -> Vec<u32> {
        let mut walk = layers.walk(TABLE);
        walk.go_first();
        let keys = std::iter::from_fn(|| walk.step()).map(|change| change.key.to_vec());
        keys.map(|key| u32::from_be_bytes(key.try_into().unwrap())).collect()
    }

    #[test]
    fn many_additions_with_reads_between_them_are_few_runs() {
        const KEYS: u32 = 1 << 12;
        let memtable = Arc::new(Memtable::new(3, 0));
        let mut layers = Layers { memtables: Arc::new([Arc::clone(&memtable)]), after: 0, upto: 0 };
        for number in 0..KEYS {
            // Not in order.
            let key = (number ^ 0x55).to_be_bytes();
            memtable.add(u64::from(number) + 1, encoded(&[put(&key, &key)]));
            assert_eq!(layers.get(TABLE, &key), Found::Unchanged);
            layers.upto = memtable.last();
            assert_eq!(layers.get(TABLE, &key), Found::Value(&key));
            layers.walk(TABLE).go_first();
        }
        let runs = memtable.part(TABLE).unwrap().runs(&memtable, layers.upto).len();
        assert!(runs < 10, "{runs}");
        let keys = keys(&layers);
        assert!(keys.len() == KEYS as usize && keys.is_sorted());
        for number in [0, 1, KEYS - 1] {
            let key = number.to_be_bytes();
            assert_eq!(layers.get(TABLE, &key), Found::Value(&key));
        }
        assert_eq!(layers.get(TABLE, &(KEYS + 500).to_be_bytes()), Found::Unchanged);
        assert_eq!(layers.get(Table(1), &[0]), Found::Unchanged);
        assert_eq!(layers.get(Table(3), &[0]), Found::Unchanged);
        assert_eq!(memtable.changes(), KEYS as usize);
        assert_eq!(memtable.tables().collect::<Vec<_>>(), [TABLE]);
        assert!(memtable.bytes() > KEYS as usize * (ENTRY_BYTES + CHUNK_BYTES + NODE_BYTES + 19));
    }

    #[test]
    fn the_last_change_at_or_before_the_position_counts() {
        let memtable = Memtable::new(3, 0);
        let delete = |operation, key| Change { operation, table: TABLE, key, value: b"" };
        memtable.add(1, encoded(&[put(b"a", b"1"), put(b"b", b"2")]));
        memtable.add(3, encoded(&[put(b"a", b"3"), delete(Operation::Delete, b"b")]));
        memtable.add(5, encoded(&[delete(Operation::Clear, b""), put(b"b", b"6")]));
        let mut layers = Layers::of(memtable);
        let mut get = |after, upto| {
            (layers.after, layers.upto) = (after, upto);
            [b"a", b"b"].map(|key| match layers.get(TABLE, key) {
                Found::Value(value) => i64::from(value[0] - b'0'),
                Found::Deleted => -1,
                Found::Unchanged => 0,
            })
        };
        assert_eq!([get(0, 0), get(0, 1), get(0, 2)], [[0, 0], [1, 0], [1, 2]]);
        assert_eq!([get(0, 3), get(0, 4)], [[3, 2], [3, -1]]);
        assert_eq!([get(0, 5), get(0, 6)], [[-1, -1], [-1, 6]]);
        assert_eq!([get(2, 3), get(4, 4), get(5, 6)], [[3, 0], [0, 0], [0, 6]]);
    }

    #[test]
    fn readers_beside_the_writer_see_a_prefix_of_the_records() {
        const KEYS: u64 = 700;
        const RECORDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
        let memtable = Arc::new(Memtable::new(3, 0));
        // The record n changes the keys n and 3 n, modulo their number.
        let changed = |record: u64| [record % KEYS, 3 * record % KEYS];
        let is_put = |record: u64| !record.is_multiple_of(5);
        let reader = |seed: u64| {
            let mut expected = vec![None; KEYS as usize];
            let (mut seen, mut walks) = (0, 0);
            while seen < RECORDS {
                let upto = memtable.last();
                assert_eq!(upto % 2, 0);
                for record in seen..upto / 2 {
                    for key in changed(record) {
                        expected[key as usize] = Some(record);
                    }
                }
                seen = upto / 2;
                let memtables = Arc::new([Arc::clone(&memtable)]);
                let layers = Layers { memtables, after: 0, upto };
                let mut walk = layers.walk(TABLE);
                walk.go_first();
                let (mut found, mut last) = (vec![None; KEYS as usize], None);
                while let Some(change) = walk.step() {
                    let key = u64::from_be_bytes(change.key.try_into().unwrap());
                    assert!(last < Some(key), "the walk is in order");
                    last = Some(key);
                    let (of, value) = (key as usize, change.value);
                    let record = expected[of].filter(|record| is_put(*record));
                    let value = value.try_into().ok().map(u64::from_be_bytes);
                    assert_eq!(value, record);
                    found[of] = expected[of];
                }
                assert_eq!(found, expected);
                for (key, record) in (0..).zip(&expected).skip(seed as usize).step_by(7) {
                    let bytes = record.map(u64::to_be_bytes).unwrap_or_default();
                    let expected = match record {
                        None => Found::Unchanged,
                        Some(record) if is_put(*record) => Found::Value(&bytes),
                        Some(_) => Found::Deleted,
                    };
                    assert_eq!(layers.get(TABLE, &u64::to_be_bytes(key)), expected);
                }
                walks += 1;
            }
            assert!(walks > 1);
        };
        thread::scope(|scope| {
            (0..3).for_each(|seed| drop(scope.spawn(move || reader(seed))));
            for record in 0..RECORDS {
                let (keys, value) = (changed(record).map(u64::to_be_bytes), record.to_be_bytes());
                let changes = keys.each_ref().map(|key| match is_put(record) {
                    true => put(key, &value),
                    false => Change { operation: Operation::Delete, value: b"", ..put(key, b"") },
                });
                memtable.add(2 * record + 1, encoded(&changes));
            }
        });
    }

    /// Prints nanoseconds for each operation; run it in release mode.
    #[test]
    #[ignore = "a measurement"]
    fn bench() {
        const ROUNDS: u32 = 100_000;
        let record = encoded(&[put(b"a", b"1"), put(b"b", b"2"), put(b"c", b"3")]);
        let start = Instant::now();
        for _ in 0..ROUNDS {
            let memtable = Memtable::new(8, 0);
            memtable.add(1, record.clone());
            let layers = Layers::of(memtable);
            assert!(black_box(layers.get(TABLE, b"b")) != Found::Unchanged);
        }
        println!("a memtable of three puts, with a get: {:?}", start.elapsed() / ROUNDS);
        for (name, prefix) in [("random", ""), ("20 bytes shared", "twenty/bytes/shared/")] {
            for (count, expected) in
                [(10_000, 0), (100_000, 0), (1_000_000, 0), (1_000_000, 1_000_000)]
            {
                measure(name, prefix, count, expected);
            }
        }
    }

    fn measure(name: &str, prefix: &str, count: usize, expected: usize) {
        let mut random = fastrand::Rng::with_seed(7);
        let mut key = || [prefix.as_bytes(), &random.u64(..).to_be_bytes(), b"12345678"].concat();
        let width = key().len();
        let mut keys = || (0..count).flat_map(|_| key()).collect::<Vec<u8>>();
        let (keys, absent) = (keys(), keys());
        let encode = || -> Vec<Box<[u8]>> {
            let records = keys.chunks(64 * width).map(|keys| {
                encoded(&keys.chunks(width).map(|key| put(key, &[7; 100])).collect::<Vec<_>>())
            });
            records.collect()
        };
        let records = encode();
        let per = |since: Instant| since.elapsed().as_nanos() as usize / count;

        let start = Instant::now();
        let memtable = Memtable::new(3, expected);
        for record in records {
            memtable.add(memtable.last() + 1, record);
        }
        let put = per(start);
        let layers = Layers::of(memtable);
        // Another order than that of the puts: the factor is prime to the numbers of keys.
        let shuffled = || (0..count).map(|at| &keys[at * 7_919 % count * width..][..width]);
        let search = |key| usize::from(black_box(layers.get(TABLE, key)) != Found::Unchanged);
        let start = Instant::now();
        assert_eq!(shuffled().map(search).sum::<usize>(), count);
        let get = per(start);
        let start = Instant::now();
        assert_eq!(absent.chunks(width).map(search).sum::<usize>(), 0);
        let absent = per(start);
        let start = Instant::now();
        let mut walk = layers.walk(TABLE);
        walk.go_first();
        let sort = per(start);
        let start = Instant::now();
        assert_eq!(std::iter::from_fn(|| walk.step()).count(), count);
        let step = per(start);
        let start = Instant::now();
        shuffled().for_each(|key| walk.seek(key, b"", true));
        let seek = per(start);
        let mib = layers.memtables[0].bytes() >> 20;
        let overwritten = encode();
        let start = Instant::now();
        for record in overwritten {
            layers.memtables[0].add(layers.memtables[0].last() + 1, record);
        }
        let again = per(start);
        println!(
            "{name:16} {count:8} keys, expected {expected:8}: put {put} again {again} get {get} \
             absent {absent} sort {sort} step {step} seek {seek} ns, {mib} MiB"
        );
    }
}
