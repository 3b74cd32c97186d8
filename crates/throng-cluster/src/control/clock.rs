//! [`Clock`]: the time by which a lease holds. It goes on while the machine sleeps, and never goes back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A clock, whose begin means nothing. Clones show the same time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// Returns the clock of the system. Outside of Linux the standard library's is the best that there is: where it
    /// rests while the machine sleeps, a node that wakes up may believe for up to a lease too long.
    pub fn system() -> Clock {
        #[cfg(target_os = "linux")]
        return Clock::new(|| {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            // Neither is negative: the clock begins with the machine.
            let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
            Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
        });
        #[cfg(not(target_os = "linux"))]
        {
            let begin = std::time::Instant::now();
            Clock::new(move || begin.elapsed())
        }
    }

    /// Returns the clock that shows what a function says.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// Returns the time.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Clock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_the_system_does_not_go_back() {
        let clock = Clock::system();
        let before = clock.now();
        assert!(clock.now() >= before);
    }
}
