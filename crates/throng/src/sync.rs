//! The one door to atomics, threads, clocks and randomness.
//!
//! Everything in this crate that could make two runs differ comes through here, so that a model
//! checker (`--cfg throng_loom`) or the simulator can stand in for it. No other file of the crate
//! names `std::thread`, `Instant`, `SystemTime` or a source of randomness; `cargo xtask tidy` checks
//! that.

#[cfg(not(throng_loom))]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

#[cfg(throng_loom)]
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
}

#[cfg(throng_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

#[cfg(throng_loom)]
pub(crate) use loom::cell::UnsafeCell;

#[cfg(not(throng_loom))]
pub(crate) use cell::UnsafeCell;
#[cfg(not(throng_loom))]
mod cell {
    /// `std`'s cell behind loom's two access methods, so that one source serves both.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[inline(always)]
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(not(throng_loom))]
pub(crate) use real::*;
#[cfg(not(throng_loom))]
mod real {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
    pub(crate) use std::thread::{Builder as ThreadBuilder, JoinHandle, Thread, current, park};
    use std::time::{Duration, Instant};
    /// A source of randomness that repeats itself for its seed, and the time of a simulation.
    #[cfg(feature = "sim")]
    pub(crate) use {fastrand::Rng as Random, tokio::time::Instant as VirtualInstant};

    /// A fixed point from which a runtime counts its milliseconds.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Epoch {
        Real(Instant),
        #[cfg(feature = "sim")]
        Simulated(VirtualInstant),
    }

    impl Epoch {
        pub(crate) fn now() -> Epoch {
            Epoch::Real(Instant::now())
        }

        /// Counts the time of the simulation it is called in.
        #[cfg(feature = "sim")]
        pub(crate) fn simulated() -> Epoch {
            Epoch::Simulated(VirtualInstant::now())
        }

        pub(crate) fn elapsed(self) -> Duration {
            match self {
                Epoch::Real(since) => since.elapsed(),
                #[cfg(feature = "sim")]
                Epoch::Simulated(since) => since.elapsed(),
            }
        }
    }

    /// Blocks the calling thread until unparked or until the time is over.
    pub(crate) fn park_timeout(limit: Duration) {
        std::thread::park_timeout(limit);
    }

    /// Blocks the calling thread for a while.
    pub(crate) fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    /// How many threads the machine can run at once, at least one.
    pub(crate) fn parallelism() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// Locks, ignoring poison: no code under this crate's locks can leave them half-changed by a
/// panic, because none of it runs a user's code.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
