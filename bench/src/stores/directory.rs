//! Where a store's files lie while a workload runs.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::settings::{Key, Kind, Settings};

/// The setting that says where.
pub(crate) const KEY: Key = Key {
    name: "dir",
    kind: Kind::Text,
    about: "where the data lies, in a directory of its own [default: beside this program]",
};

/// An empty directory, which is removed with everything in it when it is dropped.
#[derive(Debug)]
pub(crate) struct Directory(TempDir);

impl Directory {
    /// The setting that says where.
    pub(crate) const KEY: Key = KEY;

    /// Makes one where the settings say, or beside this program, whose disk is the one it is built
    /// on. Says so on standard error if that is memory: then a flush costs nothing.
    ///
    /// # Errors
    /// When there is no such place, or none that can be written.
    pub(crate) fn make(settings: &Settings) -> io::Result<Directory> {
        let place = match settings.text(KEY.name) {
            "" => match env::current_exe()?.parent() {
                Some(parent) => parent.to_owned(),
                None => env::current_dir()?,
            },
            given => PathBuf::from(given),
        };
        let directory = tempfile::Builder::new().prefix("bench-store-").tempdir_in(&place)?;
        if is_memory(&place)? {
            eprintln!("{} is in memory: what is durable there costs no flush", place.display());
        }
        Ok(Directory(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// How much of the disk the files in it take.
    ///
    /// # Errors
    /// When they cannot be looked at.
    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        disk_bytes(self.path())
    }
}

/// Blocks that are really there: a file may have holes.
fn disk_bytes(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    let mut bytes = metadata.blocks() * 512;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}

/// Whether the innermost mount that a path is on keeps its files in memory.
fn is_memory(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let kind = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        // Of several on one point the last is on top.
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind);
    Ok(matches!(kind, Some("tmpfs" | "ramfs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_the_disk_is_counted_through_all_levels() {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        let empty = disk_bytes(directory.path()).expect("it is there");
        fs::create_dir(directory.path().join("inner")).expect("there is room");
        fs::write(directory.path().join("inner/file"), vec![1; 1 << 20]).expect("there is room");
        // Not every file system has given out the blocks at once.
        fs::File::open(directory.path().join("inner/file"))
            .and_then(|file| file.sync_all())
            .expect("it can be flushed");
        let full = disk_bytes(directory.path()).expect("it is there");
        assert!(full - empty >= 1 << 20, "{empty} before, {full} after");
    }

    #[test]
    fn proc_is_no_memory_disk() {
        assert!(!is_memory(Path::new("/proc/self")).expect("this is Linux"));
    }
}
