//! Bytes that a run has written, as the kernel counts them, and those that its files take.
//!
//! The kernel adds the bytes of a process to those of its parent when the parent has awaited its end. Those of a server
//! and its processes are therefore added while it runs, and are this program's own when it has ended.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

use crate::Error;
use crate::server::Server;

const SECTOR_BYTES: u64 = 512;

pub(super) struct Written {
    /// By this program and its server.
    pub(super) process: u64,
    /// To the disk, by all programs; 0 if the system does not say.
    pub(super) device: u64,
}

impl Written {
    /// Bytes so far, by this program and a server of its that runs, and to the disk below a path.
    pub(super) fn by(server: Option<&Server>, directory: &Path) -> Result<Written, Error> {
        let by_server = server.map_or(Ok(0), |server| by_tree(server.id()))?;
        let process = by_process("self")? + by_server;
        let device = fs::metadata(directory)?.dev();
        let stat = format!("/sys/dev/block/{}:{}/stat", major(device), minor(device));
        let sectors = fs::read_to_string(stat).unwrap_or_default();
        let sectors = sectors.split_whitespace().nth(6).and_then(|number| number.parse().ok());
        Ok(Written { process, device: sectors.unwrap_or(0) * SECTOR_BYTES })
    }

    pub(super) fn since(&self, before: &Written) -> Written {
        Written {
            process: self.process.saturating_sub(before.process),
            device: self.device.saturating_sub(before.device),
        }
    }
}

fn by_process(id: &str) -> Result<u64, Error> {
    let counts = fs::read_to_string(format!("/proc/{id}/io"))?;
    let bytes = counts.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    Ok(bytes.ok_or("the kernel does not count written bytes")?.trim().parse()?)
}

/// Bytes by a process and those that descend from it.
fn by_tree(id: u32) -> Result<u64, Error> {
    let mut bytes = by_process(&id.to_string())?;
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    for child in children.split_whitespace() {
        // A child that has ended meanwhile counts as its parent's.
        bytes += by_tree(child.parse()?).unwrap_or(0);
    }
    Ok(bytes)
}

/// Size of the blocks that the files below a path occupy.
pub(super) fn disk_bytes(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    let mut bytes = metadata.blocks() * SECTOR_BYTES;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}
