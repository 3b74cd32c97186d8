//! What the workers of one runtime share: the queue from outside, who sleeps, and how far the
//! shutdown is. And which worker, if any, the calling thread is.
//!
//! A token that becomes runnable on a worker stays with that worker; from any other thread it goes
//! through the injector. Whoever makes work visible to others calls [`Scheduler::notify`], which
//! wakes a sleeper unless somebody is searching already.
//!
//! Sleeping is a handshake over two sequentially consistent fences: the one who adds work fences
//! and then looks for sleepers; the one who goes to sleep enters the list, fences, and then looks
//! for work once more. At least one of them sees the other.

use crate::address::RawAddress;
use crate::cell::{CellRef, Inside, Token, TokenQueue};
use crate::cycle::Probe;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Mutex, Thread, lock};
use crate::timer::Clock;
use crate::waker;
use crate::worker::Worker;
use std::cell::{Cell as StdCell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::sync::OnceLock;
use std::task::Waker;

thread_local! {
    static CURRENT: StdCell<*const Worker> = const { StdCell::new(ptr::null()) };
    static BATCH: StdCell<*const RefCell<Vec<Token>>> = const { StdCell::new(ptr::null()) };
}

/// Runs `f` with the worker that this thread is, if it is one.
#[inline(always)]
pub(crate) fn with_worker<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    // SAFETY: set for no longer than the worker lives; see `enter`.
    f(unsafe { CURRENT.get().as_ref() })
}

/// Runs `f` as a worker.
pub(crate) fn enter<R>(worker: &Worker, f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(ptr::null());
        }
    }
    CURRENT.set(worker);
    let _leave = Leave;
    f()
}

/// Runs `f` if the waker is that of the process whose turn this thread is polling right now.
#[inline(always)]
pub(crate) fn with_polling<R>(waker: &Waker, f: impl FnOnce(&Worker, CellRef) -> R) -> Option<R> {
    with_worker(|worker| {
        let worker = worker?;
        let cell = worker.running().filter(|&cell| waker::is_of(waker, cell))?;
        Some(f(worker, cell))
    })
}

/// Runs `f` if this thread is running that very process right now.
#[inline(always)]
pub(crate) fn with_turn_of<R>(
    address: RawAddress,
    f: impl FnOnce(&Worker, Inside) -> R,
) -> Option<R> {
    with_worker(|worker| {
        let worker = worker?;
        let cell = worker.running().filter(|&cell| address.is_in(cell))?;
        // SAFETY: what a worker is running, it has the token of, and this thread is the worker.
        Some(f(worker, unsafe { Inside::of(cell) }))
    })
}

/// Has the calls in the turn that this thread is about to poll see a probe.
pub(crate) fn show_probe(probe: Probe) {
    with_worker(|worker| worker.map(|worker| worker.show_probe(probe)));
}

/// Sees to it that a process runs soon.
#[inline]
pub(crate) fn schedule(token: Token) {
    with_worker(|worker| {
        let scheduler = token.class().runtime.scheduler();
        match worker {
            Some(worker) if ptr::eq(worker.scheduler(), scheduler) => worker.push(token),
            _ => match collect(token) {
                None => {}
                Some(token) => {
                    // The token is gone once it is injected, and with it, perhaps, the class.
                    let runtime = token.class().runtime.clone();
                    runtime.scheduler().inject([token]);
                }
            },
        }
    });
}

/// Runs `f`, which makes many processes ready, and wakes sleeping workers only after it, once.
pub(crate) fn batched<R>(f: impl FnOnce() -> R) -> R {
    with_worker(|worker| match worker {
        Some(worker) => worker.batched(f),
        None => {
            let batch = Batch { tokens: RefCell::new(Vec::new()), outer: BATCH.get() };
            BATCH.set(&batch.tokens);
            // Also if `f` panics, its drop lets the processes go.
            let _batch = &batch;
            f()
        }
    })
}

/// Processes that a thread which is no worker has made ready, to be injected together.
struct Batch {
    tokens: RefCell<Vec<Token>>,
    outer: *const RefCell<Vec<Token>>,
}

