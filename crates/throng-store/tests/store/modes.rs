//! The modes of all files and directories that a store makes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use throng_store::Store;

use crate::{DIRECTORY, child, db};

#[test]
fn files_of_a_store_are_private_to_their_owner_under_every_umask() {
    for umask in ["umask 000;", "umask 022;", "umask 077;"] {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("above/data");
        let made = child("modes::makes_a_store_and_a_copy", &data, umask).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut found = Vec::new();
        walk(&directory.path().join("above"), &mut found);
        for (path, mode) in &found {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(*mode, expected, "{umask} {}: {mode:o}", path.display());
        }
        for name in ["data.mdb", "lock.mdb", "log/mark"] {
            assert!(found.iter().any(|(path, _)| path.ends_with(name)), "{name} in {found:?}");
        }
        assert!(found.iter().any(|(path, _)| path.ends_with("copy/data.mdb")), "{found:?}");
    }
}

#[test]
#[ignore = "the child of files_of_a_store_are_private_to_their_owner_under_every_umask"]
fn makes_a_store_and_a_copy() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let store = Store::open(&directory).unwrap();
    db(&store).put(b"key", b"value").wait().unwrap();
    store.backup(directory.with_file_name("copies").join("copy")).unwrap();
}

fn walk(path: &Path, found: &mut Vec<(PathBuf, u32)>) {
    let metadata = fs::symlink_metadata(path).unwrap();
    found.push((path.to_owned(), metadata.permissions().mode() & 0o777));
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            walk(&entry.unwrap().path(), found);
        }
    }
}
