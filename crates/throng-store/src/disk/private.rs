//! Files and directories that only their owner may use: mode 0600 and 0700, whatever the umask.
//!
//! A store holds any data of its program, including password hashes, so no other user of the
//! machine may read it. Existing files and directories keep the modes that their owner gave them:
//! an owner may share a store with a group on purpose.
//!
//! On a system without modes, files inherit their permissions from the directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates the file for reading and writing: empty, and with mode 0600 even if it existed.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let file = with_file_mode(&mut options).open(path)?;
    close_file(&file)?;
    Ok(file)
}

/// Opens the file for reading and writing, and creates it with mode 0600 if it does not exist.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match with_file_mode(options.clone().create_new(true)).open(path) {
        Ok(file) => close_file(&file).map(|()| file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        Err(error) => Err(error),
    }
}

/// Creates the directory and its missing parents, each with mode 0700.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    match make_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            create_directory(parent.ok_or(error)?)?;
            make_directory(path)
        }
        made => made,
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match new_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match path.is_dir() {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                format!("{} is not a directory; choose another path", path.display()),
            )),
        },
        made => made,
    }
}

#[cfg(unix)]
const FILE_MODE: u32 = 0o600;

#[cfg(unix)]
const DIRECTORY_MODE: u32 = 0o700;

#[cfg(unix)]
fn with_file_mode(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, FILE_MODE)
}

/// Sets the mode of a file whose mode differs because of the umask or an earlier file.
#[cfg(unix)]
fn close_file(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if file.metadata()?.permissions().mode() & 0o7777 != FILE_MODE {
        file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    }
    Ok(())
}

#[cfg(unix)]
fn new_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path)?;
    // The umask may have taken rights from the owner.
    if fs::metadata(path)?.permissions().mode() & DIRECTORY_MODE != DIRECTORY_MODE {
        fs::set_permissions(path, fs::Permissions::from_mode(DIRECTORY_MODE))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn with_file_mode(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(not(unix))]
fn close_file(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn new_directory(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[track_caller]
    fn assert_mode(path: &Path, mode: u32) {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{path:?}");
    }

    #[test]
    fn a_created_file_is_private_and_an_existing_file_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        open_file(&path).unwrap();
        assert_mode(&path, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        open_file(&path).unwrap();
        assert_mode(&path, 0o640);
        create_file(&path).unwrap();
        assert_mode(&path, 0o600);
    }

    #[test]
    fn every_created_directory_is_private() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("above/below");
        create_directory(&path).unwrap();
        create_directory(&path).unwrap();
        assert_mode(&path, 0o700);
        assert_mode(&directory.path().join("above"), 0o700);
        assert_mode(directory.path(), 0o755);
        let file = path.join("file");
        create_file(&file).unwrap();
        assert!(create_directory(&file).is_err());
    }
}
