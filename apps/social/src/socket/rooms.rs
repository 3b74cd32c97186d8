//! Rooms in which a socket is present.
//!
//! ```text
//!  sequence numbers of a room
//!  ──────────────── last ──────────── entered.sequence ──────────────►
//!     the client's  │ missed: with the answer │ news of the relay
//!                                  └─ news up to here are passed over, since the answer has them
//! ```
//!
//! Invariants:
//! * A client gets each message of a room once and in order, or a `room_reset`. If news find no room in the client's
//!   queue, the server tries to send a `room_reset` at intervals until there is room, and no other news before.
//! * After a gap in the news, or the end of the relay, the socket enters again with the last sequence number, without
//!   telling the client.
//! * If the client missed a change of the number of users present, the next `room_reset` or `presence` has the number.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use throng::prelude::*;
use throng_node::http::{Frames, Limited};

use crate::error::SocialError;
use crate::http::limits::Class;
use crate::idempotency::IdempotencyKey;
use crate::name::{Name, RoomName};
use crate::post::Text;
use crate::problem::slug;
use crate::room::live::{Entered, RoomNews};
use crate::room::{RoomMessage, Said};

use super::protocol::ToClient;
use super::{CatchUp, Connection, RETRY};

/// Presence of a socket in a room.
#[derive(Debug)]
pub(super) struct Seat {
    /// Sequence number of the last message that the client has, or has after a reset.
    sequence: u64,
    /// Number of users present, by the latest news.
    present: usize,
    /// Whether news found no room in the queue, so that the client needs a reset.
    is_behind: bool,
    /// Whether the socket must enter again, because its relay has ended.
    is_lost: bool,
    /// Time at which the client was last typing.
    typed: Option<Instant>,
}

/// Refusal of a client's message: an error of the service, a rate, or an invalid field.
enum Refusal {
    Error(SocialError),
    Limited(Limited),
    Invalid { error: &'static str, detail: String },
}

impl From<SocialError> for Refusal {
    fn from(error: SocialError) -> Refusal {
        Refusal::Error(error)
    }
}

fn invalid<E: ToString>(error: &'static str) -> impl Fn(E) -> Refusal {
    move |reason| Refusal::Invalid { error, detail: reason.to_string() }
}

fn parse_room(room: &str) -> Result<RoomName, Refusal> {
    room.parse().map_err(invalid("no-such-room"))
}

impl Handle<RoomNews> for Connection {
    async fn handle(&mut self, news: RoomNews, cx: &mut Context<Self>) {
        match news {
            RoomNews::Said(said) => self.show_said(cx, &said).await,
            RoomNews::Presence(presence) => {
                let Some(seat) = self.rooms.get_mut(&presence.room) else { return };
                seat.present = presence.present;
                if !seat.is_behind {
                    self.show_in(cx, &presence.room, presence.frame());
                }
            }
            RoomNews::Typing(typing) => {
                // Nothing is lost without it.
                if self.rooms.get(&typing.room).is_some_and(|seat| !seat.is_behind) {
                    let _ = self.outbox.send(typing.frame());
                }
            }
            RoomNews::TakenBack(unsaid) => {
                // A client that is behind reads the history.
                if self.rooms.get(&unsaid.room).is_some_and(|seat| !seat.is_behind) {
                    self.show_in(cx, &unsaid.room, unsaid.frames());
                }
            }
            // The client may have entered again while the news were on their way.
            RoomNews::Removed(room) => self.exit(cx, &room),
        }
    }
}

impl Connection {
    /// Sends the client the messages of a piece of news that it does not have.
    async fn show_said(&mut self, cx: &mut Context<Self>, said: &Said) {
        let Some(seat) = self.rooms.get_mut(&said.room) else { return };
        let (next, count) = (seat.sequence + 1, said.parts().len() as u64);
        if said.messages().map(|message| message.sequence).eq(next..next + count) {
            seat.sequence += count;
            let joined = said.frames();
            if !self.outbox.can_hold(&joined) {
                let frames = said.parts().iter().map(|part| part.frame().clone());
                self.show_each(cx, &said.room, frames);
            } else if !seat.is_behind {
                self.show_in(cx, &said.room, joined);
            }
            return;
        }
        // The client got some of these with the answer to `enter`, or earlier messages are missing.
        for part in said.parts() {
            let Some(seat) = self.rooms.get_mut(&said.room) else { return };
            match part.message.sequence.checked_sub(seat.sequence) {
                None | Some(0) => {}
                Some(1) => {
                    seat.sequence += 1;
                    if !seat.is_behind {
                        self.show_in(cx, &said.room, part.frame().clone());
                    }
                }
                // Entering again, now or at a later attempt, brings the client these messages as well.
                Some(_) => return self.enter_again(cx, &said.room).await,
            }
        }
    }

