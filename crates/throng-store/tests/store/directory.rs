//! A data directory that is renamed, replaced, removed, or without some of its files, under an open store.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use throng_store::{Durability, OpenError, Options, Store, Until, WriteError};

use crate::{DIRECTORY, child, db, entries, new_store_with};

/// Options by which a few hundred writes make several checkpoints, and segments of the log.
fn options() -> Options {
    Store::options().checkpoint_bytes(128 << 10).keep_log(true)
}

fn put(store: &Store, number: u32) -> Result<(), WriteError> {
    db(store).put(&number.to_be_bytes(), &[number as u8; 4 << 10]).wait()
}

#[track_caller]
fn assert_numbers(store: &Store, numbers: impl Iterator<Item = u32>) {
    let expected: Vec<_> = numbers
        .map(|number| (number.to_be_bytes().to_vec(), vec![number as u8; 4 << 10]))
        .collect();
    assert!(entries(store) == expected);
}

/// Asserts that nothing was written, and that the sentence names the file and the way out.
#[track_caller]
fn assert_lost(outcome: Result<(), WriteError>, file: &str) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, WriteError::Failed { .. }), "{error:?}");
    let sentence = error.to_string();
    for part in [file, "was removed, renamed or replaced", "put it back", "restore a backup"] {
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn a_renamed_directory_keeps_its_store_and_leaves_another_of_its_name_alone() {
    let outside = tempfile::tempdir().unwrap();
    let path = |name: &str| outside.path().join(name);
    let first = options().open(path("data")).unwrap();
    (0..100).for_each(|number| put(&first, number).unwrap());
    fs::rename(path("data"), path("renamed")).unwrap();
    let second = options().open(path("data")).unwrap();
    for number in 100..400 {
        put(&first, number).unwrap();
        put(&second, 1000 + number).unwrap();
    }
    // Everything that is opened after the start is that of the renamed directory, too.
    first.database::<throng_store::Bytes, throng_store::Bytes>("made later").unwrap();
    first.backup(path("backup")).unwrap();
    assert!(first.stat().unwrap().checkpoints > 2 && first.stat().unwrap().log_bytes > 0);
    put(&first, 400).unwrap();
    let restored =
        Store::restore(path("backup"), path("renamed/log"), path("restored"), Until::End);
    restored.unwrap();
    drop(first);
    drop(second);
    for name in ["renamed", "restored"] {
        assert_numbers(&Store::open(path(name)).unwrap(), 0..=400);
    }
    assert_numbers(&Store::open(path("backup")).unwrap(), 0..400);
    assert_numbers(&Store::open(path("data")).unwrap(), 1100..1400);
}

#[test]
fn a_reader_follows_its_directory_through_a_renaming() {
    let outside = tempfile::tempdir().unwrap();
    let (data, renamed) = (outside.path().join("data"), outside.path().join("renamed"));
    let store = options().open(&data).unwrap();
    put(&store, 0).unwrap();
    let (mut reader, mut lines) = start(&mut reading(&data));
    assert_eq!(lines(), "read 1");
    fs::rename(&data, &renamed).unwrap();
    drop(Store::open(&data).unwrap());
    (1..300).for_each(|number| put(&store, number).unwrap());
    reader.stdin.as_mut().unwrap().write_all(b"again\n").unwrap();
    assert_eq!(lines(), "read 300");
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn a_write_after_the_directory_was_removed_is_refused() {
    for durability in [Durability::Durable, Durability::Volatile] {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("data");
        let store = options().durability(durability).open(&path).unwrap();
        put(&store, 0).unwrap();
        fs::remove_dir_all(&path).unwrap();
        assert_lost(put(&store, 1), ".mdb");
        // Another store under the name changes nothing.
        let other = Store::open(&path).unwrap();
        assert_lost(put(&store, 2), ".mdb");
        assert_numbers(&store, 0..1);
        drop(store);
        put(&other, 3).unwrap();
        drop(other);
        assert_numbers(&Store::open(&path).unwrap(), 3..4);
    }
}

#[test]
fn each_file_that_is_taken_away_is_missed_before_a_change_is_lost_and_can_be_put_back() {
    for (file, is_moved) in [
        ("data.mdb", false),
        ("data.mdb", true),
        ("log/0000000000000001.log", false),
        ("log/0000000000000001.log", true),
        ("log/mark", true),
        ("log", true),
    ] {
        let outside = tempfile::tempdir().unwrap();
        let (path, aside) = (outside.path().join("data"), outside.path().join("aside"));
        let store = options().open(&path).unwrap();
        put(&store, 0).unwrap();
        match is_moved {
            true => fs::rename(path.join(file), &aside).unwrap(),
            false => fs::remove_file(path.join(file)).unwrap(),
        }
        // A file that has another name is missed when names are written: by the next segment, or checkpoint.
        let failed = (1..1000).find_map(|number| Some((number, put(&store, number).err()?)));
        let (number, error) = failed.unwrap();
        assert!(is_moved || number == 1, "{file} at {number}");
        assert_lost(Err(error), if file == "log" { "log/0" } else { file });
        if is_moved {
            fs::rename(&aside, path.join(file)).unwrap();
            (number..number + 100).for_each(|number| put(&store, number).unwrap());
            drop(store);
            assert_numbers(&Store::open(&path).unwrap(), 0..number + 100);
        }
    }
}

#[test]
fn no_file_of_a_directory_admits_a_second_writer_by_its_removal() {
    let directory = tempfile::tempdir().unwrap();
    let (mut owner, mut lines) = start(&mut child("ownership::owning_child", directory.path(), ""));
    assert_eq!(lines(), "opened");
    for entry in fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with("data.mdb") {
            fs::remove_file(path).unwrap();
        }
    }
    // Nor does a directory of the same content get its place by another name.
    let alias = directory.path().join("alias");
    std::os::unix::fs::symlink(directory.path(), &alias).unwrap();
    for path in [directory.path(), &alias] {
        let refused = Store::open(path).unwrap_err();
        assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    Store::open(directory.path()).unwrap();
}

#[test]
fn a_table_of_readers_that_was_removed_is_not_begun_again_beside_its_users() {
    let (directory, store) = new_store_with(&options());
    put(&store, 0).unwrap();
    let table = directory.path().join("lock.mdb");
    let (mut reader, mut lines) = start(&mut reading(directory.path()));
    assert_eq!(lines(), "read 1");
    fs::remove_file(&table).unwrap();
    // Another reader would not be seen by this store, nor this reader by another store.
    let (mut second, mut second_lines) = start(&mut reading(directory.path()));
    let refused = second_lines();
    second.wait().unwrap();
    drop(store);
    let reopened = Store::open(directory.path()).unwrap_err().to_string();
    for sentence in [refused, reopened] {
        assert!(
            sentence.contains("lock.mdb") && sentence.contains("end that process first"),
            "{sentence}"
        );
    }
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert_numbers(&Store::open(directory.path()).unwrap(), 0..1);
}

#[test]
fn a_reader_without_permission_to_write_reads_while_nobody_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = options().open(path).unwrap();
    put(&store, 0).unwrap();
    drop(store);
    // A user who may read everything and write nothing; the superuser may write in any case.
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for file in crate::files(path) {
        mode(&file, if file.is_dir() { 0o555 } else { 0o444 });
    }
    mode(&path.join("lock.mdb"), 0o444);
    mode(&path.join("log"), 0o555);
    mode(path, 0o555);
    let as_reader = || {
        let mut command = reading(path);
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        command
    };
    let (mut reader, mut lines) = start(&mut as_reader());
    assert_eq!(lines(), "read 1");
    // No writer would see this reader.
    let refused = Store::open(path).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. } | OpenError::ReadOnly { .. }), "{refused}");
    reader.kill().unwrap();
    reader.wait().unwrap();
    mode(path, 0o755);
    for file in [&path.join("log"), &path.join("data.mdb"), &path.join("lock.mdb")] {
        mode(file, if file.is_dir() { 0o755 } else { 0o644 });
    }
    crate::files(path).iter().filter(|file| file.is_file()).for_each(|file| mode(file, 0o644));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let _store = Store::open(path).unwrap();
    let (mut reader, mut lines) = start(&mut as_reader());
    let sentence = lines();
    assert!(sentence.contains("grant that permission, or close the other store"), "{sentence}");
    assert!(!sentence.contains("is not writable"), "{sentence}");
    reader.wait().unwrap();
}

