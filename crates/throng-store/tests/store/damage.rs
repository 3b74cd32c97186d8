//! Each byte of a data file and of a log is damaged in turn: the damage is found or harmless, never a
//! crash.
//!
//! `THRONG_STORE_FLIP_STRIDE` is the distance of damaged bytes; with 1 the tests damage all bytes,
//! which takes half an hour for the data file. `THRONG_STORE_FLIP_FROM` is its first byte, to continue
//! from there.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;
use throng_store::{
    Batch, Bytes, DatabaseOptions, Durability, OpenError, ReadError, RestoreError, Store, Str,
    Until,
};

use crate::{db, directory_in_memory, entries, number_or, texts};

const DATA_FILE: &str = "data.mdb";

/// Makes a small store with pages of all kinds, free pages, and several values under a key, both
/// inside a node and in a tree of their own.
pub(super) fn fill(directory: &Path) {
    let store = Store::open(directory).unwrap();
    let named = store.database::<Str, Bytes>("named").unwrap();
    let several = DatabaseOptions::new().duplicates();
    let tags = store.database_with::<Str, Bytes>("tags", &several).unwrap();
    let put = |numbers: std::ops::Range<u32>| {
        let batch = numbers.fold(Batch::new(), |batch, number| {
            let key = format!("key {:03}", number * 7 % 200);
            let bytes = if number % 40 == 0 { 9_000 } else { number as usize % 90 };
            let tag = vec![number as u8; 1 + number as usize % 200];
            let batch = batch.put(&texts(&store), &key, &vec![number as u8; bytes]);
            batch.put(&named, &key, &tag).put(&tags, &key[..5], &tag).put(&tags, "all", &tag)
        });
        store.write(batch).wait().unwrap();
    };
    put(0..100);
    put(50..200);
    let batch = (0..60).fold(Batch::new(), |batch, number| {
        batch.delete(&db(&store), format!("key {number:03}").as_bytes())
    });
    store.write(batch).wait().unwrap();
    put(0..3);
}

/// The database, the key, the value.
type Entry = (String, Vec<u8>, Vec<u8>);

/// Everything in a store, in order.
fn content(store: &Store) -> Result<Vec<Entry>, ReadError> {
    let snapshot = store.snapshot()?;
    let mut all = Vec::new();
    for entry in db(store).range(&snapshot, ..) {
        let (key, value) = entry?;
        // A read by key finds the same value.
        let got = db(store).get(&snapshot, key)?;
        assert_eq!(got, Some(value), "{}", key.escape_ascii());
        all.push((String::new(), key.to_vec(), value.to_vec()));
    }
    let options = [DatabaseOptions::new(), DatabaseOptions::new().duplicates()];
    for (name, options) in ["named", "tags"].iter().zip(options) {
        let database = store.database_with::<Bytes, Bytes>(name, &options.existing()).unwrap();
        for entry in database.range(&snapshot, ..) {
            let (key, value) = entry?;
            // Several values under a key have no checksums, so only their lengths are compared,
            // rounded up: each value takes an even number of bytes in its page.
            if *name == "tags" {
                let value = vec![0; value.len().next_multiple_of(2)];
                all.push(((*name).to_owned(), vec![0; key.len()], value));
                continue;
            }
            all.push(((*name).to_owned(), key.to_vec(), value.to_vec()));
        }
    }
    Ok(all)
}

/// Returns a function that restores the present content of the files in the directory.
pub(super) fn keep(directory: &Path) -> impl Fn() {
    let kept = super::files(directory).into_iter().map(|path| (fs::read(&path).unwrap(), path));
    let kept: Vec<_> = kept.collect();
    let log = directory.join("log");
    move || {
        fs::remove_dir_all(&log).unwrap();
        fs::create_dir(&log).unwrap();
        kept.iter().for_each(|(bytes, path)| fs::write(path, bytes).unwrap());
    }
}

