//! [`Catalogue`]: the numbers that stand for the names of kinds, of maps of cells, of messages and of indexes in the
//! store, and for the shapes of states, cell values and messages before these.
//!
//! A name or a shape gets its number when the program first uses it. The record of the number is a part of each
//! batch that has the number, until one of these batches is known to be on disk. So no number is without a record,
//! and a number costs no flush of its own. A number that no batch has stored is given to something else after a
//! restart.

use std::any::TypeId;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng_store::{Batch, OpenError, Outcomes, ReadError, Submission};

use crate::inbox::Sequence;
use crate::keeper::Keeper;
use crate::layout;
use crate::shape::Shape;
use crate::tables::Tables;
use crate::view::View;

/// The numbers of all names; see the file's head.
#[derive(Debug, Default)]
pub(crate) struct Catalogue(RwLock<HashMap<Box<[u8]>, Arc<Numbered>>>);

/// A name with its number, and the shapes of its values.
#[derive(Debug)]
pub(crate) struct Numbered {
    number: Arc<Number>,
    /// All shapes that the store may have.
    shapes: RwLock<Vec<Arc<Shaped>>>,
    /// Shapes of the types that the program has used.
    types: boxcar::Vec<(TypeId, Arc<Shaped>)>,
}

/// A shape with its number.
#[derive(Debug)]
pub(crate) struct Shaped {
    number: Arc<Number>,
    /// The encoded number, with which a value begins.
    prefix: Vec<u8>,
    /// Version of the state; 0 for a cell.
    version: u16,
    shape: Shape,
}

/// A number, and its record.
#[derive(Debug)]
pub(crate) struct Number {
    record: Box<[u8]>,
    value: Box<[u8]>,
    number: u16,
    is_stored: AtomicBool,
    /// The first submission with the record that may not be on disk yet.
    submitted: Mutex<Option<Submission>>,
}

/// Byte between the names of a kind and of a map, which the name of a kind does not have.
const SEPARATOR: u8 = 0;

impl Catalogue {
    /// Checks the layout of a store, and reads the catalogue, the pins and the sequence numbers in use.
    pub(crate) fn open(
        tables: &Tables,
        path: &Path,
    ) -> Result<(Catalogue, Keeper, Sequence), OpenError> {
        let path = || path.into();
        let failed = |error| match error {
            ReadError::Corrupt(reason) => OpenError::Corrupt { path: path(), reason },
            ReadError::Io(source) => OpenError::Io { path: path(), source },
            error => OpenError::Io { path: path(), source: std::io::Error::other(error) },
        };
        let view = View::of(tables).map_err(failed)?;
        let version = view.get(layout::LAYOUT).map_err(failed)?;
        let version = version.and_then(|version| version.try_into().ok());
        let found = version.map_or(layout::VERSION, u16::from_le_bytes);
        if found != layout::VERSION {
            let (found, known) = (found.into(), layout::VERSION.into());
            return Err(OpenError::Format { path: path(), found, known });
        }
        let catalogue = Catalogue::read(&view).map_err(failed)?;
        let keeper = Keeper::read(&view).map_err(failed)?;
        Ok((catalogue, keeper, Sequence::read(&view).map_err(failed)?))
    }

    /// Reads the catalogue of a store.
    pub(crate) fn read(view: &View) -> Result<Catalogue, ReadError> {
        let mut names = HashMap::new();
        let names_of = [layout::CATALOGUE, layout::MESSAGES, layout::INDEXES, layout::GONE_INDEXES];
        for entry in names_of.into_iter().flat_map(|table| view.prefix(table)) {
            let (record, value) = entry?;
            let number = value.try_into().map(u16::from_le_bytes).map_err(|_| {
                let name = String::from_utf8_lossy(&record[1..]);
                ReadError::Corrupt(format!(
                    "the number of the kind, map, message or index {name:?} has not two bytes"
                ))
            })?;
            // The record of the name is deleted last.
            if let Some(name) = name_of_gone(record)
                && names.get(&name[..]).is_some_and(|own: &Arc<Numbered>| own.number() == number)
            {
                names.remove(&name[..]);
            }
            names.insert(record.into(), Arc::new(Numbered::new(Number::of(record, number, true))));
        }
        for entry in view.prefix(layout::SHAPES).chain(view.prefix(layout::MESSAGE_SHAPES)) {
            let (record, value) = entry?;
            let shaped = Shaped::parse(record, value);
            let (name, shaped) =
                shaped.filter(|(name, _)| names.contains_key(name)).ok_or_else(|| {
                    let record = record.escape_ascii();
                    ReadError::Corrupt(format!(
                        "the record {record} has no shape of a kind, map or message"
                    ))
                })?;
            names[&name].shapes.write().unwrap_or_else(PoisonError::into_inner).push(shaped);
        }
        Ok(Catalogue(RwLock::new(names)))
    }

