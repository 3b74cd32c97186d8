//! The process that a worker runs, and its run: the turns that it has before other processes come.
//!
//! Invariant: between two runs no process is noted as running, so a token that is dropped then belongs to
//! no run (see `recovery`).

use super::run::Run;
use super::{BUDGET, TIME_BUDGET, Worker};
use crate::cell::{CellRef, Stranded, Token};
use crate::scheduler::Remote;
use crate::scheduler::kinds::KindRun;
use crate::timer::Tick;
use crate::turn::async_process::Receiving;
use std::cell::Cell;
use std::time::Duration;

/// Ticks up to which a turn may have taken no time at all, because the clock is coarse.
const TURN_TICKS_UNNOTICED: u32 = 2;
/// Number of sends in a turn after which the worker puts the process woken last where other workers
/// can take it: so many that the wake-up of a worker costs little beside them.
const SENDS_PER_EXPOSURE: u32 = 256;
/// Number of sends after which the worker does so if they took longer than `SLOW`. A turn that sends large
/// messages would otherwise fill the cache with those that wait.
const SENDS_TIMED: u32 = 32;
/// Time of `SENDS_TIMED` sends beside which the wake-up of a worker costs little.
const SLOW: Duration = Duration::from_micros(32);

/// The process that a worker runs.
pub(super) struct Running {
    process: Cell<Option<CellRef>>,
    /// Token of the process, if a panic dropped it.
    pub(super) stranded: Cell<Option<Stranded>>,
    pub(super) run: Run,
    /// The same run, for the counts by kind, if the runtime keeps them.
    kind_run: Option<KindRun>,
    /// Number of sends that come before the end of `sends`.
    sends_left: Cell<u32>,
    sends: Cell<Sends>,
    /// Number of turns that the process has begun inside its own.
    nested: Cell<u32>,
    receiving: Cell<Option<Receiving>>,
}

/// The sends that are counted, of those between two exposures.
#[derive(Clone, Copy)]
enum Sends {
    /// `SENDS_TIMED`, before any is timed.
    First,
    /// `SENDS_TIMED`, since a time of the runtime's clock.
    Timed(Duration),
    /// The others of `SENDS_PER_EXPOSURE`, because the timed ones were not slow.
    Rest,
}

impl Running {
    pub(super) fn new(now: Tick, kind_run: Option<KindRun>) -> Running {
        Running {
            process: Cell::new(None),
            stranded: Cell::new(None),
            run: Run::new(now),
            kind_run,
            sends_left: Cell::new(SENDS_TIMED),
            sends: Cell::new(Sends::First),
            nested: Cell::new(0),
            receiving: Cell::new(None),
        }
    }

    /// Counts the sends to the next exposure from here on.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn begin_sends(&self) {
        self.count_sends(SENDS_TIMED, Sends::First);
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn count_sends(&self, number: u32, sends: Sends) {
        self.sends_left.set(number);
        self.sends.set(sends);
    }

    /// Ends the sends that were counted, at a time of the runtime's clock; whether an exposure comes now.
    fn end_sends(&self, now: impl FnOnce() -> Duration) -> bool {
        match self.sends.get() {
            Sends::First => {
                self.count_sends(SENDS_TIMED, Sends::Timed(now()));
                false
            }
            Sends::Timed(begun) => {
                let now = now();
                let is_slow = now.saturating_sub(begun) > SLOW;
                match is_slow {
                    true => self.count_sends(SENDS_TIMED, Sends::Timed(now)),
                    false => self.count_sends(SENDS_PER_EXPOSURE - 2 * SENDS_TIMED, Sends::Rest),
                }
                is_slow
            }
            Sends::Rest => {
                self.begin_sends();
                true
            }
        }
    }
}

