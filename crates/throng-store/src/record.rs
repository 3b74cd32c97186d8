//! How one value lies in the engine: a checksum in front of it.
//!
//! | bytes | content                                            |
//! |-------|----------------------------------------------------|
//! | 0..4  | CRC-32 of the key followed by the value, little endian |
//! | 4..   | the value                                          |
//!
//! The key is part of the sum, so a value that ended up under the wrong key is noticed as well.

use crate::ReadError;

/// The bytes in front of each value.
pub(crate) const HEADER_BYTES: usize = 4;

/// The header that belongs in front of `value` under `key`.
pub(crate) fn header(key: &[u8], value: &[u8]) -> [u8; HEADER_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    hasher.finalize().to_le_bytes()
}

/// The value inside a stored record, without a look at the checksum.
pub(crate) fn unverified<'r>(key: &[u8], record: &'r [u8]) -> Result<&'r [u8], ReadError> {
    record.get(HEADER_BYTES..).ok_or_else(|| damaged(key))
}

/// The value inside a stored record, if the record is what was written.
pub(crate) fn value<'r>(key: &[u8], record: &'r [u8]) -> Result<&'r [u8], ReadError> {
    match record.split_first_chunk() {
        Some((stored, value)) if *stored == header(key, value) => Ok(value),
        _ => Err(damaged(key)),
    }
}

#[cold]
fn damaged(key: &[u8]) -> ReadError {
    ReadError::Corrupt(format!("wrong checksum under the key \"{}\"", key.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut record = header(b"key", b"value").to_vec();
        record.extend_from_slice(b"value");
        assert_eq!(value(b"key", &record).unwrap(), b"value");
        assert!(value(b"kez", &record).is_err());
        assert!(value(b"key", &record[..3]).is_err());
        for bit in 0..record.len() * 8 {
            record[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(value(b"key", &record), Err(ReadError::Corrupt(_))), "bit {bit}");
            record[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
