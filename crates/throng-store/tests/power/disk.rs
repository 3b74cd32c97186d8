//! A layer between the store and the disk: it notes each change of the store's files and names in
//! their order, and builds the directories that a disk may hold after a power cut.
//!
//! ```text
//!  store, engine ──▶ functions of libc below ──▶ system calls
//!                          │ events
//!                          ▼
//!                  DiskModel: names, contents ──▶ a directory after a power cut
//! ```
//!
//! The engine is C code, linked into this test binary. The binary's functions take precedence over
//! the C library's, so the engine calls the functions below. They perform everything by system
//! call, so the files have the right content, but omit flushes, whose effect no test here needs.
//! Rust's standard library calls them, too, and also for other files, which are not noted. A change
//! that bypasses them is noticed: the length of a file is compared at each of its events, and the
//! test compares all files at its end.
//!
//! The simulator's model of a disk says what each event means, and draws what a power cut leaves. A write to a
//! descriptor with `O_DSYNC` has its sectors on the disk when it returns.
//!
//! A test can make an operation fail ([`Fault`]).

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throng_store::sim::model::{DiskModel, Name, ROOT, Rename};

/// An event of the trace. Files and directories are named by the number of their node.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Rename(Rename),
    Write {
        node: usize,
        offset: u64,
        bytes: Vec<u8>,
        is_flushed: bool,
    },
    Length(usize, u64),
    /// End of a flush that began before the event of this number.
    Flush(usize, usize),
    /// End of a flush that failed.
    FailedFlush(usize, usize),
    /// A note of the test itself.
    Mark(Mark),
}

impl Event {
    /// Makes the change, which a power cut may lose.
    pub(crate) fn change(&self, number: usize, disk: &mut DiskModel) {
        match self {
            Event::Rename(rename) => disk.rename(number, rename.clone()),
            Event::Write { node, offset, bytes, .. } => disk.write(number, *node, *offset, bytes),
            Event::Length(node, bytes) => disk.set_length(number, *node, *bytes),
            Event::Flush(..) | Event::FailedFlush(..) | Event::Mark(_) => {}
        }
    }

    /// Puts on the disk what the event has flushed.
    pub(crate) fn flush(&self, number: usize, disk: &mut DiskModel) {
        match self {
            Event::Flush(node, begun) => disk.flush(*node, *begun),
            Event::FailedFlush(node, begun) => disk.fail_flush(*node, *begun),
            Event::Write { node, offset, bytes, is_flushed: true } => {
                disk.flush_write(number + 1, *node, *offset, bytes.len());
            }
            _ => {}
        }
    }
}

/// A note of the test about its own progress.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// Number of batches that were given to the store.
    Given(usize),
    /// Number of batches that are acknowledged.
    Acknowledged(usize),
    /// The first operation failed.
    Failed,
}

/// The files of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Data,
    Segment,
    Mark,
    Directory,
}

/// An operation on a file or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Create,
    Write,
    Flush,
    Length,
    Rename,
    Remove,
}

/// A failure of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) operation: Operation,
    /// Number of such operations before the one that fails.
    pub(crate) before: usize,
    /// Operations that fail afterwards.
    pub(crate) then: Then,
    /// Error code of the system.
    pub(crate) code: c_int,
    /// Part of a failed write that is written: in halves.
    pub(crate) halves: usize,
}

/// The operations that fail after the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// Every operation of the same kind on a file of the same kind.
    Same,
    Everything,
}

/// File that a store needs only while it is open; it is not noted.
pub(crate) const LOCK: &str = "lock.mdb";

/// Name of the data file.
pub(crate) const DATA_FILE: &str = "data.mdb";

/// Duration of a flush of the data file, so that other threads have time to write meanwhile.
const DATA_FLUSH: Duration = Duration::from_millis(2);

/// Duration of any other flush.
const OTHER_FLUSH: Duration = Duration::from_micros(50);

struct Trace {
    directory: PathBuf,
    /// Nodes by the device and number of their inodes.
    nodes: HashMap<(u64, u64), usize>,
    /// By node: the length of the file.
    lengths: Vec<u64>,
    events: Vec<Event>,
    fault: Option<Fault>,
    counts: Counts,
}

