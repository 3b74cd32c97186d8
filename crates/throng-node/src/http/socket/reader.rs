//! Decoder of the client's bytes: checks and unmasks frames, and joins them to messages.
//!
//! ```text
//!          ┌──────────── end of the payload ────────────┐
//!          ▼                                            │
//! bytes ──► Head ──whole and sound──► Data, Control ────┴──► ClientMessage, if it was the last frame
//!            │                         │
//!            └────────► Violation ◄────┘
//! ```
//!
//! tungstenite decodes a frame's head and the codes. The state between frames is kept here, because
//! tungstenite's own reader keeps a buffer per connection, reserves the length that a head announces, and
//! never shrinks.
//!
//! Invariants: memory grows with the bytes that have arrived, not with the length that a head
//! announces, up to the limit of a message; between messages, the reader has no memory on the heap.
//! After a violation, the reader must not be used again.

use std::io::Cursor;

use tungstenite::Utf8Bytes;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode as WireCode, Control, Data, OpCode};

use super::{CloseCode, SocketLimits};

/// Message or control frame of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientMessage {
    /// A whole text message.
    Text(Utf8Bytes),
    /// A ping, which the server must answer with the same bytes.
    Ping(Vec<u8>),
    /// A pong, with or without a ping before it.
    Pong,
    /// The client's close frame: its code, if it has one, and its reason.
    Close(Option<u16>, Utf8Bytes),
}

/// Breach of the protocol or of a limit: the code and the reason for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Code of the close frame.
    pub(crate) code: CloseCode,
    /// Reason in the close frame.
    pub(crate) reason: &'static str,
}

/// Decoder of the messages of a client.
#[derive(Debug)]
pub(crate) struct MessageReader {
    state: ReaderState,
    /// Payload of the incomplete data message, if the message's first head has arrived.
    message: Option<Vec<u8>>,
}

#[derive(Debug)]
enum ReaderState {
    /// Expects the head of a frame, of which the first `len` bytes have arrived.
    Head { bytes: [u8; HEAD_BYTES_MAX], len: u8 },
    /// Expects the rest of a data frame's payload.
    Data { rest: Masked, is_last: bool },
    /// Expects the rest of a control frame's payload.
    Control { rest: Masked, control: Control, payload: Vec<u8> },
}

/// Masked bytes that are still to come.
#[derive(Debug)]
struct Masked {
    left: usize,
    mask: [u8; 4],
}

/// Bytes of the longest head: 2 of flags and length, 8 of length, 4 of mask.
const HEAD_BYTES_MAX: usize = 14;

/// Maximum bytes of a control frame's payload, by the protocol.
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

const NEXT_HEAD: ReaderState = ReaderState::Head { bytes: [0; HEAD_BYTES_MAX], len: 0 };

impl MessageReader {
    /// Creates the reader for a connection.
    pub(crate) fn new() -> MessageReader {
        MessageReader { state: NEXT_HEAD, message: None }
    }

    /// Takes bytes from the front of `input` up to the end of the next message, and returns the
    /// message. If the message is not complete, takes all bytes and returns `None`.
    pub(crate) fn read(
        &mut self,
        input: &mut &[u8],
        limits: &SocketLimits,
    ) -> Result<Option<ClientMessage>, Violation> {
        loop {
            match &mut self.state {
                ReaderState::Head { bytes, len } => {
                    let Some((&byte, rest)) = input.split_first() else { return Ok(None) };
                    *input = rest;
                    bytes[usize::from(*len)] = byte;
                    *len += 1;
                    if let Some(head) = parse(&bytes[..usize::from(*len)])? {
                        self.begin(head, limits)?;
                    }
                }
                ReaderState::Data { rest, is_last } => {
                    let message = self.message.get_or_insert_default();
                    rest.take(input, message);
                    if rest.left > 0 {
                        return Ok(None);
                    }
                    let is_last = *is_last;
                    self.state = NEXT_HEAD;
                    if is_last {
                        let message = self.message.take().unwrap_or_default();
                        return text(message).map(|text| Some(ClientMessage::Text(text)));
                    }
                }
                ReaderState::Control { rest, control, payload } => {
                    rest.take(input, payload);
                    if rest.left > 0 {
                        return Ok(None);
                    }
                    let (control, payload) = (*control, std::mem::take(payload));
                    self.state = NEXT_HEAD;
                    return match control {
                        Control::Ping => Ok(Some(ClientMessage::Ping(payload))),
                        Control::Pong => Ok(Some(ClientMessage::Pong)),
                        Control::Close => close(payload).map(Some),
                        Control::Reserved(_) => Err(protocol("the opcode is reserved")),
                    };
                }
            }
        }
    }

