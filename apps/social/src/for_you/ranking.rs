//! Bounded ranking of posts by likes and time, whose order needs no update as time passes.
//!
//! ```text
//! score = log2(1 + likes) + time / HALF_LIFE
//! ```
//!
//! The weight `(1 + likes) · 2^(time / HALF_LIFE)` of a post decays relative to newer posts, and the score is the
//! logarithm of the weight: twice the likes are worth as much as six hours. A score changes only with the likes, so
//! no score is computed again as time passes.
//!
//! Invariants: a ranking has at most [`POSTS_MAX`] posts, at most [`PER_AUTHOR_MAX`] of an author, each once, in
//! falling order of the score; the higher id wins a tie. As long as likes only grow and no post is deleted, these are
//! the best posts of all that were offered.

use std::cmp::Ordering;

use crate::ids::PostId;
use crate::name::Name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) id: PostId,
    pub(crate) author: Name,
    pub(crate) likes: u64,
}

impl Ranked {
    fn order(&self, other: &Ranked) -> Ordering {
        let scores = score(other.id, other.likes).total_cmp(&score(self.id, self.likes));
        scores.then(other.id.cmp(&self.id))
    }
}

/// Returns the logarithm of the weight of a post: the number of times that its weight doubles.
pub(super) fn score(id: PostId, likes: u64) -> f64 {
    (likes as f64).ln_1p() / std::f64::consts::LN_2 + id.time_ms() as f64 / HALF_LIFE_MS
}

/// The best posts of those that were offered.
#[derive(Debug, Default)]
pub(crate) struct Ranking(Vec<Ranked>);

/// Outcome of an offer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// The post is in the ranking.
    Kept,
    /// The post is in the ranking, and another has left it.
    Replaced(PostId),
    /// The post is not in the ranking.
    Refused,
}

impl Ranking {
    /// Offers a post with its present number of likes. A copy with an earlier number is removed.
    ///
    /// Cost: a pass over the ranking, which fits the cache of a core.
    pub(crate) fn offer(&mut self, post: Ranked) -> Offered {
        self.remove(post.id);
        let id = post.id;
        let place = self.0.partition_point(|better| better.order(&post) == Ordering::Less);
        let (mut of_author, mut last_of_author) = (0, place);
        for (at, other) in self.0.iter().enumerate() {
            if other.author == post.author {
                of_author += 1;
                last_of_author = at;
            }
        }
        let worst = if of_author >= PER_AUTHOR_MAX {
            last_of_author
        } else if self.0.len() >= POSTS_MAX {
            self.0.len() - 1
        } else {
            self.0.insert(place, post);
            return Offered::Kept;
        };
        if place > worst {
            return Offered::Refused;
        }
        let replaced = self.0.remove(worst);
        self.0.insert(place, post);
        debug_assert_ne!(replaced.id, id, "the post was removed before");
        Offered::Replaced(replaced.id)
    }

    /// Removes a post; returns whether the ranking had it.
    pub(crate) fn remove(&mut self, id: PostId) -> bool {
        let place = self.0.iter().position(|post| post.id == id);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// Returns the posts, best first.
    pub(crate) fn posts(&self) -> &[Ranked] {
        &self.0
    }

    pub(crate) fn into_posts(self) -> Vec<Ranked> {
        self.0
    }
}

/// Time in which the weight of a post halves relative to newer posts: a reader who comes twice a day sees other posts.
pub(super) const HALF_LIFE_MS: f64 = 6.0 * 3_600_000.0;

/// Maximum number of posts of a ranking: more than the posts of a visit, because readers may not see some of them.
pub(super) const POSTS_MAX: usize = 256;

/// Maximum number of posts of an author in a ranking, so that no author fills it.
pub(super) const PER_AUTHOR_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::*;

    /// Author of a post of the tests: post 0 to 999 has one of so many authors.
    fn author(number: u64, authors: u64) -> Name {
        format!("user_{}", number % authors).parse().unwrap()
    }

