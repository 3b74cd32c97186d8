//! Values that are stored behind the number of their shape, where the type is known to the reader alone: replies,
//! inputs and results of workflows.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use throng_store::ReadError;

use crate::catalogue::Numbered;
use crate::durable::{Versioned, encode_into};
use crate::message::Encoded;
use crate::node::Inner;
use crate::shape::Shape;
use crate::users::catch;
use crate::{OldState, StateError};

/// Returns the number of a kind's values: that of a message without a name; `None` if the kind has too many messages.
pub(crate) fn numbered(node: &Inner, kind: &str) -> Option<Arc<Numbered>> {
    node.catalogue.message(kind, "")
}

/// Encodes a value behind the bytes in a record.
pub(crate) fn encode<T: Serialize + DeserializeOwned + 'static>(
    node: &Inner,
    kind: &str,
    mut record: Vec<u8>,
    value: &T,
) -> Result<Encoded, String> {
    let full = || "the kind has the most messages, 65535".to_owned();
    let numbered = numbered(node, kind).ok_or_else(full)?;
    let shaped = numbered.shape_of::<T>(0)?;
    catch(|| encode_into(value, shaped, &mut record)).map_err(|panic| panic.to_string())??;
    Ok(Encoded { record, numbers: [numbered.unstored(), shaped.unstored()] })
}

/// Decodes a value.
pub(crate) fn decode<T: Serialize + DeserializeOwned + 'static>(
    node: &Inner,
    kind: &'static str,
    what: &'static str,
    record: &[u8],
) -> Result<T, StateError> {
    let full = || StateError::NotMigrated { kind: what, found: 0 };
    let migrate = |old: OldState<'_>| -> Result<T, StateError> { Err(old.not_migrated()) };
    let versioned = Versioned { kind: what, version: 0, migrate };
    versioned.decode(&*numbered(node, kind).ok_or_else(full)?, record)
}

/// Decodes a value of this crate's by the shape with which it was stored.
pub(crate) fn read<T: DeserializeOwned>(numbered: &Numbered, record: &[u8]) -> Result<T, String> {
    let (number, encoded) = postcard::take_from_bytes::<u16>(record)
        .map_err(|error| format!("it has no number of a shape: {error}"))?;
    let shaped = numbered.shape(number);
    shaped.ok_or_else(|| format!("the store has no shape {number}"))?.shape().read(encoded)
}

/// Decodes a record of this crate's that was looked up, or returns its damage.
///
/// # Errors
///
/// The store cannot be read.
pub(crate) fn read_record<T: DeserializeOwned>(
    numbered: &Numbered,
    record: Result<&[u8], ReadError>,
) -> Result<Result<T, String>, ReadError> {
    match record {
        Ok(record) => Ok(read(numbered, record)),
        Err(ReadError::Corrupt(damage)) => Ok(Err(damage)),
        Err(error) => Err(error),
    }
}

/// A value with its shape, which can be read without a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Portable {
    shape: Shape,
    value: Vec<u8>,
}

/// Takes a value out of a store.
pub(crate) fn export(node: &Inner, kind: &str, record: &[u8]) -> Result<Portable, String> {
    let (number, value) = postcard::take_from_bytes::<u16>(record)
        .map_err(|error| format!("it has no number of a shape: {error}"))?;
    let shaped = numbered(node, kind).and_then(|numbered| numbered.shape(number));
    let shaped = shaped.ok_or_else(|| format!("the store has no shape {number}"))?;
    Ok(Portable { shape: shaped.shape().clone(), value: value.into() })
}

/// Returns a value as in the store of a node, which gets its shape only with the next value of this shape.
pub(crate) fn import(node: &Inner, kind: &str, value: &Portable) -> Result<Vec<u8>, String> {
    let shaped =
        numbered(node, kind).and_then(|numbered| numbered.add_shape(0, value.shape.clone()));
    let shaped = shaped.ok_or_else(|| "the kind has the most shapes, 65535".to_owned())?;
    Ok([shaped.prefix(), &value.value].concat())
}
