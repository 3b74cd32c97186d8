//! The only access to atomics, threads, clocks and randomness.
//!
//! This file provides everything in the crate that could make two runs differ, so that a model
//! checker (`--cfg throng_loom`) or the simulator can replace it. No other file of the crate names
//! `std::thread`, `Instant`, `SystemTime` or a source of randomness; `cargo xtask tidy` checks
//! that.

#![allow(clippy::disallowed_methods)]

#[cfg(not(throng_loom))]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

#[cfg(throng_loom)]
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering, fence,
    };
}

#[cfg(throng_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

#[cfg(throng_loom)]
pub(crate) use loom::cell::UnsafeCell;

#[cfg(not(throng_loom))]
pub(crate) use cell::UnsafeCell;
#[cfg(not(throng_loom))]
mod cell {
    /// `std`'s cell with loom's two access methods, so that the same code compiles with both.
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

#[cfg(all(feature = "sim", not(throng_loom)))]
pub(crate) use simulated::{Simulated, is_simulated_here};
#[cfg(all(feature = "sim", not(throng_loom)))]
mod simulated {
    use std::cell::Cell;

    thread_local! {
        static SIMULATED: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether the calling thread drives a simulation, whose virtual time counts.
    pub(crate) fn is_simulated_here() -> bool {
        SIMULATED.get()
    }

    /// The time for which the calling thread drives a simulation.
    pub(crate) struct Simulated {
        /// Whether the thread drives another simulation outside of this one.
        outer: bool,
    }

    impl Simulated {
        pub(crate) fn begin() -> Simulated {
            Simulated { outer: SIMULATED.replace(true) }
        }
    }

    impl Drop for Simulated {
        fn drop(&mut self) {
            SIMULATED.set(self.outer);
        }
    }
}

#[cfg(not(throng_loom))]
pub(crate) use real::*;
#[cfg(not(throng_loom))]
pub use real::{HashState, TaskInstant};
#[cfg(not(throng_loom))]
mod real {
    use std::hash::{BuildHasher, DefaultHasher, RandomState};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    pub(crate) use std::thread::{Builder as ThreadBuilder, JoinHandle, Thread, current, park};
    use std::time::{Duration, Instant};
    /// A source of randomness that repeats for the same seed, and the time of a simulation.
    #[cfg(feature = "sim")]
    pub(crate) use {fastrand::Rng as Random, tokio::time::Instant as VirtualInstant};

    /// Point in time from which a runtime counts its milliseconds.
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

        /// Starts counting the virtual time of the simulation that calls this.
        #[cfg(feature = "sim")]
        pub(crate) fn simulated() -> Epoch {
            Epoch::Simulated(VirtualInstant::now())
        }

        pub(crate) fn is_simulated(self) -> bool {
            !matches!(self, Epoch::Real(_))
        }

        pub(crate) fn elapsed(self) -> Duration {
            match self {
                Epoch::Real(since) => since.elapsed(),
                #[cfg(feature = "sim")]
                Epoch::Simulated(since) => since.elapsed(),
            }
        }
    }

    /// The time of the calling task: the system's, or that of a simulation.
    pub use tokio::time::Instant as TaskInstant;

    /// Makes the hashers of tables: at random, so that nobody outside can provoke collisions, and always
    /// the same in a simulation, whose runs must repeat.
    #[derive(Clone, Debug)]
    pub struct HashState(Option<RandomState>);

    impl HashState {
        pub(crate) fn new(is_simulated: bool) -> HashState {
            HashState((!is_simulated).then(RandomState::new))
        }
    }

    impl BuildHasher for HashState {
        type Hasher = DefaultHasher;

        fn build_hasher(&self) -> DefaultHasher {
            self.0.as_ref().map_or_else(DefaultHasher::new, RandomState::build_hasher)
        }
    }

    #[inline(always)]
    pub(crate) fn is_unwinding() -> bool {
        std::thread::panicking()
    }

    /// Reads the clock of the program: nanoseconds since the first reading, plus one.
    pub(crate) fn monotonic() -> usize {
        static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let elapsed = FIRST.get_or_init(Instant::now).elapsed();
        usize::try_from(elapsed.as_nanos()).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Blocks the calling thread until it is unparked or the time is over.
    pub(crate) fn park_timeout(limit: Duration) {
        std::thread::park_timeout(limit);
    }

    pub(crate) fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    /// Number of threads that the machine can run at once, at least 1.
    pub(crate) fn parallelism() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// A pair of fences, light and heavy, that order like two sequentially consistent fences: if each
/// of two threads writes, fences, and reads the place that the other writes, at least one sees the
/// other's write. If the system can make all cores fence at the request of the heavy side, the
/// light side costs nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fences {
    /// Whether the heavy fence makes all cores fence, so that the light fence need not.
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

    /// Fences on the heavy side. Returns `false` if the system has refused: then nothing is
    /// ordered.
    #[must_use]
    pub(crate) fn heavy(self) -> bool {
        atomic::fence(atomic::Ordering::SeqCst);
        !self.everywhere || everywhere::fence()
    }
}

/// Fences on all cores by `membarrier`: before the call returns, each core that runs a thread of
/// this program passes a full fence.
#[cfg(all(target_os = "linux", not(any(throng_loom, miri))))]
mod everywhere {
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Registers the program for such fences. Returns `false` where they are not available: older
    /// kernels and strict sandboxes refuse.
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

/// Locks a mutex and ignores poison: no panic leaves the data behind this crate's locks half
/// changed, because no user code runs under them.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
