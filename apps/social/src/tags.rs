//! [`Tag`]: a word after `#` in the text of a post, by which readers find posts on a subject.
//!
//! ```text
//! "Learning #Rust, and #rust-lang again. See a#b and #2025!"
//!           ─────      ─────                 ×        ─────
//!           rust       rust: counts once   no space   2025
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::post::Text;

/// Tag of a post: 1 to 32 letters and digits of any script, and `_`, in lower case.
///
/// In a text, a tag is a `#` at the start or after white space, and the letters, digits and `_` that follow. A longer
/// word is no tag. The first [`PER_POST_MAX`](Tag::PER_POST_MAX) different tags of a post count.
///
/// ```
/// use social::Tag;
///
/// assert_eq!("Rust_2024".parse::<Tag>()?.as_str(), "rust_2024");
/// assert!("#rust".parse::<Tag>().is_err());
/// # Ok::<(), social::TagError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Tag(String);

/// The text is not a valid tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tag must have 1 to {} letters, digits or _", Tag::CHARACTERS_MAX)]
pub struct TagError;

impl Tag {
    /// Maximum length of a tag, in Unicode scalar values.
    pub const CHARACTERS_MAX: usize = 32;

    /// Maximum number of tags of a post; further tags are mere text. Each tag of a post costs a change on disk.
    pub const PER_POST_MAX: usize = 5;

    /// Returns the tag in lower case, without `#`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the different tags of a text, in order: at most [`PER_POST_MAX`](Tag::PER_POST_MAX).
    ///
    /// Cost: a search for `#`, and a copy of each tag.
    pub(crate) fn all_in(text: &Text) -> Vec<Tag> {
        let (text, mut found) = (text.as_str(), Vec::new());
        for (at, _) in text.match_indices('#') {
            if text[..at].chars().next_back().is_some_and(|before| !before.is_whitespace()) {
                continue;
            }
            let after = &text[at + 1..];
            let word = &after[..after.find(|character| !fits(character)).unwrap_or(after.len())];
            if let Ok(tag) = word.parse::<Tag>()
                && !found.contains(&tag)
            {
                found.push(tag);
                if found.len() == Tag::PER_POST_MAX {
                    break;
                }
            }
        }
        found
    }
}

/// Returns whether the character can be in a tag.
fn fits(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

impl FromStr for Tag {
    type Err = TagError;

    /// Checks a tag, and converts it to lower case.
    fn from_str(text: &str) -> Result<Tag, TagError> {
        // The limit comes first, because the text of a path may be long.
        let is_long = text.chars().nth(Tag::CHARACTERS_MAX).is_some();
        if text.is_empty() || is_long || !text.chars().all(fits) {
            return Err(TagError);
        }
        // The lower case of a letter can be a letter with a mark: `İ` becomes `i`, so that a tag in lower case stays
        // the same tag when it is parsed again.
        Ok(Tag(text.chars().flat_map(char::to_lowercase).filter(|lower| fits(*lower)).collect()))
    }
}

impl TryFrom<String> for Tag {
    type Error = TagError;

    fn try_from(text: String) -> Result<Tag, TagError> {
        text.parse()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tags(text: &str) -> Vec<String> {
        let tags = Tag::all_in(&Text::new(text).unwrap());
        tags.into_iter().map(|tag| tag.to_string()).collect()
    }

    #[test]
    fn a_tag_begins_a_word() {
        let long = "x".repeat(32);
        for (text, expected) in [
            ("no tags at all", &[][..]),
            ("#rust", &["rust"]),
            ("see #Rust, #RUST-lang and #rust!", &["rust"]),
            ("a#b #a#b (#c) ##d # e #", &["a"]),
            ("\u{3000}#東京 \n#Ärger\t#Ελλάδα_2", &["東京", "ärger", "ελλάδα_2"]),
            ("#İstanbul", &["istanbul"]),
            ("#a #b #a #c #d #e #f", &["a", "b", "c", "d", "e"]),
            (&format!("#{long} #{long}x #y"), &[&long, "y"]),
        ] {
            assert_eq!(tags(text), expected, "{text}");
        }
    }

    #[test]
    fn a_tag_alone_has_the_same_rule() {
        for (text, expected) in [("Rust", "rust"), ("_", "_"), (&"X".repeat(32), &"x".repeat(32))] {
            assert_eq!(text.parse::<Tag>().unwrap().as_str(), expected);
        }
        for bad in ["", "#rust", "a b", "a-b", "a\0", "🦀", "../a", &"x".repeat(33)] {
            assert_eq!(bad.parse::<Tag>(), Err(TagError), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_tag_of_a_text_can_be_parsed_again(text in "[#a-zA-ZİßǅΣ_ 🦀\u{307}]{1,50}x") {
            let text = Text::new(text).unwrap();
            for tag in Tag::all_in(&text) {
                prop_assert_eq!(tag.as_str().parse::<Tag>(), Ok(tag.clone()));
                prop_assert!((1..=Tag::CHARACTERS_MAX).contains(&tag.as_str().chars().count()));
            }
        }

        #[test]
        fn every_character_makes_the_same_tag_again(character: char) {
            if let Ok(tag) = character.to_string().parse::<Tag>() {
                prop_assert_eq!(tag.as_str().parse::<Tag>(), Ok(tag.clone()));
            }
        }
    }
}
