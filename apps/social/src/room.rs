//! Rooms, in which members say messages to all present users. Each message is numbered and kept.
//!
//! ```text
//!  say ──► Room "rust" ──after commit──► Relay 0 ─┬─► Connection of alice
//!           state, cells                          └─► Connection of bob       present: entered by a socket
//!           members, messages    └─────► Relay 1 ───► Connection of carol
//! ```
//!
//! A room has two sides. The durable side is a process per room: its members and its messages. The [live side](live) is
//! in memory: the sockets that are present, with their users. It survives the passivation of the room's process, and a
//! restart of the node empties it.
//!
//! ```text
//! state   founding (owner, created), counts
//! cells   members         NAME     → ()                   members, by name
//!         messages        SEQUENCE → time, author, text   messages, oldest first; removed ones without a text
//! ```
//!
//! ```
//! use social::{Password, Social, Text};
//! use throng::prelude::*;
//! use throng_durable::Node;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let data = tempfile::tempdir()?;
//! # let data = data.path();
//! let runtime = Runtime::builder().start()?;
//! runtime.block_on(async |runtime| {
//!     let node = Node::options(data).open(runtime)?;
//!     let social = Social::new(node.clone(), runtime.clone(), 0)?;
//!     let (alice, bob, rust) = ("alice".parse()?, "bob".parse()?, "rust".parse()?);
//!     social.register(&alice, Password::new("correct horse")?).await?;
//!     social.register(&bob, Password::new("battery staple")?).await?;
//!
//!     social.create_room(&rust, &alice).await?;
//!     social.join_room(&rust, &bob).await?;
//!     let said = social.say(&rust, &bob, Text::new("hello, alice")?, None).await?;
//!     assert_eq!(said.message.sequence, 1);
//!     let page = social.room_messages(&rust, &alice, None, 20).await?;
//!     assert_eq!(page.messages, [said.message]);
//!
//!     node.shutdown().await;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Invariants:
//! * The messages of a room are numbered 1, 2, 3, … without gaps, in the order of their commits. A message is
//!   written once, to its own cell, and rewritten only to remove its text.
//! * A room has a member as long as it exists: it ends with its last membership, or when its owner ends it. A room that
//!   has ended is gone for everybody at once. Its cells are removed afterwards, and then its name is free.
//! * A message is on disk before any socket gets it, and before it is acknowledged.
//! * The room's own list of members is authoritative. The list of a user's rooms has every room of which the user is a
//!   member, and may have others after a crash or the end of a room; see `membership.rs`.
//! * Only members say messages, read them, or are present. The owner removes members and messages, and ends the room,
//!   also after leaving it. Whom the owner blocks cannot join. Other blocks have no effect in a room: all members see
//!   the same numbered messages, and a client hides the authors that its user blocks.

pub(crate) mod live;
pub(crate) mod membership;
mod message;
mod service;
#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{CellError, Durable, DurableContext, Str, U64};

use crate::clock::Now;
use crate::error::SocialError;
use crate::idempotency::Made;
use crate::name::{Name, RoomName};
use crate::post::{PageBudget, Text};

use live::LiveRooms;
pub(crate) use message::SaidMessage;
pub use message::{RoomMessage, RoomMessages, RoomProfile, Said, Stored};

/// State of a room, or of a name under which there is no room.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "room", deps = Deps)]
pub(crate) struct Room {
    founding: Option<Founding>,
    members: u32,
    /// Number of messages, and the sequence number of the newest.
    messages: u64,
    /// Whether the room has ended, and may have cells that are left to be removed.
    is_over: bool,
}

/// Origin of a room.
#[derive(Debug, Serialize, Deserialize)]
struct Founding {
    owner: Name,
    /// Time of creation, in milliseconds since 1970.
    created_ms: u64,
}

/// Parts of the service that rooms' processes use.
pub(crate) struct Deps {
    pub(crate) live: LiveRooms,
}

/// Message as its cell keeps it: time in milliseconds since 1970, author, and text unless it was removed.
type MessageCell = (u64, Name, Option<Text>);

