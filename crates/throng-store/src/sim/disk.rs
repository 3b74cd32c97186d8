//! [`Disk`]: a disk in memory with faults.
//!
//! ```text
//!  log ──▶ Incarnation ──operation──▶ faults? ──▶ State: names, model ──▶ what a power cut leaves
//!  LMDB ── files in a directory of the incarnation ──────── copied at a power cut ──▶ the next one
//! ```
//!
//! An *incarnation* is the time between two power cuts. Each has a directory of its own for LMDB's files, so that
//! handles of an earlier one, which a test still holds, keep nothing from being opened and change nothing. Their
//! operations fail.
//!
//! The model says what each operation makes of the disk. Whatever a store makes in LMDB's world, such as the
//! directory of a draft, is on the disk at once.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use fastrand::Rng;
use tempfile::TempDir;

use super::model::{DiskModel, Loss, Name, ROOT, Rename};
use crate::disk::DATA_FILE;
use crate::disk::claim::HANDLES;
use crate::disk::draft::DRAFT;
use crate::log::files::{Files, OpenFile};
use crate::platform::{Clock, Platform};
use crate::{OpenError, Options, Store};

/// A simulated disk, for one store. Cheap to clone; all clones are the same disk.
///
/// A fault is set for operations to come, and an operation is counted if it changes something or makes it durable:
/// see [`Operation`].
#[derive(Clone, Debug)]
pub struct Disk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    parent: TempDir,
    state: Mutex<State>,
}

/// A kind of operation that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// A file or a directory is created.
    Create,
    /// Bytes are written to a file.
    Write,
    /// Room for a file is reserved.
    Allocate,
    /// A file is flushed.
    Flush,
    /// A file or directory gets another name.
    Rename,
    /// A file or directory is removed.
    Remove,
    /// The names in a directory are flushed.
    FlushNames,
    /// LMDB commits a transaction.
    Commit,
}

struct State {
    random: Rng,
    incarnation: u64,
    /// Directory of LMDB's files. The paths of the log's files begin with it, too.
    directory: PathBuf,
    /// Whether the power is cut, and no store was opened since.
    is_down: bool,
    model: DiskModel,
    /// Names as a running program sees them.
    names: BTreeMap<Name, usize>,
    /// Nodes made so far, the root included.
    nodes: usize,
    /// Number of the next event of the model.
    event: usize,
    operations: u64,
    faults: Faults,
    clock: Option<Arc<dyn Fn() -> Duration + Send + Sync>>,
    report: Option<Arc<dyn Fn(String) + Send + Sync>>,
    waiters: Vec<Waker>,
}

