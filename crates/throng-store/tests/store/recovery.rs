//! Stores that were not closed: their files, and their recovery from the log.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};

use throng_store::{Batch, Bytes, DatabaseOptions, Durability, OpenError, Store, Str};

use crate::{db, directory_in_memory, entries, new_store, texts};

const ENTRIES: u64 = 50;

fn put(store: &Store, round: u8) {
    let named = store.database::<Str, Bytes>("named").unwrap();
    let tags = store.database_with::<Str, Bytes>("tags", &DatabaseOptions::new().duplicates());
    let tags = tags.unwrap();
    for number in 0..ENTRIES {
        let key = format!("key {number}");
        let batch =
            Batch::new().put(&texts(store), &key, &[round; 30]).put(&named, &key, &[round; 300]);
        let batch = batch.put(&tags, "tag", &[round, number as u8]).add(&db(store), b"count", 1);
        // The key is deleted and put again, so the records must be replayed in order.
        store.write(batch.delete(&named, "key 7")).wait().unwrap();
    }
    store.write(Batch::new().clear(&named).put(&named, "last", &[round])).wait().unwrap();
}

/// Checks that a store holds exactly the entries of `rounds` rounds.
fn check(store: &Store, rounds: u8) {
    store.verify().unwrap();
    let named = store.database::<Str, Bytes>("named").unwrap();
    let tags = DatabaseOptions::new().duplicates().existing();
    let tags = store.database_with::<Str, Bytes>("tags", &tags).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(store).len(&snapshot).unwrap(), ENTRIES + 1);
    for number in 0..ENTRIES {
        let value = db(store).get(&snapshot, format!("key {number}").as_bytes()).unwrap();
        assert_eq!(value, Some(&[rounds; 30][..]), "{number}");
    }
    let count = u64::from(rounds) * ENTRIES;
    assert_eq!(db(store).get(&snapshot, b"count").unwrap(), Some(&count.to_le_bytes()[..]));
    let last: Vec<_> = named.range(&snapshot, ..).map(Result::unwrap).collect();
    assert_eq!(last, [("last", &[rounds][..])]);
    assert_eq!(tags.range(&snapshot, ..).count() as u64, count);
}

#[test]
#[ignore = "the child of the tests below"]
fn dying_child() {
    put_and_wait(Durability::Durable, 1);
}

#[test]
#[ignore = "the child of a_volatile_store_recovers_and_opens_as_durable"]
fn dying_volatile_child() {
    put_and_wait(Durability::Volatile, 3);
}

fn put_and_wait(durability: Durability, round: u8) {
    let directory = std::env::var(super::DIRECTORY).unwrap();
    let store = Store::options().durability(durability).open(directory).unwrap();
    put(&store, round);
    println!("\nwritten");
    // The child waits until it is killed.
    loop {
        std::thread::park();
    }
}

