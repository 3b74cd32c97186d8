//! Operations on the likes of posts. `user/likes.rs` stores them, at the author.

use crate::error::SocialError;
use crate::ids::PostId;
use crate::name::Name;
use crate::post::LikedPost;
use crate::service::Social;
use crate::user::UserClient;

impl Social {
    /// Makes `reader` like a post of `author`; idempotent. Users may like their own posts. Deleting the post removes
    /// its likes; a later block does not.
    ///
    /// ```
    /// # use social::{Name, Password, Social, Text};
    /// # use throng::prelude::*;
    /// # use throng_durable::Node;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let data = tempfile::tempdir()?;
    /// # let runtime = Runtime::builder().start()?;
    /// # runtime.block_on(async |runtime| {
    /// # let node = Node::options(data.path()).open(runtime)?;
    /// # let social = Social::new(node.clone(), runtime.clone(), 0)?;
    /// # let (alice, bob): (Name, Name) = ("alice".parse()?, "bob".parse()?);
    /// # social.register(&alice, Password::new("correct horse")?).await?;
    /// # social.register(&bob, Password::new("battery staple")?).await?;
    /// let id = social.post(&bob, Text::new("hello")?, None).await?.post.id;
    /// social.like(&alice, &bob, id).await?;
    /// social.like(&alice, &bob, id).await?;
    /// assert_eq!(social.find_post(&bob, id).await?.likes, 1);
    /// # node.shutdown().await;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser) for either, [`NoSuchPost`](SocialError::NoSuchPost),
    /// [`Blocking`](SocialError::Blocking), [`Blocked`](SocialError::Blocked).
    pub async fn like(&self, reader: &Name, author: &Name, id: PostId) -> Result<(), SocialError> {
        if self.user(reader).blocks(author.clone()).await?? {
            return Err(SocialError::Blocking(author.clone()));
        }
        self.user(author).like(reader.clone(), id, true).await?
    }

    /// Takes back the like of `reader`; idempotent, also for posts that do not exist, and after a block.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`] if there is no user `author`.
    pub async fn unlike(
        &self,
        reader: &Name,
        author: &Name,
        id: PostId,
    ) -> Result<(), SocialError> {
        self.user(author).like(reader.clone(), id, false).await?
    }

    /// Returns a post of `author`, and the number of its likes.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`NoSuchPost`](SocialError::NoSuchPost).
    pub async fn find_post(&self, author: &Name, id: PostId) -> Result<LikedPost, SocialError> {
        self.user(author).find_post(id).await?
    }
}
