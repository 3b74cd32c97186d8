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
    /// Tick of the deadline, once a process has checked it.
    at: Option<Tick>,
    /// Timer of the deadline, once a task that is no process has checked it.
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Deadline {
    #[inline(always)]
    pub(crate) fn usual() -> Deadline {
        Deadline { within: None, at: None, sleep: None }
    }

    pub(crate) fn within(time: Duration) -> Deadline {
        Deadline { within: Some(time), at: None, sleep: None }
    }

    /// Returns whether the deadline has passed. If not, sets a tokio timer that wakes this task,
    /// which is no process, at the deadline.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[cold]
    pub(crate) fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        self.at = None;
        let time = self.within.unwrap_or(USUAL);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        sleep.as_mut().poll(cx).is_ready()
    }

    /// Returns whether the deadline has passed. If not, sets an alarm that wakes the running
    /// process at the deadline.
    pub(crate) fn is_late_in(&mut self, worker: &Worker, cell: CellRef) -> bool {
        let deadline = self.tick_in(worker);
        worker.set_alarm(cell, deadline)
    }

    /// Returns the tick of the deadline, for a check in the process that the worker runs.
    #[inline(always)]
    pub(crate) fn tick_in(&mut self, worker: &Worker) -> Tick {
        match self.at {
            Some(at) => at,
            None => {
                if self.sleep.is_some() {
                    self.sleep = None;
                }
                *self.at.insert(worker.deadline(self.within, USUAL))
            }
        }
    }
}
