//! Who of the workers sleeps, who searches for work, and who wakes whom.
//!
//! Sleeping is a handshake over two sequentially consistent fences: the one who adds work fences
//! and then looks for sleepers; the one who goes to sleep enters the list, fences, and then looks
//! for work once more. At least one of them sees the other.
//!
//! Nobody is woken while somebody searches: the searcher will find the work, or look again after
//! it has entered the list. Who sees work only then becomes a searcher again if it may, and does not
//! just take it; for a searcher that finds something and is the last one wakes the next: others may
//! have added more while it searched, and have relied on it.
//!
//! Invariants:
//! 1. `sleeping` is the length of `list`, and changes under its lock.
//! 2. Whoever is taken off the list by another counts as searching from then on.

use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{Mutex, lock};

/// See the file's head. On lines of its own: searchers write it all the time, and beside it lies
/// what each turn reads.
#[repr(align(128))]
pub(crate) struct Sleepers {
    list: Mutex<Vec<usize>>,
    sleeping: AtomicU32,
    searching: AtomicU32,
    /// How many may search at a time.
    searchers_most: u32,
}

impl Sleepers {
    /// For so many workers: at most half of them search at a time, at least one.
    pub(crate) fn new(workers: usize) -> Sleepers {
        Sleepers {
            list: Mutex::new(Vec::with_capacity(workers)),
            sleeping: AtomicU32::new(0),
            searching: AtomicU32::new(0),
            searchers_most: (workers as u32 / 2).max(1),
        }
    }

    /// There is work that a sleeper could do: wakes one, unless somebody searches already.
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
        // In the woken one's name: it wakes up searching.
        self.searching.fetch_add(1, Ordering::SeqCst);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        drop(list);
        unpark(worker);
    }

    /// Whether a worker without work may search.
    pub(crate) fn begin_search(&self) -> bool {
        if self.searching.load(Ordering::Relaxed) >= self.searchers_most {
            return false;
        }
        self.searching.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// A searcher found something; true if it was the last one, and another may be needed.
    #[must_use]
    pub(crate) fn end_search(&self) -> bool {
        self.searching.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// A worker that found nothing goes to sleep, and must look for work once more after this.
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

    /// A worker wakes; true if it was woken to search, false if it woke by itself.
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

    /// How many sleep.
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

    /// Threads that park, and a count of pieces of work.
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

        /// As a worker does it, until it has found one piece of work.
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
