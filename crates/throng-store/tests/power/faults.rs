//! Each operation of the store on its files and names fails, at each of its places in a run.
//!
//! | column | |
//! |---|---|
//! | kind of file, operation | as `disk.rs` counts them in a run without a fault |
//! | fault | an error of the device, once, or on every operation from then on; a full disk until there is room again |
//! | files | a new store; a store that was killed |
//! | reader | none; another process, with a snapshot from the beginning and new ones |
//!
//! After each batch the store, and the reader, must show exactly the acknowledged state. After the fault, the
//! files are read as a kill and as power cuts leave them at some moments, and after the store is closed.
//!
//! `THRONG_STORE_FAULTS` is the number of faults for each kind of file, operation and fault; with 1, half of
//! these are left out at random.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use throng_store::{OpenError, Options, WriteError};

use super::disk::{Counts, Fault, Kind, Operation, Then};
use super::*;

/// Number of batches in a run.
const BATCHES: usize = 16;
/// Time after which a store must accept writes again.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that reads a store beside this one.
struct Reader {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Reads stores as its input asks, until that ends: `open` and a directory take a store's first snapshot,
/// `first` reads it, `read` takes another one.
#[test]
#[ignore = "the child of an_operation_that_fails_loses_nothing_acknowledged"]
fn reading_child() {
    let mut opened: Option<(Store, Snapshot)> = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let digest = match line.split_once(' ') {
            Some(("open", directory)) => {
                let store = Store::options().read_only(true).open(directory).unwrap();
                let first = store.snapshot().unwrap();
                let digest = digest_of(&store, &first);
                opened = Some((store, first));
                digest
            }
            _ => match (&*line, &opened) {
                ("first", Some((store, first))) => digest_of(store, first),
                ("read", Some((store, _))) => digest_of(store, &store.snapshot().unwrap()),
                _ => {
                    opened = None;
                    Digest(0)
                }
            },
        };
        println!("\ndigest {}", digest.0);
    }
}

impl Reader {
    fn start() -> Reader {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "faults::reading_child", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Reader { child, input: Some(input), output: BufReader::new(output) }
    }

    fn ask(&mut self, question: &str) -> Digest {
        writeln!(self.input.as_mut().unwrap(), "{question}").unwrap();
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some(digest) = line.strip_prefix("digest ") {
                return Digest(digest.trim().parse().unwrap());
            }
            line.clear();
        }
        panic!("the reader has ended: {:?}", self.child.wait());
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = std::io::copy(&mut self.output, &mut std::io::sink());
        let _ = self.child.wait();
    }
}

/// Returns the digest of all databases that [`work`] uses, also if some are not made yet.
fn digest_of(store: &Store, snapshot: &Snapshot) -> Digest {
    let entries = store.default_database::<Bytes, Bytes>();
    let entries = entries.range(snapshot, ..).map(Result::unwrap);
    let entries: Vec<_> = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    let mut all = [Vec::new(), Vec::new()];
    for (name, found) in ["named", "tags"].iter().zip(&mut all) {
        let several = DatabaseOptions::new().duplicates().existing();
        let options = if *name == "tags" { several } else { DatabaseOptions::new().existing() };
        let Ok(database) = store.database_with::<Bytes, Bytes>(name, &options) else { continue };
        let found_in = database.range(snapshot, ..).map(Result::unwrap);
        found.extend(found_in.map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    let numbered = [&entries, &all[0], &all[1]].into_iter().zip(0u8..);
    let entries = numbered.flat_map(|(all, number)| {
        all.iter().map(move |(key, value)| (number, key.as_slice(), value.as_slice()))
    });
    digest(entries)
}

fn digest_now(store: &Store) -> Digest {
    digest_of(store, &store.snapshot().unwrap())
}

/// A directory with files, and the state that they hold.
struct Files {
    directory: TempDir,
    model: Model,
}

/// Copies the files that belong to a copy, of a store that is not open.
fn copy(from: &Path) -> TempDir {
    let to = directory();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(from.join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            if from.join(&path).is_dir() {
                fs::create_dir(to.path().join(&path)).unwrap();
                directories.push(path);
            } else if !path.ends_with(LOCK) {
                fs::copy(from.join(&path), to.path().join(&path)).unwrap();
            }
        }
    }
    to
}

/// Makes a store as a kill leaves it, with changes in LMDB and in the log.
fn killed() -> Files {
    let open = directory();
    disk::begin(open.path());
    let store = Store::options().checkpoint_bytes(8 << 10).open(open.path()).unwrap();
    let databases = Databases::of(&store);
    let (mut model, mut random) = (Model::default(), fastrand::Rng::with_seed(5));
    for _ in 0..12 {
        store.write(batch(&databases, &mut model, &mut random)).wait().unwrap();
    }
    let events = disk::end();
    drop((databases, store));
    // A copy of the files themselves would not be of one moment, because checkpoints may go on.
    let mut disk = DiskModel::default();
    events.iter().enumerate().for_each(|(number, event)| event.change(number, &mut disk));
    let directory = directory();
    put(disk.after_power_cut(Loss::Nothing, &mut random), directory.path());
    Files { directory, model }
}

/// A run of a store with a fault.
struct Run<'r> {
    options: &'r Options,
    /// The files at the beginning.
    files: Option<&'r Files>,
    fault: Option<Fault>,
    reader: Option<&'r mut Reader>,
    random: fastrand::Rng,
}

