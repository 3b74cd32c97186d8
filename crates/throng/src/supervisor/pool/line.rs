//! The line of a pool: the free places of its workers, and the messages that wait for one.
//!
//! ```text
//!             ┌ worker 0 ┐ free places
//!  take ◀─────┤ worker 1 ├◀──── free ── a message is over
//!             └ worker 2 ┘         │
//!  join ──▶ key 1: 4 9             ▼
//!           any:   5 6 7 ──▶ next: the oldest that the worker may handle
//! ```
//! Invariants:
//! 1. A message in the line has no place. Its sender need not be polled for it to get one.
//! 2. Each message has a number of its own, which it keeps if it comes back to the line.
//!
//! This file decides only; `pool` sends, refuses and wakes.

use std::collections::BTreeMap;

/// Free places and waiting messages of a pool.
pub(super) struct Line<W> {
    free: Box<[usize]>,
    /// Whether each worker has been asked whether it goes on.
    asked: Box<[bool]>,
    waiting: BTreeMap<Ticket, W>,
    next_number: u64,
    /// Index of the worker at which the next search begins, so that idle workers take turns.
    first: usize,
}

/// Position of a message in the line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket {
    /// Index of the worker that must handle the message; [`ANY`] for any of them.
    lane: usize,
    number: u64,
}

const ANY: usize = usize::MAX;

/// Outcome of a search for a place.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// A place of the worker with this index was taken.
    Place(usize),
    /// The workers that are running have no room.
    Full,
    /// No worker is running.
    Gone,
}

impl<W> Line<W> {
    pub(super) fn new(workers: usize, room: usize) -> Line<W> {
        Line {
            free: vec![room; workers].into(),
            asked: vec![false; workers].into(),
            waiting: BTreeMap::new(),
            next_number: 0,
            first: 0,
        }
    }

    /// Takes a place of the running worker with the most room, among all or of the worker `only`.
    pub(super) fn take(
        &mut self,
        only: Option<usize>,
        is_running: impl Fn(usize) -> bool,
    ) -> Found {
        let workers = self.free.len();
        let (first, number) = match only {
            Some(at) => (at, 1),
            None => {
                self.first = (self.first + 1) % workers;
                (self.first, workers)
            }
        };
        let candidates = (first..first + number).map(|at| at % workers);
        // If several workers have the most room, the last of them.
        let most = candidates.filter(|&at| is_running(at)).max_by_key(|&at| self.free[at]);
        match most {
            None => Found::Gone,
            Some(at) if self.free[at] == 0 => Found::Full,
            Some(at) => {
                self.free[at] -= 1;
                Found::Place(at)
            }
        }
    }

    /// Adds a message for the worker `only`, or for any.
    pub(super) fn join(&mut self, only: Option<usize>, message: W) -> Ticket {
        self.next_number += 1;
        let ticket = Ticket { lane: only.unwrap_or(ANY), number: self.next_number };
        self.waiting.insert(ticket, message);
        ticket
    }

