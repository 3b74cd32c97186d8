//! The time by which a future stops waiting, and who wakes it then.
//!
//! Inside a process that is the wheel of the worker that polls it, which costs next to nothing;
//! anywhere else it is a tokio timer.

use crate::cell::CellRef;
use crate::scheduler::worker::Worker;
use crate::timer::Tick;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

/// How long a call waits unless told otherwise.
/// Miri takes a hundred times as long for all.
const USUAL: Duration = Duration::from_secs(if cfg!(miri) { 500 } else { 5 });

/// A deadline that begins to count when it is first asked about.
pub(crate) struct Deadline {
    /// Unless it is the usual one.
    within: Option<Duration>,
    alarm: Alarm,
}

enum Alarm {
    Unset,
    /// The timer wheel of the worker that polls this process.
    Wheel(Tick),
    Tokio(Pin<Box<tokio::time::Sleep>>),
}

impl Deadline {
    pub(crate) fn usual() -> Deadline {
        Deadline { within: None, alarm: Alarm::Unset }
    }

    pub(crate) fn within(time: Duration) -> Deadline {
        Deadline { within: Some(time), alarm: Alarm::Unset }
    }

    /// Sees to it that this task, which is no process, is polled again when the time is over; true
    /// if it is.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        if !matches!(self.alarm, Alarm::Tokio(_)) {
            let sleep = tokio::time::sleep(self.within.unwrap_or(USUAL));
            self.alarm = Alarm::Tokio(Box::pin(sleep));
        }
        match &mut self.alarm {
            Alarm::Tokio(sleep) => sleep.as_mut().poll(cx).is_ready(),
            _ => false,
        }
    }

    /// Sees to it that the running process is woken when the time is over; true if it is.
    pub(crate) fn is_late_in(&mut self, worker: &Worker, cell: CellRef) -> bool {
        let deadline = match self.alarm {
            Alarm::Wheel(tick) => tick,
            _ => worker.deadline(self.within, USUAL),
        };
        self.alarm = Alarm::Wheel(deadline);
        worker.set_alarm(cell, deadline)
    }
}
