//! [`Export`]: everything that is stored of an entity, as it is stored; and its import into a store.
//!
//! ```text
//!  names:   K map   M message   then D shape   E shape      as in the catalogue, behind the kind's name
//!  entity:  S state   P pin   C cells   I A X messages   R replies   T reminders
//! ```
//!
//! Records that follow from these are made anew, and not copied: the kind's number and count, the expiries of replies, the
//! times of reminders, and the blocks of sequence numbers.
//!
//! Invariants: values keep their bytes, so the numbers of messages and shapes in them must mean the same in both stores.
//! An import that would give a number a second meaning is refused before anything is written. The state comes last, so
//! that an import that was interrupted has none.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Bound;

use throng_store::{Batch, ReadError};

use super::{Records, RecordsError, number};
use crate::catalogue::Shaped;
use crate::inbox::block_of;
use crate::layout::{self, STATE_KEY_BYTES_MAX, Table};
use crate::stored::is_stored;
use crate::tables::Tables;
use crate::view::View;
use crate::{once, reminder};

/// A record of an [`Export`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ExportedRecord {
    /// Table of the record, a letter of the layout.
    pub table: char,
    /// The part of the key behind the name of the kind, or behind the key of the entity.
    pub key: Vec<u8>,
    /// The value; an error if the record is damaged. A store that is opened without
    /// [`verify_reads`](throng_store::Options::verify_reads) has the bytes all the same.
    pub value: Result<Vec<u8>, ReadError>,
}

impl ExportedRecord {
    /// Returns a record for an import.
    pub fn new(table: char, key: Vec<u8>, value: Vec<u8>) -> ExportedRecord {
        ExportedRecord { table, key, value: Ok(value) }
    }
}

/// Everything that is stored of an entity, record by record, as of one moment; from [`Records::export`].
///
/// While the export exists, the store keeps the data of its moment. Memory does not depend on the number of records.
#[must_use = "iterators do nothing unless they are advanced"]
pub struct Export {
    view: View,
    /// Names, shapes, state and pin: key and length of the part of it that is left out.
    single: VecDeque<(Vec<u8>, usize)>,
    /// Prefixes of the other records.
    prefixes: VecDeque<Vec<u8>>,
    /// The last key of the first prefix.
    last: Option<Vec<u8>>,
}

/// Tables of the records of an entity with a key of their own.
const TABLES: [u8; 6] = [
    layout::CELLS[0],
    Table::Inbox as u8,
    Table::Attempts as u8,
    Table::Parked as u8,
    Table::Replies as u8,
    Table::Reminders as u8,
];

/// Records in a batch, at most, and bytes of it at which it ends.
const BATCH_RECORDS_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Number up to which sequence numbers are imported, so that those behind never run out.
const SEQUENCE_MAX: u64 = 1 << 53;

impl Records {
    /// Returns everything that is stored of an entity, as it is stored; `None` if nothing is. Nothing is decoded, so
    /// an entity that cannot be loaded is exported like any other.
    ///
    /// ```
    /// use throng_durable::{Records, RecordsError};
    ///
    /// /// Copies an entity from a store into another one.
    /// fn copy(from: &Records, to: &Records, kind: &str, key: &str) -> Result<bool, RecordsError> {
    ///     let Some(export) = from.export(kind, key)? else { return Ok(false) };
    ///     to.import(kind, key, export)?;
    ///     Ok(true)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RecordsError::NoKind`], [`RecordsError::Key`], [`RecordsError::Read`] and [`RecordsError::Layout`].
    pub fn export(&self, kind: &str, key: &str) -> Result<Option<Export>, RecordsError> {
        let (view, catalogue) = self.open()?;
        let mut buffer = [0; STATE_KEY_BYTES_MAX];
        let state_key = layout::state_key(number(&catalogue, kind)?, key, &mut buffer)?;
        let prefixes: VecDeque<_> = prefixes(state_key).into();
        let mut single = VecDeque::new();
        for key in [state_key, &layout::pin(state_key)] {
            if is_stored(&view, key)? {
                single.push_back((key.to_vec(), key.len()));
            }
        }
        let mut has_some = !single.is_empty();
        for prefix in &prefixes {
            has_some |= view.prefix(prefix).next_key().transpose()?.is_some();
        }
        if !has_some {
            return Ok(None);
        }
        for name in names(&view, kind)?.into_iter().rev() {
            single.push_front((name, 1 + kind.len()));
        }
        Ok(Some(Export { view, single, prefixes, last: None }))
    }

