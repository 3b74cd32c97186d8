//! Messages between a client and its socket: JSON objects with a `type`.
//!
//! | from | type | fields |
//! |---|---|---|
//! | client | `hello` | `token`, and `last`: the position of an earlier socket, or null |
//! | server | `welcome` | `name`, `position`: the client's position after the missed changes, which follow at once |
//! | server | `post` | `post` |
//! | server | `deleted` | `id` |
//! | server | `reset` | `position`: the client must read its timeline over HTTP, and then has this position |
//! | client | `enter` | `room`, and `last`: the sequence number of the last message that the client has, or null |
//! | server | `entered` | `room`, `sequence`: number of the newest message, `members`, `present`, `truncated` |
//! | client | `exit` | `room` |
//! | server | `exited` | `room`: the client has left the room, also because its user is no member any more |
//! | client | `say` | `room`, `text`, and `key`: an idempotency key, or null |
//! | server | `stored` | `room`, `key`, `sequence`: the message is on disk |
//! | server | `refused` | `room`, `key`, `error`: the last part of the problem's URN, `detail`; answers `say` and `enter`. With `rate-limited`, also `typing`, and `retry_after`: seconds to wait |
//! | server | `said` | `room`, `message`: `{sequence, author, text, time}`; `text` is null if it was removed |
//! | client | `typing` | `room` |
//! | server | `typing` | `room`, `name` |
//! | server | `presence` | `room`, `present`, `entered`, `exited`: names, while at most 100 users are present |
//! | client | `ping` | |
//! | server | `pong` | |
//! | server | `room_reset` | `room`, `sequence`, `present`: the client must read the room's history over HTTP |
//!
//! **Timeline.** A client that connects again sends its position as `last`, and gets the changes that it has missed,
//! or a `reset` if the timeline does not have them any more. A missed post that was deleted since then comes as
//! `deleted`. Each `post` and `deleted`, also of a missed change, increases the client's `position.sequence` by 1;
//! after the missed changes, the position is equal to that of the `welcome`.
//!
//! **Rooms.** After `entered`, the messages after `last` follow as `said`, and then all further messages, each once
//! and in the order of their sequence numbers. With `truncated`, the client has missed more than a page: no missed
//! messages follow, and the client reads the history down to `last`. Without `last`, there are no missed messages.
//! After a `room_reset`, the messages beyond its `sequence` follow, and the client reads those before it that it does
//! not have. A `room_reset` also takes the place of an `entered` for which there was no room.
//!
//! When the text of a message is removed, the message comes as `said` once more, without a text. A client that is away
//! learns of it from the history.
//!
//! A client that gets no answer to a `say`, because the connection is lost, says it again with the same key: the
//! message is stored once. The author of a message gets it as `said`, too.
//!
//! **Rates.** `say` and typing that is passed on count as writes of the user, and `enter` as a read, together with the
//! user's requests over HTTP. A message beyond the rate is `refused` as `rate-limited`, and the socket stays open.
//!
//! **Silence.** A connection can be lost without a close. A client that gets no message for a while sends a `ping`, and
//! connects again if no message follows in time. A `ping` costs no token. (JavaScript cannot send or see the pings of
//! WebSockets.)
//!
//! **Close codes.** 4401: the token is invalid, has expired or was revoked; log in again. 4429: the token is invalid, and
//! the client's network has sent too many of them. 1013: the user has the maximum number of sockets, the client reads too
//! slowly, or the service is unavailable; try again later. 1012: the server restarts; connect again.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use throng_node::http::Frames;

