//! Call cycles: processes that wait for each other in a ring, found long before their deadlines.
//!
//! A call that has waited for [`PATIENCE`] sends a *probe* after itself: a signal to its callee. A
//! process that gets one while its turn is suspended polls its turn, and each call in there that
//! waits passes the probe on to its own callee. A probe that comes back to the call that sent it
//! has found a ring, and that call fails; its turn goes on, and so can the others.
//!
//! ```text
//!        call           call           call
//!   A ──────────▶ B ──────────▶ C ──────────▶ A     the ring
//!     ─ probe ──▶   ─ probe ──▶   ─ probe ──▶ A     its own: fails with `Cycle`
//! ```
//!
//! Only calls whose callee is in a turn as they are made send probes. That is enough: were no
//! callee of a ring in its turn yet when its caller looked, each turn would have begun after the
//! one it was made from had looked at it, and so after itself. And it makes cycles cost nothing to
//! a call that finds its callee at rest, and a load to any other.
//!
//! What bounds the probes: each goes [`HOPS`] far; a call passes one on once; one that sends probes
//! of its own passes none of a call's with a smaller number, so that of a ring closed from several
//! sides at once mostly one call fails and not all. A probe that meets a process between two turns is dropped, for that one does not wait;
//! further ones follow, at twice the interval each time up to a second.

use crate::address::{Pid, RawAddress};
use crate::cell::CellRef;
use crate::scheduler::worker::Worker;
use crate::signal::{self, Signal};
use crate::timer::Tick;
use std::time::Duration;

/// How long a call waits before it suspects a ring. A busy callee is the usual case.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long after one probe the next comes, at most.
const INTERVAL_MOST: Duration = Duration::from_secs(1);
/// How many processes a ring may have to be found.
const HOPS: u8 = 64;
/// How many of the probes passed on a call remembers.
const REMEMBERED: usize = 8;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    sender: Pid,
    number: Number,
    hops: u8,
}

/// What tells a probe from all others of its runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Number {
    /// The same for all probes of a call. Pids would do as well to tell which call yields, but they
    /// are addresses, so that a simulated run would not repeat.
    call: u64,
    round: u8,
}

/// What a waiting call does to find out whether it is part of a ring.
pub(crate) struct Chase {
    to: RawAddress,
    /// When to send the next probe, and how long after that another; zero for never.
    next: Option<Tick>,
    interval_ms: u32,
    trail: Option<Box<Trail>>,
}

/// What only calls have that probes have met.
#[derive(Default)]
struct Trail {
    /// The number of the last probe sent.
    own: Option<Number>,
    passed: Vec<Probe>,
}

impl Chase {
    /// For a call to a process, about to be sent.
    #[inline(always)]
    pub(crate) fn new(to: RawAddress) -> Chase {
        let interval_ms = if to.is_in_turn() { PATIENCE.as_millis() as u32 } else { 0 };
        Chase { to, next: None, interval_ms, trail: None }
    }

    /// Has probes sent and passed on, as long as the call waits; true if it waits for itself.
    #[inline]
    pub(crate) fn has_come_round(&mut self, worker: &Worker, cell: CellRef) -> bool {
        if worker.has_probes() && self.pass_on(worker, cell.pid()) {
            return true;
        }
        if self.interval_ms > 0 {
            self.send_when_due(worker, cell);
        }
        false
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

    fn send_when_due(&mut self, worker: &Worker, cell: CellRef) {
        let interval = Duration::from_millis(u64::from(self.interval_ms));
        let next = *self.next.get_or_insert_with(|| worker.deadline(None, interval));
        if !worker.set_alarm(cell, next) {
            return;
        }
        let trail = self.trail.get_or_insert_default();
        let number = match trail.own {
            Some(Number { call, round }) => Number { call, round: round.wrapping_add(1) },
            None => Number { call: worker.number_probe(), round: 0 },
        };
        trail.own = Some(number);
        send(self.to, Probe { sender: cell.pid(), number, hops: HOPS });
        let interval = (2 * interval).min(INTERVAL_MOST);
        self.interval_ms = interval.as_millis() as u32;
        self.next = Some(worker.deadline(None, interval));
        self.send_when_due(worker, cell);
    }
}

fn send(to: RawAddress, probe: Probe) {
    // Whoever has exited waits for nobody.
    let _ = signal::ask(Pid::from_raw(to), Signal::Probe(probe));
}