/// Starts a child, and returns it with the lines that it prints.
fn begin(test: &str, directory: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = super::child(test, directory, "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

fn await_line(lines: &mut Lines<BufReader<ChildStdout>>, line: &str) {
    assert!(lines.any(|said| said.unwrap() == line), "the child did not print {line:?}");
}

/// Leaves a store that was written and not closed in the directory.
fn leave_unclosed(directory: &Path) {
    leave_unclosed_by("recovery::dying_child", directory);
}

fn leave_unclosed_by(test: &str, directory: &Path) {
    let (mut child, mut lines) = begin(test, directory);
    await_line(&mut lines, "written");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_unclosed_store_can_be_checked_and_read_before_and_after_its_recovery() {
    let directory = tempfile::tempdir().unwrap();
    leave_unclosed(directory.path());
    Store::check(directory.path()).unwrap();
    let to_read = Store::options().read_only(true);
    check(&to_read.open(directory.path()).unwrap(), 1);
    check(&Store::open(directory.path()).unwrap(), 1);
    check(&to_read.open(directory.path()).unwrap(), 1);
    check(&to_read.check(true).open(directory.path()).unwrap(), 1);
}

#[test]
fn a_store_left_unclosed_repeatedly_is_recovered_each_time() {
    let directory = tempfile::tempdir().unwrap();
    leave_unclosed(directory.path());
    // A forgotten store keeps its claim in this process, so each round opens a copy.
    let mut left = directory;
    for round in 2..6 {
        let copy = tempfile::tempdir().unwrap();
        super::copy_files(left.path(), copy.path());
        let store =
            Store::options().check(true).checkpoint_bytes(3 << 10).open(copy.path()).unwrap();
        check(&store, round - 1);
        put(&store, round);
        check(&store, round);
        std::mem::forget(store);
        left = copy;
    }
}

#[test]
fn a_recovery_reports_how_far_it_is() {
    let (directory, store) = new_store();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let options = Store::options().on_recovery({
        let reports = reports.clone();
        move |recovery| reports.lock().unwrap().push(recovery)
    });
    // On a slow machine a checkpoint may come between, which leaves nothing to replay.
    let copy = loop {
        let before = store.snapshot().unwrap().commit();
        for number in 0..100u8 {
            db(&store).put(&[number], &[7; 100]).wait().unwrap();
        }
        let copy = tempfile::tempdir().unwrap();
        super::copy_files(directory.path(), copy.path());
        drop(options.open(copy.path()).unwrap());
        if let Some(last) = reports.lock().unwrap().last() {
            assert_eq!(last.changes, last.total);
            assert!((1..=before + 100).contains(&last.changes), "{last:?}");
            break copy;
        }
    };
    // A store that was closed has nothing to replay.
    reports.lock().unwrap().clear();
    drop(options.open(copy.path()).unwrap());
    assert!(reports.lock().unwrap().is_empty());
}

type Pairs<'s> = Vec<(&'s str, &'s [u8])>;

#[test]
fn a_log_that_does_not_fit_in_memory_is_recovered_whatever_it_does() {
    let directory = directory_in_memory();
    let store = Store::options().durability(Durability::Volatile).open(directory.path()).unwrap();
    let named = store.database::<Str, Bytes>("named").unwrap();
    let duplicates = DatabaseOptions::new().duplicates();
    let tags = store.database_with::<Str, Bytes>("tags", &duplicates).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..1_500 {
        let mut batch = Batch::new();
        for _ in 0..random.usize(1..20) {
            let key = format!("key {}", random.u32(..1_000));
            let value = vec![random.u8(..); random.usize(1..200)];
            batch = match random.u32(..1_000) {
                0 => batch.clear(&named),
                1 => batch.clear(&tags),
                2..50 => batch.delete(&texts(&store), &key),
                50..100 => batch.delete(&named, &key),
                100..200 => batch.delete(&tags, &key[..5]),
                200..300 => batch.delete_value(&tags, &key[..5], &value[..1]),
                300..600 => batch.put(&tags, &key[..5], &value[..1]),
                600..800 => batch.put(&named, &key, &value),
                _ => batch.put(&texts(&store), &key, &value),
            };
        }
        store.write(batch).wait().unwrap();
    }
    let left = directory_in_memory();
    super::copy_files(directory.path(), left.path());
    // Recoveries in memory, with one pass over the log, with some, and with more than one stretch.
    for checkpoint_bytes in [4 << 10, 16 << 10, 100 << 10, 1 << 20, 2 << 20, 16 << 20] {
        let copy = directory_in_memory();
        super::copy_files(left.path(), copy.path());
        let options = Store::options().checkpoint_bytes(checkpoint_bytes);
        let recovered = options.open(copy.path()).unwrap();
        assert!(entries(&recovered) == entries(&store), "{checkpoint_bytes}");
        let other_named = recovered.database::<Str, Bytes>("named").unwrap();
        let other_tags = recovered.database_with::<Str, Bytes>("tags", &duplicates).unwrap();
        let (snapshot, other) = (store.snapshot().unwrap(), recovered.snapshot().unwrap());
        for (database, recovered) in [(&named, &other_named), (&tags, &other_tags)] {
            let found: Pairs<'_> = recovered.range(&other, ..).map(Result::unwrap).collect();
            let expected: Pairs<'_> = database.range(&snapshot, ..).map(Result::unwrap).collect();
            assert!(found == expected && found.len() > 4, "{checkpoint_bytes}");
        }
        recovered.verify().unwrap();
    }
}

#[test]
fn the_log_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = || -> u64 {
        let files =
            super::files(directory.path()).into_iter().filter(|path| !path.ends_with("data.mdb"));
        // One that is gone by now was reused or removed by a checkpoint.
        files.map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum()
    };
    // Two memtables and a group, the ends of segments, the segment in use, and four for reuse.
    const BOUND: u64 = 8 << 20;
    let write = |checkpoint_bytes: usize, rounds: u8| {
        let options = Store::options().checkpoint_bytes(checkpoint_bytes);
        let store = options.open(directory.path()).unwrap();
        for round in 0..rounds {
            for number in 0..8 {
                db(&store).put(&[number], &vec![round; 100_000]).wait().unwrap();
            }
            if checkpoint_bytes == 1 << 20 {
                assert!(bytes() < BOUND, "{} in round {round}", bytes());
            }
        }
        assert_eq!(store.stat().unwrap().log_bytes, bytes());
    };
    write(1 << 20, 60);
    // Segments that were made for larger checkpoints go.
    write(8 << 20, 60);
    assert!(bytes() > BOUND, "{}", bytes());
    drop(Store::options().checkpoint_bytes(1 << 20).open(directory.path()).unwrap());
    assert!(bytes() < BOUND, "{}", bytes());
    let store = Store::open(directory.path()).unwrap();
    db(&store).put(&[8], &vec![8; 500_000]).wait().unwrap();
    assert_eq!(store.stat().unwrap().entries, 9);
    store.verify().unwrap();
}

#[test]
fn a_volatile_store_recovers_and_opens_as_durable() {
    let directory = tempfile::tempdir().unwrap();
    leave_unclosed(directory.path());
    let volatile = Store::options().durability(Durability::Volatile);
    let store = volatile.open(directory.path()).unwrap();
    check(&store, 1);
    put(&store, 2);
    store.sync().wait().unwrap();
    drop(store);
    check(&Store::open(directory.path()).unwrap(), 2);
    leave_unclosed_by("recovery::dying_volatile_child", directory.path());
    let store = Store::open(directory.path()).unwrap();
    check(&store, 3);
    put(&store, 4);
    drop(store);
    check(&volatile.open(directory.path()).unwrap(), 4);
}

/// Flips a bit of a file; a second call restores it.
fn damage(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[track_caller]
fn assert_corrupt(directory: &Path, reason: &str) {
    for outcome in [Store::open(directory).map(drop), Store::check(directory).map(drop)] {
        match outcome {
            Err(error @ OpenError::Corrupt { .. }) => {
                assert!(error.to_string().contains(reason), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_missing_foreign_or_older_file_is_refused_by_name() {
    let [whole, other] = [(); 2].map(|()| {
        let directory = tempfile::tempdir().unwrap();
        leave_unclosed(directory.path());
        directory
    });
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    for path in super::files(whole.path()) {
        let relative = path.strip_prefix(whole.path()).unwrap();
        let tried = tempfile::tempdir().unwrap();
        super::copy_files(whole.path(), tried.path());
        fs::remove_file(tried.path().join(relative)).unwrap();
        assert_corrupt(tried.path(), &name(&path));
        fs::copy(other.path().join(relative), tried.path().join(relative)).unwrap();
        assert_corrupt(tried.path(), "another store");
    }
    // The record of a change that was acknowledged is cut off or damaged.
    let segment =
        super::files(whole.path()).into_iter().find(|path| path.ends_with("0000000000000001.log"));
    let segment = segment.unwrap();
    let kept = fs::read(&segment).unwrap();
    damage(&segment, 4096 + 1024 + 40);
    assert_corrupt(whole.path(), &name(&segment));
    fs::write(&segment, &kept[..4096 + 1024]).unwrap();
    assert_corrupt(whole.path(), &name(&segment));
    fs::write(&segment, &kept).unwrap();
    // Each head has a copy.
    damage(&segment, 20);
    check(&Store::open(whole.path()).unwrap(), 1);
    damage(&segment, 532);
    assert_corrupt(whole.path(), &name(&segment));
}

#[test]
fn an_older_data_file_is_recovered_from_the_log_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.mdb");
    let store = Store::open(directory.path()).unwrap();
    put(&store, 1);
    drop(store);
    let early = fs::read(&path).unwrap();
    let store = Store::open(directory.path()).unwrap();
    put(&store, 2);
    drop(store);
    // The log reaches back far enough.
    fs::write(&path, &early).unwrap();
    check(&Store::open(directory.path()).unwrap(), 2);
    // The log has lost the segments that an older data file would need.
    let options = Store::options().checkpoint_bytes(64 << 10);
    let store = options.open(directory.path()).unwrap();
    for number in 0..20 {
        db(&store).put(&[number], &vec![number; 500_000]).wait().unwrap();
    }
    drop(store);
    fs::write(&path, &early).unwrap();
    assert_corrupt(directory.path(), "is missing");
}

#[test]
fn each_file_put_back_to_an_older_copy_is_refused_or_harmless() {
    let open = directory_in_memory();
    let options = Store::options();
    let mut store = options.open(open.path()).unwrap();
    // The files of each copy, by their names.
    type Copy = Vec<(PathBuf, Vec<u8>)>;
    let copy = || -> Copy {
        let bytes = |path: PathBuf| {
            (path.strip_prefix(open.path()).unwrap().to_owned(), fs::read(&path).unwrap())
        };
        super::files(open.path()).into_iter().map(bytes).collect()
    };
    let mut copies = Vec::new();
    for number in 0..60u8 {
        let bytes = if number % 3 == 0 { 60_000 } else { 400 };
        let batch = Batch::new().put(&db(&store), &[number % 7], &vec![number; bytes]);
        store.write(batch.add(&db(&store), b"count", 1)).wait().unwrap();
        if number % 6 == 5 {
            copies.push((copy(), entries(&store)));
        }
        if number % 12 == 8 {
            // A checkpoint, which releases segments, and is over before the next copy.
            drop(store);
            store = options.open(open.path()).unwrap();
        }
    }
    let (newest, expected) = copies.pop().unwrap();
    let (mut refused, mut harmless) = (0, 0);
    let tried = directory_in_memory();
    let mut attempt = |files: &Copy, changed: &Path| {
        fs::remove_dir_all(tried.path()).unwrap();
        fs::create_dir_all(tried.path().join("log")).unwrap();
        files.iter().for_each(|(path, bytes)| fs::write(tried.path().join(path), bytes).unwrap());
        let is_whole = Store::check(tried.path()).is_ok();
        let read = options.clone().read_only(true).open(tried.path());
        let read = read.map(|store| store.verify().map(|_| entries(&store)).unwrap());
        let opened = options.open(tried.path());
        assert_eq!(read.is_ok(), opened.is_ok(), "{}: {:?}", changed.display(), read.err());
        match opened {
            Ok(store) => {
                assert!(read.unwrap() == expected, "{}", changed.display());
                assert!(entries(&store) == expected, "{}", changed.display());
                harmless += 1;
            }
            Err(error) => {
                assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
                let reason = error.to_string();
                assert!(reason.contains("log/") || reason.contains("data.mdb"), "{reason}");
                assert!(!is_whole, "{reason}");
                refused += 1;
            }
        }
    };
    for (older, _) in &copies {
        for (path, bytes) in older {
            let mut files = newest.clone();
            match files.iter_mut().find(|(own, _)| own == path) {
                Some((_, own)) if own == bytes => continue,
                Some((_, own)) => own.clone_from(bytes),
                None => files.push((path.clone(), bytes.clone())),
            }
            attempt(&files, path);
        }
        // All of the log is older.
        let is_data = |path: &Path| path.ends_with("data.mdb");
        if newest.iter().find(|(path, _)| is_data(path))
            == older.iter().find(|(path, _)| is_data(path))
        {
            // Then this is the whole directory of that time.
            continue;
        }
        let mut files: Copy = older.iter().filter(|(path, _)| !is_data(path)).cloned().collect();
        files.extend(newest.iter().find(|(path, _)| is_data(path)).cloned());
        attempt(&files, Path::new("log"));
    }
    for (number, (path, _)) in newest.iter().enumerate() {
        let mut files = newest.clone();
        files.remove(number);
        if !path.to_string_lossy().contains("spare") {
            attempt(&files, path);
        }
    }
    println!("{refused} refused, {harmless} harmless");
    assert!(refused > 10 && harmless > 10, "{refused} refused, {harmless} harmless");
}

#[test]
#[ignore = "the child of a_recovery_does_not_disturb_readers_in_another_process"]
fn reading_child() {
    let directory = std::env::var(super::DIRECTORY).unwrap();
    let store = Store::options().read_only(true).open(directory).unwrap();
    let before = store.snapshot().unwrap();
    println!("\nopened");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    for number in 0..ENTRIES {
        let value = db(&store).get(&before, format!("key {number}").as_bytes()).unwrap();
        assert_eq!(value, Some(&[1; 30][..]), "{number}");
    }
    check(&store, 4);
    println!("\nchecked");
}

#[test]
fn a_recovery_does_not_disturb_readers_in_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, mut said) = begin("recovery::dying_child", directory.path());
    await_line(&mut said, "written");
    let (mut reader, mut read) = begin("recovery::reading_child", directory.path());
    await_line(&mut read, "opened");
    writer.kill().unwrap();
    writer.wait().unwrap();
    let store = Store::open(directory.path()).unwrap();
    check(&store, 1);
    for round in 2..=4 {
        put(&store, round);
    }
    reader.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    await_line(&mut read, "checked");
    assert!(reader.wait().unwrap().success());
}