/// The system ends a process that reads a mapped page behind the end of its file.
#[test]
fn a_cut_data_file_is_refused_by_every_opening() {
    let directory = directory_in_memory();
    let path = |name: &str| directory.path().join(name);
    fill(&path("data"));
    let store = Store::open(path("data")).unwrap();
    store.backup(path("backup")).unwrap();
    drop(store);
    for name in ["data", "backup"] {
        let data_file = path(name).join(DATA_FILE);
        let bytes = fs::read(&data_file).unwrap();
        let cuts = (1..bytes.len()).step_by(9_999).chain([4_095, 4_096, bytes.len() - 1]);
        for cut in cuts {
            fs::write(&data_file, &bytes[..cut]).unwrap();
            let restored =
                Store::restore(path(name), path("data/log"), path("restored"), Until::End);
            assert!(matches!(restored, Err(RestoreError::Backup(OpenError::Corrupt { .. }))));
            for options in [Store::options().read_only(true), Store::options()] {
                match options.open(path(name)) {
                    Err(OpenError::Corrupt { reason, .. }) => {
                        assert!(reason.starts_with("data.mdb is cut"), "{cut} bytes: {reason}");
                    }
                    other => panic!("{cut} bytes: {other:?}"),
                }
            }
        }
        fs::write(&data_file, &bytes).unwrap();
        Store::open(path(name)).unwrap().verify().unwrap();
    }
}

#[test]
#[ignore = "the child of a_damaged_byte_is_found_or_harmless_and_never_crashes"]
fn damaging_child() {
    let directory = std::env::var(super::DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    let path = directory.join(DATA_FILE);
    let whole = content(&Store::open(directory).unwrap()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let put_back = keep(directory);
    let stride = number_or("THRONG_STORE_FLIP_STRIDE", 353) as usize;
    let checked = Store::options().check(true);
    let (mut found, mut harmless) = (0, 0);
    // The first bytes of each page, more of the meta pages, and the rest by the stride.
    let is_damaged = |offset: &usize| {
        let in_page = offset % 4096;
        in_page < 18 || *offset < 8192 && in_page < 160 || offset.is_multiple_of(stride)
    };
    let from = number_or("THRONG_STORE_FLIP_FROM", 0) as usize;
    for offset in (from..bytes.len()).filter(is_damaged) {
        for damage in [0xFF, 1 << (offset % 8)] {
            // After a crash, the last line of the output names the damaged byte.
            println!("\ndamaging byte {offset} by {damage:#x}");
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[bytes[offset] ^ damage], offset as u64).unwrap();
            match checked.open(directory) {
                Ok(store) => {
                    harmless += 1;
                    store.verify().unwrap();
                    assert!(content(&store).unwrap() == whole, "byte {offset} by {damage:#x}");
                    if harmless % 8 > 0 && stride > 1 {
                        drop(store);
                        put_back();
                        continue;
                    }
                    // Writes work, too, in all pages of values and in free pages.
                    let batch = whole.iter().filter(|(name, ..)| name.is_empty());
                    let batch = batch
                        .fold(Batch::new(), |batch, (_, key, _)| batch.delete(&db(&store), key));
                    store
                        .write(batch.put(&db(&store), b"large", &vec![1; 100_000]))
                        .wait()
                        .unwrap();
                    store.verify().unwrap();
                    drop(store);
                    Store::check(directory).unwrap();
                    put_back();
                }
                // A damaged version looks like the version of another program.
                Err(
                    OpenError::Corrupt { .. }
                    | OpenError::Foreign { .. }
                    | OpenError::Format { .. },
                ) => {
                    found += 1;
                    file.write_all_at(&[bytes[offset]], offset as u64).unwrap();
                }
                Err(other) => panic!("byte {offset} by {damage:#x}: {other}"),
            }
        }
    }
    println!("{found} found, {harmless} harmless");
    assert!(from > 0 || found > 100 && harmless > 20);
}

#[test]
fn a_damaged_byte_is_found_or_harmless_and_never_crashes() {
    let directory = directory_in_memory();
    fill(directory.path());
    let output = super::child("damage::damaging_child", directory.path(), "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let last: Vec<_> = said.lines().rev().take(8).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    let sum = said.lines().find(|line| line.ends_with("harmless"));
    println!("{}", sum.unwrap_or("the child did not finish"));
    assert!(output.status.success(), "{}: {last:#?}\n{errors}", output.status);
}

#[test]
fn a_database_whose_name_is_damaged_is_missed() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let path = directory.path().join(DATA_FILE);
    let mut bytes = fs::read(&path).unwrap();
    let places: Vec<_> =
        (0..bytes.len() - 5).filter(|at| bytes[*at..].starts_with(b"*tags")).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[at + 4] = b'z');
    fs::write(&path, bytes).unwrap();
    for outcome in
        [Store::check(directory.path()).map(drop), Store::open(directory.path()).map(drop)]
    {
        assert!(matches!(outcome, Err(OpenError::Corrupt { .. })), "{outcome:?}");
    }
}