    /// Removes a message; `None` if it has left the line already.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<W> {
        self.waiting.remove(&ticket)
    }

    /// Puts a message back that could not be sent.
    pub(super) fn put_back(&mut self, ticket: Ticket, message: W) {
        self.waiting.insert(ticket, message);
    }

    /// Frees a place of a worker; returns whether a message waits that the worker may handle.
    pub(super) fn free(&mut self, at: usize) -> bool {
        self.free[at] += 1;
        self.oldest(at).is_some()
    }

    /// Takes a free place of a worker, and the oldest message that the worker may handle.
    pub(super) fn next(&mut self, at: usize) -> Option<(Ticket, W)> {
        if self.free[at] == 0 {
            return None;
        }
        let oldest = self.waiting.remove_entry(&self.oldest(at)?)?;
        self.free[at] -= 1;
        Some(oldest)
    }

    fn oldest(&self, at: usize) -> Option<Ticket> {
        let first = |lane| {
            let all = Ticket { lane, number: 0 }..=Ticket { lane, number: u64::MAX };
            self.waiting.range(all).next().map(|(&ticket, _)| ticket)
        };
        let oldest = [first(at), first(ANY)].into_iter().flatten();
        oldest.min_by_key(|ticket| ticket.number)
    }

    /// Removes the messages whose worker is not running, and all if no worker is.
    pub(super) fn take_stranded(&mut self, is_running: impl Fn(usize) -> bool) -> Vec<W> {
        let running: Vec<_> = (0..self.free.len()).map(is_running).collect();
        let is_stranded = |ticket: &Ticket, _: &mut W| match running.get(ticket.lane) {
            Some(is_running) => !is_running,
            None => !running.contains(&true),
        };
        self.waiting.extract_if(.., is_stranded).map(|(_, message)| message).collect()
    }

    /// Records whether a worker has been asked whether it goes on; returns whether it had been.
    pub(super) fn set_asked(&mut self, at: usize, is_asked: bool) -> bool {
        std::mem::replace(&mut self.asked[at], is_asked)
    }

    pub(super) fn free_places(&self) -> usize {
        self.free.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_freed_place_goes_to_the_oldest_message_that_its_worker_may_handle() {
        let mut line = Line::new(2, 1);
        let is_running = |_: usize| true;
        assert!(matches!(line.take(Some(0), is_running), Found::Place(0)));
        assert_eq!(line.take(None, is_running), Found::Place(1));
        assert_eq!(line.take(None, is_running), Found::Full);
        line.join(Some(1), "key 1");
        let any = line.join(None, "any");
        line.join(Some(0), "key 0");
        line.join(None, "any, later");
        assert!(line.next(0).is_none(), "no place is free");
        assert!(line.free(0));
        assert_eq!(line.next(0), Some((any, "any")));
        assert!(line.next(0).is_none(), "a message takes one place");
        // The message could not be sent, and keeps its position.
        line.put_back(any, "any");
        assert!(line.free(0) && line.free(1));
        assert_eq!(line.next(0), Some((any, "any")));
        assert_eq!(line.next(1).map(|(_, message)| message), Some("key 1"));
        assert!(line.free(1));
        assert_eq!(line.next(1).map(|(_, message)| message), Some("any, later"));
        assert!(!line.free(1), "the last message is for worker 0");
    }

    #[test]
    fn a_message_is_stranded_without_a_worker_that_may_handle_it() {
        let mut line = Line::new(3, 1);
        for (only, message) in [(Some(0), "0"), (None, "any"), (Some(2), "2")] {
            line.join(only, message);
        }
        assert_eq!(line.take_stranded(|_| true), [""; 0]);
        assert_eq!(line.take_stranded(|at| at > 0), ["0"]);
        assert_eq!(line.take_stranded(|_| false), ["2", "any"]);
        assert_eq!(line.take(None, |_| false), Found::Gone);
        assert_eq!(line.take(Some(1), |at| at != 1), Found::Gone);
    }

    proptest! {
        /// Places and messages against the sums that must hold after each step.
        #[test]
        fn no_place_is_lost_and_none_is_free_while_a_message_waits_for_it(
            steps in prop::collection::vec((0_u8..4, 0_usize..3), 0..60),
        ) {
            let (mut line, mut busy) = (Line::new(3, 2), [0; 3]);
            for (step, at) in steps {
                let only = (step % 2 == 0).then_some(at);
                match step {
                    0 | 1 => match line.take(only, |_| true) {
                        Found::Place(at) => busy[at] += 1,
                        Found::Full => drop(line.join(only, ())),
                        Found::Gone => unreachable!("all are running"),
                    },
                    2 if busy[at] > 0 => {
                        busy[at] -= 1;
                        let waits = line.free(at);
                        let next = line.next(at);
                        prop_assert_eq!(waits, next.is_some());
                        busy[at] += usize::from(next.is_some());
                    }
                    _ => {}
                }
                prop_assert_eq!(line.free_places() + busy.iter().sum::<usize>(), 6);
                for (at, busy) in busy.iter().enumerate() {
                    prop_assert!(*busy <= 2);
                    prop_assert!(*busy == 2 || line.oldest(at).is_none());
                }
            }
        }
    }
}
