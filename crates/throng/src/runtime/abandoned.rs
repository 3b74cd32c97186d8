//! The processes that a shutdown has abandoned, by type.
//!
//! A process is marked in its extension when the shutdown drops its turn, its `stopping` or its
//! messages, and is counted once, when it ends. A process that still lives when the runtime has
//! ended is not counted here but searched for: in the turns that block the workers, in the queues,
//! in the slab.

use super::Shared;
use super::shutdown::Shutdown;
use crate::cell::Token;
use crate::scheduler::watchdog;
use crate::scheduler::{Phase, Scheduler};
use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::ptr;

const KINDS_MAX: usize = 32;

/// The abandoned processes of one type; see [`Shutdown::abandoned_kinds`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AbandonedKind {
    /// Name of the type, as in [`ProcessInfo::kind`](crate::ProcessInfo::kind).
    pub kind: &'static str,
    /// Number of abandoned processes of this type.
    pub count: u64,
}

/// Counts of abandoned processes that have ended, by the name of their type: at most as many
/// entries as the program has process types.
#[derive(Default)]
pub(crate) struct Abandoned(Mutex<HashMap<&'static str, u64>>);

impl Shared {
    /// Counts a process that ends, if the shutdown has abandoned it. Called by the token's holder.
    #[cold]
    pub(crate) fn count_if_abandoned(&self, token: &Token) {
        if self.scheduler.phase() >= Phase::Killing
            && token.if_extension(|own| own.abandoned) == Some(true)
        {
            *lock(&self.abandoned.0).entry(token.class().name).or_default() += 1;
        }
    }

    /// Returns the outcome of a shutdown that began with `live` processes. The calling process,
    /// given by the name of its type, is not counted.
    pub(super) fn outcome(&self, live: u64, caller: Option<&'static str>) -> Shutdown {
        let mut kinds = lock(&self.abandoned.0).clone();
        let ended: u64 = kinds.values().sum();
        let callers = u64::from(caller.is_some());
        let left = self.scheduler.live().saturating_sub(callers);
        if left > 0 {
            self.name_living(|kind| *kinds.entry(kind).or_default() += 1);
            if let Some(count) = caller.and_then(|caller| kinds.get_mut(caller)) {
                *count -= 1;
            }
        }
        let abandoned = ended + left;
        let mut kinds: Vec<_> = kinds
            .into_iter()
            .filter(|&(_, count)| count > 0)
            .map(|(kind, count)| AbandonedKind { kind, count })
            .collect();
        kinds.sort_by(|one, other| (other.count, one.kind).cmp(&(one.count, other.kind)));
        kinds.truncate(KINDS_MAX);
        Shutdown {
            stopped: live.saturating_sub(abandoned + callers),
            abandoned,
            abandoned_kinds: kinds,
        }
    }

    /// Calls `name` with the type of each live process that can be found: processes that block a
    /// worker, queued processes, and processes at rest.
    fn name_living(&self, mut name: impl FnMut(&'static str)) {
        let Scheduler { remotes, .. } = &self.scheduler;
        let running = remotes.iter().filter_map(|remote| remote.current_turn.read());
        // A worker that drops the timer message of a dead process runs no process.
        let titles = running.map(|(_, title)| title);
        titles
            .filter(|&title| !ptr::eq(title, &watchdog::TIMER))
            .for_each(|title| name(title.process()));
        let mut queued = Vec::new();
        for remote in remotes {
            queued
                .extend([remote.exit_slot.steal(), remote.lifo_slot.steal()].into_iter().flatten());
            while let Some(token) = remote.queue.steal(|token| queued.push(token)) {
                queued.push(token);
            }
        }
        while self.scheduler.injected() > 0 {
            self.scheduler.take_injected(1, |token| queued.push(token));
        }
        queued.iter().for_each(|token| name(token.class().name));
        self.slab.for_each_slot(|cell| {
            if let Some(borrowed) = cell.generation().and_then(|generation| cell.borrow(generation))
            {
                name(borrowed.token().class().name);
                borrowed.give_back();
            }
        });
        self.scheduler.inject(queued);
    }
}