#[derive(Debug, Default)]
struct Faults {
    /// Number of operations up to the one at which the power fails.
    cut_in: Option<u64>,
    cut_per_mille: u32,
    /// Number of operations up to the one that fails.
    fail_in: Option<u64>,
    /// The kind of which the next operation fails.
    fail_next: Option<Operation>,
    fail_per_mille: u32,
    /// Bytes by which files may grow; `None` for any number.
    room: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Subject<'a> {
    Path(&'a Path),
    Node(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Failed,
    PowerCut,
}

const HANDLE_PARTS: usize = 5;
/// Error code of a broken device, `EIO`.
const BROKEN: i32 = 5;
/// Bytes that a commit of LMDB needs, at least.
const COMMIT_BYTES: u64 = 64 << 10;
/// Most changes in a transaction of a checkpoint, so that a checkpoint of a small store has several.
const TXN_CHANGES: usize = 24;

impl Disk {
    /// Creates an empty disk. LMDB's files lie in a temporary directory, in memory if the system has one there.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn new(seed: u64) -> io::Result<Disk> {
        let parent = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        let directory = fs::canonicalize(parent.path())?.join("0");
        fs::create_dir(&directory)?;
        let state = State {
            random: Rng::with_seed(seed),
            incarnation: 0,
            directory,
            is_down: false,
            model: DiskModel::default(),
            names: BTreeMap::new(),
            nodes: ROOT + 1,
            event: 0,
            operations: 0,
            faults: Faults::default(),
            clock: None,
            report: None,
            waiters: Vec::new(),
        };
        Ok(Disk(Arc::new(Shared { parent, state: Mutex::new(state) })))
    }

    /// Opens the store on this disk, which recovers it, and makes it first if there is none. The store has no
    /// threads: see [`Steps`](super::Steps).
    ///
    /// # Errors
    ///
    /// [`OpenError`], also by a fault of the disk.
    pub fn open(&self, options: &Options) -> Result<Store, OpenError> {
        let (path, options) = self.prepare(options.clone());
        options.open(path)
    }

    /// Returns the directory and the options by which [`Options::open`] opens the store on this disk. Switches the
    /// power on.
    #[doc(hidden)]
    pub fn prepare(&self, mut options: Options) -> (PathBuf, Options) {
        let mut state = self.lock();
        state.is_down = false;
        let files = Incarnation { disk: self.clone(), number: state.incarnation };
        options.platform = Arc::new(Platform {
            files: Arc::new(files),
            clock: Clock(Some(state.clock.clone().unwrap_or_else(|| Arc::new(|| Duration::ZERO)))),
            has_threads: false,
            txn_changes: TXN_CHANGES,
            id: Some(state.random.u64(..)),
        });
        (state.directory.clone(), options)
    }

    /// Sets the clock of stores that are opened from here on: the time since 1970. It stands still otherwise.
    pub fn set_clock(&self, now: impl Fn() -> Duration + Send + Sync + 'static) {
        self.lock().clock = Some(Arc::new(now));
    }

    /// Sets a function that gets a description of each operation and of each power cut.
    pub fn on_event(&self, report: impl Fn(String) + Send + Sync + 'static) {
        self.lock().report = Some(Arc::new(report));
    }

    /// Number of operations so far.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Cuts the power at an operation: 1 stands for the next one. The operation may have happened or not.
    pub fn cut_at(&self, operation: u64) {
        self.lock().faults.cut_in = Some(operation.max(1));
    }

    /// Cuts the power at each operation with a probability of so many per 1,000.
    pub fn cut_randomly(&self, per_mille: u32) {
        self.lock().faults.cut_per_mille = per_mille;
    }

    /// Makes an operation fail: 1 stands for the next one. A failed write has written any part, a failed flush has
    /// flushed any of the sectors, and a later flush does not flush the others.
    pub fn fail_at(&self, operation: u64) {
        self.lock().faults.fail_in = Some(operation.max(1));
    }

    /// Makes the next operation of a kind fail, as [`fail_at`](Disk::fail_at) does.
    ///
    /// ```
    /// use throng_store::sim::{Disk, Operation, Steps, Written};
    /// use throng_store::{Store, Str, WriteError};
    ///
    /// let disk = Disk::new(7)?;
    /// let store = disk.open(&Store::options())?;
    /// let names = store.default_database::<Str, Str>();
    /// let ticket = names.put("key", "value");
    /// disk.fail_next(Operation::Flush);
    /// assert_eq!(Steps::of(&store).write(), Written::Group);
    /// // Another segment of the log supersedes the record whose flush failed.
    /// assert!(matches!(ticket.wait(), Err(WriteError::Failed { .. })));
    /// assert_eq!(names.get(&store.snapshot()?, "key")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fail_next(&self, operation: Operation) {
        self.lock().faults.fail_next = Some(operation);
    }

    /// Makes each operation fail with a probability of so many per 1,000.
    pub fn fail_randomly(&self, per_mille: u32) {
        self.lock().faults.fail_per_mille = per_mille;
    }

