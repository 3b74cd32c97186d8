//! What stands between the store and the disk: it notes each write and flush of the store's files in
//! the order in which they happen, and builds what a disk may hold after the power failed.
//!
//! The engine is C code, linked into this test binary, and so the functions below are those that
//! it calls: the binary's own come before those of the C library. They pass writes on by system
//! call, so the file is as it should be, and keep flushes to themselves: no test here looks at
//! what a real flush would do. Rust's standard library ends up here too, and means other files.
//!
//! What a disk may hold is drawn by the sector, 512 bytes, which is the most that disks write as
//! one: since the last flush, each sector was written with any of the contents it was to have, or
//! with none, in any order. The same goes for the length of the file. A write to a descriptor with
//! `O_DSYNC` is on the disk when it returns, as far as the sectors it touches.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What happened, in order.
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
    /// The file got its name.
    Named(usize),
    /// The test has something to remember here.
    Mark(Mark),
}

/// What the test says about its own doing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// This many batches were given to the store.
    Given(usize),
    /// This many are acknowledged.
    Acknowledged(usize),
}

struct Trace {
    directory: PathBuf,
    events: Vec<Event>,
}

static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

/// The names of the files, which events have by their places here.
pub(crate) const FILES: [&str; 3] = ["data.mdb", "journal.0", "journal.1"];

/// The data file's place.
pub(crate) const DATA: usize = 0;

/// How long a flush of the data file takes, so that others have time to write meanwhile.
const DATA_FLUSH: Duration = Duration::from_millis(2);

/// Which file it is, under the name that it has or is to have.
fn file_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    let name = if name == "journal.draft" { "journal.0" } else { name };
    FILES.iter().position(|file| *file == name)
}

fn trace() -> MutexGuard<'static, Option<Trace>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to note what happens to the files in this directory, or below it.
pub(crate) fn begin(directory: &Path) {
    let directory = std::fs::canonicalize(directory).unwrap();
    let previous = trace().replace(Trace { directory, events: Vec::new() });
    assert!(previous.is_none(), "one trace at a time");
}

pub(crate) fn mark(mark: Mark) {
    trace().as_mut().unwrap().events.push(Event::Mark(mark));
}

/// Everything noted.
pub(crate) fn end() -> Vec<Event> {
    trace().take().unwrap().events
}

/// Notes what happens to an open file, if it is one of the store's.
fn note(descriptor: c_int, event: impl FnOnce(usize, bool) -> Event) {
    let mut trace = trace();
    let Some(trace) = trace.as_mut() else { return };
    let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{descriptor}")) else { return };
    if path.starts_with(&trace.directory)
        && let Some(file) = file_of(&path)
    {
        // SAFETY: asks for the flags of a descriptor, which the caller has open.
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

/// # Safety
///
/// As the function of the same name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(
    descriptor: c_int,
    bytes: *const c_void,
    length: usize,
    offset: i64,
) -> isize {
    // SAFETY: the caller's; and so are the bytes below, of which no more are read.
    let written = unsafe { libc::syscall(libc::SYS_pwrite64, descriptor, bytes, length, offset) };
    if written > 0 {
        // SAFETY: as above.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), written as usize) };
        note_write(descriptor, offset as u64, bytes);
    }
    written as isize
}

/// What Rust's standard library calls.
///
/// # Safety
///
/// As the function of the same name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(
    descriptor: c_int,
    bytes: *const c_void,
    length: usize,
    offset: i64,
) -> isize {
    // SAFETY: the caller's.
    unsafe { pwrite(descriptor, bytes, length, offset) }
}

/// # Safety
///
/// As the function of the same name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(descriptor: c_int, parts: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: where the caller's descriptor stands; it may be a pipe, which stands nowhere.
    let offset = unsafe { libc::syscall(libc::SYS_lseek, descriptor, 0i64, libc::SEEK_CUR) };
    // SAFETY: the caller's.
    let written = unsafe { libc::syscall(libc::SYS_writev, descriptor, parts, count) };
    if offset >= 0 && written > 0 {
        // SAFETY: the caller's parts, which the system has just read as well.
        let parts = unsafe { slice::from_raw_parts(parts, count as usize) };
        let mut all = Vec::new();
        for part in parts {
            // SAFETY: as above.
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
        // What others write before it returns may or may not be on the disk.
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
    // SAFETY: no memory is involved.
    let code: c_long = unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, length) };
    if code == 0 {
        note(descriptor, |file, _| Event::Length(file, length as u64));
    }
    code as c_int
}

/// # Safety
///
/// As the function of the same name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn rename(old: *const libc::c_char, new: *const libc::c_char) -> c_int {
    // SAFETY: the caller's.
    let code: c_long =
        unsafe { libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, old, libc::AT_FDCWD, new, 0) };
    // SAFETY: the caller's text, which ends in a zero.
    let name = unsafe { std::ffi::CStr::from_ptr(new) };
    if code == 0
        && let Some(file) = file_of(Path::new(&*name.to_string_lossy()))
        && let Some(trace) = trace().as_mut()
    {
        trace.events.push(Event::Named(file));
    }
    code as c_int
}

/// The most that a disk writes as one.
const SECTOR_BYTES: usize = 512;

type Sector = [u8; SECTOR_BYTES];

/// One file on a disk, and what that was asked to write since the last flush.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    flushed: Vec<Sector>,
    flushed_bytes: u64,
    /// By the sector, each content it was to have, in order.
    pending: BTreeMap<usize, Vec<Sector>>,
    pending_bytes: u64,
}

/// How much of what was not flushed is on the disk after the power failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Everything,
    Nothing,
    /// Each sector has any of its contents.
    Sectors,
    /// Each page is there as a whole or not at all.
    Pages,
    /// Few are missing.
    Few,
    /// Few are there.
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

    /// Everything asked for so far is on the disk.
    pub(crate) fn flush(&mut self) {
        self.flush_to(0..usize::MAX);
        self.flushed_bytes = self.pending_bytes;
    }

    /// What a write touched is on the disk, and the file long enough for it.
    pub(crate) fn flush_write(&mut self, offset: u64, bytes: usize) {
        let (start, end) = (offset as usize, offset as usize + bytes);
        self.flush_to(start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        self.flushed_bytes = self.flushed_bytes.max(end as u64);
    }

    pub(crate) fn set_length(&mut self, bytes: u64) {
        self.pending_bytes = bytes;
    }

    /// Whether anything could be lost.
    pub(crate) fn is_flushed(&self) -> bool {
        self.pending.is_empty() && self.flushed_bytes == self.pending_bytes
    }

    /// A file as it may be found after the power failed at this moment.
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
