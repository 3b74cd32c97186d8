//! A layer between the store and the disk: it notes each write and flush of the store's files in
//! their order, and builds the files that a disk may hold after a power cut.
//!
//! The engine is C code, linked into this test binary. The binary's functions take precedence over
//! the C library's, so the engine calls the functions below. They perform writes by system call, so
//! the files have the right content, and omit flushes, whose effect no test here needs. Rust's
//! standard library calls them, too, and also for other files, which are not noted.
//!
//! The content of a disk is drawn by sectors of 512 bytes, the most that a disk writes atomically:
//! each sector holds any of the contents that were written to it since the last flush, or none of
//! them, in any order. The same holds for the length of the file. A write to a descriptor with
//! `O_DSYNC` has its sectors on the disk when it returns.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An event of the trace.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write {
        file: usize,
        offset: u64,
        bytes: Vec<u8>,
        is_flushed: bool,
    },
    Flush(usize),
    Length(usize, u64),
    /// The file was renamed to its final name.
    Named(usize),
    /// A note of the test itself.
    Mark(Mark),
}

/// A note of the test about its own progress.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// Number of batches that were given to the store.
    Given(usize),
    /// Number of batches that are acknowledged.
    Acknowledged(usize),
}

struct Trace {
    directory: PathBuf,
    events: Vec<Event>,
}

static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

/// Names of the files; events refer to a file by its index in this table.
pub(crate) const FILES: [&str; 3] = ["data.mdb", "journal.0", "journal.1"];

/// Index of the data file.
pub(crate) const DATA: usize = 0;

/// Duration of a flush of the data file, so that other threads have time to write meanwhile.
const DATA_FLUSH: Duration = Duration::from_millis(2);

/// Index of a file by its final name, which a draft does not have yet.
fn file_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    let name = if name == "journal.draft" { "journal.0" } else { name };
    FILES.iter().position(|file| *file == name)
}

fn trace() -> MutexGuard<'static, Option<Trace>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to note the events of files in this directory and below it.
pub(crate) fn begin(directory: &Path) {
    let directory = std::fs::canonicalize(directory).unwrap();
    let previous = trace().replace(Trace { directory, events: Vec::new() });
    assert!(previous.is_none(), "only one trace at a time");
}

pub(crate) fn mark(mark: Mark) {
    trace().as_mut().unwrap().events.push(Event::Mark(mark));
}

/// Ends the trace and returns its events.
pub(crate) fn end() -> Vec<Event> {
    trace().take().unwrap().events
}

/// Notes an event of an open file if the file belongs to the store.
fn note(descriptor: c_int, event: impl FnOnce(usize, bool) -> Event) {
    let mut trace = trace();
    let Some(trace) = trace.as_mut() else { return };
    let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{descriptor}")) else { return };
    if path.starts_with(&trace.directory)
        && let Some(file) = file_of(&path)
    {
        // SAFETY: `F_GETFL` touches no memory, and the caller has the descriptor open.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        trace.events.push(event(file, flags & libc::O_DSYNC != 0));
    }
}

fn note_write(descriptor: c_int, offset: u64, bytes: &[u8]) {
    note(descriptor, |file, is_flushed| {
        let bytes = bytes.to_vec();
        Event::Write { file, offset, bytes, is_flushed }
    });
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
    // SAFETY: the caller promises `length` readable bytes at `bytes`.
    let written = unsafe { libc::syscall(libc::SYS_pwrite64, descriptor, bytes, length, offset) };
    if written > 0 {
        // SAFETY: the caller promises `length` readable bytes, and `written` is not more.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), written as usize) };
        note_write(descriptor, offset as u64, bytes);
    }
    written as isize
}

/// Performs and notes the C library's `pwrite64`, which Rust's standard library calls.
///
/// # Safety
///
/// `bytes` points to `length` bytes that can be read.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(
    descriptor: c_int,
    bytes: *const c_void,
    length: usize,
    offset: i64,
) -> isize {
    // SAFETY: the caller promises `length` readable bytes at `bytes`, as `pwrite` requires.
    unsafe { pwrite(descriptor, bytes, length, offset) }
}

/// Performs and notes the C library's `writev`.
///
/// # Safety
///
/// `parts` points to `count` parts, each of which points to as many readable bytes as it states.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(descriptor: c_int, parts: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: `lseek` touches no memory. It fails for a pipe, which has no position.
    let offset = unsafe { libc::syscall(libc::SYS_lseek, descriptor, 0i64, libc::SEEK_CUR) };
    // SAFETY: the caller promises `count` parts with readable bytes.
    let written = unsafe { libc::syscall(libc::SYS_writev, descriptor, parts, count) };
    if offset >= 0 && written > 0 {
        // SAFETY: the caller promises `count` parts at `parts`; the successful call has read them.
        let parts = unsafe { slice::from_raw_parts(parts, count as usize) };
        let mut all = Vec::new();
        for part in parts {
            // SAFETY: the caller promises `iov_len` readable bytes at each part's `iov_base`.
            all.extend_from_slice(unsafe {
                slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len)
            });
        }
        note_write(descriptor, offset as u64, &all[..written as usize]);
    }
    written as isize
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    let mut is_data = false;
    note(descriptor, |file, _| {
        is_data = file == DATA;
        Event::Flush(file)
    });
    if is_data {
        // Writes of other threads during the flush may be on the disk or not.
        std::thread::sleep(DATA_FLUSH);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn fsync(descriptor: c_int) -> c_int {
    fdatasync(descriptor)
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(descriptor: c_int, length: i64) -> c_int {
    // SAFETY: `ftruncate` touches no memory.
    let code: c_long = unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, length) };
    if code == 0 {
        note(descriptor, |file, _| Event::Length(file, length as u64));
    }
    code as c_int
}

