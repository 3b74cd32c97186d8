//! [`Record`]: an entry of a shard's log, and its encoding.
//!
//! | bytes  | content                                                                   |
//! |--------|---------------------------------------------------------------------------|
//! | 0..4   | CRC-32 of all that follows                                                |
//! | 4..8   | length of the whole record                                                |
//! | 8      | kind                                                                      |
//! | 9      | format, 1                                                                 |
//! | 10..12 | zeros                                                                     |
//! | 12..16 | level of features that a reader needs                                     |
//! | 16..24 | epoch                                                                     |
//! | 24..32 | number: one more than that of the record before, of those that count      |
//! | 32..48 | chain: BLAKE3, 128 bits, of the chain before and the whole record before  |
//! | 48..64 | owner that wrote the record                                               |
//! | 64..72 | position of the first change in the store                                 |
//! | 72..76 | number of changes                                                         |
//! | 76..80 | zeros                                                                     |
//! | 80..88 | time of the commit, in milliseconds since 1970                            |
//! | 88..   | body                                                                      |
//!
//! Numbers are little endian. The checksum says that the bytes are those that were written; whether the record
//! counts is for [`Tail`](crate::Tail) to say.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// Length of a record without its body, in bytes.
pub const HEADER_BYTES: usize = 88;

const FORMAT: u8 = 1;

/// A node between its start and its end: a random number that no other start shares.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Incarnation(pub u128);

impl fmt::Display for Incarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// Hash of all records of a log that count, up to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chain(pub u128);

impl Chain {
    /// Returns the chain after a record, given the chain before it.
    pub fn after(self, record: &[u8]) -> Chain {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0.to_le_bytes()).update(record);
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        Chain(u128::from_le_bytes(bytes))
    }
}

/// The purpose of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// Changes of the store, as its log has them.
    Changes = 1,
    /// Beginning of the ownership of the node that wrote it.
    Epoch = 2,
    /// Nothing: its acknowledgement proves that its author was the owner at that moment.
    Barrier = 3,
    /// End of the ownership; the body is the incarnation of the next owner.
    Handoff = 4,
    /// Place of a copy of the shard's state as of an earlier record.
    Snapshot = 5,
    /// First record of a log that continues another one; the body is the state of its reader.
    Seed = 6,
}

impl RecordKind {
    fn of(byte: u8) -> Option<RecordKind> {
        use RecordKind::{Barrier, Changes, Epoch, Handoff, Seed, Snapshot};
        let all = [Changes, Epoch, Barrier, Handoff, Snapshot, Seed];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A record without its body; the table at the head of the file has the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table at the head of the file states each field")]
pub struct Header {
    pub kind: RecordKind,
    pub level: u32,
    pub epoch: u64,
    pub number: u64,
    pub chain: Chain,
    pub owner: Incarnation,
    pub first: u64,
    pub count: u32,
    pub time: u64,
}

impl Header {
    /// Returns the encoded record with this header and the parts of a body, one after another.
    ///
    /// # Panics
    ///
    /// Panics if the record is longer than 4 GiB, which no engine takes.
    pub fn encode<'b>(&self, body: impl IntoIterator<Item = &'b [u8]> + Clone) -> Bytes {
        let length = HEADER_BYTES + body.clone().into_iter().map(<[u8]>::len).sum::<usize>();
        let mut bytes = BytesMut::with_capacity(length);
        bytes.put_u32_le(0);
        bytes.put_u32_le(u32::try_from(length).expect("a record is shorter than 4 GiB"));
        bytes.put_u8(self.kind as u8);
        bytes.put_u8(FORMAT);
        bytes.put_u16_le(0);
        bytes.put_u32_le(self.level);
        bytes.put_u64_le(self.epoch);
        bytes.put_u64_le(self.number);
        bytes.put_u128_le(self.chain.0);
        bytes.put_u128_le(self.owner.0);
        bytes.put_u64_le(self.first);
        bytes.put_u32_le(self.count);
        bytes.put_u32_le(0);
        bytes.put_u64_le(self.time);
        body.into_iter().for_each(|part| bytes.put_slice(part));
        let crc = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes.freeze()
    }
}

/// A record whose bytes are those that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'b> {
    /// All but the body.
    pub header: Header,
    /// Content, by the kind of the record.
    pub body: &'b [u8],
}

impl<'b> Record<'b> {
    /// Returns the record that some bytes are; `None` if they are none, or damaged.
    pub fn decode(bytes: &'b [u8]) -> Option<Record<'b>> {
        let (mut fields, body) =
            bytes.split_first_chunk::<HEADER_BYTES>().map(|(h, b)| (Fields(h), b))?;
        let crc = fields.u32();
        let length = fields.u32();
        if length as usize != bytes.len() || crc32fast::hash(&bytes[4..]) != crc {
            return None;
        }
        let [kind, format] = fields.take();
        let (kind, flags, level) =
            (RecordKind::of(kind)?, u16::from_le_bytes(fields.take()), fields.u32());
        let (epoch, number, chain, owner) =
            (fields.u64(), fields.u64(), fields.u128(), fields.u128());
        let (first, count, zeros, time) = (fields.u64(), fields.u32(), fields.u32(), fields.u64());
        if format != FORMAT || flags != 0 || zeros != 0 {
            return None;
        }
        let (chain, owner) = (Chain(chain), Incarnation(owner));
        let header = Header { kind, level, epoch, number, chain, owner, first, count, time };
        Some(Record { header, body })
    }
}

/// Fields of a header that have yet to be read.
struct Fields<'h>(&'h [u8]);

impl Fields<'_> {
    /// Reads a field; a header has enough bytes for all of them.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn u128(&mut self) -> u128 {
        u128::from_le_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            kind: RecordKind::Changes,
            level: 7,
            epoch: 8,
            number: 9,
            chain: Chain(10 << 100),
            owner: Incarnation(11 << 100),
            first: 12,
            count: 13,
            time: 14,
        }
    }

    #[test]
    fn a_record_comes_back() {
        let bytes = header().encode([b"bo".as_slice(), b"dy"]);
        assert_eq!(bytes.len(), HEADER_BYTES + 4);
        assert_eq!(Record::decode(&bytes), Some(Record { header: header(), body: b"body" }));
    }

    #[test]
    fn a_record_with_another_bit_another_length_or_an_unknown_field_is_none() {
        let bytes = header().encode([b"body".as_slice()]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&damaged), None, "bit {bit}");
        }
        assert!((0..bytes.len()).all(|length| Record::decode(&bytes[..length]).is_none()));
        for (offset, byte) in [(8, 0), (8, 9), (9, 2), (10, 1), (11, 1), (76, 1)] {
            let mut other = bytes.to_vec();
            other[offset] = byte;
            let crc = crc32fast::hash(&other[4..]);
            other[..4].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Record::decode(&other), None, "byte {offset}");
        }
    }

    #[test]
    fn a_chain_depends_on_all_records_and_on_their_order() {
        let chain =
            |records: &[&[u8]]| records.iter().fold(Chain::default(), |at, one| at.after(one));
        let chains = [chain(&[b"a", b"b"]), chain(&[b"b", b"a"]), chain(&[b"ab"]), chain(&[b"a"])];
        assert!((1..chains.len()).all(|index| !chains[..index].contains(&chains[index])));
    }
}
