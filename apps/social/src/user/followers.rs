//! Followers of a user: a view of other users' follows, which durable messages keep up to date.
//!
//! ```text
//!  User "alice"                                         User "bob"
//!  follow(bob), a turn:
//!    cell following  bob → ()
//!    note_follower(alice, true)  ──durable message──►   a turn:  cell followers  alice → ()
//! ```
//!
//! The cells "following" are the truth. A follow or its end is in the same commit as the message that tells the target,
//! which handles the messages of each follower once and in their order.
//!
//! Invariants:
//! * When no such message waits, the followers of each user with an account are the users who follow it.
//! * The turn of a target writes a constant number of cells, however many followers it has.

use std::ops::Bound;

use throng::prelude::*;
use throng_durable::{CellError, DurableContext, Str};

use crate::name::Name;

use super::{NoteFollower, User, name};

impl User {
    /// Tells a user of the follow of this user, or of its end.
    pub(super) fn tell_target(cx: &mut Context<Self>, target: &Name, follows: bool) {
        let (follower, target) = (name(cx), cx.node().entity::<User>(target.as_str()));
        cx.send_durable(&target, NoteFollower { follower, follows });
    }

    /// Records whether another user follows this user, after a change of it.
    pub(super) fn follower_changed(
        &mut self,
        cx: &mut Context<Self>,
        follower: &Name,
        follows: bool,
    ) {
        let mut followers = cx.cells::<Str, ()>(FOLLOWERS);
        if follows {
            followers.put(follower.as_str(), &());
            self.followers += 1;
        } else {
            followers.delete(follower.as_str());
            self.followers = self.followers.saturating_sub(1);
        }
    }

    /// Returns the first `limit` followers after a name, in alphabetical order, and whether there are more.
    pub(super) fn some_followers(
        &self,
        cx: &mut Context<Self>,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<Name>, bool), CellError> {
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let mut found = Vec::new();
        let mut followers = cx.cells::<Str, ()>(FOLLOWERS);
        for cell in followers.range((start, Bound::Unbounded)).take(limit.saturating_add(1)) {
            found.extend(cell?.0.parse::<Name>());
        }
        let more = found.len() > limit;
        found.truncate(limit);
        Ok((found, more))
    }
}

/// Name of the map of cells; see also `user.rs`.
const FOLLOWERS: &str = "followers";
