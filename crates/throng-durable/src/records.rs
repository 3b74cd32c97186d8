//! [`Records`]: the stored entities without their types, for an operator.

mod copy;
mod inspect;

use std::fmt;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use throng_store::{Batch, DatabaseError, ReadError, Store, WriteError};

pub use self::copy::{Export, ExportedRecord};
pub use self::inspect::{
    Inspection, Pending, Shown, ShownCell, ShownMessage, ShownReminder, ShownRun, ShownStep, Tally,
};
pub(crate) use self::inspect::{Subject, TEXT_BYTES_MAX, cut};
use crate::catalogue::{Catalogue, Numbered};
use crate::cells::stored_keys;
use crate::changes::Changes;
use crate::inbox;
use crate::layout::{self, STATE_KEY_BYTES_MAX, Table};
use crate::node::Inner;
use crate::stored::is_stored;
use crate::tables::Tables;
use crate::view::View;
use crate::{EntityError, KeyError, index, once, reminder, stored};

/// The entities in a store as they are stored, without the program's types: for an operator who looks for an entity
/// that cannot be loaded, keeps a copy of it, and removes it.
///
/// Reading works beside a node, from [`Node::records`](crate::Node::records) or by a store that is
/// [opened read-only](throng_store::Options::read_only). `throng entity` is a command around it.
///
/// ```
/// use throng_durable::{Pending, Records, RecordsError};
///
/// /// Prints why messages were parked.
/// fn report(records: &Records, kind: &str) -> Result<(), RecordsError> {
///     for key in records.pending(kind, Pending::Parked, None, 100)? {
///         for message in records.messages(kind, &key, Pending::Parked, None, 10)? {
///             eprintln!("{kind}/{key}: {}: {}", message.name, message.reason.unwrap_or_default());
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Records {
    /// An error is that of each operation.
    tables: Result<Tables, DatabaseError>,
    /// The node whose store it is, and whose live entities know nothing of changes made here.
    node: Option<Weak<Inner>>,
}

/// A stored entity in a list, from [`Records::list`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The entity's key.
    pub key: String,
    /// Whether the entity is in memory; `false` if the store is not that of a running node.
    pub is_live: bool,
    /// Version and length of the state in bytes; or the damage of its record, as text.
    pub state: Result<(u16, usize), String>,
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
    /// A database of the store cannot be opened.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The store refuses the change, or could not make it. The entity may be removed or imported in part; try again.
    #[error("the entity could not be changed: {0}")]
    Write(#[from] WriteError),
    /// The store is a running node's: use [`Node::forget_entity`](crate::Node::forget_entity), or stop the node.
    #[error("the entities of a running node are changed by the node")]
    Live,
    /// The program of the node has not used the kind since its start: stop the node, and try again.
    #[error(
        "the program has not used the kind {0:?} since its start, so that only a stopped node can be changed"
    )]
    Unclaimed(String),
    /// The node could not change the entity.
    #[error(transparent)]
    Entity(#[from] EntityError),
    /// The entity that is to be imported is stored already: use another key, or forget it.
    #[error("the {kind} {key:?} is stored already")]
    Exists {
        /// Kind of the entity.
        kind: String,
        /// Key of the entity.
        key: String,
    },
    /// The records that are to be imported are no export, or of a store with other names and shapes.
    #[error("the records cannot be imported: {0}")]
    Unfit(String),
}

/// Deletions in a batch, at most.
const DELETIONS_MAX: usize = 10_000;

impl Records {
    /// Returns the records in a store that no node has open for writing.
    pub fn of(store: Store) -> Records {
        Records { tables: Tables::existing(&store), node: None }
    }

    pub(crate) fn of_node(node: &Arc<Inner>) -> Records {
        Records { tables: Ok(node.tables.clone()), node: Some(Arc::downgrade(node)) }
    }

    fn tables(&self) -> Result<&Tables, RecordsError> {
        self.tables.as_ref().map_err(|error| RecordsError::Database(error.clone()))
    }

    fn is_of_node(&self) -> bool {
        self.node.is_some()
    }

    /// Whether an entity is in memory.
    fn is_live(&self, state_key: &[u8]) -> bool {
        self.node.as_ref().and_then(Weak::upgrade).is_some_and(|node| node.is_live(state_key))
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
            let is_live = self.is_live(state_key);
            records.push(Record { key, is_live, state });
        }
        Ok(records)
    }

    /// Removes everything that is stored of an entity, whether it can be loaded or not. Returns whether anything was
    /// stored. Blocks until the removal is on disk. If it is interrupted, the state is still there, and perhaps a part
    /// of the cells: call it again.
    ///
    /// # Errors
    ///
    /// [`RecordsError`]
    pub fn forget(&self, kind: &str, key: &str) -> Result<bool, RecordsError> {
        if self.is_of_node() {
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
        let tables = self.tables()?;
        for cells in cells.chunks(DELETIONS_MAX) {
            let batch =
                cells.iter().fold(Batch::new(), |batch, cell| batch.delete(tables.at(cell), cell));
            tables.store().write(batch).wait()?;
        }
        if has_state || is_pinned {
            let mut batch = Batch::new().delete(tables.at(&pin), &pin);
            if has_state {
                let count = layout::count(number);
                batch = batch.delete(tables.at(state_key), state_key);
                batch = batch.add(tables.at(&count), &count, -1);
            }
            tables.store().write(batch).wait()?;
        }
        Ok(has_state || is_pinned || !cells.is_empty())
    }

    /// Returns a view of a store of the present layout, with its catalogue.
    pub(crate) fn open(&self) -> Result<(View, Catalogue), RecordsError> {
        let view = View::of(self.tables()?)?;
        let catalogue = Catalogue::read(&view)?;
        let version = view.get(layout::LAYOUT)?.and_then(|version| version.try_into().ok());
        match version.map_or(layout::VERSION, u16::from_le_bytes) {
            layout::VERSION => Ok((view, catalogue)),
            found => Err(RecordsError::Layout { found, known: layout::VERSION }),
        }
    }
}

/// Returns the number of a kind.
pub(crate) fn number(catalogue: &Catalogue, kind: &str) -> Result<u16, RecordsError> {
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

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("is_of_node", &self.is_of_node()).finish_non_exhaustive()
    }
}