/// Messages that a socket has missed.
#[derive(Debug)]
pub(crate) struct CaughtUp {
    /// Sequence number of the newest message.
    pub(crate) sequence: u64,
    pub(crate) members: u32,
    /// Messages after the last one that the socket has, oldest first; `None` if there are too many.
    pub(crate) missed: Option<Vec<RoomMessage>>,
}

#[process(never_blocks)]
impl Room {
    /// Creates the room, unless the name is taken. The owner is its first member.
    #[message]
    pub(crate) fn found(
        &mut self,
        cx: &mut Context<Self>,
        owner: Name,
        now: Now,
    ) -> Result<(), SocialError> {
        if self.founding.is_some() || self.is_over {
            return Err(SocialError::RoomTaken(name(cx)));
        }
        self.founding = Some(Founding { owner: owner.clone(), created_ms: now.ms() });
        self.join(cx, owner)
    }

    /// Returns the room's profile, in which nobody is present.
    #[message]
    pub(crate) fn describe(&self, cx: &mut Context<Self>) -> Result<RoomProfile, SocialError> {
        let Founding { owner, created_ms } = self.founding(cx)?;
        Ok(RoomProfile {
            name: name(cx),
            owner: owner.clone(),
            created: *created_ms,
            members: self.members,
            messages: self.messages,
            present: 0,
        })
    }

    /// Checks that a user is a member or may join.
    #[message]
    pub(crate) fn admits(&self, cx: &mut Context<Self>, user: Name) -> Result<(), SocialError> {
        if !self.has_member(cx, user)? && self.members >= MEMBERS_MAX {
            return Err(SocialError::RoomFull(name(cx)));
        }
        Ok(())
    }

    /// Adds a member; idempotent.
    #[message]
    pub(crate) fn join(&mut self, cx: &mut Context<Self>, user: Name) -> Result<(), SocialError> {
        self.admits(cx, user.clone())?;
        if !self.has_member(cx, user.clone())? {
            cx.cells::<Str, ()>(MEMBERS).put(user.as_str(), &());
            self.members += 1;
        }
        Ok(())
    }

    /// Removes a member, whose sockets leave the room as well; idempotent. The room ends with its last member.
    #[message]
    pub(crate) fn leave(&mut self, cx: &mut Context<Self>, user: Name) -> Result<(), SocialError> {
        if self.has_member(cx, user.clone())? {
            cx.cells::<Str, ()>(MEMBERS).delete(user.as_str());
            self.members -= 1;
            let (room, live) = (name(cx), cx.deps().live.clone());
            cx.after_commit(move || live.remove(room, user));
            if self.members == 0 {
                self.close(cx);
            }
        }
        Ok(())
    }

    /// Removes a member for the owner.
    #[message]
    pub(crate) fn expel(
        &mut self,
        cx: &mut Context<Self>,
        owner: Name,
        user: Name,
    ) -> Result<(), SocialError> {
        self.check_owner(cx, &owner)?;
        self.leave(cx, user)
    }

    /// Ends the room for its owner; without a user, for the operator of the service.
    #[message]
    pub(crate) fn end(
        &mut self,
        cx: &mut Context<Self>,
        owner: Option<Name>,
    ) -> Result<(), SocialError> {
        self.founding(cx)?;
        if let Some(owner) = owner {
            self.check_owner(cx, &owner)?;
        }
        self.close(cx);
        Ok(())
    }

    /// Returns whether the room has ended, and has cells that may be left to be removed.
    #[message]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Removes some cells of a room that has ended. Returns whether the room has ended and none are left.
    #[message]
    pub(crate) fn clear(&mut self, cx: &mut Context<Self>) -> Result<bool, CellError> {
        if !self.is_over {
            return Ok(false);
        }
        let mut messages = cx.cells::<U64, MessageCell>(MESSAGES);
        let cells = messages.range(..).take(CLEARED_AT_ONCE).map(|cell| cell.map(|(at, _)| at));
        let sequences = cells.collect::<Result<Vec<u64>, _>>()?;
        sequences.iter().for_each(|sequence| messages.delete(sequence));
        let mut members = cx.cells::<Str, ()>(MEMBERS);
        let cells = members.range(..).take(CLEARED_AT_ONCE);
        let names = cells.map(|cell| cell.map(|(name, ())| name.to_owned()));
        let names = names.collect::<Result<Vec<String>, _>>()?;
        names.iter().for_each(|name| members.delete(name));
        Ok(sequences.len().max(names.len()) < CLEARED_AT_ONCE)
    }

