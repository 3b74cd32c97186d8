//! Words of a demo: names of people, themes with their nouns, and sentences with places for both.
//!
//! | place | filled with |
//! |---|---|
//! | `{a}`, `{b}` | two different nouns of the theme |
//! | `{tag}` | the tag of the theme |
//! | `{when}` | a time |
//! | `{friend}` | the name of another person |

/// Subject that people talk about. Each has a room of the same name.
#[derive(Debug)]
pub(crate) struct Theme {
    /// Name of the room, and the tag of posts.
    pub(crate) name: &'static str,
    pub(crate) nouns: &'static [&'static str],
}

/// Themes, of which each person prefers one.
pub(crate) const THEMES: &[Theme] = &[
    Theme {
        name: "kitchen",
        nouns: &[
            "the sourdough",
            "a pot of lentils",
            "the cast-iron pan",
            "pickled cucumbers",
            "my grandmother's dumplings",
            "an onion tart",
            "the espresso machine",
            "burnt toast",
        ],
    },
    Theme {
        name: "birds",
        nouns: &[
            "a pair of goldfinches",
            "the heron at the pond",
            "three swifts",
            "the neighbours' magpie",
            "a very loud wren",
            "the first cranes",
            "an owl in the chimney",
            "my old binoculars",
        ],
    },
    Theme {
        name: "night_sky",
        nouns: &[
            "Jupiter and its moons",
            "the Orion nebula",
            "a slow satellite",
            "the new telescope",
            "a thin moon",
            "the Perseids",
            "Saturn's rings",
            "a sky full of clouds",
        ],
    },
    Theme {
        name: "trains",
        nouns: &[
            "the night train to Vienna",
            "a model of the old tram",
            "the 7:14 to the coast",
            "a signal box from 1911",
            "the dining car",
            "a window seat",
            "the longest viaduct",
            "a timetable of 1962",
        ],
    },
    Theme {
        name: "music",
        nouns: &[
            "the second movement",
            "an out-of-tune piano",
            "my new strings",
            "a choir in the stairwell",
            "the drummer next door",
            "that bass line",
            "an accordion",
            "the encore",
        ],
    },
];

pub(crate) const POSTS: &[&str] = &[
    "{when}, nothing but {a}. No regrets. #{tag}",
    "Nobody warned me about {a}. #{tag}",
    "{a}: better than {b}, and I will not be taking questions. #{tag}",
    "Is it just me, or does everybody talk about {a}? #{tag}",
    "Small joys: {a}, {b}, and an hour without plans. #{tag}",
    "@{friend} was right about {a}. #{tag}",
    "Today's plan: {a}. Tomorrow's plan: {b}.",
    "I keep thinking about {a}. #{tag}",
    "If you see {a}, say hello from me. #{tag}",
    "{a} again. Third time this week. #{tag}",
    "Things that cannot be explained, only shown: {a}. #{tag}",
    "Thank you, @{friend}, for {a}!",
    "A picture would help, but imagine {a} beside {b}. #{tag}",
    "Learned {when} that {a} and {b} do not mix. #{tag}",
];

/// Sentences that begin a conversation in a room.
pub(crate) const OPENINGS: &[&str] = &[
    "has anybody tried {a}?",
    "so, {a} or {b}?",
    "you will not believe it, {when}: {a}!",
    "{friend}, are you here? it is about {a}",
    "question for the room: how do you start with {a}?",
    "I finally have {a}",
    "what happened to {a}?",
    "looking for company {when}, there will be {a}",
];

/// Sentences that continue a conversation.
pub(crate) const ANSWERS: &[&str] = &[
    "yes, {when}, and it was worth it",
    "only with {b}",
    "I would wait for {a} first",
    "ask {friend}, they know everything about that",
    "ha, same here",
    "hm, I prefer {b}",
    "that is exactly what I said {when}",
    "tell us more!",
    "count me in",
    "not before breakfast",
];

pub(crate) const TIMES: &[&str] = &[
    "this morning",
    "last night",
    "all weekend",
    "on the way home",
    "before the rain",
    "at lunch",
    "after work",
];

pub(crate) const FIRST_NAMES: &[&str] = &[
    "ada", "amir", "anouk", "arda", "bela", "bruno", "carla", "cem", "dana", "dmitri", "elif",
    "emil", "fatou", "finn", "greta", "hana", "hugo", "ines", "ivo", "jana", "jonas", "kaya",
    "kofi", "lena", "luca", "maja", "milo", "nadia", "noor", "olga", "oskar", "priya", "rafa",
    "rosa", "sami", "selma", "tariq", "uma", "yuki", "zora",
];

pub(crate) const LAST_NAMES: &[&str] = &[
    "alder", "ash", "bach", "berg", "birch", "brook", "clay", "cliff", "cloud", "cove", "dale",
    "dawn", "drift", "dune", "elm", "fell", "fern", "field", "ford", "frost", "glen", "grove",
    "hazel", "heath", "hill", "ivy", "lake", "larch", "marsh", "meadow", "mill", "moor", "moss",
    "oak", "pine", "pond", "rain", "reed", "ridge", "river", "rowan", "sand", "shore", "snow",
    "stone", "storm", "vale", "wave", "wind", "wood",
];
