//! Groups of posts: one for each tag, and one for all posts.
//!
//! ```text
//! cells   posts    POST-ID → author, likes     the posts of the ranking
//! ```
//!
//! Invariant: the ranking in memory and the cells have the same posts. The process builds the ranking from the cells
//! when it starts, and a turn writes a cell for each change, so that a post costs tens of bytes and not the whole
//! ranking. The state is empty.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{CellError, Durable, DurableContext, U64};

use super::ranking::{Offered, Ranked, Ranking};
use crate::ids::PostId;
use crate::name::Name;
use crate::tags::Tag;

/// Process of a group, whose key is that of a [`GroupKey`].
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "group")]
pub(crate) struct Group {
    #[serde(skip)]
    ranking: Ranking,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GroupKey {
    /// All posts.
    Popular,
    Tag(Tag),
}

impl GroupKey {
    /// Returns the key of the group's process.
    pub(crate) fn entity(&self) -> String {
        match self {
            GroupKey::Popular => "popular".to_owned(),
            GroupKey::Tag(tag) => format!("#{tag}"),
        }
    }
}

/// Changes of a group's posts.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// The best of the posts that were published, or whose likes have changed.
    pub(crate) ranking: Ranking,
    pub(crate) deleted: Vec<PostId>,
}

#[process]
impl Group {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        if let Err(error) = self.load(cx) {
            // A hook cannot return an error. The callers get the text of a panic.
            panic!("the posts of a group cannot be read: {error}");
        }
    }

    #[message]
    pub(crate) fn update(&mut self, cx: &mut Context<Self>, updates: Updates) {
        let mut posts = cx.cells::<U64, (Name, u64)>(POSTS);
        // The best post comes first, so that no later post of the turn replaces one that was just put.
        for post in updates.ranking.into_posts() {
            let (id, cell) = (post.id, (post.author.clone(), post.likes));
            let had = self.ranking.remove(id);
            match self.ranking.offer(post) {
                Offered::Refused if had => posts.delete(&id.get()),
                Offered::Refused => {}
                Offered::Kept => posts.put(&id.get(), &cell),
                Offered::Replaced(other) => {
                    posts.delete(&other.get());
                    posts.put(&id.get(), &cell);
                }
            }
        }
        for id in updates.deleted {
            if self.ranking.remove(id) {
                posts.delete(&id.get());
            }
        }
    }

    /// Returns the posts, best first.
    #[message]
    pub(crate) fn best(&self) -> Vec<Ranked> {
        self.ranking.posts().to_vec()
    }
}

impl Group {
    fn load(&mut self, cx: &mut Context<Self>) -> Result<(), CellError> {
        for cell in cx.cells::<U64, (Name, u64)>(POSTS).range(..) {
            let (id, (author, likes)) = cell?;
            self.ranking.offer(Ranked { id: PostId::new(id), author, likes });
        }
        Ok(())
    }
}

const POSTS: &str = "posts";

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use throng_durable::Node;

    use super::*;
    use crate::for_you::ranking::POSTS_MAX;

    #[test]
    fn the_cells_are_the_ranking_also_after_a_restart() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let mut rng = Rng::with_seed(7);
        runtime.block_on(async |runtime| {
            let mut expected = Ranking::default();
            for _ in 0..4 {
                let node = Node::options(data.path()).open(runtime).unwrap();
                let group = node.entity::<Group>(GroupKey::Popular.entity());
                assert_eq!(group.best().await.unwrap(), expected.posts());
                for _ in 0..40 {
                    let mut updates = Updates::default();
                    for _ in 0..rng.usize(..40) {
                        let id = PostId::new(rng.u64(..2_000) << 40);
                        if rng.u8(..10) == 0 {
                            updates.deleted.push(id);
                        } else {
                            let author = format!("user_{}", id.get() % 999).parse().unwrap();
                            let post = Ranked { id, author, likes: rng.u64(..50) };
                            updates.ranking.offer(post);
                        }
                    }
                    for post in updates.ranking.posts() {
                        expected.offer(post.clone());
                    }
                    for id in &updates.deleted {
                        expected.remove(*id);
                    }
                    group.update(updates).await.unwrap();
                }
                assert_eq!(group.best().await.unwrap(), expected.posts());
                node.shutdown().await;
            }
            assert_eq!(expected.posts().len(), POSTS_MAX);
        });
    }
}
