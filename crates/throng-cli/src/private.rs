//! The data directory, closed to other users of the machine.
//!
//! Invariants: a directory that is made has mode 0700; a node's own directory and files that an
//! older version or a person left more open lose every right of group and others before anything is
//! served. Only a directory that is empty or holds a store is a node's own, and in it only the files
//! that a node writes: `--data /tmp` must not close `/tmp`. Links are not followed. A directory that
//! holds other things, such as the `lost+found` of a new volume, is the node's own once its store is
//! open; its files have the right modes then.
//!
//! The signing key is the exception: a key that others could read is not safe again once closed, so
//! it keeps its mode, and the node refuses to start with it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::store::DATA_FILE;

/// A node's data directory.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    /// Absolute.
    path: PathBuf,
    /// Whether the directory was empty or held a store, and so has been closed.
    was_own: bool,
}

impl DataDirectory {
    /// Makes the directory if it is missing, and closes it and the node's files in it to other users
    /// if it is a node's own. The log has a line if others may have read something in it.
    ///
    /// # Errors
    /// The directory cannot be made or read. Rights that cannot be taken away, as on a volume that
    /// another user owns, are only logged.
    pub(crate) fn make(path: &Path) -> io::Result<DataDirectory> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let path = path.canonicalize()?;
        let mut tightened = Tightened::default();
        let was_used = is_store(&path);
        let was_own = was_used || fs::read_dir(&path)?.next().is_none();
        if was_own {
            tightened.close_directory(&path)?;
        }
        if !was_used {
            // Nobody can have read anything in an empty directory.
            tightened.closed.clear();
        }
        tightened.log();
        Ok(DataDirectory { path, was_own })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the directory, in which a store has been opened, if it was not closed before.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn close_opened(&self) -> io::Result<()> {
        if self.was_own {
            return Ok(());
        }
        let mut tightened = Tightened::default();
        // Not the files: a store makes them private, and its locks on them may end if this process
        // closes another handle of theirs.
        tightened.close(&self.path)?;
        tightened.log();
        Ok(())
    }
}

fn is_store(directory: &Path) -> bool {
    directory.join(DATA_FILE).exists()
}

/// The paths that were open to others.
#[derive(Debug, Default)]
struct Tightened {
    closed: Vec<PathBuf>,
    refused: Vec<(PathBuf, io::Error)>,
}

impl Tightened {
    fn log(&self) {
        if let Some(first) = self.closed.first() {
            tracing::warn!(
                count = self.closed.len(),
                first = %first.display(),
                "other users had rights to the data directory; they were taken away"
            );
        }
        if let Some((first, error)) = self.refused.first() {
            tracing::warn!(
                count = self.refused.len(),
                first = %first.display(),
                %error,
                "other users have rights to the data directory that cannot be taken away"
            );
        }
    }

    /// Closes a directory, the files in it that a node writes, and the copies of the store in it.
    fn close_directory(&mut self, directory: &Path) -> io::Result<()> {
        // The directory first: from then on nobody comes by here to what is in it.
        self.close(directory)?;
        for name in FILES {
            self.close(&directory.join(name))?;
        }
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() && is_store(&entry.path()) {
                self.close_directory(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Takes the rights of others to `path` away, if it is there.
    fn close(&mut self, path: &Path) -> io::Result<()> {
        let metadata = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata?,
        };
        let mode = metadata.permissions().mode();
        if metadata.is_symlink() || mode & FOR_OTHERS == 0 || mode & STICKY != 0 {
            return Ok(());
        }
        match fs::set_permissions(path, Permissions::from_mode(mode & !FOR_OTHERS)) {
            Ok(()) => self.closed.push(path.to_owned()),
            Err(error) => self.refused.push((path.to_owned(), error)),
        }
        Ok(())
    }
}

/// The files of a store and of a node, but for the signing key and the admin socket, which is made
/// by each start.
const FILES: [&str; 8] = [
    DATA_FILE,
    "lock.mdb",
    "LOCK",
    "journal.0",
    "journal.1",
    "journal.draft",
    "data.draft",
    "draft",
];

/// The rights of the group and of others.
const FOR_OTHERS: u32 = 0o077;

/// A directory with this bit is meant for everybody.
const STICKY: u32 = 0o1000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn assert_mode(path: &Path, mode: u32) {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, mode, "{path:?}");
    }

    fn write_with_mode(path: &Path, mode: u32) {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn data_directory(path: &Path) -> io::Result<PathBuf> {
        DataDirectory::make(path).map(|data| data.path)
    }

    #[test]
    fn a_nodes_own_files_are_closed_and_nothing_else() {
        let outside = tempfile::tempdir().unwrap();
        let linked = outside.path().join("linked");
        write_with_mode(&linked, 0o644);
        let data = outside.path().join("data");
        assert_eq!(data_directory(&data).unwrap(), data.canonicalize().unwrap());
        assert_mode(&data, 0o700);
        fs::set_permissions(&data, Permissions::from_mode(0o2755)).unwrap();
        data_directory(&data).unwrap();
        assert_mode(&data, 0o2700);

        // The directory of somebody who keeps other things there.
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        write_with_mode(&data.join("letter"), 0o644);
        write_with_mode(&data.join("LOCK"), 0o644);
        data_directory(&data).unwrap();
        assert_mode(&data, 0o755);
        assert_mode(&data.join("LOCK"), 0o644);

        let copy = data.join("copy");
        fs::create_dir(&copy).unwrap();
        for name in ["data.mdb", "journal.0", "copy/data.mdb", "signing.key"] {
            write_with_mode(&data.join(name), 0o664);
        }
        symlink(&linked, data.join("journal.1")).unwrap();
        data_directory(&data).unwrap();
        for directory in [&data, &copy] {
            assert_mode(directory, 0o700);
        }
        for name in ["LOCK", "data.mdb", "journal.0", "copy/data.mdb"] {
            assert_mode(&data.join(name), 0o600);
        }
        assert_mode(&data.join("letter"), 0o644);
        assert_mode(&data.join("signing.key"), 0o664);
        assert_mode(&linked, 0o644);
    }

    #[test]
    fn a_directory_for_everybody_stays_open() {
        let outside = tempfile::tempdir().unwrap();
        let data = outside.path().join("tmp");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, Permissions::from_mode(0o1777)).unwrap();
        write_with_mode(&data.join("data.mdb"), 0o644);
        data_directory(&data).unwrap();
        assert_mode(&data, 0o1777);
        assert_mode(&data.join("data.mdb"), 0o600);
    }
}
