//! [`Queue`]: the entities of a kind whose reminders are due soon. [`Bell`]: the task that rings them.
//!
//! ```text
//!  store: due ──(the next minute, in parts)──▶ armed ──(its time comes)──▶ Ring sent ──▶ the entity's turn
//!                                    ▲                        │                             │
//!  a turn that sets or ends one ─────┴────────────────────────┼──(no answer)── later ◀──────┤
//!                                                             └─────────(moved)─────────────┘
//! ```
//!
//! An entity has a record in the store for the earliest of its reminders, for each of the two clocks. Here it has an
//! entry if that is due before the horizon. It is rung until a turn of its own has moved it.
//!
//! Invariants:
//!
//! 1. An entity whose record is before the horizon has an entry that is due no later. A turn notes its entity after its
//!    submission: it either sees the horizon, or its record is in the store when the search that follows the horizon
//!    begins, because the search waits for all submissions before it.
//! 2. An entry that is due too early costs a ring in vain, and never an effect: only the entity's own list counts.
//! 3. After submissions were lost, which may have moved entities, the search begins anew.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use throng::layer::Instant;
use throng_store::ReadError;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::schedule::Clock;
use crate::due::lock;
use crate::layout;
use crate::node::Inner;
use crate::tables::Tables;
use crate::view::View;

/// Time before which entities are in memory, in milliseconds from now on.
const WINDOW: u64 = 60_000;
/// Most entities that a search of the store arms.
const FOUND_MAX: usize = 10_000;
/// Most entities that were rung once and have not answered. Many more leave the caches between two of their turns.
const RUNG_MAX: usize = 1_000;
/// Most entities that are rung without a pause.
const RINGS_MAX: usize = 256;
/// Longest pause of the task, for a search of the store.
const PAUSE_LONGEST: u64 = WINDOW / 2;
/// Longest pause while an entity waits for the system's clock, which may be set.
const PAUSE_WALL: u64 = 1_000;
/// Pause after which an entity is rung again; it doubles with each further ring.
const AGAIN_FIRST: u64 = 1_000;
const AGAIN_LONGEST: u64 = 60_000;

/// The entities of a kind that are due soon, by clock; see the file's head.
#[derive(Debug)]
pub(crate) struct Queue {
    lines: [Mutex<Line>; 2],
    bell: Arc<Bell>,
}

/// The entities that are due soon by one clock.
#[derive(Debug, Default)]
struct Line {
    /// Time before which, this one included, entities have an entry.
    horizon: Option<u64>,
    /// Key of the store from which on a search goes on; `None` if it begins anew.
    cursor: Option<Vec<u8>>,
    /// Entries by the keys of the entities' states.
    armed: HashMap<Arc<[u8]>, Armed>,
    /// The entries that were not rung yet, by the time of their ring.
    fresh: BTreeSet<(u64, Arc<[u8]>)>,
    /// The entries that were rung, by the time of the next ring.
    rung: BTreeSet<(u64, Arc<[u8]>)>,
    /// Number of entries that were rung once.
    rung_once: usize,
    /// Time of the next look at this line.
    wakes_at: u64,
}

#[derive(Debug)]
struct Armed {
    due: u64,
    /// Time of the next ring.
    next: u64,
    rings: u32,
}

/// An entity that is to be rung.
pub(crate) struct Due {
    pub(crate) state_key: Arc<[u8]>,
    pub(crate) due: u64,
    /// Number of rings so far, this one included.
    pub(crate) rings: u32,
}

/// The clocks and the wake-up of the task, which the queues of a node share.
#[derive(Debug)]
pub(crate) struct Bell {
    wake: Notify,
    /// Time at which the steady clock began, and what it showed then.
    began: (Instant, Duration),
    /// Number of occurrences that were missed and did not come.
    skipped: AtomicU64,
    /// Number of entities that were rung more than once and have not answered.
    late: AtomicUsize,
}

