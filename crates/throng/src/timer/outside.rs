//! Deadlines outside of processes: the waits of tasks and threads for a reply, with the wakers to call when
//! they have taken too long.
//!
//! ```text
//! call, ask ─ insert ─▶ shard of this thread ◀─ ring ─ clock thread ─▶ waker
//!    reply, drop ─ remove ─▶ │ at │ waker │
//! ```
//!
//! Nearly every wait ends with its reply long before its deadline, so entering and leaving the table is what
//! counts: an uncontended lock each, and no allocation. The deadlines are not sorted. A shard knows a lower
//! bound of them, and is scanned only once that is reached.
//!
//! The table is the program's, and the clock threads of all runtimes serve it, because the wait may outlast
//! the runtime of its callee, whose thread may be blocked. Without any runtime, a thread of its own serves it
//! until it is empty. It knows no tokio: a call can be awaited by any executor, and a paused or slow clock of
//! tokio's has no part in it. (Only in a simulation tokio's virtual clock is the time; see `deadline`.)
//!
//! Invariants:
//! 1. `earliest` of a shard is not later than the deadline of any entry that has not been rung.
//! 2. A clock thread that parks wakes at `PLANNED`, or earlier; a thread that inserts an earlier deadline
//!    unparks the clock threads (`plan`).
//! 3. No waker is cloned, called or dropped under a lock: it is the user's code.

mod plan;

use self::plan::NEVER;
use crate::exit::catch;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{self, Mutex, Thread, ThreadBuilder, lock};
use std::cell::Cell;
use std::num::NonZeroU32;
use std::task::Waker;
use std::time::Duration;

const SHARDS: usize = 8;

#[repr(align(128))]
struct Shard {
    /// Nanoseconds of the program's clock, like every time here.
    earliest: AtomicUsize,
    entries: Mutex<Entries>,
}

struct Entries {
    all: Vec<Entry>,
    free: Vec<u32>,
}

struct Entry {
    at: usize,
    /// `None` once it has been rung, and in a free entry.
    waker: Option<Waker>,
}

static TABLE: [Shard; SHARDS] = [const {
    let entries = Entries { all: Vec::new(), free: Vec::new() };
    Shard { earliest: AtomicUsize::new(NEVER), entries: Mutex::new(entries) }
}; SHARDS];

/// Time at which the next of the clock threads looks at the table by itself; `NEVER` if an insertion must
/// unpark them in any case.
static PLANNED: AtomicUsize = AtomicUsize::new(NEVER);

/// Time at the last look of a clock thread that is awake; zero while one sleeps. Read in place of the system's
/// clock, which takes as long as all the rest of entering a wait.
static NOW: AtomicUsize = AtomicUsize::new(0);
/// Usual greatest age of `NOW`, and some more.
const STALE: Duration = Duration::from_millis(5);

/// Threads that serve the table.
static KEEPERS: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

/// Number of threads that have waited, to spread them over the shards.
static NUMBERED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Shard of this thread; `SHARDS` until it has one.
    static SHARD: Cell<usize> = const { Cell::new(SHARDS) };
}

fn shard_here() -> usize {
    if SHARD.get() == SHARDS {
        SHARD.set(NUMBERED.fetch_add(1, Ordering::Relaxed) % SHARDS);
    }
    SHARD.get()
}

/// A wait with a deadline. Its drop ends the wait.
pub(crate) struct Wait {
    /// Place in the table: the entry, the shard and a bit that is set.
    place: NonZeroU32,
}

impl Wait {
    /// Begins a wait that wakes `waker` after `time`. With `is_coarse` the time counts from a reading of the
    /// clock that is some milliseconds old, and is lengthened by as much.
    pub(crate) fn begin(time: Duration, is_coarse: bool, waker: &Waker) -> Wait {
        let (now, allowance) = match NOW.load(Ordering::Relaxed) {
            seen if is_coarse && seen != 0 => (seen, STALE),
            _ => (sync::monotonic(), Duration::ZERO),
        };
        let time = usize::try_from(time.saturating_add(allowance).as_nanos()).unwrap_or(NEVER);
        let at = now.saturating_add(time).min(NEVER - 1);
        let shard = shard_here();
        let waker = waker.clone();
        let (entry, is_first) = TABLE[shard].insert(Entry { at, waker: Some(waker) });
        if is_first && plan::must_unpark(&PLANNED, at) {
            unpark_keepers();
        }
        let place = ((entry as u32 * SHARDS as u32 + shard as u32) << 1) | 1;
        Wait { place: NonZeroU32::MIN.saturating_add(place - 1) }
    }