    /// Writes an entity of which nothing is stored, from the records of an [`Export`], under this key. Blocks until it is
    /// on disk. Messages that wait are handled, and reminders come, as if the entity had always been here: leave their
    /// records out if it is a copy that must not act.
    ///
    /// If the import is interrupted, it may leave a part of the cells and messages: [forget](Records::forget) the entity,
    /// and import it again.
    ///
    /// # Errors
    ///
    /// [`RecordsError::Exists`] if anything is stored of the entity; [`RecordsError::Unfit`] if the records are no export,
    /// or the store has other names or shapes under their numbers; [`RecordsError::Live`] for the records of a running
    /// node; the errors of [`forget`](Records::forget).
    pub fn import(
        &self,
        kind: &str,
        key: &str,
        records: impl IntoIterator<Item = Result<ExportedRecord, ReadError>>,
    ) -> Result<u64, RecordsError> {
        if self.is_of_node() {
            return Err(RecordsError::Live);
        }
        let (view, catalogue) = self.open()?;
        let is_kind =
            !kind.is_empty() && kind.len() <= layout::KIND_BYTES_MAX && !kind.contains('\0');
        let numbered = is_kind.then(|| catalogue.kind(kind)).flatten();
        let number = numbered.ok_or_else(|| unfit("the store can have no such kind"))?.number();
        let mut buffer = [0; STATE_KEY_BYTES_MAX];
        let state_key = layout::state_key(number, key, &mut buffer)?;
        if self.has_records(&view, state_key)? {
            return Err(RecordsError::Exists { kind: kind.into(), key: key.into() });
        }
        let mut import = Import {
            tables: Tables::open(self.tables()?.store())?,
            view,
            names: NewNames::new(kind, number),
            state_key,
            reminders: Vec::new(),
            batch: Batch::new(),
            waiting: (0, 0),
            last: Batch::new(),
            has_state: false,
            blocks: HashSet::new(),
            written: 0,
        };
        records.into_iter().try_for_each(|record| import.take(record?))?;
        import.finish(number)
    }

    fn has_records(&self, view: &View, state_key: &[u8]) -> Result<bool, ReadError> {
        let mut has_some = is_stored(view, state_key)? || is_stored(view, &layout::pin(state_key))?;
        for prefix in prefixes(state_key) {
            has_some |= view.prefix(&prefix).next_key().transpose()?.is_some();
        }
        Ok(has_some)
    }
}

impl Iterator for Export {
    type Item = Result<ExportedRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((key, left_out)) = self.single.pop_front() {
            return Some(Ok(self.record(&key, left_out)));
        }
        loop {
            let prefix = self.prefixes.front()?;
            let end = layout::after(prefix);
            let start = match &self.last {
                Some(last) => Bound::Excluded(&last[..]),
                None => Bound::Included(&prefix[..]),
            };
            match self.view.range((start, Bound::Excluded(&end[..]))).next_key() {
                Some(Ok(key)) => {
                    let (key, left_out) = (key.to_vec(), prefix.len());
                    let record = self.record(&key, left_out);
                    self.last = Some(key);
                    return Some(Ok(record));
                }
                Some(Err(error)) => {
                    // The rest cannot be found.
                    self.prefixes.clear();
                    return Some(Err(error));
                }
                None => {
                    self.prefixes.pop_front();
                    self.last = None;
                }
            }
        }
    }
}

impl Export {
    fn record(&self, key: &[u8], left_out: usize) -> ExportedRecord {
        let value = self.view.get(key).map(|value| value.unwrap_or_default().to_vec());
        ExportedRecord { table: key[0].into(), key: key[left_out..].into(), value }
    }
}

/// Returns the prefixes of the records of an entity in the order of [`TABLES`].
fn prefixes(state_key: &[u8]) -> Vec<Vec<u8>> {
    let of = |table| [&[table], &layout::cells(state_key)[1..]].concat();
    TABLES.map(of).into()
}

