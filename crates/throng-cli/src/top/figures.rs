//! Short formats for numbers.

use std::time::Duration;

/// Formats a count in at most five characters: `999`, `12.3k`, `4.0M`.
pub(crate) fn count(count: f64) -> String {
    scaled(count, 1000.0, &["", "k", "M", "G", "T", "P", "E"], "")
}

/// Formats bytes by powers of 1024: `64 B`, `12.3 KiB`, `1.0 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"], " B")
}

fn scaled(mut number: f64, step: f64, units: &[&str], whole: &str) -> String {
    let mut unit = 0;
    // A number that would round up to a full step is written in the next unit.
    while number >= step - 0.05 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    match unit {
        0 if number.fract() == 0.0 || number >= 10.0 => format!("{number:.0}{whole}"),
        _ => format!("{number:.1}{}", units[unit]),
    }
}

/// Formats a short time: `640ns`, `12.3µs`, `4.0ms`, `12s`, `3m 20s`.
pub(crate) fn short(seconds: f64) -> String {
    match seconds {
        s if s < 0.999_5e-6 => format!("{:.0}ns", s * 1e9),
        s if s < 0.999_95e-3 => format!("{:.1}µs", s * 1e6),
        s if s < 0.999_95 => format!("{:.1}ms", s * 1e3),
        s if s < 59.95 => format!("{s:.1}s"),
        s => format!("{:.0}m {:02.0}s", (s / 60.0).floor(), (s % 60.0).floor()),
    }
}

/// Formats a long time: `00:00:07`, `3d 04:05:06`.
pub(crate) fn uptime(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days == 0 { clock } else { format!("{days}d {clock}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_five_characters_at_most() {
        for (number, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (7.0, "7"),
            (12.34, "12"),
            (999.0, "999"),
            (999.97, "1.0k"),
            (1000.0, "1.0k"),
            (12_345.0, "12.3k"),
            (999_999.0, "1.0M"),
            (4_000_000.0, "4.0M"),
            (u64::MAX as f64, "18.4E"),
        ] {
            assert_eq!(count(number), text);
            assert!(text.len() <= 6);
        }
    }

    #[test]
    fn bytes_and_times_have_their_unit() {
        for (number, text) in [
            (0, "0 B"),
            (64, "64 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (seconds, text) in [
            (0.0, "0ns"),
            (64e-8, "640ns"),
            (12.34e-6, "12.3µs"),
            (4e-3, "4.0ms"),
            (0.999_99, "1.0s"),
            (12.0, "12.0s"),
            (200.9, "3m 20s"),
        ] {
            assert_eq!(short(seconds), text);
        }
        assert_eq!(uptime(7.9), "00:00:07");
        assert_eq!(uptime(3.0 * 86_400.0 + 4.0 * 3600.0 + 306.0), "3d 04:05:06");
        assert_eq!(uptime(f64::NAN), "00:00:00");
    }
}
