//! The interests of a user: tags whose posts the user wants to see, in cells of the user's process.

use throng::prelude::*;
use throng_durable::{DurableContext, Str};

use crate::error::SocialError;
use crate::name::Name;
use crate::service::Social;
use crate::tags::Tag;
use crate::user::User;

impl Social {
    /// Returns the tags in which a user is interested, in order of their characters.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser).
    pub async fn interests(&self, name: &Name) -> Result<Vec<Tag>, SocialError> {
        self.user(name).call(ListInterests).await?
    }

    /// Adds a tag to the interests of a user; idempotent.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`InterestsFull`](SocialError::InterestsFull).
    pub async fn add_interest(&self, name: &Name, tag: &Tag) -> Result<(), SocialError> {
        self.user(name).call(SetInterest { tag: tag.clone(), is_interested: true }).await?
    }

    /// Removes a tag from the interests of a user; idempotent.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser).
    pub async fn remove_interest(&self, name: &Name, tag: &Tag) -> Result<(), SocialError> {
        self.user(name).call(SetInterest { tag: tag.clone(), is_interested: false }).await?
    }
}

/// Adds or removes an interest; idempotent.
struct SetInterest {
    tag: Tag,
    is_interested: bool,
}

impl Message for SetInterest {
    type Reply = Result<(), SocialError>;
}

impl Handle<SetInterest> for User {
    async fn handle(
        &mut self,
        SetInterest { tag, is_interested }: SetInterest,
        cx: &mut Context<Self>,
    ) -> <SetInterest as Message>::Reply {
        self.account(cx)?;
        let mut interests = cx.cells::<Str, ()>(INTERESTS);
        if interests.contains(tag.as_str())? == is_interested {
            return Ok(());
        }
        if !is_interested {
            interests.delete(tag.as_str());
            return Ok(());
        }
        if interests.range(..).take(INTERESTS_MAX).count() >= INTERESTS_MAX {
            return Err(SocialError::InterestsFull);
        }
        interests.put(tag.as_str(), &());
        Ok(())
    }
}

/// Returns the interests of a user.
struct ListInterests;

impl Message for ListInterests {
    type Reply = Result<Vec<Tag>, SocialError>;
}

impl Handle<ListInterests> for User {
    const READ_ONLY: bool = true;

    async fn handle(
        &mut self,
        _: ListInterests,
        cx: &mut Context<Self>,
    ) -> <ListInterests as Message>::Reply {
        self.account(cx)?;
        let mut tags = Vec::new();
        for cell in cx.cells::<Str, ()>(INTERESTS).range(..) {
            tags.extend(cell?.0.parse::<Tag>());
        }
        Ok(tags)
    }
}

/// Maximum number of interests of a user: each is a group that every visit asks.
pub(super) const INTERESTS_MAX: usize = 10;

/// Name of the map of cells; see also `user.rs`.
const INTERESTS: &str = "interests";
