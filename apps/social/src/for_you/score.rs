//! [`Score`]: the order of For you, which a program can replace.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::ranking;
use crate::ids::PostId;
use crate::name::Name;
use crate::tags::Tag;

/// Post that may be shown to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Id of the post, which includes the time of the post.
    pub id: PostId,
    /// Name of the author.
    pub author: Name,
    /// Number of likes, as the groups know it.
    pub likes: u64,
    /// Reason for which the post may interest the reader.
    pub reason: Reason,
}

/// Reader for whom posts are scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Name of the reader.
    pub name: Name,
    /// Tags in which the reader is interested.
    pub interests: Vec<Tag>,
}

/// Reason for which a post is shown. If several reasons apply, the first of this list counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The reader follows the author.
    Following,
    /// The reader is interested in this tag.
    Tag(Tag),
    /// Many users like the post.
    Popular,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Following => f.write_str("following"),
            Reason::Tag(tag) => write!(f, "tag:{tag}"),
            Reason::Popular => f.write_str("popular"),
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Score of posts for a reader, set by [`Social::with_score`](crate::Social::with_score).
///
/// ```
/// use social::{Candidate, Reader, Score};
///
/// /// Shows the newest posts first.
/// struct Newest;
///
/// impl Score for Newest {
///     fn score(&self, candidate: &Candidate, _: &Reader) -> f64 {
///         candidate.id.time_ms() as f64
///     }
/// }
/// ```
pub trait Score: Send + Sync {
    /// Returns the score of a post for a reader. Posts with higher scores come first, and newer posts first among
    /// those with the same score. A NaN is allowed, and its place is not specified.
    ///
    /// The method runs in the task of the request, for up to a few thousand candidates per visit, so it must not block.
    /// A panic ends the request.
    fn score(&self, candidate: &Candidate, reader: &Reader) -> f64;
}

/// Default score: `log2(1 + likes) + time / 6 h`, and a bonus of 2 for posts of users that the reader follows and of 1
/// for posts with a tag of interest.
///
/// An advantage of 1 is twice the likes, or six hours. So a post of a followed user is worth as much as a post of a
/// stranger with four times the likes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultScore;

impl Score for DefaultScore {
    fn score(&self, candidate: &Candidate, _: &Reader) -> f64 {
        let bonus = match candidate.reason {
            Reason::Following => 2.0,
            Reason::Tag(_) => 1.0,
            Reason::Popular => 0.0,
        };
        ranking::score(candidate.id, candidate.likes) + bonus
    }
}

#[derive(Clone)]
pub(crate) struct Scoring(pub(super) Arc<dyn Score>);

impl Scoring {
    pub(super) fn new(score: impl Score + 'static) -> Scoring {
        Scoring(Arc::new(score))
    }
}

impl Default for Scoring {
    fn default() -> Scoring {
        Scoring::new(DefaultScore)
    }
}

impl fmt::Debug for Scoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoring").finish_non_exhaustive()
    }
}
