//! Operations on the followers of a user. `user/followers.rs` keeps the lists.

use crate::error::SocialError;
use crate::name::Name;
use crate::service::Social;
use crate::user::UserClient;

impl Social {
    /// Returns the first `limit` users (at least one) that follow `name` and come after `after`, in alphabetical
    /// order, and whether there are more.
    ///
    /// The list lags behind: it shows a follow, or the end of a follow, once the process of `name` has handled a
    /// message of the follower, usually within milliseconds.
    ///
    /// ```
    /// # use social::{Name, Password, Social};
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
    /// social.follow(&alice, &bob).await?;
    /// while social.followers(&bob, None, 20).await? != (vec![alice.clone()], false) {
    ///     tokio::task::yield_now().await;
    /// }
    /// assert_eq!(social.profile(&bob).await?.followers, 1);
    /// # node.shutdown().await;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    ///
    /// Cost: a scan of the names that are returned.
    pub async fn followers(
        &self,
        name: &Name,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<Name>, bool), SocialError> {
        self.user(name).followers(after.cloned(), limit.max(1)).await?
    }
}
