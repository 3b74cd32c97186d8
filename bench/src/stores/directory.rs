//! The directory of a store's files while a workload runs.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bench_steps::disk::disk_bytes;
use tempfile::TempDir;

use crate::settings::Settings;

/// A temporary directory, removed with its contents on drop.
#[derive(Debug)]
pub(crate) struct Directory(TempDir);

impl Directory {
    /// Creates a directory inside the parent that the settings name; by default beside this
    /// program, on the disk it was built on. Warns on standard error if the parent's file system is
    /// in memory, where a flush costs nothing.
    pub(crate) fn make(settings: &Settings) -> io::Result<Directory> {
        let parent = match settings.word("dir") {
            "" => match env::current_exe()?.parent() {
                Some(parent) => parent.to_owned(),
                None => env::current_dir()?,
            },
            given => PathBuf::from(given),
        };
        let directory = tempfile::Builder::new().prefix("bench-store-").tempdir_in(&parent)?;
        if is_memory(&parent)? {
            eprintln!("warning: {} is in memory, where a flush costs nothing", parent.display());
        }
        Ok(Directory(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        disk_bytes(self.path())
    }
}

/// All files below a directory.
pub(crate) fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// Whether the innermost mount of a path keeps its files in memory.
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
        // `max_by_key` returns the last of several maxima: the topmost mount on that point.
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind);
    Ok(matches!(kind, Some("tmpfs" | "ramfs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_in_all_subdirectories() {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        let empty = disk_bytes(directory.path()).expect("it is there");
        fs::create_dir(directory.path().join("inner")).expect("there is room");
        fs::write(directory.path().join("inner/file"), vec![1; 1 << 20]).expect("there is room");
        // Some file systems allocate the blocks only on a flush.
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
