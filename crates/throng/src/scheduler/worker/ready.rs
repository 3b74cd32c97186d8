//! Processes that are ready to run: where a worker puts them and takes them out again.
//!
//! ```text
//! woken ─▶ LIFO slot ─┐ the older one
//! asked to stop ─▶ exit slot ─┴─▶ own queue ─▶ other workers steal
//! budget used ────────────────────▶ queue of the spent
//! ```
//!
//! Invariant: a guest keeps only processes that never block; the others go to the injector.

use super::Worker;
use crate::cell::Token;
use crate::mailbox::Generation;
use crate::scheduler::{Phase, Remote};

impl Worker {
    /// Schedules a process that was woken on this worker.
    #[inline(always)]
    pub(crate) fn push(&self, token: Token) {
        if self.role.is_guest() && !token.class().never_blocks {
            return self.scheduler().inject([token]);
        }
        if let Some(older) = self.remote().lifo_slot.replace(token) {
            self.push_back(older);
        }
    }

    /// Schedules a process that was just asked to stop.
    #[inline(always)]
    pub(crate) fn push_exit(&self, token: Token) {
        if self.role.is_guest() && !token.class().never_blocks {
            return self.scheduler().inject([token]);
        }
        if let Some(earlier) = self.remote().exit_slot.replace(token) {
            self.push_back(earlier);
        }
    }

    /// Takes the process that comes before the queue, if there is one: first from the exit slot,
    /// then from the LIFO slot.
    #[inline(always)]
    pub(super) fn take_from_slots(&self) -> Option<Token> {
        let Remote { lifo_slot, exit_slot, .. } = self.remote();
        exit_slot.take().or_else(|| lifo_slot.take())
    }

    /// Takes the next process out of the slots or the own queue.
    pub(super) fn take_queued(&self) -> Option<Token> {
        self.take_from_slots().or_else(|| self.remote().queue.pop())
    }

    /// Leaves a process, and those in the slots and the own queue, to the workers.
    pub(super) fn inject_queued(&self, first: Option<Token>) {
        if let Some(left) = first.or_else(|| self.take_queued()) {
            let rest = std::iter::from_fn(|| self.take_queued());
            self.scheduler().inject(std::iter::once(left).chain(rest));
        }
    }

    /// Puts a process at the end of the queue, where other workers may take it.
    #[inline(never)]
    pub(super) fn push_back(&self, token: Token) {
        self.remote().queue.push(token);
        if !self.batching.get() {
            self.scheduler().notify();
        }
    }

    /// Puts a process that has used its budget behind the others like it.
    pub(super) fn push_spent(&self, token: Token) {
        self.remote().queue.push_spent(token);
        self.scheduler().notify();
    }

    /// Lets other processes come before one that has used its budget. If no message waits for it,
    /// it is at rest: the clock may have run on because the thread was preempted, and the next
    /// message must not find the process behind all the busy ones.
    #[cold]
    pub(super) fn give_way(&self, token: Token, generation: Generation) {
        let may_park = self.scheduler().phase() == Phase::Running && !token.has_pending();
        let busy = if may_park { token.park(generation).err() } else { Some(token) };
        busy.into_iter().for_each(|token| self.push_spent(token));
    }

    /// Runs `f`, which makes many processes ready, and wakes sleepers only once, after it.
    pub(crate) fn batched<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Batch<'a>(&'a Worker, bool);
        impl Drop for Batch<'_> {
            fn drop(&mut self) {
                self.0.batching.set(self.1);
                self.0.scheduler().notify();
            }
        }
        let _batch = Batch(self, self.batching.replace(true));
        f()
    }

    /// Puts the processes that were woken last where other workers can take them.
    pub(super) fn expose_slots(&self) {
        // A turn that sends so much must not wait for the clock to learn that the budget is
        // exceeded.
        self.account.check_budget();
        self.empty_slots();
    }

    pub(super) fn empty_slots(&self) {
        while let Some(token) = self.take_from_slots() {
            self.push_back(token);
        }
    }
}
