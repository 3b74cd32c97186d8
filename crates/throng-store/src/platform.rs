//! [`Platform`]: everything outside of a store by which two equal runs could differ: the disk, the clock,
//! chance, and threads. A simulation puts others in their place.
//!
//! LMDB's files are always those of the operating system.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::log::files::{self, Files};

#[derive(Clone, Debug)]
pub(crate) struct Platform {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) clock: Clock,
    /// Whether a store starts threads. Without threads, the simulation makes their steps.
    pub(crate) has_threads: bool,
    /// Most changes in a transaction of a checkpoint: each may touch a page, and LMDB keeps the pages in
    /// memory until the commit.
    pub(crate) txn_changes: usize,
    /// Id of a store that is made; `None` for a random one.
    pub(crate) id: Option<u64>,
}

impl Default for Platform {
    fn default() -> Platform {
        Platform {
            files: files::system(),
            clock: Clock(None),
            has_threads: true,
            txn_changes: 8 << 10,
            id: None,
        }
    }
}

impl Platform {
    pub(crate) fn make_id(&self) -> io::Result<u64> {
        self.id.map_or_else(|| getrandom::u64().map_err(io::Error::other), Ok)
    }
}

/// A source of time: the system's, or the function of a simulation, which returns the time since 1970.
#[derive(Clone)]
pub(crate) struct Clock(pub(crate) Option<Arc<dyn Fn() -> Duration + Send + Sync>>);

/// A point in time, from which time is counted.
#[derive(Debug)]
pub(crate) enum Epoch {
    Real(Instant),
    Simulated(Clock, Duration),
}

impl Clock {
    pub(crate) fn since_1970(&self) -> Duration {
        match &self.0 {
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Some(now) => now(),
        }
    }

    pub(crate) fn begin(&self) -> Epoch {
        match &self.0 {
            None => Epoch::Real(Instant::now()),
            Some(now) => Epoch::Simulated(self.clone(), now()),
        }
    }
}

impl Epoch {
    pub(crate) fn elapsed(&self) -> Duration {
        match self {
            Epoch::Real(since) => since.elapsed(),
            Epoch::Simulated(clock, since) => clock.since_1970().saturating_sub(*since),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "simulated" } else { "system" })
    }
}
