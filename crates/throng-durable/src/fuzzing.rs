//! Parts of the fuzz targets of durable state: each takes any bytes and panics if a property does not hold.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Durable;
use crate::catalogue::Catalogue;
use crate::durable::decode_whole;

/// Decodes a state, in the order of its parts and by their names. A decoded state is encoded and decoded again.
///
/// # Panics
/// If decoding panics, the two ways differ, or the state changes on the way.
pub fn state<P: Durable + Debug>(encoded: &[u8]) {
    value::<P>(encoded);
}

/// Does the same with the value of a cell.
///
/// # Panics
/// As [`state`].
pub fn cell<V: Serialize + DeserializeOwned + Debug + 'static>(encoded: &[u8]) {
    value::<V>(encoded);
}

fn value<V: Serialize + DeserializeOwned + Debug + 'static>(encoded: &[u8]) {
    thread_local! {
        static CATALOGUE: Catalogue = Catalogue::default();
    }
    let Some(kind) = CATALOGUE.with(|catalogue| catalogue.kind("fuzzed")) else { return };
    let shaped = kind.shape_of::<V>(0).unwrap_or_else(|reason| panic!("not stored: {reason}"));
    let by_name = shaped.shape().read::<V>(encoded);
    let Ok(value) = decode_whole::<V>(encoded) else { return };
    let by_name = by_name.unwrap_or_else(|error| panic!("not decoded by name: {error}"));
    assert_eq!(format!("{value:?}"), format!("{by_name:?}"), "the two ways differ");
    let encoded =
        postcard::to_stdvec(&value).unwrap_or_else(|error| panic!("not encoded: {error}"));
    let again = decode_whole::<V>(&encoded).unwrap_or_else(|error| panic!("not decoded: {error}"));
    assert_eq!(format!("{value:?}"), format!("{again:?}"), "the value has changed");
}
