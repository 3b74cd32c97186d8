//! What the store workloads have in common: keys without allocations, values that can be checked
//! without being kept, random numbers, and what one role of a workload came to.

use std::fmt;
use std::io::{self, Write};
use std::ops::Deref;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::latency;
use crate::outcome::Outcome;

/// The longest key of any of these workloads.
const KEY_BYTES_MAX: usize = 24;

/// A short key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Zero behind the key, so that the order is that of the keys, of which none has zeros.
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl Key {
    /// The key written so.
    ///
    /// # Panics
    /// When it is too long: a workload's keys never are.
    pub(crate) fn new(text: fmt::Arguments<'_>) -> Key {
        let mut bytes = [0; KEY_BYTES_MAX];
        let mut rest = &mut bytes[..];
        if rest.write_fmt(text).is_err() {
            panic!("the key {text} is too long");
        }
        let len = (KEY_BYTES_MAX - rest.len()) as u8;
        Key { bytes, len }
    }

    /// A short prefix and a number of ten digits, for loops in which formatting would show.
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

/// Random numbers: xorshift64*, the same from the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(scattered(seed) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// One below a bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// A number that looks random and is always the same for a number: splitmix64.
pub(crate) fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A value for each number, cut from the same noise: so nobody has to make or keep them.
pub(crate) struct Values {
    noise: Vec<u8>,
    least: usize,
    spread: usize,
}

const NOISE_BYTES: usize = 1 << 16;

impl Values {
    /// Values of so many bytes.
    pub(crate) fn of(bytes: std::ops::RangeInclusive<usize>) -> Values {
        let mut random = Random::new(1);
        let words = (NOISE_BYTES + bytes.end()).div_ceil(8);
        let noise = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
        Values { noise, least: *bytes.start(), spread: bytes.end() - bytes.start() + 1 }
    }

    /// The value of that number.
    pub(crate) fn get(&self, number: u64) -> &[u8] {
        let mixed = scattered(number);
        let start = mixed as usize % NOISE_BYTES;
        let bytes = self.least + (mixed >> 32) as usize % self.spread;
        &self.noise[start..start + bytes]
    }
}

/// What those who did the same came to, all together.
pub(crate) struct RoleStats {
    pub(crate) attempts: u64,
    /// What was not as it must be.
    pub(crate) wrong: u64,
    /// From the first one's start to the last one's end.
    pub(crate) time: Duration,
    latencies: Histogram<u64>,
}

impl RoleStats {
    /// # Errors
    /// When there can be no histogram.
    pub(crate) fn new() -> io::Result<RoleStats> {
        let (attempts, wrong, time) = (0, 0, Duration::ZERO);
        Ok(RoleStats { attempts, wrong, time, latencies: latency::histogram()? })
    }

    /// Notes how long an attempt took.
    pub(crate) fn record(&mut self, time: Duration) {
        self.latencies.saturating_record(time.as_nanos() as u64);
    }

    /// Notes how long each of so many attempts took that were made as one.
    pub(crate) fn record_many(&mut self, time: Duration, attempts: u64) {
        self.latencies.saturating_record_n(time.as_nanos() as u64, attempts);
    }

    /// Adds what another came to, at the same time.
    ///
    /// # Errors
    /// Never, for all histograms are alike.
    pub(crate) fn merge(&mut self, other: &RoleStats) -> io::Result<()> {
        self.attempts += other.attempts;
        self.wrong += other.wrong;
        self.time = self.time.max(other.time);
        self.latencies.add(&other.latencies).map_err(io::Error::other)
    }

    /// Attempts in a second of its own time.
    pub(crate) fn per_second(&self) -> f64 {
        rate(self.attempts, self.time)
    }

    /// Notes the rate as `NAMEs_per_s`, and the percentiles.
    pub(crate) fn report(&self, outcome: &mut Outcome, name: &str) {
        outcome.metric(&format!("{name}s_per_s"), self.per_second());
        self.report_percentiles(outcome, name);
    }

    /// Notes the percentiles of what one attempt takes.
    pub(crate) fn report_percentiles(&self, outcome: &mut Outcome, name: &str) {
        latency::report(outcome, &format!("{name}_"), &self.latencies);
    }
}

/// How often something happens in a second.
pub(crate) fn rate(times: u64, time: Duration) -> f64 {
    times as f64 / time.as_secs_f64().max(1e-9)
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
