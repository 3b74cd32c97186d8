//! The stored form of a value: a checksum in front of it.
//!
//! | a value of at most 32 bytes |                                                          |
//! |-----------------------------|----------------------------------------------------------|
//! | 0..2  | CRC-16 (T10-DIF) of the key followed by the value, little endian               |
//! | 2..   | the value                                                                      |
//!
//! | a longer one |                                                                         |
//! |--------------|-------------------------------------------------------------------------|
//! | 0..4  | CRC-32 of the key followed by the value, little endian                         |
//! | 4..   | the value                                                                      |
//!
//! The length distinguishes the two: at most 34 bytes, or at least 37. Entries of a few bytes come
//! in hundreds of millions, where saving two bytes matters; and the short checksum protects such a
//! short value well: disks protect 512 bytes with it. Either checksum detects each change within
//! two bytes of the value, and each change of a single byte.
//!
//! The checksum covers the key, so a value under the wrong key is detected as well.

use std::ops::Deref;

use crc::{CRC_16_T10_DIF, Crc, Table};

use crate::ReadError;
use crate::table::{Kind, TableRef};

/// Longest value with the short checksum.
const SHORT_MAX: usize = 32;
const SHORT_BYTES: usize = 2;
const LONG_BYTES: usize = 4;

static SHORT: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_T10_DIF);

/// Checksum that is stored in front of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    bytes: [u8; LONG_BYTES],
    length: usize,
}

impl Deref for Header {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Returns the header of `value` under `key`.
pub(crate) fn header(key: &[u8], value: &[u8]) -> Header {
    if value.len() <= SHORT_MAX {
        let mut digest = SHORT.digest();
        digest.update(key);
        digest.update(value);
        let [low, high] = digest.finalize().to_le_bytes();
        return Header { bytes: [low, high, 0, 0], length: SHORT_BYTES };
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    Header { bytes: hasher.finalize().to_le_bytes(), length: LONG_BYTES }
}

/// Returns the value of a stored record, without verifying the checksum.
pub(crate) fn unverified<'r>(key: &[u8], record: &'r [u8]) -> Result<&'r [u8], ReadError> {
    split(record).map(|(_, value)| value).ok_or_else(|| damaged(key))
}

pub(crate) fn value<'r>(key: &[u8], record: &'r [u8]) -> Result<&'r [u8], ReadError> {
    match split(record) {
        Some((stored, value)) if *stored == *header(key, value) => Ok(value),
        _ => Err(damaged(key)),
    }
}

/// Splits a record into header and value; `None` if no record has such a length.
fn split(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_short = record.len() <= SHORT_BYTES + SHORT_MAX;
    let (header, value) =
        record.split_at_checked(if is_short { SHORT_BYTES } else { LONG_BYTES })?;
    (is_short || value.len() > SHORT_MAX).then_some((header, value))
}

#[cold]
fn damaged(key: &[u8]) -> ReadError {
    ReadError::Corrupt(format!("wrong checksum under the key \"{}\"", key.escape_ascii()))
}

impl TableRef {
    pub(crate) fn value<'r>(self, key: &[u8], stored: &'r [u8]) -> Result<&'r [u8], ReadError> {
        match self.kind {
            Kind::Checked => value(key, stored),
            Kind::Plain | Kind::Duplicates => Ok(stored),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
        [&*header(key, value), value].concat()
    }

    /// Changes two neighbouring bytes of a record in every possible way.
    fn assert_noticed(record: &mut [u8], at: usize) {
        for change in 1..=u16::MAX {
            let [low, high] = change.to_le_bytes();
            record[at] ^= low;
            record[at + 1] ^= high;
            assert!(matches!(value(b"key", record), Err(ReadError::Corrupt(_))), "at {at}");
            record[at] ^= low;
            record[at + 1] ^= high;
        }
    }

    #[test]
    fn every_change_within_two_bytes_is_detected() {
        for bytes in [0, 1, 5, SHORT_MAX, SHORT_MAX + 1, 60] {
            let written: Vec<u8> = (0..bytes).map(|byte| (byte * 7) as u8).collect();
            let mut record = record(b"key", &written);
            assert_eq!(value(b"key", &record).unwrap(), written);
            assert_eq!(unverified(b"key", &record).unwrap(), written);
            assert!(value(b"kez", &record).is_err());
            assert!(value(b"key", &record[..1]).is_err());
            // At these lengths also across the border of checksum and value; no change goes
            // undetected.
            (0..record.len() - 1).for_each(|at| assert_noticed(&mut record, at));
        }
        // A single changed byte, also in the checksum and next to it, at each length.
        for bytes in 1..=SHORT_MAX + 8 {
            let mut record = record(b"key", &vec![3; bytes]);
            for at in 0..record.len() {
                for change in 1..=u8::MAX {
                    record[at] ^= change;
                    assert!(matches!(value(b"key", &record), Err(ReadError::Corrupt(_))));
                    record[at] ^= change;
                }
            }
        }
    }

    #[test]
    fn the_length_of_a_record_determines_its_checksum() {
        for bytes in 0..100 {
            let record = record(b"key", &vec![3; bytes]);
            let sum = if bytes <= 32 { 2 } else { 4 };
            assert_eq!(record.len(), sum + bytes);
            assert_eq!(value(b"key", &record).unwrap().len(), bytes);
        }
        for bytes in [0, 1, 35, 36] {
            assert!(unverified(b"key", &vec![0; bytes]).is_err());
        }
    }
}
