//! Durations as typed by people: `500ms`, `10s`, `15m`, `12h`, `30d`.

use std::time::Duration;

/// The text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a duration is a whole number followed by ms, s, m, h or d, such as 30s")]
pub(crate) struct DurationError;

/// Parses a duration.
///
/// # Errors
/// The text is not a number with a unit, or the number is too large.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or(DurationError)?;
    let (number, unit) = text.split_at(unit_at);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(DurationError),
    };
    let number: u64 = number.parse().map_err(|_| DurationError)?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or(DurationError)
}

/// The text is not a duration above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PositiveError {
    #[error(transparent)]
    Malformed(#[from] DurationError),
    #[error("this duration must be above zero, because nothing would be possible within it")]
    Zero,
}

/// Parses a duration above zero.
///
/// # Errors
/// The text is not a number with a unit, or the number is zero or too large.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, PositiveError> {
    let duration = parse(text)?;
    if duration.is_zero() { Err(PositiveError::Zero) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_known_and_nothing_else() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("15m", 900_000),
            ("12h", 43_200_000),
            ("30d", 2_592_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1.5s", "10 s", "10S", "1y", "99999999999999999999s"] {
            assert_eq!(parse(text), Err(DurationError), "{text}");
        }
        assert_eq!(parse(&format!("{}d", u64::MAX)), Err(DurationError));
    }
}
