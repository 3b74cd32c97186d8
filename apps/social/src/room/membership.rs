//! The list of rooms of a user, in cells of the user's process.
//!
//! ```text
//!           room's members     user's list                  room's members     user's list
//! join   2. + user          ◄─ 1. + room          leave   1. − user         ─► 2. − room
//!                           ─► 3. + room                  3. member again?  ─► 4. + room
//! ```
//!
//! The further steps are for a join, or a creation, and a leave at the same time, of which each may come between two
//! steps of the other.
//!
//! The room's list of members is authoritative. A crash between the two steps leaves a room in the list of a user who
//! is no member, and never the reverse; repeating the operation completes it. A room that ends stays in the lists of its
//! members. When a list is full, such rooms are removed from it. Reading a user's list asks each room
//! whether the user is a member, so the result never shows an incomplete operation.
//!
//! Invariant: the list has every room of which the user is a member, and at most [`MEMBERSHIPS_MAX`] rooms.

use throng::prelude::*;
use throng_durable::{CellError, DurableContext, Str};

use crate::error::SocialError;
use crate::name::RoomName;
use crate::user::User;

/// Adds a room to the list of a user; idempotent.
pub(super) struct AddRoom(pub(super) RoomName);

impl Message for AddRoom {
    type Reply = Result<(), SocialError>;
}

impl Handle<AddRoom> for User {
    async fn handle(
        &mut self,
        AddRoom(room): AddRoom,
        cx: &mut Context<Self>,
    ) -> <AddRoom as Message>::Reply {
        self.account(cx)?;
        let mut rooms = cx.cells::<Str, ()>(ROOMS);
        if !rooms.contains(room.as_str())? {
            if rooms.range(..).take(MEMBERSHIPS_MAX).count() >= MEMBERSHIPS_MAX {
                return Err(SocialError::MembershipsFull);
            }
            rooms.put(room.as_str(), &());
        }
        Ok(())
    }
}

/// Removes a room from the list of a user; idempotent.
pub(super) struct RemoveRoom(pub(super) RoomName);

impl Message for RemoveRoom {
    type Reply = Result<(), SocialError>;
}

impl Handle<RemoveRoom> for User {
    async fn handle(
        &mut self,
        RemoveRoom(room): RemoveRoom,
        cx: &mut Context<Self>,
    ) -> <RemoveRoom as Message>::Reply {
        if !self.is_known() {
            return Err(SocialError::NoSuchUser(crate::user::name(cx)));
        }
        let mut rooms = cx.cells::<Str, ()>(ROOMS);
        if rooms.contains(room.as_str())? {
            rooms.delete(room.as_str());
        }
        Ok(())
    }
}

/// Returns the list of a user, in alphabetical order.
pub(super) struct ListRooms;

impl Message for ListRooms {
    type Reply = Result<Vec<RoomName>, SocialError>;
}

impl Handle<ListRooms> for User {
    async fn handle(
        &mut self,
        _: ListRooms,
        cx: &mut Context<Self>,
    ) -> <ListRooms as Message>::Reply {
        self.account(cx)?;
        Ok(listed(cx)?)
    }
}

/// Returns the list of the user whose turn runs.
pub(crate) fn listed(cx: &mut Context<User>) -> Result<Vec<RoomName>, CellError> {
    let mut names = Vec::new();
    for cell in cx.cells::<Str, ()>(ROOMS).range(..) {
        names.extend(cell?.0.parse::<RoomName>());
    }
    Ok(names)
}

/// Maximum number of rooms in the list of a user. Reading the list calls each room.
pub(super) const MEMBERSHIPS_MAX: usize = 500;

/// Name of the map of cells; see also `user.rs`.
const ROOMS: &str = "rooms";