    fn entry(&self) -> (&'static Shard, usize) {
        let place = self.place.get() as usize >> 1;
        (&TABLE[place % SHARDS], place / SHARDS)
    }

    /// Whether the deadline has passed. If not, `waker` is called at the deadline.
    pub(crate) fn is_over(&self, waker: &Waker) -> bool {
        let (shard, entry) = self.entry();
        let is_same = match &lock(&shard.entries).all[entry].waker {
            None => return true,
            Some(own) => own.will_wake(waker),
        };
        if is_same {
            return false;
        }
        let waker = waker.clone();
        let mut entries = lock(&shard.entries);
        let own = &mut entries.all[entry].waker;
        // It may have been rung since.
        let is_over = own.is_none();
        let old = if is_over { Some(waker) } else { own.replace(waker) };
        drop(entries);
        drop(old);
        is_over
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let (shard, entry) = self.entry();
        let mut entries = lock(&shard.entries);
        let waker = entries.all[entry].waker.take();
        entries.free.push(entry as u32);
        drop(entries);
        drop(waker);
    }
}

impl Shard {
    /// Enters an entry. Returns its place, and whether its deadline is the first of the shard.
    fn insert(&self, entry: Entry) -> (usize, bool) {
        let at = entry.at;
        let mut entries = lock(&self.entries);
        let place = match entries.free.pop() {
            Some(place) => {
                entries.all[place as usize] = entry;
                place as usize
            }
            None => {
                entries.all.push(entry);
                entries.all.len() - 1
            }
        };
        let is_first = at < self.earliest.load(Ordering::Relaxed);
        if is_first {
            self.earliest.store(at, Ordering::Relaxed);
        }
        (place, is_first)
    }

    #[cold]
    fn take_due(&self, now: usize) -> Vec<Waker> {
        let mut entries = lock(&self.entries);
        let mut due = Vec::new();
        let mut earliest = NEVER;
        for entry in entries.all.iter_mut().filter(|entry| entry.waker.is_some()) {
            if entry.at <= now {
                due.extend(entry.waker.take());
            } else {
                earliest = earliest.min(entry.at);
            }
        }
        if entries.free.len() == entries.all.len() {
            // Nothing waits: the memory of a burst goes back.
            *entries = Entries { all: Vec::new(), free: Vec::new() };
        }
        self.earliest.store(earliest, Ordering::Relaxed);
        due
    }
}

/// Time of the earliest deadline, or some time before it.
fn earliest() -> usize {
    TABLE.iter().map(|shard| shard.earliest.load(Ordering::Relaxed)).min().unwrap_or(NEVER)
}

/// Wakes the waits of some shards whose deadline has passed.
fn ring(now: usize, mut is_checked: impl FnMut(&Shard) -> bool) {
    for shard in TABLE.iter().filter(|shard| is_checked(shard)) {
        for waker in shard.take_due(now) {
            // A waker that panics takes no other wait's deadline.
            let _ = catch(|| waker.wake());
        }
    }
}

/// Whether there is a wait whose deadline has not passed.
fn is_anything_awaited() -> bool {
    ring(sync::monotonic(), |_| true);
    earliest() != NEVER
}

#[cold]
fn unpark_keepers() {
    let keepers = lock(&KEEPERS);
    if keepers.is_empty() {
        drop(keepers);
        return stand_in();
    }
    keepers.iter().for_each(Thread::unpark);
}

/// Serves the table by a thread of its own for as long as anything waits, because no runtime is left.
fn stand_in() {
    let serve = || {
        let keeper = Keeper::new();
        while is_anything_awaited() {
            keeper.park(None, || true);
        }
    };
    // Without a thread the waits end with their replies only, as nothing else is left that could end them.
    let _ = ThreadBuilder::new().name("throng-deadlines".into()).spawn(serve);
}

