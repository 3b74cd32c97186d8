//! The data directory, kept private from other users of the machine.
//!
//! Invariants: a created directory has mode 0700. If an older version or a person left a node's own
//! directory and files more open, group and others lose all permissions before any request is
//! served. Only a directory that is empty or holds a store is a node's own, and in it only the
//! files that a node writes: `--data /tmp` must not make `/tmp` private. A directory with other
//! content, such as the `lost+found` of a new volume, is the node's own once its store is open; its
//! files have the right modes then. Links are not followed, and files of other users keep their
//! modes.
//!
//! The signing key is the exception: a key that others could read is not safe after its mode
//! changes, so it keeps its mode, and the node refuses to start with it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fstat, openat, statat};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;

use crate::dashboard::token::TOKEN_FILE;

/// Data directory of a node.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    /// Absolute path.
    path: PathBuf,
    /// Whether the directory was empty or held a store, and is therefore private already.
    was_private: bool,
}

impl DataDirectory {
    /// Creates the directory if it does not exist. If it is a node's own, makes it and the node's
    /// files in it private, and logs a warning if other users may have read a file in it.
    ///
    /// # Errors
    /// The directory cannot be created or found. Permissions that cannot be removed, as on a volume
    /// of another user, are only logged.
    pub(crate) fn make(path: &Path) -> io::Result<DataDirectory> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| match error
            .kind()
        {
            io::ErrorKind::AlreadyExists => io::Error::new(
                io::ErrorKind::NotADirectory,
                "it is not a directory; choose another path",
            ),
            _ => error,
        })?;
        let path = path.canonicalize()?;
        let mut changes = PermissionChanges::default();
        let was_used = is_store(&path);
        let is_empty = || fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        let was_private = was_used || is_empty();
        if was_private {
            changes.make_directory_private(&path);
        }
        if !was_used {
            // No user can have read a file in an empty directory.
            changes.changed.clear();
        }
        changes.log();
        Ok(DataDirectory { path, was_private })
    }

    /// Makes the directory of an opened store private, unless it was private before.
    pub(crate) fn make_private_after_open(&self) {
        if self.was_private {
            return;
        }
        let mut changes = PermissionChanges::default();
        // The files are left out: a store makes them private itself, and its locks on them may end
        // if this process closes another handle of the same file.
        changes.make_private(CWD, &self.path, &self.path);
        changes.log();
    }
}

fn is_store(directory: &Path) -> bool {
    directory.join(DATA_FILE).exists()
}

/// Paths whose permissions were removed, and paths where this failed.
#[derive(Debug, Default)]
struct PermissionChanges {
    changed: Vec<PathBuf>,
    failed: Vec<(PathBuf, io::Error)>,
}

impl PermissionChanges {
    fn log(&self) {
        if let Some(first) = self.changed.first() {
            tracing::warn!(
                count = self.changed.len(),
                first = %first.display(),
                "other users had access to the data directory; their permissions were removed"
            );
        }
        if let Some((first, error)) = self.failed.first() {
            tracing::warn!(
                count = self.failed.len(),
                first = %first.display(),
                %error,
                "other users have access to the data directory, and their permissions cannot be removed"
            );
        }
    }

    /// Makes a directory private, with the node's files in it, and the copies of the store in it.
    fn make_directory_private(&mut self, path: &Path) {
        if let Some(directory) = self.make_private(CWD, path, path) {
            self.make_contents_private(&directory, path);
        }
    }

    /// Makes the content of a directory private. The directory itself is private already, so other
    /// users can no longer reach the content.
    fn make_contents_private(&mut self, directory: &OwnedFd, path: &Path) {
        for name in FILES {
            self.make_private(directory, name, &path.join(name));
        }
        if let Some(log) = self.make_private(directory, LOG, &path.join(LOG)) {
            for name in names(&log, FileType::RegularFile).into_iter().flatten() {
                self.make_private(&log, &name, &path.join(LOG).join(&name));
            }
        }
        for name in names(directory, FileType::Directory) {
            let name = match name {
                Ok(name) => name,
                Err(error) => return self.failed.push((path.to_owned(), error.into())),
            };
            let path = path.join(&name);
            if statat(directory, name.join(DATA_FILE), AtFlags::empty()).is_ok()
                && let Some(copy) = self.make_private(directory, &name, &path)
            {
                self.make_contents_private(&copy, &path);
            }
        }
    }

