//! Posts of a microblog in memory, and the timelines and profiles that hold them.
//!
//! ```text
//!  Timeline::Own(Vec<Entry>)          a post is pushed without an atomic operation on the list
//!      │ read                  ▲
//!      ▼                       │ a post, when no reader has the list; otherwise a copy of the list
//!  Timeline::Shared(Posts) ────┘
//! ```
//!
//! Invariant: the entries are sorted by time, then author, then the author's count of posts, oldest first.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::name::Name;
use crate::post::Text;

/// A message of a user.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Post {
    /// Author of the post.
    pub author: Arc<Name>,
    /// Text of the post.
    pub text: Text,
    /// Time that the author's client gave.
    pub time: u64,
    /// Number of posts that the author had sent before.
    pub number: u64,
}

/// A post of a timeline, with its time beside it: a comparison reads the post only if both times are equal.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    time: u64,
    post: Arc<Post>,
}

const _: () = assert!(size_of::<Entry>() == 16, "a follower's copy of a post is 16 bytes");

impl Entry {
    fn new(post: Arc<Post>) -> Entry {
        Entry { time: post.time, post }
    }

    /// Compares two posts by the order of timelines, oldest first.
    fn order(&self, other: &Entry) -> Ordering {
        fn author(entry: &Entry) -> (&Name, u64) {
            (&entry.post.author, entry.post.number)
        }
        self.time.cmp(&other.time).then_with(|| author(self).cmp(&author(other)))
    }
}

/// A snapshot of a timeline or of a profile.
///
/// A clone shares the posts. A snapshot that is held while its timeline changes makes the shard copy the timeline's
/// pointers, once per snapshot.
#[derive(Debug, Clone, Default)]
pub struct Posts(Arc<Vec<Entry>>);

impl Posts {
    /// Returns the posts, newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Post>> {
        self.0.iter().rev().map(|entry| &entry.post)
    }

    /// Returns the number of posts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no posts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A timeline or a profile, as its shard keeps it.
#[derive(Debug)]
pub(super) enum Timeline {
    /// No reader has the posts.
    Own(Vec<Entry>),
    /// Readers may have the posts.
    Shared(Posts),
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline::Own(Vec::new())
    }
}

impl Timeline {
    /// Returns the posts, without a copy of any.
    pub(super) fn snapshot(&mut self) -> Posts {
        match self {
            Timeline::Shared(posts) => posts.clone(),
            Timeline::Own(entries) => {
                let posts = Posts(Arc::new(std::mem::take(entries)));
                *self = Timeline::Shared(posts.clone());
                posts
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Timeline::Own(entries) => entries.len(),
            Timeline::Shared(posts) => posts.len(),
        }
    }

    /// Inserts a post at its place. Cost: constant for the newest post, otherwise linear in the number of newer posts;
    /// linear in the number of all posts if a reader has them.
    pub(super) fn insert(&mut self, post: Arc<Post>) {
        let (entry, entries) = (Entry::new(post), self.own());
        // The scan begins at the end: a late post belongs a few places before it, and a binary search would read posts
        // far away in memory.
        let newer = entries.iter().rev().take_while(|other| other.order(&entry).is_gt()).count();
        entries.insert(entries.len() - newer, entry);
    }

    /// Merges other posts into these. Cost: linear in both.
    pub(super) fn merge(&mut self, others: &Posts) {
        if others.is_empty() {
            return;
        }
        let entries = self.own();
        entries.extend_from_slice(&others.0);
        // The stable sort merges two sorted runs in linear time.
        entries.sort_by(Entry::order);
    }

    /// Takes the posts back from the readers, or copies them if there are any readers.
    fn own(&mut self) -> &mut Vec<Entry> {
        if matches!(self, Timeline::Shared(_))
            && let Timeline::Shared(posts) = std::mem::take(self)
        {
            *self = Timeline::Own(Arc::unwrap_or_clone(posts.0));
        }
        match self {
            Timeline::Own(entries) => entries,
            Timeline::Shared(_) => unreachable!("the posts were taken back above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(author: &str, time: u64, number: u64) -> Arc<Post> {
        let author = Arc::new(author.parse::<Name>().unwrap());
        Arc::new(Post { author, text: Text::new("text").unwrap(), time, number })
    }

    fn keys(posts: &Posts) -> Vec<(u64, &str, u64)> {
        posts.iter().map(|post| (post.time, post.author.as_str(), post.number)).collect()
    }

    #[test]
    fn equal_times_are_ordered_by_author_and_then_by_number() {
        let mut timeline = Timeline::default();
        for (author, time, number) in
            [("b", 1, 0), ("a", 1, 1), ("a", 1, 0), ("c", 0, 0), ("a", 2, 2), ("b", 1, 1)]
        {
            timeline.insert(post(author, time, number));
        }
        let expected =
            [(2, "a", 2), (1, "b", 1), (1, "b", 0), (1, "a", 1), (1, "a", 0), (0, "c", 0)];
        assert_eq!(keys(&timeline.snapshot()), expected);
    }

    #[test]
    fn a_list_without_readers_is_taken_back_and_not_copied() {
        let mut timeline = Timeline::default();
        for time in 0..100 {
            timeline.insert(post("a", time, time));
        }
        let before = timeline.snapshot().0.as_ptr();
        assert_eq!(timeline.own().as_ptr(), before, "nobody reads the list");
        let held = timeline.snapshot();
        timeline.insert(post("a", 100, 100));
        assert_eq!((held.len(), timeline.len()), (100, 101));
        assert_eq!(held.0.as_ptr(), before, "the reader keeps the list");
    }

    #[test]
    fn nothing_is_merged_into_a_list_that_a_reader_holds_without_a_copy() {
        let mut timeline = Timeline::default();
        timeline.insert(post("a", 1, 0));
        let held = timeline.snapshot();
        timeline.merge(&Posts::default());
        assert!(Arc::ptr_eq(&held.0, &timeline.snapshot().0), "there was nothing to merge");
        let mut other = Timeline::default();
        other.insert(post("b", 0, 0));
        other.insert(post("b", 2, 1));
        timeline.merge(&other.snapshot());
        assert_eq!(keys(&timeline.snapshot()), [(2, "b", 1), (1, "a", 0), (0, "b", 0)]);
        assert_eq!(keys(&held), [(1, "a", 0)]);
    }
}