    /// Sets the free space in bytes, or makes it unlimited. Files that are removed give theirs back.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.lock().faults.room = bytes;
    }

    /// Takes back all faults, also a full disk. A power cut stays.
    pub fn heal(&self) {
        self.lock().faults = Faults::default();
    }

    /// Whether the power is cut, and no store was opened since.
    pub fn is_down(&self) -> bool {
        self.lock().is_down
    }

    /// Registers a waker for the next power cut; returns whether the power is cut.
    #[doc(hidden)]
    pub fn poll_down(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        if !state.is_down && !state.waiters.iter().any(|waiter| waiter.will_wake(waker)) {
            state.waiters.push(waker.clone());
        }
        state.is_down
    }

    /// Cuts the power, unless it is cut already. Of what was not flushed, any part is lost. Every operation of the
    /// stores that are open fails from here on.
    ///
    /// # Errors
    ///
    /// The error of the operating system, if LMDB's file cannot be copied.
    pub fn cut_power(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_down {
            return Ok(());
        }
        let cut = state.cut(self.0.parent.path());
        self.tell(state, "power cut".into());
        cut
    }

    /// Releases the state, reports an event, and wakes the tasks that wait for a power cut.
    fn tell(&self, mut state: MutexGuard<'_, State>, event: String) {
        let report = state.report.clone();
        let waiters = if state.is_down { std::mem::take(&mut state.waiters) } else { Vec::new() };
        drop(state);
        if let Some(report) = report {
            report(event);
        }
        waiters.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock ends the test.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Draws what the power cut leaves, for the next incarnation.
    fn cut(&mut self, parent: &Path) -> io::Result<()> {
        let losses =
            [Loss::Everything, Loss::Nothing, Loss::Sectors, Loss::Pages, Loss::Few, Loss::Most];
        let loss = losses[self.random.usize(..losses.len())];
        let tree = self.model.after_power_cut(loss, &mut self.random);
        self.is_down = true;
        self.incarnation += 1;
        (self.faults.cut_in, self.faults.fail_in) = (None, None);
        (self.model, self.names, self.nodes) = (DiskModel::default(), BTreeMap::new(), ROOT + 1);
        for (path, file) in tree {
            let node = self.make_durable(&path, file.is_none());
            if let Some((bytes, length)) = file {
                self.model.fill(node, &bytes, length);
            }
        }
        let before = std::mem::replace(
            &mut self.directory,
            fs::canonicalize(parent)?.join(self.incarnation.to_string()),
        );
        fs::create_dir(&self.directory)?;
        for file in [Path::new(DATA_FILE), &Path::new(DRAFT).join(DATA_FILE)] {
            if before.join(file).try_exists()? {
                let to = self.directory.join(file);
                to.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::copy(before.join(file), to)?;
            }
        }
        Ok(())
    }

    fn next_event(&mut self) -> usize {
        self.event += 1;
        self.event
    }

    fn begin(&mut self, operation: Operation) -> Fate {
        self.operations += 1;
        let State { faults, random, .. } = self;
        let is_now = |left: &mut Option<u64>| {
            *left = left.and_then(|left| left.checked_sub(1));
            left.take_if(|left| *left == 0).is_some()
        };
        let mut is_drawn = |per_mille: u32| per_mille > 0 && random.u32(..1000) < per_mille;
        // Both are counted down, whichever comes first.
        let (is_cut, has_failed) = (is_now(&mut faults.cut_in), is_now(&mut faults.fail_in));
        let has_failed =
            faults.fail_next.take_if(|next| *next == operation).is_some() || has_failed;
        if is_cut || is_drawn(faults.cut_per_mille) {
            Fate::PowerCut
        } else if has_failed || is_drawn(faults.fail_per_mille) {
            Fate::Failed
        } else {
            Fate::Done
        }
    }

    /// Takes room for a file that grows; returns whether there is enough.
    fn grow(&mut self, bytes: u64) -> bool {
        let left = self.faults.room.map(|room| room.checked_sub(bytes));
        if let Some(Some(left)) = left {
            self.faults.room = Some(left);
        }
        left != Some(None)
    }

    fn shrink(&mut self, bytes: u64) {
        self.faults.room = self.faults.room.map(|room| room.saturating_add(bytes));
    }

    /// Returns a path within the disk. A store reaches its directory through the open handle.
    fn inside(&self, path: &Path) -> io::Result<PathBuf> {
        let mut parts = path.components();
        let path = if path.starts_with(HANDLES) {
            let handle: PathBuf = parts.by_ref().take(HANDLE_PARTS).collect();
            &fs::read_link(handle)?.join(parts.as_path())
        } else {
            path
        };
        path.strip_prefix(&self.directory).map(Path::to_owned).map_err(io::Error::other)
    }

    /// Returns the name of a path: its directory's node, which is made if it is missing, and the last part.
    fn name(&mut self, path: &Path) -> io::Result<Name> {
        let inside = self.inside(path)?;
        let (parent, name) = inside.parent().zip(inside.file_name()).ok_or_else(missing)?;
        let mut node = ROOT;
        let mut walked = PathBuf::new();
        for part in parent {
            walked.push(part);
            let name = (node, part.to_string_lossy().into_owned());
            node = match self.names.get(&name) {
                Some(node) => *node,
                None => self.make_durable(&walked, true),
            };
        }
        Ok((node, name.to_string_lossy().into_owned()))
    }

    fn node(&mut self, path: &Path) -> io::Result<usize> {
        if self.inside(path)?.as_os_str().is_empty() {
            return Ok(ROOT);
        }
        let name = self.name(path)?;
        self.names.get(&name).copied().ok_or_else(missing)
    }

    /// Makes a file or directory that is on the disk at once; its path is relative. Returns its node.
    fn make_durable(&mut self, path: &Path, is_directory: bool) -> usize {
        let mut directory = ROOT;
        let mut to = None;
        for part in path {
            directory = to.and_then(|to| self.names.get(&to).copied()).unwrap_or(directory);
            to = Some((directory, part.to_string_lossy().into_owned()));
        }
        let node = self.nodes;
        self.nodes += 1;
        let rename = Rename { node, is_directory, from: None, to };
        rename.apply(&mut self.names);
        self.model.make(&rename);
        node
    }

    fn rename(&mut self, node: usize, is_directory: bool, from: Option<Name>, to: Option<Name>) {
        let number = self.next_event();
        let rename = Rename { node, is_directory, from, to };
        rename.apply(&mut self.names);
        self.model.rename(number, rename);
    }

    fn path(&self, node: usize) -> PathBuf {
        let named = self.names.iter().find(|(_, named)| **named == node);
        named.map_or_else(PathBuf::new, |((directory, name), _)| self.path(*directory).join(name))
    }

    fn names_in(&self, directory: usize) -> impl Iterator<Item = (&Name, &usize)> {
        self.names.range((directory, String::new())..(directory + 1, String::new()))
    }

    fn empty(&mut self, directory: usize) {
        let inside = self.names_in(directory).map(|(name, node)| (name.clone(), *node));
        for (name, node) in inside.collect::<Vec<_>>() {
            let is_directory = self.model.is_directory(node);
            if is_directory {
                self.empty(node);
            } else {
                self.shrink(self.model.length(node));
            }
            self.rename(node, is_directory, Some(name), None);
        }
    }
}

