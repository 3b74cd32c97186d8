//! Which workers sleep or search for work, and how sleeping workers are woken.
//!
//! Sleeping is a handshake over two sequentially consistent fences: a thread that adds work fences
//! and then checks for sleepers; a worker that goes to sleep enters the list, fences, and then
//! checks for work once more. At least one of them sees the other.
//!
//! No worker is woken while another searches: the searcher will find the work, or check again after
//! it has entered the list. A worker that sees work only at that check becomes a searcher again if
//! it may, and does not just take the work: the last searcher that finds work wakes the next
//! worker, because other threads may have added more while it searched, and have relied on it.
//!
//! Invariants:
//! 1. `sleeping` is the length of `list`, and changes under its lock.
//! 2. A worker that another thread takes off the list counts as searching from then on.

use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{Mutex, lock};

/// Sleeping and searching workers; see the file's head. Has cache lines of its own, because
/// searchers write it all the time and each turn reads the data beside it.
#[repr(align(128))]
pub(crate) struct Sleepers {
    list: Mutex<Vec<usize>>,
    sleeping: AtomicU32,
    searching: AtomicU32,
    /// Greatest number of workers that may search at a time.
    searchers_most: u32,
}

impl Sleepers {
    /// Creates the state for this many workers: at most half of them search at a time, at least
    /// one.
    pub(crate) fn new(workers: usize) -> Sleepers {
        Sleepers {
            list: Mutex::new(Vec::with_capacity(workers)),
            sleeping: AtomicU32::new(0),
            searching: AtomicU32::new(0),
            searchers_most: (workers as u32 / 2).max(1),
        }
    }

    /// Wakes a sleeper for work that was added, unless a worker is searching already.
    #[inline]
    pub(crate) fn notify(&self, unpark: impl FnOnce(usize)) {
        fence(Ordering::SeqCst);
        if self.searching.load(Ordering::Relaxed) == 0 && self.sleeping.load(Ordering::Relaxed) > 0
        {
            self.wake_one(unpark);
        }
    }

    #[cold]
    fn wake_one(&self, unpark: impl FnOnce(usize)) {
        let mut list = lock(&self.list);
        if self.searching.load(Ordering::Relaxed) > 0 {
            return;
        }
        let Some(worker) = list.pop() else { return };
        // Counted on behalf of the woken worker, which wakes up searching (invariant 2).
        self.searching.fetch_add(1, Ordering::SeqCst);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        drop(list);
        unpark(worker);
    }

    /// Lets a worker without work search; false if enough workers search already.
    pub(crate) fn begin_search(&self) -> bool {
        if self.searching.load(Ordering::Relaxed) >= self.searchers_most {
            return false;
        }
        self.searching.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Ends the search of a worker that found work; true if it was the last searcher, so that
    /// another may be needed.
    #[must_use]
    pub(crate) fn end_search(&self) -> bool {
        self.searching.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Enters a worker that found no work in the list of sleepers. The worker must check for work
    /// once more after this call.
    pub(crate) fn begin_sleep(&self, worker: usize, was_searching: bool) {
        {
            let mut list = lock(&self.list);
            list.push(worker);
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            if was_searching {
                self.searching.fetch_sub(1, Ordering::SeqCst);
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Takes a woken worker off the list; true if it was woken to search, false if it woke by
    /// itself.
    pub(crate) fn end_sleep(&self, worker: usize) -> bool {
        let mut list = lock(&self.list);
        match list.iter().position(|&sleeper| sleeper == worker) {
            Some(position) => {
                list.swap_remove(position);
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
                false
            }
            None => true,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.sleeping.load(Ordering::SeqCst) as usize
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use crate::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar};
    use loom::thread;

    /// Threads that park, and a number of pieces of work.
    struct Pool {
        sleepers: Sleepers,
        work: AtomicUsize,
        wakes: [(Mutex<bool>, Condvar); 2],
    }

    impl Pool {
        fn add(&self) {
            self.work.fetch_add(1, Ordering::Release);
            self.notify();
        }

        fn notify(&self) {
            self.sleepers.notify(|worker| {
                *lock(&self.wakes[worker].0) = true;
                self.wakes[worker].1.notify_one();
            });
        }

        fn take(&self) -> bool {
            let mut work = self.work.load(Ordering::Acquire);
            while work > 0 {
                let less =
                    self.work.compare_exchange(work, work - 1, Ordering::AcqRel, Ordering::Acquire);
                match less {
                    Ok(_) => return true,
                    Err(now) => work = now,
                }
            }
            false
        }

        fn park(&self, worker: usize) {
            let mut woken = lock(&self.wakes[worker].0);
            while !*woken {
                woken = self.wakes[worker].1.wait(woken).unwrap();
            }
            *woken = false;
        }

        /// Searches and sleeps like a worker, until it has found one piece of work.
        fn find(&self, worker: usize) {
            let mut searching = self.sleepers.begin_search();
            loop {
                if searching && self.take() {
                    if self.sleepers.end_search() {
                        self.notify();
                    }
                    return;
                }
                self.sleepers.begin_sleep(worker, searching);
                let sleeps = self.work.load(Ordering::Acquire) == 0;
                if sleeps {
                    self.park(worker);
                }
                searching =
                    self.sleepers.end_sleep(worker) || !sleeps && self.sleepers.begin_search();
                if !searching && self.take() {
                    return;
                }
            }
        }
    }

    fn pool() -> Arc<Pool> {
        Arc::new(Pool {
            sleepers: Sleepers::new(2),
            work: AtomicUsize::new(0),
            wakes: std::array::from_fn(|_| (Mutex::new(false), Condvar::new())),
        })
    }

    /// Loom reports a deadlock if a sleeper is never woken.
    #[test]
    fn loom_work_added_as_a_worker_falls_asleep_is_found() {
        loom::model(|| {
            let pool = pool();
            let worker = thread::spawn({
                let pool = pool.clone();
                move || pool.find(0)
            });
            pool.add();
            worker.join().unwrap();
            assert_eq!(pool.sleepers.count(), 0);
        });
    }

    #[test]
    fn loom_two_pieces_of_work_wake_two_workers() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let pool = pool();
            let workers = [0, 1].map(|worker| {
                let pool = pool.clone();
                thread::spawn(move || pool.find(worker))
            });
            pool.add();
            pool.add();
            for worker in workers {
                worker.join().unwrap();
            }
        });
    }
}
