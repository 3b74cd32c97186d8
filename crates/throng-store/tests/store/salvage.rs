//! Salvage of damaged stores: the new store has everything outside of the damage and nothing that was never
//! written.
//!
//! `THRONG_SALVAGE_STRIDE` is the distance of damaged bytes in `a_salvage_loses_…`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use throng_store::{
    Batch, Bytes, DatabaseOptions, Durability, Loss, OpenError, SalvageError, Salvaged, Store,
};

use super::damage::{fill, keep, kill};
use crate::{db, directory_in_memory, number_or};

/// The database, the key, the value.
type Entry = (Option<String>, Vec<u8>, Vec<u8>);

/// Everything in a store.
fn content(store: &Store) -> BTreeSet<Entry> {
    let snapshot = store.snapshot().unwrap();
    let mut all: BTreeSet<Entry> =
        super::entries(store).into_iter().map(|(key, value)| (None, key, value)).collect();
    for stat in store.stat_databases().unwrap() {
        let Some(name) = stat.name else { continue };
        let database = store.database_with::<Bytes, Bytes>(&name, &stat.options).unwrap();
        all.extend(database.range(&snapshot, ..).map(|entry| {
            let (key, value) = entry.unwrap();
            (Some(name.clone()), key.to_vec(), value.to_vec())
        }));
    }
    all
}

/// Salvages a store; returns the outcome and the content of the new store, which is sound.
fn salvaged(from: &Path) -> (Salvaged, BTreeSet<Entry>) {
    let to = directory_in_memory();
    let outcome = Store::salvage(from, to.path()).unwrap();
    let store = Store::options().check(true).open(to.path()).unwrap();
    let found = content(&store);
    assert_eq!(store.snapshot().unwrap().commit(), outcome.position);
    let entries: u64 = outcome.databases.iter().map(|database| database.entries).sum();
    assert_eq!(entries, found.len() as u64);
    // The new store can be written.
    db(&store).put(b"later", b"1").wait().unwrap();
    (outcome, found)
}

#[track_caller]
fn assert_whole(from: &Path, expected: &BTreeSet<Entry>) -> Salvaged {
    let before = bytes(from);
    let (outcome, found) = salvaged(from);
    assert_eq!((&outcome.losses[..], outcome.losses_more), (&[][..], 0));
    assert!(outcome.is_exact && found == *expected);
    assert!(bytes(from) == before, "only read");
    outcome
}

/// The bytes of all files below a directory.
fn bytes(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(bytes(&path));
        } else {
            all.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    all.sort();
    all
}

/// A store with every kind of database and pages of all kinds.
struct Filled {
    directory: TempDir,
    /// Everything that was ever written.
    written: BTreeSet<Entry>,
    expected: BTreeSet<Entry>,
}

