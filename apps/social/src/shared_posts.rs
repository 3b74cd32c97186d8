//! Posts in memory, each once however many live timelines have it.
//!
//! ```text
//! timeline alice ──┐
//! timeline carol ──┼──► Published ◄── a page, while it is answered
//!                  │        ▲
//!  by id: weak ────┼────────┘     found again while any of them has it
//! ```
//!
//! Without sharing, each timeline would have copies of up to 400 posts, and each copy would be encoded separately.
//!
//! Invariant: a shard has at most twice as many entries as posts were in memory at its last sweep, or [`SWEEP_MIN`]. A
//! post never changes, so the shared copy is never out of date.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::ids::PostId;
use crate::post::{Post, Published};

/// The posts of the live timelines of a service.
#[derive(Debug, Default)]
pub(crate) struct SharedPosts([Mutex<Shard>; SHARDS]);

#[derive(Debug)]
struct Shard {
    posts: HashMap<PostId, Weak<Published>>,
    /// Number of entries at which the shard is swept: the entries of posts that have left memory are removed.
    sweep_at: usize,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard { posts: HashMap::new(), sweep_at: SWEEP_MIN }
    }
}

impl SharedPosts {
    /// Returns the shared copy of a post. If there is none, this post becomes the shared copy.
    pub(crate) fn share(&self, post: Post) -> Arc<Published> {
        let mut shard = self.shard(post.id);
        if let Some(found) = shard.posts.get(&post.id).and_then(Weak::upgrade) {
            return found;
        }
        if shard.posts.len() >= shard.sweep_at {
            shard.posts.retain(|_, shared| shared.strong_count() > 0);
            shard.sweep_at = SWEEP_MIN.max(2 * shard.posts.len());
        }
        let id = post.id;
        let shared = Arc::new(Published::new(post));
        shard.posts.insert(id, Arc::downgrade(&shared));
        shared
    }

    /// Returns the shared copy of a post, or this post without sharing it. A page, which is dropped after the answer,
    /// gets its posts in this way.
    pub(crate) fn find(&self, post: Post) -> Arc<Published> {
        let found = self.shard(post.id).posts.get(&post.id).and_then(Weak::upgrade);
        found.unwrap_or_else(|| Arc::new(Published::new(post)))
    }

    /// Returns the shared copies of the posts of a page, or these posts without sharing them; see
    /// [`find`](SharedPosts::find).
    pub(crate) fn find_all(&self, posts: Vec<Post>) -> Vec<Arc<Published>> {
        posts.into_iter().map(|post| self.find(post)).collect()
    }

    fn shard(&self, id: PostId) -> MutexGuard<'_, Shard> {
        // Ids of the same millisecond differ in their low bits; ids of different milliseconds may not.
        let shard = (id.get() ^ id.time_ms()) as usize % SHARDS;
        // Each change is a single step, so a panic leaves the shard consistent.
        self.0[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of locks, each for a share of the ids.
const SHARDS: usize = 16;

/// Number of entries below which a shard is not swept: 3 MB for all shards, because a weak pointer keeps the memory of
/// the post itself, though not of its text.
const SWEEP_MIN: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::post::Text;

    fn post(number: usize) -> Post {
        let id = PostId::new((number as u64) << 22);
        Post { id, author: "bob".parse().unwrap(), text: Text::new("hello").unwrap(), time: 0 }
    }

    #[test]
    fn a_post_is_in_memory_once_and_only_while_somebody_has_it() {
        let posts = SharedPosts::default();
        assert!(!Arc::ptr_eq(&posts.find(post(1)), &posts.find(post(1))), "nobody has shared it");
        let first = posts.share(post(1));
        for again in [posts.share(post(1)), posts.find(post(1))] {
            assert!(Arc::ptr_eq(&first, &again));
        }
        let weak = Arc::downgrade(&first);
        drop(first);
        assert!(weak.upgrade().is_none());
        assert_eq!(posts.share(post(1)).post, post(1));
    }

    #[test]
    fn entries_of_posts_that_have_left_memory_are_removed() {
        let posts = SharedPosts::default();
        let kept: Vec<_> = (0..1_000).map(|number| posts.share(post(number))).collect();
        for number in 1_000..20 * SHARDS * SWEEP_MIN {
            drop(posts.share(post(number)));
        }
        let entries: Vec<_> =
            posts.0.iter().map(|shard| shard.lock().unwrap().posts.len()).collect();
        assert!(entries.iter().all(|entries| *entries <= SWEEP_MIN + 1_000), "{entries:?}");
        for (number, kept) in kept.iter().enumerate() {
            assert!(Arc::ptr_eq(kept, &posts.share(post(number))));
        }
    }
}
