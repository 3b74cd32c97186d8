//! Power cuts at any moment keep every acknowledged batch, and each batch whole.
//!
//! A store is made, works, and is closed, while `disk.rs` notes all its changes of files and names,
//! and all flushes. Then, for each moment of that time, the test builds directories that a disk
//! might hold if the power failed there, and opens them. They must hold exactly the state after some
//! batch: not before the last acknowledged batch, nor after the last batch that was given to the
//! store.
//!
//! `THRONG_STORE_CUTS` is the least number of directories, `THRONG_STORE_SEED` the seed of them.

// Clippy grants this to tests by itself, but not to the functions they share.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

mod disk;
mod faults;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use disk::{DATA_FILE, Event, LOCK, Mark};
use tempfile::TempDir;
use throng_store::sim::model::{DiskModel, Loss, Tree};
use throng_store::{
    Batch, Bytes, Database, DatabaseOptions, Durability, OpenError, ReadError, SalvageError,
    Snapshot, Store, Str, Submission,
};

/// Held by each test: the process has a single trace, so the tests take turns.
static ALONE: Mutex<()> = Mutex::new(());

/// The expected content of a store.
#[derive(Clone, Default)]
struct Model {
    entries: BTreeMap<String, Vec<u8>>,
    named: BTreeMap<String, Vec<u8>>,
    tags: BTreeSet<(String, Vec<u8>)>,
}

/// A hash of all entries of a store or a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest(u64);

/// Hashes entries in order: the number of the database, the key, the value.
fn digest<'e>(all: impl Iterator<Item = (u8, &'e [u8], &'e [u8])>) -> Digest {
    let mut hasher = DefaultHasher::new();
    all.for_each(|entry| entry.hash(&mut hasher));
    Digest(hasher.finish())
}

impl Model {
    fn digest(&self) -> Digest {
        let entries = self.entries.iter().map(|(key, value)| (0, key.as_bytes(), &value[..]));
        let named = self.named.iter().map(|(key, value)| (1, key.as_bytes(), &value[..]));
        let tags = self.tags.iter().map(|(key, value)| (2, key.as_bytes(), &value[..]));
        digest(entries.chain(named).chain(tags))
    }
}

/// The databases that [`work`] uses.
struct Databases {
    entries: Database<Str, Bytes>,
    named: Database<Str, Bytes>,
    tags: Database<Str, Bytes>,
}

impl Databases {
    fn of(store: &Store) -> Databases {
        let several = DatabaseOptions::new().duplicates();
        let tags = store.database_with("tags", &several).unwrap();
        let entries = store.default_database();
        Databases { entries, named: store.database("named").unwrap(), tags }
    }

    fn digest(&self, snapshot: &Snapshot) -> Result<Digest, ReadError> {
        let entries = self.entries.range(snapshot, ..).collect::<Result<Vec<_>, _>>()?;
        let named = self.named.range(snapshot, ..).collect::<Result<Vec<_>, _>>()?;
        let tags = self.tags.range(snapshot, ..).collect::<Result<Vec<_>, _>>()?;
        let entries = entries.iter().map(|(key, value)| (0, key.as_bytes(), *value));
        let named = named.iter().map(|(key, value)| (1, key.as_bytes(), *value));
        let tags = tags.iter().map(|(key, value)| (2, key.as_bytes(), *value));
        Ok(digest(entries.chain(named).chain(tags)))
    }
}

