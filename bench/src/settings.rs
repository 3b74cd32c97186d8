//! What one run is asked to do, the same for every runtime.

use std::fmt;

/// A workload's own setting: its name, what it may be, and what it means.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
}

/// What a setting may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A positive number, this one unless `--set` gives another.
    Number(u64),
    /// A number that may be zero, this one unless `--set` gives another.
    Count(u64),
    /// Any text, none unless `--set` gives some.
    Text,
    /// One of these words, the first unless `--set` gives another. A runtime that does not know the
    /// word says so by [`Peer::knowing`](crate::peer::Peer::knowing); each knows the first.
    Word(&'static [&'static str]),
}

/// What a setting is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Number(u64),
    Word(&'static str),
    Text(&'static str),
}

impl Kind {
    /// What the setting is unless `--set` says.
    pub(crate) fn default(self) -> Value {
        match self {
            Kind::Number(number) | Kind::Count(number) => Value::Number(number),
            Kind::Text => Value::Text(""),
            Kind::Word(words) => Value::Word(words[0]),
        }
    }

    /// A value written out; `None` if the setting may not be that.
    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        match self {
            Kind::Number(_) => text.parse().ok().filter(|&number| number > 0).map(Value::Number),
            Kind::Count(_) => text.parse().ok().map(Value::Number),
            // Kept until the end: there is one for each time that it is given.
            Kind::Text => Some(Value::Text(text.to_owned().leak())),
            Kind::Word(words) => {
                words.iter().find(|word| **word == text).map(|word| Value::Word(word))
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Number(_) => f.write_str("a positive number"),
            Kind::Count(_) => f.write_str("a number"),
            Kind::Text => f.write_str("a text"),
            Kind::Word(words) => f.write_str(&words.join(", ")),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Word(word) | Value::Text(word) => f.write_str(word),
        }
    }
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Number(number) => number.into(),
            Value::Word(word) | Value::Text(word) => word.into(),
        }
    }
}

/// How much work, on how many threads, with which of the workload's own settings.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Processes or messages; the workload says which. At least 1.
    pub(crate) count: u64,
    /// Threads that run processes, for the runtimes that have a choice. At least 1.
    pub(crate) workers: usize,
    keys: Vec<(&'static Key, Value)>,
}

impl Settings {
    /// The settings of a workload with these keys, each at its default.
    pub(crate) fn new(count: u64, workers: usize, keys: &'static [Key]) -> Self {
        Self { count, workers, keys: keys.iter().map(|key| (key, key.kind.default())).collect() }
    }

    /// Gives a key another value, which is one that the key's kind has parsed.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        for (_, current) in self.keys.iter_mut().filter(|(key, _)| key.name == name) {
            *current = value;
        }
    }

    /// The number that one of the workload's keys is set to.
    ///
    /// # Panics
    /// If the workload did not declare the key as a number.
    pub(crate) fn get(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Number(number) => number,
            _ => panic!("the workload did not declare {name} as a number"),
        }
    }

    /// The word that one of the workload's keys is set to.
    ///
    /// # Panics
    /// If the workload did not declare the key as a word.
    pub(crate) fn word(&self, name: &str) -> &'static str {
        match self.value(name) {
            Value::Word(word) => word,
            _ => panic!("the workload did not declare {name} as a word"),
        }
    }

    /// The text that one of the workload's keys is set to; empty unless it was.
    ///
    /// # Panics
    /// If the workload did not declare the key as a text.
    pub(crate) fn text(&self, name: &str) -> &'static str {
        match self.value(name) {
            Value::Text(text) => text,
            _ => panic!("the workload did not declare {name} as a text"),
        }
    }

    /// Every key's name with its value, in the order of declaration.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.keys.iter().map(|(key, value)| (key.name, *value))
    }

    /// The numbers among the values.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.keys().filter_map(|(_, value)| match value {
            Value::Number(number) => Some(number),
            _ => None,
        })
    }

    /// The words that are not their key's first.
    pub(crate) fn special_words(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().filter_map(|(key, value)| match value {
            Value::Word(word) if *value != key.kind.default() => Some(*word),
            _ => None,
        })
    }

    fn value(&self, name: &str) -> Value {
        match self.keys.iter().find(|(key, _)| key.name == name) {
            Some((_, value)) => *value,
            None => panic!("the workload did not declare the key {name}"),
        }
    }
}