    /// Returns the number of a kind; `None` if there are no more numbers.
    pub(crate) fn kind(&self, kind: &str) -> Option<Arc<Numbered>> {
        self.number([layout::CATALOGUE, kind.as_bytes()].concat(), |record| {
            !record.contains(&SEPARATOR)
        })
    }

    /// Returns the number of a map of a kind's cells; `None` if there are no more numbers.
    pub(crate) fn map(&self, kind: &str, map: &str) -> Option<Arc<Numbered>> {
        self.part(layout::CATALOGUE, kind, map)
    }

    /// Returns the number of a map of a kind's cells, if it has one.
    pub(crate) fn known_map(&self, kind: &str, map: &str) -> Option<Arc<Numbered>> {
        let is_known = self.maps(kind).into_iter().any(|(known, _)| known == map);
        is_known.then(|| self.map(kind, map)).flatten()
    }

    /// Returns the number of a message that a kind stores; `None` if there are no more numbers.
    pub(crate) fn message(&self, kind: &str, message: &str) -> Option<Arc<Numbered>> {
        self.part(layout::MESSAGES, kind, message)
    }

    fn part(&self, table: &[u8], kind: &str, name: &str) -> Option<Arc<Numbered>> {
        let kind = [table, kind.as_bytes(), &[SEPARATOR]].concat();
        let record = [&kind, name.as_bytes()].concat();
        self.number(record, |record| record.starts_with(&kind))
    }

    /// Returns the number of an index of a kind; `None` if there are no more numbers.
    pub(crate) fn index(&self, kind: &str, index: &[u8]) -> Option<Arc<Numbered>> {
        let tables = [layout::INDEXES, layout::GONE_INDEXES];
        let [own, gone] = tables.map(|table| [table, kind.as_bytes(), &[SEPARATOR]].concat());
        // An index that is being deleted keeps its number.
        self.number([&own, index].concat(), |record| {
            record.starts_with(&own) || record.starts_with(&gone)
        })
    }

    /// Returns the names of a kind's indexes.
    pub(crate) fn indexes(&self, kind: &str) -> Vec<Vec<u8>> {
        self.parts_in(layout::INDEXES, kind).into_iter().map(|(name, _)| name).collect()
    }

    /// Returns the indexes of a kind that are being deleted.
    pub(crate) fn gone_indexes(&self, kind: &str) -> Vec<Arc<Numbered>> {
        let gone = [layout::GONE_INDEXES, kind.as_bytes(), &[SEPARATOR]].concat();
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let gone = named.iter().filter(|(record, _)| record.starts_with(&gone));
        gone.map(|(_, numbered)| numbered.clone()).collect()
    }

    /// Takes an index out of the catalogue: from here on it is one that is being deleted.
    pub(crate) fn index_goes(&self, kind: &str, index: &[u8]) {
        let kind = [kind.as_bytes(), &[SEPARATOR]].concat();
        let mut named = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = named.remove(&[layout::INDEXES, &kind, index].concat()[..]) else { return };
        let number = own.number();
        let gone = [layout::GONE_INDEXES, &kind, &number.to_be_bytes(), index].concat();
        let numbered = Numbered::new(Number::of(&gone, number, false));
        named.insert(gone.into(), Arc::new(numbered));
    }

    /// Adds to a batch that an index is deleted.
    pub(crate) fn add_gone(&self, gone: &Numbered, batch: Batch, tables: &Tables) -> Batch {
        let batch = batch.delete(tables.at(&gone.record), &gone.record);
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match name_of_gone(&gone.record) {
            // An index of this name that came later has another number.
            Some(name) if !named.contains_key(&name[..]) => batch.delete(tables.at(&name), &name),
            _ => batch,
        }
    }

    /// Returns the names of all kinds with their numbers.
    pub(crate) fn kinds(&self) -> Vec<(String, u16)> {
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let kinds = named.iter().filter(|(record, _)| !record.contains(&SEPARATOR));
        let name = |record: &[u8]| String::from_utf8_lossy(&record[1..]).into_owned();
        kinds.map(|(record, numbered)| (name(record), numbered.number())).collect()
    }

    /// Returns the names of the maps of a kind's cells with their numbers.
    pub(crate) fn maps(&self, kind: &str) -> Vec<(String, u16)> {
        self.parts(layout::CATALOGUE, kind)
    }

    /// Returns the names of the messages that a kind stores with their numbers.
    pub(crate) fn messages(&self, kind: &str) -> Vec<(String, u16)> {
        self.parts(layout::MESSAGES, kind)
    }

