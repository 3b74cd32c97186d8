//! Posts: their text, and pages of them.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use throng_node::http::Frames;

use crate::ids::PostId;
use crate::name::Name;
use crate::visible;

/// Text of a post: 1 to 5000 characters, at least one of them visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(String);

/// The text cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a post must have 1 to {} characters, at least one of them visible", Text::CHARACTERS_MAX)]
pub struct TextError;

impl Text {
    /// Maximum length of a text, in Unicode scalar values.
    pub const CHARACTERS_MAX: usize = 5000;

    /// Checks the text, which is kept unchanged.
    ///
    /// # Errors
    /// The text is too long, or has no visible character.
    pub fn new(text: impl Into<String>) -> Result<Text, TextError> {
        let text = text.into();
        let too_long = text.chars().nth(Text::CHARACTERS_MAX).is_some();
        if too_long || !visible::is_visible(&text) { Err(TextError) } else { Ok(Text(text)) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Public view of a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Id of the post; newer posts have higher ids.
    pub id: PostId,
    /// Name of the author.
    pub author: Name,
    /// Text of the post.
    pub text: Text,
    /// Time of the post by the clock of the node, in milliseconds since 1970.
    pub time: u64,
}

/// A post, with the frame that all sockets send for it.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) post: Post,
    /// Frame of the post, encoded when the first socket or page needs it.
    pub(crate) frame: OnceLock<Frames>,
}

impl Published {
    pub(crate) fn new(post: Post) -> Published {
        Published { post, frame: OnceLock::new() }
    }
}

/// A post, and the number of its likes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LikedPost {
    /// The post.
    pub post: Post,
    /// Number of users that like the post.
    pub likes: u64,
}

/// Outcome of posting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The post.
    pub post: Post,
    /// Whether the post existed already, under the same idempotency key.
    pub repeated: bool,
}

/// Posts of one author for a page.
#[derive(Debug, Default)]
pub(crate) struct AuthorPage {
    pub(crate) posts: Vec<Post>,
    /// Id of the last post, if the page was cut: the author has further requested posts below it.
    pub(crate) reach: Option<PostId>,
    /// Whether the author blocks the reader, so that there are no posts.
    pub(crate) is_hidden: bool,
}

/// Remaining room for text on a page; the first post always fits.
#[derive(Debug, Default)]
pub(crate) struct PageBudget {
    bytes_taken: usize,
}

impl PageBudget {
    /// Reserves room for `text`; returns false if there is not enough left.
    pub(crate) fn take(&mut self, text: &Text) -> bool {
        let bytes = self.bytes_taken + text.as_str().len();
        if self.bytes_taken > 0 && bytes > PAGE_BYTES_MAX {
            return false;
        }
        self.bytes_taken = bytes; // a text has at least one byte
        true
    }
}

/// Maximum bytes of text on a page, unless a single post has more. Otherwise a page of a hundred
/// long posts would take megabytes of memory for each reader, however slow.
const PAGE_BYTES_MAX: usize = 256 * 1024;

/// Post in JSON.
#[derive(Serialize)]
pub(crate) struct PostView<'a> {
    id: PostId,
    author: &'a Name,
    text: &'a Text,
    time: u64,
}

impl PostView<'_> {
    pub(crate) fn of(post: &Post) -> PostView<'_> {
        PostView { id: post.id, author: &post.author, text: &post.text, time: post.time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_something_to_see_and_an_end() {
        for good in [
            "a",
            " a ",
            "\u{200b}a\0",
            "ä",
            "👨\u{200d}👩\u{200d}👧",
            &"x".repeat(5000),
            &"😀".repeat(5000),
        ] {
            assert_eq!(Text::new(good).map(|text| text.as_str().len()), Ok(good.len()));
        }
        let unseen = ["\0", "\u{200b}\u{feff}", "\u{2060} \u{ad}", "\u{e0041}\u{fe0f}"];
        for bad in
            unseen.into_iter().chain(["", " ", "\n\t\u{a0}", &"x".repeat(5001), &"😀".repeat(5001)])
        {
            assert_eq!(Text::new(bad), Err(TextError), "{} bytes", bad.len());
        }
    }
}
