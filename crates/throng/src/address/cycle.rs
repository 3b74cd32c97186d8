//! Call cycles: processes that wait for each other in a ring, found long before their deadlines.
//!
//! A call that has waited for [`PATIENCE`] sends a *probe* to its callee, as a signal. A process
//! that gets a probe while its turn is suspended polls its turn, and each call that waits in the
//! turn passes the probe on to its own callee. A probe that comes back to the call that sent it has
//! found a ring, and that call fails; its turn goes on, and so can the others.
//!
//! ```text
//!        call           call           call
//!   A ──────────▶ B ──────────▶ C ──────────▶ A     the ring
//!     ─ probe ──▶   ─ probe ──▶   ─ probe ──▶ A     A's own: its call fails with `Cycle`
//! ```
//!
//! Only a call whose callee is in a turn when the call is sent sends probes. That is enough: if
//! every caller in a ring had found its callee between turns, then each callee's turn would have
//! begun after its caller's check, and so after its caller's turn began; around the ring, each turn
//! would have begun after itself. Thus the search costs nothing for a call that finds its callee at
//! rest, and a load for any other.
//!
//! Probes are bounded. Each is passed on [`HOPS`] times at most. A call passes a probe on once. A
//! call that sends probes of its own does not pass on a probe of a call with a smaller number, so
//! that in a ring closed from several sides at once mostly one call fails and not all. A probe that
//! meets a process between two turns is dropped, because that process does not wait; the call sends
//! further probes, each time after twice the interval, up to a second.
//!
//! A question whose answer was [detached](crate::ReplyTo::detach) waits for no process that is known
//! here: its caller neither sends nor passes on probes for it. The mark is set in the turn that got
//! the question. A probe that was sent to that process before is dropped at the end of this turn, if
//! not before; and a probe that has come from a later turn of the process has come after the mark.

use crate::address::{Pid, RawAddress};
use crate::cell::CellRef;
use crate::scheduler::worker::Worker;
use crate::signal::{self, Signal};
use crate::timer::Tick;
use std::time::Duration;

/// Time that a call waits before its first probe. Usually the callee is only busy.
const PATIENCE: Duration = Duration::from_millis(20);
const INTERVAL_MOST: Duration = Duration::from_secs(1);
/// Maximum number of times that a probe is passed on. A longer ring is not found.
const HOPS: u8 = 64;
const REMEMBERED: usize = 8;

/// A probe on its way around a possible ring; see the file's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    sender: Pid,
    number: Number,
    hops: u8,
}

/// Number of a probe, unique in its runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Number {
    /// The same for all probes of a call, and decides which call yields. A pid could decide that
    /// too, but pids are memory addresses, so a simulated run would not repeat.
    call: u64,
    round: u8,
}

/// The search of a waiting call for a ring that it is part of.
pub(crate) struct Chase {
    to: RawAddress,
    /// Tick at which the next probe is due; `None` until the call first waits in a process.
    next: Option<Tick>,
    /// Time until the next probe, in milliseconds; zero if the call sends none.
    interval_ms: u32,
    trail: Option<Box<Trail>>,
}

/// The probes of a call; allocated for calls that have sent or met a probe.
#[derive(Default)]
struct Trail {
    /// Number of the last probe that the call sent.
    own: Option<Number>,
    /// The last probes that the call passed on, at most [`REMEMBERED`].
    passed: Vec<Probe>,
}

impl Chase {
    /// Begins the search of a call to a process, which was in a turn when the call was sent, or not.
    #[inline(always)]
    pub(crate) fn new(to: RawAddress, was_in_turn: bool) -> Chase {
        let interval_ms = if was_in_turn { PATIENCE.as_millis() as u32 } else { 0 };
        Chase { to, next: None, interval_ms, trail: None }
    }

    /// Passes on the probes that the running turn was given, and sends the call's own when due.
    /// Returns whether a probe of its own has come back: then the call waits for itself. Does
    /// nothing once the call is detached, because it then waits for no process.
    #[inline(always)]
    pub(crate) fn has_come_round(
        &mut self,
        worker: &Worker,
        cell: CellRef,
        is_detached: impl Fn() -> bool,
    ) -> bool {
        if worker.has_probes() && !is_detached() && self.pass_on(worker, cell.pid()) {
            return true;
        }
        if self.interval_ms > 0 {
            match self.next {
                None => self.next = Some(worker.deadline(None, PATIENCE)),
                Some(next) if worker.is_due(next) => match is_detached() {
                    true => self.end(),
                    false => self.send(worker, cell),
                },
                Some(_) => {}
            }
        }
        false
    }

    /// Returns the earlier of two ticks: that of the next probe, if the call sends any, and `other`.
    #[inline(always)]
    pub(crate) fn next_or(&self, other: Tick) -> Tick {
        self.next.filter(|next| next.is_due(other)).unwrap_or(other)
    }

    #[cold]
    fn pass_on(&mut self, worker: &Worker, me: Pid) -> bool {
        let trail = self.trail.get_or_insert_default();
        worker.probes().into_iter().any(|probe| {
            if probe.sender == me {
                return trail.own == Some(probe.number);
            }
            let yields = trail.own.is_some_and(|own| own.call > probe.number.call);
            let known = trail.passed.iter().any(|passed| passed.number == probe.number);
            if !yields && !known && probe.hops > 0 {
                if trail.passed.len() == REMEMBERED {
                    trail.passed.remove(0);
                }
                trail.passed.push(probe);
                send(self.to, Probe { hops: probe.hops - 1, ..probe });
            }
            false
        })
    }

    /// Sends no more probes.
    #[cold]
    fn end(&mut self) {
        self.next = None;
        self.interval_ms = 0;
    }

    #[cold]
    fn send(&mut self, worker: &Worker, cell: CellRef) {
        let trail = self.trail.get_or_insert_default();
        let number = match trail.own {
            Some(Number { call, round }) => Number { call, round: round.wrapping_add(1) },
            None => Number { call: worker.number_probe(), round: 0 },
        };
        trail.own = Some(number);
        send(self.to, Probe { sender: cell.pid(), number, hops: HOPS });
        let interval = Duration::from_millis(u64::from(2 * self.interval_ms)).min(INTERVAL_MOST);
        self.interval_ms = interval.as_millis() as u32;
        self.next = Some(worker.deadline(None, interval));
    }
}

fn send(to: RawAddress, probe: Probe) {
    // The probe is dropped if the callee has exited, and so waits for nobody, or takes no
    // questions.
    let _ = signal::ask(Pid::from_raw(to), Signal::Probe(probe));
}
