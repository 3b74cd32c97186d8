//! [`Frame`]: a message between two nodes, and its encoding.
//!
//! | bytes     | content                                                                            |
//! |-----------|------------------------------------------------------------------------------------|
//! | 0..4      | length of all that follows, at least 12                                            |
//! | 4         | format, 1                                                                          |
//! | 5         | kind: 1 HELLO, 2 REQUEST, 3 REPLY, 4 REFUSAL, 5 CANCEL, 6 HEARTBEAT, 7 GOODBYE     |
//! | 6..8      | length *f* of the fields                                                           |
//! | 8..16     | number of the request on its connection; 0 in a HELLO, a HEARTBEAT and a GOODBYE   |
//! | 16..16+f  | fields: tag (1 byte), length (2 bytes), value                                      |
//! | 16+f..    | payload of a REQUEST, a REPLY or a REFUSAL                                         |
//!
//! | tag | field    | in      | value                                                                         |
//! |-----|----------|---------|-------------------------------------------------------------------------------|
//! | 1   | versions | HELLO   | lowest and highest version of the protocol that the sender speaks, 1 byte each |
//! | 2   | cluster  | HELLO   | name of the cluster, UTF-8                                                    |
//! | 3   | node     | HELLO   | incarnation of the sender, 16 bytes                                           |
//! | 4   | levels   | HELLO   | lowest and highest level of features, 4 bytes each                            |
//! | 5   | limits   | HELLO   | bytes of a request, bytes of a reply, requests in flight, 4 bytes each        |
//! | 6   | within   | REQUEST | milliseconds that remain for the answer, 8 bytes                              |
//! | 7   | reason   | REFUSAL | [`Reason`], 1 byte                                                            |
//!
//! Numbers are little endian. Nothing here has a checksum, because TLS has one.
//!
//! 1. Fields with other tags are skipped: a later version may add fields that a reader can do without. All others
//!    are needed, and whatever changes their meaning has another version of the protocol.
//! 2. The format of a HELLO never changes, so that nodes of any two versions can tell each other why they part.
//! 3. No bytes make the decoder panic, or keep more memory than the bytes that have arrived.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::Incarnation;

/// Length of a frame without fields and payload, in bytes.
pub const HEADER_BYTES: usize = 16;

const FORMAT: u8 = 1;

/// Bytes of a frame beside its payload that a reader takes at most.
const OVERHEAD_BYTES_MAX: usize = 4096;

/// Payloads up to this length are copied, so that a small one does not keep the buffer that it has arrived in.
const COPIED_BYTES_MAX: usize = 4096;

/// A message between two nodes; the tables at the head of the file have the encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// First frame in both directions.
    Hello(Hello),
    /// A call. The numbers of the requests on a connection rise.
    Request {
        /// Number of the request.
        id: u64,
        /// Time that remains for the answer, in whole milliseconds.
        within: Duration,
        /// Content, for the service.
        payload: Bytes,
    },
    /// Answer to a request.
    Reply {
        /// Number of the request.
        id: u64,
        /// Content, for the caller.
        payload: Bytes,
    },
    /// Answer to a request that has no reply.
    Refusal {
        /// Number of the request.
        id: u64,
        /// Reason, by which the caller knows whether something has happened.
        reason: Reason,
        /// Content, for the caller, if the service has refused.
        payload: Bytes,
    },
    /// End of the interest in a request.
    Cancel {
        /// Number of the request.
        id: u64,
    },
    /// Nothing but a sign of life.
    Heartbeat,
    /// End of the sender's readiness to begin with requests; it still answers those that it has got.
    Goodbye,
}

/// Introduction of a node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Versions of the protocol that the node speaks.
    pub versions: RangeInclusive<u8>,
    /// Name of the cluster.
    pub cluster: String,
    /// Incarnation of the node.
    pub node: Incarnation,
    /// Levels of features that the node's program understands.
    pub levels: RangeInclusive<u32>,
    /// Sizes and numbers that the node takes.
    pub limits: Limits,
}

/// Sizes and numbers that a node takes from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest payload of a request, in bytes.
    pub request_bytes: u32,
    /// Longest payload of a reply or a refusal, in bytes.
    pub reply_bytes: u32,
    /// Most requests in flight on a connection.
    pub requests: u32,
}

/// Reason for which a request has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The service has done nothing, and the payload says why.
    Service = 1,
    /// The node has as many requests in flight as it takes; nothing has happened.
    Busy = 2,
    /// The node ends, and has not begun with the request.
    Leaving = 3,
    /// The service has failed while it worked.
    Failed = 4,
    /// The reply is longer than the caller takes.
    ReplyTooLarge = 5,
}

