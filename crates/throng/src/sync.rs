//! The one door to atomics, threads, clocks and randomness.
//!
//! Everything in this crate that could make two runs differ comes through here, so that a model
//! checker (`--cfg throng_loom`) or the simulator can stand in for it. No other file of the crate
//! names `std::thread`, `Instant`, `SystemTime` or a source of randomness; `cargo xtask tidy` checks
//! that.

#![allow(clippy::disallowed_methods)]

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
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
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

    /// Whether the calling thread is unwinding from a panic.
    #[inline(always)]
    pub(crate) fn is_unwinding() -> bool {
        std::thread::panicking()
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

/// Two fences that order what two sides write before what each then reads, as a pair of sequentially
/// consistent ones does: of two sides that each say something, fence, and look at what the other has
/// said, at least one sees it. Where the system can have all cores fence at once, on request of the
/// heavy side, the light side costs nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fences {
    /// The heavy fence is one on all cores.
    everywhere: bool,
}

impl Default for Fences {
    fn default() -> Self {
        Fences { everywhere: everywhere::register() }
    }
}

impl Fences {
    #[inline(always)]
    pub(crate) fn light(self) {
        if self.everywhere {
            std::sync::atomic::compiler_fence(atomic::Ordering::SeqCst);
        } else {
            atomic::fence(atomic::Ordering::SeqCst);
        }
    }

    /// False if the system has refused: then nothing is ordered.
    #[must_use]
    pub(crate) fn heavy(self) -> bool {
        atomic::fence(atomic::Ordering::SeqCst);
        !self.everywhere || everywhere::fence()
    }
}

/// Linux has each core on which this program runs pass a full fence before the call returns.
#[cfg(all(target_os = "linux", not(any(throng_loom, miri))))]
mod everywhere {
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether that can be had; older kernels and strict sandboxes refuse.
    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn fence() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(not(all(target_os = "linux", not(any(throng_loom, miri)))))]
mod everywhere {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn fence() -> bool {
        false
    }
}

/// Locks, ignoring poison: no code under this crate's locks can leave them half-changed by a
/// panic, because none of it runs a user's code.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
