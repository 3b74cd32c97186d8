//! [`Files`]: the disk under a log, as far as a log uses it. A simulation puts another one in its place.
//!
//! | operation                    | durable after                                   |
//! |------------------------------|-------------------------------------------------|
//! | `write`, `allocate`          | `flush` or `flush_all` of the file              |
//! | `create`, `rename`, `remove` | `flush_names` of the directories with the names |
//!
//! A system call lies behind each of these, so a virtual call costs nothing beside it.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use crate::disk::{identity, private};

/// The names of a disk, and the files behind them.
pub(crate) trait Files: Debug + Send + Sync {
    /// Creates the file for reading and writing, empty even if it existed.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn OpenFile>>;

    /// Opens a file for reading, and for writing if it `is_written`.
    fn open(&self, path: &Path, is_written: bool) -> io::Result<Arc<dyn OpenFile>>;

    /// Gives a file or a directory another name, which may be that of another file.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and everything in it.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Returns the names of the files in a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    fn length(&self, path: &Path) -> io::Result<u64>;

    fn flush_names(&self, directory: &Path) -> io::Result<()>;

    fn free_bytes(&self, directory: &Path) -> Option<u64>;

    /// Comes before each commit of LMDB, which an error keeps from happening.
    fn begin_commit(&self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) trait OpenFile: Debug + Send + Sync {
    fn length(&self) -> io::Result<u64>;

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all parts from an offset on. One thread at a time writes.
    fn write(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes an empty file this long, and reserves room on the disk if the file system can.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Flushes the content, and the length.
    fn flush(&self) -> io::Result<()>;

    /// Flushes content and metadata.
    fn flush_all(&self) -> io::Result<()>;

    /// Whether the file has a name. Without one, nobody will find what is written to it.
    fn has_name(&self) -> io::Result<bool>;

    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

pub(crate) fn system() -> Arc<dyn Files> {
    Arc::new(SystemFiles)
}

#[derive(Debug)]
struct SystemFiles;

impl Files for SystemFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn OpenFile>> {
        Ok(Arc::new(private::create_file(path)?))
    }

    fn open(&self, path: &Path, is_written: bool) -> io::Result<Arc<dyn OpenFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(is_written).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fault()?;
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        private::create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // No file of a log has a name that is no text.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        let metadata = fs::metadata(path)?;
        Ok(if metadata.is_file() { metadata.len() } else { 0 })
    }

    fn flush_names(&self, directory: &Path) -> io::Result<()> {
        fault()?;
        flush_directory(directory)
    }

    #[cfg(unix)]
    fn free_bytes(&self, directory: &Path) -> Option<u64> {
        let disk = rustix::fs::statvfs(directory).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Returns `None`: on this system a partial write is an error of its own, so no check is needed.
    #[cfg(not(unix))]
    fn free_bytes(&self, _: &Path) -> Option<u64> {
        None
    }
}

impl OpenFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        read_at(self, bytes, offset)
    }

    fn write(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let fault = fault();
        // A failed write may have written everything, and an erasure nothing.
        #[cfg(test)]
        if fault.is_err() && parts.iter().any(|part| part.iter().any(|byte| *byte != 0)) {
            write_parts(self, parts, offset)?;
        }
        fault?;
        write_parts(self, parts, offset)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, length: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        use rustix::io::Errno;
        fault()?;
        loop {
            match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, length) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.set_len(length),
                Err(error) => {
                    // The file may have got the last free blocks, which a checkpoint needs.
                    let _ = self.set_len(0);
                    return Err(error.into());
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, length: u64) -> io::Result<()> {
        fault()?;
        self.set_len(length)
    }

    fn flush(&self) -> io::Result<()> {
        fault()?;
        self.sync_data()
    }

    fn flush_all(&self) -> io::Result<()> {
        fault()?;
        self.sync_all()
    }

    fn has_name(&self) -> io::Result<bool> {
        fault()?;
        identity::has_name(self)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        fault()?;
        identity::is_at(self, path)
    }
}

#[cfg(unix)]
fn flush_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // A directory without read permission was not created by this store.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// Does nothing: where directories cannot be flushed, the file system makes names durable by
/// itself.
#[cfg(not(unix))]
fn flush_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

fn write_parts(mut file: &File, mut parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
    if let [part] = parts {
        return write_at(file, part, offset);
    }
    file.seek(SeekFrom::Start(offset))?;
    while !parts.is_empty() {
        match file.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(unix)]
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
pub(crate) fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[read..];
        offset += read as u64;
    }
    Ok(())
}

/// Fails where a test wants an operation to fail.
fn fault() -> io::Result<()> {
    #[cfg(test)]
    return faults::step();
    #[cfg(not(test))]
    Ok(())
}

/// Failures of operations, for tests.
#[cfg(test)]
pub(crate) mod faults {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        /// Numbers of operations before the failure, and of operations that then fail.
        static FAULT: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
    }

    /// Number of operations that fail if the disk has broken for good.
    pub(crate) const ALL: u32 = u32::MAX;

    /// Makes some operations of this thread fail after some others.
    pub(crate) fn set(fault: Option<(u32, u32)>) {
        FAULT.set(fault);
    }

    /// Whether the failure is still to come.
    pub(crate) fn is_pending() -> bool {
        matches!(FAULT.get(), Some((before, _)) if before > 0)
    }

    pub(super) fn step() -> io::Result<()> {
        match FAULT.get() {
            Some((0, failures)) => {
                let left = if failures == ALL { ALL } else { failures - 1 };
                FAULT.set((left > 0).then_some((0, left)));
                Err(io::Error::from_raw_os_error(5))
            }
            Some((before, failures)) => {
                FAULT.set(Some((before - 1, failures)));
                Ok(())
            }
            None => Ok(()),
        }
    }
}
