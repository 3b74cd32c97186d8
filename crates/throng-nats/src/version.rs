//! Versions of servers, and the oldest that is supported.

use crate::error::NatsError;

/// The oldest version whose behaviour throng's tests have seen.
pub(crate) const NEEDED: &str = "2.15.1";

/// Refuses a server that is too old, or does not say how old it is.
pub(crate) fn check(server: &str, version: &str) -> Result<(), NatsError> {
    if is_at_least(version, NEEDED) {
        return Ok(());
    }
    let (server, found) = (server.to_owned(), version.to_owned());
    Err(NatsError::Version { server, found, needed: NEEDED })
}

fn is_at_least(version: &str, needed: &str) -> bool {
    match (parse(version), parse(needed)) {
        (Some(version), Some(needed)) => version >= needed,
        _ => false,
    }
}

/// Returns the numbers of a version, and whether it is a release: a pre-release is older than it.
fn parse(version: &str) -> Option<([u64; 3], bool)> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let version = version.split_once('+').map_or(version, |(version, _)| version);
    let (numbers, is_release) =
        version.split_once('-').map_or((version, true), |(numbers, _)| (numbers, false));
    let numbers: Vec<u64> = numbers.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((numbers.try_into().ok()?, is_release))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers_and_a_pre_release_is_older() {
        let old = ["2.15.0", "2.9.10", "2.14.99", "1.99.99", "2.15.1-RC.3", "2.15", "", "dev"];
        for version in old {
            assert!(check("n1", version).is_err(), "{version}");
        }
        for version in ["2.15.1", "2.15.10", "2.16.0-dev", "3.0.0", "v2.15.1", "2.15.1+build-7"] {
            assert_eq!(check("n1", version), Ok(()), "{version}");
        }
    }

    #[test]
    fn the_error_names_the_server_and_both_versions() {
        let sentence = check("n1", "2.9.10").expect_err("an old server").to_string();
        assert!(["n1", "2.9.10", NEEDED].iter().all(|word| sentence.contains(word)), "{sentence}");
    }
}