impl Reason {
    fn of(byte: u8) -> Option<Reason> {
        use Reason::{Busy, Failed, Leaving, ReplyTooLarge, Service};
        [Service, Busy, Leaving, Failed, ReplyTooLarge].into_iter().find(|r| *r as u8 == byte)
    }
}

/// Bytes that are no frame, so that the rest of the connection means nothing either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The frame has another format.
    #[error("a frame of format {0}")]
    Format(u8),
    /// The kind is unknown.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    /// The frame is longer than the reader takes, or shorter than its own header.
    #[error("a frame of {bytes} bytes, where {bytes_max} are allowed")]
    Length {
        /// Length of the frame.
        bytes: u64,
        /// Greatest length of a frame of that kind.
        bytes_max: u64,
    },
    /// Fields are missing, cut off, or have no valid value.
    #[error("a frame with invalid fields")]
    Fields,
}

impl Frame {
    /// Appends the encoded frame.
    ///
    /// # Panics
    ///
    /// Panics if the frame is longer than 4 GiB or the name of the cluster longer than 64 KiB. The limits of a link
    /// are below.
    pub fn encode(&self, to: &mut BytesMut) {
        let start = to.len();
        to.put_bytes(0, HEADER_BYTES);
        let (kind, id, payload) = match self {
            Frame::Hello(hello) => {
                hello.encode(to);
                (1, 0, None)
            }
            Frame::Request { id, within, payload } => {
                let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
                put_field(to, WITHIN, &within.to_le_bytes());
                (2, *id, Some(payload))
            }
            Frame::Reply { id, payload } => (3, *id, Some(payload)),
            Frame::Refusal { id, reason, payload } => {
                put_field(to, REASON, &[*reason as u8]);
                (4, *id, Some(payload))
            }
            Frame::Cancel { id } => (5, *id, None),
            Frame::Heartbeat => (6, 0, None),
            Frame::Goodbye => (7, 0, None),
        };
        let fields = u16::try_from(to.len() - start - HEADER_BYTES);
        let fields = fields.expect("the fields of a frame are shorter than 64 KiB");
        to.put_slice(payload.map_or(&[], |payload| payload));
        let length = u32::try_from(to.len() - start - 4).expect("a frame is shorter than 4 GiB");
        let mut header = &mut to[start..start + HEADER_BYTES];
        header.put_u32_le(length);
        header.put_u8(FORMAT);
        header.put_u8(kind);
        header.put_u16_le(fields);
        header.put_u64_le(id);
    }

    /// Takes the first frame from bytes that have arrived; `None` if a part of it is still missing.
    ///
    /// A frame that is too long for the limits is refused once its first 6 bytes are there.
    ///
    /// # Errors
    ///
    /// The bytes are no frame.
    pub fn decode(from: &mut BytesMut, limits: &Limits) -> Result<Option<Frame>, Malformed> {
        let Some(&[l0, l1, l2, l3, format, kind]) = from.first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if format != FORMAT {
            return Err(Malformed::Format(format));
        }
        let payload_max = match kind {
            2 => limits.request_bytes,
            3 | 4 => limits.reply_bytes,
            1 | 5..=7 => 0,
            _ => return Err(Malformed::Kind(kind)),
        };
        let bytes_max = OVERHEAD_BYTES_MAX.saturating_add(payload_max as usize);
        if !(HEADER_BYTES - 4..=bytes_max).contains(&length) {
            return Err(Malformed::Length { bytes: length as u64, bytes_max: bytes_max as u64 });
        }
        if from.len() - 4 < length {
            return Ok(None);
        }
        let mut frame = from.split_to(4 + length);
        frame.advance(6);
        let fields_bytes = usize::from(frame.get_u16_le());
        let id = frame.get_u64_le();
        if fields_bytes > frame.len() {
            return Err(Malformed::Fields);
        }
        let fields = Fields::decode(&frame.split_to(fields_bytes)).ok_or(Malformed::Fields)?;
        if frame.len() > payload_max as usize {
            let (bytes, bytes_max) = (frame.len() as u64, payload_max.into());
            return Err(Malformed::Length { bytes, bytes_max });
        }
        let payload = match frame.len() {
            0..=COPIED_BYTES_MAX => Bytes::copy_from_slice(&frame),
            _ => frame.freeze(),
        };
        fields.frame(kind, id, payload).map(Some).ok_or(Malformed::Fields)
    }
}

