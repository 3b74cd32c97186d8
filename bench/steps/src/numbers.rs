//! Numbers and keys at random, the same in each run.

use std::time::Duration;

/// A key of twenty digits.
pub type Key = [u8; 20];

/// Returns the key of a number: its hash. No two numbers have the same.
#[inline]
pub fn key(number: u64) -> Key {
    let (mut digits, mut rest) = ([b'0'; 20], scattered(number));
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// Hashes a number with splitmix64.
#[inline]
pub fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns a number below a bound, as a share of all random numbers.
#[inline]
pub fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// Returns the number of things per second.
pub fn rate(times: u64, time: Duration) -> f64 {
    times as f64 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_digits_of_its_hash() {
        for number in [0, 1, 77, u64::MAX] {
            let due = format!("{:020}", scattered(number));
            assert_eq!(key(number), due.as_bytes());
        }
    }
}
