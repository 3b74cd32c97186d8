//! How one value lies in the engine: a checksum in front of it.
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
//! Which of the two it is, the length tells: 34 bytes at most, or 37 at least. Entries of a few
//! bytes come in hundreds of millions, where two bytes less are worth having; and so short a one is
//! guarded well: disks guard 512 bytes by that sum. Either notices each change within two bytes of the
//! value, and each of a single byte.
//!
//! The key is part of the sum, so a value that ended up under the wrong key is noticed as well.

use std::ops::Deref;

use crc::{CRC_16_T10_DIF, Crc, Table};

use crate::ReadError;

/// The longest value under the short sum.
const SHORT_MAX: usize = 32;
const SHORT_BYTES: usize = 2;
const LONG_BYTES: usize = 4;

static SHORT: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_T10_DIF);

/// What belongs in front of a value.
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

/// The header that belongs in front of `value` under `key`.
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

/// The value inside a stored record, without a look at the checksum.
pub(crate) fn unverified<'r>(key: &[u8], record: &'r [u8]) -> Result<&'r [u8], ReadError> {
    split(record).map(|(_, value)| value).ok_or_else(|| damaged(key))
}

/// The value inside a stored record, if the record is what was written.
pub(crate) fn value<'r>(key: &[u8], record: &'r [u8]) -> Result<&'r [u8], ReadError> {
    match split(record) {
        Some((stored, value)) if *stored == *header(key, value) => Ok(value),
        _ => Err(damaged(key)),
    }
}

/// A record's header and value, if there is one of such a length.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as it is stored.
    fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
        [&*header(key, value), value].concat()
    }

    /// Changes two neighbouring bytes of a record in every way.
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
    fn every_change_within_two_bytes_is_noticed() {
        for bytes in [0, 1, 5, SHORT_MAX, SHORT_MAX + 1, 60] {
            let written: Vec<u8> = (0..bytes).map(|byte| (byte * 7) as u8).collect();
            let mut record = record(b"key", &written);
            assert_eq!(value(b"key", &record).unwrap(), written);
            assert_eq!(unverified(b"key", &record).unwrap(), written);
            assert!(value(b"kez", &record).is_err());
            assert!(value(b"key", &record[..1]).is_err());
            // At these lengths also where one byte is of the sum and one of the value; not at all.
            (0..record.len() - 1).for_each(|at| assert_noticed(&mut record, at));
        }
        // A byte by itself also in the sum and beside it, at each length.
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
    fn a_record_says_by_its_length_which_sum_it_has() {
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
