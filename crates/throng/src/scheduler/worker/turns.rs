//! The turns of a run: which step of its process a worker takes next.
//!
//! ```text
//! run_process ─▶ run_usually ── nothing special ──▶ the process is at rest
//!                    │ else
//!                    ▼
//!                run_turns: turn ─▶ follow ─▶ turn … until the process rests, waits, ends, or gives way
//! ```
//!
//! Invariant: the token of the process is here, in a frame of these functions, until the process is
//! parked, suspended, queued or freed.

use super::{BUDGET, TIME_BUDGET, Worker};
use crate::cell::Token;
use crate::exit::ExitReason;
use crate::mailbox::Generation;
use crate::scheduler::Phase;
use crate::turn::after::{After, Progress};

impl Worker {
    #[inline(always)]
    pub(super) fn run_process(&self, token: Token) {
        self.run_process_for(token, BUDGET);
    }

    /// Runs a process, for at most `budget` messages.
    #[inline(always)]
    pub(crate) fn run_process_for(&self, token: Token, budget: u32) {
        self.begin_run(&token, budget);
        if let Some((token, progress)) = self.run_usually(token) {
            self.run_turns(token, progress);
        }
        self.end_run();
    }

    /// Resumes a process, and runs its messages for as long as nothing else is to be done; returns
    /// the token with the progress of the last turn if the run goes on.
    #[inline(always)]
    fn run_usually(&self, token: Token) -> Option<(Token, Progress)> {
        let may_be_plain = self.scheduler().phase() == Phase::Running;
        if may_be_plain && token.is_plain() {
            return token.run_plain(self);
        }
        if may_be_plain && token.is_to_stop() && !token.is_signalled() {
            return self.run_exit(token);
        }
        let progress = if may_be_plain && token.is_to_start() {
            self.count_turn();
            token.count_turn();
            token.start()
        } else {
            self.resume(&token)
        };
        let goes_on = self.end_turn(&token);
        match progress {
            Progress::Pending => {
                self.suspend(token);
                None
            }
            Progress::Done(After::Next) if may_be_plain && goes_on && token.is_plain() => {
                token.run_plain(self)
            }
            progress => Some((token, progress)),
        }
    }

    /// Ends a process that was asked to stop while it was idle; if it has a last turn, returns the
    /// token with the progress of that turn.
    #[inline(always)]
    fn run_exit(&self, token: Token) -> Option<(Token, Progress)> {
        self.count_turn();
        if token.class().stopping.is_some() {
            return Some((token, Progress::Done(After::exit(ExitReason::Normal))));
        }
        let generation = token.generation();
        self.finish(token, generation, ExitReason::Normal);
        None
    }

    /// Suspends the turn under way until it is woken.
    #[inline(always)]
    pub(super) fn suspend(&self, token: Token) {
        let Err(token) = token.suspend() else { return };
        // The turn was woken during the poll. Other processes come first, because it may be a turn
        // that only yields.
        if self.running.run.began.get().until(self.scheduler().clock.now()) < TIME_BUDGET {
            self.push_back(token);
        } else {
            self.push_spent(token);
        }
    }

    /// Runs a process as long as it may run, after a turn with this progress.
    #[inline(never)]
    fn run_turns(&self, mut token: Token, mut progress: Progress) {
        let generation = token.generation();
        loop {
            if !matches!(progress, Progress::Done(After::Next)) {
                match self.follow(token, generation, progress) {
                    Some(kept) => (token, progress) = kept,
                    None => return,
                }
            } else if self.running.run.is_over() {
                return self.give_way(token, generation);
            } else {
                // Before the turn, which may end the run.
                self.count_turn();
                match self.next_turn(&token, generation) {
                    Some(begun) => {
                        token.count_turn();
                        progress = begun;
                    }
                    None => {
                        self.running.run.uncount_turn();
                        match token.park(generation) {
                            Ok(()) => return,
                            Err(kept) => token = kept,
                        }
                        continue;
                    }
                }
            }
            self.end_turn(&token);
        }
    }