/// Number of operations of each kind.
pub(crate) type Counts = BTreeMap<(Kind, Operation), usize>;

static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

/// Locks the trace. Each call below holds the lock, so events are in the order of their effects.
fn trace() -> MutexGuard<'static, Option<Trace>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to note the events in this directory. The files that are there are flushed.
pub(crate) fn begin(directory: &Path) {
    let directory = fs::canonicalize(directory).unwrap();
    let root = inode(&directory).unwrap();
    let nodes = HashMap::from([(root, ROOT)]);
    let (events, counts) = (Vec::new(), Counts::new());
    let mut new = Trace {
        directory: directory.clone(),
        nodes,
        lengths: vec![0],
        events,
        fault: None,
        counts,
    };
    new.find(&directory, ROOT);
    let previous = trace().replace(new);
    assert!(previous.is_none(), "only one trace at a time");
}

pub(crate) fn mark(mark: Mark) {
    trace().as_mut().unwrap().events.push(Event::Mark(mark));
}

/// Ends the trace and returns its events.
pub(crate) fn end() -> Vec<Event> {
    trace().take().unwrap().events
}

/// Makes an operation fail, or none any more.
pub(crate) fn fail(fault: Option<Fault>) {
    trace().as_mut().unwrap().fault = fault;
}

/// Number of operations of each kind since the trace began.
pub(crate) fn counts() -> Counts {
    trace().as_ref().unwrap().counts.clone()
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Path by which an open file can be examined.
fn path_of(descriptor: c_int) -> PathBuf {
    format!("/proc/self/fd/{descriptor}").into()
}

impl Trace {
    /// Notes the files that are there.
    fn find(&mut self, directory: &Path, node: usize) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let Some(node) = self.make(&path) else { continue };
            if path.is_dir() {
                self.find(&path, node);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            self.lengths[node] = bytes.len() as u64;
            self.events.push(Event::Write { node, offset: 0, bytes, is_flushed: false });
            self.events.push(Event::Flush(node, self.events.len()));
        }
        self.events.push(Event::Flush(node, self.events.len()));
    }

    /// Counts an operation, and returns its fault if it fails.
    fn try_operation(&mut self, path: &Path, operation: Operation) -> Option<Fault> {
        // A store reaches its directory through the open handle.
        let path = fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?);
        let name = path.strip_prefix(&self.directory).ok()?.file_name().unwrap_or_default();
        let kind = match name.to_str()? {
            DATA_FILE => Kind::Data,
            "mark" => Kind::Mark,
            name if name.starts_with("spare") || name.ends_with(".log") => Kind::Segment,
            LOCK => return None,
            _ => Kind::Directory,
        };
        *self.counts.entry((kind, operation)).or_default() += 1;
        let fault = self.fault.as_mut()?;
        let is_same = (fault.kind, fault.operation) == (kind, operation);
        let has_failed = fault.before == usize::MAX;
        if !(is_same || has_failed && fault.then == Then::Everything) {
            return None;
        }
        if !has_failed && fault.before > 0 {
            fault.before -= 1;
            return None;
        }
        let failed = *fault;
        fault.before = usize::MAX;
        if fault.then == Then::Nothing {
            self.fault = None;
        }
        if !has_failed {
            self.events.push(Event::Mark(Mark::Failed));
        }
        Some(failed)
    }

    fn node(&self, path: &Path) -> Option<usize> {
        self.nodes.get(&inode(path)?).copied()
    }

    /// Returns the name at this path if it is of the store, whether it exists or not.
    fn name(&self, path: &Path) -> Option<Name> {
        let name = path.file_name()?.to_str()?;
        let directory = self.node(&fs::canonicalize(path.parent()?).ok()?)?;
        (name != LOCK).then(|| (directory, name.to_owned()))
    }

    /// Notes that the name at this path is new, with its file or directory.
    fn make(&mut self, path: &Path) -> Option<usize> {
        let inode = inode(path)?;
        // The number of an inode that is gone may be in use again.
        self.nodes.remove(&inode);
        let to = Some(self.name(path)?);
        let node = self.lengths.len();
        self.lengths.push(0);
        self.nodes.insert(inode, node);
        let is_directory = path.is_dir();
        self.events.push(Event::Rename(Rename { node, is_directory, from: None, to }));
        Some(node)
    }

    /// Returns the node of an open file of the store.
    fn opened(&mut self, descriptor: c_int) -> Option<usize> {
        let metadata = fs::metadata(path_of(descriptor)).ok()?;
        if let Some(node) = self.nodes.get(&(metadata.dev(), metadata.ino())) {
            return Some(*node);
        }
        let path = fs::read_link(path_of(descriptor)).ok()?;
        // A file that was made by another function.
        if path.starts_with(&self.directory) && metadata.nlink() > 0 {
            return self.make(&path);
        }
        None
    }

    /// Notes the length of a file if it has changed, by whatever function.
    fn measure(&mut self, node: usize, descriptor: c_int) {
        let Ok(metadata) = fs::metadata(path_of(descriptor)) else { return };
        if metadata.is_file() && self.lengths[node] != metadata.len() {
            self.lengths[node] = metadata.len();
            self.events.push(Event::Length(node, metadata.len()));
        }
    }
}