impl Hello {
    fn encode(&self, to: &mut BytesMut) {
        let pair = |low: u32, high: u32| [low.to_le_bytes(), high.to_le_bytes()].concat();
        put_field(to, VERSIONS, &[*self.versions.start(), *self.versions.end()]);
        put_field(to, CLUSTER, self.cluster.as_bytes());
        put_field(to, NODE, &self.node.0.to_le_bytes());
        put_field(to, LEVELS, &pair(*self.levels.start(), *self.levels.end()));
        let Limits { request_bytes, reply_bytes, requests } = self.limits;
        let limits = [request_bytes, reply_bytes, requests].map(u32::to_le_bytes).concat();
        put_field(to, LIMITS, &limits);
    }

    /// Returns the highest version of the protocol that two nodes speak.
    pub fn common_version(&self, other: &Hello) -> Option<u8> {
        let highest = *self.versions.end().min(other.versions.end());
        (highest >= *self.versions.start().max(other.versions.start())).then_some(highest)
    }
}

fn put_field(to: &mut BytesMut, tag: u8, value: &[u8]) {
    to.put_u8(tag);
    to.put_u16_le(u16::try_from(value.len()).expect("a field is shorter than 64 KiB"));
    to.put_slice(value);
}

const VERSIONS: u8 = 1;
const CLUSTER: u8 = 2;
const NODE: u8 = 3;
const LEVELS: u8 = 4;
const LIMITS: u8 = 5;
const WITHIN: u8 = 6;
const REASON: u8 = 7;

/// Fields of a frame, as far as they are known here.
#[derive(Default)]
struct Fields {
    versions: Option<[u8; 2]>,
    cluster: Option<String>,
    node: Option<Incarnation>,
    levels: Option<[u32; 2]>,
    limits: Option<[u32; 3]>,
    within: Option<u64>,
    reason: Option<Reason>,
}

impl Fields {
    fn decode(mut bytes: &[u8]) -> Option<Fields> {
        let mut fields = Fields::default();
        while let [tag, l0, l1, rest @ ..] = bytes {
            let (value, rest) =
                rest.split_at_checked(usize::from(u16::from_le_bytes([*l0, *l1])))?;
            bytes = rest;
            match *tag {
                VERSIONS => fields.versions = Some(value.try_into().ok()?),
                CLUSTER => fields.cluster = Some(std::str::from_utf8(value).ok()?.to_owned()),
                NODE => {
                    let node = u128::from_le_bytes(value.try_into().ok()?);
                    fields.node = Some(Incarnation(node));
                }
                LEVELS => fields.levels = Some(numbers(value)?),
                LIMITS => fields.limits = Some(numbers(value)?),
                WITHIN => fields.within = Some(u64::from_le_bytes(value.try_into().ok()?)),
                REASON => fields.reason = Some(Reason::of(*value.first()?)?),
                _ => {}
            }
        }
        bytes.is_empty().then_some(fields)
    }

    fn frame(self, kind: u8, id: u64, payload: Bytes) -> Option<Frame> {
        Some(match kind {
            1 => {
                let [request_bytes, reply_bytes, requests] = self.limits?;
                let ([version, versions], [level, levels]) = (self.versions?, self.levels?);
                Frame::Hello(Hello {
                    versions: version..=versions,
                    cluster: self.cluster?,
                    node: self.node?,
                    levels: level..=levels,
                    limits: Limits { request_bytes, reply_bytes, requests },
                })
            }
            2 => Frame::Request { id, within: Duration::from_millis(self.within?), payload },
            3 => Frame::Reply { id, payload },
            4 => Frame::Refusal { id, reason: self.reason?, payload },
            5 => Frame::Cancel { id },
            6 => Frame::Heartbeat,
            7 => Frame::Goodbye,
            _ => return None,
        })
    }
}

