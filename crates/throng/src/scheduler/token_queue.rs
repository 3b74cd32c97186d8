//! Containers of tokens: a worker's run queue and its LIFO slot, filled with nothing else.
//!
//! Invariant: every entry that comes out went in as a token, and comes out once; so it is that
//! token again.

use crate::cell::{Cell, Token};
use crate::scheduler::lifo_slot::LifoSlot;
use crate::scheduler::run_queue::RunQueue;
use crate::sync::Fences;

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

    /// Any thread: takes the older half of a queue, the woken processes if there are any; returns
    /// the first token and gives the rest to `keep`.
    pub(crate) fn steal(&self, mut keep: impl FnMut(Token)) -> Option<Token> {
        [&self.woken, &self.spent].into_iter().find_map(|queue| {
            let grab = queue.steal();
            let mut stolen = tokens(grab.entries());
            let first = stolen.next()?;
            stolen.for_each(&mut keep);
            Some(first)
        })
    }
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