/// Returns the fault of an operation on an open file, if it fails.
fn try_opened(trace: Option<&mut Trace>, descriptor: c_int, operation: Operation) -> Option<Fault> {
    trace?.try_operation(&fs::read_link(path_of(descriptor)).ok()?, operation)
}

/// Sets the error code of the C library, and returns the outcome of a function that fails.
fn failed(fault: Fault) -> c_int {
    // SAFETY: the address is that of this thread's variable.
    unsafe { *libc::__errno_location() = fault.code };
    -1
}

fn note_write(
    trace: Option<&mut Trace>,
    descriptor: c_int,
    offset: u64,
    bytes: Vec<u8>,
    has_failed: bool,
) {
    let Some(trace) = trace else { return };
    let Some(node) = trace.opened(descriptor) else { return };
    // SAFETY: `F_GETFL` touches no memory, and the caller has the descriptor open.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    let is_flushed = flags & libc::O_DSYNC != 0 && !has_failed;
    trace.lengths[node] = trace.lengths[node].max(offset + bytes.len() as u64);
    trace.events.push(Event::Write { node, offset, bytes, is_flushed });
    trace.measure(node, descriptor);
}

fn note_length(trace: Option<&mut Trace>, descriptor: c_int) {
    if let Some(trace) = trace
        && let Some(node) = trace.opened(descriptor)
    {
        trace.measure(node, descriptor);
    }
}

/// Returns a path, which may be relative to an open directory.
///
/// # Safety
///
/// `path` points to a text that ends in a zero byte.
unsafe fn path_at(directory: c_int, path: *const c_char) -> PathBuf {
    // SAFETY: the caller promises a text that ends in a zero byte.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
    if directory == libc::AT_FDCWD { path.into() } else { path_of(directory).join(path) }
}

/// Performs and notes the C library's `open`, whose last argument has a meaning only if the file is
/// created.
///
/// # Safety
///
/// `path` points to a text that ends in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let mut trace = trace();
    let here = libc::AT_FDCWD;
    // SAFETY: the caller promises that `path` ends in a zero byte.
    let noted = trace.as_ref().map(|_| unsafe { path_at(here, path) });
    let is_new = flags & libc::O_CREAT != 0 && noted.as_deref().and_then(inode).is_none();
    if is_new
        && let (Some(trace), Some(path)) = (trace.as_mut(), &noted)
        && let Some(fault) = trace.try_operation(path, Operation::Create)
    {
        return failed(fault);
    }
    // SAFETY: the caller promises that `path` ends in a zero byte.
    let descriptor = unsafe { libc::syscall(libc::SYS_openat, here, path, flags, mode) } as c_int;
    if descriptor >= 0
        && let (Some(trace), Some(path)) = (trace.as_mut(), noted)
    {
        if is_new {
            trace.make(&path);
        } else if let Some(node) = trace.node(&path) {
            trace.measure(node, descriptor);
        }
    }
    descriptor
}

