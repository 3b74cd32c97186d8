//! Spare workers: threads that stand in for workers whose turn blocks.
//!
//! There are as many active ones as there are stuck workers, up to a limit. Each has a place among
//! the workers' `remotes` for good, behind those of the regular ones; its thread is started when it
//! is first needed, and sleeps when it is not.
//!
//! Who may do what: the watchdog (one thread) sets how many are needed and activates; a spare
//! retires itself when it sees that there are more than that. All under one lock, which only they
//! take; the atomics beside it say the same to those who look without.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// See the file's head.
pub(crate) struct Spares {
    /// The first spare's place among the workers.
    first: usize,
    most: usize,
    state: Mutex<State>,
    /// How many more are active than needed.
    surplus: AtomicUsize,
    active: AtomicUsize,
    /// All places before this one are in use or were.
    in_use: AtomicUsize,
}

struct State {
    needed: usize,
    active: Vec<usize>,
    /// Those whose thread has been started and that sleep.
    idle: Vec<usize>,
    started: usize,
}

/// What has to be done for a spare to become active.
#[must_use]
pub(crate) enum Activated {
    /// Its thread has to be started.
    Start(usize),
    /// Its thread has to be unparked.
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

    /// How many places among the workers may hold work.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }

    /// How many are active.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::SeqCst)
    }

    /// Whether there are more than needed.
    #[inline(always)]
    pub(crate) fn surplus(&self) -> bool {
        self.surplus.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_active(&self, spare: usize) -> bool {
        lock(&self.state).active.contains(&spare)
    }

    /// Those that are active while more are than needed, to be woken so that one retires.
    pub(crate) fn superfluous(&self) -> Vec<usize> {
        if self.surplus() { lock(&self.state).active.clone() } else { Vec::new() }
    }

    /// So many are needed: activates one if fewer are active.
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

    /// The thread of a spare could not be started: it is as if it had never been asked for.
    pub(crate) fn give_up(&self, spare: usize) {
        let mut state = lock(&self.state);
        state.active.retain(|&active| active != spare);
        // The one started last, for only the watchdog starts any.
        state.started -= 1;
        self.publish(&state);
    }

    /// Spare: retires if it is not needed; then it must pass on what it holds, and sleep.
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
        // Release: who sees a place in use sees it set up.
        self.in_use.store(last, Ordering::Release);
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_active_as_are_needed_up_to_the_limit() {
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
