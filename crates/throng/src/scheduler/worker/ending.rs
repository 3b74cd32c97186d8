//! The end of a process: its last turn is over, or it has none.
//!
//! ```text
//! Phase::Draining, Killing, or a request to stop ─▶ end_late, end_at_once ─▶ last turn ─┐
//! a turn that asks for the end ────────────────────────────────────────────────────────┴▶ finish
//! ```
//!
//! Invariant: an exit that is cut short, by a panic or because many processes must be told, continues where
//! it stopped: each step leaves its mark in the cell.

use super::Worker;
use super::turns::stop;
use crate::cell::Token;
use crate::exit::ExitReason;
use crate::fault::{self, Step};
use crate::mailbox::Generation;
use crate::signal;
use crate::turn::after::{After, Progress};
use tracing::Level;
use tracing::field::display;

/// Number of links and monitors of a dead process that are notified before other processes run.
const NOTIFIED_AT_ONCE: usize = 256;

impl Worker {
    /// Ends a process: drops its state and notifies its links and watchers, a slice at a time.
    pub(super) fn finish(&self, token: Token, generation: Generation, reason: ExitReason) {
        self.end_process(token, generation, reason);
        // Messages that the last drops of the exit have sent must not be joined to the next
        // process's messages.
        self.end_streaks();
    }

    fn end_process(&self, token: Token, generation: Generation, reason: ExitReason) {
        fault::point(Step::Finish, token.class().name);
        self.current_turn().begin(token.class().ending);
        if token.obituary().is_none() {
            if let ExitReason::Panicked(panic) = &reason {
                self.remote().counters.count_panic();
                self.kind_counts(token.class().kind).inspect(|counts| counts.count_panic());
                let (process, panic) = (token.class().name, panic.clone());
                self.shared.events.report(
                    Level::ERROR,
                    "a process panicked",
                    process,
                    move |what| {
                        let (message, place) = (panic.message(), panic.place().map(display));
                        tracing::error!(target: "throng::worker", process, panic = %message, place, "{what}");
                    },
                );
            } else if !matches!(reason, ExitReason::Normal | ExitReason::Shutdown) {
                let (process, reason) = (token.class().name, reason.clone());
                self.shared.events.report(Level::DEBUG, "a process exited", process, move |what| {
                    tracing::debug!(target: "throng::worker", process, %reason, "{what}");
                });
            }
            token.die(generation, &reason);
        }
        if !token.is_bare() && !signal::publish_obituary(&token, NOTIFIED_AT_ONCE) {
            return self.push_back(token);
        }
        if !matches!(reason, ExitReason::Normal) {
            self.shared.count_if_abandoned(&token);
        }
        let kind = token.class().kind;
        token.free(&self.shared.slab, &self.slots);
        self.kind_counts(kind).inspect(|counts| counts.count_exit());
        let remote = self.remote();
        self.shared.permits.give_back(&remote.spare_permits);
        remote.counters.count_exit();
    }

    /// Returns the progress of a process that has no turn under way, but may have to exit.
    #[cold]
    pub(super) fn end_late(&self, token: &Token) -> Progress {
        match token.obituary() {
            Some(reason) => Progress::Done(After::ended(reason)),
            None if token.is_to_stop() => {
                self.count_turn();
                Progress::Done(After::exit(ExitReason::Normal))
            }
            None => Progress::Done(After::Next),
        }
    }

    /// Makes a process exit because the deadline of the shutdown is over; its queued messages are
    /// dropped.
    #[cold]
    pub(super) fn end_at_once(&self, token: &Token, generation: Generation) -> Progress {
        if token.close_if_idle(generation) {
            return stop(token, ExitReason::Shutdown);
        }
        token.mark_abandoned();
        Progress::Done(After::exit(ExitReason::Shutdown))
    }
}