    pub(super) async fn enter(&mut self, cx: &mut Context<Self>, room: &str, last: Option<u64>) {
        if let Err(refusal) = self.try_enter(cx, room, last).await {
            self.refuse(cx, room, None, refusal);
        }
    }

    async fn try_enter(
        &mut self,
        cx: &mut Context<Self>,
        room: &str,
        last: Option<u64>,
    ) -> Result<(), Refusal> {
        let room = parse_room(room)?;
        if self.rooms.len() >= ROOMS_MAX && !self.rooms.contains_key(&room) {
            let detail = format!("a socket can be in {ROOMS_MAX} rooms at most; exit one first");
            return Err(Refusal::Invalid { error: "too-many-rooms", detail });
        }
        // News that arrive meanwhile wait in the mailbox.
        let Entered { sequence, members, present, missed, relay } =
            match self.enter_as_user(cx, &room, last).await {
                Ok(entered) => entered,
                Err(error @ (SocialError::NotMember(_) | SocialError::NoSuchRoom(_))) => {
                    self.rooms.remove(&room);
                    return Err(error.into());
                }
                Err(error) => {
                    // A socket that was present before may not be any more.
                    if let Some(seat) = self.rooms.get_mut(&room) {
                        seat.is_lost = true;
                        self.retry.set(cx, RETRY, CatchUp {});
                    }
                    return Err(error.into());
                }
            };
        self.watch_relay(cx, relay);
        let typed = self.rooms.remove(&room).and_then(|seat| seat.typed);
        let seat = Seat { sequence, present, is_behind: false, is_lost: false, typed };
        self.rooms.insert(room.clone(), seat);
        let truncated = missed.is_none();
        let entered = ToClient::Entered { room: &room, sequence, members, present, truncated };
        self.show_in(cx, &room, entered.frame());
        self.show_missed(cx, &room, missed.unwrap_or_default());
        Ok(())
    }

    async fn enter_as_user(
        &self,
        cx: &Context<Self>,
        room: &RoomName,
        last: Option<u64>,
    ) -> Result<Entered, SocialError> {
        let user = self.user().ok_or(SocialError::TokenRevoked)?;
        self.app.social.enter_room(room, user, cx.address().recipient(), last).await
    }

    pub(super) fn exit(&mut self, cx: &mut Context<Self>, room: &RoomName) {
        if let Some(user) = self.user() {
            self.app.social.exit_room(room, user, cx.pid());
        }
        self.forget(cx, room);
    }

    pub(super) async fn say(
        &mut self,
        cx: &mut Context<Self>,
        room: &str,
        text: String,
        key: Option<&str>,
    ) {
        match self.try_say(room, text, key).await {
            Ok((room, sequence)) => {
                self.answer(cx, ToClient::Stored { room: &room, key, sequence }.frame());
            }
            Err(refusal) => self.refuse(cx, room, key, refusal),
        }
    }

    async fn try_say(
        &self,
        room: &str,
        text: String,
        key: Option<&str>,
    ) -> Result<(RoomName, u64), Refusal> {
        let room = parse_room(room)?;
        let text = Text::new(text).map_err(invalid("text-length"))?;
        let key = key.map(|key| {
            let invalid = invalid("idempotency-key-invalid");
            IdempotencyKey::new(key)
                .ok_or_else(|| invalid("a key must have 1 to 128 visible ASCII characters"))
        });
        let key = key.transpose()?;
        let user = self.user().ok_or(SocialError::TokenRevoked)?;
        let stored = self.app.social.say(&room, user, text, key).await?;
        Ok((room, stored.message.sequence))
    }

    /// Shows others that the client is typing, at most once per [`TYPING`]. Typing in between costs no token.
    pub(super) fn typing(&mut self, cx: &mut Context<Self>, room: &RoomName) {
        let Some(seat) = self.rooms.get_mut(room) else { return };
        if seat.typed.is_none_or(|typed| typed.elapsed() >= TYPING) {
            seat.typed = Some(Instant::now());
            if self.admit(cx, Class::Write, room.as_str(), None)
                && let Some(user) = self.user()
            {
                self.app.social.type_in_room(room, user);
            }
        }
    }

    /// Returns whether the user may make a request of a class. If not, refuses the message.
    pub(super) fn admit(
        &mut self,
        cx: &mut Context<Self>,
        class: Class,
        room: &str,
        key: Option<&str>,
    ) -> bool {
        let Some(user) = self.user() else { return false };
        match self.app.settings.limits.admit(class, user) {
            Ok(()) => true,
            Err(limited) => {
                self.refuse(cx, room, key, Refusal::Limited(limited));
                false
            }
        }
    }

