//! The population as data: people, their follows and everything they say, drawn from a seed.
//!
//! ```text
//! seed ─► Cast ─ people in the order of their arrival, each follows earlier people
//!           └──► Acts ─ endless: post, like, say, follow, read
//! ```
//!
//! Invariants: the same seed and number of people give the same names, the same follows and the same
//! sequence of acts, on every machine and whatever the node does. IEEE 754 defines the
//! floating-point operations exactly.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::words::{ANSWERS, FIRST_NAMES, LAST_NAMES, OPENINGS, POSTS, THEMES, TIMES, Theme};

/// Maximum number of people: the number of different names.
pub(crate) const PEOPLE_MAX: usize = FIRST_NAMES.len() * LAST_NAMES.len();

/// Population of a demo.
#[derive(Debug)]
pub(crate) struct Cast {
    seed: u64,
    /// In the order of their arrival, which is also the order of their popularity.
    pub(crate) people: Vec<Person>,
    popularity: Zipf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: String,
    /// Indices of the people that the person follows from the beginning, all of them earlier ones.
    pub(crate) follows: Vec<usize>,
    /// Index of the theme that the person prefers.
    pub(crate) theme: usize,
    /// First post of the person.
    pub(crate) hello: String,
}

/// Deed of a person. People are indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Post {
        author: usize,
        text: String,
    },
    /// Likes a recent post, which `nth` chooses among the posts at that time.
    Like {
        person: usize,
        nth: usize,
    },
    /// Says a line in the room of the speaker's theme.
    Say {
        speaker: usize,
        text: String,
    },
    Follow {
        person: usize,
        other: usize,
    },
    Unfollow {
        person: usize,
        other: usize,
    },
    /// Reads the own timeline, and the profile of somebody else.
    Read {
        person: usize,
        other: usize,
    },
}

/// Endless sequence of acts.
#[derive(Clone, Debug)]
pub(crate) struct Acts<'c> {
    cast: &'c Cast,
    rng: Rng,
    /// Number of people that talk in rooms: the first ones.
    speakers: usize,
    /// Number of lines that were said in each room.
    said: Vec<usize>,
}

impl Cast {
    /// Draws a population of `people`, at most [`PEOPLE_MAX`].
    pub(crate) fn draw(seed: u64, people: usize) -> Cast {
        let mut rng = Rng::with_seed(seed);
        let popularity = Zipf::new(people);
        let mut names: Vec<usize> = (0..PEOPLE_MAX).collect();
        rng.shuffle(&mut names);
        let mut cast = Cast { seed, people: Vec::new(), popularity };
        for (index, name) in names.into_iter().take(people).enumerate() {
            let (first, last) = (name % FIRST_NAMES.len(), name / FIRST_NAMES.len());
            let name = format!("{}_{}", FIRST_NAMES[first], LAST_NAMES[last]);
            let follows = cast.draw_follows(&mut rng, index);
            let theme = index % THEMES.len();
            let hello = format!(
                "Hello, I am {name}. Ask me about {}. #{}",
                choose(&mut rng, THEMES[theme].nouns),
                THEMES[theme].name,
            );
            cast.people.push(Person { name, follows, theme, hello });
        }
        cast
    }

    /// Draws the people that person `index` follows on arrival.
    fn draw_follows(&self, rng: &mut Rng, index: usize) -> Vec<usize> {
        let wanted = rng.usize(FOLLOWS).min(index);
        let mut follows = BTreeSet::new();
        // The most popular people are drawn again and again, so some draws find nobody.
        for _ in 0..DRAWS_PER_FOLLOW * wanted {
            if follows.len() < wanted {
                follows.insert(self.popularity.draw(rng, index));
            }
        }
        follows.into_iter().collect()
    }

    /// Returns the sequence of acts, in which the first `speakers` people talk in rooms.
    pub(crate) fn acts(&self, speakers: usize) -> Acts<'_> {
        Acts {
            cast: self,
            // Another sequence than that of the names.
            rng: Rng::with_seed(self.seed ^ ACTS),
            speakers: speakers.clamp(1, self.people.len()),
            said: vec![0; THEMES.len()],
        }
    }
}

impl Iterator for Acts<'_> {
    type Item = Act;

    fn next(&mut self) -> Option<Act> {
        let people = self.cast.people.len();
        let person = self.person();
        let other = (person + 1 + self.rng.usize(..people - 1)) % people;
        let act = match self.rng.u32(..100) {
            0..35 => Act::Post { author: person, text: self.post(person) },
            35..60 => Act::Like { person, nth: self.rng.usize(..) },
            60..85 => {
                let speaker = self.rng.usize(..self.speakers);
                Act::Say { speaker, text: self.line(speaker) }
            }
            85..88 => Act::Follow { person, other },
            88..90 => Act::Unfollow { person, other },
            _ => Act::Read { person, other },
        };
        Some(act)
    }
}

