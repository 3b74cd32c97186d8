//! Each byte of a data file is damaged in turn: the damage is found or harmless, never a crash.
//!
//! `THRONG_STORE_FLIP_STRIDE` is the distance of damaged bytes; with 1 the test damages all bytes,
//! which takes half an hour. `THRONG_STORE_FLIP_FROM` is the first byte, to continue from there.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use throng_store::{Batch, Bytes, DatabaseOptions, OpenError, ReadError, Store, Str};

use super::number_or;

const DATA_FILE: &str = "data.mdb";

/// Makes a small store with pages of all kinds, free pages, and several values under a key, both
/// inside a node and in a tree of their own.
fn fill(directory: &Path) {
    let store = Store::open(directory).unwrap();
    let named = store.database::<Str, Bytes>("named").unwrap();
    let several = DatabaseOptions::new().duplicates();
    let tags = store.database_with::<Str, Bytes>("tags", &several).unwrap();
    let put = |numbers: std::ops::Range<u32>| {
        let batch = numbers.fold(Batch::new(), |batch, number| {
            let key = format!("key {:03}", number * 7 % 200);
            let bytes = if number % 40 == 0 { 9_000 } else { number as usize % 90 };
            let tag = vec![number as u8; 1 + number as usize % 200];
            let batch = batch.put(&key, vec![number as u8; bytes]);
            batch
                .put_in(&named, &key, &tag)
                .put_in(&tags, &key[..5], &tag)
                .put_in(&tags, "all", &tag)
        });
        store.write(batch).wait().unwrap();
    };
    put(0..100);
    put(50..200);
    let batch =
        (0..60).fold(Batch::new(), |batch, number| batch.delete(format!("key {number:03}")));
    store.write(batch).wait().unwrap();
    put(0..3);
}

/// The database, the key, the value.
type Entry = (String, Vec<u8>, Vec<u8>);

/// Everything in a store, in order.
fn content(store: &Store) -> Result<Vec<Entry>, ReadError> {
    let snapshot = store.snapshot()?;
    let mut all = Vec::new();
    for entry in snapshot.range(..) {
        let (key, value) = entry?;
        // A read by key finds the same value.
        let got = snapshot.get(key)?;
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
fn keep(directory: &Path) -> impl Fn() {
    let kept = super::files(directory).into_iter().map(|path| (fs::read(&path).unwrap(), path));
    let kept: Vec<_> = kept.collect();
    let log = directory.join("log");
    move || {
        fs::remove_dir_all(&log).unwrap();
        fs::create_dir(&log).unwrap();
        kept.iter().for_each(|(bytes, path)| fs::write(path, bytes).unwrap());
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
                    let batch = batch.fold(Batch::new(), |batch, (_, key, _)| batch.delete(key));
                    store.write(batch.put("large", vec![1; 100_000])).wait().unwrap();
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
    // The test needs no durable files, so they may lie in memory.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
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