    /// Checks a head against the protocol, the limits and the incomplete message, and begins its frame.
    fn begin(&mut self, head: Head, limits: &SocketLimits) -> Result<(), Violation> {
        let Head { is_final, opcode, mask, length } = head;
        let control = match opcode {
            OpCode::Control(control) => control,
            OpCode::Data(data) => {
                match (data, &self.message) {
                    (Data::Text, None) | (Data::Continue, Some(_)) => {}
                    (Data::Binary, None) => {
                        let reason = "only text messages are accepted";
                        return Err(Violation { code: CloseCode::UNSUPPORTED, reason });
                    }
                    (Data::Continue, None) => {
                        return Err(protocol("a continuation continues no message"));
                    }
                    _ => return Err(protocol("a message begins within another")),
                }
                let before = self.message.as_ref().map_or(0, Vec::len);
                let left = usize::try_from(length).ok().filter(|bytes| {
                    *bytes <= limits.frame_bytes_max
                        && bytes.saturating_add(before) <= limits.message_bytes_max
                });
                let Some(left) = left else {
                    let reason = "the frame or message is too large";
                    return Err(Violation { code: CloseCode::TOO_LARGE, reason });
                };
                self.message.get_or_insert_default();
                self.state = ReaderState::Data { rest: Masked { left, mask }, is_last: is_final };
                return Ok(());
            }
        };
        let left = usize::try_from(length).ok().filter(|bytes| *bytes <= CONTROL_BYTES_MAX);
        let Some(left) = left.filter(|_| is_final) else {
            return Err(protocol("a control frame is fragmented or too large"));
        };
        let rest = Masked { left, mask };
        self.state = ReaderState::Control { rest, control, payload: Vec::new() };
        Ok(())
    }
}

impl Masked {
    /// Moves the available bytes to the end of `payload`, and removes their mask.
    fn take(&mut self, input: &mut &[u8], payload: &mut Vec<u8>) {
        let (taken, rest) = input.split_at(self.left.min(input.len()));
        *input = rest;
        self.left -= taken.len();
        let start = payload.len();
        payload.extend_from_slice(taken);
        for bytes in payload[start..].chunks_mut(4) {
            for (byte, mask) in bytes.iter_mut().zip(self.mask) {
                *byte ^= mask;
            }
        }
        self.mask.rotate_left(taken.len() % 4);
    }
}

/// Checked head of a frame.
struct Head {
    is_final: bool,
    opcode: OpCode,
    mask: [u8; 4],
    length: u64,
}

/// Decodes and checks a head; `None` if `bytes` do not contain the whole head.
fn parse(bytes: &[u8]) -> Result<Option<Head>, Violation> {
    let mut cursor = Cursor::new(bytes);
    let Ok(parsed) = FrameHeader::parse(&mut cursor) else {
        return Err(protocol("the opcode is reserved"));
    };
    let Some((header, length)) = parsed else { return Ok(None) };
    if header.rsv1 || header.rsv2 || header.rsv3 {
        return Err(protocol("a reserved bit is set"));
    }
    if header.len(length) != bytes.len() {
        return Err(protocol("the length does not have its shortest form"));
    }
    let FrameHeader { is_final, opcode, mask, .. } = header;
    let Some(mask) = mask else { return Err(protocol("the frame is not masked")) };
    Ok(Some(Head { is_final, opcode, mask, length }))
}

fn close(mut payload: Vec<u8>) -> Result<ClientMessage, Violation> {
    let code = match payload[..] {
        [] => None,
        [high, low, ..] => Some(u16::from_be_bytes([high, low])),
        [_] => return Err(protocol("the close frame has half a code")),
    };
    if code.is_some_and(|code| !WireCode::from(code).is_allowed()) {
        return Err(protocol("the close code is reserved"));
    }
    payload.drain(..payload.len().min(2));
    Ok(ClientMessage::Close(code, text(payload)?))
}

fn text(bytes: Vec<u8>) -> Result<Utf8Bytes, Violation> {
    let reason = "the text is not UTF-8";
    Utf8Bytes::try_from(bytes).map_err(|_| Violation { code: CloseCode::NOT_UTF8, reason })
}

