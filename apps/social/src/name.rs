//! Names of users and of rooms, which also address their processes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Name of a user: 1 to 32 of `a`–`z`, `0`–`9` and `_`.
///
/// A name has exactly one spelling, so that no two users look alike.
///
/// ```
/// use social::Name;
///
/// assert_eq!("alice_7".parse::<Name>()?.as_str(), "alice_7");
/// assert!("Alice".parse::<Name>().is_err());
/// # Ok::<(), social::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(String);

/// Name of a room, by the same rule as the [`Name`] of a user. A room and a user may have the same name.
///
/// ```
/// use social::RoomName;
///
/// assert_eq!("rust_7".parse::<RoomName>()?.as_str(), "rust_7");
/// assert!("#rust".parse::<RoomName>().is_err());
/// # Ok::<(), social::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RoomName(Name);

/// The text is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name must have 1 to {} characters, each of a-z, 0-9 or _", Name::BYTES_MAX)]
pub struct NameError;

impl Name {
    /// Maximum length of a name, in bytes.
    pub const BYTES_MAX: usize = 32;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Name, NameError> {
        let known = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if (1..=Name::BYTES_MAX).contains(&text.len()) && text.bytes().all(known) {
            Ok(Name(text))
        } else {
            Err(NameError)
        }
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        Name::try_from(text.to_owned())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RoomName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl TryFrom<String> for RoomName {
    type Error = NameError;

    fn try_from(text: String) -> Result<RoomName, NameError> {
        Name::try_from(text).map(RoomName)
    }
}

impl FromStr for RoomName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<RoomName, NameError> {
        text.parse().map(RoomName)
    }
}

impl fmt::Display for RoomName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_and_the_length_are_kept() {
        for good in ["a", "_", "0", "alice", &"x".repeat(32)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "Alice", "a b", "a-b", "ä", "a\0", "a\n", "../a", &"x".repeat(33)] {
            assert_eq!(bad.parse::<Name>(), Err(NameError), "{bad:?}");
        }
    }
}