#[test]
fn a_truncated_file_is_found() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let path = directory.path().join(DATA_FILE);
    let whole = fs::read(&path).unwrap();
    let check = Store::check(directory.path()).unwrap();
    assert!(check.pages_free > 0 && check.entries > 100, "{check:?}");
    let mut found = 0;
    for pages in 0..whole.len() / 4096 {
        fs::write(&path, &whole[..pages * 4096]).unwrap();
        // Only free pages may be missing at the end.
        match Store::check(directory.path()) {
            Ok(same) => assert_eq!(same, check),
            Err(OpenError::Corrupt { .. }) => found += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(found > 2);
    fs::write(&path, []).unwrap();
    assert!(matches!(Store::open(directory.path()), Err(OpenError::Corrupt { .. })));
}

/// A store as a kill leaves it, with changes that only its log has.
pub(super) struct Killed {
    pub(super) directory: TempDir,
    /// The content after each batch in the log, and before the first.
    states: Vec<Vec<Entry>>,
    /// The mark as a power failure may leave it: after the first [`MARKED`] batches.
    low_mark: Vec<u8>,
}

const MARKED: usize = 3;

/// Makes a store whose log has records shorter and longer than a sector, in two segments.
pub(super) fn kill(durability: Durability) -> Killed {
    let open = directory_in_memory();
    fill(open.path());
    loop {
        let store = Store::options().durability(durability).open(open.path()).unwrap();
        let named = store.database::<Str, Bytes>("named").unwrap();
        let mut states = vec![content(&store).unwrap()];
        let mut low_mark = Vec::new();
        // The long value fills the first segment but for a few sectors.
        for (number, bytes) in [30, 240_000, 5_000, 1, 700, 20_000, 60].into_iter().enumerate() {
            let value = vec![number as u8 + 1; bytes];
            let batch = Batch::new()
                .put(&db(&store), b"large", &value)
                .delete(&db(&store), format!("key 10{number}").as_bytes());
            let batch = batch.put(&named, &format!("log {number}"), &value[..1]);
            store.write(batch.add(&db(&store), b"count", 1)).wait().unwrap();
            states.push(content(&store).unwrap());
            if states.len() == MARKED + 1 {
                low_mark = fs::read(open.path().join("log/mark")).unwrap();
            }
        }
        let directory = directory_in_memory();
        super::copy_files(open.path(), directory.path());
        // On a slow machine a checkpoint may come between, which leaves less to replay.
        let segments = fs::read_dir(directory.path().join("log")).unwrap().count() - 1;
        if store.stat().unwrap().memory_bytes > 260_000 && segments >= 2 {
            return Killed { directory, states, low_mark };
        }
    }
}

/// Returns the places of a file of the log that are damaged in turn: by the stride, more of heads and of the
/// first record, and fewer within runs of the same byte.
fn places(bytes: &[u8], default: u64) -> Vec<usize> {
    const RUN: usize = 31;
    let stride = number_or("THRONG_STORE_FLIP_STRIDE", default) as usize;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 700);
    let is_in_run = |offset: usize| {
        let around = bytes.get(offset.saturating_sub(4)..offset + 4);
        around.is_some_and(|around| around.iter().all(|byte| *byte == around[0]))
    };
    let is_damaged = |offset: &usize| {
        let is_of_header = offset % 512 < 36 && *offset < 4_500 && offset.is_multiple_of(5);
        let stride = if is_in_run(*offset) { stride * RUN } else { stride };
        is_of_header || offset.is_multiple_of(stride)
    };
    (0..end.min(bytes.len())).filter(is_damaged).collect()
}

/// Opens a store whose file `name` is damaged. Returns its content, or nothing if it is refused with the
/// name of a file of the log.
fn open_damaged(directory: &Path, name: &str, is_used: bool) -> Option<Vec<Entry>> {
    let checked = Store::check(directory).map(drop);
    let opened = match Store::open(directory) {
        Ok(store) => {
            let found = content(&store).unwrap();
            if is_used {
                db(&store).put(b"later", &[7; 700]).wait().unwrap();
                drop(store);
                let store = Store::open(directory).unwrap();
                assert_eq!(
                    db(&store).get(&store.snapshot().unwrap(), b"later").unwrap(),
                    Some(&[7; 700][..])
                );
                // Everything else is as before.
                db(&store).delete(b"later").wait().unwrap();
                assert!(content(&store).unwrap() == found);
            }
            Ok(found)
        }
        Err(error) => Err(error),
    };
    assert_eq!(checked.is_ok(), opened.is_ok(), "{name}: {checked:?}");
    let found = opened.map_err(|refused| {
        assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
        // A cut segment is found by the mark or by the segment after it.
        assert!(refused.to_string().contains("log/"), "{name}: {refused}");
    });
    found.ok()
}

