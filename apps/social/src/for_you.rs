//! For you: posts that a reader may like, by tags and likes, from the users that the reader follows and from others.
//!
//! ```text
//!  User "bob" ──▶ Collector ─┬─▶ Group "#rust"     best posts of the tag ─┐
//!   posts, likes             ├─▶ Group "popular"   best of all posts ─────┤
//!                            └─▶ Trends            most active tags       ├─▶ Visit ──▶ pages: texts from the authors
//!                                Timeline "alice"  newest of followed ────┘   order by Score, held in memory
//! ```
//!
//! A visit asks the groups of the reader's interests and "popular" for their posts, and the reader's timeline for the
//! newest ones, and keeps the best of them in the order of the [`Score`]. A page asks the authors for the texts.
//!
//! Invariants:
//! * No post is written for its readers: a post costs a change in "popular" and in the group of each tag, of which many
//!   are written in one turn. All of it happens after the post is acknowledged.
//! * A visit has each post once, no post of its reader, and at most [`VISIT_MAX`].
//! * A page shows a post only if its author has it and does not block the reader, and the reader does not block the
//!   author, at the time of the page.
//! * The rankings may be wrong, and nothing else depends on them: see `for_you/collector.rs` for what they may miss.

pub(crate) mod collector;
mod group;
mod interests;
mod ranking;
pub(crate) mod score;
mod trends;
pub(crate) mod visits;

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::error::SocialError;
use crate::ids::PostId;
use crate::name::Name;
use crate::post::{LikedPost, PageBudget};
use crate::service::Social;
use crate::tags::Tag;
use crate::user::UserClient;

use group::{Group, GroupClient, GroupKey};
use score::{Candidate, Reader, Reason, Score, Scoring};
use trends::{TRENDS, Trends, TrendsClient};

/// Page of For you, best post first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForYou {
    /// Posts of the page.
    pub posts: Vec<ForYouPost>,
    /// Position to pass for the next page, or `None` on the last page.
    pub next: Option<VisitPosition>,
}

/// Post of For you.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForYouPost {
    /// The post, with its likes at the time of the page.
    pub liked: LikedPost,
    /// Reason for which the post is shown.
    pub reason: Reason,
}

/// Position in a visit of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitPosition {
    /// Number of the visit.
    pub visit: u64,
    /// Number of the visit's posts before the position, with the posts that were left out.
    pub offset: u64,
}

impl Social {
    /// Returns the same service with another order of [`for_you`](Social::for_you).
    ///
    /// ```
    /// # use social::{Candidate, Name, Password, Reader, Score, Social, Text};
    /// # use throng::prelude::*;
    /// # use throng_durable::Node;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let data = tempfile::tempdir()?;
    /// # let runtime = Runtime::builder().start()?;
    /// # runtime.block_on(async |runtime| {
    /// # let node = Node::options(data.path()).open(runtime)?;
    /// struct Oldest;
    ///
    /// impl Score for Oldest {
    ///     fn score(&self, candidate: &Candidate, _: &Reader) -> f64 {
    ///         -(candidate.id.time_ms() as f64)
    ///     }
    /// }
    ///
    /// let social = Social::new(node.clone(), runtime.clone(), 0)?.with_score(Oldest);
    /// # node.shutdown().await;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    #[must_use]
    pub fn with_score(mut self, score: impl Score + 'static) -> Social {
        self.scoring = Scoring::new(score);
        self
    }

    /// Returns the most active tags, most active first: at most 50. The activity of a tag is the number of its
    /// authors, of whom each counts once in six to twelve hours, and half after six hours.
    ///
    /// A post counts within a second, unless the service is overloaded.
    ///
    /// # Errors
    /// [`Unavailable`](SocialError::Unavailable), [`Broken`](SocialError::Broken).
    pub async fn tags(&self) -> Result<Vec<Tag>, SocialError> {
        Ok(self.node.entity::<Trends>(TRENDS).top(TAGS_MAX).await?)
    }