impl Bell {
    /// Begins the steady clock at the time of the system's.
    pub(crate) fn new(since_1970: Duration) -> Bell {
        Bell {
            wake: Notify::new(),
            began: (Instant::now(), since_1970),
            skipped: AtomicU64::new(0),
            late: AtomicUsize::new(0),
        }
    }

    /// Returns the time in milliseconds since 1970.
    pub(crate) fn now(&self, clock: Clock, node: &Inner) -> u64 {
        let time = match clock {
            Clock::Steady => self.began.1 + self.began.0.elapsed(),
            Clock::Wall => node.store.since_1970(),
        };
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn count_skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of occurrences that did not come.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Returns the number of entities that do not answer.
    pub(crate) fn late(&self) -> usize {
        self.late.load(Ordering::Relaxed)
    }

    /// Has the task look at all queues.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}

impl Queue {
    pub(crate) fn new(bell: Arc<Bell>) -> Queue {
        Queue { lines: Default::default(), bell }
    }

    /// Notes the earliest reminder of an entity, as a turn of its own has left it.
    pub(super) fn moved(&self, clock: Clock, state_key: &[u8], due: Option<u64>) {
        let mut line = lock(&self.lines[clock as usize]);
        let was_full = line.is_full();
        let due = due.filter(|due| line.horizon.is_some_and(|horizon| *due <= horizon));
        let known = line.armed.get(state_key).map(|armed| armed.due);
        if known != due {
            line.disarm(state_key, &self.bell);
            if let Some(due) = due {
                line.arm(state_key.into(), due);
            }
        }
        let next = line.next().unwrap_or(u64::MAX);
        if next < line.wakes_at || (was_full && !line.is_full()) {
            line.wakes_at = next;
            drop(line);
            self.bell.wake();
        }
    }

    /// Begins to search the store anew, after submissions were lost.
    pub(crate) fn search_again(&self) {
        for line in &self.lines {
            let mut line = lock(line);
            (line.horizon, line.cursor) = (None, None);
        }
    }

    /// Arms entities of the next minute, if it is time.
    async fn search(&self, node: &Arc<Inner>, kind: u16, clock: Clock, now: u64) {
        let (end, cursor) = {
            let mut line = lock(&self.lines[clock as usize]);
            let is_known = line.horizon.is_some_and(|horizon| horizon >= now + WINDOW / 2);
            if is_known || line.fresh.len() >= FOUND_MAX / 2 {
                return;
            }
            let end = now + WINDOW;
            line.horizon = Some(end);
            (end, line.cursor.clone())
        };
        // So that the view has all that was submitted before the horizon was seen.
        let _ = node.gate.settled(node.store.submitted_through()).await;
        let table = node.tables.clone();
        let from = cursor.clone().unwrap_or_else(|| layout::due_of_kind(kind, clock.byte()).into());
        let until = layout::due_from(kind, clock.byte(), end.saturating_add(1));
        let found = node.loader.run(move || find(&View::of(&table)?, &from, &until)).await;
        let mut line = lock(&self.lines[clock as usize]);
        match found {
            Some(Ok((found, cursor))) => {
                if let Some((last, _)) = found.last()
                    && cursor.is_some()
                {
                    line.horizon = Some(*last);
                }
                line.cursor =
                    Some(cursor.unwrap_or_else(|| layout::due_from(kind, clock.byte(), end + 1)));
                for (due, state_key) in found {
                    if line.armed.get(&*state_key).is_none_or(|armed| due < armed.due) {
                        line.disarm(&state_key, &self.bell);
                        line.arm(state_key, due);
                    }
                }
            }
            failed => {
                (line.horizon, line.cursor) = (None, cursor);
                if let Some(Err(error)) = failed {
                    tracing::warn!(%error, "the reminders of a kind could not be searched");
                }
            }
        }
    }

    /// Takes entities that are due, and has them rung again later.
    fn take(&self, clock: Clock, now: u64) -> Vec<Due> {
        let mut line = lock(&self.lines[clock as usize]);
        let mut taken = Vec::new();
        while taken.len() < RINGS_MAX
            && let Some(state_key) = line.pop(now)
        {
            let Line { armed, rung, rung_once, .. } = &mut *line;
            let Some(own) = armed.get_mut(&state_key) else { continue };
            own.rings = own.rings.saturating_add(1);
            match own.rings {
                1 => *rung_once += 1,
                2 => {
                    *rung_once -= 1;
                    self.bell.late.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
            let again = AGAIN_FIRST.saturating_mul(1 << (own.rings - 1).min(16));
            own.next = now.saturating_add(again.min(AGAIN_LONGEST));
            rung.insert((own.next, state_key.clone()));
            taken.push(Due { due: own.due, rings: own.rings, state_key });
        }
        taken
    }

    /// Returns the time until the next look at a line, in milliseconds.
    fn pause(&self, clock: Clock, now: u64) -> u64 {
        let mut line = lock(&self.lines[clock as usize]);
        let longest = match clock {
            // The last search has failed, or submissions were lost since.
            _ if line.horizon.is_none() => AGAIN_FIRST,
            Clock::Wall if !line.armed.is_empty() => PAUSE_WALL,
            _ => PAUSE_LONGEST,
        };
        let pause = line.next().map_or(longest, |next| next.saturating_sub(now).min(longest));
        line.wakes_at = now.saturating_add(pause);
        pause
    }

    /// Number of entities in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lines.iter().map(|line| lock(line).armed.len()).sum()
    }
}

impl Line {
    /// Whether so many entities were rung that others have to wait, for a second at most.
    fn is_full(&self) -> bool {
        self.rung_once >= RUNG_MAX
    }

    /// Returns the time of the next ring.
    fn next(&self) -> Option<u64> {
        let fresh = if self.is_full() { None } else { self.fresh.first() };
        self.rung.first().into_iter().chain(fresh).map(|(next, _)| *next).min()
    }

    /// Takes an entity whose time has come off the lists.
    fn pop(&mut self, now: u64) -> Option<Arc<[u8]>> {
        if self.rung.first().is_some_and(|(next, _)| *next <= now) {
            return self.rung.pop_first().map(|(_, state_key)| state_key);
        }
        let is_due = !self.is_full() && self.fresh.first().is_some_and(|(next, _)| *next <= now);
        if is_due { self.fresh.pop_first().map(|(_, state_key)| state_key) } else { None }
    }

    fn arm(&mut self, state_key: Arc<[u8]>, due: u64) {
        if let Entry::Vacant(vacant) = self.armed.entry(state_key.clone()) {
            vacant.insert(Armed { due, next: due, rings: 0 });
            self.fresh.insert((due, state_key));
        }
    }

    fn disarm(&mut self, state_key: &[u8], bell: &Bell) {
        if let Some((state_key, own)) = self.armed.remove_entry(state_key) {
            self.rung_once -= usize::from(own.rings == 1);
            bell.late.fetch_sub(usize::from(own.rings > 1), Ordering::Relaxed);
            let list = if own.rings == 0 { &mut self.fresh } else { &mut self.rung };
            list.remove(&(own.next, state_key));
        }
    }
}

/// Entities with the times at which they are due, and the key from which on there may be more.
type Found = (Vec<(u64, Arc<[u8]>)>, Option<Vec<u8>>);

fn find(view: &View, from: &[u8], until: &[u8]) -> Result<Found, ReadError> {
    let mut found = Vec::new();
    if from >= until {
        return Ok((found, None));
    }
    let mut records = view.range(from..until);
    while let Some(record) = records.next_key() {
        let record = record?;
        match layout::state_key_of_due(record) {
            Some((due, state_key)) => found.push((due, state_key.into())),
            None => {
                let record = record.escape_ascii();
                tracing::error!(%record, "a time of reminders has no valid key, and is ignored");
            }
        }
        if found.len() == FOUND_MAX {
            return Ok((found, Some([record, &[0]].concat())));
        }
    }
    Ok((found, None))
}

/// Whether any entity of a kind has a reminder. If the store cannot be read, its own errors tell.
pub(crate) fn waits(tables: &Tables, kind: u16) -> bool {
    let has_some = |view: &View, clock: Clock| {
        view.prefix(&layout::due_of_kind(kind, clock.byte())).next_key().is_some()
    };
    View::of(tables).is_ok_and(|view| Clock::ALL.into_iter().any(|clock| has_some(&view, clock)))
}

/// Rings entities until the node is gone or shut down.
pub(crate) async fn run(node: Weak<Inner>, bell: Arc<Bell>) {
    loop {
        let pause = {
            let Some(node) = node.upgrade().filter(|node| !node.is_closed()) else { return };
            ring_due(&node).await
        };
        let _ = timeout(Duration::from_millis(pause), bell.wake.notified()).await;
    }
}

/// Rings all entities that are due. Returns the time until the next one is, in milliseconds.
async fn ring_due(node: &Arc<Inner>) -> u64 {
    let mut pause = PAUSE_LONGEST;
    if !node.has_handles() {
        return pause;
    }
    for directory in node.shared_directories() {
        let Some(queue) = directory.reminders() else { continue };
        for clock in Clock::ALL {
            loop {
                let now = node.bell.now(clock, node);
                queue.search(node, directory.kind_number(), clock, now).await;
                let due = queue.take(clock, now);
                if due.is_empty() {
                    break;
                }
                due.into_iter().for_each(|due| directory.clone().ring(node, clock, &due));
                tokio::task::yield_now().await;
            }
            pause = pause.min(queue.pause(clock, node.bell.now(clock, node)));
        }
    }
    pause
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Vec<u8> {
        vec![b'S', 0, 1, number]
    }

    fn queue() -> Queue {
        let queue = Queue::new(Arc::new(Bell::new(Duration::ZERO)));
        lock(&queue.lines[0]).horizon = Some(1_000_000);
        queue
    }

    fn taken(queue: &Queue, now: u64) -> Vec<u8> {
        queue.take(Clock::Steady, now).iter().map(|due| due.state_key[3]).collect()
    }

    #[test]
    fn an_entity_is_rung_at_its_time_and_later_and_later_until_it_has_moved() {
        let queue = queue();
        queue.moved(Clock::Steady, &key(1), Some(500));
        queue.moved(Clock::Steady, &key(2), Some(400));
        queue.moved(Clock::Steady, &key(3), Some(1_000_001));
        assert_eq!(queue.len(), 2, "the horizon is before the third one");
        assert!(taken(&queue, 399).is_empty());
        assert_eq!(taken(&queue, 500), [2, 1]);
        // The same time again is no answer.
        queue.moved(Clock::Steady, &key(1), Some(500));
        queue.moved(Clock::Steady, &key(2), None);
        assert!(taken(&queue, 1_499).is_empty());
        assert_eq!(taken(&queue, 1_500), [1]);
        assert_eq!(queue.bell.late(), 1);
        assert!(taken(&queue, 3_499).is_empty());
        assert_eq!(taken(&queue, 3_500), [1]);
        queue.moved(Clock::Steady, &key(1), Some(3_600));
        assert_eq!(taken(&queue, 3_600), [1]);
        queue.moved(Clock::Steady, &key(1), None);
        assert_eq!((queue.len(), lock(&queue.lines[0]).rung_once, queue.bell.late()), (0, 0, 0));
    }

    #[test]
    fn those_that_do_not_answer_keep_others_waiting_for_a_second_at_most() {
        let queue = queue();
        for number in 0..RUNG_MAX + 1 {
            let state_key = [&key(0)[..], &number.to_be_bytes()].concat();
            queue.moved(Clock::Steady, &state_key, Some(number as u64 / 1_000));
        }
        let take_all = |now| {
            let taken = std::iter::from_fn(|| Some(queue.take(Clock::Steady, now).len()));
            taken.take_while(|taken| *taken > 0).sum::<usize>()
        };
        assert_eq!(take_all(20), RUNG_MAX);
        assert_eq!(queue.pause(Clock::Steady, 20), AGAIN_FIRST);
        assert_eq!(take_all(20 + AGAIN_FIRST), RUNG_MAX + 1, "they starve the last one");
    }
}
