//! Spare workers: threads that stand in for workers whose turn blocks.
//!
//! Up to a limit, as many spares are active as workers are stuck. Each has a permanent place in the
//! workers' `remotes`, behind the regular workers; its thread is started when it is first needed,
//! and sleeps when it is not.
//!
//! The watchdog (one thread) sets how many spares are needed and activates them; a spare retires
//! itself when it sees that more are active than needed. Both do so under one lock, which no other
//! thread takes; the atomics beside it give the same numbers to threads that read without it.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// Spare workers of a runtime; see the file's head.
pub(crate) struct Spares {
    /// Place of the first spare among the workers.
    first: usize,
    most: usize,
    state: Mutex<State>,
    /// Number of active spares beyond the number needed.
    surplus: AtomicUsize,
    active: AtomicUsize,
    /// End of the places that may hold work: all places before it are in use or were.
    in_use: AtomicUsize,
}

struct State {
    needed: usize,
    active: Vec<usize>,
    /// Spares whose thread has been started and that sleep.
    idle: Vec<usize>,
    started: usize,
}

/// Action by which the caller makes a spare active.
#[must_use]
pub(crate) enum Activated {
    /// The spare's thread must be started.
    Start(usize),
    /// The spare's thread must be unparked.
    Wake(usize),
}

impl Spares {
    pub(crate) fn new(workers: usize, most: usize) -> Spares {
        Spares {
            first: workers,
            most,
            state: Mutex::new(State {
                needed: 0,
                active: Vec::new(),
                idle: Vec::new(),
                started: 0,
            }),
            surplus: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            in_use: AtomicUsize::new(workers),
        }
    }

    /// Number of places among the workers that may hold work.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }

    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::SeqCst)
    }

    /// Whether more spares are active than needed.
    #[inline(always)]
    pub(crate) fn surplus(&self) -> bool {
        self.surplus.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_active(&self, spare: usize) -> bool {
        lock(&self.state).active.contains(&spare)
    }

    /// Returns the active spares to be woken so that one of them retires; none unless more are
    /// active than needed.
    pub(crate) fn superfluous(&self) -> Vec<usize> {
        if self.surplus() { lock(&self.state).active.clone() } else { Vec::new() }
    }

    /// Sets how many spares are needed, and activates one if fewer are active.
    pub(crate) fn activate(&self, needed: usize) -> Option<Activated> {
        let mut state = lock(&self.state);
        state.needed = needed;
        let activated = if state.active.len() >= needed {
            None
        } else if let Some(idle) = state.idle.pop() {
            Some(Activated::Wake(idle))
        } else if state.started < self.most {
            state.started += 1;
            Some(Activated::Start(self.first + state.started - 1))
        } else {
            None
        };
        state.active.extend(
            activated.as_ref().map(|(Activated::Start(spare) | Activated::Wake(spare))| *spare),
        );
        self.publish(&state);
        activated
    }

    /// Takes back the activation of a spare whose thread could not be started, as if it had never
    /// been asked for.
    pub(crate) fn give_up(&self, spare: usize) {
        let mut state = lock(&self.state);
        state.active.retain(|&active| active != spare);
        // This is the spare started last, because only the watchdog starts any.
        state.started -= 1;
        self.publish(&state);
    }

    /// Spare: retires if it is not needed; then it must pass on its processes, and sleep.
    #[must_use]
    pub(crate) fn retire(&self, spare: usize) -> bool {
        let mut state = lock(&self.state);
        let retires = state.active.len() > state.needed;
        if retires {
            state.active.retain(|&active| active != spare);
            state.idle.push(spare);
            self.publish(&state);
        }
        retires
    }

    fn publish(&self, state: &State) {
        let active = state.active.len();
        self.surplus.store(active.saturating_sub(state.needed), Ordering::Relaxed);
        self.active.store(active, Ordering::SeqCst);
        let last = state.active.iter().max().map_or(self.first, |last| last + 1);
        // Release: a thread that sees a place in use sees it set up.
        self.in_use.store(last, Ordering::Release);
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use super::*;

    #[test]
    fn spares_become_active_as_needed_up_to_the_limit() {
        let spares = Spares::new(2, 2);
        assert!(matches!(spares.activate(3), Some(Activated::Start(2))));
        assert!(matches!(spares.activate(3), Some(Activated::Start(3))));
        assert!(spares.activate(3).is_none(), "there are no more");
        assert_eq!((spares.in_use(), spares.active()), (4, 2));
        assert!(!spares.retire(2), "all are needed");
        assert!(spares.activate(1).is_none());
        assert!(spares.surplus());
        assert!(spares.retire(3) && !spares.retire(2));
        assert_eq!((spares.in_use(), spares.active(), spares.surplus()), (3, 1, false));
        assert!(matches!(spares.activate(2), Some(Activated::Wake(3))));
    }

    #[test]
    fn a_spare_that_could_not_be_started_is_asked_for_again() {
        let spares = Spares::new(1, 1);
        assert!(matches!(spares.activate(1), Some(Activated::Start(1))));
        spares.give_up(1);
        assert_eq!((spares.in_use(), spares.active()), (1, 0));
        assert!(matches!(spares.activate(1), Some(Activated::Start(1))));
    }
}