/// Makes a batch and applies it to the model: several keys, some with values of many pages,
/// deletions, and now and then a `clear` of a database.
fn batch(databases: &Databases, model: &mut Model, random: &mut fastrand::Rng) -> Batch {
    let mut batch = Batch::new();
    let Databases { entries, named, tags } = databases;
    if random.u8(..16) == 0 {
        batch = batch.clear(named);
        model.named.clear();
    }
    for _ in 0..random.usize(1..8) {
        let key = format!("key {:03}", random.u8(..160));
        let bytes = if random.u8(..12) == 0 { random.usize(..12_000) } else { random.usize(..300) };
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(bytes).collect();
        match random.u8(..9) {
            0..4 => {
                batch = batch.put(entries, &key, &value);
                model.entries.insert(key, value);
            }
            4 | 5 => {
                batch = batch.put(named, &key, &value);
                model.named.insert(key, value);
            }
            6 => {
                let tag = [&[7], &value[..bytes.min(40)]].concat();
                // Few keys, so that the values of some need a tree of their own.
                let key = key[..5].to_owned();
                batch = batch.put(tags, &key, &tag);
                model.tags.insert((key, tag));
            }
            7 => {
                batch = batch.delete(entries, &key);
                model.entries.remove(&key);
            }
            _ => {
                batch = batch.delete(named, &key);
                model.named.remove(&key);
            }
        }
    }
    batch
}

/// The events while a store worked, and its state after each batch.
struct Work {
    events: Vec<Event>,
    states: Vec<Digest>,
}

/// Queues a batch, with a ticket or without, and returns a function that waits until it is durable.
fn write(store: &Store, mut batch: Batch, is_submitted: bool) -> Box<dyn FnOnce()> {
    if is_submitted {
        let submission = store.submit(&mut batch, Submission::START).unwrap();
        let settled = store.settled(submission);
        return Box::new(|| settled.wait().unwrap());
    }
    let ticket = store.write(batch);
    Box::new(|| ticket.wait().unwrap())
}

fn work(rounds: usize, durability: Durability, seed: u64) -> Work {
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let mut states = vec![model.digest()];
    disk::begin(directory.path());
    // A checkpoint follows every few commits.
    let options = Store::options().durability(durability).checkpoint_bytes(8 << 10);
    let options = options.keep_log(random.bool());
    let store = options.open(directory.path()).unwrap();
    let databases = Databases::of(&store);
    for _ in 0..rounds {
        let batches: Vec<Batch> = (0..random.usize(1..5))
            .map(|_| {
                let batch = batch(&databases, &mut model, &mut random);
                states.push(model.digest());
                batch
            })
            .collect();
        disk::mark(Mark::Given(states.len() - 1));
        let first = states.len() - batches.len();
        let writes: Vec<_> =
            batches.into_iter().map(|batch| write(&store, batch, random.bool())).collect();
        for (number, wait) in writes.into_iter().enumerate() {
            wait();
            disk::mark(Mark::Acknowledged(first + number));
        }
    }
    assert_eq!(databases.digest(&store.snapshot().unwrap()).unwrap(), model.digest());
    drop((databases, store));
    let events = disk::end();
    if durability == Durability::Durable {
        assert_complete(&events, directory.path());
    }
    Work { events, states }
}

/// Checks that the events lead to the files that are there: that none was missed.
fn assert_complete(events: &[Event], directory: &Path) {
    let mut disk = DiskModel::default();
    events.iter().enumerate().for_each(|(number, event)| event.change(number, &mut disk));
    disk.flush_all();
    let tree = disk.after_power_cut(Loss::Nothing, &mut fastrand::Rng::new());
    for (path, file) in &tree {
        let there = directory.join(path);
        let Some((bytes, length)) = file else {
            assert!(there.is_dir(), "{} is missing", path.display());
            continue;
        };
        if path == Path::new("reserve") {
            // Its length is set by a function that is not traced, and any length will do.
            continue;
        }
        let content = fs::read(&there).unwrap();
        assert_eq!(content.len() as u64, *length, "the length of {}", path.display());
        let (written, rest) = content.split_at(bytes.len());
        assert!(written == bytes && rest.iter().all(|byte| *byte == 0), "{}", path.display());
    }
    let directories = tree.iter().filter(|(_, file)| file.is_none()).map(|(path, _)| &**path);
    for parent in directories.chain([Path::new("")]) {
        for entry in fs::read_dir(directory.join(parent)).unwrap() {
            let name = entry.unwrap().file_name();
            let is_known = tree.contains_key(&parent.join(&name));
            assert!(is_known || name == LOCK, "{name:?} was missed");
        }
    }
}

