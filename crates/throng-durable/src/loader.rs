//! [`Loader`]: loads states on the worker while they are in memory, and on threads that may block otherwise.
//!
//! A load may wait for the disk, and runs the user's `Deserialize` and `migrate`. A change of thread and back costs
//! two to three times as much as a load from memory, so a load runs where its process runs, as long as such loads
//! are quick. A load that has waited moves the next ones to tokio's threads for blocking work, where a disk gets
//! many reads at once and the workers go on with other processes.
//!
//! ```text
//!  first turn ──▶ waits = 0: read, decode ───────────────────▶ first turn goes on
//!             └─▶ waits > 0: queue ──▶ thread: read, decode ──┘
//! ```
//!
//! *Waits* rise by [`WAIT`] for each load that has waited, and fall by one for each that has not. Further threads
//! begin as they rise. A thread serves the queue until it is empty.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throng::layer::Instant;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Loads the states of a node's entities; see the file's head.
pub(crate) struct Loader {
    tokio: Handle,
    /// Relaxed: a load that sees an old value runs in the other place.
    waits: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    loads: VecDeque<Load>,
    /// Number of threads that serve the queue.
    threads: usize,
}

type Load = Box<dyn FnOnce() + Send>;

/// Time above which a load has waited. From memory, a load takes some microseconds, and a read of a fast disk
/// takes some 100.
const QUICK: Duration = Duration::from_micros(50);

/// Loads from memory that a wait outweighs. If more than one load in so many waits, all loads are on threads: there
/// each costs some 10 µs more, and on a worker a wait costs some 100.
const WAIT: usize = 10;

/// Most threads, which is the most reads that the disk gets at once.
const THREADS_MAX: usize = 64;

impl Loader {
    pub(crate) fn new(tokio: Handle) -> Arc<Loader> {
        Arc::new(Loader { tokio, waits: AtomicUsize::new(0), queue: Mutex::default() })
    }

    /// Runs a load; `None` if tokio's runtime is ending. The load must not panic.
    pub(crate) async fn run<R: Send + 'static>(
        self: &Arc<Self>,
        load: impl FnOnce() -> R + Send + 'static,
    ) -> Option<R> {
        if self.waits.load(Ordering::Relaxed) == 0 {
            return Some(self.time(load));
        }
        let (outcome, receiver) = oneshot::channel();
        let loader = self.clone();
        // If the first turn has ended meanwhile, nobody needs the outcome.
        self.push(Box::new(move || drop(outcome.send(loader.time(load)))));
        receiver.await.ok()
    }

    /// Runs a load, and notes whether it has waited.
    fn time<R>(&self, load: impl FnOnce() -> R) -> R {
        // In a simulation no time passes meanwhile, and every load runs here.
        let began = Instant::now();
        let outcome = load();
        let has_waited = began.elapsed() > QUICK;
        let waits = self.waits.load(Ordering::Relaxed);
        let now = match has_waited {
            true => (waits + WAIT).min(WAIT * THREADS_MAX),
            false => waits.saturating_sub(1),
        };
        if now != waits {
            self.waits.store(now, Ordering::Relaxed);
        }
        outcome
    }

    fn push(self: &Arc<Self>, load: Load) {
        let mut queue = self.lock();
        queue.loads.push_back(load);
        self.add_thread(queue);
    }

    /// Adds a thread if loads wait and there may be more threads.
    fn add_thread(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        let threads_max = self.waits.load(Ordering::Relaxed).div_ceil(WAIT).max(1);
        if queue.threads < threads_max && !queue.loads.is_empty() {
            queue.threads += 1;
            drop(queue);
            let server = Server { loader: self.clone(), has_left: false };
            self.tokio.spawn_blocking(move || server.run());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No foreign code runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that serves the queue, or will.
struct Server {
    loader: Arc<Loader>,
    /// Whether the thread has left the number of threads.
    has_left: bool,
}

impl Server {
    fn run(mut self) {
        let mut queue = self.loader.lock();
        while let Some(load) = queue.loads.pop_front() {
            // A load may have waited since the last thread was added.
            self.loader.add_thread(queue);
            load();
            queue = self.loader.lock();
        }
        // Under the lock, so that the next load finds either this thread or its number gone.
        queue.threads -= 1;
        drop(queue);
        self.has_left = true;
    }
}

/// If tokio ends before the thread has begun, drops the loads that no other thread will serve.
impl Drop for Server {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        let mut queue = self.loader.lock();
        queue.threads -= 1;
        let left = if queue.threads == 0 { mem::take(&mut queue.loads) } else { VecDeque::new() };
        drop(queue);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    fn wait() {
        thread::sleep(2 * QUICK);
    }

    fn on_tokio(test: impl AsyncFnOnce(Arc<Loader>)) {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio.block_on(test(Loader::new(tokio.handle().clone())));
    }

    #[test]
    fn loads_move_to_threads_when_one_has_waited_and_back() {
        on_tokio(async |loader| {
            let here = thread::current().id();
            let place = || thread::current().id();
            assert_eq!(loader.run(place).await, Some(here));
            loader.run(wait).await.unwrap();
            let mut loads = 0;
            while loader.run(place).await.unwrap() != here {
                loads += 1;
            }
            // A machine under load may make a quick one wait.
            assert!(loads >= WAIT, "{loads}");
        });
    }

    #[test]
    fn many_loads_wait_at_once() {
        on_tokio(async |loader| {
            // The first ones give way to the others, one by one.
            for _ in 0..THREADS_MAX {
                loader.run(wait).await.unwrap();
            }
            // Each load waits until all of them have begun.
            let begun = Arc::new(Barrier::new(THREADS_MAX));
            let loads = (0..THREADS_MAX).map(|_| {
                let (loader, begun) = (loader.clone(), begun.clone());
                tokio::spawn(async move { loader.run(move || _ = begun.wait()).await.unwrap() })
            });
            for load in loads.collect::<Vec<_>>() {
                load.await.unwrap();
            }
        });
    }

    #[test]
    fn loads_end_with_tokio() {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let loader = Loader::new(tokio.handle().clone());
        loader.waits.store(WAIT, Ordering::Relaxed);
        drop(tokio);
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(other.block_on(loader.run(|| 7)), None);
        assert_eq!(loader.lock().threads, 0);
    }
}