/// The result of a run.
struct Done {
    events: Vec<Event>,
    counts: Counts,
    states: Vec<Digest>,
}

impl Run<'_> {
    fn run(&mut self) -> Done {
        let directory = match self.files {
            Some(files) => copy(files.directory.path()),
            None => directory(),
        };
        let path = directory.path();
        let mut model = self.files.map_or(Model::default(), |files| files.model.clone());
        let mut states = vec![model.digest()];
        disk::begin(path);
        disk::mark(Mark::Acknowledged(0));
        disk::fail(self.fault);
        let store = self.open(path);
        let databases = self.databases(&store);
        assert_eq!(digest_now(&store), states[0]);
        let first = self.reader.as_mut().map(|reader| {
            let first = reader.ask(&format!("open {}", path.display()));
            assert_eq!(first, states[0], "the reader");
            first
        });
        let mut refusals = 0;
        for number in 0..BATCHES {
            // There is room again, or the device works again.
            if refusals > 2 || number == BATCHES - 3 {
                self.mend();
                refusals = 0;
            }
            let before = model.digest();
            let mut next = model.clone();
            // A load has no record.
            let loaded =
                (number % 6 == 5).then(|| ["a", "b"].map(|name| format!("l{number}{name}")));
            let mut written = batch(&databases, &mut next, &mut self.random);
            if number == 3 || number == 8 {
                // The log needs another segment.
                let value = vec![number as u8; 270_000];
                written = written.put(&databases.entries, "large", &value);
                next.entries.insert("large".to_owned(), value);
            } else {
                written = written.delete(&databases.entries, "large");
                next.entries.remove("large");
            }
            if let Some(keys) = &loaded {
                next = model.clone();
                next.entries.extend(keys.iter().map(|key| (key.clone(), vec![7; 100])));
            }
            states.push(next.digest());
            disk::mark(Mark::Given(states.len() - 1));
            let outcome = match loaded {
                Some(keys) => databases
                    .entries
                    .load(keys.map(|key| (key, [7; 100])))
                    .map(drop)
                    .map_err(|_| None),
                None => store.write(written).wait().map_err(Some),
            };
            let is_stored = match outcome {
                Ok(()) => true,
                Err(Some(
                    WriteError::Full { .. } | WriteError::Failed { .. } | WriteError::Recovering(_),
                )) => false,
                Err(Some(WriteError::Unknown { .. }) | None) => {
                    self.mend();
                    self.resolve(&store, &[before, next.digest()]) == next.digest()
                }
                Err(Some(other)) => panic!("{other:?}"),
            };
            if is_stored {
                model = next;
            } else {
                refusals += 1;
                states.push(before);
            }
            disk::mark(Mark::Acknowledged(states.len() - 1));
            if !store.is_writable() {
                self.mend();
                self.resolve(&store, &[model.digest()]);
            }
            // The engine may be reopened without a batch that was refused.
            if let Ok(snapshot) = store.snapshot() {
                assert_eq!(digest_of(&store, &snapshot), model.digest(), "batch {number}");
            }
            if let Some(reader) = &mut self.reader
                && (number % 3 == 0 || refusals > 0)
            {
                assert_eq!(reader.ask("read"), model.digest(), "the reader, batch {number}");
            }
            let is_well = number >= BATCHES - 3 && !is_stored;
            assert!(!is_well, "batch {number} is refused without a fault");
        }
        let counts = disk::counts();
        if let Some(reader) = &mut self.reader {
            assert_eq!(Some(reader.ask("first")), first);
            reader.ask("close");
        }
        drop((databases, store));
        let events = disk::end();
        assert_eq!(reopen(path, true).unwrap(), model.digest());
        Done { events, counts, states }
    }

    /// Opens the store, again and again while operations fail.
    fn open(&mut self, directory: &Path) -> Store {
        for attempt in 0.. {
            match self.options.open(directory) {
                Ok(store) => return store,
                Err(OpenError::Io { .. }) if attempt < 2 => {}
                Err(OpenError::Io { .. }) if self.fault.is_some() => self.mend(),
                Err(other) => panic!("attempt {attempt}: {other}"),
            }
        }
        unreachable!()
    }

    fn databases(&mut self, store: &Store) -> Databases {
        let several = DatabaseOptions::new().duplicates();
        let began = Instant::now();
        loop {
            let tags = store.database_with("tags", &several);
            if let (Ok(named), Ok(tags)) = (store.database("named"), tags) {
                return Databases { entries: store.default_database(), named, tags };
            }
            assert!(began.elapsed() < PATIENCE, "{:?}", store.database::<Str, Bytes>("named"));
            if began.elapsed() > Duration::from_millis(10) {
                self.mend();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the fault.
    fn mend(&mut self) {
        disk::fail(None);
        self.fault = None;
    }

    /// Waits until the store accepts writes and can be read; it must have one of these states.
    fn resolve(&self, store: &Store, states: &[Digest]) -> Digest {
        let began = Instant::now();
        loop {
            // A write makes the store notice that the engine is to be reopened.
            let is_usable = store.write(Batch::new()).wait().is_ok() && store.is_writable();
            if is_usable && let Ok(snapshot) = store.snapshot() {
                let found = digest_of(store, &snapshot);
                assert!(states.contains(&found), "neither all nor nothing");
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "the store does not recover");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Cuts the power at moments of a run, and returns the number of power cuts.
fn cut(done: &Done, is_cut: impl Fn(usize) -> bool, random: &mut fastrand::Rng) -> usize {
    let directory = directory();
    let directory = directory.path().join("store");
    let mut cuts = 0;
    at_each_moment(&done.events, |moment, _, disk, fitting| {
        if is_cut(moment) {
            // Nothing is lost if the process is killed.
            for loss in [Loss::Nothing, Loss::Everything, Loss::Sectors] {
                put(disk.after_power_cut(loss, random), &directory);
                let found = reopen(&directory, false);
                let is_fitting = |found| done.states[fitting.clone()].contains(found);
                let is_kept = found.as_ref().is_ok_and(is_fitting);
                assert!(is_kept, "moment {moment}, {loss:?} lost: {found:?}");
                cuts += 1;
            }
        }
    });
    cuts
}

/// Cuts the power at some moments after the fault.
fn cut_after_fault(done: &Done, random: &mut fastrand::Rng) -> usize {
    let is_fault = |event: &Event| matches!(event, Event::Mark(Mark::Failed));
    let Some(failed) = done.events.iter().position(is_fault) else { return 0 };
    let left = done.events.len() - failed;
    let moments = [0, random.usize(..left.min(20)), random.usize(..left), random.usize(..left)];
    cut(done, |moment| moment >= failed && moments.contains(&(moment - failed)), random)
}

/// `EIO` and `ENOSPC`.
const FAULTS: [(&str, i32, Then); 3] = [
    ("once", libc::EIO, Then::Nothing),
    ("all", libc::EIO, Then::Everything),
    ("full", libc::ENOSPC, Then::Same),
];

#[test]
fn an_operation_that_fails_loses_nothing_acknowledged() {
    let (_alone, _, mut random) = take_turn();
    let faults = number_or("THRONG_STORE_FAULTS", 1) as usize;
    let mut reader = Reader::start();
    let killed = killed();
    let (mut runs, mut cuts) = (0, 0);
    for files in [None, Some(&killed)] {
        // The full size runs with both.
        let kept = if faults > 1 { vec![false, true] } else { vec![random.bool()] };
        for keep_log in kept {
            let options = Store::options().checkpoint_bytes(8 << 10).keep_log(keep_log);
            let seed = random.u64(..);
            let run = |fault, reader: Option<&mut Reader>| {
                let random = fastrand::Rng::with_seed(seed);
                Run { options: &options, files, fault, reader, random }.run()
            };
            let counts = run(None, None).counts;
            println!("{}, keep_log {keep_log}: {counts:?}", files.map_or("new", |_| "killed"));
            for ((kind, operation), count) in counts {
                for (name, code, then) in FAULTS {
                    if faults == 1 && random.bool() {
                        continue;
                    }
                    for fault in 0..faults.min(count) {
                        let drawn = random.usize(..count);
                        let before = if faults < count { drawn } else { fault };
                        let halves = random.usize(..3);
                        let fault = Fault { kind, operation, before, then, code, halves };
                        let is_read = random.bool() && files.is_some();
                        println!("{name}: {fault:?}, reader: {is_read}");
                        let done = run(Some(fault), is_read.then_some(&mut reader));
                        cuts += cut_after_fault(&done, &mut random);
                        runs += 1;
                    }
                }
            }
        }
    }
    println!("{runs} runs, {cuts} power cuts");
    assert!(runs > 20 && cuts > 100, "{runs} runs, {cuts} power cuts");
}

/// A meta page reaches the disk, though its write fails, and so do the flushes after it. LMDB's old content of the page
/// must be on the disk before the next commit writes over pages of the failed one.
#[test]
fn a_power_cut_after_a_failed_meta_page_leaves_a_whole_commit() {
    let (_alone, _, mut random) = take_turn();
    let (killed, mut cuts, mut opened) = (killed(), 0, false);
    let options = Store::options().checkpoint_bytes(8 << 10);
    let (kind, operation, then) = (Kind::Data, Operation::Write, Then::Everything);
    for before in 0.. {
        let fault = Some(Fault { kind, operation, before, then, code: libc::EIO, halves: 2 });
        let (files, random_of_run) = (Some(&killed), random.fork());
        let done =
            Run { options: &options, files, fault, reader: None, random: random_of_run }.run();
        let is_fault = |event: &Event| matches!(event, Event::Mark(Mark::Failed));
        let Some(failed) = done.events.iter().position(is_fault) else { break };
        if matches!(&done.events[failed + 1], Event::Write { bytes, .. } if bytes.len() < 512) {
            cuts += cut(&done, |moment| (failed..failed + 16).contains(&moment), &mut random);
            let is_given = |event: &Event| matches!(event, Event::Mark(Mark::Given(_)));
            opened |= done.events[..failed].iter().any(is_given);
        }
    }
    println!("{cuts} power cuts");
    assert!(cuts > 100 && opened, "{cuts} power cuts");
}

#[test]
fn a_power_cut_during_a_recovery_loses_nothing_acknowledged() {
    let (_alone, _, mut random) = take_turn();
    let (killed, mut cuts) = (killed(), 0);
    // With and without checkpoints during the recovery.
    for checkpoint_bytes in [1 << 10, 1 << 20] {
        let options = Store::options().checkpoint_bytes(checkpoint_bytes).keep_log(random.bool());
        let (files, random_of_run) = (Some(&killed), random.fork());
        let done =
            Run { options: &options, files, fault: None, reader: None, random: random_of_run }
                .run();
        let mark = |event: &Event| matches!(event, Event::Mark(_));
        let begin = done.events.iter().position(mark).unwrap();
        let end = begin + 1 + done.events[begin + 1..].iter().position(mark).unwrap();
        assert!(end - begin > 3, "{} events", end - begin);
        for _ in 0..3 {
            cuts += cut(&done, |moment| moment > begin && moment <= end, &mut random);
        }
    }
    println!("{cuts} power cuts");
}

/// A process was killed between the write of its records and their flush. A recovery shows them, and writes them
/// to LMDB, so it must flush them first.
#[test]
fn a_power_cut_after_a_killed_flush_leaves_a_log_that_reaches_lmdb() {
    let (_alone, _, mut random) = take_turn();
    let Files { directory: before, mut model } = killed();
    let segments = fs::read_dir(before.path().join("log")).unwrap();
    let segments = segments.map(|entry| entry.unwrap().path());
    let segment = segments.filter(|path| path.extension().is_some()).max().unwrap();
    let segment = segment.strip_prefix(before.path()).unwrap();

    let (after, mut states) = (copy(before.path()), vec![model.digest()]);
    let store = Store::options().checkpoint_bytes(1 << 20).open(after.path()).unwrap();
    let databases = Databases::of(&store);
    for _ in 0..20 {
        store.write(batch(&databases, &mut model, &mut random)).wait().unwrap();
        states.push(model.digest());
    }
    let written = fs::read(after.path().join(segment)).unwrap();
    drop((databases, store));

    disk::begin(before.path());
    disk::mark(Mark::Acknowledged(0));
    let file = fs::OpenOptions::new().write(true).open(before.path().join(segment)).unwrap();
    file.write_all_at(&written, 0).unwrap();
    disk::mark(Mark::Given(states.len() - 1));
    let store = Store::options().checkpoint_bytes(1 << 10).open(before.path()).unwrap();
    assert_eq!(digest_now(&store), model.digest());
    disk::mark(Mark::Acknowledged(states.len() - 1));
    drop(store);
    let done = Done { events: disk::end(), counts: Counts::new(), states };
    let given = |event: &Event| matches!(event, Event::Mark(Mark::Given(_)));
    let begin = done.events.iter().position(given).unwrap();
    let cuts = cut(&done, |moment| moment > begin, &mut random);
    println!("{cuts} power cuts");
    assert!(cuts > 100, "{cuts} power cuts");
}