    /// Enters all rooms again, because their relay has ended.
    pub(super) async fn enter_all_again(&mut self, cx: &mut Context<Self>) {
        self.relay = None;
        let rooms: Vec<RoomName> = self.rooms.keys().cloned().collect();
        for room in rooms {
            self.enter_again(cx, &room).await;
        }
    }

    /// Enters rooms again and resets the client in rooms, where this was not possible before.
    pub(super) async fn catch_up_rooms(&mut self, cx: &mut Context<Self>) {
        let is_due = |seat: &&Seat| seat.is_behind || seat.is_lost;
        let due = self.rooms.iter().filter(|(_, seat)| is_due(seat));
        let rooms: Vec<RoomName> = due.map(|(room, _)| room.clone()).collect();
        for room in rooms {
            if self.rooms.get(&room).is_some_and(|seat| seat.is_lost) {
                self.enter_again(cx, &room).await;
            }
            self.reset_room(cx, &room);
        }
    }

    /// Enters a room again, in which the socket may have missed messages.
    async fn enter_again(&mut self, cx: &mut Context<Self>, room: &RoomName) {
        let Some(last) = self.rooms.get(room).map(|seat| seat.sequence) else { return };
        let outcome = self.enter_as_user(cx, room, Some(last)).await;
        let Some(seat) = self.rooms.get_mut(room) else { return };
        match outcome {
            Ok(Entered { sequence, present, missed, relay, .. }) => {
                (seat.sequence, seat.present, seat.is_lost) = (sequence, present, false);
                // The relay sends the number of users present, if it has changed.
                seat.is_behind |= missed.is_none();
                self.watch_relay(cx, relay);
                self.show_missed(cx, room, missed.unwrap_or_default());
                self.reset_room(cx, room);
            }
            Err(SocialError::NotMember(_) | SocialError::NoSuchRoom(_)) => self.forget(cx, room),
            Err(_) => {
                seat.is_lost = true;
                self.retry.set(cx, RETRY, CatchUp {});
            }
        }
    }

    fn show_missed(&mut self, cx: &mut Context<Self>, room: &RoomName, missed: Vec<RoomMessage>) {
        let frames = missed.iter().map(|message| ToClient::Said { room, message }.frame());
        self.show_each(cx, room, frames);
    }

    /// Sends messages one by one, until one finds no room.
    fn show_each(
        &mut self,
        cx: &mut Context<Self>,
        room: &RoomName,
        frames: impl Iterator<Item = Frames>,
    ) {
        for frames in frames {
            if self.rooms.get(room).is_none_or(|seat| seat.is_behind) {
                return;
            }
            self.show_in(cx, room, frames);
        }
    }

    /// Sends a `room_reset` to a client that is behind in a room. Without room in the queue, tries again later.
    fn reset_room(&mut self, cx: &mut Context<Self>, room: &RoomName) {
        let Some(seat) = self.rooms.get_mut(room).filter(|seat| seat.is_behind) else { return };
        seat.is_behind = false;
        let (sequence, present) = (seat.sequence, seat.present);
        self.show_in(cx, room, ToClient::RoomReset { room, sequence, present }.frame());
    }

    /// Sends news of a room. Without room in the queue, the client is behind in this room.
    fn show_in(&mut self, cx: &mut Context<Self>, room: &RoomName, frames: Frames) {
        if !self.offer(cx, frames)
            && let Some(seat) = self.rooms.get_mut(room)
        {
            seat.is_behind = true;
        }
    }

    /// Removes a room in which the socket is not present any more.
    fn forget(&mut self, cx: &mut Context<Self>, room: &RoomName) {
        if self.rooms.remove(room).is_some() {
            self.answer(cx, ToClient::Exited { room }.frame());
        }
    }

    fn watch_relay(&mut self, cx: &mut Context<Self>, relay: Pid) {
        if self.relay.replace(relay) != Some(relay) {
            cx.monitor(relay);
        }
    }

    fn refuse(&mut self, cx: &mut Context<Self>, room: &str, key: Option<&str>, refusal: Refusal) {
        let mut retry_after = None;
        let (error, detail) = match &refusal {
            Refusal::Error(error) => (slug(error), Cow::Owned(error.to_string())),
            Refusal::Limited(limited) => {
                retry_after = Some(limited.retry_after_seconds());
                ("rate-limited", Cow::Owned(limited.to_string()))
            }
            Refusal::Invalid { error, detail } => (*error, Cow::Borrowed(detail.as_str())),
        };
        self.answer(cx, ToClient::Refused { room, key, error, detail, retry_after }.frame());
    }

    fn user(&self) -> Option<&Name> {
        self.session.as_ref().map(|session| &session.name)
    }
}

/// Maximum number of rooms in which a socket is present.
const ROOMS_MAX: usize = 100;

/// Time after which a client's typing is passed on again.
const TYPING: Duration = Duration::from_secs(1);