/// The disk as a store of one incarnation sees it.
#[derive(Clone, Debug)]
struct Incarnation {
    disk: Disk,
    number: u64,
}

impl Incarnation {
    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.lock();
        match state.incarnation == self.number && !state.is_down {
            true => Ok(state),
            false => Err(broken()),
        }
    }

    /// Performs an operation as far as its fate says, and returns the outcome.
    fn operate<T>(
        &self,
        operation: Operation,
        subject: Subject<'_>,
        detail: &dyn Display,
        perform: impl FnOnce(&mut State, Fate) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.enter()?;
        let shown = match subject {
            Subject::Path(path) => state.inside(path).unwrap_or_else(|_| path.to_owned()),
            Subject::Node(node) => state.path(node),
        };
        let fate = state.begin(operation);
        let performed = perform(&mut state, fate);
        let outcome = match fate {
            Fate::Done => performed,
            Fate::Failed => performed.and_then(|_| Err(broken())),
            Fate::PowerCut => {
                state.cut(self.disk.0.parent.path())?;
                Err(broken())
            }
        };
        let ending = match (fate, &outcome) {
            (Fate::PowerCut, _) => ": power cut".into(),
            (_, Err(error)) => format!(": {error}"),
            (_, Ok(_)) => String::new(),
        };
        let shown = if shown.as_os_str().is_empty() { Path::new(".") } else { &shown };
        self.disk.tell(state, format!("{operation} {}{detail}{ending}", shown.display()));
        outcome
    }
}

impl Files for Incarnation {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn OpenFile>> {
        let node = self.operate(Operation::Create, Subject::Path(path), &"", |state, fate| {
            let name = state.name(path)?;
            if let Some(node) = state.names.get(&name).copied() {
                if fate != Fate::Failed {
                    state.shrink(state.model.length(node));
                    let number = state.next_event();
                    state.model.set_length(number, node, 0);
                }
                return Ok(node);
            }
            let node = state.nodes;
            if fate != Fate::Failed {
                state.nodes += 1;
                state.rename(node, false, None, Some(name));
            }
            Ok(node)
        })?;
        Ok(self.opened(node, true))
    }

