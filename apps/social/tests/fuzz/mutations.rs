//! Inputs for the fuzz targets: changed copies of committed seeds, the same in each run.

use std::fs;
use std::path::Path;

/// Source of inputs for a target.
pub(crate) struct Mutations {
    random: fastrand::Rng,
    seeds: Vec<Vec<u8>>,
    /// Words that a change inserts as a whole.
    words: Vec<Vec<u8>>,
}

/// Maximum length of an input.
const BYTES_MAX: usize = 4096;

impl Mutations {
    /// Reads the seeds and the words of a target from `fuzz/`.
    pub(crate) fn of(target: &str) -> Mutations {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
        let files = fs::read_dir(fuzz.join("seeds").join(target)).unwrap();
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort(); // the order of a directory is not that of another machine
        let seeds: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(!seeds.is_empty(), "{target} has no seed");
        let words = fs::read_to_string(fuzz.join("words").join(target)).unwrap_or_default();
        let words = words.lines().filter_map(word).collect();
        Mutations { random: fastrand::Rng::with_seed(seeds.len() as u64), seeds, words }
    }

    /// Returns the seeds, which are inputs, too.
    pub(crate) fn seeds(&self) -> &[Vec<u8>] {
        &self.seeds
    }

    /// Returns the next input: a seed with 1 to 8 changes.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let seed = self.random.usize(..self.seeds.len());
        let mut input = self.seeds[seed].clone();
        for _ in 0..1 << self.random.u8(0..4) {
            self.change(&mut input);
        }
        input.truncate(BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let start = self.random.usize(..=input.len());
        let end = self.random.usize(start..=input.len().min(start + 64));
        let new = match self.random.u8(..8) {
            0 => Vec::new(),
            1 => (0..self.random.usize(1..8)).map(|_| self.random.u8(..)).collect(),
            2 => input[start..end].repeat(2),
            3 | 4 if !self.words.is_empty() => {
                self.words[self.random.usize(..self.words.len())].clone()
            }
            5 => {
                let other = self.random.usize(..self.seeds.len());
                let other = &self.seeds[other];
                let from = self.random.usize(..=other.len());
                other[from..self.random.usize(from..=other.len())].to_vec()
            }
            6 => vec![self.random.choice([0, 1, 0x7f, 0x80, 0xff, b'\r', b'\n']).unwrap_or(0)],
            _ => {
                // A single bit, so that lengths and numbers are changed a little.
                if let Some(byte) = input.get_mut(start) {
                    *byte ^= 1 << self.random.u8(..8);
                }
                return;
            }
        };
        // Half of the insertions replace something, so that inputs do not only grow.
        let end = if self.random.bool() { start } else { end };
        input.splice(start..end, new);
    }
}

/// Decodes a line of libFuzzer's dictionaries: a word in quotes, with `\xNN` for a byte.
fn word(line: &str) -> Option<Vec<u8>> {
    let mut rest = line.strip_prefix('"')?.strip_suffix('"')?.as_bytes();
    let mut word = Vec::new();
    while let [first, after @ ..] = rest {
        (word, rest) = match rest {
            [b'\\', b'x', high, low, after @ ..] => {
                let digits = std::str::from_utf8(&[*high, *low]).ok()?.to_owned();
                word.push(u8::from_str_radix(&digits, 16).ok()?);
                (word, after)
            }
            [b'\\', escaped, after @ ..] => {
                word.push(*escaped);
                (word, after)
            }
            _ => {
                word.push(*first);
                (word, after)
            }
        };
    }
    Some(word)
}