/// Makes the files in a new directory.
fn put(tree: Tree, directory: &Path) {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir(directory).unwrap();
    for (path, file) in tree {
        let path = directory.join(path);
        let Some((bytes, length)) = file else {
            fs::create_dir(path).unwrap();
            continue;
        };
        fs::write(&path, bytes).unwrap();
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
    }
}

/// Opens the files that the power cut left, and returns their state or their fault.
fn reopen(directory: &Path, is_used: bool) -> Result<Digest, Box<dyn Error>> {
    let store = Store::options().check(true).open(directory)?;
    store.verify()?;
    // The databases are made in turn before the first batch, so the last may be missing.
    if store.databases().len() < 2 && store.stat()?.entries == 0 {
        return Ok(Model::default().digest());
    }
    let databases = Databases::of(&store);
    let found = databases.digest(&store.snapshot()?)?;
    if is_used {
        // The store works after its recovery.
        let batch = (0..200).fold(Batch::new(), |batch, number| {
            batch.put(&databases.entries, &format!("later {number}"), &[7; 100])
        });
        store.write(batch).wait()?;
        store.verify()?;
    }
    Ok(found)
}

/// The result of the power cuts.
#[derive(Debug, Default)]
struct Cuts {
    files: u64,
    moments: usize,
    faults: Vec<String>,
}

/// A directory in memory if there is one: failures of the disk are simulated.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Calls `look` at each moment with its number, its event, the disk as it is then, and the numbers of the states that
/// a power cut may leave there: from the last that is acknowledged to the last that was given.
fn at_each_moment(
    events: &[Event],
    mut look: impl FnMut(usize, &Event, &DiskModel, RangeInclusive<usize>),
) {
    let (mut disk, mut given, mut acknowledged) = (DiskModel::default(), 0, 0);
    for (moment, event) in events.iter().enumerate() {
        event.change(moment, &mut disk);
        match event {
            Event::Mark(Mark::Given(states)) => given = *states,
            Event::Mark(Mark::Acknowledged(states)) => acknowledged = *states,
            _ => {}
        }
        look(moment, event, &disk, acknowledged..=given.max(acknowledged));
        // Until here a power cut could lose what the event has flushed.
        event.flush(moment, &mut disk);
    }
}

/// Cuts the power at each moment of the work, `per_moment` times.
fn cut_everywhere(work: &Work, per_moment: usize, seed: u64, faults_max: usize) -> Cuts {
    let mut random = fastrand::Rng::with_seed(seed);
    let parent = directory();
    let directory = parent.path().join("store");
    let mut cuts = Cuts::default();
    at_each_moment(&work.events, |moment, event, disk, fitting| {
        if matches!(event, Event::Mark(Mark::Given(_))) || cuts.faults.len() >= faults_max {
            return;
        }
        cuts.moments += 1;
        let mut losses = vec![Loss::Nothing];
        if !disk.is_flushed() {
            losses.push(Loss::Everything);
            let others = [Loss::Sectors, Loss::Pages, Loss::Few, Loss::Most];
            losses.extend((0..per_moment).map(|_| others[random.usize(..others.len())]));
        }
        for loss in losses {
            put(disk.after_power_cut(loss, &mut random), &directory);
            let found = reopen(&directory, cuts.files % 8 == 0);
            cuts.files += 1;
            let is_fitting = |found| work.states[fitting.clone()].contains(found);
            if !found.as_ref().is_ok_and(is_fitting) && cuts.faults.len() < faults_max {
                let held = found.map(|found| work.states.iter().rposition(|state| *state == found));
                cuts.faults.push(format!(
                    "moment {moment}, {loss:?} lost: the state is that after batch {held:?}, not of {fitting:?}"
                ));
            }
        }
    });
    cuts
}

