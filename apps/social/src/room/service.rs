//! Operations of the service on rooms.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use throng::prelude::*;
use throng_durable::InstrumentedEntity;

use crate::clock::Now;
use crate::error::SocialError;
use crate::idempotency::{IdempotencyKey, make};
use crate::name::{Name, RoomName};
use crate::post::Text;
use crate::service::{Social, stored_names};
use crate::user::UserClient;

use super::live::{Entered, RoomNews};
use super::membership::{AddRoom, ListRooms, RemoveRoom};
use super::{Room, RoomClient, RoomMessages, RoomProfile, Stored};

impl Social {
    /// Creates a room, of which `owner` is the first member.
    ///
    /// # Errors
    /// [`RoomTaken`](SocialError::RoomTaken), [`MembershipsFull`](SocialError::MembershipsFull),
    /// [`NoSuchUser`](SocialError::NoSuchUser).
    pub async fn create_room(&self, room: &RoomName, owner: &Name) -> Result<(), SocialError> {
        // This check only keeps rooms of others out of the owner's list; the turn that creates the room decides.
        match self.room(room).describe().await? {
            // The name of a room that has ended is free once the room's cells are removed.
            Err(SocialError::NoSuchRoom(_)) => self.remove_rest(room).await?,
            Err(error) => return Err(error),
            Ok(_) => return Err(SocialError::RoomTaken(room.clone())),
        }
        self.add_room(room, owner).await?;
        self.room(room).found(owner.clone(), Now::by_the_clock()).await??;
        self.list(room, owner).await
    }

    /// Ends a room for `owner`: its members, its messages and its name are given up. Its sockets leave it.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NotOwner`](SocialError::NotOwner).
    ///
    /// Cost: a turn for each 1,000 messages or members.
    pub async fn end_room(&self, room: &RoomName, owner: &Name) -> Result<(), SocialError> {
        self.room(room).end(Some(owner.clone())).await??;
        self.remove_rest(room).await
    }

    /// Ends a room for the operator of the service, as [`end_room`](Social::end_room) does for the owner.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom).
    pub async fn remove_room(&self, room: &RoomName) -> Result<(), SocialError> {
        self.room(room).end(None).await??;
        self.remove_rest(room).await
    }

    /// Removes what a room that has ended has left on the disk. A call that is lost in between is completed by the next
    /// creation of a room with the name, and until then the name is still found.
    async fn remove_rest(&self, room: &RoomName) -> Result<(), SocialError> {
        while !self.room(room).clear().await?? {
            if !self.room(room).is_over().await? {
                return Ok(());
            }
        }
        // The name is taken until the state is removed. Of two calls only one may remove it, or else the second would
        // remove a room that was created in between.
        let _removal = self.removal.lock().await;
        if self.room(room).is_over().await? {
            self.node.entity::<Room>(room.as_str()).forget().await?;
        }
        Ok(())
    }

    /// Ends the membership of `user` in a room for `owner`; idempotent. The user can join again, unless the owner
    /// [blocks](Social::block) the user.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NotOwner`](SocialError::NotOwner),
    /// [`NoSuchUser`](SocialError::NoSuchUser).
    pub async fn remove_member(
        &self,
        room: &RoomName,
        owner: &Name,
        user: &Name,
    ) -> Result<(), SocialError> {
        self.room(room).expel(owner.clone(), user.clone()).await??;
        self.unlist(room, user).await
    }

    /// Removes the text of a message for `by`, its author or the owner of the room; idempotent. The number of the
    /// message stays taken. Present users see it at once, and others when they read the room's history.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NoSuchMessage`](SocialError::NoSuchMessage),
    /// [`NotOwner`](SocialError::NotOwner).
    pub async fn unsay(
        &self,
        room: &RoomName,
        by: &Name,
        sequence: u64,
    ) -> Result<(), SocialError> {
        self.room(room).unsay(Some(by.clone()), sequence).await?
    }

    /// Returns the public data of a room.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom).
    pub async fn room_profile(&self, room: &RoomName) -> Result<RoomProfile, SocialError> {
        let profile = self.room(room).describe().await??;
        Ok(RoomProfile { present: self.rooms.present(room).await?, ..profile })
    }

    /// Returns the first `limit` names of rooms (at least one) that begin with `prefix` and come after `after`, in
    /// alphabetical order, and whether there are more. A room is found as soon as its creation is acknowledged.
    ///
    /// # Errors
    /// [`Unavailable`](SocialError::Unavailable), [`Broken`](SocialError::Broken).
    ///
    /// Cost: a scan of the names that are returned.
    pub fn search_rooms(
        &self,
        prefix: &str,
        after: Option<&RoomName>,
        limit: usize,
    ) -> Result<(Vec<RoomName>, bool), SocialError> {
        stored_names::<Room, RoomName>(
            &self.node,
            prefix,
            after.map_or("", RoomName::as_str),
            limit,
        )
    }

