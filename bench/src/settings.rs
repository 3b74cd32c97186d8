//! What one run is asked to do, the same for every runtime.

/// A workload's own setting, a positive number: its name, its value unless `--set` gives another,
/// and what it means.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) default: u64,
    pub(crate) about: &'static str,
}

/// How much work, on how many threads, with which of the workload's own settings.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Processes or messages; the workload says which. At least 1.
    pub(crate) count: u64,
    /// Threads that run processes, for the runtimes that have a choice. At least 1.
    pub(crate) workers: usize,
    keys: Vec<(&'static str, u64)>,
}

impl Settings {
    /// The settings of a workload with these keys, each at its default.
    pub(crate) fn new(count: u64, workers: usize, keys: &[Key]) -> Self {
        Self { count, workers, keys: keys.iter().map(|key| (key.name, key.default)).collect() }
    }

    /// Gives a key another value; false if the workload has no such key.
    pub(crate) fn set(&mut self, name: &str, value: u64) -> bool {
        match self.keys.iter_mut().find(|(key, _)| *key == name) {
            Some((_, current)) => {
                *current = value;
                true
            }
            None => false,
        }
    }

    /// The value of one of the workload's keys.
    ///
    /// # Panics
    /// If the workload did not declare the key.
    pub(crate) fn get(&self, name: &str) -> u64 {
        match self.keys.iter().find(|(key, _)| *key == name) {
            Some((_, value)) => *value,
            None => panic!("the workload did not declare the key {name}"),
        }
    }

    /// Every key with its value, in the order of declaration.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.keys.iter().copied()
    }
}
