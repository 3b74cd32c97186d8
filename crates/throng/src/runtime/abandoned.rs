//! The processes that a shutdown has abandoned, by type.
//!
//! A process is marked, in its extension, where its turn, its `stopping` or its messages are dropped
//! because of the shutdown, and is counted once, where it ends. A process that still lives when all
//! is over is not counted here but found by looking: in the turns that block the workers, in the
//! queues, in the slab.

use super::Shared;
use super::shutdown::Shutdown;
use crate::cell::Token;
use crate::scheduler::watchdog;
use crate::scheduler::{Phase, Scheduler};
use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::ptr;

/// How many types an outcome names at most.
const KINDS_MAX: usize = 32;

/// The abandoned processes of one type; see [`Shutdown::abandoned_kinds`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AbandonedKind {
    /// The type's name, as in [`ProcessInfo::kind`](crate::ProcessInfo::kind).
    pub kind: &'static str,
    /// Number of abandoned processes of this type.
    pub count: u64,
}

/// Processes that were abandoned and have ended, by the names of their types: as many entries as
/// the program has types of processes.
#[derive(Default)]
pub(crate) struct Abandoned(Mutex<HashMap<&'static str, u64>>);

impl Shared {
    /// Counts a process that ends, if the shutdown has abandoned it.
    #[cold]
    pub(crate) fn count_if_abandoned(&self, token: &Token) {
        if self.scheduler.phase() >= Phase::Killing
            && token.if_extension(|own| own.abandoned) == Some(true)
        {
            *lock(&self.abandoned.0).entry(token.class().name).or_default() += 1;
        }
    }

    /// The outcome of a shutdown that began when `live` processes lived. A caller, named by the type
    /// of its process, is left out.
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

    /// Names the type of each process that lives, as far as it can be had: the processes that block
    /// a worker, those in a queue, and those at rest.
    fn name_living(&self, mut name: impl FnMut(&'static str)) {
        let Scheduler { remotes, .. } = &self.scheduler;
        let running = remotes.iter().filter_map(|remote| remote.current_turn.read());
        // The message of a timer for a dead process is no process's.
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
            queued.extend(self.scheduler.take_injected(usize::MAX));
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