/// Returns as many numbers as the bytes are to be.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let numbers: &[[u8; 4]; N] = numbers.try_into().ok()?;
    rest.is_empty().then(|| numbers.map(u32::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { request_bytes: 20_000, reply_bytes: 30_000, requests: 8 };

    fn payload(most: usize) -> impl Strategy<Value = Bytes> {
        prop_oneof![0..=64_usize, 0..=most]
            .prop_flat_map(|length| prop::collection::vec(any::<u8>(), length))
            .prop_map(Bytes::from)
    }

    fn hello() -> impl Strategy<Value = Frame> {
        let limits = any::<[u32; 3]>();
        (any::<[u8; 2]>(), "[a-zä-]{0,63}", any::<u128>(), any::<[u32; 2]>(), limits).prop_map(
            |(versions, cluster, node, levels, [request_bytes, reply_bytes, requests])| {
                Frame::Hello(Hello {
                    versions: versions[0]..=versions[1],
                    cluster,
                    node: Incarnation(node),
                    levels: levels[0]..=levels[1],
                    limits: super::Limits { request_bytes, reply_bytes, requests },
                })
            },
        )
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let request =
            (any::<u64>(), any::<u64>(), payload(20_000)).prop_map(|(id, ms, payload)| {
                Frame::Request { id, within: Duration::from_millis(ms), payload }
            });
        let refusal =
            (any::<u64>(), 1..=5_u8, payload(30_000)).prop_map(|(id, reason, payload)| {
                Frame::Refusal { id, reason: Reason::of(reason).unwrap(), payload }
            });
        prop_oneof![
            hello(),
            request,
            refusal,
            (any::<u64>(), payload(30_000)).prop_map(|(id, payload)| Frame::Reply { id, payload }),
            any::<u64>().prop_map(|id| Frame::Cancel { id }),
            Just(Frame::Heartbeat),
            Just(Frame::Goodbye),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn encoded_frames_come_back_in_order_however_they_are_cut(
            frames in prop::collection::vec(frame(), 1..6),
            cuts in prop::collection::vec(1..5000_usize, 1..20),
        ) {
            let mut bytes = BytesMut::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            let (mut arrived, mut decoded) = (BytesMut::new(), Vec::new());
            let mut cuts = cuts.into_iter().cycle();
            while !bytes.is_empty() {
                let next = cuts.next().unwrap().min(bytes.len());
                arrived.extend_from_slice(&bytes.split_to(next));
                while let Some(frame) = Frame::decode(&mut arrived, &LIMITS).unwrap() {
                    decoded.push(frame);
                }
            }
            prop_assert_eq!(decoded, frames);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            kind in 0..9_u8,
            length in 0..200_u8,
        ) {
            let _ = Frame::decode(&mut bytes.as_slice().into(), &LIMITS);
            let mut likely = BytesMut::from(&[length, 0, 0, 0, FORMAT, kind, length / 3, 0][..]);
            likely.extend_from_slice(&bytes);
            let _ = Frame::decode(&mut likely, &LIMITS);
        }

        #[test]
        fn a_changed_byte_never_makes_the_decoder_panic(
            frame in frame(), at in any::<prop::sample::Index>(), bits in 1..=255_u8,
        ) {
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            let _ = Frame::decode(&mut bytes, &LIMITS);
        }
    }

    #[test]
    fn fields_that_are_not_known_are_skipped_and_those_that_are_needed_are_not() {
        let frame = |fields: &[&[u8]]| {
            let fields = fields.concat();
            let mut bytes = BytesMut::new();
            bytes.put_u32_le(12 + fields.len() as u32 + 2);
            bytes.put_slice(&[FORMAT, 2, fields.len() as u8, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
            bytes.put_slice(&fields);
            bytes.put_slice(b"hi");
            Frame::decode(&mut bytes, &LIMITS)
        };
        let within: &[u8] = &[6, 8, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        let unknown: &[u8] = &[99, 3, 0, 1, 2, 3];
        let expected =
            Frame::Request { id: 7, within: Duration::from_millis(5), payload: "hi".into() };
        assert_eq!(frame(&[unknown, within, unknown]), Ok(Some(expected)));
        assert_eq!(frame(&[unknown]), Err(Malformed::Fields));
        assert_eq!(frame(&[within, &[99, 3, 0, 1]]), Err(Malformed::Fields));
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_has_arrived() {
        let head = |length: u32, kind| {
            let [a, b, c, d] = length.to_le_bytes();
            Frame::decode(&mut BytesMut::from(&[a, b, c, d, FORMAT, kind][..]), &LIMITS)
        };
        assert_eq!(head(20_000 + 4096, 2), Ok(None));
        assert!(matches!(head(20_000 + 4097, 2), Err(Malformed::Length { .. })));
        assert!(matches!(head(5000, 1), Err(Malformed::Length { .. })));
        assert!(matches!(head(11, 6), Err(Malformed::Length { .. })));
        let mut bytes = BytesMut::new();
        Frame::Reply { id: 1, payload: vec![0; 30_001].into() }.encode(&mut bytes);
        assert!(matches!(Frame::decode(&mut bytes, &LIMITS), Err(Malformed::Length { .. })));
    }
}
