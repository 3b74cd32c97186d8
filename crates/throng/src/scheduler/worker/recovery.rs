//! Recovery of a worker from a panic outside of the handlers: its process ends, the worker goes on.
//!
//! ```text
//! panic ─▶ Token::drop strands the token ─▶ guard catches ─▶ recover ─▶ the process exits as panicked
//! ```
//!
//! Invariants:
//! 1. A worker that unwinds recovers one token, that of the running process; any other that it drops is
//!    scheduled again.
//! 2. An exit that a panic has cut short continues where it stopped, so each attempt gets
//!    further.

use super::Worker;
use crate::cell::{Stranded, Token};
use crate::exit::{ExitReason, catch};
use tracing::Level;

/// Number of attempts to end a process whose exit panics outside of user code. Each attempt gets
/// past the step that panicked, and an exit has fewer steps than this number. A process that would
/// need more attempts is left behind.
const ATTEMPTS: u32 = 8;

impl Worker {
    /// Runs `f`; if it unwinds, the process that was running exits as panicked.
    ///
    /// Handlers, hooks and drops of the user's values catch their panics themselves. A panic that
    /// comes here is a bug of the runtime, or comes from user code that the runtime does not know
    /// as such.
    #[inline(always)]
    pub(crate) fn guard(&self, f: impl FnOnce()) {
        if let Err(reason) = catch(f) {
            self.recover(reason);
        }
    }

    /// Keeps the token of the running process, which a panic dropped; returns that of another process.
    pub(crate) fn strand(&self, token: Stranded) -> Option<Stranded> {
        if !self.running().is_some_and(|running| token.is_of(running)) {
            return Some(token);
        }
        self.running.stranded.set(Some(token));
        None
    }

    /// Ends the process that was running when this worker unwound, and restores the worker to its
    /// state before that run.
    #[cold]
    fn recover(&self, mut reason: ExitReason) {
        for _ in 0..ATTEMPTS {
            self.batching.set(false);
            let stranded = self.running.stranded.take();
            self.running.run.begin(0, self.running.run.turn_began.get());
            self.end_streaks();
            self.end_run();
            let worker = self.index;
            let text = reason.to_string();
            self.shared.events.report(Level::ERROR, "a worker unwound", "", move |what| {
                tracing::error!(target: "throng::worker", worker, panic = %text, "{what}");
            });
            let Some(token) = stranded.map(Stranded::recover) else { return };
            // An exit continues where it stopped, so it gets further each time (invariant 2).
            match catch(|| self.end_stranded(token, reason.clone())) {
                Ok(()) => return,
                Err(again) => reason = again,
            }
        }
        let worker = self.index;
        let what = "a process could not be ended and is left behind";
        self.shared.events.report(Level::ERROR, what, "", move |what| {
            tracing::error!(target: "throng::worker", worker, "{what}");
        });
        self.running.stranded.set(None);
        self.end_run();
    }

    /// Ends a process without its last hook.
    fn end_stranded(&self, token: Token, reason: ExitReason) {
        self.begin_run(&token, 0);
        self.current_turn().begin(token.class().ending);
        token.discard_turn(&reason);
        let generation = token.generation();
        self.finish(token, generation, reason);
        self.end_run();
    }
}
