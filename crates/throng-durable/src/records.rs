//! [`Records`]: the stored entities without their types, for an operator.

use std::fmt;

use throng_store::{Batch, ReadError, Store, WriteError};

use crate::catalogue::{Catalogue, Numbered};
use crate::cells::stored_keys;
use crate::changes::Changes;
use crate::inbox::{self, Inbox};
use crate::layout::{self, STATE_KEY_BYTES_MAX, Table};
use crate::stored::is_stored;
use crate::tables::Tables;
use crate::view::View;
use crate::{EntityError, KeyError, Reminder, index, once, reminder, stored};

/// The entities in a store as they are stored, without the program's types: for an operator who looks for an entity
/// that cannot be loaded, keeps a copy of it, and removes it.
///
/// Reading works beside a node, from [`Node::records`](crate::Node::records) or by a store that is
/// [opened read-only](throng_store::Options::read_only). `throng store entity` is a command around it.
///
/// ```
/// use throng_durable::{Records, RecordsError};
/// use throng_store::Store;
///
/// /// Keeps a copy of an entity's state, and removes the entity.
/// fn take_out(store: &Store, kind: &str, key: &str) -> Result<Option<Vec<u8>>, RecordsError> {
///     let records = Records::of(store.clone());
///     let export = records.export(kind, key)?;
///     records.forget(kind, key)?;
///     Ok(export.and_then(|export| export.state.ok()))
/// }
/// ```
#[derive(Clone)]
pub struct Records {
    tables: Tables,
    /// Whether the store is that of a node, whose live entities know nothing of changes made here.
    is_of_node: bool,
}

/// A stored entity in a list, from [`Records::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The entity's key.
    pub key: String,
    /// Version and length of the state in bytes; or the damage of its record, as text.
    pub state: Result<(u16, usize), String>,
}

/// Everything that is stored of an entity, from [`Records::export`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Export {
    /// The state: the number of its shape, then the encoded state. An error if the record is damaged;
    /// a store that is opened without [`verify_reads`](throng_store::Options::verify_reads) has the bytes all the same.
    pub state: Result<Vec<u8>, ReadError>,
    /// The cells, by their maps and in the order of their keys.
    pub cells: Vec<ExportedCell>,
    /// Whether the entity is pinned.
    pub is_pinned: bool,
    /// Its durable messages.
    pub inbox: Inbox,
    /// Its reminders; an error if one of them cannot be read.
    pub reminders: Result<Vec<Reminder>, EntityError>,
}

/// A cell of an entity, in an [`Export`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ExportedCell {
    /// Name of the map.
    pub map: String,
    /// The encoded key.
    pub key: Vec<u8>,
    /// The number of its shape, then the encoded value; an error if the record is damaged.
    pub value: Result<Vec<u8>, ReadError>,
}