    /// Removes the text of a message for a user, who must be its author or the owner; idempotent. Without a user, for
    /// the operator of the service.
    #[message]
    pub(crate) fn unsay(
        &mut self,
        cx: &mut Context<Self>,
        by: Option<Name>,
        sequence: u64,
    ) -> Result<(), SocialError> {
        self.founding(cx)?;
        let mut messages = cx.cells::<U64, MessageCell>(MESSAGES);
        let Some((time, author, text)) = messages.get(&sequence)? else {
            return Err(SocialError::NoSuchMessage(sequence));
        };
        if let Some(by) = by.filter(|by| *by != author) {
            self.check_owner(cx, &by)?;
        }
        if text.is_some() {
            let cell = (time, author, None);
            cx.cells::<U64, MessageCell>(MESSAGES).put(&sequence, &cell);
            let (room, live) = (name(cx), cx.deps().live.clone());
            let unsaid = Arc::new(SaidMessage::new(room, RoomMessage::of(sequence, cell)));
            cx.after_commit(move || live.take_back(&unsaid));
        }
        Ok(())
    }

    #[message]
    pub(crate) fn has_member(
        &self,
        cx: &mut Context<Self>,
        user: Name,
    ) -> Result<bool, SocialError> {
        self.founding(cx)?;
        Ok(cx.cells::<Str, ()>(MEMBERS).contains(user.as_str())?)
    }

    /// Returns at most `limit` members after `after`, in alphabetical order.
    #[message]
    pub(crate) fn members(
        &self,
        cx: &mut Context<Self>,
        after: Option<Name>,
        limit: usize,
    ) -> Result<Vec<Name>, SocialError> {
        self.founding(cx)?;
        let after =
            after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let mut names = Vec::new();
        for cell in cx.cells::<Str, ()>(MEMBERS).range((after, Bound::Unbounded)).take(limit) {
            names.extend(cell?.0.parse::<Name>());
        }
        Ok(names)
    }

    /// Stores a message of a member, and sends it to all present users once it is on disk.
    #[message]
    pub(crate) fn say(
        &mut self,
        cx: &mut Context<Self>,
        author: Name,
        text: Text,
    ) -> Result<Made<RoomMessage>, SocialError> {
        self.check_member(cx, &author)?;
        let sequence = self.messages + 1;
        let cell = (Now::by_the_clock().ms(), author, Some(text));
        cx.cells::<U64, MessageCell>(MESSAGES).put(&sequence, &cell);
        self.messages = sequence;
        let message = RoomMessage::of(sequence, cell);
        let (room, live) = (name(cx), cx.deps().live.clone());
        let said = Arc::new(SaidMessage::new(room, message.clone()));
        cx.after_commit(move || live.publish(&said));
        Ok(Made { number: sequence, new: Some(message) })
    }

    #[message]
    pub(crate) fn find_message(
        &self,
        cx: &mut Context<Self>,
        reader: Name,
        sequence: u64,
    ) -> Result<RoomMessage, SocialError> {
        self.check_member(cx, &reader)?;
        let found = self.messages(cx, sequence..=sequence)?.pop();
        found.ok_or(SocialError::NoSuchMessage(sequence))
    }