    /// Returns the first `limit` members (at least one) of a room after `after`, in alphabetical order, and whether
    /// there are more.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom).
    pub async fn room_members(
        &self,
        room: &RoomName,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<Name>, bool), SocialError> {
        let limit = limit.max(1);
        let wanted = limit.saturating_add(1);
        let mut members = self.room(room).members(after.cloned(), wanted).await??;
        let more = members.len() > limit;
        members.truncate(limit);
        Ok((members, more))
    }

    /// Makes `user` a member of a room; idempotent.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NoSuchUser`](SocialError::NoSuchUser),
    /// [`Blocked`](SocialError::Blocked), [`RoomFull`](SocialError::RoomFull),
    /// [`MembershipsFull`](SocialError::MembershipsFull). If the room cannot be reached, the user may or may not be a
    /// member; repeat the call.
    pub async fn join_room(&self, room: &RoomName, user: &Name) -> Result<(), SocialError> {
        let owner = self.room(room).describe().await??.owner;
        match self.user(&owner).blocks(user.clone()).await? {
            Ok(true) => return Err(SocialError::Blocked(owner)),
            // The owner's account may be gone.
            Ok(false) | Err(SocialError::NoSuchUser(_)) => {}
            Err(error) => return Err(error),
        }
        // This check only keeps rooms that refuse the user out of the user's list.
        self.room(room).admits(user.clone()).await??;
        self.add_room(room, user).await?;
        self.room(room).join(user.clone()).await??;
        self.list(room, user).await
    }

    /// Adds a room to the list of a user. If the list is full, first removes the rooms of which the user is no member:
    /// those that have ended, or whose joins were lost in between.
    async fn add_room(&self, room: &RoomName, user: &Name) -> Result<(), SocialError> {
        let added = self.user(user).call(AddRoom(room.clone())).await?;
        if !matches!(added, Err(SocialError::MembershipsFull)) {
            return added;
        }
        let member_of = self.memberships(user).await?;
        for listed in self.user(user).call(ListRooms).await?? {
            if member_of.binary_search(&listed).is_err() {
                self.unlist(&listed, user).await?;
            }
        }
        self.user(user).call(AddRoom(room.clone())).await?
    }

    /// Adds a room to the list of a member again, because a leave at the same time may have removed it. If the list is
    /// full meanwhile, ends the membership.
    async fn list(&self, room: &RoomName, user: &Name) -> Result<(), SocialError> {
        let listed = self.user(user).call(AddRoom(room.clone())).await?;
        if matches!(listed, Err(SocialError::MembershipsFull)) {
            self.room(room).leave(user.clone()).await??;
        }
        listed
    }

    /// Ends the membership of `user` in a room; idempotent. The user's sockets leave the room as well. The room ends
    /// with its last member. Otherwise messages stay, and the owner of a room stays its owner.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NoSuchUser`](SocialError::NoSuchUser). If the user's process cannot
    /// be reached, the membership has ended, but the room takes one of the user's places until the call is repeated.
    pub async fn leave_room(&self, room: &RoomName, user: &Name) -> Result<(), SocialError> {
        let left = self.room(room).leave(user.clone()).await?;
        if !matches!(left, Ok(()) | Err(SocialError::NoSuchRoom(_))) {
            return left;
        }
        // Also a room whose creation did not happen takes a place in the list.
        self.unlist(room, user).await?;
        self.remove_rest(room).await?;
        left
    }