impl Worker {
    /// Process whose turn this worker is polling.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn running(&self) -> Option<CellRef> {
        self.running.process.get()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn begin_run(&self, token: &Token, budget: u32) {
        let running = &self.running;
        running.process.set(Some(token.as_ref()));
        running.begin_sends();
        running.nested.set(0);
        running.run.begin(budget, self.scheduler().clock.now());
        if let Some(run) = &self.running.kind_run {
            run.begin(token.class().kind, || self.scheduler().clock.elapsed());
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn end_run(&self) {
        self.forget_probes();
        // Cleared before a user's `Drop` may run below: the token is given up already.
        self.running.process.set(None);
        let Remote { current_turn, counters, kinds, .. } = self.remote();
        current_turn.end();
        counters.count_run(self.running.run.turns());
        if let (Some(run), Some(kinds)) = (&self.running.kind_run, kinds) {
            let clock = &self.scheduler().clock;
            let ticks = self.running.run.began.get().until(clock.now());
            run.end(kinds, self.running.run.turns(), ticks, || clock.elapsed());
        }
    }

    /// Counts a message of a run that is not over.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn count_turn(&self) {
        self.running.run.count_turn();
    }

    /// Ends a turn, or a part of it between two suspensions; false if the run is over.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn end_turn(&self, token: &Token) -> bool {
        self.end_streaks();
        let now = self.scheduler().clock.now();
        if now != self.running.run.turn_began.get() {
            self.note_ticks(token, now);
        }
        !self.running.run.is_over()
    }

    /// Ends a turn of the running process; whether the next of its pending messages may follow at
    /// once.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn may_follow(&self, token: &Token) -> bool {
        self.end_turn(token) && !token.is_signalled()
    }

    /// Begins the turn of a message that follows one of its type at once.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn follow_on(&self, token: &Token) {
        token.count_turn();
        self.count_turn();
        self.current_turn().begin_again();
    }

    /// Makes the run of the running process end after its turn, because the turn takes messages out
    /// of the mailbox itself.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn end_run_early(&self) {
        self.running.run.end();
    }

    /// Records that the clock has advanced during a turn.
    #[cold]
    fn note_ticks(&self, token: &Token, now: Tick) {
        let time = self.running.run.turn_began.replace(now).until(now);
        if time > TURN_TICKS_UNNOTICED {
            let time = Duration::from_millis(time.into());
            token.note_turn(time);
        }
        if self.running.run.began.get().until(now) >= TIME_BUDGET {
            self.running.run.end();
        }
    }

    /// Counts a turn that the running process begins inside its own; false if other processes come
    /// first.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn may_nest(&self) -> bool {
        let nested = self.running.nested.get() + 1;
        self.running.nested.set(nested);
        nested <= BUDGET
    }

    /// Begins to wait for a nested turn, until the returned value is dropped.
    pub(crate) fn receive(&self, receiving: Receiving) -> impl Drop {
        struct Received<'a>(&'a Worker, Option<Receiving>);
        impl Drop for Received<'_> {
            fn drop(&mut self) {
                self.0.running.receiving.set(self.1);
            }
        }
        Received(self, self.running.receiving.replace(Some(receiving)))
    }

    pub(crate) fn receiving(&self) -> Option<Receiving> {
        self.running.receiving.get()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn count_send(&self) {
        let left = self.running.sends_left.get() - 1;
        self.running.sends_left.set(left);
        if left == 0 {
            self.end_sends();
        }
    }

    #[cold]
    fn end_sends(&self) {
        if self.running.end_sends(|| self.scheduler().clock.elapsed()) {
            self.expose_slots();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of sends after which exposures come, if each send takes a time.
    fn exposures(sends: u32, time_of: impl Fn(u32) -> Duration) -> Vec<u32> {
        let running = Running::new(Tick::from_raw(1).expect("it is no zero"), None);
        let mut now = Duration::ZERO;
        let comes_after = |send: &u32| {
            now += time_of(*send);
            running.sends_left.set(running.sends_left.get() - 1);
            running.sends_left.get() == 0 && running.end_sends(|| now)
        };
        (1..=sends).filter(comes_after).collect()
    }

    #[test]
    fn slow_sends_are_exposed_earlier() {
        let fast = |_| Duration::from_nanos(50);
        let slow = |_| Duration::from_micros(2);
        assert_eq!(exposures(1000, fast), [256, 512, 768]);
        assert_eq!(exposures(200, slow), [64, 96, 128, 160, 192]);
        // The first sends are not timed, and fast ones are counted as before from the last exposure on.
        assert_eq!(exposures(300, |send| if send > 32 { fast(send) } else { slow(send) }), [256]);
        assert_eq!(
            exposures(400, |send| if send > 64 { fast(send) } else { slow(send) }),
            [64, 288]
        );
    }
}