/// Performs and notes the C library's `open64`, which Rust's standard library calls.
///
/// # Safety
///
/// The same as for `open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller promises the same.
    unsafe { open(path, flags, mode) }
}

/// Performs and notes the C library's `mkdir`.
///
/// # Safety
///
/// `path` points to a text that ends in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: c_uint) -> c_int {
    let mut trace = trace();
    // SAFETY: the caller promises that `path` ends in a zero byte.
    let new = trace.as_ref().map(|_| unsafe { path_at(libc::AT_FDCWD, path) });
    if let (Some(trace), Some(new)) = (trace.as_mut(), new)
        && inode(&new).is_none()
        && let Some(fault) = trace.try_operation(&new, Operation::Create)
    {
        return failed(fault);
    }
    // SAFETY: the caller promises that `path` ends in a zero byte.
    let code = unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, path, mode) };
    if code == 0
        && let Some(trace) = trace.as_mut()
    {
        // SAFETY: the caller promises that `path` ends in a zero byte.
        trace.make(&unsafe { path_at(libc::AT_FDCWD, path) });
    }
    code as c_int
}

/// Performs and notes the C library's `unlinkat`.
///
/// # Safety
///
/// `path` points to a text that ends in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    let mut trace = trace();
    // SAFETY: the caller promises that `path` ends in a zero byte.
    let found = trace.as_ref().map(|_| unsafe { path_at(directory, path) });
    if let (Some(trace), Some(found)) = (trace.as_mut(), &found)
        && inode(found).is_some()
        && let Some(fault) = trace.try_operation(found, Operation::Remove)
    {
        return failed(fault);
    }
    let gone = trace.as_ref().zip(found).and_then(|(trace, path)| {
        Some(Event::Rename(Rename {
            node: trace.node(&path)?,
            is_directory: flags & libc::AT_REMOVEDIR != 0,
            from: Some(trace.name(&path)?),
            to: None,
        }))
    });
    // SAFETY: the caller promises that `path` ends in a zero byte.
    let code = unsafe { libc::syscall(libc::SYS_unlinkat, directory, path, flags) };
    if code == 0
        && let Some(trace) = trace.as_mut()
    {
        trace.events.extend(gone);
    }
    code as c_int
}

/// Performs and notes the C library's `unlink`.
///
/// # Safety
///
/// The same as for `unlinkat`.
#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller promises the same.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

/// Performs and notes the C library's `rename`.
///
/// # Safety
///
/// `old` and `new` point to texts that end in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    let mut trace = trace();
    let here = libc::AT_FDCWD;
    // SAFETY: the caller promises that `old` ends in a zero byte.
    let before = trace.as_ref().map(|_| unsafe { path_at(here, old) });
    if let (Some(trace), Some(before)) = (trace.as_mut(), &before)
        && let Some(fault) = trace.try_operation(before, Operation::Rename)
    {
        return failed(fault);
    }
    let moved = trace.as_ref().zip(before).and_then(|(trace, path)| {
        let is_directory = path.is_dir();
        // SAFETY: the caller promises that `new` ends in a zero byte.
        let to = trace.name(&unsafe { path_at(here, new) });
        Some(Rename { node: trace.node(&path)?, is_directory, from: trace.name(&path), to })
    });
    // SAFETY: the caller promises that both paths end in a zero byte.
    let code = unsafe { libc::syscall(libc::SYS_renameat2, here, old, here, new, 0) };
    if code == 0
        && let Some(trace) = trace.as_mut()
    {
        trace.events.extend(moved.map(Event::Rename));
    }
    code as c_int
}

