//! Values that are stored behind the number of their shape, where the type is known to the reader alone: replies,
//! inputs and results of workflows.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::catalogue::Numbered;
use crate::durable::{Versioned, encode_into};
use crate::message::Encoded;
use crate::node::Inner;
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
