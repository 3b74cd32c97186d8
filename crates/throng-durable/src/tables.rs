//! [`Tables`]: the databases of the store that have a node's records, each for the tables of some letters.
//!
//! A page of a database is filled if the database grows at its end, and split in halves if it grows in the middle. So
//! tables that grow at their ends have databases of their own; see [`layout`](crate::layout) for their letters.

use std::sync::Arc;

use throng_store::{Database, DatabaseError, DatabaseOptions, Store};

/// Names of the databases, with the letters of their tables. All others are in the default database.
const NAMES: [(&str, &[u8]); 7] = [
    ("durable cells", b"C"),
    ("durable inboxes", b"AIX"),
    ("durable replies", b"R"),
    ("durable expiries", b"Y"),
    ("durable reminders", b"T"),
    ("durable times", b"U"),
    ("durable indexes", b"B"),
];

const LETTERS: usize = (b'Z' - b'A' + 1) as usize;

/// The databases of a node's records; see the file's head. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Tables(Arc<Databases>);

#[derive(Debug)]
struct Databases {
    all: Vec<Database>,
    /// Index of the database of each letter.
    by_letter: [u8; LETTERS],
}

impl Tables {
    /// Opens the databases of a store, and creates those that it does not have.
    ///
    /// # Errors
    ///
    /// See [`Store::database_with`].
    pub(crate) fn open(store: &Store) -> Result<Tables, DatabaseError> {
        let create = DatabaseOptions::new();
        Tables::of(store, |name| store.database_with(name, &create).map(Some))
    }

    /// Opens the databases that a store has; the others have no records. Nothing is written.
    ///
    /// # Errors
    ///
    /// See [`Store::database_with`].
    pub(crate) fn existing(store: &Store) -> Result<Tables, DatabaseError> {
        let existing = DatabaseOptions::new().existing();
        Tables::of(store, |name| match store.database_with(name, &existing) {
            Err(DatabaseError::Missing { .. }) => Ok(None),
            opened => opened.map(Some),
        })
    }

    fn of(
        store: &Store,
        open: impl Fn(&'static str) -> Result<Option<Database>, DatabaseError>,
    ) -> Result<Tables, DatabaseError> {
        let (mut all, mut by_letter) = (vec![store.default_database()], [0; LETTERS]);
        for (name, letters) in NAMES {
            let Some(database) = open(name)? else { continue };
            for letter in letters {
                by_letter[usize::from(letter - b'A')] = all.len() as u8;
            }
            all.push(database);
        }
        Ok(Tables(Arc::new(Databases { all, by_letter })))
    }

    /// Returns the database of the record with this key, or of the records with this prefix.
    pub(crate) fn at(&self, key: &[u8]) -> &Database {
        let letter = key.first().map_or(LETTERS, |letter| usize::from(letter.wrapping_sub(b'A')));
        let index = self.0.by_letter.get(letter).copied().unwrap_or(0);
        &self.0.all[usize::from(index)]
    }

    pub(crate) fn store(&self) -> &Store {
        self.0.all[0].store()
    }
}
