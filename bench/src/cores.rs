//! The distance of two cores: the time in which a written value reaches the other core.
//!
//! The cores of a virtual machine may have a cache in common or not, and the hypervisor may move them while the
//! machine runs. Work that two workers share then takes several times longer, and work of one thread does not.
//! The harness therefore measures the distance before each run, and stores it with the run.

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::spin_loop;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    const TRIPS: u32 = 1_000;

    /// Number of batches, of which the fastest counts: an interrupt makes a batch slow, and nothing makes it
    /// too fast.
    const BATCHES: u32 = 5;

    /// Time after which a thread stops waiting for the other.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A value that two threads write in turn, in a cache line of its own.
    #[repr(align(128))]
    struct Ball(AtomicU32);

    impl Ball {
        /// Waits until the ball has a value; `None` if that takes too long.
        fn wait_for(&self, value: u32) -> Option<()> {
            let begun = Instant::now();
            let mut looks = 0_u32;
            while self.0.load(Ordering::Acquire) != value {
                looks += 1;
                if looks.is_multiple_of(1 << 16) && begun.elapsed() > PATIENCE {
                    return None;
                }
                spin_loop();
            }
            Some(())
        }
    }

    /// Measures the time, in nanoseconds, in which a value goes from the first core that this thread may use to
    /// the last; `None` if there is one core, or if the threads do not get theirs.
    pub(crate) fn core_to_core_ns() -> Option<f64> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let (first, last) = (cores.next()?, cores.next_back()?);
        let ball = Ball(AtomicU32::new(0));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                pin(last)?;
                (0..BATCHES * TRIPS).try_for_each(|trip| {
                    ball.wait_for(2 * trip + 1)?;
                    ball.0.store(2 * trip + 2, Ordering::Release);
                    Some(())
                })
            });
            let fastest = scope.spawn(|| {
                pin(first)?;
                let batches = (0..BATCHES).map(|batch| {
                    let begun = Instant::now();
                    for trip in batch * TRIPS..(batch + 1) * TRIPS {
                        ball.0.store(2 * trip + 1, Ordering::Release);
                        ball.wait_for(2 * trip + 2)?;
                    }
                    Some(begun.elapsed())
                });
                batches.collect::<Option<Vec<_>>>()?.into_iter().min()
            });
            // A thread that panicked has measured nothing.
            let fastest = fastest.join().ok()??;
            other.join().ok()??;
            Some(fastest.as_nanos() as f64 / f64::from(2 * TRIPS))
        })
    }

    /// Lets the calling thread run on one core only.
    fn pin(core: usize) -> Option<()> {
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).ok()
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::core_to_core_ns;

/// Returns `None`: threads are pinned to cores on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn core_to_core_ns() -> Option<f64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_two_cores_has_a_distance() {
        // A quota may grant less time than these cores have, which is no matter here.
        let cores = rustix::thread::sched_getaffinity(None).expect("Linux tells it").count();
        let distance = core_to_core_ns();
        assert_eq!(distance.is_some(), cores > 1, "{distance:?}");
        // Light takes longer than a tenth of a nanosecond from core to core.
        assert!(distance.is_none_or(|ns| ns > 0.1), "{distance:?}");
    }
}
