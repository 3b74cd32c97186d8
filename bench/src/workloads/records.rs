//! Shared parts of the store workloads: keys without allocations, values that can be checked
//! without being kept, random numbers, and the statistics of a role.

use std::fmt;
use std::io::{self, Write};
use std::ops::Deref;
use std::time::Duration;

use bench_steps::numbers::below;
pub(crate) use bench_steps::numbers::{rate, scattered};
use hdrhistogram::Histogram;

use super::prelude::*;

/// Length of the longest key in the store workloads.
const KEY_BYTES_MAX: usize = 24;

/// A key of at most [`KEY_BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The key, padded with zeros. No key contains a zero byte, so the derived order is that of the
    /// keys.
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl Key {
    /// Formats a key.
    pub(crate) fn new(text: fmt::Arguments<'_>) -> Key {
        let mut bytes = [0; KEY_BYTES_MAX];
        let mut rest = &mut bytes[..];
        if rest.write_fmt(text).is_err() {
            panic!("the key {text} is too long");
        }
        let len = (KEY_BYTES_MAX - rest.len()) as u8;
        Key { bytes, len }
    }

    /// Builds a key from a short prefix and a number of ten digits, for loops in which formatting
    /// would be a noticeable cost.
    pub(crate) fn numbered(prefix: &[u8], number: u64) -> Key {
        const DIGITS: usize = 10;
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..prefix.len()].copy_from_slice(prefix);
        let mut rest = number;
        for digit in bytes[prefix.len()..prefix.len() + DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Key { bytes, len: (prefix.len() + DIGITS) as u8 }
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A generator of random numbers: xorshift64*, deterministic for a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random::of(scattered(seed) | 1)
    }

    /// A generator in a state, which is not 0.
    pub(crate) fn of(state: u64) -> Random {
        Random(state)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        below(self.next(), bound)
    }
}

/// Returns all numbers below `count` in random order, which is the same each time.
pub(crate) fn shuffled(count: u64) -> Vec<u64> {
    let (mut numbers, mut random) = ((0..count).collect::<Vec<_>>(), Random::new(1));
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, random.below(last as u64 + 1) as usize);
    }
    numbers
}

/// A value for each number: a slice of a shared buffer of noise, so that no value has to be made or
/// kept.
pub(crate) struct Values {
    noise: Vec<u8>,
    least: usize,
    spread: usize,
}

const NOISE_BYTES: usize = 1 << 16;

impl Values {
    pub(crate) fn of(bytes: std::ops::RangeInclusive<usize>) -> Values {
        let mut random = Random::new(1);
        let words = (NOISE_BYTES + bytes.end()).div_ceil(8);
        let noise = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
        Values { noise, least: *bytes.start(), spread: bytes.end() - bytes.start() + 1 }
    }

    pub(crate) fn get(&self, number: u64) -> &[u8] {
        let mixed = scattered(number);
        let start = mixed as usize % NOISE_BYTES;
        let bytes = self.least + (mixed >> 32) as usize % self.spread;
        &self.noise[start..start + bytes]
    }
}

/// Combined statistics of all threads or processes with the same role.
pub(crate) struct RoleStats {
    pub(crate) attempts: u64,
    pub(crate) wrong: u64,
    /// Time from the first start to the last end.
    pub(crate) time: Duration,
    latencies: Histogram<u64>,
}

impl RoleStats {
    pub(crate) fn new() -> io::Result<RoleStats> {
        let (attempts, wrong, time) = (0, 0, Duration::ZERO);
        Ok(RoleStats { attempts, wrong, time, latencies: latency::histogram()? })
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.latencies.saturating_record(time.as_nanos() as u64);
    }

    /// Records the same latency for several attempts that were made together.
    pub(crate) fn record_many(&mut self, time: Duration, attempts: u64) {
        self.latencies.saturating_record_n(time.as_nanos() as u64, attempts);
    }

    /// Merges the statistics of a thread or process that ran at the same time.
    pub(crate) fn merge(&mut self, other: &RoleStats) -> io::Result<()> {
        self.attempts += other.attempts;
        self.wrong += other.wrong;
        self.time = self.time.max(other.time);
        self.latencies.add(&other.latencies).map_err(io::Error::other)
    }

    pub(crate) fn per_second(&self) -> f64 {
        rate(self.attempts, self.time)
    }

    /// Adds the rate, as `NAMEs_per_s`, and the percentiles to an outcome.
    pub(crate) fn report(&self, outcome: &mut Outcome, name: &str) {
        outcome.metric(&format!("{name}s_per_s"), self.per_second());
        self.report_percentiles(outcome, name);
    }

    /// Adds the percentiles of an attempt's latency to an outcome.
    pub(crate) fn report_percentiles(&self, outcome: &mut Outcome, name: &str) {
        latency::report(outcome, &format!("{name}_"), &self.latencies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_their_bytes_do() {
        let keys = ["a", "a_", "aa", "mega_w10_key", "mega_w1_key"]
            .map(|key| Key::new(format_args!("{key}")));
        assert!(keys.iter().map(|key| &**key).is_sorted());
        assert!(keys.is_sorted());
        assert_eq!(&*keys[2], b"aa");
        assert_eq!(&*Key::numbered(b"get", 1_203), b"get0000001203");
    }

    #[test]
    fn values_have_all_lengths_and_stay_the_same() {
        let values = Values::of(200..=500);
        let lengths: Vec<usize> = (0..10_000).map(|number| values.get(number).len()).collect();
        assert_eq!(lengths.iter().min(), Some(&200));
        assert_eq!(lengths.iter().max(), Some(&500));
        assert_eq!(values.get(7), Values::of(200..=500).get(7));
        assert_ne!(values.get(7), values.get(8));
    }
}
