//! Messages that are out of the mailbox and not yet received.
//!
//! ```text
//! mailbox ──nested turn──▶ Arrived ──wanted──▶ the receive
//!                             └──────passed over──▶ Kept ──a later receive──▶
//! ```
//!
//! [`Arrived`] holds the messages of a nested turn for as long as the receive looks at them.
//! [`Kept`] holds the messages that every receive so far has passed over; it belongs to the process
//! and is dropped with it.
//!
//! Invariants: a message in [`Kept`] is older than any in [`Arrived`], and a message in [`Arrived`]
//! is older than any in the mailbox. User code (a receive's condition, a message's drop) never runs
//! while a queue of this file is half changed, and a drop that panics does not keep the other
//! messages from being dropped.

use crate::exit::drop_users;
use crate::mailbox::budget;
use std::collections::VecDeque;

/// Size above which a buffer is freed as soon as it is empty.
const BUFFER_BYTES: usize = 4096;

/// The messages of a nested turn, oldest first: nearly always one.
pub(super) struct Arrived<M> {
    first: Option<M>,
    later: VecDeque<M>,
}

impl<M> Arrived<M> {
    pub(super) fn new() -> Arrived<M> {
        Arrived { first: None, later: VecDeque::new() }
    }

    pub(super) fn push(&mut self, message: M) {
        if self.first.is_none() {
            self.first = Some(message);
        } else {
            self.later.push_back(message);
        }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.later.len()
    }

    #[inline]
    pub(super) fn take(&mut self, matches: &mut impl FnMut(&M) -> bool) -> Option<M> {
        if matches(self.first.as_ref()?) {
            return self.pop();
        }
        let place = self.later.iter().position(matches)?;
        self.later.remove(place)
    }

    pub(super) fn pop(&mut self) -> Option<M> {
        let oldest = self.first.take();
        self.first = self.later.pop_front();
        oldest
    }
}

/// The messages that every receive so far has passed over, oldest first.
pub(super) struct Kept<M>(VecDeque<Passed<M>>);

/// A message that was passed over.
pub(super) struct Passed<M> {
    pub(super) message: M,
    /// Whether it takes a place in the process's bounded mailbox.
    pub(super) is_counted: bool,
}

impl<M> Kept<M> {
    /// Bytes that the mailbox budget is charged for each message.
    pub(super) const BYTES: u64 = size_of::<Passed<M>>() as u64;

    pub(super) fn new() -> Kept<M> {
        Kept(VecDeque::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, message: M, is_counted: bool) {
        self.0.push_back(Passed { message, is_counted });
    }

    /// Takes the first message that matches, skipping the first `passed`; adds to `passed` the
    /// number of further messages that do not match.
    pub(super) fn take(
        &mut self,
        matches: &mut impl FnMut(&M) -> bool,
        passed: &mut usize,
    ) -> Option<Passed<M>> {
        while let Some(kept) = self.0.get(*passed) {
            if matches(&kept.message) {
                return self.remove(*passed);
            }
            *passed += 1;
        }
        None
    }

    /// Takes the oldest message that counts against the bound, and returns its position as well.
    pub(super) fn take_oldest_counted(&mut self) -> Option<(usize, M)> {
        let place = self.0.iter().position(|kept| kept.is_counted)?;
        Some((place, self.remove(place)?.message))
    }

    fn remove(&mut self, place: usize) -> Option<Passed<M>> {
        let removed = self.0.remove(place);
        if self.0.is_empty() && self.0.capacity() * size_of::<Passed<M>>() > BUFFER_BYTES {
            self.0 = VecDeque::new();
        }
        removed
    }
}

impl<M> Drop for Kept<M> {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            budget::discharge_here(self.len() as u64 * Self::BYTES);
        }
        while let Some(kept) = self.0.pop_front() {
            drop_users(kept.message);
        }
    }
}
