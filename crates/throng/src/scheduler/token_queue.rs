//! Containers of tokens: a worker's run queue and its LIFO slot, filled with nothing else.
//!
//! Invariant: every entry that comes out went in as a token, and comes out once; so it is that
//! token again.

use crate::cell::{Cell, Token};
use crate::scheduler::lifo_slot::LifoSlot;
use crate::scheduler::run_queue::RunQueue;
use crate::sync::Fences;

/// Number of entries by which queues may differ from their mean, however short they are.
const SURPLUS_LEAST: u32 = 8;

/// Maximum number of entries taken at once: some microseconds, for which no process runs on the worker.
const SURPLUS_MOST: u32 = 1024;

/// A worker's run queues, whose entries are tokens; see `slices` for the two kinds.
pub(crate) struct TokenQueue {
    woken: RunQueue<Cell>,
    spent: RunQueue<Cell>,
}

impl TokenQueue {
    pub(crate) fn new() -> TokenQueue {
        TokenQueue { woken: RunQueue::new(), spent: RunQueue::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.woken.is_empty() && self.spent.is_empty()
    }

    pub(crate) fn len(&self) -> u32 {
        self.woken.len() + self.spent.len()
    }

    /// Number of processes that wait after they were woken.
    pub(crate) fn woken(&self) -> u32 {
        self.woken.len()
    }

    /// Owner: appends a process that was woken.
    #[inline(always)]
    pub(crate) fn push(&self, token: Token) {
        self.woken.push(token.into_raw());
    }

    /// Owner: appends a process that has used its budget.
    pub(crate) fn push_spent(&self, token: Token) {
        self.spent.push(token.into_raw());
    }

    /// Owner: takes the oldest token, of the woken processes first.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<Token> {
        self.woken.pop().and_then(token).or_else(|| self.pop_spent())
    }

    /// Owner: takes the oldest token of the woken processes.
    #[inline(always)]
    pub(crate) fn pop_woken(&self) -> Option<Token> {
        self.woken.pop().and_then(token)
    }

    /// Owner: takes the oldest token of the processes that have used their budget.
    #[inline(always)]
    pub(crate) fn pop_spent(&self) -> Option<Token> {
        self.spent.pop().and_then(token)
    }

    /// Owner: takes the oldest tokens of another worker's queues if these are much longer; returns the number.
    pub(crate) fn level(&self, other: &TokenQueue) -> u32 {
        level(&self.woken, &other.woken) + level(&self.spent, &other.spent)
    }

    /// Any thread: takes the older half of a queue, the woken processes if there are any; returns
    /// the first token and gives the rest to `keep`.
    pub(crate) fn steal(&self, mut keep: impl FnMut(Token)) -> Option<Token> {
        [&self.woken, &self.spent].into_iter().find_map(|queue| {
            let grab = queue.steal(u32::MAX);
            let mut stolen = tokens(grab.entries());
            let first = stolen.next()?;
            stolen.for_each(&mut keep);
            Some(first)
        })
    }
}

/// Owner: takes from another worker's queue what it has too many of; returns the number.
fn level(own: &RunQueue<Cell>, other: &RunQueue<Cell>) -> u32 {
    let (mut surplus, mut taken) = (surplus(own.len(), other.len()), 0);
    while surplus > 0 {
        let grab = other.steal(surplus);
        let count = grab.entries().len() as u32;
        if count == 0 {
            break;
        }
        grab.entries().iter().for_each(|&entry| own.push(entry));
        (surplus, taken) = (surplus - count, taken + count);
    }
    taken
}

/// Number of entries that a worker's queue takes from a longer one. Queues that differ little stay as they are, because a
/// process that moves leaves its memory in the other core's cache.
fn surplus(own: u32, other: u32) -> u32 {
    let surplus = other.saturating_sub(own) / 2;
    if surplus > own / 8 + SURPLUS_LEAST { surplus.min(SURPLUS_MOST) } else { 0 }
}

/// Slot for one token, which its worker runs next; see `lifo_slot`.
pub(crate) struct TokenSlot(LifoSlot<Cell>);

impl TokenSlot {
    pub(crate) fn new(fences: Fences) -> TokenSlot {
        TokenSlot(LifoSlot::new(fences))
    }

    /// Owner: puts a token in and returns the previous token.
    #[inline(always)]
    pub(crate) fn replace(&self, token: Token) -> Option<Token> {
        self::token(self.0.replace(token.into_raw()))
    }

    /// Owner: takes the token out.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Token> {
        token(self.0.take())
    }

    /// Any thread: takes the token out.
    pub(crate) fn steal(&self) -> Option<Token> {
        token(self.0.steal())
    }
}

fn tokens(entries: &[*mut Cell]) -> impl Iterator<Item = Token> {
    entries.iter().filter_map(|&entry| token(entry))
}

#[inline(always)]
fn token(entry: *mut Cell) -> Option<Token> {
    // SAFETY: by the file's invariant an entry is from `Token::into_raw`, and both containers hand
    // each entry out once.
    unsafe { Token::from_raw(entry) }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use super::*;

    #[test]
    fn queues_become_level_and_then_stay_as_they_are() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1_000 {
            let most = 1 << random.u32(1..16);
            let mut queues: Vec<u32> =
                (0..random.usize(2..9)).map(|_| random.u32(..most)).collect();
            let sum: u32 = queues.iter().sum();
            let mut level = |queues: &mut [u32]| {
                let [own, other] = [(); 2].map(|()| random.usize(..queues.len()));
                let moved = surplus(queues[own], queues[other]);
                queues[own] += moved;
                queues[other] -= moved;
                moved
            };
            for _ in 0..2_000 {
                level(&mut queues);
            }
            let moved: u32 = (0..1_000).map(|_| level(&mut queues)).sum();
            assert_eq!((moved, queues.iter().sum::<u32>()), (0, sum));
            let (least, longest) = (queues.iter().min().unwrap(), queues.iter().max().unwrap());
            assert!(longest - least <= least / 4 + 2 * SURPLUS_LEAST + 2, "{queues:?}");
        }
    }

    #[test]
    fn a_queue_takes_from_a_longer_one_of_its_kind() {
        let [own, other] = [(); 2].map(|()| RunQueue::new());
        let entry = |number: usize| std::ptr::without_provenance_mut(number * 64);
        (1..=1_000).for_each(|number| other.push(entry(number)));
        level(&own, &other);
        assert_eq!((own.len(), other.len()), (500, 500));
        assert!((1..=500).all(|number| own.pop() == Some(entry(number))), "the oldest");
        level(&other, &own);
        assert_eq!((own.len(), other.len()), (0, 500));
        (0..10_000).for_each(|number| other.push(entry(number + 1)));
        assert_eq!(
            (level(&own, &other), own.len()),
            (SURPLUS_MOST, SURPLUS_MOST),
            "a part at once"
        );
    }
}
