//! [`Loader`]: the threads that load states.
//!
//! A load may wait for the disk, and runs the user's `Deserialize` and `migrate`. So it runs on tokio's threads
//! for blocking work, and the worker goes on with other processes.
//!
//! ```text
//!  first turn ──▶ queue ──▶ thread: read, decode ──▶ first turn goes on
//! ```
//!
//! A thread serves the queue until it is empty. As many threads as there are cores load states that are in
//! memory. Each load that has waited for the disk adds a thread, up to [`THREADS_MAX`], and each one that has
//! not takes one away: so a disk gets many reads at once, and no needless thread competes with the workers.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The threads that load states; see the file's head.
pub(crate) struct Loader {
    tokio: Handle,
    threads_min: usize,
    state: Mutex<State>,
}

struct State {
    queue: VecDeque<Load>,
    /// Number of threads that serve the queue.
    threads: usize,
    /// Most threads at present.
    threads_max: usize,
}

type Load = Box<dyn FnOnce() + Send>;

/// Most threads, which is the most reads that the disk gets at once.
const THREADS_MAX: usize = 64;

/// Time above which a load has waited for the disk. From memory, a load takes some microseconds, and a read of
/// a fast disk some 100.
const IN_MEMORY: Duration = Duration::from_micros(50);

impl Loader {
    pub(crate) fn new(tokio: Handle) -> Arc<Loader> {
        let threads_min = thread::available_parallelism().map_or(1, usize::from);
        let state = State { queue: VecDeque::new(), threads: 0, threads_max: threads_min };
        Arc::new(Loader { tokio, threads_min, state: Mutex::new(state) })
    }

    /// Runs a load on one of the threads; `None` if tokio's runtime is ending. The load must not panic.
    pub(crate) async fn run<R: Send + 'static>(
        self: &Arc<Self>,
        load: impl FnOnce() -> R + Send + 'static,
    ) -> Option<R> {
        let (outcome, receiver) = oneshot::channel();
        // If the first turn has ended meanwhile, nobody needs the outcome.
        self.push(Box::new(move || drop(outcome.send(load()))));
        receiver.await.ok()
    }

    fn push(self: &Arc<Self>, load: Load) {
        let mut state = self.lock();
        state.queue.push_back(load);
        self.serve(state);
    }

    /// Adds a thread if there may be more.
    fn serve(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.threads < state.threads_max && !state.queue.is_empty() {
            state.threads += 1;
            drop(state);
            let server = Server { loader: self.clone(), has_left: false };
            self.tokio.spawn_blocking(move || server.run());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No foreign code runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let loader = &self.loader;
        let mut state = loader.lock();
        while state.threads <= state.threads_max {
            let Some(load) = state.queue.pop_front() else { break };
            drop(state);
            let began = Instant::now();
            load();
            let has_waited = began.elapsed() > IN_MEMORY;
            state = loader.lock();
            if has_waited {
                state.threads_max = (state.threads_max + 1).min(THREADS_MAX);
                loader.serve(state);
                state = loader.lock();
            } else {
                state.threads_max = (state.threads_max - 1).max(loader.threads_min);
            }
        }
        // Under the lock, so that the next load finds either this thread or its number gone.
        state.threads -= 1;
        drop(state);
        self.has_left = true;
    }
}

/// If tokio ends before the thread has begun, drops the loads that no other thread will serve.
impl Drop for Server {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        let mut state = self.loader.lock();
        state.threads -= 1;
        let left = if state.threads == 0 { mem::take(&mut state.queue) } else { VecDeque::new() };
        drop(state);
        drop(left);
    }
}
