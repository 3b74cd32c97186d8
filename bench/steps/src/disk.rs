//! Bytes that a program has written, as the kernel counts them, and those that its files take.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// Size of a sector in the kernel's counts, and of a block in those of a file.
const SECTOR_BYTES: u64 = 512;

/// Returns the bytes that a process has moved so far, as a field of the kernel's file `io` counts them.
///
/// # Errors
/// If the kernel does not count them.
pub fn moved_bytes(process: &str, field: &str) -> io::Result<u64> {
    let path = format!("/proc/{process}/io");
    let text = fs::read_to_string(&path)?;
    let bytes = text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok());
    bytes.ok_or_else(|| io::Error::other(format!("{path} has no field {field}")))
}

/// Returns the bytes that a process has caused to be sent to the disk so far, as the kernel counts them: when a page of
/// its cache becomes dirty, and a large folio as a whole. On ext4 of Linux 6.18 that is seven times the bytes
/// that the disk gets from `store-update`.
///
/// # Errors
/// If the kernel does not count them.
pub fn written_bytes(process: &str) -> io::Result<u64> {
    moved_bytes(process, "write_bytes:")
}

/// Returns the bytes that the disk below a path was sent so far, by all programs; 0 if the system does not say, as for a
/// file system without a disk of its own.
///
/// # Errors
/// If the path is not there.
pub fn device_written_bytes(path: &Path) -> io::Result<u64> {
    let device = fs::metadata(path)?.dev();
    let stat =
        fs::read_to_string(format!("/sys/dev/block/{}:{}/stat", major(device), minor(device)));
    let sectors = stat.ok().and_then(|stat| stat.split_whitespace().nth(6)?.parse::<u64>().ok());
    Ok(sectors.unwrap_or(0) * SECTOR_BYTES)
}

/// Returns the size of all blocks that the files below a path occupy, in bytes; holes in a file do not count, nor do
/// files that a store removes meanwhile.
///
/// # Errors
/// If a file cannot be looked at.
pub fn disk_bytes(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    let mut bytes = metadata.blocks() * SECTOR_BYTES;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += match disk_bytes(&entry?.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                bytes => bytes?,
            };
        }
    }
    Ok(bytes)
}
