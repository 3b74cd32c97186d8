//! Containers of tokens: a worker's run queue and its LIFO slot, filled with nothing else.
//!
//! Invariant: every entry that comes out went in as a token, and comes out once; so it is that
//! token again.

use crate::cell::{Cell, Token};
use crate::scheduler::lifo_slot::LifoSlot;
use crate::scheduler::run_queue::RunQueue;
use crate::sync::Fences;

/// A worker's run queue, whose entries are tokens.
pub(crate) struct TokenQueue(RunQueue<Cell>);

impl TokenQueue {
    pub(crate) fn new() -> TokenQueue {
        TokenQueue(RunQueue::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.len()
    }

    /// Owner: appends.
    #[inline(always)]
    pub(crate) fn push(&self, token: Token) {
        self.0.push(token.into_raw());
    }

    /// Owner: takes the oldest token.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<Token> {
        self.0.pop().and_then(token)
    }

    /// Any thread: takes the older half; returns the first token and gives the rest to `keep`.
    pub(crate) fn steal(&self, keep: impl FnMut(Token)) -> Option<Token> {
        let grab = self.0.steal();
        let mut stolen = tokens(grab.entries());
        let first = stolen.next()?;
        stolen.for_each(keep);
        Some(first)
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

/// Restores the token from an entry.
#[inline(always)]
fn token(entry: *mut Cell) -> Option<Token> {
    // SAFETY: by the file's invariant an entry is from `Token::into_raw`, and both containers hand
    // each entry out once.
    unsafe { Token::from_raw(entry) }
}
