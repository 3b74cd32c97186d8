//! Plan: the time at which a clock thread that parks looks at a table of deadlines again.
//!
//! | word | written by |
//! |---|---|
//! | `earliest`, of a shard | threads that insert, and the clock thread, under the shard's lock |
//! | `planned` | clock threads that are about to park |
//!
//! Invariant: a clock thread that parks wakes at `planned` or before, and the thread that inserts an earlier
//! deadline unparks it. The inserting side stores `earliest`, fences and loads `planned`; the clock thread
//! stores `planned`, fences and loads `earliest`. So at least one sees the other.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// Time that is later than all deadlines: nanoseconds, like every time here.
pub(super) const NEVER: usize = usize::MAX;

/// Whether the thread that has just stored the deadline `at` as the `earliest` of its shard must unpark the
/// clock threads.
pub(super) fn must_unpark(planned: &AtomicUsize, at: usize) -> bool {
    fence(Ordering::SeqCst);
    at < planned.load(Ordering::Relaxed)
}

/// Plans to park until the earliest deadline, and returns it. `None` if a deadline before that has come
/// meanwhile, so that the clock thread must not park.
pub(super) fn plan(planned: &AtomicUsize, earliest: impl Fn() -> usize) -> Option<usize> {
    let until = earliest();
    planned.store(until, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    (earliest() >= until).then_some(until)
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_a_deadline_inserted_as_a_clock_thread_parks_is_not_overslept() {
        loom::model(|| {
            let words = Arc::new((AtomicUsize::new(20), AtomicUsize::new(30)));
            let inserts = thread::spawn({
                let words = words.clone();
                move || {
                    let (earliest, planned) = &*words;
                    earliest.store(10, Ordering::Relaxed);
                    must_unpark(planned, 10)
                }
            });
            let (earliest, planned) = &*words;
            let parks_until = plan(planned, || earliest.load(Ordering::Relaxed));
            let unparks = inserts.join().unwrap();
            assert!(unparks || parks_until.is_none_or(|until| until <= 10));
        });
    }
}