/// Guard of a thread that serves the table of timers: the thread serves it until the guard is dropped.
pub(crate) struct Keeper {
    thread: Thread,
}

impl Keeper {
    pub(crate) fn new() -> Keeper {
        let thread = sync::current();
        lock(&KEEPERS).push(thread.clone());
        Keeper { thread }
    }

    /// Wakes the waits whose deadline has passed.
    pub(crate) fn ring(&self) {
        let now = sync::monotonic();
        NOW.store(now, Ordering::Relaxed);
        if earliest() != NEVER {
            ring(now, |shard| shard.earliest.load(Ordering::Relaxed) <= now);
        }
    }

    /// Parks the thread until the earliest deadline, or for at most `limit`, if `may_park` holds.
    pub(crate) fn park(&self, limit: Option<Duration>, may_park: impl FnOnce() -> bool) {
        let planned = plan::plan(&PLANNED, earliest);
        let Some(planned) = planned.filter(|_| may_park()) else { return };
        NOW.store(0, Ordering::Relaxed);
        let until = match planned {
            NEVER => None,
            planned => Some(Duration::from_nanos(planned.saturating_sub(sync::monotonic()) as u64)),
        };
        match limit.into_iter().chain(until).min() {
            Some(time) => sync::park_timeout(time),
            None => sync::park(),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let others: Vec<Thread> = {
            let mut keepers = lock(&KEEPERS);
            if let Some(at) = keepers.iter().position(|other| other.id() == self.thread.id()) {
                keepers.swap_remove(at);
            }
            keepers.clone()
        };
        // The deadline for which this thread would have woken is now the others'.
        PLANNED.store(NEVER, Ordering::SeqCst);
        NOW.store(0, Ordering::Relaxed);
        others.iter().for_each(Thread::unpark);
        if others.is_empty() && is_anything_awaited() {
            stand_in();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    #[derive(Default)]
    struct Counter(AtomicU32);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counter() -> (Arc<Counter>, Waker) {
        let counter = Arc::<Counter>::default();
        (counter.clone(), Waker::from(counter))
    }

    #[test]
    fn a_wait_is_over_at_its_deadline_and_wakes_its_last_waker_once() {
        let (first, second) = (counter(), counter());
        let wait = Wait::begin(Duration::from_millis(5), false, &first.1);
        assert!(!wait.is_over(&first.1) && !wait.is_over(&second.1));
        while !wait.is_over(&second.1) {
            sync::sleep(Duration::from_millis(1));
        }
        while second.0.0.load(Ordering::SeqCst) == 0 {
            std::hint::spin_loop();
        }
        let counts = [&first, &second].map(|(counter, _)| counter.0.load(Ordering::SeqCst));
        assert_eq!(counts, [0, 1]);
        drop(wait);
        assert_eq!(Arc::strong_count(&second.0), 2, "the table holds no waker");
    }

    #[test]
    fn an_ended_wait_wakes_nobody_and_the_longest_time_never_passes() {
        let (counter, waker) = counter();
        let forever = Wait::begin(Duration::MAX, true, &waker);
        drop(Wait::begin(Duration::ZERO, false, &waker));
        let ends = Wait::begin(Duration::ZERO, false, &waker);
        while !ends.is_over(&waker) {
            sync::sleep(Duration::from_millis(1));
        }
        assert!(!forever.is_over(&waker));
        drop((forever, ends));
        assert!(counter.0.load(Ordering::SeqCst) <= 2);
        assert_eq!(Arc::strong_count(&counter), 2, "the table holds no waker");
    }

    #[test]
    fn a_waker_that_panics_takes_no_other_deadline() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("on purpose");
            }
        }
        let (_, waker) = counter();
        let panics = Wait::begin(Duration::from_millis(1), false, &Waker::from(Arc::new(Panics)));
        let wait = Wait::begin(Duration::from_millis(2), false, &waker);
        while !wait.is_over(&waker) {
            sync::sleep(Duration::from_millis(1));
        }
        drop(panics);
    }
}
