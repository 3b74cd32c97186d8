//! Likes of a user's posts: one like for each user and post, stored at the author.
//!
//! ```text
//! cells   likes         POST-ID NAME → ()       likes, by post and by the name of the user who likes it
//!         like-counts   POST-ID      → number   posts with likes
//! ```
//!
//! Invariants: the count of a post is the number of its likes, and a post without likes has no count. A deleted post
//! has no count, and its likes are removed, [`REMOVED_AT_ONCE`] in a turn: a turn that may leave some sends its own
//! entity a durable message. An id is never used again, so a like that is left belongs to no other post.

use throng::prelude::*;
use throng_durable::{Bytes, CellError, DurableContext, U64};

use crate::error::SocialError;
use crate::for_you::collector::ChangeKind;
use crate::ids::PostId;
use crate::name::Name;

use super::{POSTS, PostCell, RemoveLikes, User, name};

impl User {
    /// Adds or removes a like. Idempotent.
    pub(super) fn set_like(
        &mut self,
        cx: &mut Context<Self>,
        reader: &Name,
        id: PostId,
        likes: bool,
    ) -> Result<(), SocialError> {
        self.account(cx)?;
        if likes && self.is_blocked(cx, reader)? {
            return Err(SocialError::Blocked(name(cx)));
        }
        let Some((_, text)) = cx.cells::<U64, PostCell>(POSTS).get(&id.get())? else {
            return if likes { Err(SocialError::NoSuchPost(id)) } else { Ok(()) };
        };
        let like = like_cell(id, reader);
        if cx.cells::<Bytes, ()>(LIKES).contains(&like)? == likes {
            return Ok(());
        }
        let count = self.like_count(cx, id)?;
        let mut cells = cx.cells::<Bytes, ()>(LIKES);
        let count = if likes {
            cells.put(&like, &());
            count.saturating_add(1)
        } else {
            cells.delete(&like);
            count.saturating_sub(1)
        };
        let mut counts = cx.cells::<U64, u64>(COUNTS);
        if count > 0 {
            counts.put(&id.get(), &count)
        } else {
            counts.delete(&id.get())
        }
        self.rank(cx, id, &text, ChangeKind::Likes(count));
        Ok(())
    }

    pub(super) fn like_count(&self, cx: &mut Context<Self>, id: PostId) -> Result<u64, CellError> {
        Ok(cx.cells::<U64, u64>(COUNTS).get(&id.get())?.unwrap_or_default())
    }

    /// Removes the count of a deleted post, and begins to remove its likes.
    pub(super) fn forget_likes(
        &mut self,
        cx: &mut Context<Self>,
        id: PostId,
    ) -> Result<(), CellError> {
        if self.like_count(cx, id)? == 0 {
            return Ok(());
        }
        cx.cells::<U64, u64>(COUNTS).delete(&id.get());
        self.remove_some_likes(cx, id)
    }

    /// Removes some likes of a deleted post, and sees to the rest.
    pub(super) fn remove_some_likes(
        &mut self,
        cx: &mut Context<Self>,
        id: PostId,
    ) -> Result<(), CellError> {
        let mut likes = cx.cells::<Bytes, ()>(LIKES);
        let next = likes.prefix(id.get().to_be_bytes()).take(REMOVED_AT_ONCE);
        let next: Vec<Vec<u8>> =
            next.map(|like| Ok(like?.0.to_vec())).collect::<Result<_, CellError>>()?;
        for like in &next {
            likes.delete(like);
        }
        if next.len() == REMOVED_AT_ONCE {
            let me = cx.entity();
            cx.send_durable(&me, RemoveLikes { id });
        }
        Ok(())
    }
}

fn like_cell(id: PostId, reader: &Name) -> Vec<u8> {
    [&id.get().to_be_bytes()[..], reader.as_str().as_bytes()].concat()
}