    fn parts(&self, table: &[u8], kind: &str) -> Vec<(String, u16)> {
        let text = |name: Vec<u8>| String::from_utf8_lossy(&name).into_owned();
        let parts = self.parts_in(table, kind).into_iter();
        parts.map(|(name, number)| (text(name), number)).collect()
    }

    fn parts_in(&self, table: &[u8], kind: &str) -> Vec<(Vec<u8>, u16)> {
        let kind = [table, kind.as_bytes(), &[SEPARATOR]].concat();
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let parts = named.values().filter_map(|numbered| {
            let name = numbered.record.strip_prefix(&kind[..])?;
            Some((name.to_vec(), numbered.number()))
        });
        parts.collect()
    }

    /// Returns the number of the name with this record. A new number is one more than the highest number of its
    /// siblings.
    fn number(&self, record: Vec<u8>, is_sibling: impl Fn(&[u8]) -> bool) -> Option<Arc<Numbered>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&*record).cloned();
        if known.is_some() {
            return known;
        }
        let mut named = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let siblings = named.iter().filter(|(record, _)| is_sibling(record));
        let highest = siblings.map(|(_, numbered)| numbered.number()).max().unwrap_or(0);
        let new = Number::of(&record, highest.wrapping_add(1), false);
        let new = || (highest < u16::MAX).then(|| Arc::new(Numbered::new(new)));
        match named.entry(record.into()) {
            Entry::Occupied(known) => Some(known.get().clone()),
            Entry::Vacant(vacant) => Some(vacant.insert(new()?).clone()),
        }
    }
}

/// Returns the record of the name that an index had which is being deleted.
fn name_of_gone(record: &[u8]) -> Option<Vec<u8>> {
    let gone = record.strip_prefix(layout::GONE_INDEXES)?;
    let kind = 1 + gone.iter().position(|byte| *byte == SEPARATOR)?;
    Some([layout::INDEXES, &gone[..kind], gone.get(kind + 2..)?].concat())
}

impl Numbered {
    fn new(number: Number) -> Numbered {
        Numbered { number: Arc::new(number), shapes: RwLock::default(), types: boxcar::Vec::new() }
    }

    /// Returns the number, unless its record is known to be on disk.
    pub(crate) fn unstored(&self) -> Option<Arc<Number>> {
        (!self.is_stored()).then(|| self.number.clone())
    }

    /// Returns the shape of a type's values. The first call for a type runs the user's `Deserialize`.
    ///
    /// # Errors
    ///
    /// The reason why the type's values cannot be stored.
    pub(crate) fn shape_of<T: Serialize + DeserializeOwned + 'static>(
        &self,
        version: u16,
    ) -> Result<&Arc<Shaped>, &'static str> {
        const FULL: &str = "it would be of another type than those of 65535 earlier values";
        let known = || {
            let mut types = self.types.iter();
            types.find_map(|(_, (id, shaped))| (*id == TypeId::of::<T>()).then_some(shaped))
        };
        if let Some(known) = known() {
            return Ok(known);
        }
        let shape = Shape::of_stored::<T>()?;
        // Several threads may add the same type, and each finds the first one.
        self.types.push((TypeId::of::<T>(), self.add_shape(version, shape).ok_or(FULL)?));
        known().ok_or(FULL)
    }

    /// Returns the shape with a number.
    pub(crate) fn shape(&self, number: u16) -> Option<Arc<Shaped>> {
        let shapes = self.shapes.read().unwrap_or_else(PoisonError::into_inner);
        shapes.iter().find(|shaped| shaped.number() == number).cloned()
    }

    /// Returns the version of a value behind the number of its shape, the length of the value, and its text for people,
    /// cut at about `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// The reason why the record has no such value.
    pub(crate) fn show(
        &self,
        record: &[u8],
        bytes_max: usize,
    ) -> Result<(u16, usize, String), String> {
        let (number, encoded) = postcard::take_from_bytes::<u16>(record)
            .map_err(|error| format!("it has no number of a shape: {error}"))?;
        let shaped = self.shape(number);
        let shaped = shaped.ok_or_else(|| format!("the store has no shape {number}"))?;
        Ok((shaped.version, encoded.len(), shaped.shape.show(encoded, bytes_max)?))
    }

    /// Returns a shape with its number, a new one if it has none; `None` if there are no more numbers.
    pub(crate) fn add_shape(&self, version: u16, shape: Shape) -> Option<Arc<Shaped>> {
        let mut shapes = self.shapes.write().unwrap_or_else(PoisonError::into_inner);
        let known = shapes.iter().find(|known| (known.version, &known.shape) == (version, &shape));
        if let Some(known) = known {
            return Some(known.clone());
        }
        let highest = shapes.iter().map(|shaped| shaped.number()).max().unwrap_or(0);
        let number = highest.checked_add(1)?;
        let table = match self.record.starts_with(layout::MESSAGES) {
            true => layout::MESSAGE_SHAPES,
            false => layout::SHAPES,
        };
        let record = [table, &self.record[1..], &number.to_be_bytes()].concat();
        let value = [&version.to_le_bytes(), &shape.encode()[..]].concat();
        let number = Number { value: value.into(), ..Number::of(&record, number, false) };
        shapes.push(Shaped::new(number, version, shape));
        shapes.last().cloned()
    }
}