/// Error of [`Records`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// The store has no such kind: see [`Records::kinds`].
    #[error("the store has no entities of the kind {0:?}")]
    NoKind(String),
    /// The key is not valid.
    #[error("the entity's key {0}")]
    Key(#[from] KeyError),
    /// The records have another layout, of another version of this crate.
    #[error(
        "the entities have layout {found}, this program knows layout {known}; a program of the right \
         version opens the store"
    )]
    Layout {
        /// The layout found.
        found: u16,
        /// The layout of this program.
        known: u16,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store refuses the change, or could not make it. The entity may be removed in part; try again.
    #[error("the entity could not be removed: {0}")]
    Write(#[from] WriteError),
    /// The store is a running node's: use [`Node::forget_unreadable`](crate::Node::forget_unreadable).
    #[error("the entities of a running node are removed by the node")]
    Live,
}

/// Deletions in a batch, at most.
const DELETIONS_MAX: usize = 10_000;

impl Records {
    /// Returns the records in a store that no node has open for writing.
    pub fn of(store: Store) -> Records {
        Records { tables: Tables::existing(&store), is_of_node: false }
    }

    pub(crate) fn of_node(tables: Tables) -> Records {
        Records { tables, is_of_node: true }
    }

    /// Returns all kinds by name, each with the number of its stored entities.
    ///
    /// # Errors
    ///
    /// [`RecordsError::Read`] and [`RecordsError::Layout`].
    pub fn kinds(&self) -> Result<Vec<(String, u64)>, RecordsError> {
        let (view, catalogue) = self.open()?;
        let mut kinds = catalogue.kinds();
        kinds.sort();
        let count = |number| stored::count(&view, number).map(Option::unwrap_or_default);
        kinds.into_iter().map(|(kind, number)| Ok((kind, count(number)?))).collect()
    }

    /// Returns at most `limit` entities of a kind whose keys begin with `prefix` and come after `after`, in the order
    /// of their keys.
    ///
    /// # Errors
    ///
    /// [`RecordsError::NoKind`], [`RecordsError::Read`] and [`RecordsError::Layout`].
    pub fn list(
        &self,
        kind: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, RecordsError> {
        let (view, catalogue) = self.open()?;
        let number = number(&catalogue, kind)?;
        let numbered = catalogue.kind(kind).ok_or_else(|| RecordsError::NoKind(kind.into()))?;
        let states = layout::states(number);
        let prefix = [&states, prefix.as_bytes()].concat();
        let after = after.map(|after| [&states, after.as_bytes()].concat());
        let mut range = match &after {
            Some(after) if *after >= prefix => {
                let end = layout::after(&prefix);
                let bounds =
                    (std::ops::Bound::Excluded(&after[..]), std::ops::Bound::Excluded(&end[..]));
                view.range(bounds)
            }
            _ => view.prefix(&prefix),
        };
        let mut records = Vec::new();
        while records.len() < limit
            && let Some(state_key) = range.next_key()
        {
            let state_key = state_key?;
            let state = match view.get(state_key) {
                Ok(Some(record)) => version(&numbered, record),
                Ok(None) => continue,
                Err(ReadError::Corrupt(damage)) => Err(damage),
                Err(error) => return Err(error.into()),
            };
            let key = String::from_utf8_lossy(layout::own_key(state_key)).into_owned();
            records.push(Record { key, state });
        }
        Ok(records)
    }

    /// Returns everything that is stored of an entity; `None` if nothing is. Nothing is decoded.
    ///
    /// # Errors
    ///
    /// All but [`RecordsError::Write`] and [`RecordsError::Live`].
    pub fn export(&self, kind: &str, key: &str) -> Result<Option<Export>, RecordsError> {
        let (view, catalogue) = self.open()?;
        let number = number(&catalogue, kind)?;
        let mut buffer = [0; STATE_KEY_BYTES_MAX];
        let state_key = layout::state_key(number, key, &mut buffer)?;
        let is_pinned = view.get(&layout::pin(state_key)).is_ok_and(|pin| pin.is_some());
        let inbox = inbox::list::read(&view, &catalogue, kind, state_key)?;
        let has_messages = !inbox.waiting.is_empty() || !inbox.parked.is_empty();
        if !is_stored(&view, state_key)? && !is_pinned && !has_messages {
            return Ok(None);
        }
        let maps = catalogue.maps(kind);
        let prefix = layout::cells(state_key).len();
        let cells = stored_keys(&view, state_key, &Changes::default())?;
        let cells = cells.iter().filter_map(|cell_key| {
            let (map, key) = cell_key.get(prefix..)?.split_first_chunk()?;
            let map = u16::from_be_bytes(*map);
            let name = maps.iter().find(|(_, number)| *number == map);
            Some(ExportedCell {
                map: name.map_or_else(|| format!("map {map}"), |(name, _)| name.clone()),
                key: key.to_vec(),
                value: value(&view, cell_key),
            })
        });
        let cells = cells.collect();
        let reminders = reminder::read(&view, &catalogue, kind, state_key);
        Ok(Some(Export { state: value(&view, state_key), cells, is_pinned, inbox, reminders }))
    }

    /// Removes everything that is stored of an entity, whether it can be loaded or not. Returns whether anything was
    /// stored. Blocks until the removal is on disk. If it is interrupted, the state is still there, and perhaps a part
    /// of the cells: call it again.
    ///
    /// # Errors
    ///
    /// [`RecordsError`]
    pub fn forget(&self, kind: &str, key: &str) -> Result<bool, RecordsError> {
        if self.is_of_node {
            return Err(RecordsError::Live);
        }
        let (view, catalogue) = self.open()?;
        let number = number(&catalogue, kind)?;
        let mut buffer = [0; STATE_KEY_BYTES_MAX];
        let state_key = layout::state_key(number, key, &mut buffer)?;
        let has_state = is_stored(&view, state_key)?;
        let pin = layout::pin(state_key);
        let is_pinned = is_stored(&view, &pin)?;
        let mut cells = stored_keys(&view, state_key, &Changes::default())?;
        for table in [Table::Inbox, Table::Attempts, Table::Parked] {
            cells.extend(inbox::list::keys(&view, table, state_key)?);
        }
        cells.extend(once::keys(&view, state_key)?);
        cells.extend(reminder::keys(&view, state_key)?);
        cells.extend(index::search_entries(&view, state_key)?);
        drop(view);
        for cells in cells.chunks(DELETIONS_MAX) {
            let batch = cells
                .iter()
                .fold(Batch::new(), |batch, cell| batch.delete(self.tables.at(cell), cell));
            self.tables.store().write(batch).wait()?;
        }
        if has_state || is_pinned {
            let mut batch = Batch::new().delete(self.tables.at(&pin), &pin);
            if has_state {
                let count = layout::count(number);
                batch = batch.delete(self.tables.at(state_key), state_key);
                batch = batch.add(self.tables.at(&count), &count, -1);
            }
            self.tables.store().write(batch).wait()?;
        }
        Ok(has_state || is_pinned || !cells.is_empty())
    }

    /// Returns a view of a store of the present layout, with its catalogue.
    fn open(&self) -> Result<(View, Catalogue), RecordsError> {
        let view = View::of(&self.tables)?;
        let catalogue = Catalogue::read(&view)?;
        let version = view.get(layout::LAYOUT)?.and_then(|version| version.try_into().ok());
        match version.map_or(layout::VERSION, u16::from_le_bytes) {
            layout::VERSION => Ok((view, catalogue)),
            found => Err(RecordsError::Layout { found, known: layout::VERSION }),
        }
    }
}

fn number(catalogue: &Catalogue, kind: &str) -> Result<u16, RecordsError> {
    let kinds = catalogue.kinds();
    let known = kinds.iter().find(|(known, _)| known == kind);
    known.map(|(_, number)| *number).ok_or_else(|| RecordsError::NoKind(kind.to_owned()))
}

/// Returns the version and the length of an encoded state.
fn version(kind: &Numbered, record: &[u8]) -> Result<(u16, usize), String> {
    let (number, state) = postcard::take_from_bytes::<u16>(record)
        .map_err(|error| format!("the record has no number of a shape: {error}"))?;
    match kind.shape(number) {
        Some(shaped) => Ok((shaped.version(), state.len())),
        None => Err(format!("the record is of a shape {number}, which the store does not have")),
    }
}

fn value(view: &View, key: &[u8]) -> Result<Vec<u8>, ReadError> {
    Ok(view.get(key)?.unwrap_or_default().to_vec())
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("is_of_node", &self.is_of_node).finish_non_exhaustive()
    }
}