/// Maximum number of likes that a turn removes: a batch of some 50 KB.
const REMOVED_AT_ONCE: usize = 1_000;

/// Names of the maps of cells; see also `user.rs`.
const LIKES: &str = "likes";
const COUNTS: &str = "like-counts";

#[cfg(test)]
mod tests {
    use throng_durable::{Entity, Node};

    use super::*;
    use crate::post::Text;
    use crate::testing::wait_until;
    use crate::user::tests::{deps, with_a_user};
    use crate::user::{Account, UserClient};

    fn reader(number: usize) -> Name {
        format!("reader_{number}").parse().unwrap()
    }

    /// Asks a user for the numbers of likes and of posts with likes.
    struct Stored;
    impl Message for Stored {
        type Reply = (usize, usize);
    }
    impl Handle<Stored> for User {
        async fn handle(&mut self, _: Stored, cx: &mut Context<Self>) -> (usize, usize) {
            let likes = cx.cells::<Bytes, ()>(LIKES).range(..).count();
            let counts = cx.cells::<U64, u64>(COUNTS).range(..).count();
            (likes, counts)
        }
    }

    async fn post(alice: &Entity<User>) -> PostId {
        PostId::new(alice.publish(Text::new("hello").unwrap()).await.unwrap().unwrap().number)
    }

    #[test]
    fn a_count_is_the_number_of_likes_through_random_repetitions() {
        with_a_user(async |_, alice| {
            let (mut rng, mut likes) =
                (fastrand::Rng::with_seed(3), std::collections::BTreeSet::new());
            let posts = [post(alice).await, post(alice).await];
            for _ in 0..300 {
                let (number, id, is_like) = (rng.usize(..5), posts[rng.usize(..2)], rng.bool());
                alice.like(reader(number), id, is_like).await.unwrap().unwrap();
                if is_like {
                    likes.insert((id, number))
                } else {
                    likes.remove(&(id, number))
                };
                for id in posts {
                    let expected = likes.iter().filter(|(post, _)| *post == id).count();
                    let found = alice.find_post(id).await.unwrap().unwrap();
                    assert_eq!((found.post.id, found.likes), (id, expected as u64));
                }
            }
            let counts =
                posts.iter().filter(|id| likes.iter().any(|(post, _)| post == *id)).count();
            assert_eq!(alice.call(Stored).await.unwrap(), (likes.len(), counts));
        });
    }

    #[test]
    fn the_likes_of_a_deleted_post_are_removed_also_after_a_restart() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let start = || {
                let node = Node::options(data.path()).open(runtime).unwrap();
                node.register::<User>(deps(runtime, &node));
                node
            };
            let node = start();
            let alice = node.entity::<User>("alice");
            let account = Account { password_hash: String::new(), created_ms: 0 };
            alice.register(account).await.unwrap().unwrap();
            let (kept, deleted) = (post(&alice).await, post(&alice).await);
            alice.like(reader(0), kept, true).await.unwrap().unwrap();
            // More than three turns remove, so that the node stops in between.
            let count = 3 * REMOVED_AT_ONCE + 1;
            let likes = (0..count).map(|number| alice.like(reader(number), deleted, true));
            for outcome in futures_util::future::join_all(likes).await {
                outcome.unwrap().unwrap();
            }
            assert_eq!(alice.call(Stored).await.unwrap(), (count + 1, 2));
            alice.delete_post(deleted).await.unwrap().unwrap();
            node.shutdown().await;
            drop((node, alice));

            let node = start();
            let alice = node.entity::<User>("alice");
            let gone = alice.find_post(deleted).await.unwrap();
            assert!(matches!(gone, Err(SocialError::NoSuchPost(id)) if id == deleted));
            wait_until(async || alice.call(Stored).await.unwrap() == (1, 1)).await;
            assert_eq!(alice.find_post(kept).await.unwrap().unwrap().likes, 1);
            node.shutdown().await;
        });
    }
}
