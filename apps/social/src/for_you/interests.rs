//! The interests of a user: tags whose posts the user wants to see, in cells of the user's process.

use throng::prelude::*;
use throng_durable::{CellError, DurableContext, Str};

use crate::error::SocialError;
use crate::name::Name;
use crate::service::Social;
use crate::tags::Tag;
use crate::user::{User, UserClient};

impl Social {
    /// Returns the tags in which a user is interested, in order of their characters.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser).
    pub async fn interests(&self, name: &Name) -> Result<Vec<Tag>, SocialError> {
        self.user(name).interests().await?
    }

    /// Adds a tag to the interests of a user; idempotent.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`InterestsFull`](SocialError::InterestsFull).
    pub async fn add_interest(&self, name: &Name, tag: &Tag) -> Result<(), SocialError> {
        self.user(name).set_interest(tag.clone(), true).await?
    }

    /// Removes a tag from the interests of a user; idempotent.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser).
    pub async fn remove_interest(&self, name: &Name, tag: &Tag) -> Result<(), SocialError> {
        self.user(name).set_interest(tag.clone(), false).await?
    }
}

/// Returns the interests of the user whose turn runs.
pub(crate) fn all(cx: &mut Context<User>) -> Result<Vec<Tag>, CellError> {
    let mut tags = Vec::new();
    for cell in cx.cells::<Str, ()>(INTERESTS).range(..) {
        tags.extend(cell?.0.parse::<Tag>());
    }
    Ok(tags)
}

/// Adds or removes an interest of the user whose turn runs.
pub(crate) fn set(
    cx: &mut Context<User>,
    tag: &Tag,
    is_interested: bool,
) -> Result<(), SocialError> {
    let mut interests = cx.cells::<Str, ()>(INTERESTS);
    if interests.contains(tag.as_str())? == is_interested {
        return Ok(());
    }
    if !is_interested {
        interests.delete(tag.as_str());
    } else if interests.range(..).take(INTERESTS_MAX).count() < INTERESTS_MAX {
        interests.put(tag.as_str(), &());
    } else {
        return Err(SocialError::InterestsFull);
    }
    Ok(())
}

/// Maximum number of interests of a user: each is a group that every visit asks.
pub(super) const INTERESTS_MAX: usize = 10;

/// Name of the map of cells; see also `user.rs`.
const INTERESTS: &str = "interests";
