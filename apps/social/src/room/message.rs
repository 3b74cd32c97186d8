//! Messages of rooms, and the views of a room that its users get.

use std::sync::OnceLock;

use serde::Serialize;
use throng_server::Utf8Bytes;

use crate::name::{Name, RoomName};
use crate::post::Text;

use super::MessageCell;

/// Message that was said in a room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoomMessage {
    /// Number of the message in its room. The first message has the number 1, and each message the number after
    /// that of the message before.
    pub sequence: u64,
    /// Name of the author.
    pub author: Name,
    /// Text of the message.
    pub text: Text,
    /// Time at which it was said, in milliseconds since 1970.
    pub time: u64,
}

impl RoomMessage {
    pub(super) fn of(sequence: u64, (id, author, text): MessageCell) -> RoomMessage {
        RoomMessage { sequence, author, text, time: id.time_ms() }
    }
}

/// Outcome of saying a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The message.
    pub message: RoomMessage,
    /// Whether the message existed already, under the same idempotency key.
    pub repeated: bool,
}

/// Page of messages of a room, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomMessages {
    /// Messages of the page.
    pub messages: Vec<RoomMessage>,
    /// Sequence number to pass as `before` for the next page, or `None` on the last page.
    pub next: Option<u64>,
}

/// Public data of a room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoomProfile {
    /// Name of the room.
    pub name: RoomName,
    /// Creator of the room, also after leaving it.
    pub owner: Name,
    /// Time of creation, in milliseconds since 1970.
    pub created: u64,
    /// Number of members.
    pub members: u32,
    /// Number of messages, and the sequence number of the newest.
    pub messages: u64,
    /// Number of users that are present: users of whom a socket has entered the room.
    pub present: usize,
}

/// A message of a room, with the frame that all sockets send for it.
#[derive(Debug)]
pub struct Said {
    /// The room.
    pub room: RoomName,
    /// The message.
    pub message: RoomMessage,
    /// Frame of the message, encoded when the first socket needs it.
    pub(crate) frame: OnceLock<Utf8Bytes>,
}

impl Said {
    pub(crate) fn new(room: RoomName, message: RoomMessage) -> Said {
        Said { room, message, frame: OnceLock::new() }
    }
}
