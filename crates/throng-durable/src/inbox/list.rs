//! [`Inbox`]: the stored messages of an entity, for an operator; and what an operator can do about one.

use throng_store::{Batch, ReadError};

use super::failure::Attempts;
use crate::catalogue::Catalogue;
use crate::layout::{self, Table};
use crate::tables::Tables;
use crate::view::View;

/// The stored messages of an entity, from [`Entity::inbox`](crate::Entity::inbox).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inbox {
    /// Messages that wait, in the order in which they are handled.
    pub waiting: Vec<StoredMessage>,
    /// Messages that were parked: their handler has failed too often, or this program cannot decode them.
    pub parked: Vec<StoredMessage>,
}

/// A message in an [`Inbox`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// Number of the message, unique in the store.
    pub sequence: u64,
    /// Name of the message.
    pub name: String,
    /// The message: the number of its shape, then its fields in postcard's encoding.
    pub encoded: Vec<u8>,
    /// The last failed attempt to handle it.
    pub failure: Option<FailedAttempt>,
}

/// A failed attempt to handle a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// Number of attempts that have failed, this one included.
    pub attempts: u32,
    /// Time of the attempt, in milliseconds since 1970.
    pub at_ms: u64,
    /// Reason of the failure.
    pub reason: String,
    /// File, line and column of a panic.
    pub place: Option<String>,
}

impl From<Attempts> for FailedAttempt {
    fn from(own: Attempts) -> FailedAttempt {
        let Attempts { failures, failed_ms, reason, place, .. } = own;
        FailedAttempt { attempts: failures, at_ms: failed_ms, reason, place }
    }
}

/// Returns the last failed attempt to handle a message that waits.
pub(crate) fn attempts_of(
    view: &View,
    state_key: &[u8],
    sequence: u64,
) -> Result<Option<FailedAttempt>, ReadError> {
    let record = view.get(&layout::entry(Table::Attempts, state_key, sequence))?;
    Ok(record.and_then(Attempts::take_from).map(|(own, _)| own.into()))
}

/// Splits the record of a parked message into its last failed attempt and the message.
pub(crate) fn split_parked(record: &[u8]) -> Option<(FailedAttempt, &[u8])> {
    Attempts::take_from(record).map(|(own, message)| (own.into(), message))
}

/// Reads the messages of an entity.
pub(crate) fn read(
    view: &View,
    catalogue: &Catalogue,
    kind: &str,
    state_key: &[u8],
) -> Result<Inbox, ReadError> {
    let names = catalogue.messages(kind);
    let message = |sequence, record: &[u8], failure: Option<FailedAttempt>| {
        let parts = postcard::take_from_bytes::<u16>(record).ok();
        let name = names.iter().find(|(_, known)| parts.is_some_and(|(own, _)| own == *known));
        StoredMessage {
            sequence,
            name: name.map_or_else(|| "?".to_owned(), |(name, _)| name.clone()),
            encoded: parts.map_or(record, |(_, encoded)| encoded).to_vec(),
            failure,
        }
    };
    let mut inbox = Inbox::default();
    for record in view.prefix(&layout::table_of(Table::Inbox, state_key)) {
        let (key, record) = record?;
        let Some((_, sequence)) = layout::state_key_of_entry(key) else { continue };
        let failure = attempts_of(view, state_key, sequence)?;
        inbox.waiting.push(message(sequence, record, failure));
    }
    for record in view.prefix(&layout::table_of(Table::Parked, state_key)) {
        let (key, record) = record?;
        let Some((_, sequence)) = layout::state_key_of_entry(key) else { continue };
        inbox.parked.push(match split_parked(record) {
            Some((failure, record)) => message(sequence, record, Some(failure)),
            None => message(sequence, record, None),
        });
    }
    Ok(inbox)
}

/// Returns the keys of an entity's records in a table.
pub(crate) fn keys(
    view: &View,
    table: Table,
    state_key: &[u8],
) -> Result<Vec<Box<[u8]>>, ReadError> {
    let mut records = view.prefix(&layout::table_of(table, state_key));
    std::iter::from_fn(|| records.next_key()).map(|key| Ok(key?.into())).collect()
}

/// Returns the batch that puts a parked message back into the inbox, or has a waiting one handled without a pause;
/// `None` if there is no such message.
pub(crate) fn retry(
    view: &View,
    tables: &Tables,
    state_key: &[u8],
    sequence: u64,
) -> Result<Option<Batch>, ReadError> {
    let [inbox, attempted, parked] = [Table::Inbox, Table::Attempts, Table::Parked]
        .map(|table| layout::entry(table, state_key, sequence));
    if let Some(record) = view.get(&parked)?
        && let Some((_, message)) = Attempts::take_from(record)
    {
        let batch = Batch::new().delete(tables.at(&parked), &parked);
        return Ok(Some(batch.put(tables.at(&inbox), &inbox, message)));
    }
    let waits = view.get(&inbox)?.is_some();
    Ok(waits.then(|| Batch::new().delete(tables.at(&attempted), &attempted)))
}

/// Returns the batch that removes a message; `None` if there is no such message.
pub(crate) fn skip(
    view: &View,
    tables: &Tables,
    state_key: &[u8],
    sequence: u64,
) -> Result<Option<Batch>, ReadError> {
    let keys = [Table::Inbox, Table::Attempts, Table::Parked]
        .map(|table| layout::entry(table, state_key, sequence));
    let mut exists = false;
    for key in &keys {
        exists |= view.get(key)?.is_some();
    }
    let delete = |batch: Batch, key: &Vec<u8>| batch.delete(tables.at(key), key);
    Ok(exists.then(|| keys.iter().fold(Batch::new(), delete)))
}