/// Returns the keys of the catalogue's records of a kind, without the kind's own: names first.
fn names(view: &View, kind: &str) -> Result<Vec<Vec<u8>>, ReadError> {
    let mut names = Vec::new();
    for table in [layout::CATALOGUE, layout::MESSAGES, layout::SHAPES, layout::MESSAGE_SHAPES] {
        let prefix = [table, kind.as_bytes()].concat();
        let mut keys = view.prefix(&prefix);
        while let Some(key) = keys.next_key() {
            let key = key?;
            let is_shape = table == layout::SHAPES || table == layout::MESSAGE_SHAPES;
            let name = if is_shape {
                key.split_last_chunk::<2>().map(|(name, _)| name)
            } else {
                Some(key)
            };
            let rest = name.and_then(|name| name.get(prefix.len()..));
            // Others are of a kind whose name begins like this one.
            let is_own =
                rest.is_some_and(|rest| rest.first() == Some(&0) || is_shape && rest.is_empty());
            names.extend(is_own.then(|| key.to_vec()));
        }
    }
    Ok(names)
}

/// An import under way.
struct Import<'r> {
    tables: Tables,
    view: View,
    names: NewNames,
    state_key: &'r [u8],
    reminders: Vec<(Vec<u8>, Vec<u8>)>,
    /// The next batch, and its records and bytes.
    batch: Batch,
    waiting: (usize, usize),
    /// The batch with the state.
    last: Batch,
    has_state: bool,
    blocks: HashSet<u64>,
    written: u64,
}