impl Filled {
    fn new() -> Filled {
        let directory = directory_in_memory();
        fill(directory.path());
        // `fill` has deleted some of its keys.
        let bytes =
            |number: u32| if number.is_multiple_of(40) { 9_000 } else { number as usize % 90 };
        let entry = |number: u32| {
            let key = format!("key {:03}", number * 7 % 200).into_bytes();
            (None, key, vec![number as u8; bytes(number)])
        };
        let mut written: BTreeSet<Entry> = (0..200).map(entry).collect();
        let store = Store::open(directory.path()).unwrap();
        plain_of(&store);
        store.database::<Bytes, Bytes>("empty").unwrap();
        drop(store);
        // The data file gets pages of earlier times.
        for round in 0..4u8 {
            let store = Store::open(directory.path()).unwrap();
            let batch = (0..60u8).fold(Batch::new(), |batch, number| {
                let long = if number % 20 == 0 { 9_000 } else { 100 };
                let batch =
                    batch.put(&db(&store), &[b'k', number], &vec![round; 50 + usize::from(number)]);
                batch.put(&plain_of(&store), &[number, 1], &vec![number + round; long])
            });
            store.write(batch).wait().unwrap();
            written.extend(content(&store));
        }
        // The last commit has little more than the one before.
        let store = Store::open(directory.path()).unwrap();
        db(&store).put(LAST, b"value").wait().unwrap();
        let expected = content(&store);
        written.extend(expected.iter().cloned());
        Filled { directory, written, expected }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn data(&self) -> Vec<u8> {
        fs::read(self.path().join("data.mdb")).unwrap()
    }

    /// Removes the log, without which a lost page cannot be made up for by the commit before.
    fn without_log(self) -> Filled {
        fs::remove_dir_all(self.path().join("log")).unwrap();
        self
    }

    /// Salvages the store with another data file; `None` if nothing can be read. Asserts that each entry was
    /// written once, but for those of databases without checksums, whose number is returned; and that each
    /// missing entry is listed.
    fn salvage(&self, data: &[u8]) -> Option<Outcome> {
        fs::write(self.path().join("data.mdb"), data).unwrap();
        let to = directory_in_memory();
        let salvaged = match Store::salvage(self.path(), to.path()) {
            Ok(salvaged) => salvaged,
            Err(SalvageError::Nothing { .. }) => return None,
            Err(other) => panic!("{other}"),
        };
        let store = Store::options().check(true).open(to.path()).unwrap();
        let found = content(&store);
        let is_checked = |entry: &Entry| !matches!(entry.0.as_deref(), Some("tags" | "plain"));
        let invented: Vec<_> = found.difference(&self.written).collect();
        let first = invented.iter().find(|entry| is_checked(entry));
        assert_eq!(first, None, "{:?}", salvaged.losses);
        let missing: BTreeSet<_> = self.expected.difference(&found).cloned().collect();
        for entry in &missing {
            let is_listed = salvaged.losses.iter().any(|loss| covers(loss, entry));
            let is_listed = is_listed || !is_checked(entry) && !invented.is_empty();
            assert!(is_listed, "{:?} {:?}: {:?}", entry.0, entry.1, salvaged.losses);
        }
        if salvaged.is_exact {
            let is_there = |entry: &Entry| !is_checked(entry) || entry.1 == LAST;
            assert!(missing.iter().all(is_there), "{:?}", salvaged.losses);
        }
        Some(Outcome { missing, invented: invented.len(), losses: salvaged.losses })
    }
}

/// Key of the only entry that the commit before the last does not have.
const LAST: &[u8] = b"the last";
const PAGE_BYTES: usize = 4096;

#[derive(Debug)]
struct Outcome {
    missing: BTreeSet<Entry>,
    invented: usize,
    losses: Vec<Loss>,
}

impl Outcome {
    fn says(&self, word: &str) -> bool {
        self.losses.iter().any(|loss| loss.to_string().contains(word))
    }
}

fn plain_of(store: &Store) -> throng_store::Database<Bytes, Bytes> {
    let plain = DatabaseOptions::new().without_checksums();
    store.database_with("plain", &plain).unwrap()
}

/// Whether an entry may be among those that are lost.
fn covers(loss: &Loss, (name, key, _): &Entry) -> bool {
    match loss {
        Loss::Entries { database: None, .. } => true,
        Loss::Entries { database: Some(stored), from, to, .. } => {
            let own = if stored == "entries" { None } else { Some(stored[1..].to_owned()) };
            own == *name
                && match (from, to) {
                    // The damage may be in the key.
                    (Some(from), Some(to)) if from == to => from.len().abs_diff(key.len()) <= 1,
                    (from, to) => {
                        from.as_ref().is_none_or(|from| from <= key)
                            && to.as_ref().is_none_or(|to| key < to)
                    }
                }
        }
        // The commit before was taken.
        Loss::Changes { .. } | Loss::Unproved { .. } => key == LAST,
        _ => false,
    }
}

/// The content of a copy of a store, which is recovered.
fn recovered(directory: &Path) -> BTreeSet<Entry> {
    let copy = directory_in_memory();
    super::copy_files(directory, copy.path());
    content(&Store::open(copy.path()).unwrap())
}

#[test]
fn a_whole_store_is_salvaged_exactly() {
    let filled = Filled::new();
    let outcome = assert_whole(filled.path(), &filled.expected);
    assert_eq!(outcome.time, None);
    let kind = |options: &DatabaseOptions| (options.has_checksums(), options.has_duplicates());
    let kinds = outcome
        .databases
        .iter()
        .map(|database| (database.name.as_deref(), kind(&database.options)));
    let checked = (true, false);
    let expected = [
        (None, checked),
        (Some("named"), checked),
        (Some("tags"), (false, true)),
        (Some("plain"), (false, false)),
        (Some("empty"), checked),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    let empty = directory_in_memory();
    drop(Store::open(empty.path()).unwrap());
    assert_whole(empty.path(), &BTreeSet::new());
    // With changes that only the log has.
    for durability in [Durability::Durable, Durability::Volatile] {
        let killed = kill(durability);
        let expected = recovered(killed.directory.path());
        assert!(assert_whole(killed.directory.path(), &expected).time.is_some());
    }
}

/// The entries that are missing when a page is, and whether the page is a leaf.
fn missing_by_page(filled: &Filled, data: &[u8]) -> Vec<(BTreeSet<Entry>, bool)> {
    let page = |number: usize| {
        let range = number * PAGE_BYTES..(number + 1) * PAGE_BYTES;
        let mut damaged = data.to_vec();
        damaged[range.clone()].fill(0xA5);
        let mut outcome = filled.salvage(&damaged).unwrap();
        let bytes = &data[range];
        // Without checksums, the later pages of a long value may have any content.
        let has_header = bytes.starts_with(&number.to_ne_bytes());
        assert!(outcome.invented <= usize::from(!has_header), "page {number}");
        let has = |part: &[u8]| bytes.windows(part.len()).any(|other| other == part);
        // The many values of a key have pages of their own.
        let has =
            |(name, key, value): &&Entry| has(key) || name.as_deref() == Some("tags") && has(value);
        let is_leaf = has_header && bytes[10..12] == [2, 0];
        if is_leaf && outcome.says("up to position") {
            // The commit before was taken, because it has more than the rest of the last one.
            assert!(outcome.missing.iter().all(|entry| entry.1 == LAST), "page {number}");
            outcome.missing.extend(filled.expected.iter().filter(has).cloned());
        } else if is_leaf && !outcome.says("not proved") {
            assert!(outcome.missing.iter().all(|entry| has(&entry)), "page {number}");
        }
        (outcome.missing, is_leaf)
    };
    (0..data.len() / PAGE_BYTES).map(page).collect()
}

#[test]
fn a_damaged_page_loses_its_own_entries_only() {
    let filled = Filled::new();
    let data = filled.data();
    // The commit before and the log make up for pages of the last commit.
    let healed = missing_by_page(&filled, &data);
    let filled = filled.without_log();
    let by_page = missing_by_page(&filled, &data);
    for ((with_log, _), (without, _)) in healed.iter().zip(&by_page) {
        assert!(with_log.is_subset(without));
    }
    assert!(healed.iter().zip(&by_page).any(|(healed, other)| healed.0.len() < other.0.len()));
    // Each entry is in some leaf.
    let leaves = by_page.iter().filter(|(_, is_leaf)| *is_leaf);
    let all: BTreeSet<_> = leaves.flat_map(|(missing, _)| missing.clone()).collect();
    assert!(all == filled.expected, "{} of {}", all.len(), filled.expected.len());
}

#[test]
fn a_salvage_loses_entries_of_a_damaged_page_only() {
    let filled = Filled::new();
    let data = filled.data();
    let stride = number_or("THRONG_SALVAGE_STRIDE", 2_999) as usize;
    let is_damaged = |offset: &usize| {
        let in_page = offset % PAGE_BYTES;
        in_page < 20 && in_page.is_multiple_of(4)
            || *offset < 2 * PAGE_BYTES && in_page < 160 && in_page.is_multiple_of(3)
            || offset.is_multiple_of(stride)
    };
    let flip = |filled: &Filled, offset: usize| {
        let mut flipped = data.clone();
        flipped[offset] ^= if offset.is_multiple_of(3) { 0xFF } else { 1 << (offset % 8) };
        filled.salvage(&flipped).unwrap_or_else(|| panic!("byte {offset}: nothing"))
    };
    // With the log, fewer are lost; without it, at most those of the page.
    for offset in (0..data.len()).filter(is_damaged).step_by(5) {
        flip(&filled, offset);
    }
    let filled = filled.without_log();
    let by_page = missing_by_page(&filled, &data);
    let (mut lost, mut harmless) = (0, 0);
    for offset in (0..data.len()).filter(is_damaged) {
        let Outcome { missing, invented, losses } = flip(&filled, offset);
        let (of_page, _) = &by_page[offset / PAGE_BYTES];
        let is_disputed = losses.iter().any(|loss| loss.to_string().contains("used twice"));
        let is_own = |entry: &Entry| of_page.contains(entry) || entry.1 == LAST;
        assert!(missing.iter().all(is_own) || is_disputed, "byte {offset}: {losses:?}");
        assert!(invented <= of_page.len(), "byte {offset}: {invented}");
        lost += usize::from(!missing.is_empty());
        harmless += usize::from(missing.is_empty());
    }
    println!("{lost} lost entries, {harmless} did not");
    assert!(lost > 20 && harmless > 20);
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Bounds of the nodes of a page of a kind, which is 1 for branches and 2 for leaves.
fn nodes(data: &[u8], page: usize, kind: u8) -> Vec<usize> {
    let start = page * PAGE_BYTES;
    let half =
        |at: usize| usize::from(u16::from_ne_bytes([data[start + at], data[start + at + 1]]));
    if word(data, start) != page || data[start + 10] != kind || data[start + 11] != 0 {
        return Vec::new();
    }
    (16..half(12)).step_by(2).map(|at| start + half(at)).collect()
}

#[test]
fn a_wrong_page_number_gives_no_entry_of_another_place_or_time() {
    let filled = Filled::new().without_log();
    let data = filled.data();
    let pages = data.len() / PAGE_BYTES;
    let pointers: Vec<_> = (2..pages).flat_map(|page| nodes(&data, page, 1)).collect();
    let (mut disputed, mut random) = (0, fastrand::Rng::with_seed(3));
    for pointer in &pointers {
        for page in (2..pages as u32).filter(|_| random.u32(0..4) == 0) {
            let mut wrong = data.clone();
            wrong[*pointer..pointer + 4].copy_from_slice(&page.to_ne_bytes());
            fs::write(filled.path().join("data.mdb"), &wrong).unwrap();
            let (outcome, found) = salvaged(filled.path());
            let said = format!("page {page} at byte {pointer}: {:?}", outcome.losses);
            assert!(found.is_subset(&filled.expected), "{said}");
            disputed += usize::from(said.contains("used twice"));
        }
    }
    assert!(pointers.len() > 10 && disputed > 10, "{} pointers, {disputed}", pointers.len());
}

#[test]
fn a_damaged_name_of_a_database_is_known_from_the_list_of_all() {
    let filled = Filled::new().without_log();
    let data = filled.data();
    for (name, other) in [("*tags", "*tagt"), ("+named", "-named"), ("+empty", "+emptz")] {
        let mut renamed = data.clone();
        for at in 2..data.len() - name.len() {
            // Not in the list, where no length precedes the name.
            if data[at..].starts_with(name.as_bytes()) && data[at - 2..at] == [name.len() as u8, 0]
            {
                renamed[at..at + name.len()].copy_from_slice(other.as_bytes());
            }
        }
        assert!(renamed != data);
        let Outcome { missing, invented, losses } = filled.salvage(&renamed).unwrap();
        assert_eq!((missing.len(), invented, losses.len()), (0, 0, 1), "{name}: {losses:?}");
    }
}

#[test]
fn a_damaged_list_of_free_pages_loses_no_entries() {
    let filled = Filled::new().without_log();
    let mut data = filled.data();
    let roots = [80, PAGE_BYTES + 80].map(|at| word(&data, at));
    // The key of eight bytes, then the number of pages and the pages, descending.
    let lists = roots.map(|root| nodes(&data, root, 2).into_iter().map(|node| node + 16));
    let lists: Vec<_> = lists.into_iter().flatten().collect();
    let free = |list: &usize| {
        (1..=word(&data, *list)).map(|index| word(&data, list + 8 * index)).collect::<Vec<_>>()
    };
    let free: BTreeSet<_> = lists.iter().flat_map(free).collect();
    let is_used = |page: &usize| !free.contains(page) && !nodes(&data, *page, 2).is_empty();
    let used: Vec<_> = (2..data.len() / PAGE_BYTES).rev().filter(is_used).collect();
    for list in lists {
        // Pages in use, and at the end a page that can never be free.
        let number = word(&data, list);
        for index in 1..=number {
            let page = if index == number { &1 } else { &used[index] };
            data[list + 8 * index..][..8].copy_from_slice(&page.to_ne_bytes());
        }
    }
    let outcome = filled.salvage(&data).unwrap();
    assert!(outcome.missing.is_empty(), "{:?}", outcome.losses);
    assert!(outcome.says("the free pages are not known"), "{:?}", outcome.losses);
}

#[test]
fn arbitrary_damage_neither_crashes_a_salvage_nor_invents_entries() {
    let filled = Filled::new();
    let data = filled.data();
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..150 {
        let mut damaged = data.clone();
        for _ in 0..random.usize(1..6) {
            let pages = data.len() / PAGE_BYTES;
            let [at, from] = [(); 2].map(|()| random.usize(0..pages) * PAGE_BYTES);
            match random.u32(0..4) {
                // A page at a wrong place, whose number may be right.
                0 => damaged.copy_within(from..from + PAGE_BYTES, at),
                1 => damaged.copy_within(from + 8..from + PAGE_BYTES, at + 8),
                2 => {
                    let start = at + random.usize(0..PAGE_BYTES);
                    random.fill(&mut damaged[start..at + PAGE_BYTES]);
                }
                _ => damaged[at + 16 + random.usize(0..80)] = random.u8(..),
            }
        }
        if round % 10 == 0 {
            damaged.truncate(random.usize(1..data.len()));
        }
        filled.salvage(&damaged);
    }
    for bytes in [0, 1, 4096, 100_000] {
        let mut garbage = vec![0; bytes];
        random.fill(&mut garbage);
        assert!(filled.salvage(&garbage).is_none());
    }
}

/// A store as a kill leaves it, with records in two segments that LMDB has not.
struct Killed {
    directory: TempDir,
    /// Position and content after each record, and before the first.
    states: Vec<(u64, BTreeSet<Entry>)>,
}

impl Killed {
    fn new() -> Killed {
        let open = directory_in_memory();
        fill(open.path());
        loop {
            let store = Store::open(open.path()).unwrap();
            let named = store.database::<Bytes, Bytes>("named").unwrap();
            let several = DatabaseOptions::new().duplicates();
            let tags = store.database_with::<Bytes, Bytes>("tags", &several).unwrap();
            let mut states = Vec::new();
            // The long value fills the first segment but for a few sectors.
            for (number, bytes) in [0, 30, 200_000, 5_000, 60_000, 1, 700].into_iter().enumerate() {
                let batch = Batch::new().put(&db(&store), b"large", &vec![number as u8; bytes]);
                let batch = batch.delete(&db(&store), format!("key 10{number}").as_bytes());
                let batch = batch.add(&db(&store), b"count", 1);
                let batch = if number == 5 { batch.clear(&named) } else { batch };
                let batch = batch.put(&named, &[number as u8], b"value");
                let batch = batch.delete(&tags, format!("key {number}").as_bytes());
                if number > 0 {
                    store.write(batch).wait().unwrap();
                }
                states.push((store.snapshot().unwrap().commit(), content(&store)));
            }
            let directory = directory_in_memory();
            super::copy_files(open.path(), directory.path());
            // On a slow machine a checkpoint may come between, which leaves less to replay.
            let killed = Killed { directory, states };
            if store.stat().unwrap().memory_bytes > 260_000 && killed.records().len() >= 6 {
                return killed;
            }
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn segments(&self) -> Vec<PathBuf> {
        let files = super::files(self.path()).into_iter();
        files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect()
    }

    /// File and offset of each record after the applied point.
    fn records(&self) -> Vec<(PathBuf, usize)> {
        let mut records = Vec::new();
        for path in self.segments() {
            let bytes = fs::read(&path).unwrap();
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let mut at = 4096;
            while at < bytes.len() && number(at + 8) > 0 {
                if number(at + 8) > self.states[0].0 {
                    records.push((path.clone(), at));
                }
                let length = (number(at) >> 32) as usize;
                at += (32 + length).next_multiple_of(512);
            }
        }
        records
    }

    /// Asserts that a salvage makes the state after some records, and says what is lost.
    #[track_caller]
    fn assert_prefix(&self, records: usize, reason: &str) {
        let (outcome, found) = salvaged(self.path());
        let (position, expected) = &self.states[records];
        assert_eq!(outcome.position, *position, "{:?}", outcome.losses);
        assert!(outcome.is_exact && found == *expected, "{:?}", outcome.losses);
        match &outcome.losses[..] {
            [Loss::Changes { last, reason: found }] => {
                assert!(found.contains(reason), "{found}");
                let (end, _) = self.states[self.states.len() - 1];
                let is_known = *last == Some(end) || last.is_none() && reason.contains("mark");
                assert!(is_known || last.is_none() && *position == end, "{last:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_damaged_log_gives_the_state_before_the_damage() {
    let killed = Killed::new();
    let put_back = keep(killed.path());
    let records = killed.records();
    assert_eq!(records.len(), 6);
    assert!(killed.segments().len() >= 2);
    assert_whole(killed.path(), &killed.states[6].1);
    for (number, (path, at)) in records.iter().enumerate() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(path).unwrap();
        for offset in [0, 4, 9, 17, 25, 33, 45] {
            let mut flipped = bytes.clone();
            flipped[at + offset] ^= 1 << (offset % 8);
            fs::write(path, flipped).unwrap();
            killed.assert_prefix(number, &format!("log/{name} at byte {at}"));
        }
        for length in [*at, at + 32] {
            fs::write(path, &bytes[..length]).unwrap();
            killed.assert_prefix(number, name);
        }
        put_back();
    }
    // The first record is older than the applied point.
    let first = &killed.segments()[0];
    let mut bytes = fs::read(first).unwrap();
    bytes[4096 + 40] ^= 1;
    fs::write(first, bytes).unwrap();
    assert_whole(killed.path(), &killed.states[6].1);
}

#[test]
fn a_damaged_applied_point_or_id_leaves_the_commit_before() {
    let killed = Killed::new();
    let path = killed.path().join("data.mdb");
    let data = fs::read(&path).unwrap();
    let mut places = 0;
    for at in (0..data.len() - 20)
        .filter(|at| [b"applied", &b"store"[..]].iter().any(|key| data[*at..].starts_with(key)))
    {
        for offset in 5..19 {
            let mut damaged = data.clone();
            damaged[at + offset] ^= 0x14;
            fs::write(&path, damaged).unwrap();
            let (outcome, found) = salvaged(killed.path());
            assert!(found == killed.states[6].1, "byte {}: {:?}", at + offset, outcome.losses);
        }
        places += 1;
    }
    assert!(places >= 4);
}

#[test]
fn a_missing_or_foreign_file_of_the_log_ends_it_there() {
    let (killed, other) = (Killed::new(), Killed::new());
    let put_back = keep(killed.path());
    let [first, second] = <[PathBuf; 2]>::try_from(killed.segments()).unwrap();
    let in_first = killed.records().iter().filter(|(path, _)| *path == first).count();
    assert!(in_first > 0 && in_first < 6);
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mark = killed.path().join("log/mark");
    for (path, records) in [(&first, 0), (&second, in_first), (&mark, 6)] {
        fs::remove_file(path).unwrap();
        killed.assert_prefix(records, &name(path));
        fs::copy(other.path().join("log").join(name(path)), path).unwrap();
        killed.assert_prefix(records, &name(path));
        fs::write(path, [7; 5_000]).unwrap();
        killed.assert_prefix(records, &name(path));
        put_back();
    }
    fs::remove_dir_all(killed.path().join("log")).unwrap();
    let (outcome, found) = salvaged(killed.path());
    assert!(outcome.is_exact && found == killed.states[0].1);
    assert!(matches!(&outcome.losses[..], [Loss::Changes { last: None, .. }]));
}

#[test]
fn a_missing_data_file_is_refused() {
    let killed = Killed::new();
    fs::remove_file(killed.path().join("data.mdb")).unwrap();
    let to = directory_in_memory();
    let refused = Store::salvage(killed.path(), to.path()).unwrap_err();
    assert!(matches!(refused, SalvageError::Nothing { .. }), "{refused}");
    assert!(refused.to_string().contains("data.mdb is missing"), "{refused}");
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
}

#[test]
fn kept_segments_make_up_for_missing_ones() {
    let directory = directory_in_memory();
    let options = Store::options().keep_log(true).checkpoint_bytes(64 << 10);
    drop(options.open(directory.path()).unwrap());
    let data = directory.path().join("data.mdb");
    let early = fs::read(&data).unwrap();
    let store = options.open(directory.path()).unwrap();
    for number in 0..20u8 {
        let batch = Batch::new().put(&db(&store), b"large", &vec![number; 100_000]);
        store.write(batch.put(&db(&store), &[number], b"value")).wait().unwrap();
    }
    let expected = content(&store);
    drop(store);
    assert!(fs::read_dir(directory.path().join("log/kept")).unwrap().count() > 1);
    fs::write(&data, early).unwrap();
    let refused = Store::open(directory.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
    assert_whole(directory.path(), &expected);
}

#[test]
fn the_commit_before_is_taken_with_the_log_and_a_doubt() {
    let filled = Filled::new();
    let data = filled.data();
    let commit = |page: usize| {
        let at = page * PAGE_BYTES + 144;
        u64::from_le_bytes(data[at..at + 8].try_into().unwrap())
    };
    let newest = usize::from(commit(1) > commit(0));
    assert_eq!(commit(0).abs_diff(commit(1)), 1);
    let without = |page: usize| {
        let mut damaged = data.clone();
        damaged[page * PAGE_BYTES..(page + 1) * PAGE_BYTES].fill(0);
        damaged
    };
    for page in [newest, 1 - newest] {
        let outcome = filled.salvage(&without(page)).unwrap();
        assert!(outcome.missing.is_empty(), "the log has the last change");
        assert!(outcome.says("not proved") && outcome.losses.len() == 1, "{:?}", outcome.losses);
    }
    let mut both = without(0);
    both[PAGE_BYTES..2 * PAGE_BYTES].fill(0);
    assert!(filled.salvage(&both).is_none());
    // A load leaves no record, so nothing shows that it is missing.
    fs::write(filled.path().join("data.mdb"), &data).unwrap();
    let store = Store::open(filled.path()).unwrap();
    db(&store).load([(*b"z", *b"loaded")]).unwrap();
    let position = store.snapshot().unwrap().commit();
    drop(store);
    let (outcome, _) = salvaged(filled.path());
    assert_eq!((outcome.position, outcome.losses.len()), (position, 0));
    let mut damaged = filled.data();
    damaged[(1 - newest) * PAGE_BYTES..(2 - newest) * PAGE_BYTES].fill(0);
    fs::write(filled.path().join("data.mdb"), damaged).unwrap();
    let (outcome, found) = salvaged(filled.path());
    assert!(outcome.position < position && found == filled.expected);
    assert!(matches!(&outcome.losses[..], [Loss::Unproved { .. }]), "{:?}", outcome.losses);
}

#[test]
fn a_salvage_needs_a_closed_store_and_an_empty_target() {
    let filled = Filled::new();
    let parent = directory_in_memory();
    let to = parent.path().join("new/store");
    let store = Store::open(filled.path()).unwrap();
    let refused = Store::salvage(filled.path(), &to).unwrap_err();
    assert!(matches!(refused, SalvageError::From(OpenError::InUse { .. })), "{refused}");
    drop(store);
    let before = bytes(filled.path());
    let other = Filled::new();
    for taken in [filled.path(), other.path()] {
        match Store::salvage(filled.path(), taken).unwrap_err() {
            SalvageError::Write(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
            }
            other => panic!("{other}"),
        }
    }
    assert!(bytes(filled.path()) == before);
    let refused = Store::salvage(parent.path(), &to).unwrap_err();
    assert!(matches!(refused, SalvageError::From(OpenError::Io { .. })), "{refused}");
    assert!(!to.exists());
    Store::salvage(filled.path(), &to).unwrap();
    assert!(content(&Store::open(&to).unwrap()) == filled.expected);
}
