//! Bodies of the fuzz targets of this crate: each takes any bytes and panics if a property does not hold.
//!
//! | function | bytes | property |
//! |---|---|---|
//! | [`log`] | records, and damage of the log's files | a read returns records that were written, in their order; a recovered log goes on |
//! | [`forged_log`] | heads, records and marks with valid checksums | reads end, without a panic |
//! | [`changes`] | the changes of a record | those that are decoded have the same encoding |
//! | [`pages`] | damage of the data file | a check ends with a report or with an error |
//! | [`formats`] | values of the store's own table | decoding them ends, without a panic |

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::disk::{format, pages, record};
pub use crate::log::fuzzing::{forged_log, log};
use crate::memtable::change::{self, Change};
use crate::{Batch, Database, DatabaseOptions, Store, Str};

/// Input of a target, from which its choices are taken. When it is used up, all choices are 0.
pub(crate) struct Input<'d>(pub(crate) &'d [u8]);

impl<'d> Input<'d> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    pub(crate) fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn bytes(&mut self, count: usize) -> &'d [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// Returns a directory in memory, if there is one.
pub(crate) fn scratch() -> TempDir {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    directory.unwrap_or_else(|error| panic!("no directory for files: {error}"))
}

/// Decodes the changes of a record.
///
/// # Panics
/// If a decoded change has another encoding.
pub fn changes(data: &[u8]) {
    let mut rest = data;
    let mut encoded = Vec::new();
    while let Some(Change { operation, table, key, value }) = Change::take(&mut rest) {
        change::write(&mut encoded, operation, table, key, [value, &[]]);
    }
    assert_eq!(encoded, data[..data.len() - rest.len()], "a change has another encoding");
}

/// Decodes values as those of the store's own table, and as checked values of a user's table.
///
/// # Panics
/// If decoding panics, or a checksum fits changed bytes.
pub fn formats(data: &[u8]) {
    let _ = format::entries::parse_store(Some(data));
    let _ = format::entries::parse_applied(Some(data));
    let _ = format::entries::kind(&String::from_utf8_lossy(data));
    let names = [String::from("one"), String::from("two")];
    let _ = format::entries::listed(data, &names);
    let (list, sum) =
        data.split_at(data.len().min(usize::from(data.first().copied().unwrap_or(0))));
    let _ = format::entries::proved(list, Some(sum));
    let _ = record::value(b"key", data);
    let _ = record::unverified(b"key", data);
    let mut stored = [&record::header(b"key", data)[..], data].concat();
    assert!(record::value(b"key", &stored).is_ok_and(|value| value == data));
    assert!(record::value(b"yek", &stored).is_err(), "a value fits another key");
    let at = usize::from(data.len() as u8) % stored.len();
    stored[at] ^= 1 << (data.len() % 8);
    assert!(record::value(b"key", &stored).is_err(), "a checksum fits a changed value");
}

/// Changes bytes of a data file, four at a time, or cuts it. Then checks the file; a salvage follows, if the input
/// begins with a byte that asks for it.
///
/// # Panics
/// If the check or the salvage panics.
pub fn pages(data: &[u8]) {
    let mut input = Input(data);
    let directory = scratch();
    let damaged = directory.path().join("damaged");
    copy(intact(), &damaged);
    let path = damaged.join("data.mdb");
    let mut bytes = fs::read(&path).unwrap_or_else(|error| panic!("{error}"));
    let salvages = input.byte() % 16 == 1;
    if input.byte() == 255 {
        bytes.truncate(usize::from(input.number()) * 8 % bytes.len());
    }
    while let [_, _, _, ..] = input.0 {
        // Heads of pages and their first nodes are hit most.
        let [page, offset] = [input.byte(), input.byte()].map(usize::from);
        let at = page % 64 * 4096 + if page < 128 { offset } else { offset * 16 };
        for byte in input.bytes(4) {
            let at = (at + 1) % bytes.len().max(1);
            if let Some(stored) = bytes.get_mut(at) {
                *stored ^= byte;
            }
        }
    }
    fs::write(&path, &bytes).unwrap_or_else(|error| panic!("{error}"));
    let _ = pages::check(&path);
    if salvages {
        let _ = Store::salvage(&damaged, directory.path().join("salvaged"));
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = fs::create_dir(to).and_then(|()| {
        for entry in fs::read_dir(from)? {
            let (entry, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
            match entry.is_dir() {
                true => copy(&entry, &to),
                false => drop(fs::copy(entry, to)?),
            }
        }
        Ok::<(), std::io::Error>(())
    });
    copied.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the directory of a store with pages of every kind, which no process writes.
fn intact() -> &'static Path {
    static INTACT: OnceLock<TempDir> = OnceLock::new();
    INTACT.get_or_init(|| make_store().unwrap_or_else(|error| panic!("no store: {error}"))).path()
}

fn make_store() -> Result<TempDir, Box<dyn std::error::Error>> {
    let directory = scratch();
    let store = Store::open(directory.path())?;
    let several = DatabaseOptions::new().duplicates();
    let several = store.database_with::<Str, Str>("several", &several)?;
    let plain = store.database::<Str, Str>("plain")?;
    for number in 0..300 {
        let key = format!("key {number:04}");
        let long = vec![b'x'; if number % 100 == 0 { 9000 } else { 60 }];
        let entries: Database = store.default_database();
        let batch = Batch::new().put(&entries, key.as_bytes(), &long).put(&plain, &key, "value");
        store.write(batch.put(&several, "key", &key)).wait()?;
    }
    store.close();
    Ok(directory)
}
