//! Messages of rooms, and the views of a room that its users get.

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use throng_node::http::Frames;

use crate::name::{Name, RoomName};
use crate::post::Text;

use super::MessageCell;

/// Message that was said in a room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoomMessage {
    /// Number of the message in its room: the messages of a room are numbered 1, 2, 3, … without gaps.
    pub sequence: u64,
    /// Name of the author.
    pub author: Name,
    /// Text of the message; `None` if it was removed.
    pub text: Option<Text>,
    /// Time at which it was said, in milliseconds since 1970.
    pub time: u64,
}

impl RoomMessage {
    pub(super) fn of(sequence: u64, (time, author, text): MessageCell) -> RoomMessage {
        RoomMessage { sequence, author, text, time }
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
    /// Number of users that are present: users with a socket that has entered the room.
    pub present: usize,
}

/// Messages of a room in the order of their numbers, with frames that the sockets of a relay share.
#[derive(Debug)]
pub struct Said {
    /// The room.
    pub room: RoomName,
    parts: Vec<Arc<SaidMessage>>,
    /// Frames of the messages, joined when the first socket needs them.
    pub(crate) frames: OnceLock<Frames>,
}

impl Said {
    pub(super) fn new(room: RoomName, parts: Vec<Arc<SaidMessage>>) -> Said {
        Said { room, parts, frames: OnceLock::new() }
    }

    /// Returns the messages, in the order of their sequence numbers; at least one.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = &RoomMessage> {
        self.parts.iter().map(|part| &part.message)
    }

    pub(crate) fn parts(&self) -> &[Arc<SaidMessage>] {
        &self.parts
    }
}

/// A message of a room, with the frame that all sockets send for it.
#[derive(Debug)]
pub(crate) struct SaidMessage {
    pub(crate) room: RoomName,
    pub(crate) message: RoomMessage,
    /// Frame of the message, encoded when the first relay needs it.
    pub(crate) frame: OnceLock<Frames>,
}

impl SaidMessage {
    pub(super) fn new(room: RoomName, message: RoomMessage) -> SaidMessage {
        SaidMessage { room, message, frame: OnceLock::new() }
    }
}