    /// Removes the permissions of group and others from the file or directory. Returns it if it
    /// exists and can be opened. `path` is its name in the log.
    ///
    /// All steps use one handle, because a user with write access to the directory can replace a
    /// file by a link at any moment.
    fn make_private(
        &mut self,
        parent: impl AsFd,
        name: impl Arg + Copy,
        path: &Path,
    ) -> Option<OwnedFd> {
        let unfollowed = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&parent, name, unfollowed, Mode::empty());
        let stat = match &opened {
            Ok(file) => fstat(file),
            Err(_) => statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW),
        };
        let stat = stat.ok().filter(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            matches!(kind, FileType::RegularFile | FileType::Directory)
        })?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let for_others = Mode::RWXG | Mode::RWXO;
        // A directory with the sticky bit is meant to be shared.
        if mode.intersects(for_others) && !mode.contains(Mode::SVTX) {
            let outcome = match &opened {
                // A hard link can give a file of another user one of these names.
                Ok(_) if stat.st_uid != geteuid().as_raw() => Err(Errno::PERM),
                Ok(file) => fchmod(file, mode - for_others),
                Err(error) => Err(*error),
            };
            match outcome {
                Ok(()) => self.changed.push(path.to_owned()),
                Err(error) => self.failed.push((path.to_owned(), error.into())),
            }
        }
        opened.ok()
    }
}

/// Returns the names of the entries of a kind.
fn names(directory: &OwnedFd, wanted: FileType) -> Vec<Result<PathBuf, Errno>> {
    let entries = match Dir::read_from(directory) {
        Ok(entries) => entries,
        Err(error) => return vec![Err(error)],
    };
    let names = entries.filter_map(|entry| match entry {
        Ok(entry) => {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?.st_mode;
            let is_inside = FileType::from_raw_mode(kind) == wanted && name != "." && name != "..";
            is_inside.then(|| Ok(name.into()))
        }
        Err(error) => Some(Err(error)),
    });
    names.collect()
}

/// File of a store's data.
const DATA_FILE: &str = "data.mdb";

/// Files of a store and of a node, except for the signing key and the admin socket, which each
/// start creates.
const FILES: [&str; 5] = [DATA_FILE, "lock.mdb", "reserve", "draft", TOKEN_FILE];

/// Directory of a store's log, which has files of its own.
const LOG: &str = "log";

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

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

        // A directory in which a user keeps other files.
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        write_with_mode(&data.join("letter"), 0o644);
        write_with_mode(&data.join("lock.mdb"), 0o644);
        data_directory(&data).unwrap();
        assert_mode(&data, 0o755);
        assert_mode(&data.join("lock.mdb"), 0o644);

        let copy = data.join("copy");
        fs::create_dir(&copy).unwrap();
        for name in ["data.mdb", "lock.mdb", "copy/data.mdb", "signing.key"] {
            write_with_mode(&data.join(name), 0o664);
        }
        symlink(&linked, data.join("draft")).unwrap();
        data_directory(&data).unwrap();
        for directory in [&data, &copy] {
            assert_mode(directory, 0o700);
        }
        for name in ["data.mdb", "lock.mdb", "copy/data.mdb"] {
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

    /// Skipped unless run as root, because only root can create such a file.
    #[test]
    fn a_file_of_another_user_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        for name in ["data.mdb", "lock.mdb"] {
            write_with_mode(&data.join(name), 0o644);
        }
        if !geteuid().is_root() {
            return;
        }
        chown(data.join("lock.mdb"), Some(65_534), None).unwrap();
        let mut changes = PermissionChanges::default();
        changes.make_directory_private(data);
        assert_mode(&data.join("data.mdb"), 0o600);
        assert_mode(&data.join("lock.mdb"), 0o644);
        let failed: Vec<_> = changes.failed.iter().map(|(path, _)| path.as_path()).collect();
        assert_eq!(failed, [data.join("lock.mdb")]);
    }

    /// Under root this test is weaker, because root may read the copy regardless of its mode.
    #[test]
    fn a_copy_that_cannot_be_read_stops_no_start() {
        let data = tempfile::tempdir().unwrap();
        let copies = ["copy", "other"].map(|name| data.path().join(name));
        for copy in &copies {
            fs::create_dir(copy).unwrap();
            write_with_mode(&copy.join("data.mdb"), 0o644);
        }
        write_with_mode(&data.path().join("data.mdb"), 0o644);
        fs::set_permissions(&copies[0], Permissions::from_mode(0o311)).unwrap();
        let made = data_directory(data.path());
        // Allows the directory to be removed.
        fs::set_permissions(&copies[0], Permissions::from_mode(0o700)).unwrap();
        made.unwrap();
        assert_mode(data.path(), 0o700);
        assert_mode(&copies[1].join("data.mdb"), 0o600);
    }
}
