//! [`SocialError`]: errors of the service, one for each reaction of a client.

use std::error::Error;

use serde::{Deserialize, Serialize};
use throng_durable::{CellError, CommitError, EntityError, ReadError, SubmitError};

use crate::ids::{IdError, PostId};
use crate::name::{Name, RoomName};
use crate::password::HashError;

/// Error of an operation of the service.
// Serde's traits are for the types of stored replies; no error is stored.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SocialError {
    /// The name is already taken; choose another.
    #[error("the name {0} is already taken; choose another")]
    NameTaken(Name),
    /// There is no user with this name.
    #[error("there is no user named {0}")]
    NoSuchUser(Name),
    /// The user has no post with this id, or has deleted it.
    #[error("there is no post {0} of this user")]
    NoSuchPost(PostId),
    /// The name or the password is wrong; the error does not reveal which.
    #[error("the name or the password is wrong")]
    WrongCredentials,
    /// Users cannot follow or unfollow themselves.
    #[error("you cannot follow or unfollow yourself")]
    SelfFollow,
    /// The user follows the maximum number of users; unfollow a user first.
    #[error("you follow the maximum number of users; unfollow a user first")]
    FollowingFull,
    /// The user blocks the user that is to be followed, or whose post is to be liked; unblock them first.
    #[error("you block {0}; unblock this user first")]
    Blocking(Name),
    /// The user that is to be followed, whose post is to be liked, or whose room is to be joined, blocks the user.
    #[error("{0} blocks you; you cannot follow this user, like their posts or join their rooms")]
    Blocked(Name),
    /// Users cannot block or unblock themselves.
    #[error("you cannot block or unblock yourself")]
    SelfBlock,
    /// The user blocks the maximum number of users; unblock a user first.
    #[error("you block the maximum number of users; unblock a user first")]
    BlocksFull,
    /// There is a room with this name already; choose another.
    #[error("there is a room named {0} already; choose another name")]
    RoomTaken(RoomName),
    /// There is no room with this name.
    #[error("there is no room named {0}")]
    NoSuchRoom(RoomName),
    /// The user is no member of the room; join it first.
    #[error("you are not a member of the room {0}; join it first")]
    NotMember(RoomName),
    /// The user is not the owner of the room, and only the owner can do this.
    #[error("you are not the owner of the room {0}; ask its owner")]
    NotOwner(RoomName),
    /// The room has no message with this number.
    #[error("there is no message {0} in this room")]
    NoSuchMessage(u64),
    /// The room has the maximum number of members.
    #[error("the room {0} has the maximum number of members")]
    RoomFull(RoomName),
    /// The user is a member of the maximum number of rooms; leave a room first.
    #[error("you are a member of the maximum number of rooms; leave a room first")]
    MembershipsFull,
    /// The user has the maximum number of interests; remove an interest first.
    #[error("you have the maximum number of interests; remove an interest first")]
    InterestsFull,
    /// The visit of For you is gone, with its order; begin another.
    #[error("this visit is over; read For you from the start")]
    VisitOver,
    /// The token was revoked: by a logout, or by a change of the password. Log in again.
    #[error("the token was revoked; log in again")]
    TokenRevoked,
    /// The post that was made under the idempotency key has been deleted since; use a new key.
    #[error("the post that was made under the idempotency key was deleted; use a new key")]
    PostDeleted,
    /// The idempotency key was used for a different text; use a new key.
    #[error("the idempotency key was used for a different text; use a new key")]
    KeyReused,
    /// The queue for hashing passwords is full, and this client has its share of it. Nothing was
    /// done; try again in a few seconds.
    #[error("too many logins and registrations at once; try again in a few seconds")]
    TooManyLogins,
    /// The machine cannot carry out the operation at present, and nothing was done; try again
    /// later.
    #[error("the service is temporarily unavailable and did nothing; try again later")]
    #[serde(skip)]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The answer was lost; the operation may or may not have taken effect. Repeat it with the same
    /// idempotency key, or check.
    #[error(
        "the answer was lost; the operation may or may not have taken effect; \
         check, or repeat it with the same idempotency key"
    )]
    #[serde(skip)]
    Uncertain(#[source] EntityError),
    /// The operation failed because of damage or a bug, and nothing was done; a retry will not
    /// help.
    #[error(
        "the service failed and did nothing; trying again will not help; its log has the reason"
    )]
    #[serde(skip)]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl From<HashError> for SocialError {
    fn from(error: HashError) -> SocialError {
        match error {
            HashError::Busy => SocialError::TooManyLogins,
            HashError::Failed => unavailable(error),
        }
    }
}