/// Returns the number of flushes of the data file since the first batch.
fn data_flushes(events: &[Event]) -> usize {
    let named = |event: &Event| match event {
        Event::Rename(rename) => rename.node_named(DATA_FILE),
        _ => None,
    };
    let data = events.iter().find_map(named).unwrap();
    let working = events.iter().skip_while(|event| !matches!(event, Event::Mark(_)));
    working.filter(|event| matches!(event, Event::Flush(node, _) if *node == data)).count()
}

fn number_or(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |number| number.parse().unwrap())
}

/// Waits for the turn of a test, and prints the seed by which it can be repeated.
fn take_turn() -> (MutexGuard<'static, ()>, u64, fastrand::Rng) {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = number_or("THRONG_STORE_SEED", fastrand::u64(..));
    println!("THRONG_STORE_SEED={seed}");
    (alone, seed, fastrand::Rng::with_seed(seed))
}

#[test]
fn a_power_cut_at_any_moment_loses_nothing_acknowledged() {
    let (_alone, seed, _) = take_turn();
    let files = number_or("THRONG_STORE_CUTS", 2_000);
    let mut done = 0;
    for seed in seed.. {
        let work = work(70, Durability::Durable, seed);
        let cuts = cut_everywhere(&work, 3, seed, 10);
        let flushes = data_flushes(&work.events);
        println!(
            "{} files at {} moments, {flushes} flushes, seed {seed}",
            cuts.files, cuts.moments
        );
        assert!(flushes >= 10, "too few checkpoints: {flushes} flushes of the data file");
        assert!(cuts.faults.is_empty(), "seed {seed}: {:#?}", cuts.faults);
        done += cuts.files;
        if done >= files {
            break;
        }
    }
}

/// The promise of a volatile store after a power cut: an opening with a check refuses it with the reason, or
/// gives a store that can be read and written. Its content may be any. A salvage of a refused store gives such
/// a store, too.
#[test]
fn a_volatile_store_after_a_power_cut_is_refused_or_readable() {
    let (_alone, seed, mut random) = take_turn();
    let Work { events, .. } = work(40, Durability::Volatile, seed);
    let parent = directory();
    let directory = parent.path().join("store");
    let (mut whole, mut refused, mut salvaged) = (0, 0, 0);
    at_each_moment(&events, |moment, event, disk, _| {
        let loss = [Loss::Sectors, Loss::Pages, Loss::Few, Loss::Most][moment % 4];
        if matches!(event, Event::Write { .. }) && moment % 2 == 0 {
            put(disk.after_power_cut(loss, &mut random), &directory);
            match reopen(&directory, true) {
                Ok(_) => whole += 1,
                Err(error) => {
                    let error = error.downcast_ref::<OpenError>().unwrap();
                    let is_reasoned = matches!(
                        error,
                        OpenError::Corrupt { .. }
                            | OpenError::Foreign { .. }
                            | OpenError::Format { .. }
                    );
                    assert!(is_reasoned, "moment {moment}, {loss:?} lost: {error}");
                    refused += 1;
                    let to = parent.path().join("salvaged");
                    match Store::salvage(&directory, &to) {
                        Ok(_) => {
                            reopen(&to, true).unwrap();
                            std::fs::remove_dir_all(&to).unwrap();
                            salvaged += 1;
                        }
                        Err(SalvageError::Nothing { .. }) => {}
                        Err(other) => panic!("moment {moment}, {loss:?} lost: {other}"),
                    }
                }
            }
        }
    });
    println!("{whole} readable, {refused} refused, of which {salvaged} salvaged");
    assert!(whole + refused > 50 && refused > 5, "{whole} readable, {refused} refused");
    assert!(salvaged > 0);
}

/// The same test must fail for a store that acknowledges writes before it flushes them.
#[test]
fn a_store_that_does_not_flush_is_detected() {
    let _alone = take_turn();
    let work = work(10, Durability::Volatile, 7);
    let cuts = cut_everywhere(&work, 3, 7, 3);
    assert_eq!(cuts.faults.len(), 3, "{cuts:?}");
}