    /// Returns a page of the posts that `reader` may like, best first: at most `limit` (at least one), and at most
    /// 256 KiB of text unless a single post has more. Without a position, it begins a visit.
    ///
    /// The posts are the best of those with the tags of the reader's [interests](Social::interests), of all posts
    /// with the most likes for their age, and of the newest posts of the users that the reader follows. A new post is
    /// considered within a second, unless the service is overloaded. Posts of the reader, and posts whose author blocks
    /// the reader or is blocked by the reader, are left out.
    ///
    /// The pages of a visit have no post twice: they go through at most 200 posts, in an order that is fixed when the
    /// visit begins. A page that is read again has the same posts, without those that were deleted meanwhile; it may
    /// be empty although another one follows. The service keeps the last two visits of a reader, until the reader has
    /// read no page for five minutes, or the node stops. If 10,000 readers have visits, further readers get a single
    /// page.
    ///
    /// ```
    /// # use social::{Name, Password, Reason, Social, Text};
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
    /// social.add_interest(&alice, &"rust".parse()?).await?;
    /// let posted = social.post(&bob, Text::new("Learning #Rust")?, None).await?;
    /// let post = loop {
    ///     // The post takes part a moment after it was acknowledged.
    ///     let page = social.for_you(&alice, None, 20).await?;
    ///     if let Some(post) = page.posts.into_iter().find(|post| post.reason != Reason::Popular) {
    ///         break post;
    ///     }
    /// };
    /// assert_eq!(post.reason, Reason::Tag("rust".parse()?));
    /// assert_eq!(post.liked.post, posted.post);
    /// # node.shutdown().await;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`VisitOver`](SocialError::VisitOver).
    ///
    /// Cost: a call to each author of the page. A visit costs a call to each group (at most 11), a page of the
    /// timeline, and at most 50 calls for its likes, at most 32 calls at a time.
    pub async fn for_you(
        &self,
        reader: &Name,
        position: Option<VisitPosition>,
        limit: usize,
    ) -> Result<ForYou, SocialError> {
        self.visit(reader, None, position, limit).await
    }

    /// Returns a page of the posts with a tag, the reader's own among them, in the order of
    /// [`for_you`](Social::for_you) and with the same pages: the posts are the best of the tag, and a page belongs to
    /// a visit.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`VisitOver`](SocialError::VisitOver).
    pub async fn posts_with_tag(
        &self,
        reader: &Name,
        tag: &Tag,
        position: Option<VisitPosition>,
        limit: usize,
    ) -> Result<ForYou, SocialError> {
        self.visit(reader, Some(tag), position, limit).await
    }