impl From<EntityError> for SocialError {
    fn from(error: EntityError) -> SocialError {
        use EntityError as E;
        match error {
            // Permanent errors: damage, and turns that can never be committed.
            E::Load(ReadError::Corrupt(_))
            | E::NotCommitted(
                CommitError::State(_)
                | CommitError::Cell(_)
                | CommitError::Refused(SubmitError::Rejected(_)),
            ) => broken(error),
            E::Load(_)
            | E::NoRoom { .. }
            | E::ShutDown
            | E::Started(_)
            | E::NotCommitted(_)
            | E::Full { .. }
            | E::Died
            | E::Overloaded
            | E::TimedOut { enqueued: false } => unavailable(error),
            E::Unknown(_) | E::TimedOut { enqueued: true } => SocialError::Uncertain(error),
            // An invalid key, a state that does not decode, a panic.
            _ => broken(error),
        }
    }
}

impl From<CellError> for SocialError {
    fn from(error: CellError) -> SocialError {
        match error {
            CellError::Read(ReadError::Corrupt(_)) | CellError::Decode(_) => broken(error),
            error => unavailable(error),
        }
    }
}

impl From<IdError> for SocialError {
    fn from(error: IdError) -> SocialError {
        match error {
            // The post was not written, whatever the state of the lease.
            IdError::Lease(error) => match error.into() {
                SocialError::Uncertain(error) => unavailable(error),
                error => error,
            },
            IdError::Exhausted => broken(error),
        }
    }
}

pub(crate) fn broken(error: impl Error + Send + Sync + 'static) -> SocialError {
    SocialError::Broken(Box::new(error))
}

pub(crate) fn unavailable(error: impl Error + Send + Sync + 'static) -> SocialError {
    SocialError::Unavailable(Box::new(error))
}

#[cfg(test)]
mod tests {
    use std::io;

    use throng_store::Rejection;

    use super::*;

    #[test]
    fn permanent_errors_are_reported_as_broken() {
        let damage = || ReadError::Corrupt("a page".to_owned());
        let not_committed = |error| SocialError::from(EntityError::NotCommitted(error));
        let rejected = || SubmitError::Rejected(Rejection::KeyEmpty);
        for error in [
            SocialError::from(CellError::Read(damage())),
            SocialError::from(CellError::Decode(String::new())),
            SocialError::from(IdError::Exhausted),
            SocialError::from(IdError::Lease(EntityError::Load(damage()))),
            SocialError::from(EntityError::Load(damage())),
            not_committed(CommitError::State(String::new())),
            not_committed(CommitError::Cell(CellError::Encode(String::new()))),
            not_committed(CommitError::Refused(rejected())),
        ] {
            assert!(matches!(error, SocialError::Broken(_)), "{error:?}");
        }
        for error in [
            SocialError::from(CellError::Read(ReadError::TooManySnapshots)),
            SocialError::from(IdError::Lease(EntityError::TimedOut { enqueued: true })),
            SocialError::from(EntityError::Load(ReadError::Io(io::ErrorKind::Other.into()))),
            not_committed(CommitError::Refused(SubmitError::Overloaded)),
        ] {
            assert!(matches!(error, SocialError::Unavailable(_)), "{error:?}");
        }
    }
}
