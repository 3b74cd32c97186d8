//! The most active tags: a decayed count of the authors of each tag, for a bounded number of tags.
//!
//! A tag without a count takes over the place and the count of the least active tag (the algorithm *Space-Saving*). So
//! a tag that becomes active is in the list soon, and a count is too high by at most the count of the least
//! active tag, which is at most a 256th of the sum. An author counts half after six hours, and once for all
//! posts of some hours; see `collector.rs`. Likes do not count, and a deleted post still counts.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::Durable;

use super::ranking::HALF_LIFE_MS;
use crate::tags::Tag;

/// Process that counts the authors of tags; there is one.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "trends")]
pub(crate) struct Trends {
    /// Tags, most active first. The number of a tag is the binary logarithm of its count at the last change, plus the
    /// time of that change in half-lives since 1970.
    counts: Vec<(Tag, f64)>,
}

pub(crate) const TRENDS: &str = "tags";

#[process]
impl Trends {
    /// Adds numbers of authors to the counts of tags, at a time in milliseconds since 1970.
    #[message]
    pub(crate) fn count(&mut self, tags: Vec<(Tag, u64)>, now_ms: u64) {
        let now = now_ms as f64 / HALF_LIFE_MS;
        for (tag, authors) in tags {
            let known = self.counts.iter().position(|(known, _)| *known == tag);
            let place = match known {
                Some(place) => Some(self.counts.remove(place)),
                None if self.counts.len() >= TAGS_MAX => self.counts.pop(),
                None => None,
            };
            let decayed = place.map_or(0.0, |(_, count)| (count - now).exp2());
            let count = (decayed + authors as f64).log2() + now;
            let at = self.counts.partition_point(|(_, other)| *other >= count);
            self.counts.insert(at, (tag, count));
        }
    }

    /// Returns the most active tags, most active first: at most `limit`.
    #[message]
    pub(crate) fn top(&self, limit: usize) -> Vec<Tag> {
        self.counts.iter().take(limit).map(|(tag, _)| tag.clone()).collect()
    }
}

/// Maximum number of tags that are counted: a state of some kilobytes, of which [`Social::tags`](crate::Social::tags)
/// shows the most active.
const TAGS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(number: u64) -> Tag {
        format!("tag{number}").parse().unwrap()
    }

    const HOUR: u64 = 3_600_000;

    #[test]
    fn the_most_active_tags_come_first_and_counts_decay() {
        let (mut trends, now) = (Trends::default(), 1_700_000_000_000);
        trends.count(vec![(tag(1), 5), (tag(2), 8), (tag(3), 1)], now);
        trends.count(vec![(tag(3), 5)], now + 1);
        assert_eq!(trends.top(2), [tag(2), tag(3)]);
        // Eight authors count four after six hours, and 5 + 1 more than that.
        trends.count(vec![(tag(1), 3)], now + 6 * HOUR);
        assert_eq!(trends.top(9), [tag(1), tag(2), tag(3)]);
        trends.count(vec![(tag(4), 1)], now + 48 * HOUR);
        assert_eq!(trends.top(1), [tag(4)]);
    }

    #[test]
    fn a_tag_that_becomes_active_gets_in_among_a_flood_of_others() {
        let (mut trends, now) = (Trends::default(), 1_700_000_000_000);
        for number in 0..100_000 {
            let active = if number % 50 == 0 { tag(0) } else { tag(number) };
            trends.count(vec![(active, 1)], now);
            assert!(trends.counts.len() <= TAGS_MAX);
        }
        assert_eq!(trends.top(1), [tag(0)]);
        let (_, count) = &trends.counts[0];
        let count = (count - now as f64 / HALF_LIFE_MS).exp2();
        assert!((1_999.9..2_000.1 + 100_000.0 / 256.0).contains(&count), "{count}");
        assert!(trends.counts.is_sorted_by(|(_, more), (_, less)| more >= less));
    }
}