    /// Ids some minutes apart, so that likes and time both decide.
    fn id(number: u64) -> PostId {
        PostId::new((number * 600_000) << 22)
    }

    fn sorted(likes: &BTreeMap<u64, u64>, authors: u64) -> Vec<Ranked> {
        let mut all: Vec<Ranked> = likes
            .iter()
            .map(|(number, likes)| Ranked {
                id: id(*number),
                author: author(*number, authors),
                likes: *likes,
            })
            .collect();
        all.sort_by(|a, b| {
            let by_score = score(b.id, b.likes).partial_cmp(&score(a.id, a.likes)).unwrap();
            by_score.then(b.id.cmp(&a.id))
        });
        let mut of = HashMap::new();
        all.retain(|post| {
            let count = of.entry(post.author.clone()).or_insert(0);
            *count += 1;
            *count <= PER_AUTHOR_MAX
        });
        all.truncate(POSTS_MAX);
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_best_posts_stay_whatever_the_order_of_posts_and_likes(
            offers in prop::collection::vec((0..1000_u64, 0..20_u64), 0..1500),
            authors in prop::sample::select(vec![1_u64, 7, 30, 50, 1000]),
        ) {
            let (mut ranking, mut likes) = (Ranking::default(), BTreeMap::new());
            let mut present = BTreeSet::new();
            for (number, added) in offers {
                let count = likes.entry(number).or_insert(0);
                *count += added;
                let offered = Ranked { id: id(number), author: author(number, authors), likes: *count };
                match ranking.offer(offered) {
                    Offered::Kept => drop(present.insert(id(number))),
                    Offered::Replaced(other) => {
                        prop_assert!(present.remove(&other));
                        present.insert(id(number));
                    }
                    // The likes only grow, so a post that the ranking has is not refused.
                    Offered::Refused => prop_assert!(!present.contains(&id(number))),
                }
            }
            prop_assert_eq!(ranking.posts(), &sorted(&likes, authors)[..]);
            let found: BTreeSet<PostId> = ranking.posts().iter().map(|post| post.id).collect();
            prop_assert_eq!(found, present);
        }

        #[test]
        fn a_ranking_keeps_its_bounds_and_its_order_also_when_likes_fall_and_posts_go(
            offers in prop::collection::vec((0..600_u64, prop::option::of(0..20_u64)), 0..1500),
            authors in prop::sample::select(vec![7_u64, 60, 600]),
        ) {
            let (mut ranking, mut likes) = (Ranking::default(), BTreeMap::new());
            for (number, offered) in offers {
                match offered {
                    Some(count) => {
                        likes.insert(number, count);
                        let author = author(number, authors);
                        ranking.offer(Ranked { id: id(number), author, likes: count });
                    }
                    None => {
                        likes.remove(&number);
                        ranking.remove(id(number));
                        prop_assert!(!ranking.remove(id(number)));
                    }
                }
            }
            prop_assert!(ranking.posts().len() <= POSTS_MAX);
            prop_assert!(ranking.posts().is_sorted_by(|a, b| a.order(b) == Ordering::Less));
            let mut of = HashMap::new();
            for post in ranking.posts() {
                prop_assert!(likes.iter().any(|(n, likes)| id(*n) == post.id && *likes == post.likes));
                *of.entry(&post.author).or_insert(0) += 1;
            }
            prop_assert!(of.values().all(|count| *count <= PER_AUTHOR_MAX));
        }
    }

    #[test]
    fn twice_the_likes_are_worth_six_hours() {
        let (old, new) = (PostId::new(0), PostId::new((6 * 3_600_000) << 22));
        for likes in [0, 1, 499] {
            let (older, newer) = (score(old, 2 * likes + 1), score(new, likes));
            assert!((older - newer).abs() < 1e-9, "{older} {newer}");
        }
    }
}
