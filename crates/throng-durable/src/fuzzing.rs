//! Parts of the fuzz targets of durable state: each takes any bytes and panics if a property does not hold.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Durable;
use crate::durable::{decode_state, decode_whole, encode_state};

/// Decodes the record of a state, of this version or of an earlier one. A decoded state is encoded and decoded
/// again.
///
/// # Panics
/// If decoding panics, or the state changes on the way.
pub fn state<P: Durable + Debug>(record: &[u8]) {
    let Ok(state) = decode_state::<P>(record) else { return };
    let mut encoded = Vec::new();
    encode_state(&state, &mut encoded).unwrap_or_else(|error| panic!("not encoded: {error}"));
    let again = decode_state::<P>(&encoded).unwrap_or_else(|error| panic!("not decoded: {error}"));
    assert_eq!(format!("{state:?}"), format!("{again:?}"), "the state has changed");
}

/// Decodes the value of a cell. A decoded value is encoded and decoded again.
///
/// # Panics
/// If decoding panics, or the value changes on the way.
pub fn cell<V: Serialize + DeserializeOwned + Debug>(encoded: &[u8]) {
    let Ok(value) = decode_whole::<V>(encoded) else { return };
    let encoded =
        postcard::to_stdvec(&value).unwrap_or_else(|error| panic!("not encoded: {error}"));
    let again = decode_whole::<V>(&encoded).unwrap_or_else(|error| panic!("not decoded: {error}"));
    assert_eq!(format!("{value:?}"), format!("{again:?}"), "the value has changed");
}