/// Performs and notes the C library's `rename`.
///
/// # Safety
///
/// `old` and `new` point to texts that end in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn rename(old: *const libc::c_char, new: *const libc::c_char) -> c_int {
    // SAFETY: the caller promises that both paths end in a zero byte.
    let code: c_long =
        unsafe { libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, old, libc::AT_FDCWD, new, 0) };
    // SAFETY: the caller promises that `new` ends in a zero byte.
    let name = unsafe { std::ffi::CStr::from_ptr(new) };
    if code == 0
        && let Some(file) = file_of(Path::new(&*name.to_string_lossy()))
        && let Some(trace) = trace().as_mut()
    {
        trace.events.push(Event::Named(file));
    }
    code as c_int
}

/// Size of the largest write that a disk performs atomically.
const SECTOR_BYTES: usize = 512;

type Sector = [u8; SECTOR_BYTES];

/// A file on a disk, and the writes to it since the last flush.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    flushed: Vec<Sector>,
    flushed_bytes: u64,
    /// By sector: the contents written to it since the last flush, in order.
    pending: BTreeMap<usize, Vec<Sector>>,
    pending_bytes: u64,
}

/// The part of the unflushed writes that a power cut loses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Everything,
    Nothing,
    /// Half of the sectors; each other sector has any of its contents.
    Sectors,
    /// Half of the pages; each other page is there as a whole.
    Pages,
    /// An eighth of the sectors.
    Few,
    /// Seven eighths of the sectors.
    Most,
}

impl Disk {
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut offset = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (index, start) = (offset / SECTOR_BYTES, offset % SECTOR_BYTES);
            let taken = rest.len().min(SECTOR_BYTES - start);
            let mut sector = self.latest(index);
            sector[start..start + taken].copy_from_slice(&rest[..taken]);
            self.pending.entry(index).or_default().push(sector);
            offset += taken;
            rest = &rest[taken..];
        }
        self.pending_bytes = self.pending_bytes.max(offset as u64);
    }

    /// Puts all writes so far on the disk.
    pub(crate) fn flush(&mut self) {
        self.flush_to(0..usize::MAX);
        self.flushed_bytes = self.pending_bytes;
    }

    /// Puts the sectors of a write on the disk, and makes the file long enough for them.
    pub(crate) fn flush_write(&mut self, offset: u64, bytes: usize) {
        let (start, end) = (offset as usize, offset as usize + bytes);
        self.flush_to(start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        self.flushed_bytes = self.flushed_bytes.max(end as u64);
    }

    pub(crate) fn set_length(&mut self, bytes: u64) {
        self.pending_bytes = bytes;
    }

    /// Returns whether a power cut would lose no write.
    pub(crate) fn is_flushed(&self) -> bool {
        self.pending.is_empty() && self.flushed_bytes == self.pending_bytes
    }

    /// Returns the file as it may be found after a power cut at this moment.
    pub(crate) fn after_power_cut(&self, loss: Loss, random: &mut fastrand::Rng) -> Vec<u8> {
        let shortest = self.flushed_bytes.min(self.pending_bytes);
        let longest = self.flushed_bytes.max(self.pending_bytes);
        let length = match loss {
            Loss::Everything => self.flushed_bytes,
            Loss::Nothing => self.pending_bytes,
            _ => match random.u8(..4) {
                0 => shortest,
                1 => random.u64(shortest..=longest),
                _ => longest,
            },
        };
        let mut image: Vec<u8> = self.flushed.as_flattened().to_vec();
        image.resize(length as usize, 0);
        let mut page = (usize::MAX, false);
        for (&index, contents) in &self.pending {
            let is_there = match loss {
                Loss::Everything => false,
                Loss::Nothing => true,
                Loss::Sectors => random.bool(),
                Loss::Few => random.u8(..8) > 0,
                Loss::Most => random.u8(..8) == 0,
                Loss::Pages => {
                    if page.0 != index / 8 {
                        page = (index / 8, random.bool());
                    }
                    page.1
                }
            };
            let last = contents.len() - 1;
            let chosen = match loss {
                Loss::Sectors | Loss::Few | Loss::Most => random.usize(..=last),
                _ => last,
            };
            let start = index * SECTOR_BYTES;
            if is_there && start < image.len() {
                let end = image.len().min(start + SECTOR_BYTES);
                image[start..end].copy_from_slice(&contents[chosen][..end - start]);
            }
        }
        image
    }

    fn latest(&self, index: usize) -> Sector {
        let pending = self.pending.get(&index).and_then(|contents| contents.last());
        *pending.or_else(|| self.flushed.get(index)).unwrap_or(&[0; SECTOR_BYTES])
    }

    fn flush_to(&mut self, range: std::ops::Range<usize>) {
        let mut later = self.pending.split_off(&range.start);
        let mut after = later.split_off(&range.end);
        for (index, contents) in later {
            if self.flushed.len() <= index {
                self.flushed.resize(index + 1, [0; SECTOR_BYTES]);
            }
            self.flushed[index] = *contents.last().unwrap();
        }
        self.pending.append(&mut after);
    }
}
