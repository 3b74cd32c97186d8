//! The deletion of an account, by its user or by the operator of the service.
//!
//! ```text
//! mark the name ─► close the account ─► leave rooms ─► remove posts and follows ─► forget the state
//!      │                │                                        └─ durable messages to followers and followed users
//!  never given     no login, no token,
//!  out again       no post is shown
//! ```
//!
//! Invariants:
//! * After the second step the user is gone for everybody. A timeline passes over the posts of an author without an
//!   account, so a deletion that is lost in between leaves no timeline that cannot be read. Repeating it as the operator
//!   completes it.
//! * Followers and followed users learn of the end by durable messages, so their lists have the name for moments.
//! * A name is not given out again: messages in rooms still bear it, and blocks and owned rooms still mean it.
//! * Messages in rooms and the likes that the user has given stay. A room of which the user was the last member ends, and
//!   an owned room with other members goes on without its owner.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::Durable;

use crate::error::SocialError;
use crate::name::Name;
use crate::password::Password;
use crate::service::Social;
use crate::user::{User, UserClient};

/// Mark of a name whose account was deleted; one durable process for each.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "deleted-user")]
pub(crate) struct Deleted {
    is_marked: bool,
}

#[process]
impl Deleted {
    #[message]
    fn mark(&mut self) {
        self.is_marked = true;
    }

    #[message]
    fn is_marked(&self) -> bool {
        self.is_marked
    }
}

impl Social {
    /// Deletes the account of `name`, with its posts, follows and memberships, if the password is right. Its tokens are
    /// revoked, its sockets are closed, and its name is not given out again. Its messages in rooms stay.
    ///
    /// # Errors
    /// [`WrongCredentials`](SocialError::WrongCredentials), [`TooManyLogins`](SocialError::TooManyLogins).
    ///
    /// Cost: a turn for each 100 posts or follows, a call to each room, and a message to each followed user and follower.
    pub async fn delete_account(&self, name: &Name, password: String) -> Result<(), SocialError> {
        self.log_in(name, password).await?;
        self.remove_user(name).await
    }

    /// Deletes an account for the operator of the service, without its password, or completes a deletion that was lost
    /// in between.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser).
    pub async fn remove_user(&self, name: &Name) -> Result<(), SocialError> {
        let user = self.user(name);
        if !user.is_known().await? {
            return Err(SocialError::NoSuchUser(name.clone()));
        }
        self.node.entity::<Deleted>(name.as_str()).mark().await?;
        for room in user.close().await?? {
            match self.leave_room(&room, name).await {
                Ok(()) | Err(SocialError::NoSuchRoom(_)) => {}
                Err(error) => return Err(error),
            }
        }
        while user.clear().await?? {}
        self.node.entity::<User>(name.as_str()).forget().await?;
        Ok(())
    }

    /// Replaces the password of `name` for the operator of the service, and revokes all tokens.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn reset_password(&self, name: &Name, new: Password) -> Result<(), SocialError> {
        let stored = self.user(name).password_hash().await?;
        let stored = stored.ok_or_else(|| SocialError::NoSuchUser(name.clone()))?;
        let hash = self.hash(new).await?.into_text();
        self.user(name).change_password(stored, hash).await?
    }

    /// Returns whether an account with this name was deleted, so that the name is not given out.
    pub(crate) async fn is_deleted(&self, name: &Name) -> Result<bool, SocialError> {
        Ok(self.node.entity::<Deleted>(name.as_str()).is_marked().await?)
    }
}