fn protocol(reason: &'static str) -> Violation {
    Violation { code: CloseCode::PROTOCOL, reason }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use tungstenite::error::ProtocolError;
    use tungstenite::protocol::Role;
    use tungstenite::{Error, Message, WebSocket};

    use super::*;

    const MASK: [u8; 4] = [1, 2, 3, 0xfe];

    /// Encodes a client's frame; `first` has the flags and the opcode.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let length = payload.len();
        let mut frame = match length {
            0..126 => vec![first, 0x80 | length as u8],
            126..65536 => vec![first, 0x80 | 126, (length >> 8) as u8, length as u8],
            _ => [&[first, 0x80 | 127][..], &(length as u64).to_be_bytes()].concat(),
        };
        frame.extend_from_slice(&MASK);
        frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    /// Reads `bytes` in pieces of `step` bytes, up to the first violation.
    fn read(bytes: &[u8], step: usize) -> (Vec<ClientMessage>, Option<Violation>) {
        let mut reader = MessageReader::new();
        let mut messages = Vec::new();
        for mut piece in bytes.chunks(step) {
            loop {
                match reader.read(&mut piece, &SocketLimits::default()) {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(violation) => return (messages, Some(violation)),
                }
            }
            assert!(piece.is_empty());
        }
        (messages, None)
    }

    #[test]
    fn messages_are_the_same_in_pieces_of_any_size() {
        let long = "ä".repeat(20_000);
        let bytes = [
            frame(0x81, b"hello"),
            frame(0x81, b""),
            frame(0x01, "ab\u{e9}".as_bytes().split_at(3).0), // the character goes on
            frame(0x89, b"ping"),
            frame(0x00, b""),
            frame(0x80, "ab\u{e9}".as_bytes().split_at(3).1),
            frame(0x8a, b""),
            frame(0x81, long.as_bytes()),
            frame(0x81, &long.as_bytes()[..300]),
            frame(0x88, b"\x03\xe8bye"),
        ]
        .concat();
        let expected = [
            ClientMessage::Text("hello".into()),
            ClientMessage::Text("".into()),
            ClientMessage::Ping(b"ping".to_vec()),
            ClientMessage::Text("ab\u{e9}".into()),
            ClientMessage::Pong,
            ClientMessage::Text(long.as_str().into()),
            ClientMessage::Text(long[..300].into()),
            ClientMessage::Close(Some(1000), "bye".into()),
        ];
        for step in [1, 2, 3, 5, 7, 64, 4096, usize::MAX] {
            let (messages, violation) = read(&bytes, step);
            assert_eq!(violation, None);
            assert!(messages == expected, "pieces of {step}");
        }
    }

    #[test]
    fn a_violation_has_its_code() {
        let large = SocketLimits::default().frame_bytes_max + 1;
        let half = vec![b'x'; large / 2];
        let [protocol, unsupported, not_utf8, too_large] = [1002, 1003, 1007, 1009];
        #[rustfmt::skip]
        let cases = [
            ("not masked", vec![0x81, 0x01, b'x'], protocol),
            ("first reserved bit", frame(0xc1, b"x"), protocol),
            ("second reserved bit", frame(0xa1, b"x"), protocol),
            ("third reserved bit", frame(0x91, b"x"), protocol),
            ("reserved data opcode", frame(0x83, b"x"), protocol),
            ("reserved control opcode", frame(0x8b, b"x"), protocol),
            ("binary", frame(0x82, b"x"), unsupported),
            ("continuation of nothing", frame(0x80, b"x"), protocol),
            ("text within text", [frame(0x01, b"x"), frame(0x81, b"y")].concat(), protocol),
            ("binary within text", [frame(0x01, b"x"), frame(0x82, b"y")].concat(), protocol),
            ("fragmented ping", frame(0x09, b"x"), protocol),
            ("large ping", frame(0x89, &[0; 126]), protocol),
            ("length of 16 bits too long", vec![0x81, 0x80 | 126, 0, 5, 0, 0, 0, 0], protocol),
            ("length of 64 bits too long", vec![0x81, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0], protocol),
            ("length of 2^64 - 1", [&[0x81, 0xff][..], &[0xff; 12]].concat(), too_large),
            ("large frame", frame(0x81, &vec![b'x'; large]), too_large),
            ("large message", [frame(0x01, &half), frame(0x00, &half), frame(0x80, b"xx")].concat(), too_large),
            ("bad text", frame(0x81, b"\xff"), not_utf8),
            ("text that ends within a character", frame(0x81, b"\xc3"), not_utf8),
            ("surrogate", frame(0x81, b"\xed\xa0\x80"), not_utf8),
            ("half a close code", frame(0x88, b"\x03"), protocol),
            ("reserved close code", frame(0x88, b"\x03\xed"), protocol),
            ("close code below 1000", frame(0x88, b"\x00\x01"), protocol),
            ("bad close reason", frame(0x88, b"\x03\xe8\xff"), not_utf8),
        ];
        for (name, bytes, code) in cases {
            for step in [1, usize::MAX] {
                let (messages, violation) = read(&bytes, step);
                assert_eq!(violation.map(|violation| violation.code.get()), Some(code), "{name}");
                assert_eq!(messages, [], "{name}");
            }
        }
    }

    #[test]
    fn a_head_alone_reserves_no_memory() {
        let mut reader = MessageReader::new();
        let head = [&[0x81, 0xfe, 0xff, 0xff][..], &MASK].concat();
        assert_eq!(reader.read(&mut &head[..], &SocketLimits::default()), Ok(None));
        assert_eq!(reader.message.map(|message| message.capacity()), Some(0));
    }

    /// Stream of a client's bytes for tungstenite, which writes its answers to nowhere.
    struct Bytes(Cursor<Vec<u8>>);

    impl Read for Bytes {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Bytes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Reads `bytes` with tungstenite, up to a close or a violation.
    fn read_by_tungstenite(bytes: &[u8]) -> (Vec<ClientMessage>, Option<Error>) {
        let stream = Bytes(Cursor::new(bytes.to_vec()));
        let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
        let mut messages = Vec::new();
        loop {
            messages.push(match socket.read() {
                Ok(Message::Text(text)) => ClientMessage::Text(text),
                Ok(Message::Ping(payload)) => ClientMessage::Ping(payload.into()),
                Ok(Message::Pong(_)) => ClientMessage::Pong,
                // tungstenite's own words for a close with a reserved code.
                Ok(Message::Close(Some(frame))) if frame.reason == "Protocol violation" => {
                    return (messages, None);
                }
                Ok(Message::Close(frame)) => {
                    let (code, reason) = frame.map_or_else(Default::default, |frame| {
                        (Some(u16::from(frame.code)), frame.reason)
                    });
                    messages.push(ClientMessage::Close(code, reason));
                    return (messages, None);
                }
                Ok(other) => panic!("{other:?}: the reader refuses binary frames"),
                Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => {
                    return (messages, None);
                }
                Err(error) => return (messages, Some(error)),
            });
        }
    }

    #[test]
    fn random_frames_are_read_as_tungstenite_reads_them() {
        let mut outcomes = [0; 3];
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes = Vec::new();
            for _ in 0..random.usize(1..6) {
                let first = random.choice([0x81, 0x81, 0x01, 0x00, 0x80, 0x80, 0x89, 0x8a, 0x88]);
                let payload = ["", "x", "é", "\u{3}\u{e8}", "\u{f}\u{a0}bye", &"y".repeat(300)];
                let payload = payload[random.usize(..payload.len())];
                bytes.extend(frame(first.unwrap_or_default(), payload.as_bytes()));
            }
            if random.u8(..3) == 0 {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.truncate(bytes.len() - random.usize(..3) / 2);

            let (mut ours, violation) = read(&bytes, random.usize(1..20));
            let is_stricter = violation.is_some_and(|violation| {
                violation.code != CloseCode::PROTOCOL && violation.code != CloseCode::NOT_UTF8
                    || violation.reason.contains("shortest")
            });
            if is_stricter {
                continue;
            }
            // tungstenite stops at a close.
            let closes = |message: &ClientMessage| matches!(message, ClientMessage::Close(..));
            let close = ours.iter().position(closes);
            let violation = violation.filter(|_| close.is_none());
            ours.truncate(close.map_or(usize::MAX, |at| at + 1));
            let (theirs, error) = read_by_tungstenite(&bytes);
            match (violation, error) {
                (None, None) => assert_eq!(ours, theirs, "seed {seed}"),
                // tungstenite notices bad UTF-8 at the fragment, before the end of its message.
                (_, Some(Error::Utf8(_))) => assert!(ours.starts_with(&theirs), "seed {seed}"),
                // tungstenite looks at a head only once the whole frame is there.
                (Some(_), _) => assert_eq!(ours, theirs, "seed {seed}"),
                (None, Some(error)) => panic!("seed {seed}: only tungstenite refuses: {error}"),
            }
            outcomes[usize::from(violation.is_some()) + usize::from(close.is_some()) * 2] += 1;
        }
        assert!(outcomes.iter().all(|times| *times > 500), "{outcomes:?}");
    }
}