    async fn visit(
        &self,
        reader: &Name,
        tag: Option<&Tag>,
        position: Option<VisitPosition>,
        limit: usize,
    ) -> Result<ForYou, SocialError> {
        let blocked: HashSet<Name> = self.blocked(reader).await?.into_iter().collect();
        let (posts, visit, offset) = match position {
            Some(VisitPosition { visit, offset }) => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                (self.visits.find(reader, visit).await?, Some(visit), offset)
            }
            None => {
                let posts = self.candidates(reader, tag, &blocked).await?.into();
                let visit = self.visits.begin(reader, &posts).await?;
                (posts, visit, 0)
            }
        };
        let (limit, mut offset) = (limit.max(1), offset.min(posts.len()));
        let mut page = ForYou { posts: Vec::new(), next: None };
        let mut room = PageBudget::default();
        let mut shown = stream::iter(offset..posts.len())
            .map(async |at| (self.show(reader, &blocked, &posts[at]).await, &posts[at].reason))
            .buffered(CALLS_MAX.min(limit));
        while page.posts.len() < limit
            && let Some((liked, reason)) = shown.next().await
        {
            if let Some(liked) = liked {
                if !room.take(&liked.post.text) {
                    break;
                }
                page.posts.push(ForYouPost { liked, reason: reason.clone() });
            }
            offset += 1;
        }
        if offset < posts.len() {
            page.next = visit.map(|visit| VisitPosition { visit, offset: offset as u64 });
        }
        Ok(page)
    }

    /// Returns the number of changes of posts that are missing in the rankings of [`for_you`](Social::for_you),
    /// because they came faster than they were collected, since the service was started.
    pub fn changes_dropped(&self) -> u64 {
        self.collectors.dropped()
    }

    /// Returns the posts of a visit, best first.
    async fn candidates(
        &self,
        reader: &Name,
        tag: Option<&Tag>,
        blocked: &HashSet<Name>,
    ) -> Result<Vec<Candidate>, SocialError> {
        let reader = Reader { name: reader.clone(), interests: self.interests(reader).await? };
        let mut found = HashMap::<PostId, Candidate>::new();
        let mut offer = |post: Candidate| {
            let is_offered = tag.is_some() || post.author != reader.name;
            if is_offered && !blocked.contains(&post.author) {
                let known = found.entry(post.id).or_insert_with(|| post.clone());
                known.likes = known.likes.max(post.likes);
            }
        };
        // A post has the first reason that is found.
        if tag.is_none() {
            self.newest_of_followed(&reader.name, blocked).await?.into_iter().for_each(&mut offer);
        }
        let tags = tag.map_or_else(|| reader.interests.clone(), |tag| vec![tag.clone()]);
        let tags = tags.into_iter().map(|tag| (Reason::Tag(tag.clone()), GroupKey::Tag(tag)));
        let popular = tag.is_none().then_some((Reason::Popular, GroupKey::Popular));
        let groups: Vec<_> = stream::iter(tags.chain(popular))
            .map(async |(reason, group)| {
                let best = self.node.entity::<Group>(group.entity()).best().await?;
                Ok::<_, SocialError>((reason, best))
            })
            .buffered(CALLS_MAX)
            .try_collect()
            .await?;
        for (reason, posts) in groups {
            for ranking::Ranked { id, author, likes } in posts {
                offer(Candidate { id, author, likes, reason: reason.clone() });
            }
        }
        let Scoring(score) = &self.scoring;
        let scored = found.into_values().map(|post| (score.score(&post, &reader), post));
        let mut scored: Vec<(f64, Candidate)> = scored.collect();
        scored.sort_unstable_by(|(score, post), (other_score, other)| {
            other_score.total_cmp(score).then(other.id.cmp(&post.id))
        });
        scored.truncate(VISIT_MAX);
        Ok(scored.into_iter().map(|(_, post)| post).collect())
    }

    /// Returns the newest posts of the users that the reader follows, with their likes.
    async fn newest_of_followed(
        &self,
        reader: &Name,
        blocked: &HashSet<Name>,
    ) -> Result<Vec<Candidate>, SocialError> {
        let posts = self.timeline(reader, None, FOLLOWED_MAX).await?.posts;
        let posts = posts.into_iter().map(|post| Candidate {
            id: post.id,
            author: post.author,
            likes: 0,
            reason: Reason::Following,
        });
        let liked = stream::iter(posts).map(async |post| {
            let likes = self.show(reader, blocked, &post).await.map(|liked| liked.likes);
            likes.map(|likes| Candidate { likes, ..post })
        });
        Ok(liked.buffer_unordered(CALLS_MAX).filter_map(std::future::ready).collect().await)
    }

    /// Returns a post if it can be shown to the reader. A post whose author cannot be asked is left out, so that one
    /// such author does not cost the reader the whole page.
    async fn show(
        &self,
        reader: &Name,
        blocked: &HashSet<Name>,
        post: &Candidate,
    ) -> Option<LikedPost> {
        if blocked.contains(&post.author) {
            return None;
        }
        let shown = self.user(&post.author).show(reader.clone(), post.id).await;
        match shown.map_err(SocialError::from).and_then(|shown| shown) {
            Ok(shown) => shown,
            Err(error) => {
                tracing::warn!(%error, author = %post.author, "a post of For you is left out");
                None
            }
        }
    }
}

/// Maximum number of posts of a visit: ten pages, and more than a reader scrolls through before new posts matter more.
const VISIT_MAX: usize = 200;

/// Number of the newest posts of followed users that take part in a visit: older ones are in the timeline.
const FOLLOWED_MAX: usize = 50;

const TAGS_MAX: usize = 50;

/// Maximum number of groups or authors that are asked at once for a page.
const CALLS_MAX: usize = 32;