impl Shaped {
    /// Parses the record of a shape, and returns the record of its name, too.
    pub(crate) fn parse(record: &[u8], value: &[u8]) -> Option<(Box<[u8]>, Arc<Shaped>)> {
        let (table, name) = match record.strip_prefix(layout::SHAPES) {
            Some(name) => (layout::CATALOGUE, name),
            None => (layout::MESSAGES, record.strip_prefix(layout::MESSAGE_SHAPES)?),
        };
        let (name, number) = name.split_last_chunk()?;
        let (version, shape) = value.split_first_chunk()?;
        let number =
            Number { value: value.into(), ..Number::of(record, u16::from_be_bytes(*number), true) };
        let shaped = Shaped::new(number, u16::from_le_bytes(*version), Shape::parse(shape)?);
        Some(([table, name].concat().into(), shaped))
    }

    /// Returns the number, unless its record is known to be on disk.
    pub(crate) fn unstored(&self) -> Option<Arc<Number>> {
        (!self.is_stored()).then(|| self.number.clone())
    }

    fn new(number: Number, version: u16, shape: Shape) -> Arc<Shaped> {
        // A number is always encoded.
        let prefix = postcard::to_stdvec(&number.number).unwrap_or_default();
        Arc::new(Shaped { number: Arc::new(number), prefix, version, shape })
    }

    /// Returns the encoded number, with which a value of the shape begins.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether a value of the stored shape is decoded like one of this shape.
    pub(crate) fn agrees(&self, stored: &Shaped) -> bool {
        self.number() == stored.number() || self.shape.agrees(&stored.shape)
    }

    /// Splits a record into the encoded value and its shape, which is often this one. `name` has the shapes.
    ///
    /// # Errors
    ///
    /// The reason why the record has no shape.
    pub(crate) fn split<'r>(
        self: &Arc<Shaped>,
        name: &Numbered,
        record: &'r [u8],
    ) -> Result<(Arc<Shaped>, &'r [u8]), String> {
        let (number, encoded) = postcard::take_from_bytes(record)
            .map_err(|error| format!("it has no number of a shape: {error}"))?;
        if number == self.number() {
            return Ok((self.clone(), encoded));
        }
        match name.shape(number) {
            Some(shaped) => Ok((shaped, encoded)),
            None => Err(format!("the store has no shape {number}")),
        }
    }
}

impl Deref for Numbered {
    type Target = Number;

    fn deref(&self) -> &Number {
        &self.number
    }
}

impl Deref for Shaped {
    type Target = Number;

    fn deref(&self) -> &Number {
        &self.number
    }
}

impl Number {
    fn of(record: &[u8], number: u16, is_stored: bool) -> Number {
        Number {
            record: record.into(),
            value: number.to_le_bytes().into(),
            number,
            is_stored: is_stored.into(),
            submitted: Mutex::new(None),
        }
    }

    /// Returns a record without a number, which is stored as one is.
    pub(crate) fn marker(record: &[u8], value: Vec<u8>) -> Number {
        Number { value: value.into(), ..Number::of(record, 0, false) }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Returns the key and the value of the record.
    pub(crate) fn record(&self) -> (&[u8], &[u8]) {
        (&self.record, &self.value)
    }

    /// Whether the record is known to be on disk.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::Relaxed)
    }

    /// Adds the record to a batch that has the number, unless it is known to be on disk.
    pub(crate) fn add_to(&self, batch: Batch, tables: &Tables, outcomes: &Outcomes) -> Batch {
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
        if self.is_stored() {
            return batch;
        }
        let batch =
            batch.put(tables.at(layout::LAYOUT), layout::LAYOUT, &layout::VERSION.to_le_bytes());
        batch.put(tables.at(&self.record), &self.record, &self.value)
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
            let numbered = Numbered::new(Number::of(&record, number, true));
            catalogue.0.write().unwrap().insert(record.into(), Arc::new(numbered));
        }
        assert!(catalogue.map("a", "further").is_none());
        assert_eq!(catalogue.map("b", "further").unwrap().number(), 1);
    }
}