    /// Removes a room from the list of a user, unless the user is a member.
    async fn unlist(&self, room: &RoomName, user: &Name) -> Result<(), SocialError> {
        self.user(user).call(RemoveRoom(room.clone())).await??;
        // A join or a creation at the same time may have ended between the two steps.
        match self.room(room).has_member(user.clone()).await? {
            Ok(true) => match self.list(room, user).await {
                Err(SocialError::MembershipsFull) => Ok(()),
                listed => listed,
            },
            Ok(false) | Err(SocialError::NoSuchRoom(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the rooms of which `user` is a member, in alphabetical order; at most 500.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser). If one room cannot be asked, the request fails.
    ///
    /// Cost: a call to each room, at most 32 at a time.
    pub async fn memberships(&self, user: &Name) -> Result<Vec<RoomName>, SocialError> {
        let listed = self.user(user).call(ListRooms).await??;
        let rooms = stream::iter(listed).map(async |room| {
            let is_member = match self.room(&room).has_member(user.clone()).await? {
                // The user's list still has the room of a creation that failed.
                Err(SocialError::NoSuchRoom(_)) => false,
                is_member => is_member?,
            };
            Ok::<_, SocialError>(is_member.then_some(room))
        });
        let rooms: Vec<Option<RoomName>> = rooms.buffered(CALLS_MAX).try_collect().await?;
        Ok(rooms.into_iter().flatten().collect())
    }

    /// Removes the text of a message for the operator of the service, as [`unsay`](Social::unsay) does for the owner.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NoSuchMessage`](SocialError::NoSuchMessage).
    pub async fn remove_message(&self, room: &RoomName, sequence: u64) -> Result<(), SocialError> {
        self.room(room).unsay(None, sequence).await?
    }

    /// Says a message in a room: stores it and, once it is on disk, sends it to all present users. If `author` used
    /// `key` for it in this room within the last 24 hours, says nothing and returns the existing message.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NotMember`](SocialError::NotMember),
    /// [`KeyReused`](SocialError::KeyReused).
    pub async fn say(
        &self,
        room: &RoomName,
        author: &Name,
        text: Text,
        key: Option<IdempotencyKey>,
    ) -> Result<Stored, SocialError> {
        let key = key.map(|key| key.of_member(author));
        let made = make(self.room(room).say(author.clone(), text.clone()), key).await?;
        if let Some(message) = made.new {
            return Ok(Stored { message, repeated: false });
        }
        let message = self.room(room).find_message(author.clone(), made.number).await??;
        // A message whose text was removed may have had this one.
        let is_same = message.text.as_ref().is_none_or(|its| *its == text);
        if is_same { Ok(Stored { message, repeated: true }) } else { Err(SocialError::KeyReused) }
    }

    /// Returns the newest `limit` messages (at least one) of a room with sequence numbers below `before`; fewer, if
    /// they have more than 256 KiB of text.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NotMember`](SocialError::NotMember).
    pub async fn room_messages(
        &self,
        room: &RoomName,
        reader: &Name,
        before: Option<u64>,
        limit: usize,
    ) -> Result<RoomMessages, SocialError> {
        let history = self.room(room).history(reader.clone(), before, limit.max(1));
        let (messages, more) = history.await??;
        let next = if more { messages.last().map(|message| message.sequence) } else { None };
        Ok(RoomMessages { messages, next })
    }

    /// Makes a process of `user` present in a room: `socket` gets the room's news from here on, until it ends or
    /// [exits](Social::exit_room). Idempotent. `last` is the sequence number of the last message that the process
    /// has; the messages after it come with the answer.
    ///
    /// No message is lost: a message that is not in the answer comes as news. A message of the answer may come as
    /// news again, as may news from before an exit, so the process passes over messages whose sequence number is not
    /// beyond the last one that it has. When the process [`Entered::relay`] ends, or when a sequence number is left
    /// out, the process must enter again, with the last number that it has.
    ///
    /// # Errors
    /// [`NoSuchRoom`](SocialError::NoSuchRoom), [`NotMember`](SocialError::NotMember).
    pub async fn enter_room(
        &self,
        room: &RoomName,
        user: &Name,
        socket: Recipient<RoomNews>,
        last: Option<u64>,
    ) -> Result<Entered, SocialError> {
        // This check only keeps users that are no members from being shown as present; `catch_up` below decides.
        if !self.room(room).has_member(user.clone()).await?? {
            return Err(SocialError::NotMember(room.clone()));
        }
        // Once this call returns, new messages go to the mailbox of the process; `catch_up` returns all earlier ones.
        let relay = self.rooms.enter(room, user, socket).await?;
        let entered = async {
            let caught_up = self.room(room).catch_up(user.clone(), last).await??;
            Ok((caught_up, self.rooms.present(room).await?))
        };
        match entered.await {
            Ok((caught_up, present)) => Ok(Entered {
                sequence: caught_up.sequence,
                members: caught_up.members,
                present,
                missed: caught_up.missed,
                relay,
            }),
            Err(error) => {
                self.exit_room(room, user, socket.pid());
                Err(error)
            }
        }
    }

    /// Ends the presence of a process in a room; idempotent. News that are on their way still arrive.
    pub fn exit_room(&self, room: &RoomName, user: &Name, socket: Pid) {
        self.rooms.exit(room.clone(), user.clone(), socket);
    }

    /// Shows the other present users of a room that `user` is typing. Does nothing if `user` is not present, if
    /// more than 100 users are present, or if they have been shown it less than a second before.
    pub fn type_in_room(&self, room: &RoomName, user: &Name) {
        self.rooms.typing(room.clone(), user.clone());
    }

    fn room(&self, room: &RoomName) -> InstrumentedEntity<Room> {
        self.node.entity(room.as_str()).in_current_span()
    }
}

/// Maximum number of rooms that are asked at once for a user's list.
const CALLS_MAX: usize = 32;
