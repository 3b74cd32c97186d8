//! The state of an entity as it is stored: found, read, decoded and encoded.

use std::cell::Cell;
use std::sync::Arc;

use super::Failure;
use crate::catalogue::Numbered;
use crate::directory::Directory;
use crate::durable::{decode_state, encode_into};
use crate::inbox::{Found, find_waiting};
use crate::index::Keys;
use crate::name::Name;
use crate::node::Inner;
use crate::users::catch;
use crate::view::View;
use crate::{CommitError, Durable, EntityError};

/// Size of a state's record in units of 64 bytes, rounded up; at most 4 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size(u16);

impl Size {
    const UNIT: usize = 64;

    pub(crate) fn of(record: &[u8]) -> Size {
        Size(record.len().div_ceil(Size::UNIT).try_into().unwrap_or(u16::MAX))
    }

    pub(super) fn bytes(self) -> usize {
        usize::from(self.0) * Size::UNIT
    }
}

/// A state that was found.
pub(crate) struct Loaded<P> {
    /// The state; `None` if nothing is stored.
    pub(crate) process: Option<P>,
    /// Hash of its record.
    pub(crate) hash: u64,
    /// Size of its record.
    pub(crate) size: Size,
    /// Messages that wait for the entity.
    pub(crate) waiting: Found,
    /// Keys of the state, if its kind has indexes.
    pub(crate) keys: Option<Keys>,
}

/// Loads the state of an entity, on a thread that may block. The user's `Deserialize` and `migrate` run here.
pub(crate) fn load<P: Durable>(
    node: &Inner,
    directory: &Directory<P>,
    name: &Name<P>,
) -> Result<Loaded<P>, Failure> {
    let failed = |error| Failure::Load(Arc::new(error));
    let view = View::of(&node.tables).map_err(failed)?;
    let waiting = match P::MESSAGES.is_empty() {
        true => Found::default(),
        false => find_waiting(&view, name.state_key()).map_err(failed)?,
    };
    Ok(match read(&view, directory.kind(), name.state_key())? {
        Some((process, record)) => {
            let (hash, size) = (node.hash(record), Size::of(record));
            let keys = match P::INDEXES.is_empty() {
                true => None,
                false => Some(keys_of(&process, directory, record)?),
            };
            Loaded { process: Some(process), hash, size, waiting, keys }
        }
        None => Loaded { process: None, hash: 0, size: Size::default(), waiting, keys: None },
    })
}

/// Returns the keys of a state that was loaded.
fn keys_of<P: Durable>(
    state: &P,
    directory: &Directory<P>,
    record: &[u8],
) -> Result<Keys, Failure> {
    let is_own = directory.shape().is_ok_and(|own| record.starts_with(own.prefix()));
    Keys::of(state, !is_own).map_err(Failure::Panicked)
}

/// Reads and decodes a state; returns it with its record.
pub(crate) fn read<'s, P: Durable>(
    view: &'s View,
    kind: &Numbered,
    state_key: &[u8],
) -> Result<Option<(P, &'s [u8])>, Failure> {
    let record = view.get(state_key).map_err(|error| Failure::Load(Arc::new(error)))?;
    let Some(record) = record else { return Ok(None) };
    let decoded = catch(|| decode_state(kind, record)).map_err(Failure::Panicked)?;
    Ok(Some((decoded.map_err(Failure::State)?, record)))
}

thread_local! {
    /// Memory for the records of the turns of a thread, so that a turn allocates none.
    static RECORD: Cell<Vec<u8>> = Cell::default();
}

/// Bytes beyond which a record's memory is not kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Encodes the state of an entity, and passes on its record with the hash of it.
pub(super) fn encode<P: Durable, R>(
    process: &P,
    node: &Inner,
    directory: &Directory<P>,
    f: impl FnOnce(&[u8], u64) -> R,
) -> Result<R, EntityError> {
    let not_encoded = |reason| EntityError::NotCommitted(CommitError::State(reason));
    let shaped = directory.shape().map_err(|reason| not_encoded(reason.into()))?;
    // The user's `Serialize` may panic like a handler.
    let mut record = RECORD.take();
    record.clear();
    let encoded = catch(|| encode_into(process, shaped, &mut record));
    encoded.map_err(EntityError::Panicked)?.map_err(not_encoded)?;
    let passed_on = f(&record, node.hash(&record));
    if record.capacity() <= KEPT_BYTES_MAX {
        RECORD.set(record);
    }
    Ok(passed_on)
}
