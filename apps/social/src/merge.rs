//! The merge of the posts of many authors, newest first.
//!
//! ```text
//! for each author, at most FETCHES_MAX at once:
//!     author.posts(before, floor, wanted) ──► Newest(wanted)
//!                              ▲                  │ floor
//!                              └──────────────────┘
//! ```
//!
//! Each author is asked only for posts that could still be among the newest, so the cost beyond these posts is
//! one lookup per author.
//!
//! Invariant: the outcome has no gaps. If an author's page was cut because it had too much text, the author's
//! posts below the last post of the page are unknown. So the merge returns no posts below that post.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::{self, StreamExt};
use throng_durable::{Entity, Node};
use tokio::sync::Semaphore;

use crate::error::{SocialError, unavailable};
use crate::ids::PostId;
use crate::name::Name;
use crate::newest::Newest;
use crate::post::Post;
use crate::user::{User, UserClient};

/// Handle that asks authors for their posts and merges them; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    node: Node,
    /// Permits for concurrent merges, each of which takes megabytes.
    permits: Arc<Semaphore>,
}

#[derive(Debug)]
pub(crate) struct Merged {
    /// The posts, newest first.
    pub(crate) posts: Vec<Post>,
    /// Whether there are further posts, because an author's page was cut.
    pub(crate) is_cut: bool,
    /// Authors that block the reader.
    pub(crate) hidden: Vec<Name>,
}

impl Merge {
    pub(crate) fn new(node: Node) -> Merge {
        Merge { node, permits: Arc::new(Semaphore::new(MERGES_MAX)) }
    }

    /// Returns the users that `reader` follows, in alphabetical order.
    pub(crate) async fn following(&self, reader: &Name) -> Result<Vec<Name>, SocialError> {
        self.user(reader).following().await?
    }

    /// Returns the newest `wanted` posts with ids below `before` of all authors who do not block `reader`. Returns
    /// fewer posts if there are fewer, or if an author's page was cut.
    ///
    /// # Errors
    /// The merge fails if any author cannot be asked, because an outcome with gaps would look complete.
    pub(crate) async fn newest(
        &self,
        reader: &Name,
        authors: Vec<Name>,
        before: Option<PostId>,
        wanted: usize,
    ) -> Result<Merged, SocialError> {
        let _permit = self.permits.acquire().await.map_err(unavailable)?;
        let (mut newest, mut hidden) = (Newest::new(wanted), Vec::new());
        let mut reach = None; // highest end of a cut page
        // Read when each author is asked, so that later authors return fewer posts.
        let floor = AtomicU64::new(0);
        let mut pages = stream::iter(authors)
            .map(async |author| {
                let floor = Some(PostId::new(floor.load(Ordering::Relaxed)));
                let page = self.user(&author).posts(Some(reader.clone()), before, floor, wanted);
                (page.await, author)
            })
            .buffer_unordered(FETCHES_MAX);
        while let Some((page, author)) = pages.next().await {
            let page = page??;
            if page.is_hidden {
                hidden.push(author);
            }
            for post in page.posts {
                newest.offer(post.id, post);
            }
            reach = reach.max(page.reach);
            let lowest = newest.floor().max(reach);
            floor.store(lowest.map_or(0, PostId::get), Ordering::Relaxed);
        }
        drop(pages);
        let mut posts: Vec<Post> = newest.into_newest_first().collect();
        posts.retain(|post| reach.is_none_or(|reach| post.id >= reach));
        Ok(Merged { posts, is_cut: reach.is_some(), hidden })
    }

    fn user(&self, name: &Name) -> Entity<User> {
        self.node.entity(name.as_str())
    }
}

/// Maximum number of authors asked at once for one merge.
const FETCHES_MAX: usize = 32;

/// Maximum number of merges at once. A waiting merge holds only a list of names.
const MERGES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{register, with_the_service};

    #[test]
    fn a_timeline_waits_while_the_maximum_is_being_merged() {
        with_the_service(1, async |social| {
            let [alice] = register(social, ["alice"]).await;
            let merging = social.merge.permits.acquire_many(MERGES_MAX as u32).await.unwrap();
            let mut timeline = std::pin::pin!(social.timeline(&alice, None, 20));
            let waited = tokio::time::timeout(Duration::from_millis(100), &mut timeline).await;
            assert!(waited.is_err());
            drop(merging);
            assert_eq!(timeline.await.unwrap().posts, []);
        });
    }
}