/// Performs and notes the C library's `pwrite`.
///
/// # Safety
///
/// `bytes` points to `length` bytes that can be read.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(
    descriptor: c_int,
    bytes: *const c_void,
    length: usize,
    offset: i64,
) -> isize {
    let mut trace = trace();
    let fault = try_opened(trace.as_mut(), descriptor, Operation::Write);
    let halves = fault.map_or(2, |fault| fault.halves);
    let length = if halves == 1 { length / 1024 * 512 } else { length * halves / 2 };
    // SAFETY: the caller promises more readable bytes at `bytes` than `length` is now.
    let written = unsafe { libc::syscall(libc::SYS_pwrite64, descriptor, bytes, length, offset) };
    if trace.is_some() && written > 0 {
        // SAFETY: the caller promises `length` readable bytes, and `written` is not more.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), written as usize) };
        let bytes = bytes.to_vec();
        note_write(trace.as_mut(), descriptor, offset as u64, bytes, fault.is_some());
    }
    fault.map_or(written as isize, |fault| failed(fault) as isize)
}

/// Performs and notes the C library's `pwrite64`, which Rust's standard library calls.
///
/// # Safety
///
/// The same as for `pwrite`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(
    descriptor: c_int,
    bytes: *const c_void,
    length: usize,
    offset: i64,
) -> isize {
    // SAFETY: the caller promises the same.
    unsafe { pwrite(descriptor, bytes, length, offset) }
}

/// Performs and notes the C library's `writev`.
///
/// # Safety
///
/// `parts` points to `count` parts, each of which points to as many readable bytes as it states.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(descriptor: c_int, parts: *const libc::iovec, count: c_int) -> isize {
    let mut trace = trace();
    if let Some(fault) = try_opened(trace.as_mut(), descriptor, Operation::Write) {
        return failed(fault) as isize;
    }
    // SAFETY: `lseek` touches no memory. It fails for a pipe, which has no position.
    let offset = unsafe { libc::syscall(libc::SYS_lseek, descriptor, 0i64, libc::SEEK_CUR) };
    // SAFETY: the caller promises `count` parts with readable bytes.
    let written = unsafe { libc::syscall(libc::SYS_writev, descriptor, parts, count) };
    if trace.is_some() && offset >= 0 && written > 0 {
        // SAFETY: the caller promises `count` parts at `parts`; the successful call has read them.
        let parts = unsafe { slice::from_raw_parts(parts, count as usize) };
        let mut all = Vec::new();
        for part in parts {
            // SAFETY: the caller promises `iov_len` readable bytes at each part's `iov_base`.
            all.extend_from_slice(unsafe {
                slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len)
            });
        }
        all.truncate(written as usize);
        note_write(trace.as_mut(), descriptor, offset as u64, all, false);
    }
    written as isize
}

/// Notes a flush of a file or a directory, and takes some time.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    let mut trace_now = trace();
    let Some(node) = trace_now.as_mut().and_then(|trace| trace.opened(descriptor)) else {
        return 0;
    };
    note_length(trace_now.as_mut(), descriptor);
    let begun = trace_now.as_ref().map_or(0, |trace| trace.events.len());
    if let Some(fault) = try_opened(trace_now.as_mut(), descriptor, Operation::Flush) {
        if let Some(trace) = trace_now.as_mut() {
            trace.events.push(Event::FailedFlush(node, begun));
        }
        return failed(fault);
    }
    drop(trace_now);
    let path = fs::read_link(path_of(descriptor)).unwrap_or_default();
    std::thread::sleep(if path.ends_with(DATA_FILE) { DATA_FLUSH } else { OTHER_FLUSH });
    if let Some(trace) = trace().as_mut() {
        trace.events.push(Event::Flush(node, begun));
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn fsync(descriptor: c_int) -> c_int {
    fdatasync(descriptor)
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(descriptor: c_int, length: i64) -> c_int {
    let mut trace = trace();
    if let Some(fault) = try_opened(trace.as_mut(), descriptor, Operation::Length) {
        return failed(fault);
    }
    // SAFETY: `ftruncate` touches no memory.
    let code = unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, length) };
    note_length(trace.as_mut(), descriptor);
    code as c_int
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(descriptor: c_int, length: i64) -> c_int {
    ftruncate(descriptor, length)
}