#[test]
fn a_damaged_byte_of_the_log_is_found_or_harmless() {
    let mut torn = 0;
    for durability in [Durability::Durable, Durability::Volatile] {
        let Killed { directory, states, low_mark } = kill(durability);
        let directory = directory.path();
        let log = directory.join("log");
        let put_back = keep(directory);
        let stride = if durability == Durability::Durable { 173 } else { 997 };
        let whole = states.last();
        assert_eq!(open_damaged(directory, "none", true).as_ref(), whole);
        put_back();
        let mut names: Vec<_> =
            fs::read_dir(&log).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        let (mut found, mut harmless) = (0, 0);
        for name in &names {
            let path = log.join(name);
            let name = name.to_str().unwrap();
            let bytes = fs::read(&path).unwrap();
            for offset in places(&bytes, stride) {
                let damage = || {
                    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                    let flipped = if offset % 2 == 0 { 0xFF } else { 1 << (offset % 8) };
                    file.write_all_at(&[bytes[offset] ^ flipped], offset as u64).unwrap();
                };
                damage();
                let opened = open_damaged(directory, name, harmless % 16 == 0);
                put_back();
                match &opened {
                    None => found += 1,
                    Some(content) => {
                        harmless += 1;
                        assert!(Some(content) == whole, "byte {offset} of {name}");
                    }
                }
                // After a power failure the mark may be too low. Then the log may end at damage above it.
                if name == "mark" {
                    continue;
                }
                fs::write(log.join("mark"), &low_mark).unwrap();
                damage();
                let above = open_damaged(directory, name, false);
                put_back();
                let Some(content) = above else { continue };
                let last = states.iter().rposition(|state| *state == content);
                let last = last.unwrap_or_else(|| panic!("byte {offset} of {name}"));
                assert!(last >= MARKED, "byte {offset} of {name}: only {last} batches are left");
                assert!(opened.is_none() || Some(&content) == whole);
                torn += usize::from(Some(&content) != whole);
            }
        }
        println!("{durability:?}: {found} found, {harmless} harmless");
        assert!(found > 20 && harmless > 20);
        fs::write(log.join("mark"), [0; 1024]).unwrap();
        let refused = Store::open(directory).unwrap_err();
        assert!(refused.to_string().contains("log/mark is damaged"), "{refused}");
    }
    println!("{torn} taken for torn");
    assert!(torn > 0);
}

#[test]
fn a_damaged_byte_of_a_kept_log_is_found_or_harmless() {
    let parent = directory_in_memory();
    let path = |name: &str| parent.path().join(name);
    let store =
        Store::options().keep_log(true).checkpoint_bytes(64 << 10).open(path("data")).unwrap();
    let put = |number: u32| {
        let length = if number.is_multiple_of(4) { 70_000 } else { 90 * number as usize };
        let value = vec![number as u8; length];
        let batch = Batch::new().put(&db(&store), b"newest", &value);
        store.write(batch.put(&db(&store), &number.to_be_bytes(), b"v")).wait().unwrap();
    };
    put(1);
    store.backup(path("backup")).unwrap();
    (2..40).for_each(put);
    let whole = entries(&store);
    drop(store);
    let kept = fs::read_dir(path("data/log/kept")).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept.collect();
    assert!(!kept.is_empty());
    let (mut found, mut harmless) = (0, 0);
    for file in &kept {
        let bytes = fs::read(file).unwrap();
        for offset in places(&bytes, 97) {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 1 << (offset % 8);
            fs::write(file, damaged).unwrap();
            match Store::restore(path("backup"), path("data/log"), path("restored"), Until::End) {
                Ok(_) => {
                    harmless += 1;
                    let restored = Store::open(path("restored")).unwrap();
                    assert!(entries(&restored) == whole, "byte {offset} of {}", file.display());
                    drop(restored);
                    fs::remove_dir_all(path("restored")).unwrap();
                }
                Err(refused) => {
                    found += 1;
                    let name = file.file_name().unwrap().to_str().unwrap();
                    assert!(refused.to_string().contains(name), "{refused}");
                }
            }
        }
        fs::write(file, bytes).unwrap();
    }
    println!("{found} found, {harmless} harmless");
    assert!(found > 20 && harmless > 20);
}