impl Import<'_> {
    fn take(&mut self, record: ExportedRecord) -> Result<(), RecordsError> {
        let ExportedRecord { table, key, value } = record;
        let value = value?;
        let Ok(table) = u8::try_from(table) else { return Err(unfit("a table has no such name")) };
        if [layout::CATALOGUE, layout::MESSAGES, layout::SHAPES, layout::MESSAGE_SHAPES]
            .contains(&&[table][..])
        {
            if self.written > 0 {
                return Err(unfit("a name or a shape comes behind other records"));
            }
            return self.names.take(&self.view, table, &key, value);
        }
        self.written += 1;
        match table {
            b'S' | b'P' if !key.is_empty() => Err(unfit("a state or a pin has a key of its own")),
            b'S' => {
                self.has_state = true;
                self.add_last(self.state_key.to_vec(), value);
                Ok(())
            }
            b'P' => {
                self.add_last(layout::pin(self.state_key), value);
                Ok(())
            }
            _ if TABLES.contains(&table) => self.add(table, &key, value),
            _ => Err(unfit(&format!("no table has the name {:?}", char::from(table)))),
        }
    }

    fn add_last(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let table = self.tables.at(&key);
        self.last = std::mem::take(&mut self.last).put(table, &key, &value);
    }

    /// Adds a record of a table to the next batch.
    fn add(&mut self, table: u8, key: &[u8], value: Vec<u8>) -> Result<(), RecordsError> {
        let record = [&[table], &layout::cells(self.state_key)[1..], key].concat();
        if [Table::Inbox, Table::Attempts, Table::Parked].map(|own| own as u8).contains(&table) {
            let sequence = key.try_into().ok().map(u64::from_be_bytes);
            let sequence = sequence.filter(|sequence| *sequence < SEQUENCE_MAX);
            let sequence = sequence.ok_or_else(|| unfit("a message has no valid number"))?;
            if self.blocks.insert(block_of(sequence)) {
                self.add_last(layout::block(block_of(sequence)), Vec::new());
            }
        }
        if table == Table::Replies as u8
            && let Some(expiry) = once::expiry_of(&record, &value)
        {
            self.add_last(expiry, Vec::new());
        }
        if table == Table::Reminders as u8 {
            self.reminders.push((key.into(), value.clone()));
        }
        self.waiting.0 += 1;
        self.waiting.1 += record.len() + value.len();
        let batch = std::mem::take(&mut self.batch);
        self.batch = batch.put(self.tables.at(&record), &record, &value);
        if self.waiting.0 >= BATCH_RECORDS_MAX || self.waiting.1 >= BATCH_BYTES_MAX {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the records so far, with the names that they need.
    fn write(&mut self) -> Result<(), RecordsError> {
        let tables = &self.tables;
        let names = self.names.check(&self.view)?;
        let mut batch = std::mem::take(&mut self.batch);
        for (key, value) in names {
            batch = batch.put(tables.at(&key), &key, &value);
        }
        self.waiting = (0, 0);
        Ok(tables.store().write(batch).wait()?)
    }

    fn finish(mut self, number: u16) -> Result<u64, RecordsError> {
        if self.written == 0 {
            return Err(unfit("it has no records of an entity"));
        }
        self.write()?;
        let reminders = self.reminders.iter().map(|(key, record)| (&key[..], &record[..]));
        for key in reminder::index_of(reminders, self.state_key) {
            self.add_last(key.into(), Vec::new());
        }
        let tables = &self.tables;
        if self.has_state {
            let count = layout::count(number);
            self.last = self.last.add(tables.at(&count), &count, 1);
        }
        // The next program makes the entries: it builds the indexes of the kind anew.
        let mut built = self.view.prefix(&layout::built_of_kind(number));
        while let Some(index) = built.next_key() {
            let index = index?;
            self.last = self.last.delete(tables.at(index), index);
        }
        tables.store().write(self.last).wait()?;
        Ok(self.written)
    }
}

/// A record: key and value.
type Put = (Vec<u8>, Vec<u8>);

/// The names and shapes of an import that the store does not have.
struct NewNames {
    kind: String,
    new: HashMap<Vec<u8>, Vec<u8>>,
    is_written: bool,
}

impl NewNames {
    fn new(kind: &str, number: u16) -> NewNames {
        let own = [layout::CATALOGUE, kind.as_bytes()].concat();
        let new = HashMap::from([
            (layout::LAYOUT.to_vec(), layout::VERSION.to_le_bytes().to_vec()),
            (own, number.to_le_bytes().to_vec()),
        ]);
        NewNames { kind: kind.into(), new, is_written: false }
    }

    /// Imports a name or a shape, unless the store has that name or shape already.
    fn take(
        &mut self,
        view: &View,
        table: u8,
        rest: &[u8],
        value: Vec<u8>,
    ) -> Result<(), RecordsError> {
        let record = [&[table], self.kind.as_bytes(), rest].concat();
        let is_name = [table] == layout::CATALOGUE || [table] == layout::MESSAGES;
        let is_valid = match is_name {
            true => rest.first() == Some(&0) && value.len() == 2,
            false => Shaped::parse(&record, &value).is_some(),
        };
        if !is_valid {
            return Err(unfit("a name or a shape is damaged"));
        }
        match view.get(&record)? {
            Some(known) if known == value => return Ok(()),
            Some(_) => return Err(self.conflict(&record)),
            None => {}
        }
        // The number of a shape is in its key; that of a name must belong to no other one.
        if is_name {
            let siblings = [&[table], self.kind.as_bytes(), &[0]].concat();
            for sibling in view.prefix(&siblings) {
                if sibling?.1 == value {
                    return Err(self.conflict(&record));
                }
            }
        }
        self.new.insert(record, value);
        Ok(())
    }

    fn conflict(&self, record: &[u8]) -> RecordsError {
        unfit(&format!(
            "the store has another number or shape for {:?} of the kind {:?}, so that it cannot have the values",
            String::from_utf8_lossy(&record[1 + self.kind.len()..]),
            self.kind
        ))
    }

    /// Returns the records of the names, once all are known.
    fn check(&mut self, view: &View) -> Result<Vec<Put>, RecordsError> {
        if std::mem::replace(&mut self.is_written, true) {
            return Ok(Vec::new());
        }
        for (record, value) in &self.new {
            let name = Shaped::parse(record, value).map(|(name, _)| name);
            if let Some(name) = name
                && !self.new.contains_key(&*name)
                && view.get(&name)?.is_none()
            {
                return Err(unfit("a shape is of a name that is missing"));
            }
        }
        Ok(self.new.drain().collect())
    }
}

fn unfit(reason: &str) -> RecordsError {
    RecordsError::Unfit(reason.into())
}
