//! The system's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time of a turn, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now(u64);

impl Now {
    pub(crate) fn by_the_clock() -> Now {
        Now(u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX))
    }

    /// Milliseconds since 1970.
    pub(crate) fn ms(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn at(ms: u64) -> Now {
        Now(ms)
    }
}

pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
