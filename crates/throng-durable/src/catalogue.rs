//! [`Catalogue`]: the numbers that stand for the names of kinds and of maps of cells in the store's keys.
//!
//! A name gets its number when the program first uses it. The record of the number is a part of each batch
//! whose keys have the number, until one of these batches is known to be on disk. So no key has a number
//! without a record, and a number costs no flush of its own. A number that no batch has stored is given to
//! another name after a restart.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use throng_store::{Batch, Outcomes, ReadError, Snapshot, Submission};

use crate::layout;

/// The numbers of all names; see the file's head.
#[derive(Debug, Default)]
pub(crate) struct Catalogue(RwLock<HashMap<Box<[u8]>, Arc<Numbered>>>);

/// A name with its number.
#[derive(Debug)]
pub(crate) struct Numbered {
    /// Key of the record.
    record: Box<[u8]>,
    number: u16,
    is_stored: AtomicBool,
    /// The first submission with the record that may not be on disk yet.
    submitted: Mutex<Option<Submission>>,
}

/// Byte between the names of a kind and of a map, which the name of a kind does not have.
const SEPARATOR: u8 = 0;

impl Catalogue {
    /// Reads the catalogue of a store.
    pub(crate) fn read(snapshot: &Snapshot) -> Result<Catalogue, ReadError> {
        let entries = snapshot.prefix(layout::CATALOGUE).map(|entry| {
            let (record, number) = entry?;
            let number = number.try_into().map(u16::from_le_bytes);
            let number = number.map_err(|_| {
                let name = String::from_utf8_lossy(&record[1..]);
                ReadError::Corrupt(format!(
                    "the number of the kind or map {name:?} has not two bytes"
                ))
            })?;
            let numbered = Numbered::new(record.into(), number, true);
            Ok((record.into(), Arc::new(numbered)))
        });
        Ok(Catalogue(RwLock::new(entries.collect::<Result<_, ReadError>>()?)))
    }

    /// Returns the number of a kind; `None` if there are no more numbers.
    pub(crate) fn kind(&self, kind: &str) -> Option<Arc<Numbered>> {
        self.number([layout::CATALOGUE, kind.as_bytes()].concat(), |record| {
            !record.contains(&SEPARATOR)
        })
    }

    /// Returns the number of a map of a kind's cells; `None` if there are no more numbers.
    pub(crate) fn map(&self, kind: &str, map: &str) -> Option<Arc<Numbered>> {
        let kind = [layout::CATALOGUE, kind.as_bytes(), &[SEPARATOR]].concat();
        let record = [&kind, map.as_bytes()].concat();
        self.number(record, |record| record.starts_with(&kind))
    }

    /// Returns the names of all kinds with their numbers.
    pub(crate) fn kinds(&self) -> Vec<(String, u16)> {
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let kinds = named.values().filter(|numbered| !numbered.record.contains(&SEPARATOR));
        let name = |record: &[u8]| String::from_utf8_lossy(&record[1..]).into_owned();
        kinds.map(|numbered| (name(&numbered.record), numbered.number)).collect()
    }

    /// Returns the names of the maps of a kind's cells with their numbers.
    pub(crate) fn maps(&self, kind: &str) -> Vec<(String, u16)> {
        let kind = [layout::CATALOGUE, kind.as_bytes(), &[SEPARATOR]].concat();
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let maps = named.values().filter_map(|numbered| {
            let map = numbered.record.strip_prefix(&kind[..])?;
            Some((String::from_utf8_lossy(map).into_owned(), numbered.number))
        });
        maps.collect()
    }

    /// Returns the number of the name with this record. A new number is one more than the highest number of its
    /// siblings.
    fn number(&self, record: Vec<u8>, is_sibling: impl Fn(&[u8]) -> bool) -> Option<Arc<Numbered>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&*record).cloned();
        if known.is_some() {
            return known;
        }
        let mut named = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let siblings = named.values().filter(|numbered| is_sibling(&numbered.record));
        let highest = siblings.map(|numbered| numbered.number).max().unwrap_or(0);
        let record: Box<[u8]> = record.into();
        let new = || Some(Arc::new(Numbered::new(record.clone(), highest.checked_add(1)?, false)));
        match named.entry(record.clone()) {
            Entry::Occupied(known) => Some(known.get().clone()),
            Entry::Vacant(vacant) => Some(vacant.insert(new()?).clone()),
        }
    }
}

impl Numbered {
    fn new(record: Box<[u8]>, number: u16, is_stored: bool) -> Numbered {
        Numbered { record, number, is_stored: is_stored.into(), submitted: Mutex::new(None) }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Whether the record is known to be on disk.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::Relaxed)
    }

    /// Adds the record to a batch whose keys have the number, unless it is known to be on disk.
    pub(crate) fn add_to(&self, batch: Batch, outcomes: &Outcomes) -> Batch {
        if self.is_stored() {
            return batch;
        }
        let mut submitted = self.lock();
        let settled = submitted.filter(|submission| *submission <= outcomes.settled_through());
        match settled.map(|submission| outcomes.failure_of(submission)) {
            Some(None) => self.is_stored.store(true, Ordering::Relaxed),
            Some(Some(_)) => *submitted = None,
            None => {}
        }
        if self.is_stored() { batch } else { self.put_in(batch) }
    }

    /// Adds the record to a batch, and with it the version of the layout.
    pub(crate) fn put_in(&self, batch: Batch) -> Batch {
        let batch = batch.put(layout::LAYOUT, layout::VERSION.to_le_bytes());
        batch.put(&self.record, self.number.to_le_bytes())
    }

    /// Notes that a batch with the record was submitted.
    pub(crate) fn submitted(&self, submission: Submission) {
        if !self.is_stored() {
            self.lock().get_or_insert(submission);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Submission>> {
        self.submitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_numbers() {
        let catalogue = Catalogue::default();
        let kind = |name| catalogue.kind(name).unwrap().number();
        let map = |kind, name| catalogue.map(kind, name).unwrap().number();
        assert_eq!([kind("a"), kind("b"), kind("a"), kind("ab")], [1, 2, 1, 3]);
        assert_eq!([map("a", ""), map("a", "x"), map("b", "x"), map("a", "")], [1, 2, 1, 1]);
        assert_eq!([map("ab", "x"), kind("c")], [1, 4]);
        let mut kinds = catalogue.kinds();
        kinds.sort();
        let expected = [("a", 1), ("ab", 3), ("b", 2), ("c", 4)];
        assert_eq!(kinds, expected.map(|(name, number)| (name.to_owned(), number)));
    }

    #[test]
    fn numbers_run_out() {
        let catalogue = Catalogue::default();
        for number in 1..=u16::MAX {
            let record = [b"Ka\0", &number.to_be_bytes()[..]].concat();
            let numbered = Numbered::new(record.clone().into(), number, true);
            catalogue.0.write().unwrap().insert(record.into(), Arc::new(numbered));
        }
        assert!(catalogue.map("a", "further").is_none());
        assert_eq!(catalogue.map("b", "further").unwrap().number(), 1);
    }
}