/// So many tokens are let go at once.
const BATCH_MOST: usize = 1024;

/// Adds a token to the thread's batch, if there is one.
fn collect(token: Token) -> Option<Token> {
    // SAFETY: set for no longer than the batch lives, which is on this thread's stack; see
    // `batched`.
    let Some(tokens) = (unsafe { BATCH.get().as_ref() }) else { return Some(token) };
    let mut tokens = tokens.borrow_mut();
    tokens.push(token);
    if tokens.len() >= BATCH_MOST {
        inject_all(&mut tokens);
    }
    None
}

impl Drop for Batch {
    fn drop(&mut self) {
        BATCH.set(self.outer);
        inject_all(self.tokens.get_mut());
    }
}

/// Injects tokens of any runtimes, each where it belongs.
fn inject_all(tokens: &mut Vec<Token>) {
    while let Some(last) = tokens.last() {
        let runtime = last.class().runtime.clone();
        let is_other = |token: &Token| !token.class().runtime.is_same(&runtime);
        let first = tokens.iter().rposition(is_other).map_or(0, |other| other + 1);
        runtime.scheduler().inject(tokens.drain(first..));
    }
}

/// How far a runtime is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Phase {
    /// All is normal.
    Running,
    /// No new processes; each exits when its mailbox is empty.
    Draining,
    /// Each exits at once.
    Killing,
    /// The workers end.
    Over,
}

/// What others see of a worker.
pub(crate) struct Remote {
    pub(crate) queue: TokenQueue,
    thread: OnceLock<Thread>,
    /// Spawn permits this worker has taken and not used; written by it alone.
    pub(crate) spare_permits: AtomicU32,
    /// Processes this worker has spawned and seen exit, in all; written by it alone.
    spawned: AtomicU64,
    exited: AtomicU64,
}