    /// Takes the step that follows a turn, if it is not simply the next message; returns the token
    /// if the run goes on.
    pub(super) fn follow(
        &self,
        token: Token,
        generation: Generation,
        progress: Progress,
    ) -> Option<(Token, Progress)> {
        let progress = match progress {
            Progress::Pending => {
                self.suspend(token);
                return None;
            }
            Progress::Done(After::Next) => progress,
            Progress::Done(After::Exit(why)) => match token.class().stopping {
                Some(begin) => begin(&token, why.into()),
                None => {
                    self.finish(token, generation, why.into());
                    return None;
                }
            },
            Progress::Done(After::ExitIfIdle) => {
                // A timer that the turn has set is tied to the process by a signal. A signal is no queued message.
                if token.is_signalled() {
                    self.current_turn().begin(token.class().signalled);
                    if let Some(after) = token.handle_signals(generation) {
                        return self.follow(token, generation, Progress::Done(after));
                    }
                }
                if token.close_if_idle(generation) {
                    stop(&token, ExitReason::Normal)
                } else {
                    Progress::Done(After::Next)
                }
            }
            Progress::Done(After::Kill) => {
                let reason = token.reason_of_kill();
                self.finish(token, generation, reason);
                return None;
            }
            Progress::Done(After::Ended(why)) => {
                self.finish(token, generation, why.into());
                return None;
            }
        };
        Some((token, progress))
    }

    /// Resumes a process where it left off.
    #[inline(always)]
    pub(super) fn resume(&self, token: &Token) -> Progress {
        token.begin_run();
        let signalled = token.is_signalled();
        let phase = self.scheduler().phase();
        if !signalled && phase < Phase::Killing {
            return token.resume(self.current_turn()).unwrap_or_else(|| self.end_late(token));
        }
        self.resume_otherwise(token, signalled, phase)
    }

    /// Does the rest of [`resume`](Self::resume) if signals wait or the shutdown's deadline is over.
    #[cold]
    fn resume_otherwise(&self, token: &Token, signalled: bool, phase: Phase) -> Progress {
        if signalled {
            self.current_turn().begin(token.class().signalled);
            let stopping = token.is_stopping();
            match token.handle_signals(token.generation()) {
                None => {}
                // The process is exiting already.
                Some(After::Exit(_)) if stopping => {}
                Some(after) => {
                    match &after {
                        After::Exit(why) => token.discard_turn(why.reason()),
                        _ => token.discard_turn(&token.reason_of_kill()),
                    };
                    return Progress::Done(after);
                }
            }
        }
        if phase >= Phase::Killing {
            let stopping = token.is_stopping();
            self.current_turn().begin(token.class().ending);
            if token.discard_turn(&ExitReason::Shutdown) {
                token.mark_abandoned();
                if stopping {
                    return Progress::Done(After::ended(ExitReason::Shutdown));
                }
                return Progress::Done(After::exit(ExitReason::Shutdown));
            }
        }
        let progress = token.resume(self.current_turn()).unwrap_or_else(|| self.end_late(token));
        if signalled && matches!(progress, Progress::Done(_)) {
            // The processes whose probes met this turn waited for it, and do not wait for the next.
            self.forget_probes();
        }
        progress
    }

    /// Begins the next turn, if there is one.
    fn next_turn(&self, token: &Token, generation: Generation) -> Option<Progress> {
        if token.is_signalled() {
            self.current_turn().begin(token.class().signalled);
            if let Some(after) = token.handle_signals(generation) {
                return Some(Progress::Done(after));
            }
        }
        match self.scheduler().phase() {
            Phase::Running => token.run_next(generation, self.current_turn()),
            Phase::Draining => token.run_next(generation, self.current_turn()).or_else(|| {
                token.close_if_idle(generation).then(|| stop(token, ExitReason::Shutdown))
            }),
            Phase::Killing | Phase::Over => Some(self.end_at_once(token, generation)),
        }
    }
}

#[cfg(feature = "sim")]
impl Worker {
    /// Ends a process as a panic in its turn would.
    pub(crate) fn crash_process(&self, token: Token, reason: ExitReason) {
        if token.is_closed() || token.is_stopping() {
            return self.run_process_for(token, BUDGET);
        }
        self.begin_run(&token, BUDGET);
        token.begin_run();
        token.clear_fresh();
        self.current_turn().begin(token.class().ending);
        token.discard_turn(&reason);
        self.run_turns(token, Progress::Done(After::exit(reason)));
        self.end_run();
    }
}

/// Begins the hook `stopping` of a process, its last turn; a process without the hook ends.
pub(super) fn stop(token: &Token, reason: ExitReason) -> Progress {
    match token.class().stopping {
        Some(begin) => begin(token, reason),
        None => Progress::Done(After::ended(reason)),
    }
}
