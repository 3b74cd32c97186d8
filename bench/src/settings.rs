//! The settings of a run, the same for every runtime.

use std::fmt;

/// A workload's own setting: its name, its possible values, and its meaning.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
}

/// The possible values of a setting, and its default.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A positive number; the field is the default.
    Number(u64),
    /// A number, possibly zero; the field is the default.
    Count(u64),
    /// Any text; empty by default.
    Text,
    /// A word of this list; the first is the default. Every peer supports the first word, and
    /// declares the others it supports with [`Peer::knowing`](crate::peer::Peer::knowing).
    Word(&'static [&'static str]),
}

/// The allocator of a program, and so of every runtime compiled into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocator {
    /// The allocator of the C library.
    System,
    /// mimalloc, as programs that allocate much often choose it.
    Mimalloc,
}

/// The setting that every workload has; its words are the names of [`Allocator`], in that order.
pub(crate) const ALLOCATOR: Key = Key {
    name: "allocator",
    kind: Kind::Word(&["system", "mimalloc"]),
    about: "allocator of every runtime in Rust; each row states its own",
};

impl Allocator {
    /// The word for the allocator, and for the program that has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Allocator::System => "system",
            Allocator::Mimalloc => "mimalloc",
        }
    }
}

/// The value of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Number(u64),
    Word(&'static str),
    Text(&'static str),
}

impl Kind {
    /// The value without `--set`.
    pub(crate) fn default(self) -> Value {
        match self {
            Kind::Number(number) | Kind::Count(number) => Value::Number(number),
            Kind::Text => Value::Text(""),
            Kind::Word(words) => Value::Word(words[0]),
        }
    }

    /// Parses a value; returns `None` if the setting does not allow it.
    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        match self {
            Kind::Number(_) => text.parse().ok().filter(|&number| number > 0).map(Value::Number),
            Kind::Count(_) => text.parse().ok().map(Value::Number),
            // Leaked: at most once per `--set` argument.
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
            Kind::Word(words) => write!(f, "one of {}", words.join(", ")),
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

/// The amount of work, the number of threads, and the workload's own settings.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Number of units of work, at least 1; [`Workload::counts`](crate::workloads::Workload) names
    /// the unit.
    pub(crate) count: u64,
    /// Number of threads that run processes, at least 1; ignored by a runtime with a fixed number.
    pub(crate) workers: usize,
    keys: Vec<(&'static Key, Value)>,
}

impl Settings {
    /// The settings of a workload with these keys besides [`ALLOCATOR`], each at its default.
    pub(crate) fn new(count: u64, workers: usize, keys: &'static [Key]) -> Self {
        let keys = [&ALLOCATOR].into_iter().chain(keys);
        Self { count, workers, keys: keys.map(|key| (key, key.kind.default())).collect() }
    }

    /// Sets a key to a value that the key's kind has parsed.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        for (_, current) in self.keys.iter_mut().filter(|(key, _)| key.name == name) {
            *current = value;
        }
    }

    /// The value of a number key.
    ///
    /// # Panics
    /// If the workload did not declare the key as a number.
    pub(crate) fn get(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Number(number) => number,
            _ => panic!("the workload did not declare {name} as a number"),
        }
    }

    /// The value of a word key.
    ///
    /// # Panics
    /// If the workload did not declare the key as a word.
    pub(crate) fn word(&self, name: &str) -> &'static str {
        match self.value(name) {
            Value::Word(word) => word,
            _ => panic!("the workload did not declare {name} as a word"),
        }
    }

    /// The value of a text key; empty by default.
    ///
    /// # Panics
    /// If the workload did not declare the key as a text.
    pub(crate) fn text(&self, name: &str) -> &'static str {
        match self.value(name) {
            Value::Text(text) => text,
            _ => panic!("the workload did not declare {name} as a text"),
        }
    }

    /// The name and value of every key, in the order of declaration.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.keys.iter().map(|(key, value)| (key.name, *value))
    }

    /// The sum of the count and of all number keys: no workload starts more processes, unless it says so.
    pub(crate) fn sum(&self) -> u64 {
        self.numbers().fold(self.count, u64::saturating_add)
    }

    /// The values of all number keys.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        self.keys().filter_map(|(_, value)| match value {
            Value::Number(number) => Some(number),
            _ => None,
        })
    }

    /// The values of all word keys that are not set to their default.
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
