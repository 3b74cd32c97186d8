//! Recovery of a worker from a panic outside of the handlers: its process ends, the worker goes on.
//!
//! ```text
//! panic ─▶ Token::drop strands the token ─▶ guard catches ─▶ recover ─▶ the process exits as panicked
//! ```
//!
//! Invariants: a worker that unwinds holds at most one token, that of the running process. An exit
//! that a panic has cut short goes on where it broke off, so each attempt gets further.

use super::Worker;
use crate::cell::{Stranded, Token};
use crate::exit::{ExitReason, catch};
use tracing::Level;

/// Attempts at ending a process whose exit panics outside of user code. Each gets past the step that
/// panicked, and an exit has fewer steps than this; a process that takes more is left behind.
const ATTEMPTS: u32 = 8;

impl Worker {
    /// Runs `f`; if it unwinds, the process that was running exits as panicked.
    ///
    /// Handlers, hooks and drops of what is the user's catch their panics themselves. What comes
    /// here is a bug of the runtime, or of user code that nobody thought to be any.
    #[inline(always)]
    pub(crate) fn guard(&self, f: impl FnOnce()) {
        if let Err(reason) = catch(f) {
            self.recover(reason);
        }
    }

    /// The token of the running process was dropped by a panic.
    pub(crate) fn strand(&self, token: Stranded) {
        if self.running().is_some_and(|running| token.is_of(running)) {
            self.stranded.set(Some(token));
        }
    }

    /// Ends the process that was running when this worker unwound, and makes the worker as it was
    /// before that run.
    #[cold]
    fn recover(&self, mut reason: ExitReason) {
        for _ in 0..ATTEMPTS {
            self.batching.set(false);
            let stranded = self.stranded.take();
            self.end_run(0);
            let worker = self.index;
            let text = reason.to_string();
            self.shared.events.report(Level::ERROR, "a worker unwound", "", move |what| {
                tracing::error!(target: "throng::worker", worker, panic = %text, "{what}");
            });
            let Some(token) = stranded.map(Stranded::recover) else { return };
            // An exit goes on where it broke off, so it gets further each time.
            match catch(|| self.end_process(token, reason.clone())) {
                Ok(()) => return,
                Err(again) => reason = again,
            }
        }
        let worker = self.index;
        let what = "a process could not be ended and is left behind";
        self.shared.events.report(Level::ERROR, what, "", move |what| {
            tracing::error!(target: "throng::worker", worker, "{what}");
        });
        self.stranded.set(None);
        self.end_run(0);
    }

    /// Ends a process without its last hook.
    fn end_process(&self, token: Token, reason: ExitReason) {
        self.begin_run(&token);
        self.current_turn().begin(token.class().ending);
        token.discard_turn(&reason);
        let generation = token.generation();
        self.finish(token, generation, reason);
        self.end_run(0);
    }
}
