//! Frames that the server sends, encoded once for all their receivers.
//!
//! ```text
//! text ──Frames::from──► [head│payload] ──┐
//! text ──Frames::from──► [head│payload] ──┴─join─► [head│payload│head│payload] ──clones──► outbox, outbox, …
//! ```
//!
//! A server does not mask its frames, so a frame has the same bytes for every receiver.
//!
//! Invariant: the bytes are whole frames, one after another. An application can encode only text messages, each in
//! one frame; the session encodes control frames.

use std::fmt;

use axum::body::Bytes;
use tungstenite::Utf8Bytes;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// Encoded text messages for clients. Clones share their memory.
///
/// ```
/// use throng_node::http::Frames;
///
/// let news = Frames::from("alice is here");
/// let both = Frames::join([&news, &Frames::from("bob is here")]);
/// assert_eq!(both.messages(), 2);
/// assert!(both.texts().eq(["alice is here", "bob is here"]));
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Frames {
    bytes: Bytes,
    messages: usize,
}

impl Frames {
    /// Encodes a text message.
    fn text(text: &str) -> Frames {
        Frames::encode(OpCode::Data(Data::Text), text.as_bytes())
    }

    /// Encodes a control frame.
    pub(super) fn control(kind: Control, payload: &[u8]) -> Frames {
        Frames::encode(OpCode::Control(kind), payload)
    }

    fn encode(opcode: OpCode, payload: &[u8]) -> Frames {
        let header = FrameHeader { opcode, ..FrameHeader::default() };
        let mut bytes = Vec::with_capacity(header.len(payload.len() as u64) + payload.len());
        // Writing to a `Vec` cannot fail.
        let _ = header.format(payload.len() as u64, &mut bytes);
        bytes.extend_from_slice(payload);
        Frames { bytes: bytes.into(), messages: 1 }
    }

    /// Joins messages in their order. An outbox queues all of them or none.
    ///
    /// Cost: a copy of the messages, unless there is only one part.
    pub fn join<'a>(parts: impl IntoIterator<Item = &'a Frames, IntoIter: Clone>) -> Frames {
        let parts = parts.into_iter();
        let mut rest = parts.clone();
        if let (Some(only), None) = (rest.next(), rest.next()) {
            return only.clone();
        }
        let mut bytes = Vec::with_capacity(parts.clone().map(Frames::len).sum());
        let mut messages = 0;
        for part in parts {
            bytes.extend_from_slice(&part.bytes);
            messages += part.messages;
        }
        Frames { bytes: bytes.into(), messages }
    }

    /// Returns the number of messages.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// Returns the number of bytes on the wire: each text, and a head of 2, 4 or 10 bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the texts of the messages, in their order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let [_, short, behind @ ..] = rest else { return None };
            let long = match short {
                126 => 2,
                127 => 8,
                _ => 0,
            };
            let (long, behind) = behind.split_at_checked(long)?;
            let length = match long {
                [] => usize::from(*short),
                _ => long.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)),
            };
            let (payload, behind) = behind.split_at_checked(length)?;
            rest = behind;
            std::str::from_utf8(payload).ok()
        })
    }
}

impl From<&str> for Frames {
    fn from(text: &str) -> Frames {
        Frames::text(text)
    }
}

impl From<String> for Frames {
    fn from(text: String) -> Frames {
        Frames::text(&text)
    }
}

/// Encodes a client's message, to pass it on to other clients.
impl From<Utf8Bytes> for Frames {
    fn from(text: Utf8Bytes) -> Frames {
        Frames::text(&text)
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.texts()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_are_those_that_were_encoded() {
        // Around the lengths at which the head changes.
        let texts: Vec<String> =
            [0, 1, 125, 126, 127, 65_535, 65_536, 70_000].map(|length| "ö".repeat(length)).into();
        let frames: Vec<Frames> = texts.iter().map(|text| text.as_str().into()).collect();
        for (frame, text) in frames.iter().zip(&texts) {
            assert!(frame.texts().eq([text]), "{} bytes", text.len());
            assert_eq!((frame.messages(), frame.as_bytes()[0]), (1, 0x81));
        }
        let joined = Frames::join(&frames);
        assert!(joined.texts().eq(&texts));
        assert_eq!((joined.messages(), joined.len()), (8, frames.iter().map(Frames::len).sum()));
        assert!(Frames::join([]).is_empty() && Frames::default().texts().next().is_none());
        let only = Frames::join(&frames[..1]);
        assert_eq!(only.as_bytes().as_ptr(), frames[0].as_bytes().as_ptr(), "copied");
    }
}