impl Remote {
    /// Worker: a process is about to be reachable.
    #[inline(always)]
    pub(crate) fn count_spawn(&self) {
        self.spawned.store(self.spawned.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Worker: a process is gone.
    #[inline(always)]
    pub(crate) fn count_exit(&self) {
        self.exited.store(self.exited.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

pub(crate) struct Scheduler {
    pub(crate) remotes: Box<[Remote]>,
    injector: Mutex<VecDeque<Token>>,
    injected: AtomicUsize,
    /// Who sleeps; the counts beside it say so without the lock.
    sleepers: Mutex<Vec<usize>>,
    sleeping: AtomicU32,
    searching: AtomicU32,
    phase: AtomicU8,
    /// Processes spawned by threads that are no workers.
    guests_spawned: AtomicU64,
    pub(crate) clock: Clock,
}

impl Scheduler {
    pub(crate) fn new(workers: usize) -> Scheduler {
        let remote = || Remote {
            queue: TokenQueue::new(),
            thread: OnceLock::new(),
            spare_permits: AtomicU32::new(0),
            spawned: AtomicU64::new(0),
            exited: AtomicU64::new(0),
        };
        Scheduler {
            remotes: (0..workers).map(|_| remote()).collect(),
            injector: Mutex::new(VecDeque::new()),
            injected: AtomicUsize::new(0),
            sleepers: Mutex::new(Vec::with_capacity(workers)),
            sleeping: AtomicU32::new(0),
            searching: AtomicU32::new(0),
            phase: AtomicU8::new(Phase::Running as u8),
            guests_spawned: AtomicU64::new(0),
            clock: Clock::new(),
        }
    }

    /// How many processes live; never fewer than do, for exits are read before spawns, and each
    /// exit comes after its own spawn.
    pub(crate) fn live(&self) -> u64 {
        let sum = |count: fn(&Remote) -> &AtomicU64| -> u64 {
            self.remotes.iter().map(|remote| count(remote).load(Ordering::Acquire)).sum()
        };
        let exited = sum(|remote| &remote.exited);
        let spawned = sum(|remote| &remote.spawned) + self.guests_spawned.load(Ordering::Acquire);
        spawned - exited
    }

    /// A thread that is no worker is about to spawn; false if it must not, for this is the end.
    pub(crate) fn count_guest_spawn(&self) -> bool {
        self.guests_spawned.fetch_add(1, Ordering::Release);
        // Counted, and then looked: a shutdown either counts this one too and waits for it, or has
        // set its phase before.
        fence(Ordering::SeqCst);
        let may = self.phase() == Phase::Running;
        if !may {
            self.guests_spawned.fetch_sub(1, Ordering::Release);
        }
        may
    }

    #[inline(always)]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Draining,
            2 => Phase::Killing,
            _ => Phase::Over,
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
        // Before any count of what lives; pairs with the fence of a spawn from outside.
        fence(Ordering::SeqCst);
        if phase == Phase::Over {
            for remote in &self.remotes {
                if let Some(thread) = remote.thread.get() {
                    thread.unpark();
                }
            }
        }
    }

    /// Queues tokens from outside the workers.
    pub(crate) fn inject(&self, tokens: impl IntoIterator<Item = Token>) {
        {
            let mut injector = lock(&self.injector);
            injector.extend(tokens);
            self.injected.store(injector.len(), Ordering::Release);
        }
        self.notify();
    }

    /// How many tokens wait in the injector.
    pub(crate) fn injected(&self) -> usize {
        self.injected.load(Ordering::Acquire)
    }

    /// A fair share of the injector, for one worker.
    pub(crate) fn take_injected(&self, most: usize) -> Vec<Token> {
        if self.injected() == 0 {
            return Vec::new();
        }
        let mut injector = lock(&self.injector);
        let share = injector.len().div_ceil(self.remotes.len()).min(most);
        let tokens = injector.drain(..share).collect();
        self.injected.store(injector.len(), Ordering::Release);
        tokens
    }

    fn has_work(&self) -> bool {
        self.injected() > 0 || self.remotes.iter().any(|remote| !remote.queue.is_empty())
    }

    // --- sleeping and waking ---

    /// There is work that a sleeper could do: wakes one, unless somebody searches already.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.searching.load(Ordering::Relaxed) == 0 && self.sleeping.load(Ordering::Relaxed) > 0
        {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let mut sleepers = lock(&self.sleepers);
        if self.searching.load(Ordering::Relaxed) > 0 {
            return;
        }
        let Some(worker) = sleepers.pop() else { return };
        // In the woken one's name: it wakes up searching.
        self.searching.fetch_add(1, Ordering::SeqCst);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        drop(sleepers);
        if let Some(thread) = self.remotes[worker].thread.get() {
            thread.unpark();
        }
    }

    /// Whether a worker without work may search: at most half of them do at a time, at least one.
    pub(crate) fn begin_search(&self) -> bool {
        let searching = self.searching.load(Ordering::Relaxed) as usize;
        if 2 * searching >= self.remotes.len().max(2) {
            return false;
        }
        self.searching.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// A searcher found something: if it was the last one, another may be needed.
    pub(crate) fn end_search(&self) {
        if self.searching.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.notify();
        }
    }

    /// A worker that found nothing goes to sleep; false if it must not, for there is work.
    pub(crate) fn begin_sleep(&self, worker: usize, was_searching: bool) -> bool {
        {
            let mut sleepers = lock(&self.sleepers);
            sleepers.push(worker);
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            if was_searching {
                self.searching.fetch_sub(1, Ordering::SeqCst);
            }
        }
        fence(Ordering::SeqCst);
        !self.has_work() && self.phase() != Phase::Over
    }

    /// A worker wakes; true if it was woken to search, false if it woke by itself.
    pub(crate) fn end_sleep(&self, worker: usize) -> bool {
        let mut sleepers = lock(&self.sleepers);
        match sleepers.iter().position(|&sleeper| sleeper == worker) {
            Some(position) => {
                sleepers.swap_remove(position);
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
                false
            }
            None => true,
        }
    }

    /// Whether every worker sleeps.
    pub(crate) fn all_asleep(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst) as usize == self.remotes.len()
    }

    /// Makes a worker's thread known, so that it can be woken.
    pub(crate) fn introduce(&self, worker: usize, thread: Thread) {
        // Each worker does so once, as it starts.
        let _ = self.remotes[worker].thread.set(thread);
    }
}
