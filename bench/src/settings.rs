//! The settings of a run, the same for every runtime.

use std::fmt;

use serde::Deserialize;

use crate::workloads::Workload;

#[derive(Deserialize, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    #[serde(flatten)]
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
}

/// The possible values of a setting, and its default.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A positive number; the field is the default.
    Number(u64),
    /// A number, possibly zero; the field is the default.
    Count(u64),
    /// Any text; the field is the default.
    Text(&'static str),
    /// One of these words, the first of which is the default. Every row supports the first word, and `runtimes.toml`
    /// has the others that it supports.
    Words(&'static str),
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
    kind: Kind::Words("system mimalloc"),
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Number(u64),
    Word(&'static str),
    Text(&'static str),
}

impl Kind {
    pub(crate) fn default(self) -> Value {
        match self {
            Kind::Number(number) | Kind::Count(number) => Value::Number(number),
            Kind::Text(text) => Value::Text(text),
            Kind::Words(words) => Value::Word(words.split(' ').next().unwrap_or_default()),
        }
    }

    /// Parses a value; returns `None` if the setting does not allow it.
    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        match self {
            Kind::Number(_) => text.parse().ok().filter(|&number| number > 0).map(Value::Number),
            Kind::Count(_) => text.parse().ok().map(Value::Number),
            // Leaked: at most once per `--set` argument.
            Kind::Text(_) => Some(Value::Text(text.to_owned().leak())),
            Kind::Words(words) => words.split(' ').find(|word| *word == text).map(Value::Word),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Number(_) => f.write_str("a positive number"),
            Kind::Count(_) => f.write_str("a number"),
            Kind::Text(_) => f.write_str("a text"),
            Kind::Words(words) => write!(f, "one of {}", words.replace(' ', ", ")),
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
    pub(crate) workload: &'static Workload,
    /// Number of units of work, at least 1.
    pub(crate) count: u64,
    /// Number of threads that run processes, at least 1; ignored by a runtime with a fixed number.
    pub(crate) workers: usize,
    keys: Vec<(&'static Key, Value)>,
}

impl Settings {
    pub(crate) fn new(workload: &'static Workload, count: u64, workers: usize) -> Self {
        let keys = [&ALLOCATOR].into_iter().chain(&workload.keys);
        let keys = keys.map(|key| (key, key.kind.default())).collect();
        Self { workload, count, workers, keys }
    }

    /// Sets a key to a value that the key's kind has parsed.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        for (_, current) in self.keys.iter_mut().filter(|(key, _)| key.name == name) {
            *current = value;
        }
    }

    /// The value of a number key, or the count.
    pub(crate) fn get(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Number(number) => number,
            _ => panic!("{name} is not a number"),
        }
    }

    /// The value of a key that is a word or a text.
    pub(crate) fn word(&self, name: &str) -> &'static str {
        match self.value(name) {
            Value::Word(word) | Value::Text(word) => word,
            Value::Number(_) => panic!("{name} is a number"),
        }
    }

    /// The name and value of every key, in the order of declaration.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.keys.iter().map(|(key, value)| (key.name, *value))
    }

    pub(crate) fn processes(&self) -> u64 {
        match self.workload.processes {
            Some(formula) => self.evaluate(formula),
            // The sum of all numbers: no workload without a formula starts more.
            None => self.keys().fold(self.count, |sum, (_, value)| match value {
                Value::Number(number) => sum.saturating_add(number),
                _ => sum,
            }),
        }
    }

    /// The value of a sum of products and quotients, whose parts are numbers and names; quotients are rounded up.
    fn evaluate(&self, formula: &str) -> u64 {
        let number = |part: &str| part.parse().unwrap_or_else(|_| self.get(part));
        let term = |term: &str| match term.split_once(" / ") {
            Some((of, by)) => number(of).div_ceil(number(by)),
            None => term.split(" * ").map(number).fold(1, u64::saturating_mul),
        };
        formula.split(" + ").map(term).fold(0, u64::saturating_add)
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
            None if name == "count" => Value::Number(self.count),
            None => panic!("the workload has no setting {name}"),
        }
    }
}