#[test]
fn a_copy_within_a_store_is_refused_and_a_refused_copy_leaves_nothing() {
    let outside = tempfile::tempdir().unwrap();
    let path = |name: &str| outside.path().join(name);
    let store = options().open(path("data")).unwrap();
    put(&store, 0).unwrap();
    store.backup(path("backup")).unwrap();
    for inside in ["data/copies/copy", "data/log/copy", "backup/copy"] {
        let refused = store.backup(path(inside)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("choose a directory outside"), "{refused}");
        let until = Until::End;
        Store::restore(path("backup"), path("data/log"), path(inside), until).unwrap_err();
    }
    assert!(!path("data/copies").exists() && !path("data/log/copy").exists());
    let until = Until::Position(1_000);
    Store::restore(path("backup"), path("data/log"), path("above/restored"), until).unwrap_err();
    assert!(!path("above").exists());
    // What was there before stays.
    fs::create_dir(path("above")).unwrap();
    Store::restore(path("backup"), path("data/log"), path("above"), until).unwrap_err();
    assert_eq!(fs::read_dir(path("above")).unwrap().count(), 0);
}

#[test]
fn a_file_in_the_place_of_a_directory_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let sentence = Store::open(file.path()).unwrap_err().to_string();
    assert!(sentence.contains("is not a directory; choose another path"), "{sentence}");
}

fn reading(directory: &Path) -> Command {
    child("directory::reading_child", directory, "")
}

/// Starts a child, and returns it with a function that returns its next line that is not the harness's.
fn start(command: &mut Command) -> (Child, impl FnMut() -> String + use<>) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let next = move || {
        let is_own =
            |line: &String| ["opened", "read ", "cannot"].iter().any(|own| line.starts_with(own));
        lines.by_ref().map(Result::unwrap).find(is_own).unwrap()
    };
    (child, next)
}

#[test]
#[ignore = "the child of the tests above"]
fn reading_child() {
    let path = std::env::var(DIRECTORY).unwrap();
    let store = match Store::options().read_only(true).open(path) {
        Ok(store) => store,
        Err(error) => return println!("\n{error}"),
    };
    // A snapshot that lives as long as the child.
    let _snapshot = store.snapshot().unwrap();
    loop {
        println!("\nread {}", entries(&store).len());
        if std::io::stdin().read_line(&mut String::new()).unwrap() == 0 {
            return;
        }
    }
}