    /// Returns the newest messages below `before`, newest first: at most `limit`, and at most 256 KiB of text. Also
    /// returns whether there are older messages.
    #[message]
    pub(crate) fn history(
        &self,
        cx: &mut Context<Self>,
        reader: Name,
        before: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<RoomMessage>, bool), SocialError> {
        self.check_member(cx, &reader)?;
        let end = before.unwrap_or(u64::MAX);
        let (mut page, mut budget) = (Vec::new(), PageBudget::default());
        for cell in cx.cells::<U64, MessageCell>(MESSAGES).range(..&end).rev() {
            let (sequence, cell) = cell?;
            if page.len() >= limit || !cell.2.as_ref().is_none_or(|text| budget.take(text)) {
                return Ok((page, true));
            }
            page.push(RoomMessage::of(sequence, cell));
        }
        Ok((page, false))
    }

    /// Returns the messages after `last`, which a member's socket has missed. Without `last`, the socket has missed
    /// none.
    #[message]
    pub(crate) fn catch_up(
        &self,
        cx: &mut Context<Self>,
        reader: Name,
        last: Option<u64>,
    ) -> Result<CaughtUp, SocialError> {
        self.check_member(cx, &reader)?;
        let (sequence, members) = (self.messages, self.members);
        let missed = match last.map(|last| sequence.checked_sub(last)) {
            None | Some(Some(0)) => Some(Vec::new()),
            Some(Some(missed)) if missed <= MISSED_MAX => {
                let missed = self.messages(cx, sequence - missed + 1..=sequence)?;
                let mut budget = PageBudget::default();
                let mut texts = missed.iter().filter_map(|message| message.text.as_ref());
                texts.all(|text| budget.take(text)).then_some(missed)
            }
            // Too many, or the number of a message that was never said.
            Some(_) => None,
        };
        Ok(CaughtUp { sequence, members, missed })
    }

    fn messages(
        &self,
        cx: &mut Context<Self>,
        sequences: std::ops::RangeInclusive<u64>,
    ) -> Result<Vec<RoomMessage>, CellError> {
        let mut cells = cx.cells::<U64, MessageCell>(MESSAGES);
        let cells = cells.range(sequences.start()..=sequences.end());
        cells.map(|cell| cell.map(|(sequence, cell)| RoomMessage::of(sequence, cell))).collect()
    }

    fn founding(&self, cx: &mut Context<Self>) -> Result<&Founding, SocialError> {
        self.founding.as_ref().ok_or_else(|| SocialError::NoSuchRoom(name(cx)))
    }

    fn close(&mut self, cx: &mut Context<Self>) {
        (self.founding, self.members, self.is_over) = (None, 0, true);
        let (room, live) = (name(cx), cx.deps().live.clone());
        cx.after_commit(move || live.close(&room));
    }

    fn check_owner(&self, cx: &mut Context<Self>, user: &Name) -> Result<(), SocialError> {
        let is_owner = self.founding(cx)?.owner == *user;
        if is_owner { Ok(()) } else { Err(SocialError::NotOwner(name(cx))) }
    }

    fn check_member(&self, cx: &mut Context<Self>, user: &Name) -> Result<(), SocialError> {
        let is_member = self.has_member(cx, user.clone())?;
        if is_member { Ok(()) } else { Err(SocialError::NotMember(name(cx))) }
    }
}

/// Returns the name of the room whose turn runs.
fn name(cx: &mut Context<Room>) -> RoomName {
    match cx.key().parse() {
        Ok(name) => name,
        Err(_) => unreachable!("the service addresses rooms by their names"),
    }
}

/// Maximum number of members of a room. If all are present, the last of them gets a message about 50 ms after its
/// commit (two workers on a busy machine with two cores; `cost_of_a_delivery` in `room/tests.rs`). A message that comes
/// during the room's pause, which is 1.25 s then, waits until the pause is over.
const MEMBERS_MAX: u32 = 100_000;

/// Maximum number of messages, and of members, that a turn removes from a room that has ended.
const CLEARED_AT_ONCE: usize = 1_000;

/// Maximum number of missed messages that a socket gets. They fit a socket's queue, which has 128 places by default.
const MISSED_MAX: u64 = 100;

const MEMBERS: &str = "members";
const MESSAGES: &str = "messages";
