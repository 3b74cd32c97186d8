//! [`Identity`]: tells whether a name still leads to an open file.
//!
//! What a store writes into a file without a name is lost, and a file that has got another's name is not
//! the store's. So a store asks before it acknowledges: whether its open files have names at all for each
//! group, which is one system call per file, and whether the names are those that the next opening will
//! look for where it writes names itself.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Identity of a file or a directory, independent of its names: device and inode.
#[cfg(unix)]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity(u64, u64);

#[cfg(unix)]
impl Identity {
    pub(crate) fn at(path: &Path) -> io::Result<Identity> {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).map(|metadata| Identity(metadata.dev(), metadata.ino()))
    }

    pub(crate) fn of(file: &File, _: &Path) -> io::Result<Identity> {
        use std::os::unix::fs::MetadataExt;
        file.metadata().map(|metadata| Identity(metadata.dev(), metadata.ino()))
    }
}

#[cfg(not(unix))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity(std::path::PathBuf);

#[cfg(not(unix))]
impl Identity {
    pub(crate) fn at(path: &Path) -> io::Result<Identity> {
        fs::canonicalize(path).map(Identity)
    }

    pub(crate) fn of(_: &File, path: &Path) -> io::Result<Identity> {
        Identity::at(path)
    }
}

pub(crate) fn has_name(file: &File) -> io::Result<bool> {
    #[cfg(unix)]
    return file.metadata().map(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata) > 0);
    #[cfg(not(unix))]
    return file.metadata().map(|_| true);
}

pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match Identity::at(path) {
        Ok(found) => Ok(found == Identity::of(file, path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn lost(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "{name}, which the store has open, was removed, renamed or replaced; put it back, or close the \
             store and restore a backup"
        ),
    )
}