use crate::ids::PostId;
use crate::live::Position;
use crate::name::{Name, RoomName};
use crate::post::{PostView, Published};
use crate::room::live::{Presence, Typing};
use crate::room::{RoomMessage, Said, SaidMessage};

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromClient {
    Hello { token: String, last: Option<Position> },
    Enter { room: String, last: Option<u64> },
    Exit { room: String },
    Say { room: String, text: String, key: Option<String> },
    Typing { room: String },
    Ping {},
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToClient<'a> {
    Pong {},
    Welcome {
        name: &'a Name,
        position: Position,
    },
    Post {
        post: PostView<'a>,
    },
    Deleted {
        id: PostId,
    },
    Reset {
        position: Position,
    },
    Entered {
        room: &'a RoomName,
        sequence: u64,
        members: u32,
        present: usize,
        truncated: bool,
    },
    Exited {
        room: &'a RoomName,
    },
    Stored {
        room: &'a RoomName,
        key: Option<&'a str>,
        sequence: u64,
    },
    /// The room and the key are the client's own texts, which may be invalid.
    Refused {
        room: &'a str,
        key: Option<&'a str>,
        error: &'a str,
        detail: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    Said {
        room: &'a RoomName,
        message: &'a RoomMessage,
    },
    Typing {
        room: &'a RoomName,
        name: &'a Name,
    },
    Presence {
        room: &'a RoomName,
        present: usize,
        entered: &'a BTreeSet<Name>,
        exited: &'a BTreeSet<Name>,
    },
    RoomReset {
        room: &'a RoomName,
        sequence: u64,
        present: usize,
    },
}

impl ToClient<'_> {
    pub(super) fn frame(&self) -> Frames {
        // Encoding cannot fail: a message has no maps with keys other than texts.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

impl Published {
    /// Returns the post's frame, which is encoded once for all sockets and pages.
    pub(super) fn frame(&self) -> Frames {
        self.encoded().clone()
    }

    /// Returns the post in JSON, as it is in a page: the part of the frame after the type.
    pub(crate) fn json(&self) -> &str {
        let frame = self.encoded().texts().next().unwrap_or_default();
        frame.strip_prefix(POST_OPEN).and_then(|rest| rest.strip_suffix('}')).unwrap_or_default()
    }

    fn encoded(&self) -> &Frames {
        self.frame.get_or_init(|| ToClient::Post { post: PostView::of(&self.post) }.frame())
    }
}

/// Beginning of the frame of a post, before the post.
const POST_OPEN: &str = r#"{"type":"post","post":"#;

impl SaidMessage {
    /// Returns the message's frame, which is encoded once for all sockets.
    pub(crate) fn frame(&self) -> &Frames {
        let encode = || ToClient::Said { room: &self.room, message: &self.message }.frame();
        self.frame.get_or_init(encode)
    }
}

impl Said {
    /// Returns the frames of all messages, which are joined once for all sockets of the relay.
    pub(crate) fn frames(&self) -> Frames {
        let join = || Frames::join(self.parts().iter().map(|part| part.frame()));
        self.frames.get_or_init(join).clone()
    }
}

impl Presence {
    /// Returns the frame of the news, which is encoded once for all sockets.
    pub(super) fn frame(&self) -> Frames {
        let Presence { room, present, entered, exited, frame } = self;
        let encode = || ToClient::Presence { room, present: *present, entered, exited }.frame();
        frame.get_or_init(encode).clone()
    }
}

impl Typing {
    /// Returns the frame of the news, which is encoded once for all sockets.
    pub(super) fn frame(&self) -> Frames {
        let encode = || ToClient::Typing { room: &self.room, name: &self.name }.frame();
        self.frame.get_or_init(encode).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::post::{Post, Text};

    #[test]
    fn a_page_and_a_frame_have_the_same_post() {
        for text in ["plain", "\"}{\\ \n\u{0} 語😀", "}}}"] {
            let (id, author) = (PostId::new(7 << 22), "bob".parse().unwrap());
            let published =
                Published::new(Post { id, author, text: Text::new(text).unwrap(), time: 7 });
            let json = serde_json::to_string(&PostView::of(&published.post)).unwrap();
            assert_eq!(published.json(), json);
            assert!(published.frame().texts().eq([format!("{POST_OPEN}{json}}}")]));
        }
    }
}