    fn open(&self, path: &Path, is_written: bool) -> io::Result<Arc<dyn OpenFile>> {
        let node = self.enter()?.node(path)?;
        Ok(self.opened(node, is_written))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let target = to.file_name().unwrap_or_default().to_string_lossy();
        self.operate(
            Operation::Rename,
            Subject::Path(from),
            &format_args!(" to {target}"),
            |state, fate| {
                let node = state.node(from)?;
                let (from, to) = (state.name(from)?, state.name(to)?);
                if fate != Fate::Failed {
                    if let Some(replaced) = state.names.get(&to).copied() {
                        state.shrink(state.model.length(replaced));
                    }
                    state.rename(node, state.model.is_directory(node), Some(from), Some(to));
                }
                Ok(())
            },
        )
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operate(Operation::Remove, Subject::Path(path), &"", |state, fate| {
            let (node, name) = (state.node(path)?, state.name(path)?);
            if fate != Fate::Failed {
                state.shrink(state.model.length(node));
                state.rename(node, false, Some(name), None);
            }
            Ok(())
        })
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        if self.exists(path)? {
            return Ok(());
        }
        self.operate(Operation::Create, Subject::Path(path), &"", |state, fate| {
            let name = state.name(path)?;
            if fate != Fate::Failed {
                let node = state.nodes;
                state.nodes += 1;
                state.rename(node, true, None, Some(name));
            }
            Ok(())
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.operate(Operation::Remove, Subject::Path(path), &"", |state, fate| {
            let (node, name) = (state.node(path)?, state.name(path)?);
            if fate != Fate::Failed {
                state.empty(node);
                state.rename(node, true, Some(name), None);
            }
            Ok(())
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.enter()?.node(path).is_ok())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut state = self.enter()?;
        let node = state.node(directory)?;
        Ok(state.names_in(node).map(|((_, name), _)| name.clone()).collect())
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.enter()?;
        let node = state.node(path)?;
        Ok(state.model.length(node))
    }

    fn flush_names(&self, directory: &Path) -> io::Result<()> {
        // The parent of the store's directory is none of this disk's.
        if self.enter()?.inside(directory)?.ends_with("..") {
            return Ok(());
        }
        self.operate(Operation::FlushNames, Subject::Path(directory), &"", |state, fate| {
            if fate == Fate::Done {
                let (node, number) = (state.node(directory)?, state.next_event());
                state.model.flush(node, number);
            }
            Ok(())
        })
    }

    fn free_bytes(&self, _: &Path) -> Option<u64> {
        self.enter().ok()?.faults.room
    }

    fn begin_commit(&self) -> io::Result<()> {
        self.operate(Operation::Commit, Subject::Path(Path::new(DATA_FILE)), &"", |state, _| {
            match state.faults.room.is_none_or(|room| room >= COMMIT_BYTES) {
                true => Ok(()),
                false => Err(io::ErrorKind::StorageFull.into()),
            }
        })
    }
}

impl Incarnation {
    fn opened(&self, node: usize, is_written: bool) -> Arc<dyn OpenFile> {
        Arc::new(Opened { files: self.clone(), node, is_written })
    }
}

/// An open file, which keeps its node whatever becomes of its name.
#[derive(Debug)]
struct Opened {
    files: Incarnation,
    node: usize,
    is_written: bool,
}

impl OpenFile for Opened {
    fn length(&self) -> io::Result<u64> {
        Ok(self.files.enter()?.model.length(self.node))
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.files.enter()?;
        let length = state.model.length(self.node);
        let there = length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        state.model.read(self.node, offset, &mut bytes[..there]);
        if there < bytes.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn write(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        if !self.is_written {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut bytes = Vec::new();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let detail = format!(" at {offset}, {} bytes", bytes.len());
        self.files.operate(Operation::Write, Subject::Node(self.node), &detail, |state, fate| {
            let growth =
                (offset + bytes.len() as u64).saturating_sub(state.model.length(self.node));
            if !state.grow(growth) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if fate == Fate::Failed {
                let written = [0, state.random.usize(..=bytes.len()), bytes.len()];
                bytes.truncate(written[state.random.usize(..written.len())]);
            }
            let number = state.next_event();
            state.model.write(number, self.node, offset, &bytes);
            Ok(())
        })
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let detail = format!(" {length} bytes");
        self.files.operate(Operation::Allocate, Subject::Node(self.node), &detail, |state, fate| {
            if fate == Fate::Failed {
                return Ok(());
            }
            let growth = length.saturating_sub(state.model.length(self.node));
            if !state.grow(growth) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let number = state.next_event();
            state.model.set_length(number, self.node, length);
            Ok(())
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.files.operate(Operation::Flush, Subject::Node(self.node), &"", |state, fate| {
            let number = state.next_event();
            match fate {
                Fate::Done => state.model.flush(self.node, number),
                Fate::Failed => state.model.fail_flush(self.node, number),
                // What was not flushed is lost in part.
                Fate::PowerCut => {}
            }
            Ok(())
        })
    }

    fn flush_all(&self) -> io::Result<()> {
        self.flush()
    }

    fn has_name(&self) -> io::Result<bool> {
        // Nothing but the store removes names here.
        self.files.enter().map(|_| true)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.files.enter()?;
        Ok(state.node(path).is_ok_and(|node| node == self.node))
    }
}

impl Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Operation::Create => "create",
            Operation::Write => "write",
            Operation::Allocate => "allocate",
            Operation::Flush => "flush",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::FlushNames => "flush the names in",
            Operation::Commit => "commit",
        })
    }
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("State")
            .field("incarnation", &self.incarnation)
            .field("is_down", &self.is_down)
            .field("operations", &self.operations)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(BROKEN)
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}
