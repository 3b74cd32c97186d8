//! The store through its public API, against real files.

// Clippy grants this to tests by itself, but not to the functions they share.
#![allow(clippy::unwrap_used)]

mod backup;
mod contract;
mod copies;
mod crash;
mod damage;
mod databases;
#[cfg(target_os = "linux")]
mod directory;
mod feed;
mod foreign;
mod full;
mod history;
mod load;
#[cfg(unix)]
mod modes;
mod options;
mod ownership;
#[cfg(unix)]
mod recovery;
mod restore;
#[cfg(unix)]
mod salvage;
mod scans;
mod sim;
mod snapshots;
mod submissions;
mod transactions;
mod visibility;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

use tempfile::TempDir;
use throng_store::{Bytes, Database, Options, ReadError, Store, Str};

/// The command that runs one ignored test of this binary in a process of its own.
///
/// `limit` is a prefix in `sh`, for limits that the child inherits.
fn child(test: &str, directory: &Path, limit: &str) -> Command {
    let binary = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{limit} exec \"$0\" \"$@\"")])
        .arg(binary)
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory);
    command
}

/// Environment variable that names the data directory to a child.
const DIRECTORY: &str = "THRONG_STORE_TEST_DIRECTORY";

/// The number in an environment variable, such as a count of repetitions, or `otherwise`.
fn number_or(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |number| number.parse().unwrap())
}

/// The files of a store that hold its content: the data file and those of the log, in order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let log = fs::read_dir(directory.join("log")).unwrap();
    let mut files: Vec<_> = log.map(|entry| entry.unwrap().path()).collect();
    files.push(directory.join("data.mdb"));
    files.sort();
    files
}

/// A directory in memory if there is one, for files that need not be durable.
fn directory_in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Opens a store in a directory of its own.
fn new_store() -> (TempDir, Store) {
    new_store_with(&Store::options())
}

fn new_store_with(options: &Options) -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = options.open(directory.path()).unwrap();
    (directory, store)
}

/// Keeps the writer in an update until the sender is dropped or used.
fn hold_up(store: &Store) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel();
    let (begun, began) = mpsc::channel();
    let held = store.update(move |_| {
        let _ = begun.send(());
        let _ = released.recv();
        Ok::<_, ReadError>(())
    });
    began.recv().unwrap();
    // An update runs to its end although its ticket is dropped.
    drop(held);
    release
}

/// The default database, of bytes.
fn db(store: &Store) -> Database {
    store.default_database()
}

/// The default database, of texts and bytes.
fn texts(store: &Store) -> Database<Str, Bytes> {
    store.default_database()
}

/// The entries of a store's default database.
fn entries(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let snapshot = store.snapshot().unwrap();
    let entries = db(store).range(&snapshot, ..).map(Result::unwrap);
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Copies the files of a store that hold its content.
fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("log")).unwrap();
    for path in files(from) {
        fs::copy(&path, to.join(path.strip_prefix(from).unwrap())).unwrap();
    }
}
