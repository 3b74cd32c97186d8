//! The deadline of a waiting future, and the timer that wakes it then.
//!
//! Inside a process the timer is the wheel of the worker that polls the process, which costs almost
//! nothing; anywhere else it is a tokio timer.

use crate::cell::CellRef;
use crate::scheduler::worker::Worker;
use crate::timer::Tick;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

/// Default deadline of a call; a hundred times as long under Miri, which is that much slower.
const USUAL: Duration = Duration::from_secs(if cfg!(miri) { 500 } else { 5 });

/// A deadline that begins to count when it is first checked.
pub(crate) struct Deadline {
    /// Time that the user has set; `None` for [`USUAL`].
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

    /// Returns whether the deadline has passed. If not, sets a tokio timer that wakes this task,
    /// which is no process, at the deadline.
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

    /// Returns whether the deadline has passed. If not, sets an alarm that wakes the running
    /// process at the deadline.
    pub(crate) fn is_late_in(&mut self, worker: &Worker, cell: CellRef) -> bool {
        let deadline = match self.alarm {
            Alarm::Wheel(tick) => tick,
            _ => worker.deadline(self.within, USUAL),
        };
        self.alarm = Alarm::Wheel(deadline);
        worker.set_alarm(cell, deadline)
    }
}