impl Acts<'_> {
    /// Draws a person: popular people act more often, but not as much as they are followed.
    fn person(&mut self) -> usize {
        let people = self.cast.people.len();
        if self.rng.bool() {
            self.cast.popularity.draw(&mut self.rng, people)
        } else {
            self.rng.usize(..people)
        }
    }

    fn post(&mut self, author: usize) -> String {
        let preferred = self.cast.people[author].theme;
        let theme = if self.rng.u32(..4) == 0 { self.rng.usize(..THEMES.len()) } else { preferred };
        let sentence = choose(&mut self.rng, POSTS);
        capitalize(&self.fill(sentence, &THEMES[theme], author))
    }

    /// Draws a line for the room of the speaker: an opening, and then some answers to it.
    fn line(&mut self, speaker: usize) -> String {
        let theme = self.cast.people[speaker].theme;
        let opens = self.said[theme].is_multiple_of(LINES_PER_CONVERSATION);
        self.said[theme] += 1;
        let sentence = choose(&mut self.rng, if opens { OPENINGS } else { ANSWERS });
        self.fill(sentence, &THEMES[theme], speaker)
    }

    /// Fills the places of a sentence.
    fn fill(&mut self, sentence: &str, theme: &Theme, person: usize) -> String {
        let people = &self.cast.people;
        let a = self.rng.usize(..theme.nouns.len());
        let b = (a + self.rng.usize(1..theme.nouns.len())) % theme.nouns.len();
        let friend = (person + self.rng.usize(1..people.len())) % people.len();
        sentence
            .replace("{a}", theme.nouns[a])
            .replace("{b}", theme.nouns[b])
            .replace("{tag}", theme.name)
            .replace("{when}", choose(&mut self.rng, TIMES))
            .replace("{friend}", &people[friend].name)
    }
}

/// Distribution by Zipf's law: index `k` has the weight `1 / (k + 1)`.
#[derive(Clone, Debug)]
struct Zipf {
    /// Sums of the weights up to each index.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(indices: usize) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=indices).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Zipf { sums: sums.collect() }
    }

    /// Draws an index below `end`, which is at least 1 and at most the number of indices.
    fn draw(&self, rng: &mut Rng, end: usize) -> usize {
        let at = rng.f64() * self.sums[end - 1];
        self.sums[..end].partition_point(|sum| *sum <= at).min(end - 1)
    }
}

fn choose(rng: &mut Rng, texts: &[&'static str]) -> &'static str {
    texts[rng.usize(..texts.len())]
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Distinguishes the seed of the acts from that of the people.
const ACTS: u64 = 0x5eed_ac75;

/// Number of people whom a person follows on arrival, if so many have arrived.
const FOLLOWS: std::ops::RangeInclusive<usize> = 3..=12;

/// Draws for each follow, of which some repeat an earlier one.
const DRAWS_PER_FOLLOW: usize = 8;

/// Lines of a conversation: an opening and its answers.
const LINES_PER_CONVERSATION: usize = 4;

#[cfg(test)]
mod tests {
    use social::{Name, RoomName};

    use super::*;

    #[test]
    fn a_seed_gives_the_same_people_follows_and_texts() {
        let (cast, same, other) = (Cast::draw(7, 50), Cast::draw(7, 50), Cast::draw(8, 50));
        assert_eq!(cast.people, same.people);
        assert_ne!(cast.people, other.people);
        assert!(cast.acts(20).take(1000).eq(same.acts(20).take(1000)));
        assert!(!cast.acts(20).take(1000).eq(other.acts(20).take(1000)));
        // The texts themselves, so that a demo looks the same on every machine.
        let Person { name, follows, hello, .. } = &cast.people[20];
        assert_eq!((name.as_str(), follows.as_slice(), hello.as_str()), TWENTIETH_OF_SEED_7);
    }

    const TWENTIETH_OF_SEED_7: (&str, &[usize], &str) = (
        "kofi_clay",
        &[0, 1, 2, 3, 4, 7, 9, 10, 11, 14, 15, 17],
        "Hello, I am kofi_clay. Ask me about a pot of lentils. #kitchen",
    );

    #[test]
    fn names_are_valid_and_different() {
        let cast = Cast::draw(1, PEOPLE_MAX);
        let names: BTreeSet<&str> = cast.people.iter().map(|person| &*person.name).collect();
        assert_eq!(names.len(), PEOPLE_MAX);
        assert!(names.iter().all(|name| name.parse::<Name>().is_ok()), "{names:?}");
        assert!(THEMES.iter().all(|theme| theme.name.parse::<RoomName>().is_ok()));
    }

    #[test]
    fn follows_go_to_earlier_people_and_mostly_to_popular_ones() {
        let cast = Cast::draw(1, 500);
        let mut followers = vec![0; 500];
        for (index, person) in cast.people.iter().enumerate() {
            assert!(person.follows.iter().all(|other| *other < index));
            assert!(index < 30 || person.follows.len() >= *FOLLOWS.start(), "{person:?}");
            person.follows.iter().for_each(|other| followers[*other] += 1);
        }
        let most: usize = followers[..10].iter().sum();
        let all: usize = followers.iter().sum();
        assert!(all > 2500 && most * 3 > all && most * 4 < all * 3, "{most} of {all}");
    }

    #[test]
    fn every_kind_of_act_comes_and_no_place_stays_empty() {
        let cast = Cast::draw(3, 2);
        let mut kinds = BTreeSet::new();
        for act in cast.acts(40).take(5000) {
            let (kind, people, text) = match act {
                Act::Post { author, text } => ("post", [author, 1 - author], text),
                Act::Like { person, .. } => ("like", [person, 1 - person], String::from("x")),
                Act::Say { speaker, text } => ("say", [speaker, 1 - speaker], text),
                Act::Follow { person, other } => ("follow", [person, other], String::from("x")),
                Act::Unfollow { person, other } => ("unfollow", [person, other], String::from("x")),
                Act::Read { person, other } => ("read", [person, other], String::from("x")),
            };
            kinds.insert(kind);
            assert!(people[0] != people[1] && people.iter().all(|person| *person < 2));
            assert!(!text.is_empty() && !text.contains(['{', '}']), "{text}");
        }
        assert_eq!(kinds.len(), 6);
    }
}
